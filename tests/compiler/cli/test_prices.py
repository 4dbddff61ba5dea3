"""Prices in `show` and `plan`: what a share, a pool and a change cost, and what is not known."""

import json
from pathlib import Path

import pytest

from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.compiler.rules.intents import pool, written
from tests.support.paths import ROOT

COUNTED = "{matchLabels: {a: b}, expected: 3}"
PRICES = "{t4: 0.35 EUR/h, hpc: 2 EUR/h}"


def intent(folder: Path, name: str = "intent.yaml", prices: str = PRICES, nodes: str = COUNTED) -> Path:
    """Four shares of each of twelve GPUs; seven instances of each of four; and whole GPUs whose number is not known."""
    mig = pool("hpc", "a100-sxm4-40gb", "{names: [n1]}", "{mode: mig, layout: {1g.5gb: 7}}")
    pools = (pool(nodes=nodes), mig, pool("open", "l4", "{matchLabels: {a: c}}", "{mode: exclusive}"))
    path = folder / name
    path.write_text(written(*pools, **({"prices": prices} if prices else {})))
    return path


def shown(path: Path, *more: object) -> dict[str, object]:
    document: dict[str, object] = json.loads(gpushare("show", path, "--format", "json", *more).stdout)
    assert schema.accepts(schema.load("offer.v1"), document)
    return document


def test_show_has_the_cost_of_pools_and_of_shares(tmp_path: Path) -> None:
    text = gpushare("show", intent(tmp_path)).stdout
    table = [line.split() for line in text.splitlines()[2:6]]
    assert [(row[0], row[-1]) for row in table] == [("POOL", "EUR/H"), ("hpc", "8.00"), ("notebooks", "4.20"), ("open", "?")]
    assert "cost: 12.20 EUR an hour, without open: price or number of nodes not known" in text
    assert [line.split()[-1] for line in text.splitlines() if "nvidia.com/" in line] == ["0.2857", "0.0875", "-"]
    document = shown(tmp_path / "intent.yaml")
    pools = document["pools"]
    assert isinstance(pools, dict)
    assert document["currency"] == "EUR"
    assert pools["notebooks"]["costPerShareHour"] == {"nvidia.com/gpu.shared": pytest.approx(0.35 / 4)}
    assert (pools["hpc"]["pricePerGpuHour"], pools["hpc"]["costPerHour"]) == (2, 8)
    assert (pools["open"]["pricePerGpuHour"], pools["open"]["costPerHour"]) == (None, None)
    page = gpushare("show", "--html", tmp_path / "intent.yaml").stdout
    assert "Cost per hour" in page
    assert "12.20 EUR + ?" in page


def test_show_without_prices_has_no_word_of_money(tmp_path: Path) -> None:
    path = intent(tmp_path, prices="")
    text = gpushare("show", path).stdout
    assert "cost" not in text.lower()
    assert "/H" not in text
    assert shown(path)["currency"] is None
    assert "Cost" not in gpushare("show", "--html", path).stdout


def test_a_file_of_prices_takes_the_place_of_those_of_the_intent(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("l4: 1/h\nnotebooks: 0.5/h\n")
    document = shown(intent(tmp_path), "--prices", tmp_path / "prices.yaml")
    pools = document["pools"]
    assert isinstance(pools, dict)
    found = {name: one["pricePerGpuHour"] for name, one in pools.items()}
    assert (document["currency"], found) == (None, {"hpc": None, "notebooks": 0.5, "open": 1})


def compared(*arguments: object) -> dict[str, object] | None:
    document = json.loads(gpushare("plan", "--format", "json", *arguments).stdout)
    assert schema.accepts(schema.load("plan.v1"), document)
    cost: dict[str, object] | None = document["cost"]
    return cost


def test_plan_has_the_cost_before_and_after(tmp_path: Path) -> None:
    counted = "{t4: 0.35 EUR/h, hpc: 2 EUR/h}"
    old = intent(tmp_path, "old.yaml", counted)
    new = intent(tmp_path, "new.yaml", counted, COUNTED.replace("3", "5"))
    cost = compared(old, new)
    assert cost is not None
    assert (cost["currency"], cost["before"], cost["after"]) == ("EUR", None, None), "the nodes of a pool are not known"
    assert cost["pools"] == {
        "hpc": {"before": 8, "after": 8},
        "notebooks": {"before": pytest.approx(4.2), "after": pytest.approx(7)},
        "open": {"before": None, "after": None},
    }
    text = gpushare("plan", old, new).stdout
    assert "EUR/H      BEFORE  AFTER  CHANGE\nnotebooks    4.20   7.00   +2.80\n\n" in text
    assert "| notebooks | 4.20 | 7.00 | +2.80 |" in gpushare("plan", "--format", "markdown", old, new).stdout
    assert "Cost of an hour" in gpushare("plan", "--html", old, new).stdout
    only = compared(old, new, "--pool", "notebooks")
    assert only is not None
    assert (only["before"], only["after"]) == (pytest.approx(4.2), pytest.approx(7))


def test_a_side_without_prices_has_those_of_the_other(tmp_path: Path) -> None:
    old, new = intent(tmp_path, "old.yaml", ""), intent(tmp_path, "new.yaml", nodes=COUNTED.replace("3", "5"))
    for pair in ((old, new), (new, old)):
        cost = compared(*pair)
        assert cost is not None
        assert cost["currency"] == "EUR"
    assert compared(old, old) is None
    gpushare("compile", new, "-o", tmp_path / "bundle")
    assert compared(old, tmp_path / "bundle") == compared(old, new)
    assert gpushare("plan", new, tmp_path / "bundle").stdout == "no changes\n"


def test_prices_in_other_currencies_are_not_compared(tmp_path: Path) -> None:
    old, new = intent(tmp_path, "old.yaml"), intent(tmp_path, "new.yaml", "{t4: 0.35 USD/h}", COUNTED.replace("3", "5"))
    assert compared(old, new) is None
    (tmp_path / "prices.yaml").write_text("t4: 1 CHF/h")
    cost = compared(old, new, "--prices", tmp_path / "prices.yaml")
    assert cost is not None
    assert cost["currency"] == "CHF"


def test_sums_of_a_plan_are_shown_if_all_is_known(tmp_path: Path) -> None:
    pools = [pool(nodes=COUNTED), pool("other", nodes="{names: [n1]}")]
    (tmp_path / "old.yaml").write_text(written(*pools, prices="{t4: 1/h}"))
    (tmp_path / "new.yaml").write_text(written(pools[0], prices="{t4: 1.25/h}"))
    text = gpushare("plan", tmp_path / "old.yaml", tmp_path / "new.yaml").stdout
    rows = [line.split() for line in text[text.index("COST/H") :].splitlines()[1:4]]
    expected = [
        ["notebooks", "12.00", "15.00", "+3.00"],
        ["other", "4.00", "0.00", "-4.00"],
        ["all", "pools", "16.00", "15.00", "-1.00"],
    ]
    assert rows == expected


def test_pools_for_virtual_machines_cost_their_gpus(tmp_path: Path) -> None:
    text = (ROOT / "examples/18-vgpu/intent.yaml").read_text()
    for name, price in (("old", "1/h"), ("new", "2/h")):
        (tmp_path / f"{name}.yaml").write_text(
            text.replace("spec:", f"spec:\n  prices: {{workstations: {price}, a10: 0.5/h}}", 1)
        )
    shown = gpushare("show", tmp_path / "old.yaml").stdout
    rows = {line.split()[0]: line.split()[-1] for line in shown.splitlines()[2:6]}
    assert rows == {"POOL": "COST/H", "desktops": "?", "notebooks": "3.00", "workstations": "4.00"}
    assert "cost: 7.00 an hour, without desktops" in shown
    cost = compared(tmp_path / "old.yaml", tmp_path / "new.yaml")
    assert cost is not None
    pools = cost["pools"]
    assert isinstance(pools, dict)
    assert pools["workstations"] == {"before": 4, "after": 8}


def test_plan_of_a_cluster_or_a_fleet_takes_no_prices(tmp_path: Path) -> None:
    done = gpushare("plan", "--live", intent(tmp_path), "--prices", "prices.yaml")
    assert (done.returncode, "--prices is not for --live" in done.stderr) == (2, True)
