"""Deep deterministic policy gradient.

Source: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning"; names as in CleanRL.
Letters: T steps of one iteration, N environments, C agents of a group, D observation entries, H action numbers.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn

from cupydrive.codegen.source import assemble_file, box_bounds
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_torch, make_call
from cupydrive.playing.inference import DeterministicPolicy
from cupydrive.playing.players import DeterministicPlayer
from cupydrive.playing.policy import ACTIVATIONS, mlp
from cupydrive.training.algorithms.gather import RowGather
from cupydrive.training.algorithms.settings import (
    Settings,
    choice,
    integer,
    number,
    require_network_memory,
    schedule,
)
from cupydrive.training.algorithms.step import adam, adam_tensors, settle, take_step
from cupydrive.training.normalize import RunningMeanStd
from cupydrive.training.schedule import Schedule, Scheduled


@dataclass(frozen=True, kw_only=True)
class DDPG(Settings):
    """Settings of DDPG.

    Args:
        learning_rate: Of the critic.
        actor_learning_rate: Of the actor.
        num_steps: T, steps of each environment in one iteration.
        updates: Gradient steps in one iteration.
        gamma: Discount.
        tau: Share of the new weights that target networks take over in each gradient step.
        batch_size: Transitions of one gradient step.
        buffer_size: Transitions that the replay buffer holds; rounded down to whole rows of all agents.
        learning_starts: Transitions to collect before learning; until then actions are uniform.
        exploration_noise: Deviation of the noise, in units of half the action's range.
        noise_damping: 1: independent Gaussian noise; less: Ornstein-Uhlenbeck noise, reset with the episode.
        max_grad_norm: Gradients are scaled down to this norm.
        normalize_obs: Running mean 0 and deviation 1 of each observation entry.
        hidden: Width of each hidden layer.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``.
    """

    learning_rate: Schedule = schedule(1e-3, 0.0, positive=True)
    actor_learning_rate: Schedule = schedule(3e-4, 0.0, positive=True)
    num_steps: int = integer(4)
    updates: int = integer(4)
    gamma: Schedule = schedule(0.99, 0.0, 1.0)
    tau: Schedule = schedule(0.005, 0.0, 1.0, positive=True)
    batch_size: int = integer(4096)
    buffer_size: int = integer(1_000_000)
    learning_starts: int = integer(25_000)
    exploration_noise: float = number(0.1, 0.0)
    noise_damping: float = number(1.0, 0.0, 1.0, above=True)
    max_grad_norm: Schedule = schedule(10.0, 0.0, positive=True)
    normalize_obs: bool = False
    hidden: tuple[int, ...] = (256, 256)
    activation: str = choice("relu", *ACTIVATIONS)

    name = "ddpg"

    def learner(self):
        """Return the learner of one policy."""
        return DDPGLearner(self)


class Actor(nn.Module):
    """Observations (B, D) to actions (B, H) in [-1, 1]."""

    def __init__(self, obs_dim, heads, hidden, activation):
        super().__init__()
        self.body = mlp((obs_dim, *hidden, heads), activation, 0.01)

    def forward(self, obs):
        """Return ``(actions, None)``: a policy's call, without a value."""
        return torch.tanh(self.body(obs)), None


class Critic(nn.Module):
    """Observations (B, D) and actions (B, H) in [-1, 1] to values (B,)."""

    def __init__(self, obs_dim, heads, hidden, activation):
        super().__init__()
        self.body = mlp((obs_dim + heads, *hidden, 1), activation, 1.0)

    def forward(self, obs, action):
        """Return the value of each row."""
        return self.body(torch.cat([obs, action], dim=1))[:, 0]


class DDPGLearner:
    """An actor and a critic that learn from a replay buffer on the device.

    Args:
        config: ``DDPG``.
    """

    def __init__(self, config):
        self.config = config
        self.groups, self.calls, self.noise, self.replay = [], {}, {}, {}

    # ---- playing ----

    def begin(self, rollout, group):
        """Prepare to play ``group``; the first group decides the networks."""
        if not group.continuous:
            raise ParameterError(
                f"DDPG needs a Box of actions; group {group.name!r} has {group.action_space}. Use PPO or A2C"
            )
        if not self.groups:
            self.make(group, rollout)
        self.groups.append(group)
        batch, device = rollout.batch, rollout.device
        noise = self.noise[group.name] = torch.zeros((batch.num_envs, group.count, group.heads), device=device)
        before = [g.count for g in batch.groups[: [g.name for g in batch.groups].index(group.name)]]
        ints = {
            "num_envs": batch.num_envs,
            "agents": group.count,
            "first_env": batch.first_env,
            "first_agent": sum(before),
        }
        pointers = {
            "seed": as_torch(batch.seed),
            "clock": None,
            "noise_settings": self.noise_settings,
            "started": self.started,
            "mean": None,
            "noise": noise,
            "action": None,
        }
        self.calls[group.name] = make_call(ints, pointers)
        self.calls[group.name]["clock"] = batch.executor.pointer(batch.clock)

    def make(self, group, rollout):
        """Make the networks and everything that learning keeps besides rollouts."""
        config, device, batch = self.config, rollout.device, rollout.batch
        shape = (group.obs_dim, group.heads, config.hidden, config.activation)
        inner, both = (group.obs_dim, *config.hidden), (group.obs_dim + group.heads, *config.hidden)
        networks = [(*inner, group.heads), (*both, 1)] * 2  # the targets need less: they have no gradients
        require_network_memory(f"DDPG.hidden = {config.hidden}", batch, config.batch_size, networks)
        self.policy, self.critic = Actor(*shape).to(device), Critic(*shape).to(device)
        self.target_policy, self.target_critic = Actor(*shape).to(device), Critic(*shape).to(device)
        self.target_policy.load_state_dict(self.policy.state_dict())
        self.target_critic.load_state_dict(self.critic.state_dict())
        self.scheduled = Scheduled(config, device)
        self.actor_optimizer, self.actor_skip = adam(self.policy.parameters(), self.scheduled.actor_learning_rate)
        self.critic_optimizer, self.critic_skip = adam(self.critic.parameters(), self.scheduled.learning_rate)
        self.iteration = torch.zeros(1, dtype=torch.int64, device=device)
        self.written = torch.zeros(1, dtype=torch.int64, device=device)  # slots of the replay buffer, ever
        self.filled = torch.zeros(1, dtype=torch.int64, device=device)  # transitions in the buffer
        self.bad = torch.zeros((), device=device)
        self.obs_rms = RunningMeanStd((group.obs_dim,), device) if config.normalize_obs else None
        self.started = torch.zeros(1, device=device)
        self.noise_settings = torch.tensor([config.noise_damping, config.exploration_noise], device=device)
        self.low = torch.as_tensor(group.action_space.low, device=device)
        self.span = torch.as_tensor(group.action_space.high - group.action_space.low, device=device)
        self.metric_sums = torch.zeros(3 + 2, device=device)  # the critic's and their count, the actor's and its count
        constants = (("HEADS", group.heads), ("SQUASHED", 0))
        self.explore = batch.executor.build(assemble_file("train/gaussian", constants, box_bounds(group.action_space)))
        self.draws = batch.executor.build(assemble_file("train/shuffle"))
        self.gather = RowGather(batch.executor)

    def prepare(self, rollout):
        """Allocate the replay buffer: rows of T, ring-shaped.

        Raises:
            ParameterError: If it does not hold one iteration.
            MemoryLimitError: If it does not fit into memory.
        """
        config, g = self.config, self.groups[0]
        self.agents = rollout.batch.num_envs * sum(group.count for group in self.groups)
        self.slots = config.buffer_size // self.agents
        if self.slots < rollout.steps:
            raise ParameterError(
                f"buffer_size = {config.buffer_size:,} holds less than one iteration of {rollout.steps * self.agents:,} "
                "transitions (steps x environments x agents); raise it, or lower num_envs or num_steps"
            )
        widths = {
            "obs": (g.obs_dim,),
            "next_obs": (g.obs_dim,),
            "action": (g.heads,),
            "reward": (),
            "end": (),
            "weight": (),
        }
        each = 4 * sum(math.prod(width) for width in widths.values())
        needed = each * self.slots * self.agents
        rollout.batch.require_memory(needed, each, "buffer_size", config.buffer_size)
        shape = (self.slots, self.agents)
        self.replay = {name: torch.zeros((*shape, *width), device=rollout.device) for name, width in widths.items()}

    def rows_at_once(self, rollout):
        """Return the rows of a minibatch."""
        return self.config.batch_size

    def schedule(self, step):
        """Write the settings as they are after ``step`` env-steps."""
        self.scheduled.set(step)

    @property
    def learning_rate(self):
        """The critic's rate that was written last."""
        return self.scheduled.now("learning_rate")

    def normalized(self, obs):
        """Return observations (B, D) as the networks see them."""
        return obs if self.obs_rms is None else self.obs_rms.normalized(obs)

    def act(self, rollout, t):
        """Write the actions of row t, with exploration noise."""
        for g in self.groups:
            mean, _ = self.policy(self.normalized(rollout.obs[g.name][t].view(-1, g.obs_dim)))
            call = self.calls[g.name]
            call["mean"], call["action"] = mean.data_ptr(), rollout.action[g.name][t].data_ptr()
            rows = rollout.batch.num_envs * g.count
            self.explore.launch("explore", call, rows, rows * g.heads)

    # ---- learning ----

    def update(self, rollout):
        """Store the rollout and take ``updates`` gradient steps."""
        config = self.config
        with torch.no_grad():
            self._store(rollout)
            waiting = (self.filled < config.learning_starts)[0].float()
        for k in range(config.updates):
            rows = self._drawn(rollout, k)
            for skip in (self.actor_skip, self.critic_skip):
                skip.copy_(waiting)
            self._descend(rows)
        with torch.no_grad():
            self.started.copy_(1.0 - waiting)
            if self.obs_rms is not None:
                for g in self.groups:
                    self.obs_rms.update(rollout.obs[g.name][1:].view(-1, g.obs_dim))
            self.iteration += 1

    def _store(self, rollout):
        """Write the rollout's transitions over the oldest ones."""
        steps = rollout.steps
        columns = {name: [] for name in self.replay}
        for g in self.groups:
            name = g.name
            over = rollout.terminated[..., None].expand(-1, -1, g.count)
            truncated = rollout.truncated[..., None, None]
            after = rollout.obs[name][1:]
            columns["obs"].append(rollout.obs[name][:-1])
            columns["next_obs"].append(
                torch.where(truncated, rollout.final_obs[name], after) if rollout.final_obs else after
            )
            columns["action"].append(2 * (rollout.action[name] - self.low) / self.span - 1)
            columns["reward"].append(rollout.reward[name])
            columns["end"].append((over | rollout.left[name] if g.leaves else over).float())
            columns["weight"].append(
                rollout.active[name].float() if g.leaves else torch.ones_like(rollout.reward[name])
            )
        slots = (self.written + torch.arange(steps, device=rollout.device)) % self.slots
        for name, parts in columns.items():
            column = torch.cat([part.reshape(steps, -1, *part.shape[3:]) for part in parts], dim=1)
            self.replay[name].index_copy_(0, slots, column)
        self.written += steps
        self.filled.copy_(self.written.clamp(max=self.slots) * self.agents)

    def _drawn(self, rollout, k):
        """Return a random minibatch of the replay buffer."""
        size = self.config.batch_size
        index = torch.empty(size, dtype=torch.int64, device=rollout.device)
        pointers = {"seed": as_torch(rollout.batch.seed), "count": self.iteration, "limit": self.filled, "index": index}
        with rollout.stream():
            self.draws.launch("draw", make_call({"size": size, "draw": k}, pointers), size, size)
            return self.gather({name: array.flatten(0, 1) for name, array in self.replay.items()}, index)

    def critic_loss(self, rows):
        """Return the mean squared error to the targets, and the mean value."""
        with torch.no_grad():
            next_obs = self.normalized(rows["next_obs"])
            next_value = self.target_critic(next_obs, self.target_policy(next_obs)[0])
            target = rows["reward"] + self.scheduled.gamma * (1.0 - rows["end"]) * next_value
        value = self.critic(self.normalized(rows["obs"]), rows["action"])
        count = rows["weight"].sum().clamp(min=1.0)
        return (rows["weight"] * (value - target) ** 2).sum() / count, (rows["weight"] * value).sum() / count

    def actor_loss(self, rows):
        """Return minus the critic's mean value of the actor's own actions."""
        obs = self.normalized(rows["obs"])
        value = self.critic(obs, self.policy(obs)[0])
        return -(rows["weight"] * value).sum() / rows["weight"].sum().clamp(min=1.0)

    def _descend(self, rows):
        """One step of the critic, one of the actor, and the targets a little nearer."""
        max_norm = self.scheduled.max_grad_norm
        loss, value = self.critic_loss(rows)
        take_step(self.critic_optimizer, loss, [loss, value], settle, max_norm, self.bad, self.metric_sums[:3])
        # Gradients of the actor's loss are taken for the actor's weights alone: the critic's stay as they are.
        actor_loss = self.actor_loss(rows)
        take_step(self.actor_optimizer, actor_loss, [actor_loss], settle, max_norm, self.bad, self.metric_sums[3:])
        with torch.no_grad():
            share = self.scheduled.tau * (1.0 - self.critic_skip)
            for target, network in ((self.target_policy, self.policy), (self.target_critic, self.critic)):
                for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
                    slow.lerp_(fast, share)

    @staticmethod
    def losses(sums):
        """Return mean losses by name from ``metric_sums`` as a list."""
        found = dict(zip(("qf_loss", "qf_values"), (x / sums[2] for x in sums[:2] if sums[2]), strict=False))
        return found | ({"actor_loss": sums[3] / sums[4]} if sums[4] else {})

    # ---- keeping ----

    def acting(self, greedy):
        """Return a player that acts as the policy does now, without learning and without noise."""
        return DeterministicPlayer(self.policy, self.obs_rms)

    def module(self, rollout, group):
        """Return what the policy does now in ``group`` as a module from raw observations to actions, of the same tensors."""
        return DeterministicPolicy(self.policy, group, self.obs_rms)

    def tensors(self):
        """Return all tensors that the future depends on, by name: what a checkpoint holds, the replay buffer included."""
        kept = {"iteration": self.iteration, "metric_sums": self.metric_sums, "started": self.started}
        kept |= {"written": self.written, "filled": self.filled}
        for name in ("policy", "critic", "target_policy", "target_critic"):
            kept |= {f"{name}.{key}": value for key, value in getattr(self, name).state_dict(keep_vars=True).items()}
        for name, optimizer in (("actor", self.actor_optimizer), ("critic", self.critic_optimizer)):
            kept |= {f"{name}_optimizer.{key}": value for key, value in adam_tensors(optimizer).items()}
        if self.obs_rms is not None:
            kept |= {f"obs_moments.{key}": value for key, value in self.obs_rms.tensors().items()}
        kept |= {f"noise.{name}": noise for name, noise in self.noise.items()}
        return kept | {f"replay.{name}": array for name, array in self.replay.items()}
