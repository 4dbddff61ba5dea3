"""The catalogue's geometries, each structure once: 26 of the cards have the same seven slices under other names."""

from collections.abc import Callable

from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Geometry, MigProfile
from gpushare_node.contract.struct import replace

A100 = "a100-sxm4-40gb"


def geometry(card: str) -> Geometry:
    found = cards.load(card).mig
    assert found is not None
    return found


def with_mig() -> tuple[str, ...]:
    """The ids of all cards that MIG can divide."""
    return tuple(card for card in cards.ids() if cards.load(card).mig is not None)


def distinct() -> tuple[str, ...]:
    """One card for every structure: what the rule can see, which is everything but names and sizes in bytes."""
    first: dict[object, str] = {}
    for card in with_mig():
        own = geometry(card)
        rows = tuple((p.compute_slices, p.max_count, p.placements, p.engines, p.name.partition("gb")[2]) for p in own.profiles)
        limits = (own.max_instances, own.engine_totals, own.max_compute_instances, own.max_gfx_instances)
        first.setdefault((own.units, limits, rows), card)
    return tuple(first.values())


def only(own: Geometry, is_wanted: Callable[[MigProfile], bool]) -> Geometry:
    """The geometry with some of its profiles."""
    return replace(own, profiles=tuple(profile for profile in own.profiles if is_wanted(profile)))


def is_plain(profile: MigProfile) -> bool:
    return not profile.has_attributes


def is_base(profile: MigProfile) -> bool:
    """Neither attributes nor the 1g profile of double memory, which NVML counts as profile 9."""
    return not profile.has_attributes and profile.nvml_enum != 9
