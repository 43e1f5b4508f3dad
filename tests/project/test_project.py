"""The files around the package: dependencies, Makefile groups, and the wheel."""

import itertools
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import lowest
import pytest
from conftest import optional, python_path, run_python
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from test_setup import setup_venv

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MAKEFILE = (ROOT / "Makefile").read_text()

# Packages that conda-forge names differently; both CuPy extras are one package there.
CONDA_NAMES = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "build": "python-build",
    "nvidia-cuda-nvrtc": "cuda-nvrtc",
    "nvidia-cuda-runtime": "cuda-cudart-dev",
    "cupy-cuda12x": "cupy",
    "cupy-cuda13x": "cupy",
}
# What a venv gets from the system, and the compiler that the extra `cpu` brings there.
CONDA_ONLY = {"cuda-version", "cxx-compiler", "python", "pip", "make"}


# What `make test RUN=...` says to its own children would count more than what a test says.
CLEAN = {
    k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "RUN", "PYTHON"))
}


def test_environment_yml_names_the_packages_of_pyproject():
    lines = (ROOT / "environment.yml").read_text().splitlines()
    entries = [
        line.strip()[2:]
        for line in lines
        if line.strip().startswith("- ") and line.strip() != "- pip:"
    ]
    assert entries[:2] == ["conda-forge", "nodefaults"]
    conda = {r.name: r.specifier for r in map(Requirement, entries[2:])}
    assert len(conda) == len(entries) - 2, "environment.yml names a package twice"

    wanted = {}
    for text in PROJECT["dependencies"] + [r for e in EXTRAS if e != "cpu" for r in EXTRAS[e]]:
        requirement = Requirement(text)
        name = CONDA_NAMES.get(requirement.name, requirement.name)
        assert wanted.setdefault(name, requirement.specifier) == requirement.specifier, name
    assert {name: bound for name, bound in conda.items() if name not in CONDA_ONLY} == wanted
    assert conda.keys() >= CONDA_ONLY
    assert conda["python"] == SpecifierSet(PROJECT["requires-python"])


def test_versions_agree_across_files():
    assert PROJECT["requires-python"] == ">={}.{}".format(*setup_venv.MIN_PYTHON)
    bounds = {r.name: r.specifier for r in map(Requirement, PROJECT["dependencies"])}
    for pin in (setup_venv.TORCH, setup_venv.TORCH_CUDA12):
        assert bounds["torch"].contains(pin.removeprefix("torch==")), pin
    assert [Requirement(EXTRAS[e][0]).extras for e in ("cuda12", "cuda13")] == [{"ctk"}, {"ctk"}]
    assert PROJECT["license"] == "Apache-2.0"
    assert (ROOT / "LICENSE").read_text().split()[:3] == ["Apache", "License", "Version"]


def _targets():
    return set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


@pytest.mark.full
def test_every_test_is_in_exactly_one_tier():
    tiers = re.search(r"^TIERS := (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    expressions = dict(re.findall(rf"^({'|'.join(tiers)}) := (.+)$", MAKEFILE, re.MULTILINE))
    assert [*expressions] == tiers
    for first, slow, gpu in itertools.product((False, True), repeat=3):
        if first and slow:  # tests/conftest.py marks no slow test so
            continue
        # A pytest marker expression with names, and, or, not is a Python expression, too.
        names = {"first": first, "slow": slow, "gpu": gpu, "mutants": False}
        assert sum(eval(text, {}, names) for text in expressions.values()) == 1, names
    mutants = {"first": False, "slow": False, "gpu": False, "mutants": True}
    assert [tier for tier, text in expressions.items() if eval(text, {}, mutants)] == ["mutants"]


def test_every_adapter_is_tried_with_the_lowest_versions():
    adapters = {
        p.stem for p in (ROOT / "cupydrive").glob("*.py") if "cupydrive.adapters" in p.read_text()
    }
    tried = {
        path.stem
        for name in lowest.TESTS
        for path in [ROOT / "tests" / name, *(ROOT / "tests" / name).rglob("*.py")]
    }
    assert "gymnasium" in adapters and {f"test_{name}" for name in adapters} <= tried
    bounded = {r.name for r in map(Requirement, lowest.dependencies()) if r.specifier}
    pinned = [Requirement(text) for text in lowest.lowest(lowest.dependencies())]
    assert {"gymnasium", "lightning"} <= {r.name for r in pinned} == bounded


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert "make test" in lines
    assert os.access(script, os.X_OK), f"{script} is not executable: chmod +x"
    assert _targets() >= {
        "demo",
        "test",
        "test-all",
        "lint",
        "clean",
        "bench",
        "gallery",
        "notebook",
    }


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_do_their_work_by_make_alone(path):
    steps = re.findall(r"^ +(?:- )?run: *(.*)$", path.read_text(), re.M)
    assert steps and all(
        step.split()[0] == "make" and set(step.split()[1:]) <= _targets() for step in steps
    )


def test_tests_and_their_programs_leave_nothing_in_the_temporary_folder(tmp_path_factory):
    made = run_python("-c", "import tempfile; print(tempfile.mkdtemp())").stdout.strip()
    # those of pytest's own that are older than three runs it removes
    for folder in (tempfile.mkdtemp(), made):
        assert Path(folder).is_relative_to(tmp_path_factory.getbasetemp())


NEEDED = {"pytest", "pytest-xdist", "hypothesis"}  # by all tests


@pytest.mark.full
def test_tests_are_collected_without_the_packages_that_only_some_need(tmp_path):
    optional_names = {Requirement(text).name for text in EXTRAS["dev"]} - NEEDED
    found = packages_distributions()
    modules = [module for module, names in found.items() if optional_names & set(names)]
    (tmp_path / "without.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "without", "tests"]
    environment = {k: v for k, v in os.environ.items() if k != "CI"} | {
        "PYTHONPATH": python_path(tmp_path)
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "tests collected" in done.stdout


def test_lint_is_skipped_for_a_python_of_ones_own_without_ruff_alone(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: no site-packages
    fake.chmod(0o755)

    def lint(*words):
        command = ["make", *words, "lint", "PYTHON=true"]
        return subprocess.run(command, cwd=ROOT, env=CLEAN, capture_output=True, text=True)

    done = lint(f"RUN={fake}")
    assert (done.returncode, done.stdout) == (
        0,
        f"lint skipped: {fake} has no ruff or no mypy; pip install ruff mypy there, or leave RUN out\n",
    )
    makefile = tmp_path / "Makefile"
    makefile.write_text(MAKEFILE.replace("RUN := .venv/bin/python", f"RUN := {fake}"))
    done = lint("-f", str(makefile))
    assert done.returncode != 0 and "skipped" not in done.stdout


def test_a_python_of_ones_own_needs_no_venv():
    for words, made in (([], True), (["RUN=python3"], False)):
        done = subprocess.run(
            ["make", "-n", "site", *words], cwd=ROOT, env=CLEAN, capture_output=True, text=True
        )
        assert done.returncode == 0 and ("setup_venv.py" in done.stdout) == made, done.stdout


@pytest.mark.full
def test_wheel_works_outside_the_checkout(tmp_path):
    optional("build"), optional("hatchling")
    dist, target, elsewhere = (tmp_path / name for name in ("dist", "target", "elsewhere"))
    elsewhere.mkdir()
    (tmp_path / "editable").mkdir()

    def run(*arguments, cwd=elsewhere, **env):
        done = run_python(*arguments, cwd=cwd, seconds=200, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # From the sdist, so that this also fails when the sdist lacks a file; no isolation: no
    # download.
    run("-m", "build", "--no-isolation", "--outdir", dist, ROOT)
    (wheel,) = dist.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    kernels = {
        p.relative_to(ROOT)
        for pattern in ("drive/*.cuh", "envs/*.cu")
        for p in (ROOT / "kernels").glob(pattern)
    }
    assert {p.parent.name for p in kernels} == {"drive", "envs"}
    assert names >= {f"cupydrive/{p.as_posix()}" for p in kernels}
    package = (ROOT / "cupydrive").rglob("*")
    assert names >= {
        p.relative_to(ROOT).as_posix()
        for p in package
        if p.suffix in (".py", ".pyi", ".toml", ".txt") or p.name == "py.typed"
    }
    assert {n.split("/")[0] for n in names} == {
        "cupydrive",
        f"cupydrive-{PROJECT['version']}.dist-info",
    }

    hook = "import sys, hatchling.build as b; print(b.build_editable(sys.argv[1]))"
    editable = tmp_path / "editable" / run("-c", hook, tmp_path / "editable", cwd=ROOT).split()[-1]
    copied = [name for name in zipfile.ZipFile(editable).namelist() if "kernels" in name]
    assert not copied, f"an editable install copies kernels, which then go stale: {copied}"

    run("-m", "pip", "install", "--no-deps", "--no-index", "--target", target, wheel)
    # Dependencies come from the running environment, the package from the target: it is searched
    # first.
    found = run("-c", "import cupydrive; print(cupydrive.__file__)", PYTHONPATH=str(target))
    assert Path(found.strip().splitlines()[-1]).is_relative_to(target)
    run("-m", "cupydrive", "check", "cartpole", PYTHONPATH=str(target))


@pytest.mark.full
def test_pytest_without_arguments_collects_what_make_test_runs():
    def collected(*arguments):
        done = run_python("-m", "pytest", "-q", "--collect-only", *arguments, cwd=ROOT, seconds=200)
        return {line for line in done.stdout.splitlines() if "::" in line}

    quick = collected()
    expression = re.search(r"^quick := (.+)$", MAKEFILE, re.MULTILINE)[1]
    assert 500 < len(quick) < 2000 and quick == collected("-m", expression, "tests")
    assert collected("tests/inputs/test_data.py", "--deselect", "none") > {
        q for q in quick if "inputs/test_data.py" in q
    }
