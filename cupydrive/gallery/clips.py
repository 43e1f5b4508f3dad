"""Clips of a gallery: selection of episodes, videos, stills and small animations."""

import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from cupydrive.errors import RenderError
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.playing.evaluation import Evaluation
from cupydrive.playing.recording import Recording
from cupydrive.rendering.video import Video, animation

SEED = 10_000  # seed of the episodes, independent of the seeds of runs
PREVIEW_WIDTH = 360  # width of the small animations in pixels
PREVIEW_FPS = 12  # maximum frame rate of the small animations
PREVIEW_SECONDS = 8


def median_start(found: Evaluation, group: str) -> int:
    """Return the index of the recorded episode with a group's median return."""
    recorded = found.recording
    assert recorded is not None  # the episodes are short
    returns = found.returns[group][: recorded.num_envs]
    return int(returns.argsort(stable=True)[len(returns) // 2])


def all_alike(found: Evaluation) -> bool:
    """Return whether all episodes are equal, because nothing is random."""
    return all(
        bool((values == values[0]).all()) for values in (*found.returns.values(), found.length)
    )


def draw_clip(found: Evaluation, recording: Recording, kind: str, out: Path) -> dict:
    """Write the files of a clip, and return its entry of ``gallery.json``."""
    name = f"{recording.spec.name}-{kind}"
    recording.save(out / f"{name}.npz")
    return {
        "kind": kind,
        "video": f"{name}.mp4",
        "poster": f"{name}.webp",
        "preview": f"{name}.gif",
        "recording": f"{name}.npz",
        "size": draw_files(recording, kind, out),
        "players": recording.players,
        "seed": recording.seed,
        "first_env": recording.first_env,
        "episodes": recording.num_envs,
        "steps": recording.length.tolist(),
        "means": {key: [round(x, 4) for x in pair] for key, pair in found.summary().items()},
        "episodes_of_means": len(found.length),
        "command": f"cupydrive render gallery/{name}.npz --out {name}.mp4",
        **own_numbers(recording, found.summary()),
    }


def own_numbers(recording: Recording, names: Iterable[str]) -> dict:
    """Return ``{"here": {name: number}}`` with the values of a clip's single episode.

    The result is empty if the clip has several episodes.

    Args:
        recording: Recording of the clip.
        names: Names of the means.
    """
    if recording.num_envs > 1:
        return {}
    *_, last = recording.moments()
    alone = len(last.returns) == 1
    found = {
        "return" if alone else f"return {name}": values.mean()
        for name, values in last.returns.items()
    }
    found |= {name: values[0] for name, values in last.metrics.items()}
    return {"here": {name: round(float(found[name]), 4) for name in names if name in found}}


def draw_files(recording: Recording, kind: str, out: Path) -> list[int]:
    """Write video, still and small animation of a recording. Return the video's size in pixels."""
    width, height = recording.spec.display.size
    every = -(-recording.spec.display.fps // PREVIEW_FPS)
    size, fps = (
        (PREVIEW_WIDTH, round(PREVIEW_WIDTH * height / width) // 2 * 2),
        recording.spec.display.fps // every,
    )
    preview = Video(recording, size, fps, every=every, seconds=PREVIEW_SECONDS)
    return write_video(Video(recording), preview, out / f"{recording.spec.name}-{kind}")


def write_video(video: Video, preview: Video, path: Path) -> list[int]:
    """Write ``PATH.mp4``, its still ``PATH.webp`` and the small animation ``PATH.gif``.

    Returns:
        The video's size in pixels.
    """
    video.save(path.with_suffix(".mp4"))
    still, flat = (
        io.BytesIO(),
        Image.fromarray(video.still()).quantize(256, dither=Image.Dither.NONE),
    )
    # For flat colours, a lossless palette is 20 % to 50 % smaller than lossy WebP, and text stays
    # sharp.
    flat.save(still, "WEBP", lossless=True, quality=100, method=6)
    frames = list(preview.frames())
    held = len(frames) - preview.drawn + 1
    end_first = frames[-held:] + frames[:-held]  # without animation, the final state is shown
    with file_errors(RenderError, f"the gallery cannot be written to {path.parent}"):
        write_atomically(path.with_suffix(".webp"), still.getvalue())
        write_atomically(
            path.with_suffix(".gif"), animation(end_first, preview.fps, ".gif", colors=frames[0])
        )
    return [video.width, video.height]
