"""Rules on caps and on how they are held."""

from typing import Any

import pytest

from gpushare.core.units import MIB, SizeOrPercent
from gpushare.intent.types import CapWord, Exclusive, Mig, Mps, Pool, Sharing, TimeSlicing
from gpushare.rules import memory as memory_rules
from gpushare_node.contract.policy import Mechanism
from tests.compiler.resolved.builders import check, enforcement, findings, memory, pool, rules_of

RULES = rules_of(memory_rules)
T4_SLICED = TimeSlicing(replicas=4)
SEVEN = Mig(wanted=(("1g.5gb", 7),))
MIXED = Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)), replicas=(("1g.5gb", 2),))
CAP = "/memory/cap"


def codes(one: Pool) -> list[str]:
    return [code for code, *_ in findings(RULES, one)]


@pytest.mark.parametrize(
    ("cap_mib", "oversubscribe", "expected"),
    [(3724, 100, []), (3725, 100, ["GS501"]), (4655, 125, []), (4656, 125, ["GS501"]), (3724, 99, ["GS501"])],
)
def test_sum_of_caps_must_fit_the_usable_memory(cap_mib: int, oversubscribe: int, expected: list[str]) -> None:
    # 15360 MiB less 3 % is 14899.2 MiB.
    one = pool(T4_SLICED, "t4", **memory(cap=cap_mib * MIB, oversubscribe_percent=oversubscribe))
    assert findings(RULES, one) == [(code, CAP, "value") for code in expected]


def test_cap_finding_suggests_what_would_fit() -> None:
    (finding,) = check(RULES, pool(T4_SLICED, "t4", **memory(cap=6 << 30)))
    assert finding.message == "4 shares of 6Gi are more than the 14899Mi usable of Tesla T4"
    assert finding.hints == ("the largest cap for 4 replicas is 3724Mi", "6Gi fits twice")


def test_a_cap_of_several_profiles_is_reported_once_for_the_tightest() -> None:
    both = Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)), replicas=2)
    (finding,) = check(RULES, pool(both, **memory(cap=6 << 30)))
    assert (finding.code, "1g.5gb" in finding.message) == ("GS501", True)


def test_a_cap_by_profile_is_reported_at_its_profile() -> None:
    one = pool(MIXED, **memory(cap=(("1g.5gb", 2305 * MIB),)))
    assert findings(RULES, one) == [("GS501", f"{CAP}/1g.5gb", "value")]
    assert findings(RULES, pool(MIXED, **memory(cap=(("1g.5gb", 2200 * MIB),)))) == []


def test_custom_reserve_is_used_in_the_cap_check() -> None:
    assert codes(pool(T4_SLICED, "t4", **memory(cap=3840 * MIB, reserve=SizeOrPercent(bytes=0)))) == []


@pytest.mark.parametrize(
    ("sharing", "cap", "path", "at"),
    [
        (Exclusive(), 8 << 30, CAP, "value"),
        (Exclusive(), CapWord.NONE, CAP, "value"),
        (SEVEN, CapWord.EVEN, CAP, "value"),
        (MIXED, (("2g.10gb", 1 << 30),), f"{CAP}/2g.10gb", "key"),
        (MIXED, (("3g.20gb", 1 << 30),), f"{CAP}/3g.20gb", "key"),
        (T4_SLICED, (("1g.5gb", 1 << 30),), CAP, "value"),
    ],
)
def test_cap_without_sharing_is_refused(sharing: Sharing, cap: Any, path: str, at: str) -> None:
    assert findings(RULES, pool(sharing, **memory(cap=cap))) == [("GS502", path, at)]


@pytest.mark.parametrize(
    "reserve", [SizeOrPercent(bytes=15360 * MIB), SizeOrPercent(bytes=15358 * MIB), SizeOrPercent(percent_hundredths=10_000)]
)
def test_reserve_that_leaves_no_usable_memory_is_refused(reserve: SizeOrPercent) -> None:
    one = pool(T4_SLICED, "t4", **memory(reserve=reserve))
    assert findings(RULES, one) == [("GS509", "/memory/reserve", "value")]


def test_cap_without_a_unit_is_reported() -> None:
    one = pool(T4_SLICED, "t4", **memory(cap=3500))
    assert findings(RULES, one) == [("GS510", CAP, "value")]
    assert check(RULES, one)[0].hints == ("a bare number counts bytes; for MiB write 3500Mi",)


@pytest.mark.parametrize(
    ("card", "cap", "warns"),
    [("l40s", 4 << 30, True), ("l40s", None, False), ("l40s", CapWord.NONE, False), ("p100-pcie-16gb", None, True)],
)
def test_a_cap_that_mps_alone_cannot_hold_warns(card: str, cap: Any, warns: bool) -> None:
    one = pool(Mps(replicas=8), card, **memory(cap=cap), **enforcement(mechanism=Mechanism.MPS))
    found = [finding for finding in findings(RULES, one) if finding[0] != "GS302"]  # where MPS does not work at all
    assert found == ([("GS511", "/enforcement/mechanism", "value")] if warns else [])
    assert "GS511" not in codes(pool(Mps(replicas=8), card, **memory(cap=cap)))
