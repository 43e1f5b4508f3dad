"""Selection of a policy's backend: kernels, or torch."""

from typing import Any

import numpy as np

from cupydrive.algorithms.a2c import A2C, A2CLearner
from cupydrive.algorithms.architecture import GRU, LSTM, Network
from cupydrive.algorithms.kernels.arithmetic import EXACT, TENSOR, WIDE, Arithmetic
from cupydrive.algorithms.kernels.layerwise import LAYERWISE, ExactLayerwiseLearner
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout, fits
from cupydrive.algorithms.kernels.layerwise_tensor import (
    LAYERWISE_TENSOR,
    LayerwiseTensorLearner,
    patches_at_once,
)
from cupydrive.algorithms.kernels.layout import NetworkLayout, forward_tiles, gradient_tiles
from cupydrive.algorithms.kernels.learner import KernelLearner
from cupydrive.algorithms.kernels.tensor import fitting_rows, why_no_tensor
from cupydrive.algorithms.kernels.wide import WIDE_ROWS, wide_bytes
from cupydrive.algorithms.pool import OpponentPool, PooledLearner
from cupydrive.algorithms.ppo import PPO, PPOLearner
from cupydrive.algorithms.pqn import PQN, PQNLearner
from cupydrive.algorithms.settings import RolloutSettings
from cupydrive.errors import ParameterError
from cupydrive.executors.host import HostExecutor
from cupydrive.playing.policy import make_distribution
from cupydrive.protocols import Executor, LearnerSettings
from cupydrive.scans import MOST_UNITS
from cupydrive.spec import Group

REPORTED: dict[type, tuple[str, ...]] = {
    PPO: PPOLearner.reported,
    A2C: A2CLearner.reported,
    PQN: PQNLearner.reported,
}
MOST_LAYERS = 3  # maximum number of hidden layers
SCANNED = 16  # scans in bfloat16 require a multiple of this number of units
LEARNERS = {LAYERWISE: ExactLayerwiseLearner, LAYERWISE_TENSOR: LayerwiseTensorLearner}


def make_learner(
    name: str,
    settings: LearnerSettings,
    group: Group,
    executor: Executor,
    backend: str = "auto",
) -> tuple[Any, str]:
    """Create the ``Learner`` of one policy.

    Args:
        name: Name of the policy, for the message.
        settings: ``LearnerSettings``.
        group: First ``Group`` of the policy.
        executor: Executor of the learner.
        backend: ``"auto"``, ``"kernels"`` or ``"torch"``. ``"auto"`` selects kernels if they
            apply.

    Returns:
        The ``Learner``, and one line that explains its backend.

    Raises:
        ParameterError: If ``backend`` is ``"kernels"`` and they do not apply.
    """
    if isinstance(settings, OpponentPool):
        inner, words = make_learner(name, settings.settings, group, executor, backend)
        played = (
            f"up to {settings.size} past snapshots of it play {settings.share:g} of the "
            f"environments"
        )
        return PooledLearner(settings, inner), f"{words}, {played}"
    arithmetic, reason = None, "backend = 'torch'"
    if backend != "torch":
        arithmetic, reason = choose_arithmetic(settings, group, executor, backend)
    if arithmetic is not None:
        assert isinstance(settings, RolloutSettings)
        reported = REPORTED[type(settings)]
        learner = LEARNERS.get(arithmetic, KernelLearner)(settings, reported, arithmetic)
        return learner, f"policy {name!r} learns by kernels, {arithmetic.name}"
    if backend == "kernels":
        raise ParameterError(
            f"policy {name!r}: backend='kernels', but kernels do not apply: {reason}"
        )
    return settings.learner(), f"policy {name!r} learns by torch: {reason}"


def choose_arithmetic(
    settings: LearnerSettings, group: Group, executor: Executor, backend: str
) -> tuple[Arithmetic | None, str]:
    """Return the ``Arithmetic`` for ``precision``, or None with a reason.

    With ``precision="auto"``, None is returned if no tensor-core kernel supports the network, since
    torch is faster than float32 kernels then.
    """
    if (reason := why_not(settings, group, executor)) is not None:
        return None, reason
    assert isinstance(settings, RolloutSettings)
    network = settings.network_for(group)
    if settings.precision == "float32" or (settings.precision == "auto" and executor.name == "cpu"):
        return LAYERWISE if is_layerwise(network, settings.central) else EXACT, ""
    size = make_distribution(group, settings.distribution).size
    layout = NetworkLayout.of(settings, network.inputs(network.input_shape(group)), size)
    by_launch = is_layerwise(network, settings.central, exact=False)
    if by_launch or (is_layerwise(network) and not fitting_rows(layout, executor)):
        reason = why_not_layerwise(network, network.input_shape(group), executor)
        if reason is None:
            return LAYERWISE_TENSOR, ""
        exact = settings.precision == "auto" and backend == "kernels"
        return (LAYERWISE, "") if exact else (None, reason)
    way, reason = tensor_arithmetic(layout, executor)
    return (
        (EXACT, "")
        if way is None and settings.precision == "auto" and backend == "kernels"
        else (way, reason)
    )


def tensor_arithmetic(layout: NetworkLayout, executor: Executor) -> tuple[Arithmetic | None, str]:
    """Return the ``Arithmetic`` of a network on tensor cores, or None with a reason."""
    if (reason := why_no_tensor(executor)) is not None:
        return None, reason
    if fitting_rows(layout, executor):
        return TENSOR, ""
    needed, limit = wide_bytes(layout, WIDE_ROWS[-1]), executor.team_bytes
    if needed <= limit:
        return WIDE, ""
    reason = (
        f"{WIDE_ROWS[-1]} rows of its layers {layout.layers} need {needed:,} bytes of shared "
        f"memory, which has {limit:,}"
    )
    return None, reason


def is_layerwise(network: Network, central: bool = False, exact: bool = True) -> bool:
    """Return whether a network is computed by a launch per layer.

    This is so for convolutions, hidden state, many layers and a ``central`` critic. In ``exact``
    float32 it is also so for layer normalization and action values.
    """
    parts, many = (network.conv, network.core), len(network.hidden) > MOST_LAYERS
    only_exact = network.layer_norm or not network.valued
    return central or parts != (None, None) or many or (exact and only_exact)


def why_not_layerwise(
    network: Network, obs_shape: tuple[int, ...], executor: Executor
) -> str | None:
    """Return why tensor cores cannot compute a network layer by layer, or None if they can."""
    core, convolutions = network.core, network.convolutions(obs_shape)
    if (reason := why_no_tensor(executor)) is not None:
        return reason
    if convolutions and patches_at_once(convolutions[0], executor, network.layer_norm) == 0:
        return f"{network.conv} reads too many entries at once for a processor's shared memory"
    if core is not None and (
        core.size % SCANNED or (isinstance(core, GRU) and core.size > MOST_UNITS)
    ):
        most = f" up to {MOST_UNITS}" * isinstance(core, GRU)
        return f"{core} has kernels in bfloat16 for multiples of {SCANNED} units{most}"
    return None


def why_not(settings: LearnerSettings, group: Group, executor: Executor) -> str | None:
    """Return why kernels do not support the settings, or None if they do."""
    kind = type(settings)
    if not isinstance(settings, RolloutSettings) or kind not in REPORTED:
        return f"{kind.__name__} has no kernels. {', '.join(k.__name__ for k in REPORTED)} have"
    if settings.policy is not None:
        return "its network is one of your own"
    network = settings.network_for(group)
    if group.obs_dtype == "uint8" and np.ndim(group.obs_high) > 0:
        return f"obs_high of {group.name!r} has a number for each entry"
    if isinstance(network.core, LSTM):
        return f"{network.core} has no kernels"
    if network.activation not in ("tanh", "relu"):
        return f"activation = {network.activation!r}, but kernels have only tanh and relu"
    if settings.compile:
        return f"compile = {settings.compile!r} needs torch"
    size = make_distribution(group, settings.distribution).size
    seen = network.input_shape(group)
    inputs = network.inputs(seen)
    if is_layerwise(network, settings.central):
        critic_dim = settings.central * group.critic_obs_dim
        room = fits(LayerwiseLayout.made(network, seen, size, critic_dim=critic_dim), executor)
    else:
        layout = NetworkLayout.of(settings, inputs, size)
        tiles = forward_tiles(layout, executor, 1), gradient_tiles(layout, executor, 1)
        room = all(each.rows for each in tiles)
    if not room:
        left = "entries of an observation" if network.conv is None else "numbers of convolutions"
        return f"hidden = {network.hidden} with {inputs} {left} is too wide for kernels"
    if isinstance(executor, HostExecutor) and not executor.fuses():
        return "this processor has no fused multiply-add"
    return None
