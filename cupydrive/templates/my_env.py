"""my_env: walkers on a line look for a goal; the episode ends when one of them stands on it.

Written by `cupydrive new`. Change it and the kernel beside it together; `cupydrive check my_env.py` says whether they agree.
"""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from cupydrive.random import unit
from cupydrive.spec import EnvSpec, Field, Group, Observed, Outcome, nearest_decision, param


@dataclass(frozen=True)
class Params:
    """Ints, bools and choices are compile-time constants in the kernel; floats are its ``struct Params``."""

    num_walkers: int = param(3, "Number of walkers.", low=1, high=1000)
    stride: float = param(0.1, "Length of a step.", unit="m", low=1e-3, high=1.0)
    reach: float = param(0.05, "A walker nearer than this to the goal has found it.", unit="m", low=1e-3, high=1.0)
    max_episode_steps: int = param(100, "Time limit.", unit="steps", low=1)


def state(p):
    """Return the fields of ``struct State``, in order; the checker allows 1e-6 of each scale."""
    return (Field("x", "f4", (p.num_walkers,), scale=1.0, unit="m"), Field("goal", "f4", scale=1.0, unit="m"))


def groups(p):
    """Return the groups of agents; their names are members of ``env`` in the kernel."""
    return (Group("walker", p.num_walkers, obs_dim=4, action_space=spaces.Discrete(3)),)


def reset(p, random):
    """Return (N,) fresh states: the same random words as the kernel, exact in float32."""
    u = unit(random.bits(p.num_walkers + 1))[..., 0]  # (N, num_walkers + 1)
    states = np.empty(len(u), [(f.name, f.dtype, f.shape) for f in state(p)])
    states["x"] = np.float32(2) * u[:, :-1] - np.float32(1)
    states["goal"] = np.float32(2) * u[:, -1] - np.float32(1)
    return states


def step(p, states, action, elapsed, random):
    """Step (N,) states in float64, from the rules and not from the kernel; action["walker"] is (N, num_walkers)."""
    move = np.array([0.0, -1.0, 1.0])[action["walker"]] * p.stride
    wanted = states["x"].astype(np.float64) + move
    x = np.clip(wanted, -1, 1)
    distance = np.abs(x - states["goal"].astype(np.float64)[:, None])
    found = distance < p.reach
    return Outcome(
        state={"x": x, "goal": states["goal"]},
        reward={"walker": -distance},
        terminated=found.any(axis=1),
        metrics={"moves": (action["walker"] != 0).sum(axis=1)},
        events={"found": found, "wall": x != wanted, "left": move < 0, "right": move > 0, "stay": move == 0},
        # How near the comparison `distance < reach` was: within 1e-6 of it float32 may decide either way.
        margin={"terminated": nearest_decision(np.abs(distance - p.reach), axis=1)},
    )


def observe(p, states, elapsed):
    """Return observations by group, (N, num_walkers, 4)."""
    x, goal = states["x"].astype(np.float64), states["goal"].astype(np.float64)[:, None]
    time = np.broadcast_to((elapsed / p.max_episode_steps)[:, None], x.shape)
    first = np.broadcast_to(x[:, :1], x.shape)
    return Observed({"walker": np.stack([x, goal - x, first, time], axis=-1)})


def sample(p, rng, n):
    """Draw n states for the checker, wider than random play reaches."""
    states = np.empty(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["x"] = np.clip(rng.uniform(-1.3, 1.3, (n, p.num_walkers)), -1, 1)
    states["goal"] = rng.uniform(-1, 1, n)
    return states


def heuristic(p, obs, group):
    """Return actions (N, C) of the one head: walk towards the goal."""
    return ((obs[..., 1] < 0) * 1 + (obs[..., 1] > 0) * 2,)


def draw(canvas, p, state, elapsed):
    """Draw one state; one unit is a metre."""
    canvas.view(-1.1, 1.1, -0.7)
    canvas.line([(-1, 0), (1, 0)], 0.01, "#888888")
    canvas.circle((float(state["goal"]), 0), p.reach, "#D98E04")
    for x in state["x"]:
        canvas.circle((float(x), 0), 0.02, "#245EB6")
    canvas.caption(f"step {elapsed}")


SPEC = EnvSpec(
    "my_env",
    Params,
    state,
    groups,
    "limit",
    reset,
    step,
    observe,
    sample,
    metrics={"moves": "int"},
    events=("found", "wall", "left", "right", "stay"),
    cases=({}, {"num_walkers": 40}),
    heuristic=heuristic,
    draw=draw,
    summary="Walkers on a line look for a goal.",
)
