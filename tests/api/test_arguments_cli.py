"""Odd values of every option of every command: one line, exit code 2, no traceback, and nothing
written; or it works.
"""

import os
import random
from inspect import signature
from pathlib import Path

import pytest
from test_arguments import limited
from test_full_disk import full_disk

from cupydrive.cli.main import COMMANDS, main

pytestmark = pytest.mark.full

# A correct call of each command, as small as it can be; what is spoiled stands behind it, and the
# last value counts.
RIGHT = {
    "envs": "cartpole",
    "info": "",
    "new": "moon",
    "check": "mountain_car --agent-steps 1 --device cpu",
    "train": "cartpole --steps 1 --num-envs 4 --device cpu --set num_steps=4",
    "sweep": "cartpole --out o --trials 1 --steps 1 --num-envs 8 --device cpu",
    "evaluate": "tag_grid --episodes 99 --device cpu --param max_episode_steps=2",
    "render": "tag_grid --out a.gif --device cpu --size 64 48 --param max_episode_steps=2",
    "play": "cartpole --device cpu",  # which refuses in the end, since there is no terminal
    "gallery": "no_such_env --device cpu",  # a known one would train for long
    "demo": "--device nowhere",
    "bench": "rollout --env no_such_env --device cpu",
    "profile": "cartpole --num-envs 4 --steps 1 --device cpu",
    "tune": "cartpole --num-envs 2 --device cpu",
    "data": "",
}
ODD = (
    "", " ", "x", "0", "-1", "1.5", "1e3", "1e999", "nan", "inf", "-inf", "True", "None", "9" * 30,
    "9" * 5000, "0x10", "1_000",
    "a=b", "=", "=b", "gravity=", "gravity=nan", "gravity=[1]", "max_episode_steps=1e300",
    "hidden=[0]", "learning_rate=inf",
    "name=x", "env=x", "num_envs=2", "[" * 100_000, "é漢字🙂",
    "a" * 300, "x.py",
    "x.npz", "../x", "/proc/x", "/dev/full", "/dev/null/x", "missing/x.json", "dangling", "folder",
    "folder/", "secret",
    "--", "-", "{}",
)  # fmt: skip
# Right, and too long for a test; or right, and it measures for minutes.
LONG = {"--steps", "--agent-steps", "--seeds", "--trials"}
UNENDING = {(option, odd) for option in ("--env", "--training") for odd in ("None", "--")}


def cases(command: str) -> list[tuple[str, str]]:
    """Return every option of a command, "" for an argument without a name, with every odd value."""
    names = (
        name.removesuffix("_file").replace("_", "-")
        for name in signature(COMMANDS[command]).parameters
    )
    options = ("", *(f"--{name}" for name in names))
    whole = ("1_000", "None", *(odd for odd in ODD if odd.strip("9") == ""))
    return [
        (option, odd)
        for option in options
        for odd in ODD
        if (option, odd) not in UNENDING and not (option in LONG and odd in whole)
    ]


@pytest.fixture(autouse=True)
def odd_folder(tmp_path, monkeypatch):
    """A folder with a link to nothing, a folder, and a file that cannot be read."""
    monkeypatch.chdir(tmp_path)
    Path("dangling").symlink_to("nothing")
    Path("folder").mkdir()
    Path("secret").write_text("x")
    Path("secret").chmod(0)


def wrong(command: str, option: str, odd: str, capsys: pytest.CaptureFixture) -> str | None:
    """Return what is wrong with one command line, or None."""
    before = sorted(os.listdir())
    with limited():
        try:
            code = main([command, *RIGHT[command].split(), *([option] if option else []), odd])
        except SystemExit as end:  # tyro's own usage errors
            code = end.code
    err = capsys.readouterr().err
    # so short a check has not seen all events
    if code not in (0, 2) and (command, code) != ("check", 1):
        return f"exit code {code}: {err[-300:]}"
    if "Traceback" in err:
        return err[-300:]
    if code == 2 and sorted(os.listdir()) != before:
        return f"left {set(os.listdir()) - set(before)}"
    ours = [
        line
        for line in err.splitlines()
        if line.startswith("cupydrive: ") and "warning" not in line
    ]
    return f"{len(ours)} lines" if code == 2 and len(ours) > 1 else None


@pytest.mark.filterwarnings("ignore")  # of other libraries, about odd values
@pytest.mark.parametrize(
    "share", [0.05, pytest.param(1.0, marks=pytest.mark.slow)], ids=["some", "all"]
)
@pytest.mark.parametrize("command", COMMANDS)
def test_odd_values_are_one_line(command, share, capsys):
    every = cases(command)
    some = random.Random(command).sample(every, round(share * len(every)))
    assert not {
        case: problem for case in some if (problem := wrong(command, *case, capsys)) is not None
    }


WRITES = {"check": "--json a.json", "evaluate": "--json a.json", "render": "", "new": ""}


@pytest.mark.parametrize("command", WRITES)
def test_a_full_disk_is_one_line_and_leaves_nothing(command, tmp_path, monkeypatch, capsys):
    """A limit on the size of files stands for the disk: what is written beyond it fails, as on one
    that is full.
    """
    words = [command, *RIGHT[command].split(), *WRITES[command].split()]
    for name in ("whole", "full"):
        (tmp_path / name).mkdir()
    # what is compiled, too, is written here, not on the full disk
    monkeypatch.chdir(tmp_path / "whole")
    assert main(words) in (0, 1)  # so short a check has not seen all events
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "full")
    with full_disk(64):
        code = main(words)
    err = capsys.readouterr().err
    assert code == 2, err
    (line,) = [
        line
        for line in err.splitlines()
        if line.startswith("cupydrive: ") and "warning" not in line
    ]
    assert "written" in line and "File too large" in line
    assert not [
        path
        for path in (tmp_path / "full").rglob("*")
        if path.is_file() and "lock" not in path.name
    ]
