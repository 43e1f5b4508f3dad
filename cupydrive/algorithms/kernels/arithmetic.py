"""Variants of the matrix products in the learner's kernels.

``EXACT`` is float32 with a fixed order of summation, with bitwise identical results on a CPU and a
GPU. ``TENSOR`` uses a GPU's tensor cores, with a network's weights and their gradients in each
block. ``WIDE`` does the same for networks that do not fit into a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cupydrive.algorithms.kernels import gradients, tensor, wide
from cupydrive.algorithms.kernels.gradients import Columns, Minibatches, Shared, Task
from cupydrive.algorithms.kernels.resident import ResidentGradients, resident_way
from cupydrive.algorithms.kernels.steps import Steps, UnpackedSteps
from cupydrive.codegen.source import Unit


@dataclass(frozen=True)
class Arithmetic:
    """A variant: its kernels, and the classes that launch them.

    Args:
        name: Value of the setting ``precision``.
        forward_unit: Function of layout, distribution, executor and number of rows. Returns the
            rows of a tile and the ``Unit`` of forward passes and sampling of actions.
        gradient_units: Function of a task. Returns the ``Unit``s of gradients.
        gradients: Constructor of ``Gradients`` or a similar class.
        steps: ``Steps`` or a similar class.
        pointers: Function of steps. Returns the network's tensors by name that kernels read in
            addition to ``packed``, also those behind ``struct Forward``.
        rows_at_once: Function of layout and number of rows. Returns the number of rows of a
            minibatch for which the outputs of all layers are stored.
        in_block: Whether the weights are in shared memory. A block then computes many tiles of a
            forward pass, and ``kernels/play`` supports the network.
        tolerance: Allowed relative difference between acting and learning with equal weights. 0
            requires bitwise identical results.
    """

    name: str
    forward_unit: Callable
    gradient_units: Callable
    gradients: Callable
    steps: type = Steps
    pointers: Callable = lambda steps: {}
    rows_at_once: Callable = lambda layout, rows: 0
    in_block: bool = True
    tolerance: float = 2.0**-7


EXACT = Arithmetic(
    "float32",
    gradients.exact_forward_unit,
    lambda task: [gradients.exact_gradient_unit(task)],
    gradients.Gradients,
    tolerance=0.0,
)


def tensor_units(task: Task) -> list[Unit]:
    """Return the ``Unit``s of the kernels that ``tensor_gradients`` selects."""
    return [tensor.tensor_gradient_unit(task, resident_way(task))]


def tensor_gradients(task: Task, columns: Columns, shared: Shared) -> Minibatches:
    """Create gradients on tensor cores: resident ones for few rows, otherwise tiled ones."""
    way = resident_way(task)
    if way is None:
        return tensor.TensorGradients(task, columns, shared)
    return ResidentGradients(task, columns, shared, way)


TENSOR = Arithmetic(
    "bfloat16",
    tensor.tensor_forward_unit,
    tensor_units,
    tensor_gradients,
    UnpackedSteps,
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
    in_block=False,
)
