"""The commands that make, play and draw runs: what they write, and one clear line for wrong
input.
"""

import json
import signal
from dataclasses import MISSING, fields
from inspect import signature

import pytest
from conftest import command

import cupydrive
from cupydrive.cli.commands import run_evaluate, run_play, run_render, run_train
from cupydrive.playing.config import EvalConfig
from cupydrive.playing.game import GameConfig
from cupydrive.rendering.video import ClipConfig
from cupydrive.training.config import TrainConfig
from cupydrive.training.logbook import Logbook

OTHERWISE = {"params": "param", "greedy": "sample"}  # options under another name
IN_PYTHON = {"spec", "policies", "device", "progress", "cuda_graph", "callback"}


@pytest.mark.parametrize(
    ("command", "config"),
    [
        (run_train, TrainConfig),
        (run_evaluate, EvalConfig),
        (run_render, ClipConfig),
        (run_play, GameConfig),
    ],
)
def test_a_command_has_the_options_of_its_configuration(command, config):
    options = signature(command).parameters
    for field in (field for field in fields(config) if field.name not in IN_PYTHON):
        default = options[OTHERWISE.get(field.name, field.name)].default
        assert (
            field.name in OTHERWISE or field.default is MISSING or default in (field.default, None)
        ), field.name


# ---- train, evaluate -----------------------------------------------------------------------------


def test_train_writes_a_run_that_resumes_and_is_evaluated(tmp_path, capsys):
    out = tmp_path / "run"
    small = f"--num-envs 8 --device cpu --out {out} --set num_steps=8 'hidden=[16]'"
    assert command(f"train cartpole --algorithm a2c --steps 512 {small} --param gravity=5.0") == 0
    printed = capsys.readouterr().out
    assert "512 env-steps" in printed and "gae_lambda=1.0" in printed and "hidden=(16,)" in printed
    assert json.loads((out / "config.json").read_text())["params"]["gravity"] == 5.0
    assert command(f"train --resume --out {out} --steps 128 --device cpu") == 0
    assert "640 env-steps" in capsys.readouterr().out
    path = tmp_path / "found.json"
    assert command(f"evaluate {out} --episodes 20 --device cpu --json {path}") == 0
    found = json.loads(path.read_text())
    assert "a2c after 640 env-steps" in found["players"]["cart"] and found["mean"]["return"][0] >= 1
    assert command("evaluate tag_grid --episodes 20 --device cpu --param grid_length=5") == 0
    assert "tagger: heuristic" in capsys.readouterr().out


@pytest.mark.full
def test_the_backend_can_be_asked_for(tmp_path, capsys):
    small = "--steps 2000 --num-envs 16 --device cpu --out"
    for backend, words in (
        ("torch", "learns by torch: backend = 'torch'"),
        ("kernels", "learns by kernels"),
    ):
        assert command(f"train cartpole --backend {backend} {small} {tmp_path / backend}") == 0
        assert words in capsys.readouterr().out
    assert command(f"train --resume --backend torch --device cpu --out {tmp_path / 'torch'}") == 2
    assert "Omit backend" in capsys.readouterr().err


def test_groups_can_play_the_heuristic_while_others_learn(tmp_path, capsys):
    out = tmp_path / "run"
    small = f"--num-envs 8 --steps 512 --device cpu --out {out} --set num_steps=8"
    assert command(f"train tag_grid --heuristic runner {small}") == 0
    kinds = {
        name: about["kind"]
        for name, about in json.loads((out / "config.json").read_text())["policies"].items()
    }
    assert kinds == {"tagger": "ppo", "runner": "heuristic"}
    assert command("train cartpole --heuristic cart --device cpu") == 2
    assert "cartpole has no heuristic. Play 'cart' at random" in capsys.readouterr().err
    assert command("train tag_grid --heuristic runners --device cpu") == 2
    assert "tag_grid has no group 'runners'. Did you mean 'runner'" in capsys.readouterr().err


def test_past_snapshots_of_groups_can_play(tmp_path, capsys):
    out = tmp_path / "run"
    small = f"--num-envs 8 --steps 64 --device cpu --out {out} --set num_steps=8"
    assert command(f"train tag_grid --pool runner {small}") == 0
    policies = json.loads((out / "config.json").read_text())["policies"]
    assert [policies["tagger"]["kind"], policies["runner"]["kind"]] == ["ppo", "pool"]
    assert policies["runner"]["settings"]["num_steps"] == 8
    assert command("train tag_grid --pool runner --heuristic runner --device cpu") == 2
    assert "--pool runner and --heuristic runner" in capsys.readouterr().err


@pytest.mark.full
def test_options_with_several_values_add_up(tmp_path):
    out = tmp_path / "run"
    small = f"--num-envs 8 --steps 64 --device cpu --out {out}"
    several = "--param wall_hit_penalty=0.3 grid_length=9 --set num_steps=8 --pool runner"
    several += " --param step_cost_for_tagger=0.5 --set gamma=0.9 ent_coef=0 --pool tagger"
    assert command(f"train tag_grid {small} {several}") == 0
    about = json.loads((out / "config.json").read_text())
    wanted = {"wall_hit_penalty": 0.3, "grid_length": 9, "step_cost_for_tagger": 0.5}
    assert about["params"] | wanted == about["params"]
    for policy in about["policies"].values():
        settings = policy["settings"]
        assert policy["kind"] == "pool" and settings["num_steps"] == 8
        assert (settings["gamma"], settings["ent_coef"]) == (0.9, 0.0)


# ---- render, gallery -----------------------------------------------------------------------------


@pytest.mark.full
def test_render_draws_environments_runs_and_recordings(tmp_path, capsys):
    video, recorded = tmp_path / "tag.gif", tmp_path / "tag.npz"
    small = "--device cpu --size 120 100"
    play = "tag_grid --episodes 2 --param grid_length=6 max_episode_steps=8"
    assert command(f"render {play} --out {video} {small}") == 0
    assert "heuristic: 2 episodes" in capsys.readouterr().out and video.read_bytes().startswith(
        b"GIF89a"
    )
    cupydrive.evaluate(
        "tag_grid", episodes=2, device="cpu", grid_length=6, max_episode_steps=8
    ).recording.save(recorded)
    again = tmp_path / "again.gif"
    assert command(f"render {recorded} --out {again} {small}") == 0
    assert again.read_bytes() == video.read_bytes()
    run = cupydrive.train(
        "cartpole", cupydrive.A2C(num_steps=8), num_envs=8, steps=64, device="cpu", progress=False
    )
    run.save(tmp_path / "run")
    assert command(f"render {tmp_path / 'run'} --out {tmp_path / 'run.webp'} {small}") == 0


EMPTY = "an argument is empty, "
REFUSED = [
    ("trian cartpole", "unknown command 'trian'. Did you mean 'train'?"),
    ("render tag_grid --out video.avi", "expected .mp4, .gif, .webp"),
    ("render nothing.npz --out video.mp4", "'nothing.npz' cannot be read"),
    ("render cartpole --out video.mp4 --policies heuristic",
    "cartpole has no heuristic. Play 'cart' at random"),
    ("train cartpole --backend kernel", "backend"),
    ("evaluate tag_grid --policies kernel", "policies"),
    ("train cartpole --set hidden=64", "hidden = 64: input should be a valid tuple"),
    ("train cartpole --param gravity", "got 'gravity', expected KEY=VALUE"),
    ("train --resume", "--resume --out DIR"),
    ("evaluate there/mine.cu", "unknown environment 'there/mine.cu'"),
    *((f"{line} runs/cart", "cupydrive train NAME --out DIR") for line in ("play", "evaluate",
    "render --out a.mp4")),
    ("train cartpole --out ''", EMPTY), ("train cartpole --out=", EMPTY),
    ("render '' --out x.mp4", EMPTY), ("''", EMPTY),
    ("check cartpole --seed -1", "seed = -1 is out of range"),
    ("check cartpole all cartpol", "Did you mean 'cartpole'?"),
    ("check cartpole --json /no/such/folder/x.json", "/no/such/folder/x.json' cannot be written"),
    ("bench --runs 0", "runs = 0"),
    ("bench --sweep num_envs=1 --device cpu", "--sweep needs --env"),
    ("bench rolout", "Did you mean 'rollout'"),
    ("bench training --gpus 1 --device cpu", "leave out --device cpu"),
    ("check cartpole --device cuda:1", "with CUDA_VISIBLE_DEVICES on the command line"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_wrong_input_is_one_line_and_writes_nothing(line, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(line) == 2
    out, err = capsys.readouterr()
    (said,) = (line for line in err.splitlines() if not line.startswith("device: cpu, because "))
    assert (
        out == ""
        and said.startswith("cupydrive: ")
        and message in said
        and not list(tmp_path.iterdir())
    )


@pytest.mark.parametrize("seeds", ["", "--seeds 2"])
def test_scripts_can_tell_whether_an_interrupted_training_has_kept_anything(
    seeds, tmp_path, monkeypatch
):
    add = Logbook.add

    def add_and_press(book, step, *about):
        row = add(book, step, *about)
        if step < 64:
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C
        return row

    monkeypatch.setattr(Logbook, "add", add_and_press)
    line = f"train cartpole --steps 64 --num-envs 4 --device cpu --set num_steps=4 {seeds}"
    assert command(line) == 130
    assert command(f"{line} --out {tmp_path / 'run'}") == 0
    monkeypatch.undo()
    assert command(line) == command(f"{line} --out {tmp_path / 'run'} --resume") == 0


# ---- what comes next -----------------------------------------------------------------------------


@pytest.mark.full
def test_training_says_which_commands_take_what_it_has_written_and_they_do(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    short = "--steps 32 --num-envs 4 --set num_steps=8 'hidden=[8]' --device cpu"
    assert command("new moon") == 0
    capsys.readouterr()
    assert command(f"train moon.py {short} --out 'runs/the moon'") == 0
    wrote, *lines = capsys.readouterr().out.splitlines()[-3:]
    assert wrote == "wrote runs/the moon" and [line.split(": ")[0] for line in lines] == [
        "next",
        "then",
    ]
    for line in lines:
        program, rest = line.partition(": ")[2].split(" ", 1)
        small = "--episodes 2" if rest.startswith("evaluate") else "--size 64 48"
        assert program == "cupydrive" and command(f"{rest} {small} --device cpu") == 0
    assert (tmp_path / "moon.mp4").stat().st_size
    capsys.readouterr()
    assert command(f"train cartpole {short}") == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith("nothing was written. Pass --out DIR to save the run")
    )
    assert command(f"train cartpole {short} --seeds 2 --out runs/two") == 0
    assert "cupydrive.load('runs/two')" in capsys.readouterr().out.splitlines()[-1]
    assert len(cupydrive.load("runs/two").runs) == 2
