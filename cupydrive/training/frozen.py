"""Policies in files: settings as JSON, and ``FrozenPolicy``, which plays a saved policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn

from cupydrive import envs
from cupydrive.algorithms import ALGORITHMS
from cupydrive.algorithms.architecture import Network, network_as_json
from cupydrive.algorithms.pool import OpponentPool, unpooled
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.inputs.arguments import checked_bool, checked_path, checked_str, shown
from cupydrive.playing.players import HeuristicPolicy, RandomPolicy, Trained
from cupydrive.protocols import LearnerSettings, PolicySettings
from cupydrive.training.runfolder import read_checkpoint, read_config

if TYPE_CHECKING:
    from cupydrive.playing.rollout import Rollout
    from cupydrive.protocols import Learner, Player
    from cupydrive.spec import EnvSpec, Group


@dataclass(frozen=True)
class FrozenPolicy:
    """Policy of the last checkpoint of a run folder, without further learning.

    Pass it wherever policies are passed, such as in ``train`` or ``evaluate``.

    Args:
        path: The run folder.
        policy: Name of a policy of the run. Defaults to the one that plays the same group.
        greedy: Take the most likely action instead of sampling one. Defaults to False.
        env: Environment of the run, needed if it is your own and not yet registered: path of its
            Python file, or ``EnvSpec``. The environment is registered under its name.

    Examples:
        >>> import cupydrive as cd
        >>> options = {"num_envs": 64, "steps": 10_000, "progress": False, "grid_length": 8}
        >>> run = cd.train("tag_grid", out="runs/tag", **options)
        >>> policies = {"tagger": cd.PPO(), "runner": cd.FrozenPolicy("runs/tag")}
        >>> further = cd.train("tag_grid", policies=policies, **options)
    """

    path: str
    policy: str | None = None
    greedy: bool = False
    env: str | PathLike[str] | EnvSpec | None = field(default=None, repr=False)

    brief = "frozen"  # label in rendered frames

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(checked_path("FrozenPolicy", "path", self.path)))
        if self.policy is not None:
            checked_str("FrozenPolicy", "policy", self.policy)
        object.__setattr__(self, "greedy", checked_bool("FrozenPolicy", "greedy", self.greedy))
        if self.env is not None:
            config = read_config(Path(self.path))
            envs.of_data(self.path, "", config["env"], config.get("origin"), self.env)

    def player(self, spec: EnvSpec, group: Group) -> Player:
        """Create the player of one group.

        Args:
            spec: ``EnvSpec`` of the environment.
            group: ``Group`` of the environment.

        Raises:
            TrainingError: If the run does not exist or belongs to another environment.
        """
        folder = Path(self.path)
        config = read_config(folder)
        if config["env"] != spec.name:
            raise TrainingError(
                f"{self.path} belongs to environment {config['env']!r}, not {spec.name!r}"
            )
        envs.compare_origin(self.path, spec, config.get("origin"))
        plays = {part: name for name in config["policies"] for part in name.split("+")}
        name = plays.get(group.name, group.name) if self.policy is None else self.policy
        if name not in config["policies"]:
            known = ", ".join(config["policies"])
            raise TrainingError(f"{self.path} has no policy {shown(name)}. It has: {known}")
        try:
            settings = rebuild(name, config["policies"][name], None)
        except (ParameterError, TrainingError) as error:
            raise TrainingError(f"{self.path}: {error}") from None
        if isinstance(settings, FrozenPolicy):
            raise TrainingError(
                f"{self.path}: policy {name!r} was not trained in this run. It was read from "
                f"{settings.path}. Pass FrozenPolicy({settings.path!r})"
            )
        if not isinstance(settings, LearnerSettings):
            return settings.player(spec, group)
        checkpoint, start = read_checkpoint(folder, spec.name), f"{name}/"
        saved = checkpoint["tensors"]
        names = [key for key in saved if key.startswith(start)]
        tensors = {key.removeprefix(start): saved[key] for key in names}
        return FrozenPlayer(unpooled(settings).learner(), tensors, checkpoint["step"], self)


class FrozenPlayer:
    """Player with the weights of a checkpoint."""

    def __init__(
        self, learner: Learner, tensors: dict[str, torch.Tensor], step: int, settings: FrozenPolicy
    ) -> None:
        self.learner, self.tensors, self.step, self.settings = learner, tensors, step, settings
        self.acting: Player | None = None  # created by the first call of ``begin``

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``: create the network and load its weights."""
        if self.acting is None:
            self.learner.begin(rollout, group)
            self.learner.schedule(self.step)
            for name, tensor in self.learner.tensors().items():
                if name.startswith(("policy.", "obs_moments.")):
                    saved = self.tensors.get(name)
                    if saved is None or saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                        found = (
                            "missing" if saved is None else f"{saved.dtype} {tuple(saved.shape)}"
                        )
                        raise TrainingError(
                            f"{self.settings.path}: its {name} is {found}, expected {tensor.dtype} "
                            f"{tuple(tensor.shape)}. The environment's parameters or the policy's "
                            f"settings differ"
                        )
                    with torch.no_grad():
                        tensor.copy_(saved)
            self.acting = self.learner.acting(self.settings.greedy)
        self.acting.begin(rollout, group)

    @property
    def memories(self) -> dict[str, torch.Tensor]:
        """Hidden states by group, as those of ``PolicyPlayer``."""
        return getattr(self.acting, "memories", {})

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of row t."""
        if self.acting is not None:
            self.acting.act(rollout, t)

    def module(self, rollout: Rollout, group: Group) -> nn.Module:
        """Return the policy as a module from raw observations to actions."""
        return self.learner.module(rollout, group)


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
FIXED = {
    "heuristic": HeuristicPolicy,
    "random": RandomPolicy,
    "frozen": FrozenPolicy,
    "pool": OpponentPool,
}


def settings_as_json(settings: Any) -> dict[str, Json]:
    """Return a policy's settings as JSON-compatible values."""
    values = {f.name: plain_value(getattr(settings, f.name)) for f in fields(settings)}
    if isinstance(settings, OpponentPool):
        return {"kind": "pool", **values, "settings": settings_as_json(settings.settings)}
    if isinstance(settings, FrozenPolicy):
        del values["env"]  # code that a file names is never loaded
    if callable(values.get("policy")):
        values["policy"] = "custom"
    kinds = {maker: kind for kind, maker in FIXED.items()}
    kind = kinds.get(type(settings), type(settings).__name__.lower())
    return {"kind": getattr(settings, "name", kind), **values}


def plain_value(value: Any) -> Json:
    """Convert NumPy scalars and tuples in a setting to Python numbers and lists."""
    if isinstance(value, tuple | list):
        return list(map(plain_value, value))
    if isinstance(value, Network):
        return plain_value(network_as_json(value))
    if isinstance(value, dict):
        return {key: plain_value(one) for key, one in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def check_kept(policies: Mapping[str, PolicySettings]) -> None:
    """Raise ``ParameterError`` if a setting cannot be written to a file and read back."""
    for name, settings in policies.items():
        if isinstance(settings, Trained) or not is_dataclass(settings):
            raise ParameterError(
                f"policy {name!r}: {shown(settings)} cannot be saved. Omit out= (--out), or "
                "save its run and pass cd.FrozenPolicy(FOLDER)"
            )
        for key, value in settings_as_json(settings).items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                raise ParameterError(
                    f"policy {name!r}: {type(settings).__name__}.{key} = {shown(value)} cannot be "
                    f"saved: {str(error)[:200]}. Use numbers, strings, bools and None, in tuples "
                    f"and dicts with names"
                ) from None


def rebuild(
    name: str, about: Mapping[str, Any], given: Mapping[str, PolicySettings] | None
) -> PolicySettings:
    """Return settings from the dictionary of ``settings_as_json``.

    Args:
        name: Name of the policy.
        about: The dictionary, validated by ``formats.CONFIG``.
        given: Settings by policy name that take precedence over ``about``.

    Raises:
        TrainingError: If the kind or a setting is unknown, or the policy is a custom module.
        ParameterError: If a value is invalid.
    """
    if given and name in given:
        return given[name]
    about = dict(about)
    kind = about.pop("kind", None)
    makers = {**ALGORITHMS, **FIXED}
    if type(kind) is not str or kind not in makers:
        raise TrainingError(
            f"policy {name!r} is of an unknown kind {kind!r}. If it is an algorithm of your "
            f"own, pass policies={{{name!r}: ...}} with its settings. The run may be from a newer "
            "version"
        )
    if kind in ALGORITHMS and about.get("policy") is not None:
        raise TrainingError(
            f"policy {name!r} is a module of your own. Pass policies={{{name!r}: ...}} with the "
            "settings that you trained with, including policy="
        )
    known = {f.name for f in fields(makers[kind])} - ({"env"} if kind == "frozen" else set())
    if unknown := ", ".join(key for key in about if key not in known):
        words = f"{kind} has no setting {unknown!r}. The run may be from a newer version"
        raise TrainingError(f"policy {name!r}: {words}")
    if kind == "pool":
        inner = about.pop("settings", None)
        if not isinstance(inner, dict):
            raise TrainingError(
                f"policy {name!r} is a pool: settings must be a dict, got {shown(inner)}"
            )
        settings: Any = rebuild(name, inner, None)
        return OpponentPool(settings, **about)
    return makers[kind](**{name: as_tuples(value) for name, value in about.items()})


def as_tuples(value: Json) -> Json | tuple:
    """Convert the lists of a JSON value to tuples."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
