"""Sizes of networks that are computed layer by layer, and where their weights lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from cupydrive.algorithms.architecture import GRU, MinGRU, Network
from cupydrive.algorithms.kernels.layout import Constants, NetworkLayout, padded
from cupydrive.codegen.source import Unit
from cupydrive.protocols import Executor

ROW_PARTS = "#define PACK_FIRST 1\n"  # also pack weights for the gradients of the inputs


@dataclass(frozen=True)
class LayerwiseLayout(NetworkLayout):
    """Sizes of a network that is computed layer by layer. Its ``towers`` are the linear layers.

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
        """Number of entries of an observation, D."""
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
    ) -> LayerwiseLayout:
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

    def of_tower(self, number: int) -> tuple[LayerwiseLayout, range]:
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


def encoder_layers(network: Network, obs_shape: tuple[int, ...]) -> int:
    """Return the number of layers of one tower before its core or last layer."""
    return (len(network.convolutions(obs_shape)) + len(network.hidden)) * (1 + network.layer_norm)


def tower_layers(
    network: Network, obs_shape: tuple[int, ...], outputs: int
) -> list[tuple[int, int]]:
    """Return (inputs, outputs) of the layers of one tower.

    They are the convolutions at one position, the hidden layers, those of the core, and the last
    one. Gains and biases of a normalization are a layer of one input.
    """
    core, widths = network.core, (network.inputs(obs_shape), *network.hidden)
    layers: list[tuple[int, int]] = []
    convolutions = ((each.inputs, each.channels) for each in network.convolutions(obs_shape))
    for pair in (*convolutions, *pairwise(widths)):
        layers += [pair, (1, pair[1])] if network.layer_norm else [pair]
    if isinstance(core, GRU):
        layers += [(widths[-1], 3 * core.size), (core.size, 3 * core.size)]
    elif isinstance(core, MinGRU):
        layers += [(core.size, 3 * core.size)] * core.layers
    return [*layers, (widths[-1] if core is None else core.size, outputs)]


def fits(layout: LayerwiseLayout, executor: Executor) -> bool:
    """Return whether one row of each part fits into a team's memory."""
    parts = [*layout.towers]
    for network, shape in layout.network.tower_inputs(layout.obs_shape, layout.critic_dim):
        if not network.layer_norm and network.conv is None:  # layers form one part
            parts.append((math.prod(shape), *network.hidden))
    return all(4 * sum(map(padded, widths)) <= executor.team_bytes for widths in parts)
