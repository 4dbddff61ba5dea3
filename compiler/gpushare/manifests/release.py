"""The objects of a bundle without Helm: what `charts/gpushare` renders from the same values and files, and the Namespace.

For Argo CD's plugins and for kustomize, which do not run Helm. Repeats the chart's templates and makes no decision of its own:
the reasons are in the templates, and tests compare the two under both major versions of Helm. Two labels differ on purpose: the
objects are `managed-by: gpushare`, and have no `helm.sh/chart`, because no chart was used. What Helm runs at moments of its own
is in `argocd_hooks`, for the tool that has such moments too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare import __version__
from gpushare.bundle import admission
from gpushare.catalog.image_registry import reference
from gpushare.core import emit
from gpushare.manifests.rights import rule
from gpushare.nodes.taints import OUR_TAINTS

Object = dict[str, Any]

ACCOUNT = "gpushare-node"
POOL = "gpushare.dev/pool"
_CLIENT = "nvidia.com/gpu.deploy.client"
_AWAY = {
    _CLIENT: (
        "false", "paused-for-driver-upgrade", "paused-for-mig-change", "paused-for-mig-change_paused-for-driver-upgrade",
    ),
    "nvidia.com/gpu.deploy.operator-validator": ("paused-for-driver-upgrade",),
}
_OFF: Object = {"key": "gpushare.dev/runtime", "operator": "NotIn", "values": ["away"]}
_STATE = "/var/lib/gpushare"
_KUBELET = "/var/lib/kubelet"
_MPS = "/run/nvidia/mps"
_PORT = 9408
_PRIORITY = "system-node-critical"
_HARMLESS_PRIORITY = "gpushare-observe"
_TAINTS = (*OUR_TAINTS, "nvidia.com/gpu", "CriticalAddonsOnly")


class ChartObjects:
    """One rendering, as the templates see it.

    `namespace` is the release's, `values` the chart's values.yaml, `files` its generated files by path inside the chart
    (`files/policies/<pool>.yaml`, …), `extra` the objects of `files/monitoring/`.
    """

    def __init__(
        self, namespace: str, values: Mapping[str, Any], files: Mapping[str, str], extra: Sequence[Object] = (),
    ) -> None:
        self.namespace = namespace
        self.values = values
        self.files = files
        self.extra = extra
        self.pools = dict(sorted(values["pools"].items()))
        self.partitions = values["partitioner"] == "gpushare"
        self.observes = admission.observes(values)
        self.evicts = any(pool["evict"] for pool in self.pools.values())
        self.platform = sorted({"kube-system", namespace, *values["admission"]["platformNamespaces"]})

    def objects(self) -> Iterator[Object]:
        """Yield every object of the release, in an order in which they can be applied. KeyError for a pool without a policy."""
        yield from self.priority()
        yield from self.account()
        yield from self.config_maps()
        yield from self.quotas()
        yield from self.policies()
        yield from self.network()
        yield from self.daemon_sets()
        yield from self.monitoring()

    def account(self) -> Iterator[Object]:
        """Yield the ServiceAccount and its permissions."""
        yield self.item("v1", "ServiceAccount", ACCOUNT) | {"automountServiceAccountToken": False}
        if self.observes:
            yield from self.role("ClusterRole", [
                rule("nodes", "get", "list", "watch"), rule("nodes/status", "patch"), rule("pods", "list", "watch"),
            ])
            return
        cluster_rules = [
            rule("nodes", "get", "list", "patch", "watch"),
            rule("nodes/status", "patch"),
            rule("pods", *(("delete",) if self.evicts else ()), "list", "watch"),
            rule("events", "create", "patch"),
        ]
        if self.evicts:
            cluster_rules.append(rule("pods/eviction", "create"))
        own_rules = [
            rule("pods", "delete", "get"),
            rule("daemonsets", "get", group="apps"),
            rule("daemonsets/status", "patch", group="apps"),
            rule("leases", "create", "delete", "get", "list", "update", group="coordination.k8s.io"),
        ]
        yield from self.role("ClusterRole", cluster_rules)
        yield from self.role("Role", own_rules)

    def config_maps(self) -> Iterator[Object]:
        """Yield policies, the tenancy, device-plugin profiles under two names each, and the configs of mig-parted."""
        for name, pool in self.pools.items():
            text = {"policy.yaml": self.files[f"files/policies/{name}.yaml"]}
            yield self._config_map(_policy_name(name, pool), text, name) | {"immutable": True}
        if self.pools:
            tenancy = emit.canonical_json(admission.tenancy(self.values, self.platform))
            yield self._config_map("gpushare-tenancy", {"tenancy.json": tenancy})
        profiles = {
            path.removeprefix("files/profiles/").removesuffix(".yaml"): text
            for path, text in self.files.items() if path.startswith("files/profiles/")
        }
        both = {f"{key}-{side}": text for key, text in sorted(profiles.items()) for side in "ab"}
        where = self.values.get("pluginNamespace") or self.namespace
        yield self._config_map("gpushare-profiles", both, namespace=where)
        if self.values.get("migParted", {}).get("enabled"):
            configs = {"config.yaml": self.files["files/mig-parted/config.yaml"]}
            yield self._config_map("gpushare-mig-parted", configs, namespace=where)

    def quotas(self) -> Iterator[Object]:
        """Yield the quota that permits our pods their priority class, and one ResourceQuota in each namespace that has one.

        A bundle that observes has neither: its pods have a priority of their own.
        """
        if self.observes:
            return
        yield self.critical_pods("gpushare-critical-pods")
        for namespace, hard in sorted(self.values["quotas"].items()):
            quota = self.item("v1", "ResourceQuota", "gpushare", namespace=namespace)
            yield quota | {"spec": {"hard": {key: _quantity(number) for key, number in hard.items()}}}

    def critical_pods(self, name: str) -> Object:
        """Return the quota that permits pods of the priority class of our DaemonSets in the namespace."""
        critical = {"scopeName": "PriorityClass", "operator": "In", "values": [_PRIORITY]}
        spec = {"hard": {"pods": "1M"}, "scopeSelector": {"matchExpressions": [critical]}}
        return self.item("v1", "ResourceQuota", name) | {"spec": spec}

    def policies(self) -> Iterator[Object]:
        """Yield the policies that restrict the node runtime's token, and those on what pods may request of the pools."""
        yield from self._policy(admission.fence(self.namespace, self.platform, evicts=self.evicts, observes=self.observes))
        if self.pools and self.values["admission"]["enforce"] != "none":
            for policy in admission.policies(self.values, self.platform):
                yield from self._policy(policy)

    def _policy(self, policy: admission.Policy) -> Iterator[Object]:
        """Yield a policy and its binding."""
        version, kind = "admissionregistration.k8s.io/v1", f"{policy.kind}AdmissionPolicy"
        yield self.item(version, kind, policy.name, namespace="") | {"spec": policy.spec}
        yield self.item(version, f"{kind}Binding", policy.name, namespace="") | {"spec": policy.binding}

    def network(self) -> Iterator[Object]:
        """Yield the NetworkPolicy on who may connect to the metrics port."""
        wanted = self.values["networkPolicy"]
        if not (wanted["enabled"] and self.pools):
            return
        platform = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": self.platform}
        peers = [{"namespaceSelector": {"matchExpressions": [platform]}}, *wanted["from"]]
        yield self.item("networking.k8s.io/v1", "NetworkPolicy", "gpushare-metrics") | {"spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "gpushare", "app.kubernetes.io/component": "node"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": peers, "ports": [{"port": _PORT, "protocol": "TCP"}]}],
        }}

    def daemon_sets(self) -> Iterator[Object]:
        """Yield one DaemonSet for each pool, and the one for nodes of removed pools."""
        for name, pool in self.pools.items():
            selector = {"app.kubernetes.io/component": "node", POOL: name}
            notes = {"kubectl.kubernetes.io/default-container": "enforce", "gpushare.dev/policy": pool["policy"]}
            yield self.daemon_set(f"gpushare-{name}", selector, {"annotations": notes}, self._pool_pod(name, pool))
        if self.pools and not self.observes:
            selector = {"app.kubernetes.io/component": "release"}
            gone: list[Object] = [
                {"key": POOL, "operator": "Exists"},
                {"key": POOL, "operator": "NotIn", "values": list(self.pools)},
            ]
            yield self.daemon_set("gpushare-release", selector, {}, self.release_pod(gone))

    def monitoring(self) -> Iterator[Object]:
        """Yield the objects for Prometheus and Grafana; last, because the cluster may lack their kinds."""
        for one in self.extra:
            mine = self.item(one["apiVersion"], one["kind"], one["metadata"]["name"])
            mine["metadata"]["labels"] = one["metadata"]["labels"] | mine["metadata"]["labels"]
            yield {**one, **mine}

    def priority(self) -> Iterator[Object]:
        """Yield the PriorityClass of pods that observe: they never preempt a pod, and every pod may preempt them."""
        if self.observes:
            yield self.item("scheduling.k8s.io/v1", "PriorityClass", _HARMLESS_PRIORITY, namespace="") | {
                "value": -1000000, "globalDefault": False, "preemptionPolicy": "Never",
                "description": "Pods of gpushare that only observe: they displace no other pod.",
            }

    def _pool_pod(self, name: str, pool: Mapping[str, Any]) -> Object:
        mps, mig = pool["mps"] and not self.observes, pool["mig"] or (self.observes and pool["migCapable"])
        privileged = pool["migCapable"] and self.partitions and not self.observes
        instances = ("SYS_ADMIN",) if mig else ()
        policy = {"name": "policy", "mountPath": "/etc/gpushare", "readOnly": True}
        arguments = ("--policy", "/etc/gpushare/policy.yaml")
        after = ("--release-after", self.values["releaseAfter"])
        partition = self.container("partition", "apply", *arguments, "--hold", *after) | {
            "env": _environment(mps=mps, configures_mig=privileged, monitors_mig=privileged or mig),
            "securityContext": _security(*instances) if self.observes else _hardware_security(privileged=privileged),
            "volumeMounts": [policy, *_mounts(mps=mps)],
        }
        enforce = self.container("enforce", "enforce", *arguments, *after) | {
            "env": _environment(mps=mps, configures_mig=False, monitors_mig=mig),
            "ports": [{"name": "metrics", "containerPort": _PORT, "protocol": "TCP"}],
            "livenessProbe": _probe("/healthz", 10),
            "readinessProbe": _probe("/readyz", 5),
            "securityContext": _security(
                *(() if self.observes else ("KILL",)), *instances, "SYS_PTRACE",
            ),
            "volumeMounts": [policy, *_mounts(mps=mps)],
        }
        tolerations = [{"key": key, "operator": "Exists"} for key in _TAINTS]
        clients = {"nodeSelector": {_CLIENT: "true"}} if self.values.get("gpuClientLabel") else {}
        return self._pod_base() | clients | {
            "affinity": self._affinity(pool["terms"]),
            "tolerations": [*tolerations, *pool.get("tolerations", ())],
            "initContainers": [partition],
            "containers": [enforce],
            "volumes": [
                {"name": "policy", "projected": {"sources": [
                    {"configMap": {"name": _policy_name(name, pool)}},
                    {"configMap": {"name": "gpushare-tenancy", "optional": True}},
                ]}},
                *_volumes(self.values["kubeletRoot"], mps=mps, observes=self.observes),
            ],
        }

    def release_pod(self, where: list[Object], account: str = ACCOUNT) -> Object:
        """Return the pod that releases the nodes whose labels match all of `where`."""
        release = self.container("release", "release") | {
            "env": _environment(mps=False, configures_mig=self.partitions, monitors_mig=True),
            "securityContext": _hardware_security(privileged=self.partitions),
            "volumeMounts": [{"name": "tenancy", "mountPath": "/etc/gpushare", "readOnly": True}, *_mounts(mps=False)],
        }
        return self._pod_base(account) | {
            "affinity": self._affinity([{"matchExpressions": where}]),
            "tolerations": [{"operator": "Exists"}],
            "containers": [release],
            "volumes": [
                {"name": "tenancy", "configMap": {"name": "gpushare-tenancy", "optional": True}},
                *_volumes(self.values["kubeletRoot"], mps=False),
            ],
        }

    def _pod_base(self, account: str = ACCOUNT) -> Object:
        base: Object = {
            "serviceAccountName": account,
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "hostPID": True,
            "priorityClassName": _HARMLESS_PRIORITY if self.observes else _PRIORITY,
            "terminationGracePeriodSeconds": 60,
            "securityContext": {
                "appArmorProfile": {"type": "Unconfined"},
                "seLinuxOptions": {"type": "spc_t"},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
        return base | self.runtime_class() | self.pull_secrets()

    def runtime_class(self) -> Object:
        """Return a pod's field of that name, if the values have one."""
        return {"runtimeClassName": self.values["runtimeClassName"]} if self.values.get("runtimeClassName") else {}

    def pull_secrets(self) -> Object:
        """Return a pod's field of that name, if the values have any."""
        return {"imagePullSecrets": list(self.values["imagePullSecrets"])} if self.values.get("imagePullSecrets") else {}

    def _affinity(self, terms: Sequence[Mapping[str, Any]]) -> Object:
        away = [{"key": key, "operator": "NotIn", "values": list(values)} for key, values in _AWAY.items()]
        clients = [_OFF] if self.values["stack"] == "device-plugin" else [_OFF, *away]
        narrowed = [{**term, "matchExpressions": [*term.get("matchExpressions", ()), *clients]} for term in terms]
        wanted = [{key: part for key, part in term.items() if part} for term in narrowed]
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}}

    def container(self, name: str, *command: str) -> Object:
        """Return what every container of ours has: our image, a command of it, and what it requests."""
        image = self.values["image"]
        return {
            "name": name,
            "image": reference(image),
            "imagePullPolicy": image.get("pullPolicy", "IfNotPresent"),
            "command": ["gpushare-node", *command],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        }

    def daemon_set(self, name: str, selector: Mapping[str, str], metadata: Object, pod: Object) -> Object:
        """Return a DaemonSet whose pods all change at once. `metadata` is that of its pods, besides their labels."""
        pods = {"app.kubernetes.io/name": "gpushare", **selector}
        spec: Object = {"selector": {"matchLabels": pods}, "template": {"metadata": {"labels": pods} | metadata, "spec": pod}}
        spec["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": "100%"}, "type": "RollingUpdate"}
        return self.item("apps/v1", "DaemonSet", name, labels=selector) | {"spec": spec}

    def _config_map(self, name: str, data: Mapping[str, str], pool: str = "", namespace: str | None = None) -> Object:
        labels = {POOL: pool} if pool else {}
        return self.item("v1", "ConfigMap", name, namespace=namespace, labels=labels) | {"data": dict(data)}

    def role(self, kind: str, rules: list[Object], account: str = ACCOUNT) -> Iterator[Object]:
        """Yield a role of the account's name, and its binding to the account."""
        group = "rbac.authorization.k8s.io"
        namespace = self.namespace if kind == "Role" else ""
        yield self.item(f"{group}/v1", kind, account, namespace=namespace) | {"rules": rules}
        yield self.item(f"{group}/v1", f"{kind}Binding", account, namespace=namespace) | {
            "roleRef": {"apiGroup": group, "kind": kind, "name": account},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.namespace}],
        }

    def item(
        self, version: str, kind: str, name: str, *, namespace: str | None = None, labels: Mapping[str, str] | None = None,
    ) -> Object:
        """Return an object's type and metadata. `namespace` None: the bundle's; empty: the object is cluster-scoped."""
        every = {
            "app.kubernetes.io/name": "gpushare",
            "app.kubernetes.io/instance": "gpushare",
            "app.kubernetes.io/version": __version__,
            "app.kubernetes.io/managed-by": "gpushare",
            "app.kubernetes.io/part-of": "gpushare",
        }
        if self.values["cluster"]:
            every["gpushare.dev/cluster"] = self.values["cluster"]
        where = self.namespace if namespace is None else namespace
        place = {"namespace": where} if where else {}
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place, "labels": every | dict(labels or {})}}


def _policy_name(name: str, pool: Mapping[str, Any]) -> str:
    """Return the ConfigMap's name, which changes with the policy: a pod of the previous release never reads the new policy."""
    return f"gpushare-{name}-policy-{pool['policy']}"


def _quantity(number: int) -> str:
    suffix = ""
    for larger in "kMGTP":
        if number and number % 1000 == 0:
            number, suffix = number // 1000, larger
    return f"{number}{suffix}"


def _environment(*, mps: bool, configures_mig: bool, monitors_mig: bool) -> list[Object]:
    paths = {
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
    }
    texts = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility" if mps else "utility"}
    if configures_mig:
        texts["NVIDIA_MIG_CONFIG_DEVICES"] = "all"
    if monitors_mig:
        texts["NVIDIA_MIG_MONITOR_DEVICES"] = "all"
    references = {name: {"apiVersion": "v1", "fieldPath": path} for name, path in paths.items()}
    fields = [{"name": name, "valueFrom": {"fieldRef": reference}} for name, reference in references.items()]
    return [*fields, *({"name": name, "value": text} for name, text in texts.items())]


def _security(*capabilities: str) -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **({"add": list(capabilities)} if capabilities else {})},
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,
    }


def _hardware_security(*, privileged: bool) -> Object:
    if privileged:
        return {"privileged": True, "readOnlyRootFilesystem": True, "runAsUser": 0}
    return _security("KILL", "SYS_ADMIN", "SYS_PTRACE")


def _probe(path: str, period_seconds: int) -> Object:
    return {"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": period_seconds, "timeoutSeconds": 5}


def _mounts(*, mps: bool) -> list[Object]:
    mounts: list[Object] = [
        {"name": "all-gpus", "mountPath": "/var/run/nvidia-container-devices/all", "readOnly": True},
        {"name": "state", "mountPath": _STATE},
        {"name": "device-plugins", "mountPath": f"{_KUBELET}/device-plugins", "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a mount point of the pod
    ]
    if mps:
        mounts.append({"name": "mps", "mountPath": _MPS, "mountPropagation": "HostToContainer"})
        mounts.append({"name": "mps-shm", "mountPath": "/dev/shm", "mountPropagation": "HostToContainer"})  # noqa: S108 - as above
    return mounts


def _volumes(kubelet: str, *, mps: bool, observes: bool = False) -> list[Object]:
    state = {"name": "state", "emptyDir": {"sizeLimit": "16Mi"}}
    volumes = [
        _host_path("all-gpus", "/dev/null", "CharDevice"),
        state if observes else _host_path("state", _STATE, "DirectoryOrCreate"),
        _host_path("device-plugins", f"{kubelet}/device-plugins", "Directory"),
        {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
    ]
    if mps:
        volumes.append(_host_path("mps", _MPS, "DirectoryOrCreate"))
        volumes.append(_host_path("mps-shm", f"{_MPS}/shm", "DirectoryOrCreate"))
    return volumes


def _host_path(name: str, path: str, kind: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": kind}}
