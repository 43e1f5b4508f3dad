"""Formats of data files: allowed names, types and ranges of their JSON.

``CONFIG`` is ``config.json`` of a run folder, ``METRICS`` a line of its ``metrics.jsonl``, and
``CHECKPOINT`` the content of a checkpoint. ``RECORDING`` and ``SNAPSHOT`` are the JSON in their
archives. ``POPULATION`` is ``population.json`` of a folder of runs. ``GALLERY`` is the format of
``gallery.json`` and ``curves.json``, with an object for each environment.
"""

import json
import os
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import shown

FORMAT = 3  # format version of every file. Files of other versions are rejected.
MOST_JSON = 2**23  # maximum size of a JSON file in bytes


class FormatError(CupydriveError):
    """Raised if the content of a file does not match its format.

    Callers convert it to an error that names the file.
    """


def explained(path: str | os.PathLike, what: str, error: Exception, fix: str) -> str:
    """Return the message for an invalid file.

    Args:
        path: The file.
        what: Expected kind of file, such as "recording".
        error: The problem.
        fix: The remedy.
    """
    return f"{path} is not a {what}, or damaged: {error}. {fix}"


# ---- the formats ---------------------------------------------------------------------------------

JsonNumber = int | float  # the metrics of a failed training may be NaN
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
    """Source files of a user's environment: absolute paths, or None for text, and their SHA-256."""

    python: str | None
    python_sha256: str | None
    kernel: str | None
    kernel_sha256: str | None


class MadeWith(Entries):
    """Entries common to all files of an environment."""

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
    """Content of a checkpoint."""

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
    """Parse and validate a JSON text.

    Args:
        content: The text.
        kind: One of the formats.

    Raises:
        FormatError: If it is not JSON, or does not match ``kind``.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is not JSON ({str(error)[:200]})") from None
    check_json(value, kind)
    return value


def check_json(value: object, kind: TypeAdapter[Any]) -> None:
    """Raise ``FormatError`` unless a JSON value matches a format."""
    version = value.get("format") if isinstance(value, dict) else FORMAT
    if type(version) is int and version != FORMAT:
        raise FormatError(
            f"its format version is {version}, expected {FORMAT}. Another version of cupydrive "
            "wrote it"
        )
    try:
        kind.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise FormatError(
            f"{where} is {shown(first['input'])}: {first['msg'][0].lower()}{first['msg'][1:]}"
        ) from None
