"""A profile shows what was measured, and names what binds."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import streaks
import torch
from conftest import command

import cupydrive as cd
from cupydrive import envs, profiling
from cupydrive.bench import Ceilings
from cupydrive.bench.cases import written_bytes
from cupydrive.bench.operations import count_operations
from cupydrive.codegen.layout import Layout
from cupydrive.errors import ParameterError
from cupydrive.executors import executor
from cupydrive.profiling import KERNEL, Profile, Use
from cupydrive.profiling.report import BINDS
from cupydrive.simulation.batch import Batch

ROOT = Path(__file__).resolve().parents[2]
SECONDS = {
    "rollout": 1.0,
    "half": 0.5,
    "one_step": 0.1,
    "observe": 0.0,
    "reset": 0.0,
    "least_observe": 0.0,
    "least_reset": 0.0,
}
# 1,000 copies of 10 steps in a second, 100 bytes and 100 operations each, on a device with room for ten times as much.
FULL = Profile(
    env="made", params={}, num_envs=1000, agents=1, steps=10, device="cuda", machine="made", seconds=SECONDS,
    episode_ends=0.01, state_bytes=0, bytes_per_step=100, observed_bytes=0, half_obs=False, operations_per_step=100.0,
    ceilings=Ceilings(1e7, 1e7, 1e7), use=None,
)  # fmt: skip
USE = Use(64, 0, 0, 128, blocks=1000, resident=2, bound="registers", processors=100, most_threads=2048)


def timed(**seconds):
    return replace(FULL, seconds=SECONDS | seconds)


BOUND = {
    "latency": timed(half=0.9),
    "launches": timed(one_step=0.4),
    "writes": replace(FULL, observed_bytes=80, ceilings=Ceilings(1.5e6, 1e7, 1e7)),
    "arithmetic": replace(FULL, ceilings=Ceilings(1e7, 1e7, 1.9e6)),
    "observations": timed(observe=0.06),
    "resets": replace(timed(reset=0.09, least_reset=0.01), episode_ends=0.5),
    "instructions": FULL,
}


@pytest.fixture
def little(monkeypatch):
    """Make measurements of the device's limits short: they mean little then."""
    monkeypatch.setattr("cupydrive.bench.limits.BYTES", {"cpu": 2**20, "cuda": 2**20})
    monkeypatch.setattr("cupydrive.profiling.RUN_SECONDS", 0.001)
    monkeypatch.setattr(profiling, "_limits", {})


@pytest.mark.parametrize("name", BINDS)
def test_what_binds_is_what_takes_the_time(name):
    assert BOUND[name].binds == name and all(text in str(BOUND[name]) for text in BINDS[name])


def test_a_hint_about_writes_is_one_that_helps():
    halved = replace(BOUND["writes"], observed_bytes=60, half_obs=True)
    assert halved.hint == "smaller observations"
    assert replace(halved, observed_bytes=40).hint == "nothing: most of what is written are actions, rewards and flags"


def test_shares_are_parts_of_what_was_measured():
    p = timed(one_step=0.3, observe=0.05, least_observe=0.01, half=0.6)
    assert p.rate == 10_000 and p.write_share == p.arithmetic_share == pytest.approx(0.1)
    assert (p.half_share, p.launch_share, p.observe_share) == pytest.approx((0.6, 0.2, 0.4))
    # Memory alone takes 0.02 s to bring 100 bytes of each of 1,000 copies.
    moved = replace(p, state_bytes=100, ceilings=Ceilings(1e7, 5e6, 1e7))
    assert moved.observe_share == pytest.approx(0.2)


def test_a_warp_waits_where_one_of_its_copies_begins_anew():
    reset = timed(reset=0.1)
    one_thread = replace(USE, threads=50, blocks=20)  # of 1,000 copies
    assert reset.reset_share == pytest.approx(0.01)
    assert replace(reset, use=one_thread).reset_share == pytest.approx(1 - 0.99**32)
    assert replace(reset, use=replace(one_thread, threads=1600)).reset_share == pytest.approx(0.01)


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
    assert p.params == params and all(seconds > 0 for seconds in p.seconds.values())
    kept = json.loads(json.dumps(p.to_dict()))
    assert kept["rate"] == p.rate and kept["binds"] in BINDS
    assert ">tag_continuous" in p._repr_html_()


@pytest.mark.full
def test_an_environment_is_profiled_as_it_was_made_and_stays_as_it_is(little):
    env = cd.make("cartpole", num_envs=32, device="cpu", threads=1, gravity=5.0, obs_dtype="bfloat16")
    env.reset(seed=3)
    env.rollout(3)
    before = {name: tensor.clone() for name, tensor in env.state.items()}
    p = cd.profile(env, steps=8)
    assert p.params == {"gravity": 5.0} and p.num_envs == 32 and p.half_obs and "1 thread" in p.machine
    assert list(profiling._limits) == [("cpu", p.machine)]  # what one thread can do, not all
    assert all(torch.equal(tensor, before[name]) for name, tensor in env.state.items())
    for given in ({"num_envs": 64}, {"device": "cpu"}, {"gravity": 1.0}):
        with pytest.raises(ParameterError, match=f"{next(iter(given))} is that of the environment as it was made"):
            cd.profile(env, **given)


@pytest.mark.full
def test_each_time_is_of_the_copies_and_steps_that_it_says(little, monkeypatch):
    """By a clock that counts: a step of one copy takes a second, and so does an observation or a reset of one."""
    clock = []

    def counted(call):
        def counting(batch, *args, **options):
            clock.append(batch.num_envs * (args or (1,))[0])
            return call(batch, *args, **options)

        return counting

    for name in ("rollout", "observe", "reset"):
        monkeypatch.setattr(Batch, name, counted(getattr(Batch, name)))

    def timed(call, where, runs, run_seconds):
        clock.clear()
        call()
        return [float(sum(clock))]

    monkeypatch.setattr(profiling, "timed", timed)
    p = cd.profile("cartpole", num_envs=10, steps=4, device="cpu")
    alone = {"observe": 10, "reset": 10, "least_observe": 1, "least_reset": 1}
    assert p.seconds == {"rollout": 40, "half": 20, "one_step": 10, **alone}


@pytest.mark.full
def test_operations_of_kernels_in_python_are_not_counted(little):
    p = cd.profile(streaks.spec(streaks.IN_TORCH), num_envs=8, steps=2, device="cpu")
    assert "not counted" in str(p) and p.arithmetic_share is None


@pytest.mark.full
def test_the_command_line_prints_it_and_writes_files(little, tmp_path, capsys):
    data = tmp_path / "p.json"
    assert command(f"profile cartpole --num-envs 64 --steps 4 --device cpu --json {data}") == 0
    out = capsys.readouterr().out
    assert out.startswith("cartpole: 64 environments x 4 steps") and out.count("\n") == len(out.splitlines()) == 7
    assert json.loads(data.read_text())["env"] == "cartpole"


# ---- on a GPU ----------------------------------------------------------------------------------------------------------


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
    from cupydrive.executors.occupancy import allowed_blocks

    env = cd.make(name, num_envs=100, device="cuda", layout=layout, **params)
    p = cd.profile(env, steps=2)
    allowed = allowed_blocks(env.batch.program, KERNEL)
    assert p.use.resident == min(allowed.values()) == allowed[p.use.bound]
    assert p.use.registers == env.batch.program.kernels[KERNEL].num_regs
    assert 0 < p.use.filled <= p.use.occupancy <= 1


@pytest.mark.full
@pytest.mark.gpu
def test_a_gpu_is_filled_by_many_copies_and_not_by_few():
    many, few = (cd.profile("cartpole", num_envs=n, steps=4, device="cuda") for n in (1_048_576, 64))
    assert many.use.filled == many.use.occupancy and few.use.filled < 0.01
    assert many.machine == executor("cuda").describe() and all(each.seconds["rollout"] > 0 for each in (many, few))


@pytest.mark.full
@pytest.mark.gpu
def test_kernels_in_python_are_profiled_on_a_gpu():
    p = cd.profile(streaks.spec(streaks.IN_TORCH), num_envs=8, steps=2, device="cuda")
    assert p.use is None and p.operations_per_step is None
