"""Launches that are written down instead of run: what ``joined.py`` makes launches of several runs
from.

Programs ask ``note`` before they launch, as a CUDA stream asks whether it is captured.
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
    """A program whose launches for several runs can be one."""

    unit: Unit

    def joined_unit(self) -> Unit:
        """Return the ``Unit`` of what ``join`` launches."""

    def join(self, kernel: str, calls: np.ndarray, count: int, work: int = 0) -> Callable[[], None]:
        """Return a function that launches ``kernel`` for each of ``calls`` (M,)."""


@dataclass(frozen=True)
class Launch:
    """One launch; the arguments are those of ``Program.launch``, the call a copy."""

    program: MemberProgram
    kernel: str
    call: np.ndarray
    count: int
    work: int


@dataclass(frozen=True)
class SideBySide:
    """Several lists of launches that a GPU may run at the same time."""

    lists: tuple


_noting: ContextVar[list | None] = ContextVar("noting", default=None)


@contextmanager
def written_down(noted: list) -> Iterator[None]:
    """Write launches into the list ``noted`` instead of running them, until this context ends."""
    before = _noting.set(noted)
    try:
        yield
    finally:
        _noting.reset(before)


def noting() -> bool:
    """Return whether launches are written down."""
    return _noting.get() is not None


def note(program: MemberProgram, kernel: str, call: np.ndarray, count: int, work: int) -> bool:
    """Write a launch down and return True; or return False where launches are run."""
    if (noted := _noting.get()) is None:
        return False
    noted.append(Launch(program, kernel, call.copy(), count, work))
    return True


def note_side_by_side(calls: list[Callable]) -> None:
    """Write down what each of ``calls`` launches, as lists that may run at the same time."""
    lists: tuple[list, ...] = tuple([] for _ in calls)
    for own, call in zip(lists, calls, strict=True):
        with written_down(own):
            call()
    if (noted := _noting.get()) is not None:
        noted.append(SideBySide(lists))


def packed(kernel: str, calls: np.ndarray, size: int) -> np.ndarray:
    """Return the arguments of several members as C reads them, (M, size) bytes: what Python has
    behind them is left out.

    Args:
        kernel: Name, for the message.
        calls: (M,) arguments.
        size: Bytes of the kernel's argument in C.
    """
    assert size <= calls.dtype.itemsize, (
        f"{kernel}: Python gives {calls.dtype.itemsize} bytes and C reads {size}"
    )
    return np.ascontiguousarray(calls.view(np.uint8).reshape(len(calls), -1)[:, :size])
