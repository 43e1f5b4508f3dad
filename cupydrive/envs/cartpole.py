"""CartPole-v1: balance a pole on a cart by pushing the cart left or right.

Source: Gymnasium's ``cartpole.py``, after Barto, Sutton & Anderson (1983).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    from cupydrive.drawing.canvas import Canvas


@dataclass(frozen=True)
class Params:
    """Physical constants of the cart, the pole and the task."""

    gravity: float = cd.param(9.8, "Gravitational acceleration.", unit="m/s^2", low=0.0, high=1e3)
    mass_cart: float = cd.param(1.0, "Mass of the cart.", unit="kg", low=1e-3, high=1e3)
    mass_pole: float = cd.param(0.1, "Mass of the pole.", unit="kg", low=1e-3, high=1e3)
    half_length: float = cd.param(
        0.5, "Distance from pivot to the pole's center of mass.", unit="m", low=1e-3, high=1e3
    )
    force_mag: float = cd.param(10.0, "Force of a push.", unit="N", low=0.0, high=1e4)
    tau: float = cd.param(0.02, "Time between two actions.", unit="s", low=1e-6, high=1.0)
    x_limit: float = cd.param(2.4, "Largest position of the cart.", unit="m", low=0.0, high=1e4)
    theta_limit: float = cd.param(
        12 * 2 * np.pi / 360, "Largest angle of the pole.", unit="rad", low=0.0, high=np.pi
    )
    start_range: float = cd.param(
        0.05, "Half range of the uniform initial states.", low=0.0, high=1e3
    )
    position_only: bool = cd.param(False, "Observe x and theta, without velocities.")
    max_episode_steps: int = cd.param(500, "Time limit.", unit="steps", low=1)


def observed(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of the state that are observed."""
    return state(p)[:: 2 if p.position_only else 1]


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("x", scale=2.4, unit="m"),
        cd.Field("x_dot", scale=4.0, unit="m/s"),
        cd.Field("theta", scale=0.5, unit="rad, 0 = upright"),
        cd.Field("theta_dot", scale=4.0, unit="rad/s"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the cart."""
    scale = np.array([f.scale for f in observed(p)])
    limits = {"x": 2 * p.x_limit, "theta": 2 * p.theta_limit}
    high = np.array([limits.get(f.name, np.inf) for f in observed(p)], np.float32)
    return (
        cd.Group(
            "cart",
            1,
            len(scale),
            spaces.Discrete(2),
            obs_scale=scale,
            obs_low=-high,
            obs_high=high,
        ),
    )


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) initial states: four uniform draws, exact in float32."""
    u = random.uniform()[:, 0]  # (N, 4)
    low, span = -np.float32(p.start_range), np.float32(2) * np.float32(p.start_range)
    states = np.empty(len(u), [(f.name, f.dtype) for f in state(p)])
    for k, f in enumerate(state(p)):
        states[f.name] = low + span * u[:, k]
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states by explicit Euler in float64. action["cart"] is (N, 1)."""
    x, x_dot, theta, theta_dot = (states[f.name].astype(np.float64) for f in state(p))
    mass, pole_moment = p.mass_cart + p.mass_pole, p.mass_pole * p.half_length
    force = np.where(action["cart"][:, 0] == 1, p.force_mag, -p.force_mag)
    push = (force + pole_moment * theta_dot**2 * np.sin(theta)) / mass
    theta_acc = (p.gravity * np.sin(theta) - np.cos(theta) * push) / (
        p.half_length * (4 / 3 - p.mass_pole * np.cos(theta) ** 2 / mass)
    )
    x_acc = push - pole_moment * theta_acc * np.cos(theta) / mass
    x, x_dot = x + p.tau * x_dot, x_dot + p.tau * x_acc
    theta, theta_dot = theta + p.tau * theta_dot, theta_dot + p.tau * theta_acc
    ran_off, fell = np.abs(x) > p.x_limit, np.abs(theta) > p.theta_limit
    nearest = cd.nearest_decision(
        np.abs(np.abs(x) - p.x_limit) / 2.4, np.abs(np.abs(theta) - p.theta_limit) / 0.5
    )
    return cd.StepResult(
        state={"x": x, "x_dot": x_dot, "theta": theta, "theta_dot": theta_dot},
        reward={"cart": np.ones((len(x), 1))},
        terminated=ran_off | fell,
        events={
            "ran off left": ran_off & (x < 0),
            "ran off right": ran_off & (x > 0),
            "fell left": fell & (theta < 0),
            "fell right": fell & (theta > 0),
            "balanced": ~ran_off & ~fell,
            "pushed left": force < 0,
            "pushed right": force > 0,
        },
        margin={"terminated": nearest},
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return the observed fields of the state, (N, 1, 4), or (N, 1, 2) with ``position_only``."""
    seen = [states[f.name].astype(np.float64) for f in observed(p)]
    return cd.Observation({"cart": np.stack(seen, axis=-1)[:, None, :]})


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states well beyond both limits, with any angle."""
    states = np.empty(n, [(f.name, f.dtype) for f in state(p)])
    states["x"] = rng.uniform(-1.3, 1.3, n) * p.x_limit
    states["x_dot"] = rng.normal(0, 2, n)
    upright = rng.uniform(-1.3, 1.3, n) * p.theta_limit
    states["theta"] = np.where(rng.random(n) < 0.7, upright, rng.uniform(-np.pi, np.pi, n))
    states["theta_dot"] = rng.normal(0, 2, n)
    return states


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw cart and pole, and the path of the pole's tip. One unit is a meter."""
    length = 2 * p.half_length
    canvas.view(-1.2 * p.x_limit, 1.2 * p.x_limit, -0.7 * length, top=1.3 * length)
    canvas.line([(-1.2 * p.x_limit, 0), (1.2 * p.x_limit, 0)], 0.015, canvas.GRAY)
    for end in (-p.x_limit, p.x_limit):
        canvas.line([(end, -0.15), (end, 0.15)], 0.03, canvas.PINK)
    tips = np.stack(
        [states["x"] + length * np.sin(states["theta"]), length * np.cos(states["theta"])], axis=-1
    )
    canvas.trail(tips.astype(float).tolist(), 0.025, canvas.YELLOW)
    x = float(states["x"][-1])
    canvas.rectangle(x - 0.25, -0.12, x + 0.25, 0.12, canvas.BLUE)
    canvas.line([(x, 0), tips[-1]], 0.06, canvas.ORANGE)
    canvas.circle((x, 0), 0.05, canvas.STAGE)
    canvas.key((canvas.PINK, "ends of the track"))


FULL = {
    "num_envs": 256,
    "steps": 500_000,
    "ppo": {
        "learning_rate": ((0, 2.5e-3), (500_000, 1e-4)),
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "update_epochs": 8,
    },
    # A2C has one gradient step per iteration, so it needs many short iterations. Returns of 100
    # would saturate the critic. Its values would then be equal everywhere, and the policy could
    # not learn that the cart drifts to the edge.
    "a2c": {
        "num_envs": 64,
        "steps": 4_000_000,
        "learning_rate": ((0, 3e-3), (4_000_000, 1.5e-4)),
        "normalize_reward": True,
    },
    # Exploration keeps the cart in many places. Without it the values of both actions become equal
    # where the policy stays, and the greedy one drifts to the edge elsewhere.
    "pqn": {
        "num_envs": 128,
        "steps": 980_000,
        "learning_rate": ((0, 1e-3), (980_000, 1e-6)),
        "gamma": 0.98,
        "q_lambda": 0.9,
        "epsilon": ((0, 1.0), (200_000, 0.1)),
        "num_minibatches": 8,
        "hidden": (64, 64),
        "normalize_reward": True,
    },
}
# A policy with hidden state can compute velocities as differences of positions.
REMEMBERING = {
    "num_envs": 32,
    "steps": 1_000_000,
    "ppo": {
        "network": {
            "hidden": (64,),
            "core": {"kind": "gru", "size": 64},
            "activation": "relu",
            "shared": True,
        },
        "learning_rate": ((0, 2e-3), (1_000_000, 1e-4)),
        "num_steps": 128,
        "normalize_obs": True,
        "normalize_reward": True,
    },
}
SPEC = cd.EnvSpec(
    name="cartpole",
    params=Params,
    state=state,
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe, sample_states),
    cases=({}, {"position_only": True}),
    display=cd.Display(
        draw=draw,
        # There is no third action. Without a key, the last action is repeated.
        keys=lambda p: {"cart": {"": None, "ArrowLeft": 0, "ArrowRight": 1}},
        size=(960, 480),
        fps=50,
        showcase={"still": 1.0},  # the final state
    ),
    training=lambda p: REMEMBERING if p.position_only else FULL,
    reward_threshold=475.0,
    summary="Balance a pole on a cart (Gymnasium's CartPole-v1).",
    title="CartPole",
)
