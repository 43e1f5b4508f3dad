"""What a person gets who names nothing: settings, copies and env-steps that the environment
suggests for the algorithm.
"""

from dataclasses import replace

import pytest
from conftest import command
from reinforce import Reinforce
from solving import solve

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.main import described_env
from cupydrive.training.begin import make_run
from cupydrive.training.config import resolve
from cupydrive.training.suggestions import all_suggestions, suggestion

pytestmark = pytest.mark.full

QUIET = {"device": "cpu", "progress": False}
SAID = {
    "num_envs": 4, "steps": 64, "ppo": {"num_steps": 8, "hidden": (8,)},
    "a2c": {"num_envs": 8, "steps": 256, "num_steps": 16, "hidden": (8,)},
}  # fmt: skip


@pytest.fixture
def spec():
    """An environment that suggests short trainings, longer ones by A2C."""
    return replace(envs.get("cartpole"), training=SAID)


def sizes(env, *arguments, **given):
    found = resolve(env, *arguments, device="cpu", **given)
    return found.num_envs, found.steps


def test_copies_and_env_steps_are_those_of_the_algorithm(spec):
    assert sizes(spec) == sizes(spec, "ppo") == sizes(spec, cd.PPO()) == (4, 64)
    assert sizes(spec, "A2C") == sizes(spec, cd.A2C(gamma=0.5)) == (8, 256)
    assert sizes(spec, policies={"cart": cd.A2C()}) == (8, 256)
    assert sizes(spec, Reinforce()) == (4, 64), (
        "an algorithm of one's own gets what is said of none"
    )
    assert sizes(spec, "a2c", num_envs=5) == (5, 256)
    assert suggestion(spec, "a2c").settings == {"num_steps": 16, "hidden": (8,)}


def test_policies_that_learn_together_get_what_the_slower_one_needs():
    spec = replace(envs.get("tag_grid"), training=SAID)
    a2c, ppo = cd.A2C(num_steps=16), cd.PPO(num_steps=16)
    for policies in (
        {"tagger": a2c, "runner": ppo},
        {"tagger": ppo, "runner": cd.OpponentPool(a2c)},
    ):
        assert sizes(spec, policies=policies) == (8, 256)
    assert sizes(spec, policies={"tagger": ppo, "runner": cd.HeuristicPolicy()}) == (4, 64)
    assert sizes(spec, policies={"tagger": cd.RandomPolicy(), "runner": cd.HeuristicPolicy()}) == (
        4,
        64,
    )


def test_a_training_of_which_nothing_is_said_ends_there(spec, tmp_path):
    run = cd.train(spec, "a2c", **QUIET)
    assert (run.num_envs, run.step) == (8, 256)
    assert cd.train(spec, cd.A2C(num_steps=16), steps=128, **QUIET).step == 128
    for _ in range(2):  # what is done is taken as it is
        assert cd.train(spec, "a2c", out=tmp_path, resume=True, **QUIET).step == 256
    assert solve(spec, 1e9, "a2c", device="cpu").env_steps == 256


def test_members_of_other_algorithms_have_their_own(spec, tmp_path):
    given = {
        "members": [{"algorithm": "a2c"}, {}, {"algorithm": "a2c", "num_envs": 4}, {"gamma": 0.5}],
        **QUIET,
    }
    population = cd.train(spec, out=tmp_path, **given)
    assert [(run.num_envs, run.step, run.total) for run in population] == [
        (8, 256, 256), (4, 64, 64), (4, 256, 256), (4, 64, 64)
    ]  # fmt: skip
    again = cd.train(spec, out=tmp_path, resume=True, **given)
    assert [run.step for run in again] == [256, 64, 256, 64]
    assert [run.step for run in cd.train(spec, steps=128, **given)] == [128] * 4


def test_a_sweep_trains_as_long_as_the_algorithm_needs(spec, tmp_path):
    pytest.importorskip("optuna")
    options = {"trials": 1, "space": {"gamma": [0.9]}, **QUIET}
    found = cd.sweep(spec, "a2c", out=tmp_path, **options)
    assert found.common == {"num_envs": 8, "steps": 256, "seed": 0}


def test_the_command_line_says_what_is_suggested(capsys):
    assert command("envs cartpole") == 0
    words = capsys.readouterr().out
    assert (
        "ppo (256 environments, 500,000 env-steps), a2c (64 environments, 4,000,000 env-steps)"
        in words
    )


@pytest.mark.parametrize("name", envs.names())
def test_whatever_an_environment_suggests_fits_it(name):
    for case in envs.get(name).cases:
        for about in all_suggestions(name, case):
            found = resolve(name, about.algorithm, params=case, device="cpu")
            assert found.steps >= found.num_envs * next(iter(found.policies.values())).num_steps


# ---- suggestions that depend on parameters -------------------------------------------------------


@pytest.fixture
def both():
    """An environment that suggests short trainings with hidden state where velocities are
    missing.
    """
    core = {"hidden": (8,), "core": {"kind": "gru", "size": 8}, "shared": True}
    remembering = {"num_envs": 8, "steps": 256, "ppo": {"num_steps": 16, "network": core}}
    return replace(
        envs.get("cartpole"), training=lambda p: remembering if p.position_only else SAID
    )


@pytest.mark.parametrize(("name", "sizes"), [("cartpole", 32), ("pendulum", 64)])
def test_hidden_state_is_suggested_where_velocities_are_missing(name, sizes):
    run = make_run(name, position_only=True, device="cpu")
    ((group, policy),) = run.policies.items()
    assert policy.state_size > 0 and run.num_envs == sizes
    assert run.backends[group] == f"policy {group!r} learns by kernels, float32"
    (settings,) = resolve(name, device="cpu").policies.values()
    assert settings.network is None
    words = f"With position_only=True: ppo ({sizes} environments"
    assert words in described_env(envs.get(name))


def test_every_training_gets_the_suggestions_for_its_parameters(both, tmp_path):
    given = {"position_only": True, **QUIET}
    assert sizes(both, params={"position_only": True}) == (8, 256) and sizes(both) == (4, 64)
    run = cd.train(both, out=tmp_path / "run", **given)
    for algorithm in (None, "ppo"):  # the run's parameters count where none are given
        again = cd.train(both, algorithm, out=tmp_path / "run", resume=True, **QUIET)
        assert again.settings == run.settings and again.step == 256
    members = [{}, {"position_only": True}, {"position_only": True, "gamma": 0.5}]
    found = [each.settings["cart"] for each in cd.train(both, members=members, **QUIET)]
    assert found[0].network is None and found[1] == run.settings["cart"]
    assert found[2] == replace(found[1], gamma=0.5)
    with pytest.raises(cd.ParameterError, match=r"params=\{'position_only': True\}, gamma=\.\.\."):
        cd.train(both, gamma=0.5, **given)
    assert cd.suggested_algorithm(both, params={"position_only": True}) == found[1]


def test_the_command_line_trains_what_is_suggested_for_its_parameters(tmp_path):
    words = f"train cartpole --param position_only=True --steps 1 --device cpu --out {tmp_path}"
    assert command(f"{words} --set gamma=0.5") == 0
    settings = cd.suggested_algorithm("cartpole", params={"position_only": True}, gamma=0.5)
    assert settings.network is not None and cd.load(tmp_path).settings == {"cart": settings}


def test_a_network_of_ones_own_replaces_the_suggested_one():
    network = cd.Network(conv=cd.Conv((16,)), hidden=(128,), activation="relu", shared=True)
    suggested = cd.suggested_algorithm("minatar_breakout")
    changed = cd.suggested_algorithm("minatar_breakout", network=network)
    assert suggested.hidden and changed.network == network
    assert changed.learning_rate == suggested.learning_rate
