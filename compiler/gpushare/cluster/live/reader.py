"""From an API server to a Snapshot: which lists a question needs, and with which selectors. Reads only."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from urllib.parse import quote as quoted

from gpushare.cluster.live import api_objects, belief, devices, dra_objects, helm_release, runtime_metrics
from gpushare.cluster.live.devices import Claim, ClaimTemplate, DeviceClass, DraObjects, PodClaim, Policy, Slice
from gpushare.cluster.live.pages import Api, Lists
from gpushare.cluster.live.snapshot import (
    AMD_CONFIGS,
    MANAGER_PROFILES,
    OTHER_PODS,
    PROFILES,
    RUNTIME_PODS,
    ConfigMap,
    DeviceConfig,
    LiveNode,
    LiveQuota,
    Pod,
    ReadFailure,
    RecordedEvent,
    RuntimeMetrics,
    Snapshot,
)
from gpushare.facts.vendors.amd import AMD
from gpushare.offering.backends.dra import DRIVER, OUR_CLASSES, is_of_gpus
from gpushare.offering.backends.vgpu import OPERATOR_CONFIG_MAP
from gpushare_node.contract.names import BACKEND_LABEL
from gpushare_node.contract.struct import Struct, replace

_OURS = "app.kubernetes.io/name=gpushare"
_RUNTIME = f"{_OURS},app.kubernetes.io/component=node"
_DRA = f"/apis/{devices.API}"
_DRA_POLICY = re.compile(r"""^ *backend: *["']?dra\b""", re.MULTILINE)
_ACTIVE = "status.phase!=Succeeded,status.phase!=Failed"
_MAX_STARTING = 8
"""Pods on one node that mount the profiles: those of the device plugin, of GPU feature discovery and of MPS."""

_RELEASE = "gpu-system"
"""The namespace for which `gpushare rbac` prints rights unless it is told another."""

KILLS = ("GPUProcessKilled", "GPUPodEvicted", "GPUMemoryOverCap", "GPUProcessKillFailed")
"""Reasons of the runtime's Events about containers over their caps."""


class Scope(Struct):
    """What to read. `release` is gpushare's namespace; empty `node` and `namespace`: of all nodes and namespaces.

    `plugin`: the namespace with the device plugin's configs, if it is another; empty: the release's. `amd`: that of AMD's
    operator, whose objects are then read.
    """

    release: str
    plugin: str = ""
    amd: str = ""
    node: str = ""
    namespace: str = ""
    metrics: bool = False
    kills: bool = False
    values: bool = False
    dra: bool = False
    """Whether the DRA driver serves nodes, or did; else the nodes and policies that are read say so."""
    about: tuple[str, str] | None = None
    """(namespace, name): the Events of this pod or, without a namespace, of this node; and this pod in any phase."""

    @property
    def rights(self) -> str:
        """The command that prints the rights to read all this."""
        release = "" if self.release == _RELEASE else self.release
        places = {"release": release, "plugin": self.plugin, "amd": self.amd}
        options = [f" --{option}-namespace {namespace}" for option, namespace in places.items() if namespace]
        return "gpushare rbac" + "".join(options) + " --metrics" * self.metrics + " --helm-values" * self.values


def read(api: Api, scope: Scope) -> Snapshot:
    """Return the part of the cluster that the scope selects. NoClusterError if the server cannot be reached."""
    lists = Lists(api, scope.rights)
    if scope.namespace:
        why = f"-n {scope.namespace} restricts the view: USED is what pods of this namespace request, and FREE is not known"
        lists.unseen.append(ReadFailure(what=OTHER_PODS, why=why, hint="without -n all pods are counted"))
    nodes = _nodes(lists, scope)
    ours = f"/namespaces/{quoted(scope.release)}"
    labelled = {"labelSelector": _OURS}
    configs = {one.name: one for one in _configs(lists, scope.release)}
    if scope.plugin not in ("", scope.release):
        of_plugin = {PROFILES, OPERATOR_CONFIG_MAP}
        configs = {name: one for name, one in configs.items() if name not in of_plugin}
        configs |= {one.name: one for one in _configs(lists, scope.plugin) if one.name in of_plugin}
    if scope.amd:
        configs.pop(MANAGER_PROFILES, None)
        configs |= {one.name: one for one in _configs(lists, scope.amd, AMD_CONFIGS) if one.name == MANAGER_PROFILES}
    path = f"/apis/apps/v1{ours}/daemonsets"
    daemonsets = lists.read("daemonsets", path, api_objects.daemonset, lambda one: bool(one.pool), labelled)
    refused = _refused(lists) if scope.metrics and any(map(belief.is_observed, nodes)) else None
    runtime = _runtime(lists, scope)
    starting = _starting(lists, scope, nodes)
    dra = _dra(lists, scope) if scope.dra or _has_dra(nodes, configs.values()) else None
    snapshot = Snapshot(
        namespace=scope.release,
        nodes=nodes,
        pods=_pods(lists, scope, dra),
        dra=dra,
        runtime=runtime,
        quotas=_quotas(lists, scope),
        configs=configs,
        device_configs=_device_configs(lists, scope.amd) if scope.amd else (),
        daemonsets=daemonsets,
        events=_events(lists, scope, nodes) + _events_of_pods(lists, starting),
        starting=starting,
        values=helm_release.read(lists, scope.release) if scope.values else None,
        metrics=_metrics(lists, runtime) if scope.metrics else (),
        refused=refused,
        unseen=tuple(lists.unseen),
    )
    return _checked(snapshot)


def _checked(snapshot: Snapshot) -> Snapshot:
    """Note an installation that is not in this namespace: what it would say about itself was not seen."""
    found = snapshot.daemonsets or snapshot.configs
    if found or not snapshot.has_seen("daemonsets"):
        return snapshot
    missing = ReadFailure(
        what="gpushare",
        why=f"namespace {snapshot.namespace} has no pool of gpushare",
        hint="--release-namespace names the namespace in which it is installed",
    )
    return replace(snapshot, unseen=(*snapshot.unseen, missing))


def _configs(lists: Lists, namespace: str, what: str = "configmaps") -> tuple[ConfigMap, ...]:
    path = f"/api/v1/namespaces/{quoted(namespace, safe='')}/configmaps"
    return lists.read(what, path, api_objects.config_map, lambda one: bool(one.name), {"labelSelector": _OURS})


def _device_configs(lists: Lists, namespace: str) -> tuple[DeviceConfig, ...]:
    path = f"/apis/{AMD.domain}/v1alpha1/namespaces/{quoted(namespace, safe='')}/deviceconfigs"
    view, query = api_objects.device_config, {"labelSelector": _OURS}
    return lists.read("deviceconfigs", path, view, lambda one: bool(one.name), query, may_lack=True)


def _nodes(lists: Lists, scope: Scope) -> tuple[LiveNode, ...]:
    query = {"fieldSelector": f"metadata.name={scope.node}"} if scope.node else {}
    return lists.read("nodes", "/api/v1/nodes", api_objects.node, lambda one: bool(one.name), query)


def _has_dra(nodes: Iterable[LiveNode], configs: Iterable[ConfigMap]) -> bool:
    policies = (one.data.get("policy.yaml", "") for one in configs)
    return any(node.labels.get(BACKEND_LABEL) for node in nodes) or any(map(_DRA_POLICY.search, policies))


def _dra(lists: Lists, scope: Scope) -> DraObjects:
    """Return the objects of the DRA driver: all classes, since any may have the name of ours, and claims on its devices."""
    of_driver = f"spec.driver={DRIVER}" + (f",spec.nodeName={scope.node}" if scope.node else "")
    query = {"fieldSelector": of_driver}
    slices = lists.read(devices.SLICES, f"{_DRA}/resourceslices", dra_objects.resource_slice, _has_node, query)
    classes = lists.read(devices.CLASSES, f"{_DRA}/deviceclasses", dra_objects.device_class, _has_name, {})
    place = f"{_DRA}/namespaces/{quoted(scope.namespace, safe='')}" if scope.namespace else _DRA
    ours = {one.name for one in classes if one.selection is not None}

    def asks(claim: Claim) -> bool:
        names = (one.device_class for alternatives in claim.requests for one in alternatives)
        return bool(claim.grants) or any(name in ours or is_of_gpus(name) for name in names)

    claims = lists.read(devices.CLAIMS, f"{place}/resourceclaims", dra_objects.claim, asks, {})
    templates: tuple[ClaimTemplate, ...] = ()
    if scope.dra:
        path = f"{_DRA}/resourceclaimtemplates"
        templates = lists.read(devices.TEMPLATES, path, dra_objects.template, _has_name, {"labelSelector": _OURS})
    policies = (
        tuple(one for plural in (*devices.POLICIES, *devices.BINDINGS) for one in _policies(lists, plural)) if scope.dra else ()
    )
    return DraObjects(slices=slices, classes=classes, claims=claims, templates=templates, policies=policies)


def _policies(lists: Lists, plural: str) -> tuple[Policy, ...]:
    """Return our admission policies or bindings of a kind. Kubernetes before 1.36 does not serve those that change objects."""
    path, may_lack = f"/apis/admissionregistration.k8s.io/v1/{plural}", plural.startswith("mutating")
    view, query = partial(dra_objects.policy, plural), {"labelSelector": _OURS}
    return lists.read(plural, path, view, lambda one: bool(one.name), query, may_lack=may_lack)


def _has_node(one: Slice) -> bool:
    return bool(one.node)


def _has_name(one: DeviceClass | ClaimTemplate) -> bool:
    return bool(one.name)


def _pods(lists: Lists, scope: Scope, dra: DraObjects | None) -> tuple[Pod, ...]:
    """Return the pods that request GPUs. A Role may allow one namespace where no ClusterRole allows all."""
    selected = f"{_ACTIVE},spec.nodeName={scope.node}" if scope.node else _ACTIVE
    claims = frozenset((one.namespace, one.name) for one in dra.claims) if dra is not None else frozenset()

    def asks(pod: Pod) -> bool:
        return bool(pod.requests) or any((pod.namespace, one.claim) in claims or _is_ours(one) for one in pod.claims)

    found = lists.read("pods", _namespaced("pods", scope.namespace), api_objects.pod, asks, {"fieldSelector": selected})
    if scope.about is None or not scope.about[0]:
        return found
    namespace, name = scope.about
    if any((pod.namespace, pod.name) == scope.about for pod in found):
        return found
    item = lists.one("pods", f"{_namespaced('pods', namespace)}/{quoted(name, safe='')}")
    return found if item is None else (*found, api_objects.pod(item))


def _is_ours(claim: PodClaim) -> bool:
    """Whether the template of a claim that is not made yet, or was not read, is of our form."""
    return claim.template.startswith(OUR_CLASSES)


def _quotas(lists: Lists, scope: Scope) -> tuple[LiveQuota, ...]:
    path = _namespaced("resourcequotas", scope.namespace)
    return lists.read("resourcequotas", path, api_objects.quota, lambda one: bool(one.hard), {})


def _namespaced(plural: str, namespace: str) -> str:
    return f"/api/v1/namespaces/{quoted(namespace, safe='')}/{plural}" if namespace else f"/api/v1/{plural}"


def _events(lists: Lists, scope: Scope, nodes: Sequence[LiveNode]) -> tuple[RecordedEvent, ...]:
    found: tuple[RecordedEvent, ...] = ()
    if scope.kills:
        for reason in KILLS:
            query = {"fieldSelector": f"reason={reason}"}
            found += lists.read("events", _namespaced("events", scope.namespace), api_objects.event, _named, query)
            if not all(one.what != "events" for one in lists.unseen):
                break
    if scope.about is not None:
        namespace, name = scope.about
        is_node = not namespace or any(node.name == name for node in nodes)
        for kind, place in ((("Node", ""),) if is_node else ()) + ((("Pod", namespace),) if namespace else ()):
            query = {"fieldSelector": f"involvedObject.name={name},involvedObject.kind={kind}"}
            found += lists.read("events", _namespaced("events", place), api_objects.event, _named, query)
        if namespace:  # of a pod that was refused only its controller knows
            query = {"fieldSelector": "reason=FailedCreate"}
            found += lists.read("events", _namespaced("events", namespace), api_objects.event, _named, query)
    return found


def _starting(lists: Lists, scope: Scope, nodes: Sequence[LiveNode]) -> tuple[Pod, ...]:
    """Return the pods of the node that `scope` is about that have not started and mount our profiles."""
    name = scope.about[1] if scope.about is not None and any(node.name == scope.about[1] for node in nodes) else ""
    if not name:
        return ()
    query = {"fieldSelector": f"spec.nodeName={name},status.phase=Pending"}
    return lists.read("pods", "/api/v1/pods", api_objects.pod_with_profiles, lambda one: bool(one.name), query)


def _events_of_pods(lists: Lists, pods: Sequence[Pod]) -> tuple[RecordedEvent, ...]:
    found: tuple[RecordedEvent, ...] = ()
    for pod in pods[:_MAX_STARTING]:
        query = {"fieldSelector": f"involvedObject.name={pod.name},involvedObject.kind=Pod"}
        found += lists.read("events", _namespaced("events", pod.namespace), api_objects.event, _named, query)
    return found


def _named(event: RecordedEvent) -> bool:
    return bool(event.name)


def _runtime(lists: Lists, scope: Scope) -> tuple[Pod, ...]:
    """Return the node runtime's own pods, those that are not scheduled included."""
    path = _namespaced("pods", scope.release)
    every = lists.read(RUNTIME_PODS, path, api_objects.runtime_pod, lambda one: bool(one.node), {"labelSelector": _RUNTIME})
    return tuple(one for one in every if scope.node in ("", one.node))


def _metrics(lists: Lists, runtime: Sequence[Pod]) -> tuple[RuntimeMetrics, ...]:
    found, missed = runtime_metrics.read(lists.api, tuple(one for one in runtime if one.phase == "Running"))
    lists.unseen += missed
    return found


def _refused(lists: Lists) -> int | None:
    number, missed = runtime_metrics.refused(lists.api)
    lists.unseen += missed
    return number
