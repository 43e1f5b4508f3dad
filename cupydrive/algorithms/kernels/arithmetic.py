"""The ways in which the learner's kernels compute products of matrices.

``EXACT``: float32 in one order, with the same bits on a CPU and a GPU. ``TENSOR``: a GPU's matrix
units, with a network's weights and their gradients in each block. ``WIDE``: the same for networks
that have no room there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cupydrive.algorithms.kernels import gradients, tensor, wide
from cupydrive.algorithms.kernels.gradients import Columns, Minibatches, Shared, Task
from cupydrive.algorithms.kernels.resident import ResidentGradients, resident_way
from cupydrive.algorithms.kernels.steps import Steps, UncopiedSteps
from cupydrive.codegen.source import Unit


@dataclass(frozen=True)
class Arithmetic:
    """One way: which kernels, and who launches them.

    Args:
        name: Of ``precision``.
        forward_unit: ``(layout, distribution, executor, rows)`` -> rows of a tile and the ``Unit``
            of forward passes of so many rows, and of the draws of actions.
        gradient_units: ``(task)`` -> the ``Unit``s of gradients.
        gradients: What makes ``Gradients``, or one like it.
        steps: ``Steps``, or one like it.
        pointers: ``(steps)`` -> what kernels read of the network besides ``copies``, by name:
            behind ``struct Forward`` too.
        rows_at_once: ``(layout, rows)`` -> of how many of a minibatch's rows the outputs of all
            layers are kept.
        near: Whether a block keeps the weights: then one takes many tiles of a forward pass, and
            ``kernels/play`` has it.
        tolerance: Relative difference allowed between what a policy gives while it acts and while
            it learns, with equal weights; 0: equal bits.
    """

    name: str
    forward_unit: Callable
    gradient_units: Callable
    gradients: Callable
    steps: type = Steps
    pointers: Callable = lambda steps: {}
    rows_at_once: Callable = lambda layout, rows: 0
    near: bool = True
    tolerance: float = 2.0**-7


EXACT = Arithmetic(
    "float32",
    gradients.exact_forward_unit,
    lambda task: [gradients.exact_gradient_unit(task)],
    gradients.Gradients,
    tolerance=0.0,
)


def tensor_units(task: Task) -> list[Unit]:
    """Return the ``Unit``s of gradients on tensor cores, of the kernels that ``tensor_gradients``
    chooses.
    """
    return [tensor.tensor_gradient_unit(task, resident_way(task))]


def tensor_gradients(task: Task, columns: Columns, shared: Shared) -> Minibatches:
    """Return what computes gradients on tensor cores: ``ResidentGradients`` of few rows, otherwise
    ``TensorGradients``.
    """
    way = resident_way(task)
    if way is None:
        return tensor.TensorGradients(task, columns, shared)
    return ResidentGradients(task, columns, shared, way)


TENSOR = Arithmetic(
    "bfloat16",
    tensor.tensor_forward_unit,
    tensor_units,
    tensor_gradients,
    UncopiedSteps,
    pointers=lambda steps: tensor.weight_pointers(steps.weights),
)
WIDE = Arithmetic(
    "bfloat16",
    wide.wide_forward_unit,
    wide.gradient_units,
    wide.WideGradients,
    wide.WideSteps,
    wide.WideSteps.pointers,
    wide.wide_rows_at_once,
    near=False,
)
