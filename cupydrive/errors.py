"""Exceptions and warnings.

All errors of a caller have one base class, so that the command line can print them without a
traceback.
"""

from collections.abc import Hashable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cupydrive.training.run import Run


class CupydriveError(Exception):
    """Base class of errors of the caller or of an environment's author.

    The message names the value, the limit and the fix.
    """


class CupydriveWarning(UserWarning):
    """Base class of warnings, for example about an old file or a changed kernel."""


class ParameterError(CupydriveError, ValueError):
    """An argument is unknown, of a wrong type, out of range, or contradicts another argument.

    It may be an argument of any function, a setting of an algorithm, a parameter of an environment,
    or the name of a group, a metric or a policy.
    """


class UnknownParameterError(ParameterError, TypeError):
    """An environment has no parameter of this name."""


class UnknownFieldError(ParameterError, KeyError):
    """``struct State`` has no field of this name. It is also a ``KeyError``."""

    def __str__(self) -> str:
        return self.args[0]


class UnknownEpisodeError(ParameterError, IndexError):
    """A recording has no episode with this index.

    It is also an ``IndexError``, so that a loop over a recording ends.
    """


class UnknownEnvironmentError(CupydriveError, KeyError):
    """No environment has this name."""

    def __str__(self) -> str:
        return self.args[0]


class UnregisteredEnvironmentError(UnknownEnvironmentError):
    """A file belongs to a user's own environment, which the user must pass explicitly.

    Reading a file never executes code that it names.

    Args:
        says: Description of the missing environment.
        call: The correct call in Python.
        file: Python file of the environment, to be passed as ``--env`` on the command line.
    """

    def __init__(self, says: str, call: str, file: str) -> None:
        super().__init__(f"{says}: {call}")
        self.says, self.file = says, file


class SpecError(CupydriveError, ValueError):
    """An environment's description contradicts itself."""


class CompileError(CupydriveError, RuntimeError):
    """A kernel does not compile.

    The message is the compiler's, with line numbers of the kernel file.
    """


class DeviceError(CupydriveError, RuntimeError):
    """The requested device cannot be used here."""


class TrainingError(CupydriveError):
    """Training cannot continue: a number is not finite, or a run cannot be read or written."""


class LostProcessError(TrainingError):
    """Another process that trains the same run has ended or does not respond."""


class NotFiniteError(TrainingError):
    """An observation, a reward or a loss is NaN or infinite.

    Attributes:
        run: The ``Run`` that was trained, or None if it is unknown. Its ``explain()`` finds the
            first non-finite number.
    """

    run: "Run | None" = None


class RenderError(CupydriveError):
    """A picture or video cannot be drawn, encoded or written."""


class SnapshotError(CupydriveError):
    """A snapshot file cannot be read or written."""


class ActionError(CupydriveError, ValueError):
    """An action has the wrong shape, type, device, group or value."""


class KernelFault(CupydriveError, IndexError):
    """A kernel accesses memory out of bounds, crashes, or does not terminate.

    A debug build or a trial in a separate process detects it.
    """


class OrderError(CupydriveError, RuntimeError):
    """A method was called too early, for example before ``reset``, or after ``close``."""


class DataError(CupydriveError):
    """A data file is damaged, or does not fit an environment."""


class MissingDataError(DataError):
    """Data of an environment is not on this machine and could not be downloaded.

    The message describes how to get it.
    """


class MemoryLimitError(CupydriveError, MemoryError):
    """The buffers do not fit into memory. The message contains the number that fits."""


def did_you_mean(name: Hashable, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or an empty string."""
    if not isinstance(name, str) or len(name) > 100:  # comparing a long text would be too slow
        return ""
    # If two names differ only in case, the first is used.
    lower = {other.lower(): other for other in reversed(list(known))}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""
