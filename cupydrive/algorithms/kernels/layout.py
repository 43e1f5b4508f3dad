"""How the learner's kernels hold a network: sizes that are compiled in, and how many rows a team
computes at once.

``kernels/learn/layers.cuh`` says what each array is; here are its sizes. No bit depends on the rows
at once. A CPU's thread has few, whose numbers stay in its cache. A GPU's block has more, so that
each weight that it reads serves many, and keeps weights and a chunk's gradient in shared memory
where they fit.
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

Constants = Sequence[tuple[str, int]]  # names and values that are compiled in

ONE_MEMBER_ROWS = 32
TEAM_ROWS = 128
FEWEST_ROWS = 4  # of a forward pass: fewer would leave a GPU's warps half empty
ROOM = 64  # bytes of a block that alignment takes
NEAR_ROWS = 32  # at least, for which weights and gradient give up their place
PAD = 16  # rows of matrices begin at multiples of it
# Threads of one block on a GPU, by the file that they run.
TEAMS = {"exact/forward": 256, "exact/gradient": 256, "update": 128}
# of neighbouring blocks, whose gradients are added first; no more than MOST_PARTS in update.cu
PARTS = 32
ADDERS_AT_ONCE = (
    # teams of one processor that add gradients up: where more would wait, each has several strips
    # of them
    16
)


def padded(n: int) -> int:
    """Return ``n`` rounded up to whole vectors."""
    return -(-n // PAD) * PAD


@dataclass(frozen=True)
class NetworkLayout:
    """Sizes of a perceptron policy in kernels.

    Args:
        towers: Widths from the observation to the output, of actor and critic, or of the one that
            is both.
        size: Number of the distribution's parameters.
        relu: ReLU instead of tanh between layers.
        observed: Generated text of ``kernels/learn/observed.cuh``, as ``observed_rows`` returns it.
    """

    towers: tuple[tuple[int, ...], ...]
    size: int
    relu: bool = False
    observed: str = ""

    @property
    def sequences(self) -> bool:
        """Whether minibatches have whole sequences of an agent's rows."""
        return False

    @classmethod
    def of(
        cls, config: RolloutSettings, obs_dim: int, size: int, observed: str = ""
    ) -> NetworkLayout:
        """Return the layout of the default network that ``config`` describes."""
        network = config.architecture
        inner = (obs_dim, *network.hidden)
        towers = tuple((*inner, outputs) for outputs in network.outputs(size))
        return cls(towers, size, network.activation == "relu", observed)

    @cached_property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer, tower after tower."""
        return [pair for tower in self.towers for pair in pairwise(tower)]

    @cached_property
    def tile_bytes(self) -> int:
        """Bytes of one row of a tile: its observation, and the outputs of each layer."""
        return 4 * (padded(self.towers[0][0]) + sum(padded(out) for _, out in self.layers))

    @cached_property
    def spare_bytes(self) -> int:
        """Bytes of one row of the derivatives by outputs of hidden layers, where they have a place
        of their own.
        """
        hidden = [[padded(width) for width in tower[1:-1]] for tower in self.towers]
        fit = all(len(widths) < 2 or widths[-2] <= widths[-1] for widths in hidden)
        return (
            4 * (1 if fit else 2) * max((width for widths in hidden for width in widths), default=0)
        )

    @cached_property
    def forward_copied(self) -> int:
        """Floats of the copies of the weights that forward passes read."""
        return sum((into + 1) * padded(out) for into, out in self.layers)

    @cached_property
    def copied(self) -> int:
        """Floats of the copies of the weights that kernels read."""
        first = {0, len(self.towers[0]) - 1}  # layers that see the observation
        own = [0 if k in first else out * padded(into) for k, (into, out) in enumerate(self.layers)]
        return self.forward_copied + sum(own)

    @cached_property
    def gradient(self) -> int:
        """Floats of one gradient with what is reported."""
        return sum(out * padded(into) + padded(out) for into, out in self.layers) + PAD

    @cached_property
    def scratch(self) -> int:
        """Floats in which one member alone adds gradients up, at most: ``SCRATCH_FLOATS`` of
        ``kernels/learn/exact/pieces.cuh``.
        """
        largest = [max(into * padded(out), out * padded(into)) for into, out in self.layers]
        return 3 * (sum(largest) + sum(padded(out) for _, out in self.layers) + PAD)

    @cached_property
    def rows(self) -> int:
        """Rows of weights and biases in a gradient."""
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
            path: The file's name without its ending.
            executor: Where it is to run.
            constants: Pairs (name, int) besides the network's own.
            spaces: Generated text besides the network's own.
            team: Threads of one block on a GPU; None: those of ``TEAMS``.
        """
        own = (
            ("OBS", self.towers[0][0]),
            ("PARAMETERS", self.size),
            ("TOWERS", len(self.towers)),
            ("LAYERS", len(self.towers[0]) - 1),
            ("RELU", self.relu),
        )
        widths = ", ".join("{" + ", ".join(map(str, tower)) + "}" for tower in self.towers)
        text = f"constexpr int WIDTH[TOWERS][LAYERS + 1] = {{{widths}}};\n{self.observed}{spaces}"
        return assemble_file(
            f"learn/{path}", (*own, *constants), text, min(executor.max_team, team or TEAMS[path])
        )


def observed_rows(group: Group, one_hot: bool) -> str:
    """Return the generated text of how observations of a group lie in memory and are read."""
    if group.obs_dtype == "float32":
        return ""
    if group.bits:
        return "#define OBSERVED OBSERVED_BITS\n"
    if one_hot:
        return f"#define OBSERVED OBSERVED_ONE_HOT\n#define OBS_VALUES {group.values[0]}\n"
    return f"#define OBSERVED OBSERVED_BYTES\n#define OBS_HIGH {float(group.obs_high)!r}f\n"


def tensors_of(policy: ActorCritic | RecurrentActorCritic) -> list[nn.Parameter]:
    """Return the weights and biases of a described network, layer by layer, tower after tower."""
    return [p for tower in tower_modules(policy) for p in tower_tensors(tower)]


def tower_modules(policy: ActorCritic | RecurrentActorCritic) -> list[nn.Sequential | Tower]:
    """Return the towers of a described network."""
    return [policy.body] if policy.shared else [policy.actor, policy.critic]


def tower_tensors(tower: nn.Sequential | Tower) -> list[nn.Parameter]:
    """Return the weights and biases of a tower, layer by layer."""
    found = []
    for part in (*tower.encoder, tower.core, tower.head) if isinstance(tower, Tower) else tower:
        weights = [p for name, p in part.named_parameters() if name.startswith("weight")]
        biases = [p for name, p in part.named_parameters() if name.startswith("bias")]
        found += [p for pair in zip(weights, biases, strict=True) for p in pair]
    return found


def distribution_parts(distribution: Distribution) -> tuple[Constants, str]:
    """Return the constants and the generated text of a distribution."""
    categorical = int(not isinstance(distribution, Gaussian))
    gaussian = int(not isinstance(distribution, Categorical))
    kinds = f"#define CATEGORICAL {categorical}\n#define GAUSSIAN {gaussian}\n"
    kinds += "#define Q_VALUES 1\n" * isinstance(distribution, EpsilonGreedy)
    return distribution.constants, kinds + distribution.spaces


@dataclass(frozen=True)
class Tiles:
    """What is compiled into a forward pass or a gradient.

    Args:
        rows: A power of two; 0 if not even one row fits.
        copies_near: Whether the weights are kept in shared memory.
        chunk_near: Whether the sums of a chunk's gradients are.
    """

    rows: int
    copies_near: bool = False
    chunk_near: bool = False

    @property
    def constants(self) -> tuple[tuple[str, int], ...]:
        """Pairs (name, int) of the constants of ``kernels/learn``."""
        return (
            ("TILE", self.rows),
            ("NEAR_COPIES", self.copies_near),
            ("NEAR_CHUNK", self.chunk_near),
        )


def forward_tiles(layout: NetworkLayout, executor: Executor, rows: int) -> Tiles:
    """Return the ``Tiles`` of a forward pass of ``rows`` rows."""
    if executor.max_team == 1:
        return widest(layout.tile_bytes, executor.team_bytes, ONE_MEMBER_ROWS)
    each = min(TEAM_ROWS, max(FEWEST_ROWS, -(-rows // executor.processors)))
    for near in (True, False):
        found = widest(
            layout.tile_bytes, executor.team_bytes - near * 4 * layout.forward_copied - ROOM, each
        )
        if found.rows >= min(each, NEAR_ROWS):
            return Tiles(found.rows, near)
    return found


def gradient_tiles(layout: NetworkLayout, executor: Executor, rows: int) -> Tiles:
    """Return the ``Tiles`` of gradients of chunks of ``rows`` rows."""
    about = 4 * (1 + PAD)  # of a row: where it is, what is reported of it
    if executor.max_team == 1:
        return widest(layout.tile_bytes + about, executor.team_bytes, ONE_MEMBER_ROWS)
    each = min(TEAM_ROWS, rows)
    for copies, chunk in ((True, True), (True, False), (False, False)):
        taken = 4 * (copies * layout.copied + chunk * layout.gradient) + ROOM
        found = widest(
            layout.tile_bytes + layout.spare_bytes + about, executor.team_bytes - taken, each
        )
        if found.rows >= min(each, NEAR_ROWS):
            return Tiles(found.rows, copies, chunk)
    return found


def widest(row_bytes: int, team_bytes: int, wanted: int) -> Tiles:
    """Return the ``Tiles`` of the least power of two that is ``wanted`` or more, or of the largest
    that fits.
    """
    rows = 1 << (wanted - 1).bit_length()
    while rows > 0 and rows * row_bytes > team_bytes:
        rows //= 2
    return Tiles(rows)
