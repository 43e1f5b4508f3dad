"""How training gets faster with the number of processes, a GPU or a part of a CPU for each: weak and strong scaling.

Weak: each process has as many environments as one process alone has. Strong: together they have so many.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from cupydrive.bench.timing import Row
from cupydrive.bench.training import SEVERAL, measure_lesson
from cupydrive.errors import CupydriveError, DeviceError, ParameterError
from cupydrive.executors.ranks import BLOCKS
from cupydrive.inputs.arguments import checked_int
from cupydrive.training.processes import joined_processes, start_processes

INTERRUPTED = 130  # exit code
PROGRAM = ("-c", f"import sys; from {__name__} import main; main(*sys.argv[1:])")


def check_counts(counts: Sequence[int], device: str) -> list[int]:
    """Return numbers of processes, each once and in order.

    Raises:
        ParameterError: If there are none, or one is no positive int or above 128.
        DeviceError: If there are not as many GPUs.
    """
    counts = sorted({checked_int("bench", "processes", count, 1, BLOCKS) for count in counts})
    if not counts:
        raise ParameterError("processes = (): name at least one number of processes, such as (1, 2)")
    if device == "cuda" and counts[-1] > (there := torch.cuda.device_count()):
        raise DeviceError(f"{counts[-1]} processes with a GPU each: this machine has {there}; pass at most so many")
    return counts


def measure_scaling(counts: Sequence[int], number: int, device: str, runs: int) -> list[Row]:
    """Return the ``Row``s of a lesson in several numbers of processes. Notes say how much of a perfect speed-up is reached.

    Args:
        counts: Numbers of processes, ascending. All are compared with the first.
        number: Place of the ``Lesson`` in ``SEVERAL``.
        device: ``"cuda"`` or ``"cpu"``.
        runs: Timed runs of each.

    Raises:
        CupydriveError: If a process fails.
    """
    rows: list[Row] = []
    least: dict[str, Row] = {}
    for count in counts:
        found = measure_in(count, number, device, runs)
        least = least or found
        times = count / counts[0]
        for kind, row in found.items():
            words = f"{count} process{'es' * (count > 1)}"
            if times > 1:
                share = row.rate / (least[kind].rate * times)
                words += f", {kind} scaling: {share:.0%} of {times:g} times that of {counts[0]}"
            if times > 1 or kind == "weak":  # in the fewest processes both are the same
                rows.append(replace(row, note=f"{words}; {row.note}"))
    return rows


def measure_in(count: int, number: int, device: str, runs: int) -> dict[str, Row]:
    """Return the ``Row``s that ``main`` measures in ``count`` processes: ``{"weak": ..., "strong": ...}``."""
    with tempfile.TemporaryDirectory(prefix="cupydrive-bench-") as folder:
        file = Path(folder) / "rows.json"
        code = start_processes(count, [str(number), device, str(runs), str(file)], program=PROGRAM)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code != 0:
            raise CupydriveError(f"training in {count} processes ended with exit code {code}; its error is above")
        return {kind: Row(**row) for kind, row in json.loads(file.read_text(encoding="utf-8")).items()}


def main(number: str, device: str, runs: str, file: str) -> None:
    """Measure one lesson in this process, one of several or alone. The first process writes the rows."""
    lesson = SEVERAL[device][int(number)]
    try:
        with joined_processes(device) as first:
            size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
            rows = {}
            for kind, num_envs in (("weak", lesson.num_envs * size), ("strong", lesson.num_envs)):
                (row,) = measure_lesson(replace(lesson, num_envs=num_envs), device, int(runs))
                rows[kind] = asdict(row)
            if first:
                Path(file).write_text(json.dumps(rows), encoding="utf-8")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
