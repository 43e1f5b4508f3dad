"""Settings of algorithms: dataclasses whose fields are validated when they are made."""

import inspect
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import Ge, Le, MaxLen
from pydantic import BeforeValidator

from cupydrive.errors import MemoryLimitError, ParameterError, did_you_mean
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.validation import validated
from cupydrive.training.schedule import Range, Schedule

ARGS = "\n\nArgs:"  # begins the list of settings in a docstring
COPIES = 4  # of each weight while it learns: itself, its gradient, two moments of Adam
WIDEST, DEEPEST = 65_536, 64  # layer, network: far beyond what fits, so that a slip is not a matter of memory


def as_tuple(value: object) -> object:
    """Return a list as a tuple."""
    return tuple(value) if isinstance(value, list) else value


Activation = Literal["tanh", "relu", "silu", "gelu"]
Widths = Annotated[tuple[Annotated[int, Ge(1), Le(WIDEST)], ...], MaxLen(DEEPEST), BeforeValidator(as_tuple)]
NonNegative = Annotated[Schedule, Range(0.0)]
Positive = Annotated[Schedule, Range(0.0, positive=True)]
Fraction = Annotated[Schedule, Range(0.0, 1.0)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all algorithms' settings share: every field is checked when they are made."""

    def __new__(cls, *args, **settings):
        """Raise an error that explains an unknown setting; ``__init__`` would raise a bare ``TypeError``."""
        if args:
            raise ParameterError(
                f"{cls.__name__}({shown(args[0])}): settings have names, such as {cls.__name__}(gamma=0.99)"
            )
        known = [f.name for f in fields(cls)]
        for name in settings:
            if name not in known:
                raise ParameterError(unknown_setting(cls, name))
        return super().__new__(cls)

    def __init_subclass__(cls, **options):
        """Let the docstring list inherited settings, too: ``cd.PPO?`` shows them all."""
        super().__init_subclass__(**options)
        own = inspect.cleandoc(cls.__doc__ or cls.__name__)
        inherited = inspect.cleandoc(cls.__base__.__doc__ or "").partition("\nArgs:\n")[2]
        if inherited:
            cls.__doc__ = f"{own}{'' if 'Args:' in own else ARGS}\n{inherited}"

    def __post_init__(self):
        kind = type(self)
        for name, value in validated(
            kind.__name__, kind, {f.name: getattr(self, f.name) for f in fields(self)}
        ).items():
            object.__setattr__(self, name, value)


def unknown_setting(kind, name):
    """Return the error message for a setting that the algorithm does not have."""
    known = [f.name for f in fields(kind)]
    return f"{kind.__name__} has no setting {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}"


def require_network_memory(where, batch, rows, networks):
    """Raise ``MemoryLimitError`` if perceptrons and what learning keeps for them do not fit into free memory.

    Args:
        where: The setting that decides, such as ``"PPO.hidden = (64, 64)"``.
        batch: ``Batch`` of the device.
        rows: Of one forward pass with gradients, which keeps each layer's outputs before and after the activation.
        networks: Widths of each network from the input to the output.
    """
    weights = sum((inner + 1) * outer for widths in networks for inner, outer in pairwise(widths))
    outputs = sum(sum(widths[1:]) for widths in networks)
    needed = 4 * (COPIES * weights + 2 * rows * outputs)
    free = batch.executor.free_bytes()
    if needed > free:
        raise MemoryLimitError(
            f"{where} makes {weights:,} weights, which need {needed:,} bytes with gradients, Adam's state and the outputs of "
            f"{rows:,} rows; {free:,} are free on {batch.executor.name}; lower hidden, or the rows of a minibatch"
        )
