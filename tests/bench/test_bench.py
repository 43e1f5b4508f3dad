"""The benchmark counts what it says, times what it says."""

import json
from dataclasses import replace

import lamps
import numpy as np
import point
import pytest
from conftest import command
from equal_runs import assert_same_bits
from torch.utils.flop_counter import FlopCounterMode

import cupydrive
from cupydrive import envs
from cupydrive.algorithms import A2C, PPO, PQN
from cupydrive.algorithms.architecture import MinGRU, Network
from cupydrive.bench import Bench, Work, bench, benchmark, ceilings, measure, short, timing
from cupydrive.bench.cases import ROLLOUTS, SINGLE_STEPS, sweep_works, written_bytes
from cupydrive.bench.operations import count_operations, learning_operations
from cupydrive.bench.training import Lesson, measure_lesson, run_operations, towers
from cupydrive.checks.bits import fetch, trajectory
from cupydrive.errors import ParameterError
from cupydrive.executors import executor
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch
from cupydrive.training.begin import make_run

SMALL = (Work("cartpole", 64, 4), Work("tag_grid", 16, 4))


@pytest.fixture
def quick(monkeypatch):
    """Make runs short: what is measured then means little, what is written stays."""
    monkeypatch.setattr(timing, "RUN_SECONDS", {"cpu": 0.001, "cuda": 0.001})
    monkeypatch.setattr("cupydrive.bench.limits.MEASURED_BYTES", {"cpu": 2**20, "cuda": 2**20})
    monkeypatch.setattr(benchmark, "ROLLOUTS", {"cpu": SMALL})
    monkeypatch.setattr(benchmark, "SINGLE_STEPS", {"cpu": SMALL})
    monkeypatch.setattr("cupydrive.bench.cases.SAMPLES", {"cpu": 100})


def test_every_work_exists():
    for work in (work for works in (*ROLLOUTS.values(), *SINGLE_STEPS.values()) for work in works):
        envs.get(work.env).make_params(**work.params)


@pytest.mark.parametrize("name", envs.names())
def test_bytes_are_those_of_the_arrays(name):
    """Counted from the spec, and summed over what a rollout without final observations fills in
    every row.
    """
    batch = Batch(envs.get(name), 3)
    batch.reset(0)
    rolled = batch.rollout(4, final_obs=False)
    buffers = fetch(batch, rolled)
    every_row = ("action", "reward", "terminated", "truncated", "active", "left")
    arrays = [
        a
        for key in every_row
        for a in (buffers[key].values() if isinstance(buffers[key], dict) else [buffers[key]])
    ]
    # before the first step, too; bits as they are stored
    seen = [*rolled.obs.values(), *rolled.action_mask.values()]
    written = sum(a.nbytes for a in arrays) + sum(rows[1:].nbytes for rows in seen)
    assert written_bytes(batch.groups) == written / (3 * 4)


@pytest.mark.full
@pytest.mark.parametrize("name", envs.names())
def test_a_float_that_counts_computes_the_same(name):
    spec = envs.get(name)
    params = spec.make_params(max_episode_steps=5, **spec.cases[0])
    want = trajectory(spec, params, HostExecutor(threads=1), 1, 9, 12)
    got = trajectory(spec, params, HostExecutor(count=True), 1, 9, 12)
    assert_same_bits(got, want)


@pytest.mark.full
def test_operations_are_counted():
    more = "s.x += s.v; s.x = math::fma(s.x, 0.5f, 0.5f); s.x = math::sqrt(s.x * s.x) / 2.0f;"
    spec = envs.register(point.PYTHON, point.KERNEL)
    count = count_operations(spec, {})
    assert 8 <= count <= 16  # of the step; and the drawn push, the return of the episode
    longer = replace(spec, kernel=point.KERNEL.replace("s.x += s.v;", more))
    assert count_operations(longer, {}) == count + 5
    bare = replace(spec, kernel=point.KERNEL.replace("s.x += s.v;", "s.x += __builtin_fabsf(s.v);"))
    assert count_operations(bare, {}) is None  # and is no reason not to time it


def test_operations_of_learning_are_those_of_the_layers():
    """By hand, for CartPole and hidden layers of 64: 4 inputs, 2 logits and a value."""
    both, own = 2 * (4 * 64 + 64 * 64 + 64 * 3), 2 * (2 * (4 * 64 + 64 * 64) + 64 * 2 + 64)
    assert learning_operations([(4, 64, 64, 3)], 0) == both == 9088
    assert learning_operations([(4, 64, 64, 3)], 4) == 13 * both - 4 * 2 * 4 * 64
    assert learning_operations([(4, 64, 64, 2), (4, 64, 64, 1)], 1) == 4 * own - 2 * 2 * 4 * 64


@pytest.mark.full
@pytest.mark.parametrize(
    "settings",
    [PPO(num_steps=4, update_epochs=3, shared_layers=True), A2C(num_steps=4, hidden=(8,))],
)
def test_torch_counts_as_many_operations(settings):
    """In one iteration of its learner, and one pass more for the values after the last step; these
    episodes are never cut.
    """
    run = make_run("tag_grid", settings, num_envs=8, device="cpu", backend="torch")
    with FlopCounterMode(display=False) as counter:
        run.iterate()
    rows = [
        (8 * g.count, learning_operations(towers(own), 0))
        for own in run.learners.values()
        for g in own.groups
    ]
    forward = sum(count * operations for count, operations in rows)
    assert counter.get_total_flops() == 4 * 8 * run_operations(run) + forward


def test_torch_counts_as_many_operations_of_convolutions():
    """Besides those of learning there are values after the last step and of cut episodes."""
    spec = lamps.lamps(1, "float32", image=(6, 7, 2))
    run = make_run(spec, A2C(num_steps=4), num_envs=8, device="cpu", backend="torch")
    with FlopCounterMode(display=False) as counter:
        run.iterate()
    forward = 2 * (20 * 18 * 16 + 320 * 128 + 128 * 3)
    assert counter.get_total_flops() == 4 * 8 * run_operations(run) + 2 * 8 * forward


@pytest.mark.full
def test_rows_of_training_name_their_learner_and_network():
    lessons = (
        Lesson(
            "cartpole", 8, PPO(num_steps=8, hidden=(16,), shared_layers=True), ("kernels", "torch")
        ),
        Lesson("tag_grid", 4, A2C(num_steps=4, hidden=(8,)), ("torch",), {"num_taggers": 2}),
        Lesson("minatar_breakout", 4, PQN(num_steps=4, num_minibatches=1)),
        Lesson("cartpole", 4, A2C(num_steps=4, network=Network(hidden=(8,), core=MinGRU(8)))),
    )
    rows = [row for lesson in lessons for row in measure_lesson(lesson, "cpu", 3)]
    assert [row.note for row in rows] == [
        "ppo by kernels, float32, network 4-16-3, 4 epochs x 4 minibatches, 1 policy",
        "ppo by torch, float32, network 4-16-3, 4 epochs x 4 minibatches, 1 policy",
        "a2c by torch, float32, network 6-8-5 and 6-8-1, 2 policies",
        "pqn by torch, float32, network 400-16@3x3-128-3, 2 epochs x 1 minibatches, 1 policy",
        "a2c by torch, float32, network 4-8-MinGRU8-MinGRU8-2 and 4-8-MinGRU8-MinGRU8-1, 1 policy",
    ]
    for row in rows:
        assert len(row.seconds) == 3 and row.rate == row.num_envs * row.steps / np.median(
            row.seconds
        )
    assert (
        rows[0].operations_per_step
        == rows[1].operations_per_step
        == 13 * 2 * (4 * 16 + 16 * 3) - 4 * 2 * 4 * 16
    )
    assert rows[2].agents == 3 and rows[2].operations_per_step == 3 * (
        4 * 2 * (2 * 6 * 8 + 8 * 5 + 8) - 2 * 2 * 6 * 8
    )


def test_a_row_is_its_median():
    row = timing.make_row(
        "rollout", "x", 100, 1, 10, [0.2, 0.1, 0.4], bytes_per_step=26, operations_per_step=3.5
    )
    assert row.rate == 1000 / 0.2 and row.bytes_per_second == 26 * row.rate
    assert row.operations_per_second == 3.5 * row.rate and row.spread == pytest.approx(
        (0.4 - 0.1) / 2 / 0.2
    )
    numbers = {
        7: "7",
        1234: "1.23 k",
        999_400: "999 k",
        999_900: "1.00 M",
        104.2e9: "104 G",
        4.551e12: "4.55 T",
    }
    assert {x: short(x) for x in numbers} == numbers


@pytest.mark.full
def test_limits_of_this_machine_are_of_its_size(quick):
    found = ceilings(executor("cpu"), runs=3)
    assert all(1e8 < x < 1e14 for x in (found.write, found.copy, found.arithmetic))


@pytest.mark.full
def test_the_command_prints_a_table_and_writes_json(quick, tmp_path, capsys):
    path = tmp_path / "bench.json"
    assert command(f"bench --device cpu --runs 2 --json {path}") == 0
    kept, out = json.loads(path.read_text()), capsys.readouterr().out
    assert [(r["case"], r["env"]) for r in kept["rows"]] == [
        ("rollout", "cartpole"), ("rollout", "tag_grid"), ("stepping", "cartpole"),
        ("stepping", "tag_grid"),
        ("sampling", "21 choices"), ("sampling", "21 choices"),
    ]  # fmt: skip
    for r in kept["rows"]:
        assert (
            r["rate"] == r["num_envs"] * r["steps"] / np.median(r["seconds"])
            and f"{r['env']:<24}" in out
        )
    assert kept["versions"]["cupydrive"] == cupydrive.__version__
    again = Bench.from_dict(kept)
    assert again.to_dict() == kept and str(again).splitlines()[0] in out


@pytest.mark.full
def test_an_interrupt_keeps_what_was_measured(quick, monkeypatch, tmp_path, capsys):
    def measured_once(work, where, runs):
        if work.env != "cartpole":
            raise KeyboardInterrupt
        return measure(work, where, runs)

    monkeypatch.setattr(benchmark, "measure", measured_once)
    path = tmp_path / "bench.json"
    assert command(f"bench rollout stepping --device cpu --runs 2 --json {path}") == 130
    kept = json.loads(path.read_text())
    assert [(r["case"], r["env"]) for r in kept["rows"]] == [("rollout", "cartpole")] and kept[
        "interrupted"
    ]
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.full
def test_sweeps_are_all_combinations(quick):
    works = sweep_works("tag_grid", {"num_envs": [10, 100], "num_taggers": [1, 4, 9], "steps": 8})
    assert len(works) == 6 and works[-1] == Work("tag_grid", 100, 8, {"num_taggers": 9})
    result = bench(
        ("rollout",),
        device="cpu",
        runs=2,
        work=sweep_works("cartpole", {"num_envs": [16, 32, 64]}),
        progress=None,
    )
    assert [row.num_envs for row in result.rows] == [16, 32, 64]
    for wrong in ({"num_envs": ""}, {"num_envs": "ten"}, {"num_taggers": 0}, {"num_tagers": 1}):
        with pytest.raises(ParameterError):
            sweep_works("tag_grid", wrong)


@pytest.mark.full
def test_of_a_named_environment_nothing_else_is_timed(quick, tmp_path, capsys):
    path = tmp_path / "bench.json"
    small = f"--device cpu --runs 1 --json {path}"
    assert command(f"bench {small} --env tag_grid --sweep num_envs=8 steps=2") == 0
    kept = json.loads(path.read_text())
    assert [(r["case"], r["env"]) for r in kept["rows"]] == [
        ("rollout", "tag_grid"),
        ("stepping", "tag_grid"),
    ]
    capsys.readouterr()
    assert command("bench training --env tag_grid --device cpu") == 2
    out, err = capsys.readouterr()
    assert "It has tasks for: cartpole" in err and out == ""
