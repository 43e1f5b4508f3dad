"""Policies that choose and give numbers at once: they learn both, with equal bits on any number of
threads, and take random actions.
"""

import archers
import numpy as np
import pytest
import torch
from learner_weights import digest

import cupydrive as cd
from cupydrive.errors import ParameterError

QUIET = {"device": "cpu", "progress": False}


@pytest.fixture(autouse=True)
def spec():
    return cd.register(archers.PYTHON, archers.KERNEL)


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("settings", "backend", "steps"),
    [
        (cd.PPO(num_steps=8), "kernels", 8000),
        (cd.PPO(num_steps=8), "torch", 8000),
        (cd.PPO(num_steps=8, distribution="squashed"), "kernels", 20_000),
        (cd.A2C(num_steps=4, learning_rate=1e-3, ent_coef=0.0), "kernels", 150_000),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_both_parts_are_learnt(settings, backend, steps, masked):
    """The best return of an episode is 8. Without aiming it is at most 8 * (1 - 2/3), and with
    random choices at most 8 / 3 (4 with masks).
    """
    run = cd.train(
        "archers", settings, num_envs=16, steps=steps, backend=backend, masked=masked, **QUIET
    )
    found = run.evaluate(200)
    assert found.returns["archer"].mean() > 6
    assert found.metrics["hits"].mean() > 15.5  # of two agents in 8 steps
    if masked:
        assert all(row.get("env/gear_3", 0) == 0 for row in run.metrics)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_any_number_of_threads_gives_the_same_weights(monkeypatch, device):
    settings, found = cd.PPO(num_steps=8, precision="float32"), set()
    for threads, where in (("1", "cpu"), ("2", device)):
        monkeypatch.setenv("CUPYDRIVE_THREADS", threads)
        run = cd.train(
            "archers", settings, num_envs=40, steps=2000, masked=True, **QUIET | {"device": where}
        )
        found.add(digest(run))
    assert len(found) == 1


def test_random_policies_are_uniform_and_obey_masks():
    found = cd.evaluate(
        "archers",
        {"archer": cd.RandomPolicy()},
        episodes=5000,
        device="cpu",
        archers=1,
        masked=True,
    )
    action = torch.from_numpy(found.recording.action["archer"]).flatten(0, 2).double()
    n = len(action)
    assert n == 40_000  # 8 steps of each episode
    for head, shares in enumerate([(1 / 3,) * 3, (1 / 2,) * 2, (1 / 3, 1 / 3, 1 / 3, 0)]):
        counts = torch.bincount(action[:, head].long(), minlength=len(shares)) / n
        # 6 standard deviations of a share of n draws
        assert (counts - torch.tensor(shares)).abs().max() < 6 * 0.5 / n**0.5
    for head, (low, high) in enumerate([(-1, 1), (-1, 1), (0, 3)], start=3):
        unit = ((action[:, head] - low) / (high - low)).sort().values
        # Dvoretzky, Kiefer & Wolfowitz 1956, with Massart's constant: 2 exp(-2 n d^2) = 10^-8
        assert (unit - torch.arange(n) / n).abs().max() < (np.log(2e8) / 2 / n) ** 0.5 + 1 / n


def test_ddpg_is_refused():
    with pytest.raises(ParameterError, match=r"DDPG needs a Box of actions, but .* has Tuple\("):
        cd.train("archers", cd.DDPG(), num_envs=8, steps=100, **QUIET)
