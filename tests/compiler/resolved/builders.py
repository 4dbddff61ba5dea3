"""Pools and intents in one line, for tests of what they become."""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from gpushare.bundle.lock import EMPTY, Lock
from gpushare.core.diagnostics import Finding, pointer
from gpushare.facts.catalog.cards import Catalog
from gpushare.intent.types import Enforcement, Intent, Memory, NodeSelector, Pool, Sharing
from gpushare.resolved.plan import Plan, PoolPlan, resolve
from gpushare.rules import RULES
from gpushare.rules.rule import Check, RuleContext

A100 = "a100-sxm4-40gb"


def pool(sharing: Sharing, card: str = A100, name: str = "research", **given: Any) -> Pool:
    """A pool of two nodes with four GPUs each, unless `given` says otherwise."""
    nodes = given.pop("nodes", NodeSelector(names=(f"{name}-1", f"{name}-2")))
    return Pool(name=name, card=card, sharing=sharing, nodes=nodes, gpus_per_node=given.pop("gpus", 4), **given)


def memory(**given: Any) -> dict[str, Any]:
    return {"memory": Memory(**given)}


def enforcement(**given: Any) -> dict[str, Any]:
    return {"enforcement": Enforcement(**given)}


def intent(*pools: Pool, **given: Any) -> Intent:
    return Intent(name="physics-batch", pools=pools, **given)


def plan(*pools: Pool, lock: Lock = EMPTY, **given: Any) -> Plan:
    return resolve(intent(*pools, **given), Catalog(), lock)


def planned(one: Pool, **given: Any) -> PoolPlan:
    return plan(one, **given).pools[0]


def capacity(one: Pool) -> dict[str, int]:
    """What `allocatable` of one node will show."""
    return {resource.name: resource.per_node for resource in planned(one).resources}


def rules_of(*modules: ModuleType) -> list[Check]:
    """The rules of these modules, in the order of their codes."""
    return [check for check in RULES.values() if check.__module__ in {module.__name__ for module in modules}]


def findings(rules: Iterable[Check], *pools: Pool, **given: Any) -> list[tuple[str, str, str]]:
    """What the rules find, as (code, JSON pointer below the first pool, `key` or `value`)."""
    return [
        (finding.code, pointer(finding.path).removeprefix(f"/spec/pools/{pools[0].name}"), "key" if finding.on_key else "value")
        for finding in check(rules, *pools, **given)
    ]


def check(rules: Iterable[Check], *pools: Pool, **given: Any) -> list[Finding]:
    context = RuleContext(intent=intent(*pools, **given), catalog=Catalog())
    return [finding for rule in rules for finding in rule(context)]
