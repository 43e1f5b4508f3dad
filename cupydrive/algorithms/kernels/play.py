"""The fused rollout: T steps of environments and of the policies that learn by kernels, in one
launch (``kernels/play``).

Its rows have the bits of the plain path: a forward pass, a draw of actions and a step, launched one
after the other.

Letters: T steps, N environments, C agents of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cupydrive.algorithms.architecture import GRU, Network
from cupydrive.algorithms.kernels import tensor
from cupydrive.algorithms.kernels.arithmetic import TENSOR
from cupydrive.algorithms.kernels.layout import PAD, NetworkLayout, padded
from cupydrive.algorithms.kernels.learner import KernelLearner
from cupydrive.algorithms.kernels.recurrent import RecurrentLayout
from cupydrive.algorithms.kernels.recurrent_tensor import TENSOR_RECURRENT
from cupydrive.algorithms.pool import PooledLearner
from cupydrive.codegen.agreement import batch_dtype
from cupydrive.codegen.layout import WARP, PlayLayout
from cupydrive.codegen.source import Unit, assemble_play, pick_float, pick_int
from cupydrive.errors import CompileError, DeviceError
from cupydrive.executors.ahead import build_ahead
from cupydrive.playing.policy import (
    Categorical,
    Distribution,
    Gaussian,
    Mixed,
    make_distribution,
)
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Player
from cupydrive.simulation.batch import Batch
from cupydrive.spec import Group

# of a run's choices, beside the names of policies, which have no spaces
ALL_ROLLOUTS = "all rollouts"
MOST_ENVS = 16  # of one crew: more rows would leave a thread too few registers
MOST_CREWS = 16  # of one block
BUSY_WARPS = 8  # of one block whose crews have several: more would be in each other's way
BUSY = 4  # warps of a processor, one on each of its schedulers
# of one environment's observations: more would not stay in the registers of one thread
OBS_REGISTER_BYTES = 256
TEAM_MEMORY = 32 * 1024  # of a block's memory, for what the teams of a warp keep there
RESERVED_BYTES = 2048  # of it, for padding and what else is shared
PLAYED = ("raw", "log_prob", "value", "memory", "start")  # members of ``struct PlayedRows``


@dataclass(frozen=True)
class Policy:
    """One policy as kernels know it.

    Args:
        network: The description.
        layout: ``NetworkLayout``.
        distribution: ``Distribution``.
        groups: The groups that it plays, of equal spaces.
        tensor: Whether it computes by matrix units.
    """

    network: Network
    layout: NetworkLayout
    distribution: Distribution
    groups: tuple[Group, ...]
    tensor: bool

    @classmethod
    def of(cls, learner: KernelLearner, groups: Sequence[Group]) -> Policy:
        """Return that of a ``KernelLearner``, which need not have begun to play."""
        distribution = make_distribution(groups[0], learner.config.distribution)
        network, seen = learner.config.network_for(groups[0]), groups[0]
        if network.core is None:
            layout = NetworkLayout.of(learner.config, seen.obs_dim, distribution.size)
        else:
            layout = RecurrentLayout.made(network, seen.obs_shape, distribution.size)
        by_tensor_cores = learner.arithmetic in (TENSOR, TENSOR_RECURRENT)
        return cls(network, layout, distribution, tuple(groups), by_tensor_cores)

    @property
    def towers(self) -> list[list[tuple[int, int]]]:
        """(inputs, outputs) of the linear layers of each tower."""
        layers = self.layout.layers
        each = len(layers) // self.network.towers
        return [layers[k : k + each] for k in range(0, len(layers), each)]

    @property
    def results(self) -> int:
        """Outputs of the tower that has more."""
        return max(tower[-1][1] for tower in self.towers)

    @property
    def rows(self) -> int:
        """Rows of one environment."""
        return sum(g.count for g in self.groups)


def policies_of(batch: Batch, player_of: Mapping[str, Player]) -> list[Policy] | None:
    """Return a ``Policy`` for each player, in the order of their first groups; None if one is no
    ``KernelLearner``, or has a central critic.
    """
    groups_of: dict[Player, list[Group]] = {}
    for g in batch.groups:
        groups_of.setdefault(player_of[g.name], []).append(g)
    known = [
        Policy.of(player, own)
        for player, own in groups_of.items()
        if isinstance(player, KernelLearner) and not player.central
    ]
    return known if len(known) == len(groups_of) else None


class Play:
    """What collects a rollout whose groups are all played by learners of kernels.

    Args:
        rollout: ``Rollout``.
        layout: ``PlayLayout``.
    """

    def __init__(self, rollout: Rollout, layout: PlayLayout) -> None:
        self.rollout, self.batch = rollout, rollout.batch
        players = dict.fromkeys(rollout.player_of[g.name] for g in rollout.batch.groups)
        self.learners = [player for player in players if isinstance(player, KernelLearner)]
        policies = policies_of(rollout.batch, rollout.player_of) or []
        self.program = rollout.batch.executor.build(play_unit(rollout.batch, policies, layout))
        self.call = play_call(rollout, self.learners, policies)
        self.work = (
            rollout.batch.num_envs
            * rollout.steps
            * sum(policy.layout.copied for policy in policies)
        )

    def collect(self) -> None:
        """Queue all steps, and the values after the last one; a launch for each step if the rollout
        has ``on_step``.
        """
        for learner in self.learners:
            learner.begin_rollout()
        looker, steps = self.rollout.on_step, self.rollout.steps
        each = steps if looker is None else 1
        for t in range(0, steps, each):
            self.call["from"], self.call["until"] = t, t + each
            self.program.launch("env_play", self.call, self.batch.num_envs, self.work)
            if looker is not None:
                looker(t)


def play_unit(batch: Batch, policies: Sequence[Policy], layout: PlayLayout) -> Unit:
    """Return the ``Unit`` of ``env_play`` for an environment and those who play in it."""
    return assemble_play(batch.spec, batch.params, layout, policies_text(policies))


def begin_play(batch: Batch, player_of: Mapping[str, Player]) -> None:
    """Begin to build what ``make_play`` will need."""
    if (layout := choose_layout(batch, player_of)[0]) is not None:
        build_ahead(
            [(batch.executor, play_unit(batch, policies_of(batch, player_of) or [], layout))]
        )


def decide_play(rollout: Rollout) -> str:
    """Decide whether a rollout is one launch and whether its players queue side by side; return one
    line about the first.
    """
    rollout.play, words = make_play(rollout)
    alike = all(isinstance(player, KernelLearner) for player in rollout.players)
    rollout.side_by_side = alike and rollout.device.type == "cuda"
    return words


def make_play(rollout: Rollout) -> tuple[Play | None, str]:
    """Return the ``Play`` of a rollout, or None where one launch does not pay or not fit; and one
    line that says so and why.
    """
    batch = rollout.batch
    layout, reason = choose_layout(batch, rollout.player_of)
    if layout is not None:
        try:
            play = Play(rollout, layout)
            if (reason := why_not_this(play.program, batch)) is None:
                return play, "rollouts are one launch each"
        # names of the environment may be those of kernels/play, too
        except (CompileError, DeviceError) as error:
            reason = f"environment and policies do not compile as one: {str(error).splitlines()[0]}"
    return None, f"rollouts are launched step by step: {reason}"


def why_not_this(program: Any, batch: Batch) -> str | None:
    """Return why a compiled program cannot play, or None if it can."""
    executor: Any = batch.executor
    if program.shared_bytes > executor.shared_bytes:
        return (
            f"one launch needs {program.shared_bytes:,} bytes of shared memory; there are "
            f"{executor.shared_bytes:,}"
        )
    if program.cache_bytes != batch.program.cache_bytes:
        return (
            f"struct Cache has {program.cache_bytes} bytes there, and {batch.program.cache_bytes} "
            f"in the environment alone"
        )
    return None


def choose_layout(
    batch: Batch, player_of: Mapping[str, Player]
) -> tuple[PlayLayout | None, str | None]:
    """Return the ``PlayLayout`` with which these play; or None, and why."""
    pooled = [name for name, player in player_of.items() if isinstance(player, PooledLearner)]
    if pooled:
        return None, f"past snapshots play {' and '.join(pooled)} in some environments"
    policies = policies_of(batch, player_of)
    if policies is None:
        others = [
            name for name, player in player_of.items() if not isinstance(player, KernelLearner)
        ]
        return None, f"kernels that learn do not play {', '.join(others)}"
    seen = [g.name for policy in policies for g in policy.groups if policy.network.conv is not None]
    if seen:
        return None, f"the network of {' and '.join(seen)} has convolutions"
    learners = {k: own for k, own in player_of.items() if isinstance(own, KernelLearner)}
    wide = [k for k, own in learners.items() if not own.arithmetic.near]
    if wide:
        return None, f"the network of {' and '.join(wide)} is too wide for one block"
    odd = [k for k, own in learners.items() if own.config.architecture.layer_norm]
    if odd:
        return None, f"the network of {' and '.join(odd)} has LayerNorm"
    greedy = [k for k, own in learners.items() if not own.config.architecture.valued]
    if greedy:
        return None, f"the policy of {' and '.join(greedy)} is epsilon-greedy"
    compact = [g.name for g in batch.groups if g.obs_dtype != "float32"]
    if compact:
        return None, f"observations of {' and '.join(compact)} are not float32"
    if batch.executor.name == "cpu":
        return None, "a CPU is faster where one launch computes the rows of all environments"
    if len({policy.tensor for policy in policies}) > 1:
        return None, "some policies compute by matrix units and some exactly"
    if batch.spec.own_program is not None:
        return None, "the environment brings a program of its own"
    if batch.program.prints:
        return None, "the environment prints"
    if batch.layout.team > WARP:
        return None, f"{batch.layout.team} threads step an environment; a warp has {WARP}"
    layout = gpu_layout(batch, policies)
    return layout, None if layout else "weights and rows do not fit into a block's shared memory"


def gpu_layout(batch: Batch, policies: Sequence[Policy]) -> PlayLayout | None:
    """Return the ``PlayLayout`` for a GPU whose teams are no larger than a warp, or None where
    nothing fits.

    Few environments are bound by latency: a crew has one of them, and several warps to compute its
    layers, and each processor a block. Where there are more, a crew has as many as leave each
    processor ``BUSY`` crews: at least so many, or on matrix units, which take 16 rows in the time
    of one, at most.
    """
    team = playing_team(batch)
    # A whole warp would copy the observations of several agents through memory that is here used
    # for other things.
    limit = WARP if policies[0].tensor and batch.spec.one_agent(batch.params) else MOST_ENVS
    busy = BUSY * batch.executor.processors
    share = (
        1 << (-(-batch.num_envs // busy) - 1).bit_length()
        if policies[0].tensor
        else max(1, batch.num_envs // busy)
    )
    most = min(limit, WARP // team, share)
    options = [n for n in (32, 16, 8, 4, 2, 1) if n <= most and batch.num_envs % n == 0]
    far = any(p.network.core is not None for p in policies) and all(
        p.tensor and len(p.groups) == 1 for p in policies
    )
    found = (
        play_layout(batch, policies, team, n, near)
        for near in (True, False)[: 1 + far]
        for n in options
    )
    return next(filter(None, found), None)


def playing_team(batch: Batch) -> int:
    """Return the threads of one environment: one for each of its agents, where the lanes of a warp
    would else be idle.

    They draw actions side by side, which takes longer than the step.
    """
    wide = 1 << (sum(g.count for g in batch.groups) - 1).bit_length()
    few = batch.num_envs // (BUSY * batch.executor.processors) * wide <= WARP
    return max(batch.layout.team, wide) if few and wide <= WARP else batch.layout.team


def play_layout(
    batch: Batch, policies: Sequence[Policy], team: int, envs: int, hidden_near: bool = True
) -> PlayLayout | None:
    """Return the ``PlayLayout`` of crews with ``envs`` environments each, or None if fewer would
    let more warps in.
    """
    executor: Any = batch.executor
    obs_bytes = sum(4 * g.count * g.obs_dim for g in batch.groups)
    limit = OBS_REGISTER_BYTES * envs if team == 1 else TEAM_MEMORY
    layout = PlayLayout(team, envs, hidden_near=hidden_near).fit(batch.spec, batch.params, limit)
    wanted = min(MOST_CREWS, -(-batch.num_envs // (envs * executor.processors)))
    workspace = (layout.near_bytes(batch.spec, batch.params) + 2 * obs_bytes) * (team > 1)
    crew = envs * workspace + sum(tile_bytes(p, envs, hidden_near) for p in policies)
    left = executor.shared_bytes - RESERVED_BYTES - sum(map(policy_weight_bytes, policies))
    crews = min(wanted, left // crew)
    smaller = envs > 1 and any(p.rows * envs > PAD or not p.tensor for p in policies)
    if crews < (wanted / 2 if smaller else 1):
        return None
    warps = max(1, min(BUSY_WARPS // int(crews), useful_warps(policies, envs)))
    return replace(layout, crews=int(crews), warps=1 << (warps.bit_length() - 1))


def useful_warps(policies: Sequence[Policy], envs: int) -> int:
    """Return how many warps of a crew have something to do: a tower each on matrix units, else
    results of the widest layer.
    """
    if policies[0].tensor:
        return sum(policy.network.towers for policy in policies)
    widest = (
        envs * p.rows * sum(max(out for _, out in tower) for tower in p.towers) for p in policies
    )
    return max(-(-outputs // WARP) for outputs in widest)


def tile_bytes(policy: Policy, envs: int, hidden_near: bool = True) -> int:
    """Return the bytes that the rows of ``envs`` environments take in a crew's memory (``struct
    Tile``); ``hidden_near`` as of ``PlayLayout``.
    """
    rows, towers, core = envs * policy.rows, policy.towers, policy.network.core
    obs_dim = towers[0][0][0]
    if policy.tensor:  # rows in whole blocks; observations in bfloat16
        each = 2 * (padded(obs_dim) + tensor.SKEW) + 4 * len(towers) * (policy.results | 1)
        each += 4 * -(-policy.network.state_size // WARP) * WARP if hidden_near else 2
        return -(-padded(rows) * each // 16) * 16
    # Inputs of layers lie in two places by turns.
    inputs = [
        max(map(stride, (into for tower in towers for into, _ in tower[k::2])), default=0)
        for k in (1, 2)
    ]
    of_core = 0
    if core is not None:  # gates, and states of each layer
        layers = core.state_size // core.size
        of_core = stride(3 * core.size) * (1 + isinstance(core, GRU)) + layers * stride(core.size)
    return 4 * rows * (
        stride(obs_dim) + len(towers) * (sum(inputs) + of_core + stride(policy.results))
    ) + 32 * len(towers)


def stride(width: int) -> int:
    """Return the floats from one row to the next, as ``stride`` of
    ``kernels/play/perceptron.cuh``.
    """
    return 4 * (-(-width // 4) | 1)


def policy_weight_bytes(policy: Policy) -> int:
    """Return the bytes of a network's weights in a block's memory, and of what normalises its
    observations.
    """
    layers = policy.layout.layers
    weights = tensor.weight_bytes(layers) if policy.tensor else 4 * policy.layout.forward_copied
    return weights + 8 * layers[0][0]


def play_call(
    rollout: Rollout, learners: Sequence[KernelLearner], policies: Sequence[Policy]
) -> np.ndarray:
    """Return ``struct Play``."""
    batch = rollout.batch
    pointers: dict[str, torch.Tensor | None] = {}
    for g in batch.groups:
        stored = next(learner.stored[g.name] for learner in learners if g.name in learner.stored)
        pointers |= {f"{g.name}.{name}": stored.get(name) for name in PLAYED}
    for k, learner in enumerate(learners):
        if policies[k].tensor:
            pointers |= {
                f"{k}.{name}": p
                for name, p in tensor.weight_pointers(learner.steps.weights).items()
            }
        else:
            pointers[f"{k}.copies"] = learner.steps.copies
        pointers |= {f"{k}.center": learner.center, f"{k}.scale": learner.scale}
    members = [
        ("batch", batch_dtype(batch.spec, batch.params)),
        ("from", "i4"),
        ("until", "i4"),
        *((name, "u8") for name in pointers),
    ]
    call = np.zeros((), np.dtype(members, align=True))
    call["batch"] = batch.describe(rollout.buffers)
    for name, pointed in pointers.items():
        call[name] = 0 if pointed is None else pointed.data_ptr()
    return call


def policies_text(policies: Sequence[Policy]) -> str:
    """Return what ``kernels/play`` reads about policies: a struct of each network in C, and which
    group it plays.
    """
    towers = [policy.network.towers for policy in policies]
    lines = [
        line
        for k, policy in enumerate(policies)
        for line in network_text(k, policy, sum(towers[:k]))
    ]
    lines += [
        "// One Of<network> for each policy.",
        "template <template <class> class Of> struct EachPolicy {",
        *(f"  Of<network_{k}> policy_{k};" for k in range(len(policies))),
        "};",
        "template <class Visit, class... Parts> DEVICE void each_policy(Visit visit, Parts&... "
        "parts) {",
        *(f"  visit(network_{k}{{}}, parts.policy_{k}...);" for k in range(len(policies))),
        "}",
        "template <class Kind> struct PolicyOf;",
    ]
    for k, policy in enumerate(policies):
        for number, g in enumerate(policy.groups):
            first = sum(other.count for other in policy.groups[:number])
            lines += [
                f"template <> struct PolicyOf<{g.name}_group> {{",
                f"  typedef network_{k} Network;",
                f"  static constexpr int FIRST = {first};  // of its agents among those that the "
                f"policy plays",
                "};",
                f"template <class Parts> DEVICE auto& policy_part({g.name}_group, Parts& parts) "
                f"{{ return parts.policy_{k}; }}",
            ]
    return "\n".join(
        [f"#define BY_MATRIX_UNITS {int(policies[0].tensor)}", "namespace policy {", *lines, "}"]
    )


def network_text(number: int, policy: Policy, towers_before: int) -> list[str]:
    """Return the lines of ``struct network_NUMBER``, whose towers come after those of the policies
    before it.
    """
    layout, distribution, network = policy.layout, policy.distribution, policy.network
    towers, core = policy.towers, network.core
    widths = [width for tower in towers for width in (*(n for n, _ in tower), tower[-1][1])]
    hidden = len(network.hidden)
    size, gated = (0, 0) if core is None else (core.size, len(towers[0]) - hidden - 1)
    lines = [
        f"struct network_{number} {{",
        f"  static constexpr int OBS = {widths[0]}, PARAMETERS = {layout.size};",
        f"  static constexpr int TOWERS = {len(towers)}, LAYERS = {len(towers[0])}, AGENTS = "
        f"{policy.rows};",
        f"  static constexpr int FIRST_TOWER = {towers_before};",
        f"  static constexpr int COPIED = {layout.forward_copied};",
        f"  static constexpr bool RELU = {int(layout.relu)}, DISCRETE = "
        f"{int(not isinstance(distribution, Gaussian))}, GAUSSIAN = "
        f"{int(not isinstance(distribution, Categorical))};",
        "  static constexpr int width(int tower, int layer) {",
        f"    constexpr int of[] = {{{', '.join(map(str, widths))}}};",
        "    return of[tower * (LAYERS + 1) + layer];",
        "  }",
        f"  static constexpr int STATE = {network.state_size}, SIZE = {size}, HIDDEN = {hidden}, "
        f"GATED = {gated};",
        f"  static constexpr bool GRU = {int(isinstance(core, GRU))};",
        "  static constexpr int GATES = GRU ? 4 : 3;",
        "  static constexpr bool gated(int layer) { return layer >= HIDDEN && layer < HIDDEN + "
        "GATED; }",
        "  static constexpr int outputs(int tower, int layer) { return gated(layer) ? 3 * SIZE : "
        "width(tower, layer + 1); }",
    ]
    return [*lines, *space_text(distribution), "};"]


def space_text(distribution: Distribution) -> list[str]:
    """Return the members of a Space, as ``kernels/train`` draws from it."""
    if isinstance(distribution, Mixed):
        parts: dict[str, Distribution]
        parts = {"Discrete": distribution.choices, "Box": distribution.numbers}
        return [
            f"  static constexpr int CHOICES = {distribution.choices.size};",
            *(
                line
                for name, part in parts.items()
                for line in (f"  struct {name} {{", *space_text(part), "  };")
            ),
        ]
    lines = [f"  static constexpr int HEADS = {distribution.heads};"]
    if isinstance(distribution, Gaussian):
        low, span = distribution.space.low, distribution.space.high - distribution.space.low
        return [
            *lines,
            f"  static constexpr bool SQUASHED = {int(distribution.squashed)};",
            f"  static DEVICE float low(int head) {{ {pick_float(low)} }}",
            f"  static DEVICE float span(int head) {{ {pick_float(span)} }}",
        ]
    return [
        *lines,
        f"  static constexpr int LARGEST = {max(distribution.sizes)};",
        f"  static DEVICE int size(int head) {{ {pick_int(distribution.sizes)} }}",
    ]
