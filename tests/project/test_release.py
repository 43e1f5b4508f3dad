"""What surrounds a release: the version is the same everywhere, and what is built is what is
committed.
"""

import re

import pytest
from release import NotReady, require_ready
from test_project import PROJECT, ROOT

import cupydrive

CHANGES = (ROOT / "CHANGELOG.md").read_text()


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.M)[1] == PROJECT["version"]
    assert re.search(r"^license: (.+)$", citation, re.M)[1] == PROJECT["license"]
    assert (
        re.findall(r"^## (\S+)$", CHANGES, re.M)[0] == PROJECT["version"] == cupydrive.__version__
    )


def test_only_what_is_committed_and_told_is_built():
    require_ready("", CHANGES, PROJECT["version"])
    with pytest.raises(NotReady, match="2 files differ from the last commit"):
        require_ready(" M README.md\n?? new.py\n", CHANGES, PROJECT["version"])
    with pytest.raises(NotReady, match=r"has no heading `## 9\.9\.9`"):
        require_ready("", CHANGES, "9.9.9")
