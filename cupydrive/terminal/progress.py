"""Progress: one line on a terminal, a line (of training: with a live curve) in a notebook, plain lines in a log.

Nothing here needs a widget: what a notebook shows is text and pictures, and stays in the saved file.
"""

import base64
import html
import sys
import time

from tqdm import tqdm

LOG_SECONDS = 10.0  # between the lines of a log
DRAW_SECONDS = 1.0  # between two drawings of a live curve, at least
DRAW_SHARE = 20  # of the time, at most one part in this many goes into drawing
LINE = "{l_bar}{bar}| {remaining} left, {rate_fmt}{postfix}"  # as tqdm writes it; two returns fit into 80 columns


def in_notebook():
    """Return whether this process runs the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def follow(total, words, shown=True):
    """Return what shows the progress of ``total`` env-steps: an object with ``update(done, row)`` and ``close()``."""
    if not shown:
        return Silent()
    if in_notebook():
        return Notebook(total, words)
    return Terminal(total, words) if sys.stderr.isatty() else Log(total, words)


def counted(items, words, total, shown=True):
    """Yield ``items`` and show how many are done: on a terminal or in a notebook, and only until the last one.

    Args:
        items: Iterable.
        words: What is done.
        total: How many there are.
        shown: False: show nothing.
    """
    if shown and in_notebook():
        yield from counted_in_notebook(items, words, total)
    else:
        shown = shown and sys.stderr.isatty()
        yield from tqdm(items, desc=words, total=total, disable=not shown, leave=False)


def counted_in_notebook(items, words, total):
    """Yield ``items``; show one line that goes away at the end."""
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


def note(words, shown=True):
    """Say something once beside what progress is shown: on a terminal or in a notebook."""
    if shown and (in_notebook() or sys.stderr.isatty()):
        # A notebook shows the standard error in red, as if something had gone wrong.
        tqdm.write(f"cupydrive: {words}", file=sys.stdout if in_notebook() else sys.stderr)


def summary(row):
    """Return the returns and losses of a row of metrics, by short name."""
    names = [key for key in row if "episodic_return" in key]
    names += [key for key in row if key.startswith("losses/") and key.endswith(("value_loss", "entropy", "qf_loss"))]
    return {name.split("/", 1)[1]: f"{row[name]:.3g}" for name in names}


class Silent:
    """Shows nothing."""

    def update(self, done, row):
        """Take note of ``done`` env-steps and the newest row of metrics."""

    def close(self, words=None):
        """Show the end; ``words`` say what happened."""


class Terminal(Silent):
    """One line that is written over."""

    def __init__(self, total: int, words: str) -> None:
        style = {"unit": "step", "unit_scale": True, "dynamic_ncols": True, "bar_format": LINE}
        self.bar = tqdm(total=total, desc=words, **style)

    def update(self, done: int, row: dict[str, float]) -> None:
        """Write the line anew."""
        returns = {name.split("/")[-1]: value for name, value in summary(row).items() if "return" in name}
        self.bar.set_postfix(returns, refresh=False)
        self.bar.update(done - self.bar.n)

    def close(self, words: str | None = None) -> None:
        """Leave the last line."""
        self.bar.close()
        if words:
            print(words, file=sys.stderr)


class Log(Silent):
    """A line of text every few seconds, for files and pipes."""

    def __init__(self, total, words):
        self.total, self.words = total, words
        self.start = self.written = time.perf_counter()
        self.done, self.row, self.shown = 0, {}, 0

    def line(self):
        """Return how far it is, as one line."""
        seconds = time.perf_counter() - self.start
        about = ", ".join(f"{key}={value}" for key, value in summary(self.row).items())
        return tqdm.format_meter(
            self.done, self.total, seconds, prefix=self.words, unit="step", unit_scale=True, ncols=0, postfix=about
        )

    def update(self, done, row):
        """Show the newest numbers if it is time to."""
        self.done, self.row = done, row
        if time.perf_counter() - self.written >= LOG_SECONDS:
            self.written, self.shown = time.perf_counter(), done
            self.show()

    def show(self):
        """Write one line."""
        print(self.line(), file=sys.stderr, flush=True)

    def close(self, words=None):
        """Write the last line, if it was not written yet."""
        if self.shown < self.done or not self.done:
            self.show()
        if words:
            print(words, file=sys.stderr, flush=True)


class Notebook(Log):
    """A line of text and, below it, the learning curve so far, both drawn anew in place.

    They are two outputs, plain text and a picture, since git hosts change the HTML of saved notebooks as they please.
    """

    def __init__(self, total, words):
        from IPython.display import display

        super().__init__(total, words)
        self.rows, self.cost, self.note = [], 0.0, ""
        self.display = display
        self.text = display(self._words(), raw=True, display_id=True)
        self.picture = None

    def update(self, done, row):
        """Draw the curve anew if it is time to."""
        self.done, self.row = done, row
        self.rows.append(row)
        if time.perf_counter() - self.written >= max(DRAW_SECONDS, DRAW_SHARE * self.cost):
            self.show()

    def show(self):
        """Draw everything anew."""
        start = time.perf_counter()
        self.text.update(self._words(), raw=True)
        if len(self.rows) > 1:
            from cupydrive.terminal.curves import curves  # Matplotlib takes a while to import

            figure = curves(since_its_begin(self.rows))
            if self.picture is None:
                self.picture = self.display(figure, display_id=True)
            else:
                self.picture.update(figure)
        self.written = time.perf_counter()
        self.cost = self.written - start

    def close(self, words=None):
        """Draw the last state."""
        self.note = words or ""
        self.show()

    def _words(self):
        return {"text/plain": self.line() + (f"\n{self.note}" if self.note else "")}


def since_its_begin(rows):
    """Return the last rows of metrics whose env-steps grow: those of one run, where several train one after the other."""
    steps = [row["charts/global_step"] for row in rows]
    begun = [k for k in range(1, len(steps)) if steps[k] < steps[k - 1]]
    return rows[begun[-1] if begun else 0 :]


def preformatted(text):
    """Return lines of text as HTML that keeps their columns: a page of a notebook has another font for a mere ``pre``."""
    return f'<pre style="font-family:monospace;line-height:1.3">{html.escape(text)}</pre>'


def image(figure, alt="learning curve"):
    """Return a figure as an HTML image that holds its own data."""
    data = base64.b64encode(figure.png()).decode()
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'
