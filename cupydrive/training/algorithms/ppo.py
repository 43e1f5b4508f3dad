"""Proximal policy optimisation.

Source: Schulman et al. 2017, "Proximal policy optimization algorithms", eq. 7; names and details as in CleanRL
(Huang et al., JMLR 2022). The approximate KL divergence is Schulman's k3, mean((r - 1) - log r).
"""

from dataclasses import dataclass

import torch

from cupydrive.training.algorithms.on_policy import (
    OnPolicy,
    OnPolicyLearner,
    minibatch_size,
    normalized_advantage,
    weighted_mean,
)
from cupydrive.training.algorithms.settings import counted, measured, scheduled
from cupydrive.training.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class PPO(OnPolicy):
    """Settings of PPO; see ``OnPolicy`` for those that A2C shares.

    Args:
        num_minibatches: Of one epoch; must divide the rows of an iteration.
        update_epochs: Passes over the rows of an iteration.
        clip_coef: The probability ratio counts within 1 plus or minus this.
        clip_vloss: Clip the change of the value too.
        target_kl: An epoch that ends above this is the last of its iteration; None: no such limit.
    """

    num_minibatches: int = counted(4)
    update_epochs: int = counted(4)
    clip_coef: Schedule = scheduled(0.2, 0.0, positive=True)
    clip_vloss: bool = False
    target_kl: float | None = measured(None, 0.0, above=True, optional=True)

    name = "ppo"

    def learner(self):
        """Return the learner of one policy."""
        return PPOLearner(self)


class PPOLearner(OnPolicyLearner):
    """Several epochs over shuffled minibatches of each rollout."""

    reported = ("policy_loss", "value_loss", "entropy", "grad_norm", "old_approx_kl", "approx_kl", "clipfrac")

    def prepare(self, rollout):
        """Raise ``ParameterError`` if the rows do not divide into minibatches."""
        self.part = minibatch_size(self.rows(rollout), self.config.num_minibatches, "PPO")
        super().prepare(rollout)

    def rows_at_once(self, rollout):
        """Return the rows of a minibatch."""
        return self.part

    def learn(self, rollout):
        """Make ``update_epochs`` passes over the rollout's rows."""
        config, rows = self.config, self.flat(rollout)
        size, part = len(rows["advantage"]), self.part
        self.withheld.zero_()
        for epoch in range(config.update_epochs):
            index = self.permutation(rollout, size, epoch)
            for k in range(config.num_minibatches):
                chosen = index[k * part : (k + 1) * part]
                with rollout.stream():
                    part_rows = self.gather(rows, chosen)
                losses = self.descend(part_rows)
            if config.target_kl is not None:
                self.withheld.clamp_(min=(losses["approx_kl"] > config.target_kl).float())

    def _loss(self, rows):
        """Return the losses of a minibatch by name; ``loss`` is what is minimised."""
        s, config, weight = self.scheduled, self.config, rows.get("weight")
        parameters, value = self._forward(rows["obs"])
        log_prob, entropy = self.distribution.log_prob_and_entropy(parameters, rows["action"], rows.get("mask"))
        log_ratio = log_prob - rows["log_prob"]
        ratio = log_ratio.exp()
        advantage = rows["advantage"]
        if config.norm_adv:
            advantage = normalized_advantage(advantage, weight)
        clipped = torch.clamp(ratio, 1 - s.clip_coef, 1 + s.clip_coef)
        policy_loss = -weighted_mean(torch.minimum(advantage * ratio, advantage * clipped), weight)
        error = (value - rows["returns"]) ** 2
        if config.clip_vloss:
            near = rows["value"] + torch.clamp(value - rows["value"], -s.clip_coef, s.clip_coef)
            error = torch.maximum(error, (near - rows["returns"]) ** 2)
        value_loss = 0.5 * weighted_mean(error, weight)
        mean_entropy = weighted_mean(entropy, weight)
        with torch.no_grad():
            report = {
                "old_approx_kl": weighted_mean(-log_ratio, weight),
                "approx_kl": weighted_mean((ratio - 1) - log_ratio, weight),
                "clipfrac": weighted_mean(((ratio - 1).abs() > s.clip_coef).float(), weight),
            }
        loss = policy_loss - s.ent_coef * mean_entropy + s.vf_coef * value_loss
        return {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": mean_entropy, **report}
