"""Report: the numbers of a run that the host logs, gathered on the device by one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import make_call
from cupydrive.playing.rollout import NONE_FOUND

if TYPE_CHECKING:
    from cupydrive.training.run import Run

HEAD = 2  # numbers before the means: episodes, and the least length
TEAM = 128  # threads of one row of kernels/train/report.cu on a GPU


class Reading(NamedTuple):
    """Numbers of a report.

    Attributes:
        episodes: Number of episodes that ended.
        least: Length of the shortest of the environments' latest episodes.
        means: Means of the latest episodes over environments, by metric.
        sums: ``metric_sums`` of each learner.
        bad: Whether a loss was not finite, by learner.
        found: Places of the first non-finite numbers, for ``Rollout.describe_nonfinite``.
        envs: Environments of the rank that found them.
    """

    episodes: int
    least: float
    means: list[float]
    sums: list[list[float]]
    bad: list[bool]
    found: list[int]
    envs: range


class Report:
    """The numbers of a run since the last report.

    Args:
        run: ``Run``.

    Attributes:
        size: L, of the numbers: episodes, least length, means of latest episodes; for each learner its ``metric_sums`` and
            ``bad``; then bits of int64: where the first numbers are that are not finite.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.names = run, run.episodes.names
        self.sizes = [len(learner.metric_sums) for learner in run.learners.values()]
        self.found = len(run.rollout.nonfinite)
        self.size = HEAD + len(self.names) + sum(size + 1 for size in self.sizes) + self.found
        constants = ("NAMES", len(self.names)), ("LEARNERS", max(1, len(self.sizes))), ("ARRAYS", self.found)
        executor = run.batch.executor
        self.program = executor.build(assemble_file("train/report", constants, team=min(executor.max_team, TEAM)))

    def make(self, numbers: torch.Tensor) -> None:
        """Queue a launch that fills ``numbers`` (L,) float64, and begin to count anew."""
        run = self.run
        learners, first = list(run.learners.values()), HEAD + len(self.names)
        firsts = [first + sum(self.sizes[:k]) + k for k in range(len(learners))]
        ints = {"num_envs": run.shard.num_envs}
        ints |= {f"size.{k}": size for k, size in enumerate(self.sizes or [-1])}
        ints |= {f"first.{k}": first for k, first in enumerate(firsts or [0])}
        pointers = {"latest": run.episodes.values, "count": run.episodes.count}
        pointers |= {f"metric_sums.{k}": learner.metric_sums for k, learner in enumerate(learners or [NoLearner])}
        pointers |= {f"bad.{k}": learner.bad for k, learner in enumerate(learners or [NoLearner])}
        pointers |= {"nonfinite": run.rollout.nonfinite, "numbers": numbers, "found": numbers[self.size - self.found :]}
        rows = len(self.names) + 1
        with run.rollout.stream():
            self.program.launch("report", make_call(ints, pointers), rows, len(self.names) * run.shard.num_envs)

    def read(self, numbers: torch.Tensor) -> Reading:
        """Return what ``numbers`` on the host, (L,) or (W, L) float64 of all ranks, hold."""
        shard, rows = self.run.shard, np.atleast_2d(numbers.numpy())
        found = np.ascontiguousarray(rows[:, self.size - self.found :]).view(np.int64)
        first = int((found & NONE_FOUND).min(1).argmin())  # a number grows with iteration and place
        shares = [len(shard.envs_of(rank)) / shard.all_envs for rank in range(len(rows))] if len(rows) > 1 else [1.0]
        means = sum(share * row for share, row in zip(shares, rows[:, HEAD : HEAD + len(self.names)], strict=True))
        ends = HEAD + len(self.names) + np.cumsum([size + 1 for size in self.sizes], dtype=int)
        sums = [rows[0, end - 1 - size : end - 1].tolist() for size, end in zip(self.sizes, ends, strict=True)]
        bad = [bool(rows[:, end - 1].any()) for end in ends]
        envs = shard.envs_of(first) if len(rows) > 1 else shard.envs
        return Reading(int(rows[:, 0].sum()), rows[:, 1].min(), means.tolist(), sums, bad, found[first].tolist(), envs)


class NoLearner:
    """Stands for the learners of a run in which nobody learns."""

    metric_sums = bad = None
