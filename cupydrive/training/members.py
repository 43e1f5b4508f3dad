"""Trains one run, or the members of a population: those of equal shapes side by side, the others in turn."""

import math
from contextlib import ExitStack, suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from itertools import groupby

from cupydrive import envs
from cupydrive.errors import NotFiniteError, ParameterError
from cupydrive.executors.joined import NotJoinedError, kind
from cupydrive.spec import constant_params
from cupydrive.terminal.progress import Silent, follow
from cupydrive.training.loop import Loop
from cupydrive.training.outfolder import check_free, check_own
from cupydrive.training.plan import begin_run, plan, replaced
from cupydrive.training.policies import warn_if_never_learning
from cupydrive.training.population import (
    Population,
    check_members,
    member_folder,
    named,
    plan_members,
    write_members,
)
from cupydrive.training.run import Run
from cupydrive.training.suggestions import suggested_algorithm
from cupydrive.training.together import Alone, Together, recording

MOST_TOGETHER = 4096  # members whose launches are one
MOST_FOLDERS = 128  # of them where each keeps files open in a folder of its own


def train_alone(run, goal, out, progress, callback, capture, checkpoint_seconds, keep):
    """Train one run up to ``goal`` env-steps; the other arguments are those of ``Loop``."""
    run.total = max(goal, run.total or 0)
    iterations = math.ceil((goal - run.step) / run.steps_per_iteration)
    line, words = follow(iterations * run.steps_per_iteration, f"train {run.spec.name}", progress), None
    capture = run.shard.ranks.captures(run.device) if capture is None else capture
    try:
        loop = Loop(Alone(run), goal, [out], line, capture, callback, checkpoint_seconds, keep, progress=progress)
        loop.go()
        run.interrupted = loop.interrupted
        if run.interrupted:
            who = "ended by its callback" if loop.enough else "interrupted"
            words = f"{who} after {run.step:,} env-steps; {kept(out)}"
    finally:
        line.close(words)


def kept(out):
    """Return where the result is after an interrupt, in words; ``out`` is its folder, or None."""
    return "the result is kept" + " in what train returns; nothing is saved without out (--out DIR)" * (out is None)


def begin_members(env, given: dict, members: list[dict], device: str) -> list[Run]:
    """Return the runs of a population's members before their first step; arguments as in ``train``."""
    planned = plan_population(env, given, None, members, device)
    training = Training(planned, None, None, {"out": None, "resume": False, "overwrite": False}, {})
    training.begin()
    return [training.runs[k] for k in range(len(planned))]


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
            run.total = max(goal, run.total or 0)
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


def plan_population(env, given, seeds, members, device="auto", resume=False):
    """Return the ``Member``s of a population, each with its ``Plan``; the arguments are those of ``train``.

    Raises:
        CupydriveError: What is wrong with one of them, and which one it is. What members change is judged as they have it.
    """
    if isinstance(env, Run):
        raise ParameterError(
            "train(run, seeds=..., members=...): a population begins anew; pass the environment's name"
        )
    found = []
    planned = plan_members(envs.get(env), given, seeds, members, partial(suggested_algorithm, env))
    for where, alike in groupby(planned, lambda member: member.where):  # they differ in seeds
        first, *others = alike
        with named(where):
            new = plan(env, **first.arguments, device=device, resume=resume)
        found += [replace(member, plan=replace(new, seed=member.seed)) for member in (first, *others)]
    return found


class Training:
    """Trains the members of a population and keeps what has been trained.

    ``begin`` makes the runs of all of them: what only a ``Run`` finds out, of a network of one's own or of memory, is said
    while nothing has been trained or written.

    Args:
        planned: ``Member``s with their plans.
        steps: Env-steps of each; None: as many as the environment suggests for its algorithm.
        callback: As of ``train``, or None.
        where: Arguments of ``train`` by name: ``out``, ``resume``, ``overwrite``.
        loop: Further arguments of ``Loop``, by name.

    Attributes:
        runs: ``Run`` of each member, by number.
        goals: Env-steps of each, by number.
        begun: Numbers of those whose training has begun.
        failures: By number, the error that ended a member's training.
    """

    def __init__(self, planned, steps, callback, where, loop):
        self.planned, self.callback, self.where, self.loop = planned, callback, where, loop
        self.goals = [steps or member.plan.steps for member in planned]
        self.runs, self.failures, self.begun, self.done, self.parts = {}, {}, set(), 0, []

    # ---- beginning ----

    def begin(self):
        """Make the runs of all members; raise what is wrong with one of them."""
        most = MOST_TOGETHER if self.where["out"] is None else MOST_FOLDERS
        for alike in by_shape(self.planned):
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
        out, member = self._folder(number), self.planned[number]
        with named(member.where):
            how = self.goals[number], out, self.where["resume"], share
            run, _ = begin_run(member.plan, member.arguments, *how)
            if out is not None:
                check_own(out)
                if not self.where["overwrite"]:
                    check_free(run, out)
        self.runs[number] = run
        return run

    def _folder(self, number):
        return None if self.where["out"] is None else member_folder(self.where["out"], number)

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
            at.setdefault((self.runs[number].step, self.goals[number]), []).append(number)
        try:
            together = [(each, Together([self.runs[k] for k in each])) for each in at.values()]
        except NotJoinedError:
            return any(self._go([number], Alone(self._begin(number)), line) for number in numbers)
        return any(self._go(each, trained, line) for each, trained in together)

    def _go(self, numbers, trained, line):
        """Train up to the goal; return whether an interrupt came first."""
        runs, outs, goal = trained.runs, [self._folder(number) for number in numbers], self.goals[numbers[0]]
        self.begun.update(numbers)
        for run in runs:
            run.total = max(goal, run.total or 0)
        interrupted = False
        if runs[0].step < goal:  # else resumed, of runs that are done
            call = None if self.callback is None else partial(self._call_back, numbers)
            capture = runs[0].device == "cuda" if self.loop["capture"] is None else self.loop["capture"]
            part = Part(line, self.done, goal, len(numbers))
            with ExitStack() as locks:
                if self.where["overwrite"]:
                    for run, out in zip(runs, outs, strict=True):
                        locks.enter_context(replaced(run, out))
                training = Loop(trained, goal, outs, part, callback=call, **self.loop | {"capture": capture})
                with suppress(NotFiniteError):
                    training.go()
                interrupted = training.interrupted
                self.failures |= {numbers[k]: error for k, error in training.failures.items()}
        self.done += goal * len(numbers)
        return interrupted

    def _call_back(self, numbers, step, row, number):
        return self.callback(step, {**row, "member": numbers[number]})


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


def train_members(planned, steps, progress, callback, where, loop):
    """Train runs and return their ``Population``: those whose training was begun, if an interrupt comes.

    A run in which a number is not finite ends, and the others go on; the arguments are those of ``Training`` and ``train``.

    Raises:
        NotFiniteError: If all have ended so.
    """
    out = where["out"]
    check_capture(loop["capture"], planned[0].plan.device == "cuda")
    if out is not None:
        check_members(out, planned, where["resume"], where["overwrite"])
    training = Training(planned, steps, callback, where, loop | {"progress": progress})
    training.begin()
    warn_if_never_learning((run, training.goals[number]) for number, run in sorted(training.runs.items()))
    if out is not None:
        write_members(out, planned)
    name = f"train {len(planned)} x {planned[0].plan.spec.name}"
    line, words, interrupted, left = follow(sum(training.goals), name, progress), None, False, ""
    try:
        interrupted = training.train(line)
    except KeyboardInterrupt as error:  # pressed twice, or between two runs, where it has not been noted
        if not training.begun:
            raise
        interrupted, left = True, str(error)
    finally:
        if interrupted:
            words = f"interrupted after {len(training.begun)} of {len(planned)} runs were begun; {left or kept(out)}"
        line.close(words)
    if len(training.failures) == len(planned):
        raise training.failures[0]
    numbers = sorted(training.begun)
    failures = {numbers.index(k): str(error) for k, error in training.failures.items()}
    settings = [planned[k].setting for k in numbers]
    return Population([training.runs[k] for k in numbers], settings, failures, interrupted)


def by_shape(planned):
    """Return lists of numbers of members whose runs have equal shapes, so that their launches may be joined."""
    found = {}
    for number, member in enumerate(planned):
        new = member.plan
        policies = [(name, type(each), shape(each)) for name, each in new.policies.items()]
        constants = [str(getattr(new.params, field.name)) for field in constant_params(new.spec.params)]
        found.setdefault(repr((constants, new.num_envs, new.learner, policies)), []).append(number)
    return list(found.values())


def shape(settings):
    """Return what of a policy's settings decides what is compiled and launched: all but what schedules may change."""
    if not is_dataclass(settings):
        return settings
    return [(f.name, getattr(settings, f.name)) for f in fields(settings) if not f.metadata.get("schedule")]
