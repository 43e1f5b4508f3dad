"""A game in a terminal: pictures of half blocks, two pixels a character, in 256 colours; keys by curses."""

import locale
import sys
import time

import numpy as np

from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import Stage, score
from cupydrive.errors import RenderError
from cupydrive.rendering.rounds import KEYS, Rounds

HOLD = 0.1  # seconds for which a key counts: a terminal tells no release, and repeats a key that is held within less
LINES = 4  # of text below the picture
SMALLEST = 24  # pixels of the picture's shorter side
LEVELS = np.array([0, 95, 135, 175, 215, 255])  # of each channel in the colour cube of 256 colours, which begins at 16
CUBE, GREYS = 16, 232  # 24 greys follow the cube: 8, 18, ... 238
UPPER = "\u2580"  # the upper half of a character's cell
MOST_PAIRS = 32_767  # of colours, that curses counts in 16 bits
ELSEWHERE = "try another terminal, or --window"


def play_in_terminal(game, fps, episodes=None):
    """Play a ``Game`` until the person ends it, or ``episodes`` are over; return its ``Rounds``.

    Raises:
        RenderError: If the terminal is too small, has too few colours, or cannot show half blocks.
    """
    try:
        import curses
    except ImportError:
        raise RenderError(f"this Python has no module curses, which draws in terminals; {ELSEWHERE}") from None
    codes = locale.nl_langinfo(locale.CODESET)
    if codes.upper().replace("-", "") != "UTF8":
        raise RenderError(f"this terminal's texts are {codes}; half blocks need UTF-8, as with LC_ALL=C.UTF-8")
    rounds = Rounds(game, fps, episodes)
    try:
        curses.wrapper(lambda screen: Terminal(rounds, screen, curses).play())
    except curses.error as error:  # such as a TERM that nobody knows
        raise RenderError(f"this terminal cannot be drawn on: {error}; {ELSEWHERE}") from None
    except KeyboardInterrupt:
        rounds.ended = True
    return rounds


class Terminal:
    """A screen of curses that shows a game.

    Args:
        rounds: ``Rounds`` of it.
        screen: Window of curses.
        curses: The module, which not every Python has.
    """

    def __init__(self, rounds, screen, curses):
        if curses.COLORS < 256:
            raise RenderError(
                f"this terminal shows {curses.COLORS} colours; 256 are needed, as with TERM=xterm-256color: {ELSEWHERE}"
            )
        self.rounds, self.screen, self.curses, self.game = rounds, screen, curses, rounds.game
        arrows = {"LEFT": "ArrowLeft", "RIGHT": "ArrowRight", "UP": "ArrowUp", "DOWN": "ArrowDown"}
        self.named = {getattr(curses, f"KEY_{name}"): key for name, key in arrows.items()}
        self.pairs, self.until = {}, {}  # until when each key counts
        curses.curs_set(0)
        self.stage = self._stage()

    def play(self):
        """Take in keys and show what comes of them, until the game has ended."""
        self._show()
        while not self.rounds.ended:
            wait = self.rounds.due - time.monotonic() if self.rounds.running else None
            self.screen.timeout(-1 if wait is None else max(0, int(1000 * wait) + 1))
            code = self.screen.getch()
            if code == -1 and not sys.stdin.isatty():  # the terminal has gone, and with it the person
                self.rounds.ended = True
                return
            changed, now = self._read(code), time.monotonic()
            down = [key for key, until in self.until.items() if until >= now]
            if self.rounds.tick(now, down):
                self.until = {key: until for key, until in self.until.items() if until > now + 1 / self.rounds.fps}
                changed = True
            if changed:
                self._show()

    def _read(self, code):
        """Take in what curses has read; return whether there is something new to show."""
        if code == -1:
            return False
        if code == self.curses.KEY_RESIZE:
            before, self.stage = self.stage, self._stage()
            self.stage.past, self.stage.latest = before.past, before.latest
            return True
        now, key = time.monotonic(), self.named.get(code, chr(code).lower() if 0 < code < 128 else "")
        if self.rounds.press(key, now):
            self.until.pop(key, None)
            self.until[key] = now + max(HOLD, 1 / self.rounds.fps)  # the last one comes last
            return False
        return True

    def _stage(self):
        """Return a ``Stage`` as large as the terminal allows."""
        rows, columns = self.screen.getmaxyx()
        wide, high = self.game.spec.render_size
        scale = min(columns / wide, 2 * (rows - LINES) / high)
        size = [int(scale * side) // 2 * 2 for side in (wide, high)]
        if min(size) < SMALLEST:
            least = SMALLEST / min(wide, high)
            raise RenderError(
                f"the terminal has {columns} x {rows} characters; {self.game.spec.name} needs {int(least * wide) + 2} x "
                f"{int(least * high / 2) + 2 + LINES}"
            )
        canvas = Canvas(*size, header=0, played=(self.game.group, self.game.agent))
        return Stage(self.game.spec, self.game.params, canvas)

    def _show(self):
        """Draw the picture of the moment, and lines of text below it."""
        game, moment, screen = self.game, self.game.moment, self.screen
        pixels = colours(self.stage.picture(moment))
        upper, lower = pixels[::2], pixels[1::2]
        screen.erase()
        for row in range(len(upper)):
            for first, last in runs(upper[row], lower[row]):
                pair = self._pair(int(upper[row, first]), int(lower[row, first]))
                screen.addstr(row, first, UPPER * (last - first), self.curses.color_pair(pair))
        told = score(moment, 0)
        if moment.step:
            told += f"   your last reward {moment.reward[game.group][0, game.agent]:.4g}"
        lines = (repr(game).strip("<>"), f"{told}   {self.rounds.said}", game.help, KEYS)
        for k, line in enumerate(lines):
            screen.addnstr(len(upper) + k, 0, line, screen.getmaxyx()[1] - 1)
        screen.refresh()

    def _pair(self, front, back):
        """Return the number of curses' pair of two colours."""
        if (front, back) not in self.pairs:
            if len(self.pairs) + 1 >= min(self.curses.COLOR_PAIRS, MOST_PAIRS):
                self.pairs.clear()  # all are chosen anew, and all cells drawn again
                self.screen.clear()
            self.curses.init_pair(len(self.pairs) + 1, front, back)
            self.pairs[front, back] = len(self.pairs) + 1
        return self.pairs[front, back]


def colours(frame):
    """Return the nearest of a terminal's 256 colours for each pixel, (H, W), of a frame (H, W, 3) uint8."""
    pixels = frame.astype(np.int64)
    of_cube = np.abs(pixels[..., None] - LEVELS).argmin(axis=-1)  # (H, W, 3)
    grey = ((pixels.mean(axis=-1) - 8) / 10).round().clip(0, 23).astype(np.int64)
    far = ((LEVELS[of_cube] - pixels) ** 2).sum(axis=-1), ((8 + 10 * grey[..., None] - pixels) ** 2).sum(axis=-1)
    return np.where(far[0] <= far[1], CUBE + of_cube @ np.array([36, 6, 1]), GREYS + grey)


def runs(upper, lower):
    """Yield (first, last + 1) of neighbours in a row, (W,), that look alike."""
    changes = np.flatnonzero((np.diff(upper) != 0) | (np.diff(lower) != 0)) + 1
    yield from zip((0, *changes.tolist()), (*changes.tolist(), len(upper)), strict=True)
