"""Numbers by name from text files of others, such as the coefficients of a region: lines ``name: number`` of a YAML file.

That is the little of YAML that such files need: a comment begins with ``#``, a line without a value is a heading. What is more,
lists say, is refused with the line, and nothing in a file executes.
"""

import math

import numpy as np

from cupydrive.errors import DataError, did_you_mean
from cupydrive.inputs.arguments import shown


def coefficients(paths, names):
    """Return the coefficients called ``names`` of each of several files.

    Args:
        paths: ``pathlib.Path`` of each file.
        names: Names that every file must have; it may have more.

    Returns:
        (names, paths) float64.

    Raises:
        DataError: If a file cannot be read, or lacks a name; the message says which.
    """
    found = [numbers(path) for path in paths]
    for path, of_file in zip(paths, found, strict=True):
        for name in names:
            if name not in of_file:
                hint = did_you_mean(name, list(of_file))
                raise DataError(f"{path} has no {shown(name)}.{hint} It must have {', '.join(names)}")
    return np.array([[of_file[name] for of_file in found] for name in names])


def numbers(path):
    """Return the numbers of one file by name.

    Raises:
        DataError: If it cannot be read, a line is not ``name: number``, a number is not finite, or a name comes twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        name, colon, text = (part.strip() for part in line.split("#")[0].partition(":"))
        if not text and (colon or not name):
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not colon or not name or not math.isfinite(value) or name in found:
            raise DataError(f"{path}, line {number}: {shown(line.strip())} is no `name: number`, finite and once")
        found[name] = value
    return found
