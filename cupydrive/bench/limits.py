"""What this device does at most, measured in the same run as what is compared with it."""

import statistics
from dataclasses import dataclass
from typing import Any

import torch

from cupydrive.algorithms.kernels.tensor import OLDEST
from cupydrive.bench.timing import timed
from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import as_torch, make_call
from cupydrive.protocols import Executor

MEASURED_BYTES = {"cpu": 2**28, "cuda": 2**30}  # far more than any cache
MATRIX_SIZE = 8192  # of the matrices whose product is timed
ELEMENTS = {"cpu": 2**18, "cuda": 2**24}  # of the arithmetic
ELEMENT_BYTES = 8 * 16  # bytes of one element of ``fill`` and ``copy`` in ceilings.cu
# of one element of ``multiply_add`` in ceilings.cu
OPERATIONS = {"cpu": 2 * 64 * 64, "cuda": 2 * 16 * 64}


@dataclass(frozen=True)
class Ceilings:
    """Medians.

    Args:
        write: Bytes per second, filling memory.
        copy: Bytes per second, read and written ones added up.
        arithmetic: Float32 operations per second; a multiplication with addition is two.
        products: Operations per second of bfloat16 matrix products, by a GPU's matrix units; None:
            it has none.
    """

    write: float
    copy: float
    arithmetic: float
    products: float | None = None

    def operations(self, factors: str) -> float:
        """Return the operations per second that ``"float32"`` or ``"bfloat16"`` factors allow."""
        return self.products if factors == "bfloat16" and self.products else self.arithmetic


def ceilings(where: Executor, runs: int = 9) -> Ceilings:
    """Return the ``Ceilings`` of the executor ``where``."""
    program = where.build(assemble_file("tools/ceilings"))
    size = MEASURED_BYTES[where.name]
    source, target = (where.allocate((size // 4,), "f4") for _ in range(2))

    def median(kernel: str, count: int) -> float:
        call = make_call({"count": count}, {"from": as_torch(source), "to": as_torch(target)})
        return statistics.median(
            timed(lambda: program.launch(kernel, call, count, 4 * count), where, runs)
        )

    write, copy = (median(kernel, size // ELEMENT_BYTES) for kernel in ("fill", "copy"))
    elements = ELEMENTS[where.name]
    arithmetic = median("multiply_add", elements)
    return Ceilings(
        size / write,
        2 * size / copy,
        OPERATIONS[where.name] * elements / arithmetic,
        matrix_products(where, runs),
    )


def matrix_products(where: Any, runs: int) -> float | None:
    """Return the operations per second of torch's product of two square bfloat16 matrices, or None
    without matrix units.
    """
    if where.name == "cpu" or int(where.device.compute_capability) < OLDEST:
        return None
    a, b = (
        torch.randn(MATRIX_SIZE, MATRIX_SIZE, dtype=torch.bfloat16, device=where.name)
        for _ in range(2)
    )
    product = torch.empty_like(a)
    return (
        2
        * MATRIX_SIZE**3
        / statistics.median(timed(lambda: torch.matmul(a, b, out=product), where, runs))
    )
