"""setup_venv.py: what it installs on which machine, and what it says where it cannot."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def _load_setup():
    spec = importlib.util.spec_from_file_location("setup_venv", ROOT / "setup_venv.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup_venv = _load_setup()


@pytest.mark.parametrize(
    ("driver", "compiler", "index", "torch", "extras", "uses_index"),
    [
        (None, True, None, "2.13.0", "dev", False),
        (None, False, "file:///index", "2.13.0", "dev,cpu", True),
        ((12, 0), True, None, "2.10.0", "dev,cuda12", False),
        ((14, 0), True, None, "2.13.0", "dev,cuda13", False),
        ((13, 0), True, None, "2.13.0", "dev,cuda13", False),
    ],
)
def test_setup_plan(driver, compiler, index, torch, extras, uses_index):
    env = {} if index is None else {"TORCH_INDEX": index}
    first, second = setup_venv.plan(env, driver, compiler)
    pip = [".venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install"]
    assert first == [*pip, *(["--index-url", index] if uses_index else []), f"torch=={torch}"]
    assert second == [*pip, f"torch=={torch}", "-e", f".[{extras}]"]
    assert set(extras.split(",")) <= EXTRAS.keys()
    less = [extra for extra in extras.split(",") if extra != "dev"]
    demo = [*second[:-1], f".[{','.join(less)}]" if less else "."]
    assert setup_venv.plan(env, driver, compiler, demo=True) == [first, demo]


@pytest.mark.parametrize("named", [" ", '"g++', "no-such-compiler -O3", '""'])
def test_setup_names_a_useless_cxx(named):
    with pytest.raises(setup_venv.SetupError) as caught:
        setup_venv.find_compiler({"CXX": named, "PATH": os.environ["PATH"]})
    assert f"CXX = {named!r}" in str(caught.value) and "CXX=g++" in str(caught.value)
    assert setup_venv.find_compiler({"CXX": "/bin/sh -x"}) and not setup_venv.find_compiler(
        {"CXX": "", "PATH": ""}
    )


def test_setup_refuses_a_driver_older_than_cuda_12():
    with pytest.raises(
        setup_venv.SetupError, match=r"CUDA 11\.8.*12\.0 or newer.*update the driver"
    ):
        setup_venv.plan({}, (11, 8), True)


@pytest.mark.parametrize(
    ("header", "cuda"),
    [
        ("| NVIDIA-SMI 535.104  Driver Version: 535.104  CUDA Version: 12.2     |", (12, 2)),
        ("| NVIDIA-SMI 595.10  KMD Version: 595.10  CUDA UMD Version: 13.2 |", (13, 2)),
        ("| NVIDIA-SMI 550.1  Driver Version: 550.1  CUDA Version: N/A |", None),
    ],
)
def test_setup_reads_the_cuda_version_of_nvidia_smi(header, cuda):
    assert setup_venv.cuda_of_smi(header) == cuda


def test_setup_derives_the_cuda_version_from_the_driver():
    versions = {
        "580.65.06": (13, 0),
        "600.1\n600.1": (13, 0),
        "579.99": (12, 0),
        "525.60.13": (12, 0),
    }
    versions |= {"470.82": (11, 0), "": None, "[N/A]": None}
    assert {v: setup_venv.cuda_of_driver(v) for v in versions} == versions


def test_setup_checks_the_python_that_runs_it():
    setup_venv.check_python((3, 11, 0), [])
    with pytest.raises(
        setup_venv.SetupError, match=r"is Python 3\.10; .* 3\.11 or newer: .*PYTHON="
    ):
        setup_venv.check_python((3, 10, 14), [])
    with pytest.raises(setup_venv.SetupError, match=r"no module ensurepip, .*python3\.12-venv"):
        setup_venv.check_python((3, 12, 1), ["ensurepip"])


def test_setup_stamp_depends_on_all_it_should():
    base = ([["pip"]], "text", "3.11.7", "/a")
    changed = ([["pip", "x"]], "other", "3.12.0", "/b")
    variants = [base, *((*base[:i], changed[i], *base[i + 1 :]) for i in range(4))]
    assert len({setup_venv.stamp_text(*v) for v in variants}) == 5


@pytest.mark.parametrize(
    ("kept", "of_all", "of_the_demo"),
    [
        (None, "anew", "anew"),
        ("all\n", "nothing", "nothing"),
        ("demo\n", "add", "nothing"),
        ("unfinished\n", "anew", "anew"),
    ],
)
def test_setup_of_the_demo_is_a_part_of_all(kept, of_all, of_the_demo):
    stamps = ("all\n", "demo\n")
    assert setup_venv.wanted(kept, stamps, demo=False) == of_all
    assert setup_venv.wanted(kept, stamps, demo=True) == of_the_demo


def _dry_run(folder, env, smi):
    """Run `setup_venv.py --dry-run` with at most an nvidia-smi on PATH, one that prints ``smi``."""
    folder.mkdir()
    if smi is not None:
        fake = folder / "nvidia-smi"
        fake.write_text(f"#!/bin/sh\necho '{smi}'\n")
        fake.chmod(0o755)
    command = [sys.executable, str(ROOT / "setup_venv.py"), "--dry-run"]
    return subprocess.run(
        command, env={"PATH": str(folder), **env}, capture_output=True, text=True, timeout=60
    )


def test_setup_dry_run_on_machines_without_and_with_a_driver(tmp_path):
    stamps = ROOT / ".venv" / setup_venv.STAMP.name
    before = stamps.stat().st_mtime_ns if stamps.exists() else None

    done = _dry_run(tmp_path / "bare", {"TORCH_INDEX": "file:///index"}, None)
    assert (done.returncode, done.stderr) == (0, "")
    venv, torch, rest = done.stdout.splitlines()
    assert venv.endswith("-m venv .venv")
    assert torch.endswith("install --index-url file:///index torch==2.13.0")
    assert rest.endswith("install torch==2.13.0 -e '.[dev,cpu]'")

    done = _dry_run(tmp_path / "new", {"CXX": "/bin/sh -x"}, "CUDA Version: 13.0")
    assert done.stdout.splitlines()[2].endswith("-e '.[dev,cuda13]'"), done.stderr

    done = _dry_run(tmp_path / "old", {}, "CUDA Version: 11.4")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "CUDA 11.4" in done.stderr

    assert before == (stamps.stat().st_mtime_ns if stamps.exists() else None), (
        "a dry run changed .venv"
    )
