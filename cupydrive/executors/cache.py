"""The folder of compiled kernels and of measured layouts: who must own it, and how a damaged library in it is found out.

A library is loaded into this process and runs, so it must be the one that the compiler wrote. Its file name ends with a
SHA-256 over its key (kernel text, compiler, flags, CPU) and its content: one file, which a rename puts there at once. A
truncated, damaged, renamed or foreign file has another digest and is compiled anew. That protects against damage; against
people it is the folder that must be its user's alone, since who may write there could also write the right name.
"""

import atexit
import hashlib
import os
import stat
import tempfile
import threading
import warnings
from functools import lru_cache
from pathlib import Path
from shutil import rmtree

from platformdirs import user_cache_dir

from cupydrive.errors import CupydriveWarning, DeviceError

_finding = threading.Lock()


def cache_folder():
    """Return the folder of compiled kernels: $CUPYDRIVE_CACHE, else the user's cache, else (not writable) a temporary one.

    Raises:
        DeviceError: If other users can write there, or the folder is another user's.
    """
    with _finding:  # one temporary folder and one warning for threads that begin together
        return _cache_folder(os.environ.get("CUPYDRIVE_CACHE", ""))


@lru_cache(maxsize=8)
def _cache_folder(named):
    if named and not named.strip():
        raise DeviceError(f"CUPYDRIVE_CACHE = {named!r} names no folder; unset it, or set it to a folder of your own")
    wanted = Path(named) if named else None
    try:
        wanted = Path(named or user_cache_dir("cupydrive")).expanduser().absolute()
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            pass
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no home folder is known"
        reason = "it is a link to nothing" if wanted and wanted.is_symlink() and not wanted.exists() else reason
        folder = f"the cache folder {wanted}" if wanted else "the cache folder"
        temporary = Path(tempfile.mkdtemp(prefix="cupydrive-"))
        atexit.register(rmtree, temporary, ignore_errors=True)
        warnings.warn(
            f"{folder} cannot be written ({reason}); this process keeps its kernels in {temporary}. "
            "Set CUPYDRIVE_CACHE to a folder that can be written",
            CupydriveWarning,
            stacklevel=4,
        )
        return temporary
    require_private(wanted)
    return wanted


def require_private(folder):
    """Raise ``DeviceError`` if another user owns ``folder`` or can write there: programs are loaded from it.

    Group write is allowed where the group is the user's own, as on systems that give each user one and a umask of 002.
    """
    if not hasattr(os, "geteuid"):
        return
    about = folder.stat()
    otherwise = "or set CUPYDRIVE_CACHE to a folder of your own"
    if about.st_uid != os.geteuid():
        raise DeviceError(
            f"the cache folder {folder} belongs to {_user(about.st_uid)} and this process runs as {_user(os.geteuid())}; "
            f"compiled kernels are not loaded from another user's folder. Fix: chown -R {_user(os.geteuid())} {folder}, "
            f"{otherwise}"
        )
    if about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and not _own_group(about.st_gid)):
        mode = f"{stat.S_IMODE(about.st_mode):03o}"
        raise DeviceError(
            f"the cache folder {folder} can be written by other users (mode {mode}); compiled kernels are not loaded from such "
            f"a folder. Fix: rm -r {folder}, chmod -R go-w {folder} if you know all that is in it, {otherwise}"
        )


def _user(uid):
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user without an entry
        return f"user {uid}"


def _own_group(gid):
    """Return whether a group is the private one of this process's user: it has the user's name and no other member."""
    import grp

    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == _user(os.geteuid()) and set(group.gr_mem) <= {group.gr_name}


def find_library(name, key):
    """Return the path of the whole library that ``keep_library`` kept for ``key``, or None; damaged ones are removed.

    Args:
        name: Name of the unit.
        key: Bytes that say all that the library depends on.
    """
    begin = _begin(name, key)
    with os.scandir(cache_folder()) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(begin) and entry.name.endswith(".so")]
    for path in found:
        try:
            own = not hasattr(os, "geteuid") or path.stat().st_uid == os.geteuid()
            if own and not path.is_symlink() and path.name == f"{begin}{_seal(key, path)}.so":
                return path
            path.unlink()
        except OSError:  # another process has just removed it, or it is no file: compiled anew
            continue
    return None


def keep_library(name, key, library):
    """Move a freshly compiled ``library``, which lies in the cache folder, to where ``find_library`` finds it; return that."""
    path = cache_folder() / f"{_begin(name, key)}{_seal(key, library)}.so"
    os.replace(library, path)
    return path


def _begin(name, key):
    return f"{name}-{hashlib.sha256(key).hexdigest()[:32]}-"


def _seal(key, path):
    return hashlib.sha256(hashlib.sha256(key).digest() + path.read_bytes()).hexdigest()
