"""Suggested training of an environment: algorithm, settings, number of environments, environment
steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

from cupydrive import envs
from cupydrive.errors import CupydriveWarning
from cupydrive.inputs.arguments import checked_choice, checked_mapping, checked_str, shown
from cupydrive.protocols import LearnerSettings, ParamValue, PolicySettings
from cupydrive.spec import EnvSpec

EnvLike = str | PathLike | EnvSpec
DEFAULT_SETTINGS = {"algorithm": "ppo", "num_envs": 1024, "steps": 1_000_000}


@dataclass(frozen=True)
class Suggestion:
    """Suggestion of an environment for one algorithm, completed by defaults.

    Args:
        algorithm: Name of the algorithm.
        num_envs: Number of environments.
        steps: Environment steps.
        settings: Settings by name that differ from the algorithm's defaults.
    """

    algorithm: str
    num_envs: int
    steps: int
    settings: dict[str, Any]


def suggestion(
    env: EnvLike, name: str | None = None, params: Mapping[str, ParamValue] | None = None
) -> Suggestion:
    """Return the ``Suggestion`` of an environment for one algorithm.

    An algorithm that the environment does not mention gets its general sizes and no settings.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        name: Name of the algorithm. Defaults to the one that the environment suggests.
        params: Parameters of the environment that differ from the default.
    """
    spec = envs.get(env)
    about = {**DEFAULT_SETTINGS, **spec.training_of(spec.make_params(**params or {}))}
    name = about["algorithm"] if name is None else name
    own = dict(about[name]) if isinstance(about.get(name), dict) else {}
    sizes = {size: own.pop(size, about[size]) for size in ("num_envs", "steps")}
    return Suggestion(name, settings=own, **sizes)


def all_suggestions(
    env: EnvLike, params: Mapping[str, ParamValue] | None = None
) -> list[Suggestion]:
    """Return the ``Suggestion`` for each algorithm of the environment, the preferred one first."""
    first, spec = suggestion(env, params=params), envs.get(env)
    about = spec.training_of(spec.make_params(**params or {}))
    named = [name for name, own in about.items() if isinstance(own, dict)]
    others = (suggestion(env, name, params) for name in named if name != first.algorithm)
    return [first, *others]


def suggested_algorithm(
    env: EnvLike,
    name: str | None = None,
    /,
    params: Mapping[str, ParamValue] | None = None,
    **changed: Any,
) -> LearnerSettings:
    """Return the settings that an environment suggests, with your changes.

    In contrast, ``cd.PPO(gamma=0.9)`` takes all other settings from the algorithm's defaults, and
    ignores the suggestions of the environment.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        name: ``"ppo"``, ``"a2c"`` or ``"ddpg"``. Defaults to the algorithm that the environment
            suggests.
        params: Parameters of the environment that differ from the default, such as
            ``{"position_only": True}``. Suggestions may depend on them.
        **changed: Settings to change. A ``network`` replaces the suggested one.

    Returns:
        ``PPO``, ``A2C`` or ``DDPG``.

    Raises:
        ParameterError: If the environment, algorithm, a parameter or a setting is unknown, or a
            value is invalid.

    Examples:
        >>> import cupydrive as cd
        >>> algorithm = cd.suggested_algorithm("cartpole", gamma=0.98)
        >>> algorithm.gamma
        0.98
    """
    from cupydrive.algorithms import ALGORITHMS  # imports torch

    name = None if name is None else checked_str("suggested_algorithm", "name", name).lower()
    params = None if params is None else checked_mapping("suggested_algorithm", "params", params)
    about = suggestion(env, name, params)
    kind = ALGORITHMS[checked_choice("train", "algorithm name", about.algorithm, list(ALGORITHMS))]
    settings = dict(about.settings)
    if "network" in changed:  # drop the suggested network, which may be given in short form
        for short in ("hidden", "activation", "shared_layers"):
            settings.pop(short, None)
    return kind(**{**settings, **changed})


def suggested_sizes(
    env: EnvLike,
    policies: Mapping[str, PolicySettings],
    params: Mapping[str, ParamValue] | None = None,
) -> Suggestion:
    """Return the ``Suggestion`` with most environment steps among those of policies that are
    trained jointly.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        policies: Settings by policy name. If none of them learns, the environment's preferred
            suggestion is returned.
        params: Parameters of the environment that differ from the default.
    """
    learning = [each.name for each in policies.values() if isinstance(each, LearnerSettings)]
    found = [suggestion(env, name, params) for name in learning] or [suggestion(env, params=params)]
    return max(found, key=lambda each: each.steps)


# ---- settings that were passed as parameters of the environment ----------------------------------


def setting_hints(
    env: EnvLike, given: Mapping[str, Any], algorithm: LearnerSettings | str | None = None
) -> dict[str, str]:
    """Return a hint for each name that is a setting of an algorithm.

    If several algorithms have the setting, the hint names the requested algorithm if it is one of
    them, otherwise the suggested one.

    Args:
        env: Environment as passed to ``train``.
        given: Values by name that were passed as parameters, not validated yet.
        algorithm: Algorithm as passed to ``train``, not validated yet.
    """
    from cupydrive.algorithms import ALGORITHMS  # imports torch

    asked = algorithm.lower() if isinstance(algorithm, str) else getattr(algorithm, "name", None)
    found = {
        each: {field.name for field in fields(kind)} & given.keys()
        for each, kind in ALGORITHMS.items()
    }
    if not any(found.values()):
        return {}
    spec, hints = envs.get(env), dict[str, str]()
    own = {f.name: given[f.name] for f in fields(spec.params) if f.name in given}
    first = suggestion(spec, params=own).algorithm
    for each in sorted(found, key=lambda each: (each != asked, each != first)):
        for name in found[each] - hints.keys():
            others = {other: value for other, value in own.items() if other != name}
            params = f"params={shown(others)}, " if others else ""
            call = f"cupydrive.suggested_algorithm({spec.name!r}, {each!r}, {params}{name}=...)"
            hints[name] = f"it is a setting of {ALGORITHMS[each].__name__}. Pass algorithm={call}"
    return hints


def warn_of_two_meanings(
    env: EnvLike,
    params: Mapping[str, ParamValue],
    algorithm: LearnerSettings | str | None = None,
    policies: Mapping[str, PolicySettings] | None = None,
) -> None:
    """Warn if an environment parameter has the name of a setting of the suggested algorithm.

    If settings are passed explicitly, there is no ambiguity and no warning.
    """
    if policies is not None or not (algorithm is None or isinstance(algorithm, str)):
        return
    settings, spec = suggested_algorithm(env, algorithm, params=params), envs.get(env)
    for name, hint in setting_hints(env, params, algorithm).items():
        if hasattr(settings, name):
            warnings.warn(
                f"{name} is set as a parameter of {spec.name}, but {hint} to change the setting",
                CupydriveWarning,
                stacklevel=3,
            )
