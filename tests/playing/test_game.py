"""Games: keys become one agent's actions and nothing else, steps are taken in time, other players
act as in evaluations.
"""

from dataclasses import replace

import masked
import numpy as np
import pytest
from gymnasium import spaces

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import ParameterError, SpecError
from cupydrive.playing.config import resolve_eval
from cupydrive.playing.game import AFTER_THE_END, Game, GameConfig, KeyboardPlayer
from cupydrive.spec import Display, Group

CHASE = {"num_taggers": 3, "grid_length": 8, "max_episode_steps": 30}
CROWD = {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 2}
PLAYABLE = [name for name in envs.names() if envs.get(name).display.keys is not None]


def game_of(env, policies=None, device="auto", **given):
    """Return a game, as ``cupydrive.play`` makes it."""
    options = {
        name: given.pop(name) for name in ("agent", "seed", "fps", "episodes") if name in given
    }
    return Game(
        resolve_eval(cd.play, env, policies, given, device=device, kind=GameConfig, **options)
    )


def keys_of(game, action):
    """Return the keys that take an action."""
    return next(
        [key] * bool(key) for key, taken in game.player.actions.items() if taken == tuple(action)
    )


# ---- players -------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("agent", "group", "number"), [("tagger 1", "tagger", 1), ("runner", "runner", 0)]
)
@pytest.mark.parametrize("policies", ["random", "heuristic"])
def test_who_presses_what_a_player_does_gets_the_same_episode(agent, group, number, policies):
    """The person repeats the actions of an evaluation: then all other agents act as there, too."""
    wanted = cd.evaluate("tag_grid", policies, episodes=1, seed=5, device="cpu", **CHASE).recording
    game = game_of("tag_grid", policies, agent=agent, seed=5, device="cpu", **CHASE)
    assert (game.group, game.agent) == (group, number)
    for t, moment in enumerate(wanted.moments()):
        assert game.moment.states.tobytes() == moment.states.tobytes()
        for name, returns in moment.returns.items():
            np.testing.assert_array_equal(game.moment.returns[name], returns)
        assert game.moment.over[0] == moment.over[0]
        if not moment.over[0]:
            game.step(keys_of(game, wanted.action[group][t, 0, number]))
    assert game.recording.action[group].tolist() == wanted.action[group].tolist()


def test_a_run_plays_against_a_person():
    run = cd.train("tag_grid", steps=1_000, num_envs=8, device="cpu", progress=False, **CHASE)
    wanted = run.evaluate(1, seed=4).recording
    game = game_of(run, agent="runner", seed=4)
    for t in range(wanted.steps):
        game.step(keys_of(game, wanted.action["runner"][t, 0, 0]))
    assert game.recording.action["tagger"].tolist() == wanted.action["tagger"].tolist()
    assert game.players == {"tagger": wanted.players["tagger"], "runner": "you"}
    with pytest.raises(
        ParameterError, match=r"a run has its own parameters. Leave out grid_length"
    ):
        game_of(run, grid_length=9)


@pytest.mark.parametrize("name", PLAYABLE)
def test_a_game_can_be_shown_again_from_its_recording(name):
    game = game_of(name, device="cpu", seed=3, **(CROWD if name == "tag_continuous" else {}))
    keys, rng = [key for key in game.player.actions if key], np.random.default_rng(0)
    for _ in range(40):
        if not game.moment.over[0]:
            game.step(rng.choice(keys, rng.integers(0, 3)).tolist())
    *_, last = game.recording.moments()
    assert last.states.tobytes() == game.moment.states.tobytes() and last.step == game.moment.step
    for kind in ("returns", "reward", "present", "action"):
        for group, array in getattr(game.moment, kind).items():
            np.testing.assert_array_equal(getattr(last, kind)[group], array)


# ---- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAYABLE)
def test_no_two_keys_do_the_same(name):
    """A key may do what no key does at the start, where the action before is the first one."""
    ends, acted = set(), set()
    for key in game_of(name, device="cpu").player.actions:
        game = game_of(name, device="cpu", seed=3)
        for down in (["ArrowUp"], ["ArrowUp"], [key], [key]):  # to brake, one has to be on the way
            game.step(down)
        ends.add(game.moment.states.tobytes())
        acted.add(game.player.action.tobytes())
    actions = game.player.actions.values()
    assert len(set(actions)) == len(actions) and len(ends) == len(acted)


@pytest.mark.full
def test_the_last_key_decides_each_head():
    def act(player, *keys):
        player.choose(keys)
        return player.action.tolist()

    player = game_of("tag_continuous", device="cpu", **CROWD).player
    fast, slow, left, right = 20, 1, act(player, "ArrowLeft")[1], act(player, "ArrowRight")[1]
    assert left != right and act(player, "ArrowLeft")[0] == 0
    assert act(player, "ArrowUp", "ArrowLeft") == [fast, left]
    assert act(player, "ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown") == [slow, right]
    assert act(player, "x", "Enter") == act(player) == [0, 0]
    cart = game_of("cartpole", device="cpu").player  # without a key it repeats the previous action
    assert (act(cart), act(cart, "ArrowRight"), act(cart)) == ([0], [1], [1])
    cart.reset()
    assert act(cart) == [0]
    pole = game_of("pendulum", device="cpu", max_torque=0.7).player
    assert act(pole, "ArrowLeft") == [np.float32(0.7)] and pole.action.dtype == np.float32
    turning = game_of("tag_continuous", device="cpu", **CROWD, num_acceleration_levels=0).player
    # keys without a choice are left out
    assert set(turning.actions) == {"", "ArrowLeft", "ArrowRight"}


def test_a_person_takes_what_a_mask_allows():
    keys = {"walker": {"": (2, None), "a": (0, 0), "d": (1, 1)}}
    spec = replace(
        envs._load(masked.PYTHON).spec, kernel=masked.KERNEL, display=Display(keys=lambda p: keys)
    )
    game = game_of(spec, "random", agent="walker 1", device="cpu", seed=2)
    while not game.moment.over[0]:
        place = game.moment.states["place"][0, 1]
        game.step(["a"])
        assert game.moment.action["walker"][0, 1].tolist() == ([1, 1] if place == 0 else [0, 0])


# ---- the loop ------------------------------------------------------------------------------------


def test_steps_are_taken_when_they_are_due_and_episodes_follow_each_other():
    game = game_of("cartpole", device="cpu", seed=7, fps=10, episodes=2)
    env = cd.make("cartpole", num_envs=1, device="cpu")
    # before a key was pressed
    assert game.wait(5.0) is None and not game.tick(5.0, []) and game.recording is None
    game.press("ArrowRight", 7.0)
    taken, now = [], 7.0
    while not game.moment.over[0]:
        now += game.wait(now)
        assert game.tick(now, ["ArrowRight"]) and not game.tick(now + 0.09, [])
        taken.append(now)
    np.testing.assert_allclose(np.diff(taken), 0.1)
    assert game.scores == [f"{len(taken)} steps, return {len(taken)}"] and not game.ended
    first = game.recording
    assert game.wait(now) == pytest.approx(AFTER_THE_END)
    assert game.tick(now + AFTER_THE_END, []) and (game.episode, game.moment.step) == (2, 0)
    env.reset(seed=8)
    assert game.moment.states["x"][0] == env.state["x"][0]  # the next seed
    now += 100
    assert game.tick(now, []) and not game.tick(now + 0.05, [])  # missed steps are not made up for
    assert game.recording is first  # until the second episode is over
    while not game.ended:
        game.tick(now := now + 1, [])
    assert (
        len(game.scores) == 2
        and game.recording.seed == 8
        and game.wait(now) is None
        and "ended" in game.text
    )


@pytest.mark.full
def test_pause_new_episode_and_end():
    game = game_of("tag_grid", device="cpu", fps=10, grid_length=20)
    game.press("x", 0.0)  # any key starts the game
    assert game.tick(0.0, [])
    for pause in (" ", "Escape"):
        game.press(pause, 0.1)
        assert not game.tick(9.0, []) and "paused" in game.text
    game.press("Escape", 9.0)  # which never resumes
    assert not game.running
    game.press(" ", 20.0)
    assert game.tick(20.0, []) and game.moment.step == 2
    game.press("r", 20.0)
    assert (game.episode, game.moment.step) == (2, 0)
    game.press("q", 20.0)
    game.press("x", 21.0)
    assert game.ended and not game.tick(99.0, [])


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "arguments", "words"),
    [
        ("rice_n", {}, "rice_n has no keys .*Give its EnvSpec display="),
        ("tag_continuous", {**CROWD, "num_turn_levels": 0, "num_acceleration_levels": 0},
        "tag_continuous has no keys"),
        ("tag_grid", {"agent": "taggers"},
        "agent = 'taggers', expected 'tagger' or 'runner'. Did you mean 'tagger'"),
        ("tag_grid", {"agent": "tagger 4"},
        "agent = 'tagger 4', expected 'tagger', or 'tagger 0' to 'tagger 3'"),
        ("tag_grid", {"agnet": "runner"}, "Did you mean 'agent'"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(env, arguments, words):
    with pytest.raises(ParameterError, match=words):
        game_of(env, device="cpu", **arguments)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"walker": {"": 0, "ArrowLeft": 3}},
        r"\['ArrowLeft'\] = 3, expected an action of Discrete\(3\)"),
        ({"walker": {"": 0, "Left": 1}}, "a key 'Left', expected an arrow .ArrowLeft"),
        ({"walker": {"": 0, "q": 1}}, "a key 'q'"),
        ({"walker": {"": 0, " ": 1}}, "a key ' '"),
        ({"walker": {"": 0, "A": 1}}, "a key 'A'"),
        ({"walker": {"ArrowLeft": 1}}, 'lacks the key ""'),
        ({"walker": {"": 0, "a": 1.5}}, r"\['a'\] = 1.5, expected an action"),
        ({"walker": {"": 0, "a": "x"}}, "'x', expected an action"),
        ({"walker": {"": 0, "a": (1, 0)}}, r"\(1, 0\), expected an action"),
        ({"wolker": {"": 0}}, "Did you mean 'walker'"),
        ({"walker": 3}, "3 is an int, expected a dict"),
        (None, "expected a dict"),
    ],
)  # fmt: skip
def test_wrong_keys_are_refused_when_parameters_are_made(keys, words):
    spec = replace(
        envs._load(masked.PYTHON).spec,
        display=Display(keys=lambda p: keys),
        groups=lambda p: (Group("walker", p.walkers, 1, spaces.Discrete(3), mask=True),),
    )
    with pytest.raises(SpecError, match=words):
        spec.make_params()


@pytest.mark.parametrize(
    ("value", "right"), [(0.7, True), (0.71, False), (-0.7, True), ("x", False), (None, True)]
)
def test_keys_of_a_box_lie_within_its_limits_in_float32(value, right):
    group = Group("pole", 1, 1, spaces.Box(-0.7, 0.7, (1,), np.float32))
    display = Display(keys=lambda p: {"pole": {"": 0, "a": value}})
    spec = replace(envs.get("pendulum"), display=display, groups=lambda p: (group,))
    if right:
        spec.make_params()
    else:
        with pytest.raises(SpecError, match="expected an action of Box"):
            spec.make_params()


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ((1, 0.5), True),
        ((None, 0.7), True),
        ((2, 0.5), False),
        ((0.5, 0.5), False),
        ((1, 0.71), False),
        (1, False),
    ],
)
def test_keys_of_mixed_actions_have_a_choice_and_a_number(value, right):
    space = spaces.Tuple((spaces.Box(-0.7, 0.7, (1,), np.float32), spaces.Discrete(2)))
    group = Group("pole", 1, 1, space)
    if not right:
        with pytest.raises(SpecError, match="expected an action of Tuple"):
            KeyboardPlayer(group, 0, {"": (0, 0.0), "a": value}, None)
        return
    player = KeyboardPlayer(group, 0, {"": (0, 0.0), "a": value}, None)
    player.choose(["a"])
    assert player.action.tolist() == [np.float32(x or 0) for x in value]


@pytest.mark.full
@pytest.mark.gpu
def test_a_game_on_a_gpu_is_the_one_on_a_cpu():
    games = [game_of("tag_grid", device=device, seed=2, **CHASE) for device in ("cpu", "cuda")]
    for key in ["ArrowLeft", "ArrowUp"] * 4:
        one, other = (game.step([key]) for game in games)
        assert one.states.tobytes() == other.states.tobytes() and one.over[0] == other.over[0]
        if one.over[0]:
            break
