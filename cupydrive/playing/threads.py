"""Number of threads on which torch computes on a CPU: one where networks are small, so that threads do not wait."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from cupydrive.errors import ParameterError
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group

# Multiplications of one forward pass that are worth a thread. With fewer, threads wait for each other longer than they
# compute where other programs use the same cores: measured there with 1 and 2 threads on two cores, PPO on CartPole takes 60
# and 5.4 thousand env-steps a second with 2^26 multiplications a minibatch, 33 and 7.8 with 2^28, 18 and 5.5 with 2^30, 6.7
# and 2.5 with 2^32. From 2^31 on a machine of its own is taken for granted.
PRODUCTS_PER_THREAD = 2**30
_found: dict[
    int, int
] = {}  # by Python thread that changes the number: what it was; threads that begin meanwhile take the changed one over


def threads_for(products: int, available: int) -> int:
    """Return on how many of ``available`` threads to compute a forward pass of ``products`` multiplications."""
    return max(1, min(available, products // PRODUCTS_PER_THREAD))


@contextmanager
def threads_worth(products: int) -> Iterator[None]:
    """Have torch compute on as many of its threads as ``products`` multiplications are worth."""
    here, before = threading.get_ident(), torch.get_num_threads()
    outermost = here not in _found
    if outermost:
        before = _found[here] = max(before, *_found.values(), 1)
    torch.set_num_threads(threads_for(products, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if outermost:
            del _found[here]


def acting_threads(rollout: Rollout) -> AbstractContextManager:
    """Return such a context for what the players of a ``Rollout`` compute in a step. On a GPU it does nothing."""
    if rollout.device.type != "cpu":
        return nullcontext()
    batch = rollout.batch
    return threads_worth(max(batch.num_envs * g.count * acting_weights(rollout, g) for g in batch.groups))


def acting_weights(rollout: Rollout, group: Group) -> int:
    """Return the number of weights of the network that plays ``group``, or 0 if none does."""
    try:
        module = rollout.player_of[group.name].module(rollout, group)
    except (AttributeError, ParameterError):  # a caller's own without one; no function of observations
        return 0
    return weights(module) if isinstance(module, torch.nn.Module) else 0


def weights(network: torch.nn.Module) -> int:
    """Return the number of a network's weights."""
    return sum(p.numel() for p in network.parameters())
