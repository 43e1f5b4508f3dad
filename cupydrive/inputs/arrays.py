"""Arrays of numbers from files of others: .npy, .npz and JSON, of the shapes that are expected and of no others.

Nothing in a file executes: arrays of Python objects, which NumPy would have to unpickle, are refused, and no more is read than
an array of its shape can take.
"""

import io
import json
import math
import zipfile
import zlib

import numpy as np

from cupydrive.errors import DataError
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import open_file, read_file

HEADER = 4096  # bytes before the numbers of a .npy file, at most
MOST_JSON = 2**20  # bytes
# What NumPy and `zipfile` raise for files that are none, are cut short, or are damaged.
ERRORS = (OSError, ValueError, EOFError, KeyError, MemoryError, NotImplementedError, RuntimeError, zlib.error)
ERRORS += (zipfile.BadZipFile,)


def read_npy(path, shape):
    """Return the array of a .npy file.

    Args:
        path: The file.
        shape: That it must have.

    Raises:
        DataError: If it cannot be read, is damaged, or holds an array of another shape, or no numbers.
    """
    try:
        content = read_file(path, _most(shape))
        return _array(path, "the array", io.BytesIO(content), shape)
    except ERRORS as error:
        raise _damaged(path, error) from None


def read_npz(path, shapes):
    """Return some arrays of a .npz file, by name.

    Args:
        path: The file.
        shapes: Of the arrays to read, by name; others are passed over.

    Raises:
        DataError: If it cannot be read, is damaged, lacks an array, or one has another shape or holds no numbers.
    """
    found = {}
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            for name, shape in shapes.items():
                if f"{name}.npy" not in archive.namelist():
                    known = ", ".join(entry.removesuffix(".npy") for entry in archive.namelist()[:20])
                    raise DataError(f"{path} has no array {name!r}; it has {known}. {_fix(path)}")
                if (size := archive.getinfo(f"{name}.npy").file_size) > _most(shape):
                    raise DataError(f"{path}: {name} has {size:,} bytes, too many for shape {shape}. {_fix(path)}")
                with archive.open(f"{name}.npy") as entry:
                    found[name] = _array(path, name, entry, shape)
    except ERRORS as error:
        raise _damaged(path, error) from None
    return found


def read_json(path, shapes):
    """Return some entries of the object in a JSON file, lists of lists of numbers, as float64 arrays by name.

    Args:
        path: The file.
        shapes: Of the entries to read, by name; () is one number. Others are passed over.

    Raises:
        DataError: If it cannot be read, is damaged, lacks an entry, or one has another shape or holds no finite numbers.
    """
    try:
        value = json.loads(read_file(path, MOST_JSON).decode())
        if not isinstance(value, dict):
            raise ValueError("it holds no object")
    except (*ERRORS, RecursionError) as error:
        raise _damaged(path, error) from None
    found = {}
    for name, shape in shapes.items():
        if name not in value:
            raise DataError(f"{path} has no entry {name!r}. {_fix(path)}")
        try:
            array = np.array(value[name])
        except (ValueError, RecursionError, OverflowError):  # lists of different lengths, an int beyond 64 bits
            array = np.array(None)
        if array.dtype.kind not in "iuf":
            raise DataError(f"{path}: {name} = {shown(value[name])} holds what are no numbers. {_fix(path)}")
        found[name] = require_finite(path, name, _shaped(path, name, array, shape).astype(np.float64))
    return found


def require_finite(path, name, array):
    """Return ``array``, which comes from a file; raise ``DataError`` with the first place that is NaN or infinite."""
    if not (good := np.isfinite(array)).all():
        place = tuple(int(k) for k in np.argwhere(~good)[0])
        raise DataError(
            f"{path}: {name}{list(place) if place else ''} = {array[place]}, one of {np.count_nonzero(~good):,} numbers that "
            f"are not finite; all that are used must be. {_fix(path)}"
        )
    return array


def _array(path, name, file, shape):
    array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind not in "iuf":
        raise DataError(f"{path}: {name} holds {array.dtype}, which are no numbers. {_fix(path)}")
    return _shaped(path, name, array, shape)


def _shaped(path, name, array, shape):
    if array.shape != tuple(shape):
        raise DataError(f"{path}: {name} has shape {array.shape}; it must have {tuple(shape)}. {_fix(path)}")
    return array


def _most(shape):
    return HEADER + 8 * math.prod(shape)


def _fix(path):
    return f"Remove {path} or put the right one there; cupydrive data says where from"


def _damaged(path, error):
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
    return DataError(f"{path} cannot be read, or is damaged: {reason}. {_fix(path)}")
