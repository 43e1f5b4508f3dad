"""Running means and variances whose sums have a fixed order: ``kernels/learn/statistics.cu``.

Letters: R rows, D columns; T steps, N environments, C agents of a group.
"""

import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import make_call

CHUNKS = 1024  # of rows, at most: so many threads add the rows of a column at once


def statistics_unit():
    """Return the ``Unit`` of ``kernels/learn/statistics.cu``."""
    return assemble_file("learn/statistics")


class Statistics:
    """Lets ``RunningMeanStd`` take rows in, with the same bits on any number of threads.

    Args:
        executor: Where.
    """

    def __init__(self, executor):
        self.program, self.device = executor.build(statistics_unit()), executor.name

    def update(self, rms, values):
        """Take (R, D) float32 rows into ``rms``, whose mean has shape (D,), or () for one column."""
        rows = len(values)
        columns, chunks = values.numel() // rows, min(rows, CHUNKS)
        sums, squares = (torch.empty((chunks, columns), device=self.device) for _ in range(2))
        mean, variance = (torch.empty(columns, device=self.device) for _ in range(2))
        pointers = {"values": values, "sums": sums, "mean": mean, "squares": squares, "variance": variance}
        call = make_call({"rows": rows, "columns": columns, "chunks": chunks}, pointers)
        for part, total in (("sum_columns", "find_means"), ("square_columns", "find_variances")):
            self.program.launch(part, call, chunks * columns, rows * columns)
            self.program.launch(total, call, columns, chunks * columns)
        rms.merge(mean.view(rms.mean.shape).double(), variance.view(rms.mean.shape).double(), rows)

    def returns(self, rollout, name, running, gamma):
        """Follow the discounted return of each agent of a group; return (T * N * C, 1), those after each step.

        Args:
            rollout: ``Rollout``.
            name: The group's.
            running: (N, C) float32: returns so far, changed in place.
            gamma: () float32, the discount.
        """
        reward = rollout.reward[name]
        returns = torch.empty_like(reward)
        steps, n, agents = reward.shape
        pointers = {"gamma": gamma, "reward": reward, "terminated": rollout.terminated, "truncated": rollout.truncated}
        call = make_call(
            {"num_envs": n, "agents": agents, "steps": steps}, pointers | {"running": running, "returns": returns}
        )
        self.program.launch("follow_returns", call, n * agents, reward.numel())
        return returns.view(-1, 1)
