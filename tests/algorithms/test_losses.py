"""Losses and gradients against closed forms: both sides of the clip, values, entropy, inactive
agents, DDPG's targets.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from point import KERNEL, PYTHON

import cupydrive as cd
from cupydrive import envs
from cupydrive.algorithms.a2c import A2CLearner
from cupydrive.algorithms.replay import transitions
from cupydrive.playing.rollout import Rollout
from cupydrive.simulation.batch import Batch
from cupydrive.training.begin import make_run


class Table(torch.nn.Module):
    """A policy without observations: the same logits and value everywhere."""

    def __init__(self, logits, value=0.0):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits))
        self.value = torch.nn.Parameter(torch.tensor(value))

    def forward(self, obs):
        return self.logits.expand(len(obs), -1), self.value.expand(len(obs))


def learner(settings, name="cartpole", n=4, **params):
    """Return a learner that has begun, and its rollout."""
    spec = envs.get(name)
    batch = Batch(spec, n, spec.make_params(**params))
    batch.reset(1)
    learners = {g.name: settings.learner() for g in batch.groups}
    rollout = Rollout(batch, learners, settings.num_steps)
    for one in learners.values():
        one.prepare(rollout)
    return next(iter(learners.values())), rollout


def table(logits, value=0.0):
    return lambda obs_dim, size: Table(logits, value)


def rows(action, advantage, old_log_prob, returns=0.0, value=0.0, weight=None):
    """Return a minibatch of one column of numbers each."""
    size = len(action)
    columns = {
        "obs": torch.zeros(size, 4),
        "action": torch.tensor(action)[:, None],
        "advantage": torch.tensor(advantage),
        "log_prob": torch.tensor(old_log_prob),
        "returns": torch.full((size,), float(returns)),
        "value": torch.full((size,), float(value)),
    }
    return columns | ({} if weight is None else {"weight": torch.tensor(weight)})


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("ratio", "advantage", "used", "flows"),
    [
        (1.1, 2.0, 1.1, True),
        (1.5, 2.0, 1.2, False),  # too far up, and up is wanted: clipped
        (1.5, -2.0, 1.5, True),  # too far up, down is wanted: not clipped
        (0.5, 2.0, 0.5, True),
        (0.5, -2.0, 0.8, False),
    ],
)
def test_the_clip_has_two_sides(ratio, advantage, used, flows):
    one, _ = learner(cd.PPO(policy=table([0.0, 0.0]), norm_adv=False, ent_coef=0.0, vf_coef=0.0))
    losses = one._loss(rows([1], [advantage], [math.log(0.5 / ratio)]))
    assert losses["policy_loss"].item() == pytest.approx(-used * advantage, rel=1e-5)
    gradient = torch.autograd.grad(losses["loss"], one.policy.logits)[0]
    # d(ratio)/d(logits) = ratio * (indicator - probabilities)
    wanted = torch.tensor([-0.5, 0.5]) * -ratio * advantage * flows
    torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-7)
    assert losses["clipfrac"].item() == float(abs(ratio - 1) > 0.2)
    log_ratio = math.log(ratio)
    assert losses["approx_kl"].item() == pytest.approx(ratio - 1 - log_ratio, rel=1e-4)
    assert losses["old_approx_kl"].item() == pytest.approx(-log_ratio, rel=1e-4)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("clip", "value", "error"), [(False, 3.0, 1.0), (True, 3.0, 4.0 - 1.2), (True, 1.1, 4.0 - 1.1)]
)
def test_the_value_loss_with_and_without_clipping(clip, value, error):
    """Returns 4, old value 1: a clipped value may be at most 1.2, and the worse of the two errors
    counts.
    """
    one, _ = learner(
        cd.PPO(
            policy=table([0.0, 0.0], value),
            clip_vloss=clip,
            vf_coef=1.0,
            ent_coef=0.0,
            norm_adv=False,
        )
    )
    losses = one._loss(rows([0], [0.0], [math.log(0.5)], returns=4.0, value=1.0))
    assert losses["value_loss"].item() == pytest.approx(0.5 * error**2, rel=1e-5)


def test_entropy_and_the_whole_loss():
    one, _ = learner(
        cd.PPO(policy=table([0.0, math.log(3.0)], 2.0), ent_coef=0.1, vf_coef=0.25, norm_adv=False)
    )
    losses = one._loss(rows([1], [1.0], [math.log(0.75)], returns=1.0, value=2.0))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert losses["entropy"].item() == pytest.approx(entropy, rel=1e-5)
    assert losses["loss"].item() == pytest.approx(-1.0 - 0.1 * entropy + 0.25 * 0.5, rel=1e-5)


@pytest.mark.quick(2)
@pytest.mark.parametrize("settings", [cd.PPO, cd.A2C])
def test_agents_that_are_out_give_no_loss(settings):
    one, other = (
        learner(settings(policy=table([0.3, -0.2], 0.5), norm_adv=True))[0] for _ in range(2)
    )
    inside = rows([0, 1, 1], [1.0, -2.0, 0.5], [-0.6, -0.7, -0.8], returns=1.0)
    losses = one.learn(inside)
    for name, column in inside.items():
        filler = torch.full_like(column[:1], 1 if name == "action" else 1e6)
        inside[name] = torch.cat([column, filler])
    masked = other.learn(inside | {"weight": torch.tensor([1.0, 1, 1, 0])})
    for name, value in losses.items():
        assert masked[name].item() == pytest.approx(value.item(), rel=1e-5), name


def test_advantages_are_normalised_per_minibatch():
    advantage = torch.tensor([3.0, 5.0, 10.0, -2.0])
    normal = ((advantage - 4.0) / advantage.std(correction=0)).tolist()
    for settings in (cd.PPO, cd.A2C):
        found = []
        for given, norm_adv in ((advantage, True), (10 * advantage + 7, True), (normal, False)):
            one, _ = learner(settings(policy=table([0.0, 0.3]), norm_adv=norm_adv))
            found.append(
                one.learn(rows([0, 1, 0, 1], list(given), [-0.7] * 4))["policy_loss"].item()
            )
        assert found[0] != 0.0 and found == pytest.approx([found[0]] * 3, rel=1e-5)


def test_ppos_first_step_is_a2cs_and_its_second_is_not():
    """While the policy is the one that played, the ratio is 1 and the gradients are equal; after
    one step they are not.
    """
    common = dict(
        policy=table([0.1, 0.4], 0.2),
        norm_adv=False,
        gae_lambda=0.95,
        num_steps=16,
        learning_rate=0.5,
    )
    both = [
        learner(s, n=8)
        for s in (
            cd.PPO(num_minibatches=1, update_epochs=1, clip_coef=0.01, **common),
            cd.A2C(**common),
        )
    ]
    gradients = []
    for one, rollout in both:
        rollout.collect()
        one.update(rollout)
        found = []
        for _ in range(2):
            loss = one._loss(one.flat(rollout))["loss"]
            found.append(torch.autograd.grad(loss, list(one.policy.parameters())))
        gradients.append(found[0])
    after = [one.policy.logits.detach() for one, _ in both]
    # one equal step from equal weights
    torch.testing.assert_close(after[0], after[1], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(gradients[0][0], gradients[1][0], rtol=0.1)


def test_steps_are_skipped_after_the_target_kl():
    """With a tiny target the first epoch's steps happen and no others; without one all do."""
    common = dict(num_minibatches=2, update_epochs=3, learning_rate=0.05, num_steps=8)
    steps = {}
    for target in (None, 1e-9):
        one, rollout = learner(cd.PPO(target_kl=target, **common), n=16)
        rollout.collect()
        one.update(rollout)
        first = next(iter(one.policy.parameters()))
        steps[target] = one.optimizer.state[first]["step"].item()
    assert steps == {None: 6, 1e-9: 2}


def test_gradients_are_clipped_to_the_norm():
    for limit, wanted in ((1e9, None), (0.5, 0.5)):
        one, rollout = learner(cd.A2C(max_grad_norm=limit, num_steps=8), n=16)
        rollout.collect()
        one.update(rollout)
        norm = torch.nn.utils.get_total_norm([p.grad for p in one.policy.parameters()]).item()
        reported = one.losses(one.metric_sums.tolist())["grad_norm"]
        assert norm == pytest.approx(
            reported if wanted is None else min(wanted, reported), rel=1e-4
        )


def test_weights_that_an_own_loss_does_not_use_stay_as_they_are():
    class Learner(A2CLearner):
        def _loss(self, rows):
            losses = super()._loss(rows)
            return losses | {"loss": losses["policy_loss"]}

    @dataclass(frozen=True, kw_only=True)
    class Mine(cd.OnPolicy):
        def learner(self):
            return Learner(self)

    one, rollout = learner(Mine(num_steps=4))
    before = {name: p.detach().clone() for name, p in one.policy.named_parameters()}
    rollout.collect()
    one.update(rollout)
    for name, p in one.policy.named_parameters():
        assert torch.equal(p, before[name]) == name.startswith("critic"), name


def test_truncation_bootstraps_from_the_final_observation():
    """With value 1 everywhere and gamma 0.5: an episode cut by the limit is worth 1 after its last
    step, a fallen pole 0.
    """
    settings = cd.A2C(policy=table([0.0, 0.0], 1.0), gamma=0.5, gae_lambda=0.0, num_steps=40)
    one, rollout = learner(settings, n=50, max_episode_steps=15)
    rollout.collect()
    one.estimate(rollout)
    advantage = one.stored["cart"]["advantage"][..., 0]
    assert rollout.truncated.any() and rollout.terminated.any()
    torch.testing.assert_close(advantage, torch.where(rollout.terminated, 0.0, 0.5))


@pytest.mark.full
def test_groups_of_one_policy_have_one_reward_scale():
    """With gamma 0 returns are scaled rewards, by the deviation of the rewards of both groups."""
    settings = cd.A2C(num_steps=8, gamma=0.0, normalize_reward=True)
    policies, options = {"tagger+runner": settings}, {"grid_length": 6, "num_taggers": 2}
    run = make_run("tag_grid", policies=policies, num_envs=20, device="cpu", **options)
    one, rollout = run.learners["tagger+runner"], run.rollout
    with run.computing():
        rollout.collect()
        one.estimate(rollout)
    reward = {g.name: rollout.reward[g.name] for g in one.groups}
    deviation = torch.cat([each.flatten() for each in reward.values()]).std(correction=0)
    for name, each in reward.items():
        torch.testing.assert_close(one.stored[name]["returns"], each / deviation)


# ---- DDPG ----------------------------------------------------------------------------------------


def ddpg(**settings):
    cd.register(PYTHON, KERNEL)
    return learner(
        cd.DDPG(hidden=(8,), batch_size=64, learning_starts=1, **settings),
        "point",
        n=8,
        max_episode_steps=6,
    )


def test_ddpgs_targets_and_losses():
    one, rollout = ddpg(gamma=0.9)
    rollout.collect()
    one.update(rollout)
    rows = {name: array.flatten(0, 1)[:32] for name, array in one.replay.columns.items()}
    rows["end"] = (torch.arange(32) % 3 == 0).float()
    rows["weight"] = (torch.arange(32) < 20).float()
    with torch.no_grad():
        for p in one.target_critic.parameters():
            p.add_(0.1)
        after = one.target_critic(rows["next_obs"], one.target_policy(rows["next_obs"])[0])
        target = rows["reward"] + 0.9 * after * (1 - rows["end"])
        error = (one.critic(rows["obs"], rows["action"]) - target)[:20]
        own = one.critic(rows["obs"], one.policy(rows["obs"])[0])[:20]
    assert one.critic_loss(rows)[0].item() == pytest.approx((error**2).mean().item(), rel=1e-5)
    assert one.actor_loss(rows).item() == pytest.approx(-own.mean().item(), rel=1e-5)


def test_the_actors_loss_leaves_the_critics_gradients_alone():
    # 0 at the first step
    one, rollout = ddpg(updates=1, learning_rate=((0, 0.0), (1_000_000, 1e-3)))
    before = [p.clone() for p in one.critic.parameters()]
    rollout.collect()
    one.update(rollout)
    rows = one.replay.sample(rollout, 64, one.iteration, 0)
    wanted = torch.autograd.grad(one.critic_loss(rows)[0], list(one.critic.parameters()))
    one.learn(one.replay.sample(rollout, 64, one.iteration, 0))  # the same draw again
    scale = min(
        1.0, one.config.max_grad_norm / (torch.nn.utils.get_total_norm(wanted).item() + 1e-6)
    )
    for p, gradient, old in zip(one.critic.parameters(), wanted, before, strict=True):
        assert torch.equal(p, old)
        torch.testing.assert_close(p.grad, scale * gradient)
    assert any(p.grad.abs().sum() > 0 for p in one.policy.parameters())


def test_targets_follow_slowly():
    one, rollout = ddpg(updates=1, tau=0.25)
    slow = [p.clone() for p in one.target_policy.parameters()]
    rollout.collect()
    one.update(rollout)
    one.update(rollout)
    fast = list(one.policy.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(slow, fast, strict=True))
    one, rollout = ddpg(updates=1, tau=1.0)
    rollout.collect()
    one.update(rollout)
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.target_policy.parameters(), one.policy.parameters(), strict=True)
    )


def test_the_replay_buffer_is_a_ring_of_true_transitions():
    one, rollout = ddpg(buffer_size=8 * 10, num_steps=4)
    kept = []
    for _ in range(4):  # 16 rows into a ring of 10
        rollout.collect()
        before, after = rollout.obs["point"][:-1, :, 0], rollout.obs["point"][1:, :, 0]
        final = torch.where(
            rollout.truncated[..., None], rollout.final_obs["point"][:, :, 0], after
        )
        columns = (before, final, rollout.action["point"][:, :, 0], rollout.reward["point"][..., 0])
        kept += list(zip(*(column.clone() for column in columns), strict=True))
        with torch.no_grad():
            one.replay.store(transitions(rollout, one.groups, one.low, one.span))
    assert one.replay.filled.item() == 80 and one.replay.written.item() == 16
    for k in range(6, 16):
        for name, want in zip(("obs", "next_obs", "action", "reward"), kept[k], strict=True):
            assert torch.equal(one.replay.columns[name][k % 10], want), (k, name)
    assert not one.replay.columns["end"].any()  # the limit does not end this task


@pytest.mark.quick(2)
@pytest.mark.parametrize(("damping", "persistence"), [(1.0, 0.0), (0.15, 0.85)])
def test_exploration_noise(damping, persistence):
    """Noise has the stated deviation, and Ornstein-Uhlenbeck noise the stated memory; it begins
    anew with the episode.
    """
    cd.register(PYTHON, KERNEL)
    settings = cd.DDPG(
        hidden=(8,), learning_starts=1, noise_damping=damping, exploration_noise=0.05, num_steps=30
    )
    one, rollout = learner(settings, "point", n=4000, max_episode_steps=15)
    one.started.fill_(1.0)
    with torch.no_grad():
        for p in one.policy.parameters():
            p.zero_()
    rollout.collect()
    noise = rollout.action["point"][:15, :, 0, 0].double()
    first, last, before = noise[0], noise[14], noise[13]
    assert first.std().item() == pytest.approx(0.05, rel=0.05)
    assert ((last * before).mean() / (before**2).mean()).item() == pytest.approx(
        persistence, abs=0.05
    )
    again = rollout.action["point"][15, :, 0, 0].double()  # the next episode's first
    assert abs(torch.corrcoef(torch.stack([again, last]))[0, 1].item()) < 0.08
