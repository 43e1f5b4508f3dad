"""Common parts of PPO, A2C and PQN: rows of a rollout, calls of the policy, and checkpoints.

The algorithms themselves are in ``ppo.py``, ``a2c.py`` and ``pqn.py``.

Letters: T steps, N environments, C agents of a group, D observation entries, H action heads, M
entries of a hidden state, B = T * N * (agents of all groups that share the policy).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from cupydrive.algorithms.kernels.statistics import RunningMeanStd
from cupydrive.algorithms.networks import make_network, require_default_memory
from cupydrive.algorithms.rows import RowGather, check_rows, normalized_advantage, share_of_rows
from cupydrive.algorithms.scheduled_learner import ScheduledLearner
from cupydrive.algorithms.settings import RolloutSettings
from cupydrive.algorithms.step import adam, adam_tensors, compiled, settle, take_step
from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import as_torch, make_call, zeros
from cupydrive.executors.ranks import Ranks
from cupydrive.playing.players import PolicyPlayer
from cupydrive.playing.policy import (
    Distribution,
    Sampler,
    first_state,
    make_distribution,
    with_state,
)
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Player
from cupydrive.simulation.observations import network_input
from cupydrive.spec import Group

# Tensors of a step that is held for a later rollout, in the order of struct Advantages in
# kernels/train/advantages.cu.
HELD = (
    "held",
    "held_reward",
    "held_value",
    "held_log_prob",
    "held_obs",
    "held_action",
    "held_mask",
    "held_critic_obs",
)


class OnPolicyLearner(ScheduledLearner):
    """Base class of the learners of PPO, A2C and PQN. Subclasses implement ``update``.

    It plays and learns for one group, or for several with equal spaces. All its tensors are
    allocated once, so that a whole iteration can be captured in a CUDA graph.

    Args:
        config: ``PPO``, ``A2C`` or ``PQN``.
    """

    reported: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "grad_norm")
    ranks: Ranks
    distribution: Distribution

    def __init__(self, config: RolloutSettings) -> None:
        self.config = config
        self.groups = []
        self.samplers: dict[str, Sampler] = {}
        self.stored: dict[str, dict[str, Any]] = {}

    def check(self, groups: Sequence[Group], num_envs: int) -> None:
        """Raise ``ParameterError`` if the distribution does not fit the actions, or if the rows
        are not divisible into minibatches.
        """
        network = self.config.policy or self.config.network_for(groups[0])
        check_rows(self.config, groups, num_envs, network)

    # ---- memory ----

    def make(self, group: Group, rollout: Rollout) -> None:
        """Create the networks and all other tensors except rows.

        Torch's generator determines the weights.
        """
        config, device, self.ranks = self.config, rollout.device, rollout.shard.ranks
        self.distribution = make_distribution(group, config.distribution)
        self.policy = self.network(group, rollout)
        self.ask = with_state(self.policy)
        # the last entry of the sums counts
        self.begin_learning(config, group, rollout, len(self.reported) + 1)
        self.distribution.follow(self.scheduled)
        self.return_rms = RunningMeanStd((), device) if config.normalize_reward else None
        self.value_rms = RunningMeanStd((), device) if config.normalize_value else None
        self.value_center, self.value_scale = zeros(device), zeros(device).fill_(1.0)
        normalizes = config.normalize_obs and config.central
        self.critic_rms = RunningMeanStd((group.critic_obs_dim,), device) if normalizes else None
        self.reward_scale = torch.ones((), dtype=torch.float32, device=device)
        self.discounted: dict[str, torch.Tensor] = {}
        self.held: dict[str, dict[str, torch.Tensor]] = {}
        self.advantages = rollout.batch.executor.build(assemble_file("train/advantages"))
        self.make_optimizer(group, rollout)

    def network(self, group: Group, rollout: Rollout) -> nn.Module:
        """Create the network with its initial weights."""
        return make_network(self.config, group, self.distribution.size, rollout)

    def make_optimizer(self, group: Group, rollout: Rollout) -> None:
        """Create the functions and kernels of forward passes, minibatches and optimizer steps."""
        executor, how = rollout.batch.executor, self.config.compile
        self.optimizer, self.skip_update = adam(
            self.policy.parameters(), self.scheduled.learning_rate, self.config.rectified
        )
        self.shuffle = executor.build(assemble_file("train/shuffle"))
        self.gather = RowGather(executor)
        self.forward, self.loss, self.settle = (
            compiled(f, how) for f in (self._forward, self._loss, settle)
        )

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the optimizer's state by name, not copies."""
        return adam_tensors(self.optimizer)

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``, and allocate its rows.

        The first group determines the network.
        """
        n, steps, device = rollout.batch.num_envs, rollout.steps, rollout.device
        if not self.groups:
            self.make(group, rollout)
        self.groups.append(group)
        self.samplers[group.name] = Sampler(self.distribution, rollout.batch, group)
        shape, most = (steps, n, group.count), rollout.batch.params.max_episode_steps
        slots = (steps - 1) // most + 1 if rollout.final_obs else 0
        self.stored[group.name] = {
            **{name: zeros(device, *shape) for name in ("log_prob", "advantage", "returns")},
            "value": zeros(device, steps + 1, n, group.count),
            "final_value": zeros(device, slots, n, group.count),
            "truncated_at": zeros(device, slots, n, dtype=torch.int64),
            "raw": zeros(device, *shape, group.heads) if self.distribution.raw_size else None,
            "memory": first_state(self.ask, steps + 1, n * group.count, device),
        }
        if group.name in rollout.active:
            self.stored[group.name]["weight"] = zeros(device, *shape, dtype=torch.uint8)
            self.held[group.name] = self.held_steps(rollout, group)
        if self.config.normalize_reward:
            self.discounted[group.name] = zeros(device, n, group.count)

    def taken(self, rollout: Rollout, g: Group) -> torch.Tensor:
        """Return the sampled actions of all steps, (T, N, C, H), for a Box before squashing."""
        raw = self.stored[g.name]["raw"]
        return rollout.action[g.name] if raw is None else raw

    def held_steps(self, rollout: Rollout, g: Group) -> dict[str, torch.Tensor]:
        """Allocate one held step for each agent, named as in ``kernels/train/advantages.cu``."""
        row, mask = self.stored[g.name]["log_prob"][0], rollout.action_mask.get(g.name)
        like = [row.to(torch.uint8), row, row, row, rollout.obs[g.name][0]]
        like += [self.taken(rollout, g)[0], None if mask is None else mask[0]]
        like += [rollout.critic_obs[g.name][0] if self.central else None]
        # A policy that learns from sequences or whole environments does not learn from held steps.
        # It needs only their flags.
        like = like[:1] if self.ask.state_size or self.agents_per_row > 1 else like
        held = zip(HELD, like, strict=False)
        return {name: torch.zeros_like(tensor) for name, tensor in held if tensor is not None}

    def prepare(self, rollout: Rollout) -> None:
        """Validate the rollout's rows, after ``begin`` of all groups.

        Raises:
            ParameterError: If the network turns out to have a hidden state, and agents are not
                divisible into minibatches.
            MemoryLimitError: If the described network does not fit into memory with the rows of one
                gradient step.
        """
        check_rows(self.config, self.groups, rollout.shard.all_envs, self.ask)
        self.note_weights()
        if self.config.policy is None:
            rows = self.rows_at_once(rollout)
            whole = rows * getattr(self.config, "num_minibatches", 1) >= self.rows(rollout)
            envs = rollout.shard.all_envs if whole else None  # fewer do not reduce a tile of rows
            about = self.groups[0], self.distribution.size, rollout.batch
            require_default_memory(self.config, *about, rows, envs)

    @property
    def central(self) -> bool:
        """Whether rollouts store the observations of a centralized critic."""
        return self.config.central

    def rows(self, rollout: Rollout) -> int:
        """Return the number of rows of a rollout, B."""
        return rollout.steps * rollout.batch.num_envs * sum(g.count for g in self.groups)

    def rows_at_once(self, rollout: Rollout) -> int:
        """Return the number of rows of a minibatch, the largest forward pass in training."""
        part = -(-self.sequences(rollout) // getattr(self.config, "num_minibatches", 1))
        return part * self.together(rollout)

    # ---- calls of the policy ----

    def autocast(self) -> AbstractContextManager:
        """Return the context of matrix products in the configured precision."""
        if self.config.precision != "bfloat16":
            return nullcontext()
        return torch.autocast(self.skip_update.device.type, torch.bfloat16)

    def _forward(
        self,
        obs: torch.Tensor,
        memory: torch.Tensor | None = None,
        start: torch.Tensor | None = None,
        critic_obs: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return ``(parameters, value, memory)``, float32.

        Args:
            obs: Observations of a rollout, (B, D) or words of bits.
            memory: Hidden states, as in ``with_state``.
            start: Beginnings of episodes, as in ``with_state``.
            critic_obs: Observations of a centralized critic, (B, K), or None.
        """
        seen = network_input(self.groups[0], self.normalized(obs))
        central = {}
        if critic_obs is not None:
            rms = self.critic_rms
            central["critic_obs"] = critic_obs if rms is None else rms.normalized(critic_obs)
        with self.autocast():
            parameters, value, memory = self.ask(seen, memory, start, **central)
        return parameters.float(), value.float(), memory

    def remembered(
        self, rollout: Rollout, g: Group, t: int
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the hidden states (N * C, M) before row t, and where they must be reset first.

        Both are None for a policy without hidden state.
        """
        memory = self.stored[g.name]["memory"]
        if memory is None:
            return None, None
        if t == 0:  # `finish` has reset the states of episodes that ended in the previous rollout
            return memory[0], zeros(rollout.device, len(memory[0]), dtype=torch.bool)
        return memory[t], rollout.agent_starts(g, t)

    def critic_rows(self, rollout: Rollout, g: Group, t: int) -> torch.Tensor | None:
        """Return the observations of a centralized critic in row t, (N * C, K), or None without
        one.
        """
        return rollout.critic_obs[g.name][t].flatten(0, 1) if self.central else None

    def act(self, rollout: Rollout, t: int) -> None:
        """Write actions, log-probabilities and values of row t by the current policy."""
        for g in self.groups:
            stored, obs = self.stored[g.name], rollout.obs_rows(g, t)
            seen = *self.remembered(rollout, g, t), self.critic_rows(rollout, g, t)
            parameters, value, memory = self.forward(obs, *seen)
            rows = {"log_prob": stored["log_prob"][t], "value_row": stored["value"][t]}
            rows |= {
                "mask": rollout.mask(g, t),
                "raw": None if stored["raw"] is None else stored["raw"][t],
            }
            self.samplers[g.name](parameters, rollout.action[g.name][t], value=value, **rows)
            if memory is not None:
                stored["memory"][t + 1].copy_(memory)

    # ---- rows of a rollout ----

    def estimate(self, rollout: Rollout) -> None:
        """Compute advantages and returns of all groups."""
        with torch.no_grad(), rollout.stream():
            self.scale_rewards(rollout)
            for g in self.groups:
                self.estimate_group(rollout, g)

    def estimate_group(self, rollout: Rollout, g: Group) -> None:
        """Compute advantages and returns by ``kernels/train/advantages.cu``, a thread per agent."""
        stored, batch, name = self.stored[g.name], rollout.batch, g.name
        n, steps, slots = batch.num_envs, rollout.steps, len(stored["final_value"])
        if slots:
            pointers = {"truncated": rollout.truncated, "truncated_at": stored["truncated_at"]}
            call = make_call({"num_envs": n, "steps": steps, "slots": slots}, pointers)
            self.advantages.launch("truncations", call, n, n * steps)
        self.last_values(rollout, g)
        pointers = {
            "gamma": self.scheduled.gamma,
            "gae_lambda": getattr(self.scheduled, self.config.trace),
            "reward_scale": self.reward_scale,
            "reward": rollout.reward[name],
            "value_center": None if self.value_rms is None else self.value_center,
            "value_scale": self.value_scale,
            "value": stored["value"],
            "final_value": stored["final_value"] if slots else None,
            "terminated": rollout.terminated,
            "truncated": rollout.truncated,
            "active": rollout.active.get(name),
            "left": rollout.left.get(name),
            "advantage": stored["advantage"],
            "returns": stored["returns"],
            "weight": stored.get("weight"),
        }
        held = dict.fromkeys(HELD) | self.held.get(name, {})
        rows = {"obs": rollout.obs[name], "action": self.taken(rollout, g)}
        rows |= {"mask": rollout.action_mask.get(name), "log_prob": stored["log_prob"]}
        rows |= {"critic_obs": rollout.critic_obs.get(name)}
        pointers |= (rows if held["held_obs"] is not None else dict.fromkeys(rows)) | held
        ints = {"num_envs": n, "agents": g.count, "steps": steps, "slots": slots}
        obs_words = rollout.obs[name][0, 0, 0].nbytes // 4
        ints |= {"obs_dim": obs_words, "heads": g.heads, "choices": g.choices}
        ints |= {"critic_obs_dim": g.critic_obs_dim}
        kernel = "advantages_with_pauses" if name in rollout.active else "advantages"
        self.advantages.launch(kernel, make_call(ints, pointers), n * g.count, n * g.count * steps)

    def last_values(self, rollout: Rollout, g: Group) -> None:
        """Compute the values after the last step and of truncated episodes' final observations."""
        stored, n, steps = self.stored[g.name], rollout.batch.num_envs, rollout.steps
        obs, mask = rollout.obs_rows(g, -1), rollout.mask(g, -1)
        seen = *self.remembered(rollout, g, steps), self.critic_rows(rollout, g, -1)
        parameters, value, _ = self.forward(obs, *seen)
        value = self.distribution.value(
            parameters, value, None if mask is None else mask.flatten(0, 1)
        )
        stored["value"][-1].copy_(value.view(n, -1))
        slots = len(stored["final_value"])
        if slots:
            rows = (stored["truncated_at"] * n + torch.arange(n, device=rollout.device)).view(-1)
            final_obs = self.final_rows(rollout.final_obs, g, rows)
            critic_obs = self.final_rows(rollout.final_critic_obs, g, rows)
            memory = stored["memory"]
            if memory is not None:  # hidden state after the last step of the episode
                memory = (
                    memory[1:]
                    .view(steps * n, -1)
                    .index_select(0, rows)
                    .view(slots * n * g.count, -1)
                )
            seen = self.forward(final_obs, memory, None, critic_obs)[:2]
            value = self.distribution.value(*seen)
            stored["final_value"].copy_(value.view(slots, n, g.count))

    def final_rows(
        self, obs: dict[str, torch.Tensor], g: Group, rows: torch.Tensor
    ) -> torch.Tensor | None:
        """Return some rows of a group's observations, (b * C, D), or None without observations.

        Args:
            obs: (T, N, C, D) by group.
            g: The ``Group``.
            rows: (b,) indices in T * N.
        """
        if g.name not in obs:
            return None
        return obs[g.name].flatten(0, 1).index_select(0, rows).flatten(0, 1)

    def scale_rewards(self, rollout: Rollout) -> None:
        """Update the discounted return of each agent, and set the reward scale of all groups.

        The scale is the reciprocal of the running standard deviation of these returns.
        """
        if self.return_rms is None or self.statistics is None:
            return
        gamma = self.scheduled.gamma
        for g in self.groups:
            # flags from the previous rollout, since they are written later
            held = self.held.get(g.name, {}).get("held")
            running = self.discounted[g.name]
            self.statistics.update(
                self.return_rms, *self.statistics.returns(rollout, g.name, running, gamma, held)
            )
        self.statistics.scale(self.return_rms, None, self.reward_scale)

    def normalize_returns(self, rollout: Rollout) -> None:
        """Update the running mean and deviation of returns, and normalize the returns."""
        if self.value_rms is None or self.statistics is None:
            return
        for stored in self.stored.values():
            rows, weight = stored["returns"][..., None], stored.get("weight")
            self.statistics.update(self.value_rms, rows, weight)
        self.statistics.scale(self.value_rms, self.value_center, self.value_scale)
        for stored in self.stored.values():
            stored["returns"].sub_(self.value_center).mul_(self.value_scale)

    def flat(self, rollout: Rollout) -> dict[str, torch.Tensor]:
        """Return the rows to learn from, B by name, ordered by group.

        The rows of a policy with hidden state are ordered by time, then by agents of all groups:
        row t * S + s is step t of agent s. With ``normalize_value`` returns are normalized first.
        """
        with torch.no_grad(), rollout.stream():
            self.normalize_returns(rollout)
        parts: dict[str, list[torch.Tensor]] = {}
        leaving = any(g.name in rollout.active for g in self.groups)
        masked = any(g.mask for g in self.groups)
        for g in self.groups:
            stored, name = self.stored[g.name], g.name
            weight = stored["weight"] if "weight" in stored else torch.ones_like(stored["log_prob"])
            mask = rollout.action_mask[name][:-1] if g.mask else None
            if masked and mask is None:  # all choices are allowed
                mask = weight.new_ones(*weight.shape, g.choices, dtype=torch.bool)
            columns = {
                "obs": rollout.obs[name][:-1].flatten(0, 2),
                "action": self.taken(rollout, g).view(-1, g.heads),
                "weight": (weight == 1).view(-1).float() if leaving else None,
                "value_weight": (weight > 0).view(-1).float() if leaving else None,
                "mask": None if mask is None else mask.view(-1, g.choices),
                "critic_obs": rollout.critic_obs[name][:-1].flatten(0, 2) if self.central else None,
                **{key: stored[key].view(-1) for key in ("log_prob", "advantage", "returns")},
                "value": stored["value"][:-1].view(-1),
            }
            if stored["memory"] is not None:
                columns["memory"] = stored["memory"][:-1].flatten(0, 1)
                columns["start"] = torch.cat(
                    [self.remembered(rollout, g, t)[1] for t in range(rollout.steps)]
                )
                columns = {
                    key: c.unflatten(0, (rollout.steps, -1))
                    for key, c in columns.items()
                    if c is not None
                }
            for key, column in columns.items():
                if column is not None:
                    parts.setdefault(key, []).append(column)
        if "memory" in parts:
            return {key: torch.cat(columns, 1).flatten(0, 1) for key, columns in parts.items()}
        return {
            key: columns[0] if len(columns) == 1 else torch.cat(columns)
            for key, columns in parts.items()
        }

    @property
    def agents_per_row(self) -> int:
        """C of a policy that takes whole environments, otherwise 1."""
        return getattr(self.ask, "agents_per_row", 1)

    def together(self, rollout: Rollout) -> int:
        """Return the number of rows that minibatches keep together.

        These are the steps of an agent if there is a hidden state, and the agents of an environment
        if the policy takes whole environments.
        """
        return self.agents_per_row * (rollout.steps if self.ask.state_size else 1)

    def sequences(self, rollout: Rollout) -> int:
        """Return the number of units that minibatches shuffle."""
        return self.rows(rollout) // self.together(rollout)

    def permutation(self, rollout: Rollout, draw: int) -> torch.Tensor:
        """Return a random permutation of all units, number ``draw`` of this iteration."""
        size = self.sequences(rollout)
        index = torch.empty(size, dtype=torch.int64, device=rollout.device)
        pointers = {"seed": as_torch(rollout.batch.seed), "count": self.iteration, "index": index}
        call = make_call({"size": size, "draw": draw}, pointers)
        with rollout.stream():
            self.shuffle.launch("shuffle", call, size, size)
        return index

    def minibatch(
        self, rollout: Rollout, rows: dict[str, torch.Tensor], chosen: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the rows of a minibatch.

        Args:
            rollout: ``Rollout``.
            rows: Rows by name.
            chosen: (b,) indices of rows, or of agents for a policy with hidden state.

        Returns:
            b rows by name, or T * b rows ordered by time.
        """
        if self.agents_per_row > 1:
            agents = torch.arange(self.agents_per_row, device=rollout.device)
            chosen = (chosen[:, None] * self.agents_per_row + agents).view(-1)
        if self.ask.state_size:
            steps = torch.arange(rollout.steps, device=rollout.device)
            first = self.rows(rollout) // rollout.steps * steps
            chosen = (first[:, None] + chosen).view(-1)
        with rollout.stream():
            return self.gather(rows, chosen)

    @property
    def tolerance(self) -> float:
        """Allowed relative difference between acting and learning with equal weights.

        It applies to log-probabilities and values. Torch's order of summation depends on the number
        of rows.
        """
        return 2e-2 if self.config.precision == "bfloat16" else 1e-4

    def replayed(self, rollout: Rollout) -> dict[str, torch.Tensor]:
        """Recompute log-probabilities and values of a rollout as learning does.

        Returns:
            (2, T, N, C) by group, for the current weights.
        """
        rows, count = self.flat(rollout), getattr(self.config, "num_minibatches", 1)
        size = len(rows["log_prob"])
        rows["row"] = torch.arange(size, device=rollout.device)
        again = compiled(self.again, self.config.compile)
        found = torch.empty(2, size, dtype=torch.float32, device=rollout.device)
        for chosen in self.permutation(rollout, 0).tensor_split(count):
            part = self.minibatch(rollout, rows, chosen)
            parameters, value, _ = again(part)
            mask = part.get("mask")
            log_prob, _ = self.distribution.log_prob_and_entropy(parameters, part["action"], mask)
            value = self.distribution.value(parameters, value, mask)
            found[:, part["row"]] = torch.stack([log_prob, value]).detach()
        n, steps = rollout.batch.num_envs, rollout.steps
        if "memory" in rows:
            agents = found.view(2, steps, -1).split([n * g.count for g in self.groups], 2)
        else:
            agents = found.split([steps * n * g.count for g in self.groups], 1)
        return {
            g.name: part.reshape(2, steps, n, g.count)
            for g, part in zip(self.groups, agents, strict=True)
        }

    # ---- one optimizer step ----

    def update(self, rollout: Rollout) -> None:
        """Learn from the rollout."""
        raise NotImplementedError

    def _loss(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the losses of rows by name. ``loss`` is minimized."""
        raise NotImplementedError

    def again(
        self, rows: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Apply the policy to rows.

        Returns:
            Parameters, values (b,), and the hidden states after the rows.
        """
        memory, start, critic_obs = (rows.get(name) for name in ("memory", "start", "critic_obs"))
        if memory is not None and start is not None:
            memory = memory[: start.numel() // self.config.num_steps]
        return self._forward(rows["obs"], memory, start, critic_obs)

    def learn(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Take a gradient step on a minibatch.

        Advantages are normalized first if ``norm_adv`` is set. The step is skipped if a number is
        non-finite or ``skip_update`` is 1.

        Returns:
            Reported metrics by name.
        """
        weight, ranks, share = rows.get("weight"), None, None
        if self.config.norm_adv:
            rows = rows | {"advantage": normalized_advantage(rows["advantage"], weight, self.ranks)}
        if not self.ranks.alone:
            ranks, share = self.ranks, share_of_rows(rows["advantage"], weight, self.ranks)
        losses = self.loss(rows)
        reported = [losses.get(name) for name in self.reported]  # None stands for the gradient norm
        about = self.scheduled.max_grad_norm, self.bad, self.metric_sums, ranks, share
        found = take_step(self.optimizer, losses["loss"], reported, self.settle, *about)
        return dict(zip(self.reported, found, strict=True))

    def finish(self, rollout: Rollout) -> None:
        """Update the statistics of observations, hidden states and the count of iterations.

        The iteration itself has used the previous statistics.
        """
        with torch.no_grad():
            self.update_statistics(self.obs_rms, rollout, rollout.obs)
            self.update_statistics(self.critic_rms, rollout, rollout.critic_obs)
            for g in self.groups:
                memory = self.stored[g.name]["memory"]
                # reset now, since a checkpoint does not contain the ends of episodes
                if memory is not None:
                    over = rollout.agent_starts(g, rollout.steps)
                    memory[0].copy_(memory[-1].masked_fill(over[:, None], 0.0))
            self.count()

    def count(self) -> None:
        """Count the iteration."""
        self.iteration += 1

    def losses(self, sums: Sequence[float]) -> dict[str, float]:
        """Return mean losses by name from ``metric_sums`` as a list."""
        if not sums[-1]:
            return {}
        return {name: x / sums[-1] for name, x in zip(self.reported, sums, strict=False)}

    # ---- results ----

    def acting(self, greedy: bool) -> Player:
        """Return a player that follows the current policy without learning."""
        return PolicyPlayer(self.policy, self.distribution, greedy, self.obs_rms)

    def module(self, rollout: Rollout, group: Group) -> nn.Module:
        """Return the policy for ``group`` as a module from raw observations to actions.

        The module shares the policy's tensors.
        """
        return self.distribution.module(self.policy, group, self.obs_rms)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a checkpoint by name."""
        kept = {
            f"policy.{key}": value for key, value in self.policy.state_dict(keep_vars=True).items()
        }
        kept |= {f"optimizer.{key}": value for key, value in self.optimizer_tensors().items()}
        kept |= {"iteration": self.iteration, "metric_sums": self.metric_sums}
        kept["reward_scale"] = self.reward_scale
        moments = {"obs": self.obs_rms, "return": self.return_rms}
        moments |= {"critic_obs": self.critic_rms, "value": self.value_rms}
        for name, rms in moments.items():
            if rms is not None:
                kept |= {f"{name}_moments.{key}": value for key, value in rms.tensors().items()}
        if self.value_rms is not None:
            kept |= {"value_center": self.value_center, "value_scale": self.value_scale}
        for name, stored in self.stored.items():
            if stored["memory"] is not None:
                kept[f"memory.{name}"] = stored["memory"][0]
        for name, held in self.held.items():
            kept |= {f"held.{name}.{key}": tensor for key, tensor in held.items()}
        return kept | {f"discounted.{name}": value for name, value in self.discounted.items()}
