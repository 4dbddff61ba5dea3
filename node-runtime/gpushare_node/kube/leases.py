"""Leases: the pool's turns. Who holds one may be changed; as many exist as `maxUnavailable` says, made when first needed.

Expiry is judged as client-go's leader election does: a Lease has expired when it has not changed for its duration by our own
monotonic clock. The times written in it are for readers; the nodes' clocks may differ by hours.
"""

import datetime
import random
from typing import Any

from gpushare_node.clock import Clock
from gpushare_node.kube.cluster import POOL_LABEL, ClusterError, Turn
from gpushare_node.kube.connection import Connection, Json, Request
from gpushare_node.kube.place import Place

DURATION_SECONDS = 900
"""A node that reboots for its change keeps its turn: servers with eight GPUs need some ten minutes for it."""
RENEW_SECONDS = 300

_CONFLICT = 409


class Leases:
    """The turns of one pool, as one node sees them. Not safe for several threads."""

    def __init__(self, connection: Connection, place: Place, clock: Clock) -> None:
        self._connection = connection
        self._place = place
        self._clock = clock
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases"
        self._seen: dict[str, tuple[Any, float]] = {}
        """Each Lease's content, and since when, by our clock, it is so."""
        self._renewed_at: dict[str, float] = {}

    def take(self, limit: int | str) -> Turn | None:
        """A turn that this node holds already, else one that is free, else None. ClusterError."""
        leases = self._read()
        mine = self._own(leases)
        if mine:
            return self._took(mine, leases[mine])
        most = self._count(limit)
        taken = {name for name, lease in leases.items() if _holder(lease) and not self._has_expired(lease)}
        if len(taken) >= most:
            return None
        free = [name for name in (f"gpushare-{self._place.pool}-turn-{number}" for number in range(most)) if name not in taken]
        # One, and any: were all nodes to try all from the first on, a turn would cost as many refused writes as nodes wait.
        name = random.choice(free)  # noqa: S311 - spreads load, guards nothing
        return Turn(name=name) if self._grab(name, leases.get(name)) else None

    def find(self) -> Turn | None:
        """A turn that this node holds already, perhaps since a run that died. ClusterError."""
        mine = self._own(self._read())
        return Turn(name=mine) if mine else None

    def renew(self, turn: Turn) -> None:
        """Write that the turn is needed, every five minutes at most. ClusterError, of status 409 if another has it now."""
        if self._clock.now() - self._renewed_at.get(turn.name, float("-inf")) < RENEW_SECONDS:
            return
        self._write_own(turn, lambda lease: {**lease["spec"], "renewTime": _now()})
        self._renewed_at[turn.name] = self._clock.now()

    def end(self, turn: Turn) -> None:
        """Let go of it. Nothing happens where another has it. ClusterError."""
        try:
            self._write_own(turn, lambda lease: {key: one for key, one in lease["spec"].items() if key != "holderIdentity"})
        except ClusterError as error:
            if error.status not in {404, _CONFLICT}:
                raise
        self._renewed_at.pop(turn.name, None)

    def _own(self, leases: dict[str, Json]) -> str | None:
        return min((name for name, lease in leases.items() if _holder(lease) == self._place.node), default=None)

    def _read(self) -> dict[str, Json]:
        items = self._connection.get(self._path, {"labelSelector": f"{POOL_LABEL}={self._place.pool}"}).get("items") or ()
        leases = {lease["metadata"]["name"]: lease for lease in items}
        for name, lease in leases.items():
            if name not in self._seen or self._seen[name][0] != lease["spec"]:
                self._seen[name] = (lease["spec"], self._clock.now())
        return leases

    def _has_expired(self, lease: Json) -> bool:
        spec, since = self._seen[lease["metadata"]["name"]]
        return self._clock.now() - since > float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)

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
            if error.status == 404:
                return {}
            raise

    def _grab(self, name: str, lease: Json | None) -> bool:
        """Take a free or expired one, unless somebody is faster."""
        try:
            self._make(name) if lease is None else self._take_over(name, lease)
        except ClusterError as error:
            if error.status == _CONFLICT:
                return False
            raise
        self._renewed_at[name] = self._clock.now()
        return True

    def _make(self, name: str) -> None:
        metadata: Json = {"name": name, "labels": {POOL_LABEL: self._place.pool}}
        owner = self._daemonset()
        if owner:
            # With the DaemonSet the Lease goes: uninstalling and renaming a pool leave none behind.
            metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner["metadata"]["name"],
                                            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": False}]
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": self._spec(0)}
        # Repeated after a lost answer this would meet our own Lease and take it for another's.
        self._connection.ask(Request(method="POST", path=self._path, body=body, is_repeatable=False))

    def _take_over(self, name: str, lease: Json) -> None:
        transitions = int(lease["spec"].get("leaseTransitions") or 0) + 1
        self._put(name, {**lease, "spec": self._spec(transitions)})

    def _spec(self, transitions: int) -> Json:
        now = _now()
        return {"holderIdentity": self._place.node, "leaseDurationSeconds": DURATION_SECONDS, "acquireTime": now,
                "renewTime": now, "leaseTransitions": transitions}

    def _took(self, name: str, lease: Json) -> Turn:
        """Ours from before, perhaps from a pod that is gone: as good as new."""
        self._put(name, {**lease, "spec": {**lease["spec"], "renewTime": _now()}})
        self._renewed_at[name] = self._clock.now()
        return Turn(name=name)

    def _write_own(self, turn: Turn, change: Any) -> None:
        lease = self._connection.get(f"{self._path}/{turn.name}")
        if _holder(lease) != self._place.node:
            raise ClusterError(f"hold {turn.name}", _CONFLICT, f"{_holder(lease) or 'nobody'} has it now")
        self._put(turn.name, {**lease, "spec": change(lease)})

    def _put(self, name: str, lease: Json) -> None:
        """The version that the Lease carries must be the one there: of two that are after it, one gets it."""
        self._connection.ask(Request(method="PUT", path=f"{self._path}/{name}", body=lease, is_repeatable=False))


def _holder(lease: Json) -> str:
    return str(lease["spec"].get("holderIdentity") or "")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
