"""`gpushare show --html`: what the page has, whatever the intent says."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core import emit
from gpushare.core.diagnostics import Finding, Severity, is_error
from gpushare.render import readme
from gpushare.report import html, show
from gpushare.report.model import Cards
from gpushare_node.contract.struct import replace
from tests.compiler.cli.process import gpushare
from tests.compiler.report.page import HOSTILE, Page
from tests.compiler.rules.intents import pool, written
from tests.support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*/intent.yaml"))
FIRST = EXAMPLES[0]
WHEN = "2026-01-01 00:00:00 UTC"


def page(text: str) -> str:
    compilation = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
    assert compilation.plan is not None, compilation.findings
    return html.page(show.report(compilation.plan, [one for one in compilation.findings if not is_error(one)]), WHEN)


@pytest.mark.parametrize("intent", EXAMPLES, ids=lambda path: path.parent.name)
def test_page_and_text_output_agree(intent: Path) -> None:
    text = gpushare("show", "--html", intent, environment={"SOURCE_DATE_EPOCH": "1"}).stdout
    seen = Page(text)
    offer = json.loads(gpushare("show", "--format", "json", intent).stdout)
    for name, one in offer["pools"].items():
        assert f"pool-{name}" in seen.ids
        assert all(resource in seen.text for resource in one["resources"])
        assert all(f"{device['profile'] or 'whole GPU'}" in seen.text for device in one["devices"])
    assert len(seen.ids) == len(set(seen.ids))
    assert text == gpushare("show", "--format", "html", intent, environment={"SOURCE_DATE_EPOCH": "1"}).stdout


@pytest.mark.parametrize("epoch", ["soon", "9" * 20, "1.5"])
def test_source_date_epoch_that_is_no_time_is_refused(epoch: str) -> None:
    done = gpushare("show", "--html", FIRST, environment={"SOURCE_DATE_EPOCH": epoch})
    assert (done.returncode, done.stdout) == (2, "")
    assert "SOURCE_DATE_EPOCH is no time" in done.stderr


def test_the_page_permits_its_own_style_and_script_alone() -> None:
    text = gpushare("show", "--html", FIRST).stdout
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in text.partition("<title>")[0]
    assert "default-src 'none'" in text
    assert not [tag for tag, found in Page(text).attributes if {"src", "style", "onclick"} & found.keys() or tag == "link"]


def test_hostile_texts_are_escaped_on_the_page() -> None:
    plan = pipeline.compile_intent(written(pool()).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    hostile = replace(plan, intent=replace(plan.intent, name=HOSTILE, namespace=HOSTILE))
    warning = Finding(code="GS999", message=HOSTILE, severity=Severity.WARNING)
    written_page = html.page(show.report(hostile, [warning]), WHEN)
    assert written_page.count("<script") == 1
    assert "<img" not in written_page
    assert "\u202e" not in written_page


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
    text = thousand("{matchLabels: {a: b%d}}")
    assert text.count('<details class="pool ') == 1
    assert len({one for one in Page(text).ids if one.startswith("pool-")}) == 1000
    assert len(text.encode()) < 500_000


def test_a_thousand_different_pools_fit_into_two_megabytes_and_are_folded() -> None:
    text = thousand("{matchLabels: {a: b%d}, expected: %d}")
    assert len(text.encode()) < 2_000_000
    assert " open>" not in text
    assert text.count('<details class="pool ') == 1000


@pytest.mark.parametrize("name", ["resource", "pool", "pod", "gpu", "e"])
def test_the_text_that_pods_share_gives_back_each_pod(name: str) -> None:
    """As the script of the page does, whatever the pool is called."""
    plan = pipeline.compile_intent(written(pool(name)).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    (one,) = plan.pools
    parts = (part for section in show.report(plan, []).sections for part in section.parts)
    (card,) = next(part.cards for part in parts if isinstance(part, Cards))
    assert card.snippet is not None
    pod = emit.yaml_text(readme.pod(one, card.snippet.resource, plan))
    assert card.snippet.text.replace("⟨pool⟩", name).replace("⟨resource⟩", card.snippet.resource) == pod


def test_a_warning_has_its_hints() -> None:
    plan = pipeline.compile_intent(written(pool()).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    warning = Finding(code="GS999", message="wrong", severity=Severity.WARNING, hints=("write `this`",))
    assert '<span class="hint">write <code>this</code></span>' in html.page(show.report(plan, [warning]), WHEN)


def test_modes_nodes_and_memory_are_shown() -> None:
    text = page(FIRST.read_text())
    shown = re.findall('<span class="tag mode m-([a-z-]+)">([a-z -]+)</span>', text)
    words = [("exclusive",) * 2, ("time-slicing",) * 2, ("mig-replicas", "mig with time-slicing"), ("mig",) * 2]
    assert shown == words
    assert sorted(re.findall('<li class="m-([a-z-]+)">([a-z -]+)</li>', text)) == sorted(words), "the legend"
    assert "Nodes: gpu-a100-01 and gpu-a100-02" in text
    assert "Nodes: node.example.org/gpu=v100" in text
    assert "Memory of 3 nodes: GPU memory 480 GiB, Offered 399 GiB, Caps 360.9 GiB, Stranded 81 GiB" in text
    assert "<dt>GPU memory</dt><dd>1748 GiB</dd>" in text


def test_without_a_number_of_nodes_memory_is_that_of_one_node() -> None:
    selector = "{matchExpressions: [{key: gpu, operator: In, values: [l4, t4]}]}"
    text = page(written(pool("a", nodes=selector), pool("b", nodes="{names: [n1]}")))
    assert "Nodes: gpu in (l4, t4)" in text
    assert "Memory of each node: GPU memory" in text
    assert re.search("<dt>GPU memory</dt><dd>[0-9.]+ GiB [+] [?]</dd>", text)


@pytest.mark.parametrize(
    ("platform", "stacks"),
    [("{stack: amd-gpu-operator}", "amd-gpu-operator"), ("{amd: {}}", "gpu-operator and amd-gpu-operator")],
)
def test_the_stack_of_each_vendor_is_named(platform: str, stacks: str) -> None:
    whole = "{mode: exclusive}"
    pools = [
        pool("a", "mi210", "{names: [n1]}", whole),
        *([pool("b", "l4", "{names: [n2]}", whole)] if "{amd" in platform else []),
    ]
    assert f"<dt>Stack</dt><dd>{stacks}</dd>" in page(written(*pools, platform=platform))
