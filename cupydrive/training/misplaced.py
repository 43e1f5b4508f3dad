"""Settings of an algorithm that were passed to ``train`` as parameters of the environment."""

import warnings
from collections.abc import Iterable
from dataclasses import fields

from cupydrive import envs
from cupydrive.errors import CupydriveWarning
from cupydrive.training.algorithms import ALGORITHMS
from cupydrive.training.suggestions import suggested_algorithm, suggestion


def setting_hints(env, names: Iterable[str], algorithm=None, policies=None) -> dict[str, str]:
    """Return a hint for each name that is a setting of an algorithm, of the one that was asked for first.

    Args:
        env: The environment, as ``train`` got it.
        names: Names that were passed as parameters.
        algorithm: As ``train`` got it, not validated yet.
        policies: As ``train`` got it; with these no algorithm can be suggested.
    """
    asked = ALGORITHMS.get(algorithm.lower()) if isinstance(algorithm, str) else type(algorithm)
    default = ALGORITHMS[suggestion(env).algorithm]
    kinds = [kind for kind in (asked, default, *ALGORITHMS.values()) if kind in ALGORITHMS.values()]
    hints = {}
    for name in names:
        kind = next((kind for kind in kinds if name in [f.name for f in fields(kind)]), None)
        if kind is not None:
            call = f"cupydrive.suggested_algorithm({envs.get(env).name!r}, {kind.name!r}, {name}=...)"
            made = policies is not None or not (algorithm is None or isinstance(algorithm, str))
            hints[name] = (
                f"it is a setting of {kind.__name__}; pass {f'{kind.__name__}({name}=...)' if made else f'algorithm={call}'}"
            )
    return hints


def warn_of_two_meanings(env, params: dict, algorithm=None, policies=None, who: str = "train") -> None:
    """Warn if a parameter of the environment has the name of a setting of the algorithm, which has no settings of its own."""
    named = isinstance(algorithm, str) and algorithm.lower() in ALGORITHMS
    if policies is not None or not (algorithm is None or named):
        return
    settings = suggested_algorithm(env, algorithm)
    for name in [f.name for f in fields(settings) if f.name in params]:
        kind, spec = type(settings), envs.get(env)
        warnings.warn(
            f"{who}: {name} is set as a parameter of {spec.name}; {kind.__name__} has a setting of that name. For the setting, "
            f"pass algorithm=cupydrive.suggested_algorithm({spec.name!r}, {kind.name!r}, {name}=...)",
            CupydriveWarning,
            stacklevel=3,
        )
