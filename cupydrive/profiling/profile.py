"""profile(): measure the costs of an environment's kernel on this device, and its bottleneck.

The profiler times random rollouts. It determines whether a launch fills the device, and compares
writes and arithmetic with the limits of the device, measured in the same process.
"""

import statistics
from collections.abc import Callable
from os import PathLike
from typing import Any

from cupydrive import envs
from cupydrive.bench.cases import DEFAULT_WORK, play_in, written_bytes
from cupydrive.bench.limits import ceilings
from cupydrive.bench.operations import count_steps
from cupydrive.bench.timing import timed
from cupydrive.errors import ParameterError
from cupydrive.executors import choose, executor
from cupydrive.executors.interop import capture, torch_stream
from cupydrive.inputs.arguments import checked_int
from cupydrive.profiling.occupancy import use_of
from cupydrive.profiling.report import Profile
from cupydrive.protocols import ParamValue
from cupydrive.simulation.batch import KEEP_FREE, OBS_DTYPES, Batch
from cupydrive.simulation.buffers import row_bytes
from cupydrive.simulation.vector import VectorEnv
from cupydrive.spec import EnvSpec, kept_params

KERNEL = "env_rollout"
PROFILED_RUNS, PROFILED_SECONDS = 5, 0.01  # runs of each timing, and seconds per run
AT_ONCE = 20  # launches per CUDA graph
LIMIT_RUNS = 3


def profile(
    env: str | PathLike | EnvSpec | VectorEnv,
    *,
    num_envs: int | None = None,
    steps: int | None = None,
    device: str = "auto",
    **params: ParamValue,
) -> Profile:
    """Profile an environment's random rollouts: costs, bottleneck, and a suggestion.

    On a GPU, launches are timed as replays of a CUDA graph, without the time of the host. Profiling
    takes about two seconds if the kernel is compiled already. Otherwise it also compiles a second
    build, which counts operations on the CPU.

    Args:
        env: Name of an environment, path of its Python file, ``EnvSpec``, or a ``VectorEnv``. The
            parameters, size, device and layout of a ``VectorEnv`` are used, and it is not modified.
        num_envs: Number of environments. Defaults to 10,000, or to the ``VectorEnv``'s.
        steps: Number of steps per launch. Defaults to 32, or to as many as fit into the device's
            memory.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        **params: Parameters of the environment.

    Returns:
        ``Profile``, which prints as a report.

    Raises:
        ParameterError: If an argument is invalid, or ``num_envs``, ``device`` or parameters are
            passed with a ``VectorEnv``.
        UnknownEnvironmentError, UnknownParameterError, CompileError, DeviceError, MemoryLimitError:
            As in ``make``.

    Examples:
        >>> import cupydrive as cd
        >>> report = cd.profile("cartpole", num_envs=256, device="cpu")
        >>> report.rate > 0.0
        True
    """
    if steps is not None:
        checked_int("profile", "steps", steps)
    if isinstance(env, VectorEnv):
        given = {"num_envs": num_envs, "device": None if device == "auto" else device} | params
        for name, value in given.items():
            if value is not None:
                raise ParameterError(f"profile: the VectorEnv already defines {name}. Omit {name}")
        return measured(like(env.batch, env.batch.num_envs), steps)
    spec = envs.get(env)
    spec.require_known(params, profile)
    made = spec.make_params(**params)
    size = DEFAULT_WORK["num_envs"] if num_envs is None else num_envs
    return measured(Batch(spec, size, made, executor(choose(device)[0])), steps)


def like(batch: Batch, num_envs: int) -> Batch:
    """Create a ``Batch`` like another one, with ``num_envs`` environments."""
    dtype = next(name for name, kind in OBS_DTYPES.items() if kind == batch.obs_dtype.str[1:])
    return Batch(batch.spec, num_envs, batch.params, batch.executor, 0, batch.layout, dtype)


def measured(batch: Batch, steps: int | None = None) -> Profile:
    """Profile a ``Batch``, which is reset and stepped."""
    where, spec, params = batch.executor, batch.spec, batch.params
    half = like(batch, max(1, batch.num_envs // 2))
    for each in (batch, half):
        if each.printer is not None:
            each.printer.choose(None)  # disable the output of kernels
        each.reset(0)
    steps = steps or min(DEFAULT_WORK["steps"], fitting_envs(batch))
    play_in(batch, steps)

    def seconds(each: Batch, count: int) -> float:
        calls, times = several(lambda: each.rollout(count, final_obs=False), each)
        return statistics.median(timed(calls, where, PROFILED_RUNS, PROFILED_SECONDS)) / times

    use = None
    if where.name == "cuda" and spec.own_program is None:
        program: Any = batch.program
        use = use_of(program, KERNEL, -(-batch.num_envs // program.layout.block_envs))
    usual = kept_params(spec.make_params())
    return Profile(
        env=spec.name,
        params={
            name: value for name, value in kept_params(params).items() if value != usual.get(name)
        },
        num_envs=batch.num_envs,
        agents=sum(g.count for g in batch.groups),
        steps=steps,
        device=where.name,
        machine=where.describe(),
        seconds=seconds(batch, steps),
        half_seconds=seconds(half, steps),
        step_seconds=seconds(batch, 1),
        bytes_per_step=written_bytes(batch.groups, entry=batch.obs_dtype.itemsize),
        operations_per_step=count_steps(spec, params),
        ceilings=ceilings(where, LIMIT_RUNS),
        use=use,
    )


def several(call: Callable[[], object], batch: Batch) -> tuple[Callable[[], object], int]:
    """Return a function that makes several calls, and their number.

    On a GPU it is a CUDA graph, because single launches are bound by the host.
    """
    if batch.executor.name == "cpu" or batch.spec.own_program is not None:
        return call, 1

    def calls() -> None:
        for _ in range(AT_ONCE):
            call()

    with torch_stream():
        return capture(calls, lambda: None), AT_ONCE


def fitting_envs(batch: Batch) -> int:
    """Return the number of steps of a rollout that fit into free memory, at least one."""
    each = row_bytes(batch.spec, batch.params, False, batch.obs_dtype.itemsize) * batch.num_envs
    return max(1, int(batch.executor.free_bytes() * KEEP_FREE / 2) // each)
