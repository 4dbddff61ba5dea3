"""Advice for people: for each pool what to change, what that brings, whom the back-test ended, and what is not known."""

import math
from collections.abc import Iterator

from gpushare.advice.advised import Advice, BackTest, Change, Distribution, Estimate, PoolAdvice
from gpushare.advice.history import History
from gpushare.core.printable import visible
from gpushare.core.units import MIB
from gpushare.core.wording import gib, join_first, pluralize
from gpushare.intent.types import Pool
from gpushare.report import advice_words
from gpushare.report.terminal import BOLD, Style, table, wrapped
from gpushare.report.usage import moment
from gpushare.resolved.plan import Plan
from gpushare_node.contract.struct import replace

_NAMED = 10
"""Containers that the present cap would have ended; those that the advice would end are all named."""


def render(advice: Advice, plan: Plan, history: History, style: Style) -> str:
    """Return the advice for each pool, the use that it rests on, and what is not in the history."""
    (start, middle), (_, end) = advice.learned, advice.tested
    head = f"learned from {moment(start)} to {moment(middle)}, tested until {moment(end)}; {history.source}"
    shown = style.paint(plan.intent.name, BOLD) + f"  {visible(head)}\n{wrapped(advice_words.verdict(advice), style)}"
    present = {pool.name: pool.pool for pool in plan.pools}
    for one in advice.pools:
        shown += "\n" + style.paint(one.pool, BOLD) + f"  {_outcome(one, present[one.pool])}\n"
        shown += "".join(wrapped(f"  {visible(line)}", style, indent=4) for line in _facts(one, advice.currency))
        if one.distributions:
            shown += "\n" + _use(one.distributions, style)
        shown += "".join(wrapped(f"  Note: {visible(note)}.", style, indent=4) for note in one.notes)
    lines = "".join(wrapped(visible(line), style) for line in _limits(advice, history))
    return shown + (lines and f"\n{lines}")


def _outcome(one: PoolAdvice, present: Pool) -> str:
    if one.refusal is not None:
        return f"no advice: {one.refusal.value}"
    now = advice_words.sharing(present)
    if one.change is None:
        return f"no change: {now}"
    return f"{advice_words.sharing(replace(present, sharing=one.change.sharing))} in place of {now}"


def _facts(one: PoolAdvice, currency: str) -> Iterator[str]:
    """Yield a line each: shares, memory and money, the back-test, and that of the present cap."""
    if one.change is not None:
        yield from _gains(one.change, currency)
        test = one.change.back_test
        yield f"back-test: {_tested(test, len(test.endings))}"
    if one.present is not None:
        yield f"back-test of the present cap: {_tested(one.present, _NAMED)}"


def _gains(change: Change, currency: str) -> Iterator[str]:
    cap = "without caps" if change.cap_bytes is None else f"each under a cap of {advice_words.size(change.cap_bytes)}"
    yield f"shares: {change.shares_after} per node in place of {change.shares_before}, {cap}"
    saved = f"GPUs for the peak of the learned part: {change.gpus_after} in place of {change.gpus_before}"
    if change.freed_mib is not None:
        saved += f"; memory saved: {gib(change.freed_mib)}"
    if change.saved_per_hour is not None:
        saved += f"; money saved: {advice_words.money(change.saved_per_hour, currency)}"
    yield saved


def _tested(test: BackTest, limit: int) -> str:
    names = [
        f"{one.namespace}/{one.pod} ({one.container}, {moment(one.at)}, {advice_words.size(one.used_bytes)})"
        for one in test.endings
    ]
    ended = f"{pluralize(len(names), 'container')} ended: {join_first(names, limit)}" if names else "none ended"
    rate = advice_words.estimated_rate(test.rate)
    return f"of {pluralize(test.containers, 'container')} {ended}; endings for each container and week: {rate}"


def _use(distributions: tuple[Distribution, ...], style: Style) -> str:
    headers = ("NAMESPACE", "CONTAINERS", "MEDIAN GIB", "P95 GIB", "P99 GIB", "MOST GIB", "NEAR CAP")
    rows = [
        (
            one.namespace,
            str(one.containers),
            *(_sizes(each) for each in (one.p50, one.p95, one.p99)),
            _size(one.most),
            str(one.near_cap),
        )
        for one in distributions
    ]
    return table(headers, rows, style, numbers=headers[1:], indent=2)


def _sizes(found: Estimate) -> str:
    return f"{_size(found.value)} ({_size(found.low)}-{_size(found.high)})"


def _size(number: float) -> str:
    return "?" if math.isinf(number) else f"{number / MIB / 1024:.2f}"


def _limits(advice: Advice, history: History) -> Iterator[str]:
    """Yield what holds for all pools: what was assumed, left out, and what the source warns of."""
    if any(one.distributions for one in advice.pools):
        yield "Numbers in parentheses are intervals of 95 %. Use of a container is the most that it used in the learned part."
    yield from (f"Assumed: {text}." for text in advice.assumed)
    yield from (f"Left out: {text}." for text in history.left_out)
    yield from (f"Warning: {text}" for text in history.warnings)
