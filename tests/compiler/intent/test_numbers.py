"""The numbers of the Offer, worked out once more from the card files alone."""

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
import yaml

from gpushare import pipeline
from gpushare.core import resources
from gpushare.report.show import offer
from gpushare.vendors.nvidia import NVIDIA
from tests.compiler.intent.texts import intent, mig, pool

MIB = 1 << 20
CARDS = sorted(resources.cards(NVIDIA.catalogue).glob("*.yaml"))
FILES = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in CARDS}


def smallest(facts: dict[str, Any]) -> int | None:
    known = [size for size in (facts["memoryMiB"], *facts.get("memoryObservedMiB", ())) if size]
    return min(known, default=None)


def even(memory_mib: int, replicas: int) -> int:
    usable = memory_mib * MIB - max(ceil(Fraction(3, 100) * memory_mib * MIB), 256 * MIB)
    return usable // replicas // MIB


def offered(text: str) -> dict[str, Any]:
    plan = pipeline.check(text.encode(), "intent.yaml").plan
    assert plan
    pools: dict[str, Any] = offer(plan)["pools"]
    return dict(pools["p"])


@pytest.mark.parametrize("card", [card for card, facts in FILES.items() if smallest(facts)])
def test_every_card_of_known_memory_is_sliced_evenly(card: str) -> None:
    memory = smallest(FILES[card]) or 0
    got = offered(intent(pool(card=card, nodes="{matchLabels: {a: b}, expected: 3}")))
    assert got["resources"] == {"nvidia.com/gpu.shared": {"perNode": 16, "total": 48}}
    assert [device["gpu"] for device in got["devices"]] == [0, 1, 2, 3]
    assert {(device["memoryMiB"], device["capMiB"], device["replicas"]) for device in got["devices"]} == {
        (memory, even(memory, 4), 4)
    }


@pytest.mark.parametrize("card", [card for card, facts in FILES.items() if not smallest(facts)])
def test_card_of_unknown_memory_has_null_memory_in_the_offer(card: str) -> None:
    got = offered(intent(pool(card=card, memory="{cap: 3Gi}")))
    assert {(device["memoryMiB"], device["capMiB"]) for device in got["devices"]} == {(None, 3072)}
    assert got["nodes"] is None
    assert got["resources"]["nvidia.com/gpu.shared"]["total"] is None


@pytest.mark.parametrize(
    ("card", "profile"),
    [(card, row["name"]) for card, facts in FILES.items() for row in (facts.get("mig") or {"profiles": []})["profiles"]],
)
def test_every_profile_is_alone_on_its_card(card: str, profile: str) -> None:
    row = next(row for row in FILES[card]["mig"]["profiles"] if row["name"] == profile)
    memory = smallest(row)
    cap = "{cap: even}" if memory else "{cap: 1Gi}"
    got = offered(intent(mig(f"layout: {{{profile}: 1}}, replicas: 2", card=card, gpus="1", memory=cap)))
    (device,) = got["devices"]
    assert f"{device['start']}:{device['size']}" in row["placements"]
    assert (device["profile"], device["memoryMiB"]) == (profile, memory)
    assert device["capMiB"] == (even(memory, 2) if memory else 1024)
    assert got["resources"] == {f"nvidia.com/mig-{profile.replace('+', '.')}.shared": {"perNode": 2, "total": None}}


@pytest.mark.parametrize(
    ("sharing", "resources_per_node"),
    [
        ("layout: {1g.5gb: 7}, strategy: single", {"nvidia.com/gpu": 28}),
        ("layout: {1g.5gb: 7}, strategy: single, replicas: 2", {"nvidia.com/gpu.shared": 56}),
        ("layout: {1g.5gb: 7}, replicas: 2, rename: false", {"nvidia.com/mig-1g.5gb": 56}),
        (
            "layout: {2g.10gb: 2, 1g.5gb: 3}, replicas: {1g.5gb: 2}",
            {"nvidia.com/mig-1g.5gb.shared": 24, "nvidia.com/mig-2g.10gb": 8},
        ),
        (
            "layouts: [{gpus: [3, 0], layout: {3g.20gb: 2}}, {gpus: [1, 2], layout: none}], replicas: 4",
            {"nvidia.com/gpu": 2, "nvidia.com/mig-3g.20gb.shared": 16},
        ),
        ("goal: balanced", {"nvidia.com/mig-1g.5gb": 8, "nvidia.com/mig-2g.10gb": 4, "nvidia.com/mig-3g.20gb": 4}),
        ("goal: {instances: 2}", {"nvidia.com/mig-3g.20gb": 8}),
    ],
)
def test_resources_are_named_and_counted(sharing: str, resources_per_node: dict[str, int]) -> None:
    got = offered(intent(mig(sharing)))
    assert {name: counts["perNode"] for name, counts in got["resources"].items()} == resources_per_node


def test_mps_gives_each_client_an_equal_part_of_the_whole_memory() -> None:
    for cap in ("even", "3840Mi"):
        got = offered(intent(pool("{mode: mps, replicas: 4}", memory=f"{{cap: {cap}}}")))
        assert {device["capMiB"] for device in got["devices"]} == {15360 // 4}
