"""Scaffolding of a new environment: a small working example with comments that explain it."""

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
    """Write ``NAME.py`` and ``NAME.cu`` of a new environment and return their paths.

    Args:
        name: Name of the environment: a Python identifier that differs from the package's
            environments.
        folder: Existing folder. Defaults to the current one.

    Raises:
        CupydriveError: If the name is invalid, the folder does not exist or is not writable, or a
            file with this name exists. Nothing is overwritten.
    """
    name, where = checked_str("new", "name", name), checked_path("new", "folder", folder)
    _check_name(name)
    if not os.path.isdir(where):
        raise CupydriveError(f"folder {where} does not exist. Create it: mkdir -p {where}")
    paths = [where / f"{name}.py", where / f"{name}.cu"]
    for path in paths:
        if os.path.lexists(path):
            raise CupydriveError(
                f"{path} exists and is not overwritten. Choose another name, or move it away"
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
            f"{name!r} is the name of a packaged environment or of a Python module that your file "
            f"would shadow. Choose another name, such as 'my_{name}'"
        )
