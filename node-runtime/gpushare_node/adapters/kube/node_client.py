"""NodeClient: the `Cluster` that speaks to the API server. Writes only differences, and only the runtime's part of the node.

A write by the runtime is exactly one of: server-side apply of its own labels, a merge patch of single labels or annotations, a
JSON patch of taints, a strategic merge patch of its own condition, a write of its Leases. Reads come before writes. Beside the
node, a condition of the pool's DaemonSet names it if it fails: `FailureReport`. `is_selected` tells
whether a DaemonSet selects a node by more than what the runtime itself wrote on it.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from gpushare_node.adapters.kube import slices
from gpushare_node.adapters.kube.cluster import (
    Cluster,
    ClusterError,
    Event,
    EventCounts,
    EventType,
    Eviction,
    NodeView,
    PodEvent,
    PodView,
    SlotResult,
    Taint,
)
from gpushare_node.adapters.kube.connection import (
    APPLY_PATCH,
    CONFLICT,
    INVALID,
    JSON_PATCH,
    MERGE_PATCH,
    NOT_FOUND,
    STRATEGIC_PATCH,
    ApiRequest,
    Connection,
    Json,
    jitter,
)
from gpushare_node.adapters.kube.events import EventRecorder
from gpushare_node.adapters.kube.pod_identity import PodIdentity, is_active
from gpushare_node.adapters.kube.rollout_slots import RolloutSlots, SlotStore
from gpushare_node.adapters.kube.slices import SliceView
from gpushare_node.adapters.kube.views import DISRUPTION, FIELD_MANAGER, view_event, view_node, view_pod
from gpushare_node.contract import objects
from gpushare_node.contract.names import POLICY_ANNOTATION, POOL_LABEL, RELEASE_ANNOTATION, RUNTIME_LABEL, WOULD_ANNOTATION
from gpushare_node.contract.reasons import CONDITION, ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.clock import Clock, timestamp
from gpushare_node.reporting.log import EventReason
from gpushare_node.vendors import DEPLOY_LABELS

# The chart's DaemonSets select by node affinity: the intent's terms, or the label `gpushare.dev/pool` that keeps a node whose
# terms no longer match. That label is our own and proves nothing. Labels under nvidia.com/gpu.deploy remove GPU clients for a
# while, and do not remove a node from its pool.

_DEPLOY = (*DEPLOY_LABELS, RUNTIME_LABEL)
"""Labels by which gpu-operator, or an administrator, sends GPU clients away for a while: the pool keeps the node."""


def is_selected(daemonset: Json, node: NodeView) -> bool:
    """Whether the DaemonSet of this object selects the node for another reason than our own label."""
    spec = daemonset["spec"]["template"].get("spec") or {}
    selector = spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in selector.items() if not key.startswith(_DEPLOY)):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_counts(term) and matches(term, node) for term in required["nodeSelectorTerms"])


def matches(term: Json, node: NodeView) -> bool:
    """Whether the node selector term matches."""
    return objects.term_matches(term, node.name, node.labels, _DEPLOY)


def _counts(term: Json) -> bool:
    return all(one["key"] != POOL_LABEL for one in term.get("matchExpressions") or ())


_LOG = logging.getLogger(__name__)

WRITER = "gpushare-node"
"""The field manager of every write but applied labels, so that those writes do not count among the applied labels."""
HEARTBEAT_SECONDS = 600.0

_CHANGED_MEANWHILE = frozenset({CONFLICT, INVALID})
_ATTEMPTS = 5
MAX_MESSAGE = 1024
"""How much of a condition's message is written, in characters."""


class NodeClient(Cluster):
    """The runtime's node and its pods. Only one thread may use it; any thread may call `tell`."""

    has_server = True

    def __init__(
        self,
        connection: Connection,
        identity: PodIdentity,
        clock: Clock,
        events: EventRecorder,
        store: SlotStore,
    ) -> None:
        self._connection = connection
        self._place = identity
        self._clock = clock
        self._events = events
        self._leases = RolloutSlots(connection, identity, clock, store)
        self._evictions = EvictionClient(connection, clock)
        self._failure = FailureReport(connection, identity, WRITER)
        self._has_failed = False
        self._reported: tuple[ConditionReason, str] | None = None
        self._reported_at = 0.0
        self._since = ""

    @property
    def namespace(self) -> str:
        return self._place.namespace

    def node(self) -> NodeView:
        node = view_node(self._connection.get(self._place.node_path))
        request = node.annotations.get(RELEASE_ANNOTATION)
        if request is None or is_active(self._connection, self._place.namespace, request):
            return node
        self._forget_request(request)
        return replace(node, annotations={key: value for key, value in node.annotations.items() if key != RELEASE_ANNOTATION})

    def pods(self) -> tuple[PodView, ...]:
        found = self._connection.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={self._place.node}"})
        return tuple(view_pod(pod) for pod in found.get("items") or ())

    def slices(self, driver: str) -> tuple[SliceView, ...]:
        return read_node_slices(self._connection, self._place.node, driver)

    def delete_slice(self, name: str) -> None:
        self._connection.attempt(ApiRequest(method="DELETE", path=f"{slices.PATH}/{name}"), NOT_FOUND)

    def extended_names(self, classes: Collection[str]) -> frozenset[str]:
        found = (self._connection.find(f"{slices.CLASSES}/{name}") or {} for name in classes)
        return frozenset(str(name) for one in found if (name := (one.get("spec") or {}).get("extendedResourceName")))

    def events_of(self, pod: PodView) -> tuple[PodEvent, ...]:
        query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={pod.name}"}
        events = self._connection.get(f"/api/v1/namespaces/{pod.namespace}/events", query).get("items") or ()
        return tuple(sorted(map(view_event, events), key=lambda one: one.at, reverse=True))

    def selects(self, node: NodeView) -> bool:
        daemonset = self._daemonset()
        return daemonset is not None and is_selected(daemonset, node)

    def has_pool(self) -> bool:
        return self._daemonset() is not None

    def apply_labels(self, labels: Mapping[str, str]) -> None:
        node = self.node()
        mine = {label for label, owner in node.owners.items() if owner == FIELD_MANAGER}
        if mine == set(labels) and all(node.labels.get(label) == value for label, value in labels.items()):
            return
        # An apply with a uid creates nothing (409).
        metadata: Json = {"name": node.name, "uid": node.uid}
        # With an empty map the API server would list us as an owner of the node's labels for good.
        if labels:
            metadata["labels"] = dict(labels)
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        self._patch(body, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": "true"})

    def write_labels(self, labels: Mapping[str, str | None]) -> None:
        self._merge("labels", self.node().labels, labels)

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        self._merge("annotations", self.node().annotations, annotations)

    def change_taints(
        self, *, add: Sequence[Taint] = (), remove: Sequence[str] = (), labels: Mapping[str, str] | None = None
    ) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            node = self._connection.get(self._place.node_path)
            before = _taints(node)
            after = _tainted(before, add, remove)
            if after == before and not labels:
                return
            # Not for the resourceVersion, because kubelet writes the node all the time. If there are no taints, test for null.
            operations = [
                {"op": "test", "path": "/spec/taints", "value": before or None},
                {"op": "add", "path": "/spec/taints", "value": after},
            ]
            for name, value in (labels or {}).items():
                operations.append({"op": "add", "path": f"/metadata/labels/{name.replace('/', '~1')}", "value": value})
            try:
                self._patch(operations, JSON_PATCH, {"fieldManager": WRITER})
            except ClusterError as error:
                is_same = _taints(self._connection.get(self._place.node_path)) == before
                if error.status not in _CHANGED_MEANWHILE or attempt == _ATTEMPTS or is_same:
                    raise
                self._clock.sleep(jitter(0.2 * attempt))
            else:
                return

    def set_condition(self, reason: ConditionReason, message: str) -> None:
        reported = (reason, message[:MAX_MESSAGE])
        if self._reported != reported:
            # A write that fails may have reached the node all the same: then the next call reads what it has.
            self._reported = None
            self._since = self._replace_condition(reported, reason.value.is_ready)
        elif self._clock.now() - self._reported_at < HEARTBEAT_SECONDS:
            return
        else:
            self._write_condition({**condition_of(reported, reason.value.is_ready), "lastTransitionTime": self._since})
        self._reported, self._reported_at = reported, self._clock.now()
        self._report_failure(reported)

    def _replace_condition(self, reported: tuple[ConditionReason, str], is_ready: bool) -> str:
        """Write the condition if the node does not have it already. Return its lastTransitionTime."""
        before, after = self._condition(), condition_of(reported, is_ready)
        is_as_before = before.get("status") == after["status"]
        since = (before.get("lastTransitionTime") if is_as_before else None) or after["lastHeartbeatTime"]
        if any(before.get(key) != value for key, value in after.items() if key != "lastHeartbeatTime"):
            self._write_condition({**after, "lastTransitionTime": since})
        self._has_failed |= _is_failure(before)
        return str(since)

    def _report_failure(self, reported: tuple[ConditionReason, str] | None) -> None:
        """Set or remove the DaemonSet's condition for this node. If that fails, the next heartbeat tries again."""
        try:
            if reported is not None and reported[0].value.is_failure:
                self._has_failed = True
                self._failure.report(*reported)
            elif self._has_failed:
                self._failure.withdraw()
                self._has_failed = False
        except ClusterError as error:
            _LOG.warning("the condition of the DaemonSet could not be written: %s", error)

    def clear_condition(self) -> None:
        self._reported = None
        before = self._condition()
        if before:
            self._write_condition({"type": CONDITION, "$patch": "delete"})
        self._has_failed |= _is_failure(before)
        self._report_failure(None)

    def record_event(self, event: Event) -> None:
        self._events.add(event)

    def event_counts(self) -> EventCounts:
        return self._events.event_counts()

    def take_slot(self, limit: int | str) -> SlotResult:
        position = self._leases.take(limit)
        if position.former:
            text = f"Node {position.former} stopped renewing its Lease, and this node took it over: check {position.former}."
            self.record_event(Event(type=EventType.WARNING, reason=EventReason.TURN_EXPIRED.value, message=text))
        return position

    def find_slot(self) -> bool:
        return self._leases.find()

    def renew_slot(self) -> None:
        self._leases.renew()

    def release_slot(self) -> None:
        self._leases.end()

    def evict(self, pod: PodView, *, is_forced: bool = False, is_moved: bool = False) -> Eviction:
        return self._evictions.evict(pod, is_forced=is_forced, is_moved=is_moved)

    def delete_own_pod(self) -> None:
        path = f"/api/v1/namespaces/{self._place.namespace}/pods/{self._place.pod}"
        body = {"preconditions": {"uid": self._place.pod_uid}}
        self._connection.attempt(ApiRequest(method="DELETE", path=path, body=body), NOT_FOUND, CONFLICT)

    def _daemonset(self) -> Json | None:
        """Return the pool's DaemonSet; None if it is deleted or being deleted."""
        daemonset = self._connection.find(self._place.daemonset_path)
        return None if daemonset is None or daemonset["metadata"].get("deletionTimestamp") else daemonset

    def _forget_request(self, request: str) -> None:
        """Remove the annotation; the patch tests for the value that was read, because another Job may have replaced it."""
        path = f"/metadata/annotations/{RELEASE_ANNOTATION.replace('/', '~1')}"
        operations = [{"op": "test", "path": path, "value": request}, {"op": "remove", "path": path}]
        try:
            self._patch(operations, JSON_PATCH, {"fieldManager": WRITER})
        except ClusterError as error:
            if error.status not in _CHANGED_MEANWHILE:
                raise

    def close(self) -> None:
        """Close the open connections."""
        self._connection.close()

    def _merge(self, part: str, before: Mapping[str, str], desired: Mapping[str, str | None]) -> None:
        changes = {key: value for key, value in desired.items() if before.get(key) != value}
        if changes:
            self._patch({"metadata": {part: changes}}, MERGE_PATCH, {"fieldManager": WRITER})

    def _condition(self) -> Json:
        """Read the current condition; empty if the node has none."""
        return find_condition(self._connection.get(self._place.node_path))

    def _write_condition(self, condition: Json) -> None:
        body = {"status": {"conditions": [condition]}}
        self._patch(body, STRATEGIC_PATCH, {"fieldManager": WRITER}, part="/status")

    def _patch(self, body: object, content_type: str, query: Mapping[str, str], *, part: str = "") -> None:
        path = self._place.node_path + part
        self._connection.ask(ApiRequest(method="PATCH", path=path, query=query, body=body, content_type=content_type))


def read_node_slices(connection: Connection, node: str, driver: str) -> tuple[SliceView, ...]:
    """Read the ResourceSlices that a DRA driver has of a node. ClusterError, also for an answer that cannot be interpreted."""
    request = f"GET {slices.PATH}"
    found = connection.find(slices.PATH, {**slices.select_node(node, driver), "limit": str(slices.MAX_SLICES)})
    if found is None:
        return ()  # Without the API there is no DRA.
    try:
        if (found.get("metadata") or {}).get("continue"):
            raise ClusterError(request, None, f"the node has more than {slices.MAX_SLICES} slices")
        return slices.view_slices(found.get("items") or ())
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ClusterError(request, None, f"the answer cannot be read: {type(error).__name__}: {error}") from error


def _is_failure(condition: Json) -> bool:
    """Whether a condition, as it was read, has a reason that needs a person."""
    return any(reason.value.is_failure and reason.word == condition.get("reason") for reason in ConditionReason)


def _taints(node: Json) -> list[Json]:
    return (node.get("spec") or {}).get("taints") or []


def _tainted(before: Sequence[Json], add: Sequence[Taint], remove: Sequence[str]) -> list[Json]:
    """Return the new taints. Those of others stay unchanged, in their order and with all their fields."""
    new = {(one.key, one.effect): one for one in add}
    kept = [one for one in before if one["key"] not in remove and not _is_replaced(one, new.get((one["key"], one["effect"])))]
    there = {(container["key"], container["effect"]) for container in kept}
    added = [one for identity, one in new.items() if identity not in there]
    return kept + [{"key": one.key, "effect": one.effect, **({"value": one.value} if one.value else {})} for one in added]


def _is_replaced(before: Json, after: Taint | None) -> bool:
    return after is not None and (before.get("value") or "") != after.value


def find_condition(node: Json) -> Json:
    """Return the node's GPUShareReady; empty if it has none."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == CONDITION), {})


def condition_of(reported: tuple[ConditionReason, str], is_ready: bool) -> Json:
    """Return GPUShareReady as it is written, with a heartbeat of now."""
    reason, message = reported
    status = {"type": CONDITION, "status": str(is_ready), "reason": reason.word, "message": message}
    return {**status, "lastHeartbeatTime": timestamp()}


RECOUNT_SECONDS = 5.0
"""The disruption controller counts a deletion within a fraction of a second; under load it may take this long."""

_BUDGET = "DisruptionBudget"
"""The cause in an answer from a budget. Other answers with status 429 are about the server's own load."""

_ANSWERS = {
    403: Eviction.FORBIDDEN,
    NOT_FOUND: Eviction.GONE,
    CONFLICT: Eviction.GONE,
    INVALID: Eviction.GONE,  # Another pod has its name: a uid cannot be changed.
    429: Eviction.THROTTLED,
}
_MOVED = "GPUShareRepartitioning"
"""The reason of the condition of a pod that is moved; the fence permits no other."""


class EvictionClient:
    """How a pod of this node is evicted: the requests to the API server, and the meaning of its answers. Not thread-safe.

    An eviction with dryRun checks the budget; then the pod is deleted, by its uid. An Eviction object does not contain its
    pod's node, so no policy could restrict it to the node of a token; a deletion contains the pod itself. The budget does not
    count a dry run: until it has counted the deletion, it would allow the next pod too. So in each namespace, which is the
    scope of a budget, the next eviction waits for a pause; that two nodes are allowed one at the same moment remains possible.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._ended: dict[str, float] = {}
        """When a pod was last deleted, by namespace."""

    def evict(self, pod: PodView, *, is_forced: bool = False, is_moved: bool = False) -> Eviction:
        """Evict the pod with this uid, because another pod may have its name now. ClusterError if there is no usable answer.

        `is_forced`: without a check of its budget. `is_moved`: the pod first gets the condition that a plain deletion does not
        set. If its budget refuses then, Kubernetes takes the condition back after two minutes, and the next call sets it again.
        """
        now = self._clock.now()
        self._ended = {name: at for name, at in self._ended.items() if now - at < RECOUNT_SECONDS}
        if pod.namespace in self._ended and not is_forced:
            return Eviction.THROTTLED
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        options = {"preconditions": {"uid": pod.uids[0]}}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        ask = ApiRequest(method="POST", path=f"{path}/eviction", query={"dryRun": "All"}, body=eviction, is_repeatable=False)
        refusal = self._refusal(_announcement(pod, path)) if is_moved and not pod.is_disrupted else None
        if refusal is Eviction.FORBIDDEN:
            _LOG.warning(
                "the move of pod %s/%s cannot be announced on its status: its Job sees a crash", pod.namespace, pod.name
            )
            refusal = None
        refusal = refusal or (None if is_forced else self._refusal(ask))
        refusal = refusal or self._refusal(ApiRequest(method="DELETE", path=path, body=options))
        if refusal is not None:
            return refusal
        self._ended[pod.namespace] = now
        return Eviction.EVICTED

    def _refusal(self, request: ApiRequest) -> Eviction | None:
        """Send the request, and return why the server refuses it; None if it does not."""
        try:
            self._connection.ask(request)
        except ClusterError as error:
            if _BUDGET in error.causes:
                return Eviction.REFUSED
            if error.status in _ANSWERS:
                return _ANSWERS[error.status]
            raise
        return None


def _announcement(pod: PodView, path: str) -> ApiRequest:
    message = "The GPUs of the pod's node are divided in another way."
    condition = {"type": DISRUPTION, "status": "True", "reason": _MOVED, "message": message, "lastTransitionTime": timestamp()}
    body = {"metadata": {"uid": pod.uids[0]}, "status": {"conditions": [condition]}}
    query = {"fieldManager": WRITER}
    return ApiRequest(method="PATCH", path=f"{path}/status", query=query, body=body, content_type=STRATEGIC_PATCH)


_PREFIX = f"{CONDITION}."


class FailureReport:
    """The condition of the pool's DaemonSet that says on which node its policy fails, and why.

    A DaemonSet's numbers are the same for a node that waits and for one that has failed. The condition's type has the policy,
    `GPUShareReady.<digest>`, so a condition of an earlier policy no longer counts. Any node that fails may set it, and only the
    one that it names removes it. The controller of DaemonSets leaves conditions as they are.
    """

    def __init__(self, connection: Connection, identity: PodIdentity, writer: str) -> None:
        self._connection = connection
        self._path = identity.daemonset_path
        self._node = f"node {identity.node}: "
        self._writer = writer

    def report(self, reason: ConditionReason, message: str) -> None:
        """Set the condition for this node, unless it names another node. Raises ClusterError."""
        daemonset = self._read()
        policy = _policy(daemonset)
        if not policy:
            return
        kind, there = f"{_PREFIX}{policy}", {condition["type"]: condition for condition in _conditions(daemonset)}
        condition = {"type": kind, "status": "False", "reason": reason.word, "message": f"{self._node}{message}"[:MAX_MESSAGE]}
        before = there.pop(kind, None)
        if before is not None and (not self._is_own(before) or before.items() >= condition.items()):
            return
        self._write([{**condition, "lastTransitionTime": timestamp()}, *map(_deletion, there)])

    def withdraw(self) -> None:
        """Remove every such condition that names this node. Raises ClusterError."""
        own = [condition["type"] for condition in _conditions(self._read()) if self._is_own(condition)]
        if own:
            self._write([_deletion(kind) for kind in own])

    def _is_own(self, condition: Json) -> bool:
        return str(condition.get("message", "")).startswith(self._node)

    def _read(self) -> Json:
        """Read the DaemonSet; empty if there is none, as after a run by hand or during the release of the nodes."""
        return self._connection.find(self._path) or {}

    def _write(self, conditions: list[Json]) -> None:
        self._connection.ask(
            ApiRequest(
                method="PATCH",
                path=f"{self._path}/status",
                query={"fieldManager": self._writer},
                body={"status": {"conditions": conditions}},
                content_type=STRATEGIC_PATCH,
            )
        )


def _conditions(daemonset: Json) -> Iterator[Json]:
    found = (daemonset.get("status") or {}).get("conditions") or ()
    return (one for one in found if one["type"].startswith(_PREFIX))


def _policy(daemonset: Json) -> str:
    """Return the digest of the policy that the DaemonSet's pods bring to their nodes; empty if it has none."""
    template = (daemonset.get("spec") or {}).get("template") or {}
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(POLICY_ANNOTATION, ""))


def _deletion(kind: str) -> Json:
    return {"type": kind, "$patch": "delete"}


class ObservedNode(Struct):
    """The node for a runtime that only observes. It reads, and makes exactly one kind of write. Every method: ClusterError.

    That write is a patch of the node's status with our condition and the annotation `gpushare.dev/would`. Kubernetes ignores
    the spec in such a patch, so it cannot set a taint, whatever it contains; and the token has no right to another write.
    """

    connection: Connection
    identity: PodIdentity

    def node(self) -> NodeView:
        """Read this node. Unlike `NodeClient.node` it removes nothing."""
        return view_node(self.connection.get(self.identity.node_path))

    def pods(self) -> tuple[PodView, ...]:
        """Read the pods of this node, in any phase."""
        found = self.connection.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={self.identity.node}"})
        return tuple(view_pod(pod) for pod in found.get("items") or ())

    def publish(self, reason: ConditionReason, message: str, would: str) -> bool:
        """Set the condition and the annotation in one request. Writes nothing, and returns False, if the node has both."""
        node = self.connection.get(self.identity.node_path)
        before = find_condition(node)
        after = condition_of((reason, message[:MAX_MESSAGE]), reason.value.is_ready)
        is_told = all(before.get(key) == value for key, value in after.items() if key != "lastHeartbeatTime")
        if is_told and view_node(node).annotations.get(WOULD_ANNOTATION) == would:
            return False
        is_as_before = before.get("status") == after["status"]
        since = (before.get("lastTransitionTime") if is_as_before else None) or after["lastHeartbeatTime"]
        patch_status(self.connection, self.identity.node_path, would, {**after, "lastTransitionTime": since})
        return True


def forget(connection: Connection, node: Json) -> bool:
    """Remove the condition and the annotation from any node; return whether it had one of them. ClusterError."""
    view = view_node(node)
    if WOULD_ANNOTATION not in view.annotations and not find_condition(node):
        return False
    patch_status(connection, f"/api/v1/nodes/{view.name}", None, {"type": CONDITION, "$patch": "delete"})
    return True


def patch_status(connection: Connection, path: str, would: str | None, condition: Json) -> None:
    """Write the annotation (None removes it) and the condition. ClusterError."""
    body = {"metadata": {"annotations": {WOULD_ANNOTATION: would}}, "status": {"conditions": [condition]}}
    connection.ask(
        ApiRequest(
            method="PATCH",
            path=f"{path}/status",
            query={"fieldManager": WRITER},
            body=body,
            content_type=STRATEGIC_PATCH,
        )
    )
