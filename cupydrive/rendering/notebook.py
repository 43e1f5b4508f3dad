"""A game in a notebook: the page sends keys and displays the returned picture and text.

Needs anywidget.
"""

import io
import time
from pathlib import Path

import anywidget
import traitlets
from PIL import Image

from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import Stage
from cupydrive.playing.game import Game


class NotebookScreen(anywidget.AnyWidget):
    """Widget that displays a game and receives its keys.

    Each step is triggered by a message of the page, so nothing runs while the game is idle.

    Args:
        game: ``Game``.
    """

    _esm = Path(__file__).with_name("notebook.js")
    title = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int().tag(sync=True)

    def __init__(self, game: Game) -> None:
        spec = game.spec
        width, height = spec.display.size
        super().__init__(title=f"{spec.name}, played by keys", width=width // 2)
        self.game = game
        canvas = Canvas(width, height, header=0, labels=True, played=(game.group, game.agent))
        self.stage = Stage(spec, game.params, canvas)
        self.on_msg(self._answer)

    def _answer(
        self, _: anywidget.AnyWidget, message: dict[str, list[str]], __: list[bytes]
    ) -> None:
        """Handle the keys of a message, take a step if it is due, and send picture and text.

        The answer includes the time of the next message. An error ends the game, and the page
        shows it.
        """
        game, now, file = self.game, time.monotonic(), io.BytesIO()
        try:
            for key in message["pressed"]:
                game.press(key, now)
            game.tick(now, message["down"])
            Image.fromarray(self.stage.draw(game.moment).frame()).save(file, "JPEG", quality=90)
        except Exception as error:
            game.ended, game.running = True, False
            self.send({"text": f"The game ended: {type(error).__name__}: {error}"})
            raise
        self.send(
            {"text": game.text, "wait": game.wait(time.monotonic())}, buffers=[file.getvalue()]
        )
