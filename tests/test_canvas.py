"""The canvas: pixels where the world says, and environments that draw what they are in."""

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.canvas import Canvas
from cupydrive.errors import ParameterError

WHITE, BLUE, RED = (255, 255, 255), (0, 0, 255), (255, 0, 0)


def pixels_of(frame, color):
    """Return (x, y) of all pixels of exactly this colour, in pixels from the upper left corner."""
    rows, columns = np.nonzero((frame == color).all(axis=-1))
    return columns, rows


def test_frame_is_white_with_the_size_asked_for():
    frame = Canvas(32, 20).frame()
    assert frame.shape == (20, 32, 3)
    assert frame.dtype == np.uint8
    assert (frame == 255).all()


def test_circle_lies_where_it_should():
    canvas = Canvas(200, 100)
    canvas.view(-10, 10, 0)  # 10 pixels a unit
    canvas.circle((-5, 2), 1, "#0000FF")
    y, x = np.nonzero(canvas.frame()[..., 0] < 128)  # covered by half at least
    assert x.mean() + 0.5 == pytest.approx(50, abs=0.5)
    assert y.mean() + 0.5 == pytest.approx(80, abs=0.5)
    assert x.max() - x.min() + 1 == pytest.approx(20, abs=1)
    assert len(x) == pytest.approx(np.pi * 100, rel=0.1)


def test_y_points_up():
    canvas = Canvas(100, 100)
    canvas.view(0, 10, 0)
    canvas.circle((5, 8), 1, "#FF0000")
    canvas.circle((5, 2), 1, "#0000FF")
    frame = canvas.frame()
    assert pixels_of(frame, RED)[1].max() < pixels_of(frame, BLUE)[1].min()


def test_rectangle_and_line_fill_their_pixels():
    canvas = Canvas(100, 100)
    canvas.view(0, 100, 0)
    canvas.rectangle(10, 60, 30, 80, "#FF0000")
    canvas.rectangle(90, 50, 70, 40, "#0000FF")  # corners in any order
    frame = canvas.frame()
    assert (frame[23:37, 13:27] == RED).all()
    assert (frame[53:57, 73:87] == BLUE).all()
    assert (frame[:17] == WHITE).all()

    canvas.clear()
    canvas.view(0, 100, 0)
    canvas.line([(10, 50), (90, 50)], 10, "#FF0000")
    frame = canvas.frame()
    assert (frame[48:52, 15:85] == RED).all()
    assert (frame[:40] == WHITE).all() and (frame[60:] == WHITE).all()


def test_view_with_a_top_shows_all_of_it_in_the_middle():
    canvas = Canvas(200, 100)
    canvas.view(0, 1, 0, top=1)
    canvas.rectangle(0, 0, 1, 1, "#0000FF")
    x, y = pixels_of(canvas.frame(), BLUE)
    assert (x.min(), x.max()) == pytest.approx((50, 149), abs=1)
    assert (y.min(), y.max()) == pytest.approx((0, 99), abs=1)


def test_caption_is_written_once_and_can_be_replaced():
    canvas = Canvas(200, 100)
    canvas.caption("step 1")
    first = canvas.frame()
    assert (first[:30, :80] < 128).any() and (first[50:] == 255).all()
    np.testing.assert_array_equal(canvas.frame(), first)
    canvas.caption("step 2")
    assert (canvas.frame() != first).any()
    canvas.caption("")
    assert (canvas.frame() == 255).all()


@pytest.mark.parametrize("width", [601, 0, -2, 600.0, "600", True, float("nan")])
def test_sizes_must_be_even_ints(width):
    with pytest.raises(ParameterError, match=r"width = .*; it must be an even int"):
        Canvas(width=width)


def test_an_odd_size_names_the_even_one_beside_it():
    with pytest.raises(ParameterError, match="height = 401; it must be an even int from 2 on, such as 400"):
        Canvas(height=401)


def test_an_empty_view_is_an_error():
    with pytest.raises(ParameterError, match="left < right"):
        Canvas().view(1, 1, 0)
    with pytest.raises(ParameterError, match="bottom < top"):
        Canvas().view(0, 1, 2, top=1)


@pytest.mark.parametrize("name", envs.names())
def test_each_environment_draws_its_state(name):
    spec = envs.get(name)
    if spec.draw is None:
        pytest.skip(f"{name} draws nothing")
    params = spec.make_params()
    states = spec.sample(params, np.random.default_rng(0), 2)

    def picture(state):
        canvas = Canvas(300, 200)
        spec.draw(canvas, params, state, 7)
        return canvas.frame()

    one, other = map(picture, states)
    assert len(np.unique(one.reshape(-1, 3), axis=0)) > 10
    assert ((one != other).any(axis=-1)).mean() > 0.001
    np.testing.assert_array_equal(one, picture(states[0]))
