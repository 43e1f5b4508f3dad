"""Freeway of MinAtar: cross eight lanes of traffic again and again.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176), see ``cupydrive/envs/minatar.py``.
Rules that it leaves open are inferred from recorded games. A car moves by one column every 2 to 6
steps and reappears on the other side. The player moves at most every third step and stays in its
column. A car returns the player to the bottom. So does reaching the top, which is rewarded. Then
all cars get new speeds, from -5 to 5 without 0, where 1 is the fastest.

MinAtar's own games have 2,501 steps, because the timer runs from 2,500 to below 0.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs import minatar
from cupydrive.envs.minatar import nibbles, of_nibbles
from cupydrive.random import RandomStream, below

CHANNELS = ("chicken", "car", "speed1", "speed2", "speed3", "speed4", "speed5")
COLUMN, REST, LEFT = 4, 3, 8  # player's column, steps between moves, bit of a car's speed


@dataclass(frozen=True)
class Params(minatar.Params):
    """Parameters of the rules."""

    LIMITS: ClassVar[tuple[int, int]] = (2501, 2500)


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("car_x", "u4", unit="columns, 4 bits for each car from row 1 down"),
        cd.Field("car_timer", "u4", unit="steps that each car waits before it moves, 4 bits"),
        cd.Field("car_speed", "u4", unit="steps between moves of each car, plus 8 if to the left"),
        cd.Field("player", "i4", unit="row"),
        cd.Field("rest", "i4", unit="steps until the player may move"),
        minatar.LAST_ACTION,
    )


def cells(states: np.ndarray) -> np.ndarray:
    """Return the observed channels, (N, 10, 10, 7) bool."""
    seen, each = minatar.no_cells(len(states), CHANNELS), np.arange(len(states))
    seen[each, states["player"], COLUMN, 0] = True
    x, speed = nibbles(states["car_x"]), nibbles(states["car_speed"])
    car, row = each[:, None], np.arange(1, 9)
    seen[car, row, x, 1] = True
    behind = (x + np.where(speed & LEFT, 1, -1)) % 10
    seen[car, row, behind, 1 + (speed & 7)] = True
    return seen


GAME = minatar.Game(CHANNELS, ("none", "up", "down"), cells)


def speeds(random: RandomStream) -> np.ndarray:
    """Return (N, 8) random speeds: 1 to 5, with the bit ``LEFT`` or without."""
    words = random.bits(2, 1).reshape(-1, 8)
    drawn = below(words, 10)
    return 1 + drawn % 5 + LEFT * (drawn >= 5)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) states with all cars in the leftmost column, at random speeds."""
    speed = speeds(random)
    states = np.zeros(len(speed), [(f.name, f.dtype) for f in state(p)])
    states["car_speed"], states["car_timer"] = of_nibbles(speed), of_nibbles(speed & 7)
    states["player"], states["rest"] = 9, REST
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    chosen = minatar.effective_action(p, states, action, random)
    x, timer, speed = (nibbles(states[name]) for name in ("car_x", "car_timer", "car_speed"))
    moves = (chosen > 0) & (states["rest"] == 0)
    player = np.where(moves, states["player"] + np.where(chosen == 1, -1, 1), states["player"])
    player = np.minimum(player, 9)
    rest = np.maximum(np.where(moves, REST, states["rest"]) - 1, 0)

    home = player == 0
    player = np.where(home, 9, player)
    speed = np.where(home[:, None], speeds(random), speed)
    timer = np.where(home[:, None], speed & 7, timer)

    here = np.arange(1, 9) == player[:, None]
    struck = (here & (x == COLUMN)).any(axis=1)
    drives = timer == 0
    x = np.where(drives, (x + np.where(speed & LEFT, -1, 1)) % 10, x)
    timer = np.where(drives, speed & 7, timer - 1)
    run_over = (here & (x == COLUMN)).any(axis=1) & ~struck
    player = np.where(struck | run_over, 9, player)
    return cd.StepResult(
        state={
            "car_x": of_nibbles(x),
            "car_timer": of_nibbles(timer),
            "car_speed": of_nibbles(speed),
            "player": player,
            "rest": rest,
            "last_action": chosen,
        },
        reward={"player": home[:, None].astype(np.float64)},
        terminated=np.zeros(len(states), bool),
        events={
            "crossed": home,
            "walked into a car": struck,
            "run over": run_over,
            "stopped by the edge": moves & (chosen == 2) & (states["player"] == 9),
        },
    )


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states with cars and the player anywhere, the player often free to move."""
    states = np.zeros(n, [(f.name, f.dtype) for f in state(p)])
    states["car_x"] = of_nibbles(rng.integers(0, 10, (n, 8)))
    states["car_timer"] = of_nibbles(rng.integers(0, 6, (n, 8)))
    states["car_speed"] = of_nibbles(rng.integers(1, 6, (n, 8)) + rng.choice([0, LEFT], (n, 8)))
    states["player"] = rng.integers(1, 10, n)
    states["rest"] = rng.choice([0, 0, 1, 2, REST], n)
    states["last_action"] = rng.integers(0, 3, n)
    return states


SPEC = cd.EnvSpec(
    name="minatar_freeway",
    params=Params,
    state=state,
    groups=GAME.groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, GAME.observe, sample_states),
    constants=GAME.constants,
    cases=({}, {"rules": "gymnax"}),
    display=cd.Display(
        draw=GAME.draw,
        keys=GAME.keys,
        size=(960, 760),
        fps=8,
        showcase={"params": {"max_episode_steps": 400}},  # a video of 50 seconds
    ),
    training=minatar.suggested(6_000_000),
    # A random policy gets 0.4. One seed gets 53 after 6 million steps.
    reward_threshold=50.0,
    summary="Cross eight lanes of traffic (MinAtar's Freeway).",
)
