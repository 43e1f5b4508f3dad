"""Arguments by the names that other libraries give them, and players of the wrong kind: what was meant is told."""

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
    TrainingError,
    UnknownParameterError,
    did_you_mean,
)
from cupydrive.training.plan import make_run

CALLS = {"make": cd.make, "train": cd.train, "evaluate": cd.evaluate, "render": cd.render}


@pytest.mark.parametrize(
    ("call", "name", "words"),
    [
        ("train", "total_timesteps", "Did you mean 'steps'?"),
        ("train", "stepss", "Did you mean 'steps'?"),
        ("train", "policy", "Did you mean 'policies'?"),
        ("train", "verbose", "Did you mean 'progress'?"),
        (
            "train",
            "learning_rate",
            "learning_rate is a setting of PPO; pass algorithm=cupydrive.suggested_algorithm('cartpole', ",
        ),
        ("train", "lr", "suggested_algorithm('cartpole', learning_rate=...)"),
        (
            "train",
            "buffer_size",
            "buffer_size is a setting of DDPG; pass algorithm=cupydrive.suggested_algorithm('cartpole', 'ddpg'",
        ),
        ("train", "gpus", "--gpus"),
        ("make", "n_envs", "Did you mean 'num_envs'?"),
        ("make", "seed", "env.reset(seed=...)"),
        ("make", "render_mode", "env.view()"),
        ("evaluate", "policies", "Did you mean 'players'?"),
        ("evaluate", "policy", "Did you mean 'players'?"),
        ("evaluate", "n_eval_episodes", "Did you mean 'episodes'?"),
        ("evaluate", "deterministic", "Did you mean 'greedy'?"),
        ("evaluate", "sample", "Did you mean 'greedy=False'?"),
        ("render", "policy", "Did you mean 'players'?"),
        ("render", "sample", "Did you mean 'greedy=False'?"),
    ],
)
def test_a_name_of_another_library_leads_to_ours(call, name, words):
    with pytest.raises(UnknownParameterError) as caught:
        CALLS[call]("cartpole", **{name: 1})
    assert words in str(caught.value) and "It has: gravity, " in str(caught.value)


def test_a_run_knows_what_another_library_calls_its_own_argument(run):
    for call in (run.evaluate, run.render):
        with pytest.raises(UnknownParameterError, match=r"'sample'\. Did you mean 'greedy=False'\?"):
            call(episodes=2, sample=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("total_timesteps", " Pass steps=... to train. It has: "),
        ("n_envs", " Pass num_envs=... to train. It has: "),
        ("seed", " Pass seed=... to train. It has: "),
        ("verbose", " Pass progress=... to train. It has: "),
        ("model", " Did you mean 'policy'? It has: "),  # not the argument policies
        ("lr", " Did you mean 'learning_rate'? It has: "),
    ],
)
def test_an_argument_of_train_is_told_of_settings(name, words):
    for call in (cd.PPO, lambda **given: cd.suggested_algorithm("cartpole", **given)):
        with pytest.raises(ParameterError) as caught:
            call(**{name: 1})
        assert str(caught.value).startswith(f"PPO has no setting {name!r}.{words}")


def test_a_member_is_told_of_settings_by_other_names():
    with pytest.raises(ParameterError, match=r"members\[0\] has 'lr', .* Did you mean 'learning_rate'"):
        cd.train("cartpole", members=[{"lr": 1e-3}])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"algorithm": "ddpg", "batch_size": 64},
            "batch_size is a setting of DDPG; pass algorithm=cupydrive.suggested_algorithm('pendulum', 'ddpg', batch_size=...)",
        ),
        (
            {"algorithm": "DDPG", "lr": 1e-3},
            "learning_rate is a setting of DDPG; pass algorithm=cupydrive.suggested_algorithm('pendulum', 'ddpg'",
        ),
        ({"algorithm": "a2c", "update_epochs": 2}, "A2C has no setting 'update_epochs'"),
        ({"algorithm": cd.A2C(), "update_epochs": 2}, "update_epochs is a setting of PPO. A2C has no setting"),
        ({"algorithm": cd.DDPG(), "updates": 2}, "pass algorithm=DDPG(..., updates=...)"),
        (
            {"policies": {"pendulum": cd.PPO()}, "batch_size": 2},
            "pass policies={'pendulum': PPO(..., num_minibatches=...)",
        ),
        ({"policies": {"pendulum": cd.Pool(cd.A2C())}, "n_steps": 2}, "{'pendulum': A2C(..., num_steps=...)"),
    ],
)
def test_a_setting_is_told_of_the_algorithm_that_was_asked_for(given, words):
    with pytest.raises(UnknownParameterError) as caught:
        cd.train("pendulum", **given)
    assert words in str(caught.value)


@pytest.mark.full
def test_a_parameter_that_is_a_setting_too_is_told_what_it_is_taken_for(tmp_path):
    short = {"num_envs": 512, "steps": 2048, "device": "cpu", "progress": False, "tau": 0.1}  # enough to begin to learn
    says = r"tau = 0.1 is taken for the parameter of pendulum.*suggested_algorithm\('pendulum', 'ddpg', tau=\.\.\.\)"
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


def test_a_path_in_a_run_folder_leads_to_the_folder(run, tmp_path):
    run.save(tmp_path / "run")
    inside = [tmp_path / "run" / "checkpoints", *(tmp_path / "run").rglob("*.pt"), tmp_path / "run" / "config.json"]
    assert len(inside) == 3
    for path in inside:
        with pytest.raises(TrainingError, match=f"the run folder that it lies in is '{tmp_path / 'run'}'"):
            cd.load(path)


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
        (lambda run: 10, "such as {'cart': cd.Random()}; a number of episodes is episodes=10"),
        (lambda run: "randm", "it must be 'random' or 'heuristic'. Did you mean 'random'?"),
        (lambda run: cd.Random, "; call it: cd.Random()"),
        (lambda run: run, "; of a run, its policy: {'cart': run.frozen('cart')}"),
        (lambda run: {"cart": run}, "; of a run, its policy: run.frozen('cart')"),
        (
            lambda run: {"cart": "runs/cart"},
            "; there is no folder 'runs/cart'; of a run folder, its policy: cd.Frozen(FOLDER)",
        ),
        (lambda run: {"cart": "random"}, "; write cd.Random()"),
        (lambda run: {"cart": cd.PPO()}, "; what learns is for train"),
        (lambda run: {"cart": run.policies["cart"]}, "; a network plays in a run"),
        (lambda run: {"car": cd.Random()}, "has no group 'car'. Did you mean 'cart'?"),
        (lambda run: None, "cartpole has no heuristic, so say who plays 'cart': players='random' (--players random)"),
    ],
)
def test_a_player_of_the_wrong_kind_is_told_what_to_pass(run, wrong, words):
    with pytest.raises(ParameterError) as caught:
        cd.evaluate("cartpole", wrong(run), episodes=2, device="cpu")
    assert words in str(caught.value)


def test_what_an_error_tells_to_pass_plays(run):
    with pytest.raises(ParameterError) as caught:
        cd.evaluate("cartpole", run)
    players = eval(str(caught.value).partition("of a run, its policy: ")[2], {"run": run})
    frozen = cd.evaluate("cartpole", players, episodes=3, device="cpu")
    assert torch.equal(frozen.length, run.evaluate(3).length)


@pytest.mark.parametrize("env", ["cartpole", "tag_grid"])
def test_who_is_proposed_for_a_group_without_a_policy_can_play_it(env):
    policies = {}
    for group in [each.name for each in cd.make(env, device="cpu").groups]:
        with pytest.raises(ParameterError, match=f"group {group!r} has 0 policies; give each group one") as caught:
            make_run(env, policies=policies, num_envs=4, device="cpu")
        policies |= eval(f"{{{str(caught.value).partition('for example ')[2]}}}", {"cd": cd})
    assert make_run(env, policies=policies, num_envs=64, device="cpu").settings == policies


@pytest.mark.parametrize("players", [lambda run: run, lambda run: {"tagger": run}])
def test_a_run_is_not_told_to_play_groups_that_it_does_not_know(run, players):
    for call in (lambda: cd.evaluate("tag_grid", players(run)), lambda: cd.train("tag_grid", policies=players(run))):
        with pytest.raises(ParameterError) as caught:
            call()
        assert "frozen" not in str(caught.value)
    with pytest.raises(ParameterError, match=r"; a run of cartpole plays cart alone$"):
        cd.evaluate("tag_grid", players(run))


def test_a_run_is_not_played_on_another_device_than_was_asked_for(run):
    assert len(run.evaluate(2, device="cpu").length) == 2
    with pytest.raises(
        DeviceError, match=r"device = 'cuda', but the run is on 'cpu'; .*cupydrive\.load\(folder, device='cuda'\)"
    ):
        run.evaluate(2, device="cuda")


@pytest.mark.parametrize("name", ["policy", "network", "model"])
def test_an_algorithm_that_takes_no_network_names_those_that_do(name):
    with pytest.raises(
        ParameterError, match=r"DDPG makes its networks, of hidden=\(...\) units; PPO\(policy=...\) and A2C"
    ):
        cd.DDPG(**{name: torch.nn.Linear})


def test_every_error_is_offered():
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, CupydriveError)}
    assert all(getattr(cd, name) is getattr(errors, name) for name in kinds)


def test_the_spec_that_was_registered_with_a_kernel_has_it():
    spec = envs._load(point.PYTHON)[0]
    registered = envs.register(spec, point.KERNEL)
    assert envs.get(spec) is registered and envs.get("point") is registered
    other = envs._load(point.PYTHON)[0]
    assert envs.get(other) is other
