"""Seaquest of MinAtar: rescue divers, shoot fish and submarines, and surface for air.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176), see ``cupydrive/envs/minatar.py``.
Enemies appear at either side of rows 1 to 8, but never in a row with enemies of the opposite
direction. One in three is a submarine that fires every 11 steps, and the others are fish. Each is
worth 1. Divers appear every 30 steps, and six fit on board. Oxygen lasts for 200 steps under water,
rows 1 to 8. Surfacing refills it and costs a diver. With six divers on board, surfacing is worth up
to nine, depending on the oxygen left, and all divers leave. Without any diver it ends the game, as
does contact with an enemy or an empty tank. With ramping, each surfacing makes enemies more
frequent, and every second one makes them faster, three times. As in MinAtar, a full load that
leaves costs one more diver. Then -1 divers are aboard, and only 0 divers end the game.

At most 30 enemies, 2 divers and 2 bullets of the player exist at the same time. In the fastest game
an enemy appears every step and swims for 30 steps. A diver swims for 60 steps. A bullet flies for 9
steps, with at least 5 steps between two bullets. Enemy bullets are bits of cells, because two in
one cell have the same effect as one.
"""

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs import minatar
from cupydrive.random import RandomStream, below

CHANNELS = (
    *("sub_front", "sub_back", "friendly_bullet", "trail", "enemy_bullet"),
    *("enemy_fish", "enemy_sub", "oxygen_gauge", "diver_gauge", "diver"),
)
BULLET, FISH, SUBMARINE, DIVER = 2, 5, 6, 9  # kinds of swimmers by channel
PARTS = {"kind": (0, 4), "x": (4, 4), "y": (8, 4)}  # first bit and bits in the word of a swimmer
PARTS |= {"right": (12, 1), "timer": (13, 3), "shot_timer": (16, 4)}
MOST = 34  # maximum number of swimmers
OXYGEN, CREW, COOLDOWN, ENEMY_COOLDOWN = 200, 6, 5, 10
SPAWN_INTERVAL, MOVE_INTERVAL, DIVER_INTERVAL, FASTEST = 20, 5, 30, 2

Params = minatar.RampingParams


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("count", "i4", unit="swimmers"),
        cd.Field("swimmers", "u4", (MOST,), unit="bits of PARTS, the oldest first"),
        cd.Field(
            "enemy_bullets", "u4", (10,), unit="bits of columns, those flying right from bit 10"
        ),
        cd.Field("x", "i4", unit="column"),
        cd.Field("y", "i4", unit="row"),
        cd.Field("right", "i4", unit="whether the player faces right"),
        cd.Field("oxygen", "i4", unit="steps under water"),
        cd.Field("aboard", "i4", unit="divers"),
        cd.Field("surfaced", "i4", unit="whether the player has surfaced and not dived"),
        cd.Field("shot_timer", "i4", unit="steps until the player can fire"),
        cd.Field("spawn_timer", "i4", unit="steps until an enemy appears"),
        cd.Field("diver_timer", "i4", unit="steps until a diver appears"),
        cd.Field("spawn_interval", "i4", unit="steps between enemies"),
        cd.Field("move_interval", "i4", unit="steps that an enemy waits in a cell"),
        cd.Field("ramps", "i4", unit="times that the game became faster"),
        minatar.LAST_ACTION,
    )


class Swimmers:
    """Swimmers as arrays (N, MOST) of each part. Entries of kind 0 are empty."""

    def __init__(self, states: np.ndarray) -> None:
        """Unpack the swimmers from their words."""
        words, self.count = states["swimmers"].astype(int), states["count"].copy()
        self.of = {part: words >> first & 2**n - 1 for part, (first, n) in PARTS.items()}

    def words(self) -> np.ndarray:
        """Pack the remaining swimmers into words, in their order."""
        words = sum(self.of[part] << first for part, (first, _) in PARTS.items())
        order = np.argsort(self.of["kind"] == 0, axis=1, kind="stable")
        left = np.where(self.of["kind"] > 0, words, 0)
        return np.take_along_axis(left, order, 1).astype(np.uint32)

    def append(self, where: np.ndarray, **parts: np.ndarray | int) -> None:
        """Append a swimmer where ``where`` (N,) is True. A full list drops it."""
        rows = np.flatnonzero(where & (self.count < MOST))
        for part, values in self.of.items():
            new = np.broadcast_to(parts.get(part, 0), where.shape)
            values[rows, self.count[rows]] = new[rows]
        self.count[rows] += 1

    def at(self, kind: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return which swimmers are of a kind and in a cell, (N, MOST) bool."""
        cell = (self.of["x"] == x[:, None]) & (self.of["y"] == y[:, None])
        return cell & (self.of["kind"] == kind)

    def remove(self, k: int, hit: np.ndarray) -> np.ndarray:
        """Remove swimmer k and the oldest of ``hit`` (N, MOST), and return where there is one."""
        (rows,) = np.nonzero(there := np.asarray(hit.any(1)))
        self.of["kind"][rows, hit.argmax(1)[rows]] = self.of["kind"][rows, k] = 0
        return there

    def move(self, k: int, moving: np.ndarray) -> None:
        """Move swimmer k by a column where ``moving`` (N,), and remove it beyond the edge."""
        self.of["x"][:, k] += moving * (2 * self.of["right"][:, k] - 1)
        self.of["kind"][(self.of["x"][:, k] < 0) | (self.of["x"][:, k] > 9), k] = 0


def cells(states: np.ndarray) -> np.ndarray:
    """Return the observed channels, (N, 10, 10, 10) bool."""
    seen, each = minatar.no_cells(len(states), CHANNELS), np.arange(len(states))
    column = np.arange(10)
    seen[each, states["y"], states["x"], 0] = True
    seen[each, states["y"], states["x"] + 1 - 2 * states["right"], 1] = True
    bullets = states["enemy_bullets"] | states["enemy_bullets"] >> 10
    seen[..., 4] = bullets[..., None] >> column & 1
    seen[:, 9, :, 7] = column < states["oxygen"][:, None] // (OXYGEN // 10)
    seen[:, 9, :, 8] = (column >= 9 - states["aboard"][:, None]) & (column < 9)
    swimmers = Swimmers(states).of
    row, k = np.nonzero(swimmers["kind"])
    kind, x, y, right = (swimmers[part][row, k] for part in ("kind", "x", "y", "right"))
    seen[row, y, x, kind] = True
    behind = x + 1 - 2 * right
    trail = (behind >= 0) & (behind <= 9) & (kind != BULLET)
    seen[row[trail], y[trail], behind[trail], 3] = True
    return seen


GAME = minatar.Game(CHANNELS, ("none", "left", "up", "right", "down", "fire"), cells)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) states at the surface of an empty sea. Nothing is random."""
    states = np.zeros(len(random.bits()), [(f.name, f.dtype, f.shape) for f in state(p)])
    states["x"], states["oxygen"], states["surfaced"] = 5, OXYGEN, 1
    states["spawn_interval"] = states["spawn_timer"] = SPAWN_INTERVAL
    states["diver_timer"], states["move_interval"] = DIVER_INTERVAL, MOVE_INTERVAL
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    chosen = minatar.effective_action(p, states, action, random)
    words, wait, sea = random.bits(draw=1)[:, 0], states["move_interval"], Swimmers(states)
    of = sea.of

    # An enemy and a diver appear.
    spawns, dives = states["spawn_timer"] == 0, states["diver_timer"] == 0
    right, row = words[:, 0] >= 2**31, 1 + below(words[:, 2], 8)
    enemy = np.where(below(words[:, 1], 3) == 0, SUBMARINE, FISH)
    against = (of["y"] == row[:, None]) & (of["right"] != right[:, None])
    blocked = (against & ((of["kind"] == FISH) | (of["kind"] == SUBMARINE))).any(1)
    to_fire = (enemy == SUBMARINE) * ENEMY_COOLDOWN
    enters = {"kind": enemy, "x": 9 * ~right, "y": row, "right": right}
    sea.append(spawns & ~blocked, **enters, timer=wait, shot_timer=to_fire)
    right, row = below(words[:, 3], 16) >= 8, 1 + below(words[:, 3], 16) % 8
    sea.append(dives, kind=DIVER, x=9 * ~right, y=row, right=right, timer=MOVE_INTERVAL)

    # The player acts.
    x = np.clip(states["x"] + (chosen == 3) - (chosen == 1), 0, 9)
    y = np.clip(states["y"] + (chosen == 4) - (chosen == 2), 0, 8)
    right = np.where((chosen == 1) | (chosen == 3), chosen == 3, states["right"] == 1)
    fires = (chosen == 5) & (states["shot_timer"] == 0)
    sea.append(fires, kind=BULLET, x=x, y=y, right=right)

    # Its bullets fly, then divers, submarines, enemy bullets and fish move, the newest first.
    hits, meets = {}, dict[int, np.ndarray]()
    newest = range(int(sea.count.max(initial=0)) - 1, -1, -1)
    hits["fish"], hits["submarine"], hits["in its way"] = np.zeros((3, len(states)), int)
    for k in newest:
        sea.move(k, of["kind"][:, k] == BULLET)
        for name, target in (("fish", FISH), ("submarine", SUBMARINE)):
            met = sea.at(target, of["x"][:, k], of["y"][:, k])
            hits[name] += sea.remove(k, met & (of["kind"][:, k, None] == BULLET))
    aboard, bullets = states["aboard"].copy(), states["enemy_bullets"].astype(int)
    for kind in (DIVER, SUBMARINE, FISH):
        meets[kind] = np.zeros(len(states), bool)
        for k in newest:
            mine, room = of["kind"][:, k] == kind, (kind == DIVER) & (aboard < CREW)
            met = sea.at(kind, x, y)[:, k]
            waits = mine & ~(met & room)
            moves = waits & (of["timer"][:, k] == 0)
            of["timer"][waits, k] -= 1
            of["timer"][moves, k] = MOVE_INTERVAL if kind == DIVER else wait[moves]
            sea.move(k, moves)
            here, swims = sea.at(kind, x, y)[:, k], of["kind"][:, k] == kind
            met |= here
            meets[kind] |= met & ((kind != DIVER) | room)
            if kind == DIVER:
                aboard += met & room
                of["kind"][met & room, k] = 0
                continue
            bullet = sea.at(BULLET, of["x"][:, k], of["y"][:, k])
            hits["in its way"] += sea.remove(k, bullet & (moves & swims & ~here)[:, None])
            if kind == SUBMARINE:
                ready = swims & (of["shot_timer"][:, k] == 0)
                of["shot_timer"][swims, k] -= 1
                of["shot_timer"][ready, k] = ENEMY_COOLDOWN
                to = of["x"][ready, k] + 10 * of["right"][ready, k]
                bullets[ready, of["y"][ready, k]] |= 1 << to
        if kind == SUBMARINE:
            passed = bullets[np.arange(len(x)), y]
            bullets = (bullets & 1023) >> 1 | (bullets >> 10 << 11) & 1023 << 10
            passed |= bullets[np.arange(len(x)), y]
            shot = (passed | passed >> 10) >> x & 1 == 1

    # Air.
    under, oxygen = y > 0, states["oxygen"]
    comes_up = ~under & (states["surfaced"] == 0)
    refills = comes_up & (aboard != 0)
    full = refills & (aboard == CREW)
    spawn_interval, ramps = states["spawn_interval"], states["ramps"]
    ramping = refills & (p.difficulty_ramping == "on") & ((spawn_interval > 1) | (wait > FASTEST))
    left = sea.words()
    return cd.StepResult(
        state={
            "count": (left > 0).sum(1),
            "swimmers": left,
            "enemy_bullets": bullets,
            "x": x,
            "y": y,
            "right": right,
            "oxygen": np.where(refills, OXYGEN, oxygen - under),
            "aboard": np.where(full, 0, aboard) - refills,
            "surfaced": ~under & ((states["surfaced"] == 1) | refills),
            "shot_timer": np.where(fires, COOLDOWN - 1, np.maximum(states["shot_timer"] - 1, 0)),
            "spawn_timer": np.where(spawns, spawn_interval, states["spawn_timer"]) - 1,
            "diver_timer": np.where(dives, DIVER_INTERVAL, states["diver_timer"]) - 1,
            "spawn_interval": spawn_interval - (ramping & (spawn_interval > 1)),
            "move_interval": wait - (ramping & (wait > FASTEST) & (ramps % 2 == 1)),
            "ramps": ramps + ramping,
            "last_action": chosen,
        },
        reward={"player": (sum(hits.values()) + full * (oxygen // (OXYGEN // 10)))[:, None] * 1.0},
        terminated=meets[SUBMARINE] | meets[FISH] | shot | (oxygen <= 0) | (comes_up & ~refills),
        metrics={"rescues": full},
        events={
            "an enemy is blocked": spawns & blocked,
            **{f"hit: {name}": count > 0 for name, count in hits.items()},
            "a diver comes aboard": meets[DIVER],
            "faster": ramping,
            "surfaced with a full load": full,
            "surfaced without divers": comes_up & ~refills,
            "no oxygen": oxygen <= 0,
            "shot": shot,
            "met a submarine": meets[SUBMARINE],
            "met a fish": meets[FISH],
        },
    )


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states with any swimmers and bullets, in two rows or in all, timers often due."""
    sea = Swimmers(states := reset(p, RandomStream(0, np.arange(n), 0)))
    there = np.arange(MOST) < rng.integers(0, 1 + rng.choice([8, MOST], (n, 1), p=[0.8, 0.2]))
    sea.of["kind"] = there * rng.choice([BULLET, FISH, SUBMARINE, DIVER], there.shape)
    sea.of["x"], sea.of["right"] = rng.integers(0, 10, there.shape), rng.integers(0, 2, there.shape)
    sea.of["y"] = 1 + rng.integers(0, rng.choice([2, 8], (n, 1)), there.shape)
    sea.of["timer"] = rng.integers(0, 6, there.shape) * rng.integers(0, 2, there.shape)
    sea.of["shot_timer"] = rng.integers(0, 3, there.shape)
    states["swimmers"], states["count"] = sea.words(), there.sum(1)
    bullets = rng.random((n, 8, 20)) < 0.2 * rng.random((n, 1, 1))
    states["enemy_bullets"][:, 1:9] = (bullets << np.arange(20)).sum(-1)
    for name in ("shot_timer", "spawn_timer", "diver_timer"):
        states[name] = rng.integers(0, 3, n)
    states["right"], states["surfaced"], states["ramps"] = rng.integers(0, [[2], [2], [20]], (3, n))
    states["x"] = rng.integers(0, 9, n) + states["right"]  # its back is on the board
    states["y"] = rng.integers(0, 9, n) * (rng.random(n) < 0.7)
    states["oxygen"] = rng.integers(0, OXYGEN + 1, n) * (rng.random(n) < 0.9)
    states["aboard"] = np.minimum(rng.integers(-2, 10, n), CREW)
    states["spawn_interval"], states["last_action"] = rng.integers([[1], [0]], [[21], [6]], (2, n))
    states["move_interval"] = rng.integers(FASTEST, MOVE_INTERVAL + 1, n)
    return states


SPEC = cd.EnvSpec(
    name="minatar_seaquest",
    params=Params,
    state=state,
    groups=GAME.groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, GAME.observe, sample_states),
    constants=GAME.constants,
    metrics={"rescues": "int"},
    cases=({}, {"rules": "gymnax"}),
    display=cd.Display(draw=GAME.draw, keys=GAME.keys, size=(960, 760), fps=8),
    training=minatar.suggested(6_000_000),
    # A random policy gets 0.1. One seed gets 30 after 6 million steps.
    reward_threshold=20.0,
    summary="Rescue divers, shoot fish and submarines, and surface for air (MinAtar's Seaquest).",
)
