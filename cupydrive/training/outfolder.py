"""The folder that ``train(out=...)`` writes: whether it is free, goes on with the run it holds, or begins anew."""

import json
import shlex
import tempfile
from dataclasses import fields

from cupydrive.errors import ParameterError, TrainingError
from cupydrive.executors import checked_device
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import file_errors
from cupydrive.spec import kept_params
from cupydrive.training.algorithms import ALGORITHMS
from cupydrive.training.frozen import describe
from cupydrive.training.run import Run
from cupydrive.training.runfolder import (
    POPULATION_FILE,
    ForeignMetricsError,
    checkpoints,
    read_config,
    read_metrics,
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


def taken(says, python, shell):
    """Return the ``TrainingError`` of a folder that holds something else: what it says, then fixes in Python or in a shell."""
    error = TrainingError(f"{says}. {python}")
    error.shell = f"{says}. {shell}"
    return error


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


def resumed(out, plan, given, share=1):
    """Return the run of ``out``, to go on with.

    Args:
        out: A folder that holds a run.
        plan: ``Plan`` of the run that the same arguments would begin.
        given: Names of the arguments that were given; the others are the run's.
        share: How many runs will share the device.

    Raises:
        TrainingError: If it cannot be loaded, or differs from what was asked for.
    """
    config = read_config(out)
    known = [("the environment", plan.spec.name, config["env"])]
    wanted = kept_params(plan.params)
    asked = [f.name for f in fields(plan.params) if f.name in given]
    known += [(name, wanted.get(name), config["params"].get(name)) for name in asked]
    known += [(name, getattr(plan, name), config[name]) for name in ("num_envs", "seed") if name in given]
    if "learner" in given:
        known.append(("learner", plan.learner, config["learner"]))
    policies = None
    if "policies" in given:
        policies = plan.policies
        known += [("the policies' groups", ", ".join(policies), ", ".join(config["policies"]))]
        for name, settings in policies.items():
            mine, theirs = json.loads(json.dumps(describe(settings))), config["policies"].get(name, {})
            known += [(f"{key} of policy {name!r}", value, theirs.get(key)) for key, value in mine.items()]
    differ = [
        f"{name} is {shown(theirs)} there, and {shown(mine)} was asked for"
        for name, mine, theirs in known
        if mine != theirs
    ]
    if differ:
        whole = " (PPO(...) and the like ask for their own defaults where they name nothing)" if len(differ) > 1 else ""
        raise taken(
            f"{out} holds a run whose settings differ: {'; '.join(differ)}{whole}",
            "Leave them out to go on with the run's, or pass overwrite=True or another folder",
            "Leave them out to go on with the run's, or pass --overwrite or another --out",
        )
    known = {None, *ALGORITHMS}  # modules and algorithms of the user's own are in no file
    own = {
        n: s for n, s in (policies or {}).items() if getattr(s, "policy", 0) or getattr(s, "name", None) not in known
    }
    return Run.load(out, plan.device, policies=own or None, env=plan.spec, share=share, older=True)


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
