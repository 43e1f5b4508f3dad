"""Report: the numbers of a run that the host logs, gathered on the device by one launch."""

import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import make_call
from cupydrive.playing.rollout import NONE_FOUND

HEAD = 2  # numbers before the means: episodes, and the least length
TEAM = 128  # threads of one row of kernels/train/report.cu on a GPU


class Report:
    """What a run has to say since it was last asked.

    Args:
        run: ``Run``.

    Attributes:
        size: L, of the numbers: episodes, least length, means of latest episodes; for each learner its ``metric_sums`` and
            ``bad``; then bits of int64: where the first numbers are that are not finite.
    """

    def __init__(self, run):
        self.run, self.names = run, run.episodes.names
        self.sizes = [len(learner.metric_sums) for learner in run.learners.values()]
        self.found = len(run.rollout.nonfinite)
        self.size = HEAD + len(self.names) + sum(size + 1 for size in self.sizes) + self.found
        constants = ("NAMES", len(self.names)), ("LEARNERS", max(1, len(self.sizes))), ("ARRAYS", self.found)
        executor = run.batch.executor
        self.program = executor.build(assemble_file("train/report", constants, team=min(executor.max_team, TEAM)))

    def make(self, numbers):
        """Queue what fills ``numbers`` (L,) float64, and begin to count anew."""
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

    def read(self, numbers):
        """Return ``(episodes, least length, means, sums, bad, found, envs)`` of ``numbers`` on the host, float64.

        ``sums`` and ``bad`` have an element for each learner: a list of floats, and whether a loss was not finite; ``found``
        and ``envs`` are for ``Rollout.describe_nonfinite``.

        Args:
            numbers: (L,), or (W, L) of all ranks.
        """
        shard = self.run.shard
        if numbers.dim() == 2:
            rows = [self.read(row) for row in numbers]
            shares = [len(shard.envs_of(rank)) / shard.all_envs for rank in range(len(rows))]
            means = [
                sum(share * mean for share, mean in zip(shares, each, strict=True))
                for each in zip(*(row[2] for row in rows), strict=True)
            ]
            bad = [any(each) for each in zip(*(row[4] for row in rows), strict=True)]
            first = min(range(len(rows)), key=lambda rank: earliest(rows[rank][5]))
            found = rows[first][5], shard.envs_of(first)
            return sum(row[0] for row in rows), min(row[1] for row in rows), means, rows[0][3], bad, *found
        found = numbers[self.size - self.found :].view(torch.int64).tolist()
        episodes, least, *numbers = numbers.tolist()
        means, numbers, sums, bad = numbers[: len(self.names)], numbers[len(self.names) :], [], []
        for size in self.sizes:
            sums.append(numbers[:size])
            bad.append(bool(numbers[size]))
            numbers = numbers[size + 1 :]
        return int(episodes), least, means, sums, bad, found, shard.envs


def earliest(found):
    """Return the first of what ``Rollout.describe_nonfinite`` is given, a number that grows with iteration and place."""
    return min(number & NONE_FOUND for number in found)


class NoLearner:
    """Stands for the learners of a run in which nobody learns."""

    metric_sums = bad = None
