"""RolloutSlot: the node's slot in the rollout of its pool; renewed while the run needs it."""

from contextlib import suppress

from gpushare_node.adapters.kube.cluster import Cluster, ClusterError
from gpushare_node.core.clock import Clock

_RENEWAL_SECONDS = 60.0
"""Far below the Lease's duration: one renewal that fails does no harm."""


class RolloutSlot:
    """The slot. A node that fails keeps it, so that a bad change stops; it expires after the program has ended.

    `patience`: for how many seconds a node that waits for a slot need not ask again. `holder`: a node that has one meanwhile.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.patience = 0.0
        self.holder = ""
        self._cluster = cluster
        self._clock = clock
        self._is_held = False
        self._renewed_at = 0.0
        self._limit: int | str = 1

    @property
    def is_held(self) -> bool:
        """Whether this run has the slot, as far as it knows."""
        return self._is_held

    def take(self, limit: int | str) -> bool:
        """Take a slot, or find that this node has one; False: the node must wait. ClusterError."""
        self._limit = limit
        position = self._cluster.take_slot(limit)
        self.patience, self.holder, self._is_held = position.pause_seconds, position.holder, position.is_held
        self._renewed_at = self._clock.now()
        return self._is_held

    def take_again(self) -> bool:
        """Try again to take the slot that was not free. If the API server does not answer, it is not free."""
        with suppress(ClusterError):
            return self.take(self._limit)
        return False

    def find(self) -> bool:
        """Return whether an earlier run has left a slot, to be renewed and given back. Takes none. ClusterError."""
        self._is_held = self._cluster.find_slot()
        return self._is_held

    def renew(self) -> None:
        """Renew the slot once a minute. If it is lost, the next `take` shows that; a change that has begun continues."""
        if not self._is_held or self._clock.now() - self._renewed_at < _RENEWAL_SECONDS:
            return
        self._renewed_at = self._clock.now()
        with suppress(ClusterError):
            self._cluster.renew_slot()

    def give_back(self) -> None:
        """Let another node be changed. A slot that an earlier run kept, because it failed, is also given back.

        ClusterError: the slot stays until it expires.
        """
        had, self._is_held = self._is_held, False
        if had or self._cluster.find_slot():
            self._cluster.release_slot()
