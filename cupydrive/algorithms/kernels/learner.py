"""PPO, A2C and PQN in kernels: acting, targets and learning without torch's operations.

The losses are those of ``ppo.py`` and ``a2c.py``. The weights are those of an ordinary module, and
checkpoints of both learners are compatible. In exact arithmetic every sum has a fixed order
(``kernels/learn/exact/gradient.cu``), so that a run has the same bits with any number of threads,
on a CPU and on a GPU.

Letters: T steps, N environments, C agents of a group, D observation entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from cupydrive.algorithms.kernels.arithmetic import Arithmetic
from cupydrive.algorithms.kernels.gradients import STORED, Task, minibatch_unit
from cupydrive.algorithms.kernels.layout import (
    PAD,
    NetworkLayout,
    observed_rows,
    padded,
    tensors_of,
    tower_modules,
    tower_tensors,
)
from cupydrive.algorithms.kernels.statistics import statistics_unit
from cupydrive.algorithms.kernels.steps import SCHEDULED
from cupydrive.algorithms.networks import make_network
from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.algorithms.settings import RolloutSettings
from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.errors import ParameterError
from cupydrive.executors.ahead import build_ahead
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import as_torch, make_call, zeros
from cupydrive.executors.ranks import Shard, current_ranks
from cupydrive.playing.policy import (
    ActorCritic,
    RecurrentActorCritic,
    Tower,
    first_agent,
    make_distribution,
)
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Program
from cupydrive.spec import Group

MOST_ROWS = 2**30  # maximum per iteration, because kernels use 32-bit indices


class KernelLearner(OnPolicyLearner):
    """One policy of PPO, A2C or PQN.

    Args:
        config: ``PPO`` or ``A2C`` that ``why_not`` of choice.py accepts.
        reported: Names of the logged metrics, in the order of ``metric_sums``.
        arithmetic: ``Arithmetic``.
    """

    def __init__(
        self, config: RolloutSettings, reported: tuple[str, ...], arithmetic: Arithmetic
    ) -> None:
        super().__init__(config)
        self.reported, self.arithmetic = reported, arithmetic

    def make(self, group: Group, rollout: Rollout) -> None:
        """Create the network and its state, while the required programs compile in parallel."""
        config, executor = self.config, rollout.batch.executor
        distribution = make_distribution(group, config.distribution)
        network = config.network_for(group)
        observed = observed_rows(group, network.one_hot)
        inputs = network.inputs(network.input_shape(group))
        layout = NetworkLayout.of(config, inputs, distribution.size, observed)
        agents = [g.count for g in rollout.batch.groups if rollout.player_of[g.name] is self]
        self.layout = layout
        self.task = Task(
            executor, layout, distribution, config, rollout.shard, rollout.steps, agents
        )
        self.tile, self.forward_unit = self.arithmetic.forward_unit(
            layout, distribution, executor, max(agents) * rollout.batch.num_envs
        )
        units = self.arithmetic.gradient_units(self.task)
        units += [
            minibatch_unit(self.task),
            layout.flat.unit("update", executor),
            self.forward_unit,
        ]
        units += [statistics_unit()] * config.statistics
        work: list[tuple[Any, Unit]] = [(executor, unit) for unit in units]
        build_ahead([(HostExecutor(), initial_unit()), *work])
        super().make(group, rollout)

    def network(self, group: Group, rollout: Rollout) -> nn.Module:
        """Return the network. ``make_optimizer`` fills its weights."""
        return make_network(self.config, group, self.distribution.size, rollout, initial=False)

    def make_optimizer(self, group: Group, rollout: Rollout) -> None:
        """Create the initial weights, the programs, the packed weights, and Adam's state."""
        batch, executor = rollout.batch, rollout.batch.executor
        device, weights = rollout.device, tensors_of(self.policy)
        fill_initial(self.policy, int(executor.get(batch.seed)[0]), first_agent(batch, group))
        self.skip_update = zeros(device)
        pairs = []
        for rms in (self.obs_rms, self.critic_rms):
            pairs += (
                [None, None] if rms is None else [zeros(device, len(rms.mean)) for _ in range(2)]
            )
        self.center, self.scale, self.critic_center, self.critic_scale = pairs
        nothing = zeros(device)  # PQN has neither an entropy nor a value loss
        shared = {name: getattr(self.scheduled, name, nothing) for name in SCHEDULED}
        shared |= {"skip": self.skip_update, "bad": self.bad, "iteration": self.iteration}
        shared["metric_sums"] = self.metric_sums
        self.steps = self.arithmetic.steps(executor, self.layout, weights, self.reported, shared)

    @cached_property
    def program(self) -> Program:
        """Program of forward passes."""
        return self.task.executor.build(self.forward_unit)

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of Adam's state by name, not copies."""
        place = {id(p): k for k, p in enumerate(tensors_of(self.policy))}
        return self.steps.tensors([place[id(p)] for p in self.policy.parameters()])

    def check(self, groups: Sequence[Group], num_envs: int) -> None:
        """Raise ``ParameterError`` for wrong settings, or too many rows for 32-bit indices."""
        super().check(groups, num_envs)
        own = Shard(num_envs, current_ranks()).num_envs
        rows = own * self.config.num_steps * sum(g.count for g in groups)
        if rows > MOST_ROWS:
            raise ParameterError(
                f"num_envs = {own:,} and num_steps = {self.config.num_steps} give {rows:,} rows "
                f"to learn from, but kernels learn from at most {MOST_ROWS:,}. Take fewer of "
                f"either, or backend='torch'"
            )

    def prepare(self, rollout: Rollout) -> None:
        """Allocate rows and gradients."""
        super().prepare(rollout)
        groups, stored = self.groups, self.stored
        columns = {
            "obs": [rollout.obs[g.name] for g in groups],
            "action": [self.taken(rollout, g) for g in groups],
            "mask": [rollout.action_mask.get(g.name) for g in groups],
            "active": [stored[g.name].get("weight") for g in groups],
        }
        for name in ("log_prob", "value", "advantage", "returns"):
            columns[name] = [stored[g.name][name] for g in groups]
        scheduled = ("clip_coef", "ent_coef", "vf_coef")
        shared = {name: getattr(self.scheduled, name, None) for name in scheduled}
        shared |= {"seed": as_torch(rollout.batch.seed), "iteration": self.iteration}
        shared |= {"skip": self.skip_update, "center": self.center, "scale": self.scale}
        shared |= {"packed": self.steps.packed, "weights": self.arithmetic.pointers(self.steps)}
        shared |= self.sequence_tensors()
        self.columns, self.shared = columns, shared
        self.gradients = self.arithmetic.gradients(self.task, columns, shared)
        target_kl = getattr(self.config, "target_kl", None)
        self.steps.attach(self.gradients, target_kl, self.config.rectified)
        if self.statistics is not None:
            for g in groups:
                for width in (g.obs_dim, g.critic_obs_dim * self.central):
                    self.statistics.reserve(rollout.steps, g.count, width)
        self.prepare_passes(rollout)

    def sequence_tensors(self) -> dict[str, Any]:
        """Return additional tensors for gradients of whole sequences, by name."""
        return {}

    def prepare_passes(self, rollout: Rollout) -> None:
        """Prepare the forward pass of each row."""
        rows = range(rollout.steps + 1)
        self.passes = {
            g.name: [self.forward_call(rollout, g, t) for t in rows] for g in self.groups
        }

    def rows_at_once(self, rollout: Rollout) -> int:
        """Return the maximum number of rows that are computed at the same time.

        These are the rows of a tile, or those whose outputs are stored.
        """
        part = self.rows(rollout) // getattr(self.config, "num_minibatches", 1)
        return max(self.tile, self.arithmetic.rows_at_once(self.layout, part))

    # ---- forward passes ----

    def forward_call(self, rollout: Rollout, g: Group, t: int, final: bool = False) -> np.ndarray:
        """Return ``struct Forward`` for row t of the observations.

        Actions are sampled in the same launch, except for the last row.

        Args:
            rollout: ``Rollout``.
            g: The ``Group``.
            t: Row.
            final: Use the final observations of truncated episodes instead.
        """
        stored, n = self.stored[g.name], rollout.batch.num_envs
        rows = n * g.count * (len(stored["final_value"]) if final else 1)
        pointers = {
            "obs": rollout.final_obs[g.name] if final else rollout.obs[g.name][t],
            "at": stored["truncated_at"] if final else None,
            "center": self.center,
            "scale": self.scale,
            "packed": self.steps.packed,
            "parameters": None,
            "value": stored["final_value"] if final else stored["value"][t],
        }
        pointers |= self.arithmetic.pointers(self.steps)
        teams = -(-rows // self.tile)
        if self.arithmetic.in_block:
            teams = min(teams, rollout.batch.executor.resident_teams(self.program, "forward_rows"))
        ints = {"rows": rows, "num_envs": n, "agents": g.count, "teams": teams}
        structs = {"sample": self.sample_of(rollout, g, t, final)}
        return make_call(ints, pointers, structs=structs)

    def sample_of(self, rollout: Rollout, g: Group, t: int, final: bool) -> np.ndarray:
        """Return ``struct Sample`` for actions and log-probabilities of row t.

        For a Box it also includes the raw actions. Without actions, which is so after the last
        step, it has the mask for action values. ``final`` observations have no mask.
        """
        if t == rollout.steps:
            call, mask = self.distribution.call(), rollout.mask(g, t)
            if mask is not None and not final:
                call["mask"] = mask.data_ptr()
            return call
        stored, raw = self.stored[g.name], self.stored[g.name]["raw"]
        return self.samplers[g.name].describe(
            rollout.action[g.name][t],
            stored["log_prob"][t],
            None if raw is None else raw[t],
            mask=rollout.mask(g, t),
        )

    def look(self, call: np.ndarray) -> None:
        """Queue one forward pass."""
        work = int(call["rows"]) * self.layout.packed // PAD
        self.program.launch("forward_rows", call, int(call["teams"]), work)

    def begin_rollout(self) -> None:
        """Prepare forward passes with the current weights and statistics."""
        self.steps.pack()
        about = (self.obs_rms, self.center, self.scale)
        of_critic = (self.critic_rms, self.critic_center, self.critic_scale)
        for rms, center, scale in (about, of_critic):
            if rms is not None and self.statistics is not None and scale is not None:
                self.statistics.scale(rms, center, scale)

    def act(self, rollout: Rollout, t: int) -> None:
        """Write actions, log-probabilities and values of row t by the current policy."""
        if t == 0:
            self.begin_rollout()
        for g in self.groups:
            self.look(self.passes[g.name][t])

    def last_values(self, rollout: Rollout, g: Group) -> None:
        """Compute the values after the last step and of truncated episodes' final observations."""
        if rollout.play is None:
            self.look(self.passes[g.name][-1])
        if len(self.stored[g.name]["final_value"]):
            self.look(self.forward_call(rollout, g, rollout.steps, final=True))

    # ---- learning ----

    def update(self, rollout: Rollout) -> None:
        """Compute advantages, then learn from all minibatches of all epochs."""
        with torch.no_grad(), rollout.stream():
            self.estimate(rollout)
            self.normalize_returns(rollout)
            self.gradients.arrange()
            self.gradients.learn(self.steps)
            self.finish(rollout)  # its kernels also run in torch's stream

    @property
    def tolerance(self) -> float:
        """Allowed relative difference between acting and learning with equal weights.

        It applies to log-probabilities and values. 0 requires equal bits.
        """
        return self.arithmetic.tolerance

    def replayed(self, rollout: Rollout) -> dict[str, torch.Tensor]:
        """Recompute log-probabilities and values as learning does. NaN for rows without weight.

        The kernels are those of ``update``, compiled to store both values.
        """
        like = self.columns["log_prob"]
        now = {name: [torch.full_like(rows, math.nan) for rows in like] for name in STORED}
        task, columns = replace(self.task, stores=True), self.columns | now
        gradients = self.arithmetic.gradients(task, columns, self.shared)
        with rollout.stream():
            gradients.arrange()
            for minibatch in range(gradients.minibatches):
                gradients.compute(0, minibatch)
        pairs = zip(*now.values(), strict=True)
        return {g.name: torch.stack(pair) for g, pair in zip(self.groups, pairs, strict=True)}

    def count(self) -> None:
        """Do nothing. The last minibatch's step has counted the iteration and reset ``skip``."""


# Gains of hidden layers, of gates, of the distribution's parameters, and of the value.
HIDDEN, GATES, ACTIONS, VALUE = math.sqrt(2), 1.0, 0.01, 1.0


def initial_unit() -> Unit:
    """Return the ``Unit`` of ``kernels/learn/initial.cu``, which always runs on the CPU."""
    return assemble_file("learn/initial")


def fill_initial(policy: ActorCritic | RecurrentActorCritic, seed: int, agent: int) -> None:
    """Write the initial weights of one seed into a described network.

    Weights are orthogonal and biases 0, as in ``playing/policy.py``.

    Args:
        policy: The module, changed in place.
        seed: Random seed in [0, 2**63).
        agent: Index of the policy's first agent. It makes the policies of one run different.
    """
    program = HostExecutor().build(initial_unit())
    number = 0  # index of a layer among those of all towers
    with torch.no_grad():
        for tower in tower_modules(policy):
            layers, gates = tower_tensors(tower), gate_layers(tower)
            last = len(layers) // 2 - 1
            for k, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
                bias.zero_()
                if weight.ndim == 1:  # gain of a layer normalization
                    weight.fill_(1.0)
                    parts = []
                elif k in gates:
                    parts = [(gate, GATES) for gate in weight.chunk(3)]
                elif k < last:
                    parts = [(weight, HIDDEN)]
                elif policy.shared and policy.valued:
                    parts = [(weight[: policy.size], ACTIONS), (weight[policy.size :], VALUE)]
                else:
                    parts = [
                        (weight, VALUE if policy.shared or tower is policy.critic else ACTIONS)
                    ]
                for part, (rows, gain) in enumerate(parts):
                    whose = agent, number, part
                    rows.copy_(orthogonal(program, rows.shape, gain, seed, whose))
                number += 1


def gate_layers(tower: nn.Module) -> range:
    """Return the indices of a core's layers among those of a tower."""
    if not isinstance(tower, Tower):
        return range(0)
    hidden, core = (len(list(part.parameters())) // 2 for part in (tower.encoder, tower.core))
    return range(hidden, hidden + core)


def orthogonal(
    program: Program, shape: Sequence[int], gain: float, seed: int, whose: tuple[int, int, int]
) -> torch.Tensor:
    """Return (OUT, IN) float32 on the CPU, with orthonormal rows or columns times ``gain``.

    Args:
        program: Program of ``learn/initial``.
        shape: (OUT, IN).
        gain: Factor.
        seed: Random seed.
        whose: (agent, layer, part of the layer), key of the random numbers.
    """
    vectors, length = sorted(shape)
    made, memory = zeros("cpu", *shape), zeros("cpu", vectors, padded(length))
    ints = {"vectors": vectors, "length": length, "by_columns": shape[0] > shape[1]}
    ints |= dict(zip(("agent", "layer", "part"), whose, strict=True))
    seeds = torch.tensor([seed], dtype=torch.int64, device="cpu")
    pointers = {"seed": seeds, "memory": memory, "weights": made}
    program.launch("make_initial", make_call(ints, pointers, floats={"gain": gain}), 1)
    return made
