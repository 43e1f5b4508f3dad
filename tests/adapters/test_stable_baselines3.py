"""Stable-Baselines3 accepts the environment, and its PPO learns CartPole through it."""

import archers
import masked
import numpy as np
import pytest
from conftest import optional

import cupydrive as cd
from cupydrive.errors import CupydriveError, ParameterError

optional("stable_baselines3")
from cupydrive.stable_baselines3 import VecEnv  # noqa: E402, which imports Stable-Baselines3

# Of SB3 and what it loads, about each other.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def test_results_have_the_form_of_sb3s_own_vectors():
    from stable_baselines3.common.vec_env import DummyVecEnv

    import cupydrive.gymnasium as adapters

    ours = VecEnv("cartpole", 4, device="cpu", max_episode_steps=15)
    theirs = DummyVecEnv([lambda: adapters.Env("cartpole", max_episode_steps=15)] * 4)
    assert (ours.observation_space, ours.action_space) == (
        theirs.observation_space,
        theirs.action_space,
    )
    ours.seed(3)
    seen = ours.reset(), theirs.reset()
    assert seen[0].shape == seen[1].shape and seen[0].dtype == seen[1].dtype
    ended, total, steps = [], np.zeros(4), np.zeros(4, int)
    for _ in range(40):
        action = np.random.default_rng(0).integers(0, 2, 4)
        results = ours.step(action), theirs.step(action)
        for mine, other in zip(results[0][:3], results[1][:3], strict=True):
            assert mine.shape == other.shape and mine.dtype == other.dtype
        obs, reward, done, infos = results[0]
        total += reward
        steps += 1
        for i in np.nonzero(done)[0]:
            ended.append(infos[i])
            assert infos[i]["episode"]["r"] == total[i] and infos[i]["episode"]["l"] == steps[i]
            assert not np.array_equal(infos[i]["terminal_observation"], obs[i])
            assert infos[i]["TimeLimit.truncated"] == (steps[i] == 15)
            total[i] = steps[i] = 0
        assert all(not info for info, over in zip(infos, done, strict=True) if not over)
        theirs_ended = [
            info for info in results[1][3] if info.get("terminal_observation") is not None
        ]
        assert all(
            set(info) - {"episode"} == set(ended[0]) - {"episode"} for info in theirs_ended if ended
        )
    assert len(ended) > 4


@pytest.mark.full
def test_ppo_learns():
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    env = VecEnv("cartpole", 64, device="cpu")
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=32,
        batch_size=256,
        n_epochs=10,
        learning_rate=1e-3,
        seed=1,
        device="cpu",
    )
    before, _ = evaluate_policy(model, env, 64, warn=False)
    model.learn(40_000)
    after, _ = evaluate_policy(model, env, 64, warn=False)
    assert before < 100 < 200 < after


def test_frames_and_what_all_environments_share():
    env = VecEnv("cartpole", 4, device="cpu", render_mode="rgb_array")
    env.reset()
    width, height = env.env.env.spec.display.size
    assert env.render().shape == (2 * height, 2 * width, 3)
    assert env.get_attr("num_envs", [0, 1]) == [4, 4] and env.env_is_wrapped(object) == [False] * 4
    with pytest.raises(NotImplementedError, match="Leave indices out"):
        env.set_attr("x", 1, indices=[0])
    with pytest.raises(CupydriveError, match=r"VectorEnv\(\.\.\., gravity=\.\.\.\)"):
        env.set_attr("gravity", 1.0)
    env.set_attr("copy", False)  # of the vector environment
    assert env.get_attr("copy") == [False] * 4 and not hasattr(env.env, "gravity")


def test_reset_options_reach_their_environments():
    env = VecEnv("cartpole", 4, device="cpu")
    env.seed(1)
    free = env.reset()
    for state, want in (
        ({"x": 2, "elapsed": 7}, [2, 2, 2, 2]),
        ({"x": [0.0, 1.0, 2.0, 3.0]}, [0, 1, 2, 3]),
    ):
        env.seed(1)
        env.set_options({"state": state})
        obs = env.reset()
        assert obs[:, 0].tolist() == np.float32(want).tolist() and np.array_equal(
            obs[:, 1:], free[:, 1:]
        )
    env.seed(1)
    assert np.array_equal(env.reset(), free)  # options are of one reset
    before = env.env.env.snapshot().arrays()
    for wrong in ([{}, {"state": {"x": 0.0}}, {}, {}], {"state": {"y": 0.0}}, {"low": 0.1}):
        env.set_options(wrong)
        with pytest.raises(CupydriveError, match=r"options|no state 'y'"):
            env.reset()
        assert env._options == [{}] * 4  # the next reset goes on without them
    assert all(
        array.tobytes() == before[name].tobytes()
        for name, array in env.env.env.snapshot().arrays().items()
    )


def test_options_that_sb3_cannot_use_are_refused():
    for options in ({"arrays": "torch"}, {"autoreset_mode": "next_step"}):
        with pytest.raises(ParameterError, match=r"Leave .* out"):
            VecEnv("cartpole", 2, device="cpu", **options)


def test_tuples_of_actions_are_refused():
    spec = cd.register(archers.PYTHON, archers.KERNEL)
    with pytest.raises(
        ParameterError, match=r"Discrete, MultiDiscrete and Box: got Tuple\(.*gymnasium.VectorEnv"
    ):
        VecEnv(spec, 2, device="cpu", archers=1)


@pytest.mark.full
def test_maskable_ppo_trains():
    contrib = optional("sb3_contrib")
    from stable_baselines3.common.vec_env import VecMonitor

    # refuses forbidden choices
    env = VecEnv(cd.register(masked.PYTHON, masked.KERNEL), 8, device="cpu", walkers=1)
    model = contrib.MaskablePPO(
        "MlpPolicy", VecMonitor(env), n_steps=16, batch_size=64, n_epochs=2, device="cpu"
    )
    model.learn(512)
    env.reset()
    assert [
        info["action_mask"].tolist() for info in env.reset_infos
    ] == env.env.action_masks().tolist()
    assert len(env.env_method("action_masks", indices=[1, 3])) == 2
    assert not VecEnv("cartpole", 2, device="cpu").has_attr("action_masks")
