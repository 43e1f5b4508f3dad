"""Asterix of MinAtar: collect gold and avoid enemies, which come from both sides.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176), see ``cupydrive/envs/minatar.py``.
Rules that it leaves open are inferred from recorded games. Rows 1 to 8 contain at most one object
each. Every 10 steps, an object appears in an empty row, uniform over these, from either side. It is
gold with probability 1/3. Objects move every 5th step. With ramping there are ten levels of 102
steps each. Each level shortens the interval between objects by one step, and every second level
shortens the interval between moves by one step.
"""

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs import minatar
from cupydrive.envs.minatar import nibbles, of_nibbles
from cupydrive.random import RandomStream, below

CHANNELS = ("player", "enemy", "trail", "gold")
THING, RIGHT, GOLD = 1, 2, 4  # bits: object present, moves to the right, is gold
LEVELS, LEVEL_STEPS = 10, 100
Params = minatar.RampingParams


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("player_x", "i4", unit="column"),
        cd.Field("player_y", "i4", unit="row, 1 to 8"),
        cd.Field("thing_x", "u4", unit="columns of objects, 4 bits for each row from 1 down"),
        cd.Field("thing", "u4", unit="bits: 1 = occupied, 2 = moves right, 4 = gold"),
        cd.Field("spawn_timer", "i4", unit="steps until an object appears"),
        cd.Field("move_timer", "i4", unit="steps until all objects move"),
        cd.Field("level", "i4", unit="level, 0 to 9"),
        cd.Field("ramp_timer", "i4", unit="steps until the next level, less one"),
        minatar.LAST_ACTION,
    )


def intervals(level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps between spawns, and between moves."""
    return LEVELS - level, np.maximum(5 - level // 2, 1)


def cells(states: np.ndarray) -> np.ndarray:
    """Return the observed channels, (N, 10, 10, 4) bool."""
    seen, each = minatar.no_cells(len(states), CHANNELS), np.arange(len(states))
    seen[each, states["player_y"], states["player_x"], 0] = True
    x, thing = nibbles(states["thing_x"]), nibbles(states["thing"])
    env, row = np.nonzero(thing)
    x, thing = x[env, row], thing[env, row]
    seen[env, row + 1, x, np.where(thing & GOLD, 3, 1)] = True
    behind = x + np.where(thing & RIGHT, -1, 1)
    inside = (behind >= 0) & (behind <= 9)
    seen[env[inside], row[inside] + 1, behind[inside], 2] = True
    return seen


GAME = minatar.Game(CHANNELS, ("none", "left", "up", "right", "down"), cells)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) states with the player in the middle and nothing else."""
    states = np.zeros(len(random.bits()), [(f.name, f.dtype) for f in state(p)])
    states["player_x"] = states["player_y"] = 5
    states["spawn_timer"], states["move_timer"] = intervals(states["level"])
    states["ramp_timer"] = LEVEL_STEPS
    return states


def spawn(
    x: np.ndarray, thing: np.ndarray, due: np.ndarray, random: RandomStream
) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and bits (N, 8) of objects, with a new one where ``due``."""
    words, free = random.bits(1, 1)[:, 0], thing == 0
    right, gold = words[:, 0] >= 2**31, below(words[:, 1], 3) == 0
    rank = below(words[:, 2], free.sum(axis=1))
    new = free & (np.cumsum(free, axis=1) == rank[:, None] + 1) & due[:, None]
    start = np.where(right, 0, 9)[:, None]
    bits = (THING + RIGHT * right + GOLD * gold)[:, None]
    return np.where(new, start, x), np.where(new, bits, thing)


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    chosen, each = minatar.effective_action(p, states, action, random), np.arange(len(states))
    level, ramp_timer = states["level"], states["ramp_timer"]
    spawn_every, move_every = intervals(level)
    x, thing = nibbles(states["thing_x"]), nibbles(states["thing"])
    due = states["spawn_timer"] == 0
    full = due & (thing > 0).all(axis=1)
    x, thing = spawn(x, thing, due, random)
    spawn_timer = np.where(due, spawn_every, states["spawn_timer"]) - 1

    to_x, to_y = np.array([0, -1, 0, 1, 0])[chosen], np.array([0, 0, -1, 0, 1])[chosen]
    player_x = np.clip(states["player_x"] + to_x, 0, 9)
    player_y = np.clip(states["player_y"] + to_y, 1, 8)
    row = player_y - 1

    def meet(x: np.ndarray, thing: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the remaining objects, and where the player takes gold and meets an enemy."""
        met = (x[each, row] == player_x) & (thing[each, row] > 0)
        gold = met & (thing[each, row] & GOLD > 0)
        stays = thing.copy()
        stays[each[gold], row[gold]] = 0
        return stays, gold, met & ~gold

    thing, gold, killed = meet(x, thing)
    moves = (states["move_timer"] == 0)[:, None]
    x = np.where(moves & (thing > 0), x + np.where(thing & RIGHT, 1, -1), x)
    thing = np.where((x < 0) | (x > 9), 0, thing)
    after, more_gold, run_over = meet(x, thing)
    thing = np.where(moves, after, thing)
    more_gold, run_over = more_gold & moves[:, 0], run_over & moves[:, 0]
    move_timer = np.where(moves[:, 0], move_every, states["move_timer"]) - 1

    ramps = (p.difficulty_ramping == "on") & (level < LEVELS - 1)
    rises = ramps & (ramp_timer < 0)
    ramp_timer = np.where(rises, LEVEL_STEPS, ramp_timer - ramps)
    return cd.StepResult(
        state={
            "player_x": player_x,
            "player_y": player_y,
            "thing_x": of_nibbles(np.where(thing > 0, x, 0)),
            "thing": of_nibbles(thing),
            "spawn_timer": spawn_timer,
            "move_timer": move_timer,
            "level": level + rises,
            "ramp_timer": ramp_timer,
            "last_action": chosen,
        },
        reward={"player": (gold * 1.0 + more_gold)[:, None]},
        terminated=killed | run_over,
        events={
            "spawned": due & ~full,
            "no free row": full,
            "gold": gold,
            "gold ran into the player": more_gold,
            "ran into an enemy": killed,
            "run over": run_over,
            "next level": rises,
        },
    )


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states of any level with few or many objects near the player, and timers often due."""
    states = np.zeros(n, [(f.name, f.dtype) for f in state(p)])
    there = rng.random((n, 8)) < rng.choice([0.2, 0.6, 1.0], (n, 1))
    x, kind = rng.integers(0, 10, (n, 8)), rng.integers(0, 4, (n, 8))
    states["thing_x"] = of_nibbles(there * x)
    states["thing"] = of_nibbles(there * (THING + RIGHT * (kind & 1) + GOLD * (kind >> 1)))
    row = rng.integers(0, 8, n)
    states["player_y"] = row + 1
    states["player_x"] = np.clip(x[np.arange(n), row] + rng.integers(-2, 3, n), 0, 9)
    states["level"] = rng.integers(0, LEVELS, n)
    timers = "spawn_timer", "move_timer"
    for name, interval in zip(timers, intervals(states["level"]), strict=True):
        states[name] = rng.integers(0, interval) * (rng.random(n) < 0.5)
    states["ramp_timer"] = rng.choice([-1, 0, 50], n)
    states["last_action"] = rng.integers(0, 5, n)
    return states


SPEC = cd.EnvSpec(
    name="minatar_asterix",
    params=Params,
    state=state,
    groups=GAME.groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, GAME.observe, sample_states),
    constants=GAME.constants,
    cases=({}, {"rules": "gymnax"}),
    display=cd.Display(draw=GAME.draw, keys=GAME.keys, size=(960, 760), fps=8),
    # With 64 environments for 128 steps, twice the learning rate and gae_lambda=0.95: 8.8.
    training={
        "num_envs": 128,
        "steps": 6_000_000,
        "ppo": {
            "hidden": (128, 128),
            "activation": "relu",
            "learning_rate": ((0, 1e-3), (6_000_000, 1e-4)),
            "num_steps": 32,
            "num_minibatches": 8,
            "gae_lambda": 0.8,
            "ent_coef": 0.01,
        },
    },
    # A random policy gets 0.5. One seed gets 13.6 after 6 million steps.
    reward_threshold=10.0,
    summary="Collect gold and avoid enemies (MinAtar's Asterix).",
)
