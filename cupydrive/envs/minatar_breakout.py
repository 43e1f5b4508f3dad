"""Breakout of MinAtar: keep the ball in play with the paddle and break the bricks.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176), see ``cupydrive/envs/minatar.py``.
Rules that it leaves open are inferred from recorded games. There are three rows of ten bricks, and
new ones when the ball reaches the paddle's row after the last brick was broken. The ball starts at
the left or right wall, above the bricks' lowest row, and moves diagonally. A brick that the ball
strikes breaks and reflects it, unless it struck something in the previous step. The paddle reflects
the ball from the ball's previous or new column.
"""

from dataclasses import dataclass

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs import minatar
from cupydrive.random import RandomStream

CHANNELS = ("paddle", "ball", "trail", "brick")
FULL = 2**30 - 1  # all bricks


@dataclass(frozen=True)
class Params(minatar.Params):
    """Parameters of the rules."""


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("bricks", "u4", unit="bits of rows 1 to 3, column by column from bit 0"),
        cd.Field("paddle", "i4", unit="column"),
        cd.Field("ball_x", "i4", unit="column"),
        cd.Field("ball_y", "i4", unit="row"),
        cd.Field("move_x", "i4", unit="columns per step, -1 or 1"),
        cd.Field("move_y", "i4", unit="rows per step, -1 or 1"),
        cd.Field("trail_x", "i4", unit="column of the ball one step before"),
        cd.Field("trail_y", "i4", unit="row of the ball one step before"),
        cd.Field("striking", "i4", unit="whether the ball touched a brick in the last step"),
        minatar.LAST_ACTION,
    )


def cells(states: np.ndarray) -> np.ndarray:
    """Return the observed channels, (N, 10, 10, 4) bool."""
    seen, each = minatar.no_cells(len(states), CHANNELS), np.arange(len(states))
    seen[each, 9, states["paddle"], 0] = True
    seen[each, states["ball_y"], states["ball_x"], 1] = True
    seen[each, states["trail_y"], states["trail_x"], 2] = True
    bricks = states["bricks"][:, None] >> np.arange(30, dtype=np.uint32) & 1
    seen[:, 1:4, :, 3] = bricks.reshape(-1, 3, 10)
    return seen


GAME = minatar.Game(CHANNELS, ("none", "left", "right"), cells)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) states with all bricks and the ball at the left or right wall."""
    right = random.bits()[:, 0, 0] >= 2**31
    states = np.zeros(len(right), [(f.name, f.dtype) for f in state(p)])
    states["bricks"], states["paddle"] = FULL, 4
    states["ball_x"] = states["trail_x"] = 9 * right
    states["ball_y"] = states["trail_y"] = 3
    states["move_x"], states["move_y"] = 1 - 2 * right, 1
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    chosen = minatar.effective_action(p, states, action, random)
    ball_x, ball_y = states["ball_x"], states["ball_y"]
    move_x, move_y = states["move_x"].copy(), states["move_y"].copy()
    paddle = np.clip(states["paddle"] + (chosen == 2) - (chosen == 1), 0, 9)

    x = ball_x + move_x
    wall = (x < 0) | (x > 9)
    move_x[wall] *= -1
    x = np.clip(x, 0, 9)

    y = np.minimum(ball_y + move_y, 9)  # a finished episode may still be stepped
    ceiling = y < 0
    move_y[ceiling] *= -1
    y = np.maximum(y, 0)

    row = y - 1
    bit = np.where((row >= 0) & (row < 3), 1 << np.clip(10 * row + x, 0, 29), 0).astype(np.uint32)
    touched = (states["bricks"] & bit != 0) & ~ceiling
    broken = touched & (states["striking"] == 0)
    bricks = np.where(broken, states["bricks"] & ~bit, states["bricks"])
    move_y[broken] *= -1

    low = ~touched & (y == 9)
    refill = low & (bricks == 0)
    bricks = np.where(refill, FULL, bricks)
    straight = low & (ball_x == paddle)
    corner = low & ~straight & (x == paddle)
    move_y[straight | corner] *= -1
    move_x[corner] *= -1
    lost = low & ~straight & ~corner
    y = np.where(broken | straight | corner, ball_y, y)
    return cd.StepResult(
        state={
            "bricks": bricks,
            "paddle": paddle,
            "ball_x": x,
            "ball_y": y,
            "move_x": move_x,
            "move_y": move_y,
            "trail_x": ball_x,
            "trail_y": ball_y,
            "striking": touched,
            "last_action": chosen,
        },
        reward={"player": broken[:, None].astype(np.float64)},
        terminated=lost,
        events={
            "wall": wall,
            "ceiling": ceiling,
            "brick": broken,
            "brick passed": touched & ~broken,
            "new bricks": refill,
            "paddle where the ball was": straight,
            "paddle where the ball comes to": corner,
            "lost": lost,
        },
    )


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states with few or many bricks, the ball anywhere and the paddle near it."""
    states = np.zeros(n, [(f.name, f.dtype) for f in state(p)])
    left = rng.random((n, 30)) < rng.choice([0.0, 0.3, 0.9], (n, 1))
    states["bricks"] = (left << np.arange(30)).sum(axis=1)
    for name, high in (("ball_x", 10), ("ball_y", 10), ("trail_x", 10), ("trail_y", 10)):
        states[name] = rng.integers(0, high, n)
    states["paddle"] = np.clip(states["ball_x"] + rng.integers(-3, 4, n), 0, 9)
    states["move_x"], states["move_y"] = rng.choice([-1, 1], (2, n))
    states["striking"] = rng.random(n) < 0.5
    states["last_action"] = rng.integers(0, 3, n)
    return states


SPEC = cd.EnvSpec(
    name="minatar_breakout",
    params=Params,
    state=state,
    groups=GAME.groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, GAME.observe, sample_states),
    constants=GAME.constants,
    cases=({}, {"rules": "gymnax"}),
    display=cd.Display(draw=GAME.draw, keys=GAME.keys, size=(960, 760), fps=8),
    training=minatar.suggested(6_000_000),
    # A random policy gets 0.4. One seed gets 43 after 6 million steps.
    reward_threshold=30.0,
    summary="Break bricks with a ball and a paddle (MinAtar's Breakout).",
)
