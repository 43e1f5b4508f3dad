"""The cache folder, with compiled kernels and measurements of this device.

A library is executed in this process, so its integrity matters. Its file name ends with a SHA-256
of its key (kernel text, compiler, flags, CPU) and its content. A truncated, damaged, renamed or
foreign file has another digest and is recompiled. The digest protects against damage. The
permissions of the folder protect against other users.
"""

import atexit
import hashlib
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from shutil import rmtree

from platformdirs import user_cache_dir

from cupydrive.errors import CupydriveWarning, DeviceError
from cupydrive.inputs.files import write_atomically
from cupydrive.inputs.locks import lock


def cache_folder() -> Path:
    """Return $CUPYDRIVE_CACHE or the user's cache folder, or a temporary folder if it is read-only.

    Raises:
        DeviceError: If other users can write to the folder, or it belongs to another user.
    """
    return _cache_folder(os.environ.get("CUPYDRIVE_CACHE", "").strip())


@lru_cache(maxsize=8)
def _cache_folder(named: str) -> Path:
    try:
        folder = Path(named or user_cache_dir("cupydrive")).expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:  # RuntimeError: unknown home folder
        temporary = Path(tempfile.mkdtemp(prefix="cupydrive-"))
        atexit.register(rmtree, temporary, ignore_errors=True)
        warnings.warn(
            f"the cache folder cannot be written ({error}). This process keeps its kernels in "
            f"{temporary}. Set CUPYDRIVE_CACHE to a writable folder",
            CupydriveWarning,
            stacklevel=4,
        )
        return temporary
    about = folder.stat()
    if hasattr(os, "geteuid") and (
        about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise DeviceError(
            f"the cache folder {folder} can be written by other users: got owner {about.st_uid} "
            f"and mode {stat.S_IMODE(about.st_mode):03o}, expected owner {os.geteuid()} and no "
            "write permission of others. Use chmod go-w, or set CUPYDRIVE_CACHE to another folder"
        )
    return folder


# ---- libraries -----------------------------------------------------------------------------------


def cached_library(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the path of the library of a key, from the cache folder or built by ``build(path)``.

    Threads and processes that request the same key concurrently build it once. Damaged libraries
    are removed.

    Args:
        name: Name of the unit.
        key: Text of all inputs that the library depends on.
        build: Function that writes the library to a path. The path is in a temporary folder, so
            that readers never see an incomplete file.

    Raises:
        DeviceError: If the folder cannot be written.
    """
    folder, start = cache_folder(), f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}-"
    with lock_of(folder, key):
        for path in [folder / entry for entry in os.listdir(folder) if entry.startswith(start)]:
            with suppress(OSError):  # another process may have removed it
                if path.name == f"{start}{_digest(key, path)}.so":
                    return path
                path.unlink()
        try:
            with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as made:
                library = Path(made, "unit.so")
                build(library)
                path = folder / f"{start}{_digest(key, library)}.so"
                os.replace(library, path)
                return path
        except OSError as error:  # a full disk
            raise DeviceError(
                f"the cache folder {folder} cannot be written: {error.strerror}. Free disk space, "
                "or set CUPYDRIVE_CACHE to another folder"
            ) from None


def _digest(key: str, path: Path) -> str:
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + path.read_bytes()).hexdigest()


@contextmanager
def lock_of(folder: Path, key: str) -> Iterator[None]:
    """Hold the lock of ``key`` in ``folder``: one thread of one process at a time.

    The system releases the lock of a process that dies. At most 256 lock files are created, and
    they are never deleted. On a file system without locks, such as some NFS mounts, two processes
    may compile the same program. The second library then replaces an equal one.
    """
    with ExitStack() as held:
        with suppress(OSError):
            (folder / "locks").mkdir(exist_ok=True)
            file = held.enter_context(
                open(folder / "locks" / hashlib.sha256(key.encode()).hexdigest()[:2], "wb")
            )
            lock(file.fileno(), wait=True)
        yield


# ---- measurements --------------------------------------------------------------------------------


def measurement_path(kind: str, device: str, text: str, size: int) -> Path:
    """Return the file of a measurement of a device, a kernel's text and a size."""
    digest = hashlib.sha256("\0".join([device, text, str(size)]).encode()).hexdigest()[:32]
    return cache_folder() / f"{kind}-{digest}.json"


def read_measurement(path: Path) -> dict:
    """Read a measurement. The result is empty if the file is missing or damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {}


def keep_measurement(path: Path, found: dict) -> None:
    """Write a measurement as JSON. Disk errors are ignored, and it is measured again next time."""
    with suppress(OSError):
        write_atomically(path, json.dumps(found).encode())
