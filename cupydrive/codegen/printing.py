"""Output of kernels: ``env.print(format, values...)`` of one environment.

kernels/drive/print.cuh writes the lines into a buffer. Python reads and prints it after each
launch, so that it appears in a notebook, unlike the output of the C library or of a GPU.
"""

import re
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from cupydrive.protocols import Executor

HEADER = np.dtype([("env", "i4"), ("used", "i4"), ("lost", "i4")])  # start of struct Printed
PRINT_BYTES = 65536  # size of its text, PRINT_BYTES in C
FORMATS = {"f": "f", "i": "q", "u": "Q"}  # format characters of `struct` by type
# Length modifiers of printf, such as ll, which Python does not support.
LENGTH = re.compile(r"%([-+ #0-9.]*)(?:hh|h|ll|l|z)(?=[diuoxX])")


class Printer:
    """The output buffer of one batch's kernels.

    Args:
        executor: Executor of the batch.
        name: Name of the environment.
    """

    def __init__(self, executor: Executor, name: str) -> None:
        self.executor, self.name = executor, name
        self.memory = executor.allocate((HEADER.itemsize + PRINT_BYTES,), np.uint8)
        self.choose(None)

    def choose(self, env: int | None) -> None:
        """Select the environment that prints, or None. Unread lines are dropped."""
        self.env = env
        head = np.array([-1 if env is None else env, 0, 0], np.int32)
        self.executor.put(self.memory[: HEADER.itemsize], head.view(np.uint8))

    def show(self) -> None:
        """Print the lines since the last call. On a GPU this synchronizes with the device.

        During the capture of a CUDA graph nothing can be read. The lines appear after the next
        launch outside the graph.
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
                "bytes. Print less, or in fewer steps"
            )
        self.choose(self.env)


def lines(text: bytes) -> Iterator[tuple[int, str]]:
    """Parse the bytes that a kernel has written. Yield pairs (elapsed, line)."""
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
    """Format like printf. If the values do not fit the conversions, they are appended."""
    try:
        return (LENGTH.sub(r"%\1", form) % tuple(values)).rstrip("\n")
    except (TypeError, ValueError, OverflowError):
        return " ".join([form, *map(str, values)])
