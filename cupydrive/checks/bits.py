"""Bit for bit: executors, thread counts, team sizes and the two ways to step, against each other."""

from dataclasses import replace
from itertools import count

import numpy as np

from cupydrive.checks.answers import require_states
from cupydrive.checks.causes import BOUNDS, DEVICES, EPISODES, GPU_TEAMS, PATHS, TEAM_RULES, TEAMS, THREADS
from cupydrive.checks.report import Report
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import CupydriveError, KernelFault
from cupydrive.executors.host import HostExecutor, TeamFault
from cupydrive.executors.nvrtc import compile_for_gpu
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec

FREE_STEPS = 1000  # of the comparison between CPU and GPU
STEP_ENTRIES = 200_000  # of observations that it compares after one step, at most, unless four environments have more
PATH_ENVS, TEAM_ENVS = 33, 70  # environments of two comparisons; the GPU chooses a layout by their number
# Rows of these hold something where an episode ended.
EPISODE_ENDS = ("final_obs", "episode_return", "episode_length", "episode_log")
_fillings = count()  # of the kernels' caches with random bytes, so that no two are the same


def try_gpu_compiler(report: Report, spec: EnvSpec, params: object) -> None:
    """Compile a kernel for a GPU and record whether that fails; machines without NVRTC record nothing."""
    team = 1 << (min(sum(g.count for g in spec.groups(params)), 256) - 1).bit_length()
    layout = Layout(team, max(1, 128 // team) if team <= 32 else 1).fit(spec, params, 99 * 1024)
    failure = ""
    try:
        if not compile_for_gpu(assemble(spec, params, layout)):
            return
    except CupydriveError as error:
        failure = "; ".join(line.strip() for line in str(error).splitlines()[1:]) or str(error)
    tally = report.tally("cuda: the kernel compiles for a GPU, by NVRTC", "kernel")
    tally.compared, tally.rows, tally.failure = 1, 1, failure


def put(batch, **arrays):
    """Write NumPy arrays into a batch's own."""
    for name, values in arrays.items():
        batch.executor.put(getattr(batch, name), values)


def launch_step(batch, actions):
    """Step ``batch`` with NumPy actions by group and return what it wrote, as NumPy arrays."""
    arrays = [batch.executor.allocate(actions[g.name].shape, g.action_dtype) for g in batch.groups]
    for array, g in zip(arrays, batch.groups, strict=True):
        batch.executor.put(array, actions[g.name])
    written = batch.step([batch.executor.pointer(a) for a in arrays])
    batch.executor.synchronise()
    return fetch(batch, written)


def fetch(batch, buffers):
    """Return NumPy copies of ``buffers``, dictionaries by group and all."""
    out = {}
    for name, value in vars(buffers).items():
        if isinstance(value, dict):
            out[name] = {key: batch.executor.get(array) for key, array in value.items()}
        elif value is not None and name != "steps":
            out[name] = batch.executor.get(value)
    out["episode_log"] = batch.as_records(out["episode_log"], batch.log_dtype)
    return out


def trajectory(spec, params, device, seed, n, steps, layout=None, states=None):
    """Return all bits of ``steps`` random steps in one launch: arrays by name.

    What the kernel keeps for speed alone is filled with other bytes in each call: no result may depend on it.
    """
    batch = Batch(spec, n, params, device, layout=layout)
    batch.reset(seed)
    put(batch, cache=np.random.default_rng(next(_fillings)).integers(0, 256, batch.cache.shape, np.uint8))
    if states is not None:
        put(batch, state=states)
    out = fetch(batch, batch.rollout(steps))
    return flatten(out, batch)


def flatten(out, batch):
    """Return the arrays of one or more steps by name; rows that are unspecified are set to 0."""
    over = out["terminated"] | out["truncated"]
    arrays = {}
    for name, value in {**out, **batch.get_state()}.items():
        for key, array in value.items() if isinstance(value, dict) else [("", value)]:
            if name in EPISODE_ENDS:
                array = np.where(
                    over.reshape(over.shape + (1,) * (array.ndim - over.ndim)),
                    array,
                    np.zeros((), array.dtype),
                )
            for member in array.dtype.names or ("",):
                arrays[".".join(filter(None, (name, key, member)))] = array[member] if member else array
    return arrays


def draw_states(spec, params, device, rng, n):
    """Return n states to start from: those of ``spec.sample``, or what some random steps of the kernel have reached."""
    if spec.sample is not None:
        states = require_states(spec, params, "sample", spec.sample(params, rng, n), n)
        return states.astype(spec.state_dtype(params))
    batch = Batch(spec, n, params, device, first_env=int(rng.integers(0, 2**20)))
    batch.reset(int(rng.integers(0, 2**63)))
    for _ in range(int(rng.integers(0, 2 * min(params.max_episode_steps, 20)))):
        batch.rollout(1, final_obs=False)
    batch.executor.synchronise()
    return batch.get_state()["state"]


def axes_of(name, shape, agents):
    """Return what the axes of an array that ``flatten`` has named count."""
    of_now = name.split(".")[0] in ("seed", "state", "clock", "log", "returns")  # one for all steps
    lead = ("environment",) if of_now else ("step", "environment")
    if not name.startswith("state."):
        return (*lead, "agent", "entry")
    inner = shape[1:]  # members of State may have any shape
    return (*lead, "agent" if inner[:1] == (agents,) else "index", *["index"] * len(inner))


def compare_bits(report, part, got, want, agents, sides):
    """Compare two trajectories bit for bit; ``sides`` says what each of them is."""
    for name, array in got.items():
        report.identical(part, name, array, want[name], axes=axes_of(name, array.shape, agents), sides=sides)


def compare_first_step(report, part, got, want, agents, sides):
    """Compare two trajectories of one step bit for bit; what follows from an end that only one of them saw is left out."""
    ends = [of["terminated"][-1] | of["truncated"][-1] for of in (got, want)]
    alike = ends[0] == ends[1]
    for name, array in got.items():
        axes, other = axes_of(name, array.shape, agents), want[name]
        if axes[0] == "step":
            axes, array, other = axes[1:], array[-1], other[-1]
        where = None if name.startswith(("seed", "terminated", "truncated", "reward", "action")) else alike
        report.identical(part, name, array, other, axes=axes, sides=sides, where=where)


def compare_paths(report, spec, params, device, name, rng, n=PATH_ENVS):
    """Compare T steps in one launch with T launches of one step, given the same actions, and both with sums in NumPy.

    All that is returned is compared. The second launch begins in the middle of four steps, whose actions are drawn together.
    """
    params = replace(params, max_episode_steps=min(params.max_episode_steps, 9))
    seed = int(rng.integers(0, 2**63))
    fused, single = Batch(spec, n, params, device), Batch(spec, n, params, device)
    fused.reset(seed)
    single.reset(seed)
    part = f"{name}: {PATHS}"
    for steps in (22, 7):
        before = fused.get_state()
        rolled = fetch(fused, fused.rollout(steps))
        obs, masks = single.get_observations()
        for t in range(steps):
            compare_row(report, part, dict(obs=obs, action_mask=masks), rolled, t)
            got = launch_step(single, {g.name: rolled["action"][g.name][t] for g in single.groups})
            compare_row(report, part, {k: v for k, v in got.items() if k not in ("obs", "action_mask")}, rolled, t)
            obs, masks = got["obs"], got["action_mask"]
        compare_row(report, part, dict(obs=obs, action_mask=masks), rolled, steps)
        kept, want = single.get_state(), fused.get_state()
        compare_row(report, part, kept, want)
        follow_episodes(report, f"{name}: {EPISODES}", rolled, before, want)


def compare_row(report, part, got, rolled, t=None):
    """Compare what one step has written, or a batch's state, with row ``t`` of a rollout or all of ``rolled``, bit for bit."""
    agents = sum(array.shape[1] for array in rolled["returns" if t is None else "reward"].values())  # (N, C), (T, N, C)
    for name, value in got.items():
        for key, array in value.items() if isinstance(value, dict) else [("", value)]:
            want = rolled[name][key] if key else rolled[name]
            want = want if t is None else want[t]
            over = None
            if name in EPISODE_ENDS:
                over = rolled["terminated"][t] | rolled["truncated"][t]
            for member in array.dtype.names or ("",):
                shown = ".".join(filter(None, (name, key, member)))
                ours, theirs = (array[member], want[member]) if member else (array, want)
                axes = axes_of(shown, ours.shape, agents)
                axes = axes[1:] if axes[0] == "step" else axes
                report.identical(
                    part, shown, ours, theirs, where=over, step=t, axes=axes, sides=("single steps", "one launch")
                )


def follow_episodes(report, part, rolled, before, after):
    """Follow clocks and returns through a rollout, from its rewards and flags alone, and compare the records of episodes."""
    clock = {name: before["clock"][name].copy() for name in before["clock"].dtype.names}
    returns = {name: array.copy() for name, array in before["returns"].items()}
    for t, (terminated, truncated) in enumerate(zip(rolled["terminated"], rolled["truncated"], strict=True)):
        over = terminated | truncated
        clock["elapsed"] += 1
        clock["time"] += 1
        report.compare(part, "episode_length", rolled["episode_length"][t], clock["elapsed"], where=over)
        for name, total in returns.items():
            total += rolled["reward"][name][t]
            report.compare(part, f"episode_return.{name}", rolled["episode_return"][name][t], total, where=over)
            total[over] = 0
        clock["elapsed"][over] = 0
        clock["episode"] += over
        report.compare(part, "one flag at most", terminated & truncated, np.zeros_like(over))
    for name, values in clock.items():
        report.compare(part, name, after["clock"][name], values)
    for name, total in returns.items():
        report.compare(part, f"returns.{name}", after["returns"][name], total)


def compare_teams(report, spec, params, executors, rng):
    """Compare thread counts, teams of threads and the GPU's team sizes with a team of one, bit for bit."""
    agents = sum(g.count for g in spec.groups(params))
    seed = int(rng.integers(0, 2**63))
    if "cpu" in executors:
        n, steps = max(3, 3000 // agents), 1 + 60_000 // max(3000, agents)
        one = trajectory(spec, params, HostExecutor(threads=1), seed, n, steps)
        three = trajectory(spec, params, HostExecutor(threads=3), seed, n, steps)
        compare_bits(report, f"cpu: {THREADS}", three, one, agents, ("3 threads", "1 thread"))
        n, steps = max(4, min(40, 300 // agents)), 6
        short = replace(params, max_episode_steps=4)
        states = draw_states(spec, short, HostExecutor(threads=1), rng, n)
        part, team = f"cpu: {TEAMS}", team_of_threads(agents)
        sides = (f"a team of {team.team_threads}", "a team of one")
        try:
            # One step first: what differs after it is the cause of what differs after several.
            for length, compare in ((1, compare_first_step), (steps, compare_bits)):
                one = trajectory(spec, short, HostExecutor(threads=1), seed, n, length, states=states)
                if not report.failed(part):
                    teamed = trajectory(spec, short, team, seed, n, length, states=states)
                    compare(report, part, teamed, one, agents, sides)
        except TeamFault as fault:
            report.fault(f"cpu: {TEAM_RULES}", fault.rule, fault)
        part = f"cpu: {BOUNDS}"
        try:
            one = trajectory(spec, short, HostExecutor(threads=1), seed, n, steps, states=states)
            guarded = trajectory(spec, short, HostExecutor(debug=True), seed, n, steps, states=states)
            compare_bits(report, part, guarded, one, agents, ("bounds-checked", "fast"))
        except KernelFault as fault:
            report.fault(part, "bounds", fault)
    if "cuda" in executors:
        device = executors["cuda"]
        n, steps = TEAM_ENVS, 1 + 3000 // max(100, agents)
        want = trajectory(spec, params, device, seed, n, steps)
        for layout in team_layouts(spec, params):
            got = trajectory(spec, params, device, seed, n, steps, layout)
            compare_bits(report, f"cuda: {GPU_TEAMS}", got, want, agents, (f"a team of {layout.team}", "the default"))


def team_of_threads(agents):
    """Return the executor whose team of threads is compared with a team of one."""
    return HostExecutor(team_threads=8 if agents > 4 else 4)


def team_layouts(spec, params):
    """Return the layouts of a GPU that are compared with the one it chooses."""
    layouts = (Layout(team, 1 if team > 32 else 64 // team) for team in (1, 4, 32, 128))
    return [layout.fit(spec, params, 100_000) for layout in layouts]


def device_envs(groups):
    """Return how many environments the comparison between CPU and GPU has: fewer where they have many agents, or see much."""
    agents, entries = sum(g.count for g in groups), sum(g.count * g.obs_dim for g in groups)
    return max(4, min(1000, 1000 // agents, STEP_ENTRIES // entries))


def compare_devices(report, spec, params, executors):
    """Compare CPU and GPU over FREE_STEPS free-running steps, bit for bit, in launches of 50."""
    agents = sum(g.count for g in spec.groups(params))
    n = device_envs(spec.groups(params))
    batches = [Batch(spec, n, params, executors[d]) for d in ("cpu", "cuda")]
    for batch in batches:
        batch.reset(7)
    part = f"{DEVICES}, {FREE_STEPS} free steps, bit for bit"
    for _ in range(FREE_STEPS // 50):
        cpu, cuda = (flatten(fetch(b, b.rollout(50)), b) for b in batches)
        compare_bits(report, part, cuda, cpu, agents, ("cuda", "cpu"))


def programs(spec, params, executors, sizes):
    """Return what the comparisons of one case load, for ``load_ahead``; ``sizes``: further numbers of environments."""
    groups, found = spec.groups(params), {}
    agents = sum(g.count for g in groups)
    for device in executors.values():
        for n in (PATH_ENVS, TEAM_ENVS, device_envs(groups), *sizes):
            found[device, device.layout(spec, params, n)] = None
    if "cpu" in executors:
        for device in (team_of_threads(agents), HostExecutor(debug=True)):
            found[device, device.layout(spec, params)] = None
    if "cuda" in executors:
        found |= {(executors["cuda"], layout): None for layout in team_layouts(spec, params)}
    return [(device, (spec, params, layout)) for device, layout in found]
