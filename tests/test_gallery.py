"""The gallery: what it writes is there, can be drawn again, and its page works in a browser."""

import http.server
import json
import re
import threading
from pathlib import Path

import pytest
from conftest import optional

import cupydrive as cd
from cupydrive.errors import MissingDataError, RenderError
from cupydrive.gallery.build import all_alike, gallery, read_entries
from cupydrive.gallery.page import page, readme
from cupydrive.playing.recording import Recording
from cupydrive.training.run import Run

HERE = Path(__file__).resolve().parent.parent / "gallery"
STEPS = 3_000  # of training: a player of more keeps its pole up for longer, and all of it is drawn


def links(text):
    """Return the files that a page or a README names."""
    found = re.findall(r'(?:src|poster)="([^"]+)"', text) + re.findall(r"\]\(([^)]+)\)", text)
    return {name for name in found if not name.startswith(("#", "data:"))}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    options = {"runs": folder / "runs", "device": "cpu", "steps": STEPS, "progress": lambda line: None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cupydrive.gallery.build.MOSAIC", 4)  # of 16, which take most of the time
        gallery(["cartpole"], folder / "out", **options)
        gallery(["tag_grid"], folder / "out", **options)
    return folder


@pytest.mark.notebook
def test_every_file_that_a_page_names_is_there(made):
    out = made / "out"
    names = links((out / "index.html").read_text())
    assert names and all((out / name).stat().st_size > 500 for name in names | links((out / "README.md").read_text()))
    kinds = {name: [clip["kind"] for clip in entry["clips"]] for name, entry in read_entries(out).items()}
    assert kinds == {
        "cartpole": ["random", "trained", "mosaic"],
        "tag_grid": ["random", "heuristic", "trained", "mosaic"],
    }


@pytest.mark.notebook
def test_the_command_of_a_clip_draws_the_same_video(made, tmp_path, monkeypatch):
    from cupydrive.cli.main import main

    (tmp_path / "gallery").symlink_to(made / "out")
    monkeypatch.chdir(tmp_path)
    for entry in read_entries("gallery").values():
        for clip in entry["clips"][1:2]:  # a network's, and a heuristic's
            assert main(clip["command"].split()[1:]) == 0
            assert Path(clip["video"]).read_bytes() == (made / "out" / clip["video"]).read_bytes()


@pytest.mark.notebook
def test_clips_of_one_environment_show_one_start_and_tell_the_runs_results(made):
    entry = read_entries(made / "out")["tag_grid"]
    clips = {clip["kind"]: clip for clip in entry["clips"]}
    assert len({clips[kind]["first_env"] for kind in ("random", "heuristic", "trained")}) == 1
    run = Run.load(made / "runs" / "tag_grid")
    found = run.evaluate(1000)
    assert clips["trained"]["means"]["length"][0] == pytest.approx(found.mean("length")[0], abs=1e-4)
    returns = cd.evaluate("tag_grid", episodes=1000, device="cpu", grid_length=20).returns["tagger"]
    chosen = returns[clips["heuristic"]["first_env"]]
    assert (returns < chosen).sum() <= 500 and (returns > chosen).sum() <= 500  # the median


@pytest.mark.notebook
def test_a_finished_run_is_not_trained_again(made, monkeypatch):
    before = {p: p.stat().st_mtime_ns for p in (made / "runs").rglob("*.pt")}
    monkeypatch.setattr("cupydrive.gallery.build.train", None)

    def stop(*_):
        raise KeyboardInterrupt  # what would come after the training

    monkeypatch.setattr("cupydrive.gallery.build.draw_clip", stop)
    options = {"device": "cpu", "steps": STEPS, "progress": lambda line: None}
    with pytest.raises(KeyboardInterrupt):
        gallery(["cartpole"], made / "again", runs=made / "runs", **options)
    assert before == {p: p.stat().st_mtime_ns for p in (made / "runs").rglob("*.pt")}


@pytest.mark.parametrize(("env", "alike"), [("catalysis", True), ("acrobot", False)])
def test_many_episodes_are_shown_unless_all_are_alike(env, alike):
    assert all_alike(cd.evaluate(env, episodes=3, device="cpu")) == alike


def test_wrong_input_is_named(tmp_path):
    with pytest.raises(cd.CupydriveError, match="Did you mean 'cartpole'"):
        gallery(["cartpol"], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RenderError, match="cannot be written"):
        gallery(["cartpole"], tmp_path / "file")
    entries = (HERE / "gallery.json").read_text()
    for damaged in (
        "{",
        "[]",
        entries.replace('"steps"', '"stops"'),
        entries.replace('"kind": "random"', '"kind": "odd"'),
    ):
        (tmp_path / "gallery.json").write_text(damaged)
        with pytest.raises(RenderError, match="damaged"):
            read_entries(tmp_path)


def test_the_committed_gallery_is_small_and_its_pages_are_those_of_its_results():
    entries = read_entries(HERE)
    assert sum(p.stat().st_size for p in HERE.rglob("*") if p.is_file()) < 2e6 * len(entries)
    assert (HERE / "index.html").read_text() == page(entries)
    assert (HERE / "README.md").read_text() == readme(entries)
    assert all((HERE / name).is_file() for name in links(page(entries)) | links(readme(entries)))
    assert {name for name in cd.names() if cd.envs.get(name).draw is not None} <= set(entries)


FENCE = re.compile(r"^(`{3,})\n.*?\n\1$", re.M | re.S)
MARKS = (
    "| a `b` *c* _d_ __e__ [f](javascript:g) <script>h</script> ![i](j) &amp; ~~k~~ $l$ \\| \n\n# m\n- n\n\n```\no | p"
)


def test_summaries_and_names_are_text_in_page_and_readme():
    """Whatever an environment calls itself, its mark-up is shown, not followed."""
    name, entry = next(iter(read_entries(HERE).items()))
    plain = {name: entry}
    odd = {**entry, "summary": MARKS, "changed": {MARKS: MARKS}, "device": MARKS, "date": MARKS}
    odd["clips"] = [
        {**clip, "players": {MARKS: MARKS}, "means": {MARKS: [0, 0]}, "command": MARKS} for clip in entry["clips"]
    ]
    odd["training"] = {**entry["training"], "command": MARKS}
    for marked in ({name: odd}, {MARKS: odd}):
        html = page(marked)
        assert "<script>h" not in html.replace(page(plain), "") and "&lt;script&gt;h" in html
        text = readme(marked)
        outside = FENCE.sub("", text)
        bare = re.sub(r"\\.|`index.html`|`make gallery`", "", outside)  # what a backslash precedes is text
        assert not re.search(r"[`*<>&~$]|(?<![^\W_])_|_(?![^\W_])", bare)
        assert links(bare) == links(readme(plain))
        # A line or a table's cell more or less would be one that the text began.
        assert [line.count("|") for line in bare.splitlines()] == [
            line.count("|") for line in readme(plain).replace(FENCE.search(readme(plain))[0], "").splitlines()
        ]
        assert sum(line.startswith(("#", "-", "+")) for line in outside.splitlines()) == 2


def lengths(clip):
    """Return the steps of the episodes of each recording that a clip shows, by file name."""
    if "beside" not in clip:
        return {clip["recording"]: clip["steps"]}
    return {name: [steps] for name, steps in zip((clip["recording"], *clip["beside"]), clip["steps"], strict=True)}


# Of each environment without tables `make test` has one recording, and of one with them.
BRIEFLY = {"catalysis-trained.npz", *(p.name for p in HERE.glob("*-mosaic.npz"))}


@pytest.mark.optimised
@pytest.mark.parametrize(
    "name",
    [p.name if p.name in BRIEFLY else pytest.param(p.name, marks=pytest.mark.slow) for p in sorted(HERE.glob("*.npz"))],
)
def test_a_committed_recording_gives_the_same_bits_here(name, monkeypatch):
    """They were made on a GPU; the last states are compared by their checksum."""
    monkeypatch.setattr(cd.envs, "get", getattr(cd.envs.get, "of_package", cd.envs.get))  # with the data of others
    try:
        recording = Recording.load(HERE / name)
    except MissingDataError as error:
        pytest.skip(str(error))
    known = [lengths(clip) for entry in read_entries(HERE).values() for clip in entry["clips"]]
    found = [steps[name] for steps in known if name in steps]
    *_, last = recording.moments()
    assert recording.checksum is not None and found and all(last.elapsed.tolist() == steps for steps in found)


# ---- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(browser):
    """Return a function that opens the committed page; afterwards nothing has gone wrong and no other host was asked."""
    wrong, contexts = [], []

    def open_page(width=1440, address=None, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        shown = contexts[-1].new_page()
        shown.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        here = ("file://", "data:") if address is None else (address, "data:")
        shown.on("request", lambda request: None if request.url.startswith(here) else wrong.append(request.url))
        shown.goto(f"{address or HERE.as_uri()}/index.html")
        return shown

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def plays(shown, number):
    """Wait until a video has played on; return nothing, or fail by the time limit."""
    shown.wait_for_function(
        "k => { const v = document.querySelectorAll('video')[k]; return v.currentTime > 0.1 && !v.paused && !v.error }",
        arg=number,
    )


@pytest.mark.notebook
@pytest.mark.parametrize("served", [False, True])
def test_every_video_plays_when_pointed_at_and_pauses_afterwards(opened, served):
    address = None
    if served:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
    shown = opened(address=address)
    stages = shown.locator(".stage")
    assert stages.count() == sum(len(entry["clips"]) for entry in read_entries(HERE).values())
    for k in range(stages.count()):
        stages.nth(k).hover()
        plays(shown, k)
        assert shown.evaluate("k => document.querySelectorAll('video')[k].videoWidth", k) > 300
    shown.mouse.move(0, 0)
    shown.wait_for_function("[...document.querySelectorAll('video')].every(v => v.paused)")
    if served:
        server.shutdown()
        server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the gallery and says nothing."""

    def __init__(self, *args):
        super().__init__(*args, directory=str(HERE))

    def log_message(self, *_):
        pass


@pytest.mark.notebook
def test_it_works_with_the_keyboard_alone_and_tells_what_the_buttons_do(opened):
    shown = opened()
    button, first = shown.locator(".stage button").first, next(iter(read_entries(HERE)))
    assert button.get_attribute("aria-label") == f"Play {first}: random"
    for _ in range(40):
        shown.keyboard.press("Tab")
        if button.evaluate("b => b === document.activeElement"):
            break
    shown.keyboard.press("Enter")
    plays(shown, 0)
    assert button.get_attribute("aria-label") == f"Pause {first}: random"
    shown.keyboard.press("Enter")
    shown.wait_for_function("document.querySelector('video').paused")


@pytest.mark.notebook
def test_nothing_moves_by_itself_for_who_asked_for_less_motion(opened):
    shown = opened(reduced_motion="reduce")
    shown.locator(".stage").first.hover(position={"x": 5, "y": 5})
    shown.locator(".stage").nth(1).hover(position={"x": 5, "y": 5})
    assert shown.evaluate("[...document.querySelectorAll('video')].every(v => v.paused && v.currentTime === 0)")
    shown.locator(".stage button").first.click()
    plays(shown, 0)


@pytest.mark.notebook
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_its_window(opened, width, scheme):
    axe = optional("axe_playwright_python.sync_playwright").Axe()
    shown = opened(width, color_scheme=scheme)
    violations = axe.run(shown).response["violations"]
    assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert json.loads(shown.evaluate("JSON.stringify([...document.images].map(i => i.alt.length > 5))"))
