"""What each gradient step of a replay was: losses, and the largest gradient and weight of each layer."""

import math
from dataclasses import dataclass

import torch

from cupydrive.training.algorithms.looking import looking

SHOWN_STEPS = 8
SHOWN_TENSORS = 16
POLICY = "policy."  # how names of a policy's own tensors begin, among all of a learner's


@dataclass(frozen=True)
class GradientStep:
    """One gradient step; a number that is not finite stands for a tensor that has such a number.

    Args:
        policy: Its name.
        env_steps: Of the run, when the iteration began.
        number: Of the step in the iteration, from 1 on.
        learning_rate: Of the policy.
        loss: What is descended.
        reported: What is logged, by name.
        weights: Largest absolute value of each tensor of all of the learner's networks before the step, by name.
        gradients: Of its gradient, before it is scaled down.
    """

    policy: str
    env_steps: int
    number: int
    learning_rate: float
    loss: float
    reported: dict
    weights: dict
    gradients: dict

    def first(self):
        """Return ``(field, value)`` of what is not finite in it and came first, or None."""
        if (name := last_unsound(self.weights)) is not None:
            return f"weight.{name}", self.weights[name]
        if not math.isfinite(self.loss):
            return "loss", self.loss
        if (name := last_unsound(self.gradients)) is not None:  # those of the last layers are computed first
            return f"gradient.{name}", self.gradients[name]
        norm = self.reported.get("grad_norm", 0.0)
        return None if math.isfinite(norm) else ("grad_norm", norm)


def last_unsound(sizes):
    """Return the last name whose number is not finite, or None."""
    return next((name for name in reversed(sizes) if not math.isfinite(sizes[name])), None)


def largest(sizes):
    """Return the largest of some numbers by name; what is not finite is larger."""
    return max(sizes.values(), key=lambda size: size if math.isfinite(size) else math.inf, default=math.nan)


def weights_of(learner):
    """Return the weights of all of a learner's networks by name."""
    tensors = learner.tensors().items()
    return {key.removeprefix(POLICY): p for key, p in tensors if isinstance(p, torch.nn.Parameter) and p.numel()}


def weight_sizes(learner):
    """Return the largest absolute value of each of them, by name; waits for the device."""
    weights = weights_of(learner)
    return dict(zip(weights, sizes_of(list(weights.values())), strict=True))


def sizes_of(tensors):
    """Return the largest absolute value of each tensor, as a list of floats; NaN where one has a NaN."""
    if not tensors:
        return []
    return torch.stack([tensor.detach().abs().amax().double() for tensor in tensors]).tolist()


def learn(run, name, learner, env_steps):
    """Let a learner learn from the run's rollout, and return its ``GradientStep``s, as far as it takes any that can be seen."""
    found, known = [], {p.data_ptr(): key for key, p in weights_of(learner).items()}
    labels = getattr(getattr(learner, "inner", learner), "reported", ())

    def look(loss, reported, weights, gradients, skipped):
        names = [known.get(p.data_ptr(), f"tensor {k}") for k, p in enumerate(weights)]
        with torch.no_grad():
            numbers = torch.stack([x.detach().double().view(()) for x in (skipped, loss, *reported)]).tolist()
            sizes = weight_sizes(learner), dict(zip(names, sizes_of(gradients), strict=True))
        if numbers[0] == 0.0:
            said = dict(zip(labels, numbers[2:], strict=False))  # which not all learners name
            found.append(GradientStep(name, env_steps, len(found) + 1, learner.learning_rate, numbers[1], said, *sizes))

    with looking(look):
        learner.update(run.rollout)
    return found


# ---- in words ----


def last_steps(steps):
    """Return the last few of ``GradientStep``s, up to the first in which a number is not finite."""
    end = next((k + 1 for k, step in enumerate(steps) if step.first() is not None), len(steps))
    return steps[max(0, end - SHOWN_STEPS) : end]


def gradient_table(steps):
    """Return lines about ``GradientStep``s, one below the other."""
    rows = [["after env-step", "step", "learning_rate", "loss", *steps[-1].reported, "gradient", "weight"]]
    for step in steps:
        sizes = largest(step.gradients), largest(step.weights)
        numbers = step.learning_rate, step.loss, *step.reported.values(), *sizes
        rows.append([f"{step.env_steps:,}", str(step.number), *(f"{number:.4g}" for number in numbers)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows]


def tensor_lines(step):
    """Return a line about each tensor of a ``GradientStep``; of many, about those whose gradients are the largest."""
    gradients = step.gradients
    order = sorted(gradients, key=lambda name: (math.isfinite(gradients[name]), -gradients[name]))
    shown = [name for name in step.gradients if name in order[:SHOWN_TENSORS]]
    lines = [f"  {name}: {step.gradients[name]:.4g}, {step.weights.get(name, math.nan):.4g}" for name in shown]
    return [*lines, f"  and {len(order) - len(shown)} more"] if len(shown) < len(order) else lines
