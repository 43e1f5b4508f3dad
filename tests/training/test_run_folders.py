"""Run folders: one writer, nothing lost, and runs of one's own environment wherever a run can be
used.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from conftest import python_path
from point import KERNEL, PYTHON

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.commands import write_json_file
from cupydrive.cli.main import main
from cupydrive.errors import (
    CupydriveError,
    CupydriveWarning,
    ParameterError,
    RenderError,
    SnapshotError,
    TrainingError,
    UnregisteredEnvironmentError,
)
from cupydrive.rendering.video import check_path
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"device": "cpu", "progress": False}


def settings():
    return cd.PPO(num_steps=4, hidden=(4,))


def train(out, steps=32, **options):
    return cd.train(
        "cartpole", settings(), num_envs=4, steps=steps, out=out, **{**QUIET, **options}
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder that tests copy."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(folder)
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def content(folder):
    return {p: p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


# ---- one writer ----------------------------------------------------------------------------------


def test_a_second_writer_in_the_same_process_is_refused(folder):
    other = Run.load(folder)

    def second(step, row):
        with pytest.raises(
            TrainingError, match=rf"being written by another run \(process {os.getpid()}\)"
        ):
            other.save(folder)
        with pytest.raises(TrainingError, match="being written by another run"):
            cd.train(other, steps=16, out=folder, progress=False)
        assert (
            main(["train", "--resume", "--out", str(folder), "--steps", "16", "--device", "cpu"])
            == 2
        )
        raised = []

        def third():
            with pytest.raises(TrainingError, match="being written by another run") as error:
                other.save(folder)
            raised.append(error)

        thread = threading.Thread(target=third)
        thread.start()
        thread.join()
        assert raised

    run = Run.load(folder)
    cd.train(run, steps=16, out=folder, progress=False, callback=second)
    assert Run.load(folder).step == run.step == 48  # and whoever has the lock saves as before


@pytest.mark.full
def test_the_lock_is_released_when_a_process_dies(folder):
    program = (
        "import sys, time; import cupydrive as cd\n"
        "run = cd.load(sys.argv[1])\n"
        "def wait(step, row): print('locked', flush=True); time.sleep(600)\n"
        "cd.train(run, steps=16, out=sys.argv[1], progress=False, callback=wait)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": python_path()},
    )
    assert process.stdout.readline() == b"locked\n"
    run = Run.load(folder)
    before = content(folder)
    for options in ({}, {"overwrite": True}):
        with pytest.raises(
            TrainingError, match=rf"being written by another run \(process {process.pid}\)"
        ):
            cd.train(run, steps=16, out=folder, progress=False, **options)
    assert content(folder) == before
    process.kill()
    process.wait()
    process.stdout.close()
    part = folder / "checkpoints" / f".{process.pid}-1.part"
    part.write_text("what a kill leaves")
    cd.train(run, steps=16, out=folder, progress=False)
    assert Run.load(folder).step == 48 and not part.exists()


def test_a_run_that_another_has_overtaken_does_not_write_over_it(folder):
    one, other = Run.load(folder), Run.load(folder)
    cd.train(one, steps=32, out=folder, progress=False)
    before = content(folder)
    for write in (
        lambda: other.save(folder),
        lambda: cd.train(other, steps=16, out=folder, progress=False),
    ):
        with pytest.raises(
            TrainingError,
            match=r"holds a checkpoint of env-step 64, and this run has done 32.*cupydrive\.load",
        ):
            write()
    assert content(folder) == before


# ---- nothing is lost -----------------------------------------------------------------------------


def broken(kept):
    """Yield copies of what ``Run.snapshot`` returned that do not fit."""
    for name, tensor in kept.items():
        yield {key: value for key, value in kept.items() if key != name}
        yield kept | {name: tensor.double() if tensor.dtype != torch.float64 else tensor.float()}
        yield kept | {name: torch.cat([tensor.reshape(-1), tensor.reshape(-1)[:1]])}
        if name.endswith("iteration"):
            yield kept | {name: torch.full_like(tensor, -1)}
    yield kept | {"odd": torch.zeros(1)}
    clock = kept["env/clock"].clone()
    # elapsed of the first environment: CartPole ends after 500 steps
    clock.view(torch.int32)[1] = 500
    yield kept | {"env/clock": clock}


def test_restore_checks_everything_before_it_writes_anything(trained):
    run = Run.load(trained)
    kept = Run.load(trained).snapshot()
    cd.train(run, steps=16, progress=False)
    before = run.snapshot()
    for wrong in broken(kept):
        with pytest.raises(TrainingError):
            run.restore(wrong)
        now = run.snapshot()
        assert all(torch.equal(before[name], now[name]) for name in before)
    run.restore(kept)
    assert all(torch.equal(kept[name], tensor) for name, tensor in run.snapshot().items())


# ---- odd paths -----------------------------------------------------------------------------------


def odd_paths(tmp_path):
    """Return paths that nothing can be read from, nor written to, by what is odd about them."""
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    return {
        "below a file": tmp_path / "file" / "x.npz",
        "a loop of links": tmp_path / "loop" / "x.npz",
        "empty": "",
        "no path": 3.5,
        "below /proc": "/proc/nothing/x.npz",
    }, {
        "a folder": tmp_path / "folder.npz",
        "nothing": tmp_path / "none",
    }


def test_odd_paths_are_one_error_and_leave_nothing(tmp_path, trained):
    everywhere, to_read = odd_paths(tmp_path)
    env = cd.make("cartpole", 2, device="cpu")
    env.reset(seed=0)
    snapshot, run = env.snapshot(), Run.load(trained)
    recording = cd.evaluate(run, episodes=2).recording
    before = sorted(tmp_path.rglob("*"))
    for path in (*everywhere.values(), *to_read.values()):
        for load, error in (
            (cd.Recording.load, RenderError),
            (cd.Snapshot.load, SnapshotError),
            (cd.load, TrainingError),
        ):
            with pytest.raises((error, ParameterError)) as raised:
                load(path)
            assert "\n" not in str(raised.value)
    for path in (*everywhere.values(), tmp_path / "folder.npz"):
        for save in (
            recording.save,
            snapshot.save,
            *([] if path == tmp_path / "folder.npz" else [run.save]),
        ):
            with pytest.raises(CupydriveError) as raised:
                save(path)
            assert "\n" not in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_names_as_long_as_names_can_be_work(tmp_path):
    env = cd.make("cartpole", 2, device="cpu")
    env.reset(seed=0)
    path = tmp_path / ("x" * 251 + ".npz")
    env.snapshot().save(path)
    assert cd.Snapshot.load(path).num_envs == 2 and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("where", ["config.json", "checkpoints", "metrics.jsonl"])
def test_a_run_whose_parts_are_no_files_is_one_error(where, folder):
    target = folder / where
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    if where == "checkpoints":
        target.write_text("")
    else:
        target.mkdir()
    with pytest.raises(TrainingError):
        Run.load(folder)


# ---- an environment of one's own -----------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with an environment in two files and a run of it, which is compiled once."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "point.py").write_text(PYTHON)
    (folder / "point.cu").write_text(KERNEL)
    run = cd.train(
        folder / "point.py", settings(), num_envs=4, steps=32, out=folder / "made", **QUIET
    )
    run.evaluate(episodes=2).recording.save(folder / "episodes.npz")
    return folder


@pytest.fixture
def own(made, monkeypatch):
    """The folder as it was made, to work in, and nothing registered."""
    monkeypatch.chdir(made)
    Path("point.py").write_text(PYTHON)
    Path("point.cu").write_text(KERNEL)
    Path("moment.npz").unlink(missing_ok=True)
    shutil.rmtree("run", ignore_errors=True)
    shutil.copytree("made", "run")
    envs._registered.clear()
    return made


@pytest.mark.full
def test_runs_and_recordings_of_ones_own_file_work_with_env(own):
    for load, path in ((cd.load, "run"), (cd.Run.load, "run"), (cd.Recording.load, "episodes.npz")):
        with pytest.raises(
            UnregisteredEnvironmentError,
            match=r"'point', which is not registered here\. If you trust point\.py",
        ):
            load(path)
    with pytest.raises(UnregisteredEnvironmentError) as raised:
        cd.load("run")
    words = str(raised.value).partition("pass: ")[2]
    run = eval(words, {"cupydrive": cd})  # the call that the message prints
    assert run.step == 32 and run.origin["python"] == str(own / "point.py")
    envs._registered.clear()
    cd.train(cd.load("run", env="point.py"), steps=16, out="run", progress=False)
    envs._registered.clear()
    assert list(cd.Recording.load("episodes.npz", env=own / "point.py").moments())
    assert cd.load("run").step == 48  # known by now
    envs._registered.clear()
    found = cd.evaluate(
        "point.py", {"point": cd.FrozenPolicy("run", env="point.py")}, episodes=2, device="cpu"
    )
    assert len(found.length) == 2
    with pytest.raises(
        ParameterError, match="env= is environment 'cartpole', but run belongs to 'point'"
    ):
        cd.load("run", env="cartpole")


COMMANDS = (
    "evaluate run --episodes 2 --device cpu",
    "render run --out run.gif --size 120 100 --device cpu",
    "render episodes.npz --out run.gif --size 120 100",
    "train --resume --out run --steps 16 --device cpu",
)


def test_commands_print_the_one_that_works(own, capsys):
    for command in COMMANDS:
        envs._registered.clear()
        assert main(command.split()) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        works = line.rpartition(": ")[2]
        assert works == f"cupydrive {command} --env point.py"
        code = main(shlex.split(works)[1:])
        # `point` cannot draw itself
        assert code == 0 or "has no drawing" in capsys.readouterr().err


@pytest.mark.full
def test_changed_files_are_a_warning(own, capsys):
    env = cd.make("point.py", 4, device="cpu", validate=False)
    env.reset(seed=0)
    env.snapshot().save("moment.npz")
    Path("point.cu").write_text(KERNEL + "\n// changed\n")
    env = cd.make("point.py", 4, device="cpu", validate=False)
    with pytest.warns(
        CupydriveWarning, match=r"the snapshot was made with another version of .*point\.cu"
    ):
        env.restore(cd.Snapshot.load("moment.npz"))
    with pytest.warns(
        CupydriveWarning,
        match=r"run was made with another version of .*point\.cu, so results may differ",
    ):
        cd.load("run", env="point.py")
    envs._registered.clear()
    Path("point.py").write_text(PYTHON + "\n# changed\n")
    assert main(["evaluate", "run", "--episodes", "2", "--device", "cpu", "--env", "point.py"]) == 0
    err = capsys.readouterr().err
    assert [line.split(",")[0] for line in err.splitlines()] == [
        f"cupydrive: warning: run was made with another version of {own / name}"
        for name in ("point.py", "point.cu")
    ]


def test_an_environment_from_cells_counts_once_it_is_registered(tmp_path):
    cd.register(PYTHON, KERNEL)
    cd.train("point", settings(), num_envs=4, steps=16, out=tmp_path / "run", **QUIET)
    assert cd.load(tmp_path / "run").step == 16
    assert json.loads((tmp_path / "run" / "config.json").read_text())["origin"]["python"] is None
    spec = envs.get("point")
    envs._registered.clear()
    with pytest.raises(
        UnregisteredEnvironmentError, match=r"It was not loaded from a file. Register it first"
    ):
        cd.load(tmp_path / "run")
    assert cd.load(tmp_path / "run", env=spec).step == 16


def test_checkpoints_are_sorted_by_their_step(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in (
        "000000000000009.pt",
        "1000000000000000.pt",
        "000000000000010.pt",
        "5 (copy).pt",
        "x.pt",
    ):
        (tmp_path / "checkpoints" / name).write_bytes(b"")
    assert [int(p.stem) for p in checkpoints(tmp_path)] == [9, 10, 10**15]


# ---- what lies in the folder ---------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("options", [{"resume": True}, {}, {"resume": True, "seeds": 1}])
def test_the_metrics_of_a_run_whose_checkpoints_are_gone_are_not_lost(options, tmp_path):
    plan = {"num_envs": 8, "steps": 1024, "out": tmp_path, **QUIET}
    cd.train("cartpole", **plan, **options)
    folder = tmp_path / "000" if "seeds" in options else tmp_path
    rows = (folder / "metrics.jsonl").read_bytes()
    shutil.rmtree(folder / "checkpoints")
    words = "holds the metrics of a run and no checkpoint"
    with pytest.raises(TrainingError, match=words):
        cd.train("cartpole", **plan, **options)
    assert (folder / "metrics.jsonl").read_bytes() == rows
    cd.train("cartpole", **plan, **options | {"resume": False, "overwrite": True})
    (folder / "metrics.jsonl").write_bytes(b"")  # killed before its first checkpoint
    shutil.rmtree(folder / "checkpoints")
    cd.train("cartpole", **plan, **options)


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", '{"my": "thing"}'),
        ("config.json", "mine"),
        ("metrics.jsonl", "mine"),
        ("metrics.jsonl", '{"a": 1}\n'),
        ("metrics.jsonl", 'x\n{"charts/global_step": 8}\n'),
    ],
)
def test_files_of_something_else_are_never_replaced(file, text, options, tmp_path):
    (tmp_path / file).write_text(text)
    plan = {"num_envs": 8, "steps": 256, "out": tmp_path, **QUIET}
    with pytest.raises(TrainingError, match=file):
        cd.train("cartpole", **plan, **options)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {file: text}
    (tmp_path / file).rename(tmp_path / "mine")
    cd.train("cartpole", **plan, **options)
    assert (tmp_path / "mine").read_text() == text


def damaged_newest(folder):
    """Train twice, and cut the newest checkpoint short; return its path."""
    for steps in (512, 640):
        cd.train("cartpole", settings(), num_envs=16, steps=steps, out=folder, resume=True, **QUIET)
    newest = checkpoints(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    return newest


@pytest.mark.parametrize("read", [
    cd.load,
    Run.load,
    lambda folder: cd.evaluate("cartpole", {"cart": cd.FrozenPolicy(folder)}, episodes=2,
    device="cpu"),
    lambda folder: cd.train("cartpole", out=folder, resume=True, **QUIET, steps=1024),
])  # fmt: skip
def test_a_damaged_newest_checkpoint_is_an_error_until_it_is_moved_away(read, tmp_path):
    newest = damaged_newest(tmp_path)
    before = content(tmp_path)
    with pytest.raises(
        TrainingError,
        match=f"{newest.name} is damaged: it cannot be unpacked as a zip file.*Move it away",
    ):
        read(tmp_path)
    assert content(tmp_path) == before
    newest.rename(newest.with_suffix(".away"))
    read(tmp_path)


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir(), here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    run = cd.train(
        "cartpole",
        cd.PPO(num_steps=4),
        num_envs=4,
        steps=16,
        device="cpu",
        progress=False,
        out="~/runs/x",
    )
    assert cd.load("~/runs/x", device="cpu").step == run.step == 16
    run.save("~/y")
    assert cd.FrozenPolicy("~/y").path == str(home / "y")
    env = cd.make("cartpole", 2, device="cpu")
    env.reset(seed=0)
    env.snapshot().save("~/s.npz")
    assert cd.Snapshot.load("~/s.npz").num_envs == 2
    run.evaluate(2).recording.save("~/r.npz")
    assert cd.Recording.load("~/r.npz").num_envs == 2
    assert check_path("~/v.gif") == home / "v.gif"
    cd.new("my_lamp", "~")
    assert envs.get("~/my_lamp.py").name == "my_lamp"
    write_json_file("~/found.json", {})
    found = {path.name for path in home.iterdir()}
    assert found >= {"runs", "y", "s.npz", "r.npz", "my_lamp.py", "found.json"} and not any(
        here.iterdir()
    )


def test_a_first_row_that_was_cut_short_is_left_out(tmp_path):
    given = dict(num_envs=4, device="cpu", progress=False, out=tmp_path)
    settings = cd.PPO(num_steps=8, num_minibatches=1)
    cd.train("cartpole", settings, steps=64, **given)
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:20])
    assert cd.train("cartpole", settings, steps=128, resume=True, **given).step == 128
    file.write_text('{"mine": 1}')
    with pytest.raises(TrainingError, match="line 1 is damaged"):
        cd.train("cartpole", settings, steps=192, resume=True, **given)
