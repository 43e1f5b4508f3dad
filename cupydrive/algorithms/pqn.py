"""Parallelized Q-network: collect, Q(lambda) targets, epochs, minibatches, loss, step.

Source: Gallici et al. 2024, "Simplifying deep temporal difference learning". It has no replay
buffer and no target network, but LayerNorm, many environments, and Q(lambda) targets (Peng &
Williams 1996). The optimizer is RAdam (Liu et al. 2020). Names are those of CleanRL.

Letters: T steps, N environments, C agents of a group, B = T * N * (agents of all groups that share
the policy).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cupydrive.algorithms.architecture import Activation, Network, QNetwork, Widths
from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.algorithms.rows import weighted_mean
from cupydrive.algorithms.settings import Fraction, Positive, RolloutSettings
from cupydrive.inputs.validation import Count
from cupydrive.playing.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class PQN(RolloutSettings):
    """Settings of PQN, which learns the values of ``Discrete`` actions.

    Its default network is one tower with LayerNorm. Use ``network=Network(...)`` for one without
    it, or with hidden state. A custom ``policy`` must return ``(q, q.amax(1))``, (B, choices) and
    (B,).

    Examples:
        >>> import cupydrive as cd
        >>> pqn = cd.PQN(epsilon=((0, 1.0), (50_000, 0.05)), gamma=0.98)
        >>> run = cd.train("cartpole", pqn, num_envs=64, steps=10_000, progress=False)

    Args:
        epsilon: Probability of a random action while collecting, uniform over the allowed actions.
            A linear schedule decays it. The default ``((0, 1.0), (250_000, 0.05))`` reaches 0.05
            after 250,000 environment steps.
        q_lambda: Weight of later errors in targets. 0 gives one-step targets, 1 gives T-step
            returns with a value bootstrap.
        num_minibatches: Number of minibatches per epoch. It must divide the rows of an iteration.
        update_epochs: Passes over the rows of an iteration.
    """

    max_grad_norm: Positive = 10.0
    hidden: Widths = (128, 128)
    activation: Activation = "relu"
    epsilon: Fraction = ((0.0, 1.0), (250_000.0, 0.05))
    q_lambda: Fraction = 0.65
    num_minibatches: Count = 4
    update_epochs: Count = 2

    name = "pqn"
    distribution = "epsilon_greedy"
    trace = "q_lambda"
    rectified = True

    @property
    def architecture(self) -> Network:
        """Described network: one tower, whose outputs are the action values."""
        short = Network(hidden=self.hidden, activation=self.activation, layer_norm=True)
        described: dict[str, Any] = (self.network or short).values()
        return QNetwork(**described | {"shared": True})

    def learner(self) -> PQNLearner:
        """Create the learner of one policy."""
        return PQNLearner(self)


class PQNLearner(OnPolicyLearner):
    """An iteration of PQN: ``act`` of ``OnPolicyLearner`` for every step, then ``update``."""

    config: PQN
    reported = ("td_loss", "q_value", "grad_norm")

    def update(self, rollout: Rollout) -> None:
        """Compute targets, then make ``update_epochs`` passes in shuffled minibatches."""
        config = self.config
        # For every agent, backwards from the last step, with returns[T] = value[T]. value[t] is the
        # largest value of an allowed action in obs[t]:
        #   next       = 0 if terminated[t] or the agent left, the value of the final obs if
        #                truncated[t], otherwise value[t + 1]
        #   later      = next if the episode or the agent's part in it ended, otherwise
        #                returns[t + 1]
        #   returns[t] = reward[t] * reward_scale
        #                + gamma * ((1 - q_lambda) * next + q_lambda * later)
        # Steps of a pause have the targets explained in ppo.py. The kernel of advantages computes
        # these returns.
        self.estimate(rollout)
        rows = self.flat(rollout)
        self.skip_update.zero_()
        for epoch in range(config.update_epochs):
            order = self.permutation(rollout, epoch)
            for chosen in order.tensor_split(config.num_minibatches):
                self.learn(self.minibatch(rollout, rows, chosen))
        self.finish(rollout)

    def _loss(self, rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the losses of a minibatch by name. ``loss`` is minimized."""
        weight = rows.get("weight")
        values, _, _ = self.again(rows)
        value = values.gather(1, rows["action"].long())[:, 0]
        # the values of a pause, which later targets may bootstrap from, are learned too
        valued = rows.get("value_weight", weight)
        loss = 0.5 * weighted_mean((value - rows["returns"]) ** 2, valued, weight)
        return {"loss": loss, "td_loss": loss, "q_value": weighted_mean(value, weight)}
