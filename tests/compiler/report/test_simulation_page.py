"""`gpushare simulate --shown`: what the page has, whatever was simulated."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpushare.cli.commands import commands
from gpushare.intent.types import SharePlacement
from gpushare.report import html, simulation
from gpushare.study.simulation.outcome import Point, PoolOutcome, Simulated, SimulationOutcome, Simulations
from gpushare.study.simulation.supply import PoolSupply, Supply
from gpushare.study.workload.requests import LeftOut, PodRequest, Workload
from gpushare_node.contract.struct import replace
from tests.compiler.report.page import HOSTILE, Page
from tests.compiler.rules.intents import pool, written

WHEN = "2026-01-01 00:00:00 UTC"
POINT = Point(time=0, shares=0, asked_mib=0, granted_mib=0, nodes=0, gpus=0, pending=0)


def simulated(file: str = "intent.yaml", name: str = "notebooks", points: tuple[Point, ...] = (), pools: int = 1) -> Simulated:
    """Pools of two nodes with one GPU of 15 GiB each, and four shares."""
    found = tuple(f"{name}{number or ''}" for number in range(pools))
    supplies = tuple(
        PoolSupply(
            name=one,
            card="t4",
            nodes=2,
            gpus_per_node=1,
            gpu_mib=15360,
            devices=(),
            placement=SharePlacement.SPREAD,
            namespaces=frozenset(),
            is_default=False,
            price=None,
        )
        for one in found
    )
    peak = max(points or (POINT,), key=lambda point: point.shares)
    outcomes = tuple(
        PoolOutcome(
            name=one,
            card="t4",
            nodes=2,
            is_open=False,
            shares=8,
            placed=40,
            pending={},
            waited_seconds=0,
            peak=peak,
            points=points,
            gpu_hours=4.0,
            used_gpu_hours=2.0,
            stranded_mib=1024,
            cost=None,
            is_hourly=False,
        )
        for one in found
    )
    outcome = SimulationOutcome(
        pools=outcomes, unserved={}, bounds=None, end=7200, currency="", cost=None, assumed=("nothing else",)
    )
    return Simulated(file=file, name="lab", supply=Supply(pools=supplies, quotas={}), outcome=outcome)


def page(*intents: Simulated, workload: Workload | None = None) -> str:
    workload = workload or Workload(source="pods.csv", pods=(PodRequest(namespace="a", name="b"),))
    found = Simulations(workload=workload, scoring="least-allocated", intents=intents)
    return html.page(simulation.report(found), WHEN)


def steps(*shares: int, pending: int = 0) -> tuple[Point, ...]:
    """A point every hundred seconds; each share has 2 GiB of the 3 GiB that it provides."""
    return tuple(
        replace(POINT, time=100 * at, shares=one, asked_mib=2048 * one, granted_mib=3072 * one, pending=pending)
        for at, one in enumerate(shares)
    )


def test_page_has_what_the_text_and_the_document_say(tmp_path: Path) -> None:
    for name, nodes in (("intent", 2), ("other", 1)):
        text = written(pool(nodes=f"{{matchLabels: {{gpu: t4}}, expected: {nodes}}}"), prices="{t4: 0.5 EUR/h}")
        (tmp_path / f"{name}.yaml").write_text(text)
    rows = "".join(f"{2 + number % 2}Gi,{number},3h\n" for number in range(30))
    (tmp_path / "pods.csv").write_text(f"memory,arrival,duration\n{rows}99Gi,0,1h\n2GB,0,1h\n")
    files = [str(tmp_path / name) for name in ("intent.yaml", "pods.csv", "other.yaml")]
    call = ["simulate", files[0], "--workload", files[1], "--compare", files[2]]
    shown = CliRunner().invoke(commands, [*call, "--html"], standalone_mode=False, env={"SOURCE_DATE_EPOCH": "1"}).stdout
    document = json.loads(CliRunner().invoke(commands, [*call, "--format", "json"], standalone_mode=False).stdout)
    seen = Page(shown)
    for one in document["intents"]:
        assert one["file"] in seen.text
        assert f"{one['gpuHours']:,.1f}" in seen.text
        assert f"{one['cost']:,.2f}" in seen.text
        (each,) = one["pools"].values()
        assert f"Shares in use: at most {each['peak']['shares']} of {each['shares']}" in seen.text
    assert "1 of 31 pods never ran: no share has as much memory" in seen.text
    assert "Left out: 1 of 32 rows" in seen.text
    assert "Pods that wait: at most 14" in seen.text, "one node has sixteen shares"
    assert all(line in seen.text for line in document["intents"][0]["assumed"])
    assert seen.ids.count("pool-notebooks") == 1
    assert len(seen.ids) == len(set(seen.ids))
    assert "1970-01-01 00:00:01 UTC" in seen.text


def test_sides_of_a_pool_have_one_scale() -> None:
    """What is twice as much on one side is twice as high."""
    shown = page(simulated(points=steps(2, 0)), simulated("other.yaml", points=steps(4, 0)))
    before, after = re.findall(r'<path class="used stroke" d="M0 100H0V([0-9]+)', shown)
    assert 100 - int(after) == pytest.approx(2 * (100 - int(before)), abs=1)
    assert shown.count('class="offered stroke"') == 4


def test_pools_of_one_side_alone_are_shown() -> None:
    shown = page(simulated(points=steps(2, 0)), simulated("other.yaml", "training", points=steps(4, 0)))
    assert shown.count("no pool of this name") == 2


def test_only_waiting_pods_have_a_curve_of_waiting() -> None:
    assert "Pods that wait" not in page(simulated(points=steps(2, 0)))
    assert "Pods that wait: at most 3" in page(simulated(points=steps(2, 0, pending=3)))


def test_memory_that_is_not_known_has_no_curve() -> None:
    unknown = tuple(replace(point, granted_mib=None) for point in steps(2, 0))
    shown = page(simulated(points=unknown))
    assert 'class="granted' not in shown
    assert 'class="asked' in shown


def test_a_workload_that_stays_has_no_time_and_no_curves() -> None:
    shown = page(simulated(points=steps(2)))
    assert "<svg" not in shown
    assert "pool-notebooks" in shown


def test_ten_thousand_events_on_many_pools_are_a_page_of_bounded_size() -> None:
    busy = steps(*(number * 7919 % 9 for number in range(10_000)), pending=2)
    one = page(simulated(points=busy))
    assert len(one.encode()) < 120_000
    assert "at most 8 of 8" in one
    many = page(simulated(points=busy[:500], pools=100), simulated("other.yaml", points=busy[:500], pools=100))
    assert len(many.encode()) < 6_000_000
    assert many.count('<details class="pool"') == 60
    assert "and 40 pools more, without curves" in many


def test_hostile_texts_are_escaped_on_the_page() -> None:
    hostile = simulated(HOSTILE, HOSTILE, steps(1, 0))
    (only,) = hostile.outcome.pools
    lost = replace(only, pending={HOSTILE: 2}, card=HOSTILE)
    outcome = replace(hostile.outcome, pools=(lost,), unserved={HOSTILE: 1}, assumed=(HOSTILE,))
    workload = Workload(source=HOSTILE, pods=(), left_out=(LeftOut(line=1, column=1, reason=HOSTILE),), unused=(HOSTILE,))
    both = (replace(hostile, outcome=outcome, name=HOSTILE), simulated("other.yaml"))
    shown = page(*both, workload=workload)
    assert shown.count("<script") == 1
    assert "<img" not in shown
    assert "\u202e" not in shown
    assert not [
        tag for tag, found in Page(shown).attributes if {"src", "style", "onclick", "href"} & found.keys() and tag != "a"
    ]
