"""The benchmark of several processes times how they train together."""

import json
import os
import subprocess
import sys

import pytest
from conftest import command, python_path

from cupydrive.bench.training import SEVERAL


@pytest.mark.full
def test_two_processes_train_together(tmp_path):
    path, (lesson,) = tmp_path / "bench.json", SEVERAL["cpu"]
    line = f"-m cupydrive bench training --device cpu --runs 1 --json {path}"
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *line.split()]
    environment = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run([sys.executable, *start], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    weak, strong = json.loads(path.read_text())["rows"]
    assert weak["note"].startswith("2 processes, weak scaling, ppo by kernels")
    assert strong["note"].startswith("2 processes, strong scaling, ppo by kernels")
    assert (weak["num_envs"], strong["num_envs"]) == (2 * lesson.num_envs, lesson.num_envs)
    for row in (weak, strong):
        assert row["rate"] == pytest.approx(
            row["num_envs"] * lesson.settings.num_steps / row["seconds"][0]
        )
    assert done.stdout.count("weak scaling") == 1  # one process prints


def test_gpus_are_not_for_the_cpu(capsys):
    assert command("bench training --gpus 1 --device cpu") == 2
    assert "leave out --device cpu" in capsys.readouterr().err
