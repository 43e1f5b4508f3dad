"""Archives of data: zip files that carry a SHA-256 over their content, and whose sizes are checked before they are unpacked.

A recording or snapshot is NumPy's .npz, a checkpoint is torch's .pt; both are zip files. ``seal`` adds one entry to either,
``sha256``, which NumPy and torch pass over: the digest of the names and contents of all others.
"""

import ast
import hashlib
import io
import math
import re
import struct
import warnings
import zipfile
import zlib
from pathlib import PurePosixPath

import numpy as np

from cupydrive.errors import CupydriveWarning
from cupydrive.inputs.formats import MOST_JSON, FormatError, read_json

DIGEST = "sha256"
MOST_ENTRIES = 100_000
PIECE = 2**20  # bytes that are read at once
# Deflate cannot shrink anything to less than 1/1032 of its size: whoever declares more lies.
BEST_RATIO = 1032
# What `zipfile` raises for files that are no zip file, cut short, encrypted, or damaged in their directory or content.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    ValueError,
    OSError,
)
# The header of a .npy file as NumPy writes it, and nothing else: elements of 1 to 8 bytes, little-endian, or a struct of them.
ELEMENT = r"'(?:[<][fiu][248]|[|][biu]1)'"
SHAPE = r"\((?:\d{1,15},|\d{1,15}(?:, \d{1,15}){1,5})?\)"
MEMBER = rf"\('\w{{1,200}}', {ELEMENT}(?:, {SHAPE})?\)"
HEADER = re.compile(
    rf"\{{'descr': (?P<descr>{ELEMENT}|\[{MEMBER}(?:, {MEMBER})*\]), 'fortran_order': False, "
    rf"'shape': (?P<shape>{SHAPE}), \}} *\n"
)


def content_digest(entries):
    """Return the SHA-256 of ``(name, size, pieces)`` of each entry, in the order of their names, as hexadecimal text."""
    found = hashlib.sha256()
    for name, size, pieces in sorted(entries, key=lambda entry: entry[0]):
        found.update(f"{name}\0{size}\0".encode())
        for piece in pieces:
            found.update(piece)
    return found.hexdigest()


def seal(file):
    """Add the digest to a zip file in memory, a ``BytesIO``."""
    with zipfile.ZipFile(file, "a") as archive:
        digest = content_digest((i.filename, i.file_size, pieces(archive, i)) for i in archive.infolist())
        folder = common_folder(archive.namelist())
        archive.writestr(zipfile.ZipInfo(folder + DIGEST), digest)


def check_seal(is_sealed, version):
    """Raise ``FormatError`` unless a file has a digest exactly if its format has one: all but format 1."""
    if is_sealed != (version > 1):
        raise FormatError("its SHA-256 is missing" if version > 1 else "format 1 has no SHA-256")


def warn_unsealed(path):
    """Warn of a file from before files carried a digest; called by what a user calls to load it."""
    warnings.warn(
        f"{path} is of an older format without a SHA-256, so damage to it may not be seen; saving it again adds one",
        CupydriveWarning,
        stacklevel=3,
    )


def common_folder(names):
    """Return the folder that all entries lie in, with its slash: torch has one; an empty text without."""
    first = {name.partition("/")[0] if "/" in name else "" for name in names}
    return f"{first.pop()}/" if len(first) == 1 and first != {""} else ""


def pieces(archive, info):
    """Yield the content of an entry; ``zipfile`` compares its CRC at the end."""
    with archive.open(info) as file:
        while piece := file.read(PIECE):
            yield piece


class Archive:
    """A zip file whose directory has been checked, and whose content is what its digest says.

    Args:
        file: The open file.
        most: Bytes that its entries may have altogether, unpacked.

    Attributes:
        names: Of its entries, without the common folder and the digest.
        sealed: Whether it carries a digest; those of format 1 do not.

    Raises:
        FormatError: If it is no archive, declares sizes that cannot be, or is damaged.
    """

    def __init__(self, file, most):
        try:
            self._zip = zipfile.ZipFile(file)
            infos = self._zip.infolist()
            self._check_directory(infos, file.seek(0, io.SEEK_END), most)
            self._folder = common_folder(i.filename for i in infos)
            self._infos = {i.filename.removeprefix(self._folder): i for i in infos}
            self.sealed = DIGEST in self._infos
            if self.sealed:
                self._check_digest(self._infos.pop(DIGEST))
        except ZIP_ERRORS as error:
            raise FormatError(f"it cannot be unpacked ({error})") from None
        self.names = list(self._infos)

    @staticmethod
    def _check_directory(infos, file_size, most):
        if not 1 <= len(infos) <= MOST_ENTRIES:
            raise FormatError(f"it has {len(infos)} entries; it must have from 1 to {MOST_ENTRIES}")
        seen = set()
        for info in infos:
            parts = PurePosixPath(info.filename).parts
            if info.filename in seen or info.orig_filename in seen:
                raise FormatError(f"entry {info.filename!r} is there twice")
            seen |= {info.filename, info.orig_filename}
            if ".." in parts or not parts or parts[0] == "/" or "\\" in info.filename or info.filename.endswith("/"):
                raise FormatError(f"entry {info.filename!r} leads outside of the archive, or is a folder")
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FormatError(f"entry {info.filename!r} is encrypted, or packed by an unknown method")
            ratio = 1 if info.compress_type == zipfile.ZIP_STORED else BEST_RATIO
            if info.file_size > ratio * info.compress_size:
                raise FormatError(f"entry {info.filename!r} declares {info.file_size:,} bytes, more than it can hold")
        if sum(info.compress_size for info in infos) > file_size:
            raise FormatError(f"its entries declare more than the {file_size:,} bytes of the file")
        if (size := sum(info.file_size for info in infos)) > most:
            raise FormatError(f"it declares {size:,} bytes unpacked; at most {most:,} can be read here")

    def _check_digest(self, info):
        if info.file_size != 64:
            raise FormatError("its SHA-256 is none")
        kept = self._zip.read(info)
        others = (i for i in self._infos.values())
        if content_digest((i.filename, i.file_size, pieces(self._zip, i)) for i in others).encode() != kept:
            raise FormatError("its content is not what its SHA-256 says")

    def read(self, name, most=None):
        """Return the content of an entry as a ``bytearray``.

        Raises:
            FormatError: If there is none, it is damaged, or has more than ``most`` bytes.
        """
        if name not in self._infos:
            raise FormatError(f"it has no entry {name!r}")
        info = self._infos[name]
        if most is not None and info.file_size > most:
            raise FormatError(f"entry {name!r} has {info.file_size:,} bytes; at most {most:,} make sense")
        content, at = bytearray(info.file_size), 0
        try:
            for piece in pieces(self._zip, info):
                content[at : at + len(piece)] = piece
                at += len(piece)
        except ZIP_ERRORS as error:
            raise FormatError(f"entry {name!r} cannot be unpacked ({error})") from None
        if at != info.file_size:
            raise FormatError(f"entry {name!r} has {at:,} bytes, not the {info.file_size:,} that it declares")
        return content

    def about(self, kind, newest):
        """Return the entry ``about`` of a .npz, its JSON, checked; see ``read_json``."""
        return read_json(self.array("about", MOST_JSON).tobytes(), kind, newest)

    def array(self, name, most=None):
        """Return the array ``NAME.npy`` of a .npz, of at most ``most`` bytes with its header.

        Raises:
            FormatError: If it is none: objects, another byte order, Fortran's order, or a size other than its header says.
        """
        return read_array(self.read(f"{name}.npy", most), name)


def read_npz(file, most, kind, newest):
    """Return what ``about`` says, the other arrays by name, and whether a .npz carries a digest.

    Args:
        file: The open file.
        most: Bytes that its entries may have altogether, unpacked.
        kind: The ``Record`` that ``about`` must be.
        newest: The newest format that this version reads.

    Raises:
        FormatError: If it is damaged, or no archive of that kind.
    """
    archive = Archive(file, most)
    about = archive.about(kind, newest)
    check_seal(archive.sealed, about["format"])
    names = (name.removesuffix(".npy") for name in archive.names)
    return about, {name: archive.array(name) for name in names if name != "about"}, archive.sealed


def read_array(content, name):
    """Return a C-ordered, little-endian array from the bytes of a .npy file; it shares their memory.

    Args:
        content: ``bytearray``.
        name: What errors call it.

    Raises:
        FormatError: If the bytes are anything else.
    """
    content = memoryview(content)
    if len(content) < 10 or bytes(content[:8]) != b"\x93NUMPY\x01\x00":
        raise FormatError(f"{name} is no array of NumPy's format 1.0")
    start = 10 + int.from_bytes(content[8:10], "little")
    header = HEADER.fullmatch(bytes(content[10:start]).decode("latin1"))
    if header is None:
        raise FormatError(f"{name} is no array of numbers in C order, little-endian")
    descr, shape = ast.literal_eval(header["descr"]), ast.literal_eval(header["shape"])
    body = content[start:]
    try:
        dtype = np.dtype(descr)
        if math.prod(shape) * dtype.itemsize != len(body) or not dtype.itemsize:
            raise FormatError(f"{name} declares {dtype} {shape}, which its {len(body):,} bytes are not")
        return np.frombuffer(body, dtype).reshape(shape)
    except (ValueError, TypeError, OverflowError) as error:  # a member that is there twice, or larger than any memory
        raise FormatError(f"{name} has no type or shape that NumPy knows ({error})") from None


def packed(arrays):
    """Return the bytes of a compressed .npz with its digest."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    seal(content)
    return content.getvalue()
