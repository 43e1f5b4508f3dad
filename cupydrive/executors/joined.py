"""Launches of several runs as one launch each.

A run that iterates inside of ``recorded()`` runs nothing: its launches are noted with their
arguments, addresses and sizes that all later iterations share. Where several runs have noted the
same kernels in the same order, a ``Joined`` launches each of these once for all of them. A member
computes what it would compute alone, and launches do not grow with members.
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

# What of torch only looks at memory, an attribute (__get__) say, or decides whether gradients are
# followed.
VIEWS = {
    "__get__", "__getitem__", "__len__", "data_ptr", "detach", "element_size", "numel", "size",
    "stride", "view",
    "_set_grad_enabled",
}  # fmt: skip


class NotJoinedError(CupydriveError):
    """What runs do cannot become launches for all of them; the message says why."""


class OnlyViews(TorchFunctionMode):
    """Refuses whatever of torch does more than look at memory."""

    def __torch_function__(
        self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Look at memory, refuse anything else."""
        if func.__name__ not in VIEWS:
            raise NotJoinedError(f"torch computes {func.__name__} in each iteration")
        return func(*args, **(kwargs or {}))


@contextmanager
def recorded() -> Iterator[list]:
    """Give a list that launches are written into, instead of being run, until this context ends.

    Raises:
        NotJoinedError: If torch computes anything meanwhile, which would happen at once and once
            only.
    """
    noted: list = []
    with written_down(noted), OnlyViews():
        yield noted


def launch_kinds(noted: list) -> tuple:
    """Return what the recordings of several runs must have in common to be joined; it can be a key
    of a dictionary.
    """
    return tuple(
        (each.program.unit.text, each.kernel, each.count)
        if isinstance(each, Launch)
        else tuple(map(launch_kinds, each.lists))
        for each in noted
    )


def _programs(noted: list) -> list:
    """Return the programs of a recording, each once."""
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
    """Return functions that launch, one after the other, what runs have noted whose
    ``launch_kinds`` are equal.
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
    """The launches of several runs, each kernel once for all of them.

    Args:
        recordings: Lists of launches of one ``launch_kinds``, one for each run.
        executor: Where.
        owners: Of the memory that launches point to: it stays as long as they may be launched.
    """

    def __init__(self, recordings: list[list], executor: Executor, owners: object) -> None:
        self.owners = owners
        build_ahead([(executor, program.joined_unit()) for program in _programs(recordings[0])])
        self.steps, self.device = join(recordings), executor.name
        executor.synchronise()  # arguments have arrived, whatever stream launches read them in

    def launch(self) -> None:
        """Queue all launches, on a GPU in torch's current stream."""
        with torch_stream() if self.device == "cuda" else nullcontext():
            run_all(self.steps)
