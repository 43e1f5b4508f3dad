"""sweep(): search for settings of an algorithm with Optuna."""

import math
import warnings
from dataclasses import dataclass, fields
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Any

from cupydrive import envs
from cupydrive.algorithms.pool import with_settings
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.experiments.population import RETURN, setting_names
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_choice,
    checked_float,
    checked_int,
    checked_mapping,
    checked_path,
    shown,
)
from cupydrive.inputs.files import file_errors
from cupydrive.protocols import LearnerSettings, ParamValue
from cupydrive.spec import EnvSpec
from cupydrive.terminal.progress import counted
from cupydrive.training.config import resolve, settings_of
from cupydrive.training.frozen import check_kept
from cupydrive.training.logbook import episode_metrics
from cupydrive.training.runfolder import check_folder
from cupydrive.training.suggestions import setting_hints, warn_of_two_meanings

if TYPE_CHECKING:
    import optuna

STUDY_FILE = "sweep.jsonl"
MOST_TRIALS, MOST_BATCH = 100_000, 1000
RUNGS = (1 / 8, 1 / 4, 1 / 2, 1)  # fractions of the environment steps at which trials may be pruned
# The default search space, as far as an algorithm has these settings.
SPACE: dict[str, list | tuple] = {
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
    """Result of ``cupydrive.sweep``.

    Attributes:
        env: Name of the environment.
        study: Optuna's study, for its own analyses, such as ``optuna.visualization``.
        trials: Optuna's complete trials, best first, followed by the pruned ones. Each has
            ``number``, ``params``, ``value`` and ``state``.
        settings: Base settings of the algorithm, which trials change.
        common: Further arguments of ``train`` that all trials share.
        reward_threshold: Return to reach. If None, the value of a trial is its final return.
            Otherwise it is the number of environment steps until the return reaches it.
        interrupted: Whether Ctrl-C ended the sweep.
    """

    env: str
    study: "optuna.Study"
    trials: tuple["optuna.trial.FrozenTrial", ...]
    settings: LearnerSettings
    common: dict[str, Any]
    reward_threshold: float | None = None
    interrupted: bool = False

    @property
    def best(self) -> "optuna.trial.FrozenTrial":
        """The best complete trial, with ``params`` and ``value``.

        Raises:
            ParameterError: If no trial has a value.
        """
        for trial in self.trials[:1]:
            if trial.state.name == "COMPLETE" and math.isfinite(trial.value):
                return trial
        raise ParameterError("no trial of the sweep has a value yet. Pass more steps= or trials=")

    @property
    def best_config(self) -> dict[str, Any]:
        """Arguments of ``train`` for the best trial: ``cd.train(env, **found.best_config)``."""
        from cupydrive.experiments.trials import split

        settings, params = split(self.settings, self.best.params)
        return {"algorithm": settings, **self.common, **params}

    def table(self) -> str:
        """Format the trials as a table."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.params))
        widths = [max(16, len(name) + 2) for name in names]
        titles = [f"{name:>{width}}" for name, width in zip(names, widths, strict=True)]
        lines = [f"trial{self._value():>20}{''.join(titles)}"]
        for trial in self.trials:
            value = "pruned" if trial.state.name == "PRUNED" else f"{trial.value:,.6g}"
            drawn = [trial.params[name] for name in names]
            texts = [f"{x:.4g}" if isinstance(x, float) else str(x) for x in drawn]
            cells = [f"{text:>{width}}" for text, width in zip(texts, widths, strict=True)]
            lines.append(f"{trial.number:>5}{value:>20}{''.join(cells)}")
        return "\n".join(lines)

    def _value(self) -> str:
        """Return the title of the column of values."""
        wanted = self.reward_threshold
        return "return" if wanted is None else f"env-steps to {wanted:g}"

    def __repr__(self) -> str:
        name = f"{self.env}{' (interrupted)' * self.interrupted}"
        return f"<Sweep {name}: {len(self.trials)} trials\n{self.table()}>"


def sweep(
    env: "str | PathLike | EnvSpec",
    algorithm: LearnerSettings | str | None = None,
    *,
    trials: int = 40,
    out: str | PathLike,
    space: dict[str, list | tuple] | None = None,
    reward_threshold: float | None = None,
    key: str | None = None,
    prune: bool = False,
    batch: int = 8,
    steps: int | None = None,
    num_envs: int | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    **params: ParamValue,
) -> Sweep:
    """Search for settings with Optuna's tree-structured Parzen estimator.

    The trials of a batch train in parallel, as members of a population. The folder keeps all
    trials in Optuna's journal file. After an interrupt (Ctrl-C) the same call continues the sweep.
    Several processes or machines may run the same call concurrently on a shared folder. Each of
    them may then exceed ``trials`` by one batch.

    A trial that does not fit into memory, or that meets a non-finite number, fails with a warning,
    and the sweep continues.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        algorithm: Base settings that trials change, such as ``PPO(...)``, or an algorithm's name.
            Defaults to the suggestion of the environment.
        trials: Number of finished trials in the folder at which the sweep ends. Pruned trials
            count.
        out: Folder of the journal file, ``sweep.jsonl``.
        space: Search space by name of a setting or of an environment parameter: ``(low, high)``,
            ``(low, high, "log")`` or a list of choices. Two ints give ints. A name that is both
            means the setting. Invalid combinations, such as minibatches that do not divide the
            rows, are drawn again. Defaults to ``cupydrive.experiments.sweep.SPACE``.
        reward_threshold: Return to reach. If given, the sweep minimizes the environment steps until
            the logged return reaches it. If None, the sweep maximizes the final return.
        key: Name of the metric to use as the return. Defaults to the episodic return. Required if
            there are several groups.
        prune: Judge trials after 1/8, 1/4 and 1/2 of their environment steps. A trial ends early if
            its return is below the median of the complete trials (Optuna's ``MedianPruner``), or if
            it has reached ``reward_threshold``.
        batch: Number of trials that are drawn and trained together.
        steps: Environment steps of each trial, rounded up to whole iterations. Defaults to the
            suggested number.
        num_envs: Number of environments of each trial. Defaults to the suggested number.
        seed: Random seed of the draws and of each trial's training. In a single process, a sweep
            with the same seed is exactly reproducible.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        progress: Show a progress line that counts batches.
        **params: Parameters of the environment.

    Returns:
        ``Sweep`` with the trials, the best one and its configuration.

    Raises:
        ParameterError: If a name, range or setting is invalid. Nothing is written in this case.
        TrainingError: If Optuna is missing, ``out`` holds another sweep or a damaged file, or all
            trials failed.

    Examples:
        >>> import cupydrive as cd
        >>> found = cd.sweep(
        ...     "cartpole", trials=4, batch=4, steps=20_000, num_envs=64,
        ...     out="runs/sweep", progress=False,
        ... )
        >>> len(found.trials)
        4
    """
    if find_spec("optuna") is None:
        raise TrainingError("sweep needs Optuna: pip install optuna, or the extra `sweep`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook, Optuna warns about missing ipywidgets
        import optuna

        from cupydrive.experiments.trials import Trials, batch_sizes, finished_trials, open_study
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = checked_int("sweep", "trials", trials, 1, MOST_TRIALS)
    batch = checked_int("sweep", "batch", batch, 1, MOST_BATCH)
    if reward_threshold is not None:
        reward_threshold = checked_float("sweep", "reward_threshold", reward_threshold)
    prune = checked_bool("sweep", "prune", prune)
    envs.get(env).require_known(params, sweep, setting_hints(env, params, algorithm))
    folder = checked_path("sweep", "out", out)
    with file_errors(TrainingError, f"out = {str(folder)!r} cannot be used"):
        check_folder(folder)
    how = {"steps": steps, "num_envs": num_envs, "seed": seed, "progress": progress, "out": folder}
    config = resolve(env, algorithm, None, params, device=device, call=sweep, **how)
    warn_of_two_meanings(env, params, algorithm)
    check_kept(config.policies)
    spec, steps = config.spec, config.steps
    settings = next(each for each in config.policies.values() if isinstance(each, LearnerSettings))
    key = RETURN if key is None and len(config.policies) == 1 else key
    key = checked_choice("sweep", "key", key, episode_metrics(spec.groups(config.params), spec))
    space = checked_space(space, settings, spec, params)
    rungs = sorted({math.ceil(steps * fraction) for fraction in (RUNGS if prune else [1])})
    searched = Trials(config, settings, params, space, rungs, key, reward_threshold)
    searched.ask(optuna.create_study())  # raises before a file is written if no draw is valid
    network = getattr(settings, "policy", None)
    described = settings_of(config.as_json()) | {
        "env": spec.name, "steps": steps, "reward_threshold": reward_threshold, "key": key,
        "prune": prune, "space": space,
        "network": getattr(network, "__qualname__", type(network).__qualname__),
    }  # fmt: skip
    study = open_study(folder / STUDY_FILE, described, prune)
    interrupted, batches = False, math.ceil(max(0, trials - len(finished_trials(study))) / batch)
    words = f"sweep {spec.name}, batches of {batch}"
    for size in counted(batch_sizes(study, trials, batch), words, batches, config.progress):
        interrupted = searched.run_batch(study, size)
        if interrupted:
            break
    finished = finished_trials(study)
    if not finished and not interrupted:
        raise TrainingError("sweep: all trials failed. The warnings name the reasons")
    common = {"steps": steps, "num_envs": config.num_envs, "seed": config.seed, **params}
    pruned = [trial for trial in finished if trial.state.name == "PRUNED"]
    complete = [trial for trial in finished if trial.state.name == "COMPLETE"]
    complete.sort(key=lambda trial: trial.value, reverse=reward_threshold is None)
    found = (*complete, *pruned)
    return Sweep(spec.name, study, found, settings, common, reward_threshold, interrupted)


def checked_space(
    space: dict | None, settings: LearnerSettings, spec: EnvSpec, params: dict
) -> dict[str, list | tuple]:
    """Validate the search space. It defaults to the settings in ``SPACE`` that the algorithm has.

    Raises:
        ParameterError: If a name is unknown, a range is malformed, or an end or a choice is out of
            the setting's range.
    """
    known = setting_names(settings)
    if space is None:
        return {name: choices for name, choices in SPACE.items() if name in known}
    if not checked_mapping("sweep", "space", space):
        raise ParameterError("sweep: space is empty, expected at least one setting")
    names = sorted({*known, *(field.name for field in fields(spec.params))})
    for name, choices in space.items():
        checked_choice("sweep", "a name in space", name, names)
        for value in ends_or_choices(name, choices):
            if name in known:
                with_settings(settings, {name: value})
            else:
                spec.make_params(**params | {name: value})
    return dict(space)


def ends_or_choices(name: str, choices: list | tuple) -> list:
    """Return the ends of a range, or all choices of a list."""
    if (
        isinstance(choices, list)
        and choices
        and all(isinstance(each, bool | int | float | str) for each in choices)
    ):
        return choices
    if isinstance(choices, tuple) and len(choices) in (2, 3) and choices[2:] in ((), ("log",)):
        low, high = (checked_float("sweep", f"space[{name!r}]", end) for end in choices[:2])
        if low < high and (low > 0 or len(choices) == 2):
            return list(choices[:2])
    wanted = "(low, high), (low, high, 'log') with 0 < low, or a list of choices"
    raise ParameterError(f"sweep: space[{name!r}]: got {shown(choices)}, expected {wanted}")
