"""The registry of all rules, and the stage that runs them on an intent that passed the schema.

Each rule is listed in the tuple of its module; this module sorts them by code and runs them. It makes no findings of its
own. Not in the registry: `sizes`, which checks the output, `acceptance`, which needs the others' findings, and `custom_cards`,
without which no rule knows the cards.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

from gpushare.catalog.cards import Catalog
from gpushare.core.diagnostics import Finding
from gpushare.intent.types import Intent, Layout
from gpushare.rules import (
    admission,
    amd,
    argocd,
    autoscaling,
    backend,
    device_classes,
    device_parts,
    enforcement,
    fields,
    flux,
    ineffective_settings,
    memory,
    mig,
    mig_profiles,
    monitoring,
    nodes,
    on_demand,
    platform,
    pools,
    prices,
    quotas,
    rollouts,
    sharing,
    tenancy,
    values,
    versions,
    vgpu,
)
from gpushare.rules.rule import Rule, RuleContext
from gpushare_node.contract.struct import NOTHING, replace

MAX_PER_CODE = 100
"""Findings of one code that are shown; an intent with more of them has one cause, not a hundred."""

_MODULES = (
    admission,
    amd,
    argocd,
    autoscaling,
    backend,
    device_classes,
    device_parts,
    enforcement,
    fields,
    flux,
    ineffective_settings,
    memory,
    mig,
    mig_profiles,
    monitoring,
    nodes,
    on_demand,
    platform,
    pools,
    prices,
    quotas,
    rollouts,
    sharing,
    tenancy,
    values,
    versions,
    vgpu,
)

RULES: tuple[Rule, ...] = tuple(sorted(chain.from_iterable(module.RULES for module in _MODULES), key=lambda rule: rule.code))


def run_rules(
    intent: Intent, catalog: Catalog, document: Mapping[str, Any] | None = None, pinned: Mapping[str, Layout] = NOTHING
) -> list[Finding]:
    """Return everything that the rules find, sorted by code and then in the intent's order.

    `document` is the mapping as the user wrote it, for the rules on settings that are written although they equal a default.
    `pinned` are the layouts that the lock pins for goals: the rules check them like layouts that are resolved now.
    """
    context = RuleContext(intent=intent, catalog=catalog, document=document or {}, pinned=pinned)
    return [finding for rule in RULES for finding in _limited(rule.check(context))]


def _limited(found: Iterator[Finding]) -> Iterator[Finding]:
    yield from islice(found, MAX_PER_CODE)
    for further in islice(found, 1):
        message = f"further findings of {further.code} are not shown"
        hints = (f"gpushare shows the first {MAX_PER_CODE} of a kind: correct those, then check again",)
        yield replace(further, message=message, hints=hints)
