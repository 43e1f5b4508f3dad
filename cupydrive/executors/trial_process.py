"""The other process of a trial: runs the launches that it reads from its standard input. Standard library alone.

It says ``ready`` when the kernels are loaded, ``launch KERNEL`` before each launch, ``inside FUNCTION ENVIRONMENT`` when a
debug build gets a signal, ``fault WORDS`` for a wild index that a debug build has caught, and ``done``. JSON is all that
it reads; the library is one that the caller has just compiled.
"""

import ctypes
import json
import signal
import sys


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

    def __str__(self):
        limit = f"outside [0, {self.limit})" if self.limit >= 0 else "outside the array"
        place = f"{self.file.decode()}:{self.line}"
        return f"{place}: {self.what.decode()} index {self.index} is {limit}, in environment {self.env}"


def last_fault(library):
    """Return the ``Fault`` that a debug build has caught last, or None; it is forgotten then."""
    library.last_fault.restype = ctypes.POINTER(Fault)
    fault = library.last_fault().contents
    if not fault.line:
        return None
    kept = Fault.from_buffer_copy(fault)
    fault.line = 0
    return kept


def main():
    """Run the plan; exit code 0 if all launches came back and no fault was caught."""
    import resource

    plan = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected here and leaves no file behind
    library = ctypes.CDLL(plan["library"])
    debug = hasattr(library, "last_fault")
    if debug:
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
        if debug and (fault := last_fault(library)):
            print("fault", fault, flush=True)
            return 1
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
