"""The documentation site: no warning, no dead link; in Chromium from a folder and a server."""

import functools
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.browser import Browser, browser
from tests.support.scripts import loaded
from tests.support.waiting import wait_for


class _Links(HTMLParser):
    """The targets and the ids of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value for key, value in attrs if value}
        self.ids.update(values[key] for key in ("id", "name") if key in values)
        if tag == "a" and "href" in values:
            self.targets.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    builder, folder = loaded("docs/build_site.py"), tmp_path_factory.mktemp("site") / "build"
    builder.stage(folder)
    assert builder.build(folder) == 0
    return Path(folder / "site")


def pages_of(site: Path) -> list[Path]:
    """All pages but the answer of a web server for a page that is not there, whose links begin at the server's root."""
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def test_every_link_leads_to_a_page_and_an_anchor_of_the_site(site: Path) -> None:
    read = {path: _Links(path.read_text(encoding="utf-8")) for path in pages_of(site)}
    assert len(read) > 20
    lost = []
    for page, links in read.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            anchors = read[path].ids if path in read else set()
            if not path.is_file() or (parts.fragment and path in read and unquote(parts.fragment) not in anchors):
                lost.append((str(page.relative_to(site)), target))
    assert lost == []


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module", params=["file", "http"])
def address(site: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the site's folder, as a file and from a web server."""
    if request.param == "file":
        yield site.as_uri()
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as one:
        yield one


STICKING_OUT = "document.documentElement.scrollWidth - innerWidth"
MISSING = "[...document.images].filter((one) => one.complete && !one.naturalWidth).map((one) => one.src)"


def test_every_page_fits_a_phone_and_loads_nothing_from_another_server(tab: Browser, site: Path, address: str) -> None:
    for page in pages_of(site):
        tab.console.clear()
        tab.requests.clear()
        tab.open(f"{address}/{page.relative_to(site)}", width=360)
        assert tab.console == [], page
        assert [one for one in tab.requests if not one.startswith((f"{address}/", "data:"))] == [], page
        assert tab.run(STICKING_OUT) <= 0, page
        assert tab.run(MISSING) == [], page


@pytest.mark.parametrize(("theme", "scheme"), [("light", "default"), ("dark", "slate")])
def test_the_site_follows_the_theme_of_the_system(tab: Browser, address: str, theme: str, scheme: str) -> None:
    tab.open(f"{address}/index.html", theme=theme)
    assert tab.run("document.body.dataset.mdColorScheme") == scheme


RESULTS = """[...document.querySelectorAll('body > *')].filter((one) => one.shadowRoot)
    .flatMap((one) => [...one.shadowRoot.querySelectorAll('a')]).map((one) => one.href)"""


def test_search_finds_a_word(tab: Browser, address: str) -> None:
    tab.console.clear()
    tab.open(f"{address}/docs/modes.html")
    tab.click(".md-search__button")
    wait_for(lambda: tab.run("document.activeElement.shadowRoot?.activeElement?.tagName") == "INPUT", "the focus")
    tab.type("mig-manager")
    wait_for(lambda: any("/docs/migrating.html" in one for one in tab.run(RESULTS)), "a result")
    # Chromium notes as information which of two elements got the focus.
    assert [one for one in tab.console if '"level": "info"' not in one] == []
