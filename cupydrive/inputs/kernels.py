"""The source files of one kernel: its .cu file and the author's headers in the same folder."""

import os
import re
from pathlib import Path

from cupydrive.errors import SpecError

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)


def read_kernel(path: Path) -> dict[Path, bytes]:
    """Return the bytes of a kernel and of the author's headers by path, the kernel first.

    Each name is looked up in the folder of the including file. Other names belong to the package.
    """
    found, waiting = {}, [path]
    while waiting:
        path = waiting.pop(0)
        if path not in found:
            found[path] = path.read_bytes()
            names = INCLUDE.findall(found[path].decode(errors="replace"))
            waiting += [there for name in names if (there := beside(path, name)).is_file()]
    return found


def beside(path: Path, name: str) -> Path:
    """Return the path of the file that ``path`` includes as ``name``."""
    # The name may have any encoding.
    return Path(os.path.normpath(path.parent / os.fsdecode(name.encode())))


def printable(path: Path | str) -> str:
    """Return a path as text that can be printed and saved, with ``?`` for other characters."""
    return "".join(
        c if c.isprintable() else "?" for c in os.fsencode(path).decode(errors="replace")
    )


def as_text(path: Path, content: bytes) -> str:
    """Decode a kernel's file.

    Raises:
        SpecError: If it is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(
            f"{printable(path)}:{line} is not UTF-8: got byte {content[error.start]:#04x}. Save "
            f"the file in the encoding UTF-8"
        ) from None
