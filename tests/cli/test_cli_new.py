"""`cupydrive new`: what it writes works, and mistakes in it are told by where they are."""

import json
import re

import pytest
from conftest import ROOT, command, optional, run_python

from cupydrive import envs
from cupydrive.cli.scaffold import new
from cupydrive.errors import CupydriveError, SpecError


@pytest.fixture
def unregistered():
    """Forget what a test has registered."""
    before = dict(envs._registered)
    yield
    envs._registered.clear()
    envs._registered.update(before)


def test_new_writes_two_files_and_never_overwrites(tmp_path, capsys):
    assert command(f"new my_env --folder {tmp_path}") == 0
    python, kernel = tmp_path / "my_env.py", tmp_path / "my_env.cu"
    assert sorted(tmp_path.iterdir()) == [kernel, python]
    assert f"cupydrive check {python}" in capsys.readouterr().out
    assert "ENV_NAME" not in python.read_text() + kernel.read_text()
    assert python.stat().st_mode & 0o600 == 0o600

    python.unlink()
    kernel.write_text("mine")
    assert command(f"new my_env --folder {tmp_path}") == 2
    assert "not overwritten" in capsys.readouterr().err
    assert (python.exists(), kernel.read_text()) == (False, "mine")


def test_new_leaves_nothing_behind_when_the_second_file_fails(tmp_path, monkeypatch):
    def failing(path, text):
        if path.suffix == ".cu":
            raise OSError(28, "No space left on device")
        path.write_bytes(text)

    monkeypatch.setattr("cupydrive.cli.scaffold.write_atomically", failing)
    with pytest.raises(CupydriveError, match=r"my_env\.cu cannot be written: No space left"):
        new("my_env", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("my-env", "'my_env'"),
        ("class", "'my_class'"),
        ("My Env.py", "'my_env'"),
        ("cartpole", "'my_cartpole'"),
        ("a/b", "'a_b'"),
        ("torch", "'my_torch'"),  # a torch.py would be imported in the place of torch
    ],
)
def test_new_refuses_bad_names_and_suggests_a_good_one(name, suggestion, tmp_path):
    with pytest.raises(CupydriveError, match=suggestion):
        new(name, tmp_path)
    assert list(tmp_path.iterdir()) == []
    new(suggestion.strip("'"), tmp_path)


@pytest.mark.parametrize("name", ["cartpole.py", "cartpole", "random.py", "2d walk.py"])
def test_what_a_missing_file_is_told_to_be_called_is_a_name_that_new_takes(
    name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        envs.register(name)
    new(re.search(r"`cupydrive new (\w+)` writes the files", str(caught.value))[1], tmp_path)


def test_new_takes_the_name_of_another_file_beside_it_for_no_package(tmp_path, monkeypatch):
    (tmp_path / "moon.py").write_text("")
    (tmp_path / "sun").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m cupydrive` has it
    for name in ("moon", "sun"):
        new(name, "there")
    with pytest.raises(CupydriveError, match=r"moon\.py exists"):
        new("moon")


def test_new_wants_a_folder_that_exists(tmp_path, capsys):
    assert command(f"new my_env --folder {tmp_path / 'no'}") == 2
    assert "mkdir -p" in capsys.readouterr().err


def test_a_new_environment_passes_its_check(tmp_path, capsys, unregistered):
    """Both templates, as they are."""
    python, _ = new("my_env", tmp_path)
    path = tmp_path / "report.json"
    assert command(f"check {python} --agent-steps 30000 --json {path}") == 0
    assert capsys.readouterr().out.startswith("PASS  my_env")
    (report,) = json.loads(path.read_text())
    assert report["passed"] and report["agent_steps"] >= 30_000 and report["failures"] == []
    assert all(report["events"].values())


@pytest.mark.full
def test_a_mistake_in_a_new_environment_fails_its_check(tmp_path, capsys, unregistered):
    python, kernel = new("my_env", tmp_path)
    text = kernel.read_text()
    assert text.count("p.drag * s.vx[i]") == 1
    kernel.write_text(text.replace("p.drag * s.vx[i]", "p.drag * s.vy[i]"))
    assert command(f"check {python} --agent-steps 2000") == 1
    assert "state.vx" in capsys.readouterr().out

    kernel.write_text(text.replace("p.drag * s.vx[i]", "p.drg * s.vx[i]"))
    assert command(f"check {python} --agent-steps 2000") == 2
    line = next(n for n, source in enumerate(text.splitlines(), 1) if "p.drag * s.vx[i]" in source)
    assert f"my_env.cu:{line}:" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        (
            "np.linalg.norm(goal",
            "np.abss(goal",
            ": AttributeError: module 'numpy' has no attribute 'abss'",
        ),
        ("    wanted = place +", "    wanted = place + )", ": SyntaxError: unmatched ')'"),
        ("SPEC = EnvSpec(", "SPEC = EnvSpeck(", ": NameError: name 'EnvSpeck' is not defined"),
        (
            'Field("goal_x", scale',
            'Field("goal_x", "f8", scale',
            ": Field('goal_x'): dtype = 'f8', expected 'f4'",
        ),
        ('param(200, "Time', 'param(0, "Time', ": param(0, ...): default = 0 is out of range"),
    ],
)
def test_a_mistake_in_a_users_python_is_one_line(
    right, wrong, says, tmp_path, capsys, unregistered
):
    python, _ = new("my_env", tmp_path)
    text = python.read_text()
    assert text.count(right) == 1
    python.write_text(text.replace(right, wrong))
    line = text[: text.index(right)].count("\n") + 1
    assert command(f"check {python} --agent-steps 100 --device cpu") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert (
        error.startswith(f"cupydrive: {python}:{line}{says}")
        and wrong.strip() in error.partition("(`")[2]
    )


def test_templates_pass_the_linter(tmp_path):
    optional("ruff")
    new("my_env", tmp_path)
    # `cupydrive` is not first-party outside of this repository.
    for words in (["check", "--ignore", "I001"], ["format", "--check"]):
        done = run_python("-m", "ruff", *words, "--config", ROOT / "pyproject.toml", tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
