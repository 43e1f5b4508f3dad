"""Error messages for unknown names, with the nearest known name."""

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import NoReturn, SupportsIndex

from cupydrive.errors import ParameterError, did_you_mean
from cupydrive.inputs.arguments import shown


def unknown_parameter(
    env: str,
    name: Hashable,
    known: Sequence[str],
    call: Callable[..., object] | None = None,
    hint: str = "",
) -> str:
    """Return the error message for an unknown name in ``**params``.

    Args:
        env: Name of the environment.
        name: The unknown name.
        known: Names of the environment's parameters.
        call: Function that received ``**params``. The message may suggest one of its arguments.
        hint: The caller's explanation, which replaces the suggestion.
    """
    own = inspect.signature(call).parameters if call else {}
    also = [argument for argument, each in own.items() if each.kind is not each.VAR_KEYWORD]
    found = f": {hint}." if hint else f".{did_you_mean(name, [*known, *also])}"
    return f"{env} has no parameter {shown(name)}{found} It has: {', '.join(known)}"


class NotCopied:
    """Base class of objects that own kernel memory, for which ``copy`` and ``pickle`` raise an
    error.
    """

    instead = (  # the reason and the remedy
        "it owns memory that kernels write. Keep a state with env.snapshot() (of an adapter: "
        "env.unwrapped.env.snapshot()) and call restore(snapshot) on this environment or on "
        "another from cupydrive.make(...). Keep a run with run.save(folder) and "
        "cupydrive.load(folder)"
    )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise ``ParameterError`` in ``copy.copy``, ``copy.deepcopy`` and ``pickle``."""
        raise ParameterError(f"{type(self).__name__} cannot be copied or pickled: {self.instead}")
