"""PQN: targets in closed form, the frequencies of its actions, its optimiser, and CartPole."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive import envs
from cupydrive.algorithms.kernels.choice import make_learner
from cupydrive.algorithms.pqn import PQNLearner
from cupydrive.algorithms.step import adam
from cupydrive.errors import ParameterError
from cupydrive.playing.policy import Sampler, make_distribution
from cupydrive.playing.rollout import Rollout
from cupydrive.simulation.batch import Batch

SMALL = cd.PQN(num_steps=8, num_minibatches=2, hidden=(8,))


def begun(settings, env, n, backend="torch", **params):
    """Return a learner for each group and their rollout, with weights that say something."""
    spec = envs.get(env)
    batch = Batch(spec, n, spec.make_params(**params))
    batch.reset(1)
    torch.manual_seed(3)
    learners = {
        g.name: make_learner(g.name, settings, g, batch.executor, backend)[0] for g in batch.groups
    }
    rollout = Rollout(batch, learners, settings.num_steps)
    for learner in learners.values():
        learner.prepare(rollout)
        with torch.no_grad():
            for p in learner.policy.parameters():
                p.add_(torch.randn_like(p) * 0.3)
    return learners, rollout


def q_lambda(reward, after, ended, gamma, weight):
    """Return targets (T, N) in float64: r + gamma ((1 - lambda) next + lambda later)."""
    targets, later = np.zeros(reward.shape), after[-1]
    for t in reversed(range(len(reward))):
        later = np.where(ended[t], after[t], later)
        targets[t] = reward[t] + gamma * ((1 - weight) * after[t] + weight * later)
        later = targets[t]
    return targets


@pytest.mark.quick(1)
@pytest.mark.parametrize("weight", [0.65, 0.0, 1.0])
def test_targets_are_those_of_q_lambda(weight):
    """Poles fall and time runs out within the rollout. Values are the module's in float64."""
    settings = cd.PQN(num_steps=40, hidden=(16,), gamma=0.9, q_lambda=weight, epsilon=0.5)
    learners, rollout = begun(settings, "cartpole", 20, max_episode_steps=15)
    learner = learners["cart"]
    rollout.collect()
    with torch.no_grad():
        learner.estimate(rollout)
        network = learner.policy.double()
        obs, final = (x["cart"][:, :, 0].double() for x in (rollout.obs, rollout.final_obs))
        after = torch.stack([network(row)[0].amax(1) for row in obs[1:]]).numpy()
        final = torch.stack([network(row)[0].amax(1) for row in final]).numpy()
    terminated, truncated = rollout.terminated.numpy(), rollout.truncated.numpy()
    assert terminated.any() and truncated.any()
    after = np.where(truncated, final, np.where(terminated, 0.0, after))
    reward = rollout.reward["cart"][..., 0].numpy()
    wanted = q_lambda(reward, after, terminated | truncated, 0.9, weight)
    found = learner.stored["cart"]["returns"][..., 0].numpy()
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_an_own_learner_replaces_all_values():
    """``value[T]`` by ``last_values``, the others before ``estimate``."""

    class Learner(PQNLearner):
        def last_values(self, rollout, g):
            super().last_values(rollout, g)
            self.stored[g.name]["value"][-1] = 7.0

    @dataclass(frozen=True, kw_only=True)
    class Mine(cd.PQN):
        def learner(self):
            return Learner(self)

    learners, rollout = begun(Mine(num_steps=4, hidden=(8,), gamma=0.5), "cartpole", 3)
    learner = learners["cart"]
    rollout.collect()
    with torch.no_grad():
        learner.stored["cart"]["value"][:-1] = 7.0
        learner.estimate(rollout)
    wanted = [1 + 3.5]
    for _ in range(3):
        wanted.insert(0, 1 + 0.5 * (0.35 * 7 + 0.65 * wanted[0]))
    found = learner.stored["cart"]["returns"][:, :, 0]
    torch.testing.assert_close(found, torch.tensor(wanted)[:, None].expand(4, 3))


def test_values_are_those_of_allowed_actions():
    """A forbidden column has the largest value in half of the rows of Connect Four. Targets of an
    agent's moves are those of the game: of its next move, or the reward at the end.
    """
    settings = cd.PQN(num_steps=30, hidden=(16,), gamma=1.0, q_lambda=0.0, epsilon=1.0)
    learners, rollout = begun(settings, "connect_four", 8)
    learner = learners["first"]
    with torch.no_grad():
        for p in learner.policy.parameters():  # every value is its bias
            p.zero_()
        own = list(learner.policy.parameters())[-1]
        own.copy_(torch.arange(7.0))
    rollout.collect()
    learner.estimate(rollout)
    stored, mask = learner.stored["first"], rollout.action_mask["first"][:, :, 0]
    assert not mask[rollout.active["first"][..., 0].nonzero(as_tuple=True)].all()
    nothing = ~mask.any(-1, keepdim=True)
    wanted = torch.where(mask | nothing, torch.arange(7.0), -torch.inf).amax(-1)
    assert torch.equal(stored["value"][..., 0], wanted)
    taken = rollout.action["first"][..., 0, 0].float()
    assert torch.equal(stored["log_prob"][..., 0], taken)
    ends = rollout.terminated & (stored["weight"][..., 0] == 1)
    assert ends.any()
    assert torch.equal(stored["returns"][..., 0][ends], rollout.reward["first"][..., 0][ends])


def test_the_loss_and_its_gradient():
    """Half the squared errors of the taken actions' values, per active row. The values of a pause
    are learnt too, since targets bootstrap from them. Other rows of weight 0 do not count.
    """

    class Table(torch.nn.Module):
        def __init__(self, obs_dim, size):
            super().__init__()
            self.q = torch.nn.Parameter(torch.tensor([1.0, 4.0]))

        def forward(self, obs):
            q = self.q.expand(len(obs), -1)
            return q, q.amax(1)

    learners, _ = begun(cd.PQN(policy=Table), "cartpole", 4)
    learner = learners["cart"]
    with torch.no_grad():
        learner.policy.q.copy_(torch.tensor([1.0, 4.0]))
    rows = {
        "obs": torch.zeros(5, 4),
        "action": torch.tensor([[0], [1], [1], [0], [0]], dtype=torch.int32),
        "returns": torch.tensor([3.0, 3.0, 7.0, 100.0, 2.0]),
        "weight": torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]),
        "value_weight": torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]),
    }
    losses = learner._loss(rows)
    assert losses["loss"].item() == pytest.approx((4 + 1 + 9 + 1) / 6)
    assert losses["q_value"].item() == pytest.approx((1 + 4 + 4) / 3)
    gradient = torch.autograd.grad(losses["loss"], learner.policy.q)[0]
    torch.testing.assert_close(gradient, torch.tensor([-2.0 - 1.0, 1.0 - 3.0]) / 3)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("epsilon", "masked"), [(0.3, False), (0.3, True), (0.0, True), (1.0, True)]
)
def test_actions_are_epsilon_greedy(epsilon, masked):
    """Frequencies within five standard deviations. Forbidden actions never occur."""
    n = 40_000
    spec = envs.get("connect_four")
    batch = Batch(spec, n, spec.make_params())
    batch.reset(5)
    group = batch.groups[0]
    distribution = make_distribution(group, "epsilon_greedy")
    distribution.follow(SimpleNamespace(epsilon=torch.tensor(epsilon)))
    sampler = Sampler(distribution, batch, group)
    values = torch.tensor([0.5, 9.0, 2.0, 3.0, 3.0, -1.0, 0.0]).repeat(n, 1)
    allowed = torch.tensor([1, 0, 1, 1, 1, 0, 1]).bool() if masked else torch.ones(7).bool()
    mask = allowed.repeat(n, 1)[:, None] if masked else None
    action = torch.empty(n, 1, 1, dtype=torch.int32)
    value, taken = torch.empty(n, 1), torch.empty(n, 1)
    rows = {"log_prob": taken, "value_row": value, "value": values[:, 0], "mask": mask}
    sampler(values, action, **rows)
    best = 3 if masked else 1  # the first of equal ones
    assert (value == values[0, best]).all() and torch.equal(taken[:, 0], values[0, action[:, 0, 0]])
    chance = epsilon * allowed.double() / allowed.sum()
    chance[best] += 1 - epsilon
    module = distribution.module(torch.nn.Linear(1, 1), group, None)
    obs, generator = torch.zeros(n, *group.obs_shape), torch.Generator().manual_seed(4)
    drawn = module.drawn(values, obs, allowed.repeat(n, 1), generator)  # as Run.act
    for taken_by in (action[:, 0, 0], drawn):
        found = torch.bincount(taken_by, minlength=7).double() / n
        bound = 5 * (chance * (1 - chance) / n).sqrt()
        assert (found - chance).abs().le(bound).all(), (found, chance)
    sampler(values, action, greedy=True, **rows)
    assert (action == best).all()


def test_a_skipped_step_of_radam_changes_nothing():
    """Other steps are those of torch's RAdam, before and after the rectification begins."""
    rng = torch.Generator().manual_seed(2)
    ours, theirs = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    optimizer, skip = adam([ours], torch.tensor(0.1), rectified=True)
    reference = torch.optim.RAdam([theirs], lr=0.1)
    for step in range(12):
        gradient = torch.randn(5, generator=rng)
        skip.fill_(step % 3 == 1)
        ours.grad = gradient if step % 3 != 1 else torch.full((5,), math.nan)
        before = [x.clone() for x in (ours, *optimizer.state[ours].values())]
        optimizer.step()
        if step % 3 == 1:
            now = (ours, *optimizer.state[ours].values())
            assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))
        else:
            theirs.grad = gradient
            reference.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_evaluation_explores_with_the_last_epsilon(tmp_path):
    """A run that is read again has the epsilon at which it stopped, and a frozen one, too."""
    settings = cd.PQN(num_steps=8, num_minibatches=2, hidden=(8,), epsilon=((0, 1.0), (64, 0.5)))
    about = {"num_envs": 4, "steps": 64, "device": "cpu", "progress": False}
    cd.train("cartpole", settings, out=tmp_path / "run", **about)
    run = cd.load(tmp_path / "run")
    player = run.learners["cart"].acting(greedy=False)
    assert run.learners["cart"].distribution.epsilon.item() == 0.5
    assert player.distribution.epsilon.item() == 0.5
    frozen = cd.FrozenPolicy(tmp_path / "run", greedy=False).player(run.spec, run.batch.groups[0])
    Rollout(run.batch, {"cart": frozen}, 2)
    assert frozen.acting.distribution.epsilon.item() == 0.5


@pytest.mark.parametrize(("env", "space"), [("pendulum", r"Box\("), ("rice_n", "MultiDiscrete")])
def test_other_actions_are_refused(env, space):
    with pytest.raises(
        ParameterError, match=rf"PQN needs Discrete actions, but group '\w+' has {space}"
    ):
        cd.train(env, SMALL, num_envs=4, steps=64, device="cpu", progress=False)


def test_an_own_network_with_a_critic_is_refused():
    class Net(torch.nn.Module):
        def __init__(self, obs_dim, size):
            super().__init__()
            self.actor, self.critic = torch.nn.Linear(obs_dim, size), torch.nn.Linear(obs_dim, 1)

        def forward(self, obs):
            return self.actor(obs), self.critic(obs)[:, 0]

    with pytest.raises(ParameterError, match=r"not the largest .* Return \(q, q.amax\(1\)\)"):
        begun(cd.PQN(policy=Net), "cartpole", 4)


def test_the_network_is_one_tower():
    """Outputs are the action values only, and LayerNorm is the default."""
    group = envs.get("minatar_breakout").groups(envs.get("minatar_breakout").make_params())[0]
    network = cd.PQN().network_for(group)
    assert (network.outputs(3), network.layer_norm, network.conv) == ((3,), True, cd.Conv((16,)))
    described = cd.PQN(network=cd.Network(hidden=(8,))).architecture
    assert (described.shared, described.layer_norm, described.outputs(5)) == (True, False, (5,))


@pytest.mark.quick(2)
@pytest.mark.parametrize("core", [None, cd.GRU(16)])
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_action_values_are_the_same_while_acting_and_learning(backend, core):
    """Of the action taken, and the largest of an allowed one."""
    network = cd.Network(hidden=(16,), core=core, layer_norm=True)
    settings = cd.PQN(num_steps=16, network=network, epsilon=0.3)
    report = cd.check_policy("connect_four", settings, num_envs=32, device="cpu", backend=backend)
    assert f"by {backend}" in report.compared_with and report.passed, report


@pytest.mark.slow
def test_cartpole_is_solved():
    run = cd.train("cartpole", "pqn", seed=3, device="cpu", progress=False)
    assert run.step < 1_000_000
    assert run.evaluate(episodes=1_000).returns["cart"].mean() >= 475
