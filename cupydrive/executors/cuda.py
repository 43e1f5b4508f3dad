"""Run kernels on a GPU with CuPy's RawModule, compiled by NVRTC."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import cupy
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cupydrive.codegen.diagnostics import explain_compile_error
from cupydrive.codegen.layout import Layout, Observations
from cupydrive.codegen.source import Unit, assemble
from cupydrive.errors import DeviceError, MemoryLimitError
from cupydrive.executors import nvrtc, overlap
from cupydrive.executors.cache import cache_folder
from cupydrive.executors.constants import device_copy
from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.executors.noted import note, packed
from cupydrive.protocols import EnvParams, Program
from cupydrive.spec import EnvSpec

# CuPy caches its kernels in the home folder, and would create a folder "~" if there is none.
if not os.access(os.path.expanduser("~"), os.W_OK):
    os.environ.setdefault("CUPY_CACHE_DIR", str(cache_folder() / "cupy"))
STATIC_BYTES = 48 * 1024  # shared memory of a block that needs no opt-in
# Shared memory of a block for layouts: the maximum of sm_86, 89 and 120, and half of that of sm_80
# to 100.
LAYOUT_BYTES = 99 * 1024
BLOCK_BYTES = 1024  # shared memory that CUDA reserves per block
PROCESSOR_REGISTERS = 65_536
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
ALIGNED = 16  # allocation sizes are multiples of this, so that memory can be viewed as any type
BUSY_THREADS = 768  # number of threads that keep a multiprocessor busy
FEW_AGENTS = 8  # maximum number of agents whose state and rows fit into one thread's registers
REGISTER_BYTES = 256  # maximum size of an environment's observations in registers
SIDE_BYTES = 768  # maximum size of them that leaves enough warps per multiprocessor


def torch_device() -> cupy.cuda.Device:
    """Return torch's current device, and make it CuPy's current device.

    Processes on one machine select their GPU with ``torch.cuda.set_device``, and both libraries
    must use the same GPU.
    """
    if cupy.cuda.runtime.getDeviceCount() > 1:
        import torch

        cupy.cuda.Device(torch.cuda.current_device()).use()
    return cupy.cuda.Device()


class CudaExecutor:
    """Executor of torch's current CUDA device.

    Args:
        share: Number of programs that run concurrently. Launch sizes are chosen for this fraction
            of the multiprocessors.
    """

    name = "cuda"
    xp: ModuleType = cupy
    max_team = 1024
    tries = False

    def __init__(self, share: int = 1) -> None:
        self.device = torch_device()
        attributes = self.device.attributes
        self.shared_bytes = attributes["MaxSharedMemoryPerBlockOptin"]
        self.team_bytes = self.shared_bytes
        self.layout_bytes = min(self.shared_bytes, LAYOUT_BYTES)
        self.processors = max(1, attributes["MultiProcessorCount"] // share)
        self.processor_shared_bytes = attributes["MaxSharedMemoryPerMultiprocessor"]
        self.overlaps = overlap.available(self.device)

    def layout(self, spec: EnvSpec, params: EnvParams, num_envs: int = 1_000_000) -> Layout:
        """Return the fastest measured layout for this number of agents and environments."""
        groups = spec.groups(params)
        agents, obs_bytes = (
            sum(g.count for g in groups),
            sum(g.count * g.obs_bytes(packed=True) for g in groups),
        )
        layout = default_layout(agents, obs_bytes, num_envs, self.processors).fit(
            spec, params, self.layout_bytes
        )
        if layout.team <= 32:
            return layout
        if layout.observations is Observations.STAGED:  # rows are stored in chunks from registers
            layout = replace(layout, team=min(layout.team, 256))
        # The threads of a team wait for each other, so occupancy matters more than rows in shared
        # memory.
        blocks = self.processor_shared_bytes // (layout.shared_bytes(spec, params) + BLOCK_BYTES)
        return (
            layout if blocks * layout.team >= BUSY_THREADS else replace(layout, rows_on_chip=False)
        )

    def load(self, spec: EnvSpec, params: EnvParams, layout: Layout | None = None) -> Program:
        """Return the compiled ``CudaProgram``, or the environment's own program.

        If the kernel's ``Shared`` is too large, less other data is kept in shared memory.
        """
        if spec.own_program is not None:
            return spec.own_program(self, spec, params)
        layout = layout or self.layout(spec, params)
        while True:
            program = CudaProgram(self, assemble(spec, params, layout))
            if program.block_bytes <= self.shared_bytes:
                return program
            # Half of such a block may not be a multiple of a warp.
            if layout.observations is Observations.WARP_COPY:
                layout = replace(layout, observations=Observations.SHARED)
            elif layout.envs_per_block > 1:
                layout = replace(layout, envs_per_block=layout.envs_per_block // 2)
            elif layout.state_on_chip:
                layout = layout.fit(spec, params, layout.shared_bytes(spec, params) - 1)
            else:
                raise DeviceError(
                    f"{spec.name}: a block with struct Shared needs {program.block_bytes} bytes of "
                    f"shared memory, and this GPU has {self.shared_bytes}. Make Shared smaller"
                )

    def build(self, unit: Unit) -> CudaProgram:
        """Return the compiled ``CudaProgram`` of any ``Unit``."""
        return CudaProgram(self, unit)

    def resident_teams(self, program: CudaProgram, kernel: str) -> int:
        """Return the number of resident blocks of a kernel, given its registers and shared memory.

        The program must have one team per block.
        """
        registers = program.threads * program.kernels[kernel].num_regs
        near = self.processor_shared_bytes // (program.shared_bytes + BLOCK_BYTES)
        return self.processors * max(1, min(near, PROCESSOR_REGISTERS // registers))

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
        """Allocate zeros of ``shape`` on the device.

        CuPy does not support structs, so they become bytes (*shape, itemsize). torch owns the
        memory, so that its tensors can be sent to other processes.
        """
        import torch

        dtype = np.dtype(dtype)
        if dtype.names:
            shape, dtype = (*shape, dtype.itemsize), np.dtype(np.uint8)
        size = math.prod(shape) * dtype.itemsize
        with torch.inference_mode(False):  # the memory outlives the caller's mode
            owner = torch.zeros(
                -(-max(1, size) // ALIGNED) * ALIGNED,
                dtype=torch.uint8,
                device=f"cuda:{self.device.id}",
            )
        memory = cupy.cuda.UnownedMemory(owner.data_ptr(), owner.numel(), owner, self.device.id)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def constant(self, array: np.ndarray, digest: str) -> cupy.ndarray:
        """Return the shared device copy of a read-only NumPy array with this hash.

        The copy is freed when nothing references it.
        """
        return device_copy(self, array, (self.device.id, digest))  # type: ignore[arg-type]

    def pointer(self, array: cupy.ndarray) -> int:
        """Return the device address of ``array``."""
        return array.data.ptr

    def put(self, array: cupy.ndarray, values: ArrayLike) -> None:
        """Write ``values`` (NumPy) into ``array``."""
        # np.ascontiguousarray would add a dimension to a scalar.
        values = np.asarray(values, order="C")
        if values.dtype.names:
            values = values.view(np.uint8).reshape(array.shape)
        array.set(values.astype(array.dtype, copy=False))

    def get(self, array: cupy.ndarray) -> np.ndarray:
        """Return a NumPy copy of ``array``. The call synchronizes with the device."""
        return array.get()

    def synchronize(self) -> None:
        """Wait until all launches have finished."""
        with EXCLUSIVE:
            self.device.synchronize()

    def capturing(self) -> bool:
        """Return whether launches are captured into a graph instead of executed."""
        return cupy.cuda.get_current_stream().is_capturing()

    def free_bytes(self) -> int:
        """Return the free device memory in bytes, including idle pools of CuPy and torch."""
        import torch

        idle = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(self.device.mem_info[0] + cupy.get_default_memory_pool().free_bytes() + idle)

    def describe(self) -> str:
        """Return the name of this device."""
        return cupy.cuda.runtime.getDeviceProperties(self.device.id)["name"].decode()


# Modules by device and text, because thousands of runs may share a program.
_loaded: dict[tuple[int, str], cupy.RawModule] = {}


def loaded(unit: Unit, device: cupy.cuda.Device) -> cupy.RawModule:
    """Return the compiled module of ``unit`` on ``device``, from memory, the cache or NVRTC."""
    key = device.id, unit.text
    if key not in _loaded:
        _loaded[key] = nvrtc.load_module(unit, device.compute_capability)
    return _loaded[key]


class CudaProgram:
    """One compiled unit."""

    def __init__(self, executor: CudaExecutor, unit: Unit) -> None:
        self.executor, self.unit, self.layout, self.prints = (
            executor,
            unit,
            unit.layout,
            unit.prints,
        )
        self.device = executor.device
        try:
            self.module = loaded(unit, self.device)
            self.kernels = {name: self.module.get_function(name) for name in unit.kernels}
        except cupy.cuda.compiler.CompileException as error:
            raise (
                explain_compile_error(unit, str(error))
                or DeviceError(f"NVRTC failed on {unit.name}: {error}")
            ) from None
        self.shared_bytes, self.cache_bytes = (
            self._constant("block_bytes"),
            self._constant("cache_bytes"),
        )
        self.threads = self.layout.threads
        # Add static shared arrays of the kernels.
        self.block_bytes = self.shared_bytes + max(
            kernel.shared_size_bytes for kernel in self.kernels.values()
        )
        if STATIC_BYTES < self.block_bytes <= executor.shared_bytes:
            for kernel in self.kernels.values():
                kernel.max_dynamic_shared_size_bytes = self.shared_bytes
        self.functions = (
            {name: kernel.kernel.ptr for name, kernel in self.kernels.items()}
            if executor.overlaps
            else None
        )

    def _constant(self, name: str) -> int:
        """Return an int that the unit defines."""
        return int(cupy.ndarray((), np.int32, self.module.get_global(name)).get())

    def launch(self, kernel: str, call: np.ndarray, count: int, work: int = 0) -> None:
        """Queue ``kernel`` for [0, ``count``) on ``call`` in CuPy's current stream."""
        if not note(self, kernel, call, count, work):
            self._queue(kernel, call, count, 1)

    def joined_unit(self) -> Unit:
        """Return the ``Unit`` that ``join`` launches, with kernel arguments in global memory."""
        return self.unit.of_members()

    def join(self, kernel: str, calls: np.ndarray, count: int, work: int = 0) -> Callable[[], None]:
        """Return a function that queues ``kernel`` for [0, ``count``) on each of ``calls`` (M,).

        The grid has one row of blocks for each call.
        """
        program = CudaProgram(self.executor, self.joined_unit())
        kept = cupy.asarray(packed(kernel, calls, program._constant(f"{kernel}_bytes")))
        address = np.array(kept.data.ptr, np.uint64)

        def queue(kept: cupy.ndarray = kept) -> None:
            program._queue(kernel, address, count, len(calls))

        return queue

    def _queue(self, kernel: str, argument: np.ndarray, count: int, members: int) -> None:
        blocks = -(-count // self.layout.block_envs), members
        try:
            if self.functions is not None:
                function = self.functions[kernel]
                overlap.launch_overlapping(
                    self.device, function, blocks, self.threads, self.shared_bytes, argument
                )
                return
            # Pass bytes without fields: CuPy would parse the fields at each launch, which takes 20
            # of 26 microseconds.
            given = argument.view(np.void) if argument.dtype.names else argument[()]
            self.kernels[kernel](blocks, (self.threads,), (given,), shared_mem=self.shared_bytes)
        except cupy.cuda.driver.CUDADriverError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            raise MemoryLimitError(
                f"{self.unit.name}: {kernel} needs {self.kernels[kernel].local_size_bytes:,} "
                f"bytes of local memory per thread, and {self.device.mem_info[0]:,} are free for "
                "all threads. Make arrays in the kernel's functions smaller, or end other programs "
                "on this GPU"
            ) from None


def default_layout(agents: int, obs_bytes: int, num_envs: int, processors: int) -> Layout:
    """Return the default layout for a number of agents and environments.

    The rules were measured on an H200 with ``cupydrive bench``. Few agents are fastest in a single
    thread, with all their data in registers. Few environments are bound by the latency of a step.
    Many are bound by memory, to which a warp writes the rows of its environments together through
    shared memory.

    Args:
        agents: Number of agents of one environment.
        obs_bytes: Size of the observations of all agents of one environment.
        num_envs: Number of environments.
        processors: Number of multiprocessors.
    """
    sizes = (
        (256, 128, 64)
        if agents == 1
        else (size for size in (256, 128, 64) if size * obs_bytes <= LAYOUT_BYTES)
    )
    blocks = (size for size in sizes if num_envs >= 4 * size * processors)
    if agents == 1:
        return Layout(team=1, envs_per_block=next(blocks, 32))
    if agents <= FEW_AGENTS and num_envs <= 32 * processors and obs_bytes <= REGISTER_BYTES:
        return Layout(team=1, envs_per_block=8)
    if agents <= FEW_AGENTS and num_envs > 32 * processors and obs_bytes <= SIDE_BYTES:
        return Layout(team=1, envs_per_block=next(blocks, 32))
    team = 1 << (min(agents, 256) - 1).bit_length()
    return Layout(team=team, envs_per_block=max(1, 128 // team) if team <= 32 else 1)
