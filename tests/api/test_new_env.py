"""Two files, or two strings, are all that a new environment needs: make, check and rollout follow."""

import pytest
import torch

import cupydrive as cd
from cupydrive.checks.checker import check

pytestmark = pytest.mark.full

PYTHON = """
from dataclasses import dataclass
import numpy as np
from gymnasium import spaces
from cupydrive.random import unit
from cupydrive.spec import EnvSpec, Field, Group, Observed, Outcome, nearest_decision, param

@dataclass(frozen=True)
class Params:
    num_pushers: int = param(3, "Pushers.", low=1, high=100)
    limit: float = param(4.0, "The block must not go further.", unit="m", low=0.1, high=100.0)
    max_episode_steps: int = param(20, "Limit.", unit="steps", low=1)

def state(p):
    return (Field("block", scale=4.0, unit="m"), Field("strength", "f4", (p.num_pushers,), 1.0, "m/step"))

def groups(p):
    pushers = Group("pusher", p.num_pushers, 2, spaces.Box(-1.0, 1.0, (1,), np.float32), obs_scale=4.0, reward_scale=4.0)
    return (pushers, Group("judge", 1, 1, spaces.Discrete(3), obs_scale=4.0))

def _empty(p, n):
    return np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])

def reset(p, random):
    u = unit(random.bits(p.num_pushers))[..., 0]
    states = _empty(p, len(u))
    states["strength"] = u
    return states

def step(p, s, action, elapsed, random):
    push = np.clip(action["pusher"][..., 0].astype(np.float64), -1, 1) * s["strength"]
    factor = np.array([0.0, 1.0, -1.0])[action["judge"][:, 0]]
    block = s["block"].astype(np.float64) + factor * push.sum(axis=1)
    out = np.abs(block) > p.limit
    near = nearest_decision(np.abs(np.abs(block) - p.limit) / 4.0)
    return Outcome({"block": block, "strength": s["strength"]},
                   {"pusher": np.repeat(-np.abs(block)[:, None], p.num_pushers, 1), "judge": np.where(out, -1.0, 0.0)[:, None]},
                   out, metrics={"work": np.abs(push).sum(axis=1)}, events={"out": out, "in": ~out},
                   margin={"terminated": near, "reward.judge": near[:, None]})

def observe(p, s, elapsed):
    block = np.repeat(s["block"][:, None], p.num_pushers, 1)
    return Observed({"pusher": np.stack([block, s["strength"]], -1), "judge": s["block"][:, None, None]})

def sample(p, rng, n):
    s = _empty(p, n)
    s["block"] = rng.uniform(-1.2, 1.2, n) * p.limit
    s["strength"] = rng.uniform(0, 1, s["strength"].shape)
    return s

SPEC = EnvSpec("pushing", Params, state, groups, "limit", reset, step, observe, sample, metrics={"work": "float"},
               cases=({}, {"num_pushers": 20}))
"""
KERNEL = """
struct Params { float limit; };
struct State { float block; float strength[NUM_PUSHERS]; };
struct Shared { float push[NUM_PUSHERS]; };
#include "drive/env.cuh"

DEVICE void reset(Env& env) {
  if (env.team.leader()) env.state.block = 0.0f;
  for (int i : env.team.each(NUM_PUSHERS)) env.state.strength[i] = env.random.uniform4(i).x;
}
DEVICE bool step(Env& env) {
  State& s = env.state;
  for (int i : env.team.each(NUM_PUSHERS)) env.shared.push[i] = math::clamp(env.pusher.action(i), -1.0f, 1.0f) * s.strength[i];
  env.team.sync();  // all pushes are there
  if (env.team.leader()) {  // floats are added by one member, in one order
    float sum = 0.0f;
    for (int i = 0; i < NUM_PUSHERS; ++i) { sum += env.shared.push[i]; env.log.work += math::abs(env.shared.push[i]); }
    const int judged = env.judge.action(0);
    s.block += judged == 0 ? 0.0f : judged == 1 ? sum : -sum;
    env.judge.reward(0) = math::abs(s.block) > env.params.limit ? -1.0f : 0.0f;
  }
  env.team.sync();  // the block has moved
  for (int i : env.team.each(NUM_PUSHERS)) env.pusher.reward(i) = -math::abs(s.block);
  return math::abs(s.block) > env.params.limit;
}
DEVICE void observe(Env& env) {
  for (int i : env.team.each(NUM_PUSHERS)) {
    auto row = env.pusher.obs(i);
    row[0] = env.state.block;
    row[1] = env.state.strength[i];
  }
  if (env.team.leader()) env.judge.obs(0)[0] = env.state.block;
}
"""


def use(name):
    """Make, check and roll out an environment; a Box group and a Discrete group, floats summed in a fixed order."""
    report = check(name, agent_steps=5_000, device="cpu", progress=False)
    assert report.passed, str(report)
    env = cd.make(name, 10, device="cpu")
    env.reset(seed=1)
    batch = env.rollout(30)
    assert batch.action["pusher"].shape == (30, 10, 3, 1) and batch.action["pusher"].abs().max() <= 1
    assert batch.obs["judge"].shape == (31, 10, 1, 1) and batch.episode["work"].shape == (30, 10)
    obs, reward, *_ = env.step({"pusher": torch.zeros(10, 3, 1), "judge": torch.ones(10, 1, dtype=torch.int32)})
    assert obs["pusher"].shape == (10, 3, 2) and reward["judge"].shape == (10, 1)
    with pytest.raises(cd.CupydriveError, match="is nan"):
        env.step({"pusher": torch.full((10, 3, 1), float("nan")), "judge": torch.ones(10, 1, dtype=torch.int32)})


def test_two_files_anywhere_are_an_environment(tmp_path):
    (tmp_path / "pushing.py").write_text(PYTHON)
    (tmp_path / "pushing.cu").write_text(KERNEL)
    use(str(tmp_path / "pushing.py"))
    assert "pushing" in cd.names()


def test_two_strings_are_an_environment():
    cd.register(PYTHON, KERNEL)
    use("pushing")


@pytest.mark.parametrize("comment", ["all pushes are there", "the block has moved"])
def test_a_missing_sync_is_found_without_a_gpu(comment):
    spec = cd.register(PYTHON, KERNEL.replace(f"env.team.sync();  // {comment}", ""))
    report = check(spec, agent_steps=500, device="cpu", progress=False)
    assert any("a team of threads" in failure for failure in report.failures())


def test_uneven_syncs_are_a_failure_and_not_a_hang():
    wrong = KERNEL.replace("env.team.sync();  // all pushes are there", "if (env.team.rank != 1) env.team.sync();")
    report = check(cd.register(PYTHON, wrong), agent_steps=500, device="cpu", progress=False)
    assert "different numbers of team.sync" in report.failures()[0]
