"""Networks with convolutions, hidden state, normalization or many layers, in exact float32.

A network is computed layer by layer, each in a launch over all rows of a minibatch: convolutions,
hidden layers, the products of the core's gates, the scan over time, and the outputs. With hidden
state a minibatch has whole sequences, otherwise rows.

Letters: T steps, N environments, C agents of a group, D observation entries, M entries of a hidden
state, R padded rows of a minibatch (``sequences.cuh``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from cupydrive.algorithms.architecture import GRU
from cupydrive.algorithms.kernels.arithmetic import Arithmetic
from cupydrive.algorithms.kernels.cores import (
    GruKernels,
    MinGruKernels,
    point_states,
    scans_of,
    state_places,
)
from cupydrive.algorithms.kernels.gradients import Gradients, Shared, Task, minibatch_unit
from cupydrive.algorithms.kernels.layers import (
    PART_TEAM,
    ConvPart,
    Ends,
    KernelLaunch,
    LinearPart,
    Norm,
    Slots,
    take_unit,
)
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout, encoder_layers
from cupydrive.algorithms.kernels.layout import ONE_MEMBER_ROWS, PAD, observed_rows
from cupydrive.algorithms.kernels.learner import KernelLearner, initial_unit
from cupydrive.algorithms.kernels.statistics import statistics_unit
from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.codegen.source import Unit
from cupydrive.errors import ParameterError
from cupydrive.executors.ahead import build_ahead
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import zeros
from cupydrive.executors.ranks import Shard
from cupydrive.playing.policy import make_distribution
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group


class EncoderKernels:
    """Convolutions and hidden layers of one tower.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layers: Indices of their layers, including gains and biases of normalizations.
    """

    def __init__(self, task: Task, layers: range) -> None:
        assert isinstance(task.layout, LayerwiseLayout)
        self.task = task
        self.parts: list[tuple[LinearPart, Norm | None]] = []
        network, first = task.layout.network, layers.start
        convolutions, normed = network.convolutions(task.layout.obs_shape), network.layer_norm
        for k, layer in zip(layers[:: 1 + normed], convolutions, strict=False):
            conv = ConvPart(task, k, layer, observes=k == first, activated=not normed)
            self.parts.append((conv, Norm(task, k + 1, layer.positions) if normed else None))
        hidden = layers[len(convolutions) * (1 + normed) :]
        if normed:
            for k in hidden[::2]:
                part = LinearPart(task, range(k, k + 1), observes=k == first)
                self.parts.append((part, Norm(task, k + 1)))
            return
        # only parts of a single layer compute gradients of their inputs
        chains = [range(k, k + 1) for k in hidden] if convolutions else [hidden] * bool(hidden)
        for chain in chains:
            part = LinearPart(task, chain, observes=chain.start == first, activated=True)
            self.parts.append((part, None))

    @property
    def units(self) -> list[Unit]:
        """``Unit``s of their kernels."""
        return [each.unit for pair in self.parts for each in pair if each is not None]

    def acting(
        self, rows: int, packed: torch.Tensor
    ) -> tuple[list[KernelLaunch], torch.Tensor | None]:
        """Return the launches of ``rows`` rows, and the outputs or None without layers."""
        launches: list[KernelLaunch] = []
        x: torch.Tensor | None = None
        for part, norm in self.parts:
            out = zeros(self.task.executor.name, rows, part.outputs)
            launches.append(part.acting(rows, x, out, packed))
            if norm is not None:
                launches.append(norm.acting(rows, out, out, packed))
            x = out
        return launches, x

    def learning(
        self, slots: Slots
    ) -> tuple[list[KernelLaunch], torch.Tensor | None, torch.Tensor | None, list[KernelLaunch]]:
        """Return launches and tensors of learning.

        Returns:
            The launches of the forward pass, the outputs, rows for the outputs' gradients, and the
            launches of the backward pass.
        """
        forwards: list[KernelLaunch] = []
        backwards: list[KernelLaunch] = []
        x = x_grad = None
        for part, norm in self.parts:
            out, out_grad = slots.zeros(part.outputs), slots.zeros(part.outputs)
            grads = part.gradient_rows(out, out_grad)
            back = [slots.part(part, "gradient", **{"in": x}, **grads)]
            if x_grad is not None:
                back.append(slots.part(part, "input_gradient", **grads, in_grad=x_grad))
            if norm is None:
                forwards.append(slots.part(part, "forward_sequences", **{"in": x, "out": out}))
            else:
                left = slots.zeros(part.outputs)
                forwards.append(slots.part(part, "forward_sequences", **{"in": x, "out": left}))
                there, norm_back = norm.learning(slots, left, out, out_grad)
                forwards.append(there)
                back = [*norm_back, *back]
            backwards = [*back, *backwards]
            x, x_grad = out, out_grad
        return forwards, x, x_grad, backwards


class TowerKernels:
    """Kernels of one tower of a network.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        number: Index of the tower.

    Attributes:
        central: Whether it reads the observations of a central critic.
    """

    def __init__(self, task: Task, number: int) -> None:
        assert isinstance(task.layout, LayerwiseLayout)
        self.central = task.layout.central(number)
        layout, layers = task.layout.of_tower(number)
        self.task = task = replace(task, layout=layout)
        network = layout.network
        hidden = encoder_layers(network, layout.obs_shape)
        self.state_size = network.state_size
        self.encoder = EncoderKernels(task, layers[:hidden])
        self.places, self.core = state_places(network, number), None
        if network.core is not None:
            kernels = GruKernels if isinstance(network.core, GRU) else MinGruKernels
            self.core = kernels(task, layers[hidden:-1], not hidden, self.places.start)
        self.head = LinearPart(task, layers[-1:], not hidden and network.core is None)

    @property
    def units(self) -> list[Unit]:
        """``Unit``s of its kernels."""
        core = [] if self.core is None else self.core.units_of
        return [*self.encoder.units, *core, self.head.unit]

    def acting(self, rows: int, packed: torch.Tensor) -> tuple[list[KernelLaunch], torch.Tensor]:
        """Return the launches of one step of ``rows`` agents, and the outputs (rows, padded)."""
        launches, x = self.encoder.acting(rows, packed)
        if self.core is not None:
            core, x = self.core.acting(Ends(rows, 1, self.state_size), x, packed)
            launches += core
        out = zeros(self.task.executor.name, rows, self.head.outputs)
        return [*launches, self.head.acting(rows, x, out, packed)], out

    def learning(self, slots: Slots) -> tuple[list[KernelLaunch], torch.Tensor, list[KernelLaunch]]:
        """Return the forward launches, the outputs (R, padded), and the backward launches."""
        slots = slots.of_critic() if self.central else slots
        forwards, x, x_grad, backwards = self.encoder.learning(slots)
        if self.core is not None:
            out_grad = slots.zeros(self.head.inputs)
            of_core, x, core_back = self.core.learning(slots, x, x_grad, out_grad)
            forwards += of_core
            backwards, x_grad = [*core_back, *backwards], out_grad
        out = slots.zeros(self.head.outputs)
        forwards.append(slots.part(self.head, "forward_sequences", **{"in": x, "out": out}))
        head = [slots.part(self.head, "gradient", **{"in": x, "out": out})]
        if x_grad is not None:
            head.append(slots.part(self.head, "input_gradient", out=out, in_grad=x_grad))
        return forwards, out, [*head, *backwards]


def point_rows(
    learner: KernelLearner,
    launch: KernelLaunch,
    name: str,
    obs: torch.Tensor,
    critic_obs: torch.Tensor | None,
) -> None:
    """Set the observations of a launch. If ``critic_obs`` is given, they are a central critic's."""
    if critic_obs is None:
        launch.point(**{name: obs}, center=learner.center, scale=learner.scale)
    else:
        normal = {"center": learner.critic_center, "scale": learner.critic_scale}
        launch.point(**{name: critic_obs}, **normal)


def towers_of(task: Task) -> list[TowerKernels]:
    """Create the towers of a network that is computed layer by layer."""
    assert isinstance(task.layout, LayerwiseLayout)
    return [TowerKernels(task, k) for k in range(task.layout.network.towers)]


def loss_unit(task: Task, strides: Sequence[int], reported: int) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/layerwise/loss.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        strides: Row strides of each tower's outputs, in entries.
        reported: Stride between the reported sums of consecutive splits, in entries.
    """
    layout = task.layout
    assert isinstance(layout, LayerwiseLayout)
    constants = (
        ("TILE", PART_TEAM if task.executor.max_team > 1 else ONE_MEMBER_ROWS),
        ("PARAMETERS_STRIDE", strides[0]),
        ("VALUE_STRIDE", strides[-1]),
        ("VALUE_AT", layout.value_at),
        ("REPORTED_STRIDE", reported),
    )
    return task.unit("layerwise/loss", constants, PART_TEAM)


class LayerwiseGradients(Gradients):
    """Gradients of one policy that is computed layer by layer.

    The arguments are those of ``Gradients``. With a hidden state, ``shared`` also has ``start``
    (T, N, C) and ``first`` (N, C, M) of each group.
    """

    def build(self, task: Task, shared: Shared) -> None:
        """Prepare the launches of ``compute``."""
        about = {"chunks": self.memory["chunks"], "partial_sums": self.partial_sums, **shared}
        slots, towers = Slots(task, self.call, about), towers_of(task)
        forwards: list[KernelLaunch] = []
        backwards: list[KernelLaunch] = []
        outputs = []
        for tower in towers:
            there, out, back = tower.learning(slots)
            forwards += there
            backwards += back
            outputs.append(out)
        pointers = {"parameters": outputs[0], "value": outputs[-1]}
        pointers |= {"parameter_grad": None, "value_grad": None}
        pointers["reported"] = self.partial_sums.view(-1)[task.layout.gradient - PAD :]
        program = task.executor.build(
            loss_unit(task, [tower.head.outputs for tower in towers], task.layout.gradient)
        )
        work = slots.rows * outputs[0].shape[1]
        loss = KernelLaunch(program, "loss", slots.splits, work, pointers, learn=self.call)
        self.launches = [*slots.take(), *forwards, loss, *backwards]

    def compute(self, epoch: int, minibatch: int) -> None:
        """Compute ``partial_sums`` of one minibatch from ``arrange``."""
        for launch in self.launches:
            launch.choose(epoch, minibatch)
            launch()
        self.exchange()


LAYERWISE = Arithmetic(
    "float32",
    lambda *_: None,
    lambda task: [],
    LayerwiseGradients,
    tolerance=0.0,
)


class LayerwiseLearner(KernelLearner):
    """Base class of learners whose policy is computed layer by layer.

    The arguments are those of ``KernelLearner``.
    """

    layout: LayerwiseLayout

    def make(self, group: Group, rollout: Rollout) -> None:
        """Create the network and its state, while the required programs compile in parallel."""
        config, executor = self.config, rollout.batch.executor
        distribution = make_distribution(group, config.distribution)
        agents = [g.count for g in rollout.batch.groups if rollout.player_of[g.name] is self]
        network = config.network_for(group)
        seen = network.input_shape(group)
        about = network, seen, distribution.size, observed_rows(group, network.one_hot)
        critic_dim = config.central * group.critic_obs_dim
        self.layout = layout = LayerwiseLayout.made(*about, critic_dim)
        drawn = sum(agents) * (1 if layout.sequences else rollout.steps)
        shard = sequence_shard(rollout.shard, drawn, getattr(config, "num_minibatches", 1))
        self.task = Task(executor, layout, distribution, config, shard, rollout.steps, agents)
        units = [*self.units(), minibatch_unit(self.task), distribution.unit()]
        units.append(layout.unit("update", executor))
        units += [statistics_unit()] * config.statistics
        build_ahead([(HostExecutor(), initial_unit()), *((executor, unit) for unit in units)])
        OnPolicyLearner.make(self, group, rollout)

    def units(self) -> list[Unit]:
        """Return the ``Unit``s of the network's kernels."""
        raise NotImplementedError

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``: allocate its rows and the flags of beginning episodes."""
        super().begin(rollout, group)
        shape, stored = (
            (rollout.steps + 1, rollout.batch.num_envs, group.count),
            self.stored[group.name],
        )
        stored["start"] = zeros(rollout.device, *shape, dtype=torch.uint8)
        stored["critic_obs"] = rollout.critic_obs.get(group.name)

    def rows_at_once(self, rollout: Rollout) -> int:
        """Return the number of rows of a minibatch."""
        return self.task.minibatch_rows

    def sequence_tensors(self) -> dict[str, Any]:
        """Return beginnings of episodes and states before the first step, by group.

        With a central critic also its observations.
        """
        stored = [self.stored[g.name] for g in self.groups]
        found: dict[str, Any] = {}
        if self.layout.sequences:
            found["start"] = [each["start"] for each in stored]
            found["first"] = [each["memory"][0] for each in stored]
        if self.central:
            found["critic_obs"] = [each["critic_obs"] for each in stored]
            found |= {"critic_center": self.critic_center, "critic_scale": self.critic_scale}
        return found

    def prepare_passes(self, rollout: Rollout) -> None:
        """Prepare the forward passes of one step."""
        self.steps_of = self.passes_of(rollout.batch.num_envs)

    def passes_of(self, num_envs: int) -> dict[str, Any]:
        """Return the forward passes of one step of ``num_envs`` environments, by group."""
        raise NotImplementedError

    def see(
        self,
        g: Group,
        obs: torch.Tensor,
        critic_obs: torch.Tensor | None,
        before: torch.Tensor | None,
        start: torch.Tensor | None,
        after: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queue the forward pass of one step.

        Args:
            g: ``Group``.
            obs: (N * C, D) observations.
            critic_obs: (N * C, K) observations of a central critic, or None.
            before: (N * C, M) hidden states, or None without hidden state.
            start: (N * C,) uint8, where they are reset first, or None.
            after: (N * C, M), to which the next hidden states are written, or None.

        Returns:
            Parameters (N * C, size) and values (N * C,), which the next call overwrites.
        """
        raise NotImplementedError

    def act(self, rollout: Rollout, t: int) -> None:
        """Write actions, log-probabilities and values of row t by the current policy."""
        if t == 0:
            self.begin_rollout()
        for g in self.groups:
            stored, start = self.stored[g.name], self.note_start(rollout, g, t)
            obs, memory = rollout.obs_rows(g, t), stored["memory"]
            before, after = (None, None) if memory is None else (memory[t], memory[t + 1])
            seen = obs, self.critic_rows(rollout, g, t)
            parameters, value = self.see(g, *seen, before, start, after)
            rows = {"log_prob": stored["log_prob"][t], "value_row": stored["value"][t]}
            rows |= {
                "mask": rollout.mask(g, t),
                "raw": None if stored["raw"] is None else stored["raw"][t],
            }
            self.samplers[g.name](parameters, rollout.action[g.name][t], value=value, **rows)

    def note_start(self, rollout: Rollout, g: Group, t: int) -> torch.Tensor:
        """Store where episodes begin with row t, (N, C) uint8, and return it.

        Without a hidden state this is not needed, and they remain 0.
        """
        start = self.stored[g.name]["start"][t]
        # `finish` has reset the states of episodes that ended in the previous rollout
        if t > 0 and self.layout.sequences:
            ended = (
                x[t - 1][:, None].expand(-1, g.count)
                for x in (rollout.terminated, rollout.truncated)
            )
            torch.logical_or(*ended, out=start.view(torch.bool))
        return start

    def last_values(self, rollout: Rollout, g: Group) -> None:
        """Compute the values after the last step and of truncated episodes' final observations."""
        stored, n, steps = self.stored[g.name], rollout.batch.num_envs, rollout.steps
        memory = stored["memory"]
        if rollout.play is None:
            start = self.note_start(rollout, g, steps)
            before = None if memory is None else memory[-1]
            mask = rollout.mask(g, -1)
            mask = None if mask is None else mask.flatten(0, 1)
            seen = rollout.obs_rows(g, -1), self.critic_rows(rollout, g, -1)
            found = self.see(g, *seen, before, start, None)
            stored["value"][-1].copy_(self.distribution.value(*found, mask).view(n, -1))
        every = torch.arange(n, device=rollout.device)
        for slot, at in enumerate(stored["truncated_at"]):
            rows = at * n + every
            final = self.final_rows(rollout.final_obs, g, rows)
            critic = self.final_rows(rollout.final_critic_obs, g, rows)
            left = None
            if memory is not None:  # hidden state after the last step
                left = memory[1:].view(steps * n, -1).index_select(0, rows)
            value = self.distribution.value(*self.see(g, final, critic, left, None, None))
            stored["final_value"][slot].copy_(value.view(n, -1))


class ExactLayerwiseLearner(LayerwiseLearner):
    """PPO, A2C or PQN of a policy that is computed layer by layer, in exact float32."""

    def units(self) -> list[Unit]:
        """Return the ``Unit``s of the network's kernels."""
        self.towers = towers_of(self.task)
        units = [unit for tower in self.towers for unit in tower.units]
        strides = [tower.head.outputs for tower in self.towers]
        loss = loss_unit(self.task, strides, self.layout.gradient)
        return [*units, loss, take_unit(self.task)]

    def passes_of(self, num_envs: int) -> dict[str, Any]:
        """Return the forward passes of one step of ``num_envs`` environments, by group."""
        passes = {}
        for g in self.groups:
            rows = num_envs * g.count
            made = [tower.acting(rows, self.steps.packed) for tower in self.towers]
            scans = [
                pair
                for tower, (launches, _) in zip(self.towers, made, strict=True)
                for pair in zip(scans_of(launches), tower.places, strict=True)
            ]
            passes[g.name] = [x for x, _ in made], [out for _, out in made], scans
        return passes

    def see(
        self,
        g: Group,
        obs: torch.Tensor,
        critic_obs: torch.Tensor | None,
        before: torch.Tensor | None,
        start: torch.Tensor | None,
        after: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queue the forward pass of one step, as in ``LayerwiseLearner``."""
        passes, outputs, scans = self.steps_of[g.name]
        point_states(scans, before, start, after)
        for tower, launches in zip(self.towers, passes, strict=True):
            point_rows(self, launches[0], "in", obs, critic_obs if tower.central else None)
            for launch in launches:
                launch()
        size = self.layout.size
        return outputs[0][:, :size], outputs[-1][:, self.layout.value_at]


def sequence_shard(shard: Shard, drawn: int, minibatches: int) -> Shard:
    """Return the blocks of a process for whole sequences, with one sequence per minibatch.

    Args:
        shard: Environments of this process.
        drawn: Sequences of one environment.
        minibatches: Minibatches of one epoch.

    Raises:
        ParameterError: If blocks of that size would cross processes.
    """
    fitting = max(1, shard.all_envs * drawn // minibatches)
    blocks = min(shard.all_blocks, fitting)
    if blocks >= shard.ranks.size:
        found = replace(shard, most_blocks=blocks)
        ranks = range(shard.ranks.size)
        if all(found.envs_of(rank) == shard.envs_of(rank) for rank in ranks):
            return found
    raise ParameterError(
        f"num_envs = {shard.all_envs} and num_minibatches = {minibatches} leave {blocks} blocks of "
        f"sequences, which {shard.ranks.size} processes cannot share evenly. Take more "
        f"environments, or fewer minibatches"
    )
