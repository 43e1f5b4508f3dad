"""make(): the way to a ``VectorEnv``."""

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
    """Return a ``VectorEnv`` of ``num_envs`` copies.

    Args:
        env: Name, path of a Python file that defines ``SPEC``, or ``EnvSpec``.
        num_envs: N; ``"auto"``: ``best_num_envs``, the number that trains fastest here, measured
            once, then known.
        device: ``"cuda"``, ``"cpu"``, or ``"auto"``: CUDA where a GPU is usable; says what it
            picked and why.
        validate: Look at the values of actions before each step (waits for the device); otherwise a
            discrete action out of range is read as the nearest valid one, and NaN in a Box as 0.
        debug: Build for the CPU with bounds-checked agents, observations, actions and arrays.
        threads: Threads on the CPU, by default one per core.
        first_env: Global id of environment 0; random streams are keyed by it.
        layout: ``cupydrive.codegen.layout.Layout`` of the GPU's threads, or ``"tuned"``: the
            fastest here, measured once, then known. Every layout gives the same numbers.
        obs_dtype: ``"float32"``, or ``"bfloat16"``: half the memory, the same numbers rounded to
            the nearest.
        **params: Parameters of the environment.

    Raises:
        UnknownEnvironmentError, ParameterError, DeviceError, CompileError, MemoryLimitError: See
            their texts.
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
        raise ParameterError("debug=True builds for the CPU; pass device='cpu' or leave device out")
    name, reason = choose("cpu" if debug else device)
    if device == "auto" and not debug and reason not in _said:
        _said.add(reason)
        # A notebook shows the standard error in red, as if something had gone wrong.
        print(f"cupydrive: {reason}", file=sys.stdout if in_notebook() else sys.stderr)
    where = executor(name) if name == "cuda" else executor(name, threads=threads, debug=debug)
    if isinstance(num_envs, str):
        if num_envs != "auto":
            raise ParameterError(f"make: num_envs = {shown(num_envs)}; it must be an int or 'auto'")
        from cupydrive.profiling.tuner import best_num_envs

        num_envs = int(best_num_envs(spec, device=name, **params))
    if isinstance(layout, str) and layout == "tuned":  # not an array, which compares each entry
        from cupydrive.profiling.tuner import tune

        layout = tune(spec, num_envs, device=name, **params).layout
    batch = Batch(spec, num_envs, made, where, first_env, layout, obs_dtype)
    return VectorEnv(batch, validate=validate)
