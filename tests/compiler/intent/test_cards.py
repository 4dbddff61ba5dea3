"""Cards that the intent itself describes: what may be written, and where it is wrong."""

import json
from typing import Any

import pytest

from gpushare import pipeline
from tests.compiler.intent.texts import found, intent, pool

X: dict[str, Any] = {"name": "NVIDIA X", "computeCapability": "9.0", "memoryMiB": 40960}
PROFILE: dict[str, Any] = {
    "name": "1g.5gb",
    "nvmlEnum": 0,
    "profileId": 19,
    "computeSlices": 1,
    "memoryMiB": 4864,
    "maxCount": 7,
    "placements": [f"{start}:1" for start in range(7)],
}
MIG: dict[str, Any] = {"units": 8, "maxInstances": 7, "profiles": [PROFILE]}
SLICED = "{mode: time-slicing, replicas: 4}"
SEVEN = "{mode: mig, layout: {1g.5gb: 7}}"


def text(card: Any, sharing: str = SLICED, name: str = "mine", **more: str) -> str:
    return intent(pool(sharing, card=name, **more), cards=json.dumps({name: card}))


def codes(written: str) -> str:
    return " ".join(place.partition(" ")[0] for place in found(written).split("; "))


CASES = [
    (text(X), ""),
    (text(X | {"id": "mine"}), ""),
    (text(X | {"id": "other"}), "GS903"),
    (text(X | {"memoryMiB": 40960.0}), ""),
    (text({}), "GS901 GS901 GS901"),
    (text(None), "GS103"),
    (text(X | {"memoryMiB": None}), "GS503"),
    (text(X | {"memoryMiB": None}, memory="{cap: 2Gi}"), ""),
    (text(X | {"memoryMiB": 0}), "GS901"),
    (text(X | {"memoryMiB": "40Gi"}), "GS901"),
    (text(X | {"computeCapability": 9.0}), "GS901"),
    (text(X | {"computeCapability": "nine"}), "GS901"),
    (text(X | {"memory": 1}), "GS901"),
    (text(X | {"nvlink": "maybe"}), "GS901"),
    (text(X | {"nvlink": "c2c", "ecc": True}, require="{nvlink: true, ecc: true}"), ""),
    (text(X, require="{nvlink: true}"), "GS208"),
    (text(X, name="t4"), "GS902"),
    (text(X | {"migSupported": True}), "GS903"),
    (text(X | {"mig": MIG}, SEVEN), ""),
    (text(X | {"mig": MIG | {"units": 8.0}}, SEVEN), ""),
    (text(X | {"mig": MIG | {"maxInstances": 3}}, SEVEN), "GS402"),
    (text(X | {"mig": MIG, "migSupported": False}, SEVEN), "GS903"),
    (text(X | {"mig": MIG | {"profiles": [PROFILE | {"name": "1g.10gb"}]}}), "GS903"),
    (text(X | {"mig": MIG | {"profiles": [PROFILE, PROFILE]}}), "GS903"),
    (text(X | {"mig": MIG | {"profiles": [PROFILE | {"placements": ["a"]}]}}), "GS901"),
    (text(X | {"mig": MIG | {"profiles": []}}), "GS901"),
    (text(X | {"mps": {"supported": False}}, "{mode: mps, replicas: 2}"), "GS302"),
    (text(X | {"computeCapability": "7.0"}, "{mode: mps, replicas: 17}"), "GS301"),
]


@pytest.mark.parametrize(("written", "expected"), CASES)
def test_each_mistake_in_a_custom_card_is_one_finding(written: str, expected: str) -> None:
    assert codes(written) == expected


def test_integral_float_is_an_integer_in_the_offer() -> None:
    plan = pipeline.check(text(X | {"memoryMiB": 40960.0}).encode(), "intent.yaml").plan
    assert plan
    assert repr(plan.pools[0].devices[0].cap_mib) == "9932"
