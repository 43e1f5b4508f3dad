"""The references are Gymnasium's own classes: one step from the same wide states, in float64,
100,000 of each.
"""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import cupydrive as cd
from cupydrive import envs

N = 100_000
STEPPED = 25_000  # by Gymnasium's classes, one after the other
IDS = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountain_car": "MountainCar-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
    "pendulum": "Pendulum-v1",
}
# What theirs keeps beyond a turn and ours does not.
ANGLES = {"acrobot": ("theta1", "theta2"), "pendulum": ("theta",)}


def theirs(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Gymnasium, about older versions of these environments
        return gymnasium.make(IDS[name]).unwrapped


def apart(name, field, ours, want):
    """Return how far two values are from each other, angles modulo a turn."""
    difference = np.abs(np.asarray(ours) - want)
    if field in ANGLES.get(name, ()):
        difference = np.minimum(difference, np.abs(difference - 2 * np.pi))
    return difference


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", IDS)
def test_one_step_from_wide_states_is_gymnasiums(name):
    spec, env, rng = envs.get(name), theirs(name), np.random.default_rng(0)
    params = spec.make_params()
    (group,) = spec.groups(params)
    # Copies in float64: Gymnasium's classes compute in what their state is.
    states = spec.reference.sample_states(params, rng, STEPPED).astype(
        [(f, "f8") for f in spec.state_dtype(params).names]
    )
    if group.continuous:
        low, high = group.action_space.low, group.action_space.high
        # some beyond the bounds
        action = rng.uniform(1.2 * low, 1.2 * high, (STEPPED, 1, 1)).astype(np.float64)
        passed = list(action[:, 0])
    else:
        action = rng.integers(0, group.sizes[0], (STEPPED, 1))
        passed = action[:, 0].tolist()
    want = spec.reference.step(params, states, {group.name: action}, np.ones(STEPPED, int), None)
    env.reset(seed=0)
    table = np.stack([states[f] for f in states.dtype.names], axis=-1)
    after, reward, terminated = np.empty_like(table), np.empty(STEPPED), np.empty(STEPPED, bool)
    for i in range(STEPPED):
        env.state = table[i].copy()
        if hasattr(env, "steps_beyond_terminated"):
            env.steps_beyond_terminated = None
        _, reward[i], terminated[i], _, _ = env.step(passed[i])
        after[i] = env.state
    single = name == "mountain_car_continuous"  # its class keeps its state in float32
    for k, field in enumerate(states.dtype.names):
        tolerance = 1e-7 if single else 1e-9
        assert apart(name, field, want.state[field], after[:, k]).max() < tolerance, field
    near = (
        want.margin.get("terminated", np.full(STEPPED, np.inf)) < 1e-6
        if single
        else np.zeros(STEPPED, bool)
    )
    np.testing.assert_array_equal(want.terminated[~near], terminated[~near])
    np.testing.assert_allclose(want.reward[group.name][~near, 0], reward[~near], rtol=0, atol=1e-9)
    assert name == "pendulum" or (terminated.any() and not terminated.all())


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", IDS)
def test_observations_spaces_and_limits_are_gymnasiums(name):
    spec, env = envs.get(name), theirs(name)
    params = spec.make_params()
    (group,) = spec.groups(params)
    assert (
        params.max_episode_steps == gymnasium.spec(IDS[name]).max_episode_steps
        and spec.time_limit == "truncates"
    )
    assert (
        group.action_space == env.action_space and group.observation_space == env.observation_space
    )
    states = spec.reference.sample_states(params, np.random.default_rng(1), 500)
    seen = spec.reference.observe(params, states, np.zeros(500, int)).obs[group.name][:, 0]
    env.reset(seed=0)
    for state, ours in zip(states, seen, strict=True):
        env.state = np.array(list(state), np.float64)
        get = getattr(env, "_get_obs", None) or getattr(env, "_get_ob", None)
        np.testing.assert_allclose(ours, get() if get else env.state, rtol=0, atol=2e-6)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name, seen", [("cartpole", [0, 2]), ("pendulum", [0, 1])])
def test_with_position_only_all_but_the_observations_is_gymnasiums(name, seen):
    """Gymnasium's class takes each step from our state, with the same action."""
    ours, env = cd.make(name, position_only=True, device="cpu"), theirs(name)
    space = env.observation_space
    assert ours.single_observation_space == spaces.Box(space.low[seen], space.high[seen])
    ours.reset(seed=4)
    env.action_space.seed(4)
    ended = 0
    for _ in range(600):
        env.reset()
        env.state = np.array(
            [ours.state[f][0].item() for f in ours.spec.state_dtype(ours.params).names]
        )
        action = env.action_space.sample()
        want = env.step(action)
        obs, reward, terminated, truncated, info = ours.step(torch.as_tensor(action)[None])
        last = info["final_obs"] if terminated or truncated else obs
        np.testing.assert_allclose(last[0], want[0][seen], rtol=0, atol=2e-6)
        np.testing.assert_allclose(reward[0], want[1], rtol=0, atol=1e-5)
        assert terminated[0] == want[2]
        ended += bool(terminated or truncated)
    assert ended > 2


STARTS = {
    "cartpole": dict.fromkeys(("x", "x_dot", "theta", "theta_dot"), (-0.05, 0.05)),
    "acrobot": dict.fromkeys(("theta1", "theta2", "dtheta1", "dtheta2"), (-0.1, 0.1)),
    "mountain_car": {"position": (-0.6, -0.4)},
    "mountain_car_continuous": {"position": (-0.6, -0.4)},
    "pendulum": {"theta": (-np.pi, np.pi), "theta_dot": (-1.0, 1.0)},
}


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", IDS)
def test_starts_are_uniform_in_gymnasiums_ranges_and_independent(name):
    """Kolmogorov-Smirnov over 10^6 starts: the largest distance of two distributions, bound at 1e-6
    by Massart (1990).
    """
    from cupydrive.simulation.batch import Batch

    spec, n = envs.get(name), 10**6
    batch = Batch(spec, n, spec.make_params())
    batch.reset(12)
    first = batch.get_state()["state"]
    batch.reset()
    second = batch.get_state()["state"]
    bound = np.sqrt(np.log(2 / 1e-6) / (2 * n))
    shares = []
    for field, (low, high) in STARTS[name].items():
        for states in (first, second):
            u = (states[field].astype(np.float64) - low) / (high - low)
            assert u.min() >= -1e-6 and u.max() <= 1 + 1e-6
            distance = np.abs(np.sort(u) - (np.arange(n) + 0.5) / n).max()
            assert distance < bound, (field, distance)
            shares.append(u - 0.5)
    for field in set(first.dtype.names) - set(STARTS[name]):
        assert (first[field] == 0).all()
    # Neighbours, fields and episodes: correlations of n independent pairs stay within 5.2 / sqrt(n)
    # (1e-7 each).
    pairs = [(s[:-1], s[1:]) for s in shares] + [
        (a, b) for k, a in enumerate(shares) for b in shares[:k]
    ]
    for a, b in pairs:
        assert abs(np.corrcoef(a, b)[0, 1]) < 5.2 / np.sqrt(len(a))
