"""Train one run, or the members of a population: those of equal shapes side by side, the others in
turn.
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

Joint = tuple[list[int], Alone | Together]  # numbers of members, and what trains them side by side
MOST_TOGETHER = 4096  # members whose launches are one
MOST_FOLDERS = 128  # of them where each keeps files open in a folder of its own


def train_alone(run: Run, config: TrainConfig) -> None:
    """Train one run up to ``config.steps`` env-steps.

    Of several processes the first writes, prints and calls back.
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
            words = f"{who} after {run.step:,} env-steps; {kept(config.out)}"
    finally:
        line.close(words)


def kept(out: Path | None) -> str:
    """Return where the result is after an interrupt, as text."""
    return "the result is kept" + ", but not saved without out (--out DIR)" * (out is None)


def check_cuda_graph(cuda_graph: bool | None, captures: bool) -> None:
    """Raise ``ParameterError`` if iterations are to be captured where there are no graphs, as
    ``Ranks.captures`` has it.
    """
    if cuda_graph and not captures:
        raise ParameterError("cuda_graph=True needs device='cuda', and NCCL for several processes")


class Training:
    """Runs of the members of a population, and their training.

    All runs are made here: errors that only a ``Run`` finds, such as those of a network of one's
    own or of memory, are raised before anything is trained or written.

    Args:
        members: Members to train.
        explains: Explain non-finite numbers, by a replay.

    Attributes:
        runs: ``Run`` of each member, by number.
        parts: Numbers of members that train side by side, with what trains them.
        begun: Numbers of those whose training has begun.
        failures: By number, the error that ended a member's training.
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
        """Make the runs of members of equal shapes, and join those at the same step."""
        if len(numbers) > 1:
            with suppress(NotJoinedError):
                recording(self._begin(numbers[0], len(numbers)))
                at: dict[tuple[int, int], list[int]] = {}
                for number in numbers:  # resumed ones may be at different steps
                    run = self.runs.get(number) or self._begin(number, len(numbers))
                    at.setdefault((run.step, self.members[number].config.steps), []).append(number)
                self.parts += [(each, self._trained(each)) for each in at.values()]
                return
        for number in numbers:
            self.parts.append(([number], Alone(self._begin(number))))

    def _begin(self, number: int, share: int = 1) -> Run:
        """Return the run of a member, begun or read."""
        member, config = self.members[number], self.members[number].config
        with naming_member(member.where):
            run = begin(config, share)
            if config.out is not None:
                check_free(run.folder, config.out, config.overwrite)
        self.runs[number] = run
        return run

    def _trained(self, numbers: Sequence[int]) -> Alone | Together:
        """Return what trains members that share launches."""
        runs = [self.runs[number] for number in numbers]
        return Together(runs) if len(runs) > 1 else Alone(runs[0])

    def keep(self, numbers: Collection[int]) -> None:
        """Train only these members from now on."""
        parts, self.parts = self.parts, []
        for each, trained in parts:
            left = [number for number in each if number in numbers]
            if left:
                self.parts.append((left, trained if left == each else self._trained(left)))

    def train(self, line: Silent, goal: int | None = None) -> bool:
        """Train all members and return whether an interrupt ended it.

        Args:
            line: Progress line of all members.
            goal: Env-steps of each. Defaults to those of its configuration.
        """
        return any(self._train_part(part, line, goal) for part in self.parts)

    def _train_part(self, part: Joint, line: Silent, goal: int | None) -> bool:
        """Train members side by side; return whether an interrupt came."""
        numbers, trained = part
        runs, configs = trained.runs, [self.members[number].config for number in numbers]
        first = configs[0]
        goal = first.steps if goal is None else goal
        self.begun.update(numbers)
        share = Part(line, self.done, goal, len(numbers))
        self.done += goal * len(numbers)
        if runs[0].step >= goal:  # resumed, and done
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
            finally:  # Ctrl-C pressed twice must not hide that a run has failed
                self.failures |= {numbers[k]: error for k, error in loop.failures.items()}
        for run in runs:
            run.interrupted = loop.interrupted
        return loop.interrupted


def call_back(callback: Callback, numbers: list[int], step: int, row: dict, number: int) -> object:
    """Call a user's function with the number of the member in the row."""
    return callback(step, {**row, "member": numbers[number]})


@dataclass(frozen=True)
class Part:
    """The part of a population's progress line for members that train side by side.

    Args:
        line: Progress line.
        done: Env-steps of the runs before them.
        goal: Env-steps of each of them.
        members: Number of members.
    """

    line: Silent
    done: int
    goal: int
    members: int

    def update(self, done: int, row: dict[str, float]) -> None:
        """Show that each has done so many env-steps."""
        self.line.update(self.done + min(done, self.goal) * self.members, row)


def train_members(members: Sequence[Member], out: Path | None) -> Population:
    """Train runs and return their ``Population``: those whose training was begun, if an interrupt
    comes.

    A run in which a number is not finite ends, and the others continue.

    Args:
        members: Members to train.
        out: Folder of the population.

    Raises:
        NotFiniteError: If all have ended so.
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
    except KeyboardInterrupt as error:  # pressed twice, or between two runs
        if not training.begun:
            raise
        interrupted, left = True, str(error) or left
    finally:
        words = f"interrupted after {len(training.begun)} of {len(members)} runs were begun; {left}"
        line.close(words if interrupted else None)
    if len(training.failures) == len(members):
        raise training.failures[0]
    numbers = sorted(training.begun)
    failures = {numbers.index(k): str(error) for k, error in training.failures.items()}
    settings = [members[k].setting for k in numbers]
    return Population([training.runs[k] for k in numbers], settings, failures, interrupted)


def by_shape(members: Sequence[Member]) -> list[list[int]]:
    """Return lists of numbers of members whose runs have equal shapes, so that their launches may
    be joined.
    """
    found: dict[str, list[int]] = {}
    for number, member in enumerate(members):
        new = member.config
        policies = [(name, type(each), launch_shape(each)) for name, each in new.policies.items()]
        names = [field.name for field in constant_params(new.spec.params)]
        constants = [str(getattr(new.params, name)) for name in names]
        found.setdefault(repr((constants, new.num_envs, new.backend, policies)), []).append(number)
    return list(found.values())


def launch_shape(settings: PolicySettings) -> PolicySettings | list[tuple[str, object]]:
    """Return what of a policy's settings decides what is compiled and launched: all but what
    schedules may change.
    """
    if not is_dataclass(settings):
        return settings
    scheduled = schedules(type(settings))
    names = [field.name for field in fields(settings) if field.name not in scheduled]
    return [(name, getattr(settings, name)) for name in names]
