"""Proximal policy optimization: collect, advantages, epochs, minibatches, loss, step.

Source: Schulman et al. 2017, "Proximal policy optimization algorithms", eq. 7. Advantages are those
of Schulman et al. 2016, "High-dimensional continuous control using generalized advantage
estimation". Names and details are those of CleanRL (Huang et al., JMLR 2022). The approximate KL
divergence is Schulman's k3, mean((r - 1) - log r).

Letters: T steps, N environments, C agents of a group, B = T * N * (agents of all groups that share
the policy).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Le

from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.algorithms.rows import weighted_mean
from cupydrive.algorithms.schedule import LARGEST
from cupydrive.algorithms.settings import OnPolicy, Positive
from cupydrive.inputs.validation import Count
from cupydrive.playing.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class PPO(OnPolicy):
    """Settings of PPO. ``OnPolicy`` documents those that A2C shares.

    Examples:
        >>> import cupydrive as cd
        >>> ppo = cd.PPO(gamma=0.98, learning_rate=((0, 2.5e-3), (1_000_000, 1e-4)))
        >>> run = cd.train("cartpole", ppo, num_envs=64, steps=10_000, progress=False)

    Args:
        num_minibatches: Number of minibatches per epoch. It must divide the rows of an iteration.
        update_epochs: Passes over the rows of an iteration.
        clip_coef: Clip the probability ratio to 1 plus or minus this value.
        clip_vloss: Also clip the value loss, as OpenAI Baselines does.
        target_kl: Stop the iteration after an epoch whose approximate KL divergence exceeds this
            value. Defaults to no limit.
    """

    num_minibatches: Count = 4
    update_epochs: Count = 4
    clip_coef: Positive = 0.2
    clip_vloss: bool = False
    target_kl: Annotated[float, Gt(0.0), Le(LARGEST)] | None = None

    name = "ppo"

    def learner(self) -> PPOLearner:
        """Create the learner of one policy."""
        return PPOLearner(self)


class PPOLearner(OnPolicyLearner):
    """An iteration of PPO: ``act`` of ``OnPolicyLearner`` for every step, then ``update``."""

    config: PPO
    reported = (
        "policy_loss",
        "value_loss",
        "entropy",
        "grad_norm",
        "old_approx_kl",
        "approx_kl",
        "clipfrac",
    )

    def update(self, rollout: Rollout) -> None:
        """Compute advantages, then make ``update_epochs`` passes in shuffled minibatches."""
        config = self.config
        # For every agent, backwards from the last step, with 0 <= t < T and advantage[T] = 0:
        #   next         = 0 if terminated[t] or the agent left, the value of the final obs if
        #                  truncated[t], otherwise value[t + 1]
        #   error        = reward[t] * reward_scale + gamma * next - value[t]
        #   carried      = 0 if the episode or the agent's part in it ended, otherwise
        #                  advantage[t + 1]
        #   advantage[t] = error + gamma * gae_lambda * carried
        #   returns[t]   = advantage[t] + value[t]
        # Only active steps of an agent count: t + 1 is the next one, and reward[t] includes the
        # rewards until then. Other rows of the agent have weight 0 below, or only the critic learns
        # from them. See kernels/train/advantages.cu.
        self.estimate(rollout)
        rows = self.flat(rollout)
        self.skip_update.zero_()
        for epoch in range(config.update_epochs):
            order = self.permutation(rollout, epoch)
            for chosen in order.tensor_split(config.num_minibatches):
                losses = self.learn(self.minibatch(rollout, rows, chosen))
            # The device decides this, and skips the following steps.
            if config.target_kl is not None:
                self.skip_update.clamp_(min=(losses["approx_kl"] > config.target_kl).float())
        self.finish(rollout)

    def _loss(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the losses of a minibatch by name. ``loss`` is minimized."""
        s, config, weight = self.scheduled, self.config, rows.get("weight")
        parameters, value, _ = self.again(rows)
        log_prob, entropy = self.distribution.log_prob_and_entropy(
            parameters, rows["action"], rows.get("mask")
        )
        # policy loss: the clipped objective
        log_ratio = log_prob - rows["log_prob"]
        ratio = log_ratio.exp()
        advantage = rows["advantage"]
        clipped = torch.clamp(ratio, 1 - s.clip_coef, 1 + s.clip_coef)
        policy_loss = -weighted_mean(torch.minimum(advantage * ratio, advantage * clipped), weight)
        # value loss: half the squared error, or the larger of two if its change is clipped
        error = (value - rows["returns"]) ** 2
        if config.clip_vloss:
            near = rows["value"] + torch.clamp(value - rows["value"], -s.clip_coef, s.clip_coef)
            error = torch.maximum(error, (near - rows["returns"]) ** 2)
        value_loss = 0.5 * weighted_mean(error, rows.get("value_weight", weight), weight)
        mean_entropy = weighted_mean(entropy, weight)
        loss = policy_loss - s.ent_coef * mean_entropy + s.vf_coef * value_loss
        with torch.no_grad():
            report = {
                "old_approx_kl": weighted_mean(-log_ratio, weight),
                "approx_kl": weighted_mean((ratio - 1) - log_ratio, weight),
                "clipfrac": weighted_mean(((ratio - 1).abs() > s.clip_coef).float(), weight),
            }
        return {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": mean_entropy,
            **report,
        }
