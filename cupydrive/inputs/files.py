"""Atomic writes, and reads with a size limit.

All functions raise only ``OSError``, even for invalid paths. Callers convert it to their own
errors.
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
    """Convert ``path`` to a ``Path``. ``~`` is expanded.

    Raises:
        OSError: If the value is not a path.
    """
    try:
        return checked_path("file", "path", path)
    except ParameterError as error:
        raise OSError(errno.EINVAL, str(error)) from None


def from_home(path: str | os.PathLike) -> str:
    """Return a path as text, with ``~`` for the home folder, so that it omits the user's name."""
    try:
        return f"~/{Path(path).relative_to(Path.home())}"
    except (ValueError, RuntimeError):  # outside the home folder, or no home folder
        return str(path)


@contextmanager
def file_errors(kind: type[Exception], words: str) -> Iterator[None]:
    """Convert ``OSError`` to the error class ``kind``.

    The message consists of ``words`` and the text of the operating system.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{words}: {error.strerror or error}") from None


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    """Write bytes under a temporary name, sync and rename.

    Readers see either the old file or the complete new one.

    Raises:
        OSError: If the file cannot be written. An existing file is unchanged, and the temporary
            file is removed.
    """
    path = as_path(path)
    # Each thread and process has its own temporary file. Its name is short, because the target's
    # name may have the maximum length.
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
    # Windows cannot open folders, and writes renames without a sync.
    if os.name == "nt":
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # writes the rename to disk
    finally:
        os.close(folder)


def read_file(path: str | os.PathLike, most: int) -> bytes:
    """Return the bytes of a file.

    Args:
        path: The file.
        most: Maximum size in bytes.

    Raises:
        OSError: If the file cannot be read, or is larger.
    """
    with open(as_path(path), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return content
