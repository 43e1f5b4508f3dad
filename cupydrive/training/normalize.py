"""Running mean and variance on the device; ``algorithms/kernels/statistics.py`` updates them."""

from __future__ import annotations

import torch


class RunningMeanStd:
    """Mean and variance of all rows seen so far.

    Args:
        shape: Of one row.
        device: Where.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device | str) -> None:
        self.mean = torch.zeros(shape, device=device, dtype=torch.float64)
        self.variance = torch.ones(shape, device=device, dtype=torch.float64)
        self.count = torch.full((), 1e-4, device=device, dtype=torch.float64)

    def normalized(self, rows: torch.Tensor) -> torch.Tensor:
        """Return ``rows`` (B, *shape) with mean 0 and deviation 1, clipped to [-10, 10]."""
        return ((rows - self.mean.float()) * self.scale()).clamp(-10.0, 10.0)

    def scale(self) -> torch.Tensor:
        """Return one over the deviation, float32."""
        return (self.variance + 1e-8).rsqrt().float()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return mean, variance and count by name."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}
