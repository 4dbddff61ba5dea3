"""A comparison as one HTML page that needs no network: what it costs, and every pool's GPUs before and after, to scale."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpushare.compare.changes import Change, Comparison, GpuChange, PoolChange
from gpushare.compare.sides import Side
from gpushare.compare.snapshots import PoolSide
from gpushare.core import units
from gpushare.core.units import MemoryTotals
from gpushare.core.wording import pluralize, visible
from gpushare.facts.catalog.cards import Catalog, Geometry
from gpushare.report import comparison_words as words
from gpushare.report import folding, html, pool_facts
from gpushare.report.comparison_verdict import headline, verdict
from gpushare.report.effect_words import format_effect
from gpushare.report.html import section
from gpushare.report.html_table import HtmlTable, table
from gpushare.report.plan_view import known, ranges
from gpushare.report.setting_words import format_file, format_setting
from gpushare.resolved.plan import DevicePlan
from gpushare_node.contract.struct import replace

_ARROW = "→"
_MAX_LINES = 500
"""Lines of one list: of files, or of settings."""


def page(comparison: Comparison, sides: tuple[Side, Side], catalog: Catalog, written: str) -> str:
    """Return the page. `sides` are what was compared, `written` is the time."""
    pools = [] if comparison.is_empty else words.affected(comparison)
    broken = sum(one.problem is not None for one in comparison.quotas)
    facts = {
        "Pools changed": str(len(pools)),
        "Nodes touched": known(comparison.touched),
        "Pods disturbed": f"at most {comparison.disturbed}" if comparison.disturbed else known(comparison.disturbed),
        "Quotas that no longer fit": str(broken),
    }
    described = ((pool.name, *_described(pool, comparison, sides, catalog)) for pool in pools)
    nodes = {pool.name: _nodes(pool, sides) for pool in pools}
    cards = [{**card, **pool_facts.heading(names, nodes)} for names, card in folding.alike(described)]
    tables = [one for one in _tables(comparison, [_cluster_memory(side, catalog) for side in sides]) if one.rows]
    return html.render(
        "plan.html.j2",
        tables=tables,
        name=visible(sides[1].cluster),
        is_empty=comparison.is_empty,
        written=written,
        headline=headline(comparison),
        legend=pool_facts.legend(mode for card in cards for mode in card["modes"]),
        facts=[{"name": name, "value": value} for name, value in facts.items()],
        besides=list(map(visible, verdict(comparison))),
        order=list(words.format_order(comparison)),
        strategy=words.format_mig_strategy(comparison, _ARROW) if comparison.changes_mig_strategy else "",
        warning=words.OPERATOR_RESTART,
        pools=cards,
        unfolded=len(cards) <= html.MAX_UNFOLDED,
        shown=tables,
        lists=[one for one in _lists(comparison) if one["lines"]],
    )


def _nodes(pool: PoolChange, sides: tuple[Side, Side]) -> str:
    """Return which nodes the pool has, afterwards if it is still there."""
    nodes = next(entry.nodes for entry in reversed(_entries(pool, sides)) if entry and entry.nodes)
    expressions = [
        {"key": one.key, "operator": one.operator.value} | ({"values": list(one.values)} if one.values else {})
        for one in nodes.match_expressions
    ]
    return pool_facts.nodes_text(dict(nodes.match_labels), expressions, list(nodes.names))


def _entries(pool: PoolChange, sides: tuple[Side, Side]) -> list[PoolSide | None]:
    return [side.pools.get(pool.name) for side in sides]


def _memory(entry: PoolSide, catalog: Catalog) -> MemoryTotals:
    card = catalog.get(entry.card)
    known = [(one.memory_mib, one.replicas, one.cap_mib) for one in entry.devices]
    devices = [(None, 1, None)] if entry.is_on_demand else known
    node = units.memory_of_node(None if card is None else card.memory_mib, len(entry.gpus), devices)
    return node.of_nodes(entry.count)


def _cluster_memory(side: Side, catalog: Catalog) -> list[MemoryTotals]:
    return [_memory(entry, catalog) for entry in side.pools.values()]


def _memory_rows(before: Sequence[MemoryTotals], after: Sequence[MemoryTotals]) -> Iterable[tuple[str, str, str]]:
    """Yield the totals that change: name, before and after."""
    sums = zip(pool_facts.memory_facts(before), pool_facts.memory_facts(after), strict=True)
    yield from ((old["name"], old["value"], new["value"]) for old, new in sums if old["value"] != new["value"])


def _tables(comparison: Comparison, memory: Sequence[Sequence[MemoryTotals]]) -> Iterable[HtmlTable]:
    moves = [words.format_move(one) for one in comparison.moves]
    yield table("Nodes that change pools", ("Node", "From pool", "To pool", "Pods disturbed"), moves, id="moves")
    capacity = list(words.format_capacity(comparison))
    yield table("Capacity", ("Resource", "Before", "After", "Change"), capacity, id="capacity", numbers=(1, 2, 3), codes=(0,))
    yield table("Memory of the cluster", ("Memory", "Before", "After"), _memory_rows(*memory), id="memory", numbers=(1, 2))
    unit, costs = words.cost_header(comparison), list(words.format_costs(comparison))
    yield table("Cost of an hour", (f"Pool ({unit})", "Before", "After", "Change"), costs, id="costs", numbers=(1, 2, 3))
    quotas = [words.format_quota(one) for one in comparison.quotas]
    headers = ("Namespace", "Resource", "Before", "After", "Problem")
    yield table("Quotas", headers, quotas, id="quotas", numbers=(2, 3), codes=(1,))


def _lists(comparison: Comparison) -> Iterable[dict[str, Any]]:
    cluster = [format_effect(one, _ARROW) for one in comparison.effects if one.pool is None]
    yield section("cluster", "In the whole cluster", cluster, _MAX_LINES)
    files = [line for one in comparison.files for line in format_file(one, _ARROW)]
    yield section("files", "Files of the bundle", files, _MAX_LINES, is_folded=True)
    settings = [format_setting(one, _ARROW) for one in comparison.intent]
    yield section("intent", "Settings of the intent", settings, _MAX_LINES, is_folded=True)


def _described(
    pool: PoolChange, comparison: Comparison, sides: tuple[Side, Side], catalog: Catalog
) -> tuple[str, dict[str, Any]]:
    """Return what has to be equal for two pools to have one card, and what the card says."""
    outages = [words.format_outage(one) for one in comparison.outages if one.pool == pool.name]
    effects = [format_effect(one, _ARROW) for one in comparison.effects if one.pool == pool.name]
    before, after = ([] if entry is None else [_memory(entry, catalog)] for entry in _entries(pool, sides))
    memory = ", ".join(f"{name} {old} {_ARROW} {new}" for name, old, new in _memory_rows(before, after))
    lines = [words.format_disturbance(pool), *outages, *words.format_consequences(pool, _ARROW), *effects, memory]
    modes = [_mode(entry) for entry in _entries(pool, sides) if entry]
    content = {
        "is_harmful": pool.disturbed != 0 or pool.change in {Change.GONE, Change.REPARTITION},
        "change": words.change_word(pool),
        "card": visible(words.format_cards(pool)),
        "cost": f"at most {pluralize(pool.disturbed, 'pod')} disturbed" if pool.disturbed else "",
        "modes": [one for number, one in enumerate(modes) if one not in modes[:number]],
        "lines": [visible(line) for line in lines if line],
        "maps": list(_maps(pool, sides, catalog)),
    }
    return repr(content), content


def _mode(entry: PoolSide) -> Mapping[str, str]:
    return pool_facts.mode(entry.mode, is_divided=any(one.replicas > 1 for one in entry.devices))


def _maps(pool: PoolChange, sides: tuple[Side, Side], catalog: Catalog) -> Iterable[dict[str, Any]]:
    """Yield the maps before and after of the GPUs whose maps differ, once for all that have the same two."""
    entries = _entries(pool, sides)
    gpus = max(len(entry.gpus) for entry in entries if entry) if any(entries) else 0
    changes = {one.index: one for one in pool.gpus} if pool.change is Change.REPARTITION else {}
    geometries = [catalog.geometry(entry.card) if entry else None for entry in entries]
    kinds = [_mode(entry)["kind"] if entry else "" for entry in entries]
    devices = [_devices(entry) for entry in entries]
    groups: dict[str, tuple[list[int], list[Any]]] = {}
    for gpu in range(gpus):
        change = changes.get(gpu, GpuChange(index=gpu))
        before, after = (side.get(gpu, []) for side in devices)
        placed = _placed(after, change)
        gone, new = frozenset(change.destroyed), frozenset(change.created)
        maps = [
            {"kind": kinds[0], **_side("Before", before, geometries[0], dict.fromkeys(gone, "gone"))},
            {"kind": kinds[1], **_side("After", placed, geometries[1], dict.fromkeys(new, "new"))},
        ]
        if kinds[0] != kinds[1] or maps[0]["cells"] != maps[1]["cells"]:
            groups.setdefault(repr(maps), ([], maps))[0].append(gpu)
    for indexes, maps in groups.values():
        yield {"title": f"GPU {ranges(indexes)}", "sides": maps}


def _side(
    title: str, devices: Sequence[DevicePlan], geometry: Geometry | None, marks: Mapping[tuple[str, int], str]
) -> dict[str, Any]:
    """Return one side of a GPU; without cells if this side has no such pool."""
    has_mig = any(device.profile for device in devices)
    cells = pool_facts.cells(devices, geometry if has_mig else None, lambda one: marks.get((one.profile or "", one.start), ""))
    return {"title": title, "cells": [{**cell, "lines": list(map(visible, cell["lines"]))} for cell in cells]}


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
