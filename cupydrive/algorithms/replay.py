"""Replay buffer on the device: a ring buffer of the transitions of all agents.

Letters: T steps of one iteration, N environments, C agents of a group, D observation entries, H
action entries, A agents of all groups and environments.
"""

from __future__ import annotations

import math

import torch

from cupydrive.algorithms.rows import RowGather
from cupydrive.codegen.source import assemble_file
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_torch, make_call, zeros
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group


def transitions(
    rollout: Rollout, groups: list[Group], low: torch.Tensor, span: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the transitions of a rollout by name, (T, A, ...) float32, ordered by group.

    Args:
        rollout: ``Rollout`` of T steps.
        groups: Its ``Group``s, with equal spaces.
        low: (H,) lowest actions.
        span: (H,) difference between the highest and the lowest actions.

    Returns:
        ``obs`` (T, A, D). ``next_obs`` (T, A, D), which is the observation before the autoreset if
        the time limit truncated the episode. ``action`` (T, A, H), scaled to [-1, 1]. ``reward``
        (T, A). ``end`` (T, A), 1 if no reward can follow. ``weight`` (T, A), 1 for rows to learn
        from. If agents may be inactive, ``join_active_steps`` changes these, and adds ``active``
        and ``complete``.
    """
    parts = []
    for g in groups:
        obs, reward = rollout.obs[g.name], rollout.reward[g.name]
        over, next_obs = rollout.terminated[..., None].expand(-1, -1, g.count), obs[1:]
        if rollout.final_obs:
            truncated = rollout.truncated[..., None, None]
            next_obs = torch.where(truncated, rollout.final_obs[g.name], next_obs)
        part = {
            "obs": obs[:-1],
            "next_obs": next_obs,
            "action": 2 * (rollout.action[g.name] - low) / span - 1,
            "reward": reward,
            "end": over.float(),
            "weight": torch.ones_like(reward),
        }
        if g.name in rollout.active:
            join_active_steps(part, rollout, g)
        elif rollout.active:
            part |= dict.fromkeys(("active", "complete"), torch.ones_like(reward, dtype=torch.bool))
        parts.append({name: column.flatten(1, 2) for name, column in part.items()})
    return {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}


def join_active_steps(part: dict[str, torch.Tensor], rollout: Rollout, g: Group) -> None:
    """Replace the transitions of one group by those between consecutive active steps of an agent.

    Rewards of the inactive steps in between are added to the first active step. The last active
    step in the rollout is complete if its episode has ended. Otherwise the replay buffer completes
    it from row 0 of the next rollout.

    Args:
        part: Transitions, (T, N, C, ...) by name, changed in place. ``active`` and ``complete``,
            (T, N, C) bool, are added.
        rollout: ``Rollout``.
        g: The ``Group``.

    """
    active, left = rollout.active[g.name], rollout.left[g.name]
    part["end"] = torch.maximum(part["end"], left.float())
    over = (rollout.terminated | rollout.truncated)[..., None].expand_as(active)
    part["complete"] = over.clone()
    for name in ("next_obs", "reward", "end"):
        part[name] = part[name].clone()
    for t in reversed(range(len(active) - 1)):
        pauses = ~over[t] & ~active[t + 1]
        part["next_obs"][t] = torch.where(
            pauses[..., None], part["next_obs"][t + 1], part["next_obs"][t]
        )
        part["end"][t] = torch.where(pauses & ~left[t], part["end"][t + 1], part["end"][t])
        part["reward"][t] += torch.where(pauses, part["reward"][t + 1], 0.0)
        part["complete"][t] = ~pauses | part["complete"][t + 1]
    learned = active & (part["complete"] | left)
    learned[-1] = active[-1]  # the agent may be active in the step after the rollout
    part |= {"active": active, "weight": learned.float()}


def buffer_slots(size: int, agents: int, steps: int) -> int:
    """Return the capacity of a buffer in rows of ``agents`` transitions.

    Raises:
        ParameterError: If it is lower than the ``steps`` of one iteration.
    """
    slots = size // agents
    if slots < steps:
        raise ParameterError(
            f"buffer_size = {size:,} holds less than one iteration of {steps * agents:,} "
            "transitions (steps x environments x agents). Raise it, or lower num_envs or num_steps"
        )
    return slots


class ReplayBuffer:
    """Ring buffer of the latest transitions of all agents, in rows of A transitions.

    Args:
        rollout: ``Rollout`` of the transitions.
        groups: ``Group``s that learn together.
        size: Capacity in transitions, rounded down to whole rows.

    Attributes:
        columns: (rows, A, ...) float32 by name.
        written: (1,) int64, total number of rows written.
        filled: (1,) int64, number of stored transitions.
        open: (A,) int64. For an agent whose last transition is incomplete, its row plus 1.
            Otherwise
            0. None if agents are always active.

    Raises:
        ParameterError: If it does not hold one iteration.
        MemoryLimitError: If it does not fit into memory.
    """

    def __init__(self, rollout: Rollout, groups: list[Group], size: int) -> None:
        batch, device, g = rollout.batch, rollout.device, groups[0]
        self.agents = batch.num_envs * sum(group.count for group in groups)
        self.slots = buffer_slots(size, self.agents, rollout.steps)
        widths: dict[str, tuple[int, ...]] = dict.fromkeys(("obs", "next_obs"), (g.obs_dim,))
        widths |= {"action": (g.heads,), "reward": (), "end": (), "weight": ()}
        each = 4 * sum(math.prod(width) for width in widths.values())
        batch.require_memory(each * self.slots * self.agents, each, "buffer_size", size)
        shape = (self.slots, self.agents)
        self.columns = {name: zeros(device, *shape, *width) for name, width in widths.items()}
        self.written, self.filled = (zeros(device, 1, dtype=torch.int64) for _ in range(2))
        pauses = any(group.name in rollout.active for group in groups)
        self.open = zeros(device, self.agents, dtype=torch.int64) if pauses else None
        self.draws = batch.executor.build(assemble_file("train/shuffle"))
        self.gather = RowGather(batch.executor)

    def store(self, new: dict[str, torch.Tensor]) -> None:
        """Overwrite the oldest transitions by new ones, (T, A, ...) by name."""
        steps = len(new["reward"])
        self.complete(new)
        slots = (self.written + torch.arange(steps, device=self.written.device)) % self.slots
        for name, column in self.columns.items():
            column.index_copy_(0, slots, new[name])
        self.written += steps
        self.filled.copy_(self.written.clamp(max=self.slots) * self.agents)

    def complete(self, new: dict[str, torch.Tensor]) -> None:
        """Complete open transitions from the first of the new ones, (T, A, ...) by name."""
        if self.open is None:
            return
        active, complete = new["active"], new["complete"]
        agents = torch.arange(self.agents, device=self.open.device)
        at = (self.open - 1) % self.slots, agents
        there = (self.open > 0) & (self.open > self.written - self.slots)
        paused, learned = there & ~active[0], there & (active[0] | complete[0])
        stays = paused & (self.columns["end"][at] == 0)  # the agent has not left
        self.columns["reward"][at] += torch.where(paused, new["reward"][0], 0.0)
        for name, mask in {"next_obs": stays[:, None], "end": stays}.items():
            self.columns[name][at] = torch.where(mask, new[name][0], self.columns[name][at])
        self.columns["weight"][at] = torch.where(learned, 1.0, self.columns["weight"][at])
        opened, last = (active & ~complete).max(0)
        closed = torch.where(active[0] | complete[0], 0, self.open)
        self.open.copy_(torch.where(opened, self.written + last + 1, closed))

    def sample(
        self, rollout: Rollout, size: int, iteration: torch.Tensor, draw: int
    ) -> dict[str, torch.Tensor]:
        """Draw ``size`` random transitions with replacement.

        Args:
            rollout: ``Rollout``, whose seed is used.
            size: Number of transitions, B.
            iteration: (1,) int64, number of the iteration.
            draw: Number of the minibatch within the iteration.

        Returns:
            (B, ...) by name.
        """
        index = torch.empty(size, dtype=torch.int64, device=self.filled.device)
        pointers = {"seed": as_torch(rollout.batch.seed), "count": iteration}
        call = make_call(
            {"size": size, "draw": draw}, pointers | {"limit": self.filled, "index": index}
        )
        columns = {name: column.flatten(0, 1) for name, column in self.columns.items()}
        with rollout.stream():
            self.draws.launch("draw", call, size, size)
            return self.gather(columns, index)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a checkpoint by name."""
        kept = {"written": self.written, "filled": self.filled}
        kept |= {} if self.open is None else {"held.open": self.open}
        return kept | {f"replay.{name}": column for name, column in self.columns.items()}
