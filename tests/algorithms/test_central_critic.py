"""Central critics (MAPPO) and normalised values: kernels and torch agree, threads change no bit, and
acting needs no critic.
"""

import re
from itertools import product

import everything
import numpy as np
import pytest
import torch
from torch import nn

import cupydrive as cd
from cupydrive.errors import ParameterError
from cupydrive.examples import central_critic
from cupydrive.training.begin import make_run

# One step after the other on all rows, so that both learners see the same minibatches.
WHOLE = dict(num_steps=8, num_minibatches=1, update_epochs=2, learning_rate=0.02)
NORMAL = dict(normalize_value=True, normalize_obs=True)
CENTRAL = dict(critic="central", precision="float32")


@pytest.fixture
def spec():
    return cd.register(everything.PYTHON.replace("TIME_LIMIT", "truncates"), everything.KERNEL)


def run_of(spec, settings, backend="auto", **options):
    policies = {"walker": settings, "driver": cd.RandomPolicy()}
    about = dict(num_envs=32, device="cpu", max_episode_steps=9) | options
    return make_run(spec, policies=policies, backend=backend, **about)


COMPARED = {
    "PPO": cd.PPO(**WHOLE, **CENTRAL),
    "normalised, values clipped": cd.PPO(**WHOLE, **CENTRAL, **NORMAL, clip_vloss=True),
    "rewards normalised, too": cd.PPO(**WHOLE, **CENTRAL, **NORMAL, normalize_reward=True),
    "hidden state": cd.PPO(**WHOLE, **CENTRAL, **NORMAL, network=cd.Network(core=cd.GRU(16))),
    "A2C": cd.A2C(num_steps=8, learning_rate=0.02, **CENTRAL, **NORMAL),
    "own critic": cd.PPO(**WHOLE, **NORMAL, precision="float32"),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", COMPARED)
def test_kernels_and_torch_report_the_same_losses(spec, name):
    """Of the same minibatches from the same weights, at first and after two iterations. Agents leave
    and wait.
    """
    runs = [run_of(spec, COMPARED[name], how) for how in ("kernels", "torch")]
    for iterations in (0, 2):
        for _ in range(iterations):
            runs[0].iterate()
        kept = runs[0].snapshot()
        kept["walker/metric_sums"] = torch.zeros_like(kept["walker/metric_sums"])
        for run in runs:
            run.restore(kept)
            cd.train(run, steps=run.steps_per_iteration, progress=False)
        mine, theirs = (run.metrics[-1] for run in runs)
        for key in (key for key in mine if key.startswith("losses/")):
            assert mine[key] == pytest.approx(theirs[key], rel=2e-5, abs=2e-6), key


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["normalised, values clipped", "hidden state"])
def test_threads_change_no_bit_and_a_run_resumes(spec, name, monkeypatch):
    found = []
    for threads in (1, 2):
        monkeypatch.setenv("CUPYDRIVE_THREADS", str(threads))
        run = run_of(spec, COMPARED[name], "kernels")
        for _ in range(3):
            run.iterate()
        kept = run.snapshot()
        run.iterate()
        found.append(run.snapshot())
    again = run_of(spec, COMPARED[name], "kernels")
    again.restore(kept)
    again.iterate()
    for other in (found[1], again.snapshot()):
        assert other.keys() == found[0].keys()
        for key, tensor in found[0].items():
            assert torch.equal(tensor, other[key]), key


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_acting_is_learning(spec, backend):
    settings = {"walker": COMPARED["hidden state"], "driver": cd.RandomPolicy()}
    report = cd.check_policy(spec, policies=settings, device="cpu", backend=backend)
    assert report.passed, report


def test_values_are_normalised_by_all_returns_so_far(spec):
    """The first iteration's are those of a run without; the next ones merge into mean and
    deviation.
    """
    settings = dict(**WHOLE, precision="float32")
    plain, run = (
        run_of(spec, cd.PPO(**settings, normalize_value=on), "torch") for on in (False, True)
    )
    seen = []
    for _ in range(2):
        learners = [each.learners["walker"] for each in (plain, run)]
        raw = learners[0].stored["walker"]
        normal = learners[1].stored["walker"]
        for each in (plain, run):
            each.iterate()
        counts = normal["weight"] > 0
        rms, center, scale = (
            getattr(learners[1], f"value_{name}") for name in ("rms", "center", "scale")
        )
        returns = normal["returns"] / scale + center
        if not seen:
            torch.testing.assert_close(
                returns[counts], raw["returns"][counts], rtol=1e-5, atol=1e-6
            )
        seen.append(returns[counts].double().numpy())
        so_far = np.concatenate(seen)
        assert float(rms.mean) == pytest.approx(so_far.mean(), rel=1e-4)
        assert float(rms.variance) == pytest.approx(so_far.var(), rel=1e-3)
        assert float(center) == pytest.approx(float(rms.mean))
        assert float(scale) == pytest.approx(float(rms.variance + 1e-8) ** -0.5)


@pytest.mark.parametrize("core", [None, cd.GRU(16)])
def test_acting_needs_no_critic(spec, core, tmp_path):
    settings = cd.PPO(**WHOLE, critic="central", network=cd.Network(hidden=(16,), core=core))
    policies = {"walker": settings, "driver": cd.RandomPolicy()}
    run = cd.train(
        spec, policies=policies, num_envs=16, steps=256, device="cpu", progress=False,
        out=tmp_path / "run",
    )  # fmt: skip
    frozen = {"walker": cd.load(tmp_path / "run").frozen("walker"), "driver": cd.RandomPolicy()}
    returns = [
        cd.evaluate(*how, policies=own, episodes=20, device="cpu").mean("walker")
        for how, own in (((run,), None), ((spec,), frozen))
    ]
    assert returns[0] == returns[1]
    module = run.policy("walker")
    obs, mask = torch.zeros(2, 3), torch.ones(2, 5, dtype=torch.bool)
    action = module(obs, mask)
    assert (action if core is None else action[0]).shape == (2, 2)


class Own(nn.Module):
    """A policy of one's own; ``wrong`` gives another value for the same row."""

    def __init__(self, obs_dim, size, wrong=False):
        super().__init__()
        self.actor, self.critic, self.wrong = nn.Linear(obs_dim, size), nn.Linear(4, 1), wrong

    def forward(self, obs, critic_obs=None):
        if critic_obs is None:
            return self.actor(obs), None
        value = self.critic(critic_obs)[:, 0]
        return self.actor(obs), value - value.mean() if self.wrong else value


def test_a_policy_of_ones_own_gets_critic_obs(spec):
    run = run_of(spec, cd.PPO(**WHOLE, critic="central", policy=Own))
    before = run.policies["walker"].critic.weight.clone()
    run.iterate()
    assert not torch.equal(before, run.policies["walker"].critic.weight)


class Blind(Own):
    def forward(self, obs):
        return super().forward(obs)


class Needy(Own):
    def forward(self, obs, critic_obs):
        return super().forward(obs, critic_obs)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Blind, "critic_obs = (B, 4)"),
        (Needy, "missing 1 required positional argument: 'critic_obs'"),
        (lambda obs_dim, size: Own(obs_dim, size, wrong=True), "returns other outputs for the same"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_called_so_is_an_error(spec, policy, words):
    with pytest.raises(ParameterError, match=re.escape(words)):
        run_of(spec, cd.PPO(**WHOLE, critic="central", policy=policy))


def test_the_example_passes_its_check():
    report = cd.check(central_critic.SPEC, device="cpu", agent_steps=3000, progress=False)
    assert report.passed, report


@pytest.mark.slow
@pytest.mark.optimised
def test_mappo_is_better_than_ippo_where_reward_depends_on_what_agents_do_not_see():
    """The mean difference of ten seeds is above its 95 % interval (Student's t of 9: 2.26)."""
    right = []
    for settings, seed in product((central_critic.IPPO, central_critic.MAPPO), range(10)):
        about = dict(num_envs=64, steps=48_000, seed=seed, device="cpu", progress=False)
        run = cd.train(central_critic.SPEC, settings, **about)
        right.append(run.metrics[-1]["env/right"] / 400)
    difference = np.subtract(right[10:], right[:10])
    assert difference.mean() > 2.26 * difference.std(ddof=1) / 10**0.5
    assert np.mean(right[10:]) > 0.9


@pytest.mark.parametrize("kind", [cd.PPO, cd.A2C])
def test_bad_settings_are_one_line(kind):
    with pytest.raises(ParameterError, match=r"critic = .central.*shared_layers") as shared:
        kind(critic="central", shared_layers=True)
    with pytest.raises(ParameterError, match="got critic_obs_dim = 0 of group 'cart'") as blind:
        cd.train("cartpole", kind(critic="central"), num_envs=8, steps=256, device="cpu")
    with pytest.raises(ParameterError, match="critic = 'centre'"):
        kind(critic="centre")
    assert "\n" not in str(shared.value) + str(blind.value)
