"""Advantage actor-critic: one step on all rows of each rollout.

Source: Mnih et al. 2016, "Asynchronous methods for deep reinforcement learning", synchronous form; with gae_lambda = 1
the returns are of up to T steps.
"""

from dataclasses import dataclass

from cupydrive.training.algorithms.on_policy import (
    OnPolicy,
    OnPolicyLearner,
    normalized_advantage,
    weighted_mean,
)
from cupydrive.training.algorithms.settings import counted, scheduled
from cupydrive.training.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class A2C(OnPolicy):
    """Settings of A2C, those of ``OnPolicy``."""

    learning_rate: Schedule = scheduled(7e-4, 0.0, positive=True)
    num_steps: int = counted(16)
    gae_lambda: Schedule = scheduled(1.0, 0.0, 1.0)
    norm_adv: bool = False

    name = "a2c"

    def learner(self):
        """Return the learner of one policy."""
        return A2CLearner(self)


class A2CLearner(OnPolicyLearner):
    """One gradient step on all rows of each rollout."""

    def learn(self, rollout):
        """Take the step."""
        self.withheld.zero_()
        self.descend(self.flat(rollout))

    def _loss(self, rows):
        """Return the losses by name; ``loss`` is what is minimised."""
        s, weight = self.scheduled, rows.get("weight")
        parameters, value = self._forward(rows["obs"])
        log_prob, entropy = self.distribution.log_prob_and_entropy(parameters, rows["action"], rows.get("mask"))
        advantage = rows["advantage"]
        if self.config.norm_adv:
            advantage = normalized_advantage(advantage, weight)
        policy_loss = -weighted_mean(advantage * log_prob, weight)
        value_loss = 0.5 * weighted_mean((value - rows["returns"]) ** 2, weight)
        mean_entropy = weighted_mean(entropy, weight)
        loss = policy_loss - s.ent_coef * mean_entropy + s.vf_coef * value_loss
        return {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy}
