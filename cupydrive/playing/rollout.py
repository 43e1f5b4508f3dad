"""Rollouts with policies: T steps of N environments in time-major buffers on the device.

Letters: T steps, N environments, C agents of a group, D observation entries, H action heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.errors import ParameterError
from cupydrive.executors.bits import pack_bits
from cupydrive.executors.interop import (
    as_torch,
    make_call,
    member,
    side_by_side,
    torch_stream,
    zeros,
)
from cupydrive.executors.modes import ordinary_modes
from cupydrive.executors.noted import note_side_by_side, noting
from cupydrive.executors.ranks import Shard
from cupydrive.simulation.buffers import Buffers, row_bytes

if TYPE_CHECKING:
    from cupydrive.codegen.source import Unit
    from cupydrive.protocols import Player
    from cupydrive.simulation.batch import Batch
    from cupydrive.spec import Group


COLLECTED = [
    "obs",
    "action_mask",
    "final_obs",
    "critic_obs",
    "final_critic_obs",
    "action",
    "reward",
    "active",
    "left",
    "episode_return",
]
NONE_FOUND = 2**63 - 1
EPISODE_ENVS = 32  # environments per thread team of kernels/train/episodes.cu
EPISODE_THREADS = 256  # threads of such a team on a GPU
CARRIED = 16  # bytes of one element of kernels/train/carry.cu


@dataclass(frozen=True)
class Place:
    """Position of a number in a rollout.

    Args:
        step: Number of steps of its environment since the run began.
        kind: ``"obs"``, ``"critic_obs"`` or ``"reward"``.
        name: Name of the group.
        env: Index of the environment in this process.
        agent: Index of the agent in the group.
        entry: Entry of an observation.
    """

    step: int
    kind: str
    name: str
    env: int
    agent: int
    entry: int | None = None


class Collector(Protocol):
    """Takes all steps of a rollout in one launch."""

    def collect(self) -> None:
        """Copy the last row to row 0, and queue all steps."""


class Rollout:
    """Buffers of T steps and the loop that fills them. A ``Player`` chooses each group's actions.

    Args:
        batch: ``Batch`` to step.
        players: Player by group name. One player may play several groups.
        steps: Number of steps of a rollout, T.
        final_obs: Store the observations before an autoreset. Defaults to True for environments
            whose time limit truncates.
        shard: ``Shard`` of the environments of ``batch``. Defaults to all environments.

    Attributes:
        play: ``Collector`` that takes all steps in one launch and copies the last row to row 0, or
            None for players that act step by step.
        critic_obs: (T + 1, N, C, K) float32 by group, if its player has ``central``.
        final_critic_obs: (T, N, C, K) float32 by the same groups, before an autoreset.
        on_step: Function of row t that is called after each step, or None.
        side_by_side: Whether a GPU may run the work of different players concurrently. They must
            share no data and allocate no memory.
    """

    obs: dict[str, torch.Tensor]
    action_mask: dict[str, torch.Tensor]
    final_obs: dict[str, torch.Tensor]
    critic_obs: dict[str, torch.Tensor]
    final_critic_obs: dict[str, torch.Tensor]
    action: dict[str, torch.Tensor]
    reward: dict[str, torch.Tensor]
    active: dict[str, torch.Tensor]
    left: dict[str, torch.Tensor]
    episode_return: dict[str, torch.Tensor]
    terminated: torch.Tensor
    truncated: torch.Tensor
    episode_length: torch.Tensor

    @ordinary_modes()
    def __init__(
        self,
        batch: Batch,
        players: Mapping[str, Player],
        steps: int,
        final_obs: bool | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.batch, self.steps, self.shard = batch, steps, shard or Shard(batch.num_envs)
        self.player_of = dict(players)
        # generator of weights
        self.generator = torch.Generator().manual_seed(int(batch.executor.get(batch.seed)[0]))
        self.players = list({id(p): p for p in players.values()}.values())
        final_obs = batch.spec.time_limit == "truncates" if final_obs is None else final_obs
        self.device = torch.device(batch.executor.name)
        critic = [name for name, player in players.items() if getattr(player, "central", False)]
        each = row_bytes(batch.spec, batch.params, final_obs, critic=critic) * batch.num_envs
        batch.require_memory(each * steps, each, "num_steps", steps)
        self.buffers = Buffers(batch, steps, final_obs=final_obs, critic=critic)
        self._calls = batch.row_calls(self.buffers)
        self._moved: list[Any] = []
        for name in COLLECTED:
            arrays = getattr(self.buffers, name) or {}
            tensors = {key: as_torch(array, self._moved) for key, array in arrays.items()}
            setattr(self, name, tensors)
        for name in ("terminated", "truncated", "episode_length"):
            setattr(self, name, as_torch(getattr(self.buffers, name), self._moved))
        flat = self.buffers.episode_metrics.reshape(-1, *self.buffers.episode_metrics.shape[2:])
        self.metrics = {}
        for name in batch.spec.metrics:
            column = as_torch(member(flat, batch.metrics_dtype, name))
            self.metrics[name] = column.view(self.terminated.shape)
        self.iteration = zeros(self.device, 1, dtype=torch.int64)
        self.play: Collector | None = None
        self.on_step: Callable[[int], None] | None = None
        self.side_by_side = False
        self._look = self._prepare_look()
        self._carry = self._prepare_carry()
        for g in batch.groups:
            players[g.name].begin(self, g)
        self.carry_obs()

    def _prepare_look(self) -> np.ndarray:
        """Return ``struct Finite`` of the arrays that are tested for NaN and Inf."""
        self._watched = [
            ("obs", name, tensor) for name, tensor in self.obs.items() if tensor.is_floating_point()
        ]
        self._watched += [("critic_obs", name, tensor) for name, tensor in self.critic_obs.items()]
        self._watched += [("reward", name, tensor) for name, tensor in self.reward.items()]
        count, executor = len(self._watched), self.batch.executor
        stride = 4 if executor.max_team > 1 else 64  # numbers per element of the launch
        constants = ("ARRAYS", count), ("STRIDE", stride)
        self._finite = executor.build(assemble_file("train/finite", constants))
        self.nonfinite = zeros(self.device, count, dtype=torch.int64).fill_(NONE_FOUND)
        sizes = [tensor.numel() for _, _, tensor in self._watched]
        pointers = {f"values.{k}": tensor for k, (_, _, tensor) in enumerate(self._watched)}
        pointers |= {"iteration": self.iteration, "first": self.nonfinite}
        longs = {f"size.{k}": size for k, size in enumerate(sizes)}
        return make_call(begins(sizes, stride), pointers, longs)

    def _prepare_carry(self) -> np.ndarray:
        """Return ``struct Carry`` of the rows that are copied to the next rollout."""
        kinds = self.obs, self.critic_obs, self.action_mask
        rows = self._carried = [row for kind in kinds for row in kind.values()]
        unit = assemble_file("train/carry", (("ARRAYS", len(rows)),))
        self._carrying = self.batch.executor.build(unit)
        sizes = [row[0].numel() * row.element_size() for row in rows]
        pointers = {f"from.{k}": row[-1] for k, row in enumerate(rows)}
        pointers |= {f"to.{k}": row[0] for k, row in enumerate(rows)}
        longs = {f"bytes.{k}": size for k, size in enumerate(sizes)}
        return make_call(begins(sizes, CARRIED), pointers, longs)

    def carry_obs(self) -> None:
        """Copy the batch's current observation to the last row, as after a reset."""
        with self.stream():
            critic_obs = self.batch.observe().critic_obs if self.critic_obs else {}
            for name, seen in self.critic_obs.items():
                seen[-1].copy_(as_torch(critic_obs[name]))
            for name, obs in self.obs.items():
                current = as_torch(self.batch.current_obs[name])
                bits = current.dtype == torch.bool
                obs[-1].copy_(pack_bits(current) if bits else current)
            for name, mask in self.action_mask.items():
                mask[-1].copy_(as_torch(self.batch.current_mask[name]))

    def obs_rows(self, group: Group, t: int) -> torch.Tensor:
        """Return row t of all agents, (N * C, D), or (N * C, W) words of bits."""
        return self.obs[group.name][t].flatten(0, 1)

    def mask(self, group: Group, t: int) -> torch.Tensor | None:
        """Return the allowed choices of ``group`` in row t, (N, C, choices) bool.

        The result is None for groups without masks.
        """
        return self.action_mask[group.name][t] if group.mask else None

    def starts(self, t: int) -> torch.Tensor:
        """Return where row t is the first of an episode, (N,) bool.

        The previous step has ended an episode there. For t = 0 that is the last step of the
        previous rollout.
        """
        return self.terminated[t - 1] | self.truncated[t - 1]

    def agent_starts(self, group: Group, t: int, envs: slice = slice(None)) -> torch.Tensor:
        """Return ``starts`` for each agent of a group in some environments, (N * C,) bool."""
        return self.starts(t)[envs, None].expand(-1, group.count).reshape(-1)

    def stream(self) -> AbstractContextManager[Any]:
        """Return a context in which CuPy's kernels use torch's stream."""
        return torch_stream() if self.device.type == "cuda" else nullcontext()

    def collect(self) -> None:
        """Take T steps. Row 0 of ``obs`` is the last row of the previous rollout."""
        with torch.no_grad(), self.stream():
            if self.play is not None:
                self.play.collect()
            else:
                self._take_steps()
            elements = int(self._look[f"begin.{len(self._watched)}"])
            self._finite.launch("look_for_nonfinite", self._look, elements, 4 * elements)
            self._finite.launch("count_iteration", self._look, 1)

    def _take_steps(self) -> None:
        self.carry_rows()
        for t in range(self.steps):
            self.act(t)
            self.step(t)
            if self.on_step is not None:
                self.on_step(t)

    def carry_rows(self) -> None:
        """Copy the last row of the previous rollout to row 0."""
        pieces = int(self._carry[f"begin.{len(self._carried)}"])
        self._carrying.launch("carry", self._carry, pieces, 4 * pieces)

    def act(self, t: int) -> None:
        """Let all players write the actions of row t."""
        self.call_all([partial(player.act, self, t) for player in self.players])

    def step(self, t: int) -> None:
        """Take step t with the actions of row t.

        Raises:
            ParameterError: If torch has moved the rollout's memory, so that kernels would use other
                memory than players.
        """
        if self._moved:
            raise ParameterError(
                "torch has moved tensors of the rollout to other memory, as share_memory_() does, "
                "and sending them to another process. Send a copy: tensor.clone()"
            )
        self.batch.step_row(self._calls[t])

    def call_all(self, calls: list[Callable[[], Any]]) -> None:
        """Run the calls of different players one after another, or concurrently."""
        if self.side_by_side and noting():
            note_side_by_side(calls)
        elif self.side_by_side:
            side_by_side(calls)
        else:
            for call in calls:
                call()

    def describe_nonfinite(self, found: Sequence[int], envs: range) -> str | None:
        """Describe the first NaN or Inf and its position, or return None.

        Args:
            found: ``nonfinite`` as a list of ints on the host.
            envs: Global ids of the environments of the rank that found it.
        """
        places: list[Place] = []
        for number, (kind, name, tensor) in zip(found, self._watched, strict=True):
            if number != NONE_FOUND:
                iteration, index = number >> 40, number & (1 << 40) - 1
                shape = len(tensor), len(envs), *tensor.shape[2:]
                row, *at = (int(i) for i in np.unravel_index(index, shape))
                step = iteration * self.steps + row + (kind == "reward")
                places.append(Place(step, kind, name, *at))
        if not places:
            return None
        place = min(places, key=lambda place: (place.step, place.env, place.kind != "reward"))
        entry = "" if place.entry is None else f", entry {place.entry}"
        where = f"environment {envs[place.env]}, agent {place.agent}{entry}"
        return (
            f"the {place.kind} of {place.name!r} in {where}, after step {place.step} of this "
            f"environment"
        )


def begins(sizes: Sequence[int], each: int) -> dict[str, int]:
    """Return the first element of each array in a launch, and the end of the last array.

    Args:
        sizes: Sizes of the arrays.
        each: Size of one element of the launch.
    """
    counts = accumulate((-(-size // each) for size in sizes), initial=0)
    return {f"begin.{k}": count for k, count in enumerate(counts)}


def episodes_unit(batch: Batch) -> Unit:
    """Return the ``Unit`` of ``kernels/train/episodes.cu`` for a ``Batch``."""
    constants = ("AGENT_GROUPS", len(batch.groups)), ("COLUMNS", 1 + len(batch.spec.metrics))
    return assemble_file(
        "train/episodes", constants, team=min(batch.executor.max_team, EPISODE_THREADS)
    )


class LatestEpisodes:
    """Length, returns and metrics of each environment's latest episode, on the device.

    The mean over environments counts each environment once. A mean over the episodes that end in
    an interval would be biased if the environments started together, because short episodes end
    first and long ones later.

    Args:
        rollout: The ``Rollout``.

    Attributes:
        names: Names of the numbers, ``"length"`` first.
        values: (len(names), N) float32. The length is 0 if no episode has ended since the run
            began.
        count: () float64, number of episodes that have ended since the last report.
        summed: Names of tensors that are summed over the processes of a run.
    """

    summed = ("episodes",)

    def __init__(self, rollout: Rollout) -> None:
        self.rollout, batch = rollout, rollout.batch
        self.names = ["length", *(f"return.{g.name}" for g in batch.groups), *batch.spec.metrics]
        self.values = zeros(rollout.device, len(self.names), batch.num_envs)
        self.count = zeros(rollout.device, dtype=torch.float64)
        self._program = batch.executor.build(episodes_unit(batch))
        self._call = self._make_call()

    def _make_call(self) -> np.ndarray:
        """Return ``struct Episodes``."""
        r, n = self.rollout, self.rollout.batch.num_envs
        kinds = {"length": "int", **r.batch.spec.metrics}
        columns = {"length": r.episode_length, **r.metrics}
        ints = {"num_envs": n, "steps": r.steps}
        of_groups = list(enumerate(r.episode_return.values()))
        ints |= {f"agents.{g}": returns.shape[2] for g, returns in of_groups}
        ints |= {f"return_stride.{g}": returns.stride(1) for g, returns in of_groups}
        ints |= {f"stride.{name}": column.stride(1) for name, column in columns.items()}
        ints |= {f"whole.{name}": kind == "int" for name, kind in kinds.items()}
        pointers = {"terminated": r.terminated, "truncated": r.truncated}
        pointers |= {f"column.{name}": column for name, column in columns.items()}
        pointers |= {f"returns.{name}": returns for name, returns in r.episode_return.items()}
        return make_call(ints, pointers | {"count": self.count, "latest": self.values})

    def add(self) -> None:
        """Add the rollout's episodes. A return is the mean over the agents of its group."""
        r = self.rollout
        n = r.batch.num_envs
        with r.stream():
            self._program.launch("take_in_episodes", self._call, -(-n // EPISODE_ENVS), n * r.steps)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a checkpoint by name."""
        return {"episodes": self.count, "latest_episodes": self.values}

    def shared_out(self) -> dict[str, int]:
        """Return the dimension of the environments by name, for tensors that have one."""
        return {"latest_episodes": 1}
