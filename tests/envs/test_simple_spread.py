"""Simple spread: recorded steps of MPE2."""

from pathlib import Path

import numpy as np
import pytest

from cupydrive.envs import simple_spread

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "mpe" / "simple_spread.npz"
recorded = pytest.mark.skipif(not FILE.is_file(), reason=f"no file {FILE}")
FIELDS = "x", "y", "x_dot", "y_dot", "landmark_x", "landmark_y"


def fields(place, velocity, landmark):
    """Return fields (N, A) from arrays (N, A, 2)."""
    both = np.concatenate([place, velocity, landmark], axis=-1)
    return {name: both[..., k] for k, name in enumerate(FIELDS)}


def rows_of(kind, local_ratio):
    """Return recorded arrays by name, and the parameters that they were recorded with."""
    names = ("pos", "vel", "marks", "action", "pos2", "vel2", "reward", "obs", "obs2")
    rows = np.load(FILE)
    given = {"continuous_actions": kind == "cont", "local_ratio": local_ratio}
    return {name: rows[f"{kind}_{local_ratio}_{name}"] for name in names}, given


@recorded
@pytest.mark.quick(6)
@pytest.mark.parametrize("local_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["disc", "cont"])
def test_recorded_steps_agree_with_the_reference(kind, local_ratio):
    """To float64, but for recorded observations and actions, which are float32."""
    of, given = rows_of(kind, local_ratio)
    n, agents = of["reward"].shape
    params, elapsed = simple_spread.Params(**given), np.ones(n, int)
    state, want = np.zeros((2, n), [(name, "f8", agents) for name in FIELDS])
    for rows, ending in ((state, ""), (want, "2")):
        for name, values in fields(of["pos" + ending], of["vel" + ending], of["marks"]).items():
            rows[name] = values
    result = simple_spread.step(params, state, {"agent": of["action"]}, elapsed, None)
    for name in FIELDS:
        np.testing.assert_allclose(result.state[name], want[name], atol=3e-8, rtol=0)
    np.testing.assert_allclose(result.reward["agent"], of["reward"], atol=1e-12, rtol=0)
    assert result.events["collision"].any() and result.metrics["covered"].any()
    for rows, obs in ((state, of["obs"]), (want, of["obs2"])):
        seen = simple_spread.observe(params, rows, elapsed).obs["agent"]
        np.testing.assert_array_equal(seen.astype(np.float32), obs)
