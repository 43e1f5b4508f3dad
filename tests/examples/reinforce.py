"""REINFORCE (Williams 1992), written from ``cupydrive.protocols`` alone: an algorithm of one's own,
for `test_protocols.py`.
"""

from dataclasses import dataclass

import torch

from cupydrive.playing.inference import DiscretePolicy
from cupydrive.playing.players import PolicyPlayer
from cupydrive.playing.policy import Categorical
from cupydrive.protocols import Learner


@dataclass(frozen=True, kw_only=True)
class Reinforce:
    learning_rate: float = 0.005
    num_steps: int = 200
    gamma: float = 0.99
    name = "reinforce"

    def learner(self):
        return ReinforceLearner(self)


class Logits(torch.nn.Sequential):
    def forward(self, obs):
        return super().forward(obs), None  # no value


class ReinforceLearner(Learner):
    def __init__(self, settings):
        self.settings, self.learning_rate = settings, settings.learning_rate

    def begin(self, rollout, group):
        layers = [
            torch.nn.Linear(group.obs_dim, 64),
            torch.nn.Tanh(),
            torch.nn.Linear(64, group.choices),
        ]
        self.group, self.policy = group, Logits(*layers).to(rollout.device)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), self.learning_rate)
        self.metric_sums, self.bad = (
            torch.zeros(2, device=rollout.device),
            torch.zeros((), device=rollout.device),
        )

    def act(self, rollout, t):
        chances = torch.softmax(self.policy(rollout.obs[self.group.name][t, :, 0])[0], -1)
        rollout.action[self.group.name][t, :, 0].copy_(torch.multinomial(chances, 1))

    def update(self, rollout):
        obs, action, reward = (
            x[self.group.name][:, :, 0] for x in (rollout.obs, rollout.action, rollout.reward)
        )
        returns, later, goes_on = (
            torch.zeros_like(reward),
            0.0,
            ~(rollout.terminated | rollout.truncated),
        )
        for t in reversed(range(rollout.steps)):
            returns[t] = later = reward[t] + self.settings.gamma * goes_on[t] * later
        log_prob = torch.log_softmax(self.policy(obs[:-1])[0], -1).gather(-1, action.long())[..., 0]
        loss = -((returns - returns.mean()) / (returns.std() + 1e-8) * log_prob).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.bad.copy_(torch.maximum(self.bad, 1.0 - torch.isfinite(loss).float()))
        self.metric_sums += torch.stack([loss.detach(), torch.ones_like(loss)])

    def losses(self, sums):
        return {"policy_loss": sums[0] / sums[1]} if sums[1] else {}

    def tensors(self):
        return {
            f"policy.{name}": tensor
            for name, tensor in self.policy.state_dict(keep_vars=True).items()
        }

    def acting(self, greedy):
        return PolicyPlayer(self.policy, Categorical(self.group), greedy)

    def module(self, rollout, group):
        return DiscretePolicy(self.policy, group, None)
