"""Population: several runs of one environment that differ in seeds or settings, and what they say together.

What one seed reaches says little; medians, quartiles, and the interquartile mean with its bootstrap interval (Agarwal et al.,
"Deep Reinforcement Learning at the Edge of the Statistical Precipice", 2021) say what a claim may rest on.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import zip_longest
from os import PathLike
from pathlib import Path

import numpy as np

from cupydrive import envs
from cupydrive.errors import CupydriveError, ParameterError, TrainingError, did_you_mean
from cupydrive.inputs.arguments import (
    checked_float,
    checked_int,
    checked_list,
    checked_mapping,
    checked_path,
    checked_sequence,
    checked_str,
    is_number,
    shown,
)
from cupydrive.inputs.files import file_errors, read_file, write_atomically
from cupydrive.inputs.formats import FORMAT, MOST_JSON, POPULATION, FormatError, explained, read_json
from cupydrive.protocols import LearnerSettings, PolicySettings
from cupydrive.spec import EnvSpec
from cupydrive.training.algorithms.pool import unpooled, with_settings
from cupydrive.training.config import TrainConfig, check_players, resolve
from cupydrive.training.policies import learning_settings
from cupydrive.training.run import Run
from cupydrive.training.runfolder import POPULATION_FILE
from cupydrive.training.suggestions import suggested_algorithm

MOST_MEMBERS = 10_000
RETURN = "charts/episodic_return"
LARGEST = 1e300  # whose sums are still finite
RESAMPLES, INTERVAL = 2000, (2.5, 97.5)  # of a bootstrap; percentiles
WHOLE = ("algorithm", "policies", "seed", "num_envs")  # what a member may bring besides settings and parameters


@dataclass(frozen=True)
class Member:
    """One run of a population.

    Args:
        setting: What it changes, as text; empty if members differ in their seeds alone.
        config: What it is made of, with a folder of its own.
        where: Name of the argument that it comes from, for messages.
    """

    setting: str
    config: TrainConfig
    where: str = ""

    def about(self) -> dict:
        """Return what ``population.json`` says of it."""
        return {"setting": self.setting, "seed": self.config.seed}


def resolve_members(
    env: str | PathLike | EnvSpec,
    algorithm: object = None,
    policies: Mapping[str, PolicySettings] | None = None,
    params: Mapping[str, object] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    members: Sequence[Mapping[str, object]] | None = None,
    seed: int | None = None,
    out: str | PathLike | None = None,
    **options: object,
) -> list[Member]:
    """Return the members of a population; arguments as in ``train``, with ``params`` of the environment in one dictionary.

    Raises:
        CupydriveError: If one of them cannot be trained. The message names it. Nothing has been written.
    """
    spec = envs.get(env)
    changes = [{}] if members is None else list(checked_sequence("train", "members", members))
    each_seed = planned_seeds(seed, seeds)
    found = []
    for k, change in enumerate(changes):
        where = "" if members is None else f"members[{k}]"
        change = checked_mapping("train", where or "members", change)
        if seeds is not None and "seed" in change:
            raise ParameterError(
                f"train: {where} has seed = {shown(change['seed'])}, and seeds = {shown(seeds)} says the seeds of every "
                "member; pass one of them"
            )
        with named(where):
            common = options | {"algorithm": algorithm, "policies": policies, "params": dict(params or {})}
            own = changed(spec, common, change, where)
            setting = ", ".join(f"{name} {str(value)[:60]}" for name, value in change.items() if name != "seed")
            for first, seed in enumerate([change["seed"]] if "seed" in change else each_seed):
                folder = None if out is None else member_folder(out, len(found))
                config = resolve(spec, **own | {"seed": seed, "out": folder})
                if first == 0:  # the others differ in seeds
                    check_players(config)
                found.append(Member(setting, config, where))
    if not found:
        raise ParameterError("train: a population needs at least one member; seeds or members is empty")
    return found


def planned_seeds(seed: int | None, seeds: int | Sequence[int] | None) -> list[int]:
    """Return the seeds of members that name none."""
    first = checked_int("train", "seed", 0 if seed is None else seed, 0, 2**63 - 1)
    if seeds is None:
        return [first]
    if is_number(seeds, int | np.integer):
        return list(range(first, first + checked_int("train", "seeds", seeds, 1, MOST_MEMBERS)))
    if seed is not None:
        raise ParameterError(
            f"train: seeds = {shown(seeds)} lists the seeds, and seed = {shown(seed)} is another; pass one of them"
        )
    found = list(checked_list("train", "seeds", seeds, checked_int, 0, 2**63 - 1))
    if len(found) > MOST_MEMBERS or len(set(found)) < len(found):
        raise ParameterError(f"train: seeds = {shown(seeds)}; it must be at most {MOST_MEMBERS:,} different seeds")
    return found


@contextmanager
def named(where):
    """Say of which member an error is, unless ``where`` is empty or the error says it; its type stays."""
    try:
        yield
    except CupydriveError as error:
        if where and where not in str(error):
            error.args = (f"{where}: {error}", *error.args[1:])
        raise


def changed(spec: EnvSpec, given: dict[str, object], change: dict[str, object], where: str) -> dict[str, object]:
    """Return the arguments of ``resolve`` of one member.

    Args:
        spec: Environment.
        given: Arguments of all members.
        change: Fields of ``TrainConfig``, settings of the algorithms and parameters that this member changes.
        where: Name of the member, for messages.
    """
    own, parameters = given | {"params": dict(given["params"])}, {field.name for field in fields(spec.params)}
    whose = change if {"algorithm", "policies"} & change.keys() else given
    groups = [g.name for g in spec.groups(spec.params())]
    suggested = partial(suggested_algorithm, spec)
    policies = learning_settings(whose.get("algorithm"), whose.get("policies"), groups, suggested)
    learners = [each for each in by_group(policies).values() if isinstance(each, LearnerSettings)]
    known = {name for each in learners if is_dataclass(each) for name in setting_names(each)}
    new = {}
    for name, value in change.items():
        if name in known and name in parameters:
            raise ParameterError(
                f"train: {where} has {name!r}, which is a setting of {learners[0].name} and a parameter of {spec.name}; for "
                f"the setting pass algorithm=..., for the parameter train(..., {name}=...)"
            )
        if name in known:
            new[name] = value
        elif name in WHOLE:
            own[name] = value
        elif name in parameters:
            own["params"][name] = value
        else:
            names = sorted({*known, *parameters, *WHOLE})
            raise ParameterError(
                f"train: {where} has {name!r}, which is no setting and no parameter.{did_you_mean(name, names)} "
                f"There are: {', '.join(names)}"
            )
    if given.get("resume") is True and not new and whose.get("algorithm") is None and whose.get("policies") is None:
        return own  # the settings of the run that is continued
    own |= {"algorithm": None, "policies": None}
    if isinstance(policies, dict):
        own["policies"] = {name: with_settings(each, new) for name, each in policies.items()}
    else:
        own["algorithm"] = with_settings(policies, new)
    return own


def by_group(policies):
    """Return settings by name; one algorithm's under no name."""
    return policies if isinstance(policies, dict) else {"": policies}


def setting_names(settings):
    """Return the names of an algorithm's settings; of a ``Pool``, those of what it is of, too."""
    return {field.name for each in (settings, unpooled(settings)) for field in fields(each)}


def interquartile_mean(values, *, seed=0):
    """Return the mean of the middle half of some values, and its 95 % bootstrap interval: (mean, low, high).

    Args:
        values: (M,) numbers, one for each run. A quarter of them, rounded down, is left out at either end.
        seed: Of the bootstrap's 2,000 resamples.
    """
    values = checked_list("interquartile_mean", "values", values, checked_float, -LARGEST, LARGEST)
    if not values:
        raise ParameterError("interquartile_mean: there are no values; pass one number for each run")
    values, seed = np.array(values, np.float64), checked_int("interquartile_mean", "seed", seed, 0, 2**63 - 1)
    drawn = np.random.default_rng(seed).choice(values, (RESAMPLES, len(values)))
    cut = len(values) // 4
    means = np.sort(drawn, axis=1)[:, cut : len(values) - cut].mean(axis=1)
    return (float(np.sort(values)[cut : len(values) - cut].mean()), *map(float, np.percentile(means, INTERVAL)))


class Population:
    """Runs that were trained side by side; ``cupydrive.train(..., seeds=10)`` makes it.

    Args:
        runs: ``Run``s of one environment.
        settings: What each changes, in words; those of the same words differ in their seeds.
        failures: By number of a run, why its training ended early: a number was not finite.
        interrupted: Whether Ctrl-C ended the training of all.
    """

    def __init__(self, runs, settings, failures=None, interrupted=False):
        self.runs, self.settings, self.failures = list(runs), list(settings), dict(failures or {})
        self.interrupted = interrupted

    def __len__(self):
        return len(self.runs)

    def __iter__(self):
        return iter(self.runs)

    def by_setting(self):
        """Return the numbers of runs by what they change, in the order of the runs."""
        found = {}
        for number, setting in enumerate(self.settings):
            found.setdefault(setting, []).append(number)
        return found

    def scores(self, key=None):
        """Return the last value of a metric in each run, (M,) float64, NaN where there is none yet or the run has failed.

        Args:
            key: Name of a metric; None: the episodic return of the only group that learns.

        Raises:
            ParameterError: If no run has such a metric, or several groups learn and ``key`` is None.
        """
        key = self._key(key)
        last = [next((row[key] for row in reversed(run.metrics) if key in row), np.nan) for run in self.runs]
        return np.array([np.nan if k in self.failures else value for k, value in enumerate(last)], np.float64)

    def best(self, key=None):
        """Return the ``Run`` whose last value of a metric is the highest; ``key`` as of ``scores``."""
        scores = self.scores(key)
        if np.isnan(scores).all():
            raise ParameterError(
                f"key = {self._key(key)!r}: no run has a value of it yet; train longer, or name another metric"
            )
        return self.runs[int(np.nanargmax(scores))]

    def evaluate(self, episodes=1000, **options):
        """Return the ``Evaluation`` of each run; ``options`` as in ``cupydrive.evaluate``."""
        return [run.evaluate(episodes, **options) for run in self.runs]

    def plot(self, *keys, levels=None):
        """Return learning curves as a Matplotlib figure: medians over runs, with quartiles where there are several.

        Args:
            *keys: Names of metrics; none: the episodic return of every group.
            levels: Horizontal lines to compare with, ``{label: {key: value}}``.
        """
        from cupydrive.terminal.curves import curves

        first = self.runs[0]
        title = f"{first.spec.name}, {len(self)} runs of {first.num_envs:,} environments"
        rows = {setting: [self.runs[k].metrics for k in numbers] for setting, numbers in self.by_setting().items()}
        return curves(rows, keys or None, levels, title)

    def table(self, key=None):
        """Return a table in words: by setting, each run with its env-steps, seconds and last value, then these together.

        Together: their median with the quartiles, and the ``interquartile_mean``. Seconds are of this process; where no run
        was trained in it they are left out.
        """
        key, scores, timed = self._key(key), self.scores(key), any(run.seconds for run in self.runs)
        width = 45 if timed else 35
        lines = [f"{'':<20}{'env-steps':>15}{'seconds' * timed:>{width - 35}}  {key}"]
        for setting, numbers in self.by_setting().items():
            lines += [setting] * bool(setting)
            for run, score in ((self.runs[k], scores[k]) for k in numbers):
                seconds = f"{run.seconds:.2f}" if run.seconds else "-" * timed
                lines.append(f"{f'  seed {run.seed}':<20}{run.step:>15,}{seconds:>{width - 35}}  {score:.5g}")
            lines += [f"  seed {self.runs[k].seed} failed: {self.failures[k]}" for k in numbers if k in self.failures]
            known = scores[numbers][np.isfinite(scores[numbers])]
            if len(known) > 1:
                low, middle, high = np.percentile(known, (25, 50, 75))
                mean, least, most = interquartile_mean(known)
                lines.append(f"{'  median':<{width}}  {middle:.5g} (quartiles {low:.5g} and {high:.5g})")
                lines.append(f"{'  interquartile mean':<{width}}  {mean:.5g} (95 %: {least:.5g} to {most:.5g})")
        return "\n".join(lines)

    def _key(self, key):
        known = list(dict.fromkeys(name for run in self.runs for row in run.metrics for name in row))
        if key is None:
            found = [name for name in known if name.startswith(RETURN)]
            if len(found) > 1:
                raise ParameterError(f"several groups have returns; name one: {', '.join(found)}")
            return found[0] if found else RETURN
        if checked_str("population", "key", key) not in known:
            raise ParameterError(
                f"key = {shown(key)} is no metric.{did_you_mean(key, known)} There are: {', '.join(known)}"
            )
        return key

    def __repr__(self):
        head = f"<Population {self.runs[0].spec.name}: {len(self)} runs of {self.runs[0].num_envs:,} environments"
        returns = dict.fromkeys(
            name for run in self.runs for row in run.metrics for name in row if name.startswith(RETURN)
        )
        return "\n".join([head, *map(self.table, returns)]) + ">"

    def _repr_html_(self):
        from cupydrive.terminal.progress import image, preformatted

        curves = image(self.plot()) if any(run.metrics for run in self.runs) else ""
        return preformatted(repr(self)) + curves


# ---- folders -----------------------------------------------------------------------------------------------------------


def member_folder(out, number):
    """Return the run folder of a member."""
    return Path(out) / f"{number:03d}"


def check_members(out, planned, resume, overwrite):
    """Raise ``TrainingError`` if a folder holds a single run, or a population that is neither these members nor replaced."""
    if (out / "config.json").exists():
        raise TrainingError(f"out = {str(out)!r} holds a single run; pass another folder for a population")
    if (out / POPULATION_FILE).exists() and not overwrite:
        known = read_members(out)
        if not resume:
            raise TrainingError(
                f"out = {str(out)!r} holds a population of {len(known)} runs already. Go on with it by resume=True (--resume), "
                "or replace it by overwrite=True (--overwrite)"
            )
        members = [member.about() for member in planned]
        for k, (theirs, mine) in enumerate(zip_longest(known, members, fillvalue="none")):
            if theirs != mine:
                raise TrainingError(
                    f"out = {str(out)!r} holds a population of other members: number {k} is {theirs} there, and {mine} was "
                    "asked for"
                )


def write_members(out, planned):
    """Write which members a population's folder has, before the first one is trained."""
    members = [member.about() for member in planned]
    with file_errors(TrainingError, f"out = {str(out)!r}: the population cannot be written there"):
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(
            out / POPULATION_FILE, json.dumps({"format": FORMAT, "members": members}, indent=1).encode() + b"\n"
        )


def read_members(folder):
    """Return what a population's folder says of its members."""
    path = folder / POPULATION_FILE
    with file_errors(TrainingError, f"{path} cannot be read"):
        content = read_file(path, MOST_JSON)
    try:
        return read_json(content, POPULATION)["members"]
    except FormatError as error:
        raise TrainingError(explained(path, "population", error, "Train into another folder")) from None


def load(folder, device="cpu", policies=None, env=None):
    """Return the ``Run`` of a folder at its last checkpoint, to go on with; or the ``Population``, if it holds one.

    Arguments and errors are those of ``Run.load``. Of a population the members that were begun are loaded.
    """
    path = checked_path("load", "folder", folder, TrainingError)
    if not (path / POPULATION_FILE).exists():
        return Run.load(folder, device, policies, env)
    members = read_members(path)
    begun = [k for k in range(len(members)) if (member_folder(path, k) / "config.json").exists()]
    if not begun:
        raise TrainingError(f"{path} holds a population of which no run was begun; train it again")
    runs = [Run.load(member_folder(path, k), device, policies, env) for k in begun]
    return Population(runs, [members[k]["setting"] for k in begun])
