"""The tables of training: one for each task and algorithm, and below it, folded, what our kernels compute and need."""

import re

from cupydrive.bench.cells import computed, folded, markdown, told, where
from cupydrive.bench.charts import OURS, agents_of, algorithm_of, fastest_of_ours, task_of, times
from cupydrive.bench.timing import short

COMPUTED, REGISTERS = "What our kernels compute, and how near that is to the device's limit", "; their registers"


def training(result):
    """Return the tables: others' rows below ours of as many copies, with how many times as fast ours is."""
    found = [row for row in result.rows if row.case == "training"]
    order = list(dict.fromkeys(map(task_of, found)))
    found.sort(key=lambda row: order.index(task_of(row)))
    groups = {}
    for row in found:
        groups.setdefault(f"`{row.env}`{agents_of(row)}, {algorithm_of(row).upper()}", []).append(row)
    parts = [where(result)]
    for title, rows in groups.items():
        parts += [f"### {title}", *of_one_task(result, rows)]
    return "\n\n".join(parts)


def of_one_task(result, rows):
    """Return what all rows of one task and algorithm have in common, in words, and their tables."""
    usual, others = settings(rows[0]), any(row.who not in OURS for row in rows)
    shown, kernels = [], []
    for row in rows:
        own = [piece for piece in settings(row) if piece not in usual]
        first = [f"{row.num_envs:,}", who_learns(row)]
        unlike = "; ".join(map(told, own))
        shown.append([*first, short(row.rate), *([ours_beside(row, rows)] * others), unlike])
        if row.operations_per_step is not None:
            kernels.append([*first, unlike, *computed(result, row), row.kernels.replace(" registers", "")])
    titles = ["copies", "who", "env-steps/s"] + ["ours"] * others + ["not as above"]
    parts = [f"{', '.join(usual)}:", markdown(*filled(titles, shown))]
    if kernels:
        titles = ["copies", "who", "not as above", "operations a step", "of limit", "registers"]
        parts.append(folded(COMPUTED + REGISTERS * any(row[-1] for row in kernels), markdown(*filled(titles, kernels))))
    return parts


def filled(titles, rows):
    """Return titles and rows without the columns that are empty in all rows."""
    kept = [k for k in range(len(titles)) if any(row[k] for row in rows)]
    return [titles[k] for k in kept], [[row[k] for k in kept] for row in rows]


def settings(row):
    """Return what a row was trained with, piece by piece: its steps, and what its note says but for who learns by what."""
    pieces = re.split(r"[;,] (?![^(]*\))", row.note)  # a comma in brackets parts nothing
    algorithm = algorithm_of(row)
    learner = {
        algorithm,
        *(piece for found in re.findall(rf"({algorithm} by \w+), (\w+)", row.note) for piece in found),
    }
    return [f"{row.steps} steps an iteration", *(piece for piece in pieces if piece not in learner)]


def who_learns(row):
    """Return whose row it is; of ours by which learner."""
    learner = re.search(rf"{algorithm_of(row)} (by \w+, \w+)", row.note)
    return f"{row.who} {learner[1]}" if row.who in OURS and learner else row.who


def ours_beside(row, rows):
    """Return how many times as fast our fastest row of the same task, copies and algorithm is; blank beside none."""
    own = fastest_of_ours([other for other in rows if task_of(other) == task_of(row)])
    return "" if row.who in OURS or own is None else times(own.rate / row.rate)
