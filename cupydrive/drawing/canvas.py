"""Canvas: shapes in world coordinates with y up, and a header with two lines of text.

Shapes are drawn at twice the size and scaled down for antialiasing. Pictures have light colors on
a dark background, so that one file suits both light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cupydrive.drawing.charts import Box, Limits, Panel, Point, Points
from cupydrive.drawing.palette import Palette
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_size

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

# xs, ys, color
Line: TypeAlias = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray, str]
Key: TypeAlias = tuple[str, str, int | None]  # color, text, count
SUPERSAMPLING = 2
SMALLEST_TEXT = 5  # pixels of the finished picture. Smaller text is omitted.
LABEL_TEXT = 20  # pixels of an agent's name, of which a page shows half
LABELED = 12  # maximum number of agents with names. More agents have only numbers.
# Fractions of a picture's width. On a phone, a picture is 334 pixels wide. Letters of a header then
# have 11 pixels, and lines at least one.
HEADER_TEXT, HAIRLINE = 30, 334
LINE_HEIGHT = 1.45  # height of a header line, relative to its letters


class Canvas(Palette):
    """Picture to draw on, with a dark background. Colors are attributes, such as ``canvas.BLUE``.

    If the task ends before the time limit, a drawing may set ``last_step``, the total number of
    steps in the header.

    Args:
        width: Width in pixels. It must be even, because video codecs halve the resolution of
            colors.
        height: Height in pixels. It must be even.
        header: Pixels at the top for two lines of text. The world is drawn below. Defaults to a
            fraction of the width.
        part_of: Width of the picture that contains this one. Line widths and the minimum text size
            are chosen for it. Defaults to ``width``, without a minimum text size.
        labels: Show the names of the agents passed to ``agents``.
        played: ``(group, agent)`` of the agent that a person plays, or None. It has a ring and a
            highlighted name.

    Raises:
        ParameterError: If a size is not a positive even int.
    """

    def __init__(
        self,
        width: int = 960,
        height: int = 640,
        header: int | None = None,
        part_of: int | None = None,
        labels: bool = False,
        played: tuple[str, int] | None = None,
    ) -> None:
        self.width, self.height = checked_size("Canvas", "(width, height)", (width, height))
        whole = self.width if part_of is None else part_of
        self.letters = letters_of(whole)  # size of the header's text
        self.header = header_height(self.letters, self.height) if header is None else int(header)
        self.hairline = math.ceil(SUPERSAMPLING * whole / HAIRLINE)  # in supersampled pixels
        self.smallest = SUPERSAMPLING * (
            SMALLEST_TEXT if part_of is None else max(SMALLEST_TEXT, whole / HEADER_TEXT)
        )
        self.labels, self.played = labels, played
        self.clear()

    def clear(self, background: str = Palette.STAGE) -> None:
        """Fill the picture with one color, and reset the view to pixels from the lower left."""
        from PIL import Image, ImageDraw

        size = (self.width * SUPERSAMPLING, self.height * SUPERSAMPLING)
        self._background = background
        self._image = Image.new("RGB", size, background)
        self._draw = ImageDraw.Draw(self._image)
        self._texts = ("", "", "")
        self._names: list[tuple[str, int, str, tuple[float, float]]] = []
        self.keys: Sequence[Key] = ()
        self.last_step: int | None = None
        self.view(0, self.width, 0)

    def view(self, left: float, right: float, bottom: float, top: float | None = None) -> None:
        """Set the visible part of the world, from ``left`` to ``right`` and from ``bottom`` up.

        Units are square. If ``top`` is given, everything up to it is visible. The world is scaled
        down if necessary and centered.
        """
        if not left < right or (top is not None and not bottom < top):
            raise ParameterError(
                f"Canvas.view: left = {left}, right = {right}, bottom = {bottom}, top = {top}, "
                "expected left < right and bottom < top"
            )
        width, height = self._image.size[0], self._image.size[1] - self.header * SUPERSAMPLING
        self._scale = width / (right - left)
        self._left, self._bottom = left, bottom
        if top is not None:
            self._scale = min(self._scale, height / (top - bottom))
            self._left = (left + right) / 2 - width / self._scale / 2
            self._bottom = (bottom + top) / 2 - height / self._scale / 2

    def to_pixel(self, point: Point) -> tuple[float, float]:
        """Convert a point of the world to pixels (x, y) from the picture's upper left corner."""
        x, y = self._pixel(point)
        return x / SUPERSAMPLING, y / SUPERSAMPLING

    def _pixel(self, point: Point) -> tuple[float, float]:
        """Convert a point of the world to pixels of the supersampled image."""
        x, y = point
        return (float(x) - self._left) * self._scale, self._image.size[1] - (
            float(y) - self._bottom
        ) * self._scale

    @staticmethod
    @lru_cache(maxsize=1024)
    def mix(color: str, other: str, share: float) -> str:
        """Mix two colors ``"#RRGGBB"``. ``share`` is the fraction of ``other``, from 0 to 1."""
        share = min(max(float(share), 0.0), 1.0)
        pairs = ((int(color[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
        return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)

    def line(self, points: Points, width: float, color: str) -> None:
        """Draw a line with round ends through ``points`` [(x, y), ...].

        ``width`` is in units of the world. The line has a minimum thickness, so that it is visible
        in a small picture.
        """
        pixels = [self._pixel(p) for p in points]
        thick = max(self.hairline, round(width * self._scale))
        self._draw.line(pixels, color, thick, joint="curve")
        if thick > 4:
            for x, y in (pixels[0], pixels[-1]):
                self._disc(x, y, thick / 2, color)

    def trail(self, points: Points, width: float, color: str, longest: float | None = None) -> None:
        """Draw a path through ``points``, oldest first, fading toward the oldest.

        Args:
            points: (K, 2) array or list.
            width: Width in units of the world.
            color: Color at the newest point.
            longest: Maximum length of a step. Longer ones are jumps and are not drawn.
        """
        count = len(points) - 1
        for k in range(count):
            (ax, ay), (bx, by) = points[k], points[k + 1]
            if (ax, ay) == (bx, by) or (
                longest is not None and max(abs(bx - ax), abs(by - ay)) > longest
            ):
                continue
            faded = self.mix(color, self._background, 0.85 - 0.6 * (k + 1) / count)
            ends = [self._pixel(points[k]), self._pixel(points[k + 1])]
            self._draw.line(ends, faded, max(self.hairline, round(width * self._scale)))

    def circle(self, center: Point, radius: float, color: str) -> None:
        """Draw a filled circle, ``radius`` in units of the world."""
        self._disc(*self._pixel(center), radius * self._scale, color)

    def _disc(self, x: float, y: float, radius: float, color: str) -> None:
        # Pillow's boxes contain their last pixel.
        radius = max(radius, 1.0)
        self._draw.ellipse((x - radius, y - radius, x + radius - 1, y + radius - 1), color)

    def polygon(self, points: Points, color: str) -> None:
        """Draw a filled polygon."""
        self._draw.polygon([self._pixel(p) for p in points], color)

    def arrowhead(self, center: Point, heading: float, radius: float, color: str) -> None:
        """Draw a triangle that points along ``heading`` (rad, from x to y).

        Its tip is at distance ``radius`` from the center.
        """
        x, y = center
        corners = ((0.0, 1.0), (2.5, 0.95), (np.pi, 0.35), (-2.5, 0.95))
        self.polygon(
            [
                (x + s * radius * np.cos(heading + a), y + s * radius * np.sin(heading + a))
                for a, s in corners
            ],
            color,
        )

    def rectangle(self, x0: float, y0: float, x1: float, y1: float, color: str) -> None:
        """Draw a filled rectangle between two opposite corners."""
        (ax, ay), (bx, by) = self._pixel((x0, y0)), self._pixel((x1, y1))
        left, right, upper, lower = min(ax, bx), max(ax, bx), min(ay, by), max(ay, by)
        self._draw.rectangle((left, upper, max(left, right - 1), max(upper, lower - 1)), color)

    def text(
        self, place: Point, text: str, size: float, color: str = Palette.INK, anchor: str = "mm"
    ) -> None:
        """Write a line of text. Text that is too small to read is omitted, as in a mosaic.

        Args:
            place: (x, y) of the text's anchor.
            text: The text.
            size: Height of the letters in units of the world.
            color: Color of the letters.
            anchor: Two letters: left, middle or right (l, m, r), and top, middle or baseline (t, m,
                s).
        """
        pixels = round(size * self._scale)
        if pixels >= self.smallest:
            self._draw.text(self._pixel(place), str(text), color, text_font(pixels), anchor=anchor)

    def agents(self, group: str, places: Points, shown: np.ndarray | None = None) -> None:
        """Set the positions of a group's agents, next to which a viewer writes their names.

        Args:
            group: Name of the group.
            places: (C, 2) array or list of positions.
            shown: (C,) bool, agents to label. If None, all of them.
        """
        alone = len(places) == 1
        for i, place in enumerate(places):
            if shown is None or shown[i]:
                self._names.append(
                    (group, i, group if alone else f"{group} {i}", self.to_pixel(place))
                )

    def _mark_agents(self, image: Image) -> None:
        """Write names next to agents on the finished picture, and a ring around the played one."""
        from PIL import ImageDraw

        draw = ImageDraw.Draw(image)
        size = min(LABEL_TEXT, max(SMALLEST_TEXT, self.height // 16))
        font, rim = text_font(size), max(1, size // 8)
        for group, agent, name, (x, y) in sorted(
            self._names, key=lambda named: named[:2] == self.played
        ):
            mine = (group, agent) == self.played
            if mine:
                ring = max(2.5, self.height / 36)
                box = (x - ring, y - ring, x + ring, y + ring)
                draw.ellipse(box, outline=self.YELLOW, width=max(1, round(ring / 5)))
            if self.labels:
                text = (
                    f"you, {name}" if mine else name if len(self._names) <= LABELED else str(agent)
                )
                left = max(
                    2 * rim, min(x + 0.5 * size, self.width - font.getlength(text) - 2 * rim)
                )
                place = left, max(y - 0.7 * size, self.header + 0.8 * size)
                looks = {
                    "stroke_width": 2 * rim if mine else rim,
                    "stroke_fill": self.YELLOW if mine else self.STAGE,
                }
                draw.text(place, text, self.STAGE if mine else self.INK, font, anchor="lm", **looks)

    def text_width(self, text: str, size: float) -> float:
        """Return the width of a line of text in units of the world. ``size`` is as in ``text``."""
        return text_font(max(1, round(size * self._scale))).getlength(str(text)) / self._scale

    def chart(
        self,
        box: Box,
        lines: Sequence[Line],
        x: Limits,
        y: Limits,
        title: str = "",
        ticks: Sequence[tuple[float, str]] | None = None,
        legend: Mapping[str, str] | None = None,
        powers: bool = False,
        ends: bool = False,
        letters: float | None = None,
    ) -> None:
        """Draw curves in a panel with a title, grid lines and numbers.

        Args:
            box: (left, bottom, right, top) of the panel in units of the world, including title and
                numbers.
            lines: ``(xs, ys, color)`` of each curve. Values outside the ranges are drawn at the
                edge of the panel.
            x: (lowest, highest) value from left to right.
            y: (lowest, highest) value from bottom to top.
            title: Quantity with its unit.
            ticks: Pairs (value of y, text). Defaults to the lowest and the highest value.
            legend: Colors by name, listed between the title and the curves.
            powers: Use a logarithmic scale with powers of ten. ``y`` must be positive.
            ends: Write the limits of ``x`` below.
            letters: Height of the title. Numbers are slightly smaller. Defaults to a fraction of
                the panel's height.
        """
        if powers:
            least, (low, high) = y[0], np.log10(y)
            ticks = (
                [(k, f"{10.0**k:g}") for k in range(round(low), round(high) + 1)]
                if ticks is None
                else ticks
            )
            lines = [(xs, np.log10(np.maximum(ys, least)), color) for xs, ys, color in lines]
            y = low, high
        left, bottom, right, top = box
        letters = 0.11 * (top - bottom) if letters is None else letters
        above = 2.8 if legend else 1.6  # space for the title and the legend
        inner = (left + 3.2 * letters, bottom + 0.5 * letters, right, top - above * letters)
        self.text((inner[0], top), title, letters, anchor="lt")
        panel = self.panel(inner, x, y, letters)
        panel.rows(((v, f"{v:g}") for v in y) if ticks is None else ticks)
        for xs, ys, color in lines:
            panel.curve(xs, ys, color)
        panel.legend(legend or {})
        if ends:
            panel.ends()

    def image(self, pixels: np.ndarray, x0: float, y0: float, x1: float, y1: float) -> None:
        """Fill a rectangle with an array of colors, (rows, columns, 3) uint8, first row on top.

        Pixels are scaled without interpolation.
        """
        from PIL import Image

        (left, upper), (right, lower) = (
            self._pixel((min(x0, x1), max(y0, y1))),
            self._pixel((max(x0, x1), min(y0, y1))),
        )
        left, upper, right, lower = round(left), round(upper), round(right), round(lower)
        size = (max(1, right - left), max(1, lower - upper))
        picture = Image.fromarray(np.ascontiguousarray(pixels, np.uint8)).resize(
            size, Image.Resampling.NEAREST
        )
        self._image.paste(picture, (left, upper))

    def panel(self, box: Box, x: Limits, y: Limits, letters: float) -> Panel:
        """Create a ``Panel`` of ``cupydrive.drawing.charts``, a rectangle with its own units.

        Args:
            box: (left, bottom, right, top) in units of the view.
            x: (low, high) of the horizontal axis.
            y: (low, high) of the vertical axis.
            letters: Height of texts in units of the view.
        """
        return Panel(self, box, x, y, letters)

    def caption(self, left: str, right: str = "", below: str = "") -> None:
        """Set the texts of the header, which is drawn on top of everything else.

        Args:
            left: Left part of the first line.
            right: Right part of the first line. It is scaled down or truncated if necessary.
            below: Second line. If there is a ``key``, it follows the key if it fits.
        """
        self._texts = str(left), str(right), str(below)

    def key(self, *items: tuple[str, str] | Key) -> None:
        """Set a legend of colors in the second line of the header.

        Args:
            *items: ``(color, text)`` or ``(color, text, count)``. A mosaic shows the sum of the
                counts of its pictures.
        """
        self.keys = tuple(
            (item[0], str(item[1]), item[2] if len(item) == 3 else None) for item in items
        )

    def frame(self) -> np.ndarray:
        """Return the picture, (height, width, 3) uint8."""
        shown = self._image.reduce(SUPERSAMPLING)
        if self._names and (self.labels or self.played):
            self._mark_agents(shown)
        if self.header and (any(self._texts) or self.keys):
            letters = self.letters * SUPERSAMPLING
            # The text may be higher than a low header.
            tall = max(
                self.header * SUPERSAMPLING,
                round(LINE_HEIGHT * letters * (2 if self._texts[2] or self.keys else 1)),
            )
            strip = self._image.crop((0, 0, self._image.size[0], min(tall, self._image.size[1])))
            self._write(strip, letters)
            shown.paste(strip.reduce(SUPERSAMPLING))
        return np.array(shown)

    def _write(self, strip: Image, letters: int) -> None:
        """Write the header's lines onto the top of the image."""
        from PIL import ImageDraw

        draw, font = ImageDraw.Draw(strip), text_font(letters)
        left, right, below = self._texts
        wide, edge, first, second = (
            strip.size[0],
            letters // 2,
            round(0.8 * letters),
            round(2.15 * letters),
        )
        draw.text((edge, first), left, self.INK, font, anchor="lm")
        right, size = fit_text(right, letters, wide - 4 * edge - font.getlength(left))
        draw.text((wide - edge, first), right, self.SOFT, text_font(size), anchor="rm")
        at, radius = edge, 0.33 * letters
        for color, words in ((color, with_count(text, count)) for color, text, count in self.keys):
            draw.ellipse((at, second - radius, at + 2 * radius, second + radius), color)
            draw.text((round(at + letters), second), words, self.INK, font, anchor="lm")
            at += 2 * letters + font.getlength(words)
        free = wide - edge - at
        if not self.keys:
            below, size = fit_text(below, letters, free)
            draw.text((edge, second), below, self.SOFT, text_font(size), anchor="lm")
        elif font.getlength(below) <= free:
            draw.text((wide - edge, second), below, self.SOFT, font, anchor="rm")


def letters_of(width: int) -> int:
    """Return the height of a header's letters in pixels, for the width of the finished picture."""
    return max(8, round(width / HEADER_TEXT))


def header_height(letters: int, height: int) -> int:
    """Return the height of a header of two lines in pixels, at most a third of the picture."""
    return min(round(2 * LINE_HEIGHT * letters), height // 3)


def with_count(text: str, count: int | None) -> str:
    """Return the text of an item of a key."""
    return text if count is None else f"{count:,} {text}"


@lru_cache(maxsize=64)
def fit_text(text: str, size: int, free: float) -> tuple[str, int]:
    """Fit ``text`` into ``free`` pixels, by reducing ``size`` first and then by truncation.

    Returns:
        The text and its size.
    """
    wide = text_font(size).getlength(text)
    if wide > free:
        size = max(round(size * free / wide), round(0.6 * size), 6 * SUPERSAMPLING)
    while text and text_font(size).getlength(text) > free:
        text = text.rstrip("…")[:-1].rstrip() + "…" if len(text.rstrip("…")) > 1 else ""
    return text, size


@lru_cache(maxsize=64)
def text_font(size: int) -> FreeTypeFont:
    """Return Pillow's default font in a size."""
    from PIL import ImageFont

    return ImageFont.load_default(size)
