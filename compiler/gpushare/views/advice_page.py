"""Advice as one HTML page that needs no network: before and after, use over time against caps, and who would be hit."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from gpushare.advice import curve
from gpushare.advice.advised import Advice, BackTest, Distribution, Ending, PoolAdvice
from gpushare.advice.curve import CurvePoint
from gpushare.advice.history import History
from gpushare.core.printable import visible
from gpushare.core.units import MIB
from gpushare.core.wording import join_words, pluralize
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.views import advice_words, html_page
from gpushare.views.html_table import Table, table

_MAX_ENDINGS, _MAX_NAMESPACES = 50, 100
"""Rows of each table of a pool."""
_INTERVALS, _MIN_INTERVALS, _ALL_INTERVALS = 240, 24, 20_000
"""Of the curves of a pool, and of all pools of a page together."""
_HEIGHT = 1000
_KINDS = (("most", "the most"), ("p95", "p95"), ("p50", "median"))
"""The curves from the back to the front."""


def page(advice: Advice, history: History, plan: Plan, written: str) -> str:
    """Return the page. `plan` is that of the intent as it is, `written` the time."""
    plans = {pool.name: pool for pool in plan.pools}
    intervals = max(min(_INTERVALS, _ALL_INTERVALS // max(len(advice.pools), 1)), _MIN_INTERVALS)
    pools = [_pool(one, plans[one.pool], advice, history, intervals) for one in advice.pools]
    facts = {
        "Learned": _period(advice.learned),
        "Tested": _period(advice.tested),
        "Containers": str(len({(one.namespace, one.pod, one.container) for one in history.containers})),
        "Source": history.source,
    }
    return html_page.render(
        "advice.html.j2",
        tables=[pool[part] for pool in pools for part in ("change", "distributions", "endings")],
        name=visible(plan.intent.name),
        verdict=visible(advice_words.verdict(advice)),
        facts=[{"name": name, "value": visible(value)} for name, value in facts.items()],
        written=written,
        legend=html_page.legend(pool["mode"] for pool in pools),
        pools=pools,
        unfolded=len(pools) <= html_page.MAX_UNFOLDED,
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
    return f"{advice_words.moment(times[0])} to {advice_words.moment(times[1])} UTC"


def _pool(one: PoolAdvice, plan: PoolPlan, advice: Advice, history: History, intervals: int) -> dict[str, Any]:
    namespaces = [found.namespace for found in one.distributions]
    name = visible(one.pool)
    return {
        "name": name,
        "mode": html_page.mode(plan.mode.value, is_divided=any(device.replicas > 1 for device in plan.samples)),
        "card": visible(plan.card.name),
        "verdict": "change" if one.change else "refused" if one.refusal else "keep",
        "tag": "change" if one.change else "not advised" if one.refusal else "best as it is",
        "refusal": visible(one.refusal.value) if one.refusal else "",
        "text": visible(" ".join((one.pool, plan.card.id, plan.mode.value, *namespaces)).lower()),
        "change": _change(one, plan, advice),
        "curve": _curve(one, plan, advice, history, intervals),
        "distributions": _distributions(name, one.distributions),
        "endings": _endings(one),
        "notes": list(map(visible, one.notes)),
    }


def _change(one: PoolAdvice, plan: PoolPlan, advice: Advice) -> Table:
    caps = join_words(_sizes(_present_caps(plan))) if _present_caps(plan) else "none"
    shares = sum(resource.per_node for resource in plan.resources)
    rows = [
        ("Sharing", advice_words.sharing(plan.pool.sharing), ""),
        ("Cap of a share", caps, ""),
        ("Shares of a node", str(shares), ""),
        ("Ended on the rest", _ended(one.present), ""),
        ("Endings per container and week", advice_words.estimated_rate(one.present.rate) if one.present else "", ""),
    ]
    change = one.change
    if change is not None:
        saved = "" if change.saved_per_hour is None else advice_words.money(change.saved_per_hour, advice.currency)
        after = (
            advice_words.sharing(change.sharing),
            "none" if change.cap_bytes is None else advice_words.size(change.cap_bytes),
            str(change.shares_after),
            _ended(change.back_test),
            advice_words.estimated_rate(change.back_test.rate),
        )
        rows = [(name, now, then) for (name, now, _), then in zip(rows, after, strict=True)]
        rows[3:3] = [("GPUs for the peak that was learned", str(change.gpus_before), str(change.gpus_after))]
        rows += [("Saved", "", saved)] if saved else []
    return table(f"Before and after of {one.pool}", ("Figure", "Now", "Advised"), rows)


def _ended(found: BackTest | None) -> str:
    return "" if found is None else f"{len(found.endings)} of {pluralize(found.containers, 'container')}"


def _present_caps(plan: PoolPlan) -> list[int]:
    return sorted({device.cap_mib * MIB for device in plan.devices if device.cap_mib is not None})


def _sizes(sizes: Iterable[int]) -> list[str]:
    return list(map(advice_words.size, sizes))


def _distributions(pool: str, found: Sequence[Distribution]) -> Table:
    return table(
        f"Use by namespace of {pool}",
        ("Namespace", "Containers", "Median", "p95", "p99", "Most", "At the cap"),
        [
            (
                one.namespace,
                str(one.containers),
                *(advice_words.estimated_size(part) for part in (one.p50, one.p95, one.p99)),
                advice_words.size(one.most),
                str(one.near_cap or ""),
            )
            for one in found
        ],
        numbers=(1, 5, 6),
        most=_MAX_NAMESPACES,
    )


def _endings(one: PoolAdvice) -> Table:
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
                f"{advice_words.moment(ending.at)} UTC",
                advice_words.size(ending.used_bytes),
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
    most = max(point.most for point in measured)
    top = max(most, then or 0, *now) * 1.05 or 1.0
    scale = _HEIGHT / top
    span = history.end - history.start
    split = len(points) * (advice.tested[0] - history.start) / span
    lines = [("now", size) for size in now] + ([("new", then)] if then is not None else [])
    limit = "cap now" if caps else "memory of a device"
    words = {"now": f"{limit}: {join_words(_sizes(now))}", "new": f"cap advised: {advice_words.size(then)}"}
    return {
        "width": len(points),
        "height": _HEIGHT,
        "top": advice_words.size(top),
        "start": advice_words.moment(history.start),
        "end": f"{advice_words.moment(history.end)} UTC",
        "areas": [{"kind": kind, "path": "".join(_area(points, kind, scale))} for kind, _ in _KINDS],
        "caps": [{"kind": kind, "y": round(_HEIGHT - size * scale)} for kind, size in lines],
        "split": round(split, 2) if 0 < split < len(points) else None,
        "legend": [
            *({"kind": kind, "words": words} for kind, words in _KINDS),
            *({"kind": kind, "words": words[kind]} for kind in dict.fromkeys(kind for kind, _ in lines)),
        ],
        "label": visible(
            f"Use of GPU memory by the containers of {one.pool} over time: median up to "
            f"{advice_words.size(max(point.p50 for point in measured))}, the most {advice_words.size(most)}"
        ),
    }


def _area(points: Sequence[CurvePoint | None], kind: str, scale: float) -> Iterator[str]:
    """Yield the path of one curve: a step for each interval, and nothing where nothing was measured."""
    for is_measured, run in groupby(enumerate(points), lambda pair: pair[1] is not None):
        if not is_measured:
            continue
        listed = [(at, point) for at, point in run if point is not None]
        yield f"M{listed[0][0]} {_HEIGHT}"
        for height, same in groupby(listed, lambda pair: round(_HEIGHT - getattr(pair[1], kind) * scale)):
            yield f"V{height}H{[at for at, _ in same][-1] + 1}"
        yield f"V{_HEIGHT}Z"
