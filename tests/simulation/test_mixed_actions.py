"""Actions of a Tuple of discrete spaces and boxes: one row of float32 numbers, choices first."""

import archers
import masked
import numpy as np
import pytest
import torch
from gymnasium import spaces

import cupydrive as cd
from cupydrive.errors import ActionError, CompileError, SpecError
from cupydrive.spec import Group

DISCRETE, BOX = spaces.Discrete(3), spaces.Box(np.float32([-1, 0]), np.float32([1, 3]))


@pytest.fixture(autouse=True)
def spec():
    return cd.register(archers.PYTHON, archers.KERNEL)


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "high"),
    [
        (spaces.Tuple((DISCRETE, BOX)), (2, 3), "f4", [2, 1, 3]),
        (spaces.Tuple((BOX, DISCRETE)), (2, 3), "f4", [2, 1, 3]),
        (spaces.Tuple((DISCRETE, spaces.MultiDiscrete([5, 2]))), (2, 3), "i4", [2, 4, 1]),
        (spaces.Tuple((BOX, BOX)), (2, 4), "f4", [1, 3, 1, 3]),
        (spaces.Tuple((DISCRETE,)), (2,), "i4", [2]),
    ],
)
def test_a_row_has_all_choices_and_then_all_numbers(space, shape, dtype, high):
    group = Group("one", 2, 1, space)
    assert group.action_shape == shape and group.action_dtype == dtype
    assert group.action_bounds[1].tolist() == high


@pytest.mark.full
def test_kernels_pass_the_check(spec):
    """It compares random actions and single steps with the reference, and 1 thread with 3."""
    report = cd.check(spec, agent_steps=5000, device="cpu", progress=False)
    assert report.passed and all(report.events.values()), str(report)


@pytest.mark.parametrize("masks", [False, True])
def test_random_actions_are_uniform_and_independent(masks):
    env = cd.make("archers", 4000, device="cpu", archers=1, masked=masks)
    env.reset(seed=3)
    batch = env.rollout(10)
    colour = batch.obs[:-1, ..., 2:].argmax(-1)
    action, n = batch.action, batch.action[..., 0].numel()
    # 6 standard deviations of a share of n draws: under one failure in 10^8 for each comparison
    bound = 6 * 0.5 / n**0.5
    for head, size in enumerate((3, 2, 4)):
        counts = torch.stack([(action[..., head] == k).float().mean() for k in range(size)])
        likely = torch.full((size,), 1 / size)
        if masks and head == 2:
            likely = torch.tensor([1 / 3, 1 / 3, 1 / 3, 0])  # the last one is forbidden
        assert counts.sum() == pytest.approx(1) and (counts - likely).abs().max() < bound
    forbidden = (action[..., 0] == (colour + 1) % 3).float().mean()
    assert forbidden == 0 if masks else abs(forbidden - 1 / 3) < bound
    for head, (low, high) in enumerate([(-1, 1), (-1, 1), (0, 3)], start=3):
        unit = (action[..., head].double().flatten() - low) / (high - low)
        # Dvoretzky, Kiefer & Wolfowitz 1956, with Massart's constant: 2 exp(-2 n d^2) = 10^-8
        ranks = torch.arange(n) / n
        assert (unit.sort().values - ranks).abs().max() < (np.log(2e8) / 2 / n) ** 0.5 + 1 / n
    table = np.corrcoef(action.reshape(n, -1).double().numpy(), rowvar=False)
    assert np.abs(table - np.eye(6)).max() < 6 / n**0.5


def test_a_kernel_reads_choices_within_their_range_and_numbers_as_they_are():
    env = cd.make("archers", 4, device="cpu", archers=1, validate=False, cost=0.0)
    env.reset(seed=0)
    env.set_state(x=[[0.0]] * 4, y=[[0.0]] * 4, colour=[[0], [2], [1], [0]])
    action = torch.zeros(4, 6)
    action[:, 0] = torch.tensor([-7.5, np.inf, 1.9, np.nan])  # the choices 0, 2, 1 and 0
    action[:, 3] = torch.tensor([0.5, np.nan, 1.0, 0.0])  # NaN is read as 0
    reward = env.step(action)[1]
    assert reward.tolist() == [0.75, 1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("head", "value", "words"),
    [
        (0, 3.0, "entry 0 is 3.0, expected a whole number from 0 to 2"),
        (1, 0.5, "entry 1 is 0.5, expected a whole number from 0 to 1"),
        (2, np.nan, "entry 2 is nan, expected a whole number from 0 to 3"),
        (4, 1.5, "entry 4 is 1.5, expected from -1.0 to 1.0"),
        (5, np.nan, "entry 5 is nan, expected from 0.0 to 3.0"),
    ],
)
def test_values_outside_of_the_space_are_refused(head, value, words):
    env = cd.make("archers", 3, device="cpu")
    before, _ = env.reset(seed=0)
    before, action = before.clone(), torch.zeros(3, 2, 6)
    action[2, 1, head] = value
    with pytest.raises(ActionError, match=f"environment 2, agent 1, {words}"):
        env.step(action)
    assert torch.equal(env.step_results[0], before)
    with pytest.raises(ActionError, match=r"expected a torch tensor .* of torch.float32"):
        env.step(action.int())


def test_choices_that_a_mask_forbids_are_refused():
    env = cd.make("archers", 3, device="cpu", masked=True)
    env.reset(seed=0)
    action = torch.zeros(3, 2, 6)
    action[..., 0] = env.step_results[0][..., 2:].argmax(-1)
    env.step(action)
    action[..., 0] = (env.step_results[0][..., 2:].argmax(-1) + 1) % 3
    with pytest.raises(ActionError, match=r"agent 0, entry 0 is .*, which its mask forbids"):
        env.step(action)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Tuple(()), "or a Tuple of these"),
        (spaces.Tuple((DISCRETE, spaces.Tuple((DISCRETE, BOX)))), "or a Tuple of these"),
        (spaces.Tuple((spaces.Discrete(3, start=1), BOX)), "from 0"),
        (spaces.Tuple((DISCRETE, spaces.Box(-1.0, 1.0, (2, 2)))), "of one dimension"),
        (spaces.Tuple((DISCRETE, spaces.Box(0.0, 1.0, (1,), np.float64))), "float32 Box"),
        (spaces.Tuple((spaces.Discrete(2**24), BOX)), "16,777,216"),
    ],
)
def test_spaces_that_kernels_do_not_have_are_refused(space, words):
    if "16" in words:
        assert Group("one", 1, 1, space).choices == 2**24
        space = spaces.Tuple((spaces.Discrete(2**24 + 1), BOX))
    with pytest.raises(SpecError, match=words):
        Group("one", 1, 1, space)


def test_a_group_without_a_box_has_no_numbers_to_read():
    kernel = masked.KERNEL.replace(
        "const int move", "if (env.walker.box(i) > 0.0f) continue;\n    const int move"
    )
    with pytest.raises(CompileError, match="this group has no Box"):
        cd.make(cd.register(masked.PYTHON, kernel), 2, device="cpu")
