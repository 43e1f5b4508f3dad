"""Advantage actor-critic: one gradient step on all rows of each rollout.

Source: Mnih et al. 2016, "Asynchronous methods for deep reinforcement learning", in its synchronous
form. gae_lambda = 1 gives T-step returns with a value bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.algorithms.rows import weighted_mean
from cupydrive.algorithms.settings import Fraction, OnPolicy, Positive
from cupydrive.inputs.validation import Count
from cupydrive.playing.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class A2C(OnPolicy):
    """Settings of A2C. All are those of ``OnPolicy``.

    Examples:
        >>> import cupydrive as cd
        >>> run = cd.train("cartpole", cd.A2C(), num_envs=64, steps=10_000, progress=False)
    """

    learning_rate: Positive = 7e-4
    num_steps: Count = 16
    gae_lambda: Fraction = 1.0
    norm_adv: bool = False

    name = "a2c"

    def learner(self) -> A2CLearner:
        """Create the learner of one policy."""
        return A2CLearner(self)


class A2CLearner(OnPolicyLearner):
    """An iteration of A2C: ``act`` of ``OnPolicyLearner`` for every step, then ``update``."""

    def update(self, rollout: Rollout) -> None:
        """Compute advantages, as explained in ``ppo.py``, then take one step on all rows."""
        self.estimate(rollout)
        self.skip_update.zero_()
        self.learn(self.flat(rollout))
        self.finish(rollout)

    def _loss(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the losses by name. ``loss`` is minimized."""
        s, weight = self.scheduled, rows.get("weight")
        parameters, value, _ = self.again(rows)
        log_prob, entropy = self.distribution.log_prob_and_entropy(
            parameters, rows["action"], rows.get("mask")
        )
        policy_loss = -weighted_mean(rows["advantage"] * log_prob, weight)
        value_loss = 0.5 * weighted_mean(
            (value - rows["returns"]) ** 2, rows.get("value_weight", weight), weight
        )
        mean_entropy = weighted_mean(entropy, weight)
        loss = policy_loss - s.ent_coef * mean_entropy + s.vf_coef * value_loss
        return {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": mean_entropy,
        }
