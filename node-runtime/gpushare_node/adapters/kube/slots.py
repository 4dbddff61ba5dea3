"""Slots: the Lease objects that limit a pool's rollout, each read and written by its name. Decides nothing.

A free slot has no Lease. An existing Lease contains the holder of the slot, and is deleted with the pool's DaemonSet.
"""

import datetime

from gpushare_node.adapters.kube.cluster import POOL_LABEL
from gpushare_node.adapters.kube.connection import CONFLICT, METADATA, NOT_FOUND, Connection, Json, Request
from gpushare_node.adapters.kube.pod_identity import PodIdentity

_CACHED = {"resourceVersion": "0"}


class Slots:
    """The Leases of one pool, as one node sees them. Every method raises ClusterError."""

    def __init__(self, connection: Connection, identity: PodIdentity) -> None:
        self._connection = connection
        self._place = identity
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{identity.namespace}/leases"

    def name(self, slot: object) -> str:
        """Return the Lease's name. A pool's name contains no dot, so no two pairs of pool and slot have the same name."""
        return f"{self._place.workload}.{slot}"

    def read(self, name: str, *, is_fresh: bool = False) -> Json | None:
        """Return the Lease; from the API server's cache, unless it must be fresh.

        Every write contains the version that was read, so an outdated one does no harm.
        """
        return self._connection.find(f"{self._folder}/{name}", {} if is_fresh else _CACHED)

    def beyond(self, count: int) -> tuple[Json, ...]:
        """Return the Leases of slots from this number on, which an earlier, larger limit allowed."""
        every = self._connection.pages(self._folder, {"labelSelector": f"{POOL_LABEL}={self._place.pool}"})
        numbers = ((one, one["metadata"]["name"].removeprefix(self.name(""))) for one in every)
        return tuple(one for one, number in numbers if number.isdecimal() and number.isascii() and int(number[:9]) >= count)

    def create(self, name: str, spec: Json) -> Json | None:
        """Create the Lease; None if another node was faster. Mostly the last read shows that, which saves a rejected write."""
        metadata: Json = {"name": name, "labels": {POOL_LABEL: self._place.pool}}
        owner = self.daemonset()
        if owner:
            # Kubernetes deletes the Lease with the DaemonSet: uninstalling or renaming a pool leaves none behind.
            metadata["ownerReferences"] = [
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "blockOwnerDeletion": False,
                }
            ]
        if self.read(name, is_fresh=True) is not None:
            return None
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        return self._write(Request(method="POST", path=self._folder, body=body, is_repeatable=False))

    def update(self, lease: Json, spec: Json) -> Json | None:
        """Write the Lease with this spec; None if it no longer has the version that was read."""
        path = f"{self._folder}/{lease['metadata']['name']}"
        return self._write(Request(method="PUT", path=path, body={**lease, "spec": spec}, is_repeatable=False))

    def delete(self, lease: Json) -> bool:
        """Delete it; False if it no longer has the version that was read."""
        expected = {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": expected}
        path = f"{self._folder}/{lease['metadata']['name']}"
        return self._write(Request(method="DELETE", path=path, body=options)) is not None

    def has_node(self, name: str) -> bool:
        """Whether a node of this name exists."""
        return self._connection.find(f"/api/v1/nodes/{name}", _CACHED, METADATA) is not None

    def daemonset(self) -> Json:
        """Return the pool's DaemonSet; empty if it does not exist."""
        return self._connection.find(self._place.daemonset_path, _CACHED) or {}

    def _write(self, request: Request) -> Json | None:
        return self._connection.attempt(request, NOT_FOUND, CONFLICT)


def now_text() -> str:
    """Return the current time in a Lease's format, for people who read it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
