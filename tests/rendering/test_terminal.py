"""Games in a terminal: keys as they are pressed, the nearest colours, and a terminal that is as
before at the end.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from itertools import product

import numpy as np
import pytest
from conftest import python_path

import cupydrive as cd
from cupydrive.errors import RenderError
from cupydrive.rendering.terminal import nearest_colors

RIGHT = b"\x1bOC"  # as terminals send this arrow to programs that draw
START = b"press any key"
SECONDS = 60  # for a program to begin and to end, on a busy machine


def test_colours_are_nearly_the_nearest():
    palette = np.array(
        [*product((0, 95, 135, 175, 215, 255), repeat=3), *((8 + 10 * k,) * 3 for k in range(24))],
        np.uint8,
    )
    pixels = np.random.default_rng(0).integers(0, 256, (60, 50, 3), np.uint8)
    distances = np.linalg.norm(pixels[:, :, None].astype(int) - palette, axis=-1)
    found = np.take_along_axis(distances, nearest_colors(pixels)[..., None].astype(int) - 16, -1)[
        ..., 0
    ]
    assert (found - distances.min(-1)).max() < 16  # Pillow looks colours up in steps of 4


def resize(terminal, rows):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))


def in_a_terminal(arguments, keys, rows=24, **environment):
    """Run ``cupydrive play`` in a terminal, react when it asks for a key, and return (code, output,
    is restored).

    Args:
        arguments: Of the command.
        keys: Pairs, in order: what the game writes, and the keys to press or the number of rows to
            have then.
        rows: Of the terminal.
        **environment: Variables.
    """
    # curses prefers them
    own = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
    master, slave = pty.openpty()
    resize(slave, rows)
    before = termios.tcgetattr(master)
    started = subprocess.Popen(
        [sys.executable, "-m", "cupydrive", "play", *arguments, "--device", "cpu"],
        preexec_fn=lambda: os.login_tty(slave),
        pass_fds=(slave,),
        env={
            **own,
            "PYTHONPATH": python_path(),
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            **environment,
        },
    )
    os.close(slave)
    written, seen, waiting, alarm = (
        b"",
        0,
        list(keys),
        signal.signal(signal.SIGALRM, lambda *_: started.kill()),
    )
    signal.alarm(SECONDS)
    try:
        while True:
            try:
                part = os.read(master, 65_536)
            except OSError:  # its other end is closed
                break
            written += part
            if waiting and waiting[0][0] in written[seen:]:
                seen, reaction = len(written), waiting.pop(0)[1]
                resize(master, reaction) if isinstance(reaction, int) else os.write(
                    master, reaction
                )
        restored = termios.tcgetattr(master) == before
        return (
            started.wait(),
            written.decode(),
            restored and written.count(b"\x1b[?1049h") == written.count(b"\x1b[?1049l"),
        )
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        os.close(master)


@pytest.mark.full
def test_an_arrow_pushes_the_cart_until_the_pole_falls(tmp_path):
    out = tmp_path / "game.npz"
    options = ["--episodes", "1", "--seed", "4", "--out", str(out)]
    code, written, restored = in_a_terminal(["cartpole", *options], [(START, RIGHT)])
    recording = cd.Recording.load(out)
    steps = recording.steps
    assert (
        code == 0
        and restored
        and recording.seed == 4
        and recording.players == {"cart": "you"}
        and 5 < steps < 20
    )
    assert recording.action["cart"].ravel().tolist() == [1] * steps
    assert written.endswith(f"episode 1: {steps} steps, return {steps}\r\nwrote {out}\r\n")
    assert "\u2580" in written and re.search("actions: no key as before, . 0, . 1", written)


@pytest.mark.full
@pytest.mark.parametrize(
    ("keys", "options", "code", "words"),
    [
        ([(START, b"q")], {}, 0, "0 finished episodes>"),
        ([(START, b"\x03")], {}, 0, "0 finished episodes>"),  # Ctrl-C
        ([(START, 40), (START, b"q")], {}, 0, "0 finished episodes>"),
        ([(START, 6)], {}, 2, "the terminal is too small: 80 x 6 characters. Enlarge it"),
        ([], {"TERM": "xterm"}, 2, "8 colors, expected at least 256. Try TERM=xterm-256color"),
        ([], {"TERM": "no_such"}, 2, "Try another one"),
        ([], {"rows": 6}, 2, "the terminal is too small: 80 x 6 characters. Enlarge it"),
    ],
)
def test_the_terminal_is_restored(keys, options, code, words):
    found, written, restored = in_a_terminal(["cartpole"], keys, **options)
    assert (
        (found, restored) == (code, True)
        and words in written.splitlines()[-1]
        and "Traceback" not in written
    )


def test_without_a_terminal_or_a_notebook_one_error_says_so():
    with pytest.raises(RenderError, match="no terminal and no notebook found"):
        cd.play("cartpole", device="cpu")
