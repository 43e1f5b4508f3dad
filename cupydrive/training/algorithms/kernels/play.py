"""The fused rollout: T steps of environments and of the policies that learn by kernels, in one launch (``kernels/play``).

Its rows have the bits of the plain path: a forward pass, a draw of actions and a step, launched one after the other.

Letters: T steps, N environments, C agents of a group.
"""

from dataclasses import replace

import numpy as np

from cupydrive.codegen.agreement import batch_dtype
from cupydrive.codegen.source import WARP, PlayLayout, assemble_play, pick_float, pick_int
from cupydrive.training.algorithms.kernels.layout import padded

MOST_ENVS = 16  # of one crew: more rows would leave a thread too few registers
MOST_CREWS = 16  # of one block: 512 threads
BUSY = 4  # warps of a processor, one on each of its schedulers
REGISTER_BYTES = 256  # of one environment's observations: more would not stay in the registers of one thread
LAYOUT_BYTES = 32 * 1024  # of a block's memory, for what the teams of a warp keep there
RESERVED_BYTES = 2048  # of it, for padding and what else is shared


class Play:
    """What collects a rollout whose groups are all played by learners of kernels.

    Args:
        rollout: ``Rollout``.
        layout: ``PlayLayout``.
    """

    def __init__(self, rollout, layout):
        batch = rollout.batch
        self.batch, self.learners = batch, rollout.players
        self.program = batch.executor.build(play_unit(rollout, layout))
        self.call = play_call(rollout)
        self.work = batch.num_envs * rollout.steps * sum(learner.layout.copied for learner in self.learners)

    def collect(self):
        """Queue all steps, and the values after the last one."""
        for learner in self.learners:
            learner.begin_rollout()
        self.program.launch("env_play", self.call, self.batch.num_envs, self.work)


def play_unit(rollout, layout):
    """Return the ``Unit`` of ``env_play`` for the players of ``rollout``."""
    text = policies_text(rollout.batch.groups, rollout.player_of)
    return assemble_play(rollout.batch.spec, rollout.batch.params, layout, text)


def make_play(rollout):
    """Return the ``Play`` of a rollout, or None where one launch does not pay or not fit: the plain path is taken.

    That is so on a CPU, where a forward pass of many rows is faster than one of each environment's; where a group is played by
    anything but a learner of kernels; where an environment prints, has more than a warp's threads, or brings a program of its
    own; and where weights and rows do not fit into a block's memory.
    """
    batch, executor = rollout.batch, rollout.batch.executor
    if executor.name != "cuda" or not all(hasattr(player, "begin_rollout") for player in rollout.players):
        return None
    if batch.spec.own_program is not None or batch.program.prints:
        return None
    layout = gpu_layout(rollout)
    if layout is None:
        return None
    play = Play(rollout, layout)
    fits = play.program.shared_bytes <= executor.shared_bytes and play.program.cache_bytes == batch.program.cache_bytes
    return play if fits else None


def gpu_layout(rollout):
    """Return the ``PlayLayout`` for a GPU, or None where nothing fits.

    Few environments are bound by latency: a warp has one of them, and each processor a block. Where there are more, a warp has
    as many as leave each processor ``BUSY`` warps.
    """
    batch, executor = rollout.batch, rollout.batch.executor
    team = batch.layout.team
    if team > WARP:
        return None
    most = min(MOST_ENVS, WARP // team, max(1, batch.num_envs // (BUSY * executor.processors)))
    for envs in (n for n in (16, 8, 4, 2, 1) if n <= most and batch.num_envs % n == 0):
        layout = play_layout(rollout, team, envs)
        if layout is not None:
            return layout
    return None


def play_layout(rollout, team, envs):
    """Return the ``PlayLayout`` of crews with ``envs`` environments each, or None if fewer would let more warps in."""
    batch, executor = rollout.batch, rollout.batch.executor
    obs_bytes = sum(4 * g.count * g.obs_dim for g in batch.groups)
    layout = PlayLayout(team, envs).fit(batch.spec, batch.params, REGISTER_BYTES * envs if team == 1 else LAYOUT_BYTES)
    wanted = min(MOST_CREWS, -(-batch.num_envs // (envs * executor.processors)))
    weights = 4 * sum((into + 1) * padded(out) for p in rollout.players for into, out in p.layout.layers)
    crew = envs * (tile_bytes(rollout) + (team > 1) * (layout.near_bytes(batch.spec, batch.params) + 2 * obs_bytes))
    crews = min(wanted, (executor.shared_bytes - RESERVED_BYTES - weights) // crew)
    return replace(layout, crews=int(crews)) if crews >= (1 if envs == 1 else wanted / 2) else None


def tile_bytes(rollout):
    """Return the bytes that a crew's tiles take for each of its environments, or a little more."""
    towers = [(g.count, tower) for g in rollout.batch.groups for tower in rollout.player_of[g.name].layout.towers]
    return sum(4 * count * sum(width + 8 for width in tower) for count, tower in towers)


def play_call(rollout):
    """Return ``struct Play``."""
    batch = rollout.batch
    pointers = {}
    for g in batch.groups:
        stored = rollout.player_of[g.name].stored[g.name]
        pointers |= {f"{g.name}.{name}": stored[name] for name in ("raw", "log_prob", "value")}
    for k, learner in enumerate(rollout.players):
        pointers[f"{k}.copies"] = learner.steps.copies
        pointers |= {f"{k}.center": learner.center, f"{k}.scale": learner.scale}
    members = [("batch", batch_dtype(batch.spec, batch.params)), *((name, "u8") for name in pointers)]
    call = np.zeros((), np.dtype(members, align=True))
    call["batch"] = batch.describe_rows(rollout.buffers)
    for name, tensor in pointers.items():
        call[name] = 0 if tensor is None else tensor.data_ptr()
    return call


def policies_text(groups, player_of):
    """Return what ``kernels/play`` reads about policies: a struct of each network in C, and which group it plays."""
    players = list({id(player): player for player in player_of.values()}.values())
    played = [[g for g in groups if player_of[g.name] is player] for player in players]
    lines = [line for k, player in enumerate(players) for line in network_text(k, player, played[k])]
    lines += [
        "// One Of<network> for each policy.",
        "template <template <class> class Of> struct EachPolicy {",
        *(f"  Of<network_{k}> policy_{k};" for k in range(len(players))),
        "};",
        "template <class Visit, class... Parts> DEVICE void each_policy(Visit visit, Parts&... parts) {",
        *(f"  visit(network_{k}{{}}, parts.policy_{k}...);" for k in range(len(players))),
        "}",
        "template <class Kind> struct PolicyOf;",
    ]
    for k, own in enumerate(played):
        for number, g in enumerate(own):
            first = sum(other.count for other in own[:number])
            lines += [
                f"template <> struct PolicyOf<{g.name}_group> {{",
                f"  typedef network_{k} Network;",
                f"  static constexpr int FIRST = {first};  // of its agents among those that the policy plays",
                "};",
                f"template <class Parts> DEVICE auto& policy_part({g.name}_group, Parts& parts) {{ return parts.policy_{k}; }}",
            ]
    return "\n".join(["namespace policy {", *lines, "}"])


def network_text(number, player, groups):
    """Return the lines of ``struct network_NUMBER``, for the groups that the policy plays."""
    layout, distribution = player.layout, player.distribution
    gaussian = bool(distribution.raw_size)
    widths = [width for tower in layout.towers for width in tower]
    lines = [
        f"struct network_{number} {{",
        f"  static constexpr int OBS = {layout.towers[0][0]}, PARAMETERS = {layout.size}, TOWERS = {len(layout.towers)};",
        f"  static constexpr int LAYERS = {len(layout.towers[0]) - 1}, AGENTS = {sum(g.count for g in groups)};",
        f"  static constexpr int COPIED = {layout.copied}, HEADS = {distribution.heads};",
        f"  static constexpr bool RELU = {int(layout.relu)}, GAUSSIAN = {int(gaussian)};",
        "  static constexpr int width(int tower, int layer) {",
        f"    constexpr int of[] = {{{', '.join(map(str, widths))}}};",
        "    return of[tower * (LAYERS + 1) + layer];",
        "  }",
    ]
    if gaussian:
        low, span = distribution.space.low, distribution.space.high - distribution.space.low
        lines += [
            f"  static constexpr bool SQUASHED = {int(distribution.squashed)};",
            f"  static DEVICE float low(int head) {{ {pick_float(low)} }}",
            f"  static DEVICE float span(int head) {{ {pick_float(span)} }}",
        ]
    else:
        lines += [
            f"  static constexpr int LARGEST = {max(distribution.sizes)};",
            f"  static DEVICE int size(int head) {{ {pick_int(distribution.sizes)} }}",
        ]
    return [*lines, "};"]
