"""The tables of the README, from the results that are committed in ``gallery/``.

python -m cupydrive.bench.tables     writes them between the README's marks; a test compares
"""

import json
import re
from pathlib import Path

from cupydrive.bench.report import Bench
from cupydrive.bench.startup import own_seconds
from cupydrive.bench.timing import short

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = {"cuda": "speed.json", "training": "speed-training.json", "cpu": "speed-cpu.json"}  # in gallery/
MARKS = "<!-- {name}: written by cupydrive.bench.tables -->"


def results():
    """Return the committed ``Bench``es."""
    kept = {name: ROOT / "gallery" / file for name, file in RESULTS.items()}
    return {name: Bench.from_dict(json.loads(path.read_text())) for name, path in kept.items()}


def markdown(titles, rows):
    """Return a Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def where(result):
    """Return what a table was measured on, in words."""
    versions = {name: result.versions[name] for name in ("Python", "torch", "CuPy", "NVRTC") if name in result.versions}
    if result.device == "cpu":
        versions = {name: versions[name] for name in ("Python", "torch")}
    c = result.ceilings
    return (
        f"{result.machine}, {', '.join(f'{name} {version}' for name, version in versions.items())}, {result.date[:10]}; "
        f"`{result.command}`. Limits measured in the same run: writes {short(c.write)}B/s, copies {short(c.copy)}B/s, "
        f"{short(c.arithmetic)}FLOP/s."
    )


def speed(result):
    """Return the table of rollouts and single steps."""
    rows, counted = [], any(row.operations_per_step is not None for row in result.rows)
    for row in result.rows:
        if row.case in ("rollout", "stepping") and row.who == "cupydrive":
            share = f"{row.bytes_per_second / result.ceilings.write:.0%}"
            how = ("one launch" if row.case == "rollout" else "a launch per step") + f", {row.note}" * bool(row.note)
            rows.append(
                [f"`{row.env}`", f"{row.agents:,}", f"{row.num_envs:,}", str(row.steps), how, short(row.rate),
                 f"{row.bytes_per_step:,}", f"{short(row.bytes_per_second)}B/s", share]
                + computed(result, row) * counted
            )  # fmt: skip
    titles = ["environment", "agents", "copies", "steps", "how", "env-steps/s", "bytes a step", "written", "of limit"]
    titles += ["operations a step", "of limit"] * counted
    return f"{where(result)}\n\n{markdown(titles, rows)}"


def computed(result, row):
    """Return the cells of the float operations of a row."""
    if row.operations_per_step is None:
        return ["", ""]
    return [short(row.operations_per_step), f"{row.operations_per_second / result.ceilings.arithmetic:.0%}"]


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
            rows.append(
                [f"`{row.env}`", str(row.agents), row.who, row.case, f"{row.num_envs:,}", short(row.rate), row.note]
            )
    return markdown(["task", "agents", "who", "case", "copies", "env-steps/s", "not alike"], rows)


def training(result):
    """Return the table of training, peers included."""
    rows = [
        [f"`{row.env}`", str(row.agents), row.who, f"{row.num_envs:,}", str(row.steps), row.note, short(row.rate)]
        for row in result.rows
        if row.case == "training"
    ]
    titles = ["environment", "agents", "who", "copies", "T", "settings", "env-steps/s"]
    return f"{where(result)}\n\n{markdown(titles, rows)}"


def startup(result):
    """Return the table of starts."""
    rows = [
        [f"`{env}`", cache, *(f"{parts[name]:.2f}" for name in parts), f"{own_seconds(parts):.2f}"]
        for env, by_cache in result.startup.items()
        for cache, parts in by_cache.items()
    ]
    parts = next(iter(next(iter(result.startup.values())).values()))
    return markdown(["seconds", "cache", *parts, "without torch and context"], rows)


def tables():
    """Return all tables by the name of their marks."""
    found = results()
    return {
        "speed": speed(found["cuda"]),
        "speed on a CPU": f"{speed(found['cpu'])}\n\n{compared(found['cpu'])}",
        "peers": compared(found["cuda"]),
        "training speed": training(found["training"]),
        "startup": startup(found["cuda"]),
    }


def written(text):
    """Return the README's text with its tables made anew."""
    for name, table in tables().items():
        mark = MARKS.format(name=name)
        found = re.search(f"{re.escape(mark)}\n.*?\n{re.escape(mark)}", text, re.S)
        if found is None:
            raise ValueError(f"the README has no two marks {mark}")
        text = text[: found.start()] + f"{mark}\n{table}\n{mark}" + text[found.end() :]
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(written(readme.read_text()))
