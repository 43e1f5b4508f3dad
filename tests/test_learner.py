"""Runs whose learner is kernels: which policies get it, equal bits with any number of threads, checkpoints."""

import hashlib

import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive.errors import DeviceError, ParameterError
from cupydrive.executors.host import HostExecutor
from cupydrive.training.algorithms.kernels.choice import make_learner, why_not
from cupydrive.training.algorithms.kernels.learner import KernelLearner


def digest(run):
    """Return a hash of all weights."""
    found = hashlib.sha256()
    for name in sorted(run.policies):
        for p in run.policies[name].parameters():
            found.update(np.ascontiguousarray(p.detach().numpy()).tobytes())
    return found.hexdigest()


def train(env, settings, steps=2000, **options):
    return cd.train(env, settings, steps=steps, device="cpu", progress=False, **options)


RUNS = {
    "cartpole": ("cartpole", cd.PPO(num_steps=8), dict(num_envs=70)),
    "grid Tag": ("tag_grid", cd.PPO(num_steps=6, num_minibatches=2, hidden=(20,)), dict(num_envs=30, steps=500)),
    "continuous Tag": ("tag_continuous", cd.A2C(num_steps=6, hidden=(24, 16)), dict(num_envs=9, steps=200)),
    "pendulum": ("pendulum", cd.PPO(num_steps=8, distribution="squashed", normalize_obs=True), dict(num_envs=33)),
}


@pytest.mark.parametrize("name", RUNS)
def test_any_number_of_threads_gives_the_same_weights(name, monkeypatch):
    env, settings, about = RUNS[name]
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setenv("CUPYDRIVE_THREADS", str(threads))
        run = train(env, settings, **about)
        assert all(isinstance(learner, KernelLearner) for learner in run.learners.values())
        assert run.batch.executor.threads == threads
        found.append(digest(run))
    assert found[0] == found[1] == found[2]


def test_threads_are_a_whole_number(monkeypatch):
    for wrong in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("CUPYDRIVE_THREADS", wrong)
        with pytest.raises(DeviceError, match=r"CUPYDRIVE_THREADS = '.*'; it must be a whole number from 1 on"):
            HostExecutor()


REFUSED = {
    "its network is one of your own": cd.PPO(policy=torch.nn.Identity),
    "activation = 'silu'": cd.PPO(activation="silu"),
    "precision = 'tf32'": cd.A2C(precision="tf32"),
    "compile = True": cd.PPO(compile=True),
    "4 hidden layers": cd.PPO(hidden=(16,) * 4),
    "too wide": cd.PPO(hidden=(20_000,)),
    "DDPG has no kernels": cd.DDPG(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_kernels_cannot_do_learns_by_torch_and_says_why(reason):
    settings = REFUSED[reason]
    env = "pendulum" if isinstance(settings, cd.DDPG) else "cartpole"
    group = cd.make(env, num_envs=1, device="cpu").batch.groups[0]
    learner, why = make_learner("cart", settings, group, HostExecutor())
    assert (
        not isinstance(learner, KernelLearner) and reason in why and why.startswith("policy 'cart' learns by torch: ")
    )
    with pytest.raises(ParameterError, match=f"learner='kernels', but kernels do not apply: .*{reason}"):
        make_learner("cart", settings, group, HostExecutor(), "kernels")


def test_a_processor_without_fused_multiply_add_learns_by_torch():
    group = cd.make("cartpole", num_envs=1, device="cpu").batch.groups[0]
    slow = HostExecutor(flags=("-mno-fma", "-mno-avx512f"))
    assert why_not(cd.PPO(), group, slow) == "this processor has no fused multiply-add"
    assert why_not(cd.PPO(), group, HostExecutor()) is None
    with pytest.raises(ParameterError, match="precision='exact', but kernels do not apply: this processor"):
        make_learner("cart", cd.PPO(precision="exact"), group, slow)


def test_exact_and_torch_contradict_each_other():
    with pytest.raises(ParameterError, match="precision='exact' needs kernels"):
        train("cartpole", cd.PPO(precision="exact"), learner="torch")


def test_checkpoints_go_from_one_learner_to_the_other(tmp_path):
    """After one more iteration the two have weights that differ by rounding alone."""
    settings = cd.PPO(num_steps=8, num_minibatches=1, update_epochs=1)
    for how, other in (("kernels", "torch"), ("torch", "kernels")):
        folder = tmp_path / how
        run = train("cartpole", settings, num_envs=16, steps=1000, learner=how, out=folder)
        kept = run.snapshot()
        next_run = cd.training.train.make_run("cartpole", settings, num_envs=16, device="cpu", learner=other)
        assert set(next_run.tensors()) == set(run.tensors())
        next_run.restore(kept)
        before = [p.clone() for p in run.policies["cart"].parameters()]
        run.iterate()
        next_run.iterate()
        pairs = zip(before, run.policies["cart"].parameters(), next_run.policies["cart"].parameters(), strict=True)
        for was, mine, theirs in pairs:
            moved = (mine - was).abs().max()
            assert moved > 0
            assert (mine - theirs).abs().max() <= 1e-3 * moved


def test_a_run_folder_says_which_learner_it_is_of(tmp_path):
    settings = cd.PPO(num_steps=8)
    run = train("cartpole", settings, num_envs=16, steps=1000, learner="torch", out=tmp_path)
    assert run.choices == {"cart": "policy 'cart' learns by torch, as asked for"}
    again = cd.load(tmp_path)
    assert again.learner == "torch" and not isinstance(again.learners["cart"], KernelLearner)


def test_kernels_go_on_bit_for_bit(tmp_path):
    settings = cd.PPO(num_steps=8, target_kl=0.02, clip_vloss=True)
    whole = train("cartpole", settings, num_envs=40, steps=4000)
    train("cartpole", settings, num_envs=40, steps=2000, out=tmp_path)
    rest = cd.train(cd.load(tmp_path), steps=whole.step - cd.load(tmp_path).step, progress=False)
    assert rest.step == whole.step and digest(rest) == digest(whole)
