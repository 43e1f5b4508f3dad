"""A server of files on this machine and a made-up data set, shared by tests of fetched data."""

import contextlib
import hashlib
import http.server
import threading
from collections.abc import Iterator

import pytest

from cupydrive.inputs.sources import Source

CONTENT = {"a.npy": b"a" * 300_000, "b.json": b"{}", "c.yml": b"c: 1\n"}  # of the made-up data set
HASHES = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
MADE_UP = Source(
    "made_up", "letters", "who/what", "0" * 40, "some/folder", "BSD-3-Clause, A", "B", HASHES
)


class Server(http.server.ThreadingHTTPServer):
    """Serves ``content``, bytes or an iterator of them by name, and notes the ``paths`` that it was
    asked for.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.paths = dict(CONTENT), []
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        content = self.server.content.get(self.path.rpartition("/")[2])
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if isinstance(content, bytes):
            self.send_header("Content-Length", str(len(content)))
            content = [content]
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for part in content:
                self.wfile.write(part)

    def log_message(self, *arguments):
        pass


def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Yield a server that is asked in place of GitHub."""
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("CUPYDRIVE_DATA_URL", server.address)
        yield server
        server.shutdown()
