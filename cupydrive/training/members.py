"""Trains one run, or the members of a population: those of equal shapes side by side, the others in turn."""

import math
from contextlib import ExitStack, suppress
from dataclasses import fields, is_dataclass
from functools import partial

from cupydrive import envs
from cupydrive.errors import NotFiniteError, ParameterError
from cupydrive.executors.joined import NotJoinedError, kind
from cupydrive.protocols import LearnerSettings
from cupydrive.spec import constant_params
from cupydrive.terminal.progress import Silent, follow
from cupydrive.training.loop import Loop
from cupydrive.training.outfolder import check_free
from cupydrive.training.plan import begin_run, plan, replaced, suggested_algorithm, suggestions
from cupydrive.training.population import Population, member_folder, plan_members, write_members
from cupydrive.training.run import Run
from cupydrive.training.together import Alone, Together, recording

MOST_TOGETHER = 4096  # members whose launches are one
MOST_FOLDERS = 128  # of them where each keeps files open in a folder of its own


def train_alone(run, goal, out, progress, callback, capture, checkpoint_seconds, keep):
    """Train one run up to ``goal`` env-steps; the other arguments are those of ``Loop``."""
    run.total = max(goal, run.total or 0)
    iterations = math.ceil((goal - run.step) / run.steps_per_iteration)
    line, words = follow(iterations * run.steps_per_iteration, f"train {run.spec.name}", progress), None
    capture = run.device == "cuda" if capture is None else capture
    try:
        if Loop(Alone(run), goal, [out], line, capture, callback, checkpoint_seconds, keep).go():
            words = f"interrupted after {run.step:,} env-steps; the result is kept"
    finally:
        line.close(words)


def go_on(runs, goal):
    """Train runs up to ``goal`` env-steps, side by side where they are at the same step and have equal shapes.

    Returns:
        Whether no interrupt came, and a list of the runs whose numbers were not finite.
    """
    alike, failed = {}, []
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
            if loop.go():
                return False, failed
        failed += [some[k] for k in loop.failures]
    return True, failed


def plan_population(env, given, seeds, members, resume=False):
    """Return the ``Member``s of a population, each of which could be trained; the arguments are those of ``train``."""
    if isinstance(env, Run):
        raise ParameterError(
            "train(run, seeds=..., members=...): a population begins anew; pass the environment's name"
        )
    common, algorithm = plan(env, **given, resume=resume), given["algorithm"]
    named = algorithm if isinstance(algorithm, LearnerSettings) else suggested_algorithm(env, algorithm)
    shared = {name: value for name, value in given.items() if name not in ("algorithm", "policies")}
    planned = plan_members(
        common.spec, given["policies"] or named, shared, seeds, members, partial(suggested_algorithm, env)
    )
    for member in planned:
        plan(env, **member.arguments, resume=resume)  # raises what is wrong before anything is trained
    return planned


class Training:
    """Trains the members of a population and keeps what has been trained.

    Args:
        env: As of ``train``.
        planned: ``Member``s.
        goal: Env-steps of each.
        line: Progress line of all.
        callback: As of ``train``, or None.
        where: Arguments of ``train`` by name: ``out``, ``resume``, ``overwrite``, ``device``.
        loop: Further arguments of ``Loop``, by name.

    Attributes:
        runs: ``Run`` by number, of members that were begun.
        failures: By number, the error that ended a member's training.
    """

    def __init__(self, env, planned, goal, line, callback, where, loop):
        self.env, self.planned, self.goal, self.line, self.callback = env, planned, goal, line, callback
        self.where, self.loop = where, loop
        self.runs, self.failures, self.done = {}, {}, 0

    def train(self):
        """Train all members; return whether an interrupt ended it."""
        most = MOST_TOGETHER if self.where["out"] is None else MOST_FOLDERS
        for alike in by_shape(self.env, self.planned, self.where["resume"]):
            for first in range(0, len(alike), most):
                if self._train_alike(alike[first : first + most]):
                    return True
        return False

    def _train_alike(self, numbers):
        """Train members of equal shapes; return whether an interrupt came."""
        if len(numbers) > 1:
            try:
                recording(self._begin(numbers[0], len(numbers)))
                for number in numbers[1:]:
                    self._begin(number, len(numbers))
                return self._train_joined(numbers)
            except NotJoinedError:
                self.runs = {number: run for number, run in self.runs.items() if number not in numbers}
        return any(self._go([number], Alone(self._begin(number))) for number in numbers)

    def _train_joined(self, numbers):
        """Train runs that have begun, those at the same step side by side; return whether an interrupt came."""
        by_step = {}
        for number in numbers:
            by_step.setdefault(self.runs[number].step, []).append(number)
        together = {step: Together([self.runs[k] for k in each]) for step, each in by_step.items() if step < self.goal}
        self.done += len(by_step.get(self.goal, []))
        return any(self._go(by_step[step], trained) for step, trained in together.items())

    def _begin(self, number, share=1):
        """Return the run of a member, begun or read."""
        out = self._folder(number)
        given = self.planned[number].arguments
        run, _ = begin_run(self.env, given, self.goal, out, self.where["resume"], self.where["device"], share)
        if out is not None and not self.where["overwrite"]:
            check_free(run, out)
        self.runs[number] = run
        return run

    def _folder(self, number):
        return None if self.where["out"] is None else member_folder(self.where["out"], number)

    def _go(self, numbers, trained):
        """Train up to the goal; return whether an interrupt came first."""
        runs, outs = trained.runs, [self._folder(number) for number in numbers]
        capture, on_gpu = self.loop["capture"], runs[0].device == "cuda"
        if capture and not on_gpu:
            raise ParameterError("capture=True needs device='cuda'; leave it out")
        call = None if self.callback is None else partial(self._call_back, numbers)
        for run in runs:
            run.total = max(self.goal, run.total or 0)
        loop = {**self.loop, "capture": on_gpu if capture is None else capture}
        if runs[0].step >= self.goal:  # resumed, of a run that is done
            self.done += len(numbers)
            return False
        with ExitStack() as locks:
            if self.where["overwrite"]:
                for run, out in zip(runs, outs, strict=True):
                    locks.enter_context(replaced(run, out))
            training = Loop(trained, self.goal, outs, Part(self.line, self, len(numbers)), callback=call, **loop)
            try:
                interrupted = training.go()
            except NotFiniteError:
                interrupted = False
            self.failures |= {numbers[k]: error for k, error in training.failures.items()}
        self.done += len(numbers)
        return interrupted

    def _call_back(self, numbers, step, row, number):
        self.callback(step, {**row, "member": numbers[number]})


class Part:
    """The part of a population's progress line that ``members`` runs have which train side by side."""

    def __init__(self, line, training, members):
        self.line, self.training, self.members = line, training, members

    def update(self, done, row):
        """Say that each has done so many env-steps."""
        goal = self.training.goal
        self.line.update(self.training.done * goal + min(done, goal) * self.members, row)


def train_members(env, planned, steps, progress, callback, where, loop):
    """Train runs and return their ``Population``: those that were begun, if an interrupt comes.

    A run in which a number is not finite ends, and the others go on; the arguments are those of ``Training`` and ``train``.

    Raises:
        NotFiniteError: If all have ended so.
    """
    goal = steps or suggestions(env)["steps"]
    if where["out"] is not None:
        write_members(where["out"], planned, where["resume"], where["overwrite"])
    line, words = follow(goal * len(planned), f"train {len(planned)} x {envs.get(env).name}", progress), None
    training = Training(env, planned, goal, line, callback, where, loop)
    try:
        if training.train():
            words = f"interrupted after {len(training.runs)} of {len(planned)} runs were begun; the result is kept"
    except KeyboardInterrupt:  # between two runs it has not been noted
        if not training.runs:
            raise
        words = f"interrupted after {len(training.runs)} of {len(planned)} runs were begun; the result is kept"
    finally:
        line.close(words)
    if len(training.failures) == len(planned):
        raise training.failures[0]
    numbers = sorted(training.runs)
    failures = {numbers.index(k): str(error) for k, error in training.failures.items()}
    return Population([training.runs[k] for k in numbers], [planned[k].setting for k in numbers], failures)


def by_shape(env, planned, resume=False):
    """Return lists of numbers of members whose runs have equal shapes, so that their launches may be joined."""
    found = {}
    for number, member in enumerate(planned):
        new = plan(env, **member.arguments, resume=resume)
        policies = [(name, type(each), shape(each)) for name, each in new.policies.items()]
        constants = [str(getattr(new.params, field.name)) for field in constant_params(new.spec.params)]
        found.setdefault(repr((constants, new.num_envs, new.learner, policies)), []).append(number)
    return list(found.values())


def shape(settings):
    """Return what of a policy's settings decides what is compiled and launched: all but what schedules may change."""
    if not is_dataclass(settings):
        return settings
    return [(f.name, getattr(settings, f.name)) for f in fields(settings) if not f.metadata.get("schedule")]
