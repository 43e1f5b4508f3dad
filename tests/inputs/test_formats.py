"""Data files are data: damage is seen, sizes are checked before memory is taken, old files load, nothing executes."""

import hashlib
import io
import json
import random
import shutil
import struct
import tracemalloc
import zipfile
from pathlib import Path

import damage
import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.main import main
from cupydrive.errors import (
    CupydriveError,
    CupydriveWarning,
    RenderError,
    SnapshotError,
    TrainingError,
    UnknownEnvironmentError,
)
from cupydrive.executors.host import HostExecutor
from cupydrive.inputs.archive import packed, seal

OLD = Path(__file__).resolve().parents[1] / "data" / "format1"  # written by the version before files carried a digest
FORMAT_2 = OLD.with_name("format2")
FORMATS = ("recording", "snapshot", "checkpoint", "config", "metrics")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return damage.write_files(tmp_path_factory.mktemp("files"))


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", FORMATS)
def test_damage_is_seen_or_changes_nothing(name, files):
    """``python tests/tools/damage.py`` damages more of them."""
    seen, broken = damage.damage(*files[name], 40, random.Random(name))
    assert broken == [] and seen["refused"] > 10


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", ["recording", "snapshot", "checkpoint"])
def test_every_flipped_bit_of_an_array_is_seen(name, files):
    path, look, load, _ = files[name]
    seen, broken = damage.damage(path, look, load, (damage.flip_bit,), 40, random.Random(name))
    assert broken == [] and set(seen) <= {"refused", "equal"}  # equal: in a date or a name that nothing reads


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", ["recording", "snapshot", "checkpoint"])
def test_a_digest_cannot_be_taken_out(name, files):
    path, look, load, _ = files[name]
    good = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(good)) as archive, zipfile.ZipFile(path, "w") as less:
        for info in archive.infolist():
            if not info.filename.endswith("sha256"):
                less.writestr(info, archive.read(info))
    with pytest.raises(CupydriveError, match="its SHA-256 is missing"):
        look(path, load)
    path.write_bytes(good)


@pytest.mark.quick(3)
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("state.npy", "entry 'state.npy' is there twice"),
        ("../state.npy", "leads outside of the archive"),
        ("/tmp/state.npy", "leads outside of the archive"),
        ("a/", "or is a folder"),
        ("odd.npy", "which is no array of a snapshot"),
        ("odd.txt", "has no entry 'odd.txt.npy'"),
    ],
)
def test_entries_that_no_writer_writes_are_refused(entry, words, files, tmp_path):
    """Also where the digest is right."""
    content = io.BytesIO()
    with zipfile.ZipFile(files["snapshot"][0]) as archive, zipfile.ZipFile(content, "w") as more:
        for name in archive.namelist():
            if name != "sha256":
                more.writestr(name, archive.read(name))
        more.writestr(entry, archive.read("state.npy"))
    seal(content)
    (tmp_path / "odd.npz").write_bytes(content.getvalue())
    with pytest.raises(SnapshotError, match=words):
        cd.Snapshot.load(tmp_path / "odd.npz")


ORIGIN = {"python": "/\x1b[2J.py", "python_sha256": None, "kernel": None, "kernel_sha256": None}


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_envs": -5}, "num_envs is -5; it must be an int from 1 to 2147483647"),
        ({"num_envs": True}, "num_envs is True; it must be an int"),
        ({"num_envs": 10**6}, "is not of the 1000000 environments of its config.json"),
        ({"seed": 2**63}, "seed is 9223372036854775808; it must be an int from 0 to"),
        ({"total": 0.5}, "total is 0.5; it must be a number of env-steps or null"),
        ({"cupydrive": "\x1b[2J"}, "cupydrive is .*it must be printable text"),
        ({"origin": ORIGIN}, "paths and SHA-256"),
        ({"params": {"gravity": float("nan")}}, "NaN is no number here"),
        ({"params": {"gravity": -1.0}}, "does not fit 'cartpole' as it is now: .*gravity = -1.0 is out of range"),
        ({"policies": {}}, "policies is {}; it must be an object of 1 to"),
        ({"policies": {"cart": {"kind": "ppo", "hiden": [4]}}}, "ppo has no setting 'hiden'"),
        ({"policies": {"cart": {"kind": "pp0"}}}, "of an unknown kind 'pp0'"),
        ({"policies": {"cart": {"kind": "ppo", "policy": "Net"}}}, "it must be null or 'custom'"),
        ({"odd": 1}, "has an entry 'odd', which its format does not know"),
        ({"format": 99}, "has format 99, from a newer version; this one reads up to 2. Install the newer version"),
        ('{"format": 2, "format": 2}', "an entry is there twice"),
        ("[" * 10**5, "it is no JSON"),
        ('{"format": 2', "it is no JSON"),
        ('{"format": 1' + "0" * 4400 + "}", "it is no JSON"),
        (" " * 2**24, "has more than 8,388,608 bytes"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(changed, words, files, tmp_path):
    shutil.copytree(files["config"][0].parent, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(changed if isinstance(changed, str) else json.dumps(config | changed))
    with pytest.raises(TrainingError, match=words) as raised:
        cd.load(tmp_path / "run")
    assert str(tmp_path / "run") in str(raised.value)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("length", lambda a: a * 0, r"episodes of 0 to 0 steps; they must have 1 to 20"),
        ("length", lambda a: a + 100, r"they must have 1 to 20"),
        ("length", lambda a: a.astype(np.int64), r"length is int64 \(2,\); it must be int32"),
        ("action.tagger", lambda a: a + 5, r"holds a choice of \d; the heads have \(5,\)"),
        (
            "action.tagger",
            lambda a: a[:, :1],
            r"action.tagger is uint8 \(20, 1, 2, 1\); it must be uint8 \(20, 2, 2, 1\)",
        ),
        (
            "action.runner",
            lambda a: None,
            "it holds action.tagger, length; it must hold length, action.tagger, action.runner",
        ),
        ("odd", lambda a: np.zeros(1), "it must hold length"),
    ],
)
def test_what_is_wrong_with_a_recordings_arrays_is_named(name, change, words, files, tmp_path):
    with np.load(files["recording"][0]) as kept:
        arrays = {key: kept[key] for key in kept.files if key != "sha256"}
    arrays["length"][:] = 20  # whatever was played
    arrays |= {key: np.resize(a, (20, *a.shape[1:])) for key, a in arrays.items() if key.startswith("action")}
    arrays[name] = change(arrays.get(name))
    (tmp_path / "odd.npz").write_bytes(packed({key: a for key, a in arrays.items() if a is not None}))
    with pytest.raises(RenderError, match=words):
        cd.Recording.load(tmp_path / "odd.npz")


# ---- old files -------------------------------------------------------------------------------------------------------


@pytest.mark.optimised
def test_an_old_recording_loads_with_one_line_and_gives_its_bits():
    with pytest.warns(CupydriveWarning, match=r"episodes.npz is of an older format without a SHA-256") as said:
        recording = cd.Recording.load(OLD / "episodes.npz")
    assert len(said) == 1 and recording.checksum is not None
    *_, last = recording.moments()  # which compares the last states with the file's checksum
    assert last.over.all()


def test_an_old_snapshot_loads_with_one_line_and_goes_on():
    with pytest.warns(CupydriveWarning, match="moment.npz is of an older format") as said:
        snapshot = cd.Snapshot.load(OLD / "moment.npz")
    assert len(said) == 1
    with np.load(OLD / "moment.npz") as kept:
        for name, array in snapshot.arrays().items():
            assert array.tobytes() == kept[name].tobytes()
    env, same = (cd.make("tag_grid", 2, device="cpu", grid_length=5, num_taggers=2) for _ in range(2))
    env.restore(snapshot)
    same.reset(seed=1)
    same.rollout(4)
    one, other = env.rollout(6), same.rollout(6)
    assert all(torch.equal(one.obs[name], other.obs[name]) for name in one.obs)


def test_an_old_run_loads_with_one_line_and_goes_on(tmp_path):
    shutil.copytree(OLD / "run", tmp_path / "run")
    with pytest.warns(CupydriveWarning, match=r"\.pt is of an older format") as said:
        run = cd.load(tmp_path / "run")
    assert len(said) == 1 and run.step == 16
    saved = torch.load(next((OLD / "run" / "checkpoints").glob("*.pt")), weights_only=True)["tensors"]
    now = run.snapshot()
    assert set(saved) - set(now) == {"episode_sums"}  # of the metrics, which are kept otherwise since
    assert all(torch.equal(saved[name], now[name]) for name in saved if name in now)
    cd.train(run, steps=8, out=tmp_path / "run", progress=False, keep=1)
    assert cd.load(tmp_path / "run").step == 24  # and no warning: its checkpoint has a digest now


@pytest.mark.optimised
def test_files_of_format_2_load_in_silence_and_go_on_bit_for_bit(tmp_path):
    """Continuous Tag, whose kernel kept in the state what stands in struct Cache since."""
    snapshot = cd.Snapshot.load(FORMAT_2 / "moment.npz")
    env = cd.make("tag_continuous", 3, device="cpu", **snapshot.params)
    env.restore(snapshot)
    seen = env.rollout(40)
    bits = b"".join(array.numpy().tobytes() for part in (seen.obs, seen.reward) for _, array in sorted(part.items()))
    assert hashlib.sha256(bits).hexdigest() == "dd36e33a19d5f4e772647d76d53baf59df34d517f16f06b29c34dc21e8c5f5a0"
    *_, last = cd.Recording.load(FORMAT_2 / "episodes.npz").moments()
    assert last.over.all()
    shutil.copytree(FORMAT_2 / "run", tmp_path / "run")
    run = cd.load(tmp_path / "run")
    saved = torch.load(next((FORMAT_2 / "run" / "checkpoints").glob("*.pt")), weights_only=True)["tensors"]
    now = run.snapshot()
    state = saved.pop("env/state").numpy()
    assert len(state) == len(now["env/state"]) + run.num_envs * run.batch.program.cache_bytes
    for e, row in enumerate(state.reshape(run.num_envs, -1)):
        size = run.batch.state_dtype.itemsize
        assert row[:size].tobytes() == now["env/state"].numpy().reshape(run.num_envs, size)[e].tobytes()
    held = {name for name in now if ".held" in name}  # steps of runners who have left, of which no earlier run knew
    assert held and not any(now[name].any() for name in held)
    assert set(saved) == set(now) - held - {"env/state"} and all(torch.equal(saved[name], now[name]) for name in saved)
    cd.train(run, steps=8, out=tmp_path / "run", progress=False)
    assert cd.load(tmp_path / "run").step == 24


# ---- sizes -----------------------------------------------------------------------------------------------------------


def declaring(content, size):
    """Return a zip file whose directory says that the first entry has ``size`` bytes unpacked."""
    at = content.index(b"PK\x01\x02")
    return content[: at + 24] + struct.pack("<I", size) + content[at + 28 :]


def test_sizes_are_checked_before_anything_is_unpacked(tmp_path, files):
    good = files["snapshot"][0].read_bytes()
    zeros = packed({"about": np.zeros(2**24, np.uint8)})  # 16 MiB of JSON, packed a thousand times smaller
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }".ljust(117) + b"\n"
    lying = io.BytesIO()
    with zipfile.ZipFile(lying, "w") as archive:
        archive.writestr("about.npy", head + header)
    path = tmp_path / "bomb.npz"
    for content, words in (
        (declaring(good, 2**32 - 2), "declares 4,294,967,294 bytes, more than it can hold"),
        (zeros, "has 16,777,344 bytes; at most 8,388,608 make sense"),
        (lying.getvalue(), "about is no array|declares"),
    ):
        path.write_bytes(content)
        for load, error in ((cd.Snapshot.load, SnapshotError), (cd.Recording.load, RenderError)):
            tracemalloc.start()
            with pytest.raises(error, match=words):
                load(path)
            assert tracemalloc.get_traced_memory()[1] < 2**23  # pieces of a MiB, of which the digest is made
            tracemalloc.stop()


def test_an_archive_must_fit_into_memory(monkeypatch, files):
    monkeypatch.setattr(HostExecutor, "free_bytes", lambda self: 1000)
    for name, error in (("snapshot", SnapshotError), ("recording", RenderError)):
        with pytest.raises(error, match=r"declares [\d,]+ bytes unpacked; at most 1,000 can be read here"):
            files[name][2](files[name][0])


# ---- nothing executes ------------------------------------------------------------------------------------------------

TEXT = "from pathlib import Path\nPath('planted').write_text('code ran')\nSPEC = None\n"


def with_env(path, env):
    """Change the environment's name in a recording, its digest included."""
    with np.load(path) as kept:
        arrays = {name: kept[name] for name in kept.files if name != "sha256"}
    about = json.loads(arrays["about"].tobytes()) | {"env": env}
    path.write_bytes(packed(arrays | {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}))


@pytest.mark.quick(3)
@pytest.mark.parametrize("env", ["evil.py", "./evil.py", TEXT, "evil", "cartpole\n", ["cartpole"], None])
def test_names_in_files_are_looked_up_and_never_loaded(env, tmp_path, files, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(TEXT)
    shutil.copy(files["recording"][0], "x.npz")
    shutil.copytree(files["config"][0].parent, "run")
    with_env(Path("x.npz"), env)
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"env": env}))
    for load, path in ((cd.Recording.load, "x.npz"), (cd.Run.load, "run"), (cd.load, "run")):
        with pytest.raises(CupydriveError):
            load(path)
    for command in (["render", "x.npz"], ["render", "run"]):
        assert main([*command, "--out", "x.gif", "--device", "cpu"]) == 2
    assert main(["evaluate", "run", "--device", "cpu"]) == main(["train", "--resume", "--out", "run"]) == 2
    assert not Path("planted").exists() and capsys.readouterr().err.count("cupydrive: ") == 4


def test_known_takes_names_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert envs.known("cartpole") is envs.get("cartpole")
    (tmp_path / "evil.py").write_text(TEXT)
    for name in (str(tmp_path / "evil.py"), TEXT, envs.get("cartpole"), ["cartpole"], None):
        with pytest.raises(UnknownEnvironmentError):
            envs.known(name)


def test_a_run_whose_frozen_policy_is_itself_is_refused(files, tmp_path):
    shutil.copytree(files["config"][0].parent, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    policies = {"cart": {"kind": "frozen", "path": str(tmp_path / "run"), "policy": None, "greedy": False}}
    path.write_text(json.dumps(config | {"policies": policies}))
    with pytest.raises(TrainingError, match="frozen from a run that is frozen from it"):
        cd.evaluate("cartpole", {"cart": cd.Frozen(tmp_path / "run")}, episodes=2, device="cpu")


@pytest.mark.quick(3)
@pytest.mark.parametrize("changed", [{"normalize_obs": True}, {"hidden": [5]}, {"hidden": []}, {"shared_layers": True}])
def test_a_frozen_policy_whose_settings_are_not_its_checkpoints_is_refused(changed, files, tmp_path):
    shutil.copytree(files["config"][0].parent, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["policies"]["cart"] |= changed
    path.write_text(json.dumps(config))
    with pytest.raises(TrainingError, match=str(tmp_path / "run")):
        cd.load(tmp_path / "run")
    frozen = {"cart": cd.Frozen(tmp_path / "run")}
    with pytest.raises(TrainingError, match=str(tmp_path / "run")):
        cd.evaluate("cartpole", frozen, episodes=2, device="cpu")
