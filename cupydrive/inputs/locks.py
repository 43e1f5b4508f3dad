"""Locks on open files, on all platforms. The system releases them when a process dies."""

import os
import time

LOCKED_BYTE = (
    2**40
    # The locked byte on Windows. It is far behind the file's content, because other processes
    # cannot read locked bytes.
)
LOCK_POLL = 0.05  # seconds between attempts on Windows, which has no blocking wait


def lock(descriptor: int, wait: bool) -> None:
    """Lock an open file until it is closed.

    Args:
        descriptor: File descriptor, open for writing.
        wait: Whether to wait until another process releases the lock.

    Raises:
        BlockingIOError: If another process has locked it, and ``wait`` is false.
        OSError: If the file system or the machine does not support locks.
    """
    if os.name != "nt":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    import msvcrt

    while True:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return
        except PermissionError:
            if not wait:
                raise BlockingIOError(f"file {descriptor} is locked by another process") from None
            time.sleep(LOCK_POLL)
