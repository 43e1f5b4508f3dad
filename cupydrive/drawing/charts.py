"""Charts and maps on a canvas: panels with their own units, scales, curves, and color fields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cupydrive.drawing.palette import Palette
from cupydrive.errors import ParameterError

if TYPE_CHECKING:
    from cupydrive.drawing.canvas import Canvas

Point: TypeAlias = Sequence[float] | np.ndarray  # (x, y) in units of the world
Points: TypeAlias = Sequence[Point] | np.ndarray
Limits: TypeAlias = tuple[float, float]  # (low, high)
Box: TypeAlias = tuple[float, float, float, float]  # (left, bottom, right, top)
TEXT, FRAME, GRID = Palette.INK, Palette.GRAY, Palette.GRID
GROUND, ROW, TICK = Palette.FLOOR, Palette.GRID, Palette.SOFT  # colors of frameless panels
SHADES = Palette.SHADES


def ticks(low: float, high: float, most: int = 6) -> tuple[list[float], list[str]]:
    """Return round numbers from ``low`` to ``high``, at least one and at most ``most``.

    Returns:
        (numbers, texts). The numbers are multiples of 1, 2 or 5 times a power of ten.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(
            f"ticks: low = {low}, high = {high}, expected finite numbers with low < high"
        )
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    while math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1 > most:
        step *= 2.5 if f"{step:.0e}"[0] == "2" else 2
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    numbers = [k * step for k in range(first, last + 1)] or [low]
    return numbers, [f"{x + 0.0:,.{digits}f}" for x in numbers]


def shades(
    values: np.ndarray, low: float, high: float, colors: Sequence[str] = SHADES
) -> np.ndarray:
    """Map values to colors (..., 3) uint8.

    Colors are interpolated between ``colors``, which are evenly spaced from ``low`` to ``high``.
    """
    stops = np.linspace(0.0, 1.0, len(colors))
    share = np.clip((np.asarray(values, np.float64) - low) / (high - low), 0.0, 1.0)
    parts = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in colors])
    mixed = [np.interp(share, stops, parts[:, k]) for k in range(3)]
    return np.stack(mixed, axis=-1).round().astype(np.uint8)


class Panel:
    """Rectangle of a canvas with its own units: a chart or a map. ``Canvas.panel`` creates it.

    Args:
        canvas: ``Canvas``. Its view must not change while the panel is drawn. Widths, radii and
            heights are in its units.
        box: (left, bottom, right, top) in units of the canvas.
        x: (low, high) of the horizontal axis.
        y: (low, high) of the vertical axis.
        letters: Height of texts.
    """

    def __init__(self, canvas: Canvas, box: Box, x: Limits, y: Limits, letters: float) -> None:
        for name, (low, high) in (("x", x), ("y", y), ("box", box[::2]), ("box", box[1::2])):
            if not low < high:
                raise ParameterError(
                    f"Canvas.panel: {name}: got {low} to {high}, expected low < high"
                )
        self.canvas, self.box, self.x, self.y, self.letters = canvas, box, x, y, letters

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Convert (x, y) to the canvas's view."""
        left, bottom, right, top = self.box
        across, up = (
            (x - self.x[0]) / (self.x[1] - self.x[0]),
            (y - self.y[0]) / (self.y[1] - self.y[0]),
        )
        return left + across * (right - left), bottom + up * (top - bottom)

    def line(self, points: Points, width: float, color: str) -> None:
        """Draw a line through (x, y) points, interrupted at non-finite ones."""
        piece: list[tuple[float, float]] = []
        for point in (*points, (math.nan, math.nan)):
            if np.isfinite(point).all():
                piece.append(self.at(*point))
            else:
                if len(piece) > 1:
                    self.canvas.line(piece, width, color)
                piece = []

    def dot(self, point: Point, radius: float, color: str, rim: float = 0) -> None:
        """Draw a disc with a dark rim."""
        if rim:
            self.canvas.circle(self.at(*point), radius + rim, Palette.STAGE)
        self.canvas.circle(self.at(*point), radius, color)

    def text(self, point: Point, text: str, anchor: str = "lm", color: str = TEXT) -> None:
        """Write a line of text at (x, y)."""
        self.canvas.text(self.at(*point), text, self.letters, color, anchor)

    def level(self, y: float, width: float, color: str, count: int = 40) -> None:
        """Draw a dashed horizontal line from side to side."""
        left, _, right, _ = self.box
        dash, height = (right - left) / count, self.at(self.x[0], y)[1]
        for k in range(count):
            self.canvas.line(
                [(left + k * dash, height), (left + (k + 0.55) * dash, height)], width, color
            )

    def rows(self, ticks: Iterable[tuple[float, str]]) -> None:
        """Fill the panel with its background, and draw a line and a text at each (y, text)."""
        left, bottom, right, top = self.box
        self.canvas.rectangle(left, bottom, right, top, GROUND)
        for y, text in ticks:
            height = self.at(self.x[0], min(max(y, self.y[0]), self.y[1]))[1]
            self.canvas.line([(left, height), (right, height)], 0.02 * self.letters, ROW)
            self.canvas.text(
                (left - 0.35 * self.letters, height), text, 0.85 * self.letters, TICK, "rm"
            )

    def curve(
        self, xs: Sequence[float] | np.ndarray, ys: Sequence[float] | np.ndarray, color: str
    ) -> None:
        """Draw a curve with a dot at its end. Values outside the panel are drawn at its edge."""
        inside = (
            np.clip(np.asarray(v, np.float64), *ends) for v, ends in ((xs, self.x), (ys, self.y))
        )
        points = [self.at(a, b) for a, b in zip(*inside, strict=True)]
        if len(points) > 1:
            self.canvas.line(points, 0.16 * self.letters, color)
        if points:
            self.canvas.circle(points[-1], 0.22 * self.letters, color)

    def bars(self, values: Sequence[float], colors: Sequence[str]) -> None:
        """Draw a horizontal bar for each value, the first one on top."""
        left, bottom, _, top = self.box
        high = (top - bottom) / len(values)
        for i, (value, color) in enumerate(zip(values, colors, strict=True)):
            end = self.at(min(max(float(value), self.x[0]), self.x[1]), self.y[0])[0]
            self.canvas.rectangle(left, top - (i + 0.8) * high, end, top - (i + 0.2) * high, color)

    def legend(self, colors: Mapping[str, str]) -> None:
        """Write names in their colors above the panel, from left to right."""
        left, size = self.box[0], 0.85 * self.letters
        for name in colors:
            self.canvas.text(
                (left, self.box[3] + 0.9 * self.letters), name, size, colors[name], "lm"
            )
            left += self.canvas.text_width(name, size) + 0.6 * self.letters

    def ends(self) -> None:
        """Write the limits of x below the panel."""
        for value, left, anchor in ((self.x[0], self.box[0], "lm"), (self.x[1], self.box[2], "rm")):
            height = self.box[1] - 0.55 * self.letters
            self.canvas.text((left, height), f"{value:g}", 0.85 * self.letters, TICK, anchor)

    def field(
        self, values: np.ndarray, low: float, high: float, colors: Sequence[str] = SHADES
    ) -> None:
        """Fill the panel with the ``shades`` of (rows, columns) values, first row at the bottom."""
        self.canvas.image(shades(values, low, high, colors)[::-1], *self.box)

    def way(self, points: Points, period: tuple[int, int], width: float, color: str) -> None:
        """Draw a path through (K, 2) points of a periodic map, fading toward its start.

        Args:
            points: Integer coordinates. Each step takes the shortest way. A step across the edge is
                drawn at both edges.
            period: (x, y), the periods of the map.
            width: Width of the line.
            color: Color at the end.
        """
        for k in range(1, len(points)):
            a, b = np.asarray(points[k - 1], float), np.asarray(points[k], float)
            half = 0.5 * ((b - a + np.array(period) // 2) % period - np.array(period) // 2)
            faded = self.canvas.mix(Palette.STAGE, color, 0.45 + 0.55 * k / len(points))
            for piece in (
                ([a, b],) if np.array_equal(a + 2 * half, b) else ([a, a + half], [b - half, b])
            ):
                self.line(piece, width, faded)

    def axes(self, x_label: str = "", y_label: str = "", most: int = 6, grid: bool = True) -> None:
        """Draw the frame, round numbers on both axes, and the labels of the axes."""
        left, bottom, right, top = self.box
        hair, gap = self.letters / 16, self.letters / 3
        for number, text in zip(*ticks(*self.x, most), strict=True):
            x, _ = self.at(number, self.y[0])
            self.canvas.line(
                [(x, bottom - gap), (x, top if grid else bottom)], hair, GRID if grid else FRAME
            )
            self.canvas.text((x, bottom - 1.4 * gap), text, self.letters, TEXT, "ma")
        for number, text in zip(*ticks(*self.y, most), strict=True):
            _, y = self.at(self.x[0], number)
            self.canvas.line(
                [(left - gap, y), (right if grid else left, y)], hair, GRID if grid else FRAME
            )
            self.canvas.text((left - 1.4 * gap, y), text, self.letters, TEXT, "rm")
        self._frame()
        self.canvas.text(
            ((left + right) / 2, bottom - 5.6 * gap), x_label, self.letters, TEXT, "ma"
        )
        self.canvas.text((left, top + gap), y_label, self.letters, TEXT, "ls")

    def _frame(self) -> None:
        left, bottom, right, top = self.box
        corners = [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
        self.canvas.line(corners, self.letters / 16, FRAME)

    def scale(
        self,
        low: float,
        high: float,
        label: str = "",
        colors: Sequence[str] = SHADES,
        most: int = 6,
    ) -> None:
        """Draw a color bar of ``shades`` at the right of the panel, with numbers and a label."""
        _, bottom, right, top = self.box
        left = right + 1.5 * self.letters
        bar = Panel(
            self.canvas, (left, bottom, left + self.letters, top), (0, 1), (low, high), self.letters
        )
        bar.field(np.repeat(np.linspace(low, high, 256)[:, None], 2, axis=1), low, high, colors)
        bar._frame()
        for number, text in zip(*ticks(low, high, most), strict=True):
            bar.text((1.3, number), text)
        self.canvas.text((left, top + self.letters / 3), label, self.letters, TEXT, "ls")
