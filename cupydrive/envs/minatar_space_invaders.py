"""Space Invaders of MinAtar: shoot aliens that shoot back and come nearer.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176), see ``cupydrive/envs/minatar.py``.
Constants that it leaves open are those of gymnax 1.0's port, confirmed by recorded games and by
single steps from states that no game reaches. The cannon moves along the lowest row and fires
at most every five steps. 24 aliens move sideways together, initially every 12 steps, and every step
when few are left. At the edge they move down a row instead and turn. Every ten steps the alien
nearest to the cannon's column fires. A new wave follows when all are shot. With ramping, its
longest wait is one step shorter, down to six steps. An alien or a bullet that touches the cannon
ends the game, and so do aliens that move below the lowest row.
"""

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs import minatar
from cupydrive.random import RandomStream

CHANNELS = ("cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet")
WAVE = 0b0011111100  # columns of new aliens, in the four highest rows
COOLDOWN, ENEMY_COOLDOWN = 5, 10  # steps between two shots
SLOWEST, FASTEST = 12, 6  # longest waits of the first wave, and of the last one with ramping

Params = minatar.RampingParams


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field(
            "rows", "u4", (10,), unit="bits of columns of aliens and of both kinds of bullets"
        ),
        cd.Field("cannon", "i4", unit="column"),
        cd.Field("direction", "i4", unit="columns per move of the aliens, -1 or 1"),
        cd.Field("interval", "i4", unit="steps, the longest wait between two moves of the aliens"),
        cd.Field("move_timer", "i4", unit="steps until the aliens move"),
        cd.Field("enemy_shot_timer", "i4", unit="steps until an alien fires"),
        cd.Field("shot_timer", "i4", unit="steps until the cannon can fire"),
        minatar.LAST_ACTION,
    )


def boards(states: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return aliens, friendly bullets and enemy bullets, each (N, 10, 10) bool."""
    bits = (states["rows"][..., None] >> np.arange(30, dtype=np.uint32) & 1) == 1
    return bits[..., :10], bits[..., 10:20], bits[..., 20:]


def packed(aliens: np.ndarray, own: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return ``rows`` (N, 10). The inverse of ``boards``."""
    bits = np.concatenate([aliens, own, theirs], axis=-1).astype(np.uint32)
    return (bits << np.arange(30, dtype=np.uint32)).sum(-1, dtype=np.uint32)


def cells(states: np.ndarray) -> np.ndarray:
    """Return the observed channels, (N, 10, 10, 6) bool."""
    seen, each = minatar.no_cells(len(states), CHANNELS), np.arange(len(states))
    seen[each, 9, states["cannon"], 0] = True
    seen[..., 1], seen[..., 4], seen[..., 5] = boards(states)
    left = (states["direction"] < 0)[:, None, None]
    seen[..., 2], seen[..., 3] = seen[..., 1] & left, seen[..., 1] & ~left
    return seen


GAME = minatar.Game(CHANNELS, ("none", "left", "right", "fire"), cells)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) states with the first wave. Nothing is random."""
    n = len(random.bits())
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["rows"][:, :4], states["cannon"], states["direction"] = WAVE, 5, -1
    states["interval"] = states["move_timer"] = SLOWEST
    states["enemy_shot_timer"] = ENEMY_COOLDOWN
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    chosen, each = minatar.effective_action(p, states, action, random), np.arange(len(states))
    aliens, own, theirs = (board.copy() for board in boards(states))
    cannon = np.clip(states["cannon"] + (chosen == 2) - (chosen == 1), 0, 9)
    fires = (chosen == 3) & (states["shot_timer"] == 0)
    own[fires, 9, cannon[fires]] = True

    # Bullets fly.
    own[:, :-1], own[:, -1] = own[:, 1:].copy(), False
    theirs[:, 1:], theirs[:, 0] = theirs[:, :-1].copy(), False
    shot = theirs[each, 9, cannon]

    # Aliens move.
    touched = aliens[each, 9, cannon]
    moves = states["move_timer"] == 0
    left = states["direction"] < 0
    turns = moves & np.where(left, aliens[:, :, 0].any(1), aliens[:, :, 9].any(1))
    landed = turns & aliens[:, 9].any(1)
    wait = np.minimum(aliens.sum((1, 2)), states["interval"])
    sideways = moves & ~turns
    aside = np.where(left[:, None, None], np.roll(aliens, -1, 2), np.roll(aliens, 1, 2))
    aliens = np.where(turns[:, None, None], np.roll(aliens, 1, 1), aliens)
    aliens = np.where(sideways[:, None, None], aside, aliens)
    touched |= moves & aliens[each, 9, cannon]

    # The lowest alien of the nearest column fires. The left column wins a tie.
    enemy_fires = states["enemy_shot_timer"] == 0
    distance = np.where(aliens.any(1), abs(np.arange(10) - cannon[:, None]), 10)
    column = distance.argmin(1)
    lowest = 9 - aliens[each, ::-1, column].argmax(1)
    theirs[each, lowest, column] |= enemy_fires

    hit = aliens & own
    aliens, own = aliens & ~hit, own & ~hit
    cleared = ~aliens.any((1, 2))
    rows = packed(aliens, own, theirs)
    rows[cleared, :4] |= WAVE
    faster = cleared & (states["interval"] > FASTEST) & (p.difficulty_ramping == "on")
    return cd.StepResult(
        state={
            "rows": rows,
            "cannon": cannon,
            "direction": np.where(turns, -states["direction"], states["direction"]),
            "interval": states["interval"] - faster,
            "move_timer": np.where(moves, wait, states["move_timer"]) - 1,
            "enemy_shot_timer": np.where(enemy_fires, ENEMY_COOLDOWN, states["enemy_shot_timer"])
            - 1,
            "shot_timer": np.where(fires, COOLDOWN - 1, np.maximum(states["shot_timer"] - 1, 0)),
            "last_action": chosen,
        },
        reward={"player": hit.sum((1, 2))[:, None] * 1.0},
        terminated=shot | touched | landed,
        metrics={"waves": cleared},
        events={
            "the cannon fires": fires,
            "an alien fires": enemy_fires,
            "alien shot": hit,
            "new wave": cleared,
            "the aliens come down": turns,
            "the cannon is shot": shot,
            "an alien touches the cannon": touched,
            "the aliens leave the lowest row": landed,
        },
    )


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states with at least one alien, any bullets and short timers."""
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    full = rng.random((3, n, 10, 10)) < 0.5 * rng.random((3, n, 1, 1)) ** 2
    full[0, np.arange(n), rng.integers(0, 10, n), rng.integers(0, 10, n)] = True
    states["rows"] = packed(*full)
    for name in ("move_timer", "enemy_shot_timer", "shot_timer", "last_action"):
        states[name] = rng.integers(0, 4, n)
    states["cannon"] = rng.integers(0, 10, n)
    states["interval"] = rng.integers(FASTEST, SLOWEST + 1, n)
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
    display=cd.Display(
        draw=GAME.draw,
        keys=GAME.keys,
        size=(960, 760),
        fps=8,
        showcase={"params": {"max_episode_steps": 500}},  # a video of a minute
    ),
    training=minatar.suggested(6_000_000),
    # A random policy gets 4. One seed gets 260 after 6 million steps.
    reward_threshold=150.0,
    summary="Shoot aliens that shoot back and come nearer (MinAtar's Space Invaders).",
)
