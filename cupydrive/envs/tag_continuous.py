"""Tag on a plane: taggers chase runners, and tagged runners leave the game.

Source: the rules of WarpDrive's TagContinuous (Lan, Srinivasa, Wang & Zheng, JMLR 2022), with these
differences:

* Every episode starts from a new random layout drawn on the device. ``start="fixed"`` gives
  WarpDrive's, one for all environments, drawn from the seed. ``starting_location_x``,
  ``starting_location_y`` and ``starting_directions`` set your own, each of them optional.
* Taggers come first and are fixed. The type code is 1 for a tagger and 0 for a runner.
* The observation is a function of the state after the step, including tags of this step (WarpDrive
  observes the state before).
* Simultaneous tags all count (WarpDrive's kernel loses some in a data race).
* A runner tagged in the last step gets the penalty and not the reward for surviving. WarpDrive
  gives it both without exits, and its kernel also with exits.
* Each agent also observes its own x and y (relative to the grid's length), speed, and the cosine
  and sine of its direction.
* Differences of acceleration are scaled by the range of acceleration actions, and differences of
  angle are wrapped.
* The defaults are those of WarpDrive's run configuration, not of its class.
* At most 32 nearest agents are supported, because a search keeps them in registers.
  ``use_full_observation`` shows all agents.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.errors import ParameterError
from cupydrive.random import RandomStream, below, unit

if TYPE_CHECKING:
    import torch

    from cupydrive.drawing.canvas import Canvas

TWO_PI = 2 * np.pi
OWN, FEATURES = 5, 7  # observation entries about oneself, and about each other agent


@dataclass(frozen=True)
class Params:
    """Parameters of continuous Tag. Lengths share one unit, and time is in steps."""

    num_taggers: int = cd.param(10, "Number of taggers.", low=1, high=10_000)
    num_runners: int = cd.param(100, "Number of runners.", low=1, high=10_000)
    use_full_observation: bool = cd.param(False, "Observe all agents, not only the nearest.")
    num_other_agents_observed: int = cd.param(
        10, "Number of nearest agents observed.", low=0, high=32
    )
    num_acceleration_levels: int = cd.param(
        20, "Number of accelerations, besides 0.", low=0, high=1000
    )
    num_turn_levels: int = cd.param(20, "Number of turns, besides 0.", low=0, high=1000)
    runner_exits_game_after_tagged: bool = cd.param(True, "A tagged runner leaves the game.")
    start: str = cd.param("random", "Default initial layout.", choices=("random", "fixed"))
    starting_location_x: tuple = cd.param(
        (), "Initial x of all agents, taggers first.", of=float, unit="length", low=0.0, high=1e5
    )
    starting_location_y: tuple = cd.param(
        (), "Initial y of all agents.", of=float, unit="length", low=0.0, high=1e5
    )
    starting_directions: tuple = cd.param(
        (), "Of all.", of=float, unit="rad", low=-TWO_PI, high=TWO_PI
    )
    grid_length: float = cd.param(20.0, "Side of the square.", unit="length", low=1e-3, high=1e5)
    max_speed: float = cd.param(
        1.0, "Top speed at skill 1.", unit="length/step", low=1e-6, high=1e5
    )
    skill_level_tagger: float = cd.param(
        1.0, "Factor of a tagger's top speed.", low=0.0, high=100.0
    )
    skill_level_runner: float = cd.param(
        1.0, "Factor of a runner's top speed.", low=0.0, high=100.0
    )
    min_acceleration: float = cd.param(
        -0.1, "Lowest acceleration.", unit="length/step^2", low=-1e5, high=1e5
    )
    max_acceleration: float = cd.param(
        0.1, "Highest acceleration.", unit="length/step^2", low=-1e5, high=1e5
    )
    min_turn: float = cd.param(
        -2.356, "Lowest turn.", unit="rad", low=-TWO_PI, high=TWO_PI, vary=(-3.5, 0.5)
    )
    max_turn: float = cd.param(2.356, "Highest turn.", unit="rad", low=-TWO_PI, high=TWO_PI)
    tagging_distance: float = cd.param(
        0.02, "Distance within which a runner is tagged.", unit="grid_length", low=0.0, high=1.0
    )
    edge_hit_penalty: float = cd.param(
        0.0, "Reward for crossing the edge.", low=-1e6, high=0.0, vary=(-1.0, -0.1)
    )
    tag_reward_for_tagger: float = cd.param(10.0, "Reward for each tag.", low=0.0, high=1e6)
    step_penalty_for_tagger: float = cd.param(
        0.0, "Reward for every step.", low=-1e6, high=0.0, vary=(-1.0, -0.1)
    )
    tag_penalty_for_runner: float = cd.param(-10.0, "Reward for being tagged.", low=-1e6, high=0.0)
    step_reward_for_runner: float = cd.param(
        0.0, "Reward for every step in the game.", low=0.0, high=1e6, vary=(0.1, 1.0)
    )
    end_of_game_reward_for_runner: float = cd.param(
        1.0, "Reward for surviving the last step.", low=0.0, high=1e6
    )
    max_episode_steps: int = cd.param(
        500, "Time limit, which terminates the episode.", unit="steps", low=1
    )


def check(p: Params) -> None:
    """Raise an error for too many neighbors, empty ranges, or invalid initial layouts."""
    ranges = (p.min_acceleration, p.max_acceleration), (p.min_turn, p.max_turn)
    if any(high < low + 1e-6 for low, high in ranges):
        raise ParameterError(
            f"tag_continuous: ranges {ranges} of acceleration and turn must rise by 1e-6 or more"
        )
    agents = p.num_taggers + p.num_runners
    cd.check_each(
        "tag_continuous",
        p,
        ("starting_location_x", "starting_location_y"),
        agents,
        0.0,
        p.grid_length,
    )
    cd.check_each("tag_continuous", p, ("starting_directions",), agents)
    if not p.use_full_observation and p.num_other_agents_observed >= agents:
        raise ParameterError(
            f"tag_continuous: num_other_agents_observed = {p.num_other_agents_observed}, but an "
            f"agent has {agents - 1} others. Pass num_other_agents_observed={min(agents - 1, 32)} "
            f"or less"
        )


def constants(p: Params) -> dict[str, int]:
    """Return OTHERS, the number of other agents that an agent observes."""
    return {
        "OTHERS": p.num_taggers + p.num_runners - 1
        if p.use_full_observation
        else p.num_other_agents_observed
    }


def top_speed(p: Params) -> np.ndarray:
    """Return the top speed of each agent, (A,)."""
    return p.max_speed * np.repeat(
        [p.skill_level_tagger, p.skill_level_runner], [p.num_taggers, p.num_runners]
    )


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``. Agents are taggers, then runners."""
    agents = (p.num_taggers + p.num_runners,)
    return (
        cd.Field("x", "f4", agents, p.grid_length, "length"),
        cd.Field("y", "f4", agents, p.grid_length, "length"),
        cd.Field("speed", "f4", agents, p.max_speed, "length/step"),
        cd.Field("direction", "f4", agents, TWO_PI, "rad, from 0 to 2 pi"),
        cd.Field("acceleration", "f4", agents, p.max_speed, "length/step^2"),
        cd.Field("active", "i4", agents, unit="1 in the game, 0 out"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the two groups. Only runners leave."""
    actions = spaces.MultiDiscrete([p.num_acceleration_levels + 1, p.num_turn_levels + 1])
    common = dict(obs_dim=OWN + FEATURES * constants(p)["OTHERS"] + 1, action_space=actions)
    most = max(
        1.0, p.num_runners * p.tag_reward_for_tagger
    )  # one tagger may tag all runners in one step
    return (
        cd.Group("tagger", p.num_taggers, reward_scale=most, **common),
        cd.Group(
            "runner",
            p.num_runners,
            reward_scale=max(1.0, -p.tag_penalty_for_runner),
            leaves=True,
            **common,
        ),
    )


def tables(p: Params) -> cd.TableArrays:
    """Return the given initial values by their names in the kernel."""
    # never TWO_PI itself
    turned = np.mod(p.starting_directions, TWO_PI).astype(np.float32) % np.float32(TWO_PI)
    given = {
        "start_x": p.starting_location_x,
        "start_y": p.starting_location_y,
        "start_direction": turned,
    }
    return {name: np.array(numbers) for name, numbers in given.items() if len(numbers)}


def reset(p: Params, random: RandomStream, table: SimpleNamespace) -> np.ndarray:
    """Return (N,) initial states, exact in float32: uniform positions, one of four directions, at
    rest, or the given values.
    """
    # (N, A, 4)
    words = (random.fixed() if p.start == "fixed" else random).bits(p.num_taggers + p.num_runners)
    states = np.zeros(len(words), [(f.name, f.dtype, f.shape) for f in state(p)])
    states["x"] = unit(words[..., 0]) * np.float32(p.grid_length)
    states["y"] = unit(words[..., 1]) * np.float32(p.grid_length)
    states["direction"] = below(words[..., 2], 4).astype(np.float32) * (
        np.float32(0.25) * np.float32(TWO_PI)
    )
    states["active"] = 1
    for name, numbers in vars(table).items():
        states[name.removeprefix("start_")] = numbers
    return states


def level(action: np.ndarray, levels: int, low: float, high: float) -> np.ndarray:
    """Return the value of each action. 0 is "none", and 1 .. levels are spaced evenly."""
    return np.append(0.0, np.linspace(low, high, levels))[action]


def move(
    p: Params, s: cd.TableArrays, action: np.ndarray, active: np.ndarray
) -> tuple[cd.TableArrays, np.ndarray, np.ndarray, cd.TableArrays, np.ndarray]:
    """Return the motion of all agents, (N, A) each, with the margins of its decisions."""
    limit = top_speed(p)
    wish = level(action[..., 0], p.num_acceleration_levels, p.min_acceleration, p.max_acceleration)
    acceleration = s["acceleration"] + wish
    direction = np.mod(
        s["direction"] + level(action[..., 1], p.num_turn_levels, p.min_turn, p.max_turn), TWO_PI
    )
    wanted = s["speed"] + acceleration
    speed = np.clip(wanted, 0.0, limit)
    stopped = (wanted <= 0) | (wanted >= limit)
    x, y = s["x"] + speed * np.cos(direction), s["y"] + speed * np.sin(direction)
    crossed = active & ((x < 0) | (x > p.grid_length) | (y < 0) | (y > p.grid_length))
    to_limit = cd.nearest_decision(np.abs(wanted), np.abs(wanted - limit)) / p.max_speed
    to_wrap = cd.nearest_decision(direction, TWO_PI - direction) / TWO_PI
    to_edge = (
        cd.nearest_decision(*(np.abs(c - edge) for c in (x, y) for edge in (0, p.grid_length)))
        / p.grid_length
    )
    moved = {
        "x": np.where(active, np.clip(x, 0, p.grid_length), s["x"]),
        "y": np.where(active, np.clip(y, 0, p.grid_length), s["y"]),
        "speed": np.where(active, speed, 0.0),
        "direction": np.where(active, direction, 0.0),
        "acceleration": np.where(active & ~stopped, acceleration, 0.0),
    }
    return (
        moved,
        crossed,
        stopped & active,
        {"acceleration": to_limit, "direction": to_wrap},
        to_edge,
    )


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. Actions are (N, num_taggers, 2) and (N, num_runners, 2)."""
    s = {f.name: states[f.name].astype(np.float64) for f in state(p) if f.name != "active"}
    before = states["active"].astype(bool)
    actions = np.concatenate([action["tagger"], action["runner"]], axis=1)
    moved, crossed, stopped, margin, to_edge = move(p, s, actions, before)
    t = p.num_taggers
    # (N, runners, taggers)
    distance = np.hypot(*(moved[c][:, t:, None] - moved[c][:, None, :t] for c in "xy"))
    # the lower id wins a tie
    nearest, in_game = np.argmin(distance, axis=2), before[:, t:]
    ordered, radius = np.sort(distance, axis=2), p.tagging_distance * p.grid_length
    tagged = in_game & (ordered[..., 0] < radius)
    by = tagged[..., None] & (nearest[..., None] == np.arange(t))  # (N, runners, taggers)
    exits = tagged if p.runner_exits_game_after_tagged else np.zeros_like(tagged)
    active = np.concatenate([before[:, :t], in_game & ~exits], axis=1)
    last = (elapsed >= p.max_episode_steps)[:, None]

    tagger = (
        p.step_penalty_for_tagger
        + p.edge_hit_penalty * crossed[:, :t]
        + p.tag_reward_for_tagger * by.sum(axis=1)
    )
    runner = in_game * (p.step_reward_for_runner + p.edge_hit_penalty * crossed[:, t:])
    runner = (
        runner
        + p.tag_penalty_for_runner * tagged
        + p.end_of_game_reward_for_runner * (in_game & last & ~tagged)
    )

    # Margin of a tag: distance from no tag, or from a tag by another tagger.
    to_tag = np.where(in_game, np.abs(ordered[..., 0] - radius) / p.grid_length, np.inf)
    second = ordered[..., 1] - ordered[..., 0] if t > 1 else np.full_like(to_tag, np.inf)
    to_other = np.where(in_game & (ordered[..., 0] < 1.01 * radius), second / p.grid_length, np.inf)
    doubt = cd.nearest_decision(to_tag, to_other)  # (N, runners)
    # taggers that an uncertain tag could be credited to
    involved = distance <= ordered[..., :1] + 1e-5 * p.grid_length
    to_tagger = np.where(involved, doubt[..., None], np.inf).min(axis=1)  # (N, taggers)
    edge_matters = np.where(p.edge_hit_penalty != 0, np.where(before, to_edge, np.inf), np.inf)
    margin = {
        **margin,
        "active": np.concatenate([np.full_like(to_tagger, np.inf), to_tag], axis=1),
        "left.runner": to_tag,
        "reward.tagger": cd.nearest_decision(to_tagger, edge_matters[:, :t]),
        "reward.runner": cd.nearest_decision(to_tag, edge_matters[:, t:]),
        **dict.fromkeys(("terminated", "metric.tags"), cd.nearest_decision(to_tag, axis=1)),
        "metric.edge_hits": cd.nearest_decision(np.where(before, to_edge, np.inf), axis=1),
    }
    remaining = active[:, t:].sum(axis=1)
    return cd.StepResult(
        state={**moved, "active": active},
        reward={"tagger": tagger, "runner": runner},
        terminated=remaining == 0,
        active={"runner": in_game},
        left={"runner": exits},
        metrics={"tags": tagged.sum(axis=1), "edge_hits": crossed.sum(axis=1)},
        events={
            "edge hit by a tagger": crossed[:, :t],
            "edge hit by a runner": crossed[:, t:],
            "speed at its limit": stopped & (moved["speed"] > 0),
            "speed at zero": stopped & (moved["speed"] == 0),
            "tag": tagged,
            "double tag": by.sum(axis=1) > 1,
            "tag in the last step": tagged & last,
            "survived the last step": in_game & last & ~tagged,
            "all out": (remaining == 0) & tagged.any(axis=1),
            "already out": ~in_game,
        },
        margin=margin,
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return observations by group, (N, C, D)."""
    s = {f.name: states[f.name].astype(np.float64) for f in state(p) if f.name != "active"}
    active = states["active"].astype(bool)
    (n, agents), others = active.shape, constants(p)["OTHERS"]
    if p.use_full_observation or others == 0:
        seen = np.array([[j for j in range(agents) if j != i] for i in range(agents)])[:, :others]
        seen = np.broadcast_to(seen, (n, agents, others))
        valid, margin = np.ones(seen.shape, bool), np.full((n, agents), np.inf)
    else:
        seen, valid, margin = nearest_agents(p, s, active, others)

    # (N, A, others): values of observed agents, minus the agent's own
    def difference(name: str) -> np.ndarray:
        return np.take_along_axis(s[name][:, None, :], seen, axis=2) - s[name][:, :, None]

    angle = np.mod(difference("direction") + np.pi, TWO_PI) - np.pi
    seeing = active[..., None]
    features = [
        seeing * difference("x") / (np.sqrt(2) * p.grid_length),
        seeing * difference("y") / (np.sqrt(2) * p.grid_length),
        seeing * difference("speed") / p.max_speed,
        seeing * difference("acceleration") / (p.max_acceleration - p.min_acceleration),
        seeing * angle / TWO_PI,
        (seen < p.num_taggers) * 1.0,
        np.take_along_axis(active[:, None, :], seen, axis=2) * 1.0,
    ]
    x, y, speed, heading = (s[name] for name in ("x", "y", "speed", "direction"))
    own = [
        x / p.grid_length,
        y / p.grid_length,
        speed / p.max_speed,
        np.cos(heading),
        np.sin(heading),
    ]
    time = np.broadcast_to((elapsed / p.max_episode_steps)[:, None], (n, agents))[..., None]
    of_all = (
        np.stack(own, axis=-1) * seeing,
        *(np.where(valid, f, 0.0) for f in features),
        time * seeing,
    )
    obs = np.concatenate(of_all, axis=-1)
    # there the sign flips
    half_turn = np.where(valid & seeing, np.pi - np.abs(angle), np.inf) / TWO_PI
    doubt = cd.nearest_decision(margin, cd.nearest_decision(half_turn, axis=-1))
    by_group = [
        {"tagger": x[:, : p.num_taggers], "runner": x[:, p.num_taggers :]} for x in (obs, doubt)
    ]
    return cd.Observation(by_group[0], margin=by_group[1])


def nearest_agents(
    p: Params, s: cd.TableArrays, active: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids (N, A, k) of the nearest active agents, their validity, and the margin of their
    order.
    """
    squared = np.sum([(s[axis][:, None, :] - s[axis][:, :, None]) ** 2 for axis in "xy"], axis=0)
    agents = squared.shape[1]
    squared[~np.broadcast_to(active[:, None, :], squared.shape)] = np.inf
    squared[:, np.arange(agents), np.arange(agents)] = np.inf
    order = np.argsort(squared, axis=2, kind="stable")[..., :k]  # stable: equals by id
    ordered = np.take_along_axis(squared, order, axis=2)
    # not a tie with the last one seen
    beyond = np.where(squared > ordered[..., -1:], squared, np.inf).min(axis=2)
    valid = np.isfinite(ordered) & active[..., None]
    with np.errstate(invalid="ignore"):
        gaps = np.diff(np.sqrt(ordered), axis=2, append=np.sqrt(beyond)[..., None]) / p.grid_length
    return order, valid, cd.nearest_decision(np.where(np.isfinite(gaps), gaps, np.inf), axis=2)


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw states with crowded and isolated agents, at edges and speed limits, some of them
    inactive or equal.
    """
    agents = p.num_taggers + p.num_runners
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    spread = p.grid_length * rng.choice([1.0, 0.3, 0.05], (n, 1))
    # all in one corner, so that distances stay equal after the step
    cornered = rng.random((n, 1)) < 0.1
    for axis in "xy":
        crowd = rng.uniform(0, p.grid_length, (n, 1)) + rng.normal(0, 1, (n, agents)) * spread
        place = np.where(spread < p.grid_length, crowd, rng.uniform(0, 1, (n, agents)) * spread)
        # equal distances, for ties
        place = np.where(rng.random((n, 1)) < 0.2, np.round(place * 8) / 8, place)
        place = np.where(cornered, rng.choice([0.0, p.grid_length], (n, 1)), place)
        states[axis] = np.clip(place, 0, np.float32(p.grid_length))
    limit = top_speed(p).astype(np.float32)
    states["speed"] = rng.uniform(0, 1, (n, agents)).astype(np.float32) * limit
    for share, value in ((0.1, limit), (0.1, np.zeros_like(limit))):
        states["speed"] = np.where(rng.random((n, agents)) < share, value, states["speed"])
    states["direction"] = np.minimum(rng.uniform(0, TWO_PI, (n, agents)), 6.2831850).astype(
        np.float32
    )
    wide = 3 * max(p.max_acceleration, -p.min_acceleration)
    states["acceleration"] = rng.uniform(-wide, wide, (n, agents))
    present = rng.random((n, agents)) < rng.choice([1.0, 0.7, 0.1], (n, 1))
    present[:, : p.num_taggers] = True
    # the episode has not ended yet
    present[np.arange(n), rng.integers(p.num_taggers, agents, n)] = True
    states["active"] = present
    return states


def choose_turn(
    p: Params,
    cosine: "torch.Tensor",
    sine: "torch.Tensor",
    to_x: "torch.Tensor",
    to_y: "torch.Tensor",
) -> tuple["torch.Tensor", ...]:
    """Return (acceleration, turn) actions toward (to_x, to_y): the best turn, at full speed."""
    along, across = cosine * to_x + sine * to_y, cosine * to_y - sine * to_x
    turn, best = 0 * (along > 0), along
    for k, angle in enumerate(np.linspace(p.min_turn, p.max_turn, p.num_turn_levels)):
        score = along * float(np.cos(angle)) + across * float(np.sin(angle))
        better = score > best
        turn, best = better * (k + 1) + ~better * turn, better * score + ~better * best
    return 0 * turn + p.num_acceleration_levels, turn


def heuristic(p: Params, obs: "torch.Tensor", group: str) -> tuple["torch.Tensor", ...]:
    """Return actions (N, C) of both heads, for NumPy or torch obs (N, C, D).

    Taggers chase the nearest runner, and runners flee the nearest tagger.
    """
    others = constants(p)["OTHERS"]
    place, kind, there = OWN, OWN + 5 * others, OWN + 6 * others
    sign = 1.0 if group == "tagger" else -1.0
    to_x, to_y, best = 0.0 * obs[..., 0], 0.0 * obs[..., 0], 0.0 * obs[..., 0] + 1e9
    for k in range(others):
        dx, dy = obs[..., place + k], obs[..., place + others + k]
        opponent = (obs[..., there + k] > 0.5) & ((obs[..., kind + k] > 0.5) == (group == "runner"))
        distance = dx * dx + dy * dy
        nearer = (opponent & (distance < best)) * 1.0
        wish = ((sign * dx, to_x), (sign * dy, to_y), (distance, best))
        to_x, to_y, best = (nearer * new + (1 - nearer) * old for new, old in wish)
    if group == "runner":  # run along a wall instead of against it
        x, y = obs[..., 0], obs[..., 1]
        to_x = to_x * ~(((x <= 0.0) & (to_x < 0)) | ((x >= 1.0) & (to_x > 0)))
        to_y = to_y * ~(((y <= 0.0) & (to_y < 0)) | ((y >= 1.0) & (to_y > 0)))
    return choose_turn(p, obs[..., 3], obs[..., 4], to_x, to_y)


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw agents as arrowheads with their paths. Tagged runners become dots."""
    side, agents = p.grid_length, p.num_taggers + p.num_runners
    canvas.view(-0.04 * side, 1.04 * side, -0.04 * side, top=1.04 * side)
    canvas.rectangle(0, 0, side, side, canvas.FLOOR)
    # longer would hide a crowd
    radius, last = 0.42 * side / (agents + 100) ** 0.5, states[-5 if agents > 60 else 0 :]
    ways = np.stack([last["x"], last["y"]], axis=-1).astype(float)  # (K, A, 2)
    here, heading, active = ways[-1], states["direction"][-1].astype(float), states["active"] != 0
    for i in np.flatnonzero(~active[-1]):  # below the others
        out = len(active) - 1 - int(np.flatnonzero(active[:, i]).max(initial=0))
        canvas.circle(here[i], 0.35 * radius, canvas.mix(canvas.BLUE, canvas.GRAY, 0.3 + out / 12))
    for i in np.flatnonzero(active[-1])[::-1]:  # taggers last, on top
        size, color = (1.25, canvas.ORANGE) if i < p.num_taggers else (0.8, canvas.BLUE)
        canvas.trail(ways[:, i].tolist(), 0.35 * radius, color)
        canvas.arrowhead(here[i], heading[i], size * radius, color)
    canvas.agents("tagger", here[: p.num_taggers])
    canvas.agents("runner", here[p.num_taggers :], active[-1, p.num_taggers :])
    free = int(active[-1, p.num_taggers :].sum())
    caught = (canvas.GRAY, "caught", p.num_runners - free)
    canvas.key((canvas.ORANGE, "taggers", p.num_taggers), (canvas.BLUE, "free", free), caught)


def keys(p: Params) -> dict[str, dict[str, int | tuple[int | None, ...] | None]]:
    """Return the actions of arrow keys: highest and lowest acceleration, and turns near 0.4 rad."""
    turns = np.linspace(p.min_turn, p.max_turn, p.num_turn_levels)
    arrows: dict[str, int | tuple[int | None, ...] | None] = {"": (0, 0)}
    if p.num_acceleration_levels:
        arrows |= {"ArrowUp": (p.num_acceleration_levels, None), "ArrowDown": (1, None)}
    for key, wish in (("ArrowLeft", 0.4), ("ArrowRight", -0.4)) if p.num_turn_levels else ():
        arrows[key] = None, 1 + int(np.argmin(np.abs(turns - wish)))
    return dict.fromkeys(("tagger", "runner"), arrows)


LEARN = {
    "gamma": 0.95,
    "num_steps": 16,
    "num_minibatches": 8,
    "hidden": (128, 128),
    "normalize_reward": True,
}
STARTS = dict(
    starting_location_x=(0, 10, 4), starting_location_y=(9, 1, 4), starting_directions=(0, 4, -1)
)

SPEC = cd.EnvSpec(
    name="tag_continuous",
    params=Params,
    state=state,
    groups=groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    check=check,
    tables=tables,
    metrics={"tags": "int", "edge_hits": "int"},
    cases=(
        {"num_taggers": 5, "num_runners": 100},
        {"num_taggers": 1, "num_runners": 4, "num_other_agents_observed": 4, "num_turn_levels": 1},
        {
            "num_taggers": 3,
            "num_runners": 9,
            "use_full_observation": True,
            "runner_exits_game_after_tagged": False,
        },
        dict(
            num_taggers=2,
            num_runners=3,
            num_other_agents_observed=0,
            num_acceleration_levels=0,
            num_turn_levels=0,
        ),
        {"num_taggers": 2, "num_runners": 70, "num_other_agents_observed": 32, "start": "fixed"},
        {"num_taggers": 1, "num_runners": 2, "num_other_agents_observed": 2, **STARTS},
        {"num_taggers": 9, "num_runners": 251},  # more than 256 agents use a cell search
    ),
    heuristic=heuristic,
    display=cd.Display(
        draw=draw,
        keys=keys,
        size=(760, 834),
        fps=12,
        showcase={
            "params": {"num_taggers": 5, "num_runners": 20, "max_episode_steps": 50},
            "rivals": ("runner",),
            "num_envs": 4096,
            "steps": 100_000_000,
            # No discount, because all tags count equally. With the full learning rate from the
            # start, some seeds stay at 5.
            "ppo": LEARN
            | {
                "learning_rate": ((0, 1e-4), (3e6, 3e-3), (1e8, 1.5e-4)),
                "ent_coef": ((0, 0.01), (1e8, 0.0)),
                "gamma": 1.0,
                "gae_lambda": 0.9,
                "num_steps": 50,
                "num_minibatches": 32,
            },
        },
    ),
    training={"num_envs": 1024, "steps": 20_000_000, "ppo": {**LEARN, "learning_rate": 2e-3}},
    summary="Taggers chase runners on a plane (WarpDrive's TagContinuous).",
)
