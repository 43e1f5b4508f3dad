"""What an environment says about itself. Imports NumPy and gymnasium.spaces only.

Letters: N environments, C agents of a group, D observation entries, H action heads.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field as DataclassField
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cupydrive.errors import ParameterError, SpecError, UnknownParameterError
from cupydrive.inputs.arguments import (
    INT32,
    check_each,
    checked_array,
    checked_instance,
    checked_int,
    checked_mapping,
    errors_as,
)
from cupydrive.inputs.descriptions import (
    LARGEST_ENTRY,
    MAX_AGENTS,
    MAY_READ_TABLES,
    check_display,
    check_field,
    check_functions,
    check_group,
    check_members,
    check_obs_shape,
    check_param,
    check_spec,
    checked_value,
    reads_table,
)
from cupydrive.inputs.keys import check_keys
from cupydrive.inputs.names import unknown_parameter
from cupydrive.inputs.tables import (
    Table,
    TableArrays,
    WithTable,
    checked_tables,
    derived_tables,
    made_up_tables,
    table_digest,
)
from cupydrive.protocols import EnvParams

# For authors.
__all__ = [
    "Display", "EnvSpec", "Field", "Group", "Observation", "Reference", "StepResult", "Table",
    "check_each",
    "nearest_decision", "param",
]  # fmt: skip

if TYPE_CHECKING:
    from cupydrive.protocols import Program

Actions = Mapping[str, np.ndarray]  # of a step, by group: (N, C) or (N, C, H)


def param(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float = -np.inf,
    high: float = np.inf,
    vary: tuple[float, float] | None = None,
    choices: Sequence[str] | None = None,
    of: type | None = None,
) -> Any:
    """Describe one parameter of an environment, as the value of a dataclass field.

    A float becomes a member of the kernel's ``Params`` (changing it compiles nothing); an int, bool
    or choice becomes a compile-time constant of its upper-case name. ``max_episode_steps`` alone is
    an int that compiles nothing. An array of numbers is a tuple that ``tables`` may make a table
    of; users give any sequence, array or tensor, or leave it out.

    Args:
        default: Value if the user gives none; its type is the parameter's type. Of an array:
            ``()``.
        help: One sentence.
        unit: SI unit, or what is counted.
        low: Smallest value allowed.
        high: Largest value allowed.
        vary: ``(low, high)`` of the values the checker draws; by default half to one and a half
            times the default.
        choices: Strings allowed, for a string.
        of: ``float`` or ``int``, for an array: the type of its numbers, each in [low, high]. How
            many there must be, the spec's ``check`` says: see ``check_each``.
    """
    about = {
        "help": help,
        "unit": unit,
        "low": low,
        "high": high,
        "vary": vary,
        "choices": choices,
        "of": of,
    }
    default = default.item() if isinstance(default, np.generic) else default
    with errors_as(SpecError):
        check_param(default, about)
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Field:
    """One member of the kernel's ``struct State``.

    Args:
        name: The member's name.
        dtype: ``"f4"``, ``"i4"``, ``"u4"`` or ``"u1"``. Bytes come last, a multiple of 4 in all.
        shape: ``()`` for one value per environment, ``(C,)`` for one per agent, ...
        scale: A typical magnitude; the checker allows 1e-6 of it. Integers are compared exactly.
        unit: SI unit, or what is counted.
    """

    name: str
    dtype: str = "f4"
    shape: tuple[int, ...] = ()
    scale: float = 1.0
    unit: str = ""

    @errors_as(SpecError)
    def __post_init__(self) -> None:
        check_field(self)


@dataclass(frozen=True)
class Group:
    """Agents with equal spaces: their own contiguous buffers ``(N, count, ...)``.

    Args:
        name: The member's name in ``Env`` and the key in Python.
        count: Number of agents.
        obs_dim: Entries of one agent's observation; may be left out if ``obs_shape`` is given.
        action_space: One agent's ``Discrete``, ``MultiDiscrete`` or bounded float32 ``Box`` of one
            dimension, or a ``Tuple`` of these. If it has a ``Box``, actions are float32 numbers:
            first the choices of all discrete heads, then the numbers of all boxes.
        obs_scale: Typical magnitude of the observation, a number or ``(obs_dim,)``.
        reward_scale: Typical magnitude of one step's reward.
        leaves: Agents may be inactive in some steps, or leave before the episode ends (buffers
            ``active`` and ``left``). Rewards of inactive agents belong to their last active step.
        mask: Choices may be forbidden: the kernel's ``observe`` writes ``env.NAME.mask(agent,
            choice, head)`` for each.
        obs_low: Bounds of the observation space, a number or ``(obs_dim,)``. Defaults to 0 and 1
            for bool, and to 0 and 255 for uint8.
        obs_high: Likewise.
        obs_shape: Shape of one agent's observation, such as (height, width, channels), by default
            ``(obs_dim,)``. The kernel numbers entries in C order.
        obs_dtype: ``"float32"``; ``"bool"``, one byte an entry in ``env.step`` and one bit in
            rollouts, all 0 when the kernel's ``observe`` begins; or ``"uint8"``.
        critic_obs_dim: Entries K that a central critic sees instead of one agent's observation:
            the kernel's ``observe`` writes ``env.NAME.critic_obs(agent)[entry]``, float32. Defaults
            to 0: none. Rollouts store them only for ``PPO(critic="central")``.
        critic_obs_scale: Typical magnitude of these, a number or ``(critic_obs_dim,)``.
        agent_ids: Observations end with the agent's number in its group, one-hot: ``count``
            entries behind the ``obs_dim`` that kernel and reference write, so that one policy may
            act differently for each agent. ``env.step``, adapters and networks have all of them,
            and so has the attribute ``obs_dim``. Observations are flat float32.
    """

    name: str
    count: int
    obs_dim: int = 0
    action_space: spaces.Space = None  # it must be given: checked
    obs_scale: float | np.ndarray = 1.0
    reward_scale: float = 1.0
    leaves: bool = False
    mask: bool = False
    obs_low: float | np.ndarray = -np.inf
    obs_high: float | np.ndarray = np.inf
    obs_shape: tuple[int, ...] = ()
    obs_dtype: str = "float32"
    critic_obs_dim: int = 0
    critic_obs_scale: float | np.ndarray = 1.0
    agent_ids: bool = False

    @errors_as(SpecError)
    def __post_init__(self) -> None:
        check_obs_shape(self)
        shape = self.obs_shape or (self.obs_dim,)
        filled: dict[str, Any] = {"obs_dim": math.prod(shape), "obs_shape": tuple(shape)}
        if self.agent_ids:
            entries = math.prod(shape) + self.count
            filled = {"obs_dim": entries, "obs_shape": (entries,)}
            for name, end in {"obs_scale": 1.0, "obs_low": 0.0, "obs_high": 1.0}.items():
                own = getattr(self, name)
                if np.ndim(own) or np.isfinite(own):
                    rows = np.broadcast_to(own, np.shape(own) or shape)
                    filled[name] = np.append(rows, np.full(self.count, end)).astype(np.float32)
        if self.obs_dtype in LARGEST_ENTRY:
            ends = {"obs_low": 0, "obs_high": LARGEST_ENTRY[self.obs_dtype]}
            for name, end in ends.items():
                bound = getattr(self, name)
                filled[name] = float(end) if np.ndim(bound) == 0 and np.isinf(bound) else bound
        for name, value in filled.items():
            object.__setattr__(self, name, value)
        check_group(self)

    @property
    def own_obs_dim(self) -> int:
        """Entries of an observation that kernel and reference write."""
        return self.obs_dim - self.count * self.agent_ids

    @property
    def bits(self) -> bool:
        """Whether rollouts store one bit for each entry of an observation."""
        return self.obs_dtype == "bool"

    def obs_bytes(self, entry: int = 4, packed: bool = False) -> int:
        """Return the bytes of one agent's observation in memory.

        Args:
            entry: Bytes of a float entry.
            packed: Entries of bool are bits.
        """
        if self.bits and packed:
            return 4 * self.words
        return self.obs_dim * (entry if self.obs_dtype == "float32" else 1)

    @property
    def words(self) -> int:
        """Number of 4-byte words that the bits of one agent's observation take."""
        return -(-self.obs_dim // 32)

    @property
    def values(self) -> tuple[int, ...]:
        """Number of values of each channel, the last axis of an observation of uint8:
        ``obs_high`` + 1.
        """
        high = np.broadcast_to(self.obs_high, self.obs_dim).reshape(-1, self.obs_shape[-1])
        return tuple(int(n) + 1 for n in high.max(axis=0))

    @property
    def action_parts(self) -> tuple[spaces.Space, ...]:
        """The parts of a ``Tuple`` of actions, or the action space."""
        space = self.action_space
        return space.spaces if isinstance(space, spaces.Tuple) else (space,)

    @property
    def continuous(self) -> bool:
        """Whether actions are float32 rather than int32: one part at least is a Box."""
        return any(isinstance(part, spaces.Box) for part in self.action_parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of choices of each discrete head; () for a Box."""
        discrete = [part for part in self.action_parts if not isinstance(part, spaces.Box)]
        return tuple(
            int(n)
            for part in discrete
            for n in ([part.n] if isinstance(part, spaces.Discrete) else part.nvec)
        )

    @cached_property
    def box(self) -> spaces.Box:
        """The space of the numbers after the discrete heads: all boxes as one."""
        boxes = [part for part in self.action_parts if isinstance(part, spaces.Box)]
        none = [np.zeros(0, np.float32)]
        low = np.concatenate([part.low for part in boxes] or none)
        return spaces.Box(low, np.concatenate([part.high for part in boxes] or none))

    @property
    def choices(self) -> int:
        """Number of choices of all heads together: entries of one agent's action mask; 0
        for a Box.
        """
        return sum(self.sizes)

    @property
    def first_choices(self) -> tuple[int, ...]:
        """Entry of the action mask at which each discrete head begins."""
        return tuple(sum(self.sizes[:head]) for head in range(len(self.sizes)))

    @property
    def heads(self) -> int:
        """Action numbers per agent: 1 for Discrete."""
        return len(self.sizes) + self.box.shape[0]

    @cached_property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest value of each action number, (H,) each, of the actions' dtype."""
        first, last = np.zeros(len(self.sizes)), np.array(self.sizes) - 1
        low, high = np.append(first, self.box.low), np.append(last, self.box.high)
        return low.astype(self.action_dtype), high.astype(self.action_dtype)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of all agents' actions: (C,) for one discrete head, otherwise (C, H)."""
        return (
            (self.count,) if self.heads == 1 and not self.continuous else (self.count, self.heads)
        )

    @property
    def action_dtype(self) -> np.dtype:
        """NumPy dtype of actions."""
        return np.dtype(np.float32 if self.continuous else np.int32)

    @property
    def observation_space(self) -> spaces.Box:
        """One agent's observation space, a Box of shape ``obs_shape``."""
        low, high = (
            bound if np.ndim(bound) == 0 else np.reshape(bound, self.obs_shape)
            for bound in (self.obs_low, self.obs_high)
        )
        return spaces.Box(low, high, self.obs_shape, np.dtype(self.obs_dtype).type)


@dataclass
class StepResult:
    """What a reference ``step`` returns; floats in float64, dictionaries by field or group name.

    ``margin`` holds, for outputs that depend on a decision (a comparison of floats), how far the
    nearest such decision was from going the other way, relative to the scale of what is compared;
    keys are field names, ``reward.GROUP``, ``left.GROUP``, ``terminated`` and ``metric.NAME``,
    others are an error; shapes are the output's own or its leading part. Outputs that are not named
    depend on no decision.
    """

    state: TableArrays
    reward: TableArrays  # (N, C)
    terminated: np.ndarray  # (N,) bool
    active: TableArrays = field(default_factory=dict)  # (N, C) bool
    left: TableArrays = field(default_factory=dict)  # (N, C) bool
    metrics: TableArrays = field(default_factory=dict)  # (N,)
    # any bool array; the same names in every call
    events: TableArrays = field(default_factory=dict)
    margin: TableArrays = field(default_factory=dict)


def nearest_decision(*distances: npt.ArrayLike, axis: int | None = None) -> np.ndarray:
    """Return the smallest of several distances from a decision, as ``StepResult.margin`` wants it.

    A distance of exactly 0 comes from equal inputs and exact arithmetic (a tie, a clipped value):
    all decide it alike, so it counts as far. Broadcasts; with ``axis``, the smallest along it.
    """
    if not distances:
        raise ParameterError("nearest_decision: distances = (); pass one at least")
    arrays = [checked_array("nearest_decision", "distances", d) for d in distances]
    try:
        np.broadcast_shapes(*(d.shape for d in arrays))
    except ValueError:
        raise ParameterError(
            f"nearest_decision: distances of shapes {[d.shape for d in arrays]} do not fit together"
        ) from None
    smallest = np.minimum.reduce(
        np.broadcast_arrays(*(np.where(d == 0, np.inf, d) for d in arrays))
    )
    if axis is None:
        return smallest
    axis = checked_int("nearest_decision", "axis", axis, -smallest.ndim, smallest.ndim - 1)
    return smallest.min(axis=axis, initial=np.inf)


@dataclass
class Observation:
    """What a reference ``observe`` returns: observations by group, and fields of the state that it
    computes.

    ``margin`` is keyed by group or field name, shape ``(N, C)``.
    """

    obs: TableArrays  # (N, C, D) or (N, C, *obs_shape); of bool and uint8 of any type
    state: TableArrays = field(default_factory=dict)
    margin: TableArrays = field(default_factory=dict)
    mask: TableArrays = field(default_factory=dict)  # (N, C, choices) bool, groups with masks
    critic_obs: TableArrays = field(default_factory=dict)  # (N, C, K), groups with critic_obs_dim


@dataclass(frozen=True)
class Reference:
    """The NumPy functions of an environment, which a check compares the kernel with.

    They return new arrays, and leave those that they are given as they are. A check reports what it
    could not compare for want of one that is None.

    Args:
        reset: ``reset(params, random)`` returns (N,) states; exact, float32; ``random`` is a
            ``RandomStream`` of ``cupydrive.random``.
        step: ``step(params, state, action, elapsed, random)`` returns a ``StepResult``: (N,)
            states, actions by group (N, C) or (N, C, H), ``elapsed`` (N,) with this step counted.
        observe: ``observe(params, state, elapsed)`` returns an ``Observation``.
        sample_states: ``sample_states(params, rng, n)`` returns n states, wider than random play
            reaches. If it is None, the check takes states that random play reaches.
    """

    reset: Callable[..., np.ndarray] | None = None
    step: Callable[..., StepResult] | None = None
    observe: Callable[..., Observation] | None = None
    sample_states: Callable[..., np.ndarray] | None = None

    @errors_as(SpecError)
    def __post_init__(self) -> None:
        check_functions("Reference", self)


@dataclass(frozen=True)
class Display:
    """How an environment is drawn, played by a person and shown in the gallery.

    Args:
        draw: ``draw(canvas, params, states, elapsed)`` draws the last of (K,) states of one episode
            on a ``Canvas``; those before it, at most ``trail``, are for trails and curves.
            ``canvas.agents`` tells where agents are.
        size: (width, height) of a video in pixels, even; a page shows it half as wide.
        fps: Frames per second of a video, one frame per step.
        trail: States before the one shown that ``draw`` is given.
        keys: ``keys(params)`` returns by group what keys do where a person plays one of its agents:
            by key an action, a number or a tuple of one for each head; None leaves a head as it is.
            ``""`` is no key, None there: as in the step before. Others are ``"ArrowLeft"`` and its
            like, letters but q and r, and digits. If it is None, only programs play.
        showcase: What the gallery shows: ``params`` of its episodes, ``rivals`` (groups that play
            the heuristic while the others learn, or play at random), ``policies`` (names of
            learning policies, such as ``"first+second"``; by default each group has one),
            ``figures`` (by metric what it is called there, with its unit), ``still`` (share of an
            episode, 0 to 1, after which the still is taken, 0.5 by default), ``readable`` (width in
            pixels that its pictures keep on a narrow page), and what it trains with but
            ``training``.
    """

    draw: Callable[..., None] | None = None
    size: tuple[int, int] = (960, 640)
    fps: int = 30
    trail: int = 12
    keys: Callable[[Any], Mapping[str, Mapping[str, Any]]] | None = None
    showcase: dict[str, Any] = field(default_factory=dict)

    @errors_as(SpecError)
    def __post_init__(self) -> None:
        check_display(self)


@dataclass(frozen=True, eq=False)
class EnvSpec:
    """One environment: its kernel, its parameters, its spaces and its NumPy reference.

    The first five must be given. Functions of ``reference``, ``heuristic``, ``draw`` and
    ``yardsticks`` may take one more argument, the last, if there are tables: ``table``, whose
    attributes are the arrays that the kernel has (tensors, where observations are tensors). Their
    callers leave it out.

    Args:
        name: The kernel file is ``NAME.cu``.
        params: Frozen dataclass whose fields are made by ``param``; one is ``max_episode_steps``.
        state: ``state(params)`` returns the tuple of ``Field`` of ``struct State``, in order.
        groups: ``groups(params)`` returns the tuple of ``Group``.
        time_limit: ``"terminates"`` if the time limit ends the task, ``"truncates"`` if it cuts the
            episode off.
        reference: The functions that a check compares the kernel with.
        display: How it is drawn and played by a person.
        kernel: Kernel text, the path of its file, or ``PythonKernels``. Defaults to ``NAME.cu``
            beside the Python file.
        metrics: Type by name of what ``env.metrics`` counts: ``"int"`` or ``"float"``.
        heuristic: ``heuristic(params, obs, group)`` returns a tuple of H arrays (N, C), integers or
            for a Box floats, from observations (N, C, D): torch tensors on the device, so NumPy
            works on a CPU only.
        constants: ``constants(params)`` returns further compile-time ints.
        check: ``check(params)`` raises ``ParameterError`` for values that do not go together.
        cases: Parameter sets that the checker runs, each a dictionary.
        tables: ``tables(params)`` returns the arrays that the kernel reads, by name. It may read
            files, and raise ``MissingDataError``.
        table_fields: ``table_fields(params)`` returns the tuple of ``Table`` from parameters alone:
            no file is needed to compile. If it is None, they are what ``tables`` returns.
        training: Suggestions for ``train``, by name: ``algorithm``, ``num_envs``, ``steps``, and
            for each algorithm its settings, with ``num_envs`` and ``steps`` of its own if they
            differ. A dictionary, or ``training(params)`` that returns one.
        reward_threshold: Mean return of greedy episodes that counts as solved, with default
            parameters and one group, or None.
        yardsticks: ``yardsticks(params)`` returns what an evaluation is printed beside, such as the
            exact optimum: by its name a dictionary of numbers by the names of
            ``Evaluation.summary``: ``"return"``, ``"length"``, metrics.
        summary: One sentence.
        title: Name in Gymnasium's registry, by default ``name`` in camel case.

    Raises:
        SpecError: If a field is of a wrong type or out of its range, or a function takes other
            arguments.
    """

    name: str
    params: type
    state: Callable[[Any], tuple[Field, ...]]
    groups: Callable[[Any], tuple[Group, ...]]
    time_limit: Literal["terminates", "truncates"]
    reference: Reference = Reference()
    display: Display = field(default_factory=Display)
    kernel: object = None
    metrics: dict[str, str] = field(default_factory=dict)
    heuristic: Callable[..., tuple[Any, ...]] | None = None
    constants: Callable[[Any], Mapping[str, int]] = lambda params: {}
    check: Callable[[Any], None] = lambda params: None
    cases: tuple[dict[str, Any], ...] = ({},)
    tables: Callable[[Any], Mapping[str, npt.ArrayLike]] | None = None
    table_fields: Callable[[Any], tuple[Table, ...]] | None = None
    training: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] = field(default_factory=dict)
    reward_threshold: float | None = None
    yardsticks: Callable[..., dict[str, dict[str, float]]] | None = None
    summary: str = ""
    title: str = ""

    @errors_as(SpecError)
    def __post_init__(self) -> None:
        checked_instance("EnvSpec", "reference", self.reference, Reference, "a cupydrive.Reference")
        checked_instance("EnvSpec", "display", self.display, Display, "a cupydrive.Display")
        # `replace` passes on functions that are bound to the tables of another.
        self._change_functions(lambda name, function: getattr(function, "of_author", function))
        check_spec(self)
        self._change_functions(self._bind_tables)
        if not self.title:
            object.__setattr__(
                self, "title", "".join(word.capitalize() for word in self.name.split("_"))
            )

    @property
    def own_program(self) -> "Callable[..., Program] | None":
        """``program(executor, spec, params)`` of kernels written in Python, or None: the kernel is
        C.
        """
        return getattr(self.kernel, "program", None)

    @property
    def devices(self) -> tuple[str, ...]:
        """Where the kernels run."""
        return getattr(self.kernel, "devices", ("cpu", "cuda"))

    def _change_functions(
        self, change: Callable[[str, Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Replace each function that may read tables by ``change(name, function)``."""
        object.__setattr__(
            self, "reference", replace(self.reference, **_changed(self.reference, change))
        )
        object.__setattr__(self, "display", replace(self.display, **_changed(self.display, change)))
        for name, function in _changed(self, change).items():
            object.__setattr__(self, name, function)

    def _bind_tables(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is called without ``table``."""
        if not reads_table(function):
            return function
        if self.tables is None:
            raise SpecError(
                f"{self.name}: {name} reads `table`, but there is no tables(params), which "
                f"returns its arrays"
            )
        return WithTable(
            function, self.table_arrays, MAY_READ_TABLES[name].split(", ").index("params")
        )

    @lru_cache(maxsize=64)  # noqa: B019 - environments are few, and stay
    def declared_tables(self, params: EnvParams) -> tuple[Table, ...]:
        """Return the tuple of ``Table``; without ``table_fields`` it is read off the arrays."""
        if self.tables is None:
            return ()
        if self.table_fields is None:
            return derived_tables(self.name, self.tables(params))
        declared = self.table_fields(params)
        check_members(self.name, "table_fields", declared, Table)
        return declared

    @lru_cache(maxsize=16)  # noqa: B019 - a check draws parameters often, and a table may have megabytes
    def table_arrays(self, params: EnvParams) -> TableArrays:
        """Return the read-only arrays by name, of the shapes and types declared; empty without
        tables.

        Raises:
            SpecError: If an array is not what was declared.
            MissingDataError: If the data is not here.
        """
        if self.tables is None:
            return {}
        return checked_tables(self.name, self.declared_tables(params), self.tables(params))

    @lru_cache(maxsize=64)  # noqa: B019
    def table_digests(self, params: EnvParams) -> dict[str, str]:
        """Return the SHA-256 of each table by name: of its name, type, shape and bytes."""
        return {
            name: table_digest(name, array) for name, array in self.table_arrays(params).items()
        }

    def about_tables(self, params: EnvParams) -> dict[str, dict[str, str]]:
        """Return what a file states of the tables: ``{"tables": table_digests}``, or nothing
        without tables.
        """
        digests = self.table_digests(params)
        return {"tables": digests} if digests else {}

    def require_tables(self, what: str, params: EnvParams, kept: Mapping[str, str] | None) -> None:
        """Raise ``ParameterError`` if a file was made with other tables than there are here.

        Args:
            what: The file, for the message.
            params: Parameters of the environment.
            kept: ``table_digests`` when the file was made, or None if there were no tables.
        """
        kept, now = kept or {}, self.table_digests(params)
        for name in (*now, *kept):
            if kept.get(name) != now.get(name):
                then, here = (
                    f"SHA-256 {of[name][:12]}..." if name in of else "none" for of in (kept, now)
                )
                raise ParameterError(
                    f"{what} was made with another table {name!r} of {self.name} ({then}; here "
                    f"{here}); it needs the same data"
                )

    def with_made_up_tables(self, seed: int = 0) -> "EnvSpec":
        """Return this environment with made-up values in its tables, for tests without data.

        It is itself if it has no tables, or if ``tables`` alone declares them: then they come from
        no data.
        """
        if self.table_fields is None:
            return self
        return replace(
            self, tables=lambda params: made_up_tables(self.declared_tables(params), seed)
        )

    def require_known(
        self,
        given: Iterable[str],
        call: Callable[..., object] | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> None:
        """Raise ``UnknownParameterError`` for a name in ``given`` that is no parameter; see
        ``unknown_parameter``.

        ``hints`` are what ``call`` knows of such names.
        """
        known = [f.name for f in fields(self.params)]
        for name in given:
            if name not in known:
                raise UnknownParameterError(
                    unknown_parameter(self.name, name, known, call, (hints or {}).get(name, ""))
                )

    def make_params(self, **given: object) -> EnvParams:
        """Return ``self.params`` with ``given`` values checked: name, type and range."""
        about = {f.name: f for f in fields(self.params)}
        self.require_known(given)
        values = {}
        for name, value in given.items():
            values[name] = checked_value(
                self.name, name, about[name].default, about[name].metadata, value
            )
        params = self.params(**values)
        self.check(params)
        constants, groups, state = self.constants(params), self.groups(params), self.state(params)
        with errors_as(SpecError):
            for name, constant in constants.items():
                checked_int(self.name, f"constants: {name}", constant, -INT32, INT32)
            checked_mapping(self.name, "training(params)", self.training_of(params))
        check_members(self.name, "groups", groups, Group)
        check_members(self.name, "state", state, Field)
        if (agents := sum(g.count for g in groups)) > MAX_AGENTS:
            raise ParameterError(
                f"{self.name}: {agents} agents are more than the {MAX_AGENTS} that random streams "
                f"know"
            )
        if (named := getattr(params, "num_agents", agents)) != agents:
            raise SpecError(
                f"{self.name}: num_agents = {named}, but groups(params) has {agents} agents; make "
                f"them equal or give the parameter another name"
            )
        if self.table_fields is not None:
            self.declared_tables(params)
        if self.display.keys is not None:
            check_keys(self.name, groups, self.display.keys(params))
        return params

    def training_of(self, params: EnvParams) -> Mapping[str, Any]:
        """Return the suggestions for training with these parameters."""
        return self.training(params) if callable(self.training) else self.training

    def one_agent(self, params: EnvParams) -> bool:
        """Return whether there is one group of one agent."""
        return [g.count for g in self.groups(params)] == [1]

    def state_dtype(self, params: EnvParams) -> np.dtype:
        """Return the NumPy dtype of ``struct State``: members without gaps.

        Raises:
            SpecError: If a compiler would leave gaps.
        """
        members: list[Any] = [(f.name, f.dtype, f.shape) for f in self.state(params)]
        dtype = np.dtype(members)
        if dtype.itemsize % 4 or np.dtype(members, align=True) != dtype:
            raise SpecError(
                f"{self.name}: state(params) has {dtype.itemsize:,} bytes, or bytes before larger "
                f"members; put members of dtype 'u1' last, a multiple of 4 of them in all"
            )
        return dtype

    def pack_params(self, params: EnvParams) -> np.ndarray:
        """Return the float parameters as the kernel's ``struct Params``, a structured scalar."""
        names = [f.name for f in float_params(self.params)]
        dtype = np.dtype([(n, "f4") for n in names] or [("none", "f4")])
        return np.array(tuple(getattr(params, n) for n in names) or (0.0,), dtype)

    def metrics_dtype(self) -> np.dtype:
        """Return the NumPy dtype of ``struct Metrics``."""
        kinds = {"int": "i4", "float": "f4"}
        return np.dtype(
            [(name, kinds[kind]) for name, kind in self.metrics.items()] or [("none", "i4")]
        )


def _changed(
    part: EnvSpec | Reference | Display,
    change: Callable[[str, Callable[..., Any]], Callable[..., Any]],
) -> dict[str, Any]:
    functions = {f.name: getattr(part, f.name) for f in fields(part) if f.name in MAY_READ_TABLES}
    return {
        name: change(name, function) for name, function in functions.items() if function is not None
    }


def float_params(params_class: type) -> list[DataclassField[Any]]:
    """Return the dataclass fields that the kernel gets as data."""
    return [f for f in fields(params_class) if type(f.default) is float]


def constant_params(params_class: type) -> list[DataclassField[Any]]:
    """Return the dataclass fields that the kernel gets as compile-time constants."""
    others = (f for f in fields(params_class) if type(f.default) not in (float, tuple))
    return [f for f in others if f.name != "max_episode_steps"]


def kept_params(params: EnvParams) -> dict[str, Any]:
    """Return parameters by name as files keep them: arrays are lists, and those that are not given
    are left out.
    """
    found = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(params).items()
    }
    return {name: value for name, value in found.items() if value != []}
