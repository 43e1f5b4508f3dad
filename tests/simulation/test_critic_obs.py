"""Observations of a central critic, from the kernel to the rollout: checked like observations,
returned by steps, and stored only for a policy that reads them.
"""

import re

import everything
import numpy as np
import pytest
import torch
from equal_runs import assert_same_bits

import cupydrive as cd
from cupydrive.checks.checker import check
from cupydrive.errors import CompileError, SpecError
from cupydrive.executors.host import HostExecutor
from cupydrive.playing.players import RandomPlayer
from cupydrive.playing.rollout import Rollout
from cupydrive.simulation.batch import Batch
from cupydrive.spec import Group

PYTHON = everything.PYTHON.replace("TIME_LIMIT", "truncates")


@pytest.fixture
def spec():
    return cd.register(PYTHON, everything.KERNEL)


def expected(env):
    """Return what the critic of walkers sees of the states as they are, (N, C, 2 C)."""
    place, active = env.state["place"], env.state["active"]
    ways = place[:, None] - place[:, :, None]
    return torch.cat([ways, active[:, None].expand_as(ways)], -1).float()


def test_steps_and_resets_return_them(spec):
    env = cd.make(spec, 50, device="cpu", validate=False, max_episode_steps=7, walkers=3)
    _, info = env.reset(seed=0)
    assert torch.equal(info["critic_obs"]["walker"], expected(env))
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        walker = torch.randint(0, 2, (50, 3, 2), generator=generator, dtype=torch.int32)
        *_, info = env.step({"walker": walker, "driver": torch.zeros(50, 3, 2)})
        assert torch.equal(info["critic_obs"]["walker"], expected(env))
        assert list(info["critic_obs"]) == list(info["final_critic_obs"]) == ["walker"]


def test_they_are_those_of_the_state_after_a_rollout_and_a_snapshot(spec):
    env = cd.make(spec, 20, device="cpu", walkers=3)
    env.reset(seed=0)
    kept = env.snapshot()
    env.rollout(9)
    some = torch.arange(20) < 8
    _, info = env.reset(mask=some)  # the others go on
    assert torch.equal(info["critic_obs"]["walker"], expected(env))
    _, info = env.restore(kept)
    assert torch.equal(info["critic_obs"]["walker"], expected(env))


class CentralPlayer(RandomPlayer):
    """Plays at random, and has its critic observations stored."""

    central = True


def rolled(spec, threads, central=True):
    batch = Batch(spec, 30, spec.make_params(max_episode_steps=6, walkers=3), HostExecutor(threads))
    batch.reset(5)
    kind = CentralPlayer if central else RandomPlayer
    rollout = Rollout(batch, {"walker": kind(), "driver": RandomPlayer()}, 10)
    for _ in range(2):
        rollout.collect()
    return rollout


def test_rollouts_store_them_only_for_a_policy_that_reads_them(spec):
    """In every row they say where walkers are, as their own observations do."""
    rollout = rolled(spec, 1)
    assert list(rollout.critic_obs) == list(rollout.final_critic_obs) == ["walker"]
    place = 4 * rollout.obs["walker"][..., 0]
    ways = place[:, :, None] - place[..., None]
    assert torch.equal(rollout.critic_obs["walker"][..., :3], ways)
    over = rollout.terminated | rollout.truncated
    last = 4 * rollout.final_obs["walker"][..., 0][over]
    seen = rollout.final_critic_obs["walker"][over]
    assert over.any() and torch.equal(seen[..., :3], last[:, None] - last[..., None])
    assert rolled(spec, 1, central=False).critic_obs == {}


def test_threads_change_no_bit(spec):
    one, two = ({"critic": rolled(spec, n).critic_obs["walker"].numpy()} for n in (1, 2))
    assert_same_bits(one, two)


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("(float)(s.place[j] - s.place[i])", "(float)(s.place[i] - s.place[j])", "critic_obs.walker"),
        ("critic_obs(i)[WALKERS + j] = (float)s.active[j]", "critic_obs(i)[WALKERS + j] = 1.0f", "critic_obs.walker"),
    ],
)  # fmt: skip
def test_wrong_ones_fail_the_check(old, new, field):
    assert old in everything.KERNEL
    spec = cd.register(PYTHON, everything.KERNEL.replace(old, new))
    report = check(spec, agent_steps=2000, device="cpu", progress=False)
    assert not report.passed
    assert field in str(report)


@pytest.mark.full
def test_an_assignment_returns_the_number():
    """Also where no rollout stores the row, so that ``obs(i)[0] = critic_obs(i)[0] = x`` works."""
    old = "env.walker.obs(i)[1] = (float)s.active[i];"
    new = "env.walker.obs(i)[1] = env.walker.critic_obs(i)[WALKERS + i] = (float)s.active[i];"
    assert old in everything.KERNEL
    spec = cd.register(PYTHON, everything.KERNEL.replace(old, new))
    assert check(spec, agent_steps=2000, device="cpu", progress=False).passed


@pytest.mark.full
def test_a_group_without_them_has_a_compile_error():
    kernel = everything.KERNEL.replace("env.driver.obs(d)[0]", "env.driver.critic_obs(d)[0]")
    with pytest.raises(CompileError, match=r"critic_obs_dim"):
        cd.make(cd.register(PYTHON, kernel), 2, device="cpu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"critic_obs_dim": -1}, "critic_obs_dim = -1"),
        ({"critic_obs_dim": 2, "critic_obs_scale": np.ones(3)}, "critic_obs_scale"),
    ],
)
def test_wrong_sizes_are_an_error(given, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        Group("agent", 2, 3, cd.spec.spaces.Discrete(2), **given)
