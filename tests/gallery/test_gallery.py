"""The gallery: what it writes is there, can be drawn again, and says what its results say."""

import json
import math
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from redraw import learning_curves, redraw

import cupydrive as cd
from cupydrive.drawing.curves import RETURNS
from cupydrive.errors import MissingDataError, RenderError, SpecError
from cupydrive.gallery import build
from cupydrive.gallery.build import gallery, levels, planned, read_entries
from cupydrive.gallery.clips import all_alike, own_numbers
from cupydrive.gallery.curves import chart, read_curves, write_curves
from cupydrive.gallery.page import in_chapters, with_interval, write_pages
from cupydrive.playing.players import HeuristicPolicy
from cupydrive.playing.recording import Recording
from cupydrive.training.run import Run

HERE = Path(__file__).resolve().parents[2] / "gallery"
STEPS = 3_000  # of training: a player of more keeps its pole up for longer, and all of it is drawn
OPTIONS = {"device": "cpu", "steps": STEPS}


def links(text):
    """Return the files that a page or a README names."""
    found = re.findall(r'(?:src|poster|href)="([^"]+)"', text) + re.findall(r"\]\(([^)]+)\)", text)
    return {name for name in found if not name.startswith(("#", "data:"))}


def pages(folder, entries, curves=None):
    """Write the pages of some entries; return both as texts."""
    write_pages(folder, entries, curves or {})
    return [(folder / name).read_text() for name in ("index.html", "README.md")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "MOSAIC", 4)  # of 16, which take most of the time
        gallery(["cartpole"], folder / "out", runs=folder / "runs", **OPTIONS)
        gallery(["tag_grid"], folder / "out", runs=folder / "runs", **OPTIONS)
    return folder


# ---- what is written -----------------------------------------------------------------------------


@pytest.mark.full
def test_every_file_that_a_page_names_is_there(made):
    out = made / "out"
    names = links((out / "index.html").read_text()) | links((out / "README.md").read_text())
    assert names and all((out / name).stat().st_size > 500 for name in names), (
        "no page leads out of its folder"
    )
    kinds = {
        name: [clip["kind"] for clip in entry["clips"]] for name, entry in read_entries(out).items()
    }
    others = ["random", "heuristic", "trained", "mosaic"]
    assert kinds == {"cartpole": ["random", "trained", "mosaic"], "tag_grid": others}


@pytest.mark.full
def test_the_command_of_a_clip_draws_the_same_video(made, tmp_path, monkeypatch):
    from cupydrive.cli.main import main

    (tmp_path / "gallery").symlink_to(made / "out")
    monkeypatch.chdir(tmp_path)
    for entry in read_entries(Path("gallery")).values():
        clip = entry["clips"][1]  # a network's, and a heuristic's
        assert main(clip["command"].split()[1:]) == 0
        assert Path(clip["video"]).read_bytes() == (made / "out" / clip["video"]).read_bytes()


@pytest.mark.full
def test_a_gallery_is_drawn_again_from_what_it_keeps(made, monkeypatch, capsys):
    out = made / "out"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for path in (
        *out.glob("tag_grid*.mp4"),
        *out.glob("tag_grid*.gif"),
        out / "tag_grid-curve.svg",
    ):
        path.unlink()
    monkeypatch.setattr("cupydrive.gallery.build.evaluate", None)  # nothing is played
    redraw(["tag_grid"], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert capsys.readouterr().out.count("\n") == 4


@pytest.mark.full
def test_many_seeds_change_only_the_curve(made, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(made / "out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    learning_curves(["cartpole"], out, seeds=2, seed=7, **OPTIONS | {"steps": 60_000})
    changed = {path.name for path in out.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {"curves.json", "cartpole-curve.svg", "index.html", "README.md"}
    curve = read_curves(out)["cartpole"]
    assert curve["seeds"] == 2 and curve["env_steps"] >= 60_000
    first, other = curve["points"]["charts/episodic_return"]
    assert (
        first
        and first != other
        and "2 seeds, median and quartiles" in (out / "cartpole-curve.svg").read_text()
    )
    assert "<p>2 seeds of " in (out / "index.html").read_text()
    (out / "curves.json").write_text('{"cartpole": 2}')
    with pytest.raises(RenderError, match="damaged"):
        read_curves(out)


@pytest.mark.full
def test_clips_of_one_environment_show_one_start_and_tell_the_runs_results(made):
    clips = {clip["kind"]: clip for clip in read_entries(made / "out")["tag_grid"]["clips"]}
    assert len({clips[kind]["first_env"] for kind in ("random", "heuristic", "trained")}) == 1
    # the rival that learning had
    assert clips["random"]["players"] == {"tagger": "random", "runner": "heuristic"}
    found = Run.load(made / "runs" / "tag_grid").evaluate(1000)
    assert clips["trained"]["means"]["length"][0] == pytest.approx(
        found.mean("length")[0], abs=1e-4
    )
    found = cd.evaluate("tag_grid", episodes=1000, device="cpu", grid_length=20)
    returns, start = found.returns["tagger"], clips["heuristic"]["first_env"]
    own = {"return tagger": returns[start], "return runner": found.returns["runner"][start]}
    own |= {name: values[start] for name, values in found.metrics.items()}
    assert clips["heuristic"]["here"] == pytest.approx(
        {name: float(value) for name, value in own.items()}, abs=1e-4
    )
    assert (returns < returns[start]).sum() <= 500 >= (returns > returns[start]).sum()  # the median


@pytest.mark.full
def test_a_finished_run_is_not_trained_again(made, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt  # what would come after the training

    monkeypatch.setattr("cupydrive.experiments.train.train_alone", None)
    monkeypatch.setattr(build, "draw_clip", stop)
    with pytest.raises(KeyboardInterrupt):
        gallery(["cartpole"], made / "again", runs=made / "runs", **OPTIONS)


@pytest.mark.parametrize(("env", "alike"), [("catalysis", True), ("acrobot", False)])
def test_many_episodes_are_shown_unless_all_are_alike(env, alike):
    assert all_alike(cd.evaluate(env, episodes=3, device="cpu")) == alike


def test_wrong_input_is_named(tmp_path):
    with pytest.raises(cd.CupydriveError, match="Did you mean 'cartpole'"):
        gallery(["cartpol"], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RenderError, match="cannot be written"):
        gallery(["cartpole"], tmp_path / "file")
    for wrong in (redraw, learning_curves):
        with pytest.raises(RenderError, match="no entry 'pendulum'; it has none: make it first"):
            wrong(["pendulum"], tmp_path)
    for damaged in ("{", "[]", '{"cartpole": 2}'):
        (tmp_path / "gallery.json").write_text(damaged)
        with pytest.raises(RenderError, match="damaged"):
            read_entries(tmp_path)
    for key, value, words in (
        ("figures", {"speed": "m/s"}, "'speed'"),
        ("readable", "wide", "'readable'.*'wide'"),
    ):
        with pytest.raises(SpecError, match=words):
            replace(cd.envs.get("tag_grid"), display=cd.Display(showcase={key: value}))


def read_clip(folder, **changed):
    """Write a gallery of one clip, in which some entries are changed, and read it."""
    name, entry = next(iter(read_entries(HERE).items()))
    entry["clips"] = [entry["clips"][0] | changed]
    (folder / "gallery.json").write_text(json.dumps({name: entry}))
    return read_entries(folder)


def test_metrics_of_a_failed_training_are_kept_and_drawn(tmp_path):
    curves = read_curves(HERE)
    about = curves["cartpole"] | {
        "points": {RETURNS: [[[1, math.nan], [2, math.inf], [3, 4.0], [4, 5.0]]]}
    }
    write_curves(tmp_path, {"cartpole": about})
    assert repr(read_curves(tmp_path)["cartpole"]["points"]) == repr(about["points"])
    assert chart(about, {}).startswith(b"<?xml")
    entry = next(iter(read_clip(tmp_path, means={"length": [math.nan, 0.0]}).values()))
    assert math.isnan(entry["clips"][0]["means"]["length"][0])


# ---- what pages say ------------------------------------------------------------------------------


def test_texts_of_a_folder_stand_on_its_pages(tmp_path):
    name, entry = next(iter(read_entries(HERE).items()))
    before = pages(tmp_path, {name: entry})
    # nor a link to this repository
    assert not any("Speed" in page or "../" in page for page in before)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / f"{name}.toml").write_text('reading = "Less is more."')
    (tmp_path / "texts" / "charts.toml").write_text(
        '[[chart]]\nfile = "a.png"\ntitle = "A"\nwords = "B."\n[[chart]]\nfile = "none.png"\ntitle = "C"\nwords = "D"\n'
    )
    (tmp_path / "a.png").write_bytes(b"")
    for page in pages(tmp_path, {name: entry}):
        assert (
            f"{entry['summary']} Less is more." in unescape(page)
            and "a.png" in page
            and "none.png" not in page
        )


MARKS = "- a `b` *c* _d_ [f](javascript:g) <script>h</script> ![i](j) &amp; ~~k~~ $l$ \\| \n\n# m\n| o | p"


def test_names_and_summaries_are_text_on_both_pages(tmp_path):
    """Whatever an environment calls itself, its mark-up is shown, not followed."""
    entry = next(iter(read_entries(HERE).values()))
    clips = [
        {**clip, "players": {MARKS: MARKS}, "means": {MARKS: [0, 0]}, "title": MARKS}
        for clip in entry["clips"]
    ]
    odd = {**entry, "summary": MARKS, "changed": {MARKS: MARKS}, "device": MARKS, "clips": clips}
    odd |= {"figures": {MARKS: MARKS}, "table": [[MARKS, MARKS], [MARKS, MARKS]]}
    odd["training"] = entry["training"] | {
        "command": "a ` b\n```\n# c",
        "policies": {"cart": "````"},
    }
    page, readme = pages(tmp_path, {MARKS: odd})
    assert "<script>h" not in page and "&lt;script&gt;h" in page
    text = re.sub(
        r"\\.|`index.html`|`make gallery`|</?(details|summary)>|^(```+)(python)?\n.*?^\2$",
        "",
        readme,
        flags=re.S | re.M,
    )
    assert not re.search(r"[`*<>&~$]|(?<![^\W_])_|(?![^\W_])_", text)
    headings = [line for line in text.splitlines() if line.startswith(("#", "-", "+"))]
    assert len(headings) == 3  # title, chapter, name


@pytest.mark.parametrize(("mean", "half", "here", "text", "own"), [
    (1561283.2, 12345.0, 1929876.5, "1,561,283 ± 12,345", "1,929,876"),
    (785412.0, 0.0, 7.0, "785,412 ± 0", ""),
    (-1244.7, 23.1, None, "-1,245 ± 23", ""), (-77.394, 1.3567, -77.0, "-77.4 ± 1.4", "-77"),
    (89.341, 0.009, 89.4, "89.3410 ± 0.0090", "89.4"), (3.0, float("inf"), None, "3 ± inf", ""),
    (float("nan"), float("nan"), None, "nan ± nan", ""),
])  # fmt: skip
def test_means_are_written_as_far_as_they_are_known(mean, half, here, text, own):
    assert with_interval(mean, half, here) == (text, own)


# ---- curves --------------------------------------------------------------------------------------

RISING, FLAT = [[1, 0.0], [2, 50.0], [3, 100.0]], [[1, 200.0], [3, 200.0]]


@pytest.mark.parametrize(
    ("rival", "compared"), [("heuristic", ["heuristic"]), ("ppo", ["random", "heuristic"])]
)
def test_a_curve_is_compared_with_players_against_the_same_rivals(rival, compared):
    players = {
        "random": ("random", "random"),
        "heuristic": ("heuristic", "heuristic"),
        "trained": ("ppo", rival),
    }
    clips = [
        dict(kind=kind, players=dict(zip(("a", "b"), two, strict=True)), means={})
        for kind, two in players.items()
    ]
    assert list(levels(clips)) == compared


@pytest.mark.parametrize(("curve", "level", "drawn"), [
    (RISING, -399.0, True), (RISING, -401.0, False), (RISING, 499.0, True), (RISING, 501.0, False),
    (FLAT, -500.0, True),
    ([], 1.0, True),
])  # fmt: skip
def test_a_level_far_from_the_curve_is_left_out_and_does_not_squeeze_it(curve, level, drawn):
    about = {
        "seeds": 1,
        "num_envs": 8,
        "device": "here",
        "date": "2026-11-25",
        "points": {RETURNS: [curve]},
    }
    assert (b">random<" in chart(about, {"random": {RETURNS: level}})) is drawn


# ---- the committed gallery -----------------------------------------------------------------------


def test_the_committed_gallery_is_small_and_its_pages_are_those_of_its_results(monkeypatch):
    written = {}
    monkeypatch.setattr(
        "cupydrive.gallery.page.write_atomically", lambda path, text: written.update({path: text})
    )
    entries = read_entries(HERE)
    write_pages(HERE, entries, read_curves(HERE))
    assert len(written) == 2 and all(path.read_bytes() == text for path, text in written.items()), (
        "run: python gallery/redraw.py"
    )
    shown, told = (path.read_text() for path in written)
    assert sum(p.stat().st_size for p in HERE.rglob("*") if p.is_file()) < 2e6 * len(entries)
    assert all((HERE / name).is_file() for name in links(shown) | links(told))
    assert {"../README.md", "../docs/how/watch.md"} <= links(shown) & links(told)
    pictures = {path.name for pattern in ("*.png", "*.svg") for path in HERE.glob(pattern)}
    assert pictures <= links(shown) & links(told) and {
        path.name for path in HERE.glob("*.mp4")
    } <= links(shown)
    assert {name for name in cd.names() if cd.envs.get(name).display.draw is not None} <= set(
        entries
    )
    chapters = in_chapters(entries)
    assert list(chapters) == ["Many agents", "Sciences", "Memory", "Classics"]
    # with WarpDrive's three speeds side by side
    assert next(iter(chapters["Many agents"])) == "tag_published"
    assert sorted(name for found in chapters.values() for name in found) == sorted(entries)
    assert not re.search(r"\de[+-]\d", re.sub(r"<code>.*?</code>", "", shown, flags=re.S)), (
        "a power of ten"
    )
    for name, about in read_curves(HERE).items():
        assert about["points"] and all(map(all, about["points"].values())), name


def test_committed_clips_are_of_the_settings_that_are_suggested_now():
    """What a command of the page trains anew is what its clips show; the precision is the device's
    choice.
    """
    for name, entry in read_entries(HERE).items():
        if name not in cd.envs.names():
            continue
        spec = cd.envs.get(name)
        policies, params, goal, copies = planned(spec)
        said = {
            group: "heuristic" if isinstance(how, HeuristicPolicy) else str(how)
            for group, how in policies.items()
        }
        training = entry["training"]
        trained = {
            g: re.sub("precision='[a-z0-9]+'", "precision='auto'", how)
            for g, how in training["policies"].items()
        }
        assert trained == said and entry["changed"] == params, name
        remembers = any("core=GRU" in how for how in said.values())
        assert (entry["chapter"] == "Memory") == remembers, name
        assert training["num_envs"] == copies and 0 <= training["env_steps"] - goal < goal / 20, (
            name
        )
        assert all(
            entry.get(key) == spec.display.showcase.get(key) for key in ("figures", "readable")
        ), name


@pytest.mark.parametrize("name", ["cartpole", "mountain_car", "tag_continuous"])
def test_committed_clips_of_one_episode_tell_what_it_has(name):
    for clip in read_entries(HERE)[name]["clips"]:
        found = own_numbers(Recording.load(HERE / clip["recording"]), clip["means"])
        assert {key: clip[key] for key in ("here",) if key in clip} == found and bool(found) == (
            clip["episodes"] == 1
        )


def lengths(clip):
    """Return the steps of the episodes of each recording that a clip shows, by file name."""
    if "beside" not in clip:
        return {clip["recording"]: clip["steps"]}
    return {
        name: [steps]
        for name, steps in zip((clip["recording"], *clip["beside"]), clip["steps"], strict=True)
    }


# Of each environment without tables `make test` has one recording, and of one with them.
BRIEFLY = {"catalysis-trained.npz", *(p.name for p in HERE.glob("*-mosaic.npz"))}


@pytest.mark.full
@pytest.mark.optimised
@pytest.mark.parametrize(
    "name",
    [
        p.name if p.name in BRIEFLY else pytest.param(p.name, marks=pytest.mark.slow)
        for p in sorted(HERE.glob("*.npz"))
    ],
)
def test_a_committed_recording_gives_the_same_bits_here(name, monkeypatch):
    """They were made on a GPU; the last states are compared by their checksum."""
    # with the data of others
    monkeypatch.setattr(cd.envs, "get", getattr(cd.envs.get, "of_package", cd.envs.get))
    try:
        recording = Recording.load(HERE / name)
    except MissingDataError as error:
        pytest.skip(str(error))
    known = [lengths(clip) for entry in read_entries(HERE).values() for clip in entry["clips"]]
    found = [steps[name] for steps in known if name in steps]
    *_, last = recording.moments()
    assert (
        recording.checksum is not None
        and found
        and all(last.elapsed.tolist() == steps for steps in found)
    )
