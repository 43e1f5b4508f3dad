"""What can be exchanged has what ``protocols.py`` says; an algorithm and a policy with memory are
written against it.
"""

import inspect
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from reinforce import Reinforce

import cupydrive as cd
from cupydrive import envs, protocols
from cupydrive.errors import ParameterError
from cupydrive.examples import cartpole_torch
from cupydrive.executors import executor
from cupydrive.playing.policy import Stateless, with_state

PPO = cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)
SMALL = {
    "ppo": ("cartpole", PPO),
    "a2c": ("cartpole", cd.A2C(num_steps=4, hidden=(4,))),
    "pqn": ("cartpole", cd.PQN(num_steps=4, hidden=(4,), num_minibatches=1)),
    "ddpg": (
        "pendulum",
        cd.DDPG(num_steps=4, hidden=(4,), batch_size=8, buffer_size=64, learning_starts=8),
    ),
    "reinforce": ("cartpole", Reinforce(num_steps=4)),
}


@pytest.fixture(scope="module")
def runs():
    return {
        name: cd.train(env, settings, steps=32, num_envs=4, device="cpu", progress=False)
        for name, (env, settings) in SMALL.items()
    }


def members(protocol):
    """Return the data and the methods that a protocol asks for, those of protocols that it extends
    among them.
    """
    kinds = [kind for kind in protocol.__mro__ if kind.__module__ == protocols.__name__]
    data = {name for kind in kinds for name in inspect.get_annotations(kind)}
    methods = {
        name: f
        for kind in kinds
        for name, f in vars(kind).items()
        if inspect.isfunction(f) and name[0] != "_"
    }
    return data, methods


def fits(thing, protocol):
    """Assert that ``thing`` has all members, and that its methods take the same arguments by the
    same names.
    """
    data, methods = members(protocol)
    assert isinstance(thing, protocol) and not [name for name in data if not hasattr(thing, name)]
    for name, method in methods.items():
        asked = list(inspect.signature(method).parameters.values())[1:]
        taken = list(inspect.signature(getattr(thing, name)).parameters.values())
        assert [p.name for p in taken[: len(asked)]] == [p.name for p in asked], (type(thing), name)
        optional = [p.default is not p.empty for p in taken]
        assert all(optional[len(asked) :]), (type(thing), name)
        assert all(had or p.default is p.empty for had, p in zip(optional, asked, strict=False)), (
            type(thing),
            name,
        )


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_executors_and_programs(device):
    where, spec = executor(device), envs.get("cartpole")
    fits(where, protocols.Executor)
    fits(where.load(spec, spec.make_params()), protocols.Program)


def test_a_program_in_python():
    spec = envs.get(cartpole_torch.SPEC)
    fits(executor("cpu").load(spec, spec.make_params()), protocols.Program)


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL)
def test_learners_and_their_players(name, runs):
    run, (_, settings) = runs[name], SMALL[name]
    fits(settings, protocols.LearnerSettings)
    (learner,) = run.learners.values()
    fits(learner, protocols.Learner)
    fits(learner.acting(True), protocols.Player)
    fits(run, protocols.Policies)
    fits(run.frozen(next(iter(run.policies))), protocols.PlayerSettings)


def test_players_that_do_not_learn(runs, tmp_path):
    runs["ddpg"].save(tmp_path / "run")
    spec = envs.get("pendulum")
    (group,) = spec.groups(spec.make_params())
    for settings in (cd.HeuristicPolicy(), cd.RandomPolicy(), cd.FrozenPolicy(tmp_path / "run")):
        fits(settings, protocols.PlayerSettings)
        fits(settings.player(spec, group), protocols.Player)


def test_a_learner_is_no_player_and_the_other_way_round():
    assert not isinstance(PPO, protocols.PlayerSettings) and not isinstance(
        cd.RandomPolicy(), protocols.LearnerSettings
    )
    assert not isinstance(cd.make("cartpole", 2, device="cpu"), protocols.Policies)


@dataclass(frozen=True, kw_only=True)
class Valued(Reinforce):
    num_steps: int = 4
    value: object = None


NESTED = (1.0, "a", None, True, (2, ()), {"a": (1, {"b": 2})})


@pytest.mark.parametrize(
    "value", [(1.0, 0.05, 200_000), (), NESTED, [1, (2.5,)], (1, np.float32(0.5))]
)
def test_settings_of_ones_own_may_be_nested_and_are_read_back(value, tmp_path):
    few = {"num_envs": 4, "device": "cpu", "progress": False, "out": tmp_path}
    cd.train("cartpole", Valued(value=value), steps=32, **few)
    assert cd.load(tmp_path, policies={"cart": Valued(value=value)}).settings["cart"].value == value
    assert cd.train("cartpole", Valued(value=value), steps=64, resume=True, **few).step == 64
    about = json.loads((tmp_path / "config.json").read_text())["policies"]["cart"]["value"]
    assert about == json.loads(json.dumps(value, default=float))


@pytest.mark.parametrize("value", [float("nan"), (1, np.ones(2)), {3}, len, b"x"])
def test_settings_that_no_file_holds_are_refused_before_training(value, tmp_path):
    with pytest.raises(
        ParameterError,
        match=r"policy 'cart': Valued\.value = .* cannot be saved: .*\. Use numbers",
    ):
        cd.train(
            "cartpole",
            Valued(value=value),
            steps=32,
            num_envs=4,
            device="cpu",
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()
    run = cd.train(
        "cartpole", Valued(value=value), steps=32, num_envs=4, device="cpu", progress=False
    )
    for write in (run.save, lambda out: cd.train(run, steps=32, out=out, progress=False)):
        with pytest.raises(
            ParameterError, match=r"policy 'cart': Valued\.value = .* cannot be saved"
        ):
            write(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_reinforce_learns_to_balance():
    """Random actions hold the pole for about 22 steps; the time limit is 500."""
    run = cd.train(
        "cartpole", Reinforce(), steps=600_000, num_envs=64, seed=1, device="cpu", progress=False
    )
    found = run.evaluate(200)
    assert found.mean("cart")[0] > 150
    assert run.act(torch.zeros(3, 4)).shape == (3,)
    assert run.metrics[-1]["charts/learning_rate"] == Reinforce().learning_rate


class Counter(torch.nn.Module):
    """A policy that knows how many steps its episode has had: that is its memory, its value, and
    what its choice hangs on.
    """

    state_size = 1

    def __init__(self, obs_dim, size):
        super().__init__()
        self.slope, self.unit = (
            torch.nn.Parameter(torch.tensor([0.1, -0.1])),
            torch.nn.Parameter(torch.ones(())),
        )

    def forward(self, obs, memory, start):
        counts = []
        steps = len(obs) // len(memory)
        for t in range(steps):
            if start is not None:
                memory = memory.masked_fill(start.view(steps, -1)[t][:, None], 0.0)
            counts.append(memory)
            memory = memory + 1.0
        count = torch.cat(counts)
        return count * self.slope, count[:, 0] * self.unit, memory


def lengths_so_far(over, before):
    """Return (T + 1, N): the steps that each episode has had at each row, ``before`` at the
    first.
    """
    rows = [before]
    for ended in over:
        rows.append(torch.where(ended, 0.0, rows[-1] + 1.0))
    return torch.stack(rows)


# with the end of all episodes in the last row, and without
@pytest.mark.parametrize("steps", [18, 20])
@pytest.mark.parametrize("minibatches", [1, 3])
def test_a_policy_with_state_learns_from_whole_sequences(minibatches, steps):
    """What it says in learning is what it said in playing: the ratio of probabilities is 1, for any
    choice of agents.
    """
    settings = cd.PPO(
        policy=Counter,
        num_steps=steps,
        num_minibatches=minibatches,
        update_epochs=1,
        learning_rate=1e-12,
        gamma=0.5,
    )
    run = cd.train(
        "cartpole", settings, steps=1, num_envs=6, device="cpu", progress=False, max_episode_steps=9
    )
    (learner,) = run.learners.values()
    stored, rollout = learner.stored["cart"], run.rollout
    before = torch.zeros(6)
    for _ in range(3):
        over = rollout.terminated | rollout.truncated
        expected = lengths_so_far(over, before)
        torch.testing.assert_close(stored["value"][:, :, 0], expected)
        at_the_limit = stored["final_value"][:, :, 0][: int(rollout.truncated.sum(0).min())]
        assert (at_the_limit == 9.0).all() and rollout.truncated.any()
        before = expected[-1]
        losses = learner.losses(learner.metric_sums.tolist())
        learner.metric_sums.zero_()
        if losses:
            assert losses["approx_kl"] == pytest.approx(0.0, abs=1e-7) and losses["clipfrac"] == 0.0
        run.iterate()


def test_a_module_without_memory_is_called_as_it_is():
    module = torch.nn.Module()
    module.forward = lambda obs: (obs, obs[:, 0])
    asked = with_state(module)
    obs = torch.randn(3, 2)
    parameters, value, memory = asked(obs)
    assert (
        isinstance(asked, Stateless)
        and parameters is obs
        and memory is None
        and torch.equal(value, obs[:, 0])
    )
