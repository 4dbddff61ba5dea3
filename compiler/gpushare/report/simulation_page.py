"""A simulation as one HTML page that needs no network: whether all pods ran, and each pool over time, intents side by side."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gpushare.core import prices
from gpushare.core.printable import visible
from gpushare.core.wording import gib, join_first, pluralize
from gpushare.report import curves, html, simulation_view
from gpushare.report.html import section
from gpushare.report.html_table import Grid, table
from gpushare.report.simulation_view import duration
from gpushare.simulation.outcome import Point, PoolOutcome
from gpushare.simulation.simulated import Simulated, Simulations

_MAX_POOLS = 60
"""Pools with curves; the tables have more."""
_MAX_ROWS = 1000
"""Of each table."""
_MAX_LINES = 200
"""Of each list."""
_HEADERS = {"GPUS": "GPUs", "GPU-HOURS": "GPU-hours", "ASKED GIB": "Asked GiB", "GRANTED GIB": "Granted GiB"}
_HEADERS |= {"STRANDED GIB": "Stranded GiB"}


def page(found: Simulations, written: str) -> str:
    """Return the page. `written` is the time."""
    intents, first = found.intents, found.intents[0]
    several = len(intents) > 1
    verdicts = [visible((f"{one.file}: " if several else "") + simulation_view.verdict(one)) for one in intents]
    tables = [one for one in _tables(found) if one.rows]
    names, cards = _cards(intents)
    return html.render(
        "simulate.html.j2",
        tables=tables,
        name=visible(first.name),
        written=written,
        headline=verdicts[0],
        facts=[{"name": name, "value": visible(value)} for name, value in _facts(found).items()],
        verdicts=verdicts[1:],
        notes=list(simulation_view.comparison_notes(intents)) if several else [],
        shown=tables,
        pools=cards,
        more=f"and {pluralize(names - len(cards), 'pool')} more, without curves" if names > len(cards) else "",
        unfolded=len(cards) <= html.MAX_UNFOLDED,
        lists=[one for one in _lists(found) if one["lines"]],
    )


def _facts(found: Simulations) -> dict[str, str]:
    first = found.intents[0]
    facts = {
        "Workload": f"{pluralize(len(found.workload.pods), 'pod')} of {found.workload.source}",
        "Over in": "-" if first.outcome.end is None or not first.placed else duration(first.outcome.end),
        "Scheduler": found.scoring,
        "Ran": f"{first.placed:,}",
        "Never ran": f"{first.never_ran:,}",
        "Mean wait": duration(first.mean_wait),
        "GPUs": f"{first.all_gpus:,}",
        "Stranded": "-" if first.stranded_mib is None else gib(first.stranded_mib),
    }
    if first.gpu_hours is not None:
        facts["GPU-hours"] = f"{first.gpu_hours:,.1f}"
    if first.outcome.cost is not None:
        hourly = " per hour" if any(pool.is_hourly for pool in first.outcome.pools) else ""
        facts["Cost"] = prices.amount(first.outcome.cost, first.outcome.currency) + hourly
    return facts


def _tables(found: Simulations) -> Iterable[Grid]:
    intents = found.intents
    if len(intents) > 1:
        headers, rows = simulation_view.comparison_rows(intents)
        yield _table("Intents compared", headers, rows, "compared")
    are_mixed = len(simulation_view.cost_headers(intents)) > 1
    for title, key, rows_of in (
        ("Pools", "table", simulation_view.pool_rows),
        ("At the peak of each pool, and in all", "peak", partial(simulation_view.use_rows, are_mixed=are_mixed)),
    ):
        each = [rows_of(one) for one in intents]
        widest = max((headers for headers, _ in each), key=len)
        rows = [
            [*row, *[""] * (len(widest) - len(row)), one.file]
            for one, (_, rows) in zip(intents, each, strict=True)
            for row in rows
        ]
        file = ["INTENT"] if len(intents) > 1 else []
        yield _table(title, [*widest, *file], [row if file else row[:-1] for row in rows], key)


def _table(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]], key: str) -> Grid:
    shown = [_header(one) for one in headers]
    numbers = [at for at, header in enumerate(headers) if header not in {"POOL", "CARD", "INTENT"}]
    return table(title, shown, rows, id=key, numbers=numbers, most=_MAX_ROWS)


def _header(text: str) -> str:
    """Return a header of the text output as the page writes it."""
    if text.startswith("COST"):
        return text.replace("COST", "Cost", 1).replace(" PER HOUR", " per hour")
    return _HEADERS.get(text) or text.capitalize()


def _cards(intents: Sequence[Simulated]) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of pools, and what the template needs of those with the most pods: one side for each intent."""
    pools: dict[str, list[PoolOutcome | None]] = {}
    for at, one in enumerate(intents):
        for pool in one.outcome.pools:
            pools.setdefault(pool.name, [None] * len(intents))[at] = pool
    end = max((_end(pool) for sides in pools.values() for pool in sides if pool), default=0)
    ordered = sorted(pools.items(), key=lambda entry: (-max(_pods(side) for side in entry[1]), entry[0]))
    return len(pools), [_card(name, sides, intents, end) for name, sides in ordered[:_MAX_POOLS]]


def _pods(pool: PoolOutcome | None) -> int:
    return 0 if pool is None else pool.placed + sum(pool.pending.values())


def _end(pool: PoolOutcome) -> int:
    return pool.points[-1].time if pool.points else 0


def _card(name: str, sides: Sequence[PoolOutcome | None], intents: Sequence[Simulated], end: int) -> dict[str, Any]:
    lost = max(sum(side.pending.values()) if side else 0 for side in sides)
    memory = [None if side is None else _offered_mib(one, side) for one, side in zip(intents, sides, strict=True)]
    scales = _scales([side for side in sides if side], memory, end)
    return {
        "name": visible(name),
        "card": visible(", ".join(dict.fromkeys(side.card for side in sides if side))),
        "lost": f"{pluralize(lost, 'pod')} never ran" if lost else "",
        "sides": [
            {
                "title": visible(one.file) if len(intents) > 1 else "",
                "lines": _lines(side) if side else ["no pool of this name"],
                "curves": list(_curves(side, offered, scales)) if side and scales else [],
            }
            for one, side, offered in zip(intents, sides, memory, strict=True)
        ],
        "ticks": [duration(second) for second in curves.ticks(end)] if end else [],
    }


def _offered_mib(one: Simulated, pool: PoolOutcome) -> int | None:
    """Return the memory of the pool's GPUs; None if it is not known."""
    size = next(each.gpu_mib for each in one.supply.pools if each.name == pool.name)
    return None if size is None else size * one.gpus(pool)


def _lines(pool: PoolOutcome) -> list[str]:
    """Return what the pool's numbers say in words."""
    nodes = pluralize(pool.nodes, "node")
    lines = [f"{nodes} needed" if pool.is_open else nodes]
    lines[0] += f", {pluralize(pool.placed, 'pod')} ran"
    mean = -(-pool.waited_seconds // max(pool.placed, 1))
    lines[0] += f", after a mean wait of {duration(mean)}" if mean else ""
    return lines + [visible(f"{pluralize(number, 'pod')} never ran: {reason}") for reason, number in pool.pending.items()]


def _scales(pools: Sequence[PoolOutcome], memory: Sequence[int | None], end: int) -> Mapping[str, curves.Scale]:
    """Return the scales that all sides have in common; none if nothing changes over time."""
    if not end:
        return {}
    points = [point for pool in pools for point in pool.points]
    most = {
        "shares": max([*(pool.shares for pool in pools), *(point.shares for point in points)], default=0),
        "memory": max([*(size or 0 for size in memory), *(_most_memory(point) for point in points)], default=0),
        "waiting": max((point.pending for point in points), default=0),
    }
    return {name: curves.Scale(end=end, most=number) for name, number in most.items() if number}


def _most_memory(point: Point) -> int:
    return max(point.asked_mib, point.granted_mib or 0)


def _curves(pool: PoolOutcome, offered_mib: int | None, scales: Mapping[str, curves.Scale]) -> Iterable[dict[str, Any]]:
    """Yield the curves of a pool: what they show in words, and their paths by class."""
    points = pool.points
    if scale := scales.get("shares"):
        used = [(point.time, point.shares) for point in points]
        text = f"Shares in use: at most {pool.peak.shares:,} of {pool.shares:,}, at {duration(pool.peak.time)}"
        yield _curve(text, scale, (("used", used),), pool.shares)
    if scale := scales.get("memory"):
        asked = [(point.time, point.asked_mib) for point in points]
        granted = [(point.time, point.granted_mib or 0) for point in points]
        most = max((point.asked_mib for point in points), default=0)
        of = "" if offered_mib is None else f" of {gib(offered_mib)}"
        series = [("asked", asked)] if any(value for _, value in asked) else []
        series += [("granted", granted)] if all(point.granted_mib is not None for point in points) else []
        yield _curve(f"Memory that pods asked for: at most {gib(most)}{of}", scale, series, offered_mib)
    if scale := scales.get("waiting"):
        waiting = [(point.time, point.pending) for point in points]
        most = max((point.pending for point in points), default=0)
        yield _curve(f"Pods that wait: at most {most:,}", scale, (("waiting", waiting),), None)


def _curve(text: str, scale: curves.Scale, series: Iterable[tuple[str, curves.Steps]], offered: float | None) -> dict[str, Any]:
    lines = [(kind, curves.line(steps, scale)) for kind, steps in series]
    paths = [{"kind": kind, "area": curves.area(drawn), "line": drawn} for kind, drawn in lines]
    return {"text": text, "paths": paths, "offered": None if offered is None else curves.level(offered, scale)}


def _lists(found: Simulations) -> Iterable[dict[str, Any]]:
    several = len(found.intents) > 1
    reasons = [
        (f"{one.file}: " if several else "") + f"{pluralize(number, 'pod')}: {reason}"
        for one in found.intents
        for reason, number in simulation_view.pending(one)
    ]
    yield section("never", "Pods that never ran", reasons, _MAX_LINES)
    bounds = [simulation_view.bounds_text(one.outcome.bounds) for one in found.intents if one.outcome.bounds]
    yield section("bounds", "What no layout can beat", list(dict.fromkeys(bounds)), _MAX_LINES)
    workload = found.workload
    left = list(simulation_view.left_out(workload.left_out))
    rows = len(workload.left_out) + len(workload.pods)
    yield section("left", f"Left out: {len(workload.left_out):,} of {rows:,} rows", left, _MAX_LINES)
    unused = join_first(workload.unused, simulation_view.MAX_REASONS) if workload.unused else ""
    assumed = list(dict.fromkeys(line for one in found.intents for line in one.outcome.assumed))
    yield section("assumed", "Assumed", [*assumed, *([f"columns not used: {unused}"] if unused else [])], _MAX_LINES)
