"""Progress: one line in a terminal, a line and a live curve in a notebook, plain lines in a log.

In a notebook, the output is text and pictures instead of widgets, so that it is saved in the file.
"""

import base64
import html
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from cupydrive.drawing.curves import Curves

LOG_SECONDS = 10.0  # seconds between the lines of a log
DRAW_SECONDS = 1.0  # minimum seconds between two drawings of a live curve
DRAW_SHARE = 20  # drawing takes at most 1 / DRAW_SHARE of the time
# tqdm's format, in which two returns fit into 80 columns.
LINE = "{l_bar}{bar}| {remaining} left, {rate_fmt}{postfix}"


def in_notebook() -> bool:
    """Return whether this process runs the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def follow(total: int, words: str, shown: bool = True) -> "Silent":
    """Return a progress display of ``total`` environment steps for this terminal, notebook or
    log.
    """
    if not shown:
        return Silent()
    if in_notebook():
        return Notebook(total, words)
    return Terminal(total, words) if sys.stderr.isatty() else Log(total, words)


def counted(items: Iterable, words: str, total: int, shown: bool = True) -> Iterator:
    """Yield ``items``, and show the progress in a terminal or notebook.

    Args:
        items: Iterable to count.
        words: Description of the work.
        total: Number of items.
        shown: Whether to show anything.
    """
    if shown and in_notebook():
        yield from counted_in_notebook(items, words, total)
    else:
        shown = shown and sys.stderr.isatty()
        yield from tqdm(items, desc=words, total=total, disable=not shown, leave=False)


def counted_in_notebook(items: Iterable, words: str, total: int) -> Iterator:
    """Yield ``items``, and show a progress line that is removed at the end."""
    from IPython.display import display

    start = written = time.perf_counter()
    handle = display({"text/plain": words}, raw=True, display_id=True)
    try:
        for done, item in enumerate(items):
            if time.perf_counter() - written > DRAW_SECONDS / 4:
                written = time.perf_counter()
                line = tqdm.format_meter(done, total, written - start, ncols=0, prefix=words)
                handle.update({"text/plain": line}, raw=True)
            yield item
    finally:
        handle.update({"text/plain": ""}, raw=True)


def summary(row: dict[str, float]) -> dict[str, str]:
    """Return the returns and losses of a row of metrics, by short name."""
    names = [key for key in row if "episodic_return" in key]
    names += [
        key
        for key in row
        if key.startswith("losses/") and key.endswith(("value_loss", "entropy", "qf_loss"))
    ]
    return {name.split("/", 1)[1]: f"{row[name]:.3g}" for name in names}


class Silent:
    """Progress display that shows nothing."""

    def update(self, done: int, row: dict[str, float]) -> None:
        """Update the display with ``done`` environment steps and the newest row of metrics."""

    def close(self, words: str | None = None) -> None:
        """Close the display. ``words`` are a final message."""


class Terminal(Silent):
    """Progress bar in a single line."""

    def __init__(self, total: int, words: str) -> None:
        style = {"unit": "step", "unit_scale": True, "dynamic_ncols": True, "bar_format": LINE}
        self.bar = tqdm(total=total, desc=words, **style)

    def update(self, done: int, row: dict[str, float]) -> None:
        """Rewrite the line."""
        returns = {
            name.split("/")[-1]: value for name, value in summary(row).items() if "return" in name
        }
        self.bar.set_postfix(returns, refresh=False)
        self.bar.update(done - self.bar.n)

    def close(self, words: str | None = None) -> None:
        """Keep the last line and print the final message."""
        self.bar.close()
        if words:
            print(words, file=sys.stderr)


class Log(Silent):
    """A line of text every few seconds, for files and pipes."""

    def __init__(self, total: int, words: str) -> None:
        self.total, self.words = total, words
        self.start = self.written = time.perf_counter()
        self.done = self.shown = 0
        self.row: dict[str, float] = {}

    def line(self) -> str:
        """Return the progress as one line."""
        seconds = time.perf_counter() - self.start
        about = ", ".join(f"{key}={value}" for key, value in summary(self.row).items())
        return tqdm.format_meter(
            self.done,
            self.total,
            seconds,
            prefix=self.words,
            unit="step",
            unit_scale=True,
            ncols=0,
            postfix=about,
        )

    def update(self, done: int, row: dict[str, float]) -> None:
        """Write a line if the last one is old enough."""
        self.done, self.row = done, row
        if time.perf_counter() - self.written >= LOG_SECONDS:
            self.written, self.shown = time.perf_counter(), done
            self.show()

    def show(self) -> None:
        """Write one line."""
        print(self.line(), file=sys.stderr, flush=True)

    def close(self, words: str | None = None) -> None:
        """Write the last line unless it has been written already."""
        if self.shown < self.done or not self.done:
            self.show()
        if words:
            print(words, file=sys.stderr, flush=True)


class Notebook(Log):
    """A line of text and the learning curve below it, both redrawn in place.

    They are separate outputs, plain text and a picture, because git hosts modify the HTML of saved
    notebooks.
    """

    def __init__(self, total: int, words: str) -> None:
        from IPython.display import display

        super().__init__(total, words)
        self.rows: list[dict[str, float]] = []
        self.cost, self.note = 0.0, ""
        self.display = display
        self.text = display(self._words(), raw=True, display_id=True)
        self.picture = None

    def update(self, done: int, row: dict[str, float]) -> None:
        """Redraw the curve if the last drawing is old enough."""
        self.done, self.row = done, row
        self.rows.append(row)
        if time.perf_counter() - self.written >= max(DRAW_SECONDS, DRAW_SHARE * self.cost):
            self.show()

    def show(self) -> None:
        """Redraw everything."""
        start = time.perf_counter()
        self.text.update(self._words(), raw=True)
        if len(self.rows) > 1:
            from cupydrive.drawing.curves import curves  # Matplotlib takes a while to import

            figure = curves(since_its_begin(self.rows))
            if self.picture is None:
                self.picture = self.display(figure, display_id=True)
            else:
                self.picture.update(figure)
        self.written = time.perf_counter()
        self.cost = self.written - start

    def close(self, words: str | None = None) -> None:
        """Draw the last state."""
        self.note = words or ""
        self.show()

    def _words(self) -> dict[str, str]:
        return {"text/plain": self.line() + (f"\n{self.note}" if self.note else "")}


def since_its_begin(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the metrics of the last run if several train one after another.

    These are the last rows with increasing environment steps.
    """
    steps = [row["charts/global_step"] for row in rows]
    begun = [k for k in range(1, len(steps)) if steps[k] < steps[k - 1]]
    return rows[begun[-1] if begun else 0 :]


def preformatted(text: str) -> str:
    """Format text as HTML with aligned columns.

    The style is necessary, because a notebook's ``pre`` has another font by default.
    """
    return f'<pre style="font-family:monospace;line-height:1.3">{html.escape(text)}</pre>'


def image(figure: "Curves") -> str:
    """Return a figure as an HTML image with embedded data."""
    data = base64.b64encode(figure.png()).decode()
    return f'<img alt="learning curve" src="data:image/png;base64,{data}">'
