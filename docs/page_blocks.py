"""Blocks of code on the pages of docs/: which there are, and which of them no test runs.

A block with a title is a file of that name. What stands right before a block that no test runs says
so, and why:

    *Not run by a test: needs Slurm.*
"""

import html
import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
BLOCK = re.compile(
    r"^(?:\*Not run by a test: (?P<why>[^*\n]+)\*\n\n)?```(?P<head>[^\n]*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One fenced block of a page.

    Args:
        language: ``"python"``, ``"bash"``, ``"cuda"`` ...; empty: none is named.
        title: The file that it is, or None.
        code: Its text.
        why: Why no test runs it, or None.
    """

    language: str
    title: str | None
    code: str
    why: str | None


def pages():
    """Return the text of each page of docs/, by its path there."""
    return {
        path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))
    }


def blocks(text):
    """Return the ``Block`` s of a page in their order."""
    found = []
    for match in BLOCK.finditer(text):
        title = TITLE.search(match["head"])
        language = match["head"].split()[0] if match["head"].strip() else ""
        found.append(Block(language, title and title[1], match["code"], match["why"]))
    return found


def not_run():
    """Return a table in Markdown of the blocks that no test runs, seen from a page directly in
    docs/.
    """
    rows = ["| page | block | reason |", "|---|---|---|"]
    for page, text in pages().items():
        for block in blocks(text):
            if block.why is not None:
                lines = [line.partition(" # ")[0].strip() for line in block.code.splitlines()]
                first = next(line for line in lines if line and not line.startswith(("#", "//")))
                shown = html.escape(first.rstrip("\\ ")).replace("|", "&#124;")
                rows.append(
                    f"| [{page.removesuffix('.md')}]({page}) | <code>{shown}</code> | "
                    f"{block.why.strip(' .')} |"
                )
    return "\n".join(rows)
