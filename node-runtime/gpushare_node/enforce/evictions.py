"""Evictions of offenders' pods: asked for on the errands' thread, heard of in the cycle, and never told before the answer.

A refusal is not the end: after so many requests the pod is deleted whatever its disruption budget says, for its tenant may have
written that; after as many more, or where the API server forbids it (RBAC), nothing is left but signals. Silence of the API
server is no refusal.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from queue import SimpleQueue

from gpushare_node.adapters.kube.cluster import ClusterError, EventSink, Eviction, PodView
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.enforce.work_queue import WorkQueue
from gpushare_node.guard.identity import ContainerId
from gpushare_node.guard.verdicts import ViolationDetails

TRIES = 3
"""How often a pod's budget is asked, and how often it is then not heeded. The guard waits half a minute between two."""

Heard = tuple[ViolationDetails, Eviction | None, bool]
"""What was asked for, the answer (None: there was none), and whether the budget was passed over."""


class EvictionRequests:
    """What has been asked for. Its methods are for the cycle's thread."""

    def __init__(
        self,
        cluster: EventSink,
        queue: WorkQueue,
        figures: EnforcementMetrics,
        *,
        offends: Callable[[ViolationDetails], bool],
    ) -> None:
        """`offends` is asked when a request's turn comes, which may be long after it was made."""
        self._cluster = cluster
        self._queue = queue
        self._figures = figures
        self._offends = offends
        self._answers: SimpleQueue[Heard] = SimpleQueue()
        self._tries: Counter[ContainerId] = Counter()
        self._forbidden: Counter[ContainerId] = Counter()

    def ask(self, facts: ViolationDetails, pod: PodView, *, is_forced: bool = False) -> None:
        """Ask soon for the end of this pod. `is_forced`: whatever its budget says, from the first time on."""
        is_forced = is_forced or self._tries[facts.unit.container] >= TRIES
        self._queue.send(lambda: self._ask(facts, pod, is_forced=is_forced))

    def update(self) -> Iterator[Heard]:
        """What has come of requests since."""
        while not self._answers.empty():
            facts, answer, is_forced = self._answers.get()
            if answer is not None:
                self._tries[facts.unit.container] += 1
            if answer is Eviction.FORBIDDEN:
                self._forbidden[facts.unit.container] += 1
            yield facts, answer, is_forced

    def in_vain(self, offenders: Collection[ContainerId]) -> frozenset[ContainerId]:
        """The offenders whose pods have not gone for all that was asked. Whoever offends no more is forgotten."""
        for container in self._tries.keys() - set(offenders):
            del self._tries[container], self._forbidden[container]
        return frozenset(
            container for container, tries in self._tries.items()
            if tries >= 2 * TRIES or self._forbidden[container] >= TRIES
        )

    def _ask(self, facts: ViolationDetails, pod: PodView, *, is_forced: bool) -> None:
        """On the errands' thread."""
        if not self._offends(facts):
            return
        try:
            answer: Eviction | None = self._cluster.evict(pod, is_forced=is_forced)
        except ClusterError:
            self._figures.api_errors.add("evict")
            answer = None
        self._figures.evictions.add("failed" if answer is None else answer.value)
        self._answers.put((facts, answer, is_forced))
