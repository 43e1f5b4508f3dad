"""Torch modules with hidden state that learn from whole sequences, for networks of one's own.

All are called alike, with L steps of b agents one after the other, time first: ``module(x, state,
start) -> (out, state)``.

    x       (L * b, inputs) float32
    state   (b, state_size) before the first step
    start   (L * b,) bool: the state is set to 0 before the step; None: nowhere
    out     (L * b, size), bfloat16 from scans under autocast to it; the returned state is the one
            after the last step

Sources: Cho et al. 2014 for the GRU, in PyTorch's form and with its names of weights; Hochreiter &
Schmidhuber 1997 and Gers et al. 2000 for the LSTM; Feng et al. 2024, "Were RNNs all we needed?",
and PufferLib's highway gate (Srivastava et al. 2015) for the MinGRU.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from cupydrive.scans import (
    MOST_EXACT_UNITS,
    ExactGRUScan,
    GRUScan,
    MinGRUScan,
    gru_fits,
    rows_dtype,
)


def orthogonal(
    shape: tuple[int, int], gain: float = 1.0, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Return (OUT, IN) float32 on the CPU: orthonormal rows or columns times ``gain``.

    Args:
        shape: (OUT, IN).
        gain: Factor.
        generator: ``torch.Generator`` that draws them. Defaults to torch's own.
    """
    made = torch.empty(shape, dtype=torch.float32, device="cpu")
    return nn.init.orthogonal_(made, gain, generator=generator)


def steps_of(
    x: torch.Tensor, state: torch.Tensor, start: torch.Tensor | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    """Yield (b, ...) of ``x`` and (b, 1) of ``start`` or None for each step."""
    agents = state.shape[0]
    steps = x.shape[0] // agents  # not len(x), which an export to ONNX would fix
    begins = None if start is None else start.view(steps, agents, 1)
    for t, row in enumerate(x.view(steps, agents, -1)):
        yield row, None if begins is None else begins[t]


class Recurrent(nn.Module):
    """What the modules share: linear layers of orthogonal weights and zero biases.

    Attributes:
        state_size: Numbers of hidden state of one agent.
    """

    state_size: int

    def add_linear(
        self, suffix: str, inputs: int, parts: int, generator: torch.Generator | None
    ) -> None:
        """Register ``weight_SUFFIX`` (parts * size, inputs), each part orthogonal, and
        ``bias_SUFFIX``.
        """
        size = self.size
        weight = torch.cat([orthogonal((size, inputs), generator=generator) for _ in range(parts)])
        self.register_parameter(f"weight_{suffix}", nn.Parameter(weight))
        bias = torch.zeros(parts * size, dtype=torch.float32, device="cpu")
        self.register_parameter(f"bias_{suffix}", nn.Parameter(bias))

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


class GRU(Recurrent):
    """A gated recurrent unit; weights as ``torch.nn.GRUCell`` has them.

    All steps of a sequence are one launch (``scans.py``): under autocast to bfloat16 for a multiple
    of 16 units up to 128, in float32 up to 512. Otherwise they are a loop of torch.

    Args:
        inputs: Entries of ``x``.
        size: Units, also ``state_size``.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
    """

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter
    bias_hh: nn.Parameter

    def __init__(self, inputs: int, size: int, generator: torch.Generator | None = None) -> None:
        super().__init__(size)
        self.state_size = size
        self.add_linear("ih", inputs, 3, generator)
        self.add_linear("hh", size, 3, generator)

    def forward(
        self, x: torch.Tensor, state: torch.Tensor, start: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``(out, state)``."""
        weights = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        dtype = rows_dtype(x, state, *weights)
        if dtype == torch.bfloat16 and gru_fits(self.size, x.device):
            return GRUScan.apply(x.to(dtype), *weights, state, start)
        if dtype == torch.float32 and x.shape[0] > state.shape[0] and self.size <= MOST_EXACT_UNITS:
            return ExactGRUScan.apply(x, *weights, state, start)
        seen = []
        for inner, begins in steps_of(
            functional.linear(x, self.weight_ih, self.bias_ih), state, start
        ):
            if begins is not None:
                state = state.masked_fill(begins, 0.0)
            outer = functional.linear(state, self.weight_hh, self.bias_hh)
            (a, b, c), (d, e, f) = inner.chunk(3, 1), outer.chunk(3, 1)
            reset, update = torch.sigmoid(a + d), torch.sigmoid(b + e)
            new = torch.tanh(c + reset * f)
            state = new + update * (state - new)
            seen.append(state)
        return torch.cat(seen), state


class LSTM(Recurrent):
    """A long short-term memory with forget gates; weights as ``torch.nn.LSTMCell`` has them.

    Args:
        inputs: Entries of ``x``.
        size: Units; ``state_size`` is twice that: outputs, then cells.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
    """

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter
    bias_hh: nn.Parameter

    def __init__(self, inputs: int, size: int, generator: torch.Generator | None = None) -> None:
        super().__init__(size)
        self.state_size = 2 * size
        self.add_linear("ih", inputs, 4, generator)
        self.add_linear("hh", size, 4, generator)

    def forward(
        self, x: torch.Tensor, state: torch.Tensor, start: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``(out, state)``."""
        seen = []
        for inner, begins in steps_of(
            functional.linear(x, self.weight_ih, self.bias_ih), state, start
        ):
            if begins is not None:
                state = state.masked_fill(begins, 0.0)
            out, cell = state.chunk(2, 1)
            into, forget, new, shown = (
                inner + functional.linear(out, self.weight_hh, self.bias_hh)
            ).chunk(4, 1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
            out = torch.sigmoid(shown) * torch.tanh(cell)
            state = torch.cat((out, cell), 1)
            seen.append(out)
        return torch.cat(seen), state


class MinGRU(Recurrent):
    """Minimal gated recurrent units, each with a highway gate around it: all products of matrices
    are of whole sequences, since the gates do not see the state.

    With rows c, g, p of ``x``'s linear layer, z = sigmoid(g) and s = sigmoid(p): the state h
    becomes h + z (new(c) - h), where new(c) = c + 0.5 for c >= 0, else sigmoid(c); the output is x
    + s (h - x), which is the next layer's ``x``.

    Args:
        size: Units of each layer, as many as ``x`` has entries; ``state_size`` is ``layers`` times
            that.
        layers: How many follow each other.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
    """

    def __init__(
        self, size: int, layers: int = 2, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(size)
        self.layers, self.state_size = layers, layers * size
        for k in range(layers):
            self.add_linear(str(k), size, 3, generator)

    def forward(
        self, x: torch.Tensor, state: torch.Tensor, start: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``(out, state)``."""
        left = []
        dtype = rows_dtype(x, state, self.weight_0)
        for k, own in enumerate(state.chunk(self.layers, 1)):
            weights = getattr(self, f"weight_{k}"), getattr(self, f"bias_{k}")
            if dtype is None:
                x, own = self.loop(x, *weights, own, start)
            else:
                x, own = MinGRUScan.apply(x.to(dtype), *weights, own, start)
            left.append(own)
        return x, torch.cat(left, 1)

    @staticmethod
    def loop(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        state: torch.Tensor,
        start: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``(out, state)`` of one layer, step by step."""
        candidate, update, shown = functional.linear(x, weight, bias).chunk(3, 1)
        new = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
        update, seen = torch.sigmoid(update).view(-1, *state.shape), []
        for (row, begins), z in zip(steps_of(new, state, start), update, strict=True):
            if begins is not None:
                state = state.masked_fill(begins, 0.0)
            state = state + z * (row - state)
            seen.append(state)
        return x + torch.sigmoid(shown) * (torch.cat(seen) - x), state
