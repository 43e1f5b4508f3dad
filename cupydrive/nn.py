"""Recurrent torch modules that learn from whole sequences, for custom networks.

All modules have the signature ``module(x, state, start) -> (out, state)``. Inputs contain L steps
of b agents, time first.

    x       (L * b, inputs) float32
    state   (b, state_size), before the first step. The returned state is after the last step.
    start   (L * b,) bool, True where the state is reset to 0 before the step. None resets nothing
    out     (L * b, size), in bfloat16 if a scan runs under autocast to bfloat16

Sources: Cho et al. 2014 for the GRU, in PyTorch's form and with its names of weights. Hochreiter &
Schmidhuber 1997 and Gers et al. 2000 for the LSTM. Feng et al. 2024, "Were RNNs all we needed?",
and PufferLib's highway gate (Srivastava et al. 2015) for the MinGRU.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from cupydrive.errors import ParameterError
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
    """Draw a random orthogonal matrix (OUT, IN) float32 on the CPU, times ``gain``.

    Args:
        shape: Shape of the matrix, (OUT, IN).
        gain: Factor of the matrix. Defaults to 1.
        generator: ``torch.Generator`` of the matrix. Defaults to torch's global generator.

    Returns:
        (OUT, IN) float32 tensor.
    """
    made = torch.empty(shape, dtype=torch.float32, device="cpu")
    return nn.init.orthogonal_(made, gain, generator=generator)


def steps_of(
    x: torch.Tensor, state: torch.Tensor, start: torch.Tensor | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    """Yield the rows of ``x`` and of ``start`` for each step.

    Args:
        x: (L * b, D), L steps of b agents, time first.
        state: (b, M), hidden states, whose first axis gives b.
        start: (L * b,) bool, steps that begin an episode, or None.

    Yields:
        (b, D) of ``x``, and (b, 1) of ``start`` or None.
    """
    agents = state.shape[0]
    steps = x.shape[0] // agents  # len(x) would become a constant in an export to ONNX
    begins = None if start is None else start.view(steps, agents, 1)
    for t, row in enumerate(x.view(steps, agents, -1)):
        yield row, None if begins is None else begins[t]


class Recurrent(nn.Module):
    """Base class of the modules, with linear layers of orthogonal weights and zero biases.

    Attributes:
        state_size: Size of the hidden state of one agent.
    """

    state_size: int

    def add_linear(
        self, suffix: str, inputs: int, parts: int, generator: torch.Generator | None
    ) -> None:
        """Register a linear layer: ``weight_SUFFIX`` and ``bias_SUFFIX``.

        The weight has shape (parts * size, inputs), and each part is orthogonal.

        Args:
            suffix: Suffix of the parameters' names.
            inputs: Size of the input.
            parts: Number of parts, such as the three gates of a GRU.
            generator: ``torch.Generator`` of the weights, or None for torch's global generator.
        """
        size = self.size
        weight = torch.cat([orthogonal((size, inputs), generator=generator) for _ in range(parts)])
        self.register_parameter(f"weight_{suffix}", nn.Parameter(weight))
        bias = torch.zeros(parts * size, dtype=torch.float32, device="cpu")
        self.register_parameter(f"bias_{suffix}", nn.Parameter(bias))

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def scan_dtype(
        self,
        x: torch.Tensor,
        state: torch.Tensor,
        start: torch.Tensor | None,
        *weights: torch.Tensor,
    ) -> torch.dtype | None:
        """Return ``scans.rows_dtype`` for arguments of ``forward``.

        Raises:
            ParameterError: If a scan applies, and a shape or the type of ``start`` is wrong.
        """
        dtype = rows_dtype(x, state, *weights)
        if dtype is None:
            return None
        fits = x.dim() == 2 and state.shape[1:] == (self.state_size,)
        fits = fits and len(state) > 0 and len(x) % len(state) == 0
        if start is not None:
            fits = fits and start.dtype == torch.bool and start.numel() == len(x)
        if not fits:
            given = {"x": x, "state": state} | ({} if start is None else {"start": start})
            found = ", ".join(f"{k} {tuple(v.shape)} {v.dtype}" for k, v in given.items())
            raise ParameterError(
                f"{type(self).__name__}: got {found}, expected x (L * b, inputs), "
                f"state (b, {self.state_size}) and start (L * b,) torch.bool or None, for L steps "
                f"of b > 0 agents"
            )
        return dtype


class GRU(Recurrent):
    """Gated recurrent unit with the weights of ``torch.nn.GRUCell``.

    All steps of a sequence run in one kernel launch (``scans.py``) in two cases: under autocast to
    bfloat16 with a multiple of 16 units up to 128, and in float32 with up to 512 units. Otherwise
    they run as a loop of torch operators.

    Args:
        inputs: Size of the input.
        size: Number of units, equal to ``state_size``.
        generator: ``torch.Generator`` of the weights. Defaults to torch's global generator.

    Examples:
        >>> import torch
        >>> from cupydrive import nn
        >>> gru = nn.GRU(inputs=8, size=32)
        >>> out, state = gru(torch.randn(10 * 4, 8), torch.zeros(4, 32))  # 10 steps of 4 agents
        >>> out.shape, state.shape
        (torch.Size([40, 32]), torch.Size([4, 32]))
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
        """Return ``(out, state)`` of L steps of b agents, in the shapes that the module lists."""
        weights = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        dtype = self.scan_dtype(x, state, start, *weights)
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
    """Long short-term memory with forget gates and the weights of ``torch.nn.LSTMCell``.

    Args:
        inputs: Size of the input.
        size: Number of units. ``state_size`` is ``2 * size``: outputs, then cells.
        generator: ``torch.Generator`` of the weights. Defaults to torch's global generator.
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
        """Return ``(out, state)`` of L steps of b agents, in the shapes that the module lists."""
        seen = []
        for inner, begins in steps_of(
            functional.linear(x, self.weight_ih, self.bias_ih), state, start
        ):
            if begins is not None:
                state = state.masked_fill(begins, 0.0)
            out, cell = state.chunk(2, 1)
            into, forget, new, output = (
                inner + functional.linear(out, self.weight_hh, self.bias_hh)
            ).chunk(4, 1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
            out = torch.sigmoid(output) * torch.tanh(cell)
            state = torch.cat((out, cell), 1)
            seen.append(out)
        return torch.cat(seen), state


class MinGRU(Recurrent):
    """Minimal gated recurrent units (MinGRU), each with a highway gate.

    The gates do not depend on the state, so that matrix products cover whole sequences. Let c, g, p
    be the outputs of the linear layer for ``x``, z = sigmoid(g) and s = sigmoid(p). The state h
    becomes h + z (new(c) - h), where new(c) = c + 0.5 for c >= 0 and sigmoid(c) otherwise. The
    output is x + s (h - x), which is the input of the next layer.

    Args:
        size: Number of units of each layer, equal to the size of the input. ``state_size`` is
            ``layers * size``.
        layers: Number of layers. Defaults to 2.
        generator: ``torch.Generator`` of the weights. Defaults to torch's global generator.
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
        """Return ``(out, state)`` of L steps of b agents, in the shapes that the module lists."""
        left = []
        dtype = self.scan_dtype(x, state, start, self.weight_0)
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
        """Compute one layer step by step.

        Args:
            x: (L * b, size), inputs.
            weight: (3 * size, size), weight of the layer.
            bias: (3 * size,), bias of the layer.
            state: (b, size), hidden states of the layer before the first step.
            start: (L * b,) bool, steps that begin an episode, or None.

        Returns:
            ``(out, state)``, (L * b, size) and (b, size).
        """
        candidate, update, highway = functional.linear(x, weight, bias).chunk(3, 1)
        new = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
        update, seen = torch.sigmoid(update).view(-1, *state.shape), []
        for (row, begins), z in zip(steps_of(new, state, start), update, strict=True):
            if begins is not None:
                state = state.masked_fill(begins, 0.0)
            state = state + z * (row - state)
            seen.append(state)
        return x + torch.sigmoid(highway) * (torch.cat(seen) - x), state
