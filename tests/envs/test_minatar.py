"""MinAtar's games, against recorded steps and means of the package `minatar`
(tests/tools/minatar_oracle.py).
"""

from types import ModuleType

import minatar_oracle
import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive.envs import minatar, minatar_asterix, minatar_breakout, minatar_freeway
from cupydrive.random import RandomStream


def breakout(raw):
    """Return fields of ours from a recorded state, but for what rules do not read."""
    move_x, move_y = ((-1, -1), (1, -1), (1, 1), (-1, 1))[raw["ball_dir"]]
    bricks = np.array(raw["brick_map"], int)
    assert not np.delete(bricks, [1, 2, 3], axis=0).any()
    return {
        "bricks": (bricks[1:4].reshape(-1) << np.arange(30)).sum(),
        "paddle": raw["pos"],
        "ball_x": raw["ball_x"],
        "ball_y": raw["ball_y"],
        "move_x": move_x,
        "move_y": move_y,
        "trail_x": raw["last_x"],
        "trail_y": raw["last_y"],
        "striking": raw["strike"],
    }


def freeway(raw):
    """Return fields of ours from a recorded state."""
    x, row, timer, speed = np.array(raw["cars"]).T
    assert (row == np.arange(1, 9)).all()
    return {
        "car_x": word(x),
        "car_timer": word(timer),
        "car_speed": word(np.abs(speed) + 8 * (speed < 0)),
        "player": raw["pos"],
        "rest": raw["move_timer"],
    }


def asterix(raw):
    """Return fields of ours from a recorded state, whose speeds follow from the level."""
    level, things = raw["ramp_index"], raw["entities"]
    assert raw["spawn_speed"] == 10 - level and raw["move_speed"] == max(1, 5 - level // 2)
    assert all(thing is None or thing[1] == k + 1 for k, thing in enumerate(things))
    return {
        "player_x": raw["player_x"],
        "player_y": raw["player_y"],
        "thing_x": word([thing[0] if thing else 0 for thing in things]),
        "thing": word([1 + 2 * thing[2] + 4 * thing[3] if thing else 0 for thing in things]),
        "spawn_timer": raw["spawn_timer"],
        "move_timer": raw["move_timer"],
        "level": level,
        "ramp_timer": raw["ramp_timer"],
    }


def word(nibbles):
    """Return eight numbers of 4 bits each as one, the first one lowest."""
    return int((np.asarray(nibbles) << np.arange(0, 32, 4)).sum())


def that_gives(value, n):
    """Return a random word of which ``below(word, n)`` is ``value``."""
    return -(-value * 2**32 // n)


def no_words(before, after):
    """Return the words of draw 1 that lead from a recorded state to the next: none matter."""
    return [[0] * 4]


def freeway_words(before, after):
    """Return the words of draw 1 that give the speeds of the state after."""
    speeds = [car[3] for car in after["cars"]]
    words = [that_gives(abs(speed) - 1 + 5 * (speed < 0), 10) for speed in speeds]
    return [words[:4], words[4:]]


def asterix_words(before, after):
    """Return the words of draw 1 that give the thing that came, unless none did."""
    free = [k for k, thing in enumerate(before["entities"]) if thing is None]
    if before["spawn_timer"] or not free:
        return [[0] * 4]
    came = [k for k in free if after["entities"][k] is not None]
    if came:
        (slot,) = came
        _, _, right, gold = after["entities"][slot]
    else:  # gold that the player took at once
        slot, right, gold = after["player_y"] - 1, after["player_x"] < 5, True
    rank = that_gives(free.index(slot), len(free))
    return [[that_gives(right, 2), that_gives(not gold, 3), rank, 0]]


# our module, our fields of a recorded state, words of draw 1 by agent
GAMES = {
    "breakout": (minatar_breakout, breakout, no_words),
    "asterix": (minatar_asterix, asterix, asterix_words),
    "freeway": (minatar_freeway, freeway, freeway_words),
}


class Recorded(RandomStream):
    """A stream whose draw 1 has given words, (N, agents, 4), and draw 0 zeros."""

    def __init__(self, words: np.ndarray) -> None:
        super().__init__(0, np.arange(len(words)), 0)
        self.words = words.astype(np.uint32)

    def bits(self, num_agents: int = 1, draw: int = 0, first_agent: int = 0) -> np.ndarray:
        """Return the words of some agents."""
        words = self.words[:, first_agent : first_agent + num_agents]
        return words if draw else 0 * words


def states(module: ModuleType, fields: list[dict]) -> np.ndarray:
    """Return states with these fields, the others 0."""
    rows = np.zeros(len(fields), [(f.name, f.dtype, f.shape) for f in module.state(None)])
    for k, row in enumerate(fields):
        for name, value in row.items():
            rows[name][k] = value
    return rows


@pytest.mark.quick(3)
@pytest.mark.parametrize("game", GAMES)
def test_recorded_steps_agree(game):
    module, fields, words = GAMES[game]
    first, steps = minatar_oracle.recorded(game)
    before = states(module, [fields(step["before"]) for step in steps])
    after = states(module, [fields(step["after"]) for step in steps])
    drawn = np.array([words(step["before"], step["after"]) for step in steps])
    chosen = np.array([[first["minimal_actions"].index(step["action"])] for step in steps])
    result = module.step(
        module.Params(sticky_action_prob=0.0),
        before,
        {"player": chosen},
        np.zeros(len(steps), int),
        Recorded(drawn),
    )
    for name in set(after.dtype.names) & fields(steps[0]["before"]).keys():
        np.testing.assert_array_equal(result.state[name], after[name], name)
    np.testing.assert_array_equal(result.reward["player"][:, 0], [s["reward"] for s in steps])
    np.testing.assert_array_equal(result.terminated, [s["terminal"] for s in steps])
    np.testing.assert_array_equal(result.state["last_action"], chosen[:, 0])
    assert all(happened.any() for happened in result.events.values())
    seen = module.cells(before)
    assert tuple(first["channels"]) == module.CHANNELS
    for cells, step in zip(seen, steps, strict=True):
        np.testing.assert_array_equal(np.argwhere(cells), step["seen"])


@pytest.mark.quick(2)
@pytest.mark.parametrize("rules", minatar_oracle.SETTINGS)
@pytest.mark.parametrize(
    "game", [pytest.param(g, marks=pytest.mark.slow) if g == "freeway" else g for g in GAMES]
)
def test_random_episodes_have_the_recorded_means(game, rules):
    """Within three standard errors of the difference."""
    ours = cd.evaluate(f"minatar_{game}", "random", episodes=10_000, device="cpu", rules=rules)
    theirs = minatar_oracle.recorded_means(game, rules)
    for name in ("return", "length"):
        mean, half = ours.mean(name)  # half of the 95 % interval
        error = np.hypot(half / 1.96, theirs[name]["standard_error"])
        assert abs(mean - theirs[name]["mean"]) <= 3 * error, name


def test_rules_fill_in_what_is_not_given():
    rules = minatar.RampingParams
    for given, filled in (
        ({}, (0.1, 100_000, "on")),
        ({"rules": "gymnax"}, (0.0, 1000, "off")),
        ({"rules": "gymnax", "difficulty_ramping": "on"}, (0.0, 1000, "on")),
        ({"sticky_action_prob": 0.0, "max_episode_steps": 9}, (0.0, 9, "on")),
    ):
        made = rules(**given)
        found = made.sticky_action_prob, made.max_episode_steps, made.difficulty_ramping
        assert found == filled
        assert rules(**vars(made)) == made


def test_the_last_action_that_took_effect_is_repeated():
    n, sticky = 4000, 0.25
    env = cd.make("minatar_asterix", num_envs=n, device="cpu", sticky_action_prob=sticky)
    env.reset(seed=0)
    before = np.zeros(n, int)
    for given in (1, 2, 3, 4):
        x = env.state["player_x"].numpy().copy()
        env.step(torch.full((n,), given, dtype=torch.int32), autoreset=False)
        took = env.state["last_action"].numpy().copy()
        repeated = took == before
        assert (took[~repeated] == given).all()
        assert abs(repeated.mean() - sticky) < 4 * np.sqrt(sticky * (1 - sticky) / n)
        moved = env.state["player_x"].numpy() - x
        np.testing.assert_array_equal(moved, (took == 3).astype(int) - (took == 1))
        before = took
