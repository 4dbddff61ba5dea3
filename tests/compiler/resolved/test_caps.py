"""Memory arithmetic."""

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.core.units import MIB, SizeOrPercent
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import usable_bytes
from gpushare.intent.types import CapWord, Exclusive, Mig, Mps, TimeSlicing
from gpushare.offering import shares
from tests.compiler.resolved.builders import A100, enforcement, memory, pool

T4 = cards.load("t4")
SLICED = TimeSlicing(replicas=4)


def profile(card: str, name: str) -> cards.MigProfile:
    mig = cards.load(card).mig
    assert mig
    return next(profile for profile in mig.profiles if profile.name == name)


def test_a_quarter_of_a_t4_is_3724_mib() -> None:
    assert shares.cap_mib(pool(SLICED, "t4"), T4, None, 4) == 3724


def test_the_default_reserve_of_a_small_instance_is_256_mib() -> None:
    assert usable_bytes(4864, None) == (4864 - 256) * MIB
    assert shares.cap_mib(pool(Mig(wanted=(), replicas=2)), cards.load(A100), profile(A100, "1g.5gb"), 2) == 2304


@given(st.integers(1, 1 << 20), st.integers(2, 1024))
def test_even_cap_is_exact_for_any_numbers(memory_mib: int, replicas: int) -> None:
    kept = max(Fraction(memory_mib * MIB * 3, 100), Fraction(256 * MIB))
    exact = max(floor((memory_mib * MIB - kept) / replicas / MIB), 0)
    usable = usable_bytes(memory_mib, None)
    assert usable is not None
    assert max(usable, 0) // (replicas * MIB) == exact


@pytest.mark.parametrize(
    ("reserve", "usable_mib"),
    [(SizeOrPercent(bytes=1 << 30), 14336), (SizeOrPercent(bytes=0), 15360), (SizeOrPercent(percent_hundredths=5000), 7680)],
)
def test_custom_reserve_replaces_the_default(reserve: SizeOrPercent, usable_mib: int) -> None:
    assert usable_bytes(15360, reserve) == usable_mib * MIB


def test_mps_divides_the_whole_memory_as_its_daemon_does() -> None:
    assert shares.cap_mib(pool(Mps(replicas=4), "t4", **memory(reserve=SizeOrPercent(bytes=1 << 30))), T4, None, 4) == 3840


@pytest.mark.parametrize("memory_mib", [None, 0])
def test_unknown_memory_has_no_usable_bytes(memory_mib: int | None) -> None:
    assert usable_bytes(memory_mib, None) is None


def test_even_cap_of_unknown_memory_is_none() -> None:
    assert shares.cap_mib(pool(SLICED, "l2"), cards.load("l2"), None, 4) is None


@pytest.mark.parametrize(
    ("cap", "expected"),
    [(2 * 10**9, 1907), (3500 * MIB, 3500), (CapWord.NONE, None), (CapWord.EVEN, 3724)],
)
def test_cap_is_rounded_down_to_whole_mib(cap: int | CapWord, expected: int | None) -> None:
    assert shares.cap_mib(pool(SLICED, "t4", **memory(cap=cap)), T4, None, 4) == expected


def test_an_unshared_device_has_no_cap() -> None:
    assert shares.cap_mib(pool(Exclusive(), "t4"), T4, None, 1) is None


def test_a_profile_that_a_map_leaves_out_gets_even() -> None:
    mixed = pool(Mig(wanted=(), replicas=2), **memory(cap=(("2g.10gb", 3 << 30),)))
    card = cards.load(A100)
    assert shares.cap_mib(mixed, card, profile(A100, "2g.10gb"), 2) == 3072
    assert shares.cap_mib(mixed, card, profile(A100, "1g.5gb"), 2) == 2304


@given(st.integers(1, 200_000), st.integers(0, 10_000))
def test_tolerance_is_rounded_up(cap_mib: int, hundredths: int) -> None:
    tolerant = pool(SLICED, **enforcement(tolerance=SizeOrPercent(percent_hundredths=hundredths)))
    assert shares.tolerance_mib(tolerant, cap_mib) == ceil(Fraction(cap_mib * hundredths, 10_000))


def test_a_tolerance_in_bytes_is_rounded_up_to_a_mib() -> None:
    assert shares.tolerance_mib(pool(SLICED, **enforcement(tolerance=SizeOrPercent(bytes=MIB + 1))), 1000) == 2


@pytest.mark.parametrize("contexts", [1, 2, 16])
def test_a_client_that_fills_the_limit_of_mps_is_within_its_cap(contexts: int) -> None:
    """Measured: the limit leaves out 2 MiB of each context, which the driver lists."""
    served = pool(Mps(replicas=4))
    limit = shares.cap_mib(served, cards.load(A100), None, 4)
    assert limit is not None
    assert limit + 2 * contexts <= limit + shares.tolerance_mib(served, limit)


def test_a_larger_tolerance_counts_under_mps() -> None:
    assert shares.tolerance_mib(pool(Mps(replicas=4), **enforcement(tolerance=SizeOrPercent(bytes=100 * MIB))), 1000) == 100


def test_memory_quota_counts_only_whole_shares() -> None:
    assert shares.shares_for(56 << 30, 3724) == 15
