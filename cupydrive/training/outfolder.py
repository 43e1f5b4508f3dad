"""The folder that ``train(out=...)`` writes: whether it is free, goes on with the run it holds, or begins anew."""

import shlex
import tempfile

from cupydrive.errors import ParameterError, TrainingError
from cupydrive.executors import checked_device
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import file_errors
from cupydrive.training.runfolder import (
    POPULATION_FILE,
    ForeignMetricsError,
    checkpoints,
    read_config,
    read_metrics,
    taken,
)

EVENTS = "events.out.tfevents.*"  # TensorBoard's files


def check_folder(out, written=True):
    """Raise ``TrainingError`` if ``out`` can be no folder, or, where it is to be ``written``, that looks impossible."""
    if out.exists() and not out.is_dir():
        raise TrainingError(f"out = {str(out)!r} is a file; pass a folder")
    near = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not near.is_dir():
        raise TrainingError(f"out = {str(out)!r} cannot be made: {str(near)!r} is a file; pass another folder")
    if written:
        with file_errors(
            TrainingError, f"out = {str(out)!r}: nothing can be written to {str(near)!r}; pass another folder"
        ):
            tempfile.TemporaryFile(dir=near).close()


def check_single(out):
    """Raise ``TrainingError`` if ``out`` holds a population: a run of its own would hide in it."""
    if (out / POPULATION_FILE).exists():
        raise taken(
            f"out = {str(out)!r} holds a population",
            "Pass seeds= or members= with resume=True, or another folder",
            "Pass --seeds with --resume, or another --out",
        )


def check_own(out):
    """Raise ``TrainingError`` if a file that a run writes is there already, and no run's: whose it is, nobody knows."""
    if checkpoints(out):  # a run, if perhaps a damaged one
        return
    foreign = []
    if (out / "config.json").exists():
        try:
            read_config(out)
        except TrainingError:
            foreign.append("config.json")
    metrics = out / "metrics.jsonl"
    try:
        is_foreign = metrics.exists() and not read_metrics(out) and (not metrics.is_file() or metrics.stat().st_size)
    except ForeignMetricsError:
        is_foreign = True
    if is_foreign:
        foreign.append("metrics.jsonl")
    if foreign:
        raise taken(
            f"{out} holds {' and '.join(foreign)} of something else, which a run would replace",
            "Pass another folder, or move it away",
            "Pass another --out, or move it away",
        )


def check_free(run, out):
    """Raise ``TrainingError`` if ``out`` holds another run than this one, with the calls that go on, or what is left of one."""
    if run.folder is not None and run.folder.resolve() == out.resolve():
        return
    if not checkpoints(out):
        if rows := read_metrics(out):  # the first checkpoint is written before them
            back = f"Put those of that run back into {out / 'checkpoints'}; replace it, its metrics too: "
            raise taken(
                f"{out} holds the metrics of a run of {rows[-1]['charts/global_step']:,} env-steps, and no checkpoint to go on "
                "from",
                f"{back}overwrite=True; or pass another folder",
                f"{back}--overwrite; or pass another --out",
            )
        return
    env, done = read_config(out)["env"], int(checkpoints(out)[-1].stem)
    raise taken(
        f"{out} holds a run of {env!r} already, of {done:,} env-steps",
        f"Go on with it: train(..., out=..., resume=True), or train(cupydrive.load({str(out)!r}), steps=...) for more steps; "
        "replace it: overwrite=True; or pass another folder",
        "Go on with it: --resume; for more steps without a name: cupydrive train --resume --steps N --out "
        f"{shlex.quote(str(out))}; replace it: --overwrite; or pass another --out",
    )


def clear(out):
    """Remove the checkpoints and event files of a run; the rest of them is written anew, and other files stay."""
    with file_errors(TrainingError, f"the run in {out} cannot be replaced"):
        damaged = (out / "checkpoints").glob("[0-9]*.damaged")
        for path in (*checkpoints(out), *damaged, *out.glob(EVENTS)):
            path.unlink(missing_ok=True)


def refuse_for_run(run, refused, params, device, where="train"):
    """Raise ``ParameterError`` for arguments of ``train(run)`` that a run brings itself.

    Args:
        run: The ``Run``.
        refused: Values by name of arguments that must be None or False.
        params: Environment parameters and unknown names: there must be none.
        device: Must be ``"auto"`` or the run's own.
        where: What has these arguments, for the message.
    """
    for name, value in (*refused.items(), *params.items()):
        if name in params or (value is not None and value is not False):
            raise ParameterError(
                f"{where}(run, {name}={shown(value)}): a run brings its environment, policies, sizes and seed; leave {name} "
                "out, or begin a new run with the environment's name"
            )
    if checked_device(device, "train") not in ("auto", run.device):
        raise ParameterError(
            f"train(run, device={shown(device)}): the run is on {run.device}; save it and load it there: "
            "cupydrive.load(folder, device=...)"
        )
