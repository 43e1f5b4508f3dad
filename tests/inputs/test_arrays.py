"""Arrays from files of others: right shapes and numbers, or one error that names the file; nothing in a file executes."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
from conftest import DATA

from cupydrive.errors import DataError
from cupydrive.inputs.arrays import read_json, read_npy, read_npz, require_finite
from cupydrive.inputs.sources import search, sources

TABLE = np.arange(24.0).reshape(2, 3, 4)


class Bomb:
    """Writes a file when it is unpickled."""

    def __reduce__(self):
        return open, ("bomb", "w")


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u1", ">f8"])
def test_what_numpy_writes_is_read(dtype, tmp_path):
    for array in (TABLE.astype(dtype), np.asfortranarray(TABLE.astype(dtype))):
        np.save(tmp_path / "a.npy", array)
        np.savez_compressed(tmp_path / "a.npz", one=array, two=array[0], other=np.array("text"))
        read = read_npy(tmp_path / "a.npy", (2, 3, 4))
        both = read_npz(tmp_path / "a.npz", {"two": (3, 4), "one": (2, 3, 4)})
        assert list(both) == ["two", "one"]
        for found, wanted in ((read, array), (both["one"], array), (both["two"], array[0])):
            assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


WHOLE = npy(TABLE)
SPOILED = {
    "cut": (WHOLE[:-1], "is damaged"),
    "half": (WHOLE[:50], "is damaged"),
    "empty": (b"", "is damaged"),
    "text": (b"404: Not Found", "is damaged"),
    "too long": (WHOLE * 40, "more than 4,288 bytes"),
    "shape": (npy(TABLE[0]), r"shape \(3, 4\); it must have \(2, 3, 4\)"),
    "vast": (WHOLE.replace(b"(2, 3, 4)", b"(2, 3, 4" + b"0" * 12 + b")", 1), "is damaged|shape"),
    "objects": (npy(np.array([Bomb()])), "allow_pickle"),
    "complex": (npy(TABLE.astype(complex)), "complex128, which are no numbers"),
    "flags": (npy(TABLE > 0), "bool, which are no numbers"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_spoiled_array_is_one_error_with_file_and_fix(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, words = SPOILED[case]
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        read_npy(tmp_path / "a.npy", (2, 3, 4))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("one.npy", content)
    with pytest.raises(DataError) as also:
        read_npz(tmp_path / "a.npz", {"one": (2, 3, 4)})
    for name, error in (("a.npy", caught), ("a.npz", also)):
        assert f"Remove {tmp_path / name} or put the right one there" in str(error.value)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "bomb").exists()


def test_a_spoiled_archive_is_one_error(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, one=TABLE, large=np.zeros(10**6))
    whole = path.read_bytes()
    with pytest.raises(DataError, match="has no array 'two'; it has one, large"):
        read_npz(path, {"two": ()})
    with pytest.raises(DataError, match=r"large has 8,000,128 bytes, too many for shape \(2,\)"):
        read_npz(path, {"large": (2,)})
    for spoiled in (whole[:-30], whole[: len(whole) // 2], b"PK", b"", whole[:60] + b"\xff" * 20 + whole[80:]):
        path.write_bytes(spoiled)
        with pytest.raises(DataError, match=r"a\.npz cannot be read, or is damaged"):
            read_npz(path, {"one": (2, 3, 4)})
    path.unlink()
    os.mkfifo(path)
    for read in (read_npy, read_npz, read_json):
        with pytest.raises(DataError, match="a pipe or a device"):
            read(path, {})
        with pytest.raises(DataError, match="No such file"):
            read(tmp_path / "none", {})


def test_entries_of_a_json_object_are_arrays(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"one": [[1, 2], [3, 4.5]], "two": 7, "text": "x"}))
    found = read_json(path, {"one": (2, 2), "two": ()})
    assert found["one"].dtype == found["two"].dtype == np.float64
    assert np.array_equal(found["one"], [[1, 2], [3, 4.5]]) and found["two"] == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"one": [1, 2]}', r"one has shape \(2,\); it must have \(3,\)"),
        ('{"one": [1, 2, [3]]}', "no numbers"),
        ('{"one": [1, "2", 3]}', "no numbers"),
        ('{"one": [true, true, true]}', "no numbers"),
        ('{"one": [1, null, 3]}', "no numbers"),
        ('{"one": null}', "no numbers"),
        ('{"one": [1, NaN, Infinity]}', r"one\[1\] = nan, one of 2 numbers that are not finite"),
        ('{"one": [1, 2, ' + "9" * 400 + "]}", "no numbers|not finite"),
        ('{"two": 1}', "has no entry 'one'"),
        ('{"one": [1, 2, 3', "is damaged"),
        ("[1]", "holds no object"),
        ("[" * 10**5, "is damaged"),
        ("\ud800", "is damaged"),
        (" " * 2**20 + "{}", "more than 1,048,576 bytes"),
    ],
)
def test_a_spoiled_json_file_is_one_error(text, words, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(DataError, match=words) as caught:
        read_json(path, {"one": (3,)})
    assert str(path) in str(caught.value) and len(str(caught.value)) < 600


def test_numbers_that_are_not_finite_are_named():
    assert require_finite("x.npz", "infected", TABLE) is TABLE
    spoiled = TABLE.copy()
    spoiled[1, 0, 2], spoiled[1, 2, 3] = np.nan, -np.inf
    with pytest.raises(DataError, match=r"x.npz: infected\[1, 0, 2\] = nan, one of 2 numbers that are not finite"):
        require_finite("x.npz", "infected", spoiled)
    with pytest.raises(DataError, match=r"x\.npz: infected = inf"):
        require_finite("x.npz", "infected", np.array(np.inf))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the files of upstream in {DATA}")
def test_upstreams_files_are_read():
    """What NumPy and json read, by another way."""
    paths = {name: path for one in sources().values() for name, path in search(DATA, one.files).paths.items()}
    for name in ("en_array.npy", "en_array_2atom_diffusion.npy", "en_array_diffusion_relax.npy"):
        wanted = np.load(paths[name])
        assert np.array_equal(read_npy(paths[name], wanted.shape), wanted)
    with np.load(paths["real_world_data.npz"]) as file:
        wanted = {name: file[name] for name in ("policy", "infected", "subsidy")}
    found = read_npz(paths["real_world_data.npz"], {name: array.shape for name, array in wanted.items()})
    assert all(np.array_equal(found[name], array, equal_nan=True) for name, array in wanted.items())
    fitted = json.loads(paths["fitted_params.json"].read_text())
    found = read_json(paths["fitted_params.json"], {"BETA_SLOPES": (51,), "FILTER_LEN": (), "CONV_LAMBDAS": (5,)})
    assert all(np.array_equal(array, fitted[name]) for name, array in found.items())
