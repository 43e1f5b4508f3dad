"""The NumPy reference of an environment, called with read-only arguments and validated results."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cupydrive.errors import CupydriveError, SpecError, did_you_mean
from cupydrive.inputs.arguments import kind_of, shown
from cupydrive.protocols import EnvParams
from cupydrive.random import DYNAMICS, RandomStream
from cupydrive.spec import EnvSpec, Group, Observation, StepResult


class CheckedReference:
    """The functions of a reference with one set of parameters.

    Args:
        spec: The environment.
        params: Its parameters.

    Raises:
        SpecError: By each method, if the function is missing or returns wrong names, types or
            shapes.
    """

    def __init__(self, spec: EnvSpec, params: EnvParams) -> None:
        self.spec, self.params = spec, params
        self.groups: tuple[Group, ...] = spec.groups(params)
        self.names = [g.name for g in self.groups]
        self.fields = {f.name: np.dtype(f.dtype) for f in spec.state(params)}

    def reset(self, seed: int, ids: np.ndarray, episode: np.ndarray) -> np.ndarray:
        """Return the (N,) initial states of episodes of environments ``ids``."""
        return self._states(
            "reset", self._call("reset", RandomStream(seed, ids, episode)), len(ids)
        )

    def sample_states(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return n states in the layout of ``struct State``."""
        states = self._states("sample_states", self._call("sample_states", rng, n), n)
        return states.astype(self.spec.state_dtype(self.params))

    def observe(self, state: np.ndarray, elapsed: np.ndarray) -> Observation:
        """Return the observations of (N,) states."""
        seen = self._call("observe", state, elapsed)
        if not isinstance(seen, Observation):
            raise self._error(f"observe returns {kind_of(seen)}, expected a cupydrive.Observation")
        self._require("observe's obs", seen.obs, self.names)
        floats = [g.name for g in self.groups if g.obs_dtype == "float32"]
        of_floats = {name: seen.obs[name] for name in floats}
        self._require("observe's obs", of_floats, floats, kind="f")
        rows = {g.name: rows_of(g, seen.obs[g.name]) for g in self.groups}
        seen = replace(seen, obs=rows)
        self._require(
            "observe's mask", seen.mask, [g.name for g in self.groups if g.mask], kind="b"
        )
        self._require(
            "observe's critic_obs",
            seen.critic_obs,
            [g.name for g in self.groups if g.critic_obs_dim],
            kind="f",
        )
        self._require("observe's state", seen.state, (), self.fields)
        self._require("observe's margin", seen.margin, (), [*self.names, *self.fields])
        return seen

    def step(
        self,
        seed: int,
        ids: np.ndarray,
        clock: np.ndarray,
        state: np.ndarray,
        actions: Mapping[str, np.ndarray],
        seen: Observation | None,
    ) -> StepResult:
        """Return the result of one step.

        Args:
            seed: Seed of the batch.
            ids: (N,) global ids of the environments.
            clock: (N,) ``struct Clock`` before the step.
            state: (N,) states before the step.
            actions: (N, C, H) by group.
            seen: Result of ``observe`` for the states after the step. ``step`` may omit the fields
                that it contains. If None, ``step`` may omit any field.
        """
        elapsed = clock["elapsed"] + 1
        stream = RandomStream(seed, ids, clock["episode"] - 1, elapsed, DYNAMICS)
        flat = {g.name: actions[g.name].reshape(-1, *g.action_shape) for g in self.groups}
        want = self._call("step", state, flat, elapsed, stream)
        if not isinstance(want, StepResult):
            raise self._error(f"step returns {kind_of(want)}, expected a cupydrive.StepResult")
        self._check_outcome(want, seen, len(ids))
        return want

    def _check_outcome(self, want: StepResult, seen: Observation | None, n: int) -> None:
        leaving, metrics = [g.name for g in self.groups if g.leaves], list(self.spec.metrics)
        floats = [name for name, dtype in self.fields.items() if dtype.kind == "f"]
        needed = [name for name in self.fields if seen is not None and name not in seen.state]
        self._require("step's state", want.state, needed, self.fields)
        self._require(
            "step's state",
            {n: a for n, a in want.state.items() if n in floats},
            (),
            floats,
            kind="f",
        )
        self._require("step's reward", want.reward, self.names, kind="f")
        self._require("step's active", want.active, leaving, kind="b")
        self._require("step's left", want.left, leaving, kind="b")
        self._require("step's metrics", want.metrics, metrics)
        self._require(
            "step's StepResult", {"terminated": want.terminated}, ["terminated"], kind="b"
        )
        decisions = [f"{member}.{name}" for name in self.names for member in ("reward", "left")]
        known = ["terminated", *self.fields, *(f"metric.{name}" for name in metrics), *decisions]
        self._require("step's margin", want.margin, (), known)
        ends = {
            "terminated": want.terminated,
            "margin['terminated']": want.margin.get("terminated", want.terminated),
        }
        for name, array in ends.items():
            if np.shape(array) != (n,):
                raise self._error(
                    f"step's {name} has shape {np.shape(array)}, expected ({n},), one "
                    f"value per environment"
                )

    def _call(
        self, name: str, *arguments: np.ndarray | dict | RandomStream | np.random.Generator | int
    ) -> Any:
        """Call a function of the reference with read-only arguments, which are reused later."""
        function = getattr(self.spec.reference, name)
        if function is None:
            raise SpecError(f"the environment has no reference `{name}`")
        return function(self.params, *map(_read_only, arguments))

    def _states(self, function: str, states: np.ndarray, n: int) -> np.ndarray:
        if not isinstance(states, np.ndarray) or states.dtype.names is None or states.shape != (n,):
            got = kind_of(states)
            if isinstance(states, np.ndarray):
                got = f"an array of shape {states.shape} and dtype {states.dtype}"
            raise self._error(
                f"{function} returns {got}, expected ({n},) states, such as "
                "np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(params)])"
            )
        self._require(
            f"{function}'s states", {name: states[name] for name in states.dtype.names}, self.fields
        )
        return states

    def _require(
        self,
        member: str,
        arrays: Mapping[str, ArrayLike],
        needed: Iterable[str],
        optional: Iterable[str] = (),
        kind: str = "",
    ) -> None:
        """Raise ``SpecError`` unless names and dtypes of ``arrays`` are as expected.

        Args:
            member: Name of the dictionary, for messages.
            arrays: Arrays by name.
            needed: Required names.
            optional: Further allowed names.
            kind: NumPy kind of the dtypes, such as ``"f"``. Empty: any.
        """
        known = list(dict.fromkeys([*needed, *optional]))
        for name, array in arrays.items():
            if name not in known:
                raise self._error(
                    f"{member} has the unknown name {shown(name)}, expected "
                    f"{', '.join(known) or 'no names'}.{did_you_mean(name, known)}"
                )
            dtype = np.asarray(array).dtype
            if kind and dtype.kind != kind:
                expected = "bool" if kind == "b" else "float"
                raise self._error(f"{member}[{name!r}] is {dtype}, expected {expected}")
        for name in needed:
            if name not in arrays:
                raise self._error(f"{member} lacks {name!r}, expected: {', '.join(known)}")

    def _error(self, problem: str) -> SpecError:
        return SpecError(f"{self.spec.name}: {problem}")


def rows_of(g: Group, obs: ArrayLike) -> np.ndarray:
    """Flatten observations (N, C, *obs_shape) to rows (N, C, D), with numbers of agents. Other
    shapes are unchanged.
    """
    array = np.asarray(obs)
    if g.agent_ids and array.shape[1:] == (g.count, g.own_obs_dim):
        ids = np.broadcast_to(np.eye(g.count), (len(array), g.count, g.count))
        return np.concatenate([array, ids], axis=-1)
    return array.reshape(*array.shape[:2], -1) if array.shape[2:] == g.obs_shape else array


def _read_only(value: object) -> object:
    """Return a read-only view of an array or of each array of a dictionary.

    Other values are returned unchanged.
    """
    if isinstance(value, dict):
        return {key: _read_only(array) for key, array in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, eq=False)
class TakenStep:
    """One step of one environment, taken by a kernel. Arrays have a first axis of length 1.

    Args:
        seed: Seed of the batch.
        env: Global id of the environment.
        state: ``struct State`` before the step.
        clock: Episode, elapsed and time before the step.
        action: (1, C, H) by group.
        after: ``struct State`` after the step. If the episode ended, the next initial state.
        over: Whether the episode ended.
    """

    seed: int
    env: int
    state: np.ndarray
    clock: np.ndarray
    action: dict[str, np.ndarray]
    after: np.ndarray
    over: bool


def after_reset(seed: int, env: int, state: np.ndarray, clock: np.ndarray) -> TakenStep:
    """Return a ``TakenStep`` that ended the previous episode of an environment after a reset."""
    before = clock.copy()
    before["episode"] -= 1
    return TakenStep(seed, env, state, before, {}, state, True)


def reference_number(
    spec: EnvSpec, params: EnvParams, taken: TakenStep, kind: str, name: str, index: tuple[int, ...]
) -> tuple[float | None, str | None]:
    """Compute one number after a step with the reference, from the same state and actions.

    Args:
        spec: The environment.
        params: Its parameters.
        taken: The step.
        kind: ``"state"``, ``"reward"``, ``"obs"`` or ``"final_obs"``.
        name: Member of ``State``, or group.
        index: Indices into the member of ``State``, or agent and entry of a group's array.

    Returns:
        The number and None, or None and the reason.
    """
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = _reference_values(CheckedReference(spec, params), taken, kind, name)
            return float(np.asarray(values)[(0, *index)]), None
    except CupydriveError as error:
        return None, str(error)
    except Exception as error:  # the user's function may raise anything for non-finite inputs
        return None, f"the reference raises {type(error).__name__}: {error}"


def _reference_values(
    reference: CheckedReference, taken: TakenStep, kind: str, name: str
) -> np.ndarray:
    """Return the array (1, ...) that holds the number of ``reference_number``."""
    ids, elapsed, has_observe = (
        np.array([taken.env]),
        taken.clock["elapsed"] + 1,
        reference.spec.reference.observe is not None,
    )
    if kind == "state" and taken.over:
        return reference.reset(taken.seed, ids, taken.clock["episode"])[name]
    if kind == "obs":  # computed from the kernel's own state
        return reference.observe(
            taken.after, np.zeros_like(elapsed) if taken.over else elapsed
        ).obs[name]
    seen = reference.observe(taken.after, elapsed) if kind == "state" and has_observe else None
    if seen is not None and name in seen.state:
        return seen.state[name]
    want = reference.step(taken.seed, ids, taken.clock, taken.state, taken.action, seen)
    if kind == "reward":
        return want.reward[name]
    if kind == "state":
        if name not in want.state:
            raise SpecError("the environment has no reference `observe`, which would compute it")
        return want.state[name]
    return reference.observe(final_states(reference, want, taken.after), elapsed).obs[name]


def final_states(reference: CheckedReference, want: StepResult, after: np.ndarray) -> np.ndarray:
    """Return the reference's final states of episodes.

    Fields that ``observe`` computes are taken from the kernel.
    """
    final = np.zeros(len(after), reference.spec.state_dtype(reference.params))
    for name in reference.fields:
        final[name] = want.state.get(name, after[name])
    return final
