"""Observations in bfloat16 are those in float32, rounded to the nearest; everything else has the
same bits.
"""

import numpy as np
import pytest
import torch
from equal_runs import assert_same_bits

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.bits import fetch, flatten, put
from cupydrive.codegen.layout import Layout, Observations
from cupydrive.errors import ParameterError
from cupydrive.examples import cartpole_torch
from cupydrive.executors import executor
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

pytestmark = pytest.mark.optimised

SMALL = {"tag_continuous": {"num_taggers": 2, "num_runners": 5, "num_other_agents_observed": 3}}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def rounded(array):
    """Return the bits of float32 numbers in bfloat16, by torch."""
    return torch.from_numpy(array).bfloat16().view(torch.uint16).numpy()


def rolled(name, device, obs_dtype, layout=None, steps=25):
    params = {**SMALL.get(name, {}), "max_episode_steps": 9}
    env = cd.make(name, 37, device=device, obs_dtype=obs_dtype, layout=layout, **params)
    env.reset(seed=5)
    return flatten(fetch(env.batch, env.batch.rollout(steps)), env.batch)


# On a CPU `make test` has one environment of one agent, and one of several.
ROUNDED = [
    pytest.param(
        name, "cpu", marks=() if name in ("pendulum", "tag_continuous") else pytest.mark.slow
    )
    for name in envs.names()
] + [pytest.param(name, "cuda", marks=pytest.mark.gpu) for name in envs.names()]


@pytest.mark.full
@pytest.mark.parametrize(("name", "device"), ROUNDED)
def test_they_are_the_float_ones_rounded(name, device):
    """Bits and bytes stay what they are."""
    whole, half = rolled(name, device, "float32"), rolled(name, device, "bfloat16")
    for key, array in whole.items():
        if key.split(".")[0] in ("obs", "final_obs") and array.dtype == np.float32:
            assert half[key].dtype == np.uint16 and np.array_equal(half[key], rounded(array)), key
        else:
            assert half[key].tobytes() == array.tobytes(), key


@pytest.mark.quick(5)
@pytest.mark.gpu
@pytest.mark.parametrize(
    "layout", [None, Layout(4, 8), Layout(64, 1), Layout(64, 1, observations=Observations.STAGED)]
)
@pytest.mark.parametrize("name", envs.names())
def test_cpu_and_gpu_have_the_same_bits(name, layout):
    assert_same_bits(rolled(name, "cuda", "bfloat16", layout), rolled(name, "cpu", "bfloat16"))


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", DEVICES)
def test_tensors_are_bfloat16_and_steps_equal_rollouts(device):
    env = cd.make("pendulum", 5, device=device, obs_dtype="bfloat16")
    obs, _ = env.reset(seed=1)
    assert obs.dtype == torch.bfloat16 and obs.shape == (5, 3) and "bfloat16" in repr(env)
    first = obs.clone()
    batch = env.rollout(3)
    assert batch.obs.dtype == torch.bfloat16 and torch.equal(batch.obs[0], first)
    again = cd.make("pendulum", 5, device=device, obs_dtype="bfloat16")
    again.reset(seed=1)
    for t in range(3):
        obs, *_ = again.step(batch.action[t])
        assert torch.equal(obs, batch.obs[t + 1])
    kept = again.snapshot()
    assert torch.equal(env.restore(kept)[0], obs)


def observed(words, device, layout=None):
    """Return the bits that numbers of these bits have as an observation in bfloat16, in an
    environment that shows its state.
    """
    spec = envs.get("cartpole")
    batch = Batch(
        spec, len(words), spec.make_params(), executor(device), layout=layout, obs_dtype="bfloat16"
    )
    batch.reset(0)
    states = np.zeros(len(words), batch.state_dtype)
    states["x"] = words.view(np.float32)
    put(batch, state=states)
    batch.observe()
    return batch.executor.get(batch.current_obs[batch.groups[0].name])[:, 0, 0]


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_numbers_round_to_the_nearest_and_ties_to_even(device):
    """As torch does: all upper halves but NaN's, denormals and zeros among them, with lower halves
    about a tie and none.
    """
    upper = np.arange(1 << 16, dtype=np.uint32)
    upper = upper[(upper & 0x7F80) != 0x7F80]
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    words = (upper[:, None] << 16 | lower).ravel()
    np.testing.assert_array_equal(observed(words, device), rounded(words.view(np.float32)))


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", DEVICES)
def test_infinities_stay_and_every_nan_is_the_same_one(device):
    """A NaN whose bits are all in the lower half must not become infinite, nor one of all ones a
    zero.
    """
    infinite = np.array([0x7F800000, 0xFF800000], np.uint32)
    np.testing.assert_array_equal(observed(infinite, device), [0x7F80, 0xFF80])
    none = np.array(
        [
            0x7F800001,
            0x7F807FFF,
            0x7F808000,
            0x7FC00000,
            0x7FFFFFFF,
            0xFF800001,
            0xFFC00000,
            0xFFFFFFFF,
        ],
        np.uint32,
    )
    assert torch.from_numpy(none.view(np.float32)).bfloat16().isnan().all()
    np.testing.assert_array_equal(observed(none, device), np.full(len(none), 0x7FC0))


@pytest.mark.full
@pytest.mark.parametrize("options", [{"debug": True}, {"team_threads": 4}], ids=["bounds", "team"])
def test_other_builds_agree(options):
    found = []
    for where in (HostExecutor(threads=1), HostExecutor(**options)):
        spec = envs.get("tag_grid")
        batch = Batch(spec, 9, spec.make_params(max_episode_steps=5), where, obs_dtype="bfloat16")
        batch.reset(3)
        found.append(flatten(fetch(batch, batch.rollout(12)), batch))
    assert_same_bits(*found)


def test_what_cannot_be_is_said():
    with pytest.raises(ParameterError, match="'float16', expected 'float32' or 'bfloat16'"):
        cd.make("cartpole", device="cpu", obs_dtype="float16")
    with pytest.raises(ParameterError, match="observe in float32"):
        cd.make(cartpole_torch.SPEC, device="cpu", obs_dtype="bfloat16")
