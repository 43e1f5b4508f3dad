"""How many blocks of a kernel a GPU's processor holds at once, and what does not allow more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cupy

from cupydrive.codegen.layout import WARP
from cupydrive.executors.cuda import BLOCK_BYTES, PROCESSOR_REGISTERS

if TYPE_CHECKING:
    from cupydrive.executors.cuda import CudaProgram

SCHEDULERS = 4  # of a processor, each with its share of the registers
REGISTERS_AT_ONCE = 256  # of a warp, in which they are given out


def attributes(program: CudaProgram, kernel: str) -> dict[str, int]:
    """Return what one kernel of a ``CudaProgram`` needs, by name.

    Returns:
        ``registers`` of a thread; ``local_bytes``, a thread's memory for spilled registers and arrays with an index that the
        compiler does not know; ``shared_bytes`` of a block; ``threads`` of a block.
    """
    function = program.kernels[kernel]
    return {
        "registers": function.num_regs,
        "local_bytes": function.local_size_bytes,
        "shared_bytes": program.shared_bytes + function.shared_size_bytes,
        "threads": program.threads,
    }


def allowed_blocks(program: CudaProgram, kernel: str) -> dict[str, int]:
    """Return how many blocks of a kernel each thing that they need allows on one processor, by name."""
    need, device = attributes(program, kernel), program.device.attributes
    warps = -(-need["threads"] // WARP)
    warp_registers = -(-need["registers"] * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    return {
        "threads": device["MaxThreadsPerMultiProcessor"] // (warps * WARP),
        "blocks": device["MaxBlocksPerMultiprocessor"],
        "registers": SCHEDULERS * (PROCESSOR_REGISTERS // SCHEDULERS // warp_registers) // warps,
        "shared memory": device["MaxSharedMemoryPerMultiprocessor"] // (need["shared_bytes"] + BLOCK_BYTES),
    }


def resident_blocks(program: CudaProgram, kernel: str) -> dict[str, int | str]:
    """Return how many blocks of a kernel one processor holds at once, by the driver, and why not more.

    Returns:
        ``resident`` blocks; ``bound``, what does not allow more: ``"registers"``, ``"shared memory"``, ``"threads"`` or
        ``"blocks"``; ``processors`` of the GPU; ``most_threads`` that one of them holds.
    """
    allowed, device = allowed_blocks(program, kernel), program.device.attributes
    resident = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        program.kernels[kernel].kernel.ptr, program.threads, program.shared_bytes
    )
    return {
        "resident": resident,
        "bound": min(allowed, key=lambda name: allowed[name]),
        "processors": device["MultiProcessorCount"],
        "most_threads": device["MaxThreadsPerMultiProcessor"],
    }
