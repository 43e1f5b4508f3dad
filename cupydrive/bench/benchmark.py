"""bench(): times cases on one device.

An env-step is one step of one whole environment, whatever its number of agents. Every step of a
rollout writes observations, actions, rewards and flags of all agents. The final observations of
ended episodes are left out.
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

    An interrupt (Ctrl-C) ends the benchmark and keeps what was measured. If several processes of
    ``torch.distributed`` call it, ``training`` times how they train together.

    Args:
        cases: Of ``CASES``. Defaults to all but training, and without sampling if ``work`` is
            passed.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        runs: Timed runs of each, after a warm-up. Medians are reported.
        work: What ``rollout`` and ``stepping`` time. The other cases time the environments of
            ``work`` only. Defaults to the works of this device and all environments.
        command: Command that the report names. Defaults to a call with these cases, device and
            runs.
        progress: Called with each line of the report as soon as it is known, or None.

    Raises:
        DeviceError: If the device cannot be used.
        ParameterError: If an argument is wrong, or ``training`` has no lesson of the environments
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
        for one in work:  # missing data is found before minutes of work
            spec = envs.get(one.env)
            spec.table_arrays(spec.make_params(**one.params))
        named = sorted({envs.get(one.env).name for one in work})
        known = ", ".join(dict.fromkeys(lesson.env for lesson in lessons))
        lessons = [lesson for lesson in lessons if lesson.env in named]
        if "training" in cases and not lessons:
            raise ParameterError(
                f"training has no lesson of {', '.join(named)} on this device; it has some of: "
                f"{known}"
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
            except (MemoryLimitError, MissingDataError) as error:  # the other rows are worth having
                result.skipped.append(str(error))
            free(where)
    except KeyboardInterrupt:
        result.interrupted = True
        result.skipped.append("the rest: interrupted")
    for line in result.tail():
        say(line)
    return result


def free(where: Executor) -> None:
    """Give idle GPU memory back, so that one row does not change the next."""
    if where.name == "cuda":
        cupy: ModuleType = where.xp
        cupy.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
