"""The layout of threads for rollouts, by measurement.

It is found in seconds on the device at hand and kept in the cache folder, by device, kernel and size. Whatever is chosen,
results have the same bits. Letters: N environments.
"""

import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from cupydrive import envs
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import MemoryLimitError, SpecError
from cupydrive.executors import choose, executor
from cupydrive.executors.cache import keep_measurement, measurement_path, read_measurement
from cupydrive.inputs.arguments import checked_bool, checked_int
from cupydrive.protocols import EnvParams, Executor
from cupydrive.simulation.batch import Batch
from cupydrive.simulation.buffers import row_bytes
from cupydrive.spec import EnvSpec

STEPS = 32  # of a launch
RUNS = 5
SECONDS = 0.01  # of one run, at least


@dataclass(frozen=True)
class Tuned:
    """What ``tune`` found.

    Args:
        layout: The fastest ``Layout``.
        rates: env-steps per second of random rollouts by layout, in words, the default one first.
        cached: Whether this was known.
    """

    layout: Layout
    rates: dict[str, float]
    cached: bool = False

    def __str__(self) -> str:
        best = max(self.rates, key=lambda name: self.rates[name])
        lines = [f"layouts{' (known)' * self.cached}:"]
        lines += [
            f"  {name:<44}{rate / 1e6:12,.1f} M env-steps/s{'  <' * (name == best)}"
            for name, rate in self.rates.items()
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _named(layout: Layout) -> str:
    """Return a layout as one line of text."""
    kept = " ".join(name for name in ("state", "rows") if getattr(layout, f"{name}_near")) or "nothing"
    return f"team {layout.team}, {layout.envs_per_block} a block, on chip: {kept}, observations: {layout.observations}"


def candidates(spec: EnvSpec, params: EnvParams, num_envs: int, where: Executor) -> list[Layout]:
    """Return layouts worth a try, the default one first; on the CPU there is no other."""
    first = where.layout(spec, params, num_envs)
    if where.name == "cpu":
        return [first]
    agents = sum(g.count for g in spec.groups(params))
    found = [Layout(1, block) for block in (4, 8, 16, 32, 64, 128, 256, 512, 1024)] if agents <= 8 else []
    largest = min(1024, 1 << (agents - 1).bit_length())
    for team in (2**k for k in range(1, 11) if max(2, largest // 8) <= 2**k <= largest):
        found += (
            [Layout(team, block // team) for block in (64, 128, 256) if block >= team]
            if team <= 32
            else [Layout(team), Layout(team, rows_near=False)]
        )
    fitted = [layout.fit(spec, params, where.layout_bytes) for layout in found]
    return list(dict.fromkeys([first, *fitted]))


def tune(
    env: str | Path | EnvSpec, num_envs: int, *, device: str = "auto", remember: bool = True, **params: object
) -> Tuned:
    """Return the ``Tuned`` layouts of random rollouts of ``num_envs`` copies; ``make(..., layout="tuned")`` asks for it.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        num_envs: N; sizes within a factor of two share what was found.
        device: As for ``make``.
        remember: Use and keep what was found; otherwise measure anew and keep nothing.
        **params: Parameters of the environment.

    Raises:
        MemoryLimitError: If N copies do not fit.
    """
    spec, remember = envs.get(env), checked_bool("tune", "remember", remember)
    spec.require_known(params, tune)
    made, where = spec.make_params(**params), executor(choose(device)[0])
    num_envs = checked_int(spec.name, "num_envs", num_envs)
    each = row_bytes(spec, made, final_obs=False)
    if num_envs * each > where.free_bytes():
        raise MemoryLimitError(
            f"tune: num_envs = {num_envs:,} needs {num_envs * each:,} bytes for one step, more than are free"
        )
    tried = candidates(spec, made, num_envs, where)
    text = assemble(spec, made, tried[0]).text if spec.own_program is None else spec.name
    path = measurement_path("layout", where.describe(), text, num_envs.bit_length())
    kept = read_measurement(path) if remember else {}
    for layout in tried:
        if asdict(layout) == kept.get("layout"):
            return Tuned(layout, kept.get("rates", {}), cached=True)
    rates: dict[Layout, float] = {}
    for layout in tried:
        try:
            rates[layout] = rate(spec, made, num_envs, where, layout)
        except (SpecError, RuntimeError) as error:
            if layout is tried[0] or isinstance(error, MemoryLimitError):
                raise
    best = max(rates, key=lambda layout: rates[layout])
    found = Tuned(best, {_named(layout): value for layout, value in rates.items()})
    if remember:
        keep_measurement(path, {"layout": asdict(best), "rates": found.rates})
    return found


def rate(spec: EnvSpec, params: EnvParams, num_envs: int, where: Executor, layout: Layout) -> float:
    """Return env-steps per second under ``layout``, in launches of as many steps as fit, at most ``STEPS``."""
    fit = where.free_bytes() // 4 // (row_bytes(spec, params, final_obs=False) * num_envs)
    steps = max(1, min(STEPS, fit))
    batch = Batch(spec, num_envs, params, where, layout=layout)
    batch.reset(0)

    def run(times: int) -> float:
        where.synchronise()
        begin = time.perf_counter()
        for _ in range(times):
            batch.rollout(steps, final_obs=False)
        where.synchronise()
        return (time.perf_counter() - begin) / times

    run(max(1, min(params.max_episode_steps // steps, 20)))  # until episodes end now and then
    times = max(1, int(SECONDS / run(1)))
    return num_envs * steps / statistics.median(run(times) for _ in range(RUNS))
