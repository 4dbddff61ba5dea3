"""The `Simulation` document (schemas/simulation.v1.json). Pure."""

from typing import Any

from gpushare.simulation.outcome import Point, PoolOutcome
from gpushare.simulation.simulated import Simulated, Simulations
from gpushare.workload.requests import Workload

_DIGITS = 6


def document(found: Simulations) -> dict[str, Any]:
    """Return the document."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Simulation",
        "scoring": found.scoring,
        "workload": _workload(found.workload),
        "intents": [_intent(one) for one in found.intents],
    }


def _workload(workload: Workload) -> dict[str, Any]:
    return {
        "source": workload.source,
        "pods": len(workload.pods),
        "leftOut": [{"line": one.line, "column": one.column or None, "reason": one.reason} for one in workload.left_out],
        "unusedColumns": list(workload.unused),
    }


def _intent(one: Simulated) -> dict[str, Any]:
    outcome = one.outcome
    return {
        "file": one.file,
        "cluster": one.name,
        "ran": one.placed,
        "neverRan": one.never_ran,
        "waitedSeconds": one.waited_seconds,
        "nodes": one.nodes,
        "gpus": one.all_gpus,
        "endSeconds": outcome.end,
        "gpuHours": _round(one.gpu_hours),
        "cost": _round(outcome.cost),
        "currency": outcome.currency or None,
        "pools": {pool.name: _pool(one, pool) for pool in outcome.pools},
        "unserved": dict(outcome.unserved),
        "bounds": outcome.bounds
        and {"lower": outcome.bounds.lower, "freeSizes": outcome.bounds.free_sizes, "whole": outcome.bounds.whole},
        "assumed": list(outcome.assumed),
    }


def _pool(one: Simulated, pool: PoolOutcome) -> dict[str, Any]:
    return {
        "card": pool.card,
        "nodes": pool.nodes,
        "nodesGiven": not pool.is_open,
        "gpus": one.gpus(pool),
        "shares": pool.shares,
        "ran": pool.placed,
        "pending": dict(pool.pending),
        "waitedSeconds": pool.waited_seconds,
        "peak": _point(pool.peak),
        "strandedMiB": pool.stranded_mib,
        "gpuHours": _round(pool.gpu_hours),
        "usedGpuHours": _round(pool.used_gpu_hours),
        "cost": _round(pool.cost),
        "costIsPerHour": pool.is_hourly,
        "points": [_point(point) for point in pool.points],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "seconds": point.time,
        "shares": point.shares,
        "askedMiB": point.asked_mib,
        "grantedMiB": point.granted_mib,
        "nodes": point.nodes,
        "gpus": point.gpus,
        "pending": point.pending,
    }


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)
