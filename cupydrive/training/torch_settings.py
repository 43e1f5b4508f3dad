"""How torch computes while a run trains: precision, threads, random numbers, and what it says when memory is short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

from cupydrive.errors import MemoryLimitError
from cupydrive.executors.modes import EXCLUSIVE, ordinary_modes
from cupydrive.playing.threads import threads_worth, weights

if TYPE_CHECKING:
    from cupydrive.training.run import Run


# Of the RuntimeError that torch raises where the host's memory is short; on a GPU it has a class of its own.
NO_MEMORY = ("DefaultCPUAllocator", "not enough memory", "can't allocate memory")


def precision(run: Run) -> AbstractContextManager[None]:
    """Return the context in which a run trains; float32 products are not rounded to TF32."""
    return ordinary_modes(run.device, tf32=False)


def threads(run: Run) -> AbstractContextManager[None]:
    """Return a context in which torch computes on as many threads as the run's networks are worth; on a GPU it does nothing."""
    if run.device != "cpu":
        return nullcontext()
    products = (learner.rows_at_once(run.rollout) * weights(learner.policy) for learner in run.learners.values())
    return threads_worth(max(products, default=0))


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Leave torch's generators, of the CPU and of each GPU, as they were; one thread at a time.

    GPUs are named, since torch warns where there are several and none is.
    """
    with EXCLUSIVE, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Have a caller's code draw from ``generator``, which goes on from there, by torch's global one, in ordinary modes."""
    with own_random_numbers(), ordinary_modes():
        torch.cuda.manual_seed_all(generator.initial_seed())
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())


@contextmanager
def memory_errors() -> Iterator[None]:
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
