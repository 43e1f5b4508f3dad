"""Simple spread: recorded steps of MPE2, collisions, the shared reward, and agents that change
places.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive.envs import simple_spread

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "mpe" / "simple_spread.npz"
recorded = pytest.mark.skipif(not FILE.is_file(), reason=f"no file {FILE}")
FIELDS = "x", "y", "x_dot", "y_dot", "landmark_x", "landmark_y"


def fields(place, velocity, landmark):
    """Return fields (N, A) from arrays (N, A, 2)."""
    both = np.concatenate([place, velocity, landmark], axis=-1)
    return {name: both[..., k] for k, name in enumerate(FIELDS)}


def by_kernel(state, action, **given):
    """Step environments with these fields once; return fields after it, rewards (N, A) and
    observations (N, A, 6 A).
    """
    n, agents = state["x"].shape
    env = cd.make("simple_spread", n, device="cpu", num_agents=agents, **given)
    env.reset(seed=0)
    env.set_state(**state)
    dtype = torch.float32 if given.get("continuous_actions") else torch.int32
    obs, reward, terminated, truncated, _ = env.step(torch.as_tensor(action).to(dtype))
    assert not terminated.any() and not truncated.any()
    after = {name: env.state[name].numpy().copy() for name in FIELDS}
    return after, reward.numpy().copy(), obs.numpy().copy()


def apart(x, y):
    """Return distances (N, A, A) between agents, infinite to oneself."""
    distance = np.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None])
    return distance + np.diag(np.full(x.shape[1], np.inf))


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


@recorded
@pytest.mark.quick(6)
@pytest.mark.parametrize("local_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["disc", "cont"])
def test_recorded_steps_agree_with_the_kernel(kind, local_ratio):
    of, given = rows_of(kind, local_ratio)
    before = fields(of["pos"], of["vel"], of["marks"])
    after, reward, seen = by_kernel(before, of["action"], **given)
    for name, want in fields(of["pos2"], of["vel2"], of["marks"]).items():
        scale = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(after[name], want, atol=1e-6 * scale, rtol=0)
    for got, want in ((reward, of["reward"]), (seen, of["obs2"])):
        scale = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got, want, atol=1e-6 * scale, rtol=0)


def pair(distance, **given):
    """Return what two agents at rest, so far apart along x, have after a step without actions."""
    place = np.zeros((1, 2, 2))
    place[0, :, 0] = -distance / 2, distance / 2
    landmark = np.full((1, 2, 2), [[0.0, 3.0]])
    return by_kernel(fields(place, 0 * place, landmark), np.zeros((1, 2)), **given)


def test_a_contact_is_a_spring_with_soft_ends():
    """Far apart there is no force, deep inside it is stiffness by overlap, and at the edge
    stiffness by margin log 2; agents in one place stay there.
    """
    tau, stiffness, margin = 0.1, 100.0, 1e-3
    for distance, force in (
        (0.4, 0.0),
        (0.3, stiffness * margin * np.log(2)),
        (0.2, stiffness * 0.1),
        (0.05, stiffness * 0.25),
        (0.0, 0.0),
    ):
        after, _, _ = pair(distance)
        np.testing.assert_allclose(after["x_dot"], [[-tau * force, tau * force]], atol=2e-6)
        assert (after["y_dot"] == 0).all()
        np.testing.assert_allclose(np.diff(after["x"]), distance, rtol=1e-6)  # moved a step later


def test_only_agents_that_touch_pay():
    """Two agents overlap, and a third one is away; what they share is the landmarks' distances."""
    place = np.array([[[0.0, 0.0], [0.25, 0.0], [2.0, 0.0]]])
    landmark = place + np.array([0.0, 0.5])
    for local_ratio in (0.0, 0.25, 1.0):
        state = fields(place, 0 * place, landmark)
        _, reward, _ = by_kernel(state, np.zeros((1, 3)), local_ratio=local_ratio)
        shared = -3 * 0.5 * (1 - local_ratio)
        np.testing.assert_allclose(reward[0] - shared, [-local_ratio, -local_ratio, 0], atol=1e-6)


def test_momentum_changes_by_pushes_alone():
    """Contacts push both agents alike, in opposite directions."""
    rng = np.random.default_rng(0)
    state = fields(*rng.normal(0, [[[[0.3]]], [[[0.7]]], [[[1.0]]]], (3, 500, 7, 2)))
    action = rng.random((500, 7, 5)).astype(np.float32)
    after, _, _ = by_kernel(state, action, continuous_actions=True)
    assert (apart(state["x"], state["y"]) < 0.3).mean() > 0.1
    for axis, (back, forth) in {"x": (1, 2), "y": (3, 4)}.items():
        push = 0.1 * 5.0 * (action[..., forth] - action[..., back]).astype(float)
        want = (0.75 * state[f"{axis}_dot"] + push).sum(axis=1)
        got = after[f"{axis}_dot"].astype(float).sum(axis=1)
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.quick(2)
@pytest.mark.parametrize("continuous", [False, True])
def test_agents_that_change_places_change_everything_of_theirs_alone(continuous):
    rng = np.random.default_rng(1)
    n, agents = 300, 4
    state = fields(*rng.normal(0, [[[[0.4]]], [[[0.7]]], [[[1.0]]]], (3, n, agents, 2)))
    action = rng.random((n, agents, 5)) if continuous else rng.integers(0, 5, (n, agents))
    order, marks = rng.permutation(agents), rng.permutation(agents)
    moved = {name: v[:, marks if "mark" in name else order] for name, v in state.items()}
    given = {"continuous_actions": continuous}
    after, reward, seen = by_kernel(state, action, **given)
    after_moved, reward_moved, seen_moved = by_kernel(moved, action[:, order], **given)
    for name in FIELDS:
        want = after[name][:, marks if "mark" in name else order]
        np.testing.assert_allclose(after_moved[name], want, atol=3e-6)
    np.testing.assert_allclose(reward_moved, reward[:, order], atol=4e-6)
    assert len(np.unique(reward.round(4), axis=1).T) > 1  # collisions are not shared
    # Own velocity and place; the same ways to landmarks, and to others, in some order; zeros.
    of_landmarks, of_others = 4 + 2 * agents, 6 * agents - 2 * (agents - 1)
    rows = seen[:, order]
    np.testing.assert_allclose(seen_moved[..., :4], rows[..., :4], atol=3e-6)
    ways = rows[..., 4:of_landmarks].reshape(n, agents, agents, 2)[:, :, marks]
    np.testing.assert_allclose(
        seen_moved[..., 4:of_landmarks], ways.reshape(n, agents, -1), atol=3e-6
    )
    others = [
        np.sort(r[..., of_landmarks:of_others].reshape(n, agents, -1, 2), axis=2)
        for r in (seen_moved, rows)
    ]
    np.testing.assert_allclose(*others, atol=3e-6)
    assert (seen_moved[..., of_others:] == 0).all()


def test_a_critic_sees_the_whole_state_its_own_agent_first():
    place, velocity, landmark = np.random.default_rng(0).uniform(-1, 1, (3, 4, 3, 2))
    env = cd.make("simple_spread", 4, device="cpu")
    env.reset(seed=0)
    _, info = env.set_state(**fields(place, velocity, landmark))
    moving = np.concatenate([place, velocity], axis=-1)
    for i in range(3):
        order = [i, (i + 1) % 3, (i + 2) % 3]
        want = [moving[:, order].reshape(4, -1), landmark.reshape(4, -1)]
        got = info["critic_obs"]["agent"][:, i].numpy()
        np.testing.assert_array_equal(got, np.concatenate(want, axis=1).astype(np.float32))


def test_actions_out_of_range_are_clipped():
    place, action = np.array([[[0.0, 0.0], [1.0, 0.0]]]), np.zeros((1, 2, 5))
    state = fields(place, 0 * place, place)
    for given, x_dot in ((7.0, 0.5), (-3.0, 0.0), (np.nan, 0.0), (0.25, 0.125)):
        action[0, 0, 2] = given
        after, _, _ = by_kernel(state, action, continuous_actions=True, validate=False)
        np.testing.assert_array_equal(after["x_dot"], np.array([[x_dot, 0.0]], np.float32))
        assert (after["y_dot"] == 0).all()


def test_what_is_counted():
    """Of three agents two touch, and two stand on landmarks."""
    place = np.array([[[0.0, 0.0], [0.25, 0.0], [2.0, 0.0]]])
    landmark = np.array([[[0.05, 0.0], [2.0, 0.05], [-1.0, 0.0]]])
    env = cd.make("simple_spread", 1, device="cpu", max_episode_steps=1)
    env.reset(seed=0)
    env.set_state(**fields(place, 0 * place, landmark))
    *_, truncated, info = env.step(torch.zeros(1, 3, dtype=torch.int32))
    assert truncated.all()
    assert info["episode"]["covered"].tolist() == [2]
    assert info["episode"]["collisions"].tolist() == [1]


@pytest.mark.quick(2)
@pytest.mark.parametrize("continuous", [False, True])
def test_the_heuristic_covers_more_than_chance(continuous):
    given = dict(device="cpu", episodes=500, continuous_actions=continuous)
    covered = [
        cd.evaluate("simple_spread", policy, **given).mean("covered")
        for policy in ("heuristic", "random")
    ]
    (ours, error), (chance, _) = covered
    assert ours - error > 10 * chance
