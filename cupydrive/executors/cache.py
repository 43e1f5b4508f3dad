"""The cache folder: compiled kernels, loaded only if they are whole, and what was measured on this
device.

A library runs in this process, so it must be what the compiler wrote. Its file name ends with a
SHA-256 over its key (kernel text, compiler, flags, CPU) and its content. A truncated, damaged,
renamed or foreign file has another digest and is compiled anew. That protects against damage.
Against people it is the folder that only its user may write.
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
    """Return $CUPYDRIVE_CACHE, otherwise the user's cache folder; a temporary folder if that cannot
    be written.

    Raises:
        DeviceError: If other users can write there, or the folder is another user's.
    """
    return _cache_folder(os.environ.get("CUPYDRIVE_CACHE", "").strip())


@lru_cache(maxsize=8)
def _cache_folder(named: str) -> Path:
    try:
        folder = Path(named or user_cache_dir("cupydrive")).expanduser().absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder is known
        temporary = Path(tempfile.mkdtemp(prefix="cupydrive-"))
        atexit.register(rmtree, temporary, ignore_errors=True)
        warnings.warn(
            f"the cache folder cannot be written ({error}); this process keeps its kernels in "
            f"{temporary}. Set CUPYDRIVE_CACHE to a folder that can be written",
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
    """Return the path of the whole library of a key: the one in the cache folder, or the one that
    ``build(path)`` writes.

    Threads and processes that ask for the same key at the same time build it once. Damaged
    libraries are removed.

    Args:
        name: Name of the unit.
        key: All that the library depends on.
        build: Writes the library to a path in a folder of its own, so that readers see all of it.

    Raises:
        DeviceError: If the folder cannot be written.
    """
    folder, start = cache_folder(), f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}-"
    with lock_of(folder, key):
        for path in [folder / entry for entry in os.listdir(folder) if entry.startswith(start)]:
            with suppress(OSError):  # another process has just removed it
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
                f"the cache folder {folder} cannot be written: {error.strerror}. Make room, or "
                "set CUPYDRIVE_CACHE to another folder"
            ) from None


def _digest(key: str, path: Path) -> str:
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + path.read_bytes()).hexdigest()


@contextmanager
def lock_of(folder: Path, key: str) -> Iterator[None]:
    """Hold the lock of ``key`` in ``folder``: one thread of one process at a time.

    The system frees the lock of a process that dies. At most 256 lock files are made, and they
    stay. On a file system without locks, as NFS may be, two may compile the same program: the
    second library replaces the first one, which is equal.
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
    """Return the file of a measurement. It changes with the device, the kernel's text and
    the size.
    """
    digest = hashlib.sha256("\0".join([device, text, str(size)]).encode()).hexdigest()[:32]
    return cache_folder() / f"{kind}-{digest}.json"


def read_measurement(path: Path) -> dict:
    """Return what ``keep_measurement`` wrote; an empty dictionary if there is none, or the file is
    damaged.
    """
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {}


def keep_measurement(path: Path, found: dict) -> None:
    """Write what was measured as JSON. If the disk is full, it is measured again next time."""
    with suppress(OSError):
        write_atomically(path, json.dumps(found).encode())
