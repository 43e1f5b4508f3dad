"""Seaquest of MinAtar: rescue divers, shoot fish and submarines, and surface for air.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176); see ``cupydrive/envs/minatar.py``.
What it leaves open is inferred from recorded games and from single steps from states that no game
reaches.

Row 0 is the surface. Fish, and for one in three a submarine that fires every 11 steps, appear at
either side of rows 1 to 8, but never in a row in which others swim against them. Each is worth 1.
Divers appear every 30 steps; six fit on board. Oxygen for 200 steps lasts while the player is under
water. Surfacing refills it, and costs a diver. With six on board it is worth up to ten, by the
oxygen left, and all leave. Without any it ends the game, and so does a touch or an empty tank.
With ramping each surfacing makes enemies more frequent, and six times every second one makes them
faster. As in MinAtar a full load that leaves costs one more: ``aboard`` is -1 then, not 0, and only
surfacing with exactly none ends the game.

Bounds on what is there at once: a bullet flies at most 9 steps, and 5 lie between two. A diver
swims 60 steps. Where an enemy comes every step, each swims 30 steps. Enemy bullets are bits of
cells, since two alike do what one does.
"""

from dataclasses import dataclass

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs import minatar
from cupydrive.random import RandomStream, below

CHANNELS = (
    "sub_front",
    "sub_back",
    "friendly_bullet",
    "trail",
    "enemy_bullet",
    "enemy_fish",
    "enemy_sub",
    "oxygen_guage",
    "diver_guage",
    "diver",
)
MOST = {"enemies": 30, "divers": 2, "bullets": 2}  # at once
# bits of what swims: column, row, whether it swims right, steps until it moves, whether it is a
# submarine, steps until that fires
BITS = {"x": 4, "y": 4, "right": 1, "timer": 4, "armed": 1, "shot_timer": 4}
OXYGEN, CREW = 200, 6
COOLDOWN, ENEMY_COOLDOWN = 5, 10
SPAWN_INTERVAL, MOVE_INTERVAL, DIVER_INTERVAL = 20, 5, 30  # of the first enemies, and of divers
FASTEST = 2  # move interval


@dataclass(frozen=True)
class Params(minatar.RampingParams):
    """Parameters of the rules."""


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    swims = "bits: column 4, row 4, swims right 1, steps to move 4, submarine 1, steps to fire 4"
    lists = [
        field
        for name, most in MOST.items()
        for field in (cd.Field(f"num_{name}", "i4"), cd.Field(name, "u4", (most,), unit=swims))
    ]
    return (
        *lists,
        cd.Field("enemy_bullets", "u4", (10,), unit="bits of columns; flying right from 10"),
        cd.Field("x", "i4", unit="column"),
        cd.Field("y", "i4", unit="row"),
        cd.Field("right", "i4", unit="whether the player faces right"),
        cd.Field("oxygen", "i4", unit="steps under water"),
        cd.Field("aboard", "i4", unit="divers"),
        cd.Field("surfaced", "i4", unit="whether the player is at the surface and breathed"),
        cd.Field("shot_timer", "i4", unit="steps until the player can fire"),
        cd.Field("spawn_timer", "i4", unit="steps until an enemy appears"),
        cd.Field("diver_timer", "i4", unit="steps until a diver appears"),
        cd.Field("spawn_interval", "i4", unit="steps between enemies"),
        cd.Field("move_interval", "i4", unit="steps that an enemy waits in a cell"),
        cd.Field("ramps", "i4", unit="times that the game became faster"),
        minatar.LAST_ACTION,
    )


class Swimmers:
    """A list of what swims, one row of arrays (N, most) for each environment."""

    def __init__(self, states: np.ndarray, name: str) -> None:
        """Read the list from its words."""
        self.name, words, first = name, states[name], 0
        self.there = np.arange(MOST[name]) < states[f"num_{name}"][:, None]
        self.of: dict[str, np.ndarray] = {}
        for part, bits in BITS.items():
            self.of[part] = (words >> np.uint32(first) & np.uint32(2**bits - 1)).astype(int)
            first += bits

    def fields(self) -> dict[str, np.ndarray]:
        """Return the number and the words of those that are there, in their order."""
        order, first = np.argsort(~self.there, axis=1, kind="stable"), 0
        there = np.take_along_axis(self.there, order, 1)
        words = np.zeros(there.shape, np.uint32)
        for part, bits in BITS.items():
            value = np.take_along_axis(self.of[part], order, 1).astype(np.uint32)
            words |= np.where(there, value << np.uint32(first), 0).astype(np.uint32)
            first += bits
        return {f"num_{self.name}": there.sum(1), self.name: words}

    def append(self, where: np.ndarray, **parts: np.ndarray | int) -> None:
        """Add one where asked, (N,) bool; nothing has been removed before. A full list drops it."""
        count = self.there.sum(1)
        rows = np.flatnonzero(where & (count < MOST[self.name]))
        self.there[rows, count[rows]] = True
        for part, values in self.of.items():
            new = np.broadcast_to(parts.get(part, 0), where.shape)
            values[rows, count[rows]] = new[rows]

    def at(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return which of them are in a cell, (N, most) bool."""
        return self.there & (self.of["x"] == x[:, None]) & (self.of["y"] == y[:, None])

    def move(self, moving: np.ndarray) -> None:
        """Move some by a column; those beyond the edge are gone."""
        self.of["x"] = self.of["x"] + np.where(moving, 2 * self.of["right"] - 1, 0)
        self.there = self.there & (self.of["x"] >= 0) & (self.of["x"] <= 9)

    def remove(self, where: np.ndarray, index: np.ndarray) -> None:
        """Remove one where asked."""
        self.there[np.flatnonzero(where), index[where]] = False


def flying(states: np.ndarray) -> np.ndarray:
    """Return enemy bullets that fly left and right, (2, N, 10, 10) bool."""
    bits = states["enemy_bullets"][..., None] >> np.arange(20, dtype=np.uint32) & 1
    return np.stack([bits[..., :10], bits[..., 10:]]) == 1


def packed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return ``enemy_bullets`` (N, 10) of bullets that fly left and right."""
    bits = np.concatenate([left, right], axis=-1).astype(np.uint32)
    return (bits << np.arange(20, dtype=np.uint32)).sum(-1, dtype=np.uint32)


def cells(states: np.ndarray) -> np.ndarray:
    """Return what the player sees, (N, 10, 10, 10) bool."""
    seen, each = minatar.no_cells(len(states), CHANNELS), np.arange(len(states))
    seen[each, states["y"], states["x"], 0] = True
    seen[each, states["y"], states["x"] + 1 - 2 * states["right"], 1] = True
    seen[:, :, :, 4] = flying(states).any(0)
    column = np.arange(10)
    seen[:, 9, :, 7] = column < states["oxygen"][:, None] // (OXYGEN // 10)
    seen[:, 9, :, 8] = (column >= 9 - states["aboard"][:, None]) & (column < 9)
    for name, channel in (("bullets", 2), ("enemies", 5), ("divers", 9)):
        swimmers = Swimmers(states, name)
        row, k = np.nonzero(swimmers.there)
        x, y, right, armed = (swimmers.of[part][row, k] for part in ("x", "y", "right", "armed"))
        seen[row, y, x, channel + armed] = True
        behind = x + 1 - 2 * right
        trail = (behind >= 0) & (behind <= 9) & (name != "bullets")
        seen[row[trail], y[trail], behind[trail], 3] = True
    return seen


GAME = minatar.Game(CHANNELS, ("none", "left", "up", "right", "down", "fire"), cells)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) states at the surface of an empty sea; nothing is random."""
    states = np.zeros(len(random.bits()), [(f.name, f.dtype, f.shape) for f in state(p)])
    states["x"], states["oxygen"], states["surfaced"] = 5, OXYGEN, 1
    states["spawn_interval"] = states["spawn_timer"] = SPAWN_INTERVAL
    states["diver_timer"], states["move_interval"] = DIVER_INTERVAL, MOVE_INTERVAL
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states; action["player"] is (N, 1)."""
    chosen, each = minatar.effective_action(p, states, action, random), np.arange(len(states))
    words, wait = random.bits(draw=1)[:, 0], states["move_interval"]
    enemies, divers, bullets = (Swimmers(states, name) for name in MOST)
    reward = np.zeros(len(states), int)

    # An enemy and a diver appear.
    spawns, dives = states["spawn_timer"] == 0, states["diver_timer"] == 0
    right, armed, row = words[:, 0] >= 2**31, below(words[:, 1], 3) == 0, 1 + below(words[:, 2], 8)
    blocked = (
        enemies.there & (enemies.of["y"] == row[:, None]) & (enemies.of["right"] != right[:, None])
    ).any(1)
    appears = spawns & ~blocked
    enemies.append(
        appears,
        x=9 * ~right,
        y=row,
        right=right,
        timer=wait,
        armed=armed,
        shot_timer=np.where(armed, ENEMY_COOLDOWN, 0),
    )
    way = below(words[:, 3], 16)
    divers.append(dives, x=9 * (way < 8), y=1 + way % 8, right=way >= 8, timer=MOVE_INTERVAL)

    # The player acts.
    x = np.clip(states["x"] + (chosen == 3) - (chosen == 1), 0, 9)
    y = np.clip(states["y"] + (chosen == 4) - (chosen == 2), 0, 8)
    facing = np.where((chosen == 1) | (chosen == 3), chosen == 3, states["right"] == 1)
    fires = (chosen == 5) & (states["shot_timer"] == 0)
    shot_timer = np.where(fires, COOLDOWN, states["shot_timer"])
    bullets.append(fires, x=x, y=y, right=facing)

    # Its bullets fly, the newest first. A fish is hit before a submarine, the oldest first.
    bullets.move(bullets.there)
    hits = {"fish": 0 * reward, "submarine": 0 * reward, "swam into a bullet": 0 * reward}
    for k in reversed(range(MOST["bullets"])):
        for name, kind in (("fish", 0), ("submarine", 1)):
            met = enemies.at(bullets.of["x"][:, k], bullets.of["y"][:, k])
            met &= bullets.there[:, k, None] & (enemies.of["armed"] == kind)
            hit = met.any(1)
            enemies.remove(hit, met.argmax(1))
            bullets.there[hit, k] = False
            hits[name] += hit

    # Divers swim and come on board.
    aboard, rescued = states["aboard"].copy(), np.zeros(len(states), bool)
    touched = divers.at(x, y)
    for k in reversed(range(MOST["divers"])):
        boards = touched[:, k] & (aboard < CREW)
        alone = np.arange(MOST["divers"]) == k
        swims = ~boards & (divers.of["timer"][:, k] == 0)
        waits = np.where(swims, MOVE_INTERVAL, divers.of["timer"][:, k] - 1)
        divers.of["timer"][:, k] = np.where(divers.there[:, k], waits, 0)
        divers.move(swims[:, None] & alone)
        boards |= divers.at(x, y)[:, k] & swims & (aboard < CREW)
        divers.there[:, k] &= ~boards
        aboard += boards
        rescued |= boards

    # Submarines swim and fire, enemy bullets fly, fish swim. The newest swims first, and the
    # player's oldest bullet hits it.
    met = np.zeros((2, len(states)), bool)
    for kind in (1, 0):
        swimming = enemies.there & (enemies.of["armed"] == kind)
        met[kind] = (swimming & enemies.at(x, y)).any(1)
        moving = swimming & (enemies.of["timer"] == 0)
        waits = np.where(moving, wait[:, None], enemies.of["timer"] - 1)
        enemies.of["timer"] = np.where(swimming, waits, enemies.of["timer"])
        enemies.move(moving)
        here = enemies.at(x, y) & swimming
        met[kind] |= here.any(1)
        ready = swimming & enemies.there & (kind == 1)
        for k in range(MOST["bullets"]):
            at = enemies.at(bullets.of["x"][:, k], bullets.of["y"][:, k])
            at &= moving & ~here & bullets.there[:, k, None]
            hit = at.any(1)
            enemies.remove(hit, at.shape[1] - 1 - at[:, ::-1].argmax(1))
            bullets.there[hit, k] = False
            hits["swam into a bullet"] += hit
        if kind == 1:
            firing = ready & (enemies.of["shot_timer"] == 0)
            waits = np.where(firing, ENEMY_COOLDOWN, enemies.of["shot_timer"] - 1)
            enemies.of["shot_timer"] = np.where(ready, waits, enemies.of["shot_timer"])
            flies, (row, k) = flying(states), np.nonzero(firing)
            way = (enemies.of[part][row, k] for part in ("right", "y", "x"))
            to, *cell = way
            flies[to, row, cell[0], cell[1]] = True
            shot = flies[:, each, y, x].any(0)
            flies[0] = np.pad(flies[0], ((0, 0), (0, 0), (0, 1)))[..., 1:]
            flies[1] = np.pad(flies[1], ((0, 0), (0, 0), (1, 0)))[..., :-1]
            shot |= flies[:, each, y, x].any(0)

    # Air.
    under, oxygen = y > 0, states["oxygen"]
    comes_up = ~under & (states["surfaced"] == 0)
    refills = comes_up & (aboard != 0)
    full = refills & (aboard == CREW)
    reward = sum(hits.values()) + np.where(full, oxygen // (OXYGEN // 10), 0)
    aboard = np.where(full, 0, aboard) - refills
    spawn_interval, ramps = states["spawn_interval"], states["ramps"]
    ramping = refills & (p.difficulty_ramping == "on") & ((spawn_interval > 1) | (wait > FASTEST))
    return cd.StepResult(
        state={
            **enemies.fields(),
            **divers.fields(),
            **bullets.fields(),
            "enemy_bullets": packed(*flies),
            "x": x,
            "y": y,
            "right": facing,
            "oxygen": np.where(refills, OXYGEN, oxygen - under),
            "aboard": aboard,
            "surfaced": ~under & ((states["surfaced"] == 1) | refills),
            "shot_timer": np.maximum(shot_timer - 1, 0),
            "spawn_timer": np.where(spawns, spawn_interval, states["spawn_timer"]) - 1,
            "diver_timer": np.where(dives, DIVER_INTERVAL, states["diver_timer"]) - 1,
            "spawn_interval": spawn_interval - (ramping & (spawn_interval > 1)),
            "move_interval": wait - (ramping & (wait > FASTEST) & (ramps % 2 == 1)),
            "ramps": ramps + ramping,
            "last_action": chosen,
        },
        reward={"player": reward[:, None].astype(np.float64)},
        terminated=met.any(0) | shot | (oxygen <= 0) | (comes_up & (aboard == 0) & ~refills),
        metrics={"rescues": full},
        events={
            "an enemy appears": appears,
            "an enemy is blocked": spawns & blocked,
            "a diver appears": dives,
            "the player fires": fires,
            **{f"hit: {name}": count > 0 for name, count in hits.items()},
            "a diver comes on board": rescued,
            "a submarine fires": firing,
            "surfaced": refills,
            "surfaced with a full load": full,
            "faster": ramping,
            "surfaced without divers": comes_up & ~refills,
            "no oxygen": oxygen <= 0,
            "shot": shot,
            "met a submarine": met[1],
            "met a fish": met[0],
        },
    )


def constants(p: Params) -> dict[str, int]:
    """Return the sizes that the kernel needs."""
    return {**GAME.constants(p), **{f"MOST_{name.upper()}": most for name, most in MOST.items()}}


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states with any enemies, divers and bullets, in few rows or in all, timers often due."""
    states = reset(p, RandomStream(0, np.arange(n), 0))
    rows = rng.choice([2, 8], (n, 1))
    for name, most in MOST.items():
        count = rng.integers(0, 1 + np.where(rng.random(n) < 0.2, most, min(most, 6)))
        armed = (name == "enemies") & (rng.random((n, most)) < 0.5)
        timer = rng.integers(0, 6, (n, most)) * (rng.random((n, most)) < 0.5)
        parts = {
            "x": rng.integers(0, 10, (n, most)),
            "y": 1 + rng.integers(0, rows, (n, most)),
            "right": rng.integers(0, 2, (n, most)),
            "timer": timer * (name != "bullets"),
            "armed": armed,
            "shot_timer": armed * rng.integers(0, 11, (n, most)),
        }
        swimmers = Swimmers(states, name)
        swimmers.there = np.arange(most) < count[:, None]
        swimmers.of = {part: values.astype(int) for part, values in parts.items()}
        for field, values in swimmers.fields().items():
            states[field] = values
    flies = np.zeros((2, n, 10, 10), bool)
    flies[:, :, 1:9] = rng.random((2, n, 8, 10)) < 0.2 * rng.random((n, 1, 1))
    states["enemy_bullets"] = packed(*flies)
    for name, low, high in (
        ("y", 0, 8),
        ("right", 0, 1),
        ("oxygen", 0, OXYGEN),
        ("aboard", -2, CREW),
        ("surfaced", 0, 1),
        ("shot_timer", 0, 2),
        ("spawn_timer", 0, 2),
        ("diver_timer", 0, 2),
        ("spawn_interval", 1, SPAWN_INTERVAL),
        ("move_interval", FASTEST, MOVE_INTERVAL),
        ("ramps", 0, 19),
        ("last_action", 0, 5),
    ):
        states[name] = rng.integers(low, high + 1, n)
    states["y"] *= rng.random(n) < 0.7
    states["oxygen"] *= rng.random(n) < 0.9
    states["aboard"] = np.where(rng.random(n) < 0.2, CREW, states["aboard"])
    states["x"] = rng.integers(0, 9, n) + states["right"]  # its back is on the board
    return states


SPEC = cd.EnvSpec(
    name="minatar_seaquest",
    params=Params,
    state=state,
    groups=GAME.groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, GAME.observe, sample_states),
    constants=constants,
    metrics={"rescues": "int"},
    cases=({}, {"rules": "gymnax"}),
    display=cd.Display(draw=GAME.draw, keys=GAME.keys, size=(760, 834), fps=8),
    summary="Rescue divers, shoot fish and submarines, and surface for air (MinAtar's Seaquest).",
)
