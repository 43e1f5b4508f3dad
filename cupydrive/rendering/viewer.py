"""view(): pictures, actions, rewards and states of each step, as HTML with a slider."""

import base64
import html
import io
import json
import uuid
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cupydrive.drawing.frames import MOST, frames
from cupydrive.inputs.arguments import checked_int
from cupydrive.playing.config import Playable, PoliciesByGroup
from cupydrive.playing.recording import Moment
from cupydrive.rendering.video import Video, render
from cupydrive.spec import Group

VIEWED_STEPS = 500
LISTED = 24  # maximum numbers of a line. Longer arrays show the first and the last three.
NARROWEST = 340  # minimum width in pixels, so that a line of the table fits
HINT = "click the picture, then: arrow keys, Page Up, Page Down, Home, End"
# Shown in untrusted notebooks, whose scripts do not run.
STILL = "run the cell, or trust the notebook, to move the slider"
# Elements with data-lm-suppress-shortcuts disable the keyboard shortcuts of JupyterLab and Notebook
# 7 while they have the focus.
PAGE = Path(__file__).with_suffix(".html")


class Viewer:
    """Pictures and states of each step, displayed by a notebook.

    Args:
        video: ``Video`` of the episodes.
        steps: Maximum number of steps.
        env: Index of the episode whose state is shown as text.
    """

    def __init__(self, video: Video, steps: int, env: int = 0) -> None:
        self.video, self.env = video, env
        self.last = min(steps, video.recording.steps)

    def pictures(self) -> list[str]:
        """Return one data URI per step."""
        found, video = [], self.video
        drawn = frames(
            video.recording, video.width, video.height, title=video.title, chosen=self.env
        )
        for frame in islice(drawn, self.last + 1):
            file = io.BytesIO()
            Image.fromarray(frame).save(file, "WEBP", quality=60)
            found.append("data:image/webp;base64," + base64.b64encode(file.getvalue()).decode())
        return found

    def words(self) -> list[str]:
        """Return agents and state of the chosen episode at each step, as text."""
        recording, e = self.video.recording, self.env
        groups = recording.spec.groups(recording.params)
        return [
            f"environment {e}, step "
            f"{m.elapsed[e]}{', over' * bool(m.over[e])}\n{moment_text(m, e, groups)}"
            for m in islice(recording.moments(), self.last + 1)
        ]

    def _repr_html_(self) -> str:
        pictures, texts = self.pictures(), self.words()
        data = {
            "pictures": pictures,
            "words": texts,
            "period": round(1000 / self.video.fps),
            "hint": HINT,
        }
        return (
            PAGE.read_text(encoding="utf-8")
            .rstrip()
            .format(
                name=f"view-{uuid.uuid4().hex}",
                width=self.video.width,
                column=max(self.video.width, NARROWEST),
                alt=html.escape(repr(self.video)),
                still=STILL,
                first=pictures[0],
                text=html.escape(texts[0]),
                last=self.last,
                script=PAGE.with_suffix(".js").read_text(encoding="utf-8").strip(),
                data=json.dumps(data).replace("</", "<\\/"),  # "</" would end the script
            )
        )

    def __repr__(self) -> str:
        return f"<Viewer of {self.last + 1} moments of {self.video!r}, displayed by a notebook>"


def view(
    what: Playable,
    policies: PoliciesByGroup = None,
    *,
    episodes: int = 4,
    steps: int = 100,
    env: int = 0,
    **options: Any,
) -> Viewer:
    """Show episodes side by side in a notebook, step by step, with a slider.

    Args:
        what: Environment, run or recording, as for ``render``.
        policies: Policies, as for ``render``.
        episodes: Number of episodes, 1 to 64. Defaults to 4.
        steps: Maximum number of steps, 1 to 500. Defaults to 100.
        env: Index of the marked episode, whose agents are labeled and whose state is shown as
            text.
        **options: Further options of ``render``.

    Returns:
        ``Viewer``, which a notebook displays.

    Raises:
        ParameterError: If ``episodes``, ``steps`` or ``env`` is out of range.

    Examples:
        >>> import cupydrive as cd
        >>> viewer = cd.view("cartpole", "random", episodes=2, steps=20)
    """
    steps = checked_int("view", "steps", steps, 1, VIEWED_STEPS)
    env = checked_int("view", "env", env, 0, MOST - 1)
    episodes = checked_int("view", "episodes", episodes, 1, MOST)
    video = render(what, None, policies, episodes=episodes, hold=0.0, progress=False, **options)
    checked_int("view", "env", env, 0, video.recording.num_envs - 1)
    return Viewer(video, steps, env)


def moment_text(moment: Moment, e: int, groups: Sequence[Group]) -> str:
    """Format actions, rewards, returns and state of episode ``e``, with one line for each."""
    rows = {}
    for name in [g.name for g in groups]:
        for kind in ("action", "reward", "present"):
            if name in (by_group := getattr(moment, kind)):
                rows[f"{name} {kind}"] = by_group[name][e]
        rows[f"{name} return"] = moment.returns[name][e]
    rows |= {name: moment.states[e][name] for name in moment.states.dtype.names or ()}
    width = max(map(len, rows))
    look: dict[str, Any] = {
        "precision": 4,
        "suppress_small": True,
        "threshold": LISTED,
        "max_line_width": 10**6,
    }
    texts = {
        name: np.array2string(np.squeeze(values), **look).replace("\n", "")
        for name, values in rows.items()
    }
    return "\n".join(f"{name:<{width}}  {text}" for name, text in texts.items())
