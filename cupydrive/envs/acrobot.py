"""Acrobot-v1: swing up the free end of two links with a motor at the joint between them.

Source: Gymnasium's ``acrobot.py``, after Sutton (1996) and Sutton & Barto (2018), section 11.3.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    import torch

    from cupydrive.drawing.canvas import Canvas

FIELDS = ("theta1", "theta2", "dtheta1", "dtheta2")


@dataclass(frozen=True)
class Params:
    """The two links, the motor and the task."""

    dynamics_of: str = cd.param(
        "book", "Equations of motion: Sutton & Barto's, or the paper's.", choices=("book", "nips")
    )
    gravity: float = cd.param(9.8, "Gravitational acceleration.", unit="m/s^2", low=0.0, high=100.0)
    length_1: float = cd.param(
        1.0, "Length of the first link.", unit="m", low=0.1, high=10.0, vary=(0.8, 1.2)
    )
    mass_1: float = cd.param(
        1.0, "Mass of the first link.", unit="kg", low=0.1, high=10.0, vary=(0.8, 1.2)
    )
    mass_2: float = cd.param(
        1.0, "Mass of the second link.", unit="kg", low=0.1, high=10.0, vary=(0.8, 1.2)
    )
    center_1: float = cd.param(
        0.5,
        "Distance from the hinge to the first link's center of mass.",
        unit="m",
        low=0.05,
        high=5.0,
        vary=(0.4, 0.6),
    )
    center_2: float = cd.param(
        0.5,
        "Distance from the joint to the second link's center of mass.",
        unit="m",
        low=0.05,
        high=5.0,
        vary=(0.4, 0.6),
    )
    inertia: float = cd.param(
        1.0, "Moment of inertia of a link.", unit="kg m^2", low=0.1, high=10.0, vary=(0.8, 1.2)
    )
    torque: float = cd.param(1.0, "Torque of the motor.", unit="N m", low=0.0, high=100.0)
    tau: float = cd.param(
        0.2, "Time between two actions.", unit="s", low=1e-3, high=0.5, vary=(0.1, 0.2)
    )
    max_speed_1: float = cd.param(
        4 * np.pi, "Top speed of the first link.", unit="rad/s", low=0.1, high=50.0, vary=(3.0, 9.0)
    )
    max_speed_2: float = cd.param(
        9 * np.pi,
        "Top speed of the second link.",
        unit="rad/s",
        low=0.1,
        high=50.0,
        vary=(7.0, 20.0),
    )
    goal_height: float = cd.param(
        1.0, "Height of the free end above the hinge to reach.", unit="m", low=-2.0, high=2.0
    )
    start_range: float = cd.param(
        0.1, "Half range of the uniform initial states.", low=0.0, high=3.0
    )
    max_episode_steps: int = cd.param(500, "Time limit.", unit="steps", low=1)


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    scales, units = (np.pi, np.pi, 4 * np.pi, 9 * np.pi), ("rad", "rad", "rad/s", "rad/s")
    return tuple(
        cd.Field(name, scale=s, unit=unit)
        for name, s, unit in zip(FIELDS, scales, units, strict=True)
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the arm."""
    scale = np.array([1.0, 1.0, 1.0, 1.0, 4 * np.pi, 9 * np.pi])
    high = np.array([1.0, 1.0, 1.0, 1.0, p.max_speed_1, p.max_speed_2], np.float32)
    return (
        cd.Group("arm", 1, 6, spaces.Discrete(3), obs_scale=scale, obs_low=-high, obs_high=high),
    )


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) initial states: four uniform draws, exact in float32."""
    u = random.uniform()[:, 0]  # (N, 4)
    low, span = -np.float32(p.start_range), np.float32(2) * np.float32(p.start_range)
    states = np.empty(len(u), [(f.name, f.dtype) for f in state(p)])
    for k, name in enumerate(FIELDS):
        states[name] = low + span * u[:, k]
    return states


def derivative(p: Params, y: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """Return the time derivative of (N, 4) states, from the manipulator equations."""
    theta1, theta2, dtheta1, dtheta2 = y.T
    lever = p.mass_2 * p.length_1 * p.center_2
    inertia_2 = p.mass_2 * p.center_2**2 + p.inertia
    inertia_12 = inertia_2 + lever * np.cos(theta2)
    inertia_1 = (
        p.mass_1 * p.center_1**2
        + p.mass_2 * (p.length_1**2 + p.center_2**2 + 2 * p.length_1 * p.center_2 * np.cos(theta2))
        + 2 * p.inertia
    )
    weight_2 = p.mass_2 * p.center_2 * p.gravity * np.cos(theta1 + theta2 - np.pi / 2)
    force_1 = (
        -lever * dtheta2**2 * np.sin(theta2)
        - 2 * lever * dtheta1 * dtheta2 * np.sin(theta2)
        + (p.mass_1 * p.center_1 + p.mass_2 * p.length_1) * p.gravity * np.cos(theta1 - np.pi / 2)
        + weight_2
    )
    centripetal = lever * dtheta1**2 * np.sin(theta2) if p.dynamics_of == "book" else 0.0
    accel_2 = (torque + inertia_12 / inertia_1 * force_1 - centripetal - weight_2) / (
        inertia_2 - inertia_12**2 / inertia_1
    )
    return np.stack(
        [dtheta1, dtheta2, -(inertia_12 * accel_2 + force_1) / inertia_1, accel_2], axis=-1
    )


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states by one fourth-order Runge-Kutta step in float64. action["arm"] is (N, 1)."""
    y = np.stack([states[name].astype(np.float64) for name in FIELDS], axis=-1)
    turned = action["arm"][:, 0] - 1
    torque = turned * p.torque
    k1 = derivative(p, y, torque)
    k2 = derivative(p, y + p.tau / 2 * k1, torque)
    k3 = derivative(p, y + p.tau / 2 * k2, torque)
    k4 = derivative(p, y + p.tau * k3, torque)
    y = y + p.tau / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles = (y[:, :2] + np.pi) % (2 * np.pi) - np.pi
    top = np.array([p.max_speed_1, p.max_speed_2])
    speeds = np.clip(y[:, 2:], -top, top)
    height = -np.cos(angles[:, 0]) - np.cos(angles.sum(axis=1))
    up = height > p.goal_height
    near_goal = np.abs(height - p.goal_height) / 2
    near_turn = np.abs(np.abs((y[:, :2] + np.pi) % (2 * np.pi) - np.pi) - np.pi) / np.pi
    return cd.StepResult(
        state={
            "theta1": angles[:, 0],
            "theta2": angles[:, 1],
            "dtheta1": speeds[:, 0],
            "dtheta2": speeds[:, 1],
        },
        reward={"arm": (up - 1.0)[:, None]},
        terminated=up,
        events={
            "swung up": up,
            "first link over the top": np.abs(y[:, 0]) > np.pi,
            "second link over the top": np.abs(y[:, 1]) > np.pi,
            "speed at its limit": (np.abs(y[:, 2:]) > top).any(axis=1),
            "torque left": turned < 0,
            "torque right": turned > 0,
            "no torque": turned == 0,
        },
        margin={
            "terminated": near_goal,
            "reward.arm": near_goal[:, None],
            "theta1": near_turn[:, 0],
            "theta2": near_turn[:, 1],
        },
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return cosines, sines and speeds, (N, 1, 6)."""
    theta1, theta2, dtheta1, dtheta2 = (states[name].astype(np.float64) for name in FIELDS)
    row = [np.cos(theta1), np.sin(theta1), np.cos(theta2), np.sin(theta2), dtheta1, dtheta2]
    return cd.Observation({"arm": np.stack(row, axis=-1)[:, None]})


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw any angles, and speeds up to half of the usual limits.

    These speeds are three times those of random play. At higher speeds, with an arm that turns once
    per step, a Runge-Kutta step amplifies the rounding errors of float32 by a factor of ten or more
    (measured errors: 1e-5 of the limits), and a check of single steps would be meaningless.
    """
    states = np.empty(n, [(f.name, f.dtype) for f in state(p)])
    for name in FIELDS[:2]:
        states[name] = rng.uniform(-3.1415925, 3.1415925, n)
    for name, top, usual in (
        ("dtheta1", p.max_speed_1, 4 * np.pi),
        ("dtheta2", p.max_speed_2, 9 * np.pi),
    ):
        states[name] = np.clip(rng.uniform(-0.5, 0.5, n) * usual, -top, top)
    return states


def heuristic(p: Params, obs: "torch.Tensor", group: str) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C): turn the second link in the direction of the first link's swing."""
    return (2 * (obs[..., 4] < 0),)


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw both links, the path of the free end and the height to reach. One unit is a meter."""
    reach = p.length_1 + 2 * p.center_2
    canvas.view(-1.15 * reach, 1.15 * reach, -1.15 * reach, top=1.15 * reach)
    canvas.line(
        [(-1.15 * reach, p.goal_height), (1.15 * reach, p.goal_height)], 0.01 * reach, canvas.GREEN
    )
    first, both = (
        states["theta1"].astype(float),
        (states["theta1"] + states["theta2"]).astype(float),
    )
    joint = p.length_1 * np.stack([np.sin(first), -np.cos(first)], axis=-1)
    end = joint + 2 * p.center_2 * np.stack([np.sin(both), -np.cos(both)], axis=-1)
    canvas.trail(end.tolist(), 0.02 * reach, canvas.YELLOW)
    canvas.line([(0, 0), joint[-1]], 0.06 * reach, canvas.BLUE)
    canvas.line([joint[-1], end[-1]], 0.06 * reach, canvas.ORANGE)
    for point in ((0, 0), joint[-1]):
        canvas.circle(point, 0.02 * reach, canvas.STAGE)
    canvas.key((canvas.GREEN, "height to reach"))


SPEC = cd.EnvSpec(
    name="acrobot",
    params=Params,
    state=state,
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe, sample_states),
    cases=({}, {"dynamics_of": "nips"}),
    heuristic=heuristic,
    display=cd.Display(
        draw=draw,
        keys=lambda p: {"arm": {"": 1, "ArrowLeft": 0, "ArrowRight": 2}},
        size=(640, 702),
        fps=15,
        showcase={"still": 1.0},  # the final state
    ),
    training={
        "num_envs": 256,
        "steps": 3_000_000,
        "ppo": {
            "learning_rate": ((0, 2.5e-3), (3_000_000, 1e-5)),
            "gamma": 0.98,
            "gae_lambda": 0.9,
            "ent_coef": ((0, 0.01), (3_000_000, 0.0)),
        },
        "a2c": {
            "num_envs": 64,
            "steps": 4_000_000,
            "learning_rate": ((0, 3e-3), (4_000_000, 1e-4)),
            "gamma": 0.98,
            "gae_lambda": 0.95,
            "ent_coef": ((0, 0.01), (4_000_000, 0.0)),
            "normalize_reward": True,
        },
    },
    reward_threshold=-85.0,
    summary="Swing two links up by the joint between them (Gymnasium's Acrobot-v1).",
)
