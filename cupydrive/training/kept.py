"""Copies of runs from before their first number that is not finite, kept on the device while they train.

A copy is taken where an iteration begins, by a kernel that leaves the last one as it is once a number was not finite: the host
hears of that late. So seldom that copies take SHARE of the time; ``explain.py`` goes on from them, a few iterations at most.
"""

import time
from dataclasses import dataclass

import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import as_torch, make_call
from cupydrive.playing.rollout import NONE_FOUND

SHARE = 0.01  # of the time that copies take
MOST_MEMORY = 0.5  # of the free memory that they take
CHUNK = 1 << 14  # bytes that one team copies
TEAM = 128  # threads of it on a GPU
ALIGNED = 256  # bytes at which the copy of an array begins


class Kept:
    """A copy of all that one run's future depends on, where an iteration began: no number before that was infinite or none.

    Args:
        run: ``Run``, between two iterations.

    Attributes:
        sound: Whether all of the run's numbers had been finite when this was made.
        bytes: Of device memory that it takes.
    """

    def __init__(self, run):
        self.run, self.device, self.own = run, run.device, contents(run)
        self.bytes = padded_bytes(self.own)
        memory, begin, self.copies = torch.empty(self.bytes, dtype=torch.uint8, device=run.device), 0, []
        for tensor in self.own:
            self.copies.append(memory[begin : begin + len(tensor)])
            begin += padded_bytes([tensor])
        self.sound = not is_unsound(run)
        self.began = run.step, int(run.rollout.iteration)
        executor = run.batch.executor
        self.program = executor.build(assemble_file("train/keep", team=min(executor.max_team, TEAM)))
        self.call = self._make_call()
        for copy, own in zip(self.copies, self.own, strict=True):
            copy.copy_(own)

    def _make_call(self):
        """Return ``struct Keep``."""
        chunks = [
            (own.data_ptr() + begin, copy.data_ptr() + begin, min(CHUNK, len(own) - begin))
            for own, copy in zip(self.own, self.copies, strict=True)
            for begin in range(0, len(own), CHUNK)
        ]
        self.chunks = torch.tensor(chunks, dtype=torch.int64, device=self.device)
        bad = [learner.bad.data_ptr() for learner in self.run.learners.values()]
        self.bad = torch.tensor(bad, dtype=torch.int64, device=self.device)
        nonfinite = self.run.rollout.nonfinite
        ints = {"chunks": len(chunks), "watched": len(nonfinite), "learners": len(bad)}
        return make_call(ints, {"nonfinite": nonfinite, "bad": self.bad, "chunk": self.chunks})

    def keep(self):
        """Queue a copy of the run as it is, which is not taken if one of its numbers has not been finite."""
        with self.run.rollout.stream():
            self.program.launch("keep", self.call, int(self.call["chunks"]), self.bytes // 8)

    def put_back(self):
        """Write the copy back into the run, as one whose numbers have all been finite; return its env-steps then."""
        run = self.run
        with torch.no_grad():
            for own, copy in zip(self.own, self.copies, strict=True):
                own.copy_(copy)
            run.rollout.nonfinite.fill_(NONE_FOUND)
            for learner in run.learners.values():
                learner.bad.zero_()
        step, iteration = self.began
        return step + (int(run.rollout.iteration) - iteration) * run.steps_per_iteration


@dataclass(frozen=True)
class Failed:
    """That a run's training ended because a number was not finite.

    Args:
        kept: ``Kept`` of before, or None.
        reason: Why there is none, or None.
        until: Env-steps by which it was noticed.
        words: What the error said.
    """

    kept: Kept | None
    reason: str | None
    until: int
    words: str


class Keeping:
    """Keeps copies of runs while they train.

    Args:
        kept: A ``Kept`` of each run.
        launch: Queues the copies of all of them.
        executor: Where.

    Attributes:
        pause: Seconds from one copy to the next.
    """

    def __init__(self, kept, launch, executor):
        self.kept, self.launch = kept, launch
        for _ in range(2):  # in the first one, memory is touched for the first time
            executor.synchronise()
            begun = time.perf_counter()
            launch()
            executor.synchronise()
            self.pause = (time.perf_counter() - begun) / SHARE
        self.due = time.perf_counter() + self.pause

    def keep(self):
        """Queue copies of all runs as they are, if it is time."""
        if time.perf_counter() >= self.due:
            self.launch()
            self.due = time.perf_counter() + self.pause


def why_not_kept(runs):
    """Return why no copies of runs that train side by side are kept, or None."""
    ranks = runs[0].shard.ranks
    if not ranks.alone:
        return f"{ranks.size} processes train the run together, and only one can replay it"
    try:
        needed = sum(padded_bytes(contents(run)) for run in runs)
    except NotKeptError as error:
        return str(error)
    free = runs[0].batch.executor.free_bytes()
    if needed > MOST_MEMORY * free:
        return f"a copy takes {needed:,} bytes, which is more than half of the {free:,} that are free"
    return None


# ---- what is copied ----


class NotKeptError(Exception):
    """A tensor cannot be copied by the kernel."""


def contents(run):
    """Return all that a run's future depends on: views of its memory, flat, uint8."""
    batch = run.batch
    arrays = {name: getattr(batch, name) for name in ("state", "clock", "log")}
    arrays |= {f"returns.{name}": array for name, array in batch.returns.items()}
    found = [as_torch(array.view("u1").reshape(-1)) for array in arrays.values()]
    for name, tensor in run.tensors().items():
        if tensor.device.type != run.device:
            raise NotKeptError(f"its tensor {name} is on {tensor.device.type}")
        found.append(flat(name, tensor))
    return [tensor for tensor in found if len(tensor)]


def flat(name, tensor):
    """Return the memory of a tensor, uint8; its dimensions may lie in any order."""
    tensor = tensor.detach()
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    try:
        return tensor.permute(order).view(-1).view(torch.uint8)
    except RuntimeError:
        raise NotKeptError(f"its tensor {name} does not lie in one piece of memory") from None


def padded_bytes(tensors):
    """Return the bytes that copies of flat tensors take."""
    return sum(-(-len(tensor) // ALIGNED) * ALIGNED for tensor in tensors)


def is_unsound(run):
    """Return whether a number of a run has not been finite; waits for the device."""
    found = run.rollout.nonfinite.ne(NONE_FOUND).any().item()
    return found or any(float(learner.bad) > 0 for learner in run.learners.values())
