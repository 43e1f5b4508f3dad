"""What lessons ask for: no less than the environments' marks, and no more than value iteration says
is possible.
"""

from dataclasses import replace

import learning
import numpy as np
import pytest
from solving import marks, solve
from value_iteration import Grid, grid, iterate, play, starts

from cupydrive import envs
from cupydrive.algorithms import PPO
from cupydrive.errors import ParameterError, SpecError
from cupydrive.experiments.train import train
from cupydrive.training.begin import make_run


def test_lessons_ask_for_no_less_than_the_environments_do():
    assert learning.MARKS.keys() == marks().keys()
    for name, mark in marks().items():
        assert learning.LESSONS[f"{name} ppo"].mark == learning.MARKS[name] >= mark, name


def test_a_mark_is_a_number_of_the_only_group():
    assert marks()["cartpole"] == envs.get("cartpole").reward_threshold == 475.0
    assert all(len(envs.get(name).groups(envs.get(name).make_params())) == 1 for name in marks())
    with pytest.raises(ParameterError, match="tag_grid says no mark; pass mark="):
        solve("tag_grid", device="cpu")
    with pytest.raises(SpecError, match="reward_threshold = 'high'"):
        replace(envs.get("cartpole"), reward_threshold="high")


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", pytest.param("torch", marks=pytest.mark.slow)])
def test_solving_ends_at_the_mark_and_trains_what_train_does(backend):
    """The mark is what the policy of plain training gets after so many env-steps: it is reached
    there, or before.
    """
    options = {"seed": 3, "device": "cpu", "backend": backend, "num_envs": 16}
    settings, means = PPO(num_steps=16, learning_rate=1e-2), []
    run = make_run("cartpole", settings, **options)

    def evaluate(step, row):
        means.append(run.evaluate(1000).mean("cart")[0])

    train(run, steps=2560, progress=False, callback=evaluate)
    mark = max(means[1::2])
    found = solve("cartpole", mark, settings, steps=2560, **options)
    assert found.mean == mark and found.env_steps == 512 * (1 + means[1::2].index(mark))
    assert 0 < found.first_iteration < found.training < found.seconds
    never = solve("cartpole", 501.0, settings, steps=1024, **options)
    assert never.seconds is never.training is None and never.env_steps == 1024


def test_interpolation_is_exact_where_values_are_bilinear():
    cells = Grid((-1.0, 0.0), (1.0, 3.0), (5, 7), (False, False), np.arange(1), np.arange(1))
    rng = np.random.default_rng(1)

    def value(x, y):
        return 2.0 - x + 3.0 * y + 0.5 * x * y

    x, y = rng.uniform(-1, 1, 100), rng.uniform(0, 3, 100)
    np.testing.assert_allclose(
        cells.at(value(*cells.states()), *cells.place([x, y])), value(x, y), atol=1e-12
    )


@pytest.mark.full
def test_a_coarser_grid_earns_a_little_less_than_the_pendulums_optimum():
    """A bound below, whose error falls with the square of the cell: three times as wide, 2 to 3
    less.
    """
    cells = grid("pendulum", 0.3)
    earned = play("pendulum", cells, iterate("pendulum", cells), starts("pendulum", 1000)).mean()
    assert learning.PENDULUM_OPTIMUM - 3 < earned < learning.PENDULUM_OPTIMUM


@pytest.mark.full
def test_the_marks_of_the_car_can_be_reached():
    cells = grid("mountain_car", 0.5)
    assert (
        play(
            "mountain_car", cells, iterate("mountain_car", cells), starts("mountain_car", 1000)
        ).mean()
        > -98.0
    )
    assert learning.MARKS["mountain_car"] < -98.0
