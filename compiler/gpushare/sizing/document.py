"""An option as an intent, a sizing as the `Size` document (schemas/size.v1.json), and several as a `SizeComparison`. Pure."""

from typing import Any

from gpushare import vendors
from gpushare.intent import writer
from gpushare.intent.types import Intent, Stack
from gpushare.modes.demand import Demand
from gpushare.sizing.answer import Grant, Option, Sizing
from gpushare.sizing.comparison import Comparison


def intent(demand: Demand, option: Option) -> dict[str, Any]:
    """Return the intent of an option: one pool; its label and the cluster's name are examples for the user to replace."""
    card, own = demand.card, demand.described
    made = writer.write(Intent(name="my-cluster", pools=(option.pool,), cards={card.id: own} if own else {}))
    stack = next(iter(vendors.of(card).charts))
    platform = {} if stack == Stack.GPU_OPERATOR else {"platform": {"stack": stack}}
    return {**made, "spec": {**platform, **made["spec"]}}


def document(sizing: Sizing) -> dict[str, Any]:
    """Return the `Size` document."""
    demand = sizing.demand
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "Size",
        "card": demand.card.id,
        "gpusPerNode": demand.gpus_per_node,
        "nodes": demand.nodes,
        "isolation": "memory" if demand.in_hardware else "none",
        "currency": demand.price.currency or None if demand.price else None,
        "pricePerGpuHour": demand.price.per_hour if demand.price else None,
        "needs": [{"memoryBytes": need.memory_bytes, "users": need.users} for need in demand.needs],
        "options": [_option(one, is_best=one is sizing.best) for one in sizing.options],
        "unfit": [{"mode": one.variant.word, "reason": one.reason} for one in sizing.unfit],
        "reason": sizing.reason,
        "intent": None if sizing.best is None else intent(demand, sizing.best),
    }


def comparison_document(compared: Comparison) -> dict[str, Any]:
    """Return the `SizeComparison` document: a `Size` document for each card, the best card first."""
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "SizeComparison",
        "comparedBy": "cost" if compared.is_by_cost else "nodes",
        "best": None if compared.best is None else compared.best.demand.card.id,
        "cards": [document(one) for one in compared.sizings],
    }


def _option(one: Option, *, is_best: bool) -> dict[str, Any]:
    return {
        "mode": one.variant.word,
        "best": is_best,
        "sharing": writer.write_sharing(one.pool.sharing),
        "resources": [_grant(grant) for grant in one.grants],
        "nodesNeeded": one.nodes_needed,
        "users": one.users,
        "suffices": one.suffices,
        "memoryIsolation": one.variant.memory.value,
        "faultIsolation": one.variant.faults.value,
        "totalMiB": one.total_mib,
        "wastedMiB": one.wasted_mib,
        "costPerHour": one.cost_per_hour,
        "unconfirmed": list(one.unconfirmed),
        "notes": list(one.notes),
    }


def _grant(grant: Grant) -> dict[str, Any]:
    return {
        "resource": grant.kind.resource,
        "profile": grant.kind.profile.name if grant.kind.profile else None,
        "replicas": grant.kind.replicas,
        "perNode": grant.kind.per_node,
        "capMiB": grant.cap_mib,
        "usableBytes": grant.provides_bytes,
    }
