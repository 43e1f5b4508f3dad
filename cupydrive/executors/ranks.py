"""Processes that train one run together, called ranks as in ``torch.distributed``; and the environments of each.

Without ``torch.distributed`` there is one rank, which has all environments and exchanges nothing. Several on one machine with
GPUs exchange by peer memory what is small (``peers.py``), the rest by the library of their process group.
"""

import contextlib
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import torch

from cupydrive.errors import LostProcessError, ParameterError
from cupydrive.executors.processes import LONGEST

BLOCKS = 128  # that environments are shared among: a rank has some of them whole, and learns from them block by block
LOST = (
    "connection",
    "peer",
    "broken pipe",
    "timed out",
    "timeout",
    "socket",
)  # in what is said of a process that has ended
BITS = {4: torch.int32, 8: torch.int64}  # types of as many bytes


@dataclass(frozen=True)
class Ranks:
    """One process that has everything: what it would exchange with others stays as it is.

    Attributes:
        rank: Number of this process, from 0 on.
        size: How many there are, W.
        alone: Whether nothing is exchanged.
    """

    rank: int = 0
    size: int = 1
    alone: bool = True

    def connect(self, device):
        """Prepare the fastest sums of tensors on a device that there are; all ranks must call it.

        Args:
            device: ``"cuda"`` or ``"cpu"``.

        Returns:
            One line that says which, and why, the same on all ranks; empty if nothing is exchanged.
        """
        return ""

    def join(self, tensor, shares, dim=0):
        """Fill a tensor of which each rank has written a range of its own along ``dim``; all have the same bits then.

        Args:
            tensor: Contiguous, of 4 or 8 bytes an entry; changed in place.
            shares: The range that each rank has written; neighbours, which make up all of it.
            dim: Along which.
        """

    def add(self, tensor):
        """Replace a tensor by the sum over all ranks, in an order that the library chooses; all have the same bits then."""

    def check(self):
        """Raise ``LostProcessError`` if what the device has exchanged so far is not what others have sent."""

    def gather(self, tensor):
        """Return (W, ...): the tensors of all ranks, which have equal shapes."""
        return tensor[None]

    def gather_bytes(self, content):
        """Return the bytes of each rank; it waits for all of them."""
        return [content]


class DistributedRanks(Ranks):
    """One of the processes of the default group of ``torch.distributed``.

    Attributes:
        added: How many tensors of so many bytes have been added (or joined, which may add them).
        joined: How many of these were joined.
        peers: ``PeerMemory``, or None: all is exchanged by the group's library.
    """

    def __init__(self):
        from torch import distributed

        super().__init__(distributed.get_rank(), distributed.get_world_size(), alone=False)
        object.__setattr__(self, "added", Counter())  # the class is frozen
        object.__setattr__(self, "joined", Counter())
        object.__setattr__(self, "peers", None)

    def connect(self, device):
        """See ``Ranks``."""
        from torch import distributed

        library = distributed.get_backend()
        if device != "cuda":
            return f"sums between processes: {library}"
        peers, why = peers_of_group(self)
        object.__setattr__(self, "peers", peers)
        if peers is None:
            return f"sums between processes: {library}, and no peer memory ({why})"
        limit = 4 * peers.mails // self.size
        return f"sums between processes: peer memory; by {library} those of more than {limit:,} bytes"

    def join(self, tensor, shares, dim=0):
        """See ``Ranks``. By a library others' ranges are 0 and bits added as integers: no rounding, and no -0 becomes 0."""
        self.joined[tensor.nbytes] += 1
        if self.peers is not None and self.peers.joins(tensor, shares, dim):
            self.added[tensor.nbytes] += 1
            self.peers.join(tensor, shares, dim)
            return
        own = shares[self.rank]
        tensor.narrow(dim, 0, own.start).zero_()
        tensor.narrow(dim, own.stop, tensor.shape[dim] - own.stop).zero_()
        self.add(tensor.view(BITS[tensor.element_size()]))

    def add(self, tensor):
        """See ``Ranks``."""
        self.added[tensor.nbytes] += 1
        if self.peers is not None and self.peers.adds(tensor):
            self.peers.add(tensor)
        else:
            self.add_by_library(tensor)

    def add_by_library(self, tensor):
        """Replace a tensor by the sum over all ranks as ``torch.distributed`` does."""
        from torch import distributed

        with lost_ranks():
            distributed.all_reduce(tensor)

    def check(self):
        """See ``Ranks``."""
        if self.peers is not None and (words := self.peers.lost()):
            raise lost_error(words)

    def gather(self, tensor):
        """See ``Ranks``."""
        found, rows = tensor.new_empty((self.size, *tensor.shape)), [range(k, k + 1) for k in range(self.size)]
        if self.peers is not None and self.peers.joins(found, rows, 0):
            found[self.rank] = tensor
            self.peers.join(found, rows)
            return found
        return self.gather_by_library(tensor)

    def gather_by_library(self, tensor):
        """Return (W, ...) as ``torch.distributed`` does, on the device of the tensor."""
        from torch import distributed

        there = tensor.to(exchange_device()).contiguous()
        found = there.new_empty((self.size, *tensor.shape))
        with lost_ranks():
            distributed.all_gather(list(found.unbind()), there)
        return found.to(tensor.device)

    def gather_bytes(self, content):
        """See ``Ranks``."""
        device = exchange_device()
        sizes = self.gather(torch.tensor([len(content)], device=device)).view(-1).tolist()
        self.check()
        padded = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
        if content:
            padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        found = self.gather(padded).cpu().numpy()
        self.check()
        return [row[:size].tobytes() for row, size in zip(found, sizes, strict=True)]


_opened = None, None, ""  # the process group that it is of (a weak reference), ``PeerMemory`` or None, why not


def peers_of_group(ranks):
    """Return ``(PeerMemory, "")`` of the default process group, or ``(None, why not)``; all ranks must call it.

    Args:
        ranks: ``DistributedRanks``.
    """
    global _opened
    from torch import distributed

    group = distributed.group.WORLD
    if _opened[0] is None or _opened[0]() is not group:
        if ranks.size == 1:
            peers, why = None, "there is one process"
        else:
            from cupydrive.executors.peers import open_peers

            peers, why = open_peers(ranks.rank, ranks.size, ranks.gather_bytes, LONGEST.total_seconds())
        _opened = weakref.ref(group), peers, why
    return _opened[1:]


def current_ranks():
    """Return the ``Ranks`` of this process: ``DistributedRanks`` inside a process group of ``torch.distributed``."""
    from torch import distributed

    several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    return DistributedRanks() if several else Ranks()


def exchange_device():
    """Return the device of tensors that the default group exchanges."""
    from torch import distributed

    return "cuda" if "nccl" in distributed.get_backend() else "cpu"


@contextlib.contextmanager
def lost_ranks():
    """Turn what a library says when another process has ended into ``LostProcessError``."""
    try:
        yield
    except RuntimeError as error:  # gloo has no type of its own for it
        if not any(word in str(error).lower() for word in LOST):
            raise
        raise lost_error(str(error).splitlines()[0][:200]) from None


def lost_error(words):
    """Return the ``LostProcessError`` of a run, with what was noticed."""
    return LostProcessError(
        f"another process of this run has ended or does not answer, and the run ends with it: {words}. The last checkpoint is "
        "kept; go on with resume=True, on as many processes as you like"
    )


@dataclass(frozen=True)
class Shard:
    """The environments of one rank: neighbouring blocks of them, as even shares as whole blocks allow.

    Args:
        all_envs: N of all ranks.
        ranks: ``Ranks``.

    Attributes:
        all_blocks: Of all ranks.
        blocks: The range of this rank's.
        envs: The range of this rank's environments, as their global ids.
        num_envs: How many those are.

    Raises:
        ParameterError: If there are fewer blocks than ranks.
    """

    all_envs: int
    ranks: Ranks = Ranks()

    def __post_init__(self):
        if self.all_blocks < self.ranks.size:
            raise ParameterError(
                f"num_envs = {self.all_envs} environments fall into {self.all_blocks} blocks, which cannot be shared out among "
                f"{self.ranks.size} processes; take as many environments, or fewer processes, {BLOCKS} at most"
            )

    @property
    def all_blocks(self):
        """Return how many blocks there are."""
        return min(self.all_envs, BLOCKS)

    @cached_property
    def blocks(self):
        """Return the blocks of this rank."""
        return self.blocks_of(self.ranks.rank)

    @cached_property
    def envs(self):
        """Return the environments of this rank."""
        return self.envs_of(self.ranks.rank)

    @property
    def num_envs(self):
        """Return how many environments this rank has."""
        return len(self.envs)

    def all_shares(self):
        """Return the blocks of each rank."""
        return [self.blocks_of(rank) for rank in range(self.ranks.size)]

    def blocks_of(self, rank):
        """Return the range of another rank's blocks."""
        begin, end = (k * self.all_blocks // self.ranks.size for k in (rank, rank + 1))
        return range(begin, end)

    def envs_of(self, rank):
        """Return the range of another rank's environments."""
        blocks = self.blocks_of(rank)
        return range(self.first_env(blocks.start), self.first_env(blocks.stop))

    def first_env(self, block):
        """Return the first environment of a block of all."""
        return block * self.all_envs // self.all_blocks
