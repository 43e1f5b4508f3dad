"""Kernels written in Python: three callables that update an environment's arrays in place.

An ``EnvSpec`` with ``kernel=PythonKernels(reset, step, observe)`` needs no .cu file. The callables
may launch kernels of ``cupyx.jit``, ``numba.cuda`` or Triton, or use plain torch operations. They
must not synchronize with the device. This module implements everything that is common to all
environments with torch operations, in the phases of ``kernels/drive/step.cuh``: time limit,
autoreset, ``final_obs``, statistics, random actions.

Letters: N environments, C agents of a group, D observation entries, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.errors import DeviceError, SpecError
from cupydrive.executors.interop import Views, make_call
from cupydrive.executors.launch_views import LaunchViews
from cupydrive.inputs.arguments import T
from cupydrive.protocols import Array, EnvParams, Executor
from cupydrive.random import ACTION, DYNAMICS, RESET
from cupydrive.spec import EnvSpec, Group

LIBRARY_DEVICES = {"torch": ("cpu", "cuda"), "cupy": ("cuda",), "numpy": ("cpu",)}


@dataclass(frozen=True)
class Arrays:
    """Arguments of the callables: views of the kernel's buffers in the chosen array library.

    Args:
        params: Parameters of the environment.
        state: Members of ``struct State`` by name, (N, *shape of the member), strided.
        action: (N, C) int32 by group for one discrete head, (N, C, H) otherwise, float32 if there
            is a Box. Choices are within the action space, and NaN in a Box is replaced by 0.
        obs: (N, C, D) float32 by group, written by ``observe``.
        critic_obs: (N, C, K) float32 by group with critic observations, written by ``observe``.
        action_mask: (N, C, choices) bool by group with a mask, written by ``observe``.
        reward: (N, C) float32 by group, 0 at the start of ``step``.
        terminated: (N,) bool, False at the start of ``step``. Set it where the task ends.
        active: (N, C) bool by group whose agents may leave, written by ``step``: agents that were
            active before the step.
        left: (N, C) bool by group whose agents may leave, written by ``step``: agents that left
            during the step.
        metrics: (N,) totals since the start of the episode by metric. ``step`` adds to them.
        elapsed: (N,) int32, steps since the start of the episode, including the current ``step``.
        mask: (N,) bool, True where ``reset`` must write an initial state. Other environments must
            not change.
        bits: (N, agents, draws, 4) random uint32 integers of each environment, episode and step, or
            None without draws.
        uniform: ``bits`` as float32 in [0, 1), or None without draws.
        table: Read-only tables by name, with their declared shapes.
    """

    params: Any  # the environment's class of parameters
    state: dict
    action: dict
    obs: dict
    critic_obs: dict
    action_mask: dict
    reward: dict
    terminated: torch.Tensor
    active: dict
    left: dict
    metrics: dict
    elapsed: torch.Tensor
    mask: torch.Tensor | None
    bits: torch.Tensor | None
    uniform: torch.Tensor | None
    table: dict


@dataclass(frozen=True, eq=False)
class PythonKernels:
    """Three callables that take ``Arrays`` and replace a kernel file. Observations are float32.

    Args:
        reset: Write an initial state where ``arrays.mask`` is True.
        step: Take one step: update state, reward and terminated.
        observe: Write ``obs`` as a function of only the state and ``elapsed``.
        arrays: Array library: ``"torch"`` (any device), ``"cupy"`` (GPU) or ``"numpy"`` (CPU).
            Defaults to ``"torch"``.
        reset_draws: Number of draws of four 32-bit random integers per agent in ``reset``. Defaults
            to 1.
        step_draws: Number of draws of four 32-bit random integers per agent in ``step``. Defaults
            to 0.

    Raises:
        SpecError: If ``arrays`` is unknown.

    Examples:
        >>> import cupydrive as cd
        >>> def reset(arrays):
        ...     arrays.state["x"][arrays.mask] = 0.0
        >>> def step(arrays):
        ...     arrays.state["x"] += arrays.params.push * (2.0 * arrays.action["point"][:, 0] - 1.0)
        ...     arrays.reward["point"][:, 0] = -abs(arrays.state["x"])
        >>> def observe(arrays):
        ...     arrays.obs["point"][:, 0, 0] = arrays.state["x"]
        >>> kernels = cd.PythonKernels(reset, step, observe, arrays="numpy", reset_draws=0)
        >>> kernels.devices  # pass them as EnvSpec(kernel=kernels)
        ('cpu',)
    """

    reset: Callable
    step: Callable
    observe: Callable
    arrays: str = "torch"
    reset_draws: int = 1
    step_draws: int = 0

    def __post_init__(self) -> None:
        if self.arrays not in LIBRARY_DEVICES:
            raise SpecError(
                f"arrays = {self.arrays!r}, expected one of {', '.join(map(repr, LIBRARY_DEVICES))}"
            )

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices on which these kernels run."""
        return LIBRARY_DEVICES[self.arrays]

    def program(self, executor: Executor, spec: EnvSpec, params: EnvParams) -> PythonProgram:
        """Return the ``PythonProgram`` of one environment.

        Args:
            executor: Executor of the device.
            spec: ``EnvSpec`` of the environment.
            params: Parameters of the environment.

        Raises:
            DeviceError: If the array library does not support the device.
            SpecError: If a group observes bytes or bools.
        """
        if executor.name not in self.devices:
            raise DeviceError(
                f"{spec.name}: its Python kernels take {self.arrays} arrays, which do not support "
                f"{executor.name!r}. Use device={self.devices[0]!r}"
            )
        for g in spec.groups(params):
            if g.obs_dtype != "float32":
                raise SpecError(
                    f"{spec.name}: group {g.name!r} has obs_dtype = {g.obs_dtype!r}, but kernels "
                    f"written in Python observe in float32. Leave obs_dtype out"
                )
        return PythonProgram(self, executor, spec, params)


class PythonProgram:
    """Program whose ``launch`` runs the callables on the arrays of ``call``."""

    prints, cache_bytes = False, 0  # Python code prints directly

    def __init__(
        self, kernels: PythonKernels, executor: Executor, spec: EnvSpec, params: EnvParams
    ) -> None:
        self.kernels, self.executor, self.spec, self.params = kernels, executor, spec, params
        self.groups, self.state_dtype, self.metrics_dtype = (
            spec.groups(params),
            spec.state_dtype(params),
            spec.metrics_dtype(),
        )
        self.agents, self.tables = sum(g.count for g in self.groups), spec.declared_tables(params)
        self.draws = executor.build(assemble_file("tools/draws"))
        self.last = {g.name: torch.tensor(g.sizes, device=executor.name) - 1 for g in self.groups}
        self._scratch: dict[tuple, torch.Tensor] = {}

    def launch(self, kernel: str, call: np.ndarray, count: int, work: int = 0) -> None:
        """Run ``env_reset``, ``env_step`` or ``env_rollout`` on the arrays of ``call``."""
        del count, work
        views = LaunchViews(call, self)
        if kernel == "env_reset":
            arrays = self._arrays(views, views.rows(0))
            if views.steps:
                self._begin(
                    views,
                    arrays,
                    torch.ones_like(arrays.terminated) if views.mask is None else views.mask,
                )
            self._observe(arrays)
            return
        if kernel == "env_rollout":
            for g in self.groups:
                views.obs(g, -1).copy_(views.obs(g, 0, "current_obs"))
        for t in range(views.steps):
            self._take_step(views, t, kernel == "env_rollout")

    # ---- one step ----

    def _take_step(self, views: LaunchViews, t: int, random: bool) -> None:
        """Take step t of all environments, in the phases of kernels/drive/step.cuh.

        Actions are read from the buffers, or drawn if ``random``.
        """
        row = views.rows(t)
        arrays = self._arrays(views, row)
        # fetch_actions
        if random:
            self._choose(views, t)
        for g in self.groups:
            self._read(views.action(g, t), g, arrays.action[g.name])
        # begin_step: reset rewards and ends, count the step, and draw its random numbers
        for reward in arrays.reward.values():
            reward.zero_()
        arrays.terminated.zero_()
        views.clock[:, 1:] += 1
        arrays = self._with_draws(views, arrays, DYNAMICS, self.kernels.step_draws)
        # step: afterwards, an episode is over if its task has ended or the time limit is reached
        self._run(self.kernels.step, arrays)
        ended = arrays.terminated.clone()
        over = ended | (arrays.elapsed >= views.max_episode_steps)
        # end_step: accumulate returns
        for g in self.groups:
            returns = views.returns[g.name]
            returns += arrays.reward[g.name]
            row["episode_return"][g.name].copy_(returns)
            returns.masked_fill_(over[:, None], 0)
        task = self.spec.time_limit == "terminates"
        arrays.terminated.copy_(over if task else ended)
        row["truncated"].copy_(torch.zeros_like(over) if task else over & ~ended)
        # record: these values are only read where an episode is over
        row["episode_length"].copy_(arrays.elapsed)
        row["episode_metrics"].copy_(views.words)
        # observe_final
        if row["final_obs"] is not None:
            critic = self._critic_obs(views, row["final_critic_obs"])
            self._observe(replace(arrays, obs=row["final_obs"], critic_obs=critic))
        # reset: start new episodes where one is over (Gymnasium's same-step autoreset)
        self._begin(views, arrays, over if views.mask is None else over & views.mask)
        self._observe(arrays)

    def _begin(self, views: LaunchViews, arrays: Arrays, mask: torch.Tensor) -> None:
        """Start new episodes where ``mask``, as ``begin_episode`` of kernels/drive/phases.cuh."""
        views.clock[:, 1].masked_fill_(mask, 0)
        views.words.masked_fill_(mask[:, None], 0)
        for returns in views.returns.values():
            returns.masked_fill_(mask[:, None], 0)
        arrays = self._with_draws(
            views, replace(arrays, mask=mask), RESET, self.kernels.reset_draws
        )
        self._run(self.kernels.reset, arrays)
        views.clock[:, 0] += mask

    # ---- the three callables ----

    def _arrays(self, views: LaunchViews, row: dict) -> Arrays:
        action = {}
        for g in self.groups:
            dtype = torch.float32 if g.continuous else torch.int32
            action[g.name] = self._buffer(
                ("action", g.name), (views.num_envs, *g.action_shape), dtype
            )
        rows = {
            name: row[name]
            for name in ("obs", "action_mask", "reward", "terminated", "active", "left")
        }
        kept = {
            "state": views.state,
            "metrics": views.metrics,
            "elapsed": views.clock[:, 1],
            "table": views.table,
        }
        rows["critic_obs"] = self._critic_obs(views, row["critic_obs"])
        return Arrays(
            params=self.params, action=action, **rows, **kept, mask=None, bits=None, uniform=None
        )

    def _observe(self, arrays: Arrays) -> None:
        """Call ``observe``, then write the numbers of agents behind their observations."""
        own = {g.name: arrays.obs[g.name][..., : g.own_obs_dim] for g in self.groups}
        self._run(self.kernels.observe, replace(arrays, obs=own))
        for g in self.groups:
            if g.agent_ids:
                ids = torch.eye(g.count, dtype=torch.float32, device=self.executor.name)
                arrays.obs[g.name][..., g.own_obs_dim :] = ids

    def _critic_obs(
        self, views: LaunchViews, stored: dict[str, torch.Tensor | None]
    ) -> dict[str, torch.Tensor]:
        """Return rows for critics: scratch memory where no policy reads them."""
        rows = {}
        for g in self.groups:
            shape, row = (views.num_envs, g.count, g.critic_obs_dim), stored[g.name]
            if g.critic_obs_dim:
                scratch = self._buffer(("critic_obs", g.name), shape, torch.float32)
                rows[g.name] = scratch if row is None else row
        return rows

    def _run(self, function: Callable, arrays: Arrays) -> None:
        """Call one of the three callables with torch tensors converted to its array library."""
        native: dict[str, Any] = {
            name: self._native(name, value) for name, value in vars(arrays).items()
        }
        function(Arrays(**native))

    def _native(self, name: str, value: T) -> T | Views | Array:
        """Convert an array, or arrays by name, to the callables' array library."""
        if isinstance(value, dict):
            return Views(name, {key: self._native(key, array) for key, array in value.items()})
        if self.kernels.arrays == "torch" or not isinstance(value, torch.Tensor):
            return value
        return self.executor.xp.from_dlpack(value)

    # ---- random numbers and actions ----

    def _with_draws(self, views: LaunchViews, arrays: Arrays, purpose: int, draws: int) -> Arrays:
        """Return ``arrays`` with the random numbers of this purpose."""
        bits, uniform = self._draw(views, purpose, draws) if draws else (None, None)
        return replace(arrays, bits=bits, uniform=uniform)

    def _draw(
        self, views: LaunchViews, purpose: int, draws: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw (N, agents, draws, 4) 32-bit random integers of this step, as uint32 and float32 in
        [0, 1).
        """
        shape = (views.num_envs, self.agents, draws, 4)
        bits = self._buffer(("bits", purpose), shape, torch.int32).view(torch.uint32)
        uniform = self._buffer(("uniform", purpose), shape, torch.float32)
        size = views.num_envs * self.agents * draws
        ints = {
            "size": size,
            "agents": self.agents,
            "draws": draws,
            "first_env": views.first_env,
            "purpose": purpose,
        }
        pointers = {"seed": views.seed, "clock": views.clock, "bits": bits, "uniform": uniform}
        self.draws.launch("draw_words", make_call(ints, pointers), size, size)
        return bits, uniform

    def _choose(self, views: LaunchViews, t: int) -> None:
        """Write uniformly random actions into row t, as ``take_actions`` of
        kernels/drive/groups.cuh.
        """
        bits, _ = self._draw(views, ACTION, max(g.heads for g in self.groups))
        words = bits.view(torch.int32).long() & 0xFFFFFFFF
        which = (views.clock[:, 2].long() % 4).view(-1, 1, 1, 1).expand(*words.shape[:3], 1)
        words = words.gather(3, which)[..., 0]  # (N, agents, heads)
        first = 0
        for g in self.groups:
            action, mask = views.action(g, t), views.action_mask(g, t - 1)
            for head in range(g.heads):
                action[..., head] = sample(g, words[:, first : first + g.count, head], head, mask)
            first += g.count

    def _read(self, given: torch.Tensor, g: Group, into: torch.Tensor) -> None:
        """Copy the actions ``given`` (N, C, H) to ``into``, clipped to the space, with NaN as 0."""
        into = into.view(given.shape)
        if g.continuous:
            torch.nan_to_num(given, nan=0.0, posinf=float("inf"), neginf=-float("inf"), out=into)
        else:
            into.copy_(given)
        choices = into[..., : len(g.sizes)]
        choices.copy_(choices.trunc().clamp(min=0).clamp(max=self.last[g.name]))

    def _buffer(self, key: tuple, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return scratch memory that this program reuses."""
        if key not in self._scratch or self._scratch[key].shape != torch.Size(shape):
            with torch.inference_mode(False):  # the memory outlives the caller's mode
                self._scratch[key] = torch.empty(shape, dtype=dtype, device=self.executor.name)
        return self._scratch[key]


def sample(
    group: Group, words: torch.Tensor, head: int, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Return random actions of one head, as ``source.sample_action`` but in torch.

    Args:
        group: ``Group``.
        words: (N, C) int64, 32-bit words.
        head: Head.
        mask: (N, C, choices of all heads) bool, or None.
    """
    if mask is not None and head < len(group.sizes):
        allowed = mask[..., group.first_choices[head] :][..., : group.sizes[head]]
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        wanted = (words * allowed.sum(-1)) >> 32
        return (allowed.long().cumsum(-1) > wanted[..., None]).int().argmax(-1)
    if head >= len(group.sizes):
        low, high = (bound[head] for bound in group.action_bounds)
        return float(low) + float(high - low) * ((words >> 8).float() * 2.0**-24)
    return (words * group.sizes[head]) >> 32
