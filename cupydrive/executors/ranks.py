"""Ranks, the processes that train one run together, and their shards of the environments.

Without ``torch.distributed`` there is one rank with all environments and no communication. Several
ranks communicate through the default process group, NCCL or gloo.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from cupydrive.errors import LostProcessError, ParameterError

# Number of blocks of environments. A rank has whole blocks, and learns from them block by block.
BLOCKS = 128
LOST_WORDS = (
    "connection",
    "peer",
    "remote process",
    "broken pipe",
    "timed out",
    "timeout",
    "socket",
)  # words in the error messages about a process that has ended
BITS = {4: torch.int32, 8: torch.int64}  # integer types by size in bytes


@dataclass(frozen=True)
class Ranks:
    """A single process, whose collectives do nothing.

    Attributes:
        rank: Index of this process.
        size: Number of processes, W.
        alone: Whether there is no communication.
    """

    rank: int = 0
    size: int = 1
    alone: bool = True

    def captures(self, device: str) -> bool:
        """Return whether iterations on ``"cuda"`` or ``"cpu"`` can be captured as a CUDA graph."""
        return device == "cuda"

    def join(self, tensor: torch.Tensor, shares: Sequence[range], dim: int = 0) -> None:
        """All-gather a tensor in place, of which each rank has written its own range along ``dim``.

        Afterwards the tensor is bitwise identical on all ranks.

        Args:
            tensor: Contiguous tensor with 4 or 8 bytes per entry.
            shares: Range written by each rank. The ranges are adjacent and cover the dimension.
            dim: Dimension of the ranges.
        """

    def add(self, tensor: torch.Tensor) -> None:
        """All-reduce a tensor in place by summation, in an order that the library chooses.

        Afterwards the tensor is bitwise identical on all ranks.
        """

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """All-gather tensors of equal shapes. Return (W, ...)."""
        return tensor[None]

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """All-gather bytes. Return the bytes of each rank."""
        return [content]


class DistributedRanks(Ranks):
    """One of the processes of the default group of ``torch.distributed``.

    Attributes:
        added: Number of all-reduced tensors, by size in bytes.
    """

    def __init__(self) -> None:
        from torch import distributed

        super().__init__(distributed.get_rank(), distributed.get_world_size(), alone=False)
        self.added: Counter[int]
        object.__setattr__(self, "added", Counter())  # the class is frozen

    def captures(self, device: str) -> bool:
        """See ``Ranks``. A graph can capture only the collectives of NCCL."""
        return device == exchange_device() == "cuda"

    def join(self, tensor: torch.Tensor, shares: Sequence[range], dim: int = 0) -> None:
        """See ``Ranks``. The other ranges are set to 0, and bits are summed as integers.

        Therefore nothing is rounded, and -0 is preserved.
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
    """Return ``DistributedRanks`` inside a process group of ``torch.distributed``, or ``Ranks``."""
    from torch import distributed

    several = (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
    return DistributedRanks() if several else Ranks()


def exchange_device() -> str:
    """Return the device of tensors for collectives of the default group."""
    from torch import distributed

    return "cuda" if "cuda:nccl" in distributed.get_backend_config() else "cpu"


@contextlib.contextmanager
def lost_ranks() -> Iterator[None]:
    """Convert errors about a process that has ended to ``LostProcessError``."""
    try:
        yield
    except RuntimeError as error:  # gloo has no specific type for it
        if not any(word in str(error).lower() for word in LOST_WORDS):
            raise
        words = str(error).splitlines()[0][:200]
        raise LostProcessError(
            f"another process of this run has ended or does not respond, so the run ends: {words}. "
            f"The last checkpoint is kept. Continue with resume=True on any number of processes"
        ) from None


@dataclass(frozen=True)
class Shard:
    """The environments of one rank: adjacent blocks, distributed as evenly as possible.

    Args:
        all_envs: Number of environments of all ranks.
        ranks: ``Ranks``.
        most_blocks: Maximum number of blocks.

    Attributes:
        all_blocks: Number of blocks of all ranks.
        blocks: Range of this rank's blocks.
        envs: Range of this rank's environments, as global ids.
        num_envs: Number of this rank's environments.

    Raises:
        ParameterError: If there are fewer blocks than ranks.
    """

    all_envs: int
    ranks: Ranks = Ranks()
    most_blocks: int = BLOCKS

    def __post_init__(self) -> None:
        if self.all_blocks < self.ranks.size:
            raise ParameterError(
                f"num_envs = {self.all_envs} environments form {self.all_blocks} blocks, which "
                f"cannot be divided among {self.ranks.size} processes. Use at least as many "
                f"environments as processes, and at most {BLOCKS} processes"
            )

    @property
    def all_blocks(self) -> int:
        """Number of blocks of all ranks."""
        return min(self.all_envs, self.most_blocks)

    @cached_property
    def blocks(self) -> range:
        """Range of this rank's blocks."""
        return self.blocks_of(self.ranks.rank)

    @cached_property
    def envs(self) -> range:
        """Range of this rank's environments."""
        return self.envs_of(self.ranks.rank)

    @property
    def num_envs(self) -> int:
        """Number of this rank's environments."""
        return len(self.envs)

    def all_shares(self) -> list[range]:
        """Return the blocks of each rank."""
        return [self.blocks_of(rank) for rank in range(self.ranks.size)]

    def blocks_of(self, rank: int) -> range:
        """Return the range of blocks of any rank."""
        begin, end = (k * self.all_blocks // self.ranks.size for k in (rank, rank + 1))
        return range(begin, end)

    def envs_of(self, rank: int) -> range:
        """Return the range of environments of any rank."""
        blocks = self.blocks_of(rank)
        return range(self.first_env(blocks.start), self.first_env(blocks.stop))

    def first_env(self, block: int) -> int:
        """Return the first environment of a block."""
        return block * self.all_envs // self.all_blocks
