"""Pace: the node's turn to be changed, and that it is renewed while it is needed."""

from contextlib import suppress

from gpushare_node.clock import Clock
from gpushare_node.kube.cluster import Cluster, ClusterError, Turn

_RENEWAL_SECONDS = 60.0
"""Many times in the life of a Lease: one that the API server missed does no harm."""


class Pace:
    """At most one turn. A node that fails keeps it, so that a bad change stops; when the program ends, it expires."""

    def __init__(self, cluster: Cluster | None, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._turn: Turn | None = None
        self._renewed_at = 0.0

    def take(self, limit: int | str) -> bool:
        """Take a turn, or find that this node has one already; False: all are taken. ClusterError."""
        if self._cluster is None:
            return True
        self._turn = self._cluster.take_turn(limit)
        self._renewed_at = self._clock.now()
        return self._turn is not None

    def renew(self) -> None:
        """Say once a minute that it is still needed. One that was lost shows when the next is taken: what has begun goes on."""
        if self._turn is None or self._cluster is None or self._clock.now() - self._renewed_at < _RENEWAL_SECONDS:
            return
        self._renewed_at = self._clock.now()
        with suppress(ClusterError):
            self._cluster.renew_turn(self._turn)

    def give_back(self) -> None:
        """Another node may be changed now. One that a run before this kept, since it failed, is found and given back too.

        ClusterError leaves the turn to expire.
        """
        if self._cluster is None:
            return
        turn, self._turn = self._turn or self._cluster.take_turn(0), None
        if turn is not None:
            self._cluster.end_turn(turn)
