"""Compiles programs side by side, ahead of their use."""

import os
from concurrent.futures import ThreadPoolExecutor

from cupydrive.codegen.source import Unit
from cupydrive.protocols import Executor

WORKERS = 16  # at most: a compiler takes up to 300 MB
# What this process has begun to build: later it is in the cache, or its error comes to whoever
# builds it.
_begun: set[tuple[str, str]] = set()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compilers() -> int:
    """Return how many compilers may run side by side."""
    return min(WORKERS, usable_cores())


def build_ahead(work: list[tuple[Executor, Unit]]) -> None:
    """Begin to build pairs ``(executor, unit)`` side by side, and return at once.

    Whoever builds one of them later waits for it and finds it in the cache. What cannot be built is
    an error only then.
    """
    asked = {(executor.name, unit.text): (executor, unit) for executor, unit in work}
    new = [asked[key] for key in asked.keys() - _begun]
    _begun.update((executor.name, unit.text) for executor, unit in new)
    if new:
        pool = ThreadPoolExecutor(compilers(), thread_name_prefix="cupydrive-build")
        for executor, unit in new:
            pool.submit(executor.build, unit)
        pool.shutdown(wait=False)
