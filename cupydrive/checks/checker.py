"""The consistency checker: compare kernels with the NumPy reference and executors bit for bit.

Kernel and reference take one step from the same state, so that errors cannot accumulate and the
tolerance can be 1e-6 of each field's scale. If a decision (a comparison of floats) lies within this
margin, either outcome is accepted. Such rows are counted, and too many of them are a failure.
Integers, flags, resets, random streams and statistics are compared exactly. Every event that the
reference's step reports must have happened.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cupydrive import envs
from cupydrive.checks.bits import (
    compare_devices,
    compare_paths,
    compare_teams,
    draw_states,
    fetch,
    try_gpu_compiler,
)
from cupydrive.checks.comparison import Comparison
from cupydrive.checks.pictures import try_drawing, try_heuristic
from cupydrive.checks.report import Report
from cupydrive.errors import DeviceError
from cupydrive.executors import checked_device, cuda_problem, executor
from cupydrive.executors.compiler import compiler
from cupydrive.executors.host import HostExecutor
from cupydrive.inputs.arguments import checked_bool, checked_int
from cupydrive.protocols import EnvParams, Executor
from cupydrive.simulation.batch import CLOCK, Batch, BatchState
from cupydrive.simulation.first_steps import try_kernel
from cupydrive.spec import EnvSpec, float_params
from cupydrive.terminal.progress import counted

# Number of cases for which `draw` is called, on one device. A picture takes some hundredths of a
# second.
DRAWN_CASES = 3
RESET_ENVS = 67
# Consecutive steps to compare. Each begins at the kernel's own state after the previous step.
COMPARED_STEPS = 3
LONG_LIMITS = 0.25  # fraction of the parameter draws with a time limit above SHORT_LIMIT
SHORT_LIMIT, LONGEST_LIMIT = 40, 2000
CHUNK_ROWS = 40_000  # agent-rows per call of the reference, which bounds its memory


def check(
    env: str | Path | EnvSpec,
    *,
    agent_steps: int = 100_000,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    seed: int = 0,
    fail_fast: bool = False,
    progress: bool = True,
) -> Report:
    """Check the kernel of an environment against its NumPy reference and across devices.

    Kernel and reference take single steps from the same states. The check also compares resets,
    random streams, statistics, CPU and GPU, team sizes and the two ways to step, and calls
    ``draw`` and the heuristic once.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        agent_steps: Minimum number of single-agent steps to compare with the reference, on each
            device. Defaults to 100,000.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"`` for all available devices. Without a GPU, the
            kernel with the parameters of the first case is compiled for one if NVRTC is installed.
        seed: Random seed of states, actions and parameters. Defaults to 0.
        fail_fast: Stop after the first case with a failed comparison. Later cases, teams of threads
            and array bounds are skipped.
        progress: Show a progress bar.

    Returns:
        ``Report``, which prints as a table and is true if everything passed. Its ``summary`` is a
        single line.

    Raises:
        UnknownEnvironmentError: If there is no such environment.
        DeviceError: If the device cannot be used here.
        CompileError: If a kernel does not compile.

    Examples:
        >>> import cupydrive as cd
        >>> report = cd.check("cartpole", agent_steps=10_000, device="cpu", progress=False)
        >>> report.passed
        True
    """
    spec = envs.get(env)
    agent_steps = checked_int(spec.name, "agent_steps", agent_steps)
    seed = checked_int(spec.name, "seed", seed, 0, 2**63 - 1)
    fail_fast, progress = (
        checked_bool("check", "fail_fast", fail_fast),
        checked_bool("check", "progress", progress),
    )
    executors, skipped = usable(device, spec)
    report = Report(
        spec.name, list(executors), [dict(c) for c in spec.cases], seed, skipped=skipped
    )
    report.skipped += not_compared(spec)
    if spec.reference.step is None:
        report.compared_with = "without a reference of `step`"
    alike = spec.cases if spec.own_program is None else ()
    if not alike:
        report.skipped.append("bit for bit: kernels written in Python may round in another order")
    if alike and "cuda" not in executors and "cuda" in spec.devices:
        try_gpu_compiler(report, spec, spec.make_params(**spec.cases[0]))
    number = len(spec.cases) * len(executors) + len(alike)
    done = compare_all(report, spec, executors, alike, agent_steps, seed)
    for _ in counted(done, f"check {spec.name}", number, progress):
        if fail_fast and report.mismatched:
            report.stop()
            break
    report.agent_steps = report.agent_steps // len(executors)
    return report


def compare_all(
    report: Report,
    spec: EnvSpec,
    executors: Mapping[str, Executor],
    alike: Sequence[dict[str, Any]],
    agent_steps: int,
    seed: int,
) -> Iterator[None]:
    """Compare each case on each executor with the reference, then the cases ``alike`` bit for bit.

    The generator yields after each case.
    """
    work = [(case, d) for case in spec.cases for d in executors]
    for number, (case, name) in enumerate(work):
        rng = np.random.default_rng([seed, number])
        params, report.case, device = spec.make_params(**case), case, executors[name]
        try_wide_states(spec, params, device, np.random.default_rng([seed, number, 1]))
        report.agent_steps += compare_with_reference(
            report, spec, params, device, rng, -(-agent_steps // len(spec.cases))
        )
        compare_resets(report, spec, params, device, rng)
        compare_paths(report, spec, params, device, rng)
        try_heuristic(report, spec, params, device, seed)
        if number < DRAWN_CASES * len(executors) and name == next(iter(executors)):
            try_drawing(report, spec, params, device, np.random.default_rng([seed, number, 2]))
        yield
    for case in alike:
        params, report.case, rng = (
            spec.make_params(**case),
            case,
            np.random.default_rng([seed, 10_000]),
        )
        compare_teams(report, spec, params, executors, rng)
        if "cpu" in executors and "cuda" in executors:
            compare_devices(report, spec, params, executors)
        yield


def try_wide_states(
    spec: EnvSpec, params: EnvParams, device: Executor, rng: np.random.Generator
) -> None:
    """Run a user's kernel from random states in another process first, because it may crash."""
    own = (
        spec.kernel is not None
        and spec.own_program is None
        and spec.reference.sample_states is not None
    )
    if own and isinstance(device, HostExecutor) and device.tries:
        drawn = draw_params(spec, params, rng)
        agents = sum(g.count for g in spec.groups(drawn))
        states = draw_states(spec, drawn, device, rng, max(16, 256 // agents))
        try_kernel(Batch, spec, drawn, device, device.layout(spec, drawn, len(states)), states)


def not_compared(spec: EnvSpec) -> list[str]:
    """Return the comparisons that a check skips, because a function of the reference is None or no
    value but 0 is drawn for a parameter.
    """
    left_out = {
        "reset": "states after a reset",
        "step": "states, rewards, ends, metrics and events of a step",
        "observe": "observations and masks",
        "sample_states": "states that random play does not reach",
    }
    found = [
        f"{text}: the environment has no `{name}`"
        for name, text in left_out.items()
        if getattr(spec.reference, name) is None
    ]
    if spec.reference.step is not None:
        found += [
            f"values of {f.name} other than 0, its default: pass `vary=(low, high)` to its `param`"
            for f in float_params(spec.params)
            if f.default == 0
            and f.metadata["vary"] is None
            and not any(case.get(f.name) for case in spec.cases)
        ]
    return found


def usable(device: str, spec: EnvSpec) -> tuple[dict[str, Executor], list[str]]:
    """Return the available executors by name, and the skipped checks with their reasons."""
    device = checked_device(device, "check")
    found: dict[str, Executor] = {}
    skipped = []
    if device != "cuda":
        try:
            compiler()
            found["cpu"] = HostExecutor(threads=2)
        except DeviceError as error:
            skipped.append(f"anything on the CPU: {error}")
    problem = cuda_problem() if device != "cpu" else "not asked for"
    if problem is None:
        found["cuda"] = executor("cuda")
    else:
        skipped.append(f"anything on the GPU, CPU against GPU: {problem}")
    for name in set(found) - set(spec.devices):
        del found[name]
        skipped.append(f"anything on {name!r}: these kernels run on {', '.join(spec.devices)}")
    if not found or (device == "cuda" and problem):
        raise DeviceError(f"nothing to check on with device = {device!r}: {', '.join(skipped)}")
    return found, skipped


def draw_params(spec: EnvSpec, params: EnvParams, rng: np.random.Generator) -> EnvParams:
    """Return ``params`` with random floats, exact in float32, and a random time limit.

    Floats that differ from their default are drawn around their value in ``params``. Most time
    limits are short, and some are long.
    """
    limit = int(rng.integers(3, SHORT_LIMIT))
    if rng.random() < LONG_LIMITS:
        limit = int(rng.integers(SHORT_LIMIT, LONGEST_LIMIT))
    values: dict[str, float] = {"max_episode_steps": limit}
    for f in float_params(spec.params):
        value, vary = getattr(params, f.name), f.metadata["vary"]
        low, high = vary if vary and value == f.default else sorted((0.5 * value, 1.5 * value))
        value = np.clip(rng.uniform(low, high), f.metadata["low"], f.metadata["high"])
        values[f.name] = float(np.float32(value))
    return replace(params, **values)


def compare_with_reference(
    report: Report,
    spec: EnvSpec,
    params: EnvParams,
    device: Executor,
    rng: np.random.Generator,
    agent_steps: int,
) -> int:
    """Compare single steps from random states until ``agent_steps`` are done.

    Each round draws new states and parameters and compares ``COMPARED_STEPS`` consecutive steps
    with random actions.

    Returns:
        The number of single-agent steps that were compared.
    """
    agents = sum(g.count for g in spec.groups(params))
    rows = max(1, min(CHUNK_ROWS // agents, -(-agent_steps // (6 * COMPARED_STEPS * agents))))
    done = 0
    while done < agent_steps:
        drawn = draw_params(spec, params, rng)
        batch = Batch(spec, rows, drawn, device, first_env=int(rng.integers(0, 1000)))
        comparison = Comparison(report, batch)
        before = draw_before(batch, rng)
        for _ in range(COMPARED_STEPS):
            before = comparison.step(rng, before)
        done += COMPARED_STEPS * rows * agents
    return done


def draw_before(batch: Batch, rng: np.random.Generator) -> BatchState:
    """Set a random seed, clocks, states, metrics and returns in ``batch``.

    Returns:
        The new state of the batch, in the format of ``Batch.get_state``.
    """
    n, params = batch.num_envs, batch.params
    clock = np.zeros(n, CLOCK)
    clock["episode"] = rng.integers(1, 50, n)
    near = np.maximum(
        0, params.max_episode_steps - rng.integers(1, COMPARED_STEPS + 1, n)
    )  # these environments reach the time limit within the compared steps
    clock["elapsed"] = np.where(
        rng.random(n) < 0.3, near, rng.integers(0, params.max_episode_steps, n)
    )
    states = draw_states(batch.spec, params, batch.executor, rng, n)
    metrics = np.zeros(n, batch.metrics_dtype)
    for metric in batch.spec.metrics:
        metrics[metric] = rng.integers(0, 9, n)
    returns = {g.name: rng.normal(0, 5, (n, g.count)).astype(np.float32) for g in batch.groups}
    seed = np.array([rng.integers(0, 2**63)], np.uint64)
    before: BatchState = dict(
        seed=seed, state=states, clock=clock, metrics=metrics, returns=returns
    )
    batch.set_state(before)
    return before


def compare_resets(
    report: Report, spec: EnvSpec, params: EnvParams, device: Executor, rng: np.random.Generator
) -> None:
    """Compare resets, with and without masks, and random actions of rollouts between them.

    The complete state of the batch is compared exactly. Environments that are reset must have the
    reference's initial states, and the others must be unchanged.
    """
    n, first, seed = RESET_ENVS, int(rng.integers(0, 2**20)), int(rng.integers(0, 2**63))
    params = replace(params, max_episode_steps=min(params.max_episode_steps, 12))
    batch = Batch(spec, n, params, device, first_env=first)
    comparison = Comparison(report, batch)
    ids, time = first + np.arange(n), 0
    some, others = rng.random(n) < 0.5, rng.random(n) < 0.5
    for mask, steps in (
        (None, 9),
        (some, 6),
        (np.zeros(n, bool), 0),
        (others, 0),
        (~others, 2),
        (None, 0),
    ):
        before, looked = batch.get_state(), batch.get_observations()
        batch.reset(None if time else seed, None if mask is None else device.xp.asarray(mask))
        device.synchronize()
        chosen = np.ones(n, bool) if mask is None else mask
        if time == 0:  # the seed restarts the clocks
            before["clock"] = np.zeros(n, CLOCK)
        comparison.reset(seed, ids, chosen, before, looked)
        if steps:
            rolled = fetch(batch, batch.rollout(steps))
            comparison.random_actions(rolled, seed, ids, time)
            time += steps
