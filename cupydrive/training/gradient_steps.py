"""Record the gradient steps of an iteration: losses, and the largest gradient and weight of each tensor."""

import math
from dataclasses import dataclass

import torch

from cupydrive.training.algorithms.looking import looking

SHOWN_STEPS = 8
POLICY = "policy."  # prefix of a policy's own tensors among all of a learner's


@dataclass(frozen=True)
class GradientStep:
    """One gradient step. A tensor with a non-finite number has a non-finite largest value.

    Args:
        policy: Name.
        env_steps: Env-steps of the run when the iteration began.
        number: Number of the step in the iteration, from 1 on.
        learning_rate: Of the policy.
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
    reported: dict
    weights: dict
    gradients: dict

    def first(self) -> tuple[str, float] | None:
        """Return field and value of the non-finite number that was computed first, or None."""
        if (name := last_nonfinite(self.weights)) is not None:
            return f"weight.{name}", self.weights[name]
        if not math.isfinite(self.loss):
            return "loss", self.loss
        if (name := last_nonfinite(self.gradients)) is not None:  # the last layers are computed first
            return f"gradient.{name}", self.gradients[name]
        norm = self.reported.get("grad_norm", 0.0)
        return None if math.isfinite(norm) else ("grad_norm", norm)


def last_nonfinite(sizes: dict) -> str | None:
    """Return the last name whose number is not finite, or None."""
    return next((name for name in reversed(sizes) if not math.isfinite(sizes[name])), None)


def largest(sizes: dict) -> float:
    """Return the largest of some numbers by name; a non-finite one is larger than any other."""
    return max(sizes.values(), key=lambda size: size if math.isfinite(size) else math.inf, default=math.nan)


def weights_of(learner) -> dict:
    """Return the weights of all of a learner's networks by name."""
    tensors = learner.tensors().items()
    return {key.removeprefix(POLICY): p for key, p in tensors if isinstance(p, torch.nn.Parameter) and p.numel()}


def weight_sizes(learner) -> dict:
    """Return the largest absolute value of each weight tensor by name; wait for the device."""
    weights = weights_of(learner)
    return dict(zip(weights, sizes_of(list(weights.values())), strict=True))


def sizes_of(tensors: list[torch.Tensor]) -> list[float]:
    """Return the largest absolute value of each tensor; NaN where one has a NaN."""
    if not tensors:
        return []
    return torch.stack([tensor.detach().abs().amax().double() for tensor in tensors]).tolist()


def learn(run, name: str, learner) -> list[GradientStep]:
    """Let a learner learn from the run's rollout and return its gradient steps."""
    found, known = [], {p.data_ptr(): key for key, p in weights_of(learner).items()}
    labels = getattr(getattr(learner, "inner", learner), "reported", ())

    def look(loss, reported, weights, gradients, skipped):
        names = [known.get(p.data_ptr(), f"tensor {k}") for k, p in enumerate(weights)]
        with torch.no_grad():
            numbers = torch.stack([x.detach().double().view(()) for x in (skipped, loss, *reported)]).tolist()
            sizes = weight_sizes(learner), dict(zip(names, sizes_of(gradients), strict=True))
        if numbers[0] == 0.0:
            logged = dict(zip(labels, numbers[2:], strict=False))  # not all learners name them
            found.append(
                GradientStep(name, run.step, len(found) + 1, learner.learning_rate, numbers[1], logged, *sizes)
            )

    with looking(look):
        learner.update(run.rollout)
    return found


def gradient_table(steps: list[GradientStep]) -> list[str]:
    """Return a table of the last few gradient steps, up to the first with a non-finite number, as lines."""
    end = next((k + 1 for k, step in enumerate(steps) if step.first() is not None), len(steps))
    steps = steps[max(0, end - SHOWN_STEPS) : end]
    rows = [["after env-step", "step", "learning_rate", "loss", *steps[-1].reported, "gradient", "weight"]]
    for step in steps:
        sizes = largest(step.gradients), largest(step.weights)
        numbers = step.learning_rate, step.loss, *step.reported.values(), *sizes
        rows.append([f"{step.env_steps:,}", str(step.number), *(f"{number:.4g}" for number in numbers)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
