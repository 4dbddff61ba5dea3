"""Pools as a comparison sees them: what nodes do, by the policy, and the rest, where it is known, by the pool of the intent."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpushare import vendors
from gpushare.core.units import MIB
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, Geometry
from gpushare.intent.types import NodeSelector, Pool, Requests
from gpushare.offering import backends, modes
from gpushare.resolved.node_plan import DevicePlan
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.policy import DesiredGpu, Policy, Share
from gpushare_node.contract.struct import NOTHING, Struct, content_of, replace

_WHOLE = "spx_nps1"
"""What AMD's driver calls a GPU that it does not divide."""


class OfferedDevice(Struct):
    """One device of a node: a whole GPU (`profile` None, AMD's spx_nps1 too) or an instance."""

    resource: str
    profile: str | None
    start: int
    replicas: int
    memory_mib: int | None = None


Gpu = tuple[OfferedDevice, ...]


class PoolSide(Struct):
    """One pool on one side. `count` None: the number of nodes is not known.

    `selector` is everything that decides which nodes belong to it, as comparable text. `policy` is all that is set otherwise,
    without numbers of nodes (a forecast, not a setting) and placements (a node keeps its own). `devices` are those of `gpus`,
    with all that is known of them; `caps` are by profile and resource, `action` is what happens above one.
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
    backend: str = backends.DEFAULT
    requests: str = Requests.CLAIMS.value
    interval: str = "default"
    nodes: NodeSelector | None = None
    devices: tuple[DevicePlan, ...] = ()
    caps: tuple[tuple[tuple[str | None, str], int | None], ...] = ()
    is_on_demand: bool = False
    action: str | None = None

    @property
    def has_daemon(self) -> bool:
        """Whether MPS daemons serve the pool's nodes: with another config they restart, which ends every container."""
        return modes.named(self.mode).has_daemon

    @property
    def vendor(self) -> GpuVendor:
        """Whose GPUs the pool has."""
        return vendors.of_resources(self.resources)

    @property
    def manager_label(self) -> Any:
        """What tells the vendor's own manager, which taints nodes, how to divide the GPUs; None if none divides them."""
        return self.labels.get(self.vendor.layout_label) if self.vendor.layout_taint else None

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


Place = tuple[str, int, int]
"""Where a MIG instance can be made: profile, start and size."""


def of_policy(wanted: Policy, geometry: Geometry | None = None, clean: Callable[[str], str] = str) -> PoolSide:
    """Return the pool of a policy alone. `geometry` is the card's: without it the places for instances on demand are not known.

    `clean` makes texts safe to print. A KeyError if devices of a GPU have no share.
    """
    shares = {share.profile: share for share in wanted.shares}
    names = [share.profile for share in wanted.shares if share.profile is not None]
    free = mig.places(geometry, names) if geometry and wanted.is_on_demand else ()
    places = [(one.profile.name, one.start, one.size) for one in sorted(free, key=lambda one: one.start)]
    devices = [
        DevicePlan(
            gpu=gpu.index,
            resource=clean(shares[profile].resource),
            profile=None if profile is None else clean(profile),
            start=start,
            size=size,
            memory_mib=shares[profile].memory_mib,
            replicas=shares[profile].replicas,
            cap_mib=shares[profile].cap_mib,
        )
        for gpu in wanted.gpus
        for profile, start, size in _placed(gpu, shares, places, geometry.units if geometry else 1)
    ]
    gpus: list[list[OfferedDevice]] = [[] for _ in wanted.gpus]
    for one in devices:
        gpus[one.gpu].append(
            OfferedDevice(
                resource=one.resource,
                profile=None if one.profile == _WHOLE else one.profile,
                start=one.start,
                replicas=one.replicas,
                memory_mib=one.memory_mib,
            )
        )
    replicas = {share.resource: share.replicas for share in wanted.shares}
    return PoolSide(
        card=clean(wanted.card.id),
        mode=wanted.mode.value,
        profile=wanted.profile or wanted.mode.value,  # no plugin follows a config: the mode is what is shared
        priority=0,
        count=None,
        names=frozenset(),
        selector="",
        labels=NOTHING,
        gpus=tuple(map(tuple, gpus)),
        resources={clean(name): number * (replicas[name] if wanted.dra else 1) for name, number in wanted.resources},
        policy=None,
        backend=wanted.backend.value,
        devices=tuple(devices),
        caps=tuple(((share.profile, share.resource), share.cap_mib) for share in wanted.shares),
        is_on_demand=wanted.is_on_demand,
        action=wanted.enforcement.action.value,
    )


def of_pool(wanted: Policy, pool: Pool, card: Card | None) -> PoolSide:
    """Return a pool of an intent with its policy. `card` None: the catalogue lacks it, and its labels are not known."""
    side, nodes = of_policy(wanted, card.mig if card else None), pool.nodes
    expressions = [content_of(one) for one in nodes.match_expressions]
    selector = {"matchLabels": dict(nodes.match_labels), "matchExpressions": expressions, "names": list(nodes.names)}
    labels: dict[str, list[str]] = {}
    if card is not None:
        layout = wanted.mig_config or wanted.manager_config
        labels = {POOL_LABEL: [pool.name], **backends.of(pool, card).labels(wanted.profile)}
        labels |= {vendors.of(card).layout_label: [layout]} if layout else {}
    interval = modes.of(pool).interval
    of_claims = (pool.requests, [(name, size // MIB) for name, size in pool.sizes], interval, wanted.dra, pool.sharing)
    is_dra = pool.backend.has_claims
    return replace(
        side,
        priority=pool.priority,
        count=nodes.count,
        names=frozenset(nodes.names),
        selector=json.dumps(selector, sort_keys=True),
        labels=labels,
        policy=(
            (side.card, side.mode, side.profile, side.caps, len(wanted.gpus), pool.priority, selector, labels),
            (wanted.enforcement.action, wanted.enforcement.grace_seconds, wanted.enforcement.notice_seconds),
            (pool.enforcement.mechanism, sorted({share.tolerance_mib for share in wanted.shares if share.cap_mib is not None})),
            (wanted.rollout, pool.tolerations, sorted(wanted.namespaces), pool.autoscaler, of_claims if is_dra else None),
        ),
        requests=pool.requests.value,
        interval=interval.value if interval and is_dra else "default",
        nodes=nodes,
    )


def _placed(
    gpu: DesiredGpu, shares: Mapping[str | None, Share], places: Iterable[Place], units: int
) -> Iterator[tuple[str | None, int, int]]:
    """Yield profile, start and size of each device of a GPU."""
    if gpu.on_demand:
        yield from places
    elif gpu.instances:
        yield from ((one.profile, one.start, one.size) for one in gpu.instances)
    elif gpu.partition and gpu.partition.name in shares:
        yield from ((gpu.partition.name, start, 1) for start in range(gpu.partition.devices))
    else:
        yield None, 0, units


def released(pool: PoolSide) -> tuple[Gpu, ...]:
    """Return the pool's GPUs after gpushare released them: whole, not shared."""
    return tuple((OfferedDevice(resource=pool.vendor.whole_gpu, profile=None, start=0, replicas=1),) for _ in pool.gpus)


def exclusive(pool: PoolSide) -> PoolSide:
    """Return what the pool's nodes are after their release: of no pool, with the plugin's own default profile."""
    whole = {pool.vendor.whole_gpu: len(pool.gpus)}
    return replace(
        pool, mode="exclusive", profile="", gpus=released(pool), resources=whole, labels={}, backend=backends.DEFAULT
    )
