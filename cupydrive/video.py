"""render(): episodes as video that plays in a notebook and saves as mp4, gif or webp."""

import base64
import html
import io
import os
import tempfile
from dataclasses import asdict
from itertools import islice, repeat
from pathlib import Path

from PIL import Image

from cupydrive import envs
from cupydrive.arguments import checked_int
from cupydrive.canvas import Canvas
from cupydrive.errors import ParameterError, RenderError, did_you_mean
from cupydrive.evaluation import Evaluation, evaluate
from cupydrive.files import write_atomically
from cupydrive.frames import MOST, check_drawable, frames, players_in_words
from cupydrive.players import Heuristic, Random
from cupydrive.progress import counted
from cupydrive.recording import Recording

SUFFIXES = (".mp4", ".gif", ".webp")
PLAYERS = {"random": Random, "heuristic": Heuristic}


def render(
    what,
    path=None,
    players=None,
    *,
    episodes=1,
    seed=10_000,
    greedy=True,
    device="auto",
    size=None,
    fps=None,
    hold=1.0,
    title=None,
    progress=True,
    **params,
):
    """Play episodes and return a ``Video``; the same arguments give the same video.

    Args:
        what: Name of an environment, path of its Python file, ``EnvSpec``, ``VectorEnv`` (another copy of it is played), or
            ``Run``; or a ``Recording`` or an ``Evaluation``, whose first episodes are shown again.
        path: Also write it there: ``.mp4``, ``.gif`` or ``.webp``.
        players: ``"random"``, ``"heuristic"``, or settings by group as for ``evaluate``. By default a run's own policies, or
            the heuristic, or random actions where there is none.
        episodes: 1, or up to 64 side by side.
        seed: Of starts and actions; that of ``evaluate``, whose first episodes are these.
        greedy: A run's policies take the likeliest action.
        device: Where to play.
        size: (width, height) in pixels, even; a notebook shows half of it. By default the environment's.
        fps: Frames per second; one frame is one step. By default the environment's.
        hold: Seconds that the last frame stays.
        title: Who plays, in the frame; by default what is known of it.
        progress: Show one progress line.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If an argument is wrong.
        RenderError: If the environment draws nothing, or the file cannot be written; before anything is played.
    """
    if path is not None:
        check_path(path)
    if isinstance(what, Evaluation):
        what = what.recording
    if isinstance(what, Recording):
        if players is not None or params:
            raise ParameterError("render: a recording brings its own players and parameters; leave them out")
        recording = what
    else:
        recording = play(what, players, checked_int("render", "episodes", episodes), seed, greedy, device, params)
    video = Video(recording, size, fps, hold, title, progress)
    if path is not None:
        video.save(path)
    return video


def play(what, players, episodes, seed, greedy, device, params):
    """Return the ``Recording`` of some episodes; arguments as of ``render``."""
    is_run = hasattr(what, "learners")
    if hasattr(what, "batch") and not is_run:  # a VectorEnv
        what, device, params = what.spec, what.device, {**asdict(what.params), **params}
    spec = what.spec if is_run else envs.get(what)
    check_drawable(spec)
    groups = [g.name for g in spec.groups(what.params if is_run else spec.make_params(**params))]
    if players is None and not is_run:
        players = "heuristic" if spec.heuristic else "random"
    if isinstance(players, str):
        if players not in PLAYERS:
            raise ParameterError(
                f"players = {players!r}.{did_you_mean(players, PLAYERS)} It must be {' or '.join(map(repr, PLAYERS))}, or "
                "settings by group"
            )
        players = {name: PLAYERS[players]() for name in groups}
    if episodes > MOST:
        raise ParameterError(f"render: episodes = {episodes}; it must be from 1 to {MOST}")
    recording = evaluate(what, players, episodes=episodes, seed=seed, greedy=greedy, device=device, **params).recording
    if recording is None or recording.num_envs < episodes:
        raise ParameterError(f"render: {episodes} episodes of {spec.name} are too long to keep; pass fewer")
    return recording


class Video:
    """A recording with what is needed to draw it; nothing is drawn before it is shown or saved.

    Args:
        recording: ``Recording``.
        size: (width, height) in pixels, even; None: the environment's.
        fps: Frames per second; None: the environment's.
        hold: Seconds that the last frame stays.
        title: Who plays, in the frame; None: what is known of it.
        progress: Show one progress line while drawing.
        every: Draw one step in this many.
        seconds: Stop after this time; None: at the end.
    """

    def __init__(self, recording, size=None, fps=None, hold=1.0, title=None, progress=True, every=1, seconds=None):
        self.recording, self.title, self.progress = recording, title, progress
        try:
            self.width, self.height = size or recording.spec.render_size
        except (TypeError, ValueError):
            raise ParameterError(
                f"size = {size!r}; it must be (width, height) in pixels, such as {recording.spec.render_size}"
            ) from None
        Canvas(self.width, self.height)
        check_drawable(recording.spec)
        self.fps = checked_int("render", "fps", recording.spec.render_fps if fps is None else fps, 1, 240)
        if not 0 <= hold <= 60:
            raise ParameterError(f"render: hold = {hold!r}; it must be from 0 to 60 seconds")
        self.held = round(hold * self.fps)
        self.every = checked_int("render", "every", every)
        self.drawn = -(-recording.steps // self.every) + 1
        if seconds is not None:
            self.drawn = min(self.drawn, max(1, round(seconds * self.fps)))
        self._mp4 = None

    def __len__(self):
        """Number of frames."""
        return self.drawn + self.held

    def frames(self):
        """Yield all frames, (height, width, 3) uint8, the held ones too."""
        drawn = frames(self.recording, self.width, self.height, title=self.title, every=self.every)
        for shown in islice(drawn, self.drawn):
            yield shown
        yield from repeat(shown, self.held)

    def _drawn(self):
        return counted(self.frames(), f"draw {self.recording.spec.name}", len(self), self.progress)

    def save(self, path):
        """Write ``.mp4``, ``.gif`` or ``.webp``, atomically; return the path.

        Raises:
            RenderError: If the format is unknown, the codec is missing, or the file cannot be written.
        """
        path = check_path(path)
        content = self.mp4() if path.suffix == ".mp4" else self._animation(path.suffix)
        try:
            write_atomically(path, content)
        except OSError as error:
            raise RenderError(f"the video cannot be written to {path}: {error.strerror}") from None
        return path

    def mp4(self, codec="libx264"):
        """Return the video as bytes of an mp4 file; drawn once.

        Raises:
            RenderError: If PyAV has no such codec.
        """
        if self._mp4 is None:
            import imageio.v3 as iio

            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "video.mp4"
                with iio.imopen(file, "w", plugin="pyav") as out:
                    try:
                        out.init_video_stream(codec, fps=self.fps, pixel_format="yuv420p")
                    except ValueError:  # what PyAV raises for a codec that it was built without
                        raise RenderError(
                            f"PyAV has no codec {codec!r}; install av from PyPI, or save as .gif or .webp"
                        ) from None
                    for frame in self._drawn():
                        out.write_frame(frame)
                self._mp4 = file.read_bytes()
        return self._mp4

    def _animation(self, suffix):
        """Return the video as bytes of an animated picture."""
        images = (Image.fromarray(frame) for frame in self._drawn())
        options = {"save_all": True, "duration": round(1000 / self.fps), "loop": 0}
        if suffix == ".gif":
            images = one_palette(images)
        else:
            options |= {"quality": 60, "method": 4}
        content = io.BytesIO()
        first = next(images)
        first.save(content, suffix.removeprefix("."), append_images=images, **options)
        return content.getvalue()

    def _repr_html_(self):
        data = base64.b64encode(self.mp4()).decode()
        label = html.escape(repr(self))
        return (
            f'<video controls autoplay loop muted playsinline width="{self.width // 2}" aria-label="{label}" '
            f'src="data:video/mp4;base64,{data}"></video>'
        )

    def __repr__(self):
        who = self.title or players_in_words(self.recording.players)
        count = self.recording.num_envs
        return (
            f"<Video {self.recording.spec.name}, {who}: {count} episode{'s' * (count > 1)}, {len(self)} frames of "
            f"{self.width} x {self.height} at {self.fps} a second>"
        )


def one_palette(images):
    """Yield images with the colours of the first one."""
    palette = None
    for image in images:
        palette = palette or image.quantize(128, dither=Image.Dither.NONE)
        yield image.quantize(palette=palette, dither=Image.Dither.NONE)


def check_path(path):
    """Return ``path`` as a ``Path``; raise ``RenderError`` now rather than after the drawing if it cannot be written."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise RenderError(f"{path} ends in {path.suffix!r}; it must end in {', '.join(SUFFIXES)}")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise RenderError(f"{path} cannot be written: there is no folder {folder}")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise RenderError(f"{path} cannot be written; name a file in a folder that can be written")
    return path
