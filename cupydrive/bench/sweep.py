"""Sweeps: one piece of work for each combination of values."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from cupydrive import envs
from cupydrive.bench.cases import ROLLOUTS, Work
from cupydrive.inputs.arguments import checked_int

DEFAULTS = {"num_envs": 10_000, "steps": 32}


def sweep(env: str, axes: Mapping[str, Any]) -> list[Work]:
    """Return the ``Work``s of all combinations.

    Args:
        env: Name, or path of a Python file.
        axes: A value or a list of values by name: ``num_envs``, ``steps`` (of a launch) or a parameter of the environment.

    Raises:
        ParameterError: If a name or a value is wrong.
    """
    spec = envs.get(env)
    values = {name: each if isinstance(each, list) else [each] for name, each in {**DEFAULTS, **axes}.items()}
    works = []
    for chosen in product(*values.values()):
        made = dict(zip(values, chosen, strict=True))
        num_envs, steps = (checked_int(spec.name, name, made.pop(name)) for name in DEFAULTS)
        spec.make_params(**made)  # raises what is wrong before anything is timed
        works.append(Work(env, num_envs, steps, made))
    return works


def listed(env: str, device: str) -> list[Work]:
    """Return the ``Work``s of an environment that a benchmark of this device has anyway; of others, those of no axes."""
    return [work for work in ROLLOUTS[device] if work.env == env] or sweep(env, {})
