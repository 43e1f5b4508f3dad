"""Rows of bool packed as bits, in the layout of ``kernels/drive/bits.cuh``.

Bit k of a row is bit k % 32 of its int32 word k / 32.
Letters: D entries of a row, W = ceil(D / 32) words.
"""

from __future__ import annotations

import torch
from torch.nn import functional


def shifts(device: torch.device) -> torch.Tensor:
    """Return 0, 1, ... 31 as int32."""
    return torch.arange(32, dtype=torch.int32, device=device)


def unpack_bits(words: torch.Tensor, entries: int) -> torch.Tensor:
    """Unpack (..., W) int32 words to (..., D) bool. ``entries`` is D."""
    flags = words[..., None] >> shifts(words.device) & 1
    return flags.flatten(-2)[..., :entries] != 0


def pack_bits(flags: torch.Tensor) -> torch.Tensor:
    """Pack (..., D) bool into (..., W) int32 words."""
    padded = functional.pad(flags.to(torch.int32), (0, -flags.shape[-1] % 32))
    bits = padded.unflatten(-1, (-1, 32)) << shifts(flags.device)
    return bits.sum(-1, dtype=torch.int32)
