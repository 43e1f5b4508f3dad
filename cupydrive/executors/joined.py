"""Launches that several runs share: each launch executes one kernel with the data of every run.

An iteration inside ``recorded()`` executes nothing. Its launches are recorded with arguments,
addresses and sizes, which are the same in all later iterations. If several runs have recorded the
same kernels in the same order, a ``Joined`` launches each kernel once for all of them. Each run
computes the same results as on its own, and the number of launches does not depend on the number of
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
from torch.overrides import TorchFunctionMode

from cupydrive.errors import CupydriveError
from cupydrive.executors.ahead import build_ahead
from cupydrive.executors.interop import side_by_side, torch_stream
from cupydrive.executors.noted import Launch, MemberProgram, written_down
from cupydrive.protocols import Executor

# torch functions that only access memory (such as attributes, __get__) or gradient mode.
VIEWS = {
    "__get__", "__getitem__", "__len__", "data_ptr", "detach", "element_size", "numel", "size",
    "stride", "view",
    "_set_grad_enabled",
}  # fmt: skip


class NotJoinedError(CupydriveError):
    """Runs cannot share their launches. The message names the reason."""


class OnlyViews(TorchFunctionMode):
    """Mode that raises an error for torch functions that compute anything."""

    def __torch_function__(
        self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Call a function that only accesses memory, and raise an error for any other."""
        if func.__name__ not in VIEWS:
            raise NotJoinedError(f"torch computes {func.__name__} in each iteration")
        return func(*args, **(kwargs or {}))


@contextmanager
def recorded() -> Iterator[list]:
    """Yield a list that records launches instead of executing them, until the context ends.

    Raises:
        NotJoinedError: If torch computes anything in the context, because it would be executed
            immediately and not be recorded.
    """
    noted: list = []
    with written_down(noted), OnlyViews():
        yield noted


def launch_kinds(noted: list) -> tuple:
    """Return a hashable signature of a recording, which must be equal for a joint launch."""
    return tuple(
        (each.program.unit.text, each.kernel, each.count)
        if isinstance(each, Launch)
        else tuple(map(launch_kinds, each.lists))
        for each in noted
    )


def _programs(noted: list) -> list:
    """Return the distinct programs of a recording."""
    found: dict[str, MemberProgram] = {}
    for each in noted:
        inner = (
            [each.program]
            if isinstance(each, Launch)
            else [p for own in each.lists for p in _programs(own)]
        )
        found |= {program.unit.text: program for program in inner}
    return list(found.values())


def join(recordings: list[list]) -> list[Callable]:
    """Return functions that execute the joint launches of recordings with equal ``launch_kinds``.

    Call them one after another.
    """
    steps = []
    for first, *others in zip(*recordings, strict=True):
        members = [first, *others]
        if isinstance(first, Launch):
            calls = np.stack([each.call for each in members])
            steps.append(first.program.join(first.kernel, calls, first.count, first.work))
        else:
            sides = [join(list(own)) for own in zip(*(each.lists for each in members), strict=True)]
            steps.append(partial(side_by_side, [partial(run_all, side) for side in sides]))
    return steps


def run_all(steps: list[Callable]) -> None:
    """Call each of ``steps``."""
    for step in steps:
        step()


class Joined:
    """Joint launches of several runs.

    Args:
        recordings: Recordings with equal ``launch_kinds``, one for each run.
        executor: Executor of the launches.
        owners: Objects that own the memory of the launches. They are kept alive.
    """

    def __init__(self, recordings: list[list], executor: Executor, owners: object) -> None:
        self.owners = owners
        build_ahead([(executor, program.joined_unit()) for program in _programs(recordings[0])])
        self.steps, self.device = join(recordings), executor.name
        executor.synchronize()  # afterwards, launches in any stream may read the arguments

    def launch(self) -> None:
        """Queue all launches, on a GPU in torch's current stream."""
        with torch_stream() if self.device == "cuda" else nullcontext():
            run_all(self.steps)
