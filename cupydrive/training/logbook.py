"""Logbook: the metrics, checkpoints and TensorBoard events that a run writes while it trains.

The training thread appends each record completely or not at all. TensorBoard's own writer is not
used, because it writes from a separate thread and reports a full disk only on the terminal.
"""

from __future__ import annotations

import io
import itertools
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupydrive.errors import NotFiniteError, TrainingError
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.training.explain import EXPLANATION_FILE
from cupydrive.training.report import MetricReport
from cupydrive.training.runfolder import check_newest, checkpoints, not_written, pack_metrics

if TYPE_CHECKING:
    import torch

    from cupydrive.spec import EnvSpec, Group
    from cupydrive.training.run import Run

MetricsRow = dict[str, float]  # numbers by name
_numbers = itertools.count()  # distinguishes files that a process creates in the same second


class Appended:
    """A file to which records are appended. A partly written record is removed again.

    Args:
        path: The file. It is created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  ``close`` closes it

    def append(self, record: bytes) -> None:
        """Append bytes.

        Raises:
            OSError: If they cannot be written. The file is then unchanged.
        """
        size = os.fstat(self._file.fileno()).st_size
        rest = memoryview(record)
        try:
            while rest:  # the last write before the disk is full may be partial
                rest = rest[self._file.write(rest) :]
        except OSError:
            os.ftruncate(self._file.fileno(), size)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Events(Appended):
    """TensorBoard's event file of one training session.

    Args:
        folder: Folder of the run.
        step: Environment steps done. TensorBoard hides later steps of earlier files.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        unique = f"{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        name = f"events.out.tfevents.{int(time.time()):010d}.{unique}"
        super().__init__(folder / name)
        self._event = Event
        try:
            self._append(file_version="brain.Event:2")
            if step:
                self._append(step=step + 1, session_log=SessionLog(status=SessionLog.START))
        except OSError:
            self.close()
            self.path.unlink()
            raise

    def _append(self, **about: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        record = io.BytesIO()
        RecordWriter(record).write(self._event(wall_time=time.time(), **about).SerializeToString())
        self.append(record.getvalue())

    def add(self, row: Mapping[str, float], step: int) -> None:
        """Write a row of metrics (values by name) at ``step`` environment steps."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._append(step=step, summary=Summary(value=values))


def episode_metrics(groups: Sequence[Group], spec: EnvSpec) -> list[str]:
    """Return the metric names of the numbers of ``LatestEpisodes``, in their order.

    Args:
        groups: ``Group``s of the environment.
        spec: ``EnvSpec`` of the environment.
    """
    returns = ["charts/episodic_return"]
    if len(groups) > 1:
        returns = [f"charts/episodic_return/{g.name}" for g in groups]
    return ["charts/episodic_length", *returns, *(f"env/{name}" for name in spec.metrics)]


class Logbook:
    """Metrics and checkpoints of one run, from its present step on.

    If several ranks train the run, rank 0 writes the files.

    Args:
        run: ``Run``.
        out: Folder, or None.
        keep: Number of checkpoints to keep.
    """

    def __init__(self, run: Run, out: Path | None, keep: int) -> None:
        self.run, self.keep = run, keep
        self.file: Appended | None = None
        self.events: Events | None = None  # without TensorBoard
        self.folder = out
        self.out = out if run.shard.ranks.rank == 0 else None
        self.first_step, self.report = run.step, MetricReport(run)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder's lock and open the run's metrics for appending.

        Rows after the current step are dropped first. If not even a first checkpoint could be
        written, the newly created files are removed again.
        """
        if self.out is None:
            yield
            return
        with self._writing():
            self.out.mkdir(parents=True, exist_ok=True)
        with self.run.lock.hold(self.out):
            check_newest(self.out, self.run.step)
            path = self.out / "metrics.jsonl"
            new = [file for file in (path, self.out / "config.json") if not file.exists()]
            try:
                with ExitStack() as opened:
                    with self._writing():
                        # Remove the explanation of an earlier failure.
                        (self.out / EXPLANATION_FILE).unlink(missing_ok=True)
                        write_atomically(path, pack_metrics(self.run.metrics))
                        self.file = Appended(path)
                        opened.callback(self._close, self.file)
                        if find_spec("tensorboard") is not None:
                            self.events = Events(self.out, self.run.step)
                            opened.callback(self._close, self.events)
                            new.append(self.events.path)
                    yield
            finally:
                if not checkpoints(self.out):
                    for file in new:
                        file.unlink(missing_ok=True)

    def _writing(self) -> AbstractContextManager[None]:
        """Return a context that converts disk errors to ``TrainingError``."""
        return file_errors(TrainingError, not_written(self.out))  # type: ignore[arg-type]

    def _close(self, file: Appended) -> None:
        with self._writing():
            file.close()

    def save(self) -> None:
        """Write a checkpoint if there is a folder. All ranks must call it."""
        if self.folder is not None:
            self.run.save(self.folder, self.keep)

    def save_first(self) -> None:
        """Write a checkpoint if there is none, so that a run killed in its first minutes can be
        loaded.
        """
        if self.folder is None:
            return
        there = self.run.shard.ranks.gather_bytes(b"there" if checkpoints(self.folder) else b"")
        if not there[0]:
            self.save()

    def explain(self, progress: bool) -> str:
        """Explain the failure, write the text into the folder, and return a line for the error."""
        try:
            found = self.run.explain(progress)
            if self.folder is None:
                return f"{found.line}. Details: call explain() on the error's `run`"
            path = self.folder / EXPLANATION_FILE
            with self._writing():
                write_atomically(path, f"{found}\n".encode())
        # The replay calls functions of the user. Their errors must not hide the failure.
        except Exception as error:
            return f"No explanation: {error}"
        return f"{found.line}. Details: {path}"

    def add(
        self, step: int, seconds: float, numbers: torch.Tensor, rates: MetricsRow
    ) -> MetricsRow:
        """Log the row of an interval and return it.

        Args:
            step: Environment steps done at the end of the interval.
            seconds: Training time in seconds up to the end of the interval.
            numbers: Numbers for ``MetricReport.read``.
            rates: Learning rate by policy.

        Raises:
            NotFiniteError: If a number is not finite.
            TrainingError: If the folder cannot be written.
        """
        row, nonfinite = self._row(step, seconds, numbers, rates)
        if nonfinite is not None:
            raise NotFiniteError(
                f"{self.run.spec.name}: {nonfinite} is not finite, by env-step {step:,}. Training "
                f"has stopped. The weights are those before "
                f"it{', the last checkpoint is kept' if self.folder is not None else ''}"
            )
        self.run.metrics.append(row)
        if self.file is not None:
            with self._writing():
                self.file.append(pack_metrics([row]))
                if self.events is not None:
                    self.events.add(row, step)
        return row

    def _row(
        self, step: int, seconds: float, numbers: torch.Tensor, rates: MetricsRow
    ) -> tuple[MetricsRow, str | None]:
        """Return the metrics of an interval, and a description of a non-finite number or None.

        The names are CleanRL's. ``charts/episodes`` counts the episodes that ended in the interval.
        Metrics of episodes are means over the latest episode of each environment. They are omitted
        until every environment has finished an episode, because the first to finish are short.
        """
        run = self.run
        found = self.report.read(numbers)
        speed = (step - self.first_step) / max(seconds, 1e-9)
        row = {"charts/global_step": step, "charts/SPS": speed, "charts/episodes": found.episodes}
        if found.least > 0:  # each environment has ended an episode
            row |= zip(episode_metrics(run.batch.groups, run.spec), found.means, strict=True)
        for (name, learner), own in zip(run.learners.items(), found.sums, strict=True):
            under = "" if len(run.learners) == 1 else f"{name}/"
            row |= {f"losses/{under}{key}": value for key, value in learner.losses(own).items()}
            row[f"charts/{under}learning_rate"] = rates[name]
        unsound = [name for name, is_bad in zip(run.learners, found.bad, strict=True) if is_bad]
        where = run.rollout.describe_nonfinite(found.found, found.envs)
        return row, where or (f"the loss of policy {unsound[0]!r}" if unsound else None)
