"""Processes of one machine that exchange by peer memory; what each found goes to a file as JSON. No tests of its own.

    python tests/mailboxes.py [--processes 2]      times sums in a replayed graph, beside those of NCCL

With fewer GPUs than processes all use the first, in turns of milliseconds, and NCCL cannot be compared; on CPUs mailboxes are
files that all of them map, with a smaller slot.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import distributed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from learner_weights import WEIGHTS, digest
from ranks import TOGETHER

import cupydrive as cd
from cupydrive.errors import LostProcessError
from cupydrive.executors import peers
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import capture
from cupydrive.executors.peers import PeerMemory, first_state, watch
from cupydrive.executors.ranks import DistributedRanks
from cupydrive.training.algorithms.kernels import choice

MAILS = {"cpu": 2**20, "cuda": peers.MAILS}
DTYPES = ("float32", "float64", "int32", "int64")
SIZES = (1, 31, 257, 4675)
REPLAYS = 20
TIMED = (1, 4675, 50_000, 500_000, 2**20, 2_750_000)  # floats
IN_A_GRAPH = 20  # sums
TRAINED = ("cartpole", "tag_grid, two policies", "pendulum, normalised")  # of WEIGHTS


# ---- for tests ----


def start(size, folder, device, what):
    """Return ``size`` processes that do ``what``."""
    command = [sys.executable, __file__, "--rank"]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "CUPYDRIVE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    how = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    arguments = [str(size), str(folder), device, what]
    return [subprocess.Popen([*command, str(rank), *arguments], **how) for rank in range(size)]


def said(children, folder):
    """Return what each process has found, once all have ended well."""
    errors = [child.communicate()[1] for child in children]
    assert all(child.returncode == 0 for child in children), "\n".join(errors)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(children))]


def group_of_threads(size, mails=4096, seconds=60.0):
    """Return a ``PeerMemory`` on the CPU for each of ``size`` threads, and the states behind them, int32 (4,)."""
    boxes = [torch.zeros(2 * mails, dtype=torch.int64) for _ in range(size)]
    states = [torch.from_numpy(first_state().view(np.int32)) for _ in range(size)]
    told = [torch.zeros(2, dtype=torch.int32) for _ in range(size)]
    where, addresses = HostExecutor(threads=1), [box.data_ptr() for box in boxes]
    where.processors = 5  # blocks, of which one thread runs one after the other
    made = [PeerMemory(where, r, addresses, states[r].data_ptr(), told[r], seconds, mails) for r in range(size)]
    for each in made:
        each.kept = boxes, states
    return made, states


def values_of(rank, number, size, dtype):
    """Return what a rank gives to one sum: numbers whose sums are rounded; NumPy (size,)."""
    rng = np.random.default_rng([rank, number])
    return (rng.normal(size=size) * 10.0 ** rng.integers(0, 6, size=size)).astype(dtype)


def sum_of(size, *about):
    """Return the sum over all ranks, added in their order."""
    total = values_of(0, *about)
    for rank in range(1, size):
        total = total + values_of(rank, *about)
    return total


def same_bits(tensor, expected):
    """Return whether a tensor has the bytes of a NumPy array."""
    return np.array_equal(tensor.cpu().numpy().view(np.uint8), np.ascontiguousarray(expected).view(np.uint8))


# ---- in each process ----


def connect_on_cpu(ranks, folder, device):
    """Give ``DistributedRanks`` mailboxes in files: ``connect`` where there is no GPU."""
    mails, rank = MAILS["cpu"], ranks.rank
    boxes = [
        torch.from_file(str(folder / f"mailbox {r} of {ranks.size}"), shared=True, size=2 * mails, dtype=torch.int64)
        for r in range(ranks.size)
    ]
    state, told = torch.from_numpy(first_state().view(np.int32)), torch.zeros(2, dtype=torch.int32)
    where, addresses = HostExecutor(threads=1), [box.data_ptr() for box in boxes]
    made = PeerMemory(where, rank, addresses, state.data_ptr(), told, 60.0, mails)
    made.kept = boxes, state
    others = [int(pid) for r, pid in enumerate(ranks.gather_bytes(str(os.getpid()).encode())) if r != rank]
    watch([os.pidfd_open(pid) for pid in others], made.stop)
    object.__setattr__(ranks, "peers", made)
    return "sums between processes: peer memory of a test"


def added(ranks, number, size, dtype, device):
    """Return a sum over all ranks."""
    tensor = torch.from_numpy(values_of(ranks.rank, number, size, dtype)).to(device)
    ranks.add(tensor)
    return tensor


def to_join(rank, size, number, shape, dim, dtype):
    """Return a tensor of which a rank has written its range, the ranges of all, and NumPy of the whole: -0 and NaN among it."""
    rng = np.random.default_rng(number)
    whole = rng.integers(0, 2**32, size=(*shape, np.dtype(dtype).itemsize // 4), dtype=np.uint32)
    whole[..., -1].flat[:2] = 0x80000000, 0x7F812345
    whole, length = whole.view(dtype)[..., 0], shape[dim]
    edges = [0, *sorted(rng.choice(np.arange(1, length), size=size - 1, replace=False)), length]
    shares = [range(int(a), int(b)) for a, b in pairwise(edges)]
    own, mine = torch.zeros(shape, dtype=getattr(torch, dtype)), shares[rank]
    own.narrow(dim, mine.start, len(mine)).copy_(torch.from_numpy(whole).narrow(dim, mine.start, len(mine)))
    return own, shares, whole


def joined(ranks, device, *about):
    """Return a joined tensor, and what it must be."""
    own, shares, whole = to_join(ranks.rank, ranks.size, *about)
    own, dim = own.to(device), about[2]
    ranks.join(own, shares, dim)
    return own, whole


def exchanges(ranks, device):
    """Exchange tensors of many sizes; return how many, and which were not what they must be."""
    done, wrong = 0, []

    def look(what, tensor, expected):
        nonlocal done
        done += 1
        if not same_bits(tensor, expected):
            wrong.append(what)

    for number in range(4):
        for dtype in DTYPES:
            for size in SIZES:
                expected = sum_of(ranks.size, number, size, dtype)
                look(f"sum of {size} {dtype}", added(ranks, number, size, dtype, device), expected)
        for shape, dim in (((4, 5), 0), ((3, 4, 7), 1), ((2, 3, 50), 2), ((3000, 3), 0)):
            for dtype in ("float32", "int64"):
                look(f"join of {shape} along {dim}", *joined(ranks, device, number, shape, dim, dtype))
        rows = ranks.gather(torch.full((3,), ranks.rank + 0.5, dtype=torch.float64, device=device))
        look("gather", rows, np.repeat(np.arange(ranks.size) + 0.5, 3).reshape(ranks.size, 3))
    most = MAILS[device] // ranks.size  # of floats that are added
    for size in (most, most + 1):
        tensor = torch.arange(size, dtype=torch.int32, device=device) + ranks.rank
        assert ranks.peers.adds(tensor) == (size == most)
        ranks.add(tensor)
        expected = np.arange(size, dtype=np.int32) * ranks.size + sum(range(ranks.size))
        look(f"sum of {size}", tensor, expected)
    return {"done": done, "wrong": wrong}


def replays(ranks):
    """Replay a graph of sums and a join with other numbers each time, in two streams; return what was not as it must be."""
    size, wrong, side = 4675, [], torch.cuda.Stream()
    first, second = (torch.zeros(n, device="cuda") for n in (size, 31))
    rows = torch.zeros((ranks.size, 100), device="cuda")
    shares = [range(r, r + 1) for r in range(ranks.size)]

    def exchange():
        ranks.add(first)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ranks.add(second)
        ranks.join(rows, shares)
        torch.cuda.current_stream().wait_stream(side)

    graph = capture(exchange, lambda: None)
    for number in range(REPLAYS):
        first.copy_(torch.from_numpy(values_of(ranks.rank, number, size, "float32")))
        second.copy_(torch.from_numpy(values_of(ranks.rank, number, 31, "float32")))
        rows[ranks.rank] = number + ranks.rank
        graph.replay()
        expected = np.repeat(np.arange(ranks.size) + number, 100).reshape(ranks.size, 100).astype(np.float32)
        for what, tensor, right in (
            ("first", first, sum_of(ranks.size, number, size, "float32")),
            ("second", second, sum_of(ranks.size, number, 31, "float32")),
            ("rows", rows, expected),
        ):
            if not same_bits(tensor, right):
                wrong.append(f"{what} of replay {number}")
    return wrong


def refuse(ranks, tensor):
    """Fail: a sum goes by the library."""
    raise AssertionError(f"{tensor.numel()} entries were added by the library")


def trains(device):
    """Train runs whose weights are known, and one by matrix units; return digests and how sums were done."""
    DistributedRanks.add_by_library = refuse
    found, options = {}, {"device": device, "progress": False}
    for name in TRAINED:
        env, settings, given = WEIGHTS[name]
        run = cd.train(env, replace(settings, precision="exact"), **given, **options)
        found[name] = digest(run)
    env, settings, given = TOGETHER["tensor"]
    found["tensor"] = digest(cd.train(env, settings, **given, **options))
    return {"weights": found, "choice": run.choices["sums between processes"]}


def endless(device):
    """Train until another process is killed; say when it has begun, and return the error."""
    settings = cd.PPO(num_steps=8, hidden=(16,))
    options = {"num_envs": 20, "steps": 10**12, "device": device, "progress": False}
    words = ["begun"]

    def say(step, row):
        if words:
            print(words.pop(), flush=True)

    try:
        cd.train("cartpole", settings, **options, callback=say)
    except LostProcessError as error:
        return {"error": str(error)}


def seconds_of(calls):
    """Return the seconds of one of IN_A_GRAPH calls of each of some functions, replayed as a graph: the least of REPLAYS."""
    graph = capture(lambda: [call() for _ in range(IN_A_GRAPH) for call in calls], lambda: None)
    least = float("inf")
    for _ in range(REPLAYS):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        least = min(least, begun.elapsed_time(ended) / 1e3 / IN_A_GRAPH / len(calls))
    return least


def times(ranks):
    """Return rows of a table: floats, microseconds of a sum and of a join by peer memory, and of a sum by the library."""
    rows, library = [], "nccl" in distributed.get_backend()
    for size in TIMED:
        tensor = torch.zeros(size, device="cuda")
        shares = [range(r * size // ranks.size, (r + 1) * size // ranks.size) for r in range(ranks.size)]
        ways = {
            "sum": ranks.peers.adds(tensor) and partial(ranks.peers.add, tensor),
            "join": ranks.peers.joins(tensor, shares, 0) and partial(ranks.peers.join, tensor, shares),
            "library": library and partial(ranks.add_by_library, tensor),
        }
        rows.append([size, *(round(seconds_of([call]) * 1e6, 2) if call else None for call in ways.values())])
    return rows


def print_times(processes):
    """Time exchanges in so many processes, and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        found = said(start(processes, Path(folder), "cuda", "times"), Path(folder))[0]
    print(found["how"], f"{'floats':>10} {'sum, us':>10} {'join, us':>10} {'library, us':>12}", sep="\n")
    for row in found["rows"]:
        size, *cells = ("-" if cell is None else cell for cell in row)
        print(f"{size:>10,} {cells[0]:>10} {cells[1]:>10} {cells[2]:>12}")


def main(rank, size, folder, device, what):
    """Do ``what`` in a process group, and write what came of it."""
    torch.set_num_threads(1)
    folder, several = Path(folder), device == "cuda" and torch.cuda.device_count() >= size
    if several:
        torch.cuda.set_device(rank)
    meeting = (folder / "meeting").as_uri()
    distributed.init_process_group("nccl" if several else "gloo", init_method=meeting, rank=rank, world_size=size)
    if device == "cpu":
        choice.why_no_tensor = lambda executor: None  # a CPU has these kernels for tests alone
        DistributedRanks.connect = lambda ranks, of: connect_on_cpu(ranks, folder, of)
    ranks = DistributedRanks()
    if what == "exchanges":
        how = ranks.connect(device)
        found = {"how": how, **exchanges(ranks, device), "replayed": replays(ranks) if device == "cuda" else []}
    elif what == "times":
        found = {"how": ranks.connect(device), "rows": times(ranks)}
    else:
        found = {"trains": partial(trains, device), "endless": partial(endless, device)}[what]()
    (folder / f"{rank}.json").write_text(json.dumps(found))
    if what != "endless":
        distributed.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        main(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--processes", type=int, default=2)
        print_times(parser.parse_args().processes)
