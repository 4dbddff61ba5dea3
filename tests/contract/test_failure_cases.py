"""docs/failure-cases.md is whole: each of its cases has a test that carries its number, or a reason why it has none."""

import re

from tests.support.paths import ROOT

UNTESTED = {58}

ROWS = {
    int(number): tests
    for number, tests in re.findall(
        r"^\| (\d+) \| .+? \| (.*?) ?\|$", (ROOT / "docs/failure-cases.md").read_text(), re.MULTILINE)
}


def test_the_page_has_every_case_once_and_in_order() -> None:
    assert list(ROWS) == list(range(1, len(ROWS) + 1))
    assert len(ROWS) > 75


def test_every_case_has_a_test_or_a_reason() -> None:
    assert {number for number, tests in ROWS.items() if "`test_" not in tests} == UNTESTED
    assert all(ROWS[number].startswith("none: ") for number in UNTESTED)


def test_no_test_carries_a_number_that_is_no_case() -> None:
    for path in (ROOT / "tests/node").rglob("test_*.py"):
        for number in re.findall(r"^def test_(?:case_)?(\d+)_[a-z]", path.read_text(), re.MULTILINE):
            assert int(number) in ROWS, f"{path.name}: {number}"
