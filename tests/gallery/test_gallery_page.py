"""The committed gallery's page in a browser: it plays, by mouse and keyboard, and anybody can read
it.
"""

import json
from pathlib import Path

import pytest
from conftest import optional

from cupydrive.drawing.curves import LETTER_SIZE
from cupydrive.gallery.build import read_entries

HERE = Path(__file__).resolve().parents[2] / "gallery"


@pytest.fixture
def opened(browser):
    """Return a function that opens the committed page; afterwards nothing has gone wrong and no
    other host was asked.
    """
    wrong, contexts = [], []

    def open_page(width=1440, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        shown = contexts[-1].new_page()
        shown.on(
            "console",
            lambda message: wrong.append(message.text) if message.type == "error" else None,
        )
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        here = ("file://", "data:")
        shown.on(
            "request",
            lambda request: None if request.url.startswith(here) else wrong.append(request.url),
        )
        shown.goto(f"{HERE.as_uri()}/index.html")
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


def test_every_video_plays_when_pointed_at_and_pauses_afterwards(opened):
    shown = opened()
    stages = shown.locator(".stage")
    assert stages.count() == sum(len(entry["clips"]) for entry in read_entries(HERE).values())
    for k in range(stages.count()):
        stages.nth(k).hover()
        plays(shown, k)
        assert shown.evaluate("k => document.querySelectorAll('video')[k].videoWidth", k) > 300
    shown.mouse.move(0, 0)
    shown.wait_for_function("[...document.querySelectorAll('video')].every(v => v.paused)")


@pytest.mark.full
def test_it_works_with_the_keyboard_alone_and_tells_what_the_buttons_do(opened):
    shown = opened()
    button = shown.locator(".stage button").nth(1)  # the first clip plays by itself
    assert button.get_attribute("aria-label") == "Play tag_published: trained"
    for _ in range(60):
        shown.keyboard.press("Tab")
        if button.evaluate("b => b === document.activeElement"):
            break
    shown.keyboard.press("Enter")
    plays(shown, 1)
    assert button.get_attribute("aria-label") == "Pause tag_published: trained"
    shown.keyboard.press("Enter")
    shown.wait_for_function("document.querySelectorAll('video')[1].paused")


@pytest.mark.full
def test_the_first_clip_plays_as_long_as_it_is_in_view_unless_it_is_stopped(opened):
    shown = opened()
    stage = shown.locator(".stage").first
    stage.scroll_into_view_if_needed()
    plays(shown, 0)
    assert (
        shown.evaluate("[...document.querySelectorAll('video')].filter(v => !v.paused).length") == 1
    )
    shown.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    shown.wait_for_function("document.querySelector('video').paused")
    stage.scroll_into_view_if_needed()
    plays(shown, 0)
    stage.locator("button").click()
    shown.wait_for_function("document.querySelector('video').paused")
    shown.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    stage.scroll_into_view_if_needed()
    shown.mouse.move(0, 0)
    assert shown.evaluate("document.querySelector('video').paused")


@pytest.mark.full
@pytest.mark.parametrize("width", [390, 1440])
def test_letters_in_pictures_can_be_read_at_the_size_they_are_shown_at(opened, width):
    """Of clips those of the header, a thirtieth of the width; of charts all, which have ten
    points.
    """
    shown = opened(width)
    shown.evaluate("document.querySelectorAll('img').forEach(i => { i.loading = 'eager' })")
    shown.wait_for_function("[...document.images].every(i => i.complete && i.naturalWidth)")
    assert (
        min(shown.evaluate("[...document.querySelectorAll('video')].map(v => v.clientWidth)"))
        >= 334
    )
    for name, drawn, natural in shown.evaluate(
        "[...document.images].map(i => [i.src, i.clientWidth, i.naturalWidth])"
    ):
        points = (
            natural * 72 / (96 if name.endswith("svg") else 160 if "convergence" in name else 200)
        )
        assert drawn * LETTER_SIZE / points >= 9, name


@pytest.mark.full
@pytest.mark.parametrize("width", [390, 1440])
def test_no_button_hides_anything_and_clips_with_small_letters_are_not_small(opened, width):
    shown = opened(width)
    hidden = shown.evaluate(
        """[...document.querySelectorAll('.stage')].flatMap(stage => {
          const button = stage.querySelector('button').getBoundingClientRect();
          const cells = [stage.querySelector('video'), ...stage.parentElement.querySelectorAll('dd, summary')];
          return cells.filter(cell => {
            const box = cell.getBoundingClientRect();
            return box.top < button.bottom && button.top < box.bottom && button.left < box.right;
          }).map(cell => cell.outerHTML.slice(0, 80));
        })"""
    )
    assert hidden == []
    assert (
        min(shown.evaluate("[...document.querySelectorAll('.wide video')].map(v => v.clientWidth)"))
        >= 640
    )
    for name, entry in read_entries(HERE).items():
        widths = shown.locator(f"section[aria-labelledby={name}] video").evaluate_all(
            "all => all.map(v => v.clientWidth)"
        )
        assert min(widths) >= entry.get("readable", 334), name


@pytest.mark.full
@pytest.mark.parametrize(("width", "columns"), [(390, 1), (1280, 2), (1440, 2)])
def test_what_is_cut_off_says_so_above_itself_and_charts_have_gaps(opened, width, columns):
    shown = opened(width)
    shown.wait_for_function("!!document.querySelector('.scroll.cut') === (innerWidth < 1000)")
    boxes = shown.evaluate(
        """[...document.querySelectorAll('.scroll')].map(box => [
          box.scrollWidth > box.clientWidth, getComputedStyle(box, '::before').content.includes('sideways'),
          box.firstElementChild.getBoundingClientRect().top - box.getBoundingClientRect().top, !!box.querySelector('table')])"""
    )
    assert all(cut == said == (above >= 16) for cut, said, above, _ in boxes)
    tables = [cut for cut, _, _, table in boxes if table]
    assert (
        tables and any(tables) == (width == 390) and any(cut for cut, *_ in boxes) == (width == 390)
    )
    ends = shown.evaluate(
        """[...document.querySelectorAll('.charts figure')].map(figure => {
          const box = figure.getBoundingClientRect(); return [box.left, box.top, box.bottom]; })"""
    )
    assert len({left for left, *_ in ends}) == columns
    for left, top, _ in ends:  # to what stands above it, in its column or across both
        above = [end for at, _, end in ends if end <= top and (at == left or columns == 2)]
        assert not above or top - max(above) >= 15


@pytest.mark.full
def test_nothing_moves_by_itself_for_who_asked_for_less_motion(opened):
    shown = opened(reduced_motion="reduce")
    shown.locator(".stage").first.hover(position={"x": 5, "y": 5})
    shown.locator(".stage").nth(1).hover(position={"x": 5, "y": 5})
    assert shown.evaluate(
        "[...document.querySelectorAll('video')].every(v => v.paused && v.currentTime === 0)"
    )
    shown.locator(".stage button").first.click()
    plays(shown, 0)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_its_window(opened, width, scheme):
    axe = optional("axe_playwright_python.sync_playwright").Axe()
    shown = opened(width, color_scheme=scheme)
    violations = axe.run(shown).response["violations"]
    assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert json.loads(
        shown.evaluate("JSON.stringify([...document.images].map(i => i.alt.length > 5))")
    )
