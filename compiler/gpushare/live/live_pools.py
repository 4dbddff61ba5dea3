"""The pools that a cluster has: each DaemonSet with the policy in its ConfigMap. Pure.

A policy that is missing or malformed leaves the pool without the facts that it would have given; nothing is guessed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpushare.compare.snapshots import Device as PlannedDevice
from gpushare.compare.snapshots import PoolSide
from gpushare.core import memory_totals
from gpushare.core.memory_totals import MemoryTotals
from gpushare.intent.types import Backend
from gpushare.live.api_objects import clean
from gpushare.live.devices import INSTANCE, WHOLE, Device
from gpushare.live.node_affinity import pool_of
from gpushare.live.snapshot import DaemonSet, LiveNode, Snapshot
from gpushare.nodes.own_labels import POOL_LABEL
from gpushare.reading import source
from gpushare_node.contract.struct import NOTHING, Struct


class ClassPlan(Struct):
    """A DeviceClass of a pool: what a node must have of it. `replicas`: how many shares a device is meant for."""

    profile: str | None
    devices: int
    replicas: int
    memory_mib: int | None

    def is_of(self, device: Device) -> bool:
        """Whether a device of a slice is meant for the class."""
        kind = INSTANCE if self.profile else WHOLE
        return device.kind == kind and (device.profile if kind == INSTANCE else None) == self.profile


class LivePool(Struct):
    """One pool of the cluster. `side` is what a node becomes, `memory` what it has; None if the policy could not be read.

    `caps` is resource → MiB of a share: None for no cap, or if devices of one resource have different caps. `classes` are those
    of a pool of NVIDIA's DRA driver, and `division` is by what claims share its devices. `is_on_demand`: it makes MIG
    instances for claims, and each place for one is a device. `backend` is empty if it is not known.
    """

    name: str
    daemonset: DaemonSet | None = None
    side: PoolSide | None = None
    caps: Mapping[str, int | None] = NOTHING
    gpus_per_node: int | None = None
    memory: MemoryTotals | None = None
    max_unavailable: str = ""
    on_busy: str = ""
    backend: str = ""
    classes: Mapping[str, ClassPlan] = NOTHING
    division: str = ""
    is_on_demand: bool = False
    namespaces: tuple[str, ...] = ()

    @property
    def is_dra(self) -> bool:
        """Whether NVIDIA's DRA driver serves the pool."""
        return self.backend == Backend.DRA

    @property
    def resources(self) -> Mapping[str, int]:
        """What each node must offer."""
        return NOTHING if self.side is None else self.side.resources


class LivePools(Struct):
    """All pools by name, and the pool of every node by its name; empty for a node without a pool."""

    pools: Mapping[str, LivePool]
    of_node: Mapping[str, str]

    def of(self, node: LiveNode) -> LivePool | None:
        """Return the pool of a node."""
        return self.pools.get(self.of_node.get(node.name, ""))

    def nodes(self, pool: str, nodes: Iterable[LiveNode]) -> list[LiveNode]:
        """Return the nodes of one pool, by name."""
        return sorted((node for node in nodes if self.of_node.get(node.name) == pool), key=lambda node: node.name)


def find(snapshot: Snapshot) -> LivePools:
    """Return the pools of the cluster. A pool that only a node's label names has neither DaemonSet nor policy."""
    pools = {one.pool: _pool(one, snapshot) for one in snapshot.daemonsets}
    terms = {one.pool: one.terms for one in snapshot.daemonsets}
    of_node = {node.name: pool_of(node, terms) for node in snapshot.nodes}
    labelled = {node.labels.get(POOL_LABEL, "") for node in snapshot.nodes} | set(of_node.values())
    for name in sorted(labelled - pools.keys() - {""}):
        pools[name] = LivePool(name=name)
    return LivePools(pools=dict(sorted(pools.items())), of_node=of_node)


def policy_text(snapshot: Snapshot, pool: str, digest: str) -> str | None:
    """Return the policy in the pool's ConfigMap, None without one."""
    config = snapshot.configs.get(f"gpushare-{pool}-policy-{digest}")
    return None if config is None else config.data.get("policy.yaml")


def _pool(daemonset: DaemonSet, snapshot: Snapshot) -> LivePool:
    text = policy_text(snapshot, daemonset.pool, daemonset.policy)
    document = source.read(text.encode(errors="replace"), "policy.yaml", own=True).data if text else None
    spec = document.get("spec") if isinstance(document, dict) else None
    try:
        return _read(daemonset, spec) if isinstance(spec, dict) else LivePool(name=daemonset.pool, daemonset=daemonset)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return LivePool(name=daemonset.pool, daemonset=daemonset)


def _read(daemonset: DaemonSet, spec: Mapping[str, Any]) -> LivePool:
    shares = {share["profile"]: (clean(share["resource"]), int(share["replicas"])) for share in spec["shares"]}
    rollout, is_dra = spec["rollout"], spec.get("backend") == Backend.DRA
    counts = {clean(name): int(number) for name, number in spec["resources"].items()}
    divided = dict(shares.values())
    resources = {name: number * divided[name] for name, number in counts.items()} if is_dra else counts
    side = PoolSide(
        card=clean(spec["card"]["id"]),
        mode=clean(spec["mode"]),
        profile=clean(spec["profile"] or ""),
        priority=0,
        count=None,
        names=frozenset(),
        selector="",
        labels=NOTHING,
        gpus=_gpus(spec, shares),
        resources=resources,
        policy=None,
    )
    sizes = {share["profile"]: (_size(share.get("memoryMiB")), _size(share.get("capMiB"))) for share in spec["shares"]}
    is_on_demand = is_dra and bool(spec["dra"].get("onDemand"))
    devices = ((memory, one.replicas, cap) for gpu in side.gpus for one in gpu for memory, cap in (sizes[one.profile],))
    return LivePool(
        name=daemonset.pool,
        daemonset=daemonset,
        side=side,
        caps=_caps(spec),
        gpus_per_node=int(spec["gpusPerNode"]),
        memory=memory_totals.of_node(
            _size(spec["card"].get("memoryMiB")), int(spec["gpusPerNode"]), [(None, 1, None)] if is_on_demand else devices
        ),
        max_unavailable=clean(str(rollout["maxUnavailable"])),
        on_busy=clean(rollout["onBusy"]),
        backend=(Backend.DRA if is_dra else Backend.DEVICE_PLUGIN).value,
        classes=dict(_classes(spec)) if is_dra else NOTHING,
        division=clean(spec["dra"]["shares"] or "") if is_dra else "",
        is_on_demand=is_on_demand,
        namespaces=tuple(clean(name) for name in spec["namespaces"]),
    )


def _classes(spec: Mapping[str, Any]) -> Iterator[tuple[str, ClassPlan]]:
    for share in spec["shares"]:
        yield (
            clean(share["resource"]),
            ClassPlan(
                profile=share["profile"] and clean(share["profile"]),
                devices=int(spec["resources"].get(share["resource"], 0)),
                replicas=max(1, int(share["replicas"])),
                memory_mib=_size(share["memoryMiB"]),
            ),
        )


def _size(mib: object) -> int | None:
    return mib if isinstance(mib, int) else None


def _caps(spec: Mapping[str, Any]) -> Mapping[str, int | None]:
    caps: dict[str, int | None] = {}
    for share in spec["shares"]:
        resource, cap = clean(share["resource"]), share["capMiB"]
        size = None if cap is None else int(cap)
        caps[resource] = size if caps.get(resource, size) == size else None
    return caps


def _partition(mode: Mapping[str, Any] | None) -> str | None:
    """Return the mode of AMD's partitions as policies and resources name it."""
    return f"{clean(mode['compute'])}_{clean(mode['memory'])}".lower() if mode else None


def _gpus(spec: Mapping[str, Any], shares: Mapping[str | None, tuple[str, int]]) -> tuple[tuple[PlannedDevice, ...], ...]:
    gpus: dict[int, tuple[PlannedDevice, ...]] = {}
    for group in spec["gpus"]:
        placed: list[tuple[str | None, int]] = [(None, 0)]
        if group["mig"] or (spec.get("dra") or {}).get("onDemand"):
            placed = [(clean(one["profile"]), int(one["start"])) for one in group["instances"]]
        elif (mode := _partition(group.get("partition"))) and mode in shares:
            placed = [(mode, start) for start in range(int(group["partition"]["devices"]))]
        devices = tuple(
            PlannedDevice(resource=shares[profile][0], profile=profile, start=start, replicas=shares[profile][1])
            for profile, start in placed
        )
        gpus |= dict.fromkeys(group["indexes"], devices)
    return tuple(gpus[index] for index in sorted(gpus))
