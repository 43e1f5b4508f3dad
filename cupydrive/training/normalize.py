"""Running mean and variance on the device.

Source: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
"""

import torch

from cupydrive.executors.ranks import Ranks

NOBODY_ELSE = Ranks()


class RunningMeanStd:
    """Mean and variance of all rows seen so far.

    Args:
        shape: Of one row.
        device: Where.
    """

    def __init__(self, shape, device):
        self.mean = torch.zeros(shape, device=device, dtype=torch.float64)
        self.variance = torch.ones(shape, device=device, dtype=torch.float64)
        self.count = torch.full((), 1e-4, device=device, dtype=torch.float64)

    def update(self, rows, ranks=NOBODY_ELSE):
        """Take in ``rows`` (..., *shape), and those of other ``Ranks``."""
        rows = rows.double().reshape(-1, *self.mean.shape)
        if ranks.alone:
            variance, mean = torch.var_mean(rows, dim=0, correction=0)
            self.merge(mean, variance, len(rows))
            return
        count = torch.full_like(self.count, len(rows))
        ranks.add(count)
        mean = rows.sum(0) / count
        ranks.add(mean)
        variance = ((rows - mean) ** 2).sum(0) / count
        ranks.add(variance)
        self.merge(mean, variance, count)

    def merge(self, mean, variance, rows):
        """Take in ``rows`` rows, an int or a tensor, of which mean and variance (*shape) float64 are known."""
        total = self.count + rows
        apart = mean - self.mean
        spread = self.variance * self.count + variance * rows + apart**2 * self.count * rows / total
        self.mean += apart * rows / total
        self.variance.copy_(spread / total)
        self.count.copy_(total)

    def normalized(self, rows):
        """Return ``rows`` (B, *shape) with mean 0 and deviation 1, clipped to [-10, 10]."""
        return ((rows - self.mean.float()) * self.scale()).clamp(-10.0, 10.0)

    def scale(self):
        """Return one over the deviation, float32."""
        return (self.variance + 1e-8).rsqrt().float()

    def tensors(self):
        """Return mean, variance and count by name."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}
