"""Learning curves as Matplotlib figures, without pyplot, so that no backend or window is opened."""

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from PIL import Image

from cupydrive.drawing.palette import Palette
from cupydrive.errors import ParameterError, did_you_mean
from cupydrive.inputs.arguments import checked_float, checked_mapping, checked_str, shown

# Colors on white that are distinguishable with color blindness.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Style of the gallery's figures: Matplotlib settings with colors of pictures and 10-point text.
LETTER_SIZE = 10.0
DARK = {
    "font.size": LETTER_SIZE,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), Palette.STAGE),
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
        Palette.INK,
    ),
    "grid.color": Palette.SOFT,
}
RETURNS = "charts/episodic_return"
# Prefixes of metrics that are means over the latest episode of each environment.
OF_EPISODES = ("charts/episodic_", "env/")
PANEL_SIZE = (4.2, 2.6)  # inches
POINTS = 150  # maximum number of points of one curve

MetricRow: TypeAlias = Mapping[str, float]  # metrics by name
CurvePoints: TypeAlias = Sequence[Sequence[float]]  # (environment steps, value) of one run


class Curves(Figure):
    """A Matplotlib figure that a notebook displays without further settings."""

    def png(self, dots: float | None = None) -> bytes:
        """Return the figure as a PNG file with a palette, which has a third of the usual size.

        Args:
            dots: Pixels per inch. Defaults to the figure's resolution.
        """
        file, small = io.BytesIO(), io.BytesIO()
        self.savefig(file, format="png", dpi=dots or "figure")
        Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "PNG")
        return small.getvalue()

    def svg(self) -> bytes:
        """Return the figure as a deterministic SVG file with searchable texts."""
        file = io.BytesIO()
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cupydrive"}):
            self.savefig(file, format="svg", metadata={"Date": None})
        return b"\n".join(line.rstrip() for line in file.getvalue().splitlines()) + b"\n"

    def _repr_png_(self) -> bytes:
        return self.png()


def pooled(rows: Sequence[MetricRow], key: str) -> list[tuple[float, float]]:
    """Return up to ``POINTS`` points (environment steps, value) of a metric, as means of adjacent
    rows.
    """
    rows = [row for row in rows if key in row]
    each = -(-len(rows) // POINTS) or 1
    points = []
    for first in range(0, len(rows), each):
        part = rows[first : first + each]
        points.append((part[-1]["charts/global_step"], sum(row[key] for row in part) / len(part)))
    return points


def curves(
    rows: Sequence[MetricRow] | Mapping[str, Sequence[Sequence[MetricRow]]],
    keys: Sequence[str] | None = None,
    levels: Mapping[str, Mapping[str, float]] | None = None,
    title: str | None = None,
) -> Curves:
    """Plot one panel per metric over environment steps.

    Args:
        rows: Metrics in the format of ``Run.metrics``, or, by label, a list of the metrics of
            several runs. The median of these runs is drawn, with the quartiles as a band. Metrics
            of episodes are means over the latest episode of each environment, and begin when each
            environment has finished one.
        keys: Names of metrics. Defaults to the episodic return of every group.
        levels: Horizontal lines for comparison, ``{label: {key: value}}``.
        title: Title above all panels.

    Raises:
        ParameterError: If no row has a metric of this name. Metrics of episodes that are not
            available yet give an empty panel instead.
    """
    by_label: dict[str, Sequence[Sequence[MetricRow]]] = (
        dict(rows) if isinstance(rows, Mapping) else {"": [rows]}
    )
    known = list(
        dict.fromkeys(
            key for runs in by_label.values() for rows in runs for row in rows for key in row
        )
    )
    if keys is None:
        keys = [key for key in known if key.startswith(RETURNS)] or [RETURNS]
    else:
        # True while some environment has not finished an episode.
        waiting = not any(key.startswith(OF_EPISODES) for key in known)
        for key in keys:
            checked_str("plot", "a metric of keys", key)
            if key not in known and not (waiting and key.startswith(OF_EPISODES)):
                raise ParameterError(
                    f"unknown metric {shown(key)}.{did_you_mean(key, known)} Metrics: "
                    f"{', '.join(known)}"
                )
    levels = {} if levels is None else checked_mapping("plot", "levels", levels)
    for label, values in levels.items():
        for key, value in checked_mapping("plot", f"levels[{label!r}]", values).items():
            checked_float("plot", f"levels[{label!r}][{key!r}]", value)
    figure = Curves(
        figsize=(PANEL_SIZE[0] * len(keys), PANEL_SIZE[1]), dpi=110, layout="constrained"
    )
    for number, key in enumerate(keys):
        axes = figure.add_subplot(1, len(keys), number + 1)
        medians = {label: [pooled(rows, key) for rows in runs] for label, runs in by_label.items()}
        panel(
            axes,
            medians,
            {label: values[key] for label, values in levels.items() if key in values},
            COLORS,
        )
        engineered(axes, "env-steps", key.split("/", 1)[1].replace("_", " ").replace("/", ", "))
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def panel(
    axes: Axes,
    medians: Mapping[str, Sequence[CurvePoints]],
    levels: Mapping[str, float],
    colors: Iterable[str],
) -> None:
    """Draw medians of runs by label, dashed lines for ``levels``, and a legend."""
    shades = cycle(colors)
    for (label, runs), color in zip(medians.items(), shades, strict=False):
        draw_median(axes, runs, color, label)
    for (label, value), color in zip(levels.items(), shades, strict=False):
        axes.axhline(value, color=color, linewidth=1.3, linestyle="--", label=label)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(framealpha=0.8, edgecolor="none", fontsize=9)


def engineered(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label a panel's axes, format large numbers of x as 10 k or 2 M, and remove needless lines."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def quartiles(
    runs: Sequence[CurvePoints], share: float = 0.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute quartiles over runs, at environment steps at which enough of the runs have a value.

    Args:
        runs: Points (environment steps, value) of each run, ascending, between which values are
            interpolated. Runs without points are ignored.
        share: Required fraction of the runs.

    Returns:
        Four arrays (P,): environment steps, lower quartile, median and upper quartile.
    """
    runs = [points for points in runs if points]
    steps = np.unique([step for points in runs for step, _ in points])
    values = np.full((len(runs), len(steps)), np.nan)
    for row, points in zip(values, runs, strict=True):
        xs, ys = np.transpose(points)
        row[:] = np.interp(steps, xs, ys, left=np.nan, right=np.nan)
    enough = np.isfinite(values).sum(axis=0) >= max(1, share * len(runs))
    steps, values = steps[enough], values[:, enough]
    return steps, *(
        np.nanpercentile(values, (25, 50, 75), axis=0) if steps.size else np.empty((3, 0))
    )


def draw_median(
    axes: Axes, runs: Sequence[CurvePoints], color: str, label: str, share: float = 0.5
) -> None:
    """Draw the median of several runs over environment steps, and the quartiles as a band.

    The curve is drawn where a fraction of at least ``share`` of the runs has a value.
    """
    steps, low, middle, high = quartiles(runs, share)
    few = "." if len(steps) < 3 else None
    axes.plot(steps, middle, color=color, linewidth=1.6, marker=few, label=label or None)
    if sum(bool(points) for points in runs) > 1:
        axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)


def bars(values: Mapping[str, float], xlabel: str, ylabel: str) -> Curves:
    """Plot one bar per item of ``values``, ``{label: value}``, with three digits above each bar."""
    figure = Curves(figsize=(1.5 + 1.1 * len(values), PANEL_SIZE[1]), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    drawn = axes.bar(list(values), list(values.values()), color=COLORS[0], width=0.6)
    large, rounded = EngFormatter(sep=" "), [float(f"{value:.3g}") for value in values.values()]
    axes.bar_label(
        drawn,
        [large(value) if abs(value) >= 1e3 else f"{value:g}" for value in rounded],
        fontsize=8,
    )
    axes.yaxis.set_major_formatter(large if max(map(abs, rounded)) >= 1e3 else "{x:g}")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
