"""Space Invaders of MinAtar: shoot aliens that shoot back and come nearer.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176); see ``cupydrive/envs/minatar.py``.
Constants that it leaves open are those of gymnax 1.0's port, confirmed by recorded games and by
single steps from states that no game reaches. The cannon moves along the lowest row and fires
every five steps at most. 24 aliens move sideways together, every 12 steps at first, and every step
when few are left. In place of a move beyond the edge they come down a row and turn. Every ten
steps the alien nearest to the cannon's column fires. A new wave follows when all are shot, and with
ramping its longest wait is a step shorter, down to six steps. An alien or a bullet that touches the
cannon ends the game, and so do aliens that come down from the lowest row.
"""

from dataclasses import dataclass

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs import minatar
from cupydrive.random import RandomStream

CHANNELS = ("cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet")
ALIENS, FRIENDLY, ENEMY = 0, 10, 20  # first bits of a row's boards
COOLDOWN, ENEMY_COOLDOWN = 5, 10  # steps between two shots
SLOWEST, FASTEST = (
    12,
    6,
)  # longest wait of a full wave: of the first one, and with ramping of the last


@dataclass(frozen=True)
class Params(minatar.RampingParams):
    """Parameters of the rules."""


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field(
            "rows",
            "u4",
            (10,),
            unit="bits of columns: aliens, friendly bullets from 10, enemy bullets from 20",
        ),
        cd.Field("cannon", "i4", unit="column"),
        cd.Field("direction", "i4", unit="columns per move of the aliens, -1 or 1"),
        cd.Field("interval", "i4", unit="steps, the longest wait between two moves of the aliens"),
        cd.Field("move_timer", "i4", unit="steps until the aliens move"),
        cd.Field("enemy_shot_timer", "i4", unit="steps until an alien fires"),
        cd.Field("shot_timer", "i4", unit="steps until the cannon can fire"),
        minatar.LAST_ACTION,
    )


def board(states: np.ndarray, first: int) -> np.ndarray:
    """Return one of the three boards, (N, 10, 10) bool."""
    return (states["rows"][..., None] >> np.arange(first, first + 10, dtype=np.uint32) & 1) == 1


def packed(aliens: np.ndarray, own: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return ``rows`` (N, 10) of the three boards."""
    bits = np.concatenate([aliens, own, theirs], axis=-1).astype(np.uint32)
    return (bits << np.arange(30, dtype=np.uint32)).sum(-1, dtype=np.uint32)


def wave(n: int) -> np.ndarray:
    """Return (n, 10, 10) bool, a full wave of aliens in each."""
    aliens = np.zeros((n, 10, 10), bool)
    aliens[:, :4, 2:8] = True
    return aliens


def cells(states: np.ndarray) -> np.ndarray:
    """Return what the player sees, (N, 10, 10, 6) bool."""
    seen, each = minatar.no_cells(len(states), CHANNELS), np.arange(len(states))
    seen[each, 9, states["cannon"], 0] = True
    seen[..., 1] = board(states, ALIENS)
    for channel, direction in ((2, -1), (3, 1)):
        seen[..., channel] = seen[..., 1] & (states["direction"] == direction)[:, None, None]
    seen[..., 4], seen[..., 5] = board(states, FRIENDLY), board(states, ENEMY)
    return seen


GAME = minatar.Game(CHANNELS, ("none", "left", "right", "fire"), cells)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) states with the first wave; nothing is random."""
    n = len(random.bits())
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["rows"] = packed(wave(n), *np.zeros((2, n, 10, 10), bool))
    states["cannon"], states["direction"] = 5, -1
    states["interval"] = states["move_timer"] = SLOWEST
    states["enemy_shot_timer"] = ENEMY_COOLDOWN
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states; action["player"] is (N, 1)."""
    chosen, each = minatar.effective_action(p, states, action, random), np.arange(len(states))
    aliens, own, theirs = (board(states, first) for first in (ALIENS, FRIENDLY, ENEMY))
    cannon = np.clip(states["cannon"] + (chosen == 2) - (chosen == 1), 0, 9)
    fires = (chosen == 3) & (states["shot_timer"] == 0)
    own[fires, 9, cannon[fires]] = True
    shot_timer = np.where(fires, COOLDOWN, states["shot_timer"])

    # Bullets fly.
    own = np.concatenate([own[:, 1:], 0 * own[:, :1]], axis=1)
    theirs = np.concatenate([0 * theirs[:, :1], theirs[:, :-1]], axis=1)
    shot = theirs[each, 9, cannon] == 1

    # Aliens move.
    touched = aliens[each, 9, cannon]
    moves = states["move_timer"] == 0
    left = states["direction"] < 0
    turns = moves & np.where(left, aliens[:, :, 0].any(1), aliens[:, :, 9].any(1))
    landed = turns & aliens[:, 9].any(1)
    wait = np.minimum(aliens.sum((1, 2)), states["interval"])
    move_timer = np.where(moves, wait, states["move_timer"])
    sideways = moves & ~turns
    for moved, shift, axis in (
        (turns, 1, 1),
        (sideways & left, -1, 2),
        (sideways & ~left, 1, 2),
    ):
        aliens = np.where(moved[:, None, None], np.roll(aliens, shift, axis), aliens)
    touched |= moves & aliens[each, 9, cannon]

    # The lowest alien of the nearest column fires, of the left one of two that are equally near.
    enemy_fires = states["enemy_shot_timer"] == 0
    distance = np.where(aliens.any(1), abs(np.arange(10) - cannon[:, None]), 10)
    column = distance.argmin(1)
    lowest = 9 - aliens[each, ::-1, column].argmax(1)
    theirs[each, lowest, column] |= enemy_fires
    enemy_shot_timer = np.where(enemy_fires, ENEMY_COOLDOWN, states["enemy_shot_timer"])

    hit = aliens & (own == 1)
    aliens, own = aliens & ~hit, own & ~hit
    cleared = ~aliens.any((1, 2))
    aliens[cleared] = wave(1)
    faster = cleared & (states["interval"] > FASTEST) & (p.difficulty_ramping == "on")
    killed = hit.sum((1, 2))
    return cd.StepResult(
        state={
            "rows": packed(aliens, own, theirs),
            "cannon": cannon,
            "direction": np.where(turns, -states["direction"], states["direction"]),
            "interval": states["interval"] - faster,
            "move_timer": move_timer - 1,
            "enemy_shot_timer": enemy_shot_timer - 1,
            "shot_timer": np.maximum(shot_timer - 1, 0),
            "last_action": chosen,
        },
        reward={"player": killed[:, None].astype(np.float64)},
        terminated=shot | touched | landed,
        metrics={"waves": cleared},
        events={
            "the cannon fires": fires,
            "an alien fires": enemy_fires,
            "the nearest column is not the cannon's": enemy_fires & (column != cannon),
            "alien shot": hit,
            "new wave": cleared,
            "the aliens move left": sideways & left,
            "the aliens move right": sideways & ~left,
            "the aliens come down": turns,
            "the cannon is shot": shot,
            "an alien touches the cannon": touched,
            "the aliens leave the lowest row": landed,
        },
    )


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states with any aliens, one at least, any bullets and short timers."""
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    boards = rng.random((3, n, 10, 10)) < 0.5 * rng.random((3, n, 1, 1)) ** 2
    boards[0, np.arange(n), rng.integers(0, 10, n), rng.integers(0, 10, n)] = True
    states["rows"] = packed(*boards)
    for name, low, high in (
        ("cannon", 0, 9),
        ("interval", FASTEST, SLOWEST),
        ("move_timer", 0, 3),
        ("enemy_shot_timer", 0, 3),
        ("shot_timer", 0, 3),
        ("last_action", 0, 3),
    ):
        states[name] = rng.integers(low, high + 1, n)
    states["direction"] = rng.choice([-1, 1], n)
    return states


SPEC = cd.EnvSpec(
    name="minatar_space_invaders",
    params=Params,
    state=state,
    groups=GAME.groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, GAME.observe, sample_states),
    constants=GAME.constants,
    metrics={"waves": "int"},
    cases=({}, {"rules": "gymnax"}),
    display=cd.Display(draw=GAME.draw, keys=GAME.keys, size=(760, 834), fps=8),
    summary="Shoot aliens that shoot back and come nearer (MinAtar's Space Invaders).",
)
