"""Action masks, from the kernel to the loss: checked like observations, stored per step, and never
violated.
"""

import re
from dataclasses import replace

import pytest
import torch
from masked import KERNEL, PYTHON

import cupydrive as cd
from cupydrive.checks.checker import check
from cupydrive.errors import ActionError, SpecError
from cupydrive.spec import Group


@pytest.fixture(autouse=True)
def masked():
    return cd.register(PYTHON, KERNEL)


@pytest.mark.full
@pytest.mark.parametrize("walkers", [2, 1])
def test_the_checker_compares_masks_and_random_actions_obey_them(masked, walkers):
    """Of one agent, too: such environments step side by side on a CPU, unless they have masks."""
    report = check(
        replace(masked, cases=({"walkers": walkers},)),
        agent_steps=5000,
        device="cpu",
        progress=False,
    )
    assert report.passed, str(report)
    assert any(field == "mask.walker" for _, field in report.tallies)


@pytest.mark.full
@pytest.mark.parametrize("walkers", [3, 4])  # rows of 15 bytes, and of 20, which are words
def test_all_choices_may_be_allowed_at_once(walkers):
    first = "DEVICE void observe(Env& env) {\n"
    kernel = KERNEL.replace(
        first, first + "  env.walker.allow_all(env.team);\n  env.team.sync();\n"
    )
    kernel = kernel.replace("    env.walker.mask(i, 2) = true;\n", "")
    spec = replace(cd.register(PYTHON, kernel), cases=({"walkers": walkers},))
    report = check(spec, agent_steps=5000, device="cpu", progress=False)
    assert report.passed, str(report)


@pytest.mark.full
def test_a_mask_that_is_not_written_is_found_without_a_reference():
    kernel = KERNEL.replace("env.walker.mask(i, 1, 1) = place != 4;", "")
    spec = replace(cd.register(PYTHON, kernel), reference=cd.Reference())
    report = check(spec, agent_steps=2000, device="cpu", progress=False)
    words = r"action_mask\.walker: step \d+, environment \d+, agent \d, entry 4: single steps "
    assert re.match(words, report.failures()[0]), str(report)


@pytest.mark.full
def test_a_head_that_allows_nothing_allows_all():
    kernel = KERNEL.replace("mask(i, 0, 1) = place != 0", "mask(i, 0, 1) = false")
    kernel = kernel.replace("mask(i, 1, 1) = place != 4", "mask(i, 1, 1) = false")
    env = cd.make(cd.register(PYTHON, kernel), 1000, device="cpu")
    env.reset(seed=0)
    batch = env.rollout(20)
    assert not batch.action_mask["walker"][..., 3:].any()
    jumps = batch.action[..., 1].double()
    assert abs(jumps.mean() - 0.5) < 4 * 0.5 / jumps.numel() ** 0.5


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("env.walker.mask(i, 0) = place != 0;", "env.walker.mask(i, 0) = place != 1;"),
        ("env.walker.mask(i, 1, 1) = place != 4;", ""),
    ],
)
def test_a_wrong_mask_fails_the_check(old, new):
    assert old in KERNEL
    report = check(
        cd.register(PYTHON, KERNEL.replace(old, new)),
        agent_steps=2000,
        device="cpu",
        progress=False,
    )
    assert not report.passed and "mask.walker" in str(report)


def test_masks_arrive_with_their_observation_and_bind():
    env = cd.make("masked", 50, device="cpu")
    obs, info = env.reset(seed=1)
    for _ in range(30):
        mask = info["action_mask"]["walker"]
        place = (obs[..., 0] * 4).round()
        assert torch.equal(mask[..., 0], place != 0) and torch.equal(mask[..., 4], place != 4)
        action = torch.stack(
            [mask[..., :3].float().argmax(-1), mask[..., 3:].float().argmax(-1)], -1
        ).int()
        obs, _, _, _, info = env.step(action)
    mask = info["action_mask"]["walker"]
    env_id, agent = (~mask[..., 0]).nonzero()[0].tolist()
    action = torch.stack([torch.full((50, 2), 2), mask[..., 3:].float().argmax(-1)], -1).int()
    action[env_id, agent, 0] = 0
    with pytest.raises(
        ActionError,
        match=rf"environment {env_id}, agent {agent}, entry 0 is 0, which its mask forbids. Allowed: 1, 2",
    ):
        env.step(action)
    batch = env.rollout(40)
    assert batch.action_mask["walker"].shape == (41, 50, 2, 5)
    assert batch.episode["forbidden"][batch.truncated].sum() == 0


@pytest.mark.full
@pytest.mark.parametrize("settings", [cd.PPO(num_steps=8), cd.A2C(num_steps=8)])
def test_training_never_takes_a_forbidden_choice_and_learns(settings):
    run = cd.train("masked", settings, num_envs=32, steps=32 * 8 * 40, device="cpu", progress=False)
    assert all(row.get("env/forbidden", 0) == 0 for row in run.metrics)
    assert run.evaluate(200).metrics["forbidden"].sum() == 0
    first, last = (run.metrics[k]["charts/episodic_return"] for k in (2, -1))
    assert last > first


def test_a_box_cannot_be_masked():
    import numpy as np
    from gymnasium import spaces

    with pytest.raises(SpecError, match="no choices to mask"):
        Group("x", 1, 1, spaces.Box(-1.0, 1.0, (1,), np.float32), mask=True)
