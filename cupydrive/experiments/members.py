"""Train one run, or the members of a population.

Members of equal shapes train in parallel, and the others one after another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cupydrive.algorithms.schedule import schedules
from cupydrive.errors import NotFiniteError, ParameterError
from cupydrive.executors.joined import NotJoinedError
from cupydrive.experiments.population import (
    Member,
    Population,
    check_population_folder,
    naming_member,
    write_failures,
    write_members,
)
from cupydrive.spec import constant_params
from cupydrive.terminal.progress import Silent, follow
from cupydrive.training.begin import begin, replaced
from cupydrive.training.loop import Loop
from cupydrive.training.policies import warn_if_never_learning
from cupydrive.training.runfolder import check_free
from cupydrive.training.together import Alone, Together, recording

if TYPE_CHECKING:
    from cupydrive.protocols import PolicySettings
    from cupydrive.training.config import Callback, TrainConfig
    from cupydrive.training.run import Run

Joint = tuple[list[int], Alone | Together]  # indices of members, and their joint training
MOST_TOGETHER = 4096  # maximum number of members with joint launches
MOST_FOLDERS = 128  # the same if each member keeps files open in its own folder


def train_alone(run: Run, config: TrainConfig) -> None:
    """Train one run up to ``config.steps`` environment steps.

    If several processes train it, only rank 0 writes files, prints and calls the callback.
    """
    first, goal = run.shard.ranks.rank == 0, config.steps
    iterations = math.ceil((goal - run.step) / run.steps_per_iteration)
    total, progress = iterations * run.steps_per_iteration, config.progress and first
    line, words = follow(total, f"train {run.spec.name}", progress), None
    own = config.callback if first else None
    callback = None if own is None else lambda step, row, number: own(step, row)
    run.interrupted = False
    try:
        loop = Loop(Alone(run), [replace(config, progress=progress)], line, callback)
        loop.go()
        run.interrupted = loop.interrupted
        if run.interrupted:
            who = "ended by its callback" if loop.enough else "interrupted"
            words = f"{who} after {run.step:,} env-steps: {kept(config.out)}"
    finally:
        line.close(words)


def kept(out: Path | None) -> str:
    """Return a note about whether the result of an interrupted training is saved."""
    return "the result is kept" + ", but not saved without out (--out DIR)" * (out is None)


def check_cuda_graph(cuda_graph: bool | None, captures: bool) -> None:
    """Raise ``ParameterError`` if a CUDA graph is requested but cannot be captured.

    Args:
        cuda_graph: The user's argument.
        captures: Result of ``Ranks.captures``.
    """
    if cuda_graph and not captures:
        raise ParameterError("cuda_graph=True needs device='cuda', and NCCL for several processes")


class Training:
    """Runs of the members of a population, and their training.

    The constructor creates all runs. Errors that only a ``Run`` detects, such as those of a custom
    network or of memory, are therefore raised before anything is trained or written.

    Args:
        members: Members to train.
        explains: Explain non-finite numbers by a replay.

    Attributes:
        runs: ``Run`` of each member, by index.
        parts: Indices of members that train in parallel, with the object that trains them.
        begun: Indices of members whose training has begun.
        failures: Error that ended a member's training, by index.
    """

    def __init__(self, members: Sequence[Member], explains: bool = True) -> None:
        self.members, self.explains, self.done = members, explains, 0
        self.runs: dict[int, Run] = {}
        self.parts: list[Joint] = []
        self.begun: set[int] = set()
        self.failures: dict[int, NotFiniteError] = {}
        most = MOST_TOGETHER if members[0].config.out is None else MOST_FOLDERS
        for alike in by_shape(members):
            for first in range(0, len(alike), most):
                self._begin_alike(alike[first : first + most])

    def _begin_alike(self, numbers: list[int]) -> None:
        """Create the runs of members of equal shapes, and join those at the same step."""
        if len(numbers) > 1:
            with suppress(NotJoinedError):
                recording(self._begin(numbers[0], len(numbers)))
                at: dict[tuple[int, int], list[int]] = {}
                for number in numbers:  # resumed members may be at different steps
                    run = self.runs.get(number) or self._begin(number, len(numbers))
                    at.setdefault((run.step, self.members[number].config.steps), []).append(number)
                self.parts += [(each, self._trained(each)) for each in at.values()]
                return
        for number in numbers:
            self.parts.append(([number], Alone(self._begin(number))))

    def _begin(self, number: int, share: int = 1) -> Run:
        """Create the run of a member, or load it from its folder."""
        member, config = self.members[number], self.members[number].config
        with naming_member(member.where):
            run = begin(config, share)
            if config.out is not None:
                check_free(run.folder, config.out, config.overwrite)
        self.runs[number] = run
        return run

    def _trained(self, numbers: Sequence[int]) -> Alone | Together:
        """Return the object that trains members that share launches."""
        runs = [self.runs[number] for number in numbers]
        return Together(runs) if len(runs) > 1 else Alone(runs[0])

    def keep(self, numbers: Collection[int]) -> None:
        """Restrict the following training to these members."""
        parts, self.parts = self.parts, []
        for each, trained in parts:
            left = [number for number in each if number in numbers]
            if left:
                self.parts.append((left, trained if left == each else self._trained(left)))

    def train(self, line: Silent, goal: int | None = None) -> bool:
        """Train all members and return whether an interrupt ended the training.

        Args:
            line: Progress line of all members.
            goal: Environment steps of each member. Defaults to those of its configuration.
        """
        return any(self._train_part(part, line, goal) for part in self.parts)

    def _train_part(self, part: Joint, line: Silent, goal: int | None) -> bool:
        """Train members in parallel. Return whether training was interrupted."""
        numbers, trained = part
        runs, configs = trained.runs, [self.members[number].config for number in numbers]
        first = configs[0]
        goal = first.steps if goal is None else goal
        self.begun.update(numbers)
        share = Part(line, self.done, goal, len(numbers))
        self.done += goal * len(numbers)
        if runs[0].step >= goal:  # a resumed run that is already finished
            return False
        call = None if first.callback is None else partial(call_back, first.callback, numbers)
        with ExitStack() as locks:
            for run, config in zip(runs, configs, strict=True):
                if config.overwrite and config.out is not None:
                    locks.enter_context(replaced(run, config.out))
            configs = [replace(config, steps=goal) for config in configs]
            loop = Loop(trained, configs, share, call, self.explains)
            try:
                with suppress(NotFiniteError):
                    loop.go()
            finally:  # record failures even if Ctrl-C was pressed twice
                self.failures |= {numbers[k]: error for k, error in loop.failures.items()}
        for run in runs:
            run.interrupted = loop.interrupted
        return loop.interrupted


def call_back(callback: Callback, numbers: list[int], step: int, row: dict, number: int) -> object:
    """Call the user's callback with the index of the member added to the row."""
    return callback(step, {**row, "member": numbers[number]})


@dataclass(frozen=True)
class Part:
    """Share of a population's progress line for members that train in parallel.

    Args:
        line: Progress line.
        done: Total environment steps of the members before them.
        goal: Environment steps of each of these members.
        members: Number of these members.
    """

    line: Silent
    done: int
    goal: int
    members: int

    def update(self, done: int, row: dict[str, float]) -> None:
        """Show that each member has done ``done`` environment steps."""
        self.line.update(self.done + min(done, self.goal) * self.members, row)


def train_members(members: Sequence[Member], out: Path | None) -> Population:
    """Train runs and return their ``Population``.

    After an interrupt, it contains the runs whose training had begun. A run with a non-finite
    number ends, and the others continue.

    Args:
        members: Members to train.
        out: Folder of the population, or None.

    Raises:
        NotFiniteError: If every run has met a non-finite number.
    """
    first = members[0].config
    check_cuda_graph(first.cuda_graph, first.device == "cuda")
    if out is not None:
        check_population_folder(out, members, first.resume, first.overwrite)
    training = Training(members)
    goals = [member.config.steps for member in members]
    warn_if_never_learning((run, goals[number]) for number, run in sorted(training.runs.items()))
    if out is not None:
        write_members(out, members)
    name, interrupted, left = f"train {len(members)} x {first.spec.name}", False, kept(out)
    line = follow(sum(goals), name, first.progress)
    try:
        interrupted = training.train(line)
    except KeyboardInterrupt as error:  # Ctrl-C pressed twice, or between two runs
        if not training.begun:
            raise
        interrupted, left = True, str(error) or left
    finally:
        words = f"interrupted after {len(training.begun)} of {len(members)} runs were begun: {left}"
        line.close(words if interrupted else None)
    numbers = sorted(training.begun)
    if out is not None:
        texts = {k: str(error) for k, error in training.failures.items()}
        write_failures(out, numbers, texts)
    if len(training.failures) == len(members):
        raise training.failures[0]
    failures = {numbers.index(k): str(error) for k, error in training.failures.items()}
    settings = [members[k].setting for k in numbers]
    return Population([training.runs[k] for k in numbers], settings, failures, interrupted)


def by_shape(members: Sequence[Member]) -> list[list[int]]:
    """Return lists of indices of members with equal shapes, whose launches may be joined."""
    found: dict[str, list[int]] = {}
    for number, member in enumerate(members):
        new = member.config
        policies = [(name, type(each), launch_shape(each)) for name, each in new.policies.items()]
        names = [field.name for field in constant_params(new.spec.params)]
        constants = [str(getattr(new.params, name)) for name in names]
        found.setdefault(repr((constants, new.num_envs, new.backend, policies)), []).append(number)
    return list(found.values())


def launch_shape(settings: PolicySettings) -> PolicySettings | list[tuple[str, object]]:
    """Return the settings of a policy that determine its launches: all except scheduled values."""
    if not is_dataclass(settings):
        return settings
    scheduled = schedules(type(settings))
    names = [field.name for field in fields(settings) if field.name not in scheduled]
    return [(name, getattr(settings, name)) for name in names]
