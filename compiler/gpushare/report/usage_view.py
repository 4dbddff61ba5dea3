"""A usage report for people: what namespaces held and used, what pools offered, and which hours are not counted."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from gpushare import vendors
from gpushare.core.wording import join_first
from gpushare.live.usage_report import PoolUsage, Source, UsageReport
from gpushare.monitoring import showback
from gpushare.report.terminal import BOLD, Style, table, wrapped

_MAX_GAPS = 3
_ROUNDING = 1 + 1e-6


def render(report: UsageReport, name: str, style: Style) -> str:
    """Return the tables and the notes. `name` is the cluster's."""
    shown = style.paint(name, BOLD) + f"  {moment(report.start)} to {moment(report.end)} (UTC), {report.hours} hours\n\n"
    if report.uses:
        shown += _uses(report, style)
    else:
        shown += "no namespace held shares or used memory\n"
    rows = [(pool.name, *row) for pool in report.pools for row in _shares(pool)]
    if rows:
        headers = ("POOL", "RESOURCE", "OFFERED", "HELD", "IN USE")
        shown += "\n" + table(headers, rows, style, numbers=headers[2:])
    lines = list(notes(report))
    return shown + ("\n" + "".join(wrapped(line, style) for line in lines) if lines else "")


def _uses(report: UsageReport, style: Style) -> str:
    currencies = prices(report)
    headers = ["NAMESPACE", "POOL", "SHARE-HOURS", "GPU-HOURS", "GIB-HOURS"]
    rows = [
        [
            use.namespace,
            use.pool or "-",
            ", ".join(f"{vendors.short(one.resource)}: {number(one.hours)}" for one in use.held) or "-",
            number(use.gpus),
            number(use.memory),
        ]
        for use in report.uses
    ]
    if currencies:
        headers.append(" ".join(filter(None, ("COST", *currencies))))
        rows = [[*row, number(use.cost)] for row, use in zip(rows, report.uses, strict=True)]
    shown = table(headers, rows, style, numbers=headers[3:])
    if currencies:
        total = sum(use.cost or 0.0 for use in report.uses)
        shown += f"cost in all: {' '.join(filter(None, (number(total), *currencies)))}\n"
    return shown


def _shares(pool: PoolUsage) -> Iterator[tuple[str, ...]]:
    for resource in sorted({*pool.offered, *pool.held}):
        offered, held = pool.offered.get(resource), pool.held.get(resource)
        fraction = held / offered if offered and held is not None else None
        shown = "-" if fraction is None or fraction > _ROUNDING else f"{100 * fraction:.0f} %"
        yield vendors.short(resource), number(offered), number(held), shown


def _is_exceeded(pool: PoolUsage) -> bool:
    return any((pool.held.get(resource) or 0.0) > offered * _ROUNDING for resource, offered in pool.offered.items() if offered)


def notes(report: UsageReport) -> Iterator[str]:
    """Yield what is not counted, and why numbers are not known."""
    for source in report.sources:
        if source.gaps:
            yield f"Not counted: {_source(source)}: {_gaps(source, report.hours)}."
    if any(not use.pool for use in report.uses):
        yield "Without a pool: shares on nodes whose runtime was not scraped, or that belong to no pool."
    lost = [pool.name for pool in report.pools if pool.facts is None]
    if lost:
        yield f"Not in the intent, hence without GPU-hours: {join_first(lost)}."
    if prices(report):
        free = [pool.name for pool in report.pools if pool.facts and pool.facts.price is None]
        if free:
            yield f"Without a price: {join_first(free)}."
        if any(use.cost is None and use.held for use in report.uses):
            yield "The cost in all is without the rows of which it is not known."
    if any(pool.held and not pool.offered for pool in report.pools):
        yield "OFFERED is not known without samples of the recording rules that spec.monitoring.alerts writes."
    exceeded = [pool.name for pool in report.pools if _is_exceeded(pool)]
    if exceeded:
        yield f"IN USE is not known where HELD is more than OFFERED: {join_first(exceeded)}."
    if any(use.memory is None and use.pool for use in report.uses):
        yield "GIB-HOURS is not known where no runtime measured the memory of a container, or not as a number (NaN)."
    if any(one.hours is None for use in report.uses for one in use.held):
        yield "SHARE-HOURS is not known where Prometheus has samples that are not a number (NaN)."
    for warning in report.warnings:
        yield f"Prometheus warns: {warning}"


def prices(report: UsageReport) -> tuple[str, ...]:
    """Return the currency of the prices, empty text if they name none; nothing without prices."""
    found = {pool.facts.price.currency for pool in report.pools if pool.facts and pool.facts.price}
    return tuple(sorted(found))


def moment(seconds: int) -> str:
    """Return a time as RFC 3339 text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")


def number(value: float | None) -> str:
    """Return hours or money with two decimals, `-` if they are not known."""
    return "-" if value is None else f"{value:.2f}"


def _source(source: Source) -> str:
    if source.metric == showback.SHARES:
        return f"OFFERED of pool {source.pool}, of which the recording rules have no samples"
    return f"pool {source.pool}, whose runtimes have no samples" if source.pool else "kube-state-metrics has no samples"


def _gaps(source: Source, hours: int) -> str:
    most: Iterable[str] = (f"{moment(gap.start)} to {moment(gap.end)}" for gap in source.gaps[:_MAX_GAPS])
    more = f" and {len(source.gaps) - _MAX_GAPS} more" if len(source.gaps) > _MAX_GAPS else ""
    return f"{source.missing:g} of {hours} hours ({', '.join(most)}{more})"
