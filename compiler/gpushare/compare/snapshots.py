"""One side of a comparison: what a `nodes/pools.yaml` document says of its pools. Reads plain data, judges nothing."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from gpushare.core.record import Record, replace

WHOLE_GPU = "nvidia.com/gpu"
"""What a GPU offers that is not shared, also on a node that gpushare has released."""


class Device(Record):
    """One device of a node: a whole GPU (`profile` None) or an instance."""

    resource: str
    profile: str | None
    start: int
    replicas: int


Gpu = tuple[Device, ...]


class PoolSide(Record):
    """One pool on one side. `count` None: nobody knows how many nodes.

    `selector` is what decides which nodes belong to it, as text that can be compared. `policy` is all the rest that the file
    says, without numbers of nodes (a forecast, not a setting) and placements (a node keeps its own).
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

    @property
    def layouts(self) -> tuple[Counter[str | None], ...]:
        """Per GPU how many devices of which profile."""
        return tuple(Counter(device.profile for device in gpu) for gpu in self.gpus)

    @property
    def shares(self) -> int:
        """How many containers one node serves at most."""
        return sum(device.replicas for gpu in self.gpus for device in gpu)

    def total_of(self, resource: str) -> int | None:
        """How many of the resource all nodes offer; None when unknown, 0 when it is none of the pool's."""
        per_node = self.resources.get(resource, 0)
        return 0 if per_node == 0 else None if self.count is None else per_node * self.count


Pools = Mapping[str, PoolSide]
"""Pools by name."""


def pools(document: Mapping[str, Any]) -> Pools:
    """The document's pools by name."""
    return {name: _pool(entry) for name, entry in sorted(document["pools"].items())}


def quotas(document: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The document's quotas: (namespace, resource) → number."""
    return {
        (namespace, key.removeprefix("requests.")): number
        for namespace, hard in (document.get("quotas") or {}).items()
        for key, number in hard.items()
    }


def released(pool: PoolSide) -> tuple[Gpu, ...]:
    """The pool's GPUs after gpushare has let go of them: whole, not shared."""
    return tuple((Device(resource=WHOLE_GPU, profile=None, start=0, replicas=1),) for _ in pool.gpus)


def exclusive(pool: PoolSide) -> PoolSide:
    """What the pool's nodes are after that: of no pool, with the plugin's own default for a profile."""
    return replace(pool, mode="exclusive", profile="", gpus=released(pool), resources={WHOLE_GPU: len(pool.gpus)}, labels={})


def _pool(entry: Mapping[str, Any]) -> PoolSide:
    gpus: list[list[Device]] = [[] for _ in range(entry["gpusPerNode"])]
    for device in entry["devices"]:
        gpus[device["gpu"]].append(
            Device(resource=device["resource"], profile=device["profile"], start=device["start"], replicas=device["replicas"])
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
    )


def _policy(entry: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in entry.items() if key not in {"nodes", "resources", "devices"}}
    return rest | {"caps": {(device["profile"], device["resource"]): device["capMiB"] for device in entry["devices"]}}
