"""Quantities, by the cases of apimachinery's own tests of resource.Quantity, and by what a real API server answers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare_node.contract import quantity
from tests.support.fake_api.quantities import canonical

PARSED = [
    ("0", 0),
    ("0n", 0),
    ("0u", 0),
    ("0m", 0),
    ("0Ki", 0),
    ("0k", 0),
    ("1", 1),
    ("1Ki", 1024),
    ("7Mi", 7 << 20),
    ("6Gi", 6 << 30),
    ("5Ti", 5 << 40),
    ("4Pi", 4 << 50),
    ("3Ei", 3 << 60),
    ("100Ti", 100 << 40),
    ("5n", Fraction(5, 10**9)),
    ("4u", Fraction(4, 10**6)),
    ("3m", Fraction(3, 1000)),
    ("8k", 8000),
    ("50k", 50_000),
    ("7M", 7 * 10**6),
    ("6G", 6 * 10**9),
    ("5T", 5 * 10**12),
    ("2P", 2 * 10**15),
    ("1E", 10**18),
    ("12E", 12 * 10**18),
    ("1E-3", Fraction(1, 1000)),
    ("1e3", 1000),
    ("1E6", 10**6),
    ("1E18", 10**18),
    ("100.035k", 100_035),
    ("0.0005k", Fraction(1, 2)),
    ("0.00500", Fraction(5, 1000)),
    ("0.5e-1", Fraction(5, 100)),
    ("1.3E+6", 1_300_000),
    ("7.123456M", 7_123_456),
    ("100.035Ki", Fraction(10_243_584, 100)),
    ("0.5Mi", 1 << 19),
    ("0.05Gi", Fraction(536_870_912, 10)),
    (".001", Fraction(1, 1000)),
    (".0001k", Fraction(1, 10)),
    ("1.", 1),
    ("1.G", 10**9),
    ("+1.5Gi", 3 << 29),
    ("3.001n", Fraction(4, 10**9)),
    ("1.1E-9", Fraction(2, 10**9)),
    ("0.0000000001", Fraction(1, 10**9)),
    ("0.00000012345", Fraction(124, 10**9)),
    ("0.000000000001Ki", Fraction(2, 10**9)),
    (8, 8),
    (0.5, Fraction(1, 2)),
]
NONE = [
    "",
    ".",
    "1.1.M",
    "1+1.0M",
    "0.1mi",
    "0.1am",
    "aoeu",
    ".5i",
    "1i",
    "1K",
    "1ki",
    "3.01e-",
    " 1",
    "1 ",
    "1 Mi",
    "1\n",
    "-1",
]
NONE += ["Mi", "0x10", "1e999", "NaN", "٣", "1" * 99]


@pytest.mark.parametrize(("text", "number"), PARSED, ids=str)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: object, number: Fraction | int) -> None:
    assert quantity.billionths(text) == number * 10**9


@pytest.mark.parametrize("text", [*NONE, None, True, [], {}, -1, float("nan")], ids=repr)
def test_what_is_no_quantity_is_none(text: object) -> None:
    assert quantity.billionths(text) is quantity.units(text) is quantity.whole(text) is None


@pytest.mark.parametrize(
    ("text", "units", "whole"), [("1k", 1000, 1000), ("1500m", 2, None), ("1000m", 1, 1), ("1n", 1, None), ("2Ki", 2048, 2048)]
)
def test_a_fraction_is_rounded_up_or_is_no_whole_number(text: str, units: int, whole: int | None) -> None:
    assert (quantity.units(text), quantity.whole(text)) == (units, whole)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (1000, "1k"),
        (1001, "1001"),
        (1024, "1024"),
        (1500, "1500"),
        (2000, "2k"),
        (10**6, "1M"),
    ],
)
def test_the_api_server_of_the_tests_answers_as_a_real_one(number: int, text: str) -> None:
    assert canonical(str(number)) == text


@given(st.integers(0, 10**30))
def test_what_the_api_server_answers_is_the_number_that_it_was_given(number: int) -> None:
    assert quantity.whole(canonical(str(number))) == number
