"""math::log1p and math::softplus: accuracy against float64, edge cases. test_math.py compares their bits everywhere."""

import numpy as np
import pytest
from test_math import SMALL, between, both_signs, cpu, nan, patterns, quiet, worst_ulp  # noqa: F401 - two are fixtures

inf, COUNT = np.inf, 1_000_000
BELOW_1 = -np.nextafter(np.float32(1), np.float32(0))


def exact_softplus(x):
    """Return log(1 + e^x) in float64, for any x."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "exact", "x", "bound"),
    [
        ("log1p", np.log1p, between(SMALL, 3.4028235e38, COUNT), 1.55),
        ("log1p", np.log1p, both_signs(between(1e-3, 0.5, COUNT)), 1.55),
        ("log1p", np.log1p, -between(SMALL, -BELOW_1, COUNT), 0.95),
        ("softplus", exact_softplus, between(SMALL, 3.4028235e38, COUNT), 2.0),
        ("softplus", exact_softplus, -between(SMALL, 87.3, COUNT), 2.0),
        ("softplus", exact_softplus, both_signs(between(0.1, 30, COUNT)), 2.0),
    ],
)
def test_error(cpu, name, exact, x, bound):  # noqa: F811
    reference = exact(x.astype(np.float64))
    keep = np.abs(reference) >= SMALL
    assert keep.mean() > 0.99
    assert worst_ulp(cpu(name, x)[keep], reference[keep]) <= bound


EDGE_CASES = [
    ("log1p", 0, 0), ("log1p", -0.0, 0), ("log1p", 1e-40, 0), ("log1p", SMALL, SMALL), ("log1p", -SMALL, -SMALL),
    ("log1p", -1, -inf), ("log1p", -1.0000001, nan), ("log1p", -inf, nan), ("log1p", inf, inf), ("log1p", nan, nan),
    ("log1p", BELOW_1, -16.635532), ("log1p", 3.4028235e38, 88.72284), ("log1p", 2.2e38, 88.28669),
    ("log1p", 16777216, 16.635532), ("softplus", 0, 0.6931472), ("softplus", inf, inf), ("softplus", -inf, 0),
    ("softplus", nan, nan), ("softplus", -88, 0), ("softplus", 3e38, 3e38), ("softplus", 20, 20), ("softplus", 17, 17),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x", "result"), EDGE_CASES)
def test_edge_case(cpu, name, x, result):  # noqa: F811
    got = cpu(name, [x])[0]
    assert np.array_equal(got, np.float32(result), equal_nan=True) or got == pytest.approx(result, rel=1.2e-7)


def test_softplus_of_every_float_is_at_least_0_and_at_least_x(cpu):  # noqa: F811
    x = patterns(509)
    x = x[~np.isnan(x)]
    y = cpu("softplus", x)
    assert (y >= np.maximum(x, 0)).all() and np.array_equal(y[x >= 17], x[x >= 17])
