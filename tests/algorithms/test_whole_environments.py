"""Policies that take whole environments: minibatches keep agents together, and the trial compares
environments.
"""

import re

import everything
import pytest
import torch
from torch import nn

import cupydrive as cd
from cupydrive.errors import ParameterError
from cupydrive.training.begin import make_run

ABOUT = dict(num_steps=8, num_minibatches=4)


class Mean(nn.Module):
    """Agents see themselves and the mean of their environment; ``mixes``: of all environments."""

    agents_per_row = 3

    def __init__(self, obs_dim, size, mixes=False):
        super().__init__()
        self.actor, self.critic, self.mixes = (
            nn.Linear(2 * obs_dim, size),
            nn.Linear(2 * obs_dim, 1),
            mixes,
        )

    def forward(self, obs):
        mean = obs.mean((0, 1) if self.mixes else 1, keepdim=True).expand_as(obs)
        seen = torch.cat([obs, mean], -1)
        return self.actor(seen), self.critic(seen)[..., 0]


class Remembering(Mean):
    """The state of each agent is the mean of what its environment has seen."""

    state_size = 2

    def forward(self, obs, state, start=None):
        parameters, value = super().forward(obs)
        found = []
        steps = obs.unflatten(0, (-1, len(state)))
        for t, seen in enumerate(steps):
            if start is not None:
                state = state.masked_fill(start.view(len(steps), -1)[t][:, None, None], 0.0)
            state = 0.5 * state + seen.mean((1, 2))[:, None, None]
            found.append(state)
        return parameters + torch.cat(found).mean(-1, keepdim=True), value, state


@pytest.mark.parametrize("policy", [Mean, Remembering])
@pytest.mark.parametrize("kind", [cd.PPO, cd.A2C])
def test_learning_sees_what_acting_saw(policy, kind):
    """With mean observations of shuffled agents instead, replayed values would differ."""
    settings = kind(policy=policy, num_steps=8)
    report = cd.check_policy("simple_spread", settings, num_envs=16, device="cpu")
    assert report.passed, report


def test_an_iteration_learns_each_row_once():
    """``replayed`` goes through all minibatches: every row has a finite log-probability."""
    run = make_run("simple_spread", cd.PPO(policy=Mean, **ABOUT), num_envs=6, device="cpu")
    run.iterate()
    learner = run.learners["agent"]
    assert learner.sequences(run.rollout) == 8 * 6
    chosen = learner.permutation(run.rollout, 0)
    rows = learner.flat(run.rollout) | {"row": torch.arange(8 * 6 * 3)}
    found = [learner.minibatch(run.rollout, rows, part)["row"] for part in chosen.tensor_split(4)]
    assert sorted(torch.cat(found).tolist()) == list(range(8 * 6 * 3))
    for part in found:
        assert (part.view(-1, 3) == part.view(-1, 3)[:, :1] + torch.arange(3)).all()
        assert (part[::3] % 3 == 0).all()


def test_it_acts_outside_of_training():
    run = cd.train(
        "simple_spread", cd.PPO(policy=Mean, **ABOUT), num_envs=8, steps=256, device="cpu",
        progress=False,
    )  # fmt: skip
    obs = torch.randn(5, 3, 18)
    action = run.act(obs)
    assert action.shape == (5, 3)
    logits = run.policies["agent"](obs)[0]
    assert torch.equal(action, logits.argmax(-1).int())
    assert run.evaluate(episodes=3)
    with pytest.raises(ParameterError, match="expected 3 agents along axis -2"):
        run.act(obs[:, :2])


@pytest.mark.full
def test_agents_that_leave_do_not_disturb_the_others():
    spec = cd.register(everything.PYTHON.replace("TIME_LIMIT", "truncates"), everything.KERNEL)
    policies = {"walker": cd.PPO(policy=Mean, num_steps=8), "driver": cd.RandomPolicy()}
    report = cd.check_policy(spec, policies=policies, num_envs=16, device="cpu", walkers=3)
    assert report.passed, report


def mixing(obs_dim, size):
    return Mean(obs_dim, size, mixes=True)


@pytest.mark.parametrize(
    ("settings", "params", "words"),
    [
        (cd.PPO(policy=mixing, **ABOUT), {}, "returns other outputs for the same row"),
        (cd.PPO(policy=Mean, **ABOUT), {"num_agents": 4}, "got 4 agents of group 'agent', expected"),
        (cd.PPO(policy=Mean, num_steps=5), {}, "15 rows (steps x environments) do not divide into 4"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(settings, params, words):
    with pytest.raises(ParameterError, match=re.escape(words)) as error:
        envs = 3 if "divide" in words else 8
        make_run("simple_spread", settings, num_envs=envs, device="cpu", **params)
    assert "\n" not in str(error.value)


def test_a_pool_does_not_take_them():
    pool = cd.OpponentPool(cd.PPO(policy=Mean, **ABOUT))
    policies = {"tagger": pool, "runner": cd.PPO(**ABOUT)}
    with pytest.raises(ParameterError, match=r"agents_per_row = 3\. Train it without a pool"):
        make_run("tag_grid", policies=policies, num_envs=8, device="cpu", num_taggers=3)
