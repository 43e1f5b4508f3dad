"""Zip archives of arrays or tensors: recordings and snapshots (.npz of NumPy), checkpoints (.pt of torch).

The CRC-32 of every entry is compared before NumPy or torch reads one. It detects accidental damage, and no change on purpose:
whoever reads an array must check it. NumPy and torch find the directory of an archive in different ways. A file must therefore
be one archive from its first byte to its last, so that all readers find the same entries.
"""

import io
import json
import os
import struct
import zipfile
from typing import Any, BinaryIO

import numpy as np
from pydantic import TypeAdapter

from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import open_file
from cupydrive.inputs.formats import FormatError, read_json

FOLDER = 0x10  # attribute of an entry that is a folder
MOST_HEADER = 2**16  # characters that state the type and shape of an array


def check_archive(file: BinaryIO, most: int, stored: bool = False) -> None:
    """Raise ``FormatError`` unless a file is one zip archive whose entries have the content that their CRC-32 states.

    Args:
        file: The open file. It is positioned at its beginning afterwards.
        most: Bytes that all entries may have together, unpacked. Declared sizes are compared before anything is unpacked.
        stored: Whether compressed entries are refused.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            size, names = sum(entry.file_size for entry in entries), {entry.filename for entry in entries}
            if size > most:
                raise FormatError(f"it declares {size:,} bytes unpacked; at most {most:,} can be read here")
            if not is_whole(file, len(entries), archive.start_dir):
                raise FormatError("its directory is damaged, or there are bytes before or after the zip archive")
            # Damage to the directory, which has no CRC-32, may rename entries, and torch skips folders.
            if len(names) < len(entries) or any(entry.external_attr & FOLDER for entry in entries):
                raise FormatError("its directory is damaged, or names an entry twice")
            if stored and any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise FormatError("it has compressed entries; torch writes none")
            damaged = archive.testzip()
    except FormatError:
        raise
    except Exception as error:  # a damaged or hostile file fails in many ways, which zipfile does not list
        raise FormatError(f"it is no zip file that can be unpacked ({brief(error)})") from None
    if damaged is not None:
        raise FormatError(f"the content of its entry {shown(damaged)} is not what its CRC-32 states")
    file.seek(0)


def is_whole(file: BinaryIO, number: int, start: int) -> bool:
    """Return whether a zip archive is all of a file, and the records at its end state where its directory lies.

    Args:
        file: The open file.
        number: Entries that zipfile has found.
        start: Where zipfile has found the directory, which reaches up to the records.
    """
    file.seek(0)
    begins = file.read(4) == b"PK\3\4"
    file.seek(max(0, file.seek(0, os.SEEK_END) - 98))
    tail = file.read()
    has_zip64 = tail[-42:-38] == b"PK\6\7"  # torch's have records of 76 bytes more
    stop = file.tell() - 22 - 76 * has_zip64
    number16, size32, start32 = min(number, 2**16 - 1), min(stop - start, 2**32 - 1), min(start, 2**32 - 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, number16, number16, size32, start32, 0)
    if has_zip64:
        versions = tail[12:16]
        directory = struct.pack("<2L4Q", 0, 0, number, number, stop - start, start)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, stop, 1)
        end = struct.pack("<4sQ", b"PK\6\6", 44) + versions + directory + locator + end
    return begins and tail.endswith(end)


def read_npz(path: str | os.PathLike, kind: TypeAdapter[Any], most: int) -> tuple[dict, dict[str, np.ndarray]]:
    """Return what ``about`` holds and the other arrays of a .npz by name. Nothing in the file is executed.

    Args:
        path: The file.
        kind: Format of the JSON in ``about``.
        most: Bytes that its entries may have together, unpacked.

    Raises:
        OSError: If the file cannot be opened.
        FormatError: If it is damaged, or holds anything but arrays of numbers and an ``about`` of that kind.
    """
    with open_file(path) as file:
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
    np.savez_compressed(content, **{"about": np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays})  # type: ignore[arg-type]
    return content.getvalue()


def brief(error: Exception) -> str:
    """Return the first line of an error, shortened."""
    words = (str(error).splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {words}"
