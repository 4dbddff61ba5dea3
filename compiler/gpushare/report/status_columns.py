"""The columns of the tables of a cluster's status, as text and on the page: an entry here is all that a column needs."""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from gpushare import vendors
from gpushare.core.units import MIB, show_bytes
from gpushare.intent.types import Backend
from gpushare.live.devices import Claim
from gpushare.live.holders import Holder
from gpushare.live.snapshot import Event, Pod, RuntimeMetrics, Usage
from gpushare.live.status import NodeStatus, PoolStatus, ShareUsage, Status, VmNode
from gpushare.nodes import taints
from gpushare.report.plan_view import known
from gpushare_node.contract.struct import Struct

T = TypeVar("T")


class Column(Generic[T], Struct):
    """A column of rows of `T`. `header` is that of the text; the page writes it in small letters, unless it has its own.

    `is_number`: aligned to the right. `is_droppable`: left out of a narrow terminal, before others are cut; `is_uncut`: never
    cut. `is_wide`: in the text only with `--output wide`. `is_meter`: the page draws the share in use beside it.
    """

    header: str
    value: Callable[[T], str]
    page_header: str = ""
    in_text: bool = True
    on_page: bool = True
    is_number: bool = False
    is_droppable: bool = False
    is_uncut: bool = False
    is_wide: bool = False
    is_code: bool = False
    is_meter: bool = False


class PoolLine(Struct):
    """A resource of a pool, None if it has none. The first line of a pool has what belongs to the whole pool."""

    pool: PoolStatus
    share: ShareUsage | None
    is_first: bool = True


def pool_lines(pool: PoolStatus) -> Iterator[PoolLine]:
    """Yield a line for each resource of the pool, at least one."""
    for number, share in enumerate(pool.shares or (None,)):
        yield PoolLine(pool=pool, share=share, is_first=not number)


def readiness(pool: PoolStatus) -> str:
    """Return how many nodes are ready, of how many."""
    count = len(pool.nodes)
    if pool.observed == count > 0:
        return f"{count} observed"
    return f"{pool.ready}/{count}" + (f", {pool.observed} observed" if pool.observed else "")


def format_resources(resources: Iterable[tuple[str, int | None]]) -> str:
    """Return resources with their numbers, `-` for none."""
    return ", ".join(f"{vendors.short(name)}: {known(number)}" for name, number in resources) or "-"


def _states(node: NodeStatus) -> Iterator[str]:
    if not node.is_up:
        yield "NotReady"
    if node.is_cordoned:
        yield "cordoned"
    yield from filter(None, map(taints.word, node.taints))
    if node.is_ready:
        yield "ready"
    elif node.is_observed:
        yield "observed"
    elif node.is_up and not node.condition.is_true:
        yield "not ready"


def dra_nodes(seen: Status) -> list[NodeStatus]:
    """Return the nodes that NVIDIA's DRA driver serves or should serve, those that are not as planned first."""
    every = [node for pool in seen.pools for node in pool.nodes] + list(seen.others)
    found = [node for node in every if node.backend == Backend.DRA or (node.offer is not None and node.offer.is_there)]
    return sorted(found, key=lambda node: not (node.offer and node.offer.problem))


def devices_listed(node: NodeStatus) -> str:
    """Return how many devices of each class the slices have."""
    if node.offer is None:
        return "?"
    return ", ".join(f"{name}: {len(each)}" for name, each in sorted(node.offer.devices.items())) or "-"


def slices_verdict(node: NodeStatus) -> str:
    """Return whether the slices are as planned, or how they are not."""
    if node.offer is None:
        return "not seen"
    if node.backend != Backend.DRA:
        return "in a pool of another back end"
    return node.offer.problem or "as planned"


def _of_pool(value: Callable[[PoolStatus], str]) -> Callable[[PoolLine], str]:
    return lambda line: value(line.pool) if line.is_first else ""


def _of_share(value: Callable[[ShareUsage], str]) -> Callable[[PoolLine], str]:
    return lambda line: value(line.share) if line.share else ""


def _percentage(one: ShareUsage) -> str:
    return "" if one.used is None or not one.offered else f"{100 * one.used // one.offered}\u00a0%"


class HolderLine(Struct):
    """A pod that holds shares, with the name of its node's pool; empty for a node of no pool."""

    pool: str
    holder: Holder


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{-(-size // MIB)}Mi"


def _size(number: int | None) -> str:
    return "?" if number is None else show_bytes(number)


POOLS: tuple[Column[PoolLine], ...] = (
    Column(header="POOL", value=_of_pool(lambda pool: pool.name), on_page=False),
    Column(header="MODE", value=_of_pool(lambda pool: pool.mode or "?"), on_page=False, is_droppable=True),
    Column(header="READY", value=_of_pool(readiness), on_page=False, is_uncut=True),
    Column(header="RESOURCE", value=lambda line: line.share.resource if line.share else "-", is_code=True),
    Column(header="WANTED", value=_of_share(lambda one: known(one.wanted)), is_number=True),
    Column(header="OFFERED", value=_of_share(lambda one: known(one.offered)), is_number=True),
    Column(header="USED", value=_of_share(lambda one: known(one.used)), is_number=True),
    Column(header="FREE", value=_of_share(lambda one: known(one.free)), is_number=True),
    Column(header="IN USE", value=_of_share(_percentage), in_text=False, is_number=True, is_meter=True),
)
NODES: tuple[Column[NodeStatus], ...] = (
    Column(header="NODE", value=lambda node: node.name),
    Column(header="POOL", value=lambda node: node.pool or "-", on_page=False),
    Column(header="STATE", value=lambda node: ", ".join(_states(node))),
    Column(header="REASON", value=lambda node: node.condition.reason),
    Column(header="SINCE", value=lambda node: node.condition.since or "-", is_droppable=True),
    Column(header="OFFERED", value=lambda node: format_resources((one.resource, one.offered) for one in node.shares)),
    Column(
        header="USED",
        value=lambda node: format_resources((one.resource, one.used) for one in node.shares if one.used is None or one.used),
        is_droppable=True,
    ),
    Column(header="MESSAGE", value=lambda node: node.condition.message, is_wide=True),
)
HOLDERS: tuple[Column[HolderLine], ...] = (
    Column(header="POOL", value=lambda line: line.pool or "-", on_page=False),
    Column(header="HELD BY", page_header="Pod", value=lambda line: line.holder.full_name),
    Column(header="NODE", value=lambda line: line.holder.node, is_droppable=True),
    Column(header="SHARES", value=lambda line: format_resources(line.holder.shares.items())),
    Column(header="MEMORY", value=lambda line: _mib(line.holder.used), is_number=True),
    Column(header="CAP", value=lambda line: _mib(line.holder.cap), is_number=True),
)
PENDING: tuple[Column[Pod], ...] = (
    Column(header="PENDING POD", page_header="Pod", value=lambda pod: pod.full_name),
    Column(header="REQUESTS", value=lambda pod: format_resources(pod.requests.items())),
    Column(header="WHY", value=lambda pod: next(iter(pod.problems), "")),
)
DRA_NODES: tuple[Column[NodeStatus], ...] = (
    Column(header="DRA NODE", page_header="Node", value=lambda node: node.name),
    Column(header="POOL", value=lambda node: node.pool or "-", is_droppable=True),
    Column(header="BACK END", value=lambda node: node.backend or "?"),
    Column(header="DEVICES", value=devices_listed),
    Column(header="CLAIMS", value=lambda node: known(node.claims), is_number=True),
    Column(header="SLICES", value=slices_verdict),
)
CLASS_NAMES: tuple[Column[tuple[str, tuple[str, ...]]], ...] = (
    Column(header="NAME IN LIMITS", value=lambda one: one[0]),
    Column(header="DEVICE CLASSES", value=lambda one: ", ".join(one[1])),
)
CLAIMS_LEFT: tuple[Column[Claim], ...] = (
    Column(header="CLAIM WITHOUT POD", page_header="Claim", value=lambda one: one.full_name),
    Column(header="DEVICES", value=lambda one: ", ".join(f"{grant.device} of {grant.pool}" for grant in one.grants or ())),
    Column(header="RESERVED FOR", value=lambda one: ", ".join(name for name, _ in one.pods) or "-"),
)
VM_NODES: tuple[Column[VmNode], ...] = (
    Column(header="VM NODE", page_header="Node", value=lambda node: node.name),
    Column(header="VGPU CONFIG", value=lambda node: node.config or "-"),
    Column(header="VGPU STATE", value=lambda node: node.state or "-"),
)
COUNTERS: tuple[Column[RuntimeMetrics], ...] = (
    Column(header="NODE", value=lambda one: one.node),
    Column(header="KILLS", value=lambda one: str(one.kills), is_number=True),
    Column(header="EVICTIONS", value=lambda one: str(one.evictions), is_number=True),
    Column(header="WARNINGS", value=lambda one: str(one.warnings), is_number=True),
    Column(header="PAUSED", value=lambda one: "yes" if one.is_paused else "no"),
)
OVER: tuple[Column[Usage], ...] = (
    Column(header="OVER ITS CAP NOW", page_header="Pod", value=lambda one: f"{one.namespace}/{one.pod}"),
    Column(header="CONTAINER", value=lambda one: one.container),
    Column(header="NODE", value=lambda one: one.node),
    Column(header="USED", value=lambda one: _size(one.used), is_number=True),
    Column(header="CAP", value=lambda one: _size(one.cap), is_number=True),
)
EVENTS: tuple[Column[Event], ...] = (
    Column(header="TIME", value=lambda one: one.time or "?"),
    Column(header="REASON", value=lambda one: one.reason),
    Column(header="POD", value=lambda one: f"{one.namespace}/{one.name}"),
    Column(header="COUNT", value=lambda one: str(one.count), is_number=True),
    Column(header="MESSAGE", value=lambda one: one.message),
)


def memory_note(holders: Iterable[Holder], *, with_kills: bool) -> str:
    """Return why the memory that pods use is not known, empty if it is."""
    if all(one.used is not None for one in holders):
        return ""
    if with_kills:
        return "The memory in use is - for pods that no runtime reported."
    return "The memory in use is not known: --kills reads it from the runtimes' metrics."


def with_counters(metrics: Iterable[RuntimeMetrics]) -> list[RuntimeMetrics]:
    """Return the runtimes that did anything since they started."""
    return [one for one in metrics if one.kills or one.evictions or one.warnings or one.is_paused]


def over_their_caps(metrics: Iterable[RuntimeMetrics]) -> list[Usage]:
    """Return the containers that are over their caps now."""
    return [one for each in metrics for one in each.usages if one.is_over]
