"""The documentation site: no warning, every page in the navigation, no dead link or anchor."""

import importlib.util
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.paths import ROOT


class _Links(HTMLParser):
    """The targets and the ids of one page, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value for key, value in attrs if value}
        self.ids.update(values[key] for key in ("id", "name") if key in values)
        if tag == "a" and "href" in values:
            self.targets.append(values["href"])
        elif tag in ("link", "script", "img", "source", "iframe"):
            self.loaded += [values[key] for key in ("href", "src") if key in values and values.get("rel") != "canonical"]


def loaded_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_builder", ROOT / "docs" / "build_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    builder, folder = loaded_module(), tmp_path_factory.mktemp("site") / "build"
    builder.stage(folder)
    assert builder.build(folder) == 0
    return Path(folder / "site")


def test_every_link_leads_to_a_page_and_an_anchor_of_the_site(site: Path) -> None:
    read = {path: _Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
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


def test_the_site_loads_nothing_from_another_server(site: Path) -> None:
    for page in site.rglob("*.html"):
        foreign = [one for one in _Links(page.read_text(encoding="utf-8")).loaded if urlsplit(one).netloc]
        assert foreign == [], page


def test_every_page_is_in_the_navigation() -> None:
    config = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text())
    listed = set(re.findall(r"'([^']+\.md)'", str(config["project"]["nav"])))
    examples = {page for page in map(str, loaded_module().pages()) if page.startswith("examples/") and page.count("/") > 1}
    assert listed == {str(page) for page in loaded_module().pages() if page.suffix == ".md"} - examples
