"""Launches that compute the gradient of a minibatch from the rows of a rollout.

The kernels are ``kernels/learn/minibatches.cu`` and ``kernels/learn/exact/gradient.cu``.

Letters: T steps, N environments, C agents of a group, D observation entries, R rows of all groups
that share the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from cupydrive.algorithms.kernels.layout import (
    PARTS,
    Constants,
    Distribution,
    NetworkLayout,
    distribution_parts,
    forward_tiles,
    gradient_tiles,
)
from cupydrive.algorithms.kernels.steps import Steps
from cupydrive.algorithms.settings import RolloutSettings
from cupydrive.codegen.layout import WARP
from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.executors.interop import make_call, zeros
from cupydrive.executors.ranks import Shard
from cupydrive.protocols import Executor

# Number of threads that draw the rows of one chunk. Each of them computes a partial sum of the
# chunk's moments. If there are more than CHUNKS_AT_ONCE chunks per processor, chunks with
# fewer rows use fewer threads, down to FEW_DRAWERS.
DRAWERS, FEW_DRAWERS = 128, 4
CHUNKS_AT_ONCE = 16
GRADIENT_BYTES = 2**28  # limit for the gradients of all parts. Larger networks have fewer parts
# Inputs of learning, in the order of ``struct Learn``: (T, N, C, ...) of each group, or None.
COLUMNS = ("obs", "action", "mask", "active", "log_prob", "value", "advantage", "returns")
# Outputs per row with ``Task.stores``, behind the inputs: (T, N, C) of each group, or None.
STORED = ("log_prob_now", "value_now")


Columns = Mapping[str, Sequence[torch.Tensor | None]]  # tensors of all groups, by name of a column
Shared = Mapping[str, Any]  # tensor or None, by name
# Tensors that all kernels read, in the order of ``struct Learn``.
LOSS_TENSORS = (
    "seed",
    "iteration",
    "clip_coef",
    "ent_coef",
    "vf_coef",
    "skip",
    "center",
    "scale",
    "packed",
)


@dataclass(frozen=True)
class Task:
    """Description of the learning of one policy.

    Args:
        executor: Executor of the learner.
        layout: Layout of the network.
        distribution: Distribution of the actions.
        config: ``PPO`` or ``A2C``.
        shard: Environments of this process.
        steps: Number of steps of a rollout, T.
        agents: Number of agents of each group of the policy.
        stores: Whether kernels store the current log-probability and value of each row.
    """

    executor: Executor
    layout: NetworkLayout
    distribution: Distribution
    config: RolloutSettings
    shard: Shard
    steps: int
    agents: Sequence[int]
    stores: bool = False

    @property
    def epochs(self) -> int:
        """Passes over the rows of an iteration."""
        return getattr(self.config, "update_epochs", 1)

    @property
    def minibatches(self) -> int:
        """Number of minibatches of an epoch."""
        return getattr(self.config, "num_minibatches", 1)

    @property
    def rows_of_env(self) -> int:
        """Number of rows of one environment."""
        return self.steps * sum(self.agents)

    @property
    def rows(self) -> int:
        """Number of rows of this process."""
        return self.shard.num_envs * self.rows_of_env

    @property
    def minibatch_rows(self) -> int:
        """Number of rows of a minibatch."""
        return self.rows // self.minibatches

    def unit(
        self, path: str, constants: Constants, team: int | None = None, spaces: str = ""
    ) -> Unit:
        """Return the ``Unit`` of ``kernels/learn/PATH.cu`` with the constants of ``loss.cuh``.

        The arguments are those of ``NetworkLayout.unit``.
        """
        own = (
            ("AGENT_GROUPS", len(self.agents)),
            ("SEQUENCES", self.layout.sequences),
            ("CLIPPED", hasattr(self.config, "clip_coef")),
            ("CLIP_VALUE", getattr(self.config, "clip_vloss", False)),
            ("NORMALIZE", self.config.norm_adv),
            ("STORES", self.stores),
        )
        of_actions, generated = distribution_parts(self.distribution)
        constants = (*constants, *of_actions, *own)
        return self.layout.unit(path, self.executor, constants, spaces + generated, team)


def minibatch_unit(task: Task) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/minibatches.cu``."""
    minibatches = task.epochs * task.minibatches
    constants: Constants = (
        ("AGENT_GROUPS", len(task.agents)),
        ("SEQUENCES", task.layout.sequences),
        ("SHUFFLED", minibatches > 1),
    )
    chunks = minibatches * len(task.shard.blocks)
    crowded = chunks > CHUNKS_AT_ONCE * task.executor.processors
    team = min(task.executor.max_team, drawers(task.rows * task.epochs // chunks, crowded))
    return assemble_file("learn/minibatches", tuple(constants), team=team)


def drawers(rows: int, crowded: bool) -> int:
    """Return the number of threads that draw a chunk.

    Args:
        rows: Rows of the chunk.
        crowded: Whether there are more chunks than a GPU runs at once.
    """
    few = max(FEW_DRAWERS, 1 << (rows - 1).bit_length())
    return few if crowded and few <= WARP else DRAWERS  # a team larger than a warp is a block


def exact_forward_unit(
    layout: NetworkLayout, distribution: Distribution, executor: Executor, rows: int
) -> tuple[int, Unit]:
    """Return the rows of a tile and the ``Unit`` of ``kernels/learn/exact/forward.cu``."""
    tiles = forward_tiles(layout, executor, rows)
    constants, spaces = distribution_parts(distribution)
    return tiles.rows, layout.unit(
        "exact/forward", executor, (*tiles.constants, *constants), spaces
    )


def exact_gradient_unit(task: Task) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/exact/gradient.cu``."""
    rows = (
        -(-task.shard.all_envs // task.shard.all_blocks) * task.rows_of_env
    )  # of the largest block
    tiles = gradient_tiles(task.layout, task.executor, -(-rows // task.minibatches))
    return task.unit("exact/gradient", tiles.constants)


class Minibatches:
    """Minibatches of one policy: their rows, moments of advantages, and kernel arguments.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        columns: Tensors by group for each name of ``COLUMNS``. With ``task.stores`` also for those
            of ``STORED``.
        shared: Tensors by name: ``seed``, ``iteration``, ``skip``, ``packed``, the scheduled
            ``clip_coef``, ``ent_coef`` and ``vf_coef``, and ``center`` and ``scale`` of
            observations or None. ``weights`` are the network's tensors that kernels read in
            addition to ``packed``, by name.
        splits: Number of sums that are computed at the same time.
        behind: Members of the kernel's argument behind ``struct Learn``, by name.

    Attributes:
        partial_sums: (splits, floats of a gradient), sums over parts of this process's blocks.
        sums: Sums of all processes, which ``Steps`` reduces: ``partial_sums``, or their sum over
            splits and processes.
        moments: (epochs, minibatches, 4): the reciprocal of the number of active rows, mean and
            standard deviation of their advantages, and their number.
        parts: Number of partial sums in the reduction of the splits.
    """

    parts: int
    nested = 1  # parts of each split
    chunk_floats = 0  # floats per split for the sum of a chunk's gradient

    def __init__(
        self,
        task: Task,
        columns: Columns,
        shared: Shared,
        splits: int,
        behind: Shared | None = None,
    ) -> None:
        self.shard = shard = task.shard
        self.layout, self.device, self.norm_adv = (
            task.layout,
            task.executor.name,
            task.config.norm_adv,
        )
        self.epochs, self.minibatches = task.epochs, task.minibatches
        self.rows, self.blocks, self.splits = task.rows, len(shard.blocks), splits
        self.drawing = task.executor.build(minibatch_unit(task))
        self.zeros = partial(zeros, self.device)
        chunks = (self.epochs, self.minibatches, shard.all_blocks)
        self.moments = self.zeros(self.epochs, self.minibatches, 4)
        self.partial_sums, self.sums = self.gradient_memory()
        shuffled = task.rows // (task.steps if task.layout.sequences else 1)
        self.memory = {
            "order": self.zeros(self.epochs, shuffled, dtype=torch.int32),
            "counts": self.zeros(*chunks, dtype=torch.int32),
            "sums": self.zeros(*chunks),
            "squares": self.zeros(*chunks),
            "moments": self.moments,
            "chunks": self.zeros(splits, self.chunk_floats) if self.chunk_floats else None,
            "partial_sums": self.partial_sums,
        }
        ints = {"num_envs": shard.num_envs, "steps": task.steps, "blocks": self.blocks}
        ints |= {"splits": splits, "all_envs": shard.all_envs, "all_blocks": shard.all_blocks}
        ints |= {"first_block": shard.blocks.start, "envs_before": shard.envs.start}
        ints |= {"epochs": self.epochs, "minibatches": self.minibatches, "epoch": 0, "minibatch": 0}
        ints["parts"] = self.nested
        ints |= {f"agents.{g}": count for g, count in enumerate(task.agents)}
        pointers = {name: shared[name] for name in LOSS_TENSORS} | self.memory
        for name in (*COLUMNS, *STORED):
            tensors = columns[name] if name in columns else [None] * len(task.agents)
            pointers |= {f"{name}.{g}": tensor for g, tensor in enumerate(tensors)}
        self.call = make_call(ints, pointers | dict(behind or {}))

    def gradient_memory(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Allocate ``partial_sums`` and ``sums``."""
        partial_sums = self.zeros(self.splits, self.layout.gradient)
        return partial_sums, partial_sums if self.shard.ranks.alone else self.zeros(
            1, self.layout.gradient
        )

    def exchange(self) -> None:
        """Compute ``sums`` from the ``partial_sums`` of all processes."""
        if self.sums is not self.partial_sums:
            torch.sum(self.partial_sums, 0, keepdim=True, out=self.sums)
            self.shard.ranks.add(self.sums)

    def arrange(self) -> None:
        """Draw the minibatches of all epochs, and compute the moments of their advantages."""
        minibatches, rows = self.epochs * self.minibatches, self.epochs * self.rows
        chunks = minibatches * self.blocks
        self.drawing.launch("arrange", self.call, chunks, rows)
        self.join_blocks("counts", "sums")
        self.drawing.launch("mean", self.call, minibatches, chunks)
        if self.norm_adv:
            self.drawing.launch("squared_deviations", self.call, chunks, rows)
            self.join_blocks("squares")
            self.drawing.launch("deviation", self.call, minibatches, chunks)

    def learn(self, steps: Steps) -> None:
        """Compute the gradient of each minibatch from ``arrange``, and take a step after each."""
        for epoch in range(self.epochs):
            for minibatch in range(self.minibatches):
                self.compute(epoch, minibatch)
                steps.descend(epoch, minibatch)

    def compute(self, epoch: int, minibatch: int) -> None:
        """Compute ``partial_sums`` of one minibatch from ``arrange``."""
        raise NotImplementedError

    def join_blocks(self, *names: str) -> None:
        """Gather the blocks of the other processes."""
        for name in names:
            self.shard.ranks.join(self.memory[name], self.shard.all_shares(), dim=2)


class Gradients(Minibatches):
    """Float32 gradients of one policy's loss, summed in an order that depends only on sizes.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        columns: Arrays of the rollout by name, as in ``Minibatches``.
        shared: Tensors by name, as in ``Minibatches``.

    Attributes:
        parts: Number of partial sums. It depends only on the total N and the network.
        shares: Range of ``sums`` that each rank computes.
        own: Range of this rank.
    """

    def __init__(self, task: Task, columns: Columns, shared: Shared) -> None:
        shard, blocks = task.shard, task.shard.all_blocks
        self.parts = max(1, min(blocks, PARTS, GRADIENT_BYTES // (4 * task.layout.gradient)))
        # A GPU computes all blocks at once. The cores of a CPU sum adjacent blocks while they are
        # in
        # the cache, if a process has all blocks of a part. A single core also sums the parts.
        size, executor = shard.ranks.size, task.executor
        whole = shard.ranks.alone or (blocks % self.parts == 0 and self.parts % size == 0)
        self.all_splits = self.parts if executor.name == "cpu" and whole else blocks
        if executor.max_team == 1 and shard.ranks.alone and executor.processors == 1:
            self.all_splits, self.nested = 1, self.parts
        self.chunk_floats = task.layout.gradient
        if executor.name == "cpu":
            self.chunk_floats = max(self.chunk_floats, task.layout.scratch)
        self.shares = [
            range(*(k * self.all_splits // blocks for k in (those.start, those.stop)))
            for those in shard.all_shares()
        ]
        self.own = self.shares[shard.ranks.rank]
        super().__init__(task, columns, shared, len(self.own))
        self.build(task, shared)

    def build(self, task: Task, shared: Shared) -> None:
        """Build the program of ``compute``."""
        self.program = task.executor.build(exact_gradient_unit(task))

    def gradient_memory(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Allocate ``partial_sums`` as a part of ``sums``."""
        sums = self.zeros(self.all_splits, self.layout.gradient)
        return sums[self.own.start : self.own.stop], sums

    def exchange(self) -> None:
        """Gather the splits of the other processes. Their order of summation is fixed."""
        self.shard.ranks.join(self.sums, self.shares)

    def compute(self, epoch: int, minibatch: int) -> None:
        """Compute ``partial_sums`` of one minibatch from ``arrange``."""
        self.call["epoch"], self.call["minibatch"] = epoch, minibatch
        work = self.rows // self.minibatches * self.layout.packed
        self.program.launch("gradient", self.call, self.splits, work)
        self.exchange()
