"""Snapshots and states from outside: what follows is what would have followed, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from equal_runs import assert_same_bits

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.bits import fetch, flatten
from cupydrive.errors import ParameterError

SMALL = {
    "tag_grid": {"num_taggers": 3, "max_episode_steps": 7},
    "tag_continuous": {"num_taggers": 2, "num_runners": 6, "num_other_agents_observed": 3},
}


def make(name, device="cpu", num_envs=7, **more):
    return cd.make(name, num_envs, device=device, first_env=5, **{**SMALL.get(name, {}), **more})


def future(env, steps=11):
    """Return the bits of some random steps."""
    return flatten(fetch(env.batch, env.batch.rollout(steps)), env.batch)


@pytest.mark.quick(3)
@pytest.mark.parametrize("how", ["steps", "rollout", "reset"])
@pytest.mark.parametrize("name", envs.names())
def test_a_restored_moment_has_the_same_future(name, how, tmp_path):
    env = make(name, validate=False)  # any action: a mask may forbid it
    env.reset(seed=3)
    if how != "reset":
        env.rollout(6)  # its last row is the current observation
    if how == "steps":
        spaces = env.action_space
        several = isinstance(spaces, dict)
        env.step(
            {k: torch.as_tensor(v.sample()) for k, v in spaces.items()}
            if several
            else spaces.sample()
        )
    snapshot = env.snapshot()
    snapshot.save(tmp_path / "moment.npz")
    want = future(env)
    other = make(name)
    for taker in (env, other):
        obs, info = taker.restore(cd.Snapshot.load(tmp_path / "moment.npz"))
        seen = {g.name: obs[g.name] if isinstance(obs, dict) else obs for g in env.groups}
        for g in env.groups:
            assert seen[g.name].numpy().tobytes() == snapshot.obs[g.name].tobytes()
            if g.mask:
                assert (
                    info["action_mask"][g.name].numpy().tobytes()
                    == snapshot.action_mask[g.name].tobytes()
                )
        assert taker.seed == 3
        assert_same_bits(future(taker), want)


@pytest.mark.quick(5)
@pytest.mark.gpu
@pytest.mark.parametrize("name", envs.names())
def test_a_moment_goes_on_alike_on_cpu_and_gpu(name):
    cpu, cuda = make(name), make(name, "cuda")
    for source, taker in ((cpu, cuda), (cuda, cpu)):
        source.reset(seed=8)
        source.rollout(5)
        snapshot = source.snapshot()
        want = future(source)
        taker.restore(snapshot)
        assert_same_bits(future(taker), want)


def test_a_moment_that_does_not_fit_changes_nothing():
    env = make("cartpole")
    env.reset(seed=0)
    before = env.snapshot()
    for other, name in (
        (make("cartpole", num_envs=6), "num_envs"),
        (make("cartpole", gravity=9.0), "gravity"),
        (make("acrobot"), "env"),
    ):
        other.reset(seed=0)
        with pytest.raises(ParameterError, match=f"has {name} = "):
            env.restore(other.snapshot())
    for arrays in (
        {"state": before.state[:6]},
        {"obs": {"cart": before.obs["cart"][:, :, :3]}},
        {"returns": {}},
    ):
        with pytest.raises(ParameterError, match=f"the snapshot has {next(iter(arrays))}.* = "):
            env.restore(replace(before, **arrays))
    late = env.snapshot()
    late.clock["elapsed"][1] = 500
    with pytest.raises(
        ParameterError, match="steps 0 to 500 of their episodes, expected steps 0 to 499"
    ):
        env.restore(late)
    assert_same_bits(env.snapshot().arrays(), before.arrays())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", envs.names())
def test_a_state_from_outside_is_observed_as_the_reference_does(name, device):
    env = make(name, device)
    env.reset(seed=1)
    states = env.spec.reference.sample_states(env.params, np.random.default_rng(0), env.num_envs)
    obs, info = env.set_state(elapsed=3, **{key: states[key] for key in states.dtype.names})
    after = env.batch.get_state()
    seen = env.spec.reference.observe(env.params, after["state"], np.full(env.num_envs, 3))
    for field in env.spec.state(env.params):
        if field.name not in seen.state:  # others follow from these
            assert (
                after["state"][field.name].tobytes()
                == states[field.name].astype(field.dtype).tobytes()
            )
    assert (after["clock"]["elapsed"] == 3).all() and (after["clock"]["episode"] == 1).all()
    for g in env.groups:
        got = (
            (obs[g.name] if isinstance(obs, dict) else obs)
            .cpu()
            .numpy()
            .reshape(env.num_envs, g.count, g.obs_dim)
            .astype(float)
        )
        want = seen.obs[g.name].reshape(got.shape)
        certain = seen.margin.get(g.name, np.ones((env.num_envs, g.count))) > 1e-5
        close = np.abs(got - want) <= 1e-6 * np.broadcast_to(g.obs_scale, g.obs_dim)
        assert close.all(-1)[np.broadcast_to(certain, close.shape[:2])].all()
        if g.mask:
            assert (info["action_mask"][g.name].cpu().numpy() == seen.mask[g.name]).all()


def test_a_state_from_outside_goes_on_by_the_rules():
    env = make("cartpole", num_envs=2)
    env.reset(seed=0)
    obs, _ = env.set_state(x=[0.0, 2.39], x_dot=[0.0, 5.0], theta=0.0, theta_dot=0)
    assert obs.tolist() == [[0, 0, 0, 0], [torch.tensor(2.39).item(), 5, 0, 0]]
    _, _, terminated, _, _ = env.step(torch.ones(2, dtype=torch.int32))
    assert terminated.tolist() == [False, True]  # 2.39 m + 0.02 s x 5 m/s is beyond 2.4 m
    env.set_state(elapsed=[7, 499])
    _, _, _, truncated, info = env.step(torch.ones(2, dtype=torch.int32))
    assert truncated.tolist() == [False, True] and info["episode"]["length"][1] == 500


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"theta": [0.0] * 3}, r"shape \(3,\), expected \(7,\)"),
        ({"theta": np.nan}, "expected a finite float32"),
        ({"theta": True}, "expected float32"),
        ({"elapsed": 500}, "from 0 to 499"),
    ],
)
def test_a_wrong_state_changes_nothing(given, message):
    env = make("cartpole")
    env.reset(seed=0)
    before = env.snapshot()
    with pytest.raises(ParameterError, match=message):
        env.set_state(**given)
    assert_same_bits(env.snapshot().arrays(), before.arrays())
    grid = make("tag_grid")
    grid.reset(seed=0)
    with pytest.raises(ParameterError, match="expected int32"):
        grid.set_state(x=0.5)
    with pytest.raises(ParameterError, match="expected a finite int32"):
        grid.set_state(x=2**40)
