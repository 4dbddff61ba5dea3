"""`gpushare size`: its table, its intent, its document, and calls that are wrong."""

import json
from pathlib import Path

import pytest

from gpushare.catalog import cards
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


def test_the_intent_alone_passes_check(tmp_path: Path) -> None:
    done = gpushare("size", "--card", "t4", *ASKED, "--intent")
    assert (done.returncode, done.stderr) == (0, "")
    intent = tmp_path / "intent.yaml"
    intent.write_text(done.stdout)
    assert gpushare("check", intent).returncode == 0
    assert gpushare("compile", intent).returncode == 0


def test_too_few_nodes_and_too_small_a_card_are_exit_1() -> None:
    few = gpushare("size", "--card", "t4", *ASKED, "--nodes", "5")
    assert few.returncode == 1
    assert "14 nodes needed, the fewest; 5 do not suffice" in few.stdout
    told = gpushare("size", "--card", "t4", *ASKED, "--nodes", "5", "--intent")
    assert (told.returncode, told.stdout.splitlines()[0]) == (1, "apiVersion: gpushare.dev/v1")
    assert "5 do not suffice" in told.stderr
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
        (("--card", "t4", "--users", "0", "--memory", "4Gi"), "--users"),
        (("--card", "t4", "--users", "9" * 30, "--memory", "4Gi"), "--users"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    done = gpushare("size", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "\x1b" not in done.stderr


def test_equal_sizes_are_one_need() -> None:
    document = json.loads(gpushare("size", "--card", "t4", "--need", "4x4Gi", "--need", "3x4096Mi", "--format", "json").stdout)
    assert document["needs"] == [{"memoryBytes": 4 << 30, "users": 7}]
