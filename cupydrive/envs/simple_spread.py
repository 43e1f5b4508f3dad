"""Simple spread: agents cover landmarks on a plane and avoid collisions with each other.

Source: the rules of ``simple_spread`` (Lowe et al. 2017, "Multi-agent actor-critic for mixed
cooperative-competitive environments") as in MPE2 1.1.1, including observation and actions. Two
differences: agents at exactly the same position do not push each other (MPE2 divides 0 by 0), and
a continuous action outside [0, 1] is clipped.

There are as many landmarks as agents. The last 2 (A - 1) entries of an observation are 0, for the
unused communication channels of the other agents. A centralized critic sees the whole state.
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

FIELDS = "x", "y", "x_dot", "y_dot", "landmark_x", "landmark_y"
MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # (action, axis)
ARROWS = "", "ArrowLeft", "ArrowRight", "ArrowDown", "ArrowUp"
ACTIONS = range(5), map(tuple, np.eye(5).tolist())  # discrete, continuous
KEYS = [dict(zip(ARROWS, actions, strict=True)) for actions in ACTIONS]
SIZE, TAU, DAMPING = 0.15, 0.1, 0.25  # radius of an agent, time step in s, damping per step
ACCELERATION = 5.0  # acceleration of a full push in length/s^2
STIFFNESS, MARGIN = 100.0, 1e-3  # stiffness of a contact in 1/s^2, and its soft length
COVERED = 0.1  # distance within which an agent covers a landmark
CONTACT_SPEED = TAU * STIFFNESS * 2 * SIZE  # speed gained in a step from a full overlap


@dataclass(frozen=True)
class Params:
    """Number of agents, actions and reward."""

    num_agents: int = cd.param(3, "Number of agents, and of landmarks.", low=1, high=1000)
    continuous_actions: bool = cd.param(False, "Five numbers in [0, 1] instead of a choice of 5.")
    local_ratio: float = cd.param(0.5, "Weight of an agent's own collisions.", low=0.0, high=1.0)
    max_episode_steps: int = cd.param(25, "Time limit.", unit="steps", low=1)


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    about = {True: (CONTACT_SPEED, "length/s"), False: (1.0, "length")}
    return tuple(cd.Field(f, "f4", (p.num_agents,), *about["dot" in f]) for f in FIELDS)


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: agents that see everything, relative to themselves."""
    agents, entries = p.num_agents, 6 * p.num_agents
    actions = spaces.Box(0.0, 1.0, (5,)) if p.continuous_actions else spaces.Discrete(5)
    scale = np.repeat([CONTACT_SPEED, 1.0], [2, entries - 2])
    moving = np.tile([1.0, 1.0, CONTACT_SPEED, CONTACT_SPEED], agents)
    critic_scale = np.concatenate([moving, np.ones(2 * agents)])
    group = cd.Group(
        "agent", agents, entries, actions, scale, reward_scale=float(agents),
        critic_obs_dim=entries, critic_obs_scale=critic_scale,
    )  # fmt: skip
    return (group,)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) initial states, exact in float32: agents at rest, positions in [-1, 1)."""
    places = np.float32(2) * random.uniform(p.num_agents) - np.float32(1)  # (N, A, 4)
    states = np.zeros(len(places), [(f.name, f.dtype, f.shape) for f in state(p)])
    for k, name in enumerate(("x", "y", "landmark_x", "landmark_y")):
        states[name] = places[..., k]
    return states


def vectors(states: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return positions and velocities of agents, and landmarks, (N, A, 2) in float64."""
    pairs = zip(FIELDS[::2], FIELDS[1::2], strict=True)
    return tuple(np.stack([states[f].astype(np.float64) for f in pair], axis=-1) for pair in pairs)


def apart(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return b - a of all pairs, (N, A, B, 2), and its length, infinite from an agent to itself."""
    way = b[:, None] - a[:, :, None]
    oneself = np.where((a is b) & np.eye(a.shape[1], dtype=bool), np.inf, 0.0)
    return way, np.sqrt((way**2).sum(axis=-1)) + oneself


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["agent"] is (N, A), or (N, A, 5) of floats."""
    place, velocity, landmark = vectors(states)
    chosen = action["agent"]
    push = np.clip(chosen, 0, 1) @ MOVES if p.continuous_actions else MOVES[chosen]
    way, distance = apart(place, place)
    contact = STIFFNESS * MARGIN * np.logaddexp(0, (2 * SIZE - distance) / MARGIN)
    contact = np.divide(contact, distance, out=np.zeros_like(contact), where=distance > 0)
    force = ACCELERATION * push - (contact[..., None] * way).sum(axis=2)
    place, velocity = place + TAU * velocity, (1 - DAMPING) * velocity + TAU * force

    nearest = apart(place, landmark)[1].min(axis=1)  # (N, landmarks)
    covered, between = nearest < COVERED, apart(place, place)[1]
    hits = (between < 2 * SIZE).sum(axis=2)
    to_hit = cd.nearest_decision(np.abs(between - 2 * SIZE), axis=2)
    moved = np.concatenate([place, velocity, landmark], axis=-1)
    shared = -nearest.sum(axis=1, keepdims=True)
    return cd.StepResult(
        state={name: moved[..., k] for k, name in enumerate(FIELDS)},
        reward={"agent": (1 - p.local_ratio) * shared - p.local_ratio * hits},
        terminated=np.zeros(len(states), bool),
        metrics={"covered": covered.sum(axis=1), "collisions": hits.sum(axis=1) // 2},
        events={"collision": hits > 0, "same place": distance == 0, "all covered": covered.all(1)},
        margin={
            "reward.agent": to_hit,
            "metric.collisions": to_hit.min(axis=1),
            "metric.covered": cd.nearest_decision(np.abs(nearest - COVERED), axis=1),
        },
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return (N, A, 6 A): own velocity and position, offsets to landmarks and agents, zeros.

    A critic sees positions and velocities of all agents, the own first, and positions of landmarks.
    """
    place, velocity, landmark = vectors(states)
    to_other = apart(place, place)[0][:, ~np.eye(p.num_agents, dtype=bool)]
    ways = (w.reshape(*place.shape[:2], -1) for w in (apart(place, landmark)[0], to_other))
    seen = [velocity, place, *ways, np.zeros((*place.shape[:2], 2 * p.num_agents - 2))]
    moving = np.concatenate([place, velocity], axis=-1)
    turns = [np.roll(moving, -i, axis=1).reshape(len(moving), -1) for i in range(p.num_agents)]
    marks = landmark.reshape(len(landmark), 1, -1).repeat(p.num_agents, axis=1)
    critic_obs = np.concatenate([np.stack(turns, axis=1), marks], axis=-1)
    obs = np.concatenate(seen, axis=-1)
    return cd.Observation({"agent": obs}, critic_obs={"agent": critic_obs})


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw moving agents, crowded, spread out, near landmarks, or at the same position."""
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    shape, at_landmarks, same = (n, p.num_agents), rng.random((n, 1)) < 0.5, rng.random(n) < 0.05
    spread = rng.choice([0.1, 0.35, 0.7], (n, 1)) * p.num_agents**0.5
    for axis in "xy":
        states[f"landmark_{axis}"] = rng.uniform(-1, 1, shape)
        near = states[f"landmark_{axis}"] + rng.normal(0, 0.07, shape)
        states[axis] = np.where(at_landmarks, near, spread * rng.normal(0, 1, shape))
        states[axis][same, -1] = states[axis][same, 0]
        states[f"{axis}_dot"] = rng.normal(0, 0.7, shape)
    return states


def heuristic(p: Params, obs: "torch.Tensor", group: str) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C) of each head: go to the landmark with the largest lead, and brake."""
    x, y, best = 0.0 * obs[..., 0], 0.0 * obs[..., 0], 0.0 * obs[..., 0] + 1e3
    others = 4 + 2 * p.num_agents
    for k in range(4, others, 2):
        dx, dy = obs[..., k], obs[..., k + 1]
        rival = 0.0 * x + 100.0
        for j in range(others, others + 2 * (p.num_agents - 1), 2):
            rival = rival.clip(max=((obs[..., j] - dx) ** 2 + (obs[..., j + 1] - dy) ** 2) ** 0.5)
        behind = (dx**2 + dy**2) ** 0.5 - rival
        better = (behind < best) * 1.0
        wish = ((dx, x), (dy, y), (behind, best))
        x, y, best = (better * new + (1 - better) * old for new, old in wish)
    coast = TAU / DAMPING  # stopping distance per velocity
    x, y = x - coast * obs[..., 0], y - coast * obs[..., 1]
    if p.continuous_actions:
        return (0.0 * x, *((4 * way).clip(0, 1) for way in (-x, x, -y, y)))
    along_x, far = abs(x) > abs(y), (abs(x) > 0.05) | (abs(y) > 0.05)
    return (far * (along_x * (1 + (x > 0) * 1) + ~along_x * (3 + (y > 0) * 1)),)


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw agents with their paths, and landmarks on top."""
    canvas.view(-1.5, 1.5, -1.5, top=1.5)
    canvas.rectangle(-1, -1, 1, 1, canvas.FLOOR)  # where episodes begin
    places, _, landmarks = vectors(states)  # (K, A, 2)
    here, marks = places[-1:], landmarks[-1:]
    hit = (apart(here, here)[1][0] < 2 * SIZE).any(axis=1)
    covered = (apart(here, marks)[1][0] < COVERED).any(axis=0)
    colors = [canvas.ORANGE if touches else canvas.BLUE for touches in hit]
    for i, color in enumerate(colors):
        canvas.trail(places[:, i].tolist(), 0.3 * SIZE, color)
    for place, color in zip(here[0], colors, strict=True):
        canvas.circle(place, SIZE, color)
    for mark, done in zip(marks[0], covered, strict=True):
        canvas.circle(mark, 0.06, canvas.STAGE)
        canvas.circle(mark, 0.045, canvas.GREEN if done else canvas.YELLOW)
    canvas.agents("agent", here[0])
    canvas.key(
        (canvas.BLUE, "agents", p.num_agents),
        (canvas.ORANGE, "colliding", int(hit.sum())),
        (canvas.GREEN, "landmarks covered", int(covered.sum())),
    )


LEARN = {
    **dict(num_steps=25, num_minibatches=8, gamma=0.9, gae_lambda=0.9, normalize_reward=True),
    "learning_rate": ((0, 3e-3), (1_500_000, 1e-4)),
    "ent_coef": ((0, 0.01), (1_500_000, 0.0)),
}
BOX = {"continuous_actions": True}
SPEC = cd.EnvSpec(
    name="simple_spread",
    params=Params,
    state=state,
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe, sample_states),
    metrics={"covered": "int", "collisions": "int"},
    cases=({}, BOX, {"num_agents": 1}, {"num_agents": 5} | BOX, {"num_agents": 40}),
    heuristic=heuristic,
    display=cd.Display(draw, (760, 834), 10, keys=lambda p: {"agent": KEYS[p.continuous_actions]}),
    training={"num_envs": 128, "steps": 1_500_000, "ppo": LEARN},
    summary="Agents cover landmarks and avoid collisions (MPE2's simple_spread).",
)
