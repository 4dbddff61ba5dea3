"""Pages of other exporters: kube-state-metrics' made of what the API server has, dcgm-exporter's of given figures.

Neither exporter runs here. Names and labels of the first are as kube-state-metrics v2 documents them (docs/metrics), and only
those that gpushare's rules use. The second needs real GPUs: its page is in the form of its etc/default-counters.csv.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.core.units import parse_quantity
from tests.e2e.cluster.cluster import Cluster

GPU_FIGURES: Mapping[str, float] = {
    "DCGM_FI_DEV_GPU_UTIL": 40, "DCGM_FI_DEV_FB_USED": 3524, "DCGM_FI_DEV_POWER_USAGE": 62.5, "DCGM_FI_DEV_GPU_TEMP": 51,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
}
"""The counters that rules and dashboard use, each with a value."""

Object = dict[str, Any]


def state_of(cluster: Cluster) -> Iterator[str]:
    """The lines of kube-state-metrics for the cluster as it is now."""
    for node in cluster.read("/api/v1/nodes")["items"]:
        yield from _node(node)
    for pod in cluster.read("/api/v1/pods")["items"]:
        yield from _pod(pod)
    for one in cluster.read("/apis/apps/v1/daemonsets")["items"]:
        found = {"namespace": one["metadata"]["namespace"], "daemonset": one["metadata"]["name"]}
        status = one["status"]
        yield _line("kube_daemonset_status_desired_number_scheduled", status["desiredNumberScheduled"], **found)
        yield _line("kube_daemonset_status_number_ready", status["numberReady"], **found)
    for one in cluster.read("/api/v1/resourcequotas")["items"]:
        found = {"namespace": one["metadata"]["namespace"], "resourcequota": one["metadata"]["name"]}
        for kind in ("hard", "used"):
            for resource, count in one.get("status", {}).get(kind, {}).items():
                yield _line("kube_resourcequota", parse_quantity(count), resource=resource, type=kind, **found)


def gpus(uuids: Mapping[str, tuple[str, ...]], figures: Mapping[str, float] = GPU_FIGURES) -> Iterator[str]:
    """The lines of dcgm-exporter: each counter for each GPU, repeated for each pod that shares it."""
    for counter, value in figures.items():
        for number, (uuid, pods) in enumerate(uuids.items()):
            for pod in pods or ("",):
                yield _line(counter, value, gpu=str(number), UUID=uuid, namespace="course" if pod else "", pod=pod)


def _node(node: Object) -> Iterator[str]:
    name = node["metadata"]["name"]
    for resource, count in node["status"]["allocatable"].items():
        if resource.startswith("nvidia.com/"):
            yield _line("kube_node_status_allocatable", count, node=name, resource=_resource(resource), unit="integer")
    for condition in node["status"]["conditions"]:
        for status in ("true", "false", "unknown"):
            is_it = int(condition["status"].lower() == status)
            yield _line("kube_node_status_condition", is_it, node=name, condition=condition["type"], status=status)


def _pod(pod: Object) -> Iterator[str]:
    metadata, spec = pod["metadata"], pod["spec"]
    found = {"namespace": metadata["namespace"], "pod": metadata["name"]}
    owner = next((one for one in metadata.get("ownerReferences", ()) if one.get("controller")), {"kind": "", "name": ""})
    node = spec.get("nodeName", "")
    yield _line("kube_pod_info", 1, **found, node=node, created_by_kind=owner["kind"], created_by_name=owner["name"])
    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
        yield _line("kube_pod_status_phase", int(pod["status"].get("phase") == phase), **found, phase=phase)
    for container in spec["containers"]:
        for resource, count in container.get("resources", {}).get("requests", {}).items():
            if resource.startswith("nvidia.com/"):
                yield _line("kube_pod_container_resource_requests", count, **found, container=container["name"], node=node,
                            resource=_resource(resource), unit="integer")


def _resource(name: str) -> str:
    """A resource's name as kube-state-metrics writes it in a label."""
    return re.sub(r"[^a-zA-Z0-9]", "_", name)


def _line(metric: str, value: Any, **found: str) -> str:
    pairs = ",".join(f'{name}="{text}"' for name, text in found.items())
    return f"{metric}{{{pairs}}} {value}"
