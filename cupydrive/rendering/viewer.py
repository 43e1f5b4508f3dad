"""view(): episodes in a notebook, step by step: pictures, the members of the state, and a slider. Plain HTML and script."""

import base64
import html
import io
import json
import uuid
from itertools import islice

import numpy as np
from PIL import Image

from cupydrive.drawing.frames import MOST
from cupydrive.inputs.arguments import checked_int
from cupydrive.rendering.video import render

MOST_STEPS = 500
MOST_NUMBERS = 12  # of one member that are shown

PAGE = """<div id="{name}" style="font-family:sans-serif;font-size:13px;max-width:{width}px">
<img alt="{alt}" width="{width}" src="{first}">
<div style="display:flex;gap:8px;align-items:center"><button type="button">play</button>
<input type="range" min="0" max="{last}" value="0" aria-label="step" style="flex:1"><output>0</output></div>
<pre style="white-space:pre-wrap">{words}</pre></div>
<script>(() => {{
  const data = {data}, box = document.getElementById("{name}");
  const [image, slider, shown, text, button] = ["img", "input", "output", "pre", "button"].map(x => box.querySelector(x));
  let timer = null;
  const show = () => {{
    const k = Number(slider.value);
    image.src = data.pictures[k]; shown.value = k; text.textContent = data.words[k];
  }};
  const stop = () => {{ clearInterval(timer); timer = null; button.textContent = "play"; }};
  slider.addEventListener("input", () => {{ stop(); show(); }});
  button.addEventListener("click", () => {{
    if (timer) return stop();
    button.textContent = "stop";
    timer = setInterval(() => {{
      if (!box.isConnected) return stop();
      slider.value = Number(slider.value) >= {last} ? 0 : Number(slider.value) + 1;
      show();
    }}, {period});
  }});
}})();</script>"""


class Viewer:
    """Pictures and state of each step; a notebook shows it.

    Args:
        video: ``Video`` whose frames are shown.
        steps: How many, at most.
        env: Episode whose state is written out.
    """

    def __init__(self, video, steps, env=0):
        self.video, self.env = video, env
        self.last = min(steps, video.recording.steps)

    def pictures(self):
        """Return one data URI per step."""
        found = []
        for frame in islice(self.video.frames(), self.last + 1):
            file = io.BytesIO()
            Image.fromarray(frame).save(file, "WEBP", quality=60)
            found.append("data:image/webp;base64," + base64.b64encode(file.getvalue()).decode())
        return found

    def words(self):
        """Return the state of the chosen episode at each step, as text."""
        return [
            "\n".join(
                [f"environment {self.env}, step {m.elapsed[self.env]}{', over' * bool(m.over[self.env])}", *lines]
            )
            for m in islice(self.video.recording.moments(), self.last + 1)
            for lines in [members(m.states[self.env])]
        ]

    def _repr_html_(self):
        pictures, words = self.pictures(), self.words()
        return PAGE.format(
            name=f"view-{uuid.uuid4().hex}",
            width=self.video.width // 2,
            alt=html.escape(repr(self.video)),
            first=pictures[0],
            words=html.escape(words[0]),
            last=self.last,
            period=round(1000 / self.video.fps),
            # "</" would end the script
            data=json.dumps({"pictures": pictures, "words": words}).replace("</", "<\\/"),
        )

    def __repr__(self):
        return f"<Viewer of {self.last + 1} moments of {self.video!r}; a notebook shows it>"


def members(state):
    """Return the members of one state as lines of text."""
    lines = []
    for name in state.dtype.names:
        values = np.atleast_1d(state[name]).ravel()
        shown = "  ".join(f"{value:.4g}" for value in values[:MOST_NUMBERS].tolist())
        rest = f"  ... {len(values) - MOST_NUMBERS} more" if len(values) > MOST_NUMBERS else ""
        lines.append(f"{name:<12} {shown}{rest}")
    return lines


def view(what, players=None, *, episodes=4, steps=100, env=0, **options):
    """Return a ``Viewer`` of a few episodes, step by step.

    Args:
        what: As for ``render``.
        players: As for ``render``.
        episodes: How many to show side by side.
        steps: How many to show, at most.
        env: The episode whose state is written out.
        **options: Of ``render``.

    Raises:
        ParameterError: If ``steps`` or ``env`` is out of range.
    """
    steps = checked_int("view", "steps", steps, 1, MOST_STEPS)
    checked_int("view", "env", env, 0, MOST - 1)
    video = render(what, None, players, episodes=episodes, hold=0.0, progress=False, **options)
    checked_int("view", "env", env, 0, video.recording.num_envs - 1)
    return Viewer(video, steps, env)
