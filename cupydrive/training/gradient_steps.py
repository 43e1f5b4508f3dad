"""Record the gradient steps of an iteration: losses, and the largest gradient and weight of each tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cupydrive.training.algorithms.step import looking

if TYPE_CHECKING:
    from cupydrive.protocols import Learner
    from cupydrive.training.run import Run

Tensors = Sequence[torch.Tensor]
SHOWN_STEPS = 8
POLICY = "policy."  # prefix of a policy's own tensors among all of a learner's


@dataclass(frozen=True)
class GradientStep:
    """One gradient step. A tensor with a non-finite number has a non-finite largest value.

    Args:
        policy: Name.
        env_steps: Env-steps of the run when the iteration began.
        number: Number of the step in the iteration, from 1 on.
        learning_rate: Learning rate of the policy.
        loss: Minimised loss.
        reported: Logged losses by name.
        weights: Largest absolute value of each tensor of the learner's networks before the step, by name.
        gradients: Largest absolute value of its gradient, before clipping.
    """

    policy: str
    env_steps: int
    number: int
    learning_rate: float
    loss: float
    reported: Mapping[str, float]
    weights: Mapping[str, float]
    gradients: Mapping[str, float]

    def first(self) -> tuple[str, float] | None:
        """Return field and value of the non-finite number that was computed first, or None."""
        computed = [(f"weight.{name}", size) for name, size in reversed(list(self.weights.items()))]
        computed.append(("loss", self.loss))
        computed += [
            (f"gradient.{name}", size) for name, size in reversed(list(self.gradients.items()))
        ]  # last layers first
        computed.append(("grad_norm", self.reported.get("grad_norm", 0.0)))
        return next(((field, value) for field, value in computed if not math.isfinite(value)), None)


def largest(sizes: Mapping[str, float]) -> float:
    """Return the largest of some numbers by name; a non-finite one is larger than any other."""
    bad = [size for size in sizes.values() if not math.isfinite(size)]
    return bad[0] if bad else max(sizes.values(), default=math.nan)


def weights_of(learner: Learner) -> dict[str, torch.nn.Parameter]:
    """Return the weights of all of a learner's networks by name."""
    own = {key.removeprefix(POLICY): tensor for key, tensor in learner.tensors().items()}
    return {key: p for key, p in own.items() if isinstance(p, torch.nn.Parameter) and p.numel()}


def largest_of_each(tensors: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return the largest absolute value of each tensor, NaN where one has a NaN; wait for the device."""
    if not tensors:
        return {}
    sizes = torch.stack([tensor.detach().abs().amax().double() for tensor in tensors.values()])
    return dict(zip(tensors, sizes.tolist(), strict=True))


def learn(run: Run, name: str, learner: Learner) -> list[GradientStep]:
    """Let a learner learn from the run's rollout and return its gradient steps."""
    found: list[GradientStep] = []
    known = {p.data_ptr(): key for key, p in weights_of(learner).items()}
    labels = getattr(getattr(learner, "inner", learner), "reported", ())

    def look(
        loss: torch.Tensor, reported: Tensors, weights: Tensors, gradients: Tensors, skipped: torch.Tensor
    ) -> None:
        with torch.no_grad():
            scalars = [x.detach().double().view(()) for x in (skipped, loss, *reported)]
            skip, value, *losses = torch.stack(scalars).tolist()
            names = [known.get(p.data_ptr(), f"tensor {k}") for k, p in enumerate(weights)]
            largest_weights = largest_of_each(weights_of(learner))
            largest_gradients = largest_of_each(dict(zip(names, gradients, strict=True)))
        if not skip:
            number, rate = len(found) + 1, learner.learning_rate
            logged = dict(zip(labels, losses, strict=False))  # not all learners name them
            about = rate, value, logged, largest_weights, largest_gradients
            found.append(GradientStep(name, run.step, number, *about))

    with looking(look):
        learner.update(run.rollout)
    return found


def gradient_table(steps: Sequence[GradientStep]) -> list[str]:
    """Return a table of the last few gradient steps, up to the first with a non-finite number, as lines."""
    if not steps:
        return []
    end = next((k + 1 for k, step in enumerate(steps) if step.first() is not None), len(steps))
    lines = ["Gradient steps, with the largest gradient, and the largest weight before the step:"]
    lines.append(f"{'after env-step':>16}{'step':>6}{'loss':>12}{'gradient':>12}{'weight':>12}")
    for step in steps[max(0, end - SHOWN_STEPS) : end]:
        row = f"{step.env_steps:>16,}{step.number:>6}{step.loss:>12.4g}"
        lines.append(f"{row}{largest(step.gradients):>12.4g}{largest(step.weights):>12.4g}")
    return lines
