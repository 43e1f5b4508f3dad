"""Two members of a team that write the same entry between two syncs are found without a GPU, and
nobody else is.
"""

from dataclasses import replace

import numpy as np
import point
import pytest

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.bits import trajectory
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import kernel_text
from cupydrive.errors import KernelFault
from cupydrive.executors.host import HostExecutor

TAGS = "env.metrics.tags += tags;"
SEEN = "row[5] = time;"
# What members do beside the rest of tag_grid's step or observation, by what is said of it.
RACES = {
    "`step`: two threads of a team write `runner.reward(0)`": (TAGS,
    "env.runner.reward(0) = LOWEST;"),
    "`step`: two threads of a team write `tagger.reward(2)`": (TAGS,
    "env.tagger.reward(2) -= 1.0f;"),
    "`step`: two threads of a team write `state.x[3]`": (TAGS, "s.x[3] += 1;"),
    "`step`: two threads of a team write `state.x[0]`": (TAGS,
    "if (env.team.rank < 2) s.x[0] = 7 + env.team.rank;"),
    "`step`: two threads of a team write `state.y[0]`": (TAGS, "s.y[0] += 1;"),
    "`observe`: two threads of a team write `tagger.obs(1)[4]`": (
        SEEN, "env.tagger.obs(1)[4] = (float)(env.elapsed * 10 + env.team.rank);",
    ),
    "`observe`: two threads of a team write `runner.obs(0)[0]`": (
        SEEN, "env.runner.obs(0)[0] = LOWEST;",
    ),
}  # fmt: skip
LOWEST = (
    # members differ in the first byte alone
    "math::from_bits(0x3f800010u + (u32)(env.elapsed * 4 + env.team.rank))"
)
ADDED = "env.team.sync(); env.team.add(env.shared.count, 1, 1); env.team.sync();"
# Likewise in the step of the point environment, of one agent; `count` is an Array<int, 2> in
# Shared.
HARMLESS = {
    "added to by all": ADDED,
    "the same by all": "s.v = 0.25f; env.team.sync();",
    "by one, twice": "if (env.team.leader()) { s.v = 1.0f; s.v += 1.0f; } env.team.sync();",
    "by one after the other": (
        "if (env.team.rank == 0) s.v += 1.0f; env.team.sync(); if (env.team.rank == 1) s.v += 1.0f; env.team.sync();"
    ),
    "side by side": "if (env.team.rank < 2) env.shared.count[env.team.rank] = env.elapsed; env.team.sync();",
}


def take_steps(spec, team, params=None, n=5, steps=6, layout=None):
    """Take steps from states drawn wide by a team of threads."""
    params = params or spec.make_params(max_episode_steps=4)
    states = spec.reference.sample_states(params, np.random.default_rng(2), n).astype(
        spec.state_dtype(params)
    )
    device = HostExecutor(team_threads=team) if team > 1 else HostExecutor(threads=1)
    return trajectory(spec, params, device, 9, n, steps, layout, states)


def tag(old, new):
    """Return tag_grid whose members do ``new``, too, after ``old``."""
    spec = envs.get("tag_grid")
    _, kernel = kernel_text(spec)
    assert kernel.count(old) == 1
    return replace(spec, kernel=kernel.replace(old, f"{old} {new.replace('LOWEST', LOWEST)}"))


def one_point(text):
    """Return the point environment whose step begins with ``text``."""
    kernel = point.KERNEL.replace(
        "struct State {", "struct Shared { Array<int, 2> count; int rest[37]; };\nstruct State {"
    )
    old = "State& s = env.state;"
    assert kernel.count(old) == 1
    return replace(envs._load(point.PYTHON).spec, kernel=kernel.replace(old, f"{old}\n  {text}"))


@pytest.mark.parametrize("words", RACES)
def test_an_entry_that_two_members_write_is_named(words):
    spec = tag(*RACES[words])
    with pytest.raises(KernelFault) as caught:
        take_steps(spec, 4, spec.make_params(num_taggers=5, grid_length=6, max_episode_steps=4))
    assert str(caught.value).startswith(
        f"{words} between two calls of team.sync(), in environment 0. On"
    )


@pytest.mark.full
@pytest.mark.parametrize("what", HARMLESS)
def test_what_members_may_write_is_no_race(what):
    take_steps(one_point(HARMLESS[what]), 4)


@pytest.mark.full
@pytest.mark.parametrize(
    ("team", "entry", "byte"), [(2, "count[0]", 0), (8, "count[1]", 4), (4, "rest[36]", 152)]
)
def test_memory_that_nobody_but_the_team_sees_is_named_by_its_bytes(team, entry, byte):
    text = f"env.team.sync(); env.shared.{entry} = 1 + env.team.rank; env.team.sync();"
    with pytest.raises(
        KernelFault, match=f"two threads of a team write `shared, from its byte {byte} on` between"
    ):
        take_steps(one_point(text), team)


@pytest.mark.full
def test_shared_memory_is_not_cleared():
    """As on a GPU: a kernel that reads it before it writes it gets no zeros."""
    spec = one_point("if (env.shared.rest[36] == 0) s.v = 9.0f; env.team.sync();")
    want = take_steps(one_point("env.team.sync();"), 4)
    for key, array in take_steps(spec, 4).items():
        assert array.tobytes() == want[key].tobytes()


@pytest.mark.full
def test_a_state_that_is_not_near_is_not_watched_and_may_be_added_to():
    """It stays in the batch's memory: what is added there is copied nowhere, not into another
    environment's state.
    """
    spec = tag(TAGS, "env.team.sync(); env.team.add(s.x, 0, 0); env.team.sync();")
    params = spec.make_params(num_taggers=5, grid_length=6, max_episode_steps=4)
    got, want = (
        take_steps(spec, team, params, n=300, layout=Layout(team, state_on_chip=False))
        for team in (4, 1)
    )
    assert (
        all(got[key].tobytes() == array.tobytes() for key, array in want.items())
        and "state.x" in want
    )


@pytest.mark.full
def test_after_a_race_the_next_launch_begins_anew():
    spec = one_point("if (env.elapsed == 3) s.v += 1.0f; env.team.sync();")
    params = spec.make_params(max_episode_steps=40)
    for _ in range(2):
        take_steps(spec, 4, params, n=1, steps=2)
        with pytest.raises(KernelFault, match=r"write `state\.v` between"):
            take_steps(spec, 4, params, n=1, steps=3)


@pytest.mark.full
def test_a_check_reports_a_race_first():
    spec = tag(TAGS, "env.runner.reward(0) -= (float)tags;")
    report = cd.check(spec, agent_steps=2000, device="cpu", progress=False)
    assert (
        "two threads of a team write `runner.reward(0)` between two calls of team.sync()"
        in report.failures()[0]
    )
