"""SideBySide: several recordings of one environment as one video, each with its own title."""

from collections.abc import Iterator
from itertools import islice, repeat

import numpy as np

from cupydrive.drawing.frames import beside
from cupydrive.playing.recording import Recording
from cupydrive.rendering.video import Video


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
        drawn = beside(self.recordings, self.titles, self.width, self.height, "cpu", self.words(), self.every)
        for picture in islice(drawn, self.drawn):
            yield picture
        yield from repeat(picture, self.held)
