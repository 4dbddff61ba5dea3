"""Objects of a cluster as values, each beside its reader from the API server's JSON, and all that was read: Snapshot. Pure.

An object may lack any field, have another type there, or contain control characters: what is not as expected counts as missing,
and no reader raises. Only the fields that we use are read. Texts are safe to print, except where it is said. Resources are
those that are GPUs.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from gpushare import vendors
from gpushare.cluster.live.claims import OUR_NAMES, DraObjects, PodClaim
from gpushare.core.wording import clean
from gpushare.offering import backends
from gpushare.offering.backends import vgpu
from gpushare.vendors.vendor import GpuVendor
from gpushare_node.contract.names import POLICY_ANNOTATION, POOL_LABEL, PREFIX, WOULD_ANNOTATION
from gpushare_node.contract.objects import (
    Json,
    claimed_limits,
    container_resources,
    mapping,
    mappings,
    pod_claims,
    pod_requests,
    texts,
)
from gpushare_node.contract.quantity import units
from gpushare_node.contract.struct import NOTHING, Struct, replace

PLUGIN_LABELS = tuple(filter(None, (vendor.plugin_label for vendor in vendors.VENDORS.values())))
LAYOUT_LABELS = tuple(vendor.layout_label for vendor in vendors.VENDORS.values() if not vendor.plugin_label)
"""What the node runtime sets where the vendor's plugin follows no label."""
CONDITION = "GPUShareReady"
PROFILES = "gpushare-profiles"
"""These are names of the node runtime: docs/bundle.md."""

VGPU_CONFIGS, VGPU_FILE = vgpu.OPERATOR_CONFIG_MAP, vgpu.FILE
"""The ConfigMap of NVIDIA's vGPU device manager, and its text in a bundle."""
VGPUS_DONE = vgpu.DONE
"""What that manager says of a node that has its vGPUs."""

RUNTIME_PODS = "pods of the runtime"
"""`ReadFailure.what` of the node runtime's own pods."""
OTHER_PODS = "pods of other namespaces"
"""`ReadFailure.what` of a Snapshot that was restricted to one namespace."""
_GPUS = (*vendors.GPU_RESOURCES, *OUR_NAMES)


class Condition(Struct):
    """A node's condition. `since` and `heartbeat`, when it was last written, are RFC 3339 times, as text; empty if unknown."""

    status: str
    reason: str
    message: str
    since: str
    heartbeat: str = ""

    @property
    def is_true(self) -> bool:
        """Whether the status is True."""
        return self.status == "True"


class LiveNode(Struct):
    """One node. `condition` is GPUShareReady, None without one; `is_up` is kubelet's Ready. `annotations` are ours only.

    `would` is the document of the annotation `gpushare.dev/would`, None without a readable one; its texts are clean. `faults`
    are the conditions by which kubelet and other programs report one, besides Ready.
    """

    name: str
    labels: Mapping[str, str] = NOTHING
    annotations: Mapping[str, str] = NOTHING
    taints: tuple[str, ...] = ()
    allocatable: Mapping[str, int] = NOTHING
    capacity: Mapping[str, int] = NOTHING
    condition: Condition | None = None
    is_up: bool = False
    is_cordoned: bool = False
    would: Mapping[str, Any] | None = None
    faults: tuple[str, ...] = ()

    @property
    def vgpus(self) -> tuple[str, str] | None:
        """Of a node for virtual machines its config, empty for the default one, and what NVIDIA's manager says of it."""
        config = vgpu.config_of(self.labels)
        return None if config is None else (config, vgpu.state(self.labels))


def node(item: Json) -> LiveNode:
    """Return the node of this object."""
    metadata, spec, status = (mapping(item, part) for part in ("metadata", "spec", "status"))
    conditions = {clean(one.get("type")): one for one in mappings(status, "conditions")}
    labels = {sys.intern(clean(key)): clean(value) for key, value in mapping(metadata, "labels").items()}
    marks = {key: value for key, value in mapping(metadata, "annotations").items() if str(key).startswith(PREFIX)}
    would = marks.pop(WOULD_ANNOTATION, None)
    notes = {clean(key): clean(value) for key, value in marks.items()}
    return LiveNode(
        name=clean(metadata.get("name")),
        labels=labels,
        annotations=notes or NOTHING,
        taints=tuple(f"{clean(one.get('key'))}:{clean(one.get('effect'))}" for one in mappings(spec, "taints")),
        allocatable=_offered(mapping(status, "allocatable")),
        capacity=_offered(mapping(status, "capacity")),
        condition=_condition(conditions[CONDITION]) if CONDITION in conditions else None,
        is_up=conditions.get("Ready", {}).get("status") == "True",
        is_cordoned=spec.get("unschedulable") is True,
        would=_clean_document(would) if isinstance(would, str) else None,
        faults=tuple(_faults(conditions)),
    )


_GOOD = ("Ready", "Healthy", "EtcdIsVoter")
"""What the types of conditions end with that are good when True. All others report a fault, such as `DiskPressure`."""


def _faults(conditions: Mapping[str, Json]) -> Iterable[str]:
    for kind, one in conditions.items():
        if kind not in ("Ready", CONDITION) and one.get("status") == ("False" if kind.endswith(_GOOD) else "True"):
            yield f"{kind} is {one['status']}: {clean(one.get('reason'))}: {clean(one.get('message'))}"


def _offered(numbers: Json) -> Mapping[str, int]:
    """Return what a node offers. Kubelet keeps a resource whose plugin has gone, with the number 0."""
    return {name: number for name, number in gpus(numbers).items() if number} or NOTHING


def _clean_document(text: str) -> Json | None:
    """Return a JSON document that is a mapping, with texts that may be printed; None if it is not one."""
    found = document(text)
    return _clean_tree(found) if isinstance(found, dict) else None


def _clean_tree(value: Any, depth: int = 4) -> Any:
    """Return the value with clean texts; what lies deeper than any document of ours becomes None."""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return None
    if isinstance(value, dict):
        return {clean(key): _clean_tree(one, depth - 1) for key, one in value.items()}
    return [_clean_tree(one, depth - 1) for one in value]


def _condition(item: Json) -> Condition:
    words = {
        "status": "status",
        "reason": "reason",
        "message": "message",
        "since": "lastTransitionTime",
        "heartbeat": "lastHeartbeatTime",
    }
    return Condition(**{name: clean(item.get(field)) for name, field in words.items()})


class Pod(Struct):
    """One pod. `requests` are its GPU resources, `owner` its controller as `Kind/name`, empty without one.

    `node` is empty until the scheduler has bound it; `problems` say why it does not run, as conditions and states do. `created`
    is an RFC 3339 time, and so is `ends`, by which it was to have ended: empty unless it is being deleted. `finalizers` keep
    it after that. `claims` are its ResourceClaims, `by_claim` the names in its limits for which one of them was made, and
    `selector` its nodeSelector.
    """

    namespace: str
    name: str
    phase: str
    node: str = ""
    owner: str = ""
    requests: Mapping[str, int] = NOTHING
    containers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    labels: Mapping[str, str] = NOTHING
    created: str = ""
    ends: str = ""
    finalizers: tuple[str, ...] = ()
    uid: str = ""
    claims: tuple[PodClaim, ...] = ()
    by_claim: frozenset[str] = frozenset()
    selector: Mapping[str, str] = NOTHING

    @property
    def full_name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def holds(self) -> bool:
        """Whether it may have devices: it is bound to a node and has not ended."""
        return bool(self.node) and bool(self.requests) and self.phase not in {"Succeeded", "Failed"}


def pod(item: Json) -> Pod:
    """Return the pod of this object."""
    metadata, spec, status = (mapping(item, part) for part in ("metadata", "spec", "status"))
    owner = next((one for one in mappings(metadata, "ownerReferences") if one.get("controller") is True), {})
    return Pod(
        namespace=clean(metadata.get("namespace")),
        name=clean(metadata.get("name")),
        phase=clean(status.get("phase")) or "Unknown",
        node=clean(spec.get("nodeName")),
        owner=f"{clean(owner.get('kind'))}/{clean(owner.get('name'))}" if owner else "",
        requests=(pod_requests(spec, lambda container: gpus(container_resources(container))) or NOTHING),
        containers=tuple(clean(one.get("name")) for one in mappings(spec, "containers")),
        problems=tuple(_problems(status)),
        labels={clean(key): clean(value) for key, value in mapping(metadata, "labels").items() if str(key).startswith(PREFIX)},
        created=clean(metadata.get("creationTimestamp")),
        ends=clean(metadata.get("deletionTimestamp")),
        finalizers=tuple(map(clean, texts(metadata, "finalizers"))),
        uid=clean(metadata.get("uid")),
        claims=tuple(_pod_claims(spec, status)),
        by_claim=frozenset(clean(resource) for _, resource, _ in claimed_limits(status)),
        selector={clean(key): clean(value) for key, value in mapping(spec, "nodeSelector").items()} or NOTHING,
    )


def runtime_pod(item: Json) -> Pod:
    """Return a pod of our DaemonSets: the node that it is for is known before it is scheduled. Problems are those of now."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    problems = tuple(_problems(status, with_past=False))
    return replace(pod(item), node=clean(spec.get("nodeName")) or _destined(spec), problems=problems)


def pod_with_profiles(item: Json) -> Pod:
    """Return a pod that mounts the ConfigMap of our profiles; any other without a name."""
    volumes = [*mappings(mapping(item, "spec"), "volumes")]
    sources = [*volumes, *(one for volume in volumes for one in mappings(mapping(volume, "projected"), "sources"))]
    mounts = any(mapping(one, "configMap").get("name") == PROFILES for one in sources)
    return pod(item) if mounts else replace(pod(item), name="")


def _destined(spec: Json) -> str:
    """Return the node to which a DaemonSet's controller binds a pod, by the field that it adds to the pod's affinity."""
    affinity = mapping(mapping(spec, "affinity"), "nodeAffinity")
    terms = mappings(mapping(affinity, "requiredDuringSchedulingIgnoredDuringExecution"), "nodeSelectorTerms")
    fields = (one for term in terms for one in mappings(term, "matchFields"))
    return next((clean(name) for one in fields if one.get("key") == "metadata.name" for name in texts(one, "values")), "")


def _problems(status: Json, *, with_past: bool = True) -> Iterable[str]:
    for one in mappings(status, "conditions"):
        if (one.get("type"), one.get("status")) in (("PodScheduled", "False"), ("DisruptionTarget", "True")):
            yield f"{clean(one.get('reason'))}: {clean(one.get('message'))}"
    for kind in ("initContainerStatuses", "containerStatuses"):
        for one in mappings(status, kind):
            state = mapping(one, "state")
            past = mapping(mapping(one, "lastState"), "terminated") if with_past else NOTHING
            stopped = mapping(state, "waiting") or mapping(state, "terminated") or past
            if stopped and clean(stopped.get("reason")) not in {"Completed", "ContainerCreating", "PodInitializing"}:
                detail = f": {clean(stopped['message'])}" if stopped.get("message") else ""
                yield f"container {clean(one.get('name'))}: {clean(stopped.get('reason'))}{detail}"
            elif with_past and kind == "containerStatuses" and "running" in state and one.get("ready") is False:
                yield f"container {clean(one.get('name'))}: runs and is not ready"
            yield from _unhealthy(one)
    if status.get("reason") or status.get("message"):
        yield f"{clean(status.get('reason'))}: {clean(status.get('message'))}"


def _unhealthy(container: Json) -> Iterable[str]:
    """Yield the devices of a container that kubelet says are not healthy, as plugins and DRA drivers report them (KEP-4680)."""
    for one in mappings(container, "allocatedResourcesStatus"):
        for device in mappings(one, "resources"):
            if device.get("health") == "Unhealthy":
                name, what = clean(device.get("resourceID")), clean(one.get("name"))
                yield f"container {clean(container.get('name'))}: Unhealthy device {name} of {what}"


def _pod_claims(spec: Json, status: Json) -> Iterable[PodClaim]:
    """Yield the claims that a pod names, and the one that the scheduler made for its limits."""
    for name, claim, template_name in pod_claims(spec, status):
        yield PodClaim(name=clean(name), claim=clean(claim), template=clean(template_name))
    of_limits = clean(mapping(status, "extendedResourceClaimStatus").get("resourceClaimName"))
    if of_limits:
        yield PodClaim(name="", claim=of_limits)


class DaemonSet(Struct):
    """The DaemonSet of one pool: the terms and labels by which it selects nodes, and the policy's digest."""

    name: str
    pool: str
    policy: str = ""
    terms: tuple[Mapping[str, Any], ...] | None = None
    node_selector: Mapping[str, str] = NOTHING
    image: str = ""
    ready: int = 0


def daemonset(item: Json) -> DaemonSet:
    """Return the DaemonSet of this object."""
    metadata, status = mapping(item, "metadata"), mapping(item, "status")
    template = mapping(mapping(item, "spec"), "template")
    spec, marks = mapping(template, "spec"), mapping(mapping(template, "metadata"), "annotations")
    affinity = mapping(mapping(spec, "affinity"), "nodeAffinity")
    required = mapping(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    containers = [*mappings(spec, "containers")]
    return DaemonSet(
        name=clean(metadata.get("name")),
        pool=clean(mapping(metadata, "labels").get(POOL_LABEL)),
        policy=clean(marks.get(POLICY_ANNOTATION)),
        terms=tuple(map(_term, mappings(required, "nodeSelectorTerms"))) if required else None,
        node_selector={clean(key): clean(value) for key, value in mapping(spec, "nodeSelector").items()},
        image=clean(containers[0].get("image")) if containers else "",
        ready=_number(status.get("numberReady")),
    )


def _term(item: Json) -> Json:
    parts = ("matchExpressions", "matchFields")
    return {part: [{**one, "values": texts(one, "values")} for one in mappings(item, part)] for part in parts}


class RecordedEvent(Struct):
    """One Event of the node runtime, the scheduler or kubelet. `time` is RFC 3339 as text, empty if unknown."""

    namespace: str
    kind: str
    name: str
    reason: str
    message: str
    time: str = ""
    count: int = 1


def event(item: Json) -> RecordedEvent:
    """Return the Event of this object."""
    about, series = mapping(item, "involvedObject"), mapping(item, "series")
    times = (series.get("lastObservedTime"), item.get("lastTimestamp"), item.get("eventTime"), item.get("firstTimestamp"))
    return RecordedEvent(
        namespace=clean(about.get("namespace")),
        kind=clean(about.get("kind")),
        name=clean(about.get("name")),
        reason=clean(item.get("reason")),
        message=clean(item.get("message")),
        time=next((clean(time) for time in times if time), ""),
        count=max(_number(series.get("count")), _number(item.get("count")), 1),
    )


class LiveQuota(Struct):
    """One ResourceQuota: what of it is about GPUs, as resource → number, without the prefix `requests.`."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]


def quota(item: Json) -> LiveQuota:
    """Return the quota of this object, with its limits on GPUs only."""
    metadata, status = mapping(item, "metadata"), mapping(item, "status")
    hard = _quota_gpus(mapping(mapping(item, "spec"), "hard"))
    used = _quota_gpus(mapping(status, "used"))
    return LiveQuota(namespace=clean(metadata.get("namespace")), name=clean(metadata.get("name")), hard=hard, used=used)


def _quota_gpus(numbers: Json) -> Mapping[str, int]:
    return gpus({backends.quota_resource(str(key)): value for key, value in numbers.items()})


class ConfigMap(Struct):
    """One of our ConfigMaps, with its texts as they are: they are compared, and printed only through `wording.clean`."""

    name: str
    data: Mapping[str, str]


def config_map(item: Json) -> ConfigMap:
    """Return the ConfigMap of this object; its texts are not for printing."""
    data = {str(key): value for key, value in mapping(item, "data").items() if isinstance(value, str)}
    return ConfigMap(name=clean(mapping(item, "metadata").get("name")), data=data)


class OperatorObject(Struct):
    """One of our objects for a vendor's operator, with its specification as it is: it is compared, and printed only clean."""

    kind: str
    name: str
    spec: Mapping[str, Any] = NOTHING


def operator_object(kind: str, item: Json) -> OperatorObject:
    """Return an object of a vendor's operator; its specification is not for printing."""
    return OperatorObject(kind=kind, name=clean(mapping(item, "metadata").get("name")), spec=mapping(item, "spec"))


def configs_of(vendor: GpuVendor) -> str:
    """Return `ReadFailure.what` of the ConfigMaps beside a vendor's operator."""
    return f"configmaps of {vendor.name}'s operator"


class Usage(Struct):
    """One container's memory on one device, in bytes, from the runtime's metrics. `cap` None: no cap."""

    node: str
    namespace: str
    pod: str
    container: str
    gpu: str
    used: int | None = None
    cap: int | None = None
    is_over: bool = False


class RuntimeMetrics(Struct):
    """What the runtime of one node reports; counters since that runtime's start."""

    node: str
    usages: tuple[Usage, ...] = ()
    kills: int = 0
    evictions: int = 0
    warnings: int = 0
    is_paused: bool = False
    would_act: int = 0


class ReadFailure(Struct):
    """Something that was not read: what, why, and what would allow it."""

    what: str
    why: str
    hint: str = ""


class Snapshot(Struct):
    """Everything that was read. A list that could not be read is empty, and `unseen` has it. `runtime` are its own pods.

    `starting`: pods of the selected node that have not started and mount the ConfigMap of our profiles.

    `dra`: what NVIDIA's DRA driver offers and has given; None where no pool and no node is of it, or was.

    `refused`: how many requests the API server would have refused if our policies denied; None: not queried.
    """

    namespace: str
    nodes: tuple[LiveNode, ...] = ()
    pods: tuple[Pod, ...] = ()
    runtime: tuple[Pod, ...] = ()
    starting: tuple[Pod, ...] = ()
    quotas: tuple[LiveQuota, ...] = ()
    configs: Mapping[str, ConfigMap] = NOTHING
    operator_objects: tuple[OperatorObject, ...] = ()
    daemonsets: tuple[DaemonSet, ...] = ()
    events: tuple[RecordedEvent, ...] = ()
    values: Mapping[str, Any] | None = None
    metrics: tuple[RuntimeMetrics, ...] = ()
    refused: int | None = None
    dra: DraObjects | None = None
    unseen: tuple[ReadFailure, ...] = ()

    def has_seen(self, what: str) -> bool:
        """Whether a list such as `pods` was read."""
        return all(one.what != what for one in self.unseen)


def gpus(numbers: Json) -> Mapping[str, int]:
    """Return the GPU resources of any vendor and our DeviceClasses among these quantities; a fraction is rounded up."""
    found = {}
    for name, quantity in numbers.items():
        if name.startswith(_GPUS):
            amount = units(quantity)
            if amount is not None:
                found[clean(name)] = amount
    return found or NOTHING


def document(text: str) -> Any:
    """Return a JSON document of a ConfigMap, None if it is not one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(value: object) -> int:
    return 0 if isinstance(value, bool) or not isinstance(value, int) else value
