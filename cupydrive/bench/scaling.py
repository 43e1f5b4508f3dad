"""How training gets faster with the number of processes, a GPU or a part of a CPU for each: weak and strong scaling.

Weak: each process has as many environments as one process alone has. Strong: together they have so many. What the processes
must tell each other is timed by itself, too: sums of as many bytes, as often as in one iteration, and nothing else.
"""

import json
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from cupydrive.bench.cases import LARGE_TAG
from cupydrive.bench.timing import Row, make_row
from cupydrive.bench.training import REPLAYS, SHARED, UNTIMED, WIDE, Lesson, about, factors, run_operations, timed
from cupydrive.errors import CupydriveError, DeviceError, ParameterError
from cupydrive.executors.interop import capture
from cupydrive.executors.processes import joined, start
from cupydrive.executors.ranks import BLOCKS, exchange_device
from cupydrive.inputs.arguments import checked_int
from cupydrive.training.algorithms import A2C
from cupydrive.training.plan import plan
from cupydrive.training.torch_settings import precision, threads

LARGE = {name: value for name, value in LARGE_TAG.items() if name != "tagging_distance"}
LESSONS = {
    "cuda": (Lesson("cartpole", 65_536, SHARED), Lesson("tag_continuous", 2_000, A2C(**WIDE), params=LARGE)),
    "cpu": (Lesson("cartpole", 256, SHARED),),
}
INTERRUPTED = 130  # exit code
PROGRAM = ("-c", f"import sys; from {__name__} import main; main(*sys.argv[1:])")


def measure_scaling(counts, device, runs, lessons=None):
    """Return the ``Row``s of all numbers of processes; their notes say how much of a perfect speed-up is had.

    Args:
        counts: Numbers of processes, such as ``(1, 2)``; all are compared with the least of them.
        device: ``"cuda"`` or ``"cpu"``.
        runs: Timed runs of each.
        lessons: ``Lesson``s by their place in ``LESSONS``; None: all.

    Raises:
        ParameterError: If a number is no positive int, or above 128.
        DeviceError: If there are not as many GPUs.
        CupydriveError: If a process fails.
    """
    counts = check_counts(counts, device)
    rows = []
    for number in range(len(LESSONS[device])) if lessons is None else lessons:
        measured = {count: measured_by(count, number, device, runs) for count in counts}
        rows += [row for count in counts for row in compared(measured[count], measured[counts[0]], count, counts[0])]
    return rows


def check_counts(counts, device):
    """Return numbers of processes, each once and in order; errors as of ``measure_scaling``."""
    counts = sorted({checked_int("bench", "processes", count, 1, BLOCKS) for count in counts})
    if not counts:
        raise ParameterError("processes = (): name at least one number of processes, such as (1, 2)")
    if device == "cuda":
        there = torch.cuda.device_count()
        if counts[-1] > there:
            raise DeviceError(f"{counts[-1]} processes with a GPU each: this machine has {there}; pass at most so many")
    return counts


def measured_by(count, number, device, runs):
    """Return what ``measure`` has found in ``count`` processes: ``{"weak": ..., "strong": ...}``."""
    with tempfile.TemporaryDirectory(prefix="cupydrive-bench-") as folder:
        found = Path(folder) / "found.json"
        code = start(count, [str(number), device, str(runs), str(found)], program=PROGRAM)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code != 0:
            raise CupydriveError(f"training in {count} processes ended with exit code {code}; its error is above")
        return json.loads(found.read_text(encoding="utf-8"))


def compared(found, least, count, fewest):
    """Return the ``Row``s of ``count`` processes, weak and strong, beside those of the fewest."""
    rows = []
    times = count / fewest
    for kind in ("weak", "strong"):
        if count == fewest and kind == "strong":
            continue  # the same as weak: there is nothing to share yet
        row = Row(**found[kind]["row"])
        words = f"{count} process{'es' * (count > 1)}"
        if count > fewest:
            share = row.rate / (least[kind]["row"]["rate"] * times)
            words += f", {kind} scaling: {share:.0%} of {times:g} times that of {fewest}"
        if found[kind]["calls"]:
            part = found[kind]["exchange"] / statistics.median(row.seconds)
            words += (
                f"; {found[kind]['calls']} sums of {found[kind]['bytes']:,} bytes in all, alone {part:.0%} of the time"
            )
        rows.append(Row(**{**asdict(row), "note": f"{words}; {row.note}"}))
    return rows


# ---- in each process ----


def measure(lesson, size, device, runs):
    """Return ``{"row", "exchange", "calls", "bytes"}`` of one lesson in this process and the others of its group.

    ``exchange`` is the seconds that the sums of one iteration take with nothing else to do, ``calls`` how many they are, and
    ``bytes`` of how many bytes in all.
    """
    given = {"algorithm": lesson.settings, "num_envs": size, **lesson.params}
    run = plan(lesson.env, **given, device=device).run()
    ranks = run.shard.ranks
    added, joins = (Counter(), Counter()) if ranks.alone else (ranks.added, ranks.joined)

    def iterate():
        added.clear(), joins.clear()  # what is left at the end is of one iteration
        run.iterate()

    kept = run.snapshot()
    with precision(run), threads(run):
        replay = capture(iterate, lambda: run.restore(kept)).replay if device == "cuda" else iterate
        seconds = [timed(replay, REPLAYS[device], device) for _ in range(runs + UNTIMED)][UNTIMED:]
    row = make_row(
        "training", lesson.env, size, sum(g.count for g in run.batch.groups), lesson.settings.num_steps, seconds,
        operations_per_step=run_operations(run), factors=factors(run, lesson.settings), params=lesson.params,
        note=about(run, "kernels", lesson),
    )  # fmt: skip
    sizes, of_these = dict(added), dict(joins)
    total = sum(size * calls for size, calls in sizes.items())
    found = {"row": asdict(row), "exchange": 0.0, "calls": sum(sizes.values()), "bytes": total}
    if sizes:
        found["exchange"] = exchange_seconds(ranks, sizes, of_these, device, runs)
    return found


def exchange_seconds(ranks, sizes, joins, device, runs):
    """Return the median time of adding or joining tensors over all processes.

    Args:
        ranks: ``DistributedRanks``.
        sizes: How many tensors there are of so many bytes.
        joins: How many of them are joined.
        device: ``"cuda"`` or ``"cpu"``.
        runs: Timed runs.
    """
    calls = []
    for size, count in sizes.items():
        words = size // 4
        shares = [range(r * words // ranks.size, (r + 1) * words // ranks.size) for r in range(ranks.size)]
        tensors = torch.zeros((count, words), dtype=torch.int32, device=exchange_device()).unbind()
        first = joins.get(size, 0)
        calls += [partial(ranks.join, tensor, shares) for tensor in tensors[:first]]
        calls += [partial(ranks.add, tensor) for tensor in tensors[first:]]

    def exchange():
        for call in calls:
            call()

    replay = capture(exchange, lambda: None).replay if device == "cuda" else exchange
    return statistics.median([timed(replay, REPLAYS[device], device) for _ in range(runs + UNTIMED)][UNTIMED:])


def main(number, device, runs, found):
    """Measure one lesson in this process, one of several or alone, by its own number of copies and by as many for each."""
    lesson = LESSONS[device][int(number)]
    try:
        with joined(device) as first:
            size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
            results = {
                kind: measure(lesson, envs, device, int(runs))
                for kind, envs in (("weak", lesson.num_envs * size), ("strong", lesson.num_envs))
            }
            if first:
                Path(found).write_text(json.dumps(results), encoding="utf-8")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
