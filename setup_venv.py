"""Creates .venv with everything that `make` needs; does nothing when it is up to date.

    python3 setup_venv.py            create or renew .venv
    python3 setup_venv.py --demo     the same with what the package needs, less than its tests
    python3 setup_venv.py --dry-run  print the commands, run none

Needs Python 3.11 or newer with the modules venv and ensurepip, and no package. What is installed
depends on:

- The NVIDIA driver, as `nvidia-smi` reports it. CUDA 13 or newer gets torch 2.13.0 and the extra
  `cuda13`; CUDA 12 gets torch 2.10.0 and the extra `cuda12`; anything older is an error. Two
  versions of torch, because torch 2.13.0 requires the CUDA 13 libraries: pip refuses it beside
  `cuda12`, and a CUDA 12 driver cannot run it. Without a driver, torch 2.13.0 is installed and CuPy
  is not.
- TORCH_INDEX, the URL of a package index. Without a driver, torch alone is installed from it: a
  build for the CPU is far smaller than the default one. With a driver it has no effect.
- A C++ compiler: $CXX, c++, g++ or clang++. Without one the extra `cpu` brings one.

Torch is pinned in both pip commands, so that the second cannot replace what the first one
installed.

A stamp in .venv holds a hash of all the above, of pyproject.toml, of the Python version and of this
folder's path. It is written last and atomically. Where it is missing or differs, .venv is created
anew: an interrupted or outdated install is never repaired in place. To force that, delete .venv.
One that --demo has made gets the rest when that is wanted.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "cupydrive-setup.json"
MIN_PYTHON = (3, 11)
TORCH = "torch==2.13.0"
TORCH_CUDA12 = "torch==2.10.0"
COMPILERS = ("c++", "g++", "clang++")
UNFINISHED = "unfinished\n"  # what the stamp says meanwhile


class SetupError(Exception):
    """A machine that cannot be set up; the message says what to change."""


def plan(env, driver_cuda, has_compiler, demo=False):
    """Return the pip commands for one machine, each a list of arguments, to be run in the
    repository root.

    Args:
        env: Environment variables; TORCH_INDEX is read.
        driver_cuda: (major, minor) of the newest CUDA that the NVIDIA driver runs; None without a
            driver.
        has_compiler: True if there is a C++ compiler.
        demo: Leave out what tests, notebooks and the documentation need.

    Raises:
        SetupError: If the driver is older than CUDA 12.
    """
    torch, extras, index = TORCH, [] if demo else ["dev"], []
    if driver_cuda is None:
        if env.get("TORCH_INDEX"):
            index = ["--index-url", env["TORCH_INDEX"]]
    elif driver_cuda >= (13, 0):
        extras.append("cuda13")
    elif driver_cuda >= (12, 0):
        torch = TORCH_CUDA12
        extras.append("cuda12")
    else:
        raise SetupError(
            f"the NVIDIA driver runs CUDA {driver_cuda[0]}.{driver_cuda[1]}; cupydrive needs 12.0 "
            "or newer: update the driver to version 525 or newer"
        )
    if not has_compiler:
        extras.append("cpu")
    pip = [".venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install"]
    return [[*pip, *index, torch], [*pip, torch, "-e", f".[{','.join(extras)}]" if extras else "."]]


def cuda_of_smi(text):
    """Return (major, minor) of the CUDA version in the output of `nvidia-smi`, None where it names
    none.
    """
    match = re.search(r"CUDA(?:\s+UMD)?\s+Version\s*:\s*(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def cuda_of_driver(version):
    """Return the CUDA version that a driver such as "580.65.06" runs at least, None if it is no
    version.
    """
    match = re.match(r"\s*(\d+)\.\d+", version)
    if not match:
        return None
    # The first driver branch of each CUDA major version on Linux; 450 is that of CUDA 11.
    return next(
        (cuda for branch, cuda in ((580, (13, 0)), (525, (12, 0))) if int(match[1]) >= branch),
        (11, 0),
    )


def find_driver_cuda():
    """Return the CUDA version of this machine's NVIDIA driver, None where no driver answers."""
    header = _output(["nvidia-smi"])
    if header is None:
        return None
    return cuda_of_smi(header) or cuda_of_driver(
        _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]) or ""
    )


def find_compiler(env):
    """Return True if $CXX, or without it a C++ compiler with a common name, is on PATH.

    Raises:
        SetupError: If $CXX is set and names no program: the package would refuse it too.
    """
    fix = "unset it, or set it to the command of a C++ compiler, such as CXX=g++"
    if not env.get("CXX"):
        return any(shutil.which(name, path=env.get("PATH")) for name in COMPILERS)
    try:
        words = shlex.split(env["CXX"])
    except ValueError as error:
        raise SetupError(
            f"CXX = {env['CXX']!r} cannot be read: {str(error).lower()}; {fix}"
        ) from None
    if not words or not shutil.which(words[0], path=env.get("PATH")):
        raise SetupError(f"CXX = {env['CXX']!r} names no program on the PATH; {fix}")
    return True


def check_python(version, missing):
    """Raise SetupError if Python ``version`` is too old or modules that make a venv are
    ``missing``.
    """
    shown = ".".join(map(str, version[:2]))
    other = "give make another one: make PYTHON=/path/to/python3"
    if tuple(version[:2]) < MIN_PYTHON:
        need = ".".join(map(str, MIN_PYTHON))
        raise SetupError(
            f"{sys.executable} is Python {shown}; cupydrive needs {need} or newer: {other}"
        )
    if missing:
        raise SetupError(
            f"{sys.executable} has no module {' and no module '.join(missing)}, which making a "
            f"venv needs: install the system's package for it (Debian, Ubuntu: "
            f"python{shown}-venv), or {other}"
        )


def stamp_text(commands, pyproject, version, root):
    """Return what the stamp holds after ``commands`` succeeded for this pyproject.toml, Python and
    folder.
    """
    # The folder counts because an editable install and the scripts of a venv hold absolute paths.
    key = json.dumps([commands, pyproject, version, str(root)])
    return json.dumps({"sha256": hashlib.sha256(key.encode()).hexdigest()}) + "\n"


def wanted(kept, stamps, demo):
    """Return what is to be done where .venv's stamp says ``kept``: ``"nothing"``, ``"add"`` or
    ``"anew"``.

    Args:
        kept: What the stamp says, None where there is none or no Python beside it.
        stamps: What it says after a whole install, and after that of ``--demo``.
        demo: Whether the latter is enough.
    """
    whole, less = stamps
    if kept == whole or (demo and kept == less):
        return "nothing"
    return "add" if kept == less else "anew"


def make_venv():
    """Create .venv anew, with nothing in it, and a stamp that matches no plan."""
    own = any(path.is_file() for path in (STAMP, VENV / "pyvenv.cfg"))
    if VENV.is_symlink() or (VENV.exists() and not own):
        raise SetupError(
            f"{VENV} is not a venv; it would be overwritten: move it away or delete it"
        )
    if Path(sys.prefix).resolve() == VENV.resolve():
        raise SetupError(
            f"{sys.executable} lies in .venv, which is to be made anew: run the system's Python"
        )
    # From here on the stamp matches no plan, and marks the folder as ours even when this is
    # interrupted.
    VENV.mkdir(exist_ok=True)
    STAMP.write_text(UNFINISHED)
    for path in VENV.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != STAMP:
            path.unlink()
    run([[sys.executable, "-m", "venv", ".venv"]])


def run(commands):
    """Run ``commands``, one after the other, and say each.

    Raises:
        SetupError: If one fails.
    """
    for command in commands:
        print("+", shlex.join(command), flush=True)
        code = subprocess.run(command, cwd=ROOT).returncode
        if code:
            raise SetupError(
                f"`{shlex.join(command)}` failed with exit code {code}; its output above says why"
            )


def write_stamp(stamp):
    """Say that .venv is what ``stamp`` is the stamp of."""
    part = STAMP.with_suffix(".part")
    part.write_text(stamp)
    os.replace(part, STAMP)


def _output(command):
    """Return the standard output of ``command``, None if it cannot be run or fails."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def main():
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Create .venv for cupydrive; see the top of this file."
    )
    parser.add_argument(
        "--demo", action="store_true", help="leave out what tests, notebooks and documentation need"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run none")
    args = parser.parse_args()
    try:
        check_python(
            sys.version_info, [m for m in ("venv", "ensurepip") if not importlib.util.find_spec(m)]
        )
        driver_cuda = find_driver_cuda()
        plans = [
            plan(os.environ, driver_cuda, find_compiler(os.environ), demo) for demo in (False, True)
        ]
        commands = plans[args.demo]
        if args.dry_run:
            for command in ([sys.executable, "-m", "venv", ".venv"], *commands):
                print(shlex.join(command))
            return 0
        stamps = [
            stamp_text(each, (ROOT / "pyproject.toml").read_text(), sys.version, ROOT)
            for each in plans
        ]
        kept = STAMP.read_text() if STAMP.is_file() and (VENV / "bin" / "python").exists() else None
        do = wanted(kept, stamps, args.demo)
        if do == "nothing":
            return 0
        shown = (
            "no NVIDIA driver"
            if driver_cuda is None
            else "NVIDIA driver for CUDA {}.{}".format(*driver_cuda)
        )
        if do == "add":
            print(
                f"setup_venv.py: {shown}; adding to .venv what tests, notebooks and documentation "
                f"need"
            )
            STAMP.write_text(UNFINISHED)
            run(commands[1:])
        else:
            print(f"setup_venv.py: {shown}; creating .venv")
            make_venv()
            run(commands)
        write_stamp(stamps[args.demo])
    except SetupError as error:
        print(f"setup_venv.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
