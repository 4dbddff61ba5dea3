"""The shipped card files: form, provenance, and rules that hold for every card whatever its file says."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpushare.core import resources
from gpushare.facts.catalog import card_check, cards
from gpushare.reading import schema, source
from gpushare.vendors.nvidia import NVIDIA

IDS = tuple(card_id for card_id in cards.ids() if cards.load(card_id).vendor == "nvidia")
WITH_MIG = tuple(card_id for card_id in IDS if cards.load(card_id).mig)
REQUIRED = {
    "id",
    "name",
    "product",
    "architecture",
    "chip",
    "computeCapability",
    "memoryMiB",
    "memoryGBNominal",
    "pciDeviceIds",
    "formFactor",
    "ecc",
    "nvlink",
    "mps",
    "migSupported",
    "provenance",
}
GROUPS = {
    "identity": {"id", "name", "product", "nameAliases", "architecture", "chip", "pciDeviceIds", "deviceFilters"},
    "memory": {"memoryMiB", "memoryObservedMiB"},
    "board": {"formFactor", "ecc", "nvlink", "timeSlicing"},
    "mig.support": {
        "migSupported",
        "mig.minDriver",
        "mig.layoutDrivers.profiles",
        "mig.layoutDrivers.minDriver",
        "mig.maxInstances",
        "mig.maxComputeInstances",
        "mig.maxGfxInstances",
    },
    "mig.profiles": {f"mig.profiles.{key}" for key in ("name", "nvmlEnum", "profileId", "computeSlices", "maxCount")},
    "mig.placements": {"mig.units", "mig.profiles.placements"},
    "mig.memory": {"mig.profiles.memoryMiB", "mig.profiles.memoryObservedMiB"},
    "mig.engines": {
        f"mig.{where}.{key}"
        for where in ("engineTotals", "profiles")
        for key in ("sm", "copy", "decoders", "encoders", "jpeg", "ofa")
    },
    "mps": {"mps.supported", "mps.maxReplicas"},
    "vgpu": {"vgpu.types.name", "vgpu.types.maxCount", "vgpu.refused"},
}
GROUP_OF = {field: group for group, fields in GROUPS.items() for field in fields}
SEVEN_SLICES = {"1g": 19, "1g+me": 20, "1g double": 15, "2g": 14, "3g": 9, "4g": 5, "7g": 0}
NOT_FACTS = {"provenance", "unconfirmed", "note"}


def read(path: Path) -> Any:
    text = source.read(path.read_bytes(), path.name)
    assert text.findings == ()
    return text.data


@cache
def document(card_id: str) -> Mapping[str, Any]:
    data: Mapping[str, Any] = read(resources.cards(NVIDIA.catalogue) / f"{card_id}.yaml")
    return data


@cache
def sources() -> Mapping[str, str]:
    data: Mapping[str, str] = read(resources.cards(NVIDIA.catalogue).parent / "sources.yaml")
    return data


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every fact of a card file, by its dotted path; list items have the path of their list."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key not in NOT_FACTS:
                yield from leaves(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for below in value:
            yield from leaves(below, path)
    elif value is not None:
        yield path, value


def test_shipped_cards_are_never_removed() -> None:
    """Intents name cards by id, so a card once shipped stays; a new one needs no change here."""
    assert len(IDS) >= 62


@pytest.mark.parametrize("card_id", IDS)
def test_a_card_file_has_the_form_and_every_field(card_id: str) -> None:
    card = document(card_id)
    assert schema.violations(card, "card.v1", ()) == []
    assert card["id"] == card_id
    assert set(card) >= REQUIRED


@pytest.mark.parametrize("card_id", IDS)
def test_every_fact_of_a_card_has_a_source(card_id: str) -> None:
    card = document(card_id)
    provenance = card["provenance"]
    missing = {path for path, _ in leaves(card) if GROUP_OF.get(path, path) not in provenance}
    assert missing - set(card.get("unconfirmed", {})) == set()
    assert {path for path, value in leaves(card) if isinstance(value, int) and not isinstance(value, bool)} & missing == set()
    assert set(provenance) <= {GROUP_OF.get(path, path) for path, _ in leaves(card)} | {"note"}


@pytest.mark.parametrize("card_id", IDS)
def test_every_source_of_a_card_is_cited(card_id: str) -> None:
    assert set(cards.load(card_id).sources) <= set(sources())


@pytest.mark.parametrize("card_id", IDS)
def test_facts_only_from_publications_are_marked_unconfirmed(card_id: str) -> None:
    card = document(card_id)
    guessed = {group for group, keys in card["provenance"].items() if keys == "kn"}
    marked = {GROUP_OF.get(field, field) for field in card.get("unconfirmed", {})}
    assert guessed <= marked


@pytest.mark.parametrize("card_id", IDS)
def test_every_fact_that_was_not_confirmed_is_marked(card_id: str) -> None:
    expected = json.loads((Path(__file__).parent / "unconfirmed.json").read_text()).get(card_id, {})
    card = document(card_id)
    mig = card.get("mig", {})
    assert set(expected.get("card", ())) <= set(card.get("unconfirmed", {}))
    assert set(expected.get("mig", ())) <= set(mig.get("unconfirmed", {}))
    for field, count in expected.get("profiles", {}).items():
        assert sum(field in profile.get("unconfirmed", ()) for profile in mig["profiles"]) == count


@pytest.mark.parametrize("card_id", IDS)
def test_mps_replicas_follow_the_compute_capability(card_id: str) -> None:
    card = cards.load(card_id)
    assert card.mps_max_replicas == (48 if card.compute_capability and card.compute_capability >= (7, 5) else 16)


@pytest.mark.parametrize("card_id", IDS)
def test_product_label_equals_gfds_label(card_id: str) -> None:
    card = cards.load(card_id)
    assert card.product == "-".join(re.sub(r"[^A-Za-z0-9-_. ]", "", card.name).split())
    assert cards.product_label(card.name) == card.product


@pytest.mark.parametrize("card_id", IDS)
def test_a_shipped_card_does_not_contradict_itself(card_id: str) -> None:
    assert card_check.inconsistencies(document(card_id), (), mps_limit=cards.load(card_id).mps_max_replicas) == []


@pytest.mark.parametrize("card_id", [card_id for card_id in WITH_MIG if cards.load(card_id).memory_mib])
def test_profile_names_follow_from_the_share_of_the_grid(card_id: str) -> None:
    """The formula in floating point, from placement sizes: it names profiles of unknown memory too."""
    card = cards.load(card_id)
    assert card.mig is not None
    assert card.memory_mib is not None
    for profile in card.mig.profiles:
        share = math.ceil(8 * profile.placements[0].size / card.mig.units) / 8
        assert f"g.{math.floor(share * math.ceil(card.memory_mib / 1024) + 0.5)}gb" in profile.name


@pytest.mark.parametrize("card_id", [card_id for card_id in WITH_MIG if document(card_id)["mig"]["units"] == 8])
def test_seven_slice_cards_have_the_seven_ids_and_the_usual_placements(card_id: str) -> None:
    mig = cards.load(card_id).mig
    assert mig is not None
    spans = {}
    for profile in mig.profiles:
        kind = profile.name.split(".")[0] + ("+me" if profile.name.endswith("+me") else "")
        kind += " double" if kind == "1g" and profile.placements[0].size == 2 else ""
        assert profile.profile_id == SEVEN_SLICES[kind]
        spans[kind] = ([at.start for at in profile.placements], profile.placements[0].size, profile.max_count)
    assert spans == {
        "1g": ([0, 1, 2, 3, 4, 5, 6], 1, 7),
        "1g+me": ([0, 1, 2, 3, 4, 5, 6], 1, 1),
        "1g double": ([0, 2, 4, 6], 2, 4),
        "2g": ([0, 2, 4], 2, 3),
        "3g": ([0, 4], 4, 2),
        "4g": ([0], 4, 1),
        "7g": ([0], 8, 1),
    }


@pytest.mark.parametrize(
    ("card_id", "expected"),
    [
        ("a30", {14, 21, 5, 6, 0}),
        ("rtx-pro-6000-server", {14, 21, 47, 65, 67, 5, 35, 64, 66, 0, 32}),
        ("thor-igpu", {None}),
    ],
)
def test_other_cards_have_their_own_ids(card_id: str, expected: set[int | None]) -> None:
    mig = cards.load(card_id).mig
    assert mig is not None
    assert {profile.profile_id for profile in mig.profiles} == expected


@pytest.mark.parametrize("card_id", WITH_MIG)
def test_whole_card_profiles_span_all_slices_and_the_most_memory(card_id: str) -> None:
    card = cards.load(card_id)
    assert card.mig is not None
    sizes = {at.size for profile in card.mig.profiles for at in profile.placements}
    assert max(sizes) == card.mig.units
    for profile in card.mig.profiles:
        assert len({at.size for at in profile.placements}) == 1
        assert profile.memory_mib is None or profile.memory_mib < (card.memory_mib or 1 << 30)
        assert profile.max_count <= card.mig.max_instances


def test_card_memory_is_the_smallest_observed_total() -> None:
    assert cards.load("a100-sxm4-40gb").memory_mib == 40537
    assert cards.load("rtx-a6000").memory_mib == 46068
    assert cards.load("a800-sxm4-80gb").memory_mib is None


def test_unified_memory_is_unknown_memory_and_its_constraints_stay() -> None:
    thor = cards.load("thor-igpu")
    assert thor.mig is not None
    assert (thor.memory_mib, {profile.memory_mib for profile in thor.mig.profiles}) == (None, {None})
    assert (thor.mig.max_compute_instances, thor.mig.max_gfx_instances) == (1, 1)


def test_unknown_values_differ_from_zero() -> None:
    b300 = cards.load("b300-269gb")
    assert b300.mig is not None
    assert b300.mig.profiles[0].engines == cards.Engines(encoders=0)
    assert b300.mig.engine_totals == cards.Engines()
    assert cards.load("b100").mig_supported is None


def test_unknown_card_id_is_refused_even_if_it_is_a_path() -> None:
    for card_id in ("h999", "../sources", ""):
        assert cards.Catalog().get(card_id) is None
        with pytest.raises(KeyError):
            cards.load(card_id)


def test_every_citation_is_used_somewhere() -> None:
    folder = resources.upstream()
    used = {key for card_id in cards.ids() for key in cards.load(card_id).sources}
    for path in folder.glob("*.yaml"):
        facts = read(path)
        used |= {key for keys in facts.get("provenance", {}).values() for key in keys.split()}
        used |= {row["source"] for row in facts.get("dropped", {}).values()}
    assert used == set(sources())
