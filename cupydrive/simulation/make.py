"""make(): creation of a ``VectorEnv``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from cupydrive import envs
from cupydrive.codegen.layout import Layout
from cupydrive.errors import ParameterError
from cupydrive.executors import checked_device, choose, executor
from cupydrive.executors.host import MOST_THREADS
from cupydrive.inputs.arguments import checked_bool, checked_int, shown
from cupydrive.protocols import ParamValue
from cupydrive.simulation.batch import Batch
from cupydrive.simulation.vector import VectorEnv
from cupydrive.spec import EnvSpec
from cupydrive.terminal.progress import in_notebook

_said: set[str] = set()


def make(
    env: str | Path | EnvSpec,
    num_envs: int | str = 1,
    *,
    device: str = "auto",
    validate: bool = True,
    debug: bool = False,
    threads: int | None = None,
    first_env: int = 0,
    layout: Layout | Literal["tuned"] | None = None,
    obs_dtype: str = "float32",
    **params: ParamValue,
) -> VectorEnv:
    """Create a ``VectorEnv`` of ``num_envs`` environments.

    Args:
        env: Name, path of a Python file that defines ``SPEC``, or ``EnvSpec``.
        num_envs: Number of environments. ``"auto"`` selects the number that trains fastest on this
            machine, ``best_num_envs``. It is measured once and cached.
        device: ``"cuda"``, ``"cpu"``, or ``"auto"`` for CUDA if a GPU is usable. ``"auto"`` prints
            its choice with the reason.
        validate: Check the values of actions before each step, which synchronizes. Otherwise a
            discrete action out of range is read as the nearest valid one, and NaN in a Box as 0.
        debug: Build for the CPU with bounds-checked agents, observations, actions and arrays.
        threads: Number of CPU threads. Defaults to one per core.
        first_env: Global id of environment 0. Random streams are keyed by global ids.
        layout: ``cupydrive.codegen.layout.Layout`` of the GPU's threads, or ``"tuned"`` for the
            fastest one on this machine, which is measured once and cached. Every layout gives the
            same numbers.
        obs_dtype: ``"float32"``, or ``"bfloat16"`` for the same numbers, rounded to nearest, in
            half the memory.
        **params: Parameters of the environment.

    Returns:
        ``VectorEnv``, which must be reset before its first step.

    Raises:
        UnknownEnvironmentError: If there is no such environment.
        ParameterError: If an argument is wrong.
        DeviceError: If the device cannot be used.
        CompileError: If the kernel does not compile.
        MemoryLimitError: If the environments do not fit into memory.

    Examples:
        >>> import cupydrive as cd
        >>> env = cd.make("cartpole", num_envs=64, device="cpu")
        >>> obs, info = env.reset(seed=0)
        >>> obs.shape
        torch.Size([64, 4])
    """
    spec = envs.get(env)
    spec.require_known(params, make, {"seed": "it is given to reset, env.reset(seed=...)"})
    made = spec.make_params(**params)
    validate, debug = (
        checked_bool("make", "validate", validate),
        checked_bool("make", "debug", debug),
    )
    threads = None if threads is None else checked_int("make", "threads", threads, 1, MOST_THREADS)
    device = checked_device(device)
    if debug and device == "cuda":
        raise ParameterError("debug=True builds for the CPU. Pass device='cpu' or leave device out")
    name, reason = choose("cpu" if debug else device)
    if device == "auto" and not debug and reason not in _said:
        _said.add(reason)
        # Notebooks show standard error in red, like an error message.
        print(f"cupydrive: {reason}", file=sys.stdout if in_notebook() else sys.stderr)
    where = executor(name) if name == "cuda" else executor(name, threads=threads, debug=debug)
    if isinstance(num_envs, str):
        if num_envs != "auto":
            raise ParameterError(f"make: num_envs = {shown(num_envs)}, expected an int or 'auto'")
        from cupydrive.profiling.tuner import best_num_envs

        num_envs = int(best_num_envs(spec, device=name, **params))
    if isinstance(layout, str) and layout == "tuned":  # an array would be compared by entry
        from cupydrive.profiling.tuner import tune

        layout = tune(spec, num_envs, device=name, **params).layout
    batch = Batch(spec, num_envs, made, where, first_env, layout, obs_dtype)
    return VectorEnv(batch, validate=validate)
