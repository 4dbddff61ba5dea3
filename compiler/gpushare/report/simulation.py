"""`gpushare simulate`: whether all pods ran and why not, each pool over time, the intents compared, and what was assumed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from gpushare.core import prices
from gpushare.core.wording import gib, join_first, pluralize
from gpushare.report import curves
from gpushare.report.document import (
    COUNT,
    FLAG,
    INTEGER,
    ROUNDED,
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
    Cards,
    Column,
    Drawing,
    Form,
    Format,
    Legend,
    Lines,
    PoolCard,
    Report,
    ReportPart,
    Section,
    Sides,
    Table,
    bare,
)
from gpushare.study.simulation.engine import Scoring
from gpushare.study.simulation.outcome import Bounds, Point, PoolOutcome, Simulated, Simulations
from gpushare.study.workload.requests import LeftOut, Workload

_MAX_REASONS = 8
_MAX_PLACES = 3
_MAX_POOLS = 60
"""Pools with curves; the tables have more."""
_MAX_ROWS = 1000
"""Of each table of the page."""
_MAX_LINES = 200
"""Of each list of the page."""
_LEGEND = (
    ("k-used", "shares in use"),
    ("k-asked", "memory asked for"),
    ("k-granted", "memory of these shares"),
    ("k-waiting", "pods that wait"),
    ("k-offered", "offered"),
)


def report(found: Simulations) -> Report:
    """Return the report. Intents are compared with the first of them."""
    intents, first = found.intents, found.intents[0]
    several = len(intents) > 1
    assumed = list(dict.fromkeys(line for one in intents for line in one.outcome.assumed))
    verdicts = [(f"{one.file}: " if several else "") + verdict(one) for one in intents]
    return Report(
        title=f"Simulation of {first.name}",
        verdict=verdicts[0],
        facts=(_facts(found),),
        head=(Lines(lines=verdicts[1:], form=Form.NOTE, where=Format.PAGE),),
        sections=(
            bare(Lines(lead=first.name, lines=[f"  {_heading(found)}"], indent=2, where=Format.TEXT)),
            *(_comparison(intents, verdicts) if several else ()),
            *(section for number, one in enumerate(intents) for section in _intent(one, number if several else None)),
            *_cards(intents),
            *_left_out(found.workload),
            _listed("assumed", "assumed:", "Assumed", assumed, most=len(assumed)),
        ),
        footer=". Numbers that are not known are “-”.",
        document=partial(DOCUMENT.write, found),
    )


def verdict(one: Simulated) -> str:
    """Return in one sentence whether all pods ran, and how many did not for which reason."""
    ran, lost = one.placed, one.never_ran
    late = f", after a mean wait of {duration(one.mean_wait)}" if one.waited_seconds else ""
    if not lost:
        return f"all {pluralize(ran, 'pod')} ran{late}" if ran != 1 else f"the pod ran{late}"
    (reason, number), *more = _pending(one)
    why = f"{number:,} because {reason}, and {pluralize(len(more), 'further reason')}" if more else reason
    rest = f"; the others ran{late}" if ran else ""
    return f"{lost:,} of {pluralize(ran + lost, 'pod')} never ran: {why}{rest}"


def _pending(one: Simulated) -> list[tuple[str, int]]:
    """Return the reasons why pods never ran, with the pool where there is one, and the number of pods; most pods first."""
    found = [(f"{pool.name}: {reason}", number) for pool in one.outcome.pools for reason, number in pool.pending.items()]
    return sorted([*found, *one.outcome.unserved.items()], key=lambda entry: (-entry[1], entry[0]))


def duration(seconds: int) -> str:
    """Return a time as its largest unit and the one below it: `5d2h`, `2h30m`, `0s`."""
    left, parts = seconds, []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        parts.append(f"{number}{unit}" if number else "")
    first = next((at for at, part in enumerate(parts) if part), 3)
    return "".join(parts[first : first + 2]) or "0s"


def left_out(entries: Iterable[LeftOut]) -> Iterator[str]:
    """Yield each reason why rows are left out, with their places; the reason of the most rows first."""
    by_reason: dict[str, list[LeftOut]] = {}
    for entry in entries:
        by_reason.setdefault(entry.reason, []).append(entry)
    for reason, alike in sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[1][0].line)):
        yield f"{_place(alike)}: {reason}"


def _place(alike: Sequence[LeftOut]) -> str:
    """Return the lines of entries, with the column if there is only one."""
    first = alike[0]
    if len(alike) == 1:
        return f"line {first.line}" + (f", column {first.column}" if first.column else "")
    return f"lines {join_first([one.line for one in alike], _MAX_PLACES)}"


def _heading(found: Simulations) -> str:
    first, workload = found.intents[0], found.workload
    end = f", over in {duration(first.outcome.end)}" if first.outcome.end is not None else ", without an end"
    end = end if first.placed else ""
    return f"{pluralize(len(workload.pods), 'pod')} of {workload.source}{end}; the scheduler: {found.scoring}"


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


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    return f"{value:,.1f}"


def _known(value: float | None) -> str:
    return "-" if value is None else _decimal(value)


def _gib(size_mib: int | None) -> float | None:
    return None if size_mib is None else size_mib / 1024


def _comparison(intents: Sequence[Simulated], verdicts: Sequence[str]) -> Iterator[Section]:
    """Yield what becomes of the pods of each intent, and a row for each, with its differences from the first in parentheses."""
    yield bare(Lines(lines=verdicts, indent=2, where=Format.TEXT))
    first = intents[0]

    def compared(  # noqa: PLR0913, PLR0917 - what such columns differ in
        header: str,
        value: Callable[[Simulated], float | None],
        text: Callable[[float], str] = _whole,
        digits: int = 0,
        unknown: str = "-",
        page_header: str = "",
        *,
        is_droppable: bool = False,
    ) -> Column[Simulated]:
        """Return a column of numbers, rounded to `digits` as they are shown, so that differences add up."""

        def cell(one: Simulated) -> str:
            shown, base = (None if each is None else round(each, digits) for each in (value(one), value(first)))
            if shown is None:
                return unknown
            if one is first or base is None or shown == base:
                return text(shown)
            return f"{text(shown)} ({'+' if shown > base else '-'}{text(abs(shown - base))})"

        return Column(header=header, value=cell, page_header=page_header, is_number=True, is_droppable=is_droppable)

    columns: list[Column[Simulated]] = [
        Column(header="INTENT", value=lambda one: one.file),
        compared("NEVER RAN", lambda one: one.never_ran),
        compared("MEAN WAIT", lambda one: one.mean_wait, lambda value: duration(int(value)), is_droppable=True),
        compared("NODES", lambda one: one.nodes, is_droppable=True),
        compared("GPUS", lambda one: one.all_gpus, page_header="GPUs"),
        compared(
            "STRANDED GIB", lambda one: _gib(one.stranded_mib), _decimal, 1, page_header="Stranded GiB", is_droppable=True
        ),
        compared("GPU-HOURS", lambda one: one.gpu_hours, _decimal, 1, page_header="GPU-hours"),
    ]
    costs = {_cost_header(one) for one in intents} - {""}
    notes = [f"In parentheses: the difference from {first.file}."]
    if len(costs) == 1:
        (header,) = costs
        columns.append(compared(header.upper(), lambda one: one.outcome.cost, "{:,.2f}".format, 2, "?", page_header=header))
        missing = [(one.file, names) for one in intents if (names := _unpriced(one))]
        notes += [f"{file}: the price of {join_first(names)} is not known." for file, names in missing]
    elif costs:
        notes.append("Costs in several currencies, or of an hour and of a whole workload, are not compared.")
    yield Section(
        id="compared",
        title="Intents compared",
        parts=(
            Table(title="Intents compared", columns=columns, rows=intents, most_on_page=_MAX_ROWS),
            Lines(lines=notes, form=Form.MUTED, indent=0),
        ),
    )


def _cost_header(one: Simulated) -> str:
    """Return the header of the costs: of an hour or of the whole workload, with their currency; empty without prices."""
    pools = one.outcome.pools
    if all(pool.cost is None for pool in pools):
        return ""
    is_hourly = any(pool.is_hourly for pool in pools)
    return " ".join(filter(None, ("Cost per hour" if is_hourly else "Cost", one.outcome.currency)))


def _unpriced(one: Simulated) -> list[str]:
    """Return the pools whose cost is not known."""
    return [pool.name for pool in one.outcome.pools if pool.cost is None]


def _intent(one: Simulated, number: int | None) -> Iterator[Section]:
    """Yield what becomes of the pods of an intent; `number` is its place among several."""
    of, key = ("", "") if number is None else (f"{one.file}: ", f"-{number}")
    if number is None:
        yield bare(Lines(lines=[verdict(one)], indent=0, where=Format.TEXT))
    pools = one.outcome.pools
    shown = of + "Pools"
    whole = f"in all: {pluralize(one.nodes, 'node')} with {pluralize(one.all_gpus, 'GPU')}"
    yield Section(
        id="table" + key,
        title=shown,
        parts=(
            Lines(lines=[one.file] if of else [], form=Form.HEADING, where=Format.TEXT),
            Table(title=shown, columns=_pool_columns(one), rows=pools, most_on_page=_MAX_ROWS),
            Lines(lines=[whole] if len(pools) > 1 else [], form=Form.MUTED),
        ),
    )
    shown = "At the peak of each pool, and in all"
    yield Section(
        id="peak" + key,
        title=of + shown,
        parts=(
            Lines(lines=[f"{shown}:"], where=Format.TEXT),
            Table(title=of + shown, columns=tuple(_use_columns(one)), rows=pools, most_on_page=_MAX_ROWS),
            Lines(lines=list(_cost_in_all(one)), form=Form.MUTED, indent=0),
        ),
    )
    reasons = [f"{pluralize(number, 'pod')}: {reason}" for reason, number in _pending(one)]
    yield _listed("never" + key, "never ran:", of + "Pods that never ran", reasons)
    bounds = [] if one.outcome.bounds is None else [_bounds_text(one.outcome.bounds)]
    yield Section(id="bounds" + key, title=of + "What no layout can beat", parts=(Lines(lines=bounds, indent=2),))


def _pool_columns(one: Simulated) -> tuple[Column[PoolOutcome], ...]:
    """Return what each pool has, and how many pods ran and waited."""
    return (
        Column(header="POOL", value=lambda pool: pool.name),
        Column(header="CARD", value=lambda pool: pool.card, is_droppable=True),
        Column(header="NODES", value=lambda pool: f"{pool.nodes:,}" + " needed" * pool.is_open, is_number=True),
        Column(header="GPUS", page_header="GPUs", value=lambda pool: f"{one.gpus(pool):,}", is_number=True),
        Column(header="SHARES", value=lambda pool: f"{pool.shares:,}", is_number=True, is_droppable=True),
        Column(header="RAN", value=lambda pool: f"{pool.placed:,}", is_number=True),
        Column(header="NEVER RAN", value=lambda pool: f"{sum(pool.pending.values()):,}", is_number=True),
        Column(header="MEAN WAIT", value=lambda pool: duration(_mean_wait(pool)), is_number=True, is_droppable=True),
    )


def _mean_wait(pool: PoolOutcome) -> int:
    return -(-pool.waited_seconds // max(pool.placed, 1))


def _use_columns(one: Simulated) -> Iterator[Column[PoolOutcome]]:
    """Yield how full each pool was at its peak, and its GPU-hours and cost in all."""
    yield Column(header="POOL", value=lambda pool: pool.name)
    yield Column(header="AT", value=lambda pool: duration(pool.peak.time), is_number=True, is_droppable=True)
    yield Column(header="SHARES", value=lambda pool: f"{pool.peak.shares:,}", is_number=True)
    yield Column(header="GPUS", page_header="GPUs", value=lambda pool: f"{pool.peak.gpus:,}", is_number=True)
    sizes: tuple[tuple[str, str, Callable[[PoolOutcome], int | None]], ...] = (
        ("ASKED GIB", "Asked GiB", lambda pool: pool.peak.asked_mib),
        ("GRANTED GIB", "Granted GiB", lambda pool: pool.peak.granted_mib),
        ("STRANDED GIB", "Stranded GiB", lambda pool: pool.stranded_mib),
    )
    for header, on_page, size in sizes:
        value = partial(lambda size, pool: _known(_gib(size(pool))), size)
        yield Column(header=header, page_header=on_page, value=value, is_number=True, is_droppable=True)
    yield Column(header="GPU-HOURS", page_header="GPU-hours", value=lambda pool: _known(pool.gpu_hours), is_number=True)
    yield Column(header="IN USE", value=_in_use, is_number=True, is_droppable=True)
    if header := _cost_header(one):
        yield Column(header=header.upper(), page_header=header, value=lambda pool: prices.amount(pool.cost, ""), is_number=True)


def _in_use(pool: PoolOutcome) -> str:
    """Return the percentage of a pool's GPU-hours that shares in use are, `-` if that is not known."""
    if pool.used_gpu_hours is None or not pool.gpu_hours:
        return "-"
    return f"{100 * pool.used_gpu_hours / pool.gpu_hours:.0f} %"


def _cost_in_all(one: Simulated) -> Iterator[str]:
    pools = one.outcome.pools
    known = [pool.cost for pool in pools if pool.cost is not None]
    if len(pools) > 1 and known:
        names = _unpriced(one)
        hourly = " an hour" if pools[0].is_hourly else ""
        without = f", without {join_first(names)}: the price is not known" if names else ""
        yield f"cost in all: {prices.amount(sum(known), one.outcome.currency)}{hourly}{without}"


def _bounds_text(bounds: Bounds) -> str:
    """Return what no layout can beat, in a sentence."""
    return (
        f"GPUs at the time of the most pods: at least {bounds.lower:,} with any layout, {bounds.free_sizes:,} by best fit if "
        f"each GPU could be cut freely, {bounds.whole:,} if every pod had whole GPUs"
    )


def _left_out(workload: Workload) -> Iterator[Section]:
    rows = len(workload.left_out) + len(workload.pods)
    what = f"left out: {len(workload.left_out):,} of {rows:,} rows"
    yield _listed("left", what, what.capitalize(), list(left_out(workload.left_out)))
    unused = [f"columns not used: {join_first(workload.unused, _MAX_REASONS)}"] if workload.unused else []
    yield bare(Lines(lines=unused, indent=2))


def _listed(key: str, heading: str, title: str, lines: Sequence[str], most: int = _MAX_REASONS) -> Section:
    """Return a list under a `heading` in the text, of at most so many lines, or under a `title` on the page."""
    further = len(lines) - most
    more = [f"and {pluralize(further, 'further reason')}"] if further > 1 else []
    return Section(
        id=key,
        title=title,
        parts=(
            Lines(lines=[heading] if lines else [], form=Form.HEADING, where=Format.TEXT),
            Lines(lines=[*(lines[:most] if more else lines), *more], form=Form.LIST, indent=4, where=Format.TEXT),
            Lines(lines=lines, form=Form.LIST, most_on_page=_MAX_LINES, where=Format.PAGE),
        ),
    )


def _cards(intents: Sequence[Simulated]) -> Iterator[Section]:
    """Yield the curves of the pools with the most pods: one side for each intent."""
    pools: dict[str, list[PoolOutcome | None]] = {}
    for at, one in enumerate(intents):
        for pool in one.outcome.pools:
            pools.setdefault(pool.name, [None] * len(intents))[at] = pool
    if not pools:
        return
    end = max((pool.points[-1].time for sides in pools.values() for pool in sides if pool and pool.points), default=0)
    ordered = sorted(pools.items(), key=lambda entry: (-max(map(_pods, entry[1])), entry[0]))
    cards = [_card(name, sides, intents, end) for name, sides in ordered[:_MAX_POOLS]]
    left = len(pools) - len(cards)
    yield Section(
        id="pools",
        title="Over time",
        where=Format.PAGE,
        parts=(
            Legend(entries=_LEGEND),
            Cards(cards=cards, search="name or card"),
            Lines(lines=[f"and {pluralize(left, 'pool')} more, without curves"] if left else [], form=Form.MUTED),
        ),
    )


def _pods(pool: PoolOutcome | None) -> int:
    return 0 if pool is None else pool.placed + sum(pool.pending.values())


def _card(name: str, sides: Sequence[PoolOutcome | None], intents: Sequence[Simulated], end: int) -> PoolCard:
    lost = max(sum(side.pending.values()) if side else 0 for side in sides)
    memory = [None if side is None else _offered_mib(one, side) for one, side in zip(intents, sides, strict=True)]
    scales = _scales([side for side in sides if side], memory, end)
    shown = [
        Section(
            title=one.file if len(intents) > 1 else "",
            parts=list(_side(side, offered, scales)) if side else [Lines(lines=["no pool of this name"], form=Form.LIST)],
        )
        for one, side, offered in zip(intents, sides, memory, strict=True)
    ]
    return PoolCard(
        id=f"pool-{name}",
        name=name,
        tag=f"{pluralize(lost, 'pod')} never ran" if lost else "",
        is_harmful=bool(lost),
        aside=", ".join(dict.fromkeys(side.card for side in sides if side)),
        parts=(Sides(sides=shown),),
    )


def _offered_mib(one: Simulated, pool: PoolOutcome) -> int | None:
    """Return the memory of the pool's GPUs; None if it is not known."""
    size = next(each.gpu_mib for each in one.supply.pools if each.name == pool.name)
    return None if size is None else size * one.gpus(pool)


def _scales(pools: Sequence[PoolOutcome], memory: Sequence[int | None], end: int) -> Mapping[str, curves.Scale]:
    """Return the scales that all sides have in common; none if nothing changes over time."""
    if not end:
        return {}
    points = [point for pool in pools for point in pool.points]
    used = (max(point.asked_mib, point.granted_mib or 0) for point in points)
    most = {
        "shares": max([*(pool.shares for pool in pools), *(point.shares for point in points)], default=0),
        "memory": max([*(size or 0 for size in memory), *used], default=0),
        "waiting": max((point.pending for point in points), default=0),
    }
    return {name: curves.Scale(end=end, most=number) for name, number in most.items() if number}


def _side(pool: PoolOutcome, offered_mib: int | None, scales: Mapping[str, curves.Scale]) -> Iterator[ReportPart]:
    """Yield what a pool's numbers say in words, and its curves."""
    nodes = pluralize(pool.nodes, "node") + " needed" * pool.is_open
    mean = _mean_wait(pool)
    ran = f"{nodes}, {pluralize(pool.placed, 'pod')} ran" + (f", after a mean wait of {duration(mean)}" if mean else "")
    lost = [f"{pluralize(number, 'pod')} never ran: {reason}" for reason, number in pool.pending.items()]
    yield Lines(lines=[ran, *lost], form=Form.LIST)
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


def _curve(text: str, scale: curves.Scale, series: Iterable[tuple[str, curves.Steps]], offered: float | None) -> Drawing:
    paths = []
    for kind, steps in series:
        line = curves.line(steps, scale)
        paths += [(f"{kind} under", curves.area(line)), (f"{kind} stroke", line)]
    if offered is not None:
        paths.append(("offered stroke", curves.level(offered, scale)))
    return Drawing(title=text, paths=paths, ticks=[duration(second) for second in curves.ticks(scale.end)])


_REASONS = by_name(COUNT, name="reasons", text="By reason, how many pods.")
_POINT: Shape[Point] = record(
    "point",
    Member("seconds", COUNT, lambda point: point.time, "From the workload's beginning."),
    Member("shares", COUNT, text="In use."),
    Member("askedMiB", COUNT, text="Memory that pods with shares asked for."),
    Member("grantedMiB", optional(INTEGER), text="Memory that their shares provide."),
    Member("nodes", COUNT, text="With at least one pod."),
    Member("gpus", COUNT, text="With at least one pod."),
    Member("pending", COUNT, text="Pods that wait."),
    text="The state from this second on, until the next point.",
)
_POOL: Shape[tuple[PoolOutcome, int]] = record(
    "pool",
    Member("card", TEXT, lambda one: one[0].card),
    Member("nodes", COUNT, lambda one: one[0].nodes),
    Member(
        "nodesGiven",
        FLAG,
        lambda one: not one[0].is_open,
        "Whether the intent has the number of nodes; else it is the number needed.",
    ),
    Member("gpus", COUNT, lambda one: one[1], "Of all its nodes."),
    Member("shares", COUNT, lambda one: one[0].shares, "Of all its nodes."),
    Member("ran", COUNT, lambda one: one[0].placed),
    Member("pending", _REASONS, lambda one: one[0].pending, "Pods that never ran."),
    Member("waitedSeconds", COUNT, lambda one: one[0].waited_seconds),
    Member("peak", _POINT, lambda one: one[0].peak, "The first point with the most shares in use."),
    Member(
        "strandedMiB",
        optional(INTEGER),
        lambda one: one[0].stranded_mib,
        "Memory of GPUs in use that no pod asked for, at the peak.",
    ),
    Member("gpuHours", optional(ROUNDED), lambda one: one[0].gpu_hours),
    Member("usedGpuHours", optional(ROUNDED), lambda one: one[0].used_gpu_hours, "In proportion to the shares in use."),
    Member("cost", optional(ROUNDED), lambda one: one[0].cost),
    Member("costIsPerHour", FLAG, lambda one: one[0].is_hourly, "The workload has no end: the cost is that of an hour."),
    Member("points", array(_POINT), lambda one: one[0].points),
)
_BOUNDS: Shape[Bounds] = record(
    "",
    Member("lower", COUNT, text="The sum of what pods ask for."),
    Member("freeSizes", COUNT, text="If each GPU could be cut freely."),
    Member("whole", COUNT, text="If every pod had whole GPUs."),
)
_INTENT: Shape[Simulated] = record(
    "intent",
    Member("file", TEXT),
    Member("cluster", TEXT, lambda one: one.name, "metadata.name of the intent."),
    Member("ran", COUNT, lambda one: one.placed, "Pods that ran, at once or later."),
    Member("neverRan", COUNT),
    Member("waitedSeconds", COUNT, text="The time that pods which ran had waited, all together."),
    Member("nodes", COUNT),
    Member("gpus", COUNT, lambda one: one.all_gpus, "Of all nodes."),
    Member("endSeconds", optional(INTEGER), lambda one: one.outcome.end, "When the last pod ended; null if pods stay."),
    Member("gpuHours", optional(ROUNDED), text="Of all GPUs until the end; null if pods stay."),
    Member("cost", optional(ROUNDED), lambda one: one.outcome.cost, "null without prices of all pools."),
    Member("currency", optional(TEXT), lambda one: one.outcome.currency, "null if the prices name none."),
    Member("pools", by_name(_POOL), lambda one: {pool.name: (pool, one.gpus(pool)) for pool in one.outcome.pools}),
    Member("unserved", _REASONS, lambda one: one.outcome.unserved, "Pods that no pool can ever serve."),
    Member(
        "bounds",
        optional(_BOUNDS),
        lambda one: one.outcome.bounds,
        "GPUs at the time of the most pods that no layout can beat; null if the pods cannot be compared.",
    ),
    Member("assumed", array(TEXT), lambda one: one.outcome.assumed, "What neither file says."),
)
_LEFT_OUT: Shape[LeftOut] = record(
    "",
    Member("line", COUNT, text="Counted from 1."),
    Member("column", optional(INTEGER), lambda one: one.column or None, "Counted from 1, in characters; null: the whole row."),
    Member("reason", TEXT),
)
_WORKLOAD: Shape[Workload] = record(
    "",
    Member("source", TEXT, text="The file."),
    Member("pods", COUNT, lambda workload: len(workload.pods)),
    Member("leftOut", array(_LEFT_OUT), text="Rows or objects that are not simulated."),
    Member("unusedColumns", array(TEXT), lambda workload: workload.unused),
)
DOCUMENT: Document[Simulations] = Document(
    name="simulation",
    kind="Simulation",
    text="What becomes of a workload on the pools of intents: `gpushare simulate --format json`. null: not known.",
    members=(
        Member("scoring", words(Scoring), text="Which node the scheduler takes."),
        Member("workload", _WORKLOAD),
        Member("intents", array(_INTENT), text="INTENT, then those of --compare."),
    ),
)
