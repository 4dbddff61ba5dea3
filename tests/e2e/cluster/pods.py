"""Pods as users write them, for tests of admission, and what the API server says of them."""

import json
from typing import Any

from tests.e2e.cluster import proxy
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.proxy import Answer

Object = dict[str, Any]

SHARED, SLICE, GPU, POOL = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu", "gpushare.dev/pool"


def pod(
    limits: tuple[Object, ...] = ({},),
    *,
    where: str = "physics",
    choose: str = "",
    container: Object | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod with a container for each of the limits."""
    containers = [
        {"name": f"c{number}", "image": "example.org/job", "resources": {"limits": limit}, **(container or {})}
        for number, limit in enumerate(limits)
    ]
    selector = {"nodeSelector": {POOL: choose}} if choose else {}
    metadata: Object = {"generateName": "job-", "namespace": where, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **selector, **spec}}


def created(cluster: Cluster, item: Object, query: str = "?dryRun=All") -> Answer:
    """What the API server says when it is asked to create the pod, without doing so."""
    path = f"/api/v1/namespaces/{item['metadata']['namespace']}/pods{query}"
    return proxy.send(cluster.control_plane.proxy, "POST", path, json.dumps(item))


def refusal(cluster: Cluster, item: Object) -> str:
    """What it says against it; empty if nothing."""
    return created(cluster, item).refusal


def debugged(cluster: Cluster, name: str, where: str, container: Object) -> str:
    """What the API server says against a debugging container of the pod."""
    body = json.dumps({"spec": {"ephemeralContainers": [{"name": "debugger", "image": "example.org/job", **container}]}})
    path = f"/api/v1/namespaces/{where}/pods/{name}/ephemeralcontainers?dryRun=All"
    return proxy.send(cluster.control_plane.proxy, "PATCH", path, body, "application/strategic-merge-patch+json").refusal


def affinity(*terms: Object) -> Object:
    """A required node affinity."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def term(operator: str, *values: str) -> Object:
    """One term, on the pool."""
    return {"matchExpressions": [{"key": POOL, "operator": operator, **({"values": list(values)} if values else {})}]}
