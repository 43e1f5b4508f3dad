"""Battleship of POPGym: sink four hidden ships, observing only whether the last shot hit.

Source: Battleship in POPGym 1.0.7 (Morad, Kortvelesy, Bettini, Liwicki & Prorok, ICLR 2023). Ships
of 2, 3, 3 and 4 cells lie along rows or columns of a board of 8 x 8 (easy), 10 x 10 (medium) or
12 x 12 cells (hard). Each ship is uniform over the places that the earlier ones leave free. The
rewards of all hits sum to 1. A repeated shot at a cell is a miss. There are as many shots as cells.

The observation has one-hot entries: miss or hit, then the row and the column of the last shot, 0
before the first. POPGym requires the previous action, which its wrapper PreviousAction adds.

For interactive play use ``fps=1``. A letter chooses the row, and a digit, x or y the column. While
no key is pressed, the last shot is repeated.
"""

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.envs.repeat_previous import NETWORK, pack, unpack
from cupydrive.random import RandomStream, below

if TYPE_CHECKING:
    import torch

    from cupydrive.drawing.canvas import Canvas

SIZES = {"easy": 8, "medium": 10, "hard": 12}
SHIPS = (2, 3, 3, 4)
ROWS, COLUMNS = "abcdefghijkl", "1234567890xy"  # keys


@dataclass(frozen=True)
class Params:
    """The board."""

    difficulty: str = cd.param("easy", "Board of 8, 10 or 12 cells a side.", choices=tuple(SIZES))
    max_episode_steps: int = cd.param(
        0, "Number of shots. 0 is one for each cell: 64, 100 or 144.", unit="steps", low=0
    )

    def __post_init__(self) -> None:
        """Fill in the number of cells as the time limit."""
        cells = SIZES[self.difficulty] ** 2
        object.__setattr__(self, "max_episode_steps", self.max_episode_steps or cells)


def constants(p: Params) -> dict[str, int]:
    """Return the compile-time constants of the kernel."""
    size = SIZES[p.difficulty]
    return {"SIZE": size, "WORDS": -(-(size**2) // 32), "SHIP_CELLS": sum(SHIPS)}


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    words = (constants(p)["WORDS"],)
    return (
        cd.Field("ships", "u4", words, unit="bits of cells"),
        cd.Field("shots", "u4", words, unit="bits of cells"),
        cd.Field("last", "i4", unit="cell, -1 before the first shot"),
        cd.Field("hit", "i4", unit="whether the last shot hit"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the player."""
    size = SIZES[p.difficulty]
    board, scale = spaces.MultiDiscrete([size, size]), 1 / sum(SHIPS)
    return (cd.Group("player", 1, 2 + 2 * size, board, 1.0, scale, obs_low=0.0, obs_high=1.0),)


def boards(p: Params, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ships and shots, each (N, cells) bool."""
    cells = SIZES[p.difficulty] ** 2
    return unpack(states["ships"], 1)[:, :cells] == 1, unpack(states["shots"], 1)[:, :cells] == 1


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) boards with four ships, exact. An occupied place is drawn again."""
    size, n = SIZES[p.difficulty], len(random.bits())
    board = np.zeros((n, size, size), bool)
    for ship, length in enumerate(SHIPS):
        waiting = np.ones(n, bool)
        for draw in count():
            words = random.bits(1, draw, first_agent=ship)[:, 0]
            along, across = below(words[:, 1], size - length + 1), below(words[:, 2], size)
            line = along[:, None] + np.arange(length)
            place = np.stack([across[:, None] + 0 * line, line])
            down = words[:, 0] >= 2**31
            place[:, down] = place[::-1, down]
            cell = np.arange(n)[:, None], *place
            free = waiting & ~board[cell].any(axis=1)
            board[cell] |= free[:, None]
            waiting &= ~free
            if not waiting.any():
                break
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["ships"] = pack(board.reshape(n, -1), 1)
    states["last"] = -1
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1, 2)."""
    size, each, (ships, shots) = SIZES[p.difficulty], np.arange(len(states)), boards(p, states)
    cell = action["player"][:, 0, 0] * size + action["player"][:, 0, 1]
    again = shots[each, cell]
    hit = ships[each, cell] & ~again
    shots[each, cell] = True
    sunk = (ships & shots).sum(axis=1) == sum(SHIPS)
    reward = np.where(hit, 1 / sum(SHIPS), -1 / (size**2 - sum(SHIPS)))
    return cd.StepResult(
        state={"ships": states["ships"], "shots": pack(shots, 1), "last": cell, "hit": hit},
        reward={"player": reward[:, None]},
        terminated=sunk,
        metrics={"repeats": again},
        events={"hit": hit, "miss": ~hit, "shot again": again, "all sunk": sunk},
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return one-hot outcome, row and column of the last shot, (N, 1, 2 + 2 size)."""
    size, last = SIZES[p.difficulty], states["last"][:, None]
    board = np.arange(size**2).reshape(size, size)
    at = last[..., None] == board  # (N, size, size)
    outcome = states["hit"][:, None] == np.arange(2)
    seen = np.concatenate([outcome, at.any(axis=2), at.any(axis=1)], axis=1)
    return cd.Observation({"player": seen[:, None].astype(np.float64)})


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw boards with any fraction of cells shot at, some of them with one cell left."""
    states = reset(p, RandomStream(int(rng.integers(2**32)), np.arange(n), 0))
    ships, each = boards(p, states)[0], np.arange(n)
    shots = rng.random(ships.shape) < 1.2 * rng.random((n, 1))
    last = rng.integers(0, ships.shape[1], n)
    shots[each, last] = True
    # At least one cell of a ship is left, so that the task continues.
    shots[each, np.argmax(ships * rng.random(ships.shape), axis=1)] = False
    states["shots"], states["last"] = pack(shots, 1), last
    states["hit"] = ships[each, last] & (rng.random(n) < 0.5)
    return states


def heuristic(p: Params, obs: "torch.Tensor", group: str) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C) of both heads: sweep the board cell by cell."""
    size = SIZES[p.difficulty]
    seen = obs[..., 2:] > 0.5
    row, column = (sum(k * seen[..., first + k] for k in range(size)) for first in (0, size))
    began = 1 * seen.any(-1)
    cell = (row * size + column + began) % size**2
    return cell // size, cell % size


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw the board with its ships, shots and the keys of rows and columns."""
    size, now = SIZES[p.difficulty], states[-1:]
    canvas.view(-0.8, size + 0.1, -0.1, top=size + 0.8)
    (ships,), (shots,) = boards(p, now)
    for cell, (ship, shot) in enumerate(zip(ships, shots, strict=True)):
        x, y = cell % size, size - 1 - cell // size
        if cell == now["last"][0]:
            canvas.rectangle(x, y, x + 1, y + 1, canvas.YELLOW)
        canvas.rectangle(x + 0.06, y + 0.06, x + 0.94, y + 0.94, canvas.FLOOR)
        if ship:
            color = canvas.ORANGE if shot else canvas.BLUE
            canvas.rectangle(x + 0.14, y + 0.14, x + 0.86, y + 0.86, color)
        elif shot:
            canvas.circle((x + 0.5, y + 0.5), 0.16, canvas.GRAY)
    for k in range(size):
        canvas.text((-0.4, size - 0.5 - k), ROWS[k], 0.5, canvas.SOFT)
        canvas.text((k + 0.5, size + 0.4), COLUMNS[k], 0.5, canvas.SOFT)
    hits = int((ships & shots).sum())
    canvas.key((canvas.BLUE, "left", sum(SHIPS) - hits), (canvas.ORANGE, "hit", hits))


def keys(p: Params) -> dict[str, dict[str, tuple[int | None, int | None]]]:
    """Return the keys of rows and columns. A key changes only its row or column."""
    size = SIZES[p.difficulty]
    rows = {key: (k, None) for k, key in enumerate(ROWS[:size])}
    columns = {key: (None, k) for k, key in enumerate(COLUMNS[:size])}
    return {"player": {"": (None, None), **rows, **columns}}


SPEC = cd.EnvSpec(
    name="battleship",
    params=Params,
    state=state,
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    metrics={"repeats": "int"},
    cases=({}, {"difficulty": "medium"}, {"difficulty": "hard"}),
    heuristic=heuristic,
    display=cd.Display(
        draw=draw,
        keys=keys,
        size=(760, 834),
        fps=8,
        # About ten minutes of training on two CPU cores.
        showcase={
            "num_envs": 64,
            "steps": 15_000_000,
            "ppo": {
                "learning_rate": ((0, 3e-3), (15_000_000, 3e-4)),
                "ent_coef": ((0, 0.003), (10_000_000, 0.0)),
            },
        },
    ),
    # A shot's immediate reward has nearly all information, and later rewards add noise. In 4
    # million steps a GRU of 128 units improves from -0.45 to -0.27.
    training={
        "num_envs": 512,
        "steps": 30_000_000,
        "ppo": {
            "network": NETWORK,
            "learning_rate": ((0, 2e-3), (30_000_000, 1e-4)),
            "num_steps": 64,
            "gamma": 0.0,
            "gae_lambda": 0.0,
            "ent_coef": ((0, 0.003), (20_000_000, 0.0)),
            "normalize_reward": True,
        },
    },
    # One shot at every cell gives 0. A policy that never repeats a shot gets 0.17.
    reward_threshold=0.0,
    summary="Sink hidden ships, observing only hit or miss (POPGym's Battleship).",
)
