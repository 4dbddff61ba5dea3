"""RolloutSlots: the pool's `maxUnavailable` rollout slots, each of which is one Lease. A node that holds a slot may be changed.

A node that waits reads the Lease of one slot, picked at random, every twenty seconds: its cost does not grow with the number of
nodes that wait. A slot without a Lease is free, and the node that creates the Lease holds it; a node that lost this race
waits twice as long each time, so a slow API server gets fewer writes and not more. First come, first served would need a list.
Before it acquires one, it lists the pool's Leases: those beyond a limit that was reduced count for as long as they are held.

Expiry works as in client-go's leader election: a Lease has expired if its version has not changed for its duration by our
own monotonic clock. The times in it are for people who read it; the nodes' clocks may differ by years.
"""

import datetime
import random
from typing import Protocol

from gpushare_node.adapters.kube.cluster import ClusterError, SlotResult
from gpushare_node.adapters.kube.connection import CONFLICT, METADATA, NOT_FOUND, ApiRequest, Connection, Json, jitter
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.core.clock import Clock

_CACHED = {"resourceVersion": "0"}


class Slots:
    """The Leases of one pool, as one node sees them, each read and written by its name. Every method raises ClusterError.

    A free slot has no Lease. An existing Lease contains the holder of the slot, and is deleted with the pool's DaemonSet.
    """

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
        return self._write(ApiRequest(method="POST", path=self._folder, body=body, is_repeatable=False))

    def update(self, lease: Json, spec: Json) -> Json | None:
        """Write the Lease with this spec; None if it no longer has the version that was read."""
        path = f"{self._folder}/{lease['metadata']['name']}"
        return self._write(ApiRequest(method="PUT", path=path, body={**lease, "spec": spec}, is_repeatable=False))

    def delete(self, lease: Json) -> bool:
        """Delete it; False if it no longer has the version that was read."""
        expected = {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": expected}
        path = f"{self._folder}/{lease['metadata']['name']}"
        return self._write(ApiRequest(method="DELETE", path=path, body=options)) is not None

    def has_node(self, name: str) -> bool:
        """Whether a node of this name exists."""
        return self._connection.find(f"/api/v1/nodes/{name}", _CACHED, METADATA) is not None

    def daemonset(self) -> Json:
        """Return the pool's DaemonSet; empty if it does not exist."""
        return self._connection.find(self._place.daemonset_path, _CACHED) or {}

    def _write(self, request: ApiRequest) -> Json | None:
        return self._connection.attempt(request, NOT_FOUND, CONFLICT)


def now_text() -> str:
    """Return the current time in a Lease's format, for people who read it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


DURATION_SECONDS = 900
"""A node that reboots for its change keeps its slot: servers with eight GPUs need about ten minutes for a reboot."""
RENEW_SECONDS = 300
ASK_SECONDS = 60
"""How often a node that waits checks whether a holder's node still exists."""
POLL_SECONDS = 20.0
MAX_POLL_SECONDS = 320.0
COUNT_SECONDS = 300.0
"""How long the DaemonSet's number of nodes is cached for a percentage."""

_ARRIVAL_SECONDS = 0.1
_MAX_ARRIVAL_SECONDS = 10.0
"""Nodes that start together look for a slot at different times, so that few try to create the same Lease."""


class SlotStore(Protocol):
    """Stores the name of the node's Lease for the next pod."""

    def slot(self) -> str | None:
        """Return the last stored name."""
        ...

    def keep_slot(self, name: str | None) -> None:
        """Store it; None: the node has none any more."""
        ...


class RolloutSlots:
    """The slots of one pool, as one node sees them. Not thread-safe."""

    def __init__(self, connection: Connection, identity: PodIdentity, clock: Clock, store: SlotStore) -> None:
        self._slots = Slots(connection, identity)
        self._holder = identity.node
        self._clock = clock
        self._store = store
        self._held: Json | None = None
        self._held_at = 0.0
        """When it was last written: no node can take it over before it expires."""
        self._seen: dict[str, tuple[str, float]] = {}
        """For each Lease of other nodes, the version that was read, and since when by our clock it is unchanged."""
        self._asked_at = float("-inf")
        self._lost = 0
        self._is_arriving = True
        self._nodes: tuple[int, float] | None = None

    def take(self, limit: int | str) -> SlotResult:
        """Acquire a slot, or keep the one that this node has. ClusterError."""
        if self._is_held():
            return SlotResult(is_held=True)
        if self._is_arriving and (nodes := self._size()):
            self._clock.sleep(jitter(min(_MAX_ARRIVAL_SECONDS, nodes * _ARRIVAL_SECONDS), 1.0))
        self._is_arriving = False
        count = self._count(limit)
        slot = random.randrange(count)  # noqa: S311 - spreads load, guards nothing
        lease = self._slots.read(self._slots.name(slot))
        taken = (lease,) if lease is not None and self._held_by_other(lease) else self._beyond(count)
        if taken:
            return self._wait(_holder(taken[0]))
        if not self._acquire(self._slots.name(slot), lease):
            self._lost += 1
            return self._wait()
        # The node that lost the slot without releasing it, if there is one.
        former = "" if lease is None else _holder(lease)
        return SlotResult(is_held=True, former="" if former == self._holder else former)

    def find(self) -> bool:
        """Whether this node has a slot, perhaps from an earlier run that crashed. ClusterError."""
        name = self._store.slot()
        if self._held is None and name is not None and name.startswith(self._slots.name("")):
            self._keep(self._own(name))
            # Forces a write first: it may be about to expire.
            self._held_at = float("-inf")
        return self._held is not None

    def renew(self) -> None:
        """Renew the slot, at most every five minutes. ClusterError, with status 404 if it was lost."""
        if self._held is not None and self._clock.now() - self._held_at >= RENEW_SECONDS:
            self._renew(self._held)
            if self._held is None:
                raise ClusterError(f"renew a Lease of {self._slots.name('')}", NOT_FOUND, "another node has taken it over")

    def end(self) -> None:
        """Release the slot. ClusterError."""
        if self.find() and self._held is not None and not self._slots.delete(self._held):
            # A write whose answer was lost may have changed the version.
            again = self._own(self._held["metadata"]["name"])
            if again is not None:
                self._slots.delete(again)
        self._keep(None)

    def _is_held(self) -> bool:
        """Whether this node holds a slot. If its last write is old, another node may have it, so it is renewed first."""
        if self.find() and self._held is not None and self._clock.now() - self._held_at >= RENEW_SECONDS:
            self._renew(self._held)
        return self._held is not None

    def _renew(self, lease: Json) -> None:
        written = self._slots.update(lease, {**lease["spec"], "renewTime": now_text()})
        if written is None:
            # As in `end`.
            again = self._own(lease["metadata"]["name"])
            written = again and self._slots.update(again, {**again["spec"], "renewTime": now_text()})
        self._keep(written)

    def _own(self, name: str) -> Json | None:
        """Return the Lease of this name, if this node holds it."""
        lease = self._slots.read(name, is_fresh=True)
        return lease if lease is not None and _holder(lease) == self._holder else None

    def _acquire(self, name: str, lease: Json | None) -> bool:
        """Acquire a slot that no node holds. False: another node was faster."""
        now = now_text()
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION_SECONDS, "acquireTime": now, "renewTime": now}
        self._store.keep_slot(name)
        self._keep(self._slots.create(name, spec) if lease is None else self._slots.update(lease, spec))
        return self._held is not None

    def _keep(self, lease: Json | None) -> None:
        self._held, self._held_at = lease, self._clock.now()
        if lease is None:
            self._store.keep_slot(None)

    def _beyond(self, count: int) -> tuple[Json, ...]:
        """Return the Leases beyond the limit that other nodes still hold: a smaller limit takes effect when there are none."""
        return tuple(slot for slot in self._slots.beyond(count) if self._held_by_other(slot))

    def _wait(self, holder: str = "") -> SlotResult:
        pause_seconds = jitter(min(MAX_POLL_SECONDS, POLL_SECONDS * 2.0**self._lost), 0.25)
        return SlotResult(is_held=False, pause_seconds=pause_seconds, holder=holder)

    def _held_by_other(self, lease: Json) -> bool:
        """Whether another node holds the Lease: it has not expired, and that node was not deleted meanwhile."""
        holder = _holder(lease)
        if holder in {"", self._holder}:
            return False
        name, version, now = lease["metadata"]["name"], lease["metadata"]["resourceVersion"], self._clock.now()
        if self._seen.get(name, ("",))[0] != version:
            self._seen[name] = version, now
        unchanged = now - self._seen[name][1]
        if unchanged and now - self._asked_at >= ASK_SECONDS:
            self._asked_at = now
            return unchanged <= DURATION_SECONDS and self._slots.has_node(holder)
        return unchanged <= DURATION_SECONDS

    def _count(self, limit: int | str) -> int:
        """Return the number of slots: a percentage is of the nodes that the DaemonSet wants, rounded down; at least one."""
        return limit if isinstance(limit, int) else max(1, self._size() * int(limit.removesuffix("%")) // 100)

    def _size(self) -> int:
        """Return how many nodes the pool has, according to its DaemonSet's status."""
        if self._nodes is None or self._clock.now() - self._nodes[1] >= COUNT_SECONDS:
            status = self._slots.daemonset().get("status") or {}
            self._nodes = int(status.get("desiredNumberScheduled") or 0), self._clock.now()
        return self._nodes[0]


def _holder(lease: Json) -> str:
    """Return the node that holds the Lease; empty if none does."""
    return (lease.get("spec") or {}).get("holderIdentity") or ""
