"""What can be said of Windows without one: nothing needs modules that only Linux has, and kernels
build as libraries for it.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run_python

from cupydrive import envs
from cupydrive.codegen.source import assemble
from cupydrive.executors.host import FLAGS, HostExecutor
from cupydrive.inputs.locks import lock

ROOT = Path(__file__).resolve().parents[2]
ABSENT = ("fcntl", "resource", "pwd", "grp", "termios", "curses", "readline")  # on Windows
ZIG = (
    sys.executable,
    "-m",
    "ziglang",
    "c++",
    "-nostdlib++",
    "-target",
    "x86_64-windows-gnu",
    "-mcpu=x86_64_v3",
)


@pytest.mark.full
def test_nothing_that_windows_lacks_is_imported():
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in ("cli", "executors", "training", "inputs", "rendering", "terminal")
        for path in (ROOT / "cupydrive" / folder).rglob("*.py")
        if "templates" not in path.parts and "\nimport cupy\n" not in path.read_text()
    ]
    program = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r})); import {', '.join(sorted(modules))}"
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr


def test_text_that_the_package_reads_is_ascii():
    """Where nobody says which, Windows reads a text file in the character set of its country."""
    for pattern in (
        "kernels/**/*.cu*",
        "cupydrive/**/templates/*",
        "cupydrive/**/*.toml",
        "cupydrive/**/*.txt",
    ):
        found = list(ROOT.glob(pattern))
        assert found and not [path for path in found if not path.read_bytes().isascii()]


def test_a_locked_file_is_refused_or_waited_for(tmp_path):
    with open(tmp_path / "lock", "w") as first:
        lock(first.fileno(), wait=False)
        with open(tmp_path / "lock", "w") as second, pytest.raises(BlockingIOError):
            lock(second.fileno(), wait=False)
    with open(tmp_path / "lock", "w") as third:
        lock(third.fileno(), wait=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", envs.names())
def test_a_kernel_builds_as_a_library_for_windows(name, tmp_path):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    executor, spec = HostExecutor(), envs.get(name)
    params = spec.make_params()
    unit = assemble(spec, params, executor.layout(spec, params))
    (tmp_path / "unit.cpp").write_text(unit.text)
    command = [
        *ZIG,
        *FLAGS,
        *executor.flags,
        "-o",
        str(tmp_path / "unit.so"),
        str(tmp_path / "unit.cpp"),
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    library = (tmp_path / "unit.so").read_bytes()
    assert library[:2] == b"MZ" and all(
        kernel.encode() + b"\0" in library for kernel in unit.kernels
    )


def test_text_is_read_and_written_in_a_named_encoding():
    """Not in the locale's: a kernel's comments are UTF-8 everywhere."""
    text = r"\.(?:read|write)_text\(|(?<!def )(?<![\w.])open\((?!.*\"[rwax]\+?b)|\btext=True|\buniversal_newlines|fdopen\("
    for path in (ROOT / "cupydrive").rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not re.search(text, line) or "encoding=" in line, f"{path}:{number}"
