"""`gpushare usage`: what namespaces held and used, what pools offered, and which hours are not counted."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from gpushare import vendors
from gpushare.core.wording import join_first
from gpushare.render.monitoring import showback
from gpushare.report.document import NUMBER, POSITIVE, TEXT, Document, Member, Shape, array, by_name, optional, record, words
from gpushare.report.model import Column, Format, Lines, Report, Table, bare
from gpushare.study.measured.usage_report import Amounts, Gap, MetricGaps, PoolUsage, ShareHours, UsageReport, Use
from gpushare_node.contract.struct import Struct, replace

_MAX_GAPS = 3
_ROUNDING = 1 + 1e-6
_DIGITS = 6


class UsageLine(Struct):
    """A resource of a pool."""

    pool: PoolUsage
    resource: str

    @property
    def offered(self) -> float | None:
        """The share-hours that the pool offered."""
        return self.pool.offered.get(self.resource)

    @property
    def held(self) -> float | None:
        """Those that pods held."""
        return self.pool.held.get(self.resource)


def _fraction(line: UsageLine) -> str:
    fraction = line.held / line.offered if line.offered and line.held is not None else None
    return "-" if fraction is None or fraction > _ROUNDING else f"{100 * fraction:.0f} %"


POOLS: tuple[Column[UsageLine], ...] = (
    Column(header="POOL", value=lambda line: line.pool.name),
    Column(header="RESOURCE", value=lambda line: vendors.short(line.resource)),
    Column(header="OFFERED", value=lambda line: _number(line.offered), is_number=True),
    Column(header="HELD", value=lambda line: _number(line.held), is_number=True),
    Column(header="IN USE", value=_fraction, is_number=True),
)


def report(found: UsageReport, name: str) -> Report:
    """Return the report. `name` is the cluster's."""
    lines = [UsageLine(pool=pool, resource=one) for pool in found.pools for one in sorted({*pool.offered, *pool.held})]
    columns = tuple(_columns(found))
    period = f"  {moment(found.start)} to {moment(found.end)} (UTC), {found.hours} hours"
    return Report(
        sections=(
            bare(Lines(lead=name, lines=[period])),
            bare(_uses(found, columns) if found.uses else Lines(lines=["no namespace held shares or used memory"])),
            bare(Table(columns=POOLS, rows=lines)),
            bare(Lines(lines=list(notes(found)), indent=0)),
            bare(Table(columns=columns, rows=list(_by_resource(found)), where=Format.CSV)),
        ),
        document=partial(DOCUMENT.write, _Named(name=name, found=found)),
    )


def _columns(found: UsageReport) -> Iterator[Column[Use]]:
    """Yield the columns of what namespaces held and used: an entry is all that a column of tables and CSV needs."""
    currencies = _prices(found)
    yield Column(header="from", value=lambda _: moment(found.start), where=Format.CSV)
    yield Column(header="to", value=lambda _: moment(found.end), where=Format.CSV)
    yield from _column("NAMESPACE", lambda use: use.namespace)
    yield from _column("POOL", lambda use: use.pool)
    yield Column(
        header="SHARE-HOURS",
        value=lambda use: ", ".join(f"{vendors.short(one.resource)}: {_number(one.hours)}" for one in use.held) or "-",
    )
    yield Column(header="resource", value=lambda use: "".join(one.resource for one in use.held), where=Format.CSV)
    yield Column(header="share_hours", value=lambda use: "".join(_exact(one.hours) for one in use.held), where=Format.CSV)
    yield from _amount("GPU-HOURS", lambda use: use.gpus)
    yield from _amount("GIB-HOURS", lambda use: use.memory)
    yield from _amount("COST", lambda use: use.cost, " ".join(currencies), where=Format.ANY if currencies else Format.CSV)
    yield Column(header="currency", value=lambda _: "".join(currencies), where=Format.CSV)


def _column(header: str, value: Callable[[Use], str]) -> Iterator[Column[Use]]:
    """Yield a column of words, as tables and as CSV have it."""
    yield Column(header=header, value=lambda use: value(use) or "-")
    yield Column(header=header.lower(), value=value, where=Format.CSV)


def _amount(
    header: str, value: Callable[[Use], float | None], unit: str = "", where: Format = Format.ANY
) -> Iterator[Column[Use]]:
    """Yield a column of amounts: rounded in tables, exact in CSV."""
    if Format.TEXT in where:
        yield Column(header=f"{header} {unit}".strip(), value=lambda use: _number(value(use)), is_number=True)
    yield Column(header=header.lower().replace("-", "_"), value=lambda use: _exact(value(use)), where=Format.CSV)


def _uses(found: UsageReport, columns: Sequence[Column[Use]]) -> Table[Use]:
    currencies = _prices(found)
    total = _number(sum(use.cost or 0.0 for use in found.uses))
    note = f"cost in all: {' '.join(filter(None, (total, *currencies)))}" if currencies else ""
    return Table(columns=columns, rows=found.uses, note=note)


def _by_resource(found: UsageReport) -> Iterator[Use]:
    """Yield what CSV has a line of: what is held of each resource, then the memory that was used."""
    for use in found.uses:
        yield from (replace(use, held=(one,), memory=None) for one in use.held)
        if use.memory is not None:
            yield replace(use, held=())


def _is_exceeded(pool: PoolUsage) -> bool:
    return any((pool.held.get(resource) or 0.0) > offered * _ROUNDING for resource, offered in pool.offered.items() if offered)


def notes(found: UsageReport) -> Iterator[str]:
    """Yield what is not counted, and why numbers are not known."""
    for source in found.sources:
        if source.gaps:
            yield f"Not counted: {_source(source)}: {_gaps(source, found.hours)}."
    if any(not use.pool for use in found.uses):
        yield "Without a pool: shares on nodes whose runtime was not scraped, or that belong to no pool."
    lost = [pool.name for pool in found.pools if pool.facts is None]
    if lost:
        yield f"Not in the intent, hence without GPU-hours: {join_first(lost)}."
    if _prices(found):
        free = [pool.name for pool in found.pools if pool.facts and pool.facts.price is None]
        if free:
            yield f"Without a price: {join_first(free)}."
        if any(use.cost is None and use.held for use in found.uses):
            yield "The cost in all is without the rows of which it is not known."
    if any(pool.held and not pool.offered for pool in found.pools):
        yield "OFFERED is not known without samples of the recording rules that spec.monitoring.alerts writes."
    exceeded = [pool.name for pool in found.pools if _is_exceeded(pool)]
    if exceeded:
        yield f"IN USE is not known where HELD is more than OFFERED: {join_first(exceeded)}."
    if any(use.memory is None and use.pool for use in found.uses):
        yield "GIB-HOURS is not known where no runtime measured the memory of a container, or not as a number (NaN)."
    if any(one.hours is None for use in found.uses for one in use.held):
        yield "SHARE-HOURS is not known where Prometheus has samples that are not a number (NaN)."
    for warning in found.warnings:
        yield f"Prometheus warns: {warning}"


def _prices(found: UsageReport) -> tuple[str, ...]:
    """Return the currency of the prices, empty text if they name none; nothing without prices."""
    currencies = {pool.facts.price.currency for pool in found.pools if pool.facts and pool.facts.price}
    return tuple(sorted(currencies))


def moment(seconds: int) -> str:
    """Return a time as RFC 3339 text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _number(value: float | None) -> str:
    """Return hours or money with two decimals, `-` if they are not known."""
    return "-" if value is None else f"{value:.2f}"


def _source(source: MetricGaps) -> str:
    if source.metric == showback.SHARES:
        return f"OFFERED of pool {source.pool}, of which the recording rules have no samples"
    return f"pool {source.pool}, whose runtimes have no samples" if source.pool else "kube-state-metrics has no samples"


def _gaps(source: MetricGaps, hours: int) -> str:
    most: Iterable[str] = (f"{moment(gap.start)} to {moment(gap.end)}" for gap in source.gaps[:_MAX_GAPS])
    more = f" and {len(source.gaps) - _MAX_GAPS} more" if len(source.gaps) > _MAX_GAPS else ""
    return f"{source.missing:g} of {hours} hours ({', '.join(most)}{more})"


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)


def _exact(number: float | None) -> str:
    return "" if number is None else str(_round(number))


class _Named(Struct):
    """A report with the cluster's name."""

    name: str
    found: UsageReport


_TIME: Shape[int] = Shape(
    schema={"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:00Z$(?!\\n)"}, write=moment, name="time"
)
_AMOUNT: Shape[float | None] = Shape(schema={"type": ["number", "null"]}, write=_round, name="number")
_HOURS: Shape[float] = Shape(schema={"type": "number", "minimum": 0}, write=_round)
_AMOUNTS = by_name(_AMOUNT, name="amounts", text="Numbers by resource.")


def _sorted(amounts: Amounts) -> Mapping[str, float | None]:
    return {resource: amounts[resource] for resource in sorted(amounts)}


_HELD: Shape[ShareHours] = record(
    "",
    Member("shareHours", _AMOUNT, lambda one: one.hours),
    Member("gpuHours", _AMOUNT, lambda one: one.gpus),
    Member("cost", _AMOUNT),
)
_USE: Shape[Use] = record(
    "use",
    Member("namespace", TEXT),
    Member("pool", optional(TEXT), text="null for shares on nodes whose runtime was not scraped, or that belong to no pool."),
    Member(
        "shares",
        by_name(_HELD),
        lambda use: {one.resource: one for one in use.held},
        "By resource: what running pods requested, used or not.",
    ),
    Member("gpuHours", _AMOUNT, lambda use: use.gpus, "Of all its shares; null if the intent does not have the pool."),
    Member("gibHours", _AMOUNT, lambda use: use.memory, "GPU memory that its containers used."),
    Member("cost", _AMOUNT, text="gpuHours times the price; null without a price."),
)
_POOL: Shape[PoolUsage] = record(
    "pool",
    Member(
        "card",
        optional(TEXT),
        lambda pool: pool.facts.card if pool.facts else None,
        "null if the intent does not have the pool.",
    ),
    Member(
        "pricePerGpuHour", optional(NUMBER), lambda pool: pool.facts.price.per_hour if pool.facts and pool.facts.price else None
    ),
    Member("offeredShareHours", _AMOUNTS, lambda pool: _sorted(pool.offered)),
    Member("heldShareHours", _AMOUNTS, lambda pool: _sorted(pool.held)),
)
_GAP: Shape[tuple[MetricGaps, Gap]] = record(
    "gap",
    Member(
        "metric",
        words([showback.NODES, showback.RUNTIMES, showback.SHARES]),
        lambda one: one[0].metric,
        "Whose samples are missing: those of kube-state-metrics, of a pool's runtimes, or of the shares that it offered.",
    ),
    Member("pool", optional(TEXT), lambda one: one[0].pool, "null: all nodes."),
    Member("from", _TIME, lambda one: one[1].start),
    Member("to", _TIME, lambda one: one[1].end),
    Member("missingHours", _HOURS, lambda one: one[1].missing, "In steps of five minutes."),
)
DOCUMENT: Document[_Named] = Document(
    name="usage",
    kind="Usage",
    text="What namespaces held and used of the pools in a period: `gpushare usage --format json`. "
    "Hours in `gaps` are not counted; null: not known.",
    members=(
        Member("cluster", TEXT, lambda one: one.name, "metadata.name of the intent."),
        Member("from", _TIME, lambda one: one.found.start),
        Member("to", _TIME, lambda one: one.found.end, "The end, which does not belong to the period."),
        Member("hours", POSITIVE, lambda one: one.found.hours),
        Member("currency", optional(TEXT), lambda one: "".join(_prices(one.found)), "Of the prices; null if they name none."),
        Member("uses", array(_USE), lambda one: one.found.uses),
        Member("pools", by_name(_POOL), lambda one: {pool.name: pool for pool in one.found.pools}),
        Member(
            "gaps",
            array(_GAP),
            lambda one: [(source, gap) for source in one.found.sources for gap in source.gaps],
            "Hours in which samples are missing; consecutive hours are one entry.",
        ),
        Member(
            "warnings",
            array(TEXT),
            lambda one: one.found.warnings,
            "What Prometheus said of its answers, such as that one is partial.",
        ),
    ),
)
