"""The tables of SPEED.md and of the README, and the charts, from the results in this folder.

python gallery/speed_tables.py     writes them between the marks of both files, where a test compares, and draws the charts
"""

import json
import math
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from speed_charts import (
    OURS,
    agents_of,
    algorithm_of,
    fastest,
    fastest_of_ours,
    nearest,
    rollout_chart,
    sweep_chart,
    task_of,
    times,
    training_chart,
    training_of,
)
from startup import own_seconds

from cupydrive.bench import Bench, Row, short
from cupydrive.drawing.curves import Curves

ROOT = Path(__file__).resolve().parents[1]
RESULTS = {  # in gallery/
    "cuda": "speed.json",
    "sciences": "speed-sciences.json",
    "training": "speed-training.json",
    "several GPUs": "speed-gpus.json",
    "cpu": "speed-cpu.json",
    "sciences on a CPU": "speed-sciences-cpu.json",
}
LESSONS = "learning.json"  # likewise; written by tests/tools/learning.py
STARTS = "startup.json"  # likewise; written by startup.py
MARKS = "<!-- {name}: written by gallery/speed_tables.py -->"
# Environments and agents of the README's table, among the tasks that another library has too.
ROLLED_OUT = (("cartpole", 1), ("tag_continuous", 105))
TRAINED = (("cartpole", 1), ("tag_grid", 5), ("tag_continuous", 105))
ROLLOUTS = "random rollouts"
# What other libraries do less holds for those that the table names; tests compare it with their
# rows.
BRIEFLY = """\
Environment steps per second on an {gpu}. The last row is on a CPU ({cpu}). One step advances all agents of one environment.

{table}

- Rollouts: cupydrive stores every step, gymnax stores no trajectory and WarpDrive stores only the last step. Compile time is \
excluded for every library. WarpDrive was timed in another run, on a machine with a slower CPU.
- Training: cupydrive uses bfloat16 matrix products with float32 accumulation on tensor cores, the default on a GPU. In float32, \
with bitwise identical weights on CPU and GPU, `cartpole` reaches {exact}. WarpDrive was timed in another run.
- Start: a new process with cached kernels reaches the first step of `tag_continuous` in {start:.1f} s, {own:.2f} s of it in \
cupydrive and the rest in importing torch and starting CUDA."""
# in a lesson; else a return
MEASURED = {"length": "steps until the runner is caught", "tags": "runners tagged"}


# ---- files ---------------------------------------------------------------------------------------


def committed(file: str) -> dict:
    """Return what a JSON file of the gallery holds."""
    return json.loads((ROOT / "gallery" / file).read_text(encoding="utf-8"))


def results() -> dict[str, Bench]:
    """Return the committed results."""
    return {name: Bench.from_dict(committed(file)) for name, file in RESULTS.items()}


def of_case(result: Bench, case: str) -> list[Row]:
    """Return the rows of one case."""
    return [row for row in result.rows if row.case == case]


# ---- what tables share ---------------------------------------------------------------------------


def markdown(titles: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table without the columns that are empty in all rows."""
    kept = [k for k in range(len(titles)) if any(row[k] for row in rows)]
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells[k] for k in kept)} |" for cells in lines)


def made(machine: str, versions: dict[str, str], date: str, command: str, device: str) -> str:
    """Return what made some figures, in words."""
    names = ("Python", "torch") if device == "cpu" else ("Python", "torch", "CuPy", "NVRTC")
    known = (f"{name} {versions[name]}" for name in names if name in versions)
    return f"{', '.join([machine, *known, date[:10]])}; `{command}`."


def where(result: Bench) -> str:
    """Return what a table was measured on, and the limits measured with it, in words."""
    c = result.ceilings
    products = f", {short(c.products)}FLOP/s in bfloat16 matrix products" if c.products else ""
    return (
        f"{made(result.machine, result.versions, result.date, result.command, result.device)} "
        f"Limits measured in the same run: writes {short(c.write)}B/s, copies {short(c.copy)}B/s, "
        f"{short(c.arithmetic)}FLOP/s{products}."
    )


def computed(result: Bench, row: Row) -> list[str]:
    """Return the cells of a row's float operations: of one step, and their share of the limit."""
    if row.operations_per_step is None:
        return ["", ""]
    share = row.operations_per_second / result.ceilings.operations(row.factors)
    return [short(row.operations_per_step), f"{share:.0%}"]


# ---- the tables ----------------------------------------------------------------------------------


def speed(result: Bench) -> str:
    """Return the table of our rollouts and single steps."""
    rows = []
    for row in result.rows:
        if row.case in ("rollout", "stepping") and row.who == "cupydrive":
            how = (
                "one launch" if row.case == "rollout" else "a launch per step"
            ) + f", {row.note}" * bool(row.note)
            sizes = [
                f"`{row.env}`",
                f"{row.agents:,}",
                f"{row.num_envs:,}",
                str(row.steps),
                how,
                short(row.rate),
            ]
            written = [f"{row.bytes_per_step:,}", f"{short(row.bytes_per_second)}B/s"]
            share = f"{row.bytes_per_second / result.ceilings.write:.0%}"
            rows.append([*sizes, *written, share, *computed(result, row)])
    titles = [
        "environment",
        "agents",
        "environments",
        "steps",
        "launches",
        "env-steps/s",
        "bytes per step",
        "write rate",
        "of limit",
    ]
    return f"{where(result)}\n\n{markdown([*titles, 'operations per step', 'of limit'], rows)}"


def compared(result: Bench) -> str:
    """Return the table of other libraries beside cupydrive: the fastest row of each, of as many
    agents.
    """
    best, rows = fastest(row for row in result.rows if row.case in ("rollout", "stepping")), []
    for task in dict.fromkeys((row.env, row.agents) for row in best if row.who != "cupydrive"):
        for row in sorted((r for r in best if (r.env, r.agents) == task), key=lambda r: r.rate):
            timed = [row.who, row.case, f"{row.num_envs:,}", short(row.rate), row.note]
            rows.append([f"`{row.env}`", f"{row.agents:,}", *timed])
    return markdown(
        ["task", "agents", "library", "case", "environments", "env-steps/s", "differences"], rows
    )


def training(result: Bench) -> str:
    """Return a table for each task and algorithm: others' rows below ours of as many copies, with
    the factor of ours.
    """
    found = of_case(result, "training")
    order = list(dict.fromkeys(map(task_of, found)))
    groups = {}
    for row in sorted(found, key=lambda row: order.index(task_of(row))):
        groups.setdefault(f"### `{row.env}`{agents_of(row)}, {training_of(row)}", []).append(row)
    parts = [where(result)]
    for title, rows in groups.items():
        common, cells = settings(rows[0]), []
        for row in rows:
            own = fastest_of_ours([other for other in rows if task_of(other) == task_of(row)])
            factor = "" if row.who in OURS or own is None else times(own.rate / row.rate)
            unlike = "; ".join(piece for piece in settings(row) if piece not in common)
            sizes = [f"{row.num_envs:,}", learner_of(row), short(row.rate), factor]
            cells.append([*sizes, *computed(result, row), unlike])
        titles = [
            "environments",
            "learner",
            "env-steps/s",
            "ratio",
            "operations per step",
            "of limit",
            "differences",
        ]
        parts += [title, f"{', '.join(common)}:", markdown(titles, cells)]
    return "\n\n".join(parts)


def settings(row: Row) -> list[str]:
    """Return what a row was trained with, piece by piece: its steps, and its note without algorithm
    and learner.
    """
    pieces = re.split(r"[;,] (?![^(]*\))", row.note)  # a comma in brackets separates nothing
    learner = re.search(rf"({algorithm_of(row)} by \w+), (\w+)", row.note)
    left_out = {algorithm_of(row), *(learner.groups() if learner else ())}
    return [
        f"{row.steps} steps per iteration",
        *(piece for piece in pieces if piece not in left_out),
    ]


def learner_of(row: Row) -> str:
    """Return the library of a training row, and of ours the learner."""
    learner = re.search(rf"{algorithm_of(row)} (by \w+, \w+)", row.note)
    return f"{row.who} {learner[1]}" if row.who in OURS and learner else row.who


def startup(kept: dict) -> str:
    """Return the table of starts."""
    rows = [
        [
            f"`{env}`",
            cache,
            *(f"{seconds:.2f}" for seconds in parts.values()),
            f"{own_seconds(parts):.2f}",
        ]
        for env, by_cache in kept["startup"].items()
        for cache, parts in by_cache.items()
    ]
    parts = next(iter(next(iter(kept["startup"].values())).values()))
    table = markdown(["seconds", "cache", *parts, "without torch and context"], rows)
    return f"{kept['machine']}, {kept['date'][:10]}; `{kept['command']}`.\n\n{table}"


def sweeps() -> str:
    """Return the charts of sweeps, each with the command that measured it."""
    parts = []
    for path in sorted((ROOT / "gallery").glob("scaling-*.json")):
        kept = committed(path.name)
        parts.append(
            f"![{path.stem}]({path.stem}.png)\n\n`{kept['command']}`; {kept['machine']}, "
            f"{kept['date'][:10]}."
        )
    return "\n\n".join(parts)


def lessons(kept: dict) -> str:
    """Return the table of what was learnt, and how soon: medians over seeds, and the spread of what
    was measured.
    """
    about, rows = {}, []
    for name, lesson in kept.items():
        about[
            made(
                ", ".join(lesson["machine"]),
                lesson["versions"],
                lesson["date"],
                lesson["command"],
                "cuda",
            )
        ] = None
        seeds = lesson["seeds"]
        cost = [
            short(statistics.median(seed["env_steps"] for seed in seeds)),
            f"{lesson['seconds']['median']:.2f}",
        ]
        first = [f"`{name}`", *cost, *until_mark(seeds)]
        for key, wanted in goals(lesson).items():
            values = [seed[key][0] if key in seed else seed["rival"][key][0] for seed in seeds]
            spread = [
                f"{value:.4g}"
                for value in (min(values), statistics.median_low(values), max(values))
            ]
            untrained = lesson.get("untrained", {}).get(key)
            passed = f"{sum(seed['passed'] for seed in seeds)} of {len(seeds)}" if first[0] else ""
            before = "" if untrained is None else f"{untrained + 0.0:.4g}"
            rows.append([*first, MEASURED.get(key, key), *spread, wanted, before, passed])
            first = [""] * len(first)  # what else is asked of the same lesson
    sizes = ["env-steps", "seconds", "seconds to threshold", "env-steps to threshold"]
    titles = [
        "task",
        *sizes,
        "metric",
        "lowest",
        "median",
        "highest",
        "target",
        "untrained",
        "passed",
    ]
    return f"{' '.join(about)}\n\n{markdown(titles, rows)}"


def goals(lesson: dict) -> dict[str, str]:
    """Return what a lesson asks for of each of its numbers, in words."""
    seeds = lesson["seeds"]
    if "rival" in seeds[0]:
        least = {
            key: statistics.median(seed["rival"][key][1] for seed in seeds)
            for key in seeds[0]["rival"]
        }
        return {key: f"> {value:.4g}, constant levels" for key, value in least.items()}
    key = next(key for key in lesson if key in seeds[0] and key not in ("passed", "seconds"))
    if "heuristic" in seeds[0]:
        heuristic = statistics.median(seed["heuristic"][0] for seed in seeds)
        share = lesson.get("of_heuristic", 1.0)
        of = "the heuristic" if share == 1 else f"{share:g} of the heuristic's {heuristic:.4g}"
        return {key: f"{'<' if key == 'length' else '>'} {share * heuristic:.4g}, {of}"}
    asked = {key: f"at least {lesson['mark']:.5g}"}
    for name, (low, high) in lesson["bounds"].items():
        asked[name] = (
            f"{low:g}"
            if low == high
            else f"at least {low:g}"
            if high is None
            else f"at most {high:g}"
        )
    return asked


def until_mark(seeds: list[dict]) -> tuple[str, str]:
    """Return the median seconds and env-steps until a seed reached the lesson's mark; empty where a
    lesson has none.
    """
    if "until_mark" not in seeds[0]:
        return "", ""
    reached = [seed["until_mark"] or {"seconds": math.inf, "env_steps": math.inf} for seed in seeds]
    middle = {
        name: statistics.median_high(each[name] for each in reached)
        for name in ("seconds", "env_steps")
    }
    if math.isinf(middle["seconds"]):  # half of the seeds never did
        return "not reached", ""
    return f"{middle['seconds']:.3f}", short(middle["env_steps"])


# ---- the README's table --------------------------------------------------------------------------


def briefly(found: dict[str, Bench]) -> str:
    """Return the README's table, rollouts and training beside the fastest other library, and what
    is not alike.
    """
    gpu, cpu, learnt = found["cuda"], found["cpu"], found["training"]
    pairs = [(ROLLOUTS, *pair(of_case(gpu, "rollout"), *task)) for task in ROLLED_OUT]
    for env, agents in TRAINED:
        rows = [
            row for row in of_case(learnt, "training") if (row.env, row.agents) == (env, agents)
        ]
        first = training_of(rows[0])
        rows = [row for row in rows if training_of(row) == first]
        pairs.append((f"training, {first}", *pair(rows, env, agents)))
    pairs.append((f"{ROLLOUTS} on a CPU", *pair(of_case(cpu, "rollout"), "cartpole", 1)))
    cells = []
    for benchmark, other, own in pairs:
        copies = f" with {other.num_envs:,} environments" * (other.num_envs != own.num_envs)
        task = [benchmark, f"`{own.env}`{agents_of(own)}", f"{own.num_envs:,}", short(own.rate)]
        cells.append(
            [*task, f"{short(other.rate)}{copies}, {other.who}", times(own.rate / other.rate)]
        )
    titles = ["benchmark", "task", "environments", "cupydrive", "fastest other library", "ratio"]
    exact = next(row for row in of_case(learnt, "training") if "by kernels, float32" in row.note)
    start = committed(STARTS)["startup"]["tag_continuous"]["warm"]
    return BRIEFLY.format(
        gpu=gpu.machine,
        cpu=cpu.machine,
        table=markdown(titles, cells),
        exact=short(exact.rate),
        start=sum(start.values()),
        own=own_seconds(start),
    )


def pair(rows: list[Row], env: str, agents: int) -> tuple[Row, Row]:
    """Return the fastest row of another library on a task, and ours with the nearest number of
    copies.
    """
    others = [row for row in rows if row.who not in OURS and (row.env, row.agents) == (env, agents)]
    other = max(others, key=lambda row: row.rate)
    return other, nearest(other, rows)


# ---- writing -------------------------------------------------------------------------------------


def tables() -> dict[str, dict[str, str]]:
    """Return all tables: by file, by the name of their marks."""
    found = results()
    return {
        "README.md": {"speed, briefly": briefly(found)},
        "gallery/SPEED.md": {
            "speed, briefly": briefly(found),
            "speed": speed(found["cuda"]),
            "speed of the sciences": "\n\n".join(
                speed(found[name]) for name in ("sciences", "sciences on a CPU")
            ),
            "peers": compared(found["cuda"]),
            "sweeps": sweeps(),
            "startup": startup(committed(STARTS)),
            "speed on a CPU": f"{speed(found['cpu'])}\n\n{compared(found['cpu'])}",
            "training speed": training(found["training"]),
            "training on several GPUs": training(found["several GPUs"]),
            "lessons": lessons(committed(LESSONS)),
        },
    }


def charts() -> dict[str, Curves]:
    """Return the figures of the committed results, by the name of their file in ``gallery/``."""
    found = results()
    drawn = {
        "speed.png": rollout_chart(found["cuda"]),
        "speed-cpu.png": rollout_chart(found["cpu"]),
        "speed-training.png": training_chart(found["training"]),
    }
    for path in sorted((ROOT / "gallery").glob("scaling-*.json")):
        drawn[f"{path.stem}.png"] = sweep_chart(
            Bench.from_dict(committed(path.name)), found["cuda"].rows
        )
    return drawn


def written(text: str, content: dict[str, str]) -> str:
    """Return a file's text with new tables, by the name of their marks.

    Raises:
        ValueError: If a mark does not stand twice in the text.
    """
    for name, table in content.items():
        mark = MARKS.format(name=name)
        found = re.search(f"{re.escape(mark)}\n.*?\n{re.escape(mark)}", text, re.S)
        if found is None:
            raise ValueError(f"the mark {mark} must stand above and below its table")
        text = text[: found.start()] + f"{mark}\n{table}\n{mark}" + text[found.end() :]
    return text


if __name__ == "__main__":
    for file, content in tables().items():
        path = ROOT / file
        path.write_text(written(path.read_text(encoding="utf-8"), content), encoding="utf-8")
    for file, figure in charts().items():
        (ROOT / "gallery" / file).write_bytes(figure.png(200))
