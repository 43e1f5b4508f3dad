"""What mkdocs shows besides the pages of docs/: notebooks, the command line, files of the
repository, and the API's names.

A page names what the package offers as ``::: cd.NAME``; the site is not built while a name of
``cupydrive.__all__`` is on no page. Where a page says ``<!-- blocks that no test runs -->``, they
are listed, and ``<!-- from FILE -->`` is that file's text.
"""

import contextlib
import io
import os
import re
from pathlib import Path
from unittest.mock import patch

import nbformat
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from nbconvert import MarkdownExporter
from page_blocks import not_run, pages

import cupydrive
from cupydrive.cli.main import COMMANDS, main

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
WIDTH = "80"  # columns of the command line's help
FROM_REPOSITORY = {  # pages that are files elsewhere
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    "notes.md": "kernels/NOTES.md",
}
PICTURES = (".png", ".gif", ".svg", ".webp", ".mp4")  # of the gallery
LEADS = {  # where links of the gallery's page lead, and where they do here
    "SPEED.md": "../speed.html",
    "../README.md": "../index.html",
    "../docs/how/watch.md": "../how/watch.html",
}
# What users of these call first; what else they have follows.
FIRST = {
    "VectorEnv": ["reset", "step", "rollout", "state", "snapshot", "restore", "set_state"],
    "Run": ["evaluate", "render", "plot", "act", "policy", "export", "save", "load", "explain"],
}
# Of these classes, what their users call; the rest is for the package, and docs/api/protocols.md
# says what calls it.
NO_MEMBERS = ", members: false, inherited_members: false"
MEMBERS = {
    "EnvSpec": ["make_params"],
    **{
        name: []
        for name in (
            "PPO",
            "A2C",
            "DDPG",
            "Network",
            "GRU",
            "MinGRU",
            "LSTM",
            "Conv",
            "OpponentPool",
            "HeuristicPolicy",
            "RandomPolicy",
            "FrozenPolicy",
        )
    },
}
NAMED = re.compile(r"^::: cd\.(\w+)$", re.M)
UNTESTED = re.compile(r"^\*Not run by a test: [^*\n]+\*$", re.M)  # a note, in smaller letters
LISTED = "<!-- blocks that no test runs -->"
INCLUDED = re.compile(r"^<!-- from ([\w./]+) -->$", re.M)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


# ---- the API's names -----------------------------------------------------------------------------


def api_names():
    """Return all names that pages document as ``::: cd.NAME``, in their order."""
    return [name for text in pages().values() for name in NAMED.findall(text)]


def in_order(cls, first):
    """Return the names of what a class offers, ``first`` before the others."""
    own = [base for base in cls.__mro__ if base.__module__.startswith("cupydrive.")]
    names = [
        name
        for base in own
        for name, value in vars(base).items()
        if callable(value) or hasattr(value, "__get__")
    ]
    return list(dict.fromkeys([*first, *(name for name in names if not name.startswith("_"))]))


def directive(name):
    """Return what mkdocstrings reads for ``::: cd.NAME``."""
    if name not in cupydrive.__all__:
        raise PluginError(f"::: cd.{name}: cupydrive offers no {name!r}")
    offered = getattr(cupydrive, name)
    path = f"{offered.__module__}.{offered.__qualname__}"
    if name in FIRST:
        members = (
            f", members: [{', '.join(in_order(offered, FIRST[name]))}], group_by_category: false"
        )
    elif shown := MEMBERS.get(name, ()):
        members = f", members: [{', '.join(shown)}]"
    else:
        members = NO_MEMBERS if name in MEMBERS else ""
    return f"::: {path}\n    options: {{heading: cd.{name}, toc_label: cd.{name}{members}}}\n"


# ---- pages that are made -------------------------------------------------------------------------


def linked(words, places):
    """Return a lesson's words with links: what they name in backticks leads to the page that
    ``places`` says, if any.
    """
    return CODE.sub(
        lambda found: f"[{found[0]}]({places[found[1]]})" if found[1] in places else found[0], words
    )


def notebook_pages(config):
    """Yield a page for each notebook with the outputs that it is committed with, and their
    pictures.
    """
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    places = {path.stem: f"{path.stem}.md" for path in paths} | {
        f"docs/{name}": f"../{name}" for name in pages()
    }
    places |= {"gallery/SPEED.md": "../speed.md"}
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = linked(cell.source, places)
        body, resources = MarkdownExporter().from_notebook_node(
            notebook, {"output_files_dir": f"{path.stem}_files"}
        )
        title, _, rest = body.partition("\n")
        about = f"This page is `notebooks/{path.name}`. `make notebook` opens it in JupyterLab."
        yield File.generated(
            config, f"notebooks/{path.stem}.md", content=f"{title}\n\n{about}\n{rest}"
        )
        for name, content in resources["outputs"].items():
            yield File.generated(config, f"notebooks/{name}", content=content)


def command_line():
    """Return the page of the command line: the help of each command, as it prints it."""
    parts = [
        "# Command line",
        "The output of `cupydrive COMMAND --help`. Each command calls a function of the package.",
    ]
    parts.append(
        "Exit codes: 0 success, 1 a check has failed, 2 wrong input or something missing, 130 "
        "interrupted. An interrupted training that saves its result (--out) exits with 0."
    )
    for command in COMMANDS:
        said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        plain = patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1"})
        with plain, contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([command, "--help"])
        said.flush()
        lines = said.buffer.getvalue().decode().strip().splitlines()
        text = "\n".join(line.rstrip() for line in lines)
        parts.append(f"## cupydrive {command}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def included(source):
    """Return the sections of a Markdown file of the repository for a page directly in docs/: all
    from its first one on.
    """
    path = ROOT / source
    pages_of = {ROOT / file: page for page, file in FROM_REPOSITORY.items()}

    def link(found):
        target = (path.parent / found[1]).resolve()
        start = DOCS if target.is_relative_to(DOCS) else ROOT
        return f"]({pages_of.get(target) or target.relative_to(start).as_posix()}"

    text = path.read_text()
    return LINK.sub(link, text[text.index("\n## ") :])


# ---- what mkdocs calls ---------------------------------------------------------------------------


def on_files(files, config):
    """Add pages that are made, and the pictures of the gallery."""
    missing = set(cupydrive.__all__) - {"__version__", *api_names()}
    if missing:
        raise PluginError(f"on no page: {', '.join(f'::: cd.{name}' for name in sorted(missing))}")
    for file in notebook_pages(config):
        files.append(file)
    files.append(File.generated(config, "command_line.md", content=command_line()))
    for page, source in FROM_REPOSITORY.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for path in sorted((ROOT / "gallery").iterdir()):
        if path.suffix in PICTURES:
            files.append(File.generated(config, f"gallery/{path.name}", abs_src_path=str(path)))
    page = (ROOT / "gallery" / "index.html").read_text()
    for file, ours in LEADS.items():
        page = page.replace(f'href="{file}"', f'href="{ours}"')
    files.append(File.generated(config, "gallery/index.html", content=page))
    return files


def on_page_markdown(markdown, page, config, files):
    """Expand ``::: cd.NAME``, files of the repository, and the list of blocks that no test runs."""
    markdown = NAMED.sub(lambda found: directive(found[1]), markdown)
    markdown = UNTESTED.sub(r"\g<0>\n{ .untested }", markdown)
    markdown = INCLUDED.sub(lambda found: included(found[1]), markdown)
    return markdown.replace(LISTED, not_run()) if LISTED in markdown else markdown


def on_page_content(html, page, config, files):
    """Make cells of a table's heads that say nothing: to who has the page read out, they would be
    heads of nothing.
    """
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)
