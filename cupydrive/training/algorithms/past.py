"""Past networks of one policy, which act side by side in some environments: by the kernels of its learner, or by torch.

Every network looks at every row, and whoever asked takes the actions of one: which network plays where is known to the device
alone. So a step costs one forward pass of these rows for each network, whatever plays. To gather the weights of each row's
network instead would read all of them once a row.

Letters: T steps; S networks; P environments in which they act; C agents of a group, D observation entries, H action heads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.func import functional_call

from cupydrive.playing.inference import evaluating
from cupydrive.playing.policy import Sampler, first_state
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group
from cupydrive.training.algorithms.kernels.layout import tensors_of
from cupydrive.training.algorithms.kernels.learner import KernelLearner
from cupydrive.training.algorithms.on_policy import OnPolicyLearner
from cupydrive.training.normalize import RunningMeanStd

POLICY, MOMENTS = "policy.", "obs_moments."  # how a learner's tensors begin that decide how it acts


def make_past(
    learner: OnPolicyLearner, rollout: Rollout, envs: range, bank: dict[str, torch.Tensor], slots: int
) -> Past:
    """Return what acts as past networks do.

    Args:
        learner: ``OnPolicyLearner`` of the policy, which is prepared.
        rollout: The ``Rollout`` that it plays in.
        envs: The range of the P environments.
        bank: Tensors (S, ...) by name, of those that begin with ``POLICY`` and ``MOMENTS`` in ``learner.tensors()``.
        slots: S.
    """
    if isinstance(learner, KernelLearner):
        return KernelPast(learner, rollout, envs, bank, slots)
    return TorchPast(learner, rollout, envs, bank, slots)


class Past:
    """What both ways share: the memory of actions.

    Attributes:
        action: By group, (S, P, C, H) of the actions' type: what each network does.
    """

    def __init__(
        self, learner: OnPolicyLearner, rollout: Rollout, envs: range, bank: dict[str, torch.Tensor], slots: int
    ) -> None:
        self.learner, self.rollout, self.envs, self.bank, self.slots = learner, rollout, envs, bank, slots
        self.action: dict[str, torch.Tensor] = {}
        self.raw: dict[str, torch.Tensor | None] = {}
        self.samplers: dict[str, Sampler] = {}
        for g in learner.groups:
            like, shape = rollout.action[g.name], (len(envs), g.count, g.heads)
            self.action[g.name] = like.new_zeros((slots, *shape))
            self.raw[g.name] = like.new_zeros(shape) if learner.distribution.raw_size else None
            self.samplers[g.name] = Sampler(learner.distribution, rollout.batch, g, envs)

    def mask(self, g: Group, t: int) -> torch.Tensor | None:
        """Return what agents of ``g`` may take in row t, (P, C, choices) bool, or None if they may take anything."""
        mask = self.rollout.mask(g, t)
        return None if mask is None else mask[self.envs.start : self.envs.stop]

    def act(self, t: int, plays: torch.Tensor) -> None:
        """Fill ``action`` for row t; ``plays`` (P,) int is the network that plays each environment."""
        raise NotImplementedError

    def finish(self, over: torch.Tensor) -> None:
        """Forget what ends with episodes: ``over`` (P,) bool, in the rollout's last step."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what a checkpoint holds besides the bank, by name."""
        return {}


class TorchPast(Past):
    """Past networks by torch: any module, also one with a memory, of which an environment has one for whoever plays it."""

    def __init__(
        self, learner: OnPolicyLearner, rollout: Rollout, envs: range, bank: dict[str, torch.Tensor], slots: int
    ) -> None:
        super().__init__(learner, rollout, envs, bank, slots)
        names = [name for name in bank if name.startswith(POLICY)]
        self.weights = [{name.removeprefix(POLICY): bank[name][k] for name in names} for k in range(slots)]
        self.moments: list[RunningMeanStd | None] = [None] * slots
        if learner.obs_rms is not None:
            for k in range(slots):
                self.moments[k] = moments = RunningMeanStd(learner.obs_rms.mean.shape, rollout.device)
                moments.mean, moments.variance = bank[f"{MOMENTS}mean"][k], bank[f"{MOMENTS}variance"][k]
        rows = {g.name: len(envs) * g.count for g in learner.groups}
        self.memory = {name: first_state(learner.ask, 1, n, rollout.device) for name, n in rows.items()}

    def act(self, t: int, plays: torch.Tensor) -> None:
        """Fill ``action`` for row t.

        Args:
            t: The row.
            plays: (P,) int: which network's memory is to be kept.
        """
        learner, rollout, envs = self.learner, self.rollout, self.envs
        for g in learner.groups:
            obs = rollout.obs[g.name][t][envs.start : envs.stop].view(-1, g.obs_dim)
            memory, start, played = self.memory[g.name], None, plays
            if memory is not None:
                over = rollout.starts(t)[envs.start : envs.stop] if t else torch.zeros_like(plays, dtype=torch.bool)
                start, played = (of[:, None].expand(-1, g.count).reshape(-1) for of in (over, plays))
                memory = memory[0].clone()
            for k in range(self.slots):
                parameters, left = self.ask(k, obs, memory, start)
                action, raw = self.action[g.name][k], self.raw[g.name]
                self.samplers[g.name](parameters, action, raw=raw, mask=self.mask(g, t))
                if memory is not None:
                    self.memory[g.name][0].copy_(torch.where((played == k)[:, None], left, self.memory[g.name][0]))

    def ask(
        self, k: int, obs: torch.Tensor, memory: torch.Tensor | None, start: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the parameters that network k gives for observations (P * C, D), and the memory that it leaves."""
        policy, moments = self.learner.policy, self.moments[k]
        obs = obs if moments is None else moments.normalized(obs)
        given = (obs,) if memory is None else (obs, memory, start)
        with evaluating(policy), self.learner.autocast():
            parameters, _, *left = functional_call(policy, self.weights[k], given, tie_weights=False)
        return parameters.float(), left[0] if left else None

    def finish(self, over: torch.Tensor) -> None:
        """Forget what ends with episodes: ``over`` (P,) bool, in the rollout's last step."""
        for g in self.learner.groups:
            if self.memory[g.name] is not None:
                self.memory[g.name][0].masked_fill_(over[:, None].expand(-1, g.count).reshape(-1, 1), 0.0)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what a checkpoint holds besides the bank, by name."""
        return {f"memory.{name}": memory for name, memory in self.memory.items() if memory is not None}


class KernelPast(Past):
    """Past networks by the forward pass that the learner itself acts by: in exact arithmetic with the same bits everywhere."""

    learner: KernelLearner

    def __init__(
        self, learner: KernelLearner, rollout: Rollout, envs: range, bank: dict[str, torch.Tensor], slots: int
    ) -> None:
        super().__init__(learner, rollout, envs, bank, slots)
        state = learner.policy.state_dict(keep_vars=True)
        names = {id(p): f"{POLICY}{name}" for name, p in state.items()}
        order = [names[id(p)] for p in tensors_of(learner.policy)]
        self.networks = [learner.steps.beside([bank[name][k] for name in order]) for k in range(slots)]
        width = 0 if learner.center is None else len(learner.center)  # 0: observations are not normalised
        kind = {"dtype": torch.float32, "device": rollout.device}
        self.center, self.scale = (torch.zeros((slots, width), **kind) for _ in "cs")
        self.value = torch.zeros(len(envs) * max(g.count for g in learner.groups), **kind)
        self.passes = [
            [self.forward_call(g, t, k) for g in learner.groups for k in range(slots)] for t in range(rollout.steps)
        ]

    def forward_call(self, g: Group, t: int, k: int) -> np.ndarray:
        """Return ``struct Forward`` of network k for row t: the learner's own, for other weights and fewer environments."""
        learner, envs = self.learner, self.envs
        call, rows = learner.passes[g.name][t].copy(), len(envs) * g.count
        call["rows"], call["num_envs"] = rows, len(envs)
        call["shares"] = min(int(call["shares"]), -(-rows // learner.tile))
        pointers = {"obs": self.rollout.obs[g.name][t][envs.start :], "value": self.value}
        pointers |= {"copies": self.networks[k].copies, **learner.arithmetic.pointers(self.networks[k])}
        if self.center.numel():
            pointers |= {"center": self.center[k], "scale": self.scale[k]}
        for name, tensor in pointers.items():
            call[name] = 0 if tensor is None else tensor.data_ptr()
        action, raw = self.action[g.name][k], self.raw[g.name]
        call["sample"] = self.samplers[g.name].describe(action, raw=raw, mask=self.mask(g, t))
        return call

    def act(self, t: int, plays: torch.Tensor) -> None:
        """Fill ``action`` for row t; ``plays`` is not asked for."""
        if t == 0:  # a checkpoint, or the last update, may have changed the bank
            for network in self.networks:
                network.lay_out()
            if self.center.numel():
                self.center.copy_(self.bank[f"{MOMENTS}mean"])
                self.scale.copy_(1.0 / (self.bank[f"{MOMENTS}variance"] + 1e-8).sqrt())
        for call in self.passes[t]:
            self.learner.look(call)
