"""Tables of other people's repositories: what ``sources.toml`` says of them, and how they are found in a folder."""

import hashlib
import os
import tempfile
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from platformdirs import user_cache_dir

from cupydrive.errors import DataError
from cupydrive.inputs.arguments import checked_choice, shown
from cupydrive.inputs.files import open_file

UPSTREAM = "https://raw.githubusercontent.com"
SHOWN = 3  # names of files in one message; others are counted


@dataclass(frozen=True)
class File:
    """One file of upstream.

    Attributes:
        name: Its name there.
        bytes: Its size.
        sha256: Of its content, as hexadecimal digits.
    """

    name: str
    bytes: int
    sha256: str

    def fits(self, content):
        """Return whether ``content`` are this file's bytes."""
        return len(content) == self.bytes and hashlib.sha256(content).hexdigest() == self.sha256

    def lies_at(self, path):
        """Return whether an ordinary file has this file's content; raise ``OSError`` if it cannot be read."""
        with open_file(path) as file:
            return self.fits(file.read(self.bytes + 1))


@dataclass(frozen=True)
class Source:
    """One data set.

    Attributes:
        name: What environments call it.
        about: What it is, in words.
        repository: Owner and name on GitHub.
        commit: 40 hexadecimal digits.
        folder: Of the files in the repository.
        licence: Of the repository, and whose it is.
        credit: Who made the tables.
        files: In the order of their names.
    """

    name: str
    about: str
    repository: str
    commit: str
    folder: str
    licence: str
    credit: str
    files: tuple[File, ...]

    @property
    def page(self):
        """The address at which a person sees the files."""
        return f"https://github.com/{self.repository}/tree/{self.commit}/{self.folder}"

    def address(self, file):
        """Return the address that a file is fetched from: upstream's, or that of the mirror in CUPYDRIVE_DATA_URL."""
        base = os.environ.get("CUPYDRIVE_DATA_URL", "") or UPSTREAM
        if not base.startswith(("https://", "http://")):
            raise DataError(f"CUPYDRIVE_DATA_URL = {shown(base)}; it must begin with https://, such as {UPSTREAM}")
        return "/".join((base.rstrip("/"), self.repository, self.commit, self.folder, file.name))

    def kept_at(self, file):
        """Return the path that a file has in the user's cache."""
        return cache_folder() / f"{self.name}-{self.commit[:8]}" / file.name


@dataclass
class Found:
    """What a search came upon.

    Attributes:
        paths: Of the files that fit, by name.
        other: Of files that have such a name and another content, by name, where none fits.
        unread: What could not be read, each with the reason.
    """

    paths: dict[str, Path] = field(default_factory=dict)
    other: dict[str, Path] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


@cache
def sources():
    """Return all data sets by name."""
    text = Path(__file__).with_name("sources.toml").read_text(encoding="utf-8")
    return {
        name: Source(name, **about | {"files": tuple(File(file, **facts) for file, facts in about["files"].items())})
        for name, about in tomllib.loads(text).items()
    }


def source(name):
    """Return the data set of a name."""
    return sources()[checked_choice("data", "name", name, list(sources()), DataError)]


def cache_folder():
    """Return the folder in which fetched files are kept: in $CUPYDRIVE_CACHE, else in the user's cache.

    Without a home folder it lies in the machine's temporary one.
    """
    named = os.environ.get("CUPYDRIVE_CACHE", "")
    if named and not named.strip():
        raise DataError(f"CUPYDRIVE_CACHE = {named!r} names no folder; unset it, or set it to a folder of your own")
    try:
        return Path(named or user_cache_dir("cupydrive")).expanduser().absolute() / "data"
    except RuntimeError:  # no home folder is known
        return Path(tempfile.gettempdir(), f"cupydrive-{getattr(os, 'geteuid', os.getpid)()}", "data")


def search(folder, wanted):
    """Look for files in a folder and everything below it, by name and SHA-256, nearest first.

    Links are followed, no folder is read twice, and what cannot be read is left out.

    Args:
        folder: Where to look.
        wanted: Each a ``File``.

    Returns:
        A ``Found``.
    """
    missing, seen, found = {file.name: file for file in wanted}, set(), Found()
    level = [absolute(folder)]
    while level and missing:
        below = []
        for place in level:
            try:
                about = os.stat(place)
                if (about.st_dev, about.st_ino) in seen:
                    continue
                seen.add((about.st_dev, about.st_ino))
                with os.scandir(place) as entries:
                    entries = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                found.unread.append(f"{place}: {error.strerror}")
                continue
            for entry in entries:
                try:
                    if entry.is_dir():
                        below.append(entry.path)
                    elif entry.name in missing:
                        if missing[entry.name].lies_at(entry.path):
                            found.paths[entry.name] = Path(entry.path)
                            del missing[entry.name]
                        else:
                            found.other.setdefault(entry.name, Path(entry.path))
                except OSError as error:
                    found.unread.append(f"{entry.path}: {error.strerror}")
        level = below
    found.other = {name: path for name, path in found.other.items() if name in missing}
    return found


def differs(wanted, file, path):
    """Return what to say of a file that has the name of upstream's and another content."""
    try:
        with open_file(path) as opened:
            sha256, size = hashlib.file_digest(opened, "sha256").hexdigest(), opened.tell()
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}; make it readable"
    return (
        f"{path} is damaged, or not upstream's file: it has {size:,} bytes and SHA-256 {sha256}, {wanted.name} needs "
        f"{file.bytes:,} bytes and {file.sha256}; get it anew from {wanted.address(file)}"
    )


def listed(names):
    """Return some names, or paths, as text; of many the first, and how many more there are."""
    first, more = [str(name) for name in names[:SHOWN]], len(names) - SHOWN
    return (
        f"{', '.join(first)} and {more} more"
        if more > 0
        else " and ".join(filter(None, [", ".join(first[:-1]), first[-1]]))
    )


def absolute(folder):
    """Return the path of a folder, whatever the current one will be."""
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError:  # "~name" of a user whom nobody knows
        return Path(folder).absolute()
