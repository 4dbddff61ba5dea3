"""Node objects of simulated nodes: made on a real API server, and taken away again, whatever is on them."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import METADATA_LIST, ApiRequest, Connection, Json

NODES = "/api/v1/nodes"
_MARK = "example.org/simulated"
_ENOUGH_SECONDS = 3600.0
_NOT_FOUND = 404


def simulated(name: str, purpose: str, labels: dict[str, str], status: Json) -> Json:
    """A node that belongs to a simulation of this purpose, labelled as gpu-operator labels nodes with GPUs."""
    metadata = {"name": name, "labels": {**labels, _MARK: purpose, "nvidia.com/gpu.deploy.client": "true"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def laden(number: int, purpose: str, labels: dict[str, str], **status: object) -> Json:
    """A node as large as real ones: with 50 images and NVIDIA's labels."""
    some = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{one}": "true" for one in range(80)}
    some |= {f"nvidia.com/gpu.label-{one}": f"value-{one}" for one in range(30)}
    digest = "sha256:" + "0123456789abcdef" * 4
    name = "registry.example.org/some/repository"
    images = [{"names": [f"{name}-{one}@{digest}", f"{name}-{one}:v1"], "sizeBytes": 10**9} for one in range(50)]
    ready = [
        {"type": kind, "status": word, "reason": "Simulated", "message": "a simulated node"}
        for kind, word in (("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"), ("Ready", "True"))
    ]
    return simulated(f"laden-{number:05}", purpose, labels | some, {"images": images, "conditions": ready, **status})


@contextmanager
def standing(connection: Connection, purpose: str, nodes: Iterable[Json]) -> Iterator[None]:
    """The nodes, all of this purpose, while it is simulated."""
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda one: connection.ask(ApiRequest(method="POST", path=NODES, body=one)), nodes):
                pass  # the answers are as large as the nodes
        yield
    finally:
        _clear(connection, purpose)


def _clear(connection: Connection, purpose: str) -> None:
    selector = {"labelSelector": f"{_MARK}={purpose}"}
    deadline = time.monotonic() + _ENOUGH_SECONDS
    while names := [one["metadata"]["name"] for one in connection.pages(NODES, selector, METADATA_LIST)]:
        assert time.monotonic() < deadline
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(partial(_delete, connection), names))


def _delete(connection: Connection, name: str) -> None:
    try:
        connection.ask(ApiRequest(method="DELETE", path=f"{NODES}/{name}"))
    except ClusterError as error:
        # A request that was repeated may have been carried out the first time.
        if error.status != _NOT_FOUND:
            raise
