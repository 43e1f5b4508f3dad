"""Skips tests marked `gpu` where CuPy finds no CUDA GPU.

Imports only the standard library and pytest, so that `python -m pytest -m gpu` in the repository
root also works where this project is not installed. CUPYDRIVE_REQUIRE_GPU=1 turns the skip into an
error: on a machine with a GPU, a broken CuPy would otherwise look like a passing run.

Compiled kernels go where the package puts them: the user's cache folder, or $CUPYDRIVE_CACHE. Tests
share that folder on purpose, so that each kernel is compiled once, not once per worker.

Most of the time of `make test` is compiling. So kernels are built with -O1 here, which takes half
the time and gives the same bits. Tests of those bits are marked `optimised` and have what users
get, and so are those that train for long, which -O1 makes three times as slow. So have slow tests,
and tests of a GPU, which compare it with a CPU. CUPYDRIVE_OPTIMIZE=3 builds all like that, as `make
test-all` does.

An environment of the package that is asked for by its name has made-up tables here, so that what
holds for every environment is tested without anybody's data. Tests of the data itself use the
environment's own SPEC, and are skipped without it.
"""

import importlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from functools import cache, lru_cache, wraps
from pathlib import Path
from subprocess import CompletedProcess

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEVEL = os.environ.get("CUPYDRIVE_OPTIMIZE", "1")
# part of cupydrive.executors.compiler's message
NO_COMPILER = "needs a C++ compiler and found none"
# Tables from upstream as they lie beside a checkout. No test asks the network: port 9 of this
# machine answers nobody.
DATA = ROOT.parent / "shared" / "data" / "real_world"
if DATA.is_dir():
    os.environ.setdefault("CUPYDRIVE_DATA", str(DATA))
os.environ.setdefault("CUPYDRIVE_DATA_URL", "http://127.0.0.1:9")
# Modules of all folders import each other by name, in this process and in programs that it starts.
# Names are unique.
FOLDERS = [
    *(str(ROOT / name) for name in ("", "docs", "gallery")),
    *sorted({str(path.parent) for path in (ROOT / "tests").rglob("*.py")}),
]
sys.path[:0] = FOLDERS
os.environ["PYTHONPATH"] = os.pathsep.join(
    [*FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])]
)
# Tests that start another pytest must not share this one's --basetemp, which a new session empties.
os.environ.pop("PYTEST_ADDOPTS", None)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def optional(name):
    """Return a module of a package that only some tests need; skip them where it is not installed,
    but fail under CI.
    """
    if "CI" in os.environ:
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"needs {name}, which the extra `dev` brings")


def python_path(*folders):
    """Return PYTHONPATH with ``folders`` before its present value, which has this checkout and all
    folders of tests.
    """
    return os.pathsep.join([*map(str, folders), os.environ["PYTHONPATH"]])


def run_python(
    *arguments: object, cwd: Path | None = None, seconds: float = 100, **environment: str
) -> CompletedProcess:
    """Run a Python process that finds this checkout; return it when it is done, or fail after so
    many seconds.
    """
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": python_path()} | environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=cwd,
    )


def command(line: str) -> int:
    """Run a command line of ours, without its first word, in this process; return its exit code."""
    from cupydrive.cli.main import main

    return main(shlex.split(line))


@lru_cache(maxsize=1)
def no_gpu_reason():
    """Return why there is no usable GPU, an empty string if there is one."""
    try:
        with warnings.catch_warnings():
            # What CuPy warns about while it is imported says nothing about this project.
            warnings.simplefilter("ignore")
            import cupy

            count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        # A missing CuPy, a missing driver and a driver too old raise three unrelated types.
        return f"{type(error).__name__}: {error}"
    return "" if count else "CuPy counts 0 CUDA devices"


def pytest_configure(config):
    """Without tests, -m or -k on the command line, run what `make test` runs.

    SIGINT raises KeyboardInterrupt, also if a shell started the process with "&".
    """
    named = (
        config.args_source is config.ArgsSource.ARGS
        or config.option.markexpr
        or config.option.keyword
    )
    if not named:
        config.option.markexpr = "first"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the first cases of each test as `first`; then let pytest select by -m, and long tests
    begin first.
    """
    cases = Counter()
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("full", "slow", "mutants")):
            cases[item.parent.nodeid, item.originalname] += 1
            quick = item.get_closest_marker("quick")
            if cases[item.parent.nodeid, item.originalname] <= (quick.args[0] if quick else 1):
                item.add_marker("first")
    yield
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    needs_gpu = any(item.get_closest_marker("gpu") for item in items)
    if needs_gpu and os.environ.get("CUPYDRIVE_REQUIRE_GPU") == "1" and no_gpu_reason():
        raise pytest.UsageError(
            f"CUPYDRIVE_REQUIRE_GPU=1, but there is no usable GPU: {no_gpu_reason()}"
        )


# What a test needs and a machine lacks is skipped from here: pytest sums up the skips of one place
# and reason in one line.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    shown = [report.longreprtext, *(text for _, text in report.sections)]
    if report.failed and "CI" not in os.environ and any(NO_COMPILER in text for text in shown):
        report.outcome, report.longrepr = "skipped", (__file__, 0, "Skipped: no C++ compiler")
    return report


@pytest.hookimpl(tryfirst=True)  # before fixtures, which compile, too
def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and no_gpu_reason():
        pytest.skip(f"no usable GPU: {no_gpu_reason()}")
    if "browser" in item.fixturenames and browser_program() is None and "CI" not in os.environ:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)}")
    as_users_have_it = any(map(item.get_closest_marker, ("optimised", "gpu", "slow")))
    os.environ["CUPYDRIVE_OPTIMIZE"] = "3" if as_users_have_it else LEVEL
    make_up_tables()


def make_up_tables():
    """Let ``envs.get`` give environments of the package made-up tables; the same object each time,
    as it does.
    """
    envs = sys.modules.get("cupydrive.envs")
    if envs is None or hasattr(envs.get, "of_package"):
        return
    get, made = envs.get, cache(lambda spec: spec.with_made_up_tables())

    @wraps(get)
    def get_made_up(name):
        own = not isinstance(name, str) or name.endswith(".py") or name in envs._registered
        return get(name) if own else made(get(name))

    get_made_up.of_package = get
    envs.get = get_made_up


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory):
    """What tests and their programs write to the temporary folder lies in pytest's own, which keeps
    that of three runs.
    """
    folder = tmp_path_factory.mktemp("temporary", numbered=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def forget_registered_environments():
    """Tests that register an environment leave no trace of it."""
    yield
    module = sys.modules.get("cupydrive.envs")
    if module is not None:
        module._registered.clear()


@pytest.fixture(autouse=True)
def give_back_memory(request):
    """Tests of one GPU run beside each other: what the pools of one process keep, another cannot
    have.
    """
    yield
    if request.node.get_closest_marker("gpu") and not no_gpu_reason():
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


def browser_program():
    """Return the path of this machine's browser, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="module")
def browser():
    """A headless browser of this machine; CI must have one.

    Its event loop ends before tests of other modules run.
    """
    sync_playwright = optional("playwright.sync_api").sync_playwright
    program = browser_program()
    assert program is not None, "no browser; .ci/run installs Debian's package chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
