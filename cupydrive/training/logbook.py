"""Logbook: what is kept of one run while it trains: rows of metrics, in memory and in its folder, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cupydrive.errors import NotFiniteError, TrainingError
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.training.events import Appended, Events, NoEvents, event_writer
from cupydrive.training.explain import EXPLANATION_FILE
from cupydrive.training.report import Report
from cupydrive.training.runfolder import check_newest, checkpoints, not_written, pack_metrics

if TYPE_CHECKING:
    import torch

    from cupydrive.spec import EnvSpec, Group
    from cupydrive.training.run import Run


def episode_metrics(groups: Sequence[Group], spec: EnvSpec) -> list[str]:
    """Return what rows call the numbers of ``LatestEpisodes``, in their order.

    Args:
        groups: ``Group``s of the environment.
        spec: Its ``EnvSpec``.
    """
    returns = [f"charts/episodic_return/{g.name}" for g in groups] if len(groups) > 1 else ["charts/episodic_return"]
    return ["charts/episodic_length", *returns, *(f"env/{name}" for name in spec.metrics)]


class Logbook:
    """Rows and checkpoints of one run, from its present step on; of several ranks the first writes them.

    Args:
        run: ``Run``.
        out: Folder, or None.
        keep: Checkpoints to keep.
    """

    def __init__(self, run: Run, out: Path | None, keep: int) -> None:
        self.run, self.keep = run, keep
        self.file: Appended | None = None
        self.events: Events | NoEvents = NoEvents()
        self.folder = out
        self.out = out if run.shard.ranks.rank == 0 else None
        self.first_step, self.report = run.step, Report(run)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder's lock and open the run's metrics for appending; rows after the current step are dropped first.

        Where not even a first checkpoint could be written, the files that were not there before are removed again.
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
                        (self.out / EXPLANATION_FILE).unlink(missing_ok=True)  # of an earlier failure
                        write_atomically(path, pack_metrics(self.run.metrics))
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

    def _close(self, file: Appended | Events | NoEvents) -> None:
        with self._writing():
            file.close()

    def _writing(self) -> AbstractContextManager[None]:
        """Return a context in which errors of the disk become ``TrainingError``."""
        return file_errors(TrainingError, not_written(self.out))  # type: ignore[arg-type]

    def save(self) -> None:
        """Write a checkpoint of this moment, if there is a folder; all ranks take part."""
        if self.folder is not None:
            self.run.save(self.folder, self.keep)

    def save_first(self) -> None:
        """Write a checkpoint where there is none: a kill in the first minutes leaves something to load."""
        if self.folder is None:
            return
        there = self.run.shard.ranks.gather_bytes(b"there" if checkpoints(self.folder) else b"")
        if not there[0]:
            self.save()

    def explain(self, progress: bool) -> str:
        """Find why training failed, write it into the folder, and return one line for the error."""
        try:
            found = self.run.explain(progress)
        except Exception as error:  # the replay calls functions of the user, which must not hide the failure
            return f"It is not explained: {error}"
        if self.folder is None:
            return f"{found.line}; more: explain() of the run, which the error has as `run`"
        path = self.folder / EXPLANATION_FILE
        try:
            if self.out is not None:
                with self._writing():
                    write_atomically(path, f"{found}\n".encode())
        except TrainingError as error:
            return f"{found.line}; {error}"
        return f"{found.line}; more: {path}"

    def add(self, step: int, seconds: float, numbers: torch.Tensor, rates: dict[str, float]) -> dict[str, float]:
        """Keep the row of an interval and return it.

        Args:
            step: Env-steps done at its end.
            seconds: Of training until then.
            numbers: As of ``Report.read``.
            rates: Learning rate by policy.

        Raises:
            NotFiniteError: If a number was not finite.
            TrainingError: If the folder cannot be written.
        """
        row, nonfinite = self._row(step, seconds, numbers, rates)
        if nonfinite is not None:
            raise NotFiniteError(
                f"{self.run.spec.name}: {nonfinite} is not finite, by env-step {step:,}. Training has stopped; the weights are "
                f"those before it{', the last checkpoint is kept' if self.folder is not None else ''}"
            )
        self.run.metrics.append(row)
        if self.file is not None:
            with self._writing():
                self.file.append(pack_metrics([row]))
                self.events.add(row, step)
        return row

    def _row(
        self, step: int, seconds: float, numbers: torch.Tensor, rates: dict[str, float]
    ) -> tuple[dict[str, float], str | None]:
        """Return the metrics of an interval, with CleanRL's names, and what was not finite or None.

        ``charts/episodes`` counts the episodes that ended in the interval. What is said of episodes is the mean over
        environments of each one's latest episode; it is left out until each has ended one, since the first are the short ones.
        """
        run = self.run
        found = self.report.read(numbers)
        row = {
            "charts/global_step": step,
            "charts/SPS": (step - self.first_step) / max(seconds, 1e-9),
            "charts/episodes": found.episodes,
        }
        if found.least > 0:  # each environment has ended an episode
            row |= zip(episode_metrics(run.batch.groups, run.spec), found.means, strict=True)
        for (name, learner), own in zip(run.learners.items(), found.sums, strict=True):
            under = "" if len(run.learners) == 1 else f"{name}/"
            row |= {f"losses/{under}{key}": value for key, value in learner.losses(own).items()}
            row[f"charts/{under}learning_rate"] = rates[name]
        unsound = [name for name, is_bad in zip(run.learners, found.bad, strict=True) if is_bad]
        where = run.rollout.describe_nonfinite(found.found, found.envs)
        return row, where or (f"the loss of policy {unsound[0]!r}" if unsound else None)
