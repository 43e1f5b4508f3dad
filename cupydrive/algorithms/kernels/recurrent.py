"""Networks with convolutions, hidden state, normalization or many layers, in exact float32.

The kernels are in ``kernels/learn/recurrent``. A network is computed part by part, each in a launch
over all rows of a minibatch: hidden layers, the products of the core's gates, the scan over time,
and the outputs. Each part writes its results to global memory, from which the next one reads them.
With hidden state a minibatch has whole sequences, otherwise rows.

Letters: T steps, N environments, C agents of a group, D observation entries, M entries of a hidden
state, R padded rows of a minibatch (``sequences.cuh``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from cupydrive.algorithms.architecture import GRU, ConvLayer, MinGRU, Network
from cupydrive.algorithms.kernels.arithmetic import Arithmetic
from cupydrive.algorithms.kernels.gradients import (
    Gradients,
    Shared,
    Task,
    minibatch_unit,
)
from cupydrive.algorithms.kernels.layout import (
    ONE_MEMBER_ROWS,
    PAD,
    Constants,
    NetworkLayout,
    observed_rows,
    padded,
    widest,
)
from cupydrive.algorithms.kernels.learner import KernelLearner, initial_unit
from cupydrive.algorithms.kernels.statistics import statistics_unit
from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.errors import ParameterError
from cupydrive.executors.ahead import build_ahead
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call, zeros
from cupydrive.executors.ranks import Shard
from cupydrive.playing.policy import make_distribution
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Executor, Program
from cupydrive.scans import STEPS_AT_ONCE, exact_gru_unit, mingru_unit
from cupydrive.spec import Group

PART_TEAM = 256  # threads of one team on a GPU
PART_ROWS, TEAM_SEQUENCES = 32, 16  # maximum of a team on a GPU
PATCHES = 128  # maximum of a team on a GPU
ABREAST = 4  # pixels whose gradients one thread of a team computes at once
NORM_ROWS = 64  # rows of a CPU thread in norm.cu. A GPU's warp has one row
NORM_CHAINS = 32  # columns of a strip in norm.cu, the lanes of a warp
NORM_PIECES = 2048  # maximum of teams whose sums of gradients are added in bfloat16
ROW_PARTS = "#define PACK_FIRST 1\n"  # pack weights for gradients of the inputs also
ACTIVATED = "#define ACTIVATE_LAST 1\n"


@dataclass(frozen=True)
class RecurrentLayout(NetworkLayout):
    """Sizes of a network that is computed by parts. Its ``towers`` are the linear layers.

    Args:
        network: Description of the network.
        obs_shape: Shape of one observation.
        critic_dim: K of a central critic, or 0.
    """

    network: Network = field(default_factory=Network)
    obs_shape: tuple[int, ...] = ()
    critic_dim: int = 0

    @property
    def obs_dim(self) -> int:
        """D."""
        return math.prod(self.obs_shape)

    @property
    def sequences(self) -> bool:
        """Whether minibatches have whole sequences of an agent's rows, due to a hidden state."""
        return self.network.core is not None

    @classmethod
    def made(
        cls,
        network: Network,
        obs_shape: tuple[int, ...],
        size: int,
        observed: str = "",
        critic_dim: int = 0,
    ) -> RecurrentLayout:
        """Return the layout of a described network with ``size`` distribution parameters."""
        outputs = network.outputs(size)
        inputs = zip(network.tower_inputs(obs_shape, critic_dim), outputs, strict=True)
        layers = [layer for tower, out in inputs for layer in tower_layers(*tower, out)]
        relu = network.activation == "relu"
        return cls(
            tuple(layers),
            size,
            relu,
            observed,
            network=network,
            obs_shape=obs_shape,
            critic_dim=critic_dim,
        )

    def central(self, tower: int) -> bool:
        """Return whether a tower is a central critic."""
        return self.critic_dim > 0 and tower == 1

    def of_tower(self, number: int) -> tuple[RecurrentLayout, range]:
        """Return this layout for a single tower, and the indices of the tower's layers.

        It has the network and the observations of that tower.
        """
        first, every = 0, self.network.tower_inputs(self.obs_shape, self.critic_dim)
        for network, shape in every[:number]:
            first += len(tower_layers(network, shape, 1))
        network, shape = every[number]
        observed = "" if self.central(number) else self.observed
        own = replace(self, network=network, obs_shape=shape, observed=observed, critic_dim=0)
        return own, range(first, first + len(tower_layers(network, shape, 1)))

    @property
    def value_at(self) -> int:
        """Index of the value among the last tower's outputs. Arbitrary without a critic."""
        return self.size if self.network.shared and self.network.valued else 0

    @cached_property
    def packed(self) -> int:
        """Floats of all packed weights."""
        return self.forward_packed + sum(out * padded(into) for into, out in self.layers)

    def places(self, layer: int) -> tuple[int, int, int]:
        """Return the offsets of a layer: in forward weights, backward weights, and a gradient."""
        before = self.layers[:layer]
        return (
            sum((into + 1) * padded(out) for into, out in before),
            self.forward_packed + sum(out * padded(into) for into, out in before),
            sum(out * padded(into) + padded(out) for into, out in before),
        )

    def unit(
        self,
        path: str,
        executor: Executor,
        constants: Constants = (),
        spaces: str = "",
        team: int | None = None,
    ) -> Unit:
        """Return the ``Unit`` of ``kernels/learn/PATH.cu`` for these layers."""
        return super().unit(path, executor, constants, ROW_PARTS + spaces, team)


def tower_layers(
    network: Network, obs_shape: tuple[int, ...], outputs: int
) -> list[tuple[int, int]]:
    """Return (inputs, outputs) of the layers of one tower.

    They are the convolutions at one position, the hidden layers, those of the core, and the last
    one. Gains and biases of a normalization are a layer of one input.
    """
    core, widths = network.core, (network.inputs(obs_shape), *network.hidden)
    layers = [(each.inputs, each.channels) for each in network.convolutions(obs_shape)]
    for pair in pairwise(widths):
        layers += [pair, (1, pair[1])] if network.layer_norm else [pair]
    if isinstance(core, GRU):
        layers += [(widths[-1], 3 * core.size), (core.size, 3 * core.size)]
    elif isinstance(core, MinGRU):
        layers += [(core.size, 3 * core.size)] * core.layers
    return [*layers, (widths[-1] if core is None else core.size, outputs)]


def fits(layout: RecurrentLayout, executor: Executor) -> bool:
    """Return whether one row of each part fits into a team's memory."""
    parts = [*layout.towers]
    for network, shape in layout.network.tower_inputs(layout.obs_shape, layout.critic_dim):
        if not network.layer_norm and network.conv is None:  # layers form one part
            parts.append((math.prod(shape), *network.hidden))
    return all(4 * sum(map(padded, widths)) <= executor.team_bytes for widths in parts)


# ---- parts ---------------------------------------------------------------------------------------


class KernelLaunch:
    """A kernel with its argument and the memory that it points to.

    Args:
        program: ``Program``.
        kernel: Name of the kernel.
        elements: Number of elements.
        work: Approximate number of operations.
        pointers: Tensors by name, or None.
        ints: Integers by name.
        learn: ``struct Learn`` at the beginning of the argument, or None.
    """

    def __init__(
        self,
        program: Program,
        kernel: str,
        elements: int,
        work: int,
        pointers: Mapping[str, torch.Tensor | None],
        ints: Mapping[str, int] | None = None,
        learn: np.ndarray | None = None,
    ) -> None:
        self.program, self.kernel, self.elements, self.work = program, kernel, elements, work
        self.pointers, self.learns = pointers, learn is not None
        structs = {} if learn is None else {"learn": learn}
        self.call = make_call(ints or {}, pointers, structs=structs)

    def choose(self, epoch: int, minibatch: int) -> None:
        """Select a minibatch, if the argument has ``struct Learn``."""
        if self.learns:
            self.call["learn"]["epoch"], self.call["learn"]["minibatch"] = epoch, minibatch

    def point(self, **tensors: torch.Tensor | None) -> None:
        """Set pointers to other tensors, which the caller must keep alive."""
        for name, tensor in tensors.items():
            self.call[name] = 0 if tensor is None else tensor.data_ptr()

    def __call__(self) -> None:
        """Queue the launch."""
        self.program.launch(self.kernel, self.call, self.elements, self.work)


class PartKernels:
    """Base class of a part of the network with its own kernels."""

    task: Task
    unit: Unit

    @cached_property
    def program(self) -> Program:
        """Program of the kernels."""
        return self.task.executor.build(self.unit)


class LinearPart(PartKernels):
    """Consecutive linear layers: ``kernels/learn/recurrent/part.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layers: Indices of the layers.
        observes: Whether the part reads observations.
        activated: Whether the last layer is a hidden one.
        adds: Whether gradients of the inputs are added to existing values.
        sizes: Additional constants of the file.
    """

    path = "recurrent/part"
    rows: tuple[str, ...] = ("in", "out", "in_grad", "activations")
    team_rows = PART_ROWS

    def __init__(
        self,
        task: Task,
        layers: range,
        observes: bool = False,
        activated: bool = False,
        adds: bool = False,
        sizes: Constants = (),
    ) -> None:
        layout = task.layout
        assert isinstance(layout, RecurrentLayout)
        self.task = task
        widths = [layout.layers[k] for k in layers]
        tower = (widths[0][0], *(out for _, out in widths))
        self.outputs, self.inputs = padded(tower[-1]), padded(tower[0])
        self.forward_at, self.backward_at, self.gradient_at = layout.places(layers.start)
        if len(layers) > 1:  # gradients of the first layer's inputs are not needed
            self.backward_at = layout.places(layers[1])[1]
        own = NetworkLayout((tower,), tower[-1], layout.relu, layout.observed * observes)
        row_bytes = own.tile_bytes + (own.spare_bytes if task.executor.max_team > 1 else 0)
        rows = self.team_rows if task.executor.max_team > 1 else ONE_MEMBER_ROWS
        self.tile = widest(row_bytes, task.executor.team_bytes, rows).rows
        constants = (
            ("TILE", self.tile),
            ("ADDS", adds),
            *sizes,
            ("TOTAL_FLOATS", layout.gradient),
            *sequence_constants(task),
        )
        spaces = ROW_PARTS * (len(layers) == 1) + ACTIVATED * activated
        spaces += f"#define OBSERVES {int(observes)}\n"
        self.unit = own.unit(self.path, task.executor, constants, spaces, PART_TEAM)
        self.work = own.packed  # products per row

    def tiles(self, rows: int, kernel: str = "") -> int:
        """Return the number of tiles of a kernel for ``rows`` rows."""
        return -(-rows // self.tile)

    def gradient_rows(self, out: torch.Tensor, out_grad: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the tensors of gradients, other than inputs, by name.

        They are the outputs and their gradients. The latter become the gradients of the last
        product in place.
        """
        return {"out": out_grad, "activations": out}

    def weights(self, packed: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the forward weights from this part on, by name."""
        return {"weights": packed[self.forward_at :]}

    def acting(
        self, rows: int, x: torch.Tensor | None, out: torch.Tensor, packed: torch.Tensor
    ) -> KernelLaunch:
        """Return the launch of ``rows`` rows.

        Args:
            rows: Number of rows.
            x: Inputs. None for observations, which the caller sets.
            out: Outputs.
            packed: Packed weights.
        """
        pointers = {"in": x, "center": None, "scale": None, **self.weights(packed), "out": out}
        about = self.tiles(rows), rows * self.work
        return KernelLaunch(self.program, "act_rows", *about, pointers, {"rows": rows})


class ConvPart(LinearPart):
    """A convolutional layer: ``kernels/learn/recurrent/conv.cu``. Its tiles consist of patches.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        number: Index of the layer.
        layer: Sizes of the layer.
        observes: Whether it reads observations.
    """

    path = "recurrent/conv"
    rows = ("in", "out", "out_grad", "in_grad")
    team_rows = PATCHES

    def __init__(self, task: Task, number: int, layer: ConvLayer, observes: bool) -> None:
        self.layer = layer
        names = "IMAGE_HEIGHT", "IMAGE_WIDTH", "CHANNELS", "SPAN", "STRIDE", "ABREAST"
        sizes = list(zip(names, (*layer.image, layer.kernel, layer.stride, ABREAST), strict=True))
        super().__init__(task, range(number, number + 1), observes, activated=True, sizes=sizes)
        self.inputs, self.outputs = padded(math.prod(layer.image)), padded(math.prod(layer.out))
        self.work *= layer.positions

    def gradient_rows(self, out: torch.Tensor, out_grad: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the tensors of gradients, other than inputs, by name."""
        return {"out": out, "out_grad": out_grad}

    def tiles(self, rows: int, kernel: str = "") -> int:
        """Return the number of tiles of patches, or of groups of pixels, for ``rows`` rows."""
        if kernel != "input_gradient":
            return super().tiles(rows * self.layer.positions)
        (height, width, _), stride = self.layer.image, self.layer.stride
        return super().tiles(rows * height * stride * -(-width // (stride * ABREAST)))


# ---- cores ---------------------------------------------------------------------------------------


class Slots:
    """Memory for the rows of one minibatch, and common arguments of the launches of learning.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        learn: ``struct Learn``.
        shared: Tensors by name: ``packed``, ``chunks`` and ``partial_sums``. ``start`` and
            ``first`` have one tensor per group. A central critic also has ``critic_obs`` with one
            tensor per group, and ``critic_center`` and ``critic_scale``, or None.
    """

    def __init__(self, task: Task, learn: np.ndarray, shared: Shared) -> None:
        assert isinstance(task.layout, RecurrentLayout)
        self.task, self.learn, self.shared = task, learn, shared
        shard = task.shard
        envs = -(-shard.all_envs // shard.all_blocks)
        steps = task.steps if task.layout.sequences else 1
        self.most = -(-envs * task.rows_of_env // steps // task.minibatches)
        self.blocks, self.splits = len(shard.blocks), int(learn["splits"])
        self.slot = steps * self.most
        self.rows = self.blocks * self.slot
        device, state = task.executor.name, task.layout.network.state_size
        self.start = zeros(device, self.rows, dtype=torch.uint8)
        self.first = zeros(device, self.blocks * self.most, state)
        self.ends = Ends(self.blocks * self.most, steps, state, self.start, self.first)

    def of_critic(self) -> Slots:
        """Return the same memory for rows of a central critic."""
        other = copy(self)
        other.learn = self.learn.copy()
        seen = {f"obs.{g}": rows for g, rows in enumerate(self.shared["critic_obs"])}
        seen |= {name: self.shared[f"critic_{name}"] for name in ("center", "scale")}
        for name, tensor in seen.items():
            other.learn[name] = 0 if tensor is None else tensor.data_ptr()
        return other

    def zeros(self, columns: int) -> torch.Tensor:
        """Allocate rows of ``columns`` entries, all 0."""
        return zeros(self.task.executor.name, self.rows, columns)

    def part(self, part: LinearPart, kernel: str, **tensors: torch.Tensor | None) -> KernelLaunch:
        """Return a launch of a part's kernel."""
        packed, floats = self.shared["packed"], part.gradient_at
        pointers = {name: tensors.get(name) for name in part.rows}
        pointers |= {**part.weights(packed), "backwards": packed[part.backward_at :]}
        alone = self.task.executor.max_team == 1  # single threads have another layout of chunks
        pointers["chunks"] = self.shared["chunks"].view(-1)[0 if alone else floats :]
        pointers["partial_sums"] = self.shared["partial_sums"].view(-1)[floats:]
        tiles = self.blocks * part.tiles(self.slot, kernel)
        elements = self.splits if kernel == "gradient" else tiles
        about = elements, self.rows * part.work
        return KernelLaunch(part.program, kernel, *about, pointers, learn=self.learn)

    def take(self) -> list[KernelLaunch]:
        """Return the launch that writes ``start`` and ``first``, if there is a hidden state."""
        if not self.task.layout.sequences:
            return []
        pointers: dict[str, torch.Tensor] = {"start": self.start, "first": self.first}
        for name in ("start", "first"):
            pointers |= {f"{name}.{g}": tensor for g, tensor in enumerate(self.shared[name])}
        program = self.task.executor.build(take_unit(self.task))
        return [KernelLaunch(program, "take", self.blocks, self.rows, pointers, learn=self.learn)]


def take_unit(task: Task) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/recurrent/take.cu``."""
    assert isinstance(task.layout, RecurrentLayout)
    state = ("STATE", task.layout.network.state_size)
    constants = (*sequence_constants(task), state)
    return assemble_file(
        "learn/recurrent/take", constants, team=min(PART_TEAM, task.executor.max_team)
    )


def sequence_constants(task: Task) -> Constants:
    """Return the constants of ``kernels/learn/recurrent/sequences.cuh``."""
    return (("AGENT_GROUPS", len(task.agents)), ("SEQUENCES", task.layout.sequences))


@dataclass(frozen=True)
class Ends:
    """Boundary states of scans of sequences.

    Args:
        count: Number of sequences.
        steps: Length of each sequence.
        stride: Stride between the states of consecutive sequences, in entries.
        start: (steps * count) uint8. None if the caller sets the pointer.
        states: (count, M) float32 before the first step. None if the caller sets the pointer.
    """

    count: int
    steps: int
    stride: int
    start: torch.Tensor | None = None
    states: torch.Tensor | None = None

    @property
    def ints(self) -> dict[str, int]:
        """Integers of a scan's argument, by name."""
        return {"count": self.count, "steps": self.steps, "stride": self.stride}

    def state(self, at: int) -> torch.Tensor | None:
        """Return the states from entry ``at`` of an agent's hidden state on."""
        return None if self.states is None else self.states.view(-1)[at:]


class GruKernels(PartKernels):
    """GRU core of one tower: ``kernels/learn/recurrent/gru.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layers: Indices of its two layers, for the inputs and for the state.
        observes: Whether it reads observations.
        state_at: Offset of its states in an agent's hidden state.
    """

    def __init__(self, task: Task, layers: range, observes: bool, state_at: int) -> None:
        layout, executor = task.layout, task.executor
        assert isinstance(layout, RecurrentLayout)
        self.task, self.size, self.state_at = task, layout.layers[layers[1]][0], state_at
        self.units, self.gates = padded(self.size), padded(3 * self.size)
        self.inner, self.outer = (
            LinearPart(task, range(k, k + 1), observes and k == layers[0]) for k in layers
        )
        sequences, wanted = -(-task.minibatch_rows // task.steps), TEAM_SEQUENCES
        if executor.max_team > 1:
            wanted = min(wanted, -(-sequences // executor.processors))
        self.tile = widest(4 * (self.units + self.gates), executor.team_bytes, wanted).rows
        self.unit = exact_gru_unit(executor, self.size, self.tile)

    @property
    def units_of(self) -> list[Unit]:
        """``Unit``s of its kernels."""
        return [self.unit, self.inner.unit, self.outer.unit]

    def scan(
        self, kernel: str, ends: Ends, pointers: Mapping[str, torch.Tensor | None]
    ) -> KernelLaunch:
        """Return a launch of the scan."""
        teams, work = -(-ends.count // self.tile), ends.count * ends.steps * self.size * self.gates
        return KernelLaunch(self.program, kernel, teams, work, pointers, ends.ints)

    def acting(
        self, ends: Ends, x: torch.Tensor | None, packed: torch.Tensor
    ) -> tuple[list[KernelLaunch], torch.Tensor]:
        """Return the launches of one step, and the outputs.

        Args:
            ends: Boundary states.
            x: Inputs, or None for observations.
            packed: Packed weights.
        """
        device, rows = self.task.executor.name, ends.count
        gates, out = zeros(device, rows, self.gates), zeros(device, rows, self.units)
        pointers = {**self.outer.weights(packed), "start": None, "gates": gates, "inner": None}
        pointers |= {"before": None, "state": None, "out": out, "next": None}
        inner = self.inner.acting(rows, x, gates, packed)
        return [inner, self.scan("forward", ends, pointers)], out

    def learning(
        self,
        slots: Slots,
        x: torch.Tensor | None,
        x_grad: torch.Tensor | None,
        out_grad: torch.Tensor,
    ) -> tuple[list[KernelLaunch], torch.Tensor, list[KernelLaunch]]:
        """Return the launches of the forward pass, the outputs, and those of the backward pass.

        Args:
            slots: ``Slots``.
            x: (R, inputs), or None for observations.
            x_grad: (R, inputs), gradients of the inputs, which are written, or None.
            out_grad: (R, units), gradients of the outputs.
        """
        gates, products = slots.zeros(self.gates), slots.zeros(self.gates)
        inner, before, out = (slots.zeros(self.units) for _ in range(3))
        packed = slots.shared["packed"]
        of = {"start": slots.start, "gates": gates, "inner": inner, "before": before}
        there = {**self.outer.weights(packed), **of, "state": slots.ends.state(self.state_at)}
        there |= {"out": out, "next": None}
        back = {"weights": packed[self.outer.backward_at :], **of, "d_out": out_grad}
        back |= {"d_next": None, "d_gates": gates, "d_products": products, "d_state": None}
        forwards = [
            slots.part(self.inner, "forward_sequences", **{"in": x, "out": gates}),
            self.scan("forward", slots.ends, there),
        ]
        backwards = [
            self.scan("backward", slots.ends, back),
            slots.part(self.outer, "gradient", **{"in": before, "out": products}),
            slots.part(self.inner, "gradient", **{"in": x, "out": gates}),
        ]
        if x_grad is not None:
            backwards.append(slots.part(self.inner, "input_gradient", out=gates, in_grad=x_grad))
        return forwards, out, backwards


class MinGruKernels(PartKernels):
    """MinGRU core of one tower: ``kernels/learn/recurrent/mingru.cu``.

    The arguments are those of ``GruKernels``.
    """

    def __init__(self, task: Task, layers: range, observes: bool, state_at: int) -> None:
        layout, executor = task.layout, task.executor
        assert isinstance(layout, RecurrentLayout)
        self.task, self.size, self.state_at = task, layout.layers[layers[0]][0], state_at
        self.units, self.gates = padded(self.size), padded(3 * self.size)
        self.parts = [LinearPart(task, range(k, k + 1), adds=True) for k in layers]
        self.unit, self.threads = mingru_unit(executor, self.size, False, self.units, self.gates)

    @property
    def units_of(self) -> list[Unit]:
        """``Unit``s of its kernels."""
        return [self.unit, self.parts[0].unit]

    def scan(
        self, kernel: str, ends: Ends, pointers: Mapping[str, torch.Tensor | None]
    ) -> KernelLaunch:
        """Return a launch of the scan."""
        about = ends.count * self.threads, ends.count * ends.steps * self.gates
        return KernelLaunch(self.program, kernel, *about, pointers, ends.ints)

    def acting(
        self, ends: Ends, x: torch.Tensor | None, packed: torch.Tensor
    ) -> tuple[list[KernelLaunch], torch.Tensor]:
        """Return the launches of one step, and the outputs, for inputs ``x``."""
        device, rows, launches = self.task.executor.name, ends.count, []
        assert x is not None
        for part in self.parts:
            gates, out = zeros(device, rows, self.gates), zeros(device, rows, self.units)
            pointers = {"rows": gates, "x": x, "bias": None, "start": None, "checkpoints": None}
            pointers |= {"state": None, "out": out, "next": None}
            launches.append(part.acting(rows, x, gates, packed))
            launches.append(self.scan("forward", ends, pointers))
            x = out
        return launches, x

    def learning(
        self,
        slots: Slots,
        x: torch.Tensor | None,
        x_grad: torch.Tensor | None,
        out_grad: torch.Tensor,
    ) -> tuple[list[KernelLaunch], torch.Tensor, list[KernelLaunch]]:
        """Return the launches of the forward pass, the outputs, and those of the backward pass.

        The arguments are those of ``GruKernels.learning``.
        """
        forwards: list[KernelLaunch] = []
        backwards: list[KernelLaunch] = []
        assert x is not None and x_grad is not None
        ends, device = slots.ends, self.task.executor.name
        # Gradients of a layer's inputs are those of the previous layer's outputs.
        grads = [x_grad, *(slots.zeros(self.units) for _ in self.parts[1:]), out_grad]
        for k, part in enumerate(self.parts):
            rows, out = slots.zeros(self.gates), slots.zeros(self.units)
            checkpoints = zeros(device, -(-ends.steps // STEPS_AT_ONCE), ends.count, self.size)
            of = {
                "rows": rows,
                "x": x,
                "bias": None,
                "start": slots.start,
                "checkpoints": checkpoints,
            }
            there = {"state": ends.state(self.state_at + k * self.size), "out": out, "next": None}
            back = {"d_out": grads[k + 1], "d_next": None, "d_rows": rows, "d_x": grads[k]}
            forwards.append(slots.part(part, "forward_sequences", **{"in": x, "out": rows}))
            forwards.append(self.scan("forward", ends, of | there))
            backwards = [
                self.scan("backward", ends, of | back | {"d_bias": None, "d_state": None}),
                slots.part(part, "gradient", **{"in": x, "out": rows}),
                slots.part(part, "input_gradient", out=rows, in_grad=grads[k]),
                *backwards,
            ]
            x = out
        return forwards, x, backwards


class Norm(PartKernels):
    """Layer normalization and activation of a hidden layer: ``kernels/learn/recurrent/norm.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layer: Index of its gains and biases among the layers.
    """

    def __init__(self, task: Task, layer: int) -> None:
        layout = task.layout
        assert isinstance(layout, RecurrentLayout)
        self.task, self.width = task, layout.layers[layer][1]
        self.outputs = padded(self.width)
        self.forward_at, _, self.gradient_at = layout.places(layer)
        sums = PAD, PAD * self.width, layout.gradient
        self.unit = norm_unit(task, self.width, self.outputs, sums, half=False)

    def gains(self, packed: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return gains and biases by name."""
        own = packed[self.forward_at :]
        return {"gain": own, "bias": own[self.outputs :]}

    def acting(
        self, rows: int, x: torch.Tensor, out: torch.Tensor, packed: torch.Tensor
    ) -> KernelLaunch:
        """Return the launch of ``rows`` rows."""
        pointers = {"in": x, "out": out, **self.gains(packed)}
        return normalising(self.task.executor, self.program, rows, self.width, pointers)

    def learning(
        self, slots: Slots, x: torch.Tensor, out: torch.Tensor, out_grad: torch.Tensor
    ) -> tuple[KernelLaunch, list[KernelLaunch]]:
        """Return the launch of the forward pass, and those of the backward pass.

        The latter compute the gradients of ``x`` from those of ``out`` in place.
        """
        packed, partial_sums = slots.shared["packed"], slots.shared["partial_sums"].view(-1)
        pointers = {"in": x, "out": out, "out_grad": out_grad, "moments": slots.zeros(2)}
        pointers |= {**self.gains(packed), "partial_sums": partial_sums[self.gradient_at :]}
        return norm_launches(self.program, slots, self.width, pointers)


def norm_unit(
    task: Task,
    width: int,
    stride: int,
    sums: tuple[int, int, int],
    half: bool,
    head: tuple[int, int] = (0, 0),
) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/recurrent/norm.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        width: Entries of a row.
        stride: Stride of rows, in entries.
        sums: Stride between the sums of consecutive gains, offset of the sums of biases, and stride
            between consecutive splits.
        half: Whether rows are bfloat16.
        head: Number of the network's outputs that the kernel also computes, and their row stride.
    """
    names = ("HEAD", "HEAD_STRIDE", "GAIN_STRIDE", "BIASES_AT", "TOTAL_FLOATS")
    constants = (
        ("WIDTH", width),
        ("STRIDE", stride),
        ("RELU", task.layout.relu),
        *zip(names, (*head, *sums), strict=True),
        *sequence_constants(task),
    )
    team = min(NORM_CHAINS, task.executor.max_team)
    return assemble_file("learn/recurrent/norm", constants, f"#define HALF {int(half)}\n", team)


def norm_rows(executor: Executor) -> int:
    """Return the number of rows of a team of ``norm.cu``."""
    return NORM_ROWS if executor.name == "cpu" else 1


def normalising(
    executor: Executor,
    program: Program,
    rows: int,
    width: int,
    pointers: Mapping[str, torch.Tensor | None],
) -> KernelLaunch:
    """Return the launch of the forward pass of ``rows`` rows of ``width`` entries."""
    about = -(-rows // norm_rows(executor)), rows * width
    names = "skip", "in", "out", "moments", "gain", "bias", "head", "head_bias", "outputs"
    given = {name: pointers.get(name) for name in names}
    ints = {"rows": rows, "tile": norm_rows(executor)}
    return KernelLaunch(program, "normalise", *about, given, ints)


def norm_tile(slots: Slots, half: bool) -> int:
    """Return the number of rows of a team of ``norm.cu`` in the backward pass."""
    fewest = -(-slots.rows // NORM_PIECES) if half else 1
    return max(fewest, norm_rows(slots.task.executor))


def norm_launches(
    program: Program,
    slots: Slots,
    width: int,
    pointers: Mapping[str, torch.Tensor | None],
    head: Mapping[str, torch.Tensor] | None = None,
    half: bool = False,
) -> tuple[KernelLaunch, list[KernelLaunch]]:
    """Return the launch of ``norm.cu`` in the forward pass, and those of the backward pass.

    ``head`` has the tensors of the network's outputs, if the forward pass computes them. With
    ``half`` rows are bfloat16, and ``partial_sums`` have sums for each tile of rows.
    """
    executor, work = slots.task.executor, slots.rows * width
    forward = {"skip": slots.shared["skip"], **pointers, **(head or {})}
    there = normalising(executor, program, slots.rows, width, forward)
    tile, segments = norm_tile(slots, half), slots.splits * -(-width // NORM_CHAINS)
    sums, back = (
        KernelLaunch(program, kernel, elements, work, pointers, {"tile": tile}, slots.learn)
        for kernel, elements in (("gradient", segments), ("backwards", -(-slots.rows // tile)))
    )
    return there, [back] if half else [sums, back]


class EncoderKernels:
    """Convolutions and hidden layers of one tower.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layers: Indices of their layers, including gains and biases of normalizations.
    """

    def __init__(self, task: Task, layers: range) -> None:
        assert isinstance(task.layout, RecurrentLayout)
        self.task = task
        self.parts: list[tuple[LinearPart, Norm | None]] = []
        network, first = task.layout.network, layers.start
        convolutions = network.convolutions(task.layout.obs_shape)
        for k, layer in zip(layers, convolutions, strict=False):
            self.parts.append((ConvPart(task, k, layer, observes=k == first), None))
        hidden = layers[len(convolutions) :]
        if network.layer_norm:
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
        assert isinstance(task.layout, RecurrentLayout)
        self.central = task.layout.central(number)
        layout, layers = task.layout.of_tower(number)
        self.task = task = replace(task, layout=layout)
        network = layout.network
        hidden = len(network.convolutions(layout.obs_shape))
        hidden += len(network.hidden) * (1 + network.layer_norm)
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


def state_places(network: Network, tower: int) -> range:
    """Return the offsets of the states of a tower's layers in an agent's hidden state."""
    if network.core is None:
        return range(0)
    each = network.core.state_size
    return range(tower * each, (tower + 1) * each, network.core.size)


def scans_of(work: Sequence[object]) -> list[KernelLaunch]:
    """Return the launches in ``work`` that are forward scans, by layer."""
    return [each for each in work if isinstance(each, KernelLaunch) and each.kernel == "forward"]


def point_states(
    scans: Sequence[tuple[KernelLaunch, int]],
    before: torch.Tensor,
    start: torch.Tensor | None,
    after: torch.Tensor | None,
) -> None:
    """Set the hidden states that scans of one step read and write.

    Args:
        scans: Launches, with the offset of their states in an agent's hidden state.
        before: (N * C, M).
        start: (N * C,) uint8 or None.
        after: (N * C, M) or None.
    """
    if before is None:
        return
    for scan, place in scans:
        last = None if after is None else after.view(-1)[place:]
        scan.point(state=before.view(-1)[place:], start=start, next=last)


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


# ---- the learner ---------------------------------------------------------------------------------


def towers_of(task: Task) -> list[TowerKernels]:
    """Create the towers of a network that is computed by parts."""
    assert isinstance(task.layout, RecurrentLayout)
    return [TowerKernels(task, k) for k in range(task.layout.network.towers)]


def loss_unit(task: Task, strides: Sequence[int], reported: int) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/recurrent/loss.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        strides: Row strides of each tower's outputs, in entries.
        reported: Stride between the reported sums of consecutive splits, in entries.
    """
    layout = task.layout
    assert isinstance(layout, RecurrentLayout)
    constants = (
        ("TILE", PART_TEAM if task.executor.max_team > 1 else ONE_MEMBER_ROWS),
        ("PARAMETERS_STRIDE", strides[0]),
        ("VALUE_STRIDE", strides[-1]),
        ("VALUE_AT", layout.value_at),
        ("REPORTED_STRIDE", reported),
    )
    return task.unit("recurrent/loss", constants, PART_TEAM)


class RecurrentGradients(Gradients):
    """Gradients of one policy that is computed by parts.

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


RECURRENT = Arithmetic(
    "float32",
    lambda *_: None,
    lambda task: [],
    RecurrentGradients,
    tolerance=0.0,
)


class RecurrentKernelLearner(KernelLearner):
    """Base class of learners whose policy is computed by parts.

    The arguments are those of ``KernelLearner``.
    """

    layout: RecurrentLayout

    def make(self, group: Group, rollout: Rollout) -> None:
        """Create the network and its state, while the required programs compile in parallel."""
        config, executor = self.config, rollout.batch.executor
        distribution = make_distribution(group, config.distribution)
        agents = [g.count for g in rollout.batch.groups if rollout.player_of[g.name] is self]
        network = config.network_for(group)
        seen = network.input_shape(group)
        about = network, seen, distribution.size, observed_rows(group, network.one_hot)
        critic_dim = config.central * group.critic_obs_dim
        self.layout = layout = RecurrentLayout.made(*about, critic_dim)
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


class ExactRecurrentLearner(RecurrentKernelLearner):
    """PPO, A2C or PQN of a policy that is computed by parts, in exact float32."""

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
        """Queue the forward pass of one step, as in ``RecurrentKernelLearner``."""
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
