"""MIG instances on demand, judged by the real scheduler: it leaves as many claims without a place as the compiler says.

A node without kubelet has the places of its GPUs as NVIDIA's driver lists them: a device for each, with the counters of the GPU
that it consumes. Claims come profile by profile. Nothing runs.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpushare.facts import mig
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card, MigProfile
from tests.compiler.render.compiled import document, files
from tests.e2e.cluster.bundles import namespace
from tests.e2e.cluster.cluster import Cluster

WHERE, NODE, DRIVER = "places", "on-demand", "gpu.nvidia.com"
Object = dict[str, Any]


@pytest.mark.parametrize(
    ("card_id", "gpus", "claims"),
    [
        ("a100-sxm4-40gb", 1, {"1g.5gb": 5, "3g.20gb": 2}),
        ("a100-sxm4-40gb", 1, {"3g.20gb": 1, "1g.5gb": 4}),
        ("a100-sxm4-40gb", 2, {"2g.10gb": 1, "1g.5gb": 8, "3g.20gb": 2, "1g.10gb": 1}),
        ("a100-sxm4-40gb", 2, {"4g.20gb": 2, "3g.20gb": 1, "1g.5gb+me": 3, "2g.10gb": 1}),
        ("a30", 2, {"1g.6gb": 3, "2g.12gb": 3, "4g.24gb": 1}),
        ("h200-sxm5-141gb", 1, {"1g.35gb": 1, "2g.35gb": 1, "1g.18gb": 4}),
    ],
)
def test_the_scheduler_leaves_out_as_many_claims_as_the_compiler_says(
    api: Cluster, card_id: str, gpus: int, claims: dict[str, int]
) -> None:
    card = cards.load(card_id)
    assert card.mig is not None
    namespace(api, WHERE)
    api.apply(*offer(card, list(claims)), *slices(card, card.mig.units, gpus))
    ready(api)
    made: list[Object] = []
    try:
        for name, number in claims.items():
            block = [item for one in range(number) for item in claimed(f"{plain(name)}-{one}", f"gpushare-pool-{plain(name)}")]
            api.apply(*block)
            made += block
            api.wait(lambda: not undecided(api), "the scheduler has judged every pod", 60)
        left_out = sum(claims.values()) - len(allocated(api))
        assert left_out == mig.unplaced(card.mig, tuple(claims.items()), gpus)
    finally:
        api.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename", "-", stdin=json.dumps(listed(made)))
        api.kubectl("delete", "resourceslices", "--all")
        api.kubectl("delete", "node", NODE)
        api.wait(lambda: not items(api, "resource.k8s.io/v1", "resourceclaims"), "the claims are gone", 60)


def plain(name: str) -> str:
    return name.replace(".", "-").replace("+", "-")


def offer(card: Card, profiles: list[str]) -> list[Object]:
    """The node and the classes of a pool on demand."""
    sharing = f"{{mode: mig, layout: on-demand, profiles: [{', '.join(profiles)}]}}"
    pool = f"{{card: {card.id}, nodes: {{matchLabels: {{p: a}}}}, gpusPerNode: 1, sharing: {sharing}}}"
    texts = files("pool", platform="{backend: dra, dra: {}}", more="  kubernetes: '1.36'\n", pool=pool)
    classes = document(texts, "chart/files/dra/pool.yaml")["classes"]
    group = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    return [node, *({**group, "metadata": {"name": name}, "spec": spec} for name, spec in classes.items())]


def ready(api: Cluster) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}
    room = {"pods": "1000", "cpu": "100", "memory": "100Gi"}
    patch = {"status": {**status, "allocatable": room, "capacity": room}}
    api.write("PATCH", f"/api/v1/nodes/{NODE}/status", patch, "application/merge-patch+json")


def slices(card: Card, units: int, gpus: int) -> Iterator[Object]:
    """The driver's slices: one with the counters of all GPUs, then one for each GPU, with every place of every profile."""
    totals = [counters(profile) for profile in card.profiles.values()]
    most = {name: max(one[name] for one in totals) for name in totals[0]}
    sets = [
        {"name": f"gpu-{gpu}-counter-set", "counters": shown(most | {f"memory-slice-{unit}": 1 for unit in range(units)})}
        for gpu in range(gpus)
    ]
    parts: list[Object] = [{"sharedCounters": sets}]
    parts += [{"devices": sorted(places(card, gpu), key=lambda one: str(one["name"]))} for gpu in range(gpus)]
    for number, part in enumerate(parts):
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": len(parts)}
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{NODE}-{number}"},
            "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, **part},
        }


def counters(profile: MigProfile) -> dict[str, int]:
    engines = profile.engines
    known = {
        "copy-engines": engines.copy,
        "decoders": engines.decoders,
        "jpeg-engines": engines.jpeg,
        "ofa-engines": engines.ofa,
    }
    known |= {"multiprocessors": profile.sm, "memory": profile.memory_mib}
    return {name: number or 0 for name, number in known.items()}


def shown(numbers: dict[str, int]) -> Object:
    return {name: {"value": str(number)} for name, number in numbers.items()}


def places(card: Card, gpu: int) -> Iterator[Object]:
    for name, profile in card.profiles.items():
        for place in profile.placements:
            texts = {"type": "mig", "profile": name, "productName": card.name}
            taken = {f"memory-slice-{unit}": 1 for unit in range(place.start, place.start + place.size)}
            yield {
                "name": f"gpu-{gpu}-mig-{name.replace('.', '').replace('+', '-')}-{profile.profile_id}-{place.start}",
                "attributes": {key: {"string": text} for key, text in texts.items()},
                "consumesCounters": [{"counterSet": f"gpu-{gpu}-counter-set", "counters": shown(counters(profile) | taken)}],
            }


def claimed(name: str, device_class: str) -> Iterator[Object]:
    metadata = {"name": name, "namespace": WHERE}
    claim = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]}}
    yield {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": claim}
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def items(api: Cluster, group: str, plural: str) -> list[Object]:
    path = f"/api/v1/namespaces/{WHERE}/{plural}" if group == "v1" else f"/apis/{group}/namespaces/{WHERE}/{plural}"
    found: list[Object] = api.read(path)["items"]
    return found


def allocated(api: Cluster) -> list[Object]:
    return [one for one in items(api, "resource.k8s.io/v1", "resourceclaims") if one.get("status", {}).get("allocation")]


def undecided(api: Cluster) -> list[str]:
    """The pods that are neither bound nor refused by the scheduler."""
    return [
        one["metadata"]["name"]
        for one in items(api, "v1", "pods")
        if not one["spec"].get("nodeName")
        and not any(each["type"] == "PodScheduled" for each in one["status"].get("conditions", ()))
    ]


def listed(objects: list[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": objects}
