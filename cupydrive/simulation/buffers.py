"""Outputs of kernels: observations, rewards, flags and episode statistics as an executor's arrays.

This module does not use torch.

Letters: T steps, N environments, C agents of a group, D observation entries, H action heads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from cupydrive.protocols import Array, EnvParams
from cupydrive.spec import EnvSpec, Group

if TYPE_CHECKING:
    from cupydrive.simulation.batch import Batch

SHARED = ("terminated", "truncated", "episode_length", "episode_metrics")  # arrays of all groups
BY_GROUP = (
    "obs",
    "action_mask",
    "final_obs",
    "critic_obs",
    "final_critic_obs",
    "reward",
    "episode_return",
    "action",
    "active",
    "left",
)


class Buffers:
    """Outputs of T steps: observations, actions, rewards, flags and episode statistics.

    Arrays of groups are dictionaries by name. Observations of bool are packed with T steps,
    (..., C, W) int32, and otherwise (N, C, D) bool. Arrays of ``final_obs`` and ``episode`` are
    valid only in rows where an episode has ended.

    Args:
        batch: The ``Batch``.
        steps: T. If None, arrays have no axis of steps.
        actions: Whether actions are stored.
        final_obs: Whether observations before an autoreset are stored.
        critic: Names of groups whose ``critic_obs`` are stored. If ``steps`` is None, all are.
    """

    def __init__(
        self,
        batch: Batch,
        steps: int | None = None,
        actions: bool = True,
        final_obs: bool = True,
        critic: Collection[str] = (),
    ) -> None:
        lead = () if steps is None else (steps,)
        self.steps = steps
        n, allocate = batch.num_envs, batch.executor.allocate
        obs_lead = (n,) if steps is None else (steps + 1, n)

        def rows(
            shape: Callable[[Group], tuple[int, ...]], dtype: Callable[[Group], DTypeLike]
        ) -> dict[str, Array]:
            return {g.name: allocate((*lead, n, *shape(g)), dtype(g)) for g in batch.groups}

        def obs_shape(g: Group) -> tuple[int, ...]:
            return g.count, g.words if g.bits and self.packed else g.obs_dim

        def obs_dtype(g: Group) -> DTypeLike:
            if g.obs_dtype == "float32":
                return batch.obs_dtype
            return np.int32 if g.bits and self.packed else g.obs_dtype

        self.obs = {
            g.name: allocate((*obs_lead, *obs_shape(g)), obs_dtype(g)) for g in batch.groups
        }
        self.final_obs = rows(obs_shape, obs_dtype) if final_obs else None
        self.action = (
            rows(lambda g: (g.count, g.heads), lambda g: g.action_dtype) if actions else None
        )
        self.reward = rows(lambda g: (g.count,), lambda g: np.float32)
        self.terminated = allocate((*lead, n), np.bool_)
        self.truncated = allocate((*lead, n), np.bool_)
        if batch.spec.one_agent(batch.params):  # adjacent, for kernels/drive/groups.cuh
            record = allocate((*lead, n, 2), np.int32)
            self.episode_return = {g.name: record[..., :1].view(np.float32) for g in batch.groups}
            self.episode_length = record[..., 1]
        else:
            self.episode_return = rows(lambda g: (g.count,), lambda g: np.float32)
            self.episode_length = allocate((*lead, n), np.int32)
        self.episode_metrics = allocate((*lead, n), batch.metrics_dtype)
        self.action_mask = {
            g.name: allocate((*obs_lead, g.count, g.choices), np.bool_)
            for g in batch.groups
            if g.mask
        }
        of_critic = {
            g.name: (n, g.count, g.critic_obs_dim)
            for g in batch.groups
            if g.critic_obs_dim and (steps is None or g.name in critic)
        }
        self.critic_obs = {
            name: allocate((*obs_lead[:-1], *shape), np.float32)
            for name, shape in of_critic.items()
        }
        self.final_critic_obs = {
            name: allocate((*lead, *shape), np.float32)
            for name, shape in of_critic.items()
            if final_obs
        }
        leaving = [g for g in batch.groups if g.leaves]
        self.active = {g.name: allocate((*lead, n, g.count), np.bool_) for g in leaving}
        self.left = {g.name: allocate((*lead, n, g.count), np.bool_) for g in leaving}

    @property
    def packed(self) -> bool:
        """Whether observations of bool are packed bits."""
        return self.steps is not None

    def of_group(self, group: str) -> dict[str, Array]:
        """Return the arrays of one group by name."""
        arrays = {name: getattr(self, name) or {} for name in BY_GROUP}
        return {name: found[group] for name, found in arrays.items() if group in found}

    def with_other_obs(self, batch: Batch) -> Buffers:
        """Return the other half of a double buffer.

        It has its own observations and masks, and shares all other arrays.
        """
        other = copy(self)
        for name in ("obs", "action_mask", "critic_obs"):
            arrays: dict[str, Array] = getattr(self, name)
            own = {key: batch.executor.allocate(a.shape, a.dtype) for key, a in arrays.items()}
            setattr(other, name, own)
        return other


def row_bytes(
    spec: EnvSpec,
    params: EnvParams,
    final_obs: bool = True,
    entry: int = 4,
    packed: bool = True,
    critic: Collection[str] | None = (),
) -> int:
    """Return the size of one step of one environment in ``Buffers``, in bytes.

    Args:
        spec: The environment.
        params: Its parameters.
        final_obs: Whether observations before an autoreset are stored.
        entry: Bytes of one float entry of an observation.
        packed: Whether observations of bool are packed bits.
        critic: Names of groups whose ``critic_obs`` are stored. If None, all are.
    """
    size = 2 + 4 + spec.metrics_dtype().itemsize
    for g in spec.groups(params):
        seen = g.obs_bytes(entry, packed)
        seen += 4 * g.critic_obs_dim * (critic is None or g.name in critic)
        size += g.count * (
            seen * (2 if final_obs else 1) + 4 * g.heads + 8 + 2 * g.leaves + g.choices * g.mask
        )
    return size
