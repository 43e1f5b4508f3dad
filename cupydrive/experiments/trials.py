"""Trials of a sweep: drawn by Optuna, trained in batches, and stored in a journal file."""

from __future__ import annotations

import gc
import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import torch
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from cupydrive.algorithms.pool import with_settings
from cupydrive.errors import (
    CupydriveError,
    CupydriveWarning,
    MemoryLimitError,
    ParameterError,
    TrainingError,
)
from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.experiments.members import Training
from cupydrive.experiments.population import Member, resolve_members, setting_names
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import file_errors
from cupydrive.terminal.progress import Silent

if TYPE_CHECKING:
    from cupydrive.protocols import LearnerSettings
    from cupydrive.training.config import TrainConfig
    from cupydrive.training.run import Run

# Names of the study and of the attribute with its configuration.
STUDY, CONFIG_ATTRIBUTE = "sweep", "cupydrive"
MOST_DRAWS = 100  # maximum number of consecutive invalid draws


# ---- the journal ---------------------------------------------------------------------------------


class Journal(JournalFileBackend):
    """Optuna's journal file. Other processes may use it at the same time."""

    def __init__(self, path: Path) -> None:
        self.path, lock = path, JournalFileOpenLock(str(path))
        super().__init__(str(path), lock)
        lock.acquire()
        try:
            content = path.read_bytes()
            # Remove an incomplete last line, left by a kill or a full disk.
            if content.startswith(b'{"op_code"'):
                os.truncate(path, content.rfind(b"\n") + 1)
        finally:
            lock.release()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations to the journal.

        Raises:
            TrainingError: If the file cannot be written.
        """
        with file_errors(TrainingError, f"the journal of a sweep, {self.path}, cannot be written"):
            super().append_logs(logs)


def open_study(path: Path, config: dict[str, object], prune: bool) -> optuna.Study:
    """Open the study of a journal file, or create it.

    Args:
        path: Journal file, which several processes and machines may use concurrently.
        config: JSON-compatible configuration, which must be equal for the same study. Its
            ``"reward_threshold"`` determines the direction of the optimization.
        prune: Whether to stop unpromising trials early.

    Raises:
        TrainingError: If the file is damaged or holds a sweep of another configuration.
    """
    config = json.loads(json.dumps(config))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage = optuna.storages.JournalStorage(Journal(path))
        pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
        if path.stat().st_size == 0:  # may be true for several processes concurrently
            how = {"direction": "maximize" if config["reward_threshold"] is None else "minimize"}
            optuna.create_study(**how, study_name=STUDY, storage=storage, load_if_exists=True)
        study = optuna.load_study(study_name=STUDY, storage=storage, pruner=pruner)
        if CONFIG_ATTRIBUTE not in study.user_attrs:
            study.set_user_attr(CONFIG_ATTRIBUTE, config)
        known = dict(study.user_attrs[CONFIG_ATTRIBUTE])
    except Exception as error:  # a damaged line can raise anything
        what = f"{path} cannot be used as the journal of a sweep"
        raise TrainingError(f"{what}: {error}. Pass another folder") from None
    for name, value in config.items():
        if known.get(name) != value:
            there = f"{name}: found {shown(known.get(name))}, expected {shown(value)}"
            raise TrainingError(f"{path} holds another sweep: {there}. Pass another folder")
    return study


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the complete and pruned trials, in the order of their start."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


# ---- drawing -------------------------------------------------------------------------------------


def sampler_of(seed: int, number: int) -> optuna.samplers.TPESampler:
    """Return the sampler of one trial.

    Each trial has its own random numbers. A resumed sweep, or another process on the same study,
    therefore does not repeat earlier draws.
    """
    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    # With a univariate sampler, ask() consumes no random numbers.
    return optuna.samplers.TPESampler(seed=own, multivariate=False)


def suggest(trial: Trial, name: str, choices: list | tuple) -> bool | int | float | str:
    """Draw one value from a list, or from a range ``(low, high)`` or ``(low, high, "log")``."""
    if isinstance(choices, list):
        return trial.suggest_categorical(name, choices)
    low, high, *log = choices
    whole = isinstance(low, int) and isinstance(high, int)
    draw = trial.suggest_int if whole else trial.suggest_float
    return draw(name, low, high, log=bool(log))


def split(settings: LearnerSettings, values: dict) -> tuple[LearnerSettings, dict]:
    """Split drawn values into settings and environment parameters.

    Returns:
        The algorithm with the drawn settings, and the drawn parameters.
    """
    own = setting_names(settings)
    params = {name: values[name] for name in values if name not in own}
    return with_settings(settings, values), params


# ---- training ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trials:
    """Draw, train and judge the trials of a sweep.

    Args:
        config: Configuration common to all trials.
        settings: Base settings of the algorithm, which trials change.
        params: Environment parameters passed by the user.
        space: Validated search space by name.
        rungs: Environment steps at which trials are judged. The last one is the length of a full
            trial.
        key: Name of the metric to use as the return.
        reward_threshold: Return to reach in few environment steps. If None, the final return is
            maximized.
    """

    config: TrainConfig
    settings: LearnerSettings
    params: dict[str, Any]
    space: dict[str, list | tuple]
    rungs: list[int]
    key: str
    reward_threshold: float | None

    def members(self, drawn: Sequence[dict[str, Any]]) -> list[Member]:
        """Return population members for the drawn values.

        Raises:
            CupydriveError: If values are invalid or do not fit together.
        """
        config = self.config
        how: dict[str, Any] = {"steps": self.rungs[-1], "num_envs": config.num_envs}
        how |= {"device": config.device, "progress": False}
        each = [split(self.settings, values) for values in drawn]
        changes = [{"algorithm": settings, **params} for settings, params in each]
        how |= {"params": self.params, "seed": config.seed}
        return resolve_members(config.spec, members=changes, **how)

    def ask(self, study: optuna.Study) -> Trial:
        """Draw a new valid trial. Invalid draws are recorded as failed.

        Raises:
            ParameterError: If no draw is valid.
        """
        for _ in range(MOST_DRAWS):
            trial = study.ask()
            study.sampler = sampler_of(self.config.seed, trial.number)
            values = {name: suggest(trial, name, choices) for name, choices in self.space.items()}
            try:
                self.members([values])
                return trial
            except CupydriveError as error:
                misfit = error
                study.tell(trial, state=TrialState.FAIL)
        tried = f"none of {MOST_DRAWS} draws from space can be trained. Last draw: {values}"
        raise ParameterError(f"sweep: {tried}: {misfit}")

    def run_batch(self, study: optuna.Study, size: int) -> bool:
        """Draw and train trials. Return whether an interrupt ended the batch.

        Trials that have not ended then are recorded as failed.
        """
        asked: list[Trial] = []
        gc.collect()  # frees learners of the last batch, which are cyclic and hold device memory
        try:
            for _ in range(size):
                asked.append(self.ask(study))
            return self._train(study, asked)
        except KeyboardInterrupt:
            return True
        finally:
            for trial in asked:
                study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def _train(self, study: optuna.Study, trials: list[Trial]) -> bool:
        """Train a batch, or its trials one by one if the batch does not fit into memory.

        Returns:
            Whether an interrupt ended the training.
        """
        try:
            return self._train_together(study, trials)
        except MemoryLimitError as error:
            reason = str(error).removeprefix("members[0]: ")
        gc.collect()
        if self.config.device == "cuda":
            with EXCLUSIVE:
                torch.cuda.empty_cache()
        if len(trials) == 1:
            fail(study, trials[0], reason)
            return False
        all_trials = study.get_trials(deepcopy=False)
        left = [trial for trial in trials if not all_trials[trial.number].state.is_finished()]
        return any(self._train(study, [trial]) for trial in left)

    def _train_together(self, study: optuna.Study, trials: list[Trial]) -> bool:
        """Train a batch from rung to rung and report its results.

        Returns:
            Whether an interrupt ended the training.
        """
        training = Training(self.members([trial.params for trial in trials]), explains=False)
        left = dict(enumerate(trials))
        for rung in self.rungs:
            training.keep(left)
            interrupted = training.train(Silent(), rung)
            for number, trial in list(left.items()):
                run = training.runs[number]
                if number in training.failures:
                    fail(study, trial, str(training.failures[number]))
                    del left[number]
                elif run.step >= rung and self._judge(study, trial, run, rung):
                    del left[number]
            if interrupted:
                return True
        return False

    def _judge(self, study: optuna.Study, trial: Trial, run: Run, rung: int) -> bool:
        """Report the result of a run at a rung. Return whether its trial has ended.

        Without a reward threshold, the value of a complete trial is its last return, or -inf if it
        has none. With one, it is the number of environment steps that reached it, or inf.
        """
        rows = [row for row in run.metrics if math.isfinite(row.get(self.key, math.nan))]
        latest = rows[-1][self.key] if rows else -math.inf
        wanted = math.inf if self.reward_threshold is None else self.reward_threshold
        reached = [row["charts/global_step"] for row in rows if row[self.key] >= wanted]
        if rung == self.rungs[-1] or reached:
            steps = float(min(reached, default=math.inf))
            value = latest if self.reward_threshold is None else steps
            study.tell(trial, value)
            return True
        if rows:
            # With a reward threshold, the study minimizes environment steps.
            trial.report(latest if self.reward_threshold is None else -latest, rung)
        if trial.should_prune():
            study.tell(trial, state=TrialState.PRUNED)
            return True
        return False


def fail(study: optuna.Study, trial: Trial, reason: str) -> None:
    """Record that a trial could not be trained, and warn."""
    study.tell(trial, state=TrialState.FAIL)
    words = f"sweep: trial {trial.number}, {trial.params}, failed: {reason}"
    warnings.warn(words, CupydriveWarning, stacklevel=4)


def batch_sizes(study: optuna.Study, count: int, batch: int) -> Iterator[int]:
    """Yield batch sizes until the study has ``count`` finished trials, including other processes.

    Failed trials count only within this call, so that it terminates.
    """
    left = count - len(finished_trials(study))
    while (size := min(batch, left, count - len(finished_trials(study)))) > 0:
        yield size
        left -= size
