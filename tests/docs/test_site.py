"""The documentation site: it builds without a warning, all names and links are there, and it works
in a browser.

What its pages' blocks do, tests/docs/test_docs.py runs.
"""

import html.parser
import http.server
import re
import threading
from dataclasses import fields
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import optional, run_python
from page_blocks import pages

import cupydrive as cd

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings", "nbconvert")
# Looked at in `make test`; `make test-all` opens every page.
MAIN = ["index.html", "tutorial/own.html", "dialect.html", "api/settings.html"]
# Words that a newcomer types, and the title of a page that must be among the first three found: its
# `tags` see to that.
FOUND = {
    "self-play": "Train against opponents",
    "multi-agent": "Use PettingZoo",
    "distributed": "Train on several GPUs",
    "slow": "Find out what is slow",
    "save model": "Use a trained policy elsewhere",
    "custom environment": "An environment of your own",
    "hyperparameters": "Search for settings",
    "total_timesteps": "Train",
    "n_envs": "Run an environment",
}
MODES = [("light", 1280), ("dark", 1280), ("light", 390)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make site` does."""
    for name in NEEDED:
        optional(name)
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = run_python(*command, cwd=ROOT, seconds=300, NO_MKDOCS_2_WARNING="1")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


class Links(html.parser.HTMLParser):
    """Addresses that a page names, and the places on it that can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.names, self.places = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places.add(found.get("id"))
        self.names += [found[key] for key in ("href", "src", "poster") if found.get(key)]


# ---- what is there -------------------------------------------------------------------------------


def test_every_public_name_is_documented_once():
    named = [
        name for text in pages().values() for name in re.findall(r"^::: cd\.(\w+)$", text, re.M)
    ]
    assert sorted(named) == sorted(set(cd.__all__) - {"__version__"})


@pytest.mark.full
@pytest.mark.parametrize("name", ["PPO", "A2C", "DDPG", "OnPolicy", "OpponentPool"])
def test_settings_are_listed_with_those_that_they_inherit(site, name):
    page = (site / "api" / "settings.html").read_text()
    section = re.search(rf'<h2 id="[\w.]+\.{name}".*?(?=<h2 |</article>)', page, re.S)[0]
    listed = re.findall(r"<li[^>]*>\s*<b>\s*<code>(\w+)", section)
    assert listed and sorted(listed) == sorted(f.name for f in fields(getattr(cd, name)))


@pytest.mark.full
def test_every_link_leads_somewhere_and_nothing_comes_from_another_host(site):
    found = {path: Links(path) for path in site.rglob("*.html")}
    assert len(found) > 20
    for page, links in found.items():
        for name in links.names:
            parts = urlsplit(name)
            if parts.scheme:
                assert parts.scheme in ("https", "data"), f"{page}: {name}"
                continue
            # it is shown for any address
            if page.name == "404.html" and parts.path.startswith("/"):
                parts = parts._replace(path=parts.path[1:])
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page}: {name}"
            if parts.fragment and target in found and parts.fragment != "__skip":
                assert unquote(parts.fragment) in found[target].places, f"{page}: {name}"


# ---- in a browser --------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    def handler(*args):
        return Quiet(*args, directory=str(site))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def opened(browser, address):
    """Return a function that gives an empty page; afterwards nothing has gone wrong, and no other
    host was asked.
    """
    wrong, contexts = [], []

    def new_page(width=1280, scheme="light"):
        contexts.append(
            browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        )
        shown = contexts[-1].new_page()
        shown.on(
            "console",
            lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None,
        )
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        here = (f"{address}/", "data:", "blob:", "file://")
        shown.on(
            "request",
            lambda request: None if request.url.startswith(here) else wrong.append(request.url),
        )
        return shown

    yield new_page
    for context in contexts:
        context.close()
    assert not wrong


def look_at(shown, address, names, width):
    """Open pages, and hold that each fits its window and that axe finds nothing."""
    axe = optional("axe_playwright_python.sync_playwright").Axe()
    for name in names:
        shown.goto(f"{address}/{name}")
        shown.wait_for_selector("article")
        found = axe.run(shown).response["violations"]
        assert not [(v["id"], v["nodes"][0]["html"][:200]) for v in found], name
        assert shown.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.full
@pytest.mark.parametrize(("scheme", "width"), MODES)
def test_the_main_pages_are_accessible_and_fit_their_window(opened, address, scheme, width):
    look_at(opened(width, scheme), address, MAIN, width)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), MODES)
def test_all_pages_are_accessible_and_fit_their_window(opened, address, site, scheme, width):
    names = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    look_at(
        opened(width, scheme),
        address,
        [name for name in names if not name.startswith("gallery/")],
        width,
    )


@pytest.mark.full
@pytest.mark.parametrize("served", [True, False], ids=["by a server", "from a folder"])
def test_search_finds_a_word(opened, address, site, served):
    shown = opened()
    shown.goto(f"{address if served else site.as_uri()}/index.html")
    shown.locator(".md-search__input").click()
    shown.keyboard.type("num_minibatches")
    shown.locator(".md-search-result__link", has_text="Settings of algorithms").first.click()
    shown.wait_for_url("**/api/settings.html**")
    assert "num_minibatches" in shown.locator("article").inner_text()
    for words, title in FOUND.items() if served else list(FOUND.items())[:2]:
        # The theme searches at each key, and its worker warns of "self-": it reads a hyphen at the
        # end as "not *".
        shown.locator(".md-search__input").fill(words[:-1])
        shown.locator(".md-search__input").press(words[-1])
        shown.locator(".md-search-result__item:nth-child(-n+3) h1", has_text=title).first.wait_for()
