"""Cards that an intent brings along: what is wrong with them is found, at its place, and the rest can be built."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from gpushare.core.diagnostics import Path
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Catalog, NvLink

PLAIN = {"name": "NVIDIA Lab (24GB)", "computeCapability": "7.0", "memoryMiB": 24000}
MIG = {
    "name": "NVIDIA Lab 64GB",
    "computeCapability": "9.0",
    "memoryMiB": 65536,
    "nvlink": "c2c",
    "mig": {
        "units": 2,
        "maxInstances": 2,
        "profiles": [
            {
                "name": "1g.32gb",
                "nvmlEnum": 0,
                "profileId": 14,
                "computeSlices": 1,
                "memoryMiB": 32256,
                "maxCount": 2,
                "placements": ["0:1", "1:1"],
            },
            {
                "name": "2g.64gb+me",
                "nvmlEnum": 8,
                "profileId": 0,
                "computeSlices": 2,
                "memoryMiB": 65024,
                "maxCount": 1,
                "placements": ["0:2"],
                "unconfirmed": ["profileId"],
            },
        ],
    },
}
PROFILES = ("mig", "profiles")


def changed(document: Mapping[str, Any], path: Path, value: object) -> Mapping[str, Any]:
    copy: Any = deepcopy(document)
    at = copy
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    result: Mapping[str, Any] = copy
    return result


def found(document: object, card_id: str = "lab") -> list[tuple[str, Path]]:
    return [(finding.code, finding.path) for finding in cards.check({card_id: document})]


@pytest.mark.parametrize("document", [PLAIN, MIG])
def test_valid_custom_card_has_no_findings(document: Mapping[str, Any]) -> None:
    assert found(document) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("memoryMiB",), "24Gi"),
        (("computeCapability",), 9.0),
        ((*PROFILES, 0, "placements", 0), "0-1"),
        ((*PROFILES, 0, "name"), "1g.32gb.me"),
        (("mig", "unconfirmed"), {"nothing": "typo"}),
    ],
)
def test_wrong_shape_is_reported_at_its_position(path: Path, value: object) -> None:
    findings = found(changed(MIG, path, value))
    assert {code for code, _ in findings} == {"GS901"}
    assert any(("spec", "cards", "lab", *path)[: len(place)] == place and len(place) > 3 for _, place in findings)


def test_a_missing_field_is_found() -> None:
    assert {code for code, _ in found({"name": "NVIDIA Lab"})} == {"GS901"}


def test_custom_card_that_is_not_a_mapping_is_a_finding() -> None:
    assert {code for code, _ in found(["lab"])} == {"GS901"}


def test_a_shipped_id_cannot_be_taken() -> None:
    finding = cards.check({"t4": PLAIN})[0]
    assert (finding.code, finding.path, finding.on_key) == ("GS902", ("spec", "cards", "t4"), True)


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ((*PROFILES, 0, "placements"), ["0:1", "2:1"], (*PROFILES, 0, "placements", 1)),
        ((*PROFILES, 0, "maxCount"), 3, (*PROFILES, 0, "maxCount")),
        ((*PROFILES, 0, "name"), "1g.33gb", (*PROFILES, 0, "name")),
        ((*PROFILES, 0, "computeSlices"), 2, (*PROFILES, 0, "computeSlices")),
        ((*PROFILES, 1, "name"), "1g.32gb", (*PROFILES, 1, "name")),
        ((*PROFILES, 1, "profileId"), 14, (*PROFILES, 1, "profileId")),
        ((*PROFILES, 1, "nvmlEnum"), 0, (*PROFILES, 1, "nvmlEnum")),
        (("migSupported",), False, ("migSupported",)),
        (("id",), "other", ("id",)),
    ],
)
def test_contradiction_is_reported_at_its_position(path: Path, value: object, where: Path) -> None:
    assert ("GS903", ("spec", "cards", "lab", *where)) in found(changed(MIG, path, value))


def test_mig_without_a_table_is_a_contradiction() -> None:
    assert found({**PLAIN, "migSupported": True}) == [("GS903", ("spec", "cards", "lab", "migSupported"))]


def test_a_wrong_profile_name_is_corrected_in_the_hint() -> None:
    finding = cards.check({"lab": changed(MIG, (*PROFILES, 1, "name"), "2g.60gb+me")})[0]
    assert "2g.64gb+me" in finding.hints[0]


def test_mps_replicas_have_a_limit_by_compute_capability() -> None:
    document = {**PLAIN, "mps": {"supported": True, "maxReplicas": 17}}
    assert found(document) == [("GS904", ("spec", "cards", "lab", "mps", "maxReplicas"))]
    assert found({**document, "computeCapability": "7.5"}) == []


def test_overlapping_placements_count_once() -> None:
    document = changed(MIG, (*PROFILES, 1, "placements"), ["0:2"])
    assert found(changed(document, (*PROFILES, 1, "maxCount"), 2)) == [
        ("GS903", ("spec", "cards", "lab", *PROFILES, 1, "maxCount"))
    ]


def test_omitted_fields_of_a_custom_card_are_unknown_or_derived() -> None:
    card = cards.build("lab", PLAIN)
    assert (card.product, card.mps_max_replicas, card.mig_supported) == ("NVIDIA-Lab-24GB", 16, False)
    assert (card.ecc, card.nvlink, card.chip, card.unconfirmed) == (None, None, None, ())


def test_custom_card_with_mig_has_all_fields() -> None:
    card = cards.build("lab", MIG)
    assert card.mig is not None
    assert (card.nvlink, card.mig_supported, card.mig.units) == (NvLink.C2C, True, 2)
    assert card.mig.profiles[1].resource_suffix == "2g.64gb.me"
    assert card.mig.profiles[1].unconfirmed == ("profileId",)


def test_a_catalogue_knows_shipped_and_own_cards() -> None:
    catalog = Catalog(own={"lab": cards.build("lab", PLAIN)})
    assert catalog.get("lab") == cards.build("lab", PLAIN)
    assert catalog.get("t4") is cards.load("t4")
    assert set(catalog.ids()) == {*cards.ids(), "lab"}
