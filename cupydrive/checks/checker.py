"""The consistency checker: kernels against the NumPy reference, and executors against each other, bit for bit.

Kernel and reference take one step from the same state, so that errors cannot build up and the tolerance can be 1e-6 of
each field's scale. Where a decision (a comparison of floats) lies within that margin either outcome is right: such rows
are counted, and too many of them are a failure. Everything that is exact (integers, flags, resets, random streams,
statistics) is compared exactly. Every event that the reference's step names must have happened.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from cupydrive import envs
from cupydrive.checks.answers import answer, require_observed, require_outcome
from cupydrive.checks.bits import (
    axes_of,
    compare_devices,
    compare_paths,
    compare_teams,
    draw_states,
    launch_step,
    programs,
    try_gpu_compiler,
)
from cupydrive.checks.branches import TEAMS, BranchCounter, cannot_count, report_branches
from cupydrive.checks.pictures import try_drawing, try_heuristic
from cupydrive.checks.report import REFERENCE, STATISTICS, Report
from cupydrive.checks.resets import RESET_ENVS, compare_fresh, compare_masks, compare_obs, compare_resets
from cupydrive.codegen.source import kernel_text
from cupydrive.errors import DeviceError
from cupydrive.executors import checked_device, cuda_problem, executor
from cupydrive.executors.ahead import load_ahead
from cupydrive.executors.compiler import compiler
from cupydrive.executors.host import HostExecutor
from cupydrive.inputs.arguments import checked_bool, checked_int
from cupydrive.protocols import Executor
from cupydrive.random import DYNAMICS, RandomStream
from cupydrive.simulation.batch import CLOCK, Batch
from cupydrive.simulation.first_steps import try_out
from cupydrive.spec import EnvSpec, Observed, Outcome, float_params
from cupydrive.terminal.progress import counted

BRANCH_STEPS = 3000  # of one agent in each case, where branches are counted
# The first ones, on one device, whose states the others have too: a picture takes some hundredths of a second.
DRAWN_CASES = 3
STEPS = 3  # compared one after the other, each from the kernel's own state after the one before
LONG_LIMITS = 0.25  # share of the parameter draws whose time limit is above SHORT_LIMIT
SHORT_LIMIT, LONGEST_LIMIT = 40, 2000
CHUNK_ROWS = 40_000  # agent-rows of one reference call: bounds its memory


def check(env, *, agent_steps=100_000, device="auto", seed=0, fail_fast=False, progress=True):
    """Check one environment and return a ``Report``: it prints as a table, its ``summary`` as one line; true if all passed.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        agent_steps: Steps of one agent to compare with the reference, at least, on each device.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"``: all that can be used here. Without a GPU, the kernel with the
            parameters of the first case is compiled for one where NVRTC is installed.
        seed: Of states, actions and parameters.
        fail_fast: Leave out what comes after the first case with a comparison that fails: other cases, teams of threads,
            array bounds, branches.
        progress: Show a progress bar.

    Raises:
        UnknownEnvironmentError: If there is no such environment.
        DeviceError: If the device cannot be used here.
        CompileError: If a kernel does not compile.
    """
    spec = envs.get(env)
    agent_steps = checked_int(spec.name, "agent_steps", agent_steps)
    seed = checked_int(spec.name, "seed", seed, 0, 2**63 - 1)
    fail_fast, progress = checked_bool("check", "fail_fast", fail_fast), checked_bool("check", "progress", progress)
    executors, skipped = usable(device, spec)
    report = Report(spec.name, list(executors), [dict(c) for c in spec.cases], seed, skipped=skipped)
    report.events = dict.fromkeys(spec.events if spec.step else (), 0)
    report.skipped += not_compared(spec)
    if spec.step is None:
        report.compared_with = "without a reference of `step`"
    alike = spec.cases if spec.own_program is None else ()
    if not alike:
        report.skipped.append("bit for bit: kernels written in Python round in an order of their own")
    if alike and "cuda" not in executors and "cuda" in spec.devices:
        try_gpu_compiler(report, spec, spec.make_params(**spec.cases[0]))
    if alike and not fail_fast:  # which may end before it needs the programs of the second case
        load_ahead([w for c in alike for w in case_programs(spec, spec.make_params(**c), executors, agent_steps)])
    number = len(spec.cases) * len(executors) + len(alike) + ("cpu" in executors and bool(alike))
    done = compare_all(report, spec, executors, alike, agent_steps, seed, progress)
    for _ in counted(done, f"check {spec.name}", number, progress):
        if fail_fast and report.mismatched:
            report.stop()
            break
    report.agent_steps = report.agent_steps // len(executors)
    return report


def compare_all(report, spec, executors, alike, agent_steps, seed, progress):
    """Compare each case on each executor with the reference and with itself, then ``alike`` bit for bit; yield after each."""
    work = [(case, d) for case in spec.cases for d in executors]
    for number, (case, name) in enumerate(work):
        rng = np.random.default_rng([seed, number])
        params, report.case, device = spec.make_params(**case), case, executors[name]
        try_wide_states(spec, params, device, np.random.default_rng([seed, number, 1]), progress)
        report.agent_steps += compare_with_reference(report, spec, params, device, rng, case_steps(spec, agent_steps))
        compare_resets(report, spec, params, device, rng)
        compare_paths(report, spec, params, device, rng)
        if spec.heuristic is not None:
            try_heuristic(report, spec, params, device, seed)
        if spec.draw is not None and number < DRAWN_CASES * len(executors) and name == next(iter(executors)):
            try_drawing(report, spec, params, device, np.random.default_rng([seed, number, 2]))
        yield
    for case in alike:
        params, report.case, rng = spec.make_params(**case), case, np.random.default_rng([seed, 10_000])
        compare_teams(report, spec, params, executors, rng)
        if "cpu" in executors and "cuda" in executors:
            compare_devices(report, spec, params, executors)
        yield
    report.case = None  # branches are counted over all of them
    if alike and "cpu" in executors:
        count_branches(report, spec, seed)
        yield


def count_branches(report: Report, spec: EnvSpec, seed: int) -> None:
    """Compare fewer steps with the reference once more, in a build that counts branches."""
    # A kernel that is wrong may not end its steps: its members may call different numbers of syncs.
    reason = "a comparison has failed" if report.mismatched else cannot_count()
    if reason:
        report.skipped.append(f"branches that no case takes: {reason}")
        return
    counts = Counter()
    for team in TEAMS:
        with BranchCounter(team) as counter:
            load_ahead([(counter, (spec, spec.make_params(**case))) for case in spec.cases])
            for number, case in enumerate(spec.cases):
                rng = np.random.default_rng([seed, number])
                params = spec.make_params(**case)
                agents = sum(g.count for g in spec.groups(params))
                least = 2 * 6 * STEPS * agents  # six draws of parameters, two environments in each
                compare_with_reference(report, spec, params, counter, rng, max(BRANCH_STEPS, least))
            counts.update(counter.counts(kernel_text(spec)[0]))
    report_branches(report, spec, counts)


def case_steps(spec, agent_steps):
    """Return the share of one case in ``agent_steps``."""
    return -(-agent_steps // len(spec.cases))


def case_programs(spec, params, executors, agent_steps):
    """Return all that ``compare_all`` loads for one case, for ``load_ahead``."""
    agents = sum(g.count for g in spec.groups(params))
    rows = reference_rows(agents, case_steps(spec, agent_steps))
    return programs(spec, params, executors, (rows, RESET_ENVS))


def try_wide_states(spec, params, device, rng, progress):
    """Let a kernel that is not the package's own step from states drawn wide in another process, in case it crashes there."""
    if device.tries and spec.kernel is not None and spec.own_program is None and spec.sample is not None:
        drawn = draw_params(spec, params, rng)
        agents = sum(g.count for g in spec.groups(drawn))
        states = draw_states(spec, drawn, device, rng, max(16, 256 // agents))
        try_out(Batch, spec, drawn, device, device.layout(spec, drawn, len(states)), states, progress)


def not_compared(spec: EnvSpec) -> list[str]:
    """Return what a check of ``spec`` leaves out because a function of its reference is None."""
    left_out = {
        "reset": "states after a reset",
        "step": "states, rewards, ends, metrics and events of a step",
        "observe": "observations and masks",
        "sample": "states that random play does not reach",
    }
    return [
        f"{text}: the environment has no `{name}`" for name, text in left_out.items() if getattr(spec, name) is None
    ]


def usable(device: str, spec: EnvSpec) -> tuple[dict[str, Executor], list[str]]:
    """Return executors by name, and the checks that cannot be done here, with the reason."""
    device = checked_device(device, "check")
    found, skipped = {}, []
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
        raise DeviceError(f"nothing to check on with device = {device!r}: {'; '.join(skipped)}")
    return found, skipped


def draw_params(spec, params, rng):
    """Return ``params`` with every float drawn anew and exact in float32, and a time limit: mostly short, some long."""
    limit = int(rng.integers(3, SHORT_LIMIT))
    if rng.random() < LONG_LIMITS:
        limit = int(rng.integers(SHORT_LIMIT, LONGEST_LIMIT))
    values = {"max_episode_steps": limit}
    for f in float_params(spec.params):
        low, high = f.metadata["vary"] or sorted((0.5 * f.default, 1.5 * f.default))
        value = np.clip(rng.uniform(low, high), f.metadata["low"], f.metadata["high"])
        values[f.name] = float(np.float32(value))
    return replace(params, **values)


def draw_actions(groups, rng, n):
    """Return uniformly random actions by group, (N, C, H); a fifth of a Box's lie up to its half width outside of it."""
    actions = {}
    for g in groups:
        if g.continuous:
            space, shape = g.action_space, (n, g.count, g.heads)
            middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
            reach = np.where(rng.random(shape) < 0.2, 2.0, 1.0)
            actions[g.name] = (middle + half * reach * rng.uniform(-1, 1, shape)).astype(np.float32)
        else:
            actions[g.name] = rng.integers(0, g.sizes, (n, g.count, g.heads)).astype(np.int32)
    return actions


def for_reference(groups, actions):
    """Return actions as a reference takes them: (N, C) for one discrete head, else (N, C, H)."""
    return {g.name: a[..., 0] if g.heads == 1 and not g.continuous else a for g in groups for a in (actions[g.name],)}


# ---- (a) one step against the reference ------------------------------------------------------------------------------


def reference_rows(agents, agent_steps):
    """Return how many environments one call of the reference has."""
    return max(1, min(CHUNK_ROWS // agents, -(-agent_steps // (6 * STEPS * agents))))


def compare_with_reference(
    report: Report, spec: EnvSpec, params: object, device: Executor, rng: np.random.Generator, agent_steps: int
) -> int:
    """Compare STEPS single steps from states drawn wide, with fresh actions and parameters, until ``agent_steps`` are done.

    Returns:
        The steps of one agent that were compared.
    """
    agents = sum(g.count for g in spec.groups(params))
    rows = reference_rows(agents, agent_steps)
    done = 0
    while done < agent_steps:
        drawn = draw_params(spec, params, rng)
        batch = Batch(spec, rows, drawn, device, first_env=int(rng.integers(0, 1000)))
        before = draw_before(batch, rng)
        for _ in range(STEPS):
            before = compare_one_step(report, batch, rng, before)
        done += STEPS * rows * agents
    return done


def draw_before(batch: Batch, rng: np.random.Generator) -> dict:
    """Put a seed, clocks, states, counts and returns drawn wide into ``batch``; return them as ``Batch.get_state`` does."""
    n, params = batch.num_envs, batch.params
    clock = np.zeros(n, CLOCK)
    clock["episode"] = rng.integers(1, 50, n)
    near = np.maximum(0, params.max_episode_steps - rng.integers(1, STEPS + 1, n))  # reaches the limit in these steps
    clock["elapsed"] = np.where(rng.random(n) < 0.3, near, rng.integers(0, params.max_episode_steps, n))
    states = draw_states(batch.spec, params, batch.executor, rng, n)
    log = np.zeros(n, batch.log_dtype)
    for metric in batch.spec.metrics:
        log[metric] = rng.integers(0, 9, n)
    returns = {g.name: rng.normal(0, 5, (n, g.count)).astype(np.float32) for g in batch.groups}
    seed = np.array([rng.integers(0, 2**63)], np.uint64)
    before = dict(seed=seed, state=states, clock=clock, log=log, returns=returns)
    batch.set_state(before)
    return before


def compare_one_step(report: Report, batch: Batch, rng: np.random.Generator, before: dict) -> dict:
    """Compare all that one launch of env_step writes with the reference; return the batch's state after it.

    ``before`` is the batch's state, so that by induction several steps are compared, each by the tolerance of one.
    """
    spec, params, groups, clock = batch.spec, batch.params, batch.groups, before["clock"]
    actions = draw_actions(groups, rng, batch.num_envs)
    got = launch_step(batch, actions)
    kept = batch.get_state()
    got["after"], got["over"] = kept["state"], got["terminated"] | got["truncated"]

    part, seed = f"{batch.executor.name} {REFERENCE}", int(before["seed"][0])
    elapsed, ids = clock["elapsed"] + 1, batch.first_env + np.arange(batch.num_envs)
    want, seen = None, None
    if spec.observe is not None:
        seen = answer(spec, "observe", params, got["after"], elapsed)
        require_observed(spec, params, groups, seen)
    if spec.step is not None:
        stream = RandomStream(seed, ids, clock["episode"] - 1, elapsed, DYNAMICS)
        want = answer(spec, "step", params, before["state"], for_reference(groups, actions), elapsed, stream)
        require_outcome(spec, params, groups, want, seen)
        compare_outcome(report, part, batch, got, want, seen, elapsed)
    if seen is not None:  # after the step, of which wrong observations may be a consequence
        compare_obs(report, part, batch, "obs", got["obs"], seen, ~got["over"], elapsed)
        compare_masks(report, part, batch, got["action_mask"], seen, ~got["over"], elapsed)
    if want is not None and seen is not None:
        compare_final_obs(report, part, batch, got, want, elapsed)
    compare_statistics(report, batch, before, got, kept, want)
    if spec.reset is not None:
        fresh = answer(spec, "reset", params, RandomStream(seed, ids, clock["episode"]))
        compare_fresh(report, batch, got["after"], got["obs"], got["action_mask"], fresh, got["over"])
    report.count({"time limit reached": elapsed >= params.max_episode_steps, "autoreset": got["over"]})
    return kept


def compare_outcome(
    report: Report, part: str, batch: Batch, got: dict, want: Outcome, seen: Observed | None, elapsed: np.ndarray
) -> None:
    """Compare what a step returned and left with ``want``, the reference's ``Outcome``."""
    report.count(want.events)
    observed = {} if seen is None else seen.state
    for f in batch.spec.state(batch.params):
        if f.name not in observed and f.name not in want.state:
            continue  # the missing reference `observe` would compute it
        of = seen if f.name in observed else want
        field, value, scale = (
            f"state.{f.name}",
            got["after"][f.name],
            f.scale if np.dtype(f.dtype).kind == "f" else None,
        )
        near = dict(scale=scale, margin=of.margin.get(f.name), where=~got["over"], step=elapsed)
        axes = axes_of(field, value.shape, sum(g.count for g in batch.groups))
        report.compare(part, field, value, of.state[f.name], axes=axes, **near)
    for g in batch.groups:
        margin, scale = want.margin.get(f"reward.{g.name}"), g.reward_scale
        reward, expected = got["reward"][g.name], want.reward[g.name]
        report.compare(part, f"reward.{g.name}", reward, expected, scale=scale, margin=margin, step=elapsed)
        if g.leaves:
            margin = want.margin.get(f"left.{g.name}")
            report.compare(part, f"active.{g.name}", got["active"][g.name], want.active[g.name], step=elapsed)
            report.compare(part, f"left.{g.name}", got["left"][g.name], want.left[g.name], margin=margin, step=elapsed)
    last, ends_task = elapsed >= batch.params.max_episode_steps, batch.spec.horizon == "task"
    ends = want.terminated | (last & ends_task)
    margin = want.margin.get("terminated")
    margin = None if margin is None else np.where(last & ends_task, np.inf, margin)
    report.compare(part, "terminated", got["terminated"], ends, margin=margin, step=elapsed)
    report.compare(part, "truncated", got["truncated"], last & ~ends, margin=margin, step=elapsed)


def compare_final_obs(report: Report, part: str, batch: Batch, got: dict, want: Outcome, elapsed: np.ndarray) -> None:
    """Compare the last observations of episodes, before the autoreset, with those of the reference's own last states.

    The kernel's own last states are gone. Rows in which a decision of the reference was near are left out.
    """
    after = got["after"]
    final = np.zeros(len(after), batch.spec.state_dtype(batch.params))
    for name in final.dtype.names:
        final[name] = want.state.get(name, after[name])
    certain = got["over"].copy()
    for margin in want.margin.values():
        certain &= np.asarray(margin).reshape(len(after), -1).min(axis=1) >= 1e-5
    seen = answer(batch.spec, "observe", batch.params, final, elapsed)
    compare_obs(report, part, batch, "final_obs", got["final_obs"], seen, certain, elapsed, factor=5.0)


# ---- (b) autoreset, time limit, statistics ---------------------------------------------------------------------------


def compare_statistics(report: Report, batch: Batch, before: dict, got: dict, kept: dict, want: Outcome | None) -> None:
    """Compare clocks, returns, lengths and metrics after one step, exactly."""
    part, over, clock = f"{batch.executor.name}: {STATISTICS}", got["over"], before["clock"]
    report.compare(part, "episode", kept["clock"]["episode"], clock["episode"] + over)
    report.compare(part, "elapsed", kept["clock"]["elapsed"], np.where(over, 0, clock["elapsed"] + 1))
    report.compare(part, "time", kept["clock"]["time"], clock["time"] + 1)
    report.compare(part, "episode_length", got["episode_length"], clock["elapsed"] + 1, where=over)
    for g in batch.groups:
        total = before["returns"][g.name] + got["reward"][g.name]
        expected = np.where(over[:, None], np.float32(0), total)
        report.compare(part, f"returns.{g.name}", kept["returns"][g.name], expected)
        report.compare(part, f"episode_return.{g.name}", got["episode_return"][g.name], total, where=over)
    for metric, kind in batch.spec.metrics.items() if want is not None else ():
        total = before["log"][metric] + want.metrics[metric]
        scale = max(1.0, np.abs(total).max()) if kind == "float" else None
        near = dict(scale=scale, margin=want.margin.get(f"metric.{metric}"))
        report.compare(part, f"metric.{metric}", kept["log"][metric], np.where(over, 0, total), **near)
        report.compare(part, f"episode metric.{metric}", got["episode_log"][metric], total, where=over, **near)
