"""Runs launches in a process of their own, so that a kernel that crashes or never ends takes no notebook with it.

Nothing of Python's world has to be taken along: launches are written down instead of run (``Trial`` stands for an executor),
as the bytes of their arguments and which of them point into which array. The other process (``trial_process.py``) loads the
same library, makes the arrays, and runs the launches; it needs Python's standard library alone and starts in some hundredths
of a second. No fork: the threads of torch and CUDA would be missing there.
"""

import json
import math
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

from cupydrive.errors import CupydriveWarning

PROCESS = Path(__file__).with_name("trial_process.py")
CPU_SECONDS = 10  # that one launch may compute: at most eight steps
WALL_SECONDS = 600  # a machine that is very busy
PATIENCE = 3.0  # seconds after which it is said that a kernel is being tried
MEANING = {
    "SIGSEGV": "it reads or writes memory that is not its own, calls itself without end, or has too little stack",
    "SIGBUS": "it reads or writes memory that is not there",
    "SIGFPE": "it divides the least integer by -1",
    "SIGILL": "it reaches a place that the compiler took for unreachable",
    "SIGABRT": "it was ended by a check of the compiler or of the system",
}
# What an author looks for, by what was said of the end; the last of them where nothing of it was said.
LOOK_FOR = {
    "SIGSEGV": "Look for an index that can leave its array, a recursion, and large arrays of functions that call each other",
    "SIGBUS": "Look for an index that can leave its array",
    "SIGFPE": "Look for an integer `/` or `%` of -2147483648 by -1, which no int can hold",
    "SIGILL": "Look for an index that can leave its array, and for a function that ends without `return`",
    "does not end": "Look for a loop whose condition may stay true: let it count, up to a limit",
    "": "Look for an index that can leave its array, a recursion, and a loop that may not end",
}
FUNCTIONS = {"env_reset": "`reset` or `observe`", "env_step": "`step`, `reset` or `observe`"}


class Trial:
    """An executor that writes down what a ``Batch`` launches; ``run`` does it in another process.

    Args:
        host: The ``HostExecutor`` that builds the kernels.
    """

    name = "cpu"
    xp = np
    tries = False

    def __init__(self, host):
        self.host, self.max_team, self.debug = host, host.max_team, host.debug
        self.arrays, self.acts, self.library = [], [], None
        self.said = ""  # what the other process wrote to its standard error: of a sanitizer, say

    def layout(self, spec, params, num_envs=1):
        """Return the layout of ``host``."""
        return self.host.layout(spec, params, num_envs)

    def load(self, spec, params, layout=None):
        """Return the program of ``host``, whose launches will be written down."""
        program = self.host.load(spec, params, layout)
        self.library, self.prints, self.cache_bytes = program.library._name, program.prints, program.cache_bytes
        return self

    def allocate(self, shape, dtype):
        """Return an array that the other process will have, too."""
        self.arrays.append(self.host.allocate(shape, dtype))
        return self.arrays[-1]

    def constant(self, array, digest):
        """Return a copy of a read-only array, which the other process will have, too."""
        copy = self.allocate(array.shape, array.dtype)
        self.put(copy, array)
        return copy

    def pointer(self, array):
        """Return the address of ``array``."""
        return self.host.pointer(array)

    def put(self, array, values):
        """Write ``values`` into ``array`` there and here."""
        array[...] = values
        number, _ = self._place(array.ctypes.data)
        self.acts.append({"put": number, "bytes": array.tobytes().hex()})

    def get(self, array):
        """Return a copy of ``array`` as it is here, where nothing has run."""
        return np.array(array)

    def capturing(self):
        """Return False: no graph is made."""
        return False

    def synchronise(self):
        """Return at once: nothing runs."""

    def free_bytes(self):
        """Return the bytes of memory that are free."""
        return self.host.free_bytes()

    def launch(self, kernel, call, count, work=0):
        """Write down a launch."""
        pointers = []
        for offset in _pointers(call.dtype):
            address = int.from_bytes(call.tobytes()[offset : offset + 8], sys.byteorder)
            if address:
                pointers.append((offset, *self._place(address)))
        self.acts.append({"kernel": kernel, "count": count, "call": call.tobytes().hex(), "pointers": pointers})

    def _place(self, address):
        """Return the number of the array in which ``address`` lies, and where in it."""
        for number, array in enumerate(self.arrays):
            begin = array.ctypes.data
            if begin <= address < begin + max(1, array.nbytes):
                return number, address - begin
        raise ValueError(f"no array of this trial has the address {address:#x}")

    def run(self, seconds=math.inf, waiting=None):
        """Run what was written down in another process; return what went wrong in words, an empty string if nothing did.

        Args:
            seconds: That one launch may compute; at most ``CPU_SECONDS``.
            waiting: Called once, without arguments, if it takes longer than ``PATIENCE``.
        """
        plan = {
            "library": self.library,
            "seconds": min(seconds, CPU_SECONDS),
            "arrays": [array.nbytes for array in self.arrays],
            "acts": self.acts,
        }
        command = [sys.executable or "", "-I", "-S", "-X", "utf8", str(PROCESS)]
        try:
            done = _finished(command, json.dumps(plan), waiting)
        except subprocess.TimeoutExpired:
            return f"does not end: it ran for {WALL_SECONDS} s"
        except OSError as error:
            return self._untried(error.strerror)
        said = done.stdout.splitlines()
        if done.returncode == 0 and said[-1:] == ["done"]:
            return ""
        if "ready" not in said:
            return self._untried(f"exit code {done.returncode}, {done.stderr.strip()[-500:]}")
        self.said = f"\nThe process said: {done.stderr.strip()[-2000:]}" if done.stderr.strip() else ""
        return _in_words(done.returncode, said)

    def _untried(self, reason):
        warnings.warn(
            f"the kernel in {self.library} could not be tried in a process of its own by {sys.executable!r} ({reason}); it "
            "runs in this one untried",
            CupydriveWarning,
            stacklevel=2,
        )
        return ""


def _finished(command, words, waiting):
    """Return the ``CompletedProcess`` of a command that reads ``words``; call ``waiting``, if given, after ``PATIENCE``."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, encoding="utf-8", errors="replace", **pipes) as process:
        try:
            try:
                out, err = process.communicate(words, timeout=min(PATIENCE, WALL_SECONDS))
            except subprocess.TimeoutExpired:
                if waiting is not None:
                    waiting()
                out, err = process.communicate(timeout=max(0.0, WALL_SECONDS - PATIENCE))
        except BaseException:  # interrupted, or too long: nothing is left running
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _in_words(code, said):
    """Return where a fault was caught, or what the kernel does in the end, from the exit code and what the process said."""
    faults = [line.removeprefix("fault ") for line in said if line.startswith("fault ")]
    if faults:
        return faults[0]
    launched = [line.removeprefix("launch ") for line in said if line.startswith("launch ")]
    inside = [line.removeprefix("inside ").split() for line in said if line.startswith("inside ")]
    where = FUNCTIONS.get(launched[-1], f"`{launched[-1]}`") if launched else "an unknown place"
    if inside and len(inside[-1]) == 2:
        where = f"`{inside[-1][0]}`, in environment {inside[-1][1]}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
    if name == "SIGPROF":
        return f"does not end in {where}: a loop ran for {CPU_SECONDS} s"
    return f"ends its process with {name} in {where}" + (f": {MEANING[name]}" if name in MEANING else "")


def look_for(wrong):
    """Return in a sentence what an author looks for in a kernel that ``wrong``, the words of ``Trial.run``, is said of."""
    return next(advice for what, advice in LOOK_FOR.items() if what in wrong)


def _pointers(dtype, begin=0):
    """Yield the offsets of all 8-byte words of a ``struct Batch``: they are its pointers."""
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        if kind.names:
            yield from _pointers(kind, begin + offset)
        elif kind == np.uint64:
            yield begin + offset
