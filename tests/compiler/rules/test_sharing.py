"""What the device plugin's MPS daemon accepts."""

import pytest

from gpushare import rules
from gpushare.facts.catalog import cards
from gpushare.intent.types import Mps, TimeSlicing
from tests.compiler.resolved.builders import check, findings, pool

RULES = [rules.RULES[code] for code in ("GS301", "GS302")]


@pytest.mark.parametrize(
    ("card", "replicas", "is_too_many"),
    [("t4", 48, False), ("t4", 49, True), ("v100-sxm2-16gb", 16, False), ("v100-sxm2-16gb", 17, True)],
)
def test_mps_has_48_replicas_and_16_below_compute_capability_7_5(card: str, replicas: int, is_too_many: bool) -> None:
    expected = [("GS301", "/sharing/replicas", "value")] if is_too_many else []
    assert findings(RULES, pool(Mps(replicas=replicas), card)) == expected


def test_hint_states_the_maximum_number_of_replicas() -> None:
    (finding,) = check(RULES, pool(Mps(replicas=24), "v100-sxm2-16gb"))
    assert finding.message == "24 MPS replicas are more than a Tesla V100-SXM2-16GB allows"
    assert "replicas: 16" in finding.hints[1]


def test_a_card_without_mps_is_refused() -> None:
    assert findings(RULES, pool(Mps(replicas=2), "thor-igpu")) == [("GS302", "/sharing/mode", "value")]


@pytest.mark.parametrize("card", cards.ids())
def test_time_slicing_has_no_such_limit_on_any_card(card: str) -> None:
    assert "GS301" not in {code for code, _, _ in findings(RULES, pool(TimeSlicing(replicas=1024), card))}
