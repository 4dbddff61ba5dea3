"""A cluster's status as one HTML page that needs no network: each pool's shares and nodes, and what is wrong with which."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpushare.core.printable import visible
from gpushare.core.wording import pluralize
from gpushare.live.observing import Observed
from gpushare.live.status import NodeStatus, PoolStatus, ShareUsage, Status
from gpushare.views import html_page, observed_view, status_view
from gpushare.views.html_table import Table, table

_NODE_HEADERS = ("Node", "State", "Reason", "Since", "Offered", "Used", "Message")
_MAX_ROWS = 2000
"""Of nodes on the whole page, and at least `_MIN_ROWS` of each pool: those that are not ready first."""
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
    pending = [
        (pod.full_name, status_view.format_resources(pod.requests.items()), next(iter(pod.problems), ""))
        for pod in seen.pending
    ]
    tables = [
        _table("pending", "Pending pods", ("Pod", "Requests", "Why"), pending),
        _table("others", "Nodes with GPUs that belong to no pool", _NODE_HEADERS, _node_rows(seen.others)),
    ]
    if with_kills:
        metrics = [node.metrics for node in (*nodes, *seen.others) if node.metrics]
        over, counters = status_view.over_rows(metrics), status_view.counter_rows(metrics)
        events = status_view.event_rows(seen.kills)
        tables += [
            _table("over", "Containers over their caps now", ("Pod", *status_view.OVER[1:]), over, (3, 4)),
            _table("counters", "Since the start of each runtime", status_view.COUNTERS, counters, (1, 2, 3)),
            _table("events", "Events about caps in the last hour", status_view.EVENTS, events, (3,)),
        ]
    pools = [_pool(pool, max(_MAX_ROWS // len(seen.pools), _MIN_ROWS)) for pool in seen.pools]
    shown = [one for one in tables if one.rows]
    return html_page.render(
        "status.html.j2",
        tables=[*shown, *(pool[part] for pool in pools for part in ("shares", "nodes"))],
        when=when,
        facts=[{"name": name, "value": value} for name, value in facts.items()],
        unseen=[visible(f"{one.what}: {one.why}") for one in dict.fromkeys(seen.unseen)],
        no_events=status_view.NO_EVENTS if with_kills and not seen.kills else "",
        hint=status_view.hint(wrong[0]) if wrong else "",
        observed=None if seen.observed is None else _observed(seen.observed),
        pools=pools,
        unfolded=len(seen.pools) <= html_page.MAX_UNFOLDED,
        shown=shown,
    )


def _observed(observed: Observed) -> dict[str, Any]:
    return {"heading": observed_view.heading(observed), "lines": list(map(visible, observed_view.lines(observed)))}


def _table(key: str, title: str, headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Table:
    """Return a table, cut to so many rows; `numbers` are the columns that have numbers."""
    return table(title, [header.capitalize() for header in headers], rows, id=key, numbers=numbers, most=_MAX_OTHERS)


def _shares(pool: PoolStatus) -> Table:
    """Return the numbers of each resource; the last column is empty where it is not known how many are in use."""
    headers = ("Resource", "Wanted", "Offered", "Used", "Free", "In use")
    rows = tuple((*map(visible, status_view.numbers(one)), _percentage(one)) for one in pool.shares)
    return Table(title=f"Shares of {visible(pool.name)}", headers=headers, rows=rows, numbers=(1, 2, 3, 4, 5), codes=(0,))


def _percentage(one: ShareUsage) -> str:
    return "" if one.used is None or not one.offered else f"{100 * one.used // one.offered}\u00a0%"


def _pool(pool: PoolStatus, most: int) -> dict[str, Any]:
    """Return a pool with at most so many of its nodes."""
    wrong = [node for node in pool.nodes if _is_wrong(node)]
    ordered = [*wrong, *(node for node in pool.nodes if not _is_wrong(node))]
    reasons = dict.fromkeys(node.condition.reason for node in pool.nodes)
    names = " ".join((pool.name, pool.card, pool.mode, *reasons, *(node.name for node in ordered[:most])))
    return {
        "name": visible(pool.name),
        "facts": visible(f"{pool.mode or '?'} · {pool.card or 'unknown card'}"),
        "readiness": f"{status_view.readiness(pool)} ready" if pool.observed < len(pool.nodes) else status_view.readiness(pool),
        "is_wrong": bool(wrong),
        "text": visible(names.lower()),
        "shares": _shares(pool),
        "meters": pool.shares,
        "nodes": table(
            f"Nodes of {visible(pool.name)}",
            _NODE_HEADERS,
            _node_rows(ordered[:most]),
            more=_more(len(ordered) - most, len(wrong) - most),
        ),
    }


def _is_wrong(node: NodeStatus) -> bool:
    return not (node.is_ready or node.is_observed)


def _more(left: int, wrong: int) -> str:
    """Return how many nodes are not shown, and how many of those are not ready."""
    if left <= 0:
        return ""
    return f"and {pluralize(left, 'node')} more; {max(wrong, 0)} of them do not match the plan; --format json lists all"


def _node_rows(nodes: Iterable[NodeStatus]) -> list[tuple[str, ...]]:
    """Return the rows of a table that has no column for the pool."""
    return [(name, *rest) for name, _pool_name, *rest in map(status_view.node_row, nodes)]
