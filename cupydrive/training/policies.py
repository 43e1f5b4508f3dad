"""The policies of an environment, and checks that they fit it and each other, before memory is
taken.
"""

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
    """Return who would play an environment: nobody has begun, and no memory is taken for it.

    What a seed decides, such as the weights of a learner of one's own, comes from torch's generator
    as it is.

    Args:
        config: ``TrainConfig``.
        executor: Where they would play and learn.

    Returns:
        ``Learner`` by policy name; by policy name one line about which learner it is, and why; and
        ``Player`` by group.

    Raises:
        ParameterError: Unless they can play and learn there together.
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
        raise ParameterError(f"policies that learn together need one num_steps; got {found}")
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
    """Return settings by policy name: those of one algorithm for each group, or those that were
    given.

    Args:
        algorithm: As of ``cupydrive.train``: settings, a name, or None.
        policies: As of ``cupydrive.train``: settings by policy name, or None.
        groups: Names of the environment's groups.
        suggested: Called with an algorithm's name or None, returns the settings that the
            environment suggests for it.

    Raises:
        ParameterError: If both are given, or one of them is no settings.
    """
    if policies is not None and algorithm is not None:
        raise ParameterError("pass algorithm, or policies by group, not both")
    if policies is not None:
        return checked_policies("train", policies, learning=True)
    if algorithm is None or isinstance(algorithm, str):
        algorithm = suggested(algorithm)
    if isinstance(algorithm, type) or not isinstance(algorithm, LearnerSettings):
        raise ParameterError(
            f"algorithm = {shown(algorithm)}; it must be PPO(...), A2C(...), DDPG(...) or their "
            f"names"
        )
    return dict.fromkeys(groups, algorithm)


def warn_if_nobody_learns(env: str, policies: Mapping[str, PolicySettings]) -> None:
    """Warn, on behalf of ``train``, if training would only let players play that others have made.

    Args:
        env: Name of the environment, for the message.
        policies: Settings by policy name.
    """
    if not any(isinstance(settings, LearnerSettings) for settings in policies.values()):
        played = ", ".join(f"{name!r}: {shown(settings)}" for name, settings in policies.items())
        warnings.warn(
            f"train: nobody learns in {env} with policies = {{{played}}}; give one of them "
            "PPO(...) or the like. To see how they play: cupydrive.evaluate or cupydrive.render "
            "with policies=",
            CupydriveWarning,
            stacklevel=3,
        )


def warn_if_never_learning(runs: Iterable[tuple[Run, int]]) -> None:
    """Warn, on behalf of ``train``, of policies that will have collected too little to begin to
    learn; each once.

    Args:
        runs: ``Run``s that are to be trained, each with its env-steps in all; one that has done
            them is not looked at.
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
    """Raise ``ParameterError`` if a policy's algorithm learns in one process alone, and ``ranks``
    are several.
    """
    for name, settings in {}.items() if ranks.alone else policies.items():
        if isinstance(settings, LearnerSettings) and not getattr(settings, "exchanges", False):
            raise ParameterError(
                f"policy {name!r} learns by {type(settings).__name__}, which exchanges nothing "
                f"with other processes, and there are {ranks.size}; train in one process, or by "
                f"PPO or A2C"
            )


def check_policy_groups(
    spec: EnvSpec, groups: Mapping[str, Group], policies: Mapping[str, PolicySettings]
) -> None:
    """Raise ``ParameterError`` unless each group has one policy, and groups of one policy have
    equal spaces.

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
            raise ParameterError(
                f"group {name!r} has {played.count(name)} policies; give each group one, for "
                f"example {name!r}: cd.PPO()"
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
    """Raise ``ParameterError`` if one module is the network of several policies: each would train a
    copy of its own.
    """
    owners: dict[int, str] = {}
    for name, settings in policies.items():
        module = getattr(settings, "policy", None)
        if isinstance(module, torch.nn.Module) and owners.setdefault(id(module), name) != name:
            both = f"{owners[id(module)]}+{name}"
            raise ParameterError(
                f"policies {owners[id(module)]!r} and {name!r} have one and the same module; if "
                f"they are to share it pass policies={{{both!r}: ...}}, else give each its own, "
                f"or pass its class or a function (obs_dim, size) -> module"
            )
