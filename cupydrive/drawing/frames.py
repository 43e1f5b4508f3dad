"""Frames of a recording: one episode, or a mosaic of several side by side."""

from __future__ import annotations

import base64
import html
import io
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from cupydrive.drawing.canvas import Canvas, Key
from cupydrive.errors import ParameterError, RenderError

if TYPE_CHECKING:
    from cupydrive.playing.recording import Moment, Recording
    from cupydrive.protocols import EnvParams
    from cupydrive.spec import EnvSpec

GAP = 4  # pixels between the pictures of a mosaic
CHOSEN = tuple(bytes.fromhex(Canvas.YELLOW[1:]))  # color of the frame around the chosen picture
DIM = 0.4  # fraction of background color in the picture of a finished episode
LEARNED = ("ppo", "a2c", "pqn", "ddpg")  # names of learned policies in recordings
MOST = 64  # maximum number of episodes of a mosaic
BETWEEN = tuple(bytes.fromhex(Canvas.GRID[1:]))  # color between pictures
DIMMED = np.array(tuple(bytes.fromhex(Canvas.STAGE[1:])))


def frames(
    recording: Recording,
    width: int,
    height: int,
    title: str | None = None,
    every: int = 1,
    chosen: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the frames of a recording, (height, width, 3) uint8: the initial state, and one for
    each step.

    Args:
        recording: ``Recording`` of up to 64 episodes.
        width: Pixels, even.
        height: Pixels, even.
        title: Description of the policies. Defaults to that of the recording.
        every: Draw every n-th step, and the last one.
        chosen: Index of the episode with labeled agents, whose picture in a mosaic has a frame.

    Raises:
        RenderError: If the environment has no drawing.
        ParameterError: If there are too many episodes for the size.
    """
    check_drawable(recording.spec)
    if recording.num_envs > MOST:
        raise ParameterError(
            f"got {recording.num_envs} episodes, expected at most {MOST} in a mosaic. Pass "
            f"recording[:{MOST}]"
        )
    title = players_in_words(recording.players) if title is None else title
    pictures = one_episode if recording.num_envs == 1 else mosaic
    return pictures(recording, Canvas(width, height), title, every, chosen)


def check_drawable(spec: EnvSpec) -> Callable[..., None]:
    """Return the environment's drawing function, or raise ``RenderError`` if it has none."""
    if spec.display.draw is None:
        raise RenderError(f"{spec.name} has no drawing. Pass display=Display(draw) to its EnvSpec")
    return spec.display.draw


def players_in_words(players: Mapping[str, str]) -> str:
    """Describe the policies: one name if all groups have the same, or policy and group for each.

    An algorithm of the package is shown as ``"trained"``, unless different algorithms play each
    other.
    """
    if len({player for player in players.values() if player in LEARNED}) == 1:
        players = {
            name: "trained" if player in LEARNED else player for name, player in players.items()
        }
    if len(set(players.values())) == 1:
        return next(iter(players.values()))
    return " vs ".join(f"{player} {name}" for name, player in players.items())


def score(moment: Moment, e: int) -> str:
    """Format the current returns of environment ``e``, as means over the agents of each group."""
    means = {name: float(values[e].mean()) for name, values in moment.returns.items()}
    if len(means) == 1:
        return f"return {next(iter(means.values())):.4g}"
    return "return " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())


def clock(params: EnvParams, step: int, last: int | None = None) -> str:
    """Format the step of an episode and its maximum, which is ``last`` or the time limit."""
    return f"step {step} of {min(last or params.max_episode_steps, params.max_episode_steps)}"


def paint(
    canvas: Canvas, spec: EnvSpec, params: EnvParams, states: np.ndarray, elapsed: int
) -> Canvas:
    """Draw the last of an episode's states, (K,) structs, on a cleared canvas, and return it.

    The earlier states are for trails.
    """
    canvas.clear()
    check_drawable(spec)(canvas, params, states, elapsed)
    return canvas


def still(
    spec: EnvSpec, params: EnvParams, states: np.ndarray, elapsed: np.ndarray, width: int = 240
) -> str:
    """Return pictures of several environments, side by side, as an HTML image.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        states: (N,) structs.
        elapsed: (N,) steps of each episode.
        width: Width of one picture in pixels.
    """
    high = round(width * spec.display.size[1] / spec.display.size[0]) // 2 * 2
    canvas, pictures = Canvas(2 * width, 2 * high, header=0), []
    for state, step in zip(states, elapsed, strict=True):
        pictures.append(paint(canvas, spec, params, state[None], int(step)).frame())
        pictures.append(np.full((2 * high, GAP, 3), BETWEEN, np.uint8))
    file = io.BytesIO()
    Image.fromarray(np.concatenate(pictures, axis=1)).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    alt = (
        f"{spec.name}: {len(states)} environments, after "
        f"{', '.join(str(int(step)) for step in elapsed)} steps"
    )
    return (
        f'<img alt="{html.escape(alt)}" width="{(width + GAP // 2) * len(states)}" '
        f'src="data:image/png;base64,{data}">'
    )


def picture(spec: EnvSpec, params: EnvParams, states: np.ndarray, elapsed: int) -> np.ndarray:
    """Return the last of one episode's states as (height, width, 3) uint8 of ``spec.display.size``.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        states: (K,) structs. The earlier ones are for trails.
        elapsed: Number of steps of the episode.
    """
    canvas = paint(Canvas(*spec.display.size), spec, params, states, elapsed)
    canvas.caption(clock(params, elapsed, canvas.last_step), spec.title)
    return canvas.frame()


class Stage:
    """Canvas for an episode, which keeps the earlier states that the environment needs for trails.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        canvas: ``Canvas``.
    """

    def __init__(self, spec: EnvSpec, params: EnvParams, canvas: Canvas) -> None:
        self.spec, self.params, self.canvas = spec, params, canvas
        self.past: deque[np.ndarray] = deque(maxlen=spec.display.trail + 1)
        self.latest: Moment | None = None

    def take(self, moment: Moment) -> None:
        """Append a ``Moment`` if it is new. The start of an episode clears earlier states."""
        if moment is self.latest:
            return
        if not moment.step:
            self.past.clear()
        self.past.append(moment.states)
        self.latest = moment

    def draw(self, moment: Moment, e: int = 0) -> Canvas:
        """Draw environment ``e`` of a ``Moment``, and return the canvas without a header."""
        self.take(moment)
        return paint(
            self.canvas,
            self.spec,
            self.params,
            np.stack([states[e] for states in self.past]),
            moment.step,
        )

    def moments(self, recording: Recording, every: int) -> Iterator[Moment]:
        """Append all ``Moment``s of a recording, and yield every n-th one and the last one."""
        for moment in recording.moments():
            self.take(moment)
            if not moment.step % every or moment.step == recording.steps:
                yield moment


def one_episode(
    recording: Recording, canvas: Canvas, title: str, every: int, chosen: int | None
) -> Iterator[np.ndarray]:
    """Yield the frames of one episode."""
    canvas.labels = chosen is not None
    stage = Stage(recording.spec, recording.params, canvas)
    for moment in stage.moments(recording, every):
        stage.draw(moment)
        canvas.caption(
            clock(recording.params, moment.step, canvas.last_step), title, score(moment, 0)
        )
        yield canvas.frame()


def mosaic(
    recording: Recording, whole: Canvas, title: str, every: int, chosen: int | None
) -> Iterator[np.ndarray]:
    """Yield the frames of several episodes side by side. Finished ones are dimmed."""
    count = recording.num_envs
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    width = (whole.width - GAP * (columns + 1)) // columns // 2 * 2
    height = (whole.height - whole.header - GAP * rows) // rows // 2 * 2
    if min(width, height) < 16:
        raise ParameterError(
            f"{count} episodes do not fit into {whole.width} x {whole.height} pixels. Pass a "
            f"larger size"
        )
    places = [
        (GAP + e % columns * (width + GAP), whole.header + e // columns * (height + GAP))
        for e in range(count)
    ]
    cell = Canvas(width, height, header=0, part_of=whole.width)
    stage = Stage(recording.spec, recording.params, cell)
    # The header changes with each frame.
    heading = Canvas(whole.width, -(-whole.header // 2) * 2, whole.header)
    whole.clear(Canvas.GRID)
    board = whole.frame()
    over: dict[int, np.ndarray] = {}  # last pictures, dimmed
    keys: list[Sequence[Key]] = [()] * count
    for moment in stage.moments(recording, every):
        picture = board.copy()
        for e, (x, y) in enumerate(places):
            if e in over:
                shown = over[e]
            else:
                cell.labels = e == chosen
                shown, keys[e] = stage.draw(moment, e).frame(), cell.keys
                if moment.over[e]:
                    shown = over[e] = (shown * (1 - DIM) + DIMMED * DIM).astype(np.uint8)
            picture[y : y + height, x : x + width] = shown
        heading.clear()
        heading.key(*together(keys))
        step = clock(recording.params, moment.step, cell.last_step)
        heading.caption(step, title, f"{int(moment.over.sum())} of {count} over")
        picture[: heading.height] = heading.frame()
        if chosen is not None:
            x, y = places[chosen]
            top = max(y - GAP, heading.height)  # do not cover the header
            inside = picture[top + GAP : y + height, x : x + width].copy()
            picture[top : y + height + GAP, x - GAP : x + width + GAP] = CHOSEN
            picture[top + GAP : y + height, x : x + width] = inside
        yield picture


def together(keys: Sequence[Sequence[Key]]) -> list[Key]:
    """Combine the keys of several pictures: the first key, with the sums of its counts."""
    return [
        (color, text, None if count is None else sum(key[k][2] or 0 for key in keys))
        for k, (color, text, count) in enumerate(keys[0])
    ]
