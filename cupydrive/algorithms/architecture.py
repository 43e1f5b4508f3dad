"""Description of a network, from which the torch module and the kernels are built."""

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

# Limits of a layer and a network. They are far beyond any memory, so that a typo is not reported as
# an out-of-memory error.
WIDEST, DEEPEST = 65_536, 64
MOST_CONVOLUTIONS = 3


def as_tuple(value: T) -> T | tuple:
    """Convert a list to a tuple. Other values are unchanged."""
    return tuple(value) if isinstance(value, list) else value


Activation = Literal["tanh", "relu", "silu", "gelu"]
Width = Annotated[int, Ge(1), Le(WIDEST)]
Widths = Annotated[tuple[Width, ...], MaxLen(DEEPEST), BeforeValidator(as_tuple)]
Kernel = Annotated[int, Ge(1), Le(8)]
Stride = Annotated[int, Ge(1), Le(4)]


@dataclass(frozen=True)
class Described:
    """Part of a description. Its fields are validated by the constructor."""

    def __post_init__(self) -> None:
        kind = type(self)
        for name, value in validated(kind.__name__, kind, self.values()).items():
            object.__setattr__(self, name, value)

    def values(self) -> dict[str, object]:
        """Return the fields by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class GRU(Described):
    """Core of gated recurrent units (Cho et al. 2014), equal to ``torch.nn.GRU``.

    Args:
        size: Number of units, and size of the hidden state.

    Examples:
        >>> import cupydrive as cd
        >>> cd.GRU(128).state_size
        128
    """

    size: Width

    kind: ClassVar[str] = "gru"

    def module(self, inputs: int, generator: torch.Generator | None) -> Recurrent:
        """Create the torch module.

        Args:
            inputs: Number of entries of a row.
            generator: ``torch.Generator`` of the weights, or None for torch's global generator.
        """
        return nn.GRU(inputs, self.size, generator)

    @property
    def state_size(self) -> int:
        """Size of the hidden state."""
        return self.size


@dataclass(frozen=True)
class LSTM(Described):
    """Core of long short-term memory (Gers et al. 2000), equal to ``torch.nn.LSTM``.

    It has no kernels, so torch computes it.

    Args:
        size: Number of units. The hidden state has twice this size.
    """

    size: Width

    kind: ClassVar[str] = "lstm"

    def module(self, inputs: int, generator: torch.Generator | None) -> Recurrent:
        """Create the torch module.

        Args:
            inputs: Number of entries of a row.
            generator: ``torch.Generator`` of the weights, or None for torch's global generator.
        """
        return nn.LSTM(inputs, self.size, generator)

    @property
    def state_size(self) -> int:
        """Size of the hidden state."""
        return 2 * self.size


@dataclass(frozen=True)
class MinGRU(Described):
    """Core of minimal gated recurrent units (Feng et al. 2024) with highway gates.

    ``cupydrive.nn.MinGRU`` has the equations.

    Args:
        size: Number of units of each layer. The last hidden layer of the network must have this
            width.
        layers: Number of consecutive layers.
    """

    size: Width
    layers: Annotated[int, Ge(1), Le(DEEPEST)] = 2

    kind: ClassVar[str] = "mingru"

    def module(self, inputs: int, generator: torch.Generator | None) -> Recurrent:
        """Create the torch module.

        Args:
            inputs: Number of entries of a row.
            generator: ``torch.Generator`` of the weights, or None for torch's global generator.
        """
        return nn.MinGRU(self.size, self.layers, generator)

    @property
    def state_size(self) -> int:
        """Size of the hidden state."""
        return self.layers * self.size


@dataclass(frozen=True)
class ConvLayer:
    """A convolutional layer with the sizes of its input and output.

    Args:
        image: Height, width and channels of the input.
        channels: Output channels.
        kernel: Height and width of the kernels.
        stride: Stride in both directions.
    """

    image: tuple[int, ...]
    channels: int
    kernel: int
    stride: int

    @property
    def out(self) -> tuple[int, int, int]:
        """Height, width and channels of the output."""
        height, width = ((n - self.kernel) // self.stride + 1 for n in self.image[:2])
        return height, width, self.channels

    @property
    def positions(self) -> int:
        """Number of positions of a kernel in the image."""
        return self.out[0] * self.out[1]

    @property
    def inputs(self) -> int:
        """Number of input entries at one position."""
        return self.kernel**2 * self.image[2]


@dataclass(frozen=True)
class Conv(Described):
    """Convolutions of images (H, W, C), each followed by the network's activation.

    There is no padding. A layer with kernel size K and stride S reduces H rows to
    (H - K) // S + 1.

    Args:
        channels: Output channels of each layer, for one to three layers.
        kernel: Height and width of the kernels, from 1 to 8. One number, or one for each layer.
        stride: Stride in both directions, from 1 to 4. One number, or one for each layer.
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
                    f"{self.channels}. Give one number, or one for each layer"
                )

    def by_layer(self, name: str) -> tuple[int, ...]:
        """Return the kernel size or the stride of each layer."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value,) * len(self.channels)

    def layers(self, obs_shape: tuple[int, ...]) -> list[ConvLayer]:
        """Return the layers for observations of the given shape.

        Raises:
            ParameterError: If the observations are not images, or are smaller than a kernel.
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
    """Convert a dictionary from JSON to convolutions. Other values are unchanged."""
    return made(Conv, value) if isinstance(value, Mapping) else value


Core = GRU | LSTM | MinGRU
CORES: dict[str, type[Core]] = {kind.kind: kind for kind in (GRU, LSTM, MinGRU)}


def as_core(value: object) -> object:
    """Convert a dictionary from JSON to a core. A core or None is unchanged."""
    if value is None or isinstance(value, Core):
        return value
    if not isinstance(value, Mapping):
        kinds = ", ".join(kind.__name__ for kind in CORES.values())
        raise ParameterError(
            f"Network: core = {shown(value)}, expected {kinds} or None, such as GRU(128)"
        )
    about = dict(value)
    kind = about.pop("kind", None)
    if kind not in CORES:
        raise ParameterError(f"core: kind = {shown(kind)}, expected one of {', '.join(CORES)}")
    return made(CORES[kind], about)


def made(kind: type, about: Mapping[str, object]) -> object:
    """Create a dataclass from a dictionary. An unknown name raises ``ParameterError``."""
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
    """Network of a policy: convolutions, hidden layers, an optional core, and the outputs.

    Examples:
        >>> import cupydrive as cd
        >>> network = cd.Network(hidden=(64,), core=cd.GRU(32), activation="relu", shared=True)
        >>> ppo = cd.PPO(network=network, num_steps=32)
        >>> network.state_size
        32

    Args:
        conv: ``Conv`` for observations that are images. If None, the hidden layers read all
            entries.
        hidden: Width of each hidden layer. ``()`` for no hidden layers.
        core: ``GRU``, ``MinGRU``, ``LSTM``, or None for a network without hidden state.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``, after each convolution and hidden
            layer.
        shared: Use one network with two outputs for actor and critic, instead of two networks.
        layer_norm: Apply layer normalization before each activation (Ba et al. 2016): over the
            units of a hidden layer, and over the channels of each position after a convolution. The
            result is always 0 for one unit or channel.
        one_hot: One-hot encode observations of uint8. Value v of a channel, the last axis, becomes
            ``obs_high`` + 1 entries, of which entry v is 1. Values above ``obs_high`` give zeros.
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
                f"Network: got hidden = {self.hidden}, expected a last width of {core.size}, "
                f"because the highway gates of MinGRU({core.size}) need inputs of its size"
            )

    @property
    def towers(self) -> int:
        """Number of separate networks: 1 if actor and critic are shared, otherwise 2."""
        return 1 if self.shared else 2

    def outputs(self, size: int) -> tuple[int, ...]:
        """Return the number of outputs of each tower for ``size`` distribution parameters."""
        if self.shared:
            return (size + self.valued,)
        return size, 1

    @property
    def state_size(self) -> int:
        """Size of the hidden state of one agent, of all networks. 0 without a core."""
        return 0 if self.core is None else self.towers * self.core.state_size

    def input_shape(self, group: Group) -> tuple[int, ...]:
        """Return the shape of a group's observations at the first layer.

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
        """Return the network of each tower, and the shape of its observations.

        Args:
            obs_shape: Shape of one observation at the first layer.
            critic_dim: K of a centralized critic, which reads flat rows of floats, or 0.
        """
        actor = self, obs_shape
        critic = (replace(self, conv=None, one_hot=False), (critic_dim,)) if critic_dim else actor
        return [actor] if self.shared else [actor, critic]

    def convolutions(self, obs_shape: tuple[int, ...]) -> list[ConvLayer]:
        """Return the convolutional layers for observations of the given shape.

        Raises:
            ParameterError: If the layers do not fit the shape.
        """
        return [] if self.conv is None else self.conv.layers(obs_shape)

    def inputs(self, obs_shape: tuple[int, ...]) -> int:
        """Return the number of inputs of the hidden layers."""
        layers = self.convolutions(obs_shape)
        return math.prod(layers[-1].out if layers else obs_shape)


@dataclass(frozen=True, kw_only=True)
class QNetwork(Network):
    """Network of action values: one tower without the output of a critic."""

    valued: ClassVar[bool] = False


# Default network for observations of shape (H, W, C), if they are large enough.
OF_IMAGES = Network(conv=Conv((16,)), hidden=(128,), activation="relu", shared=True)


def as_network(value: object) -> object:
    """Convert a dictionary from JSON to a network. Other values are unchanged."""
    if not isinstance(value, Mapping):
        return value
    try:
        return made(Network, value)
    except ParameterError as error:
        raise ParameterError(f"network: {error}") from None


def network_as_json(network: Network) -> dict[str, object]:
    """Convert a network to the dictionary that ``as_network`` reads."""
    values = network.values() | {"hidden": list(network.hidden)}
    if network.conv is not None:
        values["conv"] = network.conv.values()
    if network.core is not None:
        values["core"] = {"kind": network.core.kind, **network.core.values()}
    return values
