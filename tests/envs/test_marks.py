"""What lessons ask for: no less than the environments' marks, and no more than value iteration says is possible."""

import learning
import numpy as np
import pytest
from value_iteration import Grid, grid, iterate, play, starts

from cupydrive.bench.solving import marks


def test_lessons_ask_for_no_less_than_the_environments_do():
    assert learning.MARKS.keys() == marks().keys()
    for name, mark in marks().items():
        assert learning.LESSONS[f"{name} ppo"].mark == learning.MARKS[name] >= mark, name


def test_interpolation_is_exact_where_values_are_bilinear():
    cells = Grid((-1.0, 0.0), (1.0, 3.0), (5, 7), (False, False), np.arange(1), np.arange(1))
    rng = np.random.default_rng(1)

    def value(x, y):
        return 2.0 - x + 3.0 * y + 0.5 * x * y

    x, y = rng.uniform(-1, 1, 100), rng.uniform(0, 3, 100)
    np.testing.assert_allclose(cells.at(value(*cells.states()), *cells.place([x, y])), value(x, y), atol=1e-12)


@pytest.mark.full
def test_a_coarser_grid_earns_a_little_less_than_the_pendulums_optimum():
    """A bound below, whose error falls with the square of the cell: three times as wide, 2 to 3 less."""
    cells = grid("pendulum", 0.3)
    earned = play("pendulum", cells, iterate("pendulum", cells), starts("pendulum", 1000)).mean()
    assert learning.PENDULUM_OPTIMUM - 3 < earned < learning.PENDULUM_OPTIMUM


@pytest.mark.full
def test_the_marks_of_the_car_can_be_reached():
    cells = grid("mountain_car", 0.5)
    assert play("mountain_car", cells, iterate("mountain_car", cells), starts("mountain_car", 1000)).mean() > -98.0
    assert learning.MARKS["mountain_car"] < -98.0
