"""Learning curves of the gallery: many seeds of what an entry shows, kept as points, drawn as
medians with bands.

``curves.json`` holds, for each environment, how many seeds were trained where, and of each metric
the points of each seed: pairs (env-steps, value). A chart is drawn from it alone, so none has to be
trained to be drawn otherwise.
"""

import datetime
import json
import math
import textwrap
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from cupydrive.drawing.curves import DARK, RETURNS, Curves, engineered, panel, pooled
from cupydrive.drawing.palette import Palette
from cupydrive.errors import RenderError
from cupydrive.executors import executor
from cupydrive.executors.about import info
from cupydrive.inputs.files import file_errors, read_file, write_atomically
from cupydrive.inputs.formats import GALLERY, MOST_JSON, FormatError, read_json
from cupydrive.training.run import Run

CURVES_FILE = "curves.json"
# Inches: of a chart, and of the height of a panel. As wide as a telephone, its letters can be read.
WIDTH, PANEL = 4.6, 2.5
LINE_LETTERS = 50  # of a line above a panel
FAR_SPANS = 4  # spans of the curves


def read_checked(path: Path) -> dict[str, dict[str, Any]]:
    """Return what a JSON file of a gallery holds, by environment; nothing if there is no file."""
    if not path.exists():
        return {}
    with file_errors(RenderError, f"{path} cannot be read"):
        content = read_file(path, MOST_JSON)
    try:
        return read_json(content, GALLERY)
    except FormatError as error:
        raise RenderError(f"{path} is damaged ({error}); move it away") from None


def read_curves(out: Path) -> dict:
    """Return what a gallery's folder holds of learning curves, by environment."""
    return read_checked(out / CURVES_FILE)


def write_curves(out: Path, curves: dict) -> None:
    """Write ``curves.json``: an environment is a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(about)}" for name, about in sorted(curves.items())]
    write_atomically(out / CURVES_FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def curve_keys(run: Run) -> list[str]:
    """Return the metrics of a learning curve that are known yet: returns of the groups that learn,
    and lengths.
    """
    learners, alone = (
        [name for key in run.learners for name in key.split("+")],
        len(run.batch.groups) == 1,
    )
    returns = [f"{RETURNS}{'' if alone else '/' + name}" for name in learners]
    known = {key for row in run.metrics for key in row}
    return [key for key in (*returns, "charts/episodic_length") if key in known]


def of_runs(runs: list[Run], keys: list[str]) -> dict:
    """Return what ``curves.json`` says of some runs that differ in their seeds."""
    first, versions = runs[0], info().versions
    return {
        "seeds": len(runs),
        "env_steps": first.step,
        "num_envs": first.num_envs,
        "device": executor(first.device).describe(),
        "versions": {name: versions[name] for name in ("cupydrive", "torch") if name in versions},
        "date": datetime.date.today().isoformat(),
        "points": points_of([run.metrics for run in runs], keys),
    }


def points_of(metrics: list[list[dict]], keys: list[str]) -> dict[str, list]:
    """Return the points (env-steps, value) of each run by metric, values with five significant
    digits.
    """
    return {
        key: [
            [[int(step), float(f"{value:.5g}")] for step, value in pooled(rows, key)]
            for rows in metrics
        ]
        for key in keys
    }


@rc_context(DARK)
def chart(about: dict[str, Any], levels: dict[str, dict[str, float]]) -> bytes:
    """Return the learning curves of one environment as bytes of an SVG file: medians over seeds,
    with their quartiles.

    Args:
        about: Content of ``curves.json`` for the environment.
        levels: Means to compare with: ``{player: {metric: value}}``. Those far from the curves are
            left out.
    """
    keys = [key for key in about["points"] if key.startswith(RETURNS)] or [RETURNS]
    figure = Curves(figsize=(WIDTH, PANEL * len(keys)), layout="constrained")
    label = (
        "trained, one seed"
        if about["seeds"] == 1
        else f"{about['seeds']} seeds, median and quartiles"
    )
    for number, key in enumerate(keys):
        axes, seeds = figure.add_subplot(len(keys), 1, number + 1), about["points"].get(key, [])
        near = {
            player: means[key]
            for player, means in levels.items()
            if key in means and not far(means[key], seeds)
        }
        panel(axes, {label: seeds}, near, Palette.CURVES)
        group = key.removeprefix(RETURNS).removeprefix("/")
        engineered(
            axes, "env-steps", f"return of {f'a {group}' if group else 'an episode'}, points"
        )
        if number == 0:
            where = f"{about['device']}, {about['date']}, {about['num_envs']:,} environments"
            axes.set_title(textwrap.fill(where, LINE_LETTERS), fontsize=10, loc="left")
    return figure.svg()


def far(level: float, seeds: list[list[list[float]]]) -> bool:
    """Return whether a level is so far from the curves of the seeds that it would flatten them."""
    values = [value for curve in seeds for _, value in curve if math.isfinite(value)]
    if not values:
        return False
    low, high = min(values), max(values)
    return high > low and max(low - level, level - high) > FAR_SPANS * (high - low)
