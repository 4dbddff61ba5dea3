"""`gpushare show --html`: what the page has, whatever the intent says; and in Chromium itself, what a person sees."""

import base64
import hashlib
import json
import re
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.cli import show_page
from gpushare.core.diagnostics import Finding, Severity, is_error
from gpushare.core.record import replace
from tests.compiler.cli.page import HOSTILE, Page
from tests.compiler.cli.process import gpushare
from tests.compiler.rules.intents import pool, written
from tests.support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/intent.yaml"))
FIRST = EXAMPLES[0]


def page(text: str) -> str:
    compilation = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
    assert compilation.plan is not None, compilation.findings
    return show_page.page(compilation.plan, [one for one in compilation.findings if not is_error(one)])


@pytest.mark.parametrize("intent", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_page_says_what_the_sheet_says(intent: Path) -> None:
    html = gpushare("show", "--html", intent).stdout
    seen = Page(html)
    offer = json.loads(gpushare("show", "--format", "json", intent).stdout)
    for name, one in offer["pools"].items():
        assert f"pool-{name}" in seen.ids
        assert all(resource in seen.text for resource in one["resources"])
        assert all(f"{device['profile'] or 'whole GPU'}" in seen.text for device in one["devices"])
    assert len(seen.ids) == len(set(seen.ids))
    assert html == gpushare("show", "--format", "html", intent).stdout


def test_the_page_permits_its_own_style_and_script_alone() -> None:
    html = gpushare("show", "--html", FIRST).stdout
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in html.partition("<title>")[0]
    assert "default-src 'none'" in html
    assert not [tag for tag, found in Page(html).attributes if {"src", "style", "onclick"} & found.keys() or tag == "link"]


def test_texts_are_only_text_whatever_a_rule_lets_pass() -> None:
    plan = pipeline.compile_intent(written(pool()).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    hostile = replace(plan, intent=replace(plan.intent, name=HOSTILE, namespace=HOSTILE))
    warning = Finding(code="GS999", message=HOSTILE, severity=Severity.WARNING)
    html = show_page.page(hostile, [warning])
    assert html.count("<script") == 1
    assert "<img" not in html
    assert "\u202e" not in html


def test_a_thousand_pools_fit_into_two_megabytes_and_are_folded() -> None:
    many = [pool(f"p{number}", nodes=f"{{matchLabels: {{a: b{number}}}}}") for number in range(1000)]
    html = page(written(*many))
    assert len(html.encode()) < 2_000_000
    assert " open>" not in html
    assert html.count('class="pool"') == 1000


def chromium(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """Run it without a window. Root has no sandbox of it."""
    command = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
               "--virtual-time-budget=20000")
    return subprocess.run([*command, *arguments], capture_output=True, check=True)


_SHOWN = {path.parent.name: ("show", "--html", path) for path in EXAMPLES if path.parent.name[:2] in {"01", "04", "13"}}
_PLANNED = {"plan": ("plan", "--html", EXAMPLES[3], FIRST), "empty-plan": ("plan", "--html", FIRST, FIRST)}


@pytest.fixture(params=[*_SHOWN, *_PLANNED])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A page in a file, as people open it."""
    found = tmp_path / "page.html"
    found.write_text(gpushare(*{**_SHOWN, **_PLANNED}[request.param]).stdout, encoding="utf-8")
    return found


@pytest.mark.windows
def test_in_a_browser_the_script_runs_and_nothing_is_refused(file: Path) -> None:
    done = chromium("--dump-dom", file.as_uri())
    dom = done.stdout.decode()
    assert b"CONSOLE" not in done.stderr, done.stderr.decode()
    assert ('<div class="tools">' in dom) == ('class="tools"' in file.read_text(encoding="utf-8"))
    assert dom.count('class="copy" aria-label="Copy') == file.read_text(encoding="utf-8").count('class="copy" hidden')


@pytest.mark.windows
def test_it_prints(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.pdf"
    chromium(f"--print-to-pdf={target}", file.as_uri())
    assert b"/Type /Page" in target.read_bytes()


@pytest.mark.windows
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_no_violation(file: Path, width: int, theme: str) -> None:
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    run = ("for (const one of document.querySelectorAll('details')) one.open = true;"
           "axe.run().then((found) => { const pre = document.createElement('pre'); pre.id = 'axe';"
           "pre.textContent = JSON.stringify(found.violations); document.body.append(pre); });")
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", file.read_text(encoding="utf-8"))
    file.write_text(html.replace("</body>", f"<script>{axe}</script><script>{run}</script></body>"), encoding="utf-8")
    shade = ("--blink-settings=preferredColorScheme=0",) if theme == "dark" else ()
    dom = chromium("--dump-dom", f"--window-size={width},1200", *shade, file.as_uri()).stdout.decode()
    found = re.search(r'<pre id="axe">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None
    assert found[1] == "[]"
