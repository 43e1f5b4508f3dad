"""The benchmark of several processes: it compares what it has measured, and refuses what this machine cannot run."""

import pytest
import torch
from conftest import command

from cupydrive.bench import bench, scaling
from cupydrive.bench.scaling import check_counts, measure_scaling
from cupydrive.bench.timing import make_row
from cupydrive.bench.training import SEVERAL
from cupydrive.errors import DeviceError, ParameterError


@pytest.mark.full
def test_two_processes_train_together():
    (row,) = measure_scaling([2], 0, "cpu", 1)
    (lesson,) = SEVERAL["cpu"]
    assert row.note.startswith("2 processes; ppo by kernels") and row.num_envs == 2 * lesson.num_envs
    assert row.rate == pytest.approx(row.num_envs * lesson.settings.num_steps / row.seconds[0])


def test_rows_say_how_much_of_a_perfect_speed_up_is_reached(monkeypatch):
    def measured(count, *_):
        seconds = {1: (1.0, 1.0), 2: (1.25, 0.8)}[count]
        sizes = zip(("weak", "strong"), (100 * count, 100), seconds, strict=True)
        return {kind: make_row("training", "cartpole", n, 1, 10, [t], note="ppo") for kind, n, t in sizes}

    monkeypatch.setattr(scaling, "measure_in", measured)
    assert [row.note for row in measure_scaling([1, 2], 0, "cpu", 1)] == [
        "1 process; ppo",
        "2 processes, weak scaling: 80% of 2 times that of 1; ppo",
        "2 processes, strong scaling: 62% of 2 times that of 1; ppo",
    ]


@pytest.mark.parametrize(("counts", "words"), [((), "at least one"), ((0,), "processes = 0"), ((1, 129), "129")])
def test_impossible_numbers_of_processes_are_refused(counts, words):
    with pytest.raises(ParameterError, match=words):
        check_counts(counts, "cpu")


def test_numbers_of_processes_are_ordered_and_more_gpus_than_there_are_refused():
    assert check_counts((4, 1, 4), "cpu") == [1, 4]
    with pytest.raises(DeviceError, match=f"this machine has {torch.cuda.device_count()}"):
        check_counts((128,), "cuda")


def test_wrong_input_is_refused_before_anything_is_measured(capsys):
    with pytest.raises(ParameterError, match="which is not among cases"):
        bench(("rollout",), device="cpu", processes=(1,))
    assert command("bench training --gpus 1 --device cpu") == 2
    assert "leave out --device cpu" in capsys.readouterr().err
