"""The reference of CartPole is Gymnasium's: one step from the same wide states, in float64."""

import gymnasium
import numpy as np

from cupydrive.envs import cartpole


def test_one_step_from_wide_states_is_gymnasiums():
    params, rng, n = cartpole.Params(), np.random.default_rng(0), 2000
    states = cartpole.sample(params, rng, n)
    actions = rng.integers(0, 2, (n, 1))
    want = cartpole.step(params, states, {"cart": actions}, np.ones(n, int), None)
    env = gymnasium.make("CartPole-v1").unwrapped
    for i in range(n):
        env.reset(seed=0)
        env.state = np.array([states[name][i] for name in states.dtype.names], np.float64)
        _, reward, terminated, _, _ = env.step(int(actions[i, 0]))
        ours = [want.state[name][i] for name in states.dtype.names]
        np.testing.assert_allclose(ours, env.state, rtol=1e-12, atol=1e-12)
        assert (terminated, reward) == (want.terminated[i], want.reward["cart"][i, 0])
    assert want.terminated.any() and not want.terminated.all()


def test_starts_and_limit_are_gymnasiums():
    params = cartpole.Params()
    assert params.max_episode_steps == gymnasium.spec("CartPole-v1").max_episode_steps
    assert params.start_range == 0.05
