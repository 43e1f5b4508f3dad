"""Compiles programs side by side, and each only once however many threads and processes ask for it at the same time."""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cupydrive.codegen.source import Unit
from cupydrive.inputs.locks import lock
from cupydrive.protocols import Executor

WORKERS = 16  # at most: a compiler takes up to 300 MB
_begun: set[tuple[str, str]] = (
    set()
)  # what this process has begun to build: later it is in the cache, or its error comes to whoever builds it


@contextmanager
def alone(folder: Path, key: str) -> Iterator[None]:
    """Hold the lock of ``key`` (a string) in ``folder``: one thread of one process at a time.

    Whoever compiles takes it first and then looks into the cache, so that the second to come finds what the first has
    made. The system frees the lock of a process that dies. At most 256 lock files are made; they stay. On a file system without
    locks, as NFS may be, two may compile the same program: the second library replaces the first one, which is equal.
    """
    with ExitStack() as held:
        with suppress(OSError):
            (folder / "locks").mkdir(exist_ok=True)
            file = held.enter_context(open(folder / "locks" / hashlib.sha256(key.encode()).hexdigest()[:2], "wb"))
            lock(file.fileno(), wait=True)
        yield


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compilers() -> int:
    """Return how many compilers may run side by side."""
    return min(WORKERS, usable_cores())


def build_ahead(work: list[tuple[Executor, Unit]]) -> None:
    """Begin to build pairs ``(executor, unit)`` side by side, and return at once.

    Whoever builds one of them later waits for it and finds it in the cache. What cannot be built is an error only then.
    """
    asked = {(executor.name, unit.text): (executor, unit) for executor, unit in work}
    new = [asked[key] for key in asked.keys() - _begun]
    _begun.update((executor.name, unit.text) for executor, unit in new)
    if new:
        pool = ThreadPoolExecutor(compilers(), thread_name_prefix="cupydrive-build")
        for executor, unit in new:
            pool.submit(executor.build, unit)
        pool.shutdown(wait=False)
