"""The benchmark of several processes: it counts the sums that an update needs, and compares what it has measured."""

import pytest
import torch

import cupydrive as cd
from cupydrive.bench import bench
from cupydrive.bench.scaling import LESSONS, check_counts, compared, measure, measure_scaling
from cupydrive.bench.timing import make_row
from cupydrive.bench.training import Lesson
from cupydrive.cli.main import main
from cupydrive.errors import DeviceError, ParameterError
from cupydrive.training.plan import plan


@pytest.mark.full
def test_two_processes_add_every_gradient_and_what_minibatches_need():
    (row,) = measure_scaling((2,), "cpu", 1)
    lesson = LESSONS["cpu"][0]
    settings = lesson.settings
    run = plan(lesson.env, settings, num_envs=lesson.num_envs, device="cpu").run()
    gradient = sum(p.numel() for policy in run.policies.values() for p in policy.parameters())
    updates = settings.update_epochs * settings.num_minibatches
    words = row.note.split("; ")
    assert words[0] == "2 processes" and row.num_envs == 2 * lesson.num_envs
    sums, total = words[1].split(" sums of ")
    # Beside a gradient in pieces for each update: counts, sums and squares of the advantages of all minibatches, each once.
    assert int(sums) == updates + 3
    assert int(total.split()[0].replace(",", "")) >= 4 * gradient * updates
    assert row.rate == pytest.approx(row.num_envs * settings.num_steps / sorted(row.seconds)[0])


def test_one_process_adds_nothing():
    found = measure(Lesson("cartpole", 8, cd.PPO(num_steps=4, hidden=(8,))), 8, "cpu", 1)
    assert (found["calls"], found["bytes"], found["exchange"]) == (0, 0, 0.0)
    assert found["row"]["num_envs"] == 8 and "network 4-8-" in found["row"]["note"]


def test_rows_say_how_much_of_a_perfect_speed_up_is_had():
    def found(envs, seconds, calls):
        row = vars(make_row("training", "cartpole", envs, 1, 10, [seconds], note="ppo"))
        return {"row": row, "exchange": 0.1, "calls": calls, "bytes": 1200}

    alone = {kind: found(100, 1.0, 0) for kind in ("weak", "strong")}
    two = {"weak": found(200, 1.25, 3), "strong": found(100, 0.8, 3)}
    assert [row.note for row in compared(alone, alone, 1, 1)] == ["1 process; ppo"]
    assert [row.note for row in compared(two, alone, 2, 1)] == [
        "2 processes, weak scaling: 80% of 2 times that of 1; 3 sums of 1,200 bytes in all, alone 8% of the time; ppo",
        "2 processes, strong scaling: 62% of 2 times that of 1; 3 sums of 1,200 bytes in all, alone 12% of the time; ppo",
    ]


@pytest.mark.parametrize(("counts", "words"), [((), "at least one"), ((0,), "processes = 0"), ((1, 129), "129")])
def test_numbers_of_processes_that_cannot_be_are_refused(counts, words):
    with pytest.raises(ParameterError, match=words):
        check_counts(counts, "cpu")


def test_each_number_counts_once_and_the_least_comes_first():
    assert check_counts((4, 1, 4), "cpu") == [1, 4]


def test_more_gpus_than_there_are_are_refused():
    with pytest.raises(DeviceError, match=f"this machine has {torch.cuda.device_count()}"):
        check_counts((128,), "cuda")


def test_wrong_input_is_refused_before_anything_is_measured(capsys):
    with pytest.raises(ParameterError, match="which is not among cases"):
        bench(("rollout",), device="cpu", processes=(1,))
    assert main(["bench", "training", "--gpus", "1,x"]) == 2
    assert "--gpus '1,x': pass numbers of GPUs" in capsys.readouterr().err
    assert main(["bench", "training", "--gpus", "1", "--device", "cpu"]) == 2
    assert "leave one of them out" in capsys.readouterr().err
