"""The pages of a gallery: ``index.html``, and ``README.md`` for code hosts, from its JSON files and
texts.
"""

import math
import re
import tomllib
from collections import Counter
from pathlib import Path

from jinja2 import Environment, PackageLoader

from cupydrive.drawing.frames import players_in_words
from cupydrive.inputs.files import write_atomically

CHECKOUT = Path(__file__).resolve().parents[2]  # of the project, if this is no installed package
EXAMPLE = """import cupydrive as cd

run = cd.train("cartpole", steps=500_000)  # seconds
run.render("cartpole.mp4")"""
CHAPTERS = {  # in their order on the page
    "Many agents": "Taggers chase, runners flee, and both can learn.",
    "Sciences": "Published models of chemistry, of climate and trade, and of a pandemic.",
    "Memory": "A single observation is not sufficient. Trained policies have hidden state.",
    "Classics": "Classic control tasks with Gymnasium's rules.",
}
KINDS = {  # of clips, in their order, and what a clip without a title is called
    "beside": "Side by side",
    "random": "Random",
    "heuristic": "Heuristic",
    "trained": "Trained",
    "longer": "Trained longer",
    "mosaic": "Trained, many initial states",
    "general": "Trained, against a heuristic",
}


def write_pages(out: Path, entries: dict, curves: dict) -> None:
    """Write ``index.html`` and ``README.md`` into a gallery's folder.

    A file ``texts/NAME.toml`` in it may have a line ``reading``, how to read an entry's figures.
    ``texts/charts.toml`` lists charts: ``file``, ``title``, ``words``, and ``long`` for one of two
    columns. Those whose file is in the folder are shown.

    Args:
        out: Folder.
        entries: What ``gallery.json`` holds.
        curves: What ``curves.json`` holds.
    """
    found = {}
    for name, entry in entries.items():
        several = [
            about for key, about in curves.items() if re.fullmatch(rf"{re.escape(name)}_\d+", key)
        ]
        runs = [curves[name]] if name in curves else several
        clips = sorted(entry["clips"], key=lambda clip: list(KINDS).index(clip["kind"]))
        found[name] = entry | read_text(out, name) | {"curves": runs, "clips": clips}
    counts = [
        (name, clip["episodes_of_means"])
        for name, entry in entries.items()
        for clip in entry["clips"]
    ]
    usual = Counter(count for _, count in counts).most_common(1)
    episodes = usual[0][0] if usual else 0
    content = {
        "chapters": in_chapters(found),
        "about": CHAPTERS,
        "charts": [
            chart
            for chart in read_text(out, "charts").get("chart", ())
            if (out / chart["file"]).is_file()
        ],
        "count": len(entries),
        "episodes": episodes,
        "fewer": dict(sorted({(name, count) for name, count in counts if count != episodes})),
        "example": EXAMPLE,
        "home": "../"
        if out.resolve().parent == CHECKOUT and (CHECKOUT / "pyproject.toml").is_file()
        else None,
    }
    page = environment(autoescape=True).get_template("index.html.jinja").render(content)
    # which no line breaks
    page = re.sub(r"(?<=[ >])(\d{4}-\d\d-\d\d)(?=[.,])", r"<time>\1</time>", page)
    readme = environment(autoescape=False).get_template("README.md.jinja").render(content)
    write_atomically(out / "index.html", page.encode())
    write_atomically(out / "README.md", readme.encode())


def read_text(out: Path, name: str) -> dict:
    """Return what ``texts/NAME.toml`` of a gallery's folder holds, if it is there."""
    path = out / "texts" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def in_chapters(entries: dict) -> dict[str, dict]:
    """Return the entries by chapter, in the order of the page: those with a clip of several runs
    first, then by name.
    """
    found = {}
    for chapter in CHAPTERS:
        names = [name for name, entry in entries.items() if entry["chapter"] == chapter]
        wide = {
            name
            for name in names
            if any(clip["kind"] == "beside" for clip in entries[name]["clips"])
        }
        if names:
            found[chapter] = {
                name: entries[name]
                for name in sorted(names, key=lambda name: (name not in wide, name))
            }
    return found


def environment(autoescape: bool) -> Environment:
    """Return Jinja's environment of the templates of this package."""
    made = Environment(
        loader=PackageLoader("cupydrive.gallery"),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["kinds"] = KINDS
    made.filters |= {
        "code_block": code_block,
        "inline": inline,
        "means": means,
        "players": players_in_words,
        "slug": lambda text: text.lower().replace(" ", "-"),
        "thousands": "{:,}".format,
    }
    return made


def means(entry: dict, clip: dict) -> list[tuple[str, str, str]]:
    """Return what a clip's figures are called, their means with intervals, and the value of the
    clip's own episode.

    The last is empty for several episodes, and where all episodes have the same value.
    """
    names = {"length": "length, steps"} | entry.get("figures", {})
    here = ({"length": clip["steps"][0]} if clip["episodes"] == 1 else {}) | clip.get("here", {})
    return [
        (names.get(key, key.replace("_", " ")), *with_interval(mean, half, here.get(key)))
        for key, (mean, half) in clip["means"].items()
    ]


def with_interval(mean: float, half: float, here: float | None = None) -> tuple[str, str]:
    """Return a mean with the half width of its interval, and one episode's number, with equal
    decimals.

    The half width has two significant digits or more: -1244.7 and 23.1 are ``"-1,245 ± 23"``. Where
    all values are equal, or the interval is unknown, ``here`` is left out.
    """
    if not (math.isfinite(half) and half > 0):
        return f"{exact(mean, 2)} ± {half:g}", ""
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean:,.{decimals}f} ± {half:,.{decimals}f}", "" if here is None else exact(
        here, decimals
    )


def exact(number: float, decimals: int) -> str:
    """Return a number without zeros at its end: 14 tags, and not 14.0."""
    text = f"{number + 0.0:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def code_block(lines: str) -> str:
    """Return lines as a code block of Markdown, in a fence that is longer than any row of backticks
    in them.
    """
    fence = "`" * max([3, *(len(row) + 1 for row in re.findall("`+", lines))])
    return f"{fence}\n{lines}{fence}\n"


def inline(text: str) -> str:
    """Return text as Markdown that shows just this text: no mark-up, HTML, link, table cell, list
    or heading begins in it.
    """
    text = re.sub(r"[\\`*\[\]<>|&~$]", r"\\\g<0>", " ".join(text.split()))
    # within words, as in mountain_car, it marks nothing
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return re.sub(r"^(\d*)([-+=#.)])(?!\d)", r"\1\\\2", text)
