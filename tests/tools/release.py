"""Builds wheel and sdist into dist/, and tries each as a stranger would: installed in an empty
environment, in an empty folder.

    python tests/tools/release.py [--torch torch==2.13.0]

It builds what is committed, and refuses a tree that has changes, or a version of which CHANGELOG.md
says nothing. Nothing is uploaded. $TORCH_INDEX, the URL of a package index, is used for torch
alone: a build for the CPU is far smaller. --torch: which.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
TRIED = (
    ["info"],
    ["check", "cartpole", "--agent-steps", "2000"],
    ["train", "cartpole", "--steps", "20000", "--out", "runs/cartpole"],
    ["evaluate", "runs/cartpole", "--episodes", "10"],
    ["new", "my_env"],
    ["check", "my_env.py", "--agent-steps", "2000"],
)


class NotReady(Exception):
    """Why nothing is built; what to do."""


def require_ready(changes, changelog, version):
    """Refuse a tree with ``changes`` (lines of `git status --porcelain`), or a version without its
    part of the change log.

    Raises:
        NotReady: With the reason.
    """
    if changes.strip():
        raise NotReady(
            f"{len(changes.splitlines())} files differ from the last commit: commit them, or put them aside"
        )
    if f"## {version}" not in changelog:
        raise NotReady(
            f"CHANGELOG.md has no heading `## {version}`, the version of pyproject.toml: say there what is new"
        )


def plan(artefact, venv, torch, index):
    """Return the commands that install a file and torch in a new ``venv``, and those that then try
    the package.
    """
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    install = [
        [sys.executable, "-m", "venv", str(venv)],
        [*pip, *(["--index-url", index] if index else []), torch],
        [*pip, torch, str(artefact)],
    ]
    return install, [[str(venv / "bin" / "cupydrive"), *words] for words in TRIED]


def run(command, folder, environment=None):
    """Run a command in a folder and show it; raise ``CalledProcessError`` if it fails."""
    print("+", *command, flush=True)
    subprocess.run(command, cwd=folder, env=environment, check=True)


def main():
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", default="torch==2.13.0")
    torch = parser.parse_args().torch
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    changes = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    try:
        require_ready(changes, (ROOT / "CHANGELOG.md").read_text(), version)
        shutil.rmtree(DIST, ignore_errors=True)
        run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT)],
            ROOT,
        )
        # What a checkout would lend, or another installation, is out of sight.
        bare = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        for artefact in sorted(DIST.iterdir()):
            with tempfile.TemporaryDirectory(prefix="cupydrive-release-") as folder:
                venv, elsewhere = Path(folder) / "venv", Path(folder) / "elsewhere"
                elsewhere.mkdir()
                for commands in plan(artefact, venv, torch, os.environ.get("TORCH_INDEX")):
                    for command in commands:
                        run(command, elsewhere, bare)
    except NotReady as error:
        print(f"release.py: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"release.py: exit code {error.returncode} of the command above", file=sys.stderr)
        return 1
    for artefact in sorted(DIST.iterdir()):
        print(f"{hashlib.sha256(artefact.read_bytes()).hexdigest()}  {artefact.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
