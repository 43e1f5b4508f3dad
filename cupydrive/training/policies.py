"""Whether policies fit an environment and each other.

``plan`` asks before anything is trained; ``Run`` asks again, since a folder's may have been changed by hand.
"""

import torch

from cupydrive.errors import ParameterError, did_you_mean
from cupydrive.inputs.arguments import shown
from cupydrive.protocols import LearnerSettings, PolicySettings
from cupydrive.training.algorithms.pool import check_pools


def check_policies(env, groups, policies, num_envs):
    """Raise ``ParameterError`` unless ``policies`` can play and learn together in an environment.

    Args:
        env: Name of the environment, for messages.
        groups: Its ``Group``s.
        policies: Settings by policy name, as the caller gave them.
        num_envs: N; None: not known yet, and what depends on it is not looked at.
    """
    groups = {g.name: g for g in groups}
    checked_policies(policies, groups)
    check_groups(env, groups, policies)
    check_modules(policies)
    check_pools(policies, list(groups), num_envs)
    lengths = {settings.num_steps for settings in policies.values() if isinstance(settings, LearnerSettings)}
    if len(lengths) > 1:
        raise ParameterError(f"policies that learn together need one num_steps; got {sorted(lengths)}")


def check_ranks(policies, ranks):
    """Raise ``ParameterError`` if a policy's algorithm learns in one process alone, and ``ranks`` are several."""
    for name, settings in {}.items() if ranks.alone else policies.items():
        if isinstance(settings, LearnerSettings) and not getattr(settings, "exchanges", False):
            raise ParameterError(
                f"policy {name!r} learns by {type(settings).__name__}, which exchanges nothing with other processes, and there "
                f"are {ranks.size}; train in one process, or by PPO or A2C"
            )


def checked_policies(policies, groups):
    """Return ``policies`` if it is a dict of settings by names; whether the groups are the right ones is not looked at.

    Args:
        policies: What the caller gave.
        groups: Names of the environment's groups, for the message.

    Raises:
        ParameterError: If it is none.
    """
    if not isinstance(policies, dict) or not all(isinstance(name, str) for name in policies):
        raise ParameterError(f"policies = {shown(policies)}; it must be a dict by group name: {', '.join(groups)}")
    for name, settings in policies.items():
        if isinstance(settings, type) or not isinstance(settings, PolicySettings):
            raise ParameterError(
                f"policies[{shown(name)}] = {shown(settings)}; it must be PPO(...), A2C(...), Pool(...), Heuristic(), "
                "Random() or Frozen(path)"
            )
    return policies


def check_groups(env, groups, policies):
    """Raise ``ParameterError`` unless each group has one policy, and groups of one policy have equal spaces.

    Args:
        env: Name of the environment, for the message.
        groups: ``Group`` by name.
        policies: Settings by policy name.
    """
    played = [name for key in policies for name in key.split("+")]
    for name in played:
        if name not in groups:
            raise ParameterError(
                f"{env} has no group {name!r}.{did_you_mean(name, groups)} It has: {', '.join(groups)}"
            )
    for name in groups:
        if played.count(name) != 1:
            raise ParameterError(f"group {name!r} has {played.count(name)} policies; give each group one")
    for key in policies:
        spaces = {(groups[n].obs_dim, str(groups[n].action_space)) for n in key.split("+")}
        if len(spaces) > 1:
            raise ParameterError(
                f"groups {key!r} cannot share a policy: their observations or actions differ: {spaces}"
            )


def check_modules(policies):
    """Raise ``ParameterError`` if one module is the network of several policies: each would train a copy of its own."""
    owners = {}
    for name, settings in policies.items():
        module = getattr(settings, "policy", None)
        if isinstance(module, torch.nn.Module) and owners.setdefault(id(module), name) != name:
            both = f"{owners[id(module)]}+{name}"
            raise ParameterError(
                f"policies {owners[id(module)]!r} and {name!r} have one and the same module; if they are to share it pass "
                f"policies={{{both!r}: ...}}, else give each its own, or pass its class or a function (obs_dim, size) -> module"
            )
