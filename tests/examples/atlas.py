"""A small environment with tables, for tests: walkers go from place to place by one table, and see
others of all kinds.
"""

from dataclasses import replace

from cupydrive import envs

KERNEL = """
struct Params { float gain; };
struct State { int at[WALKERS], code[WALKERS]; };
#include "drive/env.cuh"

DEVICE void arrive(Env& env, int i, int place) {
  env.state.at[i] = place;
  env.state.code[i] = env.table.code[place];
}

DEVICE void reset(Env& env) {
  for (int i : env.team.each(WALKERS)) arrive(env, i, Random::below(env.random.bits(i).x, PLACES));
}

DEVICE bool step(Env& env) {
  for (int i : env.team.each(WALKERS)) {
    arrive(env, i, env.table.next(env.state.at[i], env.walker.action(i)));
    env.walker.reward(i) = env.params.gain * env.table.height(env.state.at[i], 1, 2);
  }
  return false;
}

DEVICE void observe(Env& env) {
  for (int i : env.team.each(WALKERS)) {
    auto row = env.walker.obs(i);
    const int place = env.state.at[i];
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < 3; ++k) row[3 * j + k] = env.table.height(place, j, k);
    }
    row[6] = env.table.height[PLACES * 6 - 1 - place];
    row[7] = env.table.level();
  }
}
"""

PYTHON = """
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from cupydrive import Display, EnvSpec, Field, Group, Observation, Reference, StepResult, Table, param
from cupydrive.random import below


@dataclass(frozen=True)
class Params:
    gain: float = param(1.0, "Of rewards.", low=0.0)
    walkers: int = param(3, "Agents.", low=1, high=99)
    places: int = param(7, "Where one can be.", low=2)
    max_episode_steps: int = param(20, "Time limit.", low=1)


def state(p):
    return (Field("at", "i4", (p.walkers,)), Field("code", "i4", (p.walkers,)))


def groups(p):
    return (Group("walker", p.walkers, 8, spaces.Discrete(2), obs_scale=100.0),)


def table_fields(p):
    return (
        Table("height", (p.places, 2, 3), low=-100.0, high=100.0, unit="m"),
        Table("next", (p.places, 2), "u1", 0, p.places - 1),
        Table("code", (p.places,), "i4", -(2**31) + 1, 2**31 - 1),
        Table("level", ()),
    )


def tables(p):
    rng = np.random.default_rng(5)
    code = rng.integers(-(2**31), 2**31, p.places)
    code[:2] = -(2**31), 2**31 - 1
    height = rng.normal(0, 10, (p.places, 2, 3))
    height[0, 0] = -0.0, 1.1754943508222875e-38, 3.4028234663852886e38
    return {"height": height, "next": rng.integers(0, p.places, (p.places, 2)).astype(np.uint8), "code": code, "level": 0.1}


def arrived(p, at, table):
    states = np.zeros(len(at), [(f.name, f.dtype, f.shape) for f in state(p)])
    states["at"], states["code"] = at, table.code[at]
    return states


def reset(p, random, table):
    return arrived(p, below(random.bits(p.walkers)[..., 0], p.places), table)


def step(p, states, action, elapsed, random, table):
    now = arrived(p, table.next[states["at"], action["walker"]], table)
    reward = p.gain * table.height[now["at"], 1, 2].astype(np.float64)
    return StepResult({name: now[name] for name in now.dtype.names}, {"walker": reward}, np.zeros(len(now), bool))


def observe(p, states, elapsed, table):
    at = states["at"]
    seen = table.height[at].reshape(*at.shape, 6)
    last = table.height.reshape(-1)[p.places * 6 - 1 - at]
    level = np.broadcast_to(table.level, at.shape)
    return Observation({"walker": np.concatenate([seen, last[..., None], level[..., None]], axis=-1)})


def sample_states(p, rng, n, table):
    return arrived(p, rng.integers(0, p.places, (n, p.walkers)), table)


def heuristic(p, obs, group, table):
    return ((obs[..., 6] > table.height[0, 1, 0]),)


def draw(canvas, p, states, elapsed, table):
    canvas.view(0, 1, 0, top=float(abs(table.level)) + 1)
    canvas.circle((0.5, 0.5), 0.1, "#0072B2")


SPEC = EnvSpec(
    "atlas", Params, state, groups, "truncates", Reference(reset, step, observe, sample_states),
    cases=({}, {"walkers": 1}), heuristic=heuristic,
    display=Display(draw=draw), summary="Walkers go from place to place.", table_fields=table_fields, tables=tables,
)
"""

SPEC = replace(envs._load(PYTHON).spec, kernel=KERNEL)


def given(**changed):
    """Return the environment with some tables changed; None: left out."""
    arrays = {**SPEC.tables(SPEC.make_params()), **changed}
    return replace(
        SPEC, tables=lambda p: {name: array for name, array in arrays.items() if array is not None}
    )


def other():
    """Return the environment with another value in the table of heights."""
    height = SPEC.tables(SPEC.make_params())["height"]
    height[3, 1, 1] += 1
    return given(height=height)
