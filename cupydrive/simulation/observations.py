"""Conversion of observations from the arrays of a rollout to the input of networks.

Letters: B rows, D entries of an observation, W 32-bit words of D bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cupydrive.executors.bits import unpack_bits

if TYPE_CHECKING:
    from cupydrive.spec import Group


def raw_obs(group: Group, rows: torch.Tensor) -> torch.Tensor:
    """Convert rows to observations (..., *obs_shape), as ``env.step`` returns them.

    Args:
        group: The ``Group``.
        rows: (..., D), or (..., W) if they are packed bits.
    """
    if group.bits and rows.dtype == torch.int32:
        rows = unpack_bits(rows, group.obs_dim)
    return rows if group.obs_shape == (group.obs_dim,) else rows.unflatten(-1, group.obs_shape)


def network_input(group: Group, rows: torch.Tensor) -> torch.Tensor:
    """Convert rows (B, D) or (B, W) to the input of a network, (B, *obs_shape) float32.

    Observations of uint8 are divided by ``obs_high``.
    """
    obs = raw_obs(group, rows).float()
    if group.obs_dtype != "uint8":
        return obs
    high = torch.as_tensor(group.obs_high, dtype=torch.float32, device=obs.device)
    return obs / (high if high.dim() == 0 else high.view(group.obs_shape))
