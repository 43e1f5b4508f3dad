"""All minibatches of an iteration by one block of a GPU: ``kernels/learn/resident.cu``.

For runs side by side that are as many as blocks have room for: each has a block of its own, which keeps the weights and Adam's
averages in its shared memory from the first minibatch to the last. A run alone is sooner by the launches of ``tensor.py`` and
``steps.py``, each of which is shared out among many blocks.
"""

from cupydrive.executors.interop import make_call
from cupydrive.training.algorithms.kernels.gradients import Minibatches, loss_parts, passes
from cupydrive.training.algorithms.kernels.layout import PAD
from cupydrive.training.algorithms.kernels.tensor import (
    ROWS,
    THREADS,
    minibatch_rows,
    minibatch_table,
    register_sums,
    tower_bytes,
)
from cupydrive.training.algorithms.looking import looker

MOST_ROWS = 256  # of a minibatch
MOST_SUMS = 64  # of gradients, in the registers of one thread, that leave room for two blocks


def block_bytes(layout, rows):
    """Return the bytes of shared memory of ``struct Workspace`` of a block that has ``rows`` rows at once."""
    numbers = 4 * (layout.gradient - PAD)
    tower = max(tower_bytes(tower, rows) for tower in layout.towers)
    kept = max(tower, numbers) if len(layout.towers) == 1 else tower + numbers
    return kept + 3 * numbers + 4 * rows + 4 * PAD * (THREADS // 32 + 2)


def rows_at_once(layout, executor, rows):
    """Return the rows of a tile for minibatches of ``rows`` rows: as many as leave a second block room, or as have room."""
    fit = [n for n in ROWS if block_bytes(layout, n) <= executor.team_bytes and (n < 2 * rows or n == ROWS[-1])]
    halves = [n for n in fit if block_bytes(layout, n) <= executor.team_bytes // 2]
    return next(iter(halves or fit), 0)


def is_resident(layout, config, sizes, executor):
    """Return whether one block learns from all minibatches; the arguments are those of ``TensorGradients``.

    It does where runs share a GPU so that each has one of its processors.
    """
    rows = minibatch_rows(config, sizes)
    few = executor.name == "cuda" and executor.processors == 1 and sizes[0].ranks.alone and rows <= MOST_ROWS
    return few and register_sums(layout) <= MOST_SUMS and rows_at_once(layout, executor, rows) > 0


def resident_unit(layout, distribution, config, sizes, executor):
    """Return the ``Unit`` of ``kernels/learn/resident.cu``; the arguments are those of ``TensorGradients``."""
    constants, spaces = loss_parts(distribution, config, len(sizes[2]))
    rows = rows_at_once(layout, executor, minibatch_rows(config, sizes))
    return layout.unit("resident", executor, (("ROWS", rows), *constants), spaces, THREADS)


class ResidentGradients(Minibatches):
    """The gradients of one policy's loss, and the steps along them; the arguments are those of ``TensorGradients``."""

    parts = 1

    def __init__(self, executor, layout, distribution, config, sizes, columns, shared):
        shard, steps, agents = sizes
        self.program = executor.build(resident_unit(layout, distribution, config, sizes, executor))
        self.table = minibatch_table(shard, steps * sum(agents), passes(config)[1]).to(executor.name)
        self.layout, self.resident = layout, None
        super().__init__(executor, config, sizes, columns, shared, layout.gradient, 1)

    def pointers_behind(self, shared):
        """Return what ``struct TensorLearn`` has behind ``struct Learn``."""
        return {"table": self.table} | shared["weights"]

    def learn(self, steps):
        """Take the steps of all minibatches that ``arrange`` has drawn; a ``looker`` is shown each gradient before its step."""
        count = self.epochs * self.minibatches
        if (look := looker()) is None:
            self.launch(steps, 0, count)
            return
        for k, inverse in enumerate(self.moments.view(count, -1)[:, 0]):
            self.launch(steps, k, k + 1, looks=True)
            look(*steps.seen(inverse))
            self.launch(steps, k, k + 1)

    def launch(self, steps, begin, end, looks=False):
        """Launch the minibatches [begin, end) of all epochs; ``looks``: leave the gradient of the first, and take no step."""
        ints = {"from": begin, "until": end, "looks": looks}
        call = make_call(ints, {}, structs={"about": self.call, "update": steps.call})
        work = (end - begin) * self.rows // self.minibatches * self.layout.copied
        self.program.launch("learn_all", call, 1, work)
