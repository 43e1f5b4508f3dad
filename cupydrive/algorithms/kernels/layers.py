"""Launches of single layers, in exact float32: linear layers, convolutions and normalization.

The kernels are in ``kernels/learn/layerwise``. Each layer writes its results to global memory, from
which the next one reads them.

Letters: T steps, N environments, C agents of a group, D observation entries, M entries of a hidden
state, R padded rows of a minibatch (``sequences.cuh``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from cupydrive.algorithms.architecture import ConvLayer
from cupydrive.algorithms.kernels.gradients import Shared, Task
from cupydrive.algorithms.kernels.layerwise_layout import ROW_PARTS, LayerwiseLayout
from cupydrive.algorithms.kernels.layout import (
    ONE_MEMBER_ROWS,
    PAD,
    Constants,
    NetworkLayout,
    padded,
    widest,
)
from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.executors.interop import make_call, zeros
from cupydrive.protocols import Executor, Program

PART_TEAM = 256  # threads of one team on a GPU
PART_ROWS = 32  # maximum rows of a team on a GPU
PATCHES = 128  # maximum patches of a team on a GPU
ABREAST = 4  # pixels whose gradients one thread computes together
NORM_ROWS = 64  # rows per CPU thread in norm.cu. On a GPU, each warp has one row
NORM_CHAINS = 32  # columns that a warp of norm.cu sums together, one per lane
ROW_SIZES = "ENTRIES", "POSITIONS", "STRIDE"  # constants of norm_rows.cuh
NORM_PIECES = 2048  # maximum number of teams of norm.cu in bfloat16, each with a partial sum
ACTIVATED = "#define ACTIVATE_LAST 1\n"


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
    """Consecutive linear layers: ``kernels/learn/layerwise/part.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layers: Indices of the layers.
        observes: Whether the part reads observations.
        activated: Whether the last layer is a hidden one.
        adds: Whether gradients of the inputs are added to existing values.
        sizes: Additional constants of the file.
    """

    path = "layerwise/part"
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
        assert isinstance(layout, LayerwiseLayout)
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
    """A convolutional layer: ``kernels/learn/layerwise/conv.cu``. Its tiles consist of patches.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        number: Index of the layer.
        layer: Sizes of the layer.
        observes: Whether it reads observations.
        activated: Whether an activation follows. If not, a normalization does.
    """

    path = "layerwise/conv"
    rows = ("in", "out", "out_grad", "in_grad")
    team_rows = PATCHES

    def __init__(
        self, task: Task, number: int, layer: ConvLayer, observes: bool, activated: bool
    ) -> None:
        self.layer = layer
        names = "IMAGE_HEIGHT", "IMAGE_WIDTH", "CHANNELS", "SPAN", "STRIDE", "ABREAST"
        sizes = list(zip(names, (*layer.image, layer.kernel, layer.stride, ABREAST), strict=True))
        super().__init__(task, range(number, number + 1), observes, activated, sizes=sizes)
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
        assert isinstance(task.layout, LayerwiseLayout)
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
    """Return the ``Unit`` of ``kernels/learn/layerwise/take.cu``."""
    assert isinstance(task.layout, LayerwiseLayout)
    state = ("STATE", task.layout.network.state_size)
    constants = (*sequence_constants(task), state)
    return assemble_file(
        "learn/layerwise/take", constants, team=min(PART_TEAM, task.executor.max_team)
    )


def sequence_constants(task: Task) -> Constants:
    """Return the constants of ``kernels/learn/layerwise/sequences.cuh``."""
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


class Norm(PartKernels):
    """Layer normalization and activation of a layer: ``kernels/learn/layerwise/norm.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layer: Index of its gains and biases among the layers.
        positions: Positions of a convolution, each of which is normalized. 1 for a hidden layer.
    """

    def __init__(self, task: Task, layer: int, positions: int = 1) -> None:
        layout = task.layout
        assert isinstance(layout, LayerwiseLayout)
        self.task, self.width, self.positions = task, layout.layers[layer][1], positions
        self.forward_at, _, self.gradient_at = layout.places(layer)
        sizes = self.width, positions, padded(positions * self.width)
        sums = PAD, PAD * self.width, layout.gradient
        self.unit = norm_unit(task, sizes, sums, half=False)

    def gains(self, packed: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return gains and biases by name."""
        own = packed[self.forward_at :]
        return {"gain": own, "bias": own[padded(self.width) :]}

    def acting(
        self, rows: int, x: torch.Tensor, out: torch.Tensor, packed: torch.Tensor
    ) -> KernelLaunch:
        """Return the launch of ``rows`` rows."""
        pointers = {"in": x, "out": out, **self.gains(packed)}
        about = rows * self.positions, self.width
        return normalizing(self.task.executor, self.program, *about, pointers)

    def learning(
        self, slots: Slots, x: torch.Tensor, out: torch.Tensor, out_grad: torch.Tensor
    ) -> tuple[KernelLaunch, list[KernelLaunch]]:
        """Return the launch of the forward pass, and those of the backward pass.

        The latter compute the gradients of ``x`` from those of ``out`` in place.
        """
        packed, partial_sums = slots.shared["packed"], slots.shared["partial_sums"].view(-1)
        moments = slots.zeros(2 * self.positions)
        pointers = {"in": x, "out": out, "out_grad": out_grad, "moments": moments}
        pointers |= {**self.gains(packed), "partial_sums": partial_sums[self.gradient_at :]}
        return norm_launches(self.program, slots, self.width, self.positions, pointers)


def norm_unit(
    task: Task,
    sizes: tuple[int, int, int],
    sums: tuple[int, int, int],
    half: bool,
    head: tuple[int, int] = (0, 0),
) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/layerwise/norm.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        sizes: Entries of a position, positions of a row, and stride of rows in entries.
        sums: Stride between the sums of consecutive gains, offset of the sums of biases, and stride
            between consecutive splits.
        half: Whether rows are bfloat16.
        head: Number of the network's outputs that the kernel also computes, and their row stride.
    """
    names = ("HEAD", "HEAD_STRIDE", "GAIN_STRIDE", "BIASES_AT", "TOTAL_FLOATS")
    constants = (
        *zip(ROW_SIZES, sizes, strict=True),
        ("RELU", task.layout.relu),
        *zip(names, (*head, *sums), strict=True),
        *sequence_constants(task),
    )
    team = min(NORM_CHAINS, task.executor.max_team)
    return assemble_file("learn/layerwise/norm", constants, f"#define HALF {int(half)}\n", team)


def norm_rows(executor: Executor) -> int:
    """Return the number of positions of a team of ``norm.cu``."""
    return NORM_ROWS if executor.name == "cpu" else 1


def normalizing(
    executor: Executor,
    program: Program,
    rows: int,
    width: int,
    pointers: Mapping[str, torch.Tensor | None],
) -> KernelLaunch:
    """Return the launch of the forward pass of ``rows`` positions of ``width`` entries."""
    about = -(-rows // norm_rows(executor)), rows * width
    names = "skip", "in", "out", "moments", "gain", "bias", "head", "head_bias", "outputs"
    given = {name: pointers.get(name) for name in names}
    ints = {"rows": rows, "tile": norm_rows(executor)}
    return KernelLaunch(program, "normalize", *about, given, ints)


def norm_tile(slots: Slots, positions: int, half: bool) -> int:
    """Return the number of positions of a team of ``norm.cu`` in the backward pass."""
    fewest = -(-slots.rows * positions // NORM_PIECES) if half else 1
    return max(fewest, norm_rows(slots.task.executor))


def norm_launches(
    program: Program,
    slots: Slots,
    width: int,
    positions: int,
    pointers: Mapping[str, torch.Tensor | None],
    head: Mapping[str, torch.Tensor] | None = None,
    half: bool = False,
) -> tuple[KernelLaunch, list[KernelLaunch]]:
    """Return the launch of ``norm.cu`` in the forward pass, and those of the backward pass.

    A row has ``positions`` of ``width`` entries. ``head`` has the tensors of the network's outputs,
    if the forward pass computes them. With ``half`` rows are bfloat16, and ``partial_sums`` have
    sums for each tile of positions.
    """
    executor, rows = slots.task.executor, slots.rows * positions
    forward = {"skip": slots.shared["skip"], **pointers, **(head or {})}
    there = normalizing(executor, program, rows, width, forward)
    tile, segments = norm_tile(slots, positions, half), slots.splits * -(-width // NORM_CHAINS)
    sums, back = (
        KernelLaunch(program, kernel, elements, rows * width, pointers, {"tile": tile}, slots.learn)
        for kernel, elements in (("gradient", segments), ("backwards", -(-rows // tile)))
    )
    return there, [back] if half else [sums, back]
