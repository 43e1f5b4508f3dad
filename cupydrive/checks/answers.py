"""Calls of a NumPy reference's functions: they must not write to their arguments, and must return the right names and types."""

import numpy as np

from cupydrive.errors import SpecError, did_you_mean
from cupydrive.inputs.arguments import kind_of, shown
from cupydrive.spec import EnvSpec, Group, Observed, Outcome


def answer(spec: EnvSpec, name: str, params: object, *arguments: object) -> object:
    """Return what the reference's function called ``name`` returns; its arrays are read-only: later comparisons need them."""
    return getattr(spec, name)(params, *map(_read_only, arguments))


def _read_only(value: object) -> object:
    """Return a read-only view of an array, or of each array of a dictionary; anything else as it is."""
    if isinstance(value, dict):
        return {key: _read_only(array) for key, array in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def require_observed(spec: EnvSpec, params: object, groups: list[Group], seen: object) -> None:
    """Raise ``SpecError`` unless ``seen``, which ``observe`` returned, is an ``Observed`` of the right names and types."""
    _require_type(spec, "observe", seen, Observed)
    names, fields = [g.name for g in groups], [f.name for f in spec.state(params)]
    _require_arrays(spec, "observe", "obs", seen.obs, names, kind="f")
    _require_arrays(spec, "observe", "mask", seen.mask, [g.name for g in groups if g.mask], kind="b")
    _require_arrays(spec, "observe", "state", seen.state, [], fields)
    _require_arrays(spec, "observe", "margin", seen.margin, [], [*names, *fields])


def require_outcome(spec: EnvSpec, params: object, groups: list[Group], want: object, seen: Observed | None) -> None:
    """Raise ``SpecError`` unless ``want``, which ``step`` returned, is an ``Outcome`` of the right names and types.

    Without ``seen``, the reference's ``Observed``, fields of the state may be missing: ``observe`` would compute them.
    """
    _require_type(spec, "step", want, Outcome)
    names, leaving = [g.name for g in groups], [g.name for g in groups if g.leaves]
    fields, metrics = [f.name for f in spec.state(params)], list(spec.metrics)
    floats = [f.name for f in spec.state(params) if np.dtype(f.dtype).kind == "f"]
    _require_arrays(
        spec, "step", "state", want.state, [n for n in fields if seen is not None and n not in seen.state], fields
    )
    _require_arrays(spec, "step", "state", {n: want.state[n] for n in floats if n in want.state}, [], floats, kind="f")
    _require_arrays(spec, "step", "reward", want.reward, names, kind="f")
    _require_arrays(spec, "step", "active", want.active, leaving, kind="b")
    _require_arrays(spec, "step", "left", want.left, leaving, kind="b")
    _require_arrays(spec, "step", "metrics", want.metrics, metrics)
    decisions = [f"{member}.{name}" for name in names for member in ("reward", "left")]
    known = ["terminated", *fields, *(f"metric.{name}" for name in metrics), *decisions]
    _require_arrays(spec, "step", "margin", want.margin, [], known)
    _require_arrays(spec, "step", "Outcome", {"terminated": want.terminated}, ["terminated"], kind="b")
    rows = np.shape(want.reward[names[0]])[:1]
    for name, ends in (("terminated", want.terminated), ("margin['terminated']", want.margin.get("terminated"))):
        if ends is not None and np.shape(ends) != rows:
            raise SpecError(
                f"{spec.name}: step's {name} has shape {np.shape(ends)}, expected {rows}: one value for each environment"
            )


def require_states(spec: EnvSpec, params: object, function: str, states: object, n: int) -> np.ndarray | dict:
    """Return ``states``, which ``reset`` or ``sample`` returned; raise ``SpecError`` unless they are n states by field."""
    is_array = isinstance(states, np.ndarray)
    names = states.dtype.names if is_array else tuple(states) if isinstance(states, dict) else None
    if names is None or (is_array and states.shape != (n,)):
        got = f"an array of shape {states.shape} and dtype {states.dtype}" if is_array else kind_of(states)
        raise SpecError(
            f"{spec.name}: {function} returns {got}, expected ({n},) states, such as "
            "np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(params)])"
        )
    _require_arrays(spec, function, "states", dict.fromkeys(names), [f.name for f in spec.state(params)], names)
    return states


def _require_type(spec, function, value, wanted):
    if not isinstance(value, wanted):
        raise SpecError(f"{spec.name}: {function} returns {kind_of(value)}, expected a cupydrive.{wanted.__name__}")


def _require_arrays(spec, function, member, arrays, needed, known=None, kind=None):
    """Raise ``SpecError`` unless ``arrays`` has all ``needed`` names, none but the ``known`` ones, and dtypes of ``kind``."""
    known = needed if known is None else known
    for name in needed:
        if name not in arrays:
            raise SpecError(
                f"{spec.name}: {function}'s {member} lacks {name!r}, expected: {', '.join(needed)}."
                f"{did_you_mean(name, [other for other in arrays if other not in known])}"
            )
    for name, array in arrays.items():
        if name not in known:
            raise SpecError(
                f"{spec.name}: {function}'s {member} has the unknown name {shown(name)}, "
                f"expected: {', '.join(known) or 'none'}.{did_you_mean(name, known)}"
            )
        dtype = np.asarray(array).dtype
        if kind is not None and dtype.kind != kind:
            raise SpecError(
                f"{spec.name}: {function}'s {member}[{name!r}] is {dtype}, expected {'bool' if kind == 'b' else 'float'}"
            )
