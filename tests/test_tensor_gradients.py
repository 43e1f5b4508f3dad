"""Gradients by matrix units, or what stands for them on a CPU, against torch's in float64."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from learner_kernels import compute, problem, reference
from test_learner_kernels import CASES, LONG

from cupydrive.training.algorithms import A2C, PPO
from cupydrive.training.algorithms.kernels import wide
from cupydrive.training.algorithms.kernels.arithmetic import TENSOR, WIDE
from cupydrive.training.algorithms.kernels.tensor import GROUPS, WARP_GROUPS, TensorGradients

# 1,043 inputs leave no room for the other sums in a thread's registers.
NARROW = [name for name in CASES if name != "17 rows, wide"]
WIDE_NETWORKS = {
    "256 and 256": (
        A2C(num_steps=9, hidden=(256, 256), activation="relu", shared_layers=True),
        dict(envs=5, actions="several", agents=(2, 2), masks=True, leaving=True, obs_dim=34, normalised=True),
    ),
    "part by part": (PPO(num_steps=40, hidden=(144, 40, 112)), dict(envs=30, obs_dim=19)),
}
LARGE = ("17 rows, wide", "one row", "groups, leaving", "Gaussian", "A2C", *WIDE_NETWORKS)
# Hidden layers of 33 to 64, of which many rows go to warp groups; here few do.
HALF_WIDE = {"three hidden layers": (A2C(num_steps=9, hidden=(64, 40, 33)), dict(envs=30, obs_dim=16))}
GROUPED = ("shared", "several heads, masks", "groups, leaving", "values clipped", "squashed", *HALF_WIDE)
BY_GROUPS = replace(TENSOR, gradients=partial(TensorGradients, way=GROUPS))
KINDS = ((TENSOR, NARROW, ""), (WIDE, LARGE, ", by wide kernels"), (BY_GROUPS, GROUPED, ", by warp groups"))
WAYS = [(name, way, f"{name}{suffix}") for way, names, suffix in KINDS for name in names]


def ways(skipped=()):
    """Return (name, arithmetic) as parameters, the long ones marked as slow."""
    marks = {True: pytest.mark.slow, False: ()}
    return [pytest.param(name, way, marks=marks[name in skipped], id=title) for name, way, title in WAYS]


def tensor_gradients(name, executor, arithmetic):
    """Return the gradients of a case by matrix units and by torch in float64, each as one vector, and what goes with them."""
    config, about = (CASES | WIDE_NETWORKS | HALF_WIDE)[name]
    case = problem(config, executor=executor, arithmetic=arithmetic, **about)
    last = case.gradients.epochs - 1, case.gradients.minibatches - 1
    case.steps.lay_out()
    case.gradients.arrange()
    losses, exact = reference(case, *last)
    found = compute(case, *last)
    return (torch.cat([part.flatten().double() for part in parts]) for parts in (found, exact)), losses, case


def assert_near(name, executor, arithmetic):
    """The gradient is within 2 % of torch's in float64, and in its direction."""
    (mine, exact), losses, case = tensor_gradients(name, executor, arithmetic)
    assert (mine - exact).norm() <= 0.02 * exact.norm()
    assert torch.nn.functional.cosine_similarity(mine, exact, dim=0) >= 0.999
    reported = dict(zip(case.steps.reported, case.shared["metric_sums"].tolist(), strict=False))
    for key in ("policy_loss", "value_loss", "entropy"):
        assert reported[key] == pytest.approx(losses[key], rel=0.02, abs=0.01), key


# Three more whose losses are the same text as in exact arithmetic, where `make test` has them.
@pytest.mark.parametrize(("name", "arithmetic"), ways((*LONG, "15 rows", "several heads, masks", "squashed")))
def test_gradients_of_bfloat16_factors_are_near_torchs(name, arithmetic, monkeypatch):
    if name == "part by part":
        monkeypatch.setattr(wide, "MOST_ROW_BYTES", 2**20)
    assert_near(name, None, arithmetic)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "arithmetic"), ways())
def test_gradients_by_matrix_units_are_near_torchs(name, arithmetic):
    from cupydrive.executors.cuda import CudaExecutor

    executor = CudaExecutor()
    if arithmetic is BY_GROUPS and int(executor.device.compute_capability) != WARP_GROUPS:
        pytest.skip("this GPU has no wgmma")
    assert_near(name, executor, arithmetic)
    executor.resident_teams = lambda program, kernel: 1  # a block has all tiles of a tower then, one after the other
    assert_near(name, executor, arithmetic)
