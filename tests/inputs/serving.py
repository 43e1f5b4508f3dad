"""What tests of fetched tables share: a server of files on this machine, an empty cache, and a made-up data set."""

import hashlib
import http.server
import threading

from cupydrive.inputs import download
from cupydrive.inputs.sources import File, Source

CONTENT = {"a.npy": b"a" * 300_000, "b.json": b"{}", "c.yml": b"c: 1\n"}  # of the made-up data set
KEPT = {f"made_up-00000000/{name}": content for name, content in CONTENT.items()}  # by their paths in the cache


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


def serve(monkeypatch):
    """Yield a server of no files, which is asked in place of upstream."""
    with Server() as it:
        threading.Thread(target=it.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("CUPYDRIVE_DATA_URL", it.address)
        yield it
        it.shutdown()


def begin_afresh(tmp_path, monkeypatch):
    """Have an empty cache, no folder of one's own and no proxy; return the folder of fetched files."""
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("CUPYDRIVE_DATA", raising=False)
    monkeypatch.setattr(download, "_silent", {})
    return tmp_path / "cache" / "data"


def make_up(server, monkeypatch):
    """Have one data set, "made_up", of three files, which the server has; return it."""
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
