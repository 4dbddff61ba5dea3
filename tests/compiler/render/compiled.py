"""Intents and their bundles, for the tests of rendering."""

from typing import Any

import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.compare import sides
from gpushare.compare.sides import Side
from gpushare.core.diagnostics import is_error
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Catalog
from gpushare.facts.nodes.clouds import CLOUDS, Cloud
from gpushare.intent import reader
from gpushare.resolved.plan import Plan

POOLS = {
    "hpc": "{card: h100-sxm5-80gb, nodes: {matchLabels: {p: hpc}, expected: 2}, gpusPerNode: 8, sharing: {mode: exclusive}}",
    "notebooks": "{card: t4, nodes: {matchLabels: {p: notebooks}}, gpusPerNode: 4, sharing: {mode: time-slicing, replicas: 4},"
    " tolerations: [{key: school, operator: Exists}], enforcement: {tolerance: 5%}}",
    "serving": "{card: l40s, nodes: {names: [n1, n2]}, gpusPerNode: 2, sharing: {mode: mps, replicas: 8},"
    " rollout: {onBusy: evict}}",
    "dense": "{card: a100-sxm4-40gb, nodes: {matchLabels: {p: dense}, expected: 3}, gpusPerNode: 4, sharing: {mode: mig,"
    " layouts: [{gpus: [0, 1, 2], layout: {2g.10gb: 2, 1g.5gb: 3}}, {gpus: [3], layout: none}], replicas: {1g.5gb: 2}}}",
}


CLAIMED = POOLS["notebooks"].replace("{card", "{backend: dra, namespaces: [course], card", 1)
"""The pool `notebooks`, which NVIDIA's DRA driver serves; it needs ON_DRA."""
ON_DRA = '  kubernetes: "1.36"\n'


def intent(*pools: str, platform: str = "{}", more: str = "", **changed: str) -> bytes:
    """An intent with some of POOLS (all of them by default) and a platform, both in flow style."""
    known = POOLS | changed
    lines = "".join(f"    {name}: {known[name]}\n" for name in pools or known)
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: test-cluster}\nspec:\n"
    return f"{head}  platform: {platform}\n  pools:\n{lines}{more}".encode()


def compiled(data: bytes, previous: Lock = lock.EMPTY) -> tuple[Plan, dict[str, str]]:
    """The plan and the bundle's texts of an intent without errors."""
    compilation = pipeline.compile_intent(data, "intent.yaml", previous)
    assert not [finding for finding in compilation.findings if is_error(finding)], compilation.findings
    assert compilation.plan is not None
    return compilation.plan, {artifact.path: artifact.text for artifact in compilation.artifacts}


def files(*pools: str, **wanted: str) -> dict[str, str]:
    """The bundle's texts."""
    return compiled(intent(*pools, **wanted))[1]


def side(bundle: dict[str, str]) -> Side:
    """What the bundle makes of a cluster."""
    built = reader.build(document(bundle, lock.INTENT))
    catalog = Catalog(own={name: cards.build(name, card) for name, card in built.cards.items()})
    found = sides.of_bundle(bundle, reader.of_vendors(built, catalog.vendors(pool.card for pool in built.pools)), catalog)
    assert isinstance(found, Side), found
    return found


def document(bundle: dict[str, str], path: str) -> Any:
    """A YAML file of the bundle."""
    return yaml.safe_load(bundle[path])


TAINTING = [cloud for cloud in CLOUDS if cloud.startup_taint]
"""The clouds that say how new nodes get the start-up taint."""


def label_of(cloud: Cloud) -> str:
    """A label by which a pool selects a node pool of the cloud."""
    return cloud.pool_label or f"{cloud.domain}/pool"
