"""Creation of the policies of an environment, with checks that run before memory is allocated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch

from cupydrive.algorithms.kernels.choice import make_learner
from cupydrive.algorithms.pool import check_pools
from cupydrive.errors import CupydriveWarning, ParameterError, did_you_mean
from cupydrive.executors.ranks import current_ranks
from cupydrive.inputs.arguments import shown
from cupydrive.playing.config import checked_policies
from cupydrive.protocols import LearnerSettings, PolicySettings

if TYPE_CHECKING:
    from cupydrive.executors.ranks import Ranks
    from cupydrive.protocols import Executor, Learner, Player
    from cupydrive.spec import EnvSpec, Group
    from cupydrive.training.config import TrainConfig
    from cupydrive.training.run import Run


def make_players(
    config: TrainConfig, executor: Executor
) -> tuple[dict[str, Learner], dict[str, str], dict[str, Player]]:
    """Create the learners and players of an environment without starting them.

    No memory of the environment is allocated. Random values, such as the initial weights of a
    custom learner, come from torch's current generator.

    Args:
        config: Configuration of the run, with the environment and its policies.
        executor: Executor of the device on which the run will train.

    Returns:
        ``Learner`` by policy name, one line about the chosen backend and its reason by policy name,
        and ``Player`` by group.

    Raises:
        ParameterError: If a group does not have exactly one policy, if groups with different spaces
            share a policy, if the policies that learn differ in ``num_steps``, or if a policy does
            not support the environment, the device or the number of processes.
    """
    spec, policies, num_envs = config.spec, config.policies, config.num_envs
    groups = {g.name: g for g in spec.groups(config.params)}
    check_policy_groups(spec, groups, policies)
    check_modules(policies)
    check_pools(policies, list(groups), num_envs)
    learning = {
        name: settings
        for name, settings in policies.items()
        if isinstance(settings, LearnerSettings)
    }
    if len({settings.num_steps for settings in learning.values()}) > 1:
        found = ", ".join(f"{name} {settings.num_steps}" for name, settings in learning.items())
        raise ParameterError(
            f"policies that learn have different num_steps: got {found}, expected equal numbers"
        )
    check_ranks(policies, current_ranks())
    learners: dict[str, Learner] = {}
    backends: dict[str, str] = {}
    players: dict[str, Player] = {}
    for name, settings in policies.items():
        own = [groups[each] for each in name.split("+")]
        if name in learning:
            made = make_learner(name, learning[name], own[0], executor, config.backend)
            learners[name], backends[name] = made
            learners[name].check(own, num_envs)
        player = learners[name] if name in learning else settings.player(spec, own[0])  # type: ignore[union-attr]
        players |= {group.name: player for group in own}
    return learners, backends, players


def learning_settings(
    algorithm: LearnerSettings | str | None,
    policies: Mapping[str, PolicySettings] | None,
    groups: Iterable[str],
    suggested: Callable[[str | None], LearnerSettings],
) -> dict[str, PolicySettings]:
    """Return settings by policy name, from one algorithm for all groups or from ``policies``.

    Args:
        algorithm: Settings, the name of an algorithm, or None, as in ``cupydrive.train``.
        policies: Settings by policy name, or None, as in ``cupydrive.train``.
        groups: Names of the environment's groups.
        suggested: Function from the name of an algorithm, or None, to the settings that the
            environment suggests.

    Raises:
        ParameterError: If both are given, or a value is not a valid settings object.
    """
    if policies is not None and algorithm is not None:
        raise ParameterError("pass algorithm, or policies by group, not both")
    if policies is not None:
        return checked_policies("train", policies, learning=True)
    if algorithm is None or isinstance(algorithm, str):
        algorithm = suggested(algorithm)
    if isinstance(algorithm, type) or not isinstance(algorithm, LearnerSettings):
        raise ParameterError(
            f"invalid algorithm: got {shown(algorithm)}, expected PPO(...), A2C(...), PQN(...), "
            f"DDPG(...) or their names"
        )
    return dict.fromkeys(groups, algorithm)


def warn_if_nobody_learns(env: str, policies: Mapping[str, PolicySettings]) -> None:
    """Warn, on behalf of ``train``, if no policy learns.

    Args:
        env: Name of the environment, for the message.
        policies: Settings by policy name.
    """
    if not any(isinstance(settings, LearnerSettings) for settings in policies.values()):
        played = ", ".join(f"{name!r}: {shown(settings)}" for name, settings in policies.items())
        warnings.warn(
            f"train: no policy learns in {env} with policies = {{{played}}}. Give one of them "
            "PPO(...) or another algorithm. To see how they play, pass policies= to "
            "cupydrive.evaluate or cupydrive.render",
            CupydriveWarning,
            stacklevel=3,
        )


def warn_if_never_learning(runs: Iterable[tuple[Run, int]]) -> None:
    """Warn, on behalf of ``train``, of policies that will collect too few steps to start learning.

    Each policy is reported once.

    Args:
        runs: ``Run``s to train, each with its total environment steps. Finished runs are skipped.
    """
    found = []
    for run, goal in ((run, goal) for run, goal in runs if run.step < goal):
        steps = math.ceil(goal / run.steps_per_iteration) * run.steps_per_iteration
        for name, learner in run.learners.items():
            if (
                hasattr(learner, "never_learns")
                and (why := learner.never_learns(steps)) is not None
            ):
                found.append(f"train: policy {name!r} would not learn in {run.spec.name}: {why}")
    for words in dict.fromkeys(found):
        warnings.warn(words, CupydriveWarning, stacklevel=3)


def check_ranks(policies: Mapping[str, PolicySettings], ranks: Ranks) -> None:
    """Raise ``ParameterError`` if an algorithm supports only one process and there are several."""
    for name, settings in {}.items() if ranks.alone else policies.items():
        if isinstance(settings, LearnerSettings) and not getattr(settings, "exchanges", False):
            raise ParameterError(
                f"policy {name!r}: {type(settings).__name__} supports a single process, got "
                f"{ranks.size} processes. Train in one process, or with PPO, A2C or PQN"
            )


def check_policy_groups(
    spec: EnvSpec, groups: Mapping[str, Group], policies: Mapping[str, PolicySettings]
) -> None:
    """Raise ``ParameterError`` unless each group has one policy and shared policies fit.

    Groups that share a policy must have equal observation and action spaces.

    Args:
        spec: ``EnvSpec``.
        groups: ``Group`` by name.
        policies: Settings by policy name.
    """
    played = [name for key in policies for name in key.split("+")]
    for name in played:
        if name not in groups:
            raise ParameterError(
                f"{spec.name} has no group {name!r}.{did_you_mean(name, groups)} It has: "
                f"{', '.join(groups)}"
            )
    for name in groups:
        if played.count(name) != 1:
            fix = (
                f"Name {name!r} in one key of policies only"
                if played.count(name)
                else f"Add for example {name!r}: cd.PPO()"
            )
            raise ParameterError(
                f"group {name!r} has {played.count(name)} policies, expected 1. {fix}"
            )
    for key in policies:
        spaces = {
            (groups[n].obs_shape, groups[n].obs_dtype, str(groups[n].action_space))
            for n in key.split("+")
        }
        if len(spaces) > 1:
            raise ParameterError(
                f"groups {key!r} cannot share a policy: their observations or actions differ: "
                f"{spaces}"
            )


def check_modules(policies: Mapping[str, PolicySettings]) -> None:
    """Raise ``ParameterError`` if several policies have the same module.

    Each of them would train its own copy.
    """
    owners: dict[int, str] = {}
    for name, settings in policies.items():
        module = getattr(settings, "policy", None)
        if isinstance(module, torch.nn.Module) and owners.setdefault(id(module), name) != name:
            both = f"{owners[id(module)]}+{name}"
            raise ParameterError(
                f"policies {owners[id(module)]!r} and {name!r} have one and the same module. To "
                f"share it, pass policies={{{both!r}: ...}}. Otherwise give each policy its own "
                f"module, or pass a class or a function (obs_dim, size) -> module"
            )
