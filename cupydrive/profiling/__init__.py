"""profile(): measure what an environment's kernel costs on this device, and what limits it.

Random rollouts are timed: whether a launch fills the device, how near writes and arithmetic are to what the device reaches in
the same process, and how long parts of a step take alone.
"""

import statistics
from collections.abc import Callable
from os import PathLike
from typing import Any

from cupydrive import envs
from cupydrive.bench.cases import written_bytes
from cupydrive.bench.limits import Ceilings, ceilings
from cupydrive.bench.operations import count_steps
from cupydrive.bench.sweep import DEFAULTS
from cupydrive.bench.timing import timed
from cupydrive.errors import ParameterError
from cupydrive.executors import choose, executor
from cupydrive.executors.interop import capture, torch_stream
from cupydrive.inputs.arguments import checked_int
from cupydrive.profiling.report import Profile, Use
from cupydrive.protocols import Executor
from cupydrive.simulation.batch import KEEP_FREE, OBS_DTYPES, Batch
from cupydrive.simulation.buffers import row_bytes
from cupydrive.simulation.vector import VectorEnv
from cupydrive.spec import EnvSpec, kept_params

__all__ = ["Profile", "Use", "profile"]
KERNEL = "env_rollout"
RUNS, RUN_SECONDS = 5, 0.01  # of each thing that is timed
AT_ONCE = 20  # launches of one CUDA graph
LIMIT_RUNS = 3
BEFORE = 0.5  # of an environment's longest episode is rolled out first, so that episodes end at all times
MOST_BEFORE = 20  # launches


def profile(
    env: str | PathLike | EnvSpec | VectorEnv,
    *,
    num_envs: int | None = None,
    steps: int | None = None,
    device: str = "auto",
    **params: Any,
) -> Profile:
    """Return the ``Profile`` of an environment's random rollouts: what they cost, what limits them, and one thing to try.

    Launches of a GPU are timed as replays of a CUDA graph, without the time of the host. Profiling takes about two seconds if
    the kernel is compiled already. Otherwise it also compiles a second build, which counts operations on the CPU.

    Args:
        env: Name of an environment, path of its Python file, ``EnvSpec``; or a ``VectorEnv``, whose parameters, size, device
            and layout are used. It is not changed.
        num_envs: Number of environments. Defaults to 10,000, or to the ``VectorEnv``'s.
        steps: Number of steps of a launch. Defaults to 32, or to as many as fit into the device's memory.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If an argument is wrong, or ``num_envs``, ``device`` or parameters are passed with a ``VectorEnv``.
        UnknownEnvironmentError, UnknownParameterError, CompileError, DeviceError, MemoryLimitError: As ``make`` does.
    """
    if steps is not None:
        checked_int("profile", "steps", steps)
    if not isinstance(env, VectorEnv):
        spec = envs.get(env)
        spec.require_known(params, profile)
        made = spec.make_params(**params)
        copies = DEFAULTS["num_envs"] if num_envs is None else num_envs
        return measured(Batch(spec, copies, made, executor(choose(device)[0])), steps)
    told = [name for name, value in (("num_envs", num_envs), *params.items()) if value is not None]
    told += ["device"] * (device != "auto")
    if told:
        raise ParameterError(f"profile: {told[0]} is that of the environment as it was made; leave it out")
    return measured(like(env.batch), steps)


def like(batch: Batch, num_envs: int | None = None) -> Batch:
    """Return a new ``Batch`` like another one, with ``num_envs`` environments or with as many."""
    dtype = next(name for name, kind in OBS_DTYPES.items() if kind == batch.obs_dtype.str[1:])
    made = batch.params, batch.executor, 0, batch.layout, dtype
    return Batch(batch.spec, batch.num_envs if num_envs is None else num_envs, *made)


def measured(batch: Batch, steps: int | None = None) -> Profile:
    """Return the ``Profile`` of a ``Batch``, which is reset and stepped."""
    where, spec, params = batch.executor, batch.spec, batch.params
    half, single = like(batch, max(1, batch.num_envs // 2)), like(batch, 1)
    for each in (batch, half, single):
        if each.printer is not None:
            each.printer.choose(None)  # what a kernel prints would be in the way
        each.reset(0)
    steps = steps or min(DEFAULTS["steps"], fitting(batch))
    for _ in range(min(MOST_BEFORE, int(BEFORE * params.max_episode_steps / steps) + 1)):
        buffers = batch.rollout(steps, final_obs=False)
    ends = (where.get(buffers.terminated) | where.get(buffers.truncated)).mean()

    def median(call: Callable[[], object]) -> float:
        calls, count = several(call, where, spec)
        return statistics.median(timed(calls, where, RUNS, RUN_SECONDS)) / count

    seconds = {
        "rollout": median(lambda: batch.rollout(steps, final_obs=False)),
        "half": median(lambda: half.rollout(steps, final_obs=False)),
        "one_step": median(lambda: batch.rollout(1, final_obs=False)),
        "observe": median(batch.observe),
        "reset": median(batch.reset),
        "least_observe": median(single.observe),
        "least_reset": median(single.reset),
    }
    usual = kept_params(spec.make_params())
    return Profile(
        env=spec.name,
        params={name: value for name, value in kept_params(params).items() if value != usual.get(name)},
        num_envs=batch.num_envs,
        agents=sum(g.count for g in batch.groups),
        steps=steps,
        device=where.name,
        machine=where.describe(),
        seconds=seconds,
        episode_ends=float(ends),
        state_bytes=batch.state_dtype.itemsize,
        bytes_per_step=written_bytes(batch.groups, entry=batch.obs_dtype.itemsize),
        observed_bytes=sum(g.count * g.obs_dim for g in batch.groups) * batch.obs_dtype.itemsize,
        half_obs=batch.layout.half_obs,
        operations_per_step=count_steps(spec, params),
        ceilings=limits(where),
        use=use_of(batch),
    )


def several(call: Callable[[], object], where: Executor, spec: EnvSpec) -> tuple[Callable[[], object], int]:
    """Return a function that makes several calls, and their number: a CUDA graph, since launches take the host longer."""
    if where.name == "cpu" or spec.own_program is not None:
        return call, 1

    def calls() -> None:
        for _ in range(AT_ONCE):
            call()

    with torch_stream():
        return capture(calls, lambda: None).replay, AT_ONCE


def fitting(batch: Batch) -> int:
    """Return how many steps of a rollout fit into free memory, at least one."""
    each = row_bytes(batch.spec, batch.params, False, batch.obs_dtype.itemsize) * batch.num_envs
    return max(1, int(batch.executor.free_bytes() * KEEP_FREE / 2) // each)


_limits: dict[tuple[str, str], Ceilings] = {}  # by device and its description, which names the number of threads


def limits(where: Executor) -> Ceilings:
    """Return the ``Ceilings`` of an executor, measured once in a process."""
    known = where.name, where.describe()
    if known not in _limits:
        _limits[known] = ceilings(where, LIMIT_RUNS)
    return _limits[known]


def use_of(batch: Batch) -> Use | None:
    """Return the ``Use`` of the rollout kernel, or None on a CPU or for kernels in Python."""
    if batch.executor.name == "cpu" or batch.spec.own_program is not None:
        return None
    from cupydrive.executors.occupancy import attributes, resident_blocks

    program = batch.program
    return Use(
        **attributes(program, KERNEL),
        blocks=-(-batch.num_envs // program.layout.block_envs),
        **resident_blocks(program, KERNEL),
    )
