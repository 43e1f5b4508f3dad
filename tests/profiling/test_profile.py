"""A profile shows what was measured, and names what binds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import streaks
import torch
from conftest import command

import cupydrive as cd
from cupydrive import envs
from cupydrive.bench import Ceilings
from cupydrive.bench.cases import written_bytes
from cupydrive.bench.operations import count_operations
from cupydrive.codegen.layout import Layout
from cupydrive.errors import ParameterError
from cupydrive.executors import executor
from cupydrive.profiling import profile as profiling
from cupydrive.profiling.occupancy import Use, allowed_blocks
from cupydrive.profiling.profile import KERNEL
from cupydrive.profiling.report import BINDS, Profile
from cupydrive.simulation.batch import Batch

ROOT = Path(__file__).resolve().parents[2]
# 1,000 copies of 10 steps in a second, 100 bytes and 100 operations each, on a device with room for
# ten times as much.
FULL = Profile(
    env="made", params={}, num_envs=1000, agents=1, steps=10, device="cuda", machine="made",
    seconds=1.0, half_seconds=0.5,
    step_seconds=0.1, bytes_per_step=100, operations_per_step=100.0,
    ceilings=Ceilings(1e7, 1e7, 1e7), use=None,
)  # fmt: skip
USE = Use(
    64, 0, 0, 128, blocks=1000, resident=2, bound="registers", processors=100, most_threads=2048
)
BOUND = {
    "latency": replace(FULL, half_seconds=0.9),
    "launches": replace(FULL, step_seconds=0.4),
    "writes": replace(FULL, ceilings=Ceilings(1.5e6, 1e7, 1e7)),
    "arithmetic": replace(FULL, ceilings=Ceilings(1e7, 1e7, 1.9e6)),
    "instructions": FULL,
}


@pytest.fixture
def little(monkeypatch):
    """Make measurements of the device's limits short: they mean little then."""
    monkeypatch.setattr("cupydrive.bench.limits.MEASURED_BYTES", {"cpu": 2**20, "cuda": 2**20})
    monkeypatch.setattr(profiling, "PROFILED_SECONDS", 0.001)


@pytest.mark.parametrize("name", BINDS)
def test_what_binds_is_what_takes_the_time(name):
    assert BOUND[name].binds == name and all(text in str(BOUND[name]) for text in BINDS[name])


def test_shares_are_parts_of_what_was_measured():
    p = replace(FULL, step_seconds=0.3, half_seconds=0.6)
    assert p.rate == 10_000 and p.write_share == p.arithmetic_share == pytest.approx(0.1)
    assert (p.half_share, p.launch_share) == pytest.approx((0.6, 0.2))


def test_a_launch_fills_what_its_blocks_reach():
    assert USE.occupancy == 2 * 128 / 2048
    assert USE.filled == USE.occupancy and replace(USE, blocks=50).filled == USE.occupancy / 4


def test_spills_are_named_with_their_bytes():
    assert "48 bytes of local memory" in str(replace(FULL, use=replace(USE, local_bytes=48)))


@pytest.mark.full
def test_a_profile_counts_what_the_benchmark_counts(little):
    params = {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 4}
    p = cd.profile("tag_continuous", num_envs=16, steps=4, device="cpu", **params)
    spec = envs.get("tag_continuous")
    assert p.bytes_per_step == written_bytes(spec.groups(spec.make_params(**params)))
    assert p.operations_per_step == count_operations("tag_continuous", params)
    assert (p.num_envs, p.agents, p.steps, p.device, p.use) == (16, 5, 4, "cpu", None)
    assert p.params == params and min(p.seconds, p.half_seconds, p.step_seconds) > 0
    kept = json.loads(json.dumps(p.to_dict()))
    assert kept["rate"] == p.rate and kept["binds"] in BINDS
    assert ">tag_continuous" in p._repr_html_()


@pytest.mark.full
def test_an_environment_is_profiled_as_it_was_made_and_stays_as_it_is(little):
    env = cd.make(
        "cartpole", num_envs=32, device="cpu", threads=1, gravity=5.0, obs_dtype="bfloat16"
    )
    env.reset(seed=3)
    env.rollout(3)
    before = {name: tensor.clone() for name, tensor in env.state.items()}
    p = cd.profile(env, steps=8)
    assert (
        p.params == {"gravity": 5.0}
        and p.num_envs == 32
        and p.bytes_per_step == 18
        and "1 thread" in p.machine
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in env.state.items())
    for given in ({"num_envs": 64}, {"device": "cpu"}, {"gravity": 1.0}):
        with pytest.raises(ParameterError, match=f"already defines {next(iter(given))}"):
            cd.profile(env, **given)


@pytest.mark.full
def test_each_time_is_of_the_copies_and_steps_that_it_says(little, monkeypatch):
    """By a clock that counts: a step of one environment takes a second."""
    clock, rollout = [], Batch.rollout

    def counting(batch, steps, **options):
        clock.append(batch.num_envs * steps)
        return rollout(batch, steps, **options)

    def timed(call, where, runs, run_seconds):
        clock.clear()
        call()
        return [float(sum(clock))]

    monkeypatch.setattr(Batch, "rollout", counting)
    monkeypatch.setattr(profiling, "timed", timed)
    p = cd.profile("cartpole", num_envs=10, steps=4, device="cpu")
    assert (p.seconds, p.half_seconds, p.step_seconds) == (40, 20, 10)


@pytest.mark.full
def test_operations_of_kernels_in_python_are_not_counted(little):
    p = cd.profile(streaks.spec(streaks.IN_TORCH), num_envs=8, steps=2, device="cpu")
    assert "not counted" in str(p) and p.to_dict()["arithmetic_share"] is None


@pytest.mark.full
def test_the_command_line_prints_it_and_writes_files(little, tmp_path, capsys):
    data = tmp_path / "p.json"
    assert command(f"profile cartpole --num-envs 64 --steps 4 --device cpu --json {data}") == 0
    out = capsys.readouterr().out
    assert (
        out.startswith("cartpole: 64 environments x 4 steps")
        and out.count("\n") == len(out.splitlines()) == 7
    )
    assert json.loads(data.read_text())["env"] == "cartpole"


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "params", "layout"),
    [
        ("cartpole", {}, None),
        ("cartpole", {}, Layout(1, 1024)),
        ("tag_grid", {}, None),
        ("tag_grid", {}, Layout(8, 4)),
        ("tag_continuous", {"num_taggers": 5, "num_runners": 100}, None),
        ("tag_continuous", {"num_taggers": 5, "num_runners": 1000}, None),
        ("rice_n", {}, None),
    ],
)
def test_the_driver_agrees_on_what_a_processor_holds(name, params, layout):
    env = cd.make(name, num_envs=100, device="cuda", layout=layout, **params)
    p = cd.profile(env, steps=2)
    allowed = allowed_blocks(env.batch.program, KERNEL)
    assert p.use.resident == min(allowed.values()) == allowed[p.use.bound]
    assert p.use.registers == env.batch.program.kernels[KERNEL].num_regs
    assert 0 < p.use.filled <= p.use.occupancy <= 1


@pytest.mark.full
@pytest.mark.gpu
def test_a_gpu_is_filled_by_many_copies_and_not_by_few():
    many, few = (
        cd.profile("cartpole", num_envs=n, steps=4, device="cuda") for n in (1_048_576, 64)
    )
    assert many.use.filled == many.use.occupancy and few.use.filled < 0.01
    assert many.machine == executor("cuda").describe() and all(
        each.seconds > 0 for each in (many, few)
    )


@pytest.mark.full
@pytest.mark.gpu
def test_kernels_in_python_are_profiled_on_a_gpu():
    p = cd.profile(streaks.spec(streaks.IN_TORCH), num_envs=8, steps=2, device="cuda")
    assert p.use is None and p.operations_per_step is None
