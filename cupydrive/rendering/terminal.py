"""A game in a terminal: pictures of half blocks, two pixels per character, in 256 colors.

curses reads the keys.
"""

import shutil
import sys
import time
from itertools import groupby, product

import numpy as np
from PIL import Image

from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import Stage
from cupydrive.errors import RenderError
from cupydrive.playing.game import Game

try:
    import curses
except ImportError:  # Windows
    curses = None  # type: ignore[assignment]

# Seconds for which a key counts as down. Terminals do not report releases, and repeat a held key
# faster than this.
HOLD = 0.1
# Seconds between checks of the terminal's size. curses misses a change that comes just before it
# waits.
GLANCE = 0.25
TEXT_LINES = 4  # lines of text below the picture
SMALLEST_PICTURE = 24  # minimum pixels of the picture's shorter side
# Upper half block. Its foreground is the upper pixel, and its background the lower one.
UPPER = "\u2580"
MOST_PAIRS = 32_767  # maximum number of color pairs of curses
CUBE = 16  # index of the palette's first color, after 16 colors that users may redefine
PALETTE = Image.new("P", (1, 1))
PALETTE.putpalette(
    [
        *np.ravel(
            [
                *product((0, 95, 135, 175, 215, 255), repeat=3),
                *((8 + 10 * k,) * 3 for k in range(24)),
            ]
        )
    ]
)


def play_in_terminal(game: Game) -> None:
    """Play until the game ends or Ctrl-C is pressed. The terminal is always restored.

    Raises:
        RenderError: If the terminal is too small or has too few colors, or Python has no curses.
    """
    if curses is None:
        raise RenderError(
            "play: this Python has no module curses, which draws in terminals. Play in a notebook"
        )
    try:
        curses.wrapper(lambda screen: Screen(game, screen).run())
    except curses.error as error:
        raise RenderError(
            f"play: the terminal cannot show the game ({error}). Try another one"
        ) from None
    except KeyboardInterrupt:
        game.ended = True
    except RenderError as error:  # the terminal became too small
        if not game.scores:
            raise
        print(f"cupydrive: {error}", file=sys.stderr)  # finished episodes are kept
        game.ended = True


class Screen:
    """A curses screen that shows a game and reads its keys.

    Args:
        game: ``Game``.
        screen: Window of curses.
    """

    def __init__(self, game: Game, screen: "curses.window") -> None:
        if curses.COLORS < 256:
            raise RenderError(
                f"play: the terminal has {curses.COLORS} colors, expected at least 256. Try "
                f"TERM=xterm-256color"
            )
        self.game, self.screen = game, screen
        arrows = {"LEFT": "ArrowLeft", "RIGHT": "ArrowRight", "UP": "ArrowUp", "DOWN": "ArrowDown"}
        self.names = {getattr(curses, f"KEY_{name}"): key for name, key in arrows.items()}
        self.pairs: dict[tuple[int, int], int] = {}  # indices of color pairs
        self.until: dict[str, float] = {}  # time until which each key counts as down
        curses.curs_set(0)
        self.stage = Stage(game.spec, game.params, self._make_canvas())

    def run(self) -> None:
        """Play until the game ends."""
        game = self.game
        self._show()
        while not game.ended:
            wait = game.wait(time.monotonic())
            self.screen.timeout(int(1000 * (GLANCE if wait is None else min(wait, GLANCE))) + 1)
            code, now = self.screen.getch(), time.monotonic()
            columns, rows = shutil.get_terminal_size(self.screen.getmaxyx()[::-1])
            if code < 0 and curses.is_term_resized(rows, columns):
                curses.resizeterm(rows, columns)
                code = curses.KEY_RESIZE
            if code == curses.KEY_RESIZE:
                self.stage.canvas = self._make_canvas()
            elif code > 0:
                key = self.names.get(code, chr(code).lower())
                game.press(key, now)
                self.until.pop(key, None)  # moves the latest key to the end
                self.until[key] = now + max(HOLD, 1 / game.fps)
            elif not sys.stdin.isatty():  # the terminal was closed
                game.ended = True
            down = [key for key, until in self.until.items() if until >= now]
            if game.tick(now, down) or code > 0:
                self._show()

    def _make_canvas(self) -> Canvas:
        """Return a ``Canvas`` as large as the terminal allows."""
        (rows, columns), (width, height) = self.screen.getmaxyx(), self.game.spec.display.size
        scale = min(columns / width, 2 * (rows - TEXT_LINES) / height)
        shown = int(scale * width) // 2 * 2, int(scale * height) // 2 * 2
        if min(shown) < SMALLEST_PICTURE:
            raise RenderError(
                f"play: the terminal is too small: {columns} x {rows} characters. Enlarge it"
            )
        return Canvas(*shown, header=0, played=(self.game.group, self.game.agent))

    def _show(self) -> None:
        """Draw the current moment, with text below it."""
        self.screen.erase()
        width = self.screen.getmaxyx()[1] - 1
        pixels = nearest_colors(self.stage.draw(self.game.moment).frame())
        cells = np.stack([pixels[::2], pixels[1::2]], axis=-1)  # (rows, columns, 2)
        for row, line in enumerate(cells.tolist()):
            column = 0
            for colors, alike in groupby(map(tuple, line)):
                text = UPPER * len(list(alike))
                self.screen.addstr(row, column, text, curses.color_pair(self._pair(colors)))
                column += len(text)
        for row, line in enumerate(self.game.text.splitlines(), len(cells)):
            self.screen.addnstr(row, 0, line, width)
        self.screen.refresh()

    def _pair(self, colors: tuple[int, int]) -> int:
        """Return the index of a color pair."""
        if colors not in self.pairs:
            if len(self.pairs) + 1 == min(curses.COLOR_PAIRS, MOST_PAIRS):
                self.pairs.clear()
            curses.init_pair(len(self.pairs) + 1, *colors)
            self.pairs[colors] = len(self.pairs) + 1
        return self.pairs[colors]


def nearest_colors(frame: np.ndarray) -> np.ndarray:
    """Convert a frame (H, W, 3) uint8 to the nearest of a terminal's 256 colors, (H, W)."""
    image = Image.fromarray(frame).quantize(palette=PALETTE, dither=Image.Dither.NONE)
    return np.asarray(image) + CUBE
