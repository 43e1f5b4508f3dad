"""All minibatches of an iteration in one block.

The kernels are ``kernels/learn/mma/resident.cu`` and ``kernels/learn/hopper/group_resident.cu``.
They are for runs in parallel, if there are at least as many as resident blocks. Each run has its
own block, which keeps the weights and Adam's moments from the first minibatch to the last. A single
run is faster with the launches of ``tensor.py`` and ``steps.py``, which are split among many
blocks.
If actor and critic are one tower with suitable widths, a block is a warpgroup.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cupydrive.algorithms.kernels.gradients import Columns, Minibatches, Shared, Task
from cupydrive.algorithms.kernels.layout import PAD, NetworkLayout
from cupydrive.algorithms.kernels.steps import Steps
from cupydrive.algorithms.kernels.tensor import (
    GROUPS,
    TENSOR_ROWS,
    TENSOR_THREADS,
    WARP_GROUPS,
    WIDEST_TENSOR,
    Way,
    architecture,
    group_sums,
    grouped,
    minibatch_table,
    register_sums,
    tensor_gradient_unit,
    tower_bytes,
)
from cupydrive.executors.interop import make_call
from cupydrive.protocols import Executor

RESIDENT_ROWS = 256  # maximum rows of a minibatch
RESIDENT_SUMS = 64  # gradient accumulators per thread that allow two resident blocks
GROUP_RESIDENT = Way("hopper/group_resident", GROUPS.rows, GROUPS.threads)


def resident_bytes(layout: NetworkLayout, rows: int) -> int:
    """Return the shared memory of ``struct Workspace`` for tiles of ``rows`` rows, in bytes."""
    numbers = 4 * (layout.gradient - PAD)
    tower = max(tower_bytes(tower, rows) for tower in layout.towers)
    kept = max(tower, numbers) if len(layout.towers) == 1 else tower + numbers
    return kept + 3 * numbers + 4 * rows + 4 * PAD * (TENSOR_THREADS // 32 + 2)


def resident_rows_at_once(layout: NetworkLayout, executor: Executor, rows: int) -> int:
    """Return the rows of a tile for minibatches of ``rows`` rows.

    Tiles that allow a second resident block are preferred.
    """
    fit = [
        n
        for n in TENSOR_ROWS
        if resident_bytes(layout, n) <= executor.team_bytes
        and (n < 2 * rows or n == TENSOR_ROWS[-1])
    ]
    halves = [n for n in fit if resident_bytes(layout, n) <= executor.team_bytes // 2]
    return next(iter(halves or fit), 0)


def group_bytes(tower: Sequence[int]) -> int:
    """Return the maximum shared memory of a block of ``group_resident.cu``, in bytes.

    Args:
        tower: Widths of the tower.
    """
    first, *hidden, last = (
        next(n for n in (PAD, 2 * PAD, WIDEST_TENSOR) if width <= n)
        for width in (tower[0] + 1, *tower[1:])
    )
    weights = sum(into * out for into, out in pairwise((first, *hidden, last)))
    rows = GROUPS.rows * (2 * first + 2 * sum(hidden) + last)
    biases_and_results = WIDEST_TENSOR * (len(tower) - 1) + GROUPS.rows * (last + 1)
    halves, floats = (
        weights + rows + PAD * WIDEST_TENSOR,
        biases_and_results + 2 * average_count(tower),
    )
    # alignment to 1,024 bytes leaves gaps
    return 2 * halves + 4 * floats + 2**10 * (len(tower) + 2)


def average_count(tower: Sequence[int]) -> int:
    """Return the number of weights and padding entries with moments in ``group_resident.cu``."""
    columns = tower[0] + 1, *[WIDEST_TENSOR + 1] * (len(tower) - 3), tower[-1]
    return sum(WIDEST_TENSOR * -(-n // 8) * 8 for n in columns)


def fits_groups(tower: Sequence[int], executor: Executor) -> bool:
    """Return whether two blocks of one warpgroup fit into shared memory and registers."""
    return (
        grouped(tower)
        and group_sums(tower) <= RESIDENT_SUMS
        and group_bytes(tower) <= executor.team_bytes // 2
    )


def resident_way(task: Task) -> Way | None:
    """Return the ``Way`` in which one block learns from all minibatches, or None.

    It is used if training runs share a GPU, with one streaming multiprocessor (SM) per run.
    """
    layout, executor, rows = task.layout, task.executor, task.minibatch_rows
    if (
        executor.name != "cuda"
        or executor.processors > 1
        or not task.shard.ranks.alone
        or rows > RESIDENT_ROWS
        or layout.norm
    ):
        return None
    able = architecture(executor) == WARP_GROUPS and len(layout.towers) == 1
    if able and fits_groups(layout.towers[0], executor):
        return GROUP_RESIDENT
    at_once = resident_rows_at_once(layout, executor, rows)
    return (
        Way("mma/resident", at_once, TENSOR_THREADS)
        if register_sums(layout) <= RESIDENT_SUMS and at_once
        else None
    )


class ResidentGradients(Minibatches):
    """Gradients of one policy's loss, and optimizer steps, in one launch.

    The arguments are those of ``TensorGradients``.
    """

    parts = 1

    def __init__(self, task: Task, columns: Columns, shared: Shared, way: Way) -> None:
        self.program = task.executor.build(tensor_gradient_unit(task, way))
        table = minibatch_table(task.shard, task.rows_of_env, task.minibatches)
        each = set(table[:, 1].tolist())
        self.tiles = -(-int(table[:, 0].max()) // way.rows)
        self.each = each.pop() if len(each) == 1 else 0
        self.table = table.to(task.executor.name)
        super().__init__(task, columns, shared, 1, {"table": self.table} | shared["weights"])

    def learn(self, steps: Steps) -> None:
        """Take the steps of all minibatches from ``arrange``."""
        count = self.epochs * self.minibatches
        ints = {"from": 0, "until": count, "looks": False, "tiles": self.tiles, "each": self.each}
        floats = {"inverse_each": 1 / self.each if self.each else 0.0}
        call = make_call(
            ints, {}, floats=floats, structs={"about": self.call, "update": steps.call}
        )
        self.program.launch(
            "learn_all", call, 1, count * self.rows // self.minibatches * self.layout.packed
        )
