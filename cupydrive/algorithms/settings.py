"""Settings of algorithms: dataclasses whose fields are validated by the constructor."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator

from cupydrive.algorithms.architecture import (
    OF_IMAGES,
    Activation,
    Network,
    Widths,
    as_network,
)
from cupydrive.algorithms.schedule import Range, Schedule
from cupydrive.errors import MemoryLimitError, ParameterError, did_you_mean
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.validation import Count, validated

if TYPE_CHECKING:
    from cupydrive.simulation.batch import Batch
    from cupydrive.spec import Group

ARGS = "\n\nArgs:"  # beginning of the settings in a docstring
COPIES = 4  # tensors per weight during learning: weight, gradient, first and second moment
NEEDED = "a torch.nn.Module, its class, or a function (obs_dim, size) -> module"
NonNegative = Annotated[Schedule, Range(0.0)]
Positive = Annotated[Schedule, Range(0.0, positive=True)]
Fraction = Annotated[Schedule, Range(0.0, 1.0)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of the settings of algorithms. The constructor validates every field."""

    def __new__(cls, *args: object, **settings: object) -> Self:
        """Raise an error that explains an unknown setting, instead of a bare ``TypeError``."""
        if args:
            raise ParameterError(
                f"{cls.__name__}({shown(args[0])}): settings have names, such as "
                f"{cls.__name__}(gamma=0.99)"
            )
        known = [f.name for f in fields(cls)]
        for name in settings:
            if name not in known:
                raise ParameterError(unknown_setting(cls, name))
        return super().__new__(cls)

    def __init_subclass__(cls, **options: object) -> None:
        """Add inherited settings to the docstring, so that ``cd.PPO?`` shows all of them."""
        super().__init_subclass__(**options)
        own = inspect.cleandoc(cls.__doc__ or cls.__name__)
        inherited = inspect.cleandoc(cls.__base__.__doc__ or "").partition("\nArgs:\n")[2]
        if inherited:
            cls.__doc__ = f"{own}{'' if 'Args:' in own else ARGS}\n{inherited}"

    def __post_init__(self) -> None:
        kind = type(self)
        for name, value in validated(
            kind.__name__, kind, {f.name: getattr(self, f.name) for f in fields(self)}
        ).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class RolloutSettings(Settings):
    """Settings of algorithms that learn from each rollout of their policy, with CleanRL's names.

    Args:
        learning_rate: Learning rate of the optimizer.
        num_steps: Rollout length T per environment.
        gamma: Discount factor.
        max_grad_norm: Maximum gradient norm for clipping.
        normalize_obs: Normalize each observation entry to running mean 0 and standard deviation 1.
        normalize_reward: Divide rewards by the running standard deviation of the discounted return.
        hidden: Width of each hidden layer. ``()`` gives a linear policy. If neither ``network`` nor
            another field describes one, images of at least 3 x 3 get a shared network of
            convolutions:
            ``Network(conv=Conv((16,)), hidden=(128,), activation="relu", shared=True)``.
        activation: ``tanh``, ``relu``, ``silu`` or ``gelu``.
        network: ``Network``, for options beyond the short form of ``hidden`` and ``activation``,
            such as a core with hidden state. Leave the short form out then.
        policy: A custom network: a ``torch.nn.Module``, which is copied, its class, or a function
            ``(obs_dim, size) -> module``. It is called with observations (B, obs_dim) float32 and
            returns ``(parameters, value)``, (B, size) and (B,) float32. The parameters are logits
            of all heads, or means followed by logarithms of standard deviations. With
            ``critic="central"`` it is also called with ``critic_obs=``, (B, K) float32. Where only
            actions are needed, it is called without them, and the value may then be None. It is
            validated on a first batch before training.
        precision: Precision of the operands of matrix products: ``float32`` or ``bfloat16``.
            Accumulators and weights are always float32. Kernels in float32 have a fixed order of
            summation, so that a run gives bitwise identical results on a CPU with any number of
            threads and on a GPU. Kernels in bfloat16 need a GPU's tensor cores. ``auto`` selects
            bfloat16 if its kernels apply on a GPU, otherwise float32.
        compile: ``True`` compiles policy and loss with ``torch.compile``, which needs a C compiler.
            ``"max-autotune"`` also tunes the kernels of matrix products. Its set-up takes a minute,
            and it is faster for fewer environments.
    """

    learning_rate: Positive = 2.5e-4
    num_steps: Count = 32
    gamma: Fraction = 0.99
    max_grad_norm: Positive = 0.5
    normalize_obs: bool = False
    normalize_reward: bool = False
    hidden: Widths = (64, 64)
    activation: Activation = "tanh"
    network: Annotated[Network | None, BeforeValidator(as_network)] = None
    policy: object = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool | Literal["max-autotune"] = False

    name = "rollouts"
    exchanges = True  # its learners can train in several processes together
    # Fixed values here. A subclass may make them settings.
    distribution = "auto"
    shared_layers = False
    norm_adv = False
    normalize_value = False
    critic = "own"
    trace = "gae_lambda"  # name of the setting that weights later errors in returns
    rectified = False  # RAdam instead of Adam

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy is not None and not callable(self.policy):
            raise ParameterError(
                f"{type(self).__name__}.policy = {shown(self.policy)}, expected {NEEDED}, or None"
            )
        if self.network is not None:
            for name in self.short_form():
                raise ParameterError(
                    f"{type(self).__name__}: network describes the whole policy. Leave "
                    f"{name} = {shown(getattr(self, name))} out"
                )
        if self.central and self.architecture.shared:
            raise ParameterError(
                f"{type(self).__name__}: critic = 'central' sees other entries than the actor: got "
                f"shared layers, expected two networks. Leave shared_layers, or shared, out"
            )

    @property
    def central(self) -> bool:
        """Whether the critic reads ``critic_obs``."""
        return self.critic == "central"

    @property
    def statistics(self) -> bool:
        """Whether running statistics normalize observations, rewards or values."""
        return self.normalize_obs or self.normalize_reward or self.normalize_value

    def short_form(self) -> list[str]:
        """Return the fields of the short form of a network that differ from their defaults."""
        names = ("policy", "hidden", "activation", "shared_layers")
        own = [f for f in fields(self) if f.name in names]
        return [f.name for f in own if getattr(self, f.name) != f.default]

    @property
    def architecture(self) -> Network:
        """Described network: ``network``, or the equivalent of the short form."""
        short = Network(hidden=self.hidden, activation=self.activation, shared=self.shared_layers)
        return self.network or short

    def network_for(self, group: Group) -> Network:
        """Return the described network for a group's observations.

        If no network is described, images get convolutions.

        Raises:
            ParameterError: If the network does not fit the observations.
        """
        network, obs_shape = self.architecture, group.obs_shape
        assert OF_IMAGES.conv is not None
        kernel = max(OF_IMAGES.conv.by_layer("kernel"))
        described = self.network is not None or self.short_form()
        if not described and len(obs_shape) == 3 and min(obs_shape[:2]) >= kernel:
            seen, shared = OF_IMAGES, not self.central
            network = replace(
                network,
                conv=seen.conv,
                hidden=seen.hidden,
                activation=seen.activation,
                shared=shared,
            )
        network.convolutions(network.input_shape(group))
        return network


@dataclass(frozen=True, kw_only=True)
class OnPolicy(RolloutSettings):
    """Settings that PPO and A2C share.

    It is also the base class for on-policy algorithms of your own. Write a subclass with a ``name``
    and a method ``learner()``, which returns an ``OnPolicyLearner`` with its own ``update`` and
    ``_loss``. ``A2C`` is the shortest example. If ``norm_adv`` is set, ``_loss`` receives
    normalized advantages.

    Args:
        gae_lambda: GAE lambda. 1 gives T-step returns with a value bootstrap.
        ent_coef: Coefficient of the entropy.
        vf_coef: Coefficient of the value loss.
        norm_adv: Normalize advantages.
        normalize_value: Train critics on returns minus their running mean, divided by their running
            standard deviation (Yu et al. 2022). Advantages keep the units of the reward.
        critic: ``own`` for a critic that reads an agent's own observation, or ``central`` for one
            that reads the ``critic_obs`` of the agent's group, as in MAPPO (Yu et al. 2022). The
            latter needs networks that are not shared.
        shared_layers: Share the hidden layers of actor and critic. It belongs to the short form.
        distribution: ``auto``, ``categorical``, ``gaussian`` or ``squashed``.
    """

    gae_lambda: Fraction = 0.95
    ent_coef: NonNegative = 0.01
    vf_coef: NonNegative = 0.5
    norm_adv: bool = True
    normalize_value: bool = False
    critic: Literal["own", "central"] = "own"
    shared_layers: bool = False
    distribution: Literal["auto", "categorical", "gaussian", "squashed"] = "auto"

    name = "on_policy"


def unknown_setting(kind: type, name: str) -> str:
    """Return the error message for a setting that the algorithm does not have."""
    known = [f.name for f in fields(kind)]
    return (
        f"{kind.__name__} has no setting {name!r}.{did_you_mean(name, known)} It has: "
        f"{', '.join(known)}"
    )


def linear_layers(widths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Convert the widths of a perceptron, from input to output, to layers.

    The result has the form of ``require_network_memory``'s argument.
    """
    return [(inner, outer, 1) for inner, outer in pairwise(widths)]


def require_network_memory(
    where: str,
    batch: Batch,
    rows: int,
    layers: Sequence[tuple[int, int, int]],
    num_envs: int | None = None,
) -> None:
    """Raise ``MemoryLimitError`` if networks and their learning state do not fit into free memory.

    Args:
        where: Setting that determines the size, such as ``"PPO.hidden = (64, 64)"``.
        batch: ``Batch`` on the device whose free memory is compared.
        rows: Rows of one forward pass with gradients, which stores each layer's outputs before and
            after the activation. 0 counts only the weights.
        layers: Inputs, outputs and positions of each layer. Positions are 1 without convolution.
        num_envs: Number of environments if ``rows`` is proportional to it, otherwise None.
    """
    weights = sum((inner + 1) * outer for inner, outer, _ in layers)
    fixed = 4 * COPIES * weights
    row = 4 * 2 * sum(outer * positions for _, outer, positions in layers)
    needed, free = fixed + rows * row, batch.executor.free_bytes()
    if needed > free:
        fitting = (free - fixed) // row * num_envs // rows if num_envs else 0
        largest = f"The largest num_envs that fits is {fitting:,}. " * (fitting > 0)
        raise MemoryLimitError(
            f"{where} makes {weights:,} weights, which need {needed:,} bytes with gradients, "
            f"Adam's state{f' and the outputs of {rows:,} rows' * (rows > 0)}, but {free:,} are "
            f"free on {batch.executor.name}. {largest}Lower hidden, or the rows of a minibatch"
        )
