"""Starts that a user gives: every episode of Tag begins there, files keep them, and wrong ones are
refused by name.
"""

import array
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.main import main
from cupydrive.cli.options import parsed
from cupydrive.codegen.agreement import batch_dtype
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import ParameterError, SpecError, TrainingError
from cupydrive.executors import executor
from cupydrive.executors.host import HostExecutor
from cupydrive.inputs.formats import MOST_JSON, ParamsInFile, check_json
from cupydrive.random import RandomStream
from cupydrive.simulation.batch import Batch
from cupydrive.spec import kept_params

SIZES = {
    "tag_grid": {"num_taggers": 3, "grid_length": 9},
    "tag_continuous": {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 4},
}
FIELDS = {
    "x": "starting_location_x",
    "y": "starting_location_y",
    "direction": "starting_directions",
}
STARTS = {
    "tag_grid": {"x": [0, 9, 4, 7], "y": [9, 0, 4, 8]},
    "tag_continuous": {
        "x": [0.0, 20.0, 0.1, 7.25, 3.3], "y": [20.0, 0.0, 0.1, 19.999999, 3.3],
        "direction": [0.0, 6.283185, 0.7, 3.0, 1e-30],
    },
}  # fmt: skip
GIVEN = [
    ("tag_grid", "x"), ("tag_grid", "xy"), ("tag_continuous", ("direction",)),
    ("tag_continuous", ("x", "y", "direction")),
]  # fmt: skip
BUILDS = {
    "fast": HostExecutor,
    "team": lambda: HostExecutor(team_threads=4),
    "bounds": lambda: HostExecutor(debug=True),
    "cuda": lambda: executor("cuda"),
}


def arguments(name, fields, **more):
    """Return the parameters of a small Tag that gives the starts of some fields of its state."""
    return {**SIZES[name], **{FIELDS[f]: STARTS[name][f] for f in fields}, **more}


def cases():
    """Return (environment, fields that are given, build): all fields in every build, some of them
    in the fast one.
    """
    for name, fields in GIVEN:
        for build in BUILDS if len(fields) > 1 else ("fast", "cuda"):
            marks = (
                pytest.mark.gpu
                if build == "cuda"
                else pytest.mark.slow
                if build == "bounds"
                else ()
            )
            yield pytest.param(
                name, fields, build, marks=marks, id=f"{name}-{'+'.join(fields)}-{build}"
            )


# ---- where episodes begin ------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("name", "fields", "build"), list(cases()))
def test_every_episode_of_every_copy_begins_at_the_starts_and_the_rest_is_drawn(
    name, fields, build
):
    spec = envs.get(name)
    params = spec.make_params(**arguments(name, fields, max_episode_steps=3))
    drawn = replace(params, **{FIELDS[f]: () for f in fields})  # the reference without starts
    batch = Batch(spec, 37, params, BUILDS[build](), first_env=5)
    batch.reset(3)
    begun = 0
    for _ in range(8):
        kept = batch.get_state()
        fresh = kept["clock"]["elapsed"] == 0
        begun += fresh.sum()
        stream = RandomStream(3, 5 + np.flatnonzero(fresh), kept["clock"]["episode"][fresh] - 1)
        want, got = spec.reference.reset(drawn, stream), kept["state"][fresh]
        for f in fields:
            want[f] = np.array(STARTS[name][f], want[f].dtype)
        assert all(np.array_equal(got[f], want[f]) for f in want.dtype.names)
        batch.rollout(1)
    assert begun >= 37 * 3  # resets, and autoresets after three steps at most


@pytest.mark.full
@pytest.mark.parametrize("name", SIZES)
def test_from_the_layout_of_a_seed_an_episode_is_that_of_the_seed(name):
    drawn = cd.make(name, 1, device="cpu", **SIZES[name])
    drawn.reset(seed=8)
    layout = {argument: drawn.state[f][0] for f, argument in FIELDS.items() if f in drawn.state}
    given = cd.make(name, 1, device="cpu", **SIZES[name], **layout)
    given.reset(seed=8)
    assert len(layout) == len(STARTS[name])
    want, got = (env.rollout(12) for env in (drawn, given))
    for part in ("obs", "action", "reward", "terminated", "truncated"):
        ours, theirs = (getattr(seen, part) for seen in (got, want))
        pairs = [(ours[g], theirs[g]) for g in ours] if isinstance(ours, dict) else [(ours, theirs)]
        assert all(torch.equal(a, b) for a, b in pairs)
    assert not want.terminated.any()  # one whole episode so far


@pytest.mark.parametrize("turns", [-1.0, -0.25, 0.0, 0.75, 1.0])
def test_directions_are_angles_of_one_turn_and_never_a_whole_one(turns):
    spec, given = (
        envs.get("tag_continuous"),
        np.clip(2 * np.pi * turns + np.array([-1e-9, 0, 1e-9]), -2 * np.pi, 2 * np.pi),
    )
    params = spec.make_params(
        num_taggers=1, num_runners=2, num_other_agents_observed=0, starting_directions=given
    )
    turned = spec.table_arrays(params)["start_direction"]
    assert (turned >= 0).all() and (turned < np.float32(2 * np.pi)).all()
    difference = (turned.astype(np.float64) - given + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(difference).max() < 2.4e-7  # half a unit in the last place of 2 pi


# ---- what is compiled ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
def test_other_starts_are_the_same_program_and_without_any_there_is_nothing_of_them(name):
    spec, fields = envs.get(name), STARTS[name]
    given, other, alone, none = (
        spec.make_params(**made)
        for made in (
            arguments(name, fields),
            {**arguments(name, fields), FIELDS["x"]: STARTS[name]["y"]},
            arguments(name, "y"),
            SIZES[name],
        )
    )
    texts = [assemble(spec, params, Layout()).text for params in (given, other, alone, none)]
    assert texts[0] == texts[1] and len(set(texts)) == 3
    without = assemble(replace(spec, tables=None, reference=cd.Reference()), none, Layout()).text
    assert (
        texts[3] == without and "#define HAS_TABLES 0" in without and "table_names" not in without
    )
    assert spec.about_tables(none) == {} and "table" not in batch_dtype(spec, none).names
    assert hash(given) != hash(other) and given == spec.make_params(**arguments(name, fields))


# ---- what a user gives ---------------------------------------------------------------------------


@pytest.mark.parametrize("given", [
    [0, 9, 4, 7], (0, 9, 4, 7), np.array([0, 9, 4, 7], np.uint8), np.array([0, 9, 4, 7])[::1],
    torch.tensor([0, 9, 4, 7]),
    array.array("q", [0, 9, 4, 7]), [np.int64(0), 9, 4, 7], np.array([0, 9, 4, 7], ">i4"),
    memoryview(bytes([0, 9, 4, 7])),
], ids=lambda given: type(given).__name__)  # fmt: skip
def test_any_numbers_in_a_row_will_do(given):
    params = envs.get("tag_grid").make_params(**SIZES["tag_grid"], starting_location_x=given)
    assert params.starting_location_x == (0, 9, 4, 7) and set(
        map(type, params.starting_location_x)
    ) == {int}


def test_numbers_are_copied_and_kept_as_pythons_own():
    spec, given = (
        envs.get("tag_continuous"),
        torch.tensor([0.1, 2, 3, 4, -0.0], dtype=torch.bfloat16, requires_grad=True),
    )
    params = spec.make_params(**SIZES["tag_continuous"], starting_location_x=given)
    with torch.no_grad():
        given[0] = 7
    assert params.starting_location_x == (0.10009765625, 2.0, 3.0, 4.0, 0.0)
    assert str(params.starting_location_x[4]) == "0.0"  # equal parameters are equal bits
    assert {type(x) for x in params.starting_location_x} == {float}


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("name", "wrong", "words"), [
    ("tag_continuous", {"x": [1, 2, 3]},
    "x has 3 numbers, but there are 5 agents. Pass one for each, or none$"),
    ("tag_continuous", {"x": [1, 2, NAN, 3, 4]}, r"x\[2\] = nan is out of range"),
    ("tag_continuous", {"x": [1, 2, 20.000001, 3, 4]},
    r"x\[2\] = 20.000001 is out of range, expected 0.0 to 20.0"),
    ("tag_continuous", {"direction": [1, 2, 3, 4, 90]},
    r"directions\[4\] = 90 is out of range, expected -6.28.* rad"),
    ("tag_continuous", {"x": b"12345"}, "x = b'12345' is a bytes, expected numbers"),
    ("tag_continuous", {"x": [1, 2, 3, 4, "5"]}, r"x\[4\] = '5' is a str, expected a number"),
    ("tag_continuous", {"x": [[1, 2], [3, 4, 5]]},
    r"x\[0\] = \[1, 2\] is a list, expected a number"),
    ("tag_continuous", {"x": np.zeros(10**5)}, "x has 100,000 numbers, expected at most 65,536"),
    ("tag_grid", {"x": [0, 1, 2, 10]},
    r"x\[3\] = 10 is out of range, expected 0 to 9 cells"),
    ("tag_grid", {"y": np.zeros(4)}, r"y\[0\] = 0.0 is a float, expected an int"),
])  # fmt: skip
def test_wrong_starts_are_refused_by_name_and_nothing_has_changed(name, wrong, words):
    ((field, given),) = wrong.items()
    with pytest.raises(ParameterError, match=f"^{name}: starting_(location_)?{words}"):
        cd.make(name, 2, device="cpu", **SIZES[name], **{FIELDS[field]: given})


@pytest.mark.parametrize(("given", "words"), [
    ({"default": (), "help": "h"}, r"of = None. An array needs default=\(\) and of=float or of=int"),
    ({"default": (1,), "help": "h", "of": int}, r"param\(\(1,\), ...\): got of = "),
    ({"default": [], "help": "h", "of": int},
    r"default = \[\] is a list, expected a float, an int, a bool, a str or \(\)"),
])  # fmt: skip
def test_wrong_descriptions_of_arrays_are_refused(given, words):
    with pytest.raises(SpecError, match=words):
        cd.param(**given)


# ---- files ---------------------------------------------------------------------------------------

GRID = arguments("tag_grid", "xy", max_episode_steps=4)
OTHER = {**GRID, "starting_location_y": [9, 0, 4, 7]}


def test_a_run_goes_on_from_its_starts(tmp_path):
    how = dict(num_envs=4, device="cpu", out=tmp_path / "run", progress=False, backend="torch")
    settings = cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)
    cd.train("tag_grid", settings, steps=16, **how, **GRID)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["params"]["starting_location_x"] == [0, 9, 4, 7]
    run = cd.load(tmp_path / "run")
    assert run.params == envs.get("tag_grid").make_params(**GRID)
    given = {**GRID, "starting_location_y": np.array(GRID["starting_location_y"])}
    assert cd.train("tag_grid", settings, steps=32, resume=True, **how, **given).step == 32
    words = r"starting_location_y: found \[9, 0, 4, 8\], expected \[9, 0, 4, 7\]"
    for other, said in (
        (OTHER, words),
        ({**GRID, "starting_location_y": []}, r"found \[9, 0, 4, 8\], expected None"),
    ):
        with pytest.raises(TrainingError, match=said):
            cd.train("tag_grid", settings, steps=48, resume=True, **how, **other)


def test_snapshots_and_recordings_keep_starts(tmp_path):
    env = cd.make("tag_grid", 3, device="cpu", **GRID)
    env.reset(seed=1)
    env.snapshot().save(tmp_path / "s.npz")
    kept = cd.Snapshot.load(tmp_path / "s.npz")
    assert kept.params["starting_location_x"] == [0, 9, 4, 7]
    again = cd.make(kept.env, 3, device="cpu", **kept.params)
    again.restore(kept)
    want, got = (e.rollout(9).obs["runner"] for e in (env, again))
    assert torch.equal(want, got)
    with pytest.raises(
        ParameterError,
        match=r"has starting_location_y = \[9, 0, 4, 8\], but this environment has \[9, 0, 4, 7\]",
    ):
        cd.make("tag_grid", 3, device="cpu", **OTHER).restore(kept)
    recording = cd.evaluate("tag_grid", episodes=3, device="cpu", **GRID).recording
    recording.save(tmp_path / "r.npz")
    loaded = cd.Recording.load(tmp_path / "r.npz")
    first, *_, last = loaded.moments()
    assert (
        first.states["y"] == GRID["starting_location_y"]
    ).all() and loaded.params == recording.params
    assert np.array_equal(last.states, [*recording.moments()][-1].states)


@pytest.mark.full
def test_the_largest_starts_fit_into_a_file():
    rng, agents = np.random.default_rng(0), 20_000
    spec, places = envs.get("tag_continuous"), rng.uniform(0, 20, (2, agents))
    params = spec.make_params(
        num_taggers=10_000, num_runners=10_000, starting_location_x=places[0],
        starting_location_y=places[1],
        starting_directions=rng.uniform(-6, 6, agents),
    )  # fmt: skip
    text = json.dumps(kept_params(params), indent=1)
    assert len(text) < MOST_JSON / 2
    check_json(json.loads(text), TypeAdapter(ParamsInFile))
    assert spec.make_params(**json.loads(text)) == params


# ---- elsewhere -----------------------------------------------------------------------------------


def test_the_command_line_takes_numbers_between_commas(capsys):
    pairs = ["a=1,2,-3", "b=[1.5, 2]", "c=x,y", "d=4", "e=1,", "f=fixed", "g=True", "h=[64, 64]"]
    pairs += ["i=[[0, 1e-3], [9, 0.0]]", "j=(("]
    wanted = {
        "a": [1, 2, -3],
        "b": [1.5, 2],
        "c": "x,y",
        "d": 4,
        "e": "1,",
        "f": "fixed",
        "g": True,
    }
    assert parsed([pairs]) == wanted | {"h": [64, 64], "i": [[0, 1e-3], [9, 0.0]], "j": "(("}
    command = "evaluate tag_grid --episodes 2 --device cpu --param num_taggers=3 grid_length=9 max_episode_steps=4"
    assert main([*command.split(), "starting_location_x=0,9,4", "starting_location_y=9,0,4,8"]) == 2
    assert "starting_location_x has 3 numbers, but there are 4 agents" in capsys.readouterr().err
    assert (
        main([*command.split(), "starting_location_x=0,9,4,7", "starting_location_y=9,0,4,8"]) == 0
    )
    assert main(["envs", "tag_grid"]) == 0
    assert re.search(
        r"^starting_location_x +none +0 to 1000000 each +cells", capsys.readouterr().out, re.M
    )
