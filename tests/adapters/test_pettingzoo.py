"""PettingZoo's own tests, and the same episodes as the environment itself."""

import archers
import masked
import numpy as np
import point
import pytest
import torch
from conftest import optional

import cupydrive as cd
from cupydrive.errors import ActionError, OrderError, ParameterError, RenderError

zoo_tests = optional("pettingzoo.test")
from cupydrive.pettingzoo import ParallelEnv  # noqa: E402, which imports PettingZoo

TAG = {
    "num_taggers": 3,
    "num_runners": 5,
    "num_other_agents_observed": 3,
    "max_episode_steps": 60,
    "grid_length": 5.0,
}
CASES = {
    "cartpole": {},
    "pendulum": {},
    "tag_grid": {"max_episode_steps": 50},
    "tag_continuous": TAG,
}


@pytest.mark.parametrize("name", CASES)
def test_pettingzoos_tests_pass(name, capsys):
    zoo_tests.parallel_api_test(ParallelEnv(name, **CASES[name]), 200)
    zoo_tests.parallel_seed_test(lambda: ParallelEnv(name, **CASES[name]), 50)


def test_tuples_of_actions_reach_the_kernel_in_one_row(capsys):
    spec = cd.register(archers.PYTHON, archers.KERNEL)
    zoo_tests.parallel_api_test(ParallelEnv(spec), 50)
    zoo, env = ParallelEnv(spec, masked=True), cd.make(spec, 1, device="cpu", masked=True)
    (_, infos), _ = zoo.reset(seed=3), env.reset(seed=3)
    assert [len(mask) for mask in infos["archer_0"]["action_mask"]] == [3, 2, 4]
    action = {
        "archer_0": (np.float32([0.5, -1]), 1, np.array([1, 2]), np.float32([3])),
        "archer_1": ([0.25, 0.0], np.int64(2), [0, 3], [0.0]),
    }
    rewards = zoo.step(action)[1]
    env._read.check_masks = False
    row = torch.tensor([[[1, 1, 2, 0.5, -1, 3], [2, 0, 3, 0.25, 0, 0]]])
    assert list(rewards.values()) == env.step(row)[1][0].tolist()
    for wrong in (([0.5, -1], 3, [1, 2], [3]), ([2.0, 0.0], 1, [1, 2], [3]), ([0.5, -1], 1)):
        with pytest.raises(ActionError, match=r"the action of 'archer_1' is .* its space is Tuple"):
            zoo.step(action | {"archer_1": wrong})


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["tag_grid", "tag_continuous"])
def test_an_episode_is_the_environments_own(name, device):
    zoo, env = (
        ParallelEnv(name, device=device, **CASES[name]),
        cd.make(name, 1, device="cpu", **CASES[name]),
    )
    obs, infos = zoo.reset(seed=3)
    want, _ = env.reset(seed=3)
    assert (
        zoo.agents
        == zoo.possible_agents
        == [f"{g.name}_{i}" for g in env.groups for i in range(g.count)]
    )
    total, gone = dict.fromkeys(zoo.possible_agents, 0.0), set()
    for seed in range(10_000):
        for agent in zoo.agents:
            g, i = agent.rsplit("_", 1)
            assert np.array_equal(obs[agent], want[g][0, int(i)].numpy()) and infos[agent] == {}
            zoo.action_space(agent).seed(seed)
        live = list(zoo.agents)
        actions = {agent: zoo.action_space(agent).sample() for agent in live}
        given = {g.name: np.zeros(env._read.shapes[g.name], np.int32) for g in env.groups}
        for agent, action in actions.items():
            g, i = agent.rsplit("_", 1)
            given[g][0, int(i)] = action
        obs, rewards, terminated, truncated, infos = zoo.step(actions)
        want, reward, ended, cut, info = env.step(
            {g: torch.from_numpy(a) for g, a in given.items()}, autoreset=False
        )
        for agent in live:
            g, i = agent.rsplit("_", 1)
            total[agent] += rewards[agent]
            assert rewards[agent] == reward[g][0, int(i)].item()
            left = g in info.get("left", {}) and bool(info["left"][g][0, int(i)])
            assert terminated[agent] == (left or bool(ended[0])) and truncated[agent] == (
                bool(cut[0]) and not left
            )
            if terminated[agent] or truncated[agent]:
                gone.add(agent)
        assert set(zoo.agents) == set(zoo.possible_agents) - gone
        if ended[0] or cut[0]:
            break
    assert not zoo.agents
    assert infos[live[0]] == {name: info["episode"][name][0].item() for name in env.spec.metrics}
    for agent, score in total.items():
        g, i = agent.rsplit("_", 1)
        assert score == pytest.approx(info["episode"]["return"][g][0, int(i)].item(), abs=1e-4)
    with pytest.raises(OrderError, match="Call reset"):
        zoo.step({})


@pytest.mark.filterwarnings("ignore:Environment's m.*imum state space value:UserWarning")
@pytest.mark.parametrize("name", ["tag_grid", "cartpole"])
def test_the_state_has_a_space(name):
    from pettingzoo.utils.conversions import parallel_to_aec

    zoo = ParallelEnv(name)
    zoo.reset(seed=0)
    assert zoo.state_space.contains(zoo.state())
    zoo_tests.state_test(parallel_to_aec(zoo), zoo)


def test_options_start_from_a_state_or_are_refused():
    zoo = ParallelEnv("cartpole")
    obs, _ = zoo.reset(seed=0, options={"state": {"x": 2.0}})
    assert obs["cart_0"][0] == 2 and zoo.state()[0] == 2
    before = zoo.env.snapshot().arrays()
    for wrong in ({"nonsense": 1}, {"state": {"y": 1.0}}, {"state": 3}, "state"):
        with pytest.raises(ParameterError, match=r"options|no state"):
            zoo.reset(seed=1, options=wrong)
    assert all(
        array.tobytes() == before[name].tobytes()
        for name, array in zoo.env.snapshot().arrays().items()
    )


@pytest.mark.full
def test_masks_come_in_infos():
    zoo = ParallelEnv(cd.register(masked.PYTHON, masked.KERNEL))
    _, infos = zoo.reset(seed=0)
    for _ in range(20):
        sampled = {a: zoo.action_space(a).sample(mask=infos[a]["action_mask"]) for a in zoo.agents}
        _, _, _, _, infos = zoo.step(sampled)
    assert infos["walker_0"]["forbidden"] == 0 and not zoo.agents


def test_frames_and_state():
    zoo = ParallelEnv("tag_grid", render_mode="rgb_array")
    zoo.reset(seed=0)
    first = zoo.render()
    zoo.step({agent: zoo.action_space(agent).sample() for agent in zoo.agents})
    width, height = zoo.env.spec.display.size
    assert (
        first.shape == (height, width, 3)
        and first.dtype == np.uint8
        and not np.array_equal(first, zoo.render())
    )
    zoo = ParallelEnv("tag_grid")
    zoo.reset(seed=0)
    assert zoo.state().shape == (10,) and zoo.state().dtype == np.float32
    with pytest.raises(RenderError, match="render_mode"):
        zoo.render()
    zoo.close()
    zoo.close()


def test_other_mistakes():
    zoo = ParallelEnv(cd.register(point.PYTHON, point.KERNEL))
    with pytest.raises(OrderError, match="reset"):
        zoo.step({"point_0": [0.0]})
    zoo.reset(seed=0)
    for wrong in ([2.0], [np.nan], [0.0, 0.0]):
        with pytest.raises(ActionError, match=r"its space is Box|must be an array of numbers"):
            zoo.step({"point_0": wrong})
    with pytest.raises(RenderError, match="no drawing"):
        ParallelEnv("point", render_mode="rgb_array")
