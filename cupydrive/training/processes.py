"""Several processes that train one run: ``train --gpus`` starts them, and each of them, or of
torchrun's, joins the others.

They meet in a file that is the user's own, or where torchrun says; on one machine they talk over
the loopback interface alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from cupydrive.errors import CupydriveError, DeviceError
from cupydrive.executors import choose, cuda_problem
from cupydrive.executors.ahead import usable_cores
from cupydrive.inputs.arguments import checked_int

# environment variable: the file in which processes that were started here meet
MEETING = "CUPYDRIVE_MEETING"
LOST = 3  # exit code of a process that ends because another one has
GRACE = 10.0  # seconds that the others have to end by themselves once one has failed
# that one waits for another, which may compile or save, before it is lost
PATIENCE = timedelta(minutes=5)
POLL = 0.05  # seconds between looks at them
# Of the command line, which processes started here are given, too.
arguments: ContextVar[list[str]] = ContextVar("arguments")
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


def start_on_gpus(asked: str, device: str) -> int | None:
    """Run this process's own command in a process for each GPU; return the exit code, or None where
    this one is to do it.

    Args:
        asked: What ``--gpus`` was given: a number, or ``"all"``.
        device: What ``--device`` was given.

    Raises:
        DeviceError: If there are not as many GPUs.
        CupydriveError: If ``device`` is the CPU, or this process is one of several that something
            else has started.
    """
    if MEETING in os.environ:
        return None
    if device == "cpu" or "RANK" in os.environ:
        raise CupydriveError(
            f"--gpus {asked} starts a process for each GPU: leave out --device cpu, and torchrun"
        )
    if problem := cuda_problem():
        raise DeviceError(f"--gpus {asked}: {problem}")
    import cupy

    there = cupy.cuda.runtime.getDeviceCount()
    number = int(asked) if asked.isdecimal() else asked
    count = there if asked == "all" else checked_int("cupydrive", "--gpus", number, 1, there)
    return start_processes(count, arguments.get()) if count > 1 else None


# ---- one of several ----


@contextlib.contextmanager
def joined_processes(device: str) -> Iterator[bool]:
    """Be one of the processes that train together, if this is one of several: give whether it is
    the one that prints.

    Args:
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``: a GPU is the one of the process's number on its
            machine.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if "RANK" not in os.environ or size < 2:
        yield True
        return
    _own_gpu(int(os.environ.get("LOCAL_RANK", rank)))
    from torch import distributed

    meeting = os.environ.get(MEETING)
    if meeting and sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGTERM)
    where = {"init_method": Path(meeting).as_uri()} if meeting else {}
    backend = "nccl" if choose(device)[0] == "cuda" else "gloo"
    distributed.init_process_group(backend, rank=rank, world_size=size, timeout=PATIENCE, **where)
    try:
        yield rank == 0
    finally:
        distributed.destroy_process_group()


def _own_gpu(local: int) -> None:
    """Make the ``local``-th GPU the only one that this process sees, before a library has
    looked.
    """
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    os.environ["CUDA_VISIBLE_DEVICES"] = seen[local % len(seen)] if seen else str(local)


# ---- all of them ----


@contextlib.contextmanager
def handled(number: int, handler: Callable) -> Iterator[None]:
    """Handle a signal by ``handler`` for a while.

    A host program that has Python inside it, such as R, may handle the signal outside Python. Its
    handler stays in place, since Python could not put it back.
    """
    if signal.getsignal(number) is None:
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def start_processes(count: int, arguments: list[str]) -> int:
    """Run ``cupydrive ARGUMENTS`` in ``count`` processes of this machine and return the exit code.

    The first has this process's terminal. Ctrl-C goes to it, and the others hear of it from it; a
    second one ends all. When one has ended otherwise than well, the others do within seconds, and
    one line says which and how.
    """
    with tempfile.TemporaryDirectory(prefix="cupydrive-") as named:
        folder = Path(named)
        children = [start_one(rank, count, arguments, folder) for rank in range(count)]
        pressed = []

        def interrupt(number: int, frame: FrameType | None) -> None:
            pressed.append(number)
            for child in children[:1] if len(pressed) == 1 else children:
                child.send_signal(signal.SIGINT)

        try:
            with handled(signal.SIGINT, interrupt):
                return wait_for(children, folder)
        finally:
            _end(children)


def start_one(rank: int, count: int, arguments: list[str], folder: Path) -> subprocess.Popen:
    """Start the process of one rank; what others than the first write goes to files of
    ``folder``.
    """
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, MEETING: folder / "meeting"}
    cores = max(1, usable_cores() // count)
    usual = {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": 1,
        "CUPYDRIVE_THREADS": cores,
    }
    environment = {name: str(value) for name, value in usual.items()} | os.environ
    environment |= {name: str(value) for name, value in own.items()}
    with open(folder / f"{rank}.log", "wb") as log:
        streams: dict[str, Any] = (
            {} if rank == 0 else {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        )
        command = [sys.executable, "-m", "cupydrive", *arguments]
        return subprocess.Popen(command, env=environment, start_new_session=True, **streams)


def _end(children: list[subprocess.Popen]) -> None:
    """End the processes that have not ended."""
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def wait_for(children: list[subprocess.Popen], folder: Path) -> int:
    """Wait for all processes and return 0, or the exit code of the one whose end was the first
    cause of another's.

    Once one has failed, the others hear of it when they next exchange something, and end. They have
    ``GRACE`` seconds for that: now and then one does not hear of it, and would wait for the lost
    one for minutes (seen with gloo, once in 56 times).
    """
    since: float | None = None
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        for rank, child in enumerate(children):
            if rank not in codes and child.poll() is not None:
                codes[rank] = child.returncode
                since = time.monotonic() if since is None and child.returncode else since
        if since is not None and time.monotonic() - since > GRACE:
            _end(children)
            break
        time.sleep(POLL)
    failed = {rank: code for rank, code in sorted(codes.items()) if code}
    if not failed:
        return 0
    rank, code = next(
        ((rank, code) for rank, code in failed.items() if code != LOST), next(iter(failed.items()))
    )
    if rank > 0 or code < 0:
        print(f"cupydrive: {_ended(rank, code, folder)}", file=sys.stderr, flush=True)
    return code if code > 0 else 128 - code


def _ended(rank: int, code: int, folder: Path) -> str:
    """Return one line about a process that has ended."""
    if code < 0:
        return (
            f"process {rank} of this run was ended by signal {-code} "
            f"({signal.Signals(-code).name}), and the run with it; the last checkpoint is kept: "
            f"go on with --resume"
        )
    lines = (
        (folder / f"{rank}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    )
    return (
        f"process {rank} of this run: "
        f"{lines[-1].removeprefix('cupydrive: ') if lines else f'exit code {code}'}"
    )
