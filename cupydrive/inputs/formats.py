"""Formats of data files: which names, types and ranges their JSON may have.

``CONFIG`` is ``config.json`` of a run folder, ``METRICS`` a line of its ``metrics.jsonl``,
``CHECKPOINT`` the numbers of a checkpoint. ``RECORDING`` and ``SNAPSHOT`` are the JSON in their
archives. ``POPULATION`` is ``population.json`` of a folder of runs. ``GALLERY`` are
``gallery.json`` and ``curves.json`` beside it: an object for each environment.
"""

import json
import os
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import shown

FORMAT = 3  # of every file; a file of another format is refused
MOST_JSON = 2**23  # bytes of a file of JSON


class FormatError(CupydriveError):
    """The content of a file is not what its format states.

    Readers of files turn it into an error that names the file.
    """


def explained(path: str | os.PathLike, what: str, error: Exception, fix: str) -> str:
    """Return the message of a file that cannot be used.

    Args:
        path: The file.
        what: What it should be, such as "recording".
        error: What is wrong.
        fix: What to do.
    """
    return f"{path} is no {what}, or damaged: {error}. {fix}"


# ---- the formats ---------------------------------------------------------------------------------

JsonNumber = int | float  # NaN in the metrics of a training that failed
Finite = int | FiniteFloat
ParamsInFile = dict[str, bool | Finite | str | list[Finite]]
StoredSeed = Annotated[int, Field(ge=0, lt=2**64)]
StoredCount = Annotated[int, Field(ge=1, lt=2**31)]
StoredStep = Annotated[int, Field(ge=0, lt=2**63)]
First = Annotated[int, Field(ge=0, lt=2**31)]


class Entries(BaseModel):
    """A JSON object with these names and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Origin(TypedDict):
    """Files that a user's environment came from: absolute paths, or None where it was text, and
    SHA-256 of what they hold.
    """

    python: str | None
    python_sha256: str | None
    kernel: str | None
    kernel_sha256: str | None


class MadeWith(Entries):
    """What files of an environment have in common."""

    format: Literal[3]
    env: str
    params: ParamsInFile
    origin: Origin | None = None
    tables: dict[str, str] = {}


class ConfigFile(MadeWith):
    """``config.json`` of a run folder."""

    cupydrive: str
    num_envs: StoredCount
    seed: StoredStep
    total: StoredStep | None
    backend: Literal["auto", "torch", "kernels"]
    policies: dict[str, dict[str, Any]]
    sha256: str = ""


class CheckpointFile(Entries):
    """Numbers of a checkpoint."""

    format: Literal[3]
    env: str
    step: StoredStep
    tensors: dict[str, Any]


class MemberFile(Entries):
    """One run of a population."""

    setting: str
    seed: StoredStep


class PopulationFile(Entries):
    """``population.json``."""

    format: Literal[3]
    members: list[MemberFile]


class SnapshotFile(MadeWith):
    """``about`` of a snapshot."""

    seed: StoredSeed
    num_envs: StoredCount
    first_env: First


class RecordingFile(MadeWith):
    """``about`` of a recording."""

    seed: StoredSeed
    first_env: First
    players: dict[str, str]
    checksum: Annotated[int, Field(ge=0, lt=2**32)] | None


STRICT = ConfigDict(strict=True, defer_build=True)
CONFIG, CHECKPOINT, POPULATION = (
    TypeAdapter(ConfigFile),
    TypeAdapter(CheckpointFile),
    TypeAdapter(PopulationFile),
)
SNAPSHOT, RECORDING = TypeAdapter(SnapshotFile), TypeAdapter(RecordingFile)
METRICS = TypeAdapter(dict[str, JsonNumber], config=STRICT)
GALLERY = TypeAdapter(dict[str, dict[str, Any]], config=STRICT)


# ---- reading -------------------------------------------------------------------------------------


def read_json(content: bytes, kind: TypeAdapter[Any]) -> Any:
    """Return what a JSON text holds, checked.

    Args:
        content: The text.
        kind: One of the formats.

    Raises:
        FormatError: If it is no JSON, or is not of ``kind``.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is no JSON ({str(error)[:200]})") from None
    check_json(value, kind)
    return value


def check_json(value: object, kind: TypeAdapter[Any]) -> None:
    """Raise ``FormatError`` unless a value of JSON is of a kind."""
    version = value.get("format") if isinstance(value, dict) else FORMAT
    if type(version) is int and version != FORMAT:
        raise FormatError(
            f"its format is {version}, of another version. This version reads format {FORMAT}"
        )
    try:
        kind.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise FormatError(
            f"{where} is {shown(first['input'])}; {first['msg'][0].lower()}{first['msg'][1:]}"
        ) from None
