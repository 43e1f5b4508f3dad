"""SideBySide: several recordings of one environment as one video, each with its own title."""

from collections import deque
from collections.abc import Iterator
from itertools import islice, repeat, zip_longest

import numpy as np

from cupydrive.drawing.canvas import Canvas, with_count
from cupydrive.drawing.frames import GAP, clock
from cupydrive.playing.recording import Recording
from cupydrive.rendering.video import Video

# letters above episodes side by side are as high as in a picture of this share of their width
BESIDE = 0.75


class SideBySide(Video):
    """Recordings from left to right, step by step; one that is over stays as it ended.

    Args:
        recordings: Recordings of one episode each, two or more, of one environment.
        titles: One for each.
        **look: As of ``Video``; ``size`` is that of all of them together.
    """

    def __init__(self, recordings: list[Recording], titles: list[str], **look):
        super().__init__(recordings[0], **look)
        self.recordings, self.titles = recordings, titles
        self.drawn = max(Video(recording, **look).drawn for recording in recordings)

    def frames(self) -> Iterator[np.ndarray]:
        """Yield all frames, (height, width, 3) uint8, the held ones too."""
        drawn = beside(
            self.recordings, self.titles, self.width, self.height, "cpu", self.words(), self.every
        )
        for picture in islice(drawn, self.drawn):
            yield picture
        yield from repeat(picture, self.held)


def beside(
    recordings: list[Recording],
    titles: list[str],
    width: int,
    height: int,
    device: str,
    title: str,
    every: int,
) -> Iterator[np.ndarray]:
    """Yield the frames of several recordings, an episode each, from left to right; one that is over
    stays as it ended.

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
    cells = [
        Canvas(part, (height - heading.header) // 2 * 2, part_of=round(width * BESIDE))
        for _ in recordings
    ]
    pictures = [
        pictures_beside(*each, device, every)
        for each in zip(cells, recordings, titles, strict=True)
    ]
    now = [None] * len(recordings)
    for found in zip_longest(*pictures):
        now = [new or last for new, last in zip(found, now, strict=True)]
        heading.clear()
        heading.key(*((color, text) for color, text, *_ in cells[0].keys))
        heading.caption(
            clock(recordings[0].params, max(step for step, _ in now), cells[0].last_step), title
        )
        picture = heading.frame()
        for k, (_, drawn) in enumerate(now):
            picture[-len(drawn) :, k * (part + GAP) : k * (part + GAP) + part] = drawn
        yield picture


def pictures_beside(
    canvas: Canvas, recording: Recording, title: str, device: str, every: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (step, picture) of one of several recordings side by side."""
    past = deque(maxlen=recording.spec.display.trail + 1)
    for moment in recording.moments(device):
        past.append(moment.states[0])
        if moment.step % every and moment.step < recording.steps:
            continue
        canvas.clear()
        recording.spec.display.draw(canvas, recording.params, np.stack(past), moment.step)
        # which colours mean what is said once, above all of them
        keys, canvas.keys = canvas.keys, ()
        canvas.caption(
            title,
            "",
            ", ".join(with_count(text, count) for _, text, count in keys[1:] if count is not None),
        )
        picture, canvas.keys = canvas.frame(), keys
        yield moment.step, picture
