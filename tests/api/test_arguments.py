"""Any one wrong argument of any public function gives an error of the project that names it, or works; never another error.

And nothing has changed then: a later correct call gives the bits of an object that never saw the wrong one.
"""

import contextlib
import inspect
import io
import signal
import warnings
from functools import lru_cache

import calls
import calls_adapters
import calls_training
import pytest
from calls import digest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd import ODD

import cupydrive as cd
from cupydrive.errors import CupydriveError

SECONDS = 30  # of one case
ROWS = {**calls.ROWS, **calls_adapters.ROWS, **calls_training.ROWS}
# What no argument can mean, unless a row says so.
NEVER = {
    "object", "hostile", "Ellipsis", "complex", "Decimal nan", "module", "slice", "error", "itself", "nested", "np object",
    "nan", "10**5000", "generator", "torch complex", "torch sparse", "np struct", "NUL", "surrogate", "np texts",
}  # fmt: skip
_right = {}  # by row: the digest of what a correct call gives


@lru_cache(maxsize=1)
def all_cases():
    """Return every (row, argument, odd value). Objects are made for it: not while tests are collected."""
    return sorted(
        (name, argument, odd)
        for name, row in ROWS.items()
        for argument in row.arguments(row.it())
        for odd in ODD
        if odd not in row.right.get(argument, ())
    )


class TooLong(BaseException):
    """A case has not ended in its time."""


@contextlib.contextmanager
def quiet(seconds=SECONDS):
    """Raise `TooLong` after a time; show nothing, since warnings of other libraries about odd values are welcome."""

    def stop(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        words = io.StringIO()
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def right(name):
    """Return the digest of a correct call and of what comes after it, on an object that saw nothing else."""
    if name not in _right:
        row = ROWS[name]
        it = row.it()
        _right[name] = digest(row.after(it, row.call(it, **row.arguments(it))))
    return _right[name]


def wrong(case):
    """Return what is wrong with one case, or None."""
    name, argument, odd = case
    row = ROWS[name]
    with quiet():
        expected = right(name)
        it = row.it()
        arguments = row.arguments(it)
        refused = False
        try:
            row.call(it, **{**arguments, argument: ODD[odd]()})
        except CupydriveError as error:
            refused, text = True, str(error)
            if not any(word in text for word in row.words.get(argument, (argument,))):
                return f"does not name it: {type(error).__name__}: {text[:300]}"
            if len(text) > 1500:
                return f"says {len(text)} letters"
        except row.errors:
            refused = True
        except TooLong:
            return "takes too long"
        except Exception as error:  # this is what the test is about
            return f"{type(error).__name__}: {str(error)[:300]}"
        taken = row.takes.get(argument, ())
        if not refused and odd in NEVER and taken != "anything" and odd not in taken:
            return "takes it, though it is right for no argument"
        if not refused:  # an object may have gone on; a new one shows what else has changed
            it = row.it()
        again = digest(row.after(it, row.call(it, **row.arguments(it))))
        return None if again == expected else "a later correct call gives other bits"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Odd paths are written here."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.full
@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(case=st.deferred(lambda: st.sampled_from([case for case in all_cases() if not ROWS[case[0]].slow])))
def test_one_odd_argument_is_named_or_works(case):
    assert wrong(case) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_odd_value_of_every_argument_is_named_or_works(name):
    found = {case[1:]: problem for case in all_cases() if case[0] == name and (problem := wrong(case)) is not None}
    assert not found


# Without a row: what only this package calls or makes, what an environment's author writes, and what takes no arguments.
MADE_BY_US = {
    "VectorEnv",
    "Snapshot.of",
    "Snapshot.restore",
    "Population",
    "Run.restored",
    "TrainConfig",
    "Recording",
    "Snapshot",
    "Sweep",
    "Tournament",
    "Trajectory",
    "Outcome",
    "Observed",
}
CALLED_BY_US = {"Heuristic.player", "Random.player", "Frozen.player"}
OF_AUTHORS = ("EnvSpec.", "PythonKernels")
WITHOUT_ARGUMENTS = {"info", "names", "Heuristic", "Random"}


def test_every_public_function_has_a_row():
    public = {name for name in cd.__all__ if callable(getattr(cd, name))}
    public -= {name for name in public if inspect.isclass(one := getattr(cd, name)) and issubclass(one, BaseException)}
    public |= {
        f"{name}.{method}"
        for name in public
        for method, function in vars(getattr(cd, name)).items()
        if (not method.startswith("_") or method == "__getitem__")
        and (inspect.isfunction(function) or isinstance(function, classmethod))
        and len(inspect.signature(getattr(cd, name).__dict__[method].__get__(None, getattr(cd, name))).parameters)
        > inspect.isfunction(function)
    }
    without = {name for name in public - set(ROWS) - MADE_BY_US - CALLED_BY_US if not name.startswith(OF_AUTHORS)}
    without -= {name for name in ("Run.export", "sweep") if name not in ROWS}  # without the packages that they need
    assert without == WITHOUT_ARGUMENTS, "write a row in calls.py or calls_training.py for each of the others"
