"""Deep deterministic policy gradient: act, store, sample, critic loss, actor loss, targets.

Source: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning". Names are
those of CleanRL. Letters: T steps of one iteration, N environments, C agents of a group, D
observation entries, B rows of a minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le

from cupydrive.algorithms.architecture import Activation, Widths
from cupydrive.algorithms.off_policy import OffPolicyLearner
from cupydrive.algorithms.replay import transitions
from cupydrive.algorithms.rows import weighted_mean
from cupydrive.algorithms.schedule import LARGEST, Range, Schedule
from cupydrive.algorithms.settings import Fraction, Positive, Settings
from cupydrive.inputs.validation import Count
from cupydrive.playing.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class DDPG(Settings):
    """Settings of DDPG.

    Examples:
        >>> import cupydrive as cd
        >>> ddpg = cd.DDPG(tau=0.01, learning_starts=1_000)
        >>> run = cd.train("pendulum", ddpg, num_envs=64, steps=2_000, progress=False)

    Args:
        learning_rate: Learning rate of the critic.
        actor_learning_rate: Learning rate of the actor.
        num_steps: Rollout length T per environment.
        updates: Gradient steps per iteration.
        gamma: Discount factor.
        tau: Polyak averaging coefficient of the target networks.
        batch_size: Transitions per gradient step.
        buffer_size: Capacity of the replay buffer in transitions, rounded down to whole rows of all
            agents.
        learning_starts: Transitions to collect before learning. Actions are uniform until then.
        exploration_noise: Standard deviation of the noise, in units of half the action's range.
        noise_damping: 1 gives independent Gaussian noise. Lower values give Ornstein-Uhlenbeck
            noise, which is reset with each episode.
        max_grad_norm: Maximum gradient norm for clipping.
        normalize_obs: Normalize each observation entry to running mean 0 and standard deviation 1.
        hidden: Width of each hidden layer.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``.
    """

    learning_rate: Positive = 1e-3
    actor_learning_rate: Positive = 3e-4
    num_steps: Count = 4
    updates: Count = 4
    gamma: Fraction = 0.99
    tau: Annotated[Schedule, Range(0.0, 1.0, positive=True)] = 0.005
    batch_size: Count = 4096
    buffer_size: Count = 1_000_000
    learning_starts: Count = 25_000
    exploration_noise: Annotated[float, Ge(0.0), Le(LARGEST)] = 0.1
    noise_damping: Annotated[float, Gt(0.0), Le(1.0)] = 1.0
    max_grad_norm: Positive = 10.0
    normalize_obs: bool = False
    hidden: Widths = (256, 256)
    activation: Activation = "relu"

    name = "ddpg"

    def learner(self) -> DDPGLearner:
        """Create the learner of one policy."""
        return DDPGLearner(self)


class DDPGLearner(OffPolicyLearner):
    """One iteration of DDPG: ``act`` for every step of a rollout, then ``update``."""

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of row t.

        They are the actor's actions with exploration noise, or uniform before learning starts.
        """
        for g in self.groups:
            obs = rollout.obs[g.name][t].view(-1, g.obs_dim)
            action, _ = self.policy(self.normalized(obs))
            self.explore(rollout, g, t, action)

    def update(self, rollout: Rollout) -> None:
        """Store the rollout, then take ``updates`` gradient steps."""
        config = self.config
        # A transition of one agent has obs[t], action[t] in [-1, 1] and reward[t]. next_obs is the
        # last observation of the episode if the time limit truncated it. end is 1 if no reward can
        # follow, since the task ended or the agent left. weight is 0 for agents not in the game.
        with torch.no_grad():
            self.replay.store(transitions(rollout, self.groups, self.low, self.span))
            # 1 means that gradient steps have no effect yet
            waiting = (self.replay.filled < config.learning_starts)[0].float()
        for k in range(config.updates):
            rows = self.replay.sample(rollout, config.batch_size, self.iteration, k)
            for skip_update in (self.critic_skip, self.actor_skip):
                skip_update.copy_(waiting)
            self.learn(rows)
        self.finish(rollout, waiting)

    def learn(self, rows: dict[str, torch.Tensor]) -> None:
        """Take one gradient step of the critic and one of the actor, then update the targets."""
        loss, value = self.critic_loss(rows)
        self.step(self.critic_optimizer, loss, [loss, value], self.metric_sums[:3])
        # The gradient of the actor's loss is computed for the actor's weights only. The critic's
        # gradients are unchanged.
        loss = self.actor_loss(rows)
        self.step(self.actor_optimizer, loss, [loss], self.metric_sums[3:])
        self.follow(self.scheduled.tau * (1.0 - self.critic_skip))

    def critic_loss(self, rows: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean squared error to the targets, and the mean value."""
        with torch.no_grad():
            next_obs = self.normalized(rows["next_obs"])
            next_value = self.target_critic(next_obs, self.target_policy(next_obs)[0])
            target = rows["reward"] + self.scheduled.gamma * (1.0 - rows["end"]) * next_value
        value = self.critic(self.normalized(rows["obs"]), rows["action"])
        return weighted_mean((value - target) ** 2, rows["weight"]), weighted_mean(
            value, rows["weight"]
        )

    def actor_loss(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the negated mean of the critic's values of the actor's actions."""
        obs = self.normalized(rows["obs"])
        value = self.critic(obs, self.policy(obs)[0])
        return -weighted_mean(value, rows["weight"])

    @torch.no_grad()
    def follow(self, share: torch.Tensor) -> None:
        """Update the target networks by Polyak averaging.

        Args:
            share: 0-dimensional tensor, weight of the new weights. 0 after a skipped step.
        """
        self.target_weights.lerp_(self.weights, share)
