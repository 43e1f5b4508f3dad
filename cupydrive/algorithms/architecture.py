"""What a network is made of: a description, from which torch module and kernels are built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le, MaxLen
from pydantic import BeforeValidator

from cupydrive import nn
from cupydrive.errors import ParameterError, did_you_mean
from cupydrive.inputs.arguments import T, shown
from cupydrive.inputs.validation import validated
from cupydrive.nn import Recurrent

if TYPE_CHECKING:
    from cupydrive.spec import Group

# layer, network: far beyond what fits, so that a slip is not a matter of memory
WIDEST, DEEPEST = 65_536, 64
MOST_CONVOLUTIONS = 3


def as_tuple(value: T) -> T | tuple:
    """Return a list as a tuple."""
    return tuple(value) if isinstance(value, list) else value


Activation = Literal["tanh", "relu", "silu", "gelu"]
Width = Annotated[int, Ge(1), Le(WIDEST)]
Widths = Annotated[tuple[Width, ...], MaxLen(DEEPEST), BeforeValidator(as_tuple)]
Kernel = Annotated[int, Ge(1), Le(8)]
Stride = Annotated[int, Ge(1), Le(4)]


@dataclass(frozen=True)
class Described:
    """A part of a description, whose fields are validated when it is made."""

    def __post_init__(self) -> None:
        kind = type(self)
        for name, value in validated(kind.__name__, kind, self.values()).items():
            object.__setattr__(self, name, value)

    def values(self) -> dict[str, object]:
        """Return the fields by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


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


@dataclass(frozen=True)
class ConvLayer:
    """One layer of convolutions, with the sizes of what it reads and writes.

    Args:
        image: Height, width and channels of what it reads.
        channels: Channels that it writes.
        kernel: Height and width of its kernels.
        stride: Entries from one position of a kernel to the next, in both directions.
    """

    image: tuple[int, ...]
    channels: int
    kernel: int
    stride: int

    @property
    def out(self) -> tuple[int, int, int]:
        """Height, width and channels of what it writes."""
        height, width = ((n - self.kernel) // self.stride + 1 for n in self.image[:2])
        return height, width, self.channels

    @property
    def positions(self) -> int:
        """Positions of a kernel within the image."""
        return self.out[0] * self.out[1]

    @property
    def inputs(self) -> int:
        """Entries of the image that one position reads."""
        return self.kernel**2 * self.image[2]


@dataclass(frozen=True)
class Conv(Described):
    """Convolutions of images (H, W, C), each followed by the network's activation. Images are not
    padded: a layer of height K and stride S leaves (H - K) // S + 1 rows.

    Args:
        channels: Channels that each of up to three layers writes.
        kernel: Height and width of the kernels, from 1 to 8; one number, or one for each layer.
        stride: Entries from one position of a kernel to the next, from 1 to 4; likewise.
    """

    channels: Annotated[tuple[Width, ...], BeforeValidator(as_tuple)]
    kernel: Annotated[Kernel | tuple[Kernel, ...], BeforeValidator(as_tuple)] = 3
    stride: Annotated[Stride | tuple[Stride, ...], BeforeValidator(as_tuple)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.channels) <= MOST_CONVOLUTIONS:
            raise ParameterError(
                f"Conv: got {len(self.channels)} layers, channels = {self.channels}, expected 1 to "
                f"{MOST_CONVOLUTIONS}"
            )
        for name in ("kernel", "stride"):
            if len(self.by_layer(name)) != len(self.channels):
                raise ParameterError(
                    f"Conv: {name} = {getattr(self, name)} does not fit channels = "
                    f"{self.channels}; give one number, or one for each layer"
                )

    def by_layer(self, name: str) -> tuple[int, ...]:
        """Return the kernel or the stride of each layer."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value,) * len(self.channels)

    def layers(self, obs_shape: tuple[int, ...]) -> list[ConvLayer]:
        """Return the layers for observations of one shape.

        Raises:
            ParameterError: If these are no images, or smaller than a kernel.
        """
        image, found = obs_shape, []
        if len(image) != 3:
            raise ParameterError(
                f"Network: conv = {self} needs images: got obs_shape = {obs_shape}, expected "
                f"(height, width, channels)"
            )
        sizes = self.channels, self.by_layer("kernel"), self.by_layer("stride")
        for number, (channels, kernel, stride) in enumerate(zip(*sizes, strict=True)):
            if kernel > min(image[:2]):
                raise ParameterError(
                    f"Network: conv = {self} does not fit obs_shape = {obs_shape}: layer {number} "
                    f"sees {image[0]} x {image[1]}, expected at least {kernel} x {kernel}. Take "
                    f"smaller kernels or strides"
                )
            found.append(ConvLayer(image, channels, kernel, stride))
            image = found[-1].out
        return found


def as_conv(value: object) -> object:
    """Return the convolutions that a dictionary of JSON describes; other values as they are."""
    return made(Conv, value) if isinstance(value, Mapping) else value


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
    for each in fields(kind):
        if each.default is MISSING and each.name not in about:
            example = "(16,)" if each.name == "channels" else "128"
            raise ParameterError(
                f"{kind.__name__} needs {each.name}, such as {kind.__name__}({example})"
            )
    return kind(**about)


@dataclass(frozen=True, kw_only=True)
class Network(Described):
    """The network of a policy: convolutions, hidden layers, a core with hidden state, the outputs.

    Args:
        conv: ``Conv`` for observations that are images, or None: hidden layers see every entry.
        hidden: Width of each hidden layer; ``()``: none.
        core: ``GRU``, ``MinGRU``, ``LSTM`` or None: no hidden state.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``, after each convolution and hidden
            layer.
        shared: Actor and critic are one network with two outputs, instead of two networks.
        layer_norm: Normalise each hidden layer before its activation (Ba et al. 2016).
        one_hot: Observations of uint8 enter one-hot: value v of a channel, the last axis, as
            ``obs_high`` + 1 entries of which entry v is 1. A value above ``obs_high`` gives zeros.
    """

    conv: Annotated[Conv | None, BeforeValidator(as_conv)] = None
    hidden: Widths = (64, 64)
    core: Annotated[Core | None, BeforeValidator(as_core)] = None
    activation: Activation = "tanh"
    shared: bool = False
    layer_norm: bool = False
    one_hot: bool = False

    valued: ClassVar[bool] = True  # an output is the value of the observation

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

    def outputs(self, size: int) -> tuple[int, ...]:
        """Return the outputs of each tower, for ``size`` parameters of a distribution."""
        if self.shared:
            return (size + self.valued,)
        return size, 1

    @property
    def state_size(self) -> int:
        """Numbers of hidden state of one agent, of all towers; 0 without a core."""
        return 0 if self.core is None else self.towers * self.core.state_size

    def input_shape(self, group: Group) -> tuple[int, ...]:
        """Return the shape of a group's observations as the first layer reads them.

        Raises:
            ParameterError: If ``one_hot`` does not fit their dtype.
        """
        if not self.one_hot:
            return group.obs_shape
        if group.obs_dtype != "uint8":
            raise ParameterError(
                f"Network: one_hot = True needs bytes: got obs_dtype = {group.obs_dtype!r} of "
                f"{group.name!r}, expected 'uint8'. Leave one_hot out"
            )
        return (*group.obs_shape[:-1], sum(group.values))

    def tower_inputs(
        self, obs_shape: tuple[int, ...], critic_dim: int = 0
    ) -> list[tuple[Network, tuple[int, ...]]]:
        """Return the network of each tower, and the shape of what it reads.

        Args:
            obs_shape: Shape of one observation as the first layer reads it.
            critic_dim: K of a central critic, which reads flat rows of floats, or 0.
        """
        actor = self, obs_shape
        critic = (replace(self, conv=None, one_hot=False), (critic_dim,)) if critic_dim else actor
        return [actor] if self.shared else [actor, critic]

    def convolutions(self, obs_shape: tuple[int, ...]) -> list[ConvLayer]:
        """Return the layers of convolutions for observations of one shape.

        Raises:
            ParameterError: If they do not fit it.
        """
        return [] if self.conv is None else self.conv.layers(obs_shape)

    def inputs(self, obs_shape: tuple[int, ...]) -> int:
        """Return how many numbers the hidden layers read."""
        layers = self.convolutions(obs_shape)
        return math.prod(layers[-1].out if layers else obs_shape)


@dataclass(frozen=True, kw_only=True)
class QNetwork(Network):
    """A network of action values: one tower without the output of a critic."""

    valued: ClassVar[bool] = False


# What observations of shape (H, W, C) get, if they are large enough.
OF_IMAGES = Network(conv=Conv((16,)), hidden=(128,), activation="relu", shared=True)


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
    values = network.values() | {"hidden": list(network.hidden)}
    if network.conv is not None:
        values["conv"] = network.conv.values()
    if network.core is not None:
        values["core"] = {"kind": network.core.kind, **network.core.values()}
    return values
