"""environment.yml can be solved: against recorded metadata of conda-forge, by conda's rules,
without installing anything.
"""

import asyncio
from pathlib import Path

import pytest
from conftest import optional

ROOT = Path(__file__).resolve().parents[2]
RECORDED = (
    ROOT.parent / "shared" / "data" / "conda"
)  # repodata.json of each folder, of the packages that a solution may need
FOLDERS = ("linux-64", "noarch")
# Named since the metadata was recorded, which lacks them.
LATER = {
    "pooch",
    "requests",
    "pydantic",
    "py-rattler",
    "mypy",
    "sb3-contrib",
    "mkdocs",
    "mkdocs-material",
    "mkdocstrings",
    "mkdocstrings-python",
    "nbconvert",
}


def wanted():
    """Return what environment.yml asks conda for."""
    lines = (
        (ROOT / "environment.yml")
        .read_text()
        .split("\ndependencies:\n")[1]
        .split("  - pip:\n")[0]
        .splitlines()
    )
    entries = [line.strip().removeprefix("- ") for line in lines if line.startswith("  - ")]
    return [entry for entry in entries if entry.split(">=")[0] not in LATER]


def solved(cuda, *more):
    """Return (version, build) by name of the packages for a Linux machine with a driver of
    ``cuda``, or without one.
    """
    rattler = optional("rattler")
    if not RECORDED.is_dir():
        pytest.skip(f"no recorded metadata of conda-forge in {RECORDED}")
    channel = rattler.Channel("conda-forge")
    recorded = [
        rattler.SparseRepoData(channel, name, RECORDED / name / "repodata.json") for name in FOLDERS
    ]
    machine = {"__unix": "0", "__linux": "6.1", "__glibc": "2.36"} | (
        {"__cuda": cuda} if cuda else {}
    )
    virtual = [
        rattler.GenericVirtualPackage(
            rattler.PackageName(name), rattler.Version(version), rattler.BuildString("0")
        )
        for name, version in machine.items()
    ]
    found = asyncio.run(
        rattler.solve_with_sparse_repodata([*wanted(), *more], recorded, virtual_packages=virtual)
    )
    return {record.name.normalized: (record.version, str(record.build)) for record in found}


def build(found, name):
    """Return the build string of a solved package."""
    return found[name][1]


@pytest.mark.parametrize(
    ("cuda", "torch", "toolkit"),
    [
        (None, "cpu_", "1"),
        ("12.2", "cuda12", "12."),
        ("13.0", "cuda13", "13."),
    ],
)
def test_the_driver_picks_the_builds(cuda, torch, toolkit):
    found = solved(cuda)
    assert build(found, "pytorch").startswith(torch)
    assert str(found["cuda-version"][0]).startswith(toolkit)
    assert build(found, "cupy").startswith("cu13") == str(found["cuda-version"][0]).startswith(
        "13."
    )


@pytest.mark.parametrize(
    ("cuda", "more", "words"),
    [
        ("11.8", (), "cuda-version >=12"),
        (None, ("no-such-package",), "No candidates were found for no-such-package"),
    ],
)
def test_an_old_driver_and_a_wrong_name_fail(cuda, more, words):
    solved(None)  # skips where there is nothing to solve with
    from rattler.exceptions import SolverError

    with pytest.raises(SolverError, match=words):
        solved(cuda, *more)
