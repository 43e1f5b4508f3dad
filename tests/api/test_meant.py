"""Unknown names, and players, folders and devices of the wrong kind: the error names what was
meant, and that works.
"""

import traceback
import warnings
from collections.abc import Callable

import point
import pytest
import torch

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import (
    CupydriveError,
    CupydriveWarning,
    DeviceError,
    ParameterError,
    did_you_mean,
)
from cupydrive.training.begin import make_run

QUIET = {"device": "cpu", "progress": False}
CALLS = {"make": cd.make, "train": cd.train, "evaluate": cd.evaluate, "render": cd.render}


@pytest.fixture(scope="module")
def run():
    return make_run("cartpole", cd.PPO(num_steps=4, hidden=(8,)), num_envs=4, device="cpu")


def said(call: Callable, *arguments: object, **given: object) -> str:
    """Return what a call refuses."""
    with pytest.raises(CupydriveError) as caught:
        call(*arguments, **given)
    return str(caught.value)


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name", "words"),
    [
        ("train", "stepss", "Did you mean 'steps'?"),
        (
            "train",
            "buffer_size",
            "a setting of DDPG. Pass algorithm=cupydrive.suggested_algorithm('cartpole', 'ddpg', ",
        ),
        ("evaluate", "policy", "Did you mean 'policies'?"),
    ],
)
def test_an_unknown_name_leads_to_the_nearest(call, name, words):
    text = said(CALLS[call], "cartpole", **{name: 1})
    assert words in text and "It has: gravity, " in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"algorithm": "DDPG"},
            "Pass algorithm=cupydrive.suggested_algorithm('pendulum', 'ddpg', gamma=...)",
        ),
        (
            {"algorithm": cd.A2C()},
            "it is a setting of A2C. Pass algorithm=cupydrive.suggested_algorithm(",
        ),
    ],
)
def test_a_setting_is_named_with_the_algorithm_that_was_asked_for(given, words):
    assert words in said(cd.train, "pendulum", gamma=0.9, **given)


@pytest.mark.full
def test_a_parameter_that_is_a_setting_too_is_told_what_it_is_taken_for(tmp_path):
    short = {"num_envs": 512, "steps": 2048, "tau": 0.1, **QUIET}  # enough to begin to learn
    says = r"tau is set as a parameter of pendulum.*suggested_algorithm\('pendulum', 'ddpg', tau=\.\.\.\)"
    with pytest.warns(CupydriveWarning, match=says):
        assert cd.train("pendulum", "ddpg", **short).params.tau == 0.1
    with pytest.warns(CupydriveWarning, match=says), pytest.raises(ParameterError):
        cd.sweep("pendulum", "ddpg", out=tmp_path, space={"nothing": [1]}, tau=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CupydriveWarning)
        assert cd.train("pendulum", cd.DDPG(learning_starts=1), **short).params.tau == 0.1
        assert cd.train("pendulum", **short).params.tau == 0.1  # PPO has no such setting


def test_what_train_is_told_to_pass_trains():
    algorithm = cd.suggested_algorithm("cartpole", learning_rate=1e-3)
    run = make_run("cartpole", algorithm, num_envs=8, device="cpu")
    # the environment's
    assert run.settings["cart"].learning_rate == 1e-3 and run.settings["cart"].gamma == 0.98


def test_a_name_that_the_package_does_not_have_is_told_with_the_nearest():
    with pytest.raises(
        AttributeError,
        match=r"module 'cupydrive' has no attribute 'trian'\. Did you mean 'train'\?",
    ):
        _ = cd.trian
    assert not hasattr(cd, "__wrapped__")


def test_nothing_is_suggested_that_is_not_near():
    assert did_you_mean("view", ["new", "envs"]) == "" and did_you_mean("version", ["train"]) == ""
    assert did_you_mean("CartPole-v1", ["acrobot", "cartpole"]) == " Did you mean 'cartpole'?"
    assert did_you_mean("TANH", ["relu", "tanh"]) == " Did you mean 'tanh'?"


def test_the_spec_that_was_registered_with_a_kernel_has_it():
    spec, other = envs._load(point.PYTHON).spec, envs._load(point.PYTHON).spec
    registered = envs.register(spec, point.KERNEL)
    assert (
        envs.get(spec) is registered
        and envs.get("point") is registered
        and envs.get(other) is other
    )


# ---- players -------------------------------------------------------------------------------------


@pytest.mark.full
def test_players_of_all_groups_are_one_word():
    given = {"episodes": 5, "device": "cpu", "grid_length": 6}
    by_word = cd.evaluate("tag_grid", "random", **given)
    by_group = cd.evaluate(
        "tag_grid", dict.fromkeys(("tagger", "runner"), cd.RandomPolicy()), **given
    )
    of_an_env = cd.evaluate(
        cd.make("tag_grid", 3, device="cpu", grid_length=6), "random", episodes=5
    )
    assert by_word.players == by_group.players
    for found in (by_group, of_an_env):
        assert torch.equal(found.returns["tagger"], by_word.returns["tagger"])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda run: 10, "policies = 10 is an int, expected a dict"),
        (lambda run: "randm", "expected 'random' or 'heuristic'. Did you mean 'random'?"),
        (
            lambda run: {"cart": run},
            "expected cd.HeuristicPolicy(), cd.RandomPolicy(), cd.FrozenPolicy(FOLDER) or run.frozen(GROUP)",
        ),
        (lambda run: {"car": cd.RandomPolicy()}, "'car', expected 'cart'. Did you mean 'cart'?"),
        (
            lambda run: None,
            "cartpole has no heuristic, and 'cart' has no policy. Pass policies='random'",
        ),
    ],
)
def test_a_player_of_the_wrong_kind_is_told_what_to_pass(run, wrong, words):
    assert words in said(cd.evaluate, "cartpole", wrong(run), episodes=2, device="cpu")


def test_settings_of_the_wrong_kind_are_refused():
    assert said(cd.train, "cartpole", policies={"cart": 1}, **QUIET).endswith(
        "or run.frozen(GROUP)"
    )


@pytest.mark.parametrize("env", ["cartpole", "tag_grid"])
def test_who_is_proposed_for_a_group_without_a_policy_can_play_it(env):
    policies = {}
    for group in [each.name for each in cd.make(env, device="cpu").groups]:
        text = said(make_run, env, policies=policies, num_envs=4, device="cpu")
        assert f"group {group!r} has 0 policies, expected 1" in text
        policies |= eval(f"{{{text.partition('for example ')[2]}}}", {"cd": cd})
    assert make_run(env, policies=policies, num_envs=64, device="cpu").settings == policies


def test_a_rollout_takes_no_policy():
    env = cd.make("cartpole", 2, device="cpu")
    env.reset(seed=0)
    text = said(env.rollout, 16, lambda seen: (seen[:, 2] > 0).int())
    assert "is a function, expected True or False" in text


# ---- devices -------------------------------------------------------------------------------------


def test_a_run_is_not_played_on_another_device_than_was_asked_for(run):
    assert len(run.evaluate(2, device="cpu").length) == 2
    with pytest.raises(
        DeviceError, match=r"device = 'cuda', but the run is on 'cpu'\. .*cupydrive\.load\(folder, "
    ):
        run.evaluate(2, device="cuda")


TAKES_A_DEVICE = {
    "make": lambda device: cd.make("cartpole", device=device).device,
    "evaluate": lambda device: (
        cd.evaluate("cartpole", "random", episodes=2, device=device).length.device.type
    ),
    "train": lambda device: (
        cd.train("cartpole", device=device, steps=1, num_envs=4, progress=False).device
    ),
}


@pytest.mark.parametrize("call", TAKES_A_DEVICE.values(), ids=TAKES_A_DEVICE)
def test_a_device_of_torch_is_the_device_of_its_name(call):
    assert call(torch.device("cpu")) == call(torch.device("cpu", 0)) == "cpu"
    text = said(call, torch.device("cuda:0"))
    assert "device = 'cuda:0', expected 'auto', 'cuda' or 'cpu'. 'cuda' is torch's" in text


# ---- folders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [cd.render, cd.evaluate])
def test_an_unknown_environment_is_named(call):
    assert "unknown environment 'runs/nope'" in said(call, "runs/nope")


def test_a_policy_that_a_run_does_not_have_is_named(run, tmp_path):
    run.save(tmp_path / "run")
    text = said(cd.load, tmp_path / "run", policies={"x": cd.PPO()})
    assert text.endswith("a name in policies = 'x', expected 'cart'.")


def test_a_file_in_a_folder_that_there_is_not_is_told(run, tmp_path):
    env, gone = cd.make("cartpole", 2, device="cpu"), tmp_path / "gone"
    env.reset(seed=0)
    for write, name in (
        (env.snapshot().save, "a.npz"),
        (run.evaluate(2).recording.save, "a.npz"),
        (run.export, "a.onnx"),
    ):
        assert f"cannot be written: the folder {str(gone)!r} does not exist" in said(
            write, gone / name
        )
    assert not gone.exists()


@pytest.mark.parametrize("under", ["", "run"])
def test_a_folder_that_cannot_be_is_told_before_anything_runs(under, tmp_path):
    file = tmp_path / "afile.txt"
    file.write_text("mine")
    for call in (cd.train, cd.sweep):
        text = said(call, "cartpole", out=file / under)
        assert "the folder is not writable" in text and str(file) in text


# ---- places --------------------------------------------------------------------------------------


class Linear(torch.nn.Linear):
    """No value: not what a policy returns."""


def test_a_slip_is_told_with_its_place_and_a_short_traceback(tmp_path):
    for call, words in (
        (
            lambda: cd.train("cartpole", members=[{"gamma": 2.0}], **QUIET),
            "members[0]: PPO: gamma = 2.0: it must be from 0 to 1",
        ),
        (
            lambda: cd.sweep(
                "cartpole", space={"learning_rate": (-1.0, 1e-2)}, trials=1, out=tmp_path, **QUIET
            ),
            "PPO: learning_rate = -1.0: it must be finite and at least 0",
        ),
        (
            lambda: cd.train("cartpole", cd.PPO(policy=Linear), **QUIET),
            "the policy of 'cart', Linear, returned a Tensor",
        ),
    ):
        with pytest.raises(CupydriveError) as caught:
            call()
        assert str(caught.value).startswith(words)
        assert len("".join(traceback.format_exception(caught.value)).splitlines()) <= 30


def test_groups_that_a_plus_joins_are_evaluated_alike():
    given = {"episodes": 3, "device": "cpu", "grid_length": 6, "num_taggers": 2}
    one = cd.evaluate("tag_grid", {"tagger+runner": cd.RandomPolicy()}, **given)
    other = cd.evaluate("tag_grid", "random", **given)
    assert one.mean("tagger") == other.mean("tagger") and one.players == other.players
    with pytest.raises(ParameterError, match="policies names the group 'runner' twice"):
        both = {"tagger+runner": cd.RandomPolicy(), "runner": cd.RandomPolicy()}
        cd.evaluate("tag_grid", both, **given)
