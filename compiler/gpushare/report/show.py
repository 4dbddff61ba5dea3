"""`gpushare show`: the pools of a plan, what each offers, and the memory of each distinct GPU, drawn to scale."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from gpushare.core import emit, units
from gpushare.core.diagnostics import Finding
from gpushare.core.prices import Price, amount, exact
from gpushare.core.units import MemoryTotals
from gpushare.core.wording import join_first, join_words, layout_text, mib, pluralize
from gpushare.facts import mig
from gpushare.offering import backends, claims, modes
from gpushare.render import readme
from gpushare.report import pool_facts
from gpushare.report.document import (
    COUNT,
    MONEY,
    POSITIVE,
    TEXT,
    Document,
    Member,
    Shape,
    array,
    by_name,
    optional,
    record,
    words,
)
from gpushare.report.model import (
    POOL,
    RESOURCE,
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
    Snippet,
    Table,
    Warnings,
    bare,
)
from gpushare.report.pool_facts import known, ranges
from gpushare.resolved import claim_plan, costs
from gpushare.resolved.claim_plan import ClaimPlan
from gpushare.resolved.costs import Costs
from gpushare.resolved.plan import DevicePlan, GpuLayout, Plan, PoolPlan, VmPool
from gpushare_node.contract.names import IMPLICIT
from gpushare_node.contract.struct import NOTHING, Struct, replace

_OBSERVE = "adoption: observe. This is what `enforce` would do; the bundle changes no node and no pod."
_MAX_NAMES = 8
"""Namespaces and resources that a card names."""


class ResourceLine(Struct):
    """A resource of a pool, with the memory and the caps of its devices, and what a share costs for an hour."""

    name: str
    per_node: int
    total: int | None
    memory: str
    caps: str
    cost: str


class QuotaLine(Struct):
    """How much of a resource a namespace may use."""

    namespace: str
    resource: str
    most: int


def _profile(pool: PoolPlan | VmPool) -> str:
    return pool.config.name if isinstance(pool, VmPool) else pool.profile.key


POOLS: tuple[Column[PoolPlan | VmPool], ...] = (
    Column(header="POOL", value=lambda pool: pool.name),
    Column(header="CARD", value=lambda pool: pool.card.id, is_uncut=True),
    Column(header="MODE", value=lambda pool: pool.mode.value, is_uncut=True),
    Column(header="NODES", value=lambda pool: known(pool.nodes), is_number=True),
    Column(header="GPUS/NODE", value=lambda pool: str(pool.pool.gpus_per_node), is_number=True),
    Column(header="PROFILE", value=_profile, is_droppable=True),
)
RESOURCES: tuple[Column[ResourceLine], ...] = (
    Column(header="RESOURCE", value=lambda one: one.name, is_code=True),
    Column(header="PER NODE", value=lambda one: str(one.per_node), is_number=True),
    Column(header="TOTAL", value=lambda one: known(one.total), is_number=True),
    Column(header="DEVICE", value=lambda one: one.memory, is_number=True),
    Column(header="CAP", value=lambda one: one.caps, is_number=True),
)
CLAIMS: tuple[Column[ClaimPlan], ...] = (
    Column(header="CLAIM", value=lambda one: one.template, is_code=True),
    Column(
        header="ASKS FOR",
        value=lambda one: "1 share" if one.memory_mib is None and one.per_device > 1 else mib(one.memory_mib),
        is_number=True,
    ),
    Column(header="PER DEVICE", value=lambda one: str(one.per_device), is_number=True),
    Column(header="CAP", value=lambda one: "-" if one.cap_mib is None else mib(one.cap_mib), is_number=True),
)
MACHINES: tuple[Column[VmPool], ...] = (
    Column(header="POOL", value=lambda pool: pool.name, where=Format.PAGE),
    Column(header="CARD", value=lambda pool: pool.card.name, where=Format.PAGE),
    Column(header="NODES", value=lambda pool: known(pool.nodes), where=Format.PAGE, is_number=True),
    Column(header="RESOURCE", value=lambda pool: pool.resource, is_code=True),
    Column(header="VGPU", page_header="vGPU", value=lambda pool: pool.kind.name),
    Column(header="PER GPU", page_header="Per GPU", value=lambda pool: str(pool.kind.max_count), is_number=True),
    Column(header="PER NODE", value=lambda pool: str(pool.per_node), is_number=True),
    Column(header="TOTAL", value=lambda pool: known(pool.total), is_number=True),
)
QUOTAS: tuple[Column[QuotaLine], ...] = (
    Column(header="NAMESPACE", value=lambda one: one.namespace),
    Column(header="RESOURCE", value=lambda one: one.resource, is_code=True),
    Column(header="QUOTA", page_header="At most", value=lambda one: str(one.most), is_number=True),
)


def report(plan: Plan, warnings: Sequence[Finding], prices: Mapping[str, Price] = NOTHING) -> Report:
    """Return the report. `warnings` are those of the intent, `prices` are by pool."""
    money = costs.of_plan(plan, prices)
    parts = {pool.name: _parts(plan, pool, prices.get(pool.name)) for pool in plan.pools}
    quotas = [
        QuotaLine(namespace=quota.namespace, resource=backends.quota_resource(key), most=number)
        for quota in plan.quotas
        for key, number in quota.hard
    ]
    return Report(
        title=plan.intent.name,
        tab=f"{plan.intent.name}: shared GPUs",
        facts=(_facts(plan, money), pool_facts.memory([_memory(pool, pool.nodes) for pool in plan.pools])),
        head=(Lines(lines=[_OBSERVE], form=Form.NOTE, where=Format.PAGE),) if plan.intent.observes else (),
        sections=(
            *_overview(plan, money),
            *_warnings(warnings),
            *_texts_of_pools(plan, parts),
            _cards(plan, parts),
            *_machines(plan.vm_pools),
            *_quotas(quotas),
        ),
        footer=f" from intent {plan.digest.removeprefix('sha256:')[:12]}. Unknown numbers are “?”.",
        document=partial(offer, plan, prices),
    )


def _overview(plan: Plan, money: Costs) -> Iterator[Section]:
    """Yield what the text begins with: the cluster, and a table of the pools with what they cost."""
    pools = pluralize(len(plan.every_pool), "pool")
    about = f"  {pools}, stack {' and '.join(plan.intent.platform.stacks)}, namespace {plan.intent.namespace}"
    yield bare(Lines(lead=plan.intent.name, lines=[about], where=Format.TEXT))
    if plan.intent.observes:
        yield bare(Lines(lines=[_OBSERVE], where=Format.TEXT))
    cost: Column[PoolPlan | VmPool] = Column(
        header=f"{money.currency or 'COST'}/H", value=lambda pool: amount(money.of(pool.name), ""), is_number=True
    )
    columns = (*POOLS, cost) if money.pools else POOLS
    rows: list[PoolPlan | VmPool] = sorted([*plan.pools, *plan.vm_pools], key=lambda pool: pool.name)
    yield bare(
        Table(columns=columns, rows=rows, where=Format.TEXT),
        Lines(lines=list(_cost_lines(money)), indent=0, where=Format.TEXT),
    )


def _cost_lines(money: Costs) -> Iterator[str]:
    """Yield what an hour of all pools costs, and of which pools it is not known; nothing without prices."""
    if money.pools:
        unknown = [name for name, cost in money.pools if cost is None]
        without = f", without {join_first(unknown)}: price or number of nodes not known" if unknown else ""
        yield f"cost: {amount(money.known, money.currency)} an hour{without}"


def _facts(plan: Plan, money: Costs) -> dict[str, str]:
    nodes = [pool.nodes for pool in plan.every_pool]
    gpus = [None if pool.nodes is None else pool.nodes * pool.pool.gpus_per_node for pool in plan.every_pool]
    facts = {
        "Pools": str(len(plan.every_pool)),
        "Nodes": _total(nodes),
        "GPUs": _total(gpus),
        "Stack": join_words(plan.intent.platform.stacks),
        "Namespace": plan.intent.namespace,
    }
    if money.pools:
        unknown = " + ?" if None in dict(money.pools).values() else ""
        facts["Cost per hour"] = amount(money.known, money.currency) + unknown
    return facts


def _total(numbers: Sequence[int | None]) -> str:
    """Return the sum of what is known, and whether something is not."""
    found = sum(number for number in numbers if number is not None)
    return str(found) if None not in numbers else f"{found} + ?" if found else "?"


def _warnings(warnings: Sequence[Finding]) -> Iterator[Section]:
    entries = [(one.code, one.message, one.hints) for one in warnings]
    if entries:
        yield Section(id="warnings", title="Warnings", parts=(Warnings(entries=entries),))


def _parts(plan: Plan, pool: PoolPlan, price: Price | None) -> tuple[ReportPart, ...]:
    """Return what both the text and the page say of a pool: resources, claims, GPUs."""
    resources = Table(
        title="Resources",
        columns=_resource_columns(price and price.currency),
        rows=_resources(pool, price),
        is_fixed=True,
        indent=2,
    )
    claims = Table(title="Claims", columns=CLAIMS, rows=tuple(claim_plan.of_pool(plan, pool)), is_fixed=True, indent=2)
    return resources, *([claims] if claims.rows else []), *(_map(pool, gpus) for gpus in _alike(pool))


@cache
def _resource_columns(currency: str | None) -> tuple[Column[ResourceLine], ...]:
    """Return the columns, with the price of a share in this currency; None: not known."""
    if currency is None:
        return RESOURCES
    header, of_page = f"{currency or 'COST'}/SHARE-H", f"{currency or 'Cost'} per share-hour"
    return *RESOURCES, Column(header=header, page_header=of_page, value=lambda one: one.cost, is_number=True)


def _resources(pool: PoolPlan, price: Price | None) -> tuple[ResourceLine, ...]:
    parts = costs.parts_of_resources(pool) if price else {}
    lines = []
    for resource in pool.resources:
        devices = [device for device in pool.devices if device.resource == resource.name]
        part = parts.get(resource.name)
        lines.append(
            ResourceLine(
                name=resource.name,
                per_node=resource.per_node,
                total=resource.total,
                memory=_distinct(mib(device.memory_mib) for device in devices),
                caps=_distinct("-" if device.cap_mib is None else mib(device.cap_mib) for device in devices),
                cost=exact(None if part is None or price is None else part * price.per_hour),
            )
        )
    return tuple(lines)


def _distinct(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _alike(pool: PoolPlan) -> list[list[GpuLayout]]:
    """Return the node's GPUs, grouped by equal plans, in the order of the first of each group."""
    groups: dict[object, list[GpuLayout]] = {}
    for gpu in pool.gpus:
        cells = tuple(
            (one.resource, one.start, one.size, one.replicas, one.cap_mib) for one in pool.devices if one.gpu == gpu.index
        )
        groups.setdefault((gpu.mig_enabled, cells), []).append(gpu)
    return list(groups.values())


def _map(pool: PoolPlan, gpus: Sequence[GpuLayout]) -> Map:
    """Return the map of equal GPUs; for claims on demand what a GPU can have at once, in words."""
    gpu = gpus[0]
    devices = [one for one in pool.devices if one.gpu == gpu.index]
    geometry = pool.card.mig if gpu.mig_enabled else None
    aside = ""
    if geometry is not None and modes.of(pool.pool).is_on_demand:
        full = mig.at_once(geometry, [one.profile for one in pool.samples if one.profile])
        listed = join_first([layout_text(layout) for layout in full], 6)
        devices, aside = [], f"an instance for each claim; all of a GPU: {listed}"
    elif geometry is not None:
        aside = pool_facts.left_over(gpu.instances, geometry)
    return pool_facts.drawn(devices, geometry, title=f"GPU {ranges([one.index for one in gpus])}", aside=aside)


def _texts_of_pools(plan: Plan, parts: Mapping[str, Sequence[ReportPart]]) -> Iterator[Section]:
    """Yield what the text says of each pool, once for all of which it is the same."""
    cards = [PoolCard(id=pool.name, name=pool.name, parts=(_head(pool), *parts[pool.name])) for pool in plan.pools]
    for card in Cards(cards=cards, search="", is_folded=True).shown(Format.TEXT):
        head, resources, *others = card.parts
        shown = (replace(head, lead=card.name), resources)
        yield from (bare(Section(parts=each, where=Format.TEXT)) for each in (shown, *((one,) for one in others)))


def _head(pool: PoolPlan) -> Lines:
    """Return what follows the pool's name in the text."""
    goal = [] if pool.layout_of_goal is None else [f"  goal resolved to {layout_text(pool.layout_of_goal)}"]
    return Lines(lines=[f"  {pool.card.name}, {pool.mode.value}", *goal])


def _cards(plan: Plan, parts: Mapping[str, Sequence[ReportPart]]) -> Section:
    """Return the cards of the page."""
    cards = [_card(plan, pool, parts[pool.name]) for pool in plan.pools]
    return Section(
        id="pools",
        title="Pools",
        parts=(
            Cards(
                cards=cards,
                search="name, card, mode, resource, namespace or node",
                legend=pool_facts.legend(mode for card in cards for mode in card.modes),
                explained=pool_facts.MEMORY_EXPLAINED,
                is_folded=True,
            ),
        ),
    )


def _card(plan: Plan, pool: PoolPlan, parts: Sequence[ReportPart]) -> PoolCard:
    resources = [one.name for one in pool.resources]
    namespaces = sorted(pool.pool.namespaces)
    tables = [one for one in parts if isinstance(one, Table)]
    maps = [one for one in parts if isinstance(one, Map)]
    goal = [] if pool.layout_of_goal is None else [f"Goal resolved to {layout_text(pool.layout_of_goal)}."]
    whose = "each node" if pool.nodes is None else pluralize(pool.nodes, "node")
    memory = pool_facts.memory_line([_memory(pool, 1 if pool.nodes is None else pool.nodes)], whose)
    others = [f"The same with {join_first(resources[1:], _MAX_NAMES)}."] if resources[1:] else []
    for_whom = [f"For the namespaces {join_first(namespaces, _MAX_NAMES)}."] if namespaces else []
    pod = emit.yaml_text(readme.pod(pool, resources[0], plan))
    nodes = "? nodes" if pool.nodes is None else pluralize(pool.nodes, "node")
    return PoolCard(
        id=f"pool-{pool.name}",
        name=pool.name,
        nodes=_nodes(pool),
        modes=(pool_facts.mode(pool.mode.value, is_divided=any(one.replicas > 1 for one in pool.samples)),),
        aside=f"{pool.card.name} · {nodes} · {pluralize(len(pool.gpus), 'GPU')} each",
        text=" ".join((pool.card.id, pool.card.name, pool.mode.value, *resources, *namespaces)).lower(),
        parts=(
            Lines(lines=goal, form=Form.MUTED),
            *tables,
            Lines(lines=[memory], form=Form.MUTED),
            *maps,
            Lines(lines=for_whom, form=Form.MUTED),
        ),
        snippet=Snippet(
            title="A pod that uses it",
            what="pod",
            text=pod.replace(resources[0], RESOURCE).replace(pool.name, POOL),
            resource=resources[0],
            notes=others,
        ),
    )


def _nodes(pool: PoolPlan) -> str:
    nodes = pool.pool.nodes
    expressions = ({"key": one.key, "operator": one.operator.value, "values": one.values} for one in nodes.match_expressions)
    return pool_facts.nodes_text(dict(nodes.match_labels), expressions, nodes.names)


def _memory(pool: PoolPlan, nodes: int | None) -> MemoryTotals:
    on_demand = ((None, 1, None),)
    devices = ((one.memory_mib, one.replicas, one.cap_mib) for one in pool.devices)
    sizes = on_demand if modes.of(pool.pool).is_on_demand else devices
    return units.memory_of_node(pool.card.memory_mib, len(pool.gpus), sizes).of_nodes(nodes)


def _machines(pools: Sequence[VmPool]) -> Iterator[Section]:
    """Yield what pools for virtual machines give them: each for itself in the text, together on the page."""
    for pool in pools:
        head = f"  {pool.card.name}, {pool.mode.value}, for virtual machines"
        lines = Lines(lead=pool.name, lines=[head], where=Format.TEXT)
        yield bare(lines, Table(columns=MACHINES, rows=[pool], where=Format.TEXT, indent=2))
    if pools:
        note = "The GPUs of these pools go to virtual machines: containers get none of them."
        table = Table(title="Virtual machines", columns=MACHINES, rows=pools, where=Format.PAGE)
        parts = (Lines(lines=[note], form=Form.MUTED, where=Format.PAGE), table)
        yield Section(id="machines", title="Virtual machines", parts=parts)


def _quotas(lines: Sequence[QuotaLine]) -> Iterator[Section]:
    if lines:
        note = "Namespaces that are not listed are not limited."
        parts = (Lines(lines=[note], form=Form.MUTED, where=Format.PAGE), Table(title="Quotas", columns=QUOTAS, rows=lines))
        yield Section(id="quotas", title="Quotas", parts=parts)


class OfferedPool(Struct):
    """A pool with its plan, its price, and what all its GPUs cost for an hour."""

    plan: Plan
    pool: PoolPlan
    price: Price | None
    cost: float | None

    @property
    def has_claims(self) -> bool:
        """Whether NVIDIA's DRA driver serves it."""
        return self.pool.pool.backend.has_claims

    @property
    def claims(self) -> Mapping[str, str]:
        """Its templates of claims, each with its class."""
        shapes = claims.shapes(self.pool.pool, self.pool.card, self.pool.kinds, self.plan.division)
        return {shape.template: shape.device_class for shape in shapes}

    @property
    def limits(self) -> Mapping[str, str]:
        """The names in `limits` of its classes, each with its class."""
        backend = backends.of(self.pool.pool, self.pool.card)
        classes = dict.fromkeys(device.resource for device in self.pool.samples)
        return {name: one for one in classes for name in backend.limits(one) if not name.startswith(IMPLICIT)}

    @property
    def costs_of_shares(self) -> Mapping[str, float | None]:
        """What an hour of one share costs, by resource."""
        price, parts = self.price, costs.parts_of_resources(self.pool)
        return {name: price.per_hour * part if price and part is not None else None for name, part in parts.items()}


class Offer(Struct):
    """A plan, with the prices of its pools."""

    plan: Plan
    prices: Mapping[str, Price]

    @property
    def money(self) -> Costs:
        """What its pools cost for an hour."""
        return costs.of_plan(self.plan, self.prices)

    @property
    def pools(self) -> Mapping[str, OfferedPool]:
        """Its pools by name."""
        money = self.money
        return {
            one.name: OfferedPool(plan=self.plan, pool=one, price=self.prices.get(one.name), cost=money.of(one.name))
            for one in self.plan.pools
        }

    @property
    def quotas(self) -> Mapping[str, Mapping[str, int]]:
        """How much of each resource a namespace may use."""
        return {one.namespace: {backends.quota_resource(key): most for key, most in one.hard} for one in self.plan.quotas}


def _mode(*, of_vms: bool) -> Shape[str]:
    return words(one.mode.value for one in modes.MODES if one.serves_vms is of_vms)


_RESOURCES: Shape[Mapping[str, Any]] = by_name(
    record(
        "",
        Member("perNode", COUNT),
        Member("total", optional(COUNT), text="On all nodes; null when their number is unknown."),
    )
)
_DEVICE: Shape[DevicePlan] = record(
    "device",
    Member("gpu", COUNT, text="Index of the GPU in the node."),
    Member("resource", TEXT, text="What a container asks for: an extended resource, or a DeviceClass."),
    Member("profile", optional(TEXT), text="MIG profile, or mode of AMD's partitions; null for a whole GPU."),
    Member("start", COUNT, text="First memory slice, in the card's own grid."),
    Member("size", POSITIVE, text="Memory slices, in the card's own grid."),
    Member("memoryMiB", optional(POSITIVE), text="Smallest memory that is known for it; null when unknown."),
    Member("replicas", POSITIVE, text="How many containers share it."),
    Member("capMiB", optional(POSITIVE), text="What one container may use; null for no cap."),
)
_POOL: Shape[OfferedPool] = record(
    "pool",
    Member("card", TEXT, lambda one: one.pool.card.id, "Id of the card."),
    Member("mode", _mode(of_vms=False), lambda one: one.pool.mode.value),
    Member("nodes", optional(COUNT), lambda one: one.pool.nodes, "How many nodes; null when unknown."),
    Member("gpusPerNode", POSITIVE, lambda one: one.pool.pool.gpus_per_node),
    Member(
        "profile",
        TEXT,
        lambda one: one.pool.profile.key,
        "Name of the device-plugin config; nodes carry it with -a or -b behind it.",
    ),
    Member("resources", _RESOURCES, lambda one: {each.name: each for each in one.pool.resources}),
    Member("devices", array(_DEVICE), lambda one: one.pool.devices, "One entry per GPU or MIG instance of one node."),
    Member(
        "backend",
        words(["dra"]),
        lambda one: one.pool.pool.backend.value if one.has_claims else None,
        "The back end, where it is not the device plugin.",
        is_rare=True,
    ),
    Member(
        "onDemand",
        Shape(schema={"enum": [True]}, write=bool),
        lambda one: (one.has_claims and modes.of(one.pool.pool).is_on_demand) or None,
        "With backend dra: a MIG instance is made for each claim. Devices are the places for one, of which those that overlap "
        "exclude each other.",
        is_rare=True,
    ),
    Member(
        "claims",
        by_name(TEXT),
        lambda one: one.claims if one.has_claims else None,
        "With backend dra: the ResourceClaimTemplates of the pool, each with its DeviceClass.",
        is_rare=True,
    ),
    Member(
        "limits",
        by_name(TEXT),
        lambda one: one.limits if one.has_claims else None,
        "With backend dra: names in resources.limits by which pods may ask instead, each with its DeviceClass.",
        is_rare=True,
    ),
    Member(
        "pricePerGpuHour",
        optional(MONEY),
        lambda one: one.price and one.price.per_hour,
        "What an hour of one GPU costs; null if it is not known.",
    ),
    Member(
        "costPerHour",
        optional(MONEY),
        lambda one: one.cost,
        "What an hour of all GPUs of the pool costs; null if the price or the number of nodes is not known.",
    ),
    Member(
        "costPerShareHour",
        by_name(optional(MONEY)),
        lambda one: one.costs_of_shares,
        "What an hour of one share costs, by resource: its part of a GPU; null if that is not known.",
    ),
)
_VM_POOL: Shape[VmPool] = record(
    "vmPool",
    Member("card", TEXT, lambda pool: pool.card.id, "Id of the card."),
    Member("mode", _mode(of_vms=True), lambda pool: pool.mode.value),
    Member("nodes", optional(COUNT), text="How many nodes; null when unknown."),
    Member("gpusPerNode", POSITIVE, lambda pool: pool.pool.gpus_per_node),
    Member("profile", TEXT, lambda pool: pool.kind.name, "The type of its vGPUs."),
    Member("config", TEXT, lambda pool: pool.config.name, "The config of NVIDIA's vGPU device manager."),
    Member("resources", _RESOURCES, lambda pool: {pool.resource: pool}, "What virtual machines request."),
    text="A pool for virtual machines: nothing of it is offered to containers.",
)
DOCUMENT: Document[Offer] = Document(
    name="offer",
    kind="Offer",
    text="What the pools of one intent offer: `gpushare show INTENT --format json`.",
    members=(
        Member(
            "currency",
            optional(TEXT),
            lambda one: one.money.currency,
            "The currency of all prices and costs; null if they name none, or without prices.",
        ),
        Member("pools", by_name(_POOL)),
        Member(
            "vmPools",
            by_name(_VM_POOL),
            lambda one: {pool.name: pool for pool in one.plan.vm_pools} or None,
            "Pools for virtual machines. Absent without any.",
            is_rare=True,
        ),
        Member(
            "quotas",
            by_name(by_name(COUNT)),
            text="How much of each resource a namespace may use. A namespace or resource without an entry has no limit.",
        ),
    ),
)


def offer(plan: Plan, prices: Mapping[str, Price] = NOTHING) -> dict[str, Any]:
    """Return the Offer document: what the cluster offers its users. `prices` are by pool."""
    return DOCUMENT.write(Offer(plan=plan, prices=prices))
