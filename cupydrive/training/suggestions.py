"""Suggestions of an environment for its training: the algorithm, its settings, the number of
environments and env-steps.
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


def suggestion(
    env: EnvLike, name: str | None = None, params: Mapping[str, ParamValue] | None = None
) -> Suggestion:
    """Return the ``Suggestion`` of an environment, with parameters ``params``, for the algorithm
    called ``name``, by default the one that it suggests.

    An algorithm that the environment does not name gets the sizes that hold for all, and no
    settings.
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
    """Return the ``Suggestion`` for each algorithm that the environment names, that of its own
    choice first.
    """
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
    """Return the settings that an environment suggests, to train with all of them but those that
    you change.

    ``cd.PPO(gamma=0.9)`` takes nothing from the environment: what it does not name are the
    algorithm's own defaults.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        name: ``"ppo"``, ``"a2c"`` or ``"ddpg"``. Defaults to the algorithm that the environment
            suggests.
        params: Parameters of the environment that differ from the default, such as
            ``{"position_only": True}``. Suggestions may depend on them.
        **changed: Settings that differ. A ``network`` replaces the suggested one.

    Returns:
        ``PPO``, ``A2C`` or ``DDPG``.

    Raises:
        ParameterError: If there is no such environment, algorithm, parameter or setting, or a value
            does not fit.
    """
    from cupydrive.algorithms import ALGORITHMS  # imports torch

    name = None if name is None else checked_str("suggested_algorithm", "name", name).lower()
    params = None if params is None else checked_mapping("suggested_algorithm", "params", params)
    about = suggestion(env, name, params)
    kind = ALGORITHMS[checked_choice("train", "algorithm name", about.algorithm, list(ALGORITHMS))]
    settings = dict(about.settings)
    if "network" in changed:  # instead of the one that is suggested in short form
        for short in ("hidden", "activation", "shared_layers"):
            settings.pop(short, None)
    return kind(**{**settings, **changed})


def suggested_sizes(
    env: EnvLike,
    policies: Mapping[str, PolicySettings],
    params: Mapping[str, ParamValue] | None = None,
) -> Suggestion:
    """Return the ``Suggestion`` whose sizes are meant for policies that learn together: the one
    with most env-steps.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        policies: Settings by policy name. If none of them learns, what the environment suggests
            counts.
        params: Parameters of the environment that differ from the default.
    """
    learning = [each.name for each in policies.values() if isinstance(each, LearnerSettings)]
    found = [suggestion(env, name, params) for name in learning] or [suggestion(env, params=params)]
    return max(found, key=lambda each: each.steps)


# ---- settings that were passed as parameters of the environment ----------------------------------


def setting_hints(
    env: EnvLike, given: Mapping[str, Any], algorithm: LearnerSettings | str | None = None
) -> dict[str, str]:
    """Return a hint for each name that is a setting of an algorithm, of the one that was asked for
    first.

    Args:
        env: Environment, as ``train`` got it.
        given: Values by name that were passed as parameters, not validated yet.
        algorithm: Algorithm as ``train`` got it, not validated yet.
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
            hints[name] = f"it is a setting of {ALGORITHMS[each].__name__}; pass algorithm={call}"
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
    settings, spec = suggested_algorithm(env, algorithm, params=params), envs.get(env)
    for name, hint in setting_hints(env, params, algorithm).items():
        if hasattr(settings, name):
            warnings.warn(
                f"{name} is set as a parameter of {spec.name}, but {hint} to change it",
                CupydriveWarning,
                stacklevel=3,
            )
