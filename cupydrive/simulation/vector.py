"""VectorEnv: N copies of one environment, seen as torch tensors that are the kernel's own memory.

Letters: N environments, C agents of a group, D observation entries, H action heads, T steps.
Environments with one group give tensors, several groups give dictionaries by group name; a single
agent has no agent axis.
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
    """N copies of one environment with Gymnasium's names and autoreset in the same step.

    All tensors are views, made once, of the memory that kernels write: they change with the next
    call. ``obs`` alone is double-buffered: the observation before and after a step exist side by
    side. Copy what you keep.
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
        """The environment, from 0, whose ``env.print(...)`` lines in the kernel are shown after
        each call; None: none.

        On a GPU each call then waits for the device. Kernels that do not print cost nothing.
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
        """Make all views.

        Where torch has moved the memory of one, it would show what was there before.
        """
        self._moved: list[bool] = []  # no longer empty once torch has moved the memory of a view
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
        """Return torch views of arrays by group: a tensor for one group, without the agent axis for
        one agent.

        Args:
            arrays: By group.
            axis: Of the agents.
            action: They are actions.
            obs: They are observations, which get their shape unless they are bits.
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
                # Detached, it does not keep the tensor that it is a view of, and `_moved` hears of
                # obs.data = ..., too.
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
        """Return the results of one step as a tuple made once."""
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
        """N."""
        return self._num_envs

    @property
    def state(self) -> StateViews:
        """Writable views of ``struct State`` by member, (N, *shape of the member); another name is
        a ``KeyError``.

        ``env.state["x"][:] = 0`` writes, and the next step sees it; ``set_state`` also checks what
        is written, and observes.
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
        if values is not self.elapsed:  # `env.elapsed += 1` puts back what it has written into
            raise ParameterError(
                f"{self.spec.name}: env.elapsed = ... would change no environment. Write into it: "
                "env.elapsed[:] = ...; or call env.set_state(elapsed=...), which also observes"
            )

    # ---- spaces ----

    def _spaces(self, pick: Callable[[Group], Space]) -> Space | dict[str, Space]:
        spaces = {g.name: pick(g) for g in self.groups}
        return spaces[self.groups[0].name] if self._single else spaces

    @cached_property
    def single_observation_space(self) -> Space | dict[str, Space]:
        """One agent's observation space; by group if there are several."""
        return self._spaces(lambda g: g.observation_space)

    @cached_property
    def single_action_space(self) -> Space | dict[str, Space]:
        """One agent's action space; by group if there are several."""
        return self._spaces(lambda g: g.action_space)

    def _batched(self, space: Space, g: Group) -> Space:
        return batch_space(space if self._squeeze else batch_space(space, g.count), self.num_envs)

    @cached_property
    def observation_space(self) -> Space | dict[str, Space]:
        """The space of ``obs``."""
        return self._spaces(lambda g: self._batched(g.observation_space, g))

    @cached_property
    def action_space(self) -> Space | dict[str, Space]:
        """The space of ``action``."""
        return self._spaces(lambda g: self._batched(g.action_space, g))

    # ---- calls ----

    def _stream(self) -> AbstractContextManager:
        return torch_stream() if self.device == "cuda" else nullcontext()

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise OrderError(f"{call} after close(); make a new environment")

    def _check_ready(self, call: str) -> None:
        self._check_open(call)
        if not self._ready:
            raise OrderError(f"{call} before reset(); call reset(seed=...) first")

    def reset(
        self, seed: int | None = None, mask: ArrayLike | torch.Tensor | None = None
    ) -> tuple[Tensors, dict]:
        """Begin new episodes and return ``(obs, info)``.

        Args:
            seed: Int in [0, 2**64); restarts all random streams. The first reset without one draws
                it and keeps it as ``env.seed``.
            mask: (N,) bool, the environments to reset; the others go on.

        Raises:
            ParameterError: If the seed or the mask is wrong, or both are given.
        """
        self._check_open("reset()")
        if mask is not None:
            if seed is not None:
                raise ParameterError(
                    "reset(seed, mask): a seed restarts the streams of all; pass one of the two"
                )
            if not self._ready:
                raise OrderError(
                    "reset(mask=...) before the first reset(); call reset() once for all "
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
                f"mask is {mask.dtype} {tuple(mask.shape)}; it must be torch.bool "
                f"({self.num_envs},)"
            )
        if self.device == "cpu":
            return mask.numpy()
        return self.batch.executor.xp.from_dlpack(mask.cuda().contiguous())

    def step(self, action: Tensors, *, autoreset: bool = True) -> StepResults:
        """Step all environments; return ``(obs, reward, terminated, truncated, info)``.

        Args:
            action: int32 (Discrete, MultiDiscrete) or float32 (Box, and a Tuple with a Box: all
                choices, then all numbers) on the environment's device, by group if there are
                several: (N, C) for one discrete head, else (N, C, H). Such
                tensors are read in place if they begin at a multiple of 16 bytes, as new ones do;
                others of the same kind are copied into a buffer kept for them.
            autoreset: Begin a new episode where one ends. Without it, ``obs`` is the last of the
                episode; then call ``reset(mask=...)`` before the next step.

        Raises:
            ActionError: If shape, dtype, device, group or (``validate=True``) value is wrong;
                nothing has changed then.
            OrderError: Before the first reset, or after ``close``.
        """
        self._check_ready("step()")
        autoreset = (
            autoreset if autoreset is True else checked_bool(self.spec.name, "autoreset", autoreset)
        )
        tensors = self._read(action, self.validate)
        self._held = tensors  # the launch reads them after this call has returned
        with self._stream():
            self.batch.step([t.data_ptr() for t in tensors], autoreset)
        return self.step_results

    def rollout(self, steps: int, final_obs: bool = True) -> Trajectory:
        """Take ``steps`` uniformly random steps in one launch and return a ``Trajectory``.

        Its tensors are written again by the next rollout. ``final_obs=False`` saves that array.
        """
        self._check_ready("rollout()")
        steps = checked_int(self.spec.name, "steps", steps)
        final_obs = checked_bool(self.spec.name, "final_obs", final_obs)
        with self._stream():
            buffers = self.batch.rollout(steps, final_obs)
        self._renew_moved()
        if self._trajectory is None or self._trajectory[0] is not buffers:
            self._make_views()  # when views of another rollout end, torch has moved nothing
            self._trajectory = buffers, self._trajectory_of(buffers)
        trajectory = self._trajectory[1]
        # A new object: the last one may hold observations that it has unpacked.
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
        """Return a ``Snapshot``: ``restore`` goes on from it bit for bit, on this device or
        another.
        """
        self._check_ready("snapshot()")
        with self._stream():
            return Snapshot.of(self.batch)

    def restore(self, snapshot: Snapshot) -> tuple[Tensors, dict]:
        """Go back to a ``Snapshot`` of an environment with the same parameters and size; return
        ``(obs, info)``.

        Raises:
            ParameterError: If it does not fit; nothing has changed then.
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
        """Write members of ``struct State`` and observe; return ``(obs, info)``. For tests and
        teaching.

        Episodes, their returns and the random streams go on.

        Args:
            elapsed: (N,) ints or one: steps since the episodes began, below ``max_episode_steps``.
            **fields: (N, *shape of the member), or what broadcasts to it, finite.

        Raises:
            ParameterError: If a name, shape, type or value is wrong; nothing has changed then.
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
        """What the last ``step`` returned: the same views."""
        self._renew_moved()
        return self._results[self.batch.now]

    def _shown(self) -> tuple[Tensors, dict]:
        return self.step_results[0], self.step_results[4]

    # ---- looking and editing ----

    def reload(self) -> bool:
        """Compile the environment's changed file, cell or text again; return whether episodes go
        on.

        Tensors and state stay as they are if ``State``, groups and parameters have the layout they
        had. Otherwise new memory is taken, and ``reset`` must be called.

        Raises:
            CompileError: If it does not compile; the environment goes on as it was.
        """
        self._check_open("reload()")
        spec = envs.reload(self.spec)
        known = {f.name for f in fields(spec.params)}
        params = spec.make_params(
            **{key: value for key, value in asdict(self.params).items() if key in known}
        )
        if self.batch.exchange(spec, params):
            self.spec, self.params = spec, params
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
        """Return a viewer for a notebook: episodes of new environments like these, step by step,
        with a slider.

        Args:
            policies: As for ``view``.
            seed: Random seed. Defaults to this environment's.
            **options: As for ``view``.
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
        """Give the memory back; later calls raise ``OrderError``."""
        if not self._closed:
            self.batch.executor.synchronise()
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
