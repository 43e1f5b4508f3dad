"""Common parts of all learners: schedules, observation statistics, and addresses of weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from cupydrive.algorithms.kernels.statistics import RunningMeanStd, Statistics
from cupydrive.algorithms.schedule import Scheduled, value_at
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import zeros
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group


def kind(tensor: torch.Tensor) -> str:
    """Describe the properties of a weight that must not change."""
    frozen = "" if tensor.requires_grad else ", without gradients"
    shared = ", in shared memory" if tensor.device.type == "cpu" and tensor.is_shared() else ""
    return f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}{frozen}{shared}"


def place(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], bool]:
    """Return the address and strides of a weight, and whether it learns.

    Kernels and optimizers depend on them.
    """
    return tensor.data_ptr(), tensor.stride(), tensor.requires_grad


def named_tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name."""
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


class Weight:
    """A parameter with its memory, its ``place`` and its ``kind``."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter, self.memory = parameter, parameter.detach()
        self.place, self.kind = place(parameter), kind(parameter)


class ScheduledLearner:
    """Base class of learners with schedules and networks.

    Attributes:
        learning_rate: Current learning rate. With several networks it is the critic's.
        scheduled: ``Scheduled``, current values of the settings.
        obs_rms: ``RunningMeanStd`` of observations, or None if they are not normalized.
        statistics: ``Statistics``, which updates ``obs_rms``.
        groups: ``Group``s that it plays.
        weights_at: ``Weight``s of ``networks()`` by name.
        owned: Dictionaries in which modules store their modules, parameters and buffers.
        members: (dictionary, name, object) for all entries of ``owned``.
    """

    learning_rate: float
    scheduled: Scheduled
    obs_rms: RunningMeanStd | None
    statistics: Statistics | None
    groups: list[Group]
    policy: nn.Module

    def begin_learning(self, config: Any, group: Group, rollout: Rollout, sums: int) -> None:
        """Create schedules, sums of metrics, and running statistics."""
        device = rollout.device
        self.scheduled = Scheduled(config, device)
        self.schedule(0)
        self.iteration = zeros(device, 1, dtype=torch.int64)
        self.bad = zeros(device)  # 1 after the first non-finite loss
        self.metric_sums = zeros(device, sums)
        self.obs_rms = RunningMeanStd((group.obs_dim,), device) if config.normalize_obs else None
        normalizes = getattr(config, "statistics", config.normalize_obs)
        self.statistics = Statistics(rollout.batch.executor, rollout.shard) if normalizes else None

    def schedule(self, step: int) -> None:
        """Write the scheduled settings after ``step`` environment steps."""
        self.scheduled.set(step)
        self.learning_rate = value_at(self.scheduled.schedules["learning_rate"], step)

    def normalized(self, obs: torch.Tensor) -> torch.Tensor:
        """Normalize observations (B, D) if the settings require it."""
        return obs if self.obs_rms is None else self.obs_rms.normalized(obs)

    def update_statistics(
        self, rms: RunningMeanStd | None, rollout: Rollout, obs: Mapping[str, torch.Tensor]
    ) -> None:
        """Add rows of all groups, (T + 1, N, C, D) by name, to ``rms``, unless it is None.

        Rows of inactive agents do not count.
        """
        if rms is None or self.statistics is None:
            return
        with rollout.stream():
            for g in self.groups:
                rows, active = obs[g.name], rollout.active.get(g.name)
                self.statistics.update(rms, rows[1:] if active is None else rows[:-1], active)

    # ---- addresses of weights ----

    def networks(self) -> nn.Module:
        """Return a module with all weights that learning changes."""
        return self.policy

    def note_weights(self) -> None:
        """Store the addresses of the weights."""
        networks = self.networks()
        self.weights_at = {name: Weight(tensor) for name, tensor in named_tensors(networks).items()}
        self.owned = [
            of
            for module in networks.modules()
            for of in (module._modules, module._parameters, module._buffers)
        ]
        self.members = [(of, name, member) for of in self.owned for name, member in of.items()]

    def return_weights(self) -> None:
        """Restore the addresses of the weights.

        If torch has moved a weight to new memory, its values are copied to the original address,
        which kernels and CUDA graphs read.

        Raises:
            ParameterError: If a weight is missing, new, frozen or shared, or has another shape,
                dtype or device.
        """
        same = sum(map(len, self.owned)) == len(self.members)
        same = same and all(of.get(name) is member for of, name, member in self.members)
        if same and all(
            place(weight.parameter) == weight.place for weight in self.weights_at.values()
        ):
            return
        networks = self.networks()
        found = named_tensors(networks)
        kinds = {name: kind(p) for name, p in found.items()}
        for name in {**self.weights_at, **found}:
            before = self.weights_at[name].kind if name in self.weights_at else "missing"
            if (now := kinds.get(name, "missing")) != before:
                raise ParameterError(
                    f"the weight {name!r} of a policy that learns is {now}, expected {before}, "
                    f"as before"
                )
        for name, weight in self.weights_at.items():
            with torch.no_grad():
                weight.memory.copy_(found[name].detach().clone())
            weight.parameter.data = weight.memory
            owner, _, leaf = name.rpartition(".")
            setattr(networks.get_submodule(owner), leaf, weight.parameter)
        self.note_weights()
