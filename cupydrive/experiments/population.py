"""Population: runs of one environment with different seeds or settings, and their statistics.

A claim should rest on several seeds. Its statistics are medians, quartiles, and the interquartile
mean with its bootstrap interval (Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice", 2021).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cupydrive import envs
from cupydrive.algorithms.pool import unpooled, with_settings
from cupydrive.errors import CupydriveError, ParameterError, TrainingError
from cupydrive.inputs.arguments import (
    checked_choice,
    checked_float,
    checked_int,
    checked_list,
    checked_mapping,
    checked_path,
    checked_sequence,
    is_number,
    shown,
)
from cupydrive.inputs.files import file_errors, read_file, write_atomically
from cupydrive.inputs.formats import (
    FORMAT,
    MOST_JSON,
    POPULATION,
    FormatError,
    explained,
    read_json,
)
from cupydrive.protocols import LearnerSettings, PolicySettings
from cupydrive.spec import EnvSpec
from cupydrive.training.config import TrainConfig, check_players, resolve
from cupydrive.training.policies import learning_settings
from cupydrive.training.run import Run
from cupydrive.training.runfolder import POPULATION_FILE
from cupydrive.training.suggestions import suggested_algorithm

if TYPE_CHECKING:
    from cupydrive.drawing.curves import Curves
    from cupydrive.playing.evaluation import Evaluation

Arguments = dict[str, Any]
FAILURE_FILE = "failure.txt"  # of a member that has failed: the message of its error
MOST_MEMBERS = 10_000
MOST_SEED = 2**63 - 1
RETURN = "charts/episodic_return"
LARGEST_SCORE = 1e300  # sums of scores up to this limit are finite
RESAMPLES, INTERVAL = 2000, (2.5, 97.5)  # bootstrap resamples, and percentiles of the interval
# Arguments that a member may change besides settings and parameters.
WHOLE = ("algorithm", "policies", "num_envs")


@dataclass(frozen=True)
class Member:
    """One run of a population.

    Args:
        setting: Changes of the member, as text. Empty if members differ only in their seeds.
        config: Configuration of the run, with its own folder.
        where: Argument that defines the member, for messages.
    """

    setting: str
    config: TrainConfig
    where: str = ""

    def about(self) -> dict[str, str | int]:
        """Return the member's entry in ``population.json``."""
        return {"setting": self.setting, "seed": self.config.seed}


def resolve_members(
    env: str | PathLike | EnvSpec,
    algorithm: LearnerSettings | str | None = None,
    policies: Mapping[str, PolicySettings] | None = None,
    params: Mapping[str, object] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    members: Sequence[Mapping[str, object]] | None = None,
    seed: int | None = None,
    out: str | PathLike | None = None,
    **options: object,
) -> list[Member]:
    """Return the members of a population.

    The arguments are those of ``train``, except that ``params`` holds the environment's parameters
    in one dictionary.

    Raises:
        CupydriveError: If a member cannot be trained. The message names the member, and nothing is
            written.
    """
    spec = envs.get(env)
    changes = [{}] if members is None else checked_sequence("train", "members", members)
    if not changes:
        raise ParameterError("train: members is empty, expected at least one member")
    each_seed = planned_seeds(seed, seeds)
    common = options | {"algorithm": algorithm, "policies": policies, "params": dict(params or {})}
    found: list[Member] = []
    for k, given in enumerate(changes):
        where = "" if members is None else f"members[{k}]"
        change = checked_mapping("train", where or "members", given)
        with naming_member(where):
            own = changed(spec, common, change, where)
            setting = ", ".join(f"{name} {str(value)[:60]}" for name, value in change.items())
            for each in each_seed:
                folder = None if out is None else member_folder(out, len(found))
                config = resolve(spec, **own | {"seed": each, "out": folder})
                found.append(Member(setting, config, where))
            check_players(found[-1].config)  # the others differ only in their seeds
    return found


def planned_seeds(seed: int | None, seeds: int | Sequence[int] | None) -> list[int]:
    """Return the seeds of each member."""
    first = checked_int("train", "seed", 0 if seed is None else seed, 0, MOST_SEED)
    if seeds is None:
        return [first]
    if is_number(seeds, int | np.integer):
        return list(range(first, first + checked_int("train", "seeds", seeds, 1, MOST_MEMBERS)))
    found = list(checked_list("train", "seeds", seeds, checked_int, 0, MOST_SEED))
    if seed is not None or not 1 <= len(set(found)) == len(found) <= MOST_MEMBERS:
        limit = f"1 to {MOST_MEMBERS:,} different seeds, without seed="
        raise ParameterError(f"train: invalid seeds: got {shown(seeds)}, expected {limit}")
    return found


@contextmanager
def naming_member(where: str) -> Iterator[None]:
    """Add the member's name to errors that lack it. The type of the error does not change."""
    try:
        yield
    except CupydriveError as error:
        if where not in str(error):
            error.args = (f"{where}: {error}", *error.args[1:])
        raise


def changed(spec: EnvSpec, given: Arguments, change: Arguments, where: str) -> Arguments:
    """Return the arguments of ``resolve`` for one member.

    Args:
        spec: ``EnvSpec`` of the environment.
        given: Arguments common to all members.
        change: Fields of ``TrainConfig``, settings of the algorithms and parameters that this
            member changes.
        where: Name of the member, for messages.
    """
    own, parameters = dict(given), {field.name for field in fields(spec.params)}
    own |= {name: change[name] for name in WHOLE if name in change}
    if {"algorithm", "policies"} & change.keys():
        own |= {"algorithm": change.get("algorithm"), "policies": change.get("policies")}
    own["params"] = given["params"] | {name: change[name] for name in change if name in parameters}
    groups = [g.name for g in spec.groups(spec.make_params(**own["params"]))]
    suggested = partial(suggested_algorithm, spec, params=own["params"])
    policies = learning_settings(own["algorithm"], own["policies"], groups, suggested)
    learners = [each for each in policies.values() if isinstance(each, LearnerSettings)]
    known = {name for each in learners for name in setting_names(each)}
    for name in change:
        checked_choice("train", f"a name in {where}", name, sorted({*known, *parameters, *WHOLE}))
        if name in known & parameters:
            both = f"a setting of {learners[0].name} and a parameter of {spec.name}"
            fix = f"Pass the setting in algorithm=..., or the parameter as train(..., {name}=...)"
            raise ParameterError(f"train: {where} has {name!r}, which is both {both}. {fix}")
    new = {name: change[name] for name in change if name in known}
    if new:
        changed_policies = {name: with_settings(each, new) for name, each in policies.items()}
        own |= {"algorithm": None, "policies": changed_policies}
    return own


def setting_names(settings: LearnerSettings) -> set[str]:
    """Return the names of an algorithm's settings, including those inside an ``OpponentPool``."""
    both: list[Any] = [settings, unpooled(settings)]
    return {field.name for each in both if is_dataclass(each) for field in fields(each)}


def interquartile_mean(values: Sequence[float], *, seed: int = 0) -> tuple[float, float, float]:
    """Compute the interquartile mean and its 95 % bootstrap interval.

    Args:
        values: (M,) numbers, one for each run. A quarter of them, rounded down, is dropped at each
            end.
        seed: Random seed of the 2,000 bootstrap resamples.

    Returns:
        (mean, low, high).

    Raises:
        ParameterError: If there are no values, or a value is not finite.

    Examples:
        >>> import cupydrive as cd
        >>> mean, low, high = cd.interquartile_mean([480.0, 495.0, 500.0, 500.0])
        >>> mean
        497.5
    """
    numbers = checked_list(
        "interquartile_mean", "values", values, checked_float, -LARGEST_SCORE, LARGEST_SCORE
    )
    each = np.array(numbers, np.float64)
    if not numbers:
        raise ParameterError("interquartile_mean: values is empty. Pass one number for each run")
    rng = np.random.default_rng(checked_int("interquartile_mean", "seed", seed, 0, MOST_SEED))
    drawn, cut = rng.choice(each, (RESAMPLES, len(each))), len(each) // 4
    means = np.sort(drawn, axis=1)[:, cut : len(each) - cut].mean(axis=1)
    low, high = np.percentile(means, INTERVAL)
    return float(np.sort(each)[cut : len(each) - cut].mean()), float(low), float(high)


class Population:
    """Runs that were trained in parallel, as returned by ``cupydrive.train(..., seeds=10)``.

    Args:
        runs: ``Run``s of one environment.
        settings: Changes of each run, as text. Runs with equal texts differ only in their seeds.
        failures: Message of the ``NotFiniteError`` that ended a run early, by index of the run.
        interrupted: Whether Ctrl-C ended the training.

    Examples:
        >>> import cupydrive as cd
        >>> population = cd.train("cartpole", seeds=3, num_envs=64, steps=20_000, progress=False)
        >>> population.scores().shape
        (3,)
        >>> best = population.best()
    """

    def __init__(
        self,
        runs: Sequence[Run],
        settings: Sequence[str],
        failures: Mapping[int, str] | None = None,
        interrupted: bool = False,
    ) -> None:
        self.runs, self.settings, self.failures = list(runs), list(settings), dict(failures or {})
        self.interrupted = interrupted

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def by_setting(self) -> dict[str, list[int]]:
        """Return the indices of runs by setting, in the order of the runs."""
        found: dict[str, list[int]] = {}
        for number, setting in enumerate(self.settings):
            found.setdefault(setting, []).append(number)
        return found

    def scores(self, key: str | None = None) -> np.ndarray:
        """Return the last value of a metric in each run, (M,) float64.

        It is NaN for runs that have failed or have not logged the metric yet.

        Args:
            key: Name of a metric. Defaults to the episodic return of the only group that learns.

        Raises:
            ParameterError: If no run has this metric, or several groups learn and ``key`` is None.
        """
        key = self._key(key)
        last = np.full(len(self), np.nan)
        for k, run in enumerate(self.runs):
            if k not in self.failures:
                last[k] = next((row[key] for row in reversed(run.metrics) if key in row), np.nan)
        return last

    def best(self, key: str | None = None) -> Run:
        """Return the ``Run`` with the highest last value of a metric.

        Args:
            key: Name of a metric, as in ``scores``.

        Raises:
            ParameterError: If the metric is unknown, or no run has a value yet.
        """
        key, scores = self._key(key), self.scores(key)
        if np.isnan(scores).all():
            raise ParameterError(f"key = {key!r}: no run has a value yet. Train longer")
        return self.runs[int(np.nanargmax(scores))]

    def evaluate(self, episodes: int = 1000, **options: Any) -> list[Evaluation]:
        """Evaluate each run.

        Args:
            episodes: Number of episodes of each run.
            **options: Further options of ``cupydrive.evaluate``.

        Returns:
            The ``Evaluation`` of each run, in order.
        """
        return [run.evaluate(episodes, **options) for run in self.runs]

    def plot(self, *keys: str, levels: Mapping[str, Mapping[str, float]] | None = None) -> Curves:
        """Plot learning curves: medians over runs, with quartiles if there are several.

        Args:
            *keys: Names of metrics. Defaults to the episodic return of every group.
            levels: Horizontal lines for comparison, ``{label: {key: value}}``.

        Returns:
            ``Curves``, a Matplotlib figure that a notebook displays.
        """
        from cupydrive.drawing.curves import curves

        first = self.runs[0]
        title = f"{first.spec.name}, {len(self)} runs of {first.num_envs:,} environments"
        by_setting = self.by_setting().items()
        rows = {name: [self.runs[k].metrics for k in each] for name, each in by_setting}
        return curves(rows, keys or None, levels, title)

    def table(self, key: str | None = None) -> str:
        """Format a table of the runs by setting.

        Each run has its environment steps, its training time in this process in seconds, and its
        last value. Median, quartiles and ``interquartile_mean`` of each setting follow its runs.

        Args:
            key: Name of a metric, as in ``scores``.
        """
        key, scores = self._key(key), self.scores(key)
        lines = [f"{'':<20}{'env-steps':>15}{'seconds':>10}  {key}"]
        for setting, numbers in self.by_setting().items():
            lines += [setting] * bool(setting)
            for k in numbers:
                run, name = self.runs[k], f"  seed {self.runs[k].seed}"
                lines.append(f"{name:<20}{run.step:>15,}{run.seconds:>10.2f}  {scores[k]:.5g}")
                lines += [f"{name} failed: {self.failures[k]}"] if k in self.failures else []
            known = scores[numbers][np.isfinite(scores[numbers])]
            if len(known) > 1:
                low, middle, high = np.percentile(known, (25, 50, 75))
                mean, least, most = interquartile_mean(known)
                interval = f"95 %: {least:.5g} to {most:.5g}"
                lines.append(f"{'  median':<45}  {middle:.5g} (quartiles {low:.5g} and {high:.5g})")
                lines.append(f"{'  interquartile mean':<45}  {mean:.5g} ({interval})")
        return "\n".join(lines)

    def _metrics(self) -> list[str]:
        """Return the names of all metrics."""
        return list(dict.fromkeys(name for run in self.runs for row in run.metrics for name in row))

    def _returns(self) -> list[str]:
        """Return the names of the groups' episodic returns."""
        return [name for name in self._metrics() if name.startswith(RETURN)]

    def _key(self, key: str | None) -> str:
        """Validate the name of a metric. It may be None if there is only one episodic return."""
        known = (self._returns() if key is None else self._metrics()) or [RETURN]
        if key is None and len(known) == 1:
            return known[0]
        return checked_choice("population", "key", key, known)

    def __repr__(self) -> str:
        head = (
            f"<Population {self.runs[0].spec.name}: {len(self)} runs of {self.runs[0].num_envs:,} "
            f"environments"
        )
        return "\n".join([head, *map(self.table, self._returns())]) + ">"

    def _repr_html_(self) -> str:
        from cupydrive.terminal.progress import image, preformatted

        curves = image(self.plot()) if any(run.metrics for run in self.runs) else ""
        return preformatted(repr(self)) + curves


# ---- folders -------------------------------------------------------------------------------------


def member_folder(out: str | PathLike, number: int) -> Path:
    """Return the run folder of a member."""
    return Path(out) / f"{number:03d}"


def check_population_folder(
    out: Path, planned: Sequence[Member], resume: bool, overwrite: bool
) -> None:
    """Raise ``TrainingError`` if a folder holds a single run or another population.

    Args:
        out: Folder of the population.
        planned: Members to train.
        resume: Whether a population with these members may be continued.
        overwrite: Whether another population may be replaced.
    """
    if (out / "config.json").exists():
        raise TrainingError(f"{out} holds a single run. Pass another folder for a population")
    if overwrite or not (out / POPULATION_FILE).exists():
        return
    known, asked = read_members(out), [member.about() for member in planned]
    if not resume:
        fix = "Pass resume=True (--resume) to continue it, or overwrite=True (--overwrite)"
        raise TrainingError(f"{out} already holds a population of {len(known)} runs. {fix}")
    if known != asked:
        raise TrainingError(f"members of {out}: found {shown(known)}, expected {shown(asked)}")


def write_members(out: Path, planned: Sequence[Member]) -> None:
    """Write the list of members into a population's folder, before the first one is trained."""
    members = [member.about() for member in planned]
    content = json.dumps({"format": FORMAT, "members": members}, indent=1)
    with file_errors(TrainingError, f"out = {str(out)!r}: the population cannot be written there"):
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / POPULATION_FILE, f"{content}\n".encode())


def write_failures(out: Path, begun: Sequence[int], failures: Mapping[int, str]) -> None:
    """Write the messages of failed members into their folders, and delete those of others."""
    for number in begun:
        path = member_folder(out, number) / FAILURE_FILE
        with file_errors(TrainingError, f"{path} cannot be written"):
            if number in failures:
                write_atomically(path, f"{failures[number]}\n".encode())
            else:
                path.unlink(missing_ok=True)


def read_failure(folder: Path) -> str | None:
    """Read the message of a failed member from its folder. None if it has not failed."""
    path = folder / FAILURE_FILE
    if not path.exists():
        return None
    with file_errors(TrainingError, f"{path} cannot be read"):
        return read_file(path, MOST_JSON).decode(errors="replace").rstrip("\n")


def read_members(folder: Path) -> list[dict[str, Any]]:
    """Read the list of members from a population's folder."""
    path = folder / POPULATION_FILE
    with file_errors(TrainingError, f"{path} cannot be read"):
        content = read_file(path, MOST_JSON)
    try:
        found = read_json(content, POPULATION)
        return found["members"]
    except FormatError as error:
        words = explained(path, "population", error, "Train into another folder")
        raise TrainingError(words) from None


def load(
    folder: str | PathLike,
    device: str = "cpu",
    policies: Mapping[str, PolicySettings] | None = None,
    env: str | PathLike | EnvSpec | None = None,
) -> Run | Population:
    """Load the ``Run`` or ``Population`` of a folder at its last checkpoint.

    A loaded population contains the members whose training had begun. Code from the folder is
    never executed.

    Args:
        folder: Folder of a run or a population.
        device: Device of the loaded runs: ``"cuda"``, ``"cpu"`` or ``"auto"``. Defaults to
            ``"cpu"``.
        policies: Settings by policy name. Required for policies that are custom modules.
        env: Environment of the run, needed if it is your own and not yet registered: path of its
            Python file, or ``EnvSpec``.

    Raises:
        UnregisteredEnvironmentError: If ``env`` is needed. The message shows the correct call.
        DeviceError: If ``device`` is unknown or cannot be used here.
        TrainingError: If the folder holds no run, or a damaged one, or one of another environment.

    Examples:
        >>> import cupydrive as cd
        >>> run = cd.train("cartpole", num_envs=64, steps=10_000, out="runs/c", progress=False)
        >>> cd.load("runs/c").step == run.step
        True
    """
    path = checked_path("load", "folder", folder)
    if not (path / POPULATION_FILE).exists():
        return Run.load(folder, device, policies, env)
    members = read_members(path)
    begun = [k for k in range(len(members)) if (member_folder(path, k) / "config.json").exists()]
    if not begun:
        raise TrainingError(f"{path} holds a population without a run. Train it again")
    folders = [member_folder(path, k) for k in begun]
    runs = [Run.load(each, device, policies, env) for each in folders]
    texts = {k: text for k, each in enumerate(folders) if (text := read_failure(each)) is not None}
    return Population(runs, [members[k]["setting"] for k in begun], texts)
