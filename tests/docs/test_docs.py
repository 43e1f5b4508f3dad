"""Every block of every page of docs/ is run, but those of which the page says that no test does,
and why.

The text of a block is never altered. The quick test runs pages with less work behind the same
calls: ``LESS`` says how much. The slow one runs each page in a process of its own and alters
nothing.
"""

import re
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
from conftest import run_python
from page_blocks import blocks, not_run, pages
from site_blocks import run_page
from test_structure import PATH

from cupydrive import envs
from cupydrive.cli.main import choices

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages()
RUN = {
    name: text for name, text in PAGES.items() if any(block.why is None for block in blocks(text))
}
LANGUAGES = {"python", "bash", "cuda", "text"}
SECONDS = 1200  # of one page as it is
# Pages of many calls, which `make test` leaves to `make test-all`.
LONG = [f"how/{name}.md" for name in ("export", "opponents", "profile", "seeds", "sweep")]
# At most so much of what a call is given or takes by itself.
LESS = {
    "experiments.train:train": {"steps": 10_000, "seeds": 3},
    "experiments.sweep:sweep": {"trials": 3, "batch": 3, "steps": 5_000},
    "checks.checker:check": {"agent_steps": 1_000},
    "rendering.video:render": {"episodes": 2},
    "rendering.video:Video.__init__": {"seconds": 0.2},
    "playing.evaluation:evaluate": {"episodes": 20},
    "experiments.tournament:tournament": {"episodes": 20},
    "training.run:Run.evaluate": {"episodes": 20},
}
ONLY_IF_GIVEN = {"seeds"}


def less(function, most):
    """Return ``function`` with the arguments that ``most`` names no larger than there; those not
    given are as large.
    """

    def call(*positional, **named):
        bound = signature(function).bind(*positional, **named)
        for name, limit in most.items():
            given = bound.arguments.get(name)
            if given is not None or name not in ONLY_IF_GIVEN:
                bound.arguments[name] = min(given or limit, limit)
        return function(*bound.args, **bound.kwargs)

    return call


@pytest.mark.full
# of Lightning's parts and torch, about each other
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in RUN]
)
def test_the_blocks_of_a_page_run(name, tmp_path, monkeypatch):
    for place, most in LESS.items():
        module, _, path = place.partition(":")
        *owner, attribute = path.split(".")
        holder = import_module(f"cupydrive.{module}")
        holder = getattr(holder, owner[0]) if owner else holder
        monkeypatch.setattr(holder, attribute, less(getattr(holder, attribute), most))
    monkeypatch.chdir(tmp_path)
    run_page(name, PAGES[name], slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_a_page_runs_as_it_is(name):
    done = run_python(ROOT / "tests" / "tools" / "site_blocks.py", name, seconds=SECONDS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("name", PAGES)
def test_blocks_are_of_known_languages_and_code_is_formatted(name, tmp_path):
    text = PAGES[name]
    assert {block.language for block in blocks(text)} <= LANGUAGES
    assert not re.findall(r"^ +```", text, re.M), "a block in a list or a tab is not found"
    assert text.count("```") == 2 * len(blocks(text))
    quoted = "\n".join(path.read_text() for path in (ROOT / "kernels").rglob("*.cu*"))
    for number, block in enumerate(blocks(text)):
        if block.language == "cuda" and block.title is None:
            assert block.code in quoted, f"neither a file nor a part of one: {block.code}"
        if block.language == "python":
            (tmp_path / f"block{number}.py").write_text(block.code)
    for command in (
        ["check", "--ignore", "D,E402,F401,F811,F821,F841,B018,I001"],
        ["format", "--check"],
    ):
        # Blocks are as wide as a page.
        wide = ("line-length=120", "lint.pycodestyle.max-line-length=128")
        config = [f"--config={each}" for each in (ROOT / "pyproject.toml", *wide)]
        done = run_python("-m", "ruff", *command, *config, tmp_path)
        assert done.returncode == 0, done.stdout


def test_what_no_test_runs_is_listed_with_its_reason():
    left_out = [block for text in PAGES.values() for block in blocks(text) if block.why is not None]
    assert len(not_run().splitlines()) == 2 + len(left_out)
    assert any("<!-- blocks that no test runs -->" in text for text in PAGES.values())
    assert all(len(block.why) > 10 for block in left_out)


@pytest.mark.parametrize("name", PAGES)
def test_paths_on_pages_exist(name):
    for code in re.findall(r"`([^`\n]+)`", PAGES[name]):
        for path in re.findall(PATH, code):
            assert re.search("NAME|-v0$", path) or list(ROOT.glob(path.rstrip("/."))), path


def test_the_pages_of_environments_and_questions_are_whole():
    names = re.findall(
        r"^\| \[`(\w+)`\]\(gallery/index\.html#\1\) \|", PAGES["environments.md"], re.M
    )
    assert sorted(names) == sorted(envs.names())
    rows = re.findall(
        r"^\| \[`(\w+)`\]\(gallery/index\.html#\1\) \|[^|]+\|[^|]+\| ([^|]+) \|",
        PAGES["environments.md"],
        re.M,
    )
    spaces = {name: envs.get(name).groups(envs.get(name).params()) for name in envs.names()}
    assert {name: told.split(";")[0] for name, told in rows if "[" not in told} == {
        name: ", ".join(dict.fromkeys(choices(group.sizes) for group in groups))
        for name, groups in spaces.items()
        if not groups[0].continuous
    }
    lessons = re.findall(r"^\| \[(\w+)\]\(notebooks/\1\.md\)", PAGES["notebooks.md"], re.M)
    assert lessons == sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    asked = {f"how/{page}" for page in re.findall(r"\]\((\w+\.md)\)", PAGES["how/index.md"])}
    assert asked == {name for name in PAGES if name.startswith("how/")} - {"how/index.md"}
