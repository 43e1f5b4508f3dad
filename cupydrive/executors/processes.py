"""Several processes that train one run: ``train --gpus`` starts them, and each of them, or of torchrun's, joins the others.

They meet in a file that is the user's own, or where torchrun says; on one machine they talk over the loopback interface alone.
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
from cupydrive.executors import choose
from cupydrive.executors.ahead import usable_cores
from cupydrive.inputs.arguments import shown

MEETING = "CUPYDRIVE_MEETING"  # environment variable: the file in which processes that were started here meet
MOST_DIGITS = 6  # of a number of GPUs or processes
LOST = 3  # exit code of a process that ends because another one has
GRACE = 10.0  # seconds that the others have to end by themselves once one has failed
LONGEST = timedelta(minutes=5)  # that one waits for another, which may compile or save, before it is lost
POLL = 0.05  # seconds between looks at them
CUPYDRIVE = ("-m", "cupydrive")  # the program of a process
arguments: ContextVar[list[str]] = ContextVar(
    "arguments"
)  # of the command line, which processes started here are given, too
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


def start_on_gpus(asked: str, device: str) -> int | None:
    """Run this process's own command in a process for each GPU; return the exit code, or None where this one is to do it.

    Args:
        asked: What ``--gpus`` was given: a number, or ``"all"``.
        device: What ``--device`` was given.

    Raises:
        DeviceError: If there are not as many GPUs.
        CupydriveError: If it is neither, or this process is one of several that something else has started.
    """
    if MEETING in os.environ:
        return None
    if asked != "all" and not is_number(asked):
        raise CupydriveError(f"--gpus {shown(asked)}: pass a number of GPUs from 1 on, or all")
    require_gpus(asked, device)
    import cupy

    there = cupy.cuda.runtime.getDeviceCount()
    if asked != "all" and int(asked) > there:
        raise DeviceError(f"--gpus {asked}: this machine has {there}; pass at most so many, or all")
    count = there if asked == "all" else int(asked)
    return start(count, arguments.get()) if count > 1 else None


def numbers_of_gpus(asked: str, device: str) -> tuple[int, ...]:
    """Return the numbers that ``bench --gpus`` was given, such as ``1,2``.

    Raises:
        CupydriveError: As of ``start_on_gpus``.
    """
    texts = asked.split(",")
    if not all(is_number(text) for text in texts):
        raise CupydriveError(f"--gpus {shown(asked)}: pass numbers of GPUs from 1 on with commas between, such as 1,2")
    require_gpus(asked, device)
    return tuple(map(int, texts))


def is_number(text: str) -> bool:
    """Return whether a text is a number of GPUs."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text) > 0


def require_gpus(asked: str, device: str) -> None:
    """Refuse ``--gpus`` where no processes with a GPU each can be started."""
    if device == "cpu":
        raise CupydriveError(f"--gpus {asked} is for GPUs, and --device is cpu; leave one of them out")
    if "RANK" in os.environ:
        raise CupydriveError("--gpus starts processes, and this is one of several already (RANK is set): leave it out")
    if choose("auto")[0] != "cuda":
        raise DeviceError(f"--gpus {asked}: there is no GPU to use here ({choose('auto')[1]})")


# ---- one of several ----


@contextlib.contextmanager
def joined(device: str) -> Iterator[bool]:
    """Be one of the processes that train together, if this is one of several: give whether it is the one that prints.

    Args:
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``: a GPU is the one of the process's number on its machine.
    """
    size = said("WORLD_SIZE", 1) if "RANK" in os.environ else 1
    if size < 2:
        yield True
        return
    rank = said("RANK", 0)
    local = said("LOCAL_RANK", rank)
    own_gpu(local)
    from torch import distributed

    meeting = os.environ.get(MEETING)
    if meeting and sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGTERM)
    where = {"init_method": Path(meeting).as_uri()} if meeting else {}
    backend = "nccl" if choose(device)[0] == "cuda" else "gloo"
    distributed.init_process_group(backend, rank=rank, world_size=size, timeout=LONGEST, **where)
    try:
        yield rank == 0
    finally:
        distributed.destroy_process_group()


def said(name: str, otherwise: int) -> int:
    """Return the number that an environment variable holds, ``otherwise`` where there is none.

    Raises:
        CupydriveError: If it is no number.
    """
    text = os.environ.get(name, str(otherwise))
    if text != "0" and not is_number(text):
        raise CupydriveError(
            f"{name} = {shown(text)} in the environment: it must be a number, as torchrun sets it; unset it"
        )
    return int(text)


def own_gpu(local: int) -> None:
    """Make the ``local``-th GPU the only one that this process sees, before a library has looked."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    os.environ["CUDA_VISIBLE_DEVICES"] = seen[local % len(seen)] if seen else str(local)


# ---- all of them ----


@contextlib.contextmanager
def handled(number: int, handler: Callable) -> Iterator[None]:
    """Handle a signal by ``handler`` for a while.

    A host program that has Python inside it, such as R, may handle the signal outside Python. Its handler stays in place,
    since Python could not put it back.
    """
    if signal.getsignal(number) is None:
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def start(count: int, arguments: list[str], program: tuple[str, ...] = CUPYDRIVE) -> int:
    """Run ``python PROGRAM ARGUMENTS`` in ``count`` processes of this machine and return the exit code.

    The first has this process's terminal. Ctrl-C goes to it, and the others hear of it from it; a second one ends all. When one
    has ended otherwise than well, the others do within seconds, and one line says which and how.
    """
    with tempfile.TemporaryDirectory(prefix="cupydrive-") as named:
        folder = Path(named)
        children = [start_one(rank, count, arguments, folder, program) for rank in range(count)]
        pressed = []

        def interrupt(number: int, frame: FrameType | None) -> None:
            pressed.append(number)
            for child in children[:1] if len(pressed) == 1 else children:
                child.send_signal(signal.SIGINT)

        try:
            with handled(signal.SIGINT, interrupt):
                return wait(children, folder)
        finally:
            end(children)


def start_one(
    rank: int, count: int, arguments: list[str], folder: Path, program: tuple[str, ...] = CUPYDRIVE
) -> subprocess.Popen:
    """Start the process of one rank; what others than the first write goes to files of ``folder``."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, MEETING: folder / "meeting"}
    cores = max(1, usable_cores() // count)
    usual = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": 1, "CUPYDRIVE_THREADS": cores}
    environment = {name: str(value) for name, value in usual.items()} | os.environ
    environment |= {name: str(value) for name, value in own.items()}
    with open(folder / f"{rank}.log", "wb") as log:
        streams: dict[str, Any] = {} if rank == 0 else {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        command = [sys.executable, *program, *arguments]
        return subprocess.Popen(command, env=environment, start_new_session=True, **streams)


def end(children: list[subprocess.Popen]) -> None:
    """End the processes that have not ended."""
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def wait(children: list[subprocess.Popen], folder: Path) -> int:
    """Wait for all processes and return 0, or the exit code of the one whose end was the first cause of another's.

    Once one has failed, the others hear of it when they next exchange something, and end. They have ``GRACE`` seconds for that:
    now and then one does not hear of it, and would wait for the lost one for minutes (seen with gloo, once in 56 times).
    """
    since: float | None = None
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        for rank, child in enumerate(children):
            if rank not in codes and child.poll() is not None:
                codes[rank] = child.returncode
                since = time.monotonic() if since is None and child.returncode else since
        if since is not None and time.monotonic() - since > GRACE:
            end(children)
            break
        time.sleep(POLL)
    failed = {rank: code for rank, code in sorted(codes.items()) if code}
    if not failed:
        return 0
    rank, code = next(((rank, code) for rank, code in failed.items() if code != LOST), next(iter(failed.items())))
    if rank > 0 or code < 0:
        print(f"cupydrive: {how_it_ended(rank, code, folder)}", file=sys.stderr, flush=True)
    return code if code > 0 else 128 - code


def how_it_ended(rank: int, code: int, folder: Path) -> str:
    """Return one line about a process that has ended."""
    if code < 0:
        return (
            f"process {rank} of this run was ended by signal {-code} ({signal.Signals(-code).name}), and the run with it; the "
            "last checkpoint is kept: go on with --resume"
        )
    lines = (folder / f"{rank}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines() or [
        f"exit code {code}"
    ]
    return f"process {rank} of this run: {lines[-1].removeprefix('cupydrive: ')}"
