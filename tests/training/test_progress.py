"""What training shows: curves that hold the metrics, lines in a log, a display in a notebook,
TensorBoard's events.
"""

import io
import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from conftest import optional
from equal_runs import rows, same
from test_runs import QUIET, train

import cupydrive as cd
from cupydrive.errors import ParameterError
from cupydrive.terminal.progress import Log, Notebook, Terminal, preformatted
from cupydrive.training.run import Run

PACKAGE = Path(cd.__file__).parent
ROWS = [
    {"charts/global_step": 100 * i, "charts/episodic_return": 2.0 * i, "losses/entropy": 1 / i}
    for i in (1, 2, 3)
]


def test_curves_hold_the_metrics_and_the_levels_to_compare_with():
    from cupydrive.drawing.curves import curves

    figure = curves(
        ROWS,
        ["charts/episodic_return", "losses/entropy"],
        {"random": {"charts/episodic_return": 5.0}},
    )
    first, second = figure.axes
    assert first.lines[0].get_xydata().tolist() == [[100, 2], [200, 4], [300, 6]]
    assert first.lines[1].get_ydata() == [5.0, 5.0] and first.get_legend_handles_labels()[1] == [
        "random"
    ]
    assert second.lines[0].get_ydata().tolist() == [1, 1 / 2, 1 / 3] and len(second.lines) == 1
    with pytest.raises(ParameterError, match=r"losses/entropi'\. Did you mean 'losses/entropy'"):
        curves(ROWS, ["losses/entropi"])


def test_many_rows_are_pooled():
    from cupydrive.drawing.curves import curves

    rows = [
        {
            "charts/global_step": k,
            "charts/episodes": 1 + 9 * (k % 2),
            "charts/episodic_return": k % 2,
            "losses/entropy": k % 2,
        }
        for k in range(1, 601)
    ]
    figure = curves(rows, ["charts/episodic_return", "losses/entropy"])
    for axes, want in zip(figure.axes, (1 / 2, 1 / 2), strict=True):
        x, y = axes.lines[0].get_xydata().T
        assert x.tolist() == list(range(4, 601, 4)) and y == pytest.approx(want)


@pytest.mark.full
def test_a_run_plots_every_groups_return(tmp_path):
    from matplotlib.image import imread

    run = train("a2c", 60)
    figure = run.plot()
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "episodic return, tagger",
        "episodic return, runner",
    ]
    figure.savefig(tmp_path / "curve.png")
    picture = imread(tmp_path / "curve.png")
    assert (
        picture.shape[:2] == tuple(figure.dpi * figure.get_size_inches()[::-1])
        and picture.std() > 0.01
    )
    assert "<img" in run._repr_html_() and "tag_grid" in run._repr_html_()
    assert len(train("ppo", 1).plot().axes) == 1  # no episode has ended yet


def test_without_a_terminal_progress_is_lines_of_text(monkeypatch, capfd):
    monkeypatch.setattr("cupydrive.terminal.progress.LOG_SECONDS", 0.0)
    cd.train(
        "cartpole", cd.PPO(num_steps=8, hidden=(16,)), num_envs=16, steps=8 * 16 * 8, device="cpu"
    )
    lines = capfd.readouterr().err.splitlines()
    shown = [line for line in lines if line.startswith("train cartpole")]
    assert (
        len(shown) == 8
        and "100%" in shown[-1]
        and "episodic_return=" in shown[-1]
        and "\r" not in "".join(lines)
    )


def test_a_log_is_short_and_ends_with_the_last_numbers(capfd):
    log = Log(1000, "train it")
    for done in range(100, 1001, 100):
        log.update(done, {"charts/episodic_return": done / 10})
    log.close("that is all")
    first, second = capfd.readouterr().err.splitlines()
    assert "episodic_return=100" in first and second == "that is all"


def test_a_terminals_line_has_the_returns_of_two_groups_in_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    line = Terminal(400_000, "train tag_grid")
    line.bar.fp, line.bar.ncols, line.bar.dynamic_ncols = io.StringIO(), 80, None
    line.update(
        163_840, {"charts/episodic_return/tagger": -500.0, "charts/episodic_return/runner": 12.5}
    )
    assert "tagger=-500, runner=12.5" in str(line.bar) and len(str(line.bar)) == 80


def test_a_notebook_shows_one_line_and_a_curve_without_widgets_and_html(monkeypatch):
    """Each is an output of its own, which is drawn anew in place: what git hosts do to HTML matters
    to neither.
    """
    optional("IPython")
    outputs = []  # of each the bundles, the newest last

    class Handle:
        def __init__(self, shown, raw=False, display_id=None):
            self.bundles = []
            outputs.append(self.bundles)
            self.update(shown, raw)

        def update(self, shown, raw=False):
            self.bundles.append(shown if raw else {"image/png": shown._repr_png_()})

    monkeypatch.setattr("IPython.display.display", Handle)
    monkeypatch.setattr("cupydrive.terminal.progress.DRAW_SECONDS", 0.0)
    monkeypatch.setattr("cupydrive.terminal.progress.DRAW_SHARE", 0)
    bar = Notebook(300, "train it")
    for row in ROWS:
        bar.update(row["charts/global_step"], row)
    bar.close("interrupted")
    words, pictures = outputs
    assert [set(bundle) for bundle in words + pictures] == [{"text/plain"}] * 5 + [
        {"image/png"}
    ] * 3
    assert "episodic_return=6" in words[-1]["text/plain"] and words[-1]["text/plain"].endswith(
        "\ninterrupted"
    )
    assert pictures[0]["image/png"] != pictures[-1]["image/png"] and pictures[0][
        "image/png"
    ].startswith(b"\x89PNG")


def test_tables_keep_their_columns_in_a_notebook():
    """Its page gives ``pre`` the font of prose, so every one of ours names another."""
    assert (
        preformatted("a <b\n  1")
        == '<pre style="font-family:monospace;line-height:1.3">a &lt;b\n  1</pre>'
    )
    found = [
        tag
        for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html"))
        for tag in re.findall(r"<pre[^>]*>", path.read_text())
    ]
    assert len(found) == 2 and all("font-family:monospace" in tag for tag in found)
    env = cd.make("cartpole", num_envs=4, device="cpu")
    assert env._repr_html_().startswith(preformatted(repr(env)))


def test_tensorboard_gets_what_the_metrics_hold(tmp_path):
    EventAccumulator = optional(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator

    run = train("ppo", 6, out=tmp_path)
    half = Run.load(tmp_path)
    cd.train(half, steps=2 * 16 * 8, out=tmp_path, progress=False)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 8 and rows[:6] == run.metrics
    events = EventAccumulator(str(tmp_path)).Reload()
    for name in ("charts/episodic_return", "losses/value_loss"):
        got = {e.step: e.value for e in events.Scalars(name)}
        want = {row["charts/global_step"]: row[name] for row in rows if name in row}
        assert got == pytest.approx(want, rel=1e-6)


def test_ctrl_c_finishes_the_iteration_and_keeps_the_result(tmp_path, capfd):
    def press(step, metrics):
        if step == 4 * 16 * 8:
            signal.raise_signal(signal.SIGINT)

    whole = train("ppo", 20)
    run = train("ppo", 20, out=tmp_path, callback=press, progress=True)
    assert (
        run.step == 4 * 16 * 8
        and f"interrupted after {run.step:,} env-steps" in capfd.readouterr().err
    )
    resumed = Run.load(tmp_path)
    assert same(run, resumed)
    cd.train(resumed, out=tmp_path, progress=False)
    assert same(whole, resumed) and rows(resumed) == rows(whole)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_twice_ends_at_once_and_writes_nothing_more(tmp_path, capfd):
    def press_twice(step, metrics):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"aborted.*, the last checkpoint is kept"):
        train("ppo", 20, out=tmp_path, callback=press_twice)
    assert Run.load(tmp_path).step == 0
    with pytest.raises(KeyboardInterrupt, match="nothing is kept, since there is no out"):
        train("ppo", 20, callback=press_twice)
    capfd.readouterr()
    assert train(
        "ppo", 20, seeds=2, out=tmp_path / "two", callback=press_twice, progress=True
    ).interrupted
    assert "aborted" in (said := capfd.readouterr().err) and "the last checkpoint is kept" in said


@pytest.mark.parametrize("seeds", [{}, {"seeds": 2}])
def test_a_callback_that_returns_true_ends_training_and_keeps_the_result(seeds, tmp_path, capfd):
    def enough(step, metrics):
        return np.bool_(step >= 4 * 16 * 8)

    found = train("ppo", 20, out=tmp_path, callback=enough, progress=True, **seeds)
    assert found.interrupted and "after" in capfd.readouterr().err
    steps = [run.step for run in cd.load(tmp_path)] if seeds else [cd.load(tmp_path).step]
    assert all(4 * 16 * 8 <= step < 20 * 16 * 8 for step in steps)
    for said in (None, 1, "done", [True]):  # what a function happens to return
        assert train("ppo", 6, callback=lambda step, metrics, said=said: said).step == 6 * 16 * 8


def test_progress_can_be_silent(capfd):
    cd.train("cartpole", cd.PPO(num_steps=8, hidden=(16,)), num_envs=16, steps=200, **QUIET)
    assert capfd.readouterr() == ("", "")
