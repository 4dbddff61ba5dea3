"""One side of a comparison: the pools of a `nodes/pools.yaml` document. Reads plain data and does not check it."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from gpushare import backends, modes, vendors
from gpushare.intent.types import Backend, Requests
from gpushare.vendors.amd import AMD
from gpushare.vendors.vendor import Vendor
from gpushare_node.contract.struct import Struct, replace

_WHOLE = "spx_nps1"
"""What AMD's driver calls a GPU that it does not divide."""


class Device(Struct):
    """One device of a node: a whole GPU (`profile` None, AMD's spx_nps1 too) or an instance."""

    resource: str
    profile: str | None
    start: int
    replicas: int
    memory_mib: int | None = None


Gpu = tuple[Device, ...]


class PoolSide(Struct):
    """One pool on one side. `count` None: the number of nodes is not known.

    `selector` is everything that decides which nodes belong to it, as comparable text. `policy` is the rest of its entry,
    without numbers of nodes (a forecast, not a setting) and placements (a node keeps its own).
    """

    card: str
    mode: str
    profile: str
    priority: int
    count: int | None
    names: frozenset[str]
    selector: str
    labels: Any
    gpus: tuple[Gpu, ...]
    resources: Mapping[str, int]
    policy: Any
    backend: str = Backend.DEVICE_PLUGIN.value
    requests: str = Requests.CLAIMS.value
    interval: str = "default"

    @property
    def has_daemon(self) -> bool:
        """Whether MPS daemons serve the pool's nodes: with another config they restart, which ends every container."""
        return modes.named(self.mode).has_daemon

    @property
    def vendor(self) -> Vendor:
        """Whose GPUs the pool has."""
        return vendors.of_resources(self.resources)

    @property
    def manager_label(self) -> Any:
        """What tells AMD's config manager how to divide the GPUs; None if it does not divide them."""
        return self.labels.get(AMD.layout_label)

    @property
    def layouts(self) -> tuple[Counter[str | None], ...]:
        """For each GPU, how many devices of which profile."""
        return tuple(Counter(device.profile for device in gpu) for gpu in self.gpus)

    @property
    def shares(self) -> int:
        """How many containers can use one node's GPUs at most."""
        return sum(device.replicas for gpu in self.gpus for device in gpu)

    def total_of(self, resource: str) -> int | None:
        """Return how many of the resource all nodes offer; None if unknown, 0 if the pool does not offer it."""
        per_node = self.resources.get(resource, 0)
        return 0 if per_node == 0 else None if self.count is None else per_node * self.count


Pools = Mapping[str, PoolSide]
"""Pools by name."""


def pools(document: Mapping[str, Any]) -> Pools:
    """Return the document's pools by name."""
    return {name: _pool(entry) for name, entry in sorted(document["pools"].items())}


def observes(document: Mapping[str, Any]) -> bool:
    """Whether the bundle changes no node."""
    return document.get("adoption") == "observe"


def effective_pools(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Pools, Pools]:
    """Return the pools that both bundles' nodes have: a bundle that observes leaves them as they were before it."""
    before = {} if observes(old) else pools(old)
    return before, before if observes(new) else pools(new)


def quotas(document: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return the document's quotas: (namespace, resource) → number."""
    return {
        (namespace, backends.quota_resource(key)): number
        for namespace, hard in (document.get("quotas") or {}).items()
        for key, number in hard.items()
    }


def released(pool: PoolSide) -> tuple[Gpu, ...]:
    """Return the pool's GPUs after gpushare released them: whole, not shared."""
    return tuple((Device(resource=pool.vendor.whole_gpu, profile=None, start=0, replicas=1),) for _ in pool.gpus)


def exclusive(pool: PoolSide) -> PoolSide:
    """Return what the pool's nodes are after their release: of no pool, with the plugin's own default profile."""
    whole = {pool.vendor.whole_gpu: len(pool.gpus)}
    plugin = Backend.DEVICE_PLUGIN.value
    return replace(pool, mode="exclusive", profile="", gpus=released(pool), resources=whole, labels={}, backend=plugin)


def _pool(entry: Mapping[str, Any]) -> PoolSide:
    gpus: list[list[Device]] = [[] for _ in range(entry["gpusPerNode"])]
    for device in entry["devices"]:
        gpus[device["gpu"]].append(
            Device(
                resource=device["resource"],
                profile=None if device["profile"] == _WHOLE else device["profile"],
                start=device["start"],
                replicas=device["replicas"],
                memory_mib=device["memoryMiB"],
            )
        )
    selector = entry["selector"]
    return PoolSide(
        card=entry["card"],
        mode=entry["mode"],
        profile=entry["profile"],
        priority=entry["priority"],
        count=entry["nodes"],
        names=frozenset(selector["names"]),
        selector=json.dumps(selector, sort_keys=True),
        labels=entry["labels"],
        gpus=tuple(map(tuple, gpus)),
        resources={name: numbers["perNode"] for name, numbers in entry["resources"].items()},
        policy=_policy(entry),
        backend=entry.get("backend", Backend.DEVICE_PLUGIN.value),
        requests=entry.get("requests", Requests.CLAIMS.value),
        interval=entry.get("interval", "default"),
    )


def _policy(entry: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in entry.items() if key not in {"nodes", "resources", "devices"}}
    return rest | {"caps": {(device["profile"], device["resource"]): device["capMiB"] for device in entry["devices"]}}
