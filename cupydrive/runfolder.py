"""The files of a run folder: ``config.json``, ``metrics.jsonl`` and ``checkpoints/STEP.pt``.

Files are written under a temporary name, synced and renamed, so that a kill at any moment leaves the last complete one.
Checkpoints hold tensors, numbers and strings only and are read with ``weights_only=True``: loading runs no code.
"""

import json
from pathlib import Path

import torch

from cupydrive.errors import TrainingError

FORMAT = 1


def checkpoints(folder):
    """Return the checkpoint files of a run folder, oldest first."""
    return sorted((Path(folder) / "checkpoints").glob("[0-9]*.pt"))


def read_config(folder):
    """Return the configuration of a run folder."""
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text())
        version = config["format"]
    except OSError as error:
        raise TrainingError(f"{folder} is no run folder: {path} cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise TrainingError(f"{path} is damaged: it is no configuration of a run") from None
    if version > FORMAT:
        raise TrainingError(
            f"{folder} has format {version}, written by cupydrive {config.get('cupydrive')}; this one reads up to {FORMAT}. "
            "Install the newer version"
        )
    return config


def read_checkpoint(folder, env):
    """Return the content of the last checkpoint that can be read; tensors are on the CPU."""
    files = checkpoints(folder)
    if not files:
        raise TrainingError(f"{folder} holds no checkpoint; train with out={str(folder)!r} to make one")
    problems = []
    for path in reversed(files):
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # what torch raises for a damaged file has many types
            problems.append(f"{path.name}: {type(error).__name__}: {str(error).splitlines()[0][:400]}")
            continue
        if saved.get("env") != env:
            raise TrainingError(f"{path} belongs to environment {saved.get('env')!r}, not {env!r}")
        return saved
    raise TrainingError(f"no checkpoint of {folder} can be read: {'; '.join(problems)}")


def read_metrics(folder):
    """Return the rows of a run folder's metrics; a last line cut short by a kill is left out."""
    rows = []
    try:
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    except OSError:
        return rows
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows
