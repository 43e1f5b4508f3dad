"""The README and gallery/SPEED.md show what the benchmark and the lessons found."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_speed_charts import LEARNT, bench

from cupydrive import envs
from cupydrive.bench import tables
from cupydrive.bench.cases import ROLLOUTS, STEPS

ROOT = Path(__file__).resolve().parent.parent


def test_goals_of_lessons_are_told_in_words():
    seeds = [{"r": [3.0, 0.1], "passed": True, "rival": {"r": [3.0, 1.0], "s": [2.0, 1.5]}}]
    assert tables.goals({"r": {}, "seeds": seeds}) == {"r": "> 1, constant levels", "s": "> 1.5, constant levels"}
    seeds = [{"length": [3.0, 0.1], "heuristic": [4.0, 0.1]}, {"length": [3.0, 0.1], "heuristic": [6.0, 0.1]}]
    assert tables.goals({"length": {}, "seeds": seeds}) == {"length": "< 5, the heuristic"}
    found = tables.goals({"of_heuristic": 0.6, "length": {}, "seeds": seeds})
    assert found == {"length": "< 3, 0.6 of the heuristic's 5"}
    bounds = {"rise": [None, 2.0], "index": [0.4, None], "paid": [0.0, 0.0]}
    words = tables.goals({"mark": 168 / 27, "bounds": bounds, "r": {}, "seeds": [{"r": [7.0, 0.0]}]})
    assert words == {"r": "at least 6.2222", "rise": "at most 2", "index": "at least 0.4", "paid": "0"}


def test_another_librarys_training_stands_below_ours_of_the_same_task_copies_and_algorithm():
    lines = tables.training(bench(*LEARNT)).split("| --- |\n")[1].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [(env.strip("`"), who, copies, ours) for env, _, who, copies, *_, ours in cells] == [
        ("cartpole", "cupydrive", "8", ""), ("cartpole", "JAX", "8", "2.0 x"),
        ("cartpole", "cupydrive", "8", ""), ("cartpole", "WarpDrive, Numba", "8", "3.0 x"),
        ("tag_grid", "cupydrive", "20", ""), ("tag_grid", "cupydrive", "20", ""),
        ("tag_grid", "WarpDrive, Numba", "20", "0.5 x"), ("tag_grid", "WarpDrive, CUDA C", "20", "25 x"),
        ("tag_grid", "of other copies", "40", ""),
    ]  # fmt: skip
    alone = tables.training(bench(*LEARNT[:4]))
    assert "| ours |" not in alone and len(alone.splitlines()) == 2 + 2 + 4


def test_the_readme_names_the_fastest_other_of_each_training_and_ours_of_its_algorithm():
    (line,) = tables.trained(LEARNT)
    assert line.startswith(
        "Training, whole iterations with learning, in env-steps/s: `cartpole`, 8 copies, PPO: 32, JAX 16; "
    )
    assert line.endswith("; `tag_grid` of 5 agents, 20 copies, A2C: 80, WarpDrive, Numba 160.")
    assert tables.trained(LEARNT[:4]) == []


def test_every_case_of_the_tables_exists():
    for works in (*ROLLOUTS.values(), *STEPS.values()):
        for work in works:
            envs.get(work.env).make_params(**work.params)


@pytest.mark.parametrize("file", ["README.md", "gallery/SPEED.md"])
def test_the_files_show_what_was_measured(file):
    text, made = (ROOT / file).read_text(), tables.tables()[file]
    assert tables.written(text, made) == text, "run: python -m cupydrive.bench.tables"
    assert text.count("written by cupydrive.bench.tables") == 2 * len(made)  # no table is left behind


def test_the_readmes_table_has_both_of_each_task():
    rows = tables.tables()["README.md"]["speed, briefly"].split("| --- |\n")[1].split("\n\n")[0].splitlines()
    who = [row.split(" | ")[2] for row in rows]
    assert len(rows) == 2 * len(tables.BRIEFLY) and who[1::2] == ["cupydrive"] * len(tables.BRIEFLY)
    assert "cupydrive" not in who[::2]


def test_the_pictures_of_the_speed_page_are_there():
    named = re.findall(r"\]\(([^)#]+)\)", (ROOT / "gallery" / "SPEED.md").read_text())
    assert named and all((ROOT / "gallery" / name).is_file() for name in named)
