"""Networks with convolutions, hidden state, normalization or many layers, on tensor cores.

They also include networks that read bits or bytes. Products use PyTorch's library. Convolutions of
observations and scans use ``kernels/learn``. Rows, weights and gradients are rounded to bfloat16
before products. Accumulators, outputs and hidden states are float32. The rows of a step are
contiguous, so that each product is one call for all sequences of a minibatch.

Letters: T steps, N environments, C agents of a group, R rows of a minibatch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch.nn import functional

from cupydrive.algorithms.architecture import GRU, ConvLayer
from cupydrive.algorithms.kernels.arithmetic import Arithmetic
from cupydrive.algorithms.kernels.cores import point_states, scans_of, state_places
from cupydrive.algorithms.kernels.gradients import Columns, Minibatches, Shared, Task
from cupydrive.algorithms.kernels.layers import (
    NORM_CHAINS,
    PART_TEAM,
    PATCHES,
    ROW_SIZES,
    Ends,
    KernelLaunch,
    Slots,
    norm_launches,
    norm_tile,
    norm_unit,
    normalizing,
    sequence_constants,
    take_unit,
)
from cupydrive.algorithms.kernels.layerwise import LayerwiseLearner, loss_unit, point_rows
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout, encoder_layers
from cupydrive.algorithms.kernels.layout import PAD, ROOM, NetworkLayout, padded
from cupydrive.algorithms.kernels.steps import UnpackedSteps
from cupydrive.algorithms.kernels.tensor import SKEW
from cupydrive.codegen.layout import WARP
from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.executors.interop import zeros
from cupydrive.protocols import Executor, Program
from cupydrive.scans import BIAS_SUMS, STEPS_AT_ONCE, gru_program, gru_teams, mingru_program
from cupydrive.scans import ROWS as GRU_ROWS
from cupydrive.spec import Group

# Alignment of rows for the matrix library, in bfloat16 entries. Equals ALIGNED of adam.cuh.
ROW_ENTRIES = 8
ROWS_AT_ONCE = 64  # rows per team of rows.cu
LEAST_PATCHES = 16  # minimum tile of a team of mma/conv.cu. Tiles are powers of two
STAGED_BYTES = 16 * 1024  # shared memory of such a team for images
PRODUCTS = 8  # maximum number of consecutive tiles of such a team
TEAMS_OF_PROCESSOR = 8  # teams per processor that split the gradient of convolutions
SUMMED_AT_ONCE = 32  # matrices per launch of totals.cu
SUMMED_COLUMNS, SUMMING_TEAM = 32, 512  # columns and threads of a team of totals.cu
SUMMED_ROWS = 2048  # maximum for totals.cu. Above it, the matrix library sums rows faster
NORM_OUTPUTS = 16  # maximum number of network outputs that norm.cu computes
# Maximum number of sums that a thread of norm_loss.cu keeps in registers for the last layer.
NORM_LOSS_SUMS = 64
HALF = "#define HALF 1\n"
Queued = KernelLaunch | Callable[[], object]  # work that a call queues on the device


def row_width(n: int) -> int:
    """Round ``n`` up to the library's alignment."""
    return -(-n // ROW_ENTRIES) * ROW_ENTRIES


def half_zeros(device: str, *shape: int) -> torch.Tensor:
    """Allocate zeros in bfloat16."""
    return zeros(device, *shape, dtype=torch.bfloat16)


def product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, adds: bool = False) -> None:
    """Write the product of bfloat16 matrices to ``out``. With ``adds``, accumulate it."""
    if out.dtype == a.dtype:
        torch.addmm(out, a, b, out=out) if adds else torch.mm(a, b, out=out)
    elif a.is_cuda:
        torch.mm(a, b, out_dtype=out.dtype, out=out)
    else:  # only in tests
        out.copy_(a.float() @ b.float())


class MatrixSteps(UnpackedSteps):
    """``Steps`` that also round the weights to padded bfloat16 matrices for a library.

    Attributes:
        matrices: (padded OUT, padded IN) and (padded OUT,) of each layer.
    """

    def __init__(self, executor: Executor, layout: NetworkLayout, *about: Any) -> None:
        super().__init__(executor, layout, *about)
        self.device = executor.name
        self.make_matrices()

    def make_matrices(self) -> None:
        """Allocate the matrices."""
        sizes = [(row_width(out), row_width(into)) for into, out in self.layout.layers]
        flat = half_zeros(self.device, sum(out * (into + 1) for out, into in sizes))
        self.rounded, self.matrices, at = flat, [], 0
        for out, into in sizes:
            matrix, bias = flat[at:].split((out * into, out, len(flat) - at - out * (into + 1)))[:2]
            self.matrices.append((matrix.view(out, into), bias))
            at += out * (into + 1)

    def beside(self, weights: Sequence[torch.Tensor]) -> Self:
        """Return an object that rounds other weights of an equal network, as in ``Steps``."""
        other = super().beside(weights)
        other.make_matrices()
        assert other.rounded is not None
        other.call["matrices"] = other.rounded.data_ptr()
        return other

    def pack(self) -> None:
        """Round the weights, which a checkpoint or a caller may have changed."""
        self.program.launch("round_weights", self.call, self.teams, self.layout.gradient)


class Totals:
    """Sums over the rows of matrices at the end of a minibatch: ``layerwise/totals.cu``.

    Args:
        executor: Executor of the kernel.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.small: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.tall: list[Queued] = []

    def add(self, rows: torch.Tensor, to: torch.Tensor) -> None:
        """Add the sum of ``rows``, float32 or bfloat16, which is written to ``to``.

        Args:
            rows: (R, columns), or (R, groups, columns) for rows in contiguous groups.
            to: Sums in any shape with as many entries as ``rows`` has columns.
        """
        rows = rows if rows.dim() == 3 else rows[:, None]
        if math.prod(rows.shape[:2]) <= SUMMED_ROWS:
            self.small.append((rows, to))
        else:
            add_up = partial(torch.sum, rows, (0, 1), dtype=torch.float32)
            self.tall.append(lambda: to.copy_(add_up().view(to.shape)))

    def work(self) -> list[Queued]:
        """Return work that computes all sums."""
        program = self.executor.build(totals_unit(self.executor))
        batches = [
            self.small[k:][:SUMMED_AT_ONCE] for k in range(0, len(self.small), SUMMED_AT_ONCE)
        ]
        return [*self.tall, *(self.launch(program, batch) for batch in batches)]

    def launch(
        self, program: Program, batch: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> KernelLaunch:
        """Return the launch of at most ``SUMMED_AT_ONCE`` sums."""
        teams = [-(-rows.shape[2] // SUMMED_COLUMNS) for rows, _ in batch]
        begin = [sum(teams[:k]) for k in range(SUMMED_AT_ONCE + 1)]
        ints = {f"begin.{k}": first for k, first in enumerate(begin)}
        about = [
            {
                "half": rows.dtype == torch.bfloat16,
                "rows": rows.shape[0] * rows.shape[1],
                "groups": rows.shape[1],
                "columns": rows.shape[2],
                "stride": rows.stride(0),
                "width": to.shape[1] if to.dim() == 2 else 1,
                "apart": to.stride(0),
            }
            for rows, to in batch
        ]
        for name in about[0]:
            numbers = [int(each[name]) for each in about] + [0] * (SUMMED_AT_ONCE - len(batch))
            ints |= {f"{name}.{k}": number for k, number in enumerate(numbers)}
        pointers: dict[str, torch.Tensor | None] = {}
        for at, name in enumerate(("from", "to")):
            pointers |= {f"{name}.{k}": None for k in range(SUMMED_AT_ONCE)}
            pointers |= {f"{name}.{k}": pair[at] for k, pair in enumerate(batch)}
        work = sum(rows.numel() for rows, _ in batch)
        return KernelLaunch(program, "add_up", sum(teams), work, pointers, ints)


def totals_unit(executor: Executor) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/layerwise/totals.cu``."""
    team = min(SUMMING_TEAM, executor.max_team)
    return assemble_file("learn/layerwise/totals", (("MATRICES", SUMMED_AT_ONCE),), HALF, team)


def loss_follows_norm(layout: LayerwiseLayout) -> bool:
    """Return whether one kernel computes the last normalization, the outputs and the loss."""
    network, (entries, outputs) = layout.network, layout.layers[-1]
    normed = network.layer_norm and bool(network.hidden) and network.core is None
    few = outputs <= NORM_OUTPUTS and outputs * -(-entries // NORM_CHAINS) <= NORM_LOSS_SUMS
    return network.towers == 1 and normed and few


def norm_loss_unit(task: Task) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/layerwise/norm_loss.cu``."""
    layout = task.layout
    assert isinstance(layout, LayerwiseLayout)
    entries, outputs = layout.layers[-1]
    constants = (
        *zip(ROW_SIZES, (entries, 1, row_width(entries)), strict=True),
        ("HEAD", outputs),
        ("VALUE_AT", layout.value_at),
        ("TOTAL_FLOATS", sum(norm_loss_sums(entries, outputs))),
    )
    team = min(NORM_CHAINS, task.executor.max_team)
    return task.unit("layerwise/norm_loss", constants, team, HALF)


def norm_loss_sums(entries: int, outputs: int) -> list[int]:
    """Return the numbers of sums of ``norm_loss.cu``.

    These are gains, biases, weights and biases of the last layer, and metrics.
    """
    return [entries, entries, outputs * entries, outputs, PAD]


# ---- parts ---------------------------------------------------------------------------------------


class Linear:
    """One linear layer.

    Args:
        task: ``Task``.
        layer: Index of the layer.
        shared: ``matrices`` of ``MatrixSteps``, and the network's ``own`` weights, float32. For
            learning also ``partial_sums`` (1, ...) and ``totals``, which compute sums into them.
    """

    def __init__(self, task: Task, layer: int, shared: Shared) -> None:
        layout = task.layout
        assert isinstance(layout, LayerwiseLayout)
        self.into, self.out = layout.layers[layer]
        self.outputs, self.positions = self.out, 1
        self.weight, self.bias = shared["matrices"][layer]
        self.own_weight, self.own_bias = shared["own"][2 * layer : 2 * layer + 2]
        if (partial_sums := shared.get("partial_sums")) is not None:
            self.totals: Totals = shared["totals"]
            at = layout.places(layer)[2]
            sums = partial_sums[0, at : at + self.out * padded(self.into)]
            self.weight_sums = sums.view(self.out, -1)[:, : row_width(self.into)]
            self.bias_sums = partial_sums[0, at + sums.numel() :][: self.out]

    def forwards(self, x: torch.Tensor, out: torch.Tensor, biased: bool = True) -> Queued:
        """Return work that computes ``out`` (R, padded OUT) from ``x`` (R, padded IN)."""
        weight = self.weight.t()
        if not biased:
            return lambda: product(x, weight, out)
        if out.dtype == torch.bfloat16:
            return lambda: torch.addmm(self.bias, x, weight, out=out)
        if out.is_cuda:
            return lambda: torch.addmm(self.bias, x, weight, out_dtype=out.dtype, out=out)
        return lambda: torch.addmm(self.bias.float(), x.float(), weight.float(), out=out)

    def gradient(self, x: torch.Tensor, grad: torch.Tensor, biased: bool = True) -> Queued:
        """Return work that computes this layer's weight gradient from its outputs' gradients."""
        left = grad[:, : self.out]
        if biased:
            self.totals.add(left, self.bias_sums)
        return lambda: product(left.t(), x, self.weight_sums)

    def input_gradient(
        self, grad: torch.Tensor, x_grad: torch.Tensor, adds: bool = False
    ) -> Queued:
        """Return work that computes or accumulates ``x_grad`` (R, padded IN)."""
        return lambda: product(grad, self.weight, x_grad, adds)


class LibraryConvolution(Linear):
    """A convolutional layer whose images are the outputs of another layer.

    Args:
        task: ``Task``.
        layer: Index of the layer.
        shared: Argument of ``Linear``.
        sizes: Sizes of the layer.
    """

    def __init__(self, task: Task, layer: int, shared: Shared, sizes: ConvLayer) -> None:
        super().__init__(task, layer, shared)
        self.sizes, self.outputs = sizes, math.prod(sizes.out)
        self.positions = sizes.positions
        kernels = self.weight[: self.out, : self.into]
        square = sizes.kernel, sizes.kernel, -1
        self.kernels = kernels.unflatten(1, square).permute(0, 3, 1, 2)

    def images(self, rows: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Return a view of rows as images (R, C, H, W), for images of shape (H, W, C)."""
        return rows[:, : math.prod(shape)].unflatten(1, shape).permute(0, 3, 1, 2)

    def forwards(self, x: torch.Tensor, out: torch.Tensor, biased: bool = True) -> Queued:
        """Return work that computes ``out`` from ``x``."""
        images, to = self.images(x, self.sizes.image), self.images(out, self.sizes.out)
        bias, stride = self.bias[: self.out], self.sizes.stride
        return lambda: to.copy_(functional.conv2d(images, self.kernels, bias, stride))

    def backwards(
        self, x: torch.Tensor, grad: torch.Tensor, mask: list[bool]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of images and kernels. ``mask`` selects which are computed."""
        stride, zero = [self.sizes.stride] * 2, [0, 0]
        about = None, stride, zero, [1, 1], False, zero, 1, [*mask, False]
        images = self.images(grad, self.sizes.out), self.images(x, self.sizes.image)
        return torch.ops.aten.convolution_backward(*images, self.kernels, *about)[:2]

    def gradient(self, x: torch.Tensor, grad: torch.Tensor, biased: bool = True) -> Queued:
        """Return work that computes the kernels' weight gradient."""
        if biased:
            by_position = grad[:, : self.outputs].unflatten(1, (-1, self.out))
            self.totals.add(by_position, self.bias_sums)

        def fill() -> None:
            kernel_grad = self.backwards(x, grad, [False, True])[1]
            self.weight_sums[:, : self.into].copy_(kernel_grad.permute(0, 2, 3, 1).flatten(1))

        return fill

    def input_gradient(
        self, grad: torch.Tensor, x_grad: torch.Tensor, adds: bool = False
    ) -> Queued:
        """Return work that computes ``x_grad`` from the outputs' gradients."""
        to = self.images(x_grad, self.sizes.image)
        return lambda: to.copy_(self.backwards(x_grad, grad, [True, False])[0])


class HalfSlots(Slots):
    """Memory for the rows of one minibatch in bfloat16. Each block is a split of the sums."""

    def __init__(self, task: Task, learn: np.ndarray, shared: Shared) -> None:
        learn = learn.copy()
        learn["splits"] = learn["blocks"]
        super().__init__(task, learn, shared)

    def zeros(self, columns: int) -> torch.Tensor:
        """Allocate rows of ``columns`` bfloat16 entries, all 0."""
        return half_zeros(self.task.executor.name, self.rows, columns)


def rows_unit(task: Task, width: int) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/layerwise/rows.cu``."""
    layout = task.layout
    assert isinstance(layout, LayerwiseLayout)
    constants = (
        ("OBS", layout.obs_dim),
        ("OBS_STRIDE", row_width(layout.obs_dim)),
        ("STRIDE", width),
        ("RELU", layout.relu),
        *sequence_constants(task),
    )
    team = min(PART_TEAM, task.executor.max_team)
    return assemble_file("learn/layerwise/rows", constants, HALF + layout.observed, team)


def patches_at_once(layer: ConvLayer, executor: Executor, normed: bool) -> int:
    """Return the number of patches of a team's tile, or 0 if none fits into its memory."""
    width, channels = padded(layer.inputs) + SKEW, padded(layer.channels)
    floats = channels * (1 + normed * (2 + 2 * PART_TEAM // WARP))  # biases, gains, sums of warps
    patches = PATCHES
    while patches >= LEAST_PATCHES:
        rows = patches * (width + channels + SKEW) + channels * width
        if 2 * rows + 4 * floats + STAGED_BYTES + ROOM <= executor.team_bytes:
            return patches
        patches //= 2
    return 0


def patches_of_team(task: Task, layer: ConvLayer) -> int:
    """Return the number of patches of a team: several tiles, if all processors have enough."""
    assert isinstance(task.layout, LayerwiseLayout)
    rows = min(task.minibatch_rows, task.shard.num_envs * sum(task.agents))
    tile = patches_at_once(layer, task.executor, task.layout.network.layer_norm)
    processors = task.executor.processors
    wanted = rows * layer.positions // max(1, tile * processors)
    return tile * min(PRODUCTS, max(1, wanted))


def convolution_unit(task: Task, sizes: ConvLayer) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/mma/conv.cu``."""
    assert isinstance(task.layout, LayerwiseLayout)
    normed = task.layout.network.layer_norm
    rows = patches_at_once(sizes, task.executor, normed)
    names = "IMAGE_HEIGHT", "IMAGE_WIDTH", "CHANNELS", "SPAN", "STRIDE", "OBS", "OUT"
    about = *sizes.image, sizes.kernel, sizes.stride, sizes.inputs, sizes.channels
    constants = (
        *zip(names, about, strict=True),
        ("ROWS", rows),
        ("TILE", patches_of_team(task, sizes)),
        ("STAGED_BYTES", STAGED_BYTES),
        ("NORMALIZED", normed),
        ("RELU", task.layout.relu),
        *sequence_constants(task),
    )
    text = f"#define OBSERVES 1\n{task.layout.observed}"
    team = min(PART_TEAM, task.executor.max_team)
    return assemble_file("learn/mma/conv", constants, text, team)


class SeenConvolution(Linear):
    """A convolutional layer of observations, with activation: ``kernels/learn/mma/conv.cu``.

    A normalization between them is included. The arguments are those of ``LibraryConvolution``.
    """

    def __init__(self, task: Task, layer: int, shared: Shared, sizes: ConvLayer) -> None:
        super().__init__(task, layer, shared)
        assert isinstance(task.layout, LayerwiseLayout)
        normed = task.layout.network.layer_norm
        self.gains = Linear(task, layer + 1, shared) if normed else None
        self.sizes, self.outputs = sizes, math.prod(sizes.out)
        self.positions = sizes.positions
        self.tile = patches_of_team(task, sizes)
        self.unit = convolution_unit(task, sizes)
        self.executor = task.executor

    def tiles(self, rows: int) -> int:
        """Return the number of teams for ``rows`` rows."""
        return -(-rows * self.sizes.positions // self.tile)

    def work(
        self, make: Callable[[int], torch.Tensor], slots: Slots | None
    ) -> tuple[list[Queued], torch.Tensor, Callable[[], tuple[list[Queued], torch.Tensor]]]:
        """Return launches of the forward pass, the outputs, and a function.

        The function returns the launches of the backward pass, and the buffer into which the
        outputs' gradients must be written.
        """
        program, out = self.executor.build(self.unit), make(row_width(self.outputs))
        own = {"weight": self.own_weight, "bias": self.own_bias}
        gains = self.gains
        names = "out", "gain", "norm_bias", "normalized", "scales"
        to: dict[str, torch.Tensor | None] = dict.fromkeys(names) | {"out": out}
        if gains is not None:
            to |= {"gain": gains.own_weight, "norm_bias": gains.own_bias}
        products = out.numel() * self.into
        if slots is None:
            pointers = {"obs": None, "center": None, "scale": None, **own, **to}
            acting = self.tiles(len(out)), products, pointers, {"rows": len(out)}
            return [KernelLaunch(program, "observe", *acting)], out, lambda: ([], out)
        if gains is not None:
            scales = zeros(self.executor.name, slots.rows, self.positions)
            to |= {"normalized": torch.zeros_like(out), "scales": scales}
        out_grad = torch.zeros_like(out)
        teams = slots.blocks * self.tiles(slots.slot)
        gradient_teams = min(teams, TEAMS_OF_PROCESSOR * self.executor.processors)
        kinds = [self.out * self.into, *[self.out] * (1 if gains is None else 3)]
        sums = zeros(self.executor.name, gradient_teams, sum(kinds))
        pointers = {**own, **to, "out_grad": out_grad, "sums": sums}
        about = products, pointers, {"teams": gradient_teams}, slots.learn
        see = KernelLaunch(program, "observe_sequences", teams, *about)
        gradient = KernelLaunch(program, "gradient", gradient_teams, *about)
        weights, biases, *of_norm = sums.split(kinds, 1)
        self.totals.add(weights, self.weight_sums[:, : self.into])
        self.totals.add(biases, self.bias_sums)
        if gains is not None:
            gains.totals.add(of_norm[0], gains.weight_sums[:, 0])
            gains.totals.add(of_norm[1], gains.bias_sums)
        return [see], out, lambda: ([gradient], out_grad)


class Encoder:
    """Convolutions and hidden layers: a product, an optional normalization, and an activation each.

    Args:
        task: ``Task``.
        layers: Indices of the layers, including gains and biases.
        shared: Argument of ``Linear``.
        head: The network's last layer, if it follows the last hidden one.

    Attributes:
        ends: Whether the last normalization also computes the outputs of ``head``.
        learns: Whether its kernel also computes the loss, when learning.
    """

    def __init__(self, task: Task, layers: range, shared: Shared, head: Linear | None) -> None:
        assert isinstance(task.layout, LayerwiseLayout)
        self.shared, self.learns = shared, loss_follows_norm(task.layout)
        self.task, self.normed, self.head = task, task.layout.network.layer_norm, head
        sizes = task.layout.network.convolutions(task.layout.obs_shape)
        self.layers: list[SeenConvolution | Linear] = []
        for number, k in enumerate(layers[:: 1 + self.normed]):
            if number >= len(sizes):
                self.layers.append(Linear(task, k, shared))
            else:
                kind = LibraryConvolution if number else SeenConvolution
                self.layers.append(kind(task, k, shared, sizes[number]))
        self.gains = [Linear(task, k, shared) for k in layers[1::2]] if self.normed else []
        few = head is not None and head.out <= NORM_OUTPUTS
        self.ends = self.normed and len(self.layers) > len(sizes) and few

    def activation(self, kernel: str, **tensors: torch.Tensor) -> KernelLaunch:
        """Return a launch of ``rows.cu`` over all rows of ``out``, ``out_grad`` and ``sums``."""
        rows, width = tensors["out"].shape
        program = self.task.executor.build(rows_unit(self.task, width))
        about = -(-rows // ROWS_AT_ONCE), rows * width
        pointers = {name: tensors.get(name) for name in ("out", "out_grad", "sums")}
        return KernelLaunch(program, kernel, *about, pointers, {"rows": rows})

    def norm(self, k: int) -> Program:
        """Return the program of a layer's normalization."""
        width, positions, head = self.gains[k].out, self.layers[k].positions, (0, 0)
        if self.ends_with(k):
            assert self.head is not None
            head = self.head.out, row_width(self.head.out)
        sizes = width, positions, row_width(positions * width)
        unit = norm_unit(self.task, sizes, (1, width, 2 * width), True, head)
        return self.task.executor.build(unit)

    def ends_with(self, k: int) -> bool:
        """Return whether the normalization of layer ``k`` computes the outputs."""
        return self.ends and k == len(self.gains) - 1

    def work(
        self,
        x: torch.Tensor | None,
        make: Callable[[int], torch.Tensor],
        slots: Slots | None,
        outputs: torch.Tensor,
    ) -> tuple[list[Queued], torch.Tensor, Callable[[], tuple[list[Queued], torch.Tensor | None]]]:
        """Return launches of the forward pass, the outputs, and a function.

        The function returns the launches of the backward pass, and the buffer into which the
        outputs' gradients must be written, or None if the part has no layers.

        Args:
            x: (R, padded D) observations, or None if convolutions read them.
            make: Function that allocates rows with a number of entries.
            slots: ``Slots`` of the rows, or None for acting.
            outputs: (R, padded outputs) float32 of ``head``.
        """
        forwards: list[Queued] = []
        backs: list[Callable[[], tuple[list[Queued], torch.Tensor]]] = []
        for k, layer in enumerate(self.layers):
            if isinstance(layer, SeenConvolution):
                there, x, back = layer.work(make, slots)
            else:
                assert x is not None
                if not self.normed:
                    there, x, back = self.activated(layer, x, make)
                elif slots is not None and self.learns and self.ends_with(k):
                    there, x, back = self.normalized_with_loss(k, x, make, slots)
                else:
                    there, x, back = self.normalized(k, x, make, slots, outputs)
            forwards += there
            backs.append(back)
        assert x is not None

        def backwards() -> tuple[list[Queued], torch.Tensor | None]:
            work: list[Queued] = []
            grad: torch.Tensor | None = None
            for layer, back in zip(self.layers, backs, strict=True):
                own, out_grad = back()
                if grad is not None:
                    own.append(layer.input_gradient(out_grad, grad))
                work, grad = [*own, *work], out_grad
            return work, grad

        return forwards, x, backwards

    def activated(
        self, linear: Linear, x: torch.Tensor, make: Callable[[int], torch.Tensor]
    ) -> tuple[list[Queued], torch.Tensor, Callable[[], tuple[list[Queued], torch.Tensor]]]:
        """Return forward work, outputs of a layer, and a function.

        The function returns the backward work and rows for the outputs' gradients.
        """
        out = make(row_width(linear.outputs))

        def back() -> tuple[list[Queued], torch.Tensor]:
            out_grad = torch.zeros_like(out)
            sums = zeros(self.task.executor.name, -(-len(out) // ROWS_AT_ONCE), out.shape[1])
            of_outputs = sums[:, : linear.outputs].unflatten(1, (-1, linear.out))
            linear.totals.add(of_outputs, linear.bias_sums)
            work: list[Queued] = [
                self.activation("activate_back", out=out, out_grad=out_grad, sums=sums),
                linear.gradient(x, out_grad, biased=False),
            ]
            return work, out_grad

        return [linear.forwards(x, out), self.activation("activate", out=out)], out, back

    def normalized(
        self,
        k: int,
        x: torch.Tensor,
        make: Callable[[int], torch.Tensor],
        slots: Slots | None,
        outputs: torch.Tensor,
    ) -> tuple[list[Queued], torch.Tensor, Callable[[], tuple[list[Queued], torch.Tensor]]]:
        """Return the results of ``activated`` for a layer with normalization."""
        layer, gains, program = self.layers[k], self.gains[k], self.norm(k)
        out = make(row_width(layer.outputs))
        own = {"gain": gains.own_weight, "bias": gains.own_bias}
        left = make(row_width(layer.outputs))
        forwards: list[Queued] = [layer.forwards(x, left)]
        head: dict[str, torch.Tensor] = {}
        if self.ends_with(k) and self.head is not None:
            head = {"head": self.head.weight, "head_bias": self.head.own_bias, "outputs": outputs}
        positions = layer.positions
        if slots is None:
            pointers, rows = {"in": left, "out": out, **own, **head}, len(out) * positions
            act = normalizing(self.task.executor, program, rows, gains.out, pointers)
            return [*forwards, act], out, lambda: ([], out)
        device, rows = self.task.executor.name, slots.rows * positions
        out_grad = torch.zeros_like(out)
        sums = zeros(device, -(-rows // norm_tile(slots, positions, half=True)), 2, gains.out)
        moments = zeros(device, rows, 2)
        given = {"in": left, "out": out, "out_grad": out_grad, "moments": moments, **own}
        given["partial_sums"] = sums
        sizes = gains.out, positions
        there, launches = norm_launches(program, slots, *sizes, given, head, half=True)
        gains.totals.add(sums[:, 0], gains.weight_sums[:, 0])
        gains.totals.add(sums[:, 1], gains.bias_sums)
        gradient = layer.gradient(x, out_grad)
        return [*forwards, there], out, lambda: ([*launches, gradient], out_grad)

    def normalized_with_loss(
        self, k: int, x: torch.Tensor, make: Callable[[int], torch.Tensor], slots: Slots
    ) -> tuple[list[Queued], torch.Tensor, Callable[[], tuple[list[Queued], torch.Tensor]]]:
        """Return the results of ``activated`` for the last layer, whose kernel has the loss.

        The rows are the layer's product, not activations. The gradients of ``head`` and the
        reported metrics are among the totals.
        """
        layer, gains, head, executor = self.layers[k], self.gains[k], self.head, self.task.executor
        assert head is not None
        left = make(row_width(layer.outputs))
        left_grad, tile = torch.zeros_like(left), norm_tile(slots, 1, half=True)
        kinds, teams = norm_loss_sums(head.into, head.out), -(-slots.rows // tile)
        sums = zeros(executor.name, teams, sum(kinds))
        to = [gains.weight_sums[:, 0], gains.bias_sums, head.weight_sums[:, : head.into]]
        to += [head.bias_sums, self.shared["partial_sums"][0, -PAD:]]
        for rows, totals in zip(sums.split(kinds, 1), to, strict=True):
            head.totals.add(rows, totals)
        pointers = {"in": left, "in_grad": left_grad}
        pointers |= {"gain": gains.own_weight, "bias": gains.own_bias}
        pointers |= {"head": head.weight, "head_bias": head.own_bias, "partial_sums": sums}
        program, work = executor.build(norm_loss_unit(self.task)), slots.rows * head.into
        about = program, "norm_loss", teams, work, pointers, {"tile": tile}, slots.learn
        gradient = layer.gradient(x, left_grad)
        forwards: list[Queued] = [layer.forwards(x, left), KernelLaunch(*about)]
        return forwards, left, lambda: ([gradient], left_grad)


Backwards = Callable[[torch.Tensor, torch.Tensor | None], list[Queued]]


class ScannedCore:
    """Core of one tower, with one scan launch per layer.

    Args:
        task: ``Task``.
        layers: Indices of its linear layers.
        places: Offsets of the layers' states in an agent's hidden state.
        shared: Argument of ``Linear``.
    """

    def __init__(self, task: Task, layers: range, places: range, shared: Shared) -> None:
        layout = task.layout
        assert isinstance(layout, LayerwiseLayout)
        self.task, self.size, self.places = task, layout.layers[layers[-1]][0], places
        self.linears = [Linear(task, k, shared) for k in layers]

    def scans(
        self, x: torch.Tensor, make: Callable[[int], torch.Tensor], ends: Ends
    ) -> tuple[list[Queued], torch.Tensor, Backwards]:
        """Return forward work, outputs, and a function that returns the backward work.

        Args:
            x: (R, padded IN) inputs.
            make: Function that allocates rows with a number of entries.
            ends: Boundary states of the scans.
        """
        raise NotImplementedError


class GruCore(ScannedCore):
    """GRU core: ``kernels/learn/mma/gru.cu``."""

    def scans(
        self, x: torch.Tensor, make: Callable[[int], torch.Tensor], ends: Ends
    ) -> tuple[list[Queued], torch.Tensor, Backwards]:
        """Return forward work, outputs, and a function that returns the backward work."""
        inner, outer = self.linears
        device, size = self.task.executor.name, self.size
        gates, out = make(3 * size), make(size)
        product_rows, before = (make(size), make(size)) if ends.steps > 1 else (None, None)
        tiles, teams = -(-ends.count // GRU_ROWS), gru_teams(self.task.executor, ends.count)
        program = gru_program(size, torch.device(device))
        pointers = {"weight": outer.own_weight, "bias_input": inner.own_bias}
        pointers |= {"bias_state": outer.own_bias, "start": ends.start, "gates": gates}
        pointers |= {"inner": product_rows, "before": before}
        work, ints = ends.count * ends.steps * size, ends.ints | {"teams": teams}
        there = {"state": ends.state(self.places[0]), "out": out, "next": None}
        scan = KernelLaunch(program, "forward", teams, work, pointers | there, ints)

        def backwards(out_grad: torch.Tensor, x_grad: torch.Tensor | None) -> list[Queued]:
            gate_grad, inner_grad = make(3 * size), make(size)
            assert before is not None
            sums = zeros(device, tiles, BIAS_SUMS, 4 * size)
            back = {"d_out": out_grad, "d_next": None, "d_gates": gate_grad, "d_inner": inner_grad}
            back |= {"d_bias": sums, "d_state": None}
            scan = KernelLaunch(program, "backward", tiles, work, pointers | back, ints)
            biases = sums.flatten(0, 1)
            inner.totals.add(biases[:, : 3 * size], inner.bias_sums)
            outer.totals.add(biases[:, : 2 * size], outer.bias_sums[: 2 * size])
            outer.totals.add(biases[:, 3 * size :], outer.bias_sums[2 * size :])

            def gradients() -> None:
                product(gate_grad[:, : 2 * size].t(), before, outer.weight_sums[: 2 * size])
                product(inner_grad.t(), before, outer.weight_sums[2 * size :])

            found: list[Queued] = [scan, gradients, inner.gradient(x, gate_grad, biased=False)]
            return found if x_grad is None else [*found, inner.input_gradient(gate_grad, x_grad)]

        return [inner.forwards(x, gates, biased=False), scan], out, backwards


class MinGruCore(ScannedCore):
    """MinGRU core: ``kernels/learn/layerwise/mingru.cu``."""

    def scans(
        self, x: torch.Tensor, make: Callable[[int], torch.Tensor], ends: Ends
    ) -> tuple[list[Queued], torch.Tensor, Backwards]:
        """Return forward work, outputs, and a function that returns the backward work."""
        device, size = self.task.executor.name, self.size
        program, threads = mingru_program(size, torch.device(device), torch.bfloat16)
        ints, about = ends.ints, (ends.count * threads, ends.count * ends.steps * size)
        checkpoint_steps = -(-ends.steps // STEPS_AT_ONCE)
        forwards: list[Queued] = []
        layers = []
        for k, linear in enumerate(self.linears):
            rows, out = make(3 * size), make(size)
            checkpoints = zeros(device, checkpoint_steps, ends.count, size)
            pointers = {"rows": rows, "x": x, "bias": linear.own_bias, "start": ends.start}
            pointers["checkpoints"] = checkpoints
            there = {"state": ends.state(self.places[k]), "out": out, "next": None}
            forwards.append(linear.forwards(x, rows, biased=False))
            forwards.append(KernelLaunch(program, "forward", *about, pointers | there, ints))
            layers.append((linear, x, pointers))
            x = out

        def backwards(out_grad: torch.Tensor, x_grad: torch.Tensor | None) -> list[Queued]:
            work: list[Queued] = []
            for k, (linear, seen, pointers) in reversed(list(enumerate(layers))):
                rows_grad = make(3 * size)
                seen_grad = x_grad if k == 0 and x_grad is not None else make(size)
                sums = zeros(device, ends.count, 3 * size)
                back = {"d_out": out_grad, "d_next": None, "d_rows": rows_grad, "d_x": seen_grad}
                back |= {"d_bias": sums, "d_state": None}
                linear.totals.add(sums, linear.bias_sums)
                work += [
                    KernelLaunch(program, "backward", *about, pointers | back, ints),
                    linear.gradient(seen, rows_grad, biased=False),
                    linear.input_gradient(rows_grad, seen_grad, adds=True),
                ]
                out_grad = seen_grad
            return work

        return forwards, x, backwards


class TensorTower:
    """One tower of a network.

    Args:
        task: ``Task``.
        number: Index of the tower.
        shared: Argument of ``Linear``.

    Attributes:
        central: Whether it reads the observations of a central critic.
    """

    def __init__(self, task: Task, number: int, shared: Shared) -> None:
        assert isinstance(task.layout, LayerwiseLayout)
        self.central = task.layout.central(number)
        self.layout, layers = task.layout.of_tower(number)
        self.task = task = replace(task, layout=self.layout)
        network = self.layout.network
        hidden = encoder_layers(network, self.layout.obs_shape)
        self.head = Linear(task, layers[-1], shared)
        last = self.head if network.core is None else None
        self.encoder = Encoder(task, layers[:hidden], shared, last)
        self.places, self.core = state_places(network, number), None
        if network.core is not None:
            kind = GruCore if isinstance(network.core, GRU) else MinGruCore
            self.core = kind(task, layers[hidden:-1], self.places, shared)
        self.device, self.outputs = task.executor.name, row_width(self.head.out)

    def rounded(
        self, make: Callable[[int], torch.Tensor], slots: Slots | None
    ) -> tuple[list[Queued], torch.Tensor | None]:
        """Return work that rounds observations, and the rounded observations (R, padded D).

        They are None if convolutions read observations. The arguments are those of
        ``Encoder.work``.
        """
        if self.layout.network.conv is not None:
            return [], None
        obs = make(row_width(self.layout.obs_dim))
        program = self.task.executor.build(rows_unit(self.task, ROW_ENTRIES))
        if slots is not None:
            sizes = slots.blocks * -(-slots.slot // ROWS_AT_ONCE), slots.rows
            about = program, "observe_sequences", *sizes, {"out": obs}
            return [KernelLaunch(*about, learn=slots.learn)], obs
        sizes = -(-len(obs) // ROWS_AT_ONCE), obs.numel()
        pointers = {"obs": None, "center": None, "scale": None, "out": obs}
        return [KernelLaunch(program, "observe", *sizes, pointers, {"rows": len(obs)})], obs

    def work(
        self,
        obs: torch.Tensor | None,
        make: Callable[[int], torch.Tensor],
        ends: Ends,
        slots: Slots | None = None,
    ) -> tuple[list[Queued], torch.Tensor, Callable[[torch.Tensor], list[Queued]]]:
        """Return forward work, outputs (R, padded) float32, and a function.

        The function returns the backward work for the outputs' gradients in bfloat16.
        """
        out = zeros(self.device, ends.count * ends.steps, self.outputs)
        work, x, encoder_back = self.encoder.work(obs, make, slots, out)
        core_back: Backwards | None = None
        if self.core is not None:
            scanning, x, core_back = self.core.scans(x, make, ends)
            work += scanning
        if not self.encoder.ends:
            work.append(self.head.forwards(x, out))

        def backwards(output_grad: torch.Tensor) -> list[Queued]:
            found, x_grad = encoder_back()
            if core_back is not None:
                seen_grad = torch.zeros_like(x)
                found, x_grad = [*core_back(seen_grad, x_grad), *found], seen_grad
            if self.encoder.learns:
                return found
            head: list[Queued] = [self.head.gradient(x, output_grad)]
            if x_grad is not None:
                head.append(self.head.input_gradient(output_grad, x_grad))
            return [*head, *found]

        return work, out, backwards


class LayerwiseTensorGradients(Minibatches):
    """Gradients of one policy that is computed layer by layer, on tensor cores.

    The arguments are those of ``Minibatches``. With a hidden state, ``shared`` also has ``start``
    (T, N, C) and ``first`` (N, C, M) of each group.
    """

    parts = 1

    def __init__(self, task: Task, columns: Columns, shared: Shared) -> None:
        super().__init__(task, columns, shared, 1)
        totals = Totals(task.executor)
        about = {"partial_sums": self.partial_sums, "totals": totals, **shared}
        slots = HalfSlots(task, self.call, about)
        layout = task.layout
        assert isinstance(layout, LayerwiseLayout)
        forwards: list[Queued] = [*slots.take()]
        backs: list[Callable[[torch.Tensor], list[Queued]]] = []
        outputs = []
        obs: torch.Tensor | None = None
        for k in range(layout.network.towers):
            tower = TensorTower(task, k, about)
            of_tower = slots.of_critic() if tower.central else slots
            if k == 0 or tower.central:
                see, obs = tower.rounded(slots.zeros, of_tower)
                forwards += see
            work, out, back = tower.work(obs, slots.zeros, slots.ends, of_tower)
            forwards += work
            outputs.append(out)
            backs.append(back)
        grads = [slots.zeros(out.shape[1]) for out in outputs]
        if not loss_follows_norm(layout):
            forwards.append(self.loss(task, slots, totals, outputs, grads))
        backwards: list[Queued] = []
        for back, output_grad in zip(backs, grads, strict=True):
            backwards += back(output_grad)
        self.work: list[Queued] = [*forwards, *backwards, *totals.work()]

    def loss(
        self,
        task: Task,
        slots: Slots,
        totals: Totals,
        outputs: list[torch.Tensor],
        grads: list[torch.Tensor],
    ) -> KernelLaunch:
        """Return the launch that writes the gradients w.r.t. the outputs of all towers."""
        sums = zeros(self.device, slots.blocks, PAD)
        totals.add(sums, self.partial_sums[0, -PAD:])
        pointers = {"parameters": outputs[0], "value": outputs[-1]}
        pointers |= {"parameter_grad": grads[0], "value_grad": grads[-1], "reported": sums}
        program = task.executor.build(loss_unit(task, [x.shape[1] for x in outputs], PAD))
        about = slots.splits, slots.rows, pointers
        return KernelLaunch(program, "loss", *about, learn=slots.learn)

    def compute(self, epoch: int, minibatch: int) -> None:
        """Compute ``partial_sums`` of one minibatch from ``arrange``."""
        for work in self.work:
            if isinstance(work, KernelLaunch):
                work.choose(epoch, minibatch)
            work()
        self.exchange()


# ---- the learner ---------------------------------------------------------------------------------


class LayerwiseTensorLearner(LayerwiseLearner):
    """PPO, A2C or PQN of a policy that is computed layer by layer, on tensor cores."""

    def units(self) -> list[Unit]:
        """Return the ``Unit``s of its launches."""
        units, network, task = [], self.layout.network, self.task
        for number in range(network.towers):
            layout, _ = self.layout.of_tower(number)
            own = replace(task, layout=layout)
            first, *others = layout.network.convolutions(layout.obs_shape) or (None,)
            widths = {*network.hidden, *(math.prod(each.out) for each in others)}
            widths = {ROW_ENTRIES, *map(row_width, () if network.layer_norm else widths)}
            units += [rows_unit(own, width) for width in widths]
            if first is not None:
                units.append(convolution_unit(own, first))
        strides = [row_width(out) for out in (self.layout.layers[-1][1],) * network.towers]
        units += [totals_unit(task.executor), take_unit(task)]
        fused = loss_follows_norm(self.layout)
        return [*units, norm_loss_unit(task) if fused else loss_unit(task, strides, PAD)]

    def sequence_tensors(self) -> dict[str, Any]:
        """Return additional tensors for gradients, by name."""
        own = {"matrices": self.steps.matrices, "own": self.steps.weights}
        return super().sequence_tensors() | own

    def passes_of(self, num_envs: int) -> dict[str, ActingStep]:
        """Return the forward passes of one step of ``num_envs`` environments, by group."""
        layout, device = self.layout, self.task.executor.name
        passes: dict[str, ActingStep] = {}
        for g in self.groups:
            rows = num_envs * g.count
            works: list[Queued] = []
            outputs = []
            scans: list[tuple[KernelLaunch, int]] = []
            sees: list[tuple[KernelLaunch, bool]] = []
            obs: torch.Tensor | None = None
            make = partial(half_zeros, device, rows)
            for k in range(layout.network.towers):
                tower = TensorTower(self.task, k, self.sequence_tensors())
                ends = Ends(rows, 1, layout.network.state_size)
                see: list[Queued] = []
                if k == 0 or tower.central:
                    see, obs = tower.rounded(make, None)
                work, out, _ = tower.work(obs, make, ends)
                scans += zip(scans_of(work), tower.places, strict=True)
                works += [*see, *work]
                launches = (x for x in (*see, *work) if isinstance(x, KernelLaunch))
                sees += [(x, tower.central) for x in launches if x.kernel == "observe"]
                outputs.append(out)
            passes[g.name] = ActingStep(sees, works, scans, outputs)
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
        step, size = self.steps_of[g.name], self.layout.size
        for see, central in step.sees:
            point_rows(self, see, "obs", obs, critic_obs if central else None)
        point_states(step.scans, before, start, after)
        for work in step.works:
            work()
        outputs = step.outputs
        return outputs[0][:, :size], outputs[-1][:, self.layout.value_at]


@dataclass
class ActingStep:
    """Forward passes of one step of all agents of a group.

    Args:
        sees: Launches in ``works`` that read observations, and whether these are a central
            critic's.
        works: All work of the step.
        scans: Launches in ``works`` that step a core's layer, with the offset of its states.
        outputs: (rows, padded) float32 of each tower.
    """

    sees: list[tuple[KernelLaunch, bool]]
    works: list[Queued]
    scans: list[tuple[KernelLaunch, int]]
    outputs: list[torch.Tensor]


LAYERWISE_TENSOR = Arithmetic(
    "bfloat16", lambda *_: None, lambda task: [], LayerwiseTensorGradients, MatrixSteps
)
