"""Trials of a sweep: Optuna draws them, a batch of them is trained side by side, and a journal file
keeps them.
"""

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

# names of the study and of the attribute that describes it
STUDY, CONFIG_ATTRIBUTE = "sweep", "cupydrive"
MOST_DRAWS = 100  # in a row whose values do not fit together


# ---- the journal ---------------------------------------------------------------------------------


class Journal(JournalFileBackend):
    """Optuna's journal file. Other processes may use it at the same time."""

    def __init__(self, path: Path) -> None:
        self.path, lock = path, JournalFileOpenLock(str(path))
        super().__init__(str(path), lock)
        lock.acquire()
        try:
            content = path.read_bytes()
            # A last line without an end was torn by a kill or a full disk.
            if content.startswith(b'{"op_code"'):
                os.truncate(path, content.rfind(b"\n") + 1)
        finally:
            lock.release()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations."""
        with file_errors(TrainingError, f"the journal of a sweep, {self.path}, cannot be written"):
            super().append_logs(logs)


def open_study(path: Path, config: dict[str, object], prune: bool) -> optuna.Study:
    """Open the study of a journal file, or create it.

    Args:
        path: Journal file, which several processes and machines may use at once.
        config: What makes two sweeps comparable, as JSON can hold it. Its ``"mark"`` decides the
            direction.
        prune: Whether trials that fall behind end early.

    Raises:
        TrainingError: If the file is damaged or holds a sweep of another configuration.
    """
    config = json.loads(json.dumps(config))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage = optuna.storages.JournalStorage(Journal(path))
        pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
        if path.stat().st_size == 0:  # for several processes at once, perhaps
            how = {"direction": "maximize" if config["mark"] is None else "minimize"}
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
            there = f"{name} is {shown(known.get(name))} there, and {shown(value)} was asked for"
            raise TrainingError(f"{path} holds another sweep: {there}. Pass another folder")
    return study


def finished_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that are complete or pruned, in the order in which they began."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


# ---- drawing -------------------------------------------------------------------------------------


def sampler_of(seed: int, number: int) -> optuna.samplers.TPESampler:
    """Return the sampler of one trial.

    Each trial has random numbers of its own. A resumed sweep and another process on the same study
    therefore do not repeat what was drawn before.
    """
    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    # Univariate, so that ask() draws nothing.
    return optuna.samplers.TPESampler(seed=own, multivariate=False)


def suggest(trial: Trial, name: str, choices: list | tuple) -> bool | int | float | str:
    """Draw one value: from a list, or from a range ``(low, high)`` or ``(low, high, "log")``."""
    if isinstance(choices, list):
        return trial.suggest_categorical(name, choices)
    low, high, *log = choices
    whole = isinstance(low, int) and isinstance(high, int)
    draw = trial.suggest_int if whole else trial.suggest_float
    return draw(name, low, high, log=bool(log))


def split(settings: LearnerSettings, values: dict) -> tuple[LearnerSettings, dict]:
    """Return the algorithm with those values that are its settings, and the others: parameters of
    the environment.
    """
    own = setting_names(settings)
    params = {name: values[name] for name in values if name not in own}
    return with_settings(settings, values), params


# ---- training ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trials:
    """Draws, trains and judges the trials of a sweep.

    Args:
        config: Configuration that trials share.
        settings: The algorithm's settings, which trials change.
        params: Parameters of the environment that were given.
        space: Choices by name, checked.
        rungs: Env-steps at which trials are judged, up to those of a whole trial.
        key: Name of the metric that is the return.
        mark: Return to reach in few env-steps. If None, the return at the end counts.
    """

    config: TrainConfig
    settings: LearnerSettings
    params: dict[str, Any]
    space: dict[str, list | tuple]
    rungs: list[int]
    key: str
    mark: float | None

    def members(self, drawn: Sequence[dict[str, Any]]) -> list[Member]:
        """Return what trains the drawn values; of values that are wrong or do not fit together,
        raise the error.
        """
        config = self.config
        how: dict[str, Any] = {"steps": self.rungs[-1], "num_envs": config.num_envs}
        how |= {"device": config.device, "progress": False}
        each = [split(self.settings, values) for values in drawn]
        changes = [{"algorithm": settings, **params} for settings, params in each]
        how |= {"params": self.params, "seed": config.seed}
        return resolve_members(config.spec, members=changes, **how)

    def ask(self, study: optuna.Study) -> Trial:
        """Return a new trial whose values fit together. Draws that do not fit are recorded as
        failed.

        Raises:
            ParameterError: If nothing that fits is drawn.
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
        tried = f"none of {MOST_DRAWS} draws from space can be trained, at last {values}"
        raise ParameterError(f"sweep: {tried}: {misfit}")

    def run_batch(self, study: optuna.Study, size: int) -> bool:
        """Draw and train trials; return whether an interrupt came.

        Those that have not ended then are recorded as failed.
        """
        asked: list[Trial] = []
        gc.collect()  # torch's learners of the last batch are cyclic, and hold memory of the device
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
        """Train a batch, or its trials in turn if it does not fit into memory; return whether an
        interrupt ended it.
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
        """Train a batch from rung to rung and report its results; return whether an interrupt ended
        it.
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
        """Report what a run has reached at a rung; return whether its trial has ended.

        A complete trial without a return, or that does not reach the mark, has the infinity that is
        worst.
        """
        rows = [row for row in run.metrics if math.isfinite(row.get(self.key, math.nan))]
        latest = rows[-1][self.key] if rows else -math.inf
        mark = math.inf if self.mark is None else self.mark
        reached = [row["charts/global_step"] for row in rows if row[self.key] >= mark]
        if rung == self.rungs[-1] or reached:
            value = latest if self.mark is None else float(min(reached, default=math.inf))
            study.tell(trial, value)
            return True
        if rows:
            # with a mark the study minimizes
            trial.report(latest if self.mark is None else -latest, rung)
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
    """Yield sizes of batches until the study has ``count`` finished trials, those of other
    processes included.

    Failed trials count in this call only, so that it ends.
    """
    left = count - len(finished_trials(study))
    while (size := min(batch, left, count - len(finished_trials(study)))) > 0:
        yield size
        left -= size
