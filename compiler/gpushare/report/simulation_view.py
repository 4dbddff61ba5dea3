"""A simulation for people: whether all pods ran and why not, each pool, the intents compared, and what was assumed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpushare.core import prices
from gpushare.core.printable import visible
from gpushare.core.wording import join_first, pluralize
from gpushare.report.terminal import BOLD, Style, table, wrapped
from gpushare.simulation.outcome import Bounds, PoolOutcome
from gpushare.simulation.simulated import Simulated, Simulations
from gpushare.workload.requests import LeftOut, Workload

MAX_REASONS = 8
_MAX_LINES = 3


def render(found: Simulations, style: Style) -> str:
    """Return the verdict, the tables and the notes."""
    several = len(found.intents) > 1
    shown = wrapped(_heading(found, style), style, indent=2)
    if several:
        shown += "\n" + "".join(wrapped(f"{visible(one.file)}: {verdict(one)}", style, indent=2) for one in found.intents)
        shown += "\n" + _comparison(found.intents, style)
    for one in found.intents:
        shown += "\n" + (style.paint(visible(one.file), BOLD) + "\n" if several else wrapped(verdict(one), style) + "\n")
        shown += _intent(one, style)
    shown += _left_out(found.workload, style)
    assumed = dict.fromkeys(line for one in found.intents for line in one.outcome.assumed)
    return shown + _listed("assumed:", [visible(line) for line in assumed], style, most=len(assumed))


def verdict(one: Simulated) -> str:
    """Return in one sentence whether all pods ran, and how many did not for which reason."""
    ran, lost = one.placed, one.never_ran
    late = f", after a mean wait of {duration(one.mean_wait)}" if one.waited_seconds else ""
    if not lost:
        return f"all {pluralize(ran, 'pod')} ran{late}" if ran != 1 else f"the pod ran{late}"
    (reason, number), *more = pending(one)
    reason = visible(reason)
    why = f"{number:,} because {reason}, and {pluralize(len(more), 'further reason')}" if more else reason
    rest = f"; the others ran{late}" if ran else ""
    return f"{lost:,} of {pluralize(ran + lost, 'pod')} never ran: {why}{rest}"


def pending(one: Simulated) -> list[tuple[str, int]]:
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


def bounds_text(bounds: Bounds) -> str:
    """Return what no layout can beat, in a sentence."""
    return (
        f"GPUs at the time of the most pods: at least {bounds.lower:,} with any layout, {bounds.free_sizes:,} by best fit if "
        f"each GPU could be cut freely, {bounds.whole:,} if every pod had whole GPUs"
    )


def left_out(entries: Iterable[LeftOut]) -> Iterator[str]:
    """Yield each reason why rows are left out, with their places; the reason of the most rows first."""
    by_reason: dict[str, list[LeftOut]] = {}
    for entry in entries:
        by_reason.setdefault(entry.reason, []).append(entry)
    for reason, alike in sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[1][0].line)):
        yield f"{place(alike)}: {visible(reason)}"


def place(alike: Sequence[LeftOut]) -> str:
    """Return the lines of entries, with the column if there is only one."""
    first = alike[0]
    if len(alike) == 1:
        return f"line {first.line}" + (f", column {first.column}" if first.column else "")
    return f"lines {join_first([one.line for one in alike], _MAX_LINES)}"


def _heading(found: Simulations, style: Style) -> str:
    first, workload = found.intents[0], found.workload
    end = f", over in {duration(first.outcome.end)}" if first.outcome.end is not None else ", without an end"
    end = end if first.placed else ""
    name = style.paint(visible(first.name), BOLD)
    return f"{name}  {pluralize(len(workload.pods), 'pod')} of {visible(workload.source)}{end}; the scheduler: {found.scoring}"


class _Column(NamedTuple):
    """A column of the comparison: its number, rounded to `digits`, how it is written, and what is if there is none."""

    header: str
    value: Callable[[Simulated], float | None]
    text: Callable[[float], str]
    digits: int = 0
    unknown: str = "-"

    def number(self, one: Simulated) -> float | None:
        """Return the number as it is shown, so that differences add up."""
        value = self.value(one)
        return None if value is None else round(value, self.digits)


Rows = tuple[list[str], list[list[str]]]
"""The headers of a table, and its rows."""


def comparison_rows(intents: Sequence[Simulated]) -> Rows:
    """Return a row for each intent, with its differences from the first in parentheses."""
    first = intents[0]
    columns = [
        _Column("NEVER RAN", lambda one: one.never_ran, _whole),
        _Column("MEAN WAIT", lambda one: one.mean_wait, lambda value: duration(int(value))),
        _Column("NODES", lambda one: one.nodes, _whole),
        _Column("GPUS", lambda one: one.all_gpus, _whole),
        _Column("STRANDED GIB", lambda one: _gib(one.stranded_mib), _decimal, 1),
        _Column("GPU-HOURS", lambda one: one.gpu_hours, _decimal, 1),
    ]
    costs = cost_headers(intents)
    if len(costs) == 1:
        header = costs.pop()
        columns.append(_Column(header, lambda one: one.outcome.cost, _money, 2, "?"))

    def cell(column: _Column, one: Simulated) -> str:
        value, base = column.number(one), column.number(first)
        if value is None:
            return column.unknown
        if one is first or base is None or value == base:
            return column.text(value)
        return f"{column.text(value)} ({'+' if value > base else '-'}{column.text(abs(value - base))})"

    headers = ["INTENT", *(column.header for column in columns)]
    return headers, [[one.file, *(cell(column, one) for column in columns)] for one in intents]


def comparison_notes(intents: Sequence[Simulated]) -> Iterator[str]:
    """Yield what the numbers in parentheses are, and whether costs are not compared."""
    yield f"In parentheses: the difference from {visible(intents[0].file)}."
    costs = cost_headers(intents)
    if len(costs) > 1:
        yield "Costs in several currencies, or of an hour and of a whole workload, are not compared."
    elif costs:
        missing = [(one.file, names) for one in intents if (names := unpriced(one))]
        yield from (f"{visible(file)}: the price of {join_first(names)} is not known." for file, names in missing)


def cost_headers(intents: Iterable[Simulated]) -> set[str]:
    """Return the headers of the costs: of one currency or several, of an hour or of the whole workload; none without prices."""
    return {_cost_header(one) for one in intents if any(pool.cost is not None for pool in one.outcome.pools)}


def _comparison(intents: Sequence[Simulated], style: Style) -> str:
    headers, rows = comparison_rows(intents)
    shown = table(headers, rows, style, numbers=headers[1:], dropped=("MEAN WAIT", "NODES", "STRANDED GIB"))
    return shown + "".join(wrapped(line, style) for line in comparison_notes(intents))


def _cost_header(one: Simulated) -> str:
    is_hourly = any(pool.is_hourly for pool in one.outcome.pools)
    return " ".join(filter(None, ("COST PER HOUR" if is_hourly else "COST", one.outcome.currency)))


def pool_rows(one: Simulated) -> Rows:
    """Return a row for each pool: what it has, and how many pods ran and waited."""
    headers = ["POOL", "CARD", "NODES", "GPUS", "SHARES", "RAN", "NEVER RAN", "MEAN WAIT"]
    rows = [
        [
            pool.name,
            pool.card,
            f"{pool.nodes:,} needed" if pool.is_open else f"{pool.nodes:,}",
            f"{one.gpus(pool):,}",
            f"{pool.shares:,}",
            f"{pool.placed:,}",
            f"{sum(pool.pending.values()):,}",
            duration(-(-pool.waited_seconds // max(pool.placed, 1))),
        ]
        for pool in one.outcome.pools
    ]
    return headers, rows


def _intent(one: Simulated, style: Style) -> str:
    pools = one.outcome.pools
    headers, rows = pool_rows(one)
    shown = table(headers, rows, style, numbers=headers[2:], dropped=("MEAN WAIT", "CARD", "SHARES"))
    if len(pools) > 1:
        shown += f"in all: {pluralize(one.nodes, 'node')} with {pluralize(one.all_gpus, 'GPU')}\n"
    shown += "\nAt the peak of each pool, and in all:\n" + _use(one, style)
    reasons = [f"{pluralize(number, 'pod')}: {visible(reason)}" for reason, number in pending(one)]
    shown += _listed("never ran:", reasons, style)
    if one.outcome.bounds:
        shown += "\n" + wrapped(bounds_text(one.outcome.bounds), style, indent=2)
    return shown


def use_rows(one: Simulated, *, are_mixed: bool = False) -> Rows:
    """Return a row for each pool: how full it was at its peak, and its GPU-hours and cost in all.

    `are_mixed`: the costs of other rows of the table are in other currencies or of another time, so that each says it.
    """
    pools = one.outcome.pools
    headers = ["POOL", "AT", "SHARES", "GPUS", "ASKED GIB", "GRANTED GIB", "STRANDED GIB", "GPU-HOURS", "IN USE"]
    if any(pool.cost is not None for pool in pools):
        headers.append("COST" if are_mixed else _cost_header(one))
    rows = []
    for pool in pools:
        peak = pool.peak
        cells = [
            pool.name,
            duration(peak.time),
            f"{peak.shares:,}",
            f"{peak.gpus:,}",
            _optional(_gib(peak.asked_mib), _decimal),
            _optional(_gib(peak.granted_mib), _decimal),
            _optional(_gib(pool.stranded_mib), _decimal),
            _optional(pool.gpu_hours, _decimal),
            in_use(pool),
            prices.amount(pool.cost, one.outcome.currency if are_mixed else "")
            + (" per hour" if are_mixed and pool.is_hourly else ""),
        ]
        rows.append(cells[: len(headers)])
    return headers, rows


def _use(one: Simulated, style: Style) -> str:
    headers, rows = use_rows(one)
    shown = table(
        headers, rows, style, numbers=headers[1:], dropped=("AT", "GRANTED GIB", "ASKED GIB", "STRANDED GIB", "IN USE")
    )
    known = [pool.cost for pool in one.outcome.pools if pool.cost is not None]
    if len(one.outcome.pools) > 1 and known:
        names = unpriced(one)
        hourly = " an hour" if one.outcome.pools[0].is_hourly else ""
        without = f", without {join_first(names)}: the price is not known" if names else ""
        shown += wrapped(f"cost in all: {prices.amount(sum(known), one.outcome.currency)}{hourly}{without}", style)
    return shown


def unpriced(one: Simulated) -> list[str]:
    """Return the pools whose cost is not known."""
    return [pool.name for pool in one.outcome.pools if pool.cost is None]


def in_use(pool: PoolOutcome) -> str:
    """Return the percentage of a pool's GPU-hours that shares in use are, `-` if that is not known."""
    if pool.used_gpu_hours is None or not pool.gpu_hours:
        return "-"
    return f"{100 * pool.used_gpu_hours / pool.gpu_hours:.0f} %"


def _left_out(workload: Workload, style: Style) -> str:
    shown = ""
    if workload.left_out:
        rows = len(workload.left_out) + len(workload.pods)
        shown += _listed(f"left out: {len(workload.left_out):,} of {rows:,} rows", [*left_out(workload.left_out)], style)
    if workload.unused:
        shown += "\n" + wrapped(f"columns not used: {join_first(workload.unused, MAX_REASONS)}", style, indent=2)
    return shown


def _listed(title: str, lines: Sequence[str], style: Style, most: int = MAX_REASONS) -> str:
    if not lines:
        return ""
    more = [f"and {pluralize(len(lines) - most, 'further reason')}"] if len(lines) > most + 1 else []
    kept = lines[:most] if more else lines
    return f"\n{style.paint(title, BOLD)}\n" + "".join(wrapped(f"  {line}", style, indent=4) for line in [*kept, *more])


def _gib(size_mib: int | None) -> float | None:
    return None if size_mib is None else size_mib / 1024


def _optional(value: float | None, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(value)


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    return f"{value:,.1f}"


def _money(value: float) -> str:
    return f"{value:,.2f}"
