"""Advice as one HTML page that needs no network: before and after, use over time against caps, and who would be hit."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpushare.advice import curve
from gpushare.advice.advised import Advice, BackTest, Distribution, Ending, PoolAdvice
from gpushare.advice.curve import CurvePoint
from gpushare.advice.history import History
from gpushare.core.printable import visible
from gpushare.core.units import MIB
from gpushare.core.wording import gib, join_words, pluralize
from gpushare.report import advice_words, curves, html, pool_facts
from gpushare.report.advice_words import estimated_size, size
from gpushare.report.html_table import Grid, table
from gpushare.report.usage import moment
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare_node.contract.struct import replace

_MAX_ENDINGS, _MAX_NAMESPACES = 50, 100
"""Rows of each table of a pool."""
_INTERVALS, _MIN_INTERVALS, _ALL_INTERVALS = 240, 24, 20_000
"""Of the curves of a pool, and of all pools of a page together."""
_KINDS = (("most", "the most"), ("p95", "p95"), ("p50", "median"))
"""The curves from the back to the front."""


def page(advice: Advice, history: History, plan: Plan, written: str, diff: str = "") -> str:
    """Return the page. `plan` is that of the intent as it is, `written` the time, `diff` the patch of the intent."""
    plans = {pool.name: pool for pool in plan.pools}
    intervals = max(min(_INTERVALS, _ALL_INTERVALS // max(len(advice.pools), 1)), _MIN_INTERVALS)
    pools = [_pool(one, plans[one.pool], advice, history, intervals) for one in advice.pools]
    inside = (one for one in history.containers if one.points[-1][0] >= history.start)
    measured = {(one.namespace, one.pod, one.container) for one in inside}
    facts = {
        "Learned": _period(advice.learned),
        "Tested": _period(advice.tested),
        "Containers": str(len(measured)),
        "Source": history.source,
    }
    return html.render(
        "advice.html.j2",
        tables=[pool[part] for pool in pools for part in ("change", "distributions", "endings")],
        name=visible(plan.intent.name),
        verdict=visible(advice_words.verdict(advice)),
        facts=[{"name": name, "value": visible(value)} for name, value in facts.items()],
        written=written,
        diff="\n".join(map(visible, diff.splitlines())),
        legend=pool_facts.legend(pool["mode"] for pool in pools),
        pools=pools,
        unfolded=len(pools) <= html.MAX_UNFOLDED,
        limits=[
            {"title": title, "lines": list(map(visible, lines))}
            for title, lines in (
                ("Warnings of the source", history.warnings),
                ("Not used", history.left_out),
                ("Assumed", dict.fromkeys((*history.assumed, *advice.assumed))),
            )
            if lines
        ],
    )


def _period(times: tuple[int, int]) -> str:
    return f"{moment(times[0])} to {moment(times[1])}"


def _pool(one: PoolAdvice, plan: PoolPlan, advice: Advice, history: History, intervals: int) -> dict[str, Any]:
    namespaces = [found.namespace for found in one.distributions]
    name = visible(one.pool)
    return {
        "name": name,
        "mode": pool_facts.mode(plan.mode.value, is_divided=any(device.replicas > 1 for device in plan.samples)),
        "card": visible(plan.card.name),
        "tag": "change" if one.change else "not advised" if one.refusal else "best as it is",
        "refusal": visible(one.refusal.value) if one.refusal else "",
        "text": visible(" ".join((one.pool, plan.card.id, plan.mode.value, *namespaces)).lower()),
        "change": _change(one, plan, advice),
        "curve": _curve(one, plan, advice, history, intervals),
        "distributions": _distributions(name, one.distributions),
        "endings": _endings(one),
        "notes": list(map(visible, one.notes)),
    }


def _change(one: PoolAdvice, plan: PoolPlan, advice: Advice) -> Grid:
    caps = join_words(map(size, _present_caps(plan))) if _present_caps(plan) else "none"
    shares = sum(resource.per_node for resource in plan.resources)
    rows = [
        ("Sharing", advice_words.sharing(plan.pool)),
        ("Cap of a share", caps),
        ("Shares of a node", str(shares)),
        ("Ended on the rest", _ended(one.present)),
        ("Endings for each container and week", advice_words.estimated_rate(one.present.rate) if one.present else ""),
    ]
    change = one.change
    if change is None:
        return table(f"Before and after of {one.pool}", ("Figure", "Now"), [row for row in rows if row[1]])
    after = (
        advice_words.sharing(replace(plan.pool, sharing=change.sharing)),
        "none" if change.cap_bytes is None else size(change.cap_bytes),
        str(change.shares_after),
        _ended(change.back_test),
        advice_words.estimated_rate(change.back_test.rate),
    )
    both = [(*row, then) for row, then in zip(rows, after, strict=True)]
    both[3:3] = [("GPUs for the peak that was learned", str(change.gpus_before), str(change.gpus_after))]
    if change.freed_mib is not None:
        both.append(("Memory saved", "", gib(change.freed_mib)))
    if change.saved_per_hour is not None:
        both.append(("Money saved", "", advice_words.money(change.saved_per_hour, advice.currency)))
    return table(f"Before and after of {one.pool}", ("Figure", "Now", "Advised"), both)


def _ended(found: BackTest | None) -> str:
    return "" if found is None else f"{len(found.endings)} of {pluralize(found.containers, 'container')}"


def _present_caps(plan: PoolPlan) -> list[int]:
    return sorted({device.cap_mib * MIB for device in plan.devices if device.cap_mib is not None})


def _distributions(pool: str, found: Sequence[Distribution]) -> Grid:
    return table(
        f"Use by namespace of {pool}",
        ("Namespace", "Containers", "Median", "p95", "p99", "Most", "At the cap"),
        [
            (
                one.namespace,
                str(one.containers),
                *(estimated_size(part) for part in (one.p50, one.p95, one.p99)),
                size(one.most),
                str(one.near_cap or ""),
            )
            for one in found
        ],
        numbers=(1, 5, 6),
        most=_MAX_NAMESPACES,
    )


def _endings(one: PoolAdvice) -> Grid:
    found: Iterable[tuple[str, Ending]] = [
        *(("advised", ending) for ending in (one.change.back_test.endings if one.change else ())),
        *(("now", ending) for ending in (one.present.endings if one.present else ())),
    ]
    return table(
        f"Who would have been ended in {one.pool}",
        ("Container", "With the cap", "At", "Used"),
        [
            (
                f"{ending.namespace}/{ending.pod}/{ending.container}",
                which,
                moment(ending.at),
                size(ending.used_bytes),
            )
            for which, ending in found
        ],
        numbers=(3,),
        codes=(0,),
        most=_MAX_ENDINGS,
    )


def _curve(one: PoolAdvice, plan: PoolPlan, advice: Advice, history: History, intervals: int) -> dict[str, Any] | None:
    """Return the drawing of a pool's use, None if nothing was measured."""
    points = curve.of(history, one.pool, intervals)
    measured = [point for point in points if point is not None]
    if not measured:
        return None
    caps, then = _present_caps(plan), one.change.cap_bytes if one.change else None
    now = caps or sorted({device.memory_mib * MIB for device in plan.devices if device.memory_mib is not None})
    most, median = max(point.most for point in measured), max(point.p50 for point in measured)
    scale = curves.Scale(end=history.end - history.start, most=max(most, then or 0, *now, 1))
    lines = [("now", cap) for cap in now] + ([("new", then)] if then is not None else [])
    words = {
        "now": f"{'cap now' if caps else 'memory of a device'}: {join_words(map(size, now))}",
        "new": f"cap advised: {size(then)}",
    }
    split = advice.tested[0] - history.start
    return {
        "text": f"Use of containers over time: median up to {size(median)}, the most {size(most)}",
        "top": size(scale.most),
        "start": moment(history.start),
        "end": moment(history.end),
        "areas": [{"kind": kind, "path": curves.known_area(_steps(points, kind, history), scale)} for kind, _ in _KINDS],
        "caps": [{"kind": kind, "path": curves.level(cap, scale)} for kind, cap in lines],
        "split": f"M{scale.x(split)} 0V{curves.HEIGHT}" if 0 < split < scale.end else "",
        "legend": [
            *({"kind": kind, "words": words} for kind, words in _KINDS),
            *({"kind": kind, "words": words[kind]} for kind in dict.fromkeys(kind for kind, _ in lines)),
        ],
    }


def _steps(points: Sequence[CurvePoint | None], kind: str, history: History) -> list[tuple[int, float | None]]:
    span, number = history.end - history.start, len(points)
    return [(span * at // number, None if point is None else getattr(point, kind)) for at, point in enumerate(points)]
