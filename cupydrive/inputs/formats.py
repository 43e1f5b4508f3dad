"""What the JSON of data files may hold: names, types and ranges, each described once, and read as if hostile.

``CONFIG`` is ``config.json`` of a run folder, ``METRICS`` a line of its ``metrics.jsonl``; ``RECORDING`` and ``SNAPSHOT`` are
the part ``about`` of their archives, ``CHECKPOINT`` the numbers of a checkpoint; ``POPULATION`` is ``population.json`` of a
folder of runs, ``GALLERY`` is ``gallery.json``, ``CURVES`` is ``curves.json`` beside it. What arrays may be is described in
``archive.py``, and by whoever knows the environment that they belong to.
"""

import json
import math
from dataclasses import dataclass

from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import MOST_NUMBERS, shown

MOST_JSON = 2**23  # bytes of a JSON text: some arrays of MOST_NUMBERS


class FormatError(CupydriveError):
    """Content of a file is not what its format says; whoever reads the file turns this into an error that names the file."""


class NewerFormatError(FormatError):
    """The file is sound, as far as can be said, and from a newer version."""


def explained(path, what, error, otherwise):
    """Return what to say of a file that cannot be used.

    Args:
        path: The file.
        what: What it should be, such as ``"recording"``.
        error: The ``FormatError``.
        otherwise: What to do if it is damaged.
    """
    if isinstance(error, NewerFormatError):
        return f"{path} {error}"
    return f"{path} is no {what}, or damaged: {error}. {otherwise}"


# ---- kinds of values ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Int:
    """An int in [low, high]."""

    low: int = 0
    high: int = 2**63 - 1

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        if type(value) is not int or not self.low <= value <= self.high:
            raise FormatError(f"{where} is {shown(value)}; it must be an int from {self.low} to {self.high}")


@dataclass(frozen=True)
class Number:
    """An int or a float, finite unless ``any_float``; ints fit into 64 bits."""

    any_float: bool = False

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        good = (type(value) is int and abs(value) < 2**63) or type(value) is float
        if not good or not (self.any_float or math.isfinite(value)):
            raise FormatError(f"{where} is {shown(value)}; it must be a{' finite' * (not self.any_float)} number")


@dataclass(frozen=True)
class Text:
    """Printable text; an identifier is what environments, groups and parameters are called by."""

    most: int = 1000
    identifier: bool = False
    lines: bool = False  # spaces other than blanks are allowed, too

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        good = type(value) is str and len(value) <= self.most
        if good and self.identifier:
            good = value.isidentifier()
        elif good:  # control characters could write anything on a terminal
            good = all(c.isprintable() or (self.lines and c in "\n\t") for c in value)
        if not good:
            kind = "a name" if self.identifier else "printable text"
            raise FormatError(f"{where} is {shown(value)}; it must be {kind} of at most {self.most} characters")


@dataclass(frozen=True)
class Exactly:
    """One of some values."""

    values: tuple

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        if not any(type(value) is type(known) and value == known for known in self.values):
            raise FormatError(f"{where} is {shown(value)}; it must be {' or '.join(map(repr, self.values))}")


@dataclass(frozen=True)
class Either:
    """A value of one of some kinds."""

    kinds: tuple
    words: str

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        for kind in self.kinds:
            try:
                return kind.check(value, where)
            except FormatError:
                continue
        raise FormatError(f"{where} is {shown(value)}; it must be {self.words}")


@dataclass(frozen=True)
class Sequence:
    """A list whose elements are of one kind."""

    kind: object
    least: int = 0
    most: int = 1000

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        if type(value) is not list or not self.least <= len(value) <= self.most:
            raise FormatError(f"{where} is {shown(value)}; it must be a list of {self.least} to {self.most} values")
        for k, element in enumerate(value):
            self.kind.check(element, f"{where}[{k}]")


@dataclass(frozen=True)
class Table:
    """An object with any names, whose values are of one kind."""

    kind: object
    key: object = Text(200)
    least: int = 0
    most: int = 10_000

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        if type(value) is not dict or not self.least <= len(value) <= self.most:
            raise FormatError(f"{where} is {shown(value)}; it must be an object of {self.least} to {self.most} entries")
        for name, element in value.items():
            self.key.check(name, f"a name in {where}")
            self.kind.check(element, f"{where}[{name!r}]")


@dataclass(frozen=True)
class Record:
    """An object with certain names: ``members`` must be there, those of ``optional`` may be."""

    members: dict
    optional: dict

    def check(self, value, where):
        """Raise ``FormatError`` unless ``value`` is one."""
        it = where or "it"
        if type(value) is not dict:
            raise FormatError(f"{it} is {shown(value)}; it must be an object")
        kinds = {**self.members, **self.optional}
        if missing := [name for name in self.members if name not in value]:
            raise FormatError(f"{it} has no {missing[0]!r}")
        if unknown := [name for name in value if name not in kinds]:
            raise FormatError(f"{it} has an entry {shown(unknown[0])}, which its format does not know")
        for name, element in value.items():
            kinds[name].check(element, f"{where}: {name}" if where else name)


# ---- the formats -------------------------------------------------------------------------------------------------------

NAME = Text(200, identifier=True)
NOTHING, YES_OR_NO = Exactly((None,)), Exactly((True, False))
SCALAR = Either((YES_OR_NO, Number(), Text()), "a finite number, text, true or false")
SETTING = Either((NOTHING, SCALAR), SCALAR.words)
for _ in range(5):  # how deep lists and objects may be nested
    words = "a finite number, text, true, false, null, or a list or an object of these"
    SETTING = Either((NOTHING, SCALAR, Sequence(SETTING), Table(SETTING)), words)
POLICY = Table(SETTING, NAME, least=1)
DIGEST = Either((NOTHING, Text(64)), "a SHA-256 or null")
PATH = Either((NOTHING, Text(4096)), "a path or null")
ORIGIN = {
    "origin": Either(
        (NOTHING, Record({"python": PATH, "python_sha256": DIGEST, "kernel": PATH, "kernel_sha256": DIGEST}, {})),
        "null, or paths and SHA-256 of an environment's two files",
    )
}
TABLES = {"tables": Table(Text(64), NAME, least=1)}  # SHA-256 by name, of environments that have tables
PARAM = Either((SCALAR, Sequence(Number(), most=MOST_NUMBERS)), "a finite number, text, true, false or finite numbers")
PARAMS = Table(PARAM, NAME)
SEED = Int(0, 2**64 - 1)
ENVS = Int(1, 2**31 - 1)
FIRST_ENV = Int(0, 2**31 - 1)

CONFIG = Record(
    {
        "format": Int(1),
        "cupydrive": Text(),
        "env": NAME,
        "params": PARAMS,
        "num_envs": ENVS,
        "seed": Int(),
        "total": Either((NOTHING, Int(1)), "a number of env-steps or null"),
        "policies": Table(POLICY, Text(), least=1),
    },
    {**ORIGIN, **TABLES, "learner": Exactly(("auto", "torch", "kernels"))},
)
METRICS = Table(Number(any_float=True), Text(), least=1)
CHECKPOINT = Record({"format": Int(1), "env": NAME, "step": Int()}, {})
MEMBER = Record({"setting": Text(), "seed": Int()}, {})
POPULATION = Record({"format": Int(1), "members": Sequence(MEMBER, 1, 10_000)}, {})
RECORDING = Record(
    {
        "format": Int(1),
        "env": NAME,
        "params": PARAMS,
        "seed": SEED,
        "players": Table(Text(10_000, lines=True), NAME, least=1),
        "first_env": FIRST_ENV,
        "checksum": Either((NOTHING, Int(0, 2**32 - 1)), "a CRC-32 or null"),
    },
    {**ORIGIN, **TABLES},
)
SNAPSHOT = Record(
    {"format": Int(1), "env": NAME, "params": PARAMS, "num_envs": ENVS, "first_env": FIRST_ENV, "seed": SEED},
    {**ORIGIN, **TABLES},
)

WORDS = Text(10_000, lines=True)
CLIP = Record(
    {
        "kind": Exactly(("random", "heuristic", "trained", "mosaic", "longer", "general", "beside")),
        **dict.fromkeys(("video", "poster", "preview", "recording"), Text()),
        "size": Sequence(Int(1, 2**16), 2, 2),
        "players": Table(WORDS),
        "seed": SEED,
        "first_env": FIRST_ENV,
        "episodes": ENVS,
        "steps": Sequence(Int(), 1),
        "means": Table(Sequence(Number(any_float=True), 2, 2)),
        "episodes_of_means": ENVS,
        "command": WORDS,
    },
    # The recordings at the right of the first one; its title; one step in how many is drawn; what its own episode has of means.
    {"beside": Sequence(Text(), 1), "title": WORDS, "every": Int(2, 2**16), "here": Table(Number())},
)
TRAINING = Record({"command": WORDS, "policies": Table(WORDS), "env_steps": Int(), "num_envs": ENVS, "seed": SEED}, {})
CURVES = Table(
    Record(
        {
            "seeds": Int(1, 10_000),
            "env_steps": Int(),
            "num_envs": ENVS,
            "device": WORDS,
            "versions": Table(Text()),
            "date": Text(),
            "points": Table(Sequence(Sequence(Sequence(Number(), 2, 2)), 1)),
        },
        {"source": WORDS},
    ),
    NAME,
)
GALLERY = Table(
    Record(
        {
            "chapter": Exactly(("Many agents", "Sciences", "Classics")),
            "summary": WORDS,
            "changed": PARAMS,
            "clips": Sequence(CLIP),
            "curve": Text(),
            "training": TRAINING,
            "device": WORDS,
            "versions": Table(Text()),
            "date": Text(),
        },
        {
            "table": Sequence(Sequence(WORDS)),
            "figures": Table(WORDS),
            "readable": Int(1, 2**16),
        },
    ),
    NAME,
)


def read_json(content, kind, newest, words=""):
    """Return what a JSON text holds, checked.

    Args:
        content: Bytes.
        kind: What it must be; a ``Record`` has an entry ``format``.
        newest: The newest format that this version reads; None: the text has no format of its own.
        words: What the text is called in errors.

    Raises:
        FormatError: If it is no JSON, names an entry twice, or is not of ``kind``.
    """
    if len(content) > MOST_JSON:
        raise FormatError(f"it has {len(content):,} bytes of JSON; at most {MOST_JSON:,} make sense")
    any_float = kind in (METRICS, GALLERY)  # a mean may be NaN: Python writes and reads it so
    try:
        value = json.loads(
            bytes(content).decode(), object_pairs_hook=unique, parse_constant=None if any_float else refuse
        )
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is no JSON ({str(error)[:200]})") from None
    if newest is not None and isinstance(value, dict) and type(value.get("format")) is int and value["format"] > newest:
        raise NewerFormatError(newer(value["format"], newest))
    kind.check(value, words)
    return value


def newer(version, newest):
    """Return what to say of a format that is newer than the newest one that this version reads."""
    return (
        f"has format {shown(version)}, from a newer version; this one reads up to {newest}. Install the newer version"
    )


def unique(pairs):
    """Return the pairs of a JSON object as a dictionary; a name that is there twice is an error."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an entry is there twice")
    return found


def refuse(constant):
    """Refuse NaN and the infinities."""
    raise ValueError(f"{constant} is no number here")
