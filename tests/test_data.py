"""Tables from upstream: found by name and SHA-256, fetched from a server of this machine, and never taken half or wrong.

Some tests read the files themselves, which lie beside a checkout or not; the others serve made-up ones.
"""

import hashlib
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from conftest import DATA, python_path

from cupydrive.cli.main import main
from cupydrive.errors import CupydriveWarning, DataError, MissingDataError
from cupydrive.inputs import data, download
from cupydrive.inputs.data import files
from cupydrive.inputs.sources import UPSTREAM, File, Source, search, sources

NAMES = ("catalysis", "rice_n", "covid_economy")
CONTENT = {"a.npy": b"a" * 300_000, "b.json": b"{}", "c.yml": b"c: 1\n"}  # of the made-up data set
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the files of upstream in {DATA}")


class Server(http.server.ThreadingHTTPServer):
    """Serves files by name, on this machine alone; a name in ``odd`` has a function that answers instead."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.odd, self.asked, self.paths = {}, {}, [], []
        self.handle_error = lambda request, address: None  # who asked has gone
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        self.server.paths.append(self.path)
        self.server.odd.get(name, send)(self, self.server.content.get(name))

    def log_message(self, *arguments):
        pass


def send(it, content, length=None, code=200, **headers):
    """Answer with ``content``; ``length`` is said to be its size, by default what it is."""
    if content is None:
        return it.send_error(404)
    it.send_response(code)
    it.send_header("Content-Length", str(len(content) if length is None else length))
    for key, value in headers.items():
        it.send_header(key, value)
    it.end_headers()
    return it.wfile.write(content)


@pytest.fixture
def server(monkeypatch):
    """A server of no files, which is asked in place of upstream."""
    with Server() as it:
        threading.Thread(target=it.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("CUPYDRIVE_DATA_URL", it.address)
        yield it
        it.shutdown()


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """An empty cache, no folder of one's own, no proxy; returns the folder of fetched files."""
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("CUPYDRIVE_DATA", raising=False)
    monkeypatch.setattr(download, "_silent", {})
    return tmp_path / "cache" / "data"


@pytest.fixture
def made_up(monkeypatch, server):
    """A data set "made_up" of three files, which the server has."""
    listed = tuple(File(name, len(c), hashlib.sha256(c).hexdigest()) for name, c in CONTENT.items())
    one = Source("made_up", "letters", "who/what", "0" * 40, "some/folder", "BSD-3-Clause, nobody", "nobody", listed)
    monkeypatch.setattr("cupydrive.inputs.sources.sources", lambda: {"made_up": one})
    server.content = dict(CONTENT)
    return one


def all_in(folder):
    """Return every file below a folder, by its path there."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def copied(folder, content):
    """Write files into a new folder and return it."""
    folder.mkdir(parents=True)
    for name, what in content.items():
        (folder / name).write_bytes(what)
    return folder


KEPT = {f"made_up-00000000/{name}": content for name, content in CONTENT.items()}

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


@pytest.mark.parametrize("named", ["", None, "/no/such/folder", "~nobody/x"])
def test_no_folder_or_an_empty_name_is_as_if_there_were_none(named, made_up, server, kept, monkeypatch):
    if named is not None:
        monkeypatch.setenv("CUPYDRIVE_DATA", named)
    if named:
        with pytest.warns(CupydriveWarning, match=f"CUPYDRIVE_DATA = {named} lacks .*No such file"):
            files("made_up")
    else:
        files("made_up")
    assert all_in(kept) == KEPT


# ---- fetching ----------------------------------------------------------------------------------------------------------


@needs_data
def test_all_are_fetched_once_from_a_server_and_are_upstreams_bytes(server, kept):
    for name in NAMES:
        there = search(DATA, sources()[name].files).paths
        server.content, server.asked, server.paths = {n: path.read_bytes() for n, path in there.items()}, [], []
        found = files(name)
        one = sources()[name]
        assert server.paths == [f"/{one.repository}/{one.commit}/{one.folder}/{n}" for n in found]
        assert {n: path.read_bytes() for n, path in found.items()} == server.content
        assert files(name) == found and len(server.asked) == len(found)
        assert all(path.parent == kept / f"{name}-{one.commit[:8]}" for path in found.values())
    assert len(all_in(kept.parent)) == 36 and kept.parent.stat().st_mode & 0o777 == 0o700


def close_half_way(it, content):
    send(it, content[:150_000], length=len(content))


def be_silent(it, content):
    it.server.over = threading.Event()
    it.server.over.wait(5)


def stop_half_way(it, content):
    close_half_way(it, content)
    be_silent(it, content)


def no_end(it, content):
    it.send_response(200)
    it.end_headers()
    it.wfile.write(content + b"more")


def trickle(it, content):
    it.send_response(200)
    it.end_headers()
    for _ in range(100):
        it.wfile.write(b"a")
        time.sleep(0.02)


ODD = {
    "404": (lambda it, c: it.send_error(404), "HTTP 404 Not Found"),
    "500": (lambda it, c: it.send_error(500, "so\x1b[31msorry"), r"HTTP 500 so \[31msorry"),
    "interrupted": (close_half_way, "it ended after 150,000 of 300,000 bytes"),
    "wrong": (
        lambda it, c: send(it, b"b" * 300_000),
        "what came has SHA-256 [0-9a-f]{64}, and it must have [0-9a-f]{64}",
    ),
    "too large": (lambda it, c: send(it, c * 9), "the server has a file of 2700000 bytes there; it must have 300,000"),
    "without end": (no_end, "more than 300,000 bytes came"),
    "no HTTP": (lambda it, c: it.wfile.write(b"SSH-2.0\r\n"), "SSH-2.0"),
    "nothing": (lambda it, c: None, "end closed connection without response"),
    "silent": (be_silent, "nothing came for 0.2 s"),
    "silent half way": (stop_half_way, "nothing came for 0.2 s"),
    "slow": (trickle, "bytes came within 0.5 s"),
    "elsewhere": (
        lambda it, c: send(it, b"", code=302, Location="http://localhost:9/a.npy"),
        "the server points to http://localhost:9/a.npy, another host",
    ),
    "a file": (
        lambda it, c: send(it, b"", code=301, Location="file:///etc/passwd"),
        "file:///etc/passwd. is not allowed",
    ),
    "in circles": (lambda it, c: send(it, b"", code=301, Location="a.npy"), "HTTP 301 .*infinite loop"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_fetch_that_fails_is_one_clear_error_leaves_nothing_and_can_be_repeated(
    case, made_up, server, kept, tmp_path, monkeypatch
):
    server.odd["a.npy"], words = ODD[case]
    monkeypatch.setattr(download, "SILENCE", 0.2)
    monkeypatch.setattr(download, "SLOWEST", 1e6 if case == "slow" else 1e3)
    with pytest.raises(MissingDataError, match=words) as caught:
        files("made_up")
    if hasattr(server, "over"):
        server.over.set()
    address = f"{server.address}/who/what/{'0' * 40}/some/folder/a.npy"
    for part in (f"fetching {address} failed", "a.npy, b.json and c.yml", str(kept / "made_up-00000000")):
        assert part in str(caught.value)
    for part in ("cupydrive data --fetch --name made_up", "cupydrive data DIR", "CUPYDRIVE_DATA=DIR", made_up.page):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value) and not all_in(tmp_path)
    server.odd.clear()
    download._silent.clear()
    files("made_up")
    assert all_in(kept) == KEPT


def test_without_a_network_is_one_clear_error(made_up, server, monkeypatch):
    monkeypatch.setenv("CUPYDRIVE_DATA_URL", "http://127.0.0.1:9")
    with pytest.raises(MissingDataError, match=r"made_up needs a.npy, .*some/folder/a.npy failed: Connection refused"):
        files("made_up")


def test_a_silent_host_is_not_waited_for_again_at_once(made_up, server, monkeypatch):
    server.odd["a.npy"] = be_silent
    monkeypatch.setattr(download, "SILENCE", 0.2)
    for words in ("nothing came for 0.2 s", "a moment ago"):
        with pytest.raises(MissingDataError, match=words):
            files("made_up")
    assert server.asked == ["a.npy"]
    server.over.set()


def test_a_later_call_asks_only_for_what_is_missing(made_up, server, kept):
    server.odd["c.yml"] = lambda it, c: send(it, c[:2], length=len(c))
    with pytest.raises(MissingDataError, match=r"needs c.yml, not in the cache .*2 of 5 bytes"):
        files("made_up")
    server.odd, server.asked = {}, []
    files("made_up")
    assert server.asked == ["c.yml"] and all_in(kept) == KEPT


def test_another_address_of_the_same_host_is_followed(made_up, server, kept):
    server.content["moved.npy"] = server.content["a.npy"]
    server.odd["a.npy"] = lambda it, c: send(it, b"", code=302, Location="/elsewhere/moved.npy")
    files("made_up")
    assert all_in(kept) == KEPT


@pytest.mark.parametrize("spoil", ["cut", "altered", "link", "folder"])
def test_a_damaged_file_in_the_cache_is_fetched_again_with_one_line(spoil, made_up, server, kept, tmp_path):
    path, other = files("made_up")["b.json"], tmp_path / "other"
    path.unlink()
    if spoil == "folder":
        path.mkdir()
    elif spoil == "link":  # what it points to is somebody's, and is not written to
        other.write_bytes(b"mine")
        path.symlink_to(other)
    else:
        path.write_bytes(b"{" if spoil == "cut" else b"[]")
    good, server.content, server.asked = server.content, {}, []
    with pytest.raises(MissingDataError, match=r"needs b.json, .*\(.*b.json there is damaged\)"):
        files("made_up")
    server.content = good
    if spoil == "folder":  # may hold files of somebody
        with pytest.raises(MissingDataError, match=r"b.json cannot be written \(Is a directory\); set CUPYDRIVE_CACHE"):
            files("made_up")
        return
    with pytest.warns(CupydriveWarning, match="b.json in the cache was damaged and fetched again") as told:
        files("made_up")
    assert len(told) == 1 and server.asked == ["b.json"] * 2 and all_in(kept) == KEPT
    assert spoil != "link" or other.read_bytes() == b"mine"


def test_a_cache_that_cannot_be_written_is_named(made_up, server, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        MissingDataError, match=r"a.npy cannot be written \(Not a directory\); set CUPYDRIVE_CACHE to a"
    ):
        files("made_up")
    monkeypatch.setenv("CUPYDRIVE_CACHE", " ")
    with pytest.raises(DataError, match="CUPYDRIVE_CACHE = ' ' names no folder"):
        files("made_up")


# ---- processes ---------------------------------------------------------------------------------------------------------

FETCH = "from cupydrive.inputs.data import files; print(len(files('catalysis')), flush=True)"


def begin():
    """Begin a process that fetches the tables of `catalysis` as this one would."""
    environment = os.environ | {"PYTHONPATH": python_path()}
    return subprocess.Popen(
        [sys.executable, "-c", FETCH], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def real(server):
    """The server has the tables of `catalysis`; returns them by their paths in the cache."""
    paths = search(DATA, sources()["catalysis"].files).paths
    server.content = {name: path.read_bytes() for name, path in paths.items()}
    return {f"catalysis-bac017eb/{name}": content for name, content in server.content.items()}


@needs_data
def test_a_process_that_is_killed_leaves_nothing_wrong(server, real, kept):
    reached = threading.Event()

    def stop(it, content):
        send(it, content[:200_000], length=len(content))
        reached.set()
        be_silent(it, content)

    server.odd["en_array_2atom_diffusion.npy"] = stop  # the second
    process = begin()
    assert reached.wait(60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    server.over.set()
    first = "catalysis-bac017eb/en_array.npy"
    assert all_in(kept) == {first: real[first]}
    server.odd, server.asked = {}, []
    files("catalysis")
    assert all_in(kept) == real and len(server.asked) == 4


@needs_data
def test_two_processes_at_once_do_not_disturb_each_other(server, real, kept):
    both = threading.Barrier(2)

    def meet(it, content):
        both.wait(60)  # neither has its file before the other asks for it, too
        send(it, content)

    server.odd = dict.fromkeys(server.content, meet)
    processes = [begin(), begin()]
    done = [process.communicate(timeout=60) for process in processes]
    assert [out for out, _ in done] == ["5\n", "5\n"], done
    assert all(re.fullmatch("fetching catalysis from 127.0.0.1:.*: 5 files, 925 kB\n", err) for _, err in done), done
    assert sorted(server.asked) == sorted([*server.content] * 2) and all_in(kept) == real


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
