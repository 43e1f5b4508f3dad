"""A small environment with action masks, for tests: a walk between walls, two heads, and a count of
forbidden choices.
"""

KERNEL = """
struct Params { float unused; };
struct State { int place[WALKERS]; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  for (int i : env.team.each(WALKERS)) env.state.place[i] = Random::below(env.random.bits(i).x, 5);
}

// Head 0: left, right, stay. Head 1: jump to 0 or 4, each forbidden where the walker stands there.
DEVICE bool step(Env& env) {
  for (int i : env.team.each(WALKERS)) {
    int& place = env.state.place[i];
    const int move = env.walker.action(i, 0), jump = env.walker.action(i, 1);
    env.metrics.forbidden += (move == 0 && place == 0) + (move == 1 && place == 4);
    env.metrics.forbidden += (jump == 0 && place == 0) + (jump == 1 && place == 4);
    place = math::clamp(place + (move == 1) - (move == 0), 0, 4);
    if (move == 2) place = jump == 0 ? 0 : 4;
    env.walker.reward(i) = place == 2 ? 1.0f : 0.0f;
  }
  return false;
}

DEVICE void observe(Env& env) {
  for (int i : env.team.each(WALKERS)) {
    const int place = env.state.place[i];
    env.walker.obs(i)[0] = (float)place * 0.25f;
    env.walker.mask(i, 0) = place != 0;
    env.walker.mask(i, 1) = place != 4;
    env.walker.mask(i, 2) = true;
    env.walker.mask(i, 0, 1) = place != 0;
    env.walker.mask(i, 1, 1) = place != 4;
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
    unused: float = param(0.0, "Nothing.", vary=(0.0, 1.0))
    walkers: int = param(2, "Agents.", low=1, high=9)
    max_episode_steps: int = param(20, "Time limit.", low=1)


def state(p):
    return (Field("place", "i4", (p.walkers,)),)


def groups(p):
    return (Group("walker", p.walkers, 1, spaces.MultiDiscrete([3, 2]), mask=True),)


def reset(p, random):
    words = random.bits(p.walkers)
    states = np.zeros(len(words), [("place", "i4", (p.walkers,))])
    states["place"] = below(words[..., 0], 5)
    return states


def step(p, states, action, elapsed, random):
    place = states["place"]
    move, jump = action["walker"][..., 0], action["walker"][..., 1]
    forbidden = [(move == 0) & (place == 0), (move == 1) & (place == 4), (jump == 0) & (place == 0), (jump == 1) & (place == 4)]
    after = np.clip(place + (move == 1) - (move == 0), 0, 4)
    after = np.where(move == 2, np.where(jump == 0, 0, 4), after)
    counts = {"forbidden": sum(f.sum(1) for f in forbidden)}
    return StepResult({"place": after}, {"walker": (after == 2) * 1.0}, np.zeros(len(place), bool), metrics=counts)


def observe(p, states, elapsed):
    place = states["place"]
    left, right, stay = place != 0, place != 4, np.ones_like(place, bool)
    mask = np.stack([left, right, stay, left, right], axis=-1)
    return Observation({"walker": place[..., None] * 0.25}, mask={"walker": mask})


def sample_states(p, rng, n):
    states = np.zeros(n, [("place", "i4", (p.walkers,))])
    states["place"] = rng.integers(0, 5, (n, p.walkers))
    return states


SPEC = EnvSpec(
    "masked", Params, state, groups, "truncates", Reference(reset, step, observe, sample_states), metrics={"forbidden": "int"}
)
"""
