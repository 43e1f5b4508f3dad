"""The program behind the figures of convergence: what it pools and says together, what it keeps,
what it draws.
"""

import json
from pathlib import Path

import convergence
import numpy as np
import pytest
from convergence import RETURN, measure, pooled, results
from matplotlib.image import imread

import cupydrive as cd
from cupydrive.errors import CupydriveError

SMALL = cd.PPO(num_steps=8, hidden=(16,), num_minibatches=2)
WORK = {"cartpole": (SMALL, {4: 1024, 8: 1024})}
MACHINE = {"command": "c", "machine": "m", "versions": {"cupydrive": "0"}}


def test_points_are_means_between_steps_of_equal_ratio():
    rows = [(step, step / 10, float(step)) for step in range(1, 1001)]
    steps, seconds, means = np.array(pooled(rows)).T
    assert (
        len(steps) <= convergence.POINTS
        and steps[0] == 1
        and steps[-1] == 1000
        and (np.diff(steps) > 0).all()
    )
    assert np.allclose(means[1:], (steps[:-1] + 1 + steps[1:]) / 2, rtol=1e-4) and np.allclose(
        seconds, steps / 10
    )
    assert (steps[1:] / steps[:-1])[-20:].max() < 1000 ** (2 / convergence.POINTS)
    assert pooled([]) == [] and pooled([(64, 0.5, 9.0)]) == [[64, 0.5, 9.0]]


def test_results_are_those_of_the_median_seed():
    """Three straight lines whose slopes are 1, 2 and 4: the median reaches 40 after 20 env-steps, 2
    s.
    """
    cells = [
        {
            "env": "e",
            "copies": 10,
            "seed": k,
            "curve": [[s, s / 10, float(slope * s)] for s in (5 + k, 20, 40)],
        }
        for k, slope in enumerate((1, 4, 2))
    ]
    about = {"title": "E", "mark": 40.0, "settings": "", "env_steps": {"10": 40}}
    (row,) = results({"envs": {"e": about}, "cells": cells})
    assert (row["return"], row["env_steps_to_mark"], row["seconds_to_mark"]) == (
        [60.0, 80.0, 120.0],
        20.0,
        2.0,
    )
    (row,) = results({"envs": {"e": about | {"mark": 81.0}}, "cells": cells})
    assert row["env_steps_to_mark"] is row["seconds_to_mark"] is None
    assert results({"envs": {"e": about | {"mark": None}}, "cells": cells})[0]["seeds"] == 3


def test_a_cell_is_a_training_and_its_curve_what_that_logged():
    cell = convergence.train_cell("cartpole", SMALL, 8, 1, 4096, "cpu")
    run = cd.train("cartpole", SMALL, num_envs=8, seed=1, steps=4096, device="cpu", progress=False)
    expected = pooled(
        [(row["charts/global_step"], 0.0, row[RETURN]) for row in run.metrics if RETURN in row]
    )
    assert [(step, mean) for step, _, mean in cell["curve"]] == [
        (step, mean) for step, _, mean in expected
    ]
    seconds = [second for _, second, _ in cell["curve"]]
    assert (
        seconds == sorted(seconds)
        and 0 < seconds[-1] <= cell["seconds"]
        and cell["env_steps"] == run.step
    )


def test_an_interrupt_keeps_cells_and_the_next_call_trains_the_others(tmp_path, monkeypatch):
    trained, path, seen = convergence.train_cell, tmp_path / "c.json", []

    def noted(env, settings, copies, seed, *others):
        seen.append((copies, seed))
        if len(seen) == 4:
            raise KeyboardInterrupt
        return trained(env, settings, copies, seed, *others)

    monkeypatch.setattr(convergence, "train_cell", noted)
    assert measure(WORK, 2, "cpu", MACHINE, path)["interrupted"]
    first = json.loads(path.read_text())["cells"]
    assert [(cell["copies"], cell["seed"]) for cell in first] == [(4, 0), (8, 0), (4, 1)]
    found = measure(WORK, 2, "cpu", MACHINE, path)
    assert seen == [(4, 0), (8, 0), (4, 1), (8, 1), (8, 1)] and found["cells"][:3] == first
    kept = json.loads(path.read_text())
    assert (
        kept["cells"] == found["cells"]
        and kept["results"] == results(found)
        and "interrupted" not in kept
    )
    for work, machine, message in (
        (
            {"cartpole": (cd.PPO(num_steps=16), {4: 1024})},
            MACHINE,
            r"has cells of PPO\(.*, not PPO\(",
        ),
        (
            {"cartpole": (SMALL, {4: 2048})},
            MACHINE,
            "has cells of 1,024 env-steps, not 2,048 env-steps",
        ),
        (WORK, MACHINE | {"machine": "n"}, "has cells of m, not n; name another file"),
    ):
        with pytest.raises(CupydriveError, match=message):
            measure(work, 2, "cpu", machine, path)
    assert json.loads(path.read_text()) == kept
    assert len(measure({"cartpole": (SMALL, {2: 512})}, 1, "cpu", MACHINE, path)["cells"]) == 5
    assert json.loads(path.read_text())["envs"]["cartpole"]["env_steps"] == {
        "4": 1024,
        "8": 1024,
        "2": 512,
    }


@pytest.mark.full
def test_charts_are_drawn_from_the_file_alone(tmp_path, monkeypatch, capsys):
    path = tmp_path / "c.json"
    found = measure(WORK, 2, "cpu", MACHINE, path)
    monkeypatch.setattr(convergence, "train_cell", None)
    assert convergence.main([str(path), "--redraw"]) == 0
    for axis in convergence.AXES:
        figure = convergence.chart(found, axis)
        (axes,) = figure.axes
        assert axes.get_xscale() == "log" and axes.get_legend_handles_labels()[1][:2] == ["4", "8"]
        assert imread(tmp_path / f"c-{axis}.png").shape[:2] == tuple(
            figure.bbox.size[::-1].astype(int)
        )
    assert "env_steps_to_mark" in capsys.readouterr().out


def test_the_committed_trainings_are_as_the_gallery_says():
    """CartPole takes as many iterations with 100 copies as with 100,000, nearly, and those of more
    copies take longer.
    """
    found = json.loads((Path(convergence.__file__).parent / "convergence.json").read_text())
    rows = {
        row["copies"]: row
        for row in results(found)
        if row["env"] == "cartpole" and row["copies"] >= 100
    }
    iterations = {copies: row["env_steps_to_mark"] / (32 * copies) for copies, row in rows.items()}
    assert "num_steps=32" in found["envs"]["cartpole"]["settings"]
    assert len(rows) == 4 and max(iterations.values()) < 1.1 * min(iterations.values())
    seconds = [row["seconds_to_mark"] for row in rows.values()]
    assert seconds == sorted(seconds) and seconds[-1] > 10 * seconds[0]
