"""Benchmark cases: random rollouts in one launch, single steps, and the sampling of actions."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from gymnasium import spaces

from cupydrive import envs
from cupydrive.bench.operations import count_operations
from cupydrive.bench.timing import Row, make_row, timed
from cupydrive.executors.interop import capture, torch_stream
from cupydrive.inputs.arguments import checked_int
from cupydrive.playing.policy import Categorical, Sampler
from cupydrive.protocols import Executor
from cupydrive.simulation.batch import Batch
from cupydrive.simulation.buffers import Buffers
from cupydrive.spec import Group

LARGE_TAG = {
    "num_taggers": 5,
    "num_runners": 100,
    "num_other_agents_observed": 10,
    "tagging_distance": 0.02,
}
SMALL_TAG = {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 4}


@dataclass(frozen=True)
class Work:
    """One rollout workload."""

    env: str
    num_envs: int
    steps: int
    params: dict[str, Any] = field(default_factory=dict)
    obs_dtype: str = "float32"


CONTROL = ("acrobot", "mountain_car", "mountain_car_continuous", "pendulum")
ROLLOUTS = {
    "cpu": (
        *(Work(name, 10_000, 64) for name in ("cartpole", *CONTROL)),
        Work("tag_grid", 2000, 32, {"num_taggers": 4}),
        Work("tag_continuous", 100, 8, LARGE_TAG),
        Work("catalysis", 10_000, 64),
        Work("rice_n", 100, 10),
        Work("covid_economy", 100, 32),
    ),
    "cuda": (
        Work("cartpole", 1_048_576, 32),
        Work("cartpole", 1_048_576, 32, obs_dtype="bfloat16"),
        Work("cartpole", 10_000, 128),
        *(Work(name, 1_048_576, 32) for name in CONTROL),
        Work("tag_grid", 2000, 128, {"num_taggers": 4}),
        Work("tag_grid", 200_000, 32, {"num_taggers": 4}),
        Work("tag_grid", 2000, 32, {"num_taggers": 999}),
        Work("tag_continuous", 200_000, 16, SMALL_TAG),
        Work("tag_continuous", 2000, 64, LARGE_TAG),
        Work("tag_continuous", 2000, 4, {**LARGE_TAG, "num_runners": 1000}),
        Work("catalysis", 1_048_576, 32),
        Work("catalysis", 1_048_576, 32, {"setting": "two_atom_diffusion"}),
        Work("rice_n", 2000, 20),
        Work("rice_n", 10_000, 20),
        Work("rice_n", 2000, 20, {"negotiation": True}),
        Work("covid_economy", 2000, 32),
        Work("covid_economy", 20_000, 16),
    ),
}
SINGLE_STEPS = {
    "cpu": (Work("cartpole", 10_000, 64), Work("tag_grid", 2000, 32, {"num_taggers": 4})),
    "cuda": (
        Work("cartpole", 1_048_576, 32),
        Work("cartpole", 10_000, 128),
        Work("tag_grid", 2000, 128, {"num_taggers": 4}),
    ),
}
DEFAULT_WORK = {"num_envs": 10_000, "steps": 32}
MOST_LAUNCHES = 128  # maximum number of launches before the timed ones
SAMPLES = {"cpu": 100_000, "cuda": 4_194_304}  # rows of logits
CHOICES = 21


def sweep_works(env: str, axes: Mapping[str, Any]) -> list[Work]:
    """Return the ``Work``s of all combinations of values.

    Args:
        env: Name of an environment, or path of its Python file.
        axes: A value or a list of values by name: ``num_envs``, ``steps`` (of a launch) or a
            parameter of the environment.

    Raises:
        ParameterError: If a name or a value is invalid.
    """
    spec = envs.get(env)
    values = {
        name: each if isinstance(each, list) else [each]
        for name, each in {**DEFAULT_WORK, **axes}.items()
    }
    works = []
    for chosen in product(*values.values()):
        made = dict(zip(values, chosen, strict=True))
        num_envs, steps = (checked_int(spec.name, name, made.pop(name)) for name in DEFAULT_WORK)
        spec.make_params(**made)  # raises errors before anything is timed
        works.append(Work(env, num_envs, steps, made))
    return works


def listed(env: str, device: str) -> list[Work]:
    """Return the standard ``Work``s of an environment on this device, or one of default size."""
    return [work for work in ROLLOUTS[device] if work.env == env] or sweep_works(env, {})


def written_bytes(groups: Sequence[Group], actions: bool = True, entry: int = 4) -> int:
    """Return the bytes that every step of one environment writes.

    Data that is written only at the end of an episode is not counted.

    Args:
        groups: ``Group``s of the environment.
        actions: Whether actions are written, too.
        entry: Bytes of one observation entry.
    """
    flags = 2
    return flags + sum(
        g.count
        * (
            g.obs_bytes(entry, packed=True)
            + 4 * g.heads * actions
            + 4
            + 2 * g.leaves
            + g.choices * g.mask
        )
        for g in groups
    )


def prepared(work: Work, where: Executor) -> Batch:
    """Return a ``Batch`` whose episodes are not synchronized."""
    spec = envs.get(work.env)
    params = spec.make_params(**work.params)
    batch = Batch(spec, work.num_envs, params, where, obs_dtype=work.obs_dtype)
    batch.reset(0)
    play_in(batch, work.steps)
    return batch


def play_in(batch: Batch, steps: int) -> None:
    """Roll out for the maximum length of an episode, so that episodes are not synchronized."""
    for _ in range(min(MOST_LAUNCHES, batch.params.max_episode_steps // steps)):
        batch.rollout(steps, final_obs=False)


def measure(work: Work, where: Executor, runs: int = 9) -> Row:
    """Time random rollouts of ``work`` on the executor ``where``, with T steps per launch."""
    batch = prepared(work, where)
    seconds = timed(lambda: batch.rollout(work.steps, final_obs=False), where, runs)
    return row("rollout", work, batch, seconds)


def measure_steps(work: Work, where: Executor, runs: int = 9) -> Row:
    """Time launches of one step with given actions. On a GPU, a CUDA graph replays T launches."""
    batch = prepared(work, where)
    buffers = Buffers(batch, work.steps, final_obs=False)
    calls = batch.row_calls(buffers)

    def step_all() -> None:
        for call in calls:
            batch.step_row(call)

    if where.name == "cuda":
        with torch_stream():
            step_all = capture(step_all, lambda: None)
    return row("stepping", work, batch, timed(step_all, where, runs), actions=False)


def row(case: str, work: Work, batch: Batch, seconds: Sequence[float], actions: bool = True) -> Row:
    """Return the ``Row`` of rollouts or of single steps. Single steps write no actions."""
    agents = sum(g.count for g in batch.groups)
    kinds = [
        v if isinstance(v, str) else f"{name}={v}"
        for name, v in work.params.items()
        if isinstance(v, str | bool)
    ]
    note = ", ".join(kinds + [f"{work.obs_dtype} observations"] * (work.obs_dtype != "float32"))
    size = written_bytes(batch.groups, actions, batch.obs_dtype.itemsize)
    return make_row(
        case, work.env, work.num_envs, agents, work.steps, seconds, bytes_per_step=size,
        params=work.params, note=note,
        operations_per_step=count_operations(work.env, work.params),
    )  # fmt: skip


def measure_sampling(where: Executor, runs: int = 9) -> list[Row]:
    """Time the sampling of actions with 21 choices from logits.

    Returns:
        Two ``Row``s: the sampling kernel, and torch's ``Categorical``.
    """
    n = SAMPLES[where.name]
    batch = Batch(envs.get("cartpole"), n, executor=where)
    batch.reset(0)
    group = replace(batch.groups[0], action_space=spaces.Discrete(CHOICES))
    sampler = Sampler(Categorical(group), batch, group)
    logits = torch.randn(n, CHOICES, dtype=torch.float32, device=where.name)
    action = torch.empty((n, 1, 1), dtype=torch.int32, device=where.name)
    ours = timed(lambda: sampler(logits, action), where, runs)
    theirs = timed(
        lambda: torch.distributions.Categorical(logits=logits, validate_args=False).sample(),
        where,
        runs,
    )
    what = f"{CHOICES} choices"
    size = 4 * CHOICES + 4  # bytes of the logits that are read and of the written action
    note = f"{statistics.median(theirs) / statistics.median(ours):.1f} times torch"
    return [
        make_row("sampling", what, n, 1, 1, ours, bytes_per_step=size, note=note),
        make_row("sampling", what, n, 1, 1, theirs, who="torch Categorical", bytes_per_step=size),
    ]
