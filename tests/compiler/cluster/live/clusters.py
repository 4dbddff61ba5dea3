"""A small cluster on the API server's double: the objects of one intent's chart, and nodes as the runtime leaves them."""

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from tests.support import rendering
from tests.support.fake_api.server import ApiServer

RELEASE = "gpu-system"
INTENT = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: live}
spec:
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}, expected: 2}
      gpusPerNode: 1
      sharing: {mode: time-slicing, replicas: 4}
      memory: {cap: even}
    training:
      card: a100-pcie-40gb
      nodes: {names: [a100-1]}
      gpusPerNode: 1
      sharing: {mode: mig, layout: {2g.10gb: 2, 1g.5gb: 3}}
  quotas:
    team: {notebooks: 6}
"""
SHARED = "nvidia.com/gpu.shared"
PLURALS = {
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "DeviceClass": "deviceclasses",
    "DeviceConfig": "deviceconfigs",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceQuota": "resourcequotas",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
OURS = {"app.kubernetes.io/name": "gpushare"}


def lively(api: ApiServer) -> "LiveCluster":
    """Two T4 nodes, of which one is not ready, and one A100 node; two pods hold shares."""
    cluster = LiveCluster(api)
    cluster.add_node("t4-1", "notebooks")
    cluster.add_node("t4-2", "notebooks", reason="GPUBusy", message="GPU 0: pod team/old uses it", allocatable={})
    cluster.add_node("a100-1", "training")
    api.add_node("cpu-1")
    owner = {"kind": "StatefulSet", "name": "lab", "uid": "1", "controller": True}
    api.add_pod("lab-0", namespace="team", node="t4-1", limits={SHARED: 1}, owner=owner)
    api.add_pod("train-0", namespace="physics", node="a100-1", limits={"nvidia.com/mig-2g.10gb": 1})
    api.add_pod("web", namespace="team", node="cpu-1")
    return cluster


class LiveCluster:
    """The double with one installed intent: `api` is the server, `values` and `files` are the bundle's."""

    def __init__(self, api: ApiServer, text: str = INTENT) -> None:
        self.api = api
        compilation = pipeline.compile_intent(text.encode(), "intent.yaml", lock.EMPTY)
        assert compilation.plan is not None, compilation.findings
        self.files = {one.path: one.text for one in compilation.artifacts}
        self.values: dict[str, Any] = yaml.safe_load(self.files["chart/values.yaml"])
        for thing in rendering.objects(self.files):
            self._install(thing)

    def _install(self, thing: dict[str, Any]) -> None:
        plural = PLURALS.get(thing["kind"])
        if plural is not None:
            meta = thing["metadata"]
            self.api.add(plural, meta["name"], json.loads(json.dumps(thing)), namespace=meta.get("namespace", ""))

    def add_node(
        self,
        name: str,
        pool: str = "",
        *,
        reason: str = "Ready",
        message: str = "",
        labels: Mapping[str, str] | None = None,
        allocatable: Mapping[str, object] | None = None,
    ) -> None:
        """A node as the runtime of that pool leaves it; without one a node that no runtime has visited."""
        marks = {"example.org/gpu": "t4"} if pool == "notebooks" else {}
        offers: Mapping[str, object] = {}
        if pool:
            policy = yaml.safe_load(self.files[f"chart/files/policies/{pool}.yaml"])["spec"]
            of_vendor = {
                "gpushare.dev/profile": policy["profile"],
                "nvidia.com/device-plugin.config": f"{policy['profile']}-a",
            }
            if policy.get("backend") == "dra":
                of_vendor = {"gpushare.dev/backend": "dra"}
            if policy.get("vendor") == "amd":
                of_vendor = {"gpushare.dev/vendor": "amd", "dcm.amd.com/gpu-config-profile": policy["managerConfig"]}
            marks |= {"gpushare.dev/pool": pool, **of_vendor}
            offers = {} if policy.get("backend") == "dra" else policy["resources"]
        self.api.add_node(name, labels={**marks, **(labels or {})}, allocatable=offers if allocatable is None else allocatable)
        if pool:
            self.say(name, reason, message)
            self.add_runtime(name, pool)

    def add_runtime(self, name: str, pool: str, **status: object) -> None:
        """The pod of the node runtime, which has no metrics yet; `status` are fields of its only container's status."""
        pod = f"gpushare-{pool}-{name}"
        labels = {**OURS, "app.kubernetes.io/component": "node", "gpushare.dev/pool": pool}
        self.api.add_pod(pod, namespace=RELEASE, node=name, labels=labels)
        self.api.proxied[f"/api/v1/namespaces/{RELEASE}/pods/{pod}:9408/proxy/metrics"] = b""
        created = {"creationTimestamp": "2026-11-23T06:59:00Z"}
        self.api.edit("pods", pod, lambda one: one["metadata"].update(created), namespace=RELEASE)
        if status:
            statuses = [{"name": "enforce", **status}]
            self.api.edit("pods", pod, lambda one: one["status"].update(containerStatuses=statuses), namespace=RELEASE)

    def say(self, name: str, reason: str, message: str = "") -> None:
        """Set GPUShareReady as the runtime does."""
        status = "True" if reason == "Ready" else "False"
        condition = {
            "type": "GPUShareReady",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-11-23T07:00:00Z",
        }
        self.api.edit("nodes", name, lambda node: node["status"]["conditions"].append(condition))

    def add_release(self, name: str = "v1", **config: Any) -> None:
        """The Secret in which Helm keeps the release, with the user's own values."""
        release = {"chart": {"metadata": {"name": "gpushare"}, "values": self.values}, "config": config}
        packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
        labels = {"owner": "helm", "status": "deployed"}
        secret = {"metadata": {"labels": labels}, "data": {"release": packed}}
        self.api.add("secrets", f"sh.helm.release.v1.gpushare.{name}", secret, namespace=RELEASE)

    def write(self, folder: Path) -> Path:
        """Write the bundle; its folder."""
        for name, text in self.files.items():
            path = folder / "bundle" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder / "bundle"
