"""The canvas: pixels where the world says, and environments that draw what they are in."""

import numpy as np
import pytest

from cupydrive.drawing.canvas import Canvas
from cupydrive.errors import ParameterError

STAGE, BLUE, RED = tuple(bytes.fromhex(Canvas.STAGE[1:])), (0, 0, 255), (255, 0, 0)


def covered(frame, color=BLUE):
    """Return which pixels are covered by this colour by half at least, (height, width)."""
    far = np.abs(np.array(color) - STAGE).sum()
    return np.abs(frame.astype(int) - color).sum(axis=-1) < far / 2


def drawn(frame):
    """Return which pixels are not those of the background, (height, width)."""
    return (frame != STAGE).any(axis=-1)


def pixels_of(frame, color):
    """Return (x, y) of all pixels of exactly this colour, in pixels from the upper left corner."""
    rows, columns = np.nonzero((frame == color).all(axis=-1))
    return columns, rows


def test_circle_lies_where_it_should():
    canvas = Canvas(200, 100, header=0)
    canvas.view(-10, 10, 0)  # 10 pixels a unit
    canvas.circle((-5, 2), 1, "#0000FF")
    y, x = np.nonzero(covered(canvas.frame()))
    assert x.mean() + 0.5 == pytest.approx(50, abs=0.5)
    assert y.mean() + 0.5 == pytest.approx(80, abs=0.5)
    assert x.max() - x.min() + 1 == pytest.approx(20, abs=1)
    assert len(x) == pytest.approx(np.pi * 100, rel=0.1)


def test_rectangle_and_line_fill_their_pixels():
    canvas = Canvas(100, 100, header=0)
    canvas.view(0, 100, 0)
    canvas.rectangle(10, 60, 30, 80, "#FF0000")
    canvas.rectangle(90, 50, 70, 40, "#0000FF")  # corners in any order
    frame = canvas.frame()
    assert (frame[23:37, 13:27] == RED).all()
    assert (frame[53:57, 73:87] == BLUE).all()
    assert not drawn(frame[:17]).any()

    canvas.clear()
    canvas.view(0, 100, 0)
    canvas.line([(10, 50), (90, 50)], 10, "#FF0000")
    frame = canvas.frame()
    assert (frame[48:52, 15:85] == RED).all()
    assert not drawn(frame[:40]).any() and not drawn(frame[60:]).any()


def test_view_with_a_top_shows_all_of_it_in_the_middle():
    canvas = Canvas(200, 100, header=0)
    canvas.view(0, 1, 0, top=1)
    canvas.rectangle(0, 0, 1, 1, "#0000FF")
    x, y = pixels_of(canvas.frame(), BLUE)
    assert (x.min(), x.max()) == pytest.approx((50, 149), abs=1)
    assert (y.min(), y.max()) == pytest.approx((0, 99), abs=1)


def test_the_header_holds_text_and_the_world_lies_below_it():
    canvas = Canvas(400, 120, header=40)
    canvas.view(0, 1, 0, top=1)
    canvas.rectangle(0, 0, 1, 1, "#0000FF")
    assert pixels_of(canvas.frame(), BLUE)[1].min() == 40
    canvas.clear()
    canvas.caption("step 1", "random", "return 3")
    first = canvas.frame()
    assert (
        (first[:20, :100] > 128).any()
        and (first[:20, 300:] > 128).any()
        and not drawn(first[40:]).any()
    )
    assert drawn(first[24:40, :100]).any() and not drawn(first[24:40, 200:]).any()
    np.testing.assert_array_equal(canvas.frame(), first)
    canvas.caption("step 2", "random", "return 3")
    changed = (canvas.frame() != first).any(axis=(0, 2))
    assert changed[:100].any() and not changed[100:].any()
    canvas.caption("")
    assert not drawn(canvas.frame()).any()


@pytest.mark.parametrize("text", ["short", "a long text about who plays " * 3, "x" * 500])
def test_texts_of_any_length_do_not_meet(text):
    canvas = Canvas(400, 300)
    canvas.caption("step 12   return +3.50")
    alone = drawn(canvas.frame()).any(axis=0).nonzero()[0].max()
    canvas.caption("step 12   return +3.50", text)
    both = drawn(canvas.frame()).any(axis=0)
    assert both[alone + 8 :].any() and not both[alone + 1 : alone + 8].any()


def test_a_trail_fades_towards_its_oldest_point_and_leaves_out_jumps():
    canvas = Canvas(200, 100, header=0)
    canvas.view(0, 200, 0)
    canvas.trail([(10, 50), (60, 50), (110, 50), (160, 50)], 10, "#0000FF")
    frame = canvas.frame()
    old, newer, newest = (int(frame[50, x, 2]) for x in (35, 85, 135))
    assert STAGE[2] + 20 < old < newer < newest < 255
    canvas.clear()
    canvas.view(0, 200, 0)
    canvas.trail([(10, 50), (60, 50), (160, 50)], 10, "#0000FF", longest=60)
    assert not drawn(canvas.frame())[50, 100] and drawn(canvas.frame())[50, 35]


@pytest.mark.parametrize(
    ("share", "want"), [(0, "#102030"), (1, "#FFFFFF"), (0.5, "#889098"), (7, "#FFFFFF")]
)
def test_mix(share, want):
    assert Canvas.mix("#102030", "#FFFFFF", share) == want


def test_an_arrowhead_points_along_its_heading():
    canvas = Canvas(100, 100, header=0)
    canvas.view(-1, 1, -1)
    canvas.arrowhead((0.0, 0.0), np.pi / 2, 0.8, "#FF0000")
    x, y = pixels_of(canvas.frame(), RED)
    assert y.min() == pytest.approx(10, abs=2) and len(set(x[y < 20])) < len(set(x[y > 50]))


def test_text_stands_where_it_should_and_is_left_out_where_it_could_not_be_read():
    canvas = Canvas(200, 100, header=0)
    canvas.view(0, 20, 0)  # 10 pixels a unit
    canvas.text((15, 5), "MMM", 2, "#0000FF")
    y, x = np.nonzero(covered(canvas.frame()))
    assert (x.min() + x.max()) / 2 == pytest.approx(150, abs=2) and (
        y.min() + y.max()
    ) / 2 == pytest.approx(50, abs=3)
    canvas.clear()
    canvas.view(0, 20, 0)
    canvas.text((15, 5), "MMM", 0.4)
    assert not drawn(canvas.frame()).any()


def test_a_chart_draws_its_curves_in_their_ranges():
    canvas = Canvas(400, 200, header=0)
    canvas.view(0, 400, 0)
    canvas.chart(
        (0, 0, 400, 200),
        [([0, 10], [0, 1], "#0000FF"), ([0, 10], [5, 5], "#FF0000")],
        (0, 10),
        (0, 2),
        "both",
    )
    frame = canvas.frame()
    x, y = pixels_of(frame, BLUE)
    rises = -np.polyfit(x, y, 1)[0]
    x_range, y_range = 400 - 3.2 * 22, 200 - 2.1 * 22  # beside the numbers, below the title
    assert rises == pytest.approx(0.5 * y_range / x_range, rel=0.02)
    # beyond the range: at its edge
    assert x.max() > 390 and pixels_of(frame, RED)[1].max() < 1.6 * 22 + 8
    assert (frame[:20, 75:140] > 128).any() and (frame[20:, :60] > 128).any()  # title, numbers
    canvas.clear()
    canvas.view(0, 400, 0)
    canvas.chart(
        (0, 0, 400, 200), [([4], [1], "#0000FF"), ([], [], "#FF0000")], (0, 10), (0, 2), ticks=()
    )
    x, y = pixels_of(canvas.frame(), BLUE)
    assert x.mean() == pytest.approx(3.2 * 22 + 0.4 * x_range, abs=2) and y.mean() == pytest.approx(
        189 - y_range / 2, abs=2
    )


@pytest.mark.parametrize("width", [601, 0, 600.5])
def test_sizes_must_be_even_ints(width):
    with pytest.raises(ParameterError, match=r"Canvas: .*width"):
        Canvas(width=width)


def test_an_empty_view_is_an_error():
    with pytest.raises(ParameterError, match="left < right"):
        Canvas().view(1, 1, 0)
    with pytest.raises(ParameterError, match="bottom < top"):
        Canvas().view(0, 1, 2, top=1)


def test_a_chart_of_powers_has_a_legend_and_the_ends_of_x():
    canvas = Canvas(400, 300, header=0)
    canvas.view(0, 100, 0)
    looks = dict(legend={"rich": "#0000FF"}, powers=True, ends=True)
    canvas.chart(
        (0, 5, 100, 70), [([0, 1, 2], [0.0, 10.0, 1000.0], "#FF0000")], (0, 2), (0.1, 1e3), **looks
    )
    frame = canvas.frame().astype(int)
    rows, columns = np.nonzero((frame[..., 0] > 200) & (frame[..., 1:] < 60).all(axis=-1))
    places = columns.min() + 5, columns.mean(), columns.max() - 4
    floor, middle, ceiling = (rows[np.abs(columns - x) < 3].mean() for x in places)
    # 0 is shown as 0.1, and 10 lies midway to 1000
    assert floor - middle == pytest.approx(middle - ceiling, rel=0.1)
    assert ((frame[..., 2] > 200) & (frame[..., :2] < 120).all(axis=-1)).sum() > 20  # the legend
    assert drawn(frame[300 - 4 * 5 :]).any()  # the ends, below


def test_no_curve_of_a_chart_crosses_its_key():
    canvas = Canvas(400, 300, header=0)
    canvas.view(0, 100, 0)
    # beyond what is shown: drawn at the panel's upper edge
    highest = [([0, 1, 2], [9.0, 1.0, 9.0], "#FF0000")]
    canvas.chart(
        (0, 5, 100, 70),
        highest,
        (0, 2),
        (0, 1),
        "title",
        legend={"all the way along the panel": "#0000FF"},
    )
    frame = canvas.frame().astype(int)
    curve = (frame[..., 0] > 100) & (frame[..., 1:] < 60).all(axis=-1)
    key = (frame[..., 2] > 100) & (frame[..., :2] < 60).all(axis=-1)
    assert curve.any() and key.any() and np.nonzero(key)[0].max() < np.nonzero(curve)[0].min()


def test_bars_are_as_long_as_their_values():
    canvas = Canvas(200, 100, header=0)
    canvas.view(0, 200, 0)
    canvas.panel((20, 10, 120, 90), (0, 1), (0, 1), 10).bars([1.0, 0.25], ["#FF0000", "#0000FF"])
    frame = canvas.frame()
    for color, width, rows in (((255, 0, 0), 100, slice(10, 50)), ((0, 0, 255), 25, slice(50, 90))):
        inside = (frame == color).all(-1)
        assert inside[rows].any() and not np.delete(inside, np.r_[rows], axis=0).any()
        assert inside.any(axis=0).sum() == width and inside.any(axis=0).argmax() == 20
