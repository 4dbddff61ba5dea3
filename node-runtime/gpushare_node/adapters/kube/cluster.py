"""Cluster: the runtime's interface to the API server, in this project's terms: its base class and its values.

Everything is about this node and the pods on it. Labels under nvidia.com/gpu.deploy.* belong to gpu-operator: the
runtime pauses and restores them, and never owns them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, StrEnum

from gpushare_node.adapters.kube.slices import SliceView
from gpushare_node.contract.names import (
    BACKEND_LABEL,
    NO_BACKEND,
    POOL_LABEL,
    REPARTITIONING_TAINTS,
    workload,
)
from gpushare_node.contract.policy import Backend, Vendor
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field
from gpushare_node.vendors import LAYOUT_TAINTS, of

_BACKENDS = {backend.label: backend for backend in Backend}
PLUGIN_DEPLOY_LABEL = f"{of(Vendor.NVIDIA).deploy_labels}device-plugin"
"""Whether gpu-operator runs its device plugin on the node."""
PLUGIN_LABEL = of(Vendor.NVIDIA).plugin_label
MIG_LABEL = of(Vendor.NVIDIA).layout_label
CHANGE_TAINTS = (*REPARTITIONING_TAINTS, *LAYOUT_TAINTS)
"""All that a node has only while its GPUs are changed."""


class ClusterError(Exception):
    """A request that failed. `status` None: no answer, try again later. The text names the request and the server's reason.

    `causes` are the reasons of the causes in the server's Status, if it has any.
    """

    def __init__(self, request: str, status: int | None, reason: str, causes: frozenset[str] = frozenset()) -> None:
        super().__init__(f"{request}: {reason}" if status is None else f"{request}: {status} {reason}")
        self.request = request
        self.status = status
        self.causes = causes


class Taint(Struct):
    """A taint of the node."""

    key: str
    effect: str
    value: str = ""


class NodeView(Struct):
    """The node as the API server returns it.

    `allocatable` has resources of GPUs' vendors only; `owners` maps labels to their field managers.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    owners: Mapping[str, str] = field(default_factory=dict)

    @property
    def backend(self) -> Backend | None:
        """Which back end may offer the node's GPUs; None: neither may."""
        label = self.labels.get(BACKEND_LABEL)
        return None if label == NO_BACKEND else _BACKENDS.get(label, _BACKENDS[None])

    @property
    def has_claims(self) -> bool:
        """Whether the node's GPUs may be offered to claims."""
        return self.backend is not None and self.backend.has_claims

    def describe_drift(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return a text for each of these labels that is missing or has another value now.

        The writer of a changed label is known. A removed label has no field manager: the runtime of a pool that handed the node
        over removed it, or a person.
        """
        lost = sorted(name for name, value in labels.items() if self.labels.get(name) != value)
        return tuple(
            f"{name} was rewritten by {self.owners.get(name) or 'an unknown writer'}"
            if name in self.labels
            else f"{name} was removed"
            for name in lost
        )


_FUTURE_SECONDS = 1800
"""No clock that is right for now drifts as far from the one that recorded a start."""


class PodClaim(Struct):
    """A ResourceClaim that a pod uses; `name` is empty while it is not known.

    `requests`: which of the claim's requests each container uses, by the container's name; an empty one means all.
    """

    name: str
    requests: Mapping[str, frozenset[str]]


class PodView(Struct):
    """A pod of this node. `uids`: its own, and for a static pod also the one that kubelet and cgroups use.

    `containers` are names by the container runtime's id, of all kinds of containers. `owner` is the uid of its controller,
    `controller` its kind and name, both empty without one. `started`: when the running containers were started, in seconds
    since 1970. `claims` are those through which it may have devices (DRA), of whatever driver. `resources` are the names of
    GPU resources that it requests, of whatever plugin, without those that it has by a claim. `is_gone`: the API server no
    longer lists it, but its processes may still run. `is_disrupted`: its status says that it is moved, and by whom.
    """

    uids: tuple[str, ...]
    namespace: str
    name: str
    labels: Mapping[str, str]
    phase: str
    is_terminating: bool
    owner: str
    containers: Mapping[str, str]
    controller: str = ""
    started: Mapping[str, float] = field(default_factory=dict)
    claims: tuple[PodClaim, ...] = ()
    resources: frozenset[str] = frozenset()
    is_gone: bool = False
    is_disrupted: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the pod has ended and will never run again."""
        return self.phase in {"Succeeded", "Failed"}

    def older_than(self, today: float) -> frozenset[str]:
        """Return the running containers that were started before this date.

        A start far in the future was recorded by a clock that was ahead, or ours is behind now.
        """
        return frozenset(run for run, at in self.started.items() if at < today or at > today + _FUTURE_SECONDS)


_DAEMON = "DaemonSet/"


def pools_of(pods: Iterable[PodView], namespace: str) -> frozenset[str]:
    """Return the pools whose node runtime has one of these pods. A terminating pod still counts: it may be at work.

    Known are our pods by our namespace and our DaemonSet's name, not by its uid: one that is deleted has pods at work too.
    """
    ours = ((pod.labels.get(POOL_LABEL, ""), pod) for pod in pods if pod.namespace == namespace and not pod.has_ended)
    return frozenset(pool for pool, pod in ours if pool and pod.controller == f"{_DAEMON}{workload(pool)}")


def platform_pods(pods: Iterable[PodView], namespaces: frozenset[str] | None) -> tuple[PodView, ...]:
    """Return the pods of DaemonSets in the platform's namespaces: only their labels say which program a pod is.

    Any tenant may write a label. `namespaces` None: they are unknown, and the pods of every DaemonSet may be the platform's.
    """
    return tuple(
        pod for pod in pods if pod.controller.startswith(_DAEMON) and (namespaces is None or pod.namespace in namespaces)
    )


class EventType(StrEnum):
    """The two types of Events in Kubernetes."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(Struct):
    """An Event on the node (`pod` None) or on a pod. Equal Events are counted, not repeated."""

    type: EventType
    reason: str
    message: str
    pod: PodView | None = None


class PodEvent(Struct):
    """An Event that another program has made of a pod. `at` is its last time, in seconds since 1970."""

    reason: str
    message: str
    at: float


class EventCounts(Struct):
    """The counts of sent and lost Events so far.

    `refused`: the server rejected it permanently (no permission, no such namespace); `dropped`: the queue was full.
    """

    sent: int = 0
    refused: int = 0
    dropped: int = 0


class Eviction(Enum):
    """The result of an eviction. EVICTED: the pod is terminating.

    REFUSED: a disruption budget does not allow it, try again later. THROTTLED: not decided yet, try again soon. FORBIDDEN: the
    runtime has no permission, now or later. GONE: that pod no longer exists.
    """

    EVICTED = "evicted"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    GONE = "gone"


class SlotResult(Struct):
    """Whether a node may be changed now; if not, after how many seconds it should ask again.

    `former`: the node that held this slot before and let it expire. `holder`: a node that is changed instead; empty if none is.
    """

    is_held: bool
    pause_seconds: float = 0.0
    former: str = ""
    holder: str = ""


class Cluster:
    """The API server, as the runtime uses it. This class is a node that has none: no labels, taints or pods.

    `node_client.NodeClient` speaks to the server. There every method that is not described as queued can raise ClusterError.
    """

    has_server = False
    """Whether the run uses an API server."""

    @property
    def namespace(self) -> str:
        """Our own; empty without a server."""
        return ""

    def record_event(self, event: Event) -> None:
        """Queue the Event: never raises, never waits; it is sent when the API server is reachable, unless the queue is full.

        Without a server the log alone has its text.
        """

    def event_counts(self) -> EventCounts:
        """Return the counts of Events. Sends no request."""
        return EventCounts()

    def evict(self, pod: PodView, *, is_forced: bool = False, is_moved: bool = False) -> Eviction:
        """Evict a pod of this node, if its disruption budget allows it or `is_forced`.

        A pod that `is_moved`, and is not ended for what it did, first gets the condition that says so to its controller.
        """
        return Eviction.REFUSED

    def node(self) -> NodeView:
        """Read this node; a request to leave the pool is included only if its Job may still run."""
        return NodeView(name="", uid="", labels={}, annotations={}, taints=(), allocatable={})

    def pods(self) -> tuple[PodView, ...]:
        """Read the pods of this node, in any phase. Without a server it is unknown which run: see `RunContext.holders`."""
        return ()

    def slices(self, driver: str) -> tuple[SliceView, ...]:
        """Read the ResourceSlices that this DRA driver has of this node. One page: more slices than that are an error."""
        return ()

    def delete_slice(self, name: str) -> None:
        """Delete a ResourceSlice of this node. If it is gone already, that is not an error."""

    def extended_names(self, classes: Collection[str]) -> frozenset[str]:
        """Read by which resource names pods may also ask for devices of these DeviceClasses. One that is gone has none."""
        return frozenset()

    def events_of(self, pod: PodView) -> tuple[PodEvent, ...]:
        """Read the Events on the pod of this name, the newest first: those of some programs have no uid."""
        return ()

    def selects(self, node: NodeView) -> bool:
        """Whether the pool's DaemonSet selects the node by more than our own label; False if it does not exist."""
        return True

    def has_pool(self) -> bool:
        """Whether the pool's DaemonSet exists, and is not being deleted."""
        return True

    def apply_labels(self, labels: Mapping[str, str]) -> None:
        """Own exactly these labels: server-side apply, forced, as field manager `gpushare`.

        Labels that were applied before and are missing now are removed. A deleted node is not created again.
        """

    def write_labels(self, labels: Mapping[str, str | None]) -> None:
        """Write those of these labels that differ, without owning them: others do. None removes."""

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Write those of these annotations that differ; None removes."""

    def change_taints(
        self, *, add: Sequence[Taint] = (), remove: Sequence[str] = (), labels: Mapping[str, str] | None = None
    ) -> None:
        """Write labels, add taints and remove those of these keys, in one JSON patch that tests for the taints as read."""

    def set_condition(self, reason: ConditionReason, message: str) -> None:
        """Set GPUShareReady. If the node has it already, nothing is written but a heartbeat every ten minutes."""

    def clear_condition(self) -> None:
        """Remove GPUShareReady."""

    def take_slot(self, limit: int | str) -> SlotResult:
        """Acquire a rollout slot of the pool, if one is free, or keep the one that this node has. `limit` is maxUnavailable.

        Sends an Event if another node lost that slot. Without a server no other node shares the limit.
        """
        return SlotResult(is_held=True)

    def find_slot(self) -> bool:
        """Whether this node has a slot already. Writes nothing."""
        return False

    def renew_slot(self) -> None:
        """Renew the slot, which expires otherwise. ClusterError with status 404: it has expired, another node may have it."""

    def release_slot(self) -> None:
        """Release the slot: another node may acquire it."""

    def delete_own_pod(self) -> None:
        """Delete our own pod to start again: the new pod's init container decides from the state that it finds."""
