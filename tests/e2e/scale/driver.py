"""NVIDIA's DRA driver on simulated nodes: its pod, and the ResourceSlice of a node's GPU, which the node itself writes."""

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import ApiEndpoint, ApiRequest, Connection
from gpushare_node.adapters.kube.slices import PATH
from gpushare_node.contract.policy import DraShares, Policy
from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import SystemClock
from tests.e2e.cluster.dra.devices import DRIVER, MEMORY, Gpu, gpu_device, mig_device
from tests.e2e.scale.still import Division

_MIB = 1 << 20
_NOT_FOUND = 404


def slice_name(node: str) -> str:
    """As kubelet's helper names them, without what is random in it."""
    return f"{node}-{DRIVER}"


def node_of(path: str) -> str:
    """Whose slice has this path; empty where it is none's."""
    return path.removeprefix(f"{PATH}/").removesuffix(f"-{DRIVER}") if path.startswith(f"{PATH}/") else ""


class DriverPods:
    """The driver of all nodes. One thread at a time asks by it. `namespace` is where its pods are."""

    def __init__(self, address: ApiEndpoint, namespace: str) -> None:
        self._node = ""
        self._address = address
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._own = Connection(address, SystemClock())
        self._as_node = Connection(replace(address, headers=self._headers), SystemClock())

    def _headers(self) -> dict[str, str]:
        """Admission lets only a node, and the driver on it, write the node's slices."""
        who = {"Impersonate-User": f"system:node:{self._node}", "Impersonate-Group": "system:masters"}
        return {**self._address.headers(), **who}

    def start(self, node: str) -> None:
        """The pod runs."""
        labels = {"dra-driver-nvidia-gpu-component": "kubelet-plugin"}
        spec = {
            "nodeName": node,
            "containers": [{"name": "gpus", "image": "driver"}],
            "tolerations": [{"operator": "Exists"}],
        }
        # Of a group that no server has: the garbage collector cannot ask for the owner, and leaves the pod.
        owner = {
            "apiVersion": "tests.gpushare.dev/v1",
            "kind": "DaemonSet",
            "name": "driver",
            "uid": "driver",
            "controller": True,
        }
        metadata = {"name": f"driver-{node}", "labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._own.ask(ApiRequest(method="POST", path=self._pods, body=body))

    def end(self, node: str) -> None:
        """The pod has ended."""
        self._own.ask(ApiRequest(method="DELETE", path=f"{self._pods}/driver-{node}", query={"gracePeriodSeconds": "0"}))

    def publish(self, node: str, uuid: str, policy: Policy, division: Division) -> None:
        """Say which devices the node's GPU has now."""
        gpu = Gpu(minor=0, uuid=uuid, memory_bytes=(policy.card.memory_mib or 0) * _MIB, attributes={})
        counts = {None: "", DraShares.MEMORY: MEMORY, DraShares.COUNT: str(max(one.replicas for one in policy.shares))}
        shares = counts[None if policy.dra is None else policy.dra.shares]
        if division.is_on:
            devices = [mig_device(gpu, one, shares) for one in division.devices(uuid, policy.card.id)]
        else:
            devices = [gpu_device(gpu, shares)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [one["device"] for one in devices]}
        metadata = {"name": slice_name(node)}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        self._node = node
        self._as_node.ask(ApiRequest(method="POST", path=PATH, body=body))

    def withdraw(self, node: str) -> None:
        """Delete the node's slice, as kubelet does, which another may have deleted."""
        self._node = node
        try:
            self._as_node.ask(ApiRequest(method="DELETE", path=f"{PATH}/{slice_name(node)}"))
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise
