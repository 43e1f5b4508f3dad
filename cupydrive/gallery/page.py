"""The pages of a gallery, ``index.html`` and ``README.md``, from its JSON files and texts."""

import math
import re
import tomllib
from collections import Counter
from pathlib import Path

from jinja2 import Environment, PackageLoader

from cupydrive.drawing.frames import players_in_words
from cupydrive.inputs.files import write_atomically

CHECKOUT = Path(__file__).resolve().parents[2]  # the checkout, unless the package is installed
EXAMPLE = """import cupydrive as cd

run = cd.train("cartpole", steps=500_000)  # seconds
run.render("cartpole.mp4")"""
CHAPTERS = {  # in the order of the page
    "Many agents": "Several groups of agents with different goals, such as taggers and runners.",
    "Sciences": "Published models of chemistry, of climate and trade, and of a pandemic.",
    "Memory": "A single observation is not sufficient. Trained policies have hidden state.",
    "Classics": "Tasks with one group of agents, such as classic control and MinAtar's games.",
}
KINDS = {  # kinds of clips in the order of the page, with their default titles
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

    A file ``texts/NAME.toml`` in the folder may have a key ``reading``, which explains an entry's
    figures. ``texts/charts.toml`` lists charts with ``file``, ``title``, ``words``, and ``long``
    for a chart of two columns. Charts whose file does not exist are skipped.

    Args:
        out: Folder of the gallery.
        entries: Content of ``gallery.json``.
        curves: Content of ``curves.json``.
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
    # <time> prevents line breaks within dates.
    page = re.sub(r"(?<=[ >])(\d{4}-\d\d-\d\d)(?=[.,])", r"<time>\1</time>", page)
    readme = environment(autoescape=False).get_template("README.md.jinja").render(content)
    write_atomically(out / "index.html", page.encode())
    write_atomically(out / "README.md", readme.encode())


def read_text(out: Path, name: str) -> dict:
    """Read ``texts/NAME.toml`` of a gallery's folder, or return an empty dictionary."""
    path = out / "texts" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def in_chapters(entries: dict) -> dict[str, dict]:
    """Return the entries by chapter, in the order of the page.

    Entries with a clip of several runs come first. Otherwise they are sorted by name.
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
    """Return the Jinja environment of this package's templates."""
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
    """Return title, mean with interval, and the clip's own value for each of its figures.

    The last is empty for several episodes, or if all episodes have the same value.
    """
    names = {"length": "length, steps"} | entry.get("figures", {})
    here = ({"length": clip["steps"][0]} if clip["episodes"] == 1 else {}) | clip.get("here", {})
    return [
        (names.get(key, key.replace("_", " ")), *with_interval(mean, half, here.get(key)))
        for key, (mean, half) in clip["means"].items()
    ]


def with_interval(mean: float, half: float, here: float | None = None) -> tuple[str, str]:
    """Format a mean with the half width of its interval, and one episode's value.

    Both have equal decimals. The half width has at least two significant digits: -1244.7 and 23.1
    give ``"-1,245 ± 23"``. If all values are equal, or the interval is unknown, ``here`` is
    omitted.
    """
    if not (math.isfinite(half) and half > 0):
        return f"{exact(mean, 2)} ± {half:g}", ""
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean:,.{decimals}f} ± {half:,.{decimals}f}", "" if here is None else exact(
        here, decimals
    )


def exact(number: float, decimals: int) -> str:
    """Format a number without trailing zeros, such as 14 instead of 14.0."""
    text = f"{number + 0.0:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def code_block(lines: str) -> str:
    """Format lines as a Markdown code block, with a fence longer than any backticks in them."""
    fence = "`" * max([3, *(len(row) + 1 for row in re.findall("`+", lines))])
    return f"{fence}\n{lines}{fence}\n"


def inline(text: str) -> str:
    """Escape text for Markdown: mark-up, HTML, links, table cells, lists and headings."""
    text = re.sub(r"[\\`*\[\]<>|&~$]", r"\\\g<0>", " ".join(text.split()))
    # An underscore within a word, as in mountain_car, needs no escape.
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)
    return re.sub(r"^(\d*)([-+=#.)])(?!\d)", r"\1\\\2", text)
