"""What is given as who plays, and as what is played: settings by group, a word, a run; else what to pass instead is told."""

import os
from collections.abc import Mapping
from dataclasses import asdict

import torch

from cupydrive import envs
from cupydrive.errors import ParameterError, UnknownEnvironmentError, did_you_mean
from cupydrive.inputs.arguments import checked_choice, is_number, kind_of, shown
from cupydrive.playing.players import PLAYERS, Heuristic, Random
from cupydrive.protocols import LearnerSettings, PlayerSettings, Policies


def players_by_group(where, spec, groups, given):
    """Return the argument ``players`` of ``where`` as settings by group; a word is meant for all groups."""
    if isinstance(given, str):
        chosen = PLAYERS[checked_word(where, given, groups[0].name)]
        return {g.name: chosen() for g in groups}
    if not isinstance(given, Mapping):
        none = f"; {spec.name} has no heuristic" * (isinstance(given, Heuristic) and spec.heuristic is None)
        such = type(given).__name__ if isinstance(given, Random | Heuristic) and not none else "Random"
        raise ParameterError(
            f"{where}: players = {shown(given)} is {kind_of(given)}; it must be 'random', 'heuristic' or a dict by group, such "
            f"as {{{groups[0].name!r}: cd.{such}()}}{none}"
            f"{instead(given, [g.name for g in groups], of_all=True)}"
        )
    require_players(spec, groups, "players", given)
    return dict(given)


def checked_word(where, given, group="group"):
    """Return the argument ``players`` of ``where`` if it is a word for all groups; of a path, say how its policy plays."""
    if given not in PLAYERS and os.path.basename(given) != given:
        raise ParameterError(
            f"{where}: players = {shown(given)}; it must be 'random', 'heuristic' or a dict by group"
            f"{of_folder(given, f'{{{group!r}: cd.Frozen({{}})}}')}"
        )
    return checked_choice(where, "players", given, PLAYERS)


def of_folder(path, call="cd.Frozen({})"):
    """Return how the policy of a run folder plays, by a call of its path; and if there is nothing at ``path``, that."""
    if os.path.lexists(os.path.expanduser(path)):
        return f"; of a run folder, its policy: {call.replace('{}', shown(str(path)))}"
    return f"; there is no folder {shown(str(path))}; of a run folder, its policy: {call.replace('{}', 'FOLDER')}"


def instead(player, groups, of_all=False):
    """Return what to pass in the place of ``player``, which cannot play, or an empty string.

    Args:
        player: What was given.
        groups: Names of those that it was to play.
        of_all: It was given in the place of a dict by group.
    """
    if isinstance(player, type) and issubclass(player, Random | Heuristic):
        return f"; call it: cd.{player.__name__}()"
    if isinstance(player, Policies):
        own = [g.name for g in player.spec.groups(player.params)]
        played = [name for name in groups if name in own]
        if not played:
            return f"; a run of {player.spec.name} plays {', '.join(own)} alone"
        if of_all:
            return f"; of a run, its policy: {{{', '.join(f'{name!r}: run.frozen({name!r})' for name in played)}}}"
        return f"; of a run, its policy: run.frozen({played[0]!r})"
    if isinstance(player, str | os.PathLike):
        known = PLAYERS.get(player) if isinstance(player, str) else None
        return f"; write cd.{known.__name__}()" if known else of_folder(player)
    if of_all and is_number(player, int):
        return f"; a number of episodes is episodes={shown(player)}"
    if isinstance(player, LearnerSettings):
        return "; what learns is for train"
    if isinstance(player, torch.nn.Module):
        return "; a network plays in a run (train with PPO(policy=...)), or by a cupydrive.protocols.PlayerSettings of yours"
    return ""


def require_players(spec, groups, where, given):
    """Raise ``ParameterError`` unless ``given``, called ``where``, are settings of who plays, by names of groups."""
    known = [g.name for g in groups]
    for name, player in given.items():
        if name not in known:
            raise ParameterError(
                f"{where}: {spec.name} has no group {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}"
            )
        if isinstance(player, type) or not isinstance(player, PlayerSettings):
            raise ParameterError(
                f"{where}[{name!r}] = {shown(player)}; it must be cd.Heuristic(), cd.Random() or cd.Frozen(path)"
                f"{instead(player, [name])}"
            )


def unwrapped(where, what, device, params, kinds="an environment or a Run", name="what"):
    """Return (what, device, params) with a ``VectorEnv`` taken apart: another copy of it is played, on its device.

    Args:
        where: Who asks, for the message.
        what: Name, path of a Python file, ``EnvSpec``, ``VectorEnv``, or a ``Run``.
        device: As of ``evaluate``.
        params: Given parameters by name.
        kinds: What it can be, for the message.
        name: What ``where`` calls the argument ``what``, for the message.

    Raises:
        ParameterError: If it is none of them.
    """
    if isinstance(what, Policies):
        return what, device, params
    if hasattr(what, "batch"):  # a VectorEnv
        return what.spec, what.device, {**asdict(what.params), **params}
    if not isinstance(what, str | os.PathLike | envs.EnvSpec):
        raise ParameterError(f"{where}: {name} = {shown(what)} is {kind_of(what)}; it must be {kinds}")
    if isinstance(what, str | os.PathLike):
        require_no_path(where, os.fspath(what))
    return what, device, params


def require_no_path(where, path):
    """Raise ``UnknownEnvironmentError`` for the path of a recording, or of a run folder that there is not."""
    if path.endswith(".npz"):
        read = f"a recording is read by: cupydrive.Recording.load({shown(path)})"
    elif os.path.basename(path) != path and not path.endswith((".py", ".cu")) and not os.path.lexists(path):
        read = f"nor a run folder of that name; cupydrive.load(FOLDER) reads one, and {where} takes what it returns"
    else:
        return
    raise UnknownEnvironmentError(f"{where}: {shown(path)} is no environment; {read}")
