"""Run launches in a separate process, so that a kernel that crashes or hangs ends only that one.

``RecordingExecutor`` records launches instead of executing them: the bytes of their arguments, and
the arrays that they point to. The other process (``trial_process.py``) loads the same library,
creates the arrays, and executes the launches. It needs only Python's standard library and starts in
some hundredths of a second. It is not forked, because the threads of torch and CUDA do not survive
a fork.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import CupydriveWarning
from cupydrive.executors.host import HostExecutor
from cupydrive.protocols import EnvParams
from cupydrive.spec import EnvSpec

PROCESS = Path(__file__).with_name("trial_process.py")
CPU_SECONDS = 10  # CPU time limit of one launch of at most eight steps
WALL_SECONDS = 600  # wall-clock limit of a launch, large enough for a very busy machine
# Prefixes of the descriptions of crashes and endless loops.
CRASH, NO_END = "ends", "does not terminate"
INDEX = "an index out of bounds"
LOOK_FOR = {  # likely causes by signal
    "SIGSEGV": f"{INDEX}, an infinite recursion, and large arrays in functions that call each "
    f"other",
    "SIGBUS": INDEX,
    "SIGFPE": "an integer `/` or `%` of -2147483648 by -1, which overflows an int",
    "SIGILL": f"{INDEX}, and a function that ends without `return`",
    "SIGPROF": "a loop whose condition may stay true, and limit its number of iterations",
}
KERNEL_FUNCTIONS = {"env_reset": "`reset` or `observe`", "env_step": "`step`, `reset` or `observe`"}


class RecordingExecutor(HostExecutor):
    """An executor that records the launches of a ``Batch``. ``run`` executes them in a process.

    Args:
        host: The ``HostExecutor`` whose builds are tried.

    Attributes:
        said: Standard error of the other process, for example from a sanitizer.
    """

    def __init__(self, host: HostExecutor) -> None:
        vars(self).update(vars(host))
        self.tries, self.said = False, ""
        self.arrays: list[np.ndarray] = []
        self.acts: list[dict] = []

    def load(
        self, spec: EnvSpec, params: EnvParams, layout: Layout | None = None
    ) -> RecordingExecutor:
        """Return the program, whose launches will be recorded."""
        program = self.build(assemble(spec, params, layout or self.layout(spec, params)))
        self.library, self.prints, self.cache_bytes = (
            program.library._name,
            program.prints,
            program.cache_bytes,
        )
        return self

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Allocate an array that the other process will create, too."""
        self.arrays.append(super().allocate(shape, dtype))
        return self.arrays[-1]

    def constant(self, array: np.ndarray, digest: str) -> np.ndarray:
        """Return a copy of a read-only array that the other process will create, too."""
        copy = self.allocate(array.shape, array.dtype)
        self.put(copy, array)
        return copy

    def put(self, array: np.ndarray, values: ArrayLike) -> None:
        """Write ``values`` into ``array`` in both processes."""
        array[...] = values
        number, _ = self._place(array.ctypes.data)
        self.acts.append({"put": number, "bytes": array.tobytes().hex()})

    def launch(self, kernel: str, call: np.ndarray, count: int, work: int = 0) -> None:
        """Record a launch."""
        pointers = []
        for offset in _pointers(call.dtype):
            address = int.from_bytes(call.tobytes()[offset : offset + 8], sys.byteorder)
            if address:
                pointers.append((offset, *self._place(address)))
        self.acts.append(
            {"kernel": kernel, "count": count, "call": call.tobytes().hex(), "pointers": pointers}
        )

    def _place(self, address: int) -> tuple[int, int]:
        """Return the index of the array that contains ``address``, and the offset in it."""
        for number, array in enumerate(self.arrays):
            begin = array.ctypes.data
            if begin <= address < begin + max(1, array.nbytes):
                return number, address - begin
        raise ValueError(f"no array of this trial has the address {address:#x}")

    def run(self, seconds: float = math.inf) -> str:
        """Execute the recorded launches in another process.

        Args:
            seconds: CPU time limit of one launch, at most ``CPU_SECONDS``.

        Returns:
            A description of the failure, or an empty string.
        """
        plan = {
            "library": self.library,
            "seconds": min(seconds, CPU_SECONDS),
            "arrays": [array.nbytes for array in self.arrays],
            "acts": self.acts,
        }
        command = [sys.executable or "", "-I", "-S", "-X", "utf8", str(PROCESS)]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(plan),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=WALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"{NO_END}: it ran for {WALL_SECONDS} s"
        except OSError as error:
            return self._untried(str(error))
        said = done.stdout.splitlines()
        if done.returncode == 0 and said[-1:] == ["done"]:
            return ""
        if "ready" not in said:
            return self._untried(f"exit code {done.returncode}, {done.stderr.strip()[-500:]}")
        self.said = f"\nIts output: {done.stderr.strip()[-2000:]}" if done.stderr.strip() else ""
        return _describe(done.returncode, said)

    def _untried(self, reason: str) -> str:
        warnings.warn(
            f"the kernel in {self.library} could not be tried in a separate process by "
            f"{sys.executable!r} ({reason}). It runs in this process without a trial",
            CupydriveWarning,
            stacklevel=2,
        )
        return ""


def _describe(code: int, said: list[str]) -> str:
    """Describe a fault or a crash, given the exit code and the output of the process."""
    faults, launched, inside = (
        [line.removeprefix(f"{kind} ") for line in said if line.startswith(f"{kind} ")]
        for kind in ("fault", "launch", "inside")
    )
    if faults:
        return faults[0]
    where = (
        KERNEL_FUNCTIONS.get(launched[-1], f"`{launched[-1]}`") if launched else "an unknown place"
    )
    if inside and len(found := inside[-1].split()) == 2:
        where = f"`{found[0]}`, in environment {found[1]}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
    how = f"{CRASH} its process with {name} in {where}"
    if name == "SIGPROF":
        how = f"{NO_END} in {where}: a loop ran for {CPU_SECONDS} s"
    return f"{how}. Look for {LOOK_FOR[name]}" if name in LOOK_FOR else how


def _pointers(dtype: np.dtype, begin: int = 0) -> Iterator[int]:
    """Yield the offsets of all 8-byte words of a ``struct Batch``, which are its pointers."""
    for name in dtype.names or ():
        kind, offset = dtype[name], dtype.fields[name][1]  # type: ignore[index]
        if kind.names:
            yield from _pointers(kind, begin + offset)
        elif kind == np.uint64:
            yield begin + offset
