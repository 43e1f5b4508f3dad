"""One minibatch of random rows for the learner's kernels, and its loss in torch's float64; no tests
of its own.
"""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import torch
from gymnasium import spaces

from cupydrive.algorithms import A2C, PPO, PQN
from cupydrive.algorithms.kernels.arithmetic import EXACT
from cupydrive.algorithms.kernels.choice import REPORTED
from cupydrive.algorithms.kernels.gradients import Task
from cupydrive.algorithms.kernels.layout import NetworkLayout, padded, tensors_of
from cupydrive.algorithms.networks import described
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.ranks import Shard
from cupydrive.playing.policy import make_distribution
from cupydrive.playing.torch_settings import own_random_numbers
from cupydrive.spec import Group

ACTIONS = {
    "one": spaces.Discrete(3),
    "sixteen": spaces.Discrete(16),  # as many logits as a row of them has room for
    "several": spaces.MultiDiscrete([3, 7, 2]),
    "box": spaces.Box(-2.0, np.float32([2, 3]), dtype=np.float32),
}
ACTIONS["mixed"] = spaces.Tuple((ACTIONS["box"], spaces.MultiDiscrete([3, 7]), spaces.Discrete(2)))


def rows(rng, count, group, distribution, masks, leaving):
    """Return a group's rows: columns (T, N, C, ...) as ``Gradients`` takes them."""
    shape = (*count, group.count)

    def normal(*more, scale=1.0):
        return torch.from_numpy(rng.normal(0, scale, (*shape, *more)).astype(np.float32))

    mask, numbers = None, rng.normal(0, 1, (*shape, *group.box.shape))
    choices = [rng.integers(0, n, shape) for n in group.sizes]
    columns = np.concatenate([*(chosen[..., None] for chosen in choices), numbers], -1)
    action = torch.from_numpy(columns.astype(group.action_dtype))
    if masks:  # what was chosen is allowed, or nothing is
        allowed = []
        for n, chosen in zip(group.sizes, choices, strict=True):
            some = (rng.random((*shape, n)) < 0.5) | (np.arange(n) == chosen[..., None])
            allowed.append(some & (rng.random(shape) < 0.9)[..., None])
        mask = torch.from_numpy(np.concatenate(allowed, -1))
    active = torch.from_numpy(rng.random(shape) < 0.7) if leaving else None
    columns = {"obs": normal(group.obs_dim), "action": action, "mask": mask, "active": active}
    return columns | {
        "log_prob": None,
        "value": normal(),
        "advantage": normal() + 0.5,
        "returns": normal(scale=2.0),
    }


def seen(normal, obs):
    """Return observations as a network sees them: normalised by a pair (center, scale), if there is
    one.
    """
    return obs if normal is None else ((obs - normal[0]) * normal[1]).clamp(-10, 10)


def problem(
    config, actions="one", envs=4, obs_dim=5, agents=(1,), masks=False, leaving=False,
    executor=None, seed=0, gain=1.0,
    arithmetic=EXACT, normalised=False,
):  # fmt: skip
    """Return a network with random rows, its ``gradients`` and ``steps``; nothing has been computed
    yet.
    """
    rng = np.random.default_rng(seed)
    executor = executor or HostExecutor(2, flags=("-O1",))  # compiled sooner; bits are the same
    groups = [Group(f"g{k}", count, obs_dim, ACTIONS[actions]) for k, count in enumerate(agents)]
    distribution = make_distribution(groups[0], config.distribution)
    with own_random_numbers():
        torch.manual_seed(seed)
        policy = described(config.architecture, (obs_dim,), distribution.size)
        with torch.no_grad():
            for p in policy.parameters():  # logits and biases of some size
                p.add_(torch.randn_like(p) * 0.2 * gain)
    layout = NetworkLayout.of(config, obs_dim, distribution.size)
    normal = None
    if normalised:  # one entry in two is cut off at 10 on either side now and then
        scale = np.where(np.arange(obs_dim) % 2, 1.0, 9.0) * rng.uniform(0.5, 1.5, obs_dim)
        normal = [
            torch.from_numpy(column.astype(np.float32))
            for column in (rng.normal(0, 0.5, obs_dim), scale)
        ]
    parts = [rows(rng, (config.num_steps, envs), g, distribution, masks, leaving) for g in groups]
    # the log-probabilities of a policy that was another one
    for part, g in zip(parts, groups, strict=True):
        with torch.no_grad():
            parameters = policy(seen(normal, part["obs"].view(-1, obs_dim)))[0]
            if g.continuous:  # what that policy may have drawn
                raw = part["action"].view(-1, g.heads)[:, len(g.sizes) :]
                mean, log_deviation = parameters[:, g.choices :].chunk(2, dim=1)
                raw.mul_(log_deviation.exp()).add_(mean)
            mask = None if part["mask"] is None else part["mask"].view(len(parameters), -1)
            log_prob = distribution.log_prob_and_entropy(
                parameters, part["action"].view(-1, g.heads), mask
            )[0]
        other = torch.from_numpy(rng.normal(0, 0.3, log_prob.shape).astype(np.float32))
        part["log_prob"] = (log_prob + other).view(part["value"].shape)
    device = executor.name
    policy.to(device)
    numbers = {
        "learning_rate": 1e-3,
        "clip_coef": 0.2,
        "ent_coef": 0.03,
        "vf_coef": 0.7,
        "max_grad_norm": 0.5,
    }
    shared = {name: torch.tensor(value) for name, value in numbers.items()}
    shared |= {"skip": torch.zeros(()), "bad": torch.zeros(())}
    shared |= dict(zip(("center", "scale"), normal or (None, None), strict=True))
    shared |= {"seed": torch.tensor([11]), "iteration": torch.tensor([3])}
    reported = REPORTED[type(config)]
    shared["metric_sums"] = torch.zeros(len(reported) + 1)
    shared = {
        name: None if tensor is None else tensor.to(device) for name, tensor in shared.items()
    }
    steps = arithmetic.steps(executor, layout, tensors_of(policy), reported, shared)
    sizes = Shard(envs), config.num_steps, agents
    columns = {
        name: [None if part[name] is None else part[name].to(device) for part in parts]
        for name in parts[0]
    }
    task = Task(executor, layout, distribution, config, *sizes)
    pointers = {"packed": steps.packed, "weights": arithmetic.pointers(steps)}
    gradients = arithmetic.gradients(task, columns, shared | pointers)
    steps.attach(gradients, getattr(config, "target_kl", None), config.rectified)
    return SimpleNamespace(
        config=config, groups=groups, distribution=distribution, policy=policy, layout=layout,
        parts=parts, sizes=sizes,
        shared=shared, steps=steps, gradients=gradients, numbers=numbers, columns=columns,
        normal=normal,
    )  # fmt: skip


def compute(case, epoch=0, minibatch=0):
    """Compute the gradient of one minibatch and take its step; return its parts on the CPU by
    tensor, not padded.
    """
    case.steps.pack()
    case.gradients.arrange()
    case.gradients.compute(epoch, minibatch)
    case.steps.descend(epoch, minibatch)
    return unpadded(case.layout, case.steps.total.cpu())


def unpadded(layout, total):
    """Return the gradient by tensor of the network: (OUT, IN), (OUT,), ..."""
    found, at = [], 0
    for into, out in layout.layers:
        found.append(total[at : at + out * padded(into)].view(out, -1)[:, :into].clone())
        at += out * padded(into)
        found.append(total[at : at + out].clone())
        at += padded(out)
    return found


def chosen(case, epoch=0, minibatch=0):
    """Return the numbers of the rows of a minibatch, block after block."""
    shard, steps, agents = case.sizes
    n = shard.all_envs
    blocks, minibatches = case.gradients.blocks, case.gradients.minibatches
    order = case.gradients.memory["order"][epoch].tolist()
    taken = []
    for first, last in pairwise(b * n // blocks for b in range(blocks + 1)):
        size, begin = (last - first) * steps * sum(agents), first * steps * sum(agents)
        taken += order[
            begin + minibatch * size // minibatches : begin + (minibatch + 1) * size // minibatches
        ]
    return taken


def reference(case, epoch=0, minibatch=0, network=lambda policy: policy):
    """Return the losses of a minibatch by name and the gradients of its loss by tensor, in float64.

    ``network(policy)`` is what gives ``(parameters, value)`` of observations.
    """
    config, d = case.config, case.distribution
    index = torch.tensor(chosen(case, epoch, minibatch))
    columns = {}
    for name in case.parts[0]:
        if case.parts[0][name] is not None:
            flat = [p[name].reshape(p["value"].numel(), *p[name].shape[3:]) for p in case.parts]
            columns[name] = torch.cat(flat)[index]
    policy = described(config.architecture, case.groups[0].obs_shape, d.size).double()
    policy.load_state_dict(case.policy.state_dict())
    columns = {name: c.double() if c.is_floating_point() else c for name, c in columns.items()}
    parameters, value = network(policy)(
        seen(case.normal and [n.double() for n in case.normal], columns["obs"])
    )
    losses, loss = losses_of(case, columns, parameters, value)
    return losses, torch.autograd.grad(loss, tensors_of(policy))


def losses_of(case, columns, parameters, value):
    """Return the losses of rows by name, and the one that is minimised."""
    config, s, d = case.config, case.numbers, case.distribution
    active = columns.get("active", torch.ones(len(value), dtype=torch.bool))
    columns = {name: c[active] for name, c in columns.items()}
    parameters, value = parameters[active], value[active]
    if isinstance(config, PQN):
        value = parameters.gather(1, columns["action"].long())[:, 0]
        loss = 0.5 * ((value - columns["returns"]) ** 2).mean()
        return {"td_loss": loss.item(), "q_value": value.mean().item()}, loss
    log_prob, entropy = d.log_prob_and_entropy(parameters, columns["action"], columns.get("mask"))
    advantage = columns["advantage"]
    if config.norm_adv:
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    losses = {"value_loss": (value - columns["returns"]) ** 2 / 2}
    if isinstance(config, A2C):
        losses["policy_loss"] = -advantage * log_prob
    elif isinstance(config, PPO):
        ratio, c = torch.exp(log_prob - columns["log_prob"]), s["clip_coef"]
        losses["policy_loss"] = -torch.minimum(
            advantage * ratio, advantage * ratio.clamp(1 - c, 1 + c)
        )
        losses["old_approx_kl"] = -ratio.log()
        losses["approx_kl"] = ratio - 1 - ratio.log()
        losses["clipfrac"] = ((ratio - 1).abs() > c).double()
        if config.clip_vloss:
            near = columns["value"] + (value - columns["value"]).clamp(-c, c)
            losses["value_loss"] = torch.maximum(
                losses["value_loss"], (near - columns["returns"]) ** 2 / 2
            )
    losses["entropy"] = entropy
    losses = {name: x.mean() for name, x in losses.items()}
    loss = (
        losses["policy_loss"]
        - s["ent_coef"] * losses["entropy"]
        + s["vf_coef"] * losses["value_loss"]
    )
    return {name: x.item() for name, x in losses.items()}, loss
