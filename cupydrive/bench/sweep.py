"""Sweeps: one piece of work for each combination of values."""

from itertools import product

from cupydrive import envs
from cupydrive.bench.cases import ROLLOUTS, Work
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_int

DEFAULTS = {"num_envs": 10_000, "steps": 32}


def sweep(env, axes):
    """Return the ``Work``s of all combinations.

    Args:
        env: Name, or path of a Python file.
        axes: ``"NAME=V1,V2,..."`` each; NAME is ``num_envs``, ``steps`` (of a launch) or a parameter of the environment.

    Raises:
        ParameterError: If an axis cannot be read, or a value is wrong.
    """
    spec, values = envs.get(env), {name: [value] for name, value in DEFAULTS.items()}
    for axis in axes:
        name, equals, given = axis.partition("=")
        if not equals or not given:
            raise ParameterError(f"{axis!r} is no axis; write NAME=V1,V2,..., such as num_envs=10,1000,100000")
        values[name] = [read(text) for text in given.split(",")]
    works = []
    for chosen in product(*values.values()):
        made = dict(zip(values, chosen, strict=True))
        num_envs, steps = (checked_int(spec.name, name, made.pop(name)) for name in DEFAULTS)
        spec.make_params(**made)  # raises what is wrong before anything is timed
        works.append(Work(env, num_envs, steps, made))
    return works


def listed(env, device):
    """Return the ``Work``s of an environment that a benchmark of this device has anyway; of others, those of no axes."""
    return [work for work in ROLLOUTS[device] if work.env == env] or sweep(env, ())


def read(text):
    """Return a value as Python would write it: int, float, bool or str."""
    for kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)
