"""Cluster: what the rest of the runtime knows of the API server, as one Protocol in this project's words. Values only.

Everything is about the runtime's own node and the pods on it. Labels under nvidia.com/gpu.deploy.* belong to gpu-operator: they
are paused and restored, never owned.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from typing import Protocol

from gpushare_node.core.structs import Struct, field
from gpushare_node.reporting.reasons import ConditionReason

POOL_LABEL = "gpushare.dev/pool"
PROFILE_LABEL = "gpushare.dev/profile"
PLUGIN_LABEL = "nvidia.com/device-plugin.config"
MIG_LABEL = "nvidia.com/mig.config"
RELEASE_ANNOTATION = "gpushare.dev/release"
"""Set by the uninstall Job on every node, taken away by it at the end: see `kube.requests`.

The node answers with `RELEASED_ANNOTATION`.
"""
RELEASED_ANNOTATION = "gpushare.dev/released"
FIRST_CAPS_ANNOTATION = "gpushare.dev/first-caps"
RETRY_ANNOTATION = "gpushare.dev/retry"
"""Set by people, to any value: what waits for its next attempt begins at once. The node takes it away."""
NOT_READY_TAINT = "gpushare.dev/not-ready"
REPARTITIONING_TAINT = "gpushare.dev/repartitioning"


class ClusterError(Exception):
    """A request that failed. `status` None: no answer, try again later. The text names the request and the server's reason.

    `causes` are the server's own words for why, where it gives any.
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
    """The node as the API server has it.

    `allocatable` holds resources of nvidia.com/ only; `owners` names the field managers of labels.
    """

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    is_unschedulable: bool
    owners: Mapping[str, str] = field(default_factory=dict)

    def taken(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What became of those of these labels that say something else now, in words.

        Who wrote one is known. Nobody's name stays on one that is gone: a pool's runtime that hands the node over, or a person.
        """
        lost = sorted(name for name, value in labels.items() if self.labels.get(name) != value)
        return tuple(
            f"{name} was rewritten by {self.owners.get(name) or 'an unknown writer'}" if name in self.labels
            else f"{name} was removed"
            for name in lost
        )


class PodView(Struct):
    """A pod of this node. `uids`: its own, and for a static pod the one that kubelet and cgroups know it by.

    `containers` are names by the container runtime's id, of all kinds of containers. `owner` is the uid of its controller,
    `controller` its kind and name, both empty without one. `started`: when those that run now were started, in seconds since
    1970. `has_claims`: it may have been given devices by claims (DRA), of which nothing is known here. `resources` are the
    names of NVIDIA's devices that it asks for. `is_gone`: the API server shows it no more, and its processes may run on.
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
    has_claims: bool = False
    resources: frozenset[str] = frozenset()
    is_gone: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it will never run again."""
        return self.phase in {"Succeeded", "Failed"}


class EventType(StrEnum):
    """Kubernetes knows these two."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(Struct):
    """Something to tell, on the node (`pod` None) or on a pod. Equal ones are counted, not repeated."""

    type: EventType
    reason: str
    message: str
    pod: PodView | None = None


class EventCounts(Struct):
    """What became of Events so far.

    `refused`: the server said no for good (no right, no such namespace); `dropped`: too many waited.
    """

    told: int = 0
    refused: int = 0
    dropped: int = 0


class Eviction(Enum):
    """What came of an eviction. EVICTED: the pod is ending.

    REFUSED: a disruption budget said no, ask again later. THROTTLED: nobody has judged it yet, ask again soon. FORBIDDEN: the
    runtime has no right to it, now or later. GONE: that pod is no more.
    """

    EVICTED = "evicted"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    GONE = "gone"


class QueuePosition(Struct):
    """Whether a node may be changed now; if not, for how long it need not ask again.

    `former`: the node that held this turn, and let it expire.
    """

    is_held: bool
    pause_seconds: float = 0.0
    former: str = ""


class EventSink(Protocol):
    """What enforcement asks of the API server in its cycle. Works without one too: then nobody hears, and nobody is moved."""

    def tell(self, event: Event) -> None:
        """Queued: never raises, never waits; told when the API server can be reached, unless too many wait already."""
        ...

    def evict(self, pod: PodView, *, is_forced: bool = False) -> Eviction:
        """End a pod of the own node, if its disruption budget permits it or `is_forced`. ClusterError."""
        ...


class Cluster(EventSink, Protocol):
    """The API server. Everything that is not said to be queued raises ClusterError."""

    def node(self) -> NodeView:
        """The own node, read now; of a request to release it, one of which the Job still lives."""
        ...

    def pods(self) -> tuple[PodView, ...]:
        """The pods of the own node, read now, in any phase."""
        ...

    def selects(self, node: NodeView) -> bool:
        """Whether the pool's DaemonSet selects the node by more than the label that we set.

        A DaemonSet that is gone selects nothing.
        """
        ...

    def apply_labels(self, labels: Mapping[str, str]) -> None:
        """Own exactly these labels: server-side apply, forced, as field manager `gpushare`.

        What was applied before and is missing goes.
        """
        ...

    def write_labels(self, labels: Mapping[str, str | None]) -> None:
        """Write labels that others own, without owning them: merge patch; None removes."""
        ...

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Write annotations; None removes."""
        ...

    def change_taints(
        self, *, add: Sequence[Taint] = (), remove: Sequence[str] = (), labels: Mapping[str, str] | None = None
    ) -> None:
        """Write labels, add taints and remove those of these keys, in one JSON patch that tests for the taints as they were."""
        ...

    def set_condition(self, reason: ConditionReason, message: str) -> None:
        """Say GPUShareReady. Writes nothing when it says so already, its heartbeat apart."""
        ...

    def clear_condition(self) -> None:
        """Take GPUShareReady away."""
        ...

    def told(self) -> EventCounts:
        """What became of what was to be told. Asks nobody."""
        ...

    def take_turn(self, limit: int | str) -> QueuePosition:
        """Take a turn of the pool, if one is free, or keep the one that this node has. `limit` is maxUnavailable."""
        ...

    def find_turn(self) -> bool:
        """Whether this node has a turn already. Writes nothing."""
        ...

    def renew_turn(self) -> None:
        """Say that the turn is still needed; it expires otherwise. ClusterError of status 404: it has."""
        ...

    def end_turn(self) -> None:
        """Give the turn back: another node may take it."""
        ...

    def delete_own_pod(self) -> None:
        """Start over: the new pod's init container decides from what it finds."""
        ...
