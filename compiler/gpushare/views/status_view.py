"""A cluster's status for people: tables of pools, of nodes that are not as wanted, and of containers over their caps."""

from collections.abc import Iterable, Iterator, Sequence

from gpushare import vendors
from gpushare.core.record import replace
from gpushare.core.units import show_bytes
from gpushare.live.snapshot import Event, RuntimeMetrics
from gpushare.live.status import NodeStatus, PoolStatus, ShareUsage, Status
from gpushare.nodes import taints
from gpushare.views import observed_view
from gpushare.views.plan_view import known
from gpushare.views.terminal import BOLD, Style, table

_MAX_NODES = 20
_MAX_KILLS = 50


def render(seen: Status, style: Style, *, is_wide: bool, with_kills: bool) -> str:
    """Return all tables. `is_wide`: every node, with the message of its condition, however wide the terminal is."""
    nodes = [node for pool in seen.pools for node in pool.nodes] + list(seen.others)
    shown = _pools(seen.pools, style) if seen.pools else "no pools were seen\n"
    if seen.observed is not None:
        shown += "\n" + observed_view.render(seen.observed, style)
    if is_wide:
        shown += "\n" + _node_table(nodes, replace(style, whole_tables=True), messages=True) if nodes else ""
    else:
        shown += _unready(nodes, style)
    if seen.pending:
        rows = [(pod.full_name, asked(pod.requests.items()), next(iter(pod.problems), "")) for pod in seen.pending]
        shown += "\n" + table(("PENDING POD", "REQUESTS", "WHY"), rows[:_MAX_NODES], style) + _more(rows, _MAX_NODES)
    return shown + (_kills(seen, [node.metrics for node in nodes if node.metrics], style) if with_kills else "")


_HEADERS = ("POOL", "MODE", "READY", "RESOURCE", "WANTED", "OFFERED", "USED", "FREE")
_Lines = tuple[tuple[str, ...], ...]


def _pools(pools: Sequence[PoolStatus], style: Style) -> str:
    rows = [("" if number else pool.name, *line) for pool in pools for number, line in enumerate(_lines(pool))]
    return table(_HEADERS, rows, style, numbers=_HEADERS[4:], dropped=("MODE",), uncut=("READY",))


def _lines(pool: PoolStatus) -> _Lines:
    """Return a line for each resource, the pool's name aside; the first has what belongs to the whole pool."""
    head = (pool.mode or "?", readiness(pool))
    return tuple((*(("", "") if number else head), *numbers(one)) for number, one in enumerate(pool.shares or (None,)))


def readiness(pool: PoolStatus) -> str:
    """Return how many nodes are ready, of how many."""
    count = len(pool.nodes)
    if pool.observed == count > 0:
        return f"{count} observed"
    return f"{pool.ready}/{count}" + (f", {pool.observed} observed" if pool.observed else "")


def numbers(one: ShareUsage | None) -> tuple[str, ...]:
    """Return the resource, and how many of it are wanted, offered, used and free."""
    if one is None:
        return ("-", "", "", "", "")
    return one.resource, known(one.wanted), str(one.offered), known(one.used), known(one.free)


def _unready(nodes: Sequence[NodeStatus], style: Style) -> str:
    """Return the nodes of pools that are neither ready nor observed, those of no pool only if they have a condition of ours."""
    found = [node for node in nodes if not (node.is_ready or node.is_observed) and (node.pool or node.condition.since)]
    if not found:
        return ""
    shown = "\n" + _node_table(found[:_MAX_NODES], style, messages=False) + _more(found, _MAX_NODES)
    for node in found[:3]:
        shown += f"\n{style.paint(node.name, BOLD)}: {node.condition.message or node.condition.reason}\n"
    return shown + f"\n{hint(found[0])}\n"


def hint(node: NodeStatus) -> str:
    """Return what tells more about a node that is not as wanted."""
    return f"`gpushare explain {node.name}` says what to do."


def _node_table(nodes: Iterable[NodeStatus], style: Style, *, messages: bool) -> str:
    headers = ("NODE", "POOL", "STATE", "REASON", "SINCE", "OFFERED", "USED", *(("MESSAGE",) if messages else ()))
    rows = [row if messages else row[:-1] for row in map(node_row, nodes)]
    return table(headers, rows, style, dropped=("SINCE", "USED"))


def node_row(node: NodeStatus) -> tuple[str, ...]:
    """Return the node's name, pool, state, reason, since when, what it offers, what is in use, and the message."""
    return (
        node.name,
        node.pool or "-",
        ", ".join(_states(node)),
        node.condition.reason,
        node.condition.since or "-",
        asked((one.resource, one.offered) for one in node.shares),
        asked((one.resource, one.used) for one in node.shares if one.used is None or one.used),
        node.condition.message,
    )


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
        yield "not as wanted"


def asked(resources: Iterable[tuple[str, int | None]]) -> str:
    """Return resources with their numbers, `-` for none."""
    return ", ".join(f"{vendors.short(name)}: {known(number)}" for name, number in resources) or "-"


def _kills(seen: Status, metrics: Sequence[RuntimeMetrics], style: Style) -> str:
    shown = "\n" + (_events(seen.kills, style) if seen.kills else f"{NO_EVENTS}\n")
    if counted := counter_rows(metrics):
        shown += "\n" + table(COUNTERS, counted, style, numbers=COUNTERS[1:4]) + "Counters since the start of each runtime.\n"
    if over := over_rows(metrics):
        shown += "\n" + table(OVER, over, style, numbers=("USED", "CAP"))
    return shown


NO_EVENTS = "no Event about a cap; Kubernetes keeps Events for an hour"
COUNTERS = ("NODE", "KILLS", "EVICTIONS", "WARNINGS", "PAUSED")
OVER = ("OVER ITS CAP NOW", "CONTAINER", "NODE", "USED", "CAP")
EVENTS = ("TIME", "REASON", "POD", "COUNT", "MESSAGE")


def counter_rows(metrics: Iterable[RuntimeMetrics]) -> list[tuple[str, ...]]:
    """Return what the runtimes that did anything have counted since they started."""
    return [
        (one.node, str(one.kills), str(one.evictions), str(one.warnings), "yes" if one.is_paused else "no")
        for one in metrics
        if one.kills or one.evictions or one.warnings or one.is_paused
    ]


def over_rows(metrics: Iterable[RuntimeMetrics]) -> list[tuple[str, ...]]:
    """Return the containers that are over their caps now."""
    return [
        (f"{one.namespace}/{one.pod}", one.container, one.node, _size(one.used), _size(one.cap))
        for each in metrics
        for one in each.usages
        if one.is_over
    ]


def event_rows(events: Iterable[Event]) -> list[tuple[str, ...]]:
    """Return the Events about caps."""
    return [(one.time or "?", one.reason, f"{one.namespace}/{one.name}", str(one.count), one.message) for one in events]


def _events(events: Sequence[Event], style: Style) -> str:
    rows = event_rows(events)
    return table(EVENTS, rows[:_MAX_KILLS], style, numbers=("COUNT",)) + _more(rows, _MAX_KILLS)


def _more(rows: Sequence[object], most: int) -> str:
    return f"and {len(rows) - most} more\n" if len(rows) > most else ""


def _size(number: int | None) -> str:
    return "?" if number is None else show_bytes(number)
