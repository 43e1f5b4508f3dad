"""Deep deterministic policy gradient.

Source: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning"; names as in CleanRL.
Letters: T steps of one iteration, N environments, C agents of a group, D observation entries, H action numbers.
"""

from dataclasses import dataclass

import torch
from torch import nn

from cupydrive.algorithms.settings import Settings, counted, scheduled
from cupydrive.errors import ParameterError
from cupydrive.policy import mlp
from cupydrive.schedule import Schedule


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
        learning_starts: Transitions to collect before learning; until then actions are noise alone.
        exploration_noise: Deviation of the noise, in units of half the action's range.
        noise_damping: 1: independent Gaussian noise; less: Ornstein-Uhlenbeck noise, reset with the episode.
        max_grad_norm: Gradients are scaled down to this norm.
        normalize_obs: Running mean 0 and deviation 1 of each observation entry.
        hidden: Width of each hidden layer.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``.
    """

    learning_rate: Schedule = scheduled(1e-3, 0.0)
    actor_learning_rate: Schedule = scheduled(3e-4, 0.0)
    num_steps: int = counted(4)
    updates: int = counted(4)
    gamma: Schedule = scheduled(0.99, 0.0, 1.0)
    tau: Schedule = scheduled(0.005, 0.0, 1.0)
    batch_size: int = counted(4096)
    buffer_size: int = counted(1_000_000)
    learning_starts: int = counted(25_000)
    exploration_noise: float = 0.1
    noise_damping: float = 1.0
    max_grad_norm: Schedule = scheduled(10.0, 0.0)
    normalize_obs: bool = False
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"

    name = "ddpg"

    def __post_init__(self):
        super().__post_init__()
        if not self.exploration_noise >= 0:
            raise ParameterError(f"exploration_noise = {self.exploration_noise!r}; it must be at least 0")
        if not 0 < self.noise_damping <= 1:
            raise ParameterError(f"noise_damping = {self.noise_damping!r}; it must be above 0 and at most 1")

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
