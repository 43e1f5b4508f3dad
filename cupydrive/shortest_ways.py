"""Best ways through a periodic grid, exactly, by dynamic programming: what environments on tables are held against."""

import numpy as np


def best_ways(entering, target, add=np.add):
    """Return the least that a way from each cell to ``target`` costs, and the move it begins with.

    Ways go to neighbouring cells; move 2 k is one cell up along axis k, 2 k + 1 one down. A way costs the sum of what its cells
    cost to enter, or with ``np.maximum`` the greatest of them, as with a barrier. All ways grow by a step at a time until none
    gets better, which finds what Dijkstra's algorithm does.

    Args:
        entering: Array: what entering a cell costs, not negative if that is summed; infinite where nobody may.
        target: Index of the cell where ways end.
        add: Ufunc of two costs.

    Returns:
        For each cell the least cost, at the target 0 (-inf with ``np.maximum``), and the move, -1 where there is none.
    """
    least, first = np.full(entering.shape, np.inf), np.full(entering.shape, -1)
    least[target] = -np.inf if add is np.maximum else 0.0
    changed = True
    while changed:
        changed, through = False, add(entering, least)
        for move in range(2 * entering.ndim):
            by_move = np.roll(through, 2 * (move % 2) - 1, axis=move // 2)
            # Only what is better, and not what is equal: so no way goes round in a circle that costs nothing.
            better = by_move < least
            if better.any():
                changed = True
                least[better], first[better] = by_move[better], move
    return least, first
