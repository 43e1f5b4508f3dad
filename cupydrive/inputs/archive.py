"""Zip archives of arrays or tensors: recordings and snapshots (.npz), and checkpoints (.pt).

The CRC-32 of every entry is verified before NumPy or torch reads it. A CRC detects accidental
damage, but not a deliberate change. Readers must therefore validate every array.
"""

import io
import json
import os
import zipfile
from typing import Any, BinaryIO

import numpy as np
from pydantic import TypeAdapter

from cupydrive.inputs.arguments import shown
from cupydrive.inputs.formats import FormatError, read_json

FOLDER_ATTRIBUTE = 0x10  # attribute of an entry that is a folder
MOST_HEADER = 2**16  # maximum length of the header of an array


def check_archive(file: BinaryIO, most: int) -> None:
    """Raise ``FormatError`` if an entry of a zip archive does not match its CRC-32.

    Args:
        file: The open file. It is rewound to its start afterwards.
        most: Maximum unpacked size of all entries in bytes. Declared sizes are compared before
            anything is unpacked.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            size, names = (
                sum(entry.file_size for entry in entries),
                {entry.filename for entry in entries},
            )
            damaged = archive.testzip() if size <= most else None
    except Exception as error:  # zipfile does not document the exceptions for damaged files
        raise FormatError(f"it cannot be unpacked as a zip file ({brief(error)})") from None
    if size > most:
        raise FormatError(f"its unpacked size is {size:,} bytes, expected at most {most:,}")
    # The directory has no CRC-32. Damage to it may rename entries, hide some in a comment, or mark
    # them as folders.
    if len(names) < len(entries) or any(
        entry.comment or entry.external_attr & FOLDER_ATTRIBUTE for entry in entries
    ):
        raise FormatError("its directory is damaged, or names an entry twice")
    if damaged is not None:
        raise FormatError(f"the content of its entry {shown(damaged)} does not match its CRC-32")
    file.seek(0)


def read_npz(
    path: str | os.PathLike, kind: TypeAdapter[Any], most: int
) -> tuple[dict, dict[str, np.ndarray]]:
    """Read the JSON in ``about`` and the other arrays of a .npz, by name.

    Nothing in the file is executed.

    Args:
        path: The file.
        kind: Format of the JSON in ``about``.
        most: Maximum unpacked size of all entries in bytes.

    Raises:
        OSError: If the file cannot be opened.
        FormatError: If it is damaged, or contains anything but arrays of numbers and a valid
            ``about``.
    """
    with open(path, "rb") as file:
        check_archive(file, most)
        try:
            with np.load(file, allow_pickle=False, max_header_size=MOST_HEADER) as archive:
                arrays = dict(archive)
        except Exception as error:  # a damaged file can raise any exception
            raise FormatError(f"NumPy cannot read it ({brief(error)})") from None
    if other := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise FormatError(f"its entry {shown(other[0])} is not an array")
    if "about" not in arrays:
        raise FormatError("it has no array 'about'")
    about = read_json(arrays.pop("about").tobytes(), kind)
    return about, arrays


def pack_npz(about: dict, arrays: dict[str, np.ndarray]) -> bytes:
    """Return the content of a compressed .npz for ``read_npz``."""
    content = io.BytesIO()
    entries = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays}
    np.savez_compressed(content, **entries)  # type: ignore[arg-type]
    return content.getvalue()


def brief(error: Exception) -> str:
    """Return the first line of an error, shortened."""
    words = (str(error).splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {words}"
