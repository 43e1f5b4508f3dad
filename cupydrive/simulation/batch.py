"""Memory and launches of N environments on any executor, with NumPy or CuPy arrays.

This module does not use torch. Letters: T steps, N environments, C agents of a group, H action
heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import TypeAlias, TypedDict

import numpy as np

from cupydrive.codegen.agreement import batch_dtype
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.printing import Printer
from cupydrive.errors import MemoryLimitError, ParameterError
from cupydrive.executors import executor as make_executor
from cupydrive.executors.host import HostExecutor
from cupydrive.inputs.arguments import checked_choice, checked_instance, checked_int
from cupydrive.protocols import Array, EnvParams, Executor, Program
from cupydrive.simulation.buffers import SHARED, Buffers, row_bytes
from cupydrive.simulation.first_steps import try_kernel
from cupydrive.spec import EnvSpec, Group

# struct Clock of random.cuh
CLOCK = np.dtype([("episode", "u4"), ("elapsed", "i4"), ("time", "u4")])
OBS_DTYPES = {"float32": "f4", "bfloat16": "u2"}  # NumPy lacks bfloat16, so its bits are stored
KEEP_FREE = 0.95  # maximum fraction of the free memory for buffers


Named: TypeAlias = dict[str, np.ndarray]  # arrays by group


class BatchState(TypedDict):
    """Data that determines the future of a ``Batch``."""

    seed: np.ndarray
    state: np.ndarray
    clock: np.ndarray
    metrics: np.ndarray
    returns: Named


class RolloutCall:
    """Arguments of launches of T steps.

    They are created once, since a launch of a small batch takes less time than this.

    Args:
        batch: The ``Batch``.
        buffers: Its ``Buffers`` of T steps.
    """

    def __init__(self, batch: Batch, buffers: Buffers) -> None:
        self.buffers, self.call = buffers, batch.describe(buffers)
        self.last_obs = {name: array[-1] for name, array in buffers.obs.items()}
        self.last_mask = {name: array[-1] for name, array in buffers.action_mask.items()}
        self.begins_at: dict[str, Array] | None = None  # the observations that `call` points to


def is_packed(group: Group, obs: Array) -> bool:
    """Return whether ``obs`` (..., C, W) has packed bits."""
    return group.bits and obs.dtype == np.int32


def unpacked(group: Group, obs: Array, xp: ModuleType = np) -> Array:
    """Unpack bits to (..., C, D) bool. Other observations are unchanged.

    Args:
        group: The ``Group``.
        obs: (..., C, W) or (..., C, D).
        xp: Array library, NumPy or CuPy.
    """
    if not is_packed(group, obs):
        return obs
    places = xp.arange(32, dtype=np.int32)
    flags = obs[..., None] >> places & 1
    return flags.reshape(*obs.shape[:-1], -1)[..., : group.obs_dim] != 0


def set_params(call: np.ndarray, spec: EnvSpec, params: EnvParams) -> None:
    """Write parameters into a ``struct Batch``."""
    call["params"], call["max_episode_steps"] = spec.pack_params(params), params.max_episode_steps
    call["inverse_horizon"] = np.float32(1.0) / np.float32(params.max_episode_steps)


def constant_tables(spec: EnvSpec, params: EnvParams, executor: Executor) -> dict[str, Array]:
    """Return the device's copy of each table of an environment, by name."""
    digests = spec.table_digests(params)
    return {
        name: executor.constant(array, digests[name])
        for name, array in spec.table_arrays(params).items()
    }


class Batch:
    """N environments.

    Args:
        spec: The ``EnvSpec``.
        num_envs: Number of environments, N.
        params: Parameters made by ``spec.make_params``.
        executor: ``"cuda"``, ``"cpu"`` or an executor.
        first_env: Global id of environment 0. Random streams are keyed by global ids.
        layout: ``Layout`` of the threads. Defaults to the executor's choice.
        obs_dtype: ``"float32"``, or ``"bfloat16"``, which is stored as uint16.

    Raises:
        ParameterError: If an argument is wrong.
        MemoryLimitError: If the buffers would not fit.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        params: EnvParams | None = None,
        executor: str | Executor = "cpu",
        first_env: int = 0,
        layout: Layout | None = None,
        obs_dtype: str = "float32",
    ) -> None:
        checked_choice(spec.name, "obs_dtype", obs_dtype, OBS_DTYPES)
        self.obs_dtype = np.dtype(OBS_DTYPES[obs_dtype])
        half = obs_dtype == "bfloat16"
        if half and spec.own_program is not None:
            raise ParameterError(
                f"{spec.name}: kernels written in Python observe in float32. Leave obs_dtype out"
            )
        self.num_envs = checked_int(spec.name, "num_envs", num_envs)
        # ids are int32
        self.first_env = checked_int(spec.name, "first_env", first_env, 0, 2**31 - self.num_envs)
        if layout is not None:
            checked_instance(
                spec.name,
                "layout",
                layout,
                Layout,
                "a cupydrive.codegen.layout.Layout, 'tuned' or None",
            )
        self.spec, self.params = spec, params if params is not None else spec.make_params()
        self.executor = make_executor(executor) if isinstance(executor, str) else executor
        self.groups = spec.groups(self.params)
        self.state_dtype, self.metrics_dtype = spec.state_dtype(self.params), spec.metrics_dtype()
        self.tables = constant_tables(spec, self.params, self.executor)
        self.require_memory(
            self.num_envs * self.env_bytes(), self.env_bytes(), "num_envs", self.num_envs
        )
        self.layout = replace(
            layout or self.executor.layout(spec, self.params, self.num_envs), half_obs=half
        )
        self.program = self._load(spec, self.params)
        allocate, n = self.executor.allocate, self.num_envs
        self.seed = allocate((1,), np.uint64)
        self.state = allocate((n,), self.state_dtype)
        self.clock = allocate((n,), CLOCK)
        self.metrics = allocate((n,), self.metrics_dtype)
        # scratch memory for speed, not part of a snapshot
        self.cache = allocate((n, self.program.cache_bytes), np.uint8)
        self.mask = allocate((n,), np.bool_)
        self.returns = {g.name: allocate((n, g.count), np.float32) for g in self.groups}
        first = Buffers(self, actions=False)
        self.step_buffers = [first, first.with_other_obs(self)]
        self.now = 0  # index of the step buffers that were written last
        self.current_obs = self.step_buffers[0].obs  # or the last row of a rollout
        self.current_mask = self.step_buffers[0].action_mask
        # Work of one step of one environment, in steps of CartPole. It determines the number of CPU
        # threads.
        self._step_work = max(1, sum(g.count * g.obs_dim for g in self.groups) // 4)
        self._rollouts: dict[tuple[int, bool], RolloutCall] = {}
        self._template = self._describe(self.first_env)
        self.printer: Printer | None = None
        self._attach_printer([self._template])
        self._calls = [self.describe(b) for b in self.step_buffers]
        self._reset_calls = [call.copy() for call in self._calls]

    def _load(self, spec: EnvSpec, params: EnvParams) -> Program:
        """Return the program of ``spec``. A custom kernel runs in a separate process first."""
        program = self.executor.load(spec, params, self.layout)
        if (
            isinstance(self.executor, HostExecutor)
            and self.executor.tries
            and spec.kernel is not None
            and spec.own_program is None
        ):
            try_kernel(Batch, spec, params, self.executor, self.layout)
        return program

    def exchange(self, spec: EnvSpec, params: EnvParams) -> bool:
        """Use the kernels of ``spec`` on these buffers from now on.

        Returns:
            Whether they fit. If not, nothing has changed.
        """

        def layout(spec: EnvSpec, params: EnvParams) -> tuple:
            groups = [
                (
                    *(g.name, g.count, g.obs_shape, g.obs_dtype, g.critic_obs_dim),
                    *(g.action_space, g.mask, g.leaves),
                )
                for g in spec.groups(params)
            ]
            return spec.state_dtype(params), spec.metrics_dtype(), batch_dtype(spec, params), groups

        program, tables = self._load(spec, params), constant_tables(spec, params, self.executor)
        if (program.cache_bytes, *layout(spec, params)) != (
            self.program.cache_bytes,
            *layout(self.spec, self.params),
        ):
            return False
        self.program, self.spec, self.params, self.groups = (
            program,
            spec,
            params,
            spec.groups(params),
        )
        self.tables = tables
        rollouts = [kept.call for kept in self._rollouts.values()]
        calls = [self._template, *self._calls, *self._reset_calls, *rollouts]
        for call in calls:
            set_params(call, spec, params)
            self._set_tables(call)
        self._attach_printer(calls)
        return True

    def _attach_printer(self, calls: list[np.ndarray]) -> None:
        """Pass the print buffer to a kernel that prints."""
        if self.program.prints:
            self.printer = self.printer or Printer(self.executor, self.spec.name)
            for call in calls:
                call["printed"] = self.executor.pointer(self.printer.memory)

    def env_bytes(self) -> int:
        """Return the size of one environment in bytes, including a second observation."""
        entry = self.obs_dtype.itemsize
        obs = sum(
            g.count * (g.obs_bytes(entry) + g.choices * g.mask + 4 * g.critic_obs_dim)
            for g in self.groups
        )
        returns = sum(4 * g.count for g in self.groups)
        state = self.state_dtype.itemsize + CLOCK.itemsize + self.metrics_dtype.itemsize + 1
        rows = row_bytes(self.spec, self.params, entry=entry, packed=False, critic=None)
        return rows + obs + returns + state

    def require_memory(self, needed: int, each: int, name: str, value: int) -> None:
        """Raise ``MemoryLimitError`` if ``needed`` bytes are not free.

        Args:
            needed: Number of bytes to allocate.
            each: Bytes per unit of the argument.
            name: Name of the argument that determines the size, for the message.
            value: Its value.
        """
        free = int(self.executor.free_bytes() * KEEP_FREE)
        if needed > free:
            raise MemoryLimitError(
                f"{self.spec.name}: {name} = {value} needs {needed:,} bytes, but {free:,} are "
                f"free on {self.executor.name}. The largest {name} that fits is "
                f"{max(0, free // each):,}"
            )

    # ---- struct Batch ----

    def _describe(self, first_env: int) -> np.ndarray:
        """Return ``struct Batch`` with all members that are equal in all calls."""
        pointer, call = self.executor.pointer, np.zeros((), batch_dtype(self.spec, self.params))
        set_params(call, self.spec, self.params)
        self._set_tables(call)
        call["num_envs"], call["first_env"] = self.num_envs, first_env
        for name in ("seed", "state", "clock", "metrics", "cache"):
            call[name] = pointer(getattr(self, name))
        for g in self.groups:
            call[g.name]["returns"] = pointer(self.returns[g.name])
        return call

    def _set_tables(self, call: np.ndarray) -> None:
        """Write the addresses of the tables into a ``struct Batch``."""
        for name, array in self.tables.items():
            call["table"][name] = self.executor.pointer(array)

    def describe(self, buffers: Buffers) -> np.ndarray:
        """Return one ``struct Batch`` for launches of all steps of ``buffers``."""
        pointer, call = self.executor.pointer, self._template.copy()
        call["steps"] = buffers.steps or 1
        for name in SHARED:
            call[name] = pointer(getattr(buffers, name))
        for g in self.groups:
            rows = call[g.name]
            for name, array in buffers.of_group(g.name).items():
                rows[name] = pointer(array)
            rows["packed"] = buffers.packed
            if buffers.steps is not None:  # row 0 is the observation before the first step
                rows["obs"] += buffers.obs[g.name].strides[0]
                rows["action_mask"] += self.num_envs * g.count * g.choices * g.mask
                if g.name in buffers.critic_obs:
                    rows["critic_obs"] += buffers.critic_obs[g.name].strides[0]
        return call

    # ---- launches ----

    def _launch(self, kernel: str, call: np.ndarray) -> None:
        self.program.launch(
            kernel, call, self.num_envs, self.num_envs * int(call["steps"]) * self._step_work
        )
        if self.printer is not None:
            self.printer.show()

    def reset(self, seed: int | None = None, mask: Array | None = None) -> Buffers:
        """Begin new episodes.

        Args:
            seed: Restarts all random streams.
            mask: (N,) bool, environments to reset. Defaults to all.

        Returns:
            The current ``Buffers``, of which only ``obs`` is valid.
        """
        if seed is not None:
            self.executor.put(self.seed, np.array([seed], np.uint64))
            self.executor.put(self.clock, np.zeros(self.num_envs, CLOCK))
        if mask is not None:
            self._keep_observations()  # for environments that are not reset
        call = self._reset_calls[self.now]
        call["mask"], call["steps"] = 0, 1
        if mask is not None:
            self.mask[...] = mask
            call["mask"] = self.executor.pointer(self.mask)
        self._launch("env_reset", call)
        return self._show()

    def observe(self) -> Buffers:
        """Update the observations after a change of the state from outside.

        Returns:
            The current ``Buffers``.
        """
        call = self._reset_calls[self.now]
        call["mask"], call["steps"] = 0, 0
        self._launch("env_reset", call)
        return self._show()

    def _keep_observations(self) -> None:
        """Copy the current observations, such as a rollout's last row, to the step buffers."""
        buffers = self.step_buffers[self.now]
        if self.current_obs is not buffers.obs:
            if buffers.critic_obs:  # rollouts do not store them
                self.observe()
            for g in self.groups:
                buffers.obs[g.name][...] = unpacked(g, self.current_obs[g.name], self.executor.xp)
            for name, array in buffers.action_mask.items():
                array[...] = self.current_mask[name]

    def _show(self) -> Buffers:
        """Make the observations of the current step buffers the current ones."""
        buffers = self.step_buffers[self.now]
        self.current_obs, self.current_mask = buffers.obs, buffers.action_mask
        return buffers

    def step(self, action_pointers: Sequence[int], autoreset: bool = True) -> Buffers:
        """Take one step.

        Args:
            action_pointers: Addresses of (N, C, H) arrays in the order of the groups.
            autoreset: Reset environments whose episode ends. Otherwise they keep their last state,
                and must not be stepped further.

        Returns:
            The new ``Buffers``. Observations have two buffers, so that those from before this call
            stay valid until the next call.
        """
        self.now = 1 - self.now
        call = self._calls[self.now]
        for g, address in zip(self.groups, action_pointers, strict=True):
            call[g.name]["action"] = address
        if not autoreset:
            self.mask[...] = False
        call["mask"] = 0 if autoreset else self.executor.pointer(self.mask)
        self._launch("env_step", call)
        return self._show()

    def row_calls(self, buffers: Buffers) -> list[np.ndarray]:
        """Return one ``struct Batch`` per step of ``buffers``, for launches of single steps."""
        whole, calls = self.describe(buffers), []
        for t in range(buffers.steps or 0):
            call = whole.copy()
            call["steps"] = 1
            for name in SHARED:
                call[name] += t * getattr(buffers, name).strides[0]
            for g in self.groups:
                for name, array in buffers.of_group(g.name).items():
                    call[g.name][name] += t * array.strides[0]
            calls.append(call)
        return calls

    def step_row(self, call: np.ndarray) -> None:
        """Take one step in a row of buffers. ``call`` is an element of ``row_calls``."""
        self._launch("env_step", call)

    def rollout(self, steps: int, final_obs: bool = True) -> Buffers:
        """Take ``steps`` uniformly random steps in one launch.

        Returns:
            ``Buffers`` with T = steps. ``obs`` has T + 1 rows, and row 0 is the observation before
            the first step. The next rollout of the same length overwrites them.
        """
        key = (steps, final_obs)
        if key not in self._rollouts:
            # one set at a time. current_obs keeps the last one alive until the next launch.
            self._rollouts.clear()
            each = (
                row_bytes(self.spec, self.params, final_obs, self.obs_dtype.itemsize)
                * self.num_envs
            )
            self.require_memory(each * steps, each, "steps", steps)
            self._rollouts[key] = RolloutCall(self, Buffers(self, steps, final_obs=final_obs))
        kept = self._rollouts[key]
        if kept.begins_at is not self.current_obs:
            for g in self.groups:
                current = self.current_obs[g.name]
                kept.call[g.name]["current_obs"] = self.executor.pointer(current)
                kept.call[g.name]["current_packed"] = is_packed(g, current)
            kept.begins_at = self.current_obs
        for name, array in kept.buffers.action_mask.items():
            array[0] = self.current_mask[name]
        self._launch("env_rollout", kept.call)
        self.current_obs, self.current_mask = kept.last_obs, kept.last_mask
        return kept.buffers

    # ---- state ----

    @staticmethod
    def as_records(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Convert a NumPy array to structs, if the executor stores them as bytes."""
        return array if array.dtype == dtype else np.ascontiguousarray(array).view(dtype)[..., 0]

    def get_state(self) -> BatchState:
        """Return NumPy copies of ``seed``, ``state``, ``clock``, ``metrics`` and ``returns``.

        They determine the future of the environments.
        """
        get = self.executor.get
        return {
            "seed": get(self.seed),
            "state": self.as_records(get(self.state), self.state_dtype),
            "clock": self.as_records(get(self.clock), CLOCK),
            "metrics": self.as_records(get(self.metrics), self.metrics_dtype),
            "returns": {name: get(array) for name, array in self.returns.items()},
        }

    def first_states(self, count: int) -> dict[str, np.ndarray]:
        """Return NumPy copies of the first environments' ``states`` and ``elapsed`` steps."""
        get = self.executor.get
        clock = self.as_records(get(self.clock[:count]), CLOCK)
        return {
            "states": self.as_records(get(self.state[:count]), self.state_dtype),
            "elapsed": clock["elapsed"],
        }

    def set_state(self, kept: BatchState) -> None:
        """Restore the result of ``get_state``. Observations are unchanged."""
        for name in ("seed", "state", "clock", "metrics"):
            self.executor.put(getattr(self, name), kept[name])
        for name, array in self.returns.items():
            self.executor.put(array, kept["returns"][name])

    def get_observations(self) -> tuple[Named, Named]:
        """Return NumPy copies of the current ``obs`` and ``action_mask`` by group."""
        get = self.executor.get
        return (
            {g.name: unpacked(g, get(self.current_obs[g.name])) for g in self.groups},
            {name: get(array) for name, array in self.current_mask.items()},
        )

    def set_observations(self, obs: Named, action_mask: Named) -> Buffers:
        """Restore the result of ``get_observations``. Return the current ``Buffers``."""
        buffers = self.step_buffers[self.now]
        if buffers.critic_obs:  # not part of the result of get_observations
            self.observe()
        for arrays, values in ((buffers.obs, obs), (buffers.action_mask, action_mask)):
            for name, array in arrays.items():
                self.executor.put(array, values[name])
        return self._show()
