"""The network of a policy: the default one, or one of the user's own, which is tried on a first batch before it learns."""

import copy
import inspect

import torch
from torch import nn

from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_torch
from cupydrive.inputs.arguments import shown
from cupydrive.playing.policy import ActorCritic, with_memory
from cupydrive.training.algorithms.settings import require_network_memory
from cupydrive.training.torch_settings import own_random_numbers

NEEDED = "a torch.nn.Module, its class, or a function (obs_dim, size) -> module"
# What code of a network raises where it and its input do not fit each other.
MISFITS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)


def check_policy_setting(where, policy):
    """Raise ``ParameterError`` if ``policy`` is neither None nor something that gives a module."""
    if policy is not None and not callable(policy):
        raise ParameterError(f"{where} = {shown(policy)}; it must be {NEEDED}, or None for the default network")


def make_network(config, group, size, rollout, initial=True):
    """Return the network of one policy, on the rollout's device.

    A module given as such is copied: what the user holds stays as it is, and equal settings give equal runs.

    Args:
        config: Settings with ``policy``, ``hidden``, ``activation`` and ``shared_layers``.
        group: ``Group`` that it plays.
        size: Number of the distribution's parameters.
        rollout: ``Rollout``.
        initial: False: the weights of the default network are left to whoever fills them.

    Raises:
        ParameterError: If a network of the user's own does not return what learning needs.
    """
    given = config.policy
    if given is None:
        require_default_memory(config, group, size, rollout.batch, rollout.batch.num_envs * group.count)
        network = ActorCritic(group.obs_dim, size, config.hidden, config.activation, config.shared_layers, initial)
        return network.to(rollout.device)
    where = f"the policy of {group.name!r}, {named(given)},"
    if isinstance(given, nn.Module):
        try:
            network = copy.deepcopy(given)
        except MISFITS as error:
            raise ParameterError(
                f"{where} cannot be copied ({first_line(error)}); pass its class or a function (obs_dim, size) -> module"
            ) from error
    else:
        network = built(where, given, group.obs_dim, size)
    network = network.to(rollout.device)
    try_out(where, network, group, size, rollout)
    return network


def require_default_memory(config, group, size, batch, rows):
    """Raise ``MemoryLimitError`` if the default network does not fit into memory with ``rows`` rows at once."""
    inner = (group.obs_dim, *config.hidden)
    widths = [(*inner, size + 1)] if config.shared_layers else [(*inner, size), (*inner, 1)]
    require_network_memory(f"{type(config).__name__}.hidden = {config.hidden}", batch, rows, widths)


def named(policy):
    """Return what to call a module, class or function in a sentence."""
    return getattr(policy, "__name__", type(policy).__name__)


def first_line(error):
    """Return what an exception says, in one line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def built(where, make, obs_dim, size):
    """Return the module that a class or function makes.

    Raises:
        ParameterError: If it does not take two numbers, or returns no module.
    """
    try:
        inspect.signature(make).bind(obs_dim, size)
    except TypeError as error:
        raise ParameterError(
            f"{where} does not take (obs_dim={obs_dim}, size={size}): {error}. The policy must be {NEEDED}"
        ) from None
    except ValueError:  # built in, without a signature to look at: the call tells
        pass
    network = make(obs_dim, size)
    if not isinstance(network, nn.Module):
        raise ParameterError(f"{where} returned {shown(network)}; it must return a torch.nn.Module")
    return network


def try_out(where, network, group, size, rollout):
    """Call ``network`` on first observations and check what it returns; weights, buffers and random numbers stay as they were.

    Raises:
        ParameterError: If it fails, or returns something else than finite float32 of (B, size) and (B,) with gradients.
    """
    taught = {name: p for name, p in network.named_parameters() if p.requires_grad}
    if not taught:
        raise ParameterError(f"{where} has no parameters that learn: none has requires_grad=True")
    kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    rows = next(n for n in range(3, 6) if n not in (group.obs_dim, size))  # so that swapped axes show
    obs = as_torch(rollout.batch.current_obs[group.name]).view(-1, group.obs_dim)[:1].repeat(rows, 1).float()
    size_of_memory = with_memory(network).memory_size
    with own_random_numbers(), torch.enable_grad():
        try:
            returned = (
                network(obs) if size_of_memory == 0 else network(obs, obs.new_zeros(rows, size_of_memory), None)[:2]
            )
        except torch.OutOfMemoryError:
            raise
        except MISFITS as error:
            raise ParameterError(
                f"{where} failed on observations of shape {tuple(obs.shape)} and dtype float32: {first_line(error)}. "
                f"It is called with (B, {group.obs_dim})"
            ) from error
    check_returned(where, returned, rows, group, size)
    parameters, value = returned
    if not parameters.requires_grad:
        raise ParameterError(
            f"{where} returned {what(group)} without gradients; compute them from its parameters, without detach or no_grad"
        )
    loss = parameters.square().sum() + value.square().sum()
    found = torch.autograd.grad(loss, list(taught.values()), allow_unused=True)
    unused = [name for name, gradient in zip(taught, found, strict=True) if gradient is None]
    if unused:
        raise ParameterError(
            f"{where} has parameters that no gradient reaches: {', '.join(unused[:4])}{', ...' * (len(unused) > 4)}; use them "
            "in forward, or set requires_grad_(False)"
        )
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            tensor.copy_(kept[name])


def what(group):
    """Return in words what the distribution of a group's actions needs of a policy."""
    if group.continuous:
        return f"means and logarithms of deviations of {group.heads} actions, (B, {2 * group.heads})"
    return f"logits of {group.choices} choices, (B, {group.choices})"


def check_returned(where, returned, rows, group, size):
    """Raise ``ParameterError`` unless ``returned`` is a pair of finite float32 tensors (rows, size) and (rows,)."""
    pair = isinstance(returned, tuple | list) and len(returned) == 2
    if not pair or not all(isinstance(x, torch.Tensor) for x in returned):
        found = f"{len(returned)} values" if isinstance(returned, tuple | list) else f"a {type(returned).__name__}"
        raise ParameterError(
            f"{where} returned {found}; it must return two tensors: {what(group)}, and the value of each row, (B,)"
        )
    for tensor, needed, meaning in zip(returned, ((rows, size), (rows,)), (what(group), "values, (B,)"), strict=True):
        if tuple(tensor.shape) != needed:
            hint = "; squeeze the last axis: value[:, 0]" if tuple(tensor.shape) == (*needed, 1) else ""
            raise ParameterError(
                f"{where} returned shape {tuple(tensor.shape)} for {rows} observations; it must be {needed}: {meaning}{hint}"
            )
        if tensor.dtype != torch.float32:
            raise ParameterError(f"{where} returned {tensor.dtype} for {meaning}; it must be torch.float32")
        if not bool(torch.isfinite(tensor).all()):
            raise ParameterError(
                f"{where} returned numbers that are not finite for {meaning} of the first observations"
            )
