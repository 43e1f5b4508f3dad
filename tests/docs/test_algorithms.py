"""Each cell of the table in docs/how/algorithms.md is what training does."""

from dataclasses import dataclass
from pathlib import Path

import archers
import lamps
import numpy as np
import pytest
import torch
from gymnasium import spaces

import cupydrive as cd
from cupydrive.errors import ParameterError
from cupydrive.executors.joined import NotJoinedError
from cupydrive.training.begin import begin
from cupydrive.training.config import resolve
from cupydrive.training.together import Together

PAGE = Path(__file__).resolve().parents[2] / "docs/how/algorithms.md"
LINES = [
    line.strip("| \n").split(" | ")
    for line in PAGE.read_text("utf-8").split("## Features by algorithm")[1].splitlines()
    if line.startswith("| ")
]
(_, *NAMES), *ROWS = LINES
SMALL = {
    "PPO": cd.PPO(num_steps=4, num_minibatches=2, hidden=(8,)),
    "A2C": cd.A2C(num_steps=4, hidden=(8,)),
    "PQN": cd.PQN(num_steps=4, num_minibatches=2, hidden=(8,)),
    "DDPG": cd.DDPG(num_steps=4, learning_starts=8, batch_size=8, hidden=(8,)),
}
OPTIONS = {"num_envs": 4, "steps": 64, "device": "cpu", "progress": False}


KERNEL = """
struct Params {};
struct State { float x; };
#include "drive/env.cuh"
DEVICE void reset(Env& env) { env.state.x = 0.5f; }
DEVICE bool step(Env& env) {
  env.left.reward(0) = env.left.action(0);
  env.right.reward(0) = env.right.action(0);
  return false;
}
DEVICE void observe(Env& env) { env.left.obs(0)[0] = env.right.obs(0)[0] = env.state.x; }
"""


@dataclass(frozen=True)
class Params:
    max_episode_steps: int = cd.param(4, "Time limit.", low=1)


BOX = spaces.Box(-1.0, 1.0, (1,), np.float32)
PAIR = cd.EnvSpec(
    name="pair",
    params=Params,
    state=lambda params: (cd.Field("x"),),
    groups=lambda params: tuple(cd.Group(name, 1, 1, BOX) for name in ("left", "right")),
    time_limit="truncates",
    kernel=KERNEL,
)


class Own(torch.nn.Module):
    """A linear policy."""

    def __init__(self, obs_dim, size):
        super().__init__()
        self.out = torch.nn.Linear(obs_dim, size)

    def forward(self, obs):
        out = self.out(obs)
        return out, out.amax(1)  # as PQN needs it


def trained(env, settings, **given):
    """Return how the first policy learns."""
    run = cd.train(
        env, policies=given or None, **({} if given else {"algorithm": settings}), **OPTIONS
    )
    return "kernels" if "by kernels" in next(iter(run.backends.values())) else "torch"


def described(settings, **network):
    """Return the settings with a described network."""
    return type(settings)(num_steps=4, network=cd.Network(hidden=(8,), **network))


def joint(settings):
    """Return whether two members share their launches."""
    runs = [
        begin(resolve(env_of(settings), algorithm=settings, seed=k, **OPTIONS), 2) for k in (0, 1)
    ]
    try:
        Together(runs)
    except NotJoinedError:
        return "no"
    return "yes"


def env_of(settings):
    """Return an environment whose actions suit the algorithm."""
    return "pendulum" if isinstance(settings, cd.DDPG) else "cartpole"


def pair_of(settings):
    """Return an environment of two groups whose actions suit the algorithm, and their names."""
    return (
        (PAIR, ("left", "right"))
        if isinstance(settings, cd.DDPG)
        else ("connect_four", ("first", "second"))
    )


def pooled(settings):
    """Return how a policy with a pool of opponents learns."""
    env, (one, other) = pair_of(settings)
    return trained(env, settings, **{one: cd.OpponentPool(settings), other: settings})


def equal_bits(settings, monkeypatch):
    """Return whether kernels give the same weights with one thread and with three."""
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CUPYDRIVE_THREADS", threads)
        run = cd.train(env_of(settings), settings, **OPTIONS)
        found.append(
            torch.nn.utils.parameters_to_vector(next(iter(run.policies.values())).parameters())
        )
    kernels = "by kernels" in next(iter(run.backends.values()))
    return "yes" if kernels and torch.equal(*found) else "no"


FEATURES = {
    "Discrete actions": lambda s: trained("cartpole", s),
    "MultiDiscrete actions": lambda s: trained("battleship", s),
    "Box actions": lambda s: trained("pendulum", s),
    "[both in a `Tuple`](mixed_actions.md)": lambda s: trained(
        cd.register(archers.PYTHON, archers.KERNEL), s
    ),
    "action masks": lambda s: trained("connect_four", s),
    "several groups, a policy each": lambda s: trained(pair_of(s)[0], s),
    "one policy for several groups": lambda s: trained(
        pair_of(s)[0], s, **{"+".join(pair_of(s)[1]): s}
    ),
    "images, convolutions": lambda s: trained(
        lamps.lamps(1, "bool"), described(s, conv=cd.Conv((4,)), activation="relu")
    ),
    "GRU, MinGRU": lambda s: trained(env_of(s), described(s, core=cd.GRU(8))),
    "LSTM": lambda s: trained(env_of(s), described(s, core=cd.LSTM(8))),
    "layer normalization": lambda s: trained(env_of(s), described(s, layer_norm=True)),
    "a torch module of your own": lambda s: trained(env_of(s), type(s)(num_steps=4, policy=Own)),
    "past snapshots as opponents": lambda s: pooled(s),
    "populations in joint launches": joint,
    "several processes": lambda s: "yes" if getattr(s, "exchanges", False) else "no",
}


def test_every_row_is_tried():
    assert [row[0] for row in ROWS] == [*FEATURES, "equal float32 weights on CPU and GPU"]
    assert list(SMALL) == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("feature", FEATURES)
def test_a_cell_is_what_training_does(feature, name):
    cell = next(row for row in ROWS if row[0] == feature)[1 + NAMES.index(name)]
    try:
        found = FEATURES[feature](SMALL[name])
    except ParameterError:
        found = "no"
    assert found == cell


@pytest.mark.parametrize("name", NAMES)
def test_equal_bits(name, monkeypatch):
    assert equal_bits(SMALL[name], monkeypatch) == ROWS[-1][1 + NAMES.index(name)]
