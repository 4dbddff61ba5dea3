"""Sides of a comparison from plain data, for pools that no card has."""

import json
from collections.abc import Mapping
from typing import Any

from gpushare.compare.sides import Side
from gpushare.compare.snapshots import OfferedDevice, PoolSide
from gpushare.offering import backends


def side(document: Mapping[str, Any]) -> Side:
    """The side of pools and quotas in plain form."""
    return Side(
        cluster="",
        pools={name: _pool(entry) for name, entry in sorted(document["pools"].items())},
        vm_pools={},
        quotas={
            (namespace, backends.quota_resource(key)): number
            for namespace, hard in document.get("quotas", {}).items()
            for key, number in hard.items()
        },
        prices={},
        mig_strategy=document.get("operatorMigStrategy"),
    )


def _pool(entry: Mapping[str, Any]) -> PoolSide:
    gpus: list[list[OfferedDevice]] = [[] for _ in range(entry["gpusPerNode"])]
    for one in entry["devices"]:
        fields = {"resource": one["resource"], "profile": one["profile"], "start": one["start"], "replicas": one["replicas"]}
        gpus[one["gpu"]].append(OfferedDevice(**fields, memory_mib=one["memoryMiB"]))
    caps = tuple(((one["profile"], one["resource"]), one["capMiB"]) for one in entry["devices"])
    rest = {key: value for key, value in entry.items() if key not in {"nodes", "resources", "devices"}}
    return PoolSide(
        card=entry["card"],
        mode=entry["mode"],
        profile=entry["profile"],
        priority=entry["priority"],
        count=entry["nodes"],
        names=frozenset(entry["selector"]["names"]),
        selector=json.dumps(entry["selector"], sort_keys=True),
        labels=entry["labels"],
        gpus=tuple(map(tuple, gpus)),
        resources={name: numbers["perNode"] for name, numbers in entry["resources"].items()},
        policy=(rest, dict(caps)),
        caps=tuple(dict(caps).items()),
        action=entry.get("enforcement", {}).get("action"),
        **{key: entry[key] for key in ("backend", "requests", "interval") if key in entry},
    )
