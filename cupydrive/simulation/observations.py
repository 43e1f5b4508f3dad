"""Observations as networks see them, of rows as the arrays of a rollout hold them.

Letters: B rows, D entries of an observation, W words of D bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cupydrive.executors.bits import unpack_bits

if TYPE_CHECKING:
    from cupydrive.spec import Group


def raw_obs(group: Group, rows: torch.Tensor) -> torch.Tensor:
    """Return observations (..., *obs_shape) as ``env.step`` returns them, of rows (..., D) or, of
    bits, (..., W).
    """
    if group.bits and rows.dtype == torch.int32:
        rows = unpack_bits(rows, group.obs_dim)
    return rows if group.obs_shape == (group.obs_dim,) else rows.unflatten(-1, group.obs_shape)


def network_input(group: Group, rows: torch.Tensor) -> torch.Tensor:
    """Return what a network is called with: (B, *obs_shape) float32 of rows (B, D) or (B, W);
    bytes are divided by ``obs_high``.
    """
    obs = raw_obs(group, rows).float()
    if group.obs_dtype != "uint8":
        return obs
    high = torch.as_tensor(group.obs_high, dtype=torch.float32, device=obs.device)
    return obs / (high if high.dim() == 0 else high.view(group.obs_shape))
