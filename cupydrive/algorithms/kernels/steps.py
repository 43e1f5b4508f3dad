"""Launches that compute new weights from a gradient: ``kernels/learn/update.cu``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch

from cupydrive.algorithms.kernels.layout import PAD, PARTS, TEAMS, NetworkLayout
from cupydrive.executors.interop import make_call, zeros
from cupydrive.protocols import Executor

if TYPE_CHECKING:
    from cupydrive.algorithms.kernels.gradients import Minibatches

# Tensors that an optimizer step reads or changes, in the order of ``struct Update``: four scheduled
# values, then counts and sums.
SCHEDULED = ("learning_rate", "ent_coef", "vf_coef", "max_grad_norm")
STEP_TENSORS = (*SCHEDULED, "skip", "bad", "iteration", "metric_sums")
TEAMS_AT_ONCE = 4  # thread teams per multiprocessor in an optimizer step


class Steps:
    """Adam with global-norm clipping and skipped steps, for the weights of one network.

    Args:
        executor: Executor of the kernels.
        layout: ``NetworkLayout``.
        weights: Tensors of the network from ``tensors_of``, changed in place.
        reported: Names of the logged metrics, including ``"grad_norm"``, in the order of
            ``metric_sums``.
        shared: Tensors by the names of ``STEP_TENSORS``.

    Attributes:
        packs: Whether kernels read packed weights.
        packed: (floats of ``packed`` in layers.cuh), the packed weights, or None if kernels read
            the weights directly.
        rounded: Padded bfloat16 matrices of the layers (matrices of adam.cuh), or None.
        steps: (tensors) float32, number of steps, equal for all tensors.
        first: Adam's first moments, one tensor per weight tensor.
        second: Adam's second moments, one tensor per weight tensor.
        total: (floats of a gradient), gradient of the last minibatch before clipping, and sums of
            reported metrics.
    """

    packs = True
    rounded: torch.Tensor | None = None

    def __init__(
        self,
        executor: Executor,
        layout: NetworkLayout,
        weights: Sequence[torch.Tensor],
        reported: Sequence[str],
        shared: Mapping[str, Any],
    ) -> None:
        self.layout, self.weights, device = layout, [p.detach() for p in weights], executor.name
        self.program = executor.build(layout.flat.unit("update", executor))
        self.steps = zeros(device, len(weights))
        self.first, self.second = ([torch.zeros_like(p) for p in self.weights] for _ in range(2))
        self.packed = zeros(device, layout.packed) if self.packs else None
        self.total = zeros(device, layout.gradient)
        self.squares = zeros(device, layout.gradient // PAD)
        self.step_size, self.corrections = zeros(device, 4), zeros(device, 3)
        # Each team computes the clipping factor and whether to skip the step. On a CPU, one thread
        # does this for many rows.
        teams = executor.processors * (TEAMS_AT_ONCE if executor.max_team > 1 else 1)
        fewest = layout.rows if self.packs else -(-(layout.gradient - PAD) // TEAMS["update"])
        self.teams = min(fewest, teams)
        self.reported, self.shared = reported, shared

    def attach(
        self, gradients: Minibatches, target_kl: float | None = None, rectified: bool = False
    ) -> None:
        """Prepare steps with the given gradients.

        Args:
            gradients: Source of the gradients.
            target_kl: Skip the remaining steps after an epoch above this approximate KL divergence.
            rectified: Use RAdam instead of Adam.
        """
        self.gradients = gradients
        splits = len(gradients.sums)
        parts = min(gradients.parts, splits)
        self.segments = max(1, PARTS // parts)
        ints = {"splits": splits, "parts": parts, "segments": self.segments}
        ints |= {"teams": self.teams, "epoch_ends": 0, "iteration_ends": 0}
        ints |= {"reported": len(self.reported), "norm_at": self.reported.index("grad_norm")}
        ints["rectified"] = int(rectified)
        pointers = {"inverse": None, "partial_sums": gradients.sums, "total": self.total}
        pointers |= {"squares": self.squares, "step_size": self.step_size}
        pointers |= {"corrections": self.corrections} | {
            name: self.shared[name] for name in STEP_TENSORS
        }
        pointers |= {"step": self.steps, "packed": self.packed, "matrices": self.rounded}
        for name in ("weights", "first", "second"):
            pointers |= {f"{name}.{k}": tensor for k, tensor in enumerate(getattr(self, name))}
        self.call = make_call(ints, pointers, floats={"target_kl": target_kl or 0.0})

    def beside(self, weights: Sequence[torch.Tensor]) -> Self:
        """Return an object that packs other weights of an equal network for forward passes.

        Its ``pack`` packs them. It must not take steps.

        Args:
            weights: Tensors in the order of this network's.
        """
        other = copy.copy(self)
        other.weights, other.call = [p.detach() for p in weights], self.call.copy()
        other.packed = None if self.packed is None else torch.zeros_like(self.packed)
        pointers = {f"weights.{k}": tensor for k, tensor in enumerate(other.weights)}
        pointers["packed"] = other.packed
        for name, tensor in pointers.items():
            other.call[name] = 0 if tensor is None else tensor.data_ptr()
        return other

    def pack(self) -> None:
        """Pack the weights, which a checkpoint or a caller may have changed."""
        if self.packed is not None:
            self.program.launch("pack", self.call, self.layout.rows, self.layout.packed)

    def descend(self, epoch: int, minibatch: int) -> None:
        """Take a step with the last gradient. The last minibatch counts the iteration."""
        call, size = self.call, self.layout.gradient
        call["inverse"] = self.gradients.moments[epoch, minibatch].data_ptr()
        epoch_ends = minibatch == self.gradients.minibatches - 1
        call["epoch_ends"] = epoch_ends
        call["iteration_ends"] = epoch_ends and epoch == self.gradients.epochs - 1
        work = len(self.gradients.sums) * size // PAD
        self.program.launch("reduce", call, -(-size // (PAD * self.segments)), work)
        self.program.launch("update", call, self.teams, size)

    def tensors(self, policy_order: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return Adam's state by torch's names.

        Args:
            policy_order: Indices of the weights in the order of the module's parameters.
        """
        kept: dict[str, torch.Tensor] = {}
        for number, k in enumerate(policy_order):
            kept[f"{number}.step"] = self.steps[k]
            kept[f"{number}.exp_avg"], kept[f"{number}.exp_avg_sq"] = self.first[k], self.second[k]
        return kept


class UnpackedSteps(Steps):
    """``Steps`` for kernels that read the weights directly."""

    packs = False
