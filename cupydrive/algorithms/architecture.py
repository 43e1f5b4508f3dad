"""What a network is made of: a description, from which torch module and kernels are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le, MaxLen
from pydantic import BeforeValidator

from cupydrive import nn
from cupydrive.errors import ParameterError, did_you_mean
from cupydrive.inputs.arguments import T, shown
from cupydrive.inputs.validation import validated
from cupydrive.nn import Recurrent

# layer, network: far beyond what fits, so that a slip is not a matter of memory
WIDEST, DEEPEST = 65_536, 64


def as_tuple(value: T) -> T | tuple:
    """Return a list as a tuple."""
    return tuple(value) if isinstance(value, list) else value


Activation = Literal["tanh", "relu", "silu", "gelu"]
Width = Annotated[int, Ge(1), Le(WIDEST)]
Widths = Annotated[tuple[Width, ...], MaxLen(DEEPEST), BeforeValidator(as_tuple)]


@dataclass(frozen=True)
class Described:
    """A part of a description, whose fields are validated when it is made."""

    def __post_init__(self) -> None:
        kind = type(self)
        for name, value in validated(
            kind.__name__, kind, {f.name: getattr(self, f.name) for f in fields(self)}
        ).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class GRU(Described):
    """A core of gated recurrent units (Cho et al. 2014), as ``torch.nn.GRU`` computes them.

    Args:
        size: Units, which are also the hidden state.
    """

    size: Width

    kind: ClassVar[str] = "gru"

    def module(self, inputs: int, generator: torch.Generator | None) -> Recurrent:
        """Return the torch module, for ``inputs`` numbers of each row."""
        return nn.GRU(inputs, self.size, generator)

    @property
    def state_size(self) -> int:
        """Numbers of hidden state."""
        return self.size


@dataclass(frozen=True)
class LSTM(Described):
    """A core of long short-term memory (Gers et al. 2000), as ``torch.nn.LSTM`` computes it, by
    torch alone.

    Args:
        size: Units; the hidden state is twice as large.
    """

    size: Width

    kind: ClassVar[str] = "lstm"

    def module(self, inputs: int, generator: torch.Generator | None) -> Recurrent:
        """Return the torch module, for ``inputs`` numbers of each row."""
        return nn.LSTM(inputs, self.size, generator)

    @property
    def state_size(self) -> int:
        """Numbers of hidden state."""
        return 2 * self.size


@dataclass(frozen=True)
class MinGRU(Described):
    """A core of minimal gated recurrent units (Feng et al. 2024), each with a highway gate around
    it; ``cupydrive.nn.MinGRU`` has the equations.

    Args:
        size: Units of each layer; the last of the network's hidden layers has as many.
        layers: How many follow each other.
    """

    size: Width
    layers: Annotated[int, Ge(1), Le(DEEPEST)] = 2

    kind: ClassVar[str] = "mingru"

    def module(self, inputs: int, generator: torch.Generator | None) -> Recurrent:
        """Return the torch module, for ``inputs`` numbers of each row."""
        return nn.MinGRU(self.size, self.layers, generator)

    @property
    def state_size(self) -> int:
        """Numbers of hidden state."""
        return self.layers * self.size


Core = GRU | LSTM | MinGRU
CORES: dict[str, type[Core]] = {kind.kind: kind for kind in (GRU, LSTM, MinGRU)}


def as_core(value: object) -> object:
    """Return the core that a dictionary of JSON describes; a core or None as it is."""
    if value is None or isinstance(value, Core):
        return value
    if not isinstance(value, Mapping):
        kinds = ", ".join(kind.__name__ for kind in CORES.values())
        raise ParameterError(
            f"Network: core = {shown(value)}; it must be {kinds} or None, such as GRU(128)"
        )
    about = dict(value)
    kind = about.pop("kind", None)
    if kind not in CORES:
        raise ParameterError(f"core: kind = {shown(kind)}; it must be one of {', '.join(CORES)}")
    return made(CORES[kind], about)


def made(kind: type, about: Mapping[str, object]) -> object:
    """Return a dataclass from a dictionary; an unknown name is a ``ParameterError``."""
    known = [f.name for f in fields(kind)]
    for name in about:
        if name not in known:
            raise ParameterError(
                f"{kind.__name__} has no {name!r}.{did_you_mean(name, known)} It has: "
                f"{', '.join(known)}"
            )
    if "size" in known and "size" not in about:
        raise ParameterError(f"{kind.__name__} needs size, such as {kind.__name__}(128)")
    return kind(**about)


@dataclass(frozen=True, kw_only=True)
class Network(Described):
    """The network of a policy: hidden layers, then a core with hidden state, then the outputs.

    Args:
        hidden: Width of each hidden layer; ``()``: none.
        core: ``GRU``, ``MinGRU``, ``LSTM`` or None: no hidden state.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``, after each hidden layer.
        shared: Actor and critic are one network with two outputs, instead of two networks.
        layer_norm: Normalise each hidden layer before its activation (Ba et al. 2016).
    """

    hidden: Widths = (64, 64)
    core: Annotated[Core | None, BeforeValidator(as_core)] = None
    activation: Activation = "tanh"
    shared: bool = False
    layer_norm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        core = self.core
        if isinstance(core, MinGRU) and self.hidden[-1:] != (core.size,):
            raise ParameterError(
                f"Network: hidden = {self.hidden} before MinGRU({core.size}), which adds its input "
                f"to its output; hidden must end with {core.size}"
            )

    @property
    def towers(self) -> int:
        """1 if actor and critic share it, else 2."""
        return 1 if self.shared else 2

    @property
    def state_size(self) -> int:
        """Numbers of hidden state of one agent, of all towers; 0 without a core."""
        return 0 if self.core is None else self.towers * self.core.state_size


def as_network(value: object) -> object:
    """Return the network that a dictionary of JSON describes; other values as they are."""
    if not isinstance(value, Mapping):
        return value
    try:
        return made(Network, value)
    except ParameterError as error:
        raise ParameterError(f"network: {error}") from None


def network_as_json(network: Network) -> dict[str, object]:
    """Return what ``as_network`` reads."""
    values = {f.name: getattr(network, f.name) for f in fields(network)}
    if network.core is not None:
        core = network.core
        values["core"] = {
            "kind": core.kind,
            **{f.name: getattr(core, f.name) for f in fields(core)},
        }
    return values | {"hidden": list(network.hidden)}
