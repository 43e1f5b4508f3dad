"""One file from the network: as many bytes as were asked for, within a time, from the host that was asked and from no other."""

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request

from cupydrive.errors import CupydriveError

SILENCE = 10.0  # s to wait for a connection, or for the next bytes
SLOWEST = 10_000.0  # bytes per second, on average and after a first `SILENCE`
PIECE = 2**16  # bytes that are read at once
MOST_WORDS = 200  # letters of what a server or the operating system says
_silent = {}  # when a host was last waited for in vain, by address of its root: later files do not wait again at once


class DownloadError(CupydriveError):
    """A file could not be fetched; whoever asked for it turns this into an error that names file and address."""


def download(address, size, told=lambda count: None):
    """Return the content of a file of known size. What fails leaves nothing behind and can be tried again.

    Args:
        address: Beginning with https://, or http:// where a mirror is named that has no more.
        size: Its bytes; neither more nor fewer are taken.
        told: Called with the number of bytes that have just come.

    Raises:
        DownloadError: If the host cannot be reached, is silent for ``SILENCE`` seconds or sends too slowly, sends an error,
            points to another host, or sends more or fewer bytes.
    """
    host = _origin(address)
    if time.monotonic() - _silent.get(host, -3 * SILENCE) < 3 * SILENCE:
        raise DownloadError(f"nothing came for {SILENCE:g} s a moment ago, and it is not asked again at once")
    try:
        return _download(address, size, told)
    except TimeoutError:
        _silent[host] = time.monotonic()
        raise DownloadError(f"nothing came for {SILENCE:g} s") from None
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(_short(f"HTTP {error.code} {error.reason}")) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            _silent[host] = time.monotonic()
            raise DownloadError(f"no connection within {SILENCE:g} s") from None
        raise DownloadError(_short(getattr(error.reason, "strerror", None) or error.reason)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: of a URL or header that is none
        raise DownloadError(_short(getattr(error, "strerror", None) or error or type(error).__name__)) from None


def _download(address, size, told):
    request = urllib.request.Request(address, headers={"User-Agent": "cupydrive", "Accept-Encoding": "identity"})
    most = SILENCE + size / SLOWEST
    until = time.monotonic() + most
    parts, count = [], 0
    with urllib.request.build_opener(_SameHost).open(request, timeout=SILENCE) as answer:
        says = answer.headers.get("Content-Length", str(size))
        if says != str(size):
            raise DownloadError(_short(f"the server has a file of {says} bytes there; it must have {size:,}"))
        # One more than the size, to see that there are no more.
        while count <= size and (part := answer.read1(min(PIECE, size + 1 - count))):
            parts.append(part)
            count += len(part)
            told(len(part))
            if time.monotonic() > until:
                raise DownloadError(f"only {count:,} of {size:,} bytes came within {most:.1f} s")
    if count != size:
        raise DownloadError(
            f"it ended after {count:,} of {size:,} bytes" if count < size else f"more than {size:,} bytes came"
        )
    return b"".join(parts)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a server to another address of its own, over the same protocol, and to no other."""

    def redirect_request(self, request, answer, code, words, headers, address):
        if _origin(address) != _origin(request.full_url):
            answer.close()
            raise DownloadError(_short(f"the server points to {address}, another host, where no file is taken from"))
        return super().redirect_request(request, answer, code, words, headers, address)


def _origin(address):
    """Return protocol, host and port of an address, as text."""
    parts = urllib.parse.urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _short(words):
    """Return printable text of limited length: a server can say anything."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(words))
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}..."
