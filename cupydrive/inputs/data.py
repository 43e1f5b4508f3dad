"""Tables of other people's repositories, which environments read: found on this machine, and checked by size and SHA-256.

``sources.toml`` names the files. None is shipped, and none is used unless its bytes are those that upstream has.
"""

import hashlib
import os
import stat
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cupydrive.errors import MissingDataError
from cupydrive.inputs.arguments import checked_choice
from cupydrive.inputs.files import read_file


@dataclass(frozen=True)
class File:
    """One file of upstream: its name there, its size in bytes, its SHA-256 in hexadecimal digits, and its address."""

    name: str
    bytes: int
    sha256: str
    address: str

    def fits(self, content):
        """Return whether ``content`` are this file's bytes."""
        return len(content) == self.bytes and hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class Source:
    """One data set: where it comes from, whose it is, and its files."""

    name: str
    about: str
    repository: str
    commit: str
    licence: str
    credit: str
    files: tuple[File, ...]


@cache
def sources():
    """Return all data sets by name."""
    found = {}
    for name, about in tomllib.loads(Path(__file__).with_name("sources.toml").read_text()).items():
        base = f"https://raw.githubusercontent.com/{about['repository']}/{about['commit']}/{about.pop('folder')}"
        listed = [File(file, address=f"{base}/{file}", **facts) for file, facts in about.pop("files").items()]
        found[name] = Source(name, files=tuple(listed), **about)
    return found


def files(name, progress=True):
    """Return the files of a data set.

    Args:
        name: A data set: "catalysis", "rice_n" or "covid_economy".
        progress: Show what is fetched.

    Returns:
        A ``pathlib.Path`` for each name that a file has upstream, in the order of the names; each file was just read whole and
        has the SHA-256 that it must have.

    Raises:
        MissingDataError: If a file is not on this machine.
    """
    source = sources()[checked_choice("data", "name", name, list(sources()))]
    folder = os.environ.get("CUPYDRIVE_DATA", "")
    found = search(folder, source.files) if folder else {}
    for file in source.files:
        if file.name not in found:
            raise MissingDataError(
                f"{name} needs {file.name}, which is not in {folder or 'any folder'}; get it from {file.address} and set "
                "CUPYDRIVE_DATA=folder to the folder that holds it"
            )
    return {file.name: found[file.name] for file in source.files}


def search(folder, wanted):
    """Return the path of each file that lies in ``folder`` or anywhere below it, by name, as far as there are any.

    Folders that cannot be read are left out, links are followed, and no folder is read twice.
    """
    open_, seen, found, level = {file.name: file for file in wanted}, set(), {}, [Path(folder).expanduser().absolute()]
    while level and open_:
        below = []
        for place in level:
            try:
                about = place.stat()
                if (about.st_dev, about.st_ino) in seen:
                    continue
                seen.add((about.st_dev, about.st_ino))
                entries = sorted(place.iterdir())
            except OSError:
                continue
            for path in entries:
                try:
                    if stat.S_ISDIR(path.stat().st_mode):
                        below.append(path)
                    elif path.name in open_ and open_[path.name].fits(read_file(path, open_[path.name].bytes)):
                        found[path.name] = path
                        del open_[path.name]
                except OSError:
                    continue
        level = below
    return found
