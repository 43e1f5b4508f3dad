"""Two members of a team that write the same entry between two syncs are found without a GPU, and nobody else is."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import point

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.bits import trajectory
from cupydrive.codegen.source import kernel_text
from cupydrive.errors import KernelFault
from cupydrive.executors.host import HostExecutor

TAGS = "env.log.tags += tags;"
SEEN = "row[5] = time;"
# What members do beside the rest of tag_grid's step or observation, by what is said of it.
RACES = {
    "`step`: two members of a team write `runner.reward(0)`": (TAGS, "env.runner.reward(0) -= 1.0f;"),
    "`step`: two members of a team write `tagger.reward(2)`": (TAGS, "env.tagger.reward(2) -= 1.0f;"),
    "`step`: two members of a team write `state.x[3]`": (TAGS, "s.x[3] += 1;"),
    "`step`: two members of a team write `state.y[0]`": (TAGS, "if (env.team.rank < 2) s.y[0] = 7 + env.team.rank;"),
    "`observe`: two members of a team write `tagger.obs(1)[4]`": (
        SEEN, "env.tagger.obs(1)[4] = (float)(env.elapsed * 10 + env.team.rank);",
    ),
    "`observe`: two members of a team write `runner.obs(0)[0]`": (
        SEEN, "env.runner.obs(0)[0] = (float)(env.elapsed * 10 + env.team.rank);",
    ),
}  # fmt: skip
ADDED = "env.team.sync(); env.team.add(env.shared.count, 1, 1); env.team.sync();"
# Likewise in the step of the point environment, of one agent; `count` is an Array<int, 2> in Shared.
HARMLESS = {
    "added to by all": ADDED,
    "the same by all": "s.v = 0.25f; env.team.sync();",
    "by one, twice": "if (env.team.leader()) { s.v = 1.0f; s.v += 1.0f; } env.team.sync();",
    "by one after the other": (
        "if (env.team.rank == 0) s.v += 1.0f; env.team.sync(); if (env.team.rank == 1) s.v += 1.0f; env.team.sync();"
    ),
    "side by side": "if (env.team.rank < 2) env.shared.count[env.team.rank] = env.elapsed; env.team.sync();",
}


def take_steps(spec, team, params=None, n=5, steps=6):
    """Take steps from states drawn wide by a team of threads."""
    params = params or spec.make_params(max_episode_steps=4)
    states = spec.sample(params, np.random.default_rng(2), n).astype(spec.state_dtype(params))
    return trajectory(spec, params, HostExecutor(team_threads=team), 9, n, steps, None, states)


def tag(old, new):
    """Return tag_grid whose members do ``new``, too, after ``old``."""
    spec = envs.get("tag_grid")
    _, kernel = kernel_text(spec)
    assert kernel.count(old) == 1
    return replace(spec, kernel=kernel.replace(old, f"{old} {new}"))


def one_point(text):
    """Return the point environment whose step begins with ``text``."""
    kernel = point.KERNEL.replace("struct State {", "struct Shared { Array<int, 2> count; };\nstruct State {")
    old = "State& s = env.state;"
    assert kernel.count(old) == 1
    return replace(envs._load(point.PYTHON)[0], kernel=kernel.replace(old, f"{old}\n  {text}"))


@pytest.mark.parametrize("words", RACES)
def test_an_entry_that_two_members_write_is_named(words):
    spec = tag(*RACES[words])
    with pytest.raises(KernelFault) as caught:
        take_steps(spec, 4, spec.make_params(num_taggers=5, grid_length=6, max_episode_steps=4))
    assert str(caught.value).startswith(f"{words} between two calls of team.sync(), in environment 0.")


@pytest.mark.parametrize("what", HARMLESS)
def test_what_members_may_write_is_no_race(what):
    take_steps(one_point(HARMLESS[what]), 4)


@pytest.mark.parametrize("team", [2, 8])
def test_memory_that_nobody_but_the_team_sees_is_named_by_its_bytes(team):
    text = "env.team.sync(); env.shared.count[1] += 1; env.team.sync();"
    with pytest.raises(KernelFault, match="two members of a team write `shared, from its byte 4 on` between"):
        take_steps(one_point(text), team)


def test_after_a_race_the_next_launch_begins_anew():
    spec = one_point("if (env.elapsed == 3) s.v += 1.0f; env.team.sync();")
    params = spec.make_params(max_episode_steps=40)
    for _ in range(2):
        take_steps(spec, 4, params, n=1, steps=2)
        with pytest.raises(KernelFault, match=r"write `state\.v` between"):
            take_steps(spec, 4, params, n=1, steps=3)


def test_a_check_says_what_a_race_means():
    spec = tag(TAGS, "env.runner.reward(0) -= (float)tags;")
    report = cd.check(spec, agent_steps=2000, device="cpu", progress=False)
    first = report.failures()[0]
    assert "two members of a team write `runner.reward(0)` between two calls of team.sync()" in first
    assert "an agent's entries are for the member whose agent it is" in str(report)
