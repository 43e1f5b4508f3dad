"""Recording of launches, which ``joined.py`` combines to joint launches of several runs.

Programs call ``note`` before they launch, similar to the capture of a CUDA stream.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cupydrive.codegen.source import Unit
from cupydrive.protocols import Program


class MemberProgram(Program, Protocol):
    """A program that supports joint launches for several runs."""

    unit: Unit

    def joined_unit(self) -> Unit:
        """Return the ``Unit`` that ``join`` launches."""

    def join(self, kernel: str, calls: np.ndarray, count: int, work: int = 0) -> Callable[[], None]:
        """Return a function that launches ``kernel`` for each of ``calls`` (M,)."""


@dataclass(frozen=True)
class Launch:
    """One recorded launch, with the arguments of ``Program.launch`` and a copy of the call."""

    program: MemberProgram
    kernel: str
    call: np.ndarray
    count: int
    work: int


@dataclass(frozen=True)
class SideBySide:
    """Several lists of launches that a GPU may run concurrently."""

    lists: tuple


_noting: ContextVar[list | None] = ContextVar("noting", default=None)


@contextmanager
def written_down(noted: list) -> Iterator[None]:
    """Record launches in the list ``noted`` instead of executing them, until the context ends."""
    before = _noting.set(noted)
    try:
        yield
    finally:
        _noting.reset(before)


def noting() -> bool:
    """Return whether launches are recorded."""
    return _noting.get() is not None


def note(program: MemberProgram, kernel: str, call: np.ndarray, count: int, work: int) -> bool:
    """Record a launch and return True, or return False if launches are executed."""
    if (noted := _noting.get()) is None:
        return False
    noted.append(Launch(program, kernel, call.copy(), count, work))
    return True


def note_side_by_side(calls: list[Callable]) -> None:
    """Record the launches of each of ``calls`` as lists that may run concurrently."""
    lists: tuple[list, ...] = tuple([] for _ in calls)
    for own, call in zip(lists, calls, strict=True):
        with written_down(own):
            call()
    if (noted := _noting.get()) is not None:
        noted.append(SideBySide(lists))


def packed(kernel: str, calls: np.ndarray, size: int) -> np.ndarray:
    """Return the arguments of several members in C's layout, (M, size) bytes.

    Trailing bytes of the Python struct are dropped.

    Args:
        kernel: Name, for the message.
        calls: (M,) arguments.
        size: Bytes of the kernel's argument in C.
    """
    assert size <= calls.dtype.itemsize, (
        f"{kernel}: Python passes {calls.dtype.itemsize} bytes and C reads {size}"
    )
    return np.ascontiguousarray(calls.view(np.uint8).reshape(len(calls), -1)[:, :size])
