"""A game in a window of Matplotlib's, which tells when a key is let go, unlike a terminal."""

import time

from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import Stage, players_in_words, score
from cupydrive.errors import RenderError
from cupydrive.rendering.rounds import KEYS, Rounds

NAMES = {"left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", "down": "ArrowDown"}  # others have their own
DOTS = 100  # an inch
NO_WINDOW = "Matplotlib opens no window: that needs a display, and a toolkit such as PyQt6 (pip) or python3-tk (Debian)"


def play_in_window(game, fps, episodes=None):
    """Play a ``Game`` until the person ends it or closes the window, or ``episodes`` are over; return its ``Rounds``.

    Raises:
        RenderError: If Matplotlib can open no window here.
    """
    from matplotlib import get_backend, pyplot

    try:
        window = Window(Rounds(game, fps, episodes))
    except ImportError as error:  # a backend that was asked for by name, and that cannot be had
        raise RenderError(f"{NO_WINDOW}: {error}") from None
    if window.figure.canvas.required_interactive_framework is None:
        pyplot.close(window.figure)
        raise RenderError(f"{NO_WINDOW}; its backend here is {get_backend()}")
    timer = window.figure.canvas.new_timer(interval=max(1, round(500 / fps)))  # twice as often as there may be a step
    timer.add_callback(window.tick)
    timer.start()
    pyplot.show(block=True)
    return window.rounds


class Window:
    """A figure that shows a game and takes its keys.

    Args:
        rounds: ``Rounds`` of it.
    """

    def __init__(self, rounds):
        from matplotlib import pyplot, rc_context

        self.rounds, self.game = rounds, rounds.game
        canvas = Canvas(*self.game.spec.render_size, labels=True, played=(self.game.group, self.game.agent))
        self.stage = Stage(self.game.spec, self.game.params, canvas)
        with rc_context({"toolbar": "None"}):
            self.figure = pyplot.figure(figsize=(canvas.width / DOTS, canvas.height / DOTS), dpi=DOTS)
        manager = self.figure.canvas.manager
        self.figure.canvas.mpl_disconnect(manager.key_press_handler_id)  # to which arrows and letters are commands
        manager.set_window_title(f"{self.game.spec.name}: {self.game.help}; {KEYS}")
        axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        self.image = axes.imshow(self._picture())
        self.held, self.tapped = [], []
        for kind, taken in (("key_press", self._press), ("key_release", self._release), ("close", self._close)):
            self.figure.canvas.mpl_connect(f"{kind}_event", taken)

    def tick(self):
        """Take a step if it is due, and show it; close the window at the end."""
        from matplotlib import pyplot

        keys = [*(key for key in self.tapped if key not in self.held), *self.held]
        if self.rounds.tick(time.monotonic(), keys):
            self.tapped = []
            self._show()
        if self.rounds.ended:
            pyplot.close(self.figure)

    def _press(self, event):
        key = NAMES.get(event.key, event.key or "")
        if key in self.held:  # repeated by the system
            return
        if self.rounds.press(key, time.monotonic()):
            self.held.append(key)
            self.tapped.append(key)
        else:
            self._show()

    def _release(self, event):
        self.held = [key for key in self.held if key != NAMES.get(event.key, event.key)]

    def _close(self, event):
        self.rounds.ended = True

    def _show(self):
        """Show the moment."""
        self.image.set_data(self._picture())
        self.figure.canvas.draw_idle()

    def _picture(self):
        moment = self.game.moment
        right = self.rounds.said or players_in_words(self.game.players)
        return self.stage.picture(moment, f"step {moment.step}   {score(moment, 0)}", right)
