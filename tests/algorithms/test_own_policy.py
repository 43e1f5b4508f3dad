"""Policies of one's own: a module, its class or a function, tried on a first batch before anything
learns from it.
"""

import math
import re

import numpy as np
import pytest
import torch
from networks import Recurrent
from torch import nn

import cupydrive as cd
from cupydrive.algorithms.networks import TRIED
from cupydrive.errors import MemoryLimitError, ParameterError
from cupydrive.executors.host import HostExecutor
from cupydrive.training.begin import make_run
from cupydrive.training.run import Run

QUIET = {"device": "cpu", "progress": False, "num_envs": 8}


class Net(nn.Module):
    """Two linear layers for CartPole; ``change`` spoils what it returns."""

    def __init__(self, obs_dim=4, size=2, change=lambda parameters, value: (parameters, value)):
        super().__init__()
        self.actor, self.critic, self.change = (
            nn.Linear(obs_dim, size),
            nn.Linear(obs_dim, 1),
            change,
        )

    def forward(self, obs):
        return self.change(self.actor(obs), self.critic(obs)[:, 0])


def short(settings, env="cartpole", **options):
    return cd.train(env, settings, steps=2 * 8 * settings.num_steps, **{**QUIET, **options})


def weights(module):
    return [p.detach().clone() for p in module.parameters()]


@pytest.mark.parametrize("kind", [cd.PPO, cd.A2C])
def test_a_module_its_class_and_a_function_all_learn_the_same(kind):
    def function(obs_dim, size):
        return Net(obs_dim, size)

    # a module brings its weights; class and function draw them from the run's seed
    torch.manual_seed(0)
    module = Net()
    before = weights(module)
    first, again = (short(kind(num_steps=8, policy=module)).policies["cart"] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(weights(module), before, strict=True)), (
        "the user's module has changed"
    )
    assert not all(torch.equal(a, b) for a, b in zip(weights(first), before, strict=True)), (
        "nothing was learnt"
    )
    made, written = (
        short(kind(num_steps=8, policy=policy)).policies["cart"] for policy in (Net, function)
    )
    for one, other in ((first, again), (made, written)):
        assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def test_trying_a_policy_out_leaves_its_buffers_as_they_were():
    class Noisy(Net):
        def __init__(self, obs_dim, size):
            super().__init__(obs_dim, size)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.register_buffer("mean", torch.zeros(obs_dim), persistent=False)
            made.append(self)

        def forward(self, obs):
            calls.append((int(self.calls), self.mean.clone(), torch.rand(()).item()))
            returned = super().forward(obs)
            self.calls += 1
            self.mean.mul_(0.9).add_(0.1 * obs.mean(0))
            return returned

    made, calls = [], []
    short(cd.PPO(num_steps=8, policy=Noisy))
    first = len(calls) - 1 - calls[-1][0]  # the first call after the trial
    assert first > 1 and calls[first][0] == 0 and torch.equal(calls[first][1], calls[0][1])
    assert len(made) == 1 and all(p.grad is not None for p in made[0].parameters())


def test_trying_a_policy_out_draws_no_random_numbers_of_the_next_ones_weights():
    class Drawing(Net):
        def forward(self, obs):
            torch.rand(10)
            return super().forward(obs)

    made = [
        make_run(
            "tag_grid",
            policies={"tagger": cd.PPO(policy=kind), "runner": cd.PPO()},
            num_envs=8,
            device="cpu",
        )
        for kind in (Net, Drawing)
    ]
    for one, other in zip(*(weights(run.policies["runner"]) for run in made), strict=True):
        assert torch.equal(one, other)


def test_a_run_of_ones_own_module_is_saved_and_loaded(tmp_path):
    settings = cd.PPO(num_steps=8, policy=Net())
    run = short(settings, out=tmp_path)
    with pytest.raises(cd.CupydriveError, match=r"policies=.*cart"):
        Run.load(tmp_path)
    loaded = Run.load(tmp_path, policies={"cart": cd.PPO(num_steps=8, policy=Net())})
    for a, b in zip(weights(run.policies["cart"]), weights(loaded.policies["cart"]), strict=True):
        assert torch.equal(a, b)


def test_layers_that_are_frozen_stay_as_they_are():
    net = Net()
    net.actor.requires_grad_(False)
    net.change = lambda parameters, value: (parameters + value[:, None], value)
    policy = short(cd.PPO(num_steps=8, policy=net)).policies["cart"]
    assert torch.equal(policy.actor.weight, net.actor.weight) and not torch.equal(
        policy.critic.weight, net.critic.weight
    )


class Halting(Net):
    """Returns what ``then`` makes of its hidden state, or none."""

    state_size = 8

    def forward(self, obs, memory, start):
        return *super().forward(obs), *(() if self.then is None else (self.then(memory),))

    def __init__(self, obs_dim, size, then=None):
        super().__init__(obs_dim, size)
        self.then = then


def without_gradients(parameters, value):
    return parameters.detach(), value


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            Net(change=lambda p, v: (p, v[:, None])),
            r"Net, returned shape \(3, 1\).*expected \(3,\)",
        ),
        (Net(size=4), r"returned shape \(3, 4\) .* expected \(3, 2\) .*logits of 2 choices"),
        (
            Net(change=lambda p, v: p),
            r"returned a Tensor, expected 2 tensors: logits of 2 choices",
        ),
        (
            Net(change=lambda p, v: (p, v.double())),
            r"torch.float64 .*torch.float32: the value of each row",
        ),
        (Net(change=lambda p, v: (p / 0, v)), r"non-finite numbers for logits"),
        (Net(change=without_gradients), r"logits of 2 choices, \(B, 2\) without gradients"),
        (
            Net(change=lambda p, v: (p, v.detach())),
            r"no gradient reaches: critic.weight, critic.bias. Use them",
        ),
        (
            Net(obs_dim=5),
            r"'cart', Net, failed on observations of shape \(3, 4\).*RuntimeError.*called with \(B, 4\)",
        ),
        (Net().requires_grad_(False), r"has no parameters that learn"),
        (
            nn.ParameterList([torch.zeros(2)]),
            r"ParameterList, failed on observations.*should not be called",
        ),
        (
            lambda d, s: Halting(d, s, lambda m: m[:, :3]),
            r"shape \(3, 3\).*expected \(3, 8\).*the next hidden state",
        ),
        (lambda d, s: Halting(d, s), r"returned a tuple, expected 3 tensors.*hidden state"),
        (lambda: Net(), r"failed \(TypeError: .*takes 0 positional arguments"),
        (lambda obs_dim, size: "net", r"returned 'net', expected a torch.nn.Module"),
        (lambda d, s: nn.LazyLinear(s), r"weight is uninitialized \(lazy\)"),
        (
            lambda d, s: Net(d, s).to("meta"),
            r"actor.weight is uninitialized \(on the meta device\)",
        ),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_before_it_learns(policy, words):
    with pytest.raises(ParameterError, match=words):
        short(cd.PPO(num_steps=8, policy=policy))


class Mixing(Net):
    """``mix`` changes the observations of a batch, or the critic's values."""

    def __init__(self, obs_dim, size, mix=None, layer=None, first=None):
        super().__init__(obs_dim, size)
        self.mix, self.layer = mix or (lambda obs, value: (obs, value)), layer or nn.Identity()
        if first is not None:
            nn.init.constant_(self.critic.weight, first)

    def forward(self, obs):
        obs = self.layer(obs)
        value = self.critic(obs)[:, 0]
        return self.actor(self.mix(obs, value)[0]), self.mix(obs, value)[1]


def of_neighbours(agents, otherwise=False):
    def mix(obs, value):
        if otherwise and len(value) % agents:
            return obs, value
        return obs, value.view(-1, agents).mean(1, keepdim=True).expand(-1, agents).reshape(-1)

    return mix


class Running(nn.Module):
    """Subtracts a running mean before it is updated."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        out = x - self.mean
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.01)
        return out


MIXING = {
    "a view of 3 agents": (
        {"mix": of_neighbours(3)},
        r"failed on observations of shape \(64, 4\).*each row by itself",
    ),
    "of 2, where it fits": (
        {"mix": of_neighbours(2, True)},
        r"another order of rows: got a difference of .*Views and statistics",
    ),
    "of 3, where it fits": ({"mix": of_neighbours(3, True)}, r"among 60 rows: got a difference of"),
    "of 7, where it fits": ({"mix": of_neighbours(7, True)}, r"among 63 rows: got a difference of"),
    "of large batches": (
        {"mix": lambda obs, value: (obs - obs.mean(0) if len(obs) > TRIED else obs, value)},
        r"among 256 rows: got a difference of",
    ),
    "running statistics": (
        {"layer": Running(4)},
        r"after other rows: got a difference of .*LayerNorm works",
    ),
    "hidden by zeros": (
        {"mix": of_neighbours(2, True), "first": 0.0},
        r"another order of rows: got a difference of",
    ),
    "a mean over rows": ({"mix": lambda obs, value: (obs - obs.mean(0), value)}, r"among 60 rows"),
    "BatchNorm": (
        {"layer": nn.BatchNorm1d(4)},
        r"among 60 rows: got a difference of .*LayerNorm works",
    ),
    "Dropout": ({"layer": nn.Dropout(0.25)}, r"when it is called again: .* as dropout does"),
    "noise": (
        {"mix": lambda obs, value: (obs + torch.rand_like(obs), value)},
        r"called again: .*Draw no random numbers",
    ),
}


@pytest.mark.parametrize("how", MIXING)
def test_a_policy_that_mixes_rows_is_refused(how):
    options, words = MIXING[how]
    with pytest.raises(ParameterError, match=f"the policy of 'cart', .*{words}"):
        make_run(
            "cartpole",
            cd.PPO(num_steps=8, policy=lambda d, s: Mixing(d, s, **options)),
            num_envs=8,
            device="cpu",
        )


@pytest.mark.parametrize(
    "mix",
    [
        # seen where the hidden state is not 0
        lambda memory, start: memory.mean(0).expand_as(memory),
        lambda memory, start: memory if start is None else memory * (1.0 - start.float().mean()),
    ],
)
def test_a_policy_that_mixes_hidden_states_of_agents_is_refused(mix):
    with pytest.raises(ParameterError, match=r"returns other outputs for the same row"):
        make_run(
            "cartpole",
            cd.PPO(num_steps=8, policy=lambda d, s: Recurrent(d, s, mix)),
            num_envs=8,
            device="cpu",
        )


class Attention(Net):
    """Attends within a row, numbers an entry, and squeezes its values."""

    def __init__(self, obs_dim, size):
        super().__init__(8, size)
        self.embed, self.norm = nn.Linear(1, 8), nn.LayerNorm(8)
        self.numbered = nn.Embedding(2, 8)
        self.attend = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, obs):
        x = self.attend(self.embed(obs[..., None])).mean(1) + self.numbered(obs[:, 0].abs().long())
        x = self.norm(x)
        return self.actor(x), self.critic(x).squeeze()


@pytest.mark.parametrize(
    "policy",
    [
        Recurrent,
        Attention,
        lambda d, s: Mixing(d, s, layer=nn.BatchNorm1d(d)).eval(),
        lambda d, s: Mixing(d, s, layer=nn.utils.parametrizations.spectral_norm(nn.Linear(d, d))),
        lambda d, s: Mixing(
            d,
            s,
            layer=nn.Sequential(
                nn.Unflatten(1, (1, d)), nn.Conv1d(1, 1, 3, padding=1), nn.Flatten()
            ),
        ),
    ],
)
def test_a_policy_that_computes_each_row_by_itself_is_taken(policy):
    make_run("cartpole", cd.PPO(num_steps=8, policy=policy), num_envs=8, device="cpu")


def test_layers_that_were_frozen_stay_so_after_inference():
    run = short(
        cd.PPO(num_steps=8, policy=lambda d, s: Mixing(d, s, layer=nn.BatchNorm1d(d).eval()))
    )
    modes = [part.training for part in run.policies["cart"].modules()]
    run.act(torch.zeros(3, 4))
    run.evaluate(episodes=2)
    assert [part.training for part in run.policies["cart"].modules()] == modes and set(modes) == {
        False,
        True,
    }


def test_a_box_needs_means_and_deviations():
    with pytest.raises(
        ParameterError,
        match=r"\(4, 1\).*expected \(4, 2\).*: means and logarithms of deviations of 1 actions",
    ):
        short(cd.PPO(num_steps=8, policy=Net(3, 1)), "pendulum")


def test_one_module_for_two_policies_points_to_a_shared_policy():
    settings = cd.PPO(num_steps=8, policy=Net())
    with pytest.raises(
        ParameterError, match=r"'tagger' and 'runner' have one and the same.*'tagger\+runner'"
    ):
        short(settings, "tag_grid", num_envs=8)
    run = cd.train(
        "tag_grid",
        policies={"tagger+runner": cd.PPO(num_steps=8, policy=lambda d, s: Net(d, s))},
        steps=64,
        **QUIET,
    )
    assert list(run.policies) == ["tagger+runner"]


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (
            cd.PPO,
            {"learning_rat": 1e-3},
            r"no setting 'learning_rat'\. Did you mean 'learning_rate'\? It has: learning_",
        ),
        (cd.PPO, {"clip_range": 0.1}, r"Did you mean 'clip_coef'"),
        (cd.A2C, {"clip_coef": 0.1}, r"A2C has no setting 'clip_coef'\."),
        (
            cd.PPO,
            {"learning_rate": -1.0},
            r"PPO: learning_rate = -1.0: it must be finite and at least 0",
        ),
        (
            cd.PPO,
            {"learning_rate": ((5, 1.0), (5, 2.0))},
            r"env-steps of a schedule must be from 0 on and ascend",
        ),
        (cd.PPO, {"learning_rate": "fast"}, r"a number, or pairs"),
        (
            cd.PPO,
            {"learning_rate": ((0, 1e-3), (1e6, math.inf))},
            r"^PPO: learning_rate(\[\d+\])? = ",
        ),
        (cd.PPO, {"learning_rate": ()}, r"^PPO: learning_rate = "),
        (cd.PPO, {"hidden": (0,)}, r"^PPO: hidden\[0\] = 0: "),
        (cd.PPO, {"hidden": (64,) * 65}, r"^PPO: hidden = "),
        (cd.PPO, {"ent_coef": 1e39}, r"^PPO: ent_coef = 1e\+39: "),
        (cd.PPO, {"gamma": 2}, r"gamma = 2: it must be from 0 to 1"),
        (cd.PPO, {"num_steps": 0}, r"num_steps = 0: input should be greater than or equal to 1"),
        (cd.PPO, {"activation": "sin"}, r"activation = 'sin': input should be 'tanh'"),
        (cd.PPO, {"target_kl": 0.0}, r"target_kl = 0.0: input should be greater than 0"),
        (cd.DDPG, {"noise_damping": 0.0}, r"noise_damping = 0.0"),
    ],
)
def test_settings_are_judged_where_they_are_given(kind, given, words):
    with pytest.raises(ParameterError, match=words):
        kind(**given)


def test_all_wrong_settings_are_named_together():
    with pytest.raises(ParameterError) as caught:
        cd.DDPG(exploration_noise=math.inf, noise_damping="x", tau=0.0, batch_size=np.float32(2))
    names = [re.match(r"DDPG: (\w+) = ", line)[1] for line in str(caught.value).splitlines()]
    assert sorted(names) == ["batch_size", "exploration_noise", "noise_damping", "tau"]


def test_a_rate_may_decay_to_nothing():
    assert cd.PPO(
        learning_rate=[(0, 1e-3), (1e6, 0)], clip_coef=((0, 0.2), (10, 0.0))
    ).learning_rate[-1] == (1e6, 0.0)
    with pytest.raises(ParameterError, match=r"PPO\(0.1\): settings have names"):
        cd.PPO(0.1)


@pytest.mark.parametrize("kind", [cd.PPO, cd.A2C, cd.PQN, cd.DDPG, cd.OnPolicy])
def test_help_lists_every_setting(kind):
    from dataclasses import fields
    from inspect import getdoc, signature

    assert set(signature(kind).parameters) == {f.name for f in fields(kind)}
    for f in fields(kind):
        assert getdoc(kind).count(f"\n    {f.name}: ") == 1


def test_on_policy_is_the_base_of_an_algorithm_of_ones_own():
    from cupydrive.algorithms.a2c import A2CLearner

    class Entropic(A2CLearner):
        """A2C whose advantages do not count."""

        def _loss(self, rows):
            losses = super()._loss(rows)
            return losses | {"loss": losses["loss"] - losses["policy_loss"]}

    class Calm(cd.OnPolicy):
        name = "calm"

        def learner(self):
            return Entropic(self)

    run = short(Calm(num_steps=8, hidden=(8,)))
    assert isinstance(cd.PPO(), cd.OnPolicy) and "losses/entropy" in run.metrics[-1]
    with pytest.raises(ParameterError, match=r"Calm has no setting 'lr'"):
        Calm(lr=1.0)


@pytest.mark.full
def test_networks_and_replay_buffers_that_do_not_fit_are_refused_before_memory_is_taken(
    monkeypatch,
):
    # on a machine of any size
    monkeypatch.setattr(HostExecutor, "free_bytes", lambda self: 8 * 2**30)
    wide = (65_536,) * 8
    with pytest.raises(
        MemoryLimitError,
        match=r"PPO: the network .*\(65536, .*weights, which need .* bytes .* Lower hidden",
    ):
        short(cd.PPO(num_steps=8, hidden=wide))
    with pytest.raises(MemoryLimitError, match=r"DDPG.hidden"):
        short(cd.DDPG(num_steps=8, hidden=wide), "pendulum")
    with pytest.raises(
        MemoryLimitError, match=r"outputs of 16,777,216 rows.*Lower hidden, or the rows"
    ):
        cd.train(
            "cartpole",
            cd.A2C(num_steps=2**14, hidden=(65_536,)),
            device="cpu",
            progress=False,
            num_envs=2**10,
        )
    with pytest.raises(MemoryLimitError, match=r"buffer_size = 2000000000 needs .* bytes"):
        short(cd.DDPG(num_steps=8, buffer_size=2_000_000_000), "pendulum")


@pytest.mark.parametrize("network", [cd.Network(), cd.Network(core=cd.GRU(64))])
def test_the_largest_num_envs_that_a_networks_error_names_is_the_largest_that_fits(
    network, monkeypatch
):
    monkeypatch.setattr(HostExecutor, "free_bytes", lambda self: 4 * 2**20)

    def make(num_envs):
        settings = cd.A2C(num_steps=8, network=network)
        return make_run("cartpole", settings, num_envs=num_envs, device="cpu", backend="torch")

    with pytest.raises(MemoryLimitError, match="The largest num_envs that fits is") as caught:
        make(2**12)
    largest = int(re.search(r"fits is ([\d,]+)", str(caught.value))[1].replace(",", ""))
    assert make(largest).num_envs == largest > 1
    with pytest.raises(MemoryLimitError, match=rf"fits is {largest:,}\. Lower hidden"):
        make(largest + 1)
