"""The page of advice: what it says of each pool, and that no text of a cluster is more than text."""

import re

import pytest

from gpushare.report import advice as report
from gpushare.report import html as writer
from gpushare.resolved.plan import Plan
from gpushare.study.advice import distribution
from gpushare.study.advice.advised import Advice, PoolAdvice, Refusal
from gpushare.study.advice.history import ContainerUse, History
from gpushare_node.contract.struct import replace
from tests.compiler.report import advice as made
from tests.compiler.report.page import HOSTILE, Page

WHEN = "2026-01-01 00:00:00 UTC"


def page(advice: Advice, history: History, plan: Plan, diff: str = "") -> str:
    return writer.page(report.report(report.Found(advice=advice, history=history, plan=plan, diff=diff)), WHEN)


@pytest.fixture(scope="module")
def history() -> History:
    return made.history()


@pytest.fixture(scope="module")
def html(history: History) -> str:
    return page(made.advice(history), history, made.plan())


def section(html: str, pool: str) -> str:
    return html.partition(f'id="pool-{pool}"')[2].partition('<details class="pool')[0]


def rows(html: str) -> list[list[str]]:
    text = re.sub(r"</t[hd]><t[hd][^>]*>", "|", html)
    return [re.sub("<[^>]+>", "", one).split("|") for one in re.findall("<tr><th scope=.row.>(.*?)</tr>", text)]


def test_verdict_is_first(html: str) -> None:
    said = Page(html).text
    verdict = (
        "1 of 3 pools should change: 4 more shares per node, 2 fewer GPUs at the peak, 0.70 EUR/h saved. On the rest "
        "of the history, 1 of 34 containers would have been ended. The history says too little about 1 pool."
    )
    assert verdict in said
    assert said.index(verdict) < said.index("notebooks")


def test_before_and_after_of_a_pool_with_who_would_be_ended_and_the_limits(html: str) -> None:
    shown = section(html, "notebooks")
    assert rows(shown)[:8] == [
        ["Sharing", "time-slicing ×4", "time-slicing ×5"],
        ["Cap of a share", "3.637 GiB", "2.734 GiB"],
        ["Shares of a node", "16", "20"],
        ["GPUs for the peak that was learned", "9", "7"],
        ["Ended on the rest", "0 of 34 containers", "1 of 34 containers"],
        ["Endings for each container and week", "0 (0 to 0.25)", "0.069 (0.0017 to 0.38)"],
        ["Memory saved", "", "30 GiB"],
        ["Money saved", "", "0.70 EUR/h"],
    ]
    assert ["physics/pod-3/main", "advised", "2026-09-28T01:56Z", "2.832 GiB"] in rows(shown)
    assert "no upper bound in 2 namespaces with few containers: chemistry and physics" in shown
    of_namespace = next(row for row in rows(shown) if row[0] == "chemistry")
    assert (of_namespace[1], of_namespace[2].endswith("(0.00-?)"), of_namespace[3].endswith("-?)")) == ("4", True, True)


def test_pools_that_are_best_and_that_are_refused_say_so(html: str) -> None:
    assert '<span class="tag">best as it is</span>' in section(html, "lab")
    assert "Advised" not in section(html, "lab")
    refused = section(html, "training")
    assert "Nothing is advised: no container of the pool was measured." in refused
    assert "<svg" not in refused
    assert rows(refused)[0] == ["Sharing", "mig {1g.5gb: 7} ×2"]


def test_use_is_drawn_against_caps_with_gaps_and_the_split(html: str, history: History) -> None:
    shown = section(html, "notebooks")
    assert re.findall('<li class="k-([a-z0-9]+)">([^<]+)</li>', shown) == [
        ("most", "the most"),
        ("p95", "p95"),
        ("p50", "median"),
        ("now", "cap now: 3.637 GiB"),
        ("new", "cap advised: 2.734 GiB"),
    ]
    areas = re.findall('<path class="under k-[a-z0-9]+" d="([^"]+)"/>', shown)
    assert [area.count("M") for area in areas] == [2, 2, 2], "a gap of eight hours divides each"
    assert 'd="M336 0V100"' in shown, "seven of ten days"
    heights = {kind: int(y) for kind, y in re.findall('class="limit k-(now|new)" d="M0 ([0-9]+)H480"', shown)}
    assert heights == {"now": 3, "new": 100 - round(97 * 2800 / 3724)}
    assert "memory of a device" in section(html, "lab")


def test_what_the_source_says_is_listed(html: str) -> None:
    said = Page(html).text
    for text in ("used is negative", "all containers hold one share", "use is sampled every 600 s"):
        assert text in said
    assert "<code>partial</code> response" in html


def test_hostile_texts_are_escaped(history: History) -> None:
    plan = made.plan()
    hostile = replace(plan, intent=replace(plan.intent, name=HOSTILE))
    texts = replace(history, source=HOSTILE, warnings=(HOSTILE,), left_out=(HOSTILE,), assumed=(HOSTILE,))
    advice = made.advice(history)
    pools = tuple(replace(one, notes=(HOSTILE,)) for one in advice.pools)
    found = page(replace(advice, pools=pools, currency=HOSTILE, assumed=(HOSTILE,)), texts, hostile)
    assert found.count("<script") == 1
    assert "<img" not in found
    assert "\u202e" not in found
    assert not [tag for tag, own in Page(found).attributes if {"src", "style", "onclick"} & own.keys()]


def test_diff_of_the_intent_is_shown_as_text(history: History) -> None:
    diff = f"-  replicas: 4\n+  replicas: 5 # {HOSTILE}\n"
    found = page(made.advice(history), history, made.plan(), diff)
    assert "<code>-  replicas: 4\n+  replicas: 5 # " in found
    assert "<img" not in found
    assert "Change of the intent" not in page(made.advice(history), history, made.plan())


def test_ids_are_unique_and_every_page_is_bounded(html: str, history: History) -> None:
    seen = Page(html)
    assert len(seen.ids) == len(set(seen.ids))
    advice = made.advice(history)
    change = advice.pools[1].change
    assert change is not None
    many = replace(change, back_test=replace(change.back_test, endings=change.back_test.endings * 500))
    pools = (replace(advice.pools[1], change=many, distributions=advice.pools[1].distributions * 300),)
    found = page(replace(advice, pools=pools), history, made.plan())
    assert "and 450 more" in found
    assert len(found) < 80_000


def verdict_of(*pools: PoolAdvice) -> str:
    return report.verdict(Advice(learned=(0, 1), tested=(1, 2), pools=pools, currency="", assumed=()))


def test_verdicts(history: History) -> None:
    lab, notebooks, training = made.advice(history).pools
    assert verdict_of(training) == "Nothing is advised: the history says too little about every pool."
    assert verdict_of(lab) == "No pool should change."
    assert verdict_of(lab, training) == "No pool should change. The history says too little about 1 pool."
    change = notebooks.change
    assert change is not None
    same = replace(change, shares_after=16, gpus_after=9, saved_per_hour=None)
    assert verdict_of(replace(notebooks, change=same)).startswith("1 of 1 pool should change: other caps, with as many shares.")
    fewer = replace(change, shares_after=15, gpus_after=10, saved_per_hour=-0.5)
    assert "1 fewer share per node, 1 more GPU at the peak, 0.50/h more." in verdict_of(replace(notebooks, change=fewer))


def test_curve_has_the_most_of_each_container_in_each_interval() -> None:
    def use(pod: str, *points: tuple[int, int], pool: str = "notebooks") -> ContainerUse:
        return ContainerUse(namespace="a", pod=pod, container="c", pool=pool, device="", points=points)

    containers = (use("p", (0, 1), (10, 5), (20, 2), (60, 3)), use("q", (10, 9)), use("r", (10, 99), pool="other"))
    found = History(source="test", start=0, end=80, step_seconds=10, containers=containers)
    points = distribution.curve(found, "notebooks", 4)
    assert [point and (point.time, point.p50, point.p95, point.most) for point in points] == [
        (0, 5, 9, 9),
        (20, 2, 2, 2),
        None,
        (60, 3, 3, 3),
    ]
    assert len(distribution.curve(found, "notebooks", 1000)) == 8
    assert distribution.curve(found, "third", 2) == (None, None)


def test_nothing_measured_at_all_is_a_page(history: History) -> None:
    empty = replace(history, containers=())
    advice = made.advice(history)
    pools = tuple(
        PoolAdvice(pool=one.pool, distributions=(), change=None, refusal=Refusal.NO_USE, present=None, notes=())
        for one in advice.pools
    )
    found = page(replace(advice, pools=pools), empty, made.plan())
    assert "<svg" not in found
    assert "Nothing is advised" in found
