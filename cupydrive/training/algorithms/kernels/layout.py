"""How the learner's kernels hold a network: sizes that are compiled in, and the memory that goes with them.

``kernels/learn/layers.cuh`` says what each array is; here are its sizes, for whoever takes the memory.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from cupydrive.codegen.source import assemble_file, box_bounds, head_sizes
from cupydrive.training.algorithms.kernels.tiles import PAD, TEAMS, padded


@dataclass(frozen=True)
class NetworkLayout:
    """Sizes of a perceptron policy in kernels.

    Args:
        towers: Widths from the observation to the output, of actor and critic, or of the one that is both.
        size: Number of the distribution's parameters.
        relu: ReLU instead of tanh between layers.
    """

    towers: tuple[tuple[int, ...], ...]
    size: int
    relu: bool = False

    @classmethod
    def of(cls, config, obs_dim, size):
        """Return the layout of the default network that ``config`` describes."""
        inner = (obs_dim, *config.hidden)
        towers = ((*inner, size + 1),) if config.shared_layers else ((*inner, size), (*inner, 1))
        return cls(towers, size, config.activation == "relu")

    @cached_property
    def layers(self):
        """(inputs, outputs) of each linear layer, tower after tower."""
        return [pair for tower in self.towers for pair in pairwise(tower)]

    @cached_property
    def tile_bytes(self):
        """Bytes of one row of a tile: its observation, and the outputs of each layer."""
        return 4 * (padded(self.towers[0][0]) + sum(padded(out) for _, out in self.layers))

    @cached_property
    def spare_bytes(self):
        """Bytes of one row of the derivatives by outputs of hidden layers, where they have a place of their own."""
        hidden = [[padded(width) for width in tower[1:-1]] for tower in self.towers]
        fit = all(len(widths) < 2 or widths[-2] <= widths[-1] for widths in hidden)
        return 4 * (1 if fit else 2) * max((width for widths in hidden for width in widths), default=0)

    @cached_property
    def forward_copied(self):
        """Floats of the copies of the weights that forward passes read."""
        return sum((into + 1) * padded(out) for into, out in self.layers)

    @cached_property
    def copied(self):
        """Floats of the copies of the weights that kernels read."""
        first = {0, len(self.towers[0]) - 1}  # layers that see the observation
        own = [0 if k in first else out * padded(into) for k, (into, out) in enumerate(self.layers)]
        return self.forward_copied + sum(own)

    @cached_property
    def gradient(self):
        """Floats of one gradient with what is reported."""
        return sum(out * padded(into) + padded(out) for into, out in self.layers) + PAD

    @cached_property
    def rows(self):
        """Rows of weights and biases in a gradient."""
        return sum(out + 1 for _, out in self.layers)

    def unit(self, path, executor, constants=(), spaces="", team=None):
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
        text = f"constexpr int WIDTH[TOWERS][LAYERS + 1] = {{{widths}}};\n{spaces}"
        return assemble_file(f"learn/{path}", (*own, *constants), text, min(executor.max_team, team or TEAMS[path]))


def tensors_of(policy):
    """Return the weights and biases of an ``ActorCritic``, layer by layer, tower after tower."""
    towers = [policy.body] if policy.shared else [policy.actor, policy.critic]
    return [p for tower in towers for layer in tower[::2] for p in (layer.weight, layer.bias)]


def distribution_parts(distribution):
    """Return the constants and the generated text of a distribution."""
    if distribution.raw_size:
        constants = (("HEADS", distribution.heads), ("SQUASHED", distribution.squashed))
        return constants, f"#define GAUSSIAN 1\n{box_bounds(distribution.space)}"
    constants = (("HEADS", distribution.heads), ("CHOICES", distribution.size), ("LARGEST", max(distribution.sizes)))
    return constants, f"#define GAUSSIAN 0\n{head_sizes(distribution.sizes)}"
