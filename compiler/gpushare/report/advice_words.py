"""Words for advice that its text and its page share: numbers with their intervals, ways of sharing, and the verdict."""

import math

from gpushare import modes
from gpushare.advice.advised import Advice, Estimate
from gpushare.core import prices
from gpushare.core.units import MIB
from gpushare.core.wording import gib, layout_text, pluralize
from gpushare.intent.types import Pool


def sharing(pool: Pool) -> str:
    """Return how a pool shares: `mig {1g.5gb: 7} ×2`."""
    traits = modes.of(pool)
    layout = layout_text(traits.written[1]) if traits.written[1] else ""
    replicas = pool.sharing.replicas
    pairs = ", ".join(f"{name} ×{number}" for name, number in replicas) if isinstance(replicas, tuple) else f"×{replicas}"
    return " ".join(filter(None, (pool.mode.value, layout, pairs if replicas else "")))


def size(size_bytes: float | None, absent: str = "-") -> str:
    """Return a number of bytes in GiB."""
    return absent if size_bytes is None else gib(size_bytes / MIB)


def estimated_size(estimate: Estimate) -> str:
    """Return a size in GiB with its interval, as far as the history bounds it."""
    if math.isinf(estimate.high):
        return f"{size(estimate.value)} ({f'≥ {size(estimate.low)}' if estimate.low else 'no bounds'})"
    return f"{size(estimate.value)} ({size(estimate.low)} to {size(estimate.high)})"


def estimated_rate(estimate: Estimate) -> str:
    """Return endings for each container and week with their interval."""
    if math.isinf(estimate.high):
        return "not known"
    return f"{_figure(estimate.value)} ({_figure(estimate.low)} to {_figure(estimate.high)})"


def _figure(number: float) -> str:
    return f"{number:.2g}" if number < 100 else f"{number:.0f}"


def money(per_hour: float, currency: str) -> str:
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
        f"{money(abs(sum(saved)), advice.currency)} {'saved' if sum(saved) >= 0 else 'more'}" if any(saved) else "",
    )
    return ", ".join(filter(None, parts)) or "other caps, with as many shares"


def _difference(number: int, noun: str, where: str) -> str:
    return f"{pluralize(abs(number), f'more {noun}' if number > 0 else f'fewer {noun}')} {where}" if number else ""
