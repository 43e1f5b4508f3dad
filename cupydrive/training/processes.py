"""Training of one run by several processes, started by ``train --gpus`` or by torchrun.

The processes rendezvous through a file that only the user can access, or through torchrun's
address. On one machine they communicate only over the loopback interface.
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

# Environment variable with the rendezvous file of processes that `start_processes` has started.
MEETING = "CUPYDRIVE_MEETING"
LOST = 3  # exit code of a process that ends because another one has ended
GRACE = 10.0  # seconds in which the other processes must exit after one has failed
# Timeout of collectives. A rank may wait for another that compiles or saves.
PATIENCE = timedelta(minutes=5)
POLL = 0.05  # seconds between polls of the child processes
# Command-line arguments, passed on to the processes that this one starts.
arguments: ContextVar[list[str]] = ContextVar("arguments")
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


def start_on_gpus(asked: str, device: str) -> int | None:
    """Run the command of this process in one process per GPU.

    Args:
        asked: Value of ``--gpus``: a number, or ``"all"``.
        device: Value of ``--device``.

    Returns:
        The exit code, or None if this process must run the command itself.

    Raises:
        DeviceError: If the machine has fewer GPUs.
        CupydriveError: If ``device`` is the CPU, or another launcher has started this process.
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
    """Join the process group if this is one of several processes. Yield whether it is rank 0.

    Only rank 0 prints.

    Args:
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. A process uses the GPU with its local rank.
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
    """Make only GPU ``local`` visible to this process, before any library initializes CUDA."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    os.environ["CUDA_VISIBLE_DEVICES"] = seen[local % len(seen)] if seen else str(local)


# ---- all of them ----


@contextlib.contextmanager
def handled(number: int, handler: Callable) -> Iterator[None]:
    """Install a signal handler for the duration of the context.

    A host program that embeds Python, such as R, may handle the signal outside Python. Its handler
    then stays in place, because Python could not restore it.
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

    Rank 0 uses the terminal of this process. The first Ctrl-C is sent to rank 0, which passes it on
    to the others. A second one is sent to all of them. If a process fails, the others end within
    seconds, and one line reports the rank and the cause.
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
    """Start the process of one rank. Ranks other than 0 write their output to ``folder``."""
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
    """Kill the processes that are still running."""
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def wait_for(children: list[subprocess.Popen], folder: Path) -> int:
    """Wait for all processes and return 0, or the exit code of the process that failed first.

    If a process fails, the others detect it at the next collective and exit. They are killed after
    ``GRACE`` seconds, because occasionally a process does not detect it and would wait for minutes
    (seen with gloo, once in 56 times).
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
    """Return one line that reports how a process ended."""
    if code < 0:
        return (
            f"process {rank} of this run was ended by signal {-code} "
            f"({signal.Signals(-code).name}), and the run with it. The last checkpoint is kept. "
            f"Continue with --resume"
        )
    lines = (
        (folder / f"{rank}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    )
    return (
        f"process {rank} of this run: "
        f"{lines[-1].removeprefix('cupydrive: ') if lines else f'exit code {code}'}"
    )
