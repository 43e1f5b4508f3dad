"""Tables of other people's repositories, which environments read: found here or fetched once, and always checked.

They are looked for in the folder that CUPYDRIVE_DATA names, in the user's cache, and then in their repository. None is shipped,
and none is used unless it has the size and SHA-256 that ``sources.toml`` gives.
"""

import hashlib
import os
import sys
import warnings
from functools import cache

from cupydrive.errors import CupydriveWarning, DataError, MissingDataError
from cupydrive.inputs.download import DownloadError, download
from cupydrive.inputs.files import read_file, write_atomically
from cupydrive.inputs.sources import Found, cache_folder, differs, listed, search, source


def files(name, progress=True):
    """Return the files of a data set; those that are not on this machine are fetched, once.

    Args:
        name: A data set: "catalysis", "rice_n" or "covid_economy".
        progress: Say on stderr what is fetched, with a bar on a terminal.

    Returns:
        A ``pathlib.Path`` for each name that a file has upstream, in the order of the names; each was just read whole and has
        the SHA-256 that it must have. Whoever opens them reads numbers and text alone: nothing in them may execute.

    Raises:
        MissingDataError: If a file is not on this machine and cannot be fetched; it says how to get it.
        DataError: If no data set has this name, or CUPYDRIVE_DATA holds a damaged file.
    """
    wanted = source(name)
    own, found, damaged = here(wanted)
    missing = [file for file in wanted.files if file.name not in found]
    if missing:
        found |= fetch(wanted, missing, lacking(wanted, own, damaged), progress)
    named = os.environ.get("CUPYDRIVE_DATA", "")
    if others := [file.name for file in wanted.files if named and file.name not in own.paths]:
        _say_once(
            f"{name}: CUPYDRIVE_DATA = {named} lacks {listed(others)}; taken from {cache_folder()}{_also(own.unread)}"
        )
    if damaged:
        warnings.warn(f"{listed(damaged)} in the cache was damaged and fetched again", CupydriveWarning, stacklevel=2)
    return {file.name: found[file.name] for file in wanted.files}


def here(wanted):
    """Return what of a data set is on this machine.

    Returns:
        What the search in CUPYDRIVE_DATA came upon; the path of each file that is there or in the cache, by name; the paths of
        damaged files in the cache.
    """
    named = os.environ.get("CUPYDRIVE_DATA", "")
    own = search(named, wanted.files) if named else Found()
    for file in wanted.files:
        if file.name in own.other:
            raise DataError(
                f"CUPYDRIVE_DATA = {named}: {differs(wanted, file, own.other[file.name])}, or unset CUPYDRIVE_DATA"
            )
    found, damaged = dict(own.paths), []
    for file in wanted.files:
        path = wanted.kept_at(file)
        if file.name in found:
            continue
        if _whole(file, path):
            found[file.name] = path
        elif os.path.lexists(path):
            damaged.append(path)
    return own, found, damaged


def lacking(wanted, own, damaged):
    """Return where the missing files of a data set are not, in words."""
    named = os.environ.get("CUPYDRIVE_DATA", "")
    there = f"in CUPYDRIVE_DATA = {named} or " if named else ""
    spoiled = f" ({listed(damaged)} there is damaged)" if damaged else ""
    return f"not {there}in the cache {wanted.kept_at(wanted.files[0]).parent}{spoiled}{_also(own.unread)}"


def fetch(wanted, missing, where, progress=True):
    """Fetch files of a data set into the cache, one after the other, and return their paths by name.

    A file has its name there only when it is whole and its SHA-256 is right, so that nothing that ends this process leaves a
    wrong one, and processes that fetch at once do not disturb each other.

    Args:
        wanted: The data set.
        missing: Its files to fetch.
        where: Where they are not, for the error.
        progress: Say what is fetched.
    """
    found, bar = {}, _Bar(wanted, missing) if progress else None
    try:
        for file in missing:
            address, path = wanted.address(file), wanted.kept_at(file)
            try:
                content = download(address, file.bytes, bar.update if bar else lambda count: None)
                if not file.fits(content):
                    was = hashlib.sha256(content).hexdigest()
                    raise DownloadError(f"what came has SHA-256 {was}, and it must have {file.sha256}")
                keep(path, content)
            except (DownloadError, DataError) as error:
                left = [one.name for one in missing if one.name not in found]
                raise MissingDataError(
                    f"{wanted.name} needs {listed(left)}, {where}, and fetching {address} failed: {error}. With a network: "
                    f"cupydrive data --fetch --name {wanted.name}. Without: get them from {wanted.page} elsewhere, put them "
                    "into a folder DIR, and then: cupydrive data DIR, or CUPYDRIVE_DATA=DIR"
                ) from None
            found[file.name] = path
    finally:
        if bar:
            bar.close()
    return found


def keep(path, content):
    """Write a file into the cache, whole or not at all."""
    try:
        cache_folder().parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # compiled kernels lie there, too
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        fix = "set CUPYDRIVE_CACHE to a folder that can be written"
        raise DataError(f"{path} cannot be written ({error.strerror or error}); {fix}") from None


def take(wanted, folder):
    """Copy the files of a data set that lie in a folder, or anywhere below it, into the cache.

    Returns:
        What the search came upon.
    """
    found = search(folder, wanted.files)
    for file in wanted.files:
        if file.name in found.paths:
            content = read_file(found.paths[file.name], file.bytes)
            if not file.fits(content):
                raise DataError(f"{found.paths[file.name]} was changed while it was read; try again")
            path = wanted.kept_at(file)
            if not _whole(file, path):
                keep(path, content)
    return found


def _whole(file, path):
    try:
        return file.lies_at(path)
    except OSError:  # not there; or a folder, a pipe, a link to nothing, a file of another user
        return False


def _also(unread):
    return f" (cannot be read: {listed(unread)})" if unread else ""


@cache
def _say_once(words):
    warnings.warn(words, CupydriveWarning, stacklevel=3)


class _Bar:
    """How many bytes have come: a bar on a terminal, one line elsewhere; nothing before the first of them."""

    def __init__(self, wanted, missing):
        self.words = f"fetching {wanted.name} from {wanted.address(missing[0]).split('/')[2]}"
        self.count, self.size, self.bar = len(missing), sum(file.bytes for file in missing), None

    def update(self, count):
        """Take note of ``count`` further bytes."""
        if self.bar is None:
            from tqdm import tqdm  # its import takes a while

            quiet = not sys.stderr.isatty()
            if quiet:
                print(f"{self.words}: {self.count} files, {self.size / 1e3:,.0f} kB", file=sys.stderr, flush=True)
            form = {"unit": "B", "unit_scale": True, "dynamic_ncols": True}
            self.bar = tqdm(total=self.size, desc=self.words, disable=quiet, **form)
        self.bar.update(count)

    def close(self):
        """Leave the last line."""
        if self.bar is not None:
            self.bar.close()
