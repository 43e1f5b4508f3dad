"""Pastes files into a unit, those of the package once, with ``#line`` marks by which compilers name
the real file and line.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from cupydrive.errors import SpecError
from cupydrive.inputs.kernels import INCLUDE, beside, printable

_package = Path(__file__).resolve().parent.parent
KERNELS = next(
    (p for p in (_package / "kernels", _package.parent / "kernels") if p.is_dir()),
    _package / "kernels",
)
# A loop over the agents of one member of a team, which a backend may write in another way
# (LOOP_OF_OWN): on a GPU it is unrolled, as what one thread keeps in registers has no index. What
# its author says of unrolling counts more.
_IN_PARENTHESES = r"((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)"
_OWN_LOOP = re.compile(
    rf"(?<!UNROLL )\bfor \(((?:const )?int \w+) : ((?:env\.)?team)\.each\({_IN_PARENTHESES}\)\)"
)

ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.M)


def shown_path(path: Path) -> str:
    """Return a path as errors show it: printable, and a path of the package from its folder on."""
    return printable(
        Path("kernels") / path.relative_to(KERNELS) if path.is_relative_to(KERNELS) else path
    )


def _mark(number: int, shown: str) -> str:
    """Return the directive that makes the next line line ``number`` of the file ``shown``."""
    escaped = shown.replace("\\", r"\\").replace('"', r"\"")
    return f'#line {number} "{escaped}"'


def paste(
    line: str,
    texts: Mapping[str | Path, str],
    files: dict[str, list[str]],
    kernel_name: str,
    file: Path | None = None,
    within: tuple[str, ...] = (),
) -> str:
    """Return ``line``, or the text that it includes; its lines are kept in ``files``.

    A file of the package is pasted once, an author's each time, unless it says ``#pragma once``: it
    may hold data, or make of macros what they mean there.

    ``texts`` holds generated texts and the kernel by name, and its author's headers by path.
    ``file`` is the author's file that has the line, or None for a file of the package; ``within``
    are the files that are being pasted.
    """
    # nearly all lines: a program that is compiled already starts in the time that this takes
    if "#" not in line:
        return line
    match = INCLUDE.match(line)
    if not match:
        return "" if ONCE.match(line) else line
    name, path = match[1], beside(KERNELS / "kernel", match[1])
    header = None if file is None else beside(file, name)
    # the author's file that is pasted
    own = file if name == "kernel" else header if header in texts else None
    if name in texts:
        shown, text = kernel_name if name == "kernel" else f"<{name}>", texts[name]
    elif own is not None:
        shown, text = shown_path(own), texts[own]
    elif path.is_file():
        shown, text = shown_path(path), path.read_text(encoding="utf-8")
    else:
        raise SpecError(
            f"{kernel_name if file is None else shown_path(file)}: there is no file to include "
            f"named {name!r}. A header of your own lies beside the file that includes it; a "
            f"kernel that is text has none. The package's lie in {KERNELS}"
        )
    if shown in within or (shown in files and (not own or ONCE.search(text))):
        return ""
    source = text.splitlines()
    files[shown] = source
    out = [_mark(1, shown)]
    for number, inner in enumerate(source, 1):
        if name == "kernel" or own:  # `files` keeps what its author wrote
            inner = _OWN_LOOP.sub(r"LOOP_OF_OWN(\1, \2, (\3))", inner)
        pasted = paste(inner, texts, files, kernel_name, own, (*within, shown))
        out.append(pasted)
        if "\n" in pasted:
            out.append(_mark(number + 1, shown))
    return "\n".join(out)
