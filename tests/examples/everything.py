"""A small environment, for tests, that uses all of what kernels/drive offers at once.

Two groups: walkers (two discrete heads, a mask, observations of a critic, and they may leave) and
drivers (a Box of two).
Random numbers in `step`, scratch memory that members share, integer metrics and a float one, an end
that depends on all members.
"""

KERNEL = """
struct Params { float gain; };
struct State { Array<int, WALKERS> place, active; float speed[3]; };
struct Shared { Array<int, 5> crowd; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  for (int i : env.team.each(WALKERS)) {
    env.state.place[i] = Random::below(env.random.bits(i).x, 5);
    env.state.active[i] = 1;
  }
  for (int i : env.team.each(3)) {
    env.state.speed[i] = (i == 0 ? env.fixed_random() : env.random).uniform4(WALKERS + i, 1).z;
  }
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  for (int k : env.team.each(5)) env.shared.crowd[k] = 0;
  env.team.sync();
  for (int i : env.team.each(WALKERS)) {
    env.walker.active(i) = s.active[i];
    env.walker.left(i) = 0;
    if (!s.active[i]) continue;
    const int move = env.walker.action(i, 0), jump = env.walker.action(i, 1);
    env.metrics.forbidden += (move == 0 && s.place[i] == 0) + (move == 1 && s.place[i] == 4);
    int place = math::clamp(s.place[i] + (move == 1) - (move == 0), 0, 4);
    if (move == 2) place = jump == 0 ? 0 : 4;
    if (Random::below(env.random.bits(i).y, 8) == 0) place = 2;  // the wind
    s.place[i] = place;
    env.metrics.met += env.team.add(env.shared.crowd, place, 1);  // those who came before, in any order: of each pair one
  }
  for (int d : env.team.each(3)) {
    s.speed[d] = math::clamp(s.speed[d] + env.params.gain * env.driver.action(d, 0), -1.0f, 1.0f);
    env.driver.reward(d) = s.speed[d] * env.driver.action(d, 1);
  }
  env.team.sync();
  int remaining = 0;
  for (int i : env.team.each(WALKERS)) {
    if (!s.active[i]) continue;
    const int others = env.shared.crowd[s.place[i]] - 1;
    env.walker.reward(i) = (float)others;
    if (others == 1) { s.active[i] = 0; env.walker.left(i) = 1; }
    remaining += s.active[i];
  }
  if (env.team.leader()) {
    for (int d = 0; d < 3; ++d) env.metrics.way += s.speed[d];
  }
  return env.team.sum(remaining) == 0 && env.team.leader();
}

DEVICE void observe(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(WALKERS)) {
    env.walker.obs(i)[0] = (float)s.place[i] * 0.25f;
    env.walker.obs(i)[1] = (float)s.active[i];
    env.walker.obs(i)[2] = env.time();
    env.walker.mask(i, 0) = s.place[i] != 0;
    env.walker.mask(i, 1) = s.place[i] != 4;
    env.walker.mask(i, 2) = s.active[i];
    env.walker.mask(i, 0, 1) = s.place[i] != 0 || !s.active[i];
    env.walker.mask(i, 1, 1) = s.place[i] != 4;
    for (int j = 0; env.walker.critic_obs(i) && j < WALKERS; ++j) {
      env.walker.critic_obs(i)[j] = (float)(s.place[j] - s.place[i]);
      env.walker.critic_obs(i)[WALKERS + j] = (float)s.active[j];
    }
  }
  for (int d : env.team.each(3)) {
    env.driver.obs(d)[0] = s.speed[d];
    env.driver.obs(d)[1] = (float)env.elapsed;
  }
}
"""

PYTHON = """
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from cupydrive.random import below
from cupydrive.spec import EnvSpec, Field, Group, Observation, Reference, StepResult, param

BOX = spaces.Box(np.float32([-1, 0]), np.float32([1, 3]))


@dataclass(frozen=True)
class Params:
    gain: float = param(0.5, "Of the first action.")
    walkers: int = param(2, "Agents.", low=1, high=99)
    max_episode_steps: int = param(20, "Time limit.", low=1)


def state(p):
    return (Field("place", "i4", (p.walkers,)), Field("active", "i4", (p.walkers,)), Field("speed", "f4", (3,)))


def groups(p):
    walkers = Group("walker", p.walkers, 3, spaces.MultiDiscrete([3, 2]), mask=True, leaves=True, reward_scale=1.0,
                    critic_obs_dim=2 * p.walkers)
    return (walkers, Group("driver", 3, 2, BOX, obs_scale=20.0, reward_scale=3.0))


def reset(p, random):
    words = random.bits(p.walkers)
    states = np.zeros(len(words), [(f.name, f.dtype, f.shape) for f in state(p)])
    states["place"], states["active"] = below(words[..., 0], 5), 1
    states["speed"] = random.uniform(p.walkers + 3, 1)[:, p.walkers :, 2]
    states["speed"][:, 0] = random.fixed().uniform(p.walkers + 1, 1)[:, p.walkers, 2]
    return states


def step(p, states, action, elapsed, random):
    place, here = states["place"], states["active"] != 0
    move, jump = action["walker"][..., 0], action["walker"][..., 1]
    forbidden = here & (((move == 0) & (place == 0)) | ((move == 1) & (place == 4)))
    after = np.clip(place + (move == 1) - (move == 0), 0, 4)
    after = np.where(move == 2, np.where(jump == 0, 0, 4), after)
    wind = here & (below(random.bits(p.walkers)[..., 1], 8) == 0)
    after = np.where(here, np.where(wind, 2, after), place)
    others = ((after[:, :, None] == after[:, None, :]) & here[:, None, :]).sum(2) - 1
    leaves = here & (others == 1)
    speed = np.clip(states["speed"] + p.gain * np.float64(action["driver"][..., 0]), -1, 1)
    return StepResult(
        state={"place": after, "active": here & ~leaves, "speed": speed},
        reward={"walker": np.where(here, others, 0.0), "driver": speed * action["driver"][..., 1]},
        terminated=~(here & ~leaves).any(1),
        active={"walker": here},
        left={"walker": leaves},
        metrics={"forbidden": forbidden.sum(1), "way": speed.sum(1), "met": np.where(here, others, 0).sum(1) // 2},
        events={"wind": wind, "leaves": leaves, "all gone": ~(here & ~leaves).any(1)},
    )


def observe(p, states, elapsed):
    place, here = states["place"], states["active"] != 0
    time = np.broadcast_to((elapsed / p.max_episode_steps)[:, None], place.shape)
    mask = np.stack([place != 0, place != 4, here, (place != 0) | ~here, place != 4], axis=-1)
    steps = np.broadcast_to(np.float64(elapsed)[:, None], states["speed"].shape)
    driver = np.stack([states["speed"], steps], axis=-1)
    all_active = np.broadcast_to(here[:, None], (*here.shape, p.walkers))
    critic = np.concatenate([1.0 * place[:, None] - place[:, :, None], all_active], axis=-1)
    obs = {"walker": np.stack([place * 0.25, here, time], axis=-1), "driver": driver}
    return Observation(obs, mask={"walker": mask}, critic_obs={"walker": critic})


def sample_states(p, rng, n):
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["place"] = rng.integers(0, 5, (n, p.walkers))
    states["active"] = rng.random((n, p.walkers)) < 0.8
    states["speed"] = rng.uniform(-1, 1, (n, 3))
    return states


SPEC = EnvSpec(
    *("everything", Params, state, groups, "TIME_LIMIT", Reference(reset, step, observe, sample_states)),
    metrics={"forbidden": "int", "way": "float", "met": "int"},
    cases=({}, {"walkers": 11}),
)
"""
