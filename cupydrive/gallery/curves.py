"""Learning curves of the gallery: many seeds of what an entry shows, kept as points, drawn as medians with bands.

``curves.json`` holds, for each environment, how many seeds were trained where, and of each metric the points of each seed:
pairs (env-steps, value). A chart is drawn from it alone, so none has to be trained to be drawn otherwise.
"""

import datetime
import json
import textwrap
from pathlib import Path

import numpy as np

from cupydrive.drawing.stage import svg
from cupydrive.errors import RenderError
from cupydrive.executors import choose, executor
from cupydrive.executors.about import info
from cupydrive.inputs.files import file_errors, read_file, write_atomically
from cupydrive.inputs.formats import CURVES, MOST_JSON, FormatError, read_json
from cupydrive.terminal.curves import COLORS, RETURNS, Curves, draw_median, engineered, pooled
from cupydrive.training.train import train

FILE = "curves.json"
# Inches: of a chart, and of the height of a panel. As wide as a telephone, its letters can be read.
WIDTH, PANEL = 4.6, 2.5
LETTERS = 50  # of a line above a panel
ALIKE = 0.99  # correlation of two metrics of which one panel says all
MOVES = 0.02  # share of its largest value by which a metric changes, or its panel would show a constant
FAR = 4  # spans of the curves from which on a level beside them is told in words, or they would be flat


def read_curves(out):
    """Return what a gallery's folder holds of learning curves, by environment."""
    path = Path(out) / FILE
    if not path.exists():
        return {}
    with file_errors(RenderError, f"{path} cannot be read"):
        content = read_file(path, MOST_JSON)
    try:
        return read_json(content, CURVES, None)
    except FormatError as error:
        raise RenderError(f"{path} is damaged ({error}); move it away") from None


def write_curves(out, curves):
    """Write ``curves.json``: a curve is a line."""
    parts = []
    for name, about in sorted(curves.items()):
        lines = [
            f"   {json.dumps(key)}: [\n" + ",\n".join(f"    {json.dumps(points)}" for points in seeds) + "\n   ]"
            for key, seeds in about["points"].items()
        ]
        head = json.dumps({key: value for key, value in about.items() if key != "points"})[1:-1]
        parts.append(f' {json.dumps(name)}: {{\n  {head},\n  "points": {{\n' + ",\n".join(lines) + "\n  }\n }")
    write_atomically(Path(out) / FILE, ("{\n" + ",\n".join(parts) + "\n}\n").encode())


def of_runs(runs, keys, device):
    """Return what ``curves.json`` says of some runs that differ in their seeds."""
    points = {key: [rounded(pooled([row for row in run.metrics if key in row], key)) for run in runs] for key in keys}
    first, about = runs[0], info()
    return {
        "seeds": len(runs),
        "env_steps": first.step,
        "num_envs": first.num_envs,
        "device": executor(device).describe(),
        "versions": {name: about.versions[name] for name in ("cupydrive", "torch") if name in about.versions},
        "date": datetime.date.today().isoformat(),
        "points": points,
    }


def in_short(about, *others):
    """Return in words of which runs a chart is, maybe not the clips'; ``others`` differ in how many seeds they have."""
    numbers = sorted({each["seeds"] for each in (about, *others)})
    seeds = "One seed" if numbers == [1] else f"{' or '.join(map(str, numbers))} seeds"
    source = f" {about['source'][:1].upper()}{about['source'][1:]}." if "source" in about else ""
    return (
        f"{seeds} of {about['env_steps']:,} env-steps in {about['num_envs']:,} environments each, on {about['device']}, "
        f"{about['date']}.{source}"
    )


def rounded(points):
    """Return points (env-steps, value) with five digits of each value that count."""
    return [[int(step), float(f"{value:.5g}")] for step, value in points]


def train_curves(spec, out, plan, keys_of, seeds, device, seed, progress):
    """Train many seeds of what a gallery shows, side by side, and keep their curves.

    Args:
        spec: ``EnvSpec``.
        out: The gallery's folder.
        plan: (policies, parameters, env-steps, copies).
        keys_of: Called with a ``Run``: the metrics to keep.
        seeds: How many: ``seed``, ``seed + 1``, ...
        device: Where to train.
        seed: The first one.
        progress: Called with a line of text.

    Returns:
        The ``Run``s, by seed.
    """
    (policies, params, goal, num_envs), device = plan, choose(device)[0]
    options = dict(policies=policies, steps=goal, num_envs=num_envs, seed=seed, seeds=seeds, device=device)
    found = train(spec, **options, **params)
    runs = [run for k, run in enumerate(found.runs) if k not in found.failures]
    if min((run.step for run in runs), default=0) < goal:  # interrupted, or every run has failed: no curve to show
        raise (
            KeyboardInterrupt if runs else RenderError(f"{spec.name}: no seed was trained to its end: {found.failures}")
        )
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        write_curves(out, read_curves(out) | {spec.name: of_runs(runs, keys_of(runs[0]), device)})
    progress(f"{spec.name}: {len(runs)} seeds of {runs[0].step:,} env-steps")
    return runs


def worth_a_panel(points, levels):
    """Return the metrics that say something: no constants, and of those that say the same the first.

    Args:
        points: By metric, the points of each seed.
        levels: By player, its means by metric.
    """
    kept = []
    for key, seeds in points.items():
        values = np.array([value for curve in seeds for _, value in curve])
        known = np.array([*values, *(means[key] for means in levels.values() if key in means)])
        if not len(values) or np.ptp(known) <= MOVES * np.abs(known).max():
            continue
        if not any(correlation(seeds, points[other]) > ALIKE for other in kept):
            kept.append(key)
    return kept


def correlation(seeds, others):
    """Return how much the curves of one metric say of those of another, 0 to 1: the magnitude of the correlation."""
    pairs = [
        (np.interp([step for step, _ in curve], *np.transpose(other)), [value for _, value in curve])
        for curve, other in zip(seeds, others, strict=True)
        if curve and other
    ]
    if not pairs:
        return 0.0
    ours, theirs = (np.concatenate(values) for values in zip(*pairs, strict=True))
    return abs(np.corrcoef(ours, theirs)[0, 1]) if np.ptp(ours) and np.ptp(theirs) else 0.0


def chart(about, levels):
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
            style = dict(color=color, linewidth=1.4, linestyle="--")
            if key in means and far(means[key], *drawn):
                axes.plot([], [], **style, label=f"{player}: {means[key]:.4g}, not drawn")
            elif key in means:
                axes.axhline(means[key], **style, label=player)
        engineered(axes, "env-steps", in_words(key))
        if number == 0:
            where = f"{about['device']}, {about['date']}, {about['num_envs']:,} copies"
            axes.set_title(textwrap.fill(where, LETTERS), fontsize=10, loc="left")
        axes.legend(frameon=False, loc="best")
    return svg(figure)


def far(level, low, high):
    """Return whether a level is so far from what is drawn, between ``low`` and ``high``, that it would squeeze it flat."""
    return high > low and max(low - level, level - high) > FAR * (high - low)


def in_words(key):
    """Return what a metric is called on an axis, with its unit."""
    what, *group = key.removeprefix("charts/episodic_").split("/")
    unit = "steps" if what == "length" else "points"
    return f"{what} of an episode, {unit}" if not group else f"return of a {group[0]}, {unit}"
