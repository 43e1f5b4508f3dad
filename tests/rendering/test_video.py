"""Videos: what was written is decoded again, and shows the states that it should."""

import base64
import io
import os
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import point
import pytest
from PIL import Image, ImageSequence

import cupydrive as cd
from cupydrive import envs
from cupydrive.drawing.canvas import Canvas
from cupydrive.errors import ParameterError, RenderError, SpecError
from cupydrive.rendering.video import animation

CHASE = {"num_taggers": 3, "grid_length": 10}
ORANGE, BLUE, GREY = (
    tuple(bytes.fromhex(color[1:])) for color in (Canvas.ORANGE, Canvas.BLUE, Canvas.GRAY)
)


def near(picture, color, center, about):
    """Return the centre of the pixels of nearly this colour within ``about`` pixels of a point."""
    rows, columns = np.nonzero(abs(picture.astype(int) - color).max(axis=-1) < 60)
    close = (abs(columns + 0.5 - center[0]) < about) & (abs(rows + 0.5 - center[1]) < about)
    assert close.any(), "nothing of this colour is there"
    return columns[close].mean() + 0.5, rows[close].mean() + 0.5


def decoded(path):
    """Return all frames of a file, by another reader than the one that wrote it where there
    is one.
    """
    import imageio.v3 as iio
    from PIL import Image, ImageSequence

    if path.suffix == ".mp4":
        return iio.imread(path, plugin="pyav")
    with Image.open(path) as image:
        return np.stack([np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)])


@pytest.mark.quick(2)
@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".webp"])
def test_a_file_shows_every_step_at_the_size_asked_for(suffix, tmp_path):
    video = cd.render(
        "tag_grid", tmp_path / f"tag{suffix}", size=(320, 240), device="cpu", hold=0.5, **CHASE
    )
    got = decoded(tmp_path / f"tag{suffix}")
    recording = video.recording
    assert got.shape[1:] == (240, 320, 3)
    if suffix == ".mp4":  # animated pictures hold equal frames as one longer one
        assert len(got) == len(video) == recording.steps + 1 + 4
    want = list(video.frames())
    assert (
        abs(got[0].astype(int) - want[0]).mean() < 3
        and abs(got[-1].astype(int) - want[-1]).mean() < 3
    )
    moving = [(abs(a.astype(int) - b) > 40).sum() for a, b in pairwise(got[:11])]
    assert min(moving) > 0


def test_first_and_last_frame_show_agents_where_the_state_says(tmp_path):
    video = cd.render(
        "tag_grid", tmp_path / "tag.mp4", size=(640, 480), device="cpu", hold=0.0, **CHASE
    )
    got = decoded(tmp_path / "tag.mp4")
    moments = list(video.recording.moments())
    assert len(got) == len(moments)
    spec, params = video.recording.spec, video.recording.params
    canvas = Canvas(640, 480)
    for picture, moment, color in ((got[0], moments[0], BLUE), (got[-1], moments[-1], GREY)):
        spec.display.draw(canvas, params, moment.states, 0)  # sets the view
        cell = canvas.to_pixel((1, 0))[0] - canvas.to_pixel((0, 0))[0]
        state = moment.states[0]
        runner = canvas.to_pixel((state["x"][-1], state["y"][-1]))
        assert near(picture, color, runner, 0.3 * cell) == pytest.approx(runner, abs=2)
        for x, y in zip(state["x"][:-1], state["y"][:-1], strict=True):
            # the runner lies on top of who has caught it
            if (x, y) != (state["x"][-1], state["y"][-1]):
                tagger = canvas.to_pixel((x, y))
                assert near(picture, ORANGE, tagger, 0.5 * cell) == pytest.approx(tagger, abs=2)
    assert moments[-1].over.all()


@pytest.mark.quick(2)
@pytest.mark.parametrize("trail", [0, 3, 1000])
@pytest.mark.parametrize("episodes", [1, 2])
def test_a_drawing_is_given_as_many_earlier_states_as_it_asks_for(trail, episodes):
    given = []
    display = cd.Display(
        lambda canvas, p, states, elapsed: given.append((len(states), elapsed)), trail=trail
    )
    spec = replace(envs.get("tag_grid"), display=display)
    video = cd.render(
        spec,
        device="cpu",
        size=(320, 240),
        episodes=episodes,
        hold=0.0,
        max_episode_steps=6,
        **CHASE,
    )
    list(video.frames())
    assert given and all(count == min(elapsed, trail) + 1 for count, elapsed in given)
    assert {elapsed for _, elapsed in given} == set(range(video.recording.steps + 1))


def test_the_header_tells_step_score_and_who_plays():
    video = cd.render("cartpole", device="cpu", size=(600, 300))
    one, other = (
        next(iter(cd.Video(video.recording, (600, 300), title=t).frames())) for t in ("me", "you")
    )
    changed = (one != other).any(axis=-1)
    header = Canvas(600, 300).header
    assert (
        changed[:header, 450:].any() and not changed[header:].any() and not changed[:, :450].any()
    )
    assert video.recording.players == {"cart": "random"}
    assert "heuristic" in repr(cd.render("tag_grid", device="cpu", **CHASE))


def test_a_mosaic_tells_above_its_pictures_which_step_it_shows():
    video = cd.render("cartpole", device="cpu", episodes=4, size=(600, 300))
    first, *_, last = video.frames()
    header = Canvas(600, 300).header
    stage, between = (tuple(bytes.fromhex(color[1:])) for color in (Canvas.STAGE, Canvas.GRID))
    for picture in (first, last):
        assert (picture[:header, :300] > 0x80).any()  # letters
        assert (picture[:header, 0] == stage).all() and (picture[header:, 0] == between).all()
    assert (first != last)[:header, :300].any()  # the number of the step, and how many are over


def test_a_mosaic_shows_each_episode_in_its_place():
    video = cd.render("tag_grid", episodes=5, device="cpu", size=(640, 480), **CHASE)
    shown = list(video.frames())
    length = video.recording.length
    assert len(shown) == length.max() + 1 + video.held
    cells = {(e % 3, e // 3): e for e in range(5)}
    for t in range(1, int(length.max()) + 1):
        changed = (shown[t] != shown[t - 1]).any(axis=-1)
        for (column, row), e in cells.items():
            part = changed[
                66 + row * 207 : 60 + (row + 1) * 207, column * 213 + 8 : (column + 1) * 213 - 8
            ]
            assert part.any() == (t <= length[e]), f"episode {e}, step {t} of {length[e]}"


def test_one_seed_gives_one_video_and_a_recording_gives_it_again():
    options = {"episodes": 2, "device": "cpu", "size": (320, 240), **CHASE}
    first = cd.render("tag_grid", **options)
    again = cd.render("tag_grid", **options)
    from_recording = cd.render(first.recording, size=(320, 240))
    from_evaluation = cd.render(
        cd.evaluate("tag_grid", episodes=2, device="cpu", **CHASE), size=(320, 240)
    )
    other = cd.render("tag_grid", seed=1, **options)
    for video in (again, from_recording, from_evaluation):
        assert all((a == b).all() for a, b in zip(first.frames(), video.frames(), strict=True))
    assert other.recording.action["tagger"].tobytes() != first.recording.action["tagger"].tobytes()


def test_a_notebook_plays_it_and_draws_it_once(monkeypatch):
    video = cd.render("cartpole", device="cpu", size=(320, 160))
    shown = video._repr_html_()
    monkeypatch.setattr(video, "frames", None)
    assert video._repr_html_() == shown
    assert re.search(
        r'<video [^>]*width="160"[^>]*src="data:video/mp4;base64,[\w+/=]+"></video></div>$', shown
    )


def test_a_host_that_takes_videos_and_styles_away_shows_a_frame_in_which_something_has_happened():
    video = cd.render("tag_grid", device="cpu", size=(320, 240), **CHASE)
    still, size = video._repr_png_()
    picture = Image.open(io.BytesIO(still))
    assert (
        picture.format == "PNG"
        and picture.size == (320, 240)
        and size == {"width": 160, "height": 120}
    )
    late = list(video.frames())[round(0.9 * (video.drawn - 1))].astype(int)  # as tag_grid says
    assert abs(np.asarray(picture.convert("RGB")) - late).mean() < 1.0  # 256 colours
    left = re.sub(r' style="[^"]*"|<video.*?</video>', "", video._repr_html_())
    data = re.fullmatch(
        r'<div><img alt="A frame of [^"]*" width="160" src="data:image/png;base64,(.*)"></div>',
        left,
    )
    assert base64.b64decode(data[1]) == still


def test_a_still_is_the_middle_unless_the_environment_says_otherwise():
    at = {
        name: cd.render(name, device="cpu", size=(64, 64), progress=False)
        for name in ("tag_continuous", "acrobot")
    }
    assert at["tag_continuous"].telling == round((at["tag_continuous"].drawn - 1) / 2)
    assert at["acrobot"].telling == at["acrobot"].drawn - 1
    many = cd.render("acrobot", device="cpu", size=(128, 128), progress=False, episodes=4)
    assert many.telling == round((many.drawn - 1) / 2)  # at their end all are over, and dim
    with pytest.raises(SpecError, match=r"showcase\['still'\] = 2"):
        cd.Display(showcase={"still": 2})


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", envs.names())
@pytest.mark.parametrize("episodes", [1, 4])
def test_every_environment_renders(name, episodes):
    spec = envs.get(name)
    if spec.display.draw is None:
        pytest.skip(f"{name} draws nothing")
    video = cd.render(name, episodes=episodes, device="cpu", max_episode_steps=6, policies="random")
    shown = list(video.frames())
    assert len(shown) == len(video) and all(frame.shape == shown[0].shape for frame in shown)
    assert (shown[0] != shown[-1]).any()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"path": "out.avi"}, RenderError, r"got suffix '\.avi', expected \.mp4, \.gif, \.webp"),
        ({"path": "nowhere/out.mp4"}, ParameterError, "does not exist"),
        ({"path": "out.gif", "fps": 60}, RenderError, "fps = 60: .* at most 50 .* Pass fps=50"),
        (
            {"size": (321, 240)},
            ParameterError,
            r"size = \(321, .* expected even numbers, such as \(320",
        ),
        (
            {"episodes": 65},
            ParameterError,
            "episodes = 65: input should be less than or equal to 64",
        ),
        ({"episodes": 64, "size": (64, 64)}, ParameterError, "do not fit into 64 x 64 pixels"),
        ({"policies": "heuristics"}, ParameterError, r"Did you mean 'heuristic'\?"),
        (
            {"policies": {"taggers": cd.RandomPolicy()}},
            ParameterError,
            "a group in policies = 'taggers'",
        ),
        ({"num_tagers": 3}, ParameterError, "Did you mean 'num_taggers'"),
    ],
)
def test_wrong_input_is_named(options, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        list(cd.render("tag_grid", device="cpu", **options).frames())
    assert not list(tmp_path.iterdir())


def test_an_environment_without_drawing_says_so_before_it_plays(monkeypatch):
    cd.register(point.PYTHON, point.KERNEL)
    monkeypatch.setattr("cupydrive.rendering.video.play_episodes", None)
    with pytest.raises(RenderError, match=r"point has no drawing\. Pass display=Display"):
        cd.render("point", device="cpu")


def test_a_copy_of_a_vector_env_is_played_and_it_stays_as_it_is():
    env = cd.make("tag_grid", num_envs=3, device="cpu", **CHASE)
    env.reset(seed=1)
    before = env.batch.get_state()["state"].tobytes()
    video = cd.render(env, seed=5)
    assert (
        video.recording.params == env.params and env.batch.get_state()["state"].tobytes() == before
    )


def test_the_number_of_cores_shows_in_no_byte():
    cores = os.sched_getaffinity(0)
    if len(cores) == 1:
        pytest.skip("one core here: there is nothing to compare with")
    recording = cd.render("cartpole", device="cpu").recording
    many = cd.Video(recording, (320, 240)).mp4()
    os.sched_setaffinity(0, {min(cores)})
    try:
        one = cd.Video(recording, (320, 240)).mp4()
    finally:
        os.sched_setaffinity(0, cores)
    assert one == many


@pytest.mark.quick(2)
@pytest.mark.parametrize("fps", [8, 15, 30, 50])
@pytest.mark.parametrize("equal", [False, True])
def test_a_gif_lasts_as_long_as_its_frames(fps, equal):
    film = np.zeros((31, 8, 8, 3), np.uint8)
    film[:: 31 if equal else 2] = 255  # the last 30 frames are equal, or neighbors differ
    with Image.open(io.BytesIO(animation(film, fps, ".gif"))) as image:
        held = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]
    assert sum(held) == pytest.approx(31_000 / fps, abs=5)
    assert equal or max(abs(np.array(held) - 1000 / fps)) < 10


def test_a_gif_keeps_colours_that_come_after_its_first_frame(tmp_path):
    """A line of two pixels, too; and of few colours that are used no table grows."""

    def draw(canvas, p, states, elapsed):
        canvas.view(-1, 1, -1, top=1)
        canvas.circle((0, 0), 0.8, canvas.ORANGE if elapsed < 3 else canvas.BLUE)
        if elapsed == 2:
            canvas.line([(-1, 0.9), (1, 0.9)], 0.01, "#ff00ff")

    spec = replace(envs._load(point.PYTHON).spec, kernel=point.KERNEL, display=cd.Display(draw))
    cd.render(
        spec, tmp_path / "late.gif", "random", device="cpu", progress=False, max_episode_steps=5
    )
    frames = decoded(tmp_path / "late.gif")
    height, width = frames.shape[1:3]
    for frame, color in ((0, ORANGE), (2, ORANGE), (3, BLUE), (5, BLUE)):
        near(frames[frame], color, (width / 2, height * 0.6), 5)
    magenta = [
        int((abs(frame.astype(int) - (255, 0, 255)).max(axis=-1) < 60).sum()) for frame in frames
    ]
    assert magenta[2] > width / 4 and sum(magenta) == magenta[2]


def test_colours_that_come_late_replace_those_used_least_where_all_are_used():
    frames = np.zeros((8, 64, 64, 3), np.uint8)
    frames[..., 0], frames[..., 1] = np.arange(64) * 4, np.arange(64)[:, None] * 4
    late = [(255, 0, 255), (0, 255, 255), (255, 255, 255), (0, 0, 255)]
    for k, color in enumerate(late):
        frames[4 + k :, 8 * k : 8 * k + 8, :8] = color
    noisy, plain = frames.copy(), np.zeros_like(frames)
    for k in range(300):  # more colours than a table holds
        noisy[4:, k // 20 * 4 : k // 20 * 4 + 4, k % 16 * 4 : k % 16 * 4 + 4] = (
            k % 7 * 40,
            k % 11 * 25,
            k % 256,
        )
    plain[4:, :32] = (255, 0, 255)
    for film in (noisy, plain, frames):
        with Image.open(io.BytesIO(animation(iter(film), 10, ".gif"))) as image:
            image.seek(image.n_frames - 1)
            last = np.asarray(image.convert("RGB")).astype(int)
    for k, color in enumerate(late):
        assert abs(last[8 * k : 8 * k + 8, :8] - color).max() < 30
