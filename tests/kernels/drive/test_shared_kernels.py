"""The shared kernels, by an environment that uses all of what they offer: groups, masks, leaving,
scratch, two kinds of metric.

These few checks compile little, so that they can be run on hundreds of altered kernels
(tests/tools/shared_mutation.py).
"""

from dataclasses import replace

import everything
import numpy as np
import pytest
from equal_runs import assert_same_bits

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.bits import fetch, flatten, launch_step, trajectory
from cupydrive.checks.checker import check
from cupydrive.checks.comparison import draw_actions
from cupydrive.codegen.layout import Layout, Observations
from cupydrive.executors.host import HostExecutor
from cupydrive.random import ACTION, RandomStream, below
from cupydrive.simulation.batch import Batch
from cupydrive.simulation.buffers import Buffers


def spec_of(name="everything", time_limit="truncates"):
    """Return an environment by its name, the one that uses everything with either meaning of the
    time limit.
    """
    if name != "everything":
        return envs.get(name)
    return cd.register(everything.PYTHON.replace("TIME_LIMIT", time_limit), everything.KERNEL)


@pytest.mark.full
@pytest.mark.parametrize("time_limit", ["truncates", "terminates"])
def test_everything_passes_the_check(time_limit):
    report = check(spec_of(time_limit=time_limit), agent_steps=6000, device="cpu", progress=False)
    assert report.passed, str(report)


@pytest.mark.full
@pytest.mark.parametrize("name", ["cartpole", "mountain_car_continuous", "pendulum"])
def test_environments_side_by_side_pass_the_check(name):
    """Of one agent, a metric or none, actions of both kinds, observations of 2, 3 and 4 entries."""
    report = check(name, agent_steps=10_000, device="cpu", progress=False)
    assert report.passed, str(report)


@pytest.mark.full
@pytest.mark.parametrize(
    "far", [{}, {"rows_on_chip": False}, {"rows_on_chip": False, "state_on_chip": False}]
)
def test_near_and_far_memory_have_the_same_bits(far):
    spec = spec_of()
    params = spec.make_params(max_episode_steps=5, walkers=7)
    one = trajectory(spec, params, HostExecutor(threads=1), 3, 9, 14)
    layout = Layout(observations=Observations.DIRECT, **far)
    for team in (1, 4, 64):  # of more than 32 members not all copy the first observation at once
        device = HostExecutor(team_threads=team) if team > 1 else HostExecutor(threads=1)
        other = trajectory(spec, params, device, 3, 9, 14, replace(layout, team=team))
        assert_same_bits(other, one)


@pytest.mark.parametrize("name", ["cartpole", "everything"])
def test_without_autoreset_an_environment_keeps_its_last_state(name):
    """Recordings and videos step so: what ends stays, with its state, clock and observation, and
    everything else goes on.
    """
    spec = spec_of(name)
    params = spec.make_params(max_episode_steps=6)
    rng, n = np.random.default_rng(4), 21
    with_reset, without = Batch(spec, n, params), Batch(spec, n, params)
    for batch in (with_reset, without):
        batch.reset(8)
    for _ in range(6):
        actions = draw_actions(with_reset.groups, rng, n)
        before = without.get_state()
        assert before["state"].tobytes() == with_reset.get_state()["state"].tobytes()
        got = launch_step(with_reset, actions)
        arrays = [np.ascontiguousarray(actions[g.name]) for g in without.groups]
        kept_on = without.step([a.ctypes.data for a in arrays], autoreset=False)
        over = got["terminated"] | got["truncated"]
        after = without.get_state()
        if over.any():
            break
    assert over.any()
    assert np.array_equal(after["clock"]["elapsed"][over], before["clock"]["elapsed"][over] + 1)
    assert np.array_equal(after["clock"]["episode"], before["clock"]["episode"])
    for g in without.groups:  # the last observation is that of the last state
        np.testing.assert_array_equal(kept_on.obs[g.name][over], got["final_obs"][g.name][over])
        np.testing.assert_array_equal(kept_on.obs[g.name][~over], got["obs"][g.name][~over])
        np.testing.assert_array_equal(kept_on.reward[g.name], got["reward"][g.name])


@pytest.mark.full
@pytest.mark.parametrize("executor", [{"threads": 1}, {"team_threads": 4}], ids=["fast", "team"])
def test_observing_changes_nothing_but_the_observation(executor):
    spec = spec_of()
    batch = Batch(spec, 9, spec.make_params(walkers=3), HostExecutor(**executor))
    batch.reset(2)
    batch.rollout(5)
    before, (obs, masks) = batch.get_state(), batch.get_observations()
    batch.observe()
    assert_same_bits(flatten_state(batch.get_state()), flatten_state(before))
    after, masks_after = batch.get_observations()
    for name, array in obs.items():
        np.testing.assert_array_equal(after[name], array)
    np.testing.assert_array_equal(masks_after["walker"], masks["walker"])


def flatten_state(kept):
    """Return a batch's state as one level of arrays."""
    return {key: value for key, value in kept.items() if key != "returns"} | kept["returns"]


def test_rollouts_without_final_observations_are_the_same_otherwise():
    for name in ("cartpole", "everything"):
        spec = spec_of(name)
        found = []
        for final_obs in (True, False):
            batch = Batch(spec, 33, spec.make_params(max_episode_steps=7))
            batch.reset(1)
            written = batch.rollout(13, final_obs=final_obs)
            arrays = {
                key: value
                for key, value in vars(written).items()
                if key not in ("final_obs", "steps")
            }
            found.append((arrays, batch.get_state()))
        (with_final, state), (without, same) = found
        assert state["state"].tobytes() == same["state"].tobytes()
        for key in ("obs", "reward", "action"):
            for group, array in with_final[key].items():
                assert array.tobytes() == without[key][group].tobytes(), (key, group)


@pytest.mark.parametrize("executor", [{"threads": 1}, {"team_threads": 4}], ids=["fast", "team"])
def test_a_rollout_goes_on_where_the_last_one_ended(executor):
    """In the middle of episodes, whose returns and counts so far are kept between launches."""
    spec = spec_of()
    params = spec.make_params(max_episode_steps=8, walkers=7)
    once, twice = (Batch(spec, 6, params, HostExecutor(**executor)) for _ in range(2))
    for batch in (once, twice):
        batch.reset(4)
    twice.rollout(5)
    later = flatten(fetch(twice, twice.rollout(6)), twice)
    whole = flatten(fetch(once, once.rollout(11)), once)
    assert_same_bits(later, {key: array[-len(later[key]) :] for key, array in whole.items()})


@pytest.mark.parametrize("name", ["cartpole", "everything"])
def test_steps_with_given_actions_are_those_of_a_rollout(name):
    """One launch of env_step may take several: here the actions that a rollout has drawn, (T, N,
    agents, heads).
    """
    spec, steps = spec_of(name), 11
    params = spec.make_params(max_episode_steps=5)
    drawn, given = (Batch(spec, 37, params) for _ in range(2))
    for batch in (drawn, given):
        batch.reset(6)
    want, got = drawn.rollout(steps), Buffers(given, steps)
    for g in given.groups:
        got.action[g.name][...] = want.action[g.name]
    call = given.row_calls(got)[0]
    call["steps"] = steps
    given.step_row(call)
    got = flatten(fetch(given, got), given)
    want = flatten(fetch(drawn, want), drawn)
    first = {
        key: int(key.split(".")[0] in ("obs", "action_mask")) for key in want
    }  # row 0 is what a rollout begins with
    assert_same_bits(
        *({key: array[first[key] :] for key, array in rows.items()} for rows in (got, want))
    )


@pytest.mark.parametrize(
    "executor",
    [{"threads": 1}, {"team_threads": 2}, {"debug": True}],
    ids=["fast", "team", "debug"],
)
def test_actions_are_drawn_for_groups_agents_and_heads_of_their_own(executor):
    """The second group's agents are numbered after the first one's: nobody draws another one's
    words.
    """
    spec = spec_of()
    batch = Batch(spec, 50, spec.make_params(walkers=11), HostExecutor(**executor), first_env=123)
    batch.reset(77)
    rolled = batch.rollout(9)
    for t in range(9):
        words = RandomStream(77, 123 + np.arange(50), 0, t // 4, ACTION)
        unmasked = np.stack([words.bits(3, head, 11)[..., t % 4] for head in range(2)], axis=-1)
        box = batch.groups[1].action_space
        want = box.low + (box.high - box.low) * (
            (unmasked >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        )
        np.testing.assert_array_equal(rolled.action["driver"][t], want)
        allowed = rolled.action_mask["walker"][t][..., :3]
        chosen = below(words.bits(11)[..., t % 4], allowed.sum(-1))  # which of the allowed ones
        np.testing.assert_array_equal(
            rolled.action["walker"][t][..., 0],
            np.argmax(allowed.cumsum(-1) > chosen[..., None], -1),
        )


def test_flags_of_flatten_cover_every_array():
    """What tests compare by `flatten` is everything that a batch returns and keeps."""
    spec = spec_of()
    batch = Batch(spec, 5, spec.make_params())
    batch.reset(0)
    names = {
        key.split(".")[0]
        for key in flatten(
            launch_step(batch, draw_actions(batch.groups, np.random.default_rng(0), 5)), batch
        )
    }
    kept = {"seed", "state", "clock", "metrics", "returns"}
    shown = {
        name
        for name, value in vars(batch.step_buffers[0]).items()
        if value is not None and name != "steps"
    }
    assert names == kept | shown
