"""The `Advice` document (schemas/advice.v1.json). Pure."""

import math
from typing import Any

from gpushare.advice.advised import Advice, BackTest, Change, Distribution, Estimate, PoolAdvice
from gpushare.advice.history import History
from gpushare.core.units import MIB
from gpushare.report.usage import moment

_DIGITS = 6


def document(advice: Advice, name: str, history: History, diff: str | None, *, is_written: bool) -> dict[str, Any]:
    """Return the document. `name` is the cluster's, `diff` the patch of the intent, None if it cannot be patched."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Advice",
        "cluster": name,
        "source": history.source,
        "stepSeconds": history.step_seconds,
        "learned": {"from": moment(advice.learned[0]), "to": moment(advice.learned[1])},
        "tested": {"from": moment(advice.tested[0]), "to": moment(advice.tested[1])},
        "currency": advice.currency or None,
        "pools": {one.pool: _pool(one) for one in advice.pools},
        "diff": diff,
        "written": is_written,
        "assumed": list(advice.assumed),
        "leftOut": list(history.left_out),
        "warnings": list(history.warnings),
    }


def _pool(one: PoolAdvice) -> dict[str, Any]:
    return {
        "refusal": None if one.refusal is None else {"reason": one.refusal.name.lower(), "message": one.refusal.value},
        "change": None if one.change is None else _change(one.change),
        "present": None if one.present is None else _test(one.present),
        "namespaces": {each.namespace: _distribution(each) for each in one.distributions},
        "notes": list(one.notes),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "fields": {key: dict(value) for key, value in change.fields.items()},
        "capMiB": None if change.cap_bytes is None else change.cap_bytes // MIB,
        "sharesPerNode": {"before": change.shares_before, "after": change.shares_after},
        "gpus": {"before": change.gpus_before, "after": change.gpus_after},
        "savedMiB": change.freed_mib,
        "savedPerHour": None if change.saved_per_hour is None else round(change.saved_per_hour, _DIGITS),
        "backTest": _test(change.back_test),
    }


def _test(test: BackTest) -> dict[str, Any]:
    endings = [
        {
            "namespace": one.namespace,
            "pod": one.pod,
            "container": one.container,
            "at": moment(one.at),
            "usedBytes": one.used_bytes,
        }
        for one in test.endings
    ]
    return {"containers": test.containers, "endings": endings, "endingsPerContainerWeek": _estimate(test.rate)}


def _distribution(one: Distribution) -> dict[str, Any]:
    return {
        "containers": one.containers,
        "p50Bytes": _estimate(one.p50),
        "p95Bytes": _estimate(one.p95),
        "p99Bytes": _estimate(one.p99),
        "mostBytes": one.most,
        "nearCap": one.near_cap,
    }


def _estimate(found: Estimate) -> dict[str, float | None]:
    high = None if math.isinf(found.high) else round(found.high, _DIGITS)
    return {"value": round(found.value, _DIGITS), "low": round(found.low, _DIGITS), "high": high}
