"""Pods as `kubectl get pods` prints them as a workload."""

import json
from typing import Any

import pytest
import yaml

from gpushare.study.workload import Workload, WorkloadError, load

SHARED = "nvidia.com/gpu.shared"


def container(**limits: object) -> dict[str, Any]:
    """A container with limits of GPU resources, as nvidia_com__gpu=1, beside those that every one has."""
    named = {name.replace("__", "/").replace("_com", ".com").replace("_", "."): value for name, value in limits.items()}
    return {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": named}}


def pod(*containers: dict[str, Any], name: str = "a", status: object = None, **spec: object) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "physics", "creationTimestamp": "2026-10-01T06:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers or (container(nvidia_com__gpu_shared="1"),)), **spec},
        "status": {"phase": "Running"} if status is None else status,
    }


def loaded(*pods: object, kind: str = "List") -> Workload:
    return load(json.dumps({"apiVersion": "v1", "kind": kind, "items": pods}, indent=4).encode(), "pods.json")


def ended(start: str | None, end: str | None, phase: str = "Succeeded") -> dict[str, Any]:
    terminated = {"startedAt": start, "finishedAt": end}
    return {"phase": phase, "startTime": start, "containerStatuses": [{"state": {"terminated": terminated}}]}


def test_a_pod() -> None:
    found = loaded(pod(nodeSelector={"gpushare.dev/pool": "notebooks"}), pod(name="b"))
    assert [(one.namespace, one.name, one.resource, one.count, one.pool, one.line) for one in found.pods] == [
        ("physics", "a", SHARED, 1, "notebooks", 5),
        ("physics", "b", SHARED, 1, "", 36),
    ]
    assert found.assumed == (
        "the beginning is the earliest creation of a pod that asks for GPUs",
        "2 pods not ended: the pod stays",
    )


@pytest.mark.parametrize("form", ["List", "PodList", "one", "stream", "array", "yaml", "yaml of one", "yaml stream"])
def test_every_form_in_which_kubectl_prints_pods(form: str) -> None:
    one, several = pod(), [pod(), pod(name="b")]
    listed = {"apiVersion": "v1", "kind": "PodList" if form == "PodList" else "List", "items": several}
    texts = {
        "one": json.dumps(one),
        "stream": "\n".join(map(json.dumps, several)),
        "array": json.dumps(several),
        "yaml": yaml.safe_dump(listed),
        "yaml of one": yaml.safe_dump(one),
        "yaml stream": yaml.safe_dump_all(several, explicit_start=True),
    }
    found = load(texts.get(form, json.dumps(listed)).encode(), "pods")
    assert [each.name for each in found.pods] == (["a"] if "one" in form else ["a", "b"])
    lines = texts.get(form, "").splitlines()
    if form.startswith("yaml"):
        for each in found.pods:
            assert "apiVersion" in lines[each.line - 1]


@pytest.mark.parametrize(
    ("containers", "init", "count", "most"),
    [
        ((1,), (), 1, 1),
        ((1, 2), (), 3, 2),
        ((1, 1), (), 2, 1),
        ((1,), ((4, False),), 4, 4),
        ((3,), ((1, False), (2, False)), 3, 3),
        ((1,), ((1, True),), 2, 1),
        ((1,), ((1, True), (3, False)), 4, 3),
        ((2,), ((3, False), (1, True)), 3, 3),
    ],
)
def test_init_containers_and_sidecars_count_as_for_the_scheduler(
    containers: tuple[int, ...], init: tuple[tuple[int, bool], ...], count: int, most: int
) -> None:
    first = [{**container(nvidia_com__gpu=str(n)), **({"restartPolicy": "Always"} if stays else {})} for n, stays in init]
    found = loaded(pod(*(container(nvidia_com__gpu=n) for n in containers), initContainers=first))
    assert [(one.resource, one.count, one.per_container) for one in found.pods] == [("nvidia.com/gpu", count, most)]


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-1g.5gb.shared",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "habana.ai/gaudi",
        "x.org/vgpu",
    ],
)
def test_resources_of_every_vendor_keep_their_names(resource: str) -> None:
    (one,) = loaded(pod({"resources": {"limits": {resource: "1", "rdma/hca": 1, "cpu": 1, "hugepages-2Mi": "1"}}})).pods
    assert one.resource == resource


def test_pods_that_have_ended_say_how_long_they_ran() -> None:
    found = loaded(
        pod(status=ended("2026-10-01T06:00:05Z", "2026-10-01T07:00:05Z")),
        pod(status=ended("2026-10-01T06:00:05Z", "2026-10-01T06:00:05Z", "Failed")),
        pod(status=ended("2026-10-01T06:00:05Z", "2026-10-01T06:00:04Z")),
        pod(status=ended("2026-10-01T06:00:05Z", None)),
        pod(status=ended(None, "2026-10-01T06:00:05Z")),
        pod(status={**ended("2026-10-01T06:00:05Z", "2026-10-01T07:00:05Z"), "phase": "Running"}),
    )
    assert [one.duration for one in found.pods] == [3600, 1, None]
    assert [one.reason for one in found.left_out] == [
        "it ended before it began: clocks differ",
        "it has ended, and its status does not say when it began and ended",
        "it has ended, and its status does not say when it began and ended",
    ]
    assert "1 pod ended within the second in which it began: it lasts one second" in found.assumed


def test_arrivals_are_times_of_creation() -> None:
    later, unknown = pod(name="b"), pod(name="c")
    later["metadata"]["creationTimestamp"] = "2026-10-01T08:00:00Z"
    del unknown["metadata"]["creationTimestamp"], unknown["metadata"]["namespace"]
    found = loaded(pod(), later, unknown)
    assert [(one.arrival, one.namespace) for one in found.pods] == [(0, "physics"), (7200, "physics"), (0, "default")]
    assert "1 pod without a creation time: at the beginning" in found.assumed


def test_pods_that_choose_nodes_otherwise_are_counted() -> None:
    affinity: dict[str, Any] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    label = {"nvidia.com/gpu.product": "Tesla-T4"}
    found = loaded(pod(affinity=affinity), pod(nodeSelector=label), pod(nodeSelector={"gpushare.dev/pool": "a"}))
    assert "2 pods with a node affinity or other labels in nodeSelector, which are not simulated" in found.assumed


def test_objects_that_are_left_out() -> None:
    several = {**container(nvidia_com__gpu=1), "resources": {"limits": {"nvidia.com/gpu": 1, SHARED: 1}}}
    found = loaded(
        pod(),
        pod({"resources": {}}),
        pod({}, resourceClaims=[{"name": "gpu"}]),
        pod(several),
        pod(container(nvidia_com__gpu="0")),
        pod(container(nvidia_com__gpu="500m")),
        {"kind": "Deployment"},
        {"kind": "Pod", "spec": "text"},
        7,
        None,
        pod(nodeSelector={"gpushare.dev/pool": "A B"}),
    )
    assert len(found.pods) == 1
    assert [one.reason for one in found.left_out] == [
        "it asks for no GPU",
        "it asks by a ResourceClaim, which is not read",
        "it asks for several GPU resources: nvidia.com/gpu and nvidia.com/gpu.shared",
        "it asks for no GPU",
        "nvidia.com/gpu has a value that is no whole number",
        "a Deployment is not a pod",
        "it is not a pod: it has no containers",
        "it is not a pod: it has no containers",
        "it is not a pod: it has no containers",
        "its nodeSelector gpushare.dev/pool has no name of a pool",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"items": []}', "pods has no objects"),
        ("[]", "pods has no objects"),
        ('{"items": [{"kind": "Node"}]}', "no object of pods can be used: 1 of 1 are left out because a Node is not a pod"),
        ('{"items": [{"kind": "Pod"}, {"ki', "pods:1:30: this is no JSON"),
        ('{"items": [{"kind": "Pod"} 7', "pods:1:28: this is no JSON: a comma or ] is expected"),
        ('{"items": [{}', "pods:1:14: this is no JSON"),
        ('{"items" 1', "pods:1:10: this is no JSON"),
        ("{7: 1}", "pods:1:3: this is no JSON"),
        ('{"items": [{}]} x', "pods:1:17: this is no JSON: an object is expected"),
        ("[" * 100_000, "pods:1: this JSON is too deep"),
        (f"[{'1' * 10_000}]", "pods:1: this JSON is too deep, or has a number that is too long"),
        ("kind: Pod\nspec: {", "pods:2:8: "),
        ("kind: Pod\nkind: Pod\n", "pods:2:1: "),
        ("kind: Pod\n\x00", "pods:2: a NUL byte"),
        (b"kind: Pod\n\xff", "pods:2: a byte that is not UTF-8"),
        ("kind: List\nitems:\n" + "- 0\n" * (5 << 20), "pods has more than 16 MiB of YAML, which is the limit"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_text_that_cannot_be_used(text: str | bytes, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        load(text if isinstance(text, bytes) else text.encode(), "pods")
    assert str(caught.value).startswith(message)
