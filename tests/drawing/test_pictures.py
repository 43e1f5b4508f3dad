"""Pictures can be seen and read at the size they are shown at, on pages of either kind."""

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.drawing.canvas import SUPERSAMPLING, Canvas
from cupydrive.drawing.frames import DIM
from cupydrive.drawing.palette import Palette

# Pixels of a picture on the gallery's page in a window 390 wide; tests/gallery/test_gallery.py
# measures it.
NARROWEST = 334
LETTERS = 7.5  # pixels of them, at least: a telephone has two or three of its own for each
AGENTS = (Palette.BLUE, Palette.ORANGE, Palette.GREEN, Palette.PINK, Palette.YELLOW, Palette.GRAY)
DRAWN = [name for name in envs.names() if envs.get(name).display.draw is not None]


def luminance(color):
    """Return the relative luminance of a colour, "#RRGGBB" or three of 0 to 255, as WCAG 2.2
    defines it.
    """
    parts = bytes.fromhex(color[1:]) if isinstance(color, str) else color
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in parts)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Return the contrast of two colours, 1 to 21, likewise."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_where_they_are_drawn():
    for ground in (Palette.STAGE, Palette.FLOOR):
        assert min(contrast(color, ground) for color in AGENTS) >= 3  # WCAG 1.4.11, of graphics
        # 1.4.3, of text
        assert min(contrast(color, ground) for color in (Palette.INK, Palette.SOFT)) >= 4.5
    assert contrast(Palette.BLUE, Palette.ORANGE) < 1.5, (
        "a hue is what tells taggers from runners, not how bright one is"
    )


def test_what_is_over_can_still_be_seen():
    for color in AGENTS:
        assert contrast(Canvas.mix(color, Palette.STAGE, DIM), Palette.STAGE) >= 2.5


@pytest.mark.parametrize("width", [360, 640, 760, 900, 960, 1280])
def test_no_line_is_thinner_than_a_pixel_where_a_picture_is_shown_small(width):
    # alone, and in a mosaic
    for canvas in (Canvas(width, 400), Canvas(width // 8 * 2, 200, part_of=width)):
        canvas.clear()
        canvas.view(0, 1, 0)
        canvas.line([(0.0, 0.1), (1.0, 0.1)], 0.0, "#FFFFFF")
        thick = (canvas.frame()[:, canvas.width // 2].astype(float) - canvas.frame()[0, 0]).sum(
            axis=0
        )
        pixels = thick / (255 - np.array(tuple(bytes.fromhex(Palette.STAGE[1:]))))
        assert pixels == pytest.approx(canvas.hairline / SUPERSAMPLING, rel=0.05)
        assert canvas.hairline / SUPERSAMPLING * min(1.0, NARROWEST / width) >= 1


class Looked(Canvas):
    """A canvas that notes which colours lines and agents have, how high texts are, and what they
    stand on.
    """

    def clear(self, *background):
        super().clear(*background)
        self.colors, self.texts = set(), []

    def line(self, points, width, color):
        self.colors.add(color)
        super().line(points, width, color)

    def arrowhead(self, center, heading, radius, color):
        self.colors.add(color)
        super().arrowhead(center, heading, radius, color)

    def text(self, place, text, size, color=Palette.INK, anchor="mm"):
        x, y = (round(float(v)) for v in self._pixel(place))
        behind = self._image.getpixel(
            (min(x, self._image.size[0] - 1), min(y, self._image.size[1] - 1))
        )
        self.texts.append((str(text), size * self._scale / SUPERSAMPLING, contrast(color, behind)))
        super().text(place, text, size, color, anchor)


@pytest.mark.parametrize("name", DRAWN)
def test_an_environment_draws_what_can_be_seen_and_writes_what_can_be_read(name):
    spec = envs.get(name)
    spec = spec.with_made_up_tables() if spec.tables is not None else spec
    params = spec.make_params(**spec.display.showcase.get("params", {}))
    canvas = Looked(*spec.display.size)
    for state in spec.reference.sample_states(params, np.random.default_rng(0), 3):
        canvas.clear()
        spec.display.draw(canvas, params, state[None], 7)
        # such as a grid's
        grounds = {color for color in canvas.colors if contrast(color, Palette.FLOOR) < 1.5}
        assert all(contrast(color, Palette.STAGE) >= 3 for color in canvas.colors - grounds)
        for text, high, stands_out in canvas.texts:
            assert high * NARROWEST / canvas.width >= LETTERS and stands_out >= 3, (
                text,
                high,
                stands_out,
            )
    header = 11  # pixels of its letters, which tell the step, who plays, and what colours mean
    assert canvas.width / 30 * NARROWEST / canvas.width >= header


@pytest.mark.parametrize(
    ("name", "params"),
    [("tag_grid", {}), ("tag_continuous", {}), ("tag_continuous", {"num_runners": 7})],
)
def test_a_picture_of_tag_counts_who_is_free_and_who_is_caught(name, params):
    spec = envs.get(name)
    p, canvas = spec.make_params(**params), Canvas(*spec.display.size)
    agents = {group.name: group.count for group in spec.groups(p)}
    for state in spec.reference.sample_states(p, np.random.default_rng(1), 5):
        canvas.clear()
        spec.display.draw(canvas, p, state[None], 3)
        counted = {text: count for _, text, count in canvas.keys}
        assert (
            counted["taggers"] == agents["tagger"]
            and counted["free"] + counted["caught"] == agents["runner"]
        )
        if name == "tag_continuous":
            assert counted["free"] == state["active"][agents["tagger"] :].sum()


def test_a_key_names_colours_in_the_header_and_a_mosaic_adds_up():
    from cupydrive.drawing.frames import together

    canvas = Canvas(600, 400)
    canvas.key((Palette.ORANGE, "taggers", 1200), (Palette.BLUE, "goal"))
    frame = canvas.frame()
    for color in (Palette.ORANGE, Palette.BLUE):
        assert (frame == tuple(bytes.fromhex(color[1:]))).all(-1)[: canvas.header].sum() > 50
    assert not (frame[canvas.header :] != frame[-1, -1]).any()
    assert together([canvas.keys, canvas.keys]) == [
        (Palette.ORANGE, "taggers", 2400),
        (Palette.BLUE, "goal", None),
    ]
    assert together([(), ()]) == []
