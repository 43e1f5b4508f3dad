"""Launches that turn a gradient into new weights: ``kernels/learn/update.cu``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch

from cupydrive.algorithms.kernels.layout import ADDERS_AT_ONCE, PAD, PARTS, NetworkLayout
from cupydrive.executors.interop import make_call, zeros
from cupydrive.protocols import Executor

if TYPE_CHECKING:
    from cupydrive.algorithms.kernels.gradients import Minibatches

# Tensors that a step reads or changes, in the order of ``struct Update``: four scheduled numbers,
# then counts and sums.
SCHEDULED = ("learning_rate", "ent_coef", "vf_coef", "max_grad_norm")
STEP_TENSORS = (*SCHEDULED, "skip", "bad", "iteration", "metric_sums")
TEAMS_AT_ONCE = 4  # of one processor of a GPU, that take a step


class Steps:
    """Adam, global-norm clipping, and the decision to take no step, for the weights of one network.

    Args:
        executor: Where.
        layout: ``NetworkLayout``.
        weights: Tensors of the network, as ``tensors_of`` returns them: changed in place.
        reported: Names of what is logged, ``"grad_norm"`` among them, as ``metric_sums`` has them.
        shared: Tensors by name of ``SHARED``.

    Attributes:
        copied: Whether kernels read copies of the weights.
        copies: (floats of ``copies`` in layers.cuh): the weights as kernels read them; None if they
            read the weights.
        steps: (tensors) float32: steps so far, once for each tensor, all equal.
        first: Adam's average of gradients, a tensor for each of the weights.
        second: Likewise, of their squares.
        total: (floats of a gradient): the gradient of the last minibatch, before clipping, and sums
            of what is reported.
    """

    copied = True

    def __init__(
        self,
        executor: Executor,
        layout: NetworkLayout,
        weights: Sequence[torch.Tensor],
        reported: Sequence[str],
        shared: Mapping[str, Any],
    ) -> None:
        self.layout, self.weights, device = layout, [p.detach() for p in weights], executor.name
        self.program = executor.build(layout.unit("update", executor))
        self.steps = zeros(device, len(weights))
        self.first, self.second = ([torch.zeros_like(p) for p in self.weights] for _ in range(2))
        self.copies = zeros(device, layout.copied) if self.copied else None
        self.total = zeros(device, layout.gradient)
        self.squares = zeros(device, layout.gradient // PAD - 1)
        self.step_size, self.corrections = zeros(device, 4), zeros(device, 3)
        # Each team finds out by itself what happens: a CPU's thread for many rows at once.
        teams = executor.processors * (TEAMS_AT_ONCE if executor.max_team > 1 else 1)
        self.shares, self.processors = min(layout.rows, teams), executor.processors
        self.reported, self.shared = reported, shared

    def attach(
        self, gradients: Minibatches, target_kl: float | None = None, rectified: bool = False
    ) -> None:
        """Prepare to step along gradients, by RAdam if ``rectified``; skip what follows an epoch
        that ends above ``target_kl``.
        """
        self.gradients = gradients
        strips, pieces = self.layout.gradient // PAD, len(gradients.sums)
        crowded, parts = strips > ADDERS_AT_ONCE * self.processors, min(gradients.parts, pieces)
        self.strips = max(1, PARTS // parts) if crowded else 1
        ints = {"pieces": pieces, "parts": parts, "strips": self.strips}
        ints |= {"shares": self.shares, "epoch_ends": 0, "iteration_ends": 0}
        ints |= {"reported": len(self.reported), "norm_at": self.reported.index("grad_norm")}
        ints["rectified"] = int(rectified)
        pointers = {"inverse": None, "partials": gradients.sums, "total": self.total}
        pointers |= {"squares": self.squares, "step_size": self.step_size}
        pointers |= {"corrections": self.corrections} | {
            name: self.shared[name] for name in STEP_TENSORS
        }
        pointers |= {"step": self.steps, "copies": self.copies}
        for name in ("weights", "first", "second"):
            pointers |= {f"{name}.{k}": tensor for k, tensor in enumerate(getattr(self, name))}
        self.call = make_call(ints, pointers, floats={"target_kl": target_kl or 0.0})

    def beside(self, weights: Sequence[torch.Tensor]) -> Self:
        """Return what copies other weights of an equal network for forward passes, by ``lay_out``;
        it takes no steps.

        Args:
            weights: As those of this network.
        """
        other = copy.copy(self)
        other.weights, other.call = [p.detach() for p in weights], self.call.copy()
        other.copies = None if self.copies is None else torch.zeros_like(self.copies)
        pointers = {f"weights.{k}": tensor for k, tensor in enumerate(other.weights)}
        pointers["copies"] = other.copies
        for name, tensor in pointers.items():
            other.call[name] = 0 if tensor is None else tensor.data_ptr()
        return other

    def lay_out(self) -> None:
        """Copy the weights, which a checkpoint or a caller may have changed, for kernels that read
        copies.
        """
        if self.copies is not None:
            self.program.launch("lay_out", self.call, self.layout.rows, self.layout.copied)

    def descend(self, epoch: int, minibatch: int) -> None:
        """Step along the gradient that was computed last, of this minibatch; the last one of all
        counts the iteration.
        """
        call, size = self.call, self.layout.gradient
        call["inverse"] = self.gradients.moments[epoch, minibatch].data_ptr()
        epoch_ends = minibatch == self.gradients.minibatches - 1
        call["epoch_ends"] = epoch_ends
        call["iteration_ends"] = epoch_ends and epoch == self.gradients.epochs - 1
        work = len(self.gradients.sums) * size // PAD
        self.program.launch("reduce", call, -(-size // (PAD * self.strips)), work)
        self.program.launch("update", call, self.shares, size)

    def tensors(self, policy_order: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return Adam's state under torch's names.

        Args:
            policy_order: Numbers of the weights in the order of the module's parameters.
        """
        kept: dict[str, torch.Tensor] = {}
        for number, k in enumerate(policy_order):
            kept[f"{number}.step"] = self.steps[k]
            kept[f"{number}.exp_avg"], kept[f"{number}.exp_avg_sq"] = self.first[k], self.second[k]
        return kept


class UncopiedSteps(Steps):
    """As ``Steps``, for kernels that read the weights themselves."""

    copied = False
