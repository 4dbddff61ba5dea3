"""The pages of `show` and `plan` in Chromium itself: what a person sees, finds, copies and prints, at any width and theme."""

import io
from collections.abc import Iterator
from pathlib import Path

import pypdf
import pytest
import yaml

from tests.compiler.cli.process import gpushare
from tests.support.browser import Browser, browser
from tests.support.paths import ROOT

pytestmark = pytest.mark.windows

EXAMPLES = sorted((ROOT / "examples").glob("*/intent.yaml"))
FIRST = EXAMPLES[0]
PAGES = {
    **{path.parent.name: ("show", "--html", path) for path in EXAMPLES if path.parent.name[:2] in {"01", "04", "13"}},
    "plan": ("plan", "--html", EXAMPLES[3], FIRST),
    "empty-plan": ("plan", "--html", FIRST, FIRST),
}
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 22, 28)"}
SHOWN = "[...document.querySelectorAll('.pool')].filter((one) => !one.hidden).map((one) => one.id)"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages in files, as people open them."""
    folder = tmp_path_factory.mktemp("pages")
    for name, arguments in PAGES.items():
        (folder / f"{name}.html").write_text(gpushare(*arguments).stdout, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PAGES}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_at_either_width_and_theme(tab: Browser, files: dict[str, Path], name: str, width: int, theme: str) -> None:
    tab.console.clear()
    tab.open(files[name], width=width, theme=theme)
    assert tab.console == []
    assert tab.run("getComputedStyle(document.body).backgroundColor") == PAPER[theme]
    assert tab.run("[innerWidth, document.documentElement.scrollWidth]") == [width, width], "nothing sticks out"
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert [(one["id"], one["nodes"][0]["html"]) for one in tab.violations()] == []


def test_search_leaves_the_pools_that_have_all_words(tab: Browser, files: dict[str, Path]) -> None:
    tab.open(files["01-heterogeneous"])
    tab.click("#search")
    tab.type("a100 MIG")
    assert tab.run(SHOWN) == ["pool-teaching", "pool-training"]
    assert tab.run("document.getElementById('found').textContent") == "2 of 4 pools"
    tab.run("document.getElementById('search').select()")
    tab.type("nothing has this")
    assert tab.run(SHOWN) == []
    tab.run("document.getElementById('search').select()")
    tab.type(" ")
    assert len(tab.run(SHOWN)) == 4


def test_folding_by_keyboard_alone(tab: Browser, files: dict[str, Path]) -> None:
    tab.open(files["01-heterogeneous"])
    opened = "[...document.querySelectorAll('.pool')].filter((one) => one.open).length"
    tab.run("document.getElementById('fold').focus()")
    tab.press("Enter", 13)
    assert (tab.run(opened), tab.run("document.activeElement.textContent")) == (0, "Unfold all")
    tab.run("document.querySelector('#pool-hpc summary').focus()")
    tab.press(" ", 32)
    assert tab.run(opened) == 1


def test_the_pod_that_is_copied_is_the_pod(tab: Browser, files: dict[str, Path]) -> None:
    tab.open(files["01-heterogeneous"])
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    tab.run("navigator.clipboard.writeText = (text) => { window.taken = text; return Promise.resolve(); }; 0")
    tab.click("#pool-notebooks .copy")
    tab.run("new Promise((resolve) => setTimeout(resolve, 50))")
    pod = yaml.safe_load(tab.run("window.taken"))
    assert pod["kind"] == "Pod"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu.shared": 1}
    assert tab.run("document.querySelector('#pool-notebooks .copy').textContent") == "Copied"


def test_without_a_clipboard_the_pod_is_selected(tab: Browser, files: dict[str, Path]) -> None:
    tab.open(files["01-heterogeneous"])
    tab.run("for (const one of document.querySelectorAll('details')) one.open = true")
    tab.run("navigator.clipboard.writeText = () => Promise.reject(new Error('none')); 0")
    tab.click("#pool-hpc .copy")
    tab.run("new Promise((resolve) => setTimeout(resolve, 50))")
    assert yaml.safe_load(tab.run("getSelection().toString()"))["kind"] == "Pod"


@pytest.mark.parametrize(("name", "words"), [
    ("01-heterogeneous", ["kind: Pod", "hpc", "Quotas", "2200Mi"]),
    ("plan", ["Settings of the intent", "spec.pools.hpc", "Capacity"]),
])
def test_on_paper_everything_is_unfolded(tab: Browser, files: dict[str, Path], name: str, words: list[str]) -> None:
    tab.open(files[name])
    tab.run("for (const one of document.querySelectorAll('details')) one.open = false")
    pages = pypdf.PdfReader(io.BytesIO(tab.printed())).pages
    text = " ".join(" ".join(page.extract_text() for page in pages).split())
    assert [word for word in words if word not in text] == []
    # A4, in points.
    assert {(round(float(page.mediabox.width)), round(float(page.mediabox.height))) for page in pages} == {(595, 842)}


def test_without_its_script_everything_can_be_read(tab: Browser, files: dict[str, Path]) -> None:
    html = files["01-heterogeneous"].read_text(encoding="utf-8")
    bare = files["01-heterogeneous"].with_name("bare.html")
    bare.write_text(html.replace("<script>", "<script type='text/plain'>"), encoding="utf-8")
    tab.open(bare)
    assert tab.run("document.querySelector('.tools').checkVisibility()") is False
    assert tab.run("[...document.querySelectorAll('.pool .map')].every((one) => one.checkVisibility())") is True
