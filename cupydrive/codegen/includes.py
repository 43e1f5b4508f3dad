"""Expansion of includes in a unit, with ``#line`` marks so that compilers name the real line."""

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
# A loop over the agents of one thread of a team, which a backend may rewrite (LOOP_OF_OWN). On a
# GPU it is unrolled, because registers cannot be indexed. The author's own unroll directive takes
# precedence.
_IN_PARENTHESES = r"((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)"
_OWN_LOOP = re.compile(
    rf"(?<!UNROLL )\bfor \(((?:const )?int \w+) : ((?:env\.)?team)\.each\({_IN_PARENTHESES}\)\)"
)

ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.M)


def shown_path(path: Path) -> str:
    """Return a printable path for messages. Paths of the package are relative to it."""
    return printable(
        Path("kernels") / path.relative_to(KERNELS) if path.is_relative_to(KERNELS) else path
    )


def _mark(number: int, shown: str) -> str:
    """Return the ``#line`` directive for line ``number`` of the file ``shown``."""
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
    """Return ``line``, or the text of the file that it includes.

    A file of the package is included once. An author's file is included each time, unless it
    contains ``#pragma once``, because it may hold data or depend on macros.

    Args:
        line: A line of source text.
        texts: Generated texts and the kernel by name, and its author's headers by path.
        files: Lines of each included file by shown name. The function adds to it.
        kernel_name: Name of the kernel in messages.
        file: The author's file that contains the line, or None for a file of the package.
        within: Files that are being included.
    """
    # Fast path for most lines. It matters for the start-up time of compiled programs.
    if "#" not in line:
        return line
    match = INCLUDE.match(line)
    if not match:
        return "" if ONCE.match(line) else line
    name, path = match[1], beside(KERNELS / "kernel", match[1])
    header = None if file is None else beside(file, name)
    # The author's file to include, or None.
    own = file if name == "kernel" else header if header in texts else None
    if name in texts:
        shown, text = kernel_name if name == "kernel" else f"<{name}>", texts[name]
    elif own is not None:
        shown, text = shown_path(own), texts[own]
    elif path.is_file():
        shown, text = shown_path(path), path.read_text(encoding="utf-8")
    else:
        raise SpecError(
            f"{kernel_name if file is None else shown_path(file)}: include file {name!r} not "
            f"found. Put your headers into the folder of the including file. A kernel passed as "
            f"text cannot include your headers. Headers of the package are in {KERNELS}"
        )
    if shown in within or (shown in files and (not own or ONCE.search(text))):
        return ""
    source = text.splitlines()
    files[shown] = source
    out = [_mark(1, shown)]
    for number, inner in enumerate(source, 1):
        if name == "kernel" or own:  # `files` keeps the author's original text
            inner = _OWN_LOOP.sub(r"LOOP_OF_OWN(\1, \2, (\3))", inner)
        pasted = paste(inner, texts, files, kernel_name, own, (*within, shown))
        out.append(pasted)
        if "\n" in pasted:
            out.append(_mark(number + 1, shown))
    return "\n".join(out)
