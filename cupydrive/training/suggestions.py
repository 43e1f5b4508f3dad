"""Suggestions of an environment for its training: the algorithm, its settings, the number of
environments and env-steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

from cupydrive import envs
from cupydrive.errors import CupydriveWarning
from cupydrive.inputs.arguments import checked_choice, checked_str
from cupydrive.protocols import LearnerSettings, ParamValue, PolicySettings
from cupydrive.spec import EnvSpec

EnvLike = str | PathLike | EnvSpec
DEFAULT_SETTINGS = {"algorithm": "ppo", "num_envs": 1024, "steps": 1_000_000}


@dataclass(frozen=True)
class Suggestion:
    """What an environment suggests for one algorithm, or defaults.

    Args:
        algorithm: Name of the algorithm.
        num_envs: Number of environments.
        steps: Env-steps.
        settings: Settings by name that differ from the algorithm's own.
    """

    algorithm: str
    num_envs: int
    steps: int
    settings: dict[str, Any]


def suggestion(env: EnvLike, name: str | None = None) -> Suggestion:
    """Return the ``Suggestion`` of an environment for the algorithm called ``name``, by default the
    one that it suggests.

    An algorithm that the environment does not name gets the sizes that hold for all, and no
    settings.
    """
    about = {**DEFAULT_SETTINGS, **envs.get(env).training}
    name = about["algorithm"] if name is None else name
    own = dict(about[name]) if isinstance(about.get(name), dict) else {}
    sizes = {size: own.pop(size, about[size]) for size in ("num_envs", "steps")}
    return Suggestion(name, settings=own, **sizes)


def all_suggestions(env: EnvLike) -> list[Suggestion]:
    """Return the ``Suggestion`` for each algorithm that the environment names, that of its own
    choice first.
    """
    first = suggestion(env)
    named = [name for name, own in envs.get(env).training.items() if isinstance(own, dict)]
    return [first, *(suggestion(env, name) for name in named if name != first.algorithm)]


def suggested_algorithm(
    env: EnvLike, name: str | None = None, /, **changed: Any
) -> LearnerSettings:
    """Return the settings that an environment suggests, to train with all of them but those that
    you change.

    ``cd.PPO(gamma=0.9)`` takes nothing from the environment: what it does not name are the
    algorithm's own defaults.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        name: ``"ppo"``, ``"a2c"`` or ``"ddpg"``. Defaults to the algorithm that the environment
            suggests.
        **changed: Settings that differ.

    Returns:
        ``PPO``, ``A2C`` or ``DDPG``.

    Raises:
        ParameterError: If there is no such environment, algorithm or setting, or a value does not
            fit.
    """
    from cupydrive.algorithms import ALGORITHMS  # imports torch

    name = None if name is None else checked_str("suggested_algorithm", "name", name).lower()
    about = suggestion(env, name)
    kind = ALGORITHMS[checked_choice("train", "algorithm name", about.algorithm, list(ALGORITHMS))]
    return kind(**{**about.settings, **changed})


def suggested_sizes(env: EnvLike, policies: Mapping[str, PolicySettings]) -> Suggestion:
    """Return the ``Suggestion`` whose sizes are meant for policies that learn together: the one
    with most env-steps.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        policies: Settings by policy name. If none of them learns, what the environment suggests
            counts.
    """
    learning = [each.name for each in policies.values() if isinstance(each, LearnerSettings)]
    found = [suggestion(env, name) for name in learning] or [suggestion(env)]
    return max(found, key=lambda each: each.steps)


# ---- settings that were passed as parameters of the environment ----------------------------------


def setting_hints(
    env: EnvLike, names: Collection[str], algorithm: LearnerSettings | str | None = None
) -> dict[str, str]:
    """Return a hint for each name that is a setting of an algorithm, of the one that was asked for
    first.

    Args:
        env: Environment, as ``train`` got it.
        names: Names that were passed as parameters.
        algorithm: Algorithm as ``train`` got it, not validated yet.
    """
    from cupydrive.algorithms import ALGORITHMS  # imports torch

    asked = algorithm.lower() if isinstance(algorithm, str) else getattr(algorithm, "name", None)
    first = suggestion(env).algorithm
    hints: dict[str, str] = {}
    for each in sorted(ALGORITHMS, key=lambda each: (each != asked, each != first)):
        kind, known = ALGORITHMS[each].__name__, {field.name for field in fields(ALGORITHMS[each])}
        for name in known.intersection(names) - hints.keys():
            call = f"cupydrive.suggested_algorithm({envs.get(env).name!r}, {each!r}, {name}=...)"
            hints[name] = f"it is a setting of {kind}; pass algorithm={call}"
    return hints


def warn_of_two_meanings(
    env: EnvLike,
    params: Mapping[str, ParamValue],
    algorithm: LearnerSettings | str | None = None,
    policies: Mapping[str, PolicySettings] | None = None,
) -> None:
    """Warn if a parameter of the environment has the name of a setting of the algorithm, which has
    no settings of its own.
    """
    if policies is not None or not (algorithm is None or isinstance(algorithm, str)):
        return
    settings, spec = suggested_algorithm(env, algorithm), envs.get(env)
    for name, hint in setting_hints(env, params, algorithm).items():
        if hasattr(settings, name):
            warnings.warn(
                f"{name} is set as a parameter of {spec.name}, but {hint} to change it",
                CupydriveWarning,
                stacklevel=3,
            )
