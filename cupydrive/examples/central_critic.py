"""Gardeners who share their harvest: a task in which the critic benefits from the global state.

Each day, 0 to 8 units of rain fall on each garden. A gardener observes the rain on its own garden
and chooses how much to water it. The correct amount is the rain modulo 3. A garden yields 3 per
unit of rain, and 1 more if the amount was correct. The reward of every gardener is the mean
harvest. Most of its variance comes from rain that the gardener does not observe. A critic that
observes all rain explains this variance, which reduces the noise of the advantages.

``IPPO`` and ``MAPPO`` (Yu et al. 2022) are settings that differ only in the critic. After 48,000
environment steps of 64 environments on a CPU, 92 % of the choices are correct with MAPPO and 80 %
with IPPO, as means of ten seeds. The mean difference is 13 %, with a 95 % interval of +-2 %.
"""

from dataclasses import dataclass, replace

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.algorithms.ppo import PPO
from cupydrive.random import RandomStream, below

LEVELS, WATERS = 9, 3  # numbers of levels of rain, 0 to 8, and of water, 0 to 2
KERNEL = """
struct Params { float rain_yield; };
struct State { Array<int, NUM_AGENTS> rain; };
struct Shared { Array<int, NUM_AGENTS> right; };
#include "drive/env.cuh"

DEVICE int rain_of(const Env& env, int i) { return Random::below(env.random.bits(i).x, LEVELS); }

DEVICE void reset(Env& env) {
  for (int i : env.team.each(NUM_AGENTS)) env.state.rain[i] = rain_of(env, i);
}

DEVICE bool step(Env& env) {
  for (int i : env.team.each(NUM_AGENTS)) {
    const int needed = env.state.rain[i] % WATERS;
    env.shared.right[i] = env.gardener.action(i) == needed;
    env.metrics.right += env.shared.right[i];
  }
  env.team.sync();  // all choices are stored before they are counted
  int rain = 0, right = 0;
  for (int i = 0; i < NUM_AGENTS; ++i) {
    rain += env.state.rain[i];
    right += env.shared.right[i];
  }
  const float harvest = env.params.rain_yield * (float)rain + (float)right;
  env.team.sync();  // all threads have read the rain before it is replaced
  for (int i : env.team.each(NUM_AGENTS)) {
    env.gardener.reward(i) = harvest * (1.0f / NUM_AGENTS);
    env.state.rain[i] = rain_of(env, i);
  }
  return false;
}

// A gardener observes the rain on its own garden. Its critic observes all rain, its own first.
DEVICE void observe(Env& env) {
  const auto rain = [&](int i) { return (float)env.state.rain[i % NUM_AGENTS] * (1.0f / LEVELS); };
  for (int i : env.team.each(NUM_AGENTS)) {
    for (int k = 0; k < LEVELS; ++k) env.gardener.obs(i)[k] = (float)(env.state.rain[i] == k);
    for (int k = 0; k < NUM_AGENTS; ++k) env.gardener.critic_obs(i)[k] = rain(i + k);
  }
}
"""


@dataclass(frozen=True)
class Params:
    """Number of gardens, and harvest per unit of rain."""

    rain_yield: float = cd.param(
        3.0, "Harvest per unit of rain. Correct watering yields 1.", low=0.0
    )
    num_agents: int = cd.param(16, "Gardens, and gardeners.", low=1, high=64)
    max_episode_steps: int = cd.param(25, "Time limit.", unit="days", low=1)


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the group. Agents observe their own rain, and the critic observes all rain."""
    scale = LEVELS * p.rain_yield + 1.0
    gardeners = cd.Group(
        "gardener", p.num_agents, LEVELS, spaces.Discrete(WATERS), reward_scale=scale,
        critic_obs_dim=p.num_agents,
    )  # fmt: skip
    return (gardeners,)


def rain_of(p: Params, random: RandomStream) -> np.ndarray:
    """Return the rain on each garden, (N, C)."""
    return below(random.bits(p.num_agents)[..., 0], LEVELS)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return initial states, (N,)."""
    rain = rain_of(p, random)
    states = np.zeros(len(rain), [("rain", "i4", (p.num_agents,))])
    states["rain"] = rain
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Compute the harvest of the day, and draw the rain of the next day."""
    right = action["gardener"] == states["rain"] % WATERS
    harvest = (p.rain_yield * states["rain"] + right).mean(axis=1, keepdims=True)
    return cd.StepResult(
        state={"rain": rain_of(p, random)},
        reward={"gardener": np.repeat(harvest, p.num_agents, axis=1)},
        terminated=np.zeros(len(states), bool),
        metrics={"right": right.sum(axis=1)},
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return each gardener's own rain, and all rain for its critic, starting with its own."""
    rain = states["rain"] / LEVELS
    every = np.stack([np.roll(rain, -i, axis=1) for i in range(p.num_agents)], axis=1)
    own = 1.0 * (states["rain"][..., None] == np.arange(LEVELS))
    return cd.Observation({"gardener": own}, critic_obs={"gardener": every})


SPEC = cd.EnvSpec(
    name="gardeners",
    params=Params,
    state=lambda p: (cd.Field("rain", "i4", (p.num_agents,)),),
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe),
    kernel=KERNEL,
    metrics={"right": "int"},
    constants=lambda p: {"LEVELS": LEVELS, "WATERS": WATERS},
    summary="Gardeners water their own gardens and share the harvest of all gardens.",
)
IPPO = PPO(num_steps=25, learning_rate=1e-3, gamma=0.5, normalize_value=True)
MAPPO = replace(IPPO, critic="central")
