"""RICE-N: the running upstream program's trajectories and published episodes, yardsticks, rules of
trade and negotiation.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive.drawing.canvas import Canvas
from cupydrive.envs import rice_n
from cupydrive.envs.rice_n import SPEC, C, whole_observations
from cupydrive.errors import ActionError, ParameterError

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "real_world" / "rice_n"
upstream = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no data in {FOLDER}")
RUNS = (
    "ref_nego_off_random_seed0",
    "ref_nego_off_all5",
    "ref_extreme_sav0_mit10",
    "ref_extreme_sav10_mit0",
)
# Upstream's names of what is in our state; `gross_output` is what damage and mitigation leave of
# `production`.
NAMES = {
    "temperature": "global_temperature", "carbon": "global_carbon_mass",
    "capital": "capital_all_regions",
    "production": "production_all_regions", "output": "gross_output_all_regions",
    "consumption": "consumption_all_regions",
    "balance": "current_balance_all_regions", "tariffs": "tariffs",
    "utility": "utility_all_regions",
    "mitigation": "mitigation_rate_all_regions", "export_limit": "max_export_limit_all_regions",
    "least_mitigation": "minimum_mitigation_rate_all_regions",
    "promised": "promised_mitigation_rate",
    "requested": "requested_mitigation_rate", "accepted": "proposal_decisions",
}  # fmt: skip


def by_reference(params, actions):
    """Play actions (T, N, C, H) by the NumPy reference; return states (T + 1, N), outcomes and what
    was observed.
    """
    n = actions.shape[1]
    states = [
        SPEC.reference.reset(
            params, SimpleNamespace(bits=lambda count: np.zeros((n, count, 4), np.uint32))
        )
    ]
    outcomes, seen = [], [SPEC.reference.observe(params, states[0], np.zeros(n, int))]
    for t, action in enumerate(actions, 1):
        elapsed = np.full(n, t)
        outcomes.append(
            SPEC.reference.step(params, states[-1], {"region": action.astype(int)}, elapsed, None)
        )
        states.append(np.zeros(n, SPEC.state_dtype(params)))
        for name in states[-1].dtype.names:
            states[-1][name] = outcomes[-1].state[name]
        seen.append(SPEC.reference.observe(params, states[-1], elapsed))
    return np.stack(states), outcomes, seen


def by_kernel(actions, **given):
    """Play actions (T, N, C, H) on the CPU; return rewards (T, N, C), observations (T + 1, N, C,
    D), ends, metrics and masks.

    The last observation is the state's that the episode ended with.
    """
    # published actions ignore masks
    env = cd.make(SPEC, actions.shape[1], device="cpu", validate=False, **given)
    obs, info = env.reset(seed=0)
    mask = info.get("action_mask", {}).get("region")
    rewards, seen, masks, ends = [], [obs.clone()], [None if mask is None else mask.clone()], []
    for action in actions:
        obs, reward, terminated, _, info = env.step(torch.as_tensor(action.astype(np.int32)))
        over = bool(terminated.all())
        rewards.append(reward.clone())
        seen.append((info["final_obs"] if over else obs).clone())
        masks.append(info["action_mask"]["region"].clone() if mask is not None else None)
        ends.append(terminated.clone())
    metrics = {name: info["episode"][name].numpy() for name in SPEC.metrics} if over else {}
    return (
        torch.stack(rewards).numpy(),
        torch.stack(seen).numpy(),
        torch.stack(ends).numpy(),
        metrics,
        masks,
    )


def summed(outcomes):
    """Return summed rewards (N,) and the sums of metrics by name."""
    metrics = {name: sum(o.metrics[name] for o in outcomes) for name in SPEC.metrics}
    return sum(o.reward["region"].sum(axis=1) for o in outcomes), metrics


def constant(steps, heads, **levels):
    """Return actions (steps, 1, C, heads): save, cut, sell at these levels, all else 0."""
    actions = np.zeros((steps, 1, C, heads), int)
    for head, name in enumerate(("save", "cut", "sell")):
        actions[..., head] = levels.get(name, 0)
    return actions


@upstream
@pytest.mark.parametrize("name", RUNS)
def test_trajectories_of_the_upstream_program_are_reproduced(name):
    data, given = np.load(FOLDER / f"{name}.npz"), {"full_rate": "extreme" in name}
    actions = data["actions"][:, None]
    states, outcomes, seen = by_reference(SPEC.make_params(**given), actions)
    rewards, observed, ends, metrics, _ = by_kernel(actions, **given)
    for of, got in (
        ("reference", np.stack([o.reward["region"][0] for o in outcomes])),
        ("kernel", rewards[:, 0]),
    ):
        np.testing.assert_allclose(got, data["rewards"], rtol=0, atol=3e-4, err_msg=of)
    for t, obs in zip(data["obs_steps"], data["obs"], strict=True):
        np.testing.assert_allclose(seen[t].obs["region"][0], obs, rtol=0, atol=1e-4)
        np.testing.assert_allclose(observed[t, 0], obs, rtol=0, atol=1e-4)
    assert [bool(o.terminated[0]) for o in outcomes] == list(data["dones"]) == list(ends[:, 0])
    for ours, theirs in list(NAMES.items())[:12]:
        got, want = states[ours][:, 0], data[f"state__{theirs}"]
        np.testing.assert_allclose(
            got,
            want,
            rtol=1e-6,
            atol=5e-4 if ours in ("balance", "consumption", "utility") else 1e-6,
        )
    for of_all, found in zip(summed(outcomes)[1].items(), metrics.items(), strict=True):
        assert of_all[0] == found[0] and found[1][0] == pytest.approx(
            of_all[1][0], rel=2e-6, abs=2e-6
        )


@upstream
@pytest.mark.parametrize(
    ("save", "cut", "warming", "output", "indices"),
    [(0, 10, 1.2506777, 606.57275, (1, 0)), (10, 0, 7.0067387, 9673.5322, (0, 1))],
)
def test_extreme_policies_are_the_ends_of_the_published_indices(
    save, cut, warming, output, indices
):
    actions = constant(20, 57, save=save, cut=cut)
    _, outcomes, _ = by_reference(SPEC.make_params(full_rate=True), actions)
    *_, metrics, _ = by_kernel(actions, full_rate=True)
    for found in (
        {name: value[0] for name, value in summed(outcomes)[1].items()},
        {n: v[0] for n, v in metrics.items()},
    ):
        assert found["temperature_rise"] == pytest.approx(warming, rel=2e-6)
        assert found["output"] == pytest.approx(output, rel=2e-6)
        assert (found["climate_index"], found["economic_index"]) == pytest.approx(indices, abs=1e-6)


@pytest.mark.full
@upstream
@pytest.mark.parametrize(
    ("name", "total", "rise", "climate", "economic"),
    [("off", 152.561, 4.1, 0.505, 0.471), ("on", 154.177, 1.844, 0.897, 0.402)],
)
def test_published_episodes_follow_by_the_older_debt_formula(name, total, rise, climate, economic):
    data, given = (
        np.load(FOLDER / f"published_example2_nego_{name}.npz"),
        {"negotiation": name == "on"},
    )
    actions = data["actions_decoded"][:, None]
    states, outcomes, _ = by_reference(SPEC.make_params(debt_formula="product", **given), actions)
    for ours, theirs in list(NAMES.items())[: 15 if name == "on" else 12]:
        # Upstream adds shipments in float32 before it takes what is left at home: the root of next
        # to nothing is something.
        near = (
            dict(atol=1e-5, rtol=1e-6)
            if ours in ("consumption", "utility", "balance")
            else dict(atol=1e-7, rtol=1e-6)
        )
        np.testing.assert_allclose(
            states[ours][:, 0],
            data[f"state__{theirs}"],
            err_msg=ours,
            **(near | {"atol": 7e-5} if ours == "balance" else near),
        )
    rewards, _, _, metrics, masks = by_kernel(actions, debt_formula="product", **given)
    for sum_of_all, of in ((summed(outcomes)[0][0], summed(outcomes)[1]), (rewards.sum(), metrics)):
        assert sum_of_all == pytest.approx(total, abs=5.1e-4)
        assert of["temperature_rise"][0] == pytest.approx(rise, abs=5.1e-4)
        assert of["climate_index"][0] == pytest.approx(climate, abs=5.1e-4)
        assert of["economic_index"][0] == pytest.approx(economic, abs=5.1e-4)
    ratio, *_ = by_kernel(actions, **given)
    assert abs(ratio.sum() - total) > 0.04  # the formula matters here
    if name == "on":
        least = data["state__minimum_mitigation_rate_all_regions"]
        for t, mask in enumerate(masks[:-1]):  # after the last step an episode begins anew
            want = np.ones((C, 1164), bool)
            want[:, 10:20] = np.arange(10) >= np.round(10 * least[t])[:, None]
            assert np.array_equal(mask[0].reshape(C, -1).numpy() != 0, want)


@upstream
def test_yardsticks():
    for given, heads, steps, save, cut, want in (
        ({}, 57, 20, 3, 3, 166.380),
        ({"negotiation": True}, 138, 60, 2, 9, 158.607),
    ):
        rewards, *_ = by_kernel(constant(steps, heads, save=save, cut=cut), **given)
        assert rewards.sum() == pytest.approx(want, abs=1e-3)
        found = cd.evaluate(
            SPEC, {"region": cd.HeuristicPolicy()}, episodes=2, device="cpu", **given
        )
        assert C * found.mean("region")[0] == pytest.approx(want, abs=1e-3)
    assert found.mean("temperature_rise")[0] < 2.0 and found.mean("economic_index")[0] > 0.40


@upstream
def test_the_random_policy_gets_what_upstreams_gets():
    data = np.load(FOLDER / "baseline_random_policy_nego_off_200ep.npz")
    actions = np.random.default_rng(123).integers(0, 10, (8, 20, C, 57)).swapaxes(0, 1)
    rewards, _, _, metrics, _ = by_kernel(actions)
    np.testing.assert_allclose(rewards.sum(axis=0), data["per_region"][:8], rtol=0, atol=2e-3)
    np.testing.assert_allclose(metrics["temperature_rise"], data["temp_rise"][:8], rtol=2e-6)
    np.testing.assert_allclose(metrics["output"], data["gross_output_sum"][:8], rtol=2e-6)


@upstream
@pytest.mark.slow
def test_the_random_policys_mean_is_upstreams():
    found = cd.evaluate(SPEC, {"region": cd.RandomPolicy()}, episodes=1000, device="cpu")
    returns = C * found.returns["region"]
    assert returns.mean().item() == pytest.approx(
        107.17, abs=0.7
    ) and returns.std().item() == pytest.approx(2.98, abs=0.4)


def test_what_is_promised_and_accepted_binds_and_masks():
    made_up = SPEC.with_made_up_tables()
    env = cd.make(made_up, 1, device="cpu", negotiation=True, validate=False)
    env.reset(seed=0)
    offer, answer, act = torch.zeros(3, 1, C, 138, dtype=torch.int32)
    offer[0, 4, rice_n.PROPOSE + 2 * 7] = 6  # region 4 promises 7 to cut 0.6
    offer[0, 4, rice_n.PROPOSE + 2 * 7 + 1] = 8  # and asks 7 to cut 0.8
    offer[0, 9, rice_n.PROPOSE + 2 * 9] = 9  # a promise to oneself
    answer[0, 7, rice_n.ANSWER + 4] = answer[0, 9, rice_n.ANSWER + 9] = 1
    env.step(offer)
    *_, info = env.step(answer)
    least = env.state["least_mitigation"][0]
    assert (
        torch.allclose(least[[4, 7, 9]], torch.tensor([0.6, 0.8, 0.0]))
        and least.count_nonzero() == 2
    )
    mask = info["action_mask"]["region"].reshape(C, -1)[:, 10:20] != 0
    assert mask[4].tolist() == [k >= 6 for k in range(10)] and mask[7].tolist() == [
        k >= 8 for k in range(10)
    ]
    act[0, 4, rice_n.MITIGATE] = 2  # against the mask, which nobody enforces
    env.step(act)
    assert env.state["mitigation"][0, 4] == pytest.approx(0.2) and env.state["least_mitigation"][
        0, 4
    ] == pytest.approx(0.6)


def test_goods_are_neither_made_nor_lost_in_trade():
    made_up, rng = SPEC.with_made_up_tables(), np.random.default_rng(0)
    env = cd.make(made_up, 16, device="cpu", years=1.0, balance_interest=0.0)
    env.reset(seed=0)
    for _ in range(5):
        env.step(torch.as_tensor(rng.integers(0, 10, (16, C, 57)), dtype=torch.int32))
        assert (
            env.state["balance"].sum(dim=1).abs() < 1e-4 * env.state["balance"].abs().sum(dim=1)
        ).all()


LITTLE_AT_HOME = {  # Region 7 of copy 69 keeps 0.18 of its output, and its utility is 1.04e-6 off.
    "debt_formula": "product", "num_periods": 3, "full_rate": True, "alpha": 1.3988254070281982,
    "gamma": 0.4122890830039978,
    "utility_offset": 0.5588433742523193, "home_weight": 0.7311827540397644,
    "foreign_weight": 0.33945614099502563,
}  # fmt: skip
POWER_NEAR_1 = {"alpha": 1.1, "utility_offset": 0.5, "gamma": 0.25}


@pytest.mark.full
@pytest.mark.parametrize(
    ("given", "seed"),
    [(LITTLE_AT_HOME, 5), (POWER_NEAR_1, 6)],
    ids=["little at home", "power near 1"],
)
def test_utility_keeps_its_digits(given, seed):
    """After one step from the start it is the reference's to 1e-6, but for few rows where what is
    left at home is undecided.
    """
    made_up, rng = SPEC.with_made_up_tables(), np.random.default_rng(seed)
    env = cd.make(made_up, 300, device="cpu", **given)
    env.reset(seed=0)
    action = rng.integers(0, env.groups[0].sizes[0], (300, C, 57))
    states = made_up.reference.reset(
        env.params, SimpleNamespace(bits=lambda count: np.zeros((300, count, 4), np.uint32))
    )
    want = made_up.reference.step(env.params, states, {"region": action}, np.ones(300, int), None)
    _, reward, *_ = env.step(torch.as_tensor(action, dtype=torch.int32))
    differs = np.abs(reward.numpy() - want.reward["region"]) > 1e-6
    undecided = want.margin["reward.region"] < 1e-6
    assert not (differs & ~undecided).any() and differs.mean() < 0.005


@pytest.mark.full
@pytest.mark.parametrize("negotiation", [False, True])
def test_any_part_of_an_episode_is_drawn(negotiation):
    made_up, canvas = SPEC.with_made_up_tables(), Canvas(320, 180)
    params = made_up.make_params(negotiation=negotiation)
    states = made_up.reference.sample_states(params, np.random.default_rng(0), 8)
    for elapsed in (0, 1, 7):
        for shown in (states[: elapsed + 1], states[elapsed:][:1]):
            canvas.clear()
            made_up.display.draw(canvas, params, shown, elapsed)
            assert len(np.unique(canvas.frame().reshape(-1, 3), axis=0)) > 50


def both(negotiation, num_envs=3, **given):
    """Return two environments with made-up tables, by default and with ``world_once``."""
    made_up = SPEC.with_made_up_tables()
    given |= {"negotiation": negotiation, "device": "cpu"}
    return [cd.make(made_up, num_envs, **given, world_once=once) for once in (False, True)]


def in_numpy(obs):
    return {name: part.numpy() for name, part in obs.items()}


@pytest.mark.full
@pytest.mark.parametrize("negotiation", [False, True])
def test_what_all_regions_share_is_observed_once_with_equal_numbers(negotiation):
    """From the same seed and actions, to the end of an episode and past it, what is put together is
    what the default has.
    """
    rng, length = np.random.default_rng(0), 6 if negotiation else 4
    # ignores masks
    plain, once = both(negotiation, num_periods=length // (3 if negotiation else 1), validate=False)
    heads, ended = plain.groups[0].sizes, False
    rows, (seen, info) = plain.reset(seed=3)[0], once.reset(seed=3)
    assert set(info.get("action_mask", {})) == ({"region"} if negotiation else set())
    for _ in range(length + 2):
        assert torch.equal(whole_observations(seen), rows)
        assert np.array_equal(whole_observations(in_numpy(seen)), rows.numpy())
        action = torch.as_tensor(rng.integers(0, heads, (3, C, len(heads))), dtype=torch.int32)
        rows, *want, about = plain.step(action)
        seen, reward, *got, info = once.step(
            {"region": action, "world": torch.zeros(3, 1, dtype=torch.int32)}
        )
        assert torch.equal(reward["region"], want[0]) and not reward["world"].any()
        assert all(map(torch.equal, got, want[1:]))
        assert all(
            torch.equal(once.state[f.name], plain.state[f.name]) for f in SPEC.state(once.params)
        )
        if negotiation:
            assert torch.equal(info["action_mask"]["region"], about["action_mask"]["region"])
        if want[1].any():
            assert torch.equal(whole_observations(info["final_obs"]), about["final_obs"])
            ended = True
    assert ended


@pytest.mark.full
@pytest.mark.parametrize("negotiation", [False, True])
@pytest.mark.parametrize("obs_dtype", ["float32", "bfloat16"])
def test_random_rollouts_take_the_same_actions_with_and_without_the_option(negotiation, obs_dtype):
    for env in (found := both(negotiation, 2, num_periods=3, obs_dtype=obs_dtype)):
        env.reset(seed=1)
    plain, once = (env.rollout(12) for env in found)
    assert torch.equal(once.action["region"], plain.action) and not once.action["world"].any()
    assert torch.equal(once.reward["region"], plain.reward)
    whole = whole_observations(once.obs)
    assert torch.equal(whole, plain.obs) and whole.dtype == plain.obs.dtype


@pytest.mark.full
def test_what_is_no_observation_of_world_once_is_refused():
    env, once = both(False)
    rows, seen = env.reset(seed=0)[0], once.reset(seed=0)[0]
    for wrong in (
        rows,
        {},
        {"region": seen["region"]},
        {**seen, "world": seen["world"].numpy()},
        {**seen, "world": seen["world"][..., :-1]},
    ):
        with pytest.raises(
            ParameterError, match=r"obs = .* expected observations of world_once=True: region"
        ):
            whole_observations(wrong)
    with pytest.raises(ActionError, match="world"):
        once.step({"region": torch.zeros(3, C, 57, dtype=torch.int32)})


@pytest.mark.full
@pytest.mark.parametrize("negotiation", [False, True])
def test_the_heuristic_plays_alike_with_what_is_shared_observed_once(negotiation):
    made_up, given = (
        SPEC.with_made_up_tables(),
        {"negotiation": negotiation, "device": "cpu", "num_periods": 3},
    )
    plain = cd.evaluate(made_up, {"region": cd.HeuristicPolicy()}, episodes=2, **given)
    for of_world in (cd.HeuristicPolicy(), cd.RandomPolicy()):
        players = {"region": cd.HeuristicPolicy(), "world": of_world}
        once = cd.evaluate(made_up, players, episodes=2, world_once=True, **given)
        assert (
            torch.equal(once.returns["region"], plain.returns["region"])
            and not once.returns["world"].any()
        )
        assert once.mean("temperature_rise") == plain.mean("temperature_rise")


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_an_only_choice_leaves_an_actor_as_it_was(backend):
    """Its probability is 1 whatever the weights are: entropy, divergence and gradient are 0, and
    only the critic learns.
    """
    settings = cd.PPO(num_steps=4, num_minibatches=2, update_epochs=1, hidden=(8,))
    made_up, given = (
        SPEC.with_made_up_tables(),
        {"device": "cpu", "progress": False, "num_envs": 2, "num_periods": 4},
    )
    once, twice = (
        cd.train(made_up, settings, steps=steps, seed=0, backend=backend, world_once=True, **given)
        for steps in (8, 16)
    )
    for name in ("entropy", "old_approx_kl", "approx_kl", "clipfrac"):
        assert [row[f"losses/world/{name}"] for row in twice.metrics] == [0, 0]
    for group, learns in (("world", False), ("region", True)):
        before, after = (run.policy(group).state_dict() for run in (once, twice))
        for name, weights in before.items():
            assert torch.equal(after[name], weights) != (learns or "critic" in name), name
