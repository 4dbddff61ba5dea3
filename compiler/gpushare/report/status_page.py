"""A cluster's status as one HTML page that needs no network: each pool's shares and nodes, and what is wrong with which."""

from collections.abc import Iterable
from typing import Any

from gpushare.core.printable import visible
from gpushare.core.wording import pluralize
from gpushare.live.holders import Holder, largest
from gpushare.live.observing import Observed
from gpushare.live.status import NodeStatus, PoolStatus, Status
from gpushare.report import html_page, observed_view, status_view
from gpushare.report.html_table import Table, table
from gpushare.report.status_columns import (
    CLAIMS_LEFT,
    CLASS_NAMES,
    COUNTERS,
    DRA_NODES,
    EVENTS,
    HOLDERS,
    NODES,
    OVER,
    PENDING,
    POOLS,
    VM_NODES,
    Column,
    HolderLine,
    T,
    dra_nodes,
    memory_note,
    over_their_caps,
    pool_lines,
    readiness,
    with_counters,
)

_MAX_ROWS = 2000
"""Of nodes and of pods that hold shares on the whole page, and at least `_MIN_ROWS` of each pool: those that are not ready
and those of the most shares first."""
_MIN_ROWS = 5
_MAX_OTHERS = 50
"""Rows of each other table."""


def page(seen: Status, when: str, *, with_kills: bool) -> str:
    """Return the page. `when` says at what time the cluster was read."""
    nodes = [node for pool in seen.pools for node in pool.nodes]
    wrong = list(filter(_is_wrong, nodes))
    facts = {
        "Pools": str(len(seen.pools)),
        "Nodes": str(len(nodes)),
        "Not ready": str(len(wrong)),
        "Pending pods": str(len(seen.pending)),
    }
    tables = [
        _table("Pending pods", PENDING, seen.pending, "pending"),
        _table("Nodes with GPUs that belong to no pool", NODES, seen.others, "others"),
        _table("Nodes for virtual machines", VM_NODES, seen.vm_nodes, "machines"),
        _table("Nodes of NVIDIA's DRA driver", DRA_NODES, dra_nodes(seen) if seen.claims else (), "dra"),
        _table("Claims that have devices but no pod", CLAIMS_LEFT, (seen.claims and seen.claims.left) or (), "left"),
        _table("Names in limits of several device classes", CLASS_NAMES, seen.claims.names if seen.claims else (), "names"),
        _table(
            "Pods on nodes of no pool", HOLDERS, _lines("", (one for node in seen.others for one in node.holders or ())), "held"
        ),
    ]
    if with_kills:
        metrics = [node.metrics for node in (*nodes, *seen.others) if node.metrics]
        tables += [
            _table("Containers over their caps now", OVER, over_their_caps(metrics), "over"),
            _table("Since the start of each runtime", COUNTERS, with_counters(metrics), "counters"),
            _table("Events about caps in the last hour", EVENTS, seen.kills, "events"),
        ]
    pools = [_pool(pool, max(_MAX_ROWS // len(seen.pools), _MIN_ROWS)) for pool in seen.pools]
    shown = [one for one in tables if one.rows]
    return html_page.render(
        "status.html.j2",
        tables=[*shown, *(pool[part] for pool in pools for part in ("shares", "pods", "nodes"))],
        when=when,
        facts=[{"name": name, "value": value} for name, value in facts.items()],
        memory=html_page.memory_facts([pool.memory for pool in seen.pools]),
        legend=html_page.legend(pool["mode"] for pool in pools),
        unseen=[visible(f"{one.what}: {one.why}") for one in dict.fromkeys(seen.unseen)],
        no_events=status_view.NO_EVENTS if with_kills and not seen.kills else "",
        hint=status_view.hint(wrong[0]) if wrong else "",
        observed=None if seen.observed is None else _observed(seen.observed),
        memory_note=memory_note((one for pool in seen.pools for one in pool.holders), with_kills=with_kills),
        pools=pools,
        meter_at=next(at for at, one in enumerate(_SHARES) if one.is_meter),
        unfolded=len(seen.pools) <= html_page.MAX_UNFOLDED,
        shown=shown,
    )


def _observed(observed: Observed) -> dict[str, Any]:
    return {"heading": observed_view.heading(observed), "lines": list(map(visible, observed_view.lines(observed)))}


def _table(title: str, columns: Iterable[Column[T]], items: Iterable[T], key: str = "", more: str = "") -> Table:
    """Return a table without the columns in which no item has anything; one with a key has at most `_MAX_OTHERS` rows."""
    shown = [one for one in columns if one.on_page]
    rows = [[one.value(item) for one in shown] for item in items]
    return table(title, _headers(shown), rows, id=key, numbers=_numbers(shown), most=_MAX_OTHERS if key else None, more=more)


def _headers(columns: Iterable[Column[T]]) -> tuple[str, ...]:
    return tuple(one.page_header or one.header.capitalize() for one in columns)


def _numbers(columns: Iterable[Column[T]]) -> tuple[int, ...]:
    return tuple(at for at, one in enumerate(columns) if one.is_number)


_SHARES = [one for one in POOLS if one.on_page]


def _shares(pool: PoolStatus) -> Table:
    """Return the numbers of each resource, with all columns."""
    return Table(
        title=f"Shares of {visible(pool.name)}",
        headers=_headers(_SHARES),
        rows=tuple(tuple(visible(one.value(line)) for one in _SHARES) for line in pool_lines(pool) if line.share),
        numbers=_numbers(_SHARES),
        codes=tuple(at for at, one in enumerate(_SHARES) if one.is_code),
    )


def _pool(pool: PoolStatus, most: int) -> dict[str, Any]:
    """Return a pool with at most so many of its nodes."""
    wrong = [node for node in pool.nodes if _is_wrong(node)]
    ordered = [*wrong, *(node for node in pool.nodes if not _is_wrong(node))]
    reasons = dict.fromkeys(node.condition.reason for node in pool.nodes)
    held = pool.holders
    shown = _lines(pool.name, largest(held, most))
    pods = (line.holder.full_name for line in shown)
    names = " ".join((pool.name, pool.card, pool.mode, *reasons, *(node.name for node in ordered[:most]), *pods))
    return {
        "name": visible(pool.name),
        "mode": html_page.mode(pool.mode or "?", is_divided=pool.is_divided),
        "card": visible(pool.card or "unknown card"),
        "memory": html_page.memory_facts([pool.memory]),
        "memory_of": pluralize(len(pool.nodes), "node"),
        "readiness": f"{readiness(pool)} ready" if pool.observed < len(pool.nodes) else readiness(pool),
        "is_wrong": bool(wrong),
        "text": visible(names.lower()),
        "shares": _shares(pool),
        "meters": pool.shares,
        "pods": _table(
            f"Pods that hold shares of {visible(pool.name)}",
            HOLDERS,
            shown,
            more=f"and {len(held) - most} more; --format json lists all" if len(held) > most else "",
        ),
        "nodes": _table(
            f"Nodes of {visible(pool.name)}", NODES, ordered[:most], more=_more(len(ordered) - most, len(wrong) - most)
        ),
    }


def _lines(pool: str, held: Iterable[Holder]) -> list[HolderLine]:
    return [HolderLine(pool=pool, holder=one) for one in held]


def _is_wrong(node: NodeStatus) -> bool:
    return not (node.is_ready or node.is_observed)


def _more(left: int, wrong: int) -> str:
    """Return how many nodes are not shown, and how many of those are not ready."""
    if left <= 0:
        return ""
    return f"and {pluralize(left, 'node')} more; {max(wrong, 0)} of them do not match the plan; --format json lists all"
