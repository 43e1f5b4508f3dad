"""Laws of VectorEnv on the CPU: the kernel's own memory, autoreset, statistics, seeds, masks,
sizes.
"""

import multiprocessing

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cupydrive import envs
from cupydrive.errors import OrderError, ParameterError
from cupydrive.simulation.make import make

NAMES = envs.names()
SMALL = {"tag_continuous": {"num_taggers": 2, "num_runners": 6, "num_other_agents_observed": 3}}


def made(name, num_envs=7, seed=1, **options):
    env = make(name, num_envs, device="cpu", **{**SMALL.get(name, {}), **options})
    env.reset(seed=seed)
    return env


def leaves(value):
    return list(value.values()) if isinstance(value, dict) else [value]


def at(value, t):
    return {key: v[t] for key, v in value.items()} if isinstance(value, dict) else value[t]


def bits(value):
    return b"".join(v.contiguous().numpy().tobytes() for v in leaves(value))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_the_kernels_memory(name):
    env = made(name)
    obs, reward, terminated, truncated, _ = env.step(at(made(name).rollout(1).action, 0))
    buffers = env.batch.step_buffers[env.batch.now]
    for tensors, arrays in ((obs, buffers.obs), (reward, buffers.reward)):
        for tensor, array in zip(leaves(tensors), arrays.values(), strict=True):
            assert tensor.data_ptr() == array.ctypes.data
    assert terminated.data_ptr() == buffers.terminated.ctypes.data
    assert truncated.data_ptr() == buffers.truncated.ctypes.data
    assert next(iter(env.state.values())).data_ptr() == env.batch.state.ctypes.data


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_observation_before_survives_one_step(name):
    env, actions = made(name), made(name).rollout(2).action
    before = env.step(at(actions, 0))[0]
    kept = bits(before)
    after = env.step(at(actions, 1))[0]
    assert bits(before) == kept != bits(after)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_steps_and_rollouts_mix(name):
    """Rollout, steps, rollout: the observation that a rollout begins with is the one that the last
    step gave.
    """
    env, again = made(name), made(name)
    first = env.rollout(5)
    assert bits(at(first.obs, 0)) == bits(again.reset(seed=1)[0])
    actions = [at(again.rollout(5).action, t) for t in range(5)]
    last = bits(at(first.obs, 5))
    obs = env.step(actions[0])[0]
    assert bits(obs) != last
    kept = bits(obs)
    assert bits(at(env.rollout(3).obs, 0)) == kept


def test_a_trajectory_is_shown_by_its_shapes():
    shown = repr(made("cartpole", 4).rollout(5))
    assert shown.startswith(
        "<Trajectory of 5 steps of 4 environments: obs (6, 4, 4) float32, action (5, 4) int32, "
    )
    assert "episode {return (5, 4) float32, length (5, 4) int32}" in shown and "active" not in shown
    assert "obs {tagger (6, 4, 4, 6) float32, runner (6, 4, 1, 6) float32}" in repr(
        made("tag_grid", 4).rollout(5)
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_seeds_repeat_and_differ(name):
    one, same, other = (bits(made(name, seed=seed).rollout(12).obs) for seed in (3, 3, 4))
    assert one == same != other
    high = bits(made(name, seed=3 + 2**63).rollout(12).obs)
    assert high != one


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_a_mask_resets_only_its_environments(name):
    env = made(name, 9)
    last = env.rollout(5).obs
    mask = torch.zeros(9, dtype=torch.bool)
    mask[[1, 5]] = True
    state = {key: value.clone() for key, value in env.state.items()}
    elapsed = env.elapsed.clone()
    before = [v[-1].clone() for v in leaves(last)]
    obs, _ = env.reset(mask=mask)
    for key, value in env.state.items():
        assert torch.equal(value[~mask], state[key][~mask])
    assert torch.equal(env.elapsed[~mask], elapsed[~mask]) and not env.elapsed[mask].any()
    for now, then in zip(leaves(obs), before, strict=True):
        assert torch.equal(now[~mask], then[~mask]) and not torch.equal(now[mask], then[mask])


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_episode_statistics_are_the_sums_of_the_trajectory(name):
    env = made(name, 40, max_episode_steps=7)
    batch = env.rollout(60)
    over = (batch.terminated | batch.truncated).numpy()
    assert over.any() and not (batch.terminated & batch.truncated).any()
    rewards = [r.numpy().reshape(60, 40, -1) for r in leaves(batch.reward)]
    returns = [r.numpy().reshape(60, 40, -1) for r in leaves(batch.episode["return"])]
    lengths = batch.episode["length"].numpy()
    for e in range(40):
        start = 0
        for t in np.flatnonzero(over[:, e]):
            assert lengths[t, e] == t + 1 - start <= 7
            for reward, total in zip(rewards, returns, strict=True):
                want = np.float32(0)
                for row in reward[start : t + 1, e]:
                    want = want + row
                np.testing.assert_array_equal(total[t, e], want)
            start = t + 1


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_time_limit_truncates_or_ends_as_the_spec_says(name):
    env = made(name, 30, max_episode_steps=3)
    batch = env.rollout(30)
    late = batch.episode["length"] == 3
    over = batch.terminated | batch.truncated
    assert (over & late).any()
    assert batch.truncated.any() == (env.spec.time_limit == "truncates")


def test_environments_are_known_by_their_global_id():
    whole, part = made("cartpole", 200), made("cartpole", 100, first_env=100)
    assert bits(whole.rollout(9).obs[:, 100:]) == bits(part.rollout(9).obs)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "name", [n if n != "rice_n" else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
@settings(max_examples=8, deadline=None)
@given(num_envs=st.sampled_from([1, 31, 32, 33, 1025]), threads=st.integers(1, 5))
def test_numbers_do_not_depend_on_how_many_run_beside(name, num_envs, threads):
    want = made(name, 1025, threads=1).rollout(3).obs
    got = made(name, num_envs, threads=threads).rollout(3).obs
    for a, b in zip(leaves(got), leaves(want), strict=True):
        assert bits(a) == bits(b[:, :num_envs])


@pytest.mark.quick(2)
@pytest.mark.parametrize(("name", "params"), [
    ("tag_grid", {"num_taggers": 1}),
    ("tag_grid", {"num_taggers": 1004}),
    ("tag_grid", {"num_taggers": 1004, "num_other_agents_observed": 32}),
    ("tag_continuous", {"num_taggers": 1, "num_runners": 1, "num_other_agents_observed": 1}),
    ("tag_continuous", {"num_taggers": 5, "num_runners": 1000}),
])  # fmt: skip
def test_two_to_a_thousand_agents_run(name, params):
    env = make(name, 2, device="cpu", **params)
    env.reset(seed=0)
    assert all(torch.isfinite(v).all() for v in leaves(env.rollout(3).obs))


def roll_in_child(queue):
    queue.put(bits(made("cartpole", 3000, threads=2).rollout(20).obs))


# of fork, in a process with threads: that is the point
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_runs_threads_of_its_own():
    want = bits(made("cartpole", 3000, threads=2).rollout(20).obs)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=roll_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == want
    child.join(60)


def test_shapes_spaces_and_closing():
    env = made("cartpole", 5)
    assert (
        env.reset()[0].shape == (5, 4)
        and env.observation_space.shape == (5, 4)
        and env.action_space.shape == (5,)
    )
    tag = made("tag_grid", 5)
    obs, _ = tag.reset()
    assert obs["tagger"].shape == (5, 4, 6) and obs["runner"].shape == (5, 1, 6)
    assert "tag_grid" in repr(tag) and "cpu" in repr(tag)
    tag.close()
    with pytest.raises(OrderError, match="after close"):
        tag.reset()
    with pytest.raises(ParameterError, match="expected one of them"):
        env.reset(seed=1, mask=torch.ones(5, dtype=torch.bool))


SEEING = [
    ("tag_grid", {"num_taggers": 3, "grid_length": 20}),
    ("tag_grid", {"num_taggers": 3, "grid_length": 20, "use_full_observation": True}),
    ("tag_grid", {"num_taggers": 3, "grid_length": 20, "num_other_agents_observed": 3}),
    ("tag_continuous", {"num_taggers": 3, "num_runners": 6, "num_other_agents_observed": 8}),
    ("tag_continuous", {"num_taggers": 3, "num_runners": 6, "use_full_observation": True}),
]


def mean_returns(env, policy, steps):
    """Return the mean episode return of each group's agents over all episodes that end within
    ``steps``.
    """
    obs, _ = env.reset(seed=3)
    ended = {g.name: [] for g in env.groups}
    for _ in range(steps):
        obs, _, terminated, truncated, info = env.step(policy(obs))
        for name, returns in info["episode"]["return"].items():
            ended[name].append(returns[terminated | truncated].flatten().clone())
    return {name: torch.cat(parts).mean().item() for name, parts in ended.items()}


@pytest.mark.quick(2)
@pytest.mark.parametrize(("name", "params"), SEEING)
def test_heuristics_play_better_than_chance(name, params):
    env = make(name, 300, device="cpu", max_episode_steps=50, **params)
    generator = torch.Generator().manual_seed(1)

    def act(g, obs, knows):
        if knows:
            heads = env.spec.heuristic(env.params, obs, g.name)
        else:
            heads = [
                torch.randint(size, (env.num_envs, g.count), generator=generator)
                for size in g.sizes
            ]
        return torch.stack(heads, dim=-1).to(torch.int32).reshape(env._read.shapes[g.name])

    def play(*groups):
        return lambda obs: {g.name: act(g, obs[g.name], g.name in groups) for g in env.groups}

    nobody, taggers, both = (
        mean_returns(env, play(*g), 101) for g in ((), ("tagger",), ("tagger", "runner"))
    )
    assert taggers["tagger"] > 1.3 * nobody["tagger"]
    assert both["runner"] > taggers["runner"]


@pytest.mark.quick(2)
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_kernels_read_actions_where_they_can_read_16_bytes_at_once(first):
    flat = torch.arange(64, dtype=torch.int32) % 5
    action = flat[first : first + 12].view(3, 4)
    assert action.is_contiguous()
    env = make("tag_grid", 3, device="cpu")
    read = env._read({"tagger": action, "runner": flat[:3].view(3, 1)}, validate=False)
    assert torch.equal(read[0], action) and all(tensor.data_ptr() % 16 == 0 for tensor in read)
