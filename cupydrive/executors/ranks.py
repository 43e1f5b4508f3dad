"""Processes that train one run together, called ranks as in ``torch.distributed``; and the
environments of each.

Without ``torch.distributed`` there is one rank, which has all environments and exchanges nothing.
Several ranks exchange through the default process group: NCCL or gloo.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from cupydrive.errors import LostProcessError, ParameterError

# that environments are shared among: a rank has some of them whole, and learns from them block by
# block
BLOCKS = 128
LOST_WORDS = (
    "connection",
    "peer",
    "remote process",
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

    def captures(self, device: str) -> bool:
        """Return whether iterations on a device, ``"cuda"`` or ``"cpu"``, can be replayed as a CUDA
        graph.
        """
        return device == "cuda"

    def join(self, tensor: torch.Tensor, shares: Sequence[range], dim: int = 0) -> None:
        """Fill a tensor of which each rank has written a range of its own along ``dim``; all have
        the same bits then.

        Args:
            tensor: Contiguous, of 4 or 8 bytes an entry; changed in place.
            shares: The range that each rank has written; neighbours, which make up all of it.
            dim: Along which.
        """

    def add(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by the sum over all ranks, in an order that the library chooses; all
        have the same bits then.
        """

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return (W, ...): the tensors of all ranks, which have equal shapes."""
        return tensor[None]

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """Return the bytes of each rank; it waits for all of them."""
        return [content]


class DistributedRanks(Ranks):
    """One of the processes of the default group of ``torch.distributed``.

    Attributes:
        added: How many tensors of so many bytes have been added.
    """

    def __init__(self) -> None:
        from torch import distributed

        super().__init__(distributed.get_rank(), distributed.get_world_size(), alone=False)
        self.added: Counter[int]
        object.__setattr__(self, "added", Counter())  # the class is frozen

    def captures(self, device: str) -> bool:
        """See ``Ranks``. A graph can hold the collectives of NCCL only."""
        return device == exchange_device() == "cuda"

    def join(self, tensor: torch.Tensor, shares: Sequence[range], dim: int = 0) -> None:
        """See ``Ranks``. The other ranges are set to 0 and bits are summed as integers: nothing is
        rounded, and -0 stays.
        """
        own = shares[self.rank]
        tensor.narrow(dim, 0, own.start).zero_()
        tensor.narrow(dim, own.stop, tensor.shape[dim] - own.stop).zero_()
        self.add(tensor.view(BITS[tensor.element_size()]))

    def add(self, tensor: torch.Tensor) -> None:
        """See ``Ranks``."""
        from torch import distributed

        self.added[tensor.nbytes] += 1
        with lost_ranks():
            distributed.all_reduce(tensor)

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``Ranks``. The result is on the device of the tensor."""
        from torch import distributed

        there = tensor.to(exchange_device()).contiguous()
        found = there.new_empty((self.size, *tensor.shape))
        with lost_ranks():
            distributed.all_gather(list(found.unbind()), there)
        return found.to(tensor.device)

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """See ``Ranks``."""
        device = exchange_device()
        sizes = self.gather(torch.tensor([len(content)], device=device)).view(-1).tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
        if content:
            padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        found = self.gather(padded).cpu().numpy()
        return [row[:size].tobytes() for row, size in zip(found, sizes, strict=True)]


def current_ranks() -> Ranks:
    """Return the ``Ranks`` of this process: ``DistributedRanks`` inside a process group of
    ``torch.distributed``.
    """
    from torch import distributed

    several = (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
    return DistributedRanks() if several else Ranks()


def exchange_device() -> str:
    """Return the device of tensors that the default group exchanges."""
    from torch import distributed

    return "cuda" if "cuda:nccl" in distributed.get_backend_config() else "cpu"


@contextlib.contextmanager
def lost_ranks() -> Iterator[None]:
    """Turn what a library says when another process has ended into ``LostProcessError``."""
    try:
        yield
    except RuntimeError as error:  # gloo has no type of its own for it
        if not any(word in str(error).lower() for word in LOST_WORDS):
            raise
        words = str(error).splitlines()[0][:200]
        raise LostProcessError(
            f"another process of this run has ended or does not answer, and the run ends with it: "
            f"{words}. The last checkpoint is kept; go on with resume=True, on as many processes "
            f"as you like"
        ) from None


@dataclass(frozen=True)
class Shard:
    """The environments of one rank: neighbouring blocks of them, as even shares as whole blocks
    allow.

    Args:
        all_envs: N of all ranks.
        ranks: ``Ranks``.
        most_blocks: How many blocks there are at most.

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
    most_blocks: int = BLOCKS

    def __post_init__(self) -> None:
        if self.all_blocks < self.ranks.size:
            raise ParameterError(
                f"num_envs = {self.all_envs} environments fall into {self.all_blocks} blocks, "
                f"which cannot be shared out among {self.ranks.size} processes; take as many "
                f"environments, or fewer processes, {BLOCKS} at most"
            )

    @property
    def all_blocks(self) -> int:
        """Return how many blocks there are."""
        return min(self.all_envs, self.most_blocks)

    @cached_property
    def blocks(self) -> range:
        """Return the blocks of this rank."""
        return self.blocks_of(self.ranks.rank)

    @cached_property
    def envs(self) -> range:
        """Return the environments of this rank."""
        return self.envs_of(self.ranks.rank)

    @property
    def num_envs(self) -> int:
        """Return how many environments this rank has."""
        return len(self.envs)

    def all_shares(self) -> list[range]:
        """Return the blocks of each rank."""
        return [self.blocks_of(rank) for rank in range(self.ranks.size)]

    def blocks_of(self, rank: int) -> range:
        """Return the range of another rank's blocks."""
        begin, end = (k * self.all_blocks // self.ranks.size for k in (rank, rank + 1))
        return range(begin, end)

    def envs_of(self, rank: int) -> range:
        """Return the range of another rank's environments."""
        blocks = self.blocks_of(rank)
        return range(self.first_env(blocks.start), self.first_env(blocks.stop))

    def first_env(self, block: int) -> int:
        """Return the first environment of a block of all."""
        return block * self.all_envs // self.all_blocks
