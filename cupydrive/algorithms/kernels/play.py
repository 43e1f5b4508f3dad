"""Fused rollout: T steps of environments and of their policies in one launch of ``kernels/play``.

All policies must learn by kernels. The rows have the same bits as those of separate launches of
forward pass, sampling and step.

Letters: T steps, N environments, C agents of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from cupydrive.algorithms.architecture import GRU, Network
from cupydrive.algorithms.kernels import tensor
from cupydrive.algorithms.kernels.arithmetic import TENSOR
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout
from cupydrive.algorithms.kernels.layerwise_tensor import LAYERWISE_TENSOR
from cupydrive.algorithms.kernels.layout import PAD, NetworkLayout, padded
from cupydrive.algorithms.kernels.learner import KernelLearner
from cupydrive.algorithms.pool import PooledLearner
from cupydrive.codegen.agreement import batch_dtype
from cupydrive.codegen.layout import WARP, PlayLayout
from cupydrive.codegen.source import Unit, assemble_play, pick_float, pick_int
from cupydrive.errors import CompileError, DeviceError
from cupydrive.executors.ahead import build_ahead
from cupydrive.playing.policy import (
    Categorical,
    Distribution,
    EpsilonGreedy,
    Gaussian,
    Mixed,
    make_distribution,
)
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Player
from cupydrive.simulation.batch import Batch
from cupydrive.spec import Group

# key in a run's backends, next to names of policies, which have no spaces
ALL_ROLLOUTS = "all rollouts"
MOST_ENVS = 16  # maximum per warp set. More rows need too many registers
MOST_WARP_SETS = 16  # maximum per block
# Maximum warps of a block if a warp set has several warps. More warps compete for resources.
BUSY_WARPS = 8
BUSY = 4  # warps that occupy a multiprocessor, one per scheduler
# Maximum size of one environment's observations that one thread keeps in registers.
OBS_REGISTER_BYTES = 256
TEAM_MEMORY = 32 * 1024  # bytes of shared memory for the thread teams of a warp
RESERVED_BYTES = 2048  # bytes of shared memory for padding and other data
# Tensors in the order of ``struct PlayedRows``.
PLAYED = ("raw", "log_prob", "value", "memory", "start")


@dataclass(frozen=True)
class Policy:
    """Properties of one policy that kernels need.

    Args:
        network: Description of the network.
        layout: ``NetworkLayout``.
        distribution: ``Distribution``.
        groups: Groups of the policy, with equal spaces.
        tensor: Whether it uses tensor cores.
    """

    network: Network
    layout: NetworkLayout
    distribution: Distribution
    groups: tuple[Group, ...]
    tensor: bool

    @classmethod
    def of(cls, learner: KernelLearner, groups: Sequence[Group]) -> Policy:
        """Return the ``Policy`` of a ``KernelLearner``, also before its ``begin``."""
        distribution = make_distribution(groups[0], learner.config.distribution)
        network, seen = learner.config.network_for(groups[0]), groups[0]
        if network.core is None:
            layout = NetworkLayout.of(learner.config, seen.obs_dim, distribution.size)
        else:
            layout = LayerwiseLayout.made(network, seen.obs_shape, distribution.size)
        by_tensor_cores = learner.arithmetic in (TENSOR, LAYERWISE_TENSOR)
        return cls(network, layout, distribution, tuple(groups), by_tensor_cores)

    @property
    def towers(self) -> list[list[tuple[int, int]]]:
        """(inputs, outputs) of the linear layers of each tower, without normalizations."""
        if self.network.core is None:
            return [list(pairwise(tower)) for tower in self.layout.towers]
        layers = self.layout.layers
        each = len(layers) // self.network.towers
        return [layers[k : k + each] for k in range(0, len(layers), each)]

    @property
    def results(self) -> int:
        """Largest number of outputs of a tower."""
        return max(tower[-1][1] for tower in self.towers)

    @property
    def rows(self) -> int:
        """Number of rows of one environment."""
        return sum(g.count for g in self.groups)


def policies_of(batch: Batch, player_of: Mapping[str, Player]) -> list[Policy] | None:
    """Return a ``Policy`` for each player in the order of their first groups.

    The result is None if a player is not a ``KernelLearner``, or has a central critic.
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
    """Collector of a rollout in which all groups are played by kernel learners.

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
            * sum(policy.layout.packed for policy in policies)
        )

    def collect(self) -> None:
        """Queue all steps and the values after the last one.

        If the rollout has ``on_step``, each step is a launch.
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
    """Return the ``Unit`` of ``env_play`` for an environment and its policies."""
    return assemble_play(batch.spec, batch.params, layout, policies_text(policies))


def begin_play(batch: Batch, player_of: Mapping[str, Player]) -> None:
    """Start to compile the program of ``make_play``."""
    if (layout := choose_layout(batch, player_of)[0]) is not None:
        build_ahead(
            [(batch.executor, play_unit(batch, policies_of(batch, player_of) or [], layout))]
        )


def decide_play(rollout: Rollout) -> str:
    """Decide whether a rollout is one launch, and whether its players run concurrently.

    Returns:
        One line about the first decision.
    """
    rollout.play, words = make_play(rollout)
    alike = all(isinstance(player, KernelLearner) for player in rollout.players)
    rollout.side_by_side = alike and rollout.device.type == "cuda"
    return words


def make_play(rollout: Rollout) -> tuple[Play | None, str]:
    """Create the ``Play`` of a rollout.

    Returns:
        The ``Play``, or None if one launch is slower or does not fit, and one line that explains
        the decision.
    """
    batch = rollout.batch
    layout, reason = choose_layout(batch, rollout.player_of)
    if layout is not None:
        try:
            play = Play(rollout, layout)
            if (reason := why_not_this(play.program, batch)) is None:
                return play, "rollouts are one launch each"
        # names of the environment may conflict with those of kernels/play
        except (CompileError, DeviceError) as error:
            reason = f"environment and policies do not compile as one: {str(error).splitlines()[0]}"
    return None, f"rollouts are launched step by step: {reason}"


def why_not_this(program: Any, batch: Batch) -> str | None:
    """Return why a compiled program cannot be used, or None if it can."""
    executor: Any = batch.executor
    if program.shared_bytes > executor.shared_bytes:
        return (
            f"one launch needs {program.shared_bytes:,} bytes of shared memory, but there are "
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
    """Return the ``PlayLayout`` for these players, or None with a reason."""
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
    wide = [k for k, own in learners.items() if not own.arithmetic.in_block]
    if wide:
        return None, f"the network of {' and '.join(wide)} is too wide for one block"
    parts = [
        k
        for k, own in learners.items()
        if own.arithmetic != TENSOR
        and (own.config.architecture.layer_norm or not own.config.architecture.valued)
    ]
    if parts:
        return None, f"the network of {' and '.join(parts)} is computed by a launch per layer"
    compact = [g.name for g in batch.groups if g.obs_dtype != "float32"]
    if compact:
        return None, f"observations of {' and '.join(compact)} are not float32"
    if batch.executor.name == "cpu":
        return None, "a CPU is faster where one launch computes the rows of all environments"
    if len({policy.tensor for policy in policies}) > 1:
        return None, "some policies compute on tensor cores and some exactly"
    if batch.spec.own_program is not None:
        return None, "the environment has its own program"
    if batch.program.prints:
        return None, "the environment prints"
    if batch.layout.team > WARP:
        return None, f"{batch.layout.team} threads step an environment, but a warp has {WARP}"
    layout = gpu_layout(batch, policies)
    return layout, None if layout else "weights and rows do not fit into a block's shared memory"


def gpu_layout(batch: Batch, policies: Sequence[Policy]) -> PlayLayout | None:
    """Return the ``PlayLayout`` for a GPU whose teams are not larger than a warp, or None.

    Few environments are limited by latency. A warp set then has one environment, and several warps
    that compute its layers, and each block has a processor. With more environments, the warp sets
    grow until each processor has ``BUSY`` warp sets. This is a lower limit of warp sets, but an
    upper limit on tensor cores, which process 16 rows in the time of one.
    """
    team = playing_team(batch)
    # A whole warp would copy the observations of several agents through shared memory that is used
    # for other data here.
    limit = WARP if policies[0].tensor and batch.spec.one_agent(batch.params) else MOST_ENVS
    busy = BUSY * batch.executor.processors
    share = (
        1 << (-(-batch.num_envs // busy) - 1).bit_length()
        if policies[0].tensor
        else max(1, batch.num_envs // busy)
    )
    most = min(limit, WARP // team, share)
    options = [n for n in (32, 16, 8, 4, 2, 1) if n <= most and batch.num_envs % n == 0]
    in_global = any(p.network.core is not None for p in policies) and all(
        p.tensor and len(p.groups) == 1 for p in policies
    )
    found = (
        play_layout(batch, policies, team, n, in_shared)
        for in_shared in (True, False)[: 1 + in_global]
        for n in options
    )
    return next(filter(None, found), None)


def playing_team(batch: Batch) -> int:
    """Return the number of threads of one environment.

    It is one per agent if lanes of the warp would be idle otherwise. The threads sample actions in
    parallel, which takes longer than the step.
    """
    wide = 1 << (sum(g.count for g in batch.groups) - 1).bit_length()
    few = batch.num_envs // (BUSY * batch.executor.processors) * wide <= WARP
    return max(batch.layout.team, wide) if few and wide <= WARP else batch.layout.team


def play_layout(
    batch: Batch, policies: Sequence[Policy], team: int, envs: int, hidden_in_shared: bool = True
) -> PlayLayout | None:
    """Return the ``PlayLayout`` of warp sets with ``envs`` environments each.

    The result is None if smaller warp sets allow more warps.
    """
    executor: Any = batch.executor
    obs_bytes = sum(4 * g.count * g.obs_dim for g in batch.groups)
    limit = OBS_REGISTER_BYTES * envs if team == 1 else TEAM_MEMORY
    layout = PlayLayout(team, envs, hidden_in_shared=hidden_in_shared).fit(
        batch.spec, batch.params, limit
    )
    wanted = min(MOST_WARP_SETS, -(-batch.num_envs // (envs * executor.processors)))
    workspace = (layout.shared_bytes(batch.spec, batch.params) + 2 * obs_bytes) * (team > 1)
    warp_set = envs * workspace + sum(tile_bytes(p, envs, hidden_in_shared) for p in policies)
    left = executor.shared_bytes - RESERVED_BYTES - sum(map(policy_weight_bytes, policies))
    warp_sets = min(wanted, left // warp_set)
    smaller = envs > 1 and any(p.rows * envs > PAD or not p.tensor for p in policies)
    if warp_sets < (wanted / 2 if smaller else 1):
        return None
    warps = max(1, min(BUSY_WARPS // int(warp_sets), useful_warps(policies, envs)))
    return replace(layout, warp_sets=int(warp_sets), warps=1 << (warps.bit_length() - 1))


def useful_warps(policies: Sequence[Policy], envs: int) -> int:
    """Return the number of warps of a warp set that have work.

    On tensor cores it is one per tower, otherwise it depends on the outputs of the widest layer.
    """
    if policies[0].tensor:
        return sum(policy.network.towers for policy in policies)
    widest = (
        envs * p.rows * sum(max(out for _, out in tower) for tower in p.towers) for p in policies
    )
    return max(-(-outputs // WARP) for outputs in widest)


def tile_bytes(policy: Policy, envs: int, hidden_in_shared: bool = True) -> int:
    """Return the shared memory of a warp set for ``envs`` environments, ``struct Tile``, in bytes.

    ``hidden_in_shared`` is that of ``PlayLayout``.
    """
    rows, towers, core = envs * policy.rows, policy.towers, policy.network.core
    obs_dim = towers[0][0][0]
    if policy.tensor:  # rows are padded to whole tiles, and observations are bfloat16
        each = 2 * (padded(obs_dim) + tensor.SKEW) + 4 * len(towers) * (policy.results | 1)
        each += 4 * -(-policy.network.state_size // WARP) * WARP if hidden_in_shared else 2
        return -(-padded(rows) * each // 16) * 16
    # The inputs of layers alternate between two buffers.
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
    """Return the stride of rows in floats, as ``stride`` of ``kernels/play/perceptron.cuh``."""
    return 4 * (-(-width // 4) | 1)


def policy_weight_bytes(policy: Policy) -> int:
    """Return the bytes of shared memory of a network's weights and observation statistics."""
    layers = policy.layout.layers
    weights = tensor.weight_bytes(layers) if policy.tensor else 4 * policy.layout.forward_packed
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
            pointers[f"{k}.packed"] = learner.steps.packed
        pointers |= {f"{k}.center": learner.center, f"{k}.scale": learner.scale}
        if policies[k].tensor:
            pointers[f"{k}.epsilon"] = getattr(learner.scheduled, "epsilon", None)
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
    """Return the source that ``kernels/play`` includes: a struct per network, and its groups."""
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
        [f"#define ON_TENSOR_CORES {int(policies[0].tensor)}", "namespace policy {", *lines, "}"]
    )


def network_text(number: int, policy: Policy, towers_before: int) -> list[str]:
    """Return the lines of ``struct network_NUMBER``.

    Args:
        number: Index of the policy.
        policy: The ``Policy``.
        towers_before: Number of towers of the previous policies.
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
        f"  static constexpr int LAYER_NORM = {int(network.layer_norm)}, PARTS_OF_TOWER = LAYERS + "
        f"LAYER_NORM * (LAYERS - 1);",
        f"  static constexpr bool GREEDY = {int(isinstance(distribution, EpsilonGreedy))};",
        f"  static constexpr int FIRST_TOWER = {towers_before};",
        f"  static constexpr int PACKED = {layout.forward_packed};",
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
    """Return the members of a Space, from which ``kernels/train`` samples."""
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
