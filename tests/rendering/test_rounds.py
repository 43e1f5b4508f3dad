"""Games in a terminal and in a window: steps in time, keys as they are pressed, colours as near as a terminal has them."""

import os
import re
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest
from conftest import python_path

import cupydrive as cd
from cupydrive.playing.game import Game
from cupydrive.rendering.rounds import AFTER_THE_END, Rounds
from cupydrive.rendering.terminal import CUBE, GREYS, LEVELS, colours, runs

RIGHT = b"\x1bOC"  # as terminals send this arrow to programs that draw
SECONDS = 60  # for a program to begin and to end, on a busy machine


# ---- steps -----------------------------------------------------------------------------------------------------------


def test_steps_are_taken_when_they_are_due_and_episodes_follow_each_other():
    game = Game("cartpole", device="cpu")
    rounds = Rounds(game, 10, episodes=2)
    assert not rounds.tick(5.0, []) and rounds.recording is None  # before a key was pressed
    assert rounds.press("ArrowRight", 7.0)
    taken, now = [], 7.0
    while not game.moment.over[0]:
        if rounds.tick(now, ["ArrowRight"]):
            taken.append(now)
        now += 0.01
    np.testing.assert_allclose(np.diff(taken), 0.1, atol=0.011)
    assert rounds.results == [(len(taken), f"return {len(taken)}")] and not rounds.ended
    over, first = taken[-1], rounds.recording
    assert not rounds.tick(over + AFTER_THE_END - 0.01, []) and game.episode == 1
    assert rounds.tick(over + AFTER_THE_END + 0.01, []) and (game.episode, game.moment.step) == (2, 0)
    now = over + AFTER_THE_END + 100  # a late step is taken once, not made up for
    assert rounds.tick(now, []) and not rounds.tick(now + 0.05, []) and game.moment.step == 1
    assert rounds.recording is first  # until the second is over
    while not rounds.ended:
        rounds.tick(now := now + 1, [])
    assert len(rounds.results) == 2 and rounds.recording is not first and not rounds.tick(now + 9, [])


@pytest.mark.full
def test_pause_again_and_end():
    game = Game("tag_grid", device="cpu", grid_length=20)
    rounds = Rounds(game, 10)
    rounds.press("x", 0.0)  # any key begins
    assert rounds.tick(0.0, []) and not rounds.press(" ", 0.1) and not rounds.tick(9.0, [])
    assert "paused" in rounds.said and game.moment.step == 1
    rounds.press(" ", 20.0)
    assert rounds.running and rounds.tick(20.0, []) and game.moment.step == 2
    assert not rounds.press("r", 20.0) and (game.episode, game.moment.step) == (2, 0)
    assert not rounds.press("q", 20.0) and rounds.ended and not rounds.tick(99.0, [])


# ---- a terminal ------------------------------------------------------------------------------------------------------


def test_colours_are_the_nearest_that_there_are():
    known = {CUBE + k: LEVELS[[k // 36, k // 6 % 6, k % 6]] for k in range(216)}
    known |= {GREYS + k: np.full(3, 8 + 10 * k) for k in range(24)}
    numbers, values = np.array(list(known)), np.array(list(known.values()))
    pixels = np.random.default_rng(0).integers(0, 256, (60, 50, 3), np.uint8)
    pixels[:4] = values.astype(np.uint8)[: 4 * 50].reshape(4, 50, 3)
    found = colours(pixels)
    far = ((pixels[..., None, :].astype(int) - values) ** 2).sum(-1)
    mine = np.take_along_axis(far, np.searchsorted(numbers, found)[..., None], -1)[..., 0]
    np.testing.assert_array_equal(mine, far.min(-1))


def test_runs_cover_a_row_and_none_could_be_longer():
    upper, lower = np.random.default_rng(0).integers(0, 2, (2, 100))
    found = list(runs(upper, lower))
    assert [first for first, _ in found] == [0, *(last for _, last in found[:-1])] and found[-1][1] == 100
    looks = list(zip(upper.tolist(), lower.tolist(), strict=True))
    assert all(len(set(looks[first:last])) == 1 for first, last in found)
    assert all(looks[last] != looks[last - 1] for _, last in found[:-1])


def in_a_terminal(arguments, keys, **environment):
    """Run ``cupydrive play`` in a terminal of 80 x 24, press ``keys`` when it asks for one; return (code, what it wrote)."""
    import fcntl
    import pty
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    started = subprocess.Popen(
        [sys.executable, "-m", "cupydrive", "play", *arguments, "--device", "cpu"],
        preexec_fn=lambda: os.login_tty(slave),
        pass_fds=(slave,),
        env={**os.environ, "PYTHONPATH": python_path(), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **environment},
    )
    os.close(slave)
    written, alarm = b"", signal.signal(signal.SIGALRM, lambda *_: started.kill())
    signal.alarm(SECONDS)
    try:
        while True:
            try:
                part = os.read(master, 65_536)
            except OSError:  # its other end is closed
                break
            if not part:
                break
            if b"any key begins" in written + part and b"any key begins" not in written:
                os.write(master, keys)
            written += part
        return started.wait(), written.decode()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        os.close(master)


@pytest.mark.full
def test_an_arrow_pushes_the_cart_until_the_pole_falls(tmp_path):
    out = tmp_path / "game.npz"
    code, written = in_a_terminal(["cartpole", "--episodes", "1", "--seed", "4", "--out", str(out)], RIGHT)
    recording = cd.Recording.load(out)
    steps = recording.steps
    assert code == 0 and recording.seed == 4 and recording.players == {"cart": "you"} and 5 < steps < 20
    assert recording.action["cart"].ravel().tolist() == [1] * steps
    assert written.endswith(f"episode 1: {steps} steps   return {steps}\r\nwrote {out}\r\n")
    assert "\u2580" in written and re.search("actions: . 0, . 1; no key the action before", written)


@pytest.mark.full
def test_a_terminal_of_few_colours_is_refused_in_one_line():
    code, written = in_a_terminal(["cartpole"], b"q", TERM="xterm")
    assert code == 2 and written.splitlines()[-1].endswith("TERM=xterm-256color: try another terminal, or --window")
    assert "Traceback" not in written


# ---- a window --------------------------------------------------------------------------------------------------------


@pytest.fixture
def window():
    """A window that nobody sees: Matplotlib's events without a toolkit."""
    from matplotlib import pyplot

    from cupydrive.rendering.window import Window

    with pyplot.rc_context({"backend": "agg"}):
        made = Window(Rounds(Game("tag_grid", "tagger 1", device="cpu", grid_length=30), 10))
        yield made
        pyplot.close(made.figure)


@pytest.mark.full
def test_a_window_knows_when_a_key_is_let_go(window):
    from matplotlib.backend_bases import CloseEvent, KeyEvent

    def event(kind, key):
        KeyEvent(f"key_{kind}_event", window.figure.canvas, key)._process()

    def step():
        window.rounds.due = 0.0
        before = window.image.get_array().copy()
        window.tick()
        assert (window.image.get_array() != before).any()
        return int(window.game.moment.action["tagger"][0, 1, 0])

    event("press", "up")
    assert step() == step() == 3  # as long as it is down
    event("press", "right")
    assert step() == 1  # the last one counts
    event("release", "right")
    assert step() == 3
    event("release", "up")
    assert step() == 0
    event("press", "left")
    event("release", "left")
    assert (step(), step()) == (2, 0)  # shorter than a step
    event("press", " ")
    assert not window.rounds.running
    CloseEvent("close_event", window.figure.canvas)._process()
    assert window.rounds.ended


def test_without_a_window_one_line_says_what_is_missing(capsys):
    from cupydrive.cli.main import main

    assert main(["play", "cartpole", "--window", "--device", "cpu"]) == 2
    assert re.fullmatch("cupydrive: Matplotlib opens no window: that needs a display.*\n", capsys.readouterr().err)
