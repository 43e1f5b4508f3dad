"""The separate process of a trial, which executes launches read from its standard input.

It uses only the standard library. It prints ``ready`` when the kernels are loaded, ``launch
KERNEL`` before each launch, ``inside FUNCTION ENVIRONMENT`` when a debug build receives a signal,
``fault WORDS`` when a build has detected an error, such as a division by 0, and ``done``. Its input
is JSON, and the library is one that the caller has just compiled.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys

# Special limits of other faults than an index: ``kernels/drive/backend/cpu_faults.cuh``.
DIVISION, RACE, ELSEWHERE = -2, -3, -4


class Fault(ctypes.Structure):
    """``struct Fault`` of ``kernels/drive/faults.cuh``."""

    _fields_ = (
        ("line", ctypes.c_int),
        ("env", ctypes.c_int),
        ("index", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("what", ctypes.c_char * 64),
        ("file", ctypes.c_char * 256),
    )

    def __str__(self) -> str:
        file, what = (text.decode(errors="replace") for text in (self.file, self.what))
        place = f"{file}:{self.line}"
        if self.limit == DIVISION:
            return (
                f"{place}: an integer is divided by 0, in environment {self.env}. Test the divisor "
                "of `/` and `%` first, as in `n == 0 ? 0 : a / n`. A float divided by 0 is "
                "infinite or NaN, which is allowed"
            )
        if self.limit == RACE:
            return (
                f"`{file}`: two threads of a team write `{what}` between two calls of "
                f"team.sync(), in environment {self.env}. On a GPU this is a data race, and one of "
                f"two additions may be lost"
            )
        if self.limit == ELSEWHERE:
            return f"{place}: {what}, in environment {self.env}"
        limit = f"outside [0, {self.limit})" if self.limit >= 0 else "outside the array"
        return f"{place}: {what} index {self.index} is {limit}, in environment {self.env}"


def last_fault(library: ctypes.CDLL) -> Fault | None:
    """Return the last ``Fault`` that a library has detected, or None, and clear it."""
    library.last_fault.restype = ctypes.POINTER(Fault)
    fault = library.last_fault().contents
    if not fault.line:
        return None
    kept = Fault.from_buffer_copy(fault)
    fault.line = 0
    return kept


def _main() -> int:
    """Execute the plan. The exit code is 0 if all launches returned without a fault."""
    import resource

    plan = json.load(sys.stdin)
    # A crash is expected here. Disable core dumps.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = ctypes.CDLL(plan["library"])
    if hasattr(library, "report_signals"):
        library.report_signals()
    blocks = [ctypes.create_string_buffer(size + 64) for size in plan["arrays"]]
    addresses = [-(-ctypes.addressof(block) // 64) * 64 for block in blocks]
    print("ready", flush=True)
    for act in plan["acts"]:
        if "put" in act:
            values = bytes.fromhex(act["bytes"])
            ctypes.memmove(addresses[act["put"]], values, len(values))
            continue
        print("launch", act["kernel"], flush=True)
        call = bytearray.fromhex(act["call"])
        for offset, array, at in act["pointers"]:
            call[offset : offset + 8] = (addresses[array] + at).to_bytes(8, sys.byteorder)
        argument = (ctypes.c_char * len(call)).from_buffer(call)
        signal.setitimer(signal.ITIMER_PROF, plan["seconds"])  # measures CPU time of this process
        getattr(library, act["kernel"])(ctypes.byref(argument), 0, act["count"])
        if fault := last_fault(library):
            print("fault", fault, flush=True)
            return 1
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
