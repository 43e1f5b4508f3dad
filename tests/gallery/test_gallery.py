"""The gallery: what it writes is there, can be drawn again, and its page works in a browser."""

import re
import shutil
from pathlib import Path

import pytest

import cupydrive as cd
from cupydrive.errors import MissingDataError, RenderError
from cupydrive.gallery.build import (
    all_alike,
    gallery,
    learning_curves,
    levels,
    read_entries,
    redraw,
)
from cupydrive.gallery.curves import chart, read_curves, worth_a_panel
from cupydrive.gallery.page import CHAPTERS, charts_in, home_of, in_order, ordered, page, readme
from cupydrive.playing.recording import Recording
from cupydrive.terminal.curves import RETURNS
from cupydrive.training.run import Run

HERE = Path(__file__).resolve().parents[2] / "gallery"
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


@pytest.mark.full
def test_every_file_that_a_page_names_is_there(made):
    out = made / "out"
    names = links((out / "index.html").read_text())
    assert names and all((out / name).stat().st_size > 500 for name in names | links((out / "README.md").read_text()))
    kinds = {name: [clip["kind"] for clip in entry["clips"]] for name, entry in read_entries(out).items()}
    assert kinds == {
        "cartpole": ["random", "trained", "mosaic"],
        "tag_grid": ["random", "heuristic", "trained", "mosaic"],
    }


@pytest.mark.full
def test_the_command_of_a_clip_draws_the_same_video(made, tmp_path, monkeypatch):
    from cupydrive.cli.main import main

    (tmp_path / "gallery").symlink_to(made / "out")
    monkeypatch.chdir(tmp_path)
    for entry in read_entries("gallery").values():
        for clip in entry["clips"][1:2]:  # a network's, and a heuristic's
            assert main(clip["command"].split()[1:]) == 0
            assert Path(clip["video"]).read_bytes() == (made / "out" / clip["video"]).read_bytes()


@pytest.mark.full
def test_a_gallery_is_drawn_again_from_what_it_keeps(made, monkeypatch):
    out, lines = made / "out", []
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for path in (*out.glob("tag_grid*.mp4"), *out.glob("tag_grid*.gif"), out / "tag_grid-curve.svg"):
        path.unlink()
    monkeypatch.setattr("cupydrive.gallery.build.evaluate", None)  # nothing is played
    redraw(["tag_grid"], out, progress=lines.append)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before and len(lines) == 4
    with pytest.raises(RenderError, match="no entry 'pendulum' to draw again; it has cartpole, tag_grid"):
        redraw(["pendulum"], out)


@pytest.mark.full
def test_many_seeds_change_the_curve_alone(made, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(made / "out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    options = {"device": "cpu", "seed": 7, "steps": 60_000, "progress": lambda line: None}
    learning_curves(["cartpole"], out, seeds=2, **options)
    changed = {path.name for path in out.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {"curves.json", "cartpole-curve.svg", "gallery.json", "index.html", "README.md"}
    told, once = (read_entries(folder)["cartpole"] for folder in (out, made / "out"))
    assert told.pop("learning").startswith("2 seeds of ") and once.pop("learning").startswith("One seed of ")
    assert told == once
    curve = read_curves(out)["cartpole"]
    assert curve["seeds"] == 2 and curve["env_steps"] >= 60_000
    first, other = curve["points"]["charts/episodic_return"]
    assert first and first != other and "2 seeds, median and quartiles" in (out / "cartpole-curve.svg").read_text()
    with pytest.raises(RenderError, match="no entry 'pendulum'"):
        learning_curves(["pendulum"], out, seeds=2, **options)
    (out / "curves.json").write_text('{"cartpole": {"seeds": 2}}')
    with pytest.raises(RenderError, match="damaged"):
        read_curves(out)


@pytest.mark.full
def test_curve_and_clips_are_of_the_same_runs_where_seeds_are_asked_for(made, tmp_path, monkeypatch):
    """The clips' run is the one that it would be alone: what is drawn of it are the same bytes."""
    options = {"device": "cpu", "steps": STEPS, "progress": lambda line: None}
    monkeypatch.setattr("cupydrive.gallery.build.MOSAIC", 4)
    gallery(["cartpole"], tmp_path, seeds=2, runs=tmp_path / "runs", **options)
    once, told = (read_entries(folder)["cartpole"] for folder in (made / "out", tmp_path))
    for clip in told["clips"]:
        assert all(
            (tmp_path / clip[key]).read_bytes() == (made / "out" / clip[key]).read_bytes()
            for key in ("video", "preview")
        )
    assert told["clips"] == once["clips"] and told["learning"].startswith("2 seeds of ")
    assert told["training"] == once["training"] | {"command": "cupydrive gallery cartpole --seeds 2 --clips"}
    assert read_curves(tmp_path)["cartpole"]["seeds"] == 2 and not (tmp_path / "runs").exists()


@pytest.mark.full
def test_clips_of_one_environment_show_one_start_and_tell_the_runs_results(made):
    entry = read_entries(made / "out")["tag_grid"]
    clips = {clip["kind"]: clip for clip in entry["clips"]}
    assert len({clips[kind]["first_env"] for kind in ("random", "heuristic", "trained")}) == 1
    assert clips["random"]["players"] == {"tagger": "random", "runner": "heuristic"}  # the rival that learning had
    assert entry["reading"] == cd.envs.get("tag_grid").showcase["reading"]
    run = Run.load(made / "runs" / "tag_grid")
    found = run.evaluate(1000)
    assert clips["trained"]["means"]["length"][0] == pytest.approx(found.mean("length")[0], abs=1e-4)
    found = cd.evaluate("tag_grid", episodes=1000, device="cpu", grid_length=20)
    returns, start = found.returns["tagger"], clips["heuristic"]["first_env"]
    chosen = returns[start]
    own = {"return tagger": chosen, "return runner": found.returns["runner"][start]}
    own |= {name: values[start] for name, values in found.metrics.items()}
    assert clips["heuristic"]["here"] == pytest.approx({name: float(value) for name, value in own.items()}, abs=1e-4)
    assert (returns < chosen).sum() <= 500 and (returns > chosen).sum() <= 500  # the median


@pytest.mark.full
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
    shown, told = (HERE / "index.html").read_text(), (HERE / "README.md").read_text()
    assert shown == page(entries, charts_in(HERE), home_of(HERE))
    assert told == readme(entries, charts_in(HERE), home_of(HERE))
    assert all((HERE / name).is_file() for name in links(shown) | links(told))
    assert {name for name in cd.names() if cd.envs.get(name).draw is not None} <= set(entries)
    pictures = {path.name for pattern in ("*.png", "*.svg") for path in HERE.glob(pattern)}
    assert pictures <= links(shown) and pictures <= links(told), "a chart that nobody is shown"
    films = {path.name for path in HERE.glob("*.mp4")}
    assert films <= links(shown), "a clip that nobody is shown"


def test_the_committed_pages_lead_to_the_project_and_those_elsewhere_to_no_file_that_is_not_there(tmp_path):
    entries = read_entries(HERE)
    shown, told = page(entries, home=home_of(HERE)), readme(entries, home=home_of(HERE))
    for found in (set(re.findall(r'href="([^"#:]+)"', shown)), {name for name in links(told) if name.endswith(".md")}):
        assert {"../README.md", "../docs/how/watch.md"} <= found and all((HERE / name).is_file() for name in found)
    assert home_of(tmp_path / "gallery") is None
    assert "../" not in page(entries) and "../" not in readme(entries)


def test_tag_comes_first_then_the_sciences_then_classics():
    entries = read_entries(HERE)
    chapters = ordered(entries)
    assert list(chapters) == list(CHAPTERS) == ["Many agents", "Sciences", "Classics"]
    assert next(iter(chapters["Many agents"])) == "tag_published"  # with WarpDrive's three speeds side by side
    assert all(name.startswith("tag_") for name in chapters["Many agents"])
    assert sorted(name for found in chapters.values() for name in found) == sorted(entries)
    for text, mark in ((page(entries), 'id="{}"'), (readme(entries), "\n### {}\n")):
        places = [text.index(mark.format(name)) for found in chapters.values() for name in found]
        assert places == sorted(places)
    assert in_order(entries["tag_published"]["clips"])[0]["kind"] == "beside"


RISING, FLAT = [[1, 0.0], [2, 50.0], [3, 100.0]], [[1, 200.0], [3, 200.0]]


@pytest.mark.parametrize(("rival", "compared"), [("heuristic", ["heuristic"]), ("ppo", ["random", "heuristic"])])
def test_a_curve_is_compared_with_who_plays_against_the_same_rivals(rival, compared):
    players = {"random": ("random", "random"), "heuristic": ("heuristic", "heuristic"), "trained": ("ppo", rival)}
    clips = [
        dict(kind=kind, players=dict(zip(("a", "b"), two, strict=True)), means={}) for kind, two in players.items()
    ]
    assert list(levels(clips)) == compared


@pytest.mark.parametrize(("points", "means", "panels"), [
    ({"return": [RISING], "length": [FLAT]}, {}, ["return"]),  # a constant
    ({"return": [RISING], "length": [FLAT]}, {"random": {"length": 50.0}}, ["return", "length"]),  # but not for everybody
    ({"return": [RISING], "length": [[[1, -1.0], [3, -101.0]]]}, {}, ["return"]),  # says the same
    ({"return": [FLAT, RISING], "length": [RISING, FLAT]}, {}, ["return", "length"]),
])  # fmt: skip
def test_a_panel_shows_something_that_changes(points, means, panels):
    assert worth_a_panel(points, means) == panels


@pytest.mark.parametrize(("curve", "level", "told"), [
    (RISING, -399.0, False), (RISING, -401.0, True), (RISING, 499.0, False), (RISING, 501.0, True), (FLAT, -500.0, False),
    ([], 1.0, False),
])  # fmt: skip
def test_a_level_far_from_the_curve_is_told_and_does_not_squeeze_it(curve, level, told):
    about = {"seeds": 1, "num_envs": 8, "device": "here", "date": "2026-11-25", "points": {RETURNS: [curve]}}
    assert (b"not drawn" in chart(about, {"random": {RETURNS: level}})) is told


def test_committed_curves_have_no_empty_and_no_constant_panel():
    for name, about in read_curves(HERE).items():
        assert worth_a_panel(about["points"], {}), name
        assert all(len(seeds) == about["seeds"] and all(seeds) for seeds in about["points"].values()), name


FENCE = re.compile(r"^(`{3,})(?:python)?\n.*?\n\1$", re.M | re.S)
MARKS = (
    "| a `b` *c* _d_ __e__ [f](javascript:g) <script>h</script> ![i](j) &amp; ~~k~~ $l$ \\| \n\n# m\n- n\n\n```\no | p"
)


def test_summaries_and_names_are_text_in_page_and_readme():
    """Whatever an environment calls itself, its mark-up is shown, not followed."""
    name, entry = next(iter(read_entries(HERE).items()))
    plain = {name: entry}
    odd = {**entry, "summary": MARKS, "changed": {MARKS: MARKS}, "device": MARKS, "date": MARKS}
    odd["clips"] = [
        {**clip, "players": {MARKS: MARKS}, "means": {MARKS: [0, 0]}, "command": MARKS, "title": MARKS}
        for clip in entry["clips"]
    ]
    odd["figures"] = {MARKS: MARKS}
    odd["training"] = {**entry["training"], "command": MARKS}
    odd["table"] = [[MARKS, MARKS], [MARKS, MARKS]]
    clips = [{**clip, "means": {"a": [0, 0]}} for clip in entry["clips"]]
    plain[name] = {**entry, "table": [["a", "b"], ["c", "d"]], "clips": clips, "changed": {"a": 1}}
    for marked in ({name: odd}, {MARKS: odd}):
        html = page(marked)
        assert "<script>h" not in html.replace(page(plain), "") and "&lt;script&gt;h" in html
        text = readme(marked)
        outside = FENCE.sub("", text)
        bare = re.sub(
            r"\\.|`index.html`|`make gallery`|</?(details|summary)>", "", outside
        )  # what a backslash precedes is text
        assert not re.search(r"[`*<>&~$]|(?<![^\W_])_|_(?![^\W_])", bare)
        assert links(bare) == links(readme(plain))
        # A line or a table's cell more or less would be one that the text began.
        assert [line.count("|") for line in bare.splitlines()] == [
            line.count("|") for line in FENCE.sub("", readme(plain)).splitlines()
        ]
        headings = sum(line.startswith(("#", "-", "+")) for line in outside.splitlines())
        assert headings == 3  # title, chapter, name


def lengths(clip):
    """Return the steps of the episodes of each recording that a clip shows, by file name."""
    if "beside" not in clip:
        return {clip["recording"]: clip["steps"]}
    return {name: [steps] for name, steps in zip((clip["recording"], *clip["beside"]), clip["steps"], strict=True)}


# Of each environment without tables `make test` has one recording, and of one with them.
BRIEFLY = {"catalysis-trained.npz", *(p.name for p in HERE.glob("*-mosaic.npz"))}


@pytest.mark.full
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
