"""Protocols of exchangeable parts: executors, programs, players, learners and settings.

Any class with the members of a protocol implements it, and ``isinstance`` checks only that. A class
that inherits from a protocol gets default methods that do nothing. For an algorithm of your own,
write a ``LearnerSettings`` whose ``learner()`` returns a ``Learner``, and pass it to
``cupydrive.train``. For a policy that does not learn, write a ``PlayerSettings`` whose
``player(...)`` returns a ``Player``.

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

Array: TypeAlias = "np.ndarray | cupy.ndarray"  # array in the memory of an executor
# Value of an environment's parameter.
ParamValue: TypeAlias = "bool | int | float | str | Sequence[float] | np.ndarray"

# ---- players -------------------------------------------------------------------------------------


@runtime_checkable
class Player(Protocol):
    """Player that chooses the actions of one group, or of several groups that share it.

    A player reads and writes the tensors of a ``Rollout``. Time is their first axis. They are on
    ``rollout.device``, and every rollout overwrites them.

    ``rollout.obs[name]``: (T + 1, N, C, D) float32 by name of the group. Row t is the observation
    of step t. ``rollout.action_mask[name]``: (T + 1, N, C, choices) bool, for groups with masks.
    ``rollout.mask(group, t)`` is one row of it. ``rollout.action[name]``: (T, N, C, H) int32, or
    float32 for a Box. ``act`` writes row t.
    """

    def begin(self, rollout: "Rollout", group: "Group") -> None:
        """Prepare to play a group.

        It is called once for each group of the player, before all other methods.

        Args:
            rollout: Rollout with the tensors that the player reads and writes.
            group: ``Group`` of the environment.
        """

    def act(self, rollout: "Rollout", t: int) -> None:
        """Write the actions of one step for all groups of the player.

        The work must be queued without synchronizing with the device.

        Args:
            rollout: Rollout, as passed to ``begin``.
            t: Step, the row of its tensors, in [0, T).
        """

    def module(self, rollout: "Rollout", group: "Group") -> "Module":
        """Return the player's torch module for a group.

        ``Run.act``, ``Run.policy`` and ``Run.export`` use it. It is a ``DiscretePolicy``, a
        ``BoxPolicy`` or a ``DeterministicPolicy`` of ``cupydrive.playing.inference``, made from a
        network (B, D) -> (parameters, value).

        Args:
            rollout: Rollout, as passed to ``begin``.
            group: ``Group`` that the player plays.

        Raises:
            ParameterError: If the actions are not a function of observations.
        """


@runtime_checkable
class Learner(Player, Protocol):
    """Player that learns from the T steps that it has just played.

    An iteration calls ``act`` for t = 0, ..., T - 1, then ``update``. ``train`` may capture an
    iteration in a CUDA graph. ``cuda_graph=True`` is the default on a GPU. All tensors are then
    allocated before the capture and changed in place, and the host reads only ``metric_sums`` and
    ``bad``.

    In addition to the tensors of a ``Player``, a rollout has ``reward[name]``, (T, N, C) float32,
    ``terminated`` and ``truncated``, (T, N) bool, and ``final_obs[name]``, (T, N, C, D), valid
    where an episode was truncated. Groups whose agents leave also have ``active[name]`` and
    ``left[name]``, (T, N, C) bool: in the game before the step, and left in this step.

    Attributes:
        policy: ``torch.nn.Module`` that learns. ``Run.policies`` returns it.
        metric_sums: (K,) float32 tensor, sums of the metrics to log, which ``update`` increments.
            The loop reads it, then sets it to 0.
        bad: () float32 tensor, 1 after a loss or gradient was non-finite, otherwise 0. Training
            stops with an error at 1.
        learning_rate: Learning rate that ``schedule`` has set last. It is logged.
    """

    policy: "torch.nn.Module"
    metric_sums: "torch.Tensor"
    bad: "torch.Tensor"
    learning_rate: float

    def check(self, groups: Sequence["Group"], num_envs: int) -> None:
        """Raise ``ParameterError`` if the learner cannot learn with these groups.

        It is called before ``begin``, also for learners that are never used. Errors that it raises
        come before any run has begun. It must not allocate memory. ``begin`` and ``prepare`` raise
        the remaining errors.

        Args:
            groups: Groups that the learner would play.
            num_envs: N, number of environments of all processes.
        """

    def prepare(self, rollout: "Rollout") -> None:
        """Allocate the memory that depends on all groups.

        It is called once, after ``begin`` of each group. It raises an error for sizes that do not
        fit.
        """

    def rows_at_once(self, rollout: "Rollout") -> int:
        """Return the number of observations of the largest forward pass.

        It determines the number of CPU threads.
        """
        return rollout.steps * rollout.batch.num_envs

    def schedule(self, step: int) -> None:
        """Write the scheduled settings after ``step`` environment steps.

        It is called before each iteration, outside the CUDA graph.
        """

    def update(self, rollout: "Rollout") -> None:
        """Learn from the rollout."""

    def losses(self, sums: Sequence[float]) -> dict[str, float]:
        """Return the metrics to log by name.

        Args:
            sums: ``metric_sums`` of several iterations.
        """

    def tensors(self) -> dict[str, "torch.Tensor"]:
        """Return the tensors of a checkpoint by name.

        They are all tensors that further training depends on, and not copies.
        """

    def acting(self, greedy: bool) -> Player:
        """Return a ``Player`` that follows the current policy without learning.

        It must use the current weights at every step.
        ``cupydrive.playing.players.PolicyPlayer`` implements it for any network that maps
        observations (B, D) to the parameters of a distribution (B, P) and values (B,).

        Args:
            greedy: Take the most likely actions instead of random ones.
        """


# ---- settings of policies ------------------------------------------------------------------------


@runtime_checkable
class PlayerSettings(Protocol):
    """Settings of a policy that does not learn, such as ``HeuristicPolicy()``.

    ``str(...)`` is the name of the policy.
    """

    def player(self, spec: "EnvSpec", group: "Group") -> Player:
        """Return the ``Player`` of one group.

        Args:
            spec: ``EnvSpec`` of the environment.
            group: ``Group`` of the environment.

        Raises:
            ParameterError: If there is no such player for this environment.
        """


@runtime_checkable
class LearnerSettings(Protocol):
    """Settings of an algorithm, such as ``PPO()``: a frozen dataclass with fields valid in JSON."""

    @property
    def name(self) -> str:
        """Name of the algorithm."""

    @property
    def num_steps(self) -> int:
        """Rollout length T, equal for all policies that are trained jointly."""

    def learner(self) -> Learner:
        """Return the ``Learner`` of one policy.

        Torch's generator has the run's seed when it is called.
        """


PolicySettings = PlayerSettings | LearnerSettings


@runtime_checkable
class Policies(Protocol):
    """An environment together with the policy of each of its groups, such as a ``Run``.

    Attributes:
        spec: ``EnvSpec``.
        params: Its parameters.
        device: ``"cuda"`` or ``"cpu"``.
    """

    spec: "EnvSpec"
    params: "EnvParams"
    device: Literal["cuda", "cpu"]

    def frozen(self, group: str, greedy: bool = True) -> "PlayerSettings":
        """Return ``PlayerSettings`` of the current policy of a group.

        Args:
            group: Name of the group.
            greedy: Take the most likely actions instead of random ones.
        """


@runtime_checkable
class EnvParams(Hashable, Protocol):
    """Parameters of an environment: a frozen dataclass with a time limit."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def max_episode_steps(self) -> int:
        """Time limit in steps."""


# ---- executors -----------------------------------------------------------------------------------


@runtime_checkable
class Program(Protocol):
    """One compiled unit of kernels.

    Attributes:
        prints: Whether one of its kernels calls ``env.print``.
        cache_bytes: Size of its ``struct Cache``, one per environment. 0 if it has none.
    """

    prints: bool
    cache_bytes: int

    def launch(self, kernel: str, call: "np.ndarray", count: int, work: int = 0) -> None:
        """Run a kernel for [0, ``count``), or queue it in the current stream.

        Args:
            kernel: Name of the kernel.
            call: Its only argument, a NumPy structured scalar, which is copied before this returns.
            count: Number of environments or rows.
            work: Number of elements that it accesses. The CPU uses additional threads only if it is
                large enough.
        """


@runtime_checkable
class Executor(Protocol):
    """Device that runs kernels.

    Attributes:
        name: torch's name of the device: ``"cpu"`` or ``"cuda"``.
        xp: Array library, NumPy or CuPy.
        max_team: Maximum number of threads that work on one environment.
        team_bytes: Fast memory of one thread team: a thread's stack, or shared memory.
        layout_bytes: Part of ``team_bytes`` that layouts may use.
        processors: Maximum number of teams that work at the same time.
        tries: Whether a new custom kernel should be tried in a separate process first.
    """

    name: str
    xp: "ModuleType"
    max_team: int
    team_bytes: int
    layout_bytes: int
    processors: int
    tries: bool

    def layout(self, spec: "EnvSpec", params: EnvParams, num_envs: int = 1) -> "Layout":
        """Return a fast ``Layout`` of threads.

        Every layout gives bitwise identical results.

        Args:
            spec: ``EnvSpec`` of the environment.
            params: Parameters of the environment.
            num_envs: Number of environments.
        """

    def load(self, spec: "EnvSpec", params: EnvParams, layout: "Layout | None" = None) -> Program:
        """Return the ``Program`` of an environment, compiled or from a cache.

        An environment may have its own program.

        Args:
            spec: ``EnvSpec`` of the environment.
            params: Parameters of the environment.
            layout: Layout of threads. Defaults to that of ``layout``.
        """

    def build(self, unit: "Unit") -> Program:
        """Return the ``Program`` of a ``Unit``."""

    def resident_teams(self, program: Program, kernel: str) -> int:
        """Return the maximum number of teams that run a kernel at the same time.

        The kernel's memory and registers limit the number.

        Args:
            program: Program of the kernel.
            kernel: Name of the kernel.
        """

    def allocate(self, shape: tuple[int, ...], dtype: "DTypeLike") -> Array:
        """Return an array of zeros.

        Args:
            shape: Shape of the array.
            dtype: NumPy dtype. An array of structs may be bytes, (*shape, itemsize).
        """

    def constant(self, array: "np.ndarray", digest: str) -> Array:
        """Return the device's only copy of a read-only NumPy array.

        The copy is freed after its last reference.

        Args:
            array: Read-only NumPy array.
            digest: Hash of the content, which identifies the copy.
        """

    def pointer(self, array: Array) -> int:
        """Return the address of an array, for a member of ``call``."""

    def put(self, array: Array, values: "ArrayLike") -> None:
        """Write into an array.

        Args:
            array: Array of the device.
            values: NumPy values that broadcast to its shape.
        """

    def get(self, array: Array) -> "np.ndarray":
        """Return a NumPy copy of ``array``. This synchronizes."""

    def synchronize(self) -> None:
        """Wait until all queued work is done."""

    def capturing(self) -> bool:
        """Return whether launches are captured in a CUDA graph instead of run."""

    def free_bytes(self) -> int:
        """Return the number of free bytes of memory."""

    def describe(self) -> str:
        """Describe the device in one line."""
