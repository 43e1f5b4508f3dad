"""The benchmark counts what it says, times what it says."""

import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import point
import pytest
from torch.utils.flop_counter import FlopCounterMode

import cupydrive
from cupydrive import bench as bench_module
from cupydrive import envs
from cupydrive.bench import (
    Bench,
    Ceilings,
    bench,
    ceilings,
    chart,
    measure,
    short,
    tables,
    timing,
    written_bytes,
)
from cupydrive.bench import chosen as chosen_module
from cupydrive.bench import training as training_module
from cupydrive.bench.cases import ROLLOUTS, Work
from cupydrive.bench.chosen import Chosen
from cupydrive.bench.operations import count_operations, learning_operations
from cupydrive.bench.solving import marks, solve
from cupydrive.bench.startup import own_seconds, train_start_times
from cupydrive.bench.sweep import listed, sweep
from cupydrive.bench.timing import make_row
from cupydrive.bench.training import Lesson, measure_lesson, registers, run_operations
from cupydrive.checks.bits import fetch, trajectory
from cupydrive.cli.main import main
from cupydrive.errors import ParameterError, SpecError
from cupydrive.executors import executor
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch
from cupydrive.training.algorithms import A2C, PPO
from cupydrive.training.plan import make_run
from cupydrive.training.train import train


@pytest.fixture
def quick(monkeypatch):
    """Make runs short: what is measured then means little, what is written stays."""
    monkeypatch.setattr(timing, "RUN_SECONDS", {"cpu": 0.001, "cuda": 0.001})
    monkeypatch.setattr("cupydrive.bench.limits.BYTES", {"cpu": 2**20, "cuda": 2**20})
    monkeypatch.setattr(bench_module, "CREATED", {"cpu": 10, "cuda": 10})
    monkeypatch.setattr(chosen_module, "STARTED", (("cartpole", {}),))
    monkeypatch.setattr(chosen_module, "TRAINED", ())
    small = {"cpu": (Work("cartpole", 64, 4), Work("tag_grid", 16, 4))}
    monkeypatch.setattr(bench_module, "ROLLOUTS", small)
    monkeypatch.setattr(bench_module, "STEPS", small)
    monkeypatch.setattr("cupydrive.bench.cases.SAMPLES", {"cpu": 100})


@pytest.mark.parametrize("name", envs.names())
def test_bytes_are_those_of_the_arrays(name):
    """Counted from the spec, and summed over what a rollout without final observations fills in every row."""
    batch = Batch(envs.get(name), 3)
    batch.reset(0)
    buffers = fetch(batch, batch.rollout(4, final_obs=False))
    every_row = ("action", "reward", "terminated", "truncated", "active", "left")
    arrays = [
        a for key in every_row for a in (buffers[key].values() if isinstance(buffers[key], dict) else [buffers[key]])
    ]
    seen = [*buffers["obs"].values(), *buffers["action_mask"].values()]  # before the first step, too
    written = sum(a.nbytes for a in arrays) + sum(rows[1:].nbytes for rows in seen)
    assert written_bytes(batch.groups) == written / (3 * 4)


@pytest.mark.full
@pytest.mark.parametrize("name", envs.names())
def test_a_float_that_counts_computes_the_same(name):
    spec = envs.get(name)
    params = spec.make_params(max_episode_steps=5, **spec.cases[0])
    want = trajectory(spec, params, HostExecutor(threads=1), 1, 9, 12)
    got = trajectory(spec, params, HostExecutor(count=True), 1, 9, 12)
    for key, array in want.items():
        assert np.ascontiguousarray(got[key]).tobytes() == np.ascontiguousarray(array).tobytes(), key


def test_an_environment_that_is_named_has_the_rows_that_it_has_anyway():
    assert [work.params for work in listed("rice_n", "cuda")] == [{}, {}, {"negotiation": True}]
    assert all(work in ROLLOUTS[device] for device in ROLLOUTS for work in listed("catalysis", device))
    assert listed(envs.register(point.PYTHON, point.KERNEL).name, "cpu") == [Work("point", 10_000, 32)]


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
    assert learning_operations([[(4, 64), (64, 64), (64, 3)]], 0) == both == 9088
    assert learning_operations([[(4, 64), (64, 64), (64, 3)]], 4) == 13 * both - 4 * 2 * 4 * 64
    towers = [[(4, 64), (64, 64), (64, 2)], [(4, 64), (64, 64), (64, 1)]]
    assert learning_operations(towers, 1) == 4 * own - 2 * 2 * 4 * 64


@pytest.mark.full
@pytest.mark.parametrize(
    "settings", [PPO(num_steps=4, update_epochs=3, shared_layers=True), A2C(num_steps=4, hidden=(8,))]
)
def test_torch_counts_as_many_operations(settings):
    """In one iteration of its learner, and one pass more for the values after the last step; these episodes are never cut."""
    run = make_run("tag_grid", settings, num_envs=8, device="cpu", learner="torch")
    with FlopCounterMode(display=False) as counter:
        run.iterate()
    forward = sum(
        run.rollout.batch.num_envs
        * g.count
        * learning_operations([list(pairwise(t)) for t in training_module.towers(own)], 0)
        for own in run.learners.values()
        for g in own.groups
    )
    assert counter.get_total_flops() == 4 * 8 * run_operations(run) + forward


@pytest.mark.full
def test_rows_of_training_name_their_learner_and_network():
    lessons = (
        Lesson("cartpole", 8, PPO(num_steps=8, hidden=(16,), shared_layers=True), ("kernels", "torch")),
        Lesson("tag_grid", 4, A2C(num_steps=4, hidden=(8,)), ("torch",), {"num_taggers": 2}),
    )
    rows = [row for lesson in lessons for row in measure_lesson(lesson, "cpu", 3)]
    assert [row.note for row in rows] == [
        "ppo by kernels, exact, network 4-16-3, 4 epochs x 4 minibatches, 1 policy",
        "ppo by torch, float32, network 4-16-3, 4 epochs x 4 minibatches, 1 policy",
        "a2c by torch, float32, network 6-8-5 and 6-8-1, 2 policies",
    ]
    assert all(
        len(row.seconds) == 3 and row.rate == pytest.approx(row.num_envs * row.steps / np.median(row.seconds))
        for row in rows
    )
    assert rows[0].operations_per_step == rows[1].operations_per_step == 13 * 2 * (4 * 16 + 16 * 3) - 4 * 2 * 4 * 16
    assert rows[2].agents == 3 and rows[2].operations_per_step == 3 * (4 * 2 * (2 * 6 * 8 + 8 * 5 + 8) - 2 * 2 * 6 * 8)


def test_registers_are_told_where_a_program_knows_them():
    run = make_run(
        "cartpole", PPO(num_steps=8, hidden=(16,), shared_layers=True), num_envs=8, device="cpu", learner="kernels"
    )
    assert registers(run) == []
    learner = run.learners["cart"]
    kernels = {"gradient": SimpleNamespace(num_regs=255, local_size_bytes=48)}
    learner.gradients.program = SimpleNamespace(kernels=kernels)
    learner.steps.program = SimpleNamespace(kernels={"update": SimpleNamespace(num_regs=40, local_size_bytes=0)})
    assert registers(run) == ["gradient 255 registers and 48 B of local memory", "update 40 registers"]


def test_a_row_is_its_median():
    row = timing.make_row("rollout", "x", 100, 1, 10, [0.2, 0.1, 0.4], bytes_per_step=26, operations_per_step=3.5)
    assert row.rate == 1000 / 0.2 and row.bytes_per_second == 26 * row.rate
    assert row.operations_per_second == 3.5 * row.rate
    assert row.spread == pytest.approx((0.4 - 0.1) / 2 / 0.2)
    numbers = {
        7: "7",
        1234: "1.23 k",
        999_400: "999 k",
        999_900: "1.00 M",
        96.14e9: "96.1 G",
        104.2e9: "104 G",
        4.551e12: "4.55 T",
    }
    assert {x: short(x) for x in numbers} == numbers


@pytest.mark.full
def test_limits_of_this_machine_are_of_its_size(quick):
    found = ceilings(executor("cpu"), runs=3)
    assert all(1e8 < x < 1e14 for x in (found.write, found.copy, found.arithmetic))


@pytest.mark.full
def test_the_command_writes_a_table_json_and_a_chart(quick, tmp_path, capsys):
    paths = tmp_path / "bench.json", tmp_path / "bench.png"
    assert main(["bench", "--device", "cpu", "--runs", "2", "--json", str(paths[0]), "--chart", str(paths[1])]) == 0
    kept = json.loads(paths[0].read_text())
    out = capsys.readouterr().out
    assert [(r["case"], r["env"]) for r in kept["rows"]] == [
        ("rollout", "cartpole"), ("rollout", "tag_grid"), ("stepping", "cartpole"), ("stepping", "tag_grid"),
        ("sampling", "21 choices"), ("sampling", "21 choices"),
    ]  # fmt: skip
    for r in kept["rows"]:
        assert (
            r["rate"] == pytest.approx(r["num_envs"] * r["steps"] / np.median(r["seconds"])) and len(r["seconds"]) == 2
        )
        assert f"{r['env']:<24}" in out
    for parts in kept["startup"]["cartpole"].values():
        assert list(parts) == ["import torch", "CUDA context", "import cupydrive", "make", "first step"]
    start = kept["startup"]["cartpole"]
    assert start["warm"]["make"] < start["cold"]["make"]  # nothing is compiled again
    assert kept["versions"]["cupydrive"] == cupydrive.__version__ and kept["creation"]["num_envs"] == 10
    again = Bench.from_dict(kept)
    assert again.to_dict() == kept and str(again).splitlines()[0] in out
    assert paths[1].stat().st_size > 5000


@pytest.mark.full
def test_a_start_of_training_has_its_parts(monkeypatch):
    monkeypatch.setattr("cupydrive.bench.startup.PROCESSES", 1)
    found = train_start_times("cartpole", "kernels", 12.0, "cpu")  # less than any policy gets
    names = ["import torch", "CUDA context", "import cupydrive", "set up", "first iteration", "until solved"]
    assert [list(found[cache]) for cache in ("cold", "warm")] == [names] * 2
    assert all(seconds >= 0 for parts in found.values() for seconds in parts.values())
    assert found["warm"]["set up"] < found["cold"]["set up"]  # nothing is compiled again
    result = Bench("cpu", "m", {}, "2026-01-01", "c", Ceilings(1, 1, 1), train_startup={"cartpole by kernels": found})
    first = own_seconds(found["warm"], "first iteration")
    assert f"warm cache first iteration after {first:.2f} s, solved after {own_seconds(found['warm']):.2f} s" in str(
        result
    )
    assert own_seconds(found["warm"]) == pytest.approx(first + found["warm"]["until solved"])


def test_of_starts_the_middle_one_counts_and_one_without_an_end_is_the_last(monkeypatch):
    def started(env, program, *arguments):
        seed = int(arguments[3])
        solved = (None, 3.0, 1.0)[seed]
        parts = {"import torch": 9.0 * seed, "import cupydrive": 1.0, "first iteration": 1.0, "until solved": solved}
        return dict.fromkeys(("cold", "warm"), parts)

    monkeypatch.setattr("cupydrive.bench.startup._cold_and_warm", started)
    found = train_start_times("cartpole", "torch", 475.0, "cpu")
    assert found["cold"]["until solved"] == 3.0 and own_seconds(found["warm"]) == 5.0
    parts = {"import torch": 1.0, "set up": 2.0, "first iteration": 0.5, "until solved": None}
    kept = {"train_startup": {"cartpole by torch": {"cold": parts}}}
    result = Bench("cpu", "m", {}, "2026-01-01", "c", Ceilings(1, 1, 1), startup={"e": {"cold": {"make": 1.0}}}, **kept)
    assert "first iteration after 2.50 s, not solved" in str(result)
    assert "| cartpole by torch | cold | 1.00 | 2.00 | 0.50 |  | 2.50 | not solved |" in tables.startup(result)


@pytest.mark.full
@pytest.mark.parametrize("learner", ["kernels", pytest.param("torch", marks=pytest.mark.slow)])
def test_solving_ends_at_the_mark_and_trains_what_train_does(learner):
    """The mark is what the policy of plain training gets after so many env-steps: it is reached there, or before."""
    options = {"seed": 3, "device": "cpu", "learner": learner, "num_envs": 16}
    settings = PPO(num_steps=16, learning_rate=1e-2)
    means = {}
    run = make_run("cartpole", settings, **options)
    train(
        run,
        steps=2560,
        progress=False,
        callback=lambda step, _: means.setdefault(step, run.evaluate(1000).mean("cart")[0]),
    )
    looks = [means[step] for step in sorted(means)][1::2]
    mark = max(looks)
    found = solve("cartpole", mark, settings, steps=2560, **options)
    assert found.mean == mark and found.env_steps == 512 * (1 + looks.index(mark))
    assert 0 < found.first_iteration < found.training < found.seconds
    never = solve("cartpole", 501.0, settings, steps=1024, **options)
    assert never.seconds is never.training is None and never.env_steps == 1024


def test_a_mark_is_said_by_the_environment_and_of_its_only_group():
    assert marks()["cartpole"] == envs.get("cartpole").mark == 475.0
    assert all(len(envs.get(name).groups(envs.get(name).make_params())) == 1 for name in marks())
    with pytest.raises(ParameterError, match="tag_grid says no mark; pass mark="):
        solve("tag_grid", device="cpu")
    with pytest.raises(SpecError, match="mark = 'high'"):
        replace(envs.get("cartpole"), mark="high")


@pytest.mark.full
def test_an_interrupt_keeps_what_was_measured(quick, monkeypatch, tmp_path, capsys):
    def measured_once(work, where, runs):
        if work.env != "cartpole":
            raise KeyboardInterrupt
        return measure(work, where, runs)

    monkeypatch.setattr("cupydrive.bench.measure", measured_once)
    path = tmp_path / "bench.json"
    assert main(["bench", "rollout", "stepping", "--device", "cpu", "--runs", "2", "--json", str(path)]) == 130
    kept = json.loads(path.read_text())
    assert [(r["case"], r["env"]) for r in kept["rows"]] == [("rollout", "cartpole")] and kept["interrupted"]
    assert "interrupted" in capsys.readouterr().out


def test_nothing_is_measured_where_there_is_nothing_to_compare_with(quick, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("cupydrive.bench.peers.FOLDER", tmp_path)
    assert main(["bench", "rollout", "--device", "cpu", "--compare"]) == 2
    said = capsys.readouterr()
    assert "run this from a checkout" in said.err and not said.out


@pytest.mark.full
def test_sweeps_are_all_combinations(quick):
    works = sweep("tag_grid", ["num_envs=10,100", "num_taggers=1,4,9", "steps=8"])
    assert len(works) == 6 and works[-1] == Work("tag_grid", 100, 8, {"num_taggers": 9})
    result = bench(("rollout",), device="cpu", runs=2, work=sweep("cartpole", ["num_envs=16,32,64"]), progress=None)
    assert [row.num_envs for row in result.rows] == [16, 32, 64]
    (axes,) = chart(result).axes
    assert [list(line.get_xdata()) for line in axes.lines] == [[16, 32, 64]] and axes.get_xscale() == "log"
    for wrong in (["num_envs"], ["num_envs="], ["num_envs=ten"], ["num_taggers=0"], ["num_tagers=1"]):
        with pytest.raises(ParameterError):
            sweep("tag_grid", wrong)


def test_a_chart_has_a_line_only_where_one_size_varies():
    def axes(sizes):
        rows = [make_row("rollout", "e", *size, [1.0]) for size in sizes]
        return chart(Bench("cpu", "m", {}, "2026-01-01", "c", ceilings_of_one, rows)).axes[0]

    ceilings_of_one = Ceilings(1.0, 1.0, 1.0)
    assert [len(axes([(8, a, 4) for a in (2, 3, 4)]).lines), len(axes([(n, 1, 4) for n in (1, 2, 3)]).lines)] == [1, 1]
    mixed = axes([(8, 1, 4), (16, 1, 4), (8, 1, 8)])
    assert (len(mixed.lines), len(mixed.patches)) == (0, 3)


@pytest.mark.full
def test_of_a_named_environment_nothing_else_is_timed(quick, monkeypatch, tmp_path, capsys):
    starts = {"cold": {"first step": 1.0}, "warm": {"first step": 1.0}}
    monkeypatch.setattr(bench_module, "start_times", lambda env, params, device: starts)
    path = tmp_path / "bench.json"
    small = ["--device", "cpu", "--runs", "1", "--json", str(path)]
    assert main(["bench", *small, "--env", "tag_grid", "--sweep", "num_envs=8", "steps=2"]) == 0
    kept = json.loads(path.read_text())
    assert [(r["case"], r["env"]) for r in kept["rows"]] == [("rollout", "tag_grid"), ("stepping", "tag_grid")]
    assert list(kept["startup"]) == ["tag_grid"] and not kept["creation"] and not kept["train_startup"]
    assert "not done: sampling draws from logits without an environment" in capsys.readouterr().out
    for case, words in (("sampling", "sampling draws"), ("training", "it has some of: cartpole")):
        assert main(["bench", case, "--env", "tag_grid", "--device", "cpu"]) == 2
        out, err = capsys.readouterr()
        assert words in err and out == ""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_concerns_an_environment_is_all_of_it_and_nothing_else(device):
    everything = Chosen(None, device)
    known = dict.fromkeys([*envs.names()])
    each = {name: Chosen([Work(name, 8, 2)], device) for name in known}
    for name, chosen in each.items():
        assert {env for env, _ in chosen.started()} == {name}  # of one that is not listed, with its defaults
        assert chosen.lessons() == [lesson for lesson in everything.lessons() if lesson.env == name]
        assert [chosen.concerns(other) for other in known] == [other == name for other in known]
    assert sorted(k for chosen in each.values() for k in chosen.scaled()) == everything.scaled()
    assert [one for chosen in each.values() for one in chosen.trained()] == everything.trained()


def test_wrong_input_is_refused(capsys):
    assert main(["bench", "--runs", "0"]) == 2
    assert main(["bench", "--sweep", "num_envs=1", "--device", "cpu"]) == 2
    with pytest.raises(ParameterError, match="Did you mean 'rollout'"):
        bench(("rolout",), device="cpu")
    assert main(["bench", "rolout"]) == 2
    assert "Did you mean 'rollout'" in capsys.readouterr().err
