"""Positions of Connect Four and the moves that keep their value under perfect play.

    python tests/tools/connect_four_positions.py --record     writes data/connect_four.npz anew
    python tests/tools/connect_four_positions.py              solves the late recorded positions again, by ``plain_values``

In the games that the positions come from, every move is the heuristic's or a random one with equal
probability. Positions have 12 to 30 discs, equally many each but for one, and no position or its
mirror image comes twice. Some legal move loses value: it turns a win into a draw or a loss, or a
draw into a loss. ``connect_four_solver.cpp`` computes values of moves: loss -1, draw 0, win 1.

The file has ``states``, (2000,) as the environment's, and ``optimal``, (2000, 7) bool: the moves
that keep the value.
"""

import argparse
import ctypes
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from cupydrive.envs import connect_four
from cupydrive.executors.compiler import compiler

RECORDED = Path(__file__).resolve().parents[1] / "data" / "connect_four.npz"
SOURCE = Path(__file__).with_name("connect_four_solver.cpp")
COUNT, FEWEST, MOST = 2000, 12, 30  # positions and their discs
LATE = 24  # discs from which on ``plain_values`` takes less than a minute
FULL_COLUMN = -2  # in place of a value


@cache
def library() -> ctypes.CDLL:
    """Return the compiled solver."""
    folder = tempfile.mkdtemp()
    path = Path(folder) / "solver.so"
    flags = ("-std=c++17", "-O3", "-shared", "-fPIC")
    subprocess.run([*compiler()[0], *flags, "-o", str(path), str(SOURCE)], check=True)
    return ctypes.CDLL(str(path))


def words(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return discs of the player who is to move and all discs of states (N,), each (N,) uint64."""
    first, second = (
        states[player][:, 0] | states[player][:, 1].astype(np.uint64) << np.uint64(32)
        for player in connect_four.PLAYERS
    )
    second_moves = connect_four.discs(states).sum((1, 2, 3)) % 2 == 1
    return np.where(second_moves, second, first), first | second


def move_values(states: np.ndarray) -> np.ndarray:
    """Return the value of each move under perfect play, (N, 7) int8: -1, 0, 1 or FULL_COLUMN.

    Args:
        states: (N,) states of ``connect_four`` in which nobody has won.
    """
    mine, taken = (np.ascontiguousarray(each) for each in words(states))
    values = np.empty((len(states), connect_four.COLUMNS), np.int8)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (mine, taken, values)]
    library().solve(*pointers[:2], ctypes.c_int64(len(states)), pointers[2])
    return values


def plain_values(board: np.ndarray) -> list[int]:
    """Return the value of each move as ``move_values`` does, by trying all continuations.

    Without bits and bounds, for a check. Takes up to a minute from ``LATE`` discs on.

    Args:
        board: Discs (2, 6, 7) bool of both players, rows from the top.
    """
    start = tuple(
        "".join(
            "xo"[int(board[1, row, column])]
            for row in range(5, -1, -1)
            if board[:, row, column].any()
        )
        for column in range(7)
    )
    seen: dict[tuple[str, ...], int] = {}

    def won(columns: tuple[str, ...], column: int) -> bool:
        """Return whether the topmost disc of a column is in four in line."""
        height = len(columns[column]) - 1
        disc = columns[column][height]
        for right, up in ((0, 1), (1, 0), (1, 1), (1, -1)):
            line = ""
            for k in range(-3, 4):
                x, y = column + k * right, height + k * up
                inside = 0 <= x < 7 and 0 <= y < len(columns[x])
                line += columns[x][y] if inside else " "
            if 4 * disc in line:
                return True
        return False

    def move(columns: tuple[str, ...], column: int) -> int:
        """Return the value of one move for the player who makes it."""
        if len(columns[column]) == 6:
            return FULL_COLUMN
        disc = "xo"[sum(map(len, columns)) % 2]
        after = (*columns[:column], columns[column] + disc, *columns[column + 1 :])
        if won(after, column):
            return 1
        if sum(map(len, after)) == 42:
            return 0
        if after not in seen:
            best = FULL_COLUMN
            for reply in range(7):
                best = max(best, move(after, reply))
                if best == 1:
                    break
            seen[after] = best
        return -seen[after]

    return [move(start, column) for column in range(7)]


def random_games(rng: np.random.Generator, games: int) -> np.ndarray:
    """Return states with FEWEST to MOST discs of games that go on, one after each move."""
    params = connect_four.Params()
    board = np.zeros((games, 2, connect_four.ROWS, connect_four.COLUMNS), bool)
    found = []
    for ply in range(MOST + 1):
        states = connect_four.packed(board)
        if ply >= FEWEST:
            found.append(states)
        seen = connect_four.observe(params, states, np.zeros(games))
        player = connect_four.PLAYERS[ply % 2]
        (advised,) = connect_four.heuristic(params, seen.obs[player], player)
        chance = rng.random((games, 7)) * seen.mask[player][:, 0]
        column = np.where(rng.random(games) < 0.5, advised[:, 0], chance.argmax(1))
        actions = dict.fromkeys(connect_four.PLAYERS, column[:, None])
        result = connect_four.step(params, states, actions, np.full(games, ply + 1), None)
        connect_four.drop(board, column, ~result.terminated)
        board = board[~result.terminated]
        games = len(board)
    return np.concatenate(found)


def record(seed: int = 0) -> None:
    """Find positions of which some legal move loses value, and write them with optimal moves."""
    rng = np.random.default_rng(seed)
    candidates = random_games(rng, 10_000)
    candidates = candidates[rng.permutation(len(candidates))]
    board = connect_four.discs(candidates)
    discs = board.sum((1, 2, 3))
    wanted = {n: COUNT // 19 + (n - FEWEST < COUNT % 19) for n in range(FEWEST, MOST + 1)}
    known: set[bytes] = set()
    kept, optimal = [], []
    for k in range(len(candidates)):
        images = {board[k].tobytes(), board[k, :, :, ::-1].tobytes()}
        if not wanted[discs[k]] or known & images:
            continue
        (values,) = move_values(candidates[k : k + 1])
        known |= images
        if values[values > FULL_COLUMN].min() < values.max():
            kept.append(k)
            optimal.append(values == values.max())
            wanted[discs[k]] -= 1
    if any(wanted.values()):
        raise SystemExit(f"too few games: {wanted} positions are missing")
    order = np.argsort(discs[kept], kind="stable")
    np.savez_compressed(RECORDED, states=candidates[kept][order], optimal=np.array(optimal)[order])


def recorded() -> tuple[np.ndarray, np.ndarray]:
    """Return the recorded states (2000,) and optimal moves (2000, 7) bool."""
    with np.load(RECORDED) as file:
        return file["states"], file["optimal"]


def main() -> None:
    """Record positions, or solve the late ones again."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="write the file anew")
    if parser.parse_args().record:
        record()
    states, optimal = recorded()
    board = connect_four.discs(states)
    late = np.flatnonzero(board.sum((1, 2, 3)) >= LATE)
    for k in late:
        values = np.array(plain_values(board[k]))
        if not np.array_equal(values == values.max(), optimal[k]):
            raise SystemExit(f"position {k}: got {values}, expected {optimal[k]}")
    print(f"{len(states):,} positions, {len(late):,} solved again")


if __name__ == "__main__":
    main()
