"""Installs cupydrive from this checkout into the Python that runs this, and those of its
dependencies that are missing there.

    python notebooks/install.py [EXTRA ...]

The first cell of each lesson calls ``install_if_missing``, for Colab and Kaggle. What is installed
already stays as it is: pip gets all of it as constraints, so that it can neither raise nor lower a
version. EXTRA: names of extras in pyproject.toml, whose packages are needed too.
"""

import importlib
import importlib.util
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent


class InstallError(Exception):
    """Nothing is installed; the message says what to change."""


def wanted(project, extras):
    """Return the requirements of a project's table in pyproject.toml with some of its extras.

    Raises:
        InstallError: If there is no such extra.
    """
    known = project["optional-dependencies"]
    if odd := [name for name in extras if name not in known]:
        raise InstallError(f"no extra {', '.join(odd)}; there are {', '.join(known)}")
    texts = [*project["dependencies"], *(text for name in extras for text in known[name])]
    return [r for r in map(Requirement, texts) if r.marker is None or r.marker.evaluate()]


def lacking(requirements, installed):
    """Return those requirements that no installed distribution is for.

    Args:
        requirements: ``Requirement`` objects.
        installed: Version by normalised name.

    Raises:
        InstallError: If one is installed, but too old: to replace it could break what else uses it.
    """
    found = [r for r in requirements if canonicalize_name(r.name) not in installed]
    for r in requirements:
        version = installed.get(canonicalize_name(r.name))
        if version and not r.specifier.contains(version, prereleases=True):
            raise InstallError(
                f"{r.name} {version} is installed here, and cupydrive needs {r.specifier}. It is "
                f"left as it is, since other packages may need it: if they do not, pip install "
                f"--upgrade {r.name!r}, and begin anew"
            )
    return found


def versions(distributions):
    """Return the version of each distribution by normalised name; what has no valid one cannot be a
    constraint.
    """
    found = {}
    for one in distributions:
        name, version = one.metadata["Name"], one.version
        try:
            if name and re.fullmatch(r"[\w.-]+", name) and version and Version(version):
                found.setdefault(
                    canonicalize_name(name), version
                )  # the first on the path is the one that is imported
        except InvalidVersion:
            continue
    return found


def plan(lacks, constraints):
    """Return the pip commands: one for dependencies, if any are missing, and one for cupydrive
    itself.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    first = [[*pip, "-c", str(constraints), *map(str, lacks)]] if lacks else []
    return [*first, [*pip, "--no-deps", str(ROOT)]]


def install(extras):
    """Install cupydrive and what it lacks here.

    Args:
        extras: Names of extras in pyproject.toml.

    Raises:
        InstallError: If there is no such extra, a dependency is too old, or pip fails.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = versions(metadata.distributions())
    lacks = lacking(wanted(project, extras), installed)
    print(
        f"installing {', '.join(['cupydrive', *(r.name for r in lacks)])}; all else stays as it is",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(
            "".join(f"{name}=={version}\n" for name, version in installed.items())
        )
        for command in plan(lacks, constraints):
            if code := subprocess.run(command).returncode:
                raise InstallError(f"exit code {code} of: {' '.join(command)}")


def install_if_missing(extras):
    """Install cupydrive if this Python lacks it, so that it can be imported at once; arguments and
    errors are ``install``'s.

    A mere folder of that name, such as a checkout in the working directory, can be imported too; it
    has no origin.
    """
    if getattr(importlib.util.find_spec("cupydrive"), "origin", None):
        return
    install(extras)
    sys.modules.pop("cupydrive", None)  # the folder, where somebody has imported it
    importlib.invalidate_caches()


def main(extras):
    """Install; return the exit code."""
    try:
        install(extras)
    except InstallError as error:
        print(f"install.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
