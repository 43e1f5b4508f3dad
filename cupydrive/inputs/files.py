"""Files: written whole or not at all, and read up to a size.

All functions raise ``OSError`` alone, also for paths that no file can have; callers turn it into an
error of their own.
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_path


def as_path(path: str | os.PathLike) -> Path:
    """Return ``path`` as a ``Path``; ``~`` is expanded.

    Raises:
        OSError: If it is no path, or holds a character that no file name can hold.
    """
    try:
        return checked_path("file", "path", path)
    except ParameterError as error:
        raise OSError(errno.EINVAL, str(error)) from None


def from_home(path: str | os.PathLike) -> str:
    """Return a path as text, from the home folder on where it lies there: shorter, and shown
    elsewhere it names nobody.
    """
    try:
        return f"~/{Path(path).relative_to(Path.home())}"
    except (ValueError, RuntimeError):  # it lies elsewhere; there is no home folder
        return str(path)


@contextmanager
def file_errors(kind: type[Exception], words: str) -> Iterator[None]:
    """Turn ``OSError`` into ``kind``, an error of this package, with ``words`` and what the
    operating system says.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{words}: {error.strerror or error}") from None


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Write bytes under a temporary name, sync and rename: readers see the old file or the whole
    new one.

    Raises:
        OSError: If it cannot be written; what was there stays, and nothing is left beside it.
    """
    path = as_path(path)
    # Two threads or processes that write the same file each have a temporary file of their own. Its
    # name is short, since that of the file may be as long as names can be.
    if not path.name:
        raise OSError(errno.EISDIR, "it is a folder")
    part = path.with_name(f".{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    # whose folders cannot be opened, and whose renames are written by themselves
    if os.name == "nt":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself
    finally:
        os.close(folder)


def read_file(path: str | os.PathLike, most: int) -> bytes:
    """Return the bytes of a file.

    Args:
        path: The file.
        most: Bytes that it may have.

    Raises:
        OSError: If it cannot be read, or is larger.
    """
    with open(as_path(path), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return content
