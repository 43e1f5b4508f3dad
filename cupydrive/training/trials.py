"""Trials of a sweep: a batch of them is trained as a population from rung to rung, and the best one alone, for its time."""

import gc
import math
import warnings
from dataclasses import dataclass

import torch

from cupydrive.errors import CupydriveWarning, MemoryLimitError, NotFiniteError, ParameterError, did_you_mean
from cupydrive.executors.host import processor_name
from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.inputs.arguments import shown
from cupydrive.training.algorithms.pool import with_settings
from cupydrive.training.logbook import episode_metrics
from cupydrive.training.members import go_on
from cupydrive.training.plan import plan
from cupydrive.training.population import setting_names
from cupydrive.training.space import misfit
from cupydrive.training.train import train

MOST_DRAWN = 1000  # in a row
FAILED = "failed"  # of a trial's attributes, the one that says why it has failed
MISSED = 2.0  # times the env-steps of a trial: what counts where it has not reached the mark


@dataclass(frozen=True)
class Trials:
    """What all trials of a sweep have in common.

    Args:
        env: As of ``train``.
        settings: The algorithm's, which trials change.
        given: Further arguments of ``train``: ``num_envs``, ``seed``, parameters; None: what the environment suggests.
        rungs: Env-steps at which trials are compared, and the last of them, at which they are done.
        device: ``"cuda"`` or ``"cpu"``.
        key: Name of the metric that is the return.
        mark: The return whose env-steps count, or None: the return counts.
    """

    env: object
    settings: object
    given: dict
    rungs: list
    device: str
    key: str
    mark: float | None

    @property
    def steps(self):
        """Env-steps of a whole trial."""
        return self.rungs[-1]

    def plan(self, drawn):
        """Return the ``Plan`` of a trial for which these values were drawn; raise ``CupydriveError`` if they do not fit."""
        changed, varied = arguments(self.settings, drawn)
        return plan(self.env, changed, device=self.device, **self.given | varied)

    def ask(self, study, drawn):
        """Return a new trial of the study whose values fit together; those that do not are told to have failed, untrained.

        Args:
            study: Optuna's.
            drawn: Optuna's distributions by name.

        Raises:
            ParameterError: If nothing that fits is drawn.
        """
        from optuna.trial import TrialState

        for _ in range(MOST_DRAWN):
            trial = study.ask(drawn)
            error = misfit(self.plan, trial.params)
            if error is None:
                return trial
            study.tell(trial, state=TrialState.FAIL)
        raise ParameterError(
            f"sweep: {MOST_DRAWN} times in a row values were drawn that do not fit together, at last {trial.params}: {error}"
        )

    def train(self, study, asked):
        """Train a batch, and tell the study of each trial that is done, pruned or failed; return whether no interrupt came.

        Where a batch does not fit into memory, or none of its runs stays finite, its trials are trained one after the other;
        one that cannot be trained alone fails, with a warning that says why.

        Args:
            study: Optuna's.
            asked: Trials that it has drawn.
        """
        from optuna.trial import TrialState

        try:
            return self.train_together(study, asked)
        except (MemoryLimitError, NotFiniteError) as error:
            words = str(error).removeprefix("members[0]: ")
        # Only here has the error let go of the runs.
        gc.collect()
        if self.device == "cuda":
            with EXCLUSIVE:
                torch.cuda.empty_cache()
        if len(asked) > 1:
            known = study.get_trials(deepcopy=False)
            return all(self.train(study, [trial]) for trial in asked if not known[trial.number].state.is_finished())
        trial = asked[0]
        trial.set_user_attr(FAILED, words)
        study.tell(trial, state=TrialState.FAIL)
        warnings.warn(f"trial {trial.number}, {trial.params}, has failed: {words}", CupydriveWarning, stacklevel=3)
        return True

    def train_together(self, study, asked):
        """Train a batch, and tell the study of each trial that is done or pruned; return whether no interrupt came.

        All go to the first rung as one population, and those that are left go on side by side where their shapes are equal.
        One whose numbers are not finite fails.

        Args:
            study: Optuna's.
            asked: Trials that it has drawn.
        """
        members = []
        for trial in asked:
            changed, varied = arguments(self.settings, trial.params)
            members.append({"algorithm": changed, **varied})
        common = {"device": self.device, "progress": False, **self.given}
        population = train(self.env, self.settings, members=members, steps=self.rungs[0], **common)
        failed = [population.runs[k] for k in population.failures]
        whole = len(population) == len(asked) and all(run.step >= self.rungs[0] for run in population)
        left = self.sound(study, list(zip(asked, population, strict=False)), failed)
        for rung in self.rungs:
            if whole:
                for _, run in left:
                    run.total = self.steps  # logged intervals are those of a whole trial
                whole, failed = go_on([run for _, run in left if run.step < rung], rung)
                left = self.sound(study, left, failed)
            left = self.compare(study, [(trial, run) for trial, run in left if run.step >= rung], rung)
            if not whole:
                return False
        return True

    def sound(self, study, left, failed):
        """Tell the study of trials whose runs have failed, and return the others."""
        from optuna.trial import TrialState

        for trial, run in left:
            if any(run is each for each in failed):
                study.tell(trial, state=TrialState.FAIL)
        return [(trial, run) for trial, run in left if not any(run is each for each in failed)]

    def compare(self, study, left, rung):
        """Report what trials have reached at a rung, tell the study of those that end there, and return the others.

        A trial that has reached the mark is done. None is told before all are judged, so that their order does not count.

        Args:
            study: Optuna's.
            left: Pairs of trial and run.
            rung: Env-steps.
        """
        from optuna.trial import TrialState

        done = [(trial, run) for trial, run in left if rung == self.steps or self.at_mark(run)]
        others = [pair for pair in left if pair not in done]
        compared = [] if rung == self.steps else [trial for trial, run in left if self.report(trial, run, rung)]
        worse = [trial for trial in compared if trial.should_prune()]  # halving notes here who has come to the rung
        pruned = [trial for trial, _ in others if trial in worse]
        for trial, run in done:
            self.check_key(run)
            study.tell(trial, objective(run.metrics, self.key, self.mark, self.steps))
        for trial in pruned:
            study.tell(trial, state=TrialState.PRUNED)
        return [(trial, run) for trial, run in others if trial not in pruned]

    def report(self, trial, run, rung):
        """Report the return that a run has reached at a rung, if one is known yet; return whether it is.

        Where the mark counts, less is better, and so the return is reported as a loss. A trial that has reached the mark is
        not trained further, and stays where it is at later rungs.
        """
        rows = [row for row in run.metrics if self.key in row]
        if rows:
            value = rows[-1][self.key] if self.mark is None else -rows[-1][self.key]
            last = self.rungs[-2] if self.at_mark(run) else rung
            told = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values  # before memory was short
            for each in (each for each in self.rungs if rung <= each <= last and each not in told):
                trial.report(value, each)
        return bool(rows)

    def check_key(self, run):
        """Raise ``ParameterError`` unless the metric that is the return is one of a run that has been trained."""
        known = [
            *episode_metrics(run.batch.groups, run.spec),
            *dict.fromkeys(name for row in run.metrics for name in row),
        ]
        if self.key not in known:
            raise ParameterError(no_metric(self.key, list(dict.fromkeys(known))))

    def at_mark(self, run):
        """Return the row of metrics in which a run has reached the mark, or None."""
        return None if self.mark is None else first_at(run.metrics, self.key, self.mark)

    def alone(self, best):
        """Train a trial's settings once more with nothing beside it, and return how long that took; None: an interrupt came.

        Args:
            best: Optuna's trial.

        Returns:
            ``trial`` (its number), ``machine``, ``env_steps``, ``seconds`` of training, after set-up and capture, and
            ``seconds_to_mark``, None where it was not reached or the return counts.
        """
        changed, varied = arguments(self.settings, best.params)
        given = {"steps": self.steps, "device": self.device, "progress": False, **self.given, **varied}
        run = train(self.env, changed, **given)
        if run.step < self.steps:
            return None
        row = self.at_mark(run)
        reached = None if row is None else row["charts/global_step"] / row["charts/SPS"]
        about = {"trial": best.number, "machine": self.machine(), "env_steps": run.step}
        return {**about, "seconds": run.seconds, "seconds_to_mark": reached}

    def machine(self):
        """Return the name of what trains."""
        return torch.cuda.get_device_name() if self.device == "cuda" else processor_name()


def arguments(settings, drawn):
    """Return the algorithm with the settings that were drawn; and by name what else was, parameters of the environment."""
    names = setting_names(settings)
    return with_settings(settings, drawn), {name: value for name, value in drawn.items() if name not in names}


def no_metric(key, known):
    """Return what to say of a metric that there is not; ``known`` are the names of those that there are."""
    return f"sweep: key = {shown(key)} is no metric.{did_you_mean(key, known)} There are: {', '.join(known)}"


def first_at(rows, key, mark):
    """Return the first row whose metric ``key`` is at least the mark, or None."""
    return next((row for row in rows if row.get(key, -math.inf) >= mark), None)


def objective(rows, key, mark, steps):
    """Return what a trial counts: its last value of a metric, or the env-steps until that reached the mark.

    A trial without a value, as before each environment has ended an episode, is worse than every other: -inf.
    """
    if mark is None:
        value = next((row[key] for row in reversed(rows) if key in row), -math.inf)
        return value if math.isfinite(value) else -math.inf
    row = first_at(rows, key, mark)
    return MISSED * steps if row is None else float(row["charts/global_step"])
