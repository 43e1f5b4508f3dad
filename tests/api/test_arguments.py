"""Every wrong value of every argument of every public function is refused by an error of the
project that names the argument.

Nothing has changed then: a right call gives the bits of an object that never saw a wrong one.
"""

import contextlib
import inspect
import io
import signal
import warnings
from collections.abc import Iterator

import calls
import calls_adapters
import calls_training
import odd
import pytest

import cupydrive as cd
from cupydrive import errors
from cupydrive.errors import CupydriveError

ROWS = {**calls.ROWS, **calls_adapters.ROWS, **calls_training.ROWS}
SECONDS = 30  # of one call


class TooLong(BaseException):
    """A call has not ended in its time."""


@contextlib.contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise `TooLong` after a time."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def problem(row: calls.Row, it: object, right: dict, argument: str, expression: str) -> str | None:
    """Return what is wrong with one call, or None."""
    try:
        with limited():
            row(it, **{**right, argument: odd.make(expression)})
    except CupydriveError as error:
        text = str(error)
        named = any(word in text for word in row.words.get(argument, (argument,)))
        return None if named and len(text) <= 1500 else f"{type(error).__name__}: {text[:300]}"
    except row.errors:
        return None
    except TooLong:
        return "takes too long"
    except Exception as error:  # this is what the test is about
        return f"{type(error).__name__}: {str(error)[:300]}"
    return "taken"


@pytest.mark.parametrize("name", ROWS)
def test_every_wrong_value_is_refused_by_the_arguments_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row, found = ROWS[name], {}
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries, about wrong values
        fresh, it = row.made(), row.made()
        expected = calls.digest([row(fresh, **row.arguments(fresh)), fresh])
        right = row.arguments(it)
        for argument, value in right.items():
            kind = row.kinds.get(argument) or odd.kind_of(argument, value)
            for expression in {*odd.NEVER, *odd.KINDS[kind]} - {*row.takes.get(argument, ())}:
                if wrong := problem(row, it, right, argument, expression):
                    found[argument, kind, expression] = wrong
        assert not found
        assert calls.digest([row(it, **row.arguments(it)), it]) == expected


# Without a row: what only this package calls or makes, what an environment's author writes, and
# what takes no arguments.
MADE_BY_US = {
    "VectorEnv",
    "Population",
    "Run.restored",
    "TrainConfig",
    "Recording",
    "Snapshot",
    "Sweep",
    "Tournament",
    "Trajectory",
    "StepResult",
    "Observation",
}
CALLED_BY_US = {
    "HeuristicPolicy.player",
    "RandomPolicy.player",
    "FrozenPolicy.player",
    "Snapshot.of",
    "Snapshot.restore",
    "GRU.module",
    "LSTM.module",
    "MinGRU.module",
    "Conv.by_layer",
    "Conv.layers",
    "Network.convolutions",
    "Network.inputs",
    "Network.input_shape",
    "Network.outputs",
    "Network.tower_inputs",
    "OnPolicy.network_for",
    "Group.obs_bytes",
}
OF_AUTHORS = ("EnvSpec.", "PythonKernels")
WITHOUT_ARGUMENTS = {"info", "names", "HeuristicPolicy", "RandomPolicy"}


def test_every_public_function_has_a_row():
    public = {name for name in cd.__all__ if callable(getattr(cd, name))}
    public -= {
        name
        for name in public
        if inspect.isclass(one := getattr(cd, name)) and issubclass(one, BaseException)
    }
    public |= {
        f"{name}.{method}"
        for name in public
        for method, function in vars(getattr(cd, name)).items()
        if (not method.startswith("_") or method == "__getitem__")
        and (inspect.isfunction(function) or isinstance(function, classmethod))
        and len(
            inspect.signature(
                getattr(cd, name).__dict__[method].__get__(None, getattr(cd, name))
            ).parameters
        )
        > inspect.isfunction(function)
    }
    without = {
        name
        for name in public - set(ROWS) - MADE_BY_US - CALLED_BY_US
        if not name.startswith(OF_AUTHORS)
    }
    # without the packages that they need
    without -= {name for name in ("Run.export", "sweep") if name not in ROWS}
    assert without == WITHOUT_ARGUMENTS, (
        "write a row in calls.py or calls_training.py for each of the others"
    )


def test_every_error_is_offered():
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, CupydriveError)
    }
    assert all(getattr(cd, name) is getattr(errors, name) for name in kinds)
