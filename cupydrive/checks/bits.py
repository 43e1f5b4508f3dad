"""Bitwise comparisons between executors, thread counts, team sizes and the two ways to step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from cupydrive.checks.reference import CheckedReference
from cupydrive.checks.report import (
    BOUNDS,
    DEVICE_CASE,
    GPU_TEAMS,
    PATHS,
    TEAM_CASE,
    TEAM_RULES,
    THREAD_CASE,
    Report,
)
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import CupydriveError, KernelFault
from cupydrive.executors.host import HostExecutor, TeamFault
from cupydrive.executors.nvrtc import compile_for_gpu
from cupydrive.protocols import EnvParams, Executor
from cupydrive.simulation.batch import Batch, unpacked
from cupydrive.simulation.buffers import Buffers
from cupydrive.spec import EnvSpec, Group

FREE_STEPS = 1000  # steps of the comparison between CPU and GPU
# Maximum number of observation entries that it compares per step, with at least four environments.
STEP_ENTRIES = 200_000
# Numbers of environments of two comparisons. The GPU's layout depends on them.
PATH_ENVS, TEAM_ENVS = 33, 70
# Arrays whose rows are only defined where an episode ended.
EPISODE_ENDS = (
    "final_obs", "final_critic_obs", "episode_return", "episode_length", "episode_metrics",
)  # fmt: skip
_fillings = count()  # seeds of the random bytes in kernel caches, different in each call


def try_gpu_compiler(report: Report, spec: EnvSpec, params: EnvParams) -> None:
    """Compile a kernel for a GPU and record a failure. Without NVRTC, nothing is recorded."""
    part = "cuda: the kernel compiles for a GPU, by NVRTC"
    layout = Layout(team=32, envs_per_block=4).fit(spec, params, 99 * 1024)
    try:
        if compile_for_gpu(assemble(spec, params, layout)):
            report.tally(part, "kernel").compared = 1
    except CupydriveError as error:
        report.fault(part, "kernel", " | ".join(line.strip() for line in str(error).splitlines()))


def put(batch: Batch, **arrays: np.ndarray) -> None:
    """Copy NumPy arrays into the arrays of a batch."""
    for name, values in arrays.items():
        batch.executor.put(getattr(batch, name), values)


def launch_step(batch: Batch, actions: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Step ``batch`` with NumPy actions by group and return its outputs as NumPy arrays."""
    arrays = [batch.executor.allocate(actions[g.name].shape, g.action_dtype) for g in batch.groups]
    for array, g in zip(arrays, batch.groups, strict=True):
        batch.executor.put(array, actions[g.name])
    written = batch.step([batch.executor.pointer(a) for a in arrays])
    batch.executor.synchronize()
    return fetch(batch, written)


def fetch(batch: Batch, buffers: Buffers) -> dict[str, Any]:
    """Return NumPy copies of ``buffers``, including dictionaries by group."""
    out: dict[str, Any] = {}
    for name, value in vars(buffers).items():
        if isinstance(value, dict):
            out[name] = {key: batch.executor.get(array) for key, array in value.items()}
        elif value is not None and name != "steps":
            out[name] = batch.executor.get(value)
    for name in ("obs", "final_obs"):
        for g in batch.groups if name in out else ():
            out[name][g.name] = unpacked(g, out[name][g.name])
    out["episode_metrics"] = batch.as_records(out["episode_metrics"], batch.metrics_dtype)
    return out


def random_steps(batch: Batch, steps: int) -> dict[str, Any]:
    """Return NumPy copies of the arrays that random steps in one launch write.

    Such rollouts do not store ``critic_obs``. The one after the last step is added.
    """
    out = fetch(batch, batch.rollout(steps))
    if any(g.critic_obs_dim for g in batch.groups):
        out["critic_obs"] = fetch(batch, batch.observe())["critic_obs"]
    return out


def trajectory(
    spec: EnvSpec,
    params: EnvParams,
    device: Executor,
    seed: int,
    n: int,
    steps: int,
    layout: Layout | None = None,
    states: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Return all outputs of ``steps`` random steps in one launch, as arrays by name.

    The kernel's cache is filled with different random bytes in each call, because no result may
    depend on it.
    """
    batch = Batch(spec, n, params, device, layout=layout)
    batch.reset(seed)
    put(
        batch,
        cache=np.random.default_rng(next(_fillings)).integers(0, 256, batch.cache.shape, np.uint8),
    )
    if states is not None:
        put(batch, state=states)
    return flatten(random_steps(batch, steps), batch)


def flatten(out: Mapping[str, Any], batch: Batch) -> dict[str, np.ndarray]:
    """Return the arrays of one or more steps and of the batch's state, by name.

    Unspecified rows are set to 0.
    """
    over = out["terminated"] | out["truncated"]
    arrays = named_arrays({**out, **batch.get_state()})
    for name, array in arrays.items():
        if name.split(".")[0] in EPISODE_ENDS:
            arrays[name] = np.where(
                over.reshape(over.shape + (1,) * (array.ndim - over.ndim)), array, 0
            ).astype(array.dtype)
    return arrays


def named_arrays(out: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Flatten dictionaries and structs into arrays by name, such as ``"name.key"``."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in out.items():
        if isinstance(value, dict):
            arrays |= named_arrays({f"{name}.{key}": array for key, array in value.items()})
        elif value.dtype.names:
            arrays |= {f"{name}.{member}": value[member] for member in value.dtype.names}
        else:
            arrays[name] = value
    return arrays


def draw_states(
    spec: EnvSpec, params: EnvParams, device: Executor, rng: np.random.Generator, n: int
) -> np.ndarray:
    """Return n initial states, from the reference's ``sample_states`` or from random play."""
    if spec.reference.sample_states is not None:
        return CheckedReference(spec, params).sample_states(rng, n)
    batch = Batch(spec, n, params, device, first_env=int(rng.integers(0, 2**20)))
    batch.reset(int(rng.integers(0, 2**63)))
    for _ in range(int(rng.integers(0, 2 * min(params.max_episode_steps, 20)))):
        batch.rollout(1, final_obs=False)
    batch.executor.synchronize()
    return batch.get_state()["state"]


def axes_of(name: str, shape: tuple[int, ...], agents: int) -> Sequence[str]:
    """Return the names of the axes of an array that ``flatten`` has returned."""
    # These arrays have no axis of steps.
    of_now = name.split(".")[0] in ("seed", "state", "clock", "metrics", "returns", "critic_obs")
    lead = ("environment",) if of_now else ("step", "environment")
    if not name.startswith("state."):
        return (*lead, "agent", "entry")
    inner = shape[1:]  # a member of State may have any shape
    return (*lead, "agent" if inner[:1] == (agents,) else "index", *["index"] * len(inner))


def compare_bits(
    report: Report,
    part: str,
    got: Mapping[str, np.ndarray],
    want: Mapping[str, np.ndarray],
    agents: int,
    sides: tuple[str, str],
) -> None:
    """Compare two trajectories bit for bit. ``sides`` are their names."""
    # Compare ends first, because after a different end all other values differ.
    for name in sorted(got, key=lambda name: name not in ("terminated", "truncated")):
        array = got[name]
        axes = axes_of(name, array.shape, agents)
        report.compare(part, name, array, want[name], bits=True, axes=axes, sides=sides)


def compare_paths(
    report: Report, spec: EnvSpec, params: EnvParams, device: Executor, rng: np.random.Generator
) -> None:
    """Compare T steps in one launch with T launches of one step, bit for bit.

    Both use the same actions. The second rollout begins in the middle of a block of four steps
    whose actions are drawn together. Masks, ``active`` and ``left`` are initialized with random
    bits, so that an entry that the kernel does not write differs.
    """
    params = replace(params, max_episode_steps=min(params.max_episode_steps, 9))
    seed, agents = int(rng.integers(0, 2**63)), sum(g.count for g in spec.groups(params))
    fused, single = (Batch(spec, PATH_ENVS, params, device) for _ in range(2))
    for batch in (fused, single):
        for buffers in batch.step_buffers:
            written = buffers.action_mask, buffers.active, buffers.left
            for array in (array for of in written for array in of.values()):
                batch.executor.put(array, rng.integers(0, 2, array.shape).astype(bool))
        batch.reset(seed)
    for steps in (22, 7):
        rolled = random_steps(fused, steps)
        obs, masks = single.get_observations()
        rows = [{"obs": obs, "action_mask": masks}]
        rows += [
            launch_step(single, {g: a[t] for g, a in rolled["action"].items()})
            for t in range(steps)
        ]
        stepped = {
            member: stack([row[member] for row in rows if member in row]) for member in rows[-1]
        }
        stepped["action"] = rolled["action"]
        stepped |= {"critic_obs": rows[-1]["critic_obs"], "final_critic_obs": {}}
        sides = ("single steps", "one launch")
        compare_bits(
            report,
            f"{device.name}: {PATHS}",
            flatten(stepped, single),
            flatten(rolled, fused),
            agents,
            sides,
        )


def stack(rows: list[Any]) -> np.ndarray | dict[str, np.ndarray]:
    """Stack arrays, or dictionaries of arrays, along a new first axis of steps."""
    if isinstance(rows[0], dict):
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)


def compare_teams(
    report: Report,
    spec: EnvSpec,
    params: EnvParams,
    executors: Mapping[str, Executor],
    rng: np.random.Generator,
) -> None:
    """Compare thread counts and team sizes with a team of one thread, bit for bit."""
    agents = sum(g.count for g in spec.groups(params))
    seed = int(rng.integers(0, 2**63))
    if "cpu" in executors:
        n, steps = max(3, 3000 // agents), 1 + 60_000 // max(3000, agents)
        one = trajectory(spec, params, HostExecutor(threads=1), seed, n, steps)
        three = trajectory(spec, params, HostExecutor(threads=3), seed, n, steps)
        compare_bits(report, f"cpu: {THREAD_CASE}", three, one, agents, ("3 threads", "1 thread"))
        n, steps = max(4, min(40, 300 // agents)), 6
        short = replace(params, max_episode_steps=4)
        states = draw_states(spec, short, HostExecutor(threads=1), rng, n)
        one = trajectory(spec, short, HostExecutor(threads=1), seed, n, steps, states=states)
        team = team_of_threads(agents)
        for part, device, sides in (
            (TEAM_CASE, team, (f"a team of {team.team_threads}", "a team of one")),
            (BOUNDS, HostExecutor(debug=True), ("bounds-checked", "fast")),
        ):
            try:
                other = trajectory(spec, short, device, seed, n, steps, states=states)
                compare_bits(report, f"cpu: {part}", other, one, agents, sides)
            except TeamFault as fault:
                report.fault(f"cpu: {TEAM_RULES}", fault.rule, fault, rule=True)
            except KernelFault as fault:
                report.fault(f"cpu: {part}", "bounds", fault, rule=True)
    if "cuda" in executors:
        n, steps = TEAM_ENVS, 1 + 3000 // max(100, agents)
        want = trajectory(spec, params, executors["cuda"], seed, n, steps)
        for layout in team_layouts(spec, params):
            got = trajectory(spec, params, executors["cuda"], seed, n, steps, layout)
            compare_bits(
                report,
                f"cuda: {GPU_TEAMS}",
                got,
                want,
                agents,
                (f"a team of {layout.team}", "the default"),
            )


def team_of_threads(agents: int) -> HostExecutor:
    """Return the executor with the team of threads that is compared with a team of one."""
    return HostExecutor(team_threads=8 if agents > 4 else 4)


def team_layouts(spec: EnvSpec, params: EnvParams) -> list[Layout]:
    """Return the GPU layouts that are compared with the default one."""
    layouts = (Layout(team, 1 if team > 32 else 64 // team) for team in (1, 4, 32, 128))
    return [layout.fit(spec, params, 100_000) for layout in layouts]


def device_envs(groups: Sequence[Group]) -> int:
    """Return the number of environments of the comparison between CPU and GPU.

    It is smaller for environments with many agents or large observations.
    """
    agents, entries = sum(g.count for g in groups), sum(g.count * g.obs_dim for g in groups)
    return max(4, min(1000, 1000 // agents, STEP_ENTRIES // entries))


def compare_devices(
    report: Report, spec: EnvSpec, params: EnvParams, executors: Mapping[str, Executor]
) -> None:
    """Compare CPU and GPU over FREE_STEPS free-running steps, bit for bit, in launches of 50."""
    agents = sum(g.count for g in spec.groups(params))
    n = device_envs(spec.groups(params))
    batches = [Batch(spec, n, params, executors[d]) for d in ("cpu", "cuda")]
    for batch in batches:
        batch.reset(7)
    part = f"{DEVICE_CASE}, {FREE_STEPS} free steps, bit for bit"
    for _ in range(FREE_STEPS // 50):
        cpu, cuda = (flatten(random_steps(b, 50), b) for b in batches)
        compare_bits(report, part, cuda, cpu, agents, ("cuda", "cpu"))
