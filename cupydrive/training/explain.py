"""Explains a number that was not finite in training: replays the run from the copy of before it, and finds what came first.

Iterations are replayed one after the other until one of them meets such a number. If environments or what they are given have
it, that iteration's rollout is taken once more, step by step, with an eye on the environment that had it first; if learning has
it, its gradient steps are looked at. Then the run is put back as it was.
"""

from contextlib import contextmanager

import torch

from cupydrive.errors import TrainingError
from cupydrive.playing.rollout import Place
from cupydrive.training.explanation import EXPLANATION_FILE, Explanation
from cupydrive.training.gradient_steps import last_unsound, learn, weight_sizes
from cupydrive.training.kept import SLOTS
from cupydrive.training.torch_settings import memory_errors, precision, threads
from cupydrive.training.trace import POLICY_ROWS, Trace

ROWS = (*POLICY_ROWS, "advantage", "returns")  # that learners on policy store, in the order they are made


def explain(run):
    """Return the ``Explanation`` of why a run's training failed; the run stays as it is.

    Raises:
        TrainingError: If it has not failed, or cannot be replayed.
    """
    failed = run.failed
    if failed is None:
        raise TrainingError(
            f"nothing to explain: no number of this run has failed to be finite since it was made or loaded.{written(run)}"
        )
    if failed.kept is None:
        raise TrainingError(f"no copy of the run from before its failure was kept: {failed.reason}")
    if not failed.kept.sound:
        raise TrainingError("numbers of the run were not finite before this training began, and what came first is not known")
    with memory_errors(), precision(run), threads(run), unchanged(run, failed.kept):
        return Replay(run, failed).find()


def written(run):
    """Return where an earlier explanation may be read, in words."""
    path = None if run.folder is None else run.folder / EXPLANATION_FILE
    return f" {path} has what was found before" if path is not None and path.exists() else ""


@contextmanager
def unchanged(run, kept):
    """Let the run be changed in this context, and put it back as it was."""
    flags = [run.rollout.nonfinite, *(learner.bad for learner in run.learners.values())]
    tensors = [*kept.own, *flags]
    before, rates = [tensor.cpu().clone() for tensor in tensors], run.step - run.steps_per_iteration
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, values in zip(tensors, before, strict=True):
                tensor.copy_(values)
        schedule(run, rates)


def schedule(run, step):
    """Write the settings of all learners as they are after ``step`` env-steps."""
    for learner in run.learners.values():
        learner.schedule(step)


class Replay:
    """A run that is replayed from before its failure.

    Args:
        run: ``Run``.
        failed: ``Failed``.
    """

    def __init__(self, run, failed):
        self.run, self.rollout, self.kept, self.failed = run, run.rollout, failed.kept, failed
        self.slots = []  # where the iteration is kept before the one that is replayed, and that one
        self.learnt = []  # gradient steps of the iteration

    def find(self):
        """Return the ``Explanation``."""
        run, slot = self.run, self.kept.oldest()
        step = self.kept.put_back(slot)
        while step < self.failed.until:
            self.step, self.weights = step, {name: weight_sizes(each) for name, each in run.learners.items()}
            self.kept.keep(slot)
            self.slots = [*self.slots[-1:], slot]
            schedule(run, step)
            self.rollout.collect()
            place = self.rollout.first_nonfinite(self.rollout.nonfinite.tolist())
            if place is not None:
                begun = int(self.rollout.iteration) - 1
                return self.in_environment(place.env, place.step - begun * self.rollout.steps)
            before, self.learnt = self.learnt, []
            for name, learner in run.learners.items():
                self.learnt += learn(run, name, learner, step)
            bad = [name for name, learner in run.learners.items() if float(learner.bad) > 0]
            if bad:
                return self.in_learning(bad[0], before)
            run.episodes.add()
            step, slot = step + run.steps_per_iteration, (slot + 1) % SLOTS
        return Explanation.of_nothing(run, self.failed)

    def in_environment(self, env, rows):
        """Return the explanation of what was not finite in an environment after ``rows`` steps of this iteration."""
        trace = None
        for slot, count in zip(self.slots, [self.rollout.steps, rows][-len(self.slots) :], strict=True):
            step = self.kept.put_back(slot)
            schedule(self.run, step)
            with torch.no_grad(), self.rollout.stream():
                self.rollout.carry_rows()
                trace = trace or Trace.begin(self.run, env, step // self.run.num_envs)
                for t in range(count):
                    trace.take(t)
        return Explanation.of_environment(self.run, self.step, trace, self.unsound_weights())

    def in_learning(self, name, before):
        """Return the explanation of what was not finite as a policy learnt; ``before``: the iteration before this one."""
        if (place := self.unsound_final_obs()) is not None:
            return self.in_environment(*place)
        about = self.run, self.step, name, [step for step in (*before, *self.learnt) if step.policy == name]
        if (weight := self.unsound_weights().get(name)) is not None:
            return Explanation.of_learning(*about, f"weight.{weight}", self.weights[name][weight])
        if (row := self.unsound_row(name)) is not None:
            return Explanation.of_learning(*about, *row[:2], place=row[2])
        for step in self.learnt:
            if step.policy == name and (first := step.first()) is not None:
                return Explanation.of_learning(*about, *first, number=step.number)
        return Explanation.of_learning(*about, "loss", float("nan"))

    def unsound_weights(self):
        """Return by policy the name of a weight that was not finite when the iteration began."""
        found = {name: last_unsound(sizes) for name, sizes in self.weights.items()}
        return {name: weight for name, weight in found.items() if weight is not None}

    def unsound_final_obs(self):
        """Return an environment whose last observation of an episode is not finite, and how many steps led there; or None."""
        rollout = self.rollout
        for t in range(rollout.steps):
            over = rollout.terminated[t] | rollout.truncated[t]
            for rows in rollout.final_obs.values():
                bad = over & ~torch.isfinite(rows[t]).flatten(1).all(1)
                if bad.any():
                    return int(bad.nonzero()[0]), t + 1
        return None

    def unsound_row(self, name):
        """Return ``(field, value, place)`` of the first of a policy's rows that is not finite, or None."""
        learner = self.run.learners[name]
        for group, stored in getattr(getattr(learner, "inner", learner), "stored", {}).items():
            for kind in ROWS:
                for t, row in enumerate(stored[kind]):
                    if not torch.isfinite(row).all():
                        env, agent = (int(i) for i in (~torch.isfinite(row)).nonzero()[0])
                        return f"{kind}.{group}", float(row[env, agent]), Place(t, kind, group, env, agent)
        return None
