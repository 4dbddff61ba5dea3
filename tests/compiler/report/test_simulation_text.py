"""What a simulation says to people."""

from typing import Any

import pytest

from gpushare.intent.types import SharePlacement
from gpushare.report import simulation, text
from gpushare.report.terminal import Style
from gpushare.study.simulation.outcome import Bounds, Point, PoolOutcome, Simulated, SimulationOutcome, Simulations
from gpushare.study.simulation.supply import PoolSupply, Supply
from gpushare.study.workload.requests import LeftOut, PodRequest, Workload
from gpushare_node.contract.struct import replace

WIDE = Style(columns=200)
POINT = Point(time=3600, shares=3, asked_mib=6144, granted_mib=9216, nodes=1, gpus=1, pending=0)
POOL = PoolOutcome(
    name="notebooks",
    card="t4",
    nodes=2,
    is_open=False,
    shares=16,
    placed=9,
    pending={},
    waited_seconds=0,
    peak=POINT,
    points=(POINT,),
    gpu_hours=8.0,
    used_gpu_hours=2.0,
    stranded_mib=10_240,
    cost=4.0,
    is_hourly=False,
)
OUTCOME = SimulationOutcome(pools=(POOL,), unserved={}, bounds=None, end=7200, currency="EUR", cost=4.0, assumed=("one thing",))
WORKLOAD = Workload(source="pods.csv", pods=(PodRequest(namespace="a", name="b", milli=500),) * 9)


def simulated(file: str = "intent.yaml", outcome: SimulationOutcome = OUTCOME) -> Simulated:
    pools = tuple(
        PoolSupply(
            name=pool.name,
            card=pool.card,
            nodes=pool.nodes,
            gpus_per_node=2,
            gpu_mib=16_384,
            devices=(),
            placement=SharePlacement.SPREAD,
            namespaces=frozenset(),
            is_default=False,
            price=None,
        )
        for pool in outcome.pools
    )
    return Simulated(file=file, name="lab", supply=Supply(pools=pools, quotas={}), outcome=outcome)


def rendered(*intents: Simulated, workload: Workload = WORKLOAD, style: Style = WIDE) -> str:
    found = Simulations(workload=workload, scoring="least-allocated", intents=intents or (simulated(),))
    return text.render(simulation.report(found), style)


def changed(**changes: Any) -> SimulationOutcome:
    return replace(OUTCOME, pools=(replace(POOL, **changes),))


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (OUTCOME, "all 9 pods ran"),
        (changed(placed=1), "the pod ran"),
        (changed(waited_seconds=9000), "all 9 pods ran, after a mean wait of 16m40s"),
        (changed(pending={"it is full": 2}), "2 of 11 pods never ran: notebooks: it is full; the others ran"),
        (
            replace(changed(pending={"it is full": 2}, waited_seconds=1), unserved={"no card": 3}),
            "5 of 14 pods never ran: 3 because no card, and 1 further reason; the others ran, after a mean wait of 1s",
        ),
        (replace(changed(placed=0), unserved={"no card": 1200}), "1,200 of 1200 pods never ran: no card"),
    ],
)
def test_verdict_is_one_sentence(outcome: SimulationOutcome, verdict: str) -> None:
    assert simulation.verdict(simulated(outcome=outcome)) == verdict
    assert f"\n{verdict}\n" in rendered(simulated(outcome=outcome))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (59, "59s"), (3600, "1h"), (3661, "1h1m"), (90_000, "1d1h"), (86_405, "1d"), (605, "10m5s")],
)
def test_duration_has_two_units(seconds: int, shown: str) -> None:
    assert simulation.duration(seconds) == shown


def test_tables_have_the_numbers_of_each_pool() -> None:
    rows = [line.split() for line in rendered().splitlines()]
    assert ["notebooks", "t4", "2", "4", "16", "9", "0", "0s"] in rows
    assert ["notebooks", "1h", "3", "1", "6.0", "9.0", "10.0", "8.0", "25", "%", "4.00"] in rows
    assert "COST EUR" in rendered()


def test_unknown_numbers_and_pools_without_a_number_of_nodes() -> None:
    point = replace(POINT, granted_mib=None)
    unknown = changed(gpu_hours=None, used_gpu_hours=None, stranded_mib=None, cost=None, is_open=True, peak=point)
    shown = rendered(simulated(outcome=replace(unknown, end=None, cost=None)))
    rows = [line.split() for line in shown.splitlines()]
    assert ["notebooks", "t4", "2", "needed", "4", "16", "9", "0", "0s"] in rows
    assert ["notebooks", "1h", "3", "1", "6.0", "-", "-", "-", "-"] in rows
    assert "without an end" in shown
    assert "COST" not in shown


def test_workload_without_an_end_has_a_cost_per_hour() -> None:
    assert "COST PER HOUR EUR" in rendered(simulated(outcome=replace(changed(is_hourly=True, gpu_hours=None), end=None)))


def test_several_pools_are_added_up() -> None:
    pools = (POOL, replace(POOL, name="training", cost=1.5))
    shown = rendered(simulated(outcome=replace(OUTCOME, pools=pools, cost=5.5)))
    assert "in all: 4 nodes with 8 GPUs" in shown
    assert "cost in all: 5.50 EUR" in shown


def test_a_cost_that_is_not_known_is_a_question_mark_and_its_pool_is_named() -> None:
    pools = (replace(POOL, is_hourly=True), replace(POOL, name="training", cost=None))
    partly = simulated("other.yaml", replace(OUTCOME, pools=pools, cost=None))
    shown = rendered(partly)
    assert "cost in all: 4.00 EUR an hour, without training: the price is not known" in shown
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("training")][-1] == "?"
    compared = rendered(simulated(outcome=changed(is_hourly=True)), partly)
    assert [line.split()[-1] for line in compared.splitlines() if line.startswith("other.yaml  ")] == ["?"]
    assert "other.yaml: the price of training is not known." in compared


def test_intents_are_compared_with_the_first_and_differences_add_up() -> None:
    fewer = replace(changed(nodes=1, gpu_hours=4.06, waited_seconds=540), cost=2.004)
    shown = rendered(simulated(), simulated("other.yaml", fewer))
    rows = [line.split() for line in shown.splitlines()]
    assert ["intent.yaml", "0", "0s", "2", "4", "10.0", "8.0", "4.00"] in rows
    other = ["other.yaml", "0", "1m", "(+1m)", "1", "(-1)", "2", "(-2)", "10.0", "4.1", "(-3.9)", "2.00", "(-2.00)"]
    assert other in rows
    assert shown.index("intent.yaml: all 9 pods ran") < shown.index("In parentheses: the difference from intent.yaml.")
    assert shown.count("one thing") == 1


@pytest.mark.parametrize("other", [replace(OUTCOME, currency="USD"), changed(is_hourly=True)])
def test_costs_in_several_currencies_or_of_other_times_are_not_compared(other: SimulationOutcome) -> None:
    shown = rendered(simulated(), simulated("other.yaml", other))
    assert "Costs in several currencies, or of an hour and of a whole workload, are not compared." in shown
    comparison = shown[shown.index("INTENT") : shown.index("In parentheses")]
    assert "COST" not in comparison


def test_costs_of_intents_are_each_under_their_header() -> None:
    shown = rendered(simulated(), simulated("other.yaml", replace(OUTCOME, currency="USD")))
    assert shown.index("COST EUR") < shown.index("COST USD")


def test_bounds_are_a_sentence() -> None:
    shown = rendered(simulated(outcome=replace(OUTCOME, bounds=Bounds(lower=6087, free_sizes=6330, whole=7433))))
    assert "at least 6,087 with any layout, 6,330 by best fit if each GPU could be cut freely, 7,433 if every pod" in shown


def test_rows_left_out_are_grouped_by_reason_and_cut_off() -> None:
    alike = [LeftOut(line=line, column=3, reason="it asks for no GPU") for line in (2, 5, 7, 8, 9)]
    others = [LeftOut(line=20 + number, column=number, reason=f"reason {number}") for number in range(12)]
    shown = rendered(workload=replace(WORKLOAD, left_out=(*others, *alike), unused=("a", "b")))
    assert "left out: 17 of 26 rows\n  lines 2, 5, 7 and 2 more: it asks for no GPU\n  line 20: reason 0\n" in shown
    assert "  line 21, column 1: reason 1\n" in shown
    assert "  and 5 further reasons\n" in shown
    assert "columns not used: a and b" in shown


def test_names_from_outside_cannot_control_the_terminal() -> None:
    workload = replace(WORKLOAD, source="a\x1b[2Jb", left_out=(LeftOut(line=2, column=0, reason="\x1b[31m"),))
    outcome = replace(OUTCOME, unserved={"\x1b]0;x\x07": 1}, assumed=("\u202ex",))
    shown = rendered(simulated("\x1b[1m", outcome), simulated("b"), workload=workload)
    assert shown.replace("\n", "").isprintable()


def test_narrow_terminal_keeps_names_and_verdict() -> None:
    shown = rendered(style=Style(columns=50))
    assert "all 9 pods ran" in shown
    assert all(len(line) <= 50 for line in shown.splitlines())
