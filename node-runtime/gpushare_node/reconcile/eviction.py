"""DrainEvictions: which pods a drain evicts, and which it does not evict again because their controller recreates them."""

from collections.abc import Iterable

from gpushare_node.adapters.kube.cluster import Cluster, ClusterError, Eviction
from gpushare_node.contract.struct import Struct, field
from gpushare_node.reconcile.usage import Holder
from gpushare_node.reporting.outcome import Status, StepResult


class DrainEvictions(Struct, frozen=False):
    """The evictions of one run on its node: only of the pods that were there at first.

    If a pod tolerates our taint, as a DaemonSet's may, its controller recreates it on the node: to evict that one as well
    changes nothing.
    """

    _first: frozenset[str] | None = None
    _moved: set[str] = field(default_factory=set)
    """Controllers of which a pod was evicted."""
    _reported: set[str] = field(default_factory=set)

    def request(self, cluster: Cluster, holders: Iterable[Holder], platform: frozenset[str] | None) -> list[StepResult]:
        """Request the eviction of each pod that can be moved, and return what to report.

        A disruption budget may refuse: the next look requests it again.
        """
        found = tuple(holders)
        if self._first is None:
            self._first = frozenset(holder.pod_uid for holder in found)
        return [result for holder in found if self.can_move(holder, platform) for result in self._evict(cluster, holder)]

    def can_move(self, holder: Holder, platform: frozenset[str] | None) -> bool:
        """Return whether an eviction frees the GPUs. Pods of `platform` stay; if that is unknown, all pods stay."""
        if holder.pod is None or holder.pod.has_ended or platform is None or holder.pod.namespace in platform:
            return False
        return not self._is_successor(holder)

    def describe_successors(self, holders: Iterable[Holder]) -> str:
        """Return which controllers recreate their pods, as the end of a sentence; empty if none does."""
        owners = sorted({holder.pod.controller for holder in holders if holder.pod is not None and self._is_successor(holder)})
        return f"; not evicted again, because {', '.join(owners)} recreates it" if owners else ""

    def _is_successor(self, holder: Holder) -> bool:
        return self._first is not None and holder.pod_uid not in self._first and _controller(holder) in self._moved

    def _evict(self, cluster: Cluster, holder: Holder) -> list[StepResult]:
        if holder.pod is None or holder.pod.is_terminating:
            return []
        try:
            answer = cluster.evict(holder.pod)
        except ClusterError as error:
            return [StepResult(step="evict", target=holder.name, status=Status.FAILED, detail=str(error))]
        if answer not in (Eviction.EVICTED, Eviction.FORBIDDEN) or holder.pod_uid in self._reported:
            return []
        self._reported.add(holder.pod_uid)
        if answer is Eviction.FORBIDDEN:
            return [StepResult(step="evict", target=holder.name, status=Status.FAILED, detail="the runtime may not evict it")]
        if holder.pod.controller:
            self._moved.add(_controller(holder))
        return [
            StepResult(step="evict", target=holder.name, status=Status.CHANGED, detail="it holds a GPU that must be changed")
        ]


def _controller(holder: Holder) -> str:
    return "" if holder.pod is None else f"{holder.pod.namespace}/{holder.pod.controller}"
