"""Trajectory: what a rollout returns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeAlias

import torch

Tensors: TypeAlias = torch.Tensor | dict[str, torch.Tensor]  # by group, if there are several
StepResults: TypeAlias = tuple[Tensors, Tensors, torch.Tensor, torch.Tensor, dict]


@dataclass(frozen=True)
class Trajectory:
    """T steps of N environments; ``final_obs`` and ``episode`` hold values only where an episode
    ended.

    Args:
        obs: (T + 1, N, ...) float32; row t is what the action of row t was taken in.
        action: (T, N, ...) int32 or float32.
        reward: (T, N, ...) float32.
        terminated: (T, N) bool.
        truncated: (T, N) bool.
        final_obs: (T, N, ...) float32 before the autoreset, or None.
        episode: ``return``, ``length`` and the metrics by name, (T, N, ...).
        action_mask: By group whose choices may be forbidden: (T + 1, N, C, choices) bool, what may
            be taken in ``obs``.
        active: By group whose agents may leave: (T, N, C) bool, in the game before the step.
        left: Likewise: left in this step.
    """

    obs: Tensors
    action: Tensors
    reward: Tensors
    terminated: torch.Tensor
    truncated: torch.Tensor
    final_obs: Tensors | None
    episode: dict
    action_mask: dict
    active: dict
    left: dict

    def __repr__(self) -> str:
        steps, copies = self.terminated.shape
        shown = ", ".join(
            f"{f.name} {_shapes(getattr(self, f.name))}"
            for f in fields(self)
            if _shapes(getattr(self, f.name))
        )
        return f"<Trajectory of {steps:,} steps of {copies:,} environments: {shown}>"


def _shapes(value: Tensors | None) -> str:
    """Return the shape and type of an array, or those of arrays by name; an empty string where
    there is none.
    """
    if isinstance(value, dict):
        each = ", ".join(f"{name} {_shapes(array)}" for name, array in value.items())
        return f"{{{each}}}" if each else ""
    return (
        "" if value is None else f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    )
