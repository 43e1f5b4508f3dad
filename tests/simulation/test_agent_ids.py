"""Numbers of agents behind their observations."""

from dataclasses import replace

import everything
import numpy as np
import pytest
import torch
from gymnasium import spaces

import cupydrive as cd
from cupydrive.checks.checker import check
from cupydrive.errors import SpecError
from cupydrive.examples import cartpole_torch

PYTHON = everything.PYTHON.replace("TIME_LIMIT", "truncates")


def with_ids(spec):
    return replace(spec, groups=lambda p: tuple(replace(g, agent_ids=True) for g in spec.groups(p)))


@pytest.fixture
def spec():
    return with_ids(cd.register(PYTHON, everything.KERNEL))


def test_every_observation_ends_with_the_agents_number(spec):
    env = cd.make(spec, 20, device="cpu", validate=False, max_episode_steps=5)
    plain = cd.make(
        cd.register(PYTHON, everything.KERNEL),
        20,
        device="cpu",
        validate=False,
        max_episode_steps=5,
    )
    found = [each.reset(seed=0)[0] for each in (env, plain)]
    action = {"walker": torch.ones(20, 2, 2, dtype=torch.int32), "driver": torch.ones(20, 3, 2)}
    for _ in range(7):
        for name, rows in found[0].items():
            count, own = rows.shape[1], found[1][name].shape[2]
            assert torch.equal(rows[..., :own], found[1][name])
            assert torch.equal(rows[..., own:], torch.eye(count).expand(20, count, count))
        found = [each.step(action)[0] for each in (env, plain)]
    rows = env.rollout(9).obs["driver"]
    assert torch.equal(rows[..., 2:], torch.eye(3).expand(10, 20, 3, 3))


@pytest.mark.full
@pytest.mark.parametrize("walkers", [2, 11])
def test_the_check_passes(spec, walkers):
    spec = replace(spec, cases=({"walkers": walkers},))
    report = check(spec, agent_steps=4000, device="cpu", progress=False)
    assert report.passed, str(report)


def test_kernels_in_python_have_them_too():
    env = cd.make(with_ids(cartpole_torch.SPEC), 5, device="cpu")
    obs, _ = env.reset(seed=0)
    assert obs.shape == (5, 5) and (obs[:, 4] == 1).all()
    report = check(with_ids(cartpole_torch.SPEC), agent_steps=2000, device="cpu", progress=False)
    assert report.passed, str(report)


def test_spaces_have_room_for_them():
    group = cd.Group(
        "agent", 3, 2, spaces.Discrete(2), obs_scale=[5.0, 6.0], obs_low=-7, obs_high=[8.0, 9.0],
        agent_ids=True,
    )  # fmt: skip
    assert (group.obs_dim, group.own_obs_dim, group.obs_shape) == (5, 2, (5,))
    np.testing.assert_array_equal(group.obs_scale, [5, 6, 1, 1, 1])
    np.testing.assert_array_equal(group.observation_space.low, [-7, -7, 0, 0, 0])
    np.testing.assert_array_equal(group.observation_space.high, [8, 9, 1, 1, 1])


def test_an_altered_copy_has_the_ids_of_its_own_agents():
    sizes = {"obs_scale": [5.0, 6.0], "obs_low": -7, "obs_high": [8.0, 9.0], "agent_ids": True}
    group = cd.Group("agent", 3, 2, spaces.Discrete(2), **sizes)
    for changes in ({"reward_scale": 2.0}, {"count": 4}, {"agent_ids": False}):
        want = cd.Group(
            **{"name": "agent", "count": 3, "obs_dim": 2, "action_space": spaces.Discrete(2)}
            | sizes
            | changes
        )
        got = replace(group, **changes)
        assert (got.obs_dim, got.own_obs_dim, got.obs_shape) == (want.obs_dim, 2, want.obs_shape)
        for name in ("obs_scale", "obs_low", "obs_high"):
            own = (np.broadcast_to(getattr(g, name), got.obs_shape) for g in (got, want))
            np.testing.assert_array_equal(*own)


KERNEL = """
struct Params { float unused; };
struct State { int nothing; };
#include "drive/env.cuh"
DEVICE void reset(Env& env) { if (env.team.leader()) env.state.nothing = 0; }
DEVICE bool step(Env& env) {
  for (int i : env.team.each(3)) env.agent.reward(i) = env.agent.action(i) == i;
  return false;
}
DEVICE void observe(Env& env) {
  for (int i : env.team.each(3)) env.agent.obs(i)[0] = 1.0f;
}
"""


@pytest.mark.parametrize("ids", [True, False])
def test_one_policy_learns_another_action_for_each_agent_only_with_them(ids):
    """Each agent is rewarded for the action of its number. Agents that see the same are right a
    third of the time.
    """
    spec = cd.EnvSpec(
        "numbers", replace(cartpole_torch.SPEC).params, lambda p: (cd.Field("nothing", "i4"),),
        lambda p: (cd.Group("agent", 3, 1, spaces.Discrete(3), agent_ids=ids),), "truncates",
        kernel=KERNEL.replace("float unused", "float gravity, mass_cart, mass_pole, half_length, "
                              "force_mag, tau, x_limit, theta_limit, start_range"),
    )  # fmt: skip
    settings = cd.PPO(num_steps=8, learning_rate=5e-3)
    run = cd.train(spec, settings, num_envs=32, steps=8_000, device="cpu", progress=False,
                   max_episode_steps=10)  # fmt: skip
    mean = run.evaluate(episodes=20).mean("agent")[0] / 10
    assert mean == 1 if ids else mean == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"obs_shape": (2, 3)}, r"got obs_shape = \(2, 3\)"),
        ({"obs_dim": 4, "obs_dtype": "bool"}, "got obs_dtype = 'bool'"),
    ],
)
def test_others_than_flat_floats_are_an_error(given, words):
    with pytest.raises(SpecError, match=words):
        cd.Group("agent", 2, action_space=spaces.Discrete(2), agent_ids=True, **given)
