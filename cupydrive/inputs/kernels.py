"""The files of one kernel: its .cu, and the headers of its author's own that it includes from
beside it.
"""

import os
import re
from pathlib import Path

from cupydrive.errors import SpecError

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)


def read_kernel(path: Path) -> dict[Path, bytes]:
    """Return the bytes of a kernel and of the headers beside it by path, the kernel first.

    Each name is looked up beside the file that includes it. Other names are of the package.
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
    # whatever encoding the locale has
    return Path(os.path.normpath(path.parent / os.fsdecode(name.encode())))


def printable(path: Path | str) -> str:
    """Return a path as text that can be printed and saved, whatever its bytes are."""
    return "".join(
        c if c.isprintable() else "?" for c in os.fsencode(path).decode(errors="replace")
    )


def as_text(path: Path, content: bytes) -> str:
    """Return the text of a kernel's file.

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
