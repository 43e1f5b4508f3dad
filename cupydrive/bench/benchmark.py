"""bench(): times cases on one device.

An env-step is one step of one whole environment, whatever its number of agents. Every step of a rollout writes
observations, actions, rewards and flags of all agents. The final observations of ended episodes are left out.
"""

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

import torch

from cupydrive import envs
from cupydrive.bench.cases import LARGE_TAG, ROLLOUTS, STEPS, Work, measure, measure_sampling, measure_steps
from cupydrive.bench.limits import ceilings
from cupydrive.bench.report import Bench
from cupydrive.bench.scaling import check_counts, measure_scaling
from cupydrive.bench.startup import start_times
from cupydrive.bench.timing import Row
from cupydrive.bench.training import LESSONS, SEVERAL, measure_lesson
from cupydrive.errors import MemoryLimitError, MissingDataError, ParameterError
from cupydrive.executors import choose, executor
from cupydrive.executors.about import info
from cupydrive.inputs.arguments import checked_choice, checked_int, shown
from cupydrive.protocols import Executor

CASES = ("rollout", "stepping", "sampling", "training", "startup")
DEFAULT = ("rollout", "stepping", "sampling", "startup")
STARTED = {"cartpole": {}, "tag_grid": {}, "tag_continuous": LARGE_TAG}


def bench(
    cases: Sequence[str] | None = None,
    *,
    device: str = "auto",
    runs: int = 9,
    work: Sequence[Work] | None = None,
    processes: Sequence[int] | None = None,
    command: str | None = None,
    progress: Callable[[str], object] | None = print,
) -> Bench:
    """Time cases on one device.

    An interrupt (Ctrl-C) ends the benchmark and keeps what was measured.

    Args:
        cases: Of ``CASES``. Defaults to all but training, and without sampling if ``work`` is passed.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        runs: Timed runs of each, after a warm-up. Medians are reported.
        work: What ``rollout`` and ``stepping`` time. The other cases time the environments of ``work`` only. Defaults to the
            works of this device and all environments.
        processes: With ``training``: time training in these numbers of processes, each with a GPU or a share of the CPU.
        command: Command that the report names. Defaults to a call with these cases, device, runs and processes.
        progress: Called with each line of the report as soon as it is known, or None.

    Raises:
        DeviceError: If the device cannot be used, or there are fewer GPUs than ``processes``.
        ParameterError: If an argument is wrong, or ``training`` has no lesson of the environments of ``work``.
        MissingDataError: If data of an environment in ``work`` is missing.
    """
    runs = checked_int("bench", "runs", runs)
    cases = tuple(cases or (DEFAULT if work is None else [case for case in DEFAULT if case != "sampling"]))
    for case in cases:
        checked_choice("bench", "cases", case, CASES)
    name, _ = choose(device)
    lessons = list((SEVERAL if processes else LESSONS)[name])
    if processes is not None:
        if "training" not in cases:
            raise ParameterError(f"processes = {shown(processes)} needs the case training, which is not among cases")
        processes = check_counts(processes, name)
    if work is not None:
        for one in work:  # missing data is found before minutes of work
            spec = envs.get(one.env)
            spec.table_arrays(spec.make_params(**one.params))
        named = sorted({envs.get(one.env).name for one in work})
        known = ", ".join(dict.fromkeys(lesson.env for lesson in lessons))
        lessons = [lesson for lesson in lessons if lesson.env in named]
        if "training" in cases and not lessons:
            raise ParameterError(
                f"training has no lesson of {', '.join(named)} on this device; it has some of: {known}"
            )
    where, say = executor(name), progress or (lambda line: None)
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    command = command or f"cupydrive.bench.bench({cases}, device={name!r}, runs={runs}, processes={processes})"
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
        pieces += [partial(measure_steps, one, where, runs) for one in work or STEPS[name]]
    if "sampling" in cases:
        pieces.append(partial(measure_sampling, where, runs))
    if "training" in cases and processes is not None:
        pieces += [partial(measure_scaling, processes, SEVERAL[name].index(one), name, runs) for one in lessons]
    elif "training" in cases:
        pieces += [partial(measure_lesson, lesson, name, runs) for lesson in lessons]

    try:
        for measured in pieces:
            try:
                add(measured())
            except (MemoryLimitError, MissingDataError) as error:  # the other rows are worth having
                result.skipped.append(str(error))
            free(where)
        if "startup" in cases:
            for env in STARTED if work is None else dict.fromkeys(one.env for one in work):
                known = envs.get(env).name
                result.startup[known] = start_times(env, STARTED.get(known, {}), name)
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
