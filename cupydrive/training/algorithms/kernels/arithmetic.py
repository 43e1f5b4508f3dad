"""The two ways in which the learner's kernels compute products of matrices.

``EXACT``: float32 in one order, with the same bits on a CPU and a GPU. ``TENSOR``: a GPU's matrix units.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cupydrive.training.algorithms.kernels import gradients, tensor


@dataclass(frozen=True)
class Arithmetic:
    """One way: which kernels, and who launches them.

    Args:
        name: Of ``precision``.
        forward_unit: ``(layout, executor, rows)`` -> rows of a tile and the ``Unit`` of forward passes of so many rows.
        gradient_unit: ``(layout, distribution, config, sizes, executor)`` -> the ``Unit`` of gradients; ``sizes`` as
            ``Gradients`` takes them.
        gradients: Class of what computes gradients: ``Gradients``, or one like it.
        forward_pointers: ``(weights)`` -> what the argument of a forward pass has behind ``struct Forward``.
    """

    name: str
    forward_unit: Callable
    gradient_unit: Callable
    gradients: type
    forward_pointers: Callable


EXACT = Arithmetic("exact", gradients.forward_unit, gradients.gradient_unit, gradients.Gradients, lambda weights: {})
TENSOR = Arithmetic("tensor", tensor.forward_unit, tensor.gradient_unit, tensor.TensorGradients, tensor.weight_pointers)
