"""Catalysis: upstream's trajectories, the published settings' exact optimum, rules at the slab's
edge, tables, drawing.
"""

import heapq
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive.drawing.canvas import Canvas
from cupydrive.envs.catalysis import PATH, SETTINGS, SPEC, optimum
from cupydrive.inputs.data import files

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "real_world" / "rlchemists"
UPSTREAM = {
    name: f"single_agent_{'two_atom_diffusion' if s.atoms == 2 else 'one_atom_' + name}"
    for name, s in SETTINGS.items()
}
# Best return, steps, barrier of that way and lowest barrier in eV, as published data give them to
# these digits.
OPTIMUM = {
    "diffusion2d": (8.9484, 20, 1.639, 1.639),
    "diffusion2d_relaxed": (9.3983, 14, 1.258, 1.231),
    "diffusion3d": (28.9518, 19, 1.632, 1.632),
    "surface": (28.2119, 20, 0.530, 0.530),
    "surface_double_grids": (46.4021, 40, 0.398, 0.398),
    "gas1": (28.9848, 8, 0, 0),
    "gas2": (27.9762, 13, 0, 0),
    "gas2_double_grids": (25.8783, 26, 0, 0),
    "two_atom_diffusion": (28.0259, 8, 0, 0),
}


upstream = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no data in {FOLDER}")


def made(setting, num_envs=1, **params):
    """Return environments that have begun."""
    env = cd.make(SPEC, num_envs, device="cpu", setting=setting, **params)
    env.reset(seed=0)
    return env


def episodes(found):
    """Yield the rows of each episode that upstream played: the first is the reset."""
    for number in np.unique(found["episode"]):
        yield {
            key: found[key][found["episode"] == number]
            for key in ("states", "obs", "rewards", "dones", "actions")
        }


PLAYED = sorted(name for name, file in UPSTREAM.items() if (FOLDER / f"ref_{file}.npz").is_file())


@upstream
@pytest.mark.parametrize("setting", PLAYED)
def test_upstreams_trajectories_by_the_kernel(setting):
    with np.load(FOLDER / f"ref_{UPSTREAM[setting]}.npz") as found:
        played = list(episodes(found))
    env = made(setting)
    for rows in played:
        obs, _ = env.reset()
        for t, action in enumerate(rows["actions"]):
            reward, over = 0.0, False
            if t:
                obs, reward, terminated, truncated, info = env.step(
                    torch.tensor(action[None].astype(np.int32))
                )
                assert not truncated.item()
                over = terminated.item()
                obs = info["final_obs"] if over else obs
            np.testing.assert_allclose(obs[0], rows["obs"][t], rtol=1e-6)
            np.testing.assert_allclose(float(reward), rows["rewards"][t], rtol=1e-6)
            assert over == rows["dones"][t]
            if not over:
                assert (env.state["position"][0].numpy() == rows["states"][t]).all()
    assert len(played) == 4 and sum(len(rows["rewards"]) for rows in played) > 300


@upstream
@pytest.mark.parametrize("setting", PLAYED)
def test_upstreams_trajectories_by_the_reference(setting):
    p = SPEC.make_params(setting=setting)
    with np.load(FOLDER / f"ref_{UPSTREAM[setting]}.npz") as found:
        played = list(episodes(found))
    for rows in played:
        states = np.zeros(1, SPEC.state_dtype(p))
        states["position"] = SETTINGS[setting].start
        for t, moved in enumerate(rows["actions"]):
            if t:
                outcome = SPEC.reference.step(
                    p, states, {"atoms": moved[None, None].astype(np.int32)}, np.array([t]), None
                )
                states["position"] = outcome.state["position"]
                np.testing.assert_allclose(
                    outcome.reward["atoms"][0, 0], rows["rewards"][t], rtol=1e-6
                )
                assert outcome.terminated[0] == rows["dones"][t]
            assert (states["position"][0] == rows["states"][t]).all()
            np.testing.assert_allclose(
                SPEC.reference.observe(p, states, t).obs["atoms"][0, 0], rows["obs"][t], rtol=1e-6
            )


@upstream
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_optimum_is_upstreams_and_the_kernel_earns_it(setting):
    p = SPEC.make_params(setting=setting)
    best, about = (
        SPEC.yardsticks(p),
        json.loads((FOLDER / "optimum_and_baseline.json").read_text())[UPSTREAM[setting]],
    )
    total, steps, barrier, lowest = OPTIMUM[setting]
    found = best["optimum"]
    assert (round(found["return"], 4), found["length"], round(found["barrier_eV"], 3)) == (
        total,
        steps,
        barrier,
    )
    assert round(best["lowest"]["barrier_eV"], 3) == lowest
    assert found["return"] == pytest.approx(about["optimal_undiscounted_return"], rel=1e-7)
    assert found["barrier_eV"] == pytest.approx(
        max(0.0, about["barrier_of_that_path_eV"]), abs=1e-6
    )
    assert best["lowest"]["barrier_eV"] == pytest.approx(about["minimax_barrier_eV"], abs=1e-6)

    way, env = optimum_of(p), made(setting)
    rewards = []
    for action, place in zip(way.actions, way.path, strict=False):
        assert env.state["position"][0].tolist() == place.tolist()
        action = action if SETTINGS[setting].atoms == 1 else action[None]
        _, reward, terminated, _, info = env.step(torch.tensor(action.astype(np.int32)))
        rewards.append(reward.item())
    assert terminated.item() and info["episode"]["successes"].item() == 1
    assert sum(rewards) == pytest.approx(about["optimal_undiscounted_return"], rel=1e-6)
    assert info["episode"]["barrier_eV"].item() == pytest.approx(
        max(0.0, about["barrier_of_that_path_eV"]), abs=2e-6
    )


def optimum_of(p):
    """Return the ``Optimum`` of parameters on upstream's table."""
    return optimum(p, SimpleNamespace(**SPEC.table_arrays(p)))


@pytest.mark.full
@pytest.mark.parametrize(
    ("setting", "min_reward"),
    [
        ("diffusion2d", -1.0),
        ("diffusion2d", -0.2),
        ("diffusion2d_relaxed", -2.0),
        ("gas1", -0.1),
        ("surface", -1.5),
    ],
)
def test_the_optimum_is_what_dijkstra_finds_by_stepping_on_made_up_tables(setting, min_reward):
    spec = SPEC.with_made_up_tables(seed=3)
    p, s = spec.make_params(setting=setting, min_reward=min_reward), SETTINGS[setting]
    heights = range(s.grid[2]) if s.flat else range(*s.slab)
    places = np.stack(
        np.meshgrid(range(s.grid[0]), range(s.grid[1]), heights, indexing="ij"), -1
    ).reshape(-1, 3)
    number = {tuple(place): k for k, place in enumerate(places.tolist())}
    states = np.zeros(len(places), spec.state_dtype(p))
    states["position"] = places
    ways = []
    for move in range(6):
        found = spec.reference.step(
            p, states, {"atoms": np.full((len(places), 1), move)}, np.ones(len(places)), None
        )
        to = [number[tuple(place)] for place in found.state["position"].tolist()]
        cost = s.terminal_reward * found.terminated - found.reward["atoms"][:, 0]
        ways.append(list(zip(to, cost.tolist(), strict=True)))
    begin, end = number[s.start], number[s.target]
    open_, least = [(0.0, begin)], {}
    while end not in least:
        so_far, here = heapq.heappop(open_)
        if here not in least:
            least[here] = so_far
            for move in range(6):
                to, cost = ways[move][here]
                heapq.heappush(open_, (so_far + cost, to))
    found = spec.yardsticks(p)
    assert found["optimum"]["return"] == pytest.approx(s.terminal_reward - least[end], rel=1e-12)
    assert found["lowest"]["barrier_eV"] <= found["optimum"]["barrier_eV"]


@upstream
def test_the_fine_grid_lies_midway_between_the_points_of_the_coarse_one():
    tables = files("catalysis")
    fine, coarse = (np.load(tables[f"en_array{kind}.npy"]) for kind in ("_double_grids", ""))
    for axis in range(3):
        coarse = np.moveaxis(coarse, axis, 0)
        refined = np.empty((2 * len(coarse) - 1, *coarse.shape[1:]))
        refined[::2], refined[1::2] = coarse, (coarse[:-1] + coarse[1:]) / 2
        coarse = np.moveaxis(refined, 0, axis)
    assert np.abs(coarse - fine).max() <= 9e-14


@upstream
def test_energies_of_the_table_are_differences_rounded_once():
    s = SETTINGS["surface"]
    energy = np.load(files("catalysis")[s.file])
    table = SPEC.table_arrays(SPEC.make_params(setting="surface"))["energy"]
    assert table.dtype == np.float32
    assert (table == np.float32(energy - s.reference)).all()
    assert (table != np.float32(energy) - np.float32(s.reference)).any()


@upstream
def test_an_atom_that_leaves_the_slab_stays_outside_until_it_comes_back_by_the_other_side():
    env = made("diffusion2d")
    rewards, heights = [], []
    for _ in range(100):
        reward = env.step(torch.tensor([4], dtype=torch.int32))[1]
        rewards.append(reward.item())
        heights.append(env.state["position"][0, 2].item())
    assert heights == [*range(61, 100), *range(0, 61)]
    outside = [not 58 <= z < 68 for z in heights]
    assert (
        all(reward == -1 for reward, out in zip(rewards, outside, strict=True) if out)
        and sum(outside) == 90
    )
    assert rewards[-3:] == pytest.approx(
        [float(r) for r in rewards_at("diffusion2d", [(5, 9, z) for z in (58, 59, 60)])]
    )


def rewards_at(setting, places):
    """Return what entering these places earns, by upstream's table."""
    s = SETTINGS[setting]
    energy = np.load(files("catalysis")[s.file])
    return [np.clip((s.reference - energy[x, y, z - s.slab[0]]) / 20, -1, 0) for x, y, z in places]


@upstream
@pytest.mark.parametrize(("least", "cost"), [(-1.0, 1.0), (-0.3, 0.3), (-7.0, 1.0)])
def test_a_move_out_of_the_slab_is_cancelled_and_costs_one_unless_nothing_does(least, cost):
    env = made("surface", min_reward=least)
    for _ in range(2):
        env.step(torch.tensor([5], dtype=torch.int32))
    before = env.state["position"].clone()
    assert before[0].tolist() == [3, 6, 28]
    _, reward, *_ = env.step(torch.tensor([5], dtype=torch.int32))
    assert reward.item() == pytest.approx(-cost) and torch.equal(env.state["position"], before)


@upstream
def test_unphysical_energies_are_free_and_as_many_as_said():
    env = made("two_atom_diffusion")
    energy = SPEC.table_arrays(env.params)["energy"]
    assert (
        (energy < -1000).sum() <= 850
        and (energy < 0).sum() == 944
        and energy.min() == pytest.approx(-1.9e11, rel=0.01)
    )
    deep = np.unravel_index(energy.argmin(), energy.shape)
    position = np.add(deep, (0, 0, 9, 0, 0, 9))
    env.state["position"][0] = torch.tensor(position)
    env.state["position"][0, 0] = int(position[0] - 1) % 8
    reward = env.step(torch.tensor([[0, 0]], dtype=torch.int32))[1]
    assert env.state["position"][0].tolist() == position.tolist() and reward.item() == 0


@upstream
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_heuristic_reaches_the_target_by_the_fewest_steps(setting):
    s = SETTINGS[setting]
    found = cd.evaluate(SPEC, episodes=3, device="cpu", setting=setting)
    gaps = [
        min((b - a) % n, (a - b) % n) for a, b, n in zip(s.start, s.target, s.sizes, strict=True)
    ]
    assert (found.length == sum(gaps)).all() and (found.metrics["successes"] == 1).all()
    best = found.yardsticks["optimum"]
    assert found.mean("atoms")[0] <= best["return"] + 1e-6
    assert f"optimum {best['return']:.6g}" in str(found)
    p = SPEC.make_params(setting=setting)
    states = SPEC.reference.sample_states(p, np.random.default_rng(0), 500)
    obs = SPEC.reference.observe(p, states, 0).obs["atoms"]
    for one, other in zip(
        SPEC.heuristic(p, obs, "atoms"), SPEC.heuristic(p, torch.tensor(obs), "atoms"), strict=True
    ):
        assert one.shape == (500, 1) and (one == other.numpy()).all()


@pytest.mark.full
@upstream
def test_a_random_policy_does_about_as_badly_as_upstreams():
    about = json.loads((FOLDER / "optimum_and_baseline.json").read_text())
    for setting in ("diffusion2d", "diffusion3d", "gas1", "two_atom_diffusion"):
        found = cd.evaluate(
            SPEC, {"atoms": cd.RandomPolicy()}, episodes=300, device="cpu", setting=setting
        )
        assert found.mean("atoms")[0] == pytest.approx(
            about[UPSTREAM[setting]]["random_policy_return_mean_30ep"], rel=0.25
        )


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_picture_shows_where_the_atoms_are_and_how_high_they_came(setting):
    spec, s = SPEC.with_made_up_tables(), SETTINGS[setting]
    p = spec.make_params(setting=setting)
    states = np.zeros(3, spec.state_dtype(p))
    states["position"] = s.start
    states["position"][1:, 0] += 1
    states["position"][2, 1] += 1
    canvas = Canvas(*spec.display.size, header=0)
    spec.display.draw(canvas, p, states, 2)
    orange = (canvas.frame() == tuple(bytes.fromhex(PATH[1:]))).all(-1)
    x = 80 + 340 * (states["position"][2, 0] + 0.5) / s.grid[0]
    y = 880 - 340 * s.grid[1] / s.grid[0] * (1 - (states["position"][2, 1] + 0.5) / s.grid[1])
    column, row = (round(float(k)) for k in canvas.to_pixel((x, y)))
    assert orange[row - 5 : row + 5, column - 5 : column + 5].all()
    if s.flat:  # outside of the slab, where there is no energy
        states["position"][2, 2] = 5
        spec.display.draw(canvas, p, states, 2)
