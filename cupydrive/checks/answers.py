"""Calls of a NumPy reference's functions: they write into nothing that they are given, and return the right names and types."""

import numpy as np

from cupydrive.checks.places import own_place
from cupydrive.errors import SpecError, did_you_mean
from cupydrive.inputs.arguments import kind_of, shown
from cupydrive.spec import Observed, Outcome

KINDS = {"f": "floating, as float64 is", "b": "bool"}
EVERY_FIELD = "every field of the state that observe does not return in Observed.state"


def answer(spec, name, params, *given):
    """Return what the reference's function called ``name`` gives; all arrays that it is given are read-only.

    Raises:
        SpecError: If it writes into one of them: what is compared later would be compared with what it has left there.
    """
    try:
        return getattr(spec, name)(params, *map(_read_only, given))
    except ValueError as error:
        if "read-only" not in str(error):  # as NumPy says in all its messages of this kind
            raise
        place = own_place(error)
        where = f" in {place.file}:{place.line}, `{place.text}`" if place else ""
        raise SpecError(
            f"{spec.name}: `{name}` changes an array that it is given{where} ({error}); copy the array first, such as "
            "states = states.copy(): what is compared later needs it as it was"
        ) from error


def _read_only(given):
    """Return an array, or a dictionary of arrays, that cannot be written to; anything else as it is."""
    if isinstance(given, dict):
        return {key: _read_only(value) for key, value in given.items()}
    if not isinstance(given, np.ndarray):
        return given
    view = given.view()
    view.flags.writeable = False
    return view


def require_observed(spec, params, groups, seen):
    """Raise ``SpecError`` unless ``seen``, what ``observe`` gave, is an ``Observed`` with all groups, of the right types."""
    _require_type(spec, "observe", seen, Observed)
    masked = [g.name for g in groups if g.mask]
    _require(spec, "observe", "Observed.obs", seen.obs, [g.name for g in groups], "every group", kind="f")
    _require(spec, "observe", "Observed.mask", seen.mask, masked, "every group that has a mask", kind="b")
    of_groups, of_state = [g.name for g in groups], [f.name for f in spec.state(params)]
    for member, known in (
        ("obs", of_groups),
        ("mask", masked),
        ("state", of_state),
        ("margin", [*of_groups, *of_state]),
    ):
        _require_known(spec, "observe", f"Observed.{member}", getattr(seen, member), known)


def require_outcome(spec, params, groups, want, seen):
    """Raise ``SpecError`` unless ``want``, which ``step`` returned, is an ``Outcome`` with all names, of the right types.

    ``seen`` is the reference's ``Observed``. Without one, the state's fields may be left out: ``observe`` would compute them.
    """
    _require_type(spec, "step", want, Outcome)
    fields = spec.state(params)
    needed = [f.name for f in fields if seen is not None and f.name not in seen.state]
    _require(spec, "step", "Outcome.state", want.state, needed, EVERY_FIELD)
    for f in fields:
        if f.name in want.state and np.dtype(f.dtype).kind == "f":  # an integer array would have cut its fractions off
            _require_kind(spec, f"step's state[{f.name!r}]", want.state[f.name], "f")
    _require(spec, "step", "Outcome.reward", want.reward, [g.name for g in groups], "every group", kind="f")
    _require_kind(spec, "step's terminated", want.terminated, "b")
    rows = np.shape(want.reward[groups[0].name])[:1]
    for what, ends in (("terminated", want.terminated), ("margin['terminated']", want.margin.get("terminated"))):
        if ends is not None and np.shape(ends) != rows:
            raise SpecError(
                f"{spec.name}: step's {what} has shape {np.shape(ends)}, expected {rows}: one value for each environment. Drop "
                "the axis of agents"
            )
    leaving, words = [g.name for g in groups if g.leaves], "every group whose agents leave"
    _require(spec, "step", "Outcome.active", want.active, leaving, words, kind="b")
    _require(spec, "step", "Outcome.left", want.left, leaving, words, kind="b")
    _require(spec, "step", "Outcome.metrics", want.metrics, list(spec.metrics), "every metric")
    may_have = {"state": [f.name for f in fields], "reward": [g.name for g in groups], "metrics": list(spec.metrics)}
    for member, known in (may_have | {"active": leaving, "left": leaving}).items():
        _require_known(spec, "step", f"Outcome.{member}", getattr(want, member), known)
    known = ["terminated", *(f.name for f in fields), *(f"metric.{name}" for name in spec.metrics)]
    known += [f"{what}.{g.name}" for g in groups for what in ("reward", "left")]
    _require_known(spec, "step", "Outcome.margin", want.margin, known)


def require_states(spec, params, function, states, n):
    """Return ``states``, which ``reset`` or ``sample`` returned; raise ``SpecError`` unless they are n states by field."""
    names = [f.name for f in spec.state(params)]
    known = (
        states.dtype.names if isinstance(states, np.ndarray) else tuple(states) if isinstance(states, dict) else None
    )
    if known is None:
        raise SpecError(
            f"{spec.name}: {function} returns {kind_of(states)}; it must return ({n},) states, such as "
            "np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(params)]) filled in"
        )
    _require(spec, function, "result", dict.fromkeys(known), names, "every field of the state")
    if isinstance(states, np.ndarray) and states.shape != (n,):
        raise SpecError(f"{spec.name}: {function} returns states of shape {states.shape}; it must be ({n},)")
    return states


def _require_type(spec, function, given, wanted):
    if not isinstance(given, wanted):
        raise SpecError(
            f"{spec.name}: {function} returns a {type(given).__name__}; it must return a cupydrive.{wanted.__name__}"
        )


def _require(spec, function, member, given, needed, every, kind=None):
    """Raise ``SpecError`` if the dictionary ``given`` lacks one of the names ``needed``, or if its array is not of ``kind``."""
    for name in needed:
        if name not in given:
            raise SpecError(
                f"{spec.name}: {function}'s {member} lacks {name!r}; it must hold {every}: {', '.join(needed)}."
                f"{did_you_mean(name, [other for other in given if other not in needed])}"
            )
        if kind is not None:
            _require_kind(spec, f"{function}'s {member.split('.')[1]}[{name!r}]", given[name], kind)


def _require_known(spec, function, member, given, known):
    """Raise ``SpecError`` if the dictionary ``given`` has a name which nothing that is compared has: it would do nothing."""
    for name in given:
        if name not in known:
            raise SpecError(
                f"{spec.name}: {function}'s {member} has {shown(name)}, and nothing that is compared is called that."
                f"{did_you_mean(name, known)} There are: {', '.join(known) or 'none'}"
            )


def _require_kind(spec, what, array, kind):
    dtype = np.asarray(array).dtype
    if dtype.kind != kind:
        raise SpecError(f"{spec.name}: {what} is {dtype}; it must be {KINDS[kind]}")
