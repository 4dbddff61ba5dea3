"""The plan as one HTML page that needs no network: pools, memory maps to scale, pods to copy, quotas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpushare.core import emit, units
from gpushare.core.diagnostics import Finding
from gpushare.core.prices import Price, amount
from gpushare.core.units import MemoryTotals
from gpushare.core.wording import join_first, join_words, layout_text, pluralize, visible
from gpushare.offering import backends, modes
from gpushare.render import readme
from gpushare.report import folding, html, plan_view, pool_facts
from gpushare.report.card_view import left_over
from gpushare.report.html_table import HtmlTable, table
from gpushare.resolved.costs import of_plan
from gpushare.resolved.plan import GpuLayout, Plan, PoolPlan
from gpushare_node.contract.struct import NOTHING

MAX_PODS = 100
"""With more cards than these the page has each text of a pod once, into which its script writes the names."""
_POOL, _RESOURCE = "⟨pool⟩", "⟨resource⟩"
"""Where the script writes the names: characters that no name has."""


def page(plan: Plan, findings: Sequence[Finding], written: str, prices: Mapping[str, Price] = NOTHING) -> str:
    """Return the page. `findings` are the warnings of the intent, `written` is the time, `prices` are by pool."""
    described = ((pool.name, *_described(pool, plan, prices.get(pool.name))) for pool in plan.pools)
    nodes = {pool.name: _nodes(pool) for pool in plan.pools}
    cards = [{**card, **pool_facts.heading(names, nodes)} for names, card in folding.alike(described)]
    quotas = table(
        "Quotas",
        ("Namespace", "Resource", "At most"),
        [(quota.namespace, backends.quota_resource(key), str(number)) for quota in plan.quotas for key, number in quota.hard],
        numbers=(2,),
        codes=(1,),
    )
    machines = table(
        "Virtual machines",
        ("Pool", "Card", "Nodes", *(title.capitalize() for title in plan_view.VM_HEADERS)),
        [(one.name, one.card.name, plan_view.known(one.nodes), *plan_view.vm_cells(one)) for one in plan.vm_pools],
        numbers=(2, 5, 6, 7),
        codes=(3,),
    )
    return html.render(
        "show.html.j2",
        tables=[*(card[of] for card in cards for of in ("resources", "claims")), machines, quotas],
        machines=machines,
        name=visible(plan.intent.name),
        facts=_facts(plan, prices),
        memory=pool_facts.memory_facts([_memory(pool, pool.nodes) for pool in plan.pools]),
        legend=pool_facts.legend(card["mode"] for card in cards),
        written=written,
        observes=plan.intent.observes,
        digest=plan.digest.removeprefix("sha256:")[:12],
        warnings=[
            {"code": one.code, "message": visible(one.message), "hints": list(map(visible, one.hints))} for one in findings
        ],
        pools=cards,
        pods=_shared_pods(cards),
        unfolded=len(cards) <= html.MAX_UNFOLDED,
        quotas=quotas,
    )


def _facts(plan: Plan, prices: Mapping[str, Price]) -> list[dict[str, str]]:
    platform = plan.intent.platform
    sizes = [(pool.nodes, pool.pool.gpus_per_node) for pool in plan.pools]
    sizes += [(pool.nodes, pool.pool.gpus_per_node) for pool in plan.vm_pools]
    nodes = [number for number, _ in sizes]
    gpus = [None if number is None else number * each for number, each in sizes]
    facts = {
        "Pools": str(len(plan.pools) + len(plan.vm_pools)),
        "Nodes": _total(nodes),
        "GPUs": _total(gpus),
        "Stack": join_words(platform.stacks),
        "Namespace": plan.intent.namespace,
    }
    costs = of_plan(plan, prices)
    if costs.pools:
        facts["Cost per hour"] = amount(costs.known, costs.currency) + (" + ?" if None in dict(costs.pools).values() else "")
    return [{"name": name, "value": visible(value)} for name, value in facts.items()]


def _total(numbers: Iterable[int | None]) -> str:
    """Return the sum of what is known, and whether something is not."""
    listed = list(numbers)
    known = sum(number for number in listed if number is not None)
    return str(known) if None not in listed else f"{known} + ?" if known else "?"


def _described(pool: PoolPlan, plan: Plan, price: Price | None) -> tuple[str, dict[str, Any]]:
    """Return what has to be equal for two pools to have one card, and what the card says."""
    resources = _resources(pool, price)
    names = [row[0] for row in resources.rows]
    namespaces = sorted(pool.pool.namespaces)
    pod = emit.yaml_text(readme.pod(pool, names[0], plan))
    card = {
        "mode": pool_facts.mode(pool.mode.value, is_divided=any(one.replicas > 1 for one in pool.samples)),
        "memory_of": "each node" if pool.nodes is None else pluralize(pool.nodes, "node"),
        "memory": pool_facts.memory_facts([_memory(pool, 1 if pool.nodes is None else pool.nodes)]),
        "card": visible(pool.card.name),
        "nodes": "? nodes" if pool.nodes is None else pluralize(pool.nodes, "node"),
        "gpus": f"{pluralize(len(pool.gpus), 'GPU')} each",
        "goal": "" if pool.layout_of_goal is None else layout_text(pool.layout_of_goal),
        "text": visible(" ".join((pool.card.id, pool.card.name, pool.mode.value, *names, *namespaces)).lower()),
        "resources": resources,
        "claims": _claims(pool, plan),
        "maps": [_map(pool, gpus) for gpus in plan_view.alike(pool)],
        "resource": names[0],
        "others": join_first(names[1:], 8),
        "namespaces": join_first(namespaces, 8),
        "pod_text": pod.replace(names[0], _RESOURCE).replace(pool.name, _POOL),
    }
    return repr(card), {**card, "pod": pod}


def _nodes(pool: PoolPlan) -> str:
    nodes = pool.pool.nodes
    expressions = ({"key": one.key, "operator": one.operator.value, "values": one.values} for one in nodes.match_expressions)
    return pool_facts.nodes_text(dict(nodes.match_labels), expressions, nodes.names)


def _memory(pool: PoolPlan, nodes: int | None) -> MemoryTotals:
    of_claims = ((None, 1, None),)
    known = ((one.memory_mib, one.replicas, one.cap_mib) for one in pool.devices)
    devices = of_claims if modes.of(pool.pool).is_on_demand else known
    return units.memory_of_node(pool.card.memory_mib, len(pool.gpus), devices).of_nodes(nodes)


def _resources(pool: PoolPlan, price: Price | None) -> HtmlTable:
    rows = plan_view.resource_rows(pool, price)
    money = (f"{price.currency or 'Cost'} per share-hour",) if price else ()
    headers = ("Resource", "Per node", "Total", "Device", "Cap", *money)
    return HtmlTable(title="Resources", headers=headers, rows=tuple(rows), numbers=tuple(range(1, len(headers))), codes=(0,))


def _claims(pool: PoolPlan, plan: Plan) -> HtmlTable:
    headers = tuple(title.capitalize() for title in plan_view.CLAIM_HEADERS)
    return table("Claims", headers, plan_view.claim_rows(plan, pool), numbers=(1, 2, 3), codes=(0,))


def _shared_pods(cards: Sequence[dict[str, Any]]) -> list[str]:
    """Return the texts of pods for the script; none if each card has its own. A card with a shared one gets its number."""
    texts = {text: number for number, text in enumerate(dict.fromkeys(card["pod_text"] for card in cards))}
    is_shared = len(cards) > MAX_PODS
    for card in cards:
        card["shared"] = texts[card["pod_text"]] if is_shared else None
    return list(texts) if is_shared else []


def _map(pool: PoolPlan, gpus: Sequence[GpuLayout]) -> dict[str, Any]:
    gpu = gpus[0]
    geometry = pool.card.mig if gpu.mig_enabled else None
    return {
        "title": f"GPU {plan_view.ranges([one.index for one in gpus])}",
        "left": plan_view.on_demand(pool) or ("" if geometry is None else left_over(gpu.instances, geometry)),
        "cells": pool_facts.cells([] if modes.of(pool.pool).is_on_demand else plan_view.devices_of(pool, gpu), geometry),
    }
