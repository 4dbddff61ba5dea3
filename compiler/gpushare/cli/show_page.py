"""The plan as one HTML page that needs no network: pools, memory maps to scale, pods to copy, quotas."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpushare.cli import html_page, plan_view
from gpushare.cli.card_view import left_over
from gpushare.core import emit
from gpushare.core.diagnostics import Finding
from gpushare.core.printable import visible
from gpushare.core.wording import counted, few, layout_text
from gpushare.plan.plan import GpuPlan, Plan, PoolPlan
from gpushare.render import readme


def page(plan: Plan, findings: Sequence[Finding]) -> str:
    """Return the page. `findings` are the warnings of the intent."""
    return html_page.render(
        "show.html.j2", name=visible(plan.intent.name), facts=_facts(plan), observes=plan.intent.observes,
        digest=plan.digest.removeprefix("sha256:")[:12],
        warnings=[{"code": one.code, "message": visible(one.message)} for one in findings],
        pools=[_pool(pool, plan) for pool in plan.pools], unfolded=len(plan.pools) <= html_page.MOST_UNFOLDED,
        quotas=[{"namespace": quota.namespace, "resource": key.removeprefix("requests."), "number": number}
                for quota in plan.quotas for key, number in quota.hard],
    )


def _facts(plan: Plan) -> list[dict[str, str]]:
    platform = plan.intent.platform
    nodes = [pool.nodes for pool in plan.pools]
    gpus = [None if pool.nodes is None else pool.nodes * len(pool.gpus) for pool in plan.pools]
    facts = {
        "Pools": str(len(plan.pools)), "Nodes": _total(nodes), "GPUs": _total(gpus), "Stack": platform.stack.value,
        "Namespace": plan.intent.namespace,
    }
    return [{"name": name, "value": visible(value)} for name, value in facts.items()]


def _total(numbers: Iterable[int | None]) -> str:
    """Return the sum of what is known, and whether something is not."""
    listed = list(numbers)
    known = sum(number for number in listed if number is not None)
    return str(known) if None not in listed else f"{known} + ?" if known else "?"


def _pool(pool: PoolPlan, plan: Plan) -> dict[str, Any]:
    rows = plan_view.resource_rows(pool)
    names = [row[0] for row in rows]
    columns = ("name", "per_node", "total", "device", "cap")
    namespaces = sorted(pool.pool.namespaces)
    return {
        "name": pool.name,
        "mode": pool.mode.value,
        "card": visible(pool.card.name),
        "nodes": "? nodes" if pool.nodes is None else counted(pool.nodes, "node"),
        "gpus": f"{counted(len(pool.gpus), 'GPU')} each",
        "goal": "" if pool.layout_of_goal is None else layout_text(pool.layout_of_goal),
        "text": visible(" ".join((pool.name, pool.card.id, pool.card.name, pool.mode.value, *names, *namespaces)).lower()),
        "resources": [dict(zip(columns, row, strict=True)) for row in rows],
        "maps": [_map(pool, gpus) for gpus in plan_view.alike(pool)],
        "pod": emit.yaml_text(readme.pod(pool, names[0], plan)),
        "others": few(names[1:], 8),
        "namespaces": few(namespaces, 8),
    }


def _map(pool: PoolPlan, gpus: Sequence[GpuPlan]) -> dict[str, Any]:
    gpu = gpus[0]
    geometry = pool.card.mig if gpu.mig_enabled else None
    return {
        "title": f"GPU {plan_view.ranges([one.index for one in gpus])}",
        "left": "" if geometry is None else left_over(gpu.instances, geometry),
        "cells": html_page.cells(plan_view.devices_of(pool, gpu), geometry),
    }
