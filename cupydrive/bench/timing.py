"""Timing of repeated calls, and the rows of a benchmark's table."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from cupydrive.protocols import Executor

WARM_UP = 3  # runs before the timed ones
# Minimum duration of one timed run. Calls are repeated to fill it.
RUN_SECONDS = {"cpu": 0.1, "cuda": 0.02}


@dataclass(frozen=True)
class Row:
    """One line of a benchmark. Rates are medians over the runs.

    Args:
        case: ``"rollout"``, ``"stepping"``, ``"sampling"`` or ``"training"``.
        who: ``"cupydrive"``, or the name of another library.
        env: Name of the environment, or the sampled distribution.
        num_envs: Number of environments.
        agents: Number of agents of one environment.
        steps: T, number of steps of one launch or iteration.
        seconds: Time of one call in each run.
        rate: Environment steps per second, or actions per second for sampling.
        bytes_per_step: Bytes written per environment step, computed from the spec, or None if not
            counted.
        operations_per_step: Float operations per environment step, counted by ``count_operations``
            or computed from layers, or None if not counted.
        factors: Type of the factors of matrix products, ``"float32"`` or ``"bfloat16"``.
        params: Parameters of the environment.
        note: Settings, or differences to other rows.
    """

    case: str
    who: str
    env: str
    num_envs: int
    agents: int
    steps: int
    seconds: list[float]
    rate: float
    bytes_per_step: int | None = None
    operations_per_step: float | None = None
    factors: str = "float32"
    params: dict = field(default_factory=dict)
    note: str = ""

    @property
    def spread(self) -> float:
        """Half of the difference between slowest and fastest run, relative to the median."""
        return (max(self.seconds) - min(self.seconds)) / 2 / statistics.median(self.seconds)

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes written per second, or None."""
        return None if self.bytes_per_step is None else self.rate * self.bytes_per_step

    @property
    def operations_per_second(self) -> float | None:
        """Float operations per second, or None."""
        return None if self.operations_per_step is None else self.rate * self.operations_per_step


def make_row(
    case: str,
    env: str,
    num_envs: int,
    agents: int,
    steps: int,
    seconds: Sequence[float],
    who: str = "cupydrive",
    **more: Any,
) -> Row:
    """Return a ``Row`` with the rate ``num_envs * steps`` divided by the median of ``seconds``."""
    rate = num_envs * steps / statistics.median(seconds)
    return Row(case, who, env, num_envs, agents, steps, list(seconds), rate, **more)


def timed(
    call: Callable[[], Any], where: Executor, runs: int, run_seconds: float | None = None
) -> list[float]:
    """Measure the seconds of one call in each of ``runs`` runs.

    CUDA events measure the time on a GPU, and the clock measures it on a CPU.

    Args:
        call: Function to time.
        where: Executor of the call.
        runs: Number of timed runs, after a warm-up.
        run_seconds: Minimum duration of one run. Defaults to ``RUN_SECONDS``.
    """
    for _ in range(WARM_UP):
        call()
    once = _run(call, where, 1)
    repeats = max(1, min(1000, int((run_seconds or RUN_SECONDS[where.name]) / max(once, 1e-9)) + 1))
    _run(call, where, repeats)
    return [_run(call, where, repeats) / repeats for _ in range(runs)]


def _run(call: Callable[[], Any], where: Executor, repeats: int) -> float:
    """Return the duration of ``repeats`` calls in seconds."""
    where.synchronize()
    if where.name == "cuda":
        cupy: ModuleType = where.xp
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end) / 1e3
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - start


def short(number: float) -> str:
    """Format a number with three digits and k, M, G or T, such as 75.0 M."""
    for limit, letter in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * limit:  # including numbers that are rounded up to the limit
            return f"{number / limit:#.3g}{letter}".replace(". ", " ")
    return f"{number:.3g}"
