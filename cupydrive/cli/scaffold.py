"""Writes the two files of a new environment: a small one that works, and is the tutorial of the
dialect.
"""

import keyword
import os
import sys
from pathlib import Path

from cupydrive import envs
from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import MOST_LETTERS, checked_path, checked_str, shown
from cupydrive.inputs.files import file_errors, write_atomically

TEMPLATES = Path(__file__).resolve().parent / "templates"


def new(name: str, folder: str | os.PathLike = ".") -> tuple[Path, Path]:
    """Write ``NAME.py`` and ``NAME.cu`` of a new environment into ``folder`` and return their
    paths.

    Args:
        name: A Python identifier that no environment of the package has.
        folder: Must exist.

    Raises:
        CupydriveError: If the name cannot be used, the folder does not exist or cannot be written,
            or a file of this name exists; nothing is overwritten.
    """
    name, where = checked_str("new", "name", name), checked_path("new", "folder", folder)
    _check_name(name)
    if not os.path.isdir(where):
        raise CupydriveError(f"there is no folder {where}; make it first: mkdir -p {where}")
    paths = [where / f"{name}.py", where / f"{name}.cu"]
    for path in paths:
        if os.path.lexists(path):
            raise CupydriveError(
                f"{path} exists and is not overwritten; choose another name, or move it away"
            )
    texts = [(TEMPLATES / f"env{path.suffix}.txt").read_text(encoding="utf-8") for path in paths]
    try:
        for path, text in zip(paths, texts, strict=True):
            with file_errors(CupydriveError, f"{path} cannot be written"):
                write_atomically(path, text.replace("ENV_NAME", name).encode())
    except CupydriveError:  # both files or none
        paths[0].unlink(missing_ok=True)
        raise
    return paths[0], paths[1]


def _check_name(name: str) -> None:
    if (
        len(name) > MOST_LETTERS
        or not name.isidentifier()
        or not name.isascii()
        or keyword.iskeyword(name)
    ):
        near = envs.free_name(name.removesuffix(".py").removesuffix(".cu"))
        raise CupydriveError(
            f"environment name {shown(name)} must be a Python identifier, such as {shown(near)}"
        )
    if name in envs.packaged() | sys.stdlib_module_names or envs.installed(name):
        raise CupydriveError(
            f"{name!r} is an environment of the package, or a Python module in whose place "
            f"scripts beside {name}.py would import your file; choose another name, such as "
            f"'my_{name}'"
        )
