"""Tag as published: figures of hand-made arenas, and the whole chain, from training to pictures, in
miniature.
"""

import json

import imageio.v3 as iio
import numpy as np
import pytest
import tag_figures
import tag_gallery
import tag_published
import torch
from side_by_side import BESIDE, SideBySide, pictures_beside

import cupydrive as cd
from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import GAP
from cupydrive.gallery.build import read_entries
from cupydrive.playing.recording import Recording
from cupydrive.training.run import Run

pytestmark = pytest.mark.full


# ---- figures -------------------------------------------------------------------------------------


def recorded(env, steps, **params):
    """Return the recording of an episode in which nobody does anything."""
    spec = cd.envs.get(env)
    made = spec.make_params(**params)
    action = {g.name: np.zeros((steps, 1, g.count, g.heads), np.uint8) for g in spec.groups(made)}
    return Recording(
        spec, made, 0, dict.fromkeys(action, "nobody"), np.array([steps], np.int32), action
    )


def test_an_episode_in_which_two_taggers_begin_beside_a_runner():
    places = dict(
        starting_location_x=(1, 1, 1, 13),
        starting_location_y=(1, 1.2, 1.1, 5),
        starting_directions=(0,) * 4,
    )
    sizes = dict(num_taggers=2, num_runners=2, num_other_agents_observed=3, max_episode_steps=3)
    found = tag_figures.follow(recorded("tag_continuous", 3, **sizes, **places))
    assert found["tags"] == 1
    assert found["steps"] == [0, 1, 2, 3] and found["curves"]["in_game"] == [1, 0.5, 0.5, 0.5]
    far = np.hypot(12, 3.8)
    # The episode is over after the third step.
    assert found["curves"]["to_tagger"] == pytest.approx(
        [(0.1 + far) / 2, far, far, None], abs=1e-4
    )


def test_on_a_grid_the_runner_is_caught_once_by_all_who_stand_on_its_cell():
    places = dict(starting_location_x=(3, 3, 5, 3), starting_location_y=(4, 4, 5, 4))
    found = tag_figures.follow(recorded("tag_grid", 1, num_taggers=3, grid_length=9, **places))
    assert found["tags"] == 1 and found["curves"]["in_game"] == [1]


# ---- the chain -----------------------------------------------------------------------------------

SMALL = dict(num_taggers=2, num_runners=3, num_other_agents_observed=3, max_episode_steps=12)
STEPS, NEVER = 16_384, 1e99


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder of two short runs of continuous Tag, trained and evaluated; the first was
    interrupted and resumed.
    """
    out = tmp_path_factory.mktemp("tag")
    for case, deadline in (("continuous-1.0", 0.0), ("continuous-2.0", NEVER)):
        folder = out / tag_published.label(case, 0, STEPS)
        how = dict(num_envs=32, device="cpu", hidden=(8,), **SMALL)
        run = tag_published.train(case, 0, STEPS, folder, deadline=deadline, **how)
        assert (run.step < STEPS) == (deadline == 0.0)
        tag_published.train(case, 0, STEPS, folder, device="cpu", resume=True)
        tag_published.evaluate(
            case, folder, out / "figures.json", episodes=8, device="cpu", **SMALL
        )
    return out


def test_a_run_that_was_interrupted_has_the_weights_of_one_that_was_not(runs, tmp_path):
    how = dict(num_envs=32, device="cpu", hidden=(8,), **SMALL)
    whole = tag_published.train("continuous-1.0", 0, STEPS, tmp_path / "whole", **how)
    resumed = Run.load(runs / tag_published.label("continuous-1.0", 0, STEPS))
    assert resumed.step == whole.step == STEPS
    ours, theirs = resumed.tensors(), whole.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if "metric_sums" not in name)


def test_figures_are_kept_cell_by_cell(runs):
    path, label = runs / "figures.json", tag_published.label("continuous-1.0", 0, STEPS)
    before = json.loads(path.read_text())
    cells = dict(before[label]["cells"])
    assert list(cells) == [
        "trained",
        "trained taggers",
        "trained runners",
        "heuristic",
        "random",
        "earlier",
    ]
    assert np.shape(cells["earlier"]["mean"]) == (4, 4) and before[label]["seconds"] > 0
    assert [part["to"] for part in before[label]["training"]][-1] == STEPS and len(
        before[label]["training"]
    ) == 2
    for cell in cells.values():
        assert {"command", "machine", "versions", "date", "episodes of means"} <= set(cell)
    del before[label]["cells"]["trained"]
    before[label]["cells"]["random"]["mean"] = {"tags": [12.5, 0.5]}
    path.write_text(json.dumps(before))
    tag_published.evaluate("continuous-1.0", runs / label, path, episodes=8, device="cpu", **SMALL)
    after = json.loads(path.read_text())[label]["cells"]
    assert after["random"]["mean"] == {"tags": [12.5, 0.5]} and after["trained"] == cells["trained"]


def test_committed_clips_say_which_steps_they_draw_and_how_many_their_taggers_tag():
    gallery = tag_gallery.Path(tag_gallery.__file__).parent
    for entry, tags in (("tag_published", True), ("tag_grid_published", False)):
        for clip in read_entries(gallery)[entry]["clips"]:
            recordings = [
                Recording.load(gallery / file)
                for file in (clip["recording"], *clip.get("beside", []))
            ]
            said = tag_gallery.drawn_steps_and_tags(clip, recordings, recordings[0].spec.name)
            assert said.items() <= clip.items() and ("every" in clip) == ("here" in clip) == tags
            assert tag_gallery.video(recordings, progress=False).every == clip.get("every", 1)


def test_pictures_are_made_of_recordings_and_figures(runs, tmp_path, monkeypatch):
    labels = [tag_published.label(f"continuous-{ratio}", 0, STEPS) for ratio in (1.0, 2.0)]
    where = [
        "--runs",
        str(runs),
        "--json",
        str(runs / "figures.json"),
        "--out",
        str(tmp_path / "gallery"),
    ]
    for asked in (["--continuous", *labels], ["--longer", labels[0]]):
        monkeypatch.setattr("sys.argv", ["tag_gallery.py", *where, *asked])
        tag_gallery.main()
    (entry,) = read_entries(tmp_path / "gallery").values()
    titles, *rows = entry["table"]
    assert len(titles) == 1 + len(labels) and [row[0] for row in rows] == [
        *tag_gallery.MATCHES.values()
    ]
    assert [clip["kind"] for clip in entry["clips"]] == ["trained", "general", "beside", "longer"]
    assert entry["clips"][-1]["players"]["runner"] == "trained together for 0 M env-steps"
    for clip in entry["clips"]:
        assert all(
            (tmp_path / "gallery" / clip[key]).stat().st_size > 500
            for key in ("video", "poster", "preview")
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", clip["command"].split()[1:])
        tag_gallery.main()
        again, shown = (
            iio.improps(folder / clip["video"]).shape for folder in (tmp_path, tmp_path / "gallery")
        )
        assert again == shown and list(shown[2:0:-1]) == clip["size"]


def test_side_by_side_stand_the_frames_of_each():
    recordings = [recorded("tag_grid", steps, num_taggers=1, grid_length=9) for steps in (2, 5)]
    both = SideBySide(
        recordings,
        ["one", "two"],
        size=(480, 320),
        fps=10,
        hold=0.2,
        title="me",
        progress=False,
        every=2,
    )
    frames = list(both.frames())
    assert len(frames) == len(both) == 6 and frames[0].shape == (320, 480, 3)
    shown, part = round(480 * BESIDE), (480 - GAP) // 2
    header = Canvas(480, 320, part_of=shown).header
    for recording, title, x in zip(recordings, ("one", "two"), (0, part + GAP), strict=True):
        cell = Canvas(part, (320 - header) // 2 * 2, part_of=shown)
        alone = [picture for _, picture in pictures_beside(cell, recording, title, "cpu", 2)]
        alone += [alone[-1]] * (len(frames) - len(alone))  # one that is over stays as it ended
        for frame, expected in zip(frames, alone, strict=True):
            assert (frame[-cell.height :, x : x + part] == expected).all()
    changed = (frames[0] != frames[1]).any(axis=-1)[:header]
    # the step; what colours mean stays
    assert changed[: header // 2].any() and not changed[header // 2 :].any()
