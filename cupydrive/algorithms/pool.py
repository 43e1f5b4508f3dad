"""OpponentPool: past snapshots of a learning policy as opponents in a share of the environments.

They are opponents of other policies, or of the policy itself. A policy that learns against a single
opponent may forget how to play others, and two policies that learn from each other may cycle.
Source: Bansal et al. 2018, "Emergent complexity via multi-agent competition", section 3.2:
opponents drawn at random from earlier versions.

Letters: T steps, N environments, P of them with snapshots, C agents of a group, S slots for
snapshots.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Le
from torch.func import functional_call

from cupydrive.algorithms.a2c import A2C
from cupydrive.algorithms.kernels.layerwise import LayerwiseLearner
from cupydrive.algorithms.kernels.layout import tensors_of
from cupydrive.algorithms.kernels.learner import KernelLearner
from cupydrive.algorithms.kernels.statistics import RunningMeanStd
from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.algorithms.ppo import PPO
from cupydrive.codegen.source import assemble_file
from cupydrive.errors import CupydriveError, ParameterError
from cupydrive.executors.interop import as_torch, make_call, zeros
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.validation import Count, validated
from cupydrive.playing.inference import evaluating
from cupydrive.playing.policy import Sampler, first_agent, first_state
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Learner, LearnerSettings, PolicySettings
from cupydrive.simulation.observations import network_input
from cupydrive.spec import Group

MOST_SNAPSHOTS = 256  # each takes a forward pass per step


@dataclass(frozen=True)
class OpponentPool:
    """Settings of a policy whose past snapshots play a share of the environments.

    In the other environments the current policy plays, and it learns only from these. The policies
    of other groups learn in all environments, against the current policy and its snapshots. At the
    beginning of an episode the opponent is drawn uniformly from the existing snapshots, and stays
    until the episode ends. Before the first snapshot the current policy plays everywhere.

    **Self-play**: If several groups share the policy and no other policy learns, as with
    ``policies={"first+second": OpponentPool(...)}``, snapshots are opponents of the policy itself.
    With each opponent, the group that the policy plays and learns for is drawn uniformly. The
    snapshot plays the other groups.

    If several groups have pools, each pool has its own environments. With two shares of 0.5,
    snapshots of one policy play in half of them and snapshots of the other in the rest. Evaluation,
    videos and tournaments use the current policy. Episodic returns are those of all environments.
    ``normalize_obs`` and ``normalize_reward`` count only rows that the current policy has played.

    Args:
        settings: ``PPO(...)`` or ``A2C(...)`` of the policy itself.
        size: Maximum number of snapshots to draw from. A new snapshot replaces the oldest. Each
            takes a forward pass of the share's environments per step.
        every: Iterations between snapshots. An iteration is ``num_steps`` steps of every
            environment. A new snapshot waits until the one that it overwrites, the predecessor of
            the oldest, has finished its episodes.
        share: Share of the environments with snapshots, rounded to whole environments. It must be
            below 1, except in self-play. Defaults to 0.5.

    Raises:
        ParameterError: If an argument is wrong.

    Examples:
        >>> import cupydrive as cd
        >>> pool = cd.OpponentPool(cd.PPO(), size=4, share=0.25)
        >>> run = cd.train(
        ...     "connect_four", policies={"first+second": pool},
        ...     num_envs=64, steps=10_000, progress=False,
        ... )
    """

    settings: PPO | A2C
    size: Annotated[int, Ge(1), Le(MOST_SNAPSHOTS)] = 8
    every: Count = 10
    share: Annotated[float, Ge(0.0), Le(1.0)] = 0.5

    def __post_init__(self) -> None:
        if type(self.settings) not in (PPO, A2C):
            raise ParameterError(
                f"OpponentPool.settings = {shown(self.settings)}, expected PPO(...) or A2C(...)"
            )
        numbers = {name: getattr(self, name) for name in ("size", "every", "share")}
        for name, value in validated("OpponentPool", OpponentPool, numbers).items():
            object.__setattr__(self, name, value)

    name = property(lambda self: self.settings.name, doc="Name of the algorithm.")
    num_steps = property(lambda self: self.settings.num_steps, doc="Rollout length T.")
    precision = property(
        lambda self: self.settings.precision, doc="Precision of the policy's matrix products."
    )
    policy = property(lambda self: self.settings.policy, doc="A custom network, or None.")

    def learner(self) -> Learner:
        """Create the learner of the policy, which uses torch."""
        learner: Any = PooledLearner(self, self.settings.learner())
        return learner


def unpooled(settings: LearnerSettings) -> LearnerSettings:
    """Return the settings inside an ``OpponentPool``, or ``settings`` itself."""
    return settings.settings if isinstance(settings, OpponentPool) else settings


def with_settings(settings: Any, new: dict[str, object]) -> Any:
    """Replace those settings of one policy that it has.

    Args:
        settings: Settings of the policy. For an ``OpponentPool``, its inner settings are replaced
            also.
        new: New values by name. Unknown names are ignored.
    """
    if not isinstance(settings, LearnerSettings):
        return settings
    if isinstance(settings, OpponentPool) and "settings" not in new:
        new = new | {"settings": with_settings(settings.settings, new)}
    own = {field.name for field in fields(settings)}
    try:
        return replace(settings, **{name: value for name, value in new.items() if name in own})
    except CupydriveError as error:  # hide the traceback into the settings
        raise error.with_traceback(None) from None


def environments(shares: Sequence[float], k: int, num_envs: int) -> range:
    """Return the range of environments in which snapshots of pool k may play."""
    before = sum(shares[:k])
    return range(round(before * num_envs), round((before + shares[k]) * num_envs))


def check_pools(
    policies: Mapping[str, PolicySettings], groups: Sequence[str], num_envs: int
) -> None:
    """Raise ``ParameterError`` if no policy learns against a pool, or if shares are wrong.

    Args:
        policies: Settings by policy name.
        groups: Names of the environment's groups, each with a policy.
        num_envs: Number of environments, N.
    """
    pools = {name: each for name, each in policies.items() if isinstance(each, OpponentPool)}
    names = sorted(pools, key=lambda name: min(groups.index(group) for group in name.split("+")))
    learning = [name for name, each in policies.items() if isinstance(each, LearnerSettings)]
    for name in names:
        if learning == [name] and "+" not in name:
            raise ParameterError(
                f"policies[{name!r}] is an OpponentPool, but no other policy learns against its "
                f"snapshots. Expected another group that learns, or several groups that share the "
                f"pool. Pass {pools[name].name.upper()}(...) itself"
            )
    shares = [pools[name].share for name in names]
    if sum(shares) > 1.0 + 1e-9:
        listed = " and ".join(f"{pools[name].share:g} of {name!r}" for name in names)
        words = f"got {listed}, {sum(shares):g} together, expected at most 1"
        raise ParameterError(f"shares of pools: {words}")
    for k, name in enumerate(names):
        count, most = len(environments(shares, k, num_envs)), num_envs - (learning != [name])
        if shares[k] > 0 and not 0 < count <= most:
            raise ParameterError(
                f"policies[{name!r}]: a share of {shares[k]:g} of {num_envs} environments is "
                f"{count}, expected 1 to {most}"
            )


# ---- past networks -------------------------------------------------------------------------------

# prefixes of a learner's tensors that determine its actions
POLICY_PREFIX, MOMENTS_PREFIX = "policy.", "obs_moments."


class Past:
    """Past networks of a policy, which act in parallel in some environments.

    Each network computes actions for every row, since only the device has the assignment of
    networks to environments. A step therefore costs one forward pass of these rows per network.
    Gathering the weights for each row instead would read all weights once per row.

    Args:
        learner: ``OnPolicyLearner`` of the policy, after ``prepare``.
        rollout: ``Rollout`` in which it plays.
        envs: Range of the P environments.
        bank: (S, ...) by name: the tensors of ``learner.tensors()`` whose names begin with
            ``POLICY_PREFIX`` or ``MOMENTS_PREFIX``.
        slots: Number of networks, S.

    Attributes:
        action: (S, P, C, H) by group, actions of each network.

    """

    def __init__(
        self,
        learner: OnPolicyLearner,
        rollout: Rollout,
        envs: range,
        bank: dict[str, torch.Tensor],
        slots: int,
    ) -> None:
        self.learner, self.rollout, self.envs = learner, rollout, envs
        self.bank, self.slots = bank, slots
        self.action: dict[str, torch.Tensor] = {}
        self.raw: dict[str, torch.Tensor | None] = {}
        self.samplers: dict[str, Sampler] = {}
        # (S, P * C, M) by group, hidden states
        self.memory: dict[str, torch.Tensor] = {}
        for g in learner.groups:
            like, shape = rollout.action[g.name], (len(envs), g.count, g.heads)
            self.action[g.name] = like.new_zeros((slots, *shape))
            self.raw[g.name] = like.new_zeros(shape) if learner.distribution.raw_size else None
            self.samplers[g.name] = Sampler(learner.distribution, rollout.batch, g, envs)
            memory = first_state(learner.ask, slots, len(envs) * g.count, rollout.device)
            self.memory |= {} if memory is None else {g.name: memory}
        self.prepare()

    def prepare(self) -> None:
        """Create the objects that ``act`` needs."""
        raise NotImplementedError(f"{type(self).__name__} must implement prepare()")

    def mask(self, g: Group, t: int) -> torch.Tensor | None:
        """Return the action mask of ``g`` in row t, (P, C, choices) bool, or None."""
        mask = self.rollout.mask(g, t)
        return None if mask is None else mask[self.envs.start : self.envs.stop]

    def begun(self, g: Group, t: int) -> torch.Tensor:
        """Return the agents of ``g`` for which row t begins an episode, (P * C,) bool."""
        return self.rollout.agent_starts(g, t, slice(self.envs.start, self.envs.stop))

    def act(self, t: int) -> None:
        """Write the actions of all networks for row t."""
        raise NotImplementedError(f"{type(self).__name__} must implement act(t)")

    def finish(self) -> None:
        """Reset hidden states for episodes that ended in the last step of the rollout.

        A checkpoint does not contain the positions of these ends.
        """
        for g in self.learner.groups if self.memory else ():
            self.memory[g.name].masked_fill_(self.begun(g, self.rollout.steps)[:, None], 0.0)


class TorchPast(Past):
    """Past networks in torch, for any module."""

    def prepare(self) -> None:
        """Create views of each network's weights and statistics of observations."""
        if hasattr(self.learner.ask, "agents_per_row"):
            raise ParameterError(
                f"OpponentPool: snapshots act row by row: got a policy with agents_per_row = "
                f"{self.learner.agents_per_row}. Train it without a pool"
            )
        self.weights: list[dict[str, torch.Tensor]] = []
        self.moments: list[RunningMeanStd] = []
        for k in range(self.slots):
            own = {name: rows[k] for name, rows in self.bank.items()}
            names = [name for name in own if name.startswith(POLICY_PREFIX)]
            self.weights.append({name.removeprefix(POLICY_PREFIX): own[name] for name in names})
            if self.learner.obs_rms is not None:
                moments = RunningMeanStd(own[f"{MOMENTS_PREFIX}mean"].shape, self.rollout.device)
                moments.mean, moments.variance = (
                    own[f"{MOMENTS_PREFIX}mean"],
                    own[f"{MOMENTS_PREFIX}variance"],
                )
                self.moments.append(moments)

    def act(self, t: int) -> None:
        """Write the actions of all networks for row t."""
        policy, envs = self.learner.policy, self.envs
        for g in self.learner.groups:
            obs = self.rollout.obs[g.name][t][envs.start : envs.stop].flatten(0, 1)
            memory, start = self.memory.get(g.name), self.begun(g, t) if t else None
            for k, weights in enumerate(self.weights):
                seen = self.moments[k].normalized(obs) if self.moments else obs
                seen = network_input(g, seen)
                given = (seen,) if memory is None else (seen, memory[k], start)
                with evaluating(policy), self.learner.autocast():
                    parameters, _, *left = functional_call(
                        policy, weights, given, tie_weights=False
                    )
                action, raw = self.action[g.name][k], self.raw[g.name]
                self.samplers[g.name](parameters.float(), action, raw=raw, mask=self.mask(g, t))
                if memory is not None:
                    memory[k].copy_(left[0])


class KernelPast(Past):
    """Past networks by the learner's own forward kernel.

    In exact arithmetic the bits are the same on all devices.
    """

    learner: KernelLearner

    def prepare(self) -> None:
        """Create the networks."""
        learner, rollout, slots = self.learner, self.rollout, range(self.slots)
        state = learner.policy.state_dict(keep_vars=True)
        names = {id(p): f"{POLICY_PREFIX}{name}" for name, p in state.items()}
        order = [self.bank[names[id(p)]] for p in tensors_of(learner.policy)]
        self.networks = [learner.steps.beside([rows[k] for rows in order]) for k in slots]
        # a width of 0 means that observations are not normalized
        width = 0 if learner.center is None else len(learner.center)
        self.center, self.scale = (zeros(rollout.device, self.slots, width) for _ in range(2))
        self.prepare_passes()

    def prepare_passes(self) -> None:
        """Create the arguments of the networks' forward passes of each row."""
        rollout, groups, slots = self.rollout, self.learner.groups, range(self.slots)
        most = max(g.count for g in groups)
        self.value = zeros(rollout.device, len(self.envs) * most)
        self.passes: list[list[np.ndarray]] = []
        for t in range(rollout.steps):
            self.passes.append([self.forward_call(g, t, k) for g in groups for k in slots])

    def forward_call(self, g: Group, t: int, k: int) -> np.ndarray:
        """Return ``struct Forward`` of network k for row t.

        It is the learner's own, with other weights and fewer environments.
        """
        learner, envs = self.learner, self.envs
        call, rows = learner.passes[g.name][t].copy(), len(envs) * g.count
        call["rows"], call["num_envs"] = rows, len(envs)
        call["teams"] = min(int(call["teams"]), -(-rows // learner.tile))
        pointers = {"obs": self.rollout.obs[g.name][t][envs.start :], "value": self.value}
        pointers["packed"] = self.networks[k].packed
        pointers |= learner.arithmetic.pointers(self.networks[k])
        if self.center.numel():
            pointers |= {"center": self.center[k], "scale": self.scale[k]}
        for name, tensor in pointers.items():
            call[name] = 0 if tensor is None else tensor.data_ptr()
        action, raw = self.action[g.name][k], self.raw[g.name]
        call["sample"] = self.samplers[g.name].describe(action, raw=raw, mask=self.mask(g, t))
        return call

    def act(self, t: int) -> None:
        """Write the actions of all networks for row t."""
        if t == 0:  # the bank may have changed by a checkpoint or the last update
            for network in self.networks:
                network.pack()
            if self.center.numel():
                self.center.copy_(self.bank[f"{MOMENTS_PREFIX}mean"])
                self.scale.copy_(1.0 / (self.bank[f"{MOMENTS_PREFIX}variance"] + 1e-8).sqrt())
        self.look(t)

    def look(self, t: int) -> None:
        """Queue the forward passes of row t."""
        for call in self.passes[t]:
            self.learner.look(call)


class PartsPast(KernelPast):
    """Past networks by the kernels of networks that are computed layer by layer."""

    learner: LayerwiseLearner

    def prepare_passes(self) -> None:
        """Create a learner for each network. Only its forward passes are used."""
        self.learners: list[LayerwiseLearner] = []
        for k, network in enumerate(self.networks):
            learner = copy.copy(self.learner)
            learner.steps = network
            if self.center.numel():
                learner.center, learner.scale = self.center[k], self.scale[k]
            learner.steps_of = learner.passes_of(len(self.envs))
            self.learners.append(learner)
        self.next = {name: torch.empty_like(memory[0]) for name, memory in self.memory.items()}

    def look(self, t: int) -> None:
        """Queue the forward passes of row t."""
        within = slice(self.envs.start, self.envs.stop)
        for g in self.learner.groups:
            obs, raw = self.rollout.obs[g.name][t][within].flatten(0, 1), self.raw[g.name]
            start = self.learner.stored[g.name]["start"][t][within]  # written by the learner
            memory, left = self.memory.get(g.name), self.next.get(g.name)
            critic = self.rollout.critic_obs.get(g.name)
            critic = None if critic is None else critic[t][within].flatten(0, 1)
            for k, learner in enumerate(self.learners):
                before = None if memory is None else memory[k]
                parameters, _ = learner.see(g, obs, critic, before, start, left)
                action = self.action[g.name][k]
                self.samplers[g.name](parameters, action, raw=raw, mask=self.mask(g, t))
                if before is not None:
                    before.copy_(left)


# ---- the learner ---------------------------------------------------------------------------------


class PooledLearner:
    """Learner with an ``OpponentPool``. All other methods are those of the inner learner.

    The inner learner has its own rollout. There its actions are taken in all environments, and its
    agents are inactive where a snapshot plays, so that those rows have no weight. The actions for
    the environments are selected afterwards.

    Args:
        pool: ``OpponentPool``.
        inner: ``OnPolicyLearner`` of ``pool.settings``.

    Attributes:
        envs: Range of the P environments.
        sides: Number of groups in self-play, otherwise 1.
        plays: (T + 1, P) int32: ``slot * sides + side`` of each row, or -1 without a snapshot. In
            self-play, ``side`` is the group that the policy itself plays. Row 0 is the last row of
            the previous rollout.
        taken: (1,) int64, number of snapshots so far. Snapshot n is in slot n modulo S.
        bank: (S, ...) by name: tensors of each snapshot that determine its actions.
    """

    def __init__(self, pool: OpponentPool, inner: OnPolicyLearner) -> None:
        self.pool, self.inner, self.slots = pool, inner, pool.size + 1

    rollout: Rollout  # rollout of the inner learner
    envs: range
    sides: int

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the inner learner, such as the policy, losses or schedules."""
        return getattr(self.inner, name)

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``, and create the rollout of the inner learner."""
        if not self.inner.groups:
            self.rollout, inside = copy.copy(rollout), {}
            pools: list[PooledLearner] = []
            for name, player in rollout.player_of.items():
                if isinstance(player, PooledLearner):
                    inside[name] = player.inner
                    pools += [player] * (player not in pools)
            self.rollout.player_of = rollout.player_of | inside
            self.rollout.action, self.rollout.active = dict(rollout.action), dict(rollout.active)
            shares = [player.pool.share for player in pools]
            self.envs = environments(shares, pools.index(self), rollout.batch.num_envs)
            own = sum(player is self for player in rollout.player_of.values())
            others = [p for p in rollout.players if p is not self and hasattr(p, "update")]
            self.sides = 1 if others else own
        action, reward = rollout.action[group.name], rollout.reward[group.name]
        self.rollout.action[group.name] = torch.zeros_like(action)
        self.rollout.active[group.name] = torch.ones_like(reward, dtype=torch.bool)
        self.inner.begin(self.rollout, group)

    def prepare(self, rollout: Rollout) -> None:
        """Allocate the snapshots, and create the arguments of kernels."""
        self.inner.prepare(self.rollout)
        device, executor = rollout.device, rollout.batch.executor
        self.acting_tensors, self.bank = {}, {}
        for name, tensor in self.inner.tensors().items():
            if name.startswith((POLICY_PREFIX, MOMENTS_PREFIX)):
                self.acting_tensors[name] = tensor.detach()
                self.bank[name] = tensor.detach().new_zeros((self.slots, *tensor.shape))
        self.plays = zeros(device, rollout.steps + 1, len(self.envs), dtype=torch.int32).fill_(-1)
        self.taken, self.waited = (zeros(device, 1, dtype=torch.int64) for _ in range(2))
        self.program = executor.build(assemble_file("train/opponents"))
        self.past: Past | None = None
        if self.envs:
            kinds = (LayerwiseLearner, PartsPast), (KernelLearner, KernelPast)
            kind = next((past for made, past in kinds if isinstance(self.inner, made)), TorchPast)
            self.past = kind(self.inner, self.rollout, self.envs, self.bank, self.slots)
            self.draws = [self.draw_call(rollout, t) for t in range(1, rollout.steps + 1)]
        self.choices: list[list[np.ndarray]] = []
        for t in range(rollout.steps):
            self.choices.append([self.choice_call(rollout, g, t) for g in self.inner.groups])

    def draw_call(self, rollout: Rollout, t: int) -> np.ndarray:
        """Return ``struct Draw``, arguments for drawing the opponents of row t."""
        batch, first = rollout.batch, self.envs.start
        ints = {"num_envs": len(self.envs), "slots": self.slots, "sides": self.sides}
        ints |= {
            "first_env": batch.first_env + first,
            "agent": first_agent(batch, self.inner.groups[0]),
        }
        pointers = {"seed": as_torch(batch.seed), "clock": None}
        pointers |= {
            name: getattr(rollout, name)[t - 1][first:] for name in ("terminated", "truncated")
        }
        pointers |= {"taken": self.taken, "before": self.plays[t - 1], "plays": self.plays[t]}
        call = make_call(ints, pointers)
        call["clock"] = batch.executor.pointer(batch.clock[first:])
        return call

    def choice_call(self, rollout: Rollout, g: Group, t: int) -> np.ndarray:
        """Return ``struct Choice``, arguments for selecting the actions of one group in row t."""
        ints = {"num_envs": len(self.envs), "first": self.envs.start, "slots": self.slots}
        ints |= {"words": g.count * g.heads, "size": rollout.batch.num_envs * g.count * g.heads}
        ints |= {"sides": self.sides, "side": self.side(g)}
        pointers = {"plays": self.plays[t], "own": self.rollout.action[g.name][t]}
        pointers |= {"past": None if self.past is None else self.past.action[g.name]}
        return make_call(ints, pointers | {"action": rollout.action[g.name][t]})

    def side(self, g: Group) -> int:
        """Return the side of one group in self-play, otherwise -1."""
        return self.inner.groups.index(g) if self.sides > 1 else -1

    # ---- one iteration ----

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of the current policy, and those of snapshots where they play."""
        self.inner.act(self.rollout, t)
        if self.past is not None:
            if t > 0:
                self.draw(t)
            self.past.act(t)
        for call in self.choices[t]:
            self.program.launch("choose_actions", call, int(call["size"]), int(call["size"]))

    def draw(self, t: int) -> None:
        """Write row t of ``plays``."""
        self.program.launch("draw_opponents", self.draws[t - 1], len(self.envs), len(self.envs))

    def update(self, rollout: Rollout) -> None:
        """Learn from the rows that the policy itself has played. Take a snapshot if it is due."""
        within = slice(self.envs.start, self.envs.stop)
        with torch.no_grad(), rollout.stream():
            for g in self.inner.groups:
                active = self.rollout.active[g.name]
                if g.name in rollout.active:
                    active.copy_(rollout.active[g.name])
                else:
                    active.fill_(True)
                plays = self.plays[:-1]
                own = (plays < 0) | (plays % self.sides == self.side(g))
                active[:, within] &= own[..., None]
        self.inner.update(self.rollout)
        with torch.no_grad(), rollout.stream():
            over = rollout.starts(rollout.steps)[within]
            self.take(over)
            # now, since a checkpoint does not contain the ends of episodes in the last step
            if self.past is not None:
                self.draw(rollout.steps)
                self.plays[0].copy_(self.plays[-1])
                self.past.finish()

    def take(self, over: torch.Tensor) -> None:
        """Take a snapshot if it is due and the snapshot that it overwrites no longer plays.

        The device decides this.

        Args:
            over: (P,) bool, environments whose episode has just ended.
        """
        slot = self.taken % self.slots
        playing = self.plays[-2] // self.sides  # -1 without a snapshot
        busy = ((playing == slot) & ~over).any()
        self.waited += 1
        takes = (self.waited >= self.pool.every) & ~busy
        for name, kept in self.bank.items():
            now = self.acting_tensors[name][None]
            kept.index_copy_(0, slot, torch.where(takes, now, kept.index_select(0, slot)))
        self.taken += takes
        self.waited.masked_fill_(takes, 0)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a checkpoint by name."""
        own = {"taken": self.taken, "waited": self.waited, "plays": self.plays[0], **self.bank}
        memory = {} if self.past is None else self.past.memory
        own |= {f"memory.{name}": each for name, each in memory.items()}
        return self.inner.tensors() | {f"pool.{name}": tensor for name, tensor in own.items()}
