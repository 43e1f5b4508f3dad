"""Tables from upstream as they lie on this machine: found by name and SHA-256, never taken half or wrong, and shown.

Some tests read the files themselves, which lie beside a checkout or not; the others made-up ones.
"""

import hashlib
import os
import re
import shutil
import warnings
from pathlib import Path

import pytest
from conftest import DATA
from serving import CONTENT, KEPT, all_in, begin_afresh, copied, make_up, serve

from cupydrive.cli.main import main
from cupydrive.errors import CupydriveWarning, DataError, MissingDataError
from cupydrive.inputs import data
from cupydrive.inputs.data import files
from cupydrive.inputs.sources import UPSTREAM, search, sources

NAMES = ("catalysis", "rice_n", "covid_economy")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the files of upstream in {DATA}")


@pytest.fixture
def server(monkeypatch):
    yield from serve(monkeypatch)


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    return begin_afresh(tmp_path, monkeypatch)


@pytest.fixture
def made_up(server, monkeypatch):
    return make_up(server, monkeypatch)


# ---- what the list of files says ---------------------------------------------------------------------------------------


def test_every_data_set_says_where_it_is_from_and_whose_it_is():
    assert tuple(sources()) == NAMES
    for one in sources().values():
        assert re.fullmatch("[0-9a-f]{40}", one.commit) and re.fullmatch(r"[\w-]+/[\w-]+", one.repository)
        assert one.licence.startswith("BSD-3-Clause, Copyright (c) 20") and one.about and one.credit
        assert [file.name for file in one.files] == sorted(file.name for file in one.files)
        for file in one.files:  # a name is one plain name: it stays in the folder that it is put into
            assert re.fullmatch(r"\w+\.(npy|npz|json|yml)", file.name) and re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert one.kept_at(file).parent.parent == data.cache_folder() and 0 < file.bytes < 5_000_000
    assert all(who in sources()["covid_economy"].credit for who in ("OxCGRT", "JHU CSSE", "Our World in Data", "BLS"))


def test_a_file_has_the_address_of_its_commit(monkeypatch):
    one = sources()["catalysis"]
    path = f"salesforce/warp-drive/{one.commit}/example_envs/rlchemists/en_array/en_array.npy"
    for named, base in (("", UPSTREAM), ("https://mirror.example/of/", "https://mirror.example/of")):
        monkeypatch.setenv("CUPYDRIVE_DATA_URL", named)
        assert one.address(one.files[0]) == f"{base}/{path}"
    assert UPSTREAM == "https://raw.githubusercontent.com" and path.split("/")[2] in one.page
    for wrong in ("file:///etc", "ftp://mirror", "mirror.example", " "):
        monkeypatch.setenv("CUPYDRIVE_DATA_URL", wrong)
        with pytest.raises(DataError, match=f"CUPYDRIVE_DATA_URL = '{wrong}'; it must begin with https://"):
            files("catalysis")


@needs_data
def test_sizes_and_hashes_are_those_of_the_verbatim_copies():
    lines = (DATA / "upstream" / "SHA256SUMS").read_text().split()
    told = {Path(path).name: digest for digest, path in zip(lines[::2], lines[1::2], strict=True)}
    assert told == {file.name: file.sha256 for one in sources().values() for file in one.files}
    for name in NAMES:
        found = search(DATA, sources()[name].files).paths
        assert {file.name: file.bytes for file in sources()[name].files} == {
            n: p.stat().st_size for n, p in found.items()
        }


def test_an_unknown_name_is_an_error_with_the_nearest():
    with pytest.raises(
        DataError, match=r"name = 'catalisis'; it must be 'catalysis', 'rice_n' or .*Did you mean 'cataly"
    ):
        files("catalisis")


# ---- a folder of one's own ---------------------------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", NAMES)
def test_files_are_found_in_a_folder_however_they_lie(name, server, kept, tmp_path, monkeypatch):
    there = search(DATA, sources()[name].files).paths
    flat, nested = tmp_path / "flat", tmp_path / "nested"
    for k, path in enumerate(there.values()):
        for folder in (flat, nested / f"{k % 3}" / f"{k}"):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / path.name)
    for folder in (DATA, flat, nested):
        monkeypatch.setenv("CUPYDRIVE_DATA", str(folder))
        found = files(name)
        assert list(found) == [file.name for file in sources()[name].files]
        assert all(path.is_relative_to(folder) for path in found.values())
        digests = {n: hashlib.sha256(path.read_bytes()).hexdigest() for n, path in found.items()}
        assert digests == {file.name: file.sha256 for file in sources()[name].files}
    assert not server.asked and not kept.exists()


def test_of_several_files_of_one_name_the_one_that_fits_is_taken(made_up, server, tmp_path, monkeypatch):
    folder = copied(tmp_path / "own", {"a.npy": b"short", "b.json": b"[]"})  # nearer than the right ones
    right = copied(folder / "z" / "deep", CONTENT)
    copied(folder / "y", {"a.npy": b"b" * 300_000})
    monkeypatch.setenv("CUPYDRIVE_DATA", str(folder))
    assert files("made_up") == {name: right / name for name in CONTENT} and not server.asked


def test_links_pipes_and_folders_that_lead_nowhere_are_passed_over(made_up, server, tmp_path, monkeypatch):
    store, folder = copied(tmp_path / "store", CONTENT), tmp_path / "own"
    (folder / "a.npy").mkdir(parents=True)  # a folder of such a name
    (folder / "round").symlink_to(folder)
    (folder / "gone").symlink_to(tmp_path / "nothing")
    (folder / "b.json").symlink_to("b.json")
    os.mkfifo(folder / "c.yml")
    (folder / "linked").symlink_to(store)
    monkeypatch.setenv("CUPYDRIVE_DATA", str(folder))
    assert files("made_up") == {name: folder / "linked" / name for name in CONTENT}
    (folder / "linked").unlink()
    server.content = {}
    with pytest.raises(MissingDataError, match=r"own/b.json: Too many levels of symbolic links .*own/c.yml: .*pipe"):
        files("made_up")


def test_a_damaged_file_of_ones_own_is_an_error_and_stays_as_it_is(made_up, server, kept, tmp_path, monkeypatch):
    half = CONTENT["a.npy"][:1000]
    folder = copied(tmp_path / "own", CONTENT | {"a.npy": half})
    before = all_in(folder)
    monkeypatch.setenv("CUPYDRIVE_DATA", str(folder))
    with pytest.raises(DataError) as caught:
        files("made_up")
    words = str(caught.value)
    for part in (
        f"{folder}/a.npy is damaged",
        "1,000 bytes",
        "300,000",
        made_up.files[0].sha256,
        "unset CUPYDRIVE_DATA",
    ):
        assert part in words
    assert hashlib.sha256(half).hexdigest() in words and not isinstance(caught.value, MissingDataError)
    assert all_in(folder) == before and not server.asked and not kept.exists()


def test_what_a_folder_lacks_comes_from_cache_and_network_and_is_said(made_up, server, kept, tmp_path, monkeypatch):
    monkeypatch.setenv("CUPYDRIVE_DATA", str(copied(tmp_path / "own", {"b.json": CONTENT["b.json"]})))
    with pytest.warns(CupydriveWarning, match=f"CUPYDRIVE_DATA = .*own lacks a.npy and c.yml; taken from {kept}"):
        found = files("made_up")
    assert found["b.json"] == tmp_path / "own" / "b.json" and server.asked == ["a.npy", "c.yml"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert files("made_up") == found and server.asked == ["a.npy", "c.yml"]


@pytest.mark.parametrize("named", ["", None, "/no/such/folder", "~no-such-user/x"])
def test_no_folder_or_an_empty_name_is_as_if_there_were_none(named, made_up, server, kept, monkeypatch):
    if named is not None:
        monkeypatch.setenv("CUPYDRIVE_DATA", named)
    if named:
        with pytest.warns(CupydriveWarning, match=f"CUPYDRIVE_DATA = {named} lacks .*No such file"):
            files("made_up")
    else:
        files("made_up")
    assert all_in(kept) == KEPT


# ---- the command -------------------------------------------------------------------------------------------------------


def test_the_command_says_what_is_here_and_whose_it_is(made_up, server, kept, capsys):
    assert main(["data"]) == 2
    out, err = capsys.readouterr()
    assert "files    0 of 3\n" in out and "missing  a.npy, b.json, c.yml" in out and not server.asked
    assert err.count("\n") == 1 and "made_up lacks a.npy, b.json and c.yml. Fetch them: cupydrive data --fetch" in err
    assert main(["data", "--fetch"]) == 0
    assert f"files    3 of 3, in {kept / 'made_up-00000000'}" in capsys.readouterr().out
    (kept / "made_up-00000000" / "a.npy").write_bytes(b"a")
    assert main(["data"]) == 2
    assert f"damaged  {kept / 'made_up-00000000' / 'a.npy'}" in capsys.readouterr().out


@needs_data
def test_the_command_names_licences_and_credits(monkeypatch, capsys):
    monkeypatch.setenv("CUPYDRIVE_DATA", str(DATA))
    assert main(["data"]) == 0
    out = capsys.readouterr().out
    for one in sources().values():
        assert one.name in out and one.licence in out and one.credit in out and one.page in out
    assert main(["data", "--name", "rice_n"]) == 0
    assert "28 of 28" in (out := capsys.readouterr().out) and "catalysis" not in out
    assert main(["data", "--name", "rice"]) == 2
    assert "Did you mean 'rice_n'?" in capsys.readouterr().err


def test_the_command_takes_files_from_a_folder(made_up, server, kept, tmp_path, capsys):
    folder = copied(tmp_path / "in", {"a.npy": CONTENT["a.npy"], "d.npy": b"d"})
    copied(folder / "below", {"b.json": CONTENT["b.json"], "c.yml": b"half"})
    assert main(["data", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert f"took 2 of 3 files of made_up from {folder} into {kept}" in out and "missing  c.yml" in out
    assert f"{folder}/below/c.yml is damaged" in err and made_up.files[2].sha256 in err and err.count("\n") == 1
    assert all_in(kept) == {name: content for name, content in KEPT.items() if "c.yml" not in name}
    (folder / "below" / "c.yml").unlink()
    assert main(["data", str(folder)]) == 2
    assert "made_up lacks c.yml" in capsys.readouterr().err
    (folder / "c.yml").write_bytes(CONTENT["c.yml"])
    assert main(["data", str(folder)]) == 0 and all_in(kept) == KEPT and not server.asked
    assert main(["data", str(kept)]) == 0 and all_in(kept) == KEPT


def test_the_command_takes_what_there_is_and_fetches_the_rest(made_up, server, kept, tmp_path):
    folder = copied(tmp_path / "in", {"a.npy": CONTENT["a.npy"]})
    assert main(["data", str(folder), "--fetch"]) == 0
    assert server.asked == ["b.json", "c.yml"] and all_in(kept) == KEPT


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("empty", "hold no file of a known name (made_up: a.npy, b.json and c.yml)"),
        ("no", "is no folder"),
        ("", "empty"),
    ],
)
def test_a_folder_of_nothing_is_one_line(folder, words, made_up, kept, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    assert main(["data", folder]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and err.count("\n") == 1 and not kept.exists()
