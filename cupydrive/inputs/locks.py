"""Locks on open files, on Windows too; the system frees those of a process that dies, however it
does.
"""

import os
import time

LOCKED_BYTE = (
    2**40
    # byte that is locked on Windows, where nobody else may read what is locked: far behind the
    # file's content
)
LOCK_POLL = 0.05  # seconds between tries on Windows, which does not wait as long as it takes


def lock(descriptor: int, wait: bool) -> None:
    """Lock an open file until it is closed.

    Args:
        descriptor: Of a file that is open for writing.
        wait: Until another process has freed it.

    Raises:
        BlockingIOError: If another process has locked it, and ``wait`` is false.
        OSError: If the file system or the machine has no locks.
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
