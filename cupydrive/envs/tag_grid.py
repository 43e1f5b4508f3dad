"""Tag on a grid: taggers chase one runner until one stands on its cell.

Source: the rules of WarpDrive's TagGridWorld (Lan, Srinivasa, Wang & Zheng, JMLR 2022), with these
differences:

* Every episode starts from a new random layout drawn on the device. ``start="fixed"`` gives
  WarpDrive's, with all taggers in the middle and the runner in a corner. ``starting_location_x``
  and ``starting_location_y`` set your own.
* The type code is 1 for a tagger and 0 for the runner, as in continuous Tag (WarpDrive's codes are
  reversed here).
* The default sizes and rewards are those of WarpDrive's run configuration, not of its class. The
  default observation contains the nearest opponent, whereas WarpDrive's contains all agents
  (``use_full_observation``).
* WarpDrive's pool of five initial states is not supported.

The board has (grid_length + 1)^2 cells. When the runner is caught, it gets the penalty and not the
reward for surviving the step, even in the last step.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.errors import ParameterError
from cupydrive.random import RandomStream, below

if TYPE_CHECKING:
    import torch

    from cupydrive.drawing.canvas import Canvas

MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])  # (action, axis)
ARROW_ACTIONS = {"": 0, "ArrowRight": 1, "ArrowLeft": 2, "ArrowUp": 3, "ArrowDown": 4}


@dataclass(frozen=True)
class Params:
    """Sizes, rewards and start of grid Tag."""

    num_taggers: int = cd.param(4, "Number of taggers.", low=1, high=10_000)
    grid_length: int = cd.param(100, "Largest coordinate.", unit="cells", low=1, high=1_000_000)
    use_full_observation: bool = cd.param(False, "Observe all A agents: 4 A + 1 numbers.")
    num_other_agents_observed: int = cd.param(
        0,
        "Observe the k nearest agents (3 k + 4 numbers), or with 0 the nearest opponent (6).",
        low=0,
        high=32,
    )
    start: str = cd.param("random", "Default initial layout.", choices=("random", "fixed"))
    starting_location_x: tuple = cd.param(
        (), "Initial x of all agents, taggers first.", of=int, unit="cells", low=0, high=1_000_000
    )
    starting_location_y: tuple = cd.param(
        (), "Initial y of all agents.", of=int, unit="cells", low=0, high=1_000_000
    )
    wall_hit_penalty: float = cd.param(0.1, "Penalty for running into a wall.", low=0.0, high=1e6)
    tag_reward_for_tagger: float = cd.param(
        10.0, "Reward of every tagger for catching the runner.", low=0.0, high=1e6
    )
    tag_penalty_for_runner: float = cd.param(
        5.0, "Penalty of the runner for being caught.", low=0.0, high=1e6
    )
    step_cost_for_tagger: float = cd.param(
        0.01, "Penalty of taggers and reward of the runner in other steps.", low=0.0, high=1e6
    )
    max_episode_steps: int = cd.param(
        100, "Time limit, which terminates the episode.", unit="steps", low=1
    )


def check(p: Params) -> None:
    """Raise an error for too many neighbors or invalid initial layouts."""
    places = "starting_location_x", "starting_location_y"
    cd.check_each("tag_grid", p, places, p.num_taggers + 1, 0, p.grid_length, "cells")
    if not p.use_full_observation and p.num_other_agents_observed > p.num_taggers:
        raise ParameterError(
            f"tag_grid: num_other_agents_observed = {p.num_other_agents_observed}, but an agent "
            f"has {p.num_taggers} others. Pass num_other_agents_observed={p.num_taggers} or less"
        )


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``. Agents are taggers, then the runner."""
    agents = (p.num_taggers + 1,)
    return (cd.Field("x", "i4", agents, unit="cells"), cd.Field("y", "i4", agents, unit="cells"))


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the two groups."""
    k = p.num_other_agents_observed
    obs_dim = 4 * (p.num_taggers + 1) + 1 if p.use_full_observation else 3 * k + 4 if k else 6
    scale = max(1.0, p.tag_reward_for_tagger, p.tag_penalty_for_runner)
    common = dict(
        obs_dim=obs_dim,
        action_space=spaces.Discrete(5),
        reward_scale=scale,
        obs_low=0.0,
        obs_high=1.0,
    )
    return (cd.Group("tagger", p.num_taggers, **common), cd.Group("runner", 1, **common))


def tables(p: Params) -> cd.TableArrays:
    """Return the given initial values by their names in the kernel."""
    given = {"start_x": p.starting_location_x, "start_y": p.starting_location_y}
    return {name: np.array(places) for name, places in given.items() if places}


def reset(p: Params, random: RandomStream, table: SimpleNamespace) -> np.ndarray:
    """Return (N,) initial states, exact."""
    words = random.bits(p.num_taggers + 1)  # (N, A, 4)
    states = np.empty(len(words), [(f.name, f.dtype, f.shape) for f in state(p)])
    if p.start == "fixed":
        for axis in "xy":
            states[axis][:, :-1] = p.grid_length // 2
            states[axis][:, -1] = 0
    else:
        states["x"] = below(words[..., 0], p.grid_length + 1)
        states["y"] = below(words[..., 1], p.grid_length + 1)
    for name, places in vars(table).items():
        states[name.removeprefix("start_")] = places
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["tagger"] is (N, num_taggers), action["runner"] (N, 1)."""
    moves = MOVES[np.concatenate([action["tagger"], action["runner"]], axis=1)]  # (N, A, 2)
    wanted = np.stack([states["x"], states["y"]], axis=-1) + moves
    place = np.clip(wanted, 0, p.grid_length)
    hit = np.any(place != wanted, axis=-1)  # (N, A)
    on_runner = np.all(place[:, :-1] == place[:, -1:], axis=-1)  # (N, num_taggers)
    caught = on_runner.any(axis=1)
    tagger = (
        np.where(caught, p.tag_reward_for_tagger, -p.step_cost_for_tagger)[:, None]
        - p.wall_hit_penalty * hit[:, :-1]
    )
    runner = (
        np.where(caught, -p.tag_penalty_for_runner, p.step_cost_for_tagger)[:, None]
        - p.wall_hit_penalty * hit[:, -1:]
    )
    last = elapsed >= p.max_episode_steps
    return cd.StepResult(
        state={"x": place[..., 0], "y": place[..., 1]},
        reward={"tagger": tagger, "runner": runner},
        terminated=caught,
        metrics={"tags": on_runner.sum(axis=1), "wall_hits": hit.sum(axis=1)},
        events={
            "wall hit by a tagger": hit[:, :-1],
            "wall hit by the runner": hit[:, -1],
            "caught": caught,
            "double tag": on_runner.sum(axis=1) > 1,
            "caught in the last step": caught & last,
            "survived the last step": ~caught & last,
            "caught at a wall": caught & hit[:, -1],
        },
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return observations by group: (N, num_taggers, D) and (N, 1, D)."""
    n, agents = states["x"].shape
    x, y = states["x"] / p.grid_length, states["y"] / p.grid_length
    kind = np.append(np.ones(agents - 1), 0.0)
    time = np.broadcast_to((elapsed / p.max_episode_steps)[:, None, None], (n, agents, 1))

    def to_all(row: np.ndarray) -> np.ndarray:
        return np.broadcast_to(row, (n, agents, row.shape[-1]))

    if p.use_full_observation:
        parts = [
            to_all(x[:, None, :]),
            to_all(y[:, None, :]),
            to_all(kind),
            to_all(np.eye(agents)),
            time,
        ]
        obs = np.concatenate(parts, axis=-1)
    elif p.num_other_agents_observed:
        seen = nearest_agents(states, p.num_other_agents_observed)  # (N, A, k)
        of_seen = [np.take_along_axis(to_all(c[:, None, :]), seen, axis=2) for c in (x, y)]
        own = np.stack([x, y, np.broadcast_to(kind, (n, agents))], axis=-1)
        obs = np.concatenate([own, *of_seen, kind[seen], time], axis=-1)
    else:
        dx = (states["x"][:, :-1] - states["x"][:, -1:]).astype(np.int64)
        dy = (states["y"][:, :-1] - states["y"][:, -1:]).astype(np.int64)
        chaser = np.argmin(dx**2 + dy**2, axis=1)  # the lower id wins a tie
        other = np.full((n, agents), agents - 1)
        other[:, -1] = chaser
        of_other = [np.take_along_axis(c, other, axis=1) for c in (x, y)]
        obs = np.concatenate(
            [np.stack([x, y, *of_other, np.broadcast_to(kind, (n, agents))], axis=-1), time],
            axis=-1,
        )
    return cd.Observation({"tagger": obs[:, :-1], "runner": obs[:, -1:]})


def nearest_agents(states: np.ndarray, k: int) -> np.ndarray:
    """Return ids (N, A, k) of the nearest other agents, ascending, with ties by id."""
    x, y = (states[axis].astype(np.int64) for axis in "xy")
    squared = (x[:, None, :] - x[:, :, None]) ** 2 + (y[:, None, :] - y[:, :, None]) ** 2
    agents = np.arange(x.shape[1])
    squared[:, agents, agents] = np.iinfo(np.int64).max
    return np.argsort(squared, axis=2, kind="stable")[..., :k]


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw layouts that are often crowded around the runner or a wall, where the rules matter."""
    agents, top = p.num_taggers + 1, p.grid_length
    states = np.empty(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    middle = {axis: rng.integers(0, top + 1, (n, 1)) for axis in "xy"}
    corner = rng.random((n, 1)) < 0.3
    spread = rng.choice([1, 2, top], (n, 1))
    for axis in "xy":
        center = np.where(corner, rng.choice([0, top], (n, 1)), middle[axis])
        states[axis] = np.clip(center + rng.integers(-spread, spread + 1, (n, agents)), 0, top)
    return states


def to_opponent(p: Params, obs: "torch.Tensor", group: str) -> tuple["torch.Tensor", ...]:
    """Return (own x, own y, dx, dy), each (N, C), with the offset to the nearest observed opponent.

    The offset is 0 if no opponent is observed.
    """
    if not p.use_full_observation and not p.num_other_agents_observed:
        return obs[..., 0], obs[..., 1], obs[..., 2] - obs[..., 0], obs[..., 3] - obs[..., 1]
    if p.use_full_observation:
        count, first = p.num_taggers + 1, 0
        is_me = obs[..., 3 * count : 4 * count]
        x, y = ((obs[..., k * count : (k + 1) * count] * is_me).sum(-1) for k in (0, 1))
    else:
        count, first = p.num_other_agents_observed, 3
        x, y = obs[..., 0], obs[..., 1]
    to_x, to_y, best = 0.0 * x, 0.0 * x, 0.0 * x + 1e9
    for k in range(first, first + count):
        dx, dy = obs[..., k] - x, obs[..., k + count] - y
        distance = dx * dx + dy * dy
        opponent = (obs[..., k + 2 * count] > 0.5) == (group == "runner")
        nearer = (opponent & (distance < best)) * 1.0
        to_x, to_y, best = (
            nearer * a + (1 - nearer) * b for a, b in ((dx, to_x), (dy, to_y), (distance, best))
        )
    return x, y, to_x, to_y


def heuristic(p: Params, obs: "torch.Tensor", group: str) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C): chase or flee the nearest opponent along the longer axis.

    Observations (N, C, D) may be NumPy arrays or torch tensors.
    """
    x, y, dx, dy = to_opponent(p, obs, group)
    along_x = abs(dx) >= abs(dy)
    apart = (dx != 0) | (dy != 0)
    if group == "tagger":
        return (apart * (along_x * (1 + (dx < 0) * 1) + ~along_x * (3 + (dy < 0) * 1)),)
    # Flee along a wall instead of into it.
    blocked_x = ((dx > 0) & (x <= 0)) | ((dx <= 0) & (x >= 1))
    blocked_y = ((dy > 0) & (y <= 0)) | ((dy <= 0) & (y >= 1))
    along_x = (along_x & ~blocked_x) | blocked_y
    return (along_x * (1 + (dx > 0) * 1) + ~along_x * (3 + (dy > 0) * 1),)


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw taggers as squares, the runner as a disc, and their paths. One unit is a cell."""
    top = p.grid_length
    side = top + 1
    canvas.view(
        -0.5 - 0.02 * side, top + 0.5 + 0.02 * side, -0.5 - 0.02 * side, top=top + 0.5 + 0.02 * side
    )
    canvas.rectangle(-0.5, -0.5, top + 0.5, top + 0.5, canvas.FLOOR)
    if top <= 40 and canvas.width > 12 * side:  # otherwise the lines would cover the picture
        lines = canvas.mix(canvas.FLOOR, canvas.GRID, 0.5)
        for k in range(top):
            canvas.line([(-0.5, k + 0.5), (top + 0.5, k + 0.5)], 0.03, lines)
            canvas.line([(k + 0.5, -0.5), (k + 0.5, top + 0.5)], 0.03, lines)
    size = max(0.42, top / 60)
    ways = np.stack([states["x"], states["y"]], axis=-1).astype(float)  # (K, A, 2)
    for i in range(p.num_taggers + 1):
        canvas.trail(
            ways[-6:, i].tolist(), 0.5 * size, canvas.ORANGE if i < p.num_taggers else canvas.BLUE
        )
    # Only a step can catch. An episode may begin with a tagger on the runner's cell.
    caught = elapsed > 0 and bool((ways[-1, :-1] == ways[-1, -1]).all(axis=-1).any())
    color = canvas.GRAY if caught else canvas.BLUE
    canvas.circle(ways[-1, -1], size, color)
    for x, y in ways[-1, :-1]:
        canvas.rectangle(
            x - 0.85 * size, y - 0.85 * size, x + 0.85 * size, y + 0.85 * size, canvas.ORANGE
        )
    canvas.circle(
        ways[-1, -1], 0.5 * size, color
    )  # the runner is on top of the tagger that has caught it
    canvas.key(
        (canvas.ORANGE, "taggers", p.num_taggers),
        (canvas.BLUE, "free", 1 - caught),
        (canvas.GRAY, "caught", caught),
    )
    canvas.agents("tagger", ways[-1, :-1])
    canvas.agents("runner", ways[-1, -1:])


SPEC = cd.EnvSpec(
    name="tag_grid",
    params=Params,
    state=state,
    groups=groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, observe, sample_states),
    check=check,
    tables=tables,
    metrics={"tags": "int", "wall_hits": "int"},
    cases=(
        {},
        {"grid_length": 10, "use_full_observation": True},
        {"num_taggers": 40, "grid_length": 30},
        {"num_taggers": 9, "grid_length": 6, "num_other_agents_observed": 5},
        {"num_taggers": 2, "grid_length": 5, "start": "fixed"},
        {
            "num_taggers": 2,
            "grid_length": 5,
            "starting_location_x": (0, 5, 2),
            "starting_location_y": (5, 0, 3),
        },
        # squared distances and ids need more than 32 bits
        {"num_taggers": 40, "grid_length": 20_000},
    ),
    heuristic=heuristic,
    display=cd.Display(
        draw=draw,
        keys=lambda p: dict.fromkeys(("tagger", "runner"), ARROW_ACTIONS),
        size=(760, 834),
        fps=8,
        showcase={
            "params": {"grid_length": 20},
            "rivals": ("runner",),
            "still": 0.9,  # the runner is nearly caught
            "num_envs": 2048,
            "steps": 20_000_000,
            "ppo": {
                "learning_rate": ((0, 2.5e-3), (20_000_000, 1.25e-4)),
                "ent_coef": ((0, 0.01), (20_000_000, 0.0)),
            },
        },
    ),
    training={
        "num_envs": 1024,
        "steps": 10_000_000,
        "ppo": {
            "learning_rate": ((0, 2.5e-3), (10_000_000, 1.25e-4)),
            "ent_coef": ((0, 0.01), (10_000_000, 0.0)),
        },
    },
    summary="Taggers chase one runner on a grid (WarpDrive's TagGridWorld).",
)
