"""A cluster with pools of NVIDIA's DRA driver on the API server's double.

Slices, claims and pods have the shapes that NVIDIA's driver and Kubernetes 1.36 gave them (tests/node/backends/dra/files).
"""

from typing import Any

from tests.compiler.cluster.live.clusters import LiveCluster
from tests.support.fake_api.server import ApiServer

DRA = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: live}
spec:
  kubernetes: "1.36"
  platform:
    dra: {via: chart, version: "0.5.0", shares: memory}
  pools:
    notebooks:
      backend: dra
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}, expected: 2}
      gpusPerNode: 2
      sharing: {mode: time-slicing, replicas: 4}
      memory: {cap: even}
      sizes: {large: 7680Mi}
    training:
      backend: dra
      requests: both
      namespaces: [physics]
      card: a100-pcie-40gb
      nodes: {names: [a100-1]}
      gpusPerNode: 1
      sharing: {mode: mig, layout: {2g.10gb: 2, 1g.5gb: 3}}
  quotas:
    team: {notebooks: 6}
"""

NOTEBOOKS, LARGE = "gpushare-notebooks", "gpushare-training-2g-10gb"

LIMIT = "nvidia.com/mig-2g.10gb"

VALIDATING = "validatingadmissionpolicies"
ON_DEMAND = DRA.replace("layout: {2g.10gb: 2, 1g.5gb: 3}", "layout: on-demand, profiles: [2g.10gb, 1g.5gb]")


def device(name: str, product: str = "Tesla T4", memory: str = "15Gi", *, mig: str = "", shared: bool = True) -> dict[str, Any]:
    """A device as the driver publishes it with consumableShares memory."""
    texts = {
        "type": "mig" if mig else "gpu",
        "productName": product,
        "uuid": f"GPU-{name}",
        **({"profile": mig} if mig else {}),
    }
    policy = {"requestPolicy": {"default": memory, "validRange": {"max": memory, "min": "1Mi", "step": "1Mi"}}}
    return {
        "name": name,
        "attributes": {key: {"string": text} for key, text in texts.items()},
        "capacity": {"memory": {"value": memory, **(policy if shared else {})}},
        **({"allowMultipleAllocations": True} if shared else {}),
    }


def add_slice(api: ApiServer, node: str, devices: list[Any], *, name: str = "", generation: int = 1, count: int = 1) -> None:
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": devices}
    api.add("resourceslices", name or f"00000-gpu.nvidia.com-{node}", {"spec": spec})


def add_claim(  # noqa: PLR0917 - the parts of a claim
    api: ApiServer,
    namespace: str,
    pod: str,
    device_class: str = NOTEBOOKS,
    memory: str = "3840Mi",
    on: tuple[str, str] | None = None,
    *,
    uid: str = "",
    consumed: str = "",
) -> str:
    """A claim that was made for a pod; `on` is the node and device that it has. `consumed`: of memory, if it asks for none."""
    capacity = {"capacity": {"requests": {"memory": memory}}} if memory else {}
    exactly = {"allocationMode": "ExactCount", "count": 1, "deviceClassName": device_class, **capacity}
    status: dict[str, Any] = {}
    if on is not None:
        takes = {"consumedCapacity": {"memory": memory or consumed}, "shareID": "1"} if memory or consumed else {}
        result = {"device": on[1], "driver": "gpu.nvidia.com", "pool": on[0], "request": "gpu", **takes}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"name": pod, "resource": "pods", "uid": uid or f"uid-{pod}"}],
        }
    owner = [{"apiVersion": "v1", "kind": "Pod", "controller": True, "name": pod, "uid": uid or f"uid-{pod}"}]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    name = f"{pod}-gpu-abcde"
    api.add(
        "resourceclaims", name, {"metadata": {"ownerReferences": owner}, "spec": spec, "status": status}, namespace=namespace
    )
    return name


def add_pod(api: ApiServer, namespace: str, name: str, node: str = "", template: str = "gpushare-notebooks.share") -> None:
    """A pod that claims a device by a template; its claim, if there is one, is that of `add_claim`."""
    api.add_pod(name, namespace=namespace, node=node, uid=f"uid-{name}", phase="Running" if node else "Pending")
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    statuses = [{"name": "gpu", "resourceClaimName": f"{name}-gpu-abcde"}]

    def change(pod: dict[str, Any]) -> None:
        pod["spec"].update(resourceClaims=claims, nodeSelector={"gpushare.dev/pool": "notebooks"})
        pod["status"].update(resourceClaimStatuses=statuses)

    api.edit("pods", name, change, namespace=namespace)


def use(api: ApiServer, pod: str, node: str, device: str, memory: str = "3840Mi") -> None:
    """A running pod that has so much of a device."""
    namespace, _, name = pod.partition("/")
    add_pod(api, namespace, name, node)
    add_claim(api, namespace, name, memory=memory, on=(node, device))


MIG = [
    *(device(f"gpu-0-mig-2g10gb-14-{at}", "NVIDIA A100-PCIE-40GB", "9856Mi", mig="2g.10gb") for at in (0, 2)),
    *(device(f"gpu-0-mig-1g5gb-19-{at}", "NVIDIA A100-PCIE-40GB", "4864Mi", mig="1g.5gb") for at in (4, 5, 6)),
]


def of_dra(api: ApiServer) -> LiveCluster:
    """Three nodes as planned; on t4-1 a pod with two shares and one with a share."""
    found = LiveCluster(api, DRA)
    for node in ("t4-1", "t4-2"):
        found.add_node(node, "notebooks")
        add_slice(api, node, [device("gpu-0"), device("gpu-1")])
    found.add_node("a100-1", "training")
    add_slice(api, "a100-1", MIG)
    found.add_release()
    use(api, "team/large", "t4-1", "gpu-0", "7680Mi")
    use(api, "team/lab-0", "t4-1", "gpu-0")
    return found


def replace_slice(api: ApiServer, devices: list[Any], **pool: Any) -> None:
    """The slice of t4-2 with other devices."""
    api.remove("resourceslices", "00000-gpu.nvidia.com-t4-2")
    add_slice(api, "t4-2", devices, **pool)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def words(text: str) -> str:
    return " ".join(text.split())
