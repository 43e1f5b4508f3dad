"""The viewer: a picture, the agents and the state of each step, and a slider."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import cupydrive as cd
from cupydrive import envs
from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import frames
from cupydrive.errors import ParameterError
from cupydrive.rendering.viewer import HINT, STILL, moment_text

CHASE = {"num_taggers": 2, "grid_length": 6}


def small(**options):
    """Return a viewer of four small games of Tag."""
    return cd.view("tag_grid", device="cpu", size=(200, 160), **{"steps": 10, **CHASE, **options})


def data_of(page):
    """Return what a page's script is given."""
    return json.loads(
        re.search(r'\("view-\w+", (\{.*\})\);</script>', page)[1].replace("<\\/", "</")
    )


def test_the_viewer_has_a_picture_and_the_state_of_every_step():
    env = cd.make("tag_grid", num_envs=2, device="cpu", **CHASE)
    env.reset(seed=4)
    shown = env.view(steps=10, size=(200, 160))._repr_html_()
    data = data_of(shown)
    assert len(data["pictures"]) == len(data["words"]) == 11 and len(set(data["pictures"])) > 5
    assert all(picture.startswith("data:image/webp;base64,") for picture in data["pictures"])
    assert re.match(r"environment 0, step 3\ntagger action +\[\d \d\]\n", data["words"][3])
    assert 'max="10"' in shown and "http" not in shown
    with pytest.raises(ParameterError, match="env = 4 is out of range, expected 0 to 3"):
        env.view(env=4)
    for episodes in (0, 65):
        with pytest.raises(
            ParameterError,
            match=f"^view: episodes = {episodes} is out of range, expected 1 to 64",
        ):
            small(episodes=episodes)
    with pytest.raises(ParameterError, match="steps = 0"):
        env.view(steps=0)


def test_words_are_actions_rewards_returns_and_the_state():
    viewer = small(episodes=3, env=1, steps=400, policies="random")
    recording, texts = viewer.video.recording, viewer.words()
    length, sums = int(recording.length[1]), np.zeros(2, np.float32)
    moments = list(recording.moments())

    def rows(text):
        """Return the lines of a text as numbers by name."""
        lines = (
            re.fullmatch(r"(\w+(?: \w+)?) +(\[.*\]|\S+)", line).groups()
            for line in text.splitlines()[1:]
        )
        return {name: [float(x) for x in values.strip("[]").split()] for name, values in lines}

    # nothing has been done yet
    assert set(rows(texts[0])) == {"tagger return", "runner return", "x", "y"}
    for t, text in enumerate(texts[1 : length + 1]):
        found, state = rows(text), moments[t + 1].states[1]
        assert found["tagger action"] == recording.action["tagger"][t, 1, :, 0].tolist()
        assert found["runner action"] == recording.action["runner"][t, 1, :, 0].tolist()
        sums += np.array(found["tagger reward"], np.float32)
        np.testing.assert_allclose(found["tagger return"], sums, atol=1e-3)
        assert (found["x"], found["y"]) == (state["x"].tolist(), state["y"].tolist())
    np.testing.assert_allclose(sums, moments[-1].returns["tagger"][1], rtol=1e-5)
    after = texts[-1]  # an episode that is over shows its last step from then on
    assert f"step {length}, over" in after and rows(after) == rows(texts[length])


@pytest.mark.full
def test_words_of_many_agents_are_short_and_say_who_is_present():
    sizes = {
        "num_taggers": 3,
        "num_runners": 30,
        "num_other_agents_observed": 4,
        "grid_length": 4.0,
    }
    recording = cd.evaluate("tag_continuous", episodes=1, seed=3, device="cpu", **sizes).recording
    groups = recording.spec.groups(recording.params)
    *_, last = recording.moments()
    text = moment_text(last, 0, groups)
    assert max(map(len, text.splitlines())) < 100 and re.search(
        r"runner present  \[ ?(True|False) .*\.\.\.", text
    )
    assert re.search(r"tagger action   \[\[\d+ +\d+\] \[\d+ +\d+\] \[\d+ +\d+\]\]\n", text)


def rgb(color):
    """Return red, green and blue of ``"#RRGGBB"``."""
    return np.array(tuple(bytes.fromhex(color[1:])))


@pytest.mark.parametrize("name", ["tag_grid", "tag_continuous"])
def test_names_stand_beside_their_agents_where_asked_for(name):
    spec = envs.get(name)
    params = spec.make_params(
        num_taggers=2, **({"num_runners": 3, "num_other_agents_observed": 2} if "c" in name else {})
    )
    states = spec.reference.sample_states(params, np.random.default_rng(3), 1)
    for axis in "xy":
        states[axis][:, 1] = params.grid_length // 2  # whose ring is whole

    def picture(**options):
        canvas = Canvas(600, 600, **options)
        spec.display.draw(canvas, params, states, 0)
        return canvas, canvas.frame().astype(int)

    canvas, plain = picture()
    named, mine = picture(labels=True)[1], picture(labels=True, played=("tagger", 1))[1]
    for x, y in zip(states["x"][0], states["y"][0], strict=True):
        x, y = map(int, canvas.to_pixel((x, y)))
        beside = slice(max(0, y - 24), y + 24), slice(max(0, x - 150), x + 150)
        assert (plain != named)[beside].any()
    mine, named = (
        (abs(shown - rgb(Canvas.YELLOW)).max(axis=-1) < 20).sum() for shown in (mine, named)
    )
    assert mine > 100 and not named  # whom a person plays stands out
    ring = (plain != picture(played=("tagger", 1))[1]).any(axis=-1)
    x, y = canvas.to_pixel((states["x"][0, 1], states["y"][0, 1]))
    rows, columns = np.nonzero(ring)
    assert rows.mean() + 0.5 == pytest.approx(y, abs=2) and columns.mean() + 0.5 == pytest.approx(
        x, abs=2
    )


def test_a_name_lies_within_the_picture():
    canvas = Canvas(200, 160, labels=True, header=20)
    canvas.view(0, 20, 0)
    for x, y in ((0, 0), (20, 0), (0, 16), (20, 16)):
        canvas.agents("tagger", [(x, y)])
    frame = canvas.frame()
    assert (frame[:20] == rgb(Canvas.STAGE)).all() and (frame[20:] != rgb(Canvas.STAGE)).any()
    light = (frame > 128).any(axis=-1)
    assert not light[:, 0].any() and not light[:, -1].any() and not light[-1].any()


@pytest.mark.parametrize("env", [0, 2])
def test_the_chosen_picture_of_a_mosaic_has_a_frame_and_names(env):
    recording = small(episodes=4).video.recording
    plain, marked = (
        next(iter(frames(recording, 320, 260, chosen=chosen))) for chosen in (None, env)
    )
    rows, columns = np.nonzero((plain != marked).any(axis=-1))
    frame = (marked == rgb(Canvas.YELLOW)).all(axis=-1) & (plain != marked).any(axis=-1)
    assert frame[:, 1].any() and frame.sum() > 4 * 2 * (140 + 110)
    middle = plain.shape[0] // 2
    assert (rows.max() < middle + 20) if env == 0 else (rows.min() > middle - 20)
    assert columns.max() < 170


def test_a_page_of_any_environment_ends_where_its_script_does():
    spec = replace(envs.get("tag_grid"), title="Tag", summary="</script><b>")
    page = cd.view(
        spec, device="cpu", size=(200, 160), steps=2, title="</script><i>", **CHASE
    )._repr_html_()
    assert (
        page.count("</script>") == 1 and page.rstrip().endswith("</script>") and "<i>" not in page
    )


# ---- in a browser --------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("scripts", [True, False])
def test_where_no_script_runs_the_page_says_so_and_promises_nothing(browser, scripts):
    """A notebook that is not trusted shows outputs without their scripts."""
    context = browser.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.set_content(small()._repr_html_())
    assert page.get_by_text(STILL).is_visible() is not scripts
    assert page.get_by_text(HINT).is_visible() is scripts
    assert page.get_by_role("button", name="play").is_enabled() is scripts
    assert page.get_by_label("step", exact=True).is_enabled() is scripts
    assert (
        page.locator("img").is_visible()
        and "environment 0, step 0" in page.locator("pre").text_content()
    )
    context.close()


@pytest.mark.full
def test_keys_slider_and_button_show_the_step(browser):
    page = browser.new_page()
    page.set_content(small()._repr_html_())
    image, text, slider = (
        page.locator("img"),
        page.locator("pre"),
        page.get_by_label("step", exact=True),
    )
    first = image.get_attribute("src")

    def at(step):
        assert slider.input_value() == page.locator("output").text_content() == str(step)
        assert text.text_content().startswith(f"environment 0, step {step}")

    page.keyboard.press("ArrowRight")
    at(0)  # nobody has chosen the viewer: the key is the page's
    image.click()
    for key, step in (
        ("ArrowRight", 1),
        ("ArrowUp", 2),
        ("ArrowLeft", 1),
        ("End", 10),
        ("ArrowRight", 10),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        at(step)
    page.keyboard.press("End")
    assert image.get_attribute("src") != first
    page.get_by_role("button", name="play").click()
    page.get_by_role("button", name="stop").wait_for()
    page.wait_for_function("document.querySelector('input').value === '4'")
    page.get_by_role("button", name="stop").press("Space")
    page.get_by_role("button", name="play").wait_for()
    at(int(slider.input_value()))
    page.close()
