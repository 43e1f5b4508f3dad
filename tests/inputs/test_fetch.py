"""Tables are fetched from a server of this machine, as they are from upstream: whole and right, or not at all."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import DATA, python_path
from serving import KEPT, all_in, begin_afresh, make_up, send, serve

from cupydrive.errors import CupydriveWarning, DataError, MissingDataError
from cupydrive.inputs import download
from cupydrive.inputs.data import files
from cupydrive.inputs.sources import search, sources

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


@needs_data
def test_all_are_fetched_once_from_a_server_and_are_upstreams_bytes(server, kept):
    for name in sources():
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


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_one_line_elsewhere(terminal, made_up, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    files("made_up")
    out, err = capsys.readouterr()
    assert out == "" and "fetching made_up from 127.0.0.1:" in err and err.count("\n") == 1
    assert ("300k/300k" in err) is terminal and (": 3 files, 300 kB" in err) is not terminal
    files("made_up")
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_one_error_and_leaves_no_part(made_up, kept):
    """A limit on the size of files stands for the disk: what is written beyond it fails, as on one that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(MissingDataError, match=r"a.npy cannot be written \(File too large\); set CUPYDRIVE_CACHE"):
            files("made_up")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not all_in(kept)


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


@pytest.mark.full
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
