"""Layout of a network in the learner's kernels: compile-time sizes and tiles.

``kernels/learn/layers.cuh`` documents the arrays. This module has their sizes. The bits do not
depend on the rows of a tile. A CPU thread uses few rows, which stay in its cache. A GPU block uses
more, so that each weight is reused for many rows. It stores weights and a chunk's gradient in
shared memory if they fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from torch import nn

from cupydrive.algorithms.settings import RolloutSettings
from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.playing.policy import (
    ActorCritic,
    Categorical,
    Distribution,
    EpsilonGreedy,
    Gaussian,
    RecurrentActorCritic,
    Tower,
)
from cupydrive.protocols import Executor
from cupydrive.spec import Group

OBSERVED_BITS = "#define OBSERVED OBSERVED_BITS\n"  # of `observed` below
Constants = Sequence[tuple[str, int]]  # names and values of compile-time constants

ONE_MEMBER_ROWS = 32
TEAM_ROWS = 128
FEWEST_ROWS = 4  # minimum of a forward pass. Fewer would leave half of a GPU's warps empty
ROOM = 64  # bytes of shared memory that a block reserves for alignment
# If fewer rows fit into shared memory next to weights and gradient, those stay in global memory.
FEWEST_SHARED_ROWS = 32
PAD = 16  # floats, the alignment of matrix rows
# Threads of one block on a GPU, by kernel file.
TEAMS = {"exact/forward": 256, "exact/gradient": 256, "update": 128}
# Number of adjacent blocks whose gradients are added first. Equals MOST_PARTS of update.cu.
PARTS = 32
ADDERS_AT_ONCE = 16  # teams per processor that reduce gradients at the same time


def padded(n: int) -> int:
    """Round ``n`` up to a multiple of ``PAD``."""
    return -(-n // PAD) * PAD


@dataclass(frozen=True)
class NetworkLayout:
    """Sizes of a perceptron policy in kernels.

    Args:
        towers: Widths of actor and critic from the observation to the output, or of the shared
            network.
        size: Number of the distribution's parameters.
        relu: Use ReLU instead of tanh between layers.
        observed: Generated source for ``kernels/learn/observed.cuh``, from ``observed_rows``.
        norm: Whether a layer normalization follows each hidden layer. Only tensor cores support it.
    """

    towers: tuple[tuple[int, ...], ...]
    size: int
    relu: bool = False
    observed: str = ""
    norm: bool = False

    @property
    def sequences(self) -> bool:
        """Whether minibatches have whole sequences of an agent's rows."""
        return False

    @classmethod
    def of(
        cls, config: RolloutSettings, obs_dim: int, size: int, observed: str = ""
    ) -> NetworkLayout:
        """Return the layout of the described network of ``config``."""
        network = config.architecture
        inner = (obs_dim, *network.hidden)
        towers = tuple((*inner, outputs) for outputs in network.outputs(size))
        return cls(towers, size, network.activation == "relu", observed, network.layer_norm)

    @cached_property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer, by tower.

        Gains and biases of a normalization are a layer with one input.
        """
        return [
            layer
            for tower in self.towers
            for k, pair in enumerate(pairwise(tower))
            for layer in ((pair, (1, pair[1])) if self.norm and k < len(tower) - 2 else (pair,))
        ]

    @property
    def flat(self) -> NetworkLayout:
        """Layout in which each normalization is a layer, for kernels that see only parameters."""
        if not self.norm:
            return self
        return NetworkLayout(tuple(self.layers), self.size, self.relu)

    @cached_property
    def tile_bytes(self) -> int:
        """Bytes of one row of a tile: its observation, and the outputs of each layer."""
        return 4 * (padded(self.towers[0][0]) + sum(padded(out) for _, out in self.layers))

    @cached_property
    def spare_bytes(self) -> int:
        """Bytes per row for gradients of hidden layers' outputs that need their own memory."""
        hidden = [[padded(width) for width in tower[1:-1]] for tower in self.towers]
        fit = all(len(widths) < 2 or widths[-2] <= widths[-1] for widths in hidden)
        return (
            4 * (1 if fit else 2) * max((width for widths in hidden for width in widths), default=0)
        )

    @cached_property
    def forward_packed(self) -> int:
        """Floats of the packed weights of forward passes."""
        return sum((into + 1) * padded(out) for into, out in self.layers)

    @cached_property
    def packed(self) -> int:
        """Floats of all packed weights."""
        first = {0, len(self.towers[0]) - 1}  # layers that read the observation
        own = [0 if k in first else out * padded(into) for k, (into, out) in enumerate(self.layers)]
        return self.forward_packed + sum(own)

    @cached_property
    def gradient(self) -> int:
        """Floats of one gradient, including reported metrics."""
        return sum(out * padded(into) + padded(out) for into, out in self.layers) + PAD

    @cached_property
    def scratch(self) -> int:
        """Maximum number of floats in which a single thread sums gradients.

        It is ``SCRATCH_FLOATS`` of ``kernels/learn/exact/splits.cuh``.
        """
        largest = [max(into * padded(out), out * padded(into)) for into, out in self.layers]
        return 3 * (sum(largest) + sum(padded(out) for _, out in self.layers) + PAD)

    @cached_property
    def rows(self) -> int:
        """Number of rows of weights and biases in a gradient."""
        return sum(out + 1 for _, out in self.layers)

    def unit(
        self,
        path: str,
        executor: Executor,
        constants: Constants = (),
        spaces: str = "",
        team: int | None = None,
    ) -> Unit:
        """Return the ``Unit`` of ``kernels/learn/PATH.cu`` for this network.

        Args:
            path: Name of the file without its extension.
            executor: Executor of the kernels.
            constants: Additional pairs (name, int).
            spaces: Additional generated source.
            team: Threads of one block on a GPU. Defaults to those of ``TEAMS``.
        """
        own = (
            ("OBS", self.towers[0][0]),
            ("PARAMETERS", self.size),
            ("TOWERS", len(self.towers)),
            ("LAYERS", len(self.towers[0]) - 1),
            ("RELU", self.relu),
        )
        widths = ", ".join("{" + ", ".join(map(str, tower)) + "}" for tower in self.towers)
        norm = "#define LAYER_NORM 1\n" * self.norm
        text = f"constexpr int WIDTH[TOWERS][LAYERS + 1] = {{{widths}}};\n{norm}{self.observed}"
        return assemble_file(
            f"learn/{path}",
            (*own, *constants),
            text + spaces,
            min(executor.max_team, team or TEAMS[path]),
        )


def observed_rows(group: Group, one_hot: bool) -> str:
    """Return the generated source for the memory format of a group's observations."""
    if group.obs_dtype == "float32":
        return ""
    if group.bits:
        return OBSERVED_BITS
    if one_hot:
        return f"#define OBSERVED OBSERVED_ONE_HOT\n#define OBS_VALUES {group.values[0]}\n"
    return f"#define OBSERVED OBSERVED_BYTES\n#define OBS_HIGH {float(group.obs_high)!r}f\n"


def tensors_of(policy: ActorCritic | RecurrentActorCritic) -> list[nn.Parameter]:
    """Return the weights and biases of a described network, by tower and layer."""
    return [p for tower in tower_modules(policy) for p in tower_tensors(tower)]


def tower_modules(policy: ActorCritic | RecurrentActorCritic) -> list[nn.Sequential | Tower]:
    """Return the towers of a described network."""
    return [policy.body] if policy.shared else [policy.actor, policy.critic]


def tower_tensors(tower: nn.Sequential | Tower) -> list[nn.Parameter]:
    """Return the weights and biases of a tower, by layer."""
    found = []
    for part in (*tower.encoder, tower.core, tower.head) if isinstance(tower, Tower) else tower:
        weights = [p for name, p in part.named_parameters() if name.startswith("weight")]
        biases = [p for name, p in part.named_parameters() if name.startswith("bias")]
        found += [p for pair in zip(weights, biases, strict=True) for p in pair]
    return found


def distribution_parts(distribution: Distribution) -> tuple[Constants, str]:
    """Return the constants and the generated source of a distribution."""
    categorical = int(not isinstance(distribution, Gaussian))
    gaussian = int(not isinstance(distribution, Categorical))
    kinds = f"#define CATEGORICAL {categorical}\n#define GAUSSIAN {gaussian}\n"
    kinds += "#define Q_VALUES 1\n" * isinstance(distribution, EpsilonGreedy)
    return distribution.constants, kinds + distribution.spaces


@dataclass(frozen=True)
class Tiles:
    """Compile-time constants of a forward pass or a gradient.

    Args:
        rows: Rows of a tile, a power of two. 0 if not even one row fits.
        packed_in_shared: Whether the weights are in shared memory.
        chunk_in_shared: Whether the accumulators of a chunk's gradient are in shared memory.
    """

    rows: int
    packed_in_shared: bool = False
    chunk_in_shared: bool = False

    @property
    def constants(self) -> tuple[tuple[str, int], ...]:
        """Constants of ``kernels/learn`` as pairs (name, int)."""
        return (
            ("TILE", self.rows),
            ("PACKED_IN_SHARED", self.packed_in_shared),
            ("CHUNK_IN_SHARED", self.chunk_in_shared),
        )


def forward_tiles(layout: NetworkLayout, executor: Executor, rows: int) -> Tiles:
    """Return the ``Tiles`` of a forward pass of ``rows`` rows."""
    if executor.max_team == 1:
        return widest(layout.tile_bytes, executor.team_bytes, ONE_MEMBER_ROWS)
    each = min(TEAM_ROWS, max(FEWEST_ROWS, -(-rows // executor.processors)))
    for in_shared in (True, False):
        found = widest(
            layout.tile_bytes,
            executor.team_bytes - in_shared * 4 * layout.forward_packed - ROOM,
            each,
        )
        if found.rows >= min(each, FEWEST_SHARED_ROWS):
            return Tiles(found.rows, in_shared)
    return found


def gradient_tiles(layout: NetworkLayout, executor: Executor, rows: int) -> Tiles:
    """Return the ``Tiles`` of gradients of chunks of ``rows`` rows."""
    about = 4 * (1 + PAD)  # bytes per row for its index and the reported metrics
    if executor.max_team == 1:
        return widest(layout.tile_bytes + about, executor.team_bytes, ONE_MEMBER_ROWS)
    each = min(TEAM_ROWS, rows)
    for packed, chunk in ((True, True), (True, False), (False, False)):
        taken = 4 * (packed * layout.packed + chunk * layout.gradient) + ROOM
        found = widest(
            layout.tile_bytes + layout.spare_bytes + about, executor.team_bytes - taken, each
        )
        if found.rows >= min(each, FEWEST_SHARED_ROWS):
            return Tiles(found.rows, packed, chunk)
    return found


def widest(row_bytes: int, team_bytes: int, wanted: int) -> Tiles:
    """Return the ``Tiles`` of at least ``wanted`` rows, rounded up to a power of two, that fit.

    If they do not fit, the largest power of two that fits is used.
    """
    rows = 1 << (wanted - 1).bit_length()
    while rows > 0 and rows * row_bytes > team_bytes:
        rows //= 2
    return Tiles(rows)
