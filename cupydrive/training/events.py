"""Files of training that grow: records are appended whole or not at all, among them TensorBoard's events.

Records are written by the thread that trains, a few hundred bytes per logged interval: TensorBoard's own writer has a thread
of its own, whose errors on a full disk would reach nobody but the terminal.
"""

from __future__ import annotations

import io
import itertools
import os
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_numbers = itertools.count()  # so that two files of one process and second differ


class Appended:
    """A file that records are appended to; one that cannot be written whole is taken back.

    Args:
        path: The file; it is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  ``close`` closes it

    def append(self, record: bytes) -> None:
        """Append bytes.

        Raises:
            OSError: If they cannot be written; the file is as it was before.
        """
        size = os.fstat(self._file.fileno()).st_size
        rest = memoryview(record)
        try:
            while rest:  # the last write before a disk is full may be a part of what it was given
                rest = rest[self._file.write(rest) :]
        except OSError:
            os.ftruncate(self._file.fileno(), size)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Events:
    """TensorBoard's event file of one training session.

    Args:
        folder: Of the run.
        step: Env-steps done; TensorBoard hides what earlier files say of later ones.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        self._file, self._event = Appended(folder / name), Event
        self.path = self._file.path
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
        self._file.append(record.getvalue())

    def add(self, row: Mapping[str, float], step: int) -> None:
        """Write a row of metrics, numbers by name, as of ``step`` env-steps."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._append(step=step, summary=Summary(value=values))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class NoEvents:
    """Stands where TensorBoard is not installed."""

    path = None

    def add(self, row: Mapping[str, float], step: int) -> None:
        """Write nothing."""

    def close(self) -> None:
        """Close nothing."""


def event_writer(folder: Path, step: int) -> Events | NoEvents:
    """Return a writer of TensorBoard's event files, which hides what was written after ``step``; without it: of nothing."""
    return NoEvents() if find_spec("tensorboard") is None else Events(folder, step)
