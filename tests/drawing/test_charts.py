"""Charts on a canvas: round numbers, colours between colours, panels with units of their own, text,
pictures.
"""

import numpy as np
import pytest

from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.charts import shades, ticks
from cupydrive.errors import ParameterError


@pytest.mark.parametrize("low", [0.0, -3.2, 17.0, -226.0, 1e-7])
@pytest.mark.parametrize("width", [1e-6, 0.03, 1.0, 20.0, 499.0, 7e6])
@pytest.mark.parametrize("most", [2, 5, 9])
def test_ticks_are_few_round_and_within(low, width, most):
    numbers, texts = ticks(low, low + width, most)
    assert 1 <= len(numbers) <= most and len(set(texts)) == len(numbers)
    assert min(numbers) >= low - 1e-6 * width and max(numbers) <= low + 1.000001 * width
    steps = np.diff(numbers)
    if len(steps):
        assert np.allclose(steps, steps[0], rtol=1e-6)
        assert f"{steps[0]:.0e}"[0] in "125"
    for number, text in zip(numbers, texts, strict=True):
        assert float(text.replace(",", "")) == pytest.approx(number, abs=1e-6 * width)


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_ticks_need_a_range(ends):
    with pytest.raises(ParameterError, match="low < high"):
        ticks(*ends)


def test_shades_lie_evenly_between_colours_and_stop_at_the_ends():
    found = shades(
        [[-9.0, 0.0, 1.0], [2.0, 4.0, 99.0]], 0.0, 4.0, ("#000000", "#640000", "#6400C8")
    )
    assert found.dtype == np.uint8
    assert found.tolist() == [
        [[0, 0, 0], [0, 0, 0], [50, 0, 0]],
        [[100, 0, 0], [100, 0, 200], [100, 0, 200]],
    ]


def test_a_panel_places_its_units_in_its_box():
    canvas = Canvas(200, 100, header=0)
    canvas.view(0, 200, 0)
    panel = canvas.panel((50, 20, 150, 60), (-1.0, 1.0), (0.0, 1000.0), 10)
    assert (
        panel.at(-1.0, 0.0) == (50, 20)
        and panel.at(1.0, 1000.0) == (150, 60)
        and panel.at(0.0, 500.0) == (100, 40)
    )
    panel.dot((0.0, 1000.0), 3, "#FF0000")
    y, x = np.nonzero((canvas.frame() == (255, 0, 0)).all(-1))
    assert x.mean() + 0.5 == pytest.approx(100, abs=0.5) and y.mean() + 0.5 == pytest.approx(
        40, abs=0.5
    )
    with pytest.raises(ParameterError, match="got 3 to 3"):
        canvas.panel((50, 20, 150, 60), (3, 3), (0, 1), 10)


def test_a_field_fills_its_panel_with_its_first_row_below():
    canvas = Canvas(100, 100, header=0)
    canvas.view(0, 100, 0)
    canvas.panel((20, 40, 60, 80), (0, 1), (0, 1), 10).field(
        [[0, 1], [1, 2]], 0, 2, ("#FF0000", "#000000", "#0000FF")
    )
    frame = canvas.frame()
    for color, x, y in (
        ((255, 0, 0), slice(20, 40), slice(40, 60)),
        ((0, 0, 255), slice(40, 60), slice(20, 40)),
    ):
        inside = (frame == color).all(-1)
        assert inside[y, x].all() and inside.sum() == 400
    stage = tuple(bytes.fromhex(Canvas.STAGE[1:]))
    assert (frame[:20] == stage).all() and (frame[:, 60:] == stage).all()


def test_a_line_is_interrupted_where_a_number_is_missing():
    canvas = Canvas(100, 100, header=0)
    canvas.view(0, 100, 0)
    panel = canvas.panel((0, 0, 100, 100), (0, 10), (0, 10), 10)
    panel.line([(0, 5), (3, 5), (np.nan, 5), (7, 5), (10, 5), (np.inf, np.inf)], 4, "#0000FF")
    line = (canvas.frame()[50] == (0, 0, 255)).all(-1)
    assert line[:30].all() and line[71:].all() and not line[35:65].any()


def test_a_way_across_the_edge_is_drawn_at_both_edges():
    canvas = Canvas(100, 100, header=0)
    canvas.view(0, 100, 0)
    panel = canvas.panel((0, 0, 100, 100), (-0.5, 9.5), (-0.5, 9.5), 10)  # 10 pixels a cell
    panel.way(np.array([[1, 2], [0, 2], [9, 2], [9, 1]], np.int32), (10, 10), 4, "#0000FF")
    row, column = canvas.frame()[75, :, 2] > 80, canvas.frame()[:, 95, 2] > 80
    assert row[:14].all() and row[93:].all() and not row[20:90].any()
    assert column[77:84].all() and not column[:70].any() and not column[90:].any()


def test_axes_and_scale_write_outside_of_their_box():
    canvas = Canvas(400, 300, header=0)
    canvas.view(0, 400, 0)
    panel = canvas.panel((100, 100, 300, 200), (0, 10), (-1, 1), 16)
    panel.axes("step", "energy, eV")
    panel.scale(0.0, 6.0, "eV")
    light = canvas.frame()[..., 0] > 128
    for rows, columns in (
        (slice(200, 260), slice(100, 300)),
        (slice(100, 200), slice(40, 99)),
        (slice(60, 99), slice(95, 300)),
    ):
        assert light[rows, columns].any()
    assert light[100:200, 344:372].any() and light[70:99, 322:346].any()
