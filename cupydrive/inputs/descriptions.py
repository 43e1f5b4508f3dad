"""What is right in an environment's description: the checks of ``param``, ``Field``, ``Group`` and ``EnvSpec``.

They run when a description is made, so that a mistake is told where it stands and not by a compiler. All raise ``SpecError``.
"""

import contextlib
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from cupydrive.errors import ParameterError, SpecError
from cupydrive.inputs.arguments import (
    FLOAT32,
    INT32,
    checked_bool,
    checked_callable,
    checked_choice,
    checked_float,
    checked_instance,
    checked_int,
    checked_mapping,
    checked_member,
    checked_name,
    checked_numbers,
    checked_sequence,
    checked_size,
    checked_str,
    kind_of,
    shown,
)

if TYPE_CHECKING:
    from cupydrive.spec import EnvSpec, Field, Group

SMALLEST = 1.1754943508222875e-38  # the smallest normal float32
MAX_AGENTS, MAX_HEADS = 65_536, 4096  # 16 and 12 bits of the random counter
# Functions of an ``EnvSpec`` and what they are called with; those of the first line must be there.
FUNCTIONS = {
    **dict.fromkeys(("state", "groups", "constants", "check"), "params"),
    "reset": "params, random",
    "step": "params, state, action, elapsed, random",
    "observe": "params, state, elapsed",
    "sample": "params, rng, n",
    "heuristic": "params, obs, group",
    "draw": "canvas, params, states, elapsed",
    **dict.fromkeys(("keys", "yardsticks", "table_fields", "tables"), "params"),
}
NEEDED = ("state", "groups", "constants", "check")
DTYPES = ("f4", "i4", "u4")


def checked_param(default: Any, about: Mapping[str, Any]) -> bool | int | float | str | tuple[()]:
    """Return a parameter's default as a plain Python value, if it fits the rest: ``about`` holds ``param``'s arguments."""
    if isinstance(default, np.bool_ | np.integer | np.floating):
        default = default.item()
    if type(default) not in (bool, int, float, str, tuple):
        raise SpecError(f"param: default = {shown(default)}; it must be a float, an int, a bool, a str or ()")
    where = f"param({shown(default)}, ...)"
    checked_str(where, "help", about["help"], SpecError)
    checked_str(where, "unit", about["unit"], SpecError)
    low, high = (_limit(where, name, about[name]) for name in ("low", "high"))
    if low > high:
        raise SpecError(f"{where}: low = {low} is above high = {high}")
    if about["choices"] is not None:
        for one in checked_sequence(where, "choices", about["choices"], SpecError):
            checked_str(where, "choices", one, SpecError)
    of = about["of"]
    if not (default == () and (of is float or of is int) if isinstance(default, tuple) else of is None):
        raise SpecError(
            f"{where}: of = {shown(of)}; an array of numbers has default=() and of=float or of=int, others have no of"
        )
    if isinstance(default, str):
        if default not in (about["choices"] or ()):
            raise SpecError(f"{where}: choices = {shown(about['choices'])}; a str needs them, its default among them")
    elif not isinstance(default, bool | tuple):
        check, most = (checked_int, INT32) if isinstance(default, int) else (checked_float, FLOAT32)
        check("param", "default", default, -most, most, SpecError)
        if not low <= default <= high:
            raise SpecError(f"{where}: default = {default} is out of its range, low = {low} to high = {high}")
    if about["vary"] is not None:
        given = checked_sequence(where, "vary", about["vary"], SpecError)
        ends = [checked_float(where, "vary", end, error=SpecError) for end in given]
        if len(ends) != 2 or ends[0] > ends[1]:
            raise SpecError(f"{where}: vary = {shown(about['vary'])}; it must be (low, high), low first")
    return default


def _limit(where: str, name: str, value: float) -> float:
    """Return a bound, which may be infinite."""
    infinite = isinstance(value, float) and math.isinf(value)
    return value if infinite else checked_float(where, name, value, error=SpecError)


def check_field(f: "Field") -> None:
    """Raise ``SpecError`` if a ``Field`` is no member of a struct."""
    where = f"Field({checked_member('Field', 'name', f.name, SpecError)!r})"
    if not isinstance(f.dtype, str) or f.dtype not in DTYPES:
        raise SpecError(f"{where}: dtype = {shown(f.dtype)}; it must be 'f4', 'i4' or 'u4', of 4 bytes each")
    check_shape(where, f.shape)
    checked_float(where, "scale", f.scale, SMALLEST, FLOAT32, SpecError)
    checked_str(where, "unit", f.unit, SpecError)


def check_shape(where: str, given: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an array of 4-byte numbers as a tuple of ints."""
    given = checked_sequence(where, "shape", given, SpecError)
    shape = tuple(checked_int(where, "shape", n, error=SpecError) for n in given)
    if 4 * math.prod(shape) > INT32:
        raise SpecError(f"{where}: shape = {shown(given)} has {4 * math.prod(shape):,} bytes; at most {INT32:,} fit")
    return shape


# Members of struct Env and of struct Batch (kernels/drive), beside which a group's name stands.
TAKEN = {
    "team", "state", "shared", "cache", "params", "random", "elapsed", "max_episode_steps", "horizon", "last_step", "log",
    "printed", "print", "time", "fixed_random", "rows", "num_envs", "first_env", "steps", "inverse_horizon", "seed", "clock",
    "mask", "terminated", "truncated", "episode_length", "episode_log",
}  # fmt: skip


def check_members(where: str, function: str, given: Any, kind: type) -> None:
    """Raise ``SpecError`` unless ``given``, which ``function(params)`` has returned, are ``kind``s of different names."""
    what, called = f"{function}(params)", f"cupydrive.{kind.__name__}"
    if isinstance(given, kind):
        raise SpecError(f"{where}: {what} is one {called}; it must be a tuple: ({kind.__name__}(...),) with a comma")
    for k, one in enumerate(checked_sequence(where, what, given, SpecError)):
        checked_instance(where, f"{what}[{k}]", one, kind, f"a {called}", SpecError)
    if not given:
        raise SpecError(f"{where}: {what} = {shown(given)} is empty; it must have one {called} at least")
    names = [one.name for one in given]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(
                f"{where}: {names.count(name)} {kind.__name__.lower()}s are called {name!r}; each needs a name of its own"
            )


def check_groups(where: str, groups: Sequence["Group"]) -> None:
    """Raise ``ParameterError`` if there are too many agents."""
    if (agents := sum(g.count for g in groups)) > MAX_AGENTS:
        raise ParameterError(f"{where}: {agents} agents are more than the {MAX_AGENTS} that random streams know")


def check_group(g: "Group") -> None:
    """Raise ``SpecError`` if a ``Group``'s name, sizes, spaces or scales are wrong."""
    where = f"group {checked_member('Group', 'name', g.name, SpecError)!r}"
    if g.name in TAKEN:
        raise SpecError(
            f"{where}: kernels call something else env.{g.name}; choose another name, such as {g.name + 's'!r}"
        )
    count = checked_int(where, "count", g.count, 1, MAX_AGENTS, SpecError)
    dim = checked_int(where, "obs_dim", g.obs_dim, 1, INT32 // 4 // count, SpecError)
    _check_space(where, g.action_space)
    if g.heads > MAX_HEADS:
        raise SpecError(f"{where}: action_space has {g.heads:,} numbers; random actions have at most {MAX_HEADS:,}")
    if not g.continuous and g.choices > INT32 // count:
        raise SpecError(
            f"{where}: action_space = {g.action_space} has {g.choices:,} choices; at most {INT32 // count:,} fit"
        )
    checked_numbers(where, "obs_scale", g.obs_scale, (dim,), SMALLEST, FLOAT32, SpecError)
    checked_float(where, "reward_scale", g.reward_scale, SMALLEST, FLOAT32, SpecError)
    checked_bool(where, "leaves", g.leaves, SpecError)
    if checked_bool(where, "mask", g.mask, SpecError) and g.continuous:
        raise SpecError(f"{where}: mask = True, but a Box has no choices to mask; leave mask out")
    low, high = (
        checked_numbers(where, name, getattr(g, name), (dim,), error=SpecError) for name in ("obs_low", "obs_high")
    )
    if (low > high).any():
        raise SpecError(f"{where}: obs_low = {shown(g.obs_low)} is above obs_high = {shown(g.obs_high)}")


def _check_space(where: str, space: spaces.Space) -> None:
    if isinstance(space, spaces.Box):
        if space.dtype != np.float32 or len(space.shape) != 1 or not space.shape[0] or not space.is_bounded():
            raise SpecError(
                f"{where}: a Box as action_space must be float32, of one dimension and bounded; got {shown(space)}"
            )
    elif not isinstance(space, spaces.Discrete | spaces.MultiDiscrete) or np.any(getattr(space, "start", 0) != 0):
        raise SpecError(f"{where}: action_space must be Discrete, MultiDiscrete (from 0) or Box; got {shown(space)}")
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim != 1:
        raise SpecError(f"{where}: a MultiDiscrete as action_space must have one dimension; got {shown(space)}")


def check_spec(spec: "EnvSpec") -> None:
    """Raise ``SpecError`` if an ``EnvSpec``'s own fields are wrong; those that depend on parameters are checked later."""
    where = checked_name("EnvSpec", "name", spec.name, SpecError)
    _check_params(where, spec.params)
    checked_choice(where, "time_limit", spec.time_limit, ("terminates", "truncates"), SpecError)
    for name, arguments in FUNCTIONS.items():
        function = getattr(spec, name)
        if name in NEEDED or function is not None:
            checked_callable(where, name, function, SpecError)
            _check_arguments(where, name, function, arguments, spec.tables is not None)
    if spec.table_fields is not None and spec.tables is None:
        raise SpecError(
            f"{where}: table_fields declares tables, but there is no tables(params), which returns their arrays"
        )
    for metric, kind in checked_mapping(where, "metrics", spec.metrics, SpecError).items():
        checked_member(where, "metrics", metric, SpecError)
        checked_choice(where, f"metrics[{metric!r}]", kind, ("int", "float"), SpecError)
    for event in checked_sequence(where, "events", spec.events, SpecError):
        checked_str(where, "events", event, SpecError)
    for case in checked_sequence(where, "cases", spec.cases, SpecError):
        checked_mapping(where, "cases", case, SpecError)
    if not spec.cases:
        raise SpecError(f"{where}: cases = (); the checker needs one at least, such as {{}}: default parameters")
    checked_int(where, "trail", spec.trail, 0, 1_000_000, SpecError)
    checked_size(where, "render_size", spec.render_size, SpecError)
    checked_int(where, "render_fps", spec.render_fps, 1, 240, SpecError)
    checked_mapping(where, "training", spec.training, SpecError)
    if spec.reward_threshold is not None:
        checked_float(where, "reward_threshold", spec.reward_threshold, error=SpecError)
    if "still" in checked_mapping(where, "showcase", spec.showcase, SpecError):
        checked_float(where, "showcase['still']", spec.showcase["still"], 0, 1, SpecError)
    if "readable" in spec.showcase:
        checked_int(where, "showcase['readable']", spec.showcase["readable"], 1, 2**16, SpecError)
    figures = checked_mapping(where, "showcase['figures']", spec.showcase.get("figures", {}), SpecError)
    for metric, called in figures.items():
        checked_choice(where, "showcase['figures']", metric, tuple(spec.metrics), SpecError)
        checked_str(where, f"showcase['figures'][{metric!r}]", called, SpecError)
    if isinstance(spec.kernel, str):
        if "\n" not in checked_str(where, "kernel", spec.kernel, SpecError):
            raise SpecError(
                f"{where}: kernel = {shown(spec.kernel)} has one line, and a text is a whole kernel; a file is a path: "
                f"kernel=Path({shown(spec.kernel)})"
            )
    elif not isinstance(spec.kernel, os.PathLike | None) and not hasattr(spec.kernel, "program"):
        raise SpecError(f"{where}: kernel = {shown(spec.kernel)}; it must be a text, a path or PythonKernels(...)")
    checked_str(where, "summary", spec.summary, SpecError)
    if checked_str(where, "title", spec.title, SpecError):
        checked_name(where, "title", spec.title, SpecError)


def _check_arguments(where: str, name: str, function: Callable[..., object], arguments: str, tables: bool) -> None:
    """Raise ``SpecError`` if a function cannot be called with ``arguments``, and with tables not with one more either."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C's functions Python does not always know
        return
    count = arguments.count(",") + 1
    for given in (count, count + tables):
        with contextlib.suppress(TypeError):
            signature.bind(*range(given))
            return
    raise SpecError(f"{where}: {name} is a function of {signature}; it is called as {name}({arguments}), in this order")


PARAM_TYPES = (bool, int, float, str, tuple)


def _check_params(where: str, params: type) -> None:
    if not isinstance(params, type) or not is_dataclass(params) or not vars(params)["__dataclass_params__"].frozen:
        raise SpecError(
            f"{where}: params = {shown(params)}; it must be a class, decorated with @dataclass(frozen=True)"
        )
    if "max_episode_steps" not in [f.name for f in fields(params)]:
        raise SpecError(f"{where}: params = {params.__name__} needs max_episode_steps: int = param(..., low=1)")
    for f in fields(params):
        if "help" not in f.metadata:
            raise SpecError(f"{where}: params: {params.__name__}.{f.name} must be made by param(default, help, ...)")
        kind = type(f.default)
        if f.type not in (kind, kind.__name__) and (
            f.type in PARAM_TYPES or f.type in [t.__name__ for t in PARAM_TYPES]
        ):
            said = f.type if isinstance(f.type, str) else f.type.__name__
            raise SpecError(
                f"{where}: params: {params.__name__}.{f.name} is annotated as {said}, and its default {shown(f.default)} is "
                f"{kind_of(f.default)}"
            )
        # These are members of the kernel's Params and Table; the others are constants of their upper-case name.
        if type(f.default) in (float, tuple):
            checked_member(where, "params", f.name, SpecError)
