"""Ctrl-C where it cannot be heard, as in a kernel that does not end; and what ends a process from
outside, heard as Ctrl-C.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from cupydrive.training.processes import MEETING, handled

PATIENCE_SECONDS = 3.0  # that the main thread has for an answer
STUCK = (
    "cupydrive: interrupted: what runs has not come back for {:g} s (a kernel's loop without an "
    "end?); this process ends, what was saved before is kept\n"
)
INTERRUPTED = 130  # the exit code
STOP = b"\0"  # no signal has this number


@contextlib.contextmanager
def ended_if_stuck() -> Iterator[None]:
    """End the process at the second SIGINT, or a later one, after which the main thread does not
    come back from native code.

    What else SIGINT does stays as it is: here it is only counted, by a thread that Python tells of
    every signal. Nothing is done outside of the main thread, and on Windows, where only sockets can
    be told.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=_listen, args=(reading,), name="interrupts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        os.write(writing, STOP)
        os.close(writing)


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Take the first SIGTERM, as Slurm and Kubernetes send it before they kill, for Ctrl-C:
    training keeps its result then.

    Later ones change nothing: whoever sends them kills in the end, and what is being saved is saved
    meanwhile. A process that ``--gpus`` has started hears of it from the one that started it, and
    ends by a SIGTERM of its own.
    """
    if MEETING in os.environ or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if not heard:
            heard.append(number)
            signal.raise_signal(signal.SIGINT)

    with handled(signal.SIGTERM, hear):
        yield


def _listen(reading: int) -> None:
    """Count SIGINTs until ``STOP``, and ask for a sign of life from the second on."""
    pressed = 0
    while (number := os.read(reading, 1)) not in (STOP, b""):
        pressed += number[0] == signal.SIGINT
        if number[0] == signal.SIGINT and pressed > 1 and not answers(PATIENCE_SECONDS):
            # no lock that the main thread may hold
            os.write(2, STUCK.format(PATIENCE_SECONDS).encode())
            os._exit(INTERRUPTED)
    os.close(reading)


_asked: list["ctypes._FuncPointer"] = []  # callbacks that Python may still call


def answers(seconds: float) -> bool:
    """Return whether the main thread runs Python code within ``seconds``; for other threads."""
    alive = threading.Event()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def answer(_: int | None) -> int:
        alive.set()
        return 0

    # until the process ends: it may be called late, and one is made for a Ctrl-C only
    _asked.append(answer)
    ctypes.pythonapi.Py_AddPendingCall(answer, None)
    return alive.wait(seconds)
