"""tournament(): play each player against each other one in an environment of two groups, from the same initial states."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from cupydrive import envs
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_bool, checked_choice, checked_int, checked_mapping, checked_str, shown
from cupydrive.playing.evaluation import evaluate
from cupydrive.protocols import PlayerSettings, Policies
from cupydrive.spec import EnvSpec
from cupydrive.terminal.progress import counted, preformatted

MOST_PLAYERS = 100


@dataclass(frozen=True)
class Tournament:
    """Result of ``tournament``.

    Args:
        env: Name of the environment.
        groups: The two groups. Players of the first one are rows, those of the second one columns.
        players: Names of the R players.
        key: What was measured: a group's return, ``"length"`` or a metric.
        mean: (R, R) float64, by row and column.
        half: (R, R) float64, half of the 95 % confidence interval of each mean.
        episodes: Number of episodes of each pair.
        seed: Random seed of the initial states, which all pairs share.
    """

    env: str
    groups: tuple[str, ...]
    players: tuple[str, ...]
    key: str
    mean: np.ndarray
    half: np.ndarray
    episodes: int
    seed: int

    def table(self) -> str:
        """Return the means as text. The last column and row are means over the other side's players."""
        titles = [f"{self.groups[0]} \\ {self.groups[1]}", *self.players, "mean"]
        rows = [
            [name, *(f"{m:.4g} +- {h:.2g}" for m, h in zip(means, halves, strict=True)), f"{means.mean():.4g}"]
            for name, means, halves in zip(self.players, self.mean, self.half, strict=True)
        ]
        rows.append(["mean", *(f"{column.mean():.4g}" for column in self.mean.T), f"{self.mean.mean():.4g}"])
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in (titles, *rows))

    def __repr__(self) -> str:
        what = self.key if self.key not in self.groups else f"return of {self.key}"
        return (
            f"<Tournament of {self.env}: {what}, {self.episodes:,} episodes a pair, seed {self.seed}\n{self.table()}>"
        )

    def _repr_html_(self) -> str:
        return preformatted(repr(self))


def tournament(
    players: Mapping[str, PlayerSettings | Policies],
    env: "str | PathLike | EnvSpec | None" = None,
    *,
    key: str | None = None,
    episodes: int = 1000,
    seed: int = 10_000,
    device: str = "auto",
    progress: bool = True,
    **params: Any,
) -> Tournament:
    """Play each player as the first group of an environment against each one as the second group.

    Args:
        players: By name: ``Run``s, ``HeuristicPolicy()``, ``RandomPolicy()`` or ``FrozenPolicy(...)``, at most 100, each of which can play both
            groups. A run plays by its present policies and takes the most likely actions.
        env: Name of an environment, path of its Python file, or ``EnvSpec``. Runs bring their own, which must be the same.
        key: A group's return, ``"length"`` or a metric. Defaults to the return of the first group.
        episodes: Number of episodes of each pair.
        seed: Random seed of initial states and actions.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. Runs are played on their own device.
        progress: Show how many pairs have played.
        **params: Parameters of the environment. Runs bring their own.

    Raises:
        ParameterError: If the environment does not have two groups, runs have different environments, or an argument is wrong.
    """
    checked_mapping("tournament", "players", players)
    episodes = checked_int("tournament", "episodes", episodes)
    progress = checked_bool("tournament", "progress", progress)
    if not 1 <= len(players) <= MOST_PLAYERS:
        raise ParameterError(f"tournament: players has {len(players)} entries; it must have 1 to {MOST_PLAYERS}")
    for name, player in players.items():
        checked_str("tournament", "a name in players", name)
        if isinstance(player, type) or not isinstance(player, PlayerSettings | Policies):
            raise ParameterError(
                f"tournament: players[{name!r}] = {shown(player)}; it must be a Run, cd.HeuristicPolicy(), cd.RandomPolicy() or "
                "cd.FrozenPolicy(path)"
            )
    base, spec, made = common_environment(players, env, params)
    groups = tuple(group.name for group in spec.groups(made))
    if len(groups) != 2:
        raise ParameterError(f"tournament: {spec.name} has the groups {', '.join(groups)}; it must have two")
    key = groups[0] if key is None else checked_choice("tournament", "key", key, (*groups, "length", *spec.metrics))
    mean, half = np.zeros((2, len(players), len(players)))
    first, second = (
        [player.frozen(group) if isinstance(player, Policies) else player for player in players.values()]
        for group in groups
    )
    for i, j in counted(np.ndindex(mean.shape), f"tournament of {spec.name}", mean.size, progress):
        both = dict(zip(groups, (first[i], second[j]), strict=True))
        found = evaluate(base, both, episodes=episodes, seed=seed, device=device, **params)
        mean[i, j], half[i, j] = found.mean(key)
    return Tournament(spec.name, groups, tuple(players), key, mean, half, episodes, seed)


def common_environment(
    players: Mapping[str, PlayerSettings | Policies], env: "str | PathLike | EnvSpec | None", params: dict[str, Any]
) -> tuple[Any, EnvSpec, Any]:
    """Return what ``evaluate`` plays in, with its ``EnvSpec`` and parameters: the first run, or ``env``.

    Raises:
        ParameterError: If runs have different environments or parameters, ``env`` is another one, or there is none.
    """
    runs = [player for player in players.values() if isinstance(player, Policies)]
    if not runs:
        if env is None:
            raise ParameterError("tournament: env is missing; without a run among the players name the environment")
        spec = envs.get(env)
        spec.require_known(params, tournament)
        return env, spec, spec.make_params(**params)
    base = runs[0]
    if params:
        raise ParameterError(f"tournament: runs bring their own parameters; leave out {', '.join(params)}")
    if env is not None and envs.get(env).name != base.spec.name:
        raise ParameterError(f"tournament: env = {shown(env)}, but a run is of {base.spec.name}; leave env out")
    if any(run.spec.name != base.spec.name or run.params != base.params for run in runs):
        raise ParameterError("tournament: runs differ in their environment or its parameters; they must be the same")
    return base, base.spec, base.params
