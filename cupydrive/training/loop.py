"""Host side of training: write schedules, launch iterations, read their numbers, and save.

The loop reads numbers that are one interval old, so it never waits for the iteration that it has
just launched. If several processes train one run, they exchange control flags together with an
interval's numbers, and act on them once all processes have read them.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cupydrive.errors import NotFiniteError
from cupydrive.executors.modes import EXCLUSIVE, SETTINGS_LOCK
from cupydrive.playing.torch_settings import memory_errors
from cupydrive.training.explain import Failure
from cupydrive.training.logbook import Logbook
from cupydrive.training.processes import handled
from cupydrive.training.ranks import WISHES, Wishes, require_equal_weights

if TYPE_CHECKING:
    from cupydrive.training.config import TrainConfig
    from cupydrive.training.together import Alone, Together


METRIC_ROWS = 1000  # number of logged intervals of a run of default length
QUEUED = 2  # intervals that may be launched before the oldest has been read
INTERVAL_SECONDS = 1.0  # maximum duration of an interval, which delays control flags
FINISHING = "Interrupted. Finishing this iteration. Press Ctrl-C again to abort."
MOST_EXPLAINED = 4  # failed runs that are explained before the error is raised


@dataclass
class Interval:
    """Numbers of some iterations, copied asynchronously from the device."""

    step: int
    numbers: torch.Tensor  # result of `tell`, on the host
    ready: torch.cuda.Event | None  # recorded after the copy, None on a CPU
    seconds: float
    rates: list[dict[str, float]]  # learning rates by policy, for each run

    def arrived(self) -> bool:
        """Return whether the host may read the numbers."""
        return self.ready is None or self.ready.query()


class Loop:
    """Train runs up to ``configs[0].steps`` environment steps each.

    Args:
        trained: ``Alone`` or ``Together``.
        configs: ``TrainConfig`` of each run. They may differ in folders and in the settings that
            runs in parallel may vary.
        line: Progress line. Its ``update`` takes the environment steps of one run since the loop
            was created, and a row of metrics.
        callback: ``callback(step, metrics, index of the run)``, or None. Training ends when it
            returns True.
        explains: Explain non-finite numbers by a replay.

    Attributes:
        failures: ``NotFiniteError`` of each failed run, by index of the run.
        interrupted: Whether Ctrl-C or the callback ended training, or Ctrl-C ended the explanation
            of a failure.
    """

    def __init__(
        self,
        trained: Alone | Together,
        configs: Sequence[TrainConfig],
        line: Any,
        callback: Callable[[int, dict[str, float], int], object] | None = None,
        explains: bool = True,
    ) -> None:
        config, first = configs[0], trained.runs[0]
        self.trained, self.line, self.callback, self.explains = trained, line, callback, explains
        self.goal, self.progress = config.steps, config.progress
        self.checkpoint_seconds = 60 * config.checkpoint_minutes
        captures = first.shard.ranks.captures(first.device)
        self.cuda_graph = captures if config.cuda_graph is None else config.cuda_graph
        self.books: list[Logbook] = []
        for run, each in zip(trained.runs, configs, strict=True):
            self.books.append(Logbook(run, each.out, each.keep))
            run.total = max(self.goal, run.total)
        self.first_step = self.step = first.step
        self.iteration_steps = first.steps_per_iteration
        most = math.ceil(first.total / first.steps_per_iteration) // METRIC_ROWS
        self.most = max(1, most)  # iterations of an interval
        self.waiting: deque[Interval] = deque()
        self.failures: dict[int, NotFiniteError] = {}
        self.several = not trained.ranks.alone
        self.every = 1 if self.several else self.most
        self.iterations, self.since = 0, 0  # total, and since numbers were last sent
        self.agreed, self.enough, self.interrupted = Wishes(), False, False
        self.return_weights()

    def go(self) -> None:
        """Train until the goal, an interrupt, or until every run has failed.

        Raises:
            NotFiniteError: If every run has failed. It is the error of the first failure.
        """
        runs = self.trained.runs
        with runs[0].computing(), ExitStack() as opened:
            for book in self.books:
                opened.enter_context(book.opened())
            for book in self.books:
                book.save_first()
            self.prepare()
            try:
                with noted_interrupts() as pressed:
                    while self.step < self.goal and not self.interrupted:
                        self.interrupted = self.advance(pressed)
                self.finish()
            except KeyboardInterrupt as error:  # Ctrl-C pressed twice
                left = "the last checkpoint is kept"
                if self.books[0].out is None:
                    left = "nothing is kept, since there is no out (--out DIR)"
                error.args = (f"aborted in the middle of an iteration, {left}",)
                raise
            except NotFiniteError:  # every run has failed
                self._explain()
                raise next(iter(self.failures.values())) from None
            self._save()  # before another run can take a folder's lock
            self._explain()

    def _explain(self) -> None:
        """Add explanations to the errors and folders of the first failed runs, until Ctrl-C."""
        for number in list(self.failures)[: MOST_EXPLAINED if self.explains else 0]:
            try:
                line = self.books[number].explain(self.progress)
            except KeyboardInterrupt:
                line = (
                    "No explanation: interrupted. Call explain() on the error's `run` to restart it"
                )
                self.interrupted = True
            error = NotFiniteError(f"{self.failures[number]}. {line}")
            error.run, self.failures[number] = self.trained.runs[number], error
            if self.interrupted:
                break

    # ---- single iterations, called by `go` or by the loop of another library ----

    def prepare(self) -> None:
        """Prepare to iterate. With ``cuda_graph``, run trial iterations and restore the state."""
        # CUDA graphs keep the modes that are set during capture.
        with memory_errors(), EXCLUSIVE, SETTINGS_LOCK, self.trained.runs[0].computing():
            self.iterate = self.trained.prepare(
                [book.report for book in self.books], self.cuda_graph
            )
        self.started = self.saved = time.perf_counter()

    def return_weights(self) -> None:
        """Copy weights that torch has moved back into the learner's own memory."""
        for run in self.trained.runs:
            run.return_weights()

    def advance(self, interrupted: Callable[[], bool]) -> bool:
        """Run one iteration, log metrics that have arrived, and save a checkpoint if one is due.

        Args:
            interrupted: Returns whether Ctrl-C was pressed. If several processes train, all of them
                stop when one was interrupted.

        Returns:
            Whether training ends before its total number of steps.
        """
        # A callback or another thread may have moved weights between two intervals. The check takes
        # 10 us for each run.
        if self.since == 0 and (len(self.books) == 1 or self.callback is not None):
            self.return_weights()
        self.trained.schedule(self.step)
        with memory_errors():
            self.iterate()
        self._count()
        self.since += 1
        if self.since >= self.every or self.step >= self.goal:
            self._send(self._wishes(interrupted))
        self._receive(QUEUED)
        if self.several:
            return self._do_agreed()
        stop = interrupted() or self.enough
        if time.perf_counter() - self.saved > self.checkpoint_seconds:
            self._save_now()
        return stop

    def flush(self) -> None:
        """Wait for the device and log all iterations, including those of an unfinished interval.

        All processes must call it.
        """
        if self.since:
            self._send(Wishes())
        self._receive(0)

    def finish(self) -> None:
        """Log all iterations and add the elapsed time to the runs."""
        self.flush()
        for run in self.trained.runs:
            run.seconds += time.perf_counter() - self.started

    def _save_now(self) -> None:
        """Log all iterations and save checkpoints."""
        self.flush()  # detects non-finite numbers before anything is saved
        self._save()
        self.saved = time.perf_counter()

    def _do_agreed(self) -> bool:
        """Act on the control flags that all processes agree on. Return whether training ends."""
        if self.agreed.save:
            run = self.trained.runs[0]
            require_equal_weights(run.shard.ranks, run.policies, self.step)
            self._save_now()
            self.agreed = Wishes(stop=self.agreed.stop)
        return self.agreed.stop

    def _wishes(self, interrupted: Callable[[], bool]) -> Wishes:
        """Return the control flags of this process."""
        now = time.perf_counter()
        each = (now - self.started) / max(1, self.iterations)
        return Wishes(
            interrupted() or self.enough, now - self.saved > self.checkpoint_seconds, each
        )

    def _count(self) -> None:
        """Count the iteration."""
        self.iterations += 1
        self.step += self.iteration_steps
        for run in self.trained.runs:
            run.step = self.step

    def _save(self) -> None:
        """Write checkpoints of all runs that have not failed."""
        for number, book in enumerate(self.books):
            if number not in self.failures:
                book.save()

    def _send(self, wishes: Wishes) -> None:
        """End an interval: queue the copy of all sums to the host and reset them to 0."""
        self.since = 0
        with torch.no_grad():
            numbers, ready = self.trained.tell(wishes), None
            if numbers.is_cuda:
                copy = torch.empty(
                    numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True
                )
                copy.copy_(numbers, non_blocking=True)
                ready = torch.cuda.Event()
                ready.record()
            else:
                copy = numbers.clone()
        rates = self.trained.rates(self.step - self.iteration_steps)
        self.waiting.append(Interval(self.step, copy, ready, time.perf_counter(), rates))

    def _receive(self, allowed: int) -> None:
        """Log intervals that have arrived. Wait while more than ``allowed`` are in flight.

        If several processes train, they log an interval only when they must, so that all of them
        have read the same intervals.
        """
        while self.waiting:
            if len(self.waiting) <= allowed and (self.several or not self.waiting[0].arrived()):
                return
            interval = self.waiting.popleft()
            if interval.ready is not None:
                interval.ready.synchronize()
            self._log(interval)

    def _log(self, interval: Interval) -> None:
        rows = {}
        if self.several:
            self._agree(Wishes.of_all(interval.numbers[0, :, -WISHES:]))
            interval.numbers = interval.numbers[:, :, :-WISHES]
        for number, book in enumerate(self.books):
            if number in self.failures:
                continue
            numbers, rates = interval.numbers[number], interval.rates[number]
            try:
                rows[number] = book.add(
                    interval.step, interval.seconds - self.started, numbers, rates
                )
            except NotFiniteError as error:
                self._note_failure(number, error, interval.step)
        if not rows:
            raise next(iter(self.failures.values()))
        self.line.update(interval.step - self.first_step, next(iter(rows.values())))
        for number, row in rows.items():
            if self.callback is not None:
                self._call_back(interval.step, row, number)

    def _note_failure(self, number: int, error: NotFiniteError, step: int) -> None:
        """Store a run's error and the ``Failure`` that a replay needs."""
        run = self.trained.runs[number]
        error.run, self.failures[number] = run, error
        if run.failed is None:
            seconds = (time.perf_counter() - self.started) / (step - self.first_step) * step
            run.failed = Failure(step, seconds, self.cuda_graph)

    def _agree(self, wishes: Wishes) -> None:
        """Store the agreed control flags until they are acted on, and adapt the interval length."""
        self.agreed = Wishes(self.agreed.stop or wishes.stop, self.agreed.save or wishes.save)
        if wishes.seconds > 0:
            self.every = max(1, min(self.most, int(INTERVAL_SECONDS / wishes.seconds)))

    def _call_back(self, step: int, row: dict[str, float], number: int) -> None:
        """Call the user's callback. If it raises, log all iterations and keep the run first.

        With a folder, the run is saved there. Otherwise the exception carries it as its attribute
        ``run``, because ``train`` returns no run in this case.
        """
        callback: Any = self.callback
        self.callback = None
        try:
            said = callback(step, row, number)
            # Other return values are ignored.
            self.enough |= isinstance(said, bool | np.bool_) and bool(said)
        except KeyboardInterrupt:  # Ctrl-C pressed twice: nothing more is written
            raise
        except BaseException as error:  # any exception of the callback is re-raised below
            with suppress(NotFiniteError):  # failed runs are not saved
                self.flush()
            self._save()
            run, book = self.trained.runs[number], self.books[number]
            if book.out is None:
                error.run = run  # type: ignore[attr-defined]
                error.add_note(
                    f"the run up to env-step {run.step:,} is kept as this exception's `run`"
                )
            raise
        self.callback = callback


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed.

    The first press lets the current iteration finish, which may take seconds, and prints a notice
    to the standard error. The second press raises ``KeyboardInterrupt`` immediately, and nothing
    more is written. Ctrl-C is noticed only in the main thread, and only if no host program handles
    the signal itself.
    """
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        # The stream may be in use by the interrupted code, or closed.
        with suppress(RuntimeError, OSError, ValueError, AttributeError):
            begin = "\n" if sys.stderr.isatty() else ""  # below the progress line
            print(f"{begin}cupydrive: {FINISHING}", file=sys.stderr, flush=True)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    with handled(signal.SIGINT, note):
        yield lambda: bool(pressed)
