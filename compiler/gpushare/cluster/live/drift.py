"""How a running cluster differs from a bundle: objects, Helm values, nodes' labels, hardware, allocatable. Pure.

What was not seen is not compared: `Snapshot.unseen` says so, and a difference is never guessed. The API server writes
quantities its own way and adds defaults to DeviceClasses, templates of claims and admission policies: neither is a difference.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from gpushare import vendors
from gpushare.bundle import admission
from gpushare.bundle.admission import observes
from gpushare.cluster.live import belief, claims, live_pools, slices
from gpushare.cluster.live.belief import is_observed
from gpushare.cluster.live.live_pools import policy_text, pool_of
from gpushare.cluster.live.objects import (
    LAYOUT_LABELS,
    PLUGIN_LABELS,
    PROFILES,
    VGPU_CONFIGS,
    VGPU_FILE,
    VGPUS_DONE,
    Condition,
    LiveNode,
    Snapshot,
    configs_of,
    document,
)
from gpushare.cluster.live.slices import NodeOffer
from gpushare.compare.bundles import POLICIES, VALUES
from gpushare.compare.bundles import namespace as namespace_of
from gpushare.compare.files import Files, parsed
from gpushare.compare.sides import Side
from gpushare.compare.snapshots import Pools, PoolSide
from gpushare.core.wording import clean, join_first, join_words
from gpushare.offering import backends
from gpushare.resolved.plan import VmPool
from gpushare_node.contract import quantity
from gpushare_node.contract.names import BACKEND_LABEL, POOL_LABEL, PROFILE_LABEL
from gpushare_node.contract.policy import Backend
from gpushare_node.contract.reasons import REASONS, ConditionReason
from gpushare_node.contract.struct import Struct

_OF_SLICES = {ConditionReason.WRONG_SLICES.word, ConditionReason.WAITING_FOR_SLICES.word}
_PROFILES = "chart/files/profiles/"
_INSTALL = "install the bundle: its README lists the commands"

Unlike = tuple[str, str, str]
"""The object or the field, what the bundle wants, what the cluster has."""


class DriftKind(StrEnum):
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

    kind: DriftKind
    subject: str
    wanted: str
    actual: str
    remedy: str


def operator_namespaces(bundle: Files, chart: Mapping[str, Any]) -> dict[str, str]:
    """Return where the bundle has objects for vendors' operators, by the vendors' words. `chart` are the chart's values."""
    places = {
        vendor.word.value: namespace_of(chart, vendor.word) or ""
        for vendor, ours in vendors.OPERATORS
        if any(path.startswith(ours.folder) for path in bundle)
    }
    return {key: place for key, place in places.items() if place}


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
    yield from _of_operators(bundle, snapshot)
    for subject, want, had in (*_dra_objects(bundle, snapshot), *_admission_policies(bundle, snapshot)):
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
    wanted, config = bundle.get(VGPU_FILE), snapshot.configs.get(VGPU_CONFIGS)
    if wanted is not None and (config is None or config.data.get("config.yaml", "").strip() != wanted.strip()):
        had = "missing" if config is None else "another text"
        yield _object(f"ConfigMap {VGPU_CONFIGS}", "the bundle's text", had)


def _of_operators(bundle: Files, snapshot: Snapshot) -> Iterator[Difference]:
    """Yield what vendors' operators read otherwise. Fields that the bundle does not set may be the server's."""
    for vendor, ours in vendors.OPERATORS:
        wanted, config = bundle.get(f"{ours.folder}{ours.file}"), snapshot.configs.get(ours.config_map)
        text = config.data.get(ours.file, "") if config else ""
        if wanted is not None and snapshot.has_seen(configs_of(vendor)) and document(text) != document(wanted):
            yield _object(f"ConfigMap {ours.config_map}", "the bundle's profiles", "missing" if config is None else "others")
        if not snapshot.has_seen(ours.plural):
            continue
        folder = ours.specs
        paths = [path for path in bundle if path.startswith(folder)]
        specs = {
            f"{ours.kind} gpushare-{path.removeprefix(folder).removesuffix('.yaml')}": parsed(path, bundle[path])
            for path in paths
        }
        found = {f"{one.kind} {one.name}": one.spec for one in snapshot.operator_objects if one.kind == ours.kind}
        differ = partial(_below, open_fields=ours.open_fields)
        for subject, want, had in _compared(specs, found, differ, absent="no such pool"):
            yield _object(subject, want, had)


def _below(wanted: Any, actual: Any, path: tuple[str, ...] = (), *, open_fields: Collection[str]) -> Iterator[Unlike]:
    """Yield what is wanted and is otherwise; below `open_fields` whatever else is there, too."""
    if isinstance(wanted, dict) and isinstance(actual, dict) and (not path or path[-1] not in open_fields):
        for key in sorted(wanted):
            yield from _below(wanted[key], actual.get(key), (*path, key), open_fields=open_fields)
    elif wanted != actual:
        yield ".".join(path), _text(wanted), _text(actual)


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
                kind=DriftKind.VALUES,
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
                kind=DriftKind.QUOTA,
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
                yield _node(
                    DriftKind.NODE, name, f"in pool {pool}", "no such node", "join it to the cluster, or correct the intent"
                )
        if expected is not None and expected != there and not entry.names:
            yield _node(
                DriftKind.NODE, f"pool {pool}", f"{expected} nodes", f"{there} nodes", "correct `expected`, or the labels"
            )
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        if chosen[node.name] in wanted:
            pool = chosen[node.name]
            offer = offers.get(node.name)
            believed = belief.condition(node, live.pools.get(pool), snapshot, offer)
            yield from _observed(node) if is_mode else _one_node(node, believed, pool, wanted[pool], offer)
        elif live.of_node.get(node.name):
            yield _node(DriftKind.NODE, node.name, "in no pool", f"in pool {live.of_node[node.name]}", _INSTALL)


def _vm_nodes(wanted: Mapping[str, VmPool], chart: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Difference]:
    """Yield what differs on nodes for virtual machines: the labels that a person sets, and what the manager made of them."""
    if not snapshot.has_seen("nodes") or observes(chart):
        return
    terms = {pool: entry.terms for pool, entry in wanted.items()}
    chosen = {node.name: pool_of(node, terms) for node in snapshot.nodes}
    for pool, entry in sorted(wanted.items()):
        expected, there = entry.nodes, sum(one == pool for one in chosen.values())
        if expected not in (None, there):
            yield _node(
                DriftKind.NODE, f"pool {pool}", f"{expected} nodes", f"{there} nodes", "correct the intent, or the labels"
            )
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        if machines := wanted.get(chosen[node.name]):
            yield from _vm_node(node, machines.labels)


def _vm_node(node: LiveNode, labels: Mapping[str, str]) -> Iterator[Difference]:
    unlike = {key: value for key, value in labels.items() if node.labels.get(key) != value}
    for key, value in sorted(unlike.items()):
        remedy = "label the node as the bundle's README.md says, when its virtual machines are shut down"
        yield _node(DriftKind.NODE, f"{node.name}, label {key}", value, node.labels.get(key, "missing"), remedy)
    _, state = node.vgpus or ("", "")
    if not unlike and state != VGPUS_DONE:
        remedy = "see the log of the operator's vGPU device manager on that node"
        yield _node(DriftKind.HARDWARE, f"{node.name}, vGPUs", VGPUS_DONE, state or "no state yet", remedy)


def _observed(node: LiveNode) -> Iterator[Difference]:
    """Yield that a node is not observed. What it offers, its labels and hardware are its own until `enforce`."""
    if node.condition is None or not is_observed(node):
        reason = "no report" if node.condition is None else f"{node.condition.reason}: {node.condition.message}"
        yield _node(DriftKind.NODE, node.name, "observed", reason, f"`gpushare explain {node.name}` says what to do")


def _one_node(
    node: LiveNode, condition: Condition, pool: str, entry: PoolSide, offer: NodeOffer | None
) -> Iterator[Difference]:
    why = f"`gpushare explain {node.name}` says what to do"
    is_dra = Backend(entry.backend).has_claims
    resources = {} if is_dra else dict(entry.resources)
    is_offer_alone = condition.reason == ConditionReason.WRONG_RESOURCES.word and dict(node.allocatable) != resources
    if is_dra and offer is not None and offer.problem:
        is_offer_alone = condition.reason in _OF_SLICES
        wants = _numbers(Counter(device.resource for device in entry.devices))
        yield _node(DriftKind.SLICES, node.name, wants, offer.problem, why)
    if not condition.is_true and not is_offer_alone:
        reason = "no report" if node.condition is None else f"{condition.reason}: {condition.message}"
        known = REASONS.get(condition.reason)
        kind = DriftKind.HARDWARE if known is not None and known.is_hardware else DriftKind.NODE
        yield _node(kind, node.name, f"Ready in pool {pool}", reason, why)
    for label in (POOL_LABEL, PROFILE_LABEL, BACKEND_LABEL, *PLUGIN_LABELS, *LAYOUT_LABELS):
        allowed, value = entry.labels.get(label, ()), node.labels.get(label)
        if allowed and value not in allowed:
            actual = "missing" if value is None else value
            yield _node(DriftKind.NODE, f"{node.name}, label {label}", " or ".join(allowed), actual, why)
    if dict(node.allocatable) != resources:
        yield _node(DriftKind.ALLOCATABLE, node.name, _numbers(resources), _numbers(node.allocatable), why)


def _node(kind: DriftKind, name: str, wanted: str, actual: str, remedy: str) -> Difference:
    subject = name if name.startswith("pool ") else f"node {name}"
    return Difference(kind=kind, subject=subject, wanted=wanted, actual=actual, remedy=remedy)


def _object(subject: str, wanted: str, actual: str) -> Difference:
    return Difference(kind=DriftKind.OBJECT, subject=subject, wanted=wanted, actual=actual, remedy=_INSTALL)


def _numbers(numbers: Mapping[str, int] | None) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted((numbers or {}).items())) or "none"


def _text(value: object) -> str:
    return "none" if value is None else clean(json.dumps(value, sort_keys=True, default=str), 200)


_FOLDER = "chart/files/dra/"
_FORMER = "chart/files/former-classes.yaml"
_LOCK = "gpushare.lock.yaml"
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "deviceClassName": {"allocationMode": "ExactCount", "count": 1},
    "resourceRules": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}},
    "namespaceSelector": {"matchPolicy": "Equivalent", "objectSelector": {}},
    "apiGroups": {"scope": "*"},
}
"""What the server adds to a mapping that has a certain field."""
_NO_DEFAULT = object()
_AMOUNTS = ("capacity", "requests")
"""Where a specification has quantities."""

_PLURALS = {
    "ValidatingAdmissionPolicy": (claims.POLICIES[0], claims.BINDINGS[0]),
    "MutatingAdmissionPolicy": (claims.POLICIES[1], claims.BINDINGS[1]),
}
_POLICIES = frozenset(
    {"gpushare-claims", "gpushare-claiming-pods", "gpushare-claim-users", "gpushare-slices", "gpushare-pool-of-claims"}
)


def has_dra(bundle: Files) -> bool:
    """Whether the driver serves pools of the bundle, or did."""
    if any(path.startswith(_FOLDER) for path in bundle):
        return True
    lock = parsed(_LOCK, bundle.get(_LOCK, ""))
    return isinstance(lock, dict) and bool(lock.get("dra"))


def _dra_objects(bundle: Files, snapshot: Snapshot) -> Iterator[Unlike]:
    """Yield the classes and templates of ours that are missing, too many, or otherwise."""
    if snapshot.dra is None or not has_dra(bundle):
        return
    files = [parsed(path, text) for path, text in sorted(bundle.items()) if path.startswith(_FOLDER)]
    if snapshot.has_seen(claims.CLASSES):
        wanted = {f"DeviceClass {name}": spec for file in files for name, spec in file["classes"].items()}
        left = parsed(_FORMER, bundle[_FORMER]) if _FORMER in bundle else {}
        wanted |= {f"DeviceClass {name}": one["spec"] for name, one in left.items()}
        ours = {f"DeviceClass {one.name}": one.spec for one in snapshot.dra.classes if one.is_ours}
        every = {f"DeviceClass {one.name}": one.spec for one in snapshot.dra.classes}
        yield from _compared(wanted, ours | {name: every[name] for name in wanted.keys() & every.keys()}, _differing)
    if snapshot.has_seen(claims.TEMPLATES):
        wanted = {
            f"ResourceClaimTemplate {namespace}/{name}": spec
            for file in files
            for namespace in file["namespaces"]
            for name, spec in file["templates"].items()
        }
        yield from _compared(
            wanted,
            {f"ResourceClaimTemplate {one.namespace}/{one.name}": one.spec for one in snapshot.dra.templates},
            _differing,
        )


def _admission_policies(bundle: Files, snapshot: Snapshot) -> Iterator[Unlike]:
    """Yield the policies on claims, slices and pods that use claims and their bindings that are missing or otherwise."""
    if snapshot.dra is None:
        return
    actual = {(one.plural, one.name): one.spec for one in snapshot.dra.policies}
    document = parsed(admission.FILE, bundle[admission.FILE])
    for name, spec in sorted(admission.policies(document).items()):
        kind, _, short = name.partition(" ")
        policy, binding = _PLURALS[kind]
        if short not in _POLICIES:
            continue
        if snapshot.has_seen(policy):
            found = actual.get((policy, short))
            unlike = [path for path, *_ in _differing(spec, found)] if found is not None else []
            if found is None or unlike:
                yield name, "the bundle's policy", f"other {join_first(unlike)}" if unlike else "missing"
        if snapshot.has_seen(binding):
            bound = actual.get((binding, short))
            bundled = {"policyName": short, **document["policies"][short]["binding"]}
            actions = None if bound is None else [str(one) for one in bound.get("validationActions") or ()]
            wanted = bundled.get("validationActions", [])
            if actions != wanted:
                had = "missing" if actions is None else clean(join_words(actions)) or "no action"
                yield f"{kind}Binding {short}", join_words(wanted) or "a binding", had
            elif others := [path for path, *_ in _unlike_trees(bundled, _plain(bound), ())]:
                yield f"{kind}Binding {short}", "the bundle's binding", f"other {join_first(others)}"


def _compared(
    wanted: Mapping[str, Any],
    actual: Mapping[str, Any],
    differ: Callable[[Any, Any], Iterator[Unlike]],
    absent: str = "no such object",
) -> Iterator[Unlike]:
    """Yield the objects that are missing, too many, or otherwise. `differ` yields path, wanted and actual value."""
    for name in sorted(wanted.keys() | actual.keys()):
        if name not in actual:
            yield name, "the bundle's", "missing"
        elif name not in wanted:
            yield name, absent, "present"
        elif unlike := [*differ(wanted[name], actual[name])]:
            wants, had = (join_first([f"{path}: {pair[at]}" for path, *pair in unlike]) for at in (0, 1))
            yield name, wants, had


def _differing(wanted: Any, actual: Any) -> Iterator[Unlike]:
    """Yield path, wanted and actual value of what is not the same to the server."""
    yield from _unlike_trees(_plain(wanted), _plain(actual), ())


def _plain(value: Any) -> Any:
    """Return the specification without the server's defaults."""
    if isinstance(value, list):
        return [*map(_plain, value)]
    if not isinstance(value, dict):
        return value
    known = next((defaults for field, defaults in _DEFAULTS.items() if field in value), {})
    return {str(key): _plain(one) for key, one in value.items() if known.get(key, _NO_DEFAULT) != one}


def _unlike_trees(wanted: Any, actual: Any, path: tuple[str, ...]) -> Iterator[Unlike]:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key in sorted(wanted.keys() | actual.keys()):
            yield from _unlike_trees(wanted.get(key), actual.get(key), (*path, key))
    elif isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual):
        for number, (one, other) in enumerate(zip(wanted, actual, strict=True)):
            yield from _unlike_trees(one, other, (*path, str(number)))
    elif wanted != actual and not (path[-3:-1] == _AMOUNTS and _is_same_amount(wanted, actual)):
        yield clean(".".join(path)), _short_text(wanted), _short_text(actual)


def _is_same_amount(wanted: Any, actual: Any) -> bool:
    amount = quantity.billionths(wanted)
    return amount is not None and amount == quantity.billionths(actual)


def _short_text(value: Any) -> str:
    return "none" if value is None else clean(str(value), 200)
