"""Formats of data files: which names, types and ranges their JSON may have. All of it is read as if hostile.

``CONFIG`` is ``config.json`` of a run folder, ``METRICS`` a line of its ``metrics.jsonl``, ``CHECKPOINT`` the numbers of a
checkpoint. ``RECORDING`` and ``SNAPSHOT`` are the JSON in their archives. ``POPULATION`` is ``population.json`` of a folder of
runs. ``GALLERY`` is ``gallery.json``, ``CURVES`` is ``curves.json`` beside it.
"""

import json
import math
import os
import re
from typing import NoReturn

from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import shown

FORMAT = 3  # of every file; a file of another format is refused
MOST_JSON = 2**23  # bytes of a JSON text
MOST_LETTERS = 10_000  # of a text in JSON
MOST_DEPTH = 32  # of lists and objects within each other
MOST_DIGITS = 20  # of an int; 2**64 has 20


class FormatError(CupydriveError):
    """The content of a file is not what its format states. Readers of files turn it into an error that names the file."""


def explained(path: str | os.PathLike, what: str, error: Exception, fix: str) -> str:
    """Return the message of a file that cannot be used.

    Args:
        path: The file.
        what: What it should be, such as "recording".
        error: What is wrong.
        fix: What to do.
    """
    return f"{path} is no {what}, or damaged: {error}. {fix}"


# ---- the formats -------------------------------------------------------------------------------------------------------

NUMBER = (int, float)
SCALAR = (bool, int, float, str)
SETTING = (None, *SCALAR, [object], {str: object})
PARAMS = {str: (*SCALAR, [NUMBER])}
PLAIN_NAME = re.compile(r"[\w-][\w.-]*")  # of a file, which therefore lies in the folder that it is looked for in
SEED, COUNT, STEP = range(2**64), range(1, 2**31), range(2**63)
FILES = {"python": (None, str), "python_sha256": (None, str), "kernel": (None, str), "kernel_sha256": (None, str)}
MADE_WITH = {"format": {FORMAT}, "env": str, "params": PARAMS, "origin?": (None, FILES), "tables?": {str: str}}
CONFIG = {
    **MADE_WITH,
    "cupydrive": str,
    "num_envs": COUNT,
    "seed": STEP,
    "total": (None, STEP),
    "backend": {"auto", "torch", "kernels"},
    "policies": {str: {str: SETTING}},
    "sha256?": str,
}
METRICS = {str: NUMBER}
CHECKPOINT = {"format": {FORMAT}, "env": str, "step": STEP, "tensors": {str: object}}
POPULATION = {"format": {FORMAT}, "members": [{"setting": str, "seed": STEP}]}
SNAPSHOT = {**MADE_WITH, "seed": SEED, "num_envs": COUNT, "first_env": range(2**31)}
RECORDING = {
    **MADE_WITH,
    "seed": SEED,
    "first_env": range(2**31),
    "players": {str: str},
    "checksum": (None, range(2**32)),
}
CLIP = {
    "kind": {"random", "heuristic", "trained", "mosaic", "longer", "general", "beside"},
    **dict.fromkeys(("video", "poster", "preview", "recording"), PLAIN_NAME),
    "command": str,
    "size": [COUNT, COUNT],  # width, height
    "players": {str: str},
    "seed": SEED,
    "first_env": range(2**31),
    "episodes": COUNT,
    "steps": [STEP, ...],
    "means": {str: [NUMBER, NUMBER]},  # with the half width of their intervals
    "episodes_of_means": COUNT,
    "beside?": [PLAIN_NAME],  # recordings at the right of the first one
    "title?": str,
    "every?": COUNT,  # one step in how many is drawn
    "here?": {str: NUMBER},  # means of the episode that is drawn
}
MACHINE = {"device": str, "versions": {str: str}, "date": str}
GALLERY = {
    PLAIN_NAME: {
        **MACHINE,
        "chapter": {"Many agents", "Sciences", "Classics"},
        "summary": str,
        "changed": PARAMS,
        "clips": [CLIP],
        "curve": PLAIN_NAME,
        "training": {"command": str, "policies": {str: str}, "env_steps": STEP, "num_envs": COUNT, "seed": SEED},
        "table?": [[str, ...]],
        "figures?": {str: str},
        "readable?": COUNT,
    }
}
CURVES = {
    str: {
        **MACHINE,
        "seeds": COUNT,
        "env_steps": STEP,
        "num_envs": COUNT,
        "points": {str: [[[NUMBER, NUMBER]]]},  # (env-steps, value), of each seed
        "source?": str,
    }
}


# ---- reading -----------------------------------------------------------------------------------------------------------


def read_json(content: bytes, kind: object, finite: bool = True) -> object:
    """Return what a JSON text holds, checked.

    Args:
        content: The text.
        kind: What it must be; see ``check``.
        finite: Whether NaN, Infinity and -Infinity, which Python writes and reads, are refused. Numbers that are too large
            for a float always are.

    Raises:
        FormatError: If it is no JSON, names an entry twice, is nested too deeply, or is not of ``kind``.
    """
    if len(content) > MOST_JSON:
        raise FormatError(f"it has {len(content):,} bytes of JSON; at most {MOST_JSON:,} make sense")
    try:
        value = json.loads(
            bytes(content).decode(),
            object_pairs_hook=unique,
            parse_constant=refuse if finite else None,
            parse_float=number,
            parse_int=integer,
        )
        check(value, kind, "it")
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is no JSON ({str(error)[:200]})") from None
    return value


def check(value: object, kind: object, where: str, depth: int = 0) -> None:
    """Raise ``FormatError`` unless a value of JSON is of a kind. All texts must be printable.

    Args:
        value: The value.
        kind: One of

            - None, ``bool``, ``int``, ``float`` or ``str``: null, or a value of this type. ``object`` is any value.
            - ``range(low, high)``: an int in it.
            - A set: one of these values.
            - A pattern: a text all of which it matches.
            - A tuple: a value of one of these kinds.
            - ``[kind]``: a list. ``[kind, ...]``: one that is not empty. ``[kind, kind]``: one of two values.
            - ``{str: kind}``, or with a pattern: an object with any such names.
            - ``{"name": kind, "name?": kind}``: an object with these names. Those with a question mark may be left out.
        where: What errors call the value.
        depth: How many lists and objects the value lies in.
    """
    if depth > MOST_DEPTH:
        raise FormatError(f"its lists and objects are nested more than {MOST_DEPTH} deep")
    if type(value) is str and not (len(value) <= MOST_LETTERS and all(c.isprintable() or c in "\n\t" for c in value)):
        raise FormatError(f"{where} is {shown(value)}; it must be printable text of at most {MOST_LETTERS} characters")
    options = kind if isinstance(kind, tuple) else (kind,)
    for option in options:
        if isinstance(option, list) and type(value) is list and fits_length(value, option):
            for k, element in enumerate(value):
                check(element, option[0], f"{where}[{k}]", depth + 1)
            return
        if isinstance(option, dict) and type(value) is dict:
            check_object(value, option, where, depth + 1)
            return
        if option is object and isinstance(value, list | dict):
            check(value, [object] if isinstance(value, list) else {str: object}, where, depth)
            return
        if option is object or (option is None and value is None) or type(value) is option:
            return
        if isinstance(option, range) and type(value) is int and value in option:
            return
        if isinstance(option, set) and type(value) in (int, str) and value in option:
            return
        if isinstance(option, re.Pattern) and type(value) is str and option.fullmatch(value):
            return
    raise FormatError(f"{where} is {shown(value)}; it must be {' or '.join(map(in_words, options))}")


def fits_length(value: list, kind: list) -> bool:
    """Return whether a list has as many elements as its kind states."""
    if ... in kind:
        return len(value) > 0
    return len(kind) == 1 or len(value) == len(kind)


def check_object(value: dict, kind: dict, where: str, depth: int) -> None:
    """Raise ``FormatError`` unless the names and values of an object are of a kind."""
    prefix = "" if where == "it" else f"{where}: "
    first = next(iter(kind))
    for name in value:
        check(name, str if isinstance(first, str) else first, f"a name in {where}")
    version = value.get("format")
    if "format" in kind and type(version) is int and version != FORMAT:
        raise FormatError(f"its format is {shown(version)}, of another version. This version reads format {FORMAT}")
    if isinstance(first, str):
        known = {name.removesuffix("?"): one for name, one in kind.items()}
    else:
        known = dict.fromkeys(value, kind[first])
    for name, inner in known.items():
        if name in value:
            check(value[name], inner, f"{prefix}{name}", depth)
        elif f"{name}?" not in kind:
            raise FormatError(f"{where} has no {name!r}")
    if unknown := [name for name in value if name not in known]:
        raise FormatError(f"{where} has an entry {shown(unknown[0])}, which its format does not know")


def in_words(kind: object) -> str:
    """Return a kind in words, for errors."""
    words: dict[object, str] = {None: "null", bool: "true or false", int: "an int", float: "a number", str: "text"}
    if isinstance(kind, range):
        return f"an int from {kind[0]} to {kind[-1]}"
    if isinstance(kind, set):
        return " or ".join(map(repr, sorted(kind)))
    if isinstance(kind, re.Pattern):
        return "a plain file name: letters, digits, _, - and . only, and no . first"
    if isinstance(kind, list) and len(kind) > 1:
        return "a list that is not empty" if ... in kind else f"a list of {len(kind)}"
    return "a list" if isinstance(kind, list) else "an object" if isinstance(kind, dict) else words[kind]


def unique(pairs: list[tuple[str, object]]) -> dict:
    """Return the pairs of a JSON object as a dictionary; a name that is there twice is an error."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an entry is there twice")
    return found


def refuse(text: str) -> NoReturn:
    """Refuse a number."""
    raise ValueError(f"{text if len(text) < 40 else text[:40] + '...'} is no number here")


def number(text: str) -> float:
    """Return the float that a JSON text holds; 1e999, which Python reads as infinity, is an error."""
    value = float(text)
    if math.isinf(value):
        refuse(text)
    return value


def integer(text: str) -> int:
    """Return the int that a JSON text holds, unless it has too many digits."""
    if len(text) > MOST_DIGITS:
        refuse(text)
    return int(text)
