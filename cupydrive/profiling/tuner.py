"""Tuning by measurement: the fastest layout of threads, and the fastest number of environments.

Measurements are stored in the cache folder, by device, kernel and size. Results are bitwise
identical with every layout.
"""

import statistics
import sys
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import torch

from cupydrive import envs
from cupydrive.bench.cases import DEFAULT_WORK, play_in
from cupydrive.bench.timing import timed
from cupydrive.bench.training import iteration, timed_iteration
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import MemoryLimitError, SpecError
from cupydrive.executors import choose, executor
from cupydrive.executors.cache import keep_measurement, measurement_path, read_measurement
from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.inputs.arguments import checked_int
from cupydrive.playing.torch_settings import memory_errors
from cupydrive.profiling.profile import fitting_envs
from cupydrive.protocols import EnvParams, Executor, ParamValue
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec
from cupydrive.training.begin import make_run

TUNED_RUNS, TUNED_SECONDS = 5, 0.01  # number of timed runs per layout, and seconds per run
SIZES = tuple(4**k for k in range(3, 11))  # numbers of environments to try, 64 to 1,048,576
ITERATIONS = 5  # timed training iterations
# Minimum speed-up. Two consecutive sizes below it end the search.
NO_GAIN = 1.02


@dataclass(frozen=True)
class Tuned:
    """Result of ``tune``.

    Args:
        layout: The fastest ``Layout``.
        rates: Environment steps per second of random rollouts, by description of the layout.
    """

    layout: Layout
    rates: dict[str, float]

    def __str__(self) -> str:
        best = max(self.rates.values())
        lines = [
            f"  {name:<44}{rate / 1e6:12,.1f} M env-steps/s{'  <' * (rate == best)}"
            for name, rate in self.rates.items()
        ]
        return "\n".join(["layouts:", *lines])

    __repr__ = __str__


def tune(
    env: str | PathLike[str] | EnvSpec, num_envs: int, *, device: str = "auto", **params: ParamValue
) -> Tuned:
    """Find the fastest layout of threads for random rollouts.

    ``make(..., layout="tuned")`` uses the result.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        num_envs: Number of environments. Sizes within a factor of two share their measurements.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        **params: Parameters of the environment.

    Returns:
        ``Tuned`` with the fastest layout and the measured rates.

    Raises:
        MemoryLimitError: If the environments do not fit into memory.

    Examples:
        >>> import cupydrive as cd
        >>> tuned = cd.tune("cartpole", 256, device="cpu")
        >>> env = cd.make("cartpole", 256, device="cpu", layout=tuned.layout)
    """
    spec = envs.get(env)
    spec.require_known(params, tune)
    made, where = spec.make_params(**params), executor(choose(device)[0])
    num_envs = checked_int(spec.name, "num_envs", num_envs)
    tried = {layout_text(layout): layout for layout in candidates(spec, made, num_envs, where)}

    def measure() -> dict[str, float]:
        rates = {}
        for name, layout in tried.items():
            try:
                rates[name] = rate(spec, made, num_envs, where, layout)
            except (SpecError, RuntimeError) as error:  # a layout that this device cannot run
                if not rates or isinstance(error, MemoryLimitError):
                    raise
        return rates

    rates = measured_once("layout", spec, made, where, num_envs, tried, measure)
    return Tuned(tried[max(rates, key=lambda name: rates[name])], rates)


def layout_text(layout: Layout) -> str:
    """Format a layout."""
    kept = (
        " ".join(name for name in ("state", "rows") if getattr(layout, f"{name}_on_chip"))
        or "nothing"
    )
    return (
        f"team {layout.team}, {layout.envs_per_block} a block, on chip: {kept}, observations: "
        f"{layout.observations}"
    )


def candidates(spec: EnvSpec, params: EnvParams, num_envs: int, where: Executor) -> list[Layout]:
    """Return layouts to try, the default one first. On a CPU it is the only one."""
    first = where.layout(spec, params, num_envs)
    if where.name == "cpu":
        return [first]
    agents = sum(g.count for g in spec.groups(params))
    found = (
        [Layout(1, block) for block in (4, 8, 16, 32, 64, 128, 256, 512, 1024)]
        if agents <= 8
        else []
    )
    largest = min(1024, 1 << (agents - 1).bit_length())
    for team in (2**k for k in range(1, 11) if max(2, largest // 8) <= 2**k <= largest):
        if team <= 32:
            found += [Layout(team, block // team) for block in (64, 128, 256) if block >= team]
        else:
            found += [Layout(team), Layout(team, rows_on_chip=False)]
    device: Any = where
    return list(
        dict.fromkeys([first, *(layout.fit(spec, params, device.layout_bytes) for layout in found)])
    )


def rate(spec: EnvSpec, params: EnvParams, num_envs: int, where: Executor, layout: Layout) -> float:
    """Measure environment steps per second with a layout."""
    batch = Batch(spec, num_envs, params, where, layout=layout)
    batch.reset(0)
    steps = min(DEFAULT_WORK["steps"], fitting_envs(batch))
    play_in(batch, steps)
    seconds = timed(lambda: batch.rollout(steps, final_obs=False), where, TUNED_RUNS, TUNED_SECONDS)
    return num_envs * steps / statistics.median(seconds)


def measured_once(
    kind: str,
    spec: EnvSpec,
    params: EnvParams,
    where: Executor,
    num_envs: int,
    names: Collection[str],
    measure: Callable[[], dict[str, float]],
) -> dict[str, float]:
    """Return rates by name from the cache folder, or measure and store them."""
    layout = where.layout(spec, params, num_envs)
    text = assemble(spec, params, layout).text if spec.own_program is None else spec.name
    path = measurement_path(kind, where.describe(), text, num_envs.bit_length())
    rates = read_measurement(path)
    if not rates or not all(
        name in names and isinstance(rate, float) for name, rate in rates.items()
    ):
        rates = measure()
        keep_measurement(path, rates)
    return rates


def best_num_envs(
    env: str | PathLike[str] | EnvSpec, *, device: str = "auto", **params: ParamValue
) -> int:
    """Find the number of environments that trains the most environment steps per second.

    ``make(num_envs="auto")`` uses the result. Powers of four are tried with the suggested training
    of the environment, until memory is exhausted or the speed stops increasing. Each result is
    printed to the standard error.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        **params: Parameters of the environment.

    Raises:
        MemoryLimitError: If even the smallest number of environments does not fit into memory.
    """
    spec = envs.get(env)
    spec.require_known(params, best_num_envs)
    made, where = spec.make_params(**params), executor(choose(device)[0])

    def measure() -> dict[str, float]:
        rates: dict[str, float] = {}
        without_gain = 0
        for n in SIZES:
            try:
                value = training_rate(spec, made, n, where.name)
            except MemoryLimitError:
                if not rates:
                    raise
                break
            print(
                f"cupydrive: {n:,} environments train {value / 1e6:,.2f} M env-steps/s",
                file=sys.stderr,
                flush=True,
            )
            without_gain = (
                0 if value > NO_GAIN * max(rates.values(), default=0) else without_gain + 1
            )
            rates[str(n)] = value
            if without_gain == 2:
                break
        return rates

    rates = measured_once("num_envs", spec, made, where, SIZES[0], list(map(str, SIZES)), measure)
    return int(max(rates, key=lambda n: rates[n]))


def training_rate(spec: EnvSpec, params: EnvParams, num_envs: int, device: str) -> float:
    """Measure environment steps per second of complete training iterations."""
    try:
        with memory_errors():
            run = make_run(spec, num_envs=num_envs, device=device, **asdict(params))
            iterate = iteration(run)
            with run.computing():
                iterate()
                return run.steps_per_iteration / timed_iteration(iterate, ITERATIONS, device)
    finally:
        if device == "cuda":
            with EXCLUSIVE:
                torch.cuda.empty_cache()
