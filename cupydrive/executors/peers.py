"""Sums between processes of one machine by peer memory: each writes what the others need into memory of their GPUs.

What travels, and why nothing is lost or mixed up, is told in ``kernels/train/peers.cu``. A library's sum takes several times as
long where tensors are small: it is made of more steps, and each waits for the one before.
"""

import atexit
import json
import os
import select
import threading
from functools import partial

import numpy as np
import torch

from cupydrive.codegen.source import assemble_file
from cupydrive.errors import DeviceError
from cupydrive.executors import executor
from cupydrive.executors.interop import make_call, torch_stream
from cupydrive.inputs.arguments import shown

SWITCH = "CUPYDRIVE_PEER_MEMORY"  # environment variable: 0 has the library of torch.distributed do all sums
MAILS = 2**22  # of a slot: tensors up to 16 MB are joined, up to 16 MB / W added; a mailbox takes 64 MB
MAIL_BYTES, SLOTS = 8, 2
TEAM = 256  # threads of a block
FIRST = 2  # number of the first exchange
_stops = []  # functions that end the waits of this process
TRIAL = 20.0  # seconds that the first exchange of all may take, after which peer memory is not used
KERNELS = {
    torch.float32: "add_floats",
    torch.float64: "add_doubles",
    torch.int32: "add_ints",
    torch.int64: "add_longs",
}


class PeerMemory:
    """The mailboxes of all ranks, as one of them knows them, and what exchanges tensors through them.

    Exchanges are one after the other, on all ranks in the same order, whichever streams they are queued in: two at once could
    wait for each other for ever.

    Args:
        where: ``Executor``.
        rank: Number of this process.
        mailboxes: Address of the mailbox of each rank, zeros at first: 16 * ``mails`` bytes.
        state: Address of ``struct State``, ``first_state()`` at first.
        told: (2,) int32 in memory of the host that the device can write: 1 in [0] ends waits, 1 in [1] says that one was ended.
        seconds: Longest wait for another rank.
        mails: Of a slot.

    Attributes:
        seconds: As given; for exchanges that are queued from now on.
    """

    def __init__(self, where, rank, mailboxes, state, told, seconds, mails=MAILS):
        self.where, self.rank, self.size, self.told, self.seconds = where, rank, len(mailboxes), told, seconds
        self.mails, self.last, self.words = mails, None, told.numpy()
        constants = (("RANKS", self.size), ("MAILS", mails))
        self.team = min(where.max_team, TEAM)
        self.program = where.build(assemble_file("train/peers", constants, team=self.team))
        self.addresses = {"state": state, "told": told.data_ptr()}
        self.addresses |= {f"mailbox.{r}": address for r, address in enumerate(mailboxes)}

    def adds(self, tensor):
        """Return whether ``add`` takes a tensor."""
        words = tensor.numel() * tensor.element_size() // 4
        return tensor.dtype in KERNELS and self._reaches(tensor) and words * self.size <= self.mails

    def joins(self, tensor, shares, dim):
        """Return whether ``join`` takes a tensor."""
        inner = int(np.prod(tensor.shape[dim + 1 :], dtype=np.int64)) * tensor.element_size()
        of_words = inner % 4 == 0 and tensor.data_ptr() % 4 == 0
        return of_words and self._reaches(tensor) and tensor.nbytes // 4 <= self.mails and all(map(len, shares))

    def _reaches(self, tensor):
        return tensor.device.type == self.where.name and tensor.is_contiguous() and tensor.numel() > 0

    def add(self, tensor):
        """Queue what replaces a tensor by the sum over all ranks: in the order of ranks, so that all have the same bits."""
        self._queue(KERNELS[tensor.dtype], tensor, tensor.numel(), 1, 1, [0] * (self.size + 1))

    def join(self, tensor, shares, dim=0):
        """Queue what fills in the ranges that other ranks own.

        Args:
            tensor: Contiguous; changed in place.
            shares: Range of each rank along ``dim``, neighbours that make up all of it; none is empty.
            dim: Along which.
        """
        words = tensor.nbytes // 4
        outer = int(np.prod(tensor.shape[:dim], dtype=np.int64))
        begin = [*(share.start for share in shares), shares[-1].stop]
        self._queue("join", tensor, words, words // outer // tensor.shape[dim], tensor.shape[dim], begin)

    def _queue(self, kernel, tensor, size, inner, length, begin):
        blocks = min(self.where.processors, -(-size // self.team))
        share = -(-size // blocks)
        blocks = -(-size // share)
        ints = {"rank": self.rank, "size": size, "share": share, "blocks": blocks, "inner": inner, "length": length}
        ints |= {f"begin.{r}": index for r, index in enumerate(begin)}
        longs = {"limit": int(self.seconds * 1e9), **self.addresses}
        call = make_call(ints, {"values": tensor}, longs)
        if self.where.name == "cpu":
            self.program.launch(kernel, call, blocks, size)
            return
        self._keep_order()
        with torch_stream():
            self.program.launch(kernel, call, blocks, size)

    def _keep_order(self):
        """Have the current stream wait for the exchange before, if that was queued in another one."""
        current, last = torch.cuda.current_stream(), self.last
        # What was queued outside a graph has no place in it: a graph is replayed in a stream that keeps the order by itself.
        if last is not None and last != current and captures(last) == captures(current):
            current.wait_stream(last)
        self.last = current

    def stop(self):
        """End all waits, now and from now on."""
        self.words[0] = 1

    def lost(self):
        """Return an empty string; or what it was that ended a wait: nothing that was exchanged since can be used."""
        if not self.words[1]:
            return ""
        return "its process has ended" if self.words[0] else f"for {self.seconds:g} s its part of a sum has not come"


def first_state():
    """Return ``struct State`` before the first exchange, (4,) uint32."""
    return np.array([FIRST, 0, 0, 0], np.uint32)


def captures(stream):
    """Return whether what is queued in a torch stream becomes part of a graph."""
    with torch.cuda.stream(stream):
        return torch.cuda.is_current_stream_capturing()


# ---- whether there is peer memory ----


def switched_off():
    """Return whether the environment says that peer memory is not to be used.

    Raises:
        DeviceError: If it says neither yes nor no.
    """
    asked = os.environ.get(SWITCH, "") or "1"
    if asked not in ("0", "1"):
        raise DeviceError(f"{SWITCH} = {shown(asked)}; it must be 0, 1, or not set")
    return asked == "0"


def machine():
    """Return what processes have in common that run on one machine and see each other; empty where nobody can tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def why_not(said):
    """Return why processes do not exchange by peer memory, or an empty string if they may try; the same on all ranks.

    Args:
        said: What ``Opening.about`` says of each rank.
    """
    for rank, about in enumerate(said):
        if about["problem"]:
            return f"rank {rank}: {about['problem']}"
    machines = {about["machine"] for about in said}
    if "" in machines:
        return "this system does not tell which processes run on one machine"
    if len(machines) > 1:
        return "processes run on several machines, or in containers that do not see each other"
    return ""


def open_peers(rank, size, gather, seconds):
    """Return ``(PeerMemory, "")``, or ``(None, why not)``: the same on all ranks, which must all call this.

    Args:
        rank: Number of this process.
        size: How many there are.
        gather: Returns the bytes that each rank gives it.
        seconds: Longest wait for another rank.
    """
    opening = Opening(rank, size, seconds)
    said = [json.loads(content) for content in gather(json.dumps(opening.about()).encode())]
    why = why_not(said)
    if why:
        opening.give_back()
        return None, why
    for attempt in (partial(opening.open, said), opening.try_out):
        why = first_of(gather(said_of(attempt).encode()))
        if why:
            opening.close()
            gather(b"")  # nobody uses another's memory any more
            opening.give_back()
            return None, why
    return opening.peers, ""


def first_of(contents):
    """Return the first problem of a rank, with its number, or an empty string."""
    return next((f"rank {rank}: {content.decode()}" for rank, content in enumerate(contents) if content), "")


def said_of(attempt):
    """Return the first line of the error that a call raises, or an empty string."""
    try:
        attempt()
    except (RuntimeError, OSError, ImportError) as error:  # of CuPy, the system, a compiler
        return str(error).splitlines()[0][:200] or type(error).__name__
    return ""


class Opening:
    """One rank's part of setting up peer memory.

    Args:
        rank: Number of this process.
        size: How many there are.
        seconds: Longest wait for another rank.
    """

    def __init__(self, rank, size, seconds):
        self.rank, self.size, self.seconds = rank, size, seconds
        self.own, self.handle, self.where = None, b"", None
        self.others, self.seen, self.peers = {}, [], None

    def about(self):
        """Return what the others must know, as JSON can hold it; its ``problem`` is why this rank cannot, or empty."""
        found = {"problem": f"{SWITCH} is 0" if switched_off() else "", "machine": machine(), "pid": os.getpid()}
        if not found["problem"]:
            found["problem"] = said_of(self.allocate)
        return found | {"handle": self.handle.hex(), "device": self.where and self.where.device.pci_bus_id}

    def allocate(self):
        """Take memory for a mailbox and, behind it, ``struct State``: no part of a pool, since others are shown all of it."""
        import cupy

        self.where = executor("cuda")
        if not hasattr(os, "pidfd_open"):
            raise DeviceError("this system does not tell when another process ends")
        self.own = cupy.cuda.runtime.malloc(SLOTS * MAILS * MAIL_BYTES + first_state().nbytes)
        self.handle = bytes(cupy.cuda.runtime.ipcGetMemHandle(self.own))

    def open(self, said):
        """Open the mailboxes of the others, and get ready to exchange; errors are those of CuPy and the system."""
        import cupy

        runtime, box = cupy.cuda.runtime, SLOTS * MAILS * MAIL_BYTES
        for rank, about in enumerate(said):
            if rank != self.rank:
                require_access(self.where.device.id, about["device"])
                self.seen.append(os.pidfd_open(about["pid"]))
                self.others[rank] = runtime.ipcOpenMemHandle(bytes.fromhex(about["handle"]))
        runtime.memset(self.own, 0, box)
        state = first_state()
        runtime.memcpy(self.own + box, state.ctypes.data, state.nbytes, runtime.memcpyHostToDevice)
        self.where.synchronise()
        told = torch.zeros(2, dtype=torch.int32, device="cpu", pin_memory=True)
        mailboxes = [self.others.get(rank, self.own) for rank in range(self.size)]
        self.peers = PeerMemory(self.where, self.rank, mailboxes, self.own + box, told, TRIAL)
        watch(self.seen, self.peers.stop)

    def try_out(self):
        """Exchange something for the first time; an error says that it did not arrive."""
        numbers = torch.zeros(self.size, dtype=torch.int32, device="cuda")
        numbers[self.rank] = self.rank + 1
        self.peers.join(numbers, [range(rank, rank + 1) for rank in range(self.size)])
        found = numbers.tolist()
        if why := self.peers.lost():
            raise DeviceError(why)
        if found != list(range(1, self.size + 1)):
            raise DeviceError(f"of 1 to {self.size} the GPU found {found}")
        self.peers.seconds = self.seconds

    def close(self):
        """Leave the memory of the others."""
        import cupy

        self.where.synchronise()
        for address in self.others.values():
            cupy.cuda.runtime.ipcCloseMemHandle(address)
        if self.peers is None:
            for process in self.seen:
                os.close(process)

    def give_back(self):
        """Give the own memory back, which nobody else has open.

        What is in use stays until the process ends, when the driver takes it back: a captured graph may exchange until then.
        """
        if self.own is not None:
            import cupy

            cupy.cuda.runtime.free(self.own)


def require_access(device, other):
    """Raise ``DeviceError`` if a device of this process cannot reach another.

    Args:
        device: Number of the one.
        other: PCI address of the other, which this process may not see: then the driver says more when memory is opened.
    """
    import cupy

    runtime = cupy.cuda.runtime
    try:
        number = runtime.deviceGetByPCIBusId(other)
    except runtime.CUDARuntimeError:
        return
    if number != device and not runtime.deviceCanAccessPeer(device, number):
        raise DeviceError(f"GPU {device} has no access to the memory of GPU {number}")


def watch(processes, stop):
    """Call ``stop`` when one of some processes has ended, and when this one is about to.

    Args:
        processes: File descriptors of the others, as ``os.pidfd_open`` returns them; closed in the end.
        stop: Ends waits.
    """
    poll = select.poll()
    for process in processes:
        poll.register(process, select.POLLIN)

    def wait():
        poll.poll()
        stop()
        for process in processes:
            os.close(process)

    threading.Thread(target=wait, name="cupydrive-peers", daemon=True).start()
    _stops.append(stop)


@atexit.register
def end_waits():
    """End the waits of this process for others: it is about to end, and the driver would wait for its GPU."""
    for stop in _stops:
        stop()
