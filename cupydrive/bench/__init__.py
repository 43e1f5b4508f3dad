"""How fast this machine is: cases by name, beside the device's own limits and, on request, other libraries.

An env-step is one step of one whole environment, whatever its number of agents. Every step of a rollout writes
observations, actions, rewards and flags of all agents; the final observations of ended episodes are left out.
"""

import datetime
import shlex

from cupydrive import envs
from cupydrive.bench.cases import ROLLOUTS, STEPS, Work, measure, measure_sampling, measure_steps, written_bytes
from cupydrive.bench.charts import chart
from cupydrive.bench.chosen import Chosen
from cupydrive.bench.limits import Ceilings, ceilings
from cupydrive.bench.peers import programs, run_peers
from cupydrive.bench.report import Bench
from cupydrive.bench.scaling import check_counts, measure_scaling
from cupydrive.bench.startup import CREATED, CREATED_ENV, creation_time, free, start_times, train_start_times
from cupydrive.bench.timing import Row, short
from cupydrive.bench.training import measure_lesson
from cupydrive.errors import MemoryLimitError, MissingDataError, ParameterError, did_you_mean
from cupydrive.executors import choose, executor
from cupydrive.executors.about import info
from cupydrive.inputs.arguments import checked_int, shown

__all__ = [
    "CASES", "Bench", "Ceilings", "Row", "Work", "bench", "ceilings", "chart", "measure", "short", "written_bytes",
]  # fmt: skip
CASES = ("rollout", "stepping", "sampling", "training", "startup")
DEFAULT = ("rollout", "stepping", "sampling", "startup")


def bench(cases=None, *, device="auto", runs=9, work=None, processes=None, compare=False, command=None, progress=print):
    """Time cases on one device and return a ``Bench``.

    Args:
        cases: Of ``CASES``; None: ``DEFAULT``, less what times nothing of the environments of ``work``.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        runs: Timed runs of each, after a warm-up; medians are reported.
        work: ``Work``s for ``rollout`` and ``stepping``; of the other cases what concerns their environments is timed. None:
            those of this device, and all of the others.
        processes: Of ``training`` time this instead: how it gets faster with these numbers of processes, on as many GPUs, or
            on the CPU.
        compare: Also time the other libraries that are installed, as far as they have the environments, each in a process of
            its own after the rest.
        command: What the report names as its command; None: this call as a command line.
        progress: Called with each line of the report as soon as it is known; None: nothing.

    An interrupt (Ctrl-C) ends it early and keeps what was measured.

    Raises:
        DeviceError: If the device cannot be used here, or there are fewer GPUs than ``processes``.
        ParameterError: If a case is unknown, ``runs`` is not a positive int, or ``processes`` are not, or ``training`` is
            not asked for with them, or a case times nothing of the environments of ``work``.
        CupydriveError: If there is nothing to ``compare`` with, outside of a checkout, or data of a ``work`` is missing.
    """
    runs = checked_int("bench", "runs", runs)
    all_named = cases is not None
    cases = tuple(cases) if all_named else DEFAULT
    for case in cases:
        if case not in CASES:
            raise ParameterError(f"there is no case {case!r}.{did_you_mean(case, CASES)} Cases: {', '.join(CASES)}")
    for one in work or ():  # data that is missing is found out before minutes of work
        spec = envs.get(one.env)
        spec.table_arrays(spec.make_params(**one.params))
    if processes is not None and "training" not in cases:
        raise ParameterError(f"processes = {shown(processes)} are those of the case training, which is not among cases")
    if compare:
        programs()
    say = progress or (lambda line: None)
    name, _ = choose(device)
    if processes is not None:
        processes = check_counts(processes, name)
    chosen = Chosen(work, name, processes is not None)
    left_out = chosen.left_out(cases)
    if left_out and all_named:
        raise ParameterError(f"{' and '.join(left_out.values())}; leave it out, or work (--env)")
    cases = tuple(case for case in cases if case not in left_out)
    where = executor(name)
    several = [] if processes is None else ["--gpus", ",".join(map(str, processes))]
    if processes is not None and name == "cpu":  # the command line has processes of GPUs only
        command = command or f"cupydrive.bench.bench({cases}, device='cpu', runs={runs}, processes={tuple(processes)})"
    command = command or shlex.join(["cupydrive", "bench", *cases, "--device", name, "--runs", str(runs), *several])
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    result = Bench(name, where.describe(), info().versions, date, command, ceilings(where, runs))
    result.skipped += left_out.values()
    for line in result.head():
        say(line)

    try:
        _measure_all(result, where, cases, runs, chosen, processes, compare, say)
    except KeyboardInterrupt:  # what was measured is kept
        result.interrupted = True
        result.skipped.append("what would have come next: interrupted")
    for line in result.tail():
        say(line)
    return result


def _measure_all(result, where, cases, runs, chosen, processes, compare, say):
    """Add to ``result`` all that ``bench`` was asked for, as it is measured."""

    def add(rows):
        for row in rows:
            result.rows.append(row)
            say(result.line(row))

    for case, measured, works in (
        ("rollout", measure, ROLLOUTS[where.name]),
        ("stepping", measure_steps, STEPS[where.name]),
    ):
        for one in (works if chosen.work is None else chosen.work) if case in cases else ():
            try:
                add([measured(one, where, runs)])
            except MemoryLimitError as error:  # a small GPU: the other rows are worth having
                result.skipped.append(str(error))
            except MissingDataError as error:
                result.skipped.append(f"{one.env}: {error}")
            free(where)
    if "sampling" in cases:
        add(measure_sampling(where, runs))
    if processes is not None:
        free(where)
        add(measure_scaling(processes, where.name, runs, chosen.scaled()))
    elif "training" in cases:
        for lesson in chosen.lessons():
            try:
                add(measure_lesson(lesson, where.name, runs))
            except MemoryLimitError as error:
                result.skipped.append(str(error))
            free(where)
    if "startup" in cases:
        for env, params in chosen.started():
            result.startup[env] = start_times(env, params, where.name)
        for env, learner, mark in chosen.trained():
            result.train_startup[f"{env} by {learner}"] = train_start_times(env, learner, mark, where.name)
        try:
            if chosen.concerns(CREATED_ENV):
                result.creation = creation_time(where, CREATED[where.name])
        except MemoryLimitError as error:
            result.skipped.append(str(error))
    if compare:
        free(where)
        for rows, skipped in run_peers(where.name, cases, runs, chosen.names):
            add(rows)
            result.skipped += skipped
