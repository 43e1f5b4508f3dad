"""What PPO and A2C share: storage, advantages, minibatches, and one optimiser step that may be withheld on the device.

Letters: T steps, N environments, C agents of a group, D observation entries, H action heads; B = T * N * (agents of all
groups that share the policy).
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from cupydrive.codegen.source import assemble_training
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_torch, make_call
from cupydrive.playing.players import PolicyPlayer
from cupydrive.playing.policy import ACTIVATIONS, Sampler, make_distribution
from cupydrive.training.algorithms.gather import RowGather
from cupydrive.training.algorithms.networks import check_policy_setting, make_network, require_default_memory
from cupydrive.training.algorithms.settings import Settings, chosen, counted, scheduled
from cupydrive.training.algorithms.step import adam, adam_tensors, compiled, settle, take_step
from cupydrive.training.normalize import RunningMoments
from cupydrive.training.schedule import Schedule, Scheduled


@dataclass(frozen=True, kw_only=True)
class OnPolicy(Settings):
    """Settings that PPO and A2C share, with CleanRL's names.

    It is also the base of an on-policy algorithm of one's own: a subclass with a ``name`` and a method ``learner()``, which
    returns an ``OnPolicyLearner`` whose ``learn`` and ``_loss`` are its own; ``A2C`` is the shortest example.

    Args:
        learning_rate: Of Adam.
        num_steps: T, steps of each environment in one iteration.
        gamma: Discount.
        gae_lambda: Of the advantages; 1: returns of up to T steps.
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.
        max_grad_norm: Gradients are scaled down to this norm.
        norm_adv: Normalise advantages.
        normalize_obs: Running mean 0 and deviation 1 of each observation entry.
        normalize_reward: Divide rewards by the running deviation of the discounted return.
        hidden: Width of each hidden layer; ``()``: a linear policy.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``.
        shared_layers: Actor and critic share their hidden layers.
        distribution: ``auto``, ``categorical``, ``gaussian`` or ``squashed``.
        policy: A network of one's own instead of the default one: a ``torch.nn.Module``, which is copied, its class, or a
            function ``(obs_dim, size) -> module``. It is called with observations (B, obs_dim) float32 and returns
            ``(parameters, value)``, (B, size) and (B,) float32: logits of all heads, or means and then logarithms of
            deviations. It is tried on a first batch before training.
        precision: ``float32``, ``tf32`` or ``bfloat16``: of matrix products on a GPU.
        compile: ``True`` compiles policy and loss with ``torch.compile``, which needs a C compiler; ``"max-autotune"`` also
            times kernels for each matrix product: a minute of set-up, faster for fewer environments.
    """

    learning_rate: Schedule = scheduled(2.5e-4, 0.0, positive=True)
    num_steps: int = counted(32)
    gamma: Schedule = scheduled(0.99, 0.0, 1.0)
    gae_lambda: Schedule = scheduled(0.95, 0.0, 1.0)
    ent_coef: Schedule = scheduled(0.01, 0.0)
    vf_coef: Schedule = scheduled(0.5, 0.0)
    max_grad_norm: Schedule = scheduled(0.5, 0.0, positive=True)
    norm_adv: bool = True
    normalize_obs: bool = False
    normalize_reward: bool = False
    hidden: tuple[int, ...] = (64, 64)
    activation: str = chosen("tanh", *ACTIVATIONS)
    shared_layers: bool = False
    distribution: str = chosen("auto", "auto", "categorical", "gaussian", "squashed")
    policy: object = None
    precision: str = chosen("float32", "float32", "tf32", "bfloat16")
    compile: bool | str = chosen(False, False, True, "max-autotune")

    name = "on_policy"

    def __post_init__(self):
        super().__post_init__()
        check_policy_setting(f"{type(self).__name__}.policy", self.policy)


class OnPolicyLearner:
    """A policy that learns from the T steps that it has just played, for one group or several with equal spaces.

    ``begin`` and ``act`` are a player's; ``update`` is called after each rollout. Everything it touches is device memory
    that is allocated once, so that a whole iteration can be captured in a CUDA graph.

    Args:
        config: ``PPO`` or ``A2C``.
        seed: Of the weights; set by torch's generator before the network is made.
    """

    reported = ("policy_loss", "value_loss", "entropy", "grad_norm")

    def __init__(self, config):
        self.config = config
        self.groups, self.samplers, self.stored = [], {}, {}

    # ---- playing ----

    def begin(self, rollout, group):
        """Prepare to play ``group``; the first group decides the network."""
        n, steps, device = rollout.batch.num_envs, rollout.steps, rollout.device
        if not self.groups:
            self.make(group, rollout)
        self.groups.append(group)
        self.samplers[group.name] = Sampler(self.distribution, rollout.batch, group)
        shape = (steps, n, group.count)
        slots = 0 if rollout.final_obs == {} else (steps - 1) // rollout.batch.params.max_episode_steps + 1
        self.stored[group.name] = {
            "log_prob": torch.zeros(shape, device=device),
            "value": torch.zeros((steps + 1, n, group.count), device=device),
            "final_value": torch.zeros((slots, n, group.count), device=device),
            "truncated_at": torch.zeros((slots, n), dtype=torch.int64, device=device),
            "advantage": torch.zeros(shape, device=device),
            "returns": torch.zeros(shape, device=device),
            "raw": torch.zeros((*shape, group.heads), device=device) if self.distribution.raw_size else None,
        }
        if self.config.normalize_reward:
            self.discounted[group.name] = torch.zeros((n, group.count), device=device)

    def make(self, group, rollout):
        """Make the networks and everything that learning keeps besides rollouts."""
        config, device = self.config, rollout.device
        self.distribution = make_distribution(group, config.distribution)
        self.policy = make_network(config, group, self.distribution.size, rollout)
        self.scheduled = Scheduled(config, device)
        self.optimizer, self.withheld = adam(self.policy.parameters(), self.scheduled.learning_rate)
        self.iteration = torch.zeros(1, dtype=torch.int64, device=device)
        self.bad = torch.zeros((), device=device)  # becomes 1 with the first loss that is not a number, and stays 1
        self.obs_moments = RunningMoments((group.obs_dim,), device) if config.normalize_obs else None
        self.return_moments = RunningMoments((), device) if config.normalize_reward else None
        self.reward_scale = torch.ones((), device=device)
        self.discounted = {}
        self.metric_sums = torch.zeros(len(self.reported) + 1, device=device)  # the last one: how many were added
        batch = rollout.batch
        self.advantages = batch.executor.build(assemble_training("advantages"))
        self.shuffle = batch.executor.build(assemble_training("shuffle"))
        self.gather = RowGather(batch.executor)
        self.forward, self.loss, self.settle = (
            compiled(f, config.compile) for f in (self._forward, self._loss, settle)
        )

    def prepare(self, rollout):
        """Check, once all groups have begun, that the rollout's rows can be learnt from.

        Raises:
            MemoryLimitError: If the default network does not fit into memory with the rows of one gradient step.
        """
        if self.config.policy is None:
            rows = self.rows_at_once(rollout)
            require_default_memory(self.config, self.groups[0], self.distribution.size, rollout.batch, rows)

    def rows(self, rollout):
        """Return B."""
        return rollout.steps * rollout.batch.num_envs * sum(g.count for g in self.groups)

    def rows_at_once(self, rollout):
        """Return the rows of its largest forward pass in training."""
        return self.rows(rollout)

    def normalized(self, obs):
        """Return observations (B, D) as the network sees them."""
        return obs if self.obs_moments is None else self.obs_moments.normalized(obs)

    def autocast(self):
        """Return the context of matrix products in the configured precision."""
        if self.config.precision != "bfloat16":
            return nullcontext()
        return torch.autocast(self.withheld.device.type, torch.bfloat16)

    def _forward(self, obs):
        """Return the policy's ``(parameters, value)``, float32, of raw observations (B, D)."""
        with self.autocast():
            parameters, value = self.policy(self.normalized(obs))
        return parameters.float(), value.float()

    def act(self, rollout, t):
        """Write actions, log-probabilities and values of row t."""
        for g in self.groups:
            stored = self.stored[g.name]
            parameters, value = self.forward(rollout.obs[g.name][t].view(-1, g.obs_dim))
            raw = None if stored["raw"] is None else stored["raw"][t]
            self.samplers[g.name](
                parameters,
                rollout.action[g.name][t],
                stored["log_prob"][t],
                raw,
                mask=rollout.mask(g, t),
                value=value,
                value_row=stored["value"][t],
            )

    # ---- learning ----

    def update(self, rollout):
        """Learn from the rollout."""
        with torch.no_grad(), rollout.stream():
            for g in self.groups:
                self._estimate(rollout, g)
        self.learn(rollout)
        with torch.no_grad():
            if self.obs_moments is not None:  # after learning: one iteration sees one normalisation
                for g in self.groups:
                    self.obs_moments.update(rollout.obs[g.name][1:].view(-1, g.obs_dim))
            self.iteration += 1

    def _estimate(self, rollout, g):
        """Fill the advantages and returns of one group."""
        stored, batch, name = self.stored[g.name], rollout.batch, g.name
        n, steps, slots = batch.num_envs, rollout.steps, len(stored["final_value"])
        stored["value"][-1].copy_(self.forward(rollout.obs[name][-1].view(-1, g.obs_dim))[1].view(n, -1))
        pointers = {"truncated": rollout.truncated, "truncated_at": stored["truncated_at"]}
        if slots:
            call = make_call({"num_envs": n, "steps": steps, "slots": slots}, pointers)
            self.advantages.launch("truncations", call, n, n * steps)
            rows = (stored["truncated_at"] * n + torch.arange(n, device=rollout.device)).view(-1)
            final_obs = rollout.final_obs[name].view(steps * n, -1).index_select(0, rows)
            value = self.forward(final_obs.view(-1, g.obs_dim))[1]
            stored["final_value"].copy_(value.view(slots, n, g.count))
        if self.return_moments is not None:
            self._scale_rewards(rollout, g)
        pointers = {
            "gamma": self.scheduled.gamma,
            "gae_lambda": self.scheduled.gae_lambda,
            "reward_scale": self.reward_scale,
            "reward": rollout.reward[name],
            "value": stored["value"],
            "final_value": stored["final_value"] if slots else None,
            "terminated": rollout.terminated,
            "truncated": rollout.truncated,
            "active": rollout.active.get(name),
            "left": rollout.left.get(name),
            "advantage": stored["advantage"],
            "returns": stored["returns"],
        }
        call = make_call({"num_envs": n, "agents": g.count, "steps": steps, "slots": slots}, pointers)
        self.advantages.launch("advantages", call, n * g.count, n * g.count * steps)

    def _scale_rewards(self, rollout, g):
        """Follow the discounted return of each agent and set the scale to one over its running deviation."""
        running, over = self.discounted[g.name], (rollout.terminated | rollout.truncated)[..., None]
        for t in range(rollout.steps):
            running.mul_(self.scheduled.gamma).add_(rollout.reward[g.name][t])
            self.return_moments.update(running.view(-1))
            running.masked_fill_(over[t], 0.0)
        self.reward_scale.copy_(1.0 / (self.return_moments.variance + 1e-8).sqrt())

    def flat(self, rollout):
        """Return what a minibatch is drawn from, all groups one after the other: tensors of B rows by name."""
        parts, leaving = {}, any(g.leaves for g in self.groups)
        for g in self.groups:
            stored, name = self.stored[g.name], g.name
            taken = rollout.action[name] if stored["raw"] is None else stored["raw"]
            columns = {
                "obs": rollout.obs[name][:-1].view(-1, g.obs_dim),
                "action": taken.view(-1, g.heads),
                "weight": self._weight(rollout, g) if leaving else None,
                "mask": rollout.action_mask[name][:-1].view(-1, g.choices) if g.mask else None,
                **{key: stored[key].view(-1) for key in ("log_prob", "advantage", "returns")},
                "value": stored["value"][:-1].view(-1),
            }
            for key, column in columns.items():
                if column is not None:
                    parts.setdefault(key, []).append(column)
        return {key: columns[0] if len(columns) == 1 else torch.cat(columns) for key, columns in parts.items()}

    @staticmethod
    def _weight(rollout, g):
        """Return (T * N * C,): 1 where an agent was in the game before the step, 0 where it was not."""
        if g.leaves:
            return rollout.active[g.name].view(-1).float()
        return torch.ones(rollout.reward[g.name].numel(), device=rollout.device)

    def permutation(self, rollout, size, draw):
        """Return a random permutation of ``size`` rows: the ``draw``-th of this iteration."""
        index = torch.empty(size, dtype=torch.int64, device=rollout.device)
        pointers = {"seed": as_torch(rollout.batch.seed), "count": self.iteration, "index": index}
        call = make_call({"size": size, "draw": draw}, pointers)
        with rollout.stream():
            self.shuffle.launch("shuffle", call, size, size)
        return index

    def descend(self, rows):
        """Take one optimiser step on a minibatch, unless it is withheld; return the losses by name."""
        losses = self.loss(rows)
        reported = [losses.get(name) for name in self.reported]  # None: the gradients' norm
        max_norm = self.scheduled.max_grad_norm
        take_step(self.optimizer, losses["loss"], reported, self.settle, max_norm, self.bad, self.metric_sums)
        return losses

    def _loss(self, rows):
        raise NotImplementedError

    def learn(self, rollout):
        """Update the network from stored rows."""
        raise NotImplementedError

    def losses(self, sums):
        """Return mean losses by name from ``metric_sums`` as a list."""
        return {name: x / sums[-1] for name, x in zip(self.reported, sums, strict=False)} if sums[-1] else {}

    # ---- keeping ----

    def acting(self, greedy):
        """Return a player that acts as the policy does now, without learning."""
        return PolicyPlayer(self.policy, self.distribution, greedy, self.normalized)

    def module(self, rollout, group):
        """Return what the policy does now in ``group`` as a module from raw observations to actions, of the same tensors."""
        return self.distribution.module(self.policy, group, self.obs_moments)

    def tensors(self):
        """Return all tensors that the future depends on, by name: what a checkpoint holds."""
        kept = {f"policy.{key}": value for key, value in self.policy.state_dict(keep_vars=True).items()}
        kept |= {f"optimizer.{key}": value for key, value in adam_tensors(self.optimizer).items()}
        kept |= {"iteration": self.iteration, "metric_sums": self.metric_sums, "reward_scale": self.reward_scale}
        for name, moments in (("obs_moments", self.obs_moments), ("return_moments", self.return_moments)):
            if moments is not None:
                kept |= {f"{name}.{key}": value for key, value in moments.tensors().items()}
        return kept | {f"discounted.{name}": value for name, value in self.discounted.items()}


def weighted_mean(values, weight):
    """Return the mean of ``values`` (B,) over rows of ``weight`` 1, or over all rows if it is None."""
    if weight is None:
        return values.mean()
    return (values * weight).sum() / weight.sum().clamp(min=1.0)


def normalized_advantage(advantage, weight):
    """Return ``advantage`` (B,) with mean 0 and deviation 1 over rows of ``weight`` 1."""
    mean = weighted_mean(advantage, weight)
    variance = weighted_mean((advantage - mean) ** 2, weight)
    return (advantage - mean) / (variance.sqrt() + 1e-8)


def minibatch_size(rows, minibatches, where):
    """Return ``rows / minibatches``.

    Raises:
        ParameterError: If it is not a whole number; says which numbers are.
    """
    if rows % minibatches:
        fitting = [n for n in range(1, min(rows, 4 * minibatches) + 1) if rows % n == 0]
        near = sorted(sorted(fitting, key=lambda n: abs(math.log(n / minibatches)))[:4])
        raise ParameterError(
            f"{where}: {rows:,} rows (steps x environments x agents) do not divide into {minibatches} minibatches; "
            f"num_minibatches = {', '.join(map(str, near))} would"
        )
    return rows // minibatches
