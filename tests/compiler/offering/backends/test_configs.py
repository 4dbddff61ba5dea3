"""The upstream configs of a pool: what they say, and that their names are their content."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from gpushare.bundle.lock import EMPTY
from gpushare.facts.catalog import cards
from gpushare.intent.types import (
    Exclusive,
    Layout,
    LayoutGroup,
    Mig,
    MigStrategy,
    Mps,
    Platform,
    Pool,
    SharePlacement,
    Sharing,
    TimeSlicing,
)
from gpushare.offering import modes
from gpushare.offering.backends.device_plugin import mig_strategy_of_config
from gpushare.offering.partitioners import mig_parted
from gpushare.render import bundle_files
from gpushare_node.contract.policy import Partitioner
from gpushare_node.contract.struct import replace
from tests.compiler.resolved.builders import memory, plan, planned, pool

SEVEN: Layout = (("1g.5gb", 7),)
WITH_MEDIA: Layout = (("1g.5gb+me", 1), ("1g.5gb", 6))
HALVES = (LayoutGroup(gpus=(0, 2), layout=SEVEN), LayoutGroup(gpus=(3, 1), layout=()))
MIG_MANAGER = Platform(partitioner=Partitioner.MIG_MANAGER)

SHARINGS: list[Sharing] = [
    Exclusive(),
    TimeSlicing(replicas=4),
    TimeSlicing(replicas=4, rename=False, placement=SharePlacement.PACK),
    Mps(replicas=8),
    Mig(wanted=WITH_MEDIA),
    Mig(wanted=WITH_MEDIA, replicas=2),
    Mig(wanted=WITH_MEDIA, replicas=(("1g.5gb+me", 3),), rename=False),
    Mig(wanted=HALVES, replicas=2),
    Mig(wanted=SEVEN, strategy=MigStrategy.SINGLE),
    Mig(wanted=SEVEN, strategy=MigStrategy.SINGLE, replicas=2),
]


def test_a_time_slicing_config_is_complete() -> None:
    assert planned(pool(TimeSlicing(replicas=4, placement=SharePlacement.PACK))).profile.config == {
        "version": "v1",
        "flags": {"migStrategy": "none", "plugin": {"sharedDevicesAllocationPolicy": "packed"}},
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
            },
        },
    }


def test_an_exclusive_config_shares_nothing() -> None:
    assert planned(pool(Exclusive())).profile.config == {"version": "v1", "flags": {"migStrategy": "none"}}


def test_an_mps_config_names_its_root_and_no_mig() -> None:
    config = planned(pool(Mps(replicas=8))).profile.config
    assert config["flags"]["mpsRoot"] == "/run/nvidia/mps"
    assert config["flags"]["migStrategy"] == "none"
    assert list(config["sharing"]) == ["mps"]


def test_only_replicated_profiles_are_listed_in_the_plugins_spelling() -> None:
    config = planned(pool(Mig(wanted=WITH_MEDIA, replicas=(("1g.5gb+me", 3),)))).profile.config
    assert config["sharing"]["timeSlicing"]["resources"] == [{"name": "nvidia.com/mig-1g.5gb.me", "replicas": 3}]


def test_whole_gpus_beside_mig_are_never_replicated() -> None:
    resources = planned(pool(Mig(wanted=HALVES, replicas=2))).profile.config["sharing"]["timeSlicing"]["resources"]
    assert [resource["name"] for resource in resources] == ["nvidia.com/mig-1g.5gb"]


def test_single_replicates_the_one_resource_that_it_has() -> None:
    config = planned(pool(Mig(wanted=SEVEN, strategy=MigStrategy.SINGLE, replicas=2))).profile.config
    assert config["flags"]["migStrategy"] == "single"
    assert config["sharing"]["timeSlicing"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 2}]


def values(document: Any) -> Iterator[Any]:
    yield document
    if isinstance(document, Mapping):
        for value in document.values():
            yield from values(value)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from values(value)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_no_config_breaks_the_plugins_rules(sharing: Sharing) -> None:
    one = planned(pool(sharing))
    config = one.profile.config
    assert config["version"] == "v1"
    assert set(config) <= {"version", "flags", "sharing"}
    assert all(value not in (None, {}, [], "") for value in values(config))
    how = config.get("sharing", {"none": {"resources": []}})
    assert len(how) == 1
    names = [resource["name"] for resource in next(iter(how.values()))["resources"]]
    assert len(set(names)) == len(names)
    offered = {resource.name.removesuffix(".shared") for resource in one.resources}
    assert set(names) <= offered
    assert all(re.fullmatch(r"nvidia\.com/[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name) and len(name) <= 56 for name in names)
    assert all(resource["replicas"] >= 2 for how_ in how.values() for resource in how_["resources"])
    assert re.fullmatch(rf"{one.mode.value}-[0-9a-f]{{8}}", one.profile.key)


def test_pools_that_share_alike_share_a_profile() -> None:
    one = planned(pool(TimeSlicing(replicas=4), "t4", "one", gpus=8, **memory(cap=1 << 30)))
    other = planned(pool(TimeSlicing(replicas=4), "l40s", "other"))
    assert one.profile == other.profile


def test_different_config_content_has_a_different_profile() -> None:
    keys = {planned(pool(sharing)).profile.key for sharing in SHARINGS}
    # Two MIG pools with the same replicated profiles differ in layout only, which the plugin's config does not hold.
    assert len(keys) == len(SHARINGS)


def test_a_changed_cap_changes_no_profile() -> None:
    small, large = (planned(pool(TimeSlicing(replicas=2), **memory(cap=cap << 30))) for cap in (4, 8))
    assert small.devices != large.devices
    assert small.profile == large.profile


def test_mig_pools_with_other_layouts_and_no_replicas_share_a_profile() -> None:
    assert planned(pool(Mig(wanted=SEVEN))).profile == planned(pool(Mig(wanted=WITH_MEDIA))).profile


def mig_config(one: Pool) -> Any:
    return planned(one, platform=MIG_MANAGER).mig_config


def test_mig_parted_covers_every_gpu_once_and_spells_profiles_as_nvml_does() -> None:
    config = mig_config(pool(Mig(wanted=HALVES)))
    assert config.entries == (
        {"devices": [0, 2], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
        {"devices": [1, 3], "mig-enabled": False},
    )
    assert re.fullmatch("mig-[0-9a-f]{8}", config.name)


def test_mig_parted_config_uses_all_for_equal_gpus() -> None:
    entries = mig_config(pool(Mig(wanted=WITH_MEDIA))).entries
    assert entries == ({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 6, "1g.5gb+me": 1}},)


def test_groups_with_one_layout_in_another_order_are_one_entry() -> None:
    groups = (LayoutGroup(gpus=(0, 1), layout=WITH_MEDIA), LayoutGroup(gpus=(2, 3), layout=WITH_MEDIA[::-1]))
    assert mig_config(pool(Mig(wanted=groups))) == mig_config(pool(Mig(wanted=WITH_MEDIA)))


def test_non_mig_pool_on_a_mig_card_is_all_disabled() -> None:
    config = mig_config(pool(TimeSlicing(replicas=2)))
    assert (config.name, config.entries) == ("all-disabled", ({"devices": "all", "mig-enabled": False},))


def test_a_card_without_mig_has_no_mig_parted_config() -> None:
    assert mig_config(pool(Exclusive(), "t4")) is None


@pytest.mark.parametrize(("supported", "name"), [(True, "all-disabled"), (None, None), (False, None)])
def test_mig_card_with_unknown_profiles_is_all_disabled(supported: bool | None, name: str | None) -> None:
    card = replace(cards.load("b100"), mig_supported=supported)
    config = mig_parted.config(pool(Exclusive()), card, ((),))
    assert (config.name if config else None) == name


def test_our_own_partitioner_has_no_mig_parted_config() -> None:
    assert planned(pool(Mig(wanted=SEVEN))).mig_config is None


NONE, MPS, MIXED = Exclusive(), Mps(replicas=2), Mig(wanted=SEVEN)
SINGLE = replace(MIXED, strategy=MigStrategy.SINGLE)


@pytest.mark.parametrize(
    ("sharings", "strategy"),
    [
        ([NONE], "mixed"),
        ([NONE, MIXED], "mixed"),
        ([MPS], "none"),
        ([MPS, NONE], "none"),
        ([SINGLE, NONE], "single"),
        ([SINGLE, MPS], "single"),
        ([MIXED, MPS], None),
        ([MIXED, SINGLE], None),
        ([MIXED, SINGLE, MPS], None),
    ],
)
def test_the_operator_gets_one_strategy_where_one_suits_all_pools(sharings: list[Sharing], strategy: str | None) -> None:
    pools = [pool(sharing, name=f"pool-{at}") for at, sharing in enumerate(sharings)]
    assert plan(*pools).operator_mig_strategy == strategy


@pytest.mark.parametrize(
    ("config", "strategy"),
    [
        ({"version": "v1"}, None),
        ({"version": "v1", "flags": {}}, None),
        ({"version": "v1", "flags": {"migStrategy": "none"}}, None),
        ({"version": "v1", "flags": {"migStrategy": "single"}}, "single"),
        ({"version": "v1", "sharing": {"mps": {"resources": []}}}, "none"),
    ],
)
def test_locked_config_states_its_required_strategy(config: dict[str, Any], strategy: str | None) -> None:
    assert mig_strategy_of_config(config) == strategy


SHARED: tuple[Sharing, ...] = (Exclusive(), TimeSlicing(replicas=4), MPS, MIXED, SINGLE)


def suits(strategy: str | None, config: Mapping[str, Any]) -> bool:
    """Whether the plugin offers with the operator's setting what the config says. Without a setting the config's own counts."""
    if "mps" in config.get("sharing", {}):
        return strategy != "mixed"
    own = config["flags"]["migStrategy"]
    return strategy is None or own in ("none", strategy)


@pytest.mark.parametrize("first", SHARED, ids=lambda sharing: type(sharing).__name__)
def test_a_strategy_suits_every_node_that_has_not_followed_yet(first: Sharing) -> None:
    """Over three bundles in every order: a node may still have a profile of the first when the third changes the operator."""
    for others in product(SHARED, repeat=2):
        before = EMPTY
        for sharing in (first, *others):
            now = plan(pool(sharing), lock=before)
            before = bundle_files.next_lock(now, before)
            assert all(suits(now.operator_mig_strategy, config) for config in before.profiles.every().values()), (first, others)
        needed = {modes.of(pool(sharing)).mig_strategy for sharing in (first, *others)}
        assert (now.operator_mig_strategy is None) is ("mixed" in needed and bool(needed & {"none", "single"}))
