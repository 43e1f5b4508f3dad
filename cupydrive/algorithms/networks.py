"""Creation of a policy's network: the default one, or a validated custom module."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from cupydrive.algorithms.architecture import Network
from cupydrive.algorithms.rows import check_rows
from cupydrive.algorithms.settings import (
    NEEDED,
    RolloutSettings,
    linear_layers,
    require_network_memory,
)
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_torch
from cupydrive.executors.modes import default_device, ordinary_modes
from cupydrive.inputs.arguments import kind_of, shown
from cupydrive.playing.policy import ActorCritic, OneHot, RecurrentActorCritic, with_state
from cupydrive.playing.torch_settings import drawing_from, own_random_numbers
from cupydrive.simulation.observations import network_input

if TYPE_CHECKING:
    from cupydrive.playing.rollout import Rollout
    from cupydrive.simulation.batch import Batch
    from cupydrive.spec import Group

# Exceptions that a network raises if it does not fit its input.
MISFITS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)
TRIED = 64  # rows whose outputs are compared with those of the same rows in other batches
Seen = Mapping[str, torch.Tensor]  # has ``obs``, and ``critic_obs`` for a centralized critic
ROW_TOLERANCE = 1e-4  # allowed difference of outputs, absolute below 1 and relative above
SPREAD = 0.05  # largest random number that is added to a weight
NO_RANDOM = (
    "Draw no random numbers in forward, as dropout does, since learning must reproduce the "
    "probability of the chosen action"
)
APART = (
    "Compute each row independently, since PPO and A2C learn from rows in random order. Views and "
    "statistics across rows, such as BatchNorm, do not work. LayerNorm works"
)


def make_network(
    config: RolloutSettings, group: Group, size: int, rollout: Rollout, initial: bool = True
) -> nn.Module:
    """Create the network of one policy on the rollout's device.

    A custom module is copied, so that the caller's is unchanged and equal settings give equal runs.

    Args:
        config: Settings with ``policy``, ``hidden``, ``activation`` and ``shared_layers``.
        group: ``Group`` of the policy.
        size: Number of the distribution's parameters.
        rollout: ``Rollout``.
        initial: Initialize the default network. If False, the caller must fill its weights.

    Raises:
        ParameterError: If a custom network does not return the required tensors.
    """
    given = config.policy
    if given is None:
        require_default_memory(config, group, size, rollout.batch)
        network = config.network_for(group)
        about = network.input_shape(group), size, initial, rollout.generator
        policy = described(network, *about, config.central * group.critic_obs_dim)
        if network.one_hot:
            policy.entries = OneHot(group)
        return policy.to(rollout.device)
    where = f"the policy of {group.name!r}, {getattr(given, '__name__', type(given).__name__)},"
    with drawing_from(rollout.generator), default_device("cpu"):
        network = made_by(where, given, group.obs_dim, size)
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            kind = "lazy" if is_lazy(tensor) else "on the meta device"
            raise ParameterError(
                f"{where}: parameter {name} is uninitialized ({kind}). Initialize it first, a lazy "
                f"module by one forward pass"
            )
    network = network.to(rollout.device)
    try_out(where, network, group, size, rollout, config)
    return network


def described(
    network: Network,
    obs_shape: tuple[int, ...],
    size: int,
    initial: bool = True,
    generator: torch.Generator | None = None,
    critic_dim: int = 0,
) -> ActorCritic | RecurrentActorCritic:
    """Create the module of a described network, on the CPU.

    Args:
        network: ``Network``.
        obs_shape: Shape of one observation at the first layer.
        size: Number of the distribution's parameters.
        initial: Initialize the weights. If False, the caller may have to fill them.
        generator: ``torch.Generator`` of the weights. Defaults to torch's own.
        critic_dim: Observation entries of a centralized critic, or 0.
    """
    if network.core is not None:
        return RecurrentActorCritic(obs_shape, size, network, generator, critic_dim)
    return ActorCritic(obs_shape, size, network, initial, generator, critic_dim)


def require_default_memory(
    config: RolloutSettings,
    group: Group,
    size: int,
    batch: Batch,
    rows: int = 0,
    num_envs: int | None = None,
) -> None:
    """Raise ``MemoryLimitError`` if the described network does not fit into memory.

    Args:
        config: Settings with the network.
        group: ``Group`` of the policy.
        size: Number of the distribution's parameters.
        batch: ``Batch`` on the device whose free memory is compared.
        rows: Rows of one forward pass.
        num_envs: Number of environments if ``rows`` is proportional to it, otherwise None.
    """
    network = config.network_for(group)
    layers = []
    inputs = network.tower_inputs(network.input_shape(group), config.central * group.critic_obs_dim)
    for (tower, shape), outputs in zip(inputs, network.outputs(size), strict=True):
        inner: tuple[int, ...] = (tower.inputs(shape), *tower.hidden)
        if tower.core is not None:  # gates of each unit, and its output
            gates = [4 * tower.core.size, tower.core.size]
            inner = (*inner, *gates * getattr(tower.core, "layers", 1))
        images = tower.convolutions(shape)
        layers += [(each.inputs, each.channels, each.positions) for each in images]
        layers += linear_layers((*inner, outputs))
    where = f"{type(config).__name__}: the network {network}"
    require_network_memory(where, batch, rows, layers, num_envs)


def made_by(
    where: str, given: nn.Module | Callable[[int, int], nn.Module], obs_dim: int, size: int
) -> nn.Module:
    """Return a copy of a module, or the module that a class or function returns."""
    try:
        network = copy.deepcopy(given) if isinstance(given, nn.Module) else given(obs_dim, size)
    except MISFITS as error:
        raise ParameterError(f"{where} failed ({error_line(error)}), expected {NEEDED}") from error
    if not isinstance(network, nn.Module):
        raise ParameterError(f"{where} returned {shown(network)}, expected a torch.nn.Module")
    return network


def error_line(error: Exception) -> str:
    """Format an exception's type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def try_out(
    where: str,
    network: nn.Module,
    group: Group,
    size: int,
    rollout: Rollout,
    config: RolloutSettings,
) -> None:
    """Call a custom network on initial observations and validate its outputs.

    Weights, buffers and random number generators are restored afterwards.

    Raises:
        ParameterError: If it fails, does not return finite float32 tensors (B, size) and (B,) with
            gradients, or if a row's outputs depend on other rows or on random numbers.
    """
    taught = {name: p for name, p in network.named_parameters() if p.requires_grad}
    if not taught:
        raise ParameterError(f"{where} has no parameters that learn: none has requires_grad=True")
    trial = Trial(where, network)
    agents = getattr(network, "agents_per_row", 0)
    inside = (agents,) if agents else ()  # leading axes of a row
    # a number of rows unlike all other sizes, which reveals swapped axes
    rows = next(n for n in range(3, 9) if n not in (*inside, *group.obs_shape, size))
    now = as_torch(rollout.batch.current_obs[group.name])
    seen = {"obs": network_input(group, now.flatten(0, 1))}
    if config.central:
        of_critic = as_torch(rollout.batch.observe().critic_obs[group.name])
        seen["critic_obs"] = of_critic.flatten(0, 1)
    if agents:
        check_rows(config, [group], rollout.batch.num_envs, network)
        seen = {name: x.unflatten(0, (-1, agents)) for name, x in seen.items()}
    state_size = with_state(network).state_size
    modes = ordinary_modes(rollout.device.type, tf32=False)
    # without cuDNN, which may use TF32
    with own_random_numbers(), modes, torch.backends.cudnn.flags(enabled=False):
        first = {name: x[:1].expand(rows, *x.shape[1:]).clone() for name, x in seen.items()}
        state = (first["obs"].new_zeros(rows, *inside, state_size), None) if state_size else ()
        if config.central:
            trial.ask({"obs": first["obs"]}, *state)  # as evaluation does
        returned = trial.ask(first, *state)
        check_returned(where, returned, (rows, *inside), group, size, state_size)
        parameters, value = returned[:2]
        if config.distribution == "epsilon_greedy" and not torch.equal(value, parameters.amax(-1)):
            raise ParameterError(
                f"{where} returned a value that is not the largest of the {size} action values. "
                f"Return (q, q.amax(1))"
            )
        if not parameters.requires_grad:
            raise ParameterError(
                f"{where} returned {what(group)} without gradients. Compute them from its "
                f"parameters, without detach or no_grad"
            )
        loss = parameters.square().sum() + value.square().sum()
        found = torch.autograd.grad(loss, list(taught.values()), allow_unused=True)
        unused = [name for name, gradient in zip(taught, found, strict=True) if gradient is None]
        if unused:
            raise ParameterError(
                f"{where} has parameters that no gradient reaches: "
                f"{', '.join(unused[:4])}{', ...' * (len(unused) > 4)}. Use them in forward, or "
                f"set requires_grad_(False)"
            )
        some = torch.arange(TRIED, device=rollout.device) % len(seen["obs"])
        trial.compare({name: x[some] for name, x in seen.items()}, (*inside, state_size))


class Trial:
    """Test whether a custom network computes each row independently.

    Weights and buffers are restored afterwards.

    Args:
        where: Description of the network for messages.
        network: The custom module.
    """

    def __init__(self, where: str, network: nn.Module) -> None:
        self.where, self.network = where, network
        self.tensors = [*network.parameters(), *network.buffers()]
        self.kept = [tensor.detach().clone() for tensor in self.tensors]

    def put_back(self, spread: float = 0.0) -> None:
        """Restore weights and buffers.

        Args:
            spread: Limit of random numbers that are added to weights that learn.
        """
        with torch.no_grad():
            for tensor, kept in zip(self.tensors, self.kept, strict=True):
                tensor.copy_(kept)
                if spread and tensor.requires_grad:
                    tensor.add_(drawn(tensor.shape, tensor.device).sub_(0.5), alpha=2 * spread)

    def ask(self, seen: Seen, *state: torch.Tensor | None) -> Any:
        """Call the network. Raise ``ParameterError`` if it fails."""
        obs = seen["obs"]
        central = {name: rows for name, rows in seen.items() if name != "obs"}
        try:
            return self.network(obs, *state, **central)
        except torch.OutOfMemoryError:
            raise
        except MISFITS as error:
            raise ParameterError(
                f"{self.where} failed on observations of shape {tuple(obs.shape)} and dtype "
                f"float32: {error_line(error)}. It is called with "
                f"(B, {', '.join(map(str, obs.shape[1:]))}), "
                + "".join(f"{name} = (B, {x.shape[-1]}), " for name, x in central.items())
                + "any number of rows B, and must compute each row by itself"
            ) from error

    def compare(self, seen: Seen, state: tuple[int, ...]) -> None:
        """Raise ``ParameterError`` if outputs of a row depend on the other rows.

        Args:
            seen: Input rows by argument name, ``TRIED`` of each, which may be equal: ``obs``, and
                with a centralized critic ``critic_obs``.
            state: Shape of a row's hidden state: (M,), or (C, M) if a row is an environment of C
                agents. If M > 0, sequences of 4 steps are also compared.
        """
        # makes rows distinct, and does not change entries that are rounded to an index
        rows = {name: x + 0.4 * drawn(x.shape, x.device) for name, x in seen.items()}
        device = rows["obs"].device
        ways = ((1, 4), (False, True), (False, True)) if state[-1] else ((1,), (False,), (False,))
        # Weights that are initially 0 would hide a dependence between rows.
        for spread, steps, remembers, starts in product((0.0, SPREAD), *ways):
            memory = remembers * drawn((TRIED // steps, *state), device)
            start = drawn((steps, len(memory)), device) < 0.5 if starts else None
            by_agent = {name: x.unflatten(0, (steps, -1)) for name, x in rows.items()}
            self.compare_agents(by_agent, memory, start, spread)
        self.put_back()

    def compare_agents(
        self, rows: Seen, memory: torch.Tensor, start: torch.Tensor | None, spread: float
    ) -> None:
        """Compare outputs for sequences of observations.

        Args:
            rows: (L, b, *obs_shape) observations.
            memory: (b, M) hidden states.
            start: (L, b) bool, beginnings of episodes, or None.
            spread: Limit of random numbers that are added to weights.
        """
        steps, device = len(rows["obs"]), memory.device

        def outputs(*asked: torch.Tensor) -> list[torch.Tensor]:  # of the last call
            self.put_back(spread)
            for which in asked:
                state = (
                    (memory[which], None if start is None else start[:, which].flatten())
                    if memory.numel()
                    else ()
                )
                chosen = {name: x[:, which].flatten(0, 1) for name, x in rows.items()}
                found = enumerate(self.ask(chosen, *state))
            return [x.detach().reshape(steps if k < 2 else 1, len(which), -1) for k, x in found]

        every = torch.arange(len(memory), device=device)
        whole, shuffled = outputs(every), every[drawn(every.shape, device).argsort()]
        parts = [every[: len(every) * k // TRIED] for k in (60, 37, 63, 56)]
        fewer = {
            f"among {len(which)} rows": (which,) for which in (*parts, every[-1:], every.repeat(4))
        }
        cases = {
            "when it is called again": (every,),
            "in another order of rows": (shuffled,),
            **fewer,
        }
        for when, asked in (cases | {"after other rows": (every[-2:], every)}).items():
            which, wanted = asked[-1], outputs(every, every) if len(asked) > 1 else whole
            for one, other in zip(outputs(*asked), wanted, strict=True):
                apart = float((one - other[:, which]).nan_to_num().abs().max())
                if apart > (
                    limit := ROW_TOLERANCE * max(1.0, float(other.nan_to_num().abs().max()))
                ):
                    raise ParameterError(
                        f"{self.where} returns other outputs for the same row {when}: got a "
                        f"difference of {apart:.2g}, expected at most {limit:.2g}. "
                        f"{NO_RANDOM if asked[0] is every else APART}"
                    )


def drawn(shape: tuple, device: torch.device) -> torch.Tensor:
    """Return uniform random numbers in [0, 1) that depend only on the shape."""
    noise = torch.Generator().manual_seed(0)
    return torch.rand(shape, generator=noise, dtype=torch.float32, device="cpu").to(device)


def what(group: Group) -> str:
    """Describe the distribution parameters that a policy of a group must return."""
    numbers = group.box.shape[0]
    parts = [f"logits of {group.choices} choices"] if group.sizes else []
    parts += [f"means and logarithms of deviations of {numbers} actions"] if numbers else []
    return f"{', then '.join(parts)}, (B, {group.choices + 2 * numbers})"


def check_returned(
    where: str, returned: Any, rows: tuple[int, ...], group: Group, size: int, state_size: int
) -> None:
    """Raise ``ParameterError`` unless a custom network has returned the required tensors.

    They are finite float32 of shapes (*rows, size), rows and, for M > 0, (*rows, M).
    """
    needs = [((*rows, size), what(group)), (rows, "the value of each row, (B,)")]
    needs += [((*rows, state_size), f"the next hidden state, (b, {state_size})")] * (state_size > 0)
    if not isinstance(returned, tuple | list) or [
        isinstance(x, torch.Tensor) for x in returned
    ] != [True] * len(needs):
        meanings = ", then ".join(meaning for _, meaning in needs)
        raise ParameterError(
            f"{where} returned {kind_of(returned)}, expected {len(needs)} tensors: {meanings}"
        )
    for tensor, (shape, meaning) in zip(returned, needs, strict=True):
        if tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
            raise ParameterError(
                f"{where} returned shape {tuple(tensor.shape)} and {tensor.dtype} for "
                f"{rows[0]} observations, expected {shape} and torch.float32: {meaning}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise ParameterError(
                f"{where} returned non-finite numbers for {meaning} of the first observations"
            )
