"""The folder that ``train(out=...)`` names: what lies in it is gone on with, or an error, and never lost or passed over."""

import shutil

import pytest

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.commands import write_json_file
from cupydrive.cli.main import main
from cupydrive.errors import CupydriveWarning, TrainingError
from cupydrive.rendering.video import check_path
from cupydrive.training.run import Run, checkpoints

QUIET = {"device": "cpu", "progress": False}


@pytest.mark.full
@pytest.mark.parametrize("options", [{"resume": True}, {}, {"resume": True, "seeds": 1}])
def test_the_metrics_of_a_run_whose_checkpoints_are_gone_are_not_lost(options, tmp_path):
    plan = {"num_envs": 8, "steps": 1024, "out": tmp_path, "device": "cpu", "progress": False}
    cd.train("cartpole", **plan, **options)
    folder = tmp_path / "000" if "seeds" in options else tmp_path
    rows = (folder / "metrics.jsonl").read_bytes()
    shutil.rmtree(folder / "checkpoints")
    words = "holds the metrics of a run of 1,024 env-steps, and no checkpoint to go on from.*checkpoints; replace it.*overwrite"
    with pytest.raises(TrainingError, match=words):
        cd.train("cartpole", **plan, **options)
    assert (folder / "metrics.jsonl").read_bytes() == rows
    cd.train("cartpole", **plan, **options | {"resume": False, "overwrite": True})
    (folder / "metrics.jsonl").write_bytes(b"")  # killed before its first checkpoint
    shutil.rmtree(folder / "checkpoints")
    cd.train("cartpole", **plan, **options)


FOREIGN = "of something else, which a run would replace. Pass another folder"


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", '{"my": "thing"}', f"holds config.json {FOREIGN}"),
        ("config.json", "mine", f"holds config.json {FOREIGN}"),
        ("metrics.jsonl", "mine", f"holds metrics.jsonl {FOREIGN}"),
        ("metrics.jsonl", '{"a": 1}\n', f"holds metrics.jsonl {FOREIGN}"),
        ("metrics.jsonl", 'mine\n{"charts/global_step": "1"}\n', f"holds metrics.jsonl {FOREIGN}"),
        ("metrics.jsonl", 'x\n{"charts/global_step": 8}\n', "metrics.jsonl, line 1 is damaged: .* Move the file away"),
    ],
)
def test_files_of_something_else_are_never_replaced(file, text, words, options, tmp_path):
    (tmp_path / file).write_text(text)
    plan = {"num_envs": 8, "steps": 256, "out": tmp_path, "device": "cpu", "progress": False}
    with pytest.raises(TrainingError, match=words):
        cd.train("cartpole", **plan, **options)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {file: text}
    (tmp_path / file).rename(tmp_path / "mine")
    cd.train("cartpole", **plan, **options)
    assert (tmp_path / "mine").read_text() == text


def test_metrics_of_something_else_in_a_runs_folder_are_told(tmp_path):
    cd.train("cartpole", num_envs=8, steps=256, out=tmp_path, device="cpu", progress=False)
    (tmp_path / "metrics.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(TrainingError, match=r"metrics\.jsonl is of something else: no line of it is a run's\. Move"):
        cd.load(tmp_path)


def damaged_newest(folder):
    """Train, go on, and cut the newest checkpoint short; return the run at the whole one, and the path of the other."""
    run = cd.train("cartpole", cd.PPO(num_steps=8, hidden=(16,)), num_envs=16, steps=4 * 128, out=folder, **QUIET)
    last = checkpoints(folder)[-1]
    cd.train(Run.load(folder), steps=16 * 8, out=folder, progress=False)
    newest = checkpoints(folder)[-1]
    assert newest != last
    newest.write_bytes(newest.read_bytes()[:1000])
    return run, newest


@pytest.mark.full
def test_a_damaged_checkpoint_is_passed_over_by_who_resumes(tmp_path):
    run, newest = damaged_newest(tmp_path)
    words = f"read instead of a newer checkpoint that is damaged .{newest.name}: it is no zip file"
    with pytest.warns(CupydriveWarning, match=words) as told:
        older = cd.train("cartpole", out=tmp_path, resume=True, steps=run.step, **QUIET)
    assert older.step == run.step and told[0].filename == __file__
    with pytest.warns(CupydriveWarning, match=words):  # the damaged one is no newest checkpoint any more
        more = cd.train("cartpole", out=tmp_path, resume=True, steps=run.step + 1, keep=1, **QUIET)
    assert Run.load(tmp_path).step == more.step == run.step + 16 * 8
    assert newest.with_suffix(".damaged").stat().st_size == 1000
    for path in checkpoints(tmp_path):
        path.write_bytes(b"nonsense")
    for read in (lambda: Run.load(tmp_path), lambda: cd.train("cartpole", out=tmp_path, resume=True, **QUIET)):
        with pytest.raises(TrainingError, match=r"no checkpoint of .* can be read"):
            read()


@pytest.mark.parametrize("read", [
    cd.load,
    Run.load,
    lambda folder: cd.evaluate("cartpole", {"cart": cd.Frozen(folder)}, episodes=2, device="cpu"),
])  # fmt: skip
def test_a_damaged_newest_checkpoint_is_an_error_for_who_only_reads(read, tmp_path):
    run, newest = damaged_newest(tmp_path)
    with pytest.raises(TrainingError) as raised:
        read(tmp_path)
    said = str(raised.value)
    assert said.startswith(f"{newest} is damaged: it is no zip file") and said.endswith(
        f". The one before it, of {run.step:,} env-steps, is whole: move {newest.name} away to read that one"
    )
    newest.rename(newest.with_suffix(".away"))
    read(tmp_path)


@pytest.mark.full
def test_resuming_by_the_command_line_passes_a_damaged_checkpoint_over(tmp_path, capsys):
    run, newest = damaged_newest(tmp_path)
    assert main(["evaluate", str(tmp_path), "--episodes", "2", "--device", "cpu"]) == 2
    assert f"move {newest.name} away" in capsys.readouterr().err
    assert main(["train", "--resume", "--steps", "128", "--out", str(tmp_path), "--device", "cpu"]) == 0
    assert "read instead of a newer checkpoint" in capsys.readouterr().err
    assert Run.load(tmp_path).step == run.step + 128


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir(), here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    run = cd.train("cartpole", cd.PPO(num_steps=4), num_envs=4, steps=16, device="cpu", progress=False, out="~/runs/x")
    assert cd.load("~/runs/x", device="cpu").step == run.step == 16
    run.save("~/y")
    assert cd.Frozen("~/y").path == str(home / "y")
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
    assert found >= {"runs", "y", "s.npz", "r.npz", "my_lamp.py", "found.json"} and not any(here.iterdir())
