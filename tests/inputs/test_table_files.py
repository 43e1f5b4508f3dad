"""Files say which tables they were made with, and take no others; data that is not here is missed
in one line.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from atlas import KERNEL, PYTHON, SPEC, other

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.magic import cuda_env
from cupydrive.cli.main import main
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import MissingDataError, ParameterError, RenderError, SpecError, TrainingError

PARAMS = SPEC.make_params()


# ---- files ---------------------------------------------------------------------------------------


def test_a_snapshot_goes_back_to_the_same_tables_alone(tmp_path):
    env = cd.make(SPEC, 3, device="cpu")
    env.reset(seed=1)
    env.snapshot().save(tmp_path / "s.npz")
    kept = cd.Snapshot.load(tmp_path / "s.npz")
    assert kept.tables == SPEC.table_digests(PARAMS) and set(map(len, kept.tables.values())) == {64}
    cd.make(SPEC, 3, device="cpu").restore(kept)
    changed = cd.make(other(), 3, device="cpu")
    changed.reset(seed=2)
    before = changed.snapshot()
    words = r"snapshot was made with another table 'height' of atlas: got SHA-256 .*, expected SHA-256 .*\. It needs the same data"
    with pytest.raises(ParameterError, match=words):
        changed.restore(kept)
    assert np.array_equal(changed.snapshot().state, before.state)
    with pytest.raises(
        ParameterError, match=r"another table 'height' of atlas: got none, expected SHA-256"
    ):
        changed.restore(replace(kept, tables=None))


def test_a_recording_is_shown_with_the_same_tables_alone(tmp_path):
    recording = cd.evaluate(SPEC, {"walker": cd.RandomPolicy()}, episodes=3, device="cpu").recording
    recording.save(tmp_path / "r.npz")
    again = cd.Recording.load(tmp_path / "r.npz", env=SPEC)
    assert again.tables == SPEC.table_digests(PARAMS)
    assert np.array_equal([*again.moments()][-1].states, [*recording.moments()][-1].states)
    words = r"r\.npz does not fit the present version of 'atlas': .*another table 'height' .*Record the episodes again"
    with pytest.raises(RenderError, match=words):
        cd.Recording.load(tmp_path / "r.npz", env=other())


@pytest.mark.full
def test_a_run_goes_on_with_the_same_tables_alone(tmp_path):
    settings = cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)
    cd.train(
        SPEC, settings, steps=16, num_envs=4, device="cpu", out=tmp_path / "run", progress=False
    )
    assert cd.load(tmp_path / "run", env=SPEC).as_json()["tables"] == SPEC.table_digests(PARAMS)
    with pytest.raises(
        TrainingError,
        match=r"config.json does not fit the present version of 'atlas': .*another table 'height'",
    ):
        cd.load(tmp_path / "run", env=other())


# ---- data that is not here -----------------------------------------------------------------------


def missing(params):
    raise MissingDataError("it needs heights.npy; get it by: fetch heights")


@pytest.fixture
def bare(monkeypatch):
    """Register the environment without its data; there is no other than cartpole beside it."""
    monkeypatch.setattr(envs, "names", lambda: ["atlas", "cartpole"])
    return envs.register(replace(SPEC, tables=missing))


def test_a_kernel_compiles_without_the_data(bare):
    text = assemble(bare, bare.make_params(), Layout()).text
    assert text == assemble(SPEC, PARAMS, Layout()).text
    with pytest.raises(MissingDataError, match="fetch heights"):
        cd.make("atlas", device="cpu")
    assert cd.make(bare.with_made_up_tables(), device="cpu").reset(seed=0)


@pytest.mark.full
def test_all_leaves_out_what_has_no_data_and_says_so(bare, capsys):
    said = "omitted, because their data is missing and could not be downloaded (see `cupydrive data`): atlas"
    assert main(["check", "all", "--agent-steps", "100", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert (
        "PASS  cartpole" in out
        and "atlas" not in out
        and [line for line in err.splitlines() if said in line]
    )
    lines = []
    assert [spec.name for spec in envs.with_data(lines.append)] == ["cartpole"] and lines == [said]
    assert main(["envs"]) == 0
    assert re.search("^atlas .*3 walker", capsys.readouterr().out, re.M)  # which needs no data


@pytest.mark.full
@pytest.mark.parametrize(
    "command", ["check atlas", "train atlas --steps 1", "bench rollout --env atlas"]
)
def test_an_environment_without_its_data_that_is_named_is_an_error(bare, command, capsys):
    assert main([*command.split(), "--device", "cpu"]) == 2
    assert "it needs heights.npy; get it by: fetch heights" in capsys.readouterr().err


# ---- environments of a user's own ----------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder with an environment whose heights are a file beside it."""
    np.save(tmp_path / "height.npy", SPEC.tables(PARAMS)["height"])
    read = 'np.load(__import__("pathlib").Path(__file__).with_name("height.npy"))'
    text = re.sub(r"height = rng.*\n    height.*\n", f"height = {read}\n", PYTHON)
    assert read in text
    (tmp_path / "atlas.py").write_text(text)
    (tmp_path / "atlas.cu").write_text(KERNEL)
    return tmp_path


@pytest.mark.full
def test_the_tables_of_a_file_are_read_anew_when_it_is_reloaded(folder):
    def seen(env):
        return env.set_state(at=np.full((1, 3), 3))[0][0, 0, :6].numpy().copy()

    env = cd.make(folder / "atlas.py", device="cpu")
    env.reset(seed=0)
    before, digests = seen(env), env.spec.table_digests(env.params)
    assert np.array_equal(before, SPEC.table_arrays(PARAMS)["height"][3].ravel())
    np.save(folder / "height.npy", np.zeros(3))
    with pytest.raises(SpecError, match="table 'height' has dtype float64"):
        env.reload()
    assert np.array_equal(seen(env), before)  # it goes on as it was
    np.save(folder / "height.npy", SPEC.tables(PARAMS)["height"] / 2)
    assert env.reload()
    assert np.array_equal(seen(env), before / 2)
    now = env.spec.table_digests(env.params)
    assert {name for name in now if now[name] != digests[name]} == {"height"}


@pytest.mark.full
def test_a_cell_of_a_notebook_is_a_kernel_with_tables(capsys):
    cuda_env("atlas", KERNEL, {"SPEC": replace(SPEC, kernel=None)})
    assert "atlas: compiled for" in capsys.readouterr().out
    env = cd.make("atlas", 2, device="cpu")
    env.reset(seed=0)
    assert env.spec.table_digests(env.params) == SPEC.table_digests(PARAMS)
