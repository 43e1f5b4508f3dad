"""Explains a number that was not finite in training: replays the run from the copy of before it, and finds what came first.

Iterations are replayed one after the other until one of them meets such a number. If environments or what they are given have
it, that iteration's rollout is taken once more, step by step, with an eye on the environment that had it first; if learning has
it, its gradient steps are looked at. Then the run is put back as it was.
"""

import json
from contextlib import contextmanager
from functools import partial

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

    Of several processes that train it all must call this.

    Raises:
        TrainingError: If it has not failed, or cannot be replayed.
    """
    failed = run.failed
    if failed is None:
        raise TrainingError(
            f"nothing to explain: all numbers of this run have been finite since it was made or loaded.{written(run)}"
        )
    if failed.kept is None:
        raise TrainingError(f"no copy of the run from before its failure was kept: {failed.reason}")
    if not failed.kept.sound:
        raise TrainingError(
            "numbers of the run were not finite before this training began, and what came first is not known"
        )
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


def plain(number):
    """Return a number of NumPy as one of Python."""
    return number.item()


class Replay:
    """A run that is replayed from before its failure.

    Args:
        run: ``Run``.
        failed: ``Failed``.
    """

    def __init__(self, run, failed):
        self.run, self.rollout, self.ranks = run, run.rollout, run.shard.ranks
        self.kept, self.failed = failed.kept, failed
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
            if found := self.unsound_places():
                rank, place = found
                rows = place.step - (int(self.rollout.iteration) - 1) * self.rollout.steps
                return self.by_rank(rank, partial(self.in_environment, place.env, rows))
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
        rank, place = self.first_of_ranks(self.unsound_final_obs())
        if place is not None:
            return self.by_rank(rank, partial(self.in_environment, *place))
        about = self.run, self.step, name, [step for step in (*before, *self.learnt) if step.policy == name]
        if (weight := self.unsound_weights().get(name)) is not None:
            return Explanation.of_learning(*about, f"weight.{weight}", self.weights[name][weight])
        rank, row = self.first_of_ranks(self.unsound_row(name))
        if row is not None:
            return self.by_rank(rank, partial(Explanation.of_learning, *about, *row[:2], place=Place(*row[2])))
        for step in self.learnt:
            if step.policy == name and (first := step.first()) is not None:
                return Explanation.of_learning(*about, *first, number=step.number)
        return Explanation.of_learning(*about, "loss", None)

    # ---- of several processes ----

    def first_of_ranks(self, found):
        """Return the first rank that has found something, and what, as JSON knows it; None and None if none has."""
        each = [found]
        if not self.ranks.alone:
            each = [json.loads(said) for said in self.ranks.gather_bytes(json.dumps(found, default=plain).encode())]
        return next(((rank, one) for rank, one in enumerate(each) if one is not None), (None, None))

    def by_rank(self, rank, explain):
        """Return what ``explain()`` returns on one rank, on all of them."""
        if self.ranks.alone:
            return explain()
        found, said = None, None
        if self.ranks.rank == rank:
            try:
                found = explain()
                said = found.told_to_others()
            except Exception as error:  # the others wait for it
                said = {"error": f"{type(error).__name__}: {error}"}
        _, said = self.first_of_ranks(said)
        if "error" in said:
            raise TrainingError(said["error"])
        return found or Explanation.of_another(self.run, self.step, said)

    # ---- what is not finite ----

    def unsound_places(self):
        """Return the rank that has the first number of a rollout that is not finite, and its ``Place`` there; or None."""
        shard, found = self.run.shard, []
        for rank, numbers in enumerate(self.ranks.gather(self.rollout.nonfinite).tolist()):
            place = self.rollout.first_nonfinite(numbers, len(shard.envs_of(rank)))
            if place is not None:
                found.append((place.step, rank, place))
        return min(found, key=lambda each: each[:2])[1:] if found else None

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
                        return f"{kind}.{group}", float(row[env, agent]), [t, kind, group, env, agent]
        return None
