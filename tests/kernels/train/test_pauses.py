"""Agents that pause: what happens while one is inactive belongs to its last active step, in every
algorithm.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pausing import one_step_errors, stream, turns

import cupydrive as cd
from cupydrive.algorithms.replay import ReplayBuffer, transitions
from cupydrive.executors import executor

QUIET = dict(device="cpu", progress=False)


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_replayed_transitions_go_from_one_active_step_to_the_next(steps):
    """The ring holds all of the stream: each transition has the rewards until the agent's next
    active step, and leads there.
    """
    total, n, agents = 240, 5, 2
    game = {
        k: torch.from_numpy(v)
        for k, v in stream(np.random.default_rng(1), total, n, agents).items()
    }
    # An observation is the number of its step; critics that give -obs / 8 make one-step errors of
    # transitions comparable.
    number = torch.arange(total, dtype=torch.float32)[:, None, None, None].expand(
        total, n, agents, 1
    )
    final = number + 0.5
    game["value"], game["final"] = ((-x[..., 0] / 8).contiguous() for x in (number, final))
    want = one_step_errors({k: v.numpy() for k, v in game.items()}, 0.9)
    group = SimpleNamespace(name="g", count=agents, obs_dim=1, heads=1)
    batch = SimpleNamespace(num_envs=n, require_memory=lambda *_: None, executor=executor("cpu"))
    rollout, replay = (
        SimpleNamespace(batch=batch, device="cpu", steps=steps, active={"g": None}),
        None,
    )
    for begin in range(0, total - steps, steps):
        own = slice(begin, begin + steps)
        for name in ("terminated", "truncated"):
            setattr(rollout, name, game[name][own])
        for name in ("reward", "active", "left"):
            setattr(rollout, name, {"g": game[name][own].clone()})
        rollout.obs, rollout.final_obs = {"g": number[begin : begin + steps + 1]}, {"g": final[own]}
        rollout.action = {"g": torch.zeros(steps, n, agents, 1)}
        replay = replay or ReplayBuffer(rollout, [group], total * n * agents)
        replay.store(transitions(rollout, [group], torch.tensor([-1.0]), torch.tensor([2.0])))
    kept = {k: c.unflatten(1, (n, agents)) for k, c in replay.columns.items()}
    learnt = kept["weight"] == 1
    value, following = -kept["obs"][..., 0] / 8, -kept["next_obs"][..., 0] / 8
    found = kept["reward"] + 0.9 * (1 - kept["end"]) * following - value
    known = torch.from_numpy(np.isfinite(want)) & (torch.arange(total) < total - 60)[:, None, None]
    assert not learnt[~game["active"][: len(learnt)]].any() and learnt[known].all()
    # What is left of an agent that has gone, and of an episode that has ended, is in no value.
    np.testing.assert_allclose(found[known], torch.from_numpy(want)[known], rtol=1e-5, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize(
    "settings",
    [cd.PPO(learning_rate=1e-2, num_steps=n) for n in (1, 3)]
    + [cd.A2C(learning_rate=1e-2, num_steps=1)],
)
def test_a_reward_that_comes_after_the_turn_is_learnt_from(settings, leaves):
    """In rollouts of 1 and 3 steps many rewards are of an action in an earlier one; the value of
    the first step becomes 1.
    """
    run = cd.train(
        turns(spaces.Discrete(2), leaves),
        settings,
        num_envs=128,
        steps=8_000,
        backend="torch",
        **QUIET,
    )
    assert run.evaluate(200, greedy=False).mean("return")[0] > 0.95
    with torch.no_grad():
        assert run.policies["actor"](torch.zeros(1, 1))[1].item() > 0.6


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_pqn_learns_the_values_of_a_pause(backend):
    """The last turn of a rollout bootstraps from them. Here two of three actions earn 1."""
    rate = ((0, 3e-3), (40_000, 1e-5))
    settings = cd.PQN(num_steps=3, learning_rate=rate, epsilon=2 / 3, q_lambda=0.0)
    options = {**QUIET, "num_envs": 128, "steps": 40_000, "backend": backend}
    run = cd.train(turns(spaces.Discrete(2)), settings, **options)
    with torch.no_grad():
        values = run.policies["actor"](torch.ones(1, 1))[0]
    assert values[0].tolist() == pytest.approx([2 / 3, 2 / 3], abs=0.15)


@pytest.mark.full
def test_ddpg_learns_from_a_reward_that_comes_after_the_turn():
    settings = cd.DDPG(
        learning_starts=200, num_steps=3, updates=12, batch_size=128, actor_learning_rate=2e-3
    )
    space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    run = cd.train(turns(space), settings, num_envs=16, steps=6_000, **QUIET)
    assert run.evaluate(50).mean("return")[0] > 0.9


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_a_run_with_held_steps_goes_on_bit_for_bit(backend, tmp_path):
    """Stopped where steps are held, and resumed from the folder."""
    settings, how = (
        cd.PPO(num_steps=3, num_minibatches=1),
        dict(num_envs=8, backend=backend, **QUIET),
    )
    whole = cd.train(turns(spaces.Discrete(2)), settings, steps=24 * 7, **how)
    part = cd.train(
        turns(spaces.Discrete(2)),
        settings,
        steps=24 * 7,
        out=tmp_path / "run",
        callback=lambda *_: True,
        **how,
    )
    assert part.step < whole.step
    again = cd.train(
        cd.load(tmp_path / "run", device="cpu", env=turns(spaces.Discrete(2))), progress=False
    )
    held = [key for key in whole.tensors() if ".held" in key]
    assert held and again.step == whole.step
    assert all(torch.equal(a, whole.tensors()[key]) for key, a in again.tensors().items())


@pytest.mark.full
@pytest.mark.parametrize("steps", [1, 3, 16])
def test_rewards_are_scaled_by_the_returns_of_active_steps(steps):
    """Returns are 0 or 1, half of each: of deviation 0.5."""
    settings = cd.PPO(num_steps=steps, num_minibatches=1, normalize_reward=True, learning_rate=1e-9)
    run = cd.train(
        turns(spaces.Discrete(2)), settings, num_envs=128, steps=128 * 96, backend="torch", **QUIET
    )
    assert run.learners["actor"].reward_scale.item() == pytest.approx(2.0, rel=0.08)
