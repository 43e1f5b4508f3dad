"""A small environment with a Box of actions, for tests: push a point on a line to the middle and
keep it there.
"""

KERNEL = """
struct Params { float strength, drag; };
struct State { float x, v; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  const auto u = env.random.uniform4(0);
  env.state.x = 2.0f * u.x - 1.0f;
  env.state.v = 0.0f;
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  for (int i : env.team.each(1)) {
    const float push = math::clamp(env.point.action(i), -1.0f, 1.0f);
    s.v = s.v * env.params.drag + env.params.strength * push;
    s.x += s.v;
    env.point.reward(i) = -s.x * s.x - 0.01f * push * push;
  }
  return false;
}

DEVICE void observe(Env& env) {
  auto row = env.point.obs(0);
  row[0] = env.state.x;
  row[1] = env.state.v;
}
"""

PYTHON = """
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from cupydrive.spec import EnvSpec, Field, Group, Observation, Reference, StepResult, param


@dataclass(frozen=True)
class Params:
    strength: float = param(0.1, "Change of velocity of a full push.", low=0.0)
    drag: float = param(0.9, "Velocity that is left after a step.", low=0.0, high=1.0)
    max_episode_steps: int = param(40, "Time limit.", low=1)


def state(p):
    return (Field("x"), Field("v"))


def groups(p):
    return (Group("point", 1, 2, spaces.Box(-1.0, 1.0, (1,), np.float32), reward_scale=10.0),)


def reset(p, random):
    states = np.zeros(len(random.uniform()), [("x", "f4"), ("v", "f4")])
    states["x"] = np.float32(2) * random.uniform()[:, 0, 0] - np.float32(1)
    return states


def step(p, states, action, elapsed, random):
    push = np.clip(action["point"][:, 0, 0].astype(np.float64), -1, 1)
    v = states["v"] * p.drag + p.strength * push
    x = states["x"] + v
    reward = -(x**2) - 0.01 * push**2
    return StepResult({"x": x, "v": v}, {"point": reward[:, None]}, np.zeros(len(x), bool))


def observe(p, states, elapsed):
    return Observation({"point": np.stack([states["x"], states["v"]], -1)[:, None].astype(np.float64)})


def sample_states(p, rng, n):
    states = np.zeros(n, [("x", "f4"), ("v", "f4")])
    states["x"], states["v"] = rng.normal(0, 1, n), rng.normal(0, 0.3, n)
    return states


SPEC = EnvSpec("point", Params, state, groups, "truncates", Reference(reset, step, observe, sample_states))
"""
