"""Gradients and forward passes on tensor cores: ``kernels/learn/mma`` and ``kernels/learn/hopper``.

Gradients of many rows are computed by ``hopper/group_gradient.cu`` if the widths of all layers suit
a warpgroup, otherwise by ``mma/tensor_gradient.cu``. Forward passes are computed by
``mma/warp_forward.cu`` if layers fit into the registers of a warp, otherwise by
``mma/tensor_forward.cu``.

Operands are rounded to bfloat16. Accumulators and weights are float32. A CPU has the same kernels
for tests. Letters: T steps, N environments, B blocks of environments, as in
``kernels/learn/minibatches.cuh``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from cupydrive.algorithms.kernels.gradients import Columns, Minibatches, Shared, Task
from cupydrive.algorithms.kernels.layout import (
    ADDERS_AT_ONCE,
    PAD,
    PARTS,
    Distribution,
    NetworkLayout,
    distribution_parts,
    padded,
)
from cupydrive.codegen.layout import WARP
from cupydrive.codegen.source import Unit
from cupydrive.executors.ranks import Shard
from cupydrive.protocols import Executor

SKEW = 8  # padding entries between the rows of a matrix in shared memory
TENSOR_ROWS = (128, 64, 32, 16)  # allowed rows of a block's tile
TENSOR_THREADS, FEW_THREADS = 256, 128  # threads per block below MANY_ROWS rows, and from there on
MANY_ROWS = 2**18
MOST_SUMS = 128  # gradient accumulators per thread
WARP_GROUPS = 90  # the only architecture with wgmma
WIDEST_TENSOR = 64  # widest layer of a warpgroup. Hidden layers have more than half this width
WARP_ROWS = 32  # tile rows of a warp in a forward pass
WARPS_AT_ONCE = 16  # warps per multiprocessor. With more rows, each warp has its own rows
MANY_GROUP_ROWS = 2**17  # rows of a minibatch from which warpgroups are faster
MOST_GROUP_SUMS = 140  # gradient accumulators per thread of a warpgroup
# Number of splits that one thread adds if there are many gradients. Equals AT_ONCE of
# kernels/learn/update.cu.
FEW_SPLITS = 8
SHARING = (4, 2)  # numbers of blocks that share a tile if processors would be idle otherwise
OLDEST = 80  # first architecture whose tensor cores support bfloat16


def why_no_tensor(executor: Executor) -> str | None:
    """Return why there are no tensor cores for bfloat16, or None if there are."""
    if executor.name == "cpu":
        return "a CPU has no tensor cores for bfloat16"
    if architecture(executor) < OLDEST:
        return (
            f"this GPU is sm_{architecture(executor)}, but tensor cores take bfloat16 from "
            f"sm_{OLDEST} on"
        )
    return None


def architecture(executor: Any) -> int:
    """Return the compute capability of a GPU, such as 90, or 0 for a CPU."""
    return int(executor.device.compute_capability) if executor.name == "cuda" else 0


def block_bytes(layout: NetworkLayout, rows: int) -> int:
    """Return the bytes of shared memory of a block for ``rows`` rows of its largest tower."""
    return (
        max(tower_bytes(t, rows) + layout.norm * norm_bytes(t, rows) for t in layout.towers)
        + rows * 4
        + 4 * PAD * TENSOR_THREADS // WARP
        + PAD
    )


def tower_bytes(tower: Sequence[int], rows: int) -> int:
    """Return the size of one tower's weights, rows and results, in bytes.

    Args:
        tower: Widths from the observation to the output.
        rows: Rows of a tile.
    """
    return weight_bytes(pairwise(tower)) + rows * tile_row_bytes(tower, tower[-1])


def norm_bytes(tower: Sequence[int], rows: int) -> int:
    """Return the additional bytes of a tower's layer normalizations, as for ``tower_bytes``."""
    hidden = [padded(width) for width in tower[1:-1]]
    return sum(rows * (2 * (width + SKEW) + 4) + 8 * width for width in hidden)


def weight_bytes(layers: Iterable[tuple[int, int]]) -> int:
    """Return the bytes of bfloat16 weights and float32 biases of layers (inputs, outputs)."""
    return sum(padded(out) * (2 * (padded(into) + SKEW) + 4) for into, out in layers)


def tile_row_bytes(widths: Sequence[int], results: int) -> int:
    """Return the bytes of one row with bfloat16 entries of these widths, and float32 results."""
    return 2 * sum(padded(width) + SKEW for width in widths) + 4 * (padded(results) + 1)


def register_sums(layout: NetworkLayout, threads: int = TENSOR_THREADS) -> int:
    """Return the number of gradient accumulators in registers of each of ``threads`` threads."""
    warps = threads // WARP

    def sums(tower: Sequence[int]) -> int:
        blocks = [(padded(out) // PAD, padded(into) // PAD) for into, out in pairwise(tower)]
        pairs = sum(-(-padded(width) // 2 // threads) for width in tower[1:-1])
        return sum(8 * -(-m * n // warps) + 4 * -(-m // warps) for m, n in blocks) + (
            4 * layout.norm * pairs
        )

    return max(map(sums, layout.towers))


def fitting_rows(layout: NetworkLayout, executor: Executor) -> list[int]:
    """Return the possible rows of a block's tile in descending order. Empty if none fits."""
    if register_sums(layout) > MOST_SUMS:
        return []
    return [n for n in TENSOR_ROWS if block_bytes(layout, n) <= executor.team_bytes]


def block_shape(layout: NetworkLayout, executor: Executor, rows: int) -> tuple[int, int]:
    """Return (rows of a tile, threads) of a block for ``rows`` rows.

    The tile is as large as possible while every processor has a block.
    """
    fit = fitting_rows(layout, executor)
    few = register_sums(layout, FEW_THREADS) <= MOST_SUMS and TENSOR_ROWS[1] in fit
    # smaller blocks share a processor and have cheaper barriers
    if rows >= MANY_ROWS and few:
        return TENSOR_ROWS[1], FEW_THREADS
    most = rows * len(layout.towers) // executor.processors
    return next((n for n in fit if n <= most), fit[-1]), TENSOR_THREADS


def tensor_forward_unit(
    layout: NetworkLayout, distribution: Distribution, executor: Executor, rows: int
) -> tuple[int, Unit]:
    """Return the rows of a block's tile and the ``Unit`` of forward passes of ``rows`` rows."""
    constants, spaces = distribution_parts(distribution)
    if (
        rows >= WARPS_AT_ONCE * executor.processors * WARP_ROWS
        and warp_bytes(layout) <= executor.team_bytes
    ):
        threads = min(executor.max_team, TENSOR_THREADS)
        unit = layout.unit(
            "mma/warp_forward", executor, (("ROWS", WARP_ROWS), *constants), spaces, threads
        )
        return max(1, threads // WARP) * WARP_ROWS, unit
    tile, threads = block_shape(layout, executor, rows)
    return tile, layout.unit(
        "mma/tensor_forward", executor, (("ROWS", tile), *constants), spaces, threads
    )


def warp_bytes(layout: NetworkLayout) -> int:
    """Return the size of a block of ``mma/warp_forward.cu`` in bytes.

    If layers are too wide or normalized, it exceeds any shared memory.
    """
    if layout.norm or max(n for tower in layout.towers for n in tower[1:]) > WIDEST_TENSOR:
        return 2**30
    results = max(tower[-1] for tower in layout.towers) + 1
    row = 4 * (2 * layout.towers[0][0] + results)
    return weight_bytes(layout.layers) + TENSOR_THREADS // WARP * WARP_ROWS * row + PAD


@dataclass(frozen=True)
class Way:
    """Gradient kernel: ``kernels/learn/FILE.cu`` with its threads per block and rows of a tile.

    ``sharing`` blocks compute the same tile, and a part of the weights' gradient each.
    """

    file: str
    rows: int
    threads: int
    sharing: int = 1

    @property
    def kernel(self) -> str:
        """Name of the kernel in the file."""
        return self.file.rpartition("/")[2]


GROUPS = Way("hopper/group_gradient", 64, 128)


def gradient_way(layout: NetworkLayout, executor: Executor, rows: int) -> Way:
    """Return the ``Way`` for minibatches of ``rows`` rows."""
    if (
        architecture(executor) == WARP_GROUPS
        and rows >= MANY_GROUP_ROWS
        and not layout.norm
        and all(map(grouped, layout.towers))
    ):
        return GROUPS
    tile, threads = block_shape(layout, executor, rows)
    blocks = -(-rows // tile) * len(layout.towers)
    sharing = next((n for n in SHARING if n * blocks <= executor.processors), 1)
    return Way("mma/tensor_gradient", tile, threads, sharing)


def grouped(tower: Sequence[int]) -> bool:
    """Return whether ``kernels/learn/hopper/group_gradient.cu`` supports a tower's layers."""
    first, *hidden, last = tower
    wide = hidden and all(WIDEST_TENSOR // 2 < width <= WIDEST_TENSOR for width in hidden)
    return (
        bool(wide)
        and first < WIDEST_TENSOR
        and last <= WIDEST_TENSOR
        and group_sums(tower) <= MOST_GROUP_SUMS
    )


def group_sums(tower: Sequence[int]) -> int:
    """Return the number of gradient accumulators per thread of a warpgroup."""
    return (
        padded(tower[0] + 1) // 2 + padded(tower[-1]) + (WIDEST_TENSOR // 2 + 4) * (len(tower) - 3)
    )


def tensor_gradient_unit(task: Task, way: Way | None = None) -> Unit:
    """Return the ``Unit`` of gradients."""
    way = way or gradient_way(task.layout, task.executor, task.minibatch_rows)
    shared = f"#define BLOCKS_PER_TILE {way.sharing}\n" * (way.sharing > 1)
    return task.unit(way.file, (("ROWS", way.rows),), way.threads, shared)


class TensorGradients(Minibatches):
    """Gradients of one policy's loss on tensor cores.

    The arguments are those of ``Gradients``, and a ``Way`` or None. The bits are equal in all runs
    on the same kind of GPU.
    """

    def __init__(
        self, task: Task, columns: Columns, shared: Shared, way: Way | None = None
    ) -> None:
        executor, layout, part = task.executor, task.layout, task.minibatch_rows
        self.way = way or gradient_way(layout, executor, part)
        self.program = executor.build(tensor_gradient_unit(task, self.way))
        towers = len(layout.towers)
        teams = executor.resident_teams(self.program, self.way.kernel)
        tower_splits = min(-(-part // self.way.rows), max(1, teams // towers))
        splits = tower_splits * towers
        crowded = layout.gradient // PAD > ADDERS_AT_ONCE * executor.processors
        parts = min(PARTS, -(-splits // FEW_SPLITS) if crowded else splits)
        self.parts = parts if task.shard.ranks.alone else 1
        table = minibatch_table(task.shard, task.rows_of_env, task.minibatches)
        self.table = table.to(executor.name)
        super().__init__(
            task, columns, shared, splits, {"table": self.table[0]} | shared["weights"]
        )

    def compute(self, epoch: int, minibatch: int) -> None:
        """Compute ``partial_sums`` of one minibatch from ``arrange``."""
        self.call["epoch"], self.call["minibatch"] = epoch, minibatch
        self.call["table"] = self.table[minibatch].data_ptr()
        blocks, rows = self.splits * self.way.sharing, self.rows // self.minibatches
        self.program.launch(self.way.kernel, self.call, blocks, rows)
        self.exchange()


def weight_pointers(weights: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a network's tensors by the names in ``TensorLearn`` and ``TensorForward``."""
    return {f"tensors.{k}": tensor.detach() for k, tensor in enumerate(weights)}


def minibatch_table(shard: Shard, rows_of_env: int, minibatches: int) -> torch.Tensor:
    """Return (minibatches, 2 + 2 * blocks) int32, the data of ``struct Chunks`` for each minibatch.

    A row has the number of rows of the minibatch, the rows per chunk or 0 if they differ, the
    number of rows before each block's chunk, and the first index of each chunk in the order of an
    epoch.
    """
    blocks = shard.blocks
    ends = np.array([shard.first_env(b) for b in range(blocks.start, blocks.stop + 1)], np.int64)
    first = (ends - ends[0]) * rows_of_env
    rows = np.diff(first)
    found = np.empty((minibatches, 2 + 2 * len(blocks)), np.int32)
    for m in range(minibatches):
        begin, end = m * rows // minibatches, (m + 1) * rows // minibatches
        sizes = end - begin
        found[m, 0], found[m, 1] = sizes.sum(), sizes[0] if (sizes == sizes[0]).all() else 0
        found[m, 2 : 2 + len(blocks)] = np.cumsum(sizes) - sizes
        found[m, 2 + len(blocks) :] = first[:-1] + begin
    return torch.from_numpy(found)
