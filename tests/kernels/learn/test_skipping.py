"""Zeros of observations that one thread skips (``kernels/learn/exact/skipping.cuh``): teams, which
skip nothing, give the same bits.
"""

import platform

import numpy as np
import pytest
import torch
from gymnasium import spaces
from learner_kernels import compute, problem

from cupydrive.algorithms import PPO
from cupydrive.algorithms.kernels.gradients import exact_forward_unit
from cupydrive.algorithms.kernels.layout import PAD, NetworkLayout
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call
from cupydrive.playing.policy import make_distribution
from cupydrive.spec import Group

NARROW = ("-O1", "-mno-avx512f") if platform.machine() in ("x86_64", "AMD64") else ("-O1",)
EXECUTORS = {
    "one core": lambda: HostExecutor(1, flags=("-O1",)),
    "two cores": lambda: HostExecutor(2, flags=("-O1",)),
    "narrow vectors": lambda: HostExecutor(1, flags=NARROW),
    "team": lambda: HostExecutor(team_threads=4),
}
INPUTS = 70  # enough to skip, and no multiple of a vector


def sparse_problem(executor, share, shared=True, change=lambda case: None):
    """Return a problem of which about a ``share`` of the observations' entries is not 0, half of
    these 1, as ``change`` leaves it.
    """
    config = PPO(num_steps=16, hidden=(20, 16), shared_layers=shared, num_minibatches=2)
    case = problem(config, envs=140, obs_dim=INPUTS, executor=EXECUTORS[executor]())
    rng = np.random.default_rng(5)
    obs = case.columns["obs"][0]
    kept = torch.from_numpy(rng.random(obs.shape) < share)
    ones = torch.from_numpy(rng.random(obs.shape) < 0.5)
    obs.copy_(torch.where(kept, torch.where(ones, 1.0, obs), 0.0))
    change(case)
    return case


def words(tensors):
    """Return the bits of tensors."""
    return [t.detach().numpy().view(np.int32).tolist() for t in tensors]


def found_by(executor, *about, **more):
    """Return the bits of the gradient and the weights after one step."""
    case = sparse_problem(executor, *about, **more)
    return words(compute(case)), words(case.steps.weights)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.08, 0.24, 0.9])
def test_skipping_changes_no_bit(share, shared):
    wanted = found_by("team", share, shared)
    for executor in ("one core", "two cores", "narrow vectors"):
        assert found_by(executor, share, shared) == wanted


def infinite(case):
    """Let an input that is always 0 have an infinite weight."""
    case.columns["obs"][0][..., 7] = 0.0
    case.steps.weights[0][2, 7] = np.inf


def not_finite(case):
    """Let derivatives by the outputs of rows of zeros be infinite."""
    case.columns["obs"][0][:, 5] = 0.0
    case.columns["returns"][0][:, 5] = np.inf


@pytest.mark.parametrize("change", [infinite, not_finite])
def test_zeros_are_not_skipped_where_0_times_a_number_is_none(change):
    found, wanted = (found_by(executor, 0.1, change=change) for executor in ("one core", "team"))
    nan = [[np.isnan(np.int32(x).view(np.float32)) for x in of[0]] for of in (found, wanted)]
    assert all(np.array_equal(a, b) for a, b in zip(*nan, strict=True))
    assert found[1] == wanted[1] and any(x.any() for x in nan[1])


def values_of(executor):
    """Return the bits of a linear network's values where its bias is -0 and all entries are 0."""
    executor = EXECUTORS[executor]()
    layout = NetworkLayout(((INPUTS, 3), (INPUTS, 1)), 3)
    distribution = make_distribution(Group("g", 1, INPUTS, spaces.Discrete(3)))
    _, unit = exact_forward_unit(layout, distribution, executor, 5)
    packed, value = torch.zeros(layout.packed), torch.full((5,), torch.nan)
    packed[-(INPUTS + 1) * PAD : -PAD : PAD] = 0.5  # the weights of the value, which is column 0
    packed[-PAD] = -0.0
    pointers = {"obs": torch.zeros(5, INPUTS), "at": None, "center": None, "scale": None}
    pointers |= {"packed": packed, "parameters": None, "value": value}
    ints = {"rows": 5, "num_envs": 5, "agents": 1, "teams": 1}
    call = make_call(ints, pointers, structs={"sample": distribution.call()})
    executor.build(unit).launch("forward_rows", call, 1)
    return words([value])


def test_a_skipped_zero_makes_a_negative_zero_one_without_a_sign():
    assert values_of("one core") == values_of("team") == [[0] * 5]
