"""Runs side by side: each has the bits that it has alone, and an iteration of many has the launches
of one.
"""

import ctypes
import dataclasses
import gc
import os
import signal
import warnings
import weakref
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from equal_runs import rows, same

import cupydrive as cd
from cupydrive.codegen.source import assemble_file
from cupydrive.errors import NotFiniteError
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.joined import Joined, NotJoinedError, launch_kinds, recorded
from cupydrive.experiments.members import by_shape
from cupydrive.experiments.population import resolve_members
from cupydrive.training.begin import make_run
from cupydrive.training.report import MetricReport
from cupydrive.training.together import Schedules, Together, recording

STEPS = 6 * 8 * 8
SMALL = {"num_envs": 8, "device": "cpu", "progress": False}
FALLING = ((0, 3e-3), (STEPS, 1e-4))


def ppo(**settings):
    return cd.PPO(
        **{"num_steps": 8, "hidden": (16,), "num_minibatches": 2, "learning_rate": FALLING}
        | settings
    )


LEAVING = {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 2}
CASES = {
    "one agent": ("cartpole", ppo(), {}, {"max_episode_steps": 12}),
    "normalised": (
        "pendulum",
        ppo(normalize_obs=True, normalize_reward=True),
        {},
        {"max_episode_steps": 12},
    ),
    "two policies": (
        "tag_grid",
        None,
        {"tagger": ppo(), "runner": cd.A2C(num_steps=8)},
        {"grid_length": 6},
    ),
    "one of both": ("tag_grid", None, {"tagger+runner": ppo(target_kl=1e-3)}, {"grid_length": 6}),
    "leaving": ("tag_continuous", ppo(normalize_obs=True), {}, LEAVING),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("device", "cuda_graph"),
    [("cpu", None), *(pytest.param("cuda", each, marks=pytest.mark.gpu) for each in (True, False))],
)
def test_each_has_the_bits_that_it_has_alone_on_a_cpu(device, cuda_graph, case, monkeypatch):
    env, algorithm, policies, params = CASES[case]
    exactly = {
        name: dataclasses.replace(each, precision="float32") for name, each in policies.items()
    }
    given = (
        {"policies": exactly}
        if policies
        else {"algorithm": dataclasses.replace(algorithm, precision="float32")}
    )
    trained, size = [], {"num_envs": 8 if device == "cpu" else 64, "progress": False}
    size["steps"] = 6 * 8 * size["num_envs"]
    monkeypatch.setattr(Together, "prepare", prepared(trained, Together.prepare))
    population = cd.train(
        env, seeds=3, seed=5, device=device, cuda_graph=cuda_graph, **given, **size, **params
    )
    assert [len(each.runs) for each in trained] == [3], "they did not train side by side"
    for number, run in enumerate(population):
        alone = cd.train(env, seed=5 + number, device="cpu", **given, **size, **params)
        assert same(run, alone) and rows(run) == rows(alone) and run.step == alone.step
    assert not same(*population.runs[:2])


def prepared(found, prepare):
    """Return ``Together.prepare`` that notes who is prepared."""

    def noting(self, *arguments):
        found.append(self)
        return prepare(self, *arguments)

    return noting


def test_settings_and_physics_may_differ_and_schedules_follow_their_own_steps():
    members = [
        {"learning_rate": ((0, 1e-2), (100, 1e-3), (400, 1e-5)), "gamma": 0.5},
        {"ent_coef": ((0, 0.1), (300, 0.0)), "gravity": 5.0},
        {"clip_coef": 0.05, "max_grad_norm": 0.1, "half_length": 1.0},
    ]
    planned = resolve_members("cartpole", ppo(), members=members, num_envs=8, device="cpu")
    assert by_shape(planned) == [[0, 1, 2]]
    population = cd.train("cartpole", ppo(), members=members, steps=STEPS, **SMALL)
    for run, change in zip(population, members, strict=True):
        own = {name: value for name, value in change.items() if hasattr(ppo(), name)}
        physics = {name: value for name, value in change.items() if name not in own}
        alone = cd.train("cartpole", ppo(**own), steps=STEPS, **SMALL, **physics)
        assert same(run, alone) and rows(run) == rows(alone)


def test_other_shapes_run_in_turn_and_keep_their_places():
    members = [{}, {"num_steps": 4}, {"gamma": 0.5}, {"num_envs": 4}, {"hidden": (8,)}]
    planned = resolve_members("cartpole", ppo(), members=members, num_envs=8, device="cpu")
    assert by_shape(planned) == [[0, 2], [1], [3], [4]]
    population = cd.train("cartpole", ppo(), members=members, steps=STEPS, **SMALL)
    assert [run.num_envs for run in population] == [8, 8, 8, 4, 8]
    assert [run.settings["cart"].num_steps for run in population] == [8, 4, 8, 8, 8]
    assert population.settings[2] == "gamma 0.5" and all(run.step >= STEPS for run in population)


@pytest.mark.parametrize("case", CASES)
def test_launches_do_not_grow_with_members(case):
    env, algorithm, policies, params = CASES[case]
    runs = [
        make_run(
            env, algorithm, policies=policies or None, seed=k, num_envs=8, device="cpu", **params
        )
        for k in range(5)
    ]
    few, many = (
        Joined([recording(run) for run in some], runs[0].batch.executor, some)
        for some in (runs[:1], runs)
    )
    assert len(few.steps) == len(many.steps) == len(recording(runs[0]))


def test_whatever_torch_computes_is_refused_before_it_is_done():
    run = make_run(
        "cartpole", cd.A2C(num_steps=8, hidden=(8,)), backend="torch", num_envs=8, device="cpu"
    )
    before = run.snapshot()
    with pytest.raises(NotJoinedError, match="torch computes"):
        recording(run)
    assert all(torch.equal(before[name], tensor) for name, tensor in run.snapshot().items())
    tensor = torch.zeros(4)
    with recorded():
        view = tensor.view(2, 2)[0]
    assert view.data_ptr() == tensor.data_ptr()
    with pytest.raises(NotJoinedError, match="add_"), recorded():
        tensor.add_(1)
    with pytest.raises(NotJoinedError, match="empty"), recorded():
        torch.empty(3)


def test_runs_of_other_shapes_are_not_joined():
    one, other = (make_run("cartpole", ppo(), num_envs=n, device="cpu") for n in (8, 16))
    assert launch_kinds(recording(one)) != launch_kinds(recording(other))
    with pytest.raises(NotJoinedError, match="shapes"):
        Together([one, other])


@pytest.mark.full
def test_what_launches_point_to_lives_as_long_as_they():
    """Whoever holds what runs an iteration holds the runs: else it would write into memory that is
    somebody else's.
    """
    runs = [make_run("cartpole", ppo(), seed=k, num_envs=8, device="cpu") for k in range(3)]
    kept = [weakref.ref(run) for run in runs]
    together = Together(runs)
    iterate = together.prepare([MetricReport(run) for run in runs], False)
    del runs, together
    gc.collect()
    assert all(run() is not None for run in kept)
    iterate()
    del iterate
    gc.collect()
    assert all(run() is None for run in kept)


@pytest.mark.parametrize("threads", [1, 2])
def test_members_share_threads(threads, monkeypatch):
    """Elements of all members are one range: threads take parts of it that begin and end within
    members.
    """
    monkeypatch.setattr("cupydrive.executors.host.SMALL_LAUNCH", 0)
    monkeypatch.setenv("CUPYDRIVE_THREADS", str(threads))
    population = cd.train("cartpole", ppo(), seeds=3, steps=STEPS, **SMALL)
    monkeypatch.setenv("CUPYDRIVE_THREADS", "1")
    assert all(
        same(run, cd.train("cartpole", ppo(), seed=run.seed, steps=STEPS, **SMALL))
        for run in population
    )


# What a launch of several members calls: it notes its calls in memory of its own member, and
# returns that member's code.
NOTING = """
struct Noted { int* calls; int code; };  // how many, and the last one's [first, last)
extern "C" int noted(const Noted* member, int first, int last) {
  member->calls[0] += 1;
  member->calls[1] = first;
  member->calls[2] = last;
  return member->code;
}
KERNEL_OF_MEMBERS(noted, Noted)
"""
NOTED = np.dtype([("calls", "u8"), ("code", "i4")], align=True)


# the most elements that a member has: those of three are no int
@pytest.mark.parametrize("count", [1, 4, 2**31 - 1])
def test_a_range_of_all_members_elements_is_one_range_of_each_member_in_it(count):
    """Wherever it begins and ends, on a CPU; and an error of one member is the launch's."""
    unit = assemble_file("tools/fused")
    unit = dataclasses.replace(unit, text=unit.text + NOTING, kernels=("noted",))
    run = HostExecutor(threads=1).build(unit).library.noted_of_members
    # The three stand among many more: a call of another one shows, and writes nothing that is
    # somebody else's.
    calls, members = np.zeros((200, 3), np.int32), np.zeros(200, NOTED)
    members["calls"], members["code"] = calls.ctypes.data + np.arange(200) * calls.strides[0], 8
    members["code"][100:103] = codes = np.array([1, 2, 4])
    address, starts = ctypes.c_void_p(members[100:].ctypes.data), np.arange(3) * count
    edges = sorted(
        {
            edge
            for near in range(-2, 3)
            for edge in np.arange(4) * count + near
            if 0 <= edge <= 3 * count
        }
    )
    for begin, end in combinations_with_replacement(edges, 2):
        calls[:] = 0
        code = run(address, *map(ctypes.c_int64, (count, begin, end)))
        first, last = np.maximum(begin - starts, 0), np.minimum(end - starts, count)
        within, expected = first < last, np.zeros_like(calls)
        expected[100:103][within] = np.stack([np.ones_like(first), first, last], 1)[within]
        assert np.array_equal(calls, expected) and code == codes[within].sum(), (begin, end)


def test_a_member_that_is_not_finite_ends_and_the_others_go_on(tmp_path):
    members = [{"vf_coef": 0.5}, {"vf_coef": 3e38}, {"vf_coef": 0.25}]
    population = cd.train("cartpole", ppo(), members=members, steps=STEPS, out=tmp_path, **SMALL)
    assert (
        list(population.failures) == [1]
        and "loss of policy 'cart' is not finite" in population.failures[1]
    )
    for number in (0, 2):
        alone = cd.train("cartpole", ppo(**members[number]), steps=STEPS, **SMALL)
        assert same(population.runs[number], alone)
    loaded = cd.load(tmp_path)  # which does not choose it as the best one either
    assert loaded.failures == population.failures
    assert np.isnan(loaded.scores("losses/entropy")).tolist() == [False, True, False]
    members[1] = {"vf_coef": 0.75}
    again = dict(steps=STEPS, out=tmp_path, overwrite=True, **SMALL)
    cd.train("cartpole", ppo(), members=members, **again)
    assert cd.load(tmp_path).failures == {}
    assert np.isnan(population.scores("losses/entropy")[1]) and "failed" in population.table(
        "losses/entropy"
    )
    with pytest.raises(NotFiniteError, match="not finite"):
        cd.train("cartpole", ppo(vf_coef=3e38), seeds=2, steps=STEPS, **SMALL)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_an_interrupt_keeps_what_was_trained_and_a_resume_goes_on(backend, tmp_path):
    def callback(step, metrics):
        if metrics["member"] == 1 and step >= STEPS // 2:
            os.kill(os.getpid(), signal.SIGINT)

    given = {"steps": STEPS, "out": tmp_path, "backend": backend, **SMALL}
    population = cd.train("cartpole", ppo(), seeds=3, callback=callback, **given)
    steps = [run.step for run in population]
    assert STEPS // 2 <= steps[1] < STEPS and len(steps) == (3 if backend == "kernels" else 2)
    assert [run.step for run in cd.load(tmp_path)] == steps
    resumed = cd.train("cartpole", ppo(), seeds=3, resume=True, **given)
    whole = cd.train("cartpole", ppo(), seeds=3, **given | {"out": None})
    assert all(
        same(one, other) and rows(one) == rows(other)
        for one, other in zip(resumed, whole, strict=True)
    )
    assert (
        len(resumed) == 3
        and cd.train("cartpole", ppo(), seeds=3, resume=True, **given).runs[2].step == STEPS
    )


@pytest.mark.full
def test_members_at_different_steps_go_on_side_by_side_with_those_at_theirs(tmp_path):
    given = {"out": tmp_path, **SMALL}
    population = cd.train("cartpole", ppo(), seeds=4, steps=STEPS // 3, **given)
    cd.train(population.runs[2], steps=STEPS // 3, out=tmp_path / "002", progress=False)
    resumed = cd.train("cartpole", ppo(), seeds=4, steps=STEPS, resume=True, **given)
    assert [run.step for run in resumed] == [STEPS] * 4


@pytest.mark.parametrize(("num_envs", "alone"), [(1, 3), (2, 8), (8, 32), (3, 12)])
def test_the_last_row_becomes_the_first(num_envs, alone):
    """Of masks, whose rows are no whole words, and of observations; nothing else changes."""
    run = make_run("tag_grid", ppo(), num_envs=num_envs, device="cpu", grid_length=6)
    rollout, rng = run.rollout, np.random.default_rng(num_envs)
    whole = torch.zeros((10, num_envs, alone), dtype=torch.bool)
    # also rows that begin at no whole word
    rollout.action_mask = {"runner": whole[1:] if alone % 8 else whole[:9]}
    rows = [*rollout.obs.values(), *rollout.action_mask.values()]
    for row in rows:
        row.copy_(torch.from_numpy(rng.normal(size=row.shape) > 0))
    kept = [row.clone() for row in rows]
    rollout._carry = rollout._prepare_carry()
    pieces = sum(-(-row[0].numel() * row.element_size() // 16) for row in rows)
    rollout._carrying.launch("carry", rollout._carry, pieces)
    for row, before in zip(rows, kept, strict=True):
        assert torch.equal(row[0], before[-1]) and torch.equal(row[1:], before[1:])


@pytest.mark.parametrize("num_envs", [40, 128])  # 128 are one for each chain of sums.cuh
def test_a_report_has_the_numbers_of_the_run(num_envs):
    run = make_run(
        "tag_grid", ppo(), num_envs=num_envs, device="cpu", grid_length=5, max_episode_steps=21
    )
    report, episodes = MetricReport(run), 0
    for _ in range(6):
        run.iterate()
        episodes += int((run.rollout.terminated | run.rollout.truncated).sum())
    sums = [learner.metric_sums.tolist() for learner in run.learners.values()]
    numbers = torch.zeros(report.size, dtype=torch.float64)
    report.make(numbers)
    found = report.read(numbers)
    assert (
        found[0] == episodes > 0 and found[1] == run.episodes.values[0].min() and found[3] == sums
    )
    exact = run.episodes.values.double().mean(1)
    assert torch.allclose(torch.tensor(found[2], dtype=torch.float64), exact, rtol=1e-12, atol=0)
    assert found[4] == [False, False] and found[5] == run.rollout.nonfinite.tolist()
    for learner in run.learners.values():  # one float behind the sums, which is not theirs
        behind = torch.full((len(learner.metric_sums) + 1,), 7.0)
        behind[:-1] = learner.metric_sums
        learner.metric_sums = behind[:-1]
    for bad in (False, True):
        for learner in run.learners.values():
            learner.bad = torch.tensor(float(bad))
        report.make(numbers)
        after = report.read(numbers)
        assert (
            after[0] == 0
            and not any(map(any, after[3]))
            and after[2] == found[2]
            and after[4] == [bad, bad]
        )
    behinds = [
        learner.metric_sums.as_strided((1,), (1,), len(own))
        for learner, own in zip(run.learners.values(), sums, strict=True)
    ]
    assert all(behind == 7.0 for behind in behinds) and run.rollout.iteration == 6


@pytest.mark.parametrize("threads", [4, 8])  # the members take their turns in other orders
def test_a_teams_report_is_one_threads(threads, monkeypatch):
    run = make_run("cartpole", ppo(), num_envs=300, device="cpu", max_episode_steps=9)
    run.iterate()
    run.iterate()
    one = MetricReport(run)
    with monkeypatch.context() as patched:
        patched.setattr(run.batch, "executor", HostExecutor(team_threads=threads))
        team = MetricReport(run)
    kept, found = run.snapshot(), []
    for report in (one, team):
        run.restore(kept)
        found.append(torch.zeros(report.size, dtype=torch.float64))
        report.make(found[-1])
    assert torch.equal(*(numbers.view(torch.int64) for numbers in found)) and found[0][1] > 0


def test_schedules_are_written_for_all_and_begin_anew_after_their_table_ends(monkeypatch):
    monkeypatch.setattr("cupydrive.training.together.AHEAD", 3)
    settings = [ppo(), ppo(gamma=((0, 0.9), (200, 0.5))), ppo(learning_rate=1e-3)]
    runs = [make_run("cartpole", each, num_envs=8, device="cpu") for each in settings]
    schedules = Schedules(runs)
    for step in (0, 64, 128, 192, 256, 64 * 40, 64):
        schedules.write(step)
        for run in runs:
            alone = make_run("cartpole", run.settings["cart"], num_envs=8, device="cpu").learners[
                "cart"
            ]
            alone.schedule(step)
            for name in alone.scheduled.schedules:
                own, expected = (getattr(x.scheduled, name) for x in (run.learners["cart"], alone))
                assert torch.equal(own, expected), (step, name)


# ---- on a GPU ------------------------------------------------------------------------------------

WHOLE = {"num_envs": 64, "steps": 6 * 64 * 8, "progress": False}


@pytest.mark.full
@pytest.mark.gpu
@pytest.mark.parametrize(
    "settings",
    [
        cd.PPO(num_steps=8, learning_rate=FALLING),
        cd.PPO(num_steps=8, hidden=(256, 256), learning_rate=FALLING),
        cd.PQN(num_steps=8, hidden=(64, 64), learning_rate=FALLING),
    ],
    ids=["64-64", "256-256", "PQN"],
)
def test_matrix_units_give_each_the_same_bits_in_each_population(settings, monkeypatch):
    """Sizes of launches depend on how many share the GPU, and the order of sums on these: on
    nothing else.
    """
    trained = []
    monkeypatch.setattr(Together, "prepare", prepared(trained, Together.prepare))
    one, other = (
        cd.train("cartpole", settings, seeds=seeds, device="cuda", **WHOLE)
        for seeds in ([1, 2, 3], [3, 9, 1])
    )
    assert (
        same(one.runs[0], other.runs[2])
        and same(one.runs[2], other.runs[0])
        and not same(*one.runs[:2])
    )
    assert all("bfloat16" in run.backends["cart"] for run in one)
    assert [len(each.runs) for each in trained] == [3, 3], "they did not train side by side"


@pytest.mark.full
@pytest.mark.gpu
def test_launches_on_a_gpu_do_not_grow_with_members():
    settings = cd.PPO(num_steps=8)
    few, many = (
        [make_run("cartpole", settings, seed=k, num_envs=64, device="cuda") for k in range(n)]
        for n in (1, 7)
    )
    joined = [
        Joined([recording(run) for run in runs], runs[0].batch.executor, runs)
        for runs in (few, many)
    ]
    counts = [launched(each) for each in joined]
    assert counts[0] == counts[1] > 50, counts


def launched(joined):
    """Return how many kernels ran in one iteration."""
    from torch.profiler import ProfilerActivity, profile

    joined.launch()
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler, about itself
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
            joined.launch()
            torch.cuda.synchronize()
    return sum(
        str(event.device_type).endswith("CUDA") and "mem" not in event.name.lower()
        for event in trace.events()
    )
