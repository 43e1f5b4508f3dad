"""Convolutions of channels-last images, and their normalization, as ordinary torch modules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from cupydrive.algorithms.architecture import ConvLayer


class Convolution(nn.Module):
    """Convolutional layer from rows (B, H * W * C) to rows (B, H' * W' * channels).

    torch interprets the rows as images in its format ``channels_last``, without a copy. The weights
    are (channels, kernel * kernel * C). Each row is a kernel in the order of the image's entries.

    Args:
        layer: Sizes of the layer.
        initial: Initialize the weights. If False, the caller must fill them.
        generator: ``torch.Generator`` of the orthogonal weights. Defaults to torch's own.
    """

    def __init__(
        self, layer: ConvLayer, initial: bool = True, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.image, self.kernel, self.stride = layer.image, layer.kernel, layer.stride
        self.positions = layer.positions
        shape = layer.channels, layer.inputs
        self.weight = nn.Parameter(torch.zeros(shape, dtype=torch.float32, device="cpu"))
        self.bias = nn.Parameter(torch.zeros(shape[0], dtype=torch.float32, device="cpu"))
        if initial:
            nn.init.orthogonal_(self.weight, math.sqrt(2), generator=generator)

    def extra_repr(self) -> str:
        """Return the sizes, for ``repr``."""
        return (
            f"{self.image}, channels={len(self.bias)}, kernel={self.kernel}, stride={self.stride}"
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Apply the layer to rows (B, H * W * C)."""
        images = rows.view(-1, *self.image).permute(0, 3, 1, 2)
        kernels = self.weight.view(-1, self.kernel, self.kernel, self.image[2])
        out = functional.conv2d(images, kernels.permute(0, 3, 1, 2), self.bias, self.stride)
        return out.permute(0, 2, 3, 1).flatten(1)


class ChannelNorm(nn.LayerNorm):
    """Layer normalization over the channels of each position, for rows (B, H * W * channels).

    Args:
        channels: Number of channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, dtype=torch.float32, device="cpu")

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Normalize rows (B, H * W * channels)."""
        return super().forward(rows.unflatten(1, (-1, len(self.weight)))).flatten(1)
