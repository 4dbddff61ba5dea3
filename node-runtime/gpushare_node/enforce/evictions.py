"""EvictionRequests: how often an offender's pod is evicted, and from which request on its disruption budget is overridden.

Requests are sent on the work queue's thread; the cycle reads the answers, and reports none before.

After TRIES answers the pod is deleted regardless of its PodDisruptionBudget, because its tenant may have written the budget.
After as many more, or if the API server forbids the eviction (RBAC), only signals remain. An API server that does not answer
has not refused.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from queue import SimpleQueue

from gpushare_node.adapters.kube.cluster import Cluster, ClusterError, Eviction, PodView
from gpushare_node.contract.struct import Struct, field
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.enforce.work_queue import WorkQueue
from gpushare_node.guard.inputs import ContainerId
from gpushare_node.guard.verdicts import ViolationDetails

TRIES = 3
"""How many requests respect a pod's budget, and how many then override it. The guard waits half a minute between two."""

EvictionAnswer = tuple[ViolationDetails, Eviction | None, bool]
"""The violation, the API server's answer (None: it did not answer), and whether the request overrode the budget."""


class EvictionRequests(Struct, frozen=False):
    """The eviction requests made so far. Its methods are for the cycle's thread.

    `offends` is called just before a request is sent, which may be long after it was queued.
    """

    cluster: Cluster
    queue: WorkQueue
    metrics: EnforcementMetrics
    offends: Callable[[ViolationDetails], bool]
    _answers: SimpleQueue[EvictionAnswer] = field(default_factory=SimpleQueue)
    _tries: Counter[ContainerId] = field(default_factory=Counter)
    _forbidden: Counter[ContainerId] = field(default_factory=Counter)

    def request(self, facts: ViolationDetails, pod: PodView, *, is_forced: bool = False) -> None:
        """Queue the eviction of this pod. `is_forced`: override its budget from the first request on."""
        is_forced = is_forced or self._tries[facts.unit.container] >= TRIES
        self.queue.send(lambda: self._send(facts, pod, is_forced=is_forced))

    def update(self) -> Iterator[EvictionAnswer]:
        """Yield the answers that have arrived since the last call."""
        while not self._answers.empty():
            facts, answer, is_forced = self._answers.get()
            if answer is not None:
                self._tries[facts.unit.container] += 1
            if answer is Eviction.FORBIDDEN:
                self._forbidden[facts.unit.container] += 1
            yield facts, answer, is_forced

    def unevictable(self, offenders: Collection[ContainerId]) -> frozenset[ContainerId]:
        """Return the offenders whose pods still run after all requests. Containers that no longer offend are forgotten."""
        for container in self._tries.keys() - set(offenders):
            del self._tries[container], self._forbidden[container]
        return frozenset(
            container for container, tries in self._tries.items() if tries >= 2 * TRIES or self._forbidden[container] >= TRIES
        )

    def _send(self, facts: ViolationDetails, pod: PodView, *, is_forced: bool) -> None:
        """On the work queue's thread."""
        if not self.offends(facts):
            return
        try:
            answer: Eviction | None = self.cluster.evict(pod, is_forced=is_forced)
        except ClusterError:
            self.metrics.api_errors.add("evict")
            answer = None
        self.metrics.evictions.add("failed" if answer is None else answer.value)
        self._answers.put((facts, answer, is_forced))
