"""Every decision of docs/decisions.md says when it was made, and whether it still holds."""

import datetime
import re

import pytest

from tests.support.paths import ROOT

DECISION = re.compile(r"^(\d+)\. .*(?:\n +\S.*)*", re.MULTILINE)
STATUS = re.compile(r"_(\d{4}-\d\d-\d\d), (?:accepted|superseded by (\d+))\._$")
DECISIONS = [(int(found[1]), found[0]) for found in DECISION.finditer((ROOT / "docs" / "decisions.md").read_text())]


def test_each_number_is_there_once() -> None:
    assert sorted(number for number, _ in DECISIONS) == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize(("number", "text"), DECISIONS, ids=[f"{number}" for number, _ in DECISIONS])
def test_a_decision_ends_in_its_date_and_its_status(number: int, text: str) -> None:
    found = STATUS.search(text)
    assert found is not None, f"end decision {number} in `_YEAR-MONTH-DAY, accepted._` or `…, superseded by N._`"
    datetime.date.fromisoformat(found[1])
    assert found[2] is None or number < int(found[2]) <= len(DECISIONS), f"{found[2]} is not a decision after {number}"
