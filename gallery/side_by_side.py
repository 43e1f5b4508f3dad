"""SideBySide: several recordings as one video, each with its own title, such as one environment with several parameters."""

from itertools import islice, repeat

from cupydrive.drawing.frames import beside
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_sequence
from cupydrive.rendering.video import Video


class SideBySide(Video):
    """Recordings from left to right, step by step; one that is over stays as it ended.

    Args:
        recordings: ``Recording``s of an episode each, two or more, of one environment.
        titles: One for each.
        size: (width, height) of all of them together in pixels, even; None: the first environment's.
        fps: Frames per second; None: the first environment's.
        hold: Seconds that the last frame stays.
        title: Who plays, above all of them; None: what is known of the first.
        progress: Show one progress line while drawing.
        every: Draw one step in this many.
        seconds: Stop after this time; None: at the end of the longest.

    Raises:
        ParameterError: If there are fewer than two, not as many titles, or one is of several episodes or another game.
    """

    def __init__(
        self, recordings, titles, size=None, fps=None, hold=1.0, title=None, progress=True, every=1, seconds=None
    ):
        recordings, titles = (
            checked_sequence("SideBySide", name, values)
            for name, values in (("recordings", recordings), ("titles", titles))
        )
        if len(recordings) < 2 or len(titles) != len(recordings):
            raise ParameterError(
                f"SideBySide: {len(recordings)} recordings and {len(titles)} titles; pass two recordings or more, and a title "
                "for each"
            )
        self.recordings, self.titles = recordings, titles
        parts = [Video(r, size, fps, hold, title, progress, every, seconds) for r in recordings]
        for number, recording in enumerate(recordings):
            if recording.num_envs != 1 or recording.spec.name != recordings[0].spec.name:
                raise ParameterError(
                    f"SideBySide: recordings[{number}] has {recording.num_envs} episodes of {recording.spec.name}; each must "
                    f"have one, of {recordings[0].spec.name}: pass recording[0]"
                )
        super().__init__(recordings[0], size, fps, hold, title, progress, every, seconds)
        self.drawn = max(part.drawn for part in parts)

    def frames(self):
        """Yield all frames, (height, width, 3) uint8, the held ones too."""
        title = self.words()
        drawn = beside(self.recordings, self.titles, self.width, self.height, "cpu", title, self.every)
        for picture in islice(drawn, self.drawn):
            yield picture
        yield from repeat(picture, self.held)
