"""From an API server to a Snapshot: which lists a question needs, and with which selectors. Reads only.

Every request is one of the rules that `rights` returns, the least that the commands on a running cluster need. All are reads;
`pods/proxy` and Secrets are large rights, and separate.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote as quoted

from gpushare import vendors
from gpushare.cluster.live import belief, claims, helm_release, objects, runtime_metrics
from gpushare.cluster.live.claims import (
    BINDINGS,
    CLAIMS,
    CLASSES,
    POLICIES,
    SLICES,
    TEMPLATES,
    ClaimTemplate,
    DeviceClass,
    DraObjects,
    Policy,
    Slice,
)
from gpushare.cluster.live.objects import (
    OTHER_PODS,
    PROFILES,
    RUNTIME_PODS,
    VGPU_CONFIGS,
    ConfigMap,
    LiveNode,
    LiveQuota,
    OperatorObject,
    Pod,
    ReadFailure,
    RecordedEvent,
    RuntimeMetrics,
    Snapshot,
)
from gpushare.cluster.live.pages import Api, Lists
from gpushare.vendors.nvidia import NVIDIA
from gpushare.vendors.vendor import GpuVendor, OperatorObjects
from gpushare_node.contract.names import BACKEND_LABEL
from gpushare_node.contract.struct import NOTHING, Struct, replace

_OURS = "app.kubernetes.io/name=gpushare"
_RUNTIME = f"{_OURS},app.kubernetes.io/component=node"
_DRA = f"/apis/{claims.API}"
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

    `plugin`: the namespace with the device plugin's configs, if it is another; empty: the release's. `operators`: those of
    vendors' operators by key (`OperatorObjects`), whose objects are then read.
    """

    release: str
    plugin: str = ""
    operators: Mapping[str, str] = NOTHING
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
        places = {"release": release, "plugin": self.plugin, **self.operators}
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
        of_plugin = {PROFILES, VGPU_CONFIGS}
        configs = {name: one for name, one in configs.items() if name not in of_plugin}
        configs |= {one.name: one for one in _configs(lists, scope.plugin) if one.name in of_plugin}
    operator_objects: tuple[OperatorObject, ...] = ()
    for vendor, made in vendors.OPERATORS:
        if place := scope.operators.get(vendor.word):
            configs.pop(made.config_map, None)
            found = _configs(lists, place, objects.configs_of(vendor))
            configs |= {one.name: one for one in found if one.name == made.config_map}
            operator_objects += _operator_objects(lists, vendor, made, place)
    path = f"/apis/apps/v1{ours}/daemonsets"
    daemonsets = lists.read("daemonsets", path, objects.daemonset, lambda one: bool(one.pool), labelled)
    refused = _refused(lists) if scope.metrics and any(map(belief.is_observed, nodes)) else None
    runtime = _runtime(lists, scope)
    starting = _starting(lists, scope, nodes)
    is_dra = scope.dra or _has_dra(nodes, configs.values())
    # A driver that no pool is of may offer GPUs too: only its slices tell.
    slices = _slices(lists, scope, may_lack=not is_dra)
    dra = _dra(lists, scope, slices) if is_dra or slices else None
    snapshot = Snapshot(
        namespace=scope.release,
        nodes=nodes,
        pods=_pods(lists, scope, dra),
        dra=dra,
        runtime=runtime,
        quotas=_quotas(lists, scope),
        configs=configs,
        operator_objects=operator_objects,
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
    return lists.read(what, path, objects.config_map, lambda one: bool(one.name), {"labelSelector": _OURS})


def _operator_objects(lists: Lists, vendor: GpuVendor, ours: OperatorObjects, namespace: str) -> tuple[OperatorObject, ...]:
    path = f"/apis/{vendor.domain}/{ours.version}/namespaces/{quoted(namespace, safe='')}/{ours.plural}"
    view, query = partial(objects.operator_object, ours.kind), {"labelSelector": _OURS}
    return lists.read(ours.plural, path, view, lambda one: bool(one.name), query, may_lack=True)


def _nodes(lists: Lists, scope: Scope) -> tuple[LiveNode, ...]:
    query = {"fieldSelector": f"metadata.name={scope.node}"} if scope.node else {}
    return lists.read("nodes", "/api/v1/nodes", objects.node, lambda one: bool(one.name), query)


def _has_dra(nodes: Iterable[LiveNode], configs: Iterable[ConfigMap]) -> bool:
    policies = (one.data.get("policy.yaml", "") for one in configs)
    return any(node.labels.get(BACKEND_LABEL) for node in nodes) or any(map(_DRA_POLICY.search, policies))


def _slices(lists: Lists, scope: Scope, *, may_lack: bool) -> tuple[Slice, ...]:
    """Return what the DRA driver offers. `may_lack`: Kubernetes before 1.34 does not serve them, and need not."""
    query = {"fieldSelector": claims.of_driver(scope.node)}
    return lists.read(claims.SLICES, f"{_DRA}/resourceslices", claims.resource_slice, _has_node, query, may_lack=may_lack)


def _dra(lists: Lists, scope: Scope, slices: tuple[Slice, ...]) -> DraObjects:
    """Return the objects of the DRA driver: all classes, since any may have the name of ours, and claims on its devices."""
    classes = lists.read(claims.CLASSES, f"{_DRA}/deviceclasses", claims.device_class, _has_name, {})
    place = f"{_DRA}/namespaces/{quoted(scope.namespace, safe='')}" if scope.namespace else _DRA
    ours = {one.name for one in classes if one.selection is not None}
    found = lists.read(claims.CLAIMS, f"{place}/resourceclaims", claims.claim, lambda one: one.concerns(ours), {})
    templates: tuple[ClaimTemplate, ...] = ()
    if scope.dra:
        path = f"{_DRA}/resourceclaimtemplates"
        templates = lists.read(claims.TEMPLATES, path, claims.template, _has_name, {"labelSelector": _OURS})
    policies = (
        tuple(one for plural in (*claims.POLICIES, *claims.BINDINGS) for one in _policies(lists, plural)) if scope.dra else ()
    )
    return DraObjects(slices=slices, classes=classes, claims=found, templates=templates, policies=policies)


def _policies(lists: Lists, plural: str) -> tuple[Policy, ...]:
    """Return our admission policies or bindings of a kind. Kubernetes before 1.36 does not serve those that change objects."""
    path, may_lack = f"/apis/admissionregistration.k8s.io/v1/{plural}", plural.startswith("mutating")
    view, query = partial(claims.policy, plural), {"labelSelector": _OURS}
    return lists.read(plural, path, view, lambda one: bool(one.name), query, may_lack=may_lack)


def _has_node(one: Slice) -> bool:
    return bool(one.node)


def _has_name(one: DeviceClass | ClaimTemplate) -> bool:
    return bool(one.name)


def _pods(lists: Lists, scope: Scope, dra: DraObjects | None) -> tuple[Pod, ...]:
    """Return the pods that request GPUs. A Role may allow one namespace where no ClusterRole allows all."""
    selected = f"{_ACTIVE},spec.nodeName={scope.node}" if scope.node else _ACTIVE
    read = frozenset((one.namespace, one.name) for one in dra.claims) if dra is not None else frozenset()

    def asks(pod: Pod) -> bool:
        return bool(pod.requests) or any((pod.namespace, one.claim) in read or one.is_by_our_template for one in pod.claims)

    found = lists.read("pods", _namespaced("pods", scope.namespace), objects.pod, asks, {"fieldSelector": selected})
    if scope.about is None or not scope.about[0]:
        return found
    namespace, name = scope.about
    if any((pod.namespace, pod.name) == scope.about for pod in found):
        return found
    item = lists.one("pods", f"{_namespaced('pods', namespace)}/{quoted(name, safe='')}")
    return found if item is None else (*found, objects.pod(item))


def _quotas(lists: Lists, scope: Scope) -> tuple[LiveQuota, ...]:
    path = _namespaced("resourcequotas", scope.namespace)
    return lists.read("resourcequotas", path, objects.quota, lambda one: bool(one.hard), {})


def _namespaced(plural: str, namespace: str) -> str:
    return f"/api/v1/namespaces/{quoted(namespace, safe='')}/{plural}" if namespace else f"/api/v1/{plural}"


def _events(lists: Lists, scope: Scope, nodes: Sequence[LiveNode]) -> tuple[RecordedEvent, ...]:
    found: tuple[RecordedEvent, ...] = ()
    if scope.kills:
        for reason in KILLS:
            query = {"fieldSelector": f"reason={reason}"}
            found += lists.read("events", _namespaced("events", scope.namespace), objects.event, _named, query)
            if not all(one.what != "events" for one in lists.unseen):
                break
    if scope.about is not None:
        namespace, name = scope.about
        is_node = not namespace or any(node.name == name for node in nodes)
        for kind, place in ((("Node", ""),) if is_node else ()) + ((("Pod", namespace),) if namespace else ()):
            query = {"fieldSelector": f"involvedObject.name={name},involvedObject.kind={kind}"}
            found += lists.read("events", _namespaced("events", place), objects.event, _named, query)
        if namespace:  # of a pod that was refused only its controller knows
            query = {"fieldSelector": "reason=FailedCreate"}
            found += lists.read("events", _namespaced("events", namespace), objects.event, _named, query)
    return found


def _starting(lists: Lists, scope: Scope, nodes: Sequence[LiveNode]) -> tuple[Pod, ...]:
    """Return the pods of the node that `scope` is about that have not started and mount our profiles."""
    name = scope.about[1] if scope.about is not None and any(node.name == scope.about[1] for node in nodes) else ""
    if not name:
        return ()
    query = {"fieldSelector": f"spec.nodeName={name},status.phase=Pending"}
    return lists.read("pods", "/api/v1/pods", objects.pod_with_profiles, lambda one: bool(one.name), query)


def _events_of_pods(lists: Lists, pods: Sequence[Pod]) -> tuple[RecordedEvent, ...]:
    found: tuple[RecordedEvent, ...] = ()
    for pod in pods[:_MAX_STARTING]:
        query = {"fieldSelector": f"involvedObject.name={pod.name},involvedObject.kind=Pod"}
        found += lists.read("events", _namespaced("events", pod.namespace), objects.event, _named, query)
    return found


def _named(event: RecordedEvent) -> bool:
    return bool(event.name)


def _runtime(lists: Lists, scope: Scope) -> tuple[Pod, ...]:
    """Return the node runtime's own pods, those that are not scheduled included."""
    path = _namespaced("pods", scope.release)
    every = lists.read(RUNTIME_PODS, path, objects.runtime_pod, lambda one: bool(one.node), {"labelSelector": _RUNTIME})
    return tuple(one for one in every if scope.node in ("", one.node))


def _metrics(lists: Lists, runtime: Sequence[Pod]) -> tuple[RuntimeMetrics, ...]:
    found, missed = runtime_metrics.read(lists.api, tuple(one for one in runtime if one.phase == "Running"))
    lists.unseen += missed
    return found


def _refused(lists: Lists) -> int | None:
    number, missed = runtime_metrics.refused(lists.api)
    lists.unseen += missed
    return number


NAME = "gpushare-viewer"
_GROUP = "rbac.authorization.k8s.io"
_VERSION = f"{_GROUP}/v1"


class Subject(Struct):
    """Who gets the rights. `namespace` is a service account's."""

    kind: str
    name: str
    namespace: str = ""


def rights(  # noqa: PLR0913 - one for each option of the command
    release: str,
    subject: Subject,
    *,
    plugin: str = "",
    operators: Mapping[str, str] = NOTHING,
    metrics: bool = False,
    values: bool = False,
    imports: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return roles and bindings. `metrics`: for `status --kills`; `values`: `drift` compares the Helm release's values too.

    `plugin`: the namespace with the device plugin's configs, if it is another. `operators`: those of vendors' operators by key,
    for `drift`.
    `imports`: the namespaces of which `import --live` reads ConfigMaps, and with `values` the Helm releases.
    """
    own = [_right("configmaps", ["list"]), _right("daemonsets", ["list"], group="apps")]
    if metrics:
        own.append(_right("pods/proxy", ["get"]))
    if values:
        own.append(_right("secrets", ["list"]))
    everywhere = [
        _right("nodes", ["list"]),
        _right("pods", ["get", "list"]),
        _right("resourcequotas", ["list"]),
        _right("events", ["list"]),
        {"apiGroups": ["resource.k8s.io"], "resources": [SLICES, CLASSES, CLAIMS, TEMPLATES], "verbs": ["list"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": [*POLICIES, *BINDINGS], "verbs": ["list"]},
    ]
    if metrics:
        everywhere.append({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})
    if imports:
        everywhere.append(_right("clusterpolicies", ["list"], group=NVIDIA.domain))
    configs = [_right("configmaps", ["list"]), *([_right("secrets", ["list"])] if values else [])]
    places = {release: own}
    of_operators = [
        (operators.get(vendor.word, ""), [configs[0], _right(ours.plural, ["list"], group=vendor.domain)])
        for vendor, ours in vendors.OPERATORS
    ]
    for namespace, rules in ((plugin, configs[:1]), *((one, configs) for one in imports), *of_operators):
        if namespace:
            known = places.setdefault(namespace, [])
            known += [rule for rule in rules if rule not in known]
    return [
        *_account(subject),
        {"apiVersion": _VERSION, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": everywhere},
        _binding("ClusterRole", subject, {"name": NAME}),
        *(one for namespace, rules in places.items() for one in _role_of(namespace, rules, subject)),
    ]


def _role_of(namespace: str, rules: Sequence[dict[str, Any]], subject: Subject) -> Sequence[dict[str, Any]]:
    metadata = {"name": NAME, "namespace": namespace}
    return (
        {"apiVersion": _VERSION, "kind": "Role", "metadata": metadata, "rules": list(rules)},
        _binding("Role", subject, dict(metadata)),
    )


def _account(subject: Subject) -> Sequence[dict[str, Any]]:
    if subject.kind != "ServiceAccount":
        return ()
    metadata = {"name": subject.name, "namespace": subject.namespace}
    return ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},)


def _right(resource: str, verbs: list[str], group: str = "") -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs}


def _binding(role: str, subject: Subject, metadata: dict[str, Any]) -> dict[str, Any]:
    who = {"kind": subject.kind, "name": subject.name}
    who |= {"namespace": subject.namespace} if subject.namespace else {"apiGroup": _GROUP}
    reference = {"apiGroup": _GROUP, "kind": role, "name": NAME}
    return {"apiVersion": _VERSION, "kind": f"{role}Binding", "metadata": metadata, "roleRef": reference, "subjects": [who]}
