"""Writes an Intent as the document that `reader` builds it from: only what differs from the defaults, in the schema's order.

`reader.build(write(intent)) == intent` for every intent that `build` made. What a user wrote once for all pools
(`spec.rollout`, `platform.backend`) is written in each of them. Maps and lists have the intent's own order; `canonical` sorts
them.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from gpushare.core import emit, prices
from gpushare.core.units import SizeOrPercent, show_bytes, show_duration
from gpushare.intent.stacks import VendorStack
from gpushare.intent.types import (
    ON_DEMAND,
    Admission,
    Balanced,
    CapValue,
    CapWord,
    Dra,
    Enforcement,
    Exclusive,
    Instances,
    Intent,
    Layout,
    LayoutGroup,
    Memory,
    MemoryEach,
    Mig,
    MostInstances,
    Mps,
    NodeSelector,
    NvidiaStack,
    OnDemand,
    Partition,
    Platform,
    Pool,
    Quota,
    Require,
    Sharing,
    TimeSlicing,
    Vgpu,
)
from gpushare.vendors import OTHERS
from gpushare_node.contract.policy import Rollout
from gpushare_node.contract.struct import Struct, content_of, replace
from gpushare_node.contract.windows import DAYS, Window

Document = dict[str, Any]

_EMPTY: Mapping[str, Any] = {}


def write(intent: Intent) -> Document:
    """Return the document of an intent: `apiVersion`, `kind`, `metadata` and `spec`."""
    version = intent.kubernetes
    spec = {
        "kubernetes": None if version is None else f"{version[0]}.{version[1]}",
        "namespace": intent.namespace,
        "platform": _platform(intent.platform),
        "pools": {pool.name: write_pool(pool) for pool in intent.pools},
        "quotas": _quotas(intent.quotas),
        "admission": _section(_admission, intent.admission),
        "adoption": intent.adoption.value,
        "accept": dict(intent.accepted),
        "prices": {name: prices.show(price) for name, price in intent.prices.items()},
        "monitoring": dict(intent.monitoring),
        "gitops": dict(intent.gitops),
        "cards": dict(intent.cards),
    }
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "ClusterIntent",
        "metadata": {"name": intent.name},
        "spec": _without(spec, {"kubernetes": "1.30", "namespace": "gpu-system", "adoption": "enforce"}),
    }


def write_pool(pool: Pool) -> Document:
    """Return the entry of a pool in `spec.pools`."""
    fields = {
        "card": pool.card,
        "nodes": _nodes(pool.nodes) | ({"autoscaler": pool.autoscaler.value} if pool.autoscaler else {}),
        "gpusPerNode": pool.gpus_per_node,
        "priority": pool.priority,
        "sharing": write_sharing(pool.sharing),
        "memory": _section(_memory, pool.memory),
        "enforcement": _section(_enforcement, pool.enforcement),
        "rollout": _section(_rollout, pool.rollout),
        "require": _section(_require, pool.require),
        "namespaces": list(pool.namespaces),
        "default": pool.is_default,
        "tolerations": list(map(dict, pool.tolerations)),
        "backend": pool.backend.value,
        "requests": pool.requests.value,
        "sizes": {name: show_bytes(size) for name, size in pool.sizes},
    }
    return _without(fields, {"priority": 0, "default": False, "backend": "device-plugin", "requests": "claims"})


def write_sharing(sharing: Sharing) -> Document:
    """Return the `sharing` section of a pool: the mode, how GPUs are divided, then the other settings."""
    match sharing:
        case Exclusive():
            own: Document = {}
        case TimeSlicing():
            own = {"replicas": sharing.replicas, "interval": sharing.interval and sharing.interval.value}
        case Mps():
            own = {"replicas": sharing.replicas}
        case Mig():
            replicas = sharing.replicas
            own = _wanted(sharing.wanted) | {"replicas": dict(replicas) if isinstance(replicas, tuple) else replicas}
            own["strategy"] = sharing.strategy.value
        case Partition():
            groups = [{"gpus": list(one.gpus), "compute": one.compute} for one in sharing.groups]
            divided: Document = {"layouts": groups} if groups else {"compute": sharing.compute}
            own = {**divided, "memory": sharing.memory, "strategy": sharing.strategy.value}
        case Vgpu():
            kernel = sharing.kernel
            own = {"profile": sharing.profile, "kernel": None if kernel is None else f"{kernel[0]}.{kernel[1]}"}
        case _:
            assert_never(sharing)
    fields = {"mode": sharing.mode.value, **own, "rename": sharing.rename, "placement": sharing.placement.value}
    return _without(fields, {"strategy": "mixed", "rename": True, "placement": "spread"})


def _without(fields: Document, defaults: Mapping[str, Any] = _EMPTY) -> Document:
    """Return the fields that an intent must have: None is no field, nor is what is empty, as far as no default is given."""
    return {key: value for key, value in fields.items() if value not in (None, defaults.get(key, {}), [])}


def _section(write: Any, section: Struct) -> Document:
    """Return the fields in which a section differs from one that is absent."""
    return _without(write(section), write(type(section)()))


def _platform(platform: Platform) -> Document:
    others = dict(platform.others)
    upstream: Document = {
        "stack": platform.stack.value,
        "version": platform.version,
        "namespace": platform.namespace,
        "values": dict(platform.values),
    }
    if platform.stack is NvidiaStack.NONE and others:  # another vendor's stack alone: its fields are the platform's
        alone = others.pop(next(iter(others)))
        upstream = {"stack": alone.stack.value, **_of_vendor(alone)}
    fields = {
        "stack": upstream["stack"],
        "version": upstream.get("version"),
        "partitioner": platform.partitioner.value,
        "driver": None if platform.driver is None else _without(content_of(platform.driver)),
        "vgpuManager": None if platform.vgpu_manager is None else _without(content_of(platform.vgpu_manager)),
        "registry": platform.registry,
        "charts": platform.charts,
        "image": _without(content_of(platform.image)),
        "runtimeClass": platform.own_runtime_class,
        "imagePullSecrets": list(platform.image_pull_secrets),
        "namespace": upstream.get("namespace"),
        "namespaces": list(platform.namespaces),
        **{vendor: _of_vendor(one) for vendor, one in others.items()},
        "dra": None if platform.dra is None else _section(_dra, platform.dra),
        "values": upstream.get("values"),
    }
    says_more = dict.fromkeys(("driver", *OTHERS, "dra"))  # an empty one says more than none
    return _without(fields, {"stack": "gpu-operator", "partitioner": "gpushare", **says_more})


def _of_vendor(one: VendorStack) -> Document:
    fields = {"stack": one.stack.value, "version": one.version, "namespace": one.namespace, "values": dict(one.values)}
    default = VendorStack.of(one.vendor)
    return _without(fields, {"stack": default.stack.value, "namespace": default.namespace})


def _dra(dra: Dra) -> Document:
    return {"via": dra.via.value, "version": dra.version, "shares": dra.shares.value, "driverRoot": dra.driver_root}


def _admission(admission: Admission) -> Document:
    profiles = list(admission.localhost_profiles)
    return {"enforce": admission.mode.value, "scope": admission.scope.value, "localhostProfiles": profiles}


def _quotas(quotas: tuple[Quota, ...]) -> Document:
    found: Document = {}
    for quota in quotas:
        found.setdefault(quota.namespace, {})[quota.pool] = _quota(quota)
    return found


def _quota(quota: Quota) -> Document | int:
    if quota.per_resource:
        return dict(quota.per_resource)
    if quota.memory_bytes is None and quota.shares is not None:
        return quota.shares
    size = quota.memory_bytes
    fields = {"shares": quota.shares, "memory": None if size is None else show_bytes(size)}
    return {key: value for key, value in fields.items() if value is not None}


def _nodes(nodes: NodeSelector) -> Document:
    expressions = [
        _without({"key": part.key, "operator": part.operator.value, "values": list(part.values)})
        for part in nodes.match_expressions
    ]
    fields = {"matchLabels": dict(nodes.match_labels), "matchExpressions": expressions, "names": list(nodes.names)}
    return _without(fields | {"expected": nodes.expected})


def _wanted(wanted: Any) -> Document:
    match wanted:
        case OnDemand():
            return {"layout": ON_DEMAND, "profiles": list(wanted.profiles)}
        case MostInstances():
            return {"goal": "most-instances"}
        case Balanced():
            return {"goal": "balanced"}
        case Instances():
            return {"goal": {"instances": wanted.count}}
        case MemoryEach():
            return {"goal": {"memory": show_bytes(wanted.size_bytes)}}
        case (LayoutGroup(), *_):
            return {"layouts": [{"gpus": list(one.gpus), "layout": _layout(one.layout)} for one in wanted]}
        case _:
            return {"layout": _layout(wanted)}


def _layout(layout: Layout) -> Document | str:
    return dict(layout) or "none"


def _memory(memory: Memory) -> Document:
    cap = memory.cap
    return {
        "cap": {name: _cap(one) for name, one in cap} if isinstance(cap, tuple) else None if cap is None else _cap(cap),
        "reserve": None if memory.reserve is None else _share(memory.reserve),
        "oversubscribe": f"{memory.oversubscribe_percent}%",
    }


def _cap(cap: CapValue) -> str:
    return cap.value if isinstance(cap, CapWord) else show_bytes(cap)


def _share(share: SizeOrPercent) -> str | int:
    if share.percent_hundredths is None:
        return show_bytes(share.bytes) if share.bytes else 0
    whole, rest = divmod(share.percent_hundredths, 100)
    return f"{whole}.{rest:02}%" if rest else f"{whole}%"


def _enforcement(enforcement: Enforcement) -> Document:
    notice = enforcement.notice_seconds
    return {
        "action": enforcement.action.value,
        "grace": show_duration(enforcement.grace_seconds),
        "tolerance": _share(enforcement.tolerance),
        "notice": "none" if notice is None else show_duration(notice),
        "mechanism": enforcement.mechanism.value,
    }


def _rollout(rollout: Rollout) -> Document:
    return {
        "maxUnavailable": rollout.max_unavailable,
        "onBusy": rollout.on_busy.value,
        "drainTimeout": show_duration(rollout.drain_timeout_seconds),
        "paused": rollout.is_paused,
        "windows": list(map(_window, rollout.windows)),
    }


def _window(window: Window) -> Document:
    fields = {
        "days": list(window.days),
        "start": window.start,
        "duration": show_duration(window.duration_seconds),
        "timezone": window.timezone,
    }
    return _without(fields, {"days": list(DAYS), "timezone": "UTC"})


def _require(require: Require) -> Document:
    size = require.memory_bytes
    return {"nvlink": require.nvlink, "ecc": require.ecc, "memory": None if size is None else show_bytes(size)}


def canonical(intent: Intent) -> Intent:
    """Return the intent with everything sorted whose order has no meaning: equal intents give equal documents and bundles.

    Lists in values for other charts keep their order. The pipeline asks for it after the rules, whose findings refer to the
    intent in the user's order.
    """
    platform = replace(
        intent.platform,
        image_pull_secrets=tuple(sorted(intent.platform.image_pull_secrets)),
        namespaces=tuple(sorted(intent.platform.namespaces)),
    )
    return replace(
        intent,
        pools=tuple(map(_pool_in_order, sorted(intent.pools, key=lambda pool: pool.name))),
        quotas=tuple(
            replace(quota, per_resource=tuple(sorted(quota.per_resource)))
            for quota in sorted(intent.quotas, key=lambda quota: (quota.namespace, quota.pool))
        ),
        platform=platform,
        admission=replace(intent.admission, localhost_profiles=tuple(sorted(intent.admission.localhost_profiles))),
        accepted=tuple(sorted(intent.accepted)),
        monitoring=_sorted(intent.monitoring),
        gitops=_sorted(intent.gitops),
        cards=_sorted(intent.cards),
        prices=_sorted(intent.prices),
    )


def _pool_in_order(pool: Pool) -> Pool:
    tolerations = tuple(sorted(pool.tolerations, key=emit.canonical_json))
    windows = {replace(one, days=tuple(day for day in DAYS if day in one.days)) for one in pool.rollout.windows}
    ordered = sorted(windows, key=lambda one: (one.start, one.timezone, one.duration_seconds, one.days))
    return replace(
        pool,
        nodes=_nodes_in_order(pool.nodes),
        sharing=_sharing_in_order(pool.sharing),
        memory=replace(pool.memory, cap=tuple(sorted(cap)) if isinstance(cap := pool.memory.cap, tuple) else cap),
        namespaces=tuple(sorted(pool.namespaces)),
        tolerations=tolerations,
        sizes=tuple(sorted(pool.sizes)),
        rollout=replace(pool.rollout, windows=tuple(ordered)),
    )


def _sharing_in_order(sharing: Sharing) -> Sharing:
    if isinstance(sharing, Partition):
        groups = [replace(group, gpus=tuple(sorted(group.gpus))) for group in sharing.groups]
        return replace(sharing, groups=tuple(sorted(groups, key=lambda group: group.gpus)))
    if not isinstance(sharing, Mig):
        return sharing
    replicas = sharing.replicas
    return replace(
        sharing,
        wanted=_wanted_in_order(sharing.wanted),
        replicas=tuple(sorted(replicas)) if isinstance(replicas, tuple) else replicas,
    )


def _wanted_in_order(wanted: Any) -> Any:
    match wanted:
        case OnDemand():
            return OnDemand(profiles=tuple(sorted(wanted.profiles)))
        case (LayoutGroup(), *_):
            groups = [LayoutGroup(gpus=tuple(sorted(one.gpus)), layout=tuple(sorted(one.layout))) for one in wanted]
            return tuple(sorted(groups, key=lambda group: group.gpus))
        case tuple():
            return tuple(sorted(wanted))
        case _:
            return wanted


def _nodes_in_order(nodes: NodeSelector) -> NodeSelector:
    expressions = [replace(one, values=tuple(sorted(one.values))) for one in nodes.match_expressions]
    return replace(
        nodes,
        match_labels=tuple(sorted(nodes.match_labels)),
        match_expressions=tuple(sorted(expressions, key=lambda one: (one.key, one.operator, one.values))),
        names=tuple(sorted(nodes.names)),
    )


def _sorted(value: Any) -> Any:
    """Return the data with the keys of every mapping sorted."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value
