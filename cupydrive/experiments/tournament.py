"""tournament(): play policies against each other in an environment of two groups, from the same
initial states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from cupydrive import envs
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_bool, checked_choice, checked_mapping, shown
from cupydrive.playing.config import EvalConfig, checked_policies, resolve_eval
from cupydrive.playing.evaluation import play_episodes
from cupydrive.protocols import ParamValue, PlayerSettings, Policies
from cupydrive.spec import EnvSpec
from cupydrive.terminal.progress import counted, preformatted

Environment = str | PathLike | EnvSpec


@dataclass(frozen=True)
class Tournament:
    """Result of ``tournament``.

    Args:
        env: Name of the environment.
        groups: The two groups. Policies of the first one are rows, those of the second one columns.
        policies: Names of the R policies.
        key: What was measured: a group's return, ``"length"`` or a metric.
        mean: (R, R) float64, by row and column.
        half: (R, R) float64, half of the 95 % confidence interval of each mean.
        episodes: Number of episodes of each pair.
        seed: Random seed of the initial states, which all pairs share.
    """

    env: str
    groups: tuple[str, ...]
    policies: tuple[str, ...]
    key: str
    mean: np.ndarray
    half: np.ndarray
    episodes: int
    seed: int

    def table(self) -> str:
        """Return the means as text.

        The last column and row are means over the other side's policies.
        """
        titles = [f"{self.groups[0]} \\ {self.groups[1]}", *self.policies, "mean"]
        rows = []
        for name, means, halves in zip(self.policies, self.mean, self.half, strict=True):
            cells = [f"{m:.4g} +- {h:.2g}" for m, h in zip(means, halves, strict=True)]
            rows.append([name, *cells, f"{means.mean():.4g}"])
        means = [f"{mean:.4g}" for mean in (*self.mean.mean(0), self.mean.mean())]
        rows.append(["mean", *means])
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in (titles, *rows))

    def __repr__(self) -> str:
        what = self.key if self.key not in self.groups else f"return of {self.key}"
        return (
            f"<Tournament of {self.env}: {what}, {self.episodes:,} episodes a pair, seed "
            f"{self.seed}\n{self.table()}>"
        )

    def _repr_html_(self) -> str:
        return preformatted(repr(self))


def tournament(
    policies: Mapping[str, PlayerSettings | Policies],
    env: "str | PathLike[str] | EnvSpec | None" = None,
    *,
    key: str | None = None,
    episodes: int = 1000,
    seed: int = 10_000,
    device: str = "auto",
    progress: bool = True,
    **params: ParamValue,
) -> Tournament:
    """Play each policy as the first group of an environment against each one as the second group.

    Args:
        policies: By name: ``Run``s, ``HeuristicPolicy()``, ``RandomPolicy()`` or
            ``FrozenPolicy(...)``, each of which can play both groups. A run plays by its present
            policies and takes the most likely actions.
        env: Name of an environment, path of its Python file, or ``EnvSpec``. Runs bring their own,
            which must be the same.
        key: A group's return, ``"length"`` or a metric. Defaults to the return of the first group.
        episodes: Number of episodes of each pair.
        seed: Random seed of initial states and actions.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. Runs are played on their own device.
        progress: Show how many pairs have played.
        **params: Parameters of the environment. Runs bring their own.

    Raises:
        ParameterError: If the environment does not have two groups, runs have different
            environments, or an argument is wrong.
    """
    policies = checked_mapping("tournament", "policies", policies)
    progress = checked_bool("tournament", "progress", progress)
    if not policies:
        raise ParameterError("tournament: policies = {}; it must have at least one")
    runs = {name: each for name, each in policies.items() if isinstance(each, Policies)}
    checked_policies("tournament", {name: policies[name] for name in policies if name not in runs})
    base = common_environment(list(runs.values()), env)
    options: dict[str, Any] = {"episodes": episodes, "seed": seed}
    config: EvalConfig = resolve_eval(tournament, base, None, params, device=device, **options)
    groups = tuple(config.policies)
    if len(groups) != 2:
        raise ParameterError(
            f"tournament: {config.spec.name} has the groups {', '.join(groups)}; it must have two"
        )
    metrics = (*groups, "length", *config.spec.metrics)
    key = groups[0] if key is None else checked_choice("tournament", "key", key, metrics)
    mean, half = np.zeros((2, len(policies), len(policies)))
    sides: list[list[PlayerSettings]] = []
    for group in groups:
        playing = policies | {name: run.frozen(group) for name, run in runs.items()}
        sides.append(list(playing.values()))
    title, name = f"tournament of {config.spec.name}", config.spec.name
    for i, j in counted(np.ndindex(mean.shape), title, mean.size, progress):
        pair = {groups[0]: sides[0][i], groups[1]: sides[1][j]}
        mean[i, j], half[i, j] = play_episodes(replace(config, policies=pair)).mean(key)
    return Tournament(name, groups, tuple(policies), key, mean, half, config.episodes, config.seed)


def common_environment(runs: Sequence[Policies], env: Environment | None) -> Environment | Policies:
    """Return the environment of all runs, as the first of them, or ``env`` if there are none.

    Raises:
        ParameterError: If runs have different environments or parameters, ``env`` is another one,
            or there is none.
    """
    if not runs:
        if env is None:
            raise ParameterError(
                "tournament: env is missing; without a run among the policies name the environment"
            )
        return env
    base = runs[0]
    if env is not None and envs.get(env).name != base.spec.name:
        raise ParameterError(
            f"tournament: env = {shown(env)}, but a run is of {base.spec.name}; leave env out"
        )
    if any(run.spec.name != base.spec.name or run.params != base.params for run in runs):
        raise ParameterError(
            "tournament: runs differ in their environment or its parameters; they must be the same"
        )
    return base
