"""How torch computes while a run trains: precision, threads, random numbers, and what it says when memory is short."""

import math
from contextlib import contextmanager

import torch

from cupydrive.errors import MemoryLimitError

# Multiplications of one forward pass that are worth a thread. With fewer, threads wait for each other longer than they
# compute where other programs use the same cores: measured there with 1 and 2 threads on two cores, PPO on CartPole takes 60
# and 5.4 thousand env-steps a second with 2^26 multiplications a minibatch, 33 and 7.8 with 2^28, 18 and 5.5 with 2^30, 6.7
# and 2.5 with 2^32. From 2^31 on a machine of its own is taken for granted.
PRODUCTS_PER_THREAD = 2**30
# Of the RuntimeError that torch raises where the host's memory is short; on a GPU it has a class of its own.
NO_MEMORY = ("DefaultCPUAllocator", "not enough memory", "can't allocate memory")


@contextmanager
def precision(run):
    """Allow TF32 in matrix products while a run trains, if its settings ask for it."""
    wanted = {getattr(settings, "precision", "float32") for settings in run.settings.values()}
    before = torch.get_float32_matmul_precision()
    if "tf32" in wanted:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def threads_for(products, available):
    """Return how many of ``available`` threads to compute on.

    Args:
        products: Multiplications of one forward pass.
        available: What torch would use: never exceeded, so that OMP_NUM_THREADS and ``torch.set_num_threads`` hold.
    """
    return max(1, min(available, math.floor(products / PRODUCTS_PER_THREAD)))


@contextmanager
def threads(run):
    """Let torch compute on as many threads as the run's networks are worth while it trains on the CPU."""
    before = torch.get_num_threads()
    if run.device == "cpu":
        products = (learner.rows_at_once(run.rollout) * weights(learner.policy) for learner in run.learners.values())
        torch.set_num_threads(threads_for(max(products, default=0), before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def own_random_numbers():
    """Return a context that leaves torch's generators, of the CPU and of each GPU, as it finds them.

    GPUs are named, since torch warns where there are several and none is.
    """
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


def weights(network):
    """Return the number of a network's weights."""
    return sum(p.numel() for p in network.parameters())


@contextmanager
def memory_errors():
    """Turn what CuPy and torch raise when memory is short into ``MemoryLimitError``, which says what to lower."""
    try:
        yield
    except MemoryLimitError:
        raise
    except (MemoryError, RuntimeError) as error:
        short = isinstance(error, MemoryError | torch.OutOfMemoryError) or any(w in str(error) for w in NO_MEMORY)
        if not short:
            raise
        raise MemoryLimitError(
            f"training does not fit into memory ({str(error).partition(chr(10))[0]}); lower num_envs, num_steps, or the sizes "
            "of networks and replay buffers"
        ) from None
