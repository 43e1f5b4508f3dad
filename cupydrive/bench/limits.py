"""Limits of this device, measured in the same run as the benchmark."""

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
MATRIX_SIZE = 8192  # size of the square matrices whose product is timed
ELEMENTS = {"cpu": 2**18, "cuda": 2**24}  # elements of the arithmetic benchmark
ELEMENT_BYTES = 8 * 16  # bytes of one element of ``fill`` and ``copy`` in ceilings.cu
# Operations of one element of ``multiply_add`` in ceilings.cu.
OPERATIONS = {"cpu": 2 * 64 * 64, "cuda": 2 * 16 * 64}


@dataclass(frozen=True)
class Ceilings:
    """Median rates of a device.

    Args:
        write: Write bandwidth in bytes per second.
        copy: Copy bandwidth in bytes per second, read and written bytes added up.
        arithmetic: Float32 operations per second. A multiply-add counts as two.
        products: Operations per second of bfloat16 matrix products on tensor cores, or None if the
            device has no tensor cores.
    """

    write: float
    copy: float
    arithmetic: float
    products: float | None = None

    def operations(self, factors: str) -> float:
        """Return the peak operations per second for ``"float32"`` or ``"bfloat16"`` factors."""
        return self.products if factors == "bfloat16" and self.products else self.arithmetic


def ceilings(where: Executor, runs: int = 9) -> Ceilings:
    """Measure the ``Ceilings`` of the executor ``where``."""
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
    """Measure torch's product of two square bfloat16 matrices, in operations per second.

    The result is None without tensor cores.
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
