"""What a caller can get wrong has one base class, so that the command line can print it without a
traceback.
"""

from collections.abc import Hashable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cupydrive.training.run import Run


class CupydriveError(Exception):
    """A mistake of the caller, or of an environment's author; the message names value, limit and
    fix.
    """


class CupydriveWarning(UserWarning):
    """Something is not as expected, and the program goes on: an old file, a changed kernel, an
    older checkpoint.
    """


class ParameterError(CupydriveError, ValueError):
    """What was given cannot be used: it is unknown, of a wrong type, out of range, or contradicts
    something else given.

    It may be an argument of any function, a setting of an algorithm, a parameter of an environment,
    or the name of a group, a metric or a policy.
    """


class UnknownParameterError(ParameterError, TypeError):
    """An environment has no parameter of this name."""


class UnknownFieldError(ParameterError, KeyError):
    """``struct State`` has no field of this name; a ``KeyError`` too, as of any dictionary."""

    def __str__(self) -> str:
        return self.args[0]


class UnknownEpisodeError(ParameterError, IndexError):
    """A recording has no episode of this number; an ``IndexError`` too, so that a loop over a
    recording ends.
    """


class UnknownEnvironmentError(CupydriveError, KeyError):
    """No environment has this name."""

    def __str__(self) -> str:
        return self.args[0]


class UnregisteredEnvironmentError(UnknownEnvironmentError):
    """A file belongs to an environment of a user's own, which only the user can load: nothing in a
    file may execute.

    Args:
        says: What is missing.
        call: The call that works, in Python.
        file: The Python file that the environment came from, to be passed as ``--env`` on the
            command line.
    """

    def __init__(self, says: str, call: str, file: str) -> None:
        super().__init__(f"{says}: {call}")
        self.says, self.file = says, file


class SpecError(CupydriveError, ValueError):
    """An environment's description contradicts itself."""


class CompileError(CupydriveError, RuntimeError):
    """A kernel does not compile; the message is the compiler's, with the kernel file's own
    lines.
    """


class DeviceError(CupydriveError, RuntimeError):
    """The device asked for cannot be used here."""


class TrainingError(CupydriveError):
    """Training cannot go on: a number that is not finite, or a run that cannot be read or
    written.
    """


class LostProcessError(TrainingError):
    """Another process that trains the same run has ended, or does not answer."""


class NotFiniteError(TrainingError):
    """An observation, a reward or a loss is infinite or not a number.

    Attributes:
        run: The ``Run`` that was trained, whose ``explain()`` says what came first; None where no
            run is known.
    """

    run: "Run | None" = None


class RenderError(CupydriveError):
    """A picture or video cannot be drawn, encoded or written."""


class SnapshotError(CupydriveError):
    """A snapshot's file cannot be read or written."""


class ActionError(CupydriveError, ValueError):
    """An action has the wrong shape, type, device, group or value."""


class KernelFault(CupydriveError, IndexError):
    """A kernel has a wild index, crashes, or does not end; found by a debug build or by a process
    of its own.
    """


class OrderError(CupydriveError, RuntimeError):
    """A call came too early, or after ``close``."""


class DataError(CupydriveError):
    """A file of data is damaged, or not what an environment needs."""


class MissingDataError(DataError):
    """Data that an environment needs is not on this machine, and could not be fetched; the message
    says how to get it.
    """


class MemoryLimitError(CupydriveError, MemoryError):
    """The buffers would not fit; says how many environments would."""


def did_you_mean(name: Hashable, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or an empty string."""
    if not isinstance(name, str) or len(name) > 100:  # a long text would take for ever to compare
        return ""
    # of two that differ in case alone, the first
    lower = {other.lower(): other for other in reversed(list(known))}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""
