"""Whether runs, and arrays by name, are equal to the last bit."""

from collections.abc import Mapping

import numpy as np
import torch

from cupydrive.training.run import Run


def same(one: Run, other: Run) -> bool:
    """Return whether two runs have the same future."""
    one, other = one.snapshot(), other.snapshot()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def rows(run: Run) -> list[dict]:
    """Return a run's metrics without the speed."""
    return [
        {key: value for key, value in row.items() if key != "charts/SPS"} for row in run.metrics
    ]


def assert_same_bits(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> None:
    """Compare arrays by name."""
    assert got.keys() == want.keys()
    for key, array in want.items():
        assert np.ascontiguousarray(got[key]).tobytes() == np.ascontiguousarray(array).tobytes(), (
            key
        )
