"""What compares the learners' curves: areas and intervals in closed form, and one short lesson of both learners."""

from statistics import NormalDist

import learning_curves as curves
import numpy as np
import pytest


def test_the_area_is_that_of_the_polygon():
    assert curves.area([10], [5.0], 5.0) == 5.0  # a level
    assert curves.area([10, 30], [20.0, 20.0], 0.0) == pytest.approx((100 + 400) / 30)  # a ramp, then a level
    assert curves.area([1, 2, 4], [-3.0, -1.0, -5.0], -3.0) == pytest.approx(-(3 + 2 + 6) / 4)


def test_the_interval_is_that_of_the_ratio():
    rng = np.random.default_rng(1)
    assert curves.ratio([3.0] * 5, [2.0] * 7, rng) == (1.5, 1.5, 1.5)
    assert curves.ratio([-1.0, -3.0], [-4.0] * 4, rng) == (0.5, 0.25, 0.75)  # 1 of 4 resamples has twice the same
    many = rng.normal(100, 10, 400), rng.normal(100, 10, 400)
    middle, low, high = curves.ratio(*many, rng)
    half = NormalDist().inv_cdf(0.95) * 0.1 * np.sqrt(2 / 400)  # of a ratio of means, to first order
    assert (high - low) / 2 == pytest.approx(half, rel=0.1) and low < middle < high
    assert curves.ratio([1.0, 2.0], [-1.0, 1.5], rng)[1:] == (-np.inf, np.inf)  # no number to divide by


def test_what_an_interval_says():
    said = {(0.9, 1.1): "the same", (0.95, 0.99): "the same", (0.85, 0.99): "they differ", (0.8, 1.05): "too few seeds"}
    assert {bounds: curves.verdict(*bounds) for bounds in said} == said


@pytest.mark.full
@pytest.mark.optimised
def test_both_learners_learn_a_short_lesson(monkeypatch):
    """Where the area stays at random play's level a learner does not learn; that of a run that does is several times that."""
    monkeypatch.setitem(curves.LESSONS, "short", ("cartpole", None, 40_960, 64, {}))
    found = curves.compare("short", 2, "cpu")["cart"]
    assert 20 < found["random"] < 25
    for learner in curves.LEARNERS:
        assert min(found[learner]) > 2 * found["random"], learner
    assert 0.5 < found["ratio"][0] < 2
