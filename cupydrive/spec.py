"""Description of an environment. Imports only NumPy and gymnasium.spaces.

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

# public names for authors of environments
__all__ = [
    "Display", "EnvSpec", "Field", "Group", "Observation", "Reference", "StepResult", "Table",
    "check_each",
    "nearest_decision", "param",
]  # fmt: skip

if TYPE_CHECKING:
    from cupydrive.protocols import Program

Actions = Mapping[str, np.ndarray]  # actions of one step by group, (N, C) or (N, C, H)


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

    A float becomes a member of the kernel's ``Params``, so that changing it compiles nothing. An
    int, bool or choice becomes a compile-time constant with its name in upper case, except for
    ``max_episode_steps``, which compiles nothing. An array of numbers is a tuple, from which
    ``tables`` may make a table. Users may pass any sequence, array or tensor, or leave it out.

    Args:
        default: Default value. Its type is the parameter's type. ``()`` for an array.
        help: Description in one sentence.
        unit: SI unit, or the objects that are counted.
        low: Smallest allowed value.
        high: Largest allowed value.
        vary: ``(low, high)`` of the values that the checker draws. Defaults to 0.5 to 1.5 times the
            default value. If a case sets another value, the range is 0.5 to 1.5 times that value.
        choices: Allowed strings, for a string.
        of: ``float`` or ``int`` for an array, the type of its numbers. Each is in [low, high]. The
            ``check`` of the spec validates their number, see ``check_each``.

    Returns:
        ``dataclasses.field`` with the default value.

    Raises:
        SpecError: If an argument is wrong, or the default is out of range.

    Examples:
        >>> from dataclasses import dataclass
        >>> import cupydrive as cd
        >>> @dataclass(frozen=True)
        ... class Params:
        ...     gravity: float = cd.param(9.8, "Acceleration by gravity.", unit="m/s^2", low=0.0)
        ...     max_episode_steps: int = cd.param(200, "Time limit.", unit="steps", low=1)
        >>> Params(gravity=1.6)
        Params(gravity=1.6, max_episode_steps=200)
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
        name: Name of the member.
        dtype: ``"f4"``, ``"i4"``, ``"u4"`` or ``"u1"``. Bytes must be the last members, and their
            total number a multiple of 4.
        shape: ``()`` for one value per environment, ``(C,)`` for one per agent, ...
        scale: Typical magnitude. The checker allows a difference of 1e-6 of it. Integers must be
            equal.
        unit: SI unit, or the objects that are counted.

    Raises:
        SpecError: If an argument is wrong.

    Examples:
        >>> import cupydrive as cd
        >>> cd.Field("position", "f4", (5, 2), scale=10.0, unit="m").shape  # of 5 agents
        (5, 2)
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
    """Agents with equal spaces and common contiguous buffers ``(N, count, ...)``.

    Args:
        name: Name of the member in ``Env``, and key in Python.
        count: Number of agents.
        obs_dim: Number of entries of one agent's observation. Defaults to that of ``obs_shape``.
        action_space: One agent's ``Discrete``, ``MultiDiscrete`` or bounded float32 ``Box`` of one
            dimension, or a ``Tuple`` of these. With a ``Box``, actions are float32: the choices of
            all discrete heads, followed by the values of all boxes.
        obs_scale: Typical magnitude of the observation, a number or ``(obs_dim,)``.
        reward_scale: Typical magnitude of one step's reward.
        leaves: Whether agents may be inactive in some steps, or leave before the episode ends.
            Buffers ``active`` and ``left`` store this. Rewards of inactive agents are added to
            their last active step.
        mask: Whether choices may be forbidden. The kernel's ``observe`` must write
            ``env.NAME.mask(agent, choice, head)`` for each choice.
        obs_low: Lower bounds of the observation space, a number or ``(obs_dim,)``. Defaults to 0
            for bool and uint8.
        obs_high: Upper bounds of the observation space, a number or ``(obs_dim,)``. Defaults to 1
            for bool and 255 for uint8.
        obs_shape: Shape of one agent's observation, such as (height, width, channels). Defaults to
            ``(obs_dim,)``. The kernel numbers entries in C order.
        obs_dtype: ``"float32"``, ``"uint8"`` or ``"bool"``. Bools take one byte per entry in
            ``env.step`` and one bit in rollouts, and are 0 at the beginning of the kernel's
            ``observe``.
        critic_obs_dim: Number K of entries that a centralized critic sees instead of one agent's
            observation. The kernel's ``observe`` must write ``env.NAME.critic_obs(agent)[entry]``,
            float32. Defaults to 0 for none. Rollouts store them only for
            ``PPO(critic="central")``.
        critic_obs_scale: Typical magnitude of the critic's entries, a number or
            ``(critic_obs_dim,)``.
        agent_ids: Whether observations end with the one-hot index of the agent in its group, so
            that one policy may act differently for each agent. These are ``count`` entries after
            the ``obs_dim`` entries of kernel and reference. ``env.step``, adapters, networks and
            the attribute ``obs_dim`` include them. Observations must be flat float32.

    Raises:
        SpecError: If an argument is wrong, or arguments do not fit each other.

    Examples:
        >>> import cupydrive as cd
        >>> from gymnasium import spaces
        >>> runners = cd.Group("runner", 100, obs_dim=8, action_space=spaces.Discrete(5))
        >>> runners.action_shape, runners.observation_space.shape
        ((100,), (8,))
    """

    name: str
    count: int
    obs_dim: int = 0
    action_space: spaces.Space = None  # required, as check_group verifies
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
    id_entries: int = field(default=0, repr=False)  # of agent ids, in a copy made by replace()

    @errors_as(SpecError)
    def __post_init__(self) -> None:
        if self.id_entries:
            self.remove_ids()
        check_obs_shape(self)
        shape = self.obs_shape or (self.obs_dim,)
        filled: dict[str, Any] = {"obs_dim": math.prod(shape), "obs_shape": tuple(shape)}
        if self.agent_ids:
            entries = math.prod(shape) + self.count
            filled = {"obs_dim": entries, "obs_shape": (entries,), "id_entries": self.count}
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

    def remove_ids(self) -> None:
        """Remove agent ids from the sizes of observations, which ``__post_init__`` adds again."""
        ids = self.id_entries
        changed: dict[str, Any] = {"obs_dim": self.obs_dim - ids, "id_entries": 0}
        changed["obs_shape"] = (self.obs_shape[0] - ids,)
        for name in ("obs_scale", "obs_low", "obs_high"):
            if np.ndim(value := getattr(self, name)):
                changed[name] = value[:-ids]
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    @property
    def own_obs_dim(self) -> int:
        """Number of entries of an observation that kernel and reference write."""
        return self.obs_dim - self.id_entries

    @property
    def bits(self) -> bool:
        """Whether rollouts store one bit for each entry of an observation."""
        return self.obs_dtype == "bool"

    def obs_bytes(self, entry: int = 4, packed: bool = False) -> int:
        """Return the bytes of one agent's observation in memory.

        Args:
            entry: Bytes of a float entry.
            packed: Entries of bool are packed bits.
        """
        if self.bits and packed:
            return 4 * self.words
        return self.obs_dim * (entry if self.obs_dtype == "float32" else 1)

    @property
    def words(self) -> int:
        """Number of 4-byte words of the packed bits of one agent's observation."""
        return -(-self.obs_dim // 32)

    @property
    def values(self) -> tuple[int, ...]:
        """Number of values of each channel, ``obs_high`` + 1, for observations of uint8.

        Channels are the last axis.
        """
        high = np.broadcast_to(self.obs_high, self.obs_dim).reshape(-1, self.obs_shape[-1])
        return tuple(int(n) + 1 for n in high.max(axis=0))

    @property
    def action_parts(self) -> tuple[spaces.Space, ...]:
        """Parts of a ``Tuple`` of actions, or the action space as the only part."""
        space = self.action_space
        return space.spaces if isinstance(space, spaces.Tuple) else (space,)

    @property
    def continuous(self) -> bool:
        """Whether actions are float32 instead of int32, since at least one part is a Box."""
        return any(isinstance(part, spaces.Box) for part in self.action_parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of choices of each discrete head. () for a Box."""
        discrete = [part for part in self.action_parts if not isinstance(part, spaces.Box)]
        return tuple(
            int(n)
            for part in discrete
            for n in ([part.n] if isinstance(part, spaces.Discrete) else part.nvec)
        )

    @cached_property
    def box(self) -> spaces.Box:
        """Space of the values after the discrete heads: all boxes combined."""
        boxes = [part for part in self.action_parts if isinstance(part, spaces.Box)]
        none = [np.zeros(0, np.float32)]
        low = np.concatenate([part.low for part in boxes] or none)
        return spaces.Box(low, np.concatenate([part.high for part in boxes] or none))

    @property
    def choices(self) -> int:
        """Total number of choices of all heads, the size of an action mask. 0 for a Box."""
        return sum(self.sizes)

    @property
    def first_choices(self) -> tuple[int, ...]:
        """First entry of each discrete head in the action mask."""
        return tuple(sum(self.sizes[:head]) for head in range(len(self.sizes)))

    @property
    def heads(self) -> int:
        """Number of action entries per agent. 1 for Discrete."""
        return len(self.sizes) + self.box.shape[0]

    @cached_property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest value of each action entry, (H,) each, of the actions' dtype."""
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
    """Result of a reference ``step``. Floats are float64.

    Args:
        state: Fields of ``struct State`` after the step by name, (N, *shape of the field).
        reward: Rewards by group, (N, C).
        terminated: (N,) bool, whether the step terminated the episode.
        active: Agents that were active before the step by group, (N, C) bool, for groups with
            ``leaves``.
        left: Agents that left during the step by group, (N, C) bool, for groups with ``leaves``.
        metrics: Increments of ``env.metrics`` by name, (N,).
        events: Bool arrays of any shape by name, with the same names in every call. The checker
            verifies that each event occurs.
        margin: Distance from the nearest decision by output, for outputs that depend on a decision,
            a comparison of floats. It is the distance of the compared values from the opposite
            outcome, relative to their scale. Keys are field names, ``reward.GROUP``,
            ``left.GROUP``, ``terminated`` and ``metric.NAME``. Other keys are an error. The shape
            is that of the output or its leading part. Outputs without an entry depend on no
            decision.

    Examples:
        >>> import cupydrive as cd
        >>> import numpy as np
        >>> x = np.array([0.5, 2.0])  # of two environments
        >>> result = cd.StepResult(
        ...     state={"x": x},
        ...     reward={"point": -abs(x)[:, None]},
        ...     terminated=abs(x) > 1.0,
        ...     margin={"terminated": abs(abs(x) - 1.0)},
        ... )
        >>> result.terminated
        array([False,  True])
    """

    state: TableArrays
    reward: TableArrays
    terminated: np.ndarray
    active: TableArrays = field(default_factory=dict)
    left: TableArrays = field(default_factory=dict)
    metrics: TableArrays = field(default_factory=dict)
    events: TableArrays = field(default_factory=dict)
    margin: TableArrays = field(default_factory=dict)


def nearest_decision(*distances: npt.ArrayLike, axis: int | None = None) -> np.ndarray:
    """Return the smallest of several distances from a decision, for ``StepResult.margin``.

    A distance of exactly 0 results from equal inputs and exact arithmetic, such as a tie or a
    clipped value. All implementations agree on it, so it counts as infinite.

    Args:
        *distances: Distances, arrays that broadcast.
        axis: Axis along which the smallest is taken. If it is None, the result has the broadcast
            shape.

    Raises:
        ParameterError: If there are no distances, or their shapes do not broadcast.

    Examples:
        >>> import cupydrive as cd
        >>> cd.nearest_decision([0.5, 0.0], [0.25, 3.0])
        array([0.25, 3.  ])
    """
    if not distances:
        raise ParameterError("nearest_decision: distances = (). Pass at least one")
    arrays = [checked_array("nearest_decision", "distances", d) for d in distances]
    try:
        np.broadcast_shapes(*(d.shape for d in arrays))
    except ValueError:
        raise ParameterError(
            f"nearest_decision: distances have the shapes {[d.shape for d in arrays]}, expected "
            f"shapes that broadcast"
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
    """Result of a reference ``observe``.

    Args:
        obs: Observations by group, (N, C, D) or (N, C, *obs_shape), of any type for groups of bool
            or uint8.
        state: Fields of ``struct State`` by name, if the kernel's ``observe`` also writes them.
        margin: Smallest distance from a decision, as in ``StepResult``, by group or field, (N, C).
        mask: Allowed choices by group, (N, C, choices) bool, for groups with masks.
        critic_obs: Observations of a centralized critic by group, (N, C, K), for groups with
            ``critic_obs_dim``.
    """

    obs: TableArrays
    state: TableArrays = field(default_factory=dict)
    margin: TableArrays = field(default_factory=dict)
    mask: TableArrays = field(default_factory=dict)
    critic_obs: TableArrays = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """NumPy functions of an environment, with which the checker compares the kernel.

    They must return new arrays and must not change their arguments. The checker reports comparisons
    that it skips because a function is None.

    Args:
        reset: ``reset(params, random)`` returns (N,) states, exact in float32. ``random`` is a
            ``RandomStream`` of ``cupydrive.random``.
        step: ``step(params, state, action, elapsed, random)`` returns a ``StepResult``. ``state``
            has shape (N,). ``action`` is by group, (N, C) or (N, C, H). ``elapsed``, (N,), includes
            this step.
        observe: ``observe(params, state, elapsed)`` returns an ``Observation``.
        sample_states: ``sample_states(params, rng, n)`` returns n states from a wider range than
            random play reaches. If it is None, the checker uses states from random play.

    Examples:
        >>> import cupydrive as cd
        >>> import numpy as np
        >>> def observe(params, state, elapsed):
        ...     return cd.Observation({"point": np.float64(state["x"])[:, None, None]})
        >>> reference = cd.Reference(observe=observe)
        >>> states = np.zeros(3, [("x", "f4")])
        >>> reference.observe(None, states, np.zeros(3)).obs["point"].shape
        (3, 1, 1)
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
    """Drawing of an environment, keys for a person, and presentation in the gallery.

    Args:
        draw: ``draw(canvas, params, states, elapsed)`` draws the last of (K,) states of one episode
            on a ``Canvas``. The previous states, at most ``trail``, are for trails and curves.
            ``canvas.agents`` records the positions of agents.
        size: (width, height) of a video in pixels, both even. Pages show it at half this width.
        fps: Frames per second of a video, one frame per step.
        trail: Number of previous states that ``draw`` receives.
        keys: ``keys(params)`` returns, by group, a dictionary from keys to actions of one agent. An
            action is a number, or a tuple with one number for each head. None keeps the previous
            choice of a head. The key ``""`` stands for no pressed key, where None also keeps the
            previous choice. Other keys are ``"ArrowLeft"`` and the other arrows, letters except q
            and r, and digits. If ``keys`` is None, a person cannot play.
        showcase: Presentation in the gallery. ``params`` are parameters of its episodes.
            ``rivals`` are groups that play the heuristic while the others learn, or play at random.
            ``policies`` are names of learning policies, such as ``"first+second"``, by default one
            per group. ``figures`` are titles of metrics with their unit. ``still`` is the fraction
            of an episode, 0 to 1, after which the still is taken, by default 0.5. ``readable`` is
            the width in pixels that its pictures keep on a narrow page. Further entries override
            ``training``.

    Examples:
        >>> import cupydrive as cd
        >>> def draw(canvas, params, states, elapsed):
        ...     x = states["x"][-1]
        ...     canvas.line([(0.0, 0.0), (x, 0.0)], 0.1, canvas.BLUE)
        >>> cd.Display(draw, size=(640, 320), fps=20).size
        (640, 320)
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

    The first five arguments are required. If there are tables, the functions of ``reference``,
    ``heuristic``, ``draw`` and ``yardsticks`` may have an additional last argument ``table``. Its
    attributes are the arrays of the kernel, or tensors if observations are tensors. Callers leave
    it out.

    Args:
        name: Name of the environment. The default kernel file is ``NAME.cu``.
        params: Frozen dataclass whose fields are made by ``param``, including
            ``max_episode_steps``. Names of arguments of ``make``, ``train`` and ``evaluate`` are
            errors, since these functions take parameters beside them.
        state: ``state(params)`` returns the tuple of ``Field`` of ``struct State``, in order.
        groups: ``groups(params)`` returns the tuple of ``Group``.
        time_limit: ``"terminates"`` if the time limit is part of the task and terminates the
            episode, ``"truncates"`` if it truncates the episode.
        reference: ``Reference`` with which the checker compares the kernel.
        display: ``Display`` for videos and play by a person.
        kernel: Kernel source, the path of its file, or ``PythonKernels``. Defaults to ``NAME.cu``
            next to the Python file.
        metrics: Type of each counter of ``env.metrics`` by name: ``"int"`` or ``"float"``. Names
            of groups and ``"length"`` are taken.
        heuristic: ``heuristic(params, obs, group)`` returns a tuple of H arrays (N, C), integers,
            or floats for a Box. ``obs`` is (N, C, D), a torch tensor on the device, so that NumPy
            functions work only on a CPU.
        constants: ``constants(params)`` returns further compile-time ints.
        check: ``check(params)`` raises ``ParameterError`` for inconsistent values.
        cases: Parameter sets that the checker runs, each a dictionary.
        tables: ``tables(params)`` returns the arrays that the kernel reads, by name. It may read
            files, and raise ``MissingDataError``.
        table_fields: ``table_fields(params)`` returns the tuple of ``Table``. It uses only the
            parameters, so that no file is needed to compile. If it is None, the result of
            ``tables`` defines them.
        training: Suggestions for ``train``, by name: ``algorithm``, ``num_envs``, ``steps``, and
            settings for each algorithm, which may include different ``num_envs`` and ``steps``. A
            dictionary, or a function ``training(params)`` that returns one.
        reward_threshold: Mean return of greedy episodes at which the environment counts as solved,
            with default parameters and one group, or None.
        yardsticks: ``yardsticks(params)`` returns reference values for evaluations, such as the
            exact optimum. By name of the reference, it has a dictionary of numbers by the names of
            ``Evaluation.summary``: ``"return"``, ``"length"`` and metrics.
        summary: Description in one sentence.
        title: Name in Gymnasium's registry. Defaults to ``name`` in camel case.

    Raises:
        SpecError: If a field has a wrong type or is out of range, or a function has wrong
            arguments.

    Examples:
        >>> from dataclasses import dataclass
        >>> import cupydrive as cd
        >>> from gymnasium import spaces
        >>> @dataclass(frozen=True)
        ... class Params:
        ...     push: float = cd.param(0.1, "Distance moved per step.", unit="m", low=0.0)
        ...     max_episode_steps: int = cd.param(50, "Time limit.", unit="steps", low=1)
        >>> kernel = '''
        ... struct Params { float push; };
        ... struct State { float x; };
        ... #include "drive/env.cuh"
        ...
        ... DEVICE void reset(Env& env) { env.state.x = env.random.uniform4(0).x; }
        ...
        ... DEVICE bool step(Env& env) {
        ...   for (int i : env.team.each(1)) {
        ...     const float way = env.point.action(i) == 1 ? 1.0f : -1.0f;
        ...     env.state.x += way * env.params.push;
        ...     env.point.reward(i) = -math::abs(env.state.x);
        ...   }
        ...   return false;
        ... }
        ...
        ... DEVICE void observe(Env& env) { env.point.obs(0)[0] = env.state.x; }
        ... '''
        >>> spec = cd.EnvSpec(
        ...     name="point",
        ...     params=Params,
        ...     state=lambda p: (cd.Field("x"),),
        ...     groups=lambda p: (cd.Group("point", 1, 1, spaces.Discrete(2)),),
        ...     time_limit="truncates",
        ...     kernel=kernel,
        ... )
        >>> env = cd.make(spec, num_envs=4, device="cpu")
        >>> env.reset(seed=0)[0].shape
        torch.Size([4, 1])
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
        # `replace` passes functions that are bound to the tables of the original.
        self._change_functions(lambda name, function: getattr(function, "of_author", function))
        check_spec(self)
        self._change_functions(self._bind_tables)
        if not self.title:
            object.__setattr__(
                self, "title", "".join(word.capitalize() for word in self.name.split("_"))
            )

    @property
    def own_program(self) -> "Callable[..., Program] | None":
        """``program(executor, spec, params)`` of kernels in Python, or None for kernels in C."""
        return getattr(self.kernel, "program", None)

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices on which the kernels run."""
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

    @lru_cache(maxsize=64)  # noqa: B019 - there are few environments, and they are permanent
    def declared_tables(self, params: EnvParams) -> tuple[Table, ...]:
        """Return the tuple of ``Table``. Without ``table_fields`` it is derived from the arrays."""
        if self.tables is None:
            return ()
        if self.table_fields is None:
            return derived_tables(self.name, self.tables(params))
        declared = self.table_fields(params)
        check_members(self.name, "table_fields", declared, Table)
        return declared

    @lru_cache(maxsize=16)  # noqa: B019 - a check draws parameters often, and a table may have megabytes
    def table_arrays(self, params: EnvParams) -> TableArrays:
        """Return the read-only arrays by name, with the declared shapes and types.

        Without tables, the result is empty.

        Raises:
            SpecError: If an array differs from its declaration.
            MissingDataError: If the data is not available.
        """
        if self.tables is None:
            return {}
        return checked_tables(self.name, self.declared_tables(params), self.tables(params))

    @lru_cache(maxsize=64)  # noqa: B019
    def table_digests(self, params: EnvParams) -> dict[str, str]:
        """Return the SHA-256 of each table by name. It covers name, type, shape and bytes."""
        return {
            name: table_digest(name, array) for name, array in self.table_arrays(params).items()
        }

    def about_tables(self, params: EnvParams) -> dict[str, dict[str, str]]:
        """Return the entry of the tables in a file: ``{"tables": table_digests}``.

        Without tables, it is empty.
        """
        digests = self.table_digests(params)
        return {"tables": digests} if digests else {}

    def require_tables(self, what: str, params: EnvParams, kept: Mapping[str, str] | None) -> None:
        """Raise ``ParameterError`` if a file was made with other tables.

        Args:
            what: Description of the file, for the message.
            params: Parameters of the environment.
            kept: ``table_digests`` of the file, or None if there were no tables.
        """
        kept, now = kept or {}, self.table_digests(params)
        for name in (*now, *kept):
            if kept.get(name) != now.get(name):
                then, here = (
                    f"SHA-256 {of[name][:12]}..." if name in of else "none" for of in (kept, now)
                )
                raise ParameterError(
                    f"{what} was made with another table {name!r} of {self.name}: got {then}, "
                    f"expected {here}. It needs the same data"
                )

    def with_made_up_tables(self, seed: int = 0) -> "EnvSpec":
        """Return this environment with made-up values in its tables, for tests without data.

        Without ``table_fields`` the environment is unchanged, since it has no tables or they depend
        on no data.
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
        """Raise ``UnknownParameterError`` for an unknown parameter.

        Args:
            given: Parameter names that the caller passed.
            call: Function that received them, for messages.
            hints: Advice of ``call`` about unknown names, see ``unknown_parameter``.
        """
        known = [f.name for f in fields(self.params)]
        for name in given:
            if name not in known:
                raise UnknownParameterError(
                    unknown_parameter(self.name, name, known, call, (hints or {}).get(name, ""))
                )

    def make_params(self, **given: object) -> EnvParams:
        """Create ``self.params`` from the given values. Names, types and ranges are validated.

        Args:
            **given: Values by name. The others keep their defaults.

        Raises:
            UnknownParameterError: If there is no such parameter.
            ParameterError: If a value has the wrong type or is out of range, or values do not fit
                each other.
            SpecError: If a function of the spec returns a wrong value for these parameters.
        """
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
        for g in groups:
            if g.name in (others := ("length", *self.metrics)):
                raise SpecError(
                    f"{self.name}: group {g.name!r} has the name of another number of an "
                    f"evaluation: {', '.join(others)}. Choose another name"
                )
        if (agents := sum(g.count for g in groups)) > MAX_AGENTS:
            raise ParameterError(
                f"{self.name}: {agents} agents exceed the maximum of {MAX_AGENTS} of random streams"
            )
        if (named := getattr(params, "num_agents", agents)) != agents:
            raise SpecError(
                f"{self.name}: num_agents = {named}, but groups(params) has {agents} agents. Make "
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
        """Return whether there is exactly one group with one agent."""
        return [g.count for g in self.groups(params)] == [1]

    def state_dtype(self, params: EnvParams) -> np.dtype:
        """Return the NumPy dtype of ``struct State``, without padding.

        Raises:
            SpecError: If a compiler would insert padding.
        """
        members: list[Any] = [(f.name, f.dtype, f.shape) for f in self.state(params)]
        dtype = np.dtype(members)
        if dtype.itemsize % 4 or np.dtype(members, align=True) != dtype:
            raise SpecError(
                f"{self.name}: state(params) has {dtype.itemsize:,} bytes, or bytes before larger "
                f"members. Put members of dtype 'u1' last, a multiple of 4 of them in total"
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
    """Return the dataclass fields that the kernel receives as data."""
    return [f for f in fields(params_class) if type(f.default) is float]


def constant_params(params_class: type) -> list[DataclassField[Any]]:
    """Return the dataclass fields that the kernel receives as compile-time constants."""
    others = (f for f in fields(params_class) if type(f.default) not in (float, tuple))
    return [f for f in others if f.name != "max_episode_steps"]


def kept_params(params: EnvParams) -> dict[str, Any]:
    """Return parameters by name for files. Arrays are lists, and omitted arrays are left out."""
    found = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(params).items()
    }
    return {name: value for name, value in found.items() if value != []}
