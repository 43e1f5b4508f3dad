"""check_policy: what a policy gives while it learns is what it gave while it acted."""

import archers
import pytest
import torch
from networks import Joint, Recurrent
from torch import nn

import cupydrive as cd
from cupydrive.algorithms.kernels import choice
from cupydrive.algorithms.kernels.arithmetic import TENSOR, WIDE
from cupydrive.algorithms.kernels.learner import KernelLearner
from cupydrive.checks.report import AFTER_RESET, BEFORE_RESET, OTHER_PAST, TRIAL
from cupydrive.errors import ParameterError
from cupydrive.training.policy_check import RESETS_INSIDE

GROUPS = {"tagger": cd.PPO(hidden=(16,)), "runner": cd.A2C(num_steps=32, hidden=(16,))}
POOL = {"tagger": cd.PPO(policy=Joint), "runner": cd.OpponentPool(cd.PPO(policy=Recurrent))}


def check(policy=None, env="cartpole", network=None, **options):
    own = cd.PPO(policy=policy, network=network)
    settings = {} if "policies" in options else {"algorithm": own}
    return cd.check_policy(env, **settings, device="cpu", **options)


def failed(report):
    """Return the parts that failed, without the policy's name."""
    return {t.part.rpartition(": ")[2] for t in report.tallies.values() if t.failure}


def worst(report):
    return max(tally.worst for tally in report.tallies.values())


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 0.0),
        ({"policy": Recurrent}, 1e-4),
        ({"backend": "torch"}, 1e-4),
        ({"policies": POOL, "env": "tag_grid"}, 1e-4),
        ({"policies": GROUPS, "env": "tag_grid"}, 0.0),
        ({"env": "pendulum"}, 0.0),
        ({"network": cd.Network(hidden=(16,), core=cd.GRU(16), shared=True)}, 0.0),
        ({"network": cd.Network(hidden=(24,), core=cd.MinGRU(24)), "env": "pendulum"}, 0.0),
        ({"network": cd.Network(hidden=(16,), core=cd.LSTM(16), layer_norm=True)}, 1e-4),
        ({"env": "tag_continuous", "num_envs": 8, "num_taggers": 2}, 0.0),
        ({"env": "archers", "masked": True}, 0.0),
        ({"env": "archers", "backend": "torch"}, 1e-4),
    ],
)
def test_what_ships_and_a_correct_module_pass(options, tolerance):
    cd.register(archers.PYTHON, archers.KERNEL)
    report = check(**options)
    assert report.passed and worst(report) <= tolerance, report
    assert report.events[RESETS_INSIDE] > 0
    assert all(tally.compared > 0 for tally in report.tallies.values())


class IgnoresStart(Recurrent):
    def forward(self, obs, memory, start):
        return super().forward(obs, memory, None)


class ResetsLate(Recurrent):
    """Sets the state to 0 after the step where ``start`` is true."""

    def forward(self, obs, memory, start):
        steps, seen = obs.shape[0] // memory.shape[0], []
        for t, row in enumerate(obs.view(steps, memory.shape[0], -1)):
            memory = self.cell(row, memory)
            seen.append(memory)
            if start is not None:
                memory = memory.masked_fill(start.view(steps, -1)[t][:, None], 0.0)
        x = torch.cat(seen)
        return self.actor(x), self.critic(x)[:, 0], memory


class ResetsLateInSequences(Recurrent):
    """Sets the state to 0 one step late, where a call has several steps."""

    def forward(self, obs, memory, start):
        agents = len(memory)
        if start is not None and len(start) > agents:
            start = torch.cat([start.new_zeros(agents), start[:-agents]])
        return super().forward(obs, memory, start)


class ResetsNearly(Recurrent):
    """Sets the state to almost 0 where a call has several steps, an error below 1e-4."""

    def forward(self, obs, memory, start):
        if start is not None and len(start) > len(memory):
            self.mix = lambda memory, forgets: memory + 1e-4 * forgets
        else:
            self.mix = lambda memory, forgets: memory
        return super().forward(obs, memory, start)


class SwapsAgents(Recurrent):
    """Takes the steps of a call in the wrong order."""

    def forward(self, obs, memory, start):
        steps = obs.shape[0] // memory.shape[0]
        obs = obs.view(steps, -1, obs.shape[1]).flip(0).reshape(obs.shape)
        return super().forward(obs, memory, start)


class MixesManyRows(Joint):
    """Mixes rows of calls that are longer than those of the trial."""

    def forward(self, obs):
        parameters, value = super().forward(obs)
        return parameters, value + obs.mean() if len(obs) > 300 else value


@pytest.mark.parametrize(
    ("policy", "parts"),
    [
        (IgnoresStart, {OTHER_PAST}),
        (ResetsLate, {OTHER_PAST}),
        (ResetsLateInSequences, {AFTER_RESET, OTHER_PAST}),
        (ResetsNearly, {AFTER_RESET}),
        (SwapsAgents, {BEFORE_RESET, AFTER_RESET, OTHER_PAST}),
        (MixesManyRows, {BEFORE_RESET, AFTER_RESET, OTHER_PAST}),
    ],
)
def test_a_wrong_module_fails_where_it_is_wrong(policy, parts):
    report = check(policy)
    assert failed(report) == parts and report.summary.startswith("FAIL  cartpole: ")
    if policy is ResetsNearly:
        assert worst(report) < 1e-4
    if policy is ResetsLate:  # one step late is wrong in one step
        assert all("first step" in t.name for t in report.tallies.values() if t.failure)
    assert f"  fix: {'set' if parts == {OTHER_PAST} else ''}" in str(report)


class Mixes(Joint):
    def forward(self, obs):
        return super().forward(obs - obs.mean(0))


class Drops(Joint):
    def __init__(self, obs_dim, size):
        super().__init__(obs_dim, size)
        self.dropout = nn.Dropout(0.5)

    def forward(self, obs):
        return super().forward(self.dropout(obs))


class Normalises(Joint):
    def __init__(self, obs_dim, size):
        super().__init__(obs_dim, size)
        self.norm = nn.BatchNorm1d(obs_dim)

    def forward(self, obs):
        return super().forward(self.norm(obs))


@pytest.mark.parametrize(
    ("policy", "words"),
    [(Mixes, "among 60 rows"), (Drops, "when it is called again"), (Normalises, "among 60 rows")],
)
def test_a_module_that_training_refuses_is_a_failed_check(policy, words):
    report = check(policy)
    assert failed(report) == {TRIAL} and policy.__name__ in report.summary
    assert words in report.summary and "  not done: " in str(report)


@pytest.mark.parametrize(
    "arithmetic",
    [None, *(pytest.param(each, marks=pytest.mark.full) for each in (TENSOR, WIDE))],
)
def test_kernels_report_what_they_compute_with_the_weights_as_they_are(arithmetic, monkeypatch):
    """A weight that changes between acting and learning is found, in float32 by its last bit."""
    if arithmetic is not None:
        monkeypatch.setattr(choice, "EXACT", arithmetic)  # a CPU has these kernels for tests alone
    assert check().passed
    replayed = KernelLearner.replayed

    def changed(learner, rollout):
        bias = [p for name, p in learner.policy.named_parameters() if name.endswith("bias")]
        with torch.no_grad():
            for last in (bias[2], bias[-1]):  # of actor and critic
                last[0] += 1e-7 if arithmetic is None else 0.1
        learner.begin_rollout()
        return replayed(learner, rollout)

    monkeypatch.setattr(KernelLearner, "replayed", changed)
    report = check()
    assert {t.name for t in report.tallies.values() if t.failure and BEFORE_RESET in t.part} == {
        "log_prob.cart",
        "value.cart",
    }


def test_a_rollout_without_a_reset_fails():
    report = cd.check_policy("cartpole", cd.PPO(num_steps=1), device="cpu")
    assert not failed(report) and not report.passed
    assert report.failures() == [
        f"event never seen: {RESETS_INSIDE}. Raise num_envs, or num_steps of the algorithm"
    ]


def test_an_algorithm_that_replays_no_rollout_is_refused():
    with pytest.raises(ParameterError, match=r"learns from rollouts: got DDPG"):
        cd.check_policy("pendulum", cd.DDPG(), device="cpu")
