"""Selection: whether a node stays in its pool. An order releases it at once; a selecting label that is gone, after a wait.

The labels of node and GPU feature discovery vanish for up to a minute when their pods restart. Until the wait is over nothing
is evicted, destroyed or released because of them. The time is in the node's folder, because it must outlive a pod; a reboot
starts it again.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from gpushare_node.adapters.host.state_dir import StateDir, UnselectedMark
from gpushare_node.adapters.kube.cluster import POOL_LABEL, RETRY_ANNOTATION, Cluster, NodeView, PodView
from gpushare_node.contract.struct import Struct
from gpushare_node.core.clock import Clock
from gpushare_node.membership.node_labels import find_successor

RELEASE_AFTER_SECONDS = 300.0
"""How long a node must be unselected before it leaves its pool."""


class Standing(Enum):
    """Whether the node stays in its pool. UNSELECTED: no selector matches it, and the wait is not over."""

    STAYS = "stays"
    UNSELECTED = "unselected"
    LEAVES = "leaves"


class Selection(Struct):
    """The selection of this node by the pool `pool`. `pods` returns the pods on the node. For one run and thread."""

    cluster: Cluster
    pods: Callable[[], Iterable[PodView]]
    folder: StateDir
    clock: Clock
    boot_id: str
    pool: str
    release_after_seconds: float = RELEASE_AFTER_SECONDS

    def find(self, node: NodeView) -> Standing:
        """Return the standing of the node as it was just read, requests aside. ClusterError, StateDirError."""
        mark = self._mark()
        if self.cluster.selects(node):
            if mark is not None:
                self.folder.mark_unselected(None)
            return Standing.STAYS
        if self._is_moved(node):
            return Standing.LEAVES
        is_ordered = RETRY_ANNOTATION in node.annotations
        if mark is None or (is_ordered and not mark.is_ordered):
            mark = UnselectedMark(boot_id=self.boot_id, at_seconds=int(self.clock.now()), is_ordered=is_ordered)
            self.folder.mark_unselected(mark)
        is_over = mark.is_ordered or self.clock.now() - mark.at_seconds >= self.release_after_seconds
        return Standing.LEAVES if is_over else Standing.UNSELECTED

    def _mark(self) -> UnselectedMark | None:
        """Return when the wait began; None if it has not, or in another boot."""
        mark = self.folder.unselected()
        is_of_now = mark is not None and mark.boot_id == self.boot_id and mark.at_seconds <= self.clock.now()
        return mark if is_of_now else None

    def _is_moved(self, node: NodeView) -> bool:
        """Return whether an unselected node has another pool's label or pod, or the pool's own DaemonSet is deleted."""
        if node.labels.get(POOL_LABEL, self.pool) != self.pool:
            return True
        return find_successor(self.pods(), self.pool) is not None or not self.cluster.has_pool()
