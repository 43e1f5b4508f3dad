"""Policies and their distributions: ordinary torch modules, and the kernels that sample from them.

A policy is any ``torch.nn.Module`` with a call ``policy(obs)`` that takes (B, D) float32 and
returns
``(parameters, value)``: (B, distribution.size) and (B,). Players and learners call it through
``with_state``.

Letters: B rows, N environments, C agents of a group, H action heads, D observation entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from cupydrive.codegen.source import assemble_file, box_bounds, head_sizes
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import zeros
from cupydrive.playing.convolution import ChannelNorm, Convolution
from cupydrive.playing.inference import (
    BoxPolicy,
    DiscretePolicy,
    EpsilonGreedyPolicy,
    MixedPolicy,
    Moments,
    PolicyModule,
    without,
)
from cupydrive.playing.torch_settings import threads_worth

if TYPE_CHECKING:
    from cupydrive.algorithms.architecture import Network
    from cupydrive.algorithms.schedule import Scheduled
    from cupydrive.codegen.source import Unit
    from cupydrive.protocols import Program
    from cupydrive.simulation.batch import Batch
    from cupydrive.spec import Group


ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU}
LOG_2 = math.log(2)
PADDING = 8  # alignment of matrix products, in entries of 2 bytes


class PaddedLinear(nn.Linear):
    """``torch.nn.Linear`` that is padded to multiples of 8 inputs and outputs under autocast.

    Matrix products of other widths take two to three times as long. Such widths occur in the first
    and last layers of small policies.
    """

    def reset_parameters(self) -> None:
        """Draw nothing from torch's global generator, since ``mlp`` fills the weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer to (B, inputs)."""
        missing, surplus = -self.in_features % PADDING, -self.out_features % PADDING
        if not (missing or surplus) or not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        weight = functional.pad(self.weight, (0, missing, 0, surplus))
        bias = functional.pad(self.bias, (0, surplus))
        out = functional.linear(functional.pad(x, (0, missing)), weight, bias)
        return out[..., : self.out_features]


class OneHot(nn.Module):
    """One-hot encoding of observations of uint8.

    Args:
        group: ``Group`` of uint8. The values of each channel are encoded in consecutive entries.
    """

    high: torch.Tensor
    channel: torch.Tensor
    value: torch.Tensor

    def __init__(self, group: Group) -> None:
        super().__init__()
        entries = [(c, v) for c, values in enumerate(group.values) for v in range(values)]
        channel, value = torch.tensor(entries, device="cpu").unbind(1)
        high = torch.as_tensor(group.obs_high, dtype=torch.float32, device="cpu")
        for name, tensor in {"high": high, "channel": channel, "value": value}.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return (B, entries) for observations (B, ...) of uint8, divided by ``obs_high``."""
        values = (obs.flatten(1) * self.high).round().unflatten(1, (-1, obs.shape[-1]))
        return (values[..., self.channel] == self.value).to(obs.dtype).flatten(1)


@threads_worth(0)  # the last bits of a matrix factorization depend on the number of threads
def mlp(
    sizes: Sequence[int],
    activation: str = "tanh",
    last_gain: float | None = 1.0,
    initial: bool = True,
    generator: torch.Generator | None = None,
    layer_norm: bool = False,
) -> nn.Sequential:
    """Create a multilayer perceptron with orthogonal weights and zero biases.

    Args:
        sizes: Width of the input, of each hidden layer and of the output.
        activation: Name in ``ACTIVATIONS``, between layers.
        last_gain: Gain of the last layer's weights. The others have the square root of 2. If None,
            the last layer is also a hidden layer.
        initial: Initialize the weights. If False, the caller must fill them.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
        layer_norm: Apply layer normalization before activations.
    """
    layers: list[nn.Module] = []
    for k, (inner, outer) in enumerate(pairwise(sizes)):
        last = last_gain is not None and k == len(sizes) - 2
        linear = PaddedLinear(inner, outer, dtype=torch.float32, device="cpu")
        layers.append(linear)
        weight, bias = linear.parameters()
        if initial:
            # like torch.nn.Linear, so that seeds keep their weights
            for drawn in (weight, bias):
                nn.init.uniform_(drawn, generator=generator)
            gain = last_gain if last and last_gain is not None else math.sqrt(2)
            nn.init.orthogonal_(weight, gain, generator=generator)
            nn.init.zeros_(bias)
        if not last and layer_norm:
            layers.append(nn.LayerNorm(outer, dtype=torch.float32, device="cpu"))
        if not last:
            layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


@threads_worth(0)
def encoder(
    network: Network,
    obs_shape: tuple[int, ...],
    outputs: Sequence[int] = (),
    last_gain: float | None = None,
    initial: bool = True,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Create the convolutions, hidden layers and outputs of a described network.

    The module is called with rows (B, D).

    Args:
        network: ``Network``.
        obs_shape: Shape of one observation at the first layer.
        outputs: (Number of outputs,), or ``()`` for none.
        last_gain: Gain of the last layer's weights. If None, the last layer is a hidden layer.
        initial: Initialize the weights. If False, the caller must fill them.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
    """
    layers: list[nn.Module] = []
    for layer in network.convolutions(obs_shape):
        layers.append(Convolution(layer, initial, generator))
        layers += [ChannelNorm(layer.channels)] * network.layer_norm
        layers.append(ACTIVATIONS[network.activation]())
    sizes = network.inputs(obs_shape), *network.hidden, *outputs
    about = network.activation, last_gain, initial, generator, network.layer_norm
    return nn.Sequential(*layers, *mlp(sizes, *about))


class ActorCritic(nn.Module):
    """Described policy without hidden state: two networks, or one with two outputs.

    Args:
        obs_shape: Shape of one observation at the first layer.
        size: Number of the distribution's parameters.
        network: ``Network`` without a core.
        initial: Initialize the weights. If False, the caller must fill them.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
        critic_dim: K of a centralized critic, or 0 if the critic reads the actor's observations.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        size: int,
        network: Network,
        initial: bool = True,
        generator: torch.Generator | None = None,
        critic_dim: int = 0,
    ) -> None:
        super().__init__()
        self.shared, self.size, self.central = network.shared, size, critic_dim > 0
        self.entries: nn.Module = nn.Flatten()
        about = initial, generator
        self.valued = network.valued
        if network.shared:
            self.body = encoder(network, obs_shape, network.outputs(size), 1.0, *about)
            if initial and network.valued:
                fill_outputs(self.body[-1].weight, size, generator)
        else:
            actor, critic = network.tower_inputs(obs_shape, critic_dim)
            self.actor = encoder(*actor, (size,), 0.01, *about)
            self.critic = encoder(*critic, (1,), 1.0, *about)

    def forward(
        self, obs: torch.Tensor, critic_obs: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return ``(parameters, value)`` for observations (B, ...): (B, size) and (B,).

        A centralized critic returns the value of ``critic_obs`` (B, K), or None without them.
        """
        obs = self.entries(obs)
        if self.central:
            value = None if critic_obs is None else self.critic(critic_obs)[:, 0]
            return self.actor(obs), value
        if self.shared:
            return split_outputs(self.body(obs), self.size)
        return self.actor(obs), self.critic(obs)[:, 0]


@threads_worth(0)
def fill_outputs(weight: nn.Parameter, size: int, generator: torch.Generator | None) -> None:
    """Initialize the output weights of a shared network.

    Args:
        weight: Weights of ``size`` parameters of a distribution and a value.
        size: Number of the distribution's parameters.
        generator: ``torch.Generator`` of the weights.
    """
    nn.init.orthogonal_(weight.detach()[:size], 0.01, generator=generator)
    nn.init.orthogonal_(weight.detach()[size:], 1.0, generator=generator)


def split_outputs(out: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first ``size`` outputs of each row, and the value.

    The value is the next output, or the maximum of the outputs if there is no further one.
    """
    return out[:, :size], out[:, size] if out.shape[1] > size else out.amax(1)


class Tower(nn.Module):
    """Convolutions, hidden layers, a core and outputs.

    Args:
        network: ``Network`` with a core.
        obs_shape: Shape of one observation at the first layer.
        outputs: Number of outputs.
        gain: Gain of the output weights.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
    """

    @threads_worth(0)
    def __init__(
        self,
        network: Network,
        obs_shape: tuple[int, ...],
        outputs: int,
        gain: float,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        assert network.core is not None
        self.encoder = encoder(network, obs_shape, generator=generator)
        seen = (network.inputs(obs_shape), *network.hidden)[-1]
        self.core = network.core.module(seen, generator)
        self.head = mlp((network.core.size, outputs), "tanh", gain, True, generator)[0]

    def forward(
        self, obs: torch.Tensor, state: torch.Tensor, start: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs and the next state."""
        seen, state = self.core(self.encoder(obs), state, start)
        return self.head(seen), state


class RecurrentActorCritic(nn.Module):
    """Described policy with hidden state: two networks, or one with two outputs.

    ``with_state`` documents its call.

    Args:
        obs_shape: Shape of one observation at the first layer.
        size: Number of the distribution's parameters.
        network: ``Network`` with a core.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
        critic_dim: K of a centralized critic, or 0 if the critic reads the actor's observations.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        size: int,
        network: Network,
        generator: torch.Generator | None = None,
        critic_dim: int = 0,
    ) -> None:
        super().__init__()
        self.shared, self.size, self.state_size = network.shared, size, network.state_size
        self.central = critic_dim > 0
        self.entries: nn.Module = nn.Flatten()
        self.valued = network.valued
        if network.shared:
            self.body = Tower(network, obs_shape, network.outputs(size)[0], 1.0, generator)
            if network.valued:
                fill_outputs(self.body.head.weight, size, generator)
        else:
            actor, critic = network.tower_inputs(obs_shape, critic_dim)
            self.actor = Tower(*actor, size, 0.01, generator)
            self.critic = Tower(*critic, 1, 1.0, generator)

    def forward(
        self,
        obs: torch.Tensor,
        state: torch.Tensor,
        start: torch.Tensor | None = None,
        critic_obs: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Return ``(parameters, value, state)``: (L * b, size), (L * b,), (b, state_size).

        A centralized critic returns the value of ``critic_obs`` (L * b, K). Without them the value
        is None, and the critic's hidden state is unchanged.
        """
        obs = self.entries(obs)
        if self.shared:
            out, state = self.body(obs, state, start)
            return *split_outputs(out, self.size), state
        of_actor, of_critic = state.chunk(2, 1)
        parameters, of_actor = self.actor(obs, of_actor, start)
        if self.central and critic_obs is None:
            return parameters, None, torch.cat((of_actor, of_critic), 1)
        seen = critic_obs if self.central else obs
        value, of_critic = self.critic(seen, of_critic, start)
        return parameters, value[:, 0], torch.cat((of_actor, of_critic), 1)


class Stateless:
    """Adapts a module without hidden state to the call of one with hidden state, at no cost.

    The hidden state is always None.
    """

    state_size = 0

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(
        self,
        obs: torch.Tensor,
        memory: torch.Tensor | None = None,
        start: torch.Tensor | None = None,
        **central: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return ``(parameters, value, memory)`` for observations (B, D).

        ``memory`` is returned unchanged.
        """
        parameters, value = self.module(obs, **central)
        return parameters, value, memory


class WholeEnvironments:
    """Adapts a module that takes whole environments to rows of agents.

    Rows of the agents of an environment are consecutive.

    Args:
        ask: Policy of environments (B, C, ...), with the call of ``with_state``.
        agents: Number of agents of an environment, C.
    """

    def __init__(self, ask: Any, agents: int) -> None:
        self.ask, self.agents_per_row, self.state_size = ask, agents, ask.state_size

    def whole(self, rows: torch.Tensor | None) -> torch.Tensor | None:
        """Return rows (B * C, ...) as (B, C, ...)."""
        return None if rows is None else rows.unflatten(0, (-1, self.agents_per_row))

    def __call__(
        self,
        obs: torch.Tensor,
        memory: torch.Tensor | None = None,
        start: torch.Tensor | None = None,
        **central: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        """Return ``(parameters, value, memory)`` by row.

        Episodes of all agents of an environment begin at the same time.
        """
        starts = self.whole(start)
        state = self.whole(memory), None if starts is None else starts[:, 0]
        central = {name: self.whole(rows) for name, rows in central.items()}
        returned = self.ask(self.whole(obs), *state, **central)
        return tuple(None if x is None else x.flatten(0, 1) for x in returned)


def with_state(module: nn.Module) -> Any:
    """Give any module the call of a recurrent one: ``(obs, memory, start) -> (parameters, value,
    memory)``.

    A module with hidden state has an attribute ``state_size`` = M > 0 and is returned unchanged. A
    module without hidden state is wrapped. The wrapper calls it with ``obs`` only and returns
    ``memory``, the hidden state, unchanged.

    One call takes L steps of b agents. L is 1 while acting and T while learning. The arguments are
    observations (L * b, D), ordered by time, hidden states (b, M) before the first step, and
    ``start`` (L * b,) bool, or None. The module sets the hidden state to 0 before each step where
    ``start`` is true. It returns parameters (L * b, size), values (L * b,), and hidden states
    (b, M) after the last step.

    A module with ``agents_per_row`` = C takes whole environments of C agents and is also wrapped.
    The wrapper still takes rows of agents. It calls the module with (L * b, C, D), (b, C, M) and
    (L * b,), and expects (L * b, C, size), (L * b, C) and (b, C, M).

    ``critic_obs=`` (L * b, K) are the K observation entries of a centralized critic. They are left
    out if values are not needed.
    """
    ask = module if getattr(module, "state_size", 0) else Stateless(module)
    agents = getattr(module, "agents_per_row", 0)
    return WholeEnvironments(ask, agents) if agents else ask


def first_state(
    policy: nn.Module, rows: int, agents: int, device: torch.device
) -> torch.Tensor | None:
    """Allocate hidden states (rows, agents, M) of a ``with_state`` policy, all 0.

    The result is None for a policy without hidden state.
    """
    return zeros(device, rows, agents, policy.state_size) if policy.state_size else None


def require_range(what: str, group: Group) -> None:
    """Raise ``ParameterError`` unless each value of a ``Box`` has a finite range above 0.

    Args:
        what: What scales actions by their range, for the message.
        group: The ``Group``.
    """
    with np.errstate(over="ignore"):
        span = group.box.high - group.box.low
    wrong = np.flatnonzero(~((span > 0) & np.isfinite(span)))
    if wrong.size:
        k = wrong[0]
        raise ParameterError(
            f"{what} scales actions by high - low, which is {span[k]:g} in entry {k} of the Box of "
            f"group {group.name!r}, expected a finite number above 0. Change the Box, or use PPO "
            f"or A2C with distribution='gaussian'"
        )


def make_distribution(group: Group, kind: str = "auto") -> Distribution:
    """Return the distribution over a group's actions.

    Args:
        group: ``Group`` of a spec.
        kind: ``"categorical"``, ``"gaussian"``, ``"squashed"``, ``"epsilon_greedy"``, or
            ``"auto"`` for categorical with discrete actions and Gaussian otherwise. Discrete heads
            next to a Box are always categorical.

    Raises:
        ParameterError: If the kind does not fit the action space.
    """
    if kind == "epsilon_greedy":
        return EpsilonGreedy(group)
    fitting = ("gaussian", "squashed") if group.continuous else ("categorical",)
    if kind == "auto":
        kind = fitting[0]
    if kind not in fitting:
        raise ParameterError(
            f"group {group.name!r} has actions {group.action_space}: its distribution can be "
            f"{' or '.join(fitting)}, not {kind!r}"
        )
    if kind == "squashed":
        require_range("distribution='squashed'", group)
    if not group.continuous:
        return Categorical(group)
    return (Mixed if group.sizes else Gaussian)(group, kind == "squashed")


def sample_call(*pointers: str) -> np.ndarray:
    """Return a kernel's ``struct Sample``, all zero."""
    ints = ("num_envs", "agents", "first_env", "first_agent", "greedy", "stride", "value_stride")
    members = [(name, "i4") for name in ints]
    members += [(name, "u8") for name in ("seed", "clock", *pointers)]
    return np.zeros((), np.dtype(members, align=True))


class Sampled:
    """Base class of distributions, with the properties of their sampling kernel.

    Attributes:
        file: Name of the kernel's file.
        pointers: Members of its ``struct Sample`` that point to tensors.
        constants: Compile-time constants, as pairs (name, int).
        spaces: Generated source about the actions.
    """

    file: str
    pointers: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    spaces: str

    def follow(self, scheduled: Scheduled) -> None:
        """Use the scheduled values that the kernel reads."""

    def value(
        self, parameters: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the value of each row, (B,).

        Args:
            parameters: First output of the network.
            value: Second output of the network.
            mask: (B, sum of sizes) bool, allowed choices, or None.
        """
        return value

    def unit(self) -> Unit:
        """Return the ``Unit`` of the sampling kernel."""
        return assemble_file(f"train/{self.file}", self.constants, self.spaces)

    def call(self) -> np.ndarray:
        """Return the kernel's ``struct Sample``, all zero."""
        return sample_call(*self.pointers)


class Categorical(Sampled):
    """Independent discrete heads. The parameters are the concatenated logits of all heads."""

    action_dtype = torch.int32
    file = "categorical"
    pointers = ("parameters", "mask", "action", "value", "value_row", "log_prob", "entropy")

    def __init__(self, group: Group) -> None:
        self.sizes, self.heads, self.size = group.sizes, len(group.sizes), group.choices
        self.raw_size, self.spaces = 0, head_sizes(self.sizes)
        largest = max(self.sizes)
        self.constants = (("HEADS", self.heads), ("CHOICES", self.size), ("LARGEST", largest))

    def log_prob_and_entropy(
        self, parameters: torch.Tensor, action: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B,) log-probabilities and (B,) entropies in nats, summed over heads.

        Args:
            parameters: (B, sum of sizes) logits.
            action: (B, H) int.
            mask: (B, sum of sizes) bool, allowed choices, or None. The mask of a head without
                allowed choices is ignored.
        """
        action = action.long()
        if len(set(self.sizes)) == 1:  # all heads in one call
            shape = (-1, self.heads, self.sizes[0])
            logits = parameters.reshape(shape)
            parts = [(logits, action, None if mask is None else mask.reshape(shape))]
        else:
            masks = [None] * self.heads if mask is None else mask.split(self.sizes, dim=1)
            heads = zip(parameters.split(self.sizes, 1), action.split(1, 1), masks, strict=True)
            parts = [(x[:, None], a, None if m is None else m[:, None]) for x, a, m in heads]
        log_prob = entropy = 0.0
        for logits, chosen, allowed in parts:
            if allowed is not None:
                logits = without(logits, allowed)
            log_p = torch.log_softmax(logits, dim=-1)
            log_prob = log_prob + log_p.gather(-1, chosen[..., None])[..., 0].sum(1)
            if allowed is not None:
                log_p = log_p.clamp(min=torch.finfo(log_p.dtype).min)  # 0 * -inf is not 0
            entropy = entropy - (log_p.exp() * log_p).sum(-1).sum(1)
        return log_prob, entropy

    def module(self, network: nn.Module, group: Group, obs_rms: Moments | None) -> PolicyModule:
        """Return a module from raw observations to actions for a network of these parameters."""
        return DiscretePolicy(network, group, obs_rms)


class EpsilonGreedy(Categorical):
    """The action of the largest value, or a random action with probability epsilon.

    The parameters are the action values of one discrete head. ``log_prob`` (N, C) of its sampler is
    the value of the chosen action.

    Args:
        group: ``Group`` with ``Discrete`` actions.

    Attributes:
        epsilon: () float32 tensor on the sampler's device. It must be set before the sampler is
            created.
    """

    file = "epsilon_greedy"
    pointers = ("parameters", "mask", "action", "value", "value_row", "log_prob", "epsilon")
    epsilon: torch.Tensor

    def __init__(self, group: Group) -> None:
        if group.continuous or group.heads > 1:
            raise ParameterError(
                f"PQN needs Discrete actions, but group {group.name!r} has {group.action_space}. "
                f"Use PPO or A2C"
            )
        super().__init__(group)

    def follow(self, scheduled: Scheduled) -> None:
        """Use the scheduled epsilon for exploration."""
        self.epsilon = scheduled.epsilon

    def call(self) -> np.ndarray:
        """Return the kernel's ``struct Sample``, all zero except for epsilon."""
        call = super().call()
        call["epsilon"] = self.epsilon.data_ptr()
        return call

    def value(
        self, parameters: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the largest value of an allowed action, (B,)."""
        return (parameters if mask is None else without(parameters, mask)).amax(1)

    def log_prob_and_entropy(
        self, parameters: torch.Tensor, action: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the values of the actions, (B,), in place of log-probabilities, and zeros."""
        value = parameters.gather(1, action.long())[:, 0]
        return value, torch.zeros_like(value)

    def module(self, network: nn.Module, group: Group, obs_rms: Moments | None) -> PolicyModule:
        """Return a module from raw observations to actions for a network of these parameters."""
        return EpsilonGreedyPolicy(network, group, obs_rms, self.epsilon)


class Gaussian(Sampled):
    """A Gaussian per head. The parameters are the means and the logarithms of standard deviations.

    If it is squashed, tanh maps samples into the bounds.
    """

    action_dtype = torch.float32
    file = "gaussian"
    pointers = ("parameters", "raw", "action", "value", "value_row", "log_prob")

    def __init__(self, group: Group, squashed: bool = False) -> None:
        self.space, self.heads, self.squashed = group.box, group.box.shape[0], squashed
        self.size, self.raw_size = 2 * self.heads, self.heads
        self.constants = (("HEADS", self.heads), ("SQUASHED", self.squashed))
        self.spaces = box_bounds(self.space)

    def log_prob_and_entropy(
        self, parameters: torch.Tensor, raw: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B,) log-densities and (B,) entropies in nats, summed over heads.

        Args:
            parameters: (B, 2 H), means followed by logarithms of standard deviations.
            raw: (B, H) float, actions before squashing.
            mask: None, since a Box has no choices to mask.

        The entropy of a squashed Gaussian has no closed form. It is the entropy of the Gaussian
        plus a one-sample estimate of the contribution of squashing, at ``raw``.
        """
        mean, log_deviation = parameters.split(self.heads, dim=1)
        scaled = (raw - mean) * torch.exp(-log_deviation)
        log_prob = -0.5 * scaled**2 - log_deviation - 0.5 * math.log(2 * math.pi)
        entropy = log_deviation + 0.5 * (1 + math.log(2 * math.pi))
        if self.squashed:
            half_span = torch.as_tensor((self.space.high - self.space.low) / 2, device=raw.device)
            stretch = 2 * (LOG_2 - raw - nn.functional.softplus(-2 * raw)) + half_span.log()
            log_prob, entropy = log_prob - stretch, entropy + stretch
        return log_prob.sum(1), entropy.sum(1)

    def module(self, network: nn.Module, group: Group, obs_rms: Moments | None) -> PolicyModule:
        """Return a module from raw observations to actions for a network of these parameters."""
        return BoxPolicy(network, group, obs_rms, self.squashed)


class Mixed(Sampled):
    """Independent discrete and Gaussian heads.

    The parameters are the logits, the means and the logarithms of standard deviations.
    """

    action_dtype = torch.float32
    file = "mixed"
    pointers = ("parameters", "mask", "raw", "action", "value", "value_row", "log_prob")

    def __init__(self, group: Group, squashed: bool = False) -> None:
        self.choices, self.numbers = Categorical(group), Gaussian(group, squashed)
        self.heads = self.raw_size = group.heads
        self.size = self.choices.size + self.numbers.size
        constants = {"DISCRETE": self.choices.heads}
        constants |= dict(self.choices.constants) | dict(self.numbers.constants)
        self.constants = tuple((constants | {"HEADS": self.heads}).items())
        self.spaces = f"{self.choices.spaces}\n{self.numbers.spaces}"

    def log_prob_and_entropy(
        self, parameters: torch.Tensor, raw: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B,) log-probabilities plus log-densities, and (B,) entropies in nats.

        Both are summed over heads.

        Args:
            parameters: (B, sum of sizes + 2 * numbers), parameters of both parts.
            raw: (B, H) float, choices followed by Box values before squashing.
            mask: (B, sum of sizes) bool, allowed choices, or None.
        """
        logits, others = parameters.tensor_split([self.choices.size], dim=1)
        chosen, numbers = raw.tensor_split([self.choices.heads], dim=1)
        log_prob, entropy = self.choices.log_prob_and_entropy(logits, chosen, mask)
        density, spread = self.numbers.log_prob_and_entropy(others, numbers)
        return log_prob + density, entropy + spread

    def module(self, network: nn.Module, group: Group, obs_rms: Moments | None) -> PolicyModule:
        """Return a module from raw observations to actions for a network of these parameters."""
        return MixedPolicy(network, group, obs_rms, self.numbers.squashed)


Distribution: TypeAlias = Categorical | Gaussian | Mixed


def first_agent(batch: Batch, group: Group) -> int:
    """Return the index of a group's first agent among all agents. It keys random numbers."""
    names = [g.name for g in batch.groups]
    return sum(g.count for g in batch.groups[: names.index(group.name)])


class Sampler:
    """Samples the actions of one group from a distribution's parameters, with one launch.

    Args:
        distribution: ``Distribution``.
        batch: ``Batch`` whose clocks and seed key the random numbers.
        group: The ``Group``.
        envs: Range of environments to sample for, whose number is N. Defaults to all.
    """

    def __init__(
        self,
        distribution: Distribution,
        batch: Batch,
        group: Group,
        envs: range | None = None,
    ) -> None:
        self.distribution, self.batch, self.group = distribution, batch, group
        self.envs = range(batch.num_envs) if envs is None else envs
        self.call = distribution.call()
        self.call["num_envs"], self.call["agents"] = len(self.envs), group.count
        self.call["first_env"] = batch.first_env + self.envs.start
        self.call["first_agent"] = first_agent(batch, group)
        self.call["seed"] = batch.executor.pointer(batch.seed)
        self.call["clock"] = batch.executor.pointer(batch.clock[self.envs.start :])

    def __call__(
        self,
        parameters: torch.Tensor,
        *filled: Any,
        value: torch.Tensor | None = None,
        value_row: torch.Tensor | None = None,
        **named: Any,
    ) -> None:
        """Queue the launch that writes ``action`` (N, C, H) and the other given tensors.

        Args:
            parameters: (N * C, distribution.size) float32 tensor with contiguous rows. It must
                exist until the launch is done.
            *filled: Positional arguments of ``describe``, which fills the launch.
            value: (N * C,) float32 tensor of any stride, copied to ``value_row`` in the same
                launch, or None.
            value_row: (N, C) float32 tensor.
            **named: Keyword arguments of ``describe``.
        """
        if parameters.dtype != torch.float32 or parameters.stride(1) != 1:
            raise ParameterError(
                f"the policy of {self.group.name!r} returned {parameters.dtype} parameters with "
                f"strides {parameters.stride()}, expected float32 with contiguous rows"
            )
        call = self.describe(*filled, **named)
        call["parameters"], call["stride"] = parameters.data_ptr(), parameters.stride(0)
        if value is not None and value_row is not None:
            call["value"], call["value_row"] = value.data_ptr(), value_row.data_ptr()
            call["value_stride"] = value.stride(0)
        rows = len(self.envs) * self.group.count
        self.program.launch("sample_actions", call, rows, rows * self.distribution.size)

    @cached_property
    def program(self) -> Program:
        """Compiled sampling kernel. Learners that sample in their forward kernel do not need it."""
        return self.batch.executor.build(self.distribution.unit())

    def describe(
        self,
        action: torch.Tensor,
        log_prob: torch.Tensor | None = None,
        raw: torch.Tensor | None = None,
        entropy: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        greedy: bool = False,
    ) -> np.ndarray:
        """Return ``struct Sample`` for the given outputs, without parameters and values.

        Args:
            action: Contiguous tensor of the group's action dtype.
            log_prob: (N, C) float32 tensor or None.
            raw: (N, C, H) float32 tensor for actions before squashing, if there is a Box.
            entropy: (N, C) float32 tensor or None. Only for a categorical distribution.
            mask: (N, C, sum of sizes) bool tensor of allowed choices, or None.
            greedy: Take the most likely action instead of a random one.
        """
        call = self.call.copy()
        call["action"], call["greedy"] = action.data_ptr(), greedy
        filled = {"log_prob": log_prob, "raw": raw, "entropy": entropy, "mask": mask}
        for name, tensor in filled.items():
            if name in (call.dtype.names or ()):
                call[name] = 0 if tensor is None else tensor.data_ptr()
        return call
