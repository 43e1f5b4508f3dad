"""Ctrl-C during native code that does not return, and SIGTERM handled like Ctrl-C."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from cupydrive.training.processes import MEETING, handled

PATIENCE_SECONDS = 3.0  # seconds that the main thread has to respond
STUCK = (
    "cupydrive: interrupted: native code has not returned for {:g} s (an endless loop in a "
    "kernel?). The process ends, and all saved files are kept\n"
)
INTERRUPTED = 130  # exit code after an interrupt
STOP = b"\0"  # not a signal number


@contextlib.contextmanager
def ended_if_stuck() -> Iterator[None]:
    """End the process if the main thread does not return from native code after a second SIGINT.

    The handling of SIGINT does not change. A thread only counts the signals that Python writes to
    its wake-up file descriptor. The context has no effect outside the main thread, and on Windows,
    where the wake-up descriptor must be a socket.
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
    """Handle the first SIGTERM like Ctrl-C, so that training keeps its result.

    Slurm and Kubernetes send SIGTERM before they kill a process. Later SIGTERMs are ignored, so
    that saving can finish. A process that ``--gpus`` has started is notified by its parent process,
    and keeps the default action for its own SIGTERM.
    """
    if MEETING in os.environ or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if not heard:
            heard.append(number)
            if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started by a shell with "&"
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)

    with handled(signal.SIGTERM, hear):
        yield


def _listen(reading: int) -> None:
    """Count SIGINTs until ``STOP``. From the second on, test whether the main thread responds."""
    pressed = 0
    while (number := os.read(reading, 1)) not in (STOP, b""):
        pressed += number[0] == signal.SIGINT
        if number[0] == signal.SIGINT and pressed > 1 and not answers(PATIENCE_SECONDS):
            # os.write takes no lock that the main thread may hold.
            os.write(2, STUCK.format(PATIENCE_SECONDS).encode())
            os._exit(INTERRUPTED)
    os.close(reading)


_asked: list["ctypes._FuncPointer"] = []  # callbacks that Python may still call


def answers(seconds: float) -> bool:
    """Return whether the main thread runs Python code within ``seconds``.

    Call it from another thread.
    """
    alive = threading.Event()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def answer(_: int | None) -> int:
        alive.set()
        return 0

    # Keep the callback alive until the process ends, because Python may call it late.
    _asked.append(answer)
    ctypes.pythonapi.Py_AddPendingCall(answer, None)
    return alive.wait(seconds)
