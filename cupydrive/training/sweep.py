"""sweep(): trials of settings, drawn by Optuna from what earlier ones reached; each batch of them is a population.

Everything is kept in one file of JSON lines in the folder, which another process can go on with.
"""

import json
import math
import warnings
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec

from cupydrive.errors import ParameterError, TrainingError, did_you_mean
from cupydrive.executors import choose
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_count,
    checked_float,
    checked_int,
    checked_mapping,
    checked_path,
    checked_str,
    shown,
)
from cupydrive.inputs.files import file_errors
from cupydrive.protocols import LearnerSettings
from cupydrive.terminal.progress import counted
from cupydrive.training.population import setting_names, with_settings
from cupydrive.training.train import plan, suggested_algorithm, suggestions, train

FILE, STUDY, ABOUT = "sweep.jsonl", "sweep", "cupydrive"
RETURN = "charts/episodic_return"
MOST_TRIALS, MOST_BATCH = 100_000, 1000
MISSED = 2.0  # times the env-steps of a trial: what counts where it has not reached the mark
# What is tried by default, of the settings that an algorithm has: (low, high), (low, high, "log"), or a list of choices.
SPACE = {
    "learning_rate": (1e-4, 2e-2, "log"),
    "ent_coef": (1e-4, 0.1, "log"),
    "gamma": [0.9, 0.95, 0.98, 0.99, 0.995, 0.999],
    "gae_lambda": [0.8, 0.9, 0.95, 0.98, 1.0],
    "num_steps": [8, 16, 32, 64, 128],
    "num_minibatches": [1, 2, 4, 8],
    "update_epochs": (1, 10),
    "batch_size": [128, 256, 512],
}


@dataclass(frozen=True)
class Sweep:
    """What a sweep has found; ``cupydrive.sweep`` makes it.

    Args:
        env: Name.
        settings: The algorithm's, before trials change them.
        common: Further arguments of ``train`` that all trials have.
        trials: Optuna's finished trials, in the order in which they were begun: ``params`` and ``value`` of each.
        mark: The return whose env-steps count, or None: the return counts.
    """

    env: str
    settings: LearnerSettings
    common: dict
    trials: tuple
    mark: float | None

    @property
    def best(self):
        """The best trial: its ``params`` by name and its ``value``, a return or env-steps to the mark."""
        if not self.trials:
            raise ParameterError("no trial of the sweep is done yet; go on with resume=True")
        return (min if self.mark is not None else max)(self.trials, key=lambda trial: trial.value)

    def line(self):
        """Return the call that trains with the best settings, as one line to paste."""
        best, params = arguments(self.settings, self.best.params)
        others = ", ".join(f"{name}={value!r}" for name, value in (self.common | params).items())
        return f"cd.train({self.env!r}, {spelled(best)}, {others})"

    def plot(self):
        """Return a Matplotlib figure: what each trial reached, and the best until then."""
        from cupydrive.terminal.curves import best_so_far

        what = "return" if self.mark is None else f"env-steps to a return of {self.mark:g}"
        return best_so_far([trial.value for trial in self.trials], "trial", what, lowest=self.mark is not None)

    def __repr__(self):
        if not self.trials:
            return f"<Sweep {self.env}: no trial is done>"
        what = "return" if self.mark is None else f"env-steps to a return of {self.mark:g}"
        best = self.best
        numbers = {name: f"{x:.4g}" if isinstance(x, float) else x for name, x in best.params.items()}
        settings = ", ".join(f"{name} {value}" for name, value in numbers.items())
        return f"<Sweep {self.env}: {len(self.trials)} trials, best {what} {best.value:,.6g} with {settings}\n  {self.line()}>"


def sweep(
    env,
    algorithm=None,
    *,
    trials=40,
    out,
    space=None,
    mark=None,
    key=None,
    batch=8,
    steps=None,
    num_envs=None,
    seed=0,
    device="auto",
    resume=False,
    progress=True,
    **params,
):
    """Search settings and return a ``Sweep``; an interrupt (Ctrl-C) keeps the trials that are done.

    Trials are drawn by Optuna's tree-structured Parzen estimator, ``batch`` of them at a time.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        algorithm: ``PPO(...)`` or another, its name, or None: what the environment suggests. Trials change it.
        trials: How many in all, those of before a resume included.
        out: Folder for the file of trials.
        space: What is tried, by name of a setting or of a float parameter, the setting if it is both: ``(low, high)``,
            ``(low, high, "log")`` or a list of choices; two ints give ints. None: ``cupydrive.training.sweep.SPACE``, as far
            as the algorithm has it.
        mark: Search for the fewest env-steps until the return that is logged in training reaches this number; None: for the
            highest return at the end. A trial that does not reach it counts as twice its env-steps.
        key: Name of the metric that is the return; None: the episodic return of the only group.
        batch: Trials that are drawn before any of them is done.
        steps: Env-steps of each trial.
        num_envs: N of each.
        seed: Of what is drawn, and of each trial's training.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        resume: Go on with the sweep in ``out``, or begin it where there is none.
        progress: Show how many trials are done.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If a name, range or setting is wrong; nothing is trained then.
        TrainingError: If Optuna is missing, or ``out`` holds another sweep, or none that can be read.
    """
    if find_spec("optuna") is None:
        raise TrainingError("sweep needs Optuna: pip install optuna, or the extra `sweep`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook it asks for ipywidgets, which nothing here uses
        optuna = import_module("optuna")
    trials = checked_int("sweep", "trials", trials, 1, MOST_TRIALS)
    batch = checked_int("sweep", "batch", batch, 1, MOST_BATCH)
    seed = checked_int("sweep", "seed", seed, 0, 2**32 - 1)  # what NumPy's older generator takes, Optuna's
    resume, progress = checked_bool("sweep", "resume", resume), checked_bool("sweep", "progress", progress)
    mark = None if mark is None else checked_float("sweep", "mark", mark)
    key = None if key is None else checked_str("sweep", "key", key)
    out = checked_path("sweep", "out", out)
    steps = suggestions(env)["steps"] if steps is None else checked_count("sweep", "steps", steps)
    common = plan(env, algorithm, num_envs=num_envs, seed=seed, **params)
    settings = algorithm if isinstance(algorithm, LearnerSettings) else suggested_algorithm(env, algorithm)
    drawn = distributions(common.spec, settings, space)
    groups = [group.name for group in common.spec.groups(common.params)]
    if key is None and len(groups) > 1:
        names = ", ".join(f"{RETURN}/{name}" for name in groups)
        raise ParameterError(f"sweep: {common.spec.name} has several returns; pass key= as one of {names}")
    about = {
        "env": common.spec.name, "algorithm": str(settings), "steps": steps, "num_envs": common.num_envs, "seed": seed,
        "mark": mark, "key": key, "params": {name: str(value) for name, value in params.items()},
        "space": {name: str(each) for name, each in drawn.items()},
    }  # fmt: skip
    study = opened(out, about, seed, resume)
    given = {"num_envs": common.num_envs, "seed": seed, "steps": steps, **params}
    device = choose(device)[0]
    left = trials - len(done(study))
    sizes = [min(batch, left - first) for first in range(0, max(left, 0), batch)]
    for size in counted(sizes, f"sweep {common.spec.name}, batches of {batch}", len(sizes), progress):
        asked = [study.ask(drawn) for _ in range(size)]
        members = []
        for trial in asked:
            changed, varied = arguments(settings, trial.params)
            members.append({"algorithm": changed, **varied})
        population = train(env, settings, members=members, device=device, progress=False, **given)
        whole = [run for run in population if run.step >= steps]
        for trial, run in zip(asked, whole, strict=False):
            study.tell(trial, objective(run.metrics, key or RETURN, mark, steps))
        if len(whole) < size:  # interrupted
            for trial in asked[len(whole) :]:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            break
    shared = {"num_envs": common.num_envs, "steps": steps, **params}
    return Sweep(common.spec.name, settings, shared, tuple(done(study)), mark)


def spelled(value):
    """Return a value as one writes it: of settings, those that differ from the algorithm's own."""
    if not isinstance(value, LearnerSettings):
        return repr(value)
    own = {
        field.name: getattr(value, field.name) for field in fields(value) if field.default != getattr(value, field.name)
    }
    return f"cd.{type(value).__name__}({', '.join(f'{name}={spelled(each)}' for name, each in own.items())})"


def arguments(settings, drawn):
    """Return the algorithm with the settings that were drawn; and by name what else was, parameters of the environment."""
    names = setting_names(settings)
    return with_settings(settings, drawn), {name: value for name, value in drawn.items() if name not in names}


def objective(rows, key, mark, steps):
    """Return what a trial counts: its last value of a metric, or the env-steps until that reached the mark."""
    rows = [row for row in rows if key in row]
    if mark is None:
        return rows[-1][key] if rows else -math.inf
    return next((float(row["charts/global_step"]) for row in rows if row[key] >= mark), MISSED * steps)


def distributions(spec, settings, space):
    """Return Optuna's distributions by name.

    Raises:
        ParameterError: If a name is none of a setting or a float parameter, or a range is no range.
    """
    known = setting_names(settings)
    floats = {field.name for field in fields(spec.params) if isinstance(field.default, float)}
    if space is None:
        space = {name: each for name, each in SPACE.items() if name in known}
    checked_mapping("sweep", "space", space)
    if not space:
        raise ParameterError("sweep: space is empty; name what is to be tried")
    found = {}
    for name, each in space.items():
        checked_str("sweep", "a name in space", name)
        if name not in known | floats:
            names = sorted(known | floats)
            raise ParameterError(f"sweep: space has {name!r}.{did_you_mean(name, names)} There are: {', '.join(names)}")
        found[name] = distribution(name, each)
    return found


def distribution(name, each):
    """Return Optuna's distribution of a range or of choices."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(each, list) and each and all(isinstance(x, bool | int | float | str) for x in each):
        return CategoricalDistribution(each)
    if isinstance(each, tuple) and len(each) in (2, 3) and each[2:] in ((), ("log",)):
        low, high = (checked_float("sweep", f"space[{name!r}]", x) for x in each[:2])
        whole = all(type(x) is int for x in each[:2])
        if low < high and (low > 0 or len(each) == 2):
            kind = IntDistribution if whole else FloatDistribution
            return kind(*((int(low), int(high)) if whole else (low, high)), log=len(each) == 3)
    raise ParameterError(
        f"sweep: space[{name!r}] = {shown(each)}; it must be (low, high), (low, high, 'log') with 0 < low, or a list of "
        "choices"
    )


def done(study):
    """Return the finished trials of a study."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]


def opened(out, about, seed, resume):
    """Return the study of a folder, new or to go on with.

    Raises:
        TrainingError: If there is one that is not to go on, is damaged, or is of another sweep; nothing is written then.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path, about = out / FILE, json.loads(json.dumps(about))
    exists = path.exists()
    if exists and not resume:
        raise TrainingError(
            f"out = {str(out)!r} holds a sweep already; go on with it: resume=True; or pass another folder"
        )
    with file_errors(TrainingError, f"out = {str(out)!r}: the sweep cannot be kept there"):
        out.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            try:
                storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
                if not exists:
                    way = "maximize" if about["mark"] is None else "minimize"
                    study = optuna.create_study(storage=storage, study_name=STUDY, sampler=sampler, direction=way)
                    study.set_user_attr(ABOUT, about)
                    return study
                study = optuna.load_study(storage=storage, study_name=STUDY, sampler=sampler)
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
