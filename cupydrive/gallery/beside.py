"""SideBySide: several recordings as one video, each with its own title, such as one environment with several parameters."""

from itertools import repeat

import numpy as np

from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_sequence
from cupydrive.rendering.video import Video, require_memory


class SideBySide(Video):
    """Recordings from left to right, step by step; one that is over stays as it ended.

    Args:
        recordings: ``Recording``s, two or more.
        titles: One for each.
        size: (width, height) of each in pixels, even; None: the first environment's.
        fps: Frames per second; None: the first environment's.
        hold: Seconds that the last frame stays.
        progress: Show one progress line while drawing.
        every: Draw one step in this many.
        seconds: Stop after this time; None: at the end of the longest.

    Raises:
        ParameterError: If there are fewer than two, or not as many titles.
    """

    def __init__(self, recordings, titles, size=None, fps=None, hold=1.0, progress=True, every=1, seconds=None):
        recordings, titles = (
            checked_sequence("SideBySide", name, values)
            for name, values in (("recordings", recordings), ("titles", titles))
        )
        if len(recordings) < 2 or len(titles) != len(recordings):
            raise ParameterError(
                f"SideBySide: {len(recordings)} recordings and {len(titles)} titles; pass two recordings or more, and a title "
                "for each"
            )
        look = dict(hold=hold, progress=progress, every=every, seconds=seconds)
        super().__init__(recordings[0], size, fps, title=" | ".join(titles), **look)
        one = self.width, self.height
        self.parts = [Video(r, one, self.fps, title=t, **look) for r, t in zip(recordings, titles, strict=True)]
        self.width *= len(recordings)
        require_memory(self.width, self.height)
        self.drawn = max(part.drawn for part in self.parts)

    def frames(self):
        """Yield all frames, (height, width, 3) uint8, the held ones too."""
        shown = [None] * len(self.parts)
        drawn = [part.frames() for part in self.parts]
        for _ in range(self.drawn):
            shown = [next(frames, last) for frames, last in zip(drawn, shown, strict=True)]
            picture = np.concatenate(shown, axis=1)
            yield picture
        yield from repeat(picture, self.held)
