"""Real keys in JupyterLab and in Notebook 7, which take arrows, space and letters as commands of
their own.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from conftest import optional, python_path
from test_view import small

import cupydrive as cd
from cupydrive.errors import RenderError
from cupydrive.playing.config import resolve_eval
from cupydrive.playing.game import Game, GameConfig
from cupydrive.rendering.viewer import HINT, STILL

pytestmark = pytest.mark.full

SECONDS = 40_000  # milliseconds that anything may take on a busy machine
CELLS = (
    'import cupydrive as cd\nlook = dict(device="cpu", num_taggers=2, grid_length=60)\n'
    'cd.view("tag_grid", steps=10, size=(200, 160), **look)',
    'game = cd.play("tag_grid", "random", agent="tagger 1", max_episode_steps=999, fps=10, **look)',
    'broken = cd.play("cartpole", device="cpu")\nbroken.tick = None',
    'print("said", game.ended, game.episode, sorted(set(game.recording.action["tagger"][:, 0, 1, 0].tolist())), "end")',
)
OUTPUT = ".jp-OutputArea-output"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """JupyterLab with Notebook 7 beside it, on a notebook whose kernel runs: the address of its
    first page, but its kind.
    """
    for name in ("jupyterlab", "notebook", "anywidget"):
        optional(name)
    folder = tmp_path_factory.mktemp("jupyter")
    cells = [
        {
            "cell_type": "code",
            "id": f"c{k}",
            "source": text,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for k, text in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / "keys.ipynb").write_text(json.dumps(content))
    shown = {"text/html": small()._repr_html_(), "text/plain": "<Viewer>"}
    cells = [
        cells[0] | {"outputs": [{"output_type": "display_data", "data": shown, "metadata": {}}]}
    ]
    # with outputs, by somebody else
    (folder / "sent.ipynb").write_text(json.dumps(content | {"cells": cells}))
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("RUNTIME", "DATA", "CONFIG")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.root_dir": folder,
        "LabApp.news_url": None,
    }
    options |= {
        "IdentityProvider.token": "x",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    environment = {
        **os.environ,
        **own,
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": python_path(),
    }
    command += [f"--{name}={value}" for name, value in options.items()]
    started = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}/"
        while not answers(address):
            assert started.poll() is None
            time.sleep(0.1)
        session = {
            "path": "keys.ipynb",
            "type": "notebook",
            "name": "keys.ipynb",
            "kernel": {"name": "python3"},
        }
        header = {"Authorization": "token x"}
        urlopen(
            Request(f"{address}api/sessions", json.dumps(session).encode(), header),
            timeout=SECONDS / 1000,
        ).close()
        yield address
    finally:
        # A SIGTERM while it begins a kernel, as it does for each page, leaves the server running
        # (jupyter_server 2.21: "Kernel does not exist" ends its cleaning up). Kernels end by
        # themselves when their server is gone.
        started.kill()
        started.wait()


def answers(address):
    """Return whether a server listens there."""
    try:
        urlopen(f"{address}api", timeout=SECONDS / 1000).close()
    except URLError:
        return False
    return True


def active(page):
    """Return the number of cells, and which of them is active: what a command of the notebook would
    change.
    """
    return page.evaluate(
        "(cells => [cells.length, cells.findIndex(cell => cell.classList.contains('jp-mod-active'))])"
        "([...document.querySelectorAll('.jp-Notebook .jp-Cell')])"
    )


def run_cell(page, number):
    """Run a cell by keys, as soon as its kernel takes it."""
    page.locator(".jp-Notebook .jp-Cell .cm-content").nth(number).click()
    page.keyboard.press("Control+Enter")
    page.wait_for_function(
        f"/[0-9*]/.test(document.querySelectorAll('.jp-Notebook .jp-InputPrompt')[{number}].textContent)",
        timeout=SECONDS,
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lab/tree", "notebooks"])
def test_keys_are_the_viewers_and_not_the_notebooks(server, browser, kind):
    page = browser.new_page(viewport={"width": 1200, "height": 1600})
    page.set_default_timeout(SECONDS)
    page.goto(f"{server}{kind}/keys.ipynb?token=x")
    # it has found the kernel
    page.locator("text=Python 3 (ipykernel) >> visible=true").first.wait_for()
    run_cell(page, 0)

    viewer = page.locator(f"{OUTPUT} [role=group]").first
    slider = viewer.get_by_label("step", exact=True)
    viewer.locator("img").click()
    before = active(page)
    for key, step in (
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowUp", 3),
        ("ArrowLeft", 2),
        ("End", 10),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        assert (slider.input_value(), active(page)) == (str(step), before)
    for key in "dd":  # which deletes a cell
        page.keyboard.press(key)
    assert active(page) == before
    viewer.get_by_role("button", name="play").click()
    page.wait_for_function("document.querySelector('.jp-OutputArea-output input').value === '3'")
    viewer.get_by_role("button", name="stop").click()
    assert active(page) == before

    run_cell(page, 1)
    game = page.get_by_role("group", name="tag_grid, played by keys")

    def until(pattern):
        page.wait_for_function(
            "pattern => new RegExp(pattern).test("
            "[...document.querySelectorAll('.jp-OutputArea-output pre')].at(-1).textContent)",
            arg=pattern,
        )

    until("episode 1, step 0, .* paused: press any key\n")
    game.locator("img").click()
    before = active(page)
    for key, action in (("ArrowRight", 1), ("ArrowUp", 3)):
        page.keyboard.down(key)
        until(f"you play tagger 1, action {action},")
        page.keyboard.up(key)
        until("you play tagger 1, action 0,")
    page.keyboard.press("ArrowLeft")  # shorter than a step
    until("you play tagger 1, action 2,")
    page.keyboard.press("Space")
    until("paused: press any key")
    page.keyboard.press("r")
    until("episode 2, step [1-9]")
    for key in "dd":  # which deletes a cell
        page.keyboard.press(key)
    page.keyboard.down("ArrowDown")
    until("you play tagger 1, action 4,")
    page.keyboard.press("Escape")
    until("episode 2.* paused: press any key")
    assert active(page) == before
    game.locator("img").click()
    page.keyboard.press("q")
    until("episode 2.* ended")

    run_cell(page, 2)
    until("The game ended: TypeError: 'NoneType' object is not callable")
    run_cell(page, 3)
    page.get_by_text(re.compile(r"said True 2 \[(0, )?4\] end")).last.wait_for()
    page.close()


@pytest.mark.long
def test_the_viewer_of_a_notebook_that_is_not_trusted_says_that_it_does_not_move(server, browser):
    page = browser.new_page(viewport={"width": 1200, "height": 1600})
    page.goto(f"{server}lab/tree/sent.ipynb?token=x")
    viewer = page.locator(OUTPUT).first
    viewer.get_by_text(STILL).wait_for(timeout=SECONDS)
    assert viewer.get_by_text(HINT).count() == viewer.locator("script").count() == 0
    assert viewer.get_by_role("button", name="play").is_disabled()
    page.close()


def test_an_error_ends_the_game_and_reaches_the_page():
    optional("anywidget")
    from cupydrive.rendering.notebook import NotebookScreen

    def fail(down):
        raise RuntimeError("no such step")

    screen, sent = (
        NotebookScreen(Game(resolve_eval(cd.play, "cartpole", device="cpu", kind=GameConfig))),
        [],
    )
    screen.game.step, screen.send = (
        fail,
        lambda content, buffers=None: sent.append((content, buffers)),
    )
    with pytest.raises(RuntimeError, match="no such step"):
        screen._answer(None, {"pressed": ["ArrowLeft"], "down": []}, None)
    assert screen.game.ended and sent == [
        ({"text": "The game ended: RuntimeError: no such step"}, None)
    ]


def test_a_notebook_without_anywidget_gets_its_name(monkeypatch):
    monkeypatch.setattr("cupydrive.rendering.play.in_notebook", lambda: True)
    monkeypatch.setitem(sys.modules, "cupydrive.rendering.notebook", None)
    with pytest.raises(RenderError, match="pip install anywidget"):
        cd.play("cartpole", device="cpu")
