"""Explain a non-finite number in training, by replay.

Training resumes bit for bit, so a run that failed can be repeated from its last checkpoint. The first replay finds the
iteration that fails: it runs at full speed up to the last logged interval, whose numbers were finite, and checks each iteration
from there. The second replay stops one iteration earlier and records these two: the steps of the environment, or the gradient
steps.
"""

from __future__ import annotations

import gc
import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch

from cupydrive.errors import TrainingError
from cupydrive.executors.modes import EXCLUSIVE, SETTINGS
from cupydrive.playing.rollout import Place
from cupydrive.terminal.progress import Silent, follow
from cupydrive.training.explanation import Explanation, environment_explanation, learning_explanation, no_explanation
from cupydrive.training.gradient_steps import GradientStep, largest_of_each, learn, weights_of
from cupydrive.training.report import Report
from cupydrive.training.runfolder import Checkpoint, checkpoints, read_checkpoint
from cupydrive.training.together import Alone
from cupydrive.training.torch_settings import memory_errors, precision, threads
from cupydrive.training.trace import Trace

if TYPE_CHECKING:
    from cupydrive.training.run import Run

EXPLANATION_FILE = "explanation.txt"  # beside the checkpoints of a run folder
LONGEST = 60.0  # seconds of training that are replayed without a checkpoint
# Rows that on-policy learners store, in the order of their computation.
ROWS = ("value", "log_prob", "advantage", "returns")


@dataclass(frozen=True)
class Failure:
    """The end of a training because of a non-finite number.

    Attributes:
        step: Env-steps of the run when it was noticed.
        seconds: Estimated training time of these steps.
    """

    step: int
    seconds: float


def explain(run: Run, progress: bool = True) -> Explanation:
    """Explain why training of ``run`` failed. The run stays as it is.

    If several processes train the run, all of them must call this.

    Args:
        run: ``Run`` whose training has ended with ``NotFiniteError``.
        progress: Show a progress line.

    Raises:
        TrainingError: If the run has not failed, or a replay from its start would take more than a minute.
    """
    failure = run.failed
    if failure is None:
        why = f"its numbers have been finite; {EXPLANATION_FILE} in its folder is of an earlier failure"
        raise TrainingError(f"nothing to explain in this run: {why}")
    saved = None
    if run.folder is not None and checkpoints(run.folder):
        saved = read_checkpoint(run.folder, run.spec.name)
    about = json.dumps([0 if saved is None else saved["step"], failure.seconds]).encode()
    begins, seconds = zip(*map(json.loads, run.shard.ranks.gather_bytes(about)), strict=True)
    if len(set(begins)) > 1:  # a process does not see the folder
        saved = None
    if saved is None and max(seconds) > LONGEST:
        limit = f"about {max(seconds):.0f} s, and the limit without a checkpoint is {LONGEST:.0f} s"
        raise TrainingError(f"the replay from the start takes {limit}. Train with out=DIR")
    begin = 0 if saved is None else saved["step"]
    line = follow(2 * (failure.step - begin), f"explain {run.spec.name}", progress)
    try:
        with memory_errors(), precision(run), threads(run):
            found = Replay(run, saved, line).find(run.metrics, failure.step)
            if found is None:
                return no_explanation(run, failure.step)
            gc.collect()  # frees the first replay, which torch's optimisers hold in cycles
            return Replay(run, saved, line, failure.step - begin).record(*found)
    finally:
        line.close()


class Replay:
    """A second run, made of the same settings, that repeats a failed one.

    Args:
        failed: ``Run`` that failed.
        saved: Its last checkpoint, or None: begin at the start.
        line: Progress line.
        shown: Env-steps that the progress line counts already.
    """

    def __init__(self, failed: Run, saved: Checkpoint | None, line: Silent, shown: int = 0) -> None:
        self.line, self.shown, self.ranks = line, shown, failed.shard.ranks
        self.run = run = type(failed)(failed.config)
        self.each = run.steps_per_iteration
        if saved is not None:
            run.restore(saved["tensors"])
            run.step = saved["step"]
        self.trained = Alone(run)
        with EXCLUSIVE, SETTINGS:
            self.iterate = self.trained.prepare([Report(run)], self.ranks.captures(run.device))

    def find(self, rows: list[dict], end: int) -> tuple[int, list[int] | None] | None:
        """Return the arguments of ``record`` for the first non-finite number, or None if there is none.

        Args:
            rows: Metrics of the failed run, whose numbers were finite.
            end: Env-steps when the failure was noticed.
        """
        run, place = self.run, None
        failed: list[str] = []
        self.run_to(rows[-1]["charts/global_step"] if rows else 0)
        while not place and not failed:
            if run.step >= end:
                return None
            self.run_to(run.step + self.each)
            place = min(filter(None, self.gather(self.nonfinite_step())), default=None)
            failed = self.failed_policies()
        steps = run.step // run.num_envs if place is None else place[0]
        return max(0, steps - 1) // run.rollout.steps * self.each, place

    def run_to(self, step: int) -> None:
        """Iterate at full speed while the run has done fewer than ``step`` env-steps."""
        while self.run.step < step:
            self.trained.schedule(self.run.step)
            self.iterate()
            self.count()

    def count(self) -> None:
        """Count an iteration."""
        self.run.step += self.each
        self.shown += self.each
        self.line.update(self.shown, {})

    def record(self, begin: int, place: list[int] | None) -> Explanation:
        """Record the iteration after ``begin`` env-steps and the one before, and return the explanation.

        Args:
            begin: Env-steps of the run when the iteration begins that fails.
            place: Steps, rank and environment of the number, or None if a learner computed it.
        """
        self.run_to(begin - self.each)
        run, trace = self.run, None
        if place is not None:
            run.rollout.play = None  # single steps, of the same bits
            if place[1] == self.ranks.rank:
                trace = Trace(run, place[2])
                run.rollout.on_step = trace.add
        recorded: list[GradientStep] = []
        while run.step < begin:
            recorded += self.recorded_iteration()
            self.count()
        for name, learner in run.learners.items():
            for weight, size in reversed(largest_of_each(weights_of(learner)).items()):
                if not math.isfinite(size):
                    own = [step for step in recorded if step.policy == name]
                    return learning_explanation(run, begin, name, own, f"weight.{weight}", size)
        if place is not None:
            self.trained.schedule(run.step)
            run.rollout.collect()
            steps = None if trace is None else trace.up_to(place[0])
            found = None if steps is None else environment_explanation(run, begin, steps)
            return self.first_of_ranks(found) or no_explanation(run, begin)
        recorded += self.recorded_iteration()
        name = self.failed_policies()[0]
        return self.in_learning(begin, name, [step for step in recorded if step.policy == name])

    def in_learning(self, begin: int, name: str, recorded: list[GradientStep]) -> Explanation:
        """Explain by a policy's stored rows or by its gradient steps."""
        about, row = (self.run, begin, name, recorded), self.nonfinite_row(name)
        found = self.first_of_ranks(None if row is None else learning_explanation(*about, *row))
        if found is not None:
            return found
        for step in recorded:
            if step.env_steps == begin and (first := step.first()) is not None:
                return learning_explanation(*about, *first, number=step.number)
        return learning_explanation(*about, "loss", None)

    def recorded_iteration(self) -> list[GradientStep]:
        """Iterate once without a graph and return the gradient steps of all policies."""
        run = self.run
        self.trained.schedule(run.step)
        run.rollout.collect()
        learnt = [learn(run, name, learner) for name, learner in run.learners.items()]
        run.episodes.add()
        return [step for steps in learnt for step in steps]

    # ---- non-finite numbers of an iteration ----

    def failed_policies(self) -> list[str]:
        """Return the policies whose learner has met a non-finite number; wait for the device."""
        return [name for name, learner in self.run.learners.items() if float(learner.bad) > 0]

    def nonfinite_step(self) -> list[int] | None:
        """Return steps, rank and environment of this rank's first non-finite observation or reward, or None."""
        rollout, found = self.run.rollout, []
        over = rollout.terminated | rollout.truncated
        begun = self.run.step // self.run.num_envs - rollout.steps
        for arrays, after in (rollout.obs, 0), (rollout.reward, 1), (rollout.final_obs, 1):
            for rows in arrays.values():
                bad = ~torch.isfinite(rows).flatten(2).all(2)
                bad = bad & over if arrays is rollout.final_obs else bad
                for t, env in bad.nonzero().tolist()[:1]:
                    found.append([begun + t + after, self.ranks.rank, env])
        return min(found, default=None)

    def nonfinite_row(self, name: str) -> tuple[str, float, Place] | None:
        """Return field, value and place of the first of a policy's rows that is not finite, or None."""
        learner = self.run.learners[name]
        for group, stored in getattr(getattr(learner, "inner", learner), "stored", {}).items():
            for kind in ROWS:
                for t, env, agent in (~torch.isfinite(stored[kind])).nonzero().tolist()[:1]:
                    value = float(stored[kind][t, env, agent])
                    return f"{kind}.{group}", value, Place(t, kind, group, env, agent)
        return None

    # ---- several processes ----

    def gather(self, found: list | dict | None) -> list:
        """Return by rank what each has found."""
        return list(map(json.loads, self.ranks.gather_bytes(json.dumps(found).encode())))

    def first_of_ranks(self, own: Explanation | None) -> Explanation | None:
        """Return the explanation of the first rank that has one, on the others without its arrays; None if no rank has."""
        mine = None if own is None else asdict(replace(own, trace=(), gradient_steps=()))
        each = self.gather(mine)
        rank = next((rank for rank, found in enumerate(each) if found is not None), None)
        return own if rank in (None, self.ranks.rank) else Explanation(**each[rank])
