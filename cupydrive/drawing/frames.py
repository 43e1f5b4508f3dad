"""Frames of a recording: one episode, or a mosaic of several side by side."""

import base64
import html
import io
import math
from collections import deque

import numpy as np
from PIL import Image

from cupydrive.drawing.canvas import Canvas
from cupydrive.errors import ParameterError, RenderError

GAP = 4  # pixels between the pictures of a mosaic
CHOSEN = (0, 0x72, 0xB2)  # colour of the gap around the chosen one
DIM = 0.55  # share of white in the picture of an episode that is over
MOST = 64  # episodes of a mosaic
NARROW = 120  # pixels; smaller pictures have no text of their own


def frames(recording, width, height, device="cpu", title=None, every=1, chosen=None):
    """Yield the frames of a recording, (height, width, 3) uint8: the start, and one for each step.

    Args:
        recording: ``Recording`` of up to 64 episodes.
        width: Pixels, even.
        height: Pixels, even.
        device: Where states are computed.
        title: Who plays; None: what the recording says.
        every: Draw one step in this many, and the last one.
        chosen: Episode whose agents are labelled, and whose picture in a mosaic has a frame; None: none.

    Raises:
        RenderError: If the environment draws nothing.
        ParameterError: If there are too many episodes for the size.
    """
    check_drawable(recording.spec)
    Canvas(width, height)  # the sizes are right
    if recording.num_envs > MOST:
        raise ParameterError(f"{recording.num_envs} episodes; a mosaic shows up to {MOST}: pass recording[:{MOST}]")
    title = players_in_words(recording.players) if title is None else title
    pictures = one_episode if recording.num_envs == 1 else mosaic
    return pictures(recording, width, height, device, title, every, chosen)


def check_drawable(spec):
    """Raise ``RenderError`` if the environment draws nothing."""
    if spec.draw is None:
        raise RenderError(
            f"{spec.name} has no drawing; give its EnvSpec draw=, a function of (canvas, params, states, elapsed)"
        )


def players_in_words(players):
    """Return who plays, in the order of the groups; once if it is the same for all."""
    return " vs ".join(dict.fromkeys(players.values()))


def score(moment, e):
    """Return the returns of environment ``e`` so far, a group's mean over its agents."""
    means = {name: float(values[e].mean()) for name, values in moment.returns.items()}
    if len(means) == 1:
        return f"return {next(iter(means.values())):.4g}"
    return "   ".join(f"{name} {mean:+.2f}" for name, mean in means.items())


def still(spec, params, states, elapsed, width=240):
    """Return pictures of some environments as they are, side by side, as an HTML image.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        states: (N,) structs.
        elapsed: (N,) steps of each episode.
        width: Pixels of one picture.
    """
    check_drawable(spec)
    high = round(width * spec.render_size[1] / spec.render_size[0]) // 2 * 2
    canvas, pictures = Canvas(2 * width, 2 * high, header=0), []
    for state, step in zip(states, elapsed, strict=True):
        canvas.clear()
        spec.draw(canvas, params, state[None], int(step))
        pictures += [canvas.frame(), np.full((2 * high, GAP, 3), 255, np.uint8)]
    file = io.BytesIO()
    Image.fromarray(np.concatenate(pictures, axis=1)).save(file, "PNG")
    alt = f"{spec.name}: {len(states)} environments, after {', '.join(str(int(step)) for step in elapsed)} steps"
    return data_image(file.getvalue(), "png", alt, (width + GAP // 2) * len(states))


def picture(spec, params, states, elapsed):
    """Return the last of one episode's states as (height, width, 3) uint8 of ``spec.render_size``.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        states: (K,) structs; those before the last are for trails.
        elapsed: Steps of the episode.
    """
    check_drawable(spec)
    canvas = Canvas(*spec.render_size)
    canvas.clear()
    spec.draw(canvas, params, states, elapsed)
    canvas.caption(f"step {elapsed}", spec.title)
    return canvas.frame()


def data_image(content, kind, alt, width):
    """Return bytes of a picture as an HTML image that holds its own data."""
    data = base64.b64encode(content).decode()
    return f'<img alt="{html.escape(alt)}" width="{width}" src="data:image/{kind};base64,{data}">'


class Stage:
    """Where one episode is drawn moment by moment, with the states before the last one, as an environment asks for them.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        canvas: ``Canvas``.
    """

    def __init__(self, spec, params, canvas):
        self.spec, self.params, self.canvas = spec, params, canvas
        self.past, self.latest = deque(maxlen=spec.trail + 1), None

    def take(self, moment):
        """Take in a ``Moment``, once; the start of an episode forgets the one before."""
        if moment is self.latest:
            return
        if not moment.step:
            self.past.clear()
        self.past.append(moment.states[0])
        self.latest = moment

    def picture(self, moment, left="", right=""):
        """Return a ``Moment``, taken in now if it was not before, as (height, width, 3) uint8, with words in its header."""
        self.take(moment)
        self.canvas.clear()
        self.spec.draw(self.canvas, self.params, np.stack(self.past), moment.step)
        self.canvas.caption(left, right)
        return self.canvas.frame()


def one_episode(recording, width, height, device, title, every, chosen):
    """Yield the frames of one episode."""
    stage = Stage(recording.spec, recording.params, Canvas(width, height, labels=chosen is not None))
    for moment in recording.moments(device):
        stage.take(moment)
        if moment.step % every and moment.step < recording.steps:
            continue
        yield stage.picture(moment, f"step {moment.step}   {score(moment, 0)}", title)


def mosaic(recording, width, height, device, title, every, chosen):
    """Yield the frames of several episodes; those that are over are dimmed."""
    count, past = recording.num_envs, deque(maxlen=recording.spec.trail + 1)
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    whole = Canvas(width, height)
    cell_width = (width - GAP * (columns + 1)) // columns // 2 * 2
    cell_height = (height - whole.header - GAP * rows) // rows // 2 * 2
    if min(cell_width, cell_height) < 16:
        raise ParameterError(f"{count} episodes do not fit into {width} x {height} pixels; pass a larger size")
    cell = Canvas(cell_width, cell_height, header=16 if cell_width >= NARROW else 0)
    # The header is all that changes around the cells. A line of text is higher than a low header, so this canvas is, too.
    heading = Canvas(width, min(height, whole.header // 2 * 2 + 16), whole.header)
    whole.clear("#DADADA")
    board = whole.frame()
    kept = [None] * count
    for moment in recording.moments(device):
        past.append(moment.states)
        if moment.step % every and moment.step < recording.steps:
            continue
        heading.clear("#DADADA")
        heading.caption(f"{recording.spec.name}   step {moment.step}   {int(moment.over.sum())} of {count} over", title)
        picture = board.copy()
        picture[: heading.height] = heading.frame()
        for e in range(count):
            if kept[e] is None:
                cell.clear()
                cell.labels = e == chosen
                recording.spec.draw(cell, recording.params, np.stack([states[e] for states in past]), moment.step)
                cell.caption(f"{int(moment.elapsed[e])}", score(moment, e))
                shown = cell.frame()
                if moment.over[e]:
                    shown = kept[e] = (shown * (1 - DIM) + 255 * DIM).astype(np.uint8)
            else:
                shown = kept[e]
            x = GAP + (e % columns) * (cell_width + GAP)
            y = whole.header + (e // columns) * (cell_height + GAP)
            if e == chosen:
                picture[y - GAP : y + cell_height + GAP, x - GAP : x + cell_width + GAP] = CHOSEN
            picture[y : y + cell_height, x : x + cell_width] = shown
        yield picture
