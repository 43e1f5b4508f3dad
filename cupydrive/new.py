"""Writes the two files of a new environment: a small one that works, to be changed."""

import os
import tempfile
from pathlib import Path

from cupydrive import envs
from cupydrive.errors import SpecError

TEMPLATES = Path(__file__).resolve().parent / "templates"


def new(name, folder="."):
    """Write ``NAME.py`` and ``NAME.cu`` into ``folder`` and return their paths.

    Raises:
        SpecError: If the name is not an identifier or is taken, or a file exists.
    """
    if not name.isidentifier():
        raise SpecError(f"environment name {name!r} must be a Python identifier, such as 'my_env'")
    if name in envs.names():
        raise SpecError(f"there is an environment {name!r} already; choose another name")
    folder = Path(folder)
    if not folder.is_dir():
        raise SpecError(f"there is no folder {folder}; make it first")
    paths = [folder / f"{name}{suffix}" for suffix in (".py", ".cu")]
    for path in paths:
        if path.exists():
            raise SpecError(f"{path} exists; choose another name, or remove it")
    for path in paths:
        text = (TEMPLATES / f"my_env{path.suffix}").read_text().replace("my_env", name)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=path.name)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    return paths
