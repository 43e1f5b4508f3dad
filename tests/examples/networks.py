"""Networks of one's own for tests: one layer for policy and value, and one with a hidden state."""

import torch
from torch import nn


class Joint(nn.Module):
    """One linear layer gives the value and the distribution's parameters."""

    def __init__(self, obs_dim, size):
        super().__init__()
        self.all = nn.Linear(obs_dim, size + 1)

    def forward(self, obs):
        out = self.all(obs)
        return out[:, 1:], out[:, 0]


class Recurrent(nn.Module):
    """A GRU; ``mix`` changes the hidden state (b, M) before each step."""

    state_size = 8

    def __init__(self, obs_dim, size, mix=lambda memory, start: memory):
        super().__init__()
        self.cell, self.mix = nn.GRUCell(obs_dim, self.state_size), mix
        self.actor, self.critic = nn.Linear(self.state_size, size), nn.Linear(self.state_size, 1)

    def forward(self, obs, memory, start):
        steps, seen = obs.shape[0] // memory.shape[0], []  # not len, which an export would fix
        for t, row in enumerate(obs.view(steps, memory.shape[0], -1)):
            forgets = None if start is None else start.view(steps, -1)[t][:, None]
            memory = self.mix(
                memory if forgets is None else memory.masked_fill(forgets, 0.0), forgets
            )
            memory = self.cell(row, memory)
            seen.append(memory)
        x = torch.cat(seen)
        return self.actor(x), self.critic(x)[:, 0], memory
