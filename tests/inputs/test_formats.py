"""Damage to a data file is detected, a hostile file is one clear error, and nothing in a file
executes.
"""

import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.main import main
from cupydrive.errors import (
    CupydriveError,
    RenderError,
    SnapshotError,
    TrainingError,
    UnregisteredEnvironmentError,
)
from cupydrive.executors.host import HostExecutor
from cupydrive.inputs.archive import pack_npz
from cupydrive.training.runfolder import (
    load_checkpoint,
    pack_checkpoint,
    read_config,
    unpack_checkpoint,
)

GRID = {"grid_length": 5, "num_taggers": 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with one file of each format; tests copy them."""
    folder = tmp_path_factory.mktemp("files")
    env = cd.make("tag_grid", 3, device="cpu", **GRID)
    env.reset(seed=1)
    env.rollout(4)
    env.snapshot().save(folder / "moment.npz")
    players = {"tagger": cd.RandomPolicy(), "runner": cd.RandomPolicy()}
    options = dict(episodes=2, device="cpu", max_episode_steps=20, **GRID)
    cd.evaluate("tag_grid", players, **options).recording.save(folder / "episodes.npz")
    settings = cd.PPO(num_steps=4, hidden=(4,))
    cd.train(
        "cartpole",
        settings,
        num_envs=4,
        steps=64,
        out=folder / "run",
        keep=1,
        device="cpu",
        progress=False,
    )
    return folder


@pytest.fixture
def files(made, tmp_path):
    return shutil.copytree(made, tmp_path / "files")


def rewrite(path, about=None, **arrays):
    """Change entries of a .npz: of its JSON ``about``, and arrays. None removes an array."""
    with np.load(path) as file:
        kept = dict(file)
    changed = json.loads(kept.pop("about").tobytes()) | (about or {})
    path.write_bytes(
        pack_npz(changed, {name: a for name, a in (kept | arrays).items() if a is not None})
    )


def reconfigure(folder, changes):
    """Change entries of a run's config.json as a user would, without its SHA-256."""
    (folder / "config.json").write_text(json.dumps(read_config(folder) | changes))


# ---- damage --------------------------------------------------------------------------------------


def plain(value):
    """Return what a file holds as values that can be compared."""
    if isinstance(value, cd.Recording | cd.Snapshot):
        return plain(vars(value))
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    value = value.numpy() if isinstance(value, torch.Tensor) else value
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


READERS = {
    "recording": ("episodes.npz", cd.Recording.load),
    "snapshot": ("moment.npz", cd.Snapshot.load),
    "checkpoint": ("run/checkpoints/000000000000064.pt", load_checkpoint),
    "configuration": ("run/config.json", lambda path: read_config(path.parent)),
}


EVERY = {"recording": 1, "snapshot": 1, "checkpoint": 5, "configuration": 1}  # byte of a file


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("name", "every"),
    [
        *((name, 8 * n) for name, n in EVERY.items()),
        *(pytest.param(*one, marks=pytest.mark.full) for one in EVERY.items()),
    ],
)
def test_a_damaged_byte_anywhere_is_an_error_or_changes_nothing(name, every, files):
    """One flipped bit, an inverted byte, or the file's end at this byte."""
    path, read = files / READERS[name][0], READERS[name][1]
    good, refused = path.read_bytes(), 0
    want = plain(read(path))
    for at in range(0, len(good), every):
        for new in (bytes([good[at] ^ 1 << at // every % 8]), bytes([good[at] ^ 255]), None):
            path.write_bytes(good[:at] if new is None else good[:at] + new + good[at + 1 :])
            try:
                assert plain(read(path)) == want, f"byte {at} became {new}"
            except CupydriveError as error:
                assert "\n" not in str(error)
                refused += 1
    assert refused > len(good) / every  # at least every cut


@pytest.mark.parametrize("name", ["recording", "snapshot", "checkpoint"])
def test_other_content_with_the_old_checksum_is_detected(name, files):
    path, read = files / READERS[name][0], READERS[name][1]
    with zipfile.ZipFile(path) as archive:
        info = max(archive.infolist(), key=lambda info: info.compress_size)
    content = bytearray(path.read_bytes())
    at = content.index(info.filename.encode()) + len(info.filename) + info.compress_size // 2
    content[at : at + 4] = bytes(4) if content[at : at + 4] != bytes(4) else b"abcd"
    path.write_bytes(content)
    with pytest.raises(
        CupydriveError, match=r"does not match its CRC-32|cannot be unpacked as a zip file"
    ):
        read(path)


def test_a_checkpoint_has_checksums_whatever_torch_is_set_to():
    torch.serialization.set_crc32_options(False)
    try:
        content = pack_checkpoint("cartpole", 1, {"x": torch.arange(3)})
        assert not torch.serialization.get_crc32_options()
    finally:
        torch.serialization.set_crc32_options(True)
    assert unpack_checkpoint(content, content.getbuffer().nbytes)["tensors"]["x"].tolist() == [
        0,
        1,
        2,
    ]


def test_an_edited_configuration_is_read_without_its_hash_only(files):
    path = files / "run" / "config.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(
        TrainingError,
        match=r"SHA-256 mismatch: .*if you have edited it, delete its entry 'sha256'",
    ):
        cd.load(files / "run")
    config = json.loads(path.read_text())
    del config["sha256"]
    path.write_text(json.dumps(config))
    assert cd.load(files / "run").seed == 1


# ---- hostile files -------------------------------------------------------------------------------


class Planted:
    """Unpickling this would make a folder."""

    def __reduce__(self):
        return os.mkdir, ("planted",)


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


STATE = npy(np.zeros(3, [("x", "<f4")]))
ENTRIES = {
    "vast": (
        "state.npy",
        STATE.replace(b"(3,)", b"(1152921504606846976,)"),
        "NumPy cannot read it",
    ),
    "nested": (
        "state.npy",
        STATE.replace(b"'descr': ", b"'descr': " + b"(" * 50),
        "NumPy cannot read it",
    ),
    "twice": ("metrics.npy", STATE, "names an entry twice"),
    "unknown": ("odd.npy", STATE, "unknown array 'odd'"),
    "no array": ("odd.txt", b"text", "its entry 'odd.txt' is not an array"),
    "no JSON": ("about.npy", npy(np.zeros(9, "u1")), "it is not JSON"),
}


def test_a_list_within_itself_in_a_checkpoint_is_refused(files):
    path, endless = files / READERS["checkpoint"][0], []
    endless.append(endless)
    torch.save({"format": 3, "env": "cartpole", "step": 0, "tensors": {"x": endless}}, path)
    with pytest.raises(CupydriveError, match="'x' is not a dense CPU tensor"):
        load_checkpoint(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", ENTRIES)
def test_an_entry_that_no_writer_writes_is_refused(case, files, monkeypatch):
    monkeypatch.chdir(files)
    name, content, words = ENTRIES[case]
    path = files / "moment.npz"
    with zipfile.ZipFile(path) as archive:
        entries = [
            (kept, archive.read(kept))
            for kept in archive.namelist()
            if kept != name or case == "twice"
        ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in [*entries, (name, content)]:
            archive.writestr(*entry)
    with pytest.raises(SnapshotError, match=words) as raised:
        cd.Snapshot.load(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_an_archive_that_does_not_fit_into_memory_is_refused_before_it_is_unpacked(
    monkeypatch, files
):
    monkeypatch.setattr(HostExecutor, "free_bytes", lambda self: 1000)
    for name in ("recording", "snapshot"):
        with pytest.raises(
            CupydriveError, match=r"unpacked size is [\d,]+ bytes, expected at most 1,000"
        ):
            READERS[name][1](files / READERS[name][0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_envs": -5}, "num_envs is -5: input should be greater than or equal to 1"),
        ({"num_envs": True}, "num_envs is True: input should be a valid integer"),
        ({"num_envs": 10**6}, "environments, expected 1000000 as in its config.json"),
        ({"total": 0.5}, "total is 0.5: input should be a valid integer"),
        ({"origin": {"python": None}}, "origin.python_sha256 is .*: field required"),
        ({"params": {"gravity": float("nan")}}, "params.gravity.* is nan: input should be a"),
        (
            {"params": {"gravity": -1.0}},
            "does not fit the present version of 'cartpole': .*gravity = -1.0 is out of range",
        ),
        ({"policies": {"cart": {"kind": "ppo", "hiden": [4]}}}, "ppo has no setting 'hiden'"),
        ({"policies": {"cart": {"kind": "pp0"}}}, "of an unknown kind 'pp0'"),
        ({"odd": 1}, "odd is 1: extra inputs are not permitted"),
        ({"format": 1}, r"its format version is 1, expected 3\. Another version"),
        ({"seed": float("inf")}, "seed is inf: input should be a valid integer"),
        ({"seed": 10**99}, r"seed is 10+\.\.\.0+: input should be less than 9223372036854775808"),
        ("[" * 10**5, "it is not JSON"),
        (" " * 2**24, "has more than 8,388,608 bytes"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(changed, words, files):
    if isinstance(changed, str):
        (files / "run" / "config.json").write_text(changed)
    else:
        reconfigure(files / "run", changed)
    with pytest.raises(TrainingError, match=words) as raised:
        cd.load(files / "run")
    assert str(files / "run") in str(raised.value)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("length", lambda a: a * 0, r"episodes of 0 to 0 steps, expected 1 to 20"),
        ("length", lambda a: a.astype(np.int64), r"length is int64 \(2,\), expected int32"),
        ("action.tagger", lambda a: a + 5, r"holds a choice of \d, but the heads have \(5,\)"),
        (
            "action.tagger",
            lambda a: a[:, :1],
            r"action.tagger is uint8 .*, expected uint8 \(20, 2, 2, 1\)",
        ),
        ("action.runner", lambda a: None, "expected length, action.tagger, action.runner"),
    ],
)
def test_what_is_wrong_with_a_recordings_arrays_is_named(name, change, words, files):
    path = files / "episodes.npz"
    with np.load(path) as file:
        arrays = {
            key: np.resize(a, (20, *a.shape[1:]))
            for key, a in file.items()
            if key.startswith("action")
        }
    arrays["length"] = np.full(2, 20, np.int32)
    rewrite(path, **arrays | {name: change(arrays[name])})
    with pytest.raises(RenderError, match=words):
        cd.Recording.load(path)


@pytest.mark.parametrize("name", ["recording", "snapshot"])
def test_a_file_of_another_version_is_refused(name, files):
    path, read = files / READERS[name][0], READERS[name][1]
    rewrite(path, {"format": 99})
    with pytest.raises(CupydriveError, match=r"format version is 99, expected .*Another version"):
        read(path)


# ---- nothing executes ----------------------------------------------------------------------------

PICKLES = {
    "recording": "NumPy cannot read it .*allow_pickle",
    "snapshot": "NumPy cannot read it .*allow_pickle",
    "checkpoint": "holds other objects than tensors, numbers and strings",
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_in_a_file_is_refused_and_not_loaded(name, files, monkeypatch):
    monkeypatch.chdir(files)
    path, read = Path(READERS[name][0]), READERS[name][1]
    if name == "checkpoint":
        torch.save({"format": 3, "env": "cartpole", "step": 0, "tensors": Planted()}, path)
    else:
        rewrite(path, odd=np.array([Planted()]))
    with pytest.raises(CupydriveError, match=PICKLES[name]) as raised:
        read(path)
    assert "weights_only" not in str(raised.value) and not Path("planted").exists()


TEXT = "from pathlib import Path\nPath('planted').write_text('code ran')\nSPEC = None\n"


@pytest.mark.quick(3)
@pytest.mark.parametrize("env", ["evil.py", "./evil.py", TEXT, "evil", ["cartpole"], None])
def test_names_in_files_are_looked_up_and_never_loaded(env, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    Path("evil.py").write_text(TEXT)
    rewrite(Path("episodes.npz"), {"env": env})
    reconfigure(Path("run"), {"env": env})
    for load, path in ((cd.Recording.load, "episodes.npz"), (cd.Run.load, "run"), (cd.load, "run")):
        with pytest.raises(CupydriveError):
            load(path)
    for command in (["render", "episodes.npz"], ["render", "run"]):
        assert main([*command, "--out", "x.gif", "--device", "cpu"]) == 2
    assert (
        main(["evaluate", "run", "--device", "cpu"])
        == main(["train", "--resume", "--out", "run"])
        == 2
    )
    assert not Path("planted").exists() and capsys.readouterr().err.count("cupydrive: ") == 4


def test_the_name_in_a_file_is_never_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert envs.of_data("a run", "load({})", "cartpole", None) is envs.get("cartpole")
    (tmp_path / "evil.py").write_text(TEXT)
    for name in (str(tmp_path / "evil.py"), TEXT):
        with pytest.raises(UnregisteredEnvironmentError):
            envs.of_data("a run", "load({})", name, None)


def test_a_run_whose_frozen_policy_is_itself_is_refused(files):
    frozen = {"kind": "frozen", "path": str(files / "run"), "policy": None, "greedy": False}
    reconfigure(files / "run", {"policies": {"cart": frozen}})
    with pytest.raises(
        TrainingError, match=r"policy 'cart' was not trained in this run.*Pass FrozenPolicy"
    ):
        cd.evaluate("cartpole", {"cart": cd.FrozenPolicy(files / "run")}, episodes=2, device="cpu")


@pytest.mark.parametrize(
    "changed", [{"normalize_obs": True}, {"hidden": [5]}, {"shared_layers": True}]
)
def test_a_frozen_policy_whose_settings_are_not_its_checkpoints_is_refused(changed, files):
    policies = read_config(files / "run")["policies"]
    reconfigure(files / "run", {"policies": {"cart": policies["cart"] | changed}})
    with pytest.raises(TrainingError, match=str(files / "run")):
        cd.load(files / "run")
    with pytest.raises(TrainingError, match=str(files / "run")):
        cd.evaluate("cartpole", {"cart": cd.FrozenPolicy(files / "run")}, episodes=2, device="cpu")
