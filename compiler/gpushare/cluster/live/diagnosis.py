"""Why a node is not ready, and why a pod waits, was refused or was killed: causes, each with what to do. Pure.

The words of refusals are those of kubelet's device manager (pkg/kubelet/cm/devicemanager/manager.go), of NVIDIA's device plugin
(internal/plugin/server.go) and DRA driver (device_state.go and validate.go), and of the CDI library of the container runtimes.
"""

from collections.abc import Iterator

from gpushare.cluster.live import belief, live_pools, pending_claims, slices, status
from gpushare.cluster.live.claims import DRIVER, is_ours
from gpushare.cluster.live.live_pools import LivePools
from gpushare.cluster.live.objects import PROFILES, LiveNode, Pod, RecordedEvent, Snapshot
from gpushare.cluster.live.pending_claims import Cause
from gpushare.cluster.live.slices import NodeOffer
from gpushare.core.wording import join_first, join_words
from gpushare_node.contract.names import OUR_TAINTS, RUNTIME_LABEL
from gpushare_node.contract.reasons import REASONS
from gpushare_node.contract.struct import Struct

_AGAIN = "Delete the pod, so that its controller makes a new one"

_IF_AGAIN = f"{_AGAIN}; if that repeats, `gpushare explain NODE` says what is wrong."
REMEDIES = {
    "maximum request size for shared resources": (
        "Request one share per container. A request for more is refused; it would add neither memory nor speed."
    ),
    "unresolvable CDI devices": (
        "The container runtime knows no such device: its CDI specification is missing or old. Check the container toolkit's "
        "pod on the node, or run `nvidia-ctk cdi generate` there; then delete the pod."
    ),
    "gpu is lost": ("A GPU has fallen off the bus. `gpushare explain NODE` names it; drain and reboot the node."),
    "unknown device": (
        "Kubelet gave the pod a device that the device plugin no longer has. Restart the plugin's pod on the node, then delete "
        "this pod."
    ),
    "unregistered device": (
        "No device plugin is registered for the resource: after a reboot kubelet starts pods before the plugin is back. "
        + _IF_AGAIN
    ),
    "unhealthy devices": (
        "The device plugin offers no healthy device: after a reboot kubelet starts pods before the plugin is back, and an XID "
        "makes a GPU unhealthy. " + _IF_AGAIN
    ),
    "unhealthy device": (
        "The plugin or the driver reports a fault of the pod's GPU: `gpushare explain NODE` may name it. The pod stays on the "
        "GPU until it is deleted."
    ),
    "number of devices unavailable": (
        "Kubelet counts devices as taken by pods that have ended, or the plugin has just restarted. "
        f"{_AGAIN}; if that repeats although devices are free, restart kubelet on the node."
    ),
    "empty device edits": (
        "The driver or the container toolkit was replaced under the DRA driver. Restart the DRA driver's pod on the node; "
        "kubelet tries again by itself."
    ),
    "invalid cdi spec": (
        "Two requests of one claim got parts of one GPU, which the driver cannot prepare. Give the claim the constraint "
        f"`distinctAttribute: {DRIVER}/uuid`, or ask for more of one part; then delete the pod."
    ),
    "has conflicting configuration": (
        "Claims with another interval are on the GPU, such as those from before a change of the pool's. The pod starts when "
        "the last of them has ended there."
    ),
    "feature gate is not enabled": (
        "The DRA driver on the node lacks a gate that the pool needs. Install it with the values of the bundle; the pod starts "
        "then."
    ),
    "resourceclaimtemplate": (
        "`gpushare claims NAMESPACE` prints the templates of the pools that the namespace may use; add the one that is missing."
    ),
    "registered dra plugins": (
        "Kubelet knows no DRA driver of that name on the node: look at the driver's pod there. Kubelet tries again by itself."
    ),
    "topologyaffinityerror": (
        "Kubelet's topology manager found no NUMA node with all that the pod requests. Request less of it, or run kubelet with "
        "a `topologyManagerPolicy` that does not refuse pods. Until then the controller makes pods that fail."
    ),
    "preemption": (
        "A pod of a higher priority needed its place: this is no fault of the program. Its controller makes a new one; a "
        "`priorityClassName` of a higher value keeps it."
    ),
    "deletionbytaintmanager": "The node has a taint that the pod does not tolerate; `gpushare explain NODE` shows it.",
    "evictionbyevictionapi": "A drain of the node, or an autoscaler, evicted the pod. Its controller makes a new one.",
    "gpusharerepartitioning": "The node's layout changes. Its controller makes a new pod, which waits for the new layout.",
    "schedulinggated": (
        "What set the pod's scheduling gates lets it go: with Kueue, `kubectl describe workload` in the namespace says why "
        "it is not admitted."
    ),
    "is not ready": "Its readiness probe fails: read the container's log.",
    "exceeded quota": "Delete pods of the namespace that hold shares, or have `quotas` in the intent raised.",
    "ValidatingAdmissionPolicy": ("Change the pod as the message says: the pool's rules for pods are in the bundle's README."),
}
"""The first of these words that is in a message, in any case, decides."""

_LOOK = "Read the message above; `kubectl describe` shows more."
_DESCRIBE = "`kubectl describe pod` shows its Events."


def remedy_of(text: str) -> str:
    """Return what to do about a refusal with this message."""
    lowered = text.lower()
    return next((what for words, what in REMEDIES.items() if words.lower() in lowered), _LOOK)


_ABOUT_CAPS = {"GPUProcessKilled", "GPUPodEvicted", "GPUMemoryOverCap", "GPUMemoryCapNotice", "GPUProcessKillFailed"}
_CAP_REMEDY = "Reduce the memory that the container uses, or have the pool's `memory.cap` raised; `gpushare show` lists caps."
_ABOUT_CLAIMS = {"FailedResourceClaimCreation", "FailedPrepareDynamicResources"}
"""Reasons of Kubernetes' own Events about the claims of pods."""
_ABOUT_GPUS = {"GPUXid", "GPUPluginRestarted", "GPULayoutDrifted", "GPUKillsPaused"}
_MAX_EVENTS = 5


_FAULT_REMEDY = (
    "Another program found it: do what its documentation says. It takes the condition back itself when the fault is gone."
)
_KNOWN_TAINTS = (*OUR_TAINTS, "node.kubernetes.io/unschedulable")
"""What the node's own condition and its cordon say."""


class Diagnosis(Struct):
    """What was found about `subject`; no causes: nothing is wrong as far as was seen."""

    subject: str
    facts: tuple[str, ...]
    causes: tuple[Cause, ...]


def of_node(snapshot: Snapshot, name: str) -> Diagnosis | None:
    """Return what is wrong with a node; None if there is no such node."""
    node = next((one for one in snapshot.nodes if one.name == name), None)
    if node is None:
        return None
    live = live_pools.find(snapshot)
    snapshot = slices.with_claims(snapshot, live)
    pool = live.of_node.get(name, "")
    offer = (slices.offers(snapshot, live) or {}).get(name)
    numbers = {**node.allocatable, **{key: len(each) for key, each in (offer.devices.items() if offer else ())}}
    offers = ", ".join(f"{key}: {number}" for key, number in sorted(numbers.items())) or "no GPU resource"
    facts = [f"pool {pool}" if pool else "no pool", f"offers {offers}"]
    facts += [f"taint {one}" for one in node.taints if not one.startswith(_KNOWN_TAINTS)]
    if node.condition is not None:
        facts.append(f"{node.condition.reason} since {node.condition.since or '?'}")
    return Diagnosis(subject=f"node {name}", facts=tuple(facts), causes=tuple(_of_node(node, live, snapshot, offer)))


def _of_node(node: LiveNode, live: LivePools, snapshot: Snapshot, offer: NodeOffer | None) -> Iterator[Cause]:
    pool = live.of(node)
    if not node.is_up:
        yield Cause(what="kubelet does not report the node as Ready.", remedy=f"Run `kubectl describe node {node.name}`.")
    for fault in node.faults:
        yield Cause(what=f"Condition {fault.removesuffix('.')}.", remedy=_FAULT_REMEDY)
    if node.is_cordoned:
        remedy = f"Run `kubectl uncordon {node.name}`, unless work on it still goes on."
        if node.faults:
            remedy = "The conditions above are probably why: leave it until they are gone."
        yield Cause(what="The node is cordoned: it takes no new pods.", remedy=remedy)
    if pool is None:
        known = join_first(list(live.pools), 8) if live.pools else "none that is visible"
        yield Cause(
            what=f"No pool selects the node; the pools are {known}.",
            remedy="Give it the labels of a pool, or name it in the intent, unless it should have no pool.",
        )
        return
    if node.condition is None:
        selector = f"app.kubernetes.io/name=gpushare,gpushare.dev/pool={pool.name}"
        command = f"kubectl get pods --namespace {snapshot.namespace} --selector {selector} --output wide"
        remedy = f"Find out why its pod does not run: `{command}`."
        yield Cause(what="The node runtime has not reported on this node.", remedy=remedy)
    elif not (believed := belief.condition(node, pool, snapshot, offer)).is_true:
        yield _of_reason(believed.reason, believed.message)
        yield from _holders(node, snapshot)
    yield from _starting(snapshot)
    yield from _told(node, snapshot)


def _starting(snapshot: Snapshot) -> Iterator[Cause]:
    """Yield the pods that have not started and mount our profiles, with kubelet's newest word on their volumes."""
    for pod in snapshot.starting:
        about = (pod.namespace, "Pod", pod.name, "FailedMount")
        matching = [one for one in snapshot.events if (one.namespace, one.kind, one.name, one.reason) == about]
        newest = max(matching, key=lambda one: one.time, default=None)
        newest_event = f": {newest.time or '?'} {newest.reason}: {newest.message}" if newest else "."
        remedy = f"Run `kubectl describe pod {pod.name} -n {pod.namespace}`."
        if PROFILES in newest_event:
            remedy = f"ConfigMap {PROFILES} must be in the pod's own namespace. If our chart puts it into another one, write"
            remedy += f" `platform.namespace: {pod.namespace}` in the intent, compile it and upgrade our chart."
        yield Cause(what=f"Pod {pod.full_name} has not started{newest_event}", remedy=remedy)


def _told(node: LiveNode, snapshot: Snapshot) -> Iterator[Cause]:
    """Yield what the runtime's Events say about the node's GPUs, the newest first."""
    about = (one for one in set(snapshot.events) if (one.kind, one.name) == ("Node", node.name) and one.reason in _ABOUT_GPUS)
    for event in sorted(about, key=lambda one: one.time, reverse=True)[:_MAX_EVENTS]:
        remedy = "NVIDIA's XID catalogue says what the number means." if event.reason == "GPUXid" else ""
        yield Cause(what=f"{event.time or '?'} {event.reason}: {event.message}", remedy=remedy)


def _of_reason(reason: str, message: str) -> Cause:
    if reason == belief.NOT_RUNNING:
        remedy = "Read the pod's log and `kubectl describe pod`. A node without a pod has the label "
        remedy += f"{RUNTIME_LABEL}, or is not selected."
        return Cause(what=f"{reason}: {message}.", remedy=remedy)
    known = REASONS.get(reason)
    detail = f": {message.removesuffix('.')}." if message else "."
    if known is None:
        remedy = "This gpushare does not know the reason: use the release that the cluster has."
        return Cause(what=f"{reason}{detail}", remedy=remedy)
    return Cause(what=f"{reason}{detail} {known.means}", remedy=known.remedy)


def _holders(node: LiveNode, snapshot: Snapshot) -> Iterator[Cause]:
    held = [pod for pod in snapshot.pods if pod.node == node.name and pod.holds]
    if held:
        names = join_first([f"{pod.full_name} ({pod.owner})" if pod.owner else pod.full_name for pod in held], 8)
        yield Cause(what=f"These pods hold its GPUs: {names}.")


def of_pod(snapshot: Snapshot, namespace: str, name: str) -> Diagnosis | None:
    """Return what is wrong with a pod; None if neither it nor a trace of it is there."""
    live = live_pools.find(snapshot)
    snapshot = slices.with_claims(snapshot, live)
    pod = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, name)), None)
    causes = list(_of_events(snapshot.events, namespace, name, pod))
    if pod is None:
        subject = f"pod {namespace}/{name}"
        return Diagnosis(subject=subject, facts=("it does not exist",), causes=tuple(causes)) if causes else None
    facts = [pod.phase, f"on node {pod.node}" if pod.node else "on no node yet"]
    if pod.requests:
        facts.append("requests " + join_words(f"{number} {resource}" for resource, number in sorted(pod.requests.items())))
    causes += [*_going(pod), *(Cause(what=one, remedy=remedy_of(one)) for one in pod.problems)]
    facts += [f"claim {one.claim or one.name}" for one in pod.claims]
    if not pod.requests and not pod.claims:
        remedy = "Write one of the pool's resources into its limits."
        causes.append(Cause(what="The pod requests no GPU resource.", remedy=remedy))
    elif not pod.node:
        causes += pending_claims.of_pod(snapshot, live, pod)
        causes += _capacity(snapshot, live, pod)
    elif pod.holds:
        node = of_node(snapshot, pod.node)
        causes += [Cause(what=f"{pod.node}: {one.what}", remedy=one.remedy) for one in (node.causes if node else ())]
    if not causes and pod.phase not in {"Running", "Succeeded"}:
        causes.append(Cause(what=f"The pod is {pod.phase}, and nothing in its status says why.", remedy=_DESCRIBE))
    return Diagnosis(subject=f"pod {pod.full_name}", facts=tuple(facts), causes=tuple(causes))


def _going(pod: Pod) -> Iterator[Cause]:
    """Yield that a pod is being deleted: it keeps its devices until it has ended."""
    if not pod.ends:
        return
    if pod.finalizers:
        yield Cause(
            what=f"The pod is being deleted, and the finalizers {join_words(pod.finalizers)} keep it.",
            remedy="Look at the controllers that set them; who removes a finalizer by hand does their work.",
        )
    else:
        yield Cause(
            what=f"The pod is being deleted, was to have ended by {pod.ends}, and keeps its devices until it does.",
            remedy="If it does not end, kubelet or a process hangs: `kubectl describe pod` shows kubelet's Events. A process "
            "in uninterruptible sleep ends with a reboot of the node.",
        )


def _of_events(events: tuple[RecordedEvent, ...], namespace: str, name: str, pod: Pod | None) -> Iterator[Cause]:
    for event in sorted(set(events), key=lambda one: one.time, reverse=True):
        when = f"{event.time or '?'} {event.reason}"
        if event.namespace != namespace:
            continue
        if event.kind == "Pod" and event.name == name and event.reason in _ABOUT_CAPS:
            yield Cause(what=f"{when}: {event.message}", remedy=_CAP_REMEDY)
        elif event.kind == "Pod" and event.name == name and event.reason in _ABOUT_CLAIMS:
            yield Cause(what=f"{when}: {event.message}", remedy=remedy_of(event.message))
        elif event.reason == "FailedCreate" and pod is None and name.startswith(event.name):
            yield Cause(what=f"{when}: {event.kind} {event.name}: {event.message}", remedy=remedy_of(event.message))


def of_claim(snapshot: Snapshot, namespace: str, name: str) -> Diagnosis | None:
    """Return why a ResourceClaim has no device; None if there is no such claim, or it is of another driver."""
    claim = pending_claims.find(snapshot, namespace, name)
    if claim is None:
        return None
    given = [f"{one.device} of {one.pool}" for one in claim.grants or ()]
    facts = [f"has {join_words(given)}" if given else "has no device"]
    facts += [f"reserved for pod {pod}" for pod, _ in claim.pods]
    causes = [*pending_claims.of_claim(snapshot, live_pools.find(snapshot), claim)]
    if snapshot.has_seen("pods") and [*slices.without_pods([claim], snapshot.pods)]:
        remedy = (
            "Kubernetes takes the devices back when the claim is reserved for no pod; delete the claim if that does not happen."
        )
        causes.append(Cause(what="None of the pods is there for which it is reserved.", remedy=remedy))
    return Diagnosis(subject=f"claim {claim.full_name}", facts=tuple(facts), causes=tuple(causes))


_WAIT = "Wait until pods end; if none does, the pool needs more nodes or more replicas."
_ROLLING = (
    "Older pods of the same Deployment hold shares until this one is ready ({}): write `strategy: {{type: Recreate}}`, or "
    "`maxSurge: 0` with a `maxUnavailable` of 1 or more, into the Deployment."
)


def _older(snapshot: Snapshot, pod: Pod, resource: str) -> str:
    """Return the other ReplicaSets of the pod's Deployment whose pods hold the resource; empty if there are none."""
    kind, _, name = pod.owner.partition("/")
    deployment = name.rpartition("-")[0]
    if kind != "ReplicaSet" or not deployment:
        return ""
    holders = (one for one in snapshot.pods if one.namespace == pod.namespace and one.holds and resource in one.requests)
    sets = {one.owner for one in holders if one.owner.rpartition("-")[0] == f"{kind}/{deployment}"}
    return join_words(sorted(sets - {pod.owner}))


def _capacity(snapshot: Snapshot, live: LivePools, pod: Pod) -> Iterator[Cause]:
    """Yield, for each resource that the pod waits for, whether any node offers it and has it free."""
    if not snapshot.has_seen("nodes"):
        return
    seen = status.assess(snapshot)
    every = [node for one in seen.pools for node in one.nodes] + list(seen.others)
    for resource, number in sorted(pod.requests.items()):
        if is_ours(resource):  # of a claim, which has causes of its own
            continue
        shares = [(node, one) for node in every for one in node.shares if one.resource == resource]
        if by_claim := pending_claims.classes_of(snapshot, resource):
            yield from pending_claims.of_limit(snapshot, live, pod, resource, number)
        if not shares and not by_claim:
            offered = sorted({one.resource for node in every for one in node.shares})
            yield Cause(
                what=f"No node offers {resource}; offered are {join_first(offered, 8) if offered else 'no GPU resources'}.",
                remedy="Request a resource that a pool offers; `gpushare status` lists them.",
            )
        if not shares:
            continue
        free = [one.free for _, one in shares]
        away = [node.name for node, one in shares if not node.is_ready and (one.wanted or one.offered)]
        if None not in free and max(one or 0 for one in free) < number:
            total = sum(one.offered or 0 for _, one in shares)
            older = _older(snapshot, pod, resource)
            yield Cause(
                what=f"No node has {number} {resource} free: {total} are offered on {len(shares)} nodes.",
                remedy=_ROLLING.format(older) if older else _WAIT,
            )
        elif not pod.problems and None not in free:
            most = max(shares, key=lambda one: one[1].free or 0)
            yield Cause(
                what=f"Node {most[0].name} has {most[1].free} {resource} free; no condition of the pod says why it waits.",
                remedy="Look at what admits and schedules it: its queue, `schedulingGates` and `schedulerName`.",
            )
        if away:
            yield Cause(
                what=f"Nodes that should offer {resource} are not ready: {join_first(away)}.",
                remedy=f"`gpushare explain {away[0]}` says why.",
            )
