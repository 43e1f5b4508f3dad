"""Settings of torch: CPU threads, random number generators, and out-of-memory errors."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from cupydrive.errors import MemoryLimitError, ParameterError
from cupydrive.executors.modes import EXCLUSIVE, ordinary_modes
from cupydrive.playing.rollout import Rollout
from cupydrive.spec import Group

# Multiplications of one forward pass that justify an additional thread. With fewer, threads wait
# longer for each other than they compute if other programs use the same cores. Measured on two such
# cores with PPO on CartPole, for 1 and 2 threads in thousand environment steps per second: 60 and
# 5.4 with 2^26 multiplications per minibatch, 33 and 7.8 with 2^28, 18 and 5.5 with 2^30, 6.7 and
# 2.5 with 2^32. From 2^31 on, the machine is assumed to run nothing else.
PRODUCTS_PER_THREAD = 2**30
# Previous number of threads, by Python thread that changes it. Threads that begin in between
# inherit the changed number.
_found: dict[int, int] = {}


def threads_for(products: int, available: int) -> int:
    """Return the number of threads, at most ``available``, for ``products`` multiplications."""
    return max(1, min(available, products // PRODUCTS_PER_THREAD))


@contextmanager
def threads_worth(products: int) -> Iterator[None]:
    """Limit torch's threads to the number that ``products`` multiplications justify."""
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
    """Return the context of ``threads_worth`` for one step of the players of a ``Rollout``.

    On a GPU it does nothing.
    """
    if rollout.device.type != "cpu":
        return nullcontext()
    batch = rollout.batch
    return threads_worth(
        max(batch.num_envs * g.count * acting_weights(rollout, g) for g in batch.groups)
    )


def acting_weights(rollout: Rollout, group: Group) -> int:
    """Return the number of weights of the network that plays ``group``, or 0 without a network."""
    try:
        module = rollout.player_of[group.name].module(rollout, group)
    # a custom player without the method, or without a network of observations
    except (AttributeError, ParameterError):
        return 0
    return weights(module) if isinstance(module, torch.nn.Module) else 0


def weights(network: torch.nn.Module) -> int:
    """Return the number of multiplications of a network for one row.

    This is the number of weights, with those of a ``Convolution`` counted once per position.
    """
    return sum(
        p.numel() * getattr(part, "positions", 1)
        for part in network.modules()
        for p in part.parameters(recurse=False)
    )


# Parts of the RuntimeError that torch raises if the host's memory is exhausted. For a GPU it has a
# separate class.
NO_MEMORY = ("DefaultCPUAllocator", "not enough memory", "can't allocate memory")


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Restore torch's generators of the CPU and of all GPUs afterwards. One thread at a time.

    GPUs are listed, since torch warns if there are several and none is listed.
    """
    with EXCLUSIVE, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let a caller's code draw from ``generator`` through torch's global generator.

    Ordinary modes apply, and ``generator`` advances.
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
    """Convert out-of-memory errors of CuPy and torch to ``MemoryLimitError`` with advice."""
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
            f"training does not fit into memory ({str(error).partition(chr(10))[0]}). Lower "
            "num_envs, num_steps, or the sizes of networks and replay buffers"
        ) from None
