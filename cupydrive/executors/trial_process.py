"""The other process of a trial: runs the launches that it reads from its standard input. Standard
library alone.

It says ``ready`` when the kernels are loaded, ``launch KERNEL`` before each launch, ``inside
FUNCTION ENVIRONMENT`` when a debug build gets a signal, ``fault WORDS`` for what a build has caught
itself, such as a division by 0, and ``done``. JSON is all that it reads; the library is one that
the caller has just compiled.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys

# limits of faults that are no index: ``kernels/drive/backend/cpu_faults.cuh``
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
                f"{place}: an integer is divided by 0, in environment {self.env}. Ask before, as "
                "in `n == 0 ? 0 : a / n`, for `%` too; a float divided by 0 is infinite or NaN, "
                "and no fault"
            )
        if self.limit == RACE:
            return (
                f"`{file}`: two members of a team write `{what}` between two calls of "
                f"team.sync(), in environment {self.env}; on a GPU they write at once, and one of "
                f"two additions is lost"
            )
        if self.limit == ELSEWHERE:
            return f"{place}: {what}, in environment {self.env}"
        limit = f"outside [0, {self.limit})" if self.limit >= 0 else "outside the array"
        return f"{place}: {what} index {self.index} is {limit}, in environment {self.env}"


def last_fault(library: ctypes.CDLL) -> Fault | None:
    """Return the ``Fault`` that a library has caught last, or None; it is forgotten then."""
    library.last_fault.restype = ctypes.POINTER(Fault)
    fault = library.last_fault().contents
    if not fault.line:
        return None
    kept = Fault.from_buffer_copy(fault)
    fault.line = 0
    return kept


def _main() -> int:
    """Run the plan; exit code 0 if all launches came back and no fault was caught."""
    import resource

    plan = json.load(sys.stdin)
    # a crash is expected here and leaves no file behind
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
        signal.setitimer(signal.ITIMER_PROF, plan["seconds"])  # of this process's own computing
        getattr(library, act["kernel"])(ctypes.byref(argument), 0, act["count"])
        if fault := last_fault(library):
            print("fault", fault, flush=True)
            return 1
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
