"""Trajectory: result of a rollout."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TypeAlias, cast

import torch

from cupydrive.errors import ParameterError
from cupydrive.simulation.observations import raw_obs
from cupydrive.spec import Group

Tensors: TypeAlias = torch.Tensor | dict[str, torch.Tensor]  # by group, if there are several
StepResults: TypeAlias = tuple[Tensors, Tensors, torch.Tensor, torch.Tensor, dict]


@dataclass(frozen=True)
class Trajectory:
    """T steps of N environments.

    Values of ``final_obs`` and ``episode`` are valid only where an episode has ended.

    Args:
        groups: The environment's ``Group``s.
        stored_obs: Observations in memory: in the form of ``obs``, or as words of bits,
            (T + 1, N, ..., W) int32.
        action: (T, N, ...) int32 or float32.
        reward: (T, N, ...) float32.
        terminated: (T, N) bool.
        truncated: (T, N) bool.
        stored_final_obs: Observations before the autoreset, (T, N, ...), or None.
        episode: ``return``, ``length`` and the metrics by name, (T, N, ...).
        action_mask: Allowed choices in ``obs`` by group with masks, (T + 1, N, C, choices) bool.
        active: Agents in the game before the step by group whose agents may leave, (T, N, C) bool.
        left: Agents that left in the step by group whose agents may leave, (T, N, C) bool.

    Examples:
        >>> import cupydrive as cd
        >>> env = cd.make("cartpole", num_envs=8, device="cpu")
        >>> obs, info = env.reset(seed=0)
        >>> trajectory = env.rollout(100)
        >>> trajectory.obs.shape, trajectory.action.shape
        (torch.Size([101, 8, 4]), torch.Size([100, 8]))
    """

    groups: tuple[Group, ...]
    stored_obs: Tensors
    action: Tensors
    reward: Tensors
    terminated: torch.Tensor
    truncated: torch.Tensor
    stored_final_obs: Tensors | None
    episode: dict
    action_mask: dict
    active: dict
    left: dict

    def _shown(self, stored: Tensors | None) -> Tensors | None:
        def shown(g: Group, rows: torch.Tensor) -> torch.Tensor:
            return raw_obs(g, rows) if g.bits else rows

        if isinstance(stored, dict):
            return {g.name: shown(g, stored[g.name]) for g in self.groups}
        return None if stored is None else shown(self.groups[0], stored)

    @cached_property
    def obs(self) -> Tensors:
        """Observations, (T + 1, N, ...). The action of row t was chosen from row t.

        Bools are a copy, unpacked from ``obs_bits`` on first access.
        """
        return cast(Tensors, self._shown(self.stored_obs))

    @cached_property
    def final_obs(self) -> Tensors | None:
        """Observations before the autoreset, (T, N, ...), or None. Bools are a copy."""
        return self._shown(self.stored_final_obs)

    @property
    def obs_bits(self) -> Tensors:
        """Packed observations of bools, (T + 1, N, ..., W) int32.

        Entry k is bit k % 32 of word k / 32.

        Raises:
            ParameterError: If no group has observations of bools.
        """
        names = [g.name for g in self.groups if g.bits]
        if not names:
            raise ParameterError("obs_bits: no group has obs_dtype = 'bool'. Read obs instead")
        if not isinstance(self.stored_obs, dict):
            return self.stored_obs
        return {name: self.stored_obs[name] for name in names}

    def __repr__(self) -> str:
        steps, num_envs = self.terminated.shape
        shown = ", ".join(
            f"{f.name.removeprefix('stored_')} {_shapes(getattr(self, f.name))}"
            for f in fields(self)[1:]  # all except `groups`
            if _shapes(getattr(self, f.name))
        )
        return f"<Trajectory of {steps:,} steps of {num_envs:,} environments: {shown}>"


def _shapes(value: Tensors | None) -> str:
    """Describe the shape and type of an array, or of arrays by name. None is an empty string."""
    if isinstance(value, dict):
        each = ", ".join(f"{name} {_shapes(array)}" for name, array in value.items())
        return f"{{{each}}}" if each else ""
    return (
        "" if value is None else f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    )
