"""A cluster's status for people: tables of pools, of nodes that are not ready, and of containers over their caps."""

from collections.abc import Iterable, Sequence

from gpushare.live.holders import largest
from gpushare.live.snapshot import RuntimeMetrics
from gpushare.live.status import NodeStatus, Status
from gpushare.report import observed_view
from gpushare.report.plan_view import known
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
    with_counters,
)
from gpushare.report.terminal import BOLD, Style, table
from gpushare_node.contract.struct import replace

_MAX_NODES = 20
_MAX_KILLS = 50
_MAX_HOLDERS = 20
"""Pods of all pools, and at least `_MIN_HOLDERS` of each: those of the most shares first."""
_MIN_HOLDERS = 3


def render(seen: Status, style: Style, *, is_wide: bool, with_kills: bool) -> str:
    """Return all tables. `is_wide`: every node, with the message of its condition, however wide the terminal is."""
    nodes = [node for pool in seen.pools for node in pool.nodes] + list(seen.others)
    lines = [line for pool in seen.pools for line in pool_lines(pool)]
    shown = _table(POOLS, lines, style) if seen.pools else "no pools were seen\n"
    if seen.observed is not None:
        shown += "\n" + observed_view.render(seen.observed, style)
    if is_wide:
        shown += "\n" + _table(NODES, nodes, replace(style, whole_tables=True), is_wide=True) if nodes else ""
    else:
        shown += _unready(nodes, style)
    shown += _of_driver(seen, style, is_wide=is_wide)
    shown += "\n" + _table(VM_NODES, seen.vm_nodes, style) if seen.vm_nodes else ""
    shown += _holders(seen, style, is_wide=is_wide, with_kills=with_kills)
    if seen.pending:
        shown += "\n" + _table(PENDING, seen.pending, style, most=_MAX_NODES)
    return shown + (_kills(seen, [node.metrics for node in nodes if node.metrics], style) if with_kills else "")


def _table(
    columns: Iterable[Column[T]], items: Sequence[T], style: Style, *, most: int | None = None, is_wide: bool = False
) -> str:
    """Return a table of at most so many items."""
    shown = [one for one in columns if one.in_text and (is_wide or not one.is_wide)]
    return table(
        [one.header for one in shown],
        [[one.value(item) for one in shown] for item in items[:most]],
        style,
        numbers=[one.header for one in shown if one.is_number],
        dropped=[one.header for one in shown if one.is_droppable],
        uncut=[one.header for one in shown if one.is_uncut],
    ) + (f"and {len(items) - most} more\n" if most is not None and len(items) > most else "")


def _holders(seen: Status, style: Style, *, is_wide: bool, with_kills: bool) -> str:
    """Return the pods that hold shares. `is_wide`: all of them."""
    groups = [(pool.name, pool.holders) for pool in seen.pools]
    groups.append(("", [one for node in seen.others for one in node.holders or ()]))
    number = sum(len(held) for _, held in groups)
    if not number:
        return ""
    most = number if is_wide else max(_MAX_HOLDERS // sum(bool(held) for _, held in groups), _MIN_HOLDERS)
    lines = [HolderLine(pool=name, holder=one) for name, held in groups for one in largest(held, most)]
    shown = "\n" + _table(HOLDERS, lines, replace(style, whole_tables=True) if is_wide else style)
    if number > len(lines):
        shown += f"and {number - len(lines)} more; -o wide lists all\n"
    note = memory_note((line.holder for line in lines), with_kills=with_kills)
    return shown + (f"{note}\n" if note else "")


def _of_driver(seen: Status, style: Style, *, is_wide: bool) -> str:
    """Return what belongs to NVIDIA's DRA driver: its nodes, claims without pods, names of several classes."""
    if seen.claims is None:
        return ""
    most = None if is_wide else _MAX_NODES
    shown = ""
    if nodes := dra_nodes(seen):
        shown += "\n" + _table(DRA_NODES, nodes, style, most=most)
        shown += f"{known(seen.claims.allocated)} claims have devices, {known(seen.claims.pending)} wait\n"
    if seen.claims.left:
        shown += "\n" + _table(CLAIMS_LEFT, seen.claims.left, style, most=most)
    if seen.claims.names:
        shown += "\n" + _table(CLASS_NAMES, seen.claims.names, style, most=most)
        shown += "Pods that ask by such a name get what one of the classes selects; deleting one class removes the name.\n"
    return shown


def _unready(nodes: Sequence[NodeStatus], style: Style) -> str:
    """Return the nodes of pools that are neither ready nor observed, those of no pool only if they have a condition of ours."""
    found = [node for node in nodes if not (node.is_ready or node.is_observed) and (node.pool or node.condition.since)]
    if not found:
        return ""
    shown = "\n" + _table(NODES, found, style, most=_MAX_NODES)
    for node in found[:3]:
        shown += f"\n{style.paint(node.name, BOLD)}: {node.condition.message or node.condition.reason}\n"
    return shown + f"\n{hint(found[0])}\n"


def hint(node: NodeStatus) -> str:
    """Return the commands that explain a node that is not ready."""
    return f"`gpushare explain {node.name}` says what to do."


def _kills(seen: Status, metrics: Sequence[RuntimeMetrics], style: Style) -> str:
    shown = "\n" + (_table(EVENTS, seen.kills, style, most=_MAX_KILLS) if seen.kills else f"{NO_EVENTS}\n")
    if counted := with_counters(metrics):
        shown += "\n" + _table(COUNTERS, counted, style) + "Counters since the start of each runtime.\n"
    if over := over_their_caps(metrics):
        shown += "\n" + _table(OVER, over, style)
    return shown


NO_EVENTS = "no Event about a cap; Kubernetes keeps Events for an hour"
