"""render(): videos of episodes, in notebooks and as mp4, gif or webp files."""

import base64
import html
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from PIL import Image

from cupydrive.drawing.frames import MOST, check_drawable, frames, players_in_words
from cupydrive.errors import ParameterError, RenderError
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_float,
    checked_instance,
    checked_int,
    checked_path,
    checked_size,
    checked_str,
    checked_target,
    shown,
)
from cupydrive.inputs.files import write_atomically
from cupydrive.playing.config import EvalConfig, Playable, PoliciesByGroup, resolve_eval
from cupydrive.playing.evaluation import Evaluation, play_episodes
from cupydrive.playing.recording import Recording
from cupydrive.protocols import ParamValue
from cupydrive.terminal.progress import counted

SUFFIXES = (".mp4", ".gif", ".webp")
# Position of the still in a video, as a fraction. For several episodes it is the maximum, because
# finished episodes are dimmed.
MIDDLE = 0.5
FEW = 4096  # number of colors up to which counting is fast
# Minimum pixels of one color in a subsampled frame. Fewer pixels belong to an antialiased edge.
FLAT = 4
GIF_FPS = 50  # Browsers show a frame of 0.01 s or less for 0.1 s.
VISIBLE_CHANGE = 24  # visible difference of a color channel, out of 255
# Constant rate factor of x264. For flat colors it looks like the default, 23, in files that are a
# quarter smaller.
QUALITY = "26"


@dataclass(frozen=True, kw_only=True)
class ClipConfig(EvalConfig):
    """Configuration of episodes that are shown side by side in one picture."""

    episodes: Annotated[int, Ge(1), Le(MOST)] = 1


def render(
    what: "Playable | Recording | Evaluation",
    path: str | PathLike | None = None,
    policies: PoliciesByGroup = None,
    *,
    episodes: int = 1,
    seed: int = 10_000,
    greedy: bool = True,
    device: str = "auto",
    size: tuple[int, int] | None = None,
    fps: int | None = None,
    hold: float = 1.0,
    title: str | None = None,
    progress: bool = True,
    **params: ParamValue,
) -> "Video":
    """Play episodes and return a ``Video``. Equal arguments give equal videos.

    Args:
        what: Name of an environment, path of its Python file, ``EnvSpec``, ``VectorEnv`` (a new one
            like it), or ``Run``. A ``Recording`` or an ``Evaluation`` is replayed.
        path: File to write: ``.mp4``, ``.gif`` or ``.webp``.
        policies: ``"random"``, ``"heuristic"``, or settings by group as for ``evaluate``. Defaults
            to a run's own policies, to the heuristic, or to random actions if there is none.
        episodes: Number of episodes, 1 to 64. Several are shown side by side.
        seed: Random seed of initial states and actions. The episodes are the first ones of
            ``evaluate`` with this seed.
        greedy: Whether a run's policies take the most likely action.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. A run is played on its own device.
        size: (width, height) in pixels, even. A notebook shows half of it. Defaults to the
            environment's.
        fps: Frames per second, with one frame per step, at most 50 in a ``.gif``. Defaults to the
            environment's.
        hold: Duration of the last frame in seconds. Defaults to 1.
        title: Description of the policies in the frame. Defaults to their names.
        progress: Show a progress line.
        **params: Parameters of the environment.

    Returns:
        ``Video``, which a notebook displays.

    Raises:
        ParameterError: If an argument is invalid.
        RenderError: If the environment has no drawing, or the file cannot be written. The error is
            raised before anything is played.

    Examples:
        >>> import cupydrive as cd
        >>> video = cd.render("cartpole", policies="random", size=(320, 240), progress=False)
        >>> video.still().shape
        (240, 320, 3)
    """
    if path is not None:
        path = check_path(path)
    look = checked_look(size, fps, hold, title, progress)
    found: Any = what.recording if isinstance(what, Evaluation) else what
    if isinstance(found, Recording):
        if policies is not None or params:
            names = [*["policies"] * (policies is not None), *params]
            raise ParameterError(
                f"render: a recording has its own policies and parameters. Omit {', '.join(names)}"
            )
        recording = found
    else:
        options: dict[str, Any] = {"episodes": episodes, "seed": seed, "greedy": greedy}
        config = resolve_eval(
            render, found, policies, params, device=device, kind=ClipConfig, **options
        )
        if path is not None:
            check_rate(path, config.spec.display.fps if fps is None else fps)
        recording = record_clip(config)
    video = Video(recording, *look)
    if path is not None:
        video.save(path)
    return video


def record_clip(config: ClipConfig) -> Recording:
    """Play new episodes and return their ``Recording``."""
    check_drawable(config.spec)
    recording = play_episodes(config).recording
    if recording is None or recording.num_envs < config.episodes:
        raise ParameterError(
            f"render: {config.episodes} episodes of {config.spec.name} are too long to record. "
            "Lower episodes or max_episode_steps"
        )
    return recording


def checked_look(
    size: tuple[int, int] | None, fps: int | None, hold: float, title: str | None, progress: bool
) -> tuple[tuple[int, int] | None, int | None, float, str | None, bool]:
    """Validate these arguments of ``render``."""
    size = None if size is None else checked_size("render", "size", size)
    fps = None if fps is None else checked_int("render", "fps", fps, 1, 240)
    hold = checked_float("render", "hold", hold, 0, 60, unit="seconds")
    title = None if title is None else checked_str("render", "title", title)
    return size, fps, hold, title, checked_bool("render", "progress", progress)


class Video:
    """A recording as a video. Frames are drawn when it is displayed or saved.

    Args:
        recording: ``Recording`` of the episodes to show.
        size: (width, height) in pixels, even. Defaults to the environment's.
        fps: Frames per second. Defaults to the environment's.
        hold: Duration of the last frame in seconds. Defaults to 1.
        title: Description of the policies in the frame. Defaults to their names.
        progress: Show a progress line while drawing.
        every: Draw every n-th step.
        seconds: Duration after which the video ends. Defaults to the whole recording.

    Examples:
        >>> import cupydrive as cd
        >>> result = cd.evaluate("cartpole", "random", episodes=4, device="cpu")
        >>> video = cd.Video(result.recording, size=(320, 240), progress=False)
        >>> next(video.frames()).shape
        (240, 320, 3)
        >>> path = video.save("episodes.gif")
    """

    def __init__(
        self,
        recording: Recording,
        size: tuple[int, int] | None = None,
        fps: int | None = None,
        hold: float = 1.0,
        title: str | None = None,
        progress: bool = True,
        every: int = 1,
        seconds: float | None = None,
    ) -> None:
        checked_instance(
            "Video",
            "recording",
            recording,
            Recording,
            "a Recording, such as evaluate(...).recording",
        )
        size, fps, hold, self.title, self.progress = checked_look(size, fps, hold, title, progress)
        check_drawable(recording.spec)
        self.recording, self.fps = recording, recording.spec.display.fps if fps is None else fps
        self.width: int
        self.height: int
        self.width, self.height = recording.spec.display.size if size is None else size
        self.held = round(hold * self.fps)
        self.every = checked_int("render", "every", every)
        self.drawn = -(-recording.steps // self.every) + 1
        if seconds is not None:
            seconds = checked_float("render", "seconds", seconds, 0, 86_400)
            self.drawn = min(self.drawn, max(1, round(seconds * self.fps)))
        share = recording.spec.display.showcase.get("still", MIDDLE)
        self.telling = round(
            (self.drawn - 1) * (share if recording.num_envs == 1 else min(share, MIDDLE))
        )
        self._mp4: bytes | None = None
        self._still: np.ndarray | None = None

    def __len__(self) -> int:
        """Return the number of frames."""
        return self.drawn + self.held

    def frames(self) -> Iterator[np.ndarray]:
        """Yield all frames, (height, width, 3) uint8, including the held ones."""
        drawn = frames(self.recording, self.width, self.height, title=self.title, every=self.every)
        for picture in islice(drawn, self.drawn):
            yield picture
        yield from repeat(picture, self.held)

    def _drawn(self) -> Iterator[np.ndarray]:
        return counted(self.frames(), f"draw {self.recording.spec.name}", len(self), self.progress)

    def save(self, path: str | PathLike) -> Path:
        """Write ``.mp4``, ``.gif`` or ``.webp`` atomically, and return the path.

        Raises:
            RenderError: If the format is unknown or does not support ``fps``, the codec is missing,
                or the file cannot be written.
        """
        path = check_path(path)
        check_rate(path, self.fps)
        content = (
            self.mp4() if path.suffix == ".mp4" else animation(self._drawn(), self.fps, path.suffix)
        )
        try:
            write_atomically(path, content)
        except OSError as error:
            raise RenderError(f"the video cannot be written to {path}: {error.strerror}") from None
        return path

    def mp4(self) -> bytes:
        """Return the video as the bytes of an mp4 file. It is encoded only once.

        Raises:
            RenderError: If PyAV was built without x264.
        """
        if self._mp4 is None:
            import av

            file = io.BytesIO()
            with av.open(file, "w", format="mp4") as out:
                try:
                    stream = out.add_stream("libx264", rate=self.fps, options={"crf": QUALITY})
                except ValueError:
                    raise RenderError(
                        "PyAV has no codec libx264. Install av from PyPI, or save as .gif or .webp"
                    ) from None
                stream.width, stream.height, stream.pix_fmt = self.width, self.height, "yuv420p"
                stream.codec_context.thread_count = 1  # the bytes depend on the number of threads
                for number, frame in enumerate(self._drawn()):
                    if number == self.telling:
                        self._still = frame
                    out.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
                out.mux(stream.encode())
            self._mp4 = file.getvalue()
        return self._mp4

    def still(self) -> np.ndarray:
        """Return a representative frame, (height, width, 3) uint8.

        It is the middle one, or the one at the fraction ``showcase["still"]``.
        """
        if self._still is None:
            self._still = next(islice(self.frames(), self.telling, None))
        return self._still

    def png(self) -> bytes:
        """Return the still as the bytes of a PNG file with at most 256 colors."""
        content = io.BytesIO()
        Image.fromarray(self.still()).quantize(dither=Image.Dither.NONE).save(
            content, "png", optimize=True
        )
        return content.getvalue()

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return self.png(), {"width": self.width // 2, "height": self.height // 2}

    def _repr_html_(self) -> str:
        # The video covers its still. Git hosts remove videos and styles from a notebook's HTML, so
        # that the still remains.
        mp4, still = (base64.b64encode(content).decode() for content in (self.mp4(), self.png()))
        label, width = html.escape(repr(self)), self.width // 2
        return (
            f'<div style="position:relative;max-width:{width}px">'
            f'<img alt="A frame of {label}" width="{width}" '
            f'style="display:block;margin:0;width:100%" src="data:image/png;base64,{still}">'
            f'<video controls autoplay loop muted playsinline aria-label="{label}" width="{width}" '
            f'style="position:absolute;left:0;top:0;width:100%;height:100%" '
            f'src="data:video/mp4;base64,{mp4}"></video></div>'
        )

    def words(self) -> str:
        """Return the description of the policies."""
        return self.title or players_in_words(self.recording.players)

    def __repr__(self) -> str:
        count = self.recording.num_envs
        return (
            f"<Video {self.recording.spec.name}, {self.words()}: {count} "
            f"episode{'s' * (count > 1)}, {len(self)} frames of {self.width} x {self.height} at "
            f"{self.fps} a second>"
        )


def animation(
    frames: Iterable[np.ndarray], fps: int, suffix: str, colors: np.ndarray | None = None
) -> bytes:
    """Encode frames as the bytes of a ``.gif`` or ``.webp`` file.

    Args:
        frames: Frames of (height, width, 3) uint8.
        fps: Frames per second.
        suffix: ``".gif"`` or ``".webp"``.
        colors: Frame that defines the initial palette of a ``.gif``. Defaults to the first one.
    """
    images: Iterator[Image.Image] = (Image.fromarray(frame) for frame in frames)
    options = {"save_all": True, "loop": 0}
    if suffix == ".gif":
        images = with_durations(one_palette(images, colors), fps)
    else:
        options |= {"duration": round(1000 / fps), "quality": 60, "method": 4}
    content = io.BytesIO()
    first = next(images)
    first.save(content, suffix.removeprefix("."), append_images=images, **options)
    return content.getvalue()


def with_durations(images: Iterable[Image.Image], fps: int) -> Iterator[Image.Image]:
    """Yield images with durations in whole hundredths of a second, the unit of a ``.gif``.

    Durations differ by at most one unit, so that their sum is exact to half a unit.
    """
    for number, image in enumerate(images):
        begin, end = (round(100 * k / fps) for k in (number, number + 1))
        image.info["duration"] = 10 * (end - begin)  # in milliseconds
        yield image


def one_palette(images: Iterable[Image.Image], colors: np.ndarray | None) -> Iterator[Image.Image]:
    """Yield images with the palette of one frame.

    New colors of later frames replace the least used ones.
    """
    palette, known = None if colors is None else quantized(Image.fromarray(colors)), set()
    for image in images:
        palette = palette or quantized(image)
        part = image.resize((-(-image.width // 2), -(-image.height // 2)), Image.Resampling.NEAREST)
        counted = part.getcolors(FEW) or part.getcolors(image.width * image.height)
        table = np.resize(palette.getpalette(), (256, 3))  # repeated entries are unused
        flat = [
            color
            for count, color in sorted(counted, reverse=True)
            if count >= FLAT and color not in known
        ]
        known |= set(flat)
        if late := [
            color for color in flat if abs(table - color).max(axis=1).min() > VISIBLE_CHANGE
        ]:
            counts = np.array(image.quantize(palette=palette, dither=Image.Dither.NONE).histogram())
            few = np.argsort(counts, kind="stable")[
                : max(np.count_nonzero(counts == 0), len(counts) // 4)
            ][: len(late)]
            table[few] = late[: len(few)]
            palette, known = palette.copy(), set()
            palette.putpalette(table.ravel().tolist())
        yield image.quantize(palette=palette, dither=Image.Dither.NONE)


def quantized(image: Image.Image) -> Image.Image:
    """Convert an image to its own palette."""
    return image.quantize(128, dither=Image.Dither.NONE)


def check_path(path: str | PathLike) -> Path:
    """Convert ``path`` to a ``Path``, or raise an error if it cannot be written."""
    file = checked_path("render", "path", path)
    if file.suffix not in SUFFIXES:
        raise RenderError(
            f"path = {shown(str(file))}: got suffix {shown(file.suffix)}, expected "
            f"{', '.join(SUFFIXES)}"
        )
    return checked_target("path", file)


def check_rate(path: Path, fps: int) -> None:
    """Raise ``RenderError`` if a file's format cannot show so many frames per second."""
    if path.suffix == ".gif" and fps > GIF_FPS:
        raise RenderError(
            f"fps = {fps}: a .gif shows at most {GIF_FPS} frames per second. Pass "
            f"fps={GIF_FPS}, or save as .mp4 or .webp"
        )
