"""Learning curves of the gallery: many seeds of what an entry shows, kept as points, drawn as medians with bands.

``curves.json`` holds, for each environment, how many seeds were trained where, and of each metric the points of each seed:
pairs (env-steps, value). A chart is drawn from it alone, so none has to be trained to be drawn otherwise.
"""

import datetime
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from cupydrive.drawing.stage import svg
from cupydrive.errors import RenderError
from cupydrive.executors import executor
from cupydrive.executors.about import info
from cupydrive.inputs.files import file_errors, read_file, write_atomically
from cupydrive.inputs.formats import CURVES, MOST_JSON, FormatError, read_json
from cupydrive.terminal.curves import COLORS, RETURNS, Curves, draw_median, engineered, pooled
from cupydrive.training.run import Run

FILE = "curves.json"
# Inches: of a chart, and of the height of a panel. As wide as a telephone, its letters can be read.
WIDTH, PANEL = 4.6, 2.5
LETTERS = 50  # of a line above a panel
ALIKE = 0.99  # correlation of two metrics of which one panel says all
MOVES = 0.02  # share of its largest value by which a metric changes, or its panel would show a constant
FAR = 4  # spans of the curves from which on a level beside them is told in words, or they would be flat


def read_checked(path: Path, kind: dict) -> Any:
    """Return what a JSON file of a gallery holds, by environment; nothing if there is no file."""
    if not path.exists():
        return {}
    with file_errors(RenderError, f"{path} cannot be read"):
        content = read_file(path, MOST_JSON)
    try:
        return read_json(content, kind, finite=False)  # metrics of a training that failed are NaN
    except FormatError as error:
        raise RenderError(f"{path} is damaged ({error}); move it away") from None


def read_curves(out: Path) -> dict:
    """Return what a gallery's folder holds of learning curves, by environment."""
    return read_checked(out / FILE, CURVES)


def write_curves(out: Path, curves: dict) -> None:
    """Write ``curves.json``: an environment is a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(about)}" for name, about in sorted(curves.items())]
    write_atomically(out / FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def curve_keys(run: Run) -> list[str]:
    """Return the metrics of a learning curve that are known yet: returns of the groups that learn, and lengths."""
    learners, alone = [name for key in run.learners for name in key.split("+")], len(run.batch.groups) == 1
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
    """Return the points (env-steps, value) of each run by metric, values with five significant digits."""
    return {
        key: [
            [[int(step), float(f"{value:.5g}")] for step, value in pooled([row for row in rows if key in row], key)]
            for rows in metrics
        ]
        for key in keys
    }


def worth_a_panel(points: dict[str, list], levels: dict[str, dict[str, float]]) -> list[str]:
    """Return the metrics that say something: no constants, and of those that say the same the first.

    Args:
        points: By metric, the points of each seed.
        levels: By player, its means by metric.
    """
    kept: dict[str, np.ndarray] = {}
    for key, seeds in points.items():
        values = np.array([value for curve in seeds for _, value in curve])
        known = np.array([*values, *(means[key] for means in levels.values() if key in means)])
        constant = not len(values) or np.ptp(known) <= MOVES * np.abs(known).max()
        if not constant and not any(same(values, others) for others in kept.values()):
            kept[key] = values
    return list(kept)


def same(values: np.ndarray, others: np.ndarray) -> bool:
    """Return whether one metric follows from another: their points are as many, and correlated."""
    moving = len(values) == len(others) and np.ptp(values) and np.ptp(others)
    return bool(moving) and abs(np.corrcoef(values, others)[0, 1]) > ALIKE


def chart(about: dict, levels: dict[str, dict[str, float]]) -> bytes:
    """Return the learning curves of one environment as bytes of an SVG file: medians over seeds, with their quartiles.

    Args:
        about: What ``curves.json`` says of it.
        levels: Means to compare with: ``{player: {metric: value}}``.
    """
    # One panel there is, even of a training that was too short for a curve.
    keys = worth_a_panel(about["points"], levels) or [*about["points"], RETURNS][:1]
    figure = Curves(figsize=(WIDTH, PANEL * len(keys)), layout="constrained")
    many = about["seeds"] > 1
    for number, key in enumerate(keys):
        axes = figure.add_subplot(len(keys), 1, number + 1)
        label = f"{about['seeds']} seeds, median and quartiles" if many else "trained, one seed"
        draw_median(
            axes, [[tuple(point) for point in curve] for curve in about["points"].get(key, [])], COLORS[0], label
        )
        drawn = axes.dataLim.intervaly.copy()
        for (player, means), color in zip(levels.items(), COLORS[1:], strict=False):
            style: dict[str, Any] = dict(color=color, linewidth=1.4, linestyle="--")
            if key in means and far(means[key], *drawn):
                axes.plot([], [], **style, label=f"{player}: {means[key]:.4g}, not drawn")
            elif key in means:
                axes.axhline(means[key], **style, label=player)
        what, *group = key.removeprefix("charts/episodic_").split("/")
        title = f"return of a {group[0]}" if group else f"{what} of an episode"
        engineered(axes, "env-steps", f"{title}, {'steps' if what == 'length' else 'points'}")
        if number == 0:
            where = f"{about['device']}, {about['date']}, {about['num_envs']:,} copies"
            axes.set_title(textwrap.fill(where, LETTERS), fontsize=10, loc="left")
        axes.legend(frameon=False, loc="best")
    return svg(figure)


def far(level: float, low: float, high: float) -> bool:
    """Return whether a level is so far from what is drawn, between ``low`` and ``high``, that it would squeeze it flat."""
    return high > low and max(low - level, level - high) > FAR * (high - low)
