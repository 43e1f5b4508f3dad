"""Runs the blocks of a page of docs/ as a reader would: in their order, in one folder, with one
Python for all of them.

    python tests/tools/site_blocks.py how/export.md

- `python`: run, in one namespace for the page. With a title: written to the file of that name, as
  is any other language.
- `bash`: commands of ours, and of torchrun; a line that ends in `# exit code 1` ends so.
- `text`, after one of those: what it prints; `...` stands for anything.
- What a page says is not run by a test is left out.
"""

import contextlib
import doctest
import io
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
from page_blocks import DOCS, blocks

from cupydrive.cli.main import main

SECONDS = 600  # of one command of torchrun
SLOW = ("torchrun", "cupydrive bench")
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(name, text, slow=True):
    """Run the blocks of a page in the working directory.

    Args:
        name: Of the page, for tracebacks.
        text: Of the page.
        slow: Also run blocks with commands of ``SLOW``: they start processes of their own, or time
            this machine.
    """
    names, said = {"__name__": "__main__"}, None
    for block in blocks(text):
        if block.why is not None:
            continue
        if block.title is not None:
            Path(block.title).write_text(block.code)
        elif block.language == "python":
            with printed() as said:
                exec(compile(block.code, name, "exec"), names)
        elif block.language == "bash":
            lines = commands(block.code)
            if slow or not any(line.startswith(SLOW) for line in lines):
                with printed() as said:
                    for line in lines:
                        run_command(line)
        elif block.language == "text":
            got = said.getvalue().decode()
            assert doctest.OutputChecker().check_output(block.code, got, ALIKE), (
                f"{name} prints:\n{got}"
            )


@contextlib.contextmanager
def printed():
    """Give a file of bytes that has, at the end, what was printed meanwhile."""
    kept = io.BytesIO()
    stream = io.TextIOWrapper(kept, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(stream):
        yield kept
    stream.detach()


def commands(code):
    """Return the lines of a shell block; one that ends in a backslash goes on in the next."""
    lines = code.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def run_command(line):
    """Run one command and hold that it ends as its line says."""
    words, _, remark = line.partition(" # ")
    program, *arguments = shlex.split(words)
    expected = int(remark.removeprefix("exit code ")) if remark.startswith("exit code ") else 0
    if program == "cupydrive":
        assert main(arguments) == expected, line
    elif program == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", *arguments]
        subprocess.run(
            command, check=True, timeout=SECONDS, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
    else:
        raise AssertionError(f"no test runs {program!r}: say so before the block, and why ({line})")


if __name__ == "__main__":
    page = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_page(page, (DOCS / page).read_text())
