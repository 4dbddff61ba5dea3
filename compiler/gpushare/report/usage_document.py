"""The `Usage` document (schemas/usage.v1.json), and the same as CSV. Pure."""

import csv
import io
from typing import Any

from gpushare.live.usage_report import Amounts, Held, PoolFacts, PoolUsage, UsageReport
from gpushare.report.usage_view import moment, prices

_COLUMNS = ("from", "to", "namespace", "pool", "resource", "share_hours", "gpu_hours", "gib_hours", "cost", "currency")
_DIGITS = 6


def document(report: UsageReport, name: str) -> dict[str, Any]:
    """Return the document. `name` is the cluster's."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Usage",
        "cluster": name,
        "from": moment(report.start),
        "to": moment(report.end),
        "hours": report.hours,
        "currency": "".join(prices(report)) or None,
        "uses": [
            {
                "namespace": use.namespace,
                "pool": use.pool or None,
                "shares": {one.resource: _held(one) for one in use.held},
                "gpuHours": _round(use.gpus),
                "gibHours": _round(use.memory),
                "cost": _round(use.cost),
            }
            for use in report.uses
        ],
        "pools": {pool.name: _pool(pool) for pool in report.pools},
        "gaps": [
            {
                "metric": source.metric,
                "pool": source.pool or None,
                "from": moment(gap.start),
                "to": moment(gap.end),
                "missingHours": _round(gap.missing),
            }
            for source in report.sources
            for gap in source.gaps
        ],
        "warnings": list(report.warnings),
    }


def csv_text(report: UsageReport) -> str:
    """Return a row for each resource that a namespace held of a pool, and one without a resource for the memory it used."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    period, currency = (moment(report.start), moment(report.end)), "".join(prices(report))
    for use in report.uses:
        for one in use.held:
            numbers = (_round(one.hours), _round(one.gpus), None, _round(one.cost))
            writer.writerow((*period, use.namespace, use.pool, one.resource, *numbers, currency))
        if use.memory is not None:
            writer.writerow((*period, use.namespace, use.pool, "", None, None, _round(use.memory), None, currency))
    return text.getvalue()


def _held(one: Held) -> dict[str, float | None]:
    return {"shareHours": _round(one.hours), "gpuHours": _round(one.gpus), "cost": _round(one.cost)}


def _pool(pool: PoolUsage) -> dict[str, Any]:
    facts: PoolFacts | None = pool.facts
    return {
        "card": facts.card if facts else None,
        "pricePerGpuHour": facts.price.per_hour if facts and facts.price else None,
        "offeredShareHours": _amounts(pool.offered),
        "heldShareHours": _amounts(pool.held),
    }


def _amounts(amounts: Amounts) -> dict[str, float | None]:
    return {resource: _round(amounts[resource]) for resource in sorted(amounts)}


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)
