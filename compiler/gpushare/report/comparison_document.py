"""The `Plan` document (schemas/plan.v1.json): a comparison, as `plan --format json` prints it. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from gpushare.compare.changes import Amount, Comparison, Costs, GpuChange, Outage, PoolChange
from gpushare.compare.files import SettingChange
from gpushare.report import comparison_words as words
from gpushare.report.comparison_verdict import verdict


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the document."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Plan",
        "verdict": verdict(comparison),
        "summary": words.format_summary(comparison),
        "changed": not comparison.is_empty,
        "configMapOnly": comparison.is_configmap_only,
        "nodesTouched": comparison.touched,
        "podsDisturbed": comparison.disturbed,
        "pools": {pool.name: _pool(pool) for pool in comparison.pools},
        "capacity": {name: _amount(amount) for name, amount in comparison.capacity},
        "cost": None if comparison.costs is None else _costs(comparison.costs),
        "operatorMigStrategy": dict(zip(("before", "after"), comparison.mig_strategies, strict=True)),
        "moves": [
            {"node": move.node, "from": move.source, "to": move.target, "podsDisturbed": move.disturbed}
            for move in comparison.moves
        ],
        "quotas": [
            {
                "namespace": quota.namespace,
                "resource": quota.resource,
                "before": quota.before,
                "after": quota.after,
                "capacity": quota.capacity,
                "problem": None if quota.problem is None else quota.problem.value,
            }
            for quota in comparison.quotas
        ],
        "effects": [
            {"kind": one.kind.value, "pool": one.pool, "subject": one.subject, "before": one.before, "after": one.after}
            for one in comparison.effects
        ],
        "outages": [_outage(one) for one in comparison.outages],
        "order": list(words.format_order(comparison)),
        "files": [
            {"path": one.path, "change": one.kind.value, "settings": _settings(one.settings), "more": one.more}
            for one in comparison.files
        ],
        "intent": _settings(comparison.intent),
    }


def _costs(costs: Costs) -> dict[str, Any]:
    return {
        "currency": costs.currency or None,
        "before": costs.before,
        "after": costs.after,
        "pools": {one.pool: {"before": one.before, "after": one.after} for one in costs.pools},
    }


def _outage(one: Outage) -> dict[str, Any]:
    return {
        "pool": one.pool,
        "nodes": one.nodes,
        "atOnce": one.at_once,
        "rounds": one.rounds,
        "secondsEach": one.seconds,
        "onBusy": one.on_busy,
        "paused": one.start is not None and one.start.is_paused,
        "opensAt": None if one.start is None else _date(one.start.opens_at),
        "drainSeconds": one.drain_seconds,
    }


def _date(at: float | None) -> str | None:
    return None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _settings(settings: Iterable[SettingChange]) -> list[dict[str, Any]]:
    return [{"path": list(one.path), "change": one.kind.value, "before": one.before, "after": one.after} for one in settings]


def _pool(pool: PoolChange) -> dict[str, Any]:
    return {
        "change": pool.change.value,
        "card": {"before": pool.cards[0], "after": pool.cards[1]},
        "nodes": _amount(pool.nodes),
        "nodesTouched": pool.touched,
        "podsDisturbed": pool.disturbed,
        "podsDisturbedPerNode": pool.disturbed_per_node,
        "selectorChanges": pool.selector_changes,
        "successor": pool.successor,
        "resources": {
            resource.name: {"perNode": _amount(resource.per_node), "total": _amount(resource.total)}
            for resource in pool.resources
        },
        "gpus": [_gpu(gpu) for gpu in pool.gpus],
        "caps": [{"resource": cap.resource, "profile": cap.profile, "capMiB": _amount(cap.cap_mib)} for cap in pool.caps],
        "action": dict(zip(("before", "after"), pool.actions, strict=True)),
    }


def _gpu(gpu: GpuChange) -> dict[str, Any]:
    return {
        "gpu": gpu.index,
        "kept": _instances(gpu.kept),
        "destroyed": _instances(gpu.destroyed),
        "created": _instances(gpu.created),
    }


def _instances(instances: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"profile": profile, "start": start} for profile, start in instances]


def _amount(amount: Amount) -> dict[str, int | None]:
    return {"before": amount.before, "after": amount.after}
