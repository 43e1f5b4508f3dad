"""Validation of an environment's description: ``param``, ``Field``, ``Group``, ``Display`` and
``EnvSpec``.

The checks run when a description is created, so that errors refer to it and not to generated code.
Callers convert ``ParameterError`` to ``SpecError`` with ``errors_as``.
"""

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from cupydrive.errors import SpecError
from cupydrive.inputs.arguments import (
    FLOAT32,
    INT32,
    checked_bool,
    checked_callable,
    checked_choice,
    checked_float,
    checked_instance,
    checked_int,
    checked_list,
    checked_mapping,
    checked_member,
    checked_name,
    checked_numbers,
    checked_sequence,
    checked_size,
    checked_str,
    errors_as,
    shown,
)
from cupydrive.protocols import ParamValue

if TYPE_CHECKING:
    from cupydrive.spec import Display, EnvSpec, Field, Group, Reference

SMALLEST = 1.1754943508222875e-38  # the smallest normal float32
LARGEST_EXACT = 2**24  # all smaller integers are float32 numbers
MAX_AGENTS, MAX_HEADS = 65_536, 4096  # 16 and 12 bits of the random counter
# Arguments of the functions of a description. These functions may also take `table`.
MAY_READ_TABLES = {
    "reset": "params, random",
    "step": "params, state, action, elapsed, random",
    "observe": "params, state, elapsed",
    "sample_states": "params, rng, n",
    "heuristic": "params, obs, group",
    "draw": "canvas, params, states, elapsed",
    "yardsticks": "params",
}
FUNCTIONS = MAY_READ_TABLES | dict.fromkeys(
    ("state", "groups", "constants", "check", "keys", "table_fields", "tables"), "params"
)
REQUIRED_FUNCTIONS = ("state", "groups", "constants", "check")
DTYPES = ("f4", "i4", "u4", "u1")
LARGEST_ENTRY = {"bool": 1, "uint8": 255}  # largest entry of an observation by dtype
ENTRY_DTYPES = ("float32", *LARGEST_ENTRY)
PARAM_TYPES = (bool, int, float, str, tuple)
# Members of struct Env and struct Batch (kernels/drive), which cannot be names of groups.
TAKEN = {
    "team", "state", "shared", "cache", "params", "random", "elapsed", "max_episode_steps",
    "horizon", "last_step", "metrics",
    "printed", "print", "time", "table", "fixed_random", "rows", "num_envs", "first_env", "steps",
    "inverse_horizon", "seed",
    "clock", "mask", "terminated", "truncated", "episode_length", "episode_metrics",
}  # fmt: skip
# Arguments of make, train and evaluate, which take parameters of the environment beside them.
ARGUMENTS = {
    "self", "params",
    "env", "num_envs", "device", "validate", "debug", "threads", "first_env", "layout", "obs_dtype",
    "algorithm", "policies", "steps", "seed", "seeds", "members", "out", "resume", "overwrite",
    "progress", "cuda_graph", "callback", "checkpoint_minutes", "keep", "backend",
    "episodes", "greedy",
}  # fmt: skip


def check_param(default: ParamValue, about: Mapping[str, Any]) -> None:
    """Raise an error if the arguments of ``param`` are inconsistent."""
    where = f"param({shown(default)}, ...)"
    checked_instance(where, "default", default, PARAM_TYPES, "a float, an int, a bool, a str or ()")
    checked_str(where, "help", about["help"])
    checked_str(where, "unit", about["unit"])
    for name in ("low", "high"):
        checked_numbers(where, name, about[name], ())
    if isinstance(default, str) and about["choices"] is None:
        raise SpecError(
            f"{where}: default = {shown(default)} is a str. Pass choices that contain it"
        )
    for choice in (
        () if about["choices"] is None else checked_sequence(where, "choices", about["choices"])
    ):
        checked_str(where, "choices", choice)
    of = about["of"]
    if not (
        default == () and (of is float or of is int) if isinstance(default, tuple) else of is None
    ):
        raise SpecError(
            f"{where}: got of = {shown(of)}. An array needs default=() and of=float or of=int"
        )
    checked_value(where, "default", default, about, default)
    if about["vary"] is not None:
        ends = checked_list(where, "vary", about["vary"], checked_float, -FLOAT32, FLOAT32)
        if len(ends) != 2 or ends[0] > ends[1]:
            raise SpecError(
                f"{where}: vary = {shown(about['vary'])}, expected (low, high) with low <= high"
            )


def checked_value(
    where: str, name: str, default: Any, about: Mapping[str, Any], value: object
) -> bool | int | float | str | tuple[float, ...]:
    """Convert a parameter's value to the type of its default and check the range of ``param``."""
    kind = type(default)
    if kind is str:
        return checked_choice(where, name, value, about["choices"])
    if kind is bool:
        return checked_bool(where, name, value)
    check, most = (checked_int, INT32) if int in (kind, about["of"]) else (checked_float, FLOAT32)
    low, high = max(about["low"], -most), min(about["high"], most)
    if kind is tuple:
        return checked_list(where, name, value, check, low, high, unit=about["unit"])
    return check(where, name, value, low, high, unit=about["unit"])


def check_field(f: "Field") -> None:
    """Raise an error if a ``Field`` cannot be a member of a struct."""
    where = f"Field({checked_member('Field', 'name', f.name)!r})"
    if f.name in ("elapsed", "env", "self"):
        raise SpecError(
            f"{where}: set_state takes {f.name} beside the fields. Choose another name, such as "
            f"'own_{f.name}'"
        )
    checked_choice(where, "dtype", f.dtype, DTYPES)
    check_shape(where, f.shape)
    checked_float(where, "scale", f.scale, SMALLEST, FLOAT32)
    checked_str(where, "unit", f.unit)


def check_shape(where: str, given: Sequence[int]) -> tuple[int, ...]:
    """Validate the shape of an array of 4-byte numbers."""
    shape = tuple(checked_int(where, "shape", n) for n in checked_sequence(where, "shape", given))
    if 4 * math.prod(shape) > INT32:
        raise SpecError(
            f"{where}: shape = {shown(given)} has {4 * math.prod(shape):,} bytes, expected at most "
            f"{INT32:,}"
        )
    return shape


@errors_as(SpecError)
def check_members(where: str, function: str, given: Sequence, kind: type) -> None:
    """Raise an error unless the results of ``function(params)`` are ``kind``s with unique names."""
    what = f"{function}(params)"
    members = checked_sequence(where, what, given)
    for k, one in enumerate(members):
        checked_instance(where, f"{what}[{k}]", one, kind, f"a cupydrive.{kind.__name__}")
    names = [one.name for one in members]
    if not names and function != "table_fields":
        raise SpecError(
            f"{where}: {what} = () is empty, expected at least one cupydrive.{kind.__name__}"
        )
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"{where}: {what} has the name {name!r} twice. Names must be unique")


def check_obs_shape(g: "Group") -> None:
    """Raise an error if ``obs_shape``, ``obs_dim`` and ``obs_dtype`` are inconsistent."""
    where = f"group {checked_member('Group', 'name', g.name)!r}"
    checked_choice(where, "obs_dtype", g.obs_dtype, ENTRY_DTYPES)
    shape = [
        checked_int(where, "obs_shape", n, 1)
        for n in checked_sequence(where, "obs_shape", g.obs_shape)
    ]
    dim = checked_int(where, "obs_dim", g.obs_dim, 0 if shape else 1)
    if shape and dim not in (0, math.prod(shape)):
        raise SpecError(
            f"{where}: obs_dim = {dim} does not fit obs_shape = {shown(g.obs_shape)}, which has "
            f"{math.prod(shape):,} entries. Omit obs_dim"
        )
    flat = len(shape) < 2 and g.obs_dtype == "float32"
    if checked_bool(where, "agent_ids", g.agent_ids) and not flat:
        got = f"obs_shape = {g.obs_shape}" if len(shape) > 1 else f"obs_dtype = {g.obs_dtype!r}"
        raise SpecError(
            f"{where}: agent_ids = True needs flat float32 observations: got {got}. Omit agent_ids"
        )
    checked_int(where, "count", g.count, 1, MAX_AGENTS)


def check_group(g: "Group") -> None:
    """Raise an error if a ``Group``'s name, sizes, spaces or scales are invalid."""
    where = f"group {checked_member('Group', 'name', g.name)!r}"
    if g.name in TAKEN:
        raise SpecError(f"{where}: kernels reserve the name env.{g.name}. Choose another name")
    count = g.count
    dim = checked_int(where, "obs_dim", g.obs_dim, 1, INT32 // 4 // count)
    check_space(where, g.action_space)
    choices = (LARGEST_EXACT if g.continuous else INT32) // count
    if g.heads > MAX_HEADS or g.choices > choices:
        raise SpecError(
            f"{where}: action_space = {g.action_space} is too large, expected at most "
            f"{MAX_HEADS:,} heads and {choices:,} choices"
        )
    checked_numbers(where, "obs_scale", g.obs_scale, (dim,), SMALLEST, FLOAT32)
    seen = checked_int(where, "critic_obs_dim", g.critic_obs_dim, 0, INT32 // 4 // count)
    checked_numbers(where, "critic_obs_scale", g.critic_obs_scale, (seen,), SMALLEST, FLOAT32)
    checked_float(where, "reward_scale", g.reward_scale, SMALLEST, FLOAT32)
    checked_bool(where, "leaves", g.leaves)
    if checked_bool(where, "mask", g.mask) and not g.sizes:
        raise SpecError(f"{where}: mask = True, but a Box has no choices to mask. Omit mask")
    ends = (0, LARGEST_ENTRY[g.obs_dtype]) if g.obs_dtype in LARGEST_ENTRY else (-np.inf, np.inf)
    low, high = (
        checked_numbers(where, name, getattr(g, name), (dim,), *ends)
        for name in ("obs_low", "obs_high")
    )
    if g.leaves and g.obs_dtype == "uint8" and dim % 4:
        raise SpecError(
            f"{where}: leaves = True with {dim} bytes of observation, expected a multiple of 4"
        )
    if (low > high).any():
        raise SpecError(
            f"{where}: obs_low = {shown(g.obs_low)} is above obs_high = {shown(g.obs_high)}"
        )


def check_space(where: str, space: spaces.Space) -> None:
    """Raise an error if kernels do not support an action space."""
    parts = space.spaces if isinstance(space, spaces.Tuple) else (space,)
    if not parts or not all(map(fits_kernels, parts)):
        raise SpecError(
            f"{where}: action_space = {shown(space)}, expected Discrete or MultiDiscrete from "
            "0, or a bounded float32 Box, of one dimension, or a Tuple of these"
        )


def fits_kernels(space: spaces.Space) -> bool:
    """Return whether kernels support an action space, or a part of a ``Tuple``."""
    if isinstance(space, spaces.Box):
        return (
            space.dtype == np.float32
            and len(space.shape) == 1
            and space.shape[0] > 0
            and space.is_bounded()
        )
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ndim == 1 and not np.any(space.start)
    return isinstance(space, spaces.Discrete) and space.start == 0


def check_display(display: "Display") -> None:
    """Raise an error if sizes, rates or the showcase of a ``Display`` are invalid."""
    check_functions("Display", display)
    checked_int("Display", "trail", display.trail, 0, 1_000_000)
    checked_size("Display", "size", display.size)
    checked_int("Display", "fps", display.fps, 1, 240)
    showcase = checked_mapping("Display", "showcase", display.showcase)
    checked_float("Display", "showcase['still']", showcase.get("still", 0.5), 0, 1)
    checked_int("Display", "showcase['readable']", showcase.get("readable", 1), 1, 2**16)
    checked_mapping("Display", "showcase['figures']", showcase.get("figures", {}))


def check_spec(spec: "EnvSpec") -> None:
    """Raise an error if an ``EnvSpec``'s fields are invalid.

    Values that depend on parameters are checked later.
    """
    where = checked_name("EnvSpec", "name", spec.name)
    check_params(where, spec.params)
    checked_choice(where, "time_limit", spec.time_limit, ("terminates", "truncates"))
    check_functions(where, spec)
    if spec.table_fields is not None and spec.tables is None:
        raise SpecError(
            f"{where}: table_fields declares tables, but tables(params), which returns their "
            f"arrays, is missing"
        )
    for metric, kind in checked_mapping(where, "metrics", spec.metrics).items():
        checked_member(where, "metrics", metric)
        if metric == "length":
            raise SpecError(
                f"{where}: metrics has {metric!r}, which is the number of steps of an episode. "
                f"Choose another name"
            )
        checked_choice(where, f"metrics[{metric!r}]", kind, ("int", "float"))
    for metric in spec.display.showcase.get("figures", {}):
        checked_choice(where, "showcase['figures']", metric, tuple(spec.metrics))
    cases = checked_sequence(where, "cases", spec.cases)
    for case in cases:
        checked_mapping(where, "cases", case)
    if not cases:
        raise SpecError(
            f"{where}: cases = () is empty, expected at least one, such as {{}} for default "
            "parameters"
        )
    if callable(spec.training):
        checked_callable(where, "training", spec.training, ["params"])
    else:
        checked_mapping(where, "training", spec.training)
    if spec.reward_threshold is not None:
        checked_float(where, "reward_threshold", spec.reward_threshold)
    checked_str(where, "summary", spec.summary)
    if checked_str(where, "title", spec.title):
        checked_name(where, "title", spec.title)
    is_text = isinstance(spec.kernel, str) and "\n" in checked_str(where, "kernel", spec.kernel)
    if (
        not is_text
        and not isinstance(spec.kernel, os.PathLike | None)
        and not hasattr(spec.kernel, "program")
    ):
        raise SpecError(
            f"{where}: kernel = {shown(spec.kernel)}, expected a kernel's text, the Path of its "
            f"file or PythonKernels(...)"
        )


def check_functions(where: str, part: "EnvSpec | Reference | Display") -> None:
    """Raise an error if a function of a description does not accept its arguments."""
    for name in (f.name for f in fields(part)):
        function = getattr(part, name)
        if name in FUNCTIONS and (function is not None or name in REQUIRED_FUNCTIONS):
            takes = FUNCTIONS[name].split(", ")
            table = ["table"] if name in MAY_READ_TABLES and reads_table(function) else []
            checked_callable(where, name, function, [*takes, *table])


def reads_table(function: Callable) -> bool:
    """Return whether a function has an argument named ``table``."""
    try:
        return callable(function) and "table" in inspect.signature(function).parameters
    except ValueError:  # a builtin without a signature
        return False


def check_params(where: str, params: type) -> None:
    """Raise an error unless ``params`` is a frozen dataclass with fields created by ``param``."""
    if (
        not isinstance(params, type)
        or not is_dataclass(params)
        or not vars(params)["__dataclass_params__"].frozen
    ):
        raise SpecError(
            f"{where}: params = {shown(params)}, expected a class decorated with "
            f"@dataclass(frozen=True)"
        )
    if "max_episode_steps" not in [f.name for f in fields(params)]:
        raise SpecError(
            f"{where}: params = {params.__name__} needs max_episode_steps: int = param(..., low=1)"
        )
    names = [kind.__name__ for kind in PARAM_TYPES]
    for f in fields(params):
        if "help" not in f.metadata:
            raise SpecError(
                f"{where}: params: {params.__name__}.{f.name} must be created by param(default, "
                f"help, ...)"
            )
        annotated = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", "")
        if annotated in names and annotated != type(f.default).__name__:
            raise SpecError(
                f"{where}: params: {params.__name__}.{f.name} is annotated as {annotated}, and "
                f"its default is {shown(f.default)}"
            )
        if f.name in ARGUMENTS:
            raise SpecError(
                f"{where}: params: {params.__name__}.{f.name} is also an argument of make, train "
                f"or evaluate, which would not pass it on. Choose another name, such as "
                f"'env_{f.name}'"
            )
        # Other types become upper-case constants.
        if type(f.default) in (float, tuple):
            checked_member(where, "params", f.name)
