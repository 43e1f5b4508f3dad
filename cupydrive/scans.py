"""Autograd functions that run recurrent layers over whole sequences in one kernel launch.

``nn.py`` documents their arguments. torch multiplies inputs by weights for all steps. The kernels
``kernels/learn/mma/gru.cu`` and ``kernels/learn/layerwise/mingru.cu`` compute the recurrent steps.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import lru_cache

import torch
from torch.autograd.function import BackwardCFunction, FunctionCtx, once_differentiable
from torch.nn import functional

from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.executors import executor
from cupydrive.executors.interop import make_call, torch_stream
from cupydrive.protocols import Executor, Program

ROWS, BIAS_SUMS = 16, 8  # constants of mma/gru.cu
EXACT_ROWS, EXACT_TEAM = 4, 256  # sequences and threads of a team of layerwise/gru.cu
MOST_EXACT_UNITS = 512  # maximum number of units whose gates fit into one multiprocessor
MOST_UNITS = 128  # maximum number of units whose weights fit into a multiprocessor's registers
TENSOR_CORES = (8, 0)  # first compute capability with bfloat16
STEPS_AT_ONCE = 8  # constant of mingru.cu


def rows_dtype(x: torch.Tensor, *others: torch.Tensor) -> torch.dtype | None:
    """Return the dtype of a scan's rows under the current autocast, or None if no scan applies.

    Scans do not apply while a program is exported or compiled.

    Args:
        x: Inputs of the layer.
        *others: Weights and states. If one is not float32, no scan applies.
    """
    kind = x.device.type
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or kind not in ("cpu", "cuda"):
        return None
    if any(other.dtype != torch.float32 for other in others):
        return None
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    return dtype if dtype in (torch.float32, torch.bfloat16) else None


def gru_fits(size: int, device: torch.device) -> bool:
    """Return whether the bfloat16 scan supports a GRU of ``size`` units on ``device``."""
    cores = device.type == "cpu" or torch.cuda.get_device_capability(device) >= TENSOR_CORES
    return cores and size % 16 == 0 and size <= MOST_UNITS


@lru_cache(maxsize=64)
def gru_program(size: int, device: torch.device) -> Program:
    """Return the program of ``kernels/learn/mma/gru.cu``, in which a warp has 16 units."""
    where = executor(device.type)
    team = min(where.max_team, 1 << (2 * size - 1).bit_length())
    return where.build(assemble_file("learn/mma/gru", (("SIZE", size),), team=team))


def gru_teams(where: Executor, count: int) -> int:
    """Return the number of thread teams in the forward pass of ``gru.cu``.

    It is at most one per multiprocessor, because each team loads the weights once.

    Args:
        where: Executor that runs the kernel.
        count: Number of sequences.
    """
    return min(-(-count // ROWS), where.processors)


@lru_cache(maxsize=64)
def mingru_program(size: int, device: torch.device, dtype: torch.dtype) -> tuple[Program, int]:
    """Return the program of ``kernels/learn/layerwise/mingru.cu`` and its threads per sequence."""
    where = executor(device.type)
    unit, threads = mingru_unit(where, size, dtype == torch.bfloat16, size, 3 * size)
    return where.build(unit), threads


def exact_gru_unit(where: Executor, size: int, tile: int) -> Unit:
    """Return the ``Unit`` of ``kernels/learn/layerwise/gru.cu``.

    Args:
        where: Executor that runs the kernel.
        size: Number of units.
        tile: Number of sequences of a thread team.
    """
    layer = ("OBS", size), ("PARAMETERS", 3 * size), ("TOWERS", 1), ("LAYERS", 1), ("RELU", 0)
    widths = f"constexpr int WIDTH[TOWERS][LAYERS + 1] = {{{{{size}, {3 * size}}}}};\n"
    text, team = widths + "#define PACK_FIRST 1\n", min(EXACT_TEAM, where.max_team)
    return assemble_file("learn/layerwise/gru", (*layer, ("TILE", tile)), text, team)


@lru_cache(maxsize=64)
def exact_gru_program(size: int, device: torch.device) -> Program:
    """Return the program of ``kernels/learn/layerwise/gru.cu``."""
    where = executor(device.type)
    return where.build(exact_gru_unit(where, size, EXACT_ROWS))


def whole(n: int) -> int:
    """Round ``n`` up to a multiple of the 16 numbers that exact kernels load together."""
    return -(-n // 16) * 16


def mingru_unit(where: Executor, size: int, half: bool, x: int, rows: int) -> tuple[Unit, int]:
    """Return the ``Unit`` of ``kernels/learn/layerwise/mingru.cu`` and its threads per sequence.

    On a GPU a thread processes 4 bytes of each row, on a CPU up to 16 units.

    Args:
        where: Executor that runs the kernel.
        size: Units of the layer.
        half: Whether rows are bfloat16.
        x: Row stride of the inputs, in numbers.
        rows: Row stride of the products, in numbers.
    """
    units = math.gcd(size, 16 if where.name == "cpu" else 1 + half)
    constants = ("SIZE", size), ("UNITS", units), ("X_STRIDE", x), ("ROWS_STRIDE", rows)
    text = f"#define APPROXIMATE {int(half)}"
    return assemble_file("learn/layerwise/mingru", constants, text), size // units


def launch(
    program: Program,
    kernel: str,
    teams: int,
    rows: int,
    tensors: dict[str, torch.Tensor | None],
    **ints: int,
) -> None:
    """Queue a kernel in torch's current stream.

    Args:
        program: Program of the kernel.
        kernel: Name of the kernel.
        teams: Number of thread teams.
        rows: Number of steps times sequences.
        tensors: Tensors by member of the kernel's structs, in their order. The last one has a row
            for each sequence.
        **ints: Integers of the kernel's struct besides count, steps and stride.
    """
    last = next(reversed(tensors.values()))
    assert last is not None
    count, size = last.shape
    call = make_call({"count": count, "steps": rows // count, "stride": size, **ints}, tensors)
    with torch_stream() if last.device.type == "cuda" else nullcontext():
        program.launch(kernel, call, teams, rows * size)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` contiguous and aligned to 16 bytes, as kernels require."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % 16 else tensor


class GRUScan(torch.autograd.Function):
    """Steps of ``nn.GRU`` for bfloat16 ``x``.

    The signature is ``(x, weight_ih, weight_hh, bias_ih, bias_hh, state, start) -> (out, state)``,
    with the shapes of ``nn.GRU.forward``. ``out`` is bfloat16. Weights, biases and states are
    float32.
    """

    names = ("weight", "bias_input", "bias_state", "start", "gates", "inner", "before")

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: torch.Tensor,
        weight_ih: torch.Tensor,
        weight_hh: torch.Tensor,
        bias_ih: torch.Tensor,
        bias_hh: torch.Tensor,
        state: torch.Tensor,
        start: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute ``(out, state)``, and save the tensors that ``backward`` needs in ``ctx``."""
        count, size = state.shape
        rounded = weight_ih.to(x.dtype)
        gates = x @ rounded.t()
        inner, before, out = (gates.new_empty(len(x), size) for _ in range(3))
        state, weight_hh = state.contiguous(), weight_hh.contiguous()
        start, last = None if start is None else start.contiguous(), torch.empty_like(state)
        saved = weight_hh, bias_ih, bias_hh, start, gates, inner, before
        of = dict(zip(GRUScan.names, saved, strict=True))
        of |= {"state": state, "out": out, "next": last}
        teams = gru_teams(executor(x.device.type), count)
        launch(gru_program(size, x.device), "forward", teams, len(x), of, shares=teams)
        ctx.save_for_backward(x, rounded, *saved)
        return out, last

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, d_out: torch.Tensor, d_next: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """Compute the gradients of the arguments of ``forward``, None for ``start``."""
        x, rounded, *saved = ctx.saved_tensors
        *_, gates, inner, before = saved
        size, teams = d_next.shape[1], -(-len(d_next) // ROWS)
        d_next = d_next.contiguous()
        d_gates, d_inner, d_state = map(torch.empty_like, (gates, inner, d_next))
        sums = d_next.new_zeros(teams, BIAS_SUMS, 4 * size)
        of = dict(zip(GRUScan.names, saved, strict=True))
        of |= {"d_out": aligned(d_out), "d_next": d_next, "d_gates": d_gates, "d_inner": d_inner}
        of |= {"d_bias": sums, "d_state": d_state}
        launch(gru_program(size, x.device), "backward", teams, len(x), of, shares=teams)
        d_weight = torch.cat((d_gates[:, : 2 * size].t() @ before, d_inner.t() @ before))
        d_bias = sums.sum((0, 1))
        return (
            d_gates @ rounded if ctx.needs_input_grad[0] else None,
            (d_gates.t() @ x).float(),
            d_weight.float(),
            d_bias[: 3 * size],
            torch.cat((d_bias[: 2 * size], d_bias[3 * size :])),
            d_state,
            None,
        )


class MinGRUScan(torch.autograd.Function):
    """Steps of a layer of ``nn.MinGRU``: ``(x, weight, bias, state, start) -> (out, state)``.

    ``x`` and ``out`` are both bfloat16 or both float32. Weights, biases and states are float32.
    """

    names = ("rows", "x", "bias", "start", "checkpoints")

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        state: torch.Tensor,
        start: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute ``(out, state)``, and save the tensors that ``backward`` needs in ``ctx``."""
        count, size = state.shape
        rounded, x, state = weight.to(x.dtype), aligned(x), state.contiguous()
        start = None if start is None else start.contiguous()
        out, last = torch.empty_like(x), torch.empty_like(state)
        checkpoints = state.new_empty(-(-len(x) // (count * STEPS_AT_ONCE)), count, size)
        saved = x @ rounded.t(), x, bias, start, checkpoints
        of = dict(zip(MinGRUScan.names, saved, strict=True))
        of |= {"state": state, "out": out, "next": last}
        program, threads = mingru_program(size, x.device, x.dtype)
        launch(program, "forward", count * threads, len(x), of)
        ctx.save_for_backward(rounded, *saved)
        return out, last

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, d_out: torch.Tensor, d_next: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """Compute the gradients of the arguments of ``forward``, None for ``start``."""
        rounded, *saved = ctx.saved_tensors
        rows, x, *_ = saved
        count, size = d_next.shape
        d_next = d_next.contiguous()
        d_rows, d_x, d_state = map(torch.empty_like, (rows, x, d_next))
        sums = d_next.new_empty(count, 3 * size)
        of = dict(zip(MinGRUScan.names, saved, strict=True))
        of |= {"d_out": aligned(d_out), "d_next": d_next, "d_rows": d_rows, "d_x": d_x}
        of |= {"d_bias": sums, "d_state": d_state}
        program, threads = mingru_program(size, x.device, x.dtype)
        launch(program, "backward", count * threads, len(x), of)
        d_x = torch.addmm(d_x, d_rows, rounded)
        return d_x, (d_rows.t() @ x).float(), sums.sum(0), d_state, None


class ExactGRUScan(torch.autograd.Function):
    """Steps of ``nn.GRU`` in float32, with the arguments and results of ``GRUScan``."""

    names = ("weights", "start", "gates", "inner", "before")

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: torch.Tensor,
        weight_ih: torch.Tensor,
        weight_hh: torch.Tensor,
        bias_ih: torch.Tensor,
        bias_hh: torch.Tensor,
        state: torch.Tensor,
        start: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute ``(out, state)``, and save the tensors that ``backward`` needs in ``ctx``."""
        (count, size), rows, wide = state.shape, len(x), whole(3 * state.shape[1])
        gates = x.new_zeros(rows, wide)
        gates[:, : 3 * size] = functional.linear(x, weight_ih, bias_ih)
        weights = x.new_zeros(size + 1, wide)
        weights[:size, : 3 * size], weights[size, : 3 * size] = weight_hh.t(), bias_hh
        inner, before, out = (x.new_zeros(rows, whole(size)) for _ in range(3))
        state, start = state.contiguous(), None if start is None else start.contiguous()
        last = torch.empty_like(state)
        of = dict(zip(ExactGRUScan.names, (weights, start, gates, inner, before), strict=True))
        of |= {"state": state, "out": out, "next": last}
        program, teams = exact_gru_program(size, x.device), -(-count // EXACT_ROWS)
        launch(program, "forward", teams, rows, of)
        ctx.save_for_backward(x, weight_ih, weight_hh, start, gates, inner, before)
        return out[:, :size], last

    @staticmethod
    @once_differentiable
    def backward(
        ctx: BackwardCFunction, d_out: torch.Tensor, d_next: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """Compute the gradients of the arguments of ``forward``, None for ``start``."""
        x, weight_ih, weight_hh, start, gates, inner, before = ctx.saved_tensors
        count, size = d_next.shape
        weights = x.new_zeros(3 * size, whole(size))
        weights[:, :size] = weight_hh
        out_grad = torch.zeros_like(inner)
        out_grad[:, :size] = d_out
        d_gates, d_products = torch.zeros_like(gates), torch.zeros_like(gates)
        d_state = torch.empty_like(d_next)
        of = dict(zip(ExactGRUScan.names, (weights, start, gates, inner, before), strict=True))
        of |= {"d_out": out_grad, "d_next": d_next.contiguous(), "d_gates": d_gates}
        of |= {"d_products": d_products, "d_state": d_state}
        program, teams = exact_gru_program(size, x.device), -(-count // EXACT_ROWS)
        launch(program, "backward", teams, len(x), of)
        x_grad, state_grad = d_gates[:, : 3 * size], d_products[:, : 3 * size]
        return (
            x_grad @ weight_ih if ctx.needs_input_grad[0] else None,
            x_grad.t() @ x,
            state_grad.t() @ before[:, :size],
            x_grad.sum(0),
            state_grad.sum(0),
            d_state,
            None,
        )
