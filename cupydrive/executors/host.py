"""Run kernels on the CPU, compiled by the machine's C++ compiler and loaded with ctypes.

Environments are divided among threads.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import pairwise
from operator import or_
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cupydrive.protocols import EnvParams, Program
from cupydrive.spec import EnvSpec

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from cupydrive.codegen.diagnostics import GNU_WARNINGS
from cupydrive.codegen.layout import Layout, Observations
from cupydrive.codegen.source import Unit, assemble, assemble_file
from cupydrive.errors import DeviceError, KernelFault
from cupydrive.executors.ahead import usable_cores
from cupydrive.executors.cache import cached_library
from cupydrive.executors.compiler import compile_unit, compiler
from cupydrive.executors.constants import device_copy
from cupydrive.executors.noted import note, packed
from cupydrive.executors.trial_process import RACE, last_fault
from cupydrive.inputs.arguments import checked_choice, checked_int, errors_as


def frame_bytes() -> int:
    """Return the stack space of struct Shared and the arrays of functions, in bytes.

    A thread's stack usually has 8 MiB.
    """
    limit = 2**20 if resource is None else resource.getrlimit(resource.RLIMIT_STACK)[0]
    # If there is no limit, a new thread has 2 MiB.
    return min(8 * 2**20, limit if limit > 0 else 2 * 2**20) * 3 // 4


FRAME_BYTES = frame_bytes()
FLAGS = (
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fno-rtti",
    *GNU_WARNINGS,
    f"-Wframe-larger-than={FRAME_BYTES}",
)
DIVISIONS = ("-fsanitize=integer-divide-by-zero", "-fno-sanitize-recover=integer-divide-by-zero")
# Bits of a kernel's return code: ``Ended`` of ``kernels/drive/backend/cpu_launch.cuh``.
UNEVEN, FAULTY = 1, 2
TEAM_BYTES = 96 * 1024  # working set of learner kernels, which fits into one thread's cache
# Stack space of one thread for layouts. Larger data stays in the memory of the batch.
STACK_BYTES = 256 * 1024
# Stack space for observations. Storing larger ones directly is faster than copying them.
OBS_BYTES = 64 * 1024
# Elements of work below which waking a second thread costs more than it saves.
SMALL_LAUNCH = 20_000
MOST_THREADS = 1024  # maximum of CUPYDRIVE_THREADS
LEVELS = ("0", "1", "2", "3")  # optimization levels of CUPYDRIVE_OPTIMIZE
_loaded: dict[str, ctypes.CDLL] = {}  # libraries by all inputs that they depend on


class HostExecutor:
    """Executor of the CPU.

    Args:
        threads: Number of threads that share the environments. Defaults to CUPYDRIVE_THREADS, or
            one per usable core.
        debug: Build with bounds checks of agents, observations, actions and arrays, which take
            about twice the time.
        count: Count float operations, for ``HostProgram.operations``.
        team_threads: Run each team as this many real threads, one environment after another, and
            detect two threads that write the same entry between two syncs. For tests of team code.
        flags: Further compiler flags, for sanitizers.
        share: Number of programs that run concurrently. Launch sizes are chosen for this fraction
            of the threads.

    Raises:
        DeviceError: If CUPYDRIVE_THREADS or CUPYDRIVE_OPTIMIZE is invalid.
    """

    name = "cpu"
    xp: ModuleType = np
    team_bytes = TEAM_BYTES
    layout_bytes = STACK_BYTES

    def __init__(
        self,
        threads: int | None = None,
        debug: bool = False,
        count: bool = False,
        team_threads: int = 0,
        flags: tuple[str, ...] = (),
        share: int = 1,
    ) -> None:
        self.threads = threads or usual_threads()
        self.debug, self.team_threads = debug, team_threads
        checks = (
            ("-DDEBUG_BOUNDS", "-fsanitize=bounds", "-fno-sanitize-recover=bounds") if debug else ()
        )
        threading_flags = ("-DTEAM_THREADS", "-pthread") if team_threads else ()
        counting = ("-DCOUNT_OPERATIONS",) if count else ()
        self.max_team = max(1, team_threads)
        self.flags = (
            "-O1" if debug or count or team_threads else f"-O{usual_level()}",
            *DIVISIONS,
            *checks,
            *counting,
            *threading_flags,
            *flags,
        )
        # Whether a user's new kernel is tried in another process first. An alarm ends its endless
        # loops, which Windows does not support.
        self.tries = not (debug or count or team_threads) and hasattr(signal, "setitimer")
        if count or team_threads:
            self.threads = 1
        self.processors = max(1, self.threads // share)

    def layout(self, spec: EnvSpec, params: EnvParams, num_envs: int = 1) -> Layout:
        """Return the layout for this environment: a team of one, with state and rows on the stack
        if they fit.
        """
        observed = sum(g.count * g.obs_bytes(packed=True) for g in spec.groups(params))
        way = Observations.SHARED if observed <= OBS_BYTES else Observations.DIRECT
        layout = Layout(team=self.max_team, observations=way).fit(spec, params, self.layout_bytes)
        # `fit` does not count the state and the rows of a team of one, which are on the stack.
        large = replace(layout, team=2).shared_bytes(spec, params) > FRAME_BYTES // 2
        return replace(layout, state_on_chip=False, rows_on_chip=False) if large else layout

    def load(self, spec: EnvSpec, params: EnvParams, layout: Layout | None = None) -> Program:
        """Return the compiled ``HostProgram``, or the environment's own program."""
        if spec.own_program is not None:
            return spec.own_program(self, spec, params)
        return self.build(assemble(spec, params, layout or self.layout(spec, params)))

    def build(self, unit: Unit) -> HostProgram:
        """Return the compiled ``HostProgram`` of any ``Unit``.

        Raises:
            DeviceError: If the unit is for a larger team, which would do only part of the work.
        """
        if unit.layout.team > self.max_team:
            raise DeviceError(
                f"{unit.name}: got a layout with a team of {unit.layout.team}, expected "
                f"{self.max_team} on the CPU. Omit layout"
            )
        return HostProgram(self, unit)

    def resident_teams(self, program: Program, kernel: str) -> int:
        """Return the number of teams that run concurrently: one in each thread."""
        return self.processors

    def fuses(self) -> bool:
        """Return whether the CPU has a fused multiply-add instruction.

        Without it, a library function takes a hundred times as long.
        """
        return bool(build(assemble_file("tools/fused"), self.flags).fused())

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Allocate zeros of ``shape``, aligned to 64 bytes."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        raw = np.zeros(size + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return raw[start : start + size].view(dtype).reshape(shape)

    def constant(self, array: np.ndarray, digest: str) -> np.ndarray:
        """Return the shared copy of a read-only NumPy array with this hash.

        The copy is freed when nothing references it.
        """
        return device_copy(self, array, digest)

    def pointer(self, array: np.ndarray) -> int:
        """Return the address of ``array``."""
        return array.ctypes.data

    def put(self, array: np.ndarray, values: ArrayLike) -> None:
        """Write ``values`` (NumPy) into ``array``."""
        array[...] = values

    def get(self, array: np.ndarray) -> np.ndarray:
        """Return a NumPy copy of ``array``."""
        return np.array(array)

    def synchronize(self) -> None:
        """Return immediately, because launches on the CPU are synchronous."""

    def capturing(self) -> bool:
        """Return False, because there are no graphs on the CPU."""
        return False

    def free_bytes(self) -> int:
        """Return the available memory in bytes."""
        try:
            with open("/proc/meminfo", encoding="utf-8") as lines:
                available = next(
                    int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
                )
        except (OSError, StopIteration):
            available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return available

    def describe(self) -> str:
        """Return the model of the CPU and the number of threads."""
        return f"{processor_name()}, {self.threads} thread{'s' * (self.threads > 1)}"


def usual_threads() -> int:
    """Return CUPYDRIVE_THREADS, or the number of usable cores.

    Raises:
        DeviceError: If the variable is not an integer from 1 to ``MOST_THREADS``.
    """
    asked = os.environ.get("CUPYDRIVE_THREADS")
    if not asked:
        return usable_cores()
    number = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else asked
    with errors_as(DeviceError):
        return checked_int("the environment", "CUPYDRIVE_THREADS", number, 1, MOST_THREADS)


def usual_level() -> str:
    """Return the compiler's optimization level: CUPYDRIVE_OPTIMIZE, or 3.

    Results are bitwise identical at every level.

    Raises:
        DeviceError: If the variable is not one of ``LEVELS``.
    """
    asked = os.environ.get("CUPYDRIVE_OPTIMIZE") or LEVELS[-1]
    with errors_as(DeviceError):
        return checked_choice("the environment", "CUPYDRIVE_OPTIMIZE", asked, LEVELS)


class TeamFault(KernelFault):
    """The threads of a team violate a rule of ``docs/dialect.md``.

    ``rule`` is ``"syncs"`` or ``"races"``.
    """

    def __init__(self, words: str, rule: str) -> None:
        super().__init__(words)
        self.rule = rule


class HostProgram:
    """One compiled unit."""

    def __init__(self, executor: HostExecutor, unit: Unit) -> None:
        self.executor, self.unit, self.prints = executor, unit, unit.prints
        self.library = build(unit, executor.flags)
        self.cache_bytes = self.library.cache_bytes()
        self.functions = {name: getattr(self.library, name) for name in unit.kernels}

    def launch(self, kernel: str, call: np.ndarray, count: int, work: int = 0) -> None:
        """Run ``kernel`` for [0, ``count``) on ``call``, and return when it has finished.

        ``work`` is the number of elements, which determines the number of threads.
        """
        if note(self, kernel, call, count, work):
            return
        # Takes less than half the time of call.ctypes. An iteration may have 600 launches.
        address = ctypes.byref(ctypes.c_char.from_buffer(call.data))
        function = self.functions[kernel]
        self._share(lambda begin, end: function(address, begin, end), kernel, count, work)

    def joined_unit(self) -> Unit:
        """Return the ``Unit`` that ``join`` launches, which is this one."""
        return self.unit

    def join(self, kernel: str, calls: np.ndarray, count: int, work: int = 0) -> Callable[[], None]:
        """Return a function that runs ``kernel`` for [0, ``count``) on each of ``calls`` (M,)."""
        function, members = getattr(self.library, f"{kernel}_of_members"), len(calls)
        kept = packed(kernel, calls, getattr(self.library, f"{kernel}_bytes")())
        address, each = ctypes.c_void_p(kept.ctypes.data), ctypes.c_int64(count)

        def call(begin: int, end: int) -> int:
            return function(address, each, ctypes.c_int64(begin), ctypes.c_int64(end))

        def share(kept: np.ndarray = kept) -> None:
            self._share(call, kernel, count * members, work * members)

        return share

    def _share(self, run: Callable[[int, int], int], kernel: str, count: int, work: int) -> None:
        """Divide [0, ``count``) among threads that call ``run`` on their range."""
        threads = 1 if work < SMALL_LAUNCH else min(self.executor.threads, count)
        if threads == 1:
            codes = [run(0, count)]
        else:
            edges = [count * i // threads for i in range(threads + 1)]
            futures = [_pool(threads - 1).submit(run, a, b) for a, b in pairwise(edges[1:])]
            codes = [run(0, edges[1]), *(f.result() for f in futures)]
        code = reduce(or_, codes)
        if code & FAULTY:
            fault = last_fault(self.library)
            assert fault is not None  # guaranteed by the bit FAULTY
            raise TeamFault(str(fault), "races") if fault.limit == RACE else KernelFault(str(fault))
        if code & UNEVEN:
            raise TeamFault(
                f"the threads of a team of {self.executor.team_threads} make different numbers of "
                "calls of team.sync(), any, sum, min or before",
                "syncs",
            )
        if code:
            raise DeviceError(
                f"{kernel}: this machine cannot create {self.executor.team_threads} threads for a "
                f"team. Use fewer"
            )

    @property
    def operations(self) -> int:
        """Number of float operations of this kernel so far, if the executor counts them."""
        return ctypes.c_uint64.in_dll(self.library, "operations").value


@lru_cache(maxsize=8)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="cupydrive")


if hasattr(os, "register_at_fork"):  # a pool's threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


def build(unit: Unit, flags: Sequence[str]) -> ctypes.CDLL:
    """Return the loaded library of ``unit``, from the cache or from the compiler."""
    command, identity = compiler()
    flags = (*FLAGS, *flags)
    key = "\0".join([unit.text, *command, identity, *flags, cpu_identity()])
    if key not in _loaded:
        path = cached_library(
            unit.name, key, lambda library: compile_unit(unit, command, flags, library)
        )
        try:
            _loaded[key] = ctypes.CDLL(str(path))
        except OSError as error:
            raise DeviceError(
                f"the library of {unit.name}, compiled by {shlex.join(command)!r}, cannot be "
                f"loaded: {error}"
            ) from None
    return _loaded[key]


@lru_cache(maxsize=1)
def cpu_identity() -> str:
    """Return the properties of the CPU that determine the code of -march=native.

    Machines that share a home folder may have different CPUs, which cannot run each other's code.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            wanted = ("model name", "flags", "Features", "CPU part")
            facts = sorted({line.strip() for line in lines if line.startswith(wanted)})
    except OSError:
        facts = [platform.processor()]
    return "\n".join([platform.machine(), platform.system(), *facts])


def processor_name() -> str:
    """Return the CPU's model."""
    named = [line for line in cpu_identity().splitlines() if line.startswith("model name")]
    return named[0].split(":", 1)[1].strip() if named else platform.machine()
