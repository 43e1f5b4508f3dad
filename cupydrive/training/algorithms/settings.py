"""Settings of algorithms: dataclasses that check each field when they are made, and explain what is wrong.

A field says by its metadata what it may hold: ``schedule``, ``integer``, ``number`` and ``choice`` make such fields.
"""

import inspect
from dataclasses import dataclass, field, fields
from itertools import pairwise

import numpy as np

from cupydrive.errors import MemoryLimitError, ParameterError, did_you_mean
from cupydrive.inputs.arguments import checked_int, shown
from cupydrive.training.schedule import checked_number, checked_schedule

ARGS = "\n\nArgs:"  # begins the list of settings in a docstring
COPIES = 4  # of each weight while it learns: itself, its gradient, two moments of Adam
WIDEST, DEEPEST = 65_536, 64  # layer, network: far beyond what fits, so that a slip is not a matter of memory


def schedule(default, low=-np.inf, high=np.inf, positive=False):
    """Return a dataclass field that holds a ``Schedule`` with finite values in [low, high].

    Args:
        default: Its value.
        low: The lowest value.
        high: The highest.
        positive: It may reach 0, as a rate that decays does, but must not be 0 all the time.
    """
    return field(default=default, metadata={"schedule": True, "low": low, "high": high, "positive": positive})


def integer(default):
    """Return a dataclass field that holds a positive int."""
    return field(default=default, metadata={"count": True})


def number(default, low, high=np.inf, above=False, optional=False):
    """Return a dataclass field that holds one finite number.

    Args:
        default: Its value.
        low: The lowest value; with ``above``, it must be greater.
        high: The highest.
        above: Whether ``low`` itself is too low.
        optional: None is a value, too.
    """
    about = {"number": True, "low": low, "high": high, "above": above, "optional": optional}
    return field(default=default, metadata=about)


def choice(default, *choices):
    """Return a dataclass field that holds one of ``choices``."""
    return field(default=default, metadata={"choices": choices})


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
        kind = type(self).__name__
        for f in fields(self):
            value, where, about = getattr(self, f.name), f"{kind}.{f.name}", f.metadata
            if about.get("schedule"):
                value = checked_schedule(where, value, about["low"], about["high"], about["positive"])
                object.__setattr__(self, f.name, value)
            elif about.get("number") and not (about["optional"] and value is None):
                value = checked_number(where, value, about["low"], about["high"])
                if about["above"] and value == about["low"]:
                    raise ParameterError(f"{where} = {shown(value)} is out of range; it must be above {about['low']}")
                object.__setattr__(self, f.name, value)
            elif about.get("count"):
                object.__setattr__(self, f.name, checked_int(kind, f.name, value))
            elif f.type is bool and not isinstance(value, bool):
                raise ParameterError(f"{where} = {shown(value)}; it must be True or False")
            elif "choices" in about and not any(type(value) is type(x) and value == x for x in about["choices"]):
                known = ", ".join(map(repr, about["choices"]))
                raise ParameterError(
                    f"{where} = {shown(value)}; it must be one of {known}.{near(value, about['choices'])}"
                )
        object.__setattr__(self, "hidden", checked_widths(kind, self.hidden))


def near(value, choices):
    """Return a suggestion for a text that is none of ``choices``."""
    return did_you_mean(value, [x for x in choices if isinstance(x, str)]) if isinstance(value, str) else ""


def checked_widths(kind, hidden):
    """Return the widths of hidden layers as a tuple of ints.

    Raises:
        ParameterError: If they are not that, or wider or more than any network that makes sense.
    """
    if not isinstance(hidden, tuple | list):
        raise ParameterError(f"{kind}.hidden = {shown(hidden)}; it must be a tuple of widths, such as (64, 64)")
    if len(hidden) > DEEPEST:
        raise ParameterError(f"{kind}.hidden has {len(hidden):,} layers; it can have {DEEPEST} at most")
    return tuple(checked_int(kind, "hidden", n, 1, WIDEST) for n in hidden)


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
