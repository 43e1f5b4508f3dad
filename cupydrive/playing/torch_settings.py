"""How torch computes for us: threads on a CPU, random numbers, and what it raises when memory is
short.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from cupydrive.errors import MemoryLimitError, ParameterError
from cupydrive.executors.modes import EXCLUSIVE, ordinary_modes
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group

# Multiplications of one forward pass that are worth a thread. With fewer, threads wait for each
# other longer than they compute where other programs use the same cores: measured there with 1 and
# 2 threads on two cores, PPO on CartPole takes 60 and 5.4 thousand env-steps a second with 2^26
# multiplications a minibatch, 33 and 7.8 with 2^28, 18 and 5.5 with 2^30, 6.7 and 2.5 with 2^32.
# From 2^31 on a machine of its own is taken for granted.
PRODUCTS_PER_THREAD = 2**30
# By Python thread that changes the number: what it was. Threads that begin meanwhile take the
# changed one over.
_found: dict[int, int] = {}


def threads_for(products: int, available: int) -> int:
    """Return on how many of ``available`` threads to compute a forward pass of ``products``
    multiplications.
    """
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
    """Return such a context for what the players of a ``Rollout`` compute in a step.

    On a GPU it does nothing.
    """
    if rollout.device.type != "cpu":
        return nullcontext()
    batch = rollout.batch
    return threads_worth(
        max(batch.num_envs * g.count * acting_weights(rollout, g) for g in batch.groups)
    )


def acting_weights(rollout: Rollout, group: Group) -> int:
    """Return the number of weights of the network that plays ``group``, or 0 if none does."""
    try:
        module = rollout.player_of[group.name].module(rollout, group)
    # a caller's own without one; no function of observations
    except (AttributeError, ParameterError):
        return 0
    return weights(module) if isinstance(module, torch.nn.Module) else 0


def weights(network: torch.nn.Module) -> int:
    """Return the number of a network's weights, those of its ``Convolution`` once for each
    position: how many multiplications one row takes.
    """
    return sum(
        p.numel() * getattr(part, "positions", 1)
        for part in network.modules()
        for p in part.parameters(recurse=False)
    )


# Of the RuntimeError that torch raises where the host's memory is short; on a GPU it has a class of
# its own.
NO_MEMORY = ("DefaultCPUAllocator", "not enough memory", "can't allocate memory")


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Leave torch's generators, of the CPU and of each GPU, as they were; one thread at a time.

    GPUs are named, since torch warns where there are several and none is.
    """
    with EXCLUSIVE, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Have a caller's code draw from ``generator``, which goes on from there, by torch's global
    one, in ordinary modes.
    """
    with own_random_numbers(), ordinary_modes():
        torch.cuda.manual_seed_all(generator.initial_seed())
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn what CuPy and torch raise when memory is short into ``MemoryLimitError``, which says
    what to lower.
    """
    try:
        yield
    except MemoryLimitError:
        raise
    except (MemoryError, RuntimeError) as error:
        short = isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
            w in str(error) for w in NO_MEMORY
        )
        if not short:
            raise
        raise MemoryLimitError(
            f"training does not fit into memory ({str(error).partition(chr(10))[0]}); lower "
            "num_envs, num_steps, or the sizes of networks and replay buffers"
        ) from None
