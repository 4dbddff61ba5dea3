"""Rules on caps and on how they are held."""

from typing import Any

import pytest

from gpushare.diagnostics import Severity
from gpushare.intent import Action, CapWord, Exclusive, Mechanism, Mig, Mps, Pool, Sharing, TimeSlicing
from gpushare.rules import enforcement as enforcement_rules
from gpushare.rules import memory as memory_rules
from gpushare.units import MIB, Share
from tests.planning.sketches import enforcement, findings, judged, memory, pool

RULES = (*memory_rules.RULES, *enforcement_rules.RULES)
T4_SLICED = TimeSlicing(replicas=4)
SEVEN = Mig(wanted=(("1g.5gb", 7),))
SEVEN_TWICE = Mig(wanted=(("1g.5gb", 7),), replicas=2)
MIXED = Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)), replicas=(("1g.5gb", 2),))
CAP = "/memory/cap"


def codes(one: Pool) -> list[str]:
    return [code for code, *_ in findings(RULES, one)]


@pytest.mark.parametrize(
    ("cap_mib", "oversubscribe", "expected"),
    [(3724, 100, []), (3725, 100, ["GS501"]), (4655, 125, []), (4656, 125, ["GS501"]), (3724, 99, ["GS501"])],
)
def test_caps_together_stay_within_what_is_usable(cap_mib: int, oversubscribe: int, expected: list[str]) -> None:
    # 15360 MiB less 3 % is 14899.2 MiB.
    one = pool(T4_SLICED, "t4", **memory(cap=cap_mib * MIB, oversubscribe_percent=oversubscribe))
    assert findings(RULES, one) == [(code, CAP, "value") for code in expected]


def test_what_would_fit_is_named() -> None:
    (finding,) = judged(RULES, pool(T4_SLICED, "t4", **memory(cap=6 << 30)))
    assert finding.message == "4 shares of 6Gi are more than the 14899Mi usable of Tesla T4"
    assert finding.hints == ("the largest cap for 4 replicas is 3724Mi", "6Gi fits twice")


def test_a_cap_of_several_profiles_is_reported_once_for_the_tightest() -> None:
    both = Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)), replicas=2)
    (finding,) = judged(RULES, pool(both, **memory(cap=6 << 30)))
    assert (finding.code, "1g.5gb" in finding.message) == ("GS501", True)


def test_a_cap_by_profile_is_reported_at_its_profile() -> None:
    one = pool(MIXED, **memory(cap=(("1g.5gb", 2305 * MIB),)))
    assert findings(RULES, one) == [("GS501", f"{CAP}/1g.5gb", "value")]
    assert findings(RULES, pool(MIXED, **memory(cap=(("1g.5gb", 2200 * MIB),)))) == []


def test_a_reserve_of_ones_own_counts() -> None:
    assert codes(pool(T4_SLICED, "t4", **memory(cap=3840 * MIB, reserve=Share(bytes=0)))) == []


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
def test_a_cap_where_nothing_is_shared_is_refused(sharing: Sharing, cap: Any, path: str, at: str) -> None:
    assert findings(RULES, pool(sharing, **memory(cap=cap))) == [("GS502", path, at)]


@pytest.mark.parametrize(
    ("given", "path"),
    [({}, "/memory"), (memory(cap=CapWord.EVEN), CAP), (memory(oversubscribe_percent=120), CAP)],
)
def test_even_of_an_unknown_memory_is_refused_also_by_default(given: dict[str, Any], path: str) -> None:
    assert findings(RULES, pool(T4_SLICED, "p40", **given)) == [("GS503", path, "value")]


@pytest.mark.parametrize("cap", [5 << 30, CapWord.NONE])
def test_another_cap_needs_no_known_memory(cap: Any) -> None:
    assert codes(pool(T4_SLICED, "p40", **memory(cap=cap))) == []


def test_an_instance_of_unknown_memory_is_named() -> None:
    sharing = Mig(wanted=(("1g.12gb", 7),), replicas=2)
    (finding,) = judged(RULES, pool(sharing, "h100-sxm5-94gb"))
    assert (finding.code, "1g.12gb of an H100" in finding.message) == ("GS503", True)


@pytest.mark.parametrize(
    ("sharing", "given", "path"),
    [
        (TimeSlicing(replicas=32), {}, "/sharing/replicas"),
        (TimeSlicing(replicas=2), memory(cap=511 * MIB), CAP),
        (Mig(wanted=(("1g.5gb", 7),), replicas=(("1g.5gb", 10),)), {}, "/sharing/replicas/1g.5gb"),
    ],
)
def test_a_small_cap_warns(sharing: Sharing, given: dict[str, Any], path: str) -> None:
    card = "a100-sxm4-40gb" if isinstance(sharing, Mig) else "t4"
    one = pool(sharing, card, **given)
    assert findings(RULES, one) == [("GS504", path, "value")]
    assert judged(RULES, one)[0].severity is Severity.WARNING


def test_512_mib_are_enough() -> None:
    assert codes(pool(TimeSlicing(replicas=2), "t4", **memory(cap=512 * MIB))) == []


def test_driver_limits_are_refused_on_mig_alone() -> None:
    driver = enforcement(mechanism=Mechanism.DRIVER)
    assert findings(RULES, pool(SEVEN_TWICE, **driver)) == [("GS505", "/enforcement/mechanism", "value")]
    assert codes(pool(T4_SLICED, "t4", **driver)) == []


def test_mps_limits_are_refused_outside_mps() -> None:
    mps = enforcement(mechanism=Mechanism.MPS)
    assert findings(RULES, pool(T4_SLICED, "t4", **mps)) == [("GS506", "/enforcement/mechanism", "value")]
    assert codes(pool(Mps(replicas=4), "t4", **mps)) == []


@pytest.mark.parametrize(("cap_mib", "expected"), [(3725, []), (3840, []), (3841, ["GS507"])])
def test_an_mps_cap_is_no_larger_than_what_the_daemon_gives(cap_mib: int, expected: list[str]) -> None:
    one = pool(Mps(replicas=4), "t4", **memory(cap=cap_mib * MIB))
    assert findings(RULES, one) == [(code, CAP, "value") for code in expected]


def test_even_is_always_legal_under_mps() -> None:
    assert codes(pool(Mps(replicas=4), "t4", **memory(cap=CapWord.EVEN))) == []


def test_oversubscribing_does_not_lift_the_daemons_limit() -> None:
    assert codes(pool(Mps(replicas=4), "t4", **memory(cap=3840 * MIB, oversubscribe_percent=200))) == []
    assert codes(pool(Mps(replicas=4), "t4", **memory(cap=3841 * MIB, oversubscribe_percent=200))) == ["GS507"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (enforcement(action=Action.EVICT), "/enforcement"),
        (memory(oversubscribe_percent=150), "/memory/oversubscribe"),
        (memory(reserve=Share(bytes=MIB)), "/memory/reserve"),
    ],
)
def test_settings_of_sharing_warn_where_nothing_is_shared(given: dict[str, Any], path: str) -> None:
    one = pool(Exclusive(), **given)
    assert findings(RULES, one) == [("GS508", path, "value")]
    assert judged(RULES, one)[0].severity is Severity.WARNING
    assert codes(pool(T4_SLICED, "t4", **given)) == []


def test_a_reserve_in_a_mig_pool_has_an_effect_on_goals() -> None:
    assert codes(pool(SEVEN, **memory(reserve=Share(bytes=MIB)))) == []


@pytest.mark.parametrize("reserve", [Share(bytes=15360 * MIB), Share(bytes=15358 * MIB), Share(percent_hundredths=10_000)])
def test_a_reserve_that_leaves_nothing_is_refused(reserve: Share) -> None:
    one = pool(T4_SLICED, "t4", **memory(reserve=reserve))
    assert findings(RULES, one) == [("GS509", "/memory/reserve", "value")]


def test_a_bare_number_is_taken_for_a_forgotten_unit() -> None:
    one = pool(T4_SLICED, "t4", **memory(cap=3500))
    assert findings(RULES, one) == [("GS510", CAP, "value")]
    assert judged(RULES, one)[0].hints == ("a bare number counts bytes; for MiB write 3500Mi",)


@pytest.mark.parametrize(
    ("card", "cap", "warns"),
    [("l40s", 4 << 30, True), ("l40s", None, False), ("l40s", CapWord.NONE, False), ("p100-pcie-16gb", None, True)],
)
def test_a_cap_that_mps_alone_cannot_hold_warns(card: str, cap: Any, warns: bool) -> None:
    one = pool(Mps(replicas=8), card, **memory(cap=cap), **enforcement(mechanism=Mechanism.MPS))
    assert findings(RULES, one) == ([("GS511", "/enforcement/mechanism", "value")] if warns else [])
    assert "GS511" not in codes(pool(Mps(replicas=8), card, **memory(cap=cap)))
