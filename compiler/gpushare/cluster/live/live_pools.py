"""The pools that a cluster has, each DaemonSet with the policy in its ConfigMap, and the nodes that it selects. Pure.

A policy that is missing or malformed leaves the pool without the facts that it would have given; nothing is guessed. Nodes are
selected by Kubernetes' rules of node affinity: the label `gpushare.dev/pool` keeps a node that no term selects any more until
its runtime has released it, and selects only where nothing else does. Labels under nvidia.com/gpu.deploy. are paused for
moments, as gpushare.dev/runtime is, and decide nothing here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpushare import vendors
from gpushare.cluster.live.claims import INSTANCE, WHOLE, Device
from gpushare.cluster.live.objects import DaemonSet, LiveNode, Snapshot
from gpushare.compare.snapshots import PoolSide, of_policy
from gpushare.core import units
from gpushare.core.units import MemoryTotals
from gpushare.core.wording import clean
from gpushare_node.contract import objects, policy
from gpushare_node.contract.names import POOL_LABEL, RUNTIME_LABEL
from gpushare_node.contract.policy import Backend, Policy, PolicyError
from gpushare_node.contract.struct import NOTHING, Struct

Terms = Iterable[Mapping[str, Any]]
_PAUSED = (*filter(None, (vendor.deploy_labels for vendor in vendors.VENDORS.values())), RUNTIME_LABEL)


def pool_of(node: LiveNode, terms: Mapping[str, Terms | None]) -> str:
    """Return the pool to which the node belongs, empty for none. `terms` by pool; None selects every node."""
    chosen = [pool for pool in sorted(terms) if _selects(terms[pool], node)]
    label = node.labels.get(POOL_LABEL, "")
    return label if label in chosen or not chosen else chosen[0]


def _selects(terms: Terms | None, node: LiveNode) -> bool:
    return terms is None or any(_matches(term, node) for term in terms)


def _matches(term: Mapping[str, Any], node: LiveNode) -> bool:
    if any(one.get("key") == POOL_LABEL for one in objects.mappings(term, "matchExpressions")):
        return False
    return objects.term_matches(term, node.name, node.labels, _PAUSED)


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
        return bool(self.backend) and Backend(self.backend).has_claims

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
    try:
        return LivePool(name=daemonset.pool, daemonset=daemonset) if text is None else _of(daemonset, policy.read(text))
    except (PolicyError, KeyError):
        return LivePool(name=daemonset.pool, daemonset=daemonset)


def _of(daemonset: DaemonSet, wanted: Policy) -> LivePool:
    """Return the pool of a policy. A KeyError if devices of a GPU have no share."""
    side = of_policy(wanted, clean=clean)
    sizes = [(one.memory_mib, one.replicas, one.cap_mib) for one in side.devices]
    return LivePool(
        name=daemonset.pool,
        daemonset=daemonset,
        side=side,
        caps=_caps(wanted),
        gpus_per_node=len(side.gpus),
        memory=units.memory_of_node(
            wanted.card.memory_mib, len(side.gpus), [(None, 1, None)] if wanted.is_on_demand else sizes
        ),
        max_unavailable=str(wanted.rollout.max_unavailable),
        on_busy=wanted.rollout.on_busy.value,
        backend=wanted.backend.value,
        classes=dict(_classes(wanted)) if wanted.dra else NOTHING,
        division=wanted.dra.shares.value if wanted.dra and wanted.dra.shares else "",
        is_on_demand=wanted.is_on_demand,
        namespaces=wanted.namespaces,
    )


def _classes(wanted: Policy) -> Iterator[tuple[str, ClassPlan]]:
    devices = dict(wanted.resources)
    for share in wanted.shares:
        yield (
            share.resource,
            ClassPlan(
                profile=share.profile and clean(share.profile),
                devices=devices.get(share.resource, 0),
                replicas=share.replicas,
                memory_mib=share.memory_mib,
            ),
        )


def _caps(wanted: Policy) -> Mapping[str, int | None]:
    caps: dict[str, int | None] = {}
    for share in wanted.shares:
        resource = clean(share.resource)
        caps[resource] = share.cap_mib if caps.get(resource, share.cap_mib) == share.cap_mib else None
    return caps
