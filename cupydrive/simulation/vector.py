"""VectorEnv: vectorized environments whose torch tensors share the memory of the kernel.

Letters: N environments, C agents of a group, D observation entries, H action heads, T steps.
Environments with one group have tensors. Environments with several groups have dictionaries by
group name. A single agent has no agent axis.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from cupydrive import envs
from cupydrive.errors import OrderError, ParameterError
from cupydrive.executors.interop import as_numpy, as_torch, member, torch_stream
from cupydrive.inputs.arguments import checked_bool, checked_instance, checked_int
from cupydrive.inputs.names import NotCopied
from cupydrive.protocols import Array, PlayerSettings
from cupydrive.simulation.actions import ActionReader
from cupydrive.simulation.batch import CLOCK, Batch, is_packed
from cupydrive.simulation.snapshots import Snapshot, StateViews, checked_values
from cupydrive.simulation.trajectory import Trajectory
from cupydrive.spec import Group

if TYPE_CHECKING:
    from cupydrive.rendering.viewer import Viewer
    from cupydrive.simulation.buffers import Buffers
    from cupydrive.simulation.trajectory import StepResults, Tensors


class VectorEnv(NotCopied):
    """Vectorized environments with Gymnasium's API and autoreset in the step that ends an episode.

    Returned tensors are views of buffers that kernels write, and later calls overwrite them. Clone
    the tensors that you keep. Observations and action masks have two buffers, which steps use in
    turn, so those before a step stay valid until the step after it. All other tensors have one
    buffer, which the next step overwrites.

    Args:
        batch: Environments of one device. ``make`` creates them.
        validate: Check the values of actions before each step, which synchronizes.

    Examples:
        >>> import torch
        >>> import cupydrive as cd
        >>> env = cd.make("cartpole", num_envs=64, device="cpu")
        >>> obs, info = env.reset(seed=0)
        >>> action = torch.zeros(64, dtype=torch.int32)
        >>> obs, reward, terminated, truncated, info = env.step(action)
        >>> reward.shape
        torch.Size([64])
    """

    autoreset_mode = AutoresetMode.SAME_STEP
    metadata = {"autoreset_mode": autoreset_mode}  # noqa: RUF012 - Gymnasium's form

    def __init__(self, batch: Batch, validate: bool = True) -> None:
        self.batch, self.validate = batch, validate
        self.spec, self.params, self.groups = batch.spec, batch.params, batch.groups
        self._num_envs, self.device = batch.num_envs, batch.executor.name
        self.obs_dtype = "bfloat16" if batch.layout.half_obs else "float32"
        self.seed: int | None = None
        self._ready, self._closed = False, False
        self._single = len(self.groups) == 1
        self._squeeze = self._single and self.groups[0].count == 1
        self._state = StateViews(self.spec.name)
        self._make_views()
        self._read = ActionReader(batch, self._single, self._squeeze)
        self._held: list[torch.Tensor] = []
        self.print_env = 0

    @property
    def print_env(self) -> int | None:
        """Index of the environment whose ``env.print(...)`` lines are shown after each call.

        None shows no lines. On a GPU each call then synchronizes. Kernels that do not print have no
        overhead.
        """
        return self._print_env

    @print_env.setter
    def print_env(self, env: int | None) -> None:
        if env is not None:
            env = checked_int(self.spec.name, "print_env", env, 0, self.num_envs - 1)
        self._print_env = env
        if self.batch.printer is not None:
            self.batch.printer.choose(env)

    # ---- views ----

    def _view(self, array: Array) -> torch.Tensor:
        """Return a torch view of an array."""
        return as_torch(array, self._moved)

    def _make_views(self) -> None:
        """Create all views.

        Views must be created again after torch has moved their memory.
        """
        self._moved: list[bool] = []  # non-empty after torch has moved the memory of a view
        self._results = [self._views(buffers) for buffers in self.batch.step_buffers]
        self._trajectory: tuple[Buffers, Trajectory] | None = None
        dtype, state = self.batch.state_dtype, self.batch.state
        self._elapsed = self._view(member(self.batch.clock, CLOCK, "elapsed"))
        self._state.renew(
            {name: self._view(member(state, dtype, name)) for name in dtype.names or ()}
        )

    def _renew_moved(self) -> None:
        if self._moved:
            self._make_views()

    def _by_group(
        self,
        arrays: Mapping[str, Array] | None,
        axis: int,
        action: bool = False,
        obs: bool = False,
    ) -> Tensors:
        """Return torch views of arrays by group.

        The result is a tensor for a single group, without the agent axis for a single agent.

        Args:
            arrays: Arrays by group.
            axis: Axis of the agents.
            action: The arrays are actions.
            obs: The arrays are observations. They are reshaped unless they are packed bits.
        """
        views = {}
        for g in self.groups:
            if arrays and g.name in arrays:
                view = self._view(arrays[g.name])
                view = view.view(torch.bfloat16) if view.dtype == torch.uint16 else view
                if action and g.heads == 1 and not g.continuous:
                    view = view.squeeze(-1)
                if obs and len(g.obs_shape) > 1 and not is_packed(g, arrays[g.name]):
                    view = view.unflatten(-1, g.obs_shape)
                # A detached view does not keep its base tensor alive, and `_moved` also detects
                # obs.data = ...
                views[g.name] = (view.squeeze(axis) if self._squeeze else view).detach()
        return views[self.groups[0].name] if self._single else views

    def _episode(self, buffers: Buffers, axis: int) -> dict[str, Tensors]:
        record = {
            "return": self._by_group(buffers.episode_return, axis),
            "length": self._view(buffers.episode_length),
        }
        for name in self.spec.metrics:
            lead = buffers.episode_length.shape
            flat = buffers.episode_metrics.reshape(-1, *buffers.episode_metrics.shape[len(lead) :])
            view = member(flat, self.batch.metrics_dtype, name)
            record[name] = self._view(view).view(lead).detach()
        return record

    def _views(self, buffers: Buffers) -> StepResults:
        """Return the results of one step, a tuple of permanent views."""
        info = {
            "final_obs": self._by_group(buffers.final_obs, 1, obs=True),
            "episode": self._episode(buffers, 1),
        }
        for name in ("action_mask", "critic_obs", "final_critic_obs", "active", "left"):
            if arrays := getattr(buffers, name):
                info[name] = {key: self._view(array) for key, array in arrays.items()}
        flags = self._view(buffers.terminated), self._view(buffers.truncated)
        obs = self._by_group(buffers.obs, 1, obs=True)
        return (obs, self._by_group(buffers.reward, 1), *flags, info)

    @property
    def num_envs(self) -> int:
        """Number of environments, N."""
        return self._num_envs

    @property
    def state(self) -> StateViews:
        """Writable views of the fields of ``struct State`` by name, (N, *shape of the field).

        An unknown name raises ``KeyError``. ``env.state["x"][:] = 0`` takes effect in the next
        step. ``set_state`` also validates the values and updates the observations.
        """
        self._check_open("state")
        self._renew_moved()
        return self._state

    @property
    def elapsed(self) -> torch.Tensor:
        """(N,) int32 view: steps since each episode began."""
        self._check_open("elapsed")
        self._renew_moved()
        return self._elapsed

    @elapsed.setter
    def elapsed(self, values: torch.Tensor) -> None:
        if values is not self.elapsed:  # `env.elapsed += 1` assigns the view it has written into
            raise ParameterError(
                f"{self.spec.name}: env.elapsed = ... would change no environment. Write into it: "
                "env.elapsed[:] = ..., or call env.set_state(elapsed=...), which also observes"
            )

    # ---- spaces ----

    def _spaces(self, pick: Callable[[Group], Space]) -> Space | dict[str, Space]:
        spaces = {g.name: pick(g) for g in self.groups}
        return spaces[self.groups[0].name] if self._single else spaces

    @cached_property
    def single_observation_space(self) -> Space | dict[str, Space]:
        """Observation space of one agent, by group if there are several groups."""
        return self._spaces(lambda g: g.observation_space)

    @cached_property
    def single_action_space(self) -> Space | dict[str, Space]:
        """Action space of one agent, by group if there are several groups."""
        return self._spaces(lambda g: g.action_space)

    def _batched(self, space: Space, g: Group) -> Space:
        return batch_space(space if self._squeeze else batch_space(space, g.count), self.num_envs)

    @cached_property
    def observation_space(self) -> Space | dict[str, Space]:
        """Space of the observations of all environments."""
        return self._spaces(lambda g: self._batched(g.observation_space, g))

    @cached_property
    def action_space(self) -> Space | dict[str, Space]:
        """Space of the actions of all environments."""
        return self._spaces(lambda g: self._batched(g.action_space, g))

    # ---- calls ----

    def _stream(self) -> AbstractContextManager:
        return torch_stream() if self.device == "cuda" else nullcontext()

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise OrderError(f"{call} after close(). Make a new environment")

    def _check_ready(self, call: str) -> None:
        self._check_open(call)
        if not self._ready:
            raise OrderError(f"{call} before reset(). Call reset(seed=...) first")

    def reset(
        self, seed: int | None = None, mask: ArrayLike | torch.Tensor | None = None
    ) -> tuple[Tensors, dict]:
        """Begin new episodes and return ``(obs, info)``.

        Args:
            seed: Random seed in [0, 2**64), which restarts all random streams. If the first reset
                has none, it draws one and stores it in ``env.seed``.
            mask: (N,) bool, environments to reset. The others continue.

        Returns:
            Observations, by group if there are several groups, and ``info``, as ``step`` returns
            them.

        Raises:
            ParameterError: If the seed or the mask is wrong, or both are given.
            OrderError: After ``close``, or with a mask before the first reset.
        """
        self._check_open("reset()")
        if mask is not None:
            if seed is not None:
                raise ParameterError(
                    "reset: got seed and mask, expected one of them, since a seed restarts the "
                    "random streams of all environments"
                )
            if not self._ready:
                raise OrderError(
                    "reset(mask=...) before the first reset(). Call reset() once for all "
                    "environments"
                )
            mask = self._checked_mask(mask)
        elif seed is None and self.seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        if seed is not None:
            self.seed = checked_int(self.spec.name, "seed", seed, 0, 2**64 - 1)
        with self._stream():
            self.batch.reset(seed, mask)
        self._ready = True
        return self._shown()

    def _checked_mask(self, mask: ArrayLike | torch.Tensor) -> Array:
        if not isinstance(mask, torch.Tensor) or mask.device.type != self.device:
            array = as_numpy(self.spec.name, "mask", mask)
            mask = torch.from_numpy(array.copy())
        if (
            mask.dtype != torch.bool
            or mask.shape != (self.num_envs,)
            or mask.layout != torch.strided
        ):
            raise ParameterError(
                f"mask is {mask.dtype} {tuple(mask.shape)}, expected torch.bool ({self.num_envs},)"
            )
        if self.device == "cpu":
            return mask.numpy()
        return self.batch.executor.xp.from_dlpack(mask.cuda().contiguous())

    def step(self, action: Tensors, *, autoreset: bool = True) -> StepResults:
        """Step all environments.

        Args:
            action: Tensor on the environment's device, by group if there are several groups. int32
                for Discrete and MultiDiscrete. float32 for a Box, and for a Tuple with a Box, as
                all choices followed by all Box values. (N, C) for one discrete head, otherwise
                (N, C, H). Tensors aligned to 16 bytes, such as new ones, are read in place. Others
                are copied into a buffer.
            autoreset: Begin a new episode in the step that ends one. Otherwise ``obs`` is the last
                observation of the episode, and you must call ``reset(mask=...)`` before the next
                step.

        Returns:
            ``(obs, reward, terminated, truncated, info)``. ``obs`` is (N, C, *obs_shape) and
            ``reward`` is (N, C) float32, by group if there are several groups. A single group with
            one agent has no axis C. ``terminated`` and ``truncated`` are (N,) bool.
            ``info["final_obs"]`` has the observations before the autoreset, and
            ``info["episode"]`` has ``"return"``, ``"length"`` and the metrics. Both are valid only
            where an episode has ended. ``info`` also has ``"action_mask"``, ``"critic_obs"``,
            ``"active"`` and ``"left"`` of the groups that define them, by group.

        Raises:
            ActionError: If a shape, dtype, device or group is wrong, or with ``validate=True`` a
                value. The environments are unchanged then.
            OrderError: Before the first reset, or after ``close``.

        Examples:
            >>> import torch
            >>> import cupydrive as cd
            >>> env = cd.make("tag_grid", num_envs=8, device="cpu")
            >>> obs, info = env.reset(seed=0)
            >>> action = {
            ...     g.name: torch.zeros(8, *g.action_shape, dtype=torch.int32) for g in env.groups
            ... }
            >>> obs, reward, terminated, truncated, info = env.step(action)
            >>> terminated.shape, sorted(reward) == sorted(g.name for g in env.groups)
            (torch.Size([8]), True)
        """
        self._check_ready("step()")
        autoreset = (
            autoreset if autoreset is True else checked_bool(self.spec.name, "autoreset", autoreset)
        )
        tensors = self._read(action, self.validate)
        self._held = tensors  # the launch reads them asynchronously
        with self._stream():
            self.batch.step([t.data_ptr() for t in tensors], autoreset)
        return self.step_results

    def rollout(self, steps: int, final_obs: bool = True) -> Trajectory:
        """Take ``steps`` uniformly random steps in one launch.

        Args:
            steps: Number of steps.
            final_obs: Store the observations before each autoreset. False saves their memory.

        Returns:
            A ``Trajectory``. The next rollout overwrites its tensors.

        Raises:
            ParameterError: If an argument is wrong.
            MemoryLimitError: If the trajectory does not fit into memory.
            OrderError: Before the first reset, or after ``close``.

        Examples:
            >>> import cupydrive as cd
            >>> env = cd.make("cartpole", num_envs=64, device="cpu")
            >>> obs, info = env.reset(seed=0)
            >>> trajectory = env.rollout(100)
            >>> trajectory.reward.shape
            torch.Size([100, 64])
        """
        self._check_ready("rollout()")
        steps = checked_int(self.spec.name, "steps", steps)
        final_obs = checked_bool(self.spec.name, "final_obs", final_obs)
        with self._stream():
            buffers = self.batch.rollout(steps, final_obs)
        self._renew_moved()
        if self._trajectory is None or self._trajectory[0] is not buffers:
            self._make_views()  # frees the views of another rollout without a move by torch
            self._trajectory = buffers, self._trajectory_of(buffers)
        trajectory = self._trajectory[1]
        # A new object, since the previous one may cache unpacked observations.
        return replace(trajectory) if any(g.bits for g in self.groups) else trajectory

    def _trajectory_of(self, buffers: Buffers) -> Trajectory:
        return Trajectory(
            groups=tuple(self.groups),
            stored_obs=self._by_group(buffers.obs, 2, obs=True),
            action=self._by_group(buffers.action, 2, action=True),
            reward=self._by_group(buffers.reward, 2),
            terminated=self._view(buffers.terminated),
            truncated=self._view(buffers.truncated),
            stored_final_obs=None
            if buffers.final_obs is None
            else self._by_group(buffers.final_obs, 2, obs=True),
            episode=self._episode(buffers, 2),
            action_mask={name: self._view(array) for name, array in buffers.action_mask.items()},
            active={name: self._view(array) for name, array in buffers.active.items()},
            left={name: self._view(array) for name, array in buffers.left.items()},
        )

    # ---- snapshots and states ----

    def snapshot(self) -> Snapshot:
        """Return a ``Snapshot``. ``restore`` continues from it bit for bit, on any device."""
        self._check_ready("snapshot()")
        with self._stream():
            return Snapshot.of(self.batch)

    def restore(self, snapshot: Snapshot) -> tuple[Tensors, dict]:
        """Restore a ``Snapshot`` of an environment with the same parameters and size.

        Returns:
            ``(obs, info)``.

        Raises:
            ParameterError: If the snapshot does not fit. Nothing has changed then.
        """
        self._check_open("restore()")
        checked_instance(
            self.spec.name,
            "snapshot",
            snapshot,
            Snapshot,
            "a Snapshot, as env.snapshot() returns it",
        )
        with self._stream():
            snapshot.restore(self.batch)
        self.seed, self._ready = snapshot.seed, True
        return self._shown()

    def set_state(
        self, *, elapsed: ArrayLike | torch.Tensor | None = None, **fields: ArrayLike | torch.Tensor
    ) -> tuple[Tensors, dict]:
        """Write members of ``struct State`` and update the observations.

        This is for tests and teaching. Episodes, their returns and the random streams continue.

        Args:
            elapsed: One int or (N,) ints below ``max_episode_steps``, steps since the episodes
                began.
            **fields: Finite values that broadcast to (N, *shape of the member).

        Returns:
            ``(obs, info)``.

        Raises:
            ParameterError: If a name, shape, type or value is wrong. Nothing has changed then.
        """
        self._check_ready("set_state()")
        values, elapsed = checked_values(self, elapsed, **fields)
        with self._stream():
            kept = self.batch.get_state()
            for name, array in values.items():
                kept["state"][name] = array
            if elapsed is not None:
                kept["clock"]["elapsed"] = elapsed
            self.batch.set_state(kept)
            self.batch.observe()
        return self._shown()

    @property
    def step_results(self) -> StepResults:
        """The views that the last ``step`` returned."""
        self._renew_moved()
        return self._results[self.batch.now]

    def _shown(self) -> tuple[Tensors, dict]:
        return self.step_results[0], self.step_results[4]

    # ---- inspection and editing ----

    def reload(self) -> bool:
        """Compile the changed source of the environment: its file, cell or text.

        If ``State``, groups and parameters keep their layout, tensors and state are unchanged.
        Otherwise memory is allocated again, and you must call ``reset``. Parameters keep their
        values, even if their defaults have changed.

        Returns:
            Whether the episodes continue.

        Raises:
            CompileError: If it does not compile. The environment is unchanged then.
        """
        self._check_open("reload()")
        spec = envs.reload(self.spec)
        known = {f.name for f in fields(spec.params)}
        params = spec.make_params(
            **{key: value for key, value in asdict(self.params).items() if key in known}
        )
        if self.batch.exchange(spec, params):
            self.spec, self.params, self.groups = spec, params, self.batch.groups
            for kind in ("observation_space", "action_space"):
                for name in (kind, f"single_{kind}"):
                    vars(self).pop(name, None)  # cached for the groups before
            self.print_env = self._print_env
            return True
        old = self.batch
        self.close()
        made = Batch(
            spec, old.num_envs, params, old.executor, old.first_env, obs_dtype=self.obs_dtype
        )
        VectorEnv.__init__(self, made, self.validate)
        return False

    def view(
        self,
        policies: str | Mapping[str, PlayerSettings] | None = None,
        *,
        seed: int | None = None,
        **options: Any,
    ) -> Viewer:
        """Return a notebook viewer that shows episodes of new, equal environments step by step.

        Args:
            policies: Policies, as in ``cupydrive.view``.
            seed: Random seed. Defaults to this environment's.
            **options: Further options of ``cupydrive.view``.
        """
        seed = (10_000 if self.seed is None else self.seed) if seed is None else seed
        from cupydrive.rendering.viewer import view

        return view(self, policies, seed=seed, **options)

    def _repr_html_(self) -> str:
        from cupydrive.terminal.progress import preformatted

        shown = preformatted(repr(self))
        if self.spec.display.draw is None or self._closed or not self._ready:
            return shown
        from cupydrive.drawing.frames import still

        first = self.batch.first_states(4)
        return shown + still(self.spec, self.params, first["states"], first["elapsed"])

    def close(self) -> None:
        """Free the memory. Later calls raise ``OrderError``."""
        if not self._closed:
            self.batch.executor.synchronize()
        self._closed = True
        for name in ("batch", "_results", "_trajectory", "_held", "_state", "_elapsed"):
            vars(self).pop(name, None)

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = f"{self.device}{', closed' * self._closed}"
        lines = [f"<VectorEnv {self.spec.name}: {self.num_envs:,} environments on {where}"]
        for g in self.groups:
            lines.append(
                f"  {g.name}: {g.count} x obs {g.obs_shape} "
                f"{self.obs_dtype if g.obs_dtype == 'float32' else g.obs_dtype}, action "
                f"{g.action_space}"
            )
        end = "ends the task" if self.spec.time_limit == "terminates" else "truncates"
        return "\n".join([*lines, f"  {self.params.max_episode_steps} steps at most, which {end}>"])
