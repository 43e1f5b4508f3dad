"""What the parts that can be exchanged have to offer: executors and their programs, players,
learners, and settings.

Whatever has these members fits, and ``isinstance`` asks for no more; a class that names one as its
base gets the methods that may do nothing. To write an algorithm of your own, write a
``LearnerSettings`` whose ``learner()`` returns a ``Learner``, and pass it to ``cupydrive.train``;
to write a policy that does not learn, write a ``PlayerSettings`` whose ``player(...)`` returns a
``Player``.

Letters: T steps of a rollout, N environments, C agents of a group, D observation entries, H action
heads.
"""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from types import ModuleType

    import cupy
    import numpy as np
    import torch
    from numpy.typing import ArrayLike, DTypeLike

    from cupydrive.codegen.layout import Layout
    from cupydrive.codegen.source import Unit
    from cupydrive.playing.inference import Module
    from cupydrive.playing.rollout import Rollout
    from cupydrive.spec import EnvSpec, Group

Array: TypeAlias = "np.ndarray | cupy.ndarray"  # of an executor
# of a parameter of an environment
ParamValue: TypeAlias = "bool | int | float | str | Sequence[float] | np.ndarray"

# ---- who acts ------------------------------------------------------------------------------------


@runtime_checkable
class Player(Protocol):
    """Chooses the actions of one group, or of several that share it.

    What it sees and fills are the tensors of a ``Rollout``, time first, by name of the group; they
    live on ``rollout.device`` and are written again by every rollout:

    ``rollout.obs[name]`` (T + 1, N, C, D) float32; row t is what step t sees.
    ``rollout.action_mask[name]`` (T + 1, N, C, choices) bool, of groups with masks;
    ``rollout.mask(group, t)`` is one row. ``rollout.action[name]`` (T, N, C, H), int32, or float32
    of a Box: row t is what ``act`` fills.
    """

    def begin(self, rollout: "Rollout", group: "Group") -> None:
        """Prepare to play ``group``, a ``Group`` of the environment; called once for each of its
        groups, before all else.
        """

    def act(self, rollout: "Rollout", t: int) -> None:
        """Write the actions of row ``t`` for all of its groups: queue the work, and do not wait for
        the device.
        """

    def module(self, rollout: "Rollout", group: "Group") -> "Module":
        """Return what it does in ``group`` as ``Run.act``, ``Run.policy`` and ``Run.export`` need
        it: a torch module.

        It is one of ``cupydrive.playing.inference``: ``DiscretePolicy``, ``BoxPolicy`` or
        ``DeterministicPolicy``, of a network (B, D) -> (parameters, value). What is no function of
        observations raises ``ParameterError``.
        """


@runtime_checkable
class Learner(Player, Protocol):
    """A player that learns from the T steps that it has just played.

    One iteration is: ``act`` for t = 0, ..., T - 1, then ``update``. ``train`` may capture an
    iteration in a CUDA graph (``cuda_graph=True``, the default on a GPU): then all tensors are made
    before, changed in place, and read by the host only where ``metric_sums`` and ``bad`` say so.

    Besides what a ``Player`` uses, a rollout has, time first: ``reward[name]`` (T, N, C) float32;
    ``terminated`` and ``truncated`` (T, N) bool; ``final_obs[name]`` (T, N, C, D), rows valid where
    an episode was truncated; ``active[name]`` and ``left[name]`` (T, N, C) bool of groups whose
    agents leave: in the game before the step, gone after it.

    Attributes:
        policy: ``torch.nn.Module`` that learns; ``Run.policies`` shows it.
        metric_sums: (K,) float32 tensor: what ``update`` adds up to be logged. The loop reads it,
            then sets it to 0.
        bad: () float32 tensor: 0 until a loss or gradient is not finite, then 1: training stops
            with an error.
        learning_rate: Float, the rate that ``schedule`` has set last; it is logged.
    """

    policy: "torch.nn.Module"
    metric_sums: "torch.Tensor"
    bad: "torch.Tensor"
    learning_rate: float

    def check(self, groups: Sequence["Group"], num_envs: int) -> None:
        """Raise ``ParameterError`` if it could not learn; called before ``begin``, and of learners
        that are then thrown away.

        Nothing that fails here has begun, be it the last of many runs: what only ``begin`` and
        ``prepare`` find out comes later. It takes no memory.

        Args:
            groups: Those that it would play.
            num_envs: N, of all processes.
        """

    def prepare(self, rollout: "Rollout") -> None:
        """Take the memory that depends on all groups; called once, after ``begin`` of each.

        Refuses sizes that do not fit.
        """

    def rows_at_once(self, rollout: "Rollout") -> int:
        """Return the number of observations of its largest forward pass: it decides how many
        threads a CPU computes on.
        """
        return rollout.steps * rollout.batch.num_envs

    def schedule(self, step: int) -> None:
        """Write the settings as they are after ``step`` env-steps; called before each iteration,
        outside of the graph.
        """

    def update(self, rollout: "Rollout") -> None:
        """Learn from the rollout."""

    def losses(self, sums: Sequence[float]) -> dict[str, float]:
        """Return what is logged, a dictionary of floats by name.

        Args:
            sums: ``metric_sums`` of some iterations, a list of floats.
        """

    def tensors(self) -> dict[str, "torch.Tensor"]:
        """Return all tensors that its future depends on, by name, themselves and not copies: what a
        checkpoint holds.
        """

    def acting(self, greedy: bool) -> Player:
        """Return a ``Player`` that plays as the policy does at any moment from now on, without
        learning.

        ``cupydrive.playing.players.PolicyPlayer`` is one for any network (B, D) -> (parameters,
        value).

        Args:
            greedy: The likeliest actions instead of random ones.
        """


# ---- settings of policies ------------------------------------------------------------------------


@runtime_checkable
class PlayerSettings(Protocol):
    """Names a policy that does not learn, such as ``HeuristicPolicy()``; ``str(...)`` is what it is
    called.
    """

    def player(self, spec: "EnvSpec", group: "Group") -> Player:
        """Return the ``Player`` of one group; raises ``ParameterError`` if there is none for this
        environment.

        Args:
            spec: ``EnvSpec``.
            group: ``Group``.
        """


@runtime_checkable
class LearnerSettings(Protocol):
    """Settings of an algorithm, as ``PPO()``: a frozen dataclass whose fields JSON can hold."""

    @property
    def name(self) -> str:
        """Name of the algorithm."""

    @property
    def num_steps(self) -> int:
        """T, the same for all that learn together."""

    def learner(self) -> Learner:
        """Return the ``Learner`` of one policy; it is made after torch's generator has got the
        run's seed.
        """


PolicySettings = PlayerSettings | LearnerSettings


@runtime_checkable
class Policies(Protocol):
    """An environment together with the policy of each of its groups, as a ``Run`` is one.

    Attributes:
        spec: ``EnvSpec``.
        params: Its parameters.
        device: ``"cuda"`` or ``"cpu"``.
    """

    spec: "EnvSpec"
    params: "EnvParams"
    device: Literal["cuda", "cpu"]

    def frozen(self, group: str, greedy: bool = True) -> "PlayerSettings":
        """Return ``PlayerSettings`` that play the group of this name as it is played now."""


@runtime_checkable
class EnvParams(Hashable, Protocol):
    """Parameters of an environment: a frozen dataclass with a time limit."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def max_episode_steps(self) -> int:
        """Return the time limit in steps."""


# ---- where kernels run ---------------------------------------------------------------------------


@runtime_checkable
class Program(Protocol):
    """One compiled unit of kernels.

    Attributes:
        prints: Whether a kernel of it calls ``env.print``.
        cache_bytes: Of its ``struct Cache``, of which each environment has one; 0: it has none.
    """

    prints: bool
    cache_bytes: int

    def launch(self, kernel: str, call: "np.ndarray", count: int, work: int = 0) -> None:
        """Run a kernel for [0, ``count``), or queue it in the current stream.

        Args:
            kernel: Its name.
            call: The kernel's one argument, a NumPy structured scalar; it is copied before this
                returns.
            count: Environments, or rows.
            work: Elements that are touched; where threads are made for it, it says whether they
                pay.
        """


@runtime_checkable
class Executor(Protocol):
    """Where kernels run.

    Attributes:
        name: torch's name of the device: ``"cpu"`` or ``"cuda"``.
        xp: The array library, NumPy or CuPy.
        max_team: The most threads that may work on one environment.
        team_bytes: Memory near to one team: a thread's stack, or shared memory.
        layout_bytes: The part of it that layouts may fill.
        processors: How many teams may work at once.
        tries: Whether a user's new kernel should be tried in a process of its own first.
    """

    name: str
    xp: "ModuleType"
    max_team: int
    team_bytes: int
    layout_bytes: int
    processors: int
    tries: bool

    def layout(self, spec: "EnvSpec", params: EnvParams, num_envs: int = 1) -> "Layout":
        """Return the ``Layout`` of threads that is fast for ``num_envs`` copies; every layout gives
        the same bits.
        """

    def load(self, spec: "EnvSpec", params: EnvParams, layout: "Layout | None" = None) -> Program:
        """Return the ``Program`` of an environment, compiled or from a cache; its own one if it
        brings one.
        """

    def build(self, unit: "Unit") -> Program:
        """Return the ``Program`` of any ``Unit``."""

    def resident_teams(self, program: Program, kernel: str) -> int:
        """Return how many teams may work on a kernel of ``program`` at once, by what they need of
        memory and registers.
        """

    def allocate(self, shape: tuple[int, ...], dtype: "DTypeLike") -> Array:
        """Return an array of zeros; structs may be bytes (*shape, itemsize)."""

    def constant(self, array: "np.ndarray", digest: str) -> Array:
        """Return the one copy on this device of a read-only NumPy array, known by the hash of what
        it holds.

        It is kept as long as somebody holds it.
        """

    def pointer(self, array: Array) -> int:
        """Return the address of an array, for a member of ``call``."""

    def put(self, array: Array, values: "ArrayLike") -> None:
        """Write NumPy ``values`` into ``array``."""

    def get(self, array: Array) -> "np.ndarray":
        """Return a NumPy copy of ``array``; waits for the device."""

    def synchronise(self) -> None:
        """Return when everything queued is done."""

    def capturing(self) -> bool:
        """Return whether launches are written into a graph instead of run."""

    def free_bytes(self) -> int:
        """Return the bytes of memory that are free."""

    def describe(self) -> str:
        """Return one line about the device."""
