"""Memory that torch replaces: weights return to where they are learnt; views show what kernels
write, or it is an error.
"""

import copy

import numpy as np
import pytest
import torch
from torch import multiprocessing
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import cupydrive as cd
from cupydrive.errors import ParameterError

QUIET = dict(num_envs=16, seed=1, progress=False)
PPO, DDPG = cd.PPO(num_steps=32), cd.DDPG(learning_starts=200, num_steps=32, hidden=(16,))


def by_vector(policy):
    vector_to_parameters(
        parameters_to_vector(policy.parameters()).detach().clone(), policy.parameters()
    )


def by_assignment(policy):
    policy.load_state_dict(copy.deepcopy(policy.state_dict()), assign=True)


def by_conversion(policy):
    policy.double().float()


def by_data(policy):
    for p in policy.parameters():
        p.data = p.data.t().contiguous().t()  # the same numbers, in another order


WAYS = [by_vector, by_assignment, by_conversion, by_data]


def weights(run):
    return torch.cat(
        [p.detach().flatten().cpu() for p in next(iter(run.policies.values())).parameters()]
    )


def trained(env, settings, move=None, at="between", device="cpu", **options):
    """Return the weights of a run of two halves, which ``move`` moves between them or, from a
    callback, within the second.
    """

    def called(step, metrics):
        if at == "within" and move is not None and step == 4096 + 1024:
            move(next(iter(run.policies.values())))

    run = cd.train(env, settings, steps=4096, device=device, **options, **QUIET)
    if at == "between" and move is not None:
        move(next(iter(run.policies.values())))
    return weights(cd.train(run, steps=4096, progress=False, callback=called))


@pytest.mark.full
@pytest.mark.parametrize("at", ["between", "within"])
@pytest.mark.parametrize(
    ("env", "settings", "options"),
    [
        ("cartpole", PPO, dict(backend="kernels")),
        ("cartpole", PPO, dict(backend="torch")),
        ("pendulum", DDPG, {}),
    ],
    ids=["kernels", "torch", "ddpg"],
)
def test_training_goes_on_where_the_weights_are(env, settings, options, at):
    want = trained(env, settings, None, **options)
    for move in WAYS:
        assert torch.equal(trained(env, settings, move, at, **options), want), move.__name__


@pytest.mark.quick(2)
@pytest.mark.gpu
@pytest.mark.parametrize("at", ["between", "within"])
@pytest.mark.parametrize(
    "settings",
    [PPO, cd.PPO(num_steps=32, precision="float32"), cd.PPO(num_steps=32, precision="float32")],
)
def test_captured_training_goes_on_where_the_weights_are(settings, at):
    want = trained("cartpole", settings, None, device="cuda")
    for move in WAYS:
        assert torch.equal(trained("cartpole", settings, move, at, device="cuda"), want), (
            move.__name__
        )


@pytest.mark.full
def test_runs_side_by_side_go_on_where_their_weights_are():
    def both(move):
        found = cd.train(
            "cartpole", PPO, steps=1024, seeds=2, num_envs=16, device="cpu", progress=False
        )
        for run in found if move else ():
            by_vector(run.policies["cart"])
        return [weights(cd.train(run, steps=1024, progress=False)) for run in found]

    assert all(torch.equal(*pair) for pair in zip(both(False), both(True), strict=True))


@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_a_transposed_weight_is_learnt_from_as_it_is_seen(backend):
    """At the same address, in another order."""

    def after(transpose):
        run = cd.train("cartpole", PPO, steps=512, device="cpu", backend=backend, **QUIET)
        transpose(run.policies["cart"].actor[2].weight)
        return weights(cd.train(run, steps=512, progress=False))

    def in_place(weight):
        weight.data = weight.data.t()

    def copied(weight):
        weight.data.copy_(weight.data.t().clone())

    assert torch.equal(after(in_place), after(copied))


CHANGED = {
    "frozen": (
        lambda policy: policy.requires_grad_(False),
        r"'actor.0.weight' .* without gradients, expected",
    ),
    "added": (
        lambda policy: policy.actor.append(torch.nn.Linear(2, 2)),
        r"'actor.5.\w+' .* expected missing",
    ),
    "shared": (
        lambda policy: policy.share_memory(),
        r"'actor.0.weight' .* in shared memory, expected",
    ),
    "double": (
        lambda policy: policy.double(),
        r"'actor.0.weight' .* torch.float64 \(64, 4\) .* expected torch.float32 \(64, 4\)",
    ),
}


@pytest.mark.parametrize("backend", ["kernels", "torch"])
@pytest.mark.parametrize("how", CHANGED)
def test_weights_that_are_no_longer_what_is_learnt_are_refused(how, backend, tmp_path):
    run = cd.train("cartpole", PPO, steps=512, device="cpu", backend=backend, **QUIET)
    change, words = CHANGED[how]
    change(run.policies["cart"])
    with pytest.raises(ParameterError, match=words):
        cd.train(run, steps=512, progress=False, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    if how == "double":
        run.policies["cart"].float()
        cd.train(run, steps=512, progress=False)


# ---- views ---------------------------------------------------------------------------------------


def test_views_show_what_kernels_write_after_torch_has_moved_one():
    env, same = (cd.make("cartpole", 4, device="cpu") for _ in range(2))
    env.reset(seed=0), same.reset(seed=0)
    push, state = torch.ones(4, dtype=torch.int32), env.state

    def parts(env):
        obs, reward, terminated, truncated, info = env.step(push)
        yield from (
            obs,
            reward,
            terminated,
            truncated,
            info["final_obs"],
            info["episode"]["length"],
        )
        yield from (
            env.state["x"],
            state["theta"] if env is not same else env.state["theta"],
            env.elapsed,
        )
        trajectory = env.rollout(3)
        yield from (trajectory.obs, trajectory.action, trajectory.reward, trajectory.terminated)

    for turn in range(4):
        found = [list(parts(each)) for each in (env, same)]
        for number, pair in enumerate(zip(*found, strict=True)):
            # of those, rows are unspecified
            assert number in (4, 5) or torch.equal(*pair), (turn, number)
        for tensor in found[0] if turn < 2 else ():
            tensor.share_memory_()
    before = env.step_results[0]
    assert env.step_results[0] is before  # made once, as long as nothing moves


@pytest.mark.parametrize(
    "replace",
    [lambda obs: setattr(obs, "data", obs.data.clone()), lambda obs: obs.set_(torch.ones(4))],
)
def test_views_are_made_anew_where_a_tensor_was_given_other_data(replace):
    env, same = (cd.make("cartpole", 4, device="cpu") for _ in range(2))
    replace(env.reset(seed=0)[0]), same.reset(seed=0)
    push = torch.ones(4, dtype=torch.int32)
    assert all(torch.equal(env.step(push)[0], same.step(push)[0]) for _ in range(4))


def test_an_actor_may_send_each_observation_to_another_process():
    env, same = (cd.make("cartpole", 4, device="cpu") for _ in range(2))
    queue, push = multiprocessing.SimpleQueue(), torch.ones(4, dtype=torch.int32)
    queue.put(env.reset(seed=0)[0])
    same.reset(seed=0)
    for _ in range(4):
        queue.get()
        obs = env.step(push)[0]
        assert torch.equal(obs, same.step(push)[0])
        queue.put(obs)


class Sending:
    """A player that sends what it sees."""

    def begin(self, rollout, group):
        self.group = group

    def act(self, rollout, t):
        rollout.action[self.group.name][t].zero_()
        rollout.obs[self.group.name].share_memory_()

    def module(self, rollout, group):
        raise ParameterError("no module")

    def player(self, spec, group):
        return self


def test_a_player_that_moves_the_rollouts_memory_is_told():
    with pytest.raises(ParameterError, match=r"Send a copy: tensor\.clone\(\)"):
        cd.evaluate("cartpole", {"cart": Sending()}, episodes=2, device="cpu")


def send(queue, done):
    env = cd.make("cartpole", 4, device="cuda")
    obs, _ = env.reset(seed=0)
    env.step(torch.ones(4, dtype=torch.int32, device="cuda"))
    for tensor in (
        obs,
        env.state["x"],
        env.step_results[1],
        env.step_results[4]["episode"]["length"],
    ):
        queue.put(tensor)
    done.wait()


@pytest.mark.gpu
def test_a_gpus_observations_can_be_sent_to_another_process():
    context = multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    process = context.Process(target=send, args=(queue, done))
    process.start()
    try:
        found = [queue.get(timeout=120).cpu().numpy() for _ in range(4)]
        env = cd.make("cartpole", 4, device="cpu")
        want = env.reset(seed=0)[0].clone()
        np.testing.assert_array_equal(found[0], want)
        env.step(torch.ones(4, dtype=torch.int32))
        np.testing.assert_array_equal(found[1], env.state["x"])
        np.testing.assert_array_equal(found[2], env.step_results[1])
    finally:
        done.set()
        process.join(60)


class Scaled(torch.nn.Module):
    def __init__(self, obs_dim, size):
        super().__init__()
        self.actor, self.critic = torch.nn.Linear(obs_dim, size), torch.nn.Linear(obs_dim, 1)
        self.register_buffer("scale", torch.full((obs_dim,), 0.5))

    def forward(self, obs):
        return self.actor(obs * self.scale), self.critic(obs * self.scale)[:, 0]


def test_buffers_return_too():
    """A captured graph would read where they were."""
    run = cd.train("cartpole", cd.PPO(num_steps=8, policy=Scaled), steps=128, device="cpu", **QUIET)
    network = run.policies["cart"]
    places = network.scale.data_ptr(), network.actor.weight.data_ptr()
    kept = network.scale
    network.double().float()
    assert network.scale.data_ptr() != places[0]
    cd.train(run, steps=128, progress=False)
    assert (
        (network.scale.data_ptr(), network.actor.weight.data_ptr())
        == places
        == (kept.data_ptr(), places[1])
    )
