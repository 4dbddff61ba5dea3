"""`gpushare advise`: what to change in each pool, what that brings, whom the back-test ended, and what is not known."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

from gpushare.core import prices
from gpushare.core.units import MIB
from gpushare.core.wording import gib, join_first, join_words, layout_text, pluralize
from gpushare.intent.types import Pool
from gpushare.offering import modes
from gpushare.report import curves, pool_facts
from gpushare.report.document import (
    COUNT,
    FLAG,
    INTEGER,
    OBJECT,
    ROUNDED,
    TEXT,
    Document,
    Member,
    Shape,
    array,
    by_name,
    fields,
    optional,
    record,
    words,
)
from gpushare.report.model import Cards, Column, Drawing, Form, Format, Lines, PoolCard, Report, ReportPart, Section, Table
from gpushare.report.usage import moment
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.study.advice import distribution
from gpushare.study.advice.advised import Advice, AdvisedSharing, BackTest, Distribution, Ending, Estimate, PoolAdvice, Refusal
from gpushare.study.advice.distribution import CurvePoint
from gpushare.study.advice.history import History
from gpushare_node.contract.struct import Struct, replace

_NAMED = 10
"""Containers that the present cap would have ended; those that the advice would end are all named."""
_MAX_ENDINGS, _MAX_NAMESPACES = 50, 100
"""Rows of each table of a pool on the page."""
_INTERVALS, _MIN_INTERVALS, _ALL_INTERVALS = 240, 24, 20_000
"""Of the curves of a pool, and of all pools of a page together."""
_KINDS = (("most", "the most"), ("p95", "p95"), ("p50", "median"))
"""The curves from the back to the front."""


class Found(Struct):
    """What is advised for the pools of a plan, and from what. `diff` is the patch of the intent, None: it cannot be patched."""

    advice: Advice
    history: History
    plan: Plan
    diff: str | None = ""
    is_written: bool = False


def report(found: Found) -> Report:
    """Return the report."""
    advice, history, name = found.advice, found.history, found.plan.intent.name
    (start, middle), (_, end) = advice.learned, advice.tested
    head = f"  learned from {moment(start)} to {moment(middle)}, tested until {moment(end)}; {history.source}"
    plans = {pool.name: pool for pool in found.plan.pools}
    inside = (one for one in history.containers if one.points[-1][0] >= history.start)
    return Report(
        title=f"{name}: advice",
        verdict=verdict(advice),
        facts=(
            {
                "Learned": f"{moment(start)} to {moment(middle)}",
                "Tested": f"{moment(middle)} to {moment(end)}",
                "Containers": str(len({(one.namespace, one.pod, one.container) for one in inside})),
                "Source": history.source,
            },
        ),
        as_of="As of {}. Intervals, in parentheses, have a confidence of 95 %.",
        sections=(
            Section(where=Format.TEXT, parts=(Lines(lead=name, lines=[head]), Lines(lines=[verdict(advice)], indent=0))),
            *(section for one in advice.pools for section in _text(one, plans[one.pool], advice.currency)),
            _cards(found, plans),
            Section(id="history", title="The history", parts=(Lines(lines=list(_limits(advice, history)), indent=0),)),
            Section(
                id="diff", title="Change of the intent", parts=(Lines(lines=(found.diff or "").splitlines(), form=Form.CODE),)
            ),
        ),
        footer=". Memory is in GiB of 2³⁰ bytes. A use is the most of a container on one device.",
        document=partial(DOCUMENT.write, found),
    )


def _sharing(pool: Pool) -> str:
    """Return how a pool shares: `mig {1g.5gb: 7} ×2`."""
    traits = modes.of(pool)
    layout = layout_text(traits.written[1]) if traits.written[1] else ""
    replicas = pool.sharing.replicas
    pairs = ", ".join(f"{name} ×{number}" for name, number in replicas) if isinstance(replicas, tuple) else f"×{replicas}"
    return " ".join(filter(None, (pool.mode.value, layout, pairs if replicas else "")))


def _size(size_bytes: float) -> str:
    """Return a number of bytes in GiB."""
    return gib(size_bytes / MIB)


def _rate(estimate: Estimate) -> str:
    """Return endings for each container and week with their interval."""
    if math.isinf(estimate.high):
        return "not known"
    return f"{_figure(estimate.value)} ({_figure(estimate.low)} to {_figure(estimate.high)})"


def _figure(number: float) -> str:
    return f"{number:.2g}" if number < 100 else f"{number:.0f}"


def _money(per_hour: float, currency: str) -> str:
    """Return an amount of money in an hour; the currency may not be named."""
    return f"{prices.amount(per_hour, currency)}/h"


def verdict(advice: Advice) -> str:
    """Return what is advised in one or two sentences."""
    changes = [one.change for one in advice.pools if one.change is not None]
    refused = sum(one.refusal is not None for one in advice.pools)
    of_pools = f"of {pluralize(len(advice.pools), 'pool')}"
    if not changes:
        if refused == len(advice.pools):
            return "Nothing is advised: the history says too little about every pool."
        return "No pool should change." + _too_little(refused)
    text = f"{len(changes)} {of_pools} should change: {_gains(advice)}."
    tried = sum(one.back_test.containers for one in changes)
    ended = sum(len(one.back_test.endings) for one in changes)
    text += f" On the rest of the history, {ended} of {pluralize(tried, 'container')} would have been ended."
    return text + _too_little(refused)


def _too_little(refused: int) -> str:
    return f" The history says too little about {pluralize(refused, 'pool')}." if refused else ""


def _gains(advice: Advice) -> str:
    changes = [one.change for one in advice.pools if one.change is not None]
    shares = sum(one.shares_after - one.shares_before for one in changes)
    gpus = sum(one.gpus_before - one.gpus_after for one in changes)
    saved = [one.saved_per_hour for one in changes if one.saved_per_hour is not None]
    parts = (
        _difference(shares, "share", "per node"),
        _difference(-gpus, "GPU", "at the peak"),
        f"{_money(abs(sum(saved)), advice.currency)} {'saved' if sum(saved) >= 0 else 'more'}" if any(saved) else "",
    )
    return ", ".join(filter(None, parts)) or "other caps, with as many shares"


def _difference(number: int, noun: str, where: str) -> str:
    return f"{pluralize(abs(number), f'more {noun}' if number > 0 else f'fewer {noun}')} {where}" if number else ""


def _limits(advice: Advice, history: History) -> Iterator[str]:
    """Yield what holds for all pools: what was assumed, left out, and what the source warns of."""
    if any(one.distributions for one in advice.pools):
        yield "Numbers in parentheses are intervals of 95 %. Use of a container is the most that it used in the learned part."
    yield from (f"Assumed: {text}." for text in advice.assumed)
    yield from (f"Left out: {text}." for text in history.left_out)
    yield from (f"Warning: {text}" for text in history.warnings)


def _text(one: PoolAdvice, plan: PoolPlan, currency: str) -> Iterator[Section]:
    """Yield the advice for a pool in words, and the use that it rests on."""
    said = (
        Lines(lead=one.pool, lines=[f"  {_outcome(one, plan.pool)}"]),
        Lines(lines=list(_facts(one, currency)), form=Form.LIST, indent=4),
    )
    use = _use(one)
    if use.rows:
        yield Section(where=Format.TEXT, parts=said)
        yield Section(where=Format.TEXT, parts=(use, _notes(one)))
    else:
        yield Section(where=Format.TEXT, parts=(*said, _notes(one)))


def _outcome(one: PoolAdvice, present: Pool) -> str:
    if one.refusal is not None:
        return f"no advice: {one.refusal.value}"
    now = _sharing(present)
    if one.change is None:
        return f"no change: {now}"
    return f"{_sharing(replace(present, sharing=one.change.sharing))} in place of {now}"


def _facts(one: PoolAdvice, currency: str) -> Iterator[str]:
    """Yield a line each: shares, memory and money, the back-test, and that of the present cap."""
    if one.change is not None:
        change = one.change
        cap = "without caps" if change.cap_bytes is None else f"each under a cap of {_size(change.cap_bytes)}"
        yield f"shares: {change.shares_after} per node in place of {change.shares_before}, {cap}"
        saved = f"GPUs for the peak of the learned part: {change.gpus_after} in place of {change.gpus_before}"
        if change.freed_mib is not None:
            saved += f"; memory saved: {gib(change.freed_mib)}"
        if change.saved_per_hour is not None:
            saved += f"; money saved: {_money(change.saved_per_hour, currency)}"
        yield saved
        yield f"back-test: {_tested(change.back_test, len(change.back_test.endings))}"
    if one.present is not None:
        yield f"back-test of the present cap: {_tested(one.present, _NAMED)}"


def _tested(test: BackTest, limit: int) -> str:
    names = [f"{one.namespace}/{one.pod} ({one.container}, {moment(one.at)}, {_size(one.used_bytes)})" for one in test.endings]
    ended = f"{pluralize(len(names), 'container')} ended: {join_first(names, limit)}" if names else "none ended"
    return f"of {pluralize(test.containers, 'container')} {ended}; endings for each container and week: {_rate(test.rate)}"


def _estimated(value: Estimate) -> str:
    return f"{_in_gib(value.value)} ({_in_gib(value.low)}-{_in_gib(value.high)})"


def _in_gib(number: float) -> str:
    return "?" if math.isinf(number) else f"{number / MIB / 1024:.2f}"


USE: tuple[Column[Distribution], ...] = (
    Column(header="NAMESPACE", value=lambda one: one.namespace),
    Column(header="CONTAINERS", value=lambda one: str(one.containers), is_number=True),
    Column(header="MEDIAN GIB", page_header="Median GiB", value=lambda one: _estimated(one.p50), is_number=True),
    Column(header="P95 GIB", page_header="p95 GiB", value=lambda one: _estimated(one.p95), is_number=True),
    Column(header="P99 GIB", page_header="p99 GiB", value=lambda one: _estimated(one.p99), is_number=True),
    Column(header="MOST GIB", page_header="Most GiB", value=lambda one: _in_gib(one.most), is_number=True),
    Column(header="NEAR CAP", value=lambda one: str(one.near_cap), is_number=True),
)
ENDINGS: tuple[Column[tuple[str, Ending]], ...] = (
    Column(header="CONTAINER", value=lambda row: f"{row[1].namespace}/{row[1].pod}/{row[1].container}", is_code=True),
    Column(header="WITH THE CAP", value=lambda row: row[0]),
    Column(header="AT", value=lambda row: moment(row[1].at)),
    Column(header="USED", value=lambda row: _size(row[1].used_bytes), is_number=True),
)


def _use(one: PoolAdvice) -> Table[Distribution]:
    return Table(
        title=f"Use by namespace of {one.pool}", columns=USE, rows=one.distributions, most_on_page=_MAX_NAMESPACES, indent=2
    )


def _notes(one: PoolAdvice) -> Lines:
    """Return what the history cannot tell."""
    return Lines(lines=[f"Note: {note}." for note in one.notes], form=Form.LIST, indent=4)


def _cards(found: Found, plans: dict[str, PoolPlan]) -> Section:
    """Return the pools of the page: before and after, use over time against caps, and who would be hit."""
    pools = found.advice.pools
    intervals = max(min(_INTERVALS, _ALL_INTERVALS // max(len(pools), 1)), _MIN_INTERVALS)
    cards = [_card(one, plans[one.pool], found, intervals) for one in pools]
    shown = Cards(
        cards=cards,
        search="name, card, mode or namespace",
        legend=pool_facts.legend(mode for card in cards for mode in card.modes),
    )
    return Section(id="pools", title="Pools", where=Format.PAGE, parts=(shown,))


def _card(one: PoolAdvice, plan: PoolPlan, found: Found, intervals: int) -> PoolCard:
    namespaces = [each.namespace for each in one.distributions]
    endings = [
        *(("advised", ending) for ending in (one.change.back_test.endings if one.change else ())),
        *(("now", ending) for ending in (one.present.endings if one.present else ())),
    ]
    return PoolCard(
        id=f"pool-{one.pool}",
        name=one.pool,
        tag="change" if one.change else "not advised" if one.refusal else "best as it is",
        modes=(pool_facts.mode(plan.mode.value, is_divided=any(device.replicas > 1 for device in plan.samples)),),
        aside=plan.card.name,
        text=" ".join((one.pool, plan.card.id, plan.mode.value, *namespaces)).lower(),
        parts=(
            Lines(lines=[f"Nothing is advised: {one.refusal.value}."] if one.refusal else [], form=Form.NOTE),
            _change(one, plan, found.advice),
            *_curve(one, plan, found, intervals),
            _use(one),
            Table(title=f"Who would have been ended in {one.pool}", columns=ENDINGS, rows=endings, most_on_page=_MAX_ENDINGS),
            _notes(one),
        ),
    )


def _change(one: PoolAdvice, plan: PoolPlan, advice: Advice) -> ReportPart:
    """Return the figures of a pool as they are, and as they are advised."""
    caps = join_words(map(_size, _present_caps(plan))) if _present_caps(plan) else "none"
    present, change = one.present, one.change
    rows = [
        ["Sharing", _sharing(plan.pool)],
        ["Cap of a share", caps],
        ["Shares of a node", str(sum(resource.per_node for resource in plan.resources))],
        ["Ended on the rest", _ended(present)],
        ["Endings for each container and week", _rate(present.rate) if present else ""],
    ]
    if change is None:
        rows = [row for row in rows if row[1]]
    else:
        after = (
            _sharing(replace(plan.pool, sharing=change.sharing)),
            "none" if change.cap_bytes is None else _size(change.cap_bytes),
            str(change.shares_after),
            _ended(change.back_test),
            _rate(change.back_test.rate),
        )
        rows = [[*row, then] for row, then in zip(rows, after, strict=True)]
        rows[3:3] = [["GPUs for the peak that was learned", str(change.gpus_before), str(change.gpus_after)]]
        if change.freed_mib is not None:
            rows.append(["Memory saved", "", gib(change.freed_mib)])
        if change.saved_per_hour is not None:
            rows.append(["Money saved", "", _money(change.saved_per_hour, advice.currency)])
    headers = ("Figure", "Now", "Advised") if change else ("Figure", "Now")
    columns = [Column(header=header, value=partial(_cell, at)) for at, header in enumerate(headers)]
    return Table(title=f"Before and after of {one.pool}", columns=columns, rows=rows, is_fixed=True)


def _cell(at: int, row: Sequence[str]) -> str:
    return row[at]


def _ended(found: BackTest | None) -> str:
    return "" if found is None else f"{len(found.endings)} of {pluralize(found.containers, 'container')}"


def _present_caps(plan: PoolPlan) -> list[int]:
    return sorted({device.cap_mib * MIB for device in plan.devices if device.cap_mib is not None})


def _curve(one: PoolAdvice, plan: PoolPlan, found: Found, intervals: int) -> Iterator[Drawing]:
    """Yield the drawing of a pool's use, if anything was measured."""
    advice, history = found.advice, found.history
    points = distribution.curve(history, one.pool, intervals)
    measured = [point for point in points if point is not None]
    if not measured:
        return
    caps, then = _present_caps(plan), one.change.cap_bytes if one.change else None
    now = caps or sorted({device.memory_mib * MIB for device in plan.devices if device.memory_mib is not None})
    most, median = max(point.most for point in measured), max(point.p50 for point in measured)
    scale = curves.Scale(end=history.end - history.start, most=max(most, then or 0, *now, 1))
    legend = [(f"k-{kind}", said) for kind, said in _KINDS]
    paths = [(f"under k-{kind}", curves.known_area(_steps(points, kind, history), scale)) for kind, _ in _KINDS]
    if now:
        legend.append(("k-now", f"{'cap now' if caps else 'memory of a device'}: {join_words(map(_size, now))}"))
        paths += [("limit k-now", curves.level(cap, scale)) for cap in now]
    if then is not None:
        legend.append(("k-new", f"cap advised: {_size(then)}"))
        paths.append(("limit k-new", curves.level(then, scale)))
    title = f"Use of containers over time: median up to {_size(median)}, the most {_size(most)}"
    split = advice.tested[0] - history.start
    if 0 < split < scale.end:
        title += "; left of the dotted line learned, right of it tested"
        paths.append(("limit k-split", f"M{scale.x(split)} 0V{curves.HEIGHT}"))
    ends = (moment(history.start), moment(history.end))
    yield Drawing(title=title, legend=legend, top=_size(scale.most), paths=paths, ticks=ends)


def _steps(points: Sequence[CurvePoint | None], kind: str, history: History) -> list[tuple[int, float | None]]:
    span, number = history.end - history.start, len(points)
    return [(span * at // number, None if point is None else getattr(point, kind)) for at, point in enumerate(points)]


_TIME: Shape[int] = Shape(
    schema={"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z$(?!\\n)"}, write=moment, name="time"
)
_PERIOD: Shape[tuple[int, int]] = record(
    "period",
    Member("from", _TIME, lambda times: times[0]),
    Member("to", _TIME, lambda times: times[1], "The end, which does not belong to the period."),
)
_ESTIMATE: Shape[Estimate] = record(
    "estimate",
    Member("value", ROUNDED),
    Member("low", ROUNDED),
    Member("high", optional(ROUNDED), lambda one: None if math.isinf(one.high) else one.high),
    text="A number with the interval in which it lies with a confidence of 95 %; high is null if nothing bounds it.",
)
_ENDING: Shape[Ending] = record(
    "",
    *fields(Ending, "namespace", "pod", "container"),
    Member("at", _TIME, text="When it would first have been sent a signal, or its pod evicted."),
    Member("usedBytes", COUNT),
)
_TEST: Shape[BackTest] = record(
    "test",
    Member("containers", COUNT),
    Member("endings", array(_ENDING)),
    Member("endingsPerContainerWeek", _ESTIMATE, lambda one: one.rate),
    text="Whom the node runtime's guard would have ended in the tested part.",
)
_BOTH: Shape[tuple[int, int]] = record(
    "both", Member("before", COUNT, lambda both: both[0]), Member("after", COUNT, lambda both: both[1])
)
_CHANGE: Shape[AdvisedSharing] = record(
    "change",
    Member("fields", OBJECT, text="The fields of the pool that change, with their whole new values."),
    Member(
        "capMiB",
        optional(INTEGER),
        lambda one: None if one.cap_bytes is None else one.cap_bytes // MIB,
        "null: no device is shared.",
    ),
    Member("sharesPerNode", _BOTH, lambda one: (one.shares_before, one.shares_after)),
    Member(
        "gpus",
        _BOTH,
        lambda one: (one.gpus_before, one.gpus_after),
        "That the most shares held at once in the learned part need.",
    ),
    Member(
        "savedMiB",
        optional(INTEGER),
        lambda one: one.freed_mib,
        "The memory of the GPUs saved; negative if more are needed; null if the card's is not known.",
    ),
    Member("savedPerHour", optional(ROUNDED), text="null without a price."),
    Member("backTest", _TEST),
)
_DISTRIBUTION: Shape[Distribution] = record(
    "distribution",
    Member("containers", COUNT),
    Member("p50Bytes", _ESTIMATE, lambda one: one.p50),
    Member("p95Bytes", _ESTIMATE, lambda one: one.p95),
    Member("p99Bytes", _ESTIMATE, lambda one: one.p99),
    Member("mostBytes", COUNT, lambda one: one.most),
    Member(
        "nearCap", COUNT, text="Containers that used at least 95 % of their cap: what they would use without it is not known."
    ),
)
_REFUSAL: Shape[Refusal] = record(
    "",
    Member("reason", words(one.name.lower() for one in Refusal), lambda one: one.name.lower()),
    Member("message", TEXT, lambda one: one.value),
)
_POOL: Shape[PoolAdvice] = record(
    "pool",
    Member(
        "refusal",
        optional(_REFUSAL),
        text="Why nothing is advised; null if the use was compared with the ways to share the card.",
    ),
    Member("change", optional(_CHANGE), text="null: none is advised."),
    Member("present", optional(_TEST), text="The back-test of the present cap; null without one."),
    Member(
        "namespaces",
        by_name(_DISTRIBUTION),
        lambda one: {each.namespace: each for each in one.distributions},
        "The memory that containers used in the learned part, by namespace.",
    ),
    Member("notes", array(TEXT), text="What the history cannot tell, and how the change was chosen."),
)
DOCUMENT: Document[Found] = Document(
    name="advice",
    kind="Advice",
    text="What measured use advises to change in an intent, and its back-test: `gpushare advise --format json`.",
    members=(
        Member("cluster", TEXT, lambda found: found.plan.intent.name, "metadata.name of the intent."),
        Member("source", TEXT, lambda found: found.history.source, "Where the measured use is from."),
        Member("stepSeconds", COUNT, lambda found: found.history.step_seconds, "The distance of two samples."),
        Member(
            "learned", _PERIOD, lambda found: found.advice.learned, "The part of the history that the changes were chosen by."
        ),
        Member("tested", _PERIOD, lambda found: found.advice.tested, "The part that they were tested on."),
        Member("currency", optional(TEXT), lambda found: found.advice.currency, "Of the prices; null if they name none."),
        Member("pools", by_name(_POOL), lambda found: {one.pool: one for one in found.advice.pools}),
        Member(
            "diff",
            Shape(schema={"type": ["string", "null"]}, write=lambda diff: diff),
            text="The unified diff of the intent, empty without changes; null if the file cannot be patched alone.",
        ),
        Member("written", FLAG, lambda found: found.is_written, "Whether the intent was patched."),
        Member("assumed", array(TEXT), lambda found: found.advice.assumed, "What the source does not say."),
        Member("leftOut", array(TEXT), lambda found: found.history.left_out, "What the source has and was not used, and why."),
        Member("warnings", array(TEXT), lambda found: found.history.warnings, "What the source says of its completeness."),
    ),
)
