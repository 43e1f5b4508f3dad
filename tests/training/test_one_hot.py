"""Networks that see bytes one-hot: the expansion, the same numbers by every path, and errors."""

from dataclasses import replace

import lamps
import numpy as np
import pytest
import torch
from equal_runs import rows, same
from gymnasium import spaces
from test_bits import WAYS
from test_convolutions import assert_equal_actions

import cupydrive as cd
from cupydrive.algorithms.kernels import choice
from cupydrive.errors import ParameterError
from cupydrive.playing.policy import OneHot

QUIET = {"device": "cpu", "progress": False}
NETWORKS = {
    "rows": cd.Network(hidden=(24,), one_hot=True),
    "conv": cd.Network(conv=cd.Conv((6, 4), 2), hidden=(16,), activation="relu", shared=True, one_hot=True),
    "gru": cd.Network(hidden=(16,), core=cd.GRU(16), one_hot=True),
}  # fmt: skip
VALUE = "(env.state.word >> (k + i) % 25) % 5u"  # of entry k that agent i sees; 4 is above HIGH
HIGH = 3
EACH = np.resize([4.0, 1.0, 2.0], 45)  # by channel
FLOATS = (
    "const int c = k / 4; env.eye.obs(i)[k] = "
    f"{VALUE.replace('k', 'c')} == (u32)(k % 4) ? 1.0f : 0.0f;"
)


def bytes_of(high=HIGH, count=2):
    """Return lamps that agents see as bytes, an image of 3 x 5 entries with 3 channels."""
    return lamps.lamps(count, "uint8", f"env.eye.obs(i)[k] = (u8)({VALUE});", high=high)


def trained(spec, kind, iterations=3, backend="auto", **options):
    """Return a run."""
    settings = cd.PPO(network=NETWORKS[kind], num_steps=8, num_minibatches=2, learning_rate=1e-2)
    options = {"num_envs": 8, "seed": 3, "backend": backend, **QUIET, **options}
    return cd.train(spec, settings, steps=64 * iterations, **options)


@pytest.mark.first
@pytest.mark.parametrize("shape", [(4,), (5, 2), (3, 2, 2)])
@pytest.mark.parametrize("highs", [(7,), (1, 4), (255, 2)])
def test_value_v_of_a_channel_is_row_v_of_an_identity_matrix(shape, highs):
    high = highs[0] if len(highs) == 1 else np.resize(np.float32(highs), np.prod(shape))
    group = cd.Group(
        "eye", 1, action_space=spaces.Discrete(2), obs_shape=shape, obs_dtype="uint8", obs_high=high
    )
    most = np.resize(highs, shape[-1]).astype(int)
    values = np.random.default_rng(0).integers(0, most + 1, (50, *shape))
    wanted = [np.eye(n + 1)[values[..., c]] for c, n in enumerate(most)]
    scaled = torch.from_numpy((values / most).astype(np.float32))
    assert cd.Network(one_hot=True).input_shape(group) == (*shape[:-1], sum(most + 1))
    found = OneHot(group)(scaled)
    assert np.array_equal(found, np.concatenate(wanted, axis=-1).reshape(50, -1))
    above = torch.from_numpy(np.float32((values + most + 1) / most))
    assert not OneHot(group)(above).any()


@pytest.mark.parametrize(
    ("kind", "way"), [*((kind, None) for kind in NETWORKS), *(("rows", way) for way in WAYS)]
)
def test_kernels_learn_the_bits_that_they_learn_from_floats(kind, way, monkeypatch):
    """An environment writes the expanded image itself."""
    if way:
        monkeypatch.setattr(choice, "EXACT", WAYS[way])
    one = trained(bytes_of(), kind, backend="kernels").policies["eye"].state_dict()
    monkeypatch.setitem(NETWORKS, kind, replace(NETWORKS[kind], one_hot=False))
    floats = lamps.lamps(2, "float32", FLOATS, (3, 5, 12))
    other = trained(floats, kind, backend="kernels").policies["eye"].state_dict()
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name])


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize(
    ("backend", "high", "most"),
    [("kernels", HIGH, 0), ("torch", HIGH, 1e-4), ("torch", EACH, 1e-4)],
)
def test_a_policy_gives_the_same_while_it_acts_and_learns(kind, backend, high, most):
    settings = cd.PPO(network=NETWORKS[kind], num_steps=8, num_minibatches=2)
    report = cd.check_policy(bytes_of(high), settings, num_envs=8, device="cpu", backend=backend)
    assert report.passed and max(tally.worst for tally in report.tallies.values()) <= most


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("high", [HIGH, EACH], ids=["kernels", "torch"])
def test_resuming_gives_the_bits_of_a_run_that_was_never_stopped(kind, high, tmp_path):
    whole, half = (trained(bytes_of(high), kind, iterations) for iterations in (5, 3))
    words = "kernels, float32" if high is HIGH else "torch: obs_high of 'eye' has a number for each"
    assert words in whole.backends["eye"]
    half.total = whole.total
    half.save(tmp_path)
    resumed = cd.load(tmp_path, env=bytes_of(high), device="cpu")
    assert resumed.settings == half.settings and same(half, resumed)
    cd.train(resumed, progress=False)
    assert same(whole, resumed) and rows(resumed) == rows(whole)[3:]


@pytest.mark.parametrize("kind", ["conv", "gru"])
@pytest.mark.parametrize("high", [HIGH, EACH], ids=["kernels", "torch"])
def test_a_frozen_policy_act_and_a_file_take_the_actions_of_evaluate(kind, high, tmp_path):
    assert_equal_actions(bytes_of(high), trained(bytes_of(high), kind), tmp_path)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_other_observations_are_refused_by_one_line(dtype, backend):
    words = f"one_hot = True needs bytes: got obs_dtype = '{dtype}' of 'eye', expected 'uint8'"
    with pytest.raises(ParameterError, match=words) as caught:
        trained(lamps.lamps(2, dtype), "conv", backend=backend)
    assert "\n" not in str(caught.value)
