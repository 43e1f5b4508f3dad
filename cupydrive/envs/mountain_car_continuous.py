"""MountainCarContinuous-v0: ``mountain_car`` with a continuous, bounded push that costs fuel.

Source: Gymnasium's ``continuous_mountain_car.py``, after Moore (1990). Track, initial states and
drawing are those of ``mountain_car``.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.envs.mountain_car import SPEC as DISCRETE
from cupydrive.envs.mountain_car import Track, bounds, drive, observe, reset, sample_states, state
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Params(Track):
    """The track, the engine and the task."""

    power: float = cd.param(
        0.0015, "Change of velocity by the strongest push.", unit="1/step^2", low=0.0, high=1.0
    )
    goal_position: float = cd.param(0.45, "The flag.", low=-10.0, high=10.0, vary=(0.3, 0.5))
    max_episode_steps: int = cd.param(999, "Time limit.", unit="steps", low=1)


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the car."""
    push = spaces.Box(-1.0, 1.0, (1,), np.float32)
    scale, (low, high) = np.array([1.0, 0.07]), bounds(p)
    return (
        cd.Group("car", 1, 2, push, obs_scale=scale, reward_scale=10.0, obs_low=low, obs_high=high),
    )


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["car"] is (N, 1, 1)."""
    given = action["car"][:, 0, 0].astype(np.float64)
    result = drive(p, states, np.clip(given, -1, 1), p.power)
    result.reward["car"] = (100.0 * result.terminated - 0.1 * given**2)[:, None]
    result.margin["reward.car"] = result.margin["terminated"][:, None]
    return result


def heuristic(p: Params, obs: "torch.Tensor", group: str) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C): push with full force in the direction of motion."""
    return (2.0 * (obs[..., 1] >= 0) - 1.0,)


SPEC = cd.EnvSpec(
    name="mountain_car_continuous",
    params=Params,
    state=state,
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe, sample_states),
    heuristic=heuristic,
    display=replace(
        DISCRETE.display, keys=lambda p: {"car": {"": 0.0, "ArrowLeft": -1.0, "ArrowRight": 1.0}}
    ),
    training={
        "num_envs": 256,
        "steps": 1_000_000,
        "ppo": {
            "learning_rate": ((0, 1e-3), (1_000_000, 5e-5)),
            "num_steps": 64,
            # learn to reach the flag first, and then to save fuel
            "gamma": ((0, 0.999), (500_000, 0.9999)),
            "gae_lambda": 0.98,
            "ent_coef": 0.0,
            "normalize_obs": True,
            "normalize_reward": True,
        },
        "a2c": {
            "num_envs": 32,
            "steps": 4_000_000,
            "learning_rate": ((0, 1e-3), (4_000_000, 3e-5)),
            "num_steps": 32,
            "gamma": ((0, 0.999), (2_000_000, 0.9999)),
            "gae_lambda": 0.98,
            "ent_coef": 0.0,
            "norm_adv": True,
            "normalize_obs": True,
            "normalize_reward": True,
        },
        "ddpg": {
            "num_envs": 16,
            "steps": 60_000,
            "actor_learning_rate": 1e-3,
            "updates": 16,
            "batch_size": 256,
            "buffer_size": 100_000,
            "learning_starts": 4000,
            "exploration_noise": 0.5,
            "noise_damping": 0.15,  # correlated noise occasionally swings the car up
            "hidden": (64, 64),
        },
    },
    reward_threshold=90.0,
    summary="Swing a car out of a valley, and save fuel (Gymnasium's MountainCarContinuous-v0).",
)
