"""The pages in Chromium itself: what a person sees, finds, copies and prints, at any width and theme."""

import io
from collections.abc import Iterator
from pathlib import Path

import pypdf
import pytest
import yaml

from gpushare.report import advice as report
from gpushare.report import html
from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import SHARED, lively
from tests.compiler.report import advice
from tests.compiler.rules.intents import pool, written
from tests.support.browser import Browser, browser
from tests.support.fake_api.server import ApiServer
from tests.support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/intent.yaml"))
FIRST = EXAMPLES[0]
PAGES = {
    **{path.parent.name: ("show", "--html", path) for path in EXAMPLES if path.parent.name[:2] in {"01", "05", "13"}},
    "plan": ("plan", "--html", EXAMPLES[3], FIRST),
    "empty-plan": ("plan", "--html", FIRST, FIRST),
}
CHANGE = ("layout: {2g.10gb: 2, 1g.5gb: 3}", "layout: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}")
NAMES = (*PAGES, "changed", "status", "simulation", "advice")
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 22, 28)"}
A4 = 680
"""Between the margins, in pixels of CSS."""
CUT = """[...document.querySelectorAll('body, body *')]
    .filter((one) => one.clientWidth && one.scrollWidth > one.clientWidth)
    .map((one) => one.outerHTML.slice(0, 80))"""
RAW = "document.body.innerText.includes('`')"
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"
SHOWN = "[...document.querySelectorAll('.pool')].filter((one) => !one.hidden).map((one) => one.id)"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages in files, as people open them."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "changed.yaml").write_text(FIRST.read_text().replace(*CHANGE), encoding="utf-8")
    commands = {**PAGES, "changed": ("plan", "--html", FIRST, folder / "changed.yaml")}
    written = {name: gpushare(*arguments).stdout for name, arguments in commands.items()}
    written |= {"status": status(folder), "simulation": simulation(folder), "advice": advised()}
    for name, text in written.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in NAMES}


def status(folder: Path) -> str:
    with ApiServer(token="secret") as server:
        lively(server)
        server.add_pod("waiting", namespace="team", limits={SHARED: 1})
        return gpushare("status", "--html", "--kills", environment=server.kubeconfig(folder / "kubeconfig")).stdout


def simulation(folder: Path) -> str:
    """A week of notebooks on two clusters: one has too few nodes at the busiest hours."""
    for name, nodes in (("enough", 12), ("few", 4)):
        shared = pool(nodes=f"{{matchLabels: {{gpu: t4}}, expected: {nodes}}}")
        large = pool("training", "a100-sxm4-40gb", "{names: [n1]}", "{mode: mig, layout: {3g.20gb: 2}}")
        (folder / f"{name}.yaml").write_text(written(shared, large, prices="{t4: 0.35 EUR/h}"), encoding="utf-8")
    workload = ROOT / "examples/workloads/notebooks.yaml"
    return gpushare(
        "simulate", "--html", folder / "few.yaml", "--workload", workload, "--compare", folder / "enough.yaml"
    ).stdout


def advised() -> str:
    history = advice.history()
    diff = "-      sharing: {mode: time-slicing, replicas: 4}\n+      sharing: {mode: time-slicing, replicas: 5}\n"
    found = report.Found(advice=advice.advice(history), history=history, plan=advice.plan(), diff=diff)
    return html.page(report.report(found), "2026-01-01 00:00:00 UTC")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("name", NAMES)
def test_every_page_at_either_width_and_theme(tab: Browser, files: dict[str, Path], name: str, width: int, theme: str) -> None:
    tab.console.clear()
    tab.open(files[name], width=width, theme=theme)
    assert tab.console == []
    assert tab.run("getComputedStyle(document.body).backgroundColor") == PAPER[theme]
    assert tab.run("[innerWidth, document.documentElement.scrollWidth]") == [width, width], "nothing sticks out"
    tab.run(UNFOLD)
    assert not tab.run(RAW)
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


def test_pools_are_folded_with_the_keyboard(tab: Browser, files: dict[str, Path]) -> None:
    tab.open(files["01-heterogeneous"])
    opened = "[...document.querySelectorAll('.pool')].filter((one) => one.open).length"
    tab.run("document.getElementById('fold').focus()")
    tab.press("Enter", 13)
    assert (tab.run(opened), tab.run("document.activeElement.textContent")) == (0, "Unfold all")
    tab.run("document.querySelector('#pool-hpc summary').focus()")
    tab.press(" ", 32)
    assert tab.run(opened) == 1


def test_copy_button_copies_the_pod(tab: Browser, files: dict[str, Path]) -> None:
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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("simulation", ["Intents compared", "Shares in use: at most", "Assumed"]),
        ("01-heterogeneous", ["kind: Pod", "hpc", "Quotas", "2200Mi"]),
        ("plan", ["Intent", "spec.pools.hpc", "Capacity"]),
    ],
)
def test_print_view_is_unfolded(tab: Browser, files: dict[str, Path], name: str, words: list[str]) -> None:
    tab.open(files[name])
    tab.run("for (const one of document.querySelectorAll('details')) one.open = false")
    pages = pypdf.PdfReader(io.BytesIO(tab.printed())).pages
    text = " ".join(" ".join(page.extract_text() for page in pages).split())
    assert [word for word in words if word not in text] == []
    # A4, in points.
    assert {(round(float(page.mediabox.width)), round(float(page.mediabox.height))) for page in pages} == {(595, 842)}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "empty-plan"])
def test_print_view_truncates_nothing(tab: Browser, files: dict[str, Path], name: str) -> None:
    tab.open(files[name], width=A4, media="print")
    tab.run(UNFOLD)
    assert tab.run("document.querySelectorAll('details[open]').length") > 0
    assert tab.run(CUT) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "empty-plan"])
def test_only_pods_scroll_horizontally_on_a_phone(tab: Browser, files: dict[str, Path], name: str) -> None:
    tab.open(files[name], width=390)
    tab.run(UNFOLD)
    assert [one for one in tab.run(CUT) if not one.startswith("<pre ")] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("01-heterogeneous", {"Per node", "Total", "Device", "Cap", "Resource", "At most"}),
        ("changed", {"Before", "After", "Change"}),
        ("advice", {"Now", "Advised", "Containers", "p95 GiB", "Most GiB", "Used", "With the cap"}),
        ("status", {"Wanted", "Offered", "Used", "Free", "In use", "State", "Reason", "Since", "Message"}),
        ("simulation", {"Never ran", "Stranded GiB", "GPU-hours", "Cost EUR", "Mean wait"}),
    ],
)
def test_on_a_phone_every_value_has_its_heading(tab: Browser, files: dict[str, Path], name: str, words: set[str]) -> None:
    tab.open(files[name], width=390)
    shown = tab.run("[...document.querySelectorAll('td')].map((one) => getComputedStyle(one, '::before').content.slice(1, -1))")
    assert set(shown) >= words
    assert "on" not in shown, "`none` without its first and last letter: a cell without a heading"


BOXES = """[...document.querySelectorAll('#pool-training .map')].map((map) => [...map.children].map((one) => {
    const box = one.getBoundingClientRect();
    return [one.firstChild.textContent, one.className, %s];
}))"""


@pytest.mark.parametrize(("width", "side"), [(1280, "box.width"), (390, "box.height")])
def test_maps_are_to_scale(tab: Browser, files: dict[str, Path], width: int, side: str) -> None:
    """Slices are equal whatever is marked, so an instance of n slices takes n of them and the gaps between them."""
    tab.open(files["changed"], width=width)
    before, after = tab.run(BOXES % side)
    slices = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 4, "unused": 1}
    sizes = {(name, round(size, 1)) for name, _, size in (*before, *after)}
    assert len(sizes) == len(slices), f"the same at every place: {sizes}"
    one = dict(sizes)["1g.5gb"]
    assert dict(sizes) == {name: pytest.approx(number * one + (number - 1) * 2, abs=0.3) for name, number in slices.items()}
    assert [row[0][:2] for row in (before, after)] == [["2g.10gb", "g2 w2"]] * 2, "what is kept is first on both sides"


@pytest.mark.parametrize(("width", "columns"), [(1280, 2), (360, 1)])
def test_curves_of_intents_are_side_by_side_where_there_is_room(
    tab: Browser, files: dict[str, Path], width: int, columns: int
) -> None:
    tab.requests.clear()
    tab.open(files["simulation"], width=width)
    boxes = "[...document.querySelectorAll('#pool-notebooks .curve')].map((one) => one.getBoundingClientRect())"
    curves = tab.run(f"{boxes}.map((box) => [box.left, box.width, box.height])")
    assert len(curves) >= 4
    assert len({left for left, _, _ in curves}) == columns
    assert min(min(wide, high) for _, wide, high in curves) > 60
    assert tab.requests == [files["simulation"].as_uri()]


def test_shares_of_a_device_are_drawn(tab: Browser, files: dict[str, Path]) -> None:
    tab.open(files["01-heterogeneous"])
    segments = "[...document.querySelectorAll('#pool-%s .map li')].map((one) => one.querySelectorAll('i').length)"
    assert tab.run(segments % "notebooks") == [4]
    assert set(tab.run(segments % "teaching")) == {2, 0}, "and slices that are unused"
    assert tab.run(segments % "hpc") == [0]
    parts = "[...document.querySelectorAll('#pool-notebooks .map i')]"
    widths = tab.run(f"{parts}.map((one) => one.getBoundingClientRect().width)")
    assert max(widths) - min(widths) < 1


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 150 pools that all differ."""
    folder = tmp_path_factory.mktemp("many")
    nodes = "{{matchLabels: {{a: b{0}}}, expected: {0}}}"
    pools = [pool(f"team-{number}", nodes=nodes.format(number)) for number in range(1, 151)]
    (folder / "intent.yaml").write_text(written(*pools), encoding="utf-8")
    (folder / "many.html").write_text(gpushare("show", "--html", folder / "intent.yaml").stdout, encoding="utf-8")
    return folder / "many.html"


def test_on_a_large_page_the_script_writes_the_pods(tab: Browser, many: Path) -> None:
    tab.open(many)
    tab.run("for (const one of document.querySelectorAll('#pool-team-7, #pool-team-7 details')) one.open = true")
    waiting = "new Promise((resolve) => setTimeout(resolve, 50))"
    tab.run(waiting)
    pod = yaml.safe_load(tab.run("document.querySelector('#pool-team-7 code').textContent"))
    assert pod["metadata"]["generateName"] == "team-7-"
    assert pod["spec"]["nodeSelector"] == {"gpushare.dev/pool": "team-7"}
    assert "⟨" not in yaml.safe_dump(pod, allow_unicode=True)
    assert tab.run("document.querySelector('#pool-team-8 code').textContent") == ""
    text = " ".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(tab.printed())).pages)
    assert text.count("generateName: team-") == 150, "on paper every pool has its pod"


def test_equal_pools_have_one_card_and_are_found_by_name(tab: Browser, tmp_path: Path) -> None:
    pools = [pool(f"team-{number}", nodes=f"{{matchLabels: {{a: b{number}}}}}") for number in range(30)]
    (tmp_path / "intent.yaml").write_text(written(*pools, pool("other", nodes="{matchLabels: {a: c}}", card="l4")))
    (tmp_path / "equal.html").write_text(gpushare("show", "--html", tmp_path / "intent.yaml").stdout, encoding="utf-8")
    tab.open(tmp_path / "equal.html")
    assert len(tab.run(SHOWN)) == 2
    tab.click("#search")
    tab.type("team-17")
    assert tab.run(SHOWN) == ["pools-team-0"]
    names = "[...document.querySelectorAll('.names li')]"
    assert tab.run(f"{names}.filter((one) => !one.hidden).map((one) => one.id)") == ["pool-team-17"]
    assert tab.run("document.getElementById('found').textContent") == "1 of 31 pools"
    assert tab.violations() == []


def test_page_is_readable_without_its_script(tab: Browser, files: dict[str, Path]) -> None:
    html = files["01-heterogeneous"].read_text(encoding="utf-8")
    bare = files["01-heterogeneous"].with_name("bare.html")
    bare.write_text(html.replace("<script>", "<script type='text/plain'>"), encoding="utf-8")
    tab.open(bare)
    assert tab.run("document.querySelector('.tools').checkVisibility()") is False
    assert tab.run("[...document.querySelectorAll('.pool .map')].every((one) => one.checkVisibility())") is True


def test_use_is_drawn_to_scale(tab: Browser, files: dict[str, Path]) -> None:
    """The caps are where the curve's scale has them, and the areas stay inside the drawing."""
    tab.open(files["advice"], width=1280)
    box = "(one) => { const at = one.getBoundingClientRect(); return [at.top, at.bottom, at.left, at.right].map(Math.round); }"
    top, bottom, left, right = tab.run(f"({box})(document.querySelector('#pool-notebooks svg'))")
    for area in tab.run(f"[...document.querySelectorAll('#pool-notebooks .under')].map({box})"):
        assert top <= area[0] < area[1] <= bottom + 1
        assert left <= area[2] + 1
        assert area[3] <= right + 1
    now, then = tab.run(f"[...document.querySelectorAll('#pool-notebooks .limit')].slice(0, 2).map({box})")
    parts = [(bottom - one[0]) / (bottom - top) for one in (now, then)]
    assert parts[0] / parts[1] == pytest.approx(3724 / 2800, abs=0.03)
