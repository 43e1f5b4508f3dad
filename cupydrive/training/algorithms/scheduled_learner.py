"""What learners on policy and off policy share: scheduled rates, normalised observations, and where their weights are."""

from __future__ import annotations

import torch
from torch import nn

from cupydrive.errors import ParameterError
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group
from cupydrive.training.algorithms.kernels.statistics import Statistics
from cupydrive.training.normalize import RunningMeanStd
from cupydrive.training.schedule import Scheduled


def kind(tensor: torch.Tensor) -> str:
    """Return in words what must stay the same of a weight."""
    frozen = "" if tensor.requires_grad else ", without gradients"
    return f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}{frozen}"


def place(tensor: torch.Tensor) -> tuple:
    """Return what kernels and optimizers rely on: the address and strides of a weight, and whether it learns."""
    return tensor.data_ptr(), tensor.stride(), tensor.requires_grad


class ScheduledLearner:
    """A learner that has made its settings and its networks.

    Attributes:
        scheduled: ``Scheduled``, its settings as they are now.
        obs_rms: ``RunningMeanStd`` of observations; None: networks see them as they are.
        statistics: ``Statistics``, which updates it.
        groups: The ``Group``s that it plays.
        weights_at: By name, each parameter of ``networks()`` as learning knows it: itself, its ``place``, and its ``kind``.
        owned: The dictionaries in which modules have their modules and parameters.
        members: (dictionary, name, object): all of these.
    """

    scheduled: Scheduled
    obs_rms: RunningMeanStd | None
    statistics: Statistics | None
    groups: list[Group]
    policy: nn.Module

    def schedule(self, step: int) -> None:
        """Write the settings as they are after ``step`` env-steps."""
        self.scheduled.set(step)

    @property
    def learning_rate(self) -> float:
        """The rate that was written last; of several networks, the critic's."""
        return self.scheduled.now("learning_rate")

    def normalized(self, obs: torch.Tensor) -> torch.Tensor:
        """Return observations (B, D) as the networks see them."""
        return obs if self.obs_rms is None else self.obs_rms.normalized(obs)

    def update_obs_statistics(self, rollout: Rollout) -> None:
        """Update the mean and deviation of observations; those of inactive agents do not count."""
        if self.obs_rms is None or self.statistics is None:
            return
        with rollout.stream():
            for g in self.groups:
                obs, active = rollout.obs[g.name], rollout.active.get(g.name)
                self.statistics.update(self.obs_rms, obs[1:] if active is None else obs[:-1], active)

    # ---- where the weights are ----

    def networks(self) -> nn.Module:
        """Return the module of all weights that learning changes."""
        return self.policy

    def note_weights(self) -> None:
        """Note where the weights are; called when everything that holds their addresses has been made."""
        networks = self.networks()
        self.weights_at = {name: (p, place(p), kind(p)) for name, p in networks.named_parameters()}
        self.owned = [of for module in networks.modules() for of in (module._modules, module._parameters)]
        self.members = [(of, name, member) for of in self.owned for name, member in of.items()]

    def follow_weights(self, rollout: Rollout) -> bool:
        """Learn from now on in the memory where the weights are; return whether torch has put any elsewhere.

        Raises:
            ParameterError: If a weight is missing, was added or frozen, or has another shape, dtype or device than before.
        """
        same = sum(map(len, self.owned)) == len(self.members)
        same = same and all(of.get(name) is member for of, name, member in self.members)
        if same and all(place(p) == at for p, at, _ in self.weights_at.values()):
            return False
        networks = self.networks()
        found = dict(networks.named_parameters())
        if added := found.keys() - self.weights_at.keys():
            raise ParameterError(
                f"the weight {min(added)!r} was added to a policy that learns; expected {', '.join(self.weights_at)}. Train a "
                "new run with such a network"
            )
        for name, (p, (_, strides, _), before) in self.weights_at.items():
            new = found.get(name)
            if new is None or kind(new) != before:
                now = "missing" if new is None else kind(new)
                raise ParameterError(
                    f"the weight {name!r} of a policy that learns is {now}; it must be {before}, as before"
                )
            if new is not p:  # the optimizer knows the parameter that was there before
                p.data = new.data
                owner, _, leaf = name.rpartition(".")
                setattr(networks.get_submodule(owner), leaf, p)
            if p.stride() != strides:  # kernels and the optimizer read memory in this order
                p.data = torch.empty_strided(p.shape, strides, dtype=p.dtype, device=p.device).copy_(p.data)
        self.rebind(rollout)
        self.note_weights()
        return True

    def rebind(self, rollout: Rollout) -> None:
        """Renew whatever holds addresses of weights."""
