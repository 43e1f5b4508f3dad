"""MetricReport: gather the numbers of a run that the host logs, in one kernel launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import make_call
from cupydrive.playing.rollout import NONE_FOUND

if TYPE_CHECKING:
    from cupydrive.training.run import Run

HEAD_NUMBERS = 2  # number of episodes and shortest length, which precede the means
TEAM = 128  # threads per row of kernels/train/report.cu on a GPU


class Reading(NamedTuple):
    """Numbers of a report.

    Attributes:
        episodes: Number of episodes that ended.
        least: Length of the shortest of the environments' latest episodes.
        means: Means of the latest episodes over environments, by metric.
        sums: ``metric_sums`` of each learner.
        bad: Whether a loss was not finite, by learner.
        found: Places of the first non-finite numbers, for ``Rollout.describe_nonfinite``.
        envs: Environments of the rank that detected them.
    """

    episodes: int
    least: float
    means: list[float]
    sums: list[list[float]]
    bad: list[bool]
    found: list[int]
    envs: range


class MetricReport:
    """Gather the numbers of a run since the last report.

    The numbers are, in order: the number of episodes, the length of the shortest latest episode,
    the means over the latest episodes, ``metric_sums`` and ``bad`` of each learner, and the places
    of the first non-finite numbers, whose int64 bits are stored as float64.

    Args:
        run: ``Run``.

    Attributes:
        size: Number of these values, L.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.names = run, run.episodes.names
        self.spans: list[tuple[int, int]] = []  # ranges of each learner's sums, followed by `bad`
        self.found = HEAD_NUMBERS + len(self.names)
        for learner in run.learners.values():
            self.spans.append((self.found, self.found + len(learner.metric_sums)))
            self.found = self.spans[-1][1] + 1
        arrays = len(run.rollout.nonfinite)
        self.size = self.found + arrays
        numbers = {"NAMES": len(self.names), "LEARNERS": len(self.spans) or 1, "ARRAYS": arrays}
        executor, constants = run.batch.executor, tuple(numbers.items())
        unit = assemble_file("train/report", constants, team=min(executor.max_team, TEAM))
        self.program = executor.build(unit)

    def make(self, numbers: torch.Tensor) -> None:
        """Queue a launch that fills ``numbers`` (L,) float64 and resets the counters."""
        run, spans = self.run, self.spans or [(0, -1)]
        ints = {"num_envs": run.shard.num_envs}
        ints |= {f"size.{k}": end - begin for k, (begin, end) in enumerate(spans)}
        ints |= {f"first.{k}": begin for k, (begin, _) in enumerate(spans)}
        pointers = {"latest": run.episodes.values, "count": run.episodes.count}
        learners = [(each.metric_sums, each.bad) for each in run.learners.values()] or [
            (None, None)
        ]
        pointers |= {f"metric_sums.{k}": sums for k, (sums, _) in enumerate(learners)}
        pointers |= {f"bad.{k}": bad for k, (_, bad) in enumerate(learners)}
        pointers |= {"nonfinite": run.rollout.nonfinite, "numbers": numbers}
        call = make_call(ints, pointers | {"found": numbers[self.found :]})
        work = len(self.names) * run.shard.num_envs
        with run.rollout.stream():
            self.program.launch("report", call, len(self.names) + 1, work)

    def read(self, numbers: torch.Tensor) -> Reading:
        """Unpack ``numbers`` on the host, (L,), or (W, L) of all ranks, float64."""
        shard, rows = self.run.shard, np.atleast_2d(numbers.numpy())
        found = np.ascontiguousarray(rows[:, self.found :]).view(np.int64)
        # A place is a number that increases with the iteration and the position.
        first = int((found & NONE_FOUND).min(1).argmin())
        envs = [shard.envs_of(rank) for rank in range(len(rows))]
        each = rows[:, HEAD_NUMBERS : HEAD_NUMBERS + len(self.names)]
        means = sum(len(own) / shard.all_envs * row for own, row in zip(envs, each, strict=True))
        sums = [rows[0, begin:end].tolist() for begin, end in self.spans]
        bad = [bool(rows[:, end].any()) for _, end in self.spans]
        episodes, least = int(rows[:, 0].sum()), float(rows[:, 1].min())
        return Reading(
            episodes, least, means.tolist(), sums, bad, found[first].tolist(), envs[first]
        )
