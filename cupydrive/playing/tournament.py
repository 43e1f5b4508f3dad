"""tournament(): who plays how well against whom, in an environment of two groups, from the same starts."""

from dataclasses import dataclass

import numpy as np

from cupydrive import envs
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_bool, checked_choice, checked_int, checked_mapping, checked_str, shown
from cupydrive.playing.evaluation import evaluate
from cupydrive.protocols import PlayerSettings, Policies
from cupydrive.terminal.progress import counted, preformatted

MOST_PLAYERS = 100


@dataclass(frozen=True)
class Tournament:
    """What a tournament has found.

    Args:
        env: Name.
        groups: The two groups; the first one's players are rows, the second one's columns.
        players: Their names.
        key: What was measured: a group's return, ``"length"`` or a metric.
        mean: (R, R) float64, by row and column.
        half: (R, R) float64, half of the 95 % confidence interval of each mean.
        episodes: Of each pair.
        seed: Of the starts, which all pairs share.
    """

    env: str
    groups: tuple
    players: tuple
    key: str
    mean: np.ndarray
    half: np.ndarray
    episodes: int
    seed: int

    def table(self):
        """Return the means as a table in words; in the last column and row stand their means over the other side's players."""
        titles = [f"{self.groups[0]} \\ {self.groups[1]}", *self.players, "mean"]
        rows = [
            [name, *(f"{m:.4g} +- {h:.2g}" for m, h in zip(means, halves, strict=True)), f"{means.mean():.4g}"]
            for name, means, halves in zip(self.players, self.mean, self.half, strict=True)
        ]
        rows.append(["mean", *(f"{column.mean():.4g}" for column in self.mean.T), f"{self.mean.mean():.4g}"])
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (titles, *rows)
        )

    def __repr__(self):
        what = self.key if self.key not in self.groups else f"return of {self.key}"
        return (
            f"<Tournament of {self.env}: {what}, {self.episodes:,} episodes a pair, seed {self.seed}\n{self.table()}>"
        )

    def _repr_html_(self):
        return preformatted(repr(self))


def tournament(players, env=None, *, key=None, episodes=1000, seed=10_000, device="auto", progress=True, **params):
    """Let each player play the first group of an environment against each as the second one; return a ``Tournament``.

    Args:
        players: By name: ``Run``s, ``Heuristic()``, ``Random()`` or ``Frozen(...)``, at most 100; each must play both groups.
            A run plays as it does now, by its likeliest actions.
        env: Name, path of a Python file, or ``EnvSpec``; None: that of the runs, which must all have the same.
        key: What is measured; None: the return of the first group. Else another group, ``"length"`` or a metric.
        episodes: Of each pair, from the same starts.
        seed: Of starts and actions.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``; with runs, theirs.
        progress: Show how many pairs have played.
        **params: Parameters of the environment; runs bring their own.

    Raises:
        ParameterError: If the environment has not two groups, runs differ in theirs, or a name or player is unknown.
    """
    checked_mapping("tournament", "players", players)
    episodes, progress = (
        checked_int("tournament", "episodes", episodes),
        checked_bool("tournament", "progress", progress),
    )
    if not 1 <= len(players) <= MOST_PLAYERS:
        raise ParameterError(f"tournament: players has {len(players)} entries; it must have 1 to {MOST_PLAYERS}")
    for name, player in players.items():
        checked_str("tournament", "a name in players", name)
        if isinstance(player, type) or not isinstance(player, PlayerSettings | Policies):
            raise ParameterError(
                f"tournament: players[{name!r}] = {shown(player)}; it must be a Run, cd.Heuristic(), cd.Random() or "
                "cd.Frozen(path)"
            )
    base, spec, made = common_environment(players, env, params)
    groups = tuple(group.name for group in spec.groups(made))
    if len(groups) != 2:
        raise ParameterError(
            f"tournament: {spec.name} has {len(groups)} group{'s' * (len(groups) != 1)} ({', '.join(groups)}); it needs two, "
            "who play against each other"
        )
    known = (*groups, "length", *spec.metrics)
    key = groups[0] if key is None else checked_choice("tournament", "key", key, known)
    own = {} if isinstance(base, Policies) else params
    mean, half = np.zeros((2, len(players), len(players)))
    pairs = [(i, j) for i in range(len(players)) for j in range(len(players))]
    sides = [[settings(player, group) for player in players.values()] for group in groups]
    for i, j in counted(pairs, f"tournament of {spec.name}", len(pairs), progress):
        both = {groups[0]: sides[0][i], groups[1]: sides[1][j]}
        found = evaluate(base, both, episodes=episodes, seed=seed, device=device, **own)
        mean[i, j], half[i, j] = found.mean(key)
    return Tournament(spec.name, groups, tuple(players), key, mean, half, episodes, seed)


def settings(player, group):
    """Return who plays a group: the settings themselves, or a run's policy of it."""
    return player.frozen(group) if isinstance(player, Policies) else player


def common_environment(players, env, params):
    """Return what ``evaluate`` plays in, with its ``EnvSpec`` and parameters: a run, or what was named.

    Raises:
        ParameterError: If runs differ in their environment or its parameters, or from what was asked for; or nothing is named.
    """
    runs = {name: player for name, player in players.items() if isinstance(player, Policies)}
    if not runs:
        if env is None:
            raise ParameterError("tournament: env is missing; without a run among the players name the environment")
        spec = envs.get(env)
        spec.require_known(params, tournament)
        return env, spec, spec.make_params(**params)
    first, base = next(iter(runs.items()))
    if params:
        raise ParameterError(f"tournament: runs bring their own parameters; leave out {', '.join(params)}")
    if env is not None and envs.get(env).name != base.spec.name:
        raise ParameterError(f"tournament: env = {shown(env)}, but run {first!r} is of {base.spec.name}")
    for name, run in runs.items():
        if run.spec.name != base.spec.name or run.params != base.params:
            raise ParameterError(
                f"tournament: runs {first!r} and {name!r} differ in their environment or its parameters; they must be the same"
            )
    return base, base.spec, base.params
