"""The API server starts again beside an etcd that went on: what its clients then rely on."""

from tests.e2e.cluster import proxy
from tests.e2e.cluster.cluster import Cluster

IDLE = ("/api/v1/nodes", "/api/v1/pods", "/apis/coordination.k8s.io/v1/leases", "/apis/apps/v1/daemonsets")
"""Kinds of which nothing changes meanwhile: by a write of another kind alone their caches come to its revision."""


def test_every_watch_cache_advances_without_writes_of_its_kind(api: Cluster) -> None:
    """With an etcd that reports no progress it does not: clients get `Too large resource version` for good."""
    api.control_plane.stop_api_server()
    api.control_plane.start_api_server()
    api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "newest", "namespace": "default"}})
    newest = api.read("/api/v1/namespaces/default/configmaps/newest")["metadata"]["resourceVersion"]
    for path in IDLE:
        wanted = f"{path}?resourceVersion={newest}&resourceVersionMatch=NotOlderThan"
        api.wait(
            lambda at=wanted: proxy.send(api.control_plane.proxy, "GET", at).status == 200,
            f"the cache of {path} has come to {newest}",
            seconds=60,
        )
