"""The tables of ``gallery/SPEED.md``, the README's short one, and charts, from the results that are committed in ``gallery/``.

python -m cupydrive.bench.tables     writes them between the marks of both files, where a test compares, and draws the charts
"""

import json
import math
import re
import statistics
from pathlib import Path

from cupydrive.bench.cells import ELSEWHERE, computed, in_words, made, markdown, share, where
from cupydrive.bench.charts import (
    OURS,
    agents_of,
    algorithm_of,
    chart,
    fastest_of_ours,
    task_of,
    times,
    training_chart,
)
from cupydrive.bench.report import Bench
from cupydrive.bench.startup import own_seconds
from cupydrive.bench.timing import short
from cupydrive.bench.training_tables import training
from cupydrive.drawing.stage import png

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = {  # in gallery/
    "cuda": "speed.json",
    "sciences": "speed-sciences.json",
    "training": "speed-training.json",
    "several GPUs": "speed-gpus.json",
    "cpu": "speed-cpu.json",
    "sciences on a CPU": "speed-sciences-cpu.json",
}
LESSONS = "learning.json"  # likewise; written by tests/tools/learning.py
MARKS = "<!-- {name}: written by cupydrive.bench.tables -->"
# Environments and agents of the README's table, among the tasks that another library has too.
ROLLED_OUT = (("cartpole", 1), ("tag_continuous", 105))
TRAINED = (("cartpole", 1), ("tag_grid", 5), ("tag_continuous", 105))
ROLLOUTS = "random rollouts"
COMPUTED = ["operations a step", "of limit"]  # titles of what ``computed`` returns
MEASURED = {"length": "steps until the runner is caught", "tags": "runners tagged"}  # in a lesson; else a return


def committed(file):
    """Return what a JSON file of the gallery holds."""
    return json.loads((ROOT / "gallery" / file).read_text(encoding="utf-8"))


def results():
    """Return the committed ``Bench``es."""
    return {name: Bench.from_dict(committed(file)) for name, file in RESULTS.items()}


def speed(result):
    """Return the table of rollouts and single steps."""
    rows, counted = [], any(row.operations_per_step is not None for row in result.rows)
    for row in result.rows:
        if row.case in ("rollout", "stepping") and row.who == "cupydrive":
            how = ("one launch" if row.case == "rollout" else "a launch per step") + f", {row.note}" * bool(row.note)
            rows.append(
                [f"`{row.env}`", f"{row.agents:,}", f"{row.num_envs:,}", str(row.steps), how, short(row.rate),
                 f"{row.bytes_per_step:,}", f"{short(row.bytes_per_second)}B/s", share(result, row)]
                + computed(result, row) * counted
            )  # fmt: skip
    titles = ["environment", "agents", "copies", "steps", "how", "env-steps/s", "bytes a step", "written", "of limit"]
    titles += COMPUTED * counted
    return f"{where(result)}\n\n{markdown(titles, rows)}"


def compared(result):
    """Return the table of other libraries beside cupydrive: the fastest row of each, of as many agents."""
    best = {}
    for row in result.rows:
        key = row.case, row.env, row.agents, row.who
        if row.case in ("rollout", "stepping") and (key not in best or row.rate > best[key].rate):
            best[key] = row
    rows = []
    for task in dict.fromkeys((row.env, row.agents) for row in best.values() if row.who != "cupydrive"):
        for row in sorted((r for r in best.values() if (r.env, r.agents) == task), key=lambda r: r.rate):
            timed = [row.who, row.case, f"{row.num_envs:,}", short(row.rate)]
            rows.append([f"`{row.env}`", f"{row.agents:,}", *timed, in_words(row.note)])
    return markdown(["task", "agents", "who", "case", "copies", "env-steps/s", "not alike"], rows)


def startup(result):
    """Return the table of starts, and that of training from a new process until it is solved, if it was measured."""
    rows = [
        [f"`{env}`", cache, *(f"{parts[name]:.2f}" for name in parts), f"{own_seconds(parts):.2f}"]
        for env, by_cache in result.startup.items()
        for cache, parts in by_cache.items()
    ]
    parts = next(iter(next(iter(result.startup.values())).values()))
    made = [markdown(["seconds", "cache", *parts, "without torch and context"], rows)]
    trained = [
        [what, cache, *("" if seconds is None else f"{seconds:.2f}" for seconds in parts.values()),
         f"{own_seconds(parts, 'first iteration'):.2f}",
         "not solved" if parts["until solved"] is None else f"{own_seconds(parts):.2f}"]
        for what, by_cache in result.train_startup.items()
        for cache, parts in by_cache.items()
    ]  # fmt: skip
    if trained:
        parts = next(iter(next(iter(result.train_startup.values())).values()))
        ends = ["first iteration without torch and context", "solved, likewise"]
        made.append(markdown(["seconds", "cache", *parts, *ends], trained))
    return "\n\n".join(made)


def lessons(kept):
    """Return the table of what was learnt, and how soon: medians over seeds, and the spread of what was measured."""
    about, rows = {}, []
    for name, lesson in kept.items():
        about[made(", ".join(lesson["machine"]), lesson["versions"], lesson["date"], lesson["command"], "cuda")] = None
        seeds = lesson["seeds"]
        cost = [short(statistics.median(seed["env_steps"] for seed in seeds)), f"{lesson['seconds']['median']:.2f}"]
        first = [f"`{name}`", *cost, *until_mark(seeds)]
        for key, wanted in goals(lesson).items():
            values = [seed[key][0] if key in seed else seed["rival"][key][0] for seed in seeds]
            spread = min(values), statistics.median_low(values), max(values)
            untrained = lesson.get("untrained", {}).get(key)
            rows.append(
                [*first, MEASURED.get(key, key), *(f"{value:.4g}" for value in spread), wanted,
                 "" if untrained is None else f"{untrained + 0.0:.4g}",
                 f"{sum(seed['passed'] for seed in seeds)} of {len(seeds)}" if first[0] else ""]
            )  # fmt: skip
            first = [""] * len(first)  # what else is asked of the same lesson
    sizes = ["env-steps", "seconds", "to the mark", "env-steps to it"]
    titles = ["lesson", *sizes, "measured", "lowest", "median", "highest", "asked for", "untrained", "passed"]
    return f"{' '.join(about)}\n\n{markdown(titles, rows)}"


def goals(lesson):
    """Return what is asked for of each number of a lesson, in words, by name."""
    seeds = lesson["seeds"]
    if "rival" in seeds[0]:
        least = {key: statistics.median(seed["rival"][key][1] for seed in seeds) for key in seeds[0]["rival"]}
        return {key: f"> {value:.4g}, constant levels" for key, value in least.items()}
    key = next(key for key in lesson if key in seeds[0] and key not in ("passed", "seconds"))
    if "heuristic" in seeds[0]:
        heuristic = statistics.median(seed["heuristic"][0] for seed in seeds)
        times = lesson.get("of_heuristic", 1.0)
        of = "the heuristic" if times == 1 else f"{times:g} of the heuristic's {heuristic:.4g}"
        return {key: f"{'<' if key == 'length' else '>'} {times * heuristic:.4g}, {of}"}
    asked = {key: f"at least {lesson['mark']:.5g}"}
    for name, (low, high) in lesson["bounds"].items():
        asked[name] = f"{low:g}" if low == high else f"at least {low:g}" if high is None else f"at most {high:g}"
    return asked


def until_mark(seeds):
    """Return the median seconds and env-steps until a seed reached the lesson's mark; blank where a lesson has none."""
    if "until_mark" not in seeds[0]:
        return "", ""
    reached = [seed["until_mark"] or {"seconds": math.inf, "env_steps": math.inf} for seed in seeds]
    middle = {name: statistics.median_high(each[name] for each in reached) for name in ("seconds", "env_steps")}
    if math.isinf(middle["seconds"]):  # half of the seeds never did
        return "not reached", ""
    return f"{middle['seconds']:.3f}", short(middle["env_steps"])


def sweeps():
    """Return the charts of sweeps, each with the command that makes it."""
    parts = []
    for path in sorted((ROOT / "gallery").glob("scaling-*.json")):
        kept = committed(path.name)
        parts.append(f"![{path.stem}]({path.stem}.png)\n\n`{kept['command']}`; {kept['machine']}, {kept['date'][:10]}.")
    return "\n\n".join(parts)


def fastest(rows, env, agents=1):
    """Return the fastest row of another library, and cupydrive's with the nearest number of copies, the first if several."""
    rows = [row for row in rows if (row.env, row.agents) == (env, agents)]
    other = max((row for row in rows if not row.who.startswith("cupydrive")), key=lambda row: row.rate)
    own = (row for row in rows if row.who == "cupydrive")
    return other, min(own, key=lambda row: abs(row.num_envs - other.num_envs))


def of_case(result, case):
    """Return the rows of one case."""
    return [row for row in result.rows if row.case == case]


def briefly(found):
    """Return what the README says: rollouts and training beside the fastest other library, and in words what is not alike."""
    gpu, cpu, learnt = found["cuda"], found["cpu"], found["training"]
    pairs = [(ROLLOUTS, *fastest(of_case(gpu, "rollout"), env, agents)) for env, agents in ROLLED_OUT]
    pairs += trained(of_case(learnt, "training"))
    pairs.append((f"{ROLLOUTS} on a CPU", *fastest(of_case(cpu, "rollout"), "cartpole")))
    titles = ["timed", "task", "environments", "cupydrive", "fastest other library", "ratio"]
    about = (
        f"Environment steps per second on an {gpu.machine}; the last row is on a CPU ({cpu.machine}). One step advances all "
        "agents of one environment."
    )
    table = markdown(titles, [beside(timed, other, own) for timed, other, own in pairs])
    sentences = [*unlike([other for _, other, _ in pairs]), *precisely(learnt), begun(learnt)]
    return "\n\n".join([about, table, "\n".join(f"- {sentence}" for sentence in sentences)])


def beside(timed, other, own):
    """Return the cells of our row and another library's."""
    copies = f" with {other.num_envs:,} environments" * (other.num_envs != own.num_envs)
    rates = [short(own.rate), f"{short(other.rate)}{copies}, {other.who}"]
    return [timed, f"`{own.env}`{agents_of(own)}", f"{own.num_envs:,}", *rates, times(own.rate / other.rate)]


def trained(rows):
    """Return what is trained how fast, by task that another library has too: the algorithm, its row and ours."""
    found = []
    for env, agents in TRAINED:
        compared = [row for row in rows if (row.env, row.agents) == (env, agents)]
        compared = [row for row in compared if algorithm_of(row) == algorithm_of(compared[0])]  # that of our first
        if any(row.who not in OURS for row in compared):
            found.append((f"training, {algorithm_of(compared[0]).upper()}", *fastest(compared, env, agents)))
    return found


def unlike(others):
    """Return in sentences what other libraries' rollouts do less than ours, and which were timed elsewhere; or nothing."""
    stored, elsewhere = {}, {}
    for row in others:
        library, pieces = row.who.split()[0], in_words(row.note).split("; ")
        stored |= {f"{library} {piece}": None for piece in pieces if piece.startswith("stores")}
        elsewhere |= {f" {library} was {ELSEWHERE}.": None for piece in pieces if piece.startswith(ELSEWHERE)}
    if not stored:
        return []
    said = f"Rollouts: cupydrive stores every step, {' and '.join(stored)}. Compile time is excluded for every library."
    return [said + "".join(elsewhere)]


def precisely(result):
    """Return in a sentence how ours multiplies where it trains fastest, and how fast it is in float32; or nothing."""
    own = fastest_of_ours(of_case(result, "training")[:1])
    exact = [
        row for row in of_case(result, "training") if task_of(row) == task_of(own) and "by kernels, exact" in row.note
    ]
    if own.factors == "float32" or not exact:
        return []
    return [
        f"Training: cupydrive multiplies in {own.factors} on tensor cores. In float32, with equal bits on CPU and GPU, "
        f"`{own.env}` reaches {short(exact[0].rate)}."
    ]


def begun(result):
    """Return in a sentence how soon a new process takes its first step."""
    parts = result.startup["tag_continuous"]["warm"]
    own = own_seconds(parts)
    return (
        f"Start: a new process with cached kernels reaches the first step of `tag_continuous` in {sum(parts.values()):.1f} s, "
        f"{own:.2f} s of it in cupydrive and the rest in importing torch and starting CUDA."
    )


def tables():
    """Return all tables: by file, by the name of their marks."""
    found = results()
    return {
        "README.md": {"speed, briefly": briefly(found)},
        "gallery/SPEED.md": {
            "speed, briefly": briefly(found),
            "speed": speed(found["cuda"]),
            "speed of the sciences": "\n\n".join(speed(found[name]) for name in ("sciences", "sciences on a CPU")),
            "peers": compared(found["cuda"]),
            "sweeps": sweeps(),
            "startup": startup(found["training"]),
            "speed on a CPU": f"{speed(found['cpu'])}\n\n{compared(found['cpu'])}",
            "training speed": training(found["training"]),
            "training on several GPUs": training(found["several GPUs"]),
            "lessons": lessons(committed(LESSONS)),
        },
    }


def charts():
    """Return the figures of the committed results, by the name of their file in ``gallery/``."""
    found = results()
    made = {
        "speed.png": chart(found["cuda"]),
        "speed-cpu.png": chart(found["cpu"]),
        "speed-training.png": training_chart(found["training"]),
    }
    for path in sorted((ROOT / "gallery").glob("scaling-*.json")):
        made[f"{path.stem}.png"] = chart(Bench.from_dict(committed(path.name)), found["cuda"].rows)
    return made


def written(text, made):
    """Return a file's text with its tables, by the name of their marks, made anew."""
    for name, table in made.items():
        mark = MARKS.format(name=name)
        found = re.search(f"{re.escape(mark)}\n.*?\n{re.escape(mark)}", text, re.S)
        if found is None:
            raise ValueError(f"there are no two marks {mark}")
        text = text[: found.start()] + f"{mark}\n{table}\n{mark}" + text[found.end() :]
    return text


if __name__ == "__main__":
    for file, made_of_it in tables().items():
        path = ROOT / file
        path.write_text(written(path.read_text(encoding="utf-8"), made_of_it), encoding="utf-8")
    for file, figure in charts().items():
        (ROOT / "gallery" / file).write_bytes(png(figure))
