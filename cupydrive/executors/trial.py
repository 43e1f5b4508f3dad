"""Runs launches in a process of their own, so that a kernel that crashes or never ends takes no
notebook with it.

``RecordingExecutor`` writes launches down instead of running them: the bytes of their arguments,
and which of them point into which array. The other process (``trial_process.py``) loads the same
library, makes the arrays, and runs the launches. It needs only Python's standard library and starts
in some hundredths of a second. No fork: the threads of torch and CUDA would be missing there.
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
CPU_SECONDS = 10  # that one launch may compute: at most eight steps
WALL_SECONDS = 600  # a machine that is very busy
INDEX = "an index that can leave its array"
LOOK_FOR = {  # by signal
    "SIGSEGV": f"{INDEX}, a recursion without end, and large arrays of functions that call each "
    f"other",
    "SIGBUS": INDEX,
    "SIGFPE": "an integer `/` or `%` of -2147483648 by -1, which no int can hold",
    "SIGILL": f"{INDEX}, and a function that ends without `return`",
    "SIGPROF": "a loop whose condition may stay true: let it count, up to a limit",
}
KERNEL_FUNCTIONS = {"env_reset": "`reset` or `observe`", "env_step": "`step`, `reset` or `observe`"}


class RecordingExecutor(HostExecutor):
    """An executor that writes down what a ``Batch`` launches; ``run`` does it in another process.

    Args:
        host: The ``HostExecutor`` whose builds are tried.

    Attributes:
        said: What the other process wrote to its standard error: of a sanitizer, say.
    """

    def __init__(self, host: HostExecutor) -> None:
        vars(self).update(vars(host))
        self.tries, self.said = False, ""
        self.arrays: list[np.ndarray] = []
        self.acts: list[dict] = []

    def load(
        self, spec: EnvSpec, params: EnvParams, layout: Layout | None = None
    ) -> RecordingExecutor:
        """Return the program, whose launches will be written down."""
        program = self.build(assemble(spec, params, layout or self.layout(spec, params)))
        self.library, self.prints, self.cache_bytes = (
            program.library._name,
            program.prints,
            program.cache_bytes,
        )
        return self

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """Return an array that the other process will have, too."""
        self.arrays.append(super().allocate(shape, dtype))
        return self.arrays[-1]

    def constant(self, array: np.ndarray, digest: str) -> np.ndarray:
        """Return a copy of a read-only array, which the other process will have, too."""
        copy = self.allocate(array.shape, array.dtype)
        self.put(copy, array)
        return copy

    def put(self, array: np.ndarray, values: ArrayLike) -> None:
        """Write ``values`` into ``array`` there and here."""
        array[...] = values
        number, _ = self._place(array.ctypes.data)
        self.acts.append({"put": number, "bytes": array.tobytes().hex()})

    def launch(self, kernel: str, call: np.ndarray, count: int, work: int = 0) -> None:
        """Write down a launch."""
        pointers = []
        for offset in _pointers(call.dtype):
            address = int.from_bytes(call.tobytes()[offset : offset + 8], sys.byteorder)
            if address:
                pointers.append((offset, *self._place(address)))
        self.acts.append(
            {"kernel": kernel, "count": count, "call": call.tobytes().hex(), "pointers": pointers}
        )

    def _place(self, address: int) -> tuple[int, int]:
        """Return the number of the array in which ``address`` lies, and where in it."""
        for number, array in enumerate(self.arrays):
            begin = array.ctypes.data
            if begin <= address < begin + max(1, array.nbytes):
                return number, address - begin
        raise ValueError(f"no array of this trial has the address {address:#x}")

    def run(self, seconds: float = math.inf) -> str:
        """Run what was written down in another process; return what went wrong in words, an empty
        string if nothing did.

        Args:
            seconds: That one launch may compute; at most ``CPU_SECONDS``.
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
            return f"does not end: it ran for {WALL_SECONDS} s"
        except OSError as error:
            return self._untried(str(error))
        said = done.stdout.splitlines()
        if done.returncode == 0 and said[-1:] == ["done"]:
            return ""
        if "ready" not in said:
            return self._untried(f"exit code {done.returncode}, {done.stderr.strip()[-500:]}")
        self.said = (
            f"\nThe process said: {done.stderr.strip()[-2000:]}" if done.stderr.strip() else ""
        )
        return _describe(done.returncode, said)

    def _untried(self, reason: str) -> str:
        warnings.warn(
            f"the kernel in {self.library} could not be tried in a process of its own by "
            f"{sys.executable!r} ({reason}); it runs in this one untried",
            CupydriveWarning,
            stacklevel=2,
        )
        return ""


def _describe(code: int, said: list[str]) -> str:
    """Return where a fault was caught, or how the kernel ends its process, from the exit code and
    what the process said.
    """
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
    how = f"ends its process with {name} in {where}"
    if name == "SIGPROF":
        how = f"does not end in {where}: a loop ran for {CPU_SECONDS} s"
    return f"{how}. Look for {LOOK_FOR[name]}" if name in LOOK_FOR else how


def _pointers(dtype: np.dtype, begin: int = 0) -> Iterator[int]:
    """Yield the offsets of all 8-byte words of a ``struct Batch``: they are its pointers."""
    for name in dtype.names or ():
        kind, offset = dtype[name], dtype.fields[name][1]  # type: ignore[index]
        if kind.names:
            yield from _pointers(kind, begin + offset)
        elif kind == np.uint64:
            yield begin + offset
