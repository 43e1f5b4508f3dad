"""Published data sets that environments read, as described in ``sources.toml``."""

import os
import tempfile
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from platformdirs import user_cache_dir

from cupydrive.inputs.arguments import checked_choice

UPSTREAM = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Source:
    """One data set: files of a GitHub repository at one commit.

    Attributes:
        name: Name of the data set and of its environment.
        about: One-line description.
        repository: Owner and name on GitHub.
        commit: Commit hash, 40 hexadecimal digits.
        folder: Folder of the files in the repository.
        license: License of the repository, and its copyright holder.
        credit: Authors of the data.
        files: SHA-256 by file name.
    """

    name: str
    about: str
    repository: str
    commit: str
    folder: str
    license: str
    credit: str
    files: dict[str, str]

    @property
    def page(self) -> str:
        """Web page of the files."""
        return f"https://github.com/{self.repository}/tree/{self.commit}/{self.folder}"

    @property
    def url(self) -> str:
        """Base URL of the files, on GitHub or on the mirror in CUPYDRIVE_DATA_URL."""
        base = os.environ.get("CUPYDRIVE_DATA_URL") or UPSTREAM
        return f"{base.rstrip('/')}/{self.repository}/{self.commit}/{self.folder}/"

    @property
    def cached_in(self) -> Path:
        """Folder of the downloaded files."""
        return data_folder() / f"{self.name}-{self.commit[:8]}"


@cache
def sources() -> dict[str, Source]:
    """Return all data sets by name."""
    text = Path(__file__).with_name("sources.toml").read_text(encoding="utf-8")
    return {name: Source(name, **about) for name, about in tomllib.loads(text).items()}


def source(name: str) -> Source:
    """Return a data set by name.

    Raises:
        ParameterError: If the name is unknown.
    """
    return sources()[checked_choice("data", "name", name, list(sources()))]


def data_folder() -> Path:
    """Return the folder of all downloaded files, in $CUPYDRIVE_CACHE or the user's cache folder.

    If the user has no home folder, it is in the machine's temporary folder.
    """
    try:
        folder = Path(os.environ.get("CUPYDRIVE_CACHE") or user_cache_dir("cupydrive"))
        return folder.expanduser().absolute() / "data"
    except RuntimeError:  # no home folder
        return Path(
            tempfile.gettempdir(), f"cupydrive-{getattr(os, 'geteuid', os.getpid)()}", "data"
        )
