"""Trial of a custom kernel: its first hundred steps run in a separate process that may crash."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import KernelFault
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.trial import CRASH, NO_END, RecordingExecutor
from cupydrive.protocols import EnvParams, Executor
from cupydrive.spec import EnvSpec

if TYPE_CHECKING:
    from cupydrive.simulation.batch import Batch

ENDS = (f"{CRASH} ", NO_END)
# Time limit of the debug build, which only needs to locate the endless loop.
PLACE_SECONDS = 2
LATER_STEPS = 100  # steps of a second trial, for errors that occur late in an episode
NOTHING_LOST = "It ran in a separate process, so this process is unaffected"


def try_kernel(
    make_batch: type[Batch],
    spec: EnvSpec,
    params: EnvParams,
    host: HostExecutor,
    layout: Layout,
    states: np.ndarray | None = None,
) -> None:
    """Raise ``KernelFault`` if a kernel crashes or does not end.

    The kernel runs in a separate process. If it passes, a mark file next to its library in the
    cache folder prevents further trials.

    Args:
        make_batch: ``Batch``, as an argument because its module imports this one.
        spec: The ``EnvSpec``.
        params: Its parameters.
        host: ``HostExecutor`` that builds the kernel.
        layout: ``Layout`` of the build.
        states: Initial states, for a trial regardless of the mark file. Defaults to those of
            ``reset``.
    """
    mark = Path(host.build(assemble(spec, params, layout)).library._name).with_suffix(".tried")
    if states is None and mark.exists():
        return

    def run(executor: HostExecutor, seconds: float = math.inf) -> tuple[str, str]:
        trial = RecordingExecutor(executor)
        play_steps(make_batch, spec, params, trial, layout, states)
        return trial.run(seconds), trial.said

    wrong, said = run(host)
    if not wrong:
        if states is None:
            mark.touch()
        return
    if not wrong.startswith(ENDS):  # a fault with a known place
        raise KernelFault(wrong)
    # The debug build finds the line of an invalid index, or at least the function.
    exact, _ = run(
        HostExecutor(threads=1, debug=True), PLACE_SECONDS if wrong.startswith(NO_END) else math.inf
    )
    if exact and not exact.startswith(ENDS):
        raise KernelFault(f"{exact}\nUnnoticed, the kernel {wrong}{said}")
    raise KernelFault(f"the kernel of {spec.name!r} {exact or wrong}\n{NOTHING_LOST}{said}")


def play_steps(
    make_batch: type[Batch],
    spec: EnvSpec,
    params: EnvParams,
    executor: Executor,
    layout: Layout,
    states: np.ndarray | None,
) -> None:
    """Launch resets, steps with extreme actions, and random steps.

    Episodes have three steps at first, then their normal length.
    """
    obs_dtype = "bfloat16" if layout.half_obs else "float32"
    number = 2 if states is None else len(states)
    for limit, steps in ((3, 4), (params.max_episode_steps, LATER_STEPS)):
        few = replace(params, max_episode_steps=min(params.max_episode_steps, limit))
        batch = make_batch(spec, number, few, executor, layout=layout, obs_dtype=obs_dtype)
        actions = {
            g.name: executor.allocate((number, g.count, g.heads), g.action_dtype)
            for g in batch.groups
        }
        batch.reset(0)
        if states is not None:
            executor.put(batch.state, states)
            batch.observe()
        for integer, real in ((-(2**31), -np.inf), (2**31 - 1, np.inf), (0, np.nan), (1, 1e30)):
            for g in batch.groups:
                executor.put(actions[g.name], real if g.continuous else integer)
            batch.step([executor.pointer(actions[g.name]) for g in batch.groups])
        batch.rollout(steps)
