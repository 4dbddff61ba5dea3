"""`gpushare plan`: what changes when one intent or bundle replaces another, once for each format. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gpushare import vendors
from gpushare.compare.changes import (
    Amount,
    CapChange,
    Change,
    Comparison,
    CostChange,
    CostChanges,
    GpuChange,
    Move,
    Outage,
    PoolChange,
    Problem,
    QuotaChange,
    ResourceChange,
    Start,
)
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, FileKind, SettingChange
from gpushare.compare.sides import Side
from gpushare.compare.snapshots import PoolSide
from gpushare.core import prices, units
from gpushare.core.units import MemoryTotals
from gpushare.core.wording import pluralize
from gpushare.facts.catalog.cards import Catalog, Geometry
from gpushare.intent.types import NodeSelector
from gpushare.report import pool_facts
from gpushare.report.document import (
    COUNT,
    FLAG,
    MONEY,
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
from gpushare.report.effect_words import CHANGES, format_effect, headline, pods_disturbed, summary, verdict
from gpushare.report.model import (
    MAX_NAMED,
    Cards,
    Column,
    Form,
    Format,
    Lines,
    Map,
    PoolCard,
    Report,
    ReportPart,
    Section,
    Sides,
    T,
    Table,
)
from gpushare.report.pool_facts import known, ranges
from gpushare.report.setting_words import format_file, format_setting
from gpushare.resolved.plan import DevicePlan
from gpushare_node.contract.policy import Action, OnBusy
from gpushare_node.contract.struct import replace

_MAX_LINES, _MAX_ON_PAGE = 40, 500
"""Lines of one list."""
_MARKS = {Change.NEW: "+", Change.GONE: "-", Change.REPARTITION: "!"}
_OPERATOR_RESTART = (
    "the operator restarts the device plugin of every node at once, whatever the rollout of a pool says: "
    "upgrade it when no MPS or MIG pod starts"
)
_CLIENT_SIDE = ", with client-side apply (its chart renders mig: null): helm upgrade --server-side=false"
_FOOTER = ". Numbers of pods are upper bounds: every share that a change takes away may be in use. Unknown numbers are “?”."


def _difference(before: float | None, after: float | None, form: str) -> str:
    return "?" if before is None or after is None else f"{after - before:{form}}"


def _limit(number: int | None) -> str:
    return "-" if number is None else str(number)


def _trouble(quota: QuotaChange) -> str:
    match quota.problem:
        case Problem.EXCEEDS:
            return f"only {quota.capacity} in the cluster"
        case Problem.VANISHED:
            return "no pool offers it"
        case None:
            return ""


MOVES: tuple[Column[Move], ...] = (
    Column(header="NODE", value=lambda one: one.node),
    Column(header="FROM POOL", value=lambda one: one.source or "none"),
    Column(header="TO POOL", value=lambda one: one.target or "none"),
    Column(header="PODS DISTURBED", value=lambda one: f"at most {one.disturbed}" if one.disturbed else "none"),
)
CAPACITY: tuple[Column[tuple[str, Amount]], ...] = (
    Column(header="CAPACITY", page_header="Resource", value=lambda row: row[0], is_code=True),
    Column(header="BEFORE", value=lambda row: known(row[1].before), is_number=True),
    Column(header="AFTER", value=lambda row: known(row[1].after), is_number=True),
    Column(header="CHANGE", value=lambda row: _difference(row[1].before, row[1].after, "+d"), is_number=True),
)
MEMORY: tuple[Column[tuple[str, str, str]], ...] = (
    Column(header="MEMORY", value=lambda row: row[0]),
    Column(header="BEFORE", value=lambda row: row[1], is_number=True),
    Column(header="AFTER", value=lambda row: row[2], is_number=True),
)
QUOTAS: tuple[Column[QuotaChange], ...] = (
    Column(header="NAMESPACE", value=lambda one: one.namespace),
    Column(header="QUOTA ON", value=lambda one: one.resource, is_code=True),
    Column(header="BEFORE", value=lambda one: _limit(one.before), is_number=True),
    Column(header="AFTER", value=lambda one: _limit(one.after), is_number=True),
    Column(header="", page_header="Problem", value=_trouble),
)


def report(found: Comparison, sides: tuple[Side, Side], catalog: Catalog) -> Report:
    """Return the report. `sides` are what was compared."""
    title, document = f"Plan for {sides[1].cluster}", partial(DOCUMENT.write, found)
    if found.is_empty:
        said = Lines(lines=["No changes: both sides are equal."], form=Form.NOTE, where=Format.PAGE | Format.MARKDOWN)
        text = Lines(lines=["no changes"], where=Format.TEXT)
        return Report(title=title, head=(said, text), footer=_FOOTER, document=document)
    others = {one.pool for one in found.effects} | {one.pool for one in found.outages}
    pools = [pool for pool in found.pools if pool.change is not Change.NONE or pool.name in others]
    cards = [_card(pool, found, sides, catalog) for pool in pools]
    folded = Cards(
        cards=cards,
        search="name, card, change, mode, resource or node",
        legend=pool_facts.legend(mode for card in cards for mode in card.modes),
        explained=pool_facts.MEMORY_EXPLAINED,
        is_folded=True,
        where=Format.ANY,
    )
    alike = [each.alike for each in folded.shown(Format.TEXT) if len(each.alike) > MAX_NAMED]
    facts = {
        "Pools changed": str(len(pools)),
        "Nodes touched": known(found.touched),
        "Pods disturbed": f"at most {found.disturbed}" if found.disturbed else known(found.disturbed),
        "Quotas that no longer fit": str(sum(one.problem is not None for one in found.quotas)),
    }
    strategy = " → ".join(one or "each profile's own" for one in found.mig_strategies)
    restart = [f"mig.strategy {strategy}: {_OPERATOR_RESTART}"] if found.changes_mig_strategy else []
    return Report(
        title=title,
        verdict=headline(found),
        summary=summary(found),
        facts=(facts,),
        head=(Lines(lines=verdict(found), form=Form.NOTE, indent=2),),
        sections=(
            _listed("Order", list(_order(found)), Form.ORDER),
            Section(id="pools", title="Pools", parts=(folded,) if cards else ()),
            *_tables(found, sides, catalog),
            _listed("Cluster", restart + [format_effect(one) for one in found.effects if one.pool is None]),
            _listed("Files", [line for one in found.files for line in format_file(one)], Form.FOLDED),
            _listed("Intent", [format_setting(one) for one in found.intent], Form.FOLDED),
            _listed("Pools alike", [", ".join(card.name for card in each) for each in alike], where=Format.TEXT),
        ),
        footer=_FOOTER,
        document=document,
    )


def _listed(title: str, lines: Sequence[str], form: Form = Form.LIST, where: Format = Format.ANY) -> Section:
    """Return a list under a title."""
    listed = Lines(lines=lines, title=title, form=form, indent=4, most=_MAX_LINES, most_on_page=_MAX_ON_PAGE)
    return Section(id=title.lower(), title=title, is_titled=True, where=where, parts=(listed,) if lines else ())


def _tables(found: Comparison, sides: tuple[Side, Side], catalog: Catalog) -> Iterator[Section]:
    capacity = [(name, one) for name, one in found.capacity if _difference(one.before, one.after, "+d") != "+0"]
    before, after = ([_memory(entry, catalog) for entry in side.pools.values()] for side in sides)
    yield _table("moves", "Nodes that change pools", MOVES, found.moves, most=_MAX_LINES)
    yield _table("capacity", "Capacity", CAPACITY, capacity)
    yield _table("memory", "Memory of the cluster", MEMORY, list(_memory_changes(before, after)), where=Format.PAGE)
    if found.costs is not None:
        yield _table("costs", "Cost of an hour", _cost_columns(found.costs), _cost_rows(found.costs))
    yield _table("quotas", "Quotas", QUOTAS, found.quotas)


def _table(  # noqa: PLR0913, PLR0917 - what such tables differ in
    key: str, title: str, columns: Sequence[Column[T]], rows: Sequence[T], most: int | None = None, where: Format = Format.ANY
) -> Section:
    """Return a table of its own."""
    shown = Table(title=title, columns=columns, rows=rows, most=most, where=where)
    return Section(id=key, title=title, parts=(shown,) if rows else ())


def _cost_columns(costs: CostChanges) -> tuple[Column[CostChange], ...]:
    unit = f"{costs.currency or 'COST'}/H"
    return (
        Column(header=unit, page_header=f"Pool ({unit})", value=lambda one: one.pool),
        Column(header="BEFORE", value=lambda one: prices.amount(one.before, ""), is_number=True),
        Column(header="AFTER", value=lambda one: prices.amount(one.after, ""), is_number=True),
        Column(header="CHANGE", value=lambda one: _difference(one.before, one.after, "+,.2f"), is_number=True),
    )


def _cost_rows(costs: CostChanges) -> list[CostChange]:
    """Return each pool whose cost of an hour changes, and the sum of several pools, if it is known."""
    rows = [one for one in costs.pools if one.before != one.after]
    if rows and len(costs.pools) > 1 and costs.before is not None and costs.after is not None:
        rows.append(CostChange(pool="all pools", before=costs.before, after=costs.after))
    return rows


def _order(found: Comparison) -> Iterator[str]:
    """Yield the steps, if their order matters."""
    if found.changes_mig_strategy:
        yield "upgrade gpu-operator first" + ("" if found.mig_strategies[1] else _CLIENT_SIDE)
        yield "then gpushare's chart: until a node changes, its profile works with the new strategy too"


def _card(pool: PoolChange, found: Comparison, sides: tuple[Side, Side], catalog: Catalog) -> PoolCard:
    """Return what happens to a pool, and its GPUs before and after."""
    entries = [side.pools.get(pool.name) for side in sides]
    lines = [
        _disturbance(pool),
        *(format_outage(one) for one in found.outages if one.pool == pool.name),
        *format_consequences(pool),
        *(format_effect(one) for one in found.effects if one.pool == pool.name),
    ]
    before, after = ([] if entry is None else [_memory(entry, catalog)] for entry in entries)
    memory = ", ".join(f"{name} {old} → {new}" for name, old, new in _memory_changes(before, after))
    modes = [_mode(entry) for entry in entries if entry]
    old, new = pool.cards
    return PoolCard(
        id=f"pool-{pool.name}",
        name=pool.name,
        mark=_MARKS.get(pool.change, "~"),
        tag=CHANGES.get(pool.change, "the same"),
        is_harmful=pool.disturbed != 0 or pool.change in {Change.GONE, Change.REPARTITION},
        nodes=next(_nodes(entry.nodes) for entry in reversed(entries) if entry and entry.nodes),
        modes=[one for number, one in enumerate(modes) if one not in modes[:number]],
        fact=pods_disturbed(pool.disturbed) if pool.disturbed else "",
        aside=f"{old} becomes {new}" if old is not None and new is not None and old != new else f"{new or old}",
        parts=(
            Lines(lines=[line for line in lines if line], form=Form.LIST, indent=4),
            Lines(lines=[memory] if memory else [], form=Form.MUTED, where=Format.PAGE),
            *_maps(pool, entries, catalog),
        ),
    )


def _disturbance(pool: PoolChange) -> str:
    """Return how many nodes and pods the pool's change costs; empty for a new pool without nodes."""
    if pool.change in {Change.POLICY, Change.NONE} and not pool.selector_changes and pool.touched == 0:
        return "no GPU and no label of a node changes"
    nodes = "an unknown number of nodes" if pool.touched is None else pluralize(pool.touched, "node")
    if pool.change is Change.NEW:
        pods = f", {pods_disturbed(None)}" if pool.disturbed is None else ""
        return "" if pool.touched == 0 else f"{nodes} set up{pods}"
    each = f", {pool.disturbed_per_node} on each" if pool.disturbed_per_node else ""
    return f"{nodes} touched, {pods_disturbed(pool.disturbed)}{each}"


def format_consequences(pool: PoolChange) -> Iterator[str]:
    """Yield what happens to the pool's nodes, GPUs and resources."""
    if pool.change is Change.GONE and not pool.successor:
        vendor = vendors.of_resources(one.name for one in pool.resources)
        stay = f"offers its whole GPUs again, as {vendor.whole_gpu}" if vendor.is_made_whole else "keeps its GPUs as they are"
        yield f"a node that gpushare releases {stay}"
    if pool.successor:
        yield f"its nodes go to the new pool {pool.successor}"
    if pool.selector_changes:
        yield "its selector changes: nodes that leave the pool become available to other pools"
    if pool.change is Change.REPARTITION:
        yield from _gpus(pool.gpus)
    for one in pool.resources:
        if one.per_node.before != one.per_node.after:
            yield f"{one.name}: {one.per_node.before} → {one.per_node.after} per node"


def _gpus(gpus: Iterable[GpuChange]) -> list[str]:
    """Return what happens to the instances, with GPUs of equal changes together."""
    fates: dict[str, list[int]] = {}
    for gpu in gpus:
        parts = (("kept", gpu.kept), ("destroyed", gpu.destroyed), ("created", gpu.created))
        fate = ", ".join(f"{_instances(instances)} {word}" for word, instances in parts if instances)
        fates.setdefault(fate, []).append(gpu.index)
    return [f"GPU {ranges(indexes)}: {fate}" for fate, indexes in fates.items()]


def _instances(instances: tuple[tuple[str, int], ...]) -> str:
    counts = Counter(profile for profile, _ in instances)
    return " + ".join(f"{count} x {profile}" for profile, count in counts.items())


def format_outage(one: Outage) -> str:
    """Return which nodes go out of service and for how long."""
    nodes = "an unknown number of nodes" if one.nodes is None else pluralize(one.nodes, "node")
    pace, each = ("", "") if one.nodes == 1 else (f", {_pace(one)} at a time", " each")
    rounds = "" if one.rounds is None or one.rounds < 2 else f", so about {_time(one.rounds * one.seconds)} for all"
    busy = {
        "wait": f"a node whose GPUs are in use waits up to {_time(one.drain_seconds)} for those pods to finish",
        "evict": f"pods that use its GPUs are evicted, and have {_time(one.drain_seconds)} to terminate",
        "fail": "a node whose GPUs are in use keeps its former layout",
    }[one.on_busy]
    whose = f"{vendors.VENDORS[one.vendor].name}'s"
    how = f"the bound: nothing was measured on {whose} GPUs" if one.is_bound else "measured on simulated GPUs"
    rounds = rounds.replace("about", "at most") if one.is_bound else rounds
    most = "at most" if one.is_bound else "about"
    shown = f"out of service: {nodes}{pace}, {most} {_time(one.seconds)}{each} ({how}){rounds}; {busy}"
    return shown + ("" if one.start is None else f"; {_begin(one.start)}")


def _begin(start: Start) -> str:
    """Return what the change waits for."""
    if start.is_paused:
        return "begins when rollout.paused is no longer true"
    return f"begins when the next window opens, {start.opening or 'whose time zone is unknown here'}"


def _pace(one: Outage) -> str:
    """Return how many nodes go out of service together."""
    if one.at_once is None:
        return "some"
    number = min(one.at_once, one.nodes or one.at_once)
    return "one" if number == 1 else str(number)


def _time(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _nodes(nodes: NodeSelector) -> str:
    expressions = ({"key": one.key, "operator": one.operator.value, "values": one.values} for one in nodes.match_expressions)
    return pool_facts.nodes_text(dict(nodes.match_labels), expressions, nodes.names)


def _memory(entry: PoolSide, catalog: Catalog) -> MemoryTotals:
    card = catalog.get(entry.card)
    known = [(one.memory_mib, one.replicas, one.cap_mib) for one in entry.devices]
    devices = [(None, 1, None)] if entry.is_on_demand else known
    node = units.memory_of_node(None if card is None else card.memory_mib, len(entry.gpus), devices)
    return node.of_nodes(entry.count)


def _memory_changes(before: Sequence[MemoryTotals], after: Sequence[MemoryTotals]) -> Iterator[tuple[str, str, str]]:
    """Yield the totals that change: name, before and after."""
    old, new = pool_facts.memory(before), pool_facts.memory(after)
    yield from ((name, old[name], new[name]) for name in old if old[name] != new[name])


def _mode(entry: PoolSide) -> Mapping[str, str]:
    return pool_facts.mode(entry.mode, is_divided=any(one.replicas > 1 for one in entry.devices))


def _maps(pool: PoolChange, entries: Sequence[PoolSide | None], catalog: Catalog) -> Iterator[ReportPart]:
    """Yield the maps before and after of the GPUs whose maps differ, once for all that have the same two."""
    changes = {one.index: one for one in pool.gpus} if pool.change is Change.REPARTITION else {}
    geometries = [catalog.geometry(entry.card) if entry else None for entry in entries]
    modes = [_mode(entry)["kind"] if entry else "" for entry in entries]
    before, after = map(_devices, entries)
    groups: dict[str, tuple[list[int], list[Map]]] = {}
    for gpu in range(max((len(entry.gpus) for entry in entries if entry), default=0)):
        change = changes.get(gpu, GpuChange(index=gpu))
        marks = dict.fromkeys(change.destroyed, "gone"), dict.fromkeys(change.created, "new")
        shown = before.get(gpu, []), _placed(after.get(gpu, []), change)
        maps = [
            _map(devices, geometry, mark, mode)
            for devices, geometry, mark, mode in zip(shown, geometries, marks, modes, strict=True)
        ]
        if maps[0] != maps[1]:
            groups.setdefault(repr(maps), ([], maps))[0].append(gpu)
    for indexes, maps in groups.values():
        sides = [
            Section(title=title, parts=(one if one.cells else Lines(lines=["no pool of this name"]),))
            for title, one in zip(("Before", "After"), maps, strict=True)
        ]
        yield Sides(title=f"GPU {ranges(indexes)}", sides=sides)


def _map(devices: Sequence[DevicePlan], geometry: Geometry | None, marks: Mapping[tuple[str, int], str], mode: str) -> Map:
    """Return the map of one side of a GPU; without cells if this side has no such pool."""
    has_mig = any(device.profile for device in devices)
    return pool_facts.drawn(
        devices, geometry if has_mig else None, mark=lambda one: marks.get((one.profile or "", one.start), ""), mode=mode
    )


def _devices(entry: PoolSide | None) -> dict[int, list[DevicePlan]]:
    """Return the devices of each GPU of a node."""
    found: dict[int, list[DevicePlan]] = {}
    for device in entry.devices if entry else ():
        found.setdefault(device.gpu, []).append(device)
    return found


def _placed(devices: Sequence[DevicePlan], change: GpuChange) -> Sequence[DevicePlan]:
    """Return the devices where the node has them afterwards: what is kept stays in its place."""
    places = (*change.kept, *change.created)
    kinds = {device.profile: device for device in devices}
    if not places or not all(profile in kinds for profile, _ in places):
        return devices
    return [replace(kinds[profile], start=start) for profile, start in places]


_NAME: Shape[str] = Shape(schema={"type": "string", "minLength": 1}, write=str)
_ANY: Shape[Any] = Shape(schema={}, write=lambda value: value)
_COST = optional(MONEY)
_STRATEGY: Shape[str | None] = Shape(schema={"enum": ["none", "single", "mixed", "", None]}, write=lambda value: value)


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


_DATE: Shape[float] = Shape(schema={"type": "string"}, write=_date)


def _sides(shape: Shape[Any]) -> Shape[tuple[Any, Any]]:
    """Return the shape of a value before and after."""
    return record("", Member("before", shape, lambda pair: pair[0]), Member("after", shape, lambda pair: pair[1]))


_AMOUNT: Shape[Amount] = record(
    "amount",
    Member("before", optional(COUNT)),
    Member("after", optional(COUNT)),
)
_RESOURCE: Shape[ResourceChange] = record("", Member("perNode", _AMOUNT), Member("total", _AMOUNT))
_INSTANCE: Shape[tuple[str, int]] = record(
    "instance", Member("profile", TEXT, lambda one: one[0]), Member("start", COUNT, lambda one: one[1])
)
_INSTANCES: Shape[Iterable[tuple[str, int]]] = array(_INSTANCE)
_GPU: Shape[GpuChange] = record(
    "",
    Member("gpu", COUNT, lambda gpu: gpu.index),
    Member("kept", _INSTANCES),
    Member("destroyed", _INSTANCES),
    Member("created", _INSTANCES),
)
_CAP: Shape[CapChange] = record(
    "",
    Member("resource", _NAME),
    Member("profile", optional(TEXT), text="MIG profile; null for a whole GPU."),
    Member("capMiB", _AMOUNT),
)
_POOL: Shape[PoolChange] = record(
    "pool",
    Member("change", words(Change)),
    Member("card", _sides(optional(TEXT)), lambda pool: pool.cards),
    Member("nodes", _AMOUNT),
    Member("nodesTouched", optional(COUNT), lambda pool: pool.touched),
    Member("podsDisturbed", optional(COUNT), lambda pool: pool.disturbed),
    Member("podsDisturbedPerNode", COUNT, lambda pool: pool.disturbed_per_node, "On one node that stays in the pool."),
    Member("selectorChanges", FLAG, text="Whether other nodes may belong to the pool from now on."),
    Member("successor", optional(TEXT), text="The new pool that selects exactly the nodes of this one, which is gone."),
    Member("resources", by_name(_RESOURCE), lambda pool: {one.name: one for one in pool.resources}),
    Member("gpus", array(_GPU), text="MIG instances of one node, per GPU that has or gets any; empty where none is touched."),
    Member(
        "caps",
        array(_CAP),
        text="What one container may use of each share, before and after; null: no cap, or the side does not offer the share.",
    ),
    Member(
        "action",
        _sides(optional(words(Action))),
        lambda pool: pool.actions,
        "What happens to a container above its cap; null: the side does not have the pool.",
    ),
)
_COSTS: Shape[CostChanges] = record(
    "",
    Member("currency", optional(TEXT), text="Null if the prices name none."),
    Member("before", _COST),
    Member("after", _COST),
    Member("pools", by_name(_sides(_COST)), lambda costs: {one.pool: (one.before, one.after) for one in costs.pools}),
)
_MOVE: Shape[Move] = record(
    "",
    Member("node", TEXT),
    Member("from", optional(TEXT), lambda move: move.source, "Pool; null for none."),
    Member("to", optional(TEXT), lambda move: move.target, "Pool; null for none."),
    Member("podsDisturbed", optional(COUNT), lambda move: move.disturbed),
)
_QUOTA: Shape[QuotaChange] = record(
    "",
    Member("namespace", TEXT),
    Member("resource", _NAME),
    Member("before", optional(COUNT), text="null: no limit."),
    Member("after", optional(COUNT), text="null: no limit."),
    Member("capacity", optional(COUNT), text="What the cluster will offer."),
    Member(
        "problem",
        optional(words(Problem)),
        text="exceeds: more than the cluster will offer; vanished: nothing offers the resource any more.",
    ),
)
_EFFECTS = list(dict.fromkeys(kind.word(vendor) for kind in EffectKind for vendor in list(vendors.VENDORS)[1:]))
_EFFECT: Shape[Effect] = record(
    "",
    Member("kind", words(_EFFECTS), lambda one: one.kind.word(one.vendor)),
    Member("pool", optional(TEXT), text="null: the whole cluster."),
    Member("subject", _NAME, text="The setting."),
    Member("before", _ANY, text="Its value; null: none."),
    Member("after", _ANY, text="Its value; null: none."),
)
_OUTAGE: Shape[Outage] = record(
    "",
    *fields(Outage, "pool"),
    Member("nodes", optional(COUNT)),
    Member("atOnce", optional(COUNT)),
    Member("rounds", optional(COUNT)),
    Member(
        "secondsEach",
        COUNT,
        lambda one: one.seconds,
        "For one node without tenants in the way: measured on simulated GPUs.",
    ),
    Member("onBusy", words(OnBusy)),
    Member(
        "paused",
        FLAG,
        lambda one: one.start is not None and one.start.is_paused,
        "Whether the pool's rollout is paused, so that no node changes.",
    ),
    Member(
        "opensAt",
        optional(_DATE),
        lambda one: one.start and one.start.opens_at,
        "When the next window opens, in UTC; null: nodes may change now, or the rollout is paused.",
    ),
    Member("drainSeconds", COUNT, text="How long a node waits for tenants at most, in service."),
)
_KIND: Shape[FileKind] = Shape(schema=words(FileKind).schema, write=str, name="kind")
_SETTING: Shape[SettingChange] = record(
    "",
    Member("path", array(TEXT), text="Keys, and names of list entries."),
    Member("change", _KIND, lambda one: one.kind),
    Member("before", _ANY, text="The value; null: none."),
    Member("after", _ANY, text="The value; null: none."),
)
_SETTINGS: Shape[Iterable[SettingChange]] = array(_SETTING)
_FILE: Shape[FileDiff] = record(
    "",
    Member("path", _NAME),
    Member("change", _KIND, lambda one: one.kind),
    Member("settings", _SETTINGS),
    Member("more", COUNT, text="Settings that are not listed."),
)
DOCUMENT: Document[Comparison] = Document(
    name="plan",
    kind="Plan",
    text="What changes when one intent or bundle replaces another: `gpushare plan OLD NEW --format json`. null: not known. "
    "Pods are upper bounds: every share that the change takes away may be in use.",
    members=(
        Member(
            "verdict",
            array(TEXT),
            verdict,
            "What running pods, new pods, quotas and nodes meet, a sentence each, worst first; empty if nothing changes.",
        ),
        Member(
            "summary",
            TEXT,
            summary,
            "One line for people: what happens to how many pools, nodes and pods.",
        ),
        Member(
            "changed",
            FLAG,
            lambda found: not found.is_empty,
            "Whether anything changes: false if and only if the two bundles are equal, comments aside.",
        ),
        Member(
            "configMapOnly",
            FLAG,
            lambda found: found.is_configmap_only,
            "Whether something changes, and that in ConfigMaps and raised quotas alone: no GPU, no label of a node, no pod "
            "that runs or will be created is affected.",
        ),
        Member(
            "nodesTouched",
            optional(COUNT),
            lambda found: found.touched,
            "Nodes whose GPUs or labels change; null where that is not known, as with another driver or the effect begins.",
        ),
        Member("podsDisturbed", optional(COUNT), lambda found: found.disturbed),
        Member("pools", by_name(_POOL), lambda found: {pool.name: pool for pool in found.pools}),
        Member("capacity", by_name(_AMOUNT), lambda found: dict(found.capacity), "Per resource, on the whole cluster."),
        Member(
            "cost",
            optional(_COSTS),
            lambda found: found.costs,
            "What an hour of the GPUs costs; null if no prices are known, or if they have several currencies. A number is null "
            "if the price or the number of nodes of a pool is not known.",
        ),
        Member(
            "operatorMigStrategy",
            _sides(_STRATEGY),
            lambda found: found.mig_strategies,
            "gpu-operator's one mig.strategy; empty where every profile states its own, null without gpu-operator. A change "
            "restarts the device plugin of every node at once.",
        ),
        Member("moves", array(_MOVE), text="Nodes that are named in the intents and change pools."),
        Member("quotas", array(_QUOTA), text="Quotas that change or break."),
        Member(
            "effects", array(_EFFECT), text="Who is affected besides layouts: caps, actions, admission, namespaces, the stack."
        ),
        Member("outages", array(_OUTAGE), text="Nodes that go out of service, by pool."),
        Member("order", array(TEXT), _order, "Steps, where their order matters."),
        Member("files", array(_FILE), text="Every file of the bundle that differs."),
        Member("intent", _SETTINGS, text="The fields that differ, where both sides are intents."),
    ),
)
