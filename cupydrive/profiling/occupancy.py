"""Use: the occupancy of a kernel on a GPU's multiprocessor, and the resource that limits it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupydrive.codegen.layout import WARP

if TYPE_CHECKING:
    from cupydrive.executors.cuda import CudaProgram

SCHEDULERS = 4  # schedulers of a multiprocessor, each with an equal share of the registers
REGISTERS_AT_ONCE = 256  # allocation granularity of a warp's registers


@dataclass(frozen=True)
class Use:
    """Resources of a GPU that a kernel uses.

    Args:
        registers: Registers per thread.
        local_bytes: Local memory per thread: spilled registers, and arrays with dynamic indices.
        shared_bytes: Shared memory per block.
        threads: Threads per block.
        blocks: Blocks of the launch.
        resident: Maximum number of resident blocks of one multiprocessor.
        bound: Resource that limits this number.
        processors: Multiprocessors of the GPU.
        most_threads: Maximum number of resident threads of one multiprocessor.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    threads: int
    blocks: int
    resident: int
    bound: str
    processors: int
    most_threads: int

    @property
    def occupancy(self) -> float:
        """Fraction of a multiprocessor's threads that this kernel occupies, given enough blocks."""
        return self.resident * self.threads / self.most_threads

    @property
    def filled(self) -> float:
        """Occupancy of this launch, on average over the multiprocessors."""
        return min(self.resident, self.blocks / self.processors) * self.threads / self.most_threads


def use_of(program: "CudaProgram", kernel: str, blocks: int) -> Use:
    """Return the ``Use`` of a kernel.

    Args:
        program: Program of the kernel.
        kernel: Name of the kernel.
        blocks: Number of thread blocks of the launch.
    """
    import cupy

    function, device, allowed = (
        program.kernels[kernel],
        program.device.attributes,
        allowed_blocks(program, kernel),
    )
    return Use(
        registers=function.num_regs,
        local_bytes=function.local_size_bytes,
        shared_bytes=program.shared_bytes + function.shared_size_bytes,
        threads=program.threads,
        blocks=blocks,
        resident=cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.kernel.ptr, program.threads, program.shared_bytes
        ),
        bound=min(allowed, key=lambda name: allowed[name]),
        processors=device["MultiProcessorCount"],
        most_threads=device["MaxThreadsPerMultiProcessor"],
    )


def allowed_blocks(program: "CudaProgram", kernel: str) -> dict[str, int]:
    """Return the number of resident blocks per multiprocessor that each resource allows.

    Args:
        program: Program of the kernel.
        kernel: Name of the kernel.

    Returns:
        Number of blocks by name of the resource.
    """
    from cupydrive.executors.cuda import BLOCK_BYTES, PROCESSOR_REGISTERS

    function, device = program.kernels[kernel], program.device.attributes
    warps = -(-program.threads // WARP)
    warp_registers = -(-function.num_regs * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    shared_bytes = program.shared_bytes + function.shared_size_bytes
    return {
        "threads": device["MaxThreadsPerMultiProcessor"] // (warps * WARP),
        "blocks": device["MaxBlocksPerMultiprocessor"],
        "registers": SCHEDULERS * (PROCESSOR_REGISTERS // SCHEDULERS // warp_registers) // warps,
        "shared memory": device["MaxSharedMemoryPerMultiprocessor"] // (shared_bytes + BLOCK_BYTES),
    }
