"""Networks too large for one block, on tensor cores: ``kernels/learn/wide``.

Weights are read through the L2 cache. Inputs and gradients of each layer are written to global
memory, from which another kernel computes the weight gradients. As in ``tensor.py``, operands are
rounded to bfloat16, and accumulators and weights are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch

from cupydrive.algorithms.kernels.gradients import (
    GRADIENT_BYTES,
    Columns,
    Minibatches,
    Shared,
    Task,
)
from cupydrive.algorithms.kernels.layout import (
    OBSERVED_BITS,
    PAD,
    PARTS,
    Distribution,
    NetworkLayout,
    distribution_parts,
    padded,
)
from cupydrive.algorithms.kernels.steps import UnpackedSteps
from cupydrive.algorithms.kernels.tensor import (
    SKEW,
    TENSOR_THREADS,
    minibatch_table,
    tile_row_bytes,
    weight_pointers,
)
from cupydrive.codegen.layout import WARP
from cupydrive.codegen.source import Unit
from cupydrive.executors.interop import make_call, zeros
from cupydrive.protocols import Executor

# Possible rows of a block's tile. With more rows, only one block fits into a multiprocessor, and no
# other block hides its latency. Observations of bits take less memory.
WIDE_ROWS, WIDE_ROWS_OF_BITS = (64, 32, 16), (128, 64, 32, 16)
# Tiles shrink until a multiprocessor has this many blocks, which hide each other's latency.
BLOCKS_PER_PROCESSOR = 4
# Maximum rows and columns of a tile of the weight gradient that one block computes.
MOST_OUT, MOST_IN = 128, 128
SMALL_TILE = MOST_OUT * MOST_IN // 4  # largest tile of which a block computes two
SLAB = 64  # rows of a pipeline stage
STAGES = (3, 2)  # possible numbers of stages
FEWEST_SLABS = 4  # minimum slabs per split of the rows. Each split adds work to the reduction
MOST_ROW_BYTES = 2**30  # maximum memory of stored rows. Larger minibatches are computed in parts


def stores_bits(layout: NetworkLayout) -> bool:
    """Return whether observations are rows of bits."""
    return layout.observed == OBSERVED_BITS


def wide_rows(layout: NetworkLayout) -> tuple[int, ...]:
    """Return the possible rows of a block's tile for any sizes, in descending order."""
    return WIDE_ROWS_OF_BITS if stores_bits(layout) else WIDE_ROWS


def wide_fitting(layout: NetworkLayout, executor: Executor) -> list[int]:
    """Return the possible rows of a block's tile in descending order. Empty if none fits.

    Tiles of more than 64 rows are possible only if two blocks fit into a multiprocessor.
    """
    blocks = {n: 1 + (n > WIDE_ROWS[0]) for n in wide_rows(layout)}
    return [n for n, k in blocks.items() if k * wide_bytes(layout, n) <= executor.team_bytes]


def wide_bytes(layout: NetworkLayout, rows: int) -> int:
    """Return the bytes of shared memory of a block for ``rows`` rows of its largest tower."""
    obs_dim = layout.towers[0][0]
    saved = 2 * (padded(obs_dim) + SKEW) - 4 * (words_of(obs_dim) | 1) if stores_bits(layout) else 0
    return (
        rows * (max(tile_row_bytes(tower, tower[-1]) + 4 for tower in layout.towers) - saved)
        + 4 * PAD * TENSOR_THREADS // WARP
        + PAD
    )


def words_of(bits: int) -> int:
    """Return the number of 32-bit words of a row of bits."""
    return -(-bits // 32)


def wide_shape(layout: NetworkLayout, executor: Executor, rows: int) -> int:
    """Return the rows of a block's tile for ``rows`` rows.

    The smallest tile with at most ``BLOCKS_PER_PROCESSOR`` blocks per processor is used, or the
    largest.
    """
    fit = wide_fitting(layout, executor)
    return next(
        (n for n in reversed(fit) if -(-rows // n) <= BLOCKS_PER_PROCESSOR * executor.processors),
        fit[0],
    )


def stages(executor: Executor) -> int:
    """Return the number of pipeline stages of ``kernels/learn/wide/wide_sums.cu``."""
    bytes_of = {n: 2 * n * SLAB * (MOST_OUT + MOST_IN + 2 * SKEW) for n in STAGES}
    return next((n for n in STAGES if bytes_of[n] <= executor.team_bytes), STAGES[-1])


def row_entries(layout: NetworkLayout) -> int:
    """Return the number of stored entries per row."""
    outputs = (2 * sum(map(padded, tower[1:-1])) + padded(tower[-1]) for tower in layout.towers)
    obs_dim = layout.towers[0][0]
    return (2 * words_of(obs_dim) if stores_bits(layout) else padded(obs_dim)) + sum(outputs)


def wide_rows_at_once(layout: NetworkLayout, rows: int) -> int:
    """Return the number of rows of a minibatch whose entries are stored at the same time."""
    largest = wide_rows(layout)[0]
    most = MOST_ROW_BYTES // (2 * row_entries(layout)) // largest * largest
    return min(-(-rows // largest) * largest, most)


def fragment_entries(layout: NetworkLayout) -> int:
    """Return the number of packed weights for forward and backward passes."""
    sizes = [
        [padded(into) * padded(out) for into, out in pairwise(tower)] for tower in layout.towers
    ]
    return sum(sum(tower) + sum(tower[1:]) for tower in sizes)


def sum_units(layout: NetworkLayout) -> int:
    """Return the number of blocks of ``wide_sums.cu`` per split."""
    tiles = [
        m * n
        for into, out in layout.layers
        for m in tile_sizes(padded(out), MOST_OUT)
        for n in tile_sizes(padded(into), MOST_IN)
    ]
    small = sum(size <= SMALL_TILE for size in tiles)
    return len(tiles) - small + -(-small // 2)


def tile_sizes(size: int, most: int) -> list[int]:
    """Return the sizes of the tiles of ``size`` rows or columns."""
    return [most] * (size // most) + [size % most] * (size % most > 0)


def weights_unit(layout: NetworkLayout, executor: Executor) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/wide/wide_weights.cu``."""
    return layout.unit("wide/wide_weights", executor, (("ROWS", WIDE_ROWS[-1]),), team=1)


def wide_forward_unit(
    layout: NetworkLayout, distribution: Distribution, executor: Executor, rows: int
) -> tuple[int, Unit]:
    """Return the rows of a tile and the ``Unit`` of ``kernels/learn/wide/wide_forward.cu``."""
    tile = wide_shape(layout, executor, rows)
    constants, spaces = distribution_parts(distribution)
    return tile, layout.unit(
        "wide/wide_forward", executor, (("ROWS", tile), *constants), spaces, TENSOR_THREADS
    )


def gradient_units(task: Task) -> list[Unit]:
    """Return the ``Unit``s of ``wide_gradient.cu`` and ``wide_sums.cu``."""
    tile = wide_shape(task.layout, task.executor, task.minibatch_rows * len(task.layout.towers))
    constants = (
        ("ROWS", tile),
        ("MOST_OUT", MOST_OUT),
        ("MOST_IN", MOST_IN),
        ("SLAB", SLAB),
        ("STAGES", stages(task.executor)),
    )
    return [
        task.unit(path, constants, TENSOR_THREADS)
        for path in ("wide/wide_gradient", "wide/wide_sums")
    ]


class WideSteps(UnpackedSteps):
    """``Steps`` that also pack the weights for the kernels of wide networks.

    Attributes:
        fragments: Entries of ``fragments`` in wide.cuh, bfloat16.
    """

    def __init__(self, executor: Executor, layout: NetworkLayout, *about: Any) -> None:
        super().__init__(executor, layout, *about)
        self.count = fragment_entries(layout) // 8
        self.fragments = zeros(executor.name, 8 * self.count, dtype=torch.bfloat16)
        self.weights_program = executor.build(weights_unit(layout, executor))
        self.weights_call = make_call({}, self.pointers())

    def pointers(self) -> dict[str, torch.Tensor]:
        """Return the network's tensors that kernels read in addition to ``packed``, by name."""
        return weight_pointers(self.weights) | {"fragments": self.fragments}

    def beside(self, weights: Sequence[torch.Tensor]) -> Self:
        """Return an object that packs other weights of an equal network. It must not take steps."""
        other = super().beside(weights)
        other.fragments = torch.zeros_like(self.fragments)
        other.weights_call = make_call({}, other.pointers())
        return other

    def pack(self) -> None:
        """Pack the weights."""
        super().pack()
        self.pack_fragments()

    def descend(self, epoch: int, minibatch: int) -> None:
        """Take a step with the last gradient, and pack the new weights."""
        super().descend(epoch, minibatch)
        self.pack_fragments()

    def pack_fragments(self) -> None:
        """Write ``fragments``."""
        self.weights_program.launch("pack_fragments", self.weights_call, self.count, 8 * self.count)


class WideGradients(Minibatches):
    """Gradients of one policy's loss. The arguments are those of ``Gradients``.

    The bits are equal in all runs on the same kind of GPU.
    """

    def __init__(self, task: Task, columns: Columns, shared: Shared) -> None:
        executor, layout, towers = task.executor, task.layout, len(task.layout.towers)
        self.program, self.adding = (executor.build(unit) for unit in gradient_units(task))
        self.tile = wide_shape(layout, executor, task.minibatch_rows * towers)
        self.towers = towers
        self.units = sum_units(layout)
        table = minibatch_table(task.shard, task.rows_of_env, task.minibatches)
        self.counts, self.table = table[:, 0].tolist(), table.to(executor.name)
        self.capacity = wide_rows_at_once(layout, max(self.counts))
        wanted = executor.resident_teams(self.adding, "wide_sums") // self.units
        slabs = -(-self.capacity // SLAB)
        splits = max(1, min(wanted, slabs // FEWEST_SLABS, GRADIENT_BYTES // (4 * layout.gradient)))
        self.parts = min(PARTS, splits) if task.shard.ranks.alone else 1
        super().__init__(task, columns, shared, splits)
        left = {"rows": self.zeros(self.capacity * row_entries(layout), dtype=torch.bfloat16)}
        left["reported"] = self.zeros(self.capacity // self.tile * towers, PAD)
        self.memory |= left
        pointers = {"table": self.table[0]} | left | shared["weights"]
        names = ("from", "count", "capacity", "adds")
        members = [
            *((name, "i4") for name in names),
            ("learn", self.call.dtype),
            *((name, "u8") for name in pointers),
        ]
        self.wide = np.zeros((), np.dtype(members, align=True))
        self.wide["capacity"], self.wide["learn"] = self.capacity, self.call
        for name, tensor in pointers.items():
            self.wide[name] = tensor.data_ptr()

    def compute(self, epoch: int, minibatch: int) -> None:
        """Compute ``partial_sums`` of one minibatch from ``arrange``."""
        call, rows = self.wide, self.counts[minibatch]
        call["learn"]["epoch"], call["learn"]["minibatch"] = epoch, minibatch
        call["table"] = self.table[minibatch].data_ptr()
        for first in range(0, rows, self.capacity):
            count = min(self.capacity, rows - first)
            call["from"], call["count"], call["adds"] = first, count, first > 0
            self.program.launch("wide_gradient", call, -(-count // self.tile) * self.towers, count)
            self.adding.launch("wide_sums", call, self.units * self.splits, count)
        self.exchange()
