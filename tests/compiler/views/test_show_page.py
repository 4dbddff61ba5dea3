"""`gpushare show --html`: what the page has, whatever the intent says."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core.diagnostics import Finding, Severity, is_error
from gpushare.core.record import replace
from gpushare.views import show_page
from tests.compiler.cli.process import gpushare
from tests.compiler.rules.intents import pool, written
from tests.compiler.views.page import HOSTILE, Page
from tests.support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/intent.yaml"))
FIRST = EXAMPLES[0]


def page(text: str) -> str:
    compilation = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
    assert compilation.plan is not None, compilation.findings
    return show_page.page(compilation.plan, [one for one in compilation.findings if not is_error(one)])


@pytest.mark.parametrize("intent", EXAMPLES, ids=lambda path: path.parent.name)
def test_page_and_text_output_agree(intent: Path) -> None:
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


def test_hostile_texts_are_escaped_on_the_page() -> None:
    plan = pipeline.compile_intent(written(pool()).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    hostile = replace(plan, intent=replace(plan.intent, name=HOSTILE, namespace=HOSTILE))
    warning = Finding(code="GS999", message=HOSTILE, severity=Severity.WARNING)
    html = show_page.page(hostile, [warning])
    assert html.count("<script") == 1
    assert "<img" not in html
    assert "\u202e" not in html


def thousand(nodes: str) -> str:
    """The page of a thousand pools with MIG; in `nodes`, `%d` is the number of the pool."""
    return page(
        written(
            *(
                pool(
                    f"department-{number:04}-training",
                    card="a100-sxm4-40gb",
                    nodes=nodes.replace("%d", str(number + 1)),
                    sharing="{mode: mig, layout: {2g.10gb: 2, 1g.5gb: 3}}",
                )
                for number in range(1000)
            )
        )
    )


def test_a_thousand_equal_pools_have_one_card_that_names_them() -> None:
    html = thousand("{matchLabels: {a: b%d}}")
    assert html.count('class="pool"') == 1
    assert len({one for one in Page(html).ids if one.startswith("pool-")}) == 1000
    assert len(html.encode()) < 500_000


def test_a_thousand_different_pools_fit_into_two_megabytes_and_are_folded() -> None:
    html = thousand("{matchLabels: {a: b%d}, expected: %d}")
    assert len(html.encode()) < 2_000_000
    assert " open>" not in html
    assert html.count('class="pool"') == 1000


@pytest.mark.parametrize("name", ["resource", "pool", "pod", "gpu", "e"])
def test_the_text_that_pods_share_gives_back_each_pod(name: str) -> None:
    """As the script of the page does, whatever the pool is called."""
    plan = pipeline.compile_intent(written(pool(name)).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    (one,) = plan.pools
    _, card = show_page._described(one, plan)
    assert card["pod_text"].replace("⟨pool⟩", name).replace("⟨resource⟩", card["resource"]) == card["pod"]


def test_a_warning_has_its_hints() -> None:
    plan = pipeline.compile_intent(written(pool()).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    html = show_page.page(plan, [Finding(code="GS999", message="wrong", severity=Severity.WARNING, hints=("write this",))])
    assert '<span class="hint">write this</span>' in html
