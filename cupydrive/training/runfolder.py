"""The files of a run folder: ``config.json``, ``metrics.jsonl`` and ``checkpoints/STEP.pt``.

Files are written under a temporary name, synced and renamed, so that a kill at any moment leaves
the last complete one. ``config.json`` contains the SHA-256 of its content. Checkpoints contain only
tensors, numbers and strings. Their CRC-32 is checked before torch reads them with
``weights_only=True``, so that loading executes no code. A writer holds the folder's lock.
"""

import hashlib
import io
import json
import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np
import torch
from torch.utils.serialization import config as torch_config

from cupydrive.errors import TrainingError
from cupydrive.inputs.archive import brief, check_archive
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import as_path, file_errors, read_file
from cupydrive.inputs.formats import (
    CHECKPOINT,
    CONFIG,
    FORMAT,
    METRICS,
    MOST_JSON,
    FormatError,
    check_json,
    explained,
    read_json,
)
from cupydrive.inputs.locks import lock

POPULATION_FILE = "population.json"  # in a folder with several runs
FIRST_OF_ROW = b'{"charts/global_step": '  # start of each line that pack_metrics writes
MOST_METRICS = 2**30  # maximum size of metrics.jsonl in bytes
# Counters of a run from which kernels compute addresses.
COUNTERS = ("iteration", "written", "filled", "pool.taken", "pool.waited")


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint files of a run folder, oldest first.

    Raises:
        TrainingError: If ``folder`` is not a valid path.
    """
    with file_errors(TrainingError, f"{shown(folder)} cannot be a run folder"):
        found = (as_path(folder) / "checkpoints").glob("[0-9]*.pt")
        return sorted((p for p in found if p.stem.isdecimal()), key=lambda p: int(p.stem))


# ---- checks before writing -----------------------------------------------------------------------


def check_folder(out: Path, written: bool = True) -> None:
    """Raise ``TrainingError`` if ``out`` cannot be a folder or, with ``written``, is read-only."""
    with file_errors(
        TrainingError, f"out = {str(out)!r}: the folder is not writable. Pass another folder"
    ):
        near = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
        if written or not near.is_dir():
            tempfile.TemporaryFile(dir=near).close()


def check_free(own: Path | None, out: Path, overwrite: bool) -> None:
    """Raise ``TrainingError`` if ``out`` holds foreign files, or a run that must not be replaced.

    Args:
        own: Folder of the run that will write there, or None.
        out: Folder to write.
        overwrite: Whether another run in ``out`` may be replaced.
    """
    if own is not None and own.resolve() == out.resolve():
        return
    files = checkpoints(out)
    if not files and ((out / "config.json").exists() or (out / POPULATION_FILE).exists()):
        read_config(out)  # raises if another program wrote the file
    rows = [] if files else read_metrics(out)
    if overwrite or not (files or rows):
        return
    what = (
        f"a run of {int(files[-1].stem):,} env-steps"
        if files
        else "the metrics of a run and no checkpoint"
    )
    raise TrainingError(
        f"out = {str(out)!r} holds {what}. Continue it with resume=True (--resume), replace it "
        "with overwrite=True (--overwrite), or pass another folder"
    )


def clear(out: Path) -> None:
    """Remove the checkpoints and event files of a run.

    Its remaining files are rewritten later. Other files are kept.
    """
    with file_errors(TrainingError, f"the run in {out} cannot be replaced"):
        for path in (*checkpoints(out), *out.glob("events.out.tfevents.*")):
            path.unlink(missing_ok=True)


def check_newest(folder: Path, step: int) -> None:
    """Raise ``TrainingError`` if ``folder`` holds a checkpoint after ``step`` environment steps."""
    files = checkpoints(folder)
    if files and int(files[-1].stem) > step:
        raise TrainingError(
            f"{folder} holds a checkpoint of env-step {int(files[-1].stem):,}, and this run has "
            f"done {step:,}: another run has written there. Continue that one with "
            f"cupydrive.load({str(folder)!r}), or pass another folder"
        )


def not_written(folder: Path) -> str:
    """Return the first words of a disk error, which mention checkpoints that are kept."""
    return f"the run cannot be written to {folder}" + " (earlier checkpoints are kept)" * bool(
        checkpoints(folder)
    )


# ---- configuration -------------------------------------------------------------------------------


def read_config(folder: Path) -> dict:
    """Read the configuration of a run folder.

    Raises:
        TrainingError: If the file is missing or does not match ``formats.CONFIG``.
    """
    with file_errors(TrainingError, f"{shown(folder)} cannot be a run folder"):
        path = as_path(folder) / "config.json"
        if (as_path(folder) / POPULATION_FILE).is_file():
            raise TrainingError(
                f"{folder} holds a population. Read it with cupydrive.load, or pass its first run, "
                f"{as_path(folder) / '000'}"
            )
        if not path.exists():
            raise TrainingError(
                f"{folder} is not a run folder: {path} is missing. Pass a folder that "
                f"cupydrive.train(NAME, out=FOLDER) wrote"
            )
        content = read_file(path, MOST_JSON)
    fix = "Restore the file, pass another folder"
    try:
        config = read_json(content, CONFIG)
        sha256 = config.pop("sha256", None)
        if sha256 not in (None, config_hash(config)):
            fix += ", or, if you have edited it, delete its entry 'sha256'"
            raise FormatError("SHA-256 mismatch: its entry 'sha256' is not that of its content")
    except FormatError as error:
        raise TrainingError(explained(path, "configuration of a run", error, fix)) from None
    return config


def pack_config(config: dict) -> bytes:
    """Return the content of ``config.json``: the result of ``Run.as_json`` and its SHA-256."""
    plain = json.loads(json.dumps(config))
    return json.dumps(plain | {"sha256": config_hash(plain)}, indent=1).encode() + b"\n"


def config_hash(config: dict) -> str:
    """Return the SHA-256 of a configuration, independent of its formatting."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


# ---- checkpoints ---------------------------------------------------------------------------------


class Checkpoint(TypedDict):
    """Content of a checkpoint file. ``tensors`` is the result of ``Run.snapshot``."""

    env: str
    step: int
    tensors: dict[str, torch.Tensor]


def read_checkpoint(folder: Path, env: str) -> Checkpoint:
    """Read the last checkpoint of a run of the environment ``env``, with tensors on the CPU.

    Raises:
        TrainingError: If there is no checkpoint, it cannot be read, or it belongs to another
            environment.
    """
    files = checkpoints(folder)
    if not files:
        raise TrainingError(f"{folder} holds no checkpoint. Train with out=FOLDER to create one")
    try:
        saved = load_checkpoint(files[-1])
    except (OSError, FormatError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"{files[-1]} is damaged: {reason}. Move it away to continue from the one before it"
        ) from None
    if saved["env"] != env:
        raise TrainingError(f"{files[-1]} belongs to environment {saved['env']!r}, not {env!r}")
    return saved


def pack_checkpoint(env: str, step: int, tensors: dict[str, torch.Tensor]) -> io.BytesIO:
    """Return the content of a checkpoint file.

    Args:
        env: Name of the environment.
        step: Environment steps done.
        tensors: Result of ``Run.snapshot``.
    """
    content = io.BytesIO()
    with torch_config.patch("save.compute_crc32", True):  # a user's program may have turned it off
        torch.save({"format": FORMAT, "env": env, "step": step, "tensors": tensors}, content)
    return content


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint file.

    Raises:
        OSError: If the file cannot be read.
        FormatError: If it is not a checkpoint, or damaged.
    """
    with open(path, "rb") as file:
        return unpack_checkpoint(file, os.fstat(file.fileno()).st_size)


def unpack_checkpoint(file: BinaryIO, size: int) -> Checkpoint:
    """Read a checkpoint of ``size`` bytes from an open file, with tensors on the CPU.

    Raises:
        FormatError: If it is not a checkpoint, or damaged.
    """
    check_archive(file, size)
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a malicious pickle can raise any exception
        # torch's own message recommends weights_only=False, so it is replaced.
        words = "it holds other objects than tensors, numbers and strings, or is damaged"
        said = words if isinstance(error, pickle.UnpicklingError) else brief(error)
        raise FormatError(f"torch cannot read it ({said})") from None
    check_json(saved, CHECKPOINT)
    for name, tensor in saved["tensors"].items():
        if not is_plain(tensor):
            raise FormatError(f"{shown(name)} is not a dense CPU tensor")
    return saved


def is_plain(tensor: Any) -> bool:
    """Return whether a value is a dense tensor on the CPU."""
    is_tensor = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return (
        is_tensor
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
    )


def fitting_arrays(
    kept: dict[str, torch.Tensor],
    own: dict[str, torch.Tensor],
    arrays: dict[str, np.ndarray],
    limit: int,
) -> dict[str, np.ndarray]:
    """Check that a checkpoint fits a run, and return the arrays of its environments.

    Nothing is written to the run.

    Args:
        kept: Tensors of the checkpoint by name. Those of the environments, ``env/NAME``, are bytes.
        own: The run's tensors by name.
        arrays: The arrays of the run's environments by name.
        limit: Maximum number of steps of an episode.

    Returns:
        NumPy arrays with the shapes and types of ``arrays``.

    Raises:
        TrainingError: If a name, shape, type or range differs.
    """
    if not isinstance(kept, dict) or not all(
        isinstance(tensor, torch.Tensor) for tensor in kept.values()
    ):
        raise TrainingError(
            f"invalid checkpoint: got {shown(kept)}, expected a dict of tensors by name, as "
            "returned by Run.snapshot()"
        )
    expected = {name: f"{tensor.dtype} {tuple(tensor.shape)}" for name, tensor in own.items()}
    expected |= {
        f"env/{name}": f"{torch.uint8} {(array.nbytes,)}" for name, array in arrays.items()
    }
    found = {name: f"{tensor.dtype} {tuple(tensor.shape)}" for name, tensor in kept.items()}
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise TrainingError(
                f"the checkpoint does not fit this run: its {name} is {found.get(name)}, expected "
                f"{expected.get(name)}. The environment or the settings have changed since"
            )
    for name in own:
        if (
            name.rpartition("/")[2] in COUNTERS
            and not 0 <= int(kept[name].min()) <= int(kept[name].max()) < 2**62
        ):
            raise TrainingError(
                f"the checkpoint's {name}: got {kept[name].tolist()}, expected a count from 0"
            )
    new = {
        name: kept[f"env/{name}"].contiguous().numpy().view(array.dtype).reshape(array.shape)
        for name, array in arrays.items()
    }
    elapsed = new["clock"]["elapsed"]
    if elapsed.min() < 0 or elapsed.max() >= limit:
        raise TrainingError(
            f"steps of the checkpoint's environments: got {elapsed.min()} to {elapsed.max()}, "
            f"expected 0 to {limit - 1}"
        )
    return new


# ---- metrics -------------------------------------------------------------------------------------


def read_metrics(folder: Path) -> list[dict]:
    """Read the metrics of a run folder. The result is [] if there is no file.

    An incomplete last line, left by a kill, is skipped.

    Raises:
        TrainingError: If the file cannot be read, or a line does not match ``formats.METRICS``.
    """
    path = Path(folder) / "metrics.jsonl"
    if not path.exists():
        return []
    fix = "Move the file away to go on without the learning curve so far"
    with file_errors(TrainingError, f"{path} cannot be read ({fix})"):
        content = read_file(path, MOST_METRICS)
    try:
        return unpack_metrics(content)
    except FormatError as error:
        raise TrainingError(explained(path, "table of a run's metrics", error, fix)) from None


def pack_metrics(rows: list[dict]) -> bytes:
    """Serialize rows of metrics, one line of JSON each."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def unpack_metrics(content: bytes) -> list[dict]:
    """Parse rows of metrics. An incomplete last line, left by a kill, is skipped.

    Raises:
        FormatError: If a line does not match ``formats.METRICS``.
    """
    rows: list[dict[str, Any]] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line:
            break
        try:
            row = read_json(line, METRICS)
            step = row.get("charts/global_step")
            if (
                type(step) is not int
                or step < 0
                or (rows and step < rows[-1]["charts/global_step"])
            ):
                raise FormatError(
                    f"charts/global_step: got {shown(step)}, expected an int that never decreases"
                )
        except FormatError as error:
            if number == len(lines) and (
                rows or FIRST_OF_ROW.startswith(line[: len(FIRST_OF_ROW)])
            ):
                break
            raise FormatError(f"line {number} is damaged: {error}") from None
        rows.append(row)
    return rows


class FolderLock:
    """Lock of a run folder: one writer at a time among all threads and processes.

    It is an operating-system lock on the file ``.lock``, released whenever the process dies.
    """

    def __init__(self) -> None:
        self._held: Path | None = None

    @contextmanager
    def hold(self, folder: Path) -> Iterator[None]:
        """Hold the lock of ``folder`` for the duration of the context. The lock is reentrant.

        Raises:
            TrainingError: If another run writes into the folder, or it cannot be locked.
        """
        folder = Path(folder).resolve()
        if self._held == folder:
            yield
            return
        before = self._held
        with ExitStack() as opened:
            with file_errors(
                TrainingError,
                f"{folder} cannot be locked for writing. Pass a folder on a local disk",
            ):
                file = opened.enter_context(open(folder / ".lock", "a+b", buffering=0))
                try:
                    lock(file.fileno(), wait=False)
                except BlockingIOError:
                    file.seek(0)
                    raise TrainingError(
                        f"{folder} is being written by another run (process "
                        f"{file.read(20).decode(errors='replace').strip()}). Wait for it, stop "
                        f"it, or pass another folder"
                    ) from None
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())  # read by the message above
            self._held = folder
            try:
                yield
            finally:
                self._held = before
