"""What the programs of WarpDrive 2.7 share: its environments on both backends, and a process of its
own for each row.

WarpDrive needs gym, which NumPy 2 has left behind: Gymnasium stands in for it. It writes a module
into its own folder and imports it once, so every environment has a process of its own. Its CUDA C
backend needs PyCUDA and nvcc, and has Tag only; its sampler keeps a random state per agent in the
device's heap, which is made large enough for them here.
"""

import itertools
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from protocol import absent

# of the device, for 2,000,000 random states; WarpDrive leaves it at 8 MB, and its kernel fails then
HEAP_BYTES = 2**30
WORDS = 300  # characters of a reason, at most
# a row that has less left is not begun: torch, Numba and the environment are not there sooner
LEAST_SECONDS = 10
STAND_INS = (
    "gym",
    "gym.spaces",
    "gym.envs",
    "gym.envs.classic_control",
    "gym.envs.classic_control.cartpole",
)
CARTPOLE = "single_agent.classic_control.cartpole.cartpole", "CUDAClassicControlCartPoleEnv"
TAG_GRID = "tag_gridworld.tag_gridworld", "CUDATagGridWorld"
TAG_CONTINUOUS = "tag_continuous.tag_continuous", "TagContinuous"
BACKENDS = {"numba": "Numba", "pycuda": "CUDA C"}
MODULES = {"numba": "numba.cuda", "pycuda": "pycuda.driver"}  # that a backend cannot do without


@dataclass(frozen=True)
class Work:
    """What one row is of.

    Args:
        env: Our name of the environment.
        task: WarpDrive's module and class.
        settings: Arguments of the class.
        n: Copies.
        steps: T.
        hidden: Widths of the network's hidden layers, where one learns.
    """

    env: str
    task: tuple[str, str]
    settings: dict = field(default_factory=dict)
    n: int = 2000
    steps: int = 32
    hidden: tuple[int, ...] = ()


def who(backend):
    """Return what a row calls WarpDrive on a backend."""
    return f"WarpDrive {version('rl-warp-drive')}, {BACKENDS[backend]}"


def sampler_of(backend):
    """Return WarpDrive's sampler of actions for ``backend``, with room for its random states."""
    if backend == "numba":
        return import_module(
            "warp_drive.managers.numba_managers.numba_function_manager"
        ).NumbaSampler
    sampler = import_module(
        "warp_drive.managers.pycuda_managers.pycuda_function_manager"
    ).PyCUDASampler
    driver = import_module("pycuda.driver")  # WarpDrive's module has made torch's context its own
    driver.Context.set_limit(driver.limit.MALLOC_HEAP_SIZE, HEAP_BYTES)
    return sampler


def wrapped(work, settings, backend):
    """Return WarpDrive's wrapper of ``work.n`` copies of an environment, and its sampler's class;
    nothing is reset yet.
    """
    import numpy as np

    np.row_stack = np.vstack  # which NumPy 2.0 renamed
    for stand_in in STAND_INS:
        sys.modules[stand_in] = import_module(stand_in.replace("gym", "gymnasium", 1))
    from warp_drive.env_wrapper import EnvWrapper

    make_sampler, (module, name) = sampler_of(backend), work.task
    env = getattr(import_module(f"example_envs.{module}"), name)(**settings)
    wrapper = EnvWrapper(env, num_envs=work.n, env_backend=backend)
    # what its training script does: without it nobody moves
    if work.task == TAG_GRID and backend == "pycuda":
        table = "kIndexToActionArr"
        wrapper.cuda_data_manager.add_shared_constants({table: env.step_actions})
        wrapper.cuda_function_manager.initialize_shared_constants(
            wrapper.cuda_data_manager, constant_names=[table]
        )
    return wrapper, make_sampler


def usable(backend):
    """Return why ``backend`` cannot be used here, or an empty string."""
    try:
        import_module(MODULES[backend])
    except ImportError as missing:
        return f"{BACKENDS[backend]}: not installed: {missing}"
    return (
        ""
        if backend == "numba" or shutil.which("nvcc")
        else f"{BACKENDS[backend]}: there is no nvcc on PATH"
    )


def time_each(given, program, works, seconds, total):
    """Tell the row of each work on each backend; what fails does not keep the others from being
    timed.

    Args:
        given: What ``arguments`` returned.
        program: Name of the module whose ``time_one(number, runs, backend)`` tells the row of a
            work.
        works: ``Work``s.
        seconds: Of one row, at most.
        total: Seconds of all rows together, at most.
    """
    if given.device != "cuda":
        absent("WarpDrive's environments of its GPU backends run on a GPU")
    try:
        version("rl-warp-drive")
    except ImportError as missing:
        absent(f"not installed: {missing}")
    problems = {backend: usable(backend) for backend in given.backends}
    if all(problems.values()):
        absent("; ".join(problems.values()))
    failed, end = [], time.monotonic() + total
    for (number, work), backend in itertools.product(enumerate(works), given.backends):
        if (
            work.env not in given.envs
            or problems[backend]
            or (backend == "pycuda" and work.task == CARTPOLE)
        ):
            continue
        left = end - time.monotonic()
        call = f"import {program}; {program}.time_one({number}, {given.runs}, {backend!r})"
        if left < LEAST_SECONDS:
            reason = f"not begun: all rows have {total} s, and {max(left, 0):.0f} s are left"
        else:
            reason = tell_rows([sys.executable, "-c", call], min(seconds, left))
        if reason:
            failed.append(
                f"{work.env} x {work.n} of {work.steps} steps, {BACKENDS[backend]}: {reason}"
            )
    if failed:
        sys.exit("; ".join(failed))
    if any(problems.values()):
        absent("; ".join(filter(None, problems.values())))


def tell_rows(command, seconds):
    """Run a command for so long at most, tell the rows that it tells, and return why it failed, or
    an empty string.
    """
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"still running after {seconds:.0f} s"
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    print(*rows, sep="\n", end="\n" * bool(rows), flush=True)
    if not done.returncode:
        return "" if rows else "it told no row"
    return reason_of(done.returncode, done.stdout, done.stderr)


def reason_of(code, out, err):
    """Return why a process failed, on one line: its last exception, and what nvcc, whose errors are
    in ``out``, said first.
    """
    found = [*re.finditer(r"^[\w.]*(?:Error|Exception|Exit)\b(?! ignored)", err, re.M)]
    lines = err.strip().splitlines() or [f"ended with {code}, no reason given"]
    last = err[found[-1].start() :] if found else lines[-1]
    nvcc = [line for line in out.splitlines() if re.search(r"\b(error|fatal)\b", line)][:1]
    return " | ".join(" ".join(text.split())[:WORDS] for text in [last, *nvcc])
