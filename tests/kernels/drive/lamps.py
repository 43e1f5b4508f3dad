"""An environment of lamps, for tests: agents see the bits of a word as an image."""

import math
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

import cupydrive as cd
from cupydrive.random import RandomStream

SHAPE = (3, 5, 3)  # more than one word of bits, and no multiple of 4
FOURS = (4, 5, 4)  # three words, and a multiple of 4
KERNEL = """
struct Params {};
struct State { u32 word; u8 last[4]; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  if (!env.team.leader()) return;
  env.state.word = env.random.bits(0).x;
  for (int k = 0; k < 4; ++k) env.state.last[k] = k;
}
DEVICE bool step(Env& env) {
  for (int i : env.team.each(NUM_AGENTS)) env.eye.reward(i) = (float)(env.state.word & 1u);
  env.team.sync();
  if (env.team.leader()) {
    for (int k = 0; k < 4; ++k) env.state.last[k] = (u8)(env.state.word >> 8 * k);
    env.state.word = env.state.word << 1 | (u32)env.eye.action(0);
  }
  return false;
}
DEVICE void observe(Env& env) {
  // Members write entries of the same rows, which others have made 0.
  for (int n : env.team.each(NUM_AGENTS * ENTRIES)) {
    const int i = n / ENTRIES, k = ENTRIES - 1 - n % ENTRIES;
    WRITE
  }
}
"""
WRITES = {
    "bool": "if ((env.state.word >> k % 31 & 1u) != 0 || k == 40 + i)"
    " env.eye.obs(i)[k] = !env.eye.obs(i)[k];",
    "uint8": "env.eye.obs(i)[k] = (u8)(env.state.word >> k % 25);",
    "float32": "env.eye.obs(i)[k] = 0.25f * (float)(env.state.word >> (k + i) % 29 & 7u) - 1.0f;",
}
# The same as a network sees it, as float32.
FLOATS = {
    "bool": "env.eye.obs(i)[k] = (env.state.word >> k % 31 & 1u) != 0 || k == 40 + i ? 1.0f : 0.0f;",
    "uint8": "env.eye.obs(i)[k] = (float)(u8)(env.state.word >> k % 25) / 255.0f;",
}
STATE = np.dtype([("word", "u4"), ("last", "u1", (4,))])


@dataclass(frozen=True)
class Params:
    """A time limit."""

    max_episode_steps: int = cd.param(7, "Time limit.", unit="steps", low=1)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Draw words."""
    words = random.bits()[:, 0, 0]
    states = np.zeros(len(words), STATE)
    states["word"], states["last"] = words, np.arange(4)
    return states


def step(p: Params, states, action, elapsed, random) -> cd.StepResult:
    """Shift the first agent's action in."""
    actions = action["eye"].reshape(len(states), -1)
    word = states["word"] << np.uint32(1) | actions[:, 0].astype(np.uint32)
    reward = np.ones(actions.shape) * (states["word"] & 1)[:, None]
    last = states["word"][:, None] >> np.arange(0, 32, 8, dtype=np.uint32) & 255
    return cd.StepResult({"word": word, "last": last}, {"eye": reward}, np.zeros(len(states), bool))


def seen(
    states: np.ndarray, count: int, dtype: str, image: tuple[int, int, int] = SHAPE
) -> np.ndarray:
    """Return (N, C, *image) observations."""
    entries = math.prod(image)
    k, word = np.arange(entries, dtype=np.uint32), states["word"][:, None, None]
    rows = word >> k % 25 & 255
    if dtype == "bool":
        rows = (word >> k % 31 & 1 == 1) | (k == 40 + np.arange(count)[:, None])
    if dtype == "float32":
        rows = 0.25 * (word >> (k + np.arange(count)[:, None].astype(np.uint32)) % 29 & 7) - 1.0
    return np.broadcast_to(rows, (len(states), count, entries)).reshape(-1, count, *image)


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw words."""
    states = np.zeros(n, STATE)
    states["word"] = rng.integers(0, 2**32, n, np.uint32)
    states["last"] = rng.integers(0, 256, (n, 4), np.uint8)
    return states


def lamps(
    count: int = 1,
    dtype: str = "bool",
    write: str = "",
    image: tuple[int, ...] = SHAPE,
    high: float | np.ndarray = np.inf,
) -> cd.EnvSpec:
    """Return the environment.

    Args:
        count: Agents.
        dtype: Of observations.
        write: What ``observe`` does with entry k of agent i, if it does something else.
        image: Shape of an observation.
        high: ``Group.obs_high``.
    """
    return cd.EnvSpec(
        name="lamps",
        params=Params,
        state=lambda params: (cd.Field("word", "u4"), cd.Field("last", "u1", (4,))),
        groups=lambda params: (
            cd.Group(
                "eye",
                count,
                action_space=spaces.Discrete(2),
                obs_shape=image,
                obs_dtype=dtype,
                obs_high=high,
            ),
        ),
        time_limit="truncates",
        kernel=KERNEL.replace("WRITE", write or WRITES[dtype]).replace(
            "ENTRIES", str(math.prod(image))
        ),
        reference=cd.Reference(
            reset,
            step,
            lambda params, state, elapsed: cd.Observation(
                {"eye": seen(state, count, dtype, image)}
            ),
            sample_states,
        ),
    )
