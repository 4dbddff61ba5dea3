"""Snapshot: what was read of a running cluster, as values, and what could not be read. Pure.

All texts are safe to print: `views` has made them so. Resources are those that are GPUs.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.cluster.live.devices import DraObjects, PodClaim
from gpushare.facts import vendors
from gpushare_node.contract.struct import NOTHING, Struct

PLUGIN_LABELS = tuple(filter(None, (vendor.plugin_label for vendor in vendors.VENDORS.values())))
LAYOUT_LABELS = tuple(vendor.layout_label for vendor in vendors.VENDORS.values() if not vendor.plugin_label)
"""What the node runtime sets where the vendor's plugin follows no label."""
CONDITION = "GPUShareReady"
PROFILES = "gpushare-profiles"
"""These are names of the node runtime: docs/bundle.md."""

MANAGER_PROFILES = "gpushare-dcm"
"""The ConfigMap of our chart with the file of AMD's config manager."""

AMD_CONFIGS = "configmaps of AMD's operator"
"""`ReadFailure.what` of the ConfigMaps beside AMD's operator."""

RUNTIME_PODS = "pods of the runtime"
"""`ReadFailure.what` of the node runtime's own pods."""

OTHER_PODS = "pods of other namespaces"
"""`ReadFailure.what` of a Snapshot that was restricted to one namespace."""


class ReadFailure(Struct):
    """Something that was not read: what, why, and what would allow it."""

    what: str
    why: str
    hint: str = ""


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

    `would` is the document of the annotation `gpushare.dev/would`, None without a readable one; its texts are clean.
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


class Pod(Struct):
    """One pod. `requests` are its GPU resources, `owner` its controller as `Kind/name`, empty without one.

    `node` is empty until the scheduler has bound it; `problems` say why it does not run, as conditions and states do. `created`
    is an RFC 3339 time. `claims` are its ResourceClaims, `by_claim` the names in its limits for which one of them was made, and
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


class LiveQuota(Struct):
    """One ResourceQuota: what of it is about GPUs, as resource → number, without the prefix `requests.`."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]


class ConfigMap(Struct):
    """One of our ConfigMaps, with its texts as they are: they are compared, and printed only through `views.clean`."""

    name: str
    data: Mapping[str, str]


class DeviceConfig(Struct):
    """One of our DeviceConfigs of AMD's operator, with its specification as it is: it is compared, and printed only clean."""

    name: str
    spec: Mapping[str, Any] = NOTHING


class DaemonSet(Struct):
    """The DaemonSet of one pool: the terms and labels by which it selects nodes, and the policy's digest."""

    name: str
    pool: str
    policy: str = ""
    terms: tuple[Mapping[str, Any], ...] | None = None
    node_selector: Mapping[str, str] = NOTHING
    image: str = ""
    ready: int = 0


class RecordedEvent(Struct):
    """One Event of the node runtime, the scheduler or kubelet. `time` is RFC 3339 as text, empty if unknown."""

    namespace: str
    kind: str
    name: str
    reason: str
    message: str
    time: str = ""
    count: int = 1


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
    device_configs: tuple[DeviceConfig, ...] = ()
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
