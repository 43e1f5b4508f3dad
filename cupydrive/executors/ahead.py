"""Compile programs in parallel, ahead of their use."""

import os
from concurrent.futures import ThreadPoolExecutor

from cupydrive.codegen.source import Unit
from cupydrive.protocols import Executor

WORKERS = 16  # maximum number of compilers, each of which takes up to 300 MB
# Programs that this process has begun to build. They end up in the cache, or a later build raises
# their error.
_begun: set[tuple[str, str]] = set()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compilers() -> int:
    """Return the maximum number of compilers that run in parallel."""
    return min(WORKERS, usable_cores())


def build_ahead(work: list[tuple[Executor, Unit]]) -> None:
    """Start building pairs ``(executor, unit)`` in parallel, and return immediately.

    A later build of the same unit waits for it and takes it from the cache. Errors are raised only
    then.
    """
    asked = {(executor.name, unit.text): (executor, unit) for executor, unit in work}
    new = [asked[key] for key in asked.keys() - _begun]
    _begun.update((executor.name, unit.text) for executor, unit in new)
    if new:
        pool = ThreadPoolExecutor(compilers(), thread_name_prefix="cupydrive-build")
        for executor, unit in new:
            pool.submit(executor.build, unit)
        pool.shutdown(wait=False)
