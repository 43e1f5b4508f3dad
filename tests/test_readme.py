"""Every block of the README is run as it is printed, twice in one folder.

The text of a block is never altered. The quick test runs it with less work behind the same calls: ``train`` takes 2,000
steps, ``check`` compares 1,000 and ``render`` draws one episode, whatever the block asks for. The slow test runs the blocks as
scripts and alters nothing at all.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import python_path
from test_project import EXTRAS, _targets

import cupydrive as cd

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
PYTHON = [text for language, text in BLOCKS if language == "python"]
LINES = [[line.partition("#")[0].strip() for line in text.splitlines()] for language, text in BLOCKS if not language]
SHELL = [shlex.split(line) for lines in LINES for line in lines]
SECONDS = 540  # of one block as a script


def test_there_are_blocks_of_python_and_of_commands_alone():
    assert {language for language, _ in BLOCKS} == {"", "python"} and len(PYTHON) >= 3


def less(function, **given):
    """Return ``function`` with some arguments in place of what a caller passes or leaves out."""
    return lambda *positional, **named: function(*positional, **(named | given))


@pytest.mark.parametrize("text", PYTHON, ids=lambda text: text.split("\n")[3][:30])
def test_python_runs_twice_in_one_folder(text, tmp_path, monkeypatch):
    monkeypatch.setattr(cd, "train", less(cd.train, steps=2_000), raising=False)
    monkeypatch.setattr(cd, "check", less(cd.check, agent_steps=1_000), raising=False)
    monkeypatch.setattr(cd.Run, "render", less(cd.Run.render, episodes=1))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(text, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.slow
@pytest.mark.parametrize("text", PYTHON, ids=lambda text: text.split("\n")[3][:30])
def test_python_runs_twice_in_one_folder_as_a_script(text, tmp_path):
    (tmp_path / "block.py").write_text(text)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "block.py"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": python_path()},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr


def test_it_is_read_in_ten_minutes():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


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
