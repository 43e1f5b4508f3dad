"""Running means and variances with a fixed order of summation: ``kernels/learn/statistics.cu``.

Letters: T steps, N environments, C agents of a group, D columns.
"""

from __future__ import annotations

import torch

from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.executors.interop import make_call, zeros
from cupydrive.executors.ranks import Shard
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Executor


class RunningMeanStd:
    """Mean and variance of all previous rows.

    Args:
        shape: Shape of one row.
        device: Device of the tensors.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device | str) -> None:
        self.mean = zeros(device, *shape, dtype=torch.float64)
        self.variance = torch.ones_like(self.mean)
        self.count = torch.full((), 1e-4, device=device, dtype=torch.float64)

    def normalized(self, rows: torch.Tensor) -> torch.Tensor:
        """Normalize ``rows`` (B, *shape) to mean 0 and deviation 1, and clip them to [-10, 10]."""
        return ((rows - self.mean.float()) * self.scale()).clamp(-10.0, 10.0)

    def scale(self) -> torch.Tensor:
        """Return the reciprocal of the standard deviation, float32."""
        return (self.variance + 1e-8).rsqrt().float()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return mean, variance and count by name."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}


# Maximum number of slices into which the steps of a rollout are split. One thread sums one slice of
# a column and a block of environments.
SLICES = 8


def statistics_unit() -> Unit:
    """Return the ``Unit`` of ``kernels/learn/statistics.cu``."""
    return assemble_file("learn/statistics")


class Statistics:
    """Adds rows to ``RunningMeanStd``, with bitwise identical results for any number of threads and
    processes.

    Args:
        executor: Executor of the kernels.
        shard: ``Shard`` of the environments.
    """

    def __init__(self, executor: Executor, shard: Shard) -> None:
        self.program = executor.build(statistics_unit())
        self.device, self.shard = executor.name, shard
        self.memory: dict[tuple, torch.Tensor] = {}  # by name and shape, allocated in advance

    def reserve(self, steps: int, agents: int, columns: int) -> None:
        """Allocate memory for the rows and returns of a group.

        Args:
            steps: Number of steps of a rollout, T.
            agents: Number of agents of the group.
            columns: Number of entries of one agent in each step.
        """
        for width in (columns, 1):
            slices = self.sums_of(steps, width)[0].shape[1]
            self.zeros("mean", width), self.zeros("variance", width)
        self.zeros("counts", self.shard.all_blocks, slices, dtype=torch.int32)
        self.zeros("returns", steps, self.shard.num_envs, agents)
        self.zeros("counted", steps, self.shard.num_envs, agents, dtype=torch.uint8)

    def zeros(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the memory with this name and shape. Allocate it on the first call."""
        if (name, shape) not in self.memory:
            self.memory[name, shape] = zeros(self.device, *shape, dtype=dtype)
        return self.memory[name, shape]

    def sums_of(self, steps: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sums and squares of all chunks, (B, slices of the steps, D) each."""
        shape = self.shard.all_blocks, min(steps, SLICES), columns
        return self.zeros("sums", *shape), self.zeros("squares", *shape)

    def update(
        self, rms: RunningMeanStd, values: torch.Tensor, active: torch.Tensor | None = None
    ) -> None:
        """Update a running mean and variance.

        Args:
            rms: Statistics of shape (D,), or () for one column.
            values: (T, N, C, D) float32.
            active: (T, N, C) bool, rows that count. Defaults to all.
        """
        shard, (steps, n, agents, columns) = self.shard, values.shape
        sums, squares = self.sums_of(steps, columns)
        slices = sums.shape[1]
        ints = {"num_envs": n, "agents": agents, "steps": steps, "columns": columns}
        ints |= {"all_envs": shard.all_envs, "all_blocks": shard.all_blocks}
        ints |= {"blocks": len(shard.blocks), "first_block": shard.blocks.start}
        ints |= {"envs_before": shard.envs.start, "slices": slices}
        counts = (
            None if active is None else self.zeros("counts", *sums.shape[:2], dtype=torch.int32)
        )
        pointers = {"values": values, "active": active, "counts": counts}
        pointers |= {"sums": sums, "mean": self.zeros("mean", columns)}
        pointers |= {"squares": squares, "variance": self.zeros("variance", columns)}
        pointers |= {"running_mean": rms.mean, "running_variance": rms.variance, "count": rms.count}
        call, chunks = make_call(ints, pointers), len(shard.blocks) * slices
        for part, made, total in (
            ("sum_columns", sums, "compute_means"),
            ("square_columns", squares, "compute_variances"),
        ):
            self.program.launch(part, call, chunks * columns, values.numel())
            shard.ranks.join(made, shard.all_shares())
            if counts is not None and made is sums:
                shard.ranks.join(counts, shard.all_shares())
            self.program.launch(total, call, columns, made.numel())
        self.program.launch("merge", call, columns, columns)
        self.program.launch("count_rows", call, 1)

    def scale(self, rms: RunningMeanStd, center: torch.Tensor | None, scale: torch.Tensor) -> None:
        """Write the mean of ``rms`` and its reciprocal standard deviation as float32.

        ``center`` may be None.
        """
        columns = scale.numel()
        pointers = {"mean": rms.mean, "variance": rms.variance, "center": center, "scale": scale}
        self.program.launch(
            "compute_scales", make_call({"columns": columns}, pointers), columns, columns
        )

    def returns(
        self,
        rollout: Rollout,
        name: str,
        running: torch.Tensor,
        gamma: torch.Tensor,
        held: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Update the discounted return of each agent of a group.

        Args:
            rollout: ``Rollout``.
            name: Name of the group.
            running: (N, C) float32, current returns, changed in place.
            gamma: () float32, the discount factor.
            held: (N, C) uint8, steps that are held by ``kernels/train/advantages.cu``. None if
                agents are always active.

        Returns:
            (T, N, C, 1) returns after each step, and (T, N, C) flags of those that count, or None
            for all.
        """
        reward = rollout.reward[name]
        steps, n, agents = reward.shape
        returns = self.zeros("returns", steps, n, agents)
        pointers = {"gamma": gamma, "reward": reward}
        pointers |= {"terminated": rollout.terminated, "truncated": rollout.truncated}
        counts = (
            None if held is None else self.zeros("counted", steps, n, agents, dtype=torch.uint8)
        )
        pointers |= {"active": rollout.active.get(name), "held": held, "counts": counts}
        pointers |= {"running": running, "returns": returns}
        call = make_call({"num_envs": n, "agents": agents, "steps": steps}, pointers)
        self.program.launch("accumulate_returns", call, n * agents, reward.numel())
        return returns[..., None], counts
