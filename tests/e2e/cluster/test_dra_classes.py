"""The classes of pools of every card, judged by the real scheduler: a class selects the devices of its card, and no other.

One node has a device for every product name and MIG profile of the catalogue, as NVIDIA's driver describes them, and a claim on
all devices of a class gets just those of its pool's card. Nothing runs on the node.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card
from tests.compiler.render.compiled import document, files
from tests.e2e.cluster.bundles import namespace
from tests.e2e.cluster.cluster import Cluster

WHERE, NODE, DRIVER = "classes", "every-card", "gpu.nvidia.com"
CARDS = [cards.load(card_id) for card_id in cards.ids() if cards.load(card_id).vendor == "nvidia"]
IN_A_SLICE = 100
Object = dict[str, Any]
Kind = tuple[str, str]
"""A card's id and a MIG profile, empty for whole GPUs."""


def kinds() -> Iterator[Kind]:
    for card in CARDS:
        yield card.id, ""
        yield from ((card.id, name) for name in card.profiles)


def pool_name(kind: Kind) -> str:
    return f"p{list(kinds()).index(kind)}"


def devices(card: Card, profile: str, pool: str) -> Iterator[Object]:
    """What the driver says of such devices, one under each name that NVML has for the card."""
    for number, product in enumerate((card.name, *card.name_aliases)):
        texts = {"type": "mig", "profile": profile} if profile else {"type": "gpu"}
        texts |= {"productName": product, "uuid": f"GPU-{pool}-{number}"}
        yield {"name": f"{pool}-{number}", "attributes": {key: {"string": text} for key, text in texts.items()}}


def classes() -> Iterator[tuple[Kind, Object]]:
    """Each kind of device, and its class as a bundle has it."""
    for card in CARDS:
        pools = {pool_name((card.id, "")): pool(card.id, "{mode: exclusive}")}
        pools |= {
            pool_name((card.id, name)): pool(card.id, f"{{mode: mig, layout: {{{name}: 1}}}}", name.replace("+", "_"))
            for name in card.profiles
        }
        texts = files(*pools, platform="{backend: dra, dra: {}}", more="  kubernetes: '1.34'\n", **pools)
        for profile in ("", *card.profiles):
            name = pool_name((card.id, profile))
            ((_, spec),) = document(texts, f"chart/files/dra/{name}.yaml")["classes"].items()
            yield (card.id, profile), spec


def pool(card: str, sharing: str, label: str = "whole") -> str:
    return f"{{card: {card}, nodes: {{matchLabels: {{p: {label}}}}}, gpusPerNode: 1, sharing: {sharing}}}"


@pytest.fixture(scope="module")
def selected(api: Cluster) -> dict[Kind, set[str]]:
    """The devices that a claim on all of each class gets."""
    namespace(api, WHERE)
    conditions = [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    status = {"conditions": conditions, "allocatable": {"pods": "1000", "cpu": "100", "memory": "100Gi"}}
    status["capacity"] = status["allocatable"]
    api.write("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, "application/merge-patch+json")
    every = [one for card, profile in kinds() for one in devices(cards.load(card), profile, pool_name((card, profile)))]
    parts = [every[first : first + IN_A_SLICE] for first in range(0, len(every), IN_A_SLICE)]
    slices = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{NODE}-{number}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]
    objects = [item for kind, spec in classes() for item in claimed(pool_name(kind), spec)]
    api.apply(*slices, *objects)

    def allocated() -> dict[str, set[str]]:
        found = api.read(f"/apis/resource.k8s.io/v1/namespaces/{WHERE}/resourceclaims")["items"]
        return {
            one["metadata"]["name"]: {each["device"] for each in one["status"]["allocation"]["devices"]["results"]}
            for one in found
            if one.get("status", {}).get("allocation")
        }

    wanted = {pool_name(kind): kind for kind in kinds()}
    try:
        api.wait(lambda: allocated().keys() == wanted.keys(), "every claim is allocated", 120)
    finally:
        got = allocated()
        api.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename", "-", stdin=json.dumps(listed(objects)))
        api.kubectl("delete", "resourceslices", "--all")
        api.kubectl("delete", "node", NODE)
    return {kind: got.get(name, set()) for name, kind in wanted.items()}


def listed(objects: list[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def claimed(name: str, spec: Object) -> Iterator[Object]:
    """The class, a claim on all its devices, and a pod for which the scheduler allocates it."""
    metadata = {"name": name, "namespace": WHERE}
    yield {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    asked = {"name": "gpu", "exactly": {"deviceClassName": name, "allocationMode": "All"}}
    claim = {"devices": {"requests": [asked]}}
    yield {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": claim}
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        "tolerations": [{"operator": "Exists"}],
    }
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.id)
def test_a_class_selects_the_devices_of_its_card_and_profile_alone(card: Card, selected: dict[Kind, set[str]]) -> None:
    for profile in ("", *card.profiles):
        names = {one["name"] for one in devices(card, profile, pool_name((card.id, profile)))}
        assert selected[card.id, profile] == names, profile
