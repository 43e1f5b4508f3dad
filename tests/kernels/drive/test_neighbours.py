"""The search of neighbours finds what a sort of all distances finds, bit for bit: few points, a
list, cells.
"""

from dataclasses import replace

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.checks.bits import put
from cupydrive.codegen.layout import Layout, Observations
from cupydrive.codegen.source import kernel_text
from cupydrive.executors import executor
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

pytestmark = pytest.mark.optimised

LENGTH = 20.0
# of differences, in observations
SCALE = np.float32(1) / (np.float32(1.41421356) * np.float32(LENGTH))
# Agents, neighbours.
SIZES = [
    (3, 2),
    (8, 7),
    (9, 3),
    (33, 1),
    (33, 10),
    (105, 10),
    (257, 5),
    (300, 1),
    (400, 32),
    (1005, 10),
]
# One or two of each kind (few points, a list, cells) in `make test`, and one in slower builds;
# `make test-all` has all.
SAMPLE = {
    "cpu": [(3, 2), (8, 7), (33, 10), (105, 10), (257, 5), (1005, 10)],
    "team": [(8, 7), (33, 10), (300, 1)],
    "debug": [(3, 2), (9, 3), (300, 1)],
}
N = 10
HERE = (1.0, 0.97, 0.5, 0.05)  # of all agents, in one environment after the other
EXECUTORS = {
    "cpu": lambda: HostExecutor(threads=1),
    "team": lambda: HostExecutor(team_threads=4),
    "debug": lambda: HostExecutor(debug=True),
}


def places(rng, n, agents):
    """Return (N, A) x and y, one kind of each environment, of which some are hard to find in cells.

    Uniform, on lattices (many equal distances), in heaps, all in one place, out of the square, ever
    fewer towards one edge, and a few on an edge, nearer to all the others than to each other.
    """
    at = rng.uniform(0, LENGTH, (2, n, agents))
    at[:, 1] = np.round(at[:, 1] / 4) * 4
    at[:, 2] = rng.choice([0.0, LENGTH, 10.0], (2, agents))
    at[:, 3] = 7.0
    at[:, 4] = rng.normal(10, 30, (2, agents))
    at[:, 5] = np.round(at[:, 5])
    at[1, 6] = 0.0  # along one edge
    at[:, 7] = rng.normal(3, 1e-3, (2, agents))
    at[1, 8] = LENGTH * (at[1, 8] / LENGTH) ** 3
    at[1, 9] = np.where(np.arange(agents) % 40 == 1, LENGTH, 0.9 * at[1, 9])
    return at.astype(np.float32)


def expected(x, y, active, k):
    """Return (A, k) ids in the order of (squared distance in float32, id), and whether there is
    one.
    """
    agents = len(x)
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    squared = dx * dx + dy * dy
    squared[:, ~active] = np.inf
    squared[~active] = np.inf
    np.fill_diagonal(squared, np.inf)
    order = np.lexsort((np.broadcast_to(np.arange(agents), squared.shape), squared), axis=1)[:, :k]
    return order, np.isfinite(np.take_along_axis(squared, order, axis=1))


@pytest.mark.parametrize(("agents", "k", "device"), [
    pytest.param(*size, device, marks=() if size in SAMPLE[device] else pytest.mark.slow)
    for device in EXECUTORS for size in SIZES
])  # fmt: skip
def test_the_order_is_that_of_a_sort(agents, k, device):
    compare(EXECUTORS[device](), agents, k)


@pytest.mark.quick(5)
@pytest.mark.gpu
@pytest.mark.parametrize("team", [1, 4, 32, 64, 256])
@pytest.mark.parametrize(("agents", "k"), SIZES)
def test_the_order_is_that_of_a_sort_on_a_gpu(agents, k, team):
    way = Observations.SHARED if agents < 100 else Observations.STAGED
    compare(executor("cuda"), agents, k, Layout(team, max(1, 32 // team), observations=way))


def observed(device, agents, layout=None, spec=None, **params):
    """Return the observations of N environments whose agents stand at ``places``, some of them out,
    and the states.
    """
    spec = spec or envs.get("tag_continuous")
    params = spec.make_params(num_taggers=1, num_runners=agents - 1, grid_length=LENGTH, **params)
    rng = np.random.default_rng(agents)
    batch = Batch(spec, N, params, device, layout=layout)
    batch.reset(0)
    states = np.zeros(N, spec.state_dtype(params))
    states["x"], states["y"] = places(rng, N, agents)
    states["active"] = rng.random((N, agents)) < np.resize(HERE, N)[:, None]
    put(batch, state=states)
    # any will do
    hints = rng.choice(np.float32([0.0, 1.0, 5.0, 100.0, -3.0, np.nan, np.inf, 1e30]), (N, agents))
    device.put(batch.cache, hints.view(np.uint8).reshape(batch.cache.shape))
    for group in batch.groups:  # an entry that nobody writes shows
        obs = batch.current_obs[group.name]
        device.put(obs, np.full(obs.shape, np.nan, np.float32))
    batch.observe()
    return np.concatenate(
        [device.get(batch.current_obs[g.name]) for g in batch.groups], axis=1
    ), states


def compare(device, agents, k, layout=None):
    got, states = observed(device, agents, layout, num_other_agents_observed=k)
    for e in range(N):
        x, y, active = states["x"][e], states["y"][e], states["active"][e] != 0
        order, there = expected(x, y, active, k)
        for values, column in ((x, 5), (y, 5 + k)):
            want = np.where(there, (values[order] - values[:, None]) * SCALE, np.float32(0))
            np.testing.assert_array_equal(got[e][:, column : column + k], want)
        np.testing.assert_array_equal(got[e][:, 5 + 6 * k : 5 + 7 * k], there)
        np.testing.assert_array_equal(got[e][:, 5 + 5 * k : 5 + 6 * k], there & (order == 0))


@pytest.mark.full
@pytest.mark.parametrize(("agents", "k"), [(3, 2), (9, 3), (300, 1)])
def test_who_is_out_has_no_neighbours(agents, k):
    """An environment may ask who they are: each is the one that is out itself."""
    asked = "if (seen.out) row.put_zeros();\n      else see("
    text = kernel_text(envs.get("tag_continuous"))[1]
    assert asked in text
    spec = replace(envs.get("tag_continuous"), kernel=text.replace(asked, "see("))
    got, states = observed(HostExecutor(threads=1), agents, spec=spec, num_other_agents_observed=k)
    out = states["active"] == 0
    assert out.any() and (got[out][:, 5 : 5 + 7 * k] == 0).all()


@pytest.mark.full
@pytest.mark.parametrize(("agents", "k", "device"), [
    (3, 2, "cpu"), (3, 2, "team"), (9, 3, "cpu"), (9, 3, "debug"), (300, 1, "cpu"),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        (3, 2, "debug"), (9, 3, "team"), (300, 1, "team"), (300, 1, "debug")
    )),
])  # fmt: skip
def test_who_is_out_has_a_row_of_zeros(agents, k, device):
    # Straight into the buffer, where what nobody writes stays as it was.
    layout = Layout(4 if device == "team" else 1, observations=Observations.DIRECT)
    got, states = observed(EXECUTORS[device](), agents, layout, num_other_agents_observed=k)
    out = states["active"] == 0
    assert out.any() and not got[out].any() and np.isfinite(got).all()


@pytest.mark.full
@pytest.mark.parametrize("device", EXECUTORS)
def test_everybody_is_seen_by_id(device):
    """A team of four has one member more than there are agents."""
    got, states = observed(EXECUTORS[device](), 7, use_full_observation=True)
    order = np.array([[j for j in range(7) if j != i] for i in range(7)])
    for e in range(N):
        sees = states["active"][e][:, None] != 0
        for name, column in (("x", 5), ("y", 11)):
            values = states[name][e]
            want = np.where(sees, (values[order] - values[:, None]) * SCALE, np.float32(0))
            np.testing.assert_array_equal(got[e][:, column : column + 6], want)
        np.testing.assert_array_equal(got[e][:, 5 + 5 * 6 : 5 + 6 * 6], order == 0)
        np.testing.assert_array_equal(got[e][:, 5 + 6 * 6 : 5 + 7 * 6], states["active"][e][order])
        np.testing.assert_array_equal(got[e][:, 0] != 0, sees[:, 0] & (states["x"][e] != 0))


@pytest.mark.full
def test_who_has_no_row_writes_nothing():
    """In a team of four, which writes seven rows, one member has none; whatever it puts, no row
    shows it.
    """
    asked = "if (seen.out) row.put_zeros();"
    text = kernel_text(envs.get("tag_continuous"))[1]
    assert asked in text
    kernel = text.replace(asked, "if (seen.mine && seen.out) row.put_zeros();")
    spec = replace(envs.get("tag_continuous"), kernel=kernel)
    found = [
        observed(EXECUTORS["team"](), 7, spec=s, num_other_agents_observed=3)[0]
        for s in (spec, None)
    ]
    np.testing.assert_array_equal(*found)
