"""The ways in which the learner's kernels compute products of matrices.

``EXACT``: float32 in one order, with the same bits on a CPU and a GPU. ``TENSOR``: a GPU's matrix units, with a network's
weights and their gradients in each block. ``WIDE``: the same for networks that have no room there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cupydrive.codegen.source import Unit
from cupydrive.protocols import Executor
from cupydrive.training.algorithms.kernels import gradients, tensor, wide
from cupydrive.training.algorithms.kernels.gradients import Columns, Minibatches
from cupydrive.training.algorithms.kernels.layout import Distribution, NetworkLayout, Sizes
from cupydrive.training.algorithms.kernels.resident import ResidentGradients, resident_unit, resident_way
from cupydrive.training.algorithms.kernels.steps import Steps, UncopiedSteps
from cupydrive.training.algorithms.settings import OnPolicy


@dataclass(frozen=True)
class Arithmetic:
    """One way: which kernels, and who launches them.

    Args:
        name: Of ``precision``.
        forward_unit: ``(layout, distribution, executor, rows)`` -> rows of a tile and the ``Unit`` of forward passes of so
            many rows, and of the draws of actions.
        gradient_units: ``(layout, distribution, config, sizes, executor)`` -> the ``Unit``s of gradients; ``sizes`` as
            ``Gradients`` takes them.
        gradients: What makes ``Gradients``, or one like it.
        steps: ``Steps``, or one like it.
        pointers: ``(steps)`` -> what kernels read of the network besides ``copies``, by name: behind ``struct Forward`` too.
        rows_at_once: ``(layout, rows)`` -> of how many of a minibatch's rows the outputs of all layers are kept.
        near: Whether a block keeps the weights: then one takes many tiles of a forward pass, and ``kernels/play`` has it.
    """

    name: str
    forward_unit: Callable
    gradient_units: Callable
    gradients: Callable
    steps: type = Steps
    pointers: Callable = lambda steps: {}
    rows_at_once: Callable = lambda layout, rows: 0
    near: bool = True


EXACT = Arithmetic(
    "float32", gradients.forward_unit, lambda *about: [gradients.gradient_unit(*about)], gradients.Gradients
)


def tensor_units(
    layout: NetworkLayout, distribution: Distribution, config: OnPolicy, sizes: Sizes, executor: Executor
) -> list[Unit]:
    """Return the ``Unit``s of gradients by matrix units, of the kernels that ``tensor_gradients`` chooses."""
    about = layout, distribution, config, sizes, executor
    way = resident_way(layout, config, sizes, executor)
    return [tensor.gradient_unit(*about) if way is None else resident_unit(*about, way)]


def tensor_gradients(
    executor: Executor,
    layout: NetworkLayout,
    distribution: Distribution,
    config: OnPolicy,
    sizes: Sizes,
    columns: Columns,
    shared: Mapping[str, Any],
) -> Minibatches:
    """Return what computes gradients by matrix units: ``ResidentGradients`` of few rows, ``TensorGradients`` else."""
    about = executor, layout, distribution, config, sizes, columns, shared
    way = resident_way(layout, config, sizes, executor)
    return tensor.TensorGradients(*about) if way is None else ResidentGradients(*about, way)


TENSOR = Arithmetic(
    "bfloat16",
    tensor.forward_unit,
    tensor_units,
    tensor_gradients,
    UncopiedSteps,
    pointers=lambda steps: tensor.weight_pointers(steps.weights),
)
WIDE = Arithmetic(
    "bfloat16",
    wide.forward_unit,
    wide.gradient_units,
    wide.WideGradients,
    wide.WideSteps,
    wide.WideSteps.pointers,
    wide.rows_at_once,
    near=False,
)
