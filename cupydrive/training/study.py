"""What Optuna does for a sweep: it prunes, and keeps all trials in one file of JSON lines that can be gone on with."""

import json
import warnings

from cupydrive.errors import TrainingError
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import file_errors
from cupydrive.training.outfolder import taken

FILE, STUDY, ABOUT, ALONE = "sweep.jsonl", "sweep", "cupydrive", "alone"
PRUNERS = ("median", "halving", "hyperband")
HALVINGS = 3  # of a trial's env-steps: the first rung is an eighth of them
STARTUP = 5  # trials that are done before the median of such trials prunes


# ---- who prunes ------------------------------------------------------------------------------------------------------


def rungs(steps, pruner):
    """Return the env-steps at which trials are compared, and the last of them, at which they are done.

    Args:
        steps: Of a whole trial.
        pruner: One of ``PRUNERS``, or None: they are compared at the end alone.
    """
    first = -(-steps // 2**HALVINGS)
    compared = [first * 2**k for k in range(HALVINGS)] if pruner else []
    return [*(rung for rung in compared if rung < steps), steps]


def make_pruner(name, steps):
    """Return Optuna's pruner, whose resource are env-steps.

    Optuna judges trials one by one. The median of the trials that are done does not depend on the order within a batch; of
    halving and Hyperband the first trial that comes to a rung always passes it.
    """
    from optuna import pruners

    first = -(-steps // 2**HALVINGS)
    if name == "median":
        return pruners.MedianPruner(n_startup_trials=STARTUP)
    if name == "halving":
        return pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=2)
    if name == "hyperband":
        return pruners.HyperbandPruner(min_resource=first, max_resource=first * 2**HALVINGS, reduction_factor=2)
    return pruners.NopPruner()


# ---- the file --------------------------------------------------------------------------------------------------------


def finished(study):
    """Return the trials that are done or were pruned, in the order in which they were begun."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def opened(out, about, seed, resume):
    """Return the study of a folder, new or to go on with.

    Args:
        out: Folder.
        about: What the sweep is made of, as JSON can hold it; ``mark``, ``pruner`` and ``steps`` among it.
        seed: Of the sampler.
        resume: A study that is there may be gone on with.

    Raises:
        TrainingError: If there is one that is not to go on, is damaged, or is of another sweep; nothing is written then.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path, about = out / FILE, json.loads(json.dumps(about))
    exists = path.exists()
    if exists and not resume:
        raise taken(
            f"out = {str(out)!r} holds a sweep already",
            "Go on with it: resume=True; or pass another folder",
            "Go on with it: --resume; or pass another --out",
        )
    with file_errors(TrainingError, f"out = {str(out)!r}: the sweep cannot be kept there"):
        out.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            how = {"study_name": STUDY, "sampler": sampler, "pruner": make_pruner(about["pruner"], about["steps"])}
            try:
                storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
                if not exists:
                    way = "maximize" if about["mark"] is None else "minimize"
                    study = optuna.create_study(storage=storage, direction=way, **how)
                    study.set_user_attr(ABOUT, about)
                    return study
                study = optuna.load_study(storage=storage, **how)
                known = study.user_attrs[ABOUT]
            except (KeyError, ValueError, TypeError, AttributeError, IndexError, AssertionError) as error:
                raise TrainingError(
                    f"{path} is damaged, or no file of a sweep ({error}); pass another folder"
                ) from None
    for name, mine in about.items():
        if not isinstance(known, dict) or known.get(name) != mine:
            theirs = known.get(name) if isinstance(known, dict) else known
            raise TrainingError(
                f"{path} is of another sweep: {name} is {shown(theirs)} there, and {shown(mine)} was asked for; pass another "
                "folder"
            )
    # What is drawn next must not repeat what this seed drew first.
    study.sampler.reseed_rng()
    return study
