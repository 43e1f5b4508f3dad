"""Running means and variances whose sums have a fixed order: ``kernels/learn/statistics.cu``.

Letters: R rows, D columns; T steps, N environments, C agents of a group.
"""

import math

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
        self.memory = {}  # by name and shape; an iteration takes none

    def reserve(self, shape, columns):
        """Take the memory for rows of ``columns`` numbers and for returns, of all agents of a group: (T, N, C)."""
        rows = math.prod(shape)
        for width in (columns, 1):
            self.zeros("sums", min(rows, CHUNKS), width), self.zeros("squares", min(rows, CHUNKS), width)
            self.zeros("mean", width), self.zeros("variance", width)
        self.zeros("returns", *shape)

    def zeros(self, name, *shape):
        """Return memory for what has this name and shape, the same at each call."""
        if (name, shape) not in self.memory:
            self.memory[name, shape] = torch.zeros(shape, device=self.device)
        return self.memory[name, shape]

    def update(self, rms, values):
        """Take (R, D) float32 rows into ``rms``, whose mean has shape (D,), or () for one column."""
        rows = len(values)
        columns, chunks = values.numel() // rows, min(rows, CHUNKS)
        pointers = {"values": values, "sums": self.zeros("sums", chunks, columns), "mean": self.zeros("mean", columns)}
        pointers |= {"squares": self.zeros("squares", chunks, columns), "variance": self.zeros("variance", columns)}
        pointers |= {"mean_so_far": rms.mean, "variance_so_far": rms.variance, "count": rms.count}
        call = make_call({"rows": rows, "columns": columns, "chunks": chunks}, pointers)
        for part, total in (("sum_columns", "find_means"), ("square_columns", "find_variances")):
            self.program.launch(part, call, chunks * columns, rows * columns)
            self.program.launch(total, call, columns, chunks * columns)
        self.program.launch("merge", call, columns, columns)
        self.program.launch("count_rows", call, 1)

    def scale(self, rms, center, scale):
        """Write the mean of ``rms`` and one over its deviation as float32; ``center`` may be None."""
        columns = scale.numel()
        pointers = {"mean": rms.mean, "variance": rms.variance, "center": center, "scale": scale}
        self.program.launch("find_scales", make_call({"columns": columns}, pointers), columns, columns)

    def returns(self, rollout, name, running, gamma):
        """Follow the discounted return of each agent of a group; return (T * N * C, 1), those after each step.

        Args:
            rollout: ``Rollout``.
            name: The group's.
            running: (N, C) float32: returns so far, changed in place.
            gamma: () float32, the discount.
        """
        reward = rollout.reward[name]
        steps, n, agents = reward.shape
        returns = self.zeros("returns", steps, n, agents)
        pointers = {"gamma": gamma, "reward": reward, "terminated": rollout.terminated, "truncated": rollout.truncated}
        call = make_call(
            {"num_envs": n, "agents": agents, "steps": steps}, pointers | {"running": running, "returns": returns}
        )
        self.program.launch("follow_returns", call, n * agents, reward.numel())
        return returns.view(-1, 1)
