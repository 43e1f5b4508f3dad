"""Torch views of the arrays of a kernel's argument, ``struct Batch``, for kernels in Python.

Letters: N environments, C agents of a group, D observation entries, H action heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import DTypeLike

from cupydrive.executors.interop import members_at, torch_at
from cupydrive.spec import Group

if TYPE_CHECKING:
    from cupydrive.executors.python_kernels import PythonProgram


class LaunchViews:
    """Views of the arrays of one launch, without copies.

    Args:
        call: The kernel's argument, ``struct Batch``.
        program: ``PythonProgram`` of the launch, with its device, groups and structs.

    Attributes:
        num_envs: Number of environments, N.
        steps: Number of steps of the launch.
        first_env: Global id of environment 0.
        max_episode_steps: The time limit.
        seed: (1,) uint64.
        clock: (N, 3) int32: episode, elapsed, time.
        state: (N, *shape) by member of ``State``, strided.
        metrics: (N,) totals since the start of the episode by metric, strided.
        words: (N, metrics) int32, the metrics as words, in which 0 is 0 in any type.
        mask: (N,) bool, environments that a reset may change. If None, all of them.
        returns: (N, C) float32 sums of rewards since the start of the episode, by group.
        table: Read-only tables by name.
    """

    def __init__(self, call: np.ndarray, program: PythonProgram) -> None:
        self.call, self.device, self.groups = call, program.executor.name, program.groups
        self.num_envs, self.steps, n = (
            int(call["num_envs"]),
            int(call["steps"]),
            int(call["num_envs"]),
        )
        self.first_env, self.max_episode_steps = (
            int(call["first_env"]),
            int(call["max_episode_steps"]),
        )
        self.seed = self.at(call["seed"], (1,), np.uint64)
        self.clock = self.at(call["clock"], (n, 3), np.int32)
        self.state = members_at(self.device, int(call["state"]), n, program.state_dtype)
        metrics = members_at(self.device, int(call["metrics"]), n, program.metrics_dtype)
        self.metrics = {name: metrics[name] for name in program.spec.metrics}
        self.words = self.at(call["metrics"], (n, program.metrics_dtype.itemsize // 4), np.int32)
        self.mask = self.at(call["mask"], (n,), np.bool_) if call["mask"] else None
        self.table = {
            t.name: self.at(call["table"][t.name], t.shape, np.dtype(t.dtype))
            for t in program.tables
        }
        self.returns = {
            g.name: self.at(call[g.name]["returns"], (n, g.count), np.float32) for g in self.groups
        }

    def at(
        self, address: np.ndarray, shape: tuple[int, ...], dtype: DTypeLike, row: int = 0
    ) -> torch.Tensor:
        """Return a view of one row at an address. Row -1 is the one before the address."""
        bytes_of_row = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return torch_at(
            self.device, int(address) + row * bytes_of_row, tuple(shape), np.dtype(dtype)
        )

    def action(self, g: Group, t: int) -> torch.Tensor:
        """Return the actions of a group in step t, (N, C, H)."""
        return self.at(
            self.call[g.name]["action"], (self.num_envs, g.count, g.heads), g.action_dtype, t
        )

    def obs(self, g: Group, t: int, name: str = "obs") -> torch.Tensor:
        """Return observations of a group in row t, (N, C, D). Row -1 is before the first step."""
        return self.at(self.call[g.name][name], (self.num_envs, g.count, g.obs_dim), np.float32, t)

    def critic_obs(self, g: Group, t: int, name: str = "critic_obs") -> torch.Tensor | None:
        """Return a critic's observations of a group in row t, (N, C, K), or None if not stored."""
        shape, address = (self.num_envs, g.count, g.critic_obs_dim), self.call[g.name][name]
        return self.at(address, shape, np.float32, t) if address else None

    def action_mask(self, g: Group, t: int) -> torch.Tensor | None:
        """Return the action mask of a group in row t, (N, C, choices), or None without masks.

        Row -1 is before the first step.
        """
        shape = (self.num_envs, g.count, g.choices)
        return self.at(self.call[g.name]["action_mask"], shape, np.bool_, t) if g.mask else None

    def rows(self, t: int) -> dict:
        """Return all outputs of step t by name: tensors (N, ...), or (N, C, ...) by group."""
        n, call = self.num_envs, self.call

        def of_groups(
            name: str, dtype: DTypeLike, groups: Sequence[Group] = self.groups
        ) -> dict[str, torch.Tensor]:
            return {g.name: self.at(call[g.name][name], (n, g.count), dtype, t) for g in groups}

        leaving = [g for g in self.groups if g.leaves]
        rows: dict = {
            "obs": {g.name: self.obs(g, t) for g in self.groups},
            "final_obs": {
                g.name: self.obs(g, t, "final_obs")
                for g in self.groups
                if call[g.name]["final_obs"]
            }
            or None,
            "critic_obs": {g.name: self.critic_obs(g, t) for g in self.groups},
            "final_critic_obs": {
                g.name: self.critic_obs(g, t, "final_critic_obs") for g in self.groups
            },
            "action_mask": {g.name: self.action_mask(g, t) for g in self.groups if g.mask},
            "reward": of_groups("reward", np.float32),
            "active": of_groups("active", np.bool_, leaving),
            "left": of_groups("left", np.bool_, leaving),
        }
        if [g.count for g in self.groups] == [1]:  # interleaved, see kernels/drive/groups.cuh
            (g,) = self.groups
            record = self.at(call[g.name]["episode_return"], (n, 2), np.int32, t)
            rows |= {
                "episode_return": {g.name: record[:, :1].view(torch.float32)},
                "episode_length": record[:, 1],
            }
        else:
            length = self.at(call["episode_length"], (n,), np.int32, t)
            rows |= {
                "episode_return": of_groups("episode_return", np.float32),
                "episode_length": length,
            }
        for name in ("terminated", "truncated"):
            rows[name] = self.at(call[name], (n,), np.bool_, t)
        return rows | {
            "episode_metrics": self.at(call["episode_metrics"], self.words.shape, np.int32, t)
        }
