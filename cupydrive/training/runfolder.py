"""The files of a run folder: ``config.json``, ``metrics.jsonl`` and ``checkpoints/STEP.pt``.

Files are written under a temporary name, synced and renamed, so that a kill at any moment leaves the last complete one.
``config.json`` carries the SHA-256 of its content. Checkpoints hold tensors, numbers and strings only. Their CRC-32 is checked
before torch reads them with ``weights_only=True``, so that loading runs no code. A writer holds the folder's lock.
"""

import hashlib
import io
import json
import os
import pickle
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch

from cupydrive.errors import CupydriveWarning, TrainingError, did_you_mean
from cupydrive.inputs.archive import brief, check_archive
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import as_path, file_errors, open_file, read_file
from cupydrive.inputs.formats import (
    CHECKPOINT,
    CONFIG,
    FORMAT,
    METRICS,
    MOST_JSON,
    FormatError,
    check,
    explained,
    read_json,
)
from cupydrive.inputs.locks import lock

POPULATION_FILE = "population.json"  # in a folder of several runs
MOST_RUNS = 10  # that a message lists
MOST_METRICS = 2**30  # bytes of metrics.jsonl
# Tensors of a run that count, and that kernels compute places from.
COUNTERS = ("iteration", "written", "filled", "pool.taken", "pool.waited")


class ForeignMetricsError(TrainingError):
    """No line of a file is a row of metrics: it is no run's."""


def checkpoints(folder):
    """Return the checkpoint files of a run folder, oldest first.

    Raises:
        TrainingError: If ``folder`` is no path.
    """
    with file_errors(TrainingError, f"{shown(folder)} cannot be a run folder"):
        found = (as_path(folder) / "checkpoints").glob("[0-9]*.pt")
        return sorted((p for p in found if p.stem.isdecimal()), key=lambda p: int(p.stem))


def check_newest(folder, step, passed_over):
    """Raise ``TrainingError`` if ``folder`` holds a checkpoint from after the present moment of the run that writes there.

    Args:
        folder: Run folder.
        step: Env-steps that the run has done.
        passed_over: Damaged checkpoints, newer than the one that the run was read from.
    """
    newer = [p for p in checkpoints(folder) if int(p.stem) > step and p.resolve() not in passed_over]
    if newer:
        raise TrainingError(
            f"{folder} holds a checkpoint of env-step {int(newer[-1].stem):,}, and this run has done {step:,}: another run has "
            f"written there. Go on with that one, cupydrive.load({str(folder)!r}), or pass another folder"
        )


def not_written(folder):
    """Return the beginning of an error of the disk: that a run cannot be written, and what is kept if something is."""
    return f"the run cannot be written to {folder}" + " (earlier checkpoints are kept)" * bool(checkpoints(folder))


def runs_near(folder):
    """Return in words which runs there are in ``folder``, beside it and in runs/, and which one may be meant; or nothing."""
    folder, files = Path(folder), ("config.json", POPULATION_FILE)
    places = folder, folder.parent, Path("runs")
    near = sorted({file.parent for place in places for name in files for file in place.glob(f"*/{name}")})
    if not near:
        return ""
    listed = ", ".join(map(str, near[:MOST_RUNS])) + f" and {len(near) - MOST_RUNS} more" * (len(near) > MOST_RUNS)
    alike = [str(path) for path in near if did_you_mean(folder.name, [path.name])]  # all of one folder look alike
    return f"{did_you_mean(str(folder), alike)} Runs here: {listed}"


def run_above(path):
    """Return in words which run folder a path lies in, as its checkpoints do, or an empty string."""
    above = next((folder for folder in Path(path).parents[:2] if (folder / "config.json").is_file()), None)
    return "" if above is None else f"; the run folder that it lies in is {shown(str(above))}"


def taken(says, python, shell):
    """Return the ``TrainingError`` of a folder that holds something else: what it says, then fixes in Python or in a shell."""
    error = TrainingError(f"{says}. {python}")
    error.shell = f"{says}. {shell}"
    return error


def read_config(folder):
    """Return the configuration of a run folder.

    Raises:
        TrainingError: If there is none, or it is not what ``formats.CONFIG`` says.
    """
    with file_errors(TrainingError, f"{shown(folder)} cannot be a run folder"):
        path = as_path(folder) / "config.json"
        is_file, is_population = as_path(folder).is_file(), (as_path(folder) / POPULATION_FILE).is_file()
        is_there = path.exists()
    if is_file:
        raise TrainingError(
            f"{folder} is a file, not a run folder; Recording.load reads a recording, Snapshot.load a snapshot"
            f"{run_above(folder)}"
        )
    if is_population:
        raise TrainingError(
            f"{folder} holds a population; cupydrive.load reads it, and {as_path(folder) / '000'} is its first run"
        )
    if not is_there:
        what = "has no config.json" if as_path(folder).is_dir() else "does not exist"
        others = runs_near(folder) or " One is made by: cupydrive.train(NAME, out=DIR)"
        raise TrainingError(f"{folder} is no run folder: it {what}{run_above(folder)}.{others}")
    with file_errors(TrainingError, f"{folder} is no run folder: {path} cannot be read"):
        content = read_file(path, MOST_JSON)
    fix = "Put the file back as it was"
    try:
        config = read_json(content, CONFIG)
        sha256 = config.pop("sha256", None)
        if sha256 not in (None, config_hash(config)):
            fix += ", or, if you have edited it, delete its entry 'sha256'"
            raise FormatError("its content does not have the SHA-256 that it states")
    except FormatError as error:
        raise TrainingError(explained(path, "configuration of a run", error, fix)) from None
    return config


def pack_config(config: dict) -> bytes:
    """Return the content of ``config.json``: what ``Run.as_json`` returns, and its SHA-256."""
    plain = json.loads(json.dumps(config))
    return json.dumps(plain | {"sha256": config_hash(plain)}, indent=1).encode() + b"\n"


def config_hash(config: dict) -> str:
    """Return the SHA-256 of a configuration, whatever its layout as text."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def read_checkpoint(folder, env, older=False):
    """Return the content of the last checkpoint; tensors are on the CPU.

    With ``older``, warns if it is not the last one, and why.

    Args:
        folder: Run folder.
        env: Name of the environment that it must belong to.
        older: Where the last one cannot be read, return the last one that can: who goes on training loses less so.

    Returns:
        A dictionary of ``env``, ``step``, ``tensors``, and ``passed_over``: the newer files that cannot be read.

    Raises:
        TrainingError: If there is none, it cannot be read, or it belongs to another environment.
    """
    files = checkpoints(folder)
    if not files:
        raise TrainingError(f"{folder} holds no checkpoint; train with out={str(folder)!r} to make one")
    problems = []
    for path in reversed(files):
        try:
            saved = load_checkpoint(path)
        except (OSError, FormatError) as error:
            problems.append((path, getattr(error, "strerror", None) or str(error)))
            continue
        if saved["env"] != env:
            raise TrainingError(f"{path} belongs to environment {saved['env']!r}, not {env!r}")
        if problems and not older:
            said = "; ".join(f"{damaged} is damaged: {why}" for damaged, why in problems)
            raise TrainingError(
                f"{said}. The one before it, of {saved['step']:,} env-steps, is whole: move "
                f"{' and '.join(damaged.name for damaged, _ in problems)} away to read that one"
            )
        if problems:
            warnings.warn(
                f"{folder}: {path.name} is read instead of a newer checkpoint that is damaged ({listed(problems)})",
                CupydriveWarning,
                stacklevel=5,  # of train(..., resume=True)
            )
        return {**saved, "passed_over": files[len(files) - len(problems) :]}
    raise TrainingError(f"no checkpoint of {folder} can be read: {listed(problems)}. Train anew, into another folder")


def listed(problems):
    """Return in words which checkpoints cannot be read, and why: pairs of a path and a reason."""
    return "; ".join(f"{path.name}: {why}" for path, why in problems)


def pack_checkpoint(env: str, step: int, tensors: dict[str, torch.Tensor]) -> io.BytesIO:
    """Return the content of a checkpoint file.

    Args:
        env: Name of the environment.
        step: Env-steps done.
        tensors: What ``Run.snapshot`` returns.
    """
    content, with_crc32 = io.BytesIO(), torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(True)  # a user's program may have turned it off
    try:
        torch.save({"format": FORMAT, "env": env, "step": step, "tensors": tensors}, content)
    finally:
        torch.serialization.set_crc32_options(with_crc32)
    return content


def load_checkpoint(path: Path) -> dict:
    """Return what one checkpoint file holds.

    Raises:
        OSError: If it cannot be read.
        FormatError: If it is no checkpoint, or damaged.
    """
    with open_file(path) as file:
        return unpack_checkpoint(file, os.fstat(file.fileno()).st_size)


def unpack_checkpoint(file: BinaryIO, size: int) -> dict:
    """Return what a checkpoint of ``size`` bytes in an open file holds; tensors are on the CPU.

    Raises:
        FormatError: If it is no checkpoint, or damaged.
    """
    check_archive(file, size, stored=True)
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile pickle fails in many ways
        words = "it holds something else than tensors, numbers and strings, or is damaged"  # torch advises to trust it
        said = words if isinstance(error, pickle.UnpicklingError) else brief(error)
        raise FormatError(f"torch cannot read it ({said})") from None
    check(saved, CHECKPOINT, "it")
    for name, tensor in saved["tensors"].items():
        if not is_plain(tensor):
            raise FormatError(f"{shown(name)} is no ordinary tensor")
    return saved


def is_plain(tensor: object) -> bool:
    """Return whether a value is a dense tensor on the CPU."""
    is_tensor = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return is_tensor and tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized


def fitting_arrays(kept, own, arrays, limit):
    """Return the environments' arrays of a checkpoint, once all of it is known to fit a run; nothing is written.

    Args:
        kept: Tensors of the checkpoint by name; those of the environments are their bytes, ``env/NAME``.
        own: The run's tensors by name.
        arrays: The arrays of its environments by name.
        limit: Steps of an episode at most.

    Returns:
        NumPy arrays of the shapes and types of ``arrays``.

    Raises:
        TrainingError: If a name, shape, type or range is another.
    """
    if not isinstance(kept, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in kept.values()):
        raise TrainingError(f"kept = {shown(kept)}; it must be tensors by name, as Run.snapshot() returns them")
    expected = {*own, *(f"env/{name}" for name in arrays)}
    if set(kept) != expected:
        raise TrainingError(
            f"the checkpoint does not fit this run: it differs in {shown(sorted(set(kept) ^ expected, key=str)[:6])}"
        )
    for name, array in arrays.items():
        saved = kept[f"env/{name}"]
        if saved.dtype != torch.uint8 or saved.shape != (array.nbytes,):
            raise TrainingError(
                f"the checkpoint's {name} is {saved.dtype} {tuple(saved.shape)}, this run's has {array.nbytes} bytes"
            )
    for name, tensor in own.items():
        saved = kept[name]
        if tensor.shape != saved.shape or tensor.dtype != saved.dtype:
            raise TrainingError(
                f"the checkpoint's {name} is {saved.dtype} {tuple(saved.shape)}, this run's is {tensor.dtype} "
                f"{tuple(tensor.shape)}; the environment or the settings have changed since"
            )
        if name.rpartition("/")[2] in COUNTERS and not 0 <= int(saved.min()) <= int(saved.max()) < 2**62:
            raise TrainingError(f"the checkpoint's {name} is {saved.tolist()}; it must count from 0")
    new = {
        name: kept[f"env/{name}"].contiguous().numpy().view(array.dtype).reshape(array.shape)
        for name, array in arrays.items()
    }
    elapsed = new["clock"]["elapsed"]
    if elapsed.min() < 0 or elapsed.max() >= limit:
        raise TrainingError(
            f"the checkpoint's environments have done {elapsed.min()} to {elapsed.max()} steps; it must be 0 to {limit - 1}"
        )
    return new


def read_metrics(folder):
    """Return the rows of a run folder's metrics, [] without any; a last line cut short by a kill is left out.

    Raises:
        TrainingError: If the file cannot be read, or a line is not what ``formats.METRICS`` says.
    """
    path = Path(folder) / "metrics.jsonl"
    if not os.path.lexists(path):
        return []
    words = "Move the file away to go on without the learning curve so far"
    with file_errors(TrainingError, f"{path} cannot be read ({words})"):
        content = read_file(path, MOST_METRICS)
    try:
        return unpack_metrics(content)
    except FormatError as error:
        if not any(map(is_row, content.split(b"\n"))):
            raise ForeignMetricsError(f"{path} is of something else: no line of it is a run's. {words}") from None
        raise TrainingError(f"{path}, {error}. {words}") from None


def is_row(line):
    """Return whether a line of bytes is a row of metrics."""
    try:
        row = read_json(line, METRICS, finite=False)
    except FormatError:
        return False
    return type(row.get("charts/global_step")) is int


def pack_metrics(rows):
    """Return rows of metrics as bytes, one line of JSON each."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def unpack_metrics(content):
    """Return the rows of metrics that bytes hold; a last line cut short by a kill is left out.

    Raises:
        FormatError: If a line is not what ``formats.METRICS`` says.
    """
    rows, lines = [], content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line:
            break
        try:
            row = read_json(line, METRICS, finite=False)
            step = row.get("charts/global_step")
            if type(step) is not int or step < 0 or (rows and step < rows[-1]["charts/global_step"]):
                raise FormatError(f"charts/global_step is {shown(step)}; it must be an int that never falls")
        except FormatError as error:
            if number == len(lines):
                break
            raise FormatError(f"line {number} is damaged: {error}") from None
        rows.append(row)
    return rows


class FolderLock:
    """Whether a run writes into its folder: one writer at a time, over all threads and processes.

    The lock is the operating system's on the file ``.lock``, and is released when the process dies, however it does.
    """

    def __init__(self):
        self._held = None

    @contextmanager
    def hold(self, folder):
        """Hold the lock of ``folder`` for a while; a run that holds it already goes on.

        Raises:
            TrainingError: If another run writes into the folder, or it cannot be locked.
        """
        folder = Path(folder).resolve()
        if self._held == folder:
            yield
            return
        with file_errors(TrainingError, f"{folder} cannot be locked for writing; pass a folder of a local disk"):
            descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        before = self._held
        try:
            with file_errors(TrainingError, f"{folder} cannot be locked for writing; pass a folder of a local disk"):
                try:
                    lock(descriptor, wait=False)
                except BlockingIOError:
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    writer = os.read(descriptor, 100).decode(errors="replace").strip()
                    writer = writer if writer.isprintable() and writer else "unknown"
                    raise TrainingError(
                        f"{folder} is being written by another run (process {writer}); wait for it, stop it, or pass another "
                        "folder"
                    ) from None
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, f"{os.getpid()}\n".encode())  # for the message above
            self._held = folder
            yield
        finally:
            self._held = before
            os.close(descriptor)
