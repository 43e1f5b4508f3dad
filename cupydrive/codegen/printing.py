"""What kernels print: ``env.print(format, values...)`` of one environment, read after each launch
and printed by Python.

So it shows in a notebook, where neither the C library's output nor a GPU's goes.
kernels/drive/print.cuh writes the lines.
"""

import re
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from cupydrive.protocols import Executor

HEADER = np.dtype([("env", "i4"), ("used", "i4"), ("lost", "i4")])  # of struct Printed
PRINT_BYTES = 65536  # of its text: PRINT_BYTES
FORMATS = {"f": "f", "i": "q", "u": "Q"}  # how `struct` reads a value of each type
# The length of a conversion of printf, such as ll, which Python does not know.
LENGTH = re.compile(r"%([-+ #0-9.]*)(?:hh|h|ll|l|z)(?=[diuoxX])")


class Printer:
    """The memory that one batch's kernels print to.

    Args:
        executor: Executor of the batch.
        name: Name of the environment.
    """

    def __init__(self, executor: Executor, name: str) -> None:
        self.executor, self.name = executor, name
        self.memory = executor.allocate((HEADER.itemsize + PRINT_BYTES,), np.uint8)
        self.choose(None)

    def choose(self, env: int | None) -> None:
        """Let environment ``env`` print, or none (None); unread lines are dropped."""
        self.env = env
        head = np.array([-1 if env is None else env, 0, 0], np.int32)
        self.executor.put(self.memory[: HEADER.itemsize], head.view(np.uint8))

    def show(self) -> None:
        """Print the lines since the last call; on a GPU this waits for the launches before it.

        While a CUDA graph is captured nothing can be read: its lines appear after the next launch
        outside of it.
        """
        if self.env is None or self.executor.capturing():
            return
        _, used, lost = self.executor.get(self.memory[: HEADER.itemsize]).view(np.int32)
        if not used and not lost:
            return
        text = self.executor.get(self.memory[HEADER.itemsize : HEADER.itemsize + used]).tobytes()
        for elapsed, line in lines(text):
            print(f"{self.name}[{self.env}], step {elapsed}: {line}")
        if lost:
            print(
                f"{self.name}[{self.env}]: {lost:,} more lines did not fit into {PRINT_BYTES:,} "
                "bytes; print less, or in fewer steps"
            )
        self.choose(self.env)


def lines(text: bytes) -> Iterator[tuple[int, str]]:
    """Yield pairs (elapsed, line) of the bytes that a kernel has written."""
    at = 0
    while at < len(text):
        elapsed, count = struct.unpack_from("<iB", text, at)
        end = text.index(b"\0", at + 5)
        form = text[at + 5 : end].decode(errors="replace")
        values = []
        for number in range(count):
            begin = end + 1 + 9 * number
            values.append(struct.unpack_from(f"<{FORMATS[chr(text[begin])]}", text, begin + 1)[0])
        at = end + 1 + 9 * count
        yield elapsed, formatted(form, values)


def formatted(form: str, values: Sequence[float]) -> str:
    """Return ``form`` filled in as printf would; if the values do not fit its conversions, they
    follow it.
    """
    try:
        return (LENGTH.sub(r"%\1", form) % tuple(values)).rstrip("\n")
    except (TypeError, ValueError, OverflowError):
        return " ".join([form, *map(str, values)])
