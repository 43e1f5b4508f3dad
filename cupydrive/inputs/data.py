"""Files of published data sets: found on this machine, or fetched once by pooch; always checked by their SHA-256."""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from cupydrive.errors import CupydriveWarning, DataError, MissingDataError
from cupydrive.inputs.sources import Source, cache_folder, source

TIMEOUT = 10.0  # seconds to wait for a connection, or for the next bytes
MOST_REASON = 300  # characters of an error of the network


def files(name: str, progress: bool = True) -> dict[str, Path]:
    """Return the files of a data set. Files that are not on this machine are fetched into the user's cache folder.

    The folder that the variable CUPYDRIVE_DATA names is searched first, then the cache. Several processes may fetch at once.

    Args:
        name: Data set: "catalysis", "rice_n" or "covid_economy".
        progress: Whether to show a progress bar on a terminal.

    Returns:
        Path by file name. The content of each file has just been compared with its SHA-256.

    Warns:
        CupydriveWarning: If a file in the cache was damaged. It is fetched again.

    Raises:
        MissingDataError: If a file cannot be fetched. The message names the ways to get it.
        DataError: If the name is unknown, or CUPYDRIVE_DATA is no folder or holds a damaged file.
    """
    wanted = source(name)
    found, damaged = here(wanted)
    for path in damaged:
        warnings.warn(f"{path} was damaged and is fetched again", CupydriveWarning, stacklevel=2)
    if missing := [file for file in wanted.files if file not in found]:
        found |= fetch(wanted, missing, progress)
    return {file: found[file] for file in wanted.files}


def here(wanted: Source) -> tuple[dict[str, Path], list[Path]]:
    """Return what this machine has of a data set: paths of whole files by name, and damaged files in the cache.

    Raises:
        DataError: If CUPYDRIVE_DATA is no folder or holds a damaged file.
    """
    found, damaged = own_files(wanted), []
    for file, sha256 in wanted.files.items():
        path = wanted.cached_in / file
        if file not in found and path.exists():
            if has_hash(path, sha256):
                found[file] = path
            else:
                damaged.append(path)
    return found, damaged


def own_files(wanted: Source) -> dict[str, Path]:
    """Return the files of a data set that lie in CUPYDRIVE_DATA or in a folder below it, by name."""
    named = os.environ.get("CUPYDRIVE_DATA")
    if not named:
        return {}
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"CUPYDRIVE_DATA = {named} is no folder; name the folder with the files, or unset it")
    found, damaged = {}, {}
    for path in sorted(folder.rglob("*")):
        if path.name in wanted.files and path.name not in found and path.is_file():
            (found if has_hash(path, wanted.files[path.name]) else damaged)[path.name] = path
    for file, path in damaged.items():
        if file not in found:
            raise DataError(
                f"CUPYDRIVE_DATA = {named}: {path} is damaged or another file: its SHA-256 is not {wanted.files[file]}. "
                f"Get it again from {wanted.page}, or remove it to have it fetched"
            )
    return found


def fetch(wanted: Source, missing: Iterable[str], progress: bool) -> dict[str, Path]:
    """Fetch files of a data set into the cache and return their paths by name.

    pooch writes a file under a temporary name, compares its SHA-256 and renames it. An interrupted or failed fetch
    therefore leaves no damaged file, and files that came before it stay.
    """
    import pooch  # here, since importing it takes a while
    from tqdm import tqdm

    pooch.get_logger().setLevel("WARNING")
    cache = pooch.create(wanted.cached_in, wanted.url, registry=wanted.files)
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT)
    words = f"fetching {wanted.name} from {urlsplit(wanted.url).netloc}"
    found = {}
    for file in tqdm(missing, words, unit="file", disable=None if progress else True):
        try:
            cache_folder().parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # compiled kernels lie there, too
            wanted.cached_in.mkdir(parents=True, exist_ok=True)  # pooch's own mkdir fails if another process is faster
            found[file] = Path(cache.fetch(file, downloader=downloader))
        except (OSError, ValueError) as error:  # of the network, a full disk; another SHA-256
            raise MissingDataError(
                f"{wanted.name} needs {file}, and fetching {wanted.url}{file} into {wanted.cached_in} failed: "
                f"{' '.join(str(error).split())[:MOST_REASON]}. With a network: cupydrive data --fetch --name "
                f"{wanted.name}. Without one: get the files from {wanted.page}, put them into a folder DIR, and set "
                "CUPYDRIVE_DATA=DIR"
            ) from None
    return found


def has_hash(path: Path, sha256: str) -> bool:
    """Return whether a file can be read and has this SHA-256."""
    import pooch

    try:
        return pooch.file_hash(str(path)) == sha256
    except OSError:
        return False
