"""Leases: the pool's queue. Each node that wants to be changed puts one in it; the first `maxUnavailable` have the turns.

Who joins writes once, and who is done deletes once: nodes never write to the same object, so no write is refused however many
wait. First is who came first by the API server's own count of writes, the resourceVersion (integers, ordered: KEP-5504; etcd
has no other): a Lease that waits is never written again. One that is renewed says `acquireTime`, and stays before all others.

Expiry is judged as client-go's leader election does: a turn has expired when its Lease has not changed for its duration by our
own monotonic clock. The times written in it are for readers; the nodes' clocks may differ by hours.
"""

import datetime
import random

from gpushare_node.clock import Clock
from gpushare_node.kube.cluster import POOL_LABEL, ClusterError, Turn
from gpushare_node.kube.connection import Connection, Json, Request
from gpushare_node.kube.place import Place

DURATION_SECONDS = 900
"""A node that reboots for its change keeps its turn: servers with eight GPUs need some ten minutes for it."""
RENEW_SECONDS = 300

_GONE, _CONFLICT = 404, 409


class Leases:
    """The queue of one pool, as one node sees it. Not safe for several threads."""

    def __init__(self, connection: Connection, place: Place, clock: Clock) -> None:
        self._connection = connection
        self._place = place
        self._clock = clock
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases"
        # No pool has a dot in its name: no two pools and nodes make the same.
        self._name = f"{place.workload}.{place.node}"
        self._path = f"{self._folder}/{self._name}"
        self._alive_at: float | None = None
        """The last time for which nobody can have taken this node for dead: it wrote its Lease, or had no turn yet."""
        self._front: dict[str, tuple[str, float]] = {}
        """The Leases that have turns: the version of each, and since when, by our clock, it is that."""

    def take(self, limit: int | str) -> Turn:
        """Join the queue, or see how far it has come. ClusterError."""
        if self._alive_at is None and self._join():
            self._alive_at = self._clock.now()
        queue = self._read()
        if self._name not in queue:
            # It expired, and others went on.
            self._join()
            self._alive_at = self._clock.now()
            queue = self._read()
            if self._name not in queue:
                text = "it is there and not of the queue: delete it"
                raise ClusterError(f"queue by Lease {self._place.namespace}/{self._name}", _CONFLICT, text)
        most = self._count(limit)
        front = [lease for lease in list(queue.values())[:most] if lease["metadata"]["name"] != self._name]
        for lease in self._find_expired(front) or (self._find_orphan(front) if len(front) == most else ()):
            if self._sweep(lease):
                del queue[lease["metadata"]["name"]]
        place = list(queue).index(self._name)
        if place >= most:
            self._alive_at = self._clock.now()
        elif not self._is_fresh():
            self._renew(queue[self._name])
        return Turn(rounds=place // most)

    def find(self) -> bool:
        """Whether this node is in the queue, perhaps since a run that died. ClusterError."""
        try:
            self._connection.get(self._path)
        except ClusterError as error:
            if error.status == _GONE:
                return False
            raise
        return True

    def renew(self) -> None:
        """Write that the turn is needed, every five minutes at most. ClusterError, of status 404 if it has expired."""
        if self._is_fresh():
            return
        self._renew(self._connection.get(self._path))

    def end(self) -> None:
        """Leave the queue. ClusterError."""
        self._delete({"apiVersion": "v1", "kind": "DeleteOptions"}, self._path)
        self._alive_at = None

    def _is_fresh(self) -> bool:
        """False where others may soon take it for dead: after five minutes, a pod before this one, a long sleep."""
        return self._alive_at is not None and self._clock.now() - self._alive_at < RENEW_SECONDS

    def _join(self) -> bool:
        """False: this node is in the queue already."""
        metadata: Json = {"name": self._name, "labels": {POOL_LABEL: self._place.pool}}
        owner = self._daemonset()
        if owner:
            # With the DaemonSet the Lease goes: uninstalling and renaming a pool leave none behind.
            metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner["metadata"]["name"],
                                            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": False}]
        spec = {"holderIdentity": self._place.node, "leaseDurationSeconds": DURATION_SECONDS}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            # Repeated after a lost answer it would be taken for one from before, which must be renewed.
            self._connection.ask(Request(method="POST", path=self._folder, body=body, is_repeatable=False))
        except ClusterError as error:
            if error.status == _CONFLICT:
                return False
            raise
        return True

    def _read(self) -> dict[str, Json]:
        """By name, the first in the queue first. What somebody else has labelled so, and stands for no node, is not of it."""
        items = self._connection.get(self._folder, {"labelSelector": f"{POOL_LABEL}={self._place.pool}"}).get("items") or ()
        ours = [lease for lease in items if (lease.get("spec") or {}).get("holderIdentity")]
        return {lease["metadata"]["name"]: lease for lease in sorted(ours, key=_order)}

    def _find_expired(self, front: list[Json]) -> list[Json]:
        """Of those others that have turns, who has not written for too long."""
        now = self._clock.now()
        before, self._front = self._front, {}
        for lease in front:
            name, version = lease["metadata"]["name"], lease["metadata"]["resourceVersion"]
            seen = before.get(name)
            self._front[name] = seen if seen and seen[0] == version else (version, now)
        return [lease for lease in front if now - self._front[lease["metadata"]["name"]][1] > DURATION_SECONDS]

    def _find_orphan(self, front: list[Json]) -> list[Json]:
        """One whose node is no more, if there is: an autoscaler, or a person, has given it up. One is asked after at a time."""
        lease = random.choice(front)  # noqa: S311 - spreads load, guards nothing
        try:
            self._connection.get(f"/api/v1/nodes/{lease['spec']['holderIdentity']}")
        except ClusterError as error:
            if error.status == _GONE:
                return [lease]
            raise
        return []

    def _sweep(self, lease: Json) -> bool:
        """Delete it as it was seen, and its node must queue again. False: it was renewed in this moment, and stays."""
        expected = {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": expected}
        return self._delete(options, f"{self._folder}/{lease['metadata']['name']}")

    def _delete(self, options: Json, path: str) -> bool:
        """Whether it is gone then."""
        try:
            self._connection.ask(Request(method="DELETE", path=path, body=options))
        except ClusterError as error:
            if error.status not in {_GONE, _CONFLICT}:
                raise
            return error.status == _GONE
        return True

    def _renew(self, lease: Json) -> None:
        """Of the version that was read: what was swept away or changed meanwhile is a ClusterError."""
        now = _now()
        spec = {"acquireTime": now, **lease["spec"], "renewTime": now}
        self._connection.ask(Request(method="PUT", path=self._path, body={**lease, "spec": spec}, is_repeatable=False))
        self._alive_at = self._clock.now()

    def _count(self, limit: int | str) -> int:
        """How many turns there are: of a percentage, of the nodes that the DaemonSet wants, rounded down; never none."""
        if isinstance(limit, int):
            return limit
        nodes = int((self._daemonset().get("status") or {}).get("desiredNumberScheduled") or 0)
        return max(1, nodes * int(limit.removesuffix("%")) // 100)

    def _daemonset(self) -> Json:
        """The pool's; empty if it is gone."""
        try:
            return self._connection.get(self._place.daemonset_path)
        except ClusterError as error:
            if error.status == _GONE:
                return {}
            raise


def _order(lease: Json) -> tuple[bool, int]:
    return "acquireTime" not in lease["spec"], int(lease["metadata"]["resourceVersion"])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
