"""Space Invaders and Seaquest of MinAtar, against recorded steps of the package `minatar`
(tests/tools/minatar_oracle.py).
"""

import minatar_oracle
import numpy as np
import pytest
import test_minatar
import torch
from test_minatar import Recorded, states, that_gives

import cupydrive as cd
from cupydrive.envs import minatar_seaquest, minatar_space_invaders


def space_invaders(raw: dict) -> dict:
    """Return fields of ours from a recorded state."""
    boards = (np.array(raw[f"{name}_map"]) > 0 for name in ("alien", "f_bullet", "e_bullet"))
    return {
        "rows": minatar_space_invaders.packed(*boards),
        "cannon": raw["pos"],
        "direction": raw["alien_dir"],
        "interval": raw["enemy_move_interval"],
        "move_timer": raw["alien_move_timer"],
        "enemy_shot_timer": raw["alien_shot_timer"],
        "shot_timer": raw["shot_timer"],
    }


def seaquest(raw: dict) -> dict:
    """Return fields of ours from a recorded state; swimmers are sorted by their kind."""
    swimmers = [
        (kind, *entry)
        for kind, name in ((2, "f_bullets"), (5, "e_fish"), (6, "e_subs"), (9, "divers"))
        for entry in raw[name]
    ]
    fields = {
        "x": raw["sub_x"],
        "y": raw["sub_y"],
        "right": raw["sub_or"],
        "oxygen": raw["oxygen"],
        "aboard": raw["diver_count"],
        "surfaced": raw["surface"],
        "shot_timer": raw["shot_timer"],
        "spawn_timer": raw["e_spawn_timer"],
        "diver_timer": raw["d_spawn_timer"],
        "spawn_interval": raw["e_spawn_speed"],
        "move_interval": raw["move_speed"],
        "ramps": raw["ramp_index"],
        "enemy_bullets": np.zeros(10, np.uint32),
    }
    for x, y, right in raw["e_bullets"]:
        fields["enemy_bullets"][y] |= np.uint32(1 << (x + 10 * right))
    words = np.zeros(minatar_seaquest.MOST, np.uint32)
    for k, (kind, x, y, right, *timers) in enumerate(swimmers):
        timer, shot_timer = (*timers, 0, 0)[:2]
        words[k] = kind | x << 4 | y << 8 | right << 12 | timer << 13 | shot_timer << 16
    return {**fields, "swimmers": words, "count": len(swimmers)}


def draws(before: dict) -> list[list[int]]:
    """Return all words of draw 1 that may matter: side, kind and row of an enemy, and a diver."""
    enemies = [[0, 0, 0]]
    if before["e_spawn_timer"] == 0:
        sides, kinds, rows = (0, 2**31), (0, that_gives(1, 3)), range(8)
        enemies = [[s, k, that_gives(row, 8)] for s in sides for k in kinds for row in rows]
    divers = range(16) if before["d_spawn_timer"] == 0 else range(1)
    return [[*enemy, that_gives(way, 16)] for enemy in enemies for way in divers]


def nothing_random(before: dict) -> list[list[int]]:
    """Return words of draw 1, which do not matter."""
    return [[0] * 4]


# our module, our fields of a recorded state, and the words of draw 1 that may matter in it
GAMES = {
    "space_invaders": (minatar_space_invaders, space_invaders, nothing_random),
    "seaquest": (minatar_seaquest, seaquest, draws),
}


def in_order(words: np.ndarray) -> np.ndarray:
    """Return swimmers as ``seaquest`` does: sorted by their kind."""
    kinds = np.where(words > 0, words & 15, 16)
    return np.take_along_axis(words, np.argsort(kinds, axis=1, kind="stable"), 1)


@pytest.mark.quick(2)
@pytest.mark.parametrize("game", GAMES)
def test_some_random_draw_explains_each_recorded_step(game: str) -> None:
    module, fields, words = GAMES[game]
    first, steps = minatar_oracle.recorded(game)
    drawn = [words(step["before"]) for step in steps]
    of = np.repeat(np.arange(len(steps)), [len(rows) for rows in drawn])
    before, after = (
        states(module, [fields(step[when]) for step in steps]) for when in ("before", "after")
    )
    actions = np.array([[first["minimal_actions"].index(step["action"])] for step in steps])
    result = module.step(
        module.Params(sticky_action_prob=0.0),
        before[of],
        {"player": actions[of]},
        np.zeros(len(of), int),
        Recorded(np.concatenate(drawn)[:, None]),
    )
    if game == "seaquest":
        result.state["swimmers"] = in_order(result.state["swimmers"])
    after["last_action"] = actions[:, 0]
    explained = result.reward["player"][:, 0] == np.array([step["reward"] for step in steps])[of]
    explained &= result.terminated == np.array([step["terminal"] for step in steps])[of]
    for name in after.dtype.names:
        explained &= (result.state[name] == after[name][of]).reshape(len(of), -1).all(1)
    assert sorted(set(of[explained])) == list(range(len(steps)))
    assert all(happened[explained].any() for happened in result.events.values())
    assert [name.replace("guage", "gauge") for name in first["channels"]] == [*module.CHANNELS]
    for cells, step in zip(module.cells(before), steps, strict=True):
        np.testing.assert_array_equal(np.argwhere(cells), step["seen"])


@pytest.mark.full
@pytest.mark.parametrize("rules", minatar_oracle.SETTINGS)
@pytest.mark.parametrize("game", GAMES)
def test_random_episodes_have_the_recorded_means(game: str, rules: str) -> None:
    test_minatar.test_random_episodes_have_the_recorded_means(game, rules)


def test_the_list_of_seaquest_never_is_full():
    """Nothing is ever dropped, even where an enemy appears in every step and none is shot."""
    env = cd.make("minatar_seaquest", num_envs=256, rules="gymnax", device="cpu")
    env.reset(seed=0)
    ones = np.ones(256, np.int32)
    env.set_state(spawn_interval=ones, spawn_timer=ones, move_interval=2 * ones)
    most, none = 0, torch.zeros(256, dtype=torch.int32)
    for _ in range(400):
        env.step(none)
        most = max(most, int(env.state["count"].max()))
    assert 24 <= most < minatar_seaquest.MOST
