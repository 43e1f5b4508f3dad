"""Programmatic dependent launch, which overlaps launch latency with the previous kernel.

CuPy's launches have no attributes, so this module calls the driver's ``cuLaunchKernelEx`` with the
structures of CUDA 12's ``cuda.h``. The computations do not overlap. Each kernel waits on the GPU
for all previous work in its stream (``await_previous`` of
``kernels/drive/backend/cuda_team.cuh``), so it must be defined by ``KERNEL`` or a similar macro.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import cupy
import numpy as np

CAPABILITY = "90"  # tested compute capability. On others, CuPy launches kernels.
DRIVER = 12030  # CUDA 12.3, the first version whose graphs preserve such launches
STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT, returned by a thread's first call


class Attribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        *((f"{of}_{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("num_attributes", ctypes.c_uint),
    )


OVERLAP_ATTRIBUTE = Attribute(STREAM_SERIALIZATION, 0, (1,))


def available(device: cupy.cuda.Device) -> bool:
    """Return whether launches on ``device`` may overlap."""
    return (
        device.compute_capability == CAPABILITY and cupy.cuda.runtime.driverGetVersion() >= DRIVER
    )


@cache
def driver_launch() -> Callable:
    """Return the driver's ``cuLaunchKernelEx``."""
    function = ctypes.CDLL(
        "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    ).cuLaunchKernelEx
    function.argtypes = (
        ctypes.POINTER(LaunchConfig),
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_void_p,
    )
    return function


def launch_overlapping(
    device: cupy.cuda.Device,
    kernel: int,
    blocks: tuple[int, int],
    threads: int,
    shared_bytes: int,
    call: np.ndarray,
) -> None:
    """Queue a kernel in CuPy's current stream, launched while the previous kernel still runs.

    Args:
        device: ``cupy.cuda.Device`` of the kernel.
        kernel: Address of its ``CUfunction``.
        blocks: Grid size: blocks per row, and rows.
        threads: Threads per block.
        shared_bytes: Dynamic shared memory per block.
        call: The kernel's only argument, a 0-dimensional array. It is copied before this returns.
    """
    stream = cupy.cuda.get_current_stream().ptr
    config = LaunchConfig(
        *blocks, 1, threads, 1, 1, shared_bytes, stream, ctypes.addressof(OVERLAP_ATTRIBUTE), 1
    )
    arguments = (ctypes.c_void_p * 1)(call.ctypes.data)
    code = driver_launch()(config, kernel, arguments, None)
    if code == INVALID_CONTEXT:
        device.use()
        code = driver_launch()(config, kernel, arguments, None)
    if code:
        raise cupy.cuda.driver.CUDADriverError(code)
