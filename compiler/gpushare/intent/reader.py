"""Builds the Intent from a document that passed the schema: every default filled in, every word parsed to a value.

Total for such documents. Every default is defined here or in the types of `intent`, and is part of v1 forever; `gitops` and
`monitoring` are kept as they are: `gitops.TOOLS` and the renderer of `monitoring` have the defaults.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, assert_never

from gpushare.core import prices
from gpushare.core.units import SizeOrPercent, parse_duration, parse_quantity, parse_share
from gpushare.intent import stacks
from gpushare.intent.stacks import VendorStack
from gpushare.intent.types import (
    ON_DEMAND,
    Admission,
    Autoscaler,
    Balanced,
    CapValue,
    CapWord,
    ComputeGroup,
    Dra,
    DraVia,
    Enforcement,
    Exclusive,
    Expression,
    Goal,
    GpuDriver,
    Instances,
    Intent,
    Interval,
    Layout,
    LayoutGroup,
    Memory,
    MemoryEach,
    Mig,
    MigStrategy,
    Mode,
    MostInstances,
    Mps,
    NodeSelector,
    NvidiaStack,
    OnDemand,
    Operator,
    Partition,
    Platform,
    Pool,
    Quota,
    Requests,
    Require,
    RuntimeImage,
    SharePlacement,
    Sharing,
    TimeSlicing,
    Vgpu,
    VgpuManager,
)
from gpushare.vendors import OTHERS
from gpushare_node.contract.policy import Action, Adoption, Backend, DraShares, Mechanism, OnBusy, Partitioner, Rollout
from gpushare_node.contract.struct import NOTHING, replace
from gpushare_node.contract.tenancy import AdmissionMode, AdmissionScope
from gpushare_node.contract.vendors import Stack
from gpushare_node.contract.windows import DAYS, Window

Document = Mapping[str, Any]


def build(document: Document) -> Intent:
    """Return the intent that a document describes, with every default. Total for documents that `schema.check` accepts."""
    spec: Document = document["spec"]
    backend = spec.get("platform", {}).get("backend", "device-plugin")
    return Intent(
        name=document["metadata"]["name"],
        pools=tuple(_pool(name, {"backend": backend, **pool}, spec.get("rollout", {})) for name, pool in spec["pools"].items()),
        kubernetes=_version(spec.get("kubernetes", "1.30")),
        namespace=spec.get("namespace", "gpu-system"),
        platform=_platform(spec.get("platform", {})),
        quotas=tuple(
            _quota(namespace, pool, limit)
            for namespace, limits in spec.get("quotas", {}).items()
            for pool, limit in limits.items()
        ),
        admission=_admission(spec.get("admission", {})),
        adoption=Adoption(spec.get("adoption", "enforce")),
        accepted=tuple(spec.get("accept", {}).items()),
        monitoring=spec.get("monitoring", {}),
        gitops=spec.get("gitops", {}),
        cards=spec.get("cards", {}),
        prices={name: price for name, text in spec.get("prices", {}).items() if (price := prices.parse(text)) is not None},
    )


def of_vendors(intent: Intent, vendors: Collection[str]) -> Intent:
    """Return the intent of a cluster with cards of these vendors: `stack: existing` is that of another vendor than NVIDIA too.

    Where all are of one such vendor it is not NVIDIA's, and the version, namespace and values beside it are that vendor's.
    """
    platform = intent.platform
    others = [vendor for vendor in OTHERS if vendor in vendors]
    if platform.stack is not NvidiaStack.EXISTING or not others:
        return intent
    if len(set(vendors)) > 1:
        existing = {vendor: VendorStack.existing(vendor) for vendor in others}
        return replace(intent, platform=replace(platform, others={**existing, **platform.others}))
    only = others[0]
    if only in platform.others:
        return replace(intent, platform=replace(platform, stack=NvidiaStack.NONE))
    given = {} if platform.namespace is None else {"namespace": platform.namespace}
    own = {only: VendorStack.existing(only, version=platform.version, values=platform.values, **given)}
    alone = replace(platform, stack=NvidiaStack.NONE, others=own, version=None, namespace=None, values=NOTHING)
    return replace(intent, platform=alone)


def _version(text: str) -> tuple[int, int] | None:
    found = re.match(r"1\.(0|[1-9][0-9]{0,2})\Z", text)
    return (1, int(found[1])) if found else None


def _platform(document: Document) -> Platform:
    driver, stack = document.get("driver"), document.get("stack", "gpu-operator")
    if vendor := stacks.of_chart(stack):
        shared = {key: document[key] for key in ("stack", "version", "namespace", "values") if key in document}
        rest = {key: value for key, value in document.items() if key not in ("version", "namespace", "values")}
        return _platform({**rest, "stack": NvidiaStack.NONE.value, vendor: shared})
    return Platform(
        stack=NvidiaStack(stack),
        others={vendor: _of_vendor(vendor, document[vendor]) for vendor in OTHERS if vendor in document},
        dra=_dra(document["dra"]) if "dra" in document else None,
        version=document.get("version"),
        partitioner=Partitioner(document.get("partitioner", "gpushare")),
        driver=None if driver is None else GpuDriver(**driver),
        vgpu_manager=VgpuManager(**document["vgpuManager"]) if "vgpuManager" in document else None,
        registry=document.get("registry"),
        charts=document.get("charts"),
        image=RuntimeImage(**document.get("image", {})),
        own_runtime_class=document.get("runtimeClass"),
        image_pull_secrets=tuple(document.get("imagePullSecrets", ())),
        namespace=document.get("namespace"),
        namespaces=tuple(document.get("namespaces", ())),
        values=_in_order(document.get("values", {})),
    )


def _of_vendor(vendor: str, document: Document) -> VendorStack:
    given = {key: value for key, value in document.items() if key in ("version", "namespace")}
    chosen = {"stack": Stack(document["stack"])} if "stack" in document else {}
    return VendorStack.of(vendor, values=_in_order(document.get("values", {})), **chosen, **given)


def _dra(document: Document) -> Dra:
    return Dra(
        via=DraVia(document.get("via", "chart")),
        version=document.get("version"),
        shares=DraShares(document.get("shares", "memory")),
        driver_root=document.get("driverRoot", "/"),
    )


def _in_order(value: Any) -> Any:
    """Return the value with the keys of every mapping sorted."""
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


def _admission(document: Document) -> Admission:
    return Admission(
        mode=AdmissionMode(document.get("enforce", "deny")),
        scope=AdmissionScope(document.get("scope", "tenants")),
        localhost_profiles=tuple(document.get("localhostProfiles", ())),
    )


def _pool(name: str, document: Document, rollout: Document) -> Pool:
    return Pool(
        name=name,
        card=document["card"],
        nodes=_nodes(document["nodes"]),
        gpus_per_node=int(document["gpusPerNode"]),
        sharing=_sharing(document["sharing"]),
        priority=int(document.get("priority", 0)),
        memory=_memory(document.get("memory", {})),
        enforcement=_enforcement(document.get("enforcement", {})),
        rollout=read_rollout({**rollout, **document.get("rollout", {})}),
        require=_require(document.get("require", {})),
        namespaces=tuple(document.get("namespaces", ())),
        tolerations=tuple(map(_toleration, document.get("tolerations", ()))),
        is_default=document.get("default", False),
        autoscaler=Autoscaler(document["nodes"]["autoscaler"]) if "autoscaler" in document["nodes"] else None,
        backend=Backend(document["backend"]),
        requests=Requests(document.get("requests", "claims")),
        sizes=tuple((size, _bytes(memory)) for size, memory in document.get("sizes", {}).items()),
    )


def _toleration(document: Document) -> Document:
    """Return the toleration with its fields in Kubernetes' order: the user's order must not affect the bundle."""
    seconds = document.get("tolerationSeconds")
    whole = document if seconds is None else {**document, "tolerationSeconds": int(seconds)}
    return {field: whole[field] for field in ("key", "operator", "value", "effect", "tolerationSeconds") if field in whole}


def _nodes(document: Document) -> NodeSelector:
    expected = document.get("expected")
    return NodeSelector(
        match_labels=tuple(sorted(document.get("matchLabels", {}).items())),
        match_expressions=tuple(
            Expression(key=part["key"], operator=Operator(part["operator"]), values=tuple(part.get("values", ())))
            for part in document.get("matchExpressions", ())
        ),
        names=tuple(document.get("names", ())),
        expected=None if expected is None else int(expected),
    )


def _sharing(document: Document) -> Sharing:
    mode = Mode(document["mode"])
    rename, placement = document.get("rename", True), SharePlacement(document.get("placement", "spread"))
    match mode:
        case Mode.EXCLUSIVE:
            return Exclusive()
        case Mode.TIME_SLICING:
            interval = Interval(document["interval"]) if "interval" in document else None
            return TimeSlicing(replicas=int(document["replicas"]), rename=rename, placement=placement, interval=interval)
        case Mode.MPS:
            return Mps(replicas=int(document["replicas"]), rename=rename, placement=placement)
        case Mode.MIG:
            replicas = document.get("replicas", {})
            return Mig(
                wanted=_wanted(document),
                strategy=MigStrategy(document.get("strategy", "mixed")),
                replicas=_counts(replicas) if isinstance(replicas, dict) else int(replicas),
                rename=rename,
                placement=placement,
            )
        case Mode.PARTITION:
            groups = document.get("layouts", ())
            return Partition(
                memory=document["memory"],
                compute=document.get("compute", ""),
                groups=tuple(ComputeGroup(gpus=tuple(map(int, one["gpus"])), compute=one["compute"]) for one in groups),
                strategy=MigStrategy(document.get("strategy", "mixed")),
            )
        case Mode.VGPU:
            return Vgpu(profile=document["profile"], kernel=_kernel(document.get("kernel")))
    assert_never(mode)


def _kernel(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, minor = text.split(".")
    return int(major), int(minor)


def _wanted(document: Document) -> Layout | tuple[LayoutGroup, ...] | Goal | OnDemand:
    if document.get("layout") == ON_DEMAND:
        return OnDemand(profiles=tuple(document.get("profiles", ())))
    if "layout" in document:
        return _layout(document["layout"])
    if "layouts" in document:
        return tuple(
            LayoutGroup(gpus=tuple(int(index) for index in group["gpus"]), layout=_layout(group["layout"]))
            for group in document["layouts"]
        )
    goal = document["goal"]
    if isinstance(goal, str):
        return MostInstances() if goal == "most-instances" else Balanced()
    return Instances(count=int(goal["instances"])) if "instances" in goal else MemoryEach(size_bytes=_bytes(goal["memory"]))


def _layout(document: Document | str) -> Layout:
    return () if isinstance(document, str) else _counts(document)


def _counts(document: Document) -> tuple[tuple[str, int], ...]:
    return tuple((name, int(count)) for name, count in document.items())


def _bytes(value: str | float) -> int:
    return _known(parse_quantity(value if isinstance(value, str) else int(value)), value)


def _share(value: str | float) -> SizeOrPercent:
    return _known(parse_share(value if isinstance(value, str) else int(value)), value)


def _seconds(value: str) -> int:
    return _known(parse_duration(value), value)


_T = TypeVar("_T")


def _known(parsed: _T | None, value: object) -> _T:
    if parsed is None:
        raise AssertionError(f"the schema let {value!r} pass, but the parser does not read it")
    return parsed


def _memory(document: Document) -> Memory:
    cap, reserve = document.get("cap"), document.get("reserve")
    by_profile = tuple((name, _cap(value)) for name, value in cap.items()) if isinstance(cap, dict) else None
    return Memory(
        cap=None if cap is None else by_profile or _cap(cap),
        reserve=None if reserve is None else _share(reserve),
        oversubscribe_percent=int(document.get("oversubscribe", "100%").removesuffix("%")),
    )


def _cap(value: str | float) -> CapValue:
    return CapWord(value) if value in ("even", "none") else _bytes(value)


def _enforcement(document: Document) -> Enforcement:
    notice = document.get("notice", "none")
    return Enforcement(
        action=Action(document.get("action", "kill")),
        grace_seconds=_seconds(document.get("grace", "10s")),
        tolerance=_share(document.get("tolerance", 0)),
        mechanism=Mechanism(document.get("mechanism", "auto")),
        notice_seconds=None if notice == "none" else _seconds(notice),
    )


def read_rollout(document: Document) -> Rollout:
    """Return the settings of a `rollout`, with defaults."""
    most = document.get("maxUnavailable", 1)
    return Rollout(
        max_unavailable=most if isinstance(most, str) else int(most),
        on_busy=OnBusy(document.get("onBusy", "wait")),
        drain_timeout_seconds=_seconds(document.get("drainTimeout", "30m")),
        is_paused=document.get("paused", False),
        windows=tuple(map(_window, document.get("windows", ()))),
    )


def _window(document: Document) -> Window:
    return Window(
        days=tuple(document.get("days", DAYS)),
        start=document["start"],
        duration_seconds=_seconds(document["duration"]),
        timezone=document.get("timezone", "UTC"),
    )


def _require(document: Document) -> Require:
    memory = document.get("memory")
    least = None if memory is None else _bytes(memory)
    return Require(nvlink=document.get("nvlink"), ecc=document.get("ecc"), memory_bytes=least)


def _quota(namespace: str, pool: str, limit: Document | float) -> Quota:
    if not isinstance(limit, dict):
        return Quota(namespace=namespace, pool=pool, shares=int(limit))  # type: ignore[arg-type]  # the schema: a number or a mapping
    if limit.keys() & {"shares", "memory"}:
        number = int(limit["shares"]) if "shares" in limit else None
        memory = _bytes(limit["memory"]) if "memory" in limit else None
        return Quota(namespace=namespace, pool=pool, shares=number, memory_bytes=memory)
    return Quota(namespace=namespace, pool=pool, per_resource=_counts(limit))
