"""Launches of the layers with hidden state, GRU and MinGRU, in exact float32.

The products of the gates are linear layers. The kernels of this file scan over time.

Letters: T steps, N environments, C agents of a group, D observation entries, M entries of a hidden
state, R padded rows of a minibatch (``sequences.cuh``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from cupydrive.algorithms.architecture import Network
from cupydrive.algorithms.kernels.gradients import Task
from cupydrive.algorithms.kernels.layers import Ends, KernelLaunch, LinearPart, PartKernels, Slots
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout
from cupydrive.algorithms.kernels.layout import padded, widest
from cupydrive.codegen.source import Unit
from cupydrive.executors.interop import zeros
from cupydrive.scans import STEPS_AT_ONCE, exact_gru_unit, mingru_unit

TEAM_SEQUENCES = 16  # maximum sequences of a team on a GPU


class GruKernels(PartKernels):
    """GRU core of one tower: ``kernels/learn/layerwise/gru.cu``.

    Args:
        task: ``Task`` of the policy: network, loss, sizes and executor.
        layers: Indices of its two layers, for the inputs and for the state.
        observes: Whether it reads observations.
        state_at: Offset of its states in an agent's hidden state.
    """

    def __init__(self, task: Task, layers: range, observes: bool, state_at: int) -> None:
        layout, executor = task.layout, task.executor
        assert isinstance(layout, LayerwiseLayout)
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
    """MinGRU core of one tower: ``kernels/learn/layerwise/mingru.cu``.

    The arguments are those of ``GruKernels``.
    """

    def __init__(self, task: Task, layers: range, observes: bool, state_at: int) -> None:
        layout, executor = task.layout, task.executor
        assert isinstance(layout, LayerwiseLayout)
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
