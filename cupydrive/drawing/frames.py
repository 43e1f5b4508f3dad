"""Frames of a recording: one episode, or a mosaic of several side by side."""

import base64
import html
import io
import math
from collections import deque
from itertools import zip_longest

import numpy as np
from PIL import Image

from cupydrive.drawing.canvas import Canvas, in_words
from cupydrive.errors import ParameterError, RenderError

GAP = 4  # pixels between the pictures of a mosaic
CHOSEN = tuple(bytes.fromhex(Canvas.YELLOW[1:]))  # colour of the gap around the chosen one
DIM = 0.4  # share of the background in the picture of an episode that is over: still to be seen
LEARNT = ("ppo", "a2c", "ddpg")  # players, as recordings name them
MOST = 64  # episodes of a mosaic
BESIDE = 0.75  # letters above episodes side by side are as high as in a picture of this share of their width
BETWEEN = tuple(bytes.fromhex(Canvas.GRID[1:]))  # colour of what lies between pictures


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
    """Return who plays: what all groups do, or the groups, each after what it does.

    An algorithm that ships says only that somebody has learnt, ``"trained"``, unless it plays another one.
    """
    if len({player for player in players.values() if player in LEARNT}) == 1:
        players = {name: "trained" if player in LEARNT else player for name, player in players.items()}
    if len(set(players.values())) == 1:
        return next(iter(players.values()))
    return " vs ".join(f"{player} {name}" for name, player in players.items())


def score(moment, e):
    """Return the returns of environment ``e`` so far, a group's mean over its agents."""
    means = {name: float(values[e].mean()) for name, values in moment.returns.items()}
    if len(means) == 1:
        return f"return {next(iter(means.values())):.4g}"
    return "return " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())


def clock(params, step, last=None):
    """Return the step of an episode, and how many there can be: ``last``, or up to the time limit."""
    return f"step {step} of {min(last or params.max_episode_steps, params.max_episode_steps)}"


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
        pictures += [canvas.frame(), np.full((2 * high, GAP, 3), BETWEEN, np.uint8)]
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
    canvas.caption(clock(params, elapsed, canvas.last_step), spec.title)
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

    def draw(self, moment):
        """Draw a ``Moment``, taken in now if it was not before; the header stays empty."""
        self.take(moment)
        self.canvas.clear()
        self.spec.draw(self.canvas, self.params, np.stack(self.past), moment.step)

    def picture(self, moment, left="", right=""):
        """Return a ``Moment`` as (height, width, 3) uint8, with words in its header."""
        self.draw(moment)
        self.canvas.caption(left, right)
        return self.canvas.frame()


def one_episode(recording, width, height, device, title, every, chosen):
    """Yield the frames of one episode."""
    canvas = Canvas(width, height, labels=chosen is not None)
    stage = Stage(recording.spec, recording.params, canvas)
    for moment in recording.moments(device):
        stage.take(moment)
        if moment.step % every and moment.step < recording.steps:
            continue
        stage.draw(moment)
        canvas.caption(clock(recording.params, moment.step, canvas.last_step), title, score(moment, 0))
        yield canvas.frame()


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
    cell = Canvas(cell_width, cell_height, header=0, part_of=width)
    heading = Canvas(width, -(-whole.header // 2) * 2, whole.header)  # all that changes around the cells
    whole.clear(Canvas.GRID)
    board = whole.frame()
    kept, over = [None] * count, np.array([int(Canvas.STAGE[i : i + 2], 16) for i in (1, 3, 5)])
    keys = [()] * count
    for moment in recording.moments(device):
        past.append(moment.states)
        if moment.step % every and moment.step < recording.steps:
            continue
        picture = board.copy()
        for e in range(count):
            if kept[e] is None:
                cell.clear()
                cell.labels = e == chosen
                recording.spec.draw(cell, recording.params, np.stack([states[e] for states in past]), moment.step)
                shown, keys[e] = cell.frame(), cell.keys
                if moment.over[e]:
                    shown = kept[e] = (shown * (1 - DIM) + over * DIM).astype(np.uint8)
            else:
                shown = kept[e]
            x = GAP + (e % columns) * (cell_width + GAP)
            y = whole.header + (e // columns) * (cell_height + GAP)
            picture[y : y + cell_height, x : x + cell_width] = shown
        heading.clear()
        heading.key(*together(keys))
        step = clock(recording.params, moment.step, cell.last_step)
        heading.caption(step, title, f"{int(moment.over.sum())} of {count} over")
        picture[: heading.height] = heading.frame()
        if chosen is not None:
            x, y = (
                GAP + (chosen % columns) * (cell_width + GAP),
                whole.header + (chosen // columns) * (cell_height + GAP),
            )
            top = max(y - GAP, heading.height)  # not over the header's letters
            inside = picture[top + GAP : y + cell_height, x : x + cell_width].copy()
            picture[top : y + cell_height + GAP, x - GAP : x + cell_width + GAP] = CHOSEN
            picture[top + GAP : y + cell_height, x : x + cell_width] = inside
        yield picture


def beside(recordings, titles, width, height, device, title, every):
    """Yield the frames of several recordings, an episode each, from left to right; one that is over stays as it ended.

    Args:
        recordings: Of one environment.
        titles: One for each, above its picture.
        width: Pixels of all of them together, even.
        height: Likewise.
        device: Where states are computed.
        title: Who plays, above all of them.
        every: Draw one step in this many, and the last one.
    """
    part = (width - GAP * (len(recordings) - 1)) // len(recordings) // 2 * 2
    heading = Canvas(width, height, part_of=round(width * BESIDE))
    cells = [Canvas(part, (height - heading.header) // 2 * 2, part_of=round(width * BESIDE)) for _ in recordings]
    pictures = [pictures_beside(*each, device, every) for each in zip(cells, recordings, titles, strict=True)]
    now = [None] * len(recordings)
    for found in zip_longest(*pictures):
        now = [new or last for new, last in zip(found, now, strict=True)]
        heading.clear()
        heading.key(*((color, text) for color, text, *_ in cells[0].keys))
        heading.caption(clock(recordings[0].params, max(step for step, _ in now), cells[0].last_step), title)
        picture = heading.frame()
        for k, (_, drawn) in enumerate(now):
            picture[-len(drawn) :, k * (part + GAP) : k * (part + GAP) + part] = drawn
        yield picture


def pictures_beside(canvas, recording, title, device, every):
    """Yield (step, picture) of one of several recordings side by side."""
    past = deque(maxlen=recording.spec.trail + 1)
    for moment in recording.moments(device):
        past.append(moment.states[0])
        if moment.step % every and moment.step < recording.steps:
            continue
        canvas.clear()
        recording.spec.draw(canvas, recording.params, np.stack(past), moment.step)
        keys, canvas.keys = canvas.keys, ()  # which colours mean what is said once, above all of them
        canvas.caption(title, "", ", ".join(in_words(text, *count) for _, text, *count in keys[1:] if count))
        picture, canvas.keys = canvas.frame(), keys
        yield moment.step, picture


def together(keys):
    """Return one key for several pictures: each item of the first one's, with the sum of the counts where it has any."""
    return [
        (color, text, *([sum(key[k][2] for key in keys)] if count else []))
        for k, (color, text, *count) in enumerate(keys[0])
    ]
