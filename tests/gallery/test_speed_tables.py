"""The README and gallery/SPEED.md show what the benchmark and the lessons found."""

import re
from pathlib import Path

import pytest
import speed_tables as tables
from speed_charts import rollout_chart, training_chart
from startup import start_times
from test_speed_charts import LEARNT, bench, lesson, texts

from cupydrive.bench import short

ROOT = Path(__file__).resolve().parents[2]


def cells_of(table):
    """Return the cells of the rows of a Markdown table, the first of a text."""
    lines = table.split("| --- |\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_training_of_others_stands_below_ours_of_the_same_task_copies_and_algorithm():
    """What all rows of a task share stands above the table, and the rest in its last column; empty
    columns are left out.
    """
    side_by_side = lesson(
        "tag_grid",
        5,
        20,
        1.0,
        "2 runs of 10 copies side by side, a2c by kernels, exact, 2 policies",
    )
    found = tables.training(bench(*LEARNT[:4], side_by_side, *LEARNT[4:])).split("### ")[1:]
    assert [part.splitlines()[0] for part in found] == [
        "`cartpole`, PPO", "`cartpole`, A2C", "`tag_grid`, 5 agents, A2C"
    ]  # fmt: skip
    assert found[2].splitlines()[2] == "4 steps per iteration, network 6-64-64-6, 2 policies:"
    assert cells_of(found[0])[1][:4] == ["8", "JAX", "16", "2.0 x"]
    assert cells_of(found[2]) == [
        ["20", "cupydrive by kernels, tensor", "80", "", ""],
        ["20", "cupydrive by torch, float32", "20", "", ""],
        ["20", "cupydrive by kernels, exact", "80", "", "2 runs of 10 copies side by side"],
        ["20", "WarpDrive, Numba", "160", "0.5 x", "1 update an iteration"],
        ["20", "WarpDrive, CUDA C", "3.2", "25 x", "1 update an iteration"],
        ["40", "of other copies", "6.4", "", "1 update an iteration"],
    ]
    assert "| ratio |" not in tables.training(bench(*LEARNT[:4]))


def test_no_training_and_no_figure_of_it_is_left_out():
    result = tables.results()["training"]
    text = tables.training(result)
    rows = tables.of_case(result, "training")
    assert sum(bool(re.match(r"\| [\d,]+ \|", line)) for line in text.splitlines()) == len(rows) > 0
    for row in rows:
        beginning = f"| {row.num_envs:,} | {tables.learner_of(row)} | {short(row.rate)} |"
        figures = " | ".join(tables.computed(result, row))
        assert any(line.startswith(beginning) and figures in line for line in text.splitlines())


@pytest.mark.parametrize("file", ["README.md", "gallery/SPEED.md"])
def test_the_files_show_what_was_measured(file):
    text, made = (ROOT / file).read_text(), tables.tables()[file]
    assert tables.written(text, made) == text, "run: python gallery/speed_tables.py"
    # no table is left behind
    assert text.count("written by gallery/speed_tables.py") == 2 * len(made)


@pytest.mark.full
def test_the_readmes_table_shows_what_the_charts_show_and_says_what_is_not_alike():
    """Rollouts and training of each task, and rollouts on a CPU; each rate and factor is that of a
    chart beside it.
    """
    text, results = tables.tables()["README.md"]["speed, briefly"], tables.results()
    rows = cells_of(text)
    charts = [texts(rollout_chart(results["cuda"]))] * 2 + [
        texts(training_chart(results["training"]))
    ] * 3
    charts.append(texts(rollout_chart(results["cpu"])))
    assert [row[0].split(",")[0] for row in rows] == ["random rollouts"] * 2 + ["training"] * 3 + [
        "random rollouts on a CPU"
    ]
    for (_, task, copies, own, other, ratio), written in zip(rows, charts, strict=True):
        rate, _, who = other.partition(", ")
        assert own in written and f"{rate}, ours {ratio}" in written and who in written
        assert [
            title
            for title in written
            if title.startswith(task.replace("`", "")) and f" {copies} environments" in title
        ]
    notes = {
        row.who.split()[0]: row.note
        for name in ("cuda", "cpu")
        for row in tables.of_case(results[name], "rollout")
    }
    assert (
        "stores no trajectory" in notes["gymnax"]
        and "stores only the last step" in notes["WarpDrive"]
    )
    assert (
        "another run, on a machine with a slower CPU" in notes["WarpDrive"] and "Numba" not in text
    )
    trained = tables.of_case(results["training"], "training")
    assert (
        trained[0].factors == "bfloat16" and tables.fastest_of_ours(trained[:1]).env == "cartpole"
    )


def test_the_pictures_of_the_speed_page_are_there():
    named = re.findall(r"\]\(([^)#]+)\)", (ROOT / "gallery" / "SPEED.md").read_text())
    assert named and all((ROOT / "gallery" / name).is_file() for name in named)


@pytest.mark.full
def test_a_start_is_timed_by_its_parts():
    start = start_times("cartpole", {}, "cpu")
    for parts in start.values():
        assert list(parts) == [
            "import torch",
            "CUDA context",
            "import cupydrive",
            "make",
            "first step",
        ]
    assert start["warm"]["make"] < start["cold"]["make"]  # nothing is compiled again
