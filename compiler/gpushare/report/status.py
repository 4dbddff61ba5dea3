"""`gpushare status`: what is wanted, offered, used and free of a cluster's GPUs, by whom, and what is wrong with which node.

An entry in a list of columns is all that a column needs, and a member of a record all that a field of the document needs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from gpushare import vendors
from gpushare.cluster.live.belief import Observed, Would
from gpushare.cluster.live.claims import Claim, Grant
from gpushare.cluster.live.objects import Pod, ReadFailure, RecordedEvent, RuntimeMetrics, Usage
from gpushare.cluster.live.status import (
    ClaimStatus,
    Holder,
    NodeStatus,
    PoolStatus,
    ShareUsage,
    Status,
    VmNode,
    largest_holders,
)
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import join_first, pluralize
from gpushare.facts.nodes import taints
from gpushare.report import pool_facts
from gpushare.report.document import (
    COUNT,
    INTEGER,
    TEXT,
    Document,
    Member,
    Shape,
    array,
    by_name,
    fields,
    optional,
    record,
    words,
)
from gpushare.report.model import Cards, Column, Form, Format, Lines, PoolCard, Report, ReportPart, Section, T, Table, bare
from gpushare.report.pool_facts import known
from gpushare_node.contract.policy import Backend
from gpushare_node.contract.struct import Struct

_MAX_NODES = 20
_MAX_KILLS = 50
_MAX_HOLDERS = 20
"""Pods of all pools, and at least `_MIN_HOLDERS` of each: those of the most shares first."""
_MIN_HOLDERS = 3
_MAX_ROWS = 2000
"""Of nodes and of pods that hold shares on the whole page, and at least `_MIN_ROWS` of each pool: those that are not ready
and those of the most shares first."""
_MIN_ROWS = 5
_MAX_OTHERS = 50
"""Rows of each other table of the page."""
_NO_EVENTS = "no Event about a cap; Kubernetes keeps Events for an hour"


class PoolLine(Struct):
    """A resource of a pool, None if it has none. The first line of a pool has what belongs to the whole pool."""

    pool: PoolStatus
    share: ShareUsage | None
    is_first: bool = True


def _pool_lines(pool: PoolStatus) -> Iterator[PoolLine]:
    """Yield a line for each resource of the pool, at least one."""
    for number, share in enumerate(pool.shares or (None,)):
        yield PoolLine(pool=pool, share=share, is_first=not number)


def _readiness(pool: PoolStatus) -> str:
    """Return how many nodes are ready, of how many."""
    count = len(pool.nodes)
    if pool.observed == count > 0:
        return f"{count} observed"
    return f"{pool.ready}/{count}" + (f", {pool.observed} observed" if pool.observed else "")


def _format_resources(resources: Iterable[tuple[str, int | None]]) -> str:
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


def _dra_nodes(seen: Status) -> list[NodeStatus]:
    """Return the nodes that NVIDIA's DRA driver serves or should serve, those that are not as planned first."""
    every = [node for pool in seen.pools for node in pool.nodes] + list(seen.others)
    found = [node for node in every if node.backend == Backend.DRA or (node.offer is not None and node.offer.is_there)]
    return sorted(found, key=lambda node: not (node.offer and node.offer.problem))


def _devices_listed(node: NodeStatus) -> str:
    """Return how many devices of each class the slices have."""
    if node.offer is None:
        return "?"
    return ", ".join(f"{name}: {len(each)}" for name, each in sorted(node.offer.devices.items())) or "-"


def _slices_verdict(node: NodeStatus) -> str:
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


def _meter(line: PoolLine) -> tuple[int, int]:
    return (line.share.used or 0, line.share.offered or 0) if line.share else (0, 0)


class HolderLine(Struct):
    """A pod that holds shares, with the name of its node's pool; empty for a node of no pool."""

    pool: str
    holder: Holder


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{-(-size // MIB)}Mi"


def _size(number: int | None) -> str:
    return "?" if number is None else show_bytes(number)


POOLS: tuple[Column[PoolLine], ...] = (
    Column(header="POOL", value=_of_pool(lambda pool: pool.name), where=Format.TEXT),
    Column(header="MODE", value=_of_pool(lambda pool: pool.mode or "?"), where=Format.TEXT, is_droppable=True),
    Column(header="READY", value=_of_pool(_readiness), where=Format.TEXT, is_uncut=True),
    Column(header="RESOURCE", value=lambda line: line.share.resource if line.share else "-", is_code=True),
    Column(header="WANTED", value=_of_share(lambda one: known(one.wanted)), is_number=True),
    Column(header="OFFERED", value=_of_share(lambda one: known(one.offered)), is_number=True),
    Column(header="USED", value=_of_share(lambda one: known(one.used)), is_number=True),
    Column(header="FREE", value=_of_share(lambda one: known(one.free)), is_number=True),
    Column(
        header="IN USE",
        value=_of_share(_percentage),
        where=Format.PAGE,
        is_number=True,
        meter=_meter,
    ),
)
NODES: tuple[Column[NodeStatus], ...] = (
    Column(header="NODE", value=lambda node: node.name),
    Column(header="POOL", value=lambda node: node.pool or "-", where=Format.TEXT),
    Column(header="STATE", value=lambda node: ", ".join(_states(node))),
    Column(header="REASON", value=lambda node: node.condition.reason),
    Column(header="SINCE", value=lambda node: node.condition.since or "-", is_droppable=True),
    Column(header="OFFERED", value=lambda node: _format_resources((one.resource, one.offered) for one in node.shares)),
    Column(
        header="USED",
        value=lambda node: _format_resources((one.resource, one.used) for one in node.shares if one.used is None or one.used),
        is_droppable=True,
    ),
    Column(header="MESSAGE", value=lambda node: node.condition.message, is_wide=True),
)
HOLDERS: tuple[Column[HolderLine], ...] = (
    Column(header="POOL", value=lambda line: line.pool or "-", where=Format.TEXT),
    Column(header="HELD BY", page_header="Pod", value=lambda line: line.holder.full_name),
    Column(header="NODE", value=lambda line: line.holder.node, is_droppable=True),
    Column(header="SHARES", value=lambda line: _format_resources(line.holder.shares.items())),
    Column(header="MEMORY", value=lambda line: _mib(line.holder.used), is_number=True),
    Column(header="CAP", value=lambda line: _mib(line.holder.cap), is_number=True),
)
PENDING: tuple[Column[Pod], ...] = (
    Column(header="PENDING POD", page_header="Pod", value=lambda pod: pod.full_name),
    Column(header="REQUESTS", value=lambda pod: _format_resources(pod.requests.items())),
    Column(header="WHY", value=lambda pod: next(iter(pod.problems), "")),
)
DRA_NODES: tuple[Column[NodeStatus], ...] = (
    Column(header="DRA NODE", page_header="Node", value=lambda node: node.name),
    Column(header="POOL", value=lambda node: node.pool or "-", is_droppable=True),
    Column(header="BACK END", value=lambda node: node.backend or "?"),
    Column(header="DEVICES", value=_devices_listed),
    Column(header="CLAIMS", value=lambda node: known(node.claims), is_number=True),
    Column(header="SLICES", value=_slices_verdict),
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
EVENTS: tuple[Column[RecordedEvent], ...] = (
    Column(header="TIME", value=lambda one: one.time or "?"),
    Column(header="REASON", value=lambda one: one.reason),
    Column(header="POD", value=lambda one: f"{one.namespace}/{one.name}"),
    Column(header="COUNT", value=lambda one: str(one.count), is_number=True),
    Column(header="MESSAGE", value=lambda one: one.message),
)


def _memory_note(holders: Iterable[Holder], *, with_kills: bool) -> str:
    """Return why the memory that pods use is not known, empty if it is."""
    if all(one.used is not None for one in holders):
        return ""
    if with_kills:
        return "The memory in use is - for pods that no runtime reported."
    return "The memory in use is not known: --kills reads it from the runtimes' metrics."


def report(seen: Status, *, is_wide: bool, with_kills: bool) -> Report:
    """Return the report. `is_wide`: the text has every node, with the message of its condition, and every pod."""
    nodes = [node for pool in seen.pools for node in pool.nodes]
    every = [*nodes, *seen.others]
    unready = [node for node in every if _is_wrong(node) and (node.pool or node.condition.since)]
    facts = {
        "Pools": str(len(seen.pools)),
        "Nodes": str(len(nodes)),
        "Not ready": str(sum(map(_is_wrong, nodes))),
        "Pending pods": str(len(seen.pending)),
    }
    unseen = [f"{one.what}: {one.why}" for one in dict.fromkeys(seen.unseen)]
    return Report(
        title="GPU pools",
        tab="GPU pools, {}",
        facts=(facts, pool_facts.memory([pool.memory for pool in seen.pools])),
        as_of="As the cluster was at {}.",
        head=(Lines(lines=unseen, form=Form.NOTE, intro="Not seen, so its numbers are “?”:", where=Format.PAGE),),
        sections=(
            _pools(seen, with_kills=with_kills),
            *(() if seen.observed is None else [_observed(seen.observed)]),
            bare(_text_of_nodes(every if is_wide else unready, is_wide=is_wide)),
            *(() if is_wide else _explained(unready)),
            *_others(seen, is_wide=is_wide, with_kills=with_kills),
            *(_kills(seen, [node.metrics for node in every if node.metrics]) if with_kills else ()),
        ),
        footer=" from what the API server answered. Unknown numbers are “?”.",
        document=partial(DOCUMENT.write, seen),
    )


def _is_wrong(node: NodeStatus) -> bool:
    return not (node.is_ready or node.is_observed)


def _pools(seen: Status, *, with_kills: bool) -> Section:
    """Return the pools: a table in the text, a card for each on the page."""
    if not seen.pools:
        return bare(Lines(lines=["no pools were seen"]))
    most = max(_MAX_ROWS // len(seen.pools), _MIN_ROWS)
    cards = [_card(pool, most) for pool in seen.pools]
    return Section(
        id="pools",
        title="Pools",
        parts=(
            Table(columns=POOLS, rows=[line for pool in seen.pools for line in _pool_lines(pool)], where=Format.TEXT),
            Cards(
                cards=cards,
                search="name, card, mode, reason, node or pod",
                legend=pool_facts.legend(mode for card in cards for mode in card.modes),
                explained=pool_facts.MEMORY_EXPLAINED,
                note=_memory_note((one for pool in seen.pools for one in pool.holders), with_kills=with_kills),
            ),
        ),
    )


def _card(pool: PoolStatus, most: int) -> PoolCard:
    """Return the card of a pool, with at most so many of its nodes."""
    wrong = [node for node in pool.nodes if _is_wrong(node)]
    ordered = [*wrong, *(node for node in pool.nodes if not _is_wrong(node))]
    reasons = dict.fromkeys(node.condition.reason for node in pool.nodes)
    held = pool.holders
    shown = [HolderLine(pool=pool.name, holder=one) for one in largest_holders(held, most)]
    pods = (line.holder.full_name for line in shown)
    left = len(ordered) - most
    more = f"and {pluralize(left, 'node')} more; {max(len(wrong) - most, 0)} of them do not match the plan"
    return PoolCard(
        id=f"pool-{pool.name}",
        name=pool.name,
        tag=f"{_readiness(pool)} ready" if pool.observed < len(pool.nodes) else _readiness(pool),
        is_harmful=bool(wrong),
        modes=(pool_facts.mode(pool.mode or "?", is_divided=pool.is_divided),),
        aside=pool.card or "unknown card",
        text=" ".join((pool.name, pool.card, pool.mode, *reasons, *(node.name for node in ordered[:most]), *pods)).lower(),
        parts=(
            Table(
                title=f"Shares of {pool.name}",
                columns=POOLS,
                rows=[line for line in _pool_lines(pool) if line.share],
                is_fixed=True,
            ),
            Lines(lines=[pool_facts.memory_line([pool.memory], pluralize(len(pool.nodes), "node"))], form=Form.MUTED),
            Table(
                title=f"Pods that hold shares of {pool.name}",
                columns=HOLDERS,
                rows=shown,
                more=f"and {len(held) - most} more; --format json lists all" if len(held) > most else "",
            ),
            Table(
                title=f"Nodes of {pool.name}",
                columns=NODES,
                rows=ordered[:most],
                more=f"{more}; --format json lists all" if left > 0 else "",
            ),
        ),
    )


def _observed(observed: Observed) -> Section:
    """Return what `enforce` would do: to pods, then to each node, at most so many."""
    nodes = observed.nodes
    changed = [node for node in nodes if not node.is_nothing]
    lines = [*_of_pods(observed), *map(_of_node, changed[:_MAX_NODES])]
    if len(changed) > _MAX_NODES:
        lines.append(f"and {len(changed) - _MAX_NODES} more nodes would be changed")
    if len(changed) < len(nodes):
        lines.append(f"{pluralize(len(nodes) - len(changed), 'node')} would not be changed")
    intro = f"{pluralize(len(nodes), 'node')} observed: nothing is changed there. With enforce:"
    return Section(id="observed", title="Observed nodes", parts=(Lines(lines=lines, form=Form.LIST, intro=intro, indent=4),))


def _of_pods(observed: Observed) -> Iterator[str]:
    if observed.over is None and observed.refused is None:
        yield "containers over their caps and refused pods are counted with --kills"
    if observed.over is not None:
        actions = pluralize(observed.actions or 0, "action")
        yield f"{pluralize(observed.over, 'container')} over their cap now; {actions} since the start of the runtimes"
    if observed.refused is not None:
        yield f"{pluralize(observed.refused, 'pod')} would have been refused since the start of the API server"


def _of_node(would: Would) -> str:
    if would.unknown and not (would.gpus or would.labels or would.resources):
        return f"{would.node}: not known: {would.unknown}"
    parts = [f"be repartitioned (GPU {join_first(would.gpus, 8)})"] if would.gpus else []
    if would.labels:
        parts.append(f"get {pluralize(len(would.labels), 'label')}")
    if would.resources:
        parts.append("offer " + join_first([f"{name}: {number}" for name, number in sorted(would.resources.items())], 8))
    text = f"node {would.node} would {', '.join(parts)}"
    if would.pods:
        text += f"; in use by {join_first(would.pods, 8)}" + (f" ({would.held} pods)" if would.held > len(would.pods) else "")
    return text + (f"; not known: {would.unknown}" if would.unknown else "")


def _text_of_nodes(nodes: Sequence[NodeStatus], *, is_wide: bool) -> Table[NodeStatus]:
    """Return the nodes that the text has: the cards of the page have them all."""
    return Table(columns=NODES, rows=nodes, most=None if is_wide else _MAX_NODES, is_wide=is_wide, where=Format.TEXT)


def _explained(unready: Sequence[NodeStatus]) -> Iterator[Section]:
    """Yield why the first nodes are not ready, and the command that says what to do."""
    for node in unready[:3]:
        reason = node.condition.message or node.condition.reason
        yield bare(Lines(lead=node.name, lines=[f": {reason}"], where=Format.TEXT))
    for node in unready[:1]:
        yield bare(Lines(lines=[f"`gpushare explain {node.name}` says what to do."], form=Form.NOTE))


def _others(seen: Status, *, is_wide: bool, with_kills: bool) -> Iterator[Section]:
    """Yield what belongs to no pool or to several: nodes, claims of NVIDIA's DRA driver, pods that hold shares or wait."""
    others = [HolderLine(pool="", holder=one) for node in seen.others for one in node.holders or ()]
    most = None if is_wide else _MAX_NODES
    yield _listed("others", "Nodes with GPUs that belong to no pool", NODES, seen.others, where=Format.PAGE)
    if seen.claims is not None:
        note = f"{known(seen.claims.allocated)} claims have devices, {known(seen.claims.pending)} wait"
        yield _listed("dra", "Nodes of NVIDIA's DRA driver", DRA_NODES, _dra_nodes(seen), most, note)
        yield _listed("left", "Claims that have devices but no pod", CLAIMS_LEFT, seen.claims.left or (), most)
        note = "Pods that ask by such a name get what one of the classes selects; deleting one class removes the name."
        yield _listed("names", "Names in limits of several device classes", CLASS_NAMES, seen.claims.names, most, note)
    yield _listed("machines", "Nodes for virtual machines", VM_NODES, seen.vm_nodes)
    yield bare(*_text_of_holders(seen, is_wide=is_wide, with_kills=with_kills))
    yield _listed("held", "Pods on nodes of no pool", HOLDERS, others, where=Format.PAGE)
    yield _listed("pending", "Pending pods", PENDING, seen.pending, _MAX_NODES)


def _text_of_holders(seen: Status, *, is_wide: bool, with_kills: bool) -> Iterator[ReportPart]:
    """Yield the pods that hold shares, those of the most shares first: the cards of the page have them by pool."""
    groups = [(pool.name, pool.holders) for pool in seen.pools]
    groups.append(("", [one for node in seen.others for one in node.holders or ()]))
    number = sum(len(held) for _, held in groups)
    if not number:
        return
    most = number if is_wide else max(_MAX_HOLDERS // sum(bool(held) for _, held in groups), _MIN_HOLDERS)
    lines = [HolderLine(pool=name, holder=one) for name, held in groups for one in largest_holders(held, most)]
    more = f"and {number - len(lines)} more; -o wide lists all" if number > len(lines) else ""
    note = _memory_note((line.holder for line in lines), with_kills=with_kills)
    yield Table(columns=HOLDERS, rows=lines, more=more, note=note, is_wide=is_wide, where=Format.TEXT)


def _kills(seen: Status, metrics: Sequence[RuntimeMetrics]) -> Iterator[Section]:
    if not seen.kills:
        yield bare(Lines(lines=[_NO_EVENTS]))
    yield _listed("events", "Events about caps in the last hour", EVENTS, seen.kills, _MAX_KILLS)
    counted = [one for one in metrics if one.kills or one.evictions or one.warnings or one.is_paused]
    yield _listed(
        "counters", "Kills and warnings of each runtime", COUNTERS, counted, note="Counters since the start of each runtime."
    )
    over = [one for each in metrics for one in each.usages if one.is_over]
    yield _listed("over", "Containers over their caps now", OVER, over)


def _listed(  # noqa: PLR0913, PLR0917 - what such tables differ in
    key: str,
    title: str,
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    most: int | None = None,
    note: str = "",
    where: Format = Format.ANY,
) -> Section:
    """Return a table of its own."""
    shown = Table(title=title, columns=columns, rows=rows, most=most, most_on_page=_MAX_OTHERS, note=note, where=where)
    return Section(id=key, title=title, parts=(shown,))


_SHARE: Shape[ShareUsage] = record(
    "",
    Member("wanted", optional(INTEGER)),
    Member("offered", optional(INTEGER), text="null if ResourceSlices could not be read."),
    Member("used", optional(INTEGER)),
    Member("free", optional(INTEGER), text="For new pods: 0 on a node that takes none."),
)
_SHARES = by_name(
    _SHARE,
    name="shares",
    text="By resource or, with NVIDIA's DRA driver, by DeviceClass: shares of its devices as the plan divides them.",
)
_SLICES: Shape[NodeStatus] = record(
    "slices",
    Member(
        "devices",
        by_name(INTEGER),
        lambda node: {name: len(each) for name, each in node.offer.devices.items()} if node.offer else {},
        "Devices by DeviceClass of the node's pool.",
    ),
    Member(
        "problem",
        optional(TEXT),
        lambda node: node.offer and node.offer.problem,
        "How they differ from the plan; null: not at all.",
    ),
    Member("claims", optional(INTEGER), text="Claims that have these devices."),
)
_HOLDER: Shape[Holder] = record(
    "holder",
    *fields(Holder, "namespace", name="pod"),
    Member("shares", by_name(INTEGER), text="Numbers by resource."),
    Member(
        "memoryUsedBytes",
        optional(INTEGER),
        lambda one: one.used,
        "On all its devices; null without --kills, or if the node's runtime did not report it.",
    ),
    Member(
        "memoryCapBytes",
        optional(INTEGER),
        lambda one: one.cap,
        "What it may use of them; null without a cap, or if the pool's policy could not be read.",
    ),
)
_USAGE: Shape[Usage] = record(
    "", *fields(Usage, "namespace", "pod", "container", "gpu", usedBytes="used", capBytes="cap", overCap="is_over")
)
_METRICS: Shape[RuntimeMetrics] = record(
    "metrics",
    *fields(RuntimeMetrics, "kills", "evictions", "warnings", killsPaused="is_paused"),
    Member("containers", array(_USAGE), lambda one: one.usages),
)
_NODE: Shape[NodeStatus] = record(
    "node",
    *fields(NodeStatus, "name", ready="is_ready", kubeletReady="is_up", cordoned="is_cordoned"),
    Member(
        "reason",
        TEXT,
        lambda node: node.condition.reason,
        "Of the condition GPUShareReady (docs/reasons.md); NotReported without one.",
    ),
    Member("message", TEXT, lambda node: node.condition.message),
    Member("since", optional(TEXT), lambda node: node.condition.since),
    *fields(NodeStatus, "taints"),
    Member(
        "slices",
        optional(_SLICES),
        lambda node: node if node.offer else None,
        "The node's ResourceSlices of NVIDIA's DRA driver; null where none are expected, or they could not be read.",
    ),
    Member("shares", _SHARES, lambda node: {one.resource: one for one in node.shares}),
    Member(
        "pods",
        optional(array(_HOLDER)),
        lambda node: node.holders,
        "The pods that hold shares of the node; null if pods could not be read.",
    ),
    Member("metrics", optional(_METRICS), text="null without --kills."),
)
_POOL: Shape[PoolStatus] = record(
    "pool",
    Member(
        "backend",
        optional(words(["device-plugin", "dra"])),
        text="What serves the pool's GPUs; null if its policy could not be read.",
    ),
    Member("card", optional(TEXT)),
    Member("mode", optional(TEXT)),
    Member("ready", COUNT, text="Nodes that are as wanted and take new pods."),
    Member("observed", COUNT, text="Nodes with nothing wrong whose runtime only observes."),
    Member("shares", _SHARES, lambda pool: {one.resource: one for one in pool.shares}),
    Member("nodes", array(_NODE)),
)
_VM_NODE: Shape[VmNode] = record(
    "",
    Member("name", TEXT),
    Member("config", optional(TEXT), text="The config of NVIDIA's vGPU device manager; null: its default."),
    Member("state", optional(TEXT), text="What the manager says of the node; null: nothing yet."),
)
_PENDING_POD: Shape[Pod] = record(
    "pendingPod",
    *fields(Pod, "namespace", "name", "requests", why="problems"),
)
_WOULD: Shape[Would] = record(
    "",
    Member("name", TEXT, lambda one: one.node),
    Member("gpus", array(TEXT), text="Indexes of the GPUs that would be changed."),
    Member("labels", array(TEXT), text="Labels that would be set."),
    Member("resources", by_name(INTEGER), text="What the node would offer, if that is not what it offers."),
    Member("pods", array(TEXT), text="Pods that use what would be changed; the first of them, if there are many."),
    Member("podCount", COUNT, lambda one: one.held),
    Member("unknown", optional(TEXT)),
)
_OBSERVED: Shape[Observed] = record(
    "observing",
    Member("overCap", optional(INTEGER), lambda one: one.over, "Containers over their caps now; null without --kills."),
    Member("actions", optional(INTEGER), text="Actions against containers that were only counted; null without --kills."),
    Member(
        "refusedRequests",
        optional(INTEGER),
        lambda one: one.refused,
        "Requests that `enforce` would have refused since the API server's start; null without --kills.",
    ),
    Member("nodes", array(_WOULD)),
)
_GRANT: Shape[Grant] = record("", *fields(Grant, "pool", "device"))
_CLAIM: Shape[Claim] = record(
    "", *fields(Claim, "namespace", "name"), Member("devices", array(_GRANT), lambda claim: claim.grants or ())
)
_CLAIMS: Shape[ClaimStatus] = record(
    "claims",
    Member("allocated", optional(INTEGER), text="That have devices."),
    Member("pending", optional(INTEGER)),
    Member(
        "withoutPods",
        optional(array(_CLAIM)),
        lambda claims: claims.left,
        "That have devices though none of the pods is there for which they are reserved.",
    ),
    Member(
        "sharedNames",
        by_name(array(TEXT)),
        lambda claims: dict(claims.names),
        "Names in limits that several DeviceClasses have.",
    ),
)
EVENT: Shape[RecordedEvent] = record(
    "event",
    *fields(RecordedEvent, "namespace", "kind", "name", "reason", "message"),
    Member("time", optional(TEXT)),
    *fields(RecordedEvent, "count"),
)
UNSEEN: Shape[ReadFailure] = record("unseen", *fields(ReadFailure, "what", "why", "hint"), text="What could not be read.")


DOCUMENT: Document[Status] = Document(
    name="status",
    kind="Status",
    text="What the pools of a running cluster offer and use: `gpushare status --format json`. "
    "null: not known, as `unseen` says.",
    members=(
        Member("pools", by_name(_POOL), lambda seen: {pool.name: pool for pool in seen.pools}),
        Member("nodesWithoutPool", array(_NODE), lambda seen: seen.others, "Nodes with GPUs that no pool selects."),
        Member(
            "vmNodes",
            array(_VM_NODE),
            lambda seen: seen.vm_nodes or None,
            "Nodes for virtual machines with vGPUs, by their labels. Absent without any.",
            is_rare=True,
        ),
        Member("pendingPods", array(_PENDING_POD), lambda seen: seen.pending),
        Member(
            "observing",
            optional(_OBSERVED),
            lambda seen: seen.observed,
            "What `enforce` would do where the runtime only observes; null if no node is observed.",
        ),
        Member(
            "claims",
            optional(_CLAIMS),
            text="ResourceClaims of the devices of NVIDIA's DRA driver; null where it serves nothing.",
        ),
        Member("kills", array(EVENT), text="Events about containers over their caps, the latest first; only with --kills."),
        Member("unseen", array(UNSEEN), lambda seen: dict.fromkeys(seen.unseen)),
    ),
)
