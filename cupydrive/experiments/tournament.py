"""tournament(): rank policies of a two-group environment by playing all pairs."""

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
        groups: The two groups. Policies of the first group are rows, those of the second columns.
        policies: Names of the R policies.
        key: Measured quantity: a group's return, ``"length"`` or a metric.
        mean: (R, R) float64, mean of ``key`` by row and column.
        half: (R, R) float64, half width of the 95 % confidence interval of each mean.
        score: (R, R) float64, fraction of episodes that the row wins. Draws count half. The group
            with the higher return wins an episode.
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
        """Elo ratings by policy, with mean 0. A difference of 400 points means odds of 10 to 1.

        They are the maximum-likelihood ratings given ``score``, with an additional parameter for
        the first group's advantage, and one additional drawn episode per pair as a prior.
        """
        ratings = elo_ratings(self.score, self.episodes)
        return dict(zip(self.policies, ratings.tolist(), strict=True))

    def table(self) -> str:
        """Format the means as a table.

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
    """Play every policy as the first group of an environment against every policy as the second.

    All pairs play from the same initial states.

    Args:
        policies: ``Run``s, ``HeuristicPolicy()``, ``RandomPolicy()`` or ``FrozenPolicy(...)`` by
            name. Each of them must be able to play both groups. A run plays its current policies
            and takes the most likely actions.
        env: Name of an environment, path of its Python file, or ``EnvSpec``. May be omitted if
            ``policies`` contains runs, whose environments must be equal.
        key: A group's return, ``"length"`` or a metric. Defaults to the return of the first group.
        episodes: Number of episodes of each pair.
        seed: Random seed of initial states and actions.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. Runs are played on their own device.
        progress: Show a progress line that counts pairs.
        **params: Parameters of the environment. Runs define their own.

    Returns:
        ``Tournament`` with the means of all pairs. Printing it shows a table.

    Raises:
        ParameterError: If the environment does not have two groups, runs have different
            environments, or an argument is invalid.

    Examples:
        >>> import cupydrive as cd
        >>> policies = {"scripted": cd.HeuristicPolicy(), "random": cd.RandomPolicy()}
        >>> result = cd.tournament(policies, "tag_grid", episodes=20, progress=False)
        >>> result.mean.shape
        (2, 2)
    """
    policies = checked_mapping("tournament", "policies", policies)
    progress = checked_bool("tournament", "progress", progress)
    if not policies:
        raise ParameterError("tournament: policies is empty, expected at least one policy")
    runs = {name: each for name, each in policies.items() if isinstance(each, Policies)}
    checked_policies("tournament", {name: policies[name] for name in policies if name not in runs})
    base = common_environment(list(runs.values()), env)
    options: dict[str, Any] = {"episodes": episodes, "seed": seed}
    config: EvalConfig = resolve_eval(tournament, base, None, params, device=device, **options)
    groups = tuple(config.policies)
    if len(groups) != 2:
        raise ParameterError(
            f"tournament: {config.spec.name} has the groups {', '.join(groups)}, expected two "
            "groups"
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
    """Compute maximum-likelihood Elo ratings (R,).

    The odds of row i against column j are 10 to the power of (rating_i - rating_j + advantage) /
    400. Sources: Bradley & Terry 1952, "Rank analysis of incomplete block designs: the method of
    paired comparisons", and Elo 1978, "The rating of chessplayers".

    Args:
        score: (R, R), wins of the row plus half of the draws, as a fraction of ``episodes``.
        episodes: Number of episodes of each pair.
    """
    count = len(score)
    row, column = (index.ravel() for index in np.indices(score.shape))
    design = np.eye(count)[row] - np.eye(count)[column]
    design = np.column_stack([design, np.ones(len(design))])  # last column: first group's advantage
    wins, games = score.ravel() * episodes + 0.5, episodes + 1  # includes the additional draw
    found = np.zeros(count + 1)  # ratings and advantage as log odds
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
    """Return the first run, which represents the common environment, or ``env`` without runs.

    Raises:
        ParameterError: If runs have different environments or parameters, ``env`` differs from
            theirs, or there is neither a run nor ``env``.
    """
    if not runs:
        if env is None:
            raise ParameterError(
                "tournament: env is missing. Pass the environment, or a run among the policies"
            )
        return env
    base = runs[0]
    if env is not None and envs.get(env).name != base.spec.name:
        raise ParameterError(
            f"tournament: got env = {shown(env)}, but a run was trained in {base.spec.name}. Omit "
            "env"
        )
    if any(run.spec.name != base.spec.name or run.params != base.params for run in runs):
        raise ParameterError("tournament: runs must have the same environment and parameters")
    return base
