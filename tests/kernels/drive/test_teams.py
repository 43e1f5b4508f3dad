"""Team code runs without a GPU: members as real threads, any team size, the bits of a team of one;
any near memory.
"""

from dataclasses import replace

import numpy as np
import pytest
from equal_runs import assert_same_bits

from cupydrive import envs
from cupydrive.checks.bits import fetch, flatten, trajectory
from cupydrive.codegen.layout import Layout, Observations
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

PARAMS = {  # smaller or more crowded than by default
    "tag_grid": {"num_taggers": 20, "grid_length": 6},
    "tag_continuous": {
        "num_taggers": 3,
        "num_runners": 18,
        "num_other_agents_observed": 4,
        "tagging_distance": 0.1,
    },
}


def wide(name, device, layout=None, n=5, steps=6):
    """Return the trajectory of ``n`` environments from states drawn wide, with short episodes."""
    spec = envs.get(name)
    params = spec.make_params(max_episode_steps=4, **PARAMS.get(name, {}))
    states = spec.reference.sample_states(params, np.random.default_rng(2), n).astype(
        spec.state_dtype(params)
    )
    return trajectory(spec, params, device, 9, n, steps, layout, states)


# Of one agent every further member is idle, whatever their number. In `make test` several agents
# have a team of fewer than they are and one of more, and one agent has a pair.
@pytest.mark.parametrize(
    ("name", "team"),
    [
        pytest.param(
            name,
            team,
            marks=() if team in ((4, 32) if name in PARAMS else (2,)) else pytest.mark.slow,
        )
        for name in envs.names()
        for team in ((2, 4, 8, 16, 32) if name in PARAMS else (2, 32))
    ],
)
def test_a_team_of_threads_is_a_team_of_one(name, team):
    assert_same_bits(
        wide(name, HostExecutor(team_threads=team)), wide(name, HostExecutor(threads=1))
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("steps", [1, 6])
@pytest.mark.parametrize("name", PARAMS)
def test_a_large_team_copies_the_observations_before_a_rollout_before_any_of_its_steps(name, steps):
    layout = Layout(64, observations=Observations.DIRECT)
    got = wide(name, HostExecutor(team_threads=64), layout, steps=steps)
    assert_same_bits(got, wide(name, HostExecutor(threads=1), steps=steps))


def test_a_large_team_steps_by_given_actions_as_one_thread_does():
    """There is no row before the first then, and nothing to copy there."""
    spec = envs.get("tag_grid")
    params = spec.make_params(**PARAMS["tag_grid"])
    actions = np.zeros(1000, np.int32)  # of every group
    found = []
    for device, layout in (
        (HostExecutor(team_threads=64), Layout(64, observations=Observations.DIRECT)),
        (HostExecutor(threads=1), None),
    ):
        batch = Batch(spec, 3, params, device, layout=layout)
        batch.reset(2)
        stepped = batch.step([device.pointer(actions)] * len(batch.groups))
        found.append(flatten(fetch(batch, stepped), batch))
    assert_same_bits(*found)


# Of environments of one agent `make test` has one with choices and one with a Box.
NEAR = [
    name
    if name in ("cartpole", "pendulum", *PARAMS)
    else pytest.param(name, marks=pytest.mark.slow)
    for name in envs.names()
]
FAR = {
    "obs_far": {"observations": Observations.DIRECT},
    "rows_far": {"rows_on_chip": False},
    "state_far": {"state_on_chip": False},
}


@pytest.mark.full
@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("name", NEAR)
def test_what_is_kept_near_shows_in_no_bit(name, far):
    device = HostExecutor(threads=1)
    assert_same_bits(
        wide(name, device, replace(Layout(), **FAR[far])), wide(name, device, Layout())
    )
