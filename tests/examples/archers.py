"""A small environment with mixed actions, for tests: choose the target's colour and aim at it.

The space has boxes before and after discrete parts. Two more discrete heads and one more number cost
reward together, and a parameter forbids some choices.
"""

KERNEL = """
struct Params { float cost; };
struct State { float x[ARCHERS], y[ARCHERS]; int colour[ARCHERS]; };
#include "drive/env.cuh"

DEVICE void place(Env& env, int i) {
  const auto u = env.random.uniform4(i);
  env.state.x[i] = 2.0f * u.x - 1.0f;
  env.state.y[i] = 2.0f * u.y - 1.0f;
  env.state.colour[i] = Random::below(env.random.bits(i).z, 3);
}

DEVICE void reset(Env& env) {
  for (int i : env.team.each(ARCHERS)) place(env, i);
}

DEVICE bool step(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(ARCHERS)) {
    const int hit = env.archer.action(i) == s.colour[i], lane = env.archer.action(i, 1), gear = env.archer.action(i, 2);
    const float dx = math::clamp(env.archer.box(i), -1.0f, 1.0f) - s.x[i];
    const float dy = math::clamp(env.archer.box(i, 1), -1.0f, 1.0f) - s.y[i];
    const float power = math::clamp(env.archer.box(i, 2), 0.0f, 3.0f);
    env.archer.reward(i) = (float)hit - dx * dx - dy * dy - env.params.cost * (float)(lane * gear) * power;
    env.metrics.hits += hit;
    env.metrics.gear_3 += gear == 3;
    place(env, i);
  }
  return false;
}

DEVICE void observe(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(ARCHERS)) {
    auto row = env.archer.obs(i);
    row[0] = s.x[i];
    row[1] = s.y[i];
    for (int k = 0; k < 3; ++k) row[2 + k] = s.colour[i] == k ? 1.0f : 0.0f;
    if constexpr (MASKED) {
      env.archer.mask(i, 0) = s.colour[i] != 2;
      env.archer.mask(i, 1) = s.colour[i] != 0;
      env.archer.mask(i, 2) = s.colour[i] != 1;
      for (int k = 0; k < 2; ++k) env.archer.mask(i, k, 1) = 0;  // nothing, so all
      for (int k = 0; k < 4; ++k) env.archer.mask(i, k, 2) = k != 3;
    }
  }
}
"""

PYTHON = """
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from cupydrive.random import below
from cupydrive.spec import EnvSpec, Field, Group, Observation, Reference, StepResult, param


@dataclass(frozen=True)
class Params:
    cost: float = param(0.05, "Of a gear in the second lane, by power.", low=0.0)
    archers: int = param(2, "Agents.", low=1, high=99)
    masked: bool = param(False, "Whether some choices are forbidden.")
    max_episode_steps: int = param(8, "Time limit.", low=1)


def state(p):
    return (Field("x", "f4", (p.archers,)), Field("y", "f4", (p.archers,)), Field("colour", "i4", (p.archers,)))


def groups(p):
    aim, power = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(0.0, 3.0, (1,), np.float32)
    actions = spaces.Tuple((aim, spaces.Discrete(3), spaces.MultiDiscrete([2, 4]), power))
    return (Group("archer", p.archers, 5, actions, mask=p.masked, reward_scale=5.0),)


def placed(p, random):
    words, u = random.bits(p.archers), random.uniform(p.archers)
    states = np.zeros(len(words), [(f.name, f.dtype, f.shape) for f in state(p)])
    states["x"], states["y"] = (np.float32(2) * u[..., k] - np.float32(1) for k in (0, 1))
    states["colour"] = below(words[..., 2], 3)
    return states


def step(p, states, action, elapsed, random):
    colour, lane, gear, x, y, power = np.moveaxis(action["archer"].astype(np.float64), -1, 0)
    hit = colour == states["colour"]
    dx, dy = np.clip(x, -1, 1) - states["x"], np.clip(y, -1, 1) - states["y"]
    reward = hit - dx**2 - dy**2 - p.cost * lane * gear * np.clip(power, 0, 3)
    counts = {"hits": hit.sum(1), "gear_3": (gear == 3).sum(1)}
    after = placed(p, random)
    fields = {name: after[name] for name in after.dtype.names}
    return StepResult(fields, {"archer": reward}, np.zeros(len(states), bool), metrics=counts)


def observe(p, states, elapsed):
    colours = states["colour"][..., None] == np.arange(3)
    rows = np.concatenate([states["x"][..., None], states["y"][..., None], colours], -1)
    if not p.masked:
        return Observation({"archer": rows})
    masks = [np.roll(~colours, 1, -1), np.zeros((*colours.shape[:2], 2), bool)]
    masks.append(np.broadcast_to(np.arange(4) != 3, (*colours.shape[:2], 4)))
    return Observation({"archer": rows}, mask={"archer": np.concatenate(masks, -1)})


def sample_states(p, rng, n):
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["x"], states["y"] = rng.uniform(-1, 1, (2, n, p.archers))
    states["colour"] = rng.integers(0, 3, (n, p.archers))
    return states


SPEC = EnvSpec(
    "archers", Params, state, groups, "truncates", Reference(placed, step, observe, sample_states),
    metrics={"hits": "int", "gear_3": "int"}, cases=({}, {"archers": 1}, {"masked": True}, {"archers": 5, "masked": True}),
)
"""
