"""Trains one run, or the members of a population: those of equal shapes side by side, the others in turn."""

import math
from contextlib import ExitStack, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

from cupydrive.errors import NotFiniteError, ParameterError
from cupydrive.executors.joined import NotJoinedError, kind
from cupydrive.spec import constant_params
from cupydrive.terminal.progress import Silent, follow
from cupydrive.training.begin import begin, replaced
from cupydrive.training.config import TrainConfig
from cupydrive.training.loop import Loop
from cupydrive.training.policies import warn_if_never_learning
from cupydrive.training.population import Member, Population, check_members, named, write_members
from cupydrive.training.run import Run
from cupydrive.training.runfolder import check_free
from cupydrive.training.schedule import schedules
from cupydrive.training.together import Alone, Together, recording

MOST_TOGETHER = 4096  # members whose launches are one
MOST_FOLDERS = 128  # of them where each keeps files open in a folder of its own


def train_alone(run: Run, config: TrainConfig) -> None:
    """Train one run up to ``config.steps`` env-steps. Of several processes the first writes, prints and calls back."""
    first, goal = run.shard.ranks.rank == 0, config.steps
    run.total = max(goal, run.total)
    iterations = math.ceil((goal - run.step) / run.steps_per_iteration)
    total, progress = iterations * run.steps_per_iteration, config.progress and first
    line, words = follow(total, f"train {run.spec.name}", progress), None
    capture = run.shard.ranks.captures(run.device) if config.capture is None else config.capture
    callback = None if config.callback is None or not first else lambda step, row, number: config.callback(step, row)
    often = config.checkpoint_minutes * 60
    try:
        loop = Loop(Alone(run), goal, [config.out], line, capture, callback, often, config.keep, progress=progress)
        loop.go()
        run.interrupted = loop.interrupted
        if run.interrupted:
            who = "ended by its callback" if loop.enough else "interrupted"
            words = f"{who} after {run.step:,} env-steps; {kept(config.out)}"
    finally:
        line.close(words)


def kept(out):
    """Return where the result is after an interrupt, in words; ``out`` is its folder, or None."""
    return "the result is kept" + " in what train returns; nothing is saved without out (--out DIR)" * (out is None)


def begin_members(members: list[Member]) -> list[Run]:
    """Return the runs of a population's members before their first step."""
    training = Training(members)
    training.begin()
    return [training.runs[k] for k in range(len(members))]


def train_on(runs: list[Run], goal: int) -> tuple[bool, dict[Run, NotFiniteError]]:
    """Train runs up to ``goal`` env-steps, side by side where they are at the same step and have equal shapes.

    Returns:
        Whether an interrupt ended it, and the error of each run in which a number was not finite.
    """
    alike, failures, interrupted = {}, {}, False
    for number, run in enumerate(runs):
        try:
            same = run.step, kind(recording(run))
        except NotJoinedError:
            same = number
        alike.setdefault(same, []).append(run)
    for some in alike.values():
        trained = Together(some) if len(some) > 1 else Alone(some[0])
        for run in some:
            run.total = max(goal, run.total)
        how = some[0].device == "cuda", None, math.inf, 1, False
        loop = Loop(trained, goal, [None] * len(some), Silent(), *how)
        with suppress(NotFiniteError):
            loop.go()
        failures |= {some[k]: error for k, error in loop.failures.items()}
        interrupted = loop.interrupted
        if interrupted:
            break
    return interrupted, failures


def check_capture(capture: bool | None, captures: bool) -> None:
    """Raise ``ParameterError`` if iterations are to be captured where there are no graphs, as ``Ranks.captures`` has it."""
    if capture and not captures:
        raise ParameterError(
            "capture=True needs device='cuda', and NCCL where several processes train one run; leave it out"
        )


class Training:
    """Trains the members of a population and keeps what has been trained.

    ``begin`` makes the runs of all of them: what only a ``Run`` finds out, of a network of one's own or of memory, is said
    while nothing has been trained or written.

    Args:
        members: What to train.

    Attributes:
        runs: ``Run`` of each member, by number.
        begun: Numbers of those whose training has begun.
        failures: By number, the error that ended a member's training.
    """

    def __init__(self, members: list[Member]):
        self.members = members
        self.runs, self.failures, self.begun, self.done, self.parts = {}, {}, set(), 0, []

    # ---- beginning ----

    def begin(self):
        """Make the runs of all members; raise what is wrong with one of them."""
        most = MOST_TOGETHER if self.members[0].config.out is None else MOST_FOLDERS
        for alike in by_shape(self.members):
            for first in range(0, len(alike), most):
                self.parts += self._begin_alike(alike[first : first + most])

    def _begin_alike(self, numbers):
        """Make the runs of members of equal shapes; return lists of numbers of those that train side by side."""
        if len(numbers) > 1:
            try:
                recording(self._begin(numbers[0], len(numbers)))
                for number in numbers[1:]:
                    self._begin(number, len(numbers))
                return [numbers]
            except NotJoinedError:
                pass
        for number in numbers:
            self._begin(number)
        return [[number] for number in numbers]

    def _begin(self, number, share=1):
        """Return the run of a member, begun or read."""
        member, config = self.members[number], self.members[number].config
        with named(member.where):
            run = begin(config, share)
            if config.out is not None:
                check_free(run.folder, config.out, config.overwrite)
        self.runs[number] = run
        return run

    # ---- training ----

    def train(self, line):
        """Train all members, with a progress line of all; return whether an interrupt ended it."""
        return any(self._train_alike(numbers, line) for numbers in self.parts)

    def _train_alike(self, numbers, line):
        """Train members that are one, or whose launches may be joined; return whether an interrupt came."""
        if len(numbers) == 1:
            return self._go(numbers, Alone(self.runs[numbers[0]]), line)
        at = {}
        for number in numbers:  # resumed ones may be at different steps
            at.setdefault((self.runs[number].step, self.members[number].config.steps), []).append(number)
        try:
            together = [(each, Together([self.runs[k] for k in each])) for each in at.values()]
        except NotJoinedError:
            return any(self._go([number], Alone(self._begin(number)), line) for number in numbers)
        return any(self._go(each, trained, line) for each, trained in together)

    def _go(self, numbers, trained, line):
        """Train up to the goal; return whether an interrupt came first."""
        runs, configs = trained.runs, [self.members[number].config for number in numbers]
        first, goal = configs[0], configs[0].steps
        self.begun.update(numbers)
        for run in runs:
            run.total = max(goal, run.total)
        interrupted = False
        if runs[0].step < goal:  # else resumed, of runs that are done
            call = None if first.callback is None else partial(self._call_back, first.callback, numbers)
            capture = runs[0].device == "cuda" if first.capture is None else first.capture
            part, outs = Part(line, self.done, goal, len(numbers)), [config.out for config in configs]
            often = first.checkpoint_minutes * 60
            with ExitStack() as locks:
                if first.overwrite:
                    for run, out in zip(runs, outs, strict=True):
                        locks.enter_context(replaced(run, out))
                training = Loop(trained, goal, outs, part, capture, call, often, first.keep, progress=first.progress)
                with suppress(NotFiniteError):
                    training.go()
                interrupted = training.interrupted
                self.failures |= {numbers[k]: error for k, error in training.failures.items()}
        self.done += goal * len(numbers)
        return interrupted

    def _call_back(self, callback, numbers, step, row, number):
        return callback(step, {**row, "member": numbers[number]})


class Part:
    """The part of a population's progress line that ``members`` runs have which train side by side.

    Args:
        line: The line.
        done: Env-steps of the runs before them.
        goal: Env-steps of each of them.
        members: How many they are.
    """

    def __init__(self, line, done, goal, members):
        self.line, self.done, self.goal, self.members = line, done, goal, members

    def update(self, done, row):
        """Say that each has done so many env-steps."""
        self.line.update(self.done + min(done, self.goal) * self.members, row)


def train_members(members: list[Member], out: Path | None) -> Population:
    """Train runs and return their ``Population``: those whose training was begun, if an interrupt comes.

    A run in which a number is not finite ends, and the others go on.

    Args:
        members: What to train.
        out: Folder of the population.

    Raises:
        NotFiniteError: If all have ended so.
    """
    first = members[0].config
    check_capture(first.capture, first.device == "cuda")
    if out is not None:
        check_members(out, members, first.resume, first.overwrite)
    training = Training(members)
    training.begin()
    warn_if_never_learning((run, members[number].config.steps) for number, run in sorted(training.runs.items()))
    if out is not None:
        write_members(out, members)
    name, total = f"train {len(members)} x {first.spec.name}", sum(member.config.steps for member in members)
    line, words, interrupted, left = follow(total, name, first.progress), None, False, ""
    try:
        interrupted = training.train(line)
    except KeyboardInterrupt as error:  # pressed twice, or between two runs, where it has not been noted
        if not training.begun:
            raise
        interrupted, left = True, str(error)
    finally:
        if interrupted:
            words = f"interrupted after {len(training.begun)} of {len(members)} runs were begun; {left or kept(out)}"
        line.close(words)
    if len(training.failures) == len(members):
        raise training.failures[0]
    numbers = sorted(training.begun)
    failures = {numbers.index(k): str(error) for k, error in training.failures.items()}
    settings = [members[k].setting for k in numbers]
    return Population([training.runs[k] for k in numbers], settings, failures, interrupted)


def by_shape(members: list[Member]) -> list[list[int]]:
    """Return lists of numbers of members whose runs have equal shapes, so that their launches may be joined."""
    found = {}
    for number, member in enumerate(members):
        new = member.config
        policies = [(name, type(each), shape(each)) for name, each in new.policies.items()]
        constants = [str(getattr(new.params, field.name)) for field in constant_params(new.spec.params)]
        found.setdefault(repr((constants, new.num_envs, new.learner, policies)), []).append(number)
    return list(found.values())


def shape(settings):
    """Return what of a policy's settings decides what is compiled and launched: all but what schedules may change."""
    if not is_dataclass(settings):
        return settings
    scheduled = schedules(type(settings))
    return [(f.name, getattr(settings, f.name)) for f in fields(settings) if f.name not in scheduled]
