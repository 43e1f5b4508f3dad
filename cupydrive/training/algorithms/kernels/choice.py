"""Which learner a policy gets: kernels, or torch's operations."""

from cupydrive.errors import ParameterError
from cupydrive.playing.policy import make_distribution
from cupydrive.training.algorithms.a2c import A2C, A2CLearner
from cupydrive.training.algorithms.kernels.arithmetic import EXACT, TENSOR, WIDE
from cupydrive.training.algorithms.kernels.layout import NetworkLayout
from cupydrive.training.algorithms.kernels.learner import KernelLearner
from cupydrive.training.algorithms.kernels.tensor import fitting, why_no_tensor
from cupydrive.training.algorithms.kernels.tiles import forward_tiles, gradient_tiles
from cupydrive.training.algorithms.kernels.wide import ROWS, wide_bytes, wide_fitting
from cupydrive.training.algorithms.pool import Pool, PooledLearner
from cupydrive.training.algorithms.ppo import PPO, PPOLearner

LEARNERS = ("auto", "torch", "kernels")
ARITHMETICS = {way.name: way for way in (EXACT, TENSOR)}
REPORTED = {PPO: PPOLearner.reported, A2C: A2CLearner.reported}
MOST_LAYERS = 3  # hidden ones


def make_learner(name, settings, group, executor, wanted="auto"):
    """Return the ``Learner`` of one policy, and in one line which it is and why.

    Args:
        name: Of the policy, for the message.
        settings: ``LearnerSettings``.
        group: ``Group``, the first of those that it plays.
        executor: Where it learns.
        wanted: One of ``LEARNERS``; ``"auto"``: kernels wherever they apply, unless ``precision`` is one of torch's.

    Raises:
        ParameterError: If kernels are wanted, by ``wanted`` or by ``precision``, and do not apply.
    """
    if isinstance(settings, Pool):
        learner, words = make_learner(name, settings.settings, group, executor, wanted)
        played = f"up to {settings.size} past snapshots of it play {settings.share:g} of the environments"
        return PooledLearner(settings, learner), f"{words}; {played}"
    precision = getattr(settings, "precision", None)
    named = precision in ARITHMETICS
    if wanted == "torch":
        if named:
            raise ParameterError(f"policy {name!r}: precision={precision!r} needs kernels; leave learner='torch' out")
        return settings.learner(), f"policy {name!r} learns by torch, as asked for"
    arithmetic, reason = choose_arithmetic(settings, group, executor, wanted)
    if reason is None and wanted == "auto" and executor.name != "cpu" and precision == "float32":
        reason = "precision = 'float32' is torch's on a GPU; 'auto', 'exact' and 'tensor' take kernels"
    if reason is not None and (named or wanted == "kernels"):
        asked = f"precision={precision!r}" if named else "learner='kernels'"
        raise ParameterError(f"policy {name!r}: {asked}, but kernels do not apply: {reason}")
    if reason is not None:
        return settings.learner(), f"policy {name!r} learns by torch: {reason}"
    learner = KernelLearner(settings, REPORTED[type(settings)], arithmetic)
    return learner, f"policy {name!r} learns by kernels, {arithmetic.name}"


def choose_arithmetic(settings, group, executor, wanted):
    """Return the ``Arithmetic`` that settings ask for or, if they leave it open, the faster one; or None, and why.

    Where matrix units cannot, kernels are exact if they are ``wanted``; else torch learns.
    """
    reason = why_not(settings, group, executor)
    if reason is not None:
        return None, reason
    if settings.precision in ("exact", "float32") or (settings.precision == "auto" and executor.name == "cpu"):
        return EXACT, None
    size = make_distribution(group, settings.distribution).size
    way, reason = tensor_arithmetic(NetworkLayout.of(settings, group.obs_dim, size), executor)
    if reason is not None and settings.precision == "auto" and wanted == "kernels":
        return EXACT, None
    return way, reason


def tensor_arithmetic(layout, executor):
    """Return the ``Arithmetic`` by which matrix units take a network, or None, and why they cannot."""
    reason = why_no_tensor(executor)
    if reason is not None:
        return None, reason
    if fitting(layout, executor):
        return TENSOR, None
    if wide_fitting(layout, executor):
        return WIDE, None
    needed, limit = wide_bytes(layout, ROWS[-1]), executor.team_bytes
    return (
        None,
        f"{ROWS[-1]} rows of its layers {layout.layers} need {needed:,} bytes of a block's memory, which has {limit:,}",
    )


def why_not(settings, group, executor):
    """Return why kernels cannot do what these settings ask for, or None if they can."""
    kind = type(settings)
    if kind not in REPORTED:
        return f"{kind.__name__} has no kernels; {' and '.join(k.__name__ for k in REPORTED)} have"
    if settings.policy is not None:
        return "its network is one of your own"
    if settings.activation not in ("tanh", "relu"):
        return f"activation = {settings.activation!r}; kernels have tanh and relu"
    if settings.precision not in ("auto", "float32", *ARITHMETICS):
        return f"precision = {settings.precision!r}; kernels have {' and '.join(ARITHMETICS)}"
    if settings.compile:
        return f"compile = {settings.compile!r} is of torch"
    if len(settings.hidden) > MOST_LAYERS:
        return f"{len(settings.hidden)} hidden layers; kernels have {MOST_LAYERS} at most"
    size = make_distribution(group, settings.distribution).size
    layout = NetworkLayout.of(settings, group.obs_dim, size)
    if 0 in (forward_tiles(layout, executor, 1).rows, gradient_tiles(layout, executor, 1).rows):
        return f"hidden = {settings.hidden} with {group.obs_dim} entries of an observation is too wide for kernels"
    if executor.name == "cpu" and not executor.fuses():
        return "this processor has no fused multiply-add"
    return None
