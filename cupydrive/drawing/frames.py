"""Frames of a recording: one episode, or a mosaic of several side by side."""

from __future__ import annotations

import base64
import html
import io
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from PIL import Image

from cupydrive.drawing.canvas import Canvas
from cupydrive.errors import ParameterError, RenderError

if TYPE_CHECKING:
    from cupydrive.spec import EnvSpec

GAP = 4  # pixels between the pictures of a mosaic
CHOSEN = tuple(bytes.fromhex(Canvas.YELLOW[1:]))  # colour of the gap around the chosen one
DIM = 0.4  # share of the background in the picture of an episode that is over: still to be seen
LEARNT = ("ppo", "a2c", "ddpg")  # players, as recordings name them
MOST = 64  # episodes of a mosaic
BETWEEN = tuple(bytes.fromhex(Canvas.GRID[1:]))  # colour of what lies between pictures


class Moment(Protocol):
    """All episodes of a recording after a step."""

    @property
    def step(self) -> int:
        """Number of steps so far."""

    @property
    def states(self) -> np.ndarray:
        """(N,) structs."""

    @property
    def over(self) -> np.ndarray:
        """(N,) bool, whether an episode is over."""

    @property
    def returns(self) -> Mapping[str, np.ndarray]:
        """By group: (N, C) float32, sum of rewards so far."""


class Recording(Protocol):
    """Episodes that can be drawn, as ``cupydrive.playing.recording`` keeps them."""

    @property
    def spec(self) -> EnvSpec:
        """Environment."""

    @property
    def params(self) -> Any:
        """Parameters of the environment."""

    @property
    def players(self) -> Mapping[str, str]:
        """Description of the player, by group."""

    @property
    def num_envs(self) -> int:
        """Number of episodes."""

    @property
    def steps(self) -> int:
        """Number of steps of the longest one."""

    def moments(self, device: str) -> Iterator[Moment]:
        """Yield the start and each step."""


def frames(
    recording: Recording,
    width: int,
    height: int,
    device: str = "cpu",
    title: str | None = None,
    every: int = 1,
    chosen: int | None = None,
) -> Iterator[np.ndarray]:
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


def check_drawable(spec: EnvSpec) -> Callable[..., None]:
    """Return the environment's drawing function, or raise ``RenderError`` if it has none."""
    if spec.display.draw is None:
        raise RenderError(f"{spec.name} has no drawing; give its EnvSpec display=Display(draw)")
    return spec.display.draw


def players_in_words(players: Mapping[str, str]) -> str:
    """Return who plays: what all groups do, or the groups, each after what it does.

    An algorithm that ships says only that somebody has learnt, ``"trained"``, unless it plays another one.
    """
    if len({player for player in players.values() if player in LEARNT}) == 1:
        players = {name: "trained" if player in LEARNT else player for name, player in players.items()}
    if len(set(players.values())) == 1:
        return next(iter(players.values()))
    return " vs ".join(f"{player} {name}" for name, player in players.items())


def score(moment: Moment, e: int) -> str:
    """Return the returns of environment ``e`` so far, a group's mean over its agents."""
    means = {name: float(values[e].mean()) for name, values in moment.returns.items()}
    if len(means) == 1:
        return f"return {next(iter(means.values())):.4g}"
    return "return " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())


def clock(params: Any, step: int, last: int | None = None) -> str:
    """Return the step of an episode, and how many there can be: ``last``, or up to the time limit."""
    return f"step {step} of {min(last or params.max_episode_steps, params.max_episode_steps)}"


def still(spec: EnvSpec, params: Any, states: np.ndarray, elapsed: np.ndarray, width: int = 240) -> str:
    """Return pictures of some environments as they are, side by side, as an HTML image.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        states: (N,) structs.
        elapsed: (N,) steps of each episode.
        width: Pixels of one picture.
    """
    draw = check_drawable(spec)
    high = round(width * spec.display.size[1] / spec.display.size[0]) // 2 * 2
    canvas, pictures = Canvas(2 * width, 2 * high, header=0), []
    for state, step in zip(states, elapsed, strict=True):
        canvas.clear()
        draw(canvas, params, state[None], int(step))
        pictures += [canvas.frame(), np.full((2 * high, GAP, 3), BETWEEN, np.uint8)]
    file = io.BytesIO()
    Image.fromarray(np.concatenate(pictures, axis=1)).save(file, "PNG")
    alt = f"{spec.name}: {len(states)} environments, after {', '.join(str(int(step)) for step in elapsed)} steps"
    return data_image(file.getvalue(), "png", alt, (width + GAP // 2) * len(states))


def picture(spec: EnvSpec, params: Any, states: np.ndarray, elapsed: int) -> np.ndarray:
    """Return the last of one episode's states as (height, width, 3) uint8 of ``spec.display.size``.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        states: (K,) structs; those before the last are for trails.
        elapsed: Steps of the episode.
    """
    canvas, draw = Canvas(*spec.display.size), check_drawable(spec)
    canvas.clear()
    draw(canvas, params, states, elapsed)
    canvas.caption(clock(params, elapsed, canvas.last_step), spec.title)
    return canvas.frame()


def data_image(content: bytes, kind: str, alt: str, width: int) -> str:
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

    def __init__(self, spec: EnvSpec, params: Any, canvas: Canvas) -> None:
        self.params, self.canvas, self.drawing = params, canvas, check_drawable(spec)
        self.past: deque[np.ndarray] = deque(maxlen=spec.display.trail + 1)
        self.latest: Moment | None = None

    def take(self, moment: Moment) -> None:
        """Take in a ``Moment``, once; the start of an episode forgets the one before."""
        if moment is self.latest:
            return
        if not moment.step:
            self.past.clear()
        self.past.append(moment.states[0])
        self.latest = moment

    def draw(self, moment: Moment) -> None:
        """Draw a ``Moment``, taken in now if it was not before; the header stays empty."""
        self.take(moment)
        self.canvas.clear()
        self.drawing(self.canvas, self.params, np.stack(self.past), moment.step)

    def picture(self, moment: Moment, left: str = "", right: str = "") -> np.ndarray:
        """Return a ``Moment`` as (height, width, 3) uint8, with words in its header."""
        self.draw(moment)
        self.canvas.caption(left, right)
        return self.canvas.frame()


def one_episode(
    recording: Recording, width: int, height: int, device: str, title: str, every: int, chosen: int | None
) -> Iterator[np.ndarray]:
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


def mosaic(
    recording: Recording, width: int, height: int, device: str, title: str, every: int, chosen: int | None
) -> Iterator[np.ndarray]:
    """Yield the frames of several episodes; those that are over are dimmed."""
    count, drawing = recording.num_envs, check_drawable(recording.spec)
    past: deque[np.ndarray] = deque(maxlen=recording.spec.display.trail + 1)
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
    kept: list[np.ndarray | None] = [None] * count
    over = np.array([int(Canvas.STAGE[i : i + 2], 16) for i in (1, 3, 5)])
    keys: list[Sequence[tuple[Any, ...]]] = [()] * count
    for moment in recording.moments(device):
        past.append(moment.states)
        if moment.step % every and moment.step < recording.steps:
            continue
        picture = board.copy()
        for e in range(count):
            shown = kept[e]
            if shown is None:
                cell.clear()
                cell.labels = e == chosen
                drawing(cell, recording.params, np.stack([states[e] for states in past]), moment.step)
                shown, keys[e] = cell.frame(), cell.keys
                if moment.over[e]:
                    shown = kept[e] = (shown * (1 - DIM) + over * DIM).astype(np.uint8)
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


def together(keys: Sequence[Sequence[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Return one key for several pictures: each item of the first one's, with the sum of the counts where it has any."""
    return [
        (color, text, *([sum(key[k][2] for key in keys)] if count else []))
        for k, (color, text, *count) in enumerate(keys[0])
    ]
