"""RolloutSlot: the node's turn to be changed, and that it is renewed while it is needed."""

from contextlib import suppress

from gpushare_node.adapters.kube.cluster import Cluster, ClusterError
from gpushare_node.core.clock import Clock

_RENEWAL_SECONDS = 60.0
"""Many times in the life of a Lease: one that the API server missed does no harm."""


class RolloutSlot:
    """The turn. A node that fails keeps it, so that a bad change stops; when the program ends, it expires.

    `patience`: for how many seconds a node that waits for its turn need not ask again.
    """

    def __init__(self, cluster: Cluster | None, clock: Clock) -> None:
        self.patience = 0.0
        self._cluster = cluster
        self._clock = clock
        self._has_turn = False
        self._renewed_at = 0.0
        self._limit: int | str = 1

    def take(self, limit: int | str) -> bool:
        """Take a turn, or find that this node has one already; False: it must wait. ClusterError."""
        if self._cluster is None:
            return True
        self._limit = limit
        turn = self._cluster.take_turn(limit)
        self.patience, self._has_turn = turn.pause_seconds, turn.is_held
        self._renewed_at = self._clock.now()
        return self._has_turn

    def take_again(self) -> bool:
        """Take the turn that was not free before. Without an answer of the API server it is not free."""
        with suppress(ClusterError):
            return self.take(self._limit)
        return False

    def find(self) -> bool:
        """Whether a run before this one has left a turn, to be renewed and given back. None is taken. ClusterError."""
        self._has_turn = self._cluster is not None and self._cluster.find_turn()
        return self._has_turn

    def renew(self) -> None:
        """Say once a minute that it is still needed. One that was lost shows when the next is taken: what has begun goes on."""
        if not self._has_turn or self._cluster is None or self._clock.now() - self._renewed_at < _RENEWAL_SECONDS:
            return
        self._renewed_at = self._clock.now()
        with suppress(ClusterError):
            self._cluster.renew_turn()

    def give_back(self) -> None:
        """Another node may be changed now. One that a run before this kept, since it failed, is found and given back too.

        ClusterError leaves the turn to expire.
        """
        if self._cluster is None:
            return
        had, self._has_turn = self._has_turn, False
        if had or self._cluster.find_turn():
            self._cluster.end_turn()
