"""bench(): time cases on one device.

An environment step advances all agents of one environment by one step. Every step of a rollout
writes observations, actions, rewards and flags of all agents, but no final observations of ended
episodes.
"""

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

import torch

from cupydrive import envs
from cupydrive.bench.cases import (
    ROLLOUTS,
    SINGLE_STEPS,
    Work,
    measure,
    measure_sampling,
    measure_steps,
)
from cupydrive.bench.limits import ceilings
from cupydrive.bench.report import Bench
from cupydrive.bench.timing import Row
from cupydrive.bench.training import LESSONS, SEVERAL, measure_lesson, measure_scaling
from cupydrive.errors import MemoryLimitError, MissingDataError, ParameterError
from cupydrive.executors import choose, executor
from cupydrive.executors.about import info
from cupydrive.inputs.arguments import checked_choice, checked_int
from cupydrive.protocols import Executor

CASES = ("rollout", "stepping", "sampling", "training")


def bench(
    cases: Sequence[str] | None = None,
    *,
    device: str = "auto",
    runs: int = 9,
    work: Sequence[Work] | None = None,
    command: str | None = None,
    progress: Callable[[str], object] | None = print,
) -> Bench:
    """Time cases on one device.

    An interrupt (Ctrl-C) ends the benchmark and keeps its results so far. If several processes of
    ``torch.distributed`` call it, ``training`` measures their joint training.

    Args:
        cases: Names from ``CASES``. Defaults to all but training, and also without sampling if
            ``work`` is passed.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        runs: Number of timed runs of each case, after a warm-up. Medians are reported.
        work: Workloads of ``rollout`` and ``stepping``. The other cases are restricted to these
            environments. Defaults to the standard workloads of the device.
        command: Command to show in the report. Defaults to a call with these cases, device and
            runs.
        progress: Function that is called with each line of the report as soon as it is available,
            or None.

    Returns:
        ``Bench``, which prints as a table.

    Raises:
        DeviceError: If the device cannot be used.
        ParameterError: If an argument is invalid, or ``training`` has no task for the environments
            of ``work``.
        MissingDataError: If data of an environment in ``work`` is missing.
    """
    runs = checked_int("bench", "runs", runs)
    cases = tuple(cases or ("rollout", "stepping", *["sampling"] * (work is None)))
    for case in cases:
        checked_choice("bench", "cases", case, CASES)
    name, _ = choose(device)
    several = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
    lessons = list((SEVERAL if several else LESSONS)[name])
    if work is not None:
        for one in work:  # detect missing data before minutes of work
            spec = envs.get(one.env)
            spec.table_arrays(spec.make_params(**one.params))
        named = sorted({envs.get(one.env).name for one in work})
        known = ", ".join(dict.fromkeys(lesson.env for lesson in lessons))
        lessons = [lesson for lesson in lessons if lesson.env in named]
        if "training" in cases and not lessons:
            raise ParameterError(
                f"training has no benchmark task for {', '.join(named)} on this device. It has "
                f"tasks for: {known}"
            )
    where, say = executor(name), progress or (lambda line: None)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    command = command or f"cupydrive.bench.bench({cases}, device={name!r}, runs={runs})"
    result = Bench(name, where.describe(), info().versions, date, command, ceilings(where, runs))
    for line in result.head():
        say(line)

    def add(found: Row | list[Row]) -> None:
        for row in found if isinstance(found, list) else [found]:
            result.rows.append(row)
            say(result.line(row))

    pieces: list[Callable[[], Row | list[Row]]] = []
    if "rollout" in cases:
        pieces += [partial(measure, one, where, runs) for one in work or ROLLOUTS[name]]
    if "stepping" in cases:
        pieces += [partial(measure_steps, one, where, runs) for one in work or SINGLE_STEPS[name]]
    if "sampling" in cases:
        pieces.append(partial(measure_sampling, where, runs))
    if "training" in cases:
        pieces += [
            partial(measure_scaling if several else measure_lesson, lesson, name, runs)
            for lesson in lessons
        ]

    try:
        for measured in pieces:
            try:
                add(measured())
            except (MemoryLimitError, MissingDataError) as error:  # continue with the other rows
                result.skipped.append(str(error))
            free(where)
    except KeyboardInterrupt:
        result.interrupted = True
        result.skipped.append("the rest: interrupted")
    for line in result.tail():
        say(line)
    return result


def free(where: Executor) -> None:
    """Release idle GPU memory, so that one row does not affect the next."""
    if where.name == "cuda":
        cupy: ModuleType = where.xp
        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
