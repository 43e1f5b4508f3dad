"""Runs the adapters' tests with the lowest version of each dependency that pyproject.toml bounds.

    python tests/tools/lowest.py [--python PYTHON] [--torch torch==2.10.0]

Makes .cache/lowest, a venv, with pip constraints NAME==BOUND for every NAME>=BOUND; a package
without a bound is the newest that goes with them. The newest of all is what `make test` has.
--torch says which torch instead, where the lowest cannot be had: from a package index of CPU
builds, say, $TORCH_INDEX, which is used for torch alone.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".cache" / "lowest"
NEEDS = ("pytest", "hypothesis", "packaging")
EXTRAS = ("pettingzoo", "stable-baselines3", "lightning")
TESTS = ("adapters", "envs/test_gymnasium.py", "simulation/test_vector.py")


def dependencies():
    """Return the requirements of the package and of ``EXTRAS``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + [
        text for name in EXTRAS for text in project["optional-dependencies"][name]
    ]


def lowest(requirements):
    """Return pip constraints from requirements such as "numpy>=2"; those without a lower bound have
    none.
    """
    pairs = (text.partition(">=") for text in requirements)
    return [f"{name.strip()}=={bound.strip()}" for name, _, bound in pairs if bound]


def plan(constraints, torch, python, index):
    """Return the commands that make the venv and run the tests, in the repository root."""
    pip = [
        str(VENV / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
    ]
    pins = [text for text in constraints if not text.startswith("torch==")]
    torch = torch or next(text for text in constraints if text.startswith("torch=="))
    return [
        [python, "-m", "venv", "--clear", str(VENV)],
        [*pip, *(["--index-url", index] if index else []), torch],
        [*pip, torch, *pins, *NEEDS, "-e", f".[{','.join(EXTRAS)}]"],
        [
            str(VENV / "bin" / "python"),
            "-m",
            "pytest",
            "-q",
            "-m",
            "not gpu",
            *(f"tests/{name}" for name in TESTS),
        ],
    ]


def main():
    """Run the command line; return the exit code of what failed, or 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--torch", default="")
    args = parser.parse_args()
    for command in plan(
        lowest(dependencies()), args.torch, args.python, os.environ.get("TORCH_INDEX")
    ):
        print("+", *command, flush=True)
        code = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}
        ).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
