"""Schedules, iterations and reports of one run, or of several runs trained in parallel.

Runs in parallel share their launches (``cupydrive/executors/joined.py``). Each run computes the
same results as on its own, and the number of launches of an iteration does not depend on the number
of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from cupydrive.algorithms.schedule import Scheduled, value_at
from cupydrive.algorithms.scheduled_learner import ScheduledLearner
from cupydrive.codegen.source import assemble_file
from cupydrive.executors.interop import capture, make_call, zeros
from cupydrive.executors.joined import Joined, NotJoinedError, launch_kinds, recorded
from cupydrive.executors.ranks import Ranks

if TYPE_CHECKING:
    from cupydrive.executors.noted import Launch
    from cupydrive.training.ranks import Wishes
    from cupydrive.training.report import MetricReport
    from cupydrive.training.run import Run

AHEAD = 256  # number of iterations whose scheduled values are copied to the device in one batch


class Alone:
    """A single run.

    Args:
        run: ``Run``.
    """

    def __init__(self, run: Run) -> None:
        self.runs, self.ranks = [run], run.shard.ranks

    def prepare(self, reports: Sequence[MetricReport], captured: bool) -> Callable[[], None]:
        """Return a function that runs one iteration, directly or as the replay of a CUDA graph."""
        (run,), (self.report,) = self.runs, reports
        self.numbers = zeros(run.device, 1, self.report.size, dtype=torch.float64)
        if not captured:
            return run.iterate
        kept = run.snapshot()
        try:
            return capture(run.iterate, lambda: run.restore(kept))
        except KeyboardInterrupt:  # during the warm-up
            run.restore(kept)
            raise

    def schedule(self, step: int) -> None:
        """Write the scheduled settings for ``step`` environment steps."""
        for learner in self.runs[0].learners.values():
            learner.schedule(step)

    def rates(self, step: int) -> list[dict[str, float]]:
        """Return the learning rates of each run by policy, for the iteration that began at ``step``
        environment steps.
        """
        return [{name: learner.learning_rate for name, learner in self.runs[0].learners.items()}]

    def tell(self, wishes: Wishes) -> torch.Tensor:
        """Queue the report and return it, (1, L) float64 on the device.

        If there are several ranks, the result is (1, W, L + 3) and includes their ``Wishes``.
        """
        self.report.make(self.numbers[0])
        return self.numbers if self.ranks.alone else wishes.tell(self.ranks, self.numbers[0])[None]


class Together:
    """Several runs whose iterations launch the same kernels.

    Args:
        runs: ``Run``s of equal shapes, on one device and at the same step.

    Raises:
        NotJoinedError: If their iterations do not launch equal kernels.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs, self.device, self.ranks = list(runs), runs[0].device, Ranks()
        self.recordings = [recording(run) for run in self.runs]
        if len({launch_kinds(each) for each in self.recordings}) > 1:
            raise NotJoinedError("their iterations differ in shapes")

    def prepare(self, reports: Sequence[MetricReport], captured: bool) -> Callable[[], None]:
        """Return a function that runs one iteration of all runs, by joint launches or as the replay
        of a CUDA graph.
        """
        members = len(self.runs)
        self.numbers = zeros(self.device, members, reports[0].size, dtype=torch.float64)
        told = []
        for report, numbers in zip(reports, self.numbers, strict=True):
            with recorded() as noted:
                report.make(numbers)
            told.append(noted)
        executor = self.runs[0].batch.executor
        self.joined = Joined(self.recordings, executor, self)
        self.told = Joined(told, executor, self)
        self.schedules = Schedules(self.runs)
        if not captured:
            return self.joined.launch
        # No warm-up: the launches use no torch operators.
        return capture(self.joined.launch, lambda: None, warm_up=0)

    def schedule(self, step: int) -> None:
        """Write the scheduled settings of all runs for ``step`` environment steps."""
        self.schedules.write(step)

    def rates(self, step: int) -> list[dict[str, float]]:
        """Return the learning rates of each run by policy, for the iteration that began at ``step``
        environment steps.
        """
        found = []
        for run in self.runs:
            rates = {name: own.schedules["learning_rate"] for name, own in scheduled(run).items()}
            found.append({name: value_at(rate, step) for name, rate in rates.items()})
        return found

    def tell(self, wishes: Wishes) -> torch.Tensor:
        """Queue the reports and return them, (M, L) float64 on the device."""
        self.told.launch()
        return self.numbers


def recording(run: Run) -> list[Launch]:
    """Record the launches of one iteration of a run without executing them.

    Raises:
        NotJoinedError: If an iteration consists of more than launches of compiled kernels.
    """
    if run.batch.spec.own_program is not None:
        raise NotJoinedError("the environment has its own program")
    if run.batch.program.prints:
        raise NotJoinedError("the environment prints")
    scheduled(run)
    with recorded() as noted:
        run.iterate()
    return noted


def scheduled(run: Run) -> dict[str, Scheduled]:
    """Return the scheduled values of each learner, by policy.

    Raises:
        NotJoinedError: If a learner implements its own schedules.
    """
    found: dict[str, Scheduled] = {}
    for name, learner in run.learners.items():
        if not isinstance(learner, ScheduledLearner):
            raise NotJoinedError("a custom algorithm writes its schedules itself")
        found[name] = learner.scheduled
    return found


class Schedules:
    """The scheduled values of all learners of several runs, written by one launch per iteration.

    Args:
        runs: ``Run``s at the same step.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        executor, self.stream = runs[0].batch.executor, runs[0].rollout.stream
        self.step = runs[0].steps_per_iteration
        self.schedules: list[tuple[tuple[float, float], ...]] = []
        places: list[int] = []
        for own in (each for run in runs for each in scheduled(run).values()):
            own.set(runs[0].step)
            own.forget()  # this launch changes them
            for name, schedule in own.schedules.items():
                if not isinstance(schedule, float):
                    self.schedules.append(schedule)
                    places.append(getattr(own, name).data_ptr())
        self.device, self.first = executor.name, runs[0].step
        self.table = zeros(self.device, 0)
        self.to = torch.tensor(places, dtype=torch.int64, device=self.device)
        self.program = executor.build(assemble_file("train/schedule")) if places else None

    def write(self, step: int) -> None:
        """Queue the launch that writes all values for ``step`` environment steps."""
        if self.program is None:
            return
        if not 0 <= (step - self.first) // self.step < len(self.table):
            self.first, self.table = step, self._ahead(step)
        row = self.table[(step - self.first) // self.step]
        call = make_call({"numbers": len(self.to)}, {"now": row, "to": self.to})
        with self.stream():
            self.program.launch("write_schedules", call, len(self.to), len(self.to))

    def _ahead(self, step: int) -> torch.Tensor:
        """Return the values of the next iterations, (AHEAD, F) float32 on the device."""
        steps = step + self.step * np.arange(AHEAD)
        known = {each: np.interp(steps, *np.array(each).T) for each in set(self.schedules)}
        numbers = np.stack([known[each] for each in self.schedules], 1)
        table = torch.from_numpy(numbers.astype(np.float32))
        if self.device == "cuda":
            return table.pin_memory().to(self.device, non_blocking=True)
        return table
