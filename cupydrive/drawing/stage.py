"""Matplotlib figures in the colours of the pictures, dark as they are, as SVG whose text is text."""

import io
import re
from typing import Any

import matplotlib
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from cupydrive.drawing.palette import Palette

# What figures on white are drawn in (cupydrive.terminal.curves.COLORS, greys), and what stands for it here.
ON_STAGE = {
    "#0072b2": Palette.BLUE,
    "#d55e00": Palette.ORANGE,
    "#009e73": Palette.GREEN,
    "#cc79a7": Palette.PINK,
    "#e69f00": Palette.YELLOW,
    "#56b4e9": Palette.SOFT,
    "#666666": Palette.SOFT,
    "#999999": Palette.GREY,
    "#000000": Palette.INK,
    "#ffffff": Palette.STAGE,
    "#b0b0b0": Palette.SOFT,  # of a grid, nearly transparent
}
LETTERS = 10.0  # points: of all texts, so that none is too small
PATH, PLACE = re.compile(rb' d="[^"]+"'), re.compile(rb"\d+\.\d+")  # of lines in an SVG file, and a coordinate of one


def dress(figure: Figure) -> Figure:
    """Give a figure the colours and letters of the gallery; return it."""
    for thing in figure.findobj():
        if isinstance(thing, Text):
            thing.set(color=on_stage(thing.get_color()), fontsize=max(LETTERS, thing.get_fontsize()))
        elif isinstance(thing, Line2D):
            thing.set(color=on_stage(thing.get_color()))
            thing.set(markerfacecolor=on_stage(thing.get_markerfacecolor()))
            thing.set(markeredgecolor=on_stage(thing.get_markeredgecolor()))
        elif isinstance(thing, Patch):
            face, edge = thing.get_facecolor(), thing.get_edgecolor()
            thing.set(facecolor=on_stage(face), edgecolor=on_stage(edge))
        elif isinstance(thing, PolyCollection):
            thing.set_facecolor([on_stage(color) for color in thing.get_facecolor()])
    for axes in figure.axes:
        axes.tick_params(labelsize=LETTERS)
    return figure


def on_stage(color: Any) -> Any:
    """Return the colour that stands for another one on a dark ground; with its transparency."""
    if isinstance(color, str) and color.lower() in ("none", "auto"):
        return color
    *_, alpha = to_rgba(color)
    return to_rgba(ON_STAGE.get(to_hex(color), color), alpha)


def svg(figure: Figure) -> bytes:
    """Return a figure, dressed, as bytes of an SVG file: the same for the same figure, and its texts can be searched.

    Lines go through hundredths of a point, which nobody sees; Matplotlib writes millionths.
    """
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "cupydrive"}):
        dress(figure).savefig(file, format="svg", metadata={"Date": None})
    content = PATH.sub(lambda path: PLACE.sub(hundredths, path[0]), file.getvalue())
    return b"\n".join(line.rstrip() for line in content.splitlines()) + b"\n"


def hundredths(number: re.Match[bytes]) -> bytes:
    """Return a number that was found in bytes with two decimals, without zeros at its end."""
    return (b"%.2f" % float(number[0])).rstrip(b"0").rstrip(b".")


def png(figure: Figure, dots: int = 200) -> bytes:
    """Return a figure, dressed, as bytes of a PNG file with a palette of its own: a third of the size, and as clear.

    Args:
        figure: ``Figure``.
        dots: Pixels of an inch.
    """
    from PIL import Image

    file, small = io.BytesIO(), io.BytesIO()
    dress(figure).savefig(file, format="png", dpi=dots)
    Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()
