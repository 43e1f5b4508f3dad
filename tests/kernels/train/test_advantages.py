"""Generalised advantage estimation against its definition, a recursion in NumPy, and cases worked
out by hand.
"""

import numpy as np
import pytest
import torch
from pausing import one_step_errors, row_weights, stream
from walled import walled

from cupydrive.algorithms.on_policy import HELD
from cupydrive.codegen.source import assemble_file
from cupydrive.executors import executor
from cupydrive.executors.interop import make_call

pytestmark = pytest.mark.optimised


def sizes(n, agents, steps, slots=0):
    """Return the ints of struct Advantages: observations of two entries, one action, three
    choices, one entry for a critic.
    """
    ints = dict(num_envs=n, agents=agents, steps=steps, slots=slots)
    return ints | dict(obs_dim=2, heads=1, choices=3, critic_obs_dim=1)


def estimate(
    reward,
    value,
    terminated,
    truncated,
    final_value=None,
    active=None,
    left=None,
    gamma=0.9,
    lam=0.8,
    scale=1.0,
    value_center=None,
    value_scale=None,
):
    """Run the kernels on NumPy arrays (T, N, C) and (T, N); return advantages and returns."""
    program = executor("cpu").build(assemble_file("train/advantages"))
    steps, n, agents = reward.shape
    slots = 0 if final_value is None else len(final_value)
    t = {k: None if v is None else walled(torch.from_numpy(np.ascontiguousarray(v))) for k,
    v in dict(
        gamma=np.float32([gamma]), gae_lambda=np.float32([lam]), reward_scale=np.float32([scale]),
        reward=reward.astype(np.float32), value_center=value_center, value_scale=value_scale,
        value=value.astype(np.float32), final_value=None if final_value is None else final_value.astype(np.float32),
        terminated=terminated, truncated=truncated, active=active, left=left,
    ).items()}  # fmt: skip
    t["advantage"], t["returns"] = torch.empty(reward.shape), torch.empty(reward.shape)
    t["weight"] = None if active is None else torch.empty(reward.shape, dtype=torch.uint8)
    t |= dict.fromkeys(("obs", "action", "mask", "log_prob", "critic_obs", *HELD))
    t["held"] = None if active is None else torch.zeros(reward.shape[1:], dtype=torch.uint8)
    kernel = "advantages" if active is None else "advantages_with_pauses"
    program.launch(kernel, make_call(sizes(n, agents, steps, slots), t), n * agents, 0)
    return t["advantage"].numpy(), t["returns"].numpy()


def reference(reward, value, terminated, truncated, final, active, left, gamma, lam):
    """Return advantages as sums over the future: what each step adds until the first cut, in
    float64.
    """
    steps, n, agents = reward.shape
    out = np.zeros(reward.shape)
    for t in range(steps):
        for e in range(n):
            for i in range(agents):
                if not active[t, e, i]:
                    continue
                total, weight, gone = 0.0, 1.0, False
                for k in range(t, steps):
                    if gone:  # rewards after it are those of the step in which it left
                        total += weight * reward[k, e, i]
                        if terminated[k, e] or truncated[k, e]:
                            break
                        continue
                    ends = terminated[k, e] or left[k, e, i]
                    after = (
                        0.0 if ends else final[k, e, i] if truncated[k, e] else value[k + 1, e, i]
                    )
                    total += weight * (reward[k, e, i] + gamma * after - value[k, e, i])
                    if terminated[k, e] or truncated[k, e]:
                        break
                    gone = left[k, e, i]
                    weight *= 1.0 if gone else gamma * lam
                out[t, e, i] = total
    return out


@pytest.mark.quick(2)
@pytest.mark.parametrize("leaves", [False, True])
def test_advantages_are_discounted_sums_of_errors(leaves):
    rng = np.random.default_rng(3)
    steps, n, agents = 23, 40, 3
    reward, value = rng.normal(size=(steps, n, agents)), rng.normal(size=(steps + 1, n, agents))
    terminated = rng.random((steps, n)) < 0.1
    truncated = (rng.random((steps, n)) < 0.1) & ~terminated
    slots = int(truncated.sum(0).max())
    final, dense = np.zeros((slots, n, agents)), rng.normal(size=(steps, n, agents))
    for e in range(n):
        for slot, t in enumerate(np.flatnonzero(truncated[:, e])):
            final[slot, e] = dense[t, e]
    active, left = np.ones((steps, n, agents), bool), np.zeros((steps, n, agents), bool)
    if leaves:
        here = np.ones((n, agents), bool)
        for t in range(steps):
            active[t] = here
            left[t] = here & (rng.random((n, agents)) < 0.15)
            here = np.where((terminated | truncated)[t][:, None], True, here & ~left[t])
    options = dict(active=active, left=left) if leaves else {}
    got, returns = estimate(reward, value, terminated, truncated, final, **options)
    want = reference(reward, value, terminated, truncated, dense, active, left, 0.9, 0.8)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(returns[active], (want + value[:-1])[active], rtol=1e-5, atol=2e-5)
    assert truncated.any() and terminated.any() and (left.any() == leaves)


def by_hand(**changed):
    """Three steps of one agent, rewards 1, values 10, 20, 30 and 40, gamma 0.5, lambda 0.5."""
    arrays = dict(
        reward=np.ones((3, 1, 1)), value=np.array([10.0, 20, 30, 40]).reshape(4, 1, 1),
        terminated=np.zeros((3, 1), bool), truncated=np.zeros((3, 1), bool),
    )  # fmt: skip
    return estimate(**{**arrays, **changed}, gamma=0.5, lam=0.5)[0].ravel().tolist()


def flag(*values):
    return np.array(values, bool).reshape(3, -1)


def test_cases_worked_out_by_hand():
    # errors: 1 + 10 - 10 = 1; 1 + 15 - 20 = -4; 1 + 20 - 30 = -9
    assert by_hand() == [1 + 0.25 * (-4 + 0.25 * -9), -4 + 0.25 * -9, -9]
    # the second step ends the task: its error is 1 - 20, and the first sees no further
    assert by_hand(terminated=flag(0, 1, 0)) == [1 + 0.25 * -19, -19, -9]
    # it is cut by the limit: the final observation is worth 6
    assert by_hand(truncated=flag(0, 1, 0), final_value=np.full((1, 1, 1), 6.0)) == [
        1 + 0.25 * -16,
        -16,
        -9,
    ]
    # the agent leaves in it, and has the reward of the third step, too
    gone = dict(active=flag(1, 1, 0)[..., None], left=flag(0, 1, 0)[..., None])
    assert by_hand(**gone) == [1 + 0.25 * -18, -18, 0]


def test_what_is_cut_beyond_the_last_slot_is_worth_nothing():
    """Final observations of one slot: the first truncation has it, of the second nothing is
    known.
    """
    assert by_hand(truncated=flag(1, 1, 0), final_value=np.full((1, 1, 1), 6.0)) == [
        1 + 3 - 10,
        1 - 20,
        -9,
    ]
    at, truncated = walled(torch.full((1, 1), -1)), torch.ones(3, 1, dtype=torch.bool)
    call = make_call(
        {"num_envs": 1, "steps": 3, "slots": 1}, {"truncated": truncated, "truncated_at": at}
    )
    executor("cpu").build(assemble_file("train/advantages")).launch("truncations", call, 1, 0)
    assert at.item() == 0


@pytest.mark.quick(2)
@pytest.mark.parametrize("steps", [1, 3, 7, 20])
def test_rewards_of_a_pause_belong_to_the_step_before_it_in_any_rollout(steps):
    """With lambda 0 an advantage ends at the next active step: rollouts of any length learn the
    same of every step.
    """
    rng, n, agents, gamma = np.random.default_rng(5), 6, 3, 0.9
    total = 420
    game = stream(rng, total, n, agents)
    want = one_step_errors(game, gamma)
    shape, f = (n, agents), torch.float32
    held = [torch.zeros(shape, dtype=torch.uint8), *(torch.zeros(shape) for _ in range(3))]
    held = dict(
        zip(
            HELD,
            [
                *held,
                torch.zeros((*shape, 2)),
                *(torch.zeros((*shape, 1)), None, torch.zeros(shape)),
            ],
            strict=True,
        )
    )
    found, times = np.full(want.shape, np.nan), np.zeros(want.shape, int)
    weights = row_weights(game, steps)
    program = executor("cpu").build(assemble_file("train/advantages"))
    # The observation is which step it is, so that what is learnt says it.
    number = torch.arange(total, dtype=f)[:, None, None].expand(total, *shape)
    for begin in range(0, total - steps, steps):
        part = {k: torch.from_numpy(v[begin : begin + steps].copy()) for k, v in game.items()}
        value = torch.from_numpy(game["value"][begin : begin + steps + 1].copy())
        own = number[begin : begin + steps]
        obs, action = torch.stack([own, -own], -1).contiguous(), own[..., None].clone()
        log_prob, out = (
            own + 0.5,
            {k: torch.empty(part["reward"].shape) for k in ("advantage", "returns")},
        )
        weight = torch.empty(part["reward"].shape, dtype=torch.uint8)
        one, slots = torch.ones(1), max(1, int(part["truncated"].sum(0).max()))
        final = torch.zeros(slots, n, agents)
        for e in range(n):
            for slot, t in enumerate(part["truncated"][:, e].nonzero().flatten().tolist()):
                final[slot, e] = part["final"][t, e]
        pointers = dict(
            gamma=one * gamma,
            gae_lambda=one * 0,
            reward_scale=one,
            reward=part["reward"],
            value_center=None,
            value_scale=None,
            value=value,
        )
        pointers |= dict(
            final_value=final, terminated=part["terminated"], truncated=part["truncated"]
        )
        pointers |= dict(active=part["active"], left=part["left"], **out, weight=weight)
        critic_obs = 2 * own
        pointers |= dict(obs=obs, action=action, mask=None, log_prob=log_prob)
        pointers |= dict(critic_obs=critic_obs, **held)
        program.launch(
            "advantages_with_pauses",
            make_call(sizes(n, agents, steps, slots), pointers),
            n * agents,
            0,
        )
        again = (weight[0] == 1) & ~part["active"][0]  # a held step in the row of a pause
        want_weight = torch.from_numpy(weights[begin : begin + steps])
        assert torch.equal(weight[1:], want_weight[1:]) and torch.equal(
            weight[0][~again], want_weight[0][~again]
        )
        for t, e, i in (weight == 1).nonzero().tolist():
            step = int(obs[t, e, i, 0])
            assert (action[t, e, i, 0], obs[t, e, i, 1], log_prob[t, e, i]) == (
                step,
                -step,
                step + 0.5,
            )
            assert critic_obs[t, e, i] == 2 * step
            assert value[t, e, i] == game["value"][step, e, i] and (step == begin + t or t == 0)
            found[step, e, i] = out["advantage"][t, e, i]
            times[step, e, i] += 1
            np.testing.assert_allclose(
                out["returns"][t, e, i], found[step, e, i] + value[t, e, i], rtol=1e-6
            )
    # seen to their end by then
    known = np.isfinite(want) & (np.arange(total) < total - 100)[:, None, None]
    np.testing.assert_allclose(found[known], want[known], rtol=1e-5, atol=1e-5)
    assert not times[~game["active"]].any()
    assert times[known].min() == 1
    # again: one held step of each agent in each rollout
    assert (times[known] - 1).sum() <= total // steps * n * agents


def test_advantages_look_beyond_a_pause():
    """The agent pauses in the second of four steps: its first step has that reward, too, and one
    gamma to the third.
    """
    arrays = dict(
        reward=np.array([1.0, 10, 1, 1]).reshape(4, 1, 1),
        value=np.array([10.0, 99, 30, 40, 50]).reshape(5, 1, 1),
        terminated=np.zeros((4, 1), bool), truncated=np.zeros((4, 1), bool),
        active=np.array([1, 0, 1, 1], bool).reshape(4, 1, 1), left=np.zeros((4, 1, 1), bool),
    )  # fmt: skip
    last = 1 + 0.5 * 50 - 40
    third = 1 + 0.5 * 40 - 30 + 0.25 * last
    first = 11 + 0.5 * 30 - 10 + 0.25 * third
    assert estimate(**arrays, gamma=0.5, lam=0.5)[0].ravel().tolist() == [first, 0, third, last]


@pytest.mark.quick(2)
@pytest.mark.parametrize("hidden_state", [False, True])
def test_critics_learn_the_value_of_a_pause(hidden_state):
    """Steps 0 and 1 are of one rollout, the agent pauses from step 1 on; the next two rollouts
    begin in the pause.

    The value there is that of the rewards to come and of the next active step. A policy with hidden
    state learns no step again.
    """
    value, program = (
        np.array([10.0, 99, 30]).reshape(3, 1, 1),
        executor("cpu").build(assemble_file("train/advantages")),
    )
    memory = [
        torch.zeros(1, 1, dtype=torch.uint8),
        *(torch.zeros(1, 1) for _ in range(3)),
        torch.zeros(1, 1, 2),
    ]
    memory = dict(zip(HELD, [*memory, torch.zeros(1, 1, 1), None, None], strict=True))
    memory |= dict.fromkeys(HELD[1:]) if hidden_state else {}
    found = []
    for active, reward in (((1, 0), (1, 2)), ((0, 0), (4, 8)), ((0, 1), (16, 32))):
        one, out = torch.ones(1), {k: torch.zeros(2, 1, 1) for k in ("advantage", "returns")}
        flags = {k: torch.zeros(2, 1, dtype=torch.bool) for k in ("terminated", "truncated")}
        rows = (
            torch.tensor(reward, dtype=torch.float32).view(2, 1, 1),
            torch.tensor(value, dtype=torch.float32),
        )
        pointers = dict(
            gamma=0.5 * one,
            gae_lambda=0 * one,
            reward_scale=one,
            reward=rows[0],
            value_center=None,
            value_scale=None,
            value=rows[1],
            final_value=None,
        )
        pointers |= flags | dict(
            active=torch.tensor(active, dtype=torch.bool).view(2, 1, 1), left=None, **out
        )
        pointers |= {
            "weight": torch.zeros(2, 1, 1, dtype=torch.uint8),
            "obs": torch.zeros(2, 1, 1, 2),
        }
        pointers |= {
            "action": torch.zeros(2, 1, 1, 1),
            "mask": None,
            "log_prob": torch.zeros(2, 1, 1),
            "critic_obs": None,
            **memory,
        }
        program.launch("advantages_with_pauses", make_call(sizes(1, 1, 2), pointers), 1, 0)
        found.append((pointers["weight"].flatten().tolist(), out["returns"].flatten().tolist()))
    again = 2 if hidden_state else 1
    assert found[0] == ([1, 2], [3 + 0.5 * 30, 2 + 30])
    assert found[1] == ([again, 2], [12 + 30 if hidden_state else 15 + 0.5 * 30, 8 + 30])
    assert found[2] == ([again, 1], [16 + 99 if hidden_state else 31 + 0.5 * 99, 32 + 0.5 * 30])


def test_rewards_are_scaled():
    plain = estimate(
        np.full((3, 2, 1), 3.0), np.zeros((4, 2, 1)), *(np.zeros((3, 2), bool) for _ in "ab")
    )
    scaled = estimate(
        np.full((3, 2, 1), 6.0),
        np.zeros((4, 2, 1)),
        *(np.zeros((3, 2), bool) for _ in "ab"),
        scale=0.5,
    )
    np.testing.assert_array_equal(plain, scaled)


@pytest.mark.parametrize("pauses", [False, True])
def test_normalised_values_give_the_same_advantages(pauses):
    """Of integers, less 3 and divided by 4: no rounding."""
    rng, shape = np.random.default_rng(0), (9, 5, 2)
    reward, value, final = (rng.integers(-8, 9, (n, 5, 2)) for n in (9, 10, 4))
    terminated, truncated = (rng.random((9, 5)) < p for p in (0.1, 0.2))
    about = dict(active=rng.random(shape) < 0.7, left=np.zeros(shape, bool)) if pauses else {}
    ends = terminated, truncated & ~terminated
    plain = estimate(reward, value, *ends, final, gamma=0.5, lam=0.5, **about)
    units = dict(value_center=np.float32([3]), value_scale=np.float32([0.25]))
    values = [(each - 3) / 4 for each in (value, final)]
    found = estimate(reward, values[0], *ends, values[1], gamma=0.5, lam=0.5, **units, **about)
    np.testing.assert_array_equal(plain, found)


def test_truncations_are_found_in_order():
    rng = np.random.default_rng(0)
    truncated = rng.random((30, 50)) < 0.08
    slots = int(truncated.sum(0).max())
    at = torch.full((slots, 50), -1, dtype=torch.int64)
    tensors = {"truncated": torch.from_numpy(truncated), "truncated_at": at}
    call = make_call({"num_envs": 50, "steps": 30, "slots": slots}, tensors)
    executor("cpu").build(assemble_file("train/advantages")).launch("truncations", call, 50, 0)
    for e in range(50):
        found = np.flatnonzero(truncated[:, e])
        assert at[: len(found), e].tolist() == found.tolist() and not at[len(found) :, e].any()
