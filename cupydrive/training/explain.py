"""Explain a non-finite number in training, by replay.

Training resumes bit for bit, so a run that failed can be repeated from its last checkpoint. The first replay finds the
iteration that fails: it runs at full speed up to the last logged interval, whose numbers were finite, and checks each iteration
from there. The second replay stops one iteration earlier and records these two: the steps of the environment, or the gradient
steps.
"""

import gc
import json
from dataclasses import dataclass

import torch

from cupydrive.errors import TrainingError
from cupydrive.executors.modes import EXCLUSIVE, SETTINGS
from cupydrive.executors.ranks import Ranks
from cupydrive.playing.rollout import Place
from cupydrive.terminal.progress import follow
from cupydrive.training.explanation import Explanation, environment_explanation, learning_explanation, no_explanation
from cupydrive.training.gradient_steps import GradientStep, last_nonfinite, learn, weight_sizes
from cupydrive.training.report import Report
from cupydrive.training.runfolder import checkpoints, read_checkpoint
from cupydrive.training.together import Alone
from cupydrive.training.torch_settings import memory_errors, precision, threads
from cupydrive.training.trace import POLICY_ROWS, Trace

EXPLANATION_FILE = "explanation.txt"  # beside the checkpoints of a run folder
LONGEST = 60.0  # seconds of training that are replayed without a checkpoint
ROWS = (*POLICY_ROWS, "advantage", "returns")  # that on-policy learners store, in the order in which they are computed


@dataclass(frozen=True)
class Failure:
    """The end of a training because of a non-finite number.

    Attributes:
        step: Env-steps of the run when it was noticed.
        seconds: Estimated training time of these steps.
        message: Text of the error.
    """

    step: int
    seconds: float
    message: str


def explain(run, progress: bool = True) -> Explanation:
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
        path = None if run.folder is None else run.folder / EXPLANATION_FILE
        earlier = f" {path} has what was found before" if path is not None and path.exists() else ""
        raise TrainingError(
            f"nothing to explain: all numbers of this run have been finite since it was made or loaded.{earlier}"
        )
    saved = None
    if run.folder is not None and checkpoints(run.folder):
        saved = read_checkpoint(run.folder, run.spec.name)
    begin, seconds = require_one_begin(run.shard.ranks, 0 if saved is None else saved["step"], failure.seconds)
    if saved is None and seconds > LONGEST:
        raise TrainingError(
            f"the replay from the start takes about {seconds:.0f} s, and the limit without a checkpoint is "
            f"{LONGEST:.0f} s. Train with out=DIR, which keeps checkpoints"
        )
    line = follow(2 * (failure.step - begin), f"explain {run.spec.name}", progress)
    try:
        with memory_errors(), precision(run), threads(run):
            return Replay(run, saved, line).find()
    finally:
        line.close()


def require_one_begin(ranks: Ranks, begin: int, seconds: float) -> tuple[int, float]:
    """Return the env-steps at which the replay begins, and the longest estimate of the ranks."""
    each = [json.loads(content) for content in ranks.gather_bytes(json.dumps([begin, seconds]).encode())]
    begins = sorted({begin for begin, _ in each})
    if len(begins) > 1:
        raise TrainingError(
            f"processes see different checkpoints, at {begins} env-steps. Train into a folder that all share"
        )
    return begin, max(seconds for _, seconds in each)


class Replay:
    """A second run, made of the same settings, that repeats a failed one.

    Args:
        failed: ``Run`` that failed.
        saved: Its last checkpoint, or None: begin at the start.
        line: Progress line.
    """

    def __init__(self, failed, saved: dict | None, line):
        self.failed, self.saved, self.line = failed, saved, line
        self.ranks, self.replayed = failed.shard.ranks, 0
        self.restart()

    def restart(self) -> None:
        """Make the run anew, at the checkpoint or at the start."""
        self.run = self.trained = self.iterate = None
        gc.collect()  # frees the memory of the replay before, which torch's optimisers hold in cycles
        old = self.failed
        run = type(old)(old.config)
        if self.saved is not None:
            run.restore(self.saved["tensors"])
            run.step = self.saved["step"]
        self.run, self.trained = run, Alone(run)
        with EXCLUSIVE, SETTINGS:
            self.iterate = self.trained.prepare([Report(run)], self.ranks.captures(run.device))

    def run_to(self, step: int) -> None:
        """Iterate at full speed while the run has done fewer than ``step`` env-steps."""
        while self.run.step < step:
            self.trained.schedule(self.run.step)
            self.iterate()
            self.count()

    def count(self) -> None:
        """Count an iteration."""
        self.run.step += self.run.steps_per_iteration
        self.replayed += self.run.steps_per_iteration
        self.line.update(self.replayed, {})

    def find(self) -> Explanation:
        """Find the first non-finite number and return its explanation."""
        rows, each = self.failed.metrics, self.run.steps_per_iteration
        self.run_to(rows[-1]["charts/global_step"] if rows else 0)
        final = None  # which only learning sees, perhaps in a later iteration
        while not (found := self.first_place()) and not self.failed_policies():
            if self.run.step >= self.failed.failed.step:
                return no_explanation(self.failed, self.failed.failed.step)
            self.run_to(self.run.step + each)
            final = final or self.nonfinite_final_obs()
        if found is None:
            found = min(filter(None, self.gather(final)), default=None)
        steps = self.run.step // self.run.num_envs if found is None else found[0]
        begin = max(0, steps - 1) // self.run.rollout.steps * each  # of the iteration that fails
        self.restart()
        self.run_to(begin - each)
        return self.in_learning(begin) if found is None else self.in_environment(begin, *found)

    def in_environment(self, begin: int, steps: int, rank: int, env: int) -> Explanation:
        """Record an environment of a rank, through the iteration after ``begin`` env-steps and the one before.

        Args:
            begin: Env-steps of the run.
            steps: Steps of each environment since the run began, after which the number is not finite.
            rank: Rank that steps the environment.
            env: Index of the environment in its process.
        """
        run = self.run
        run.rollout.play = None  # single steps, of the same bits
        if self.ranks.rank == rank:
            trace = Trace(run, env)
            run.rollout.on_step = trace.add
        self.run_to_by_steps(begin)
        weights = {name: last_nonfinite(weight_sizes(learner)) for name, learner in run.learners.items()}
        self.trained.schedule(run.step)
        run.rollout.collect()
        return self.by_rank(rank, lambda: environment_explanation(run, begin, trace.up_to(steps), weights))

    def in_learning(self, begin: int) -> Explanation:
        """Record the gradient steps of the iteration after ``begin`` env-steps and of the one before."""
        run, recorded = self.run, self.run_to_by_steps(begin)
        weights = {name: weight_sizes(learner) for name, learner in run.learners.items()}
        recorded += self.watched_iteration()
        name = self.failed_policies()[0]
        about = run, begin, name, [step for step in recorded if step.policy == name]
        if (weight := last_nonfinite(weights[name])) is not None:
            return learning_explanation(*about, f"weight.{weight}", weights[name][weight])
        if (found := self.first_of_ranks(self.nonfinite_row(name))) is not None:
            rank, field, value, place = found
            return self.by_rank(rank, lambda: learning_explanation(*about, field, value, place=Place(*place)))
        for step in recorded:
            if step.policy == name and step.env_steps == begin and (first := step.first()) is not None:
                return learning_explanation(*about, *first, number=step.number)
        return learning_explanation(*about, "loss", None)

    def run_to_by_steps(self, step: int) -> list[GradientStep]:
        """Iterate without a graph up to ``step`` env-steps and return the gradient steps."""
        recorded = []
        while self.run.step < step:
            recorded += self.watched_iteration()
            self.count()
        return recorded

    def watched_iteration(self) -> list[GradientStep]:
        """Iterate once and return the gradient steps of all policies."""
        run = self.run
        self.trained.schedule(run.step)
        run.rollout.collect()
        recorded = [step for name, learner in run.learners.items() for step in learn(run, name, learner)]
        run.episodes.add()
        return recorded

    # ---- non-finite numbers of an iteration ----

    def failed_policies(self) -> list[str]:
        """Return the policies whose learner has met a non-finite number; wait for the device."""
        return [name for name, learner in self.run.learners.items() if float(learner.bad) > 0]

    def first_place(self) -> list[int] | None:
        """Return steps, rank and environment of the first non-finite observation or reward, or None."""
        shard, found = self.run.shard, []
        for rank, numbers in enumerate(self.ranks.gather(self.run.rollout.nonfinite).tolist()):
            place = self.run.rollout.first_nonfinite(numbers, len(shard.envs_of(rank)))
            if place is not None:
                found.append([place.step, rank, place.env])
        return min(found, default=None)

    def nonfinite_final_obs(self) -> list[int] | None:
        """Return steps, rank and environment of this rank's first non-finite last observation of an episode, or None."""
        rollout, found = self.run.rollout, []
        over = rollout.terminated | rollout.truncated
        for rows in rollout.final_obs.values():
            for t, env in (over & ~torch.isfinite(rows).flatten(2).all(2)).nonzero().tolist()[:1]:
                found.append([self.run.step // self.run.num_envs - rollout.steps + t + 1, self.ranks.rank, env])
        return min(found, default=None)

    def nonfinite_row(self, name: str) -> list | None:
        """Return field, value and place of the first of a policy's rows that is not finite, or None."""
        learner = self.run.learners[name]
        for group, stored in getattr(getattr(learner, "inner", learner), "stored", {}).items():
            for kind in ROWS:
                for t, row in enumerate(stored[kind]):
                    if not torch.isfinite(row).all():
                        env, agent = (int(i) for i in (~torch.isfinite(row)).nonzero()[0])
                        return [f"{kind}.{group}", float(row[env, agent]), [t, kind, group, env, agent]]
        return None

    # ---- several processes ----

    def first_of_ranks(self, found: list | None) -> list | None:
        """Return the first rank that has found something, followed by what it found; None if no rank has."""
        return next(([rank, *one] for rank, one in enumerate(self.gather(found)) if one is not None), None)

    def gather(self, found: list | None) -> list[list | None]:
        """Return by rank what each has found."""
        return [json.loads(content) for content in self.ranks.gather_bytes(json.dumps(found).encode())]

    def by_rank(self, rank: int, make) -> Explanation:
        """Return on all ranks what ``make`` returns on one; on the others without its arrays."""
        found, said = None, None
        if self.ranks.rank == rank:
            try:
                found = make()
                said = [found.as_json()]
            except Exception as error:  # the other ranks wait for it
                said = [{"error": f"{type(error).__name__}: {error}"}]
        _, fields = self.first_of_ranks(said)
        if "error" in fields:
            raise TrainingError(fields["error"])
        return found or Explanation(**fields)
