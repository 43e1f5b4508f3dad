"""tournament(): play policies against each other in an environment of two groups, from the same
initial states.
"""

import math
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
        score: (R, R) float64, the share of episodes that the row wins, draws counting half. The
            group with the higher return wins an episode.
        episodes: Number of episodes of each pair.
        seed: Random seed of the initial states, which all pairs share.
    """

    env: str
    groups: tuple[str, ...]
    policies: tuple[str, ...]
    key: str
    mean: np.ndarray
    half: np.ndarray
    score: np.ndarray
    episodes: int
    seed: int

    @property
    def elo(self) -> dict[str, float]:
        """Elo ratings by policy, with mean 0: 400 points are odds of 10 to 1. They come from
        ``score`` by maximum likelihood, together with the first group's advantage, after one drawn
        episode more of each pair.
        """
        ratings = elo_ratings(self.score, self.episodes)
        return dict(zip(self.policies, ratings.tolist(), strict=True))

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
    mean, half, score = np.zeros((3, len(policies), len(policies)))
    sides: list[list[PlayerSettings]] = []
    for group in groups:
        playing = policies | {name: run.frozen(group) for name, run in runs.items()}
        sides.append(list(playing.values()))
    title, name = f"tournament of {config.spec.name}", config.spec.name
    for i, j in counted(np.ndindex(mean.shape), title, mean.size, progress):
        pair = {groups[0]: sides[0][i], groups[1]: sides[1][j]}
        found = play_episodes(replace(config, policies=pair))
        mean[i, j], half[i, j] = found.mean(key)
        one, other = found.returns.values()
        score[i, j] = (1 + (one - other).sign()).mean().item() / 2
    about = config.episodes, config.seed
    return Tournament(name, groups, tuple(policies), key, mean, half, score, *about)


def elo_ratings(score: np.ndarray, episodes: int) -> np.ndarray:
    """Return the ratings (R,) that make the scores most likely.

    The odds of row i against column j are 10 to the power of (rating_i - rating_j + advantage) /
    400. Source: Bradley & Terry 1952, "Rank analysis of incomplete block designs: the method of
    paired comparisons"; Elo 1978, "The rating of chessplayers".

    Args:
        score: (R, R), wins of the row and half of the draws, as a share of ``episodes``.
        episodes: Of each pair.
    """
    count = len(score)
    row, column = (index.ravel() for index in np.indices(score.shape))
    design = np.eye(count)[row] - np.eye(count)[column]
    design = np.column_stack([design, np.ones(len(design))])  # the last one: the advantage
    wins, games = score.ravel() * episodes + 0.5, episodes + 1  # with the drawn one
    found = np.zeros(count + 1)  # natural logarithms of odds
    for _ in range(100):
        expected = 1 / (1 + np.exp(-design @ found))
        slope = design.T @ (wins - games * expected)
        curvature = (design.T * (games * expected * (1 - expected))) @ design
        step = np.linalg.pinv(curvature) @ slope
        found += np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-10:
            break
    return 400 / math.log(10) * (found[:-1] - found[:-1].mean())


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
