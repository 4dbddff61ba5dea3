"""A sizing for people: a table of the options, the best one in detail, what cannot serve, and the best one's intent.

Of several cards, a table of each one's best option, and the best card's in detail.
"""

from collections.abc import Sequence

from gpushare.core import emit, prices
from gpushare.core.printable import visible
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import join_words, layout_text, mib, pluralize
from gpushare.modes import VARIANTS
from gpushare.modes.demand import Variant
from gpushare.report.terminal import BOLD, DIM, Style, table, wrapped
from gpushare.sizing.answer import Option, Sizing
from gpushare.sizing.comparison import Comparison
from gpushare.sizing.document import intent

_HEADERS = ("PER NODE", "CAP", "MEMORY", "FAULTS", "WASTED", "NODES", "FITS")
_DROPPED = ("FAULTS", "WASTED", "MEMORY")
"""Columns that a narrow terminal lacks, the first first."""
MAX_LAYOUTS = 3
"""How many options of one mode are in the table: a card has dozens of layouts."""

_NUMBERS = ("PER NODE", "NODES", "WASTED")


def render(found: Sizing, style: Style) -> str:
    """Return everything about the sizing."""
    shown = style.paint(found.demand.card.id, BOLD) + f"  {_question(found)}\n\n"
    listed = [one for variant in VARIANTS for one in _listed(found, variant)]
    if listed:
        cost = _cost_header([found])
        headers = ("", "MODE", *_HEADERS, *cost)
        head, *rows = table(
            headers, [_row(one, found) for one in listed], style, numbers=(*_NUMBERS, *cost), dropped=_DROPPED if cost else ()
        ).splitlines()
        shown += head + "\n" + "".join(row + "\n" + _layout(one, style) for row, one in zip(rows, listed, strict=True))
    more = len(found.options) - len(listed)
    if more:
        shown += style.paint(f"{pluralize(more, 'further layout')} in --format json", DIM) + "\n"
    shown += "".join(wrapped(f"   {one.variant.word}: {one.reason}", style, indent=3) for one in found.unfit)
    if found.best is None:
        return shown + "\n" + wrapped(f"nothing fits: {found.reason}", style)
    return shown + "\n" + _best(found, found.best, style) + "\n" + emit.yaml_text(intent(found.demand, found.best))


def render_cards(compared: Comparison, style: Style) -> str:
    """Return each card's best option, the best card first, and everything about that one."""
    serving = [(one, one.best) for one in compared.sizings if one.best is not None]
    shown = style.paint(pluralize(len(compared.sizings), "card"), BOLD) + f"  {_question(compared.sizings[0])}\n\n"
    if serving:
        cost = _cost_header(compared.sizings)
        headers = ("", "CARD", "MODE", *_HEADERS, *cost)
        rows = [
            ("*" if one is compared.best else "", one.demand.card.id, *_row(option, one, has_cost=bool(cost))[1:])
            for one, option in serving
        ]
        head, *lines = table(headers, rows, style, numbers=(*_NUMBERS, *cost), uncut=("CARD",), dropped=_DROPPED).splitlines()
        layouts = (_layout(option, style) for _, option in serving)
        shown += head + "\n" + "".join(f"{line}\n{layout}" for line, layout in zip(lines, layouts, strict=True))
    for one in compared.sizings:
        if one.best is None:
            shown += wrapped(f"   {one.demand.card.id}: {one.reason}", style, indent=3)
    best = compared.best
    if best is None or best.best is None:
        return shown + "\n" + wrapped("nothing fits on any of these cards", style)
    shown += "\n" + wrapped(_order(compared), style)
    return (
        shown
        + "\n"
        + _best(best, best.best, style, f"{best.demand.card.id}, ")
        + "\n"
        + emit.yaml_text(intent(best.demand, best.best))
    )


def _order(compared: Comparison) -> str:
    """Return what decides the order of the cards."""
    if compared.is_by_cost:
        what = "cost of a user" if compared.sizings[0].demand.needs[0].users is None else "cost"
        return f"The least {what} comes first, then the least memory left over."
    order = "the fewest nodes come first, then the least memory left over."
    free = [one.demand.card.id for one in compared.sizings if one.best is not None and one.demand.price is None]
    if len(free) < sum(one.best is not None for one in compared.sizings):
        return f"Costs are not compared, because {join_words(free)} {'has' if len(free) == 1 else 'have'} no price: {order}"
    return f"Costs are not compared without --prices: {order}"


def _cost_header(sizings: Sequence[Sizing]) -> tuple[str, ...]:
    """Return the header of the column of costs, empty if no price is known."""
    known = [one.demand.price for one in sizings if one.demand.price is not None]
    return (f"{known[0].currency or 'COST'}/H",) if known else ()


def _question(found: Sizing) -> str:
    demand = found.demand
    each = [
        f"{'users' if need.users is None else pluralize(need.users, 'user')} of {show_bytes(need.memory_bytes)}"
        for need in demand.needs
    ]
    nodes = "nodes" if demand.nodes is None else pluralize(demand.nodes, "node")
    return f"{join_words(each)}, {nodes} with {pluralize(demand.gpus_per_node, 'GPU')} each"


def _listed(found: Sizing, variant: Variant) -> list[Option]:
    return [one for one in found.options if one.variant is variant][:MAX_LAYOUTS]


def _row(one: Option, found: Sizing, *, has_cost: bool = False) -> tuple[str, ...]:
    caps = [grant.cap_mib for grant in one.grants if grant.cap_mib is not None]
    replicas = one.grants[0].kind.replicas
    times = f" x{replicas}" if replicas > 1 and not _entries(one) else ""
    return (
        "*" if one is found.best else "",
        one.variant.word + times + ("?" if one.unconfirmed else ""),
        str(sum(grant.kind.per_node for grant in one.grants)),
        mib(min(caps)) if caps else "-",
        one.variant.memory.value,
        one.variant.faults.value,
        _percent(one),
        str(one.nodes_needed),
        {None: str(one.users) if found.demand.nodes else "-", True: "yes", False: "no"}[one.suffices],
        *((prices.amount(one.cost_per_hour, ""),) if has_cost or found.demand.price else ()),
    )


def _layout(one: Option, style: Style) -> str:
    """Return the line under an option that partitions GPUs: its layout, with the replicas of each profile."""
    if not _entries(one):
        return ""
    times = {grant.kind.profile.name: grant.kind.replicas for grant in one.grants if grant.kind.profile}
    words = (f"{count} {name}" + (f" x{times[name]}" if times[name] > 1 else "") for name, count in _entries(one))
    return style.paint(f"     {', '.join(words)}", DIM) + "\n"


def _entries(one: Option) -> list[tuple[str, int]]:
    gpus = one.pool.gpus_per_node
    return [(grant.kind.profile.name, grant.kind.devices // gpus) for grant in one.grants if grant.kind.profile]


def _percent(one: Option) -> str:
    return "?" if one.wasted_mib is None or not one.total_mib else f"{100 * one.wasted_mib // one.total_mib}%"


def _best(found: Sizing, one: Option, style: Style, card: str = "") -> str:
    entries = _entries(one)
    layout = f" {layout_text(entries)}" if entries else ""
    shown = wrapped(f"{style.paint('best', BOLD)}: {card}{one.variant.word}{layout}: {found.reason}", style, indent=2)
    for grant in one.grants:
        usable = mib(grant.provides_bytes // MIB)
        limit = "usable" if grant.cap_mib is None else "at most"
        shown += f"  {grant.kind.resource}: {grant.kind.per_node} per node, {limit} {usable}\n"
    if one.wasted_mib is not None:
        where = pluralize(one.nodes_needed, "node")
        shown += wrapped(f"  unused: {mib(one.wasted_mib)} of {mib(one.total_mib)} on {where}", style, indent=2)
    if found.demand.price is not None:
        gpus = pluralize(one.nodes_needed * one.pool.gpus_per_node, "GPU")
        cost = prices.amount(one.cost_per_hour, found.demand.price.currency)
        shown += wrapped(f"  cost: {cost} an hour, {gpus} at {prices.show(found.demand.price)}", style, indent=2)
    if one.unconfirmed:
        shown += wrapped(f"  no source confirms: {', '.join(one.unconfirmed)}", style, indent=2)
    return shown + "".join(wrapped(f"  {visible(note)}", style, indent=2) for note in one.notes)
