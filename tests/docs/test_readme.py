"""Every block of the README is run as it is printed, twice in one folder.

The text of a block is never altered. The quick test runs it with less work behind the same calls:
``train`` takes 2,000 steps, ``check`` compares 1,000 and ``render`` draws one episode, whatever the
block asks for. The slow test runs the blocks as scripts and alters nothing at all.

The lines that the README shows below a block are among those that it prints, in their order: to the
digit in the slow test, which does the same work, and but for the numbers in the quick one. They are
of a CPU, and compared where there is no GPU.
"""

import re
import shlex
from collections.abc import Callable
from doctest import OutputChecker
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import run_python
from site_blocks import ALIKE
from test_project import EXTRAS, _targets

import cupydrive as cd
from cupydrive.executors import choose

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PYTHON = [text for language, text in BLOCKS if language == "python"]
SHOWN = {
    code: text
    for (language, code), (then, text) in pairwise(BLOCKS)
    if (language, then) == ("python", "text")
}
LINES = [
    [line.partition("#")[0].strip() for line in text.splitlines()]
    for language, text in BLOCKS
    if not language
]
SHELL = [shlex.split(line) for lines in LINES for line in lines]
NUMBER = r"-?\d[\d,]*(\.\d+)?(e[+-]\d+)?"
SECONDS = 540  # of one block as a script


def without_numbers(text: str) -> str:
    """Return a text with a mark for each number; the shape of a tensor stays, which is the same
    with less work.
    """
    lines = [
        line if "torch.Size" in line else re.sub(NUMBER, "#", line) for line in text.splitlines()
    ]
    return "\n".join(lines)


def prints(printed: str, shown: str, of: Callable[[str], str] = str) -> bool:
    """Return whether the lines that the README shows are among those printed; ``...`` stands for
    any.
    """
    return choose()[0] == "cuda" or OutputChecker().check_output(
        f"...{of(shown).strip()}...", of(printed), ALIKE
    )


def less(function, **given):
    """Return ``function`` with some arguments in place of what a caller passes or leaves out."""
    return lambda *positional, **named: function(*positional, **(named | given))


@pytest.mark.quick(3)
@pytest.mark.parametrize("text", PYTHON, ids=lambda text: text.split("\n")[3][:30])
def test_python_runs_twice_in_one_folder(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cd, "train", less(cd.train, steps=2_000), raising=False)
    monkeypatch.setattr(cd, "check", less(cd.check, agent_steps=1_000), raising=False)
    monkeypatch.setattr(cd.Run, "render", less(cd.Run.render, episodes=1))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(text, "README.md", "exec"), {"__name__": "__main__"})
        printed = capsys.readouterr().out
        assert prints(printed, SHOWN[text], without_numbers), printed


def test_the_check_names_the_mistake_that_the_readme_makes():
    wrong, right = "x - env", "x + env"
    (said,) = re.search(
        r"subtracts the push instead of adding it, the check reports `([^`]+)`", README
    ).groups()
    (text,) = (text for text in PYTHON if "KERNEL" in text)
    assert text.count(right) == 1
    names = {"__name__": "__main__"}
    before, _, _ = text.replace(right, wrong).partition("print(cd.check")
    exec(compile(before, "README.md", "exec"), names)
    report = str(cd.check("point", device="cpu"))
    assert report.startswith("FAIL") and " ".join(said.split()) in report


@pytest.mark.slow
@pytest.mark.parametrize("text", PYTHON, ids=lambda text: text.split("\n")[3][:30])
def test_python_runs_twice_in_one_folder_as_a_script(text, tmp_path):
    (tmp_path / "block.py").write_text(text)
    for _ in range(2):
        done = run_python("block.py", cwd=tmp_path, seconds=SECONDS)
        assert done.returncode == 0, done.stderr
        assert prints(done.stdout, SHOWN[text]), done.stdout


def test_it_is_read_in_ten_minutes():
    assert len(README.splitlines()) <= 120


def test_commands_of_others_name_what_exists():
    for line in SHELL:
        for words in " ".join(line).split(" && "):
            program, *rest = words.split()
            if program == "make":
                assert set(rest) <= _targets()
            elif program == "pip":
                extras = re.findall(r"\[([\w,-]+)\]", words)
                assert set(",".join(extras).split(",")) - {""} <= EXTRAS.keys()
            elif program == "conda":
                assert (ROOT / rest[-1]).exists() or rest[0] == "activate"
            elif program == "jupyter":
                assert (ROOT / rest[-1]).is_dir()
            else:
                assert program == "cupydrive", words
