"""A game in a notebook: keys and sliders of the page come in, pictures and words go back. Needs anywidget."""

import io
from pathlib import Path

import anywidget
import traitlets
from PIL import Image

from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import Stage, check_drawable, players_in_words, score
from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import checked_size
from cupydrive.playing.game import FASTEST, SLOWEST, Game, checked_pace
from cupydrive.rendering.video import require_memory
from cupydrive.rendering.words import words


def live(what, *, agent=None, others=None, seed=10_000, greedy=True, device="auto", size=None, fps=None, **params):
    """Return a ``LiveGame``.

    Args:
        what: As for ``Game``.
        agent: As for ``Game``.
        others: As for ``Game``.
        seed: As for ``Game``.
        greedy: As for ``Game``.
        device: As for ``Game``.
        size: (width, height) of the picture in pixels, even; by default the environment's.
        fps: Steps a second at first, from 10 to 30; by default as near to the environment's videos as that allows.
        **params: Parameters of the environment.
    """
    size = None if size is None else checked_size("view", "size", size)
    fps = None if fps is None else checked_pace("view", fps)
    game = Game(what, agent, others, seed=seed, greedy=greedy, device=device, **params)
    check_drawable(game.spec)
    require_memory(*(size or game.spec.render_size))
    return LiveGame(game, size or game.spec.render_size, fps or game.usual_pace)


class LiveGame(anywidget.AnyWidget):
    """A ``Game`` that a notebook shows and plays. The page asks for each step, and shows it before it asks for the next.

    So nothing runs while nobody plays, and no step is taken that is not shown; while a cell runs, the game waits.

    Args:
        game: ``Game``.
        size: (width, height) of the picture in pixels; the page shows half of it.
        fps: Steps a second at first, from 10 to 30.
    """

    _esm = Path(__file__).parent / "live.js"
    about = traitlets.Dict().tag(sync=True)

    def __init__(self, game, size, fps):
        self.game, self.size = game, size
        super().__init__(about={
            "keys": list(game.keyboard.actions), "help": game.help, "width": size[0] // 2, "fps": fps,
            "slowest": SLOWEST, "fastest": FASTEST, "params": game.choices(), "title": f"{game.spec.name}, played by keys",
        })  # fmt: skip
        self._set_stage()
        self._picture()  # an environment that cannot be drawn says so here, and not to the page
        self.on_msg(self._answer)

    def _set_stage(self):
        game = self.game
        canvas = Canvas(*self.size, labels=True, played=(game.group, game.agent))
        self.stage = Stage(game.spec, game.params, canvas)

    def _answer(self, _, asked, __):
        """Do what the page asks for, one of "look", "step", "begin"; send the picture and words of the moment then."""
        said, game = "", self.game
        try:
            if asked.get("kind") == "step" and not game.moment.over[0]:
                game.step([key for key in asked.get("keys", ()) if isinstance(key, str)])
            elif asked.get("kind") == "begin":
                said = self._begin(asked.get("params", {}))
        except CupydriveError as error:
            said = str(error)
        moment = game.moment
        head = f"episode {game.episode}, step {moment.step}" + ", over" * bool(moment.over[0])
        text = f"{head}\n{words(moment, 0, game.spec.groups(game.params), (game.group, game.agent))}"
        answer = {"step": moment.step, "over": bool(moment.over[0]), "text": text, "said": said}
        self.send(answer, buffers=[self._picture()])

    def _picture(self):
        """Return the picture of the moment as bytes."""
        file, moment = io.BytesIO(), self.game.moment
        left, right = f"step {moment.step}   {score(moment, 0)}", players_in_words(self.game.players)
        Image.fromarray(self.stage.picture(moment, left, right)).save(file, "JPEG", quality=90)
        return file.getvalue()

    def _begin(self, params):
        """Begin an episode with the parameters of the sliders; return why it has others, or an empty text."""
        said = ""
        try:
            self.game.change(**params)
        except CupydriveError as error:
            said = str(error)
        before = self.game.params
        self.game.begin()
        if self.game.params != before:
            self._set_stage()
        return said

    @property
    def recording(self):
        """The ``Recording`` of this episode so far: ``cupydrive.render`` makes a video of it."""
        return self.game.recording

    def __repr__(self):
        return f"{self.game!r}; a notebook shows it, and in a terminal there is: cupydrive play {self.game.spec.name}"
