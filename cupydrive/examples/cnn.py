"""Convolutions on MinAtar's Breakout: as a description, which kernels train, and as a torch module.

Run it with ``python -m cupydrive.examples.cnn``.
"""

from typing import Any

import torch
from torch import nn

import cupydrive as cd

CONV = cd.Network(conv=cd.Conv((16,), kernel=3), hidden=(128,), activation="relu", shared=True)


class Cnn(nn.Module):
    """The network that ``CONV`` describes, for images of 10 x 10 cells with 4 channels.

    Args:
        obs_dim: Entries of an observation, 400.
        size: Number of logits.
    """

    def __init__(self, obs_dim: int, size: int) -> None:
        super().__init__()
        self.conv, self.hidden = nn.Conv2d(4, 16, 3), nn.Linear(16 * 8 * 8, 128)
        self.out = nn.Linear(128, size + 1)
        for layer, gain in ((self.conv, 2**0.5), (self.hidden, 2**0.5), (self.out, 0.01)):
            nn.init.orthogonal_(layer.weight, gain)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, size) and values (B,) of images (B, 10, 10, 4)."""
        seen = self.conv(obs.permute(0, 3, 1, 2)).relu().flatten(1)
        out = self.out(self.hidden(seen).relu())
        return out[:, :-1], out[:, -1]


def trained(steps: int = 1_500_000, device: str = "auto", **network: Any) -> cd.Run:
    """Return a run of ``minatar_breakout`` with the suggested settings.

    Args:
        steps: Environment steps.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        **network: ``network=CONV`` or ``policy=Cnn``.
    """
    settings = cd.suggested_algorithm("minatar_breakout", **network)
    run = cd.train("minatar_breakout", settings, steps=steps, device=device)
    assert isinstance(run, cd.Run)
    return run


if __name__ == "__main__":
    for run in (trained(network=CONV), trained(policy=Cnn)):
        print(run.evaluate())
