"""Networks, exploration and checkpoints of an actor and a critic with a replay buffer.

The algorithm itself is in ``ddpg.py``. Letters: N environments, C agents of a group, D observation
entries, H action entries, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from cupydrive.algorithms.replay import ReplayBuffer, buffer_slots
from cupydrive.algorithms.scheduled_learner import ScheduledLearner
from cupydrive.algorithms.settings import linear_layers, require_network_memory
from cupydrive.algorithms.step import adam, adam_tensors, settle, take_step
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_torch, make_call, zeros
from cupydrive.playing.inference import DeterministicPolicy
from cupydrive.playing.players import ModulePlayer
from cupydrive.playing.policy import Gaussian, first_agent, mlp, require_range
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Player
from cupydrive.spec import Group

if TYPE_CHECKING:
    from cupydrive.algorithms.ddpg import DDPG

NETWORKS = ("policy", "critic", "target_policy", "target_critic")
ALIGNED_NUMBERS = 64  # floats, 256 bytes, the alignment of allocations


def require_floats(algorithm: str, group: Group) -> None:
    """Raise ``ParameterError`` unless actions are a Box with ranges, and observations are floats.

    Args:
        algorithm: Name of the algorithm.
        group: The ``Group``.
    """
    if not isinstance(group.action_space, spaces.Box):
        raise ParameterError(
            f"{algorithm} needs a Box of actions, but group {group.name!r} has "
            f"{group.action_space}. Use PPO or A2C"
        )
    require_range(algorithm, group)
    if group.obs_dtype != "float32":
        raise ParameterError(
            f"{algorithm} needs observations of float32, but those of group {group.name!r} are "
            f"{group.obs_dtype}. Use PPO or A2C"
        )


class Perceptron(nn.Module):
    """A multilayer perceptron.

    Args:
        body: Module that ``mlp`` returns.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body


class Actor(Perceptron):
    """Observations (B, D) to actions (B, H) in [-1, 1]."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return ``(actions, None)``, in the form of a policy without a value."""
        return torch.tanh(self.body(obs)), None


class Critic(Perceptron):
    """Observations (B, D) and actions (B, H) in [-1, 1] to values (B,)."""

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return the value of each row."""
        return self.body(torch.cat([obs, action], dim=1))[:, 0]


def in_one_tensor(*networks: nn.Module) -> torch.Tensor:
    """Move the weights of networks into one tensor and return it.

    An operation on all weights is then a single kernel. The weights of each layer begin at an
    aligned address, since matrix products are slower with misaligned operands.
    """
    weights = [p for network in networks for p in network.parameters()]
    sizes = [-(-p.numel() // ALIGNED_NUMBERS) * ALIGNED_NUMBERS for p in weights]
    whole = zeros(weights[0].device, sum(sizes))
    for p, part in zip(weights, whole.split(sizes), strict=True):
        p.data = part[: p.numel()].view_as(p).copy_(p.data)
    return whole


class OffPolicyLearner(ScheduledLearner):
    """Base class of off-policy learners. Subclasses implement ``act`` and ``update``.

    It plays and learns for one group, or for several with equal spaces. All its tensors are
    allocated once, so that a whole iteration can be captured in a CUDA graph.

    Args:
        config: Settings, a ``DDPG``.
    """

    replay: ReplayBuffer

    def __init__(self, config: DDPG) -> None:
        self.config = config
        self.groups = []
        self.calls: dict[str, np.ndarray] = {}
        self.noise: dict[str, torch.Tensor] = {}

    # ---- validation ----

    def check(self, groups: Sequence[Group], num_envs: int) -> None:
        """Raise ``ParameterError`` unless actions are a Box and the buffer holds an iteration."""
        for g in groups:
            require_floats(type(self.config).__name__, g)
        agents = num_envs * sum(g.count for g in groups)
        buffer_slots(self.config.buffer_size, agents, self.config.num_steps)

    def never_learns(self, steps: int) -> str | None:
        """Explain why learning does not begin within a number of environment steps.

        It is called after memory has been allocated.

        Args:
            steps: Total environment steps of whole iterations.

        Returns:
            A sentence with a fix, or None if learning begins.
        """
        config, replay = self.config, self.replay
        made, kept = steps * replay.agents // self.copies, replay.slots * replay.agents
        if min(made, kept) >= config.learning_starts:
            return None
        return (
            f"{type(config).__name__}.learning_starts = {config.learning_starts:,} transitions "
            f"are never reached: {steps:,} env-steps make {made:,}, and the buffer keeps {kept:,}. "
            f"Lower it, or raise steps and buffer_size"
        )

    # ---- memory ----

    def make(self, group: Group, rollout: Rollout) -> None:
        """Create the networks and all other tensors except the replay buffer.

        Torch's generator determines the weights.
        """
        config, device, batch = self.config, rollout.device, rollout.batch
        actor = (group.obs_dim, *config.hidden, group.heads)
        critic = (group.obs_dim + group.heads, *config.hidden, 1)
        # an upper bound, since the targets have no gradients
        layers = [*linear_layers(actor), *linear_layers(critic)] * 2
        require_network_memory(f"DDPG.hidden = {config.hidden}", batch, config.batch_size, layers)
        made = partial(mlp, activation=config.activation, generator=rollout.generator)
        self.policy = Actor(made(actor, last_gain=0.01)).to(device)
        self.critic = Critic(made(critic)).to(device)
        self.target_policy = Actor(made(actor, last_gain=0.01)).to(device)
        self.target_critic = Critic(made(critic)).to(device)
        self.target_policy.load_state_dict(self.policy.state_dict())
        self.target_critic.load_state_dict(self.critic.state_dict())
        self.weights = in_one_tensor(self.policy, self.critic)
        self.target_weights = in_one_tensor(self.target_policy, self.target_critic)
        # Sums of the critic's loss and value with their count, and of the actor's loss with its
        # count.
        self.begin_learning(config, group, rollout, 3 + 2)
        rates = self.scheduled.actor_learning_rate, self.scheduled.learning_rate
        self.actor_optimizer, self.actor_skip = adam(self.policy.parameters(), rates[0])
        self.critic_optimizer, self.critic_skip = adam(self.critic.parameters(), rates[1])
        self.started = zeros(device, 1)  # 1 after learning has started
        noise = config.noise_damping, config.exploration_noise
        self.noise_settings = torch.tensor(noise, dtype=torch.float32, device=device)
        self.low = torch.as_tensor(group.action_space.low, device=device)
        self.span = torch.as_tensor(group.action_space.high - group.action_space.low, device=device)
        self.noisy = batch.executor.build(Gaussian(group).unit())

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``, and allocate its noise.

        The first group determines the networks.
        """
        require_floats(type(self.config).__name__, group)
        if not self.groups:
            self.make(group, rollout)
        self.groups.append(group)
        batch = rollout.batch
        noise = zeros(rollout.device, batch.num_envs, group.count, group.heads)
        ints = {"num_envs": batch.num_envs, "agents": group.count}
        ints |= {"first_env": batch.first_env, "first_agent": first_agent(batch, group)}
        pointers = {"seed": as_torch(batch.seed), "clock": None}
        pointers |= {"noise_settings": self.noise_settings, "started": self.started}
        pointers |= {"mean": None, "noise": noise, "action": None}
        self.noise[group.name], self.calls[group.name] = noise, make_call(ints, pointers)
        self.calls[group.name]["clock"] = batch.executor.pointer(batch.clock)

    def prepare(self, rollout: Rollout) -> None:
        """Allocate the replay buffer, after ``begin`` of all groups.

        Raises:
            ParameterError: If the buffer does not hold one iteration.
            MemoryLimitError: If it does not fit into memory.
        """
        self.replay = ReplayBuffer(rollout, self.groups, self.config.buffer_size)
        self.copies = rollout.batch.num_envs
        self.note_weights()

    def networks(self) -> nn.Module:
        """Return a module with all weights that learning changes."""
        return nn.ModuleDict({name: getattr(self, name) for name in NETWORKS})

    def rows_at_once(self, rollout: Rollout) -> int:
        """Return the number of rows of a minibatch."""
        return self.config.batch_size

    # ---- acting and learning ----

    def explore(self, rollout: Rollout, g: Group, t: int, action: torch.Tensor) -> None:
        """Write the actions of row t.

        Args:
            rollout: ``Rollout``.
            g: The ``Group``.
            t: Step of the rollout.
            action: (N * C, H) in [-1, 1], actions of the actor. Noise is added to them. Before
                learning starts, uniform actions replace them.
        """
        call, rows = self.calls[g.name], rollout.batch.num_envs * g.count
        call["mean"], call["action"] = action.data_ptr(), rollout.action[g.name][t].data_ptr()
        self.noisy.launch("explore", call, rows, rows * g.heads)

    def step(
        self, optimizer: torch.optim.Adam, loss: torch.Tensor, reported: list, sums: torch.Tensor
    ) -> None:
        """Take one gradient step.

        It is skipped if a number is non-finite, or if the optimizer's skip flag is set.
        """
        take_step(optimizer, loss, reported, settle, self.scheduled.max_grad_norm, self.bad, sums)

    @torch.no_grad()
    def finish(self, rollout: Rollout, waiting: torch.Tensor) -> None:
        """Update the statistics of observations and the count of iterations.

        The iteration itself has used the previous statistics.

        Args:
            rollout: ``Rollout``.
            waiting: () float32, 1 before learning starts.
        """
        self.started.copy_(1.0 - waiting)
        self.update_statistics(self.obs_rms, rollout, rollout.obs)
        self.iteration += 1

    @staticmethod
    def losses(sums: Sequence[float]) -> dict[str, float]:
        """Return mean losses by name from ``metric_sums`` as a list."""
        found = {"qf_loss": sums[0] / sums[2], "qf_values": sums[1] / sums[2]} if sums[2] else {}
        return found | ({"actor_loss": sums[3] / sums[4]} if sums[4] else {})

    # ---- results ----

    def acting(self, greedy: bool) -> Player:
        """Return a player that follows the current policy without learning and without noise."""
        return ModulePlayer(
            lambda _, *about: DeterministicPolicy(self.policy, *about), self.obs_rms
        )

    def module(self, rollout: Rollout, group: Group) -> nn.Module:
        """Return the policy for ``group`` as a module from raw observations to actions.

        The module shares the policy's tensors.
        """
        return DeterministicPolicy(self.policy, group, self.obs_rms)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a checkpoint by name, including the replay buffer."""
        kept = {"iteration": self.iteration, "metric_sums": self.metric_sums}
        kept |= {"started": self.started, **self.networks().state_dict(keep_vars=True)}
        for name in ("actor_optimizer", "critic_optimizer"):
            state = adam_tensors(getattr(self, name))
            kept |= {f"{name}.{key}": value for key, value in state.items()}
        if self.obs_rms is not None:  # named "moments" in checkpoints
            kept |= {f"obs_moments.{key}": value for key, value in self.obs_rms.tensors().items()}
        kept |= {f"noise.{name}": noise for name, noise in self.noise.items()}
        replay = getattr(self, "replay", None)  # does not exist before `prepare`
        return kept | (replay.tensors() if replay is not None else {})
