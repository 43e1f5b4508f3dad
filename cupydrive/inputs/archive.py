"""Zip archives of arrays or tensors: recordings and snapshots (.npz of NumPy), checkpoints (.pt of
torch).

The CRC-32 of every entry is compared before NumPy or torch reads one. It detects accidental damage,
and no change on purpose: whoever reads an array must check it.
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
MOST_HEADER = 2**16  # characters that state the type and shape of an array


def check_archive(file: BinaryIO, most: int) -> None:
    """Raise ``FormatError`` unless the entries of a zip archive have the content that their CRC-32
    states.

    Args:
        file: The open file. It is positioned at its beginning afterwards.
        most: Bytes that all entries may have together, unpacked. Declared sizes are compared before
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
    except Exception as error:  # a damaged file fails in many ways, which zipfile does not list
        raise FormatError(f"it is no zip file that can be unpacked ({brief(error)})") from None
    if size > most:
        raise FormatError(f"it declares {size:,} bytes unpacked; at most {most:,} can be read here")
    # Damage to the directory, which has no CRC-32, may rename entries, hide some in a comment, or
    # mark them as folders.
    if len(names) < len(entries) or any(
        entry.comment or entry.external_attr & FOLDER_ATTRIBUTE for entry in entries
    ):
        raise FormatError("its directory is damaged, or names an entry twice")
    if damaged is not None:
        raise FormatError(
            f"the content of its entry {shown(damaged)} is not what its CRC-32 states"
        )
    file.seek(0)


def read_npz(
    path: str | os.PathLike, kind: TypeAdapter[Any], most: int
) -> tuple[dict, dict[str, np.ndarray]]:
    """Return what ``about`` holds and the other arrays of a .npz by name. Nothing in the file is
    executed.

    Args:
        path: The file.
        kind: Format of the JSON in ``about``.
        most: Bytes that its entries may have together, unpacked.

    Raises:
        OSError: If the file cannot be opened.
        FormatError: If it is damaged, or holds anything but arrays of numbers and an ``about`` of
            that kind.
    """
    with open(path, "rb") as file:
        check_archive(file, most)
        try:
            with np.load(file, allow_pickle=False, max_header_size=MOST_HEADER) as archive:
                arrays = dict(archive)
        except Exception as error:  # as above
            raise FormatError(f"NumPy cannot read it ({brief(error)})") from None
    if other := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise FormatError(f"its entry {shown(other[0])} is no array")
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
