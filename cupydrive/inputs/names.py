"""Unknown names: error messages with the nearest known one."""

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
    """Return the error message for a name in ``**params`` that is no parameter.

    Args:
        env: Name of the environment.
        name: What was given.
        known: Names of its parameters.
        call: The function whose ``**params`` they are; one of its own arguments may have been
            meant.
        hint: What the caller knows of that name, instead of a guess.
    """
    own = inspect.signature(call).parameters if call else {}
    also = [argument for argument, each in own.items() if each.kind is not each.VAR_KEYWORD]
    found = f": {hint}." if hint else f".{did_you_mean(name, [*known, *also])}"
    return f"{env} has no parameter {shown(name)}{found} It has: {', '.join(known)}"


class NotCopied:
    """Base class of objects that own memory which kernels write: ``copy`` and ``pickle`` raise
    ``ParameterError``.
    """

    instead = (  # why, and what to do
        "it owns memory that kernels write. Keep a state with env.snapshot() (of an adapter: "
        "env.unwrapped.env.snapshot()) and call restore(snapshot) on this environment or on "
        "another from cupydrive.make(...). Keep a run with run.save(folder) and "
        "cupydrive.load(folder)"
    )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise ``ParameterError``, from ``copy.copy``, ``copy.deepcopy`` and ``pickle``."""
        raise ParameterError(f"{type(self).__name__} cannot be copied or pickled: {self.instead}")
