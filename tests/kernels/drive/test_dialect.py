"""The page of the dialect, docs/dialect.md: it names all that an environment may use, and its
figures are the recorded ones.
"""

import json
import re
from pathlib import Path

import dialect_costs
import pytest

from cupydrive.codegen.dialect import MATH, NOT_OFFERED

ROOT = Path(__file__).resolve().parents[3]
DIALECT = (ROOT / "docs" / "dialect.md").read_text()
PROSE = re.sub(r"```.*?```", "", DIALECT, flags=re.S)  # without its blocks of code
KERNELS = ROOT / "kernels"
# Of math.cuh, for other kernels or for functions there: no environment needs them.
INSIDE = {"exp_rest", "exp_small", "split", "log_near_1", "log_in_two", "sqrt_double", "inverse"}
# Of a team, for the kernels around an environment.
AROUND = {"in_step", "sector_any", "sector_lanes", "warp_sync", "lanes", "reduce", "of_lanes"}


def named(text):
    """Return whether the page of the dialect names something in code, as a word."""
    return any(
        re.search(rf"(?<!\w){re.escape(text)}(?!\w)", code)
        for code in re.findall(r"`([^`]+)`", PROSE)
    )


def members(path, struct):
    """Return the functions and data of a struct that its text shows."""
    body = re.search(
        rf"^(?:template <.*> )?struct {struct}\b.*?^}};", (KERNELS / path).read_text(), re.M | re.S
    )[0]
    public = re.sub(r"\n private:.*", "\n", body, flags=re.S)
    functions = re.findall(
        r"^  (?:static |template <[^>]*> )*DEVICE [\w:<>&]+ (\w+)\(", public, re.M
    )
    data = re.findall(r"^  (?:const )?[\w:]+[&*]? (\w+);", public, re.M)
    return {*functions, *data}


def test_the_page_of_the_dialect_names_what_an_environment_may_use():
    functions = set(
        re.findall(r"^DEVICE \w+ (\w+)\(", (KERNELS / "drive" / "math.cuh").read_text(), re.M)
    )
    assert len(functions) > 25 and not {f for f in functions - INSIDE if not named(f"math::{f}")}
    env = members("drive/env.cuh", "Env") - {"horizon"}
    group = {name for name in members("drive/env.cuh", "Group") if not name.endswith("_row")}
    team = members("drive/backend/cpu_team.cuh", "Team") | members("drive/indices.cuh", "Member")
    random = members("drive/random.cuh", "Random") - {"seed", "env", "episode", "step", "purpose"}
    for found, least in ((env, 9), (group, 6), (team - AROUND, 9), (random, 4)):
        assert len(found) >= least and not {name for name in found if not named(name)}, found


def test_the_page_of_the_dialect_names_what_the_packages_environments_use():
    for path in (KERNELS / "envs").glob("*.cu"):
        code = re.sub(r"//.*", "", path.read_text())
        used = set(re.findall(r"math::\w+|Random::\w+", code)) | set(
            re.findall(r"env\.(?:team|random)\.\w+", code)
        )
        used |= set(
            re.findall(r'#include "(drive/\w+\.cuh)"|\b(IF_TABLE|UNROLL|NO_UNROLL)\b', code)
        )
        used = {"".join(name) for name in used}
        assert not {name for name in used if not named(name) and not named(name.split(".")[-1])}, (
            path.name
        )


def test_messages_offer_the_mathematics_that_there_is():
    """A compile error names a function of C's that has one of ours, and lists ours where it has
    none.
    """
    on_page = set(re.findall(r"`math::([a-z]\w*)\(", DIALECT)) - {"bits", "from_bits"}
    assert on_page == set(MATH) and not on_page & set(NOT_OFFERED)


@pytest.mark.full
def test_operations_and_errors_of_mathematics_are_the_counted_and_the_measured_ones():
    recorded = json.loads((ROOT / "docs" / "dialect.json").read_text())["operations"]
    assert recorded == dialect_costs.count()
    header, told = (KERNELS / "drive" / "math.cuh").read_text(), {}
    for row in re.findall(r"^\| `(?:math::|by\.of).*\|$", DIALECT, re.M):
        first, _, operations, error = (cell.strip() for cell in row.strip("|").rsplit("|", 3))
        for name in re.findall(r"math::(\w+)", first.replace("by.of", "math::of")):
            told[name] = operations
        number = re.match(r"[\d.]+", error)
        assert (
            number is None
            or number[0] in ("0", "0.5")
            or re.search(rf"(?<![\d.]){number[0]}\b", header)
        ), row
    told["Divisor::of"] = told.pop("of")
    assert {name: told[name] for name in recorded} == {
        name: str(number) for name, number in recorded.items()
    }
