"""Files of published data sets, found on this machine or downloaded once with pooch.

Every file is verified by its SHA-256.
"""

import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from cupydrive.errors import CupydriveWarning, DataError, MissingDataError
from cupydrive.inputs.files import as_path, file_errors
from cupydrive.inputs.sources import Source, data_folder, source

TIMEOUT = 10.0  # seconds to wait for a connection, or for the next bytes
MOST_REASON = 300  # maximum length of a network error in a message


def files(name: str, progress: bool = True) -> dict[str, Path]:
    """Return the files of a data set. Missing files are downloaded into the user's cache folder.

    The folder in the environment variable CUPYDRIVE_DATA is searched first, then the cache.
    Several processes may download concurrently.

    Args:
        name: Data set: "catalysis", "rice_n" or "covid_economy".
        progress: Whether to show a progress bar on a terminal.

    Returns:
        Path by file name. The SHA-256 of each file has been verified.

    Warns:
        CupydriveWarning: If a file in the cache is damaged. It is downloaded again.

    Raises:
        MissingDataError: If a file cannot be downloaded. The message lists other ways to get it.
        ParameterError: If the name is unknown.
        DataError: If a file cannot be read, or if CUPYDRIVE_DATA is not a folder or contains a
            damaged file.
    """
    wanted = source(name)
    found, damaged = here(wanted)
    for path in damaged:
        warnings.warn(f"{path} was damaged and is fetched again", CupydriveWarning, stacklevel=2)
    if missing := [file for file in wanted.files if file not in found]:
        found |= fetch_files(wanted, missing, progress)
    return {file: found[file] for file in wanted.files}


def here(wanted: Source) -> tuple[dict[str, Path], list[Path]]:
    """Return the local files of a data set: paths of intact files by name, and damaged cache files.

    Raises:
        DataError: If a file cannot be read, or if CUPYDRIVE_DATA is not a folder or contains a
            damaged file.
    """
    found, damaged = own_files(wanted), []
    for file, sha256 in wanted.files.items():
        path = wanted.cached_in / file
        if file not in found and os.path.exists(path):
            if has_hash(path, sha256):
                found[file] = path
            else:
                damaged.append(path)
    return found, damaged


def own_files(wanted: Source) -> dict[str, Path]:
    """Return the files of a data set in CUPYDRIVE_DATA or its subfolders, by name."""
    named = os.environ.get("CUPYDRIVE_DATA")
    if not named:
        return {}
    with file_errors(DataError, f"CUPYDRIVE_DATA = {named} cannot be read"):
        folder = as_path(named)
        is_folder, paths = folder.is_dir(), sorted(folder.rglob("*"))
    if not is_folder:
        raise DataError(
            f"CUPYDRIVE_DATA = {named} is not a folder. Set it to the folder of the files, or "
            "unset it"
        )
    found: dict[str, Path] = {}
    for file, sha256 in wanted.files.items():
        here = [path for path in paths if path.name == file and path.is_file()]
        whole = next((path for path in here if has_hash(path, sha256)), None)
        if whole is not None:
            found[file] = whole
        elif here:
            raise DataError(
                f"CUPYDRIVE_DATA = {named}: {here[0]} is damaged or another file: its SHA-256 is "
                f"not {sha256}. Get it again from {wanted.page}, or remove it to have it fetched"
            )
    return found


def fetch_files(wanted: Source, missing: Iterable[str], progress: bool) -> dict[str, Path]:
    """Download files of a data set into the cache and return their paths by name.

    pooch writes a file under a temporary name, verifies its SHA-256 and renames it. An interrupted
    or failed download therefore leaves no damaged file, and earlier files are kept.
    """
    import pooch  # here, since importing it takes a while
    from requests import RequestException
    from tqdm import tqdm

    pooch.get_logger().setLevel("WARNING")
    cache = pooch.create(wanted.cached_in, wanted.url, registry=wanted.files)
    # With stream=True, pooch would not close the connection.
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, stream=False)
    url = without_password(wanted.url)
    label = f"fetching {wanted.name} from {url.split('/')[2]}"
    by_hand = (
        f"get the files from {wanted.page}, put them into a folder DIR, and set CUPYDRIVE_DATA=DIR"
    )
    words = (
        f"{wanted.name} cannot be written to {wanted.cached_in} (set CUPYDRIVE_CACHE to another "
        f"folder, or {by_hand})"
    )
    found = {}
    with file_errors(MissingDataError, words):
        # The parent folder also contains compiled kernels.
        data_folder().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # pooch's own mkdir fails if another process creates the folder first.
        wanted.cached_in.mkdir(parents=True, exist_ok=True)
        for file in tqdm(missing, label, unit="file", disable=None if progress else True):
            try:
                found[file] = Path(cache.fetch(file, downloader=downloader))
            except (RequestException, ValueError) as error:  # network error, or wrong SHA-256
                reason = " ".join(without_password(str(error)).split())[:MOST_REASON]
                raise MissingDataError(
                    f"{wanted.name} needs {file}, and fetching {url}{file} into "
                    f"{wanted.cached_in} failed: {reason}. With a network: cupydrive data --fetch "
                    f"--name {wanted.name}. Without one: {by_hand}"
                ) from None
    return found


def without_password(text: str) -> str:
    """Remove user names and passwords from the URLs in a text."""
    return re.sub(r"://[^/\s]*@", "://", text)


def has_hash(path: Path, sha256: str) -> bool:
    """Return whether a file has this SHA-256.

    Raises:
        DataError: If the file cannot be read.
    """
    import pooch

    with file_errors(DataError, f"{path} cannot be read (make it readable, or remove it)"):
        return pooch.file_hash(str(path)) == sha256
