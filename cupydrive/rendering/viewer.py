"""view(): episodes in a notebook, step by step: pictures, what agents do, the state, a slider, and keys. HTML and script."""

import base64
import html
import io
import json
import uuid
from itertools import islice
from pathlib import Path

from PIL import Image

from cupydrive.drawing.frames import MOST, frames
from cupydrive.errors import ParameterError, RenderError
from cupydrive.inputs.arguments import checked_choice, checked_int
from cupydrive.playing.players import PLAYERS
from cupydrive.rendering.video import render
from cupydrive.rendering.words import words

MOST_STEPS = 500
NARROWEST = 340  # pixels, so that a line of the table fits

HINT = "click here, then: \u2190 \u2192 a step, Page Up ten on, Page Down ten back, Home and End, space plays"
# Stands there until the script puts HINT in its place: notebooks that are not trusted show pages without their scripts.
STILL = "this does not move yet: run the cell, or trust the notebook"
PAGE = """<div id="{name}" tabindex="0" role="group" aria-label="{alt}"
 style="font-family:sans-serif;font-size:13px;max-width:{column}px;padding:3px;outline-offset:-2px">
<img alt="{alt}" width="{width}" style="max-width:100%" src="{first}">
<div style="display:flex;gap:8px;align-items:center"><button type="button" disabled>play</button>
<input type="range" disabled min="0" max="{last}" value="0" aria-label="step" style="flex:1"><output>0</output></div>
<small>{still}</small>
<pre style="white-space:pre-wrap;font-family:monospace">{words}</pre></div>
<script>({script})("{name}", {data});</script>"""


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
        found, video = [], self.video
        drawn = frames(video.recording, video.width, video.height, title=video.title, chosen=self.env)
        for frame in islice(drawn, self.last + 1):
            file = io.BytesIO()
            Image.fromarray(frame).save(file, "WEBP", quality=60)
            found.append("data:image/webp;base64," + base64.b64encode(file.getvalue()).decode())
        return found

    def words(self):
        """Return agents and state of the chosen episode at each step, as text."""
        recording, e = self.video.recording, self.env
        groups = recording.spec.groups(recording.params)
        return [
            f"environment {e}, step {m.elapsed[e]}{', over' * bool(m.over[e])}\n{words(m, e, groups)}"
            for m in islice(recording.moments(), self.last + 1)
        ]

    def _repr_html_(self):
        pictures, texts = self.pictures(), self.words()
        data = {"pictures": pictures, "words": texts, "period": round(1000 / self.video.fps), "hint": HINT}
        return PAGE.format(
            name=f"view-{uuid.uuid4().hex}",
            width=self.video.width,
            column=max(self.video.width, NARROWEST),
            alt=html.escape(repr(self.video)),
            still=STILL,
            first=pictures[0],
            words=html.escape(texts[0]),
            last=self.last,
            script=(Path(__file__).parent / "viewer.js").read_text(encoding="utf-8").strip(),
            # "</" would end the script
            data=json.dumps(data).replace("</", "<\\/"),
        )

    def __repr__(self):
        return f"<Viewer of {self.last + 1} moments of {self.video!r}; a notebook shows it>"


def view(what, players=None, *, episodes=None, steps=None, env=None, **options):
    """Return what a notebook shows of some episodes, step by step; or a game that a person plays there.

    Args:
        what: As for ``render``.
        players: As for ``render``; or ``"keyboard"``: the result is a ``LiveGame`` (extra ``notebook``) of an environment or a
            ``Run``, with the options ``agent`` (whom the person plays: ``"runner"``, ``"tagger 2"``), ``others`` (who plays
            the rest: ``"heuristic"``, ``"random"`` or settings by group), ``seed``, ``greedy``, ``device``, ``size``, ``fps``
            (steps a second, 10 to 30) and parameters.
        episodes: How many to show side by side, 4 by default.
        steps: How many to show, at most; 100 by default.
        env: The episode that is marked, whose agents are named and whose state is written out; 0 by default.
        **options: Of ``render``.

    Raises:
        ParameterError: If ``episodes``, ``steps`` or ``env`` is out of range.
        RenderError: If a game would need anywidget, and it is not installed.
    """
    if isinstance(players, str):
        checked_choice("view", "players", players, (*PLAYERS, "keyboard"))
    if isinstance(players, str) and players == "keyboard":
        if given := [name for name, x in (("episodes", episodes), ("steps", steps), ("env", env)) if x is not None]:
            raise ParameterError(
                f"view: a game by keyboard is one episode after the other; leave out {', '.join(given)}"
            )
        return game_of_notebook()(what, **options)
    steps = 100 if steps is None else checked_int("view", "steps", steps, 1, MOST_STEPS)
    env = 0 if env is None else checked_int("view", "env", env, 0, MOST - 1)
    episodes = 4 if episodes is None else checked_int("view", "episodes", episodes, 1, MOST)
    video = render(what, None, players, episodes=episodes, hold=0.0, progress=False, **options)
    checked_int("view", "env", env, 0, video.recording.num_envs - 1)
    return Viewer(video, steps, env)


def game_of_notebook():
    """Return ``live``, which needs a package that only games in notebooks need."""
    try:
        from cupydrive.rendering.live import live
    except ImportError as error:
        if error.name not in ("anywidget", "ipywidgets", "traitlets"):
            raise
        raise RenderError(
            f"players = 'keyboard' needs {error.name}: pip install anywidget, or the extra `notebook`; in a "
            "terminal there is `cupydrive play`"
        ) from None
    return live
