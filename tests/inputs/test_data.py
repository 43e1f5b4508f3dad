"""Published data is found or fetched whole, once, and with the right SHA-256; otherwise there is
one clear error.
"""

import os
import re
import subprocess
import sys

import pytest
from conftest import python_path
from serving import CONTENT, MADE_UP, serve

from cupydrive.cli.main import main
from cupydrive.envs.rice_n_data import C
from cupydrive.errors import CupydriveWarning, DataError, MissingDataError
from cupydrive.inputs.data import files
from cupydrive.inputs.sources import sources

FETCH = """
from serving import MADE_UP
from cupydrive.inputs import data
data.source = lambda name: MADE_UP
print(sum(path.stat().st_size for path in data.files("made_up").values()))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return the cache folder of the made-up data set, the only one that there is; nothing is in
    it.
    """
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("CUPYDRIVE_DATA", raising=False)
    monkeypatch.setattr("cupydrive.inputs.sources.sources", lambda: {"made_up": MADE_UP})
    return tmp_path / "cache" / "data" / "made_up-00000000"


@pytest.fixture
def server(monkeypatch):
    yield from serve(monkeypatch)


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def write(folder, content):
    """Write files into a new folder and return it."""
    folder.mkdir(parents=True)
    for name, what in content.items():
        (folder / name).write_bytes(what)
    return folder


def test_every_data_set_states_its_commit_licence_and_authors():
    assert tuple(sources()) == ("catalysis", "rice_n", "covid_economy")
    assert len(sources()["rice_n"].files) == C  # one for each region
    for one in sources().values():
        assert re.fullmatch("[0-9a-f]{40}", one.commit) and one.repository in one.page
        assert one.license.startswith("BSD-3-Clause, Copyright (c) 20") and one.about and one.credit
        # a plain name stays in the folder that it is written to
        for file, sha256 in one.files.items():
            assert re.fullmatch(r"\w+\.(npy|npz|json|yml)", file) and re.fullmatch(
                "[0-9a-f]{64}", sha256
            )


def test_files_are_fetched_once(server, cache):
    found = files("made_up")
    assert found == {name: cache / name for name in CONTENT} and content(cache) == CONTENT
    assert server.paths == [f"/who/what/{'0' * 40}/some/folder/{name}" for name in CONTENT]
    assert files("made_up") == found and len(server.paths) == 3
    assert cache.parents[1].stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("served", [None, b"other bytes", b""])
def test_a_failed_fetch_is_one_error_with_the_fixes_and_can_be_repeated(served, server, cache):
    good, server.content = server.content, server.content | {"b.json": served}
    with pytest.raises(MissingDataError, match=r"404|SHA256 hash") as raised:
        files("made_up")
    for part in (
        "made_up needs b.json",
        server.address,
        str(cache),
        "cupydrive data --fetch",
        "CUPYDRIVE_DATA=DIR",
    ):
        assert part in str(raised.value)
    assert "\n" not in str(raised.value) and set(content(cache)) == {"a.npy"}
    server.content = good
    files("made_up")
    assert content(cache) == CONTENT and len(server.paths) == 4


@pytest.mark.parametrize("served", [None, b"other bytes"])
def test_a_password_in_an_address_is_not_shown(served, server, monkeypatch):
    monkeypatch.setenv("CUPYDRIVE_DATA_URL", server.address.replace("//", "//somebody:p@ss%6Dord@"))
    server.content["a.npy"] = served
    with pytest.raises(MissingDataError) as raised:
        files("made_up")
    assert server.address in str(raised.value) and not re.search("somebody|p@ss", str(raised.value))


def test_a_file_of_the_cache_that_cannot_be_read_is_named(cache):
    (cache / "a.npy").mkdir(parents=True)
    with pytest.raises(DataError, match=f"{cache}/a.npy cannot be read .*Is a directory"):
        files("made_up")


def test_without_a_network_is_one_error(monkeypatch):
    for url in ("http://127.0.0.1:9", "file:///etc"):
        monkeypatch.setenv("CUPYDRIVE_DATA_URL", url)
        with pytest.raises(MissingDataError, match=r"refused|No connection adapters"):
            files("made_up")


def test_a_cache_that_cannot_be_written_is_named(server, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        MissingDataError,
        match=f"written to {tmp_path}/file/cache.*CUPYDRIVE_CACHE.*Not a directory",
    ):
        files("made_up")


def test_a_damaged_file_in_the_cache_is_fetched_again_with_a_warning(server, cache):
    files("made_up")["b.json"].write_bytes(b"[]")
    with pytest.warns(CupydriveWarning, match="b.json was damaged and is fetched again"):
        files("made_up")
    assert content(cache) == CONTENT and len(server.paths) == 4


def test_several_processes_may_fetch_at_once(server, cache):
    options = {
        "env": os.environ | {"PYTHONPATH": python_path()},
        "stdout": subprocess.PIPE,
        "text": True,
    }
    processes = [subprocess.Popen([sys.executable, "-c", FETCH], **options) for _ in range(3)]
    size = sum(map(len, CONTENT.values()))
    assert [process.communicate(timeout=60)[0] for process in processes] == [f"{size}\n"] * 3
    assert content(cache) == CONTENT


def test_a_folder_of_ones_own_comes_before_the_cache_and_its_files_may_lie_below(
    server, cache, tmp_path, monkeypatch
):
    right = write(tmp_path / "own" / "z", {name: CONTENT[name] for name in ("a.npy", "b.json")})
    write(tmp_path / "own" / "y", {"a.npy": b"another file of this name"})
    monkeypatch.setenv("CUPYDRIVE_DATA", str(tmp_path / "own"))
    found = files("made_up")
    assert found == {"a.npy": right / "a.npy", "b.json": right / "b.json", "c.yml": cache / "c.yml"}
    assert len(server.paths) == 1


def test_a_folder_of_ones_own_with_a_damaged_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("CUPYDRIVE_DATA", str(write(tmp_path / "own", CONTENT | {"a.npy": b"cut"})))
    with pytest.raises(
        DataError, match=rf"own/a.npy is damaged .*{MADE_UP.files['a.npy']}.*{MADE_UP.page}"
    ):
        files("made_up")
    monkeypatch.setenv("CUPYDRIVE_DATA", "/no/such/folder")
    with pytest.raises(DataError, match="CUPYDRIVE_DATA = /no/such/folder is not a folder"):
        files("made_up")


def test_the_command_shows_what_is_here_and_fetches_the_rest(server, cache, capsys):
    assert main(["data"]) == 2
    out, err = capsys.readouterr()
    assert (
        "files    0 of 3\n" in out and "missing  a.npy, b.json, c.yml" in out and not server.paths
    )
    assert (
        err.count("\n") == 1
        and "files of made_up are missing. Download them with cupydrive data --fetch" in err
    )
    assert main(["data", "--fetch"]) == 0
    out = capsys.readouterr().out
    assert f"files    3 of 3, in {cache}" in out and MADE_UP.license in out and MADE_UP.page in out
    (cache / "a.npy").write_bytes(b"a")
    assert (
        main(["data", "--name", "made_up"]) == 2
        and f"damaged  {cache / 'a.npy'}" in capsys.readouterr().out
    )
    assert (
        main(["data", "--name", "mad_up"]) == 2
        and "Did you mean 'made_up'?" in capsys.readouterr().err
    )
