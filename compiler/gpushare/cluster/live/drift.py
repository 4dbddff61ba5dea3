"""How a running cluster differs from a bundle: objects, Helm values, nodes' labels, hardware, allocatable. Pure.

What was not seen is not compared: `Snapshot.unseen` says so, and a difference is never guessed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from gpushare.bundle import admission
from gpushare.bundle.admission import observes
from gpushare.cluster.live import belief, dra_drift, live_pools, slices
from gpushare.cluster.live.api_objects import document
from gpushare.cluster.live.live_pools import policy_text
from gpushare.cluster.live.node_affinity import pool_of
from gpushare.cluster.live.observing import is_observed
from gpushare.cluster.live.slices import NodeOffer
from gpushare.cluster.live.snapshot import (
    AMD_CONFIGS,
    LAYOUT_LABELS,
    MANAGER_PROFILES,
    PLUGIN_LABELS,
    PROFILES,
    Condition,
    LiveNode,
    Snapshot,
)
from gpushare.compare.bundles import POLICIES, VALUES
from gpushare.compare.files import Files, parsed
from gpushare.compare.sides import Side
from gpushare.compare.snapshots import Pools, PoolSide
from gpushare.core.wording import clean, join_first
from gpushare.offering import backends
from gpushare.offering.backends import vgpu
from gpushare.resolved.vm_pool import VmPool
from gpushare_node.contract.names import BACKEND_LABEL, POOL_LABEL, PROFILE_LABEL
from gpushare_node.contract.policy import Backend
from gpushare_node.contract.reasons import REASONS
from gpushare_node.contract.struct import Struct

_PROFILES = "chart/files/profiles/"
_AMD = "chart/files/amd/"
_DEVICE_CONFIGS = f"{_AMD}device-configs/"
_OPEN = frozenset({"selector", "devicePluginArguments"})
"""Mappings of a DeviceConfig for which the server has no defaults: whatever else is in them counts."""
_INSTALL = "install the bundle: its README lists the commands"


class Kind(StrEnum):
    """What differs."""

    OBJECT = "object"
    SLICES = "slices"
    VALUES = "values"
    QUOTA = "quota"
    NODE = "node"
    HARDWARE = "hardware"
    ALLOCATABLE = "allocatable"


class Difference(Struct):
    """One difference: of what, what the bundle wants, what the cluster has, and what to do. Texts are safe to print."""

    kind: Kind
    subject: str
    wanted: str
    actual: str
    remedy: str


def amd_namespace(bundle: Files, chart: Mapping[str, Any]) -> str:
    """Return where the bundle has objects for AMD's operator; empty if it has none. `chart` are the chart's values."""
    return str((chart.get("amd") or {}).get("namespace") or "") if any(path.startswith(_AMD) for path in bundle) else ""


def differences(bundle: Files, side: Side, snapshot: Snapshot) -> tuple[Difference, ...]:
    """Return every difference. `side` is what the bundle makes of a cluster."""
    chart = parsed(VALUES, bundle[VALUES])  # as they are installed: `values` turns what observes into what it does
    found = [
        *_objects(bundle, chart, snapshot),
        *_helm(chart, snapshot),
        *_quotas(chart, snapshot),
        *_nodes(side.pools, chart, snapshot),
        *_vm_nodes(side.vm_pools, chart, snapshot),
    ]
    return tuple(found)


def _objects(bundle: Files, chart: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Difference]:
    entries = chart.get("pools") or {}
    if snapshot.has_seen("daemonsets"):
        yield from _daemonsets(entries, snapshot)
    yield from _of_amd(bundle, snapshot)
    for subject, want, had in (*dra_drift.objects(bundle, snapshot), *dra_drift.policies(bundle, snapshot)):
        yield _object(subject, want, had)
    if not snapshot.has_seen("configmaps"):
        return
    for pool, entry in sorted(entries.items()):
        text = policy_text(snapshot, pool, entry["policy"])
        name = f"ConfigMap gpushare-{pool}-policy-{entry['policy']}"
        if text is None or parsed(POLICIES, text) != parsed(POLICIES, bundle[f"{POLICIES}{pool}.yaml"]):
            yield _object(name, "the bundle's policy", "missing" if text is None else "another policy")
    yield from _profiles(bundle, snapshot)
    yield from _vgpu_configs(bundle, snapshot)
    config = snapshot.configs.get("gpushare-tenancy")
    actual = document(config.data.get("tenancy.json", "")) if config else None
    wanted = document(bundle.get(admission.TENANCY, ""))
    if wanted != actual and isinstance(wanted, dict):
        unlike = _unlike(wanted.get("spec") or {}, actual.get("spec") if isinstance(actual, dict) else None)
        yield _object("ConfigMap gpushare-tenancy", "the bundle's namespaces", "missing" if config is None else unlike)


def _daemonsets(entries: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Difference]:
    running = {one.pool: one for one in snapshot.daemonsets}
    for pool, entry in sorted(entries.items()):
        one = running.get(pool)
        if one is None:
            yield _object(f"DaemonSet gpushare-{pool}", f"policy {entry['policy']}", "missing")
        elif one.policy != entry["policy"]:
            yield _object(f"DaemonSet {one.name}", f"policy {entry['policy']}", f"policy {one.policy or '?'}")
    for pool in sorted(running.keys() - entries.keys()):
        yield _object(f"DaemonSet {running[pool].name}", "no such pool", f"policy {running[pool].policy or '?'}")


def _profiles(bundle: Files, snapshot: Snapshot) -> Iterator[Difference]:
    texts = {path.removeprefix(_PROFILES): text for path, text in bundle.items() if path.startswith(_PROFILES)}
    wanted = {f"{path.removesuffix('.yaml')}-{half}": text for path, text in texts.items() for half in ("a", "b")}
    config = snapshot.configs.get(PROFILES)
    if config is None:
        if wanted:
            yield _object("ConfigMap gpushare-profiles", f"{len(wanted)} profiles", "missing")
        return
    for key in sorted(wanted.keys() | config.data.keys()):
        if wanted.get(key, "").strip() != config.data.get(key, "").strip():
            had = "missing" if key not in config.data else "another text"
            want = "no such profile" if key not in wanted else "the bundle's text"
            yield _object(f"ConfigMap gpushare-profiles, key {clean(key)}", want, had if key in wanted else "present")


def _vgpu_configs(bundle: Files, snapshot: Snapshot) -> Iterator[Difference]:
    """Yield whether NVIDIA's vGPU device manager reads other configs. The ConfigMap stays when no pool needs it any more."""
    wanted, config = bundle.get("chart/files/vgpu/config.yaml"), snapshot.configs.get(vgpu.OPERATOR_CONFIG_MAP)
    if wanted is not None and (config is None or config.data.get("config.yaml", "").strip() != wanted.strip()):
        had = "missing" if config is None else "another text"
        yield _object(f"ConfigMap {vgpu.OPERATOR_CONFIG_MAP}", "the bundle's text", had)


def _of_amd(bundle: Files, snapshot: Snapshot) -> Iterator[Difference]:
    """Yield what AMD's operator and config manager read otherwise. Fields that the bundle does not set may be the server's."""
    wanted, config = bundle.get(f"{_AMD}config.json"), snapshot.configs.get(MANAGER_PROFILES)
    text = config.data.get("config.json", "") if config else ""
    if wanted is not None and snapshot.has_seen(AMD_CONFIGS) and document(text) != document(wanted):
        yield _object(f"ConfigMap {MANAGER_PROFILES}", "the bundle's profiles", "missing" if config is None else "others")
    if not snapshot.has_seen("deviceconfigs"):
        return
    paths = [path for path in bundle if path.startswith(_DEVICE_CONFIGS)]
    specs = {
        f"gpushare-{path.removeprefix(_DEVICE_CONFIGS).removesuffix('.yaml')}": parsed(path, bundle[path]) for path in paths
    }
    found = {one.name: one.spec for one in snapshot.device_configs}
    for name in sorted(specs.keys() | found.keys()):
        if name not in found:
            yield _object(f"DeviceConfig {name}", "the bundle's", "missing")
        elif name not in specs:
            yield _object(f"DeviceConfig {name}", "no such pool", "present")
        elif unlike := list(_below(specs[name], found[name], ())):
            had, wants = (join_first([f"{'.'.join(one[0])}: {_text(one[at])}" for one in unlike]) for at in (2, 1))
            yield _object(f"DeviceConfig {name}", wants, had)


def _below(wanted: Any, actual: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield what is wanted and is otherwise."""
    if isinstance(wanted, dict) and isinstance(actual, dict) and not _OPEN.intersection(path[-1:]):
        for key in sorted(wanted):
            yield from _below(wanted[key], actual.get(key), (*path, key))
    elif wanted != actual:
        yield path, wanted, actual


def _unlike(wanted: Mapping[str, Any], actual: object) -> str:
    if not isinstance(actual, dict):
        return "another document"
    return join_first(
        [
            f"{clean(key)}: {_text(actual.get(key))}"
            for key in sorted({*wanted, *map(str, actual)})
            if wanted.get(key) != actual.get(key)
        ]
    )


def _helm(chart: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Difference]:
    """Yield the values that the installed release has otherwise: another bundle, or `helm --set`."""
    if snapshot.values is not None:
        for path, wanted, actual in _leaves(chart, snapshot.values, ()):
            yield Difference(
                kind=Kind.VALUES,
                subject=f"Helm value {clean('.'.join(path))}",
                wanted=_text(wanted),
                actual=_text(actual),
                remedy="put it into the intent, or install the bundle without it",
            )


def _leaves(wanted: Any, actual: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key in sorted({*wanted, *actual}):
            yield from _leaves(wanted.get(key), actual.get(key), (*path, str(key)))
    elif wanted != actual and (wanted or actual):
        yield path, wanted, actual


def _quotas(chart: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Difference]:
    if not snapshot.has_seen("resourcequotas"):
        return
    actual = {one.namespace: dict(one.hard) for one in snapshot.quotas if one.name == "gpushare"}
    wanted = {
        namespace: {backends.quota_resource(str(key)): number for key, number in hard.items()}
        for namespace, hard in (chart.get("quotas") or {}).items()
    }
    for namespace in sorted(wanted.keys() | actual.keys()):
        one, other = wanted.get(namespace), actual.get(namespace)
        if one != other:
            yield Difference(
                kind=Kind.QUOTA,
                subject=f"ResourceQuota {namespace}/gpushare",
                wanted=_numbers(one),
                actual=_numbers(other),
                remedy=_INSTALL,
            )


def _nodes(wanted: Pools, chart: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Difference]:
    if not snapshot.has_seen("nodes"):
        return
    terms = {pool: entry.get("terms") for pool, entry in (chart.get("pools") or {}).items()}
    chosen = {node.name: pool_of(node, terms) for node in snapshot.nodes}
    names = {node.name for node in snapshot.nodes}
    live, is_mode = live_pools.find(snapshot), observes(chart)
    offers = slices.offers(snapshot, live) or {}
    for pool, entry in sorted(wanted.items()):
        expected, there = entry.count, sum(one == pool for one in chosen.values())
        for name in sorted(entry.names):
            if name not in names:
                yield _node(Kind.NODE, name, f"in pool {pool}", "no such node", "join it to the cluster, or correct the intent")
        if expected is not None and expected != there and not entry.names:
            yield _node(Kind.NODE, f"pool {pool}", f"{expected} nodes", f"{there} nodes", "correct `expected`, or the labels")
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        if chosen[node.name] in wanted:
            pool = chosen[node.name]
            offer = offers.get(node.name)
            believed = belief.condition(node, live.pools.get(pool), snapshot, offer)
            yield from _observed(node) if is_mode else _one_node(node, believed, pool, wanted[pool], offer)
        elif live.of_node.get(node.name):
            yield _node(Kind.NODE, node.name, "in no pool", f"in pool {live.of_node[node.name]}", _INSTALL)


def _vm_nodes(wanted: Mapping[str, VmPool], chart: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Difference]:
    """Yield what differs on nodes for virtual machines: the labels that a person sets, and what the manager made of them."""
    if not snapshot.has_seen("nodes") or observes(chart):
        return
    terms = {pool: entry.terms for pool, entry in wanted.items()}
    chosen = {node.name: pool_of(node, terms) for node in snapshot.nodes}
    for pool, entry in sorted(wanted.items()):
        expected, there = entry.nodes, sum(one == pool for one in chosen.values())
        if expected not in (None, there):
            yield _node(Kind.NODE, f"pool {pool}", f"{expected} nodes", f"{there} nodes", "correct the intent, or the labels")
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        if machines := wanted.get(chosen[node.name]):
            yield from _vm_node(node, machines.labels)


def _vm_node(node: LiveNode, labels: Mapping[str, str]) -> Iterator[Difference]:
    unlike = {key: value for key, value in labels.items() if node.labels.get(key) != value}
    for key, value in sorted(unlike.items()):
        remedy = "label the node as the bundle's README.md says, when its virtual machines are shut down"
        yield _node(Kind.NODE, f"{node.name}, label {key}", value, node.labels.get(key, "missing"), remedy)
    state = vgpu.state(node.labels)
    if not unlike and state != vgpu.DONE:
        remedy = "see the log of the operator's vGPU device manager on that node"
        yield _node(Kind.HARDWARE, f"{node.name}, vGPUs", vgpu.DONE, state or "no state yet", remedy)


def _observed(node: LiveNode) -> Iterator[Difference]:
    """Yield that a node is not observed. What it offers, its labels and hardware are its own until `enforce`."""
    if node.condition is None or not is_observed(node):
        reason = "no report" if node.condition is None else f"{node.condition.reason}: {node.condition.message}"
        yield _node(Kind.NODE, node.name, "observed", reason, f"`gpushare explain {node.name}` says what to do")


def _one_node(
    node: LiveNode, condition: Condition, pool: str, entry: PoolSide, offer: NodeOffer | None
) -> Iterator[Difference]:
    why = f"`gpushare explain {node.name}` says what to do"
    is_dra = entry.backend == Backend.DRA
    resources = {} if is_dra else dict(entry.resources)
    is_offer_alone = condition.reason == "WrongResources" and dict(node.allocatable) != resources
    if is_dra and offer is not None and offer.problem:
        is_offer_alone = condition.reason in {belief.WRONG_SLICES, belief.WAITING_FOR_SLICES}
        wants = _numbers(Counter(device.resource for device in entry.devices))
        yield _node(Kind.SLICES, node.name, wants, offer.problem, why)
    if not condition.is_true and not is_offer_alone:
        reason = "no report" if node.condition is None else f"{condition.reason}: {condition.message}"
        known = REASONS.get(condition.reason)
        kind = Kind.HARDWARE if known is not None and known.is_hardware else Kind.NODE
        yield _node(kind, node.name, f"Ready in pool {pool}", reason, why)
    for label in (POOL_LABEL, PROFILE_LABEL, BACKEND_LABEL, *PLUGIN_LABELS, *LAYOUT_LABELS):
        allowed, value = entry.labels.get(label, ()), node.labels.get(label)
        if allowed and value not in allowed:
            actual = "missing" if value is None else value
            yield _node(Kind.NODE, f"{node.name}, label {label}", " or ".join(allowed), actual, why)
    if dict(node.allocatable) != resources:
        yield _node(Kind.ALLOCATABLE, node.name, _numbers(resources), _numbers(node.allocatable), why)


def _node(kind: Kind, name: str, wanted: str, actual: str, remedy: str) -> Difference:
    subject = name if name.startswith("pool ") else f"node {name}"
    return Difference(kind=kind, subject=subject, wanted=wanted, actual=actual, remedy=remedy)


def _object(subject: str, wanted: str, actual: str) -> Difference:
    return Difference(kind=Kind.OBJECT, subject=subject, wanted=wanted, actual=actual, remedy=_INSTALL)


def _numbers(numbers: Mapping[str, int] | None) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted((numbers or {}).items())) or "none"


def _text(value: object) -> str:
    return "none" if value is None else clean(json.dumps(value, sort_keys=True, default=str), 200)
