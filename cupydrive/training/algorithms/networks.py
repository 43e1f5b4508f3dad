"""The network of a policy: the default one, or one of the user's own, which is tried on a first batch before it learns."""

import copy
import inspect
from itertools import product

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_torch
from cupydrive.executors.modes import default_device, ordinary_modes
from cupydrive.inputs.arguments import shown
from cupydrive.playing.policy import ActorCritic, with_memory
from cupydrive.training.algorithms.settings import require_network_memory
from cupydrive.training.torch_settings import drawing_from, own_random_numbers

NEEDED = "a torch.nn.Module, its class, or a function (obs_dim, size) -> module"
# What code of a network raises where it and its input do not fit each other.
MISFITS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)
TRIED = 64  # rows of which outputs are compared, one with those of the same row in other batches
TOLERANCE = 1e-4  # of outputs; relative where they exceed 1
SPREAD = 0.05  # of what is added to weights
RANDOM = "Draw no random numbers in forward: an action is learnt with the probability that it was drawn with"
APART = (
    "Compute each row by itself, since PPO and A2C learn from rows in random order: no view or statistic across rows, such as "
    "BatchNorm; LayerNorm works"
)


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
        about = group.obs_dim, size, config.hidden, config.activation, config.shared_layers, initial
        network = ActorCritic(*about, rollout.generator)
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
        with drawing_from(rollout.generator), default_device("cpu"):
            network = built(where, given, group.obs_dim, size)
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            raise ParameterError(
                f"{where} has no numbers yet: got {name}, {'lazy' if is_lazy(tensor) else 'on the meta device'}, expected "
                "weights. Give layers their sizes: nn.Linear(obs_dim, ...) in place of nn.LazyLinear, on a device with memory"
            )
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
        ParameterError: If it fails, returns something else than finite float32 of (B, size) and (B,) with gradients, or
            a row's outputs depend on other rows or on random numbers.
    """
    taught = {name: p for name, p in network.named_parameters() if p.requires_grad}
    if not taught:
        raise ParameterError(f"{where} has no parameters that learn: none has requires_grad=True")
    if dropouts := [name for name, layer in network.named_modules() if isinstance(layer, _DropoutNd) and layer.p]:
        raise ParameterError(
            f"{where} has dropout: got p = {network.get_submodule(dropouts[0]).p} in {dropouts[0] or 'itself'}, expected 0. "
            "An action would be learnt with another probability than it was drawn with: remove dropout"
        )
    trial = Trial(where, network)
    rows = next(n for n in range(3, 6) if n not in (group.obs_dim, size))  # so that swapped axes show
    seen = as_torch(rollout.batch.current_obs[group.name]).view(-1, group.obs_dim).float()
    memory_size = with_memory(network).memory_size
    modes = ordinary_modes(rollout.device.type, tf32=False)
    with own_random_numbers(), modes, torch.backends.cudnn.flags(enabled=False):  # cuDNN might use TF32
        obs = seen[:1].repeat(rows, 1)
        returned = trial.ask(obs, *((obs.new_zeros(rows, memory_size), None) if memory_size else ()))
        check_returned(where, returned, rows, group, size, memory_size)
        parameters, value = returned[:2]
        if not parameters.requires_grad:
            raise ParameterError(
                f"{where} returned {what(group)} without gradients; compute them from its parameters, without detach or no_grad"
            )
        loss = parameters.square().sum() + value.square().sum()
        found = torch.autograd.grad(loss, list(taught.values()), allow_unused=True)
        unused = [name for name, gradient in zip(taught, found, strict=True) if gradient is None]
        if unused:
            raise ParameterError(
                f"{where} has parameters that no gradient reaches: {', '.join(unused[:4])}{', ...' * (len(unused) > 4)}; use "
                "them in forward, or set requires_grad_(False)"
            )
        trial.compare(seen[torch.arange(TRIED, device=seen.device) % len(seen)], memory_size)


class Trial:
    """Calls of a network that find out whether it computes each row by itself; they leave weights and buffers as they were.

    Args:
        where: What messages call it.
        network: Module of the user's own.
    """

    def __init__(self, where: str, network: nn.Module):
        self.where, self.network = where, network
        self.tensors = [*network.parameters(), *network.buffers()]
        self.kept = [tensor.detach().clone() for tensor in self.tensors]

    def put_back(self, spread: float = 0.0) -> None:
        """Write weights and buffers back, with random numbers up to ``spread`` added to weights that learn."""
        with torch.no_grad():
            for tensor, kept in zip(self.tensors, self.kept, strict=True):
                tensor.copy_(kept)
                if spread and tensor.requires_grad:
                    tensor.add_(drawn(tensor.shape, tensor.device).sub_(0.5), alpha=2 * spread)

    def ask(self, *given):
        """Return what the network returns; raise ``ParameterError`` if it fails."""
        try:
            return self.network(*given)
        except torch.OutOfMemoryError:
            raise
        except MISFITS as error:
            raise ParameterError(
                f"{self.where} failed on observations of shape {tuple(given[0].shape)} and dtype float32: {first_line(error)}. "
                f"It is called with (B, {given[0].shape[1]}), any number of rows B, and computes each row by itself"
            ) from error

    def compare(self, rows: torch.Tensor, memory_size: int) -> None:
        """Raise ``ParameterError`` unless outputs of a row are the same whatever other rows it is among.

        Args:
            rows: (TRIED, D) observations, which need not be distinct.
            memory_size: M of a policy with hidden state, of which sequences of 4 steps are compared, too; otherwise 0.
        """
        rows = rows + 0.4 * drawn(rows.shape, rows.device)  # distinct, and entries that stand for an index keep it
        ways = ((1, 4), (False, True), (False, True)) if memory_size else ((1,), (False,), (False,))
        # Weights that are 0 at first would hide what they are going to mix.
        for spread, steps, remembers, starts in product((0.0, SPREAD), *ways):
            memory = remembers * drawn((TRIED // steps, memory_size), rows.device)
            start = drawn((steps, len(memory)), rows.device) < 0.5 if starts else None
            self.compare_agents(rows.view(steps, len(memory), -1), memory, start, spread)
        self.put_back()

    def compare_agents(
        self, rows: torch.Tensor, memory: torch.Tensor, start: torch.Tensor | None, spread: float
    ) -> None:
        """Do so for agents with (L, b, D) observations, hidden states (b, M), and (L, b) bools or None."""

        def outputs(*asked):  # of the last rows
            self.put_back(spread)
            for which in asked:
                state = (memory[which], None if start is None else start[:, which].flatten()) if memory.numel() else ()
                found = enumerate(self.ask(rows[:, which].flatten(0, 1), *state))
            return [x.detach().reshape(len(rows) if k < 2 else 1, len(which), -1) for k, x in found]

        every = torch.arange(len(memory), device=rows.device)
        whole, shuffled = outputs(every), every[drawn(every.shape, rows.device).argsort()]
        fewer = [every[: len(every) * k // TRIED] for k in (60, 37, 63, 56)]
        fewer = {f"among {len(which)} rows": (which,) for which in (*fewer, every[-1:], every.repeat(4))}
        cases = {"when it is called again": (every,), "in another order of rows": (shuffled,), **fewer}
        for when, asked in (cases | {"after other rows": (every[-2:], every)}).items():
            which, wanted = asked[-1], outputs(every, every) if len(asked) > 1 else whole
            for one, other in zip(outputs(*asked), wanted, strict=True):
                apart = float((one - other[:, which]).nan_to_num().abs().max())
                if apart > (limit := TOLERANCE * max(1.0, float(other.nan_to_num().abs().max()))):
                    raise ParameterError(
                        f"{self.where} returns something else for the same row {when}: got a difference of {apart:.2g}, "
                        f"expected at most {limit:.2g}. {RANDOM if asked[0] is every else APART}"
                    )


def drawn(shape: tuple, device: torch.device) -> torch.Tensor:
    """Return uniform numbers in [0, 1), which depend on the shape only."""
    noise = torch.Generator().manual_seed(0)
    return torch.rand(shape, generator=noise, dtype=torch.float32, device="cpu").to(device)


def what(group):
    """Return in words what the distribution of a group's actions needs of a policy."""
    if group.continuous:
        return f"means and logarithms of deviations of {group.heads} actions, (B, {2 * group.heads})"
    return f"logits of {group.choices} choices, (B, {group.choices})"


def check_returned(where, returned, rows, group, size, memory_size):
    """Raise ``ParameterError`` unless ``returned`` is finite float32 tensors (rows, size), (rows,) and (rows, M) if M > 0."""
    needs = [((rows, size), what(group)), ((rows,), "the value of each row, (B,)")]
    needs += [((rows, memory_size), f"the next hidden state, (b, {memory_size})")] * (memory_size > 0)
    kinds = [type(x).__name__ for x in returned] if isinstance(returned, tuple | list) else []
    if len(kinds) != len(needs) or not all(isinstance(x, torch.Tensor) for x in returned):
        found = f"{len(kinds)} values ({', '.join(kinds)})" if kinds else f"a {type(returned).__name__}"
        raise ParameterError(
            f"{where} returned {found}; it must return {'three' if memory_size else 'two'} tensors: "
            f"{'; '.join(meaning for _, meaning in needs)}"
        )
    for tensor, (needed, meaning) in zip(returned, needs, strict=True):
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
