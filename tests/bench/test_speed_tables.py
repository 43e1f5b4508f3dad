"""The README and gallery/SPEED.md show what the benchmark and the lessons found."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_speed_charts import LEARNT, bench, lesson, texts

from cupydrive import envs
from cupydrive.bench import cells, tables, training_tables
from cupydrive.bench.cases import ROLLOUTS, STEPS
from cupydrive.bench.charts import OURS
from cupydrive.bench.timing import short

ROOT = Path(__file__).resolve().parents[2]


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


def cells_of(table):
    """Return the cells of the rows of a Markdown table, the first of a text."""
    lines = table.split("| --- |\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_another_librarys_training_stands_below_ours_of_the_same_task_copies_and_algorithm():
    found = tables.training(bench(*LEARNT)).split("### ")[1:]
    assert [part.splitlines()[0] for part in found] == [
        "`cartpole`, PPO", "`cartpole`, A2C", "`tag_grid`, 5 agents, A2C"
    ]  # fmt: skip
    assert [[(copies, who, ours) for copies, who, _, ours, _ in cells_of(part)] for part in found] == [
        [("8", "cupydrive by kernels, tensor", ""), ("8", "JAX", "2.0 x")],
        [("8", "cupydrive by kernels, tensor", ""), ("8", "WarpDrive, Numba", "3.0 x")],
        [
            ("20", "cupydrive by kernels, tensor", ""), ("20", "cupydrive by torch, float32", ""),
            ("20", "WarpDrive, Numba", "0.5 x"), ("20", "WarpDrive, CUDA C", "25 x"), ("40", "of other copies", ""),
        ],
    ]  # fmt: skip
    assert "| ours |" not in tables.training(bench(*LEARNT[:4]))


def test_what_all_trainings_of_a_task_have_in_common_stands_above_them_and_the_rest_beside_each():
    side_by_side = lesson("tag_grid", 5, 20, 1.0, "2 runs of 10 copies side by side, a2c by kernels, exact, 2 policies")
    part = tables.training(bench(*LEARNT[2:4], side_by_side, *LEARNT[5:8])).split("### ")[1]
    assert part.splitlines()[2] == "4 steps an iteration, network 6-64-64-6, 2 policies:"
    assert [(who, *more) for _, who, _, *more in cells_of(part)] == [
        ("cupydrive by kernels, tensor", "", ""), ("cupydrive by torch, float32", "", ""),
        ("cupydrive by kernels, exact", "", "2 runs of 10 copies side by side"),
        ("WarpDrive, Numba", "0.5 x", "1 update an iteration"), ("WarpDrive, CUDA C", "25 x", "1 update an iteration"),
    ]  # fmt: skip


def test_columns_that_are_empty_in_all_rows_are_left_out():
    counted = dict(kernels="", operations_per_step=10)
    rows = [replace(row, **counted) for row in LEARNT[2:4]]
    assert "registers" not in tables.training(bench(*rows)) and "not as above" not in tables.training(bench(*rows))
    rows[1] = replace(rows[1], kernels="gradient 168 registers")
    folded = tables.training(bench(*rows)).split("; their registers</summary>")[1]
    assert [row[-1] for row in cells_of(folded)] == ["", "gradient 168"]
    for table in re.findall(r"(?:^\|.*\n)+", tables.training(tables.results()["several GPUs"]), re.M):
        cells = [line.split("|")[1:-1] for line in table.splitlines()]
        assert all(any(cell.strip() for cell in column[2:]) for column in zip(*cells, strict=True))


def test_the_lowest_governors_earn_more_than_the_best_constant_level_which_is_more_than_asked_for():
    """As SPEED.md says it."""
    gallery, lesson = tables.committed("gallery.json"), tables.committed("learning.json")["covid_economy governors"]
    (level,) = (clip["means"] for clip in gallery["covid_economy"]["clips"] if clip["kind"] == "heuristic")
    asked = {"governor": lesson["mark"], "planner": lesson["bounds"]["planner"][0]}
    for name, least in asked.items():
        assert least < level[f"return {name}"][0] < min(seed[name][0] for seed in lesson["seeds"])


def test_no_training_and_no_figure_of_it_is_left_out():
    result = tables.results()["training"]
    rows = [row for row in result.rows if row.case == "training"]
    text = tables.training(result)
    listed = [line.count("|") - 1 for line in text.splitlines() if re.match(r"\| [\d,]+ \|", line)]
    counted = [row for row in rows if row.operations_per_step is not None]
    assert len(listed) == len(rows) + len(counted) > len(rows) and max(listed) <= 6
    for row in rows:
        beginning = f"| {row.num_envs:,} | {training_tables.who_learns(row)} |"
        lines = [line for line in text.splitlines() if line.startswith(beginning)]
        assert any(f"| {short(row.rate)} |" in line for line in lines)
        assert row not in counted or any(" | ".join(cells.computed(result, row)) in line for line in lines)
        assert all(number in text for number in re.findall(r"\w+ \d+(?= registers)", row.kernels))


def test_notes_of_other_libraries_are_told_in_words_and_keep_their_figures():
    rows = [row for result in tables.results().values() for row in result.rows if row.case in ("rollout", "stepping")]
    pieces = {piece for row in rows if row.who not in OURS and row.note for piece in row.note.split("; ")}
    assert pieces and {piece for piece in pieces if cells.told(piece) == piece} == set()
    assert all(re.findall(r"[\d.]+", piece) == re.findall(r"[\d.]+", cells.told(piece)) for piece in pieces)
    assert cells.in_words("bfloat16 observations") == "bfloat16 observations"


def test_the_readme_names_the_fastest_other_of_each_training_and_ours_of_its_algorithm():
    found = [tables.beside(*pair) for pair in tables.trained(LEARNT)]
    assert found == [
        ["training, PPO", "`cartpole`", "8", "32", "16, JAX", "2.0 x"],
        ["training, A2C", "`tag_grid`, 5 agents", "20", "80", "160, WarpDrive, Numba", "0.5 x"],
    ]
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


@pytest.mark.full
def test_the_readmes_table_shows_what_the_charts_show_and_says_what_is_not_alike():
    """Rollouts and training of each task, and rollouts on a CPU; each rate and factor is that of a chart beside it."""
    text, results = tables.tables()["README.md"]["speed, briefly"], tables.results()
    rows = cells_of(text)
    charts = [texts(tables.chart(results["cuda"]))] * 2 + [texts(tables.training_chart(results["training"]))] * 3
    charts.append(texts(tables.chart(results["cpu"])))
    assert [row[0].split(",")[0] for row in rows] == ["random rollouts"] * 2 + ["training"] * 3 + [
        "random rollouts on a CPU"
    ]
    for (_, task, copies, own, other, ratio), written in zip(rows, charts, strict=True):
        rate, _, who = other.replace("environments", "copies").partition(", ")
        assert own in written and f"{rate}, ours {ratio}" in written and who in written
        assert [title for title in written if title.startswith(task.replace("`", "")) and f" {copies} copies" in title]
    assert "cupydrive stores every step, gymnax stores no trajectory and WarpDrive stores only the last step" in text
    assert f"WarpDrive was {cells.ELSEWHERE}." in text and "Numba" not in text


def test_the_pictures_of_the_speed_page_are_there():
    named = re.findall(r"\]\(([^)#]+)\)", (ROOT / "gallery" / "SPEED.md").read_text())
    assert named and all((ROOT / "gallery" / name).is_file() for name in named)
