"""What tables of results say: Markdown, what made the figures, shares of limits, and notes of rows in a reader's words."""

import re

from cupydrive.bench.timing import short

ELSEWHERE = "timed in another run, on a machine with a slower CPU"
# How the programs of tests/peers note what is not alike, and how a reader is told.
TOLD = (
    (r"keeps no trajectory", "stores no trajectory"),
    (r"keeps the last step", "stores only the last step"),
    (r"compiles in ([\d.]+ s)", r"\1 to compile, not counted"),
    (r"starts after ([\d.]+ s)", r"\1 to start, not counted"),
    (r"a run of its own, in which (\w+) makes (.+)", rf"{ELSEWHERE}, where \1 makes \2"),
    (r"its own rules \((\w+)\)", r"a similar game, `\1`"),
    (r"hidden (\(.+\))", r"hidden layers \1"),
    (r"episodes of (\d+) steps at the end", r"its episodes last \1 steps at the end"),
)


def in_words(note):
    """Return what the note of a row says of another library, for readers who do not know the program that noted it."""
    return "; ".join(told(piece) for piece in note.split("; "))


def told(piece):
    """Return one piece of a note in words, or as it is."""
    for pattern, words in TOLD:
        if re.fullmatch(pattern, piece):
            return re.sub(pattern, words, piece)
    return piece


def markdown(titles, rows):
    """Return a Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def folded(summary, table):
    """Return a table that is shown where a reader opens it, on code hosts and in the documentation."""
    return f'<details markdown="1"><summary>{summary}</summary>\n\n{table}\n\n</details>'


def made(machine, versions, date, command, device):
    """Return what made some figures, in words."""
    names = ("Python", "torch") if device == "cpu" else ("Python", "torch", "CuPy", "NVRTC")
    known = (f"{name} {versions[name]}" for name in names if name in versions)
    return f"{', '.join([machine, *known, date[:10]])}; `{command}`."


def where(result):
    """Return what a table was measured on, in words."""
    c = result.ceilings
    return (
        f"{made(result.machine, result.versions, result.date, result.command, result.device)} Limits measured in the same "
        f"run: writes {short(c.write)}B/s, copies {short(c.copy)}B/s, {short(c.arithmetic)}FLOP/s"
        f"{f', {short(c.products)}FLOP/s in products of bfloat16 matrices' if c.products else ''}."
    )


def share(result, row):
    """Return the part of the write limit that a row fills; of other libraries nothing."""
    return "" if row.bytes_per_step is None else f"{row.bytes_per_second / result.ceilings.write:.0%}"


def computed(result, row):
    """Return the cells of the float operations of a row."""
    if row.operations_per_step is None:
        return ["", ""]
    limit = result.ceilings.operations(row.factors)
    return [short(row.operations_per_step), f"{row.operations_per_second / limit:.0%}"]
