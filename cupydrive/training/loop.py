"""The host's side of training: it writes schedules, launches iterations, reads their numbers, and saves.

It reads numbers that are one interval old, and never waits for the iteration that it has just launched.
"""

import json
import math
import signal
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from cupydrive.errors import TrainingError
from cupydrive.executors.interop import capture as capture_graph
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.terminal.progress import follow
from cupydrive.training.events import Appended, event_writer
from cupydrive.training.runfolder import checkpoints
from cupydrive.training.torch_settings import memory_errors, precision, threads

ROWS = 1000  # of metrics that a run of its default length keeps
QUEUED = 2  # intervals that may be launched before the oldest has been read


@dataclass
class Interval:
    """Numbers of some iterations, on their way from the device."""

    step: int
    numbers: list  # of tensors on the host: sums, and where numbers were not finite
    ready: object  # CUDA event, or None
    seconds: float
    rates: dict  # learning rate by policy

    def arrived(self):
        """Return whether the host may read the numbers."""
        return self.ready is None or self.ready.query()


class Loop:
    """Trains a run up to ``goal`` env-steps; the other arguments are those of ``train``."""

    def __init__(self, run, goal, out, progress, capture, callback, checkpoint_seconds, keep):
        self.run, self.goal, self.callback, self.keep = run, goal, callback, keep
        self.out = None if out is None else Path(out)
        self.capture, self.checkpoint_seconds = capture, checkpoint_seconds
        iterations = math.ceil((goal - run.step) / run.steps_per_iteration)
        self.every = max(1, math.ceil(run.total / run.steps_per_iteration) // ROWS)
        self.progress = follow(iterations * run.steps_per_iteration, f"train {run.spec.name}", progress)
        self.first_step = run.step
        self.waiting = deque()
        self.file = None

    def go(self):
        """Train until the goal, an interrupt, or a number that is not finite."""
        run, words = self.run, None
        try:
            with precision(run), threads(run), self._metrics_file():
                with memory_errors():
                    iterate = self._prepare()
                self.started = self.saved = time.perf_counter()
                with noted_interrupts() as interrupted:
                    if self._iterate(iterate, interrupted):
                        words = f"interrupted after {run.step:,} env-steps; the result is kept"
                self._receive(0)
                run.seconds += time.perf_counter() - self.started
                if self.out is not None:
                    run.save(self.out, self.keep)  # before another run can take the folder's lock
        finally:
            self.progress.close(words)

    def _iterate(self, iterate, interrupted):
        """Iterate until the goal; return whether an interrupt came first."""
        run, iterations = self.run, 0
        while run.step < self.goal:
            for learner in run.learners.values():
                learner.schedule(run.step)
            with memory_errors():
                iterate()
            run.step += run.steps_per_iteration
            iterations += 1
            if iterations % self.every == 0 or run.step >= self.goal:
                self._send()
            self._receive(QUEUED)
            if self.out is not None and time.perf_counter() - self.saved > self.checkpoint_seconds:
                self._receive(0)
                run.save(self.out, self.keep)
                self.saved = time.perf_counter()
            if interrupted():
                return True
        return False

    def _prepare(self):
        """Return what runs one iteration: the run's own method, or the replay of its CUDA graph."""
        run = self.run
        if self.out is not None and not checkpoints(self.out):
            run.save(self.out, self.keep)  # a kill in the first minutes leaves something to load
        if not self.capture:
            return run.iterate
        kept = run.snapshot()
        try:
            self.graph = capture_graph(run.iterate, lambda: run.restore(kept))
        except KeyboardInterrupt:  # in the middle of the warm-up
            run.restore(kept)
            raise
        return self.graph.replay

    @contextmanager
    def _metrics_file(self):
        """Hold the folder's lock and open the run's metrics for appending; rows after the current step are dropped first.

        Where not even a first checkpoint could be written, the files that were not there before are removed again.
        """
        if self.out is None:
            yield
            return
        with self._writing():
            self.out.mkdir(parents=True, exist_ok=True)
        with self.run.lock.hold(self.out):
            self.run.check_newest(self.out)
            path = self.out / "metrics.jsonl"
            new = [file for file in (path, self.out / "config.json") if not file.exists()]
            try:
                with ExitStack() as opened:
                    with self._writing():
                        write_atomically(path, "".join(json.dumps(row) + "\n" for row in self.run.metrics).encode())
                        self.file = Appended(path)
                        opened.callback(self._close, self.file)
                        self.events = event_writer(self.out, self.run.step)
                        opened.callback(self._close, self.events)
                    new += [self.events.path] if self.events.path else []
                    yield
            finally:
                if not checkpoints(self.out):
                    for file in new:
                        file.unlink(missing_ok=True)

    def _close(self, file):
        with self._writing():
            file.close()

    def _writing(self):
        """Return a context in which errors of the disk become ``TrainingError``."""
        return file_errors(TrainingError, f"the run cannot be written to {self.out} (earlier checkpoints are kept)")

    def _send(self):
        """Queue the copy of all sums to the host and set them to 0."""
        run = self.run
        with torch.no_grad():
            parts = [run.episodes.take()]
            for learner in run.learners.values():
                parts += [learner.metric_sums.double(), learner.bad.double()[None]]
            numbers = torch.cat(parts)
            found = run.rollout.nonfinite
            ready = None
            if run.device == "cuda":
                copies = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in (numbers, found)]
                for copy, x in zip(copies, (numbers, found), strict=True):
                    copy.copy_(x, non_blocking=True)
                ready = torch.cuda.Event()
                ready.record()
            else:
                copies = [numbers, found.clone()]
            for learner in run.learners.values():
                learner.metric_sums.zero_()
        rates = {name: learner.learning_rate for name, learner in run.learners.items()}
        self.waiting.append(Interval(run.step, copies, ready, time.perf_counter(), rates))

    def _receive(self, allowed):
        """Log intervals that have arrived; wait for the oldest while more than ``allowed`` are on their way."""
        while self.waiting and (len(self.waiting) > allowed or self.waiting[0].arrived()):
            interval = self.waiting.popleft()
            if interval.ready is not None:
                interval.ready.synchronize()
            self._log(interval)

    def _log(self, interval):
        run = self.run
        numbers, found = (x.tolist() for x in interval.numbers)
        row, bad = self._row(interval, numbers)
        where = run.rollout.describe_nonfinite(found)
        if where is not None or bad:
            what = where or f"the loss of policy {bad[0]!r}"
            raise TrainingError(
                f"{run.spec.name}: {what} is not finite, by env-step {interval.step:,}. Training has stopped; the weights are "
                f"those before it{', the last checkpoint is kept' if self.out is not None else ''}"
            )
        run.metrics.append(row)
        if self.file is not None:
            with self._writing():
                self.file.append(json.dumps(row).encode() + b"\n")
                self.events.add(row, interval.step)
        self.progress.update(interval.step - self.first_step, row)
        if self.callback is not None:
            self._call_back(interval.step, row)

    def _call_back(self, step, row):
        """Call the user's function; if it raises, first log what has been trained, and keep the run.

        Into a folder the run is saved; without one, the exception that goes on carries it as its attribute ``run``, since
        ``train`` returns nothing then.
        """
        callback, self.callback = self.callback, None
        try:
            callback(step, row)
        except KeyboardInterrupt:  # Ctrl-C pressed twice: nothing more is written
            raise
        except BaseException as error:  # whatever the user's function raises goes on from here
            self._receive(0)
            if self.out is not None:
                self.run.save(self.out, self.keep)
            else:
                error.run = self.run
                error.add_note(f"the run up to env-step {self.run.step:,} is kept as this exception's `run`")
            raise
        self.callback = callback

    def _row(self, interval, numbers):
        """Return the metrics of an interval, with CleanRL's names, and the policies whose loss was not finite.

        ``charts/episodes`` counts the episodes that ended in the interval. What is said of episodes is the mean over
        environments of each one's latest episode; it is left out until each has ended one, since the first are the short ones.
        """
        run, bad = self.run, []
        count = 2 + len(run.episodes.names)
        (episodes, shortest, *means), numbers = numbers[:count], numbers[count:]
        seconds = max(interval.seconds - self.started, 1e-9)
        row = {
            "charts/global_step": interval.step,
            "charts/SPS": (interval.step - self.first_step) / seconds,
            "charts/episodes": int(episodes),
        }
        single = len(run.batch.groups) == 1
        if shortest > 0:  # each environment has ended an episode
            for name, mean in zip(run.episodes.names, means, strict=True):
                if name == "length":
                    row["charts/episodic_length"] = mean
                elif name.startswith("return."):
                    group = "" if single else "/" + name.removeprefix("return.")
                    row[f"charts/episodic_return{group}"] = mean
                else:
                    row[f"env/{name}"] = mean
        for name, learner in run.learners.items():
            under = "" if len(run.learners) == 1 else f"{name}/"
            count = len(learner.metric_sums)
            if numbers[count]:
                bad.append(name)
            row |= {f"losses/{under}{key}": value for key, value in learner.losses(numbers[:count]).items()}
            numbers = numbers[count + 1 :]
            row[f"charts/{under}learning_rate"] = interval.rates[name]
        return row, bad


@contextmanager
def noted_interrupts():
    """Give a function that says whether Ctrl-C was pressed: an iteration is finished before training ends.

    Ctrl-C pressed twice interrupts at once, and nothing more is written. Threads other than the main one cannot hear it.
    """
    pressed = []

    def note(number, frame):
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
