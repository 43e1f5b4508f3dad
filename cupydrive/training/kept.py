"""Copies of runs from before their first number that is not finite, kept on the device while they train.

A copy is taken where an iteration begins, by a kernel that leaves the last ones as they are once a number was not finite: the
host hears of that late. So seldom that copies take SHARE of the time; ``explain.py`` replays what came after, a few iterations.
"""

import math
import time
from dataclasses import dataclass

import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import as_torch, make_call
from cupydrive.playing.rollout import NONE_FOUND

SHARE = 0.01  # of the time that copies take
SLOTS = 2  # copies of each run
MOST_MEMORY = 0.5  # of the free memory that they take
TRIALS = 3  # by which their time is known
CHUNK = 1 << 14  # bytes that one team copies
TEAM = 128  # threads of it on a GPU
ITERATION = "iteration"  # of a run's tensors, the one that counts its rollouts
ALIGNED = 256  # bytes at which the copy of an array begins


class Kept:
    """Copies of all that one run's future depends on, of two moments where an iteration began.

    No number before either moment was infinite or none. The older one is there so that what led to the number is replayed, too:
    weights often grow in one iteration and are met in the next.

    Args:
        run: ``Run``, between two iterations.

    Attributes:
        sound: Whether all of the run's numbers had been finite when this was made.
        slots: The two copies, each a list of flat tensors, in the order of ``own``.
    """

    def __init__(self, run):
        self.run = run
        known = contents(run)
        self.own, self.number = list(known.values()), list(known).index(ITERATION)
        self.ranks = run.shard.ranks
        self.nonfinite = run.rollout.nonfinite  # of several processes that train the run a copy of all of theirs
        if not self.ranks.alone:
            self.nonfinite = self.ranks.gather(self.nonfinite).view(-1)
        self.sound = not is_unsound(run, self.nonfinite)
        self.began = run.step, int(run.rollout.iteration)
        executor = run.batch.executor
        self.program = executor.build(assemble_file("train/keep", team=min(executor.max_team, TEAM)))
        self.slots = [self._make_copies() for _ in range(SLOTS)]
        bad = [learner.bad.data_ptr() for learner in run.learners.values()]
        self.bad = torch.tensor(bad, dtype=torch.int64, device=run.device)
        self.chunks = [chunks_of(self.own, copies) for copies in self.slots]
        self.calls = [self._make_call(chunks) for chunks in self.chunks]

    def _make_copies(self):
        """Return copies of the tensors as they are, in one piece of memory."""
        memory, copies, begin = torch.empty(bytes_of(self.own), dtype=torch.uint8, device=self.run.device), [], 0
        for own in self.own:
            copies.append(memory[begin : begin + len(own)].copy_(own))
            begin += bytes_of([own])
        return copies

    def _make_call(self, chunks):
        """Return ``struct Keep``."""
        ints = {"chunks": len(chunks), "watched": len(self.nonfinite), "learners": len(self.bad)}
        return make_call(ints, {"nonfinite": self.nonfinite, "bad": self.bad, "chunk": chunks})

    def keep(self, slot):
        """Queue a copy of the run as it is, which is not taken if one of its numbers has not been finite.

        Of several processes that train it all must call this, so that their copies are of one moment.
        """
        with self.run.rollout.stream():
            if not self.ranks.alone:
                self.nonfinite.copy_(self.ranks.gather(self.run.rollout.nonfinite).view(-1))
            self.program.launch("keep", self.calls[slot], len(self.chunks[slot]), bytes_of(self.own) // 8)

    def oldest(self):
        """Return the number of the slot whose moment came first; waits for the device."""
        return min(range(SLOTS), key=lambda slot: int(self.slots[slot][self.number].view(torch.int64)))

    def put_back(self, slot):
        """Write a copy back into the run, as one whose numbers have all been finite; return its env-steps then."""
        run = self.run
        with torch.no_grad():
            for own, copy in zip(self.own, self.slots[slot], strict=True):
                own.copy_(copy)
        run.forget_nonfinite()
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
    """Keeps copies of runs while they train, so seldom that they take SHARE of the time.

    Args:
        kept: A ``Kept`` of each run.
        launches: What queues copies of all of them, for each slot.

    Attributes:
        seconds: That a copy takes.
    """

    def __init__(self, kept, launches):
        self.kept, self.launches, self.next = kept, launches, 0
        self.alone, executor = kept[0].ranks.alone, kept[0].run.batch.executor
        self.least = self.seconds = min(seconds_of(launches[0], executor) for _ in range(TRIALS))
        self.every = self.left = (
            math.inf
        )  # iterations between copies, and until the next, that several processes agree on
        self.due = time.perf_counter() + self.seconds / SHARE

    def keep(self):
        """Queue copies of all runs as they are, if it is time."""
        self.left -= 1
        begun = time.perf_counter()
        if self.left > 0 and not (self.alone and begun >= self.due):
            return
        self.launches[self.next]()
        self.next, self.left = (self.next + 1) % SLOTS, self.every
        now = time.perf_counter()  # in training caches hold other things, and a host's launch takes longer
        self.seconds = max(self.least, now - begun)
        self.due = now + self.seconds / SHARE

    def agree(self, seconds, iteration):
        """Have several processes that train one run make copies in the same iterations.

        Args:
            seconds: That a copy takes, as all of them have heard it.
            iteration: Seconds of an iteration, likewise.
        """
        self.every = max(1, math.ceil(seconds / SHARE / iteration))
        self.left = min(self.left, self.every)


def seconds_of(launch, executor):
    """Return how long a launch takes, the host's part and the device's."""
    executor.synchronise()
    begun = time.perf_counter()
    launch()
    executor.synchronise()
    return time.perf_counter() - begun


def why_not_kept(runs):
    """Return why no copies of runs that train side by side are kept, or None; all processes that train them say the same."""
    try:
        needed = SLOTS * sum(bytes_of(contents(run).values()) for run in runs)
        free = runs[0].batch.executor.free_bytes()
        why = f"copies take {needed:,} bytes, which is more than half of the {free:,} that were free"
        why = why if needed > MOST_MEMORY * free else ""
    except NotKeptError as error:
        why = str(error)
    said = runs[0].shard.ranks.gather_bytes(why.encode())
    return next((words.decode() for words in said if words), None)


# ---- what is copied ----


class NotKeptError(Exception):
    """A tensor cannot be copied by the kernel."""


def contents(run):
    """Return all that a run's future depends on by name: views of its memory, flat, uint8."""
    batch = run.batch
    arrays = {f"env/{name}": getattr(batch, name) for name in ("state", "clock", "log")}
    arrays |= {f"env/returns.{name}": array for name, array in batch.returns.items()}
    found = {name: as_torch(array.view("u1").reshape(-1)) for name, array in arrays.items()}
    for name, tensor in run.tensors().items():
        if tensor.device.type != run.device:
            raise NotKeptError(f"its tensor {name} is on {tensor.device.type}")
        found[name] = flat(name, tensor)
    return {name: tensor for name, tensor in found.items() if len(tensor)}


def flat(name, tensor):
    """Return the memory of a tensor, uint8; its dimensions may lie in any order."""
    tensor = tensor.detach()
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    try:
        return tensor.permute(order).view(-1).view(torch.uint8)
    except RuntimeError:
        raise NotKeptError(f"its tensor {name} does not lie in one piece of memory") from None


def bytes_of(tensors):
    """Return the bytes that copies of flat tensors take."""
    return sum(-(-len(tensor) // ALIGNED) * ALIGNED for tensor in tensors)


def chunks_of(own, copies):
    """Return (chunks, 3) int64 on the tensors' device: of each row ``keep.cu`` makes a ``struct Chunk``.

    Args:
        own: Flat tensors.
        copies: Likewise, of the same sizes.
    """
    chunks = [
        (tensor.data_ptr() + begin, copy.data_ptr() + begin, min(CHUNK, len(tensor) - begin))
        for tensor, copy in zip(own, copies, strict=True)
        for begin in range(0, len(tensor), CHUNK)
    ]
    return torch.tensor(chunks, dtype=torch.int64, device=own[0].device)


def is_unsound(run, nonfinite):
    """Return whether a number of a run has not been finite, of which ``nonfinite`` tells; waits for the device."""
    return bool(nonfinite.ne(NONE_FOUND).any()) or any(float(learner.bad) > 0 for learner in run.learners.values())
