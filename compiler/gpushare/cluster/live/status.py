"""What each pool and node should offer, offers, and has in use, by which pods; why a node does not match, and since when. Pure.

Of the memory in use: the API server knows the requests, a pool's policy the cap of each share. Only the runtimes' metrics have
what is used.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpushare.cluster.live import belief, claims, live_pools, slices
from gpushare.cluster.live.belief import OBSERVING, Observed
from gpushare.cluster.live.claims import Claim, DraObjects
from gpushare.cluster.live.live_pools import ClassPlan, LivePool
from gpushare.cluster.live.objects import (
    OTHER_PODS,
    Condition,
    LiveNode,
    Pod,
    ReadFailure,
    RecordedEvent,
    RuntimeMetrics,
    Snapshot,
    Usage,
)
from gpushare.cluster.live.slices import Allocations, Listed, NodeOffer, key_of
from gpushare.core.units import MIB, UNKNOWN_MEMORY, MemoryTotals, total
from gpushare.facts.nodes import taints
from gpushare_node.contract.struct import NOTHING, Struct, replace


class Holder(Struct):
    """One pod that may have devices. `shares` is resource → number.

    `used` and `cap` are bytes on all its devices: `used` None if not known, `cap` None if it has none or it is not known.
    """

    namespace: str
    pod: str
    node: str
    shares: Mapping[str, int]
    used: int | None = None
    cap: int | None = None

    @property
    def full_name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.pod}"


def holding_by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the pods that hold shares, by node."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.holds:
            found.setdefault(pod.node, []).append(pod)
    return found


def holders_of_node(
    pods: Iterable[Pod], metrics: RuntimeMetrics | None, caps: Mapping[str, int | None] = NOTHING
) -> tuple[Holder, ...]:
    """Return the holders among one node's pods, by name. `caps` is resource → MiB of a share, None for no cap."""
    usages: dict[tuple[str, str], list[Usage]] = {}
    for usage in metrics.usages if metrics else ():
        usages.setdefault((usage.namespace, usage.pod), []).append(usage)
    found = (_holder(pod, usages.get((pod.namespace, pod.name), ()), caps) for pod in pods)
    return tuple(sorted(found, key=lambda one: (one.namespace, one.pod)))


def largest_holders(holders: Iterable[Holder], most: int) -> list[Holder]:
    """Return at most so many holders, those of the most shares first."""
    return sorted(holders, key=lambda one: (-sum(one.shares.values()), one.namespace, one.pod))[:most]


def _holder(pod: Pod, usages: Iterable[Usage], caps: Mapping[str, int | None]) -> Holder:
    measured = list(usages)
    return Holder(
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        shares=pod.requests,
        used=total(one.used for one in measured) if measured else None,
        # A container that is older than a change of the policy keeps its cap: the runtime knows, the policy does not.
        cap=total(one.cap for one in measured) if measured else _granted(pod, caps),
    )


def _granted(pod: Pod, caps: Mapping[str, int | None]) -> int | None:
    sizes = ((caps.get(resource), number) for resource, number in pod.requests.items())
    return total(None if size is None else size * number * MIB for size, number in sizes) if pod.requests else None


class ShareUsage(Struct):
    """One resource: how many are wanted, offered and in use, and free for new pods; None: not known.

    With NVIDIA's DRA driver the resource is a DeviceClass, and its numbers are shares of a device as the plan divides it.
    If one namespace was selected, `used` counts its pods only, and `free` is not known.
    """

    resource: str
    wanted: int | None
    offered: int | None
    used: int | None
    free: int | None


class NodeStatus(Struct):
    """One node with GPUs. `pool` is empty for a node of no pool; `condition` is GPUShareReady as far as it still holds.

    `holders` is None if pods were not read. `backend` is what serves its pool, empty if that is not known. `offer` are its
    ResourceSlices, None where there are none to expect or they were not read; `claims` are those that have its devices.
    """

    name: str
    pool: str
    is_up: bool
    is_cordoned: bool
    condition: Condition
    taints: tuple[str, ...]
    shares: tuple[ShareUsage, ...]
    metrics: RuntimeMetrics | None = None
    holders: tuple[Holder, ...] | None = None
    backend: str = ""
    offer: NodeOffer | None = None
    claims: int | None = None

    @property
    def is_ready(self) -> bool:
        """Whether new pods can use the node's shares as planned."""
        return self.is_up and not self.is_cordoned and self.condition.is_true

    @property
    def is_observed(self) -> bool:
        """Whether nothing is wrong with the node but that the runtime only observes."""
        return self.is_up and not self.is_cordoned and self.condition.reason == OBSERVING


class PoolStatus(Struct):
    """One pool: its nodes, and the sums over them. `mode` and `card` are empty if its policy could not be read.

    `is_divided`: whether a device has replicas. `memory_of_node` is as planned, None if the policy could not be read.
    """

    name: str
    card: str
    mode: str
    nodes: tuple[NodeStatus, ...]
    shares: tuple[ShareUsage, ...]
    is_divided: bool = False
    memory_of_node: MemoryTotals | None = None
    backend: str = ""

    @property
    def memory(self) -> MemoryTotals:
        """The memory of all nodes, as planned."""
        return (self.memory_of_node or UNKNOWN_MEMORY).of_nodes(len(self.nodes))

    @property
    def ready(self) -> int:
        """How many nodes are ready."""
        return sum(node.is_ready for node in self.nodes)

    @property
    def observed(self) -> int:
        """How many nodes are only observed."""
        return sum(node.is_observed for node in self.nodes)

    @property
    def holders(self) -> list[Holder]:
        """The pods that hold its shares, as far as pods were read."""
        return [one for node in self.nodes for one in node.holders or ()]


class VmNode(Struct):
    """One node for virtual machines with vGPUs: its config, empty for the default one, and what NVIDIA's manager says of it."""

    name: str
    config: str
    state: str


class ClaimStatus(Struct):
    """The claims of all namespaces that were read: how many have devices, and wait; None: not known.

    `left` are those that have devices though no pod is there for which they are reserved; None if that is not known. `names`
    are names in limits that several DeviceClasses have: only one of them serves it.
    """

    allocated: int | None
    pending: int | None
    left: tuple[Claim, ...] | None
    names: tuple[tuple[str, tuple[str, ...]], ...]


class Status(Struct):
    """The cluster's GPUs. `others` are nodes with GPUs that belong to no pool; `kills` are the runtime's recent Events.

    `vm_nodes` are nodes for virtual machines: no node runtime tells of which pool they are.

    `observed` is what `enforce` would do, None if no node is observed. `claims` is about those of the DRA driver's devices,
    None where it serves nothing.
    """

    pools: tuple[PoolStatus, ...]
    others: tuple[NodeStatus, ...]
    kills: tuple[RecordedEvent, ...]
    pending: tuple[Pod, ...]
    unseen: tuple[ReadFailure, ...]
    observed: Observed | None = None
    vm_nodes: tuple[VmNode, ...] = ()
    claims: ClaimStatus | None = None


def assess(snapshot: Snapshot) -> Status:
    """Return the status of everything in the snapshot."""
    live = live_pools.find(snapshot)
    snapshot = slices.with_claims(snapshot, live)
    offers = slices.offers(snapshot, live) or {}
    given = slices.seen_allocations(snapshot)
    pods = holding_by_node(snapshot.pods) if snapshot.has_seen("pods") else None
    others = snapshot.has_seen(OTHER_PODS)
    metrics = {one.node: one for one in snapshot.metrics}
    by_pool: dict[str, list[NodeStatus]] = {}
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        pool, offer = live.of(node), offers.get(node.name)
        if pool or node.capacity or node.allocatable or node.condition:
            condition = belief.condition(node, pool, snapshot, offer)
            own = _node(node, pool, condition, pods, metrics.get(node.name), has_others=others)
            by_pool.setdefault(own.pool, []).append(_of_driver(own, pool, offer, given, has_others=others))
    return Status(
        pools=tuple(_pool(one, by_pool.get(name, ())) for name, one in live.pools.items()),
        others=tuple(by_pool.get("", ())),
        kills=tuple(sorted(snapshot.events, key=lambda event: (event.time, event.namespace, event.name), reverse=True)),
        pending=tuple(pod for pod in snapshot.pods if not pod.node and pod.phase == "Pending"),
        unseen=snapshot.unseen,
        observed=belief.would_change(snapshot.nodes, snapshot.metrics, snapshot.refused),
        vm_nodes=tuple(_vm_nodes(snapshot.nodes)),
        claims=None if snapshot.dra is None else _claims(snapshot, snapshot.dra),
    )


def _claims(snapshot: Snapshot, dra: DraObjects) -> ClaimStatus:
    by_name: dict[str, list[str]] = {}
    for one in dra.classes:
        if one.extended_name:
            by_name.setdefault(one.extended_name, []).append(one.name)
    is_seen = snapshot.has_seen(claims.CLAIMS)
    return ClaimStatus(
        allocated=sum(bool(one.grants) for one in dra.claims) if is_seen else None,
        pending=sum(one.grants is None for one in dra.claims) if is_seen else None,
        left=tuple(slices.without_pods(dra.claims, snapshot.pods)) if is_seen and snapshot.has_seen("pods") else None,
        names=tuple((name, tuple(sorted(each))) for name, each in sorted(by_name.items()) if len(each) > 1),
    )


def _vm_nodes(nodes: Iterable[LiveNode]) -> Iterator[VmNode]:
    for node in sorted(nodes, key=lambda node: node.name):
        if node.vgpus is not None:
            config, state = node.vgpus
            yield VmNode(name=node.name, config=config, state=state)


def only(status: Status, name: str) -> Status | None:
    """Return the status of one pool or one node; None if there is neither of that name."""
    chosen = [pool for pool in status.pools if pool.name == name]
    if chosen:
        return _narrowed(status, chosen, [])
    chosen = [_reduced(pool, name) for pool in status.pools if any(node.name == name for node in pool.nodes)]
    others = [node for node in status.others if node.name == name]
    return _narrowed(status, chosen, others) if chosen or others else None


def _narrowed(status: Status, chosen: Sequence[PoolStatus], others: Sequence[NodeStatus]) -> Status:
    names = {node.name for pool in chosen for node in pool.nodes} | {node.name for node in others}
    return Status(
        pools=tuple(chosen),
        others=tuple(others),
        kills=status.kills,
        pending=(),
        unseen=status.unseen,
        observed=status.observed and belief.would_change_on(status.observed, names),
        claims=status.claims,
    )


def _reduced(pool: PoolStatus, node: str) -> PoolStatus:
    kept = tuple(one for one in pool.nodes if one.name == node)
    return replace(pool, nodes=kept, shares=_sums(kept))


def _used(held: Iterable[Holder]) -> Counter[str]:
    """Return how many of each resource the pods hold."""
    used: Counter[str] = Counter()
    for one in held:
        used.update(dict(one.shares))
    return used


def _of_driver(
    node: NodeStatus, pool: LivePool | None, offer: NodeOffer | None, given: Allocations | None, *, has_others: bool
) -> NodeStatus:
    """Return the node with what the DRA driver offers there: shares of classes, instead of those of a device plugin."""
    found = replace(node, backend=pool.backend if pool else "", offer=offer)
    if pool is None or not pool.is_dra:
        return found
    is_open = node.is_up and not node.is_cordoned and not any(map(taints.word, node.taints))
    # An instance that is made on demand takes places of other profiles too: how many are free is not told.
    is_counted = has_others and not pool.is_on_demand
    of_classes = [
        _class_usage(name, plan, pool.division, offer, given, is_open=is_open, has_others=is_counted)
        for name, plan in sorted(pool.classes.items())
    ]
    of_plugin = [one for one in node.shares if one.resource not in pool.classes]
    held = (
        None if given is None or offer is None else [one for listed in _devices(offer) for one in given.get(key_of(listed), ())]
    )
    return replace(
        found,
        shares=(*of_plugin, *of_classes),
        claims=None if held is None else len({one.claim.full_name for one in held}),
    )


def _devices(offer: NodeOffer) -> Iterator[Listed]:
    return (one for each in offer.devices.values() for one in each)


def _class_usage(  # noqa: PLR0913 - what a row depends on
    name: str,
    plan: ClassPlan,
    division: str,
    offer: NodeOffer | None,
    given: Allocations | None,
    *,
    is_open: bool,
    has_others: bool,
) -> ShareUsage:
    every = None if offer is None else [one for one in offer.devices.get(name, ()) if one.is_offered]
    used = free = None
    if every is not None and given is not None:
        held = [given.get(key_of(one), ()) for one in every]
        used = sum(slices.shares_used(plan, division, one.grant.consumed) for each in held for one in each)
        rooms = (slices.shares_left(plan, one.device, each) for one, each in zip(every, held, strict=True))
        free = (sum(rooms) if is_open else 0) if has_others else None
    offered = None if every is None else len(every) * plan.replicas
    return ShareUsage(resource=name, wanted=plan.devices * plan.replicas, offered=offered, used=used, free=free)


def _node(  # noqa: PLR0913 - the parts of one row
    node: LiveNode,
    pool: LivePool | None,
    condition: Condition,
    pods: Mapping[str, Sequence[Pod]] | None,
    metrics: RuntimeMetrics | None,
    *,
    has_others: bool,
) -> NodeStatus:
    wanted = None if pool is None or pool.side is None else pool.side.resources
    caps = pool.caps if pool else NOTHING
    found = None if pods is None else holders_of_node(pods.get(node.name, ()), metrics, caps)
    held = None if found is None else _used(found)
    is_open = node.is_up and not node.is_cordoned and not any(map(taints.word, node.taints))
    names = sorted({*node.allocatable, *(wanted or ()), *(held or ())})
    shares = (
        ShareUsage(
            resource=name,
            wanted=None if wanted is None else wanted.get(name, 0),
            offered=node.allocatable.get(name, 0),
            used=None if held is None else held[name],
            free=0
            if not is_open
            else max(0, node.allocatable.get(name, 0) - held[name])
            if held is not None and has_others
            else None,
        )
        for name in names
    )
    return NodeStatus(
        name=node.name,
        pool=pool.name if pool else "",
        is_up=node.is_up,
        is_cordoned=node.is_cordoned,
        condition=condition,
        taints=node.taints,
        shares=tuple(one for one in shares if one.wanted or one.offered or one.used),
        metrics=metrics,
        holders=found,
    )


def _pool(pool: LivePool, nodes: Sequence[NodeStatus]) -> PoolStatus:
    card, mode = ("", "") if pool.side is None else (pool.side.card, pool.side.mode)
    return PoolStatus(
        name=pool.name,
        card=card,
        mode=mode,
        nodes=tuple(nodes),
        shares=_sums(nodes),
        is_divided=pool.side is not None and any(device.replicas > 1 for gpu in pool.side.gpus for device in gpu),
        memory_of_node=pool.memory,
        backend=pool.backend,
    )


def _sums(nodes: Sequence[NodeStatus]) -> tuple[ShareUsage, ...]:
    by_name: dict[str, list[ShareUsage]] = {}
    for node in nodes:
        for one in node.shares:
            by_name.setdefault(one.resource, []).append(one)
    return tuple(
        ShareUsage(
            resource=name,
            wanted=total(one.wanted for one in each),
            offered=total(one.offered for one in each),
            used=total(one.used for one in each),
            free=total(one.free for one in each),
        )
        for name, each in sorted(by_name.items())
    )
