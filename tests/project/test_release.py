"""What surrounds a release: the version is the same everywhere, and what is built is what is committed."""

import re
from pathlib import Path

import pytest
from release import NotReady, plan, require_ready
from test_project import PROJECT, ROOT

import cupydrive

CHANGES = (ROOT / "CHANGELOG.md").read_text()


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == PROJECT["version"]
    assert re.search(r"^license: (.+)$", citation, re.M)[1] == PROJECT["license"]
    assert re.findall(r"^## (\S+)$", CHANGES, re.M)[0] == PROJECT["version"] == cupydrive.__version__


def test_only_what_is_committed_and_told_is_built():
    require_ready("", CHANGES, PROJECT["version"])
    with pytest.raises(NotReady, match="2 files differ from the last commit"):
        require_ready(" M README.md\n?? new.py\n", CHANGES, PROJECT["version"])
    with pytest.raises(NotReady, match=r"has no heading `## 9\.9\.9`"):
        require_ready("", CHANGES, "9.9.9")


@pytest.mark.parametrize("index", [None, "https://example.org/simple"])
def test_torch_alone_comes_from_its_index(index, tmp_path):
    install, tried = plan(tmp_path / "cupydrive.whl", tmp_path / "venv", "torch==2.13.0", index)
    assert [index in command for command in install if index] in ([], [False, True, False])
    assert install[-1][-2:] == ["torch==2.13.0", str(tmp_path / "cupydrive.whl")]
    assert all(Path(command[0]).is_relative_to(tmp_path / "venv") for command in tried)
