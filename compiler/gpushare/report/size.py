"""`gpushare size`: the ways to share a card or several, the best of them in detail with its intent, and what cannot serve."""

from collections.abc import Iterator, Sequence
from functools import partial

from gpushare.core import emit, prices
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import join_words, layout_text, mib, pluralize
from gpushare.intent import writer
from gpushare.offering.modes import VARIANTS
from gpushare.offering.modes.traits import FaultIsolation, MemoryIsolation, Need
from gpushare.report.document import (
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    Document,
    Member,
    Shape,
    array,
    optional,
    record,
    words,
)
from gpushare.report.model import Column, Lines, Report, Section, Table, bare
from gpushare.study.sizing import CardComparison, Option, Sizing, UnfitVariant, UserShare, intent

MAX_LAYOUTS = 3
"""How many options of one mode are in the table: a card has dozens of layouts."""


_Row = tuple[Sizing, Option]
"""An option, and the sizing that it is of."""


def report(compared: CardComparison) -> Report:
    """Return the ways to share one card, or the best one of each of several cards; and all about the best."""
    is_alone = len(compared.sizings) == 1
    first, best = compared.sizings[0], compared.best
    what = first.demand.card.id if is_alone else pluralize(len(compared.sizings), "card")
    nothing = f"nothing fits: {first.reason}" if is_alone else "nothing fits on any of these cards"
    return Report(
        sections=(
            bare(Lines(lead=what, lines=[f"  {_question(first)}"])),
            _of_card(first) if is_alone else _of_cards(compared),
            *(() if is_alone or best is None else [bare(Lines(lines=[_order(compared)], indent=0))]),
            *(() if best else [bare(Lines(lines=[nothing], indent=0))]),
            *(_best(best, best.best, is_alone=is_alone) if best and best.best else ()),
        ),
        document=partial(DOCUMENT.write, first) if is_alone else partial(COMPARISON.write, compared),
    )


def _of_card(found: Sizing) -> Section:
    """Return the first options of each mode, and why others cannot serve."""
    rows: list[_Row] = []
    for variant in VARIANTS:
        rows += [(found, one) for one in found.options if one.variant is variant][:MAX_LAYOUTS]
    more = len(found.options) - len(rows)
    unfit = [f"   {one.variant.word}: {one.reason}" for one in found.unfit]
    return bare(
        Table(
            columns=[_best_column(found.best), *_columns([found])],
            rows=rows,
            under=_layout,
            more=f"{pluralize(more, 'further layout')} in --format json" if more else "",
        ),
        Lines(lines=unfit, indent=3),
    )


def _of_cards(compared: CardComparison) -> Section:
    """Return each card's best option, the best card first, and why others cannot serve."""
    best = compared.best.best if compared.best else None
    card: Column[_Row] = Column(header="CARD", value=lambda row: row[0].demand.card.id, is_uncut=True)
    rows = [(one, one.best) for one in compared.sizings if one.best is not None]
    unfit = [f"   {one.demand.card.id}: {one.reason}" for one in compared.sizings if one.best is None]
    columns = [_best_column(best), card, *_columns(compared.sizings)]
    return bare(Table(columns=columns, rows=rows, under=_layout), Lines(lines=unfit, indent=3))


def _best_column(best: Option | None) -> Column[_Row]:
    return Column(header="", value=lambda row: "*" if row[1] is best else "")


def _columns(sizings: Sequence[Sizing]) -> Iterator[Column[_Row]]:
    """Yield what an option offers. `sizings`: of the whole table, which has costs if one has a price."""
    yield Column(header="MODE", value=lambda row: _mode(row[1]))
    yield Column(header="PER NODE", value=lambda row: str(sum(one.kind.per_node for one in row[1].grants)), is_number=True)
    yield Column(header="CAP", value=lambda row: _cap(row[1]))
    yield Column(header="MEMORY", value=lambda row: row[1].variant.memory.value, is_droppable=True)
    yield Column(header="FAULTS", value=lambda row: row[1].variant.faults.value, is_droppable=True)
    yield Column(header="WASTED", value=lambda row: _wasted(row[1]), is_number=True, is_droppable=True)
    yield Column(header="NODES", value=lambda row: str(row[1].nodes_needed), is_number=True)
    yield Column(header="FITS", value=lambda row: _fits(*row))
    known = [one.demand.price for one in sizings if one.demand.price is not None]
    if known:
        header = f"{known[0].currency or 'COST'}/H"
        yield Column(header=header, value=lambda row: prices.amount(row[1].cost_per_hour, ""), is_number=True)


def _mode(one: Option) -> str:
    replicas = one.grants[0].kind.replicas
    times = f" x{replicas}" if replicas > 1 and not _entries(one) else ""
    return one.variant.word + times + ("?" if one.unconfirmed else "")


def _cap(one: Option) -> str:
    caps = [grant.cap_mib for grant in one.grants if grant.cap_mib is not None]
    return mib(min(caps)) if caps else "-"


def _wasted(one: Option) -> str:
    return "?" if one.wasted_mib is None or not one.total_mib else f"{100 * one.wasted_mib // one.total_mib}%"


def _fits(found: Sizing, one: Option) -> str:
    return {None: str(one.users) if found.demand.nodes else "-", True: "yes", False: "no"}[one.suffices]


def _layout(row: _Row) -> str:
    """Return the line under an option that partitions GPUs: its layout, with the replicas of each profile."""
    _, one = row
    times = {grant.kind.profile.name: grant.kind.replicas for grant in one.grants if grant.kind.profile}
    found = (f"{count} {name}" + (f" x{times[name]}" if times[name] > 1 else "") for name, count in _entries(one))
    return ", ".join(found)


def _entries(one: Option) -> list[tuple[str, int]]:
    gpus = one.pool.gpus_per_node
    return [(grant.kind.profile.name, grant.kind.devices // gpus) for grant in one.grants if grant.kind.profile]


def _question(found: Sizing) -> str:
    demand = found.demand
    each = [
        f"{'users' if need.users is None else pluralize(need.users, 'user')} of {show_bytes(need.memory_bytes)}"
        for need in demand.needs
    ]
    nodes = "nodes" if demand.nodes is None else pluralize(demand.nodes, "node")
    return f"{join_words(each)}, {nodes} with {pluralize(demand.gpus_per_node, 'GPU')} each"


def _order(compared: CardComparison) -> str:
    """Return what decides the order of the cards."""
    if compared.is_by_cost:
        what = "cost of a user" if compared.sizings[0].demand.needs[0].users is None else "cost"
        return f"The least {what} comes first, then the least memory left over."
    order = "the fewest nodes come first, then the least memory left over."
    free = [one.demand.card.id for one in compared.sizings if one.best is not None and one.demand.price is None]
    if len(free) < sum(one.best is not None for one in compared.sizings):
        return f"Costs are not compared, because {join_words(free)} {'has' if len(free) == 1 else 'have'} no price: {order}"
    return f"Costs are not compared without --prices: {order}"


def _best(found: Sizing, one: Option, *, is_alone: bool) -> Iterator[Section]:
    """Yield what the best option offers, takes and relies on, and its intent."""
    entries = _entries(one)
    layout = f" {layout_text(entries)}" if entries else ""
    card = "" if is_alone else f"{found.demand.card.id}, "
    lines = [f": {card}{one.variant.word}{layout}: {found.reason}"]
    for grant in one.grants:
        limit = "usable" if grant.cap_mib is None else "at most"
        usable = mib(grant.provides_bytes // MIB)
        lines.append(f"  {grant.kind.resource}: {grant.kind.per_node} per node, {limit} {usable}")
    if one.wasted_mib is not None:
        where = pluralize(one.nodes_needed, "node")
        lines.append(f"  unused: {mib(one.wasted_mib)} of {mib(one.total_mib)} on {where}")
    if found.demand.price is not None:
        gpus = pluralize(one.nodes_needed * one.pool.gpus_per_node, "GPU")
        cost = prices.amount(one.cost_per_hour, found.demand.price.currency)
        lines.append(f"  cost: {cost} an hour, {gpus} at {prices.show(found.demand.price)}")
    if one.unconfirmed:
        lines.append(f"  no source confirms: {', '.join(one.unconfirmed)}")
    yield bare(Lines(lead="best", lines=[*lines, *(f"  {note}" for note in one.notes)], indent=2))
    yield bare(Lines(lines=emit.yaml_text(intent(found.demand, one)).splitlines()))


_NEED: Shape[Need] = record(
    "",
    Member("memoryBytes", COUNT, text="What one user needs."),
    Member("users", optional(COUNT), text="How many users; null if as many as fit."),
)
_GRANT: Shape[UserShare] = record(
    "",
    Member("resource", TEXT, lambda grant: grant.kind.resource, "The extended resource that a container asks for."),
    Member(
        "profile",
        optional(TEXT),
        lambda grant: grant.kind.profile and grant.kind.profile.name,
        "MIG profile; null for a whole GPU.",
    ),
    Member("replicas", COUNT, lambda grant: grant.kind.replicas, "How many containers share one device."),
    Member("perNode", COUNT, lambda grant: grant.kind.per_node, "How many shares a node has."),
    Member("capMiB", optional(COUNT), text="What one container may use; null for no cap, if the device is not shared."),
    Member(
        "usableBytes",
        COUNT,
        lambda grant: grant.provides_bytes,
        "What one user may use: the cap, or the usable memory of the device.",
    ),
)
_MODE = words(variant.word for variant in VARIANTS)
_OPTION: Shape[_Row] = record(
    "option",
    Member("mode", _MODE, lambda row: row[1].variant.word, "mig-replicas is MIG with time-slicing."),
    Member("best", FLAG, lambda row: row[1] is row[0].best, "Whether this is the best option."),
    Member("sharing", OBJECT, lambda row: writer.write_sharing(row[1].pool.sharing), "The section `sharing` of the pool."),
    Member("resources", array(_GRANT), lambda row: row[1].grants),
    Member("nodesNeeded", COUNT, lambda row: row[1].nodes_needed, "How many nodes all users need."),
    Member(
        "users",
        optional(COUNT),
        lambda row: row[1].users,
        "How many users fit on the nodes, or on those needed; null if they need different sizes.",
    ),
    Member(
        "suffices",
        optional(FLAG),
        lambda row: row[1].suffices,
        "Whether the given nodes are enough; null if nodes or users are not given.",
    ),
    Member(
        "memoryIsolation",
        words(MemoryIsolation),
        lambda row: row[1].variant.memory,
        "What keeps a container off the memory of others.",
    ),
    Member(
        "faultIsolation",
        words(FaultIsolation),
        lambda row: row[1].variant.faults,
        "hardware: a GPU fault ends no other container; process: others end only if the device fails; none: all of the GPU can "
        "end.",
    ),
    Member(
        "totalMiB",
        optional(COUNT),
        lambda row: row[1].total_mib,
        "Memory of the nodes needed; null if the card's is not known.",
    ),
    Member("wastedMiB", optional(COUNT), lambda row: row[1].wasted_mib, "How much of it no user asked for."),
    Member(
        "costPerHour",
        optional(NUMBER),
        lambda row: row[1].cost_per_hour,
        "What an hour of the nodes needed costs; null without a price.",
    ),
    Member(
        "unconfirmed",
        array(TEXT),
        lambda row: row[1].unconfirmed,
        "Facts of the catalogue that the option relies on and no source confirms.",
    ),
    Member("notes", array(TEXT), lambda row: row[1].notes, "Limits that the option meets, and drivers that it needs."),
)
_UNFIT: Shape[UnfitVariant] = record("", Member("mode", _MODE, lambda one: one.variant.word), Member("reason", TEXT))
DOCUMENT: Document[Sizing] = Document(
    name="size",
    kind="Size",
    text="Which ways to share a card serve a number of users, and on how many nodes: `gpushare size --format json`.",
    members=(
        Member("card", TEXT, lambda found: found.demand.card.id, "Id of the card."),
        Member("gpusPerNode", COUNT, lambda found: found.demand.gpus_per_node),
        Member(
            "nodes",
            optional(COUNT),
            lambda found: found.demand.nodes,
            "How many nodes there are; null if as many as are needed.",
        ),
        Member(
            "isolation",
            words(["memory", "none"]),
            lambda found: "memory" if found.demand.in_hardware else "none",
            "memory: only modes that isolate memory in hardware were compared.",
        ),
        Member(
            "currency",
            optional(TEXT),
            lambda found: found.demand.price and found.demand.price.currency,
            "The currency of the price; null if it names none, or is not known.",
        ),
        Member(
            "pricePerGpuHour",
            optional(NUMBER),
            lambda found: found.demand.price and found.demand.price.per_hour,
            "What an hour of one GPU costs; null if it is not known.",
        ),
        Member("needs", array(_NEED), lambda found: found.demand.needs, "What must fit at once, the largest size first."),
        Member(
            "options",
            array(_OPTION),
            lambda found: [(found, one) for one in found.options],
            "What serves the needs; by mode, and within a mode the best first.",
        ),
        Member("unfit", array(_UNFIT), text="What cannot serve them on any number of nodes."),
        Member("reason", TEXT, text="Why the best option is the best, or why nothing fits."),
        Member(
            "intent",
            optional(OBJECT),
            lambda found: found.best and intent(found.demand, found.best),
            "The cluster intent of the best option; null if nothing fits.",
        ),
    ),
)
COMPARISON: Document[CardComparison] = Document(
    name="size-comparison",
    kind="SizeComparison",
    text="The same users on several cards: `gpushare size --card A --card B --format json`.",
    members=(
        Member(
            "comparedBy",
            words(["cost", "nodes"]),
            lambda found: "cost" if found.is_by_cost else "nodes",
            "cost: the price of every card that serves the users is known; else by their number of nodes.",
        ),
        Member(
            "best",
            optional(TEXT),
            lambda found: found.best and found.best.demand.card.id,
            "Id of the card whose best option is the best of all; null if the users fit on none.",
        ),
        Member(
            "cards",
            array(OBJECT),
            lambda found: [DOCUMENT.write(one) for one in found.sizings],
            "A document of the form `gpushare schema size` for each card, the best card first.",
        ),
    ),
)
