"""sweep(): trials of settings, drawn by Optuna from what earlier ones reached; each batch of them is a population.

Everything is kept in one file of JSON lines in the folder, which another process can go on with.
"""

import math
import warnings
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec

from cupydrive import envs
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.executors import choose
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_choice,
    checked_count,
    checked_float,
    checked_int,
    checked_path,
    checked_str,
    shown,
)
from cupydrive.inputs.files import file_errors
from cupydrive.protocols import LearnerSettings
from cupydrive.terminal.progress import counted
from cupydrive.training.logbook import episode_metrics
from cupydrive.training.misplaced import setting_hints, warn_of_two_meanings
from cupydrive.training.outfolder import check_folder
from cupydrive.training.policies import learning_settings
from cupydrive.training.space import check_space, distributions
from cupydrive.training.study import ALONE, PRUNERS, finished, opened, rungs
from cupydrive.training.suggestions import suggested_algorithm, suggestion
from cupydrive.training.trials import FAILED, MISSED, Trials, arguments, no_metric

RETURN = "charts/episodic_return"
MOST_TRIALS, MOST_BATCH = 100_000, 1000


@dataclass(frozen=True)
class Sweep:
    """What a sweep has found; ``cupydrive.sweep`` makes it.

    Args:
        env: Name.
        settings: The algorithm's, before trials change them.
        common: Further arguments of ``train`` that all trials have.
        trials: Optuna's finished trials, in the order in which they were begun: ``params``, ``value`` and ``state`` of each,
            those that were pruned among them.
        mark: The return whose env-steps count, or None: the return counts.
        alone: What training the best settings alone took: ``trial`` (its number), ``machine``, ``env_steps``, ``seconds`` of
            training, after set-up and capture, and ``seconds_to_mark``. None: it has not been done.
        interrupted: Whether Ctrl-C came before all trials were begun and done.
    """

    env: str
    settings: LearnerSettings
    common: dict
    trials: tuple
    mark: float | None
    alone: dict | None = None
    interrupted: bool = False

    @property
    def done(self):
        """The trials that were not pruned."""
        return tuple(trial for trial in self.trials if trial.state.name != "PRUNED")

    @property
    def best(self):
        """The best trial that was not pruned: its ``params`` by name and its ``value``, a return or env-steps to the mark."""
        if not self.done:
            raise ParameterError("no trial of the sweep is done yet; go on with resume=True")
        best = (min if self.mark is not None else max)(self.done, key=lambda trial: trial.value)
        if not math.isfinite(best.value):
            raise ParameterError(f"no trial of the sweep has a {self._counted()} yet; pass more steps=")
        return best

    @property
    def reached(self):
        """Whether there is a best trial: one with a return, or one that has reached the mark if that counts."""
        if self.mark is None:
            return any(math.isfinite(trial.value) for trial in self.done)
        return bool(self.done) and self.best.value < MISSED * self.common["steps"]

    def line(self):
        """Return the call that trains with the best settings, as one line to paste."""
        best, params = arguments(self.settings, self.best.params)
        others = ", ".join(f"{name}={value!r}" for name, value in (self.common | params).items())
        return f"cd.train({self.env!r}, {spelled(best)}, {others})"

    def plot(self):
        """Return a Matplotlib figure: what each trial reached, the best until then, and which trials were pruned."""
        from cupydrive.terminal.curves import best_so_far

        values = [None if trial.state.name == "PRUNED" else trial.value for trial in self.trials]
        values = [math.nan if value == -math.inf else value for value in values]  # nothing was known of the return
        return best_so_far(values, "trial", self._counted(), lowest=self.mark is not None)

    def _counted(self):
        return "return" if self.mark is None else f"env-steps to a return of {self.mark:g}"

    def _time(self):
        """Return what the best settings took alone, in words."""
        about = self.alone
        rate = about["env_steps"] / about["seconds"]
        words = f"alone: {about['seconds']:.3g} s of training, {rate:,.0f} env-steps/s on {about['machine']}"
        reached = about["seconds_to_mark"]
        return words + ("" if reached is None else f"; {reached:.3g} s to the mark")

    def __repr__(self):
        pruned = len(self.trials) - len(self.done)
        head = f"<Sweep {self.env}: {len(self.trials)} trials" + f" ({pruned} pruned)" * bool(pruned)
        if not self.done:
            return f"<Sweep {self.env}: no trial is done>"
        if not self.reached and self.mark is None:
            return f"{head}, none has a return yet: pass more steps=>"
        if not self.reached:
            return f"{head}, none reached a return of {self.mark:g}: pass more steps=, or objective='return'>"
        best = self.best
        numbers = {name: f"{x:.4g}" if isinstance(x, float) else x for name, x in best.params.items()}
        settings = ", ".join(f"{name} {value}" for name, value in numbers.items())
        lines = [f"{head}, best {self._counted()} {best.value:,.6g} with {settings}", f"  {self.line()}"]
        return "\n".join(lines + ([f"  {self._time()}"] if self.alone else [])) + ">"


def sweep(
    env,
    algorithm=None,
    *,
    trials=40,
    out,
    space=None,
    objective="auto",
    mark=None,
    key=None,
    pruner=None,
    batch=8,
    steps=None,
    num_envs=None,
    seed=0,
    device="auto",
    time_best=True,
    resume=False,
    progress=True,
    **params,
):
    """Search settings and return a ``Sweep``; an interrupt (Ctrl-C) keeps the trials that are done.

    Trials are drawn by Optuna's tree-structured Parzen estimator, ``batch`` of them at a time. One that does not fit into
    memory, or whose numbers do not stay finite, fails with a warning, and the sweep goes on.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        algorithm: ``PPO(...)`` or another, its name, or None: what the environment suggests. Trials change it.
        trials: How many in all, those of before a resume and those that are pruned included.
        out: Folder for the file of trials.
        space: What is tried, by name of a setting or of a float parameter, the setting if it is both: ``(low, high)``,
            ``(low, high, "log")`` or a list of choices; two ints give ints. None: ``cupydrive.training.space.SPACE``, as far
            as the algorithm has it. Each value must fit with some of the others: what does not fit together, such as
            minibatches that do not divide the rows, is drawn anew.
        objective: ``"mark"``: the fewest env-steps until the return that is logged in training reaches the mark; a trial that
            does not reach it counts as twice its env-steps. ``"return"``: the highest return at the end. ``"auto"``: the mark
            where there is one, else the return.
        mark: The return to reach; None: the environment's own, if it says one and its parameters are the default ones.
        key: Name of the metric that is the return; None: the episodic return of the only group.
        pruner: Who ends trials early, after an eighth, a quarter or half of their env-steps, by their return there: Optuna's
            ``"median"`` (worse than the median of the trials that are done), ``"halving"`` (not in the better half of those
            that came so far) or ``"hyperband"`` (likewise, but some trials are judged later). Trials that have reached the
            mark there end, too. None: nobody.
        batch: Trials that are drawn before any of them is done.
        steps: Env-steps of each trial, rounded up to whole iterations, as are those at which pruners judge; None: as many as
            the environment suggests for the algorithm.
        num_envs: N of each; None: likewise.
        seed: Of what is drawn, and of each trial's training.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        time_best: Train the best settings once more alone at the end, and tell the seconds: trials of a batch that share a
            device have no time of their own. It is kept in the file, and not done again for the same trial and machine.
        resume: Go on with the sweep in ``out``, or begin it where there is none.
        progress: Show how many trials are done.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If a name, range or setting is wrong, or there is no mark; nothing is trained then. Whether ``key`` is
            one of the algorithm's losses is known once the first trials were trained.
        TrainingError: If Optuna is missing, ``out`` holds another sweep, or none that can be read, or all trials have failed.
    """
    if find_spec("optuna") is None:
        raise TrainingError("sweep needs Optuna: pip install optuna, or the extra `sweep`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook it asks for ipywidgets, which nothing here uses
        optuna = import_module("optuna")
    trials = checked_int("sweep", "trials", trials, 1, MOST_TRIALS)
    batch = checked_int("sweep", "batch", batch, 1, MOST_BATCH)
    seed = checked_int("sweep", "seed", seed, 0, 2**32 - 1)  # what NumPy's older generator takes, Optuna's
    resume, progress, time_best = (
        checked_bool("sweep", name, value)
        for name, value in (("resume", resume), ("progress", progress), ("time_best", time_best))
    )
    key = None if key is None else checked_str("sweep", "key", key)
    pruner = None if pruner is None else checked_choice("sweep", "pruner", pruner, PRUNERS)
    out = checked_path("sweep", "out", out)
    with file_errors(TrainingError, f"out = {str(out)!r} cannot be used"):
        check_folder(out)
    steps = None if steps is None else checked_count("sweep", "steps", steps)
    spec = envs.get(env)
    spec.require_known(params, sweep, setting_hints(env, params, algorithm))
    made = spec.make_params(**params)
    groups = [group.name for group in spec.groups(made)]
    settings = learning_settings(algorithm, None, groups, partial(suggested_algorithm, env))
    warn_of_two_meanings(env, params, algorithm, who="sweep")
    steps = steps or suggestion(env, settings.name).steps
    drawn = distributions(spec, settings, space)
    if key is None and len(groups) > 1:
        names = ", ".join(f"{RETURN}/{name}" for name in groups)
        error = ParameterError(f"sweep: {spec.name} has several returns; pass key= as one of {names}")
        error.shell = f"{spec.name} has several returns; pass --key as one of {names}"
        raise error
    check_key(key, spec, spec.groups(made))
    mark = mark_of(spec, made, objective, mark, key)
    given = {"num_envs": num_envs, "seed": seed, **params}
    training = Trials(env, settings, given, rungs(steps, pruner), choose(device)[0], key or RETURN, mark)
    num_envs = check_space(drawn, settings, training.plan).num_envs
    about = {
        "env": spec.name, "algorithm": str(settings), "steps": steps, "num_envs": num_envs, "seed": seed,
        "mark": mark, "key": key, "pruner": pruner, "params": {name: str(value) for name, value in params.items()},
        "space": {name: str(each) for name, each in drawn.items()},
    }  # fmt: skip
    study = opened(out, about, seed, resume)
    left = trials - len(finished(study))
    sizes = [min(batch, left - first) for first in range(0, max(left, 0), batch)]
    whole = True
    for size in counted(sizes, f"sweep {spec.name}, batches of {batch}", len(sizes), progress):
        asked = []
        try:
            for _ in range(size):
                asked.append(training.ask(study, drawn))
            whole = training.train(study, asked)
        except KeyboardInterrupt:  # before the first iteration of a run
            whole = False
        finally:
            for trial in asked:  # that neither ended nor was pruned
                study.tell(trial, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
        if not whole:
            break
    if whole and not finished(study):
        last = study.get_trials(deepcopy=False)[-1]
        raise TrainingError(
            f"sweep: all trials have failed, at last {last.params}: {last.user_attrs.get(FAILED)}; pass another space=, a "
            "smaller num_envs=, or other settings"
        )
    shared = {"num_envs": num_envs, "steps": steps, **({"seed": seed} if seed else {}), **params}
    found = Sweep(spec.name, settings, shared, tuple(finished(study)), mark, interrupted=not whole)
    return timed(found, study, training) if time_best and whole and found.reached else found


def check_key(key, spec, groups):
    """Raise ``ParameterError`` for a metric that no row can have; which losses there are is known once one was trained."""
    names = [group.name for group in groups] if len(groups) > 1 else []
    rates = [f"charts/{name}/learning_rate" for name in names] or ["charts/learning_rate"]
    known = [*episode_metrics(groups, spec), "charts/global_step", "charts/SPS", "charts/episodes", *rates]
    if key is not None and key not in known and not key.startswith("losses/"):
        raise ParameterError(f"{no_metric(key, known)}, and losses/... of the algorithm")


def spelled(value):
    """Return a value as one writes it: of settings, those that differ from the algorithm's own."""
    if not isinstance(value, LearnerSettings):
        return repr(value)
    own = {
        field.name: getattr(value, field.name) for field in fields(value) if field.default != getattr(value, field.name)
    }
    return f"cd.{type(value).__name__}({', '.join(f'{name}={spelled(each)}' for name, each in own.items())})"


def mark_of(spec, params, objective, mark, key):
    """Return the return whose env-steps count, or None: the return counts.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters, those that trials have in common.
        objective: As of ``sweep``, and so are the others.
        mark: As given.
        key: As given.
    """
    checked_choice("sweep", "objective", objective, ("auto", "mark", "return"))
    mark = None if mark is None else checked_float("sweep", "mark", mark)
    if objective == "return":
        if mark is not None:
            raise ParameterError(
                f"sweep: objective = 'return' does not know mark = {shown(mark)}; leave one of them out"
            )
        return None
    if mark is None and key in (None, RETURN) and params == spec.make_params():
        mark = spec.mark
    if mark is None and objective == "mark":
        why = "says no mark" if spec.mark is None else "says a mark for its default parameters and its return alone"
        raise ParameterError(f"sweep: objective = 'mark', but {spec.name} {why}; pass mark=, the return to reach")
    return mark


def timed(found, study, training):
    """Return a ``Sweep`` with what its best settings took alone, which the study keeps; without it, if an interrupt came."""
    best = found.best
    alone, asked = study.user_attrs.get(ALONE), {"trial": best.number, "machine": training.machine()}
    if not isinstance(alone, dict) or {name: alone.get(name) for name in asked} != asked:
        try:
            alone = training.alone(best)
        except KeyboardInterrupt:  # before the first iteration
            return found
        if alone is not None:
            study.set_user_attr(ALONE, alone)
    return replace(found, alone=alone)
