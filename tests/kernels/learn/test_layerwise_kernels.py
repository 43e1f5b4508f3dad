"""Kernels of networks that are computed layer by layer: gradients against torch's in float64."""

import copy
import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learner_kernels import ACTIONS, losses_of, rows, seen, unpadded

import cupydrive as cd
from cupydrive.algorithms.architecture import ConvLayer
from cupydrive.algorithms.kernels import choice
from cupydrive.algorithms.kernels.choice import REPORTED
from cupydrive.algorithms.kernels.cores import point_states, scans_of
from cupydrive.algorithms.kernels.gradients import Task
from cupydrive.algorithms.kernels.layers import Ends, KernelLaunch
from cupydrive.algorithms.kernels.layerwise import LAYERWISE, sequence_shard, towers_of
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout
from cupydrive.algorithms.kernels.layerwise_tensor import (
    LAYERWISE_TENSOR,
    SUMMED_ROWS,
    TensorTower,
    Totals,
)
from cupydrive.algorithms.kernels.layout import observed_rows, tensors_of
from cupydrive.algorithms.networks import described
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.ranks import Shard
from cupydrive.playing.policy import OneHot, make_distribution
from cupydrive.playing.torch_settings import own_random_numbers
from cupydrive.spec import Group


def problem(
    config, actions="one", envs=4, obs_dim=5, agents=(1,), masks=False, leaving=False,
    executor=None, seed=0, normalised=False, tensor=False, obs_shape=(), high=None, critic_dim=0,
):  # fmt: skip
    """Return a network with hidden state, random rows with starts at random steps, and what
    computes gradients. With ``high`` observations are bytes, some of them above it. With
    ``critic_dim`` the critic is a central one.
    """
    rng, of_critic = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    executor = executor or HostExecutor(2, flags=("-O1",))
    obs_shape = obs_shape or (obs_dim,)
    obs_dim = math.prod(obs_shape)
    about = {"action_space": ACTIONS[actions], "obs_shape": obs_shape}
    about |= {"obs_dtype": "uint8", "obs_high": high} if high else {}
    groups = [Group(f"g{k}", count, **about) for k, count in enumerate(agents)]
    network, entries = config.architecture, config.architecture.input_shape(groups[0])
    distribution = make_distribution(groups[0], config.distribution)
    with own_random_numbers():
        torch.manual_seed(seed)
        policy = described(network, entries, distribution.size, critic_dim=critic_dim)
        if high:
            policy.entries = OneHot(groups[0])
        with torch.no_grad():
            for p in policy.parameters():  # logits and biases of some size
                p.add_(torch.randn_like(p) * 0.2)
    count = config.num_steps, envs
    parts = [rows(rng, count, g, distribution, masks, leaving) for g in groups]
    for part, g in zip(parts, groups, strict=True):
        shape = (*count, g.count)
        part["start"] = torch.from_numpy(rng.random(shape) < 0.2).to(torch.uint8)
        size = config.architecture.state_size
        states = rng.normal(0, 1, (envs, g.count, size)).astype(np.float32)
        part["first"] = torch.from_numpy(states)
        part["log_prob"] = torch.from_numpy(rng.normal(-1, 0.3, shape).astype(np.float32))
        if high:
            values = rng.integers(0, high + 2, (*shape, obs_dim), np.uint8)
            part["obs"] = torch.from_numpy(values)
        if critic_dim:
            values = of_critic.normal(0, 1, (*shape, critic_dim)).astype(np.float32)
            part["critic_obs"] = torch.from_numpy(values)
    normal = critic_normal = None
    if normalised:
        normal, critic_normal = (
            [torch.from_numpy(r.uniform(0.5, 1.5, n).astype(np.float32)) for _ in range(2)]
            for r, n in ((rng, obs_dim), (of_critic, critic_dim))
        )
    numbers = {"learning_rate": 1e-3, "clip_coef": 0.2, "ent_coef": 0.03, "vf_coef": 0.7}
    numbers["max_grad_norm"] = 0.5
    shared = {name: torch.tensor(value) for name, value in numbers.items()}
    shared |= {"skip": torch.zeros(()), "bad": torch.zeros(())}
    shared |= dict(zip(("center", "scale"), normal or (None, None), strict=True))
    names = "critic_center", "critic_scale"
    shared |= dict(zip(names, critic_normal or (None, None), strict=True))
    shared |= {"seed": torch.tensor([11]), "iteration": torch.tensor([3])}
    reported = REPORTED[type(config)]
    shared["metric_sums"] = torch.zeros(len(reported) + 1)
    device = executor.name
    policy.to(device)
    shared = {k: None if x is None else x.to(device) for k, x in shared.items()}
    for part in parts:
        part |= {k: None if x is None else x.to(device) for k, x in part.items()}
    observed = observed_rows(groups[0], network.one_hot)
    layout = LayerwiseLayout.made(network, entries, distribution.size, observed, critic_dim)
    kind = LAYERWISE_TENSOR if tensor else LAYERWISE
    steps = kind.steps(executor, layout, tensors_of(policy), reported, shared)
    drawn = sum(agents) * (1 if layout.sequences else config.num_steps)
    shard = sequence_shard(Shard(envs), drawn, getattr(config, "num_minibatches", 1))
    task = Task(executor, layout, distribution, config, shard, config.num_steps, agents)
    columns = {name: [part[name] for part in parts] for name in parts[0]}
    more = {"packed": steps.packed, "start": columns["start"], "first": columns["first"]}
    more |= {"critic_obs": columns["critic_obs"]} if critic_dim else {}
    if tensor:
        more |= {"matrices": steps.matrices, "own": steps.weights}
    gradients = kind.gradients(task, columns, shared | more)
    steps.attach(gradients, rectified=config.rectified)
    return SimpleNamespace(
        config=config, distribution=distribution, policy=policy, layout=layout, parts=parts,
        shared=shared, steps=steps, gradients=gradients, numbers=numbers, normal=normal,
        task=task, obs_dim=obs_dim, high=high, shape=obs_shape,
        critic_dim=critic_dim, critic_normal=critic_normal,
    )  # fmt: skip


def compute(case, epoch=0, minibatch=0):
    """Compute the gradient of one minibatch and take its step; return it by tensor."""
    case.steps.pack()
    case.gradients.arrange()
    case.gradients.compute(epoch, minibatch)
    case.steps.descend(epoch, minibatch)
    found = unpadded(case.layout, case.steps.total.cpu())
    return [x.view(p.shape) for x, p in zip(found, tensors_of(case.policy), strict=True)]


def chosen(case, epoch, minibatch):
    """Return the numbers of a minibatch's sequences among all, the groups one after the other."""
    task, shard = case.task, case.task.shard
    steps = 1 if case.layout.sequences else task.steps
    n, each, blocks = shard.all_envs, sum(task.agents) * steps, shard.all_blocks
    order = case.gradients.memory["order"][epoch].tolist()
    taken, found = [], []
    for first, last in pairwise(b * n // blocks for b in range(blocks + 1)):
        size, begin = (last - first) * each, first * each
        cut = [begin + m * size // task.minibatches for m in (minibatch, minibatch + 1)]
        taken += order[slice(*cut)]
    starts = np.cumsum([0, *(task.steps * n * count for count in task.agents)])
    before = np.cumsum([0, *(n * count for count in task.agents)])
    for row in taken:
        group = int(np.searchsorted(starts, row, "right")) - 1
        found.append(
            int(row - starts[group] + (before if case.layout.sequences else starts)[group])
        )
    return found


def in_float64(case, obs):
    """Return a copy of the network and rows of observations as it sees them."""
    normal = case.normal and [x.double() for x in case.normal]
    obs = obs.double().view(len(obs), *case.shape) / (case.high or 1)
    return copy.deepcopy(case.policy).cpu().double(), seen(normal, obs.flatten(1)).view_as(obs)


def central_rows(case, critic_obs):
    """Return what the network is called with besides, for rows that a central critic sees."""
    normal = case.critic_normal and [x.double() for x in case.critic_normal]
    return {"critic_obs": seen(normal, critic_obs.double())} if case.critic_dim else {}


def reference(case, epoch=0, minibatch=0):
    """Return the losses of a minibatch by name and the gradients by tensor, in float64."""
    index = torch.tensor(chosen(case, epoch, minibatch))
    columns = {}
    for name, first in case.parts[0].items():
        if first is not None:
            lead = 1 if name == "first" else 2
            flat = [p[name].cpu().flatten(lead - 1, lead) for p in case.parts]
            if not case.layout.sequences and lead == 2:  # rows, as one step
                flat = [each.flatten(0, 1)[None] for each in flat]
            if case.layout.sequences or lead == 2:
                columns[name] = torch.cat(flat, lead - 1).index_select(lead - 1, index)
    columns = {k: c.double() if c.is_floating_point() else c for k, c in columns.items()}
    state, start = columns.pop("first", None), columns.pop("start").bool().flatten()
    columns = {name: c.flatten(0, 1) for name, c in columns.items()}
    policy, obs = in_float64(case, columns["obs"])
    states = (state, start) if case.layout.sequences else ()
    central = central_rows(case, columns.get("critic_obs"))
    parameters, value, *_ = policy(obs, *states, **central)
    losses, loss = losses_of(case, columns, parameters, value)
    return losses, torch.autograd.grad(loss, tensors_of(policy))


def q_network(**about):
    return cd.PQN(network=cd.Network(**about), num_steps=7, num_minibatches=2, update_epochs=2)


def network(**about):
    return cd.PPO(network=cd.Network(**about), num_steps=7, num_minibatches=2, update_epochs=2)


# Sizes that fill no tile; one or two towers; hidden layers, none; several groups, masks, a Box.
CASES = {
    "gru": (network(hidden=(24,), core=cd.GRU(17), shared=True), dict(envs=6)),
    "gru, two towers": (network(hidden=(16, 20), core=cd.GRU(32), activation="relu"), dict(envs=5, agents=(2,))),
    "gru of observations": (network(hidden=(), core=cd.GRU(16), shared=True), dict(envs=8, normalised=True)),
    "gru, groups": (network(hidden=(16,), core=cd.GRU(16), shared=True),
    dict(envs=4, agents=(3, 1), actions="several", masks=True, leaving=True)),
    "gru, mixed": (network(hidden=(16,), core=cd.GRU(16), shared=True), dict(envs=4, actions="mixed", masks=True)),
    "mingru": (network(hidden=(20,), core=cd.MinGRU(20), shared=True), dict(envs=6, obs_dim=11)),
    "mingru, two towers": (network(hidden=(32, 16), core=cd.MinGRU(16, layers=3)),
    dict(envs=3, agents=(2,), actions="box", normalised=True)),
    "norm": (cd.PPO(network=cd.Network(hidden=(20, 17), layer_norm=True, shared=True), num_steps=600, num_minibatches=2),
    dict(envs=2)),  # several tiles in a block
    "norm, two towers": (network(hidden=(16,), layer_norm=True, activation="relu"),
    dict(envs=5, agents=(3, 1), actions="several", masks=True, leaving=True)),
    "norm before a core": (network(hidden=(24, 16), core=cd.MinGRU(16), layer_norm=True), dict(envs=5)),
    "five layers": (network(hidden=(16, 24, 8, 16, 20)), dict(envs=5, actions="box")),
    "linear": (network(hidden=(), shared=True), dict(envs=5)),
    "conv": (network(conv=cd.Conv((5,), 3), hidden=(20,), activation="relu", shared=True),
    dict(envs=6, obs_shape=(5, 6, 3), normalised=True)),
    "conv, two towers": (network(conv=cd.Conv((16, 20), (4, 2), (2, 1)), hidden=(24, 17)),
    dict(envs=5, obs_shape=(11, 9, 4), agents=(3, 1), actions="several", masks=True, leaving=True)),
    "conv, linear": (network(conv=cd.Conv((6, 7, 3), (8, 1, 2), (1, 3, 1)), hidden=()),
    dict(envs=5, obs_shape=(14, 11, 1), actions="box")),
    "conv, 84 x 84": (network(conv=cd.Conv((8, 16), (8, 4), (4, 2)), hidden=(32,), activation="relu", shared=True),
    dict(envs=2, obs_shape=(84, 84, 4))),
    "conv before a core": (network(conv=cd.Conv((4, 18), 3, (1, 2)), hidden=(), core=cd.GRU(16), shared=True),
    dict(envs=5, obs_shape=(8, 12, 2), agents=(2,))),
    "conv and norm": (network(conv=cd.Conv((8,), 2, 2), hidden=(24, 16), core=cd.MinGRU(16), layer_norm=True),
    dict(envs=6, obs_shape=(6, 5, 4))),
    "two convs and norm": (network(conv=cd.Conv((5, 40), 2, (1, 2)), hidden=(), layer_norm=True, shared=True),
    dict(envs=6, agents=(2,), obs_shape=(4, 5, 3))),
    "one-hot": (network(hidden=(20,), one_hot=True, shared=True), dict(envs=5, obs_dim=7, agents=(2, 1), high=2)),
    "one-hot, gru": (network(hidden=(), core=cd.GRU(16), one_hot=True), dict(envs=5, obs_dim=9, high=4)),
    "one-hot, conv": (network(conv=cd.Conv((5, 4), (3, 2)), hidden=(17,), one_hot=True), dict(envs=6, obs_shape=(5, 6, 2), high=3)),
    "A2C": (cd.A2C(network=cd.Network(hidden=(16,), core=cd.MinGRU(16, layers=1), shared=True), num_steps=9),
    dict(envs=140)),
    "central critic": (network(hidden=(20, 17)), dict(envs=5, agents=(3, 1), critic_dim=21, normalised=True, leaving=True)),
    "central critic, linear": (network(hidden=()), dict(envs=5, agents=(2,), critic_dim=3)),
    "central critic, gru": (network(hidden=(), core=cd.GRU(16)), dict(envs=5, agents=(2,), critic_dim=19, normalised=True)),
    "central critic, mingru": (network(hidden=(16,), core=cd.MinGRU(16), layer_norm=True), dict(envs=5, critic_dim=2)),
    "central critic, conv": (network(conv=cd.Conv((5, 4), (3, 2)), hidden=(17,), one_hot=True),
    dict(envs=6, obs_shape=(5, 6, 2), high=3, critic_dim=9)),
    "PQN": (q_network(hidden=(24, 17), layer_norm=True, activation="relu"), dict(envs=9, agents=(2, 1), masks=True, leaving=True)),
    "PQN, linear": (q_network(hidden=()), dict(envs=5, actions="sixteen")),
    "PQN, conv before a core": (q_network(conv=cd.Conv((5,), 3), hidden=(20,), core=cd.GRU(16)), dict(envs=6, obs_shape=(5, 6, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_sequences_are_torchs_in_float64(name):
    config, about = CASES[name]
    case = problem(config, **about)
    last = case.gradients.epochs - 1, case.gradients.minibatches - 1
    case.steps.pack()
    case.gradients.arrange()
    losses, expected = reference(case, *last)
    found = compute(case, *last)
    for layer, (mine, exact) in enumerate(zip(found, expected, strict=True)):
        assert (mine - exact).norm() <= 1e-5 * exact.norm(), layer
    *sums, count = case.shared["metric_sums"].tolist()
    assert count == 1
    reported = dict(zip(case.steps.reported, sums, strict=True))
    norm = torch.stack([g.norm() for g in expected]).norm().item()
    for key, value in (losses | {"grad_norm": norm}).items():
        assert reported[key] == pytest.approx(value, rel=2e-5, abs=2e-6), key


# Units that scans in bfloat16 take; all places of a block have a sequence, or not.
HALVES = {
    "gru": (network(hidden=(24,), core=cd.GRU(32), shared=True), dict(envs=6)),
    "gru, two towers": (network(hidden=(16, 20), core=cd.GRU(16), activation="relu"),
    dict(envs=5, agents=(2,), actions="box")),
    "gru of observations": (network(hidden=(), core=cd.GRU(16), shared=True), dict(envs=7, agents=(2,))),
    "mingru, two towers": (network(hidden=(16,), core=cd.MinGRU(16, layers=3)),
    dict(envs=19, agents=(2,), masks=True, leaving=True, actions="several")),
    "mingru": (network(hidden=(8, 32), core=cd.MinGRU(32), shared=True), dict(envs=6)),
    "norm": (network(hidden=(20, 16), layer_norm=True), dict(envs=6)),
    "norm, more outputs": (network(hidden=(40,), layer_norm=True, shared=True), dict(envs=6, actions="sixteen")),
    # The loss in the launch of the normalization: several rows of a warp, places without a sequence.
    "norm, shared": (network(hidden=(24, 40), layer_norm=True, activation="relu", shared=True),
    dict(envs=41, agents=(3, 1), actions="several", masks=True, leaving=True, seed=2)),
    "norm, a box": (network(hidden=(16,), layer_norm=True, shared=True), dict(envs=5, actions="box")),
    "norm before a core": (network(hidden=(24, 16), core=cd.GRU(16), layer_norm=True, shared=True), dict(envs=7)),
    "four layers": (network(hidden=(16, 24, 8, 16), shared=True), dict(envs=6)),
    "conv": (network(hidden=(24,), conv=cd.Conv((16,), 3), shared=True), dict(envs=6, obs_shape=(6, 7, 2))),
    # Staged images, several products of a team, several tiles of a block, more tiles than teams.
    "conv, tiles": (network(hidden=(24,), conv=cd.Conv((16,), 3), shared=True),
    dict(envs=20, agents=(10,), obs_shape=(8, 9, 1))),
    # Rounding may change the sign of a sum near 0, and which side of PPO's clip a ratio is on: not with these seeds.
    "conv, relu": (network(hidden=(24,), conv=cd.Conv((16,), 3), activation="relu", shared=True),
    dict(envs=7, obs_shape=(6, 7, 2), seed=3)),
    "conv, two towers": (network(hidden=(20, 16), conv=cd.Conv((5, 8, 6), (3, 2, 2), (2, 1, 1))),
    dict(envs=5, agents=(2,), obs_shape=(13, 12, 3), normalised=True)),
    "conv and norm": (network(hidden=(24,), conv=cd.Conv((40,), (4,), 3), layer_norm=True),
    dict(envs=6, obs_shape=(16, 19, 5))),
    "two convs and norm": (network(hidden=(), conv=cd.Conv((13, 8), (3, 2)), layer_norm=True), dict(envs=20, agents=(2,), obs_shape=(6, 5, 4))),
    "one-hot": (network(hidden=(24,), one_hot=True, layer_norm=True), dict(envs=6, obs_dim=7, high=2)),
    "one-hot, conv": (network(hidden=(24,), conv=cd.Conv((16,), 3), one_hot=True, shared=True),
    dict(envs=6, obs_shape=(6, 7, 2), high=3)),
    "PQN": (q_network(hidden=(24, 16), layer_norm=True), dict(envs=9, agents=(2,), masks=True, leaving=True)),
    "PQN, conv": (q_network(hidden=(24,), conv=cd.Conv((16,), 3)), dict(envs=6, obs_shape=(6, 7, 2))),
    "conv, gru": (network(hidden=(), conv=cd.Conv((8,), 3, 2), core=cd.GRU(16), shared=True),
    dict(envs=7, agents=(2,), obs_shape=(8, 9, 4), seed=1)),
    "central critic": (network(hidden=(16, 24)), dict(envs=6, agents=(2,), critic_dim=21, normalised=True)),
    "central critic, gru": (network(hidden=(24,), core=cd.GRU(16)), dict(envs=6, agents=(2,), critic_dim=19)),
    "central critic, conv": (network(conv=cd.Conv((16, 8), 3), hidden=(24,)), dict(envs=6, obs_shape=(6, 7, 2), critic_dim=9, seed=1)),
}  # fmt: skip


@pytest.mark.parametrize("name", HALVES)
def test_gradients_of_bfloat16_factors_are_near_torchs_in_float64(name):
    """Within 2 % in norm, and each tensor within 6 %: products have factors of 8 bits, one after
    the other, and sums of few rows cancel.
    """
    config, about = HALVES[name]
    case = problem(config, **about, tensor=True)
    for epoch, minibatch in ((0, 0), (1, 1)):
        case.gradients.arrange()
        losses, expected = reference(case, epoch, minibatch)
        case.shared["metric_sums"].zero_()
        found = compute(case, epoch, minibatch)
        reported = dict(zip(case.steps.reported, case.shared["metric_sums"].tolist(), strict=False))
        for key, value in losses.items():
            assert reported[key] == pytest.approx(value, rel=0.02, abs=0.02), key
        wrong = torch.stack([(mine - x).norm() for mine, x in zip(found, expected, strict=True)])
        norms = torch.stack([x.norm() for x in expected])
        assert wrong.norm() <= 0.02 * norms.norm()
        assert (wrong <= 0.06 * norms).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", HALVES)
def test_a_gpu_has_the_gradients_of_a_cpu_in_bfloat16(name):
    """Within 2 % in norm: sums have other orders."""
    from cupydrive.executors.cuda import CudaExecutor

    config, about = HALVES[name]
    found = [
        torch.cat([x.flatten() for x in compute(case, 1, 1)])
        for case in (
            problem(config, **about, tensor=True, executor=executor)
            for executor in (HostExecutor(2), CudaExecutor())
        )
    ]
    assert (found[0] - found[1]).norm() <= 0.02 * found[0].norm()


def by_layer(tensors):
    """Return the weights and biases of each layer as one vector."""
    pairs = zip(tensors[::2], tensors[1::2], strict=True)
    return [torch.cat([weight.flatten(), bias]) for weight, bias in pairs]


def drawn(seed):
    """Return random settings and sizes of a problem."""
    rng = np.random.default_rng(seed)
    hidden = tuple(int(n) for n in rng.integers(16, 200, rng.integers(0, 4)))
    size = int(rng.integers(16, 200))
    core = [None, cd.GRU(size), cd.MinGRU(size, layers=int(rng.integers(1, 3)))][rng.integers(3)]
    if isinstance(core, cd.MinGRU):
        hidden = (*hidden, size)
    if rng.random() < 0.2:  # as wide as they may be
        hidden = (512, *hidden[1:]) if hidden and len(hidden) > 1 else hidden
        core = cd.GRU(512) if isinstance(core, cd.GRU) else core
    about = dict(hidden=hidden, core=core, shared=bool(rng.integers(2)))
    about |= dict(layer_norm=bool(rng.integers(2)), activation=str(rng.choice(["tanh", "relu"])))
    actions = str(rng.choice(["one", "several", "box"]))
    sizes = dict(envs=int(rng.integers(2, 9)), obs_dim=int(rng.integers(1, 60)), actions=actions)
    masks = actions == "several" and bool(rng.integers(2))
    critic_dim = int(rng.integers(1, 90)) * (not about["shared"] and seed % 3 == 0)
    sizes |= dict(agents=(2,), masks=masks, seed=seed, critic_dim=critic_dim)
    return network(**about), sizes


def drawn_images(seed):
    """Return random settings with convolutions, and sizes of a problem."""
    rng = np.random.default_rng(seed)
    shape = image = (*map(int, rng.integers(3, 24, 2)), int(rng.integers(1, 8)))
    layers = []
    for _ in range(int(rng.integers(1, 4))):
        kernel = int(rng.integers(1, min(8, *image[:2]) + 1))
        layers.append((int(rng.integers(1, 40)), kernel, int(rng.integers(1, 5))))
        image = ConvLayer(image, *layers[-1]).out
    hidden = tuple(int(n) for n in rng.integers(16, 130, rng.integers(0, 3)))
    core = [None, cd.GRU(24), cd.MinGRU(20)][rng.choice(3, p=[0.6, 0.2, 0.2])]
    hidden = (*hidden, 20) if isinstance(core, cd.MinGRU) else hidden
    about = dict(activation=str(rng.choice(["tanh", "relu"])), shared=bool(rng.integers(2)))
    about |= dict(layer_norm=bool(rng.random() < 0.3), hidden=hidden, core=core)
    channels, kernels, strides = zip(*layers, strict=True)
    if about["layer_norm"]:  # the norm of two numbers is nearly constant, and its gradient cancels
        channels = tuple(max(8, n) for n in channels)
    about |= dict(conv=cd.Conv(channels, kernels, strides))
    sizes = dict(envs=int(rng.integers(2, 6)), obs_shape=shape, seed=seed)
    sizes |= dict(critic_dim=int(rng.integers(1, 20)) * (not about["shared"] and seed % 3 == 0))
    return network(**about), sizes | dict(actions=str(rng.choice(["one", "several", "box"])))


@pytest.mark.parametrize("draw", [drawn, drawn_images])
@pytest.mark.parametrize(
    "seed", [pytest.param(k, marks=() if k < 2 else pytest.mark.full) for k in range(20)]
)
def test_gradients_of_random_networks_are_torchs_in_float64(seed, draw):
    """Within 1e-5 of each layer's norm. Where functions have a kink, a rounding may choose the
    other side for one unit; behind a normalisation, 1 - tanh^2 cancels: then within 5e-5.
    """
    config, about = draw(seed)
    case = problem(config, **about)
    case.steps.pack()
    case.gradients.arrange()
    expected = by_layer(reference(case, 1, 1)[1])
    own = config.network
    kinks = own.activation == "relu" or own.layer_norm or isinstance(own.core, cd.MinGRU)
    for layer, (mine, exact) in enumerate(
        zip(by_layer(compute(case, 1, 1)), expected, strict=True)
    ):
        assert (mine - exact).norm() <= (5e-5 if kinks else 1e-5) * exact.norm(), (own, layer)


def acted(case, rows):
    """Return what one step of ``rows`` agents reads (observations, those of a central critic,
    states, starts), and the outputs of all towers, not padded, and the next states.
    """
    task, network = case.task, case.config.architecture
    rng, found = np.random.default_rng(5), []
    shape = rows, case.obs_dim
    obs = torch.from_numpy(rng.normal(0, 1, shape).astype(np.float32))
    if case.high:
        obs = torch.from_numpy(rng.integers(0, case.high + 2, shape, np.uint8))
    before = torch.from_numpy(rng.normal(0, 1, (rows, network.state_size)).astype(np.float32))
    critic_obs = torch.from_numpy(rng.normal(0, 1, (rows, case.critic_dim)).astype(np.float32))
    start = torch.from_numpy(rng.random(rows) < 0.3).to(torch.uint8)
    after = torch.zeros_like(before)
    case.steps.pack()
    outputs = network.outputs(case.distribution.size)
    for tower, size in zip(towers_of(task), outputs, strict=True):
        launches, out = tower.acting(rows, case.steps.packed)
        read, prefix = (critic_obs, "critic_") if tower.central else (obs, "")
        normal = {name: case.shared[prefix + name] for name in ("center", "scale")}
        launches[0].point(**{"in": read}, **normal)
        scans = zip(scans_of(launches), tower.places, strict=True)
        point_states(list(scans), before, start, after)
        for launch in launches:
            launch()
        found.append(out[:, :size])
    return (obs, critic_obs, before, start), (*found, after)


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_torchs_in_float64(name):
    """Of more rows than two tiles have; within 1e-5 of the largest number."""
    config, about = CASES[name]
    case = problem(config, **about)
    (obs, critic_obs, before, start), (*outputs, after) = acted(case, 70)
    policy, obs = in_float64(case, obs)
    states = (before.double(), start.bool()) if case.layout.sequences else ()
    parameters, value, *states = policy(obs, *states, **central_rows(case, critic_obs))
    size = case.distribution.size
    found = [outputs[0][:, :size], outputs[-1][:, case.layout.value_at]]
    if not case.layout.network.valued:
        found, value = found[:1] * 2, parameters
    for mine, exact in zip([*found, after], [parameters, value, *(states or [after])], strict=True):
        most = 1e-5 * max(1.0, exact.abs().max().item()) if exact.numel() else 0.0
        torch.testing.assert_close(mine.double(), exact.double(), rtol=1e-5, atol=most)


@pytest.mark.parametrize("core", [cd.GRU(16), cd.MinGRU(16)])
@pytest.mark.parametrize("kind", [cd.PPO, cd.PQN])
def test_steps_in_bfloat16_have_the_outputs_of_sequences(kind, core, monkeypatch):
    """Within the tolerance of ``check_policy``, of more rows than a tile has."""
    monkeypatch.setattr(choice, "LAYERWISE", LAYERWISE_TENSOR)
    described = cd.Network(hidden=(24, 16), core=core, layer_norm=isinstance(core, cd.MinGRU))
    settings = kind(network=described, num_steps=8, normalize_obs=True)
    report = cd.check_policy("cartpole", settings, num_envs=72, device="cpu")
    assert "by kernels, bfloat16" in report.compared_with and report.passed, report


@pytest.mark.parametrize("name", ["conv, tiles", "two convs and norm"])
def test_acting_in_bfloat16_writes_nothing_after_the_last_row(name):
    """Of rows whose patches fill a tile and a part of the next one."""
    config, about = HALVES[name]
    case, rows, after = problem(config, **about, tensor=True), 61, 60
    case.steps.pack()
    kept = []

    def make(columns):
        kept.append(torch.full((rows + after, columns), 7.0, dtype=torch.bfloat16))
        return kept[-1][:rows]

    own = {"matrices": case.steps.matrices, "own": case.steps.weights}
    tower = TensorTower(case.task, 0, own)
    work, out, _ = tower.work(None, make, Ends(rows, 1, 0))
    obs = torch.randn(rows, case.obs_dim, generator=torch.Generator().manual_seed(3))
    for each in work:
        if isinstance(each, KernelLaunch) and each.kernel == "observe":
            each.point(obs=obs)
        each()
    assert kept and all((whole[rows:] == 7.0).all() for whole in kept)
    parameters = case.policy(obs)[0]
    torch.testing.assert_close(out[:, : parameters.shape[1]], parameters, rtol=0.03, atol=0.03)


TEAMS = [
    "gru, groups",
    "mingru",
    "central critic",
    "norm",
    "norm before a core",
    "one-hot, conv",
    "A2C",
    "PQN",
]


@pytest.mark.full
@pytest.mark.parametrize("name", [*TEAMS, "conv", "conv, linear", "conv and norm"])
def test_a_team_of_threads_has_the_bits_of_one(name):
    """Threads of a team run in random order from sync to sync, and what they do to each other's
    memory in between is an error.
    """
    config, about = CASES[name]
    found = []
    for threads in (0, 4):
        case = problem(config, **about, executor=HostExecutor(1, team_threads=threads))
        last = case.gradients.epochs - 1, case.gradients.minibatches - 1
        made = *acted(case, 37)[1], *compute(case, *last)
        found.append([*made, case.shared["metric_sums"]])
    for one, several in zip(*found, strict=True):
        assert torch.equal(one, several)


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    ["gru, two towers", "norm", "PQN", "conv, tiles", "conv, two towers", "conv and norm"],
)
def test_a_team_of_threads_has_the_gradients_of_one_in_bfloat16(name):
    """Biases are summed up in another order."""
    config, about = HALVES[name]
    found = []
    for threads in (0, 16):  # more than a row has parts of four entries
        executor = HostExecutor(1, team_threads=threads)
        found.append(compute(problem(config, **about, executor=executor, tensor=True), 1, 1))
    for one, several in zip(*found, strict=True):
        torch.testing.assert_close(several, one, rtol=1e-5, atol=1e-6 * float(one.norm()))


@pytest.mark.parametrize("threads", [0, 4])
def test_a_step_also_rounds_the_weights_to_padded_matrices(threads):
    config, about = HALVES["conv, relu"]
    executor = HostExecutor(1, team_threads=threads)
    case = problem(config, **about, tensor=True, executor=executor)
    before = [p.clone() for p in case.steps.weights]
    compute(case)
    flat = [x for pair in case.steps.matrices for x in pair]
    for p, old, matrix in zip(case.steps.weights, before, flat, strict=True):
        assert not torch.equal(p, old)
        padding = [
            n for size, full in zip(p.shape, matrix.shape, strict=True) for n in (full - size, 0)
        ]
        expected = torch.nn.functional.pad(p, padding[::-1])
        assert torch.equal(matrix, expected.to(torch.bfloat16))


@pytest.mark.parametrize("threads", [0, 4, 64])
def test_totals_are_torchs(threads):
    """Of more matrices than one launch has, of tall ones, and into strided memory."""
    rng = np.random.default_rng(0)
    totals, expected, found = Totals(HostExecutor(1, team_threads=threads)), [], []
    shapes = [(1, 1, 1), (70, 1, 33), (3, 5, 8), (SUMMED_ROWS, 1, 2), (SUMMED_ROWS // 2, 3, 2)] * 9
    for k, (count, groups, columns) in enumerate(shapes):
        memory = rng.integers(-8, 9, (count, groups * columns + 5)).astype(np.float32)
        memory = torch.from_numpy(memory).to((torch.float32, torch.bfloat16)[k % 2])
        given = memory[:, : groups * columns].unflatten(1, (groups, columns))
        wide = k % 3 == 0 and columns % 2 == 0
        to = torch.full((2, columns // 2 + 3) if wide else (columns, 2), -1.0)
        part = to[:, : columns // 2] if wide else to[:, 0]
        totals.add(given[:, 0] if groups == 1 else given, part)
        total = given.float().sum((0, 1)).view(part.shape)
        whole = to.clone()
        (whole[:, : columns // 2] if wide else whole[:, 0]).copy_(total)
        expected.append(whole)
        found.append(to)
    for work in totals.work():
        work()
    assert (len(totals.small), len(totals.tall)) == (36, 9)
    assert all(map(torch.equal, found, expected))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("gru, two towers", False),
        ("norm before a core", False),
        ("norm before a core", True),
        ("norm, shared", True),
        ("conv", False),
        ("conv", True),
    ],
)
def test_kernels_write_nothing_where_a_minibatch_is_skipped(name, tensor):
    config, about = (HALVES if tensor else CASES)[name]
    case = problem(config, **about, tensor=tensor)
    compute(case, 0, 0)
    work = case.gradients.work if tensor else case.gradients.launches
    case.shared["skip"].fill_(1.0)
    launches = [each for each in work if isinstance(each, KernelLaunch) and each.learns]
    for launch in launches:
        memory = [x for x in launch.pointers.values() if x is not None]
        before = [x.clone() for x in memory]
        launch.choose(1, 1)
        launch()
        assert all(map(torch.equal, memory, before)), launch.kernel


@pytest.mark.parametrize("tensor", [False, True])
def test_a_block_without_sequences_in_a_minibatch_adds_nothing(tensor):
    core = cd.GRU(16)
    described = cd.Network(hidden=(16,), core=core, layer_norm=True, shared=True)
    config = cd.PPO(network=described, num_steps=3, num_minibatches=4, update_epochs=1)
    case = problem(config, envs=5, agents=(3,), tensor=tensor)
    case.gradients.arrange()
    assert case.gradients.memory["counts"][0, 0].tolist() == [0, 3, 3]
    for minibatch in (1, 0):  # the sums of one are in memory when the other is computed
        case.steps.pack()
        expected = torch.cat([x.flatten() for x in reference(case, 0, minibatch)[1]])
        found = torch.cat([x.flatten() for x in compute(case, 0, minibatch)])
        assert (found - expected).norm() <= (0.02 if tensor else 1e-5) * expected.norm()
