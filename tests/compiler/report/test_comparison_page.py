"""`gpushare plan --html`: it says what the sheet says, whatever the texts are, and stays small."""

import json
from pathlib import Path

import pytest
import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.compare import compare
from gpushare.compare import sides as sides_of
from gpushare.facts.catalog import cards
from gpushare.report import comparison, html
from tests.compiler.cli.process import gpushare
from tests.compiler.report.page import HOSTILE, Page
from tests.compiler.rules.intents import pool, written
from tests.support import scale
from tests.support.paths import ROOT

FIRST = ROOT / "examples/01-heterogeneous/intent.yaml"
CHANGES = {
    "layout": ("{2g.10gb: 2, 1g.5gb: 3}", "{3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}"),
    "replicas": ("replicas: 4", "replicas: 8"),
    "renamed": ("hpc:", "full:"),
    "quota": ("memory: 28Gi", "memory: 900Gi"),
    "moved": ("names: [gpu-a100-01, gpu-a100-02]", "names: [gpu-a100-01]"),
    "card": ("card: v100-pcie-32gb", "card: l4"),
    "namespace": ("spec:\n", "spec:\n  namespace: elsewhere\n"),
    "cap": ("2200Mi", "2000Mi"),
    "enforcement": ("memory: {cap: even}", "memory: {cap: even}\n      enforcement: {grace: 60s}"),
    "observe": ("spec:\n", "spec:\n  adoption: observe\n"),
}


@pytest.fixture
def changed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The first example with one change, or with all that can be made together."""
    text = FIRST.read_text()
    for old, new in [CHANGES[request.param]] if request.param in CHANGES else list(CHANGES.values())[:4]:
        assert old in text
        text = text.replace(old, new)
    text = text.replace("{hpc: 8", "{full: 8") if "full:" in text else text
    path = tmp_path / "new.yaml"
    path.write_text(text)
    return path


def bare_words(text: str) -> set[str]:
    """The page has a tag and a card where the sheet has a comma between them."""
    return {word.rstrip(",") for word in text.replace("→", "->").split()}


@pytest.mark.parametrize("changed", [*CHANGES, "all"], indirect=True)
def test_page_and_text_output_agree(changed: Path) -> None:
    """Word by word, arrows aside: the sheet draws no maps, and tells equal changes of several pools together."""
    seen = Page(gpushare("plan", "--html", FIRST, changed).stdout)
    found = bare_words(seen.text)
    said = gpushare("plan", FIRST, changed, environment={"COLUMNS": "400"}).stdout
    # The summary's numbers are facts of the page, of which the rest has its own words.
    said = said.replace(next(line for line in said.splitlines() if line.startswith("Pools: ")), "")
    headings = {
        "CAPACITY",
        "BEFORE",
        "AFTER",
        "CHANGE",
        "NAMESPACE",
        "QUOTA",
        "ON",
        "NODE",
        "FROM",
        "TO",
        "POOL",
        "PODS",
        "DISTURBED",
        "ORDER",
        "CLUSTER",
        "FILES",
        "INTENT",
        "+",
        "-",
        "!",
        "~",
        "each",
        "and",
        "more",
    }
    assert bare_words(said) - headings <= found
    assert len(seen.ids) == len(set(seen.ids))


@pytest.mark.parametrize("changed", ["all"], indirect=True)
def test_page_is_deterministic(changed: Path) -> None:
    surroundings = [{"PYTHONHASHSEED": seed, "SOURCE_DATE_EPOCH": "0"} for seed in ("1", "2", "3")]
    pages = {gpushare("plan", "--format", "html", FIRST, changed, environment=one).stdout for one in surroundings}
    (html,) = pages
    assert "As of 1970-01-01 00:00:00 UTC." in html


@pytest.mark.parametrize("changed", ["layout"], indirect=True)
def test_kept_instances_stay_in_place_and_others_are_marked(changed: Path) -> None:
    html = gpushare("plan", "--html", FIRST, changed).stdout
    before, after = (part.split("</ol>")[0] for part in html.split('<ol class="map m-mig">')[1:])
    assert before.count("<li") == 6
    assert before.count("<b>gone</b>") == 4
    assert 'class="unused"' in before
    assert after.count("<b>new</b>") == 3
    # The 2g.10gb that stays is drawn first on both sides.
    assert before.split("</li>")[0] == after.split("</li>")[0]


def test_plan_without_changes_is_stated_as_such() -> None:
    html = gpushare("plan", "--html", FIRST, FIRST).stdout
    assert "No changes: both sides are equal." in html
    assert "<details" not in html


def test_live_plan_refuses_html() -> None:
    done = gpushare("plan", "--live", "--html", FIRST)
    assert done.returncode == 2
    assert "--live writes text or json, of all pools" in done.stderr


def sides(*texts: str) -> list[pipeline.Compilation]:
    found = [pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY) for text in texts]
    assert all(one.plan for one in found), [one.findings for one in found]
    return found


def test_bundle_texts_are_escaped_on_the_page(tmp_path: Path) -> None:
    """An attacker may have written anything that the schemas permit into a bundle: each of its names in turn."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, FIRST.read_text()), (new, FIRST.read_text().replace("replicas: 4", "replicas: 8"))):
        (tmp_path / "intent.yaml").write_text(text)
        gpushare("compile", tmp_path / "intent.yaml", "-o", folder)
    intent, policies = yaml.safe_load((new / "intent.yaml").read_text()), new / "chart/files/policies"
    pools = intent["spec"]["pools"]
    pools["hpc"]["card"], pools["training"]["nodes"] = HOSTILE, {"names": [HOSTILE]}
    (new / "intent.yaml").write_text(yaml.safe_dump(intent, allow_unicode=True))
    for name in ("hpc", "notebooks"):
        policy = yaml.safe_load((policies / f"{name}.yaml").read_text())
        policy["spec"]["card"]["id"] = HOSTILE
        resource = policy["spec"]["shares"][0]["resource"]
        policy["spec"]["resources"][f"nvidia.com/{HOSTILE}"] = policy["spec"]["resources"].pop(resource)
        policy["spec"]["shares"][0]["resource"] = f"nvidia.com/{HOSTILE}"
        (policies / f"{name}.yaml").write_text(yaml.safe_dump(policy, allow_unicode=True))
    values = yaml.safe_load((new / "chart/values.yaml").read_text())
    (new / "chart/values.yaml").write_text(json.dumps(values | {"global": {HOSTILE: HOSTILE}}))
    html = gpushare("plan", "--html", old, new).stdout
    assert html.count("<script") == 1
    assert "<img" not in html
    assert "\u202e" not in html
    assert html.count("alert(1)") > 8, "it is there, as text"


def change_of_many(*layouts: str, **more: str) -> str:
    """The page of the change from one layout to the next of many pools; in `more`, `%d` is the number of the pool."""

    def department(number: int, layout: str) -> str:
        fields = {name: value.replace("%d", str(number + 1)) for name, value in more.items()}
        return pool(
            f"department-{number:04}-training",
            card="a100-sxm4-40gb",
            sharing=f"{{mode: mig, layout: {layout}}}",
            **{"nodes": f"{{matchLabels: {{a: b{number}}}}}", **fields},
        )

    old, new = sides(*(written(*(department(number, layout) for number in range(MANY))) for layout in layouts))
    assert old.plan is not None
    assert new.plan is not None
    compared = sides_of.of_plan(old.plan), sides_of.of_plan(new.plan)
    catalog = cards.Catalog()
    found = comparison.report(compare(*compared, catalog.geometry), compared, catalog)
    return html.page(found, "2026-01-01 00:00:00 UTC")


MANY = 500 if scale.is_long else 150
LAYOUTS = ("{2g.10gb: 2, 1g.5gb: 3}", "{3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}")


def test_many_equal_changes_have_one_card_that_names_the_pools() -> None:
    html = change_of_many(*LAYOUTS)
    assert html.count('<details class="pool ') == 1
    assert len({one for one in Page(html).ids if one.startswith("pool-")}) == MANY
    assert len(html.encode()) < 500 * MANY


def test_many_different_changes_take_two_kilobytes_each() -> None:
    html = change_of_many(*LAYOUTS, nodes="{matchLabels: {a: b%d}, expected: %d}")
    assert html.count('<details class="pool ') == MANY
    assert len(html.encode()) < 2_000 * MANY


@pytest.mark.parametrize("changed", ["replicas"], indirect=True)
def test_tag_is_the_change_without_duplicated_text(changed: Path) -> None:
    html = gpushare("plan", "--html", FIRST, changed).stdout
    assert '<span class="tag">relabelled</span>' in html
    assert "Pools: " not in Page(html).text, "the summary: its numbers are the facts above it"


@pytest.mark.parametrize("changed", ["layout"], indirect=True)
def test_folded_pool_shows_the_number_of_disturbed_pods(changed: Path) -> None:
    html = gpushare("plan", "--html", FIRST, changed).stdout
    (heading,) = (part.split("</summary>")[0] for part in html.split("<summary><h3>training")[1:])
    assert "at most 32 pods disturbed" in heading


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ("layout", "At most 32 running pods are disturbed; no new pod is refused."),
        ("quota", "No running pod is disturbed; 1 quota no longer fits."),
        ("observe", "The adoption changes, for every node; no new pod is refused."),
        ("enforcement", "Caps are enforced differently, for running containers too; no new pod is refused."),
        ("renamed", "No running pod is disturbed; new pods that select a removed pool find no node."),
    ],
    indirect=["changed"],
)
def test_the_page_begins_with_what_is_disturbed_and_refused(changed: Path, sentence: str) -> None:
    html = gpushare("plan", "--html", FIRST, changed).stdout
    assert f'<p class="verdict">{sentence}</p>' in html
    assert html.index('class="verdict"') < html.index('class="facts"')


def test_a_changed_mode_and_its_memory_are_shown(tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(FIRST.read_text().replace("mode: time-slicing, replicas: 4", "mode: mps, replicas: 8"))
    html = gpushare("plan", "--html", FIRST, tmp_path / "new.yaml").stdout
    assert '<span class="tag mode m-time-slicing">time-slicing</span> → <span class="tag mode m-mps">mps</span>' in html
    assert [html.count(f'<ol class="map m-{mode}">') for mode in ("time-slicing", "mps")] == [1, 1]
    assert "Nodes: node.example.org/gpu=t4" in html
    assert "Caps 174.6 GiB → 180 GiB" in html
    assert "Memory of the cluster" in html
