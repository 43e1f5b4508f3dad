"""Learning curves of the gallery: medians and quartiles over seeds, stored as points.

``curves.json`` contains the number of seeds, the device, and the points (environment steps, value)
of each metric and seed, for each environment. Charts are drawn only from this file, so that a new
style needs no training.
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
# Width of a chart and height of a panel in inches, legible at the width of a phone.
WIDTH, PANEL = 4.6, 2.5
LINE_LETTERS = 50  # characters of a line above a panel
FAR_SPANS = 4  # distance at which a level is omitted, relative to the range of the curves


def read_checked(path: Path) -> dict[str, dict[str, Any]]:
    """Read a JSON file of a gallery, by environment. A missing file gives an empty dictionary."""
    if not path.exists():
        return {}
    with file_errors(RenderError, f"{path} cannot be read"):
        content = read_file(path, MOST_JSON)
    try:
        return read_json(content, GALLERY)
    except FormatError as error:
        raise RenderError(f"{path} is damaged ({error}). Move it away") from None


def read_curves(out: Path) -> dict:
    """Read the learning curves of a gallery's folder, by environment."""
    return read_checked(out / CURVES_FILE)


def write_curves(out: Path, curves: dict) -> None:
    """Write ``curves.json`` with one line per environment."""
    lines = [f"{json.dumps(name)}: {json.dumps(about)}" for name, about in sorted(curves.items())]
    write_atomically(out / CURVES_FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def curve_keys(run: Run) -> list[str]:
    """Return the available metrics of a learning curve: returns of learning groups, and lengths."""
    learners, alone = (
        [name for key in run.learners for name in key.split("+")],
        len(run.batch.groups) == 1,
    )
    returns = [f"{RETURNS}{'' if alone else '/' + name}" for name in learners]
    known = {key for row in run.metrics for key in row}
    return [key for key in (*returns, "charts/episodic_length") if key in known]


def of_runs(runs: list[Run], keys: list[str]) -> dict:
    """Return the entry of ``curves.json`` for runs that differ in their seeds."""
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
    """Return the points (environment steps, value) of each run by metric, with five significant
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
    """Draw the learning curves of one environment as an SVG file, with medians and quartiles.

    Args:
        about: Entry of ``curves.json`` for the environment.
        levels: Means for comparison, ``{policy: {metric: value}}``. Values far from the curves are
            omitted.
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
    """Return whether a level is so far from the curves that it would flatten them."""
    values = [value for curve in seeds for _, value in curve if math.isfinite(value)]
    if not values:
        return False
    low, high = min(values), max(values)
    return high > low and max(low - level, level - high) > FAR_SPANS * (high - low)
