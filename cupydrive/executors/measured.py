"""What was measured on this device is kept in the cache folder, by device, kernel and size, and read with suspicion."""

import hashlib
import json
import math
import warnings

from cupydrive.errors import CupydriveWarning
from cupydrive.executors.cache import cache_folder
from cupydrive.inputs.files import write_atomically

FORMAT = 3
MOST_BYTES = 100_000  # of a file: a hundred times what is kept


def name_of(kind, where, text, size):
    """Return the name under which a result is kept: it changes with the device, the kernel and the size."""
    digest = hashlib.sha256("\0".join([where.describe(), text, str(size), str(FORMAT)]).encode()).hexdigest()[:32]
    return f"{kind}-{digest}.json"


def recall(name, read):
    """Return what is kept under ``name``, as ``read`` makes it of the content, or None.

    A file holds one JSON object: ``found``, what ``read`` knows, and ``sha256``, the digest of its text. One that is damaged
    or has other values is ignored, with one line that says so: everything in it can be measured again.
    """
    path = cache_folder() / name
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ignored(path, error.strerror)
    if len(text) > MOST_BYTES:
        return ignored(path, f"it is larger than {MOST_BYTES} bytes")
    try:
        content = json.loads(text)
        require(isinstance(content, dict) and set(content) == {"found", "sha256"}, "it must hold found and sha256")
        require(
            content["sha256"] == digest_of(content["found"]), "its SHA-256 does not fit: it is damaged or was edited"
        )
        return read(content["found"])
    except RecursionError:
        return ignored(path, "it is nested too deeply")
    except ValueError as error:  # text that is no UTF-8, no JSON, or has other values than those that are kept
        return ignored(path, str(error))


def ignored(path, reason):
    """Warn that a file is ignored; return None."""
    warnings.warn(f"{path} is ignored and measured anew: {reason}", CupydriveWarning, stacklevel=5)


def require(right, otherwise):
    """Raise ``ValueError`` unless ``right``."""
    if not right:
        raise ValueError(otherwise)


def digest_of(found):
    """Return the SHA-256 of an object of JSON."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def kept_rates(rates):
    """Return ``rates`` if they are what rates are: at least one, by name, finite and above 0."""
    require(isinstance(rates, dict) and rates, "it must have rates")
    for name, value in rates.items():
        fine = type(value) in (int, float) and 0 < value < math.inf
        require(fine, f"the rate of {name!r} is {value!r}; it must be finite and above 0")
    return rates


def keep(name, found):
    """Keep ``found`` under ``name``."""
    found = json.loads(json.dumps(found))  # keys as they are read again
    write_atomically(cache_folder() / name, json.dumps({"found": found, "sha256": digest_of(found)}).encode())
