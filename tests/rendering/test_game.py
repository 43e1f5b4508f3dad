"""Games: keys become one agent's actions and nothing else; who plays beside a person plays as in an evaluation."""

import sys
from dataclasses import asdict, replace

import masked
import numpy as np
import pytest
from gymnasium import spaces

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import OrderError, ParameterError, RenderError, SpecError, UnknownParameterError
from cupydrive.playing.game import Game
from cupydrive.spec import Group

CHASE = {"num_taggers": 3, "grid_length": 8, "max_episode_steps": 30}
CROWD = {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 2}
PLAYABLE = [name for name in envs.names() if envs.get(name).keys is not None]


def key_of(game, action):
    """Return the keys that take an action."""
    return next([key] * bool(key) for key, taken in game.keyboard.actions.items() if taken == tuple(action))


@pytest.mark.full
@pytest.mark.parametrize(("agent", "group", "number"), [("tagger 1", "tagger", 1), ("runner", "runner", 0)])
@pytest.mark.parametrize("others", ["random", "heuristic"])
def test_who_presses_what_a_player_does_gets_the_same_episode(agent, group, number, others):
    """The person's agent is played by keys as the evaluation's player played it: then everybody else acts as there, too."""
    settings = {name: {"random": cd.Random, "heuristic": cd.Heuristic}[others]() for name in ("tagger", "runner")}
    wanted = cd.evaluate("tag_grid", settings, episodes=1, seed=5, device="cpu", **CHASE).recording
    game = Game("tag_grid", agent, others, seed=5, device="cpu", **CHASE)
    assert (game.group, game.agent) == (group, number)
    for t, moment in enumerate(wanted.moments()):
        assert game.moment.states.tobytes() == moment.states.tobytes()
        assert {g: x.tolist() for g, x in game.moment.returns.items()} == {
            g: x.tolist() for g, x in moment.returns.items()
        }
        assert game.moment.over[0] == moment.over[0]
        if not moment.over[0]:
            game.step(key_of(game, wanted.action[group][t, 0, number]))
    assert game.recording.action[group].tolist() == wanted.action[group].tolist()


@pytest.mark.parametrize("name", PLAYABLE)
def test_a_game_can_be_shown_again_from_its_keys(name):
    game = Game(name, device="cpu", seed=3, **({**CROWD} if name == "tag_continuous" else {}))
    keys, rng = [key for key in game.keyboard.actions if key], np.random.default_rng(0)
    for _ in range(40):
        if game.moment.over[0]:
            break
        game.step(rng.choice(keys, rng.integers(0, 3)).tolist())
    *_, last = game.recording.moments()
    assert last.states.tobytes() == game.moment.states.tobytes() and last.step == game.moment.step
    for kind in ("returns", "reward", "present", "action"):
        for group, array in getattr(game.moment, kind).items():
            np.testing.assert_array_equal(getattr(last, kind)[group], array)


@pytest.mark.parametrize("name", PLAYABLE)
def test_no_two_keys_do_the_same(name):
    ends = []
    for key in Game(name, device="cpu").keyboard.actions:
        game = Game(name, device="cpu", seed=3)
        for down in (["ArrowUp"], ["ArrowUp"], [key], [key]):  # to brake, one has to be on the way
            game.step(down)
        ends.append(game.moment.states.tobytes())
    same = name == "cartpole"  # which has two actions: no key is the first one until another is pressed
    assert len(set(ends)) == len(ends) - same


@pytest.mark.full
def test_keys_of_what_leaves_no_choice_are_left_out():
    with pytest.raises(ParameterError, match="tag_continuous has no keys"):
        Game("tag_continuous", device="cpu", **CROWD, num_turn_levels=0, num_acceleration_levels=0)
    turning = Game("tag_continuous", device="cpu", **CROWD, num_acceleration_levels=0)
    assert set(turning.keyboard.actions) == {"", "ArrowLeft", "ArrowRight"}


def test_each_episode_starts_as_the_first_environment_of_the_next_seed():
    game = Game("cartpole", device="cpu", seed=7)
    env = cd.make("cartpole", num_envs=1, device="cpu")
    for k in range(3):
        env.reset(seed=7 + k)
        assert game.episode == k + 1 and game.moment.states["x"][0] == env.state["x"][0]
        while not game.moment.over[0]:
            game.step(["ArrowRight"])
        with pytest.raises(OrderError, match="begin"):
            game.step()
        game.begin()
    with pytest.raises(OrderError, match="without a step"):
        _ = game.recording


@pytest.mark.full
def test_the_last_key_decides_each_head_and_what_no_key_does_is_stated():
    game = Game("tag_continuous", device="cpu", **CROWD)
    act, first = game.keyboard.action, game.keyboard.first
    fast, slow = 20, 1
    left, right = act(["ArrowLeft"], first)[1], act(["ArrowRight"], first)[1]
    assert left != right and act(["ArrowLeft"], first)[0] == 0
    assert act(["ArrowUp", "ArrowLeft"], first).tolist() == [fast, left]
    assert act(["ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"], first).tolist() == [slow, right]
    assert act(["x", "Enter"], first).tolist() == act([], act(["ArrowUp"], first)).tolist() == [0, 0]
    cart = Game("cartpole", device="cpu").keyboard  # has no action for no key: the one before
    assert cart.first.tolist() == [0]
    assert cart.action([], cart.action(["ArrowRight"], cart.first)).tolist() == [1]
    pole = Game("pendulum", device="cpu", max_torque=0.7).keyboard
    assert pole.action(["ArrowLeft"], pole.first).tolist() == [np.float32(0.7)] and pole.first.dtype == np.float32


@pytest.mark.full
def test_parameters_change_with_the_next_episode():
    game = Game("tag_grid", "tagger 2", device="cpu", seed=1, **CHASE)
    game.step()
    game.change(grid_length=3, num_taggers=4)
    game.change(tag_reward_for_tagger=2.5)
    assert game.params.grid_length == 8 and game.step().states["x"].shape == (1, 4)
    game.begin()
    assert asdict(game.params) == asdict(game.params) | {
        **CHASE,
        "grid_length": 3,
        "num_taggers": 4,
        "tag_reward_for_tagger": 2.5,
    }
    assert game.moment.states["x"].shape == (1, 5) and game.moment.states["x"].max() <= 3
    before = game.params
    for wrong, words in (
        ({"grid_length": 0}, "grid_length = 0"),
        ({"grid_lenght": 4}, "Did you mean 'grid_length'"),
        ({"num_taggers": 2}, "'tagger' has 2 agents"),  # the person plays the third
        ({"num_taggers": 2, "num_other_agents_observed": 9}, "num_other_agents_observed"),
    ):
        with pytest.raises(ParameterError, match=words):
            game.change(**wrong)
        game.begin()
        assert game.params == before


def test_what_may_be_chosen_is_within_the_limits_and_holds_what_is():
    for name in PLAYABLE:
        game = Game(name, device="cpu")
        about = {f: spec.metadata for f, spec in type(game.params).__dataclass_fields__.items()}
        choices = game.choices()
        assert "max_episode_steps" in choices
        for parameter, found in choices.items():
            assert found["value"] == getattr(game.params, parameter) and found["help"]
            if "low" in found:
                assert found["low"] <= found["value"] <= found["high"] and found["low"] < found["high"]
                assert about[parameter]["low"] <= found["low"] and found["high"] <= about[parameter]["high"]


def test_a_run_plays_against_a_person(tmp_path):
    run = cd.train("tag_grid", steps=1_000, num_envs=8, device="cpu", progress=False, **CHASE)
    wanted = run.evaluate(1, seed=4).recording
    game = Game(run, "runner", seed=4)
    for t in range(wanted.steps):
        game.step(key_of(game, wanted.action["runner"][t, 0, 0]))
    assert game.recording.action["tagger"].tolist() == wanted.action["tagger"].tolist()
    assert game.players["runner"] == "you" and game.players["tagger"] == wanted.players["tagger"]
    game.change(tag_reward_for_tagger=1.0)
    with pytest.raises(ParameterError, match="the run's policies know"):
        game.change(use_full_observation=True)


def test_a_person_takes_what_a_mask_allows():
    spec, _ = envs._load(masked.PYTHON)[0], None
    keys = {"walker": {"": (2, None), "a": (0, 0), "d": (1, 1)}}
    spec = replace(spec, kernel=masked.KERNEL, keys=lambda p: keys)
    game = Game(spec, "walker 1", "random", device="cpu", seed=2)
    for _ in range(20):
        place = game.moment.states["place"][0, 1]
        game.step(["a"])
        assert game.moment.action["walker"][0, 1].tolist() == ([1, 1] if place == 0 else [0, 0])
    assert game.moment.over[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rice_n",), "rice_n has no keys .*give its EnvSpec keys=, or play one of: acrobot, cartpole"),
        (("tag_grid", "taggers"), "no group of that name. Did you mean 'tagger'"),
        (("tag_grid", "tagger 4"), "'tagger' has 4 agents: pass 'tagger' to 'tagger 3'"),
        (("tag_grid", "runner 1"), "'runner' has 1 agent: pass 'runner'$"),
        (("tag_grid", 3), "agent = 3 is an int"),
        (("tag_grid", None, "clever"), "others = 'clever'"),
        (("cartpole", None, "heuristic"), "others = .heuristic.; nobody else plays in cartpole"),
        (("tag_grid", None, {"tager": cd.Random()}), "Did you mean 'tagger'"),
        (("tag_grid", None, {"tagger": cd.Random}), r"others\['tagger'\]"),
        ((3,), "what = 3 is an int"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_told(arguments, words):
    with pytest.raises(ParameterError, match=words):
        Game(*arguments, device="cpu")


def test_a_wrong_parameter_of_a_game_names_what_was_meant():
    with pytest.raises(UnknownParameterError, match="Did you mean 'agent'"):
        Game("tag_grid", device="cpu", agnet="runner")
    with pytest.raises(ParameterError, match="leave out steps"):
        cd.view("tag_grid", "keyboard", steps=3)
    with pytest.raises(ParameterError, match="players = 'keybord'; it must be 'random', 'heuristic' or 'keyboard'"):
        cd.view("tag_grid", "keybord")


def test_a_game_in_a_notebook_says_which_package_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "cupydrive.rendering.live", raising=False)
    with pytest.raises(RenderError, match=r"needs anywidget: .* the extra `notebook`.* `cupydrive play`"):
        cd.view("tag_grid", "keyboard", device="cpu")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"walker": {"": 0, "ArrowLeft": 3}}, r"\['ArrowLeft'\] = 3 is out of range; it must be from 0 to 2"),
        ({"walker": {"": 0, "Left": 1}}, "a key 'Left'; it must be an arrow .ArrowLeft"),
        ({"walker": {"": 0, "q": 1}}, "a key 'q'"),
        ({"walker": {"": 0, " ": 1}}, "a key ' '"),
        ({"walker": {"": 0, "A": 1}}, "a key 'A'"),
        ({"walker": {"ArrowLeft": 1}}, 'it needs a key ""'),
        ({"walker": {"": 0, "a": 1.5}}, "1.5 is a float"),
        ({"walker": {"": 0, "a": (1, 0)}}, "needs a tuple of 1"),
        ({"wolker": {"": 0}}, "Did you mean 'walker'"),
        ({"walker": 3}, "3 is an int; it must be a dict"),
        ([], "it must be a dict"),
        (None, "it must be a dict"),
    ],
)  # fmt: skip
def test_wrong_keys_are_told_when_an_environment_is_made(keys, words):
    spec = replace(
        envs._load(masked.PYTHON)[0],
        keys=lambda p: keys,
        groups=lambda p: (Group("walker", p.walkers, 1, spaces.Discrete(3), mask=True),),
    )
    with pytest.raises(SpecError, match=words):
        spec.make_params()


@pytest.mark.full
@pytest.mark.gpu
def test_a_game_on_a_gpu_is_the_one_on_a_cpu():
    games = [Game("tag_grid", device=device, seed=2, **CHASE) for device in ("cpu", "cuda")]
    for key in ["ArrowLeft", "ArrowUp"] * 4:
        one, other = (game.step([key]) for game in games)
        assert one.states.tobytes() == other.states.tobytes() and one.over[0] == other.over[0]
        if one.over[0]:
            break
