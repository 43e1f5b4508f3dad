"""Tables: kernels read what NumPy reads, wrong ones are refused, one copy serves all, and files
know which ones they had.
"""

import gc
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from atlas import SPEC, given, other

import cupydrive as cd
from cupydrive import envs
from cupydrive.algorithms.kernels.play import Play, play_unit, policies_of
from cupydrive.checks.bits import compare_bits, trajectory
from cupydrive.checks.checker import check
from cupydrive.checks.report import Report
from cupydrive.codegen.agreement import batch_dtype
from cupydrive.codegen.layout import Layout, Observations, PlayLayout
from cupydrive.codegen.source import assemble
from cupydrive.drawing.canvas import Canvas
from cupydrive.errors import CompileError, KernelFault, SpecError
from cupydrive.executors import executor, host
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.python_kernels import PythonKernels
from cupydrive.inputs.tables import made_up_tables
from cupydrive.simulation.batch import Batch
from cupydrive.spec import Table
from cupydrive.training.begin import make_run

PARAMS = SPEC.make_params()
TABLES = SPEC.table_arrays(PARAMS)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


# ---- what kernels read ---------------------------------------------------------------------------


def wanted(states):
    """Return the observations of states by plain NumPy indexing, as words."""
    seen = SPEC.reference.observe(replace(PARAMS, walkers=states["at"].shape[1]), states, None).obs[
        "walker"
    ]
    assert seen.dtype == np.float32
    return seen.view(np.uint32)


@pytest.mark.full
@pytest.mark.parametrize("walkers", [1, 3])
@pytest.mark.parametrize("build", [
    pytest.param(HostExecutor, id="fast"),
    pytest.param(lambda: HostExecutor(debug=True), id="bounds"),
    pytest.param(lambda: HostExecutor(team_threads=4), id="team"),
    pytest.param(lambda: executor("cuda"), marks=pytest.mark.gpu, id="cuda"),
])  # fmt: skip
def test_a_kernel_reads_what_numpy_reads_bit_for_bit(build, walkers):
    """37 environments: whole vectors of those side by side, and a rest."""
    device, params = build(), SPEC.make_params(walkers=walkers)
    batch = Batch(SPEC, 37, params, device)
    batch.reset(3)
    before = batch.get_state()["state"]
    rolled = batch.rollout(9)
    obs, action = (device.get(array["walker"]) for array in (rolled.obs, rolled.action))
    places = [before["at"]]
    for t in range(9):
        places.append(TABLES["next"][places[-1], action[t, ..., 0]])
    states = np.zeros((10, 37), SPEC.state_dtype(params))
    states["at"] = places
    assert np.array_equal(obs.view(np.uint32), np.stack([wanted(row) for row in states]))
    after = batch.get_state()["state"]
    assert np.array_equal(after["code"], TABLES["code"][after["at"]])
    assert len(np.unique(states["at"])) == 7


@pytest.mark.gpu
@pytest.mark.parametrize("walkers", [1, 40])
def test_every_layout_of_a_gpu_reads_what_the_cpu_reads(walkers):
    params, report = SPEC.make_params(walkers=walkers), Report("atlas", [], [], 0)
    want = trajectory(SPEC, params, HostExecutor(), 7, 70, 9)
    for layout in (
        Layout(1, 64),
        Layout(4, 16),
        Layout(32, 2),
        Layout(64, 1, False, False, Observations.STAGED),
    ):
        got = trajectory(SPEC, params, executor("cuda"), 7, 70, 9, layout)
        compare_bits(report, str(layout), got, want, walkers, ("cuda", "cpu"))
    assert report.passed, str(report)


@pytest.mark.full
def test_the_checker_binds_tables_and_passes():
    report = check(SPEC, agent_steps=2000, device="cpu", progress=False)
    assert report.passed, str(report)


@pytest.mark.full
def test_the_checker_sees_a_table_that_is_read_at_another_place():
    wrong = replace(
        SPEC,
        kernel=SPEC.kernel.replace("height(place, j, k)", "height(place, 1 - j, k)"),
        cases=({},),
    )
    report = check(wrong, agent_steps=2000, device="cpu", fail_fast=True, progress=False)
    assert not report.passed and "obs.walker" in report.failures()[0]


@pytest.mark.full
@pytest.mark.parametrize(("right", "wrong", "name", "index", "limit"), [
    ("height(place, j, k)", "height(place + 7, j, k)", "height", r"\d+", 7),
    ("height(place, j, k)", "height(place, j, k - 1)", "height", -1, 3),
    ("PLACES * 6 - 1 - place", "PLACES * 6", "height", 42, 42),
    ("env.table.code[place]", "env.table.code[place - 7]", "code", r"-\d", 7),
])  # fmt: skip
def test_a_wild_index_is_an_error_with_its_place_in_debug_builds(right, wrong, name, index, limit):
    kernel = SPEC.kernel.replace(right, wrong)
    line = next(k for k, text in enumerate(kernel.splitlines(), 1) if wrong in text)
    batch = Batch(replace(SPEC, kernel=kernel), 2, PARAMS, HostExecutor(threads=1, debug=True))
    words = rf"^<kernel of atlas>:{line}: table {name} index {index} is outside \[0, {limit}\), in environment 0$"
    with pytest.raises(KernelFault, match=words):
        batch.reset(0)


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", DEVICES)
def test_kernels_in_python_get_the_same_tables(device):
    def reset(env):
        fresh = (env.bits[:, :, 0, 0].long() * 7 >> 32).int()
        arrive(env, torch.where(env.mask[:, None], fresh, env.state["at"]))

    def arrive(env, at):
        env.state["at"].copy_(at)
        env.state["code"].copy_(env.table["code"][at.long()])

    def step(env):
        arrive(env, env.table["next"][env.state["at"].long(), env.action["walker"].long()])
        env.reward["walker"].copy_(
            env.params.gain * env.table["height"][env.state["at"].long(), 1, 2]
        )

    def observe(env):
        at, height = env.state["at"].long(), env.table["height"]
        env.obs["walker"][..., :6] = height[at].flatten(2)
        env.obs["walker"][..., 6] = height.flatten()[7 * 6 - 1 - at]
        env.obs["walker"][..., 7] = env.table["level"]

    python, where = replace(SPEC, kernel=PythonKernels(reset, step, observe)), executor(device)
    want, got = (trajectory(spec, PARAMS, where, 11, 5, 30) for spec in (SPEC, python))
    assert all(
        np.array_equal(got[name], want[name]) for name in want if not name.startswith("episode")
    )


@pytest.mark.full
def test_a_policy_plays_with_tables_in_one_launch():
    settings = cd.PPO(num_steps=8, hidden=(8,), num_minibatches=1, update_epochs=1)
    run = make_run(SPEC, settings, num_envs=4, device="cpu", backend="kernels")
    run.rollout.play = Play(run.rollout, PlayLayout())
    run.iterate()
    states, seen = run.batch.get_state()["state"], run.rollout.obs["walker"][-1]
    assert len(np.unique(states["at"])) > 3 and np.array_equal(
        seen.numpy().view(np.uint32), wanted(states)
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "architecture",
    [a if a == 90 else pytest.param(a, marks=pytest.mark.slow) for a in (75, 90, 120)],
)
def test_tables_compile_for_gpus_without_a_warning(architecture):
    from test_nvrtc import compiled

    for layout in (Layout(1, 64), Layout(64, 1, False, False, Observations.STAGED)):
        assert compiled(assemble(SPEC, PARAMS, layout), architecture) == (0, "")


@pytest.mark.full
def test_policies_with_tables_compile_for_gpus():
    from test_nvrtc import compiled

    run = make_run(SPEC, cd.PPO(), num_envs=2, device="cpu", backend="kernels")
    unit = play_unit(
        run.batch, policies_of(run.batch, run.rollout.player_of), PlayLayout(1, 2, warp_sets=4)
    )
    assert compiled(unit, 90) == (0, "")


def test_an_environment_without_tables_has_nothing_of_them():
    spec = envs.get("cartpole")
    unit = assemble(spec, spec.make_params(), Layout())
    assert (
        "table_names" not in unit.text
        and "table" not in batch_dtype(spec, spec.make_params()).names
    )
    assert spec.with_made_up_tables() is spec and spec.table_arrays(spec.make_params()) == {}
    assert spec.about_tables(spec.make_params()) == {}  # in files


# ---- one copy, one program -----------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_one_copy_serves_all_environments_of_a_device_and_goes_with_the_last(device):
    def addresses(batch):
        return {name: batch.executor.pointer(array) for name, array in batch.tables.items()}

    first = Batch(SPEC, 3, PARAMS, device)
    # another object, read anew
    second = Batch(replace(SPEC), 500, SPEC.make_params(walkers=9, gain=0.5), device)
    changed = Batch(other(), 3, PARAMS, device)
    assert addresses(first) == addresses(second) and first.program is not second.program
    same = {
        name for name, address in addresses(changed).items() if address == addresses(first)[name]
    }
    assert same == {"next", "code", "level"}
    from cupydrive.executors.constants import _copies

    gc.collect()
    before = len(_copies)
    del changed
    gc.collect()
    assert len(_copies) == before - 1
    del first, second
    gc.collect()
    assert len(_copies) == before - 5


@pytest.mark.full
def test_other_values_are_the_same_program_and_other_shapes_are_not(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "_loaded", {})
    compiled, compile_one = [], host.compile_unit
    monkeypatch.setattr(
        host, "compile_unit", lambda unit, *rest: compiled.append(unit) or compile_one(unit, *rest)
    )
    device = HostExecutor(threads=1)
    device.tries = False
    for spec in (SPEC, other(), SPEC.with_made_up_tables()):
        for gain in (1.0, 2.0):
            Batch(spec, 2, SPEC.make_params(gain=gain), device).reset(0)
    assert len(compiled) == 1
    Batch(SPEC, 2, SPEC.make_params(places=8), device)
    assert len(compiled) == 2


def test_what_is_compiled_anew_gets_the_tables_of_now():
    batch = Batch(SPEC, 5, PARAMS, "cpu")
    batch.reset(0)
    batch.rollout(20)
    assert batch.exchange(other(), PARAMS)
    batch.rollout(20)
    states, changed = batch.get_state()["state"], other().table_arrays(PARAMS)["height"]
    seen = batch.get_observations()[0]["walker"][..., :6]
    assert (states["at"] == 3).any() and changed[3, 1, 1] != TABLES["height"][3, 1, 1]
    assert np.array_equal(seen, changed[states["at"]].reshape(5, 3, 6))


# ---- what an author gives ------------------------------------------------------------------------


def test_arrays_are_copied_rounded_once_and_cannot_be_written():
    mine = np.asfortranarray(SPEC.tables(PARAMS)["height"])
    spec = given(height=mine)
    arrays = spec.table_arrays(PARAMS)
    mine[...] = 0
    assert (
        np.array_equal(arrays["height"], TABLES["height"]) and arrays["height"].flags.c_contiguous
    )
    assert {a.dtype.str[1:] for a in arrays.values()} == {"f4", "i4", "u1"} and arrays[
        "level"
    ] == np.float32(0.1)
    for array in arrays.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_numbers_too_small_for_a_kernel_are_0_for_the_reference_too():
    height = np.full((7, 2, 3), 1e-39)
    height[0] = -1e-46, 1e-37, 2e-38
    assert (given(height=height).table_arrays(PARAMS)["height"] != 0).sum() == 4


NAN = np.full((7, 2, 3), np.nan)
BEYOND = np.full(7, 2**31)


@pytest.mark.parametrize(("changed", "words"), [
    ({"height": np.zeros((7, 6))},
    r"'height' has dtype .* and shape \(7, 6\), expected 'f4' and \(7, 2, 3\)"),
    ({"height": NAN}, r"table 'height' holds nan at \[0, 0, 0\], one of 42 values that are not finite in float32. Correct"),
    ({"height": np.where(np.arange(3) == 1, np.inf, np.zeros((7, 2, 3)))},
    r"holds inf at \[0, 0, 1\], one of 14 values"),
    ({"next": np.zeros((7, 2))}, r"table 'next' has dtype float64 and shape \(7, 2\), expected 'u1'"),
    ({"code": BEYOND}, r"table 'code' holds 2147483648 at \[0\], one of 7 values that are not finite in int32"),
    ({"height": None}, "that table_fields declares: height, next, code, level"),
    ({"hieght": np.zeros(3)}, "'hieght'"),
])  # fmt: skip
def test_wrong_tables_are_refused_by_name_before_anything_is_made(changed, words):
    with pytest.raises(SpecError, match=f"^atlas: {words}|{words}"):
        Batch(given(**changed), 2, PARAMS, "cpu")


def test_a_table_may_hold_what_is_not_finite_if_it_is_declared():
    fields = tuple(replace(t, finite=False) for t in SPEC.table_fields(PARAMS))
    arrays = replace(given(height=NAN), table_fields=lambda p: fields).table_arrays(PARAMS)
    assert np.isnan(arrays["height"]).all()


@pytest.mark.parametrize(("make", "words"), [
    (lambda: Table("a", (0,)), "shape = 0"),
    (lambda: fields_of(Table("a", ())), "expected a tuple or a list"),
    (lambda: Table("a", (2**15, 2**15)), "4,294,967,296 bytes, expected at most 2,147,483,647"),
    (lambda: Table("a", (2,), low=2.0), r"high = 1.0 is out of range, expected 2.0"),
    (lambda: replace(SPEC, tables=None),
    r"table_fields declares tables, but tables\(params\), which .* is missing"),
    (lambda: fields_of(("a",)), r"table_fields\(params\)\[0\] = 'a' is a str, expected a cupydrive"),
    (lambda: fields_of((Table("a", ()), Table("a", (3,)))), "has the name 'a' twice"),
    (lambda: replace(SPEC, groups=lambda p: [replace(g, name="table") for g in SPEC.groups(p)]).make_params(),
     r"kernels reserve the name env\.table"),
])  # fmt: skip
def test_wrong_descriptions_of_tables_are_refused(make, words):
    with pytest.raises(SpecError, match=words):
        make()


@pytest.mark.parametrize(("old", "new", "words"), [
    ("env.table.level()", "env.table.levle()", "levle"),
    ("env.table.level()", "env.table.height(0, 1)", "env.table.height(0, 1)"),
    ("    auto row", "    env.table.level[0] = 1.0f; auto row", "env.table.level[0] = 1.0f"),
])  # fmt: skip
def test_a_kernel_that_uses_tables_wrongly_does_not_compile(old, new, words):
    with pytest.raises(CompileError) as caught:
        HostExecutor().load(replace(SPEC, kernel=SPEC.kernel.replace(old, new)), PARAMS)
    assert "<kernel of atlas>:" in str(caught.value) and words in str(caught.value)


def test_a_kernel_that_reads_tables_of_an_environment_without_them_does_not_compile():
    spec = replace(
        SPEC,
        table_fields=None,
        tables=None,
        heuristic=None,
        reference=cd.Reference(),
        display=cd.Display(),
    )
    with pytest.raises(CompileError, match=r"<kernel of atlas>:8: .*'table'"):
        HostExecutor().load(spec, PARAMS)


def fields_of(fields):
    """Make parameters of an environment whose table_fields returns ``fields``."""
    return replace(SPEC, table_fields=lambda p: fields).make_params()


def test_without_table_fields_shapes_and_types_are_those_of_the_arrays():
    spec = replace(SPEC, table_fields=None)
    found, want = ({t.name: t for t in of.declared_tables(PARAMS)} for of in (spec, SPEC))
    assert [(t.name, t.shape, t.dtype) for t in found.values()] == [
        (t.name, t.shape, t.dtype) for t in want.values()
    ]
    assert (found["next"].low, found["next"].high) == (TABLES["next"].min(), TABLES["next"].max())
    assert assemble(spec, PARAMS, Layout()).text == assemble(SPEC, PARAMS, Layout()).text
    assert spec.table_digests(PARAMS) == SPEC.table_digests(PARAMS)


def test_functions_get_the_tables_last_and_their_callers_leave_them_out():
    seen = {}

    def heuristic(p, obs, group, table):
        seen[type(obs)] = table.height
        return ((obs[..., 6] > table.height[0, 1, 0]),)

    spec = replace(SPEC, heuristic=heuristic)
    states = spec.reference.sample_states(PARAMS, np.random.default_rng(0), 4)
    obs = spec.reference.observe(PARAMS, states, None).obs["walker"]
    ours, theirs = (spec.heuristic(PARAMS, x, "walker")[0] for x in (obs, torch.from_numpy(obs)))
    assert seen[np.ndarray] is spec.table_arrays(PARAMS)["height"]
    assert torch.equal(seen[torch.Tensor], torch.tensor(TABLES["height"]))
    assert np.array_equal(ours, theirs.numpy())
    kept = seen[torch.Tensor]
    spec.heuristic(PARAMS, torch.from_numpy(obs), "walker")
    assert seen[torch.Tensor] is kept  # a CUDA graph keeps its address
    canvas = Canvas(64, 64)
    spec.display.draw(canvas, PARAMS, states[:1], 0)
    # A spec made from this one binds its own tables, and the function is that which its author
    # wrote.
    made = spec.with_made_up_tables()
    made.heuristic(PARAMS, obs, "walker")
    assert (
        seen[np.ndarray] is made.table_arrays(PARAMS)["height"]
        and made.heuristic.of_author is heuristic
    )


def test_made_up_tables_fill_the_declared_range_and_never_change():
    fields = (
        Table("a", (100, 50), low=-3.0, high=5.0),
        Table("b", (4000,), "i4", -1.5, 3),
        Table("c", (2, 2)),
    )
    spec = replace(SPEC, table_fields=lambda p: fields)
    made, again, more = (made_up_tables(fields, seed) for seed in (0, 0, 1))
    a, b = made["a"], made["b"]
    assert a.shape == (100, 50) and a.min() >= -3 and a.max() < 5
    assert abs(a.mean() - 1) < 0.1 and abs(a.std() - 8 / np.sqrt(12)) < 0.05
    assert np.array_equal(np.unique(b), [-1, 0, 1, 2, 3]) and np.bincount(b + 1).min() > 700
    assert all(
        np.array_equal(made[name], again[name]) and not np.array_equal(made[name], more[name])
        for name in made
    )
    words = np.frombuffer(hashlib.shake_256(b"c 0").digest(16), "<u4")
    assert made["c"].ravel().tolist() == [int(word) / 2**32 for word in words]
    assert spec.with_made_up_tables().table_arrays(PARAMS)["b"].dtype == np.int32
