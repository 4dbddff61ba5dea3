"""Advice for people: for each pool what to change, what that brings, whom the back-test ended, and what is not known."""

import math
from collections.abc import Iterator

from gpushare import modes
from gpushare.advice.advised import Advice, BackTest, Change, Distribution, Estimate, PoolAdvice
from gpushare.advice.history import History
from gpushare.core.record import replace
from gpushare.core.units import MIB
from gpushare.core.wording import gib, join_first, layout_text, pluralize
from gpushare.intent.types import Pool
from gpushare.resolved.plan import Plan
from gpushare.views.terminal import BOLD, Style, table, wrapped
from gpushare.views.usage_view import moment

_NAMED = 10


def render(advice: Advice, plan: Plan, history: History, style: Style) -> str:
    """Return the advice for each pool, the use that it rests on, and what is not in the history."""
    (start, middle), (_, end) = advice.learned, advice.tested
    head = f"learned from {moment(start)} to {moment(middle)}, tested until {moment(end)} (UTC); {history.source}"
    shown = style.paint(plan.intent.name, BOLD) + "  " + head + "\n"
    pools = {pool.name: pool.pool for pool in plan.pools}
    for one in advice.pools:
        shown += "\n" + style.paint(one.pool, BOLD) + f"  {outcome(one, pools[one.pool])}\n"
        shown += "".join(wrapped(f"  {line}", style, indent=4) for line in facts(one, advice.currency))
        if one.distributions:
            shown += "\n" + _use(one.distributions, style)
        shown += "".join(wrapped(f"  Note: {note}.", style, indent=4) for note in one.notes)
    lines = list(notes(advice, history))
    return shown + ("\n" + "".join(wrapped(line, style) for line in lines) if lines else "")


def outcome(one: PoolAdvice, pool: Pool) -> str:
    """Return in one line what is advised: `time-slicing ×4 in place of time-slicing ×3`, or why nothing is."""
    if one.refusal is not None:
        return f"no advice: {one.refusal.value}"
    if one.change is None:
        return f"no change: {words(pool)}"
    return f"{words(replace(pool, sharing=one.change.sharing))} in place of {words(pool)}"


def words(pool: Pool) -> str:
    """Return how a pool shares: `mig {1g.5gb: 7} ×2`."""
    traits = modes.of(pool)
    layout = layout_text(traits.written[1]) if traits.written[1] else ""
    replicas = pool.sharing.replicas
    pairs = ", ".join(f"{name} ×{number}" for name, number in replicas) if isinstance(replicas, tuple) else f"×{replicas}"
    return " ".join(filter(None, (pool.mode.value, layout, pairs if replicas else "")))


def facts(one: PoolAdvice, currency: str) -> Iterator[str]:
    """Yield a line each: shares, memory and money, the back-test, and that of the present cap."""
    if one.change is not None:
        yield from _gains(one.change, currency)
        yield f"back-test: {tested(one.change.back_test)}"
    if one.present is not None:
        yield f"back-test of the present cap: {tested(one.present)}"


def _gains(change: Change, currency: str) -> Iterator[str]:
    cap = f", each under a cap of {gib(change.cap_bytes / MIB)}" if change.cap_bytes is not None else ", without caps"
    yield f"shares: {change.shares_after} per node in place of {change.shares_before}{cap}"
    saved = f"GPUs for the peak of the learned part: {change.gpus_after} in place of {change.gpus_before}"
    if change.freed_mib is not None:
        saved += f"; memory saved: {gib(change.freed_mib)}"
    if change.saved_per_hour is not None:
        saved += f"; money saved: {' '.join(filter(None, (f'{change.saved_per_hour:.2f}', currency)))}/h"
    yield saved


def tested(test: BackTest) -> str:
    """Return what a back-test found, with the containers that it ended."""
    names = [
        f"{one.namespace}/{one.pod} ({one.container}, {moment(one.at)}, {gib(one.used_bytes / MIB)})" for one in test.endings
    ]
    ended = f"{pluralize(len(names), 'container')} ended: {join_first(names, _NAMED)}" if names else "none ended"
    return f"of {pluralize(test.containers, 'container')} {ended}; {estimate(test.rate)} endings for each container and week"


def estimate(found: Estimate) -> str:
    """Return a number with its interval."""
    high = "unknown" if math.isinf(found.high) else f"{found.high:.3g}"
    return f"{found.value:.3g} ({found.low:.3g} to {high})"


def _use(distributions: tuple[Distribution, ...], style: Style) -> str:
    headers = ("NAMESPACE", "CONTAINERS", "MEDIAN GIB", "P95 GIB", "P99 GIB", "MOST GIB", "NEAR CAP")
    rows = [
        (
            one.namespace,
            str(one.containers),
            *(_sizes(each) for each in (one.p50, one.p95, one.p99)),
            f"{one.most / MIB / 1024:.2f}",
            str(one.near_cap),
        )
        for one in distributions
    ]
    return table(headers, rows, style, numbers=headers[1:], indent=2)


def _sizes(found: Estimate) -> str:
    value, low, high = (f"{number / MIB / 1024:.2f}" for number in (found.value, found.low, found.high))
    return f"{value} ({low}-{'?' if math.isinf(found.high) else high})"


def notes(advice: Advice, history: History) -> Iterator[str]:
    """Yield what holds for all pools: what was assumed, left out, and what the source warns of."""
    if any(one.distributions for one in advice.pools):
        yield "Numbers in parentheses are intervals of 95 %. Use of a container is the most that it used in the learned part."
    yield from (f"Assumed: {text}." for text in advice.assumed)
    yield from (f"Left out: {text}." for text in history.left_out)
    yield from (f"Warning: {text}" for text in history.warnings)
