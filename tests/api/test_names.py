"""Unknown names and players of the wrong kind: errors name the nearest right one."""

import warnings

import point
import pytest
import torch

import cupydrive as cd
from cupydrive import envs, errors
from cupydrive.errors import (
    CupydriveError,
    CupydriveWarning,
    DeviceError,
    ParameterError,
    UnknownParameterError,
    did_you_mean,
)
from cupydrive.training.begin import make_run

CALLS = {"make": cd.make, "train": cd.train, "evaluate": cd.evaluate, "render": cd.render}


@pytest.mark.parametrize(
    ("call", "name", "words"),
    [
        ("train", "stepss", "Did you mean 'steps'?"),
        (
            "train",
            "learning_rate",
            "it is a setting of PPO; pass algorithm=cupydrive.suggested_algorithm('cartpole', 'ppo', ",
        ),
        (
            "train",
            "buffer_size",
            "it is a setting of DDPG; pass algorithm=cupydrive.suggested_algorithm('cartpole', 'ddpg', ",
        ),
        ("make", "num_env", "Did you mean 'num_envs'?"),
        ("make", "seed", "env.reset(seed=...)"),
        ("evaluate", "player", "Did you mean 'players'?"),
    ],
)
def test_an_unknown_name_leads_to_the_nearest(call, name, words):
    with pytest.raises(UnknownParameterError) as caught:
        CALLS[call]("cartpole", **{name: 1})
    assert words in str(caught.value) and "It has: gravity, " in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"algorithm": "DDPG"}, "pass algorithm=cupydrive.suggested_algorithm('pendulum', 'ddpg', gamma=...)"),
        ({"algorithm": cd.A2C()}, "it is a setting of A2C; pass A2C(gamma=...)"),
        ({"policies": {"pendulum": cd.PPO()}}, "it is a setting of PPO; pass PPO(gamma=...)"),
    ],
)
def test_a_setting_is_named_with_the_algorithm_that_was_asked_for(given, words):
    with pytest.raises(UnknownParameterError) as caught:
        cd.train("pendulum", gamma=0.9, **given)
    assert words in str(caught.value)


@pytest.mark.full
def test_a_parameter_that_is_a_setting_too_is_told_what_it_is_taken_for(tmp_path):
    short = {"num_envs": 512, "steps": 2048, "device": "cpu", "progress": False, "tau": 0.1}  # enough to begin to learn
    says = r"tau is set as a parameter of pendulum.*suggested_algorithm\('pendulum', 'ddpg', tau=\.\.\.\)"
    with pytest.warns(CupydriveWarning, match=says):
        assert cd.train("pendulum", "ddpg", **short).params.tau == 0.1
    with pytest.warns(CupydriveWarning, match=says):
        cd.train("pendulum", "ddpg", seeds=2, **short)
    with pytest.warns(CupydriveWarning, match=f"sweep: {says}"), pytest.raises(ParameterError):
        cd.sweep("pendulum", "ddpg", out=tmp_path, space={"nothing": [1]}, tau=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CupydriveWarning)
        assert cd.train("pendulum", cd.DDPG(learning_starts=1), **short).params.tau == 0.1
        assert cd.train("pendulum", **short).params.tau == 0.1  # PPO has no such setting


def test_what_train_is_told_to_pass_trains():
    algorithm = cd.suggested_algorithm("cartpole", learning_rate=1e-3)
    run = make_run("cartpole", algorithm, num_envs=8, device="cpu")
    assert run.settings["cart"].learning_rate == 1e-3 and run.settings["cart"].gamma == 0.98  # the environment's


def test_a_name_that_the_package_does_not_have_is_told_with_the_nearest():
    with pytest.raises(AttributeError, match=r"module 'cupydrive' has no attribute 'trian'\. Did you mean 'train'\?"):
        _ = cd.trian
    assert not hasattr(cd, "__wrapped__")


def test_nothing_is_suggested_that_is_not_near():
    assert did_you_mean("view", ["new", "envs"]) == "" and did_you_mean("version", ["train"]) == ""
    assert did_you_mean("CartPole-v1", ["acrobot", "cartpole"]) == " Did you mean 'cartpole'?"
    assert did_you_mean("TANH", ["relu", "tanh"]) == " Did you mean 'tanh'?"


@pytest.fixture(scope="module")
def run():
    return make_run("cartpole", cd.PPO(num_steps=4, hidden=(8,)), num_envs=4, device="cpu")


@pytest.mark.full
def test_players_of_all_groups_are_one_word():
    by_word = cd.evaluate("tag_grid", "random", episodes=5, device="cpu", grid_length=6)
    by_group = cd.evaluate(
        "tag_grid", dict.fromkeys(("tagger", "runner"), cd.Random()), episodes=5, device="cpu", grid_length=6
    )
    assert by_word.players == by_group.players and torch.equal(by_word.returns["tagger"], by_group.returns["tagger"])
    env = cd.make("tag_grid", 3, device="cpu", grid_length=6)
    of_a_copy = cd.evaluate(env, "random", episodes=5)
    assert torch.equal(of_a_copy.returns["tagger"], by_word.returns["tagger"])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda run: 10, "such as {'cart': cd.Random()}"),
        (lambda run: "randm", "it must be 'random' or 'heuristic'. Did you mean 'random'?"),
        (lambda run: {"cart": run}, "it must be cd.Heuristic(), cd.Random(), cd.Frozen(FOLDER) or run.frozen('cart')"),
        (lambda run: {"car": cd.Random()}, "'car'; it must be 'cart'. Did you mean 'cart'?"),
        (
            lambda run: None,
            "cartpole has no heuristic, and 'cart' has no player; pass players='random' (--players random)",
        ),
    ],
)
def test_a_player_of_the_wrong_kind_is_told_what_to_pass(run, wrong, words):
    with pytest.raises(ParameterError) as caught:
        cd.evaluate("cartpole", wrong(run), episodes=2, device="cpu")
    assert words in str(caught.value)


@pytest.mark.parametrize("env", ["cartpole", "tag_grid"])
def test_who_is_proposed_for_a_group_without_a_policy_can_play_it(env):
    policies = {}
    for group in [each.name for each in cd.make(env, device="cpu").groups]:
        with pytest.raises(ParameterError, match=f"group {group!r} has 0 policies; give each group one") as caught:
            make_run(env, policies=policies, num_envs=4, device="cpu")
        policies |= eval(f"{{{str(caught.value).partition('for example ')[2]}}}", {"cd": cd})
    assert make_run(env, policies=policies, num_envs=64, device="cpu").settings == policies


def test_a_run_is_not_played_on_another_device_than_was_asked_for(run):
    assert len(run.evaluate(2, device="cpu").length) == 2
    with pytest.raises(
        DeviceError, match=r"device = 'cuda', but the run is on 'cpu'; .*cupydrive\.load\(folder, device='cuda'\)"
    ):
        run.evaluate(2, device="cuda")


def test_every_error_is_offered():
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, CupydriveError)}
    assert all(getattr(cd, name) is getattr(errors, name) for name in kinds)


def test_the_spec_that_was_registered_with_a_kernel_has_it():
    spec = envs._load(point.PYTHON)[0]
    registered = envs.register(spec, point.KERNEL)
    assert envs.get(spec) is registered and envs.get("point") is registered
    other = envs._load(point.PYTHON)[0]
    assert envs.get(other) is other
