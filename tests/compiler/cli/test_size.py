"""`gpushare size`: its table, its intent, its document, and calls that are wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpushare.cli.commands import commands
from gpushare.cli.exits import CouldNotRunError
from gpushare.facts.catalog import cards
from gpushare.reading import schema
from tests.compiler.cli.process import gpushare

ASKED = ("--memory", "4Gi", "--users", "40")


@pytest.mark.parametrize("card", cards.ids())
def test_the_table_fits_the_terminal_and_the_document_its_schema(card: str) -> None:
    done = gpushare("size", "--card", card, *ASKED)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    document = json.loads(gpushare("size", "--card", card, *ASKED, "--format", "json").stdout)
    assert schema.accepts(schema.load("size.v1"), document)
    assert sum(option["best"] for option in document["options"]) == (document["intent"] is not None)


def test_printed_intent_passes_check(tmp_path: Path) -> None:
    done = gpushare("size", "--card", "t4", *ASKED, "--intent")
    assert (done.returncode, done.stderr) == (0, "")
    intent = tmp_path / "intent.yaml"
    intent.write_text(done.stdout)
    assert gpushare("check", intent).returncode == 0
    assert gpushare("compile", intent).returncode == 0


def test_too_few_nodes_and_a_too_small_card_exit_with_1() -> None:
    few = gpushare("size", "--card", "t4", *ASKED, "--nodes", "5")
    assert few.returncode == 1
    assert "14 nodes needed, the fewest; 5 are not enough" in few.stdout
    told = gpushare("size", "--card", "t4", *ASKED, "--nodes", "5", "--intent")
    assert (told.returncode, told.stdout.splitlines()[0]) == (1, "apiVersion: gpushare.dev/v1")
    assert "5 are not enough" in told.stderr
    small = gpushare("size", "--card", "t4", "--memory", "400Gi", "--users", "1", "--intent")
    assert (small.returncode, small.stdout) == (1, "")
    assert "less than 400Gi" in small.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--card", "a100", *ASKED), "nearest: a100-pcie-40gb"),
        (("--card", "t4", "--memory", "4Gi"), "neither users nor nodes"),
        (("--card", "t4", "--users", "4"), "what one user needs is not given"),
        (("--card", "t4", "--need", "4x4Gi", "--users", "4"), "--need is not for use with"),
        (("--card", "t4", "--need", "4Gi"), "is not NxSIZE"),
        (("--card", "t4", "--need", "0x4Gi"), "is not NxSIZE"),
        (("--card", "t4", "--need", "4x\x1b[31m"), "invalid quantity"),
        (("--card", "t4", "--need", "²x4Gi"), "is not NxSIZE"),
        (("--card", "t4", "--need", "999999x4Gi", "--need", "2x3Gi"), "users"),
        (("--card", "t4", *(word for gib in "12345" for word in ("--need", f"1x{gib}Gi"))), "sizes at most"),
        (("--card", "t4", "--users", "4", "--memory", "0"), "invalid quantity"),
        (("--card", "t4", "--users", "4", "--memory", "4GiB"), "4Gi"),
        (("--card", "t4", "--users", "4", "--memory", "4"), "a bare number counts bytes; for GiB write 4Gi"),
        (("--card", "t4", "--need", "4x16"), "for GiB write 16Gi"),
        (("--card", "t4", "--users", "0", "--memory", "4Gi"), "'--users': '0' is not a number from 1 to 1000000"),
        (("--card", "t4", "--users", "9" * 30, "--memory", "4Gi"), "is not a number from 1 to 1000000"),
        (("--card", "t4", "--users", "²", "--memory", "4Gi"), "is not a number from 1 to 1000000"),
        (("--card", "t4", *ASKED, "--gpus-per-node", "17"), "'17' is not a number from 1 to 16"),
        (("--card", "t4,l4", *ASKED), "write --card once for each card"),
        (("--card", "t4", "--card", "my-card", *ASKED), "--own-cards INTENT reads cards of your own"),
        (("--card", "t4", "--own-cards", "absent.yaml", *ASKED), "cannot read absent.yaml"),
    ],
)
def test_invalid_call_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    done = gpushare("size", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "\x1b" not in done.stderr


def test_equal_sizes_are_merged() -> None:
    document = json.loads(gpushare("size", "--card", "t4", "--need", "4x4Gi", "--need", "3x4096Mi", "--format", "json").stdout)
    assert document["needs"] == [{"memoryBytes": 4 << 30, "users": 7}]


def sized(*arguments: object) -> Result:
    """A call in this process."""
    return CliRunner().invoke(commands, ["size", *map(str, arguments)], standalone_mode=False)


def test_a_workload_of_equal_pods_gives_the_table_of_as_many_users(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text("memory,pool\n" + "4Gi,\n" * 39 + "4Gi,other\n4GB,\n")
    done = sized("--card", "t4", "--workload", tmp_path / "pods.csv")
    assert done.stdout == sized("--card", "t4", *ASKED).stdout
    assert done.return_value == 0
    assert "left out: line 42, column 1: memory" in done.stderr
    assert "assumed: pools and cards that pods name do not count\n" in done.stderr


def test_a_workload_of_pods_that_come_and_go_needs_less(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text("memory,arrival,duration\n9Gi,0,2\n9Gi,1,2\n9Gi,2,2\n9Gi,3,2\n")
    document = json.loads(sized("--card", "t4", "--workload", tmp_path / "pods.csv", "--format", "json").stdout)
    assert schema.accepts(schema.load("size.v1"), document)
    assert (document["needs"], document["options"][0]["nodesNeeded"]) == ([{"memoryBytes": 9 << 30, "users": 2}], 2)


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ("memory,share\n4Gi,\n,0.5\n", (), "1 of 2 pods do not ask for memory"),
        ("memory\n1Gi\n2Gi\n3Gi\n4Gi\n5Gi\n", (), "there are 5 sizes"),
        ("memory\n1Gi\n", ("--users", 3), "--workload is not for use with --memory, --users or --need"),
    ],
)
def test_a_workload_that_size_cannot_compare_is_refused(tmp_path: Path, rows: str, more: tuple[object, ...], said: str) -> None:
    (tmp_path / "pods.csv").write_text(rows)
    problem = sized("--card", "t4", "--workload", tmp_path / "pods.csv", *more).exception
    assert isinstance(problem, CouldNotRunError)
    assert said in str(problem)


def test_the_help_states_each_default_and_no_range_of_clicks() -> None:
    shown = gpushare("size", "--help").stdout
    assert "<=x<=" not in shown
    options = " ".join(shown[shown.index("Options:") :].split())
    for default in ("as many as fit on --nodes", "as many as are needed", "1.", "none.", "of all modes", "text."):
        assert f"Default: {default}" in options


def compared(*cards_named: str, asked: tuple[str, ...] = ASKED) -> dict[str, Any]:
    """The document of a comparison, which has the form that its schema says, and so has each card's."""
    named = [word for card in cards_named for word in ("--card", card)]
    document: dict[str, Any] = json.loads(gpushare("size", *named, *asked, "--format", "json").stdout)
    assert schema.accepts(schema.load("size-comparison.v1"), document)
    assert all(schema.accepts(schema.load("size.v1"), one) for one in document["cards"])
    return document


def test_several_cards_are_ordered_by_nodes_and_then_by_memory_left_over() -> None:
    document = compared("t4", "p4", "l4", "a100-sxm4-40gb", "l4", asked=("--memory", "9Gi", "--users", "40"))
    assert [one["card"] for one in document["cards"]] == ["a100-sxm4-40gb", "l4", "t4", "p4"]
    assert document["best"] == "a100-sxm4-40gb"
    left = compared("a40", "l40s", "a10", "l4", asked=("--memory", "20Gi", "--users", "2"))
    wasted = [next(way["wastedMiB"] for way in one["options"] if way["best"]) for one in left["cards"]]
    nodes = [next(way["nodesNeeded"] for way in one["options"] if way["best"]) for one in left["cards"]]
    assert list(zip(nodes, wasted, strict=True)) == sorted(zip(nodes, wasted, strict=True))


def test_a_comparison_shows_each_cards_best_way_and_the_intent_of_the_best_card() -> None:
    named = ("--card", "t4", "--card", "p4", "--card", "l4", "--memory", "9Gi", "--users", "40")
    done = gpushare("size", *named)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("*  ", "   "))]
    assert [row[:3] for row in rows[1:3]] == [["*", "l4", "time-slicing"], ["t4", "exclusive", "1"]]
    assert "   p4: exclusive: a GPU has" in done.stdout
    assert "Costs are not compared without --prices" in done.stdout
    intent = gpushare("size", *named, "--intent").stdout
    assert "card: l4" in intent
    assert done.stdout.endswith(intent)


PRICES = "t4: 0.35 EUR/h\nl4: 0.60 EUR/h\na10: 1 EUR/h\n"


def test_cards_with_prices_are_ordered_by_cost(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES.replace("0.60", "0.70"))
    asked = (*ASKED, "--prices", str(tmp_path / "prices.yaml"))
    document = compared("l4", "a10", "t4", asked=asked)
    costs = [next(way["costPerHour"] for way in one["options"] if way["best"]) for one in document["cards"]]
    assert ([one["card"] for one in document["cards"]], document["comparedBy"]) == (["t4", "l4", "a10"], "cost")
    assert costs == pytest.approx([0.35 * 14, 0.70 * 8, 8])
    assert {(one["currency"], one["pricePerGpuHour"]) for one in document["cards"]} == {("EUR", 0.35), ("EUR", 0.7), ("EUR", 1)}
    shown = gpushare("size", "--card", "l4", "--card", "t4", *asked).stdout
    assert "The least cost comes first" in shown
    assert "best: t4, time-slicing: the fewest nodes" in shown
    assert "cost: 4.90 EUR an hour, 14 GPUs at 0.35 EUR/h" in shown
    assert [line.split()[-1] for line in shown.splitlines()[2:5]] == ["EUR/H", "4.90", "5.60"]


def test_without_the_number_of_users_the_cost_of_one_counts(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES)
    asked = ("--memory", "4Gi", "--nodes", "1", "--prices", str(tmp_path / "prices.yaml"))
    document = compared("a10", "l4", "t4", asked=asked)
    assert [one["card"] for one in document["cards"]] == ["t4", "l4", "a10"], "0.35 of 3 users, 0.60 and 1 of 5"


def test_a_card_without_a_price_is_compared_by_nodes(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("t4: 0.01/h")
    asked = (*ASKED, "--prices", str(tmp_path / "prices.yaml"))
    document = compared("l4", "t4", asked=asked)
    assert ([one["card"] for one in document["cards"]], document["comparedBy"]) == (["l4", "t4"], "nodes")
    assert "Costs are not compared, because l4 has no price" in gpushare("size", "--card", "l4", "--card", "t4", *asked).stdout


def test_a_price_of_no_card_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("training: 1/h")
    done = gpushare("size", "--card", "t4", *ASKED, "--prices", tmp_path / "prices.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no card 'training'" in done.stderr


def test_users_that_fit_on_no_card_exit_with_1() -> None:
    done = gpushare("size", "--card", "t4", "--card", "l4", "--memory", "400Gi", "--users", "1")
    assert (done.returncode, "nothing fits on any of these cards" in done.stdout) == (1, True)
    document = compared("t4", "l4", asked=("--memory", "400Gi", "--users", "1"))
    assert document["best"] is None


def test_custom_card_is_sized_and_described_in_the_intent(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text('spec:\n  cards:\n    lab: {name: NVIDIA Lab, computeCapability: "8.6", memoryMiB: 12288}\n')
    done = gpushare("size", "--card", "lab", "--own-cards", own, "--memory", "3Gi", "--users", "9", "--intent")
    assert done.returncode == 0
    intent = tmp_path / "intent.yaml"
    intent.write_text(done.stdout)
    assert gpushare("check", intent).returncode == 0
    assert "lab" in gpushare("size", "--card", "t4", "--card", "lab", "--own-cards", own, *ASKED).stdout
    assert gpushare("size", "--card", "lab", "--own-cards", intent, *ASKED).returncode == 0, "an intent that size printed"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("\n    lab: {name: X, computeCapability: 8.6, memoryMiB: 12288}", "own.yaml:3:39: computeCapability must be a"),
        ('\n    t4: {name: X, computeCapability: "8.6", memoryMiB: 12288}', "own.yaml:3:5: the catalogue has a card t4"),
        (" {lab: [}", "own.yaml:2:"),
        (" 7", "has no cards of its own"),
        ("", "has no cards of its own"),
    ],
)
def test_invalid_custom_cards_are_reported_with_their_position(tmp_path: Path, section: str, said: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"spec:\n  cards:{section}\n")
    done = gpushare("size", "--card", "lab", "--own-cards", own, *ASKED)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
