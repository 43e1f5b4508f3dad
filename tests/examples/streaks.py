"""A small environment whose kernel makes a number that is none, at a place that can be known, for
tests; no tests of its own.

Three agents in two groups. The total of each grows by a tenth of its action, 0, 1 or 2. Where one
has taken 2 for STREAK times on end, the kernel's text has gaps to be filled, and so has the
reference.
"""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces

from cupydrive.executors.python_kernels import PythonKernels
from cupydrive.spec import EnvSpec, Field, Group, Observation, Reference, StepResult, param

STREAK = 4
NONE = "math::not_a_number()"
KERNEL = """
struct Params { float tenth; };
struct State { int streak[3]; float total[3]; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  for (int i : env.team.each(3)) {
    env.state.streak[i] = 0;
    env.state.total[i] = START;
  }
}

DEVICE bool step(Env& env) {
  State& s = env.state;
  for (int i : env.team.each(3)) {
    const int action = i == 0 ? env.one.action(0) : env.two.action(i - 1);
    s.streak[i] = action == 2 ? s.streak[i] + 1 : 0;
    const bool streak = s.streak[i] == STREAK;
    s.total[i] += env.params.tenth * (float)action;
    if (streak) s.total[i] = TOTAL;
    const float reward = streak ? REWARD : s.total[i];
    if (i == 0) env.one.reward(0) = reward; else env.two.reward(i - 1) = reward;
  }
  return false;
}

template <class Row> DEVICE void see(Row row, const int streak, const float total, const int elapsed) {
  row[0] = 0.1f * (float)streak;
  row[1] = WHEN ? SEEN : 0.01f * total;
}
DEVICE void observe(Env& env) {
  const State& s = env.state;
  for (int i : env.team.each(3)) {
    if (i == 0) see(env.one.obs(0), s.streak[i], s.total[i], env.elapsed);
    else see(env.two.obs(i - 1), s.streak[i], s.total[i], env.elapsed);
  }
}
"""


def kernel(
    start="0.0f",
    total="s.total[i]",
    reward="s.total[i]",
    seen="0.01f * total",
    when="streak == STREAK",
):
    """Return the kernel's text: a total's start, and where an agent's streak is full its total,
    reward and second observation.

    ``when``: where that is what is observed.
    """
    gaps = {
        "START": start,
        "TOTAL": total,
        "REWARD": reward,
        "SEEN": seen,
        "WHEN": when,
        "STREAK": STREAK,
    }
    text = KERNEL
    for name, words in gaps.items():
        text = text.replace(name, str(words))
    return text


@dataclass(frozen=True)
class Params:
    tenth: float = param(0.1, "Growth.", low=0.0)
    max_episode_steps: int = param(50, "Time limit.", low=1)


def state(p):
    return Field("streak", "i4", (3,)), Field("total", "f4", (3,), scale=10.0)


def groups(p):
    return tuple(
        Group(name, count, 2, spaces.Discrete(3), reward_scale=10.0)
        for name, count in (("one", 1), ("two", 2))
    )


def reset(p, random):
    return np.zeros(len(np.atleast_1d(random.env)), [("streak", "i4", (3,)), ("total", "f4", (3,))])


def step(p, states, action, elapsed, random):
    action = np.concatenate([action["one"], action["two"]], 1)
    streak, total = (
        np.where(action == 2, states["streak"] + 1, 0),
        states["total"] + p.tenth * action,
    )
    return StepResult(
        {"streak": streak, "total": total}, by_group(total), np.zeros(len(states), bool)
    )


def breaking_step(p, states, action, elapsed, random):
    """Do what the kernel does with ``total=NONE``."""
    out = step(p, states, action, elapsed, random)
    out.state["total"] = np.where(out.state["streak"] == STREAK, np.nan, out.state["total"])
    out.reward = by_group(out.state["total"])
    return out


def observe(p, states, elapsed):
    rows = np.stack([0.1 * states["streak"], 0.01 * states["total"].astype(np.float64)], -1)
    return Observation(by_group(rows))


def by_group(rows):
    return {"one": rows[:, :1], "two": rows[:, 1:]}


# ---- the same in torch ---------------------------------------------------------------------------


def torch_reset(env):
    for array in env.state.values():
        array.masked_fill_(env.mask[:, None], 0)


def torch_step(env):
    action = torch.cat([env.action["one"].view(-1, 1), env.action["two"].view(-1, 2)], 1)
    streak, total = env.state["streak"], env.state["total"]
    streak.copy_(torch.where(action == 2, streak + 1, 0))
    total += env.params.tenth * action
    total.masked_fill_(streak == STREAK, torch.nan)
    env.reward["one"].copy_(total[:, :1])
    env.reward["two"].copy_(total[:, 1:])


def torch_observe(env):
    rows = torch.stack([0.1 * env.state["streak"], 0.01 * env.state["total"]], -1)
    env.obs["one"].copy_(rows[:, :1])
    env.obs["two"].copy_(rows[:, 1:])


IN_TORCH = PythonKernels(torch_reset, torch_step, torch_observe, reset_draws=0)


def spec(kernel, time_limit="terminates", **functions):
    """Return the environment; ``functions`` replace ``state`` and those of the reference."""
    fields = functions.pop("state", state)
    reference = Reference(**{"reset": reset, "step": step, "observe": observe} | functions)
    return EnvSpec("streaks", Params, fields, groups, time_limit, reference, kernel=kernel)
