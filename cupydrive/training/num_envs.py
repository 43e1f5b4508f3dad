"""The number of copies that trains fastest, by measurement on the device at hand; kept in the cache folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch

from cupydrive import envs
from cupydrive.codegen.source import assemble
from cupydrive.errors import MemoryLimitError
from cupydrive.executors import choose, executor
from cupydrive.executors.cache import keep_measurement, measurement_path, read_measurement
from cupydrive.executors.interop import capture
from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.inputs.arguments import checked_bool, checked_callable
from cupydrive.training.begin import make_run
from cupydrive.training.torch_settings import memory_errors, precision

if TYPE_CHECKING:
    from cupydrive.spec import EnvSpec


SIZES = tuple(4**k for k in range(3, 11))  # 64 to 1,048,576: numbers of copies that are tried
ITERATIONS = 5  # of training that are timed
NO_GAIN = 1.02  # a number of copies that trains less than this much faster, twice in a row, ends the search


def best_num_envs(
    env: str | PathLike[str] | EnvSpec,
    *,
    device: str = "auto",
    remember: bool = True,
    progress: Callable[[str], Any] | None = None,
    **params: Any,
) -> int:
    """Return the number of copies that trains the most env-steps per second; ``make(num_envs="auto")`` asks for it.

    Powers of four are tried with what the environment suggests to train it, until memory ends or nothing is gained.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        device: As for ``make``.
        remember: As for ``tune``.
        progress: Called with a line for each number tried; None: ``print`` to the standard error.
        **params: Parameters of the environment.

    Raises:
        MemoryLimitError: If not even the fewest copies can be trained.
    """
    spec, remember = envs.get(env), checked_bool("best_num_envs", "remember", remember)
    if progress is not None:
        checked_callable("best_num_envs", "progress", progress)
    spec.require_known(params, best_num_envs)
    made, where = spec.make_params(**params), executor(choose(device)[0])
    layout = where.layout(spec, made, SIZES[0])
    text = assemble(spec, made, layout).text if spec.own_program is None else spec.name
    path = measurement_path("num_envs", where.describe(), text, SIZES[-1])
    kept: Any = read_measurement(path).get("num_envs") if remember else None
    if kept in SIZES:
        return kept
    say = progress or (lambda line: print(f"cupydrive: {line}", file=sys.stderr, flush=True))
    rates: dict[int, float] = {}
    without_gain = 0
    for n in SIZES:
        value = training_rate(spec, made, n, where.name)
        if value is None:
            say(f"{n:,} copies do not fit into memory")
            break
        say(f"{n:,} copies train {value / 1e6:,.2f} M env-steps/s")
        without_gain = 0 if value > NO_GAIN * max(rates.values(), default=0) else without_gain + 1
        rates[n] = value
        if without_gain == 2:
            break
    if not rates:
        raise MemoryLimitError(f"{spec.name}: not even {SIZES[0]} copies can be trained in the memory there is")
    best = max(rates, key=lambda n: rates[n])
    if remember:
        keep_measurement(path, {"num_envs": best, "rates": rates})
    return best


def training_rate(spec: EnvSpec, params: Any, num_envs: int, device: str) -> float | None:
    """Return env-steps per second of whole training iterations, or None if memory is short."""
    try:
        with memory_errors():
            run = make_run(spec, num_envs=num_envs, device=device, **asdict(params))
            with precision(run):
                iterate = run.iterate
                if device == "cuda":
                    saved = run.snapshot()
                    iterate = capture(run.iterate, lambda: run.restore(saved)).replay
                iterate()
                run.batch.executor.synchronise()
                begin = time.perf_counter()
                for _ in range(ITERATIONS):
                    iterate()
                run.batch.executor.synchronise()
                return ITERATIONS * run.steps_per_iteration / (time.perf_counter() - begin)
    except MemoryLimitError:
        return None
    finally:
        if device == "cuda":
            with EXCLUSIVE:
                torch.cuda.empty_cache()
