"""Explain a non-finite number in training, by replay.

Training resumes exactly, so a run that failed can be repeated from its last checkpoint. The
first replay finds the iteration that fails: it runs at full speed up to the last logged interval,
whose numbers were finite, and checks each iteration from there. The second replay stops one
iteration earlier and records the steps of the environment.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cupydrive.errors import TrainingError
from cupydrive.executors.modes import EXCLUSIVE, SETTINGS_LOCK
from cupydrive.inputs.arguments import shown
from cupydrive.playing.rollout import Place
from cupydrive.playing.torch_settings import memory_errors
from cupydrive.spec import kept_params
from cupydrive.terminal.progress import Silent, follow
from cupydrive.training.report import MetricReport
from cupydrive.training.runfolder import Checkpoint, checkpoints, read_checkpoint
from cupydrive.training.together import Alone
from cupydrive.training.trace import Number, Step, Trace

if TYPE_CHECKING:
    from cupydrive.training.run import Run

SHOWN_STEPS = 8  # steps of an environment, or logged intervals of learning
SHOWN_NUMBERS = 8  # longer arrays show only the agent's row
MESSAGE_START = "First non-finite number:"
NOT_REPEATED = (
    "A replay met no non-finite number: the failure depends on more than the settings and the "
    "seed of the run"
)
EXPLANATION_FILE = "explanation.txt"  # in the run folder
REPLAY_SECONDS = 60.0  # maximum training time that is replayed without a checkpoint
# Rows that on-policy learners store, in the order of computation.
LEARNER_ROWS = ("value", "log_prob", "advantage", "returns")


@dataclass(frozen=True)
class Failure:
    """Record of a training that stopped at a non-finite number.

    Attributes:
        step: Environment steps of the run when the number was detected.
        seconds: Estimated training time of these steps.
        captured: Whether iterations were replays of a CUDA graph.
    """

    step: int
    seconds: float
    captured: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Explanation of a failed training. ``print`` shows the full text.

    Attributes that do not apply are None or empty.

    Args:
        line: The first non-finite number and its place, in one line.
        text: Full text, all lines.
        env_steps: Environment steps of the run at the start of the failing iteration.
        field: Location of the number: ``"state.NAME"`` for a member of ``struct State``,
            ``"weight.NAME"`` for a tensor of a network, ``"loss"`` for a loss or gradient, or
            ``"reward.GROUP"``, ``"obs.GROUP"``, ``"final_obs.GROUP"``, ``"action.GROUP"``,
            ``"value.GROUP"``, ``"log_prob.GROUP"``, ``"advantage.GROUP"``, ``"returns.GROUP"``.
            None if the replay met no such number.
        value: The number, or None if a learner reports only that there was one.
        environment: Index among all environments.
        agent: Index of the agent in its group, except for members of ``State``.
        index: Indices into the member of ``State``, or agent and entry of a group's array.
        step: Number of environment steps since the start of the run after which the number first
            appears.
        policy: Name of the policy that was learning.
        reference: Value that the NumPy reference computes from the same state and actions, or None.
        trace: Recorded ``Step``s up to the number, beginning one iteration before the failure.
    """

    line: str
    text: str
    env_steps: int
    field: str | None = None
    value: float | None = None
    environment: int | None = None
    agent: int | None = None
    index: Sequence[int] = ()
    step: int | None = None
    policy: str | None = None
    reference: float | None = None
    trace: Sequence[Step] = ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def explain(run: Run, progress: bool = True) -> Explanation:
    """Explain why training of ``run`` failed. The run is not modified.

    Args:
        run: ``Run`` whose training has ended with ``NotFiniteError``.
        progress: Show a progress line.

    Raises:
        TrainingError: If the run has not failed, several processes train it, or the run has no
            checkpoint and a replay from its first iteration would take more than a minute.
    """
    failure = run.failed
    if failure is None:
        why = (
            f"all its numbers have been finite. {EXPLANATION_FILE} in its folder is from an "
            f"earlier failure"
        )
        raise TrainingError(f"nothing to explain in this run: {why}")
    if not run.shard.ranks.alone:
        raise TrainingError(
            "explain() works in a single process only. Load the run's folder in one process and "
            "train there"
        )
    saved = None
    if run.folder is not None and checkpoints(run.folder):
        saved = read_checkpoint(run.folder, run.spec.name)
    elif failure.seconds > REPLAY_SECONDS:
        limit = (
            f"about {failure.seconds:.0f} s, and the limit without a checkpoint is "
            f"{REPLAY_SECONDS:.0f} s"
        )
        raise TrainingError(f"the replay from the start takes {limit}. Train with out=DIR")
    begin = 0 if saved is None else saved["step"]
    line = follow(2 * (failure.step - begin), f"explain {run.spec.name}", progress)
    try:
        with memory_errors(), run.computing():
            found = Replay(run, saved, line).find(run.metrics, failure.step)
            if found is None:
                return no_explanation(run, failure.step)
            # Free the first replay, which torch's optimizers keep alive through reference cycles.
            gc.collect()
            return Replay(run, saved, line, failure.step - begin).record(run.metrics, *found)
    finally:
        line.close()


class Replay:
    """A second run with the same settings that repeats a failed run.

    Args:
        failed: ``Run`` that failed.
        saved: Its last checkpoint. If None, the replay begins at the start.
        line: Progress line.
        shown: Environment steps that the progress line has already counted.
    """

    def __init__(self, failed: Run, saved: Checkpoint | None, line: Silent, shown: int = 0) -> None:
        self.line, self.shown = line, shown
        self.run = run = type(failed)(failed.config, failed.share)
        self.each = run.steps_per_iteration
        if saved is not None:
            run.restore(saved["tensors"])
            run.step = saved["step"]
        self.trained = Alone(run)
        with EXCLUSIVE, SETTINGS_LOCK:
            captured = failed.failed is not None and failed.failed.captured
            self.iterate = self.trained.prepare([MetricReport(run)], captured)

    def find(self, rows: list[dict], end: int) -> tuple[int, tuple[int, int] | None] | None:
        """Replay the run and return where the first NaN or Inf appears, or None.

        The result has the arguments of ``record``.

        Args:
            rows: Metrics of the failed run. All their numbers were finite.
            end: Environment steps at which the failure was detected.
        """
        run, place = self.run, None
        failed: list[str] = []
        self.run_to(rows[-1]["charts/global_step"] if rows else 0)
        while not place and not failed:
            if run.step >= end:
                return None
            self.run_to(run.step + self.each)
            place = self.nonfinite_step()
            failed = self.failed_policies()
        steps = run.step // run.num_envs if place is None else place[0]
        return max(0, steps - 1) // run.rollout.steps * self.each, place

    def run_to(self, step: int) -> None:
        """Iterate at full speed until the run has done ``step`` environment steps."""
        while self.run.step < step:
            self.trained.schedule(self.run.step)
            self.iterate()
            self.count()

    def count(self) -> None:
        """Count an iteration."""
        self.run.step += self.each
        self.shown += self.each
        self.line.update(self.shown, {})

    def record(self, rows: list[dict], begin: int, place: tuple[int, int] | None) -> Explanation:
        """Record the failing iteration and the one before it, and return the explanation.

        Args:
            rows: Metrics of the failed run.
            begin: Environment steps of the run at the start of the failing iteration.
            place: Step and environment of the number, or None if a learner computed it.
        """
        run = self.run
        self.run_to(begin - self.each)
        if place is None:
            self.run_to(begin)
            self.trained.schedule(begin)
            run.iterate()
            name = self.failed_policies()[0]
            found = self.nonfinite_row(name) or self.nonfinite_weight(name) or ("loss", None, None)
            return learning_explanation(run, rows, name, *found)
        trace = Trace(run, place[1])
        run.rollout.on_step = trace.add
        while run.step < begin:
            self.trained.schedule(run.step)
            run.iterate()
            self.count()
        for name in run.learners:
            if (weight := self.nonfinite_weight(name)) is not None:
                return learning_explanation(run, rows, name, *weight)
        self.trained.schedule(begin)
        run.rollout.collect()
        return environment_explanation(run, begin, trace.up_to(place[0]))

    # ---- non-finite numbers of an iteration ----

    def failed_policies(self) -> list[str]:
        """Return the policies whose learner has met a non-finite number.

        The call synchronizes with the device.
        """
        return [name for name, learner in self.run.learners.items() if float(learner.bad) > 0]

    def nonfinite_step(self) -> tuple[int, int] | None:
        """Return step and environment of the first non-finite observation or reward, or None."""
        rollout = self.run.rollout
        found: list[tuple[int, int]] = []
        begun = self.run.step // self.run.num_envs - rollout.steps
        for arrays, after in (rollout.obs, 0), (rollout.reward, 1), (rollout.final_obs, 1):
            for rows in (rows for rows in arrays.values() if rows.is_floating_point()):
                bad = ~torch.isfinite(rows).flatten(2).all(2)
                bad = bad & rollout.truncated if arrays is rollout.final_obs else bad
                for t, env in bad.nonzero().tolist()[:1]:
                    found.append((begun + t + after, env))
        return min(found, default=None)

    def nonfinite_row(self, name: str) -> tuple[str, float, Place] | None:
        """Return field, value and place of a policy's first non-finite row, or None."""
        learner = self.run.learners[name]
        for group, stored in getattr(getattr(learner, "inner", learner), "stored", {}).items():
            for kind in LEARNER_ROWS:
                for t, env, agent in (~torch.isfinite(stored[kind])).nonzero().tolist()[:1]:
                    value = float(stored[kind][t, env, agent])
                    return f"{kind}.{group}", value, Place(t, kind, group, env, agent)
        return None

    def nonfinite_weight(self, name: str) -> tuple[str, float, None] | None:
        """Return field and value of a policy's first non-finite weight, or None.

        The call synchronizes with the device.
        """
        for key, tensor in self.run.learners[name].tensors().items():
            if isinstance(tensor, torch.nn.Parameter) and not bool(torch.isfinite(tensor).all()):
                return (
                    f"weight.{key.removeprefix('policy.')}",
                    float(tensor.detach().abs().max()),
                    None,
                )
        return None


# ---- text ----------------------------------------------------------------------------------------


def environment_explanation(run: Run, env_steps: int, trace: Trace) -> Explanation:
    """Explain a non-finite number that an environment computed or received.

    Args:
        run: ``Run`` that repeats the failed one.
        env_steps: Environment steps at the start of the failing iteration.
        trace: Steps of the environment up to the number.
    """
    if (first := trace.first()) is None:
        return no_explanation(run, env_steps)
    reference, reason = trace.reference(first)
    environment, step = run.batch.first_env + trace.env, trace.begun + first.row
    field, index = f"{first.kind}.{first.name}", "".join(f"[{i}]" for i in first.index)
    line = (
        f"{MESSAGE_START} {field}{index} = {first.value:.6g} in environment {environment} after "
        f"step {step:,}"
    )
    compared = f"No NumPy reference: {reason}"
    if reference is not None:
        compared = f"The NumPy reference gives {reference:.6g}"
    agent, steps = None if first.kind == "state" else first.index[0], trace.steps[: first.row]
    about: dict[str, Any] = {"environment": environment, "step": step, "agent": agent}
    about |= {"index": first.index, "reference": reference, "trace": steps}
    text = text_of(run, line, [f"{compared}.", *step_lines(trace, first)])
    return Explanation(f"{line}. {compared}", text, env_steps, field, first.value, **about)


def learning_explanation(
    run: Run,
    rows: Sequence[dict[str, float]],
    policy: str,
    field: str,
    value: float | None,
    place: Place | None = None,
) -> Explanation:
    """Explain a non-finite number that a learner or a policy computed.

    Args:
        run: ``Run`` that repeats the failed one, at the start of the failing iteration.
        rows: Metrics of the failed run.
        policy: Name of the policy.
        field: Field of ``Explanation``.
        value: The number.
        place: Place of a row that the policy computed. Its step counts from the start of the
            iteration.
    """
    label = field if value is None else f"{field} = {value:.6g}"
    line = f"{MESSAGE_START} {label} of policy {policy!r} in "
    about: dict[str, Any] = {"policy": policy}
    if place is not None:
        env, step = run.batch.first_env + place.env, run.step // run.num_envs + place.step
        about |= {"environment": env, "agent": place.agent, "index": (place.agent,), "step": step}
        line += f"environment {env}, agent {place.agent}, after step {step:,}"
    else:
        line += f"the iteration after env-step {run.step:,}"
    details = [f"Policy {policy!r} is {run.settings[policy]}.", *loss_lines(rows[-SHOWN_STEPS:])]
    return Explanation(line, text_of(run, line, details), run.step, field, value, **about)


def loss_lines(rows: Sequence[dict[str, float]]) -> list[str]:
    """Return lines that list the losses of the last logged intervals."""
    lines = ["Losses before it:"] * bool(rows)
    for row in rows:
        losses = ", ".join(
            f"{key[7:]} = {value:.4g}" for key, value in row.items() if key.startswith("losses/")
        )
        lines.append(f"  env-step {row['charts/global_step']:,}: {losses}")
    return lines


def no_explanation(run: Run, env_steps: int) -> Explanation:
    """Return the explanation for a replay that met no non-finite number up to ``env_steps``."""
    return Explanation(NOT_REPEATED, text_of(run, NOT_REPEATED, []), env_steps)


def text_of(run: Run, line: str, details: Sequence[str]) -> str:
    """Return the full text: the first non-finite number, the details, and the environment's
    parameters.
    """
    own = kept_params(run.params)
    params = ", ".join(f"{name} = {shown(own[name])}" for name in own)
    return "\n".join([f"{run.spec.name}: {line}.", *details, f"Parameters: {params}."])


def step_lines(trace: Trace, first: Number) -> list[str]:
    """Return lines that list the last steps of an environment before a non-finite number.

    Long arrays show only the agent's row.
    """
    steps = trace.steps[: first.row]
    if not steps:
        return []
    row = first.index[0] if first.index else None

    def members(state: np.ndarray) -> str:
        names = state.dtype.names or ()
        return ", ".join(f"{name}{numbers(state[name][0], row)}" for name in names)

    def by_group(arrays: Mapping[str, np.ndarray]) -> str:
        return ", ".join(f"{name}{numbers(values, row)}" for name, values in arrays.items())

    lines = ["Steps before it:"]
    for number, step in list(enumerate(steps, trace.begun + 1))[-SHOWN_STEPS:]:
        lines.append(f"  state: {members(step.state)}")
        actions, rewards = by_group(step.action), by_group(step.reward)
        lines.append(f"  step {number:,}: actions {actions}, rewards {rewards}")
    ended = " of the next episode" if steps[-1].over else ""
    return [*lines, f"  state{ended}: {members(steps[-1].after)}"]


def numbers(values: np.ndarray, row: int | None = None) -> str:
    """Format the numbers of an array as `` = ...``.

    A long array shows one row, or only its first and last numbers.
    """
    values, place = np.asarray(values), ""
    if values.size > SHOWN_NUMBERS and row is not None and row < len(values):
        values, place = values[row], f"[{row}]"
    with np.printoptions(precision=6, threshold=SHOWN_NUMBERS, linewidth=10_000):
        return f"{place} = {np.array2string(values, separator=', ')}"
