"""Catalytic reaction paths: move atoms over a catalyst to the place of reaction at low energies.

Source: rules, settings and tables of WarpDrive's "rlchemists" (Lan, Wang & An, Nature
Communications 15, 6281, 2024): hydrogen and nitrogen on iron (111) in the synthesis of ammonia,
with energies from density functional theory. Its kernels were never published.

Start and target are fixed, and atoms move cell by cell. The cost of a move is the energy of the
entered cell above a reference, in units of 20 eV, at least 0 and at most ``-min_reward``. The grid
is periodic, but energies are known only in a slab of it. Leaving the slab costs 1, or
``-min_reward`` if that is less, and the move is canceled. In settings that start at their target's
height, the atom is outside instead, and every step has this cost until it returns. An episode
terminates at the target, where a reward is added that is not clamped. It is truncated after
500 steps, because no clock is observed (upstream reports both as done, but distinguishes them when
it filters episodes).

Of the 102,400 energies of two atoms, 850 are far below any physical value (down to -1.9e11 eV). As
upstream, entering these cells is free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.inputs.data import files
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    import torch

    from cupydrive.drawing.canvas import Canvas

ENERGY_SCALE = 20.0  # eV that cost 1


@dataclass(frozen=True)
class Setting:
    """One published problem."""

    file: str  # upstream's table of energies in eV, over x, y, z - bottom of each atom
    grid: tuple[int, int, int]  # cells of one period along x, y and z
    slab: tuple[int, int]  # (bottom, top): energies are known from z = bottom to top - 1
    start: tuple[int, ...]  # x, y, z of each atom
    target: tuple[int, ...]
    reference: float  # energy that costs nothing, in eV
    terminal_reward: int  # at the target

    @property
    def atoms(self) -> int:
        """Number of atoms, one or two."""
        return len(self.start) // 3

    @property
    def flat(self) -> bool:
        """Whether the atom may leave the slab, as upstream if one atom starts at the target's
        height.
        """
        return self.atoms == 1 and self.start[2] == self.target[2]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells along each coordinate of a state."""
        return self.grid * self.atoms

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the table."""
        return (*self.grid[:2], self.slab[1] - self.slab[0]) * self.atoms

    def cell(
        self, position: Sequence[int] | Sequence[Sequence[int]] | np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Return the table index of one position in the slab, or of (..., coordinates) of them."""
        return tuple(np.moveaxis(np.asarray(position) - (0, 0, self.slab[0]) * self.atoms, -1, 0))


ON_IRON = ("en_array_diffusion.npy", (20, 18, 100), (58, 68))
RELAXED = ("en_array_diffusion_relax.npy", (20, 18, 100), (60, 61))
AMMONIA = ("en_array.npy", (20, 18, 50), (28, 48))
DOUBLE = ("en_array_double_grids.npy", (39, 35, 99), (56, 95))
TWO = ("en_array_2atom_diffusion.npy", (8, 8, 15), (9, 14))
SETTINGS = {
    "diffusion2d": Setting(*ON_IRON, (5, 9, 60), (10, 0, 60), -193.6023, 10),
    "diffusion2d_relaxed": Setting(*RELAXED, (5, 9, 60), (10, 0, 60), -193.69, 10),
    "diffusion3d": Setting(*ON_IRON, (5, 9, 61), (10, 0, 60), -193.6023, 30),
    "surface": Setting(*AMMONIA, (3, 6, 30), (5, 16, 38), -227.689938, 30),
    "gas1": Setting(*AMMONIA, (3, 15, 43), (5, 16, 38), -227.689938, 30),
    "gas2": Setting(*AMMONIA, (3, 12, 45), (5, 16, 38), -227.689938, 30),
    "surface_double_grids": Setting(*DOUBLE, (6, 12, 60), (10, 32, 76), -227.689938, 50),
    "gas2_double_grids": Setting(*DOUBLE, (6, 24, 90), (10, 32, 76), -227.689938, 30),
    "two_atom_diffusion": Setting(*TWO, (4, 4, 10, 4, 4, 11), (0, 4, 10, 0, 4, 11), -200.78, 30),
}


@dataclass(frozen=True)
class Params:
    """The published problem and the cost of a step."""

    setting: str = cd.param(
        "surface", "Published problem: atoms, table, start, target.", choices=tuple(SETTINGS)
    )
    min_reward: float = cd.param(
        -1.0, "Least reward of a step.", low=-1e6, high=0.0, vary=(-1.5, -0.2)
    )
    max_episode_steps: int = cd.param(500, "Time limit.", unit="steps", low=1)


def table_fields(p: Params) -> tuple[cd.Table, ...]:
    """Return the only table: energies above the reference, in eV."""
    return (cd.Table("energy", SETTINGS[p.setting].shape, low=-5.0, high=30.0, unit="eV"),)


def tables(p: Params) -> cd.TableArrays:
    """Return upstream's energies minus the reference.

    The difference is computed in float64, because one float32 ulp of -227.7 eV is 1.5e-5 eV.
    """
    s = SETTINGS[p.setting]
    return {"energy": np.load(files("catalysis")[s.file]).astype(np.float64) - s.reference}


def constants(p: Params) -> dict[str, int]:
    """Return the compile-time constants of the kernel.

    Coordinates of the second atom are 0 if there is only one.
    """
    s = SETTINGS[p.setting]
    named = {"ATOMS": s.atoms, "FLAT": s.flat, "TERMINAL_REWARD": s.terminal_reward}
    named |= {
        "NX": s.grid[0],
        "NY": s.grid[1],
        "NZ": s.grid[2],
        "BOTTOM": s.slab[0],
        "TOP": s.slab[1],
    }
    for name, place in (("START", s.start), ("TARGET", s.target)):
        named |= {
            f"{name}_{axis}{1 + k // 3}": x
            for k, (axis, x) in enumerate(zip("XYZXYZ", (*place, 0, 0, 0), strict=False))
        }
    return {name: int(value) for name, value in named.items()}


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field(
            "position", "i4", (3 * SETTINGS[p.setting].atoms,), unit="cells: x, y, z of each atom"
        ),
        cd.Field(
            "highest",
            scale=100.0,
            unit="eV above the reference: highest energy entered, at least the start's",
        ),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the only group: the agent that moves the atoms."""
    s = SETTINGS[p.setting]
    moves = spaces.Discrete(6) if s.atoms == 1 else spaces.MultiDiscrete([2, 6])
    far = [np.linalg.norm(s.grid) / d for d in start_distances(s)]
    high = np.array([*(1.0,) * 3 * s.atoms, *far], np.float32)
    scale = float(s.terminal_reward)
    return (
        cd.Group(
            "atoms",
            1,
            4 * s.atoms,
            moves,
            obs_scale=high,
            reward_scale=scale,
            obs_low=0.0,
            obs_high=high,
        ),
    )


def start_distances(s: Setting) -> np.ndarray:
    """Return the displacement from start to target of each atom, in cells."""
    return np.linalg.norm(np.subtract(s.start, s.target).reshape(s.atoms, 3), axis=-1)


def fresh(p: Params, n: int, table: SimpleNamespace) -> np.ndarray:
    """Return n states at the start."""
    states, s = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)]), SETTINGS[p.setting]
    states["position"], states["highest"] = s.start, table.energy[s.cell(s.start)]
    return states


def reset(p: Params, random: RandomStream, table: SimpleNamespace) -> np.ndarray:
    """Return (N,) initial states, which are not random."""
    return fresh(p, len(np.atleast_1d(random.env)), table)


def step(
    p: Params,
    states: np.ndarray,
    action: cd.Actions,
    elapsed: np.ndarray,
    random: RandomStream,
    table: SimpleNamespace,
) -> cd.StepResult:
    """Step (N,) states, with energies in float64.

    action["atoms"] is the move (N, 1), or with two atoms the atom and its move (N, 1, 2).
    """
    s = SETTINGS[p.setting]
    before, n = states["position"].astype(np.int64), np.arange(len(states))
    chosen = action["atoms"].reshape(len(states), -1)
    move, atom = chosen[:, -1], chosen[:, 0] * (s.atoms - 1)
    axis, way = 3 * atom + move // 2, 1 - 2 * (move % 2)
    moved = before.copy()
    moved[n, axis] += way
    wrapped = moved % s.sizes
    outside, was_outside = (leaves(s, place) for place in (wrapped, before))
    canceled = outside & (not s.flat)
    after = np.where(canceled[:, None], before, wrapped)
    # Outside the slab, use an arbitrary cell of the table.
    entered = np.where(outside[:, None], s.start, wrapped)
    energy = np.where(outside, ENERGY_SCALE, table.energy[s.cell(entered)].astype(np.float64))
    cost = energy / ENERGY_SCALE
    reached = (after == s.target).all(axis=1)
    highest = states["highest"].astype(np.float64)
    rise = np.where(outside, 0.0, np.maximum(0.0, energy - highest))
    events = {f"moved {'+-'[k % 2]}{'xyz'[k // 2]}": move == k for k in range(6)}
    events |= {
        f"wrapped in {'xyz'[k]}": (wrapped != moved)[:, k::3].any(axis=1) & ~outside for k in (0, 1)
    }
    events |= {
        "left the slab above": outside & ~was_outside & (way > 0) & s.flat,
        "left the slab below": outside & ~was_outside & (way < 0) & s.flat,
        "stayed outside": outside & was_outside,
        "came back": ~outside & was_outside,
        "wrapped in z, outside": (wrapped != moved)[:, 2] & s.flat,
        "canceled above": canceled & (way > 0),
        "canceled below": canceled & (way < 0),
        "moved the second atom": atom == 1,
        "reached the target": reached,
        "reached the target in the last step": reached & (elapsed >= p.max_episode_steps),
        "time ran out": ~reached & (elapsed >= p.max_episode_steps),
        "cost as much as can be": ~outside & (-cost < p.min_reward),
        "cost nothing": ~outside & (cost < 0),
        "cost something between": ~outside & (-cost > p.min_reward) & (cost > 0),
        "higher than ever": rise > 0,
    }
    return cd.StepResult(
        state={"position": after, "highest": highest + rise},
        reward={
            "atoms": (np.clip(-cost, p.min_reward, 0.0) + s.terminal_reward * reached)[:, None]
        },
        terminated=reached,
        metrics={
            "successes": reached.astype(int),
            "invalid_moves": outside.astype(int),
            "barrier_eV": rise,
        },
        events=events,
    )


def leaves(s: Setting, positions: np.ndarray) -> np.ndarray:
    """Return (N,) whether any atom is outside the slab."""
    z = positions[:, 2::3]
    return np.any((z < s.slab[0]) | (z >= s.slab[1]), axis=1)


def observe(
    p: Params, states: np.ndarray, elapsed: np.ndarray, table: SimpleNamespace
) -> cd.Observation:
    """Return observations (N, 1, D): coordinates in periods, then displacements to the target.

    Displacements are relative to the initial ones.
    """
    s = SETTINGS[p.setting]
    position = states["position"].astype(np.float64)
    gaps = np.linalg.norm((position - s.target).reshape(-1, s.atoms, 3), axis=-1) / start_distances(
        s
    )
    return cd.Observation({"atoms": np.concatenate([position / s.sizes, gaps], axis=-1)[:, None]})


def sample_states(
    p: Params, rng: np.random.Generator, n: int, table: SimpleNamespace
) -> np.ndarray:
    """Return n states for a check.

    Coordinates are uniform over the slab, and each is on a boundary of the slab with probability
    0.2. In 30 % of the states the atoms are one move from the target. In flat settings, 30 % of the
    states have a z that may be outside the slab.
    """
    s = SETTINGS[p.setting]
    states, bottom = fresh(p, n, table), np.array((0, 0, s.slab[0]) * s.atoms)
    top = bottom + np.array(s.shape)
    place = rng.integers(bottom, top, (n, 3 * s.atoms))
    edge = np.where(rng.random(place.shape) < 0.5, bottom, top - 1)
    place = np.where(rng.random(place.shape) < 0.2, edge, place)
    near = rng.random(n) < 0.3
    place[near] = s.target
    place[near, rng.integers(0, 3 * s.atoms, near.sum())] += rng.choice([-1, 1], near.sum())
    if s.flat:
        anywhere, ends = (
            rng.integers(0, s.grid[2], n),
            rng.choice([0, s.grid[2] - 1, s.slab[0] - 1, s.slab[1]], n),
        )
        place[:, 2] = np.choose(
            rng.choice(3, n, p=(0.7, 0.15, 0.15)), (place[:, 2], anywhere, ends)
        )
    states["position"] = np.where(place < 0, place + s.sizes, place) % s.sizes
    if not s.flat:
        states["position"] = np.clip(states["position"], bottom, top - 1)
    states["highest"] += rng.choice([0.0, 0.5, 5.0, 50.0], n)
    return states


def whole(x: "np.ndarray | torch.Tensor") -> "np.ndarray | torch.Tensor":
    """Round non-negative numbers, an array or a tensor, to integer indices."""
    return (x + 0.5).astype(np.int64) if isinstance(x, np.ndarray) else (x + 0.5).long()


def heuristic(
    p: Params, obs: "torch.Tensor", group: str, table: SimpleNamespace
) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C) of each head: the move toward the target with the lowest energy."""
    s = SETTINGS[p.setting]
    cells = [whole(obs[..., k] * n) for k, n in enumerate(s.sizes)]
    lowest, move = 1e30 + 0.0 * obs[..., 0], 0 * cells[0]
    for k in range(6 * s.atoms):
        axis, to = k // 2, list(cells)
        n, goal = s.sizes[axis], s.target[axis]
        to[axis] = (cells[axis] + 1 - 2 * (k % 2)) % n
        # both directions around the period
        here, there = (abs((x[axis] - goal + n // 2) % n - n // 2) for x in (cells, to))
        layers = [(z - s.slab[0]).clip(0, s.slab[1] - s.slab[0] - 1) for z in to[2::3]]
        energy = table.energy[
            tuple(c for atom, z in enumerate(layers) for c in (*to[3 * atom : 3 * atom + 2], z))
        ]
        better = (there < here) & (energy < lowest)
        lowest = better * energy + ~better * lowest
        move = better * k + ~better * move
    return (move,) if s.atoms == 1 else (move // 6, move % 6)


@dataclass(frozen=True)
class Optimum:
    """Exact optimum of a setting."""

    total: float  # the greatest return
    actions: np.ndarray  # (T, H) moves of the optimal path
    path: np.ndarray  # (T + 1, coordinates) positions of this path
    barrier: float  # highest energy of the path above the start's, in eV, at least 0
    lowest_barrier: float  # the smallest barrier of any path through the slab, in eV


def best_ways(
    entering: np.ndarray, target: tuple[np.ndarray, ...], add: np.ufunc = np.add
) -> tuple[np.ndarray, np.ndarray]:
    """Find the cheapest path from each cell of a periodic grid to ``target`` exactly.

    The algorithm is dynamic programming. A path moves between neighbors. Its cost is the sum of
    the entering costs of its cells, or their maximum with ``np.maximum``.

    Args:
        entering: Cost of entering each cell, infinite for forbidden cells. It must not be negative
            if costs are summed.
        target: Index of the cell where paths end.
        add: Ufunc that combines two costs.

    Returns:
        The minimum cost of each cell, which is 0 at the target (-inf with ``np.maximum``), and the
        first move. 2 k is one cell up along axis k, 2 k + 1 one cell down, and -1 no path.
    """
    least, first = np.full(entering.shape, np.inf), np.full(entering.shape, -1)
    least[target] = -np.inf if add is np.maximum else 0.0
    changed = True
    while changed:
        changed, through = False, add(entering, least)
        for move in range(2 * entering.ndim):
            by_move = np.roll(through, 2 * (move % 2) - 1, axis=move // 2)
            # Replace a path only by a strictly better one, so that no path contains a cycle of zero
            # cost.
            better = by_move < least
            if better.any():
                changed = True
                least[better], first[better] = by_move[better], move
    return least, first


def optimum(p: Params, table: SimpleNamespace) -> Optimum:
    """Return the ``Optimum`` of parameters ``p`` with a table of energies, without a time limit."""
    s = SETTINGS[p.setting]
    energy = table.energy.astype(np.float64)
    # Above the slab are the cells outside it, up to the bottom of the next period, if atoms may
    # leave the slab.
    beyond = s.grid[2] - (s.slab[1] - s.slab[0]) if s.flat else 1
    outside = [(0, 0), (0, 0), (0, beyond)] * s.atoms
    cost = -np.clip(-energy / ENERGY_SCALE, p.min_reward, 0.0)
    cost = np.pad(cost, outside, constant_values=-max(-1.0, p.min_reward) if s.flat else np.inf)
    start, target = s.cell(s.start), s.cell(s.target)
    total, first = best_ways(cost, target, np.add)
    highest, _ = best_ways(np.pad(energy, outside, constant_values=np.inf), target, np.maximum)
    path, moves = [s.start], []
    while path[-1] != s.target:
        moves.append(int(first[s.cell(path[-1])]))
        place = list(path[-1])
        place[moves[-1] // 2] += 1 - 2 * (moves[-1] % 2)
        path.append(tuple(int(x) % n for x, n in zip(place, s.sizes, strict=True)))
    heights = (
        np.append(energy[s.cell([x for x in path if not leaves(s, np.array([x]))])], energy[start])
        - energy[start]
    )
    actions = (
        np.array(moves)[:, None]
        if s.atoms == 1
        else np.stack([np.array(moves) // 6, np.array(moves) % 6], axis=1)
    )
    lowest = max(0.0, highest[start] - energy[start])
    return Optimum(s.terminal_reward - total[start], actions, np.array(path), heights.max(), lowest)


def yardsticks(p: Params, table: SimpleNamespace) -> dict[str, dict[str, float]]:
    """Return the exact optimum, and the lowest barrier of any path."""
    best = optimum(p, table)
    whole = {
        "return": best.total,
        "length": len(best.actions),
        "successes": 1,
        "barrier_eV": best.barrier,
    }
    return {"optimum": whole, "lowest": {"barrier_eV": best.lowest_barrier}}


PATH, START, TARGET = "#FF8A3D", "#2BC48A", "#E58FBF"
LETTERS, SIDE = 24, 340  # text height and map width in a picture of width 960


def draw(
    canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int, table: SimpleNamespace
) -> None:
    """Draw the path over slices of energies through its end, and its energy profile in eV."""
    s, way = SETTINGS[p.setting], states["position"].astype(np.int64)
    bottom, top = s.slab
    way[:, 2::3] = way[:, 2::3].clip(bottom - 1, top)  # outside the slab is one dark layer
    # energies above the start's
    heights = table.energy.astype(np.float64) - float(table.energy[s.cell(s.start)])
    heights = np.pad(heights, [(0, 0), (0, 0), (1, 1)] * s.atoms, constant_values=np.inf)

    def cell(position: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.moveaxis(position - np.array((0, 0, bottom - 1) * s.atoms), -1, 0))

    target = heights[cell(np.array(s.target))]
    low, high = float(-table.energy[s.cell(s.start)]), max(0.0, target) + 6.0
    canvas.view(0, 960, 0, top=960)
    for k, (a, b) in enumerate(((0, 1), (0, 2)) if s.atoms == 1 else ((0, 1), (3, 4))):
        index: list[Any] = list(cell(way[-1]))
        atom, ends = a // 3, (s.grid[0], s.grid[1])
        index[a], index[b] = slice(None), slice(None)
        left, y = (
            80 + (SIDE + 80) * k,
            (bottom - 1.5, top + 0.5) if b == 2 else (-0.5, ends[1] - 0.5),
        )
        box = (left, 880 - SIDE * (y[1] - y[0]) / ends[0], left + SIDE, 880)
        panel = canvas.panel(box, (-0.5, ends[0] - 0.5), y, LETTERS)
        panel.field(heights[tuple(index)].T, low, high)
        fixed = 3 * atom + (1 if b == 2 else 2)
        plane = f"plane {'xyz'[fixed % 3]} = {states['position'][-1, fixed]}"
        panel.axes(
            "x, cells",
            f"{'xyz'[b % 3]}, cells; {plane}" + f" of atom {atom + 1}" * (s.atoms - 1),
            grid=False,
        )
        panel.way(way[:, [a, b]], (ends[0], 10**6 if b == 2 else ends[1]), 6, PATH)
        for place, color in ((s.start, START), (s.target, TARGET), (way[-1], PATH)):
            panel.dot((place[a], place[b]), 10, color, rim=3)
    canvas.panel((420, 880 - 0.9 * SIDE, 840, 880), (0, 1), (0, 1), LETTERS).scale(low, high)
    canvas.text((80, 937), "colors: energy above the start, eV", LETTERS, anchor="lm")
    canvas.key((START, "start"), (TARGET, "target"), (PATH, "now"))

    along = heights[cell(way)]
    # Costs are equal from 20 eV on.
    along = np.where(np.isfinite(along), along.clip(-ENERGY_SCALE, ENERGY_SCALE), np.nan)
    barrier = np.nanmax(np.append(along, 0.0))
    least, most = min(np.nanmin(np.append(along, 0.0)), target), max(barrier, target) + 0.1
    first, margin = elapsed - len(way) + 1, 0.1 * (most - least)
    panel = canvas.panel(
        (80, 85, 930, 380),
        (first, max(elapsed, first + 20)),
        (least - margin, most + margin),
        LETTERS,
    )
    panel.axes("step", "energy above the start, eV")
    panel.level(target, 3, TARGET)
    panel.level(barrier, 3, PATH)
    panel.line([(first + k, y) for k, y in enumerate(along)], 5, PATH)
    panel.dot((elapsed, barrier if np.isnan(along[-1]) else along[-1]), 9, PATH, rim=2)
    words = (
        "no barrier"
        if barrier == 0
        else f"barrier {barrier:.3f} eV"
        if barrier < ENERGY_SCALE
        else "barrier above 20 eV"
    )
    canvas.text((930, 380 + LETTERS / 3), words, LETTERS, PATH, "rs")


STEPS = 200_000_000
# The entropy coefficient decreases slowly, as in annealing. With fewer steps, training ends on a
# worse path. The discount must be nearly 1, because otherwise shorter paths than the optimum have a
# higher value (at 0.99 in diffusion2d, diffusion3d and surface).
COOLING = ((0.0, 0.06), (0.3, 0.04), (0.5, 0.02), (0.7, 0.008), (0.9, 0.002), (1.0, 0.0005))

SPEC = cd.EnvSpec(
    name="catalysis",
    params=Params,
    state=state,
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    table_fields=table_fields,
    tables=tables,
    metrics={"successes": "int", "invalid_moves": "int", "barrier_eV": "float"},
    cases=tuple({"setting": name} for name in SETTINGS),
    heuristic=heuristic,
    display=cd.Display(
        draw=draw,
        trail=500,
        size=(960, 1054),
        fps=10,
        showcase={
            "still": 1.0,  # the complete path
            "readable": 480,
            "figures": {"successes": "target reached, share", "barrier_eV": "barrier, eV"},
        },
    ),
    yardsticks=yardsticks,
    training={
        "num_envs": 1024,
        "steps": STEPS,
        "ppo": {
            "learning_rate": ((0, 2.5e-3), (STEPS, 1e-4)),
            "gamma": ((0, 0.999), (STEPS // 2, 0.9999)),
            "ent_coef": tuple((int(share * STEPS), weight) for share, weight in COOLING),
            "norm_adv": False,  # normalized advantages would reduce the exploration too fast
            "normalize_obs": True,
            "normalize_reward": True,
        },
    },
    summary="Find the path of least energy of atoms over a catalyst (WarpDrive's rlchemists).",
)
